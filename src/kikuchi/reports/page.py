"""One builder for every report page.

A page is a `Report`: a title, warnings and large figures at the top, then sections of facts, tables
and figures, and at the end how to run the same again. It is one self-contained HTML file.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kikuchi import __version__
from kikuchi.core.answer import Pairs, TextTable
from kikuchi.plots.convergence import convergence
from kikuchi.reports import html

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.core.trace import Trace

_LONGEST_VALUE = 400  # characters of a diagnostic
_MOST_VALUES = 8  # of an array, before it is summarised
_NO_SETTINGS = ("checkpoint", "progress", "verbose")  # where a fit writes, and whom it tells


class Tile(NamedTuple):
    """A large figure at the top of a page; `kind` colours it: `good`, `bad` or nothing."""

    label: str
    value: str
    kind: str = ""

    @classmethod
    def judged(cls, label: str, good: bool, words: tuple[str, str] = ("yes", "no")) -> Tile:
        """A verdict, coloured.

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
"""A part of a section; a text is HTML, several pictures stand side by side, None is left out."""


@dataclass(kw_only=True)
class Report:
    """What a page shows: first `warnings` and `tiles`, then `sections`, then how to repeat it.

    Sections without content are left out. `python` is the code that does the same, `answer` further
    parts of the first section, whose title is `heading`.

    >>> page = Report(title="A coin", subtitle="Tossed", tiles=[Tile("heads", "3")], python="1 + 2")
    >>> "<h1>A coin</h1>" in page.html()
    True
    """

    title: str
    subtitle: str
    python: str
    heading: str = "Answer"
    warnings: Sequence[str] = ()
    tiles: Sequence[Tile] = ()
    answer: Sequence[Item] = ()
    note: str = ""
    sections: Mapping[str, Sequence[Item]] = field(default_factory=dict)

    def html(self, command: str | None = None) -> str:
        """The whole page as text; `command` is the command line that repeats the run."""
        self._pictures = 0
        first = [html.warning_box(self.warnings), html.tiles(self.tiles) if self.tiles else ""]
        again = [html.code(command)] if command else []
        return html.document(
            self.title,
            self.subtitle,
            html.section(self.heading, *first, *map(self._rendered, self.answer), note=self.note),
            *(html.section(name, *map(self._rendered, s)) for name, s in self.sections.items()),
            html.section("How to run this again", *again, html.code(self.python)),
        )

    def write(self, path: str | PathLike[str], command: str | None = None) -> None:
        """Write the page whole or not at all."""
        html.write_page(path, self.html(command))

    def _rendered(self, item: Item) -> str:
        if isinstance(item, Picture):
            self._pictures += 1
            return html.picture(item.figure, item.caption, self._pictures)
        if isinstance(item, Facts):
            return html.definition_table(item.pairs) if item.pairs else ""
        if isinstance(item, TextTable):
            return html.table(*item)
        if isinstance(item, list):
            row = "".join(self._rendered(picture) for picture in item)
            return f'<div class="row">{row}</div>' if row else ""
        return item or ""


def versions() -> list[tuple[str, str]]:
    """What the answer was computed with, and when the page was written."""
    others = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "numba"))
    return [
        ("Software", f"kikuchi {__version__}, Python {platform.python_version()}, {others}"),
        ("Written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    ]


def convergence_picture(traces: Mapping[str, Trace], caption: str) -> Picture | None:
    """The traces of runs that took more than one step; None if there are none."""
    long = {name: trace for name, trace in traces.items() if len(trace) > 1}
    return Picture(convergence(long), caption) if long else None


def diagnostics(values: Mapping[str, Any]) -> Facts:
    """What a run recorded about itself, long values cut short."""
    return Facts([(name, _short(value)) for name, value in values.items()])


def settings_text(thing: Any) -> str:
    """The options of a dataclass that differ from their defaults, in one line.

    >>> from kikuchi.methods.registry import parse_method
    >>> settings_text(parse_method("bp:damping=0.5")), settings_text(parse_method("bp"))
    ('damping=0.5, all others by default', 'all by default')
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
    """Whether a value can stand in a line: not a function, a generator or an array."""
    if isinstance(value, list | tuple):
        return all(_is_short(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _plain(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.size > _MOST_VALUES:
            numbers = value.astype(np.float64)
            return (
                f"{value.size:,} values, smallest {numbers.min():.4g}, "
                f"median {np.median(numbers):.4g}, largest {numbers.max():.4g}"
            )
        value = value.tolist()
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    return shown if len(shown) <= _LONGEST_VALUE else shown[:_LONGEST_VALUE] + " ..."
