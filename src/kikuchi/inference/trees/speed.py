"""How fast this machine propagates: measured once, for each kind of clique, and kept.

Cliques of variables with many states have long inner loops and take a fraction of the time for
each multiply-add that cliques of binary variables take. The figures lie beside the compiled loops,
where those are kept; where that folder cannot be written they are measured once per process.
"""

from __future__ import annotations

import contextlib
import functools
import json
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kikuchi.core.arrays import Ints
from kikuchi.core.budget import Budget
from kikuchi.core.errors import KikuchiError
from kikuchi.core.files import atomic_write
from kikuchi.graphs.generators import grid
from kikuchi.inference.trees.shape import Tree

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.inference.trees.plan import TreePlan

_FEW, _MANY = 2.5, 6.0  # mean numbers of states between the kinds of cliques
_REPEATS = 3


class Speed(NamedTuple):
    """Seconds of a propagation: for a multiply-add in cliques of few, some and many states for
    each variable, for a node of the tree, and for a byte that was not used before.

    >>> NOMINAL.few > NOMINAL.many
    True
    """

    few: float
    some: float
    many: float
    node: float
    byte: float


NOMINAL = Speed(1e-9, 6e-10, 4e-10, 2.5e-6, 5e-10)
"""A usual machine: what plans are compared by, so that they are the same on every machine."""


def clique_kinds(tree: Tree) -> Ints:
    """The kind of each node, 0 to 2, by the geometric mean of its variables' numbers of states."""
    axes = np.maximum(np.diff(tree.clique_offsets), 1)
    mean = np.exp(np.log(tree.clique_size) / axes)
    return np.digitize(mean, (_FEW, _MANY))


@functools.cache
def measured() -> Speed:
    """The speed of this machine."""
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
    from kikuchi.inference.trees.kernels import passes

    folder = passes.execute.stats.cache_path
    if folder is None or not Path(folder).is_dir():
        return None
    return Path(folder) / f"speed-{platform.machine()}-{platform.node()}.json"


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
    each = []
    for side, states in ((12, 2), (6, 4), (4, 11)):
        seconds, plan = _propagation(grid(side, side, states=states))
        each.append(max(seconds - node * plan.found_tree.n_nodes, 1e-6) / plan.operations)
    few, some, many = each
    return Speed(few, some, many, node, NOMINAL.byte)


def _propagation(graph: FactorGraph) -> tuple[float, TreePlan]:
    """Seconds of the processor for one propagation, the best of some, and its plan."""
    from kikuchi.inference.trees.engine import Watch, propagate
    from kikuchi.inference.trees.junction_tree import unconditioned
    from kikuchi.inference.trees.plan import make_plan, variable_targets

    plan = make_plan(unconditioned(graph), "min-fill", None)
    taken = []
    for _ in range(_REPEATS):
        begin = time.process_time()
        propagate(plan, variable_targets, Watch(Budget(bytes=None).start()))
        taken.append(time.process_time() - begin)
    return min(taken), plan
