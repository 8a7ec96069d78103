"""What a hidden state emits: categories, Gaussians, mixtures of them, or given log-likelihoods.

An emission answers log-likelihoods of rows in each state, and learns from rows weighted by the
probabilities of states. Another kind, such as a flow, is one more class with the same methods.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import logsumexp

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.temporal.chains.shares import (
    free_shares,
    learnt_shares,
    pack_shares,
    shares_slope,
    softmax,
    unpack_shares,
)
from kikuchi.temporal.covariances import (
    covariance_slope,
    pack_covariance,
    packed_length,
    structured,
    unpack_covariance,
)
from kikuchi.temporal.gaussian import is_positive
from kikuchi.temporal.kernels.chains import gaussian_log_densities
from kikuchi.training.checkpoint import Arrays

_LOG_2PI = math.log(2.0 * math.pi)
_FLOOR = 1e-6  # of variances, relative to those of all rows
_LEAST = 1e-12  # weight of a state that is as good as empty


class Emission:
    """Base of emissions: override all of it."""

    kind: ClassVar[str]
    n_states: int
    n_columns: int

    @abstractmethod
    def log_likelihood(self, rows: Array) -> Array:
        """Log-likelihood of each row of `rows` (rows, columns) in each state, (rows, states); a row
        of NaN says nothing.
        """

    @abstractmethod
    def statistics(self, rows: Array, posterior: Array) -> Any:
        """Sums over `rows` (rows, columns) weighted by the probabilities of states, `posterior`
        (rows, states); sums of sequences are added.
        """

    @abstractmethod
    def maximised(self, statistics: Any) -> Emission:
        """The emission of greatest likelihood for these `statistics`."""

    @abstractmethod
    def mean(self) -> Array:
        """Mean row of each state, (states, columns)."""

    @abstractmethod
    def variance(self) -> Array:
        """Variance of each column in each state, (states, columns)."""

    @abstractmethod
    def sample(self, states: Ints, rng: np.random.Generator) -> Array:
        """One row per state of `states`, drawn by the generator `rng`."""

    @abstractmethod
    def to_arrays(self) -> Arrays:
        """The parameters by name."""

    @property
    def n_parameters(self) -> int:
        """Number of free parameters that are learned; 0 where they are not counted."""
        return 0

    def pack(self) -> Array:
        """Parameters as an unconstrained vector."""
        raise MethodError(f"emission {self.kind} has no gradient; use fit_em")

    def unpack(self, vector: Array) -> Emission:
        """Return the emission of a `vector` that `pack` made."""
        raise MethodError(f"emission {self.kind} has no gradient; use fit_em")

    def gradient(self, statistics: Any) -> Array:
        """Slope of the log-likelihood along `pack`, from `statistics`."""
        raise MethodError(f"emission {self.kind} has no gradient; use fit_em")


def add(one: tuple[Array, ...] | None, other: tuple[Array, ...]) -> tuple[Array, ...]:
    """Sums of statistics, part by part."""
    return other if one is None else tuple(a + b for a, b in zip(one, other, strict=True))


# ---------------------------------------------------------------------- given


@dataclass(frozen=True, eq=False)
class GivenEmission(Emission):
    """Rows are log-likelihoods of each state themselves, from a model of the user's.

    `n_states` is their number.
    """

    kind: ClassVar[str] = "given"
    n_states: int

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """One per state."""
        return self.n_states

    def log_likelihood(self, rows: Array) -> Array:
        """The rows; NaN counts as no evidence."""
        return np.where(np.isnan(rows), 0.0, rows)

    def statistics(self, rows: Array, posterior: Array) -> Any:
        """Nothing is learnt."""
        return ()

    def maximised(self, statistics: Any) -> Emission:
        """The same."""
        return self

    def mean(self) -> Array:
        """There are no outputs."""
        raise MethodError("given log-likelihoods have no outputs")

    variance = mean

    def sample(self, states: Ints, rng: np.random.Generator) -> Array:
        """There are no outputs to draw."""
        raise MethodError("given log-likelihoods cannot be sampled")

    def to_arrays(self) -> Arrays:
        """Only the number of states."""
        return {"given": np.array(self.n_states)}

    def pack(self) -> Array:
        """Nothing."""
        return np.zeros(0)

    def unpack(self, vector: Array) -> Emission:
        """The same."""
        return self

    def gradient(self, statistics: Any) -> Array:
        """Nothing."""
        return np.zeros(0)


# ---------------------------------------------------------------------- categories


@dataclass(frozen=True, eq=False)
class CategoryTable:
    """One column of categories 0, 1, ...: `probabilities` (..., categories), an axis per chain."""

    kind: ClassVar[str] = "categorical"
    n_columns: ClassVar[int] = 1
    probabilities: Array

    def relative(self, statistics: tuple[Array, ...]) -> Self:
        """Relative counts of `statistics`; an empty state stays as it is."""
        return type(self)(learnt_shares(statistics[0], self.probabilities))

    def drawn(self, states: Any, rng: np.random.Generator) -> Array:
        """Categories at these `states` (an array per chain), by the generator `rng`."""
        edges = np.cumsum(self.probabilities[states], axis=1)
        drawn = (edges < rng.random(len(edges))[:, None]).sum(axis=1)
        return np.asarray(np.minimum(drawn, edges.shape[1] - 1)[:, None], dtype=np.float64)

    def to_arrays(self) -> Arrays:
        """The table."""
        return {"probabilities": self.probabilities}

    @property
    def n_parameters(self) -> int:
        """One less than the possible categories of each distribution."""
        return free_shares(self.probabilities)

    def pack(self) -> Array:
        """Logarithms of the probabilities that are not zero."""
        return pack_shares(self.probabilities)

    def unpack(self, vector: Array) -> Self:
        """The table of a `vector` that `pack` made: normalised exponentials."""
        return type(self)(unpack_shares(self.probabilities, vector))

    def gradient(self, statistics: tuple[Array, ...]) -> Array:
        """Counts minus expected counts, from `statistics`."""
        return shares_slope(statistics[0], self.probabilities)


class CategoricalEmission(CategoryTable, Emission):
    """One column of categories 0, 1, ..., with a distribution per state; NaN is missing.

    `probabilities` has shape (states, categories).

    >>> e = CategoricalEmission(np.array([[0.9, 0.1], [0.5, 0.5]]))
    >>> np.exp(e.log_likelihood(np.array([[0.0], [1.0]]))).round(3).tolist()
    [[0.9, 0.5], [0.1, 0.5]]
    """

    @property
    def n_states(self) -> int:  # type: ignore[override]
        """Number of states."""
        return len(self.probabilities)

    def log_likelihood(self, rows: Array) -> Array:
        """Logarithms of the probabilities of the categories."""
        codes, known = category_codes(rows, self.probabilities.shape[1])
        with np.errstate(divide="ignore"):
            table = np.log(self.probabilities.T)
        return np.where(known[:, None], table[codes], 0.0)

    def statistics(self, rows: Array, posterior: Array) -> Any:
        """Expected counts of categories in each state."""
        codes, known = category_codes(rows, self.probabilities.shape[1])
        counts = np.zeros(self.probabilities.T.shape)
        np.add.at(counts, codes[known], posterior[known])
        return (np.ascontiguousarray(counts.T),)

    def maximised(self, statistics: Any) -> Emission:
        """Relative counts; an empty state stays as it is."""
        return self.relative(statistics)

    def mean(self) -> Array:
        """Mean code."""
        return np.asarray(self.probabilities @ np.arange(self.probabilities.shape[1])[:, None])

    def variance(self) -> Array:
        """Variance of the code."""
        codes = np.arange(self.probabilities.shape[1])
        squares = self.probabilities * (codes - self.mean()) ** 2
        return np.asarray(squares.sum(axis=1, keepdims=True))

    def sample(self, states: Ints, rng: np.random.Generator) -> Array:
        """Draw categories."""
        return self.drawn(states, rng)


def category_codes(rows: Array, categories: int) -> tuple[Ints, Any]:
    """Whole numbers of one column, 0 where missing, and where they are known."""
    if rows.shape[1] != 1:
        raise DataError(f"categories stand in one column; there are {rows.shape[1]}")
    column = rows[:, 0]
    known = ~np.isnan(column)
    codes = np.where(known, column, 0.0)
    wrong = (codes != np.round(codes)) | (codes < 0) | (codes >= categories)
    if wrong.any():
        raise DataError(
            f"row {int(np.argmax(wrong))} has {codes[np.argmax(wrong)]:g}; categories are whole "
            f"numbers from 0 to {categories - 1}"
        )
    return codes.astype(np.int64), known


# ---------------------------------------------------------------------- Gaussians


@dataclass(frozen=True, eq=False)
class GaussianEmission(Emission):
    """A Gaussian of each state: means (K, d), covariances (K, d, d) of a structure.

    `tied` gives all states one covariance; `floor` is the least variance of each column. Rows may
    have missing values: what is known is used.

    `means` and `covariances` are these; the `structure` is "full", "diagonal" or "isotropic".
    """

    kind: ClassVar[str] = "gaussian"
    means: Array
    covariances: Array
    structure: str = "full"
    tied: bool = False
    floor: Array | None = None

    def __post_init__(self) -> None:
        means = np.array(self.means, dtype=np.float64)
        covariances = np.array(self.covariances, dtype=np.float64)
        if means.ndim != 2 or covariances.shape != (*means.shape, means.shape[-1]):
            raise ModelError(
                f"means of shape {means.shape} and covariances of shape {covariances.shape}; give "
                "(K, d) and (K, d, d)"
            )
        for k, covariance in enumerate(covariances):
            if not np.isfinite(means[k]).all() or not is_positive(covariance):
                raise ModelError(f"the covariance of state {k} is not positive definite")
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "covariances", covariances)

    @property
    def n_states(self) -> int:  # type: ignore[override]
        """Number of states."""
        return len(self.means)

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """Dimensions of a row."""
        return int(self.means.shape[1])

    def log_likelihood(self, rows: Array) -> Array:
        """Log-densities; of rows with gaps those of what is known."""
        out = np.empty((len(rows), self.n_states))
        missing = np.isnan(rows)
        if not missing.any():
            self._densities(rows, np.arange(self.n_columns), out)
            return out
        patterns, which = np.unique(missing, axis=0, return_inverse=True)
        for k, gone in enumerate(patterns):
            here = which.reshape(-1) == k
            part = np.zeros((int(here.sum()), self.n_states))
            if not gone.all():
                known = np.flatnonzero(~gone)
                self._densities(np.ascontiguousarray(rows[here][:, known]), known, part)
            out[here] = part
        return out

    def _densities(self, rows: Array, columns: Ints, out: Array) -> None:
        covariances = self.covariances[:, columns[:, None], columns]
        factors = np.linalg.cholesky(covariances)
        whiteners = np.ascontiguousarray(np.linalg.inv(factors))
        logs = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        norms = -logs - 0.5 * len(columns) * _LOG_2PI
        gaussian_log_densities(
            np.ascontiguousarray(rows), np.ascontiguousarray(self.means[:, columns]), whiteners,
            norms, out,
        )  # fmt: skip

    def statistics(self, rows: Array, posterior: Array) -> Any:
        """Weights, sums and sums of squares about the present `_centre`."""
        d = self.n_columns
        missing = np.isnan(rows)
        if missing.any():
            return self._statistics_with_gaps(rows, missing, posterior)
        centred = rows - self._centre
        i, j = np.tril_indices(d)
        products = centred[:, i] * centred[:, j]
        first = posterior.T @ centred
        low = posterior.T @ products
        second = np.empty((self.n_states, d, d))
        second[:, i, j] = low
        second[:, j, i] = low
        return posterior.sum(axis=0), first, second

    @property
    def _centre(self) -> Array:
        return np.asarray(self.means.mean(axis=0))

    @staticmethod
    def _scatter(statistics: Any, means: Array) -> Array:
        """Sums of squares about these means, which are relative to the centre."""
        total, first, second = statistics
        cross = means[:, :, None] * first[:, None]
        squares = total[:, None, None] * means[:, :, None] * means[:, None]
        return np.asarray(second - cross - np.swapaxes(cross, 1, 2) + squares)

    def _statistics_with_gaps(self, rows: Array, missing: Array, posterior: Array) -> Any:
        """Missing values are expected given what is known, in each state."""
        k, d = self.means.shape
        total, first, second = posterior.sum(axis=0), np.zeros((k, d)), np.zeros((k, d, d))
        patterns, which = np.unique(missing, axis=0, return_inverse=True)
        for number, gone in enumerate(patterns):
            here = which.reshape(-1) == number
            weight, known = posterior[here], ~gone
            for s in range(k):
                cov, mean = self.covariances[s], self.means[s]
                filled, rest = np.where(gone, mean, rows[here]), np.zeros((d, d))
                if gone.any():
                    rest[np.ix_(gone, gone)] = cov[np.ix_(gone, gone)]
                if gone.any() and known.any():
                    gain = np.linalg.solve(cov[np.ix_(known, known)], cov[np.ix_(known, gone)])
                    filled[:, gone] += (filled[:, known] - mean[known]) @ gain
                    rest[np.ix_(gone, gone)] -= cov[np.ix_(gone, known)] @ gain
                w, filled = weight[:, s], filled - self._centre
                first[s] += w @ filled
                second[s] += (filled * w[:, None]).T @ filled + w.sum() * rest
        return total, first, second

    def maximised(self, statistics: Any) -> Emission:
        """Weighted means and covariances; an empty state stays as it is."""
        total, first, _ = statistics
        enough, centre = total > 1e-6, self._centre
        means = first / np.maximum(total, _LEAST)[:, None]
        means = np.where(enough[:, None], means, self.means - centre)
        scatter = self._scatter(statistics, means)
        floor = self.floor
        if floor is None:
            floor = 1e-8 * np.diagonal(scatter.sum(axis=0)) / max(total.sum(), _LEAST) + 1e-300
        if self.tied:
            shared = structured(scatter.sum(axis=0) / total.sum(), self.structure, floor)
            covariances = np.broadcast_to(shared, scatter.shape).copy()
        else:
            covariances = np.array(
                [
                    structured(s / t, self.structure, floor) if ok else old
                    for s, t, ok, old in zip(scatter, total, enough, self.covariances, strict=True)
                ]
            )
        return GaussianEmission(centre + means, covariances, self.structure, self.tied, self.floor)

    def mean(self) -> Array:
        """The means."""
        return self.means

    def variance(self) -> Array:
        """The variances."""
        return np.diagonal(self.covariances, axis1=1, axis2=2)

    def sample(self, states: Ints, rng: np.random.Generator) -> Array:
        """Draw rows."""
        roots = np.linalg.cholesky(self.covariances)
        noise = rng.normal(size=(len(states), self.n_columns))
        return np.asarray(self.means[states] + np.einsum("tij,tj->ti", roots[states], noise))

    def to_arrays(self) -> Arrays:
        """Means, covariances and the floor."""
        floor = np.zeros(self.n_columns) if self.floor is None else self.floor
        return {"means": self.means, "covariances": self.covariances, "floor": floor}

    @property
    def n_parameters(self) -> int:
        """Entries of the means and of the packed covariances."""
        return len(self.pack())

    def pack(self) -> Array:
        """Means, then the packed covariances (one if tied)."""
        covs = self.covariances[:1] if self.tied else self.covariances
        return np.concatenate(
            [self.means.ravel(), *(pack_covariance(c, self.structure) for c in covs)]
        )

    def unpack(self, vector: Array) -> Emission:
        """The inverse of `pack`."""
        k, d = self.means.shape
        length = packed_length(d, self.structure)
        rest = vector[k * d :].reshape(-1, length)
        covs = np.array([unpack_covariance(v, d, self.structure) for v in rest])
        covs = np.broadcast_to(covs, (k, d, d)).copy()
        means = vector[: k * d].reshape(k, d)
        return GaussianEmission(means, covs, self.structure, self.tied, self.floor)

    def gradient(self, statistics: Any) -> Array:
        """Slopes of the expected log-density."""
        total, first, _ = statistics
        means = self.means - self._centre
        errors = first - total[:, None] * means
        slopes = np.linalg.solve(self.covariances, errors[:, :, None])[:, :, 0]
        scatter = self._scatter(statistics, means)
        if self.tied:
            scatter, total = scatter.sum(axis=0)[None], total.sum()[None]
        parts = [
            covariance_slope(s, float(t), c, self.structure)
            for s, t, c in zip(scatter, total, self.covariances[: len(total)], strict=True)
        ]
        return np.concatenate([slopes.ravel(), *parts])


@dataclass(frozen=True, eq=False)
class MixtureEmission(Emission):
    """A mixture of Gaussians of each state: weights (K, M), and K M Gaussians.

    Reading the states of the Gaussians as pairs (state, component), everything is that of
    `GaussianEmission` with posterior times responsibility.

    `weights` are those of the components, `parts` the Gaussians.
    """

    kind: ClassVar[str] = "mixture"
    weights: Array
    parts: GaussianEmission

    @property
    def n_states(self) -> int:  # type: ignore[override]
        """Number of states."""
        return len(self.weights)

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """Dimensions of a row."""
        return self.parts.n_columns

    def _joint(self, rows: Array) -> Array:
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights)
        shape = (len(rows), *self.weights.shape)
        return np.asarray(self.parts.log_likelihood(rows).reshape(shape) + logs)

    def log_likelihood(self, rows: Array) -> Array:
        """Log-densities of the mixtures."""
        return np.asarray(logsumexp(self._joint(rows), axis=2))

    def statistics(self, rows: Array, posterior: Array) -> Any:
        """Those of the Gaussians, each row shared among components."""
        share = softmax(self._joint(rows)) * posterior[:, :, None]
        return self.parts.statistics(rows, share.reshape(len(rows), -1))

    def maximised(self, statistics: Any) -> Emission:
        """Shares of the components, and their Gaussians."""
        weights = learnt_shares(statistics[0].reshape(self.weights.shape), self.weights)
        parts = self.parts.maximised(statistics)
        assert isinstance(parts, GaussianEmission)
        return MixtureEmission(weights, parts)

    def mean(self) -> Array:
        """Means of the mixtures."""
        means = self.parts.means.reshape(*self.weights.shape, -1)
        return np.asarray(np.einsum("km,kmd->kd", self.weights, means))

    def variance(self) -> Array:
        """Variances of the mixtures."""
        shape = (*self.weights.shape, -1)
        away = self.parts.means.reshape(shape) - self.mean()[:, None]
        each = self.parts.variance().reshape(shape) + away**2
        return np.asarray(np.einsum("km,kmd->kd", self.weights, each))

    def sample(self, states: Ints, rng: np.random.Generator) -> Array:
        """Draw a component, then a row."""
        edges = np.cumsum(self.weights, axis=1)[states]
        part = (edges < rng.random(len(states))[:, None]).sum(axis=1)
        part = np.minimum(part, self.weights.shape[1] - 1)
        return self.parts.sample(states * self.weights.shape[1] + part, rng)

    def to_arrays(self) -> Arrays:
        """Weights and the arrays of the Gaussians."""
        return {"weights": self.weights, **self.parts.to_arrays()}

    @property
    def n_parameters(self) -> int:
        """Those of the shares and of the Gaussians."""
        return free_shares(self.weights) + self.parts.n_parameters

    def pack(self) -> Array:
        """Logarithms of the weights, then the Gaussians."""
        return np.concatenate([pack_shares(self.weights), self.parts.pack()])

    def unpack(self, vector: Array) -> Emission:
        """The inverse of `pack`."""
        size = np.count_nonzero(self.weights)
        parts = self.parts.unpack(vector[size:])
        assert isinstance(parts, GaussianEmission)
        return MixtureEmission(unpack_shares(self.weights, vector[:size]), parts)

    def gradient(self, statistics: Any) -> Array:
        """Slopes of the expected log-density."""
        counts = statistics[0].reshape(self.weights.shape)
        slopes = shares_slope(counts, self.weights)
        return np.concatenate([slopes, self.parts.gradient(statistics)])


def read_emission(arrays: Arrays, structure: str, tied: bool) -> Emission:
    """The emission of its arrays."""
    if "given" in arrays:
        return GivenEmission(int(arrays["given"]))
    if "probabilities" in arrays:
        return CategoricalEmission(np.array(arrays["probabilities"]))
    gaussian = GaussianEmission(
        np.array(arrays["means"]), np.array(arrays["covariances"]), structure, tied,
        np.array(arrays["floor"]),
    )  # fmt: skip
    if "weights" in arrays:
        return MixtureEmission(np.array(arrays["weights"]), gaussian)
    return gaussian


def variance_floor(rows: Array) -> Array:
    """The least variance that a state may have, of each column."""
    spread = np.nanvar(rows, axis=0)
    return np.asarray(np.maximum(_FLOOR * spread, 1e-12))
