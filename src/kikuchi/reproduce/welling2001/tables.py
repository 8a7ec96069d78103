"""Table 1 of Welling and Hinton: what it has, and our errors beside it (WH-E1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kikuchi.reproduce.experiment import Finished, Row

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


class ErrorTable:
    """Errors of one set of digits by architecture and method, a value a seed."""

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

    def mean(self, architecture: str, method: str) -> float:
        """Mean error over the seeds."""
        return float(np.mean(list(self.errors[architecture, method].values())))

    def difference(self, one: tuple[str, str], other: tuple[str, str]) -> tuple[float, float]:
        """Mean over common seeds of the first error minus the second, and its standard error."""
        return paired_difference(self.errors[one], self.errors[other])

    @property
    def alone(self) -> bool:
        """Whether there is one seed only: a digit more or less decides nothing then."""
        return max(map(len, self.errors.values())) < 2

    def _points(self, gap: float, spread: float) -> str:
        return f"{gap:.1f} points, one seed" if self.alone else f"{gap:.1f} ± {spread:.1f} points"

    def _judged(self, right: bool) -> bool | None:
        return None if self.alone else right

    def rows(self) -> list[Row]:
        """Every cell, the baselines and the statements of the paper about them."""
        return [
            *self._cell_rows(),
            *self._baseline_rows(),
            *self._star_rows(),
            *self._settled_rows(),
            *self._lateral_rows(),
            *self._below_rows(),
        ]

    def _cell_rows(self) -> Iterator[Row]:
        for (architecture, method), errors in sorted(self.errors.items(), key=_table_order):
            own = [
                one
                for one in self.finished
                if (one.case["architecture"], one.case["method"]) == (architecture, method)
            ]
            said = [text for one in own for text in one.result["warnings"]]
            cpu = float(np.mean([one.result["cpu"] for one in own]))
            seeds = "one seed" if len(errors) == 1 else f"{len(errors)} seeds"
            note = f"{seeds}; {cpu:.1f} s of CPU for all classes"
            note += f"; {len(said)} warnings: {said[0]}" if said else ""
            published = "{:.1f} ± {:.1f} %".format(*PUBLISHED[architecture, method])
            yield Row(f"{architecture.upper()}, {method}", _with_spread(errors.values()), published,
                      None, note)  # fmt: skip

    def _baseline_rows(self) -> Iterator[Row]:
        sizes = self.finished[0].result
        note = (
            f"{sizes['train']} digits to learn from, {sizes['known']} with the validation set, "
            f"{sizes['test']} to test; split anew by each seed"
        )
        for name, errors in self.baselines.items():
            yield Row(name, _with_spread(errors.values()), f"{BASELINES[name][0]} %", None, note)

    def _star_rows(self) -> Iterator[Row]:
        """MF_* is well above what starts at the data."""
        pairs = [
            (architecture, method)
            for architecture in ARCHITECTURES
            for method in ("MF_1", "MF_inf")
            if {(architecture, method), (architecture, "MF_*")} <= set(self.errors)
        ]
        if pairs:
            gaps = [self.difference((a, "MF_*"), (a, method)) for a, method in pairs]
            gap, spread = min(gaps)
            yield Row(
                "MF_* above MF_1 and MF_inf: smallest gap of all architectures",
                self._points(gap, spread),
                "1.4 points",
                None,
                "with its standard error; agrees above two of them",
                self._judged(gap > 2.0 * spread),
            )

    def _settled_rows(self) -> Iterator[Row]:
        """MF_inf, TAP and Bethe give nothing over MF_1."""
        for method, published in (("MF_inf", "0.0 to 1.1"), ("TAP", "-0.1 to 0.0"),
                                  ("Bethe", "0.0 to 0.1")):  # fmt: skip
            gaps = [
                self.difference((a, method), (a, "MF_1"))
                for a in ARCHITECTURES
                if {(a, method), (a, "MF_1")} <= set(self.errors)
            ]
            if gaps:
                values = [gap for gap, _ in gaps]
                yield Row(
                    f"{method} minus MF_1",
                    f"{min(values):.1f} to {max(values):.1f} points",
                    f"{published} points",
                    None,
                    f"standard errors up to {max(s for _, s in gaps):.1f}; agrees if MF_1 is "
                    "nowhere worse by half a point or two standard errors, whichever is more",
                    self._judged(all(gap > -max(0.5, 2.0 * spread) for gap, spread in gaps)),
                )

    def _lateral_rows(self) -> Iterator[Row]:
        """Connections among visible units help."""
        for method in ("MF_1", "MF_inf", "MF_*"):
            have = {a for a, m in self.errors if m == method}
            pairs = [(b, p) for b in ("brf", "hrf") for p in ("poe", "fcrf") if {b, p} <= have]
            if pairs:
                gaps = [self.difference((b, method), (p, method)) for b, p in pairs]
                gap, spread = min(gaps)
                paper = min(PUBLISHED[b, method][0] - PUBLISHED[p, method][0] for b, p in pairs)
                yield Row(
                    f"PoE and FCRF below BRF and HRF, {method}: smallest gap",
                    self._points(gap, spread),
                    f"{paper:.1f} points",
                    None,
                    f"largest {max(gaps)[0]:.1f}; with its standard error; agrees above two",
                    self._judged(gap > 2.0 * spread),
                )

    def _below_rows(self) -> Iterator[Row]:
        if ("poe", "MF_1") in self.errors and self.baselines:
            best = min(self.baselines.values(), key=lambda e: np.mean(list(e.values())))
            gap, spread = paired_difference(best, self.errors["poe", "MF_1"])
            ours, theirs = self.mean("poe", "MF_1"), float(np.mean(list(best.values())))
            yield Row(
                "PoE by MF_1 below both baselines",
                f"{ours:.1f} against {theirs:.1f} %",
                "4.5 against 6.3 %",
                None,
                f"the better baseline; by {self._points(gap, spread)}, agrees above two standard "
                "errors",
                self._judged(gap > 2.0 * spread),
            )


def paired_difference(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[float, float]:
    """Mean over common seeds of the first minus the second, and its standard error (0 for one).

    >>> paired_difference({0: 3.0, 1: 5.0, 2: 9.0}, {0: 2.0, 1: 2.0})
    (2.0, 1.0)
    """
    found = np.array([one[seed] - other[seed] for seed in one if seed in other])
    spread = float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else 0.0
    return float(found.mean()) if len(found) else 0.0, spread


def _table_order(item: tuple[tuple[str, str], Any]) -> tuple[int, int]:
    architecture, method = item[0]
    return ARCHITECTURES.index(architecture), list(LEARNERS).index(method)


def _with_spread(errors: Any) -> str:
    values = np.array(list(errors))
    if len(values) < 2:
        return f"{values[0]:.1f} %"
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f} %"


def prefixed(before: str, rows: Sequence[Row]) -> list[Row]:
    """The rows, with a text before what each is about."""
    return [
        Row(before + row.quantity, row.ours, row.published, row.corrected, row.note, row.agrees)
        for row in rows
    ]
