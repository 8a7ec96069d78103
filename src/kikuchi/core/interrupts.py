"""Handling of Ctrl-C around work that must not be interrupted at arbitrary points.

Where Ctrl-C is ignored, as in a program that a shell started in the background, it stays ignored.
Signals reach the main thread only; in others nothing changes.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SHORTLY = 0.002  # seconds
_CALLED_FROM_C = "numba.core.serialize", "numpy._core._internal", "jax._src.lib"

Handler = Callable[[int, FrameType | None], Any]


def current_handler() -> Handler | None:
    """Return the handler of Ctrl-C; None in threads, and where Ctrl-C is ignored."""
    if threading.current_thread() is not threading.main_thread():
        return None
    handler = signal.getsignal(signal.SIGINT)
    return handler if callable(handler) else None


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handler of Ctrl-C: raise `KeyboardInterrupt`, or repeat the signal later where the exception
    would be lost.

    Numba's compiled code builds its results with a few Python functions and does not check whether
    they failed, so an interrupt there becomes a SystemError or a crash. NumPy's comparison of
    records takes any exception of such a function for the lack of a common type. Python drops
    exceptions raised in `unraisable`, which repeats interrupts, and in the callback of JAX on each
    garbage collection.
    """
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        dropped = frame.f_code is unraisable.__code__
        if dropped or module in _CALLED_FROM_C or module.startswith("namedtuple_"):
            repeat_interrupt()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def unraisable(interrupted: threading.Event, error: Any) -> None:
    """Hook for `sys.unraisablehook` that re-delivers Ctrl-C. After an interrupt, errors of
    destructors of half-constructed objects, such as those of compilers, are not reported.
    """
    if issubclass(error.exc_type, KeyboardInterrupt):
        repeat_interrupt()
    elif not (interrupted.is_set() and _is_half_made(error)):
        sys.__unraisablehook__(error)


def _is_half_made(error: Any) -> bool:
    """Return whether a destructor lacks an attribute that an interrupted constructor would have
    set.
    """
    name = getattr(error.object, "__name__", "")
    return issubclass(error.exc_type, AttributeError) and name == "__del__"


def repeat_interrupt() -> None:
    """Send Ctrl-C again shortly after it arrived where no exception can be raised."""
    again = threading.Timer(_SHORTLY, _press)
    again.daemon = True
    again.start()


def _press() -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # wakes the main thread if it is waiting
    else:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def safe_interrupts() -> Iterator[None]:
    """Context manager, or decorator, in which Ctrl-C cannot break compiled code."""
    if current_handler() is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def watched_interrupts() -> Iterator[threading.Event]:
    """Context manager that records Ctrl-C even if the running code catches it."""
    seen = threading.Event()
    before = current_handler()
    if before is None:
        yield seen
        return

    def remember(number: int, frame: FrameType | None) -> None:
        seen.set()
        before(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Context manager in which new processes and threads inherit a mask that blocks Ctrl-C. This
    process handles it when the block ends; ignoring it here would lose it.
    """
    before = current_handler()
    if before is None:
        yield
        return
    seen = threading.Event()
    signal.signal(signal.SIGINT, lambda number, frame: seen.set())
    blocked = _block_interrupts()
    try:
        yield
    finally:
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # delivers a pending signal
        signal.signal(signal.SIGINT, before)
    if seen.is_set():
        before(signal.SIGINT, None)


def _block_interrupts() -> set[int] | None:
    """Block Ctrl-C in this thread; return the previous mask, or None where there is no mask."""
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})}


class DeferredInterrupt:
    """Defers Ctrl-C until the end of an update; a second Ctrl-C is not deferred.

    Within `deferred()` the first Ctrl-C only sets `pending`. `check`, called where the state is
    consistent, handles it, and so does the end of the block.
    """

    def __init__(self) -> None:
        self.pending = False
        self._before: Handler | None = None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Context manager in which the first Ctrl-C is deferred until `check`."""
        before = self._before = current_handler()
        if before is None:
            yield
            return
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.pending and self._before is not None:
            self._before(number, frame)
        self.pending = True

    def check(self) -> None:
        """Handle Ctrl-C if it was pressed in the meantime."""
        if self.pending and self._before is not None:
            self.pending = False
            self._before(signal.SIGINT, None)
