"""Whether loops are compiled, and how long that has taken: no clock counts it, the user is told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

import numpy as np

from kikuchi.core.log import logger

_LOG = logger("compiling")
_SAID_AFTER = 1.0  # seconds of compiling before the user is told
NOTICE = (
    "kikuchi: compiling loops, mostly for 5 to 40 seconds. It happens once: they are kept on disk. "
    "Time limits do not count it. `kikuchi warm-up` compiles all of them beforehand."
)


def _print_notice() -> None:
    print(NOTICE, file=sys.stderr, flush=True)


_interpreted: ContextVar[bool | None] = ContextVar("interpreted", default=None)


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


def is_interpreted() -> bool:
    """Whether loops run as plain Python at present.

    >>> is_interpreted()
    False
    """
    return bool(_interpreted.get())


class CompilingTime:
    """The seconds that compiling and loading have taken so far, nested ones counted once.

    `tell` is called once, when compiling has taken a second, and prints a line to standard error;
    None for silence. `told` says that it was called. Loading loops from disk is counted without a
    word: a quarter of a second where a process runs its first loop.

    >>> taken = CompilingTime()
    >>> taken.begin(); taken.begin(); taken.end(); taken.end()
    >>> 0.0 < taken.seconds < 1.0
    True
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.loading = 0.0  # the part of it that went into loading
        self.tell: Callable[[], None] | None = _print_notice
        self.told = False
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
        tell = self.tell
        if tell is not None and not self.told and self.compiled + current > _SAID_AFTER:
            self.told = True
            tell()
        if self._depth == 0:
            _LOG.info("compiled loops for %.1f s so far", self.compiled)

    @property
    def busy(self) -> bool:
        """Whether something is being compiled or loaded at present."""
        return self._depth > 0

    @property
    def compiled(self) -> float:
        """The seconds without those of loading."""
        return self.seconds - self.loading


COMPILING = CompilingTime()
"""Of this process; `core.compiled` keeps it."""
