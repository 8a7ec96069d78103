"""Public names of a package, listed once in its stub and imported on first use.

The stub `__init__.pyi` next to a package's `__init__.py` contains lines such as
`from kikuchi.core.budget import Budget as Budget`. Type checkers and editors read it; at run time
the package reads the same lines, so that importing it is cheap (PEP 562).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kikuchi.core.errors import MissingExtraError
from kikuchi.core.extras import extras_named
from kikuchi.core.loading import announced


def read_stub(stub: Path) -> dict[str, str]:
    """Return the module of each public name, from the import lines of a stub.

    A line such as `from kikuchi import methods as methods` makes a module itself a public name: it
    is listed under the package that contains it.
    """
    return {
        alias.asname or alias.name: node.module or ""
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def public_names(
    package: str, file: str, moved: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package or module whose file is `file`.

    Modules that the stub lists are attributes and are not in `__all__`. The error for an unknown
    name contains the module that has it, or its replacement in `moved`.

    >>> import kikuchi.reports
    >>> find, _, names = public_names("kikuchi.reports", kikuchi.reports.__file__)
    >>> "describe" in names, find("describe").__module__
    (True, 'kikuchi.reports.facts')
    """
    homes = read_stub(Path(file).with_suffix(".pyi"))
    modules = [name for name, home in homes.items() if home == package]
    names = sorted((name for name in homes if name not in modules), key=str.lower)

    def find(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            place = moved.get(name) or _place_of(name, package, Path(file).parent, modules)
            instead = f"; use {place}" if place else ""
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

    return find, lambda: sorted(homes, key=str.lower), names


def _place_of(name: str, package: str, folder: Path, modules: Sequence[str]) -> str | None:
    """The public module whose stub lists a name, as the full name of it."""
    for module in modules:
        stubs = (folder / module / "__init__.pyi", folder / f"{module}.pyi")
        stub = next((path for path in stubs if path.is_file()), None)
        if stub is not None and name in read_stub(stub):
            return f"{package}.{module}.{name}"
    return None


def _renew_notices() -> None:
    """Announce compilation again in a later call."""
    compiling = sys.modules.get("kikuchi.core.compiling")
    if compiling is not None:
        compiling.COMPILING.renew()
