"""Block Gibbs sampling with many chains, clamped or free, and replica exchange.

A sweep draws the visible units given the hidden ones, then the hidden ones given these. A side
without connections inside is drawn at once, a connected one unit by unit.

Reference: LAW-M5, WH-I1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.boltzmann.exact import as_inputs, as_rows, mean_statistics
from kikuchi.boltzmann.fixed_point import check_connected
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits, Units
from kikuchi.core.arrays import Mask
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.seeds import Seed, generator
from kikuchi.training.model import Parameters

Array = NDArray[Any]


def draw_side(
    units: Units,
    fields: Array,
    lateral: Array | None,
    states: Array,
    rng: np.random.Generator,
    sweeps: int = 1,
) -> Array:
    """New states of one side given the fields from the other, biases included.

    Connected units start from `states` and are swept `sweeps` times in turn. `fields` may be
    written over.
    """
    from kikuchi.boltzmann.kernels.sampling import draw_logistic, sweep_connected

    if lateral is None and isinstance(units, BinaryUnits):  # mean and draw in one pass
        means = np.ascontiguousarray(fields)
        drawn, word = np.empty_like(means), np.uint64(rng.bit_generator.random_raw())
        nothing = np.zeros(means.shape[1], means.dtype)
        draw_logistic(means, nothing, np.empty(len(means)), drawn, word)
        return drawn
    if lateral is None:
        return np.asarray(units.draw(fields, rng))

    check_connected(units)
    drawn = np.ascontiguousarray(states, dtype=np.float64).copy()
    inside = np.ascontiguousarray(lateral, dtype=np.float64)
    totals, means = fields + drawn @ inside, np.empty_like(drawn)
    for _ in range(sweeps):
        sweep_connected(totals, inside, drawn, rng.random(drawn.shape), means)
    return drawn


class GibbsChains:
    """Chains of one machine side by side, one row each.

    With `held`, those visible units keep the values that they have in `visible`: all of them
    gives the clamped phase, inputs alone the conditional machine.

    >>> machine = Machine.random(4, 3, scale=0.5, random_state=0)
    >>> chains = GibbsChains(machine, 100, random_state=0)
    >>> chains.run(10).visible.shape
    (100, 4)
    """

    def __init__(
        self,
        machine: Machine,
        n_chains: int | None = None,
        *,
        visible: ArrayLike | None = None,
        held: Mask | None = None,
        random_state: Seed = None,
    ) -> None:
        self.machine = machine.copy(np.float64)
        self.rng = generator(random_state)
        self.held = None if held is None else as_inputs(machine, held)
        if visible is None:
            if n_chains is None or n_chains < 1:
                raise MethodError("chains: give their number, at least 1, or rows to start from")
            if self.held is not None:
                raise DataError("chains: held units need rows of values to be held at")
            fields = np.tile(self.machine.visible_bias, (n_chains, 1))
            self.visible = np.asarray(machine.visible.draw(fields, self.rng))
        else:
            self.visible = as_rows(machine, visible).copy()
            if n_chains is not None and n_chains != len(self.visible):
                raise DataError(f"chains: {n_chains} of them, but {len(self.visible)} rows")
        self.hidden = (self.rng.random((len(self.visible), machine.n_hidden)) < 0.5).astype(float)
        self.sweeps = 0
        self._draw_hidden()

    def run(self, sweeps: int = 1) -> GibbsChains:
        """Go on for so many sweeps; answers the chains themselves."""
        for _ in range(sweeps):
            self._draw_visible()
            self._draw_hidden()
        self.sweeps += sweeps
        return self

    def statistics(self) -> Parameters:
        """Averages over the chains as they are now; hidden units without connections inside enter
        by their means, which vary less.
        """
        hidden = self.hidden
        if self.machine.hidden_weights is None:
            hidden = self.machine.hidden.mean(self.machine.hidden_field(self.visible))
        return mean_statistics(self.machine, self.visible, hidden)

    def average(self, sweeps: int) -> Parameters:
        """Statistics averaged over this many further sweeps."""
        total: Parameters = {}
        for _ in range(sweeps):
            for name, part in self.run(1).statistics().items():
                total[name] = total.get(name, 0.0) + part / sweeps
        return total

    def _draw_hidden(self) -> None:
        m = self.machine
        fields = self.visible @ m.weights + m.hidden_bias
        self.hidden = draw_side(m.hidden, fields, m.hidden_weights, self.hidden, self.rng)

    def _draw_visible(self) -> None:
        m = self.machine
        fields = self.hidden @ m.weights.T + m.visible_bias
        if self.held is None:
            self.visible = draw_side(m.visible, fields, m.visible_weights, self.visible, self.rng)
            return
        free = ~self.held
        if not free.any():
            return
        lateral, states = None, self.visible[:, free]
        fields = fields[:, free]
        if m.visible_weights is not None:
            lateral = m.visible_weights[np.ix_(free, free)]
            fields = fields + self.visible[:, self.held] @ m.visible_weights[self.held][:, free]
        self.visible[:, free] = draw_side(m.visible, fields, lateral, states, self.rng)


class TemperedChains:
    """Replica exchange: chains at inverse temperatures from `betas`, which swap their states.

    Chains at small betas move freely between modes and carry the others along. The distribution
    at beta is proportional to base(v) exp(-beta E). After each sweep neighbouring levels swap with
    probability min(1, exp((beta_a - beta_b) (E_a - E_b))), even and odd pairs in turn. With
    `single`, fields and energies are of single precision, for speed. Chains begin at random states,
    or at the rows `visible`, one for each chain.

    >>> machine = Machine.random(4, 3, scale=2.0, random_state=0)
    >>> chains = TemperedChains(machine, 10, betas=[0.0, 0.5, 1.0], random_state=0).run(50)
    >>> chains.visible.shape, bool(np.all(chains.acceptance > 0))
    ((10, 4), True)
    """

    def __init__(
        self,
        machine: Machine,
        n_chains: int,
        *,
        betas: ArrayLike | int = 10,
        single: bool = False,
        visible: ArrayLike | None = None,
        random_state: Seed = None,
    ) -> None:
        self.machine = machine.copy(np.float32 if single else np.float64)
        self.rng = generator(random_state)
        self.betas = np.linspace(0.0, 1.0, betas) if isinstance(betas, int) else np.array(betas)
        rising = self.betas.ndim == 1 and bool(np.all(np.diff(self.betas) > 0))
        if len(self.betas) < 2 or not rising or self.betas[0] < 0 or self.betas[-1] != 1.0:
            raise MethodError(
                "tempering: betas must rise from 0 or more to 1, at least two of them"
            )
        levels = len(self.betas)
        rows = None if visible is None else np.tile(as_rows(machine, visible), (levels, 1))
        start = GibbsChains(machine, levels * n_chains, visible=rows, random_state=self.rng)
        number = np.float32 if single else np.float64
        self._v = start.visible.reshape(levels, n_chains, -1).astype(number)
        self._h = start.hidden.reshape(levels, n_chains, -1).astype(number)
        self.attempts = np.zeros(levels - 1, dtype=np.int64)
        self.swaps = np.zeros(levels - 1, dtype=np.int64)
        self.round_trips = 0
        self.sweeps = 0
        self._replica = np.tile(np.arange(levels)[:, None], n_chains)
        self._heading_up = np.zeros((levels, n_chains), dtype=np.bool_)  # by replica

    @property
    def visible(self) -> Array:
        """Visible units of the chains at beta = 1."""
        return np.asarray(self._v[-1])

    @property
    def hidden(self) -> Array:
        """Hidden units of the chains at beta = 1."""
        return np.asarray(self._h[-1])

    @property
    def acceptance(self) -> Array:
        """Share of the tried swaps that were made, for each pair of neighbouring levels."""
        return self.swaps / np.maximum(self.attempts, 1)

    def run(self, sweeps: int = 1) -> TemperedChains:
        """Sweep all levels, then swap, so many times; answers the chains themselves."""
        for _ in range(sweeps):
            m = self.machine
            if m.visible_weights is None and m.hidden_weights is None:
                energies = self._sweep_together()
            else:
                for level, beta in enumerate(self.betas):
                    self._sweep(level, float(beta))
                levels = zip(self._v, self._h, strict=True)
                energies = np.stack([m.energy(v, h) for v, h in levels])
            self._swap(energies)
            self.sweeps += 1
        return self

    def _sweep(self, level: int, beta: float) -> None:
        m, rng = self.machine, self.rng
        v, h = self._v[level], self._h[level]
        lateral = None if m.visible_weights is None else beta * m.visible_weights
        v = draw_side(m.visible, beta * (h @ m.weights.T + m.visible_bias), lateral, v, rng)
        lateral = None if m.hidden_weights is None else beta * m.hidden_weights
        h = draw_side(m.hidden, beta * (v @ m.weights + m.hidden_bias), lateral, h, rng)
        self._v[level], self._h[level] = v, h

    def _sweep_together(self) -> Array:
        """A sweep of all levels at once, of units without connections inside; answers energies."""
        m, rng = self.machine, self.rng
        levels, chains = self._v.shape[:2]
        betas = np.repeat(self.betas, chains)[:, None].astype(m.dtype)
        on_visible = self._h.reshape(levels * chains, -1) @ m.weights.T + m.visible_bias
        v = draw_side(m.visible, betas * on_visible, None, on_visible, rng)
        on_hidden = v @ m.weights + m.hidden_bias
        h = draw_side(m.hidden, betas * on_hidden, None, on_hidden, rng)
        self._v, self._h = v.reshape(levels, chains, -1), h.reshape(levels, chains, -1)
        energies: Array = -(v @ m.visible_bias + np.einsum("nk,nk->n", h, on_hidden))
        return energies.reshape(levels, chains)

    def _swap(self, energies: Array) -> None:
        chains = self._v.shape[1]
        for low in range(self.sweeps % 2, len(self.betas) - 1, 2):
            high = low + 1
            gain = (self.betas[high] - self.betas[low]) * (energies[high] - energies[low])
            made = np.log1p(-self.rng.random(chains)) < gain
            for states in (self._v, self._h, self._replica):
                states[low, made], states[high, made] = states[high, made], states[low, made]
            self.attempts[low] += chains
            self.swaps[low] += int(made.sum())
        self._count_round_trips()

    def _count_round_trips(self) -> None:
        """A round trip: a replica that was at the lowest level reaches the highest."""
        columns = np.arange(self._v.shape[1])
        arrived = self._heading_up[self._replica[-1], columns]
        self.round_trips += int(arrived.sum())
        self._heading_up[self._replica[-1], columns] = False
        self._heading_up[self._replica[0], columns] = True
