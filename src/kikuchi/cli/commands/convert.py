"""`kikuchi convert`: the same model in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from kikuchi.cli import options

Source = Annotated[str, options.argument("A", "Model to read, - or example:NAME.")]
Target = Annotated[
    Path,
    options.argument("B", options.MODEL_TO_WRITE),
]


def convert(
    source: Source, target: Target, format: options.Format = None, quiet: options.Quiet = False
) -> None:
    """Convert a model to another format.

    The endings of the names tell the formats; .gz after them means compressed. Names that a format
    cannot hold are written beside it, to B.names.json.
    """
    from kikuchi.cli.inputs import load_model
    from kikuchi.cli.outputs import check_model_suffix, check_outputs, write_model

    check_model_suffix(target)
    check_outputs(source, target)
    graph = load_model(source, format)
    write_model(graph, target, quiet=quiet)
