"""`kikuchi temporal`: fit, filter, forecast and sample models in time."""

from __future__ import annotations

import functools
import inspect
import time
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import typer

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import StrictOutput, finish, grouped, keyword, with_parameters
from kikuchi.cli.estimators import EstimatorCommand, EstimatorOptions, Given
from kikuchi.cli.options import argument, flag, option
from kikuchi.core.errors import DataError, MethodError

if TYPE_CHECKING:
    from kikuchi.core.arrays import Array
    from kikuchi.core.tables import Table
    from kikuchi.temporal.evaluation import DatedRows, TemporalEvaluation

KINDS = EstimatorOptions(
    "kikuchi.temporal",
    {
        "ssm": "LinearGaussianSSM",
        "hmm": "HMM",
        "factorial": "FactorialHMM",
        "hopping": "FrameHoppingHMM",
        "ica": "TemporalICA",
        "probit": "ProbitFilter",
        "flow-hmm": "kikuchi.flows:FlowHMM",
    },
    {
        "n_components": "--state --sources N",
        "n_states": "--states N",
        "emission": "--emission E",
        "covariance_type": "--covariance C",
        "n_mix": "--components N",
        "state_noise": "--state-noise C",
        "output_noise": "--output-noise C",
        "initial": "--initial I",
        "posterior": "--scheme S",
        "persistence": "--persistence X",
        "learner": "--learner -l L",
        "n_init": "--restarts N",
        "drift": "--drift X",
        "prior": "--prior X",
        "max_iter": "--iterations --passes N",
        "tol": "--tol X",
        "flow": "--flow TEXT",
        "topology": "--topology T",
    },
    noun="kind of model",
    elsewhere={"random_state": "--seed"},
    learning=("learner", "n_init", "max_iter", "tol"),
)
_CHAINS = ("factorial", "hopping")

app = typer.Typer(
    help="Fit models in time, and filter, forecast and sample.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Kind = Annotated[str, argument("KIND", "ssm, hmm, factorial, hopping, ica, probit or flow-hmm.")]
DataFiles = Annotated[
    list[str],
    argument("DATA...", "Tables with a row per step, one per sequence; an empty cell is missing."),
]
ModelOut = Annotated[Path | None, option("--out -o MODEL", "File of the model: .safetensors.")]
Steps = Annotated[int, option("--steps N", "Steps after the last row.")]
Ahead = Annotated[int, option("--forecast N", "Forecast N steps after the last row.", min=0)]
Length = Annotated[int, option("--steps N", "Length of the sample.")]
Smooth = Annotated[bool, option("--smooth", "Given all rows, not only those before.")]


@dataclass(frozen=True)
class SequenceOptions:
    """Which columns, which model, and chains."""

    HEADING: ClassVar[str] = "Data"

    model: Path | None = flag("--model FILE", "A fitted model, instead of fitting one.")
    columns: str | None = flag("--columns NAMES", "Columns to use, between commas.  [all]")
    inputs: str | None = flag(
        "--inputs NAMES", "Columns that are known inputs of an ssm.", only=["ssm"]
    )
    label: str | None = flag(
        "--label NAME", "Column of labels of probit.  [the last]", only=["probit"]
    )
    chains: str | None = flag("--chains N,N", "States of each chain.  [2,2]", only=_CHAINS)
    lags: str | None = flag(
        "--lags N,N", "Frames that each chain of hopping spans.  [1,2]", only=["hopping"]
    )
    method: str | None = flag(
        "--method M",
        "Posterior of factorial and hopping: mean-field, bp or exact.  [mean-field]",
        only=_CHAINS,
    )
    table: Path | None = flag("--table OUT.csv", "Write the answer as a table.")


class Task(NamedTuple):
    """What a command does with a fitted model."""

    name: str
    steps: int = 20
    smooth: bool = False


@app.callback()
def temporal() -> None:
    """Fit models in time, and filter, forecast and sample."""


def _run(
    wanted: Task,
    kind: Kind,
    data: DataFiles,
    out: ModelOut = None,
    *,
    chosen: SequenceOptions,
    settings: Annotated[Given, KINDS],
    seed: options.FitSeed = 0,
    seconds: options.Seconds = None,
    output: StrictOutput,
) -> None:
    from kikuchi.cli.console import ProgressBar
    from kikuchi.temporal.evaluation import TemporalEvaluation

    task, like = wanted.name, "hmm" if kind == "flow-hmm" else kind
    _check_words(wanted, kind, seed)
    if task == "fit" and wanted.steps and chosen.inputs:
        raise MethodError("with --inputs there is no forecast; leave --forecast out")
    _check_options(task, kind, chosen)
    for source in data:
        output.check(source, out, chosen.table)
    fitted = None if chosen.model is None else _FittedFile.read(kind, chosen.model, settings)
    read = _tables(data, chosen, kind, fitted)
    tables, names = [r.rows for r in read], read[0].names
    labels = [r.labels for r in read]
    inputs = [r.inputs for r in read] if chosen.inputs else None
    bar = ProgressBar(f"temporal {kind}", quiet=output.quiet)
    begin = time.perf_counter()
    if fitted is not None:
        estimator = fitted.estimator
    else:
        more = _chain_options(kind, chosen)
        estimator = KINDS.make(
            kind, settings, random_state=seed, seconds=seconds, progress=bar, **more
        )
        with bar:
            _fit(estimator, kind, tables, inputs, labels)
        estimator.set_params(progress=None)
    evaluation = TemporalEvaluation(
        estimator, like, task, tables, names, 0.0, labels=labels, dates=[r.dates for r in read]
    )
    _carry_out(
        evaluation, wanted, inputs is not None, seed, chosen.method, fitted_now=fitted is None
    )
    evaluation.seconds = time.perf_counter() - begin
    if out is not None:
        _save(estimator, out, fitted.names if fitted is not None else read[0].known_names)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.temporal_page import temporal_report

        temporal_report(evaluation, path, command=command)

    finish(
        evaluation, output, head={"version": __version__}, page=page, written=[out],
        files=[(chosen.table, lambda path: _write(evaluation, path))],
    )  # fmt: skip


def _carry_out(
    done: TemporalEvaluation, wanted: Task, with_inputs: bool, seed: int, method: str | None,
    *, fitted_now: bool,
) -> None:  # fmt: skip
    """The answer to a task; of a fit what its page shows."""
    from kikuchi.temporal.evaluation import carry_out

    if done.kind == "probit":
        _probabilities(done, wanted.name, fitted_now=fitted_now)
        return
    fitted = wanted.name == "fit"
    if with_inputs:
        if not fitted:
            raise MethodError("with --inputs only fit is a command; use Python for the rest")
        return
    asked = Task("filter", 1, smooth=True) if fitted else wanted
    done.columns, done.rows, done.result = carry_out(
        done.estimator, done.kind, asked.name, done.tables,
        steps=asked.steps, smooth=asked.smooth, seed=seed, method=method,
        names=done.names,
    )  # fmt: skip
    if fitted and wanted.steps:
        _, _, done.forecast = carry_out(
            done.estimator, done.kind, "forecast", done.tables,
            steps=wanted.steps, smooth=False, seed=seed, method=method,
        )  # fmt: skip


def _command(task: Callable[..., Task]) -> Callable[..., Task]:
    """Register a command with the options of `_run`, and those of the task after its arguments."""

    @functools.wraps(task)
    def run(**values: Any) -> None:
        _run(task(**{name: values.pop(name) for name in own}), **values)

    own, common = _parameters(task), _parameters(_run)
    del common["wanted"]
    arguments = [common.pop(name) for name in ("kind", "data", "out")]
    with_parameters(run, [*arguments, *own.values(), *common.values()])
    app.command(task.__name__.rstrip("_"), cls=EstimatorCommand)(grouped(run))
    return task


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    hints = typing.get_type_hints(function, include_extras=True)
    own = inspect.signature(function).parameters.values()
    return {p.name: keyword(p.name, p.default, hints[p.name]) for p in own}


@_command
def fit(ahead: Ahead = 0) -> Task:
    """Fit a model to sequences and save it.

    Shows the states that a hidden Markov model found, or the last states of others; --table writes
    those of all rows, given all rows.
    """
    return Task("fit", ahead)


@_command
def filter_(smooth: Smooth = False) -> Task:
    """Estimate the state at each step.

    Given the rows up to it or, with --smooth, all rows, by a model fitted before or now.
    """
    return Task("filter", smooth=smooth)


@_command
def forecast(steps: Steps = 20) -> Task:
    """Forecast the steps after the last row, with deviations."""
    return Task("forecast", steps)


@_command
def sample(steps: Length = 100) -> Task:
    """Draw a sequence from a model.

    The model is fitted to the data, or read from --model.
    """
    return Task("sample", steps)


def _check_words(wanted: Task, kind: str, seed: int) -> None:
    KINDS.check(kind)
    if seed < 0:
        raise MethodError(f"--seed must be a whole number >= 0, got {seed}")
    if kind == "probit" and wanted.name == "fit" and wanted.steps:
        raise MethodError("probit has no forecast; leave --forecast out")
    if kind == "probit" and wanted.name in ("forecast", "sample"):
        raise MethodError(f"probit has no {wanted.name}; use filter")
    if kind == "probit" and wanted.smooth:
        raise MethodError("probit has no option --smooth; leave it out")


def _fit(
    estimator: Any, kind: str, tables: list[Array], inputs: list[Array] | None, labels: list[Any]
) -> None:
    import warnings

    import numpy as np

    with warnings.catch_warnings(action="ignore"):  # they are in warnings_, and shown once
        if kind == "probit":
            estimator.fit(np.concatenate(tables), np.concatenate(labels))
        elif kind == "ssm":
            estimator.fit(tables, inputs=inputs)
        else:
            estimator.fit(tables)


def _probabilities(evaluation: TemporalEvaluation, task: str, *, fitted_now: bool) -> None:
    """Of the labels before each was seen (a pass over the rows), or by the final weights of a model
    that was fitted before.
    """
    import numpy as np

    e = evaluation.estimator
    p = e.predicted_ if fitted_now else e.predict_proba(np.concatenate(evaluation.tables))[:, 1]
    evaluation.result = p
    if task == "filter":
        evaluation.columns, evaluation.rows = ["probability"], p[:, None]


def _chain_options(kind: str, chosen: SequenceOptions) -> dict[str, Any]:
    more: dict[str, Any] = {}
    for name, field, text in (
        ("chains", "n_states", chosen.chains), ("lags", "lags", chosen.lags),
    ):  # fmt: skip
        if text is None:
            continue
        if kind not in _CHAINS or (name == "lags" and kind != "hopping"):
            raise MethodError(f"{kind} has no option --{name}; leave it out")
        try:
            more[field] = tuple(int(word) for word in text.split(","))
        except ValueError:
            raise MethodError(f"--{name} is whole numbers between commas, got '{text}'") from None
    return more


def _check_options(task: str, kind: str, chosen: SequenceOptions) -> None:
    """Refuse options that this task or kind of model does not have, also beside --model."""
    if task == "fit" and chosen.table is not None and (chosen.inputs or kind == "probit"):
        raise MethodError("a fit of probit or with --inputs has no table; leave --table out")
    if _chain_options(kind, chosen) and chosen.model is not None:
        raise MethodError("--model is fitted already; leave --chains and --lags out")
    if chosen.method is not None and kind not in _CHAINS:
        raise MethodError(f"{kind} has no option --method; leave it out")
    if chosen.inputs is not None and kind != "ssm":
        raise MethodError(f"{kind} has no option --inputs; leave it out")
    if chosen.label is not None and kind != "probit":
        raise MethodError(f"{kind} has no option --label; leave it out")


@dataclass(frozen=True)
class _FittedFile:
    """A model from a file, and the names of the columns that it was fitted to, if it knows them."""

    estimator: Any
    names: list[str] | None
    place: Path

    @classmethod
    def read(cls, kind: str, place: Path, settings: Given) -> _FittedFile:
        """Take the names away from the estimator: what it is asked here are arrays."""
        if settings:
            raise MethodError("--model is fitted already; leave the options of the fit out")
        estimator = KINDS.find(kind).load(place)
        names = vars(estimator).pop("feature_names_in_", None)
        return cls(estimator, None if names is None else [str(n) for n in names], place)


@dataclass(frozen=True)
class _Read:
    rows: Array
    names: list[str]
    inputs: Any
    labels: Any
    has_names: bool
    dates: DatedRows | None = None

    @property
    def known_names(self) -> list[str] | None:
        """Names of the columns; None if the file has none."""
        return self.names if self.has_names else None


def _save(estimator: Any, out: Path, names: list[str] | None) -> None:
    """Write the model with the names of its columns, by which later rows are put in order."""
    import numpy as np

    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator.save(out)
    if names is not None:
        del estimator.feature_names_in_


def _tables(
    data: list[str], chosen: SequenceOptions, kind: str, fitted: _FittedFile | None
) -> list[_Read]:
    """All files, their columns in the order of the model's or, without one, of the first file's."""
    order = None if fitted is None else fitted.names
    whose = "" if fitted is None else str(fitted.place)
    read: list[_Read] = []
    for source in data:
        found = _table(source, chosen, kind, fitted)
        if found.has_names and order is None and fitted is None:
            order, whose = found.names, source
        elif found.has_names and order is not None:
            found = _ordered(source, found, order, whose)
        read.append(found)
    return read


def _ordered(source: str, found: _Read, order: list[str], whose: str) -> _Read:
    """The same columns in another order; other columns are refused."""
    for name in order:
        if name not in found.names:
            raise DataError(f"{source}: there is no column '{name}', which {whose} has")
    for name in found.names:
        if name not in order:
            raise DataError(
                f"{source}: column '{name}' is none of {whose}; choose columns with --columns"
            )
    pick = [found.names.index(name) for name in order]
    return replace(found, rows=found.rows[:, pick], names=order)


def _table(source: str, chosen: SequenceOptions, kind: str, fitted: _FittedFile | None) -> _Read:
    """The columns that were asked for, inputs and labels apart."""
    from kikuchi.core.tables import read_table

    table = read_table(source, texts=True)
    values = table.values if table.values.ndim > 1 else table.values[:, None]
    if values.ndim != 2:
        raise DataError(f"{source}: has {values.ndim} axes; give rows and columns")
    names = list(table.names or _numbered(values.shape[1]))
    dates, values = _dated(source, table, values, names)
    every = [name for name in names if dates is None or name != dates.column]
    inputs = _named(source, names, chosen.inputs) if chosen.inputs else []
    label = _label(source, names, chosen, fitted) if kind == "probit" else []
    taken = [*inputs, *label]
    wanted = _named(source, names, chosen.columns) if chosen.columns else every
    wanted = [name for name in wanted if name not in taken]
    if dates is not None and dates.column in [*wanted, *taken]:
        raise DataError(
            f"{source}: column '{dates.column}' holds the dates of the rows; leave it out of "
            "--columns, --inputs and --label"
        )
    if not wanted:
        raise DataError(f"{source}: no column is left to model; it has {', '.join(names)}")
    pick = [names.index(name) for name in wanted]
    for name in [*wanted, *taken]:
        if names.index(name) in table.texts:
            _refuse_text(source, table, names, name)
    return _Read(
        values[:, pick],
        wanted,
        values[:, [names.index(name) for name in inputs]],
        values[:, names.index(label[0])] if label else None,
        table.names is not None,
        dates,
    )


def _dated(
    source: str, table: Table, values: Array, names: list[str]
) -> tuple[DatedRows | None, Array]:
    """The dates of the rows, if a column holds some, and the rows with one for each date: dates
    that are not in the file have rows of missing values.
    """
    import numpy as np

    from kikuchi.core.dates import looks_like_date, read_dates
    from kikuchi.temporal.evaluation import DatedRows

    for k, name in enumerate(names):
        column, known = values[:, k], table.texts.get(k)
        if known is not None and all(map(looks_like_date, known)):
            words = ["" if np.isnan(code) else str(known[int(code)]) for code in column]
        elif known is None and name.lower() == "year" and _are_years(column):
            words = [f"{int(year)}" for year in column]
        else:
            continue
        place = f"{source}, column '{name}'"
        index, steps = read_dates(words, place=place, lines=table.lines)
        filled = np.full((index.count, values.shape[1]), np.nan)
        filled[steps] = values
        return DatedRows(name, index, index.count - len(values)), filled
    return None, values


def _are_years(column: Array) -> bool:
    import numpy as np

    whole = np.isfinite(column).all() and (column == np.round(column)).all()
    return bool(whole and ((column >= 1000) & (column < 3000)).all())


def _numbered(count: int) -> list[str]:
    """Names of columns of files without names."""
    return [f"column{k}" for k in range(count)]


def _refuse_text(source: str, table: Table, names: list[str], name: str) -> None:
    """Say where a column that is needed holds texts, and how to leave it out."""
    numbers = [n for k, n in enumerate(names) if k not in table.texts]
    advice = "write numbers there"
    if numbers and table.names is not None:
        advice = f"leave column '{name}' out with --columns {','.join(numbers)}"
    raise DataError(f"{source}: {table.fault_of(names.index(name))}; {advice}")


def _label(
    source: str, names: list[str], chosen: SequenceOptions, fitted: _FittedFile | None
) -> list[str]:
    """The column of labels; a model that was fitted before does without one."""
    if chosen.label:
        found = _named(source, names, chosen.label)
        if len(found) > 1:
            raise MethodError(f"--label is one column, got '{chosen.label}'")
        return found
    if fitted is None:
        return names[-1:]
    if fitted.names is not None and set(fitted.names) <= set(names):
        others = [name for name in names if name not in fitted.names]
        return others if len(others) == 1 else []
    return names[-1:] if len(names) == fitted.estimator.n_features_in_ + 1 else []


def _named(source: str, names: list[str], text: str) -> list[str]:
    from kikuchi.core.errors import suggestion

    chosen = [word.strip() for word in text.split(",")]
    for word in chosen:
        if word not in names:
            raise DataError(f"{source}: there is no column '{word}'; {suggestion(word, names)}")
        if chosen.count(word) > 1:
            raise DataError(f"{source}: column '{word}' is asked for twice; name it once")
    return chosen


def _write(evaluation: TemporalEvaluation, path: Path) -> None:
    """The answer as a CSV table."""
    from kikuchi.core.files import atomic_write
    from kikuchi.core.text import spreadsheet_cell

    with atomic_write(path) as file:
        index = evaluation.index()
        head = [*([] if index is None else [index.column]), *evaluation.columns]
        file.write(",".join(map(spreadsheet_cell, head)) + "\n")
        whole = [name in ("sequence", "state") for name in evaluation.columns]
        for k, row in enumerate(evaluation.rows.tolist()):
            cells = [repr(int(x) if n else x) for x, n in zip(row, whole, strict=True)]
            file.write(",".join(cells if index is None else [index.labels[k], *cells]) + "\n")
