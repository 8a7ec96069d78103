"""The posterior itself, by enumeration of all states of the unknown units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import (
    PosteriorFit,
    Start,
    UnitPosterior,
    require_time,
    unknown_groups,
)
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.core.numerics import logsumexp
from kikuchi.core.options import option
from kikuchi.training.model import Parameters

_LARGEST_TABLE = 4_000_000  # numbers of the table of all states


@dataclass(frozen=True)
class EnumeratedUnits(UnitPosterior):
    """Enumeration of all states of the unknown units: the reference.

    >>> net = SigmoidNetwork.layered([np.array([[2.0]])], [[0.0], [0.0]])
    >>> fit = EnumeratedUnits().fit(net, net.clamped(np.ones((1, 1))), rng=np.random.default_rng(0))
    >>> bool(np.isclose(np.exp(fit.bound[0]), 0.5 * 0.5 + 0.5 / (1 + np.exp(-2))))
    True
    """

    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "enumeration of all hidden states"

    most_units: int = option(20, "unknown units at most", low=0, high=26)

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Log-likelihoods and exact means."""
        if len(free) > self.most_units:
            raise BudgetError(
                f"{len(free)} unknown units have 2^{len(free)} states, at most 2^{self.most_units} "
                "are enumerated; use mean-field, mixture:5 or gibbs"
            )
        bound, means = np.empty(len(states)), states.copy()
        table = _SharedStates.of(network, free)
        if table is not None:
            for block in table.blocks(len(states)):
                logs = table.log_joints(states[block])
                bound[block] = logsumexp(logs, axis=1)
                shares = np.exp(logs - bound[block, None])
                means[block, free] = shares @ table.bits[:, free]
            return PosteriorFit(bound, means, np.ones(len(states), dtype=bool), exact=True)
        bits = (np.arange(1 << len(free))[:, None] >> np.arange(len(free))) & 1
        for row in range(len(states)):
            require_time(clock)
            logs = self._log_joints(network, states[row], free)
            bound[row] = logsumexp(logs)
            means[row, free] = np.exp(logs - bound[row]) @ bits
        return PosteriorFit(bound, means, np.ones(len(states), dtype=bool), exact=True)

    def _log_joints(self, network: SigmoidNetwork, state: Array, free: Ints) -> Array:
        from kikuchi.beliefnets.kernels.states import log_joints

        out = np.empty(1 << len(free))
        log_joints(network.edges, free.astype(np.uint32), state.copy(), out)
        return out

    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """Gradient of the log-likelihood itself."""
        from kikuchi.beliefnets.kernels.states import add_expected_gradient

        found = {name: np.zeros_like(array) for name, array in network.parameters.items()}
        for rows, free in unknown_groups(states):
            table = _SharedStates.of(network, free)
            if table is not None:
                for block in table.blocks(len(rows)):
                    table.add_gradient(states[rows[block]], found["weights"], found["bias"])
                continue
            for row in rows:
                logs = self._log_joints(network, states[row], free)
                p = np.exp(logs - logsumexp(logs))
                add_expected_gradient(
                    network.edges, free.astype(np.uint32), states[row].copy(), p,
                    found["weights"], found["bias"],
                )  # fmt: skip
        return found

    def draw(self, *given: Any, **more: Any) -> tuple[Array, Array]:
        """Refused: what the draws would estimate is known."""
        raise MethodError("the exact posterior needs no draws; its bound is the log-likelihood")


class _SharedStates:
    """All states of the unknown units with their inputs, where these do not depend on the row: no
    known unit has a child. Likelihoods of rows are then one matrix product.
    """

    def __init__(self, network: SigmoidNetwork, free: Ints) -> None:
        self.network = network
        self.known: Ints = np.setdiff1d(np.arange(network.n_units), free)
        self.bits = np.zeros((1 << len(free), network.n_units))
        self.bits[:, free] = (np.arange(1 << len(free))[:, None] >> np.arange(len(free))) & 1
        self.inputs = network.inputs(self.bits)
        soft = np.logaddexp(0.0, self.inputs)
        self.constant = np.sum(self.bits * self.inputs - soft, axis=1)

    @classmethod
    def of(cls, network: SigmoidNetwork, free: Ints) -> _SharedStates | None:
        """The table, unless it is too large or would differ from row to row."""
        has_child = np.zeros(network.n_units, dtype=bool)
        has_child[network.tails] = True
        has_child[free] = False
        if has_child.any() or network.n_units << len(free) > _LARGEST_TABLE:
            return None
        return cls(network, free)

    def blocks(self, rows: int) -> Iterator[slice]:
        """Slices of rows that keep the table of their weights small."""
        size = max(1, _LARGEST_TABLE // len(self.bits))
        for first in range(0, rows, size):
            yield slice(first, first + size)

    def log_joints(self, states: Array) -> Array:
        """log P of each row with each state of the unknown units."""
        return np.asarray(states[:, self.known] @ self.inputs[:, self.known].T + self.constant)

    def add_gradient(self, states: Array, to_weights: Array, to_bias: Array) -> None:
        """Add the gradient of the rows' log-likelihoods."""
        logs = self.log_joints(states)
        shares = np.exp(logs - logsumexp(logs, axis=1)[:, None])
        total = shares.sum(axis=0)[:, None]
        error = total * (self.bits - 0.5 * (1.0 + np.tanh(0.5 * self.inputs)))
        error[:, self.known] += shares.T @ states[:, self.known]
        network = self.network
        to_bias += error.sum(axis=0)
        to_weights += (self.bits.T @ error)[network.tails, network.heads]
