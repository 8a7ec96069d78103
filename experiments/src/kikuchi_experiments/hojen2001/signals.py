"""Højen-Sørensen's thesis, chapter 4: three speakers at two microphones, parts of digits.

HOJ-E5 and HOJ-E6.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.ica.em import EMIteration, Rules
from kikuchi.ica.initialisation import initial_model
from kikuchi.ica.measures import column_angles, match_sources
from kikuchi.ica.mixing import parse_mixing_prior
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.noise import make_noise
from kikuchi.ica.posteriors.posterior import parse_posterior
from kikuchi.ica.priors.prior import as_priors
from kikuchi_experiments.aggregate import (
    Claims,
    above,
    all_of,
    average,
    below,
    holds,
    median,
    of_total,
    within,
)
from kikuchi_experiments.experiment import Case, Experiment, Finished, Result, Row
from kikuchi_experiments.hojen2001 import ica_figures
from kikuchi_experiments.hojen2001.tables import RIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIRECTIONS = (0.0, 45.0, -45.0)
_NOISE = 0.02  # of the deviation of the microphones
_FIXED_NOISE = 0.01  # of their variance, where it is not learned; more than there is
_SPEAKERS = 3


# ---------------------------------------------------------------------- speech


def three_speakers(case: Case) -> tuple[Array, Array, Array]:
    """Mixing (2, 3), sources (samples, 3) of largest size 1, and the two microphones."""
    from kikuchi.data.speech import speech_like
    from kikuchi.ica.recordings import read_recording

    if case["data"] is None:
        sources = speech_like(_SPEAKERS, case["seconds"], kind=case["kind"], seed=case["seed"])
    else:
        recording = read_recording(case["data"])
        if recording.n_sensors != _SPEAKERS:
            raise DataError(
                f"{case['data']}: has {recording.n_sensors} channels; expected {_SPEAKERS}, "
                "one per speaker"
            )
        rate = recording.rate
        length = recording.n_samples if rate is None else int(case["seconds"] * rate)
        sources = recording.data[:length] - recording.data[:length].mean(axis=0)
        largest = np.abs(sources).max(axis=0)
        if not (largest > 0).all():
            raise DataError(f"{case['data']}: a channel is silent in its first {length} samples")
        sources = sources / largest
    angles = np.deg2rad(DIRECTIONS)
    mixing = np.stack([np.cos(angles), np.sin(angles)])
    clean = sources @ mixing.T
    noise = np.random.default_rng([case["seed"], 1]).standard_normal(clean.shape)
    return mixing, sources, clean + _NOISE * float(clean.std()) * noise


class ThreeSpeakers(Experiment):
    """Three speakers, two microphones, power-law sources (HOJ-E5)."""

    id: ClassVar[str] = "HOJ-E5"

    def run_case(self, case: Case) -> Result:
        """From the truth, from random columns, from the directions of strong samples; then with
        Laplace sources and noise that is not learned; then MAP learning of the causal model.
        """
        true, sources, mixed = three_speakers(case)
        data = Observations.of(mixed.T)
        power = as_priors("power-law:alpha=1", _SPEAKERS)
        deviation = float(sources.std())
        laplace = as_priors(f"laplace:rate={np.sqrt(2.0) / deviation:.6g}", _SPEAKERS)
        fixed = _FIXED_NOISE * float(np.mean(data.variances))
        small = make_noise("isotropic", 1e-3 * data.variances)
        starts = range(case["starts"])

        def begin(name: str, priors: list[Any], noise: Any, k: int) -> Model:
            rng = np.random.default_rng([case["seed"], k])
            return initial_model(name, data, priors, noise, "free", rng)

        runs = {
            "truth": [Model(true, small, tuple(power))],
            "random": [begin("random", power, "isotropic", k) for k in starts],
            "directions": [begin("directions", power, "isotropic", k) for k in starts],
            "laplace": [begin("directions", laplace, np.array(fixed), k) for k in starts],
        }
        fits = {
            name: [_separated(model, data, case["iterations"], true, sources) for model in models]
            for name, models in runs.items()
        }
        return {**fits, "map": _by_map(mixed, true, sources, case["seed"])}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Angles and correlations of every kind of start."""
        results = [one.result for one in finished]
        truth = max(result["truth"][0]["angle"] for result in results)
        rows = [_SPEECH.row("truth", round(truth, 2), below(truth, 3.0))]
        for name in ("random", "directions", "laplace"):
            runs = [run for result in results for run in result[name]]
            right = sum(run["angle"] < RIGHT for run in runs)
            key, often = "starts", holds(right >= 0.5 * len(runs), "half or more")
            if name == "random":  # one good run of the document says nothing about how often
                key, often = "random", above(right, 0)
            ours = of_total(right, len(runs))
            rows.append(_SPEECH.row(key, ours, often, kind=KINDS[name], right=RIGHT))
        power = [_best([*result["random"], *result["directions"]]) for result in results]
        angle = median(results, "map", "angle")
        return [
            *rows,
            _speaker_row("power", power),
            _speaker_row("laplace", [_best(result["laplace"]) for result in results]),
            _SPEECH.row("map", round(angle, 2), below(angle, RIGHT)),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Angles, scatter and correlations of the first set of speakers."""
        first = finished[0]
        _, _, mixed = three_speakers(first.case)
        best = {KINDS[name]: _best(first.result[name]) for name in KINDS}
        return ica_figures.speaker_panels(mixed, best, DIRECTIONS, KINDS["laplace"])


KINDS = {
    "truth": "power law, from the truth",
    "random": "power law, random starts",
    "directions": "power law, from strong samples",
    "laplace": "Laplace, from strong samples, noise fixed",
}


def _separated(
    model: Model, data: Observations, iterations: int, true: Array, sources: Array
) -> Result:
    """EM by linear response: how the angles went, and what became of the sources."""
    posterior = parse_posterior("lr")
    learning = EMIteration(
        model, data, posterior, Rules("free", parse_mixing_prior("flat"), "none")
    )
    angles = [_degrees(model.mixing)]
    for step in islice(learning.steps("em", None, 0), iterations):
        angles.append(_degrees(learning.model.mixing))
        if step.residual < 1e-4:
            break
    estimated = posterior.solve(learning.model.problem(data)).mean.T
    return {**_judged(learning.model.mixing, estimated, true, sources), "angles": angles}


def _by_map(mixed: Array, true: Array, sources: Array, seed: int) -> Result:
    from kikuchi.ica.infomax.infomax_ica import InfomaxICA

    with warnings.catch_warnings(action="ignore"):
        ica = InfomaxICA(_SPEAKERS, view="causal", random_state=seed).fit(mixed)
    return _judged(ica.mixing_, ica.transform(mixed), true, sources)


def _judged(mixing: Array, estimated: Array, true: Array, sources: Array) -> Result:
    match = match_sources(estimated, sources)
    ordered = match.apply(estimated)
    both = np.abs(np.corrcoef(np.hstack([sources, ordered]).T)[:_SPEAKERS, _SPEAKERS:])
    return {
        "mixing": mixing.tolist(),
        "angle": float(column_angles(mixing, true).max()),
        "correlation": np.nan_to_num(both).tolist(),
        "matched": match.correlation.tolist(),
    }


def _degrees(mixing: Array) -> list[float]:
    """Directions of the columns in (-90, 90] degrees."""
    angles = np.rad2deg(np.arctan2(mixing[1], mixing[0]))
    return [float(a) for a in np.round(90.0 - (90.0 - angles) % 180.0, 2)]


def _best(runs: Sequence[Result]) -> Result:
    """The run whose sources correlate best with the true ones: known only to who mixed them."""
    return max(runs, key=lambda run: min(run["matched"]))


_SPEECH = Claims.of(__name__, "HOJ-E5")


def _speaker_row(prior: str, best: Sequence[Result]) -> Row:
    """Least correlation of a source with its own speaker, and largest with another."""
    own = min(min(run["matched"]) for run in best)
    apart = ~np.eye(_SPEAKERS, dtype=bool)
    others = max(float(np.max(np.array(run["correlation"])[apart])) for run in best)
    judgement = holds(own > 0.7 and others < 0.5, "above 0.7, below 0.5")
    return _SPEECH.row(prior, f"≥ {own:.2f}, ≤ {others:.2f}", judgement)


# ---------------------------------------------------------------------- digits


def hoyer_sparsity(columns: Array) -> Array:
    """Hoyer's sparsity of each column: 0 when all entries are equal in size, 1 for a single one.

    >>> hoyer_sparsity(np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])).tolist()
    [1.0, 0.0]
    """
    root = np.sqrt(len(columns))
    lengths = np.linalg.norm(columns, axis=0)
    ratio = np.abs(columns).sum(axis=0) / np.where(lengths > 0, lengths, 1.0)
    return np.asarray((root - ratio) / (root - 1.0))


def spread_of(columns: Array, shape: tuple[int, int]) -> Array:
    """Root mean square distance of the weight |a|² of each image from its middle, in pixels.

    >>> spread_of(np.array([[1.0], [0.0], [0.0], [1.0]]), (1, 4)).tolist()
    [1.5]
    """
    grid = np.indices(shape).reshape(2, -1).astype(np.float64)
    weight = columns**2 / np.maximum((columns**2).sum(axis=0), 1e-300)
    middle = grid @ weight
    return np.asarray(np.sqrt(((grid**2) @ weight - middle**2).sum(axis=0)))


class DigitParts(Experiment):
    """Positive sources of the digit 3, with free and with positive mixing (HOJ-E6)."""

    id: ClassVar[str] = "HOJ-E6"

    def run_case(self, case: Case) -> Result:
        """Hidden images by three ways, and how local they are."""
        pixels, shape = threes(case["data"], case["count"])
        inside = np.ptp(pixels, axis=0) > 0
        images = {"nmf": _factorised(pixels, case["sources"], case["seed"])}
        for name, mixing in (("free", "free"), ("positive", "nonnegative")):
            images[name] = np.zeros((pixels.shape[1], case["sources"]))
            images[name][inside] = _encoded(pixels[:, inside], mixing, case)
        return {
            "shape": list(shape),
            **{name: _measured(columns, pixels, shape) for name, columns in images.items()},
            "match": _cosines(images["positive"], images["nmf"]),
            "free_match": _cosines(images["free"], images["nmf"]),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Sparsity, spread and agreement of the images."""
        results = [one.result for one in finished]

        def means(key: str) -> tuple[float, float, float]:
            positive, free, nmf = (average(results, n, key) for n in ("positive", "free", "nmf"))
            return positive, free, nmf

        positive, free, nmf = means("sparsity")
        local, wide, known = means("spread")
        negative, free_negative, _ = means("negative")
        rest, free_rest, nmf_rest = means("rest")
        used = min(result[name]["used"] for result in results for name in ("positive", "free"))
        count = len(np.transpose(results[0]["positive"]["images"]))
        alike, free_alike = (
            float(np.mean([np.mean(np.array(result[key]) > 0.7) for result in results]))
            for key in ("match", "free_match")
        )
        most = holds(alike > 0.5 and alike > free_alike, "more than half, and than of free mixing")
        smaller = holds(local < 0.8 * wide, "less than 0.8 of it")
        both, rests = f"{local:.1f} against {wide:.1f}", f"{rest:.3f} against {free_rest:.3f}"
        return [
            _DIGITS.row("positive", round(positive, 3)),
            _DIGITS.row("free", round(free, 3), below(free, positive - 0.15, "positive by 0.15")),
            _DIGITS.row("nmf", round(nmf, 3), within(nmf, positive, 0.1)),
            _DIGITS.row("spread", both, smaller, nmf=known),
            _DIGITS.row("negative", negative, within(negative, 0, 0), free=free_negative),
            _DIGITS.row("alike", f"{alike:.0%}", most, free=free_alike),
            _DIGITS.row("rest", rests, nmf=nmf_rest),
            _DIGITS.row("used", of_total(used, count), all_of(used, count), count=count),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Three sheets of hidden images."""
        first = finished[0].result
        titles = {
            "nmf": "factorisation",
            "free": "exponential sources, free mixing",
            "positive": "exponential sources, positive mixing",
        }
        height, width = first["shape"]
        sheets = {title: np.array(first[name]["images"]).T for name, title in titles.items()}
        return ica_figures.part_sheets(sheets, (height, width))


def threes(data: str | None, count: int) -> tuple[Array, tuple[int, int]]:
    """Pixels (images, pixels) of the first `count` threes, and the shape of an image."""
    from kikuchi.data.digits import digits

    images = digits("mnist" if data is None else data)
    pixels = np.asarray(images.pixels, dtype=np.float64)
    if images.labels is not None:
        pixels = pixels[np.asarray(images.labels) == 3]
    if len(pixels) < 50:
        raise DataError(f"{data}: {len(pixels)} images of the digit 3; at least 50 are needed")
    return pixels[:count], (int(images.shape[0]), int(images.shape[1]))


def _factorised(pixels: Array, sources: int, seed: int) -> Array:
    from sklearn.decomposition import NMF

    with warnings.catch_warnings(action="ignore"):
        found = NMF(sources, init="nndsvda", max_iter=500, random_state=seed).fit(pixels)
    return np.asarray(found.components_.T)


def _encoded(pixels: Array, mixing: Any, case: Case) -> Array:
    from kikuchi.ica.mean_field_ica import MeanFieldICA

    ica = MeanFieldICA(
        case["sources"],
        prior="exponential",
        posterior="lr",
        mixing=mixing,
        start="samples",
        center=False,
        max_iter=case["iterations"],
        random_state=case["seed"],
    )
    with warnings.catch_warnings(action="ignore"):
        ica.fit(pixels)
    return np.asarray(ica.mixing_)


def _measured(columns: Array, pixels: Array, shape: tuple[int, int]) -> Result:
    """How local the images are, and how much of the digits their span leaves over."""
    lengths = np.linalg.norm(columns, axis=0)
    good = columns[:, lengths > 1e-3 * lengths.max()]
    rest = pixels.T - good @ np.linalg.lstsq(good, pixels.T, rcond=None)[0]
    scaled = columns / max(float(np.abs(columns).max()), 1e-300)
    return {
        "sparsity": float(hoyer_sparsity(good).mean()),
        "spread": float(spread_of(good, shape).mean()),
        "negative": float(np.mean(good < -1e-3 * np.abs(good).max(axis=0))),
        "used": int(good.shape[1]),
        "rest": float(np.sqrt(np.mean(rest**2))),
        "images": scaled.round(4).tolist(),
    }


def _cosines(one: Array, other: Array) -> list[float]:
    """Cosines of matched columns."""
    from scipy.optimize import linear_sum_assignment

    def unit(columns: Array) -> Array:
        return np.asarray(columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300))

    cosines = np.abs(unit(one).T @ unit(other))
    rows, columns = linear_sum_assignment(-cosines)
    matched: list[float] = cosines[rows, columns].tolist()
    return matched


_DIGITS = Claims.of(__name__, "HOJ-E6")
