"""Public names of a package, listed once in its stub and imported on first use.

The stub `__init__.pyi` next to a package's `__init__.py` contains lines such as
`from kikuchi.core.budget import Budget as Budget`. Type checkers and editors read it; at run time
the package reads the same lines, so that importing it is cheap (PEP 562).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kikuchi.core.errors import MissingExtraError
from kikuchi.core.extras import extras_named
from kikuchi.core.loading import announced


def read_stub(stub: Path) -> dict[str, str]:
    """Return the module of each public name, from the import lines of a stub."""
    return {
        alias.asname or alias.name: node.module or ""
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def public_names(
    package: str, file: str, moved: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of the package whose `__init__.py` is `file`.

    `moved` maps former names to their replacements, for the error message.

    >>> import kikuchi.reports
    >>> find, _, names = public_names("kikuchi.reports", kikuchi.reports.__file__)
    >>> "describe" in names, find("describe").__module__
    (True, 'kikuchi.reports.facts')
    """
    homes = read_stub(Path(file).with_suffix(".pyi"))
    names = sorted(homes, key=str.lower)

    def find(name: str) -> Any:
        if name not in homes:
            instead = f"; use {moved[name]}" if name in moved else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{instead}")
        if homes[name] in sys.modules:
            _renew_notices()
            return getattr(import_module(homes[name]), name)
        try:
            with extras_named(), announced():
                return getattr(import_module(homes[name]), name)
        except MissingExtraError as error:
            raise error.with_traceback(
                None
            ) from None  # the frames of the import add no information

    return find, lambda: names, names


def _renew_notices() -> None:
    """Announce compilation again in a later call."""
    compiling = sys.modules.get("kikuchi.core.compiling")
    if compiling is not None:
        compiling.COMPILING.renew()
