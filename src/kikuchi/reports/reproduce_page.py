"""The page of an experiment that was run again, and its table as texts."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

from kikuchi.reports import html, parts, text

if TYPE_CHECKING:
    from kikuchi.reproduce.experiment import Row, Value
    from kikuchi.reproduce.runner import Outcome

HEAD = ("quantity", "ours", "published", "corrected reference", "note")
_REFERENCE_NOTE = (
    "Published is what the document says; a dash means that it gives no number. The corrected "
    "reference is an independent computation."
)


def reproduce_report(
    outcome: Outcome, path: str | PathLike[str], *, command: str | None = None
) -> None:
    """Write one self-contained HTML page about an experiment: table, figure, settings, rerun.

    >>> import tempfile, pathlib
    >>> from kikuchi.reproduce import reproduce
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "e11.html"
    >>> reproduce_report(reproduce("HOJ-E11", quick=True, seeds=1), target)
    >>> target.read_text().count("<section>")
    4
    """
    html.write_page(path, _page(outcome, command))


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


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """The table as texts, in the order of `HEAD`."""
    return [
        [row.quantity, *(cell(v) for v in (row.ours, row.published, row.corrected)), row.note]
        for row in rows
    ]


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
    wall, spent = text.seconds(outcome.seconds), text.seconds(outcome.case_seconds)
    workers = text.count(max(outcome.processes, 1), "process", "processes")
    return [*pairs, ("time", f"{wall} in {workers}; all cases together {spent}")]


def disagreements(rows: Sequence[Row]) -> list[str]:
    """One line for each row that is not what it should be."""
    return [
        f"{row.quantity}: {cell(row.ours)} is not what was expected "
        f"({cell(row.corrected if row.corrected is not None else row.published)})"
        for row in rows
        if row.agrees is False
    ]


def _seed_range(seeds: Sequence[int]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def _page(outcome: Outcome, command: str | None) -> str:
    experiment = outcome.experiment
    rows = outcome.rows()
    return html.document(
        f"{experiment.id}: {experiment.title}",
        f"{experiment.document}, run again",
        html.section(
            "Ours beside theirs",
            html.warning_box([*_unfinished(outcome), *disagreements(rows)]),
            html.table(HEAD, cells(rows)),
            note=f"{experiment.claim} {_REFERENCE_NOTE}",
        ),
        html.section("Figure", html.picture(outcome.figure(), experiment.caption, 1)),
        html.section(
            "Settings",
            html.definition_table(
                [
                    *((label.capitalize(), value) for label, value in facts(outcome)[3:]),
                    *parts.version_pairs(),
                ]
            ),
        ),
        parts.rerun(command, _python(outcome)),
    )


def _unfinished(outcome: Outcome) -> list[str]:
    if outcome.complete:
        return []
    return [
        f"Only {len(outcome.finished)} of {outcome.total} cases were finished; the table and the "
        "figure are about those."
    ]


def _python(outcome: Outcome) -> str:
    words = [repr(outcome.experiment.id)]
    words += ["quick=True"] if outcome.quick else []
    if outcome.seeds:
        words.append(f"seeds={len(outcome.seeds)}")
    words += [f"first_seed={outcome.seeds[0]}"] if outcome.seeds and outcome.seeds[0] else []
    call = f"outcome = reproduce({', '.join(words)}, processes=1)"
    return f"from kikuchi.reproduce import reproduce\n{call}\nprint(*outcome.rows(), sep='\\n')"
