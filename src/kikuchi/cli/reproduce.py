"""`kikuchi reproduce`: experiments of the source documents, ours beside theirs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kikuchi.cli import options
from kikuchi.core.errors import KikuchiError

if TYPE_CHECKING:
    from kikuchi.cli.console import Screen
    from kikuchi.reproduce.experiment import Experiment
    from kikuchi.reproduce.runner import Outcome

_HEAD = ("id", "document", "title", "quick", "full", "status")

Name = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="Which experiment; without it they are listed."),
]
Quick = Annotated[bool, typer.Option("--quick", help="A small setting, well under a minute.")]
Seeds = Annotated[int | None, typer.Option("--seeds", metavar="N", help="How many random draws.")]
FirstSeed = Annotated[int, typer.Option("--seed", metavar="S", help="The first seed.")]
Processes = Annotated[
    int | None,
    typer.Option("--processes", metavar="P", help="Cases at a time.  [one for each core]"),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS|local:N",
        help="A Dask cluster in place of processes: its scheduler, or N workers started here.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume", metavar="FILE", help="Keep finished cases in FILE; skip those it holds."
    ),
]
OwnData = Annotated[
    str | None,
    typer.Option("--data", metavar="FILE", help="Your own data in place of the stand-in."),
]


def reproduce(
    experiment: Name = None,
    quick: Quick = False,
    seeds: Seeds = None,
    seed: FirstSeed = 0,
    processes: Processes = None,
    cluster: Cluster = None,
    resume: Resume = None,
    data: OwnData = None,
    json: options.Json = None,
    report: options.Report = None,
    seconds: options.Seconds = None,
    quiet: options.Quiet = False,
) -> None:
    """Run an experiment of the source documents again.

    Prints ours beside the published figures and a corrected reference. Ctrl-C and the end of the
    time budget leave a table of the cases that were finished.
    """
    from kikuchi.cli.console import Screen
    from kikuchi.cli.outputs import STANDARD_OUTPUT, check_outputs

    check_outputs("" if resume is None else str(resume), json, report)
    screen = Screen(quiet=quiet or json == STANDARD_OUTPUT)
    if experiment is None:
        _list(screen, json)
        return
    from kikuchi.reproduce import find_experiment

    chosen = find_experiment(experiment, data)
    outcome = _run(chosen, quick, seeds, seed, processes, cluster, resume, seconds, screen.quiet)
    _show(screen, outcome)
    if json is not None:
        from kikuchi.cli.outputs import write_json

        write_json(outcome.to_dict(), json)
    if report is not None:
        from kikuchi.reports.reproduce_page import reproduce_report

        reproduce_report(outcome, report, command=_command(outcome, report))
    for path in (json, report):
        if path is not None and path != STANDARD_OUTPUT:
            screen.note(f"written: {path}")
    if not outcome.complete:
        way = f"--resume {resume}" if resume is not None else "--resume FILE from the beginning"
        screen.note(f"stopped ({outcome.stopped}); a run with {way} goes on where one stopped")


def _run(
    chosen: Experiment,
    quick: bool,
    seeds: int | None,
    seed: int,
    processes: int | None,
    cluster: str | None,
    resume: Path | None,
    seconds: float | None,
    quiet: bool,
) -> Outcome:
    from kikuchi.cli.console import ProgressBar
    from kikuchi.cli.inputs import make_budget
    from kikuchi.core.cluster import optional_cluster
    from kikuchi.reproduce import reproduce as run

    if processes is not None and cluster is not None:
        raise KikuchiError("give --processes or --cluster, not both")
    budget = make_budget(seconds, None)
    with optional_cluster(cluster) as executor, ProgressBar(chosen.id, quiet=quiet) as bar:
        return run(
            chosen,
            quick=quick,
            seeds=seeds,
            first_seed=seed,
            processes=processes,
            executor=executor,
            resume=resume,
            budget=budget,
            progress=bar,
        )


def _list(screen: Screen, json: Path | None) -> None:
    from kikuchi.reproduce.catalogue import all_experiments

    known = all_experiments()
    rows = [[e.id, e.document, e.title, e.quick.time, e.full.time, e.status] for e in known]
    screen.table(_HEAD, rows, right=[3, 4])
    screen.line()
    screen.line("quick, full: typical time on one core. status: our result against the document.")
    screen.line("Run one with: kikuchi reproduce ID [--quick] [--data FILE]")
    for e in known:
        if e.takes_data:
            screen.line(f"--data of {e.id}: {e.takes_data}")
    if json is not None:
        from kikuchi.cli.outputs import write_json

        write_json([dict(zip(_HEAD, row, strict=True)) for row in rows], json)


def _show(screen: Screen, outcome: Outcome) -> None:
    from kikuchi.reports.reproduce_page import HEAD, cells, disagreements, facts

    rows = outcome.rows()
    screen.facts(facts(outcome))
    screen.line()
    screen.table(HEAD, cells(rows), right=[1])
    for message in disagreements(rows):
        screen.line(f"mind: {message}")


def _command(outcome: Outcome, report: Path) -> str:
    words = ["kikuchi", "reproduce", outcome.experiment.id]
    words += ["--quick"] if outcome.quick else []
    if outcome.seeds:
        words += ["--seeds", str(len(outcome.seeds)), "--seed", str(outcome.seeds[0])]
    if outcome.experiment.data is not None:
        words += ["--data", outcome.experiment.data]
    return shlex.join([*words, "--report", str(report)])
