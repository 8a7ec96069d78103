r"""Where EM begins: ICA of the principal components, rotations of them, directions of
strong samples, or random columns with hot noise.

Nothing here makes a matrix of the size of the channels squared unless there are few channels.

Reference: HOJ-L6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.ica.mixing import RULES
from kikuchi.ica.model import Model, Observations, deviations
from kikuchi.ica.noise import DiagonalNoise, FullNoise, IsotropicNoise, Noise, make_noise
from kikuchi.ica.priors.prior import SourcePrior

STARTS = ("auto", "ica", "pca", "directions", "samples", "random")
_MOST_SAMPLES = 100_000  # that a start uses
_FEW_CHANNELS = 256
_ROTATIONS = 200
_ROTATED = 1e-4
_FACTOR_STEPS = 30
_LEAST_NOISE = 2e-3  # of the variance of a channel, at the start
_RANDOM_FRACTION = 0.5  # of the data's variance that random columns explain
_LEAST_DIRECTION = 1e-10  # variance of a principal component, in units of the first
_COMPARED = 500  # samples that columns are given to priors by
_CENTRED = 0.05  # mean of a prior in its deviations that counts as 0
_STRONG = 0.1  # fraction of the samples, the longest, that show directions


def start_kinds(start: str, count: int, sources: int, data: Observations, rule: str) -> list[str]:
    """The kind of start of each of `count` restarts."""
    if start not in STARTS:
        raise MethodError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    if start != "auto":
        if start in ("ica", "pca") and sources > min(data.channels, data.count - 1):
            raise MethodError(
                f"start {start}: {sources} sources need as many channels and more samples, got "
                f"{data.channels} and {data.count}; use start='random'"
            )
        return [start] * count
    if rule != RULES[0]:
        first = ["samples"]
    elif sources <= min(data.channels, data.count - 1):
        first = ["ica", "pca"]
    else:
        first = ["directions"]
    return (first + ["random"] * count)[:count]


def initial_model(
    name: str,
    data: Observations,
    priors: Sequence[SourcePrior],
    noise: str | Array,
    rule: str,
    rng: np.random.Generator,
    rotations: int = _ROTATIONS,
    columns: Array | None = None,
) -> Model:
    """A model to begin EM with; components are sought by so many `rotations` at most, from those
    of `columns` (channels, sources) if given, whose order and signs are kept.
    """
    hot = make_noise(noise, data.variances)
    if data.count > _MOST_SAMPLES:
        data = data.take(np.sort(rng.choice(data.count, _MOST_SAMPLES, replace=False)))
    sources = len(priors)
    if name in ("ica", "pca"):
        mixing, noise_now = _from_components(name, data, priors, hot, rng, rotations, columns)
    elif name == "directions":
        mixing, noise_now = _scaled(_directions(data.x, sources, rng), data, priors), hot
    elif name == "samples":
        mixing, noise_now = _scaled(_sample_columns(data, priors, rng), data, priors), hot
    else:
        mixing, noise_now = (
            _scaled(rng.standard_normal((data.channels, sources)), data, priors),
            hot,
        )
    if rule != RULES[0]:
        mixing = np.abs(mixing) + 1e-3 * float(np.abs(mixing).mean())
    return Model(mixing, noise_now, tuple(priors))


# ---------------------------------------------------------------------- principal components


def principal(x: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array, float]:
    """The `count` leading directions of centred data, their variances, and the mean variance of
    all the others (0 when there are none).
    """
    channels, samples = x.shape
    total = float(np.einsum("dn,dn->", x, x)) / samples
    if channels <= _FEW_CHANNELS:
        values, vectors = np.linalg.eigh(x @ x.T / samples)
        values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    else:
        vectors, values = _subspace(x, count, rng)
    rest = channels - count
    values = np.maximum(values, 0.0)
    return vectors, values, max(0.0, total - float(values.sum())) / rest if rest else 0.0


def _subspace(x: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Leading left singular vectors and variances, by subspace iteration with a few to spare."""
    width = min(count + 10, *x.shape)
    basis = np.linalg.qr(x @ rng.standard_normal((x.shape[1], width)))[0]
    for _ in range(6):
        basis = np.linalg.qr(x @ (x.T @ basis))[0]
    left, sizes, _ = np.linalg.svd(basis.T @ x, full_matrices=False)
    return np.asarray((basis @ left)[:, :count]), np.asarray(sizes[:count] ** 2 / x.shape[1])


def has_directions(values: Array) -> bool:
    """Whether all of these variances of principal components, in falling order, are above zero.

    >>> has_directions(np.array([2.0, 1.0])), has_directions(np.array([2.0, 0.0]))
    (True, False)
    """
    return bool(values[0] > 0 and values[-1] > _LEAST_DIRECTION * values[0])


def _from_components(
    name: str,
    data: Observations,
    priors: Sequence[SourcePrior],
    hot: Noise,
    rng: np.random.Generator,
    rotations: int,
    columns: Array | None = None,
) -> tuple[Array, Noise]:
    sources = len(priors)
    white, vectors, values, rest = whitened(data, sources, rng, name)
    level = rest if rest > 0 else 0.5 * float(values[-1])
    if name == "pca":
        basis = np.linalg.qr(rng.standard_normal((sources, sources)))[0]
    elif columns is None:
        basis = rotation(white, rng, rotations)
    else:
        basis = rotation(white, rng, rotations, oriented(vectors, values, columns))
    sizes = np.sqrt(np.maximum(values - rest, 0.05 * values))
    mixing = (vectors * sizes) @ basis.T
    sources_now = basis @ white
    offset = basis @ ((vectors / np.sqrt(values)).T @ (data.x.sum(axis=1) / data.channel_counts))
    if columns is not None and name == "ica":
        return mixing / deviations(priors), _noise_at(hot, level)
    return _assigned(mixing, sources_now, offset, priors), _noise_at(hot, level)


def whitened(
    data: Observations, sources: int, rng: np.random.Generator, name: str = "ica"
) -> tuple[Array, Array, Array, float]:
    """The leading principal components of the data, each of variance 1, with what `principal`
    returns; `name` is that of the start that needs them.
    """
    centred = data.x - (data.x.sum(axis=1) / data.channel_counts)[:, None]
    if data.observed is not None:
        centred = centred * data.observed
    vectors, values, rest = principal(centred, sources, rng)
    if not has_directions(values):
        raise MethodError(
            f"start {name}: the data have fewer than {sources} independent directions; "
            "request fewer sources or use start='random'"
        )
    return (vectors / np.sqrt(values)).T @ centred, vectors, values, rest


def factor_noise(covariance: Array, sources: int) -> Array:
    """Variances of the noise of a factor analysis with so many factors: what the covariance alone
    says, from Joereskog's start, which is all where it leaves the factors open.

    >>> columns = np.array([[1.0], [1.0], [2.0], [1.0]])
    >>> factor_noise(columns @ columns.T + np.diag([0.5, 1.0, 1.0, 0.2]), 1).round(2).tolist()
    [0.5, 1.0, 1.0, 0.2]
    """
    channels, whole = len(covariance), np.diag(covariance)
    least = _LEAST_NOISE * whole
    count = min(sources, channels)
    noise = (1.0 - 0.5 * count / channels) / np.diag(np.linalg.pinv(covariance))
    noise = np.clip(noise, least, whole)
    for _ in range(_FACTOR_STEPS if has_factors(channels, sources) else 0):
        root = np.sqrt(noise)
        values, vectors = np.linalg.eigh(covariance / root[:, None] / root)
        kept = vectors[:, -count:] * np.sqrt(np.maximum(values[-count:] - 1.0, 0.0))
        noise = np.maximum(whole - ((root[:, None] * kept) ** 2).sum(axis=1), least)
    return noise


def has_factors(channels: int, sources: int) -> bool:
    """Whether a covariance determines so many factors and a variance for each channel.

    >>> has_factors(9, 5), has_factors(9, 7)
    (True, False)
    """
    return sources < channels and (channels - sources) ** 2 >= channels + sources


def rotation(
    white: Array,
    rng: np.random.Generator,
    most: int = _ROTATIONS,
    begin: Array | None = None,
) -> Array:
    """Independent directions of white data: the fixed point with tanh, all at once, kept
    orthogonal, by so many steps at most; sub- and super-Gaussian sources alike. The signs of
    directions to `begin` with are kept.
    """
    size, samples = white.shape
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0] if begin is None else begin
    half = white.astype(np.float32)  # enough to begin with, in a fraction of the time
    for _ in range(most):
        squashed = np.tanh(basis.astype(np.float32) @ half)
        slope = 1.0 - np.einsum("in,in->i", squashed, squashed).astype(np.float64) / samples
        new = _orthogonal(squashed @ half.T / samples - slope[:, None] * basis)
        moved = float(np.abs(np.abs(np.einsum("ij,ij->i", new, basis)) - 1.0).max())
        basis = new
        if moved < _ROTATED:
            break
    if begin is not None:
        basis = np.where(np.einsum("ij,ij->i", basis, begin) < 0.0, -1.0, 1.0)[:, None] * basis
    return basis


def oriented(vectors: Array, values: Array, columns: Array) -> Array:
    """The rotation of whitened data (see `whitened`) that is nearest to a mixing with `columns`."""
    return _orthogonal(((vectors / np.sqrt(values)).T @ columns).T)


def _orthogonal(matrix: Array) -> Array:
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)


def _assigned(mixing: Array, sources: Array, offset: Array, priors: Sequence[SourcePrior]) -> Array:
    """Columns given to priors by their likelihood, in the priors' scales; where priors have no
    density by kurtosis, and with the sign in which sources that are not symmetric have a mean
    above zero.
    """
    order = np.arange(len(priors))
    if len({p.text for p in priors}) > 1 and all(_is_centred(p) for p in priors):
        return _likeliest_columns(mixing, sources, priors)
    if len({p.text for p in priors}) > 1:
        tails = np.mean(np.square(sources) ** 2, axis=1) - 3.0
        wanted = [p.kurtosis if math.isfinite(p.kurtosis) else 1e300 for p in priors]
        order[np.argsort(wanted, kind="stable")] = np.argsort(tails, kind="stable")
    columns = mixing[:, order] / deviations(priors)
    flip = [not p.symmetric and o < 0 for p, o in zip(priors, offset[order], strict=True)]
    return np.where(flip, -columns, columns)


def _is_centred(prior: SourcePrior) -> bool:
    """Whether a prior has a density, whose mean is 0."""
    if not prior.is_proper or prior.support != "real" or prior.states is not None:
        return False
    mean, variance = prior.mean_variance
    return math.isfinite(variance) and abs(mean) < _CENTRED * math.sqrt(variance)


def _likeliest_columns(mixing: Array, sources: Array, priors: Sequence[SourcePrior]) -> Array:
    """Columns in the order and with the signs that make some samples most likely."""
    from scipy.optimize import linear_sum_assignment

    sizes = deviations(priors)
    few = sources[:, :_COMPARED] / sources[:, :_COMPARED].std(axis=1, keepdims=True)
    score = np.array(
        [
            [prior.log_density(sign * size * few).sum(axis=1) for sign in (1.0, -1.0)]
            for prior, size in zip(priors, sizes, strict=True)
        ]
    )  # priors, signs, sources
    score = np.maximum(score, -1e300)
    order = linear_sum_assignment(-score.max(axis=1))[1]
    chosen = score[np.arange(len(priors)), :, order]
    return np.asarray(np.where(chosen[:, 0] >= chosen[:, 1], 1.0, -1.0) * mixing[:, order] / sizes)


def _noise_at(hot: Noise, level: float) -> Noise:
    """The noise with a variance that principal components suggest, if it is to be learned."""
    if not hot.learned or not level > 0:
        return hot
    if isinstance(hot, IsotropicNoise):
        return replace(hot, variance=max(level, float(np.mean(hot.floor))))
    if isinstance(hot, DiagonalNoise):
        return replace(hot, variances=np.minimum(hot.variances, np.maximum(level, hot.floor)))
    assert isinstance(hot, FullNoise)
    size = len(hot.covariance)
    return FullNoise.of(max(level, float(np.mean(hot.floor))) * np.eye(size), True, hot.floor)


# ---------------------------------------------------------------------- columns


def _directions(x: Array, sources: int, rng: np.random.Generator) -> Array:
    """Centres of the directions of the longest samples, signs aside: where sparse sources are
    alone the samples line up.
    """
    lengths = np.linalg.norm(x, axis=0)
    strong = np.argsort(lengths)[-max(sources, int(_STRONG * x.shape[1])) :]
    units = x[:, strong] / np.maximum(lengths[strong], 1e-300)
    centres = [units[:, rng.integers(units.shape[1])]]
    while len(centres) < sources:  # far from those that there are
        far = 1.0 - np.max(np.abs(np.array(centres) @ units), axis=0) ** 2
        weight = np.maximum(far, 0.0) + 1e-12
        centres.append(units[:, rng.choice(units.shape[1], p=weight / weight.sum())])
    now = np.array(centres).T
    for _ in range(50):
        cosines = now.T @ units
        nearest = np.argmax(np.abs(cosines), axis=0)
        for i in range(sources):
            mine = nearest == i
            if mine.any():
                total = units[:, mine] @ np.sign(cosines[i, mine])
                now[:, i] = total / max(float(np.linalg.norm(total)), 1e-300)
    return now


def _sample_columns(
    data: Observations, priors: Sequence[SourcePrior], rng: np.random.Generator
) -> Array:
    """Mean sizes of a few samples that were drawn at random: columns for nonnegative mixing."""
    picks = rng.integers(data.count, size=(len(priors), 5))
    return np.asarray(np.abs(data.x[:, picks]).mean(axis=2))


def _scaled(columns: Array, data: Observations, priors: Sequence[SourcePrior]) -> Array:
    """Columns of equal length, so long that they explain their part of the data's variance."""
    norms = np.linalg.norm(columns, axis=0)
    mean = [p.mean_variance[0] if p.is_proper else 0.0 for p in priors]
    power = deviations(priors) ** 2 + np.square(mean)
    total = float(data.variances.sum()) * _RANDOM_FRACTION
    return np.asarray(columns / np.maximum(norms, 1e-300) * np.sqrt(total / power.sum()))
