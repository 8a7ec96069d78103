"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Model file (.uai, .bif, .fg), or example:NAME.", show_default=False
    ),
]
Evidence = Annotated[
    str | None,
    typer.Option(
        "--evidence",
        "-e",
        metavar="E",
        help='Evidence file, or observations such as "rain=1,x3=0"; x4=0.3:0.7 is a marginal.',
    ),
]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="OUT", help="Write the answer as JSON; - for standard output."),
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="OUT.html", help="Write a page with pictures.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 3 when the run did not converge.")
]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", metavar="S", help="Time budget; the best so far is returned."),
]
Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="Memory budget such as 500MB or 2GB.  [4GB]"),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="Seed of methods that use random numbers.")
]
FirstSeed = Annotated[int, typer.Option("--seed", metavar="N", help="Random numbers.")]
Image = Annotated[
    str | None,
    typer.Option("--image", metavar="HxW", help="Rows are images.  [square ones are seen]"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="OUT", help="Draw a picture: .png or .svg.")
]
DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Rows of states: .csv, .tsv, .parquet, .npy or .npz.",
        show_default=False,
    ),
]
