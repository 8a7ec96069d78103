"""Rules whose negative phase is a Markov chain.

The update is data statistics minus chain statistics; the rules differ in the start of the chains:

    cd           at the rows of the batch, k steps
    pcd          at their states after the previous batch
    brief-gibbs  one chain per row of the data, or always the same state
    gibbs        at random, with a long burn-in

They use only the `ChainSampler` of a model: a family that defines one gets all four rules. The
states of chains are dictionaries of arrays with one row per chain.

Reference: TEH-L4, TEH-L8, TEH-L9, WH-I1, WH-L1, WH-L2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.random import Generator

from kikuchi.core.options import option
from kikuchi.training.model import Trainable
from kikuchi.training.rule import GradientEstimate, Ints, Rule, State

_HELD = "held_"  # prefix of the names of chains with clamped rows


class Phase(Protocol):
    """Statistics of one phase, as computed by the sampler, and the states of its chains."""

    @property
    def states(self) -> State:
        """One row per chain; may be overwritten by the next sweeps."""


class ChainSampler(Protocol):
    """The Markov chain of one model, with reusable work arrays in its workspace.

    `names` are the states that persist from batch to batch, `held` those that must be swept even if
    the row is clamped: hidden variables that are not independent given the row. `keeps_hidden` is
    True if these sweeps, for every rule, continue from the last visit to the row.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the persistent states."""

    @property
    def held(self) -> tuple[str, ...]:
        """Names of the states that are swept while the row is clamped."""

    @property
    def keeps_hidden(self) -> bool:
        """Whether every rule stores the hidden states of each row."""

    def begin(self, data: Any, rows: Ints, sweeps: int, rng: Generator, *, compact: bool) -> State:
        """Return chains at these rows of the data; `compact` requests small types, one chain per
        row.
        """

    def random(self, count: int, rng: Generator) -> State:
        """Return chains at random states."""

    def centres(self, data: Any) -> State:
        """Return the means of the units, which `contrast` subtracts if they are in the workspace;
        raise an error for models without means.
        """

    def clamp(
        self,
        batch: Any,
        rows: Ints,
        rng: Generator,
        *,
        sweeps: int,
        start: State | None,
        draw: bool,
    ) -> Phase:
        """Return the positive phase: hidden variables given the rows of the batch, swept from
        `start` if necessary. Without `draw` only their means are needed.
        """

    def sweep(
        self, start: State, sweeps: int, rng: Generator, *, rows: Ints | None, keep: bool
    ) -> Phase:
        """Sweep over all variables. `rows` are the row numbers of the chains, None if they belong
        to no row; without `keep` the last states are not needed.
        """

    def contrast(self, positive: Phase, negatives: Iterable[Phase], count: int) -> GradientEstimate:
        """Return the means of the statistics over the batch minus those over `count` negative
        phases.
        """


class SampledModel(Trainable, Protocol):
    """A model that can be sampled."""

    def sampler(self, workspace: State) -> ChainSampler:
        """Return its chain; raise an error if the model cannot be sampled."""


@dataclass(frozen=True)
class SampledRule(Rule[Any]):
    """Base class of the rules with chains: the positive phase, and hidden states stored for each
    row.
    """

    objective_name: ClassVar[str] = "contrastive free energy per row"
    takes_sparse: ClassVar[bool] = True
    draws_rows: ClassVar[bool] = False  # whether chains continue from the hidden states of the rows

    clamped: int = option(
        20, "sweeps over hidden variables that are connected, with the rows clamped", low=1
    )
    bits: bool = option(
        False, "treat grey levels as probabilities and draw binary rows at each visit"
    )
    centred: bool = option(
        False, "centre units at their means, which conditions the updates better (machines)"
    )

    def begin(self, model: SampledModel, data: Any, rng: Generator) -> State:
        """Return chains before the first batch, and means of the units if they are centred."""
        sampler = model.sampler({})
        centres = sampler.centres(data) if self.centred else {}
        if not self._keeps_hidden(sampler):
            return centres
        chains = sampler.begin(data, np.arange(data.shape[0]), self.clamped, rng, compact=True)
        return centres | {f"{_HELD}{name}": chains[name] for name in sampler.held}

    def gradient(
        self, model: SampledModel, batch: Any, rows: Ints, state: State, rng: Generator
    ) -> GradientEstimate:
        """Return the statistics of the batch minus those of the chains."""
        sampler = model.sampler(state)
        batch = drawn_bits(batch, rng) if self.bits else batch
        if sampler.held and self._keeps_hidden(sampler):
            visited = self._visited(rows)
            start = {name: state[f"{_HELD}{name}"][visited] for name in sampler.held}
            sweeps = self._held_sweeps(sampler)
            positive = sampler.clamp(batch, rows, rng, sweeps=sweeps, start=start, draw=True)
            for name in sampler.held if visited is rows else ():
                state[f"{_HELD}{name}"][rows] = positive.states[name]
        else:
            draw = self.draws_rows or bool(sampler.held)
            positive = sampler.clamp(batch, rows, rng, sweeps=self.clamped, start=None, draw=draw)
        return self._contrast(sampler, positive, rows, state, rng)

    def _keeps_hidden(self, sampler: ChainSampler) -> bool:
        return sampler.keeps_hidden

    def _held_sweeps(self, sampler: ChainSampler) -> int:
        return self.clamped

    def _visited(self, rows: Ints) -> Ints:
        """Return which of the stored chains belong to these rows."""
        return rows

    @abstractmethod
    def _contrast(
        self, sampler: ChainSampler, positive: Phase, rows: Ints, state: State, rng: Generator
    ) -> GradientEstimate:
        """Run the chains; return the statistics of the positive phase minus theirs."""


def drawn_bits(rows: Any, rng: Generator) -> Any:
    """Draw bits with the probabilities in `rows`, in an array of the same type.

    >>> drawn_bits(np.array([[0.0, 1.0]]), np.random.default_rng(0)).tolist()
    [[0.0, 1.0]]
    """
    return (rng.random(rows.shape, dtype=rows.dtype.type) < rows).astype(rows.dtype)


@dataclass(frozen=True)
class ContrastiveDivergenceRule(SampledRule):
    """Contrastive divergence: k Gibbs steps from the rows.

    >>> from kikuchi.boltzmann.rules import parse_rule
    >>> parse_rule("cd:k=3").k
    3
    """

    name: ClassVar[str] = "cd"
    draws_rows: ClassVar[bool] = True

    k: int = option(1, "steps of each chain", low=1)

    def _contrast(
        self, sampler: ChainSampler, positive: Phase, rows: Ints, state: State, rng: Generator
    ) -> GradientEstimate:
        negative = sampler.sweep(positive.states, self.k, rng, rows=rows, keep=False)
        return sampler.contrast(positive, (negative,), 1)


@dataclass(frozen=True)
class PersistentDivergenceRule(SampledRule):
    """Persistent contrastive divergence: chains that never restart.

    They begin at rows drawn from the data. With k=1 this is the rule of scikit-learn's
    BernoulliRBM.
    """

    name: ClassVar[str] = "pcd"
    carries: ClassVar[bool] = True

    k: int = option(1, "number of steps of each chain before an update", low=1)
    chains: int = option(100, "number of chains", low=1)

    def begin(self, model: SampledModel, data: Any, rng: Generator) -> State:
        """Chains at rows drawn from the data."""
        rows = rng.integers(0, data.shape[0], self.chains)
        chains = model.sampler({}).begin(data, rows, self.clamped, rng, compact=False)
        return chains | super().begin(model, data, rng)

    def _contrast(
        self, sampler: ChainSampler, positive: Phase, rows: Ints, state: State, rng: Generator
    ) -> GradientEstimate:
        start = {name: state[name] for name in sampler.names}
        negative = sampler.sweep(start, self.k, rng, rows=None, keep=True)
        estimate = sampler.contrast(positive, (negative,), 1)
        for name, array in start.items():
            np.copyto(array, negative.states[name])
        return estimate


@dataclass(frozen=True)
class BriefGibbsRule(SampledRule):
    """Brief Gibbs learning: one persistent chain for every row.

    Connected hidden variables have a second chain per row, in which the row is clamped. With
    `restart` all chains begin at one fixed state each time ("even briefer"): biased, but steady.
    """

    name: ClassVar[str] = "brief-gibbs"

    k: int = option(1, "number of steps of each chain before an update", low=1)
    restart: bool = option(False, "begin at one fixed state each time")

    def begin(self, model: SampledModel, data: Any, rng: Generator) -> State:
        """Return chains at the rows themselves, which start both phases; with `restart` at the
        first row.
        """
        sampler = model.sampler({})
        rows = np.arange(1 if self.restart else data.shape[0])
        chains = sampler.begin(data, rows, self.clamped, rng, compact=True)
        chains |= {f"{_HELD}{name}": chains[name].copy() for name in sampler.held}
        return chains | (sampler.centres(data) if self.centred else {})

    def _keeps_hidden(self, sampler: ChainSampler) -> bool:
        return True

    def _held_sweeps(self, sampler: ChainSampler) -> int:
        return self.clamped if sampler.keeps_hidden else self.k

    def _visited(self, rows: Ints) -> Ints:
        return np.zeros_like(rows) if self.restart else rows

    def _contrast(
        self, sampler: ChainSampler, positive: Phase, rows: Ints, state: State, rng: Generator
    ) -> GradientEstimate:
        visited = self._visited(rows)
        start = {name: state[name][visited] for name in sampler.names}
        negative = sampler.sweep(start, self.k, rng, rows=None, keep=True)
        estimate = sampler.contrast(positive, (negative,), 1)
        if not self.restart:
            for name in start:
                state[name][rows] = negative.states[name]
        return estimate


@dataclass(frozen=True)
class EquilibriumRule(SampledRule):
    """Equilibrium Gibbs chains: restarted at random for every batch."""

    name: ClassVar[str] = "gibbs"

    chains: int = option(100, "number of chains", low=1)
    burn_in: int = option(200, "number of burn-in steps", low=0)
    samples: int = option(20, "number of averaged steps", low=1)

    def _contrast(
        self, sampler: ChainSampler, positive: Phase, rows: Ints, state: State, rng: Generator
    ) -> GradientEstimate:
        return sampler.contrast(positive, self._samples(sampler, rng), self.samples)

    def _samples(self, sampler: ChainSampler, rng: Generator) -> Iterator[Phase]:
        states = sampler.random(self.chains, rng)
        for step in range(self.burn_in + self.samples):
            phase = sampler.sweep(states, 1, rng, rows=None, keep=True)
            states = phase.states
            if step >= self.burn_in:
                yield phase
