r"""Which prior each source has: what `prior="auto"` means.

Sources that a first separation has found are compared with a stock of shapes, all of mean 0 and
variance 1: heavy and light tails, flat, two humps, two values, skewed. In noise a source is seen as
y = c (s + n) with a normal n, and the density of y is that of the shape, widened. The level of the
noise that all sources share, and the shape and the scale of each, are those of greatest likelihood
together. Outliers make the standard deviation of a source larger than that of the shape without
them, hence the scale. It is all that is fitted, and to every shape, so that this likelihood is as
good for a comparison as one of rows held out.

Shapes other than Laplace are mixtures of Gaussians, whose posterior moments have closed forms.

Reference: HOJ-L7, HOJ-M8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.ica.priors.mixture import MixturePrior
from kikuchi.ica.priors.prior import SourcePrior, parse_prior

_CORE = 3.0  # deviations in which bins are about equal; farther out their widths grow
_REACH = 9.0  # of the bins, in units of the core's: 30 deviations; values beyond count as this
_BINS = 360
_FINE = 8  # parts of each, which move whole where values are scaled
_SCALES = 1.07 ** np.arange(-9, 3)  # deviations of a shape, in units of the source's
_LEAST_WIDTH = 0.02  # variance of a component of a smooth prior, also in place of a value
_LEVELS = np.concatenate([[0.0], np.geomspace(1e-3, 0.95, 24)])  # of noise in a source's variance
_LEAST_VALUES = 1e-3  # of it where a source has two values: their places are estimates
_NOT_OF_VALUES = 1.0  # difference of a fourth moment from that of two values
_MOST_VALUES = 0.4  # above which two values do not show
_LEAST_RATE = 0.02  # of the rarer of two values
_EVEN = 0.02  # of the rate of two values from a half, at which they count as -1 and 1
_HUMPS = (0.8, 0.6)  # part of the variance between two humps
_MIXTURES: dict[str, tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]] = {
    "laplace": (
        (0.08509, 0.3519, 0.4539, 0.1092),
        (0.0, 0.0, 0.0, 0.0),
        (0.02919, 0.2672, 1.143, 3.522),
    ),
    "logistic": ((0.2525, 0.6108, 0.1367), (0.0, 0.0, 0.0), (0.3622, 0.9404, 2.444)),
    "student": ((0.6099, 0.3631, 0.02704), (0.0, 0.0, 0.0), (0.3819, 1.461, 8.752)),
    "heavy": (
        (0.4355, 0.4662, 0.09296, 0.005368),
        (0.0, 0.0, 0.0, 0.0),
        (0.1627, 0.6506, 3.793, 50.91),
    ),
    "sparse": (
        (0.1719, 0.3938, 0.3526, 0.08172),
        (0.0, 0.0, 0.0, 0.0),
        (0.004367, 0.0923, 0.926, 7.786),
    ),
    "uniform": (
        (0.1229, 0.3771, 0.3771, 0.1229),
        (-1.462, -0.636, 0.636, 1.462),
        (0.02901, 0.2151, 0.2151, 0.02901),
    ),
    "flat top": (
        (0.1595, 0.3405, 0.3405, 0.1595),
        (-1.34, -0.5221, 0.5221, 1.34),
        (0.1842, 0.2683, 0.2683, 0.1842),
    ),
    "semicircle": (
        (0.1062, 0.3938, 0.3938, 0.1062),
        (-1.52, -0.6145, 0.6145, 1.52),
        (0.05913, 0.2525, 0.2525, 0.05913),
    ),
    "arcsine": (
        (0.1417, 0.3583, 0.3583, 0.1417),
        (-1.355, -0.7049, 0.7049, 1.355),
        (0.003089, 0.1718, 0.1718, 0.003089),
    ),
    "exponential": (
        (0.1664, 0.3191, 0.3555, 0.1591),
        (-0.8998, -0.5551, 0.1869, 1.637),
        (0.005684, 0.04584, 0.2533, 1.401),
    ),
    "gamma": (
        (0.1644, 0.3704, 0.3534, 0.1118),
        (-1.051, -0.4501, 0.4271, 1.687),
        (0.04851, 0.1497, 0.4258, 1.314),
    ),
    "gumbel": ((0.4344, 0.4548, 0.1109), (-0.6658, 0.2571, 1.555), (0.2425, 0.5268, 1.485)),
    "half normal": (
        (0.1002, 0.2391, 0.3894, 0.2713),
        (-1.185, -0.7873, -0.004864, 1.139),
        (0.007606, 0.05657, 0.2579, 0.9019),
    ),
    "rayleigh": ((0.1876, 0.4774, 0.335), (-1.111, -0.1776, 0.8754), (0.1199, 0.365, 0.895)),
    "beta": (
        (0.09559, 0.214, 0.3417, 0.3488),
        (-1.18, -0.8567, -0.1818, 1.027),
        (0.004952, 0.03803, 0.1869, 0.7404),
    ),
}
"""Weights, means and variances of the mixtures of least Kullback-Leibler divergence from Laplace,
logistic, Student (4) and (2.7), generalised normal (1/2), uniform, generalised normal (4), Wigner's
semicircle, arcsine, exponential, gamma (2.5), Gumbel, half normal, Rayleigh and beta (1, 3)."""


@dataclass(frozen=True)
class SourceShape:
    """A kind of source, of mean 0 and variance 1: its name and its components."""

    name: str
    weights: Array
    means: Array
    variances: Array

    @property
    def discrete(self) -> bool:
        """Whether the source has two values."""
        return not self.variances.any()

    def log_density(self, y: Array, levels: Array) -> Array:
        """log density at `y`, of the shape with such parts of its variance replaced by noise
        (levels, values).
        """
        level = levels[:, None, None]
        grouped = (2.0 * _REACH / _BINS) ** 2 / 12.0 * (1.0 + (y[:, None] / _CORE) ** 2)
        within = (1.0 - level) * self.variances + level + grouped
        apart = y[:, None] - np.sqrt(1.0 - level) * self.means
        terms = np.log(self.weights / np.sqrt(2.0 * math.pi * within)) - 0.5 * apart**2 / within
        top = terms.max(axis=2)
        return np.asarray(top + np.log(np.exp(terms - top[:, :, None]).sum(axis=2)))

    def prior(self, sign: float, smooth: bool) -> SourcePrior:
        """The shape, or its mirror image, as a prior. Where all must be `smooth`, no component is
        narrower than the edges of a source that is separated only so well.
        """
        if self.name == "laplace":
            return parse_prior("laplace")
        if self.discrete and abs(self.weights[0] - 0.5) < _EVEN and not smooth:
            return parse_prior("binary")
        variances = np.maximum(self.variances, _LEAST_WIDTH if smooth else 0.0)
        return MixturePrior.of(list(self.weights), list(sign * self.means), list(variances))


@dataclass(frozen=True)
class ShapeChoice:
    """The shape of each source, the sign with which it is taken, the level of the noise, and the
    mean log-likelihood of each source in units of its deviation.
    """

    shapes: tuple[SourceShape, ...]
    signs: Array
    level: float
    scores: Array

    @property
    def names(self) -> list[str]:
        """Names of the shapes."""
        return [shape.name for shape in self.shapes]

    def with_sharper_peaks(self) -> ShapeChoice:
        """Laplace in place of logistic sources, which look like Laplace sources in more noise than
        the level: what channels of their own noise may have.
        """
        known = {shape.name: shape for shape in shapes()}
        changed = [known["laplace"] if s.name == "logistic" else s for s in self.shapes]
        return replace(self, shapes=tuple(changed))

    @property
    def priors(self) -> tuple[SourcePrior, ...]:
        """Priors of the sources."""
        smooth = not all(shape.discrete for shape in self.shapes)
        pairs = zip(self.shapes, self.signs, strict=True)
        return tuple(shape.prior(float(sign), smooth) for shape, sign in pairs)


def choose_shapes(sources: Array, noise: Array, levels: Sequence[float]) -> ShapeChoice:
    """The shapes and the level of noise that make `sources` (sources, samples) most likely.

    `noise` are the variances of noise of level 1 in sources of variance 1; `levels` are tried.

    >>> rng = np.random.default_rng(0)
    >>> s = np.array([rng.laplace(size=3000), rng.uniform(size=3000), rng.choice(2, 3000)])
    >>> choose_shapes(s, np.ones(3), [0.0]).names
    ['laplace', 'uniform', 'two values']
    """
    stock = shapes()
    standard = _standard(sources)
    fine = _histograms(standard, _FINE)
    counts = _merged(fine, _FINE)
    sums = np.concatenate([np.zeros((len(fine), 1)), np.cumsum(fine, axis=1)], axis=1)
    scaled = np.diff(sums[:, _edges()], axis=2).swapaxes(0, 1)
    scores = np.tensordot(scaled, _tables(), axes=(2, 2))  # scales, sources, levels, 2 shapes
    scores -= sources.shape[1] * np.log(_SCALES)[:, None, None, None]
    parts = np.clip(np.outer(levels, noise), 0.0, _LEVELS[-1])
    here = _at_levels(scores, parts[:, None] / _SCALES[:, None] ** 2).max(axis=1)  # not of noise
    squares = standard * standard
    skews, fourths = (np.einsum("in,in->i", squares, z) / z.shape[1] for z in (standard, squares))
    rates = _rates_of_values(skews, parts)
    ends = _scores_of_values(rates, counts, parts, fourths)
    here = np.concatenate([here, ends[:, :, None]], axis=2)
    best = int(here.max(axis=2).sum(axis=1).argmax())
    numbers = here[best].argmax(axis=1)
    signs = np.where((numbers >= len(stock)) & (numbers < 2 * len(stock)), -1.0, 1.0)
    chosen = [
        _two_values(rate) if k == 2 * len(stock) else stock[k % len(stock)]
        for k, rate in zip(numbers, rates[best].tolist(), strict=True)
    ]
    scores_of_all = here[best].max(axis=1) / sources.shape[1]
    return ShapeChoice(tuple(chosen), signs, float(levels[best]), scores_of_all)


def _at_levels(scores: Array, levels: Array) -> Array:
    """Scores at `levels` (any, scales, sources), between those of the table (its third axis)."""
    places = np.interp(levels, _LEVELS, np.arange(_LEVELS.size))[..., None]
    below = np.minimum(places[..., 0].astype(np.int64), _LEVELS.size - 2)
    each = np.ogrid[: scores.shape[0], : scores.shape[1]]
    low, high = (scores[each[0], each[1], below + k] for k in (0, 1))
    return np.asarray(low + (places - below[..., None]) * (high - low))


def _rates_of_values(skewness: Array, levels: Array) -> Array:
    """Rates of two values with these skewnesses, where such parts of their variances are normal."""
    own = skewness / (1.0 - levels) ** 1.5
    rates = 0.5 * (1.0 - own / np.hypot(own, 2.0))
    return np.asarray(np.clip(rates, _LEAST_RATE, 1.0 - _LEAST_RATE))


def _two_values(rate: float) -> SourceShape:
    return two_components("two values", rate, 0.0)


def _scores_of_values(rates: Array, counts: Array, levels: Array, fourths: Array) -> Array:
    """Log-likelihoods of two values with these parts of noise (levels, sources), less what BIC
    takes for their rates; minus infinity where fourth moments exclude them, or where noise would
    hide them.
    """
    excess = (1.0 - levels) ** 2 * (1.0 / (rates * (1.0 - rates)) - 6.0)
    possible = (levels <= _MOST_VALUES) & (np.abs(fourths - 3.0 - excess) <= _NOT_OF_VALUES)
    out = np.full(levels.shape, -math.inf)
    for k, i in zip(*np.nonzero(possible), strict=True):
        level = np.array([max(levels[k, i], _LEAST_VALUES)])
        values = _two_values(float(rates[k, i])).log_density(_middles(), level)[0]
        out[k, i] = float(counts[i] @ values) - 0.5 * math.log(float(counts[i].sum()))
    return out


def _standard(sources: Array) -> Array:
    spread = np.maximum(sources.std(axis=1, keepdims=True), 1e-300)
    return np.asarray((sources - sources.mean(axis=1, keepdims=True)) / spread)


def _middles(parts: int = 1) -> Array:
    """Middles of the bins, or of so many parts of each."""
    middles = (np.arange(_BINS * parts) + 0.5) * (2.0 * _REACH / (_BINS * parts)) - _REACH
    return np.asarray(_CORE * np.sinh(middles / _CORE))


def _bins_of(values: Array, parts: int = 1) -> Ints:
    """The bin of each value, or the part of a bin; those beyond the last count as in it."""
    places = (_CORE * np.arcsinh(values / _CORE) + _REACH) * (_BINS * parts / (2.0 * _REACH))
    found: Ints = np.clip(places, 0, _BINS * parts - 1).astype(np.int64)
    return found


def _histograms(sources: Array, parts: int) -> Array:
    """Counts of the parts of the bins (sources, bins * parts)."""
    size = _BINS * parts
    where = _bins_of(sources, parts) + size * np.arange(len(sources))[:, None]
    counts = np.bincount(where.ravel(), minlength=size * len(sources))
    return counts.reshape(len(sources), size).astype(np.float64)


def _merged(fine: Array, parts: int) -> Array:
    """Counts of the bins from those of their parts."""
    return np.asarray(fine.reshape(len(fine), _BINS, parts).sum(axis=2))


@lru_cache(maxsize=1)
def _edges() -> Ints:
    """The first part of each bin, and the end of the last, if all values were divided by each of
    the scales: parts move whole.
    """
    moved = [_bins_of(_middles(_FINE) / scale) for scale in _SCALES]
    starts = [np.searchsorted(bins, np.arange(_BINS)) for bins in moved]
    ends = np.full((len(starts), 1), _BINS * _FINE)
    return np.concatenate([np.array(starts), ends], axis=1)


@lru_cache(maxsize=1)
def _tables() -> Array:
    """Log densities at the middles of the bins (levels, 2 shapes, bins); the second half of the
    shapes are the mirror images of the first.
    """
    y = _middles()
    table = np.stack([shape.log_density(y, _LEVELS) for shape in shapes()], axis=1)
    return np.concatenate([table, table[:, :, ::-1]], axis=1)


@lru_cache(maxsize=1)
def shapes() -> tuple[SourceShape, ...]:
    """The stock of shapes; two values, whose rate the skewness gives, are not in it.

    >>> [shape.name for shape in shapes()][:3]
    ['laplace', 'logistic', 'student']
    """
    smooth = [SourceShape(name, *map(np.array, parts)) for name, parts in _MIXTURES.items()]
    return (*smooth, *(two_components("two humps", 0.5, 1.0 - part) for part in _HUMPS))


def two_components(name: str, rate: float, within: float) -> SourceShape:
    """Two components of variance `within`, the right one at this `rate`, so far apart that the
    variance is 1.

    >>> two_components("two values", 0.2, 0.0).means.tolist()
    [-0.5, 2.0]
    """
    part = math.sqrt(1.0 - within)
    means = part * np.array([-math.sqrt(rate / (1.0 - rate)), math.sqrt((1.0 - rate) / rate)])
    return SourceShape(name, np.array([1.0 - rate, rate]), means, np.full(2, within))
