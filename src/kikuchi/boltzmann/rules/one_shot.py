"""Visible machines in one step: couplings from the inverse covariance of the data (TEH-L7).

In the mean field approximation [C^-1]_ij = delta_ij / (m_i (1 - m_i)) - V_ij and
m_i = sigma(b_i + sum_j V_ij m_j). Read backwards, with means m and covariances C of the data:

    V_ij = -[C^-1]_ij,    b_i = logit(m_i) - sum_j V_ij m_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.machine import Machine, masked
from kikuchi.boltzmann.units import Binary
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import option
from kikuchi.training.model import Parameters
from kikuchi.training.rule import GradientEstimate, Rule, State

Array = NDArray[Any]

_SINGULAR = 1e-12  # smallest eigenvalue of a covariance that is inverted


@dataclass(frozen=True)
class OneShot(Rule[Machine]):
    """Linear response for machines without hidden units: one matrix inversion (TEH-L7).

    The error falls with the square of the couplings. `prior` rows of the uniform distribution are
    added to the data, so that means stay off 0 and 1. Couplings that a mask leaves out are dropped.

    >>> from kikuchi.training.trainer import train
    >>> rows = np.array([[1, 1], [1, 1], [1, 0], [0, 1], [0, 0], [0, 0]])
    >>> start = Machine.random(2, 0, architecture="poe", random_state=0)
    >>> done = train(start, rows, "one-shot")
    >>> done.stopped, bool(done.model.visible_weights[0, 1] > 0)
    ('converged', True)
    """

    name: ClassVar[str] = "one-shot"
    summary: ClassVar[str] = "visible machines by linear response: one matrix inversion"

    prior: float = option(1.0, "rows of the uniform distribution that are added", low=0)

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """Refuses machines with hidden units, without couplings, or of other units."""
        what = None
        if machine.n_hidden:
            what = f"{machine.n_hidden} hidden units"
        elif machine.visible_weights is None:
            what = "no connections of visible units"
        elif not isinstance(machine.visible, Binary):
            what = f"{machine.visible.name} units"
        if what is not None:
            raise MethodError(
                f"learner one-shot is for connected binary machines without hidden units, and this "
                f"one has {what}; use learner pseudo or cd"
            )
        return {}

    def solve(self, machine: Machine, data: Array) -> Parameters:
        """Couplings and biases from the moments of all rows."""
        self.begin(machine, data, np.random.default_rng(0))
        means, covariance = self._moments(np.asarray(data, dtype=np.float64))
        values, vectors = np.linalg.eigh(covariance)
        if values[0] < _SINGULAR:
            raise DataError(
                "data: the covariance of the units is singular (some are functions of others); "
                "raise prior"
            )
        inverse = (vectors / values) @ vectors.T
        weights = masked("visible_weights", -inverse, machine.masks.get("visible_weights"))
        bias = np.log(means) - np.log1p(-means) - weights @ means
        found = {"visible_weights": weights, "visible_bias": bias}
        still = {"weights": machine.weights, "hidden_bias": machine.hidden_bias}
        return {n: a.astype(machine.dtype) for n, a in (found | still).items()}

    def gradient(
        self,
        machine: Machine,
        batch: Array,
        rows: NDArray[np.int64],
        state: State,
        rng: np.random.Generator,
    ) -> GradientEstimate:
        """The way from the present parameters to the solution for this batch."""
        wanted = self.solve(machine, batch)
        return GradientEstimate({n: wanted[n] - a for n, a in machine.parameters.items()})

    def _moments(self, rows: Array) -> tuple[Array, Array]:
        """Means and covariances of the rows and `prior` uniform ones."""
        n, d = rows.shape
        share = self.prior / (n + self.prior)
        means = (1 - share) * rows.mean(axis=0) + 0.5 * share
        if np.any((means <= 0) | (means >= 1)):
            unit = int(np.flatnonzero((means <= 0) | (means >= 1))[0])
            raise DataError(f"data: unit {unit} is in the same state in every row; raise prior")
        second = (1 - share) * (rows.T @ rows) / n + share * (0.25 + 0.25 * np.eye(d))
        return means, second - np.outer(means, means)
