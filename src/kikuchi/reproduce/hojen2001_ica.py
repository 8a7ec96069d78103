"""Højen-Sørensen's thesis, chapter 4: mean functions, binary and overcomplete mixtures.

HOJ-E1 to HOJ-E4. All fits begin at the same random mixing matrix for every posterior and run plain
EM, so that what differs is the posterior alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.seeds import generator
from kikuchi.ica.em import Learning, Rules
from kikuchi.ica.measures import column_angles
from kikuchi.ica.mixing import parse_mixing_prior
from kikuchi.ica.model import Data, Model
from kikuchi.ica.posteriors import parse_posterior
from kikuchi.ica.priors import as_priors, parse_prior
from kikuchi.ica.starts import make_start
from kikuchi.reproduce.experiment import Case, Experiment, Finished, Result, Row, Setting, Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

DOCUMENT = "Højen-Sørensen 2001"
METHODS = {"naive": "naive mean field", "lr": "linear response", "adatap": "adaptive TAP"}
LOST = 0.3  # a column shorter than this share of the shortest true one is lost
RIGHT = 10.0  # degrees within which all columns must be
_PAIRED = "means of the runs that all got right; judged by the median difference"
_SHOWN = 80  # points of a trace that are kept


# ---------------------------------------------------------------------- mean functions

SURFACES = {  # figure 4.2
    "bi-Gaussian, means ±1": "bi-gaussian:mean=1,variance=1",
    "bi-Gaussian, means ±4": "bi-gaussian:mean=4,variance=1",
    "Laplace, rate 1/2": "laplace:rate=0.5",
    "Laplace, rate 2": "laplace:rate=2",
    "exponential, rate 1/2": "exponential:rate=0.5",
    "exponential, rate 2": "exponential:rate=2",
    "five Gaussians": "mixture:weights=(1,1,1,1,1),means=(-4,-1,0,1,4),variances=(1,4,16,4,1)",
    "power law, exponent 1": "power-law:alpha=1",
}
CURVES = {  # figure 4.3, lambda = 1; the last one is so wide that it stands for no prior at all
    "Gaussian": "gaussian",
    "Gaussians at ±3": "mixture:weights=(0.5,0.5),means=(-3,3),variances=(1,1)",
    "Gaussians, deviations 1 and 2": "mixture:weights=(0.5,0.5),means=(0,0),variances=(1,4)",
    "Laplace, rate 1": "laplace:rate=1",
    "Laplace, rate 1/4": "laplace:rate=0.25",
    "power law, exponent 1/2": "power-law:alpha=0.5",
    "improper uniform": "uniform:low=-1e6,high=1e6",
}
GOLDEN = {  # mean and response at gamma = lambda = 1, by quadrature (catalogue, HOJ-M8)
    "bi-Gaussian, means ±1": (0.731059, 0.696612),
    "five Gaussians": (0.976017, 1.021913),
    "power law, exponent 1": (0.5, 1.0),
    "Gaussian": (0.5, 0.5),
    "Gaussians at ±3": (1.857722, 0.906590),
    "Gaussians, deviations 1 and 2": (0.627070, 0.649044),
    "Laplace, rate 1": (0.503223, 0.558957),
    "Laplace, rate 1/4": (0.841913, 0.878607),
    "power law, exponent 1/2": (0.666667, 1.111111),
}
_FAR = 12.0  # the gamma at which figure 4.3 is put in order
_STEP = 1e-4


class MeanFunctions(Experiment):
    """Mean and response of the source priors (HOJ-E1, M8)."""

    id: ClassVar[str] = "HOJ-E1"
    document: ClassVar[str] = DOCUMENT
    title: ClassVar[str] = "Shapes of mean and response functions"
    claim: ClassVar[str] = (
        "A source prior enters only through its mean function: bimodal priors bend it near "
        "gamma = 0, Laplace far from it, exponential means are never negative; for large gamma the "
        "Gaussian has the lowest and the improper uniform prior the highest mean."
    )
    caption: ClassVar[str] = (
        "Means of a source against gamma for some lambda (figure 4.2 shows the same as surfaces), "
        "and at the lower right the means of seven priors at lambda = 1 (figure 4.3)."
    )
    status: ClassVar[Status] = "agrees"
    quick: ClassVar[Setting] = Setting(0, {"lams": [0.25, 1.0, 4.0], "points": 121}, "1 s")
    full: ClassVar[Setting] = Setting(0, {"lams": [0.1, 0.25, 1.0, 4.0], "points": 401}, "1 s")

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """One case for each prior of the two figures."""
        surfaces = [{"name": n, "prior": p, **parameters} for n, p in SURFACES.items()]
        single = {**parameters, "lams": [1.0]}
        return [*surfaces, *({"name": n, "prior": p, **single} for n, p in CURVES.items())]

    def run_case(self, case: Case) -> Result:
        """Means, responses, and how far the responses are from differences of the means."""
        prior = parse_prior(case["prior"])
        gamma = np.linspace(-_FAR, _FAR, case["points"])
        lam = np.array(case["lams"])[:, None]
        mean, response = prior.moments(gamma, lam)
        above, below = (prior.moments(gamma + s * _STEP, lam)[0] for s in (1, -1))
        golden = [float(a) for a in prior.moments(1.0, 1.0)]
        slopes = np.abs(np.gradient(prior.moments(gamma, 1.0)[1], gamma))
        return {
            "gamma": gamma.tolist(),
            "mean": mean.tolist(),
            "response": response.tolist(),
            "slope_error": float(np.abs((above - below) / (2 * _STEP) - response).max()),
            "at_one": golden,
            "bend": float(abs(gamma[int(np.argmax(slopes))])),
            "far": float(prior.moments(_FAR, 1.0)[0]),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """What the text says about the two figures, then values by quadrature."""
        found = {one.case["name"]: one.result for one in finished}
        return [*_shape_rows(found), *_golden_rows(found)]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """A panel for each surface, and one for the curves."""
        from kikuchi.reproduce.hojen2001_ica_figures import mean_functions

        found = {one.case["name"]: {**one.result, "lams": one.case["lams"]} for one in finished}
        surfaces = {n: found[n] for n in SURFACES if n in found}
        return mean_functions(surfaces, {n: found[n] for n in CURVES if n in found})


def _shape_rows(found: Mapping[str, Result]) -> list[Row]:
    rows = []
    curves = {n: found[n]["far"] for n in CURVES if n in found}
    if len(curves) == len(CURVES):
        lowest, highest = min(curves, key=curves.__getitem__), max(curves, key=curves.__getitem__)
        right = lowest == "Gaussian" and highest == "improper uniform"
        note = f"of {len(curves)} priors at gamma = {_FAR:g}, lambda = 1"
        expected = "Gaussian, improper uniform"
        ours = f"{lowest}, {highest}"
        rows.append(Row("lowest and highest mean", ours, expected, expected, note, right))
    bends = {n: found[n]["bend"] for n in SURFACES if n in found}
    if {"bi-Gaussian, means ±4", "Laplace, rate 2"} <= set(bends):
        near, far = bends["bi-Gaussian, means ±4"], bends["Laplace, rate 2"]
        note = "gamma where the response changes fastest: two Gaussians at ±4, then Laplace of rate"
        ours = f"{near:.2g} against {far:.2g}"
        said = "near 0 against far"
        rows.append(Row("place of the bend", ours, said, None, f"{note} 2", near < 0.5 * far))
    least = [float(np.min(found[n]["mean"])) for n in SURFACES if n.startswith("expon")]
    rows.append(
        Row("smallest mean of exponential sources", min(least), "≥ 0", "≥ 0", "", min(least) >= 0)
    )
    error = max(result["slope_error"] for result in found.values())
    note = "central differences, all priors and places of the figures"
    rows.append(
        Row("response minus slope of the mean", float(f"{error:.1g}"), 0, 0, note, error < 1e-5)
    )
    return rows


def _golden_rows(found: Mapping[str, Result]) -> list[Row]:
    rows = []
    for name, (mean, response) in GOLDEN.items():
        if name in found:
            ours = found[name]["at_one"]
            close = bool(np.allclose(ours, (mean, response), atol=2e-6, rtol=0))
            text = f"{ours[0]:.6f}, {ours[1]:.6f}"
            note = "corrected: quadrature"
            known = f"{mean:.6f}, {response:.6f}"
            rows.append(Row(f"mean, response at (1, 1): {name}", text, None, known, note, close))
    return rows


# ---------------------------------------------------------------------- fits that leave a trace


def trace_fit(
    samples: Array, start: Model, posterior: str, iterations: int, tol: float = 1e-5
) -> Result:
    """Plain EM from a model: the mixing matrix, the noise, and how both came about.

    >>> rng = np.random.default_rng(0)
    >>> rows = rng.choice([-1.0, 1.0], (400, 2)) @ np.eye(2) + 0.1 * rng.standard_normal((400, 2))
    >>> found = trace_fit(rows, random_start(rows, 2, "binary", 0), "lr", 50)
    >>> found["converged"], bool(found["noise"] < 0.02)
    (True, True)
    """
    rules = Rules("free", parse_mixing_prior("flat"), "none")
    learning = Learning(start, Data.of(samples.T), parse_posterior(posterior), rules)
    columns, noises, converged, taken = [start.mixing], [_variance(start)], False, 0
    for step in islice(learning.steps("em", None, 0), iterations):
        columns.append(learning.model.mixing)
        noises.append(_variance(learning.model))
        taken += 1
        if step.residual is not None and step.residual < tol:
            converged = True
            break
    keep = np.unique(np.linspace(0, taken, min(_SHOWN, taken + 1)).astype(np.intp))
    return {
        "mixing": columns[-1].tolist(),
        "noise": noises[-1],
        "iterations": taken,
        "converged": converged,
        "steps": keep.tolist(),
        "noise_trace": [noises[k] for k in keep],
        "column_trace": [columns[k].tolist() for k in keep],
    }


def random_start(samples: Array, sources: int, prior: str, seed: int) -> Model:
    """Random columns and noise as large as the data: the start that all methods share."""
    data = Data.of(samples.T)
    priors = as_priors(prior, sources)
    return make_start("random", data, priors, "isotropic", "free", np.random.default_rng(seed))


def judged(found: Result, true: Array, noise: float) -> Result:
    """The fit with its measures: worst angle, shortest column and noise, each beside the truth."""
    columns = np.array(found["mixing"])
    lengths = np.linalg.norm(columns, axis=0)
    share = float(lengths.min() / np.linalg.norm(true, axis=0).min())
    lost = share < LOST
    return {
        **found,
        "angle": float(column_angles(columns, true).max()),
        "share": share,
        "lost": bool(lost),
        "noise_ratio": found["noise"] / noise,
    }


def _variance(model: Model) -> float:
    return float(np.mean(model.noise.value))


# ---------------------------------------------------------------------- binary sources


def binary_mixture(seed: int, variance: float, count: int) -> tuple[Array, Array]:
    """Mixing (2, 2) and samples (count, 2) of HOJ-E2 and E3; seed 0 has the matrix of the
    catalogue, the others random ones with columns of length >= 0.7 that are 30 degrees apart.

    >>> binary_mixture(0, 0.3, 5)[0].tolist()
    [[1.0, 1.0], [1.0, -0.5]]
    """
    rng = generator(seed)
    mixing = np.array([[1.0, 1.0], [1.0, -0.5]])
    while seed and not _well_apart(mixing := rng.standard_normal((2, 2))):
        pass
    sources = rng.choice([-1.0, 1.0], (count, 2))
    noise = np.sqrt(variance) * rng.standard_normal((count, 2))
    return mixing, sources @ mixing.T + noise


def _well_apart(mixing: Array) -> bool:
    lengths = np.linalg.norm(mixing, axis=0)
    cosine = abs(float(mixing[:, 0] @ mixing[:, 1])) / float(lengths.prod())
    return bool(lengths.min() >= 0.7) and cosine <= np.cos(np.pi / 6)


class BinaryLowNoise(Experiment):
    """Two binary sources in two sensors with little noise (HOJ-E2)."""

    id: ClassVar[str] = "HOJ-E2"
    document: ClassVar[str] = DOCUMENT
    title: ClassVar[str] = "Two binary sources, low noise"
    claim: ClassVar[str] = (
        "With noise of variance 0.3 naive mean field, linear response and adaptive TAP all recover "
        "the mixing matrix; linear response takes fewer iterations than naive mean field, and TAP "
        "is only a little better."
    )
    caption: ClassVar[str] = (
        "Samples with the four places that the true columns (grey) and those found make, the noise "
        "and the columns of each method by iteration, and the worst angle of every run."
    )
    status: ClassVar[Status] = "agrees"
    variance: ClassVar[float] = 0.3
    quick: ClassVar[Setting] = Setting(10, {"count": 1000, "iterations": 300}, "5 s")
    full: ClassVar[Setting] = Setting(40, {"count": 1000, "iterations": 300}, "30 s")

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """One case a mixing matrix."""
        return [{"seed": s, "variance": self.variance, **parameters} for s in seeds]

    def run_case(self, case: Case) -> Result:
        """The three posteriors from one start."""
        true, samples = binary_mixture(case["seed"], case["variance"], case["count"])
        start = random_start(samples, 2, "binary", case["seed"])
        return {
            name: judged(
                trace_fit(samples, start, name, case["iterations"]), true, case["variance"]
            )
            for name in METHODS
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Angles, lost columns, noise and iterations of each method."""
        runs = [one.result for one in finished]
        good = [run for run in runs if all(_is_right(run[name]) for name in METHODS)] or runs
        naive, lr, tap = (round(np.mean([r[m]["iterations"] for r in good]), 1) for m in METHODS)
        better = _median(runs, "adatap", "angle") - _median(runs, "lr", "angle")
        none = ("none", 0.0, 0.0, 5.0)
        right: Expected = {
            "naive": ("all", 85, 60, 100),
            "lr": ("all", 95, 80, 100),
            "adatap": ("all", 100, 80, 100),
        }
        once = "none in one run"  # which is all that the document shows
        return [
            *found_rows(runs, right),
            *lost_rows(runs, {"naive": (once, 15, 0, 35), "lr": none, "adatap": none}),
            *noise_rows(runs, (0.997, 0.999, 0.986)),
            Row(
                "iterations, linear response against naive",
                f"{lr:g} against {naive:g}",
                "fewer",
                None,
                _PAIRED,
                _paired(good, "lr", "naive") <= 0,
            ),
            Row(
                "iterations, TAP against linear response",
                f"{tap:g} against {lr:g}",
                "more",
                None,
                _PAIRED,
                _paired(good, "adatap", "lr") >= 0,
            ),
            Row(
                "angle of TAP minus that of linear response",
                round(better, 2),
                "a little below 0",
                -0.04,
                "degrees, medians",
                abs(better) < 1.0,
            ),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Scatter, traces and angles."""
        from kikuchi.reproduce.hojen2001_ica_figures import binary_panels

        shown = shown_run(finished)
        true, samples = binary_mixture(
            shown.case["seed"], shown.case["variance"], shown.case["count"]
        )
        angles = _of_methods([one.result for one in finished], "angle")
        return binary_panels(samples, true, shown.result, angles, shown.case["variance"], METHODS)


class BinaryHighNoise(BinaryLowNoise):
    """Two binary sources in two sensors with much noise (HOJ-E3)."""

    id: ClassVar[str] = "HOJ-E3"
    title: ClassVar[str] = "Two binary sources, high noise"
    claim: ClassVar[str] = (
        "With noise of variance 1 naive mean field loses a column and overestimates the noise; "
        "linear response and adaptive TAP recover the mixing matrix."
    )
    status: ClassVar[Status] = "agrees"
    variance: ClassVar[float] = 1.0
    quick: ClassVar[Setting] = Setting(10, {"count": 1000, "iterations": 300}, "8 s")
    full: ClassVar[Setting] = Setting(40, {"count": 1000, "iterations": 300}, "40 s")

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Angles, lost columns and noise of each method."""
        runs = [one.result for one in finished]
        failed = [run["naive"]["noise_ratio"] for run in runs if run["naive"]["lost"]]
        none = ("none", 0.0, 0.0, 5.0)
        right: Expected = {
            "naive": ("none", 60, 0, 80),
            "lr": ("all", 95, 80, 100),
            "adatap": ("all", 90, 80, 100),
        }
        rows = [
            *found_rows(runs, right),
            *lost_rows(runs, {"naive": ("the run shown", 35, 15, 100), "lr": none, "adatap": none}),
            *noise_rows(runs, (1.034, 0.985, 0.988)),
        ]
        if failed:
            worst = round(max(failed), 2)
            note = "largest of the runs of naive mean field that lost a column"
            what = "noise over true noise after a loss"
            rows.append(Row(what, worst, "> 1", 2.24, note, worst > 1))
        return rows


# ---------------------------------------------------------------------- three in two


def overcomplete_mixture(seed: int, spread: float, count: int) -> tuple[Array, Array]:
    """Mixing (2, 3) with columns of length 4 near 0, 60 and 120 degrees, and samples of sources at
    ±1 with variance `spread` around them, in noise of variance 1 (HOJ-E4).

    >>> np.linalg.norm(overcomplete_mixture(0, 0.1, 5)[0], axis=0).round(6).tolist()
    [4.0, 4.0, 4.0]
    """
    rng = generator(seed)
    angles = np.deg2rad(np.array([0.0, 60.0, 120.0]) + rng.uniform(-10.0, 10.0, 3))
    mixing = 4.0 * np.stack([np.cos(angles), np.sin(angles)])
    sources = rng.choice([-1.0, 1.0], (count, 3))
    sources = sources + np.sqrt(spread) * rng.standard_normal((count, 3))
    return mixing, sources @ mixing.T + rng.standard_normal((count, 2))


class Overcomplete(Experiment):
    """Three continuous sources in two sensors (HOJ-E4)."""

    id: ClassVar[str] = "HOJ-E4"
    document: ClassVar[str] = DOCUMENT
    title: ClassVar[str] = "Three sources in two sensors"
    claim: ClassVar[str] = (
        "With more sources than sensors naive mean field merges two directions and loses a column; "
        "linear response and adaptive TAP recover all three."
    )
    caption: ClassVar[str] = (
        "Samples with true directions (grey) and those found by each method, the noise and the "
        "columns by iteration, and the worst angle of every run."
    )
    status: ClassVar[Status] = "agrees"
    quick: ClassVar[Setting] = Setting(
        3,
        {"count": 2000, "spread": 0.1, "iterations": {"naive": 300, "lr": 300, "adatap": 150}},
        "14 s",
    )
    full: ClassVar[Setting] = Setting(
        10,
        {"count": 2000, "spread": 0.1, "iterations": {"naive": 300, "lr": 300, "adatap": 150}},
        "2 min",
    )

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """One case a mixing matrix."""
        return [{"seed": seed, **parameters} for seed in seeds]

    def run_case(self, case: Case) -> Result:
        """The three posteriors from one start."""
        true, samples = overcomplete_mixture(case["seed"], case["spread"], case["count"])
        prior = f"bi-gaussian:mean=1,variance={case['spread']}"
        start = random_start(samples, 3, prior, case["seed"])
        return {
            name: judged(trace_fit(samples, start, name, iterations), true, 1.0)
            for name, iterations in case["iterations"].items()
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Angles, lost columns and noise of each method."""
        runs = [one.result for one in finished]
        every, none = ("all", 100.0, 90.0, 100.0), ("none", 0.0, 0.0, 0.0)
        return [
            *found_rows(runs, {"naive": ("none", 0, 0, 0), "lr": every, "adatap": every}),
            *lost_rows(runs, {"naive": ("all", 100, 80, 100), "lr": none, "adatap": none}),
            *noise_rows(runs, (11.7, 0.62, 1.59), close=None),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Scatter, traces and angles."""
        from kikuchi.reproduce.hojen2001_ica_figures import overcomplete_panels

        shown = shown_run(finished)
        case = shown.case
        true, samples = overcomplete_mixture(case["seed"], case["spread"], case["count"])
        angles = _of_methods([one.result for one in finished], "angle")
        return overcomplete_panels(samples, true, shown.result, angles, 1.0, METHODS)


# ---------------------------------------------------------------------- the tables

Expected = Mapping[str, tuple[str, float, float, float]]
"""By method: what the document says, the catalogue's share in percent, and the range to be in."""


def found_rows(runs: Sequence[Result], expected: Expected) -> list[Row]:
    """In how many runs all directions were found."""
    note = f"share of {_runs(runs)} with every column within {RIGHT:g} degrees"
    return _share_rows(runs, "all columns found", expected, note, _is_right)


def lost_rows(runs: Sequence[Result], expected: Expected) -> list[Row]:
    """In how many runs a column was lost."""
    note = f"share of {_runs(runs)} whose shortest column is below {LOST:g} of the true one"
    return _share_rows(runs, "a column lost", expected, note, lambda run: bool(run["lost"]))


def noise_rows(
    runs: Sequence[Result], known: Sequence[float], close: float | None = 0.15
) -> list[Row]:
    """Median of the noise found over the true one; judged where it should be near 1."""
    rows = []
    for (name, label), value in zip(METHODS.items(), known, strict=True):
        ours = _median(runs, name, "noise_ratio")
        right = None if close is None else abs(ours - 1.0) <= close
        what = f"noise over true noise, {label}"
        rows.append(Row(what, round(ours, 3), None, value, "median", right))
    return rows


def _share_rows(
    runs: Sequence[Result],
    what: str,
    expected: Expected,
    note: str,
    counts: Callable[[Result], bool],
) -> list[Row]:
    rows = []
    for name, (said, known, low, high) in expected.items():
        share = 100.0 * float(np.mean([counts(run[name]) for run in runs]))
        quantity, ours = f"{what}, {METHODS[name]}", f"{share:.0f} %"
        rows.append(Row(quantity, ours, said, f"{known:g} %", note, low <= share <= high))
    return rows


def _is_right(run: Result) -> bool:
    return bool(run["angle"] < RIGHT)


def _runs(runs: Sequence[Result]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def _of_methods(runs: Sequence[Result], key: str) -> dict[str, list[float]]:
    return {label: [run[name][key] for run in runs] for name, label in METHODS.items()}


def _median(runs: Sequence[Result], method: str, key: str) -> float:
    return float(np.median([run[method][key] for run in runs]))


def _paired(runs: Sequence[Result], one: str, other: str) -> float:
    """Median of how many iterations more the first method takes on the same data."""
    return float(np.median([run[one]["iterations"] - run[other]["iterations"] for run in runs]))


def shown_run(finished: Sequence[Finished]) -> Finished:
    """The run to draw: of those in which naive mean field lost a column, the one that linear
    response got best; else the first of all.
    """
    telling = [one for one in finished if one.result["naive"]["lost"]]
    return min(telling, key=lambda one: one.result["lr"]["angle"], default=finished[0])
