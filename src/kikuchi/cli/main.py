"""`kikuchi`: the commands, and how errors leave the program."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kikuchi.cli.exit_codes import BAD_INPUT, OUTPUT_CLOSED
from kikuchi.cli.lazy import LazyCommands
from kikuchi.core.errors import KikuchiError, MissingExtraError
from kikuchi.core.extras import extras_named, install
from kikuchi.core.progress import CommandBar
from kikuchi.core.text import one_line, printable

SUMMARIES = {
    "info": "Describe a model and what exact inference would cost.",
    "infer": "Infer the marginals of all variables and log Z.",
    "query": "Answer a question: distributions given evidence.",
    "predict": "Predict every case of a table.",
    "most-probable": "Find the most probable states given evidence, exactly.",
    "compare": "Compare methods on one model in one table.",
    "bounds": "Bound log Z from both sides, ever tighter, within a time.",
    "certify": "Tell whether belief propagation is sure to converge.",
    "learn": "Learn the parameters of a model from a table of data.",
    "fit": "Fit a model of any kind to data and save it.",
    "models": "List the kinds of models that `kikuchi fit` takes.",
    "evaluate": "Measure how well a model explains data.",
    "sample": "Draw rows from a model.",
    "transform": "Compute the features or sources of rows by a fitted model.",
    "filter": "Estimate the states of sequences by a fitted model.",
    "forecast": "Forecast the steps after sequences by a fitted model.",
    "patches": "Cut pictures or sounds into rows to learn from.",
    "generate": "Make a seeded model and write it to a file.",
    "convert": "Convert a model to another format.",
    "methods": "List the methods and their options.",
    "learners": "List the learners and their options.",
    "regions": "Show the regions of a model and what they cost.",
    "reproduce": "Run an experiment of the source documents again.",
    "examples": "List the bundled models.",
    "warm-up": "Compile every loop, once; they are kept on disk.",
}
"""Every command, a module of `cli.commands` each, with what the list of commands says of it: the
list is shown without loading any of them. A test holds it against the commands themselves."""

EXTERNAL = {"reproduce": "experiments"}
"""Commands of other packages, entry points of the group `kikuchi.commands`, and the extra of
`core.extras` that installs each."""


REMOVED = {
    "train": "kikuchi fit KIND DATA -o MODEL",
    "ica": "kikuchi fit ica DATA -o MODEL",
    "temporal": "kikuchi fit KIND DATA -o MODEL, then kikuchi filter, forecast or sample MODEL",
}
"""Commands of earlier versions, and what replaces them."""


def _loaded(name: str) -> Any:
    """The command of a module: its function of the same name, or its group of commands."""
    if name in EXTERNAL:
        return _external(name)
    word = name.replace("-", "_")
    module = import_module(f"kikuchi.cli.commands.{word}")
    if hasattr(module, "group"):
        return module.group(name)
    if hasattr(module, "app"):
        group = typer.main.get_group(module.app)
        group.name = name
        return group
    return _command(name, getattr(module, word))


def _external(name: str) -> Any:
    """The command of another package; one that raises an error where that is not installed."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="kikuchi.commands", name=name):
        return _command(name, entry.load())
    message = f"'{name}' needs the package of the {EXTERNAL[name]}; {install(EXTERNAL[name])}"

    def refuse(**_: Any) -> None:
        raise MissingExtraError(message)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return TyperCommand(
        name, callback=refuse, help=message, context_settings=anything, rich_markup_mode=None
    )


def _command(name: str, function: Any) -> Any:
    from kikuchi.cli.estimators import KindCommand

    one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    one.command(name, cls=KindCommand)(function)
    return typer.main.get_command(one)


class Commands(TyperGroup):
    """The group of all commands; turns errors that a user can mend into one line and a code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands(SUMMARIES, _loaded)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name the command that replaces a removed one."""
        if args and args[0] in REMOVED:
            raise KikuchiError(f"there is no command {args[0]}; use {REMOVED[args[0]]}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands, in the order of the help."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, none of them loaded."""
        shown: dict[str, Any] = {
            name: TyperCommand(name, help=text) for name, text in SUMMARIES.items()
        }
        TyperGroup(name=self.name, commands=shown).format_commands(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; `KikuchiError` exits with 2. Ctrl-C is dealt with in `startup.main`."""
        words = [*getattr(ctx, "_protected_args", ()), *ctx.args]
        quiet = "--quiet" in words or "-q" in words
        try:
            with CommandBar(f"kikuchi {words[0] if words else ''}", quiet=quiet), extras_named():
                return super().invoke(ctx)
        except KikuchiError as error:
            _print_error(str(error))
            raise typer.Exit(BAD_INPUT) from None
        except MemoryError:
            _print_error("not enough memory; use a smaller model or another method")
            raise typer.Exit(BAD_INPUT) from None
        except BrokenPipeError:  # before the library of commands turns it into 1
            raise typer.Exit(OUTPUT_CLOSED) from None


app = typer.Typer(
    name="kikuchi",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # plain help: a third of the start-up time of the coloured one
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import platform
        from importlib.metadata import PackageNotFoundError, version

        from kikuchi import __version__

        found = [f"kikuchi {__version__}", f"Python {platform.python_version()}"]
        for name, package in (("NumPy", "numpy"), ("Numba", "numba"), ("JAX", "jax")):
            try:
                found.append(f"{name} {version(package)}")
            except PackageNotFoundError:
                found.append(f"no {name}")
        typer.echo("\n".join(found))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions of kikuchi and of what it runs on.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Inference and learning in probabilistic models, and how far to trust the answers.

    MODEL is a file (.bif, .uai, .fg, .net, .xdsl) or a bundled model such as example:asia.
    `kikuchi COMMAND --help` tells what a command takes.
    Exit codes: 0 an answer was produced, 2 bad input or usage, 3 not converged with --strict.
    """


def _print_error(message: str) -> None:
    print(f"kikuchi: {printable(one_line(message))}", file=sys.stderr)
