"""On-disk cache, timing and announcement of the programs that JAX compiles for the package.

JAX compiles a program again in every process unless it has a cache folder. `keeping` sets one for
the package only: programs that the user compiles elsewhere are not affected, and a folder that the
user has set stays in use.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from kikuchi.core.cache_folder import cache_home, owned_folder
from kikuchi.core.compiling import COMPILING, PROGRAMS_NOTICE, SAID_AFTER

_FOLDER = "jax_compilation_cache_dir"
_LEAST_SECONDS = "jax_persistent_cache_min_compile_time_secs"
_BEGINS = "/jax/compilation_cache/compile_requests_use_cache"
_HIT = "/jax/compilation_cache/cache_hits"
_ENDS = "/jax/core/compile/backend_compile_duration"

P = ParamSpec("P")
R = TypeVar("R")
_lock = threading.Lock()
_users = 0  # of the folder, in all threads
_before: dict[str, Any] = {}


@contextmanager
def keeping() -> Iterator[None]:
    """Context manager that caches JAX programs on disk and uses those already cached.

    It does nothing in a process that has not imported JAX, and does not replace a folder that the
    user has set by `JAX_COMPILATION_CACHE_DIR` or `jax.config`.

    >>> with keeping():
    ...     pass
    """
    if "jax" not in sys.modules:
        yield
        return
    _listen()
    _enter()
    try:
        yield
    finally:
        _leave()


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function within `keeping`."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with keeping():
            return function(*args, **kwargs)

    return run


def _enter() -> None:
    global _users
    import jax

    with _lock:
        _users += 1
        if _users > 1 or getattr(jax.config, _FOLDER) is not None:
            return
        folder = owned_folder(cache_home() / "jax")
        if folder is None:
            return
        wanted = {_FOLDER: str(folder), _LEAST_SECONDS: 0.0}
        _before.update({name: getattr(jax.config, name) for name in wanted})
        _set(wanted)


def _leave() -> None:
    global _users
    from jax.experimental.compilation_cache import compilation_cache

    with _lock:
        _users -= 1
        if _users:
            return
        COMPILING.in_program = False  # also if compiling has failed
        if not _before:
            return
        _set(_before)
        _before.clear()
        compilation_cache.reset_cache()  # JAX would continue to use the folder that is open


def _set(options: dict[str, Any]) -> None:
    import jax

    config: Any = jax.config  # its methods have no types
    for name, value in options.items():
        config.update(name, value)


# ---------------------------------------------------------------------- how long it takes


class _ProgramListener:
    """Listener that counts and announces the seconds of compilation within `keeping`."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._loaded = False

    def begins_or_hit(self, event: str, **_: Any) -> None:
        if not _users:
            return
        if event == _BEGINS:
            self._stop()
            self._loaded = False
            COMPILING.in_program = True
            rest = max(SAID_AFTER - COMPILING.compiled, 0.0)
            self._timer = threading.Timer(rest, COMPILING.say, [PROGRAMS_NOTICE])
            self._timer.daemon = True
            self._timer.start()
        elif event == _HIT:
            self._loaded = True

    def ends(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == _ENDS and _users:
            self._stop()
            COMPILING.in_program = False
            COMPILING.add(duration_secs, loaded=self._loaded)
            self._loaded = False

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@functools.cache
def _listen() -> None:
    from jax import monitoring

    watch = _ProgramListener()
    monitoring.register_event_listener(watch.begins_or_hit)
    monitoring.register_event_duration_secs_listener(watch.ends)
