"""Directions in which clamped marginals of UPS can move to lower the Bethe free energy.

With the trees solved, the least Bethe free energy is a smooth function of the clamped marginals.
Clamping one set after the other is coordinate descent on it, which takes for ever where strong
factors tie variables of different sets. These directions move all marginals of a set at once.

Reference: TEH-I7, TEH-I17.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.lbfgs import Memory
from kikuchi.engines.messages.clamped_messages import ClampedMessages
from kikuchi.engines.messages.tree_metric import TreeMetric
from kikuchi.engines.messages.update_order import UpdateOrder
from kikuchi.graphs.factor_graph import FactorGraph

NEWTON_STATES = 400  # states of clamped variables for which a dense Hessian is worth its cost
_FIRST_STEP = 0.3  # times the gradient in its metric
_FLAT = 1e-8  # least curvature, relative to that of independent variables


class Directions(Protocol):
    """Proposes changes of the clamped marginals; `learn` is told of each that was made."""

    def propose(self, messages: ClampedMessages, gradient: Array) -> Array:
        """A change of the clamped marginals along which the free energy falls."""

    def learn(self, step: Array, change: Array) -> None:
        """Take note of a step and the change of the gradient."""


class NewtonDirections:
    """Newton's, with the Hessian by linear response on the trees and its modulus.

    Directions of negative curvature are descended as if it were positive.
    """

    def __init__(self, graph: FactorGraph, order: UpdateOrder, held: Mask) -> None:
        self.order, self.held = order, held
        self.states = np.flatnonzero(np.repeat(held, graph.cardinalities))
        owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)[self.states]
        self.same = owner[:, None] == owner[None, :]

    def propose(self, messages: ClampedMessages, gradient: Array) -> Array:
        """Minus |Hessian|^-1 gradient, among changes that keep every sum at 1."""
        root = np.sqrt(messages.clamped_to[self.states])
        constant = self.same * np.outer(root, root)  # projects on changes of the sums
        inside = np.eye(len(root)) - constant
        hessian = messages.curvature(self.order, self.held) * np.outer(root, root)
        values, vectors = np.linalg.eigh(inside @ hessian @ inside + constant)
        slope = inside @ (root * gradient[self.states])
        step = vectors @ ((vectors.T @ slope) / np.maximum(np.abs(values), _FLAT))
        out = np.zeros_like(gradient)
        out[self.states] = -root * (inside @ step)
        return out

    def learn(self, step: Array, change: Array) -> None:
        """The Hessian is computed anew each time."""


class QuasiDirections:
    """L-BFGS for sets that are too large; the metric is the covariance of a Markov tree."""

    def __init__(self, graph: FactorGraph, held: Mask) -> None:
        self.held = np.repeat(held, graph.cardinalities)
        self.metric = TreeMetric(graph)
        self.memory = Memory()

    def propose(self, messages: ClampedMessages, gradient: Array) -> Array:
        """Tied variables are moved together."""
        self.metric.update(messages.factor_marginals(), messages.marginals())
        return self.memory.direction(gradient, lambda v: self.held * self.metric(v), _FIRST_STEP)

    def learn(self, step: Array, change: Array) -> None:
        """Remember a step and what it did to the gradient."""
        self.memory.add(np.where(self.held, step, 0.0), change)


def directions(graph: FactorGraph, order: UpdateOrder, held: Mask) -> Directions:
    """Newton's for small sets, else quasi-Newton.

    >>> from kikuchi import grid
    >>> from kikuchi.engines.messages.update_order import make_update_order
    >>> square, held = grid(2, 2), np.array([True, False, False, False])
    >>> type(directions(square, make_update_order(square, held), held)).__name__
    'NewtonDirections'
    """
    if graph.cardinalities[held].sum() <= NEWTON_STATES:
        return NewtonDirections(graph, order, held)
    return QuasiDirections(graph, held)
