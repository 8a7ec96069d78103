"""What the terminal shows: rich tables and progress for people, plain aligned text for pipes."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kikuchi.core.compiling import COMPILING
from kikuchi.core.progress import ProgressBar as ProgressBar
from kikuchi.core.progress import hide_bars
from kikuchi.core.text import printable, seconds

if TYPE_CHECKING:
    from kikuchi.core.answer import Answer

Rows = Sequence[Sequence[str]]


class Screen:
    """Standard output for answers, standard error for remarks; silent with `quiet`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    def line(self, text: str = "") -> None:
        """One line of the answer."""
        if not self.quiet:
            hide_bars()
            print(printable(text))

    def note(self, text: str, *, always: bool = False) -> None:
        """A remark beside the answer, on standard error; `always`, even on a silent screen."""
        if always or not self.quiet:
            hide_bars()
            print(printable(text), file=sys.stderr)

    def answer(self, answer: Answer) -> None:
        """Facts, then tables, then remarks; nothing is computed for a silent screen."""
        if self.quiet:
            return
        facts, table = answer.facts(), answer.table()
        if facts:
            self.facts(facts)
        if facts and table is not None:
            self.line()
        for lines, further in [((), table), *answer.parts()]:
            for line in lines:
                self.line(line)
            if further is not None:
                self.table(*further)
        for remark in answer.remarks():
            for line in _wrapped(remark):
                self.line(line)
        if COMPILING.told:
            spent = seconds(COMPILING.compiled)
            self.note(f"compiling took {spent}, which no time above includes")

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Labels with their values."""
        if self.quiet:
            return
        pairs = [(printable(label), printable(value)) for label, value in pairs]
        hide_bars()
        if sys.stdout.isatty():
            _rich_facts(pairs)
            return
        width = max((len(label) for label, _ in pairs), default=0)
        for label, value in pairs:
            print(f"{label:<{width}}  {value}".rstrip())

    def table(self, head: Sequence[str], rows: Rows, right: Sequence[int] = ()) -> None:
        """A table; the columns in `right` hold numbers and are aligned to the right."""
        if self.quiet:
            return
        rows = [[printable(cell) for cell in row] for row in rows]
        hide_bars()
        if sys.stdout.isatty():
            _rich_table(head, rows, right)
        else:
            for text in plain_table(head, rows, right):
                print(text)


def plain_table(head: Sequence[str], rows: Rows, right: Sequence[int] = ()) -> list[str]:
    """The lines of an aligned table.

    >>> plain_table(["method", "s"], [["bp", "0.1"], ["gibbs", "12"]], right=[1])
    ['method    s', '------  ---', 'bp      0.1', 'gibbs    12']
    """
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    cells.insert(1, ["-" * width for width in widths])
    return ["  ".join(_padded(row, widths, right)).rstrip() for row in cells]


def _padded(row: list[str], widths: list[int], right: Sequence[int]) -> list[str]:
    return [
        text.rjust(width) if k in right else text.ljust(width)
        for k, (text, width) in enumerate(zip(row, widths, strict=True))
    ]


def _rich_facts(pairs: Sequence[tuple[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in pairs:
        grid.add_row(Text(label), Text(value))
    Console().print(grid)


def _rich_table(head: Sequence[str], rows: Rows, right: Sequence[int]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    least = [_longest_word([name, *(row[k] for row in rows)]) for k, name in enumerate(head)]
    whole = sum(least) + 2 * len(least) <= console.width  # or words must break somewhere
    for k, name in enumerate(head):
        side: Literal["left", "right"] = "right" if k in right else "left"
        table.add_column(name, justify=side, overflow="fold", min_width=least[k] if whole else None)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _longest_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def _wrapped(text: str) -> list[str]:
    """A remark broken between words at the width of the terminal; as it is elsewhere."""
    if not text or not sys.stdout.isatty():
        return [text]
    width = shutil.get_terminal_size().columns
    return textwrap.wrap(text, width, subsequent_indent="  ", break_long_words=False)
