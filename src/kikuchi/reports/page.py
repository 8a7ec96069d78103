"""One builder for every report page.

A page is a `Report`: a title, warnings and large figures at the top, then sections of facts, tables
and figures, and at the end how to run the same again. It is one self-contained HTML file.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi import __version__
from kikuchi.core.answer import TextTable
from kikuchi.core.page import Facts, Item, Page, Picture
from kikuchi.plots.convergence import convergence
from kikuchi.reports import html

if TYPE_CHECKING:
    from kikuchi.core.trace import Trace

_LONGEST_VALUE = 400  # characters of a diagnostic
_MOST_VALUES = 8  # of an array, before it is summarised


@dataclass(kw_only=True)
class Report(Page):
    """A page that can be written.

    >>> from kikuchi.core.page import Tile
    >>> page = Report(title="A coin", subtitle="Tossed", tiles=[Tile("heads", "3")], python="1 + 2")
    >>> "<h1>A coin</h1>" in page.html()
    True
    """

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


def write_page(page: Page, path: str | PathLike[str], command: str | None = None) -> None:
    """Write a page, with the versions of the software as its last section."""
    sections = {**page.sections, "Versions": [Facts(versions())]}
    Report(**{**vars(page), "sections": sections}).write(path, command)


def versions() -> list[tuple[str, str]]:
    """Return the versions of the software, and the date of the page."""
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
    """Return the records of a run, with long values shortened."""
    return Facts([(name, _short(value)) for name, value in values.items()])


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
