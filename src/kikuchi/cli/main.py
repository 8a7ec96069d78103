"""`kikuchi`: the commands, and how errors leave the program."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kikuchi.cli.commands import (
    bounds,
    certify,
    compare,
    convert,
    evaluate,
    examples,
    generate,
    ica,
    infer,
    info,
    learn,
    learners,
    methods,
    most_probable,
    patches,
    predict,
    query,
    regions,
    reproduce,
    sample,
    temporal,
    train,
    warm_up,
)
from kikuchi.cli.estimators import EstimatorCommand
from kikuchi.cli.startup import BAD_INPUT, OUTPUT_CLOSED
from kikuchi.core.errors import KikuchiError
from kikuchi.core.text import one_line, printable


class Commands(TyperGroup):
    """The group of all commands; turns errors that a user can mend into one line and a code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; `KikuchiError` exits with 2. Ctrl-C is dealt with in `startup.main`."""
        try:
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
    """Marginals and log Z of discrete probabilistic models, with how far to trust them.

    MODEL is a file (.uai, .bif, .fg) or a bundled model such as example:asia.
    Exit codes: 0 an answer was produced, 2 bad input or usage, 3 not converged with --strict.
    """


_MODULES: tuple[Any, ...] = (
    *(
        info,
        infer,
        query,
        predict,
        most_probable,
        compare,
        bounds,
        certify,
        learn,
        train,
        patches,
        ica,
        temporal,
        evaluate,
        sample,
        generate,
    ),
    *(convert, methods, learners, regions, reproduce, examples, warm_up),
)
for _module in _MODULES:  # each holds a command of its own name, or a group of commands
    _name = _module.__name__.rpartition(".")[2]
    if hasattr(_module, "app"):
        app.add_typer(_module.app, name=_name)
    else:
        app.command(_name.replace("_", "-"), cls=EstimatorCommand)(getattr(_module, _name))


def _print_error(message: str) -> None:
    print(f"kikuchi: {printable(one_line(message))}", file=sys.stderr)
