"""Short Gibbs chains of a graph beside rows of data: a `ChainSampler` of the training floor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core import seeds
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import MethodError
from kikuchi.engines.sampling.sweepers import TableSweeper
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import flatten
from kikuchi.learning.data import Data
from kikuchi.learning.ties import Parameters
from kikuchi.training.rule import GradientEstimate, State

States = NDArray[np.int32]


@dataclass(frozen=True)
class SampledStates:
    """States of chains, one per row, and how often each entry of each table occurs in them."""

    states: State
    frequencies: Array


class GibbsSampler:
    """Gibbs sweeps over all variables, or over the hidden cells of rows whose others are clamped.

    Hidden cells of a row go on, for every rule, where the last visit to the row left them. Chains
    that stand for rows count with their weights.
    """

    def __init__(self, graph: FactorGraph, parameters: Parameters, data: Data) -> None:
        self.graph, self.parameters, self.data = graph, parameters, data
        self.flat = flatten(graph)
        self.keeps_hidden = not data.complete
        self.names: tuple[str, ...] = ("states",)
        self.held = self.names if self.keeps_hidden else ()
        self._sweepers: dict[int, TableSweeper] = {}

    def set_tables(self, tables: Array) -> None:
        """Sample from these log-tables from now on."""
        self.tables = tables
        self.flat = self.flat.with_tables(tables)

    def begin(
        self, data: Any, rows: Ints, sweeps: int, rng: np.random.Generator, *, compact: bool
    ) -> State:
        """Chains at these rows, their hidden cells at random."""
        states = self.data.states[rows]
        if self.keeps_hidden:
            states = np.where(states < 0, self.random(len(rows), rng)["states"], states)
        return {"states": states}

    def random(self, count: int, rng: np.random.Generator) -> State:
        """Chains at random states."""
        shape = (count, self.data.n_variables)
        cards = np.broadcast_to(self.data.cardinalities, shape)
        return {"states": rng.integers(0, cards).astype(np.int32)}

    def centres(self, data: Any) -> State:
        """Refused: tables have no centres."""
        raise MethodError("option centred: only Boltzmann machines have it")

    def clamp(
        self,
        batch: Any,
        rows: Ints,
        rng: np.random.Generator,
        *,
        sweeps: int,
        start: State | None,
        draw: bool,
    ) -> SampledStates:
        """The rows, their hidden cells drawn given the others."""
        observed, weights = self.data.states[rows], self.data.weights[rows]
        if not self.keeps_hidden:
            counts = self.data.like(observed, weights).factor_counts(self.graph)
            return SampledStates({"states": observed}, counts / weights.sum())
        assert start is not None  # hidden cells are kept
        missing = observed < 0
        sweeper = self._sweeper(np.where(missing, start["states"], observed), rng)
        sweeper.burn_free(sweeps, np.ascontiguousarray(missing.T).ravel())
        return _sampled(sweeper, weights)

    def sweep(
        self, start: State, sweeps: int, rng: np.random.Generator, *, rows: Ints | None, keep: bool
    ) -> SampledStates:
        """Sweeps over all variables; chains that stand for rows have their weights."""
        sweeper = self._sweeper(start["states"], rng)
        sweeper.burn(sweeps)
        weights = np.ones(sweeper.chains) if rows is None else self.data.weights[rows]
        return _sampled(sweeper, weights)

    def contrast(self, positive: Any, negatives: Iterable[Any], count: int) -> GradientEstimate:
        """Frequencies of the rows minus those of the chains, as a gradient by theta."""
        expected = sum((phase.frequencies for phase in negatives), np.zeros(len(self.tables)))
        gradient = positive.frequencies - expected / count
        return GradientEstimate({"theta": self.parameters.pull_back(self.tables, gradient)})

    def _sweeper(self, states: NDArray[Any], rng: np.random.Generator) -> TableSweeper:
        """Chains at these states, one per row, with random streams of their own."""
        chains = len(states)
        if chains not in self._sweepers:
            order = np.arange(self.data.n_variables)
            self._sweepers[chains] = TableSweeper(self.flat, chains, order)
        sweeper = self._sweepers[chains]
        sweeper.flat = self.flat
        sweeper.set(states.T.astype(np.int64))
        sweeper.seed(seeds.kernel_seeds(rng, chains))
        return sweeper


def _sampled(sweeper: TableSweeper, weights: Array) -> SampledStates:
    from kikuchi.learning.local.kernels.contrastive import add_entries

    frequencies = np.zeros(sweeper.flat.log_tables.size)
    add_entries(sweeper.entries, weights / weights.sum(), frequencies)
    states = sweeper.states.reshape(-1, sweeper.chains).T.astype(np.int32)
    return SampledStates({"states": states}, frequencies)
