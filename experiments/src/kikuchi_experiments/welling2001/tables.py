"""Table 1 of Welling and Hinton: what it has, and our errors beside it (WH-E1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kikuchi_experiments.aggregate import (
    Claims,
    Estimate,
    average,
    estimate,
    holds,
    paired_difference,
    results_of,
    span,
)
from kikuchi_experiments.experiment import Finished, Judgement, Row

ARCHITECTURES = ("brf", "hrf", "poe", "fcrf")
LEARNERS = {
    "MF_*": "mf-star:tol=1e-4",
    "MF_inf": "cf:k=0,tol=1e-3",
    "MF_1": "cf:k=1,tol=1e-4",
    "TAP": "cf:energy=tap,k=1,tol=1e-4",
    "Bethe": "cf:energy=bethe,k=1,tol=1e-4",
}
"""The five methods of table 1 as learners of this library."""

PUBLISHED: dict[tuple[str, str], tuple[float, float]] = {
    ("brf", "MF_*"): (8.7, 0.4),
    ("brf", "MF_inf"): (5.5, 0.3),
    ("brf", "MF_1"): (5.0, 0.3),
    ("hrf", "MF_*"): (9.6, 0.5),
    ("hrf", "MF_inf"): (6.2, 0.2),
    ("hrf", "MF_1"): (5.1, 0.2),
    ("hrf", "TAP"): (5.1, 0.3),
    ("hrf", "Bethe"): (5.2, 0.3),
    ("poe", "MF_*"): (6.1, 0.5),
    ("poe", "MF_inf"): (4.5, 0.2),
    ("poe", "MF_1"): (4.5, 0.2),
    ("poe", "TAP"): (4.4, 0.2),
    ("poe", "Bethe"): (4.5, 0.2),
    ("fcrf", "MF_*"): (5.9, 0.3),
    ("fcrf", "MF_inf"): (4.5, 0.3),
    ("fcrf", "MF_1"): (4.4, 0.1),
    ("fcrf", "TAP"): (4.4, 0.2),
    ("fcrf", "Bethe"): (4.5, 0.2),
}
"""Table 1: error and deviation over runs in percent; on BRF, TAP and Bethe are MF_1."""

BASELINES = {"1-nearest neighbour": (6.3, 5.5), "logistic regression": (9.2, 6.4)}
"""Errors of the baselines in percent: on binary 8x8 digits, and on grey 16x16 ones."""


_CLAIMS = Claims.of(__name__, "WH-E1")


class ErrorTable:
    """Errors of one set of digits by architecture and method, one value per seed."""

    def __init__(self, finished: Sequence[Finished]) -> None:
        self.finished = finished
        self.errors: dict[tuple[str, str], dict[int, float]] = {}
        self.baselines: dict[str, dict[int, float]] = {}
        for one in finished:
            if one.case["method"] == "baselines":
                for name in BASELINES:
                    self.baselines.setdefault(name, {})[one.case["seed"]] = one.result[name]
            else:
                key = (one.case["architecture"], one.case["method"])
                self.errors.setdefault(key, {})[one.case["seed"]] = one.result["error"]

    def difference(self, one: tuple[str, str], other: tuple[str, str]) -> Estimate:
        """Mean over common seeds of the first error minus the second, with its standard error."""
        return paired_difference(self.errors[one], self.errors[other])

    @property
    def alone(self) -> bool:
        """Whether there is one seed only: a digit more or less decides nothing then."""
        return max(map(len, self.errors.values())) < 2

    def _points(self, gap: Estimate) -> str:
        if self.alone:
            return f"{gap.mean:.1f} points, one seed"
        return f"{gap.mean:.1f} ± {gap.error:.1f} points"

    def _is_clear(self, gap: Estimate) -> Judgement | None:
        """Whether a gap is more than two standard errors; None with one seed only."""
        clear = holds(gap.mean > 2.0 * gap.error, "above two standard errors")
        return None if self.alone else clear

    def rows(self) -> list[Row]:
        """Every cell, the baselines and the statements of the paper about them."""
        return [
            *self._cell_rows(),
            *self._baseline_rows(),
            *self._star_rows(),
            *self._further_rows(),
            *self._lateral_rows(),
            *self._below_rows(),
        ]

    def _cell_rows(self) -> Iterator[Row]:
        for (architecture, method), errors in sorted(self.errors.items(), key=_table_order):
            own = results_of(self.finished, architecture=architecture, method=method)
            said = [text for result in own for text in result["warnings"]]
            seeds = "one seed" if len(errors) == 1 else f"{len(errors)} seeds"
            note = f"{seeds}; {average(own, 'cpu'):.1f} s of CPU for all classes"
            note += f"; {len(said)} warnings: {said[0]}" if said else ""
            mean, deviation = PUBLISHED[architecture, method]
            yield _CLAIMS.row(
                "cell",
                _with_spread(errors.values()),
                architecture=architecture.upper(),
                method=method,
                mean=mean,
                deviation=deviation,
                note=note,
            )

    def _baseline_rows(self) -> Iterator[Row]:
        sizes = {key: self.finished[0].result[key] for key in ("train", "known", "test")}
        for name, errors in self.baselines.items():
            ours, published = _with_spread(errors.values()), BASELINES[name][0]
            yield _CLAIMS.row("baseline", ours, name=name, published=published, **sizes)

    def _star_rows(self) -> Iterator[Row]:
        """MF_* is well above what starts at the data."""
        gaps = [
            self.difference((architecture, "MF_*"), (architecture, method))
            for architecture in ARCHITECTURES
            for method in ("MF_1", "MF_inf")
            if {(architecture, method), (architecture, "MF_*")} <= set(self.errors)
        ]
        if gaps:
            yield _CLAIMS.row("star", self._points(min(gaps)), self._is_clear(min(gaps)))

    def _further_rows(self) -> Iterator[Row]:
        """MF_inf, TAP and Bethe give nothing over MF_1."""
        for method in ("MF_inf", "TAP", "Bethe"):
            gaps = [
                self.difference((a, method), (a, "MF_1"))
                for a in ARCHITECTURES
                if {(a, method), (a, "MF_1")} <= set(self.errors)
            ]
            if gaps:
                error = max(gap.error for gap in gaps)
                ours = f"{span([gap.mean for gap in gaps], '.1f')} points"
                near = all(gap.mean > -max(0.5, 2.0 * gap.error) for gap in gaps)
                words = "nowhere below -0.5 or, if that is more, two standard errors"
                judgement = None if self.alone else holds(near, words)
                yield _CLAIMS.row(method, ours, judgement, error=error)

    def _lateral_rows(self) -> Iterator[Row]:
        """Connections among visible units help."""
        for method in ("MF_1", "MF_inf", "MF_*"):
            have = {a for a, m in self.errors if m == method}
            pairs = [(b, p) for b in ("brf", "hrf") for p in ("poe", "fcrf") if {b, p} <= have]
            if pairs:
                gaps = [self.difference((b, method), (p, method)) for b, p in pairs]
                paper = min(PUBLISHED[b, method][0] - PUBLISHED[p, method][0] for b, p in pairs)
                values = {"method": method, "published": paper, "largest": max(gaps).mean}
                least = min(gaps)
                yield _CLAIMS.row("lateral", self._points(least), self._is_clear(least), **values)

    def _below_rows(self) -> Iterator[Row]:
        if ("poe", "MF_1") in self.errors and self.baselines:
            ours = self.errors["poe", "MF_1"]
            best = min(self.baselines.values(), key=lambda errors: np.mean(list(errors.values())))
            gap = paired_difference(best, ours)
            means = [average(list(errors.values())) for errors in (ours, best)]
            both = f"{means[0]:.1f} against {means[1]:.1f} %"
            yield _CLAIMS.row("below", both, self._is_clear(gap), points=self._points(gap))


def _table_order(item: tuple[tuple[str, str], Any]) -> tuple[int, int]:
    architecture, method = item[0]
    return ARCHITECTURES.index(architecture), list(LEARNERS).index(method)


def _with_spread(errors: Iterable[float]) -> str:
    values = list(errors)
    error = estimate(values)
    return f"{error.mean:.1f}" + (f" ± {error.deviation:.1f} %" if len(values) > 1 else " %")


def prefixed(before: str, rows: Sequence[Row]) -> list[Row]:
    """The rows, with a text before what each is about."""
    return [replace(row, quantity=before + row.quantity) for row in rows]
