"""The speed of this machine: measured once, and kept.

The figures lie beside the compiled loops, where those are kept; where that folder cannot be written
they are measured once per process.
"""

from __future__ import annotations

import contextlib
import functools
import json
import platform
import time
from pathlib import Path

import numpy as np

from kikuchi.core.budget import Budget
from kikuchi.core.compiling import compiles_when_needed
from kikuchi.core.errors import KikuchiError
from kikuchi.core.files import atomic_write
from kikuchi.engines.trees.plan import TreePlan, make_plan, unconditioned, variable_targets
from kikuchi.engines.trees.speed import INTERPRETED, NOMINAL, Speed
from kikuchi.engines.trees.tree import Tree
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.generators import grid

_REPEATS = 3
_FIRST_TOUCH = 1.2e-9
"""Seconds for a byte that was not used before: the system has to find and clear its page.

Trees of 0.1 to 1.2 GB took 0.8 to 2.2 ns of a virtual machine, as much as their arithmetic. It is
not measured here: a few free pages are found twenty times faster than those of a large tree.
"""


def measured() -> Speed:
    """The speed of this machine; a usual one where loops are not compiled."""
    return _compiled_speed() if compiles_when_needed() else INTERPRETED


@functools.cache
def _compiled_speed() -> Speed:
    path = _place()
    kept = None if path is None else _read(path)
    if kept is not None:
        return kept
    speed = _measure()
    if path is not None:
        # A folder that cannot be written costs the next process a measurement, nothing else.
        with contextlib.suppress(OSError, KikuchiError), atomic_write(path) as file:
            json.dump(speed._asdict(), file)
    return speed


def _place() -> Path | None:
    """A file in the folder of the compiled loops, named by the machine; None without one."""
    from kikuchi.engines.trees.kernels import passes

    folder = passes.execute.stats.cache_path
    if folder is None or not Path(folder).is_dir():
        return None
    return Path(folder) / f"tree-speed-{platform.machine()}-{platform.node()}.json"


def _read(path: Path) -> Speed | None:
    try:
        found = json.loads(path.read_text())
        speed = Speed(**{name: float(found[name]) for name in Speed._fields})
    except (OSError, ValueError, TypeError, KeyError):
        return None  # not there, or cut short: measured anew
    return speed if all(1e-13 < x < 1.0 for x in speed) else None


def _measure() -> Speed:
    node, _ = _propagation(grid(1, 2000))
    node /= 1999
    ratios = []
    for side, states in ((12, 2), (6, 4), (4, 11)):
        seconds, plan = _propagation(grid(side, side, states=states))
        seconds = max(seconds - node * plan.found_tree.n_nodes, 1e-6)
        ratios.append(seconds / NOMINAL.walks(plan.walk_work))
    slower = float(np.exp(np.mean(np.log(ratios))))
    entry, row, call = (slower * x for x in NOMINAL[:3])
    return Speed(entry, row, call, node, _FIRST_TOUCH)


def _propagation(graph: FactorGraph) -> tuple[float, TreePlan]:
    """Seconds of the processor for one propagation, the best of some, and its plan."""
    plan = make_plan(unconditioned(graph), "min-fill", None)
    taken = []
    for _ in range(_REPEATS):
        begin = time.process_time()
        Tree(plan, Budget(bytes=None).start()).run(variable_targets)
        taken.append(time.process_time() - begin)
    return min(taken), plan
