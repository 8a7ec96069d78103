"""Standard output and error of the process, whatever their encoding, full or closed."""

from __future__ import annotations

import codecs
import io
import os
import sys
import warnings
from contextlib import suppress

_PLAIN = {"–": "-", "−": "-", "…": "...", "×": "x", "±": "+-", "²": "^2", "≤": "<=", "≥": ">="}


def prepare_streams() -> None:
    """Closed streams lead nowhere; letters that an encoding lacks are written in plain ones."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:  # never give their place to a file
        pass
    os.close(handle)
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    codecs.register_error("plain", _plain_letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain_letters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or ascii(c)[1:-1] for c in letters), error.end


def last_line(message: str | None) -> None:
    """A last line where one can be written; what cannot be written any more is dropped."""
    if message is not None:
        with suppress(OSError):
            print(f"kikuchi: {message}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
