"""Two versions side by side: python -m benchmarks.compare OTHER_TREE [GROUP ...] [--rounds 3].

Runs the benchmarks of this tree and of another checkout by turns, each group in a process of its
own, and prints for every figure the best of each version and their ratio. Figures that are ratios
to a baseline of their own process are compared as such, so that a busy machine disturbs them least.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
LIMIT = 1.05  # a figure that grew by more is listed as worse
SMALLER_IS_BETTER = {"s", "ms", "us", "ns", "MB", "x", "nats"}


def measure(tree: Path, group: str) -> dict[str, dict[str, object]]:
    """The rows of one group by what they measure, from a fresh process of that tree."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
        command = [sys.executable, "-m", "benchmarks", group, "--json", str(file)]
        subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
        return {row["what"]: row for row in json.loads(file.read_text())["rows"]}


def figure(row: dict[str, object]) -> float:
    """The ratio to the row's own baseline where it has one, the figure itself otherwise."""
    ours, baseline = float(row["ours"]), row["baseline"]  # type: ignore[arg-type]
    return ours / float(baseline) if baseline else ours  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="folder of the other version's checkout")
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    worse = []
    for group in options.groups:
        mine: dict[str, list[float]] = {}
        theirs: dict[str, list[float]] = {}
        units = {}
        for _ in range(options.rounds):
            for tree, into in ((options.other.resolve(), theirs), (HERE, mine)):
                for what, row in measure(tree, group).items():
                    into.setdefault(what, []).append(figure(row))
                    units[what] = row["unit"]
        for what, values in mine.items():
            if what not in theirs:
                print(f"{group}: {what}: only here")
                continue
            smaller = units[what] in SMALLER_IS_BETTER
            best = min if smaller else max
            ours, other = best(values), best(theirs[what])
            ratio = ours / other if other else math.nan
            print(f"{group}: {what}: {ours:.4g} against {other:.4g} {units[what]}: {ratio:.3f}")
            if smaller and ratio > LIMIT:
                worse.append(f"{group}: {what}: {ratio:.3f}")
    print(f"{len(worse)} figures above {LIMIT} of the other version")
    print("\n".join(worse))


if __name__ == "__main__":
    main()
