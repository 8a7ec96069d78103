"""Gibbs sampling, reading files, and the start of the command line."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kikuchi as kk
from benchmarks.common import Row, cpu_seconds, in_fresh_process, reference_grid


def rows() -> Iterator[Row]:
    yield gibbs()
    yield from reading()
    yield from start_up()


def gibbs() -> Row:
    """A whole run, with start, recording and diagnostics, divided by the spins it drew.

    Two lengths are not subtracted: the longer run records fewer of its sweeps.
    """
    graph = kk.grid(300, 300, seed=0, coupling=0.3, field=0.3)
    method = kk.methods.Gibbs(chains=4, sweeps=1000, burn_in=100, seed=0)
    kk.methods.Gibbs(chains=4, sweeps=2, burn_in=1).run(graph)
    whole = cpu_seconds(lambda: method.run(graph), 3) / (4 * 1100 * graph.n_variables)
    return Row(
        "Gibbs, 300x300 grid, 4 chains, 1100 sweeps, all in, per spin",
        whole * 1e9,
        "ns",
        target="<= 12 ns",
        met=whole <= 12e-9,
    )


READ = """
import time
import kikuchi as kk
begin = time.process_time()
kk.read(PATH)
result["first"] = time.process_time() - begin
begin = time.process_time()
kk.read(PATH)
result["seconds"] = time.process_time() - begin
"""


def reading() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grid.uai"
        graph = kk.grid(1000, 1000, seed=0)
        seconds = cpu_seconds(lambda: kk.write(graph, path), 1)
        megabytes = path.stat().st_size / 1e6
        yield Row("write a 1000x1000 grid as .uai", megabytes / seconds, "MB/s")
        found = in_fresh_process(READ.replace("PATH", repr(str(path))))
        speed = megabytes / found["seconds"]
        yield Row(
            f"read it ({megabytes:.0f} MB)",
            speed,
            "MB/s",
            target=">= 50 MB/s",
            met=speed >= 50,
            note=f"peak {found['peak_mb']:.0f} MB",
        )


def _child_cpu(arguments: list[str]) -> float:
    """Least CPU time (user and system) of a command over a few runs."""
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(arguments, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def start_up() -> Iterator[Row]:
    command = str(Path(sys.executable).parent / "kikuchi")
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "g10.uai")
        kk.write(reference_grid(10, 1.0), model)
        cases = [
            (["--help"], 0.4),
            (["infer", model, "--method", "bp"], 1.2),
        ]
        for arguments, target in cases:
            seconds = _child_cpu([command, *arguments])
            shown = " ".join(a if a != model else "g10.uai" for a in arguments)
            yield Row(
                f"kikuchi {shown}", seconds, "s", target=f"<= {target} s", met=seconds <= target
            )
