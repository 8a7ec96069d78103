"""`njit`: the decorator that compiles all loops of the package, with an on-disk cache."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numba
from numba.core import event
from numba.core.registry import CPUDispatcher
from numba.core.types import IntegerLiteral
from numba.core.types.misc import unliteral

from kikuchi.core.compiling import COMPILING, PATIENCE, compiles_when_needed, is_interpreted
from kikuchi.core.inner_loops import compile_inner, set_environments
from kikuchi.core.log import warn_caller
from kikuchi.core.loop_cache import LoopCache

_WARNED = "KIKUCHI_WARNED_BY"  # the process that has warned, so that its workers do not
_unsaid = [True]


def njit(
    *, cache: bool, plain_up_to: int = 0, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Numba's `njit`, with an on-disk cache that falls back to compiling in memory.

    With `plain_up_to`, a loop that is not cached runs as plain Python on arrays of at most this
    many entries in total, until `PATIENCE` is used up. This is for loops that plan and count, whose
    results do not depend on compilation.

    If no folder is writable, loops are compiled in each process, after one warning. An unreadable
    index on disk, such as one written by a version with other types, is treated as empty.

    A loop that may reorder sums is inlined into every loop that calls it. Otherwise it would be
    optimised once by itself and once within its caller, with different last digits, and a process
    that compiles it would run the first form while processes that load it run the second. A loop
    has only the flags that it declares: Numba would pass `fastmath` and `forceinline` of the loop
    that is compiled first on to all loops that it calls, and cache them so.

    A loop whose name begins with `_` is compiled for other loops only (`core.inner_loops`); called
    from Python it is compiled once more.

    >>> twice = njit(cache=False)(lambda x: 2 * x)
    >>> twice(3)
    6
    """
    relaxed = options.get("fastmath") or ()
    reorders = (relaxed is True or "reassoc" in relaxed) and options.get("inline") != "always"

    def compiled(function: Callable[..., Any]) -> Any:
        inner = function.__name__.startswith("_")
        given = {"fastmath": False, "forceinline": reorders and not inner, "no_cfunc_wrapper": True}
        loop: Any = numba.njit(**given | options)(function)
        if not hasattr(loop, "enable_caching"):  # with NUMBA_DISABLE_JIT
            return loop
        loop.__class__ = Loop
        loop.plain_up_to = plain_up_to
        loop.is_inner = inner
        if cache:
            try:
                loop._cache = LoopCache(function)
            except RuntimeError:  # Numba has no cache folder
                _warn_once()
        return loop

    return compiled


_PLANNED = 15_000  # entries of arrays: a model of some hundred variables

planner = njit(cache=True, error_model="numpy", plain_up_to=_PLANNED)
"""Decorator of loops that plan the work of others. Most models are planned once, in less time than
it takes to compile one of these loops.
"""


def _without_values(args: Any, kws: Any) -> tuple[Any, Any]:
    """Return the argument types of a call from another loop, with integer literals as plain
    integers.

    Numba would compile a loop again for every constant that it is called with.
    """
    return tuple(map(_plain, args)), {name: _plain(kind) for name, kind in kws.items()}


def _plain(kind: Any) -> Any:
    return unliteral(kind) if isinstance(kind, IntegerLiteral) else kind


class Loop(CPUDispatcher):  # type: ignore[misc]
    """A compiled function that runs as plain Python within `interpreted`."""

    plain_up_to: int
    is_inner: bool

    @property
    def keeps_inner(self) -> bool:
        """Whether the form that other loops inline is cached on disk."""
        return isinstance(self._cache, LoopCache)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile this loop for a calling loop, and return Numba's call template."""
        args, kws = _without_values(args, kws)
        if self.is_inner:
            compile_inner(self, tuple(self._compiler.fold_argument_types(args, kws)[1]))
        return super().get_call_template(args, kws)

    def add_overload(self, result: Any) -> None:
        """Add a compiled form, and give it the environments of the loops that it contains."""
        super().add_overload(result)
        if result.metadata is not None:  # compiled here, not loaded
            set_environments(result)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        if is_interpreted():
            return self.py_func(*args, **kwargs)
        if not self.overloads and self._waits(args):
            with PATIENCE.running():
                return self.py_func(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def _waits(self, args: tuple[Any, ...]) -> bool:
        """Whether to run the loop as plain Python for these arguments."""
        if not self.plain_up_to and compiles_when_needed():
            return False
        on_disk = isinstance(self._cache, LoopCache) and self._cache.is_kept()
        return not on_disk and PATIENCE.allows(args, self.plain_up_to)


class _CompilingListener(event.Listener):  # type: ignore[misc]
    """Listener for every compilation; `LoopCache` counts loading from disk."""

    def on_start(self, event: Any) -> None:
        COMPILING.begin()

    def on_end(self, event: Any) -> None:
        COMPILING.end()


event.register("numba:compile", _CompilingListener())


class LoopTimes(event.Listener):  # type: ignore[misc]
    """CPU seconds of each compiled loop, without those of the loops that it calls, and its number
    of forms.

    >>> with measured_loops() as times:
    ...     njit(cache=False)(lambda x: 2 * x)(3)
    6
    >>> list(times.forms.values()), sum(times.seconds.values()) > 0
    ([1], True)
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.forms: Counter[str] = Counter()
        self._open: list[tuple[float, float]] = []  # start, nested seconds

    def on_start(self, event: Any) -> None:
        """Handle the start of a compilation."""
        self._open.append((time.process_time(), 0.0))

    def on_end(self, event: Any) -> None:
        """Handle the end of the innermost compilation."""
        began, within = self._open.pop()
        taken = time.process_time() - began
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__.removeprefix('kikuchi.')}.{function.__name__}"
        self.seconds[name] += taken - within
        self.forms[name] += 1
        if self._open:
            outer_began, outer_within = self._open.pop()
            self._open.append((outer_began, outer_within + taken))


@contextmanager
def measured_loops() -> Iterator[LoopTimes]:
    """Context manager that measures every compilation in its block."""
    times = LoopTimes()
    with event.install_listener("numba:compile", times):
        yield times


def _warn_once() -> None:
    if os.environ.setdefault(_WARNED, str(os.getpid())) == str(os.getpid()) and _unsaid:
        _unsaid.clear()
        warn_caller(
            "compiled loops cannot be cached on disk, so every process compiles them again; set "
            "NUMBA_CACHE_DIR to a writable folder",
        )


def _defer_blas() -> None:
    """Load Numba's array functions without SciPy's linear algebra, a quarter of the start-up.

    When it loads its first compiled loop, Numba imports `scipy.linalg` only to check that it is
    installed. This check is skipped; a loop that uses BLAS still imports it when it is compiled.
    """
    with suppress(
        ImportError, AttributeError
    ):  # another version of Numba: only the time saving is lost
        from numba.np import linalg

        module: Any = linalg
        check = module.ensure_blas
        module.ensure_blas = lambda: None
        try:
            import numba.np.arraymath  # noqa: F401  (runs the check)
        finally:
            module.ensure_blas = check


_defer_blas()
