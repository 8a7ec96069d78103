"""`njit`: how every loop of the package is compiled, and kept on disk where that is possible."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import FunctionCache

_WARNED = "KIKUCHI_WARNED_BY"  # the process that warned, so that its workers do not
_unsaid = [True]


def njit(*, cache: bool, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Numba's `njit`, with a cache on disk that never stands in the way.

    Where no folder can be written, loops are compiled in each process, after one warning. An index
    on disk that cannot be read, such as that of a version with other types, counts as empty.

    >>> twice = njit(cache=False)(lambda x: 2 * x)
    >>> twice(3)
    6
    """

    def compiled(function: Callable[..., Any]) -> Any:
        loop: Any = numba.njit(**options)(function)
        if cache and hasattr(loop, "enable_caching"):  # not with NUMBA_DISABLE_JIT
            try:
                loop._cache = LoopCache(function)
            except RuntimeError:  # Numba has found no folder
                _warn_once()
        return loop

    return compiled


class LoopCache(FunctionCache):  # type: ignore[misc]
    """The compiled forms of one loop on disk."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """A compiled form; None if there is none that this version can read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever unpickling raises; the loop is compiled anew and kept
            try:
                self.flush()
            except OSError:
                self.disable()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled form; on a full disk the loop runs all the same."""
        try:
            super().save_overload(sig, data)
        except OSError:
            self.disable()


def _warn_once() -> None:
    if os.environ.setdefault(_WARNED, str(os.getpid())) == str(os.getpid()) and _unsaid:
        _unsaid.clear()
        warnings.warn(
            "compiled loops cannot be kept on disk, so that every start compiles them again; set "
            "NUMBA_CACHE_DIR to a folder that can be written",
            stacklevel=4,
        )
