"""The options of `kikuchi fit KIND`, made from the class of the kind.

An estimator is a dataclass whose fields carry their help and range (`core.options.option`). Each
field is an option whose name is that of the field with dashes, and whose default is that of the
field; so are the fields of the settings of its workflow. The classes load slowly: the options are
made when a kind is used.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from kikuchi.cli.command import keyword
from kikuchi.cli.flag_names import new_name, option_names, with_flags
from kikuchi.cli.options import option
from kikuchi.core.errors import KikuchiError
from kikuchi.core.progress import hide_bars, phase
from kikuchi.core.text import is_whole
from kikuchi.training.kinds import Kind

USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # typer has a copy of click, or uses click
HEADINGS = ("Arguments", "Model", "Learning", "Data", "Output")
_NOT_OFFERED = frozenset({"seconds", "checkpoint", "random_state", "verbose", "progress"})
_FIRST = (  # options that most fits change, before all others
    *("n_components", "n_states", "hidden_layer_sizes", "n_mix"),
    *("learner", "max_iter", "learning_rate", "batch_size", "solver", "n_init", "tol"),
)
_LEARNING = frozenset(
    (
        *("learner", "max_iter", "learning_rate", "batch_size", "solver", "n_init", "tol"),
        *("momentum", "weight_decay", "schedule", "inner_max_iter", "em_max_iter", "em_epochs"),
        *("validation_fraction", "patience", "average", "threads", "processes", "pseudo_count"),
        *("sweeps", "temperature", "warmup", "largest_tree"),
    )
)
_LETTERS = {"learner": "-l"}

Given = Mapping[str, Any]
"""Values of the fields that the command line gave."""


class KindOptions:
    """The options of one kind: the fields of its class and those of its workflow's settings."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        with phase("loading libraries"):
            self.estimator: Any = kind.load()
            self.workflow = kind.make_workflow()

    @cached_property
    def fields(self) -> dict[str, dataclasses.Field[Any]]:
        """The fields of the class that a text can give, the most used first."""
        order = list(_FIRST)
        for cls in self.estimator.__mro__:  # those of the class before those of its bases
            order += [name for name in vars(cls).get("__annotations__", {}) if name not in order]
        known = {f.name: f for f in dataclasses.fields(self.estimator) if self._offered(f)}
        return {name: known[name] for name in order if name in known}

    @cached_property
    def settings(self) -> dict[str, dataclasses.Field[Any]]:
        """The fields of the settings of the workflow."""
        return {f.name: f for f in dataclasses.fields(self.workflow.settings)}

    def _offered(self, f: dataclasses.Field[Any]) -> bool:
        kinds = _kinds(self.estimator, f)
        return (
            f.init and f.name not in _NOT_OFFERED and "help" in f.metadata
            and any(_is_plain(kind) or _elements(kind) for kind in kinds)
        )  # fmt: skip

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters of the command, with their types, defaults and help."""
        own = [_parameter(self.estimator, f) for f in self.fields.values()]
        return own + [_parameter(self.workflow.settings, f) for f in self.settings.values()]

    def facts(self) -> list[dict[str, str]]:
        """The option, type and range, default and whole description of each parameter."""
        from kikuchi.core.options import option_facts

        own = [(self.estimator, f) for f in self.fields.values()]
        own += [(self.workflow.settings, f) for f in self.settings.values()]
        return [option_facts(cls, f) | {"option": flag_of(f.name)} for cls, f in own]

    def has(self, name: str) -> bool:
        """Whether the class takes a parameter."""
        return any(f.name == name and f.init for f in dataclasses.fields(self.estimator))

    def heading(self, name: str) -> str:
        """The title in the help under which an option of the kind stands."""
        return "Learning" if name in _LEARNING else "Model"

    def make(self, given: Given, **more: Any) -> Any:
        """Return the estimator with these options; `more` are not options of the command line."""
        values = {n: read_value(self.estimator, f, given[n]) for n, f in self._in(given)}
        return self.estimator(**values, **more)

    def make_settings(self, given: Given) -> Any:
        """Return the settings of the workflow with these options."""
        cls = self.workflow.settings
        return cls(
            **{n: read_value(cls, f, given[n]) for n, f in self.settings.items() if n in given}
        )

    def _in(self, given: Given) -> Iterator[tuple[str, dataclasses.Field[Any]]]:
        return ((n, f) for n, f in self.fields.items() if n in given)


def flag_of(name: str) -> str:
    """The option of a parameter of Python.

    >>> flag_of("learning_rate")
    '--learning-rate'
    """
    return f"--{name.replace('_', '-')}"


# ---------------------------------------------------------------------- one option


def _kinds(cls: Any, f: dataclasses.Field[Any]) -> list[Any]:
    """The types of a field; those of nested unions too."""
    from kikuchi.core.options import option_hints, option_types

    found: list[Any] = []
    for kind in option_types(option_hints(cls)[f.name])[0]:
        inner, _ = option_types(kind)
        found += inner
    return found


def _is_plain(kind: Any) -> bool:
    return kind in (int, float, bool, str) or typing.get_origin(kind) is typing.Literal


def _elements(kind: Any) -> tuple[Any, ...] | None:
    """The type of the elements of a sequence; None for other types."""
    origin = typing.get_origin(kind)
    if origin in (tuple, list) or getattr(origin, "__name__", "") == "Sequence":
        return tuple(a for a in typing.get_args(kind) if a is not ...)
    return None


def _parameter(cls: Any, f: dataclasses.Field[Any]) -> inspect.Parameter:
    kinds = _kinds(cls, f)
    choices = [str(c) for k in kinds if typing.get_origin(k) is typing.Literal for c in k.__args__]
    help = _short_help(f)
    flags = " ".join(filter(None, (flag_of(f.name), _LETTERS.get(f.name, ""))))
    if kinds == [bool]:
        flags = f"{flags}/--no-{flags.removeprefix('--')}" if f.default else flags
        return keyword(f.name, bool(f.default), Annotated[bool, option(flags, f"{help}.")])
    scalar = next((k for k in (int, float) if kinds == [k]), str)
    metavar = {int: "N", float: "X"}.get(scalar, "TEXT")
    if scalar is str and choices and str not in kinds:
        listed = "|".join(choices)
        metavar = listed if len(listed) <= 24 else "WORD"
        if metavar == "WORD":
            help += f": {', '.join(choices)}"
    elif scalar is str and str not in kinds and any(_elements(kind) for kind in kinds):
        metavar = "N,N"
    default = None if f.default is None else _default(f.default, scalar)
    return keyword(
        f.name, default, Annotated[scalar | None, option(f"{flags} {metavar}", f"{help}.")]
    )


def _short_help(f: dataclasses.Field[Any]) -> str:
    """The help of a field up to its first semicolon, with its range.

    `kikuchi models KIND` shows the whole help of every option.
    """
    help = str(f.metadata["help"]).partition("; ")[0].rstrip(".")
    low, high = f.metadata.get("low"), f.metadata.get("high")
    above, below = f.metadata.get("above"), f.metadata.get("below")
    limits = [
        *([f">= {low:g}"] if low is not None else []),
        *([f"> {above:g}"] if above is not None else []),
        *([f"<= {high:g}"] if high is not None else []),
        *([f"< {below:g}"] if below is not None else []),
    ]
    return f"{help}; {', '.join(limits)}" if limits else help


def _default(value: Any, scalar: Any) -> Any:
    if scalar is not str:
        return value
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or None
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_value(cls: Any, f: dataclasses.Field[Any], given: Any) -> Any:
    """The value of a field from what the command line gave, checked for type and range."""
    from kikuchi.core.options import checked_value, option_hints, option_types

    hint, flag = option_hints(cls)[f.name], flag_of(f.name)
    kinds, optional = _kinds(cls, f), option_types(hint)[1]
    value = given
    if isinstance(given, str):
        value = None if optional and given.lower() == "none" else _of_text(given, kinds)
    if any(typing.get_origin(k) is typing.Literal for k in kinds) and value in _choices(kinds):
        return value
    return checked_value(flag, f, hint, value)


def _choices(kinds: list[Any]) -> list[Any]:
    return [c for k in kinds if typing.get_origin(k) is typing.Literal for c in k.__args__]


def _of_text(given: str, kinds: list[Any]) -> Any:
    """A text as the first of the types that it can be."""
    from kikuchi.cli.inputs import split_methods

    for choice in _choices(kinds):
        if str(choice) == given:
            return choice
    if bool in kinds and given.lower() in ("true", "false"):
        return given.lower() == "true"
    elements = [e for k in kinds for e in _elements(k) or ()]
    sequences = [k for k in kinds if _elements(k)]
    parts = split_methods(given) if sequences else [given]
    scalars = [k for k in kinds if k in (int, float, str)]
    if len(parts) == 1 and scalars:
        return _scalar(given, scalars)
    if not sequences:
        return given
    values = [_scalar(part, [float, str] if Any in elements else elements) for part in parts]
    texts = any(isinstance(value, str) for value in values)
    if texts and str in scalars and str not in elements and Any not in elements:
        return given
    return tuple(values) if any(typing.get_origin(k) is tuple for k in sequences) else values


def _scalar(given: str, kinds: typing.Sequence[Any]) -> Any:
    if int in kinds and is_whole(given.removeprefix("-")):
        return int(given)
    if float in kinds:
        try:
            return float(given)
        except ValueError:
            return given
    return given


# ---------------------------------------------------------------------- the command


class KindCommand(TyperCommand):
    """A command whose options stand under headings, and whose messages name its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Name the option that an unknown one is called here."""
        try:
            return super().parse_args(ctx, args)
        except USAGE_ERROR as error:
            name = getattr(error, "option_name", None)
            flags = [flag for p in self.get_params(ctx) for flag in p.opts]
            known = None if name is None else new_name(name, flags)
            if known is not None:
                error.message = f"No such option {name}; this command takes {known}"
                error.possibilities = None
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options under headings, where the command has any."""
        headings = getattr(self.callback, "headings", {})
        if not headings:
            super().format_options(ctx, formatter)
            return
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in HEADINGS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argument = parameter.param_type_name == "argument"
                title = "Arguments" if argument else headings.get(parameter.name, "Output")
                sections[title].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def get_help(self, ctx: Any) -> str:
        """The help, without the progress bar that loading the classes may have shown."""
        text: str = super().get_help(ctx)
        hide_bars()
        return text

    def invoke(self, ctx: Any) -> Any:
        """Name options instead of parameters of Python in errors."""
        try:
            return super().invoke(ctx)
        except KikuchiError as error:
            error.args = (with_flags(str(error), option_names(ctx)),)
            raise


def fit_quietly(fit: Any, *values: Any) -> Any:
    """Fit without warnings on the screen: they are in `warnings_`, and shown once at the end."""
    import warnings

    with warnings.catch_warnings(action="ignore"), phase("fitting"):
        return fit(*values)
