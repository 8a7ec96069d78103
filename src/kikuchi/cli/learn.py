"""`kikuchi learn`: fit the tables of a model to a table of data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.cli.console import Screen
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.learning.data import Data
    from kikuchi.learning.fit import Fit
    from kikuchi.learning.learner import Learner

NOT_CONVERGED = 3

DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Rows of states: .csv, .tsv, .parquet, .npy or .npz.",
        show_default=False,
    ),
]


def learn(
    data: DataFile,
    graph: Annotated[
        str,
        typer.Option(
            "--graph",
            "-g",
            metavar="G",
            help="Model file, example:NAME, chow-liu, grid:RxC, or EDGES.csv with two columns.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FITTED", help="Where to write: .uai, .fg, .bif.")
    ],
    learner: Annotated[
        str,
        typer.Option(
            "--learner",
            "-l",
            metavar="TEXT",
            help="Learner text such as pseudo:l2=0.1; see `kikuchi learners`.",
        ),
    ] = "gradient",
    inference: Annotated[
        str | None,
        typer.Option("--inference", metavar="TEXT", help="Method inside the learner, such as bp."),
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            "--hidden",
            metavar="V1,V2",
            help="Variables to treat as never observed; h:3 with a new name has 3 states.",
        ),
    ] = None,
    l1: Annotated[
        float | None, typer.Option("--l1", metavar="X", help="Penalty on sizes of parameters.")
    ] = None,
    l2: Annotated[
        float | None, typer.Option("--l2", metavar="X", help="Penalty on squares of parameters.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="F", help="Save the state of the fit here."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint of a fit that was ended.")
    ] = False,
    json: options.Json = None,
    report: options.Report = None,
    seconds: options.Seconds = None,
    memory: options.Memory = None,
    seed: options.Seed = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 when the learner did not converge.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn the parameters of a model from a table of data."""
    from kikuchi.cli import outputs
    from kikuchi.cli.console import ProgressBar, Screen
    from kikuchi.cli.inputs import make_budget
    from kikuchi.cli.names import write_names
    from kikuchi.cli.startup import defer_blas
    from kikuchi.graphs.formats import write

    defer_blas()
    chosen = choose_learner(learner, inference=inference, l1=l1, l2=l2, seed=seed)
    budget = make_budget(seconds, memory)
    outputs.check_model_suffix(out)
    outputs.check_outputs(data, out, json, report, checkpoint)
    _check_checkpoint(checkpoint, resume)
    model, rows = load_graph_and_data(graph, data, hidden)
    _check_direction(out, model)
    with ProgressBar(chosen.text, quiet=quiet) as progress:
        fit = chosen.fit(model, rows, budget=budget, progress=progress, checkpoint=checkpoint)
    write(fit.graph, out)
    names = write_names(fit.graph, out)
    screen = Screen(quiet=quiet or json == outputs.STANDARD_OUTPUT)
    _show(screen, data, graph, rows, fit)
    for warning in () if quiet else fit.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if json is not None:
        outputs.write_json(as_json(data, graph, out, fit), json)
    if report is not None:
        _write_report(fit, rows, report, data, graph, hidden, out)
    for path in (out, names, json, report):
        if path is not None and path != outputs.STANDARD_OUTPUT:
            screen.note(f"written: {path}")
    if strict and not fit.converged:
        raise typer.Exit(NOT_CONVERGED)


def choose_learner(text: str, **given: Any) -> Learner:
    """A learner from its text, with the options of the command line put in.

    An option that the learner does not have is refused, except the seed.
    """
    from kikuchi.core.errors import MethodError
    from kikuchi.learning.registry import LEARNERS, parse_learner

    chosen = parse_learner(text)
    known = {f.name for f in dataclasses.fields(chosen)}
    wanted = {name: value for name, value in given.items() if value is not None}
    if "seed" not in known:
        wanted.pop("seed", None)
    for name in wanted.keys() - known:
        having = [
            other
            for other in LEARNERS
            if any(f.name == name for f in dataclasses.fields(LEARNERS.find(other)))
        ]
        raise MethodError(
            f"learner {chosen.name} has no option {name}; learners with it: {', '.join(having)}"
        )
    return dataclasses.replace(chosen, **wanted) if wanted else chosen


# ---------------------------------------------------------------------- graph and data


def load_graph_and_data(graph: str, data: str, hidden: str | None) -> tuple[FactorGraph, Data]:
    """The graph that a text names and the rows over its variables, hidden ones masked."""
    from kikuchi.cli.inputs import EXAMPLE, load_model
    from kikuchi.cli.outputs import MODEL_SUFFIXES, suffix
    from kikuchi.learning.files import read_data

    words = [word.strip() for word in (hidden or "").split(",") if word.strip()]
    if graph.startswith(EXAMPLE) or suffix(Path(graph)) in MODEL_SUFFIXES:
        model = load_model(graph)
        return model, _masked(model, read_data(data, model), words)
    from kikuchi.learning.structure.graphs import graph_from_text

    rows = read_data(data)
    rows, shown = _with_new_columns(rows, words, graph)
    model = graph_from_text(graph, shown)
    names = [word.partition(":")[0] for word in words]
    return model, _masked(model, rows.matched(model), names)


def _with_new_columns(rows: Data, words: list[str], graph: str) -> tuple[Data, Data]:
    """The rows with a missing column for each new hidden variable; and as if they were seen."""
    import numpy as np

    from kikuchi.core.errors import DataError
    from kikuchi.learning.data import Data

    known = rows.names or tuple(f"x{k}" for k in range(rows.n_variables))
    new = [word for word in words if word.partition(":")[0] not in known]
    if not new:
        return rows, rows
    if graph.strip().lower() == "chow-liu":
        raise DataError(
            f"--hidden {new[0]}: no column has that name, and chow-liu has no place for a "
            "variable that is never seen; give edges or a model"
        )
    counts = [_states(word) for word in new]
    cards = np.concatenate([rows.cardinalities, counts])
    gaps = np.full((rows.n_rows, len(new)), -1, dtype=np.int32)
    seen = np.arange(rows.n_rows)[:, None] % np.array(counts)
    names = (*known, *(word.partition(":")[0] for word in new))
    words_of = None
    if rows.state_names is not None:
        words_of = (*rows.state_names, *(tuple(map(str, range(c))) for c in counts))
    made = [
        Data(np.hstack([rows.states, added]).astype(np.int32), rows.weights, cards, names, words_of)
        for added in (gaps, seen)
    ]
    return made[0], made[1]


def _states(word: str) -> int:
    from kikuchi.core.errors import DataError

    name, colon, count = word.partition(":")
    if not colon:
        return 2
    if not count.isdecimal() or int(count) < 2:
        raise DataError(f"--hidden {name}:{count}: give a number of states from 2 up, such as h:3")
    return int(count)


def _masked(graph: FactorGraph, rows: Data, words: list[str]) -> Data:
    """The rows without what they say about some variables."""
    from kikuchi.cli.inputs import variable_number
    from kikuchi.core.errors import DataError, ModelError

    if not words:
        return rows
    states = rows.states.copy()
    for word in words:
        try:
            states[:, variable_number(graph, word)] = -1
        except ModelError as error:
            raise DataError(f"--hidden {word}: {error}") from None
    if not (states >= 0).any():
        raise DataError("--hidden: no variable is left that a row observes")
    return rows.like(states, rows.weights)


def _check_checkpoint(checkpoint: Path | None, resume: bool) -> None:
    from kikuchi.core.errors import DataError

    if resume and checkpoint is None:
        raise DataError("--resume needs --checkpoint F, the file that the fit was saved in")
    if checkpoint is not None and checkpoint.exists() and not resume:
        raise DataError(
            f"{checkpoint}: there is a checkpoint already; give --resume to go on from it, or "
            "delete it to begin anew"
        )


def _check_direction(out: Path, graph: FactorGraph) -> None:
    from kikuchi.cli.outputs import suffix
    from kikuchi.core.errors import KikuchiError

    if suffix(out) == ".bif" and not graph.is_directed:
        raise KikuchiError(f"{out}: .bif holds directed models only; write .uai or .fg")


# ---------------------------------------------------------------------- answers


def as_json(data: str, graph: str, out: Path, fit: Fit) -> dict[str, Any]:
    """The JSON contract: `Fit.to_dict` with the data, the graph, the file and the version."""
    from kikuchi import __version__

    return {
        "data": data,
        "graph": graph,
        "out": str(out),
        "version": __version__,
        **fit.to_dict(),
    }


def _show(screen: Screen, data: str, graph: str, rows: Data, fit: Fit) -> None:
    from kikuchi.reports import text
    from kikuchi.reports.learn_page import (
        certified_pairs,
        data_text,
        fit_verdict,
        objective_name,
        score_pairs,
    )

    model = fit.graph
    size = f"{text.count(model.n_variables, 'variable')}, {text.count(model.n_factors, 'factor')}"
    work = f"{text.count(fit.iterations, 'iteration')}, {text.seconds(fit.seconds)}"
    screen.facts(
        [
            ("data", f"{data}: {data_text(rows)}"),
            ("graph", f"{graph}: {size}"),
            ("learner", fit.learner),
            ("objective", f"{text.log_z(fit.objective, 6)} ({objective_name(fit)})"),
            *([] if fit.score is None else score_pairs(fit.score)),
            *certified_pairs(fit),
            ("converged", f"{fit_verdict(fit)} ({work})"),
        ]
    )


def _write_report(
    fit: Fit, rows: Data, path: Path, data: str, graph: str, hidden: str | None, out: Path
) -> None:
    import shlex

    from kikuchi.reports.learn_page import learn_report

    words = ["kikuchi", "learn", data, "--graph", graph, "--learner", fit.learner]
    if hidden:
        words += ["--hidden", hidden]
    command = shlex.join([*words, "--out", str(out), "--report", str(path)])
    learn_report(fit, rows, path, source=data, graph=graph, command=command)
