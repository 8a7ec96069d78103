"""What every command shares: groups of options, one ending, and the command line as text.

A parameter of a command whose type is a dataclass stands for a group of options, one per field;
the decorator `grouped` expands it. `finish` is the one ending: the screen, warnings, JSON, files,
the report page and the exit code.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import shlex
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kikuchi.cli import options
from kikuchi.cli.exit_codes import NOT_CONVERGED
from kikuchi.core.progress import phase

if TYPE_CHECKING:
    from kikuchi.cli.console import Screen
    from kikuchi.core.answer import Answer
    from kikuchi.core.budget import Budget

WriteFile = Callable[[Path], None]
WritePage = Callable[[Path, str], None]
"""Writes a page to a path; the text is the command line that repeats the run."""

_ALWAYS_READ = 10_000_000  # bytes for reading a file, however few the tables of a run may take
_NOT_REPEATED = (
    "json",
    "quiet",
    "resume",
    "checkpoint",
    "cluster",
)  # options that change no answer


@dataclass(frozen=True)
class Limits:
    """Time and memory that a run may use."""

    seconds: options.Seconds = None
    memory: options.Memory = None

    @property
    def budget(self) -> Budget:
        """The limits as a budget; memory defaults to that of the library."""
        from kikuchi.cli.inputs import make_budget

        return make_budget(self.seconds, self.memory)


@dataclass(frozen=True)
class Output:
    """Where the answer of a command goes: the screen, and JSON if it is asked for."""

    context: typer.Context
    json: options.Json = None
    report: Path | None = field(default=None, init=False)
    strict: bool = field(default=False, init=False)
    quiet: options.Quiet = False

    @property
    def screen(self) -> Screen:
        """The screen; silent if JSON goes to standard output instead."""
        from kikuchi.cli.console import Screen
        from kikuchi.cli.outputs import STANDARD_OUTPUT

        return Screen(quiet=self.quiet or self.json == STANDARD_OUTPUT)

    def check(self, source: str, *paths: Path | None) -> None:
        """Refuse at once what could not be written later, or would destroy the input."""
        from kikuchi.cli.outputs import check_outputs

        outputs = [*paths, self.json, self.report]
        check_outputs(source, *outputs, others=self._words_besides(outputs))

    def _words_besides(self, outputs: Iterable[Path | None]) -> list[Path]:
        """Every word of the command line as a file name, each output taken away once.

        What follows `file:`, as in texts of regions, is a file name too.
        """
        words = []
        for value in self.context.params.values():
            for item in value if isinstance(value, list | tuple) else [value]:
                if isinstance(item, str | Path):
                    words.append(Path(str(item).rpartition("file:")[2]))
        for path in outputs:
            if path in words:
                words.remove(path)
        return words


@dataclass(frozen=True)
class PageOutput(Output):
    """The same, with a report page."""

    report: options.Report = None


@dataclass(frozen=True)
class StrictOutput(PageOutput):
    """The same, with an exit code for answers that did not converge."""

    strict: options.Strict = False


def finish(
    answer: Answer,
    output: Output,
    *,
    head: Mapping[str, Any] | None = None,
    page: WritePage | None = None,
    files: Iterable[tuple[Path | None, WriteFile]] = (),
    written: Iterable[Path | None] = (),
    notes: Iterable[str] = (),
) -> None:
    """End a command: show the answer, warn, write what was asked for, and set the exit code.

    `head` comes before the answer in JSON, `page` writes the report page, `files` are further files
    to write, `written` are those that exist already, `notes` are last remarks on standard error.
    """
    from kikuchi.cli.flag_names import option_names, with_flags
    from kikuchi.cli.outputs import STANDARD_OUTPUT, write_json

    screen = output.screen
    screen.answer(answer)
    names = option_names(output.context) if answer.warnings else {}
    for warning in () if output.quiet else answer.warnings:
        screen.note(f"warning: {with_flags(warning, names)}", always=True)
    targets: list[Path | None] = [*written, output.json]
    if output.json is not None:
        data = answer.to_dict()
        write_json({**head, **data} if head else data, output.json)
    for path, write in files:
        if path is not None:
            write(path)
            targets.append(path)
    if output.report is not None and page is not None:
        with phase("drawing the report"):
            page(output.report, replay(output.context))
        targets.append(output.report)
    for path in targets:
        if path is not None and path != STANDARD_OUTPUT:
            screen.note(f"written: {path}")
    for note in notes:
        screen.note(note)
    if output.strict and not answer.converged:
        raise typer.Exit(NOT_CONVERGED)


def page_of(answer: Any) -> WritePage:
    """Return a function that writes the page which an evaluation declares."""

    def write(path: Path, command: str) -> None:
        from kikuchi.reports.page import write_page

        write_page(answer.page(), path, command)

    return write


def replay(context: typer.Context) -> str:
    """The command line that gives the same answer again, as text for a page."""
    words = context.command_path.split()
    for parameter in context.command.get_params(context):
        name = parameter.name or ""
        if name in _NOT_REPEATED or not was_given(context, name):
            continue
        value = context.params[name]
        values = list(value) if isinstance(value, list | tuple) else [value]
        flag = max(parameter.opts, key=len)
        if parameter.param_type_name == "argument":
            words += [str(item) for item in values]
        elif isinstance(value, bool):
            words.append(flag)
        else:
            words += [word for item in values for word in (flag, str(item))]
    return shlex.join(words)


def was_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line, rather than having its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


# ---------------------------------------------------------------------- groups of options


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Turn each parameter of a command that is a dataclass into options, one per field.

    >>> def show(limits: Limits) -> None:
    ...     print(limits.seconds)
    >>> list(inspect.signature(grouped(show)).parameters)
    ['seconds', 'memory']
    >>> grouped(show)(seconds=2.0, memory=None)
    2.0
    """
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            groups[name] = hint
            parameters += group_parameters(hint)
        else:
            parameters.append(keyword(name, parameter.default, hint))

    @functools.wraps(function)
    def run(**values: Any) -> None:
        from kikuchi.cli.inputs import make_budget
        from kikuchi.core.compiling import COMPILING
        from kikuchi.core.files import reading_limit

        memory = max(make_budget(None, values.get("memory")).bytes or 0, _ALWAYS_READ)
        for name, group in groups.items():
            fields = [f.name for f in dataclasses.fields(group) if f.init]
            values[name] = group(**{field_name: values.pop(field_name) for field_name in fields})
        if any(getattr(values[name], "quiet", False) for name in groups):
            COMPILING.tell = None
        with reading_limit(memory):
            function(**values)

    return with_parameters(run, parameters)


def group_parameters(group: Any) -> list[inspect.Parameter]:
    """The parameters that a group of options stands for."""
    hints = typing.get_type_hints(group, include_extras=True)
    parameters = []
    for f in dataclasses.fields(group):
        default = inspect.Parameter.empty if f.default is dataclasses.MISSING else f.default
        declared = f.metadata.get("typer")
        hint = hints[f.name] if declared is None else Annotated[hints[f.name], declared]
        if f.init:
            parameters.append(keyword(f.name, default, hint))
    return parameters


def with_parameters(
    function: Callable[..., None], parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """The function, declared to take these parameters."""
    chosen = list(parameters)
    target: Any = function
    target.__signature__ = inspect.Signature(chosen)
    target.__annotations__ = {parameter.name: parameter.annotation for parameter in chosen}
    return function


def keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    """A parameter of a command; the annotation says how it is given on the command line."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)
