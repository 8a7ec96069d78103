"""States of positive weight, and boxes of them, in models whose tables have zeros.

Sampling must start at a state of positive weight, and a product distribution has a finite bound
only if no forbidden entry lies in the product of its supports. Both are constraint
problems: states without support in some table are removed until none is left (which changes no
probability), then the rest is searched, guided by a preference, with bounded backtracking.

Reference: HOJ-I9.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.budget import Clock
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.core.numerics import segment_sums
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import GraphArrays, flatten

_ATTEMPTS = 24
_FIRST_BACKTRACKS = 1000
_MOST_ENTRIES = 5e7  # looked at, about, by the search of `require_possible`


class Constraints:
    """The zeros of a graph as constraints; `alive` are the states that propagation leaves.

    >>> from kikuchi import FactorGraph
    >>> from kikuchi.graphs.graph_arrays import flatten
    >>> equal = FactorGraph([2, 2], [((0, 1), np.eye(2)), ((0,), [0, 1])])
    >>> Constraints(flatten(equal)).alive.tolist()
    [False, True, False, True]
    """

    def __init__(self, flat: GraphArrays) -> None:
        from kikuchi.engines.kernels.feasibility import PropagationWorkspace, propagate_all

        self.flat = flat
        n_slots = int(flat.state_offsets[-1])
        zeros = (flat.log_tables == -np.inf).astype(np.float64)
        hard = segment_sums(zeros, flat.table_offsets) > 0
        self.any = bool(hard.any())
        widths = segment_sums(flat.cards[flat.scopes].astype(np.float64), flat.scope_offsets)
        orders = np.diff(flat.scope_offsets)
        self._work = PropagationWorkspace(
            hard=hard.astype(np.uint8),
            slot_variables=np.repeat(np.arange(len(flat.cards), dtype=np.uint32), flat.cards),
            alive=np.ones(n_slots, dtype=np.uint8),
            counts=flat.cards.astype(np.int64),
            trail=np.zeros(n_slots, dtype=np.int64),
            queue=np.zeros(max(1, flat.n_factors), dtype=np.int64),
            queued=np.zeros(flat.n_factors, dtype=np.uint8),
            support=np.zeros(int(widths.max(initial=1)), dtype=np.uint8),
            digits=np.zeros(int(orders.max(initial=1)), dtype=np.int64),
            numbers=np.zeros(3, dtype=np.int64),
        )
        if self.any and not propagate_all(flat, self._work):
            raise _impossible()
        self._alive = self._work.alive.copy()
        self._counts = self._work.counts.copy()
        self._mark = int(self._work.numbers[0])

    @property
    def alive(self) -> Mask:
        """States that may have positive probability, flat as the marginals."""
        return self._alive.astype(bool)

    @property
    def binding(self) -> bool:
        """Whether forbidden entries remain between the live states of several variables."""
        everything = self.box(np.ones(len(self._alive)))
        return everything is None or int(everything.sum()) < int(self._alive.sum())

    def _reset(self) -> None:
        self._work.alive[:] = self._alive
        self._work.counts[:] = self._counts
        self._work.numbers[0] = self._mark

    def box(self, q: Array) -> Mask | None:
        """A set of states for each variable whose product holds no forbidden entry.

        States of large mass `q` are kept first. None if the greedy choice ran into a dead end.
        """
        from kikuchi.engines.kernels.feasibility import thin

        self._reset()
        return self._work.alive.astype(bool) if thin(self.flat, self._work, q) else None

    def find_state(self, preference: Array, rng: np.random.Generator, clock: Clock) -> Ints | None:
        """A state of positive weight near `preference`, or None when the search gave up.

        The first try takes the preferred states, the second the first state of every variable
        (often the resting one), the others random states; each may backtrack further. Raises
        `ImpossibleEvidenceError` when the search proves that there is no such state.
        """
        from kikuchi.engines.kernels.feasibility import (
            FOUND,
            IMPOSSIBLE,
            breadth_first,
            search,
        )

        flat, work = self.flat, self._work
        for attempt in range(_ATTEMPTS):
            if attempt and clock.expired:
                break
            wanted = self._wanted(attempt, preference, rng)
            roots = rng.permutation(len(flat.cards))
            order = breadth_first(flat, work.hard, roots)
            self._reset()
            outcome = search(flat, work, order, wanted, _FIRST_BACKTRACKS << min(attempt // 4, 6))
            if outcome == FOUND:
                slots = np.flatnonzero(work.alive)
                return slots - flat.state_offsets[:-1]
            if outcome == IMPOSSIBLE:
                raise _impossible()
        return None

    def require_state(self) -> None:
        """Seek a state of positive weight for a short while; an error if there is provably none."""
        from kikuchi.engines.kernels.feasibility import IMPOSSIBLE, breadth_first, search

        flat, work = self.flat, self._work
        order = breadth_first(flat, work.hard, np.arange(len(flat.cards)))
        entries = float(np.diff(flat.table_offsets)[work.hard > 0].sum())
        backtracks = int(min(_FIRST_BACKTRACKS, 1.0 + _MOST_ENTRIES / entries))
        first_states = np.zeros(len(self._alive))
        if search(flat, work, order, first_states, backtracks) == IMPOSSIBLE:
            raise _impossible()

    def _wanted(self, attempt: int, preference: Array, rng: np.random.Generator) -> Array:
        if attempt == 0:
            return preference
        if attempt == 1:
            return -np.arange(len(preference), dtype=np.float64)
        return rng.random(len(preference))


def require_possible(graph: FactorGraph) -> None:
    """Raise `ImpossibleEvidenceError` where zeros of the tables are soon seen to leave no state.

    Propagation of the zeros first, then a short search for one state of positive weight: each
    proves more than an approximation can see, whose messages may agree where no state does. It is
    silent where a state was found, and where the search gave up.

    >>> equal, other = np.eye(2), 1 - np.eye(2)
    >>> try:
    ...     require_possible(FactorGraph([2, 2], [((0, 1), equal), ((0, 1), other)]))
    ... except ImpossibleEvidenceError as error:
    ...     print(str(error)[:48])
    no state of the model has positive weight (Z = 0
    """
    if not np.isneginf(graph.log_tables).any():
        return
    Constraints(flatten(graph)).require_state()


def _impossible() -> ImpossibleEvidenceError:
    return ImpossibleEvidenceError(
        "no state of the model has positive weight (Z = 0); check the zeros in its tables "
        "and the evidence"
    )
