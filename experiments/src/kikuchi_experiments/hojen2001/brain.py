"""Højen-Sørensen's thesis, chapter 5: how many binary sources, and brain scans (HOJ-E7 to E9)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import DataError
from kikuchi.core.seeds import generator
from kikuchi.plots import ica as ica_plots
from kikuchi_experiments.experiment import Case, Experiment, Finished, Result, Row
from kikuchi_experiments.hojen2001 import ica_figures
from kikuchi_experiments.hojen2001.tables import (
    RATES,
    largest,
    order_rows,
    spatial_rows,
    temporal_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.ica.order import Choice

_CLEAR: dict[str, Any] = {"noise": 0.6, "drift": 1.0}  # of scans with less noise, more movement


# ---------------------------------------------------------------------- the number of sources


def binary_sensors(seed: int, sensors: int, count: int) -> tuple[Array, Array, Array]:
    """Mixing (sensors, 5), samples (count, sensors) and sources (count, 5), binary with the rates
    of the document, with standard normal mixing and unit noise (HOJ-E7).

    >>> [part.shape for part in binary_sensors(0, 50, 500)]
    [(50, 5), (500, 50), (500, 5)]
    """
    rng = generator(seed)
    mixing = rng.standard_normal((sensors, len(RATES)))
    sources = (rng.random((count, len(RATES))) < np.array(RATES)).astype(np.float64)
    return mixing, sources @ mixing.T + rng.standard_normal((count, sensors)), sources


class NumberOfSources(Experiment):
    """How many binary sources there are, by BIC (HOJ-E7, L8)."""

    id: ClassVar[str] = "HOJ-E7"

    def run_case(self, case: Case) -> Result:
        """All numbers of sources by naive mean field; likelihoods of the fits also exactly."""
        _, samples, sources = binary_sensors(case["seed"], case["sensors"], case["count"])
        choice = choose(samples, case["sources"], case["restarts"], case["seed"])
        log_count = float(np.log(case["count"]))
        free, exact, sizes = {}, {}, {}
        for k, fit in choice.estimators.items():
            sizes[k] = fit.n_parameters()
            free[k] = choice.values[k] + 0.5 * sizes[k] * log_count
            exact[k] = float(fit.set_params(posterior="exact").score_samples(samples).sum())
        five = choice.estimators.get(5)
        return {
            "chosen": choice.n_components,
            "bic": _texts(choice.values),
            "exact": {str(k): v - 0.5 * sizes[k] * log_count for k, v in exact.items()},
            "literal": {str(k): v - 0.5 * k * log_count for k, v in free.items()},
            "average": _texts(choice.averages),
            "gap": {str(k): exact[k] - free[k] for k in exact},
            "restart_gap": {str(k): mean_gap(f, samples) for k, f in choice.estimators.items()},
            "rates": [] if five is None else sorted(p.rate for p in five.priors_),
            "drawn_rates": np.sort(sources.mean(axis=0)).tolist(),
            "noise": None if five is None else float(five.noise_),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """The number chosen, the two likelihoods, the printed penalty, and what was learned."""
        return order_rows([one.result for one in finished])

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Curves of the first data set, rates of all."""
        first = finished[0].result
        curves = {
            "free energy": first["bic"],
            "exact likelihood": first["exact"],
            "mean of all restarts": first["average"],
            "penalty as printed": first["literal"],
        }
        return ica_figures.order_panels(curves, [one.result["rates"] for one in finished], RATES)


def choose(samples: Array, sources: Sequence[int], restarts: int, seed: int) -> Choice:
    """Naive mean field with binary sources of learned rates, for each number of sources."""
    from kikuchi.ica.mean_field_ica import MeanFieldICA

    ica = MeanFieldICA(
        prior="binary01", posterior="naive", n_init=restarts, random_state=seed, max_iter=100
    )
    with warnings.catch_warnings(action="ignore"):  # only how fits end counts here
        return ica.choose_sources(samples, sources)


def mean_gap(fit: Any, samples: Array) -> float:
    """By how much the bound is below the exact likelihood, in nats, on average over restarts."""
    from kikuchi.ica.model import Observations
    from kikuchi.ica.posteriors.posterior import parse_posterior

    data = Observations.of(samples.T)
    gaps = []
    for restart in fit.restarts_:
        problem = restart.model.problem(data)
        exact, bound = (parse_posterior(name).solve(problem).log_z for name in ("exact", "naive"))
        assert exact is not None and bound is not None
        gaps.append(float(np.sum(exact - bound)))
    return float(np.mean(gaps))


def _texts(values: Mapping[int, float]) -> dict[str, float]:
    return {str(k): v for k, v in values.items()}


# ---------------------------------------------------------------------- brain scans


SIMULATED = ("simulated", "clear")


class Scans(NamedTuple):
    """A matrix (scans, voxels) without the mean of each voxel, and what is known about it."""

    matrix: Array
    mask: Mask
    anatomy: Array
    interval: float | None
    stimulus: Array | None = None
    response: Array | None = None
    maps: Array | None = None


def load_scans(case: Case) -> Scans:
    """The scans of a case: simulated, of nitime, or of a file."""
    from kikuchi.ica.fmri import read_nifti
    from kikuchi_experiments.data.brain import brain_file, simulate_brain

    name = case["recording"]
    if name in SIMULATED:
        brain = simulate_brain(
            tuple(case["shape"]),
            case["scans"],
            noise=case["noise"],
            drift=case["drift"],
            seed=case["seed"],
        )
        known = brain.stimulus, brain.response, brain.voxel_maps
        return Scans(brain.matrix, brain.mask, brain.anatomy, brain.interval, *known)
    recording = read_nifti(case["data"] or brain_file(name))
    assert recording.mask is not None
    mean = recording.data.mean(axis=0)
    matrix = recording.data - mean
    interval = None if recording.rate is None else 1.0 / recording.rate
    scale = float(matrix.std())
    if not scale > 0:
        raise DataError(f"{recording.source}: no voxel changes over time")
    return Scans(matrix / scale, recording.mask, recording.volume(mean), interval)


def in_volume(values: Array, mask: Mask) -> Array:
    """Maps (components, voxels) in their places; zero outside the brain."""
    out = np.zeros((len(values), *mask.shape))
    out[:, mask] = values
    return out


class TemporalBrain(Experiment):
    """Binary time courses with real-valued images (HOJ-E8, M11)."""

    id: ClassVar[str] = "HOJ-E8"
    orientation: ClassVar[str] = "temporal"

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """Simulated scans, one case per seed, and small real recordings; or a file alone."""
        rest = {key: value for key, value in parameters.items() if key != "recordings"}
        cases = []
        for name in ["file"] if self.data is not None else parameters["recordings"]:
            numbers = seeds if name == "simulated" else seeds[:1]
            more = {**rest, **(_CLEAR if name == "clear" else {}), **self.source()}
            cases += [{"recording": name, "seed": s, **more} for s in numbers]
        return cases

    def run_case(self, case: Case) -> Result:
        """BIC of each number, then the best fit with at least one source."""
        scans = load_scans(case)
        choice = choose(scans.matrix, case["sources"], case["restarts"], case["seed"])
        voxels, count = scans.matrix.shape[::-1]
        one = choice.estimators[1]
        course = one.transform(scans.matrix)[:, 0]
        image = one.mixing_[:, 0]
        if scans.response is not None and np.corrcoef(course, scans.response)[0, 1] < 0:
            course, image = 1.0 - course, -image  # on and off change places
        return {
            "chosen": choice.n_components,
            "bic": {**_texts(choice.values), "0": choice.null_models["isotropic"]},
            "penalty": 0.5 * (voxels + 1) * float(np.log(count)),
            "course": course.tolist(),
            "image": _shown(image),
            **_against_truth(scans, course[None], image[None]),
            "delay": _delay(course, scans),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """The number of sources, the time course and the image."""
        return temporal_rows(finished)

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Image and time course of the first recording."""
        first = finished[0]
        scans = load_scans(first.case)
        return ica_plots.brain_components(
            in_volume(np.array([first.result["image"]]), scans.mask),
            np.array([first.result["course"]]),
            anatomy=scans.anatomy,
            names=["the source"],
            reference=scans.response,
            stimulus=scans.stimulus,
            interval=scans.interval,
            n_slices=4,
        )


class SpatialBrain(TemporalBrain):
    """Binary images with real-valued time courses (HOJ-E9, M11)."""

    id: ClassVar[str] = "HOJ-E9"
    orientation: ClassVar[str] = "spatial"

    def run_case(self, case: Case) -> Result:
        """BIC in both orientations, then maps and courses of the spatial fit that is preferred."""
        scans = load_scans(case)
        voxel_rows = np.ascontiguousarray(scans.matrix.T)
        choice = choose(voxel_rows, case["sources"], case["restarts"], case["seed"])
        other = choose(scans.matrix, case["sources"], case["restarts"], case["seed"])
        voxels, count = scans.matrix.shape[::-1]
        values = {**_texts(choice.values), "0": choice.null_models["isotropic"]}
        fit = choice.estimators[max(1, largest(values))]
        maps, courses = fit.transform(voxel_rows).T, fit.mixing_.T
        order = np.argsort(-np.sum(courses**2, axis=1) * maps.var(axis=1))
        maps, courses = maps[order], courses[order]
        return {
            "chosen": largest(values),
            "temporal": other.n_components,
            "bic": values,
            "penalty": 0.5 * (count + 1) * float(np.log(voxels)),
            "other_penalty": 0.5 * (voxels + 1) * float(np.log(count)),
            "maps": [_shown(row) for row in maps],
            "courses": courses.round(5).tolist(),
            **_against_truth(scans, courses, maps),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Numbers of sources in both orientations, and what was found."""
        return spatial_rows(finished)

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Maps and time courses of the first recording."""
        first = finished[0]
        scans, result = load_scans(first.case), first.result
        followed = result["stimulus"]
        remarks = None
        if followed is not None:
            remarks = [f"correlation with the response {value:+.2f}" for value in followed]
        return ica_plots.brain_components(
            in_volume(np.array(result["maps"]), scans.mask),
            np.array(result["courses"]),
            anatomy=scans.anatomy,
            names=[f"source {k + 1}" for k in range(len(result["maps"]))],
            remarks=remarks,
            reference=scans.response,
            stimulus=scans.stimulus,
            interval=scans.interval,
            n_slices=4,
        )


def _shown(values: Array) -> list[float]:
    rounded: list[float] = values.round(5).tolist()
    return rounded


def _against_truth(scans: Scans, courses: Array, maps: Array) -> Result:
    """Correlations of courses with the response, of maps with the first true one (the visual
    areas), and of each true map with the best of those found; None where nothing is known.
    """
    if scans.response is None or scans.maps is None:
        return {"stimulus": None, "visual": None, "map_match": None}
    followed = [float(np.corrcoef(course, scans.response)[0, 1]) for course in courses]
    both = np.abs(np.corrcoef(np.vstack([scans.maps, maps])))
    sizes = both[: len(scans.maps), len(scans.maps) :]
    return {
        "stimulus": followed,
        "visual": sizes[0].tolist(),
        "map_match": sizes.max(axis=1).tolist(),
    }


def _delay(course: Array, scans: Scans) -> float | None:
    """Seconds by which the stimulus must be shifted to agree best with the time course."""
    if scans.stimulus is None or scans.interval is None:
        return None
    lags = range(max(2, int(12.0 / scans.interval)))
    ends = len(course)
    scores = [float(np.corrcoef(course[k:], scans.stimulus[: ends - k])[0, 1]) for k in lags]
    return int(np.argmax(scores)) * scans.interval
