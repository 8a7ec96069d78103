"""Rules whose negative phase is a Markov chain (WH-L2, TEH-L4, TEH-L8, TEH-L9).

The update is data statistics minus chain statistics; the rules differ in where chains begin:

    cd           at the rows of the batch, k steps
    pcd          where they were after the batch before
    brief-gibbs  one chain per row of the data, or always the same state
    gibbs        anywhere, long enough to forget it

They know nothing of the model but its `ChainSampler`: a family that can draw from its model gets
all four by writing one. The states of chains are dictionaries of arrays with one row per chain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from kikuchi.core.options import option
from kikuchi.training.model import Trainable
from kikuchi.training.rule import GradientEstimate, Ints, Rule, State

_HELD = "held_"  # before the names of chains in which the rows are clamped


class Phase(Protocol):
    """Statistics of one phase, as the sampler makes them, and the states of its chains."""

    @property
    def states(self) -> State:
        """One row per chain; may be overwritten by the next sweeps."""


class ChainSampler(Protocol):
    """The Markov chain of one model; arrays to work in are kept in its workspace.

    `held` names the states that must be swept even while the row is clamped: hidden variables that
    are not independent given it; empty if there are none. `keeps_hidden`: whether these sweeps go
    on, for every rule, where the last visit to the row ended.
    """

    @property
    def held(self) -> tuple[str, ...]:
        """Names of the states that are swept while the row is clamped."""

    @property
    def keeps_hidden(self) -> bool:
        """Whether every rule keeps the hidden states of each row."""

    def begin(
        self, data: Any, rows: Ints, sweeps: int, rng: np.random.Generator, *, compact: bool
    ) -> State:
        """Chains at these rows of the data; `compact` asks for small types, one chain per row."""

    def random(self, count: int, rng: np.random.Generator) -> State:
        """Chains at random states."""

    def clamp(
        self,
        batch: Any,
        rows: Ints,
        rng: np.random.Generator,
        *,
        sweeps: int,
        start: State | None,
        draw: bool,
    ) -> Phase:
        """The positive phase: hidden variables given the rows of the batch, swept from `start` if
        they must be. Without `draw` only their means are needed.
        """

    def sweep(
        self, start: State, sweeps: int, rng: np.random.Generator, *, rows: Ints | None, keep: bool
    ) -> Phase:
        """Sweeps over all variables. `rows` are the row numbers that the chains stand for, None if
        they stand for no row; without `keep` the last states are not needed.
        """

    def contrast(self, positive: Phase, negatives: Iterable[Phase], count: int) -> GradientEstimate:
        """Means of the statistics over the batch minus those over `count` negative phases."""


class SampledModel(Trainable, Protocol):
    """A model that can be sampled."""

    def sampler(self, workspace: State) -> ChainSampler:
        """Its chain; refuses models that cannot be sampled."""


@dataclass(frozen=True)
class SampledRule(Rule[Any]):
    """What the rules with chains share: the positive phase, and chains that belong to rows."""

    objective_name: ClassVar[str] = "contrastive free energy per row"
    takes_sparse: ClassVar[bool] = True
    starts_at_rows: ClassVar[bool] = False  # whether chains go on from the hidden states of rows

    clamped: int = option(
        20, "sweeps over hidden variables that are connected, with the rows clamped", low=1
    )

    def begin(self, model: SampledModel, data: Any, rng: np.random.Generator) -> State:
        """Chains before the first batch."""
        sampler = model.sampler({})
        state = self._chains(sampler, data, rng)
        if self._keeps_hidden(sampler):
            rows = np.arange(self._held_count(data))
            held = state
            if not state or len(next(iter(state.values()))) != len(rows):
                held = sampler.begin(data, rows, self.clamped, rng, compact=True)
            state |= {f"{_HELD}{name}": held[name].copy() for name in sampler.held}
        return state

    def gradient(
        self, model: SampledModel, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Statistics of the batch minus those of the chains."""
        sampler = model.sampler(state)
        positive = self._positive(sampler, batch, rows, state, rng)
        return self._contrast(sampler, positive, rows, state, rng)

    def _positive(
        self, sampler: ChainSampler, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> Phase:
        start = self._visited(state, rows, _HELD)
        if not start:
            draw = self.starts_at_rows or bool(sampler.held)
            return sampler.clamp(batch, rows, rng, sweeps=self.clamped, start=None, draw=draw)
        sweeps = self._held_sweeps(sampler)
        phase = sampler.clamp(batch, rows, rng, sweeps=sweeps, start=start, draw=True)
        self._store(state, rows, phase.states, _HELD)
        return phase

    def _chains(self, sampler: ChainSampler, data: Any, rng: np.random.Generator) -> State:
        """Chains of the negative phase that outlive a batch."""
        return {}

    def _keeps_hidden(self, sampler: ChainSampler) -> bool:
        return sampler.keeps_hidden

    def _held_count(self, data: Any) -> int:
        return int(data.shape[0])

    def _held_sweeps(self, sampler: ChainSampler) -> int:
        return self.clamped

    def _visited(self, state: State, rows: Ints, prefix: str) -> State:
        """The chains of these rows."""
        return {
            name.removeprefix(prefix): array[rows]
            for name, array in state.items()
            if name.startswith(prefix) and not name.startswith("_")
        }

    def _store(self, state: State, rows: Ints, states: State, prefix: str) -> None:
        for name, array in states.items():
            if f"{prefix}{name}" in state:
                state[f"{prefix}{name}"][rows] = array

    @abstractmethod
    def _contrast(
        self,
        sampler: ChainSampler,
        positive: Phase,
        rows: Ints,
        state: State,
        rng: np.random.Generator,
    ) -> GradientEstimate:
        """Run the chains; answer the statistics of the positive phase minus theirs."""


@dataclass(frozen=True)
class ContrastiveDivergenceRule(SampledRule):
    """CD-k: chains of k steps that begin at the rows (WH-L2, TEH-L8, TEH-L9).

    >>> from kikuchi.boltzmann.rules import parse_rule
    >>> parse_rule("cd:k=3").k
    3
    """

    name: ClassVar[str] = "cd"
    summary: ClassVar[str] = "contrastive divergence: k Gibbs steps from the rows"
    starts_at_rows: ClassVar[bool] = True

    k: int = option(1, "steps of each chain", low=1)

    def _contrast(
        self,
        sampler: ChainSampler,
        positive: Phase,
        rows: Ints,
        state: State,
        rng: np.random.Generator,
    ) -> GradientEstimate:
        negative = sampler.sweep(positive.states, self.k, rng, rows=rows, keep=False)
        return sampler.contrast(positive, (negative,), 1)


@dataclass(frozen=True)
class PersistentDivergenceRule(SampledRule):
    """Persistent chains: they go on where the batch before left them (TEH-L4, TEH-L8).

    They begin at rows drawn from the data. With k=1 this is the rule of scikit-learn's
    BernoulliRBM.
    """

    name: ClassVar[str] = "pcd"
    summary: ClassVar[str] = "persistent contrastive divergence: chains that never restart"
    carries: ClassVar[bool] = True

    k: int = option(1, "steps of each chain before an update", low=1)
    chains: int = option(100, "number of chains", low=1)

    def _chains(self, sampler: ChainSampler, data: Any, rng: np.random.Generator) -> State:
        rows = rng.integers(0, data.shape[0], self.chains)
        return sampler.begin(data, rows, self.clamped, rng, compact=False)

    def _contrast(
        self,
        sampler: ChainSampler,
        positive: Phase,
        rows: Ints,
        state: State,
        rng: np.random.Generator,
    ) -> GradientEstimate:
        start = {n: a for n, a in state.items() if not n.startswith(("_", _HELD))}
        negative = sampler.sweep(start, self.k, rng, rows=None, keep=True)
        estimate = sampler.contrast(positive, (negative,), 1)
        for name, array in start.items():
            np.copyto(array, negative.states[name])
        return estimate


@dataclass(frozen=True)
class BriefGibbsRule(SampledRule):
    """Brief Gibbs learning: a chain per row, moved k steps when the row is visited (TEH-L4).

    Connected hidden variables have a second chain per row, in which the row is clamped. With
    `restart` all chains begin at one fixed state each time ("even briefer"): biased, but steady.
    """

    name: ClassVar[str] = "brief-gibbs"
    summary: ClassVar[str] = "brief Gibbs learning: one persistent chain for every row"

    k: int = option(1, "steps of each chain before an update", low=1)
    restart: bool = option(False, "begin at one fixed state each time instead")

    def _chains(self, sampler: ChainSampler, data: Any, rng: np.random.Generator) -> State:
        rows = np.arange(self._held_count(data))
        return sampler.begin(data, rows, self.clamped, rng, compact=True)

    def _keeps_hidden(self, sampler: ChainSampler) -> bool:
        return bool(sampler.held)

    def _held_count(self, data: Any) -> int:
        return 1 if self.restart else int(data.shape[0])

    def _held_sweeps(self, sampler: ChainSampler) -> int:
        return self.clamped if sampler.keeps_hidden else self.k

    def _visited(self, state: State, rows: Ints, prefix: str) -> State:
        return super()._visited(state, np.zeros_like(rows) if self.restart else rows, prefix)

    def _store(self, state: State, rows: Ints, states: State, prefix: str) -> None:
        if not self.restart:
            super()._store(state, rows, states, prefix)

    def _contrast(
        self,
        sampler: ChainSampler,
        positive: Phase,
        rows: Ints,
        state: State,
        rng: np.random.Generator,
    ) -> GradientEstimate:
        visited = self._visited(state, rows, "")
        start = {n: a for n, a in visited.items() if not n.startswith(_HELD)}
        negative = sampler.sweep(start, self.k, rng, rows=None, keep=True)
        estimate = sampler.contrast(positive, (negative,), 1)
        self._store(state, rows, negative.states, "")
        return estimate


@dataclass(frozen=True)
class EquilibriumRule(SampledRule):
    """Statistics of chains that are run long enough to forget their start (WH-L1, WH-I1)."""

    name: ClassVar[str] = "gibbs"
    summary: ClassVar[str] = "equilibrium Gibbs chains: begun at random for every batch"

    chains: int = option(100, "number of chains", low=1)
    burn_in: int = option(200, "steps that are not counted", low=0)
    samples: int = option(20, "steps that are averaged", low=1)

    def _contrast(
        self,
        sampler: ChainSampler,
        positive: Phase,
        rows: Ints,
        state: State,
        rng: np.random.Generator,
    ) -> GradientEstimate:
        return sampler.contrast(positive, self._samples(sampler, rng), self.samples)

    def _samples(self, sampler: ChainSampler, rng: np.random.Generator) -> Iterator[Phase]:
        states = sampler.random(self.chains, rng)
        for step in range(self.burn_in + self.samples):
            phase = sampler.sweep(states, 1, rng, rows=None, keep=True)
            states = phase.states
            if step >= self.burn_in:
                yield phase
