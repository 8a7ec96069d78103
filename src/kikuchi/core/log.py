"""Records of the standard `logging` module, under names that begin with `kikuchi.`.

Nothing is printed unless a program asks for it: the logger `kikuchi` has a handler that does
nothing, as libraries should. The how-to *Ask other questions* lists the loggers and what they say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

ROOT = "kikuchi"

logging.getLogger(ROOT).addHandler(logging.NullHandler())


def logger(room: str) -> logging.Logger:
    """The logger of a room of the package.

    >>> logger("inference").name
    'kikuchi.inference'
    """
    return logging.getLogger(f"{ROOT}.{room}")


def log_warnings(log: logging.Logger, who: str, warnings: Iterable[str]) -> None:
    """Record what a result warns of, one record for each warning."""
    for warning in warnings:
        log.warning("%s: %s", who, warning)
