"""Learning a `StateSpace`: expected statistics, constrained maximisation, and a first guess.

Both equations of the model are regressions with noise: x_t on (x_t-1, u_t, 1) and y_t on
(x_t, u_t, 1). A statistic is a sum of expected products; everything that is learnt, and the
gradient of the log-likelihood as well (Fisher's identity), is read from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import MethodError, suggestion
from kikuchi.temporal.covariances import structured
from kikuchi.temporal.sequences import Sequences
from kikuchi.temporal.state_space.inference import smooth_states
from kikuchi.temporal.state_space.parameters import StateSpace
from kikuchi.temporal.state_space.results import SmoothedStates

FirstState = Literal["fixed", "mean", "noise", "free"]
STATE = ("transition", "state_input", "state_offset")
OUTPUT = ("output", "output_input", "output_offset")
NOISES = {"state_noise": STATE, "output_noise": OUTPUT}
NAMES = (*STATE, *OUTPUT, *NOISES, "initial_mean", "initial_covariance")
_RIDGE = 1e-12  # of the largest eigenvalue, where regressors are collinear
_FLOOR = 1e-10  # of noise variances, relative to the variance of what they explain
_LAGS = 10  # rows of the past from which a first guess predicts
_STABLE = 0.995  # largest eigenvalue of the transition of a first guess


@dataclass
class Regression:
    """Sums of expected products of the errors e of an equation and of its regressors z.

    Errors are those of the present coefficients `base`, so that products of large numbers are never
    subtracted from each other. `centre` is the mean of the targets, `spread` their sum of squares
    about it.
    """

    base: Array
    ee: Array
    ez: Array
    zz: Array
    count: float
    centre: Array
    spread: Array

    @classmethod
    def zero(cls, targets: int, regressors: int) -> Regression:
        """Sums over nothing."""
        base, none = np.zeros((targets, regressors)), np.zeros(targets)
        return cls(
            base, np.zeros((targets,) * 2), base, np.zeros((regressors,) * 2), 0.0, none, none
        )

    @classmethod
    def of_means(cls, base: Array, target: Array, z: Array) -> Regression:
        """Sums over rows whose `target` (rows, targets) and regressors `z` are known."""
        e, count = target - z @ base.T, float(len(target))
        origin = target[0] if len(target) else np.zeros(target.shape[1])
        away = target - origin
        mean = np.ones(len(target)) @ away / max(count, 1.0)
        spread = np.einsum("ti,ti->i", away, away) - count * mean**2
        return cls(base, e.T @ e, e.T @ z, z.T @ z, count, origin + mean, spread)

    def __iadd__(self, other: Regression) -> Regression:
        """Add sums of the same base."""
        count = self.count + other.count
        if not other.count:
            return self
        away = other.centre - self.centre
        self.spread = self.spread + other.spread + away**2 * (self.count * other.count / count)
        self.centre = self.centre + away * (other.count / count)
        self.base, self.count = other.base, count
        self.ee, self.ez = self.ee + other.ee, self.ez + other.ez
        self.zz = self.zz + other.zz
        return self

    def scatter(self, w: Array) -> Array:
        """Expected sum of squares of target - w regressors."""
        change = w - self.base
        cross = change @ self.ez.T
        out = self.ee - cross - cross.T + change @ self.zz @ change.T
        return np.asarray(0.5 * (out + out.T))

    @property
    def floor(self) -> Array:
        """The smallest noise variance of each target."""
        return np.asarray(_FLOOR * self.spread / max(self.count, 1.0))


@dataclass
class StateStatistics:
    """What learning needs: both regressions, and the moments of the first states about the present
    `initial_mean`.
    """

    state: Regression
    output: Regression
    first_error: Array
    first_scatter: Array
    sequences: int

    @classmethod
    def zero(cls, model: StateSpace, sequences: int) -> StateStatistics:
        """Sums over nothing."""
        n, m = model.n_states, model.n_outputs
        z = n + model.n_inputs + 1
        return cls(
            Regression.zero(n, z), Regression.zero(m, z), np.zeros(n), np.zeros((n, n)), sequences
        )

    def add_states(self, model: StateSpace, s: SmoothedStates, u: Array) -> None:
        """Add the first state of a sequence, and its steps if the state equation is constant."""
        sum_v, sum_pair, first, last = s.covariance_sums()
        error = s.mean[0] - model.initial_mean
        self.first_error = self.first_error + error
        self.first_scatter = self.first_scatter + first + np.outer(error, error)
        if not _varies(model, "state_noise"):
            self.state += _state_regression(model, s, u, sum_v - first, sum_v - last, sum_pair)


def expected_statistics(
    model: StateSpace, sequences: Sequences, inputs: list[Array], arithmetic: Any = "auto"
) -> tuple[float, StateStatistics]:
    """Log-likelihood of all sequences, and expected sums of products."""
    total = StateStatistics.zero(model, len(inputs))
    log_likelihood = 0.0
    for y, u in zip(sequences.tables, inputs, strict=True):
        s = smooth_states(model, y, u, arithmetic=arithmetic)
        log_likelihood += s.log_likelihood
        total.add_states(model, s, u)
        if not _varies(model, "output_noise"):
            total.output += _output_regression(model, s, y, u)
    return log_likelihood, total


def _varies(model: StateSpace, noise: str) -> bool:
    """Whether a part of the equation with this noise varies in time; it is then not learnt."""
    return bool({noise, *NOISES[noise]} & set(model.varying))


def _present(model: StateSpace, noise: str) -> Array:
    """The coefficients of an equation side by side."""
    one, two, offset = (getattr(model, name) for name in NOISES[noise])
    return np.column_stack([one, two, offset])


def _state_regression(
    model: StateSpace, s: SmoothedStates, u: Array, now: Array, before: Array, pair: Array
) -> Regression:
    """Sums of products of states with those before them: covariances of all but the first step,
    of all but the last, and of neighbours are given as sums.
    """
    z = np.column_stack([s.mean[:-1], u[1:], np.ones(len(s.mean) - 1)])
    out = Regression.of_means(_present(model, "state_noise"), s.mean[1:], z)
    out.spread = out.spread + np.diagonal(now)
    _add_step(out, model.transition, now, before, pair)
    return out


def _add_step(out: Regression, a: Array, now: Array, before: Array, pair: Array) -> None:
    """Add sums of second moments of states x, of the states z before them, and pair = E z x'."""
    n = len(a)
    cross = a @ pair
    out.ee = out.ee + now - cross - cross.T + a @ before @ a.T
    out.ez[:, :n] += pair.T - a @ before
    out.zz[:n, :n] += before


def _output_regression(model: StateSpace, s: SmoothedStates, y: Array, u: Array) -> Regression:
    """Missing outputs are expected given the state and the outputs beside them."""
    n, c, noise = s.mean.shape[1], model.output, model.output_noise
    z = np.column_stack([s.mean, u, np.ones(len(y))])
    missing = np.isnan(y)
    base = _present(model, "output_noise")
    expected, parts, sum_v = y, [], s.covariance_sums()[0]
    if missing.any():
        expected = np.where(missing, z @ base.T, y)
        patterns, which = np.unique(missing, axis=0, return_inverse=True)
        for k, gone in enumerate(patterns):
            if not gone.any():
                continue
            t, known = np.flatnonzero(which.reshape(-1) == k), ~gone
            v, weight, rest = s.covariance[t].sum(axis=0), -c, np.zeros(noise.shape)
            rest[np.ix_(gone, gone)] = noise[np.ix_(gone, gone)]
            weight = np.where(gone[:, None], 0.0, weight)
            if known.any():
                gain = np.linalg.solve(noise[np.ix_(known, known)], noise[np.ix_(known, gone)]).T
                error = y[t][:, known] - (z[t] @ base.T)[:, known]
                expected[np.ix_(t, np.flatnonzero(gone))] += error @ gain.T
                rest[np.ix_(gone, gone)] -= gain @ noise[np.ix_(known, gone)]
                weight[gone] = gain @ weight[known]
            parts.append((weight, v, len(t) * rest))
            sum_v = sum_v - v
    parts.append((-c, sum_v, np.zeros(noise.shape)))
    out = Regression.of_means(base, expected, z)
    for weight, v, rest in parts:
        out.ee = out.ee + weight @ v @ weight.T + rest
        out.ez[:, :n] += weight @ v
        out.zz[:n, :n] += v
    return out


# ---------------------------------------------------------------------- the first state


def noise_covariance(transition: Array, noise: Array) -> Array:
    """Covariance of a state that begins at a fixed value, after as many steps as it has dimensions.

    Whatever the noise ever moves is moved within these steps. As the covariance of the first state
    it therefore makes no output more certain than later ones are, and it follows the unit of the
    state: the log-likelihood cannot be raised without limit by a change of unit.

    >>> noise_covariance(np.array([[0.0, 1.0], [0.0, 0.0]]), np.diag([0.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    return _noise_covariances(transition, noise)[-1]


def _noise_covariances(transition: Array, noise: Array) -> list[Array]:
    out = [np.asarray(noise)]
    while len(out) < len(noise):
        out.append(transition @ out[-1] @ transition.T + noise)
    return out


def _noise_steps(model: StateSpace, second: Array, count: int) -> Regression:
    """The steps from a fixed value to `count` first states, given the sum of the second moments of
    what they end with; of these steps the offset is no part.
    """
    a, q, n = model.transition, model.state_noise, model.n_states
    prior = _noise_covariances(a, q)
    out = Regression.zero(n, n + model.n_inputs + 1)
    out.base, out.ez = _present(model, "state_noise"), np.zeros_like(out.base)
    out.count, out.spread = float(count * n), np.zeros(n)
    for j in range(n - 1, 0, -1):
        gain = np.linalg.solve(prior[j], a @ prior[j - 1]).T
        kept = np.eye(n) - gain @ a
        free = kept @ prior[j - 1] @ kept.T + gain @ q @ gain.T
        before, pair = count * free + gain @ second @ gain.T, gain @ second
        _add_step(out, a, second, before, pair)
        second = before
    out.ee = out.ee + second
    return out


def flat_height(model: StateSpace) -> float:
    """Log-density of a flat prior that follows the unit of the state: that of `noise_covariance` at
    its mean.
    """
    covariance = noise_covariance(model.transition, model.state_noise)
    return -0.5 * float(np.linalg.slogdet(2 * np.pi * covariance)[1])


# ---------------------------------------------------------------------- constraints


@dataclass(frozen=True)
class StateConstraints:
    """What may be learnt.

    Parameters
    ----------
    fixed : names of parameters that stay as they are
    patterns : by name of a coefficient (transition, output, offsets, inputs) a table of its shape:
        entries with the same label share one learnt value; numbers are fixed
    state_noise, output_noise : full, diagonal or isotropic
    first : what is learnt of the first state. "fixed": nothing; "mean": its mean; "noise": its
        mean, while its covariance is `noise_covariance`; "free": its mean and covariance. A flat
        prior has neither; with "noise" it follows the unit of the state

    >>> StateConstraints(patterns={"transition": [["a", 0.0], [0.0, "a"]]}).check(2, 1)
    """

    fixed: frozenset[str] = frozenset()
    patterns: Mapping[str, Any] | None = None
    state_noise: str = "full"
    output_noise: str = "diagonal"
    first: FirstState = "mean"

    def check(self, n: int, m: int, k: int = 0) -> None:
        """Refuse names and shapes that are not those of the model."""
        for name in [*self.fixed, *(self.patterns or {})]:
            if name not in NAMES:
                raise MethodError(f"there is no parameter '{name}'; {suggestion(name, NAMES)}")
        shapes = {
            "transition": (n, n), "output": (m, n), "state_input": (n, k), "output_input": (m, k),
            "state_offset": (n,), "output_offset": (m,),
        }  # fmt: skip
        for name, pattern in (self.patterns or {}).items():
            if name not in shapes:
                raise MethodError(f"{name} takes no pattern; patterns: {', '.join(shapes)}")
            found = np.array(pattern, dtype=object).shape
            if found != shapes[name]:
                raise MethodError(f"the pattern of {name} has shape {found}, not {shapes[name]}")

    def free(self, model: StateSpace, names: tuple[str, ...]) -> tuple[Ints, Array]:
        """Of the coefficients of one equation side by side: the number of the free parameter of
        each entry (-1: fixed), and the present values, with fixed numbers of patterns put in.
        """
        numbers, values, count = [], [], 0
        held = set(self.fixed) | self.held(model)
        for name in names:
            value = np.array(getattr(model, name))
            table = value if value.ndim > 1 else value[:, None]
            if name in held:
                number, table = np.full(table.shape, -1), table
            elif name in (self.patterns or {}):
                number, table, count = self._pattern(name, table, count)
            else:
                number = np.arange(count, count + table.size).reshape(table.shape)
                count += table.size
            numbers.append(number)
            values.append(table)
        return np.hstack(numbers), np.hstack(values)

    def _pattern(self, name: str, table: Array, count: int) -> tuple[Ints, Array, int]:
        words: dict[str, int] = {}
        pattern = np.array((self.patterns or {})[name], dtype=object).reshape(table.shape)
        number, out = np.full(table.shape, -1), table.copy()
        for index, entry in np.ndenumerate(pattern):
            if isinstance(entry, str):
                number[index] = words.setdefault(entry, count + len(words))
            else:
                out[index] = float(entry)
        return number, out, count + len(words)

    @staticmethod
    def held(model: StateSpace) -> set[str]:
        """Parameters of equations with a part that varies in time, which are not learnt."""
        return {
            name
            for noise, names in NOISES.items()
            if _varies(model, noise)
            for name in (noise, *names)
        }

    def learns(self, model: StateSpace, name: str) -> bool:
        """Whether the mean or the covariance of the first state is a free parameter."""
        kinds = ("mean", "noise", "free") if name == "initial_mean" else ("free",)
        return self.first in kinds and name not in self.fixed and not model.is_flat

    def pins_unit(self, model: StateSpace) -> bool:
        """Whether fixed numbers determine the unit of the state: those of the state noise, or a
        coefficient of each output.
        """
        if {"state_noise", "output"} & (set(self.fixed) | self.held(model)):
            return True
        pattern = (self.patterns or {}).get("output", [["free"]])
        return all(any(not isinstance(v, str) and float(v) != 0.0 for v in row) for row in pattern)


# ---------------------------------------------------------------------- maximisation


def maximise(
    model: StateSpace, statistics: StateStatistics, constraints: StateConstraints
) -> StateSpace:
    """The model of greatest expected log-likelihood within the constraints."""
    changes: dict[str, Any] = {}
    second, count = statistics.first_scatter, statistics.sequences
    if constraints.learns(model, "initial_mean"):
        error = statistics.first_error / count
        changes["initial_mean"] = model.initial_mean + error
        second = second - count * np.outer(error, error)
    if constraints.learns(model, "initial_covariance"):
        changes["initial_covariance"] = second / count
    held = constraints.held(model)
    for noise, names in NOISES.items():
        if noise in held:
            continue
        regression = statistics.state if noise == "state_noise" else statistics.output
        floor = regression.floor
        if constraints.first == "noise" and noise == "state_noise":
            regression = with_noise_steps(model, regression, second, count)
        if not regression.count:
            continue
        number, values = constraints.free(model, names)
        w = _coefficients(regression, number, values, getattr(model, noise))
        changes |= split_coefficients(model, names, w)
        if noise not in constraints.fixed:
            scatter = regression.scatter(w) / regression.count
            changes[noise] = structured(scatter, getattr(constraints, noise), floor)
    return with_tied_start(model.updated(**changes), constraints)


def with_noise_steps(
    model: StateSpace, regression: Regression, second: Array, count: int
) -> Regression:
    """The regression of the states with the steps that lead to the first ones."""
    out = _noise_steps(model, np.zeros_like(second) if model.is_flat else second, count)
    out += regression
    return out


def with_tied_start(model: StateSpace, constraints: StateConstraints) -> StateSpace:
    """The model with the covariance of the first state that follows from the others."""
    if constraints.first != "noise" or model.is_flat:
        return model
    return model.updated(initial_covariance=noise_covariance(model.transition, model.state_noise))


def split_coefficients(model: StateSpace, names: tuple[str, ...], w: Array) -> dict[str, Array]:
    """Coefficients side by side as parameters by name."""
    n, k = model.n_states, model.n_inputs
    return dict(zip(names, (w[:, :n], w[:, n : n + k], w[:, n + k]), strict=True))


def _coefficients(s: Regression, number: Ints, values: Array, noise: Array) -> Array:
    """The coefficients that minimise the weighted scatter, with fixed and tied entries."""
    return np.where(number >= 0, s.base + _change(s, number, values - s.base, noise), values)


def _change(s: Regression, number: Ints, values: Array, noise: Array) -> Array:
    """By how much they differ from the base; `values` are the changes of fixed entries."""
    free = number >= 0
    w = values.copy()
    distinct = len(np.unique(number[free])) == int(free.sum())
    if not free.any():
        return w
    if distinct and (free == free[0]).all():  # whole columns: the noise does not matter
        some = free[0]
        target = s.ez[:, some] - values[:, ~some] @ s.zz[np.ix_(~some, some)]
        w[:, some] = np.linalg.solve(_ridged(s.zz[np.ix_(some, some)]), target.T).T
        return w
    rows, columns = np.nonzero(free)
    design = np.zeros((len(rows), int(number.max()) + 1))
    design[np.arange(len(rows)), number[free]] = 1.0
    design = design[:, design.any(axis=0)]
    weight = np.linalg.inv(noise)
    fixed = np.where(free, 0.0, values)
    gram = weight[np.ix_(rows, rows)] * s.zz[np.ix_(columns, columns)]
    target = (weight @ (s.ez - fixed @ s.zz))[rows, columns]
    theta = np.linalg.solve(_ridged(design.T @ gram @ design), design.T @ target)
    w[rows, columns] = design @ theta
    return w


def _ridged(gram: Array) -> Array:
    """The matrix, with a trace of a ridge where it is singular."""
    values = np.linalg.eigvalsh(gram)
    if values[0] > _RIDGE * values[-1]:
        return gram
    return np.asarray(gram + _RIDGE * max(values[-1], 1e-300) * np.eye(len(gram)))


# ---------------------------------------------------------------------- the beginning


def first_guess(
    sequences: Sequences, inputs: list[Array], n: int, rng: np.random.Generator
) -> StateSpace:
    """Parameters by canonical correlations of the past and the future of each step, whose leading
    directions are the states, and by regressions between states and outputs; missing outputs are
    interpolated.
    """
    m, k = sequences.width, inputs[0].shape[1]
    mean = np.nanmean(sequences.stacked(), axis=0)
    tables = [_filled(t) - mean for t in sequences.tables]
    lags = _lags(tables, n)
    windows = [_windows(t, lags) for t in tables]
    project = _predictors(tables, windows, lags, n)
    states = [w @ project for w in windows]
    lacking = n - project.shape[1]
    if lacking:  # fewer directions than states: the rest begins as noise
        states = [np.hstack([s, 0.1 * rng.normal(size=(len(s), lacking))]) for s in states]
    x = np.concatenate([s[:-1] for s in states])
    after = np.concatenate([s[1:] for s in states])
    y = np.concatenate([t[lags:] for t in tables])
    a, q, c = 0.5 * np.eye(n), np.eye(n), np.zeros((m, n))
    if len(x) > n:
        a = np.linalg.lstsq(x, after, rcond=None)[0].T
        a = a / max(float(np.abs(np.linalg.eigvals(a)).max()) / _STABLE, 1.0)
        q = np.cov((after - x @ a.T).T).reshape(n, n)
        q = q + 1e-3 * np.diag(np.maximum(x.var(axis=0), 1e-12))
        c = np.linalg.lstsq(x, y, rcond=None)[0].T
    spread = np.maximum(np.concatenate(tables).var(axis=0), 1e-12)
    r = np.maximum(0.5 * (y - x @ c.T).var(axis=0) if len(y) else spread, 1e-6 * spread)
    return StateSpace(
        a, c, q, np.diag(r), output_offset=mean, state_input=np.zeros((n, k)),
        output_input=np.zeros((m, k)), initial_covariance=np.eye(n),
    )  # fmt: skip


def _lags(tables: list[Array], n: int) -> int:
    """How many rows make the past of a step: enough for the states, few beside the rows."""
    rows, m = sum(map(len, tables)), int(tables[0].shape[1])
    enough = max(_LAGS, -(-2 * n // m))
    return max(1, min(enough, rows // (4 * m), max(map(len, tables)) // 4))


def _windows(y: Array, lags: int) -> Array:
    """The `lags` rows before each step, the latest first, from step `lags` to the one after the
    last.
    """
    if len(y) < lags:
        return np.zeros((0, lags * y.shape[1]))
    return np.hstack([y[lags - 1 - k : len(y) - k] for k in range(lags)])


def _predictors(tables: list[Array], windows: list[Array], lags: int, n: int) -> Array:
    """Combinations (lags x outputs, at most n) of the past that are most correlated with the next
    `lags` rows, in units in which their variance is their correlation.
    """
    past = np.concatenate([w[: max(len(t) - 2 * lags + 1, 0)] for w, t in
                           zip(windows, tables, strict=True)])  # fmt: skip
    future = np.concatenate([_windows(t[lags:], lags) for t in tables])
    rows = max(len(past), 1)
    whiten_past, whiten_future = (
        _inverse_root(past.T @ past / rows),
        _inverse_root(future.T @ future / rows),
    )
    _, sizes, axes = np.linalg.svd(whiten_future @ (future.T @ past / rows) @ whiten_past)
    keep = min(n, len(sizes))
    return np.asarray(whiten_past @ (axes[:keep] * np.sqrt(sizes[:keep])[:, None]).T)


def _inverse_root(covariance: Array) -> Array:
    """The symmetric inverse square root, with small eigenvalues raised."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, max(1e-6 * values[-1], 1e-300))
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)


def _filled(y: Array) -> Array:
    out = y.copy()
    for j in range(y.shape[1]):
        known = np.flatnonzero(~np.isnan(y[:, j]))
        out[:, j] = np.interp(np.arange(len(y)), known, y[known, j]) if len(known) else 0.0
    return out
