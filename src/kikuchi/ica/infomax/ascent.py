"""Maximisation of the likelihood of noiseless ICA, one step at a time.

Reference: TEH-L13, TEH-M16, TEH-M17.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.run import Step
from kikuchi.engines.loops.lbfgs import HeldDescent
from kikuchi.engines.loops.state import Held, State
from kikuchi.ica.infomax.densities import Density, find_density
from kikuchi.ica.infomax.most_probable import map_sources
from kikuchi.ica.infomax.objective import (
    manifold_objective,
    per_source,
    relative_gradient,
    square_gradient,
    square_objective,
)

_LEAST_CURVATURE = 0.01  # of the approximate Hessian
_TRIALS = 40
_ROUNDS = 10  # changes of densities in `auto`


@dataclass(eq=False, init=False)
class InfomaxAscent(State, ABC):
    """An ascent, one step at a time; `value` is the objective."""

    value: float
    done: int

    @abstractmethod
    def step(self) -> Step | None:
        """Take a step from the present state; None where none goes up."""


@dataclass(eq=False, init=False)
class FilterAscent(InfomaxAscent):
    """Ascent to the best filters of whitened data."""

    filters: Array

    def __init__(self, data: Array, filters: Array, density: str) -> None:
        self.data, self.filters = data, filters
        self.value, self.done = -math.inf, 0
        name = "sech" if density == "auto" else density
        self.densities: list[Density] = [find_density(name)] * len(filters)


@dataclass(eq=False, init=False)
class SquareAscent(FilterAscent):
    """As many filters as directions of the data: gradient, natural gradient, or nearly Newton.

    `bimodal` are the outputs that density `auto` has given the bimodal one, `round` is the number
    of such choices.
    """

    length: float
    round: int
    bimodal: Mask

    def __init__(
        self, data: Array, rng: np.random.Generator, density: str, solver: str, tol: float
    ) -> None:
        filters = np.linalg.qr(rng.standard_normal((len(data), len(data))))[0]
        super().__init__(data, filters, density)
        self.solver, self.tol = solver, tol
        self.rounds = _ROUNDS if density == "auto" else 1
        self._begin()

    @classmethod
    def from_filters(
        cls, data: Array, filters: Array, densities: Sequence[Density], tol: float
    ) -> SquareAscent:
        """Nearly Newton's method from given filters, with a density for each output."""
        ascent = cls.__new__(cls)
        ascent.data, ascent.filters, ascent.densities = data, filters, list(densities)
        ascent.solver, ascent.tol, ascent.rounds, ascent.done = "newton", tol, 1, 0
        ascent._begin()
        return ascent

    def _begin(self) -> None:
        self.length, self.round, self.ended = 1.0, 0, False
        self.bimodal = np.zeros(len(self.filters), dtype=bool)
        self.value = square_objective(self.filters, self.data, self.densities)
        self._evaluate()

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take the values that `to_arrays` described."""
        super().load(arrays)
        if self.rounds > 1:
            names = ("bimodal" if flag else "sech" for flag in self.bimodal)
            self.densities = [find_density(name) for name in names]
        self._evaluate()

    def step(self) -> Step | None:
        """Take a step; the residual is the largest entry of the relative gradient. With `auto`,
        each change of densities starts a new ascent where the last ended.
        """
        climbs = self.done > 0  # the first report is that of the start
        while not self.ended:
            if climbs and not self._ascend():
                return None
            residual = float(np.abs(self.relative).max())
            self.done += 1
            reached = residual <= self.tol
            climbs = not (reached and self.round < self.rounds - 1 and self._choose_densities())
            if climbs:
                self.ended = reached
                return Step(self.done, residual=residual, objective=self.value)
            self.round += 1
            self.value = square_objective(self.filters, self.data, self.densities)
            self._evaluate()
        return None

    def _evaluate(self) -> None:
        self.outputs = self.filters @ self.data
        self.relative = relative_gradient(self.outputs, self.densities)

    def _ascend(self) -> bool:
        """One step up in the direction of the solver; False when there is none."""
        if self.solver == "gradient":
            direction = square_gradient(self.filters, self.data, self.densities)
            rise = float(np.sum(direction**2))
        elif self.solver == "natural":
            direction = self.relative @ self.filters
            rise = float(np.sum(self.relative**2))
        else:
            step = self._newton(self.outputs, self.relative)
            direction = step @ self.filters
            rise = float(np.sum(step * self.relative))
        higher = self._search(direction, rise)
        self._evaluate()
        return higher

    def _newton(self, outputs: Array, relative: Array) -> Array:
        """The relative gradient over the Hessian of independent outputs, made positive.

        For independent outputs only the pairs (i, j), (j, i) are coupled:
        h_ij = <curvature_i> <u_j^2> on the diagonal of a 2 x 2 block, 1 off it.
        """
        curvature = per_source(outputs, self.densities, "curvature")
        power = outputs**2
        h = np.outer(curvature.mean(axis=1), power.mean(axis=1))
        np.fill_diagonal(h, np.mean(curvature * power, axis=1))
        least = 0.5 * (h + h.T - np.sqrt((h - h.T) ** 2 + 4))
        h = h + np.where(least < _LEAST_CURVATURE, _LEAST_CURVATURE - least, 0.0)
        step = (h.T * relative - relative.T) / (h * h.T - 1)
        own = np.maximum(np.mean(curvature * power, axis=1) + 1, _LEAST_CURVATURE)
        np.fill_diagonal(step, np.diagonal(relative) / own)
        return np.asarray(step)

    def _search(self, direction: Array, rise: float) -> bool:
        """A step along `direction` that raises the objective enough, found by halving."""
        length = 1.0 if self.solver == "newton" else 2 * self.length
        for _ in range(_TRIALS):
            trial = self.filters + length * direction
            value = square_objective(trial, self.data, self.densities)
            if value >= self.value + 1e-4 * length * rise or self._level(trial, value):
                self.filters, self.value, self.length = trial, value, length
                return True
            length *= 0.5
        return False

    def _level(self, trial: Array, value: float) -> bool:
        """Whether only rounding hides the rise: as good as equal values, a smaller gradient."""
        if value < self.value - 1e-14 * max(1.0, abs(self.value)):
            return False
        new = np.abs(relative_gradient(trial @ self.data, self.densities)).max()
        return bool(new < np.abs(self.relative).max())

    def unstable(self) -> NDArray[np.intp]:
        """Outputs at which the objective is no maximum: <curvature> <u^2> < <slope u>."""
        outputs = self.filters @ self.data
        curvature = per_source(outputs, self.densities, "curvature").mean(axis=1)
        slope = np.mean(per_source(outputs, self.densities, "slope") * outputs, axis=1)
        return np.flatnonzero(curvature * np.mean(outputs**2, axis=1) < slope)

    def _choose_densities(self) -> bool:
        """Give each unstable output the other kind of density; whether any was changed."""
        changed = self.unstable()
        for k in changed:
            name = "bimodal" if self.densities[k].name == "sech" else "sech"
            self.densities[k] = find_density(name)
            self.bimodal[k] = name == "bimodal"
        return len(changed) > 0


@dataclass(eq=False, init=False)
class OvercompleteAscent(FilterAscent):
    """More filters than sensors: entropy of outputs on a curved manifold."""

    varying: ClassVar[tuple[str, ...]] = ("descent/moves", "descent/changes")

    descent: Held[Lbfgs]

    def __init__(self, data: Array, n_sources: int, rng: np.random.Generator, density: str) -> None:
        if density == "auto":
            raise MethodError("InfomaxICA: density auto needs at most as many sources as sensors")
        start = rng.standard_normal((n_sources, len(data)))
        super().__init__(data, start / np.linalg.norm(start, axis=1, keepdims=True), density)
        self.descent = HeldDescent(self._objective, self.filters.ravel(), longest=0.5)

    def _objective(self, point: Array) -> tuple[float, Array]:
        filters = point.reshape(self.filters.shape)
        value, gradient = manifold_objective(filters, self.data, self.densities)
        return -value, -gradient.ravel()

    def step(self) -> Step | None:
        """Take a step of L-BFGS; the residual is the largest entry of the gradient."""
        descent = self.descent.now
        if self.done and not descent.step():
            return None
        self.done += 1
        self.filters = descent.point.reshape(self.filters.shape)
        self.value = -descent.value
        return Step(self.done, residual=descent.residual, objective=self.value)


@dataclass(eq=False, init=False)
class CausalAscent(InfomaxAscent):
    """Mixing matrix with unit columns and the most probable sources, in turn.

    Each of the two steps raises `-|X - A S|^2 / (2 noise) - rate |S|`; the lengths of the columns
    are held at 1, or they would grow without end.
    """

    mixing: Array
    sources: Array

    def __init__(self, data: Array, n_sources: int, rng: np.random.Generator, noise: float) -> None:
        self.data, self.noise = data, noise
        self.value, self.done = -math.inf, 0
        self.rate = math.sqrt(2 * n_sources / float(np.sum(data**2) / data.shape[1]))
        power = np.sum(data**2, axis=0)
        loud = np.argsort(-power)[: max(n_sources, data.shape[1] // 10)]
        loud = loud[power[loud] > 0.0]
        chosen = data[:, spread_columns(data[:, loud], n_sources, rng, loud)]
        self.mixing = np.ascontiguousarray(chosen / np.linalg.norm(chosen, axis=0))
        self.sources = np.zeros((data.shape[1], n_sources))

    def step(self) -> Step:
        """Take both steps; the residual is the largest change of an entry of the mixing matrix."""
        before = self.mixing
        self.sources = map_sources(
            self.data.T, self.mixing, rate=self.rate, noise=self.noise, start=self.sources
        )
        self._update_columns()
        rest = self.data.T - self.sources @ self.mixing.T
        fit = -0.5 * np.sum(rest**2) / self.noise - self.rate * np.abs(self.sources).sum()
        constant = self.mixing.shape[1] * math.log(self.rate / 2)
        constant -= 0.5 * len(self.data) * math.log(2 * math.pi * self.noise)
        self.value = float(fit) / self.data.shape[1] + constant
        self.done += 1
        residual = float(np.abs(self.mixing - before).max())
        return Step(self.done, residual=residual, objective=self.value)

    def _update_columns(self) -> None:
        """The best unit column given the others, one after the other."""
        power = self.sources.T @ self.sources
        cross = self.data @ self.sources
        mixing = self.mixing.copy()
        for i in range(len(power)):
            if power[i, i] == 0:
                continue
            best = cross[:, i] - mixing @ power[:, i] + mixing[:, i] * power[i, i]
            length = float(np.linalg.norm(best))
            if length > 0:
                mixing[:, i] = best / length
        self.mixing = mixing


def spread_columns(
    candidates: Array, count: int, rng: np.random.Generator, names: NDArray[np.intp]
) -> NDArray[np.intp]:
    """`count` of the `names` whose columns point in different directions, each chosen with a
    chance that grows with its angle to those chosen before.
    """
    units = candidates / np.maximum(np.linalg.norm(candidates, axis=0), 1e-300)
    chosen = [int(rng.integers(units.shape[1]))]
    nearest = np.zeros(units.shape[1])
    for _ in range(1, count):
        nearest = np.maximum(nearest, np.abs(units[:, chosen[-1]] @ units))
        chance = np.maximum(1 - nearest**2, 0.0) ** 2
        if chance.sum() == 0:
            raise DataError("all samples lie on fewer lines than sources; request fewer sources")
        chosen.append(int(rng.choice(len(chance), p=chance / chance.sum())))
    return np.asarray(names[chosen])
