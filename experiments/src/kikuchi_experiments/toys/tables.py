"""Tables of the toys: ours beside the documents and the catalogue (HOJ-E0, LAW-E1, E2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kikuchi_experiments.aggregate import Claims, above, below, holds, significant, within
from kikuchi_experiments.experiment import Result, Row

_Fit = tuple[float, ...]

CLOSED_FORMS: dict[float, tuple[_Fit, _Fit | None, float]] = {
    0.5: ((3.5584, 0.0895), None, 2.7994),
    0.99: ((2.2216, 0.5136), None, 1.2235),
    1.0: ((2.1962, 0.5359), (0.70711, 6.0, 0.7215), 1.1971),
    1.01: ((2.1709, 0.5592), (0.78154, 7.3296, 0.7291), 1.1712),
    1.05: ((2.0720, 0.6633), (0.88508, 9.4004, 0.7462), 1.0727),
    1.1: ((1.9536, 0.8209), (0.97243, 11.3475, 0.7533), 0.9613),
    1.5: ((1.2226, 3.7586), (1.46040, 25.5934, 0.7098), 0.4619),
    2.0: ((0.7279, 14.1143), (1.98406, 47.2379, 0.6973), 0.2527),
}
"""By alpha, kappa = 3: (precision, KL) in the middle, (mean, precision, KL) in a well, and the
precision that KL(p||q) wants; recomputed in the catalogue, HOJ-I12."""

SAMPLED = {
    0.5: (0.006, 2.80),
    1.0: (0.027, 1.20),
    1.2: (0.070, 0.78),
    1.4: (0.29, 0.58),
    1.6: (1.37, 21.0),
    1.8: (1.78, 37.0),
    2.0: (1.98, 46.0),
}
"""Mean size of the mean, and mean precision, of hybrid Monte Carlo; recomputed, HOJ-E0."""

_EXACT = {
    "alone 1e-06": ("P(guilty | fingerprints), no other cause, chance 1e-6", 0.9980, 0.998024),
    "alone 1e-05": ("P(guilty | fingerprints), no other cause, chance 1e-5", 0.9806, 0.980584),
    "guilty found": ("P(guilty | fingerprints)", 0.0692, 0.069165),
    "visited found": ("P(visited | fingerprints)", 0.933, 0.933390),
    "guilty known": ("P(guilty | fingerprints, visited)", 0.00287, 0.0028777),
}


_WELL = Claims.of(__name__, "HOJ-E0")
_JURORS = Claims.of(__name__, "LAW-E1")


def double_well_rows(results: Mapping[float, Result]) -> list[Row]:
    """The place of the transition, closed forms by alpha, then the sampler."""
    rows = _transition_rows(results)
    for alpha, (middle, well, covering) in CLOSED_FORMS.items():
        if alpha in results:
            rows += _fit_rows(alpha, results[alpha], middle, well, covering)
    worst = max(result["iteration_error"] for result in results.values())
    rows.append(_WELL.row("iteration", significant(worst, 1), below(worst, 1e-7)))
    return rows + [_sampled_row(a, results[a], SAMPLED[a]) for a in SAMPLED if a in results]


def _transition_rows(results: Mapping[float, Result]) -> list[Row]:
    broken = sorted(a for a, result in results.items() if result["broken"] is not None)
    better = [a for a in broken if results[a]["broken"][2] < results[a]["symmetric"][2]]
    rows = [_WELL.row("least", broken[0], within(broken[0], 1.0, 0.0))] if broken else []
    return [*rows, _WELL.row("better", better[0], above(better[0], 1.05))] if better else rows


def _fit_rows(
    alpha: float, result: Result, middle: _Fit, well: _Fit | None, covering: float
) -> list[Row]:
    where = f"alpha {alpha:g}"
    rows = [
        _numbers(f"{where}, KL(q||p) in the middle: precision, KL", result["symmetric"][1:], middle)
    ]
    if well is not None:
        name = f"{where}, KL(q||p) in a well: mean, precision, KL"
        rows.append(_numbers(name, result["broken"], well))
    name = f"{where}, KL(p||q): precision"
    rows.append(_numbers(name, result["covering"][1:], (covering,)))
    return rows


def _numbers(name: str, ours: Any, expected: _Fit) -> Row:
    near = all(abs(a - b) < 6e-5 * (1 + abs(b)) for a, b in zip(ours, expected, strict=True))
    judgement = holds(near, "within 6e-5 (1 + |reference|)")
    return _WELL.row("fit", _text(ours), judgement, name=name, known=_text(expected))


def _text(values: Any) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def _sampled_row(alpha: float, result: Result, expected: tuple[float, float]) -> Row:
    """Agreement in kind: one mode or both, and the size of the precision."""
    mean, precision, _ = result["sampled"]
    near = abs(mean - expected[0]) < 0.12 + 0.1 * expected[0]
    near = near and 0.7 < precision / expected[1] < 1.4
    note = "chains cross: as KL(p||q)" if expected[1] < 3 else "chains stay: as KL(q||p)"
    known = f"{expected[0]:g} {expected[1]:g}"
    ours = f"{mean:.3f} {precision:.2f}"
    judgement = holds(near, "mean within 0.12 + a tenth, precision from 0.7 to 1.4 times")
    return _WELL.row("sampled", ours, judgement, alpha=alpha, known=known, note=note)


def gaussian_rows(result: Result) -> list[Row]:
    """Variances of the round Gaussian, by formula and by search."""
    rows = []
    for key, name, expected in (
        ("covers", "variance of least KL(p||q)", 0.505),
        ("inside", "variance of least KL(q||p)", 1 / 50.5),
    ):
        ours, found = result[key], result[f"{key}_found"]
        right = abs(ours - expected) < 1e-12 and abs(found / ours - 1) < 1e-3
        judgement = holds(right, "the reference within 1e-12, by search within 0.1 %")
        words = "covers it" if key == "covers" else "stays inside"
        rows.append(Row(name, round(ours, 6), words, round(expected, 6), "", judgement))
    return rows


def juror_rows(results: Mapping[str, Result]) -> list[Row]:
    """Posteriors by the first method that is there, and how far the others are from it."""
    first = next(iter(results.values()))
    rows = []
    for key, (name, published, exact) in _EXACT.items():
        near = abs(first[key] - exact) < 6e-7 and abs(first[key] / published - 1) < 0.003
        judgement = holds(near, "the published within 0.3 %, the reference within 6e-7")
        rows.append(Row(name, round(first[key], 7), published, exact, "", judgement))
    prior = first["guilty prior"]
    less = above(prior, first["guilty known"], "that with fingerprints and visit")
    apart = max(abs(r[key] - first[key]) for r in results.values() for key in first)
    names = ", ".join(results)
    return [
        *rows,
        _JURORS.row("prior", round(prior, 7), less),
        _JURORS.row("apart", significant(apart, 1), below(apart, 1e-12), names=names),
    ]
