r"""Source priors of ICA behind one interface.

Every mean field method sees a source only through the tilted density

    q(s) = p(s) exp(-lam s^2 / 2 + gamma s) / Z0(gamma, lam),

its log Z0, its mean m = d log Z0 / d gamma and its response v = dm / d gamma, the variance.
Priors are named by texts such as "laplace:rate=2" or "mixture:weights=(0.5,0.5),means=(-3,3)".

Reference: HOJ-L7, HOJ-M8.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError, ModelError
from kikuchi.core.options import Configured, Registry

AUTO = "auto"  # chosen for each source by the data
_BEFORE_DATA = "laplace"  # what auto stands for until there are data

PRIORS: Registry[SourcePrior] = Registry(
    "kikuchi.ica",
    "prior",
    {
        "gaussian": "priors.closed:GaussianPrior",
        "binary": "priors.closed:BinaryPrior",
        "binary01": "priors.closed:Binary01Prior",
        "laplace": "priors.closed:LaplacePrior",
        "exponential": "priors.closed:ExponentialPrior",
        "positive-gaussian": "priors.closed:PositiveGaussianPrior",
        "uniform": "priors.closed:UniformPrior",
        "mixture": "priors.mixture:MixturePrior",
        "bi-gaussian": "priors.mixture:BiGaussianPrior",
        "power-law": "priors.designed:PowerLawPrior",
        "cosh": "priors.numerical:CoshPrior",
        "logistic": "priors.numerical:LogisticPrior",
        "rayleigh": "priors.numerical:RayleighPrior",
    },
)


@dataclass(frozen=True)
class SourcePrior(Configured, kind="prior"):
    """One source: its tilted moments, its sampler and its place in EM.

    `least_lam` is the border of the plane: the integral exists for every gamma when lam is above
    it. At or below it, `log_partition` and `moments` refuse (ModelError) where it does not exist.
    """

    support: ClassVar[str] = "real"
    symmetric: ClassVar[bool] = True
    log_concave: ClassVar[bool] = True  # then the mean field bound has one peak
    is_proper: ClassVar[bool] = True  # False: a mean function without a density behind it
    has_log_partition: ClassVar[bool] = True
    n_parameters: ClassVar[int] = 0  # how many numbers `updated` learns
    least_lam: ClassVar[float] = 0.0
    kurtosis: ClassVar[float]  # excess kurtosis; infinite where the fourth moment is

    @property
    def states(self) -> tuple[Array, Array] | None:
        """Values and log-probabilities of a source with finitely many values, else None."""
        return None

    @cached_property
    def mean_variance(self) -> tuple[float, float]:
        """Mean and variance of the prior itself."""
        mean, variance = self.moments(0.0, 0.0)
        return float(mean), float(variance)

    def log_partition(self, gamma: ArrayLike, lam: ArrayLike) -> Array:
        """log Z0 at fields `gamma` and precisions `lam`, element by element with broadcasting."""
        g, precision, shape = _flat(gamma, lam)
        out = self._log_partition(g, precision)
        self._check_integrals(out, g, precision)
        return out.reshape(shape)

    def moments(self, gamma: ArrayLike, lam: ArrayLike) -> tuple[Array, Array]:
        """Mean and response (variance) of the source tilted by `gamma` and `lam`, element by
        element.
        """
        g, precision, shape = _flat(gamma, lam)
        mean, response = self._moments(g, precision)
        self._check_integrals(mean, g, precision)
        self._check_integrals(response, g, precision)
        return mean.reshape(shape), response.reshape(shape)

    def second_moment(self, gamma: ArrayLike, lam: ArrayLike) -> Array:
        """Mean of s^2 of the source tilted by `gamma` and `lam`: v + m^2 (by definition where no
        density exists).
        """
        mean, response = self.moments(gamma, lam)
        return response + mean * mean

    def log_density(self, s: ArrayLike) -> Array:
        """log p(s) at each value `s`; refused for discrete and for improper sources."""
        raise ModelError(f"prior {self.name} has no density; use its states or its moments")

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Draws from the prior: an array of this `size` by the generator `rng`."""
        raise ModelError(f"prior {self.name} is not proper and cannot be sampled")

    def statistics(self, gamma: ArrayLike, lam: ArrayLike) -> Array:
        """What `updated` needs of the sources tilted by `gamma` and `lam`, summed over samples:
        their number first, then sums of m and s^2.

        Sums of several batches may be added.
        """
        mean, response = self.moments(gamma, lam)
        return np.array([mean.size, np.sum(mean), np.sum(response + mean * mean)])

    def statistics_of_states(self, sums: Array) -> Array:
        """The same from `sums`, the summed probabilities of the values of a discrete source."""
        raise ModelError(f"prior {self.name} has no states; only discrete sources have")

    def updated(self, statistics: Array) -> SourcePrior:
        """The prior of greatest expected log-density given `statistics`; itself when nothing is
        learned.
        """
        return self

    def _log_partition(self, gamma: Array, lam: Array) -> Array:
        """log Z0 of flat arrays; NaN where the integral does not exist."""
        raise NotImplementedError

    def _moments(self, gamma: Array, lam: Array) -> tuple[Array, Array]:
        """Mean and response of flat arrays; NaN where the integral does not exist."""
        raise NotImplementedError

    def _check_integrals(self, out: Array, gamma: Array, lam: Array) -> None:
        if np.isfinite(np.sum(out)):  # the usual case, at the price of one sum
            return
        bad = np.flatnonzero(~np.isfinite(out))
        if bad.size:
            where = f"gamma={gamma[bad[0]]:g}, lam={lam[bad[0]]:g}"
            raise ModelError(
                f"prior {self.name}: the tilted source has no integral (or none that numbers can "
                f"hold) at {where} ({bad.size} of {out.size} places); lam must be above "
                f"{self.least_lam:g}, gamma finite"
            )


@dataclass(frozen=True)
class CompiledPrior(SourcePrior):
    """A prior whose tilted moments are compiled: a code and a row of numbers."""

    code: ClassVar[int]  # which closed form of `engines.sites.kernels.densities`

    @cached_property
    def numbers(self) -> Array:
        """The numbers of that closed form: the options in their order, unless overridden."""
        return np.array([getattr(self, f.name) for f in dataclasses.fields(self)])

    def _log_partition(self, gamma: Array, lam: Array) -> Array:
        from kikuchi.engines.sites.kernels.densities import log_partition_of

        out = np.empty(gamma.size)
        log_partition_of(self.code, self.numbers, gamma, lam, out)
        return out

    def _moments(self, gamma: Array, lam: Array) -> tuple[Array, Array]:
        from kikuchi.engines.sites.kernels.densities import moments_of

        mean, response = np.empty(gamma.size), np.empty(gamma.size)
        moments_of(self.code, self.numbers, gamma, lam, mean, response)
        return mean, response


def parse_prior(text: str | SourcePrior) -> SourcePrior:
    """A prior from its text; a prior is returned as it is.

    `text` is a name, perhaps with options, as in "laplace:rate=2".

    >>> parse_prior("binary01:rate=0.3").text
    'binary01:rate=0.3'
    >>> mean, response = parse_prior("laplace").moments(1.0, 1.0)
    >>> round(float(mean), 6), round(float(response), 6)
    (0.503223, 0.558957)
    """
    return PRIORS.parse(text)


def prior_texts(priors: Iterable[SourcePrior]) -> list[str]:
    """Texts that name the priors exactly; a prior given by functions has none and is refused.

    >>> prior_texts([parse_prior("laplace:rate=0.1")])
    ['laplace:rate=0.1']
    """
    texts = []
    for number, prior in enumerate(priors):
        if prior.name not in PRIORS:
            raise MethodError(
                f"source {number} has prior {prior.name}, whose functions no file can hold; use a "
                f"prior with a name to save the model: {', '.join(PRIORS)}"
            )
        texts.append(prior.text)
    return texts


def as_priors(
    prior: str | SourcePrior | Iterable[str | SourcePrior], count: int
) -> list[SourcePrior]:
    """`count` priors from one for all, or from one per source; "auto" is Laplace as long as no data
    are known.

    >>> [p.name for p in as_priors(["laplace", "binary"], 2)]
    ['laplace', 'binary']
    """
    if isinstance(prior, str) and prior == AUTO:
        prior = _BEFORE_DATA
    one = isinstance(prior, str) or not isinstance(prior, Iterable)
    given: list[Any] = [prior] * count if one else list(prior)  # type: ignore[arg-type]
    if len(given) != count:
        raise MethodError(
            f"{len(given)} priors are given for {count} sources; give one, or one per source"
        )
    return [PRIORS.parse(p) for p in given]


def _flat(gamma: ArrayLike, lam: ArrayLike) -> tuple[Array, Array, tuple[int, ...]]:
    """Both arguments as flat contiguous arrays of the broadcast shape."""
    g, precision = np.asarray(gamma, dtype=np.float64), np.asarray(lam, dtype=np.float64)
    if g.shape != precision.shape:
        g, precision = np.broadcast_arrays(g, precision)
    shape = g.shape
    return np.ascontiguousarray(g).reshape(-1), np.ascontiguousarray(precision).reshape(-1), shape
