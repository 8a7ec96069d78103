"""The page of an experiment that was run again."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from kikuchi.core.page import Facts, Picture
from kikuchi.reports.page import Report, versions
from kikuchi_experiments.outcomes import disagreements, facts, table

if TYPE_CHECKING:
    from kikuchi_experiments.runner import Outcome

_REFERENCE_NOTE = (
    "Published is what the document says; a dash means that it gives no number. The corrected "
    "reference is an independent computation."
)


def reproduce_report(
    outcome: Outcome, path: str | PathLike[str], *, command: str | None = None
) -> None:
    """Write one self-contained HTML page about an experiment: table, figure, settings, rerun.

    >>> import tempfile, pathlib
    >>> from kikuchi_experiments import reproduce
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "e11.html"
    >>> reproduce_report(reproduce("HOJ-E11", quick=True, seeds=1), target)
    >>> target.read_text().count("<section>")
    4
    """
    experiment = outcome.experiment
    rows = outcome.rows()
    settings = [(label.capitalize(), value) for label, value in facts(outcome)[3:]]
    Report(
        title=f"{experiment.id}: {experiment.title}",
        subtitle=f"{experiment.document}, run again",
        heading="Ours beside theirs",
        note=f"{experiment.claim} {_REFERENCE_NOTE}",
        warnings=[*_unfinished(outcome), *disagreements(rows)],
        answer=[table(rows)._replace(right=())],
        sections={
            "Figure": [Picture(outcome.figure(), experiment.caption)],
            "Settings": [Facts([*settings, *versions()])],
        },
        python=_python(outcome),
    ).write(path, command)


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
    return f"from kikuchi_experiments import reproduce\n{call}\nprint(*outcome.rows(), sep='\\n')"
