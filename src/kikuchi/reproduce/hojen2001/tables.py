"""Tables of mean field ICA (HOJ-E1 to E4, E7 to E9): ours beside what the document says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kikuchi.reproduce.experiment import Finished, Result, Row

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


def shape_rows(found: Mapping[str, Result], far: float) -> list[Row]:
    """What the text says about the two figures; `far` is where the curves are put in order."""
    rows = []
    curves = {n: found[n]["far"] for n in CURVES if n in found}
    if len(curves) == len(CURVES):
        lowest, highest = min(curves, key=curves.__getitem__), max(curves, key=curves.__getitem__)
        right = lowest == "Gaussian" and highest == "improper uniform"
        note = f"of {len(curves)} priors at gamma = {far:g}, lambda = 1"
        expected = "Gaussian, improper uniform"
        ours = f"{lowest}, {highest}"
        rows.append(Row("lowest and highest mean", ours, expected, expected, note, right))
    bends = {n: found[n]["bend"] for n in SURFACES if n in found}
    if {"bi-Gaussian, means ±4", "Laplace, rate 2"} <= set(bends):
        low, high = bends["bi-Gaussian, means ±4"], bends["Laplace, rate 2"]
        note = "gamma where the response changes fastest: two Gaussians at ±4, then Laplace of rate"
        ours = f"{low:.2g} against {high:.2g}"
        said = "near 0 against far"
        rows.append(Row("place of the bend", ours, said, None, f"{note} 2", low < 0.5 * high))
    positive = [n for n in SURFACES if n.startswith("exponential") and n in found]
    if positive:
        least = min(float(np.min(found[n]["mean"])) for n in positive)
        rows.append(
            Row("smallest mean of exponential sources", least, "≥ 0", "≥ 0", "", least >= 0)
        )
    error = max(result["slope_error"] for result in found.values())
    note = "central differences, all priors and places of the figures"
    rows.append(
        Row("response minus slope of the mean", float(f"{error:.1g}"), 0, 0, note, error < 1e-5)
    )
    return rows


def golden_rows(found: Mapping[str, Result]) -> list[Row]:
    """Values at one place, beside quadrature."""
    rows = []
    for name, (mean, response) in GOLDEN.items():
        if name in found:
            ours = found[name]["at_one"]
            close = bool(np.allclose(ours, (mean, response), atol=2e-6, rtol=0))
            text = f"{ours[0]:.6f}, {ours[1]:.6f}"
            note = "corrected: the catalogue, by quadrature where there is a density"
            known = f"{mean:.6f}, {response:.6f}"
            rows.append(Row(f"mean, response at (1, 1): {name}", text, None, known, note, close))
    return rows


# ---------------------------------------------------------------------- the tables

Expected = Mapping[str, tuple[str, float, float, float]]
"""By method: what the document says, the catalogue's share in percent, and the range to be in."""


def found_rows(runs: Sequence[Result], expected: Expected) -> list[Row]:
    """In how many runs all directions were found."""
    note = f"share of {_runs(runs)} with every column within {RIGHT:g} degrees"
    return _share_rows(runs, "all columns found", expected, note, is_right)


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
        ours = median(runs, name, "noise_ratio")
        right = None if close is None else abs(ours - 1.0) <= close
        what = f"noise over true noise, {label}"
        note = "median, over the noise as drawn" + (
            "" if close is None else f"; agrees within {close:g} of 1"
        )
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
        judged = f"{note}; agrees from {low:g} to {high:g} %"
        rows.append(Row(quantity, ours, said, f"{known:g} %", judged, low <= share <= high))
    return rows


def is_right(run: Result) -> bool:
    """Whether every column was found."""
    return bool(run["angle"] < RIGHT)


def _runs(runs: Sequence[Result]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def of_methods(runs: Sequence[Result], key: str) -> dict[str, list[float]]:
    """A measure of all runs, by name of the method."""
    return {label: [run[name][key] for run in runs] for name, label in METHODS.items()}


def median(runs: Sequence[Result], method: str, key: str) -> float:
    """Median of a measure of one method."""
    return float(np.median([run[method][key] for run in runs]))


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
    return Row(what, f"{first:.1f} against {second:.1f}", said, None, note, bool(right and ahead))


# ---------------------------------------------------------------------- the number of sources


def order_rows(results: Sequence[Result]) -> list[Row]:
    """What five sources gave in each data set, put together."""
    right = sum(result["chosen"] == 5 for result in results)
    exact = sum(largest(result["exact"]) == 5 for result in results)
    printed = [largest(result["literal"]) for result in results]
    few = max(gap for r in results for k, gap in r["gap"].items() if int(k) <= 5)
    many = max((gap for r in results for k, gap in r["gap"].items() if int(k) > 5), default=0.0)
    average = _mean_gaps(results)
    learned, drawn = (np.array([r[key] for r in results]) for key in ("rates", "drawn_rates"))
    error, chance = (float(np.abs(found - np.array(RATES)).max()) for found in (learned, drawn))
    beside = float(np.abs(learned - drawn).max())
    noise = float(np.mean([result["noise"] for result in results]))
    count = len(results)
    return [
        Row(
            "5 chosen, by the free energy",
            f"{right} of {count}",
            "all",
            "1 of 1",
            "all free numbers counted, best of the restarts",
            right >= 0.9 * count,
        ),
        Row(
            "5 chosen, by the exact likelihood",
            f"{exact} of {count}",
            "all",
            "1 of 1",
            "the same fits, enumerated",
            exact >= 0.9 * count,
        ),
        Row(
            "chosen with the penalty as printed",
            f"{min(printed)} to {max(printed)}",
            5,
            6,
            "the text counts sources only, which is too few numbers",
            min(printed) > 5,
        ),
        Row(
            "exact minus free energy, up to 5 sources",
            round(few, 2),
            "≈ 0",
            0.2,
            "nats, the largest",
            few < 5.0,
        ),
        Row(
            "exact minus free energy, beyond 5",
            round(many, 2),
            None,
            165,
            "nats, the largest; kept fits of more sources begin where five ended and stay good",
            None,
        ),
        Row(
            "the same on average over restarts, 5 and more",
            ", ".join(f"{gap:.0f}" for gap in average.values()) or "none",
            "grows",
            "240, 303, 309",
            f"nats, for {', '.join(average)} sources; single fits often miss the optimum",
            None if len(average) < 2 else max(average.values()) > average["5"],
        ),
        Row(
            "largest error of the rates",
            round(error, 3),
            "clusters at the true ones",
            None,
            f"five sources; those of the samples drawn are off by {chance:.2g}, and the rates "
            f"learned differ from these by {beside:.2g} at most",
            beside < 0.02,
        ),
        Row("noise variance", round(noise, 3), 1.0, 0.98, "mean", abs(noise - 1.0) < 0.05),
    ]


def _mean_gaps(results: Sequence[Result]) -> dict[str, float]:
    """Mean gap of restarts by number of sources, from 5 to 7."""
    numbers = [k for k in ("5", "6", "7") if all(k in r["restart_gap"] for r in results)]
    return {k: float(np.mean([r["restart_gap"][k] for r in results])) for k in numbers}


def largest(values: Mapping[str, float]) -> int:
    """The number whose value is greatest."""
    return int(max(values, key=values.__getitem__))


# ---------------------------------------------------------------------- brain scans


def temporal_rows(finished: Sequence[Finished]) -> list[Row]:
    """The table of HOJ-E8."""
    rows = []
    for name, runs in _by_recording(finished).items():
        chosen = [one.result["chosen"] for one in runs]
        simulated = runs[0].result["stimulus"] is not None
        rows.append(
            Row(
                f"number of sources, {name}",
                _counts(chosen),
                1,
                "0 to 1" if simulated else None,
                f"one more costs {runs[0].result['penalty']:,.0f} nats",
                max(chosen) <= 1 if simulated else None,
            )
        )
    known = [one for one in finished if one.case["recording"] == "simulated"]
    if not known:
        return rows
    followed = float(np.mean([one.result["stimulus"][0] for one in known]))
    visual = float(np.mean([one.result["map_match"][0] for one in known]))
    others = float(np.mean([max(one.result["map_match"][1:]) for one in known]))
    delay = float(np.mean([one.result["delay"] for one in known]))
    return [
        *rows,
        Row(
            "correlation of the one course with the response",
            round(followed, 2),
            "on with the stimulus",
            None,
            "a binary course cannot follow the slow rise of the blood",
            followed > 0.5,
        ),
        Row(
            "delay after the stimulus, seconds",
            round(delay, 1),
            3.0,
            5.4,
            "corrected: mean delay of the simulated blood; scans are 2 s apart",
            2.0 <= delay <= 8.0,
        ),
        Row(
            "its image with the visual areas, against others",
            f"{visual:.2f}, {others:.2f}",
            "visual areas",
            None,
            "correlation with the true maps",
            visual > others,
        ),
    ]


def spatial_rows(finished: Sequence[Finished]) -> list[Row]:
    """The table of HOJ-E9."""
    rows = []
    for name, runs in _by_recording(finished).items():
        space = [one.result["chosen"] for one in runs]
        time = [one.result["temporal"] for one in runs]
        first = runs[0].result
        costs = f"one more costs {first['penalty']:,.0f} nats, in time"
        rows.append(
            Row(
                f"sources in space and in time, {name}",
                f"{_counts(space)}, {_counts(time)}",
                "9, 1",
                "5, 0 to 1" if first["stimulus"] is not None else None,
                f"{costs} {first['other_penalty']:,.0f}; agrees if at least twice as many in all",
                all(s >= 2 * max(t, 1) for s, t in zip(space, time, strict=True)),
            )
        )
    known = [one.result for one in finished if one.case["recording"] == "simulated"]
    if not known:
        return rows
    best = [int(np.argmax(np.abs(result["stimulus"]))) for result in known]
    followed = float(np.mean([abs(r["stimulus"][k]) for r, k in zip(known, best, strict=True)]))
    visual = float(np.mean([r["visual"][k] for r, k in zip(known, best, strict=True)]))
    matched = float(np.mean([sum(v > 0.6 for v in result["map_match"]) for result in known]))
    note = "correlation of the best time course; corrected: the catalogue's own simulator"
    return [
        *rows,
        Row("a source follows the stimulus", round(followed, 2), "yes", 0.99, note, followed > 0.9),
        Row(
            "its image with the visual areas",
            round(visual, 2),
            "visual areas",
            None,
            "correlation of a binary image with a map that has smooth edges",
            visual > 0.8,
        ),
        Row(
            "components found, of 5",
            round(matched, 1),
            None,
            5,
            "correlation of maps above 0.6; the drift has two signs, so that it takes two sources",
            matched >= 3,
        ),
    ]


def _by_recording(finished: Sequence[Finished]) -> dict[str, list[Finished]]:
    """Runs with the same recording, or with simulations of the same setting."""
    found: dict[str, list[Finished]] = {}
    for one in finished:
        found.setdefault(_name(one), []).append(one)
    return found


def _counts(numbers: Sequence[int]) -> str:
    """The number, or the range of the numbers of several seeds."""
    if len(numbers) == 1:
        return str(numbers[0])
    low, high = min(numbers), max(numbers)
    shown = str(low) if low == high else f"{low} to {high}"
    return f"{shown} ({len(numbers)} seeds)"


def _name(one: Finished) -> str:
    name = one.case["recording"]
    if name == "file":
        return str(one.case["data"])
    if one.result["stimulus"] is None:
        return f"nitime's {name}"
    return f"simulated with noise {one.case['noise']:g}, drift {one.case['drift']:g}"
