"""How `auto` spends its time: python -m benchmarks.auto [--tree FOLDER] [--seconds 1 3 10 30].

Every model that has an exact answer is answered by `auto` with each of the times and 4 GB. Printed
are the count of exact answers, the mean error of marginals, and the part of the time that was left
unspent by answers that were not exact. Seconds are those of the processor, also for the clock of
the budget, so that other work on the machine does not count. `--tree` runs another checkout
instead, on the same models, for a comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import kikuchi as kk
from benchmarks.models import detection, diagnosis, linkage

HERE = Path(__file__).resolve().parents[1]
REFERENCE = HERE.parent / "shared" / "reference" / "uai2014"
MEMORY = 4_000_000_000
EXACT = kk.Budget(seconds=240, bytes=10_000_000_000)
Model = tuple[str, Callable[[], tuple[kk.FactorGraph, dict[int, int]]]]


def models() -> Iterator[Model]:
    """Drawn models of several kinds and sizes, and those of the 2014 competition if at hand."""
    kinds = (
        ("grid", partial(kk.grid, coupling=1.0), ((17, 17), (20, 20), (22, 22), (24, 24))),
        ("linkage", linkage, ((40, 4, 3), (50, 5, 2), (50, 6, 2), (60, 6, 2))),
        (
            "detection",
            detection,
            (
                (60, 21, 2.2),
                (40, 21, 2.6),
                (80, 8, 2.8),
                (50, 12, 3.0),
                (60, 21, 2.4),
                (60, 16, 2.7),
            ),
        ),
        ("diagnosis", diagnosis, ((60, 40, 4), (100, 60, 3), (150, 80, 3), (80, 40, 5))),
    )
    for kind, make, shapes in kinds:
        for seed, shape in enumerate(shapes):
            yield f"{kind} {shape}", lambda m=make, a=shape, s=seed: (m(*a, seed=s), {})
    for file in sorted(REFERENCE.glob("*.uai")):
        yield file.stem, lambda f=file: _read(f)


def _read(file: Path) -> tuple[kk.FactorGraph, dict[int, int]]:
    graph = kk.read(file)
    return graph, kk.read_evidence(f"{file}.evid", graph)


def answer(name: str, make: Callable, folder: Path) -> np.ndarray | None:
    """The exact marginals, one after the other, kept in a folder; None where they take too long."""
    file = folder / f"{name.replace(' ', '-')}.npy"
    if not file.exists():
        graph, evidence = make()
        try:
            marginals = kk.infer(graph, "jt", evidence=evidence, budget=EXACT).flat_marginals
        except kk.KikuchiError:
            marginals = np.zeros(0)
        np.save(file, marginals)
    kept = np.load(file)
    return kept if kept.size else None


def measure(seconds: list[float], folder: Path) -> list[dict[str, object]]:
    """One row for each model and time: what was chosen, its error, what it took."""
    from kikuchi.core import budget as core_budget

    core_budget.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    kk.infer(kk.grid(12, 12, seed=0), "auto:exact=false", budget=kk.Budget(seconds=20))
    rows: list[dict[str, object]] = []
    for name, make in models():
        exact = answer(name, make, folder)
        if exact is None:
            continue
        graph, evidence = make()
        for limit in seconds:
            begin = time.process_time()
            budget = kk.Budget(seconds=limit, bytes=MEMORY)
            try:
                beliefs = kk.infer(graph, "auto", evidence=evidence, budget=budget)
                error = np.abs(beliefs.flat_marginals - exact)
                told: dict[str, object] = {
                    "chosen": str(beliefs.diagnostics["chosen"]),
                    "mean": float(error.mean()),
                    "largest": float(error.max()),
                }
            except kk.KikuchiError as problem:
                told = {"chosen": f"error: {problem}", "mean": 0.5, "largest": 1.0}
            taken = time.process_time() - begin
            rows.append({"model": name, "seconds": limit, "taken": taken, **told})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def table(rows: list[dict]) -> str:
    lines = ["| seconds | models | exact | mean error | largest error, mean | unspent | overrun |"]
    lines.append("|---:|" * 1 + "---:|" * 6)
    for limit in sorted({row["seconds"] for row in rows}):
        some = [row for row in rows if row["seconds"] == limit]
        inexact = [row for row in some if row["largest"] > 1e-6]
        unspent = np.mean([max(1 - row["taken"] / limit, 0) for row in inexact] or [0.0])
        cells = [
            f"{limit:g}",
            f"{len(some)}",
            f"{len(some) - len(inexact)}",
            f"{np.mean([row['mean'] for row in some]):.5f}",
            f"{np.mean([row['largest'] for row in some]):.4f}",
            f"{unspent:.0%}",
            f"{max(row['taken'] - limit for row in some):.2f} s",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, help="another checkout to measure")
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 3.0, 10.0, 30.0])
    parser.add_argument("--answers", type=Path, required=True, help="folder for exact marginals")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    options.answers.mkdir(parents=True, exist_ok=True)
    if options.tree is not None:
        paths = os.pathsep.join((str(options.tree.resolve() / "src"), str(HERE)))
        arguments = [a for a in sys.argv[1:] if a not in ("--tree", str(options.tree))]
        command = [sys.executable, "-m", "benchmarks.auto", *arguments]
        sys.exit(
            subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=False).returncode
        )
    rows = measure(options.seconds, options.answers)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
