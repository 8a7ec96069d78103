"""An experiment that was run again, as facts and a table for the screen and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kikuchi.core import text
from kikuchi.core.answer import TextTable

if TYPE_CHECKING:
    from kikuchi_experiments.experiment import Row, Value
    from kikuchi_experiments.runner import Outcome


def cell(value: Value) -> str:
    """A value of the table as a text.

    >>> cell(None), cell(33846), cell(5.1e-10), cell("cycles")
    ('–', '33,846', '5.1e-10', 'cycles')
    """
    if value is None:
        return text.UNKNOWN
    if isinstance(value, str):
        return value
    return text.whole(value) if isinstance(value, int) else text.figure(value, 7)


def table(rows: Sequence[Row]) -> TextTable:
    """Ours beside the published figure and the corrected reference, row by row, and the verdict."""
    head = ("quantity", "ours", "published", "corrected reference", "verdict", "criterion", "note")
    cells = [
        [
            row.quantity,
            *(cell(v) for v in (row.ours, row.published, row.corrected)),
            row.verdict,
            row.criterion or text.UNKNOWN,
            row.note,
        ]
        for row in rows
    ]
    return TextTable(head, cells, [1])


def short_table(rows: Sequence[Row]) -> TextTable:
    """The columns that fit on a terminal; the number leads to the notes below."""
    cells = [
        [str(number), row.quantity, cell(row.ours), cell(row.published), row.verdict]
        for number, row in enumerate(rows, 1)
    ]
    return TextTable(("", "quantity", "ours", "published", "verdict"), cells, [0])


def notes(rows: Sequence[Row]) -> list[str]:
    """What `short_table` leaves out: corrected reference, criterion and note of each row."""
    lines = []
    for number, row in enumerate(rows, 1):
        parts = [
            "" if row.corrected is None else f"corrected reference {cell(row.corrected)}",
            f"criterion: {row.criterion}" if row.criterion else "",
            row.note,
        ]
        known = "; ".join(part for part in parts if part)
        if known:
            lines.append(f"{number}: {known}")
    return lines


def facts(outcome: Outcome) -> list[tuple[str, str]]:
    """What was run, as labels with their values."""
    experiment = outcome.experiment
    setting = experiment.setting(outcome.quick)
    done = f"{len(outcome.finished)} of {outcome.total} finished"
    if outcome.resumed:
        done += f", {outcome.resumed} of them in an earlier run"
    if outcome.outdated:
        done += f"; {outcome.outdated} of another version of kikuchi were not used"
    if not outcome.complete:
        done += f"; stopped: {outcome.stopped}"
    pairs = [
        ("experiment", f"{experiment.id}: {experiment.title}"),
        ("document", experiment.document),
        ("claim", experiment.claim),
        ("setting", "quick" if outcome.quick else "full"),
        ("parameters", ", ".join(f"{k} = {v}" for k, v in setting.parameters.items())),
    ]
    if outcome.seeds:
        pairs.append(("seeds", _seed_range(outcome.seeds)))
    pairs.append(("cases", done))
    pairs.append(("verdict", f"{outcome.verdict}, by the rows of this run"))
    wall, spent = text.seconds(outcome.seconds), text.seconds(outcome.case_seconds)
    workers = text.count(max(outcome.processes, 1), "process", "processes")
    return [*pairs, ("time", f"{wall} in {workers}; all cases together {spent}")]


def disagreements(rows: Sequence[Row]) -> list[str]:
    """One line for each row that does not meet its criterion."""
    return [
        f"{row.quantity}: {cell(row.ours)} is not what "
        + ("the document says" if row.published is not None else "was expected")
        + f" ({cell(row.published if row.published is not None else row.corrected)})"
        for row in rows
        if row.agrees is False
    ]


def _seed_range(seeds: Sequence[int]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
