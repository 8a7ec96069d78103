"""Several hidden chains that share their outputs: structured mean field and emissions.

Mean field keeps every chain whole: its posterior is exact given the expected log-likelihoods over
the other chains, one forward-backward per chain and lag, and the bound on the log-likelihood rises
with every update. Where the product of all chains fits, `exact.py` has the exact answer as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import entr

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import BudgetError, DataError, ModelError
from kikuchi.temporal.chains.emissions import CategoryTable, category_codes
from kikuchi.temporal.chains.inference import check_chain, sample_chain
from kikuchi.temporal.covariances import (
    covariance_slope,
    pack_covariance,
    packed_length,
    structured,
    unpack_covariance,
)
from kikuchi.temporal.gaussian import is_positive
from kikuchi.temporal.kernels import chains as kernels
from kikuchi.training.checkpoint import Arrays, check_sizes

COUPLED = 0.025
"""Coupling of a frame, in nats per state of a chain, above which mean field is said to be too sure.

Chosen on thirty random models of 2 to 8 states per chain: all whose mean error of a probability
exceeded 0.02 lie above it, and the errors of those below it were at most 0.01.
"""

_MOST_START = 100_000  # combinations of states that the start of mean field looks at
_LEAST = 1e-300


@dataclass(frozen=True, eq=False)
class AdditiveGaussian:
    """y_t ~ N(sum over chains of the output of the chain's state, covariance).

    `outputs` (all states of all chains below each other, d), `covariance` (d, d).

    `structure` of the covariance is "full", "diagonal" or "isotropic".
    """

    kind: ClassVar[str] = "gaussian"
    outputs: Array
    covariance: Array
    structure: str = "full"

    def __post_init__(self) -> None:
        if not is_positive(np.asarray(self.covariance)):
            raise ModelError("the covariance of the outputs is not positive definite")

    @property
    def n_columns(self) -> int:
        """Dimensions of a row."""
        return int(self.outputs.shape[1])

    def table(self, rows: Array, sizes: tuple[int, ...]) -> Array:
        """Log-likelihood of `rows` in each combination of states, (T, K_1, ..., K_C) by `sizes`."""
        check_complete(rows)
        sums = np.zeros((*[1] * len(sizes), self.n_columns))
        first = 0
        for c, k in enumerate(sizes):
            shape = [1] * len(sizes) + [self.n_columns]
            shape[c] = k
            sums = sums + self.outputs[first : first + k].reshape(shape)
            first += k
        means = sums.reshape(-1, self.n_columns)
        factor = np.linalg.cholesky(self.covariance)
        white = np.ascontiguousarray(np.linalg.inv(factor))[None]
        norm = -np.log(np.diagonal(factor)).sum() - 0.5 * self.n_columns * math.log(2 * math.pi)
        out = np.empty((len(rows), len(means)))
        every = np.repeat(white, len(means), axis=0)
        kernels.gaussian_log_densities(rows, means, every, np.full(len(means), norm), out)
        return out.reshape(len(rows), *sizes)

    def statistics(self, rows: Array, beliefs: Array, sizes: tuple[int, ...]) -> tuple[Array, ...]:
        """Sums of e e', e s' and s s' of the errors e of the present outputs for `rows` and of
        indicators s of all states of all chains, with probabilities `beliefs` (T, sum of `sizes`).
        """
        e = rows - beliefs @ self.outputs
        products = beliefs.T @ beliefs
        spread, away, first = np.zeros_like(products), self.outputs.copy(), 0
        for k in sizes:
            block = slice(first, first + k)
            full = np.diag(beliefs[:, block].sum(axis=0))
            spread[block, block] = full - products[block, block]
            products[block, block] = full
            away[block] -= away[block].mean(axis=0)  # a constant has no spread
            first += k
        moved = away.T @ spread
        return e.T @ e + moved @ away, e.T @ beliefs - moved, products, np.array(float(len(rows)))

    def maximised(self, statistics: tuple[Array, ...], floor: Array) -> AdditiveGaussian:
        """Outputs of least squares and least norm from `statistics`; variances above `floor`."""
        ee, es, ss, count = statistics
        inverse = np.linalg.pinv(ss, hermitian=True)
        change = es @ inverse
        cross = change @ es.T
        scatter = (ee - cross - cross.T + change @ ss @ change.T) / count
        covariance = structured(scatter, self.structure, floor)
        outputs = inverse @ (ss @ (self.outputs + change.T))
        return AdditiveGaussian(np.ascontiguousarray(outputs), covariance, self.structure)

    def sample(self, states: list[Ints], sizes: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Rows of these `states`, one array per chain of `sizes` states, by the generator `rng`."""
        starts = np.cumsum((0, *sizes))[:-1]
        sums = sum(self.outputs[s + f] for s, f in zip(states, starts, strict=True))
        noise = rng.normal(size=(len(states[0]), self.n_columns))
        return np.asarray(sums + noise @ np.linalg.cholesky(self.covariance).T)

    def to_arrays(self) -> Arrays:
        """Outputs and covariance."""
        return {"outputs": self.outputs, "covariance": self.covariance}

    def pack(self) -> Array:
        """Outputs, then the packed covariance."""
        return np.concatenate(
            [self.outputs.ravel(), pack_covariance(self.covariance, self.structure)]
        )

    def unpack(self, vector: Array) -> AdditiveGaussian:
        """The outputs of a `vector` that `pack` made."""
        d, size = self.n_columns, self.outputs.size
        length = packed_length(d, self.structure)
        covariance = unpack_covariance(vector[size : size + length], d, self.structure)
        return AdditiveGaussian(vector[:size].reshape(-1, d), covariance, self.structure)

    def gradient(self, statistics: tuple[Array, ...]) -> Array:
        """Slope of the expected log-density along `pack`, from `statistics`."""
        ee, es, _, count = statistics
        slope = np.linalg.solve(self.covariance, es).T
        return np.concatenate(
            [slope.ravel(), covariance_slope(ee, float(count), self.covariance, self.structure)]
        )


class EmissionTable(CategoryTable):
    """One column of categories: `probabilities` (K_1, ..., K_C, categories)."""

    def table(self, rows: Array, sizes: tuple[int, ...]) -> Array:
        """Log-likelihood of `rows` in each combination of states, (T, K_1, ..., K_C) by `sizes`."""
        codes, known = category_codes(rows, self.probabilities.shape[-1])
        logs = np.moveaxis(np.log(np.maximum(self.probabilities, _LEAST)), -1, 0)[codes]
        logs[~known] = 0.0
        return np.asarray(logs)

    def statistics(self, rows: Array, beliefs: Array, sizes: tuple[int, ...]) -> tuple[Array, ...]:
        """Expected counts of combinations of states with the categories of `rows`; `beliefs` are
        the probabilities of the states of all chains, (T, sum of `sizes`).
        """
        codes, known = category_codes(rows, self.probabilities.shape[-1])
        joint = _outer(_parts(beliefs, sizes))
        counts = np.zeros((self.probabilities.shape[-1], *sizes))
        np.add.at(counts, codes[known], joint[known])
        return (np.moveaxis(counts, 0, -1),)

    def maximised(self, statistics: tuple[Array, ...], floor: Array) -> EmissionTable:
        """Relative counts of `statistics`; `floor` is not needed."""
        return self.relative(statistics)

    def sample(self, states: list[Ints], sizes: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Categories at these `states`, one array per chain of `sizes` states, by the generator
        `rng`.
        """
        return self.drawn(tuple(states), rng)


@dataclass(frozen=True, eq=False)
class HiddenChains:
    """Starts, transitions and lags of several chains, and the emission that they share.

    `starts`, `transitions` and `lags` have an entry for each chain, `emission` gives the outputs of
    all chains together.

    Reference: LAW-M10, HOJ-X1.
    """

    starts: tuple[Array, ...]
    transitions: tuple[Array, ...]
    lags: tuple[int, ...]
    emission: AdditiveGaussian | EmissionTable

    def __post_init__(self) -> None:
        if not len(self.starts) == len(self.transitions) == len(self.lags) > 0:
            raise ModelError("give one start, one transition and one lag per chain")
        pairs = [
            check_chain(s, p, f" of chain {c}")
            for c, (s, p) in enumerate(zip(self.starts, self.transitions, strict=True))
        ]
        if any(lag < 1 for lag in self.lags):
            raise ModelError(f"lags are at least 1, got {list(self.lags)}")
        object.__setattr__(self, "starts", tuple(s for s, _ in pairs))
        object.__setattr__(self, "transitions", tuple(p for _, p in pairs))
        object.__setattr__(self, "lags", tuple(int(lag) for lag in self.lags))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of states of each chain."""
        return tuple(len(s) for s in self.starts)

    @cached_property
    def sums(self) -> _AdditiveSums:
        """What the loops of additive Gaussian outputs need, made once per model."""
        return _sums(self)

    def to_arrays(self) -> Arrays:
        """Everything by name."""
        arrays: Arrays = {"lags": np.array(self.lags), **self.emission.to_arrays()}
        for c, (start, transition) in enumerate(zip(self.starts, self.transitions, strict=True)):
            arrays |= {f"start{c}": start, f"transition{c}": transition}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, structure: str) -> HiddenChains:
        """The inverse of `to_arrays`, with the `structure` of a covariance; `arrays` by name."""
        count = len(arrays["lags"])
        if "outputs" in arrays:
            states = sum(len(arrays[f"start{c}"]) for c in range(count))
            layout = {"outputs": "states columns", "covariance": "columns columns"}
            check_sizes(arrays, layout, states=states)
        emission: AdditiveGaussian | EmissionTable
        if "outputs" in arrays:
            outputs, covariance = (np.array(arrays[n]) for n in ("outputs", "covariance"))
            emission = AdditiveGaussian(outputs, covariance, structure)
        else:
            emission = EmissionTable(np.array(arrays["probabilities"]))
        return cls(
            tuple(np.array(arrays[f"start{c}"]) for c in range(count)),
            tuple(np.array(arrays[f"transition{c}"]) for c in range(count)),
            tuple(int(lag) for lag in arrays["lags"]),
            emission,
        )

    def sample(self, steps: int, rng: np.random.Generator) -> tuple[list[Ints], Array]:
        """States of each chain and rows of so many `steps`, by the generator `rng`."""
        states = [
            sample_chain(s, p, steps, rng, lag)
            for s, p, lag in zip(self.starts, self.transitions, self.lags, strict=True)
        ]
        return states, self.emission.sample(states, self.sizes, rng)


class ChainsPosterior(NamedTuple):
    """Probabilities of the states of each chain.

    probabilities (one (T, K_c) per chain), log_likelihood (a lower bound, unless `exact`), exact,
    converged, sweeps, transitions (expected numbers of transitions of each chain), coupling (of
    mean field: dependence of the chains given one frame, which mean field leaves out, in nats per
    frame; None where it is not known).
    """

    probabilities: list[Array]
    log_likelihood: float
    exact: bool
    converged: bool
    sweeps: int
    transitions: list[Array]
    coupling: float | None = None

    @property
    def warnings(self) -> list[str]:
        """Why the probabilities may be further from the truth than they look."""
        states = self.beliefs.shape[1] / len(self.probabilities)
        if self.coupling is None or self.coupling <= COUPLED * states:
            return []
        return [
            f"single frames leave {self.coupling:.2g} nats of dependence between chains, which "
            "mean field leaves out: its probabilities are too sure; use method='bp' or 'exact'"
        ]

    @property
    def beliefs(self) -> Array:
        """All probabilities side by side, (T, sum of K_c)."""
        return np.hstack(self.probabilities)


# ---------------------------------------------------------------------- mean field


def mean_field_chains(
    model: HiddenChains, rows: Array, *, beliefs: Array | None = None, max_iter: int = 200,
    tol: float = 1e-4,
) -> ChainsPosterior:  # fmt: skip
    """Structured mean field: chains are updated in turn until no probability changes by `tol`.

    Reference: LAW-I24, HOJ-X1.

    Parameters
    ----------
    model : the chains
    rows : outputs (T, d), without missing values for Gaussian outputs
    beliefs : probabilities to begin with (T, sum of K_c); by default those of each frame by itself
    max_iter, tol : when to stop
    """
    if isinstance(model.emission, AdditiveGaussian):
        work: Any = _GaussianFields(model, rows, beliefs)
    else:
        work = _TableFields(model, rows, beliefs)
    count, steps = len(model.sizes), len(rows)
    log_z, products = np.zeros(count), np.zeros(count)
    transitions = [np.zeros((k, k)) for k in model.sizes]
    spaces = [
        (np.empty((steps, k)), np.empty((steps, k)), np.zeros((steps, k))) for k in model.sizes
    ]
    moved = np.full(count, np.inf)  # change of fields that a chain has not answered to yet
    sweeps, converged = 0, False
    while sweeps < max_iter and not converged:
        sweeps += 1
        largest = 0.0
        for c in range(count):
            posterior, weights, fields = spaces[c]
            moved[c] += work.fields(c, fields)
            if moved[c] <= 0.5 * tol:  # no logarithm of a probability would change by more than tol
                continue
            moved[c], transitions[c][:] = 0.0, 0.0
            log_z[c], failed = kernels.forward_backward(
                model.starts[c], model.transitions[c], fields, model.lags[c], True, posterior,
                weights, transitions[c],
            )  # fmt: skip
            if failed >= 0:
                raise DataError(f"chain {c}: no state can have produced row {failed}")
            change, products[c] = work.accept(c, posterior, fields)
            largest = max(largest, change)
        converged = largest <= tol or count == 1
    bound = work.expected() + float(np.sum(log_z - products))
    return ChainsPosterior(
        [p for p, _, _ in spaces], bound, count == 1, converged, sweeps, transitions, work.coupling
    )


class _AdditiveSums(NamedTuple):
    """What the loops need to know of chains with additive Gaussian outputs.

    `outputs` are about the mean of those of each chain, and rows about the sum of these means,
    `shift`: a large constant in the data would otherwise cost digits. `projected` are outputs over
    the covariance, `halves` half their products; `constants` the parts of the log-weights of all
    combinations of states that do not depend on the row, if there are not too many combinations:
    those of the states of the last chain (rows) with the combinations of states of the others
    (columns), whose places among all states are `places`.
    """

    shift: Array
    outputs: Array
    projected: Array
    halves: Array
    inverse: Array
    log_det: float
    sizes: Ints
    constants: Array | None
    places: Ints


def _sums(model: HiddenChains) -> _AdditiveSums:
    emission = model.emission
    assert isinstance(emission, AdditiveGaussian)
    blocks = np.split(emission.outputs, np.cumsum(model.sizes)[:-1])
    centres = [block.mean(axis=0) for block in blocks]
    outputs = np.concatenate([b - c for b, c in zip(blocks, centres, strict=True)])
    projected = np.ascontiguousarray(np.linalg.solve(emission.covariance, outputs.T).T)
    halves = 0.5 * np.einsum("kd,kd->k", outputs, projected)
    constants = None
    if len(model.sizes) > 1 and math.prod(model.sizes) <= _MOST_START:
        constants = _constants(model, outputs @ projected.T, halves)
    return _AdditiveSums(
        np.sum(centres, axis=0), outputs, projected, halves,
        np.asarray(np.linalg.inv(emission.covariance)),
        float(np.linalg.slogdet(2 * np.pi * emission.covariance)[1]),
        np.array(model.sizes, dtype=np.int64), constants, _places(model.sizes[:-1]),
    )  # fmt: skip


def _places(sizes: tuple[int, ...]) -> Ints:
    """Which states each combination of states of these chains has, counted over all chains.

    >>> _places((2, 2)).tolist()
    [[0, 2], [0, 3], [1, 2], [1, 3]]
    """
    grid = np.indices(sizes).reshape(len(sizes), math.prod(sizes)).T
    return np.ascontiguousarray(grid + np.cumsum((0, *sizes))[:-1], dtype=np.int64)


def _constants(model: HiddenChains, products: Array, halves: Array) -> Array:
    shares = np.concatenate([_stationary(p) for p in model.transitions])
    single = np.log(np.maximum(shares, 1e-30)) - halves
    blocks = np.split(np.arange(len(single)), np.cumsum(model.sizes)[:-1])
    count = len(blocks)
    constants = np.zeros(model.sizes)
    for a, one in enumerate(blocks):
        constants += single[one].reshape([-1 if c == a else 1 for c in range(count)])
        for b in range(a + 1, count):
            shape = [1] * count
            shape[a], shape[b] = model.sizes[a], model.sizes[b]
            constants -= products[np.ix_(one, blocks[b])].reshape(shape)
    return np.ascontiguousarray(np.moveaxis(constants, -1, 0).reshape(model.sizes[-1], -1))


class _GaussianFields:
    """Expected log-likelihoods of additive Gaussian outputs, linear in the number of chains."""

    def __init__(self, model: HiddenChains, rows: Array, beliefs: Array | None) -> None:
        check_complete(rows)
        self.sums, rows = model.sums, rows - model.sums.shift
        self.coupling: float | None = None
        start = self._frames(model, rows) if beliefs is None else np.array(beliefs)
        self.beliefs = np.ascontiguousarray(start)
        self.own = rows - self.beliefs @ self.sums.outputs

    def _frames(self, model: HiddenChains, rows: Array) -> Array:
        """Those of each frame by itself, if there are not too many combinations."""
        if self.sums.constants is None:
            return np.tile(np.concatenate(model.starts), (len(rows), 1))
        out = np.empty((len(rows), len(self.sums.halves)))
        self.coupling = float(kernels.single_frames(
            rows @ self.sums.projected.T, self.sums.constants, self.sums.places, self.sums.sizes,
            out,
        ))  # fmt: skip
        return out

    def fields(self, chain: int, out: Array) -> float:
        """Put the fields of a chain into `out`; answers the sum over frames of their changes."""
        return float(kernels.factorial_fields(
            self.sums.outputs, self.sums.projected, self.sums.halves, chain, self.own,
            self.sums.sizes, self.beliefs, out,
        ))  # fmt: skip

    def accept(self, chain: int, posterior: Array, fields: Array) -> tuple[float, float]:
        change, product = kernels.factorial_accept(
            self.sums.outputs, chain, self.sums.sizes, posterior, self.own, self.beliefs, fields
        )
        return float(change), float(product)

    def expected(self) -> float:
        """Expected log-likelihood of all rows."""
        known = self.sums
        squares = float(((self.own @ known.inverse) * self.own).sum())
        variance, first = 2.0 * float(self.beliefs.sum(axis=0) @ known.halves), 0
        for k in known.sizes.tolist():
            part = self.beliefs[:, first : first + k] @ known.outputs[first : first + k]
            variance -= float(((part @ known.inverse) * part).sum())
            first += k
        return -0.5 * (squares + variance + len(self.own) * known.log_det)


class _TableFields:
    """Expected log-likelihoods of any emission, from the table of all combinations."""

    def __init__(self, model: HiddenChains, rows: Array, beliefs: Array | None) -> None:
        self.sizes = model.sizes
        check_product(model.sizes, _MOST_START, "the table of emissions")
        self.table = model.emission.table(rows, model.sizes)
        self.coupling: float | None = None
        start = beliefs
        if start is None:
            start, self.coupling = _frames(model, rows)
        self.parts = _parts(np.array(start), self.sizes)

    def fields(self, chain: int, out: Array) -> float:
        table = np.moveaxis(self.table, chain + 1, 1)
        others = [p for c, p in enumerate(self.parts) if c != chain]
        for part in reversed(others):
            table = np.einsum("t...k,tk->t...", table, part)
        moved = float(np.abs(table - out).max(axis=1).sum())
        out[:] = table
        return moved

    def accept(self, chain: int, posterior: Array, fields: Array) -> tuple[float, float]:
        change = float(np.abs(posterior - self.parts[chain]).max())
        self.parts[chain] = posterior.copy()
        return change, float((posterior * fields).sum())

    def expected(self) -> float:
        out = np.zeros((len(self.table), self.sizes[0]))
        self.fields(0, out)
        return float((out * self.parts[0]).sum())


def _frames(model: HiddenChains, rows: Array) -> tuple[Array, float | None]:
    """Probabilities of states from each frame by itself, with shares of states as priors, and the
    mean total correlation of the chains; those of the starts where there are too many combinations.
    """
    if math.prod(model.sizes) > _MOST_START or len(model.sizes) == 1:
        return np.tile(np.concatenate(model.starts), (len(rows), 1)), None
    shares = [_stationary(p) for p in model.transitions]
    table = model.emission.table(rows, model.sizes)
    for c, share in enumerate(shares):
        shape = [1] * table.ndim
        shape[c + 1] = -1
        table = table + np.log(np.maximum(share, 1e-30)).reshape(shape)
    table = table - table.max(axis=tuple(range(1, table.ndim)), keepdims=True)
    weights = np.exp(table)
    parts = []
    for c in range(len(model.sizes)):
        axes = tuple(a for a in range(1, table.ndim) if a != c + 1)
        part = weights.sum(axis=axes)
        parts.append(part / part.sum(axis=1, keepdims=True))
    joint = weights.reshape(len(rows), -1)
    joint = joint / joint.sum(axis=1, keepdims=True)
    beliefs = np.hstack(parts)
    return beliefs, float(entr(beliefs).sum() - entr(joint).sum()) / len(rows)


def _stationary(transition: Array) -> Array:
    """Shares of the states after many steps."""
    share = np.full(len(transition), 1.0 / len(transition))
    return np.asarray(
        share @ np.linalg.matrix_power(0.5 * (transition + np.eye(len(transition))), 64)
    )


def _parts(beliefs: Array, sizes: tuple[int, ...]) -> list[Array]:
    return [np.ascontiguousarray(p) for p in np.split(beliefs, np.cumsum(sizes)[:-1], axis=1)]


def _outer(parts: list[Array]) -> Array:
    joint = parts[0]
    for part in parts[1:]:
        joint = joint[..., None] * part.reshape(len(part), *[1] * (joint.ndim - 1), -1)
    return joint


def check_complete(rows: Array) -> None:
    """Refuse missing values."""
    if np.isnan(rows).any():
        raise DataError(
            "Y contains NaN, but chains with Gaussian outputs take no missing values; fill them in"
        )


def check_product(sizes: tuple[int, ...], most: int, what: str) -> None:
    """Refuse a product of chains that is too large."""
    total = math.prod(sizes)
    if total > most:
        raise BudgetError(
            f"{what} has {total} combinations of states, more than {most}; use mean field"
        )
