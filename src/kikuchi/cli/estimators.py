"""Options of a command that are those of the estimators it fits.

An estimator is a dataclass whose fields carry their help and range (`core.options.option`). A
command names the fields that it offers and how they are called; types, defaults, help and ranges
come from the fields. Since the classes load slowly, the options are made when the command is used,
of the classes of that package only which a word of the command line names.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from kikuchi.cli.command import keyword, with_parameters
from kikuchi.cli.flag_names import option_flags, option_names, other_name, with_flags
from kikuchi.cli.options import option
from kikuchi.core.errors import KikuchiError, MethodError, suggestion
from kikuchi.core.progress import hide_bars, phase

_WORDS = "kikuchi words of the command line"
_USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # typer has a copy of click, or uses click
_LEARNING = ("seed", "seconds", "memory")  # options of a command that belong to the fit

Given = dict[str, Any]
"""Values of the fields that the command line gave."""


@dataclass(frozen=True)
class EstimatorOptions:
    """The options that a command takes from the estimators that it can fit.

    `classes` maps the words of the command line to classes of the package `home`, or to
    `package:Class`; `noun` is what such a word names. `flags` maps a field to its option with its
    letter and metavar, such as `--learner -l TEXT`. `same` maps a field of one class to that of
    another whose option gives both. `defaults` take the place of those of the classes. `elsewhere`
    maps fields to options that the command declares itself under another name. `learning` are the
    fields that the help lists under Learning, all others under Model. `chosen` is the word of the
    command line, if there is one: the help shows the options of its class only.
    """

    home: str
    classes: Mapping[str, str]
    flags: Mapping[str, str]
    noun: str = "method"
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    same: Mapping[str, str] = dataclasses.field(default_factory=dict)
    elsewhere: Mapping[str, str] = dataclasses.field(default_factory=dict)
    learning: Sequence[str] = ()
    chosen: str | None = None

    @cached_property
    def fields(self) -> dict[str, dict[str, dataclasses.Field[Any]]]:
        """The fields of each class by the name of their option."""
        return {word: self._own(word) for word in self.classes}

    def _own(self, word: str) -> dict[str, dataclasses.Field[Any]]:
        return {self.same.get(f.name, f.name): f for f in dataclasses.fields(self.find(word))}

    def named(self, words: Sequence[str]) -> EstimatorOptions:
        """Those of the package whose class one of the words names; all if none does."""
        chosen = next((word for word in words if word in self.classes), None)
        if chosen is None:
            return self
        home = self._place(chosen)[0]
        kept = {w: c for w, c in self.classes.items() if home == self._place(w)[0]}
        return dataclasses.replace(self, classes=kept, chosen=chosen)

    def _place(self, word: str) -> tuple[str, str]:
        """Package and class."""
        package, _, name = self.classes[word].rpartition(":")
        return package or self.home, name

    def check(self, word: str) -> None:
        """Refuse a word that names no class."""
        if word not in self.classes:
            known = suggestion(word, self.classes)
            raise MethodError(f"there is no {self.noun} '{word}'; {known}")

    def find(self, word: str) -> Any:
        """The class that a word of the command line means."""
        self.check(word)
        package, name = self._place(word)
        with phase("loading libraries"):
            return getattr(import_module(package), name)

    def make(self, word: str, given: Given, **more: Any) -> Any:
        """The estimator with these options; those that it does not have are refused.

        `more` are values that are no options of the command line.
        """
        from kikuchi.core.options import checked_value, option_hints

        cls = self.find(word)
        hints = option_hints(cls)
        fields = self._own(word)
        for name, value in given.items():
            flag = _first_name(self.flags.get(name, f"--{name.replace('_', '-')}"))
            if name not in fields:
                raise MethodError(f"{word} has no option {flag}; leave it out")
            checked_value(flag, fields[name], hints[fields[name].name], value)
        own = {fields[name].name: value for name, value in given.items()}
        names = {f.name for f in fields.values()}
        defaults = {name: value for name, value in self.defaults.items() if name in names}
        return cls(**{**defaults, **own, **more})

    def flag_names(self) -> dict[str, str | None]:
        """The option of each field of the classes, None where the command line has none."""
        found: dict[str, str | None] = {}
        for word in self.classes:
            for name, field in self.fields[word].items():
                spec = self.flags.get(name) or self.elsewhere.get(field.name)
                found[field.name] = _first_name(spec) if spec else None
        return found

    def parameters(self) -> list[Any]:
        """The parameters of the command, as typer makes them."""
        made = with_parameters(lambda **_: None, [self._parameter(name) for name in self.flags])
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(made)
        return list(typer.main.get_command(app).params)

    def _parameter(self, name: str) -> inspect.Parameter:
        from kikuchi.core.options import option_hints, option_text, option_types

        words = [word for word in self.classes if name in self.fields[word]]
        if self.chosen is not None:
            words = [word for word in words if word == self.chosen]
        if not words:  # of another class: taken, and refused by `make`
            return keyword(
                name, None, Annotated[str | None, option(self.flags[name], "", hidden=True)]
            )
        field = self.fields[words[0]][name]
        kinds, _ = option_types(option_hints(self.find(words[0]))[field.name])
        kind = str if str in kinds else next((k for k in kinds if k in (int, float, bool)), str)
        meanings = {word: self._meaning(word, name) for word in words}
        several = len(set(meanings.values())) > 1
        help = ". ".join(_for_whom(meanings)) if several else meanings[words[0]]
        if self.chosen is None and not several and len(words) < len(self.classes):
            help += f"; only of {', '.join(words)}"
        defaults = {word: self._default(word, name) for word in words}
        default = defaults[words[0]]
        if len(set(defaults.values())) > 1:
            each = {word: option_text(d) for word, d in defaults.items() if d is not None}
            help += f"{'. By' if several else '; by'} default {', '.join(_for_whom(each))}"
            default = None
        hint = kind if kind is bool and default is not None else kind | None
        return keyword(name, default, Annotated[hint, option(self.flags[name], f"{help}.")])

    def _meaning(self, word: str, name: str) -> str:
        """What an option means for the class of a word, with its choices and range."""
        from kikuchi.core.options import option_hints, option_range, option_types

        field = self.fields[word][name]
        kinds, _ = option_types(option_hints(self.find(word))[field.name])
        help = str(field.metadata["help"]).rstrip(".")
        choices = [c for k in kinds if typing.get_origin(k) is typing.Literal for c in k.__args__]
        if not all(str(choice) in help for choice in choices):
            help += f"; one of {', '.join(map(str, choices))}"
        limits = option_range(field)
        return f"{help}; in {limits}" if limits else help

    def _default(self, word: str, name: str) -> Any:
        field = self.fields[word][name]
        return self.defaults.get(field.name, field.default)


def _first_name(spec: str) -> str:
    """`--skip` of "--skip/--no-skip" or of "--skip -s HOW"."""
    return spec.split()[0].split("/")[0]


def _for_whom(texts: Mapping[str, str]) -> list[str]:
    """Each text once, followed by the words that it holds for."""
    return [
        f"{text} ({', '.join(word for word in texts if texts[word] == text)})"
        for text in dict.fromkeys(texts.values())
    ]


class EstimatorCommand(TyperCommand):
    """A command with parameters of the type `Annotated[Given, EstimatorOptions(...)]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Keep the words, which decide whose options there are."""
        ctx.meta[_WORDS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except _USAGE_ERROR as error:
            name = getattr(error, "option_name", None)
            known = None if name is None else other_name(name, option_flags(self, ctx))
            if known is not None:
                error.message = f"No such option {name}; this command takes {known}"
                error.possibilities = None
            raise

    def get_params(self, ctx: Any) -> Any:
        """The parameters, with those of the estimators put in when they are first asked for."""
        if not hasattr(self, "declared"):
            self.declared = list(self.params)
            self.made: dict[tuple[str, ...], list[Any]] = {}
        places = [at for at, _ in getattr(self.callback, "generated", [])]
        chosen = list(zip(places, self.named_options(ctx), strict=True))
        key = tuple(str(word) for _, o in chosen for word in (o.chosen, *o.classes))
        if key not in self.made:
            self.made[key] = [self._shown(p, [o.chosen for _, o in chosen]) for p in self.declared]
            for position, options in reversed(chosen):
                self.made[key][position:position] = options.parameters()
        self.params = self.made[key]
        return super().get_params(ctx)

    def _shown(self, parameter: Any, chosen: list[str | None]) -> Any:
        """A parameter, hidden if it is for other kinds than the one that was chosen."""
        kinds = getattr(self.callback, "only", {}).get(parameter.name)
        if kinds is None or not any(chosen) or any(word in kinds for word in chosen):
            return parameter
        hidden = copy.copy(parameter)
        hidden.hidden = True
        return hidden

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options under headings, where the command has any."""
        headings = dict(getattr(self.callback, "headings", {}))
        if not headings:
            super().format_options(ctx, formatter)
            return
        for options in self.named_options(ctx):
            for name in options.flags:
                headings[name] = "Learning" if name in options.learning else "Model"
        headings |= dict.fromkeys(_LEARNING, "Learning")
        sections: dict[str, list[tuple[str, str]]] = {
            title: [] for title in ("Arguments", "Model", "Learning", "Data", "Output")
        }
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argument = parameter.param_type_name == "argument"
                title = "Arguments" if argument else headings.get(parameter.name, "Output")
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def get_help(self, ctx: Any) -> str:
        """The help, with no bar in its place; loading the classes may have shown one."""
        text: str = super().get_help(ctx)
        hide_bars()
        return text

    def invoke(self, ctx: Any) -> Any:
        """Call the function with the parameters that it declares; it reads the others in `ctx`.

        Typer hands a function only the parameters that are in its signature.
        """
        names = {parameter.name for parameter in self.declared}
        try:
            return ctx.invoke(self.callback, **{n: v for n, v in ctx.params.items() if n in names})
        except KikuchiError as error:
            error.args = (with_flags(str(error), option_names(ctx)),)
            raise

    def named_options(self, ctx: Any) -> list[EstimatorOptions]:
        """The options of the estimators that the words of the command line name."""
        words = ctx.meta.get(_WORDS, [])
        return [o.named(words) for _, o in getattr(self.callback, "generated", [])]


def fit_quietly(estimator: Any, *data: Any) -> Any:
    """Fit; what there is to say is in `warnings_`, and shown once at the end."""
    import warnings

    with warnings.catch_warnings(action="ignore"), phase("fitting"):
        return estimator.fit(*data)
