"""The content of a report page, without its layout.

An answer of any package declares its page with these classes; `kikuchi.reports.page` writes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kikuchi.core.answer import Pairs, TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_SETTINGS = ("checkpoint", "progress", "verbose")  # where a fit writes and reports


class Tile(NamedTuple):
    """A large figure at the top of a page; `kind` sets its colour: `good`, `bad` or nothing."""

    label: str
    value: str
    kind: str = ""

    @classmethod
    def judged(cls, label: str, good: bool, words: tuple[str, str] = ("yes", "no")) -> Tile:
        """A coloured verdict.

        >>> Tile.judged("converged", False)
        Tile(label='converged', value='no', kind='bad')
        """
        return cls(label, words[0] if good else words[1], "good" if good else "bad")


class Picture(NamedTuple):
    """A figure with its caption."""

    figure: Figure
    caption: str


class Facts(NamedTuple):
    """Labels with their values, as a table of two columns."""

    pairs: Pairs


Item = str | Picture | list[Picture] | Facts | TextTable | None
"""A part of a section: HTML text, figures (those of a list are placed in a row), or tables; None is
omitted.
"""
Sections = Mapping[str, Sequence[Item]]


@dataclass(kw_only=True)
class Page:
    """The content of a page: `warnings` and `tiles`, then `sections`, then how to run it again.

    Sections without content are left out. `python` is the equivalent Python code, `answer` holds
    further parts of the first section, whose title is `heading`.
    """

    title: str
    subtitle: str
    python: str
    heading: str = "Answer"
    warnings: Sequence[str] = ()
    tiles: Sequence[Tile] = ()
    answer: Sequence[Item] = ()
    note: str = ""
    sections: Sections = field(default_factory=dict)


def settings_text(thing: Any) -> str:
    """The options of a dataclass that differ from their defaults, in one line.

    >>> @dataclass
    ... class Walk:
    ...     steps: int = 3
    ...     wide: bool = False
    >>> settings_text(Walk(steps=5)), settings_text(Walk())
    ('steps=5, all others by default', 'all by default')
    """
    changed = {
        f.name: getattr(thing, f.name)
        for f in dataclasses.fields(thing)
        if f.name not in _NO_SETTINGS and not _is_default(f, getattr(thing, f.name))
    }
    words = [f"{name}={_plain(value)}" for name, value in changed.items() if _is_short(value)]
    return ", ".join([*words, "all others by default" if words else "all by default"])


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    default = field.default
    if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return value is default or (
        _is_short(value) and type(value) is type(default) and value == default
    )


def _is_short(value: Any) -> bool:
    """Whether a value fits in a line: not a function, a generator or an array."""
    if isinstance(value, list | tuple):
        return all(_is_short(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _plain(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
