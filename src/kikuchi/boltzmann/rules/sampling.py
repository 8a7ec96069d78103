"""Rules whose negative phase is a Gibbs chain (WH-L2, TEH-L4, TEH-L8, TEH-L9).

The update is data statistics minus chain statistics; the rules differ in where chains begin:

    cd           at the rows of the batch, k steps
    pcd          where they were after the batch before
    brief-gibbs  one chain for every row of the data, or always the same state
    gibbs        anywhere, long enough to forget it

A step draws the visible units given the hidden ones, then the hidden ones given these. Products
with hidden units use their means, which vary less than draws; pairs of connected hidden units use
draws. The objective is the difference of the mean free energies of rows and chains, the sampled
form of the contrastive free energy: near 0 when the chains look like the data.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.layers import Layer, Layers, room
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.products import add_product, contrast
from kikuchi.boltzmann.units import Binary
from kikuchi.core.options import option
from kikuchi.training.model import Parameters
from kikuchi.training.rows import take_rows
from kikuchi.training.rule import GradientEstimate, Rule, State

Array = NDArray[Any]
Ints = NDArray[np.int64]

_BLOCK = 1024  # rows at once when chains are begun


@dataclass
class _Phase:
    """One batch under way: the batch, its positive phase, and where the statistics go."""

    layers: Layers
    batch: Array
    positive: Layer
    rows: Ints
    state: State
    rng: np.random.Generator
    statistics: _Statistics


@dataclass(frozen=True)
class SampledRule(Rule[Machine]):
    """What the rules with chains share: the positive phase and the statistics."""

    objective_name: ClassVar[str] = "contrastive free energy per row"
    takes_sparse: ClassVar[bool] = True
    starts_at_rows: ClassVar[bool] = False  # whether chains go on from the hidden units of rows

    clamped: int = option(
        20, "sweeps over hidden units that are connected, with the rows held", low=1
    )

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """Chains before the first batch."""
        Layers(machine)  # refuses units that cannot be drawn
        return {}

    def gradient(
        self, machine: Machine, batch: Array, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Statistics of the batch minus those of the chains."""
        layers = Layers(machine, state)
        positive = self._positive(layers, batch, rows, state, rng)
        now = _Phase(layers, batch, positive, rows, state, rng, _Statistics(machine, state))
        self._negative(now)
        return now.statistics.gradient()

    def _positive(
        self, layers: Layers, batch: Array, rows: Ints, state: State, rng: np.random.Generator
    ) -> Layer:
        draws = self.starts_at_rows or layers.machine.hidden_weights is not None
        return layers.hidden(batch, rng if draws else None, sweeps=self.clamped, name="positive")

    @abstractmethod
    def _negative(self, now: _Phase) -> None:
        """Run the chains; put the statistics of the batch minus theirs in `now.statistics`."""


@dataclass(frozen=True)
class ContrastiveDivergence(SampledRule):
    """CD-k: chains of k steps that begin at the rows (WH-L2, TEH-L8, TEH-L9).

    >>> from kikuchi.boltzmann.rules import parse_rule
    >>> parse_rule("cd:k=3").k
    3
    """

    name: ClassVar[str] = "cd"
    summary: ClassVar[str] = "contrastive divergence: k Gibbs steps from the rows"
    starts_at_rows: ClassVar[bool] = True

    k: int = option(1, "steps of each chain", low=1)

    def _negative(self, now: _Phase) -> None:
        visible, hidden = _walk(
            now.layers, now.batch, now.positive.drawn, self.k, now.rng, keep=False
        )
        now.statistics.contrast(now.batch, now.positive, visible.drawn, hidden)


@dataclass(frozen=True)
class PersistentDivergence(SampledRule):
    """Persistent chains: they go on where the batch before left them (TEH-L4, TEH-L8).

    They begin at rows drawn from the data. With k=1 this is the rule of scikit-learn's
    BernoulliRBM.
    """

    name: ClassVar[str] = "pcd"
    summary: ClassVar[str] = "persistent contrastive divergence: chains that never restart"
    carries: ClassVar[bool] = True

    k: int = option(1, "steps of each chain before an update", low=1)
    chains: int = option(100, "number of chains", low=1)

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """Chains at rows drawn from the data."""
        rows = rng.integers(0, data.shape[0], self.chains)
        return _begun(machine, data, rows, self.clamped, rng)

    def _negative(self, now: _Phase) -> None:
        start = now.state.get("visible", now.batch)
        visible, hidden = _walk(now.layers, start, now.state["hidden"], self.k, now.rng, keep=True)
        now.statistics.contrast(now.batch, now.positive, visible.drawn, hidden)
        np.copyto(now.state["hidden"], hidden.drawn)
        if "visible" in now.state:
            np.copyto(now.state["visible"], visible.drawn)


@dataclass(frozen=True)
class BriefGibbs(SampledRule):
    """Brief Gibbs learning: a chain for every row, moved k steps when the row is visited (TEH-L4).

    Connected hidden units have a second chain for every row, in which the row is held. With
    `restart` all chains begin at one fixed state each time ("even briefer"): biased, but steady.
    """

    name: ClassVar[str] = "brief-gibbs"
    summary: ClassVar[str] = "brief Gibbs learning: one persistent chain for every row"

    k: int = option(1, "steps of each chain before an update", low=1)
    restart: bool = option(False, "begin at one fixed state each time instead")

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """Chains at the rows themselves; with `restart` one state, that of the first row."""
        count = 1 if self.restart else data.shape[0]
        state = _begun(machine, data, np.arange(count), self.clamped, rng)
        state = {name: _small(array, machine, name) for name, array in state.items()}
        if machine.hidden_weights is not None:
            state["held"] = state["hidden"].copy()
        return state

    def _positive(
        self, layers: Layers, batch: Array, rows: Ints, state: State, rng: np.random.Generator
    ) -> Layer:
        if "held" not in state:
            return super()._positive(layers, batch, rows, state, rng)
        start = self._start(state, "held", rows)
        layer = layers.hidden(batch, rng, start=start, sweeps=self.k, name="positive")
        self._put(state, "held", rows, layer.drawn)
        return layer

    def _negative(self, now: _Phase) -> None:
        dtype = now.layers.machine.dtype
        visible_start = (
            self._start(now.state, "visible", now.rows) if "visible" in now.state else now.batch
        )
        hidden_start = self._start(now.state, "hidden", now.rows).astype(dtype, copy=False)
        visible, hidden = _walk(now.layers, visible_start, hidden_start, self.k, now.rng, keep=True)
        now.statistics.contrast(now.batch, now.positive, visible.drawn, hidden)
        self._put(now.state, "hidden", now.rows, hidden.drawn)
        if "visible" in now.state:
            self._put(now.state, "visible", now.rows, visible.drawn)

    def _start(self, state: State, name: str, rows: Ints) -> Array:
        return state[name][np.zeros_like(rows) if self.restart else rows]

    def _put(self, state: State, name: str, rows: Ints, drawn: Array) -> None:
        if not self.restart:
            state[name][rows] = drawn


@dataclass(frozen=True)
class Equilibrium(SampledRule):
    """Statistics of chains that are run long enough to forget their start (WH-L1, WH-I1)."""

    name: ClassVar[str] = "gibbs"
    summary: ClassVar[str] = "equilibrium Gibbs chains: begun at random for every batch"

    chains: int = option(100, "number of chains", low=1)
    burn_in: int = option(200, "steps that are not counted", low=0)
    samples: int = option(20, "steps that are averaged", low=1)

    def _negative(self, now: _Phase) -> None:
        m = now.layers.machine
        visible = now.rng.integers(0, 2, (self.chains, m.n_visible)).astype(m.dtype)
        hidden = now.rng.integers(0, 2, (self.chains, m.n_hidden)).astype(m.dtype)
        weight = -1.0 / (self.chains * self.samples)
        now.statistics.add(now.batch, now.positive, 1.0 / len(now.batch))
        for step in range(self.burn_in + self.samples):
            v, h = _walk(now.layers, visible, hidden, 1, now.rng, keep=True)
            visible, hidden = v.drawn, h.drawn
            if step >= self.burn_in:
                now.statistics.add(v.drawn, h, weight)


# ---------------------------------------------------------------------- chains


def _walk(
    layers: Layers, visible: Array, hidden: Array, k: int, rng: np.random.Generator, *, keep: bool
) -> tuple[Layer, Layer]:
    """k steps from these states; the last hidden units are drawn only if that is kept."""
    connected = layers.machine.hidden_weights is not None
    for step in range(k):
        down = layers.visible(hidden, rng, start=visible, name="chain_visible")
        drawing = keep or connected or step + 1 < k
        up = layers.hidden(down.drawn, rng if drawing else None, start=hidden, name="chain_hidden")
        visible, hidden = down.drawn, up.drawn
    return down, up


def _begun(
    machine: Machine, data: Array, rows: Ints, sweeps: int, rng: np.random.Generator
) -> State:
    """Chains at these rows: hidden units drawn given them; visible ones where that matters."""
    layers = Layers(machine)
    hidden = np.empty((len(rows), machine.n_hidden), machine.dtype)
    for first in range(0, len(rows), _BLOCK):
        part = slice(first, first + _BLOCK)
        block = take_rows(data, rows[part], machine.dtype)
        hidden[part] = layers.hidden(block, rng, sweeps=sweeps).drawn
    state: State = {"hidden": hidden}
    if machine.visible_weights is not None:
        start = take_rows(data, rows, machine.dtype)
        state["visible"] = (rng.random(start.shape) < start).astype(machine.dtype)
    return state


def _small(array: Array, machine: Machine, name: str) -> Array:
    """Chains of binary units as bytes: there is one for every row of the data."""
    units = machine.visible if name == "visible" else machine.hidden
    return array.astype(np.uint8) if isinstance(units, Binary) else array


# ---------------------------------------------------------------------- statistics


class _Statistics:
    """Weighted sums of products of units, and of minus the free energies of their rows."""

    def __init__(self, machine: Machine, state: State) -> None:
        self.machine = machine
        self.ascent: Parameters = {
            name: room(state, f"ascent_{name}", array.shape, array.dtype)
            for name, array in machine.parameters.items()
        }
        self.log_ratio = 0.0
        self.fresh = True

    def contrast(
        self, visible: Array, hidden: Layer, chain_visible: Array, chain_hidden: Layer
    ) -> None:
        """Means over the rows minus means over the chains."""
        weights = (1.0 / len(visible), -1.0 / len(chain_visible))
        lefts, rights = (visible, chain_visible), (hidden.mean, chain_hidden.mean)
        contrast(lefts, rights, weights, self.ascent["weights"])
        self._add_others(visible, hidden, weights[0])
        self._add_others(chain_visible, chain_hidden, weights[1])

    def add(self, visible: Array, hidden: Layer, weight: float) -> None:
        """Add `weight` times the sums over rows; the first call replaces what was there."""
        add_product(visible, hidden.mean, weight, self.ascent["weights"], fresh=self.fresh)
        self._add_others(visible, hidden, weight)

    def _add_others(self, visible: Array, hidden: Layer, weight: float) -> None:
        """All but the weights between the layers."""
        m, out, fresh = self.machine, self.ascent, self.fresh
        on_visible, on_hidden = weight * visible.sum(axis=0), weight * hidden.mean.sum(axis=0)
        pairs = 0.0
        if m.visible_weights is not None:
            own = np.empty_like(m.visible_weights)
            add_product(visible, visible, weight, own, fresh=True)
            pairs = 0.5 * float(np.vdot(m.visible_weights, own))
            _put(out["visible_weights"], own, fresh)
        if m.hidden_weights is not None:
            add_product(hidden.drawn, hidden.drawn, weight, out["hidden_weights"], fresh=fresh)
        _put(out["visible_bias"], on_visible, fresh)
        _put(out["hidden_bias"], on_hidden, fresh)
        self.log_ratio += self._log_weight(visible, hidden, weight, on_visible) + pairs
        self.fresh = False

    def _log_weight(self, visible: Array, hidden: Layer, weight: float, on_visible: Array) -> float:
        """`weight` times the sum of minus the free energies, without pairs of visible units."""
        if hidden.log_sums is None:
            return np.nan
        total = weight * float(np.sum(hidden.log_sums))
        total += float(on_visible @ self.machine.visible_bias)
        if not isinstance(self.machine.visible, Binary):
            total += weight * float(np.sum(self.machine.visible.log_base(visible)))
        return total

    def gradient(self) -> GradientEstimate:
        """The direction, and the mean free energy of the rows minus that of the chains."""
        return GradientEstimate(self.ascent, None if np.isnan(self.log_ratio) else -self.log_ratio)


def _put(out: Array, values: Array, fresh: bool) -> None:
    if fresh:
        out[...] = values
    else:
        out += values
