r"""Posteriors of the sources given the mixing and the noise.

For one sample the posterior of I sources is prod_i p_i(s_i) exp(-s'Js / 2 + h's) / Z with
J = A' Sigma^-1 A and h = A' Sigma^-1 x. Samples are independent, so that all of them are solved
side by side. A posterior is named by a text: naive, variational, lr, adatap, exact, importance.

Reference: HOJ-I17 to I21, HOJ-M12.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array, AxisLength, Mask
from kikuchi.core.errors import ModelError
from kikuchi.core.options import Configured, Registry
from kikuchi.ica.priors.prior import SourcePrior

_CHUNK_NUMBERS = 2**19  # of I x I numbers per sample, or of I: what the loops touch at one time
_MOST_SAMPLES = 4096
_LEAST_SAMPLES = 32

POSTERIORS: Registry[Posterior] = Registry(
    "kikuchi.ica",
    "posterior",
    {
        "naive": "posteriors.naive:NaivePosterior",
        "variational": "posteriors.naive:VariationalPosterior",
        "lr": "posteriors.naive:LinearResponsePosterior",
        "adatap": "posteriors.adaptive_tap:AdaptiveTapPosterior",
        "exact": "posteriors.exact:ExactPosterior",
        "importance": "posteriors.importance:ImportancePosterior",
    },
)


@dataclass(frozen=True)
class Problem:
    """What a posterior is of.

    Parameters
    ----------
    coupling : J (I, I), or (N, I, I) when samples differ (missing values).
    field : h (I, N).
    priors : one per source.

    >>> from kikuchi.ica.priors.prior import parse_prior
    >>> Problem([[2, 0.5], [0.5, 1.25]], [[0.3], [0.9]], [parse_prior("binary")] * 2).n_samples
    1
    """

    coupling: Array
    field: Array
    priors: Sequence[SourcePrior]

    def __init__(
        self, coupling: ArrayLike, field: ArrayLike, priors: Sequence[SourcePrior]
    ) -> None:
        object.__setattr__(self, "coupling", np.ascontiguousarray(coupling, dtype=np.float64))
        object.__setattr__(self, "field", np.ascontiguousarray(field, dtype=np.float64))
        object.__setattr__(self, "priors", tuple(priors))
        self._check()

    n_sources = AxisLength("field", 0, "Number of sources, I.")
    n_samples = AxisLength("field", 1, "Number of samples, N.")

    @property
    def per_sample(self) -> bool:
        """Whether every sample has its own J."""
        return self.coupling.ndim == 3

    @cached_property
    def diagonal(self) -> Array:
        """J_ii as (I, 1), or (I, N) when samples differ."""
        if self.per_sample:
            return np.ascontiguousarray(np.einsum("nii->in", self.coupling))
        return np.ascontiguousarray(np.diag(self.coupling))[:, None]

    @cached_property
    def couplings(self) -> Array:
        """J as (1, I, I) or (N, I, I), for the compiled loops."""
        return self.coupling if self.per_sample else self.coupling[None]

    def take(self, samples: slice | NDArray[np.intp]) -> Problem:
        """The problem of some `samples`, a slice or their numbers; not checked again."""
        part = object.__new__(Problem)
        coupling = self.coupling[samples] if self.per_sample else self.coupling
        object.__setattr__(part, "coupling", coupling)
        object.__setattr__(part, "field", np.ascontiguousarray(self.field[:, samples]))
        object.__setattr__(part, "priors", self.priors)
        return part

    def chunks(self, numbers: int | None = None) -> Iterator[slice]:
        """Samples in pieces of which each needs about `numbers` numbers (default I) per sample."""
        each = self.n_sources if numbers is None else numbers
        size = max(_LEAST_SAMPLES, min(_MOST_SAMPLES, _CHUNK_NUMBERS // max(1, each)))
        for start in range(0, self.n_samples, size):
            yield slice(start, min(start + size, self.n_samples))

    def off_diagonal(self, source: int, means: Array) -> Array:
        """sum over j other than `source` of J_ij m_j, for every sample of the `means` m (sources,
        samples).
        """
        if self.per_sample:
            total = np.einsum("nj,jn->n", self.coupling[:, source], means)
        else:
            total = self.coupling[source] @ means
        return np.asarray(total - self.diagonal[source] * means[source])

    def couple(self, means: Array) -> Array:
        """J m of every sample, with `means` m (sources, samples)."""
        if self.per_sample:
            return np.asarray(np.einsum("nij,jn->in", self.coupling, means))
        return np.asarray(self.coupling @ means)

    def _check(self) -> None:
        count = len(self.priors)
        if self.field.ndim != 2 or self.field.shape[0] != count:
            raise ModelError(
                f"posterior: the field has shape {self.field.shape}; it must be (sources, samples) "
                f"with {count} sources, one per prior"
            )
        expected = [(count, count), (self.field.shape[1], count, count)]
        if self.coupling.shape not in expected:
            raise ModelError(
                f"posterior: the coupling has shape {self.coupling.shape}; it must be "
                f"{expected[0]}, or {expected[1]} for one per sample"
            )
        if not (np.all(np.isfinite(self.coupling)) and np.all(np.isfinite(self.field))):
            raise ModelError("posterior: coupling and field must be finite numbers")
        scale = 1e-8 * max(1.0, float(np.max(np.abs(self.coupling), initial=0.0)))
        if np.any(np.abs(self.coupling - np.swapaxes(self.coupling, -1, -2)) > scale):
            raise ModelError("posterior: the coupling must be symmetric")


@dataclass(frozen=True)
class Moments:
    """Posterior moments of all samples.

    `covariance_sum` adds the covariances of the samples. `log_z` is log Z of each sample (without
    log Z_L of the data), None when a prior has no log partition. `is_bound`: log_z is never above
    the truth. `converged` tells it for each sample, `iterations` is the most that any needed.
    `warnings` says what went wrong, if anything. `state_sums` are, where joint states were
    enumerated, the sums over samples of the probabilities of each source's states.

    `mean` and `variances` (sources, samples) are those of the posterior, `gamma` and `lam` the
    fields and precisions of the tilted priors.
    """

    mean: Array
    covariance_sum: Array
    variances: Array
    log_z: Array | None
    gamma: Array
    lam: Array
    converged: Mask
    iterations: int
    is_bound: bool
    warnings: tuple[str, ...] = field(default=())
    state_sums: tuple[Array, ...] = field(default=())

    @property
    def second_moment_sum(self) -> Array:
        """sum over samples of the posterior mean of s s' (I, I)."""
        return self.covariance_sum + self.mean @ self.mean.T

    def fields(self) -> dict[str, Array]:
        """The arrays that another solution can start from."""
        return {"mean": self.mean, "gamma": self.gamma, "lam": self.lam}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Array]) -> Moments:
        """Moments of which no more is known than `fields`: a start, not an answer."""
        sources, samples = fields["mean"].shape
        unknown = np.full((sources, sources), np.nan), np.full((sources, samples), np.nan)
        mean, gamma, lam = (fields[name] for name in ("mean", "gamma", "lam"))
        return cls(mean, *unknown, None, gamma, lam, np.zeros(samples, dtype=bool), 0, False)

    def take(self, samples: slice | NDArray[np.intp]) -> Moments:
        """The moments of some `samples`, a slice or their numbers; `covariance_sum` remains that of
        all.
        """
        columns = ("mean", "variances", "gamma", "lam")
        parts: dict[str, Any] = {name: getattr(self, name)[:, samples] for name in columns}
        log_z = None if self.log_z is None else self.log_z[samples]
        return replace(self, log_z=log_z, converged=self.converged[samples], state_sums=(), **parts)


@dataclass(frozen=True)
class Posterior(Configured, ABC, kind="posterior"):
    """A way to approximate the posterior of the sources."""

    def solve(self, problem: Problem, start: Moments | None = None) -> Moments:
        """Moments of every sample, from `start` if given (of the same shape)."""
        if start is not None and start.mean.shape != problem.field.shape:
            raise ModelError(
                f"posterior {self.name}: the start has shape {start.mean.shape}, the field "
                f"{problem.field.shape}"
            )
        return self._solve(problem, start)

    def covariances(self, problem: Problem, moments: Moments) -> Array:
        """Posterior covariance of each sample (N, I, I), computed from `moments` on demand."""
        out = np.empty((problem.n_samples, problem.n_sources, problem.n_sources))
        for part in problem.chunks(problem.n_sources**2):
            out[part] = self._covariances(problem.take(part), moments.take(part))
        return out

    def joint(
        self, problem: Problem, start: Moments | None = None, begin: int = 0
    ) -> tuple[Moments, Array]:
        """Moments, and second moments of every sample (N, I, I); `begin` is the number of the first
        sample among all of them.
        """
        moments = self.solve(problem, start)
        middle = moments.mean.T
        second = self.covariances(problem, moments)
        return moments, second + middle[:, :, None] * middle[:, None, :]

    @abstractmethod
    def _solve(self, problem: Problem, start: Moments | None) -> Moments:
        """Return the moments of every sample."""

    def _covariances(self, problem: Problem, moments: Moments) -> Array:
        """Return the covariance of each sample; a subclass has this, or its own `covariances`."""
        raise NotImplementedError


def parse_posterior(text: str | Posterior) -> Posterior:
    """A posterior from its text; a posterior is returned as it is.

    `text` is a name, perhaps with options.

    >>> parse_posterior("lr:tol=1e-6").text
    'lr:tol=1e-06'
    """
    return POSTERIORS.parse(text)
