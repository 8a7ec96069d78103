"""Progress reports and progress bars of long runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from kikuchi.core.errors import MethodError

_LABEL = 32  # characters of a label next to a bar
_BAR = 20  # characters of a bar
_LINES_EVERY = 2.0  # seconds between two lines without a terminal
_APPEARS_AFTER = 1.0  # seconds before a bar without a report, or an estimate of the time left

_OPEN: list[ProgressBar] = []  # bars of this process, innermost last
_PHASES: list[str] = []


@runtime_checkable
class Progress(Protocol):
    """Callback that a running method calls at most a few times per second."""

    def __call__(
        self, done: int, total: int, *, residual: float | None, objective: float | None
    ) -> None:
        """Report that `done` of at most `total` iterations are done."""


ProgressOption = Progress | bool | None
"""Values of the argument `progress`: a callback, True for a bar, or None or False for no
reports.
"""


def silent(
    done: int, total: int, *, residual: float | None = None, objective: float | None = None
) -> None:
    """Report nothing; the default in Python."""


@contextmanager
def shown(progress: ProgressOption, label: str | ProgressBar) -> Iterator[Progress]:
    """Resolve `progress`: True draws this bar, or one with this label; None and False are silent.

    The bar is drawn on standard error and removed when the block ends. If that is neither a
    terminal nor a notebook, a line is printed every two seconds.

    >>> with shown(None, "bp") as report:
    ...     report(1, 10, residual=None, objective=None)
    >>> with shown("yes", "bp") as report:
    ...     pass
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.MethodError: progress must be True, False or a callback, got 'yes'
    """
    if progress is None or progress is False:
        yield silent
    elif progress is True:
        with ProgressBar(label, lines=True) if isinstance(label, str) else label as bar:
            yield bar
    elif callable(progress):
        yield progress
    else:
        raise MethodError(f"progress must be True, False or a callback, got {progress!r}")


class ProgressBar:
    """A line on standard error with the phase of a run, its progress, the elapsed time and an upper
    estimate of the remaining time.

    Within its `with` block it appears after a second, or with the first report, so that a short run
    shows no bar and imports nothing. Of nested bars the innermost is shown. If standard error is
    neither a terminal nor a notebook, nothing is shown, or with `lines` a line every two seconds.

    Parameters
    ----------
    label : str
        Name of the run.
    quiet : bool, default False
        Show nothing.
    lines : bool, default False
        Print a line every two seconds if there is no terminal.
    """

    def __init__(self, label: str, *, quiet: bool = False, lines: bool = False) -> None:
        self.label = label
        self.shown = not quiet and (sys.stderr.isatty() or (lines and _in_notebook()))
        self._lines = lines and not quiet and not self.shown
        self._next_line = 0.0
        self._live: Any = None
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()  # the timer opens the bar in a thread of its own
        self._began = time.monotonic()
        self._forget()

    def _forget(self) -> None:
        """Reset the reports."""
        self.done = self.total = 0
        self.detail = ""
        self._part = 0.0
        self._first: tuple[float, float] | None = None  # time and position of the run

    def __enter__(self) -> ProgressBar:
        self._began = time.monotonic()
        if self.shown:
            visible = bool(_OPEN) and _OPEN[-1].hide()
            _OPEN.append(self)
            self.appear_later(0.0 if visible else _APPEARS_AFTER)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self in _OPEN:
            _OPEN.remove(self)
        visible = self.hide()
        self._forget()
        if _OPEN:
            _OPEN[-1].appear_later(0.1 if visible else _APPEARS_AFTER)

    def close(self) -> None:
        """Remove the bar and reset the reports."""
        self.hide()
        self._forget()

    def hide(self) -> bool:
        """Hide the bar until the next report; return whether it was visible."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            visible = self._live is not None
            if visible:
                self._live.stop()
                self._live = None
        return visible

    def appear_later(self, seconds: float = _APPEARS_AFTER) -> None:
        """Show the bar after a delay, unless it is hidden before."""
        with self._lock:
            if self._timer is None and self._live is None:
                self._timer = threading.Timer(seconds, self._appear)
                self._timer.daemon = True
                self._timer.start()

    def relabel(self, label: str) -> ProgressBar:
        """Start a new run with another label; it may compile for a long time before its first
        report.
        """
        self.close()
        self.label = label
        self._began = time.monotonic()
        if self in _OPEN:
            self.appear_later()
        return self

    def part_done(self, part: float) -> None:
        """Report the fraction, from 0 to 1, of the current iteration that is done."""
        self._part = part

    def __call__(
        self, done: int, total: int, *, residual: float | None, objective: float | None
    ) -> None:
        """Show the progress of a run."""
        if not (self.shown or self._lines):
            return
        if done < self.done or total != self.total:
            self._first = None  # another run
        if done != self.done:
            self._part = 0.0
        self.done, self.total = done, total
        self.detail = "  ".join(
            f"{name} {value:.6g}"
            for name, value in (("residual", residual), ("objective", objective))
            if value is not None
        )
        self.seconds_left()
        self.refresh()

    def refresh(self) -> None:
        """Show the current state: open the bar, or print a line if one is due."""
        if self._lines:
            if time.monotonic() >= self._next_line:
                self._next_line = time.monotonic() + _LINES_EVERY
                words = [self.label, *(part for part in self.texts() if part)]
                print(f"{words[0]}: {'  '.join(words[1:])}", file=sys.stderr)
        elif self._live is None and self.shown:
            self._open()

    def seconds_left(self) -> float | None:
        """Return an upper estimate of the remaining seconds from the speed so far, if known."""
        place, now = self.done + self._part, time.monotonic()
        if self._first is None:
            self._first = now, place
        began, first = self._first
        if not self.total or place <= first or now - began < _APPEARS_AFTER:
            return None
        return (now - began) * (self.total - place) / (place - first)

    @property
    def begun(self) -> bool:
        """Whether part of the first iteration is done."""
        return self.done + self._part > 0

    def texts(self) -> list[str]:
        """Return the phase with the position in it, the times, and the reported values."""
        place = f"{self.done}/{self.total}" if self.total and self.begun else str(self.done or "")
        left = self.seconds_left() if self.total else None
        taken = minutes(time.monotonic() - self._began)
        times = taken if left is None else f"{taken}, up to {minutes(left)} left"
        return [f"{current_phase()} {place}".strip(), times, self.detail]

    def _appear(self) -> None:
        """Show the bar, unless it was hidden while its timer waited for the lock."""
        with self._lock:
            if threading.current_thread() is self._timer:
                self._open()

    def _open(self) -> None:
        """Show the bar."""
        with self._lock:
            self._timer = None
            if self._live is None and (not _OPEN or _OPEN[-1] is self):
                self._live = _rich_line(self)
                self._live.start(refresh=True)


class CommandBar(ProgressBar):
    """The bar of a whole command, which shows the phase while no run within it reports."""

    def texts(self) -> list[str]:
        """Return the phase and the time since the command began."""
        return [current_phase() or "working", minutes(time.monotonic() - self._began), ""]


def hide_bars() -> None:
    """Hide all bars for now, so that something can be printed."""
    if _OPEN:
        _OPEN[-1].hide()
        _OPEN[-1].appear_later()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Context manager that names the phase of a run; bars show the innermost name.

    Parameters
    ----------
    name : str
        A few words, such as "start by ICA".

    >>> with phase("reading"), phase("sorting"):
    ...     current_phase()
    'sorting'
    """
    _PHASES.append(name)
    try:
        yield
    finally:
        _PHASES.remove(name)


def current_phase() -> str:
    """Return the innermost phase, or compiling while loops or JAX programs are compiled."""
    compiling = sys.modules.get(
        "kikuchi.core.compiling"
    )  # imports NumPy; commands start without it
    if compiling is not None and compiling.COMPILING.busy:
        return "compiling (once)"
    return _PHASES[-1] if _PHASES else ""


def part_done(part: float) -> None:
    """Report to the visible bar, if any, the fraction of the current iteration that is done.

    Parameters
    ----------
    part : float
        From 0 to 1.

    >>> part_done(0.5)
    """
    if _OPEN:
        _OPEN[-1].part_done(part)


def minutes(seconds: float) -> str:
    """Return a duration as shown in a bar.

    >>> minutes(7.2), minutes(125), minutes(7322)
    ('0:07', '2:05', '2:02:02')
    """
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def _in_notebook() -> bool:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _rich_line(bar: ProgressBar) -> Any:
    """Return a one-line display that is redrawn a few times per second."""
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar as Drawn
    from rich.table import Table
    from rich.text import Text

    label = bar.label if len(bar.label) <= _LABEL else bar.label[: _LABEL - 1] + "…"
    lit = sys.stderr.isatty()

    def line() -> Table:
        row = Table.grid(padding=(0, 2))
        cells: list[Any] = [Text(label)] if label else []
        if bar.total and bar.begun:
            cells.append(Drawn(total=bar.total, completed=bar.done + bar._part, width=_BAR))
        cells += [Text(part) for part in bar.texts() if part]
        for _ in cells:
            row.add_column(no_wrap=True, overflow="ellipsis")
        row.add_row(*cells)
        return row

    console = Console(stderr=True)
    # results go to standard output: rich would redirect them to the console of the bar
    return Live(get_renderable=line, console=console, transient=True, refresh_per_second=4,
                redirect_stdout=False, redirect_stderr=lit)  # fmt: skip
