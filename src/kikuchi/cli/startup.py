"""What runs before any command: an entry that can be interrupted, and a quick start."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from types import FrameType
from typing import Any

from kikuchi.cli.exit_codes import BAD_INPUT, INTERRUPTED, OUTPUT_CLOSED
from kikuchi.cli.streams import last_line, prepare_streams
from kikuchi.core.cache_folder import cache_home, owned_folder
from kikuchi.core.interrupts import deferred_interrupts, interrupt, unraisable
from kikuchi.core.loading import announced


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line, also while it is loading or compiling.

    Loading and compiling may turn the interrupt into an error of any kind, or swallow it: after
    Ctrl-C no error is anything else, and an interrupt that was swallowed is repeated. A full device
    is one line too; a reader that has left is none.
    """
    seen = threading.Event()

    def noted(number: int, frame: FrameType | None) -> None:
        seen.set()
        interrupt(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, noted)
        sys.unraisablehook = partial(unraisable, seen)
    code: Any = 0
    message = None
    try:
        try:
            with deferred_interrupts():  # a stream that is half set up cannot be written to
                prepare_streams()
            _keep_programs()
            from kikuchi.cli.main import app

            with announced():
                app(prog_name="kikuchi")
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
            sys.stdout.flush()
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        if seen.is_set():
            code = INTERRUPTED
        elif isinstance(error, BrokenPipeError):
            code = OUTPUT_CLOSED
        elif isinstance(error, OSError):
            where = "the output" if error.filename is None else error.filename
            code, message = BAD_INPUT, f"cannot read or write {where}: {error.strerror or error}"
        else:
            raise
    last_line("interrupted" if code == INTERRUPTED else message)
    raise SystemExit(code)


def _keep_programs() -> None:
    """Let JAX keep what it compiles for commands of ours, which it would compile in each process.

    Settings of the user's come first. In Python it is for the user's program to decide.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    folder = owned_folder(cache_home() / "jax")
    if folder is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
