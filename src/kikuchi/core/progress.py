"""Progress: what a long run tells the person who waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from kikuchi.core.errors import MethodError

_LABEL = 32  # characters of a label beside a bar
_LINES_EVERY = 2.0  # seconds between two lines where there is no terminal


@runtime_checkable
class Progress(Protocol):
    """Called a few times a second at most by a running method."""

    def __call__(
        self, done: int, total: int, *, residual: float | None, objective: float | None
    ) -> None:
        """`done` of at most `total` iterations are over."""


ProgressOption = Progress | bool | None
"""What functions take as `progress`: a function that is told, True for a bar, or nothing."""


def silent(
    done: int, total: int, *, residual: float | None = None, objective: float | None = None
) -> None:
    """Say nothing: the default in Python."""


@contextmanager
def shown(progress: ProgressOption, label: str) -> Iterator[Progress]:
    """Whom a run tells: a bar under this label for True, nobody for None and False.

    The bar stands on standard error and goes when the block ends; where that is no terminal, and
    no notebook, there is a line every two seconds.

    >>> with shown(None, "bp") as report:
    ...     report(1, 10, residual=None, objective=None)
    >>> with shown("yes", "bp") as report:
    ...     pass
    Traceback (most recent call last):
    kikuchi.core.errors.MethodError: progress must be True, False or a function that is told, \
got 'yes'
    """
    if progress is None or progress is False:
        yield silent
    elif progress is True:
        with ProgressBar(label, lines=True) as bar:
            yield bar
    elif callable(progress):
        yield progress
    else:
        raise MethodError(
            f"progress must be True, False or a function that is told, got {progress!r}"
        )


class ProgressBar:
    """A bar on standard error with the residual and the objective.

    It appears with the first report, so that a quick run shows none and imports nothing. Where
    standard error is no terminal and no notebook there is nothing, or with `lines` a line now and
    then.
    """

    def __init__(self, label: str, *, quiet: bool = False, lines: bool = False) -> None:
        self.label = label
        self.shown = not quiet and (sys.stderr.isatty() or (lines and _in_notebook()))
        self._lines = lines and not quiet and not self.shown
        self._next_line = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def relabel(self, label: str) -> ProgressBar:
        """Begin a new run under another name."""
        self.close()
        self.label = label
        return self

    def __call__(
        self, done: int, total: int, *, residual: float | None, objective: float | None
    ) -> None:
        """Show how far a run is."""
        if not (self.shown or self._lines):
            return
        parts = [
            f"{name} {value:.6g}"
            for name, value in (("residual", residual), ("objective", objective))
            if value is not None
        ]
        if self._lines:
            if time.monotonic() >= self._next_line:
                self._next_line = time.monotonic() + _LINES_EVERY
                place = f"{done} of {total}" if total else str(done)
                print("  ".join([f"{self.label}: {place}", *parts]), file=sys.stderr)
            return
        if self._bar is None:
            self._bar, self._task = _rich_progress(self.label, total)
        self._bar.update(self._task, completed=done, total=total or None, detail="  ".join(parts))


def _in_notebook() -> bool:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _rich_progress(label: str, total: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    bar = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
        console=Console(stderr=True),
        transient=True,
    )
    bar.start()
    short = label if len(label) <= _LABEL else label[: _LABEL - 1] + "…"
    return bar, bar.add_task(escape(short), total=total or None, detail="")
