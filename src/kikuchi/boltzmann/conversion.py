"""Machines as factor graphs and back, and as models of +-1 spins, so that every graph method
applies to small machines.

Reference: HOJ-M4, LAW-L6, LAW-M5, TEH-M4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.boltzmann.parameters import MachineParameters
from kikuchi.boltzmann.units import BinaryUnits, BinomialUnits, Units
from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import ModelError
from kikuchi.graphs.binary import (
    bits_to_spins,
    boltzmann_graph,
)
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.training.model import Parameters


class SpinParameters(NamedTuple):
    """-E = constant + sum_{i<j} J_ij s_i s_j + sum_i h_i s_i over s = +-1, visible units first."""

    couplings: Array
    fields: Array
    constant: float


# ---------------------------------------------------------------------- one block


def joint_weights(machine: MachineParameters) -> tuple[Array, Array]:
    """The symmetric weights and the biases of all units, visible ones first.

    >>> machine = MachineParameters(np.array([[2.0]]), np.array([0.5]), np.array([-1.0]))
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


# ---------------------------------------------------------------------- factor graphs


def to_factor_graph(machine: MachineParameters) -> FactorGraph:
    """The machine as a graph of variables v0, v1, ..., h0, h1, ...; weights of zero make no factor.

    >>> pair = MachineParameters(np.array([[2.0]]), np.array([0.5]), np.array([-1.0]))
    >>> graph = to_factor_graph(pair)
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


# ---------------------------------------------------------------------- spins


def to_spins(machine: MachineParameters) -> SpinParameters:
    """Couplings, fields and constant of a binary machine in spins +-1."""
    _check_units(machine)
    return SpinParameters(*bits_to_spins(*joint_weights(machine)))


def spin_ascent(machine: MachineParameters, ascent: Parameters) -> tuple[Array, Array]:
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


def connections(machine: MachineParameters) -> Mask:
    """Which pairs of units may have a weight, visible units first.

    >>> connections(MachineParameters(np.zeros((1, 1)), np.zeros(1), np.zeros(1))).tolist()
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


def _check_units(machine: MachineParameters) -> None:
    for kind in (machine.visible, machine.hidden):
        if not isinstance(kind, BinaryUnits):
            raise ModelError(f"units of kind {kind.text} are no spins; use binary units")
