"""Pseudo-likelihood: every variable given all others, no partition function.

    PL(theta) = mean over rows of sum_i log p(x_i | x without i)

p(x_i | rest) depends on the rest only through the factors of variable i, so that the rows are
counted once by local configuration; after that the cost follows the different configurations and
no longer the rows.

Reference: LIU-L11, TEH-L10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, U8, Array, Ints
from kikuchi.core.budget import Budget
from kikuchi.core.options import option
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import GraphArrays, flatten
from kikuchi.learning.ascent import Ascent
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned, Learner
from kikuchi.learning.ties import Parameters

_SMALL_TABLE = 64  # states of a blanket that are counted in a table however few the rows are
_LONGEST_STEP = 10.0  # of a log-weight in the first trial of a step
_WORD = 2.0**62


@dataclass(frozen=True)
class PseudoLikelihood(Learner):
    """Pseudo-likelihood: no partition function, any size; complete rows.

    Any factors, cardinalities, zeros and directed tables; needs complete rows. `l1` and `l2` take
    l1 |theta|_1 + l2 / 2 |theta|^2 off the mean over rows, theta being the log-tables.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> fit = PseudoLikelihood().fit(coin, [[1], [1], [1], [0]])
    >>> round(fit.objective, 6), round(fit.log_likelihood, 6)
    (-0.562335, -0.562335)
    """

    name: ClassVar[str] = "pseudo"
    objective_name: ClassVar[str] = "pseudo-log-likelihood per row"

    l1: float = option(0.0, "penalty on the sizes of log-weights", low=0)
    l2: float = option(0.0, "penalty on the squares of log-weights (half of their sum)", low=0)
    ties: str | None = option(None, "factors that share a table, such as 0-3;4-7, or shape")
    tol: float = option(1e-6, "largest slope to stop at", low=0)
    max_iter: int = option(5000, "most steps of the ascent", low=1)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        parameters = Parameters(graph, self.ties)
        local = LocalConfigurations(graph, data, budget=run.clock.budget)
        objective = local.value_and_gradient
        ascent = Ascent(
            graph, data, parameters, objective, l1=self.l1, l2=self.l2, longest=_LONGEST_STEP
        )
        learned = ascent.maximise(run, tol=self.tol, limit=self.max_iter)
        learned.diagnostics |= {
            "local_configurations": local.size,
            "parameters": parameters.n_free,
        }
        return learned


# ---------------------------------------------------------------------- counting once


class LocalConfigurations:
    """What each variable's conditional depends on, with the weight of each of its states beside it.

    Blankets of few states are counted in a table, those of many by sorting the rows, and where the
    states of a blanket do not even fit in one number every row stands for itself.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[4, 1], [1, 4]])])
    >>> LocalConfigurations(pair, Data.of([[0, 0], [0, 0], [1, 1]], pair)).size
    4
    """

    def __init__(self, graph: FactorGraph, data: Data, *, budget: Budget | None = None) -> None:
        self.graph = graph
        self.total = data.total
        self.budget = budget or Budget()
        used = data.weights > 0
        self._states = np.ascontiguousarray(data.states if used.all() else data.states[used])
        self._weights = np.ascontiguousarray(data.weights[used])
        blankets = _Blankets(graph)
        self._parts = self._counted_in_tables(blankets)
        self._counted_by_sorting(blankets)
        self._finish(flatten(graph))
        del self._states, self._weights, self._parts

    @property
    def size(self) -> int:
        """Number of different configurations, over all variables."""
        return len(self.variable_of)

    def value_and_gradient(self, log_tables: Array) -> tuple[float, Array]:
        """The pseudo-log-likelihood per row of some log-tables, and its gradient by them."""
        from kikuchi.learning.local.kernels.pseudo import (
            Configurations,
            VariableRows,
            score_blankets,
        )

        gradient = np.zeros(len(log_tables))
        total = score_blankets(
            np.ascontiguousarray(log_tables),
            self.graph.cardinalities,
            VariableRows(self._row_at, self._row_strides),
            Configurations(
                self.variable_of, self._entry_at, self._entries, self._count_at, self._counts
            ),
            self._field,
            gradient,
        )
        return float(total) / self.total, gradient / self.total

    # ------------------------------------------------------------------ the two ways to count

    def _counted_in_tables(self, blankets: _Blankets) -> list[_Counted]:
        from kikuchi.learning.local.kernels.pseudo import Blankets, count_blankets

        cards = self.graph.cardinalities.astype(np.uint64)
        few = blankets.states <= max(_SMALL_TABLE, len(self._states))
        variables = np.flatnonzero(few)
        self._many = np.flatnonzero(~few)
        sizes = blankets.states[variables].astype(np.int64)
        keys = np.concatenate([[0], np.cumsum(sizes)])
        places = np.concatenate([[0], np.cumsum(sizes * cards[variables].astype(np.int64))])
        self._require(8 * int(places[-1]) + 4 * int(keys[-1]))
        counts = np.zeros(int(places[-1]))
        shown_by = np.full(int(keys[-1]), -1, dtype=np.int32)
        at, neighbours, radix = blankets.of(variables)
        chosen = Blankets(
            variables.astype(np.uint64),
            at,
            neighbours,
            radix,
            keys.astype(np.uint64),
            places.astype(np.uint64),
            cards[variables],
        )
        count_blankets(self._states, self._weights, chosen, counts, shown_by)
        seen = shown_by >= 0
        owners = np.repeat(variables, sizes)
        kept = counts[np.repeat(seen, cards[owners].astype(np.int64))]
        return [_Counted(owners[seen].astype(np.uint32), shown_by[seen], kept)]

    def _counted_by_sorting(self, blankets: _Blankets) -> None:
        from kikuchi.learning.local.kernels.pseudo import blanket_keys

        n_rows = len(self._states)
        degrees = np.diff(self.graph.variable_offsets)[self._many]
        self._require(n_rows * int((4 * degrees + 16).sum()))
        keys = np.empty(n_rows, dtype=np.uint64)
        for v in self._many.tolist():
            card = int(self.graph.cardinalities[v])
            if blankets.states[v] < _WORD:
                _, neighbours, radix = blankets.of(np.array([v]))
                blanket_keys(self._states, neighbours, radix, keys)
                _, first, where = np.unique(keys, return_index=True, return_inverse=True)
            else:
                first = where = np.arange(n_rows)
            places = where.ravel() * card + self._states[:, v]
            counts = np.bincount(places, self._weights, len(first) * card)
            owners = np.full(len(first), v, dtype=np.uint32)
            self._parts.append(_Counted(owners, first.astype(np.int32), counts.astype(np.float64)))

    def _finish(self, flat: GraphArrays) -> None:
        from kikuchi.learning.local.kernels.pseudo import blanket_entries

        graph = self.graph
        self.variable_of = np.concatenate([part.owners for part in self._parts])
        shown_by = np.concatenate([part.shown_by for part in self._parts])
        self._counts = np.concatenate([part.counts for part in self._parts])
        degrees = np.diff(graph.variable_offsets)[self.variable_of]
        cards = graph.cardinalities[self.variable_of].astype(np.int64)
        self._entry_at = _starts(degrees)
        self._count_at = _starts(cards)
        self._entries = np.empty(int(degrees.sum()), dtype=np.uint32)
        self._row_at = graph.variable_offsets.astype(np.uint64)
        self._row_strides = flat.edge_strides[graph.variable_edges].astype(np.uint64)
        self._field = np.empty(int(graph.cardinalities.max(initial=1)))
        blanket_entries(
            flat, self._states, self.variable_of, shown_by, self._entry_at, self._entries
        )

    def _require(self, needed: int) -> None:
        self.budget.require_bytes(
            needed,
            "counting the local configurations",
            "use fewer rows, or learner cd, which counts nothing",
        )


@dataclass(frozen=True)
class _Counted:
    """Configurations: their variable, a row that shows each, and the weights of the states."""

    owners: U4
    shown_by: NDArray[np.int32]
    counts: Array


class _Blankets:
    """The neighbours of each variable, and how many states they have together."""

    def __init__(self, graph: FactorGraph) -> None:
        pairs = graph.pairs().astype(np.int64)
        both = np.concatenate([pairs, pairs[:, ::-1]])
        both = both[np.lexsort((both[:, 1], both[:, 0]))]
        self.at = np.concatenate(
            [[0], np.cumsum(np.bincount(both[:, 0], minlength=graph.n_variables))]
        )
        self.neighbours = both[:, 1]
        self.cards = graph.cardinalities.astype(np.float64)
        logs = np.log2(self.cards[self.neighbours])
        sums = np.concatenate([[0.0], np.cumsum(logs)])
        self.states = np.exp2(np.minimum(sums[self.at[1:]] - sums[self.at[:-1]], 200.0))
        self.states = np.rint(self.states)

    def of(self, variables: Ints) -> tuple[U8, U8, U8]:
        """Offsets, neighbours and the place value of each, for some variables."""
        sizes = np.diff(self.at)[variables]
        at = np.concatenate([[0], np.cumsum(sizes)])
        gather = np.arange(at[-1]) + np.repeat(self.at[variables] - at[:-1], sizes)
        neighbours = self.neighbours[gather]
        radix = np.ones(len(neighbours), dtype=np.uint64)
        within = np.arange(at[-1]) - np.repeat(at[:-1], sizes)
        cards = self.cards[neighbours].astype(np.uint64)
        for place in range(1, int(sizes.max(initial=0))):
            here = np.flatnonzero(within == place)
            radix[here] = radix[here - 1] * cards[here - 1]
        return at.astype(np.uint64), neighbours.astype(np.uint64), radix


def _starts(sizes: NDArray[Any]) -> U8:
    return np.asarray(np.cumsum(sizes) - sizes, dtype=np.uint64)
