"""Liu's thesis, chapter 3: signal detection by alpha-belief propagation (LIU-E3 to E5).

The symbols of many channel uses are detected at once by `applications.detection`. The published
curves of alpha-BP come out when the one-variable factors are approached gradually, by rule (3.16)
from uniform ones; with full fields from the start small alpha ends at worse fixed points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi_experiments.aggregate import within
from kikuchi_experiments.applications.detection import (
    ChannelUses,
    channel_uses,
    detect,
    symbol_errors,
)
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.liu2020 import figures
from kikuchi_experiments.liu2020.published import RATIOS
from kikuchi_experiments.liu2020.tables import curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ERRORS = 4.0  # standard errors within which two estimates agree
_PUBLISHED_USES = 5000
_RECOMPUTED_USES = 1500  # behind the corrected references of the catalogue
_TABLE_RATIOS = (5.33, 9.67, 22.67, 40.0)


class _Mimo(Experiment):
    """What the three detection experiments share: draws, error rates, comparison, figure."""

    published: ClassVar[Mapping[str, Sequence[float | None]]]
    max_iter: ClassVar[int] = 50
    remarks: ClassVar[Mapping[str, str]] = {}
    corrected: ClassVar[Mapping[str, Mapping[float, float]]] = {}
    case_axes: ClassVar[CaseAxes] = {"ratio": "ratios"}

    def run_case(self, case: Case) -> Result:
        """Share of wrong symbols, and its mean square over uses, by detector."""
        ratio = exact_ratio(case["ratio"])
        uses = channel_uses(case["symbols"], ratio, case["uses"], seed=case["seed"])
        result = {}
        for name in self.published:
            errors = symbol_errors(uses.sent, self.symbols(name, uses))
            result[name] = [float(errors.mean()), float((errors**2).mean())]
        return result

    def symbols(self, name: str, uses: ChannelUses) -> Array:
        """Symbols that a detector of the table finds."""
        text, _, damping = name.partition(" damped ")
        detection = detect(
            uses.channels,
            uses.received,
            uses.noise,
            text,
            max_iter=self.max_iter,
            damping=float(damping or 0.0),
        )
        return detection.symbols

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Symbol errors at four ratios beside the published ones."""
        ratios = sorted({one.case["ratio"] for one in finished} & set(_TABLE_RATIOS))
        return [self._row(name, r, finished) for name in self.published for r in ratios]

    def _row(self, name: str, ratio: float, finished: Sequence[Finished]) -> Row:
        ours, error, uses = self._estimate(name, ratio, finished)
        published = self.published[name][RATIOS.index(ratio)]
        corrected = self.corrected.get(name, {}).get(ratio)
        wanted = corrected if published is None else published
        count = _RECOMPUTED_USES if published is None else _PUBLISHED_USES
        judgement = None
        if wanted is not None:
            judgement = within(ours, wanted, self._allowed(error, wanted, uses, count))
        quantity, note = f"symbol error of {label(name)}, ratio {ratio:g}", self.remarks.get(name)
        return Row(quantity, round(ours, 4), published, corrected, note or "", judgement)

    def _estimate(
        self, name: str, ratio: float, finished: Sequence[Finished]
    ) -> tuple[float, float, int]:
        """Mean, its standard error, and the channel uses behind it."""
        here = [one for one in finished if one.case["ratio"] == ratio]
        uses = sum(one.case["uses"] for one in here)
        mean, square = np.mean([one.result[name] for one in here], axis=0)
        return float(mean), float(np.sqrt(max(square - mean**2, 0.0) / uses)), uses

    @staticmethod
    def _allowed(error: float, wanted: float, uses: int, count: int) -> float:
        """How far two estimates may differ; rare errors have at least the spread of lone ones."""
        spread = max(error, np.sqrt(wanted / (4.0 * uses)))
        return float(_ERRORS * spread * np.sqrt(1.0 + uses / count))

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Symbol errors by ratio."""
        ratios = sorted({one.case["ratio"] for one in finished})
        curves = {}
        for name, values in self.published.items():
            estimates = [self._estimate(name, r, finished) for r in ratios]
            theirs = [values[RATIOS.index(r)] for r in ratios]
            curves[label(name)] = (
                np.array([e[0] for e in estimates]),
                np.array([e[1] for e in estimates]),
                np.array([np.nan if v is None else v for v in theirs]),
            )
        return figures.symbol_error_curves(np.array(ratios), curves)


def exact_ratio(rounded: float) -> float:
    """The ratio of the published grid, ten equal steps from 1 to 40, that rounds to this.

    >>> round(exact_ratio(5.33), 6)
    5.333333
    """
    return float(np.linspace(1.0, 40.0, 10)[RATIOS.index(rounded)])


def label(name: str) -> str:
    """A detector as people call it.

    >>> label("alpha:0.5+mmse"), label("trw:0.25 damped 0.5")
    ('α = 0.5 with prior', 'TRW, damped')
    """
    text, _, damping = name.partition(" damped ")
    words = {"bp": "BP", "mf": "mean field", "mmse": "MMSE", "map": "MAP", "trw:0.25": "TRW"}
    words["alpha:1"] = "BP (α = 1)"
    words["mf as published"] = "mean field as published"
    base, _, prior = text.partition("+")
    shown = words.get(base, base.replace("alpha:", "α = "))
    return shown + (" with prior" if prior else "") + (", damped" if damping else "")


class DetectionByAlpha(_Mimo):
    """Symbol errors of alpha-BP (LIU-E3, M8, I16; Fig. 3.5a)."""

    id: ClassVar[str] = "LIU-E3"
    published: ClassVar[Mapping[str, Sequence[float | None]]] = curves("LIU-E3")
    remarks: ClassVar[Mapping[str, str]] = {
        "alpha:0.3": "needs rule (3.16) from uniform: with full fields at once .027 at ratio 40"
    }


class DetectionWithPrior(_Mimo):
    """Symbol errors of alpha-BP with the linear estimate as a prior (LIU-E4, I7; Fig. 3.5b)."""

    id: ClassVar[str] = "LIU-E4"
    published: ClassVar[Mapping[str, Sequence[float | None]]] = curves("LIU-E4")


class DetectionByOthers(_Mimo):
    """Symbol errors of mean field, damped and tree-reweighted BP (LIU-E5; Fig. 3.5c)."""

    id: ClassVar[str] = "LIU-E5"
    max_iter: ClassVar[int] = 100
    published: ClassVar[Mapping[str, Sequence[float | None]]] = curves("LIU-E5")
    corrected: ClassVar[Mapping[str, Mapping[float, float]]] = {
        "mf": {5.33: 0.163, 9.67: 0.144, 22.67: 0.146, 40.0: 0.136},
        "trw:0.25 damped 0.5": {5.33: 0.137, 9.67: 0.107, 22.67: 0.091, 40.0: 0.089},
    }
    remarks: ClassVar[Mapping[str, str]] = {
        "mf": "the published curve used half the couplings and a self-coupling",
        "mf as published": "half the couplings and a self-coupling, on purpose",
        "trw:0.25": "not converged: what the last sweep gives, at ratio 40 not as bad as published",
        "trw:0.25 damped 0.5": "damped it does not degrade",
    }

    def symbols(self, name: str, uses: ChannelUses) -> Array:
        """As the others; the published mean field is made anew with its faults."""
        if name != "mf as published":
            return super().symbols(name, uses)
        from kikuchi_experiments.applications.kernels.detection import mean_field

        gram = np.matmul(uses.channels.transpose(0, 2, 1), uses.channels)
        matched = np.einsum("kmi,km->ki", uses.channels, uses.received)
        odds = np.empty_like(matched)
        done = np.zeros(len(matched), dtype=np.bool_)
        mean_field(-gram / (2 * uses.noise), matched / uses.noise, self.max_iter, 1e-6, odds, done)
        return np.where(odds > 0.0, 1.0, -1.0)
