"""Machines from binary graphs and from models of +-1 spins.

Reference: HOJ-M4, LAW-L6, LAW-M5, TEH-M4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.boltzmann.machine import Machine
from kikuchi.core.errors import ModelError
from kikuchi.graphs.binary import couplings_and_fields, spins_to_bits
from kikuchi.graphs.factor_graph import FactorGraph


class Converted(NamedTuple):
    """A machine and the constant by which the log Z of its source is larger."""

    machine: Machine
    constant: float


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


def from_factor_graph(graph: FactorGraph, hidden: Iterable[int | str] = ()) -> Converted:
    """The machine of a positive binary pairwise graph; `hidden` names its hidden variables.

    Visible units are the others, in the order of the graph. Other graphs are refused.

    >>> from kikuchi import boltzmann_graph
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
