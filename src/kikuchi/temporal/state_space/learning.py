"""Learning a `StateSpace`: expected statistics, constrained maximisation, and the gradient.

Both equations of the model are regressions with noise: x_t on (x_t-1, u_t, 1) and y_t on
(x_t, u_t, 1). A statistic is a sum of expected products; everything that is learnt, and the
gradient of the log-likelihood as well (Fisher's identity), is read from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.errors import MethodError, suggestion
from kikuchi.temporal.covariances import (
    covariance_slope,
    pack_covariance,
    packed_length,
    structured,
    unpack_covariance,
)
from kikuchi.temporal.sequences import Sequences
from kikuchi.temporal.state_space.inference import output_means, smooth_states
from kikuchi.temporal.state_space.parameters import StateSpace
from kikuchi.temporal.state_space.results import SmoothedStates

STATE = ("transition", "state_input", "state_offset")
OUTPUT = ("output", "output_input", "output_offset")
NOISES = {"state_noise": STATE, "output_noise": OUTPUT}
NAMES = (*STATE, *OUTPUT, *NOISES, "initial_mean", "initial_covariance")
_RIDGE = 1e-12  # of the largest eigenvalue, where regressors are collinear
_FLOOR = 1e-10  # of noise variances, relative to the variance of what they explain


@dataclass
class Regression:
    """Sums of expected products: target with target, target with regressors, regressors."""

    yy: Array
    yz: Array
    zz: Array
    count: float

    @classmethod
    def zero(cls, targets: int, regressors: int) -> Regression:
        """Sums over nothing."""
        shape = (targets, regressors)
        return cls(np.zeros((targets,) * 2), np.zeros(shape), np.zeros((regressors,) * 2), 0.0)

    def __iadd__(self, other: Regression) -> Regression:
        self.yy, self.yz = self.yy + other.yy, self.yz + other.yz
        self.zz, self.count = self.zz + other.zz, self.count + other.count
        return self

    def scatter(self, w: Array) -> Array:
        """Expected sum of squares of target - w regressors."""
        cross = w @ self.yz.T
        out = self.yy - cross - cross.T + w @ self.zz @ w.T
        return np.asarray(0.5 * (out + out.T))


@dataclass
class StateStatistics:
    """What learning needs: both regressions, and moments of the first states."""

    state: Regression
    output: Regression
    first_mean: Array
    first_second: Array
    sequences: int


def expected_statistics(
    model: StateSpace, sequences: Sequences, inputs: list[Array], form: Any = "auto"
) -> tuple[float, StateStatistics]:
    """Log-likelihood of all sequences, and expected sums of products."""
    n, m = model.n_states, model.n_outputs
    z = n + model.n_inputs + 1
    total = StateStatistics(
        Regression.zero(n, z), Regression.zero(m, z), np.zeros(n), np.zeros((n, n)), len(inputs)
    )
    log_likelihood = 0.0
    for y, u in zip(sequences.tables, inputs, strict=True):
        s = smooth_states(model, y, u, form=form)
        log_likelihood += s.log_likelihood
        sum_v, sum_pair, first, last = s.covariance_sums()
        total.first_mean += s.mean[0]
        total.first_second += first + np.outer(s.mean[0], s.mean[0])
        total.state += state_regression(s, u, sum_v - first, sum_v - last, sum_pair)
        total.output += _output_regression(model, s, y, u, sum_v)
    return log_likelihood, total


def state_regression(
    s: SmoothedStates, u: Array, now: Array, before: Array, pair: Array
) -> Regression:
    """Sums of products of states with those before them: covariances of all but the first step,
    of all but the last, and of neighbours are given as sums.
    """
    n = s.mean.shape[1]
    z = np.column_stack([s.mean[:-1], u[1:], np.ones(len(s.mean) - 1)])
    x = s.mean[1:]
    out = Regression(x.T @ x + now, x.T @ z, z.T @ z, float(len(x)))
    out.zz[:n, :n] += before
    out.yz[:, :n] += pair.T
    return out


def _output_regression(
    model: StateSpace, s: SmoothedStates, y: Array, u: Array, sum_v: Array
) -> Regression:
    """Missing outputs are expected given the state and the outputs beside them."""
    n = s.mean.shape[1]
    z = np.column_stack([s.mean, u, np.ones(len(y))])
    missing = np.isnan(y)
    expected = y
    yy_more, yz_more = np.zeros((y.shape[1],) * 2), np.zeros((y.shape[1], n))
    if missing.any():
        expected = y.copy()
        offsets = np.broadcast_to(output_means(model, u, len(y)), y.shape)
        for t, gone, weight, noise in _gaps(model, missing):
            known = ~gone
            base = offsets[t][:, gone]
            if known.any():
                gain = np.linalg.solve(noise[np.ix_(known, known)], noise[np.ix_(known, gone)]).T
                base = base + (y[t][:, known] - offsets[t][:, known]) @ gain.T
                rest = noise[np.ix_(gone, gone)] - gain @ noise[np.ix_(known, gone)]
                slope = weight[gone] - gain @ weight[known]
            else:
                rest, slope = noise[np.ix_(gone, gone)], weight[gone]
            rows = np.ix_(t, np.flatnonzero(gone))
            expected[rows] = s.mean[t] @ slope.T + base
            v = s.covariance[t].sum(axis=0)
            yy_more[np.ix_(gone, gone)] += slope @ v @ slope.T + len(t) * rest
            yz_more[gone] += slope @ v
    out = Regression(expected.T @ expected + yy_more, expected.T @ z, z.T @ z, float(len(y)))
    out.zz[:n, :n] += sum_v
    out.yz[:, :n] += yz_more
    return out


def _gaps(model: StateSpace, missing: Mask) -> list[tuple[Ints, Mask, Array, Array]]:
    """Steps with the same missing outputs and parameters: (steps, which, C, R)."""
    varying = {"output", "output_noise"} & set(model.varying)
    if varying:
        c = np.broadcast_to(model.output, (len(missing), *model.output.shape[-2:]))
        r = np.broadcast_to(model.output_noise, (len(missing), *model.output_noise.shape[-2:]))
        steps = np.flatnonzero(missing.any(axis=1)).tolist()
        return [(np.array([t]), missing[t], c[t], r[t]) for t in steps]
    patterns, which = np.unique(missing, axis=0, return_inverse=True)
    return [
        (np.flatnonzero(which.reshape(-1) == k), gone, model.output, model.output_noise)
        for k, gone in enumerate(patterns)
        if gone.any()
    ]


# ---------------------------------------------------------------------- constraints


@dataclass(frozen=True)
class StateConstraints:
    """What may be learnt.

    Parameters
    ----------
    fixed : names of parameters that stay as they are
    patterns : by name of a coefficient (transition, output, offsets, inputs) a table of its shape:
        numbers stay, equal texts are one tied number that is learnt
    state_noise, output_noise : full, diagonal or isotropic

    >>> StateConstraints(patterns={"transition": [["a", 0.0], [0.0, "a"]]}).check(2, 1)
    """

    fixed: frozenset[str] = frozenset()
    patterns: Mapping[str, Any] | None = None
    state_noise: str = "full"
    output_noise: str = "diagonal"

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
        out: set[str] = set()
        for noise, names in NOISES.items():
            if {noise, *names} & set(model.varying):
                out |= {noise, *names}
        return out


# ---------------------------------------------------------------------- maximisation


def maximise(
    model: StateSpace,
    statistics: StateStatistics,
    constraints: StateConstraints,
    *,
    first: bool = True,
) -> StateSpace:
    """The model of greatest expected log-likelihood within the constraints.

    `first` also learns the mean of the first state, and its covariance from two sequences on.
    """
    changes: dict[str, Any] = {}
    held = constraints.held(model)
    for noise, names in NOISES.items():
        if noise in held:
            continue
        regression = statistics.state if noise == "state_noise" else statistics.output
        if not regression.count:
            continue
        number, values = constraints.free(model, names)
        w = _coefficients(regression, number, values, getattr(model, noise))
        changes |= split_coefficients(model, names, w)
        if noise not in constraints.fixed:
            structure = getattr(constraints, noise)
            scatter = regression.scatter(w) / regression.count
            floor = _FLOOR * np.diagonal(regression.yy) / regression.count
            changes[noise] = structured(scatter, structure, floor)
    if first and not model.is_flat:
        mean = statistics.first_mean / statistics.sequences
        if "initial_mean" not in constraints.fixed:
            changes["initial_mean"] = mean
        if statistics.sequences > 1 and "initial_covariance" not in constraints.fixed:
            second = statistics.first_second / statistics.sequences
            at = changes.get("initial_mean", model.initial_mean)
            cross = np.outer(at, mean)
            changes["initial_covariance"] = second - cross - cross.T + np.outer(at, at)
    return model.updated(**changes)


def split_coefficients(model: StateSpace, names: tuple[str, ...], w: Array) -> dict[str, Array]:
    """Coefficients side by side as parameters by name."""
    n, k = model.n_states, model.n_inputs
    return dict(zip(names, (w[:, :n], w[:, n : n + k], w[:, n + k]), strict=True))


def _coefficients(s: Regression, number: Ints, values: Array, noise: Array) -> Array:
    """The coefficients that minimise the weighted scatter, with fixed and tied entries."""
    free = number >= 0
    w = values.copy()
    distinct = len(np.unique(number[free])) == int(free.sum())
    if not free.any():
        return w
    if distinct and (free == free[0]).all():  # whole columns: the noise does not matter
        some = free[0]
        target = s.yz[:, some] - values[:, ~some] @ s.zz[np.ix_(~some, some)]
        w[:, some] = np.linalg.solve(_ridged(s.zz[np.ix_(some, some)]), target.T).T
        return w
    rows, columns = np.nonzero(free)
    design = np.zeros((len(rows), int(number.max()) + 1))
    design[np.arange(len(rows)), number[free]] = 1.0
    design = design[:, design.any(axis=0)]
    weight = np.linalg.inv(noise)
    fixed = np.where(free, 0.0, values)
    gram = weight[np.ix_(rows, rows)] * s.zz[np.ix_(columns, columns)]
    target = (weight @ (s.yz - fixed @ s.zz))[rows, columns]
    theta = np.linalg.solve(_ridged(design.T @ gram @ design), design.T @ target)
    w[rows, columns] = design @ theta
    return w


def _ridged(gram: Array) -> Array:
    """The matrix, with a trace of a ridge where it is singular."""
    values = np.linalg.eigvalsh(gram)
    if values[0] > _RIDGE * values[-1]:
        return gram
    return np.asarray(gram + _RIDGE * max(values[-1], 1e-300) * np.eye(len(gram)))


# ---------------------------------------------------------------------- gradient


def pack(model: StateSpace, constraints: StateConstraints, *, first: bool = True) -> Array:
    """Free parameters as one unconstrained vector: coefficients, logarithms and factors."""
    parts = []
    for noise, names in NOISES.items():
        number, values = constraints.free(model, names)
        count = int(number.max(initial=-1)) + 1
        theta = np.zeros(count)
        theta[number[number >= 0]] = values[number >= 0]
        parts.append(theta)
        if noise not in constraints.fixed | constraints.held(model):
            parts.append(pack_covariance(getattr(model, noise), getattr(constraints, noise)))
    if first and not model.is_flat and "initial_mean" not in constraints.fixed:
        parts.append(np.asarray(model.initial_mean))
    return np.concatenate(parts)


def unpack(
    model: StateSpace, vector: Array, constraints: StateConstraints, *, first: bool = True
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
            size = len(getattr(model, noise))
            length = packed_length(size, getattr(constraints, noise))
            changes[noise] = unpack_covariance(vector[at : at + length], size,
                                           getattr(constraints, noise))  # fmt: skip
            at += length
    if first and not model.is_flat and "initial_mean" not in constraints.fixed:
        changes["initial_mean"] = vector[at:]
    return model.updated(**changes)


def gradient(
    model: StateSpace,
    statistics: StateStatistics,
    constraints: StateConstraints,
    *,
    first: bool = True,
) -> Array:
    """Gradient of the log-likelihood along `pack`: that of the expected log-likelihood."""
    parts = []
    for noise, names in NOISES.items():
        regression = statistics.state if noise == "state_noise" else statistics.output
        number, values = constraints.free(model, names)
        theta = np.zeros(int(number.max(initial=-1)) + 1)
        if noise in constraints.held(model):
            continue
        covariance = getattr(model, noise)
        slope = np.linalg.solve(covariance, regression.yz - values @ regression.zz)
        np.add.at(theta, number[number >= 0], slope[number >= 0])
        parts.append(theta)
        if noise not in constraints.fixed:
            scatter, structure = regression.scatter(values), getattr(constraints, noise)
            parts.append(covariance_slope(scatter, regression.count, covariance, structure))
    if first and not model.is_flat and "initial_mean" not in constraints.fixed:
        error = statistics.first_mean - statistics.sequences * model.initial_mean
        parts.append(np.linalg.solve(model.initial_covariance, error))
    return np.concatenate(parts)


# ---------------------------------------------------------------------- the beginning


def first_guess(
    sequences: Sequences, inputs: list[Array], n: int, rng: np.random.Generator
) -> StateSpace:
    """Parameters by principal components of outputs side by side with their past (as many lags as
    the states need), and regressions between them; missing outputs are interpolated.
    """
    tables = [_filled(t) for t in sequences.tables]
    m = sequences.width
    mean = np.concatenate(tables).mean(axis=0)
    lags = -(-2 * n // m)
    lags = max(1, min(lags, max(len(t) for t in tables) // 2))
    windows = [_windows(t - mean, lags) for t in tables if len(t) >= lags]
    stacked = np.concatenate(windows)
    _, sizes, axes = np.linalg.svd(stacked, full_matrices=False)
    keep = min(n, len(sizes))
    scale = np.maximum(sizes[:keep], 1e-8 * sizes[0] + 1e-300) / np.sqrt(len(stacked))
    project = (axes[:keep] / scale[:, None]).T
    states = [w @ project for w in windows]
    if keep < n:  # fewer directions than states: the rest begins as noise
        states = [np.hstack([s, 0.1 * rng.normal(size=(len(s), n - keep))]) for s in states]
    past = np.concatenate([s[:-1] for s in states]) if len(stacked) > len(states) else stacked[:0]
    a = 0.5 * np.eye(n)
    q = np.eye(n)
    if len(past) > n:
        now = np.concatenate([s[1:] for s in states])
        a = np.linalg.lstsq(past, now, rcond=None)[0].T
        radius = float(np.abs(np.linalg.eigvals(a)).max())
        a = a / max(radius / 0.98, 1.0)
        q = np.cov((now - past @ a.T).T).reshape(n, n) + 1e-3 * np.eye(n)
    x = np.concatenate(states)
    y = np.concatenate([t[lags - 1 :] for t in tables if len(t) >= lags]) - mean
    c = np.linalg.lstsq(x, y, rcond=None)[0].T
    spread = np.maximum(np.concatenate(tables).var(axis=0), 1e-12)
    r = np.maximum((y - x @ c.T).var(axis=0), 0.05 * spread)
    k = inputs[0].shape[1]
    return StateSpace(
        a, c, q, np.diag(r), output_offset=mean, state_input=np.zeros((n, k)),
        output_input=np.zeros((m, k)), initial_covariance=np.eye(n),
    )  # fmt: skip


def _windows(y: Array, lags: int) -> Array:
    """Each row with the rows before it."""
    return np.hstack([y[lags - 1 - k : len(y) - k] for k in range(lags)])


def _filled(y: Array) -> Array:
    out = y.copy()
    for j in range(y.shape[1]):
        known = np.flatnonzero(~np.isnan(y[:, j]))
        out[:, j] = np.interp(np.arange(len(y)), known, y[known, j]) if len(known) else 0.0
    return out
