"""Ctrl-C around work that must not be cut anywhere: remembered, kept back, or left to a safe point.

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
    """What Python calls on Ctrl-C; None in threads, and where it is ignored."""
    if threading.current_thread() is not threading.main_thread():
        return None
    handler = signal.getsignal(signal.SIGINT)
    return handler if callable(handler) else None


def interrupt(number: int, frame: FrameType | None) -> None:
    """A handler of Ctrl-C: `KeyboardInterrupt`, except where that would be lost; then it is
    repeated soon.

    Numba's compiled code builds its results with a few functions in Python and does not look
    whether they failed: an interrupt there becomes a SystemError or a crash. NumPy's comparison of
    records takes any error of such a function for a lack of a common type. Whatever is raised in
    `unraisable`, which repeats interrupts, or in what JAX does on each garbage collection, is
    dropped by Python.
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
    """What Python does with an error that it cannot pass on. Ctrl-C is repeated instead; once it
    has come, a destructor of an object that it left half made (compilers have such) says nothing.
    """
    if issubclass(error.exc_type, KeyboardInterrupt):
        repeat_interrupt()
    elif not (interrupted.is_set() and _is_half_made(error)):
        sys.__unraisablehook__(error)


def _is_half_made(error: Any) -> bool:
    """Whether a destructor missed an attribute that an interrupted constructor would have set."""
    name = getattr(error.object, "__name__", "")
    return issubclass(error.exc_type, AttributeError) and name == "__del__"


def repeat_interrupt() -> None:
    """Press Ctrl-C again shortly after it came where nothing can be raised."""
    again = threading.Timer(_SHORTLY, _press)
    again.daemon = True
    again.start()


def _press() -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # wakes it if it waits for something
    else:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def safe_interrupts() -> Iterator[None]:
    """A block, or a decorated function, in which Ctrl-C cannot break compiled code."""
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
    """Remember Ctrl-C even if whoever is running catches it."""
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
    """Processes and threads started inside the block never see Ctrl-C, as they inherit that it is
    blocked; this process acts on it when the block ends. Ignoring it here would lose it.
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
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # lets a waiting one through
        signal.signal(signal.SIGINT, before)
    if seen.is_set():
        before(signal.SIGINT, None)


def _block_interrupts() -> set[int] | None:
    """Block Ctrl-C in this thread; answers what was blocked before, None where there is no mask."""
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})}


class DeferredInterrupt:
    """Ctrl-C that waits for the end of an update; a second one does not wait.

    Within `deferred()` the first Ctrl-C only sets `pending`; `check`, where the state is whole,
    acts on it, and so does the end of the block: none is lost.
    """

    def __init__(self) -> None:
        self.pending = False
        self._before: Handler | None = None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A block in which the first Ctrl-C waits for `check`."""
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
        """Do what Ctrl-C does, if it came in the meantime."""
        if self.pending and self._before is not None:
            self.pending = False
            self._before(signal.SIGINT, None)
