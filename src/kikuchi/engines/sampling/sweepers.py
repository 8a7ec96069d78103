"""Chains of a Gibbs sampler in lock step: arrays, and the kernels that move them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from kikuchi.core.arrays import U8, Array, Ints, Mask
from kikuchi.engines.sampling.chains import BitRows, Chains, TableRows
from kikuchi.graphs.binary import BoltzmannParameters, boltzmann_parameters
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import GraphArrays

_LARGEST_EXPONENT = 700.0  # of e^x in double precision, with a margin


class Sweeper(ABC):
    """Chains in lock step: states, random streams and sums, and the kernels that move them."""

    path: ClassVar[str]
    _constant = 0.0  # of the log-weights, besides that of the graph

    def __init__(self, flat: GraphArrays, chains: int, dtype: np.dtype[Any], n_sums: int) -> None:
        self.flat = flat
        self.chains = chains
        self.states = np.zeros(len(flat.cards) * chains, dtype=dtype)
        self.kept = np.zeros(1, dtype=np.int64)  # counted by the kernels, so never out of step
        self._sums = np.zeros(n_sums)
        self.allocate(0)

    def set(self, states: Ints) -> None:
        """Put chain c at `states[:, c]`."""
        self.states[:] = states.ravel()

    def seed(self, words: U8) -> None:
        """Give each chain its own random stream."""
        from kikuchi.engines.sampling.kernels.gibbs import seed_streams

        self.streams = seed_streams(words)

    def allocate(self, draws: int) -> None:
        """Allocate the recorded states."""
        self.draws = np.empty((draws, len(self.states)), dtype=self.states.dtype)
        self.scores = np.empty((draws, self.chains))

    def entry_counts(self, draws: int) -> Array:
        """How often each entry of each table occurs in the first `draws` draws."""
        from kikuchi.engines.sampling.kernels.gibbs import count_entries

        counts = np.zeros(self.flat.log_tables.size)
        entries = np.empty(self.flat.n_factors * self.chains, dtype=np.uint64)
        count_entries(self.flat, self.draws[:draws], entries, counts)
        return counts

    def burn(self, sweeps: int) -> None:
        """Sweep and keep nothing."""
        self._run(sweeps, 0)

    def sample(self, sweeps: int, thin: int) -> None:
        """Sweep, add up the conditionals, record every `thin`-th state."""
        self._run(sweeps, thin)

    def mean_score(self) -> float:
        """Mean log-weight of the chains' states, without the graph's constant."""
        scores = np.empty(self.chains)
        self._score(scores)
        return float(scores.mean()) + self._constant

    @property
    def _chains(self) -> Chains:
        return Chains(self.states, self.streams, self.kept, self._sums, self.draws, self.scores)

    @abstractmethod
    def _run(self, sweeps: int, thin: int) -> None:
        """Sweep, and keep nothing where `thin` is 0."""

    @abstractmethod
    def _score(self, scores: Array) -> None:
        """Log-weight of each chain's state, without constants."""

    @abstractmethod
    def sums(self) -> Array:
        """Summed conditionals, flat as the marginals."""


class BitSweeper(Sweeper):
    """Positive binary pairwise models: products of odds, no exponential."""

    path = "bits"

    def __init__(
        self, flat: GraphArrays, bits: BoltzmannParameters, chains: int, order: Ints
    ) -> None:
        super().__init__(flat, chains, np.dtype(np.uint8), len(flat.cards))
        self._order = order
        degrees = bits.degrees[order]
        offsets = np.concatenate([[0], np.cumsum(degrees)])
        first = bits.offsets[:-1].astype(np.int64)[order]
        gather = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], degrees)
        multipliers = np.ones((len(gather), 2))
        multipliers[:, 1] = np.exp(bits.weights[gather])
        biases = bits.biases[order]
        self._rows = BitRows(
            places=(order * chains).astype(np.uint64),
            offsets=offsets.astype(np.uint64),
            neighbours=bits.neighbours[gather].astype(np.uint64) * np.uint64(chains),
            multipliers=multipliers.ravel(),
            odds=np.exp(biases),
            biases=biases,
            weights=bits.weights[gather],
        )
        self._constant = bits.constant

    def _run(self, sweeps: int, thin: int) -> None:
        from kikuchi.engines.sampling.kernels.gibbs import run_bits

        run_bits(self._rows, self._chains, sweeps, thin)

    def _score(self, scores: Array) -> None:
        from kikuchi.engines.sampling.kernels.gibbs import score_bits

        score_bits(self._rows, self.states, scores)

    def sums(self) -> Array:
        """Summed conditionals, flat as the marginals."""
        ones = np.empty(len(self._sums))
        ones[self._order] = self._sums
        return np.stack([int(self.kept[0]) * self.chains - ones, ones], axis=1).ravel()


def table_rows(flat: GraphArrays, chains: int, order: Ints) -> TableRows:
    """The factors of each variable, for `chains` chains that are updated in this order."""
    return TableRows(
        order.astype(np.uint64),
        flat.variable_offsets.astype(np.uint64),
        flat.edge_factors[flat.variable_edges].astype(np.uint64) * np.uint64(chains),
        flat.edge_strides[flat.variable_edges].astype(np.uint64),
    )


class TableSweeper(Sweeper):
    """Any cardinalities, any order, zeros."""

    path = "tables"

    def __init__(self, flat: GraphArrays, chains: int, order: Ints) -> None:
        super().__init__(flat, chains, state_dtype(flat.max_card), int(flat.state_offsets[-1]))
        self.rows = table_rows(flat, chains, order)
        self.field = np.zeros(flat.max_card)
        self.entries = np.zeros(flat.n_factors * chains, dtype=np.uint64)

    def set(self, states: Ints) -> None:
        """Put chain c at `states[:, c]`, and find its entry in every table."""
        from kikuchi.engines.sampling.kernels.gibbs import locate

        super().set(states)
        locate(self.flat, self.states, self.entries)

    def _run(self, sweeps: int, thin: int, free: Mask | None = None) -> None:
        from kikuchi.engines.sampling.kernels.gibbs import run_tables

        chains = self._chains
        run_tables(self.flat, self.rows, chains, free, sweeps, thin, self.field, self.entries)

    def burn_free(self, sweeps: int, free: Mask) -> None:
        """Sweep over the cells marked in `free` alone, flat as the states, and keep nothing."""
        self._run(sweeps, 0, free)

    def _score(self, scores: Array) -> None:
        from kikuchi.engines.sampling.kernels.gibbs import score_tables

        score_tables(self.flat, self.entries, scores)

    def sums(self) -> Array:
        """Summed conditionals, flat as the marginals."""
        return self._sums


def make_sweeper(graph: FactorGraph, flat: GraphArrays, chains: int, order: Ints) -> Sweeper:
    """The fastest sweeper that fits the graph; `order` is that of the updates in a sweep."""
    bits = boltzmann_parameters(graph)
    if bits is not None and _odds_fit(bits):
        return BitSweeper(flat, bits, chains, order)
    return TableSweeper(flat, chains, order)


def _odds_fit(bits: BoltzmannParameters) -> bool:
    """Whether no product of odds can leave the range of double precision."""
    rows = np.repeat(np.arange(len(bits.biases)), bits.degrees)
    reach = np.abs(bits.biases)
    reach += np.bincount(rows, weights=np.abs(bits.weights), minlength=len(reach))
    return bool(np.all(reach < _LARGEST_EXPONENT))


def state_dtype(max_card: int) -> np.dtype[Any]:
    """The type that states are kept in: a byte unless a variable has more than 256 states."""
    return np.dtype(np.uint8 if max_card <= 256 else np.uint32)
