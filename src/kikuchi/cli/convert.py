"""`kikuchi convert`: the same model in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kikuchi.cli import options


def convert(
    source: Annotated[
        str, typer.Argument(metavar="A", help="Model to read, or example:NAME.", show_default=False)
    ],
    target: Annotated[
        Path,
        typer.Argument(metavar="B", help="File to write: .uai, .bif, .fg.", show_default=False),
    ],
    quiet: options.Quiet = False,
) -> None:
    """Convert a model to another format.

    The endings of the names tell the formats; .gz after them means compressed.
    """
    from kikuchi.cli.console import Screen
    from kikuchi.cli.inputs import load_model
    from kikuchi.cli.outputs import check_model_suffix, check_outputs
    from kikuchi.graphs.formats import write

    check_model_suffix(target)
    check_outputs(source, target)
    graph = load_model(source)
    write(graph, target)
    Screen(quiet=quiet).line(f"{target}: {graph!r}")
