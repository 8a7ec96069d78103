"""How fast a machine propagates: what plans are priced by (`measured_speed` measures this one).

The walks over cliques are loops within loops, and short inner loops take several times longer for
each entry than long ones (see `kernels.program.walk_work`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array


class Speed(NamedTuple):
    """Seconds of a propagation: for an entry of a clique that is combined with another table, for a
    row of such entries, for a call of the loops over rows, for a node of the tree, and for a byte
    that was not used before.

    >>> NOMINAL.walks(np.array([100.0, 1.0, 1.0])) < NOMINAL.walks(np.array([100.0, 50.0, 25.0]))
    True
    """

    entry: float
    row: float
    call: float
    node: float
    byte: float

    def walks(self, work: Array) -> float:
        """Seconds of so many entries, rows and calls."""
        return float(work @ np.array(self[:3]))


NOMINAL = Speed(3.5e-10, 1.2e-9, 1.8e-8, 2.5e-6, 5e-10)
"""A usual machine: what plans are compared by, so that they are the same on every machine."""


INTERPRETED = Speed(2e-7, 4e-7, 6e-6, 1e-4, 5e-10)
"""A usual machine where loops run as plain Python."""
