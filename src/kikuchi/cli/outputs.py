"""Answers written to files: checked before the long work, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kikuchi.core.errors import KikuchiError, suggestion
from kikuchi.core.files import atomic_write, resolved, suffix_of
from kikuchi.core.progress import hide_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.methods.beliefs import Beliefs
    from kikuchi.methods.method import Method

STANDARD_OUTPUT = Path("-")
MARGINAL_SUFFIXES = (".mar", ".csv", ".pr")
MODEL_SUFFIXES = (
    *(".uai", ".fg", ".bif", ".xmlbif", ".bifxml", ".xml", ".net", ".xdsl", ".dsl", ".json"),
)
PICTURE_SUFFIXES = (".png", ".svg")


def check_outputs(source: str, *paths: Path | None, others: Iterable[Path] = ()) -> None:
    """Refuse at once what could not be written later, or would destroy what is read.

    `source` is the first input, `others` are all the other words of the command line that may name
    one; those that are no files are passed over.
    """
    inputs = {resolved(source), *(resolved(path) for path in others if _is_file(path))}
    seen: set[Path] = set()
    for path in paths:
        if path is None or path == STANDARD_OUTPUT:
            continue
        _check_target(path)
        target = resolved(path)
        if target in seen:
            raise KikuchiError(f"two outputs go to {path}; choose different names")
        if target in inputs:
            raise KikuchiError(
                f"{path} is an input of this command; choose another name for the output"
            )
        seen.add(target)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or a null byte in it
        return False


def _check_target(path: Path) -> None:
    try:
        if path.is_dir():
            raise KikuchiError(f"cannot write {path}: it is a folder; give the name of a file")
        if resolved(path).is_symlink():
            raise KikuchiError(f"cannot write {path}: the symbolic link points to itself")
        if path.exists() and not path.is_file():
            raise KikuchiError(f"cannot write {path}: it is not an ordinary file")
        if path.exists() and not os.access(path, os.W_OK):
            raise KikuchiError(f"cannot write {path}: the file is protected against writing")
        with tempfile.TemporaryFile(dir=resolved(path).parent):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise KikuchiError(f"cannot write {path}: {reason}") from None


def check_marginals_suffix(path: Path | None, method: Method) -> None:
    """Refuse a form of marginals that does not exist, or that a method cannot fill."""
    if path is None:
        return
    _check_suffix(path, suffix_of(path), MARGINAL_SUFFIXES, "in which form")
    if suffix_of(path) != ".csv" and not method.gives_marginals:
        raise KikuchiError(
            f"{path} cannot be written: {method.text} gives max-marginals, and no marginals or "
            "log Z; write them to a .csv file, or use mode=sum"
        )


def check_model_suffix(path: Path) -> None:
    """Refuse a format of models that does not exist."""
    _check_suffix(path, suffix_of(path), MODEL_SUFFIXES, "in which format")


def check_picture_suffix(path: Path | None) -> None:
    """Refuse a kind of picture that does not exist."""
    if path is not None:
        _check_suffix(path, path.suffix.lower(), PICTURE_SUFFIXES, "which kind of picture")


def _check_suffix(path: Path, ending: str, known: tuple[str, ...], what: str) -> None:
    if ending not in known:
        raise KikuchiError(f"{path}: the ending says {what} to write; {suggestion(ending, known)}")


def write_model(graph: FactorGraph, path: Path, *, quiet: bool) -> None:
    """Write a model, and tell what it is."""
    from kikuchi.cli.console import Screen
    from kikuchi.graphs.formats import write

    write(graph, path)
    Screen(quiet=quiet).line(f"{path}: {graph!r}")


def write_marginals_file(beliefs: Beliefs, path: Path) -> None:
    """Marginals as UAI .MAR or as .csv, or log Z as UAI .PR, by the ending of the name."""
    from kikuchi.graphs import formats

    if suffix_of(path) != ".pr":
        formats.write_marginals(beliefs, path)
    elif beliefs.log_z is None:
        raise KikuchiError(f"{beliefs.method} gives no log Z, so {path} cannot be written; use jt")
    else:
        formats.write_pr(beliefs.log_z, path)


def write_picture(figure: Figure, path: Path) -> None:
    """A figure as .png or .svg, by the ending of the name."""
    from kikuchi.plots import to_png_bytes, to_svg

    svg = path.suffix.lower() == ".svg"
    with atomic_write(path, "wb") as file:
        file.write(to_svg(figure).encode() if svg else to_png_bytes(figure))


def write_json(data: Any, path: Path) -> None:
    """One JSON object, to a file or (with -) to standard output; never NaN or infinity."""
    text = _json_text(data, plain=path == STANDARD_OUTPUT)  # whose encoding may be any
    if path == STANDARD_OUTPUT:
        hide_bars()
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        return
    with atomic_write(path) as file:
        file.write(text + "\n")


def _json_text(data: Any, *, plain: bool) -> str:
    try:
        return json.dumps(data, allow_nan=False, ensure_ascii=plain)
    except (ValueError, TypeError):  # a number without a JSON form, or of NumPy: look at each
        return json.dumps(finite(data), allow_nan=False, ensure_ascii=plain)


def finite(value: Any) -> Any:
    """The same data with None in place of every NaN and infinity, and plain keys.

    >>> finite({"a": [1.0, math.inf], 2: "b"})
    {'a': [1.0, None], '2': 'b'}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    return value


def write_columns(out: Path, names: list[str], rows: Any) -> None:
    """Rows of numbers as .csv, with the names of the columns if there are any, or as .npz."""
    import csv

    import numpy as np

    from kikuchi.core.text import spreadsheet_cell

    if suffix_of(out) == ".npz":
        arrays: dict[str, Any] = {"data": rows}
        with atomic_write(out, "wb") as binary:
            np.savez(binary, **arrays)
        return
    with atomic_write(out) as file:
        if names:
            head = [spreadsheet_cell(name) for name in names]
            csv.writer(file, lineterminator="\n").writerow(head)
        np.savetxt(file, rows, delimiter=",", fmt="%.9g")


def write_cells(out: Path, names: list[str], columns: list[Any]) -> None:
    """Columns of numbers or texts as .csv."""
    import csv

    from kikuchi.core.text import spreadsheet_cell

    with atomic_write(out) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([spreadsheet_cell(name) for name in names])
        for row in zip(*columns, strict=True):
            writer.writerow(
                [spreadsheet_cell(x) if isinstance(x, str) else f"{x:.9g}" for x in row]
            )


def check_table_suffix(out: Path, *known: str) -> None:
    """Refuse a kind of table that is not written."""
    if suffix_of(out) not in known or out.name.lower().endswith(".gz"):
        raise KikuchiError(f"{out}: the answer is written as {' or '.join(known)}")
