"""Tables of mean field ICA (HOJ-E1 to E4, E7 to E9): ours beside what the document says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kikuchi_experiments.aggregate import (
    Claims,
    above,
    average,
    below,
    between,
    counted,
    holds,
    median,
    of_total,
    results_of,
    significant,
    span,
    within,
)
from kikuchi_experiments.experiment import Finished, Result, Row

METHODS = {"naive": "naive mean field", "lr": "linear response", "adatap": "adaptive TAP"}
LOST = 0.3  # a column shorter than this share of the shortest true one is lost
RIGHT = 10.0  # degrees within which all columns must be
RATES = (0.2, 0.25, 0.5, 0.5, 0.8)  # of the binary sources of HOJ-E7


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


_SHAPES = Claims.of(__name__, "HOJ-E1")


def shape_rows(results: Mapping[str, Result], far: float) -> list[Row]:
    """What the text says about the two figures; `far` is where the curves are put in order."""
    rows = []
    curves = {n: results[n]["far"] for n in CURVES if n in results}
    if len(curves) == len(CURVES):
        ends = f"{min(curves, key=curves.__getitem__)}, {max(curves, key=curves.__getitem__)}"
        right = holds(ends == "Gaussian, improper uniform", "the same two")
        rows.append(_SHAPES.row("far", ends, right, count=len(curves), far=far))
    bends = {n: results[n]["bend"] for n in SURFACES if n in results}
    if {"bi-Gaussian, means ±4", "Laplace, rate 2"} <= set(bends):
        low, high = bends["bi-Gaussian, means ±4"], bends["Laplace, rate 2"]
        nearer = holds(low < 0.5 * high, "less than half as far")
        rows.append(_SHAPES.row("bend", f"{low:.2g} against {high:.2g}", nearer))
    positive = [n for n in SURFACES if n.startswith("exponential") and n in results]
    if positive:
        least = min(float(np.min(results[n]["mean"])) for n in positive)
        rows.append(_SHAPES.row("positive", least, holds(least >= 0, "≥ 0")))
    error = max(result["slope_error"] for result in results.values())
    return [*rows, _SHAPES.row("slope", significant(error, 1), below(error, 1e-5))]


def golden_rows(results: Mapping[str, Result]) -> list[Row]:
    """Values at one place, beside quadrature."""
    rows = []
    for name, known in GOLDEN.items():
        if name in results:
            ours = results[name]["at_one"]
            close = holds(np.allclose(ours, known, atol=2e-6, rtol=0), "within 2e-6")
            texts = [f"{mean:.6f}, {response:.6f}" for mean, response in (ours, known)]
            rows.append(_SHAPES.row("golden", texts[0], close, name=name, known=texts[1]))
    return rows


# ---------------------------------------------------------------------- the tables

Expected = Mapping[str, tuple[str, float, float, float]]
"""By method: what the document says, the catalogue's share in percent, and the range to be in."""


def recovered_rows(runs: Sequence[Result], expected: Expected) -> list[Row]:
    """In how many runs all directions were found."""
    note = f"share of {counted(len(runs), 'run')} with every column within {RIGHT:g} degrees"
    return _share_rows(runs, "all columns found", expected, note, is_right)


def lost_rows(runs: Sequence[Result], expected: Expected) -> list[Row]:
    """In how many runs a column was lost."""
    number = counted(len(runs), "run")
    note = f"share of {number} whose shortest column is below {LOST:g} of the true one"
    return _share_rows(runs, "a column lost", expected, note, lambda run: bool(run["lost"]))


def noise_rows(
    runs: Sequence[Result], known: Sequence[float], close: float | None = 0.15
) -> list[Row]:
    """Median of the noise found over the true one; judged where it should be near 1."""
    rows = []
    for (name, label), value in zip(METHODS.items(), known, strict=True):
        ours = median(runs, name, "noise_ratio")
        right = None if close is None else within(ours, 1.0, close)
        what, note = f"noise over true noise, {label}", "median, over the noise as drawn"
        rows.append(Row(what, round(ours, 3), None, value, note, right))
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
        judgement = between(share, low, high, " %")
        rows.append(Row(quantity, ours, said, f"{known:g} %", note, judgement))
    return rows


def is_right(run: Result) -> bool:
    """Whether every column was found."""
    return bool(run["angle"] < RIGHT)


def of_methods(runs: Sequence[Result], key: str) -> dict[str, list[float]]:
    """A measure of all runs, by name of the method."""
    return {label: [run[name][key] for run in runs] for name, label in METHODS.items()}


def iteration_row(runs: Sequence[Result], one: str, other: str, said: str) -> Row:
    """Iterations of two methods where both found all columns; `said` is "fewer" or "more"."""
    pairs = [
        (run[one]["iterations"], run[other]["iterations"])
        for run in runs
        if is_right(run[one]) and is_right(run[other])
    ]
    what = f"iterations, {METHODS[one]} against {METHODS[other]}"
    if not pairs:
        return Row(what, "no run", said, None, "both found all columns in none")
    first, second = np.mean(pairs, axis=0)
    less, more = (sum(bool(sign * (a - b) > 0) for a, b in pairs) for sign in (-1, 1))
    note = f"means of {len(pairs)} runs that both got right; fewer in {less}, more in {more}"
    ahead = less > more if said == "fewer" else more > less
    right = first < second if said == "fewer" else first > second
    judgement = holds(right and ahead, f"{said} in the mean and in more runs")
    return Row(what, f"{first:.1f} against {second:.1f}", said, None, note, judgement)


# ---------------------------------------------------------------------- the number of sources


_ORDER = Claims.of(__name__, "HOJ-E7")


def order_rows(results: Sequence[Result]) -> list[Row]:
    """What five sources gave in each data set, put together."""
    count = len(results)
    right = sum(result["chosen"] == 5 for result in results)
    exact = sum(largest(result["exact"]) == 5 for result in results)
    printed = [largest(result["literal"]) for result in results]
    few = max(gap for r in results for k, gap in r["gap"].items() if int(k) <= 5)
    many = max((gap for r in results for k, gap in r["gap"].items() if int(k) > 5), default=0.0)
    gaps = _mean_gaps(results)
    learned, drawn = (np.array([r[key] for r in results]) for key in ("rates", "drawn_rates"))
    error, chance = (float(np.abs(rates - np.array(RATES)).max()) for rates in (learned, drawn))
    beside = float(np.abs(learned - drawn).max())
    near = below(beside, 0.02, "0.02 from those of the samples")
    noise = average(results, "noise")
    grows = None
    if len(gaps) > 1:
        grows = above(max(gaps.values()), gaps["5"], "that of 5 for more")
    most = holds(right >= 0.9 * count, "nine of ten")
    most_exact = holds(exact >= 0.9 * count, "nine of ten")
    same = holds(set(printed) == {5}, "5 in every set")
    shown = ", ".join(f"{gap:.0f}" for gap in gaps.values()) or "none"
    return [
        _ORDER.row("free", of_total(right, count), most),
        _ORDER.row("exact", of_total(exact, count), most_exact),
        _ORDER.row("printed", span(printed), same),
        _ORDER.row("few", round(few, 2), below(few, 5.0)),
        _ORDER.row("many", round(many, 2)),
        _ORDER.row("average", shown, grows, numbers=", ".join(gaps)),
        _ORDER.row("rates", round(beside, 4), near, chance=chance, error=error),
        _ORDER.row("noise", round(noise, 3), within(noise, 1.0, 0.05)),
    ]


def _mean_gaps(results: Sequence[Result]) -> dict[str, float]:
    """Mean gap of restarts by number of sources, from 5 to 7."""
    numbers = [k for k in ("5", "6", "7") if all(k in r["restart_gap"] for r in results)]
    return {k: average(results, "restart_gap", k) for k in numbers}


def largest(values: Mapping[str, float]) -> int:
    """The number whose value is greatest."""
    return int(max(values, key=values.__getitem__))


# ---------------------------------------------------------------------- brain scans


_BRAIN = Claims.of(__name__, "HOJ-E8", "HOJ-E9")


def temporal_rows(finished: Sequence[Finished]) -> list[Row]:
    """The table of HOJ-E8."""
    rows = []
    for name, results in _by_recording(finished).items():
        chosen = [result["chosen"] for result in results]
        simulated = results[0]["stimulus"] is not None
        one = holds(set(chosen) == {1}, "1 for every seed") if simulated else None
        costs = results[0]["penalty"]
        values = {"name": name, "penalty": costs, "known": "0 to 1" if simulated else None}
        rows.append(_BRAIN.row("number", _counts(chosen), one, **values))
    known = results_of(finished, recording="simulated")
    if not known:
        return rows
    followed, delay = average(known, "stimulus", 0), average(known, "delay")
    visual = average(known, "map_match", 0)
    others = float(np.mean([max(result["map_match"][1:]) for result in known]))
    return [
        *rows,
        _BRAIN.row("course", round(followed, 2), above(followed, 0.5)),
        _BRAIN.row("delay", round(delay, 1), between(delay, 2.0, 8.0)),
        _BRAIN.row("areas", f"{visual:.2f}, {others:.2f}", above(visual, others, "the others")),
    ]


def spatial_rows(finished: Sequence[Finished]) -> list[Row]:
    """The table of HOJ-E9."""
    rows = []
    for name, results in _by_recording(finished).items():
        space = [result["chosen"] for result in results]
        time = [result["temporal"] for result in results]
        twice = all(s >= 2 * max(t, 1) for s, t in zip(space, time, strict=True))
        more = None
        if results[0]["stimulus"] is not None:
            more = holds(twice, "at least twice as many in space, for every seed")
        values = {key: results[0][key] for key in ("penalty", "other_penalty")}
        values |= {"name": name, "known": None if results[0]["stimulus"] is None else "5, 0 to 1"}
        rows.append(_BRAIN.row("both", f"{_counts(space)}, {_counts(time)}", more, **values))
    known = results_of(finished, recording="simulated")
    if not known:
        return rows
    best = [int(np.argmax(np.abs(result["stimulus"]))) for result in known]
    followed = float(np.mean([abs(r["stimulus"][k]) for r, k in zip(known, best, strict=True)]))
    visual = float(np.mean([r["visual"][k] for r, k in zip(known, best, strict=True)]))
    matched = float(np.mean([sum(v > 0.6 for v in result["map_match"]) for result in known]))
    return [
        *rows,
        _BRAIN.row("stimulus", round(followed, 2), above(followed, 0.9)),
        _BRAIN.row("image", round(visual, 2), above(visual, 0.8)),
        _BRAIN.row("matched", round(matched, 1), holds(matched >= 3, "3 or more")),
    ]


def _by_recording(finished: Sequence[Finished]) -> dict[str, list[Result]]:
    """Results with the same recording, or with simulations of the same setting."""
    groups: dict[str, list[Result]] = {}
    for one in finished:
        groups.setdefault(_name(one), []).append(one.result)
    return groups


def _counts(numbers: Sequence[int]) -> str:
    """The number, or the range of the numbers of several seeds."""
    shown = str(numbers[0]) if len(set(numbers)) == 1 else span(numbers)
    return shown if len(numbers) == 1 else f"{shown} ({len(numbers)} seeds)"


def _name(one: Finished) -> str:
    name = one.case["recording"]
    if name == "file":
        return str(one.case["data"])
    if one.result["stimulus"] is None:
        return f"nitime's {name}"
    return f"simulated with noise {one.case['noise']:g}, drift {one.case['drift']:g}"
