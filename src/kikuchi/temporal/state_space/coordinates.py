"""Free parameters of a `StateSpace` as a vector, and the gradient of the log-likelihood along it.

Covariances are packed by logarithms (`LogCovariances`), or for the ascent of a whole fit by square
roots above a floor (`RootCovariances`): there a noise of variance 0, the maximum of many series, is
an ordinary point, which in logarithms is infinitely far away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.temporal.covariances import (
    covariance_slope,
    pack_covariance,
    packed_length,
    unpack_covariance,
)
from kikuchi.temporal.state_space.learning import (
    NOISES,
    StateConstraints,
    StateStatistics,
    split_coefficients,
    with_noise_steps,
    with_tied_start,
)
from kikuchi.temporal.state_space.parameters import StateSpace


class Covariances(Protocol):
    """How covariances become vectors; `name` is that of the parameter."""

    def pack(self, name: str, covariance: Array, structure: str) -> Array:
        """The covariance as a vector."""

    def unpack(self, name: str, vector: Array, size: int, structure: str) -> Array:
        """The inverse of `pack`."""

    def slope(
        self, name: str, scatter: Array, count: float, covariance: Array, structure: str,
        vector: Array,
    ) -> Array:  # fmt: skip
        """Slope along the vector of the log-density of `count` errors with this scatter."""


class LogCovariances:
    """Logarithms of variances, or Cholesky factors with logarithms on the diagonal."""

    def pack(self, name: str, covariance: Array, structure: str) -> Array:
        """The covariance as a vector."""
        return pack_covariance(covariance, structure)

    def unpack(self, name: str, vector: Array, size: int, structure: str) -> Array:
        """The inverse of `pack`."""
        return unpack_covariance(vector, size, structure)

    def slope(
        self, name: str, scatter: Array, count: float, covariance: Array, structure: str,
        vector: Array,
    ) -> Array:  # fmt: skip
        """Slope along the vector of the log-density of `count` errors with this scatter."""
        return covariance_slope(scatter, count, covariance, structure)


@dataclass(frozen=True)
class RootCovariances:
    """Standard deviations of either sign, or triangular factors F: the covariance is F F' + floor.

    `floors` are the least variances of the coordinates of each covariance by name.

    >>> roots = RootCovariances({"state_noise": np.array([0.1, 0.1])})
    >>> vector = roots.pack("state_noise", np.array([[1.1, 0.5], [0.5, 2.0]]), "full")
    >>> roots.unpack("state_noise", -vector, 2, "full").round(9).tolist()
    [[1.1, 0.5], [0.5, 2.0]]
    """

    floors: Mapping[str, Array]

    def pack(self, name: str, covariance: Array, structure: str) -> Array:
        """The covariance as a vector."""
        above = covariance - np.diag(self.floors[name])
        if structure == "isotropic":
            return np.sqrt(np.maximum([np.diagonal(above).mean()], 0.0))
        if structure == "diagonal":
            return np.sqrt(np.maximum(np.diagonal(above), 0.0))
        values, vectors = np.linalg.eigh(above)
        upper = np.linalg.qr((vectors * np.sqrt(np.maximum(values, 0.0))).T)[1]
        factor = upper.T * np.where(np.diagonal(upper) < 0, -1.0, 1.0)
        return np.asarray(factor[np.tril_indices(len(factor))])

    def unpack(self, name: str, vector: Array, size: int, structure: str) -> Array:
        """The inverse of `pack`."""
        floor = self.floors[name]
        if structure == "isotropic":
            return np.eye(size) * (float(vector[0]) ** 2 + float(floor.mean()))
        if structure == "diagonal":
            return np.diag(vector**2 + floor)
        factor = _triangle(vector, size)
        return np.asarray(factor @ factor.T + np.diag(floor))

    def slope(
        self, name: str, scatter: Array, count: float, covariance: Array, structure: str,
        vector: Array,
    ) -> Array:  # fmt: skip
        """Slope along the vector of the log-density of `count` errors with this scatter."""
        inverse = np.linalg.inv(covariance)
        g = inverse @ scatter @ inverse - count * inverse  # twice that along the covariance
        if structure == "isotropic":
            return np.asarray([np.trace(g) * float(vector[0])])
        if structure == "diagonal":
            return np.asarray(np.diagonal(g) * vector)
        size = len(covariance)
        return np.asarray((g @ _triangle(vector, size))[np.tril_indices(size)])


def _triangle(vector: Array, size: int) -> Array:
    factor = np.zeros((size, size))
    factor[np.tril_indices(size)] = vector
    return factor


LOGARITHMS = LogCovariances()


def pack(
    model: StateSpace, constraints: StateConstraints, covariances: Covariances = LOGARITHMS
) -> Array:
    """Free parameters as one unconstrained vector: coefficients, covariances, the first state."""
    parts = []
    for noise, names in NOISES.items():
        number, values = constraints.free(model, names)
        theta = np.zeros(int(number.max(initial=-1)) + 1)
        theta[number[number >= 0]] = values[number >= 0]
        parts.append(theta)
        if noise not in constraints.fixed | constraints.held(model):
            structure = getattr(constraints, noise)
            parts.append(covariances.pack(noise, getattr(model, noise), structure))
    if constraints.learns(model, "initial_mean"):
        parts.append(np.asarray(model.initial_mean))
    if constraints.learns(model, "initial_covariance"):
        parts.append(covariances.pack("initial_covariance", model.initial_covariance, "full"))
    return np.concatenate(parts)


def unpack(
    model: StateSpace,
    vector: Array,
    constraints: StateConstraints,
    covariances: Covariances = LOGARITHMS,
) -> StateSpace:
    """The inverse of `pack`."""
    changes: dict[str, Any] = {}
    held, at = constraints.held(model), 0
    for noise, names in NOISES.items():
        number, values = constraints.free(model, names)
        count = int(number.max(initial=-1)) + 1
        if noise not in held:
            w = np.where(number >= 0, vector[at : at + count][number] if count else values, values)
            changes |= split_coefficients(model, names, w)
        at += count
        if noise not in constraints.fixed | held:
            size, structure = len(getattr(model, noise)), getattr(constraints, noise)
            length = packed_length(size, structure)
            part = vector[at : at + length]
            changes[noise] = covariances.unpack(noise, part, size, structure)
            at += length
    n = model.n_states
    if constraints.learns(model, "initial_mean"):
        changes["initial_mean"] = vector[at : at + n]
        at += n
    if constraints.learns(model, "initial_covariance"):
        name = "initial_covariance"
        changes[name] = covariances.unpack(name, vector[at:], n, "full")
    return with_tied_start(model.updated(**changes), constraints)


def gradient(
    model: StateSpace,
    statistics: StateStatistics,
    constraints: StateConstraints,
    covariances: Covariances = LOGARITHMS,
    vector: Array | None = None,
) -> Array:
    """Gradient of the log-likelihood along `pack`: that of the expected log-likelihood.

    `vector` is the point of the model; by default that of `pack`.
    """
    point = pack(model, constraints, covariances) if vector is None else vector
    parts: list[Array] = []

    def add_covariance(name: str, scatter: Array, count: float, structure: str) -> None:
        covariance, at = getattr(model, name), sum(map(len, parts))
        part = point[at : at + packed_length(len(covariance), structure)]
        parts.append(covariances.slope(name, scatter, count, covariance, structure, part))

    for noise, names in NOISES.items():
        if noise in constraints.held(model):
            continue
        regression = statistics.state if noise == "state_noise" else statistics.output
        if constraints.first == "noise" and noise == "state_noise":
            regression = with_noise_steps(
                model, regression, statistics.first_scatter, statistics.sequences
            )
        number, values = constraints.free(model, names)
        theta = np.zeros(int(number.max(initial=-1)) + 1)
        change = values - regression.base
        slope = np.linalg.solve(getattr(model, noise), regression.ez - change @ regression.zz)
        np.add.at(theta, number[number >= 0], slope[number >= 0])
        parts.append(theta)
        if noise not in constraints.fixed:
            scatter = regression.scatter(values)
            add_covariance(noise, scatter, regression.count, getattr(constraints, noise))
    if constraints.learns(model, "initial_mean"):
        parts.append(np.linalg.solve(model.initial_covariance, statistics.first_error))
    if constraints.learns(model, "initial_covariance"):
        count = float(statistics.sequences)
        add_covariance("initial_covariance", statistics.first_scatter, count, "full")
    return np.concatenate(parts)


class StateCoordinates:
    """Free parameters about a model in natural units: coefficients in units of the deviations of
    what they relate, covariances by their roots.
    """

    def __init__(
        self, model: StateSpace, statistics: StateStatistics, constraints: StateConstraints
    ) -> None:
        self.origin, self.constraints = model, constraints
        states = _deviations(statistics.state.spread, statistics.state.count)
        outputs = _deviations(statistics.output.spread, statistics.output.count)
        self.roots = RootCovariances({
            "state_noise": statistics.state.floor,
            "output_noise": statistics.output.floor,
            "initial_covariance": statistics.state.floor,
        })  # fmt: skip
        self.units = self._natural_units(statistics, states, outputs)

    def _natural_units(self, statistics: StateStatistics, states: Array, outputs: Array) -> Array:
        model, constraints, parts = self.origin, self.constraints, []
        for noise, names in NOISES.items():
            state = noise == "state_noise"
            regression = statistics.state if state else statistics.output
            targets = states if state else outputs
            regressors = _deviations(np.diagonal(regression.zz), regression.count)
            number, _ = constraints.free(model, names)
            unit = np.zeros(int(number.max(initial=-1)) + 1)
            unit[number[number >= 0]] = (targets[:, None] / regressors)[number >= 0]
            parts.append(unit)
            if noise not in constraints.fixed | constraints.held(model):
                parts.append(_covariance_units(targets, getattr(constraints, noise)))
        if constraints.learns(model, "initial_mean"):
            parts.append(states)
        if constraints.learns(model, "initial_covariance"):
            parts.append(_covariance_units(states, "full"))
        return np.concatenate(parts)

    def vector(self, model: StateSpace) -> Array:
        """The vector of a model."""
        return pack(model, self.constraints, self.roots) / self.units

    def model(self, vector: Array) -> StateSpace:
        """The model of a vector."""
        return unpack(self.origin, vector * self.units, self.constraints, self.roots)

    def gradient(self, model: StateSpace, statistics: StateStatistics, vector: Array) -> Array:
        """Gradient of the log-likelihood along the vector of the model."""
        at = vector * self.units
        return self.units * gradient(model, statistics, self.constraints, self.roots, at)


def _deviations(squares: Array, count: float) -> Array:
    """Root mean squares; 1 where they are zero."""
    found = np.sqrt(np.maximum(squares, 0.0) / max(count, 1.0))
    return np.where(found > 0, found, 1.0)


def _covariance_units(deviations: Array, structure: str) -> Array:
    if structure == "isotropic":
        return np.asarray([np.sqrt((deviations**2).mean())])
    if structure == "diagonal":
        return deviations
    return np.asarray(deviations[np.tril_indices(len(deviations))[0]])
