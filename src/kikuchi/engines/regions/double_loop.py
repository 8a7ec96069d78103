"""The double loop over regions, which always converges, and how long its inner loop is.

Reference: LIU-D7, TEH-M27.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array, offsets_of
from kikuchi.engines.loops.state import State
from kikuchi.engines.regions.engine import SMALLER, RegionBeliefs
from kikuchi.engines.regions.kernels import regions as kernels

_PATIENCE = 100  # outer steps without a smaller residual before the inner loop is made longer
_PATIENCE_DIVERGING = 10  # outer steps in which a run may get worse before it goes back
_FAST = 0.1  # change of a probability in one outer step
_MOST_INNER = 1000


@dataclass(eq=False)
class LoopState(State):
    """All that changes in a double loop: beliefs, messages, and where the tangent was placed."""

    b: Array
    messages: Array
    old: Array


class DoubleLoop:
    """The convergent minimiser: roots and inner regions, scaled to agreement (kernels.regions).

    The entropies of regions with negative counting numbers are concave; their tangent at the
    present beliefs bounds the free energy from above, and what is left is convex. The inner loop
    lowers the bound by making the roots agree on one inner region after the other; the outer step
    moves the tangent. Each pass of both lowers the region free energy if the inner loop is run out.
    """

    def __init__(self, beliefs: RegionBeliefs) -> None:
        self.beliefs = beliefs
        regions = beliefs.regions
        n_roots = regions.n_roots
        inner = np.arange(n_roots, len(regions), dtype=np.uint64)
        above = regions.above
        links = np.flatnonzero((above.items < n_roots) & (above.owners >= n_roots))
        at = np.bincount(above.owners[links] - n_roots, minlength=len(inner))
        counts = at.astype(np.float64)
        counting = regions.counting[n_roots:]
        sizes = regions.sizes[n_roots:]
        ends = np.concatenate([[0.0], np.cumsum(counts * sizes)])
        rows = counts.max(initial=0.0) + 1.0
        beliefs.budget.require_bytes(
            beliefs.bytes_needed()
            + int(16 * ends[-1] + 32 * regions.sizes.sum() + 8 * rows * beliefs.width),
            f"the messages between {len(regions)} regions",
            SMALLER,
        )
        self.around = kernels.InnerRegions(
            inner,
            offsets_of(at).astype(np.uint64),
            links.astype(np.uint64),
            ends.astype(np.uint64),
            np.maximum(counting, 0.0),
            np.where(counting < 0.0, -counting / np.maximum(counts, 1.0), 0.0),
        )
        self.messages = np.zeros(int(ends[-1]))
        self.work = np.empty((int(counts.max(initial=0)) + 1, beliefs.width))
        self.old = np.empty_like(beliefs.b)
        self.begin()
        self.now = LoopState(beliefs.b, self.messages, self.old)

    def begin(self) -> None:
        """Divide each factor among the roots that hold it; inner regions start uniform."""
        beliefs = self.beliefs
        regions = beliefs.regions
        n_roots = regions.n_roots
        self.share(beliefs.graph.log_tables, beliefs.b)
        beliefs.normalise(beliefs.b, n_roots)
        sizes = regions.sizes[n_roots:]
        beliefs.b[beliefs.offsets[n_roots] :] = np.repeat(1.0 / sizes, sizes.astype(np.int64))
        beliefs.note_start()
        self.messages[:] = 0.0
        self.old[:] = beliefs.b

    def share(self, log_tables: Array, out: Array) -> None:
        """log phi of the roots, each factor divided among those that hold it."""
        beliefs, n_roots = self.beliefs, self.beliefs.regions.n_roots
        held = beliefs.regions.factors.take(np.arange(n_roots)).items
        counts = np.bincount(held, minlength=beliefs.graph.n_factors)
        beliefs.add_potentials(log_tables, 1.0 / np.maximum(counts, 1), n_roots, out)

    def inner_sweep(self) -> float:
        """Make the roots agree on every inner region once."""
        beliefs = self.beliefs
        return float(kernels.scale(beliefs.links, self.around, beliefs.b, self.messages, self.work))

    def moved(self) -> float:
        """Largest change of an inner belief since the tangent was last placed."""
        begin = int(self.beliefs.table_at[self.beliefs.regions.n_roots])
        return float(np.abs(self.beliefs.b[begin:] - self.old[begin:]).max(initial=0.0))

    def outer_step(self) -> None:
        """Move the tangent to the present beliefs."""
        beliefs = self.beliefs
        kernels.relinearise(beliefs.links, self.around, beliefs.b, self.old, self.work)


class InnerLoopController:
    """Chooses the number of inner sweeps: more when the outer loop stalls or diverges.

    An inner loop that is cut short saves much time and nearly always works, but then the free
    energy may rise. If beliefs move faster and faster, while the free energy rises or the regions
    disagree, the run goes back to where they moved least and takes a longer inner loop from there.
    """

    def __init__(self, loop: DoubleLoop, sweeps: int) -> None:
        self.loop = loop
        self.sweeps = sweeps
        self.begin()

    def begin(self) -> None:
        """Forget the steps before."""
        loop = self.loop
        self._smallest_residual = np.inf
        self._steps_without_progress = 0
        self._highest_log_z = -np.inf
        self._diverging_steps = 0
        self._best = loop.now.copy()

    def update(self, residual: float, log_z: float) -> None:
        """Take note of one outer step."""
        self._steps_without_progress += 1
        if residual < self._smallest_residual:
            if residual < 0.5 * self._smallest_residual:
                self._steps_without_progress = 0
            self._smallest_residual, self._highest_log_z = residual, log_z
            self._diverging_steps = 0
            self._best.assign(self.loop.now)
            return
        if self.sweeps >= _MOST_INNER:
            return
        self._diverging_steps = self._diverging_steps + 1 if self._diverging(residual, log_z) else 0
        self._highest_log_z = max(self._highest_log_z, log_z)
        if self._diverging_steps > _PATIENCE_DIVERGING or self._collapsed(residual):
            self._go_back()
        elif self._steps_without_progress > _PATIENCE:
            self.sweeps, self._steps_without_progress = 2 * self.sweeps, 0

    def _diverging(self, residual: float, log_z: float) -> bool:
        if residual < max(2.0 * self._smallest_residual, _FAST):
            return False
        return log_z < self._highest_log_z or self.loop.beliefs.disagreement() > 0.5 * residual

    def _collapsed(self, residual: float) -> bool:
        """Whether beliefs fell to the floor on the way, so that the tables lost the model.

        With the longest inner loop such beliefs are the model's own.
        """
        return residual > _FAST and self.loop.beliefs.collapsed()

    def _go_back(self) -> None:
        self.loop.now.assign(self._best)
        self.sweeps = min(4 * self.sweeps, _MOST_INNER)
        self._diverging_steps = self._steps_without_progress = 0
