"""`kikuchi generate KIND`: seeded models of many kinds, written to a file.

The commands are made from the signatures of the generators when one is asked for: what has no
default is an argument, everything else an option.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from kikuchi.cli import options
from kikuchi.cli.command import keyword, with_parameters

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph

_HELP = {  # metavar and meaning of each parameter of a generator
    "rows": ("ROWS", "Number of rows."),
    "cols": ("COLS", "Number of columns."),
    "n": ("N", "Number of variables."),
    "p": ("P", "Probability that two variables are joined."),
    "degree": ("DEGREE", "Neighbours of each variable."),
    "n_factors": ("FACTORS", "Number of factors."),
    "max_order": ("ORDER", "Most variables in a factor."),
    "max_states": ("STATES", "Most states of a variable."),
    "seed": ("N", "Seed: same seed, same model."),
    "coupling": ("S", "Standard deviation of the couplings."),
    "field": ("S", "Standard deviation of the fields."),
    "states": ("K", "States of each variable."),
    "periodic": ("", "Join opposite borders."),
    "column_weight": ("W", "Parity checks of each bit."),
    "row_weight": ("W", "Bits in each parity check; N is a multiple of it."),
    "noise": ("P", "Probability that a bit is flipped."),
    "zeros": ("P", "Share of weights that are zero."),
    "scale": ("S", "Standard deviation of log-weights."),
}

Out = Annotated[
    Path,
    options.option("--out -o FILE", options.MODEL_TO_WRITE),
]


class Generators(TyperGroup):
    """One command per generator, made when the group is first looked at."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The kinds of models."""
        self._load()
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command that makes one kind of model."""
        self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if not self.commands:
            made = typer.Typer(rich_markup_mode=None)
            from kikuchi.graphs.generators import GENERATORS

            for kind, generator in GENERATORS.items():
                made.command(kind)(_command(generator))
            self.commands.update(typer.main.get_command(made).commands)  # type: ignore[attr-defined]


app = typer.Typer(
    cls=Generators,
    help="Make a seeded model and write it to a file.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def generate() -> None:
    """Make a seeded model and write it to a file."""


def _command(generator: Callable[..., FactorGraph]) -> Callable[..., None]:
    """A command with the parameters of a generator, a file to write and `--quiet`."""
    hints = typing.get_type_hints(generator)
    parameters = [
        keyword(name, parameter.default, _annotation(name, parameter.default, hints[name]))
        for name, parameter in inspect.signature(generator).parameters.items()
    ]

    def make(out: Path, quiet: bool, **arguments: Any) -> None:
        from kikuchi.cli.outputs import check_model_suffix, check_outputs, write_model

        check_model_suffix(out)
        check_outputs("", out)
        write_model(generator(**arguments), out, quiet=quiet)

    make.__doc__ = (inspect.getdoc(generator) or "").partition("\n\n>>>")[0]
    ending = [keyword("out", inspect.Parameter.empty, Out), keyword("quiet", False, options.Quiet)]
    return with_parameters(make, [*parameters, *ending])


def _annotation(name: str, default: Any, hint: Any) -> Any:
    metavar, meaning = _HELP[name]
    kind = int if name == "seed" else hint
    if default is inspect.Parameter.empty:
        return Annotated[kind, options.argument(metavar, meaning)]
    flag = f"--{name.replace('_', '-')} {metavar}"
    return Annotated[kind, options.option(flag, meaning)]
