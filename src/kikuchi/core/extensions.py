"""Entries that higher packages add to the registries of lower ones, as paths of lazy imports.

A registry of a lower package contains only its own classes. The top-level package adds the entries
of higher packages here; a class is imported only when its name is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping

_ENTRIES: dict[str, dict[str, str]] = {}


def extend(home: str, entries: Mapping[str, str]) -> None:
    """Add names to the registry of the package `home`, before that registry is created.

    Parameters
    ----------
    home : str
        The package of the registry, such as "kikuchi.methods".
    entries : Mapping[str, str]
        Name -> "package.module:Class".

    >>> extend("kikuchi.nowhere", {"mine": "package.module:Mine"})
    >>> extensions("kikuchi.nowhere")
    {'mine': 'package.module:Mine'}
    """
    _ENTRIES.setdefault(home, {}).update(entries)


def extensions(home: str) -> dict[str, str]:
    """Return the entries added to the registry of a package."""
    return dict(_ENTRIES.get(home, {}))
