"""`kikuchi fit KIND DATA`: fit a model of any kind and save it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import (
    StrictOutput,
    finish,
    group_parameters,
    grouped,
    keyword,
    page_of,
    was_given,
    with_parameters,
)
from kikuchi.cli.data_options import DATA, options_for
from kikuchi.cli.estimators import KindCommand, KindOptions, fit_quietly
from kikuchi.cli.lazy import LazyCommands
from kikuchi.cli.options import argument, flag, option
from kikuchi.core.errors import DataError, KikuchiError, MethodError
from kikuchi.core.progress import phase
from kikuchi.training.kinds import Kind, all_kinds, find_kind

if TYPE_CHECKING:
    from kikuchi.training.workflow import DataSet

_INCOMPLETE = ("seconds", "interrupted", "diverged")
SUMMARY = "Fit a model of any kind to data and save it."
_HELP = f"""{SUMMARY}

`kikuchi fit KIND --help` shows its options, `kikuchi models` what it gives.
"""

ModelFile = Annotated[Path, option("--out -o MODEL", "File to write: .safetensors.")]


@dataclass(frozen=True)
class RunOptions:
    """How a fit is run."""

    HEADING: ClassVar[str] = "Learning"

    seed: options.FitSeed = 0
    seconds: options.Seconds = None
    resume: bool = flag("--resume", "Go on from MODEL.part if there is one.", False)
    cluster: options.Cluster = None


@dataclass(frozen=True)
class FitJob:
    """One call of `kikuchi fit`."""

    options: KindOptions
    given: dict[str, Any]
    reading: Any
    running: RunOptions
    data: list[str]
    out: Path
    output: StrictOutput

    @property
    def kind(self) -> Kind:
        """What is fitted."""
        return self.options.kind

    @property
    def part(self) -> Path:
        """The file that holds the state while a fit runs."""
        return self.out.with_name(self.out.name + ".part")

    def run(self) -> None:
        """Read, fit, save, measure and show."""
        self.check()
        workflow = self.options.workflow
        settings = self.options.make_settings(self.given)
        with self.estimator() as (estimator, bar):
            workflow.check(estimator, settings)
            data = self.reading.read(self.kind, estimator, self.data, self.running.seed)
            begin = time.perf_counter()
            with bar:
                estimator = fit_quietly(workflow.fit, estimator, data, settings)
            data.fit_seconds = time.perf_counter() - begin
        estimator.set_params(checkpoint=None, progress=None)
        self.save(estimator, data)
        with phase("measuring"):
            answer = workflow.measure(estimator, data, settings)
        self.save(estimator, data)  # with what was measured, such as log Z
        self.finish(estimator, answer)

    def check(self) -> None:
        """Refuse what would fail after the fit."""
        if self.out.suffix.lower() != ".safetensors":
            raise KikuchiError(f"{self.out}: models are written as .safetensors files")
        if self.running.seed < 0:
            raise MethodError(f"--seed must be a whole number >= 0, got {self.running.seed}")
        if self.running.cluster is not None and "processes" in self.given:
            raise MethodError("give --processes or --cluster, not both")
        for source in (*self.data, *getattr(self.reading, "files", ())):
            self.output.check(source, self.out)
        if self.folder is not None:
            from kikuchi.cli.folders import check_folder

            check_folder(self.folder)
        if self.kind.resumes and self.part.exists() and not self.running.resume:
            raise DataError(
                f"{self.part}: a training was ended here; give --resume to go on from it, or "
                "delete it to begin anew"
            )

    @property
    def folder(self) -> Path | None:
        """A folder for tables of the answer, if the data have such an option."""
        folder: Path | None = getattr(self.reading, "folder", None)
        return folder

    @contextmanager
    def estimator(self) -> Iterator[tuple[Any, Any]]:
        """The estimator before its fit, and its progress bar."""
        from kikuchi.cli.console import ProgressBar
        from kikuchi.core.cluster import optional_cluster

        learner = self.given.get("learner", "")
        bar = ProgressBar(f"{self.kind.name} {learner}".strip(), quiet=self.output.quiet)
        more: dict[str, Any] = {"random_state": self.running.seed, "progress": bar}
        if self.kind.resumes:
            more["checkpoint"] = self.part
        if self.running.seconds is not None:
            more["seconds"] = self.running.seconds
        with optional_cluster(self.running.cluster):
            yield self.options.make(self.given, **more), bar

    def save(self, estimator: Any, data: DataSet) -> None:
        """Write the model with the names of its columns and what was done to its rows.

        Afterwards the estimator has no names: it is given arrays, which have none.
        """
        import numpy as np

        if data.names is not None:
            estimator.feature_names_in_ = np.array(data.names, dtype=object)
        if scaling := getattr(self.reading, "scaling", None):
            estimator.row_scaling_ = scaling
        estimator.save(self.out)
        if data.names is not None:
            del estimator.feature_names_in_

    def finish(self, estimator: Any, answer: Any) -> None:
        """Show and write the answer; say how to go on with a fit that was stopped."""
        if self.folder is not None:
            from kikuchi.cli.folders import write_folder

            write_folder(self.folder, answer)
        if estimator.stopped_ not in _INCOMPLETE and self.kind.resumes:
            self.part.unlink(missing_ok=True)
        notes = []
        if self.kind.resumes and self.part.exists():
            notes = [f"stopped ({estimator.stopped_}); --resume goes on from {self.part}"]
        head = {"kind": self.kind.name, "data": self.data, "out": str(self.out)}
        finish(
            answer, self.output, head={**head, "version": __version__}, page=page_of(answer),
            written=[self.out, self.folder], notes=notes,
        )  # fmt: skip


# ---------------------------------------------------------------------- the commands


def kind_command(kind: Kind) -> Any:
    """The command `kikuchi fit KIND`, with the options of the kind only."""
    made, reader = KindOptions(kind), options_for(kind)
    own = made.parameters()
    taken = {parameter.name for parameter in own}
    data = [p for p in group_parameters(reader) if p.name not in taken]
    running = [
        p for p in group_parameters(RunOptions)
        if (p.name != "resume" or kind.resumes)
        and (p.name != "cluster" or "processes" in taken)
        and (p.name != "seconds" or made.has("seconds"))
    ]  # fmt: skip

    def fit(output: StrictOutput, **values: Any) -> None:
        given = {name: values.pop(name) for name in taken}
        FitJob(
            options=made,
            given={n: v for n, v in given.items() if was_given(output.context, n)},
            reading=reader(**{p.name: values[p.name] for p in data}),
            running=RunOptions(**{p.name: values[p.name] for p in running}),
            data=list(values["data"]),
            out=values["out"],
            output=output,
        ).run()

    fit.__doc__ = f"{kind.summary}\n\nFits {kind.class_name} and saves it. {_about(kind)}"
    files = argument("DATA...", DATA[kind.takes])
    parameters = [
        keyword("data", inspect.Parameter.empty, Annotated[list[str], files]),
        keyword("out", inspect.Parameter.empty, ModelFile),
        *own, *data, *running,
        keyword("output", inspect.Parameter.empty, StrictOutput),
    ]  # fmt: skip
    run: Any = grouped(with_parameters(fit, parameters))
    run.headings = {name: made.heading(name) for name in taken}
    run.headings |= {p.name: "Data" for p in data} | {p.name: "Learning" for p in running}
    run.python_names = [f.name for f in fields(made.estimator)]
    one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    one.command(kind.name, cls=KindCommand)(run)
    return typer.main.get_command(one)


def _about(kind: Kind) -> str:
    return f"Takes {kind.takes}; gives {', '.join(kind.gives)}."


class FitGroup(TyperGroup):
    """The kinds as commands, each made when it is used."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name=name, help=_HELP, no_args_is_help=True, rich_markup_mode=None,
            subcommand_metavar="KIND DATA... -o MODEL [OPTIONS]",
        )  # fmt: skip
        self.commands = LazyCommands(all_kinds(), lambda word: kind_command(find_kind(word)))

    def list_commands(self, ctx: Any) -> list[str]:
        """The kinds, in the order of their groups."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Refuse a kind that does not exist in one line."""
        if args and not args[0].startswith("-"):
            find_kind(args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the kinds by group, without loading any."""
        lines: dict[str, list[tuple[str, str]]] = {}
        for kind in all_kinds().values():
            lines.setdefault(kind.group, []).append((kind.name, kind.summary))
        width = max(map(len, all_kinds()))
        for title, kinds in lines.items():
            formatter.write(f"{title}:\n")
            for name, summary in kinds:
                formatter.write(f"  {name:{width}}  {summary}\n")


def group(name: str) -> TyperGroup:
    """The command `fit`."""
    return FitGroup(name)
