"""Machines as factor graphs and back, and as models of +-1 spins, so that every graph method
applies to small machines.

Reference: HOJ-M4, LAW-L6, LAW-M5, TEH-M4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits, BinomialUnits, Units
from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import ModelError
from kikuchi.graphs.binary import (
    bits_to_spins,
    boltzmann_graph,
    couplings_and_fields,
    spins_to_bits,
)
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.training.model import Parameters


class Converted(NamedTuple):
    """A machine and the constant by which the log Z of its source is larger."""

    machine: Machine
    constant: float


class SpinParameters(NamedTuple):
    """-E = constant + sum_{i<j} J_ij s_i s_j + sum_i h_i s_i over s = +-1, visible units first."""

    couplings: Array
    fields: Array
    constant: float


# ---------------------------------------------------------------------- one block


def joint_weights(machine: Machine) -> tuple[Array, Array]:
    """The symmetric weights and the biases of all units, visible ones first.

    >>> machine = Machine(np.array([[2.0]]), np.array([0.5]), np.array([-1.0]))
    >>> [array.tolist() for array in joint_weights(machine)]
    [[[0.0, 2.0], [2.0, 0.0]], [0.5, -1.0]]
    """
    d, n = machine.n_visible, machine.n_visible + machine.n_hidden
    weights = np.zeros((n, n))
    weights[:d, d:] = machine.weights
    weights[d:, :d] = machine.weights.T
    if machine.visible_weights is not None:
        weights[:d, :d] = machine.visible_weights
    if machine.hidden_weights is not None:
        weights[d:, d:] = machine.hidden_weights
    biases = np.concatenate([machine.visible_bias, machine.hidden_bias]).astype(np.float64)
    return weights, biases


def machine_of(weights: ArrayLike, biases: ArrayLike, n_visible: int) -> Machine:
    """A binary machine from the weights of all units; sides without connections have none.

    >>> machine_of([[0, 2], [2, 0]], [0.5, -1], n_visible=1).weights.tolist()
    [[2.0]]
    """
    w = np.array(weights, dtype=np.float64)
    b = np.array(biases, dtype=np.float64)
    if w.shape != (len(b), len(b)) or not 1 <= n_visible <= len(b):
        raise ModelError(
            f"machine: weights of shape {w.shape}, {len(b)} biases and {n_visible} visible units "
            "do not fit together"
        )
    visible, hidden = w[:n_visible, :n_visible], w[n_visible:, n_visible:]
    return Machine(
        weights=w[:n_visible, n_visible:].copy(),
        visible_bias=b[:n_visible].copy(),
        hidden_bias=b[n_visible:].copy(),
        visible_weights=visible.copy() if np.any(visible) else None,
        hidden_weights=hidden.copy() if np.any(hidden) else None,
    )


# ---------------------------------------------------------------------- factor graphs


def to_factor_graph(machine: Machine) -> FactorGraph:
    """The machine as a graph of variables v0, v1, ..., h0, h1, ...; weights of zero make no factor.

    >>> graph = to_factor_graph(Machine(np.array([[2.0]]), np.array([0.5]), np.array([-1.0])))
    >>> graph.names, graph.log_score([1, 1])
    (('v0', 'h0'), 1.5)
    """
    weights, biases = joint_weights(machine)
    names = [f"v{i}" for i in range(machine.n_visible)]
    names += [f"h{j}" for j in range(machine.n_hidden)]
    if isinstance(machine.visible, BinaryUnits) and isinstance(machine.hidden, BinaryUnits):
        return boltzmann_graph(weights, biases, names=names)
    kinds = [machine.visible] * machine.n_visible + [machine.hidden] * machine.n_hidden
    states = [_states(kind) for kind in kinds]
    factors: list[tuple[tuple[int, ...], Array]] = [
        ((i,), np.exp(biases[i] * s + kinds[i].log_base(s))) for i, s in enumerate(states)
    ]
    for i, j in np.argwhere(np.triu(weights, 1)):
        table = np.exp(weights[i, j] * np.multiply.outer(states[i], states[j]))
        factors.append(((int(i), int(j)), table))
    return FactorGraph([len(s) for s in states], factors, names=names)


def _states(units: Units) -> Array:
    if isinstance(units, BinaryUnits | BinomialUnits):
        return np.arange(2.0 if isinstance(units, BinaryUnits) else units.replicas + 1.0)
    raise ModelError(f"units of kind {units.text} have no finite states; a graph needs them")


def from_factor_graph(graph: FactorGraph, hidden: Iterable[int | str] = ()) -> Converted:
    """The machine of a positive binary pairwise graph; `hidden` names its hidden variables.

    Visible units are the others, in the order of the graph. Other graphs are refused.

    >>> pair = boltzmann_graph({(0, 1): 2.0}, [0.5, -1.0])
    >>> machine, constant = from_factor_graph(pair, hidden=[1])
    >>> machine.weights.round(12).tolist(), machine.hidden_bias.round(12).tolist()
    ([[2.0]], [-1.0])
    """
    form = couplings_and_fields(graph)
    chosen = [graph.index(v) for v in hidden]
    if len(set(chosen)) < len(chosen):
        raise ModelError("hidden names a variable twice")
    shown = [v for v in range(graph.n_variables) if v not in set(chosen)]
    order = np.array(shown + chosen, dtype=np.int64)
    couplings = form.couplings.toarray()[np.ix_(order, order)]
    return from_spins(couplings, form.fields[order], len(shown), constant=form.constant)


# ---------------------------------------------------------------------- spins


def from_spins(
    couplings: ArrayLike, fields: ArrayLike, n_visible: int, *, constant: float = 0.0
) -> Converted:
    """The machine of bits of a model of spins: W = 4 J, b_i = 2 h_i - 2 sum_j J_ij.

    >>> from_spins([[0.0, 0.5], [0.5, 0.0]], [0.1, -0.2], n_visible=2).machine.visible_weights
    array([[0., 2.],
           [2., 0.]])
    """
    weights, biases, left = spins_to_bits(np.asarray(couplings, dtype=np.float64), fields)
    return Converted(machine_of(weights, biases, n_visible), left + constant)


def to_spins(machine: Machine) -> SpinParameters:
    """Couplings, fields and constant of a binary machine in spins +-1."""
    _check_units(machine)
    return SpinParameters(*bits_to_spins(*joint_weights(machine)))


def spin_ascent(machine: Machine, ascent: Parameters) -> tuple[Array, Array]:
    """A gradient with respect to bits as one with respect to couplings and fields of spins.

    By the chain rule dF/dJ_ij = 4 dF/dW_ij - 2 (dF/db_i + dF/db_j) and dF/dh_i = 2 dF/db_i: with
    the statistics of bits this is the difference of <s_i s_j> and of <s_i>. Learning in spins
    takes other steps than learning in bits; Lawrence's experiments are in spins.
    """
    _check_units(machine)
    d, n = machine.n_visible, machine.n_visible + machine.n_hidden
    ones = np.concatenate([ascent["visible_bias"], ascent["hidden_bias"]]).astype(np.float64)
    pairs = np.zeros((n, n))
    pairs[:d, d:], pairs[d:, :d] = ascent["weights"], ascent["weights"].T
    pairs[:d, :d] = ascent.get("visible_weights", np.zeros(()))
    pairs[d:, d:] = ascent.get("hidden_weights", np.zeros(()))
    couplings = 4.0 * pairs - 2.0 * (ones[:, None] + ones[None, :])
    return np.where(connections(machine), couplings, 0.0), 2.0 * ones


def connections(machine: Machine) -> Mask:
    """Which pairs of units may have a weight, visible units first.

    >>> connections(Machine(np.zeros((1, 1)), np.zeros(1), np.zeros(1))).tolist()
    [[False, True], [True, False]]
    """
    d, n = machine.n_visible, machine.n_visible + machine.n_hidden
    present = np.zeros((n, n), dtype=np.bool_)
    present[:d, d:] = machine.masks.get("weights", True)
    present[d:, :d] = present[:d, d:].T
    if machine.visible_weights is not None:
        present[:d, :d] = machine.masks.get("visible_weights", True)
    if machine.hidden_weights is not None:
        present[d:, d:] = machine.masks.get("hidden_weights", True)
    np.fill_diagonal(present, False)
    return present


def _check_units(machine: Machine) -> None:
    for kind in (machine.visible, machine.hidden):
        if not isinstance(kind, BinaryUnits):
            raise ModelError(f"units of kind {kind.text} are no spins; use binary units")
