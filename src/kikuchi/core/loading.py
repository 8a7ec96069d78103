"""Notice to the user while large packages are imported, if that takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

SAID_AFTER = 1.5  # seconds
LOADING_NOTICE = "kikuchi: loading {}, usually for 2 to 10 seconds."
LARGE = {"jax": "JAX", "sklearn": "scikit-learn", "pandas": "pandas", "scipy": "SciPy"}
_EVERY = 0.25  # seconds between two checks
_said = [False]


def being_loaded() -> str:
    """Return the names of large packages that are being imported, as a phrase.

    >>> being_loaded()
    ''
    """
    return " and ".join(name for module, name in LARGE.items() if _is_loading(module))


def _is_loading(module: str) -> bool:
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _tell(text: str) -> None:
    compiling = sys.modules.get("kikuchi.core.compiling")
    if compiling is None:
        print(text, file=sys.stderr, flush=True)
    elif compiling.COMPILING.tell is not None:  # otherwise nothing is printed
        compiling.COMPILING.tell(text)


def _watch(ended: Event, after: float) -> None:
    while not ended.wait(after) and not _said[0]:
        if packages := being_loaded():
            _said[0] = True
            _tell(LOADING_NOTICE.format(packages))
        after = _EVERY


def announce(after: float = SAID_AFTER) -> Callable[[], None]:
    """Print once per process which large package is being loaded, if that takes longer than `after`
    seconds; return a function that stops the watch.
    """
    ended = Event()
    Thread(target=_watch, args=(ended, after), daemon=True).start()
    return ended.set


@contextmanager
def announced(after: float = SAID_AFTER) -> Iterator[None]:
    """Context manager that runs its block with `announce`."""
    end = announce(after)
    try:
        yield
    finally:
        end()
