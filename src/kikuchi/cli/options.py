"""How options are declared, and those that several commands share.

A field of a group of options (`cli.command.grouped`) is made by `flag` or `argument`; a parameter
of a command has one of the annotated types below.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer


def flag(spec: str, help: str, default: Any = None) -> Any:
    """An option as a field of a group: its names and metavar, such as `--out -o FILE`."""
    return dataclasses.field(default=default, metadata={"typer": option(spec, help)})


def option(spec: str, help: str, **more: Any) -> Any:
    """An option for an annotated type; without a metavar it is a switch."""
    names = [word for word in spec.split() if word.startswith("-")]
    metavar = next((word for word in spec.split() if not word.startswith("-")), None)
    return typer.Option(*names, metavar=metavar, help=help, **more)


def argument(metavar: str, help: str) -> Any:
    """An argument for an annotated type."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


MODEL_TO_WRITE = "File to write: .uai, .fg, .bif, .xmlbif, .net, .xdsl, .dsl, .json."
Model = Annotated[
    str, argument("MODEL", "Model file (.uai, .bif, .net, .xdsl, ...), - or example:NAME.")
]
Format = Annotated[
    str | None, option("--format F", "Format of the model: uai, bif, net ...  [by its ending]")
]
ROWS_OR_STATES = (
    "Rows of states of a graph, or data as the kind of the fitted model takes them: .csv, .tsv, "
    ".parquet, .npy, .npz, ..."
)
DataFile = Annotated[str, argument("DATA", "Rows of states: .csv, .tsv, .parquet, .npy or .npz.")]
FittedModel = Annotated[
    str, argument("MODEL", "Fitted model (.safetensors), as `kikuchi fit` writes it.")
]
Evidence = Annotated[
    str | None,
    option(
        "--evidence -e E",
        'Evidence file, or observations such as "rain=1,x3=0"; x4=0.3:0.7 is a marginal.',
    ),
]
Json = Annotated[
    Path | None, option("--json OUT", "Write the answer as JSON; - for standard output.")
]
Report = Annotated[Path | None, option("--report OUT.html", "Write a page with pictures.")]
Plot = Annotated[Path | None, option("--plot OUT", "Draw a picture: .png or .svg.")]
Strict = Annotated[bool, option("--strict", "Exit with 3 when the run did not converge.")]
Seconds = Annotated[
    float | None,
    option("--seconds S", "Time budget, compiling not counted; the best so far is returned."),
]
Memory = Annotated[
    str | None,
    option("--memory SIZE", "Memory that a run may add to the process: 500MB, 2GB.  [4GB]"),
]
Seed = Annotated[int | None, option("--seed N", "Seed of methods that use random numbers.")]
FitSeed = Annotated[int, option("--seed N", "Random seed.")]
Cluster = Annotated[
    str | None,
    option(
        "--cluster ADDRESS|local:N",
        "A Dask cluster in place of processes: its scheduler, or N workers started here.",
    ),
]
Quiet = Annotated[bool, option("--quiet -q", "Print nothing but errors.")]
