"""What tests and examples in docstrings need wherever they are run: Ctrl-C, speed, no hangs."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

SECONDS, SLOW_SECONDS = 300.0, 3600.0


def xla_flags(jaxlib: str) -> str:
    """XLA at its quickest to compile. It ends a process whose flags it does not know."""
    flags = "--xla_backend_optimization_level=0"
    major, minor = map(int, jaxlib.split(".")[:2])
    return f"{flags} --xla_cpu_use_fusion_emitters=false" if (major, minor) < (0, 11) else flags


# Most tests run a compiled program a few times only, and four fifths of their time would go into
# optimising it. Processes that tests start inherit this.
with suppress(PackageNotFoundError):
    os.environ.setdefault("XLA_FLAGS", xla_flags(version("jaxlib")))

# Compilers make many objects that live, and the search for cycles among them is a seventh of their
# time at the usual thresholds.
gc.set_threshold(50_000, 20, 20)

# A shell without job control starts programs in the background with Ctrl-C ignored, and children
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Keep standard error, which tests capture, for the stacks of hangs."""
    config.stash[_TERMINAL] = os.dup(sys.__stderr__.fileno())


def pytest_collection_finish() -> None:
    """Leave modules and tests, which stay, out of every later search for cycles."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process, with the stack of every thread, if a test takes too long.

    A worker of pytest-xdist that ends is replaced, and the test counts as failed.
    """
    limit = SLOW_SECONDS if item.get_closest_marker("slow") else SECONDS
    own = item.get_closest_marker("seconds")
    limit = own.args[0] if own else limit
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[_TERMINAL])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


_TERMINAL: pytest.StashKey[int] = pytest.StashKey()
_MAPS = Path("/proc/self/maps")
_MOST_MAPS = 30_000  # Linux allows 65,530 in a process, and XLA ends it beyond them


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last test of a module, forget JAX programs if they fill the memory map."""
    if "jax" not in sys.modules or (nextitem is not None and nextitem.path == item.path):
        return
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MOST_MAPS:
        sys.modules["jax"].clear_caches()
        gc.collect()
