"""Whether loops are compiled, and the time this has taken, which is announced and excluded from
time limits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np

from kikuchi.core.log import logger

_LOG = logger("compiling")
SAID_AFTER = 1.0  # seconds of compiling before the user is notified
NOTICE = (
    "kikuchi: compiling loops (once: they are cached on disk), usually for 5 to 40 seconds, which "
    "time limits do not include. Run `kikuchi warm-up` to compile all of them beforehand."
)
AGAIN_NOTICE = "kikuchi: compiling more loops (once), usually for 2 to 20 seconds."
PROGRAMS_NOTICE = (
    "kikuchi: compiling JAX programs (once for data of this shape: they are cached on disk), "
    "usually for 2 to 15 seconds, which time limits do not include."
)


def _print_notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


_interpreted: ContextVar[bool | None] = ContextVar("interpreted", default=None)
Patient = Literal["never", "planners", "all"]
_patient: ContextVar[Patient] = ContextVar("patient", default="planners")


@contextmanager
def interpreted(wanted: bool = True) -> Iterator[None]:
    """Context manager in which loops run as plain Python, without compilation.

    For work so small that compiling, or even loading compiled loops, would take far longer. The
    outermost context decides: a small part of large work runs compiled, like the rest.

    >>> from kikuchi.core.compiled import njit
    >>> twice = njit(cache=False)(lambda x: 2 * x)
    >>> with interpreted():
    ...     twice("ab"), twice.signatures
    ('abab', [])
    """
    if _interpreted.get() is not None:
        yield
        return
    token = _interpreted.set(wanted)
    try:
        # Compiled loops are silent about overflow and division by zero.
        with np.errstate(all="ignore") if wanted else nullcontext():
            yield
    finally:
        _interpreted.reset(token)


@contextmanager
def everything_compiled() -> Iterator[None]:
    """Context manager in which every loop that is called is compiled, even for small work.

    >>> with everything_compiled(), interpreted():
    ...     is_interpreted()
    False
    """
    decided, patient = _interpreted.set(False), _patient.set("never")
    try:
        yield
    finally:
        _patient.reset(patient)
        _interpreted.reset(decided)


@contextmanager
def patient() -> Iterator[None]:
    """Context manager in which uncached loops run as plain Python until `PATIENCE` is used up.

    For work that takes a few milliseconds in plain Python: less than loading a loop, far less than
    compiling it, but more than running it compiled. An outer context takes precedence.

    >>> with patient():
    ...     is_interpreted(), compiles_when_needed()
    (False, False)
    """
    if _interpreted.get() is not None:
        yield
        return
    decided, before = _interpreted.set(False), _patient.set("all")
    try:
        yield
    finally:
        _patient.reset(before)
        _interpreted.reset(decided)


def compiles_when_needed() -> bool:
    """Return whether an uncached loop would be compiled now, whatever its arguments.

    >>> compiles_when_needed()
    True
    """
    return not is_interpreted() and _patient.get() != "all"


def is_interpreted() -> bool:
    """Return whether loops currently run as plain Python.

    >>> is_interpreted()
    False
    """
    return bool(_interpreted.get())


class Patience:
    """The time that loops may run as plain Python in this process before they are compiled.

    A loop whose results do not depend on compilation, such as one that counts and sorts, runs as
    plain Python on small arguments while it is not cached. Once these runs have taken `limit`
    seconds in total, loops are compiled. The total time is then at most twice the minimum.

    >>> patience = Patience(limit=1.0)
    >>> patience.allows((np.zeros(3), (np.zeros(4), 5)), entries=7)
    True
    >>> patience.allows((np.zeros(3), (np.zeros(4), 5)), entries=6)
    False
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.spent = 0.0

    def allows(self, arguments: tuple[Any, ...], entries: int) -> bool:
        """Return whether a loop may run on these arguments, arrays of at most `entries` entries in
        total; within `patient`, on any arguments.
        """
        how = _patient.get()
        if how == "never" or self.spent >= self.limit:
            return False
        return how == "all" or _entries(arguments) <= entries

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager that runs loops as plain Python and counts the seconds."""
        begin = time.thread_time()
        token = _interpreted.set(True)
        try:
            with np.errstate(all="ignore"):
                yield
        finally:
            _interpreted.reset(token)
            self.spent += time.thread_time() - begin


def _entries(value: Any) -> int:
    """Return the total number of entries of all arrays among the arguments."""
    if isinstance(value, tuple):
        return sum(map(_entries, value))
    return value.size if isinstance(value, np.ndarray) else 0


PATIENCE = Patience(limit=4.0)
"""The instance of this process, used by `core.compiled`."""


class CompilingTime:
    """Seconds spent on compiling and loading so far, with nested compilations counted once.

    `tell` is called with a line of text when compiling has taken a second; the default prints it to
    standard error, and None is silent. `told` is True after this call; `renew` allows one more.
    Loading loops from disk is counted without an announcement: it takes a quarter of a second when
    a process runs its first loop.

    >>> taken = CompilingTime()
    >>> taken.begin(); taken.begin(); taken.end(); taken.end()
    >>> 0.0 < taken.seconds < 1.0
    True
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.loading = 0.0  # the part of it spent on loading
        self.loops = 0  # that were compiled
        self.programs = 0
        self.tell: Callable[[str], None] | None = _print_notice
        self.told = False
        self._said = False  # since `renew`
        self._renewed_at = 0.0  # compiled seconds
        self.in_program = False  # whether JAX is compiling or loading a program
        self._depth = 0
        self._began = 0.0

    def begin(self) -> None:
        """Record the start of a compilation, possibly nested."""
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def end(self, *, loaded: bool = False) -> None:
        """Record the end of the innermost compilation; `loaded` if the loop came from disk."""
        self._depth -= 1
        current = time.perf_counter() - self._began
        if self._depth == 0:
            self.seconds += current
            self.loading += current if loaded else 0.0
            current = 0.0
        if loaded:
            return
        self.loops += 1
        if self.compiled - self._renewed_at + current > SAID_AFTER:
            self.say(AGAIN_NOTICE if self.told else NOTICE)
        if self._depth == 0:
            _LOG.info("compiled loops for %.1f s so far", self.compiled)

    def add(self, seconds: float, *, loaded: bool = False) -> None:
        """Add the time of a program that was compiled elsewhere, or loaded."""
        self.seconds += seconds
        self.loading += seconds if loaded else 0.0
        self.programs += not loaded

    def say(self, text: str) -> None:
        """Notify the user, once since `renew`."""
        if self.tell is not None and not self._said:
            self.told = self._said = True
            self.tell(text)

    def renew(self) -> None:
        """Allow another announcement; called for each public call, since other output may have
        followed the last one.
        """
        if self._depth == 0:
            self._said, self._renewed_at = False, self.compiled

    @property
    def busy(self) -> bool:
        """Whether something is being compiled or loaded now."""
        return self._depth > 0 or self.in_program

    @property
    def compiled(self) -> float:
        """Seconds without those of loading."""
        return self.seconds - self.loading


COMPILING = CompilingTime()
"""The instance of this process, updated by `core.compiled`."""
