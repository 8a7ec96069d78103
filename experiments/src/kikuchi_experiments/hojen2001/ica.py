"""Højen-Sørensen's thesis, chapter 4: mean functions, binary and overcomplete mixtures.

HOJ-E1 to HOJ-E4. All fits begin at the same random mixing matrix for every posterior and run plain
EM, so that what differs is the posterior alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.seeds import generator
from kikuchi.ica.em import EMIteration, Rules
from kikuchi.ica.initialisation import initial_model
from kikuchi.ica.measures import column_angles
from kikuchi.ica.mixing import parse_mixing_prior
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.posteriors.posterior import parse_posterior
from kikuchi.ica.priors.prior import as_priors, parse_prior
from kikuchi_experiments.aggregate import Claims, above, holds, median
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.hojen2001 import ica_figures
from kikuchi_experiments.hojen2001.tables import (
    CURVES,
    LOST,
    METHODS,
    SURFACES,
    Expected,
    golden_rows,
    iteration_row,
    lost_rows,
    noise_rows,
    of_methods,
    recovered_rows,
    shape_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 80  # points of a trace that are kept
_ALL, _NONE = "all in one run", "none in one run"  # the document shows a single run


# ---------------------------------------------------------------------- mean functions

_FAR = 12.0  # the gamma at which figure 4.3 is put in order
_STEP = 1e-4


class MeanFunctions(Experiment):
    """Mean and response of the source priors (HOJ-E1, M8)."""

    id: ClassVar[str] = "HOJ-E1"

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
        results = {one.case["name"]: one.result for one in finished}
        return [*shape_rows(results, _FAR), *golden_rows(results)]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """A panel for each surface, and one for the curves."""
        results = {one.case["name"]: {**one.result, "lams": one.case["lams"]} for one in finished}
        surfaces = {n: results[n] for n in SURFACES if n in results}
        return ica_figures.mean_functions(surfaces, {n: results[n] for n in CURVES if n in results})


# ---------------------------------------------------------------------- fits that leave a trace


def trace_fit(
    samples: Array, start: Model, posterior: str, iterations: int, tol: float = 1e-4
) -> Result:
    """Plain EM from a model: the mixing matrix, the noise, and how both came about.

    >>> rng = np.random.default_rng(0)
    >>> rows = rng.choice([-1.0, 1.0], (400, 2)) @ np.eye(2) + 0.1 * rng.standard_normal((400, 2))
    >>> found = trace_fit(rows, random_start(rows, 2, "binary", 0), "lr", 50)
    >>> found["converged"], bool(found["noise"] < 0.02)
    (True, True)
    """
    rules = Rules("free", parse_mixing_prior("flat"), "none")
    learning = EMIteration(start, Observations.of(samples.T), parse_posterior(posterior), rules)
    columns, noises, converged, taken = [start.mixing], [_variance(start)], False, 0
    for step in islice(learning.steps("em", None, 0), iterations):
        columns.append(learning.model.mixing)
        noises.append(_variance(learning.model))
        taken += 1
        if step.residual < tol:
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
    data = Observations.of(samples.T)
    priors = as_priors(prior, sources)
    return initial_model("random", data, priors, "isotropic", "free", np.random.default_rng(seed))


def judged(fit: Result, true: Array, noise: float) -> Result:
    """The fit with its measures: worst angle, shortest column and noise, each beside the truth."""
    columns = np.array(fit["mixing"])
    lengths = np.linalg.norm(columns, axis=0)
    share = float(lengths.min() / np.linalg.norm(true, axis=0).min())
    lost = share < LOST
    return {
        **fit,
        "angle": float(column_angles(columns, true).max()),
        "share": share,
        "lost": bool(lost),
        "noise_ratio": fit["noise"] / noise,
    }


def _variance(model: Model) -> float:
    return float(np.mean(model.noise.value))


# ---------------------------------------------------------------------- binary sources


def binary_mixture(seed: int, variance: float, count: int) -> tuple[Array, Array, float]:
    """Mixing (2, 2), samples (count, 2) of HOJ-E2 and E3, and the variance of the noise as it was
    drawn. Seed 0 has the matrix of the catalogue, the others random ones with columns of length
    >= 0.7 that are 30 degrees apart.

    >>> binary_mixture(0, 0.3, 5)[0].tolist()
    [[1.0, 1.0], [1.0, -0.5]]
    """
    rng = generator(seed)
    mixing = np.array([[1.0, 1.0], [1.0, -0.5]])
    while seed and not _well_apart(mixing := rng.standard_normal((2, 2))):
        pass
    sources = rng.choice([-1.0, 1.0], (count, 2))
    noise = np.sqrt(variance) * rng.standard_normal((count, 2))
    return mixing, sources @ mixing.T + noise, float(np.mean(noise**2))


def _well_apart(mixing: Array) -> bool:
    lengths = np.linalg.norm(mixing, axis=0)
    cosine = abs(float(mixing[:, 0] @ mixing[:, 1])) / float(lengths.prod())
    return bool(lengths.min() >= 0.7) and cosine <= np.cos(np.pi / 6)


_BINARY = Claims.of(__name__, "HOJ-E2", "HOJ-E3")


class _MixtureExperiment(Experiment):
    """Fits of one mixture by the three posteriors from one start."""

    binary: ClassVar[bool]

    @abstractmethod
    def draw(self, case: Case) -> tuple[Array, Array, float]:
        """Mixing matrix, samples, and the variance of the noise as it was drawn."""

    @abstractmethod
    def prior(self, case: Case) -> str:
        """The prior of the sources."""

    def run_case(self, case: Case) -> Result:
        """The three posteriors from one start."""
        true, samples, noise = self.draw(case)
        start = random_start(samples, true.shape[1], self.prior(case), case["seed"])
        most: Any = case["iterations"]
        limits = most if isinstance(most, dict) else dict.fromkeys(METHODS, most)
        return {
            name: judged(trace_fit(samples, start, name, limits[name]), true, noise)
            for name in METHODS
        }

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Scatter, traces and angles."""
        shown = shown_run(finished)
        true, samples, _ = self.draw(shown.case)
        angles = of_methods([one.result for one in finished], "angle")
        noise = shown.case.get("variance", 1.0)
        return ica_figures.mixture_panels(
            samples, true, shown.result, angles, noise, METHODS, binary=self.binary
        )


class BinaryLowNoise(_MixtureExperiment):
    """Two binary sources in two sensors with little noise (HOJ-E2)."""

    id: ClassVar[str] = "HOJ-E2"
    binary: ClassVar[bool] = True
    case_axes: ClassVar[CaseAxes] = {"variance": (0.3,)}

    def draw(self, case: Case) -> tuple[Array, Array, float]:
        """Two binary sources in two sensors."""
        return binary_mixture(case["seed"], case["variance"], case["count"])

    def prior(self, case: Case) -> str:
        """Sources of -1 and 1."""
        return "binary"

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Angles, lost columns, noise and iterations of each method."""
        runs = [one.result for one in finished]
        angle = median(runs, "lr", "angle")
        better = median(runs, "adatap", "angle") - angle
        little = holds(-0.5 * angle < better <= 0.0, "at most 0, by less than half")
        none = ("none", 0.0, 0.0, 5.0)
        right: Expected = {
            "naive": (_ALL, 85, 60, 100),
            "lr": (_ALL, 95, 80, 100),
            "adatap": (_ALL, 100, 80, 100),
        }
        return [
            *recovered_rows(runs, right),
            *lost_rows(runs, {"naive": (_NONE, 15, 0, 35), "lr": none, "adatap": none}),
            *noise_rows(runs, (0.997, 0.999, 0.986)),
            iteration_row(runs, "lr", "naive", "fewer"),
            iteration_row(runs, "adatap", "lr", "more"),
            _BINARY.row("tap", round(better, 2), little, angle=angle),
        ]


class BinaryHighNoise(BinaryLowNoise):
    """Two binary sources in two sensors with much noise (HOJ-E3)."""

    id: ClassVar[str] = "HOJ-E3"
    case_axes: ClassVar[CaseAxes] = {"variance": (1.0,)}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Angles, lost columns and noise of each method."""
        runs = [one.result for one in finished]
        failed = [run["naive"]["noise_ratio"] for run in runs if run["naive"]["lost"]]
        none = ("none", 0.0, 0.0, 5.0)
        right: Expected = {
            "naive": (_NONE, 60, 0, 50),
            "lr": (_ALL, 95, 80, 100),
            "adatap": (_ALL, 90, 80, 100),
        }
        rows = [
            *recovered_rows(runs, right),
            *lost_rows(runs, {"naive": ("the run shown", 35, 15, 100), "lr": none, "adatap": none}),
            *noise_rows(runs, (1.034, 0.985, 0.988)),
        ]
        if failed:
            middle = round(float(np.median(failed)), 2)
            values = {"count": len(failed), "most": max(failed)}
            rows.append(_BINARY.row("lost", middle, above(middle, 1.1), **values))
        return rows


# ---------------------------------------------------------------------- three in two


def overcomplete_mixture(seed: int, spread: float, count: int) -> tuple[Array, Array, float]:
    """Mixing (2, 3) with columns of length 4 near 0, 60 and 120 degrees, samples of sources at ±1
    with variance `spread` around them in noise of variance 1, and the variance of the noise as it
    was drawn (HOJ-E4).

    >>> np.linalg.norm(overcomplete_mixture(0, 0.1, 5)[0], axis=0).round(6).tolist()
    [4.0, 4.0, 4.0]
    """
    rng = generator(seed)
    angles = np.deg2rad(np.array([0.0, 60.0, 120.0]) + rng.uniform(-10.0, 10.0, 3))
    mixing = 4.0 * np.stack([np.cos(angles), np.sin(angles)])
    sources = rng.choice([-1.0, 1.0], (count, 3))
    sources = sources + np.sqrt(spread) * rng.standard_normal((count, 3))
    noise = rng.standard_normal((count, 2))
    return mixing, sources @ mixing.T + noise, float(np.mean(noise**2))


class Overcomplete(_MixtureExperiment):
    """Three continuous sources in two sensors (HOJ-E4)."""

    id: ClassVar[str] = "HOJ-E4"
    binary: ClassVar[bool] = False

    def draw(self, case: Case) -> tuple[Array, Array, float]:
        """Three sources in two sensors."""
        return overcomplete_mixture(case["seed"], case["spread"], case["count"])

    def prior(self, case: Case) -> str:
        """Two Gaussians of the variance that the sources have."""
        return f"bi-gaussian:mean=1,variance={case['spread']}"

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Angles, lost columns and noise of each method."""
        runs = [one.result for one in finished]
        every, none = ("all", 100.0, 90.0, 100.0), ("none", 0.0, 0.0, 0.0)
        return [
            *recovered_rows(runs, {"naive": ("none", 0, 0, 0), "lr": every, "adatap": every}),
            *lost_rows(runs, {"naive": ("all", 100, 80, 100), "lr": none, "adatap": none}),
            *noise_rows(runs, (11.7, 0.62, 1.59), close=None),
        ]


def shown_run(finished: Sequence[Finished]) -> Finished:
    """The run to draw: of those in which naive mean field lost a column, the one that linear
    response got best; else the first of all.
    """
    telling = [one for one in finished if one.result["naive"]["lost"]]
    return min(telling, key=lambda one: one.result["lr"]["angle"], default=finished[0])
