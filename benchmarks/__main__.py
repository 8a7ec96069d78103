"""Run the benchmarks: python -m benchmarks [bp exact others] [--json FILE] [--markdown FILE].

`python -m benchmarks defaults` compares estimators as constructed; see `benchmarks.defaults`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is imported: one thread everywhere
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

from benchmarks import (  # noqa: E402
    bayesnn,
    belief_propagation,
    beliefnets,
    boltzmann,
    bounds,
    compiling,
    energy,
    exact,
    first_contact,
    flows,
    ica,
    learning,
    neural,
    others,
    pseudo,
    regions,
    scaling,
    temporal,
)
from benchmarks.common import Row  # noqa: E402
from benchmarks.defaults import command as defaults  # noqa: E402

GROUPS = {
    "bp": belief_propagation.rows,
    "exact": exact.rows,
    "regions": regions.rows,
    "bounds": bounds.rows,
    "learning": learning.rows,
    "others": others.rows,
    "scaling": scaling.rows,
    "pseudo": pseudo.rows,
    "boltzmann": boltzmann.rows,
    "ica": ica.rows,
    "energy": energy.rows,
    "temporal": temporal.rows,
    "beliefnets": beliefnets.rows,
    "neural": neural.rows,
    "compiling": compiling.rows,
    "first_contact": first_contact.rows,
    "flows": flows.rows,
    "bayesnn": bayesnn.rows,
}


def run(groups: list[str]) -> Iterator[Row]:
    for name in groups:
        yield from GROUPS[name]()


def cells(row: Row) -> list[str]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} x {row.baseline_name}"
    met = {None: "", True: "yes", False: "no"}[row.met]
    return [row.what, f"{row.ours:.3g} {row.unit}", ratio, row.target, met, row.note]


HEAD = ["what", "measured", "ratio", "target", "met", "note"]


def markdown(rows: list[Row]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    if sys.argv[1:2] == ["defaults"]:
        defaults.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rows = []
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"there is no group {', '.join(unknown)}; known: {', '.join(GROUPS)}")
    for row in run(options.groups or list(GROUPS)):
        rows.append(row)
        print("  ".join(filter(None, cells(row))), flush=True)
    if options.json:
        machine = platform.processor() or platform.machine()
        data = {"machine": machine, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(data, indent=1))
    if options.markdown:
        options.markdown.write_text(markdown(rows))
    missed = [row.what for row in rows if row.met is False]
    print(
        f"{len(rows)} figures, {len(missed)} targets missed" + "".join(f"\n  {m}" for m in missed)
    )


if __name__ == "__main__":
    main()
