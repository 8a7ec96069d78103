"""What compiling costs, loop by loop: everything from nothing, in one fresh process.

`kikuchi warm-up` runs the same problems on all cores. A loop that is compiled within another is
counted for itself. `--run` takes only what `make run` needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator

from benchmarks.common import HERE, Row

SHOWN = 12  # loops with a row of their own
RUN = ("jt", "bp", "kikuchi", "mf", "gibbs")

_CODE = """
import json, sys
from kikuchi.cli.commands import warm_up
from kikuchi.core.compiled import measured_loops

tasks = json.loads(sys.argv[1]) or warm_up._tasks()
with measured_loops() as times:
    for task in tasks:
        warm_up._compile(task)
print(json.dumps({"loops": times.seconds, "forms": times.forms}))
"""


def measured(tasks: list[str] | None = None) -> dict[str, dict[str, float]]:
    """CPU seconds and forms by loop, with nothing on disk."""
    with tempfile.TemporaryDirectory(prefix="kikuchi-compile-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", _CODE, json.dumps(tasks or [])],
            check=True,
            capture_output=True,
            text=True,
            cwd=HERE.parent,
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def rows(tasks: list[str] | None = None) -> Iterator[Row]:
    found = measured(tasks)
    loops, forms = Counter(found["loops"]), found["forms"]
    total = sum(loops.values())
    count = sum(forms.values())
    what = "compiling everything" if tasks is None else "compiling what `make run` needs"
    note = f"{len(loops)} loops in {count:.0f} forms; CPU, one process"
    yield Row(what, total, "s", note=note)
    for name, seconds in loops.most_common(SHOWN):
        share = f"{100 * seconds / total:.0f} % of it, {forms[name]:.0f} forms"
        yield Row(f"compiling {name}", seconds, "s", note=share)


if __name__ == "__main__":
    for row in rows([f"method {name}" for name in RUN] if "--run" in sys.argv else None):
        print(f"{row.what:70} {row.ours:7.2f} {row.unit}  {row.note}")
