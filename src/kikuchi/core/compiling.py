"""How long this process has compiled loops, so that no clock counts it and the user is told."""

from __future__ import annotations

import time
from collections.abc import Callable

from kikuchi.core.log import logger

_LOG = logger("compiling")
_SAID_AFTER = 0.3  # seconds of compiling before the user is told


class CompilingTime:
    """The seconds that compiling has taken so far, nested compilations counted once.

    `tell`, where there is one, is called once, as soon as that is worth telling; `told` says that
    it was.

    >>> taken = CompilingTime()
    >>> taken.begin(); taken.begin(); taken.end(); taken.end()
    >>> 0.0 < taken.seconds < 1.0
    True
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.tell: Callable[[], None] | None = None
        self.told = False
        self._depth = 0
        self._began = 0.0

    def begin(self) -> None:
        """A compilation begins, perhaps within another."""
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def end(self) -> None:
        """The compilation that began last ends."""
        self._depth -= 1
        current = time.perf_counter() - self._began
        tell = self.tell
        if tell is not None and not self.told and self.seconds + current > _SAID_AFTER:
            self.told = True
            tell()
        if self._depth == 0:
            self.seconds += current
            _LOG.info("compiled a loop in %.2f s; %.1f s so far", current, self.seconds)


COMPILING = CompilingTime()
"""Of this process; `core.compiled` keeps it."""
