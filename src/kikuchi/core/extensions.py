"""Entries that rooms above add to the registries of rooms below, by the path of a lazy import.

A registry of a lower room knows its own classes only. The front of the package, which stands above
all rooms, announces here what upper rooms add; nothing is imported until the name is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

_ENTRIES: dict[str, dict[str, str]] = {}


def extend(home: str, entries: Mapping[str, str]) -> None:
    """Add names to the registry of the room `home`, before that registry is made.

    Parameters
    ----------
    home : the package of the registry, such as "kikuchi.methods".
    entries : name -> "package.module:Class".

    >>> extend("kikuchi.nowhere", {"mine": "package.module:Mine"})
    >>> extensions("kikuchi.nowhere")
    {'mine': 'package.module:Mine'}
    """
    _ENTRIES.setdefault(home, {}).update(entries)


def extensions(home: str) -> dict[str, str]:
    """What was added to the registry of a room."""
    return dict(_ENTRIES.get(home, {}))
