"""Gibbs chains of machines, as the sampled rules of `training.contrastive` need them.

A step draws the visible units given the hidden ones, then the hidden ones given these. Products
with hidden units use their means, which vary less than draws; pairs of connected hidden units use
draws. The objective is the difference of the mean free energies of rows and chains, the sampled
form of the contrastive free energy: near 0 when the chains look like the data.

Centred directions are those of the machine written in (v - mu)' W (h - lambda), with mu and lambda
the running means of the units over the rows: they stay the same if states 0 and 1 of a unit change
places, and do not mix weights with biases.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.layers import Layer, Layers, workspace
from kikuchi.boltzmann.parameters import MachineParameters
from kikuchi.boltzmann.products import add_product, contrast
from kikuchi.boltzmann.units import BinaryUnits
from kikuchi.core.errors import MethodError
from kikuchi.training.model import Parameters
from kikuchi.training.rows import take_rows
from kikuchi.training.rule import GradientEstimate, Ints, State

Array = NDArray[Any]

_BLOCK = 1024  # rows at once when chains are begun
_MOVED = 0.01  # of the centres, towards the means of each batch
_CENTRES = "centre_visible", "centre_hidden"


@dataclass
class MachinePhase:
    """Visible states, one per row, and the hidden layer given them."""

    visible: Array
    hidden: Layer

    @property
    def states(self) -> State:
        """The states of both layers."""
        return {"visible": self.visible, "hidden": self.hidden.drawn}


class MachineSampler:
    """The Gibbs chain of one machine: a `ChainSampler`."""

    keeps_hidden = False

    def __init__(self, machine: MachineParameters, state: State) -> None:
        self.machine, self.state = machine, state
        self.layers = Layers(machine, state)
        self.names = ("hidden",) if machine.visible_weights is None else ("visible", "hidden")
        self.held = () if machine.hidden_weights is None else ("hidden",)

    def begin(
        self, data: Any, rows: Ints, sweeps: int, rng: np.random.Generator, *, compact: bool
    ) -> State:
        """Hidden units drawn given the rows; visible ones too where that matters."""
        m = self.machine
        hidden = np.empty((len(rows), m.n_hidden), m.dtype)
        for first in range(0, len(rows), _BLOCK):
            part = slice(first, first + _BLOCK)
            block = take_rows(data, rows[part], m.dtype)
            hidden[part] = self.layers.hidden(block, rng, sweeps=sweeps).drawn
        state: State = {"hidden": hidden}
        if m.visible_weights is not None:
            start = take_rows(data, rows, m.dtype)
            state["visible"] = (rng.random(start.shape) < start).astype(m.dtype)
        kinds = {"hidden": m.hidden, "visible": m.visible}
        small = {n for n in state if compact and isinstance(kinds[n], BinaryUnits)}
        return {n: a.astype(np.uint8) if n in small else a for n, a in state.items()}

    def random(self, count: int, rng: np.random.Generator) -> State:
        """Every unit 0 or 1 with equal probability."""
        m = self.machine
        visible = rng.integers(0, 2, (count, m.n_visible)).astype(m.dtype)
        hidden = rng.integers(0, 2, (count, m.n_hidden)).astype(m.dtype)
        return {"visible": visible, "hidden": hidden}

    def centres(self, data: Any) -> State:
        """Means over the rows of both layers, in machines without connections inside a layer."""
        m = self.machine
        if m.visible_weights is not None or m.hidden_weights is not None:
            raise MethodError("option centred: only machines without connections inside a layer")
        visible = np.asarray(data.mean(axis=0), m.dtype).ravel()
        return dict(zip(_CENTRES, (visible, m.hidden.mean(m.hidden_field(visible))), strict=True))

    def clamp(
        self,
        batch: Array,
        rows: Ints,
        rng: np.random.Generator,
        *,
        sweeps: int,
        start: State | None,
        draw: bool,
    ) -> MachinePhase:
        """The hidden layer given the rows."""
        begun = None if start is None else start["hidden"]
        hidden = self.layers.hidden(
            batch, rng if draw else None, start=begun, sweeps=sweeps, name="positive"
        )
        return MachinePhase(batch, hidden)

    def sweep(
        self, start: State, sweeps: int, rng: np.random.Generator, *, rows: Ints | None, keep: bool
    ) -> MachinePhase:
        """Sweeps of both layers; the last hidden units are drawn only if that is kept."""
        visible = start.get("visible")
        hidden = start["hidden"].astype(self.machine.dtype, copy=False)
        for step in range(sweeps):
            down = self.layers.visible(hidden, rng, start=visible, name="chain_visible")
            drawing = keep or bool(self.held) or step + 1 < sweeps
            up = self.layers.hidden(
                down.drawn, rng if drawing else None, start=hidden, name="chain_hidden"
            )
            visible, hidden = down.drawn, up.drawn
        return MachinePhase(down.drawn, up)

    def contrast(
        self, positive: MachinePhase, negatives: Iterable[MachinePhase], count: int
    ) -> GradientEstimate:
        """Means over the rows minus means over the chains, and the difference of free energies."""
        statistics = _Statistics(self.machine, self.state)
        if count == 1:
            (negative,) = negatives
            statistics.contrast(positive, negative)
        else:
            statistics.add(positive, 1.0 / len(positive.visible))
            for negative in negatives:
                statistics.add(negative, -1.0 / (count * len(negative.visible)))
        if _CENTRES[0] in self.state:
            self._centre(statistics.ascent, positive)
        return statistics.estimate()

    def _centre(self, ascent: Parameters, positive: MachinePhase) -> None:
        """Turn a direction into the centred one, and let the centres follow the rows."""
        mu, means = (self.state[name] for name in _CENTRES)
        mu += _MOVED * (positive.visible.mean(axis=0) - mu)
        means += _MOVED * (positive.hidden.mean.mean(axis=0) - means)
        weights, on_visible, on_hidden = (
            ascent[name] for name in ("weights", "visible_bias", "hidden_bias")
        )
        add_product(np.stack([mu, on_visible]), np.stack([on_hidden, means]), -1.0, weights)
        on_visible -= weights @ means
        on_hidden -= mu @ weights


# ---------------------------------------------------------------------- statistics


class _Statistics:
    """Weighted sums of products of units, and of minus the free energies of their rows."""

    def __init__(self, machine: MachineParameters, state: State) -> None:
        self.machine = machine
        self.ascent: Parameters = {
            name: workspace(state, f"ascent_{name}", array.shape, array.dtype)
            for name, array in machine.parameters.items()
        }
        self.log_ratio = 0.0
        self.fresh = True

    def contrast(self, positive: MachinePhase, negative: MachinePhase) -> None:
        """Means over the rows minus means over the chains, in one fused pass over the weights."""
        weights = (1.0 / len(positive.visible), -1.0 / len(negative.visible))
        lefts = (positive.visible, negative.visible)
        contrast(lefts, (positive.hidden.mean, negative.hidden.mean), weights, self._weights)
        self._add_others(positive.visible, positive.hidden, weights[0])
        self._add_others(negative.visible, negative.hidden, weights[1])

    def add(self, phase: MachinePhase, weight: float) -> None:
        """Add `weight` times the sums over rows; the first call replaces what was there."""
        add_product(phase.visible, phase.hidden.mean, weight, self._weights, fresh=self.fresh)
        self._add_others(phase.visible, phase.hidden, weight)

    @property
    def _weights(self) -> Array:
        return self.ascent["weights"]

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
        if not isinstance(self.machine.visible, BinaryUnits):
            total += weight * float(np.sum(self.machine.visible.log_base(visible)))
        return total

    def estimate(self) -> GradientEstimate:
        """The direction, and the mean free energy of the rows minus that of the chains."""
        return GradientEstimate(self.ascent, None if np.isnan(self.log_ratio) else -self.log_ratio)


def _put(out: Array, values: Array, fresh: bool) -> None:
    if fresh:
        out[...] = values
    else:
        out += values
