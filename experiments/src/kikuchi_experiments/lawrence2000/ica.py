"""Lawrence's thesis, chapter 6: Bayesian ICA of a toy and of images (LAW-E19, LAW-E20)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.seeds import generator
from kikuchi_experiments.aggregate import (
    Claims,
    above,
    all_of,
    average,
    below,
    between,
    holds,
    median,
    of_total,
    significant,
    span,
    within,
)
from kikuchi_experiments.experiment import Case, Experiment, Finished, Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.ica.bayesian.bayesian_ica import BayesianICA

_GAP = 2.0  # decades by which the relevance of a source that is off exceeds all others
_SHOWN = 60
_CROPS = ((100, 200), (0, 200))  # corners of parts of the two photographs that are sub-Gaussian
_SIZE = (256, 200)


def sparse_toy(seed: int, count: int) -> tuple[Array, Array, Array]:
    """Mixing (3, 2), sources (count, 2) of variance 1 or 50 with even chances, and samples with
    noise of variance 1e-4 (LAW-E19).

    >>> [part.shape for part in sparse_toy(0, 200)]
    [(3, 2), (200, 2), (200, 3)]
    """
    rng = generator(seed)
    wide = rng.random((count, 2)) < 0.5
    sources = rng.standard_normal((count, 2)) * np.where(wide, np.sqrt(50.0), 1.0)
    mixing = rng.standard_normal((3, 2))
    return mixing, sources, sources @ mixing.T + 0.01 * rng.standard_normal((count, 3))


def _fitted(samples: Array, count: int, sources: str, **options: Any) -> BayesianICA:
    """Bayesian ICA with the hyperpriors of the catalogue, none of the sources taken away."""
    from kikuchi.ica.bayesian.bayesian_ica import BayesianICA

    settings: dict[str, Any] = {"pruning": "none", "unit": 1.0, "noise_prior": (1e-3, 1e-3)}
    return BayesianICA(count, sources, **{**settings, **options}).fit(samples)


class BayesianToy(Experiment):
    """Three sources asked for, two there (LAW-E19, L12)."""

    id: ClassVar[str] = "LAW-E19"

    def run_case(self, case: Case) -> Result:
        """Relevances with three sources, and the bound with three, two and one."""
        from kikuchi.ica.measures import column_angles

        true, _, samples = sparse_toy(case["seed"], case["count"])
        options = {"n_init": case["starts"], "random_state": case["seed"]}
        fits = {count: _fitted(samples, count, "sparse", **options) for count in (3, 2, 1)}
        three = fits[3]
        order = np.argsort(three.relevance_)
        angles = column_angles(three.mixing_[:, order[:2]], true)
        history = np.log10(three.relevance_history_)
        keep = np.unique(np.linspace(0, len(history) - 1, _SHOWN).astype(np.intp))
        bounds = np.array(three.trace_.objective)
        return {
            "relevance": np.log10(three.relevance_[order]).tolist(),
            "cosines": np.cos(np.deg2rad(angles)).tolist(),
            "noise": float(three.noise_variance_),
            "bounds": {str(count): float(fit.bound_) for count, fit in fits.items()},
            "largest_fall": float(np.maximum(-np.diff(bounds), 0.0).max(initial=0.0)),
            "updates": keep.tolist(),
            "history": history[keep].tolist(),
            "mixing": three.mixing_[:, order].tolist(),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Relevances, directions, noise and bounds."""
        results = [one.result for one in finished]
        gaps = [result["relevance"][2] - result["relevance"][1] for result in results]
        middle = float(np.median(gaps))
        off = [result["relevance"][2] for result in results]
        cosine = min(min(result["cosines"]) for result in results)
        noise = [result["noise"] for result in results]
        two = sum(max(r["bounds"], key=r["bounds"].__getitem__) == "2" for r in results)
        gain = average(results, "bounds", "2") - average(results, "bounds", "3")
        fall = max(result["largest_fall"] for result in results)
        right, total = sum(gap > _GAP for gap in gaps), len(results)
        return [
            _TOY.row("off", of_total(right, total), all_of(right, total), gap=_GAP),
            _TOY.row("gap", span(gaps, ".1f"), between(middle, 2.5, 3.5), median=middle),
            _TOY.row("log", span(off, ".2f"), within(float(np.mean(off)), 3.18, 0.02)),
            _TOY.row("angle", round(cosine, 4), above(cosine, 0.99)),
            _TOY.row("noise", span(noise, ".3g"), between(float(np.mean(noise)), 0.7e-4, 1.6e-4)),
            _TOY.row("best", of_total(two, total), all_of(two, total)),
            _TOY.row("gain", round(gain, 1), between(gain, 15, 30)),
            _TOY.row("fall", significant(fall, 1), below(fall, 1e-6)),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Relevances and directions of the first toy."""
        first = finished[0]
        true, _, samples = sparse_toy(first.case["seed"], first.case["count"])
        return _toy_panels(samples, true, first.result)


_TOY = Claims.of(__name__, "LAW-E19")


def _toy_panels(samples: Array, true: Array, found: Result) -> Figure:
    from kikuchi.plots import style

    history = np.array(found["history"])
    with style.styled():
        figure, axes = style.new_figure(9.6, 4.0, 2)
        for k in range(history.shape[1]):
            axes[0].plot(1 + np.array(found["updates"]), history[:, k], color=style.COLOURS[k])
        axes[0].set(
            title="Relevance of each column, log10", xlabel="updates of the hyperparameters"
        )
        axes[1].scatter(samples[:, 0], samples[:, 1], s=9, color="#aeb7c1", lw=0)
        reach = float(np.quantile(np.linalg.norm(samples[:, :2], axis=1), 0.98))
        looks: list[tuple[Array, Any]] = [
            (true, {"color": style.INK, "lw": 6, "alpha": 0.25}),
            (np.array(found["mixing"])[:, :2], {"color": style.VERMILLION, "lw": 1.8}),
        ]
        for columns, look in looks:
            for x, y in (reach * columns[:2] / np.linalg.norm(columns[:2], axis=0)).T:
                axes[1].plot([-x, x], [-y, y], **look)
        axes[1].set_aspect("equal", adjustable="datalim")
        axes[1].set(title="Two of three sensors", xlabel="sensor 1", ylabel="sensor 2")
    return figure


# ---------------------------------------------------------------------- images


def two_images(data: str | None) -> tuple[Array, tuple[int, int]]:
    """Pixels (pixels, 2) of two grey images, each of mean 0 and variance 1, and their shape."""
    if data is None:
        pictures = _photographs()
    else:
        from kikuchi.data.images import read_images

        read = read_images(data)
        if len(read) != 2:
            raise DataError(f"{data}: has {len(read)} images; expected two of one size")
        pictures = [np.asarray(p, dtype=np.float64).reshape(read.shape) for p in read.pixels]
    shape = int(pictures[0].shape[0]), int(pictures[0].shape[1])
    pixels = np.stack([picture.ravel() for picture in pictures], axis=1)
    spread = pixels.std(axis=0)
    if not (spread > 0).all():
        raise DataError(f"{data}: an image has the same value everywhere")
    return (pixels - pixels.mean(axis=0)) / spread, shape


def _photographs() -> list[Array]:
    """Parts of the two photographs of scikit-learn, in grey, at half their size."""
    try:
        from sklearn.datasets import load_sample_images
    except ImportError:
        raise MissingExtraError(
            f"the photographs come with scikit-learn; {install('learn')}"
        ) from None
    found = []
    for image, (top, left) in zip(load_sample_images().images, _CROPS, strict=True):
        grey = image.mean(axis=2)[top : top + _SIZE[0], left : left + _SIZE[1]]
        found.append(grey.reshape(_SIZE[0] // 2, 2, _SIZE[1] // 2, 2).mean(axis=(1, 3)))
    return found


def excess_kurtosis(columns: Array) -> Array:
    """Of each column.

    >>> excess_kurtosis(np.array([[-1.0], [1.0], [-1.0], [1.0]])).tolist()
    [-2.0]
    """
    centred = columns - columns.mean(axis=0)
    return np.asarray((centred**4).mean(axis=0) / (centred**2).mean(axis=0) ** 2 - 3.0)


class BayesianImages(Experiment):
    """Two images in three mixtures (LAW-E20)."""

    id: ClassVar[str] = "LAW-E20"

    def run_case(self, case: Case) -> Result:
        """Two sources, three, three less the least relevant, and densities that are learned."""
        pixels, shape = two_images(case["data"])
        mixing, mixed = mixtures(pixels, case["seed"], case["noise"])
        rng = np.random.default_rng([case["seed"], 2])
        rows = rng.choice(len(mixed), min(case["count"], len(mixed)), replace=False)
        fits = {
            "two": _fitted(mixed[rows], 2, "bimodal"),
            "three": _fitted(mixed[rows], 3, "bimodal"),
            "learned": _fitted(mixed[rows], 3, "bimodal", adapt=True),
            "pruned": _fitted(mixed[rows], 3, "bimodal", adapt=True, pruning="bound"),
        }
        return {
            "shape": list(shape),
            "kurtosis": excess_kurtosis(pixels).tolist(),
            "mixing": mixing.tolist(),
            **{name: _recovered(fit, mixed, pixels) for name, fit in fits.items()},
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Correlations of images and sources, relevances and bounds."""
        results = [one.result for one in finished]

        def decades(name: str) -> list[float]:
            return [r[name]["relevance"][2] - r[name]["relevance"][1] for r in results]

        kurtosis = max(max(result["kurtosis"]) for result in results)
        alive, total = sum(gap < _GAP for gap in decades("three")), len(results)
        two, three = (
            float(np.median([min(result[name]["matched"]) for result in results]))
            for name in ("two", "three")
        )
        ghost, ghost_of_three = (median(results, name, "ghost") for name in ("two", "three"))
        stronger = holds(ghost_of_three > ghost + 0.02, "more by 0.02")
        gain = average(results, "two", "bound") - average(results, "three", "bound")
        return [
            _IMAGES.row("kurtosis", round(kurtosis, 2)),
            _IMAGES.row("two", round(two, 3), above(two, 0.85)),
            _IMAGES.row("alive", of_total(alive, total), all_of(alive, total), gap=_GAP),
            _IMAGES.row("three", round(three, 3), above(three, 0.85)),
            _IMAGES.row("ghost", f"{ghost:.3f}, {ghost_of_three:.3f}", stronger),
            _IMAGES.row("gain", round(gain, 1)),
            _IMAGES.row("learned", span(decades("learned"), ".1f")),
            _IMAGES.row("kept", span(result["pruned"]["kept"] for result in results)),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """The images, their mixtures, and what was found."""
        from kikuchi.plots.images import image_rows

        first = finished[0]
        pixels, shape = two_images(first.case["data"])
        _, mixed = mixtures(pixels, first.case["seed"], first.case["noise"])
        groups: dict[str, Any] = {"images": pixels.T, "mixtures": mixed.T}
        for name, label in (("two", "two sources"), ("three", "three sources")):
            groups[label] = np.array(first.result[name]["images"])
        return image_rows(
            {k: _grey(v) for k, v in groups.items()}, shape, "Two images, three mixtures"
        )


def mixtures(pixels: Array, seed: int, noise: float) -> tuple[Array, Array]:
    """Three mixtures of two images with the matrix of the toy; `noise` is the variance of the
    noise as a share of that of the images.
    """
    mixing, _, _ = sparse_toy(seed, 2)
    rng = np.random.default_rng([seed, 1])
    return mixing, pixels @ mixing.T + np.sqrt(noise) * rng.standard_normal((len(pixels), 3))


def _recovered(fit: BayesianICA, mixed: Array, pixels: Array) -> Result:
    """Sources of all pixels beside the images, the most relevant columns first."""
    order = np.argsort(fit.relevance_[: fit.n_components_])
    sources = fit.transform(mixed)[:, order]
    both = np.nan_to_num(np.corrcoef(np.hstack([pixels, sources]).T)[:2, 2:])
    sign = np.where(both[np.argmax(np.abs(both), axis=0), range(both.shape[1])] < 0, -1.0, 1.0)
    return {
        "bound": float(fit.bound_),
        "kept": int(fit.n_components_),
        "relevance": np.log10(np.sort(fit.relevance_)).tolist(),
        **_matched(np.abs(both[:, :2])),
        "images": (sources * sign).T.round(2).tolist(),
    }


def _matched(correlation: Array) -> Result:
    """Correlations of two images (rows) with two sources, each source taken once: with the own
    image, and the largest with the other (a ghost).
    """
    if correlation[0, 0] + correlation[1, 1] < correlation[0, 1] + correlation[1, 0]:
        correlation = correlation[:, ::-1]
    ghost = max(correlation[0, 1], correlation[1, 0])
    return {"matched": np.diagonal(correlation).tolist(), "ghost": float(ghost)}


def _grey(images: Array) -> Array:
    """Each image from black to white, unless it hardly varies."""
    low, high = np.quantile(images, [0.01, 0.99], axis=1, keepdims=True)
    middle, range_ = 0.5 * (low + high), np.maximum(high - low, 0.5)
    return np.asarray(np.clip(0.5 + (images - middle) / range_, 0.0, 1.0))


_IMAGES = Claims.of(__name__, "LAW-E20")
