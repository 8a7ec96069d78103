"""Ctrl-C around work that runs elsewhere: remembered, or kept back until workers are started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def watched_interrupts() -> Iterator[threading.Event]:
    """Remember Ctrl-C even if whoever is running catches it; signals reach the main thread only."""
    seen = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def remember(number: int, frame: FrameType | None) -> None:
        seen.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Processes and threads started inside the block never see Ctrl-C, as they inherit that it is
    blocked; this process acts on it when the block ends. Ignoring it here would lose it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.set())
    blocked = _block_interrupts()
    try:
        yield
    finally:
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # lets a waiting one through
        signal.signal(signal.SIGINT, before)
    if seen.is_set():
        raise KeyboardInterrupt


def _block_interrupts() -> set[int] | None:
    """Block Ctrl-C in this thread; answers what was blocked before, None where there is no mask."""
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})}
