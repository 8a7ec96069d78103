"""Whether loops are compiled, and how long that has taken: no clock counts it, the user is told."""

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
SAID_AFTER = 1.0  # seconds of compiling before the user is told
NOTICE = (
    "kikuchi: compiling loops (once: they are kept on disk), mostly for 5 to 40 seconds. "
    "Time limits do not count it. `kikuchi warm-up` compiles all of them beforehand."
)
AGAIN_NOTICE = "kikuchi: compiling further loops (once), mostly for 2 to 20 seconds."
PROGRAMS_NOTICE = (
    "kikuchi: compiling JAX programs (once for data of this shape: they are kept on disk), mostly "
    "for 2 to 15 seconds. Time limits do not count it."
)


def _print_notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


_interpreted: ContextVar[bool | None] = ContextVar("interpreted", default=None)
Patient = Literal["never", "planners", "all"]
_patient: ContextVar[Patient] = ContextVar("patient", default="planners")


@contextmanager
def interpreted(wanted: bool = True) -> Iterator[None]:
    """Decide for everything within whether loops run as plain Python, without compiling anything.

    For work so small that compiling, or even loading what was compiled, would take far longer. The
    outermost decision holds: what is small within large work runs compiled, as the rest does.

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
    """Compile every loop that is called within, also one that small work would run as Python.

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
    """Run loops within as plain Python as long as they are not on disk and `PATIENCE` lasts.

    For work that takes some milliseconds of plain Python: less than loading a loop, and far less
    than compiling it, but more than running it. An outer decision holds.

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
    """Whether a loop that is not on disk would be compiled at present, whatever its arguments.

    >>> compiles_when_needed()
    True
    """
    return not is_interpreted() and _patient.get() != "all"


def is_interpreted() -> bool:
    """Whether loops run as plain Python at present.

    >>> is_interpreted()
    False
    """
    return bool(_interpreted.get())


class Patience:
    """The seconds that loops may run as plain Python in this process before they are compiled.

    A loop whose results do not depend on how it is run, such as one that counts and sorts, runs as
    plain Python on small arguments as long as it is not on disk. Once these runs have taken `limit`
    seconds together, compiling pays. At most twice the least possible time is spent this way.

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
        """Whether a loop may run on these arguments, arrays of at most so many entries; within
        `patient` any arguments will do.
        """
        how = _patient.get()
        if how == "never" or self.spent >= self.limit:
            return False
        return how == "all" or _entries(arguments) <= entries

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run as plain Python within, and count the seconds."""
        begin = time.thread_time()
        token = _interpreted.set(True)
        try:
            with np.errstate(all="ignore"):
                yield
        finally:
            _interpreted.reset(token)
            self.spent += time.thread_time() - begin


def _entries(value: Any) -> int:
    """Entries of all arrays among some arguments."""
    if isinstance(value, tuple):
        return sum(map(_entries, value))
    return value.size if isinstance(value, np.ndarray) else 0


PATIENCE = Patience(limit=4.0)
"""Of this process; `core.compiled` uses it."""


class CompilingTime:
    """The seconds that compiling and loading have taken so far, nested ones counted once.

    `tell` is called with a line of text, when compiling has taken a second, and prints it to
    standard error; None for silence. `told` says that it was called; it is called once more after
    `renew`. Loading loops from disk is counted without a word: a quarter of a second where a
    process runs its first loop.

    >>> taken = CompilingTime()
    >>> taken.begin(); taken.begin(); taken.end(); taken.end()
    >>> 0.0 < taken.seconds < 1.0
    True
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.loading = 0.0  # the part of it that went into loading
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
        """A compilation begins, perhaps within another."""
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def end(self, *, loaded: bool = False) -> None:
        """The compilation that began last ends; `loaded`: the loop was found on disk."""
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
        """Count a program that was compiled elsewhere, or loaded."""
        self.seconds += seconds
        self.loading += seconds if loaded else 0.0
        self.programs += not loaded

    def say(self, text: str) -> None:
        """Tell the user, once since `renew`."""
        if self.tell is not None and not self._said:
            self.told = self._said = True
            self.tell(text)

    def renew(self) -> None:
        """The user's program calls another function: it has perhaps printed since the last line."""
        if self._depth == 0:
            self._said, self._renewed_at = False, self.compiled

    @property
    def busy(self) -> bool:
        """Whether something is being compiled or loaded at present."""
        return self._depth > 0 or self.in_program

    @property
    def compiled(self) -> float:
        """The seconds without those of loading."""
        return self.seconds - self.loading


COMPILING = CompilingTime()
"""Of this process; `core.compiled` keeps it."""
