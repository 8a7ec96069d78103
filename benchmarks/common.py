"""Timing and rows that all benchmarks share."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


@dataclass
class Row:
    """One measured figure; `ratio` is ours over the baseline of the same run."""

    what: str
    ours: float
    unit: str
    baseline: float | None = None
    baseline_name: str = ""
    target: str = ""
    met: bool | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.baseline is None else self.ours / self.baseline


def cpu_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Least CPU time of several runs: the figure that a busy machine disturbs least."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


@cache
def baseline() -> ctypes.CDLL | None:
    """The hand-written loops, compiled here; None without a C++ compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    library = Path(tempfile.mkdtemp(prefix="kikuchi-bench-")) / "baseline.so"
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", library, HERE / "baseline.cpp"], check=True)
    return ctypes.CDLL(str(library))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def in_fresh_process(code: str) -> dict[str, float]:
    """Run `code` in a new interpreter; it fills `result`. Adds the peak resident megabytes."""
    tail = (
        "\nimport json, resource"
        "\nresult['peak_mb'] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000"
        "\nprint(json.dumps(result))"
    )
    done = subprocess.run(
        [sys.executable, "-c", "result = {}\n" + code + tail],
        check=True,
        capture_output=True,
        text=True,
        cwd=HERE.parent,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def reference_grid(size: int, coupling: float):
    """The models w100, g100, ... of the reference folder: Python's own generator, seed 1."""
    import random

    import kikuchi as kk

    rng = random.Random(1)
    fields = np.array([rng.gauss(0.0, 1.0) for _ in range(size * size)])
    couplings = {}
    for r in range(size):
        for c in range(size):
            i = r * size + c
            if c + 1 < size:
                couplings[i, i + 1] = rng.gauss(0.0, coupling)
            if r + 1 < size:
                couplings[i, i + size] = rng.gauss(0.0, coupling)
    return kk.ising(couplings, fields)
