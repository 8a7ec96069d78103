r"""The model of noisy ICA, x = A s + noise, and what EM needs to know of data.

Arrays are oriented as in the theory: data X (D, N), mixing A (D, I), sources S (I, N).

Reference: HOJ-L7, HOJ-L8, HOJ-M7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, AxisLength, Mask
from kikuchi.core.errors import DataError, MethodError
from kikuchi.ica.noise import FullNoise, Noise, restore_noise
from kikuchi.ica.posteriors.posterior import Problem
from kikuchi.ica.priors.prior import SourcePrior, parse_prior, prior_texts
from kikuchi.training.checkpoint import check_sizes

CLEAR = 15.0  # deviations of noise that the weakest direction has, where noise does not matter
SCALE_ONLY = frozenset({"laplace", "exponential"})  # what they learn, a column's length can be too


@dataclass(frozen=True)
class Observations:
    """Data X (D, N), zero where a value is missing, and which values are there (None: all)."""

    x: Array
    observed: Mask | None = None

    @staticmethod
    def of(x: Array) -> Observations:
        """Data from an array in which NaN stands for a missing value."""
        missing = np.isnan(x)
        if not missing.any():
            return Observations(np.ascontiguousarray(x))
        return Observations(np.where(missing, 0.0, x), ~missing)

    channels = AxisLength("x", 0, "Number of channels, D.")
    count = AxisLength("x", 1, "Number of samples, N.")

    @cached_property
    def channel_counts(self) -> Array:
        """Number of observed samples of each channel."""
        if self.observed is None:
            return np.full(self.channels, float(self.count))
        return np.asarray(self.observed.sum(axis=1), dtype=np.float64)

    @cached_property
    def squares(self) -> Array:
        """Sum of squares of each channel."""
        return np.asarray(np.einsum("dn,dn->d", self.x, self.x))

    @cached_property
    def outer(self) -> Array:
        """X X^T: for full noise only."""
        return np.asarray(self.x @ self.x.T)

    @property
    def variances(self) -> Array:
        """Mean squares of the channels."""
        return self.squares / self.channel_counts

    def take(self, samples: slice | NDArray[np.intp]) -> Observations:
        """Some of the samples."""
        observed = None if self.observed is None else self.observed[:, samples]
        return Observations(np.ascontiguousarray(self.x[:, samples]), observed)

    def spread(self, count: int) -> Observations:
        """About `count` of the samples at equal distances; all if there are no more."""
        return self if self.count <= count else self.take(slice(None, None, self.count // count))

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[NDArray[np.intp]]:
        """A partition of the samples into random batches of about `size`."""
        order = rng.permutation(self.count)
        for part in np.array_split(order, max(1, round(self.count / size))):
            yield np.sort(part)


@dataclass(frozen=True)
class Model:
    """Mixing, noise and priors: everything that EM learns."""

    mixing: Array
    noise: Noise
    priors: tuple[SourcePrior, ...]

    def __post_init__(self) -> None:  # sums over another layout would differ in their last digits
        object.__setattr__(self, "mixing", np.ascontiguousarray(self.mixing))

    sources = AxisLength("mixing", 1, "Number of sources, I.")
    channels = AxisLength("mixing", 0, "Number of channels, D.")

    def problem(self, data: Observations) -> Problem:
        """The posterior problem of all samples: J = A^T P A and h = A^T P X."""
        weighted = self.noise.times_precision(self.mixing)
        if data.observed is None:
            coupling = weighted.T @ self.mixing
        else:
            self._check_noise_allows_missing()
            pairs = (weighted[:, :, None] * self.mixing[:, None, :]).reshape(self.channels, -1)
            coupling = (data.observed.T @ pairs).reshape(-1, self.sources, self.sources)
        symmetric = 0.5 * (coupling + np.swapaxes(coupling, -1, -2))
        return Problem(symmetric, weighted.T @ data.x, self.priors)

    def log_base(self, data: Observations) -> Array:
        """-log Z_L of every sample: log p(x | s) is this plus h^T s - s^T J s / 2."""
        squares = self.noise.squares(data.x)
        if data.observed is None:
            log_det = self.noise.log_det(self.channels)
            return -0.5 * (squares + log_det + self.channels * math.log(2.0 * math.pi))
        variances = self.noise.channel_variances(self.channels)
        return np.asarray(-0.5 * (squares + np.log(2.0 * math.pi * variances) @ data.observed))

    def n_parameters(self, learned: str) -> int:
        """All free numbers: mixing, noise and what is learned of the priors."""
        priors = sum(p.n_parameters for p in self.priors if is_learned(p, learned))
        return self.mixing.size + self.noise.n_parameters(self.channels) + priors

    def sizes(self) -> Array:
        """Standard deviation of the data that each source explains: |a_i| times its own."""
        return np.asarray(np.linalg.norm(self.mixing, axis=0) * deviations(self.priors))

    def describe(self) -> dict[str, Any]:
        """What the model is apart from its arrays, as JSON."""
        noise = {"kind": self.noise.kind, "learned": self.noise.learned}
        return {"noise": noise, "priors": prior_texts(self.priors)}

    def to_arrays(self) -> dict[str, Array]:
        """Mixing matrix and noise, by the names that they have in files."""
        noise = {"noise": np.asarray(self.noise.value), "floor": np.asarray(self.noise.floor)}
        return {"mixing": self.mixing, **noise}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Model:
        """The model of a file: `facts` are those of `describe`."""
        kind, learned = str(facts["noise"]["kind"]), bool(facts["noise"]["learned"])
        priors = tuple(map(parse_prior, facts["priors"]))
        check_sizes(arrays, {"mixing": "channels sources"}, sources=len(priors))
        channels = (arrays["mixing"].shape[0],)
        sizes = {"isotropic": (), "diagonal": channels, "full": 2 * channels}
        if arrays["noise"].shape != sizes[kind] or arrays["floor"].shape not in ((), channels):
            raise DataError(f"its {kind} noise has the shape {arrays['noise'].shape}")
        noise = restore_noise(kind, arrays["noise"], arrays["floor"], learned)
        return cls(arrays["mixing"], noise, priors)

    def _check_noise_allows_missing(self) -> None:
        if isinstance(self.noise, FullNoise):
            raise MethodError(
                "missing values need isotropic or diagonal noise; choose noise='diagonal'"
            )


def is_learned(prior: SourcePrior, learned: str) -> bool:
    """Whether EM changes a prior: `learned` is none, shape (not a mere scale) or all.

    >>> from kikuchi.ica.priors.prior import parse_prior
    >>> is_learned(parse_prior("laplace"), "shape"), is_learned(parse_prior("binary01"), "shape")
    (False, True)
    """
    if prior.n_parameters == 0 or learned == "none":
        return False
    return learned == "all" or prior.name not in SCALE_ONLY


def deviations(priors: Sequence[SourcePrior]) -> Array:
    """Standard deviation of each prior; 1 where it has none."""
    variances = [p.mean_variance[1] if p.is_proper else 1.0 for p in priors]
    return np.array([math.sqrt(v) if math.isfinite(v) and v > 0 else 1.0 for v in variances])


def weakest(model: Model) -> float:
    """Deviation of the data along the direction that sources explain least, in units of noise."""
    deviation = np.sqrt(model.noise.channel_variances(model.channels))[:, None]
    scaled = model.mixing / deviation * deviations(model.priors)
    return float(np.linalg.svd(scaled, compute_uv=False)[-1])


def is_clear(model: Model) -> bool:
    """Whether the noise is too low to matter, where sources explain all of the data: a lower one,
    or one for each channel, would change nothing.
    """
    return model.sources == model.channels and weakest(model) > CLEAR
