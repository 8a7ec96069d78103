"""`kikuchi reproduce`: experiments of the source documents, ours beside theirs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kikuchi.cli import options
from kikuchi.cli.command import PageOutput, finish, grouped
from kikuchi.cli.options import flag
from kikuchi.core.answer import Answer, TextTable
from kikuchi.core.errors import KikuchiError

if TYPE_CHECKING:
    from kikuchi_experiments.experiment import Experiment
    from kikuchi_experiments.runner import Outcome

_HEAD = ("id", "document", "title", "quick", "full", "status", "run")

Name = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="Which experiment; without it they are listed."),
]
OwnData = Annotated[
    str | None, options.option("--data FILE", "Your own data in place of the stand-in.")
]


@dataclass(frozen=True)
class ReproduceOptions:
    """How an experiment is run."""

    quick: bool = flag("--quick", "A small setting: at most about a minute on one core.", False)
    seeds: int | None = flag("--seeds N", "How many random draws.")
    seed: int = flag("--seed S", "The first seed.", 0)
    processes: int | None = flag("--processes P", "Cases at a time.  [one for each core]")
    cluster: options.Cluster = None
    resume: Path | None = flag("--resume FILE", "Keep finished cases in FILE; skip those it holds.")
    seconds: options.Seconds = None

    def run(self, experiment: Experiment, quiet: bool) -> Outcome:
        """Run the cases, with a progress bar."""
        from kikuchi.cli.console import ProgressBar
        from kikuchi.cli.inputs import make_budget
        from kikuchi.core.cluster import optional_cluster
        from kikuchi_experiments import reproduce as run

        if self.processes is not None and self.cluster is not None:
            raise KikuchiError("give --processes or --cluster, not both")
        budget, bar = make_budget(self.seconds, None), ProgressBar(experiment.id, quiet=quiet)
        with optional_cluster(self.cluster), bar:
            return run(
                experiment,
                quick=self.quick,
                seeds=self.seeds,
                first_seed=self.seed,
                processes=self.processes,
                resume=self.resume,
                budget=budget,
                progress=bar,
            )


@grouped
def reproduce(
    experiment: Name = None, data: OwnData = None, *, setting: ReproduceOptions, output: PageOutput
) -> None:
    """Run an experiment of the source documents again.

    Prints ours beside the published figures and a corrected reference, with a verdict on each row.
    Ctrl-C and the end of the time budget leave a table of the cases that were finished.
    """
    output.check("" if setting.resume is None else str(setting.resume))
    if experiment is None:
        from kikuchi_experiments.catalogue import all_experiments

        finish(CatalogueAnswer(list(all_experiments())), output)
        return
    from kikuchi_experiments import find_experiment

    outcome = setting.run(find_experiment(experiment, data), output.screen.quiet)

    def page(path: Path, command: str) -> None:
        from kikuchi_experiments.page import reproduce_report

        reproduce_report(outcome, path, command=command)

    notes = []
    if not outcome.complete:
        way = "--resume FILE from the beginning"
        way = way if setting.resume is None else f"--resume {setting.resume}"
        notes = [f"stopped ({outcome.stopped}); a run with {way} goes on where one stopped"]
    finish(OutcomeAnswer(outcome), output, page=page, notes=notes)


@dataclass(frozen=True)
class CatalogueAnswer(Answer):
    """The experiments that there are."""

    experiments: list[Experiment]

    def _rows(self) -> list[list[str]]:
        from kikuchi_experiments.stored import status_and_date

        return [
            [e.id, e.document, e.title, e.quick.time, e.full.time, *status_and_date(e)]
            for e in self.experiments
        ]

    def table(self) -> TextTable:
        """One row per experiment, without what the remarks and JSON give."""
        rows = [[id, title, quick, full, status]
                for id, _, title, quick, full, status, _ in self._rows()]  # fmt: skip
        return TextTable(("id", "title", "quick", "full", "status"), rows, [2, 3])

    def remarks(self) -> list[str]:
        """How to read the table and how to run an experiment."""
        return [
            "",
            *(f"{prefix}: {document}" for prefix, document in self._documents().items()),
            "quick, full: typical time on one core. status: our result against the document, from "
            "the rows of the run that is kept with this version (its date is in --json).",
            "Run one with: kikuchi reproduce ID [--quick] [--data FILE]",
            *(f"--data of {e.id}: {e.takes_data}" for e in self.experiments if e.takes_data),
        ]

    def _documents(self) -> dict[str, str]:
        """What the first letters of the ids stand for."""
        return {f"{e.id.partition('-')[0]}-*": e.document for e in self.experiments}

    def to_dict(self) -> list[dict[str, str]]:
        """The same table, with the document and the date of the run."""
        return [dict(zip(_HEAD, row, strict=True)) for row in self._rows()]


@dataclass(frozen=True)
class OutcomeAnswer(Answer):
    """An experiment that was run, as the screen and JSON show it."""

    outcome: Outcome

    def facts(self) -> list[tuple[str, str]]:
        """What was run."""
        from kikuchi_experiments.outcomes import facts

        return facts(self.outcome)

    def table(self) -> TextTable:
        """Ours beside the published figures."""
        from kikuchi_experiments.outcomes import short_table

        return short_table(self.outcome.rows())

    def remarks(self) -> list[str]:
        """Notes on the rows, and rows that do not meet their criterion."""
        from kikuchi_experiments.outcomes import disagreements, notes

        rows = self.outcome.rows()
        differing = [f"disagrees: {message}" for message in disagreements(rows)]
        return ["", *notes(rows), *([""] if differing else []), *differing]

    def to_dict(self) -> dict[str, Any]:
        """The whole outcome."""
        return self.outcome.to_dict()
