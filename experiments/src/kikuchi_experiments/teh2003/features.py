"""Teh's thesis, section 4.7: features of speech, photographs, digits and faces (TEH-E4 to TEH-E7).

Student-t experts on more linear features than there are dimensions, learnt by contrastive
divergence with Hybrid Monte Carlo. TIMIT, van Hateren's photographs, CEDAR and FERET cannot be
given out with a package; the stand-ins are synthesised voices, photographs of registry packages,
MNIST at 16 x 16 and ORL. The thesis begins with random directions and does not say for how long it
learns; here filters begin as independent components (of faces, of which there are few, along rows),
and chains move in radial coordinates with few leapfrog steps: minutes in the place of hours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.data.faces import unmask
from kikuchi_experiments.aggregate import Claims, above, average, below, grouped, holds
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.teh2003 import features_figures
from kikuchi_experiments.teh2003.faces import LOCAL, locality, prepared
from kikuchi_experiments.teh2003.faces_figures import packed, unpacked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.energy.expert_ica import ExpertICA

GABOR = 0.8  # part of its variance that a Gabor function must explain of a filter
AXES = 15.0  # degrees from horizontal or vertical
BAND = (1000.0, 2000.0)  # Hz, around the 1.5 kHz of the thesis
_SHOWN = 48
_PATCH, _WINDOW, _RATE = 16, 100, 8000
_FLAT = 0.06


def learnt(case: Case, rows: Any, **options: Any) -> ExpertICA:
    """Experts trained with the settings of a case."""
    from kikuchi.energy.expert_ica import ExpertICA

    per_epoch = math.ceil(len(rows) / 100)
    return ExpertICA(
        n_components=case["features"],
        start=case["start"],
        learner=case["learner"],
        solver="adam",
        momentum=0.0,
        learning_rate=case["rate"],
        schedule="cosine",
        weight_decay=case["decay"],
        max_iter=max(1, round(case["updates"] / per_epoch)),
        random_state=case["seed"],
        **options,
    ).fit(rows)


def shown(pictures: Array) -> list[str]:
    """Some of the pictures, each scaled to its own size, as texts."""
    some = pictures[np.linspace(0, len(pictures) - 1, min(_SHOWN, len(pictures))).astype(int)]
    return packed(0.5 + 0.5 * some / np.abs(some).max(axis=1, keepdims=True))


def by_power(filters: Array) -> Array:
    """Filters from the strongest to the weakest."""
    return filters[np.argsort(-np.linalg.norm(filters, axis=1))]


def excess_kurtosis(outputs: Array) -> float:
    """Mean over features of how much heavier than Gaussian their tails are."""
    centred = outputs - outputs.mean(axis=0)
    squares = centred**2
    return float(np.mean(np.mean(squares**2, axis=0) / np.mean(squares, axis=0) ** 2 - 3.0))


def told(model: ExpertICA) -> Result:
    """How the learning went."""
    measures = model.trace_.measures
    return {"acceptance": float(measures["acceptance"][-1]), "warnings": model.warnings_}


class PhotographFeatures(Experiment):
    """Filters of patches of photographs, three for each pixel.

    With `data` the pictures of a folder or file take the place of those of packages.
    """

    id: ClassVar[str] = "TEH-E5"

    def run_case(self, case: Case) -> Result:
        """Learn, fit Gabor functions, and measure how they tile space and frequency."""
        from scipy.stats import spearmanr

        from kikuchi.data.photographs import photographs
        from kikuchi.energy.filters import fit_gabors
        from kikuchi.energy.preparation import patches

        pictures = [p.grey for p in photographs(case["data"] or "photographs")]
        rows = patches(
            pictures, _PATCH, case["rows"], log=True, reject_flat=_FLAT, seed=case["seed"]
        )
        model = learnt(case, rows)
        filters = by_power(model.filters_)
        fits = fit_gabors(filters, (_PATCH, _PATCH))
        good = fits.r_squared > GABOR
        turned = np.mod(fits.orientation[good], 90.0)
        near = np.minimum(turned, 90.0 - turned) < AXES
        size = np.sqrt(fits.spread[good].prod(axis=1))
        frequency = fits.frequency[good]
        octaves = np.log2(frequency)
        return {
            **told(model),
            "share": fits.share(GABOR),
            "not_local": int(np.sum(locality(filters, np.ones((_PATCH, _PATCH), bool)) < LOCAL)),
            "near_axes": float(np.mean(near)) if good.any() else None,
            "size_frequency": float(spearmanr(size, frequency)[0]) if good.sum() > 2 else None,
            "octaves": float(np.ptp(np.percentile(octaves, [5, 95]))) if good.any() else None,
            "kurtosis": excess_kurtosis(model.transform(rows.rows[:5000])),
            "flat": rows.preparation.flat / rows.preparation.drawn,
            "tiles": shown(filters),
            "centres": np.round(fits.centre[good], 2).tolist(),
            "waves": np.round(
                np.column_stack([fits.frequency, fits.orientation])[good], 3
            ).tolist(),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Shares, directions and sizes of the filters."""
        results = [one.result for one in finished]
        first, share = finished[0].case, average(results, "share")
        lost = f"{average(results, 'not_local'):.0f} of {first['features']}"
        note = {"updates": first["updates"], "rows": first["rows"], "runs": len(results)}
        rows = [
            _PHOTOGRAPHS.row("gabor", f"{share:.1%}", above(share, 0.9, "90 %"), **note),
            _PHOTOGRAPHS.row("local", lost, local=LOCAL),
            _PHOTOGRAPHS.row("kurtosis", f"{average(results, 'kurtosis'):.1f}"),
        ]
        if any(result["size_frequency"] is None for result in results):
            return rows  # too few Gabor functions to speak of their directions
        near, trend, scales = (
            average(results, name) for name in ("near_axes", "size_frequency", "octaves")
        )
        return [
            *rows,
            _PHOTOGRAPHS.row("axes", f"{near:.0%}", above(near, 1 / 3, "33 %, all alike")),
            _PHOTOGRAPHS.row("sizes", f"{trend:.2f}", below(trend, 0.0)),
            _PHOTOGRAPHS.row("scales", f"{scales:.1f}", above(scales, 1.0, "1")),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Filters, and where their Gabor functions are in space and frequency."""
        result = finished[0].result
        tiles = _pictures(result["tiles"], np.ones((_PATCH, _PATCH), bool))
        return features_figures.photographs(tiles, result["centres"], result["waves"], _PATCH)


class DigitFeatures(Experiment):
    """Filters of handwritten digits: straight and curved strokes.

    With `data` the digits of a file take the place of MNIST.
    """

    id: ClassVar[str] = "TEH-E6"

    def run_case(self, case: Case) -> Result:
        """Learn, and tell strokes that are straight from others."""
        from kikuchi.data.digits import digits
        from kikuchi.energy.filters import fit_gabors
        from kikuchi.energy.whitening import Whitening

        images = digits(case["data"] or "mnist", side=_PATCH)
        white = Whitening.fit(images.pixels, "zca", case["components"])(images.pixels)
        model = learnt(case, white, whiten="pca", pca_components=case["components"])
        filters = by_power(model.filters_)
        local = locality(filters, np.ones((_PATCH, _PATCH), bool)) > LOCAL
        straight = fit_gabors(filters, (_PATCH, _PATCH)).r_squared > GABOR
        return {
            **told(model),
            "digits": len(white),
            "local": float(np.mean(local)),
            "straight": float(np.mean(straight)),
            "curved": float(np.mean(local & ~straight)),
            "kurtosis": excess_kurtosis(model.transform(white)),
            "tiles": shown(filters),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """How many filters are local, straight and curved."""
        results = [one.result for one in finished]
        local, straight, curved = (average(results, n) for n in ("local", "straight", "curved"))
        count = results[0]["digits"]
        return [
            _DIGITS.row(
                "local", f"{local:.0%}", above(local, 0.5, "half"), local=LOCAL, count=count
            ),
            _DIGITS.row("straight", f"{straight:.0%}", above(straight, 0.1, "10 %")),
            _DIGITS.row("curved", f"{curved:.0%}", above(curved, 0.05, "5 %")),
            _DIGITS.row("kurtosis", f"{average(results, 'kurtosis'):.1f}"),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Filters of white digits."""
        tiles = _pictures(finished[0].result["tiles"], np.ones((_PATCH, _PATCH), bool))
        return features_figures.tiles({"Filters of white digits": tiles})


class FaceFeatures(Experiment):
    """Features of faces: of the pictures, and of the pixels across the pictures (TEH-M21).

    With `data` the faces of a file take the place of ORL.
    """

    id: ClassVar[str] = "TEH-E7"
    case_axes: ClassVar[CaseAxes] = {"representation": ("standard", "transposed")}

    def run_case(self, case: Case) -> Result:
        """Learn, and measure how local the features are."""
        pixels, mask, _ = prepared(case["data"], case["side"])
        transposed = case["representation"] == "transposed"
        rows = pixels.T if transposed else pixels
        model = learnt(case, rows, whiten="pca", pca_components=case["components"])
        features = model.transform(rows).T if transposed else by_power(model.basis_)
        return {
            **told(model),
            "pictures": len(pixels),
            "pixels": int(mask.sum()),
            "locality": [round(float(x), 4) for x in locality(features, mask)],
            "tiles": shown(features),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Share of local features in both representations."""
        rows, middle = [], {}
        for name, part in grouped(finished, "representation").items():
            shares = np.concatenate([one.result["locality"] for one in part])
            local, middle[name] = float(np.mean(shares > LOCAL)), float(np.median(shares))
            judged = below(local, 0.5, "half") if name == "standard" else above(local, 0.9, "90 %")
            count = part[0].result["pictures"]
            ours = f"{local:.0%} / {middle[name]:.2f}"
            rows.append(_FACES.row(name, ours, judged, local=LOCAL, count=count))
        if len(middle) == 2:
            gain = middle["transposed"] - middle["standard"]
            rows.append(_FACES.row("gain", f"{gain:+.2f}", above(gain, 0.0)))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Features of both representations."""
        case = finished[0].case
        mask = prepared(case["data"], case["side"])[1]
        names = {"standard": "Features of pictures", "transposed": "Features of pixels"}
        panels = {
            names[name]: _pictures(part[0].result["tiles"], mask)
            for name, part in grouped(finished, "representation").items()
        }
        return features_figures.tiles(panels)


class SpeechFeatures(Experiment):
    """Filters of speech, two for each sample of a window.

    With `data` the channels of a recording take the place of synthesised voices.
    """

    id: ClassVar[str] = "TEH-E4"

    def run_case(self, case: Case) -> Result:
        """Learn, and measure where in time and frequency the power of each filter is."""
        from kikuchi.energy.filters import time_frequency
        from kikuchi.energy.preparation import patches

        voices, rate = _voices(case)
        windows = patches(
            voices, _WINDOW, case["rows"], remove_mean=False, reject_flat=1e-3, seed=case["seed"]
        )
        model = learnt(case, windows)
        found = time_frequency(by_power(model.filters_), rate)
        peaks, seconds, band = found.frequency, found.time_spread, found.frequency_spread
        near = (peaks >= BAND[0]) & (peaks <= BAND[1])
        return {
            **told(model),
            "duration": float(np.median(seconds) * rate / _WINDOW),
            "bandwidth": float(np.median(band) / (rate / 2)),
            "near": int(near.sum()),
            "longer": float(np.median(seconds[near]) / np.median(seconds)) if near.any() else None,
            "sharper": float(np.median(band[near]) / np.median(band)) if near.any() else None,
            "power": np.round(found.coverage / found.coverage.max(), 4).tolist(),
            "filters": np.round(by_power(model.filters_)[:10], 4).tolist(),
            "rate": rate,
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """How local filters are, and those around 1.5 kHz against all."""
        results = [one.result for one in finished]
        own = finished[0].case["data"] is not None
        duration, band = average(results, "duration"), average(results, "bandwidth")
        rows = [
            _SPEECH.row("time", f"{duration:.2f}", below(duration, 0.2)),
            _SPEECH.row("frequency", f"{band:.2f}", below(band, 0.2)),
        ]
        with_band = [r for r in results if r["near"]]
        if with_band:
            longer, sharper = average(with_band, "longer"), average(with_band, "sharper")
            judged = holds(longer > 1 and sharper < 1, "longer, and more finely tuned")
            ours, source = f"{longer:.2f} / {sharper:.2f}", "recorded" if own else "synthesised"
            rows.append(_SPEECH.row("band", ours, judged if own else None, source=source))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Filters, and the power of all of them over time and frequency."""
        result = finished[0].result
        return features_figures.speech(result["filters"], result["power"], result["rate"])


def _voices(case: Case) -> tuple[list[Array], float]:
    """Voices one by one, and samples per second."""
    from kikuchi.data.speech import speech_like
    from kikuchi.ica.recordings import read_recording

    if case["data"] is None:
        both = speech_like(case["voices"], case["seconds"], _RATE, kind="voiced", seed=case["seed"])
        return list(both.T), float(_RATE)
    recording = read_recording(case["data"])
    return list(recording.data.T), recording.rate or float(_RATE)


def _pictures(texts: Sequence[str], mask: Mask) -> Array:
    return unmask(2.0 * unpacked(texts) - 1.0, mask, 0.0)


_SPEECH = Claims.of(__name__, "TEH-E4")
_PHOTOGRAPHS = Claims.of(__name__, "TEH-E5")
_DIGITS = Claims.of(__name__, "TEH-E6")
_FACES = Claims.of(__name__, "TEH-E7")
