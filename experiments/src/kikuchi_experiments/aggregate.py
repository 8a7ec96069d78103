"""What every experiment does with its finished cases: groups, means with standard errors, paired
differences, and rows with ours beside what the document says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kikuchi_experiments.experiment import (
    Finished,
    Judgement,
    Result,
    Row,
    Value,
    folder_entries,
)

# ---------------------------------------------------------------------- ours beside published


class Claims:
    """What a document says about each row: quantity, published, corrected reference, note.

    The rows stand by a short key under `claims` in the `experiments.toml` of the document's folder.
    An empty text means that there is no value. Texts may have places `{name}` that `row` fills in.

    >>> claims = Claims({"noise": ["noise variance", 1.0, "", "mean of {count} runs"]})
    >>> row = claims.row("noise", 0.98, within(0.98, 1.0, 0.05), count=3)
    >>> row.quantity, row.ours, row.published, row.corrected, row.note
    ('noise variance', 0.98, 1.0, None, 'mean of 3 runs')
    >>> row.verdict, row.criterion
    ('agrees', 'within 0.05 of 1')
    """

    def __init__(self, table: Mapping[str, Sequence[Any]]) -> None:
        self._table = table

    @classmethod
    def of(cls, module: str, *identifiers: str) -> Claims:
        """The claims of experiments in the folder of a module."""
        entries = folder_entries(module.rpartition(".")[0])
        return cls({k: v for name in identifiers for k, v in entries[name]["claims"].items()})

    def row(self, key: str, ours: Value, judgement: Judgement | None = None, **values: Any) -> Row:
        """The row of a claim with our value and what is made of it."""
        quantity, published, corrected, note = (_filled(v, values) for v in self._table[key])
        return Row(quantity, ours, published, corrected, note or "", judgement)


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A text with its places filled in, None if there is none; where a place is all, its value."""
    if not isinstance(value, str):
        return value
    if value[:1] == "{" and value[1:-1] in values:
        return values[value[1:-1]]
    return value.format(**values) or None


# ---------------------------------------------------------------------- criteria


def holds(agrees: object, criterion: str) -> Judgement:
    """A condition with its words."""
    return Judgement(bool(agrees), criterion)


def within(value: float, target: float, tolerance: float) -> Judgement:
    """Whether a number is as near to another as this.

    >>> within(3.1, 3.0, 0.05)
    Judgement(agrees=False, criterion='within 0.05 of 3')
    """
    near = abs(value - target) <= tolerance
    return holds(near, f"within {tolerance:.2g} of {target:.4g}" if tolerance else f"= {target:g}")


def above(value: float, bound: float, what: str = "") -> Judgement:
    """Whether a number is above another; `what` names the other where it is no constant.

    >>> above(2.0, 1.5), above(2.0, 3.5, "that of BP")
    (Judgement(agrees=True, criterion='above 1.5'), Judgement(agrees=False, \
criterion='above that of BP'))
    """
    return holds(value > bound, f"above {what or format(bound, '.4g')}")


def below(value: float, bound: float, what: str = "") -> Judgement:
    """Whether a number is below another; `what` names the other where it is no constant."""
    return holds(value < bound, f"below {what or format(bound, '.4g')}")


def between(value: float, low: float, high: float, unit: str = "") -> Judgement:
    """Whether a number is in a range, its ends included.

    >>> between(3.0, 2.5, 3.5).criterion
    'from 2.5 to 3.5'
    """
    return holds(low <= value <= high, f"from {low:g} to {high:g}{unit}")


def all_of(count: int, total: int) -> Judgement:
    """Whether a count is of all there are."""
    return holds(count == total, "all")


def of_total(count: int, total: int) -> str:
    """A count and what it is out of.

    >>> of_total(3, 4)
    '3 of 4'
    """
    return f"{count} of {total}"


def span(values: Iterable[float], spec: str = "") -> str:
    """Smallest and largest value.

    >>> span([2.5, 0.25, 1.0], ".1f")
    '0.2 to 2.5'
    """
    numbers = list(values)
    return f"{min(numbers):{spec}} to {max(numbers):{spec}}"


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "run"), counted(3, "run")
    ('1 run', '3 runs')
    """
    return f"{count} {noun}" + ("" if count == 1 else "s")


def significant(value: float, digits: int = 3) -> float:
    """A number with so many significant digits.

    >>> significant(0.0123456)
    0.0123
    """
    return float(f"{value:.{digits}g}")


# ---------------------------------------------------------------------- groups and means


def grouped(finished: Iterable[Finished], *axes: str) -> dict[Any, list[Finished]]:
    """Cases by one entry of theirs, or by several as a tuple, in the order in which they come.

    >>> cases = [Finished({"n": n, "seed": s}, {}, 0.0) for n in (4, 9) for s in (0, 1)]
    >>> {n: len(part) for n, part in grouped(cases, "n").items()}
    {4: 2, 9: 2}
    """
    groups: dict[Any, list[Finished]] = {}
    for one in finished:
        entries = tuple(one.case[axis] for axis in axes)
        groups.setdefault(entries if len(axes) > 1 else entries[0], []).append(one)
    return groups


def levels(finished: Iterable[Finished], axis: str) -> list[Any]:
    """The values of one entry of the cases, from the smallest to the largest."""
    return sorted({one.case[axis] for one in finished})


def results_of(finished: Iterable[Finished], **entries: Any) -> list[Result]:
    """Results of the cases with these entries."""
    return [
        one.result
        for one in finished
        if all(one.case[key] == value for key, value in entries.items())
    ]


def average(results: Sequence[Any], *keys: Any) -> float:
    """Mean over results of the number that the keys lead to.

    >>> average([{"bp": {"error": 1.0}}, {"bp": {"error": 2.0}}], "bp", "error")
    1.5
    """
    return float(np.mean([_at(result, keys) for result in results]))


def median(results: Sequence[Any], *keys: Any) -> float:
    """Median over results of the number that the keys lead to."""
    return float(np.median([_at(result, keys) for result in results]))


def _at(result: Any, keys: Sequence[Any]) -> Any:
    for key in keys:
        result = result[key]
    return result


class Estimate(NamedTuple):
    """Mean, standard error of the mean (0 for a single value) and standard deviation."""

    mean: float
    error: float
    deviation: float


def estimate(values: ArrayLike) -> Estimate:
    """Mean of values with its standard error.

    >>> [round(x, 4) for x in estimate([1.0, 2.0, 3.0])]
    [2.0, 0.5774, 1.0]
    """
    array = np.asarray(values, dtype=np.float64)
    deviation = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return Estimate(float(array.mean()), deviation / float(np.sqrt(len(array))), deviation)


def paired_difference(one: Mapping[Any, float], other: Mapping[Any, float]) -> Estimate:
    """Mean over common seeds of the first minus the second, with its standard error.

    >>> paired_difference({0: 3.0, 1: 5.0, 2: 9.0}, {0: 2.0, 1: 2.0})[:2]
    (2.0, 1.0)
    """
    differences = [one[seed] - other[seed] for seed in one if seed in other]
    return estimate(differences) if differences else Estimate(0.0, 0.0, 0.0)
