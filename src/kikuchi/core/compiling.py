"""How long this process has compiled or loaded loops: no clock counts it, the user is told."""

from __future__ import annotations

import time
from collections.abc import Callable

from kikuchi.core.log import logger

_LOG = logger("compiling")
_SAID_AFTER = 0.3  # seconds of compiling before the user is told


class CompilingTime:
    """The seconds that compiling and loading have taken so far, nested ones counted once.

    `tell`, where there is one, is called once, as soon as compiling is worth telling of; `told`
    says that it was. Loading loops from disk is counted without a word: a quarter of a second
    where a process runs its first loop.

    >>> taken = CompilingTime()
    >>> taken.begin(); taken.begin(); taken.end(); taken.end()
    >>> 0.0 < taken.seconds < 1.0
    True
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.loading = 0.0  # the part of it that went into loading
        self.tell: Callable[[], None] | None = None
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
    def compiled(self) -> float:
        """The seconds without those of loading."""
        return self.seconds - self.loading


COMPILING = CompilingTime()
"""Of this process; `core.compiled` keeps it."""
