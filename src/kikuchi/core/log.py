"""Records of the standard `logging` module, under names that begin with `kikuchi.`.

Nothing is printed unless a program configures it: the logger `kikuchi` has a `NullHandler`, as
libraries should. The how-to *Ask other questions* lists the loggers and their records.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterable

ROOT = "kikuchi"

logging.getLogger(ROOT).addHandler(logging.NullHandler())


def logger(room: str) -> logging.Logger:
    """Return the logger of a package of the library.

    >>> logger("methods").name
    'kikuchi.methods'
    """
    return logging.getLogger(f"{ROOT}.{room}")


def log_warnings(log: logging.Logger, who: str, texts: Iterable[str]) -> None:
    """Log the warnings of a result, one record for each."""
    for text in texts:
        log.warning("%s: %s", who, text)


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the calling line outside the package.

    >>> with warnings.catch_warnings(record=True) as issued:
    ...     warnings.simplefilter("always")
    ...     warn_caller("the chains have not mixed")
    >>> issued[0].category.__name__, str(issued[0].message)
    ('UserWarning', 'the chains have not mixed')
    """
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module == ROOT or module.startswith(f"{ROOT}.")
