"""Scores of families: a child with its parents, counted by compiled loops and remembered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MethodError, suggestion
from kikuchi.core.numerics import count_states
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.structure.kernels import families as kernel

ScoreName = Literal["bic", "aic", "bdeu", "likelihood"]

_KINDS = {
    "bic": kernel.BIC,
    "aic": kernel.AIC,
    "bdeu": kernel.BDEU,
    "likelihood": kernel.LIKELIHOOD,
}
PSEUDO_COUNT = 0.2  # per cell; `benchmarks/table_prior.py` measures why
_LARGEST = 2**22  # entries of a table of counts


class FamilyScores:
    """Decomposable scores of directed structures: a sum over families.

    For counts n_jk of state k of the child at the joint state j of its parents, N rows in all,
    `bic` is sum n_jk log(n_jk / n_j) - (log N / 2)(r - 1) q with r states and q joint states of the
    parents, `aic` the same with 1 in place of (log N) / 2, `bdeu` the logarithm of the marginal
    likelihood under Dirichlet priors of `strength` / (r q) each, `likelihood` the first sum alone.

    >>> rows = [[0, 0], [1, 1], [0, 0], [1, 1], [0, 1]]
    >>> scores = FamilyScores(rows, "bic")
    >>> scores.family(1, [0]) > scores.family(1, [])
    True
    """

    def __init__(
        self, data: Data | ArrayLike, score: ScoreName = "bic", strength: float = 1.0
    ) -> None:
        if score not in _KINDS:
            raise MethodError(f"there is no score '{score}'; {suggestion(score, _KINDS)}")
        if not 0 < strength < math.inf:
            raise MethodError(f"strength must be positive and finite, got {strength!r}")
        rows = Data.of(data)
        if rows.n_variables == 0 or rows.total <= 0:
            raise DataError("data: there are no rows with a positive weight")
        rows.require_complete("learning a structure")
        self.data = rows.distinct()
        self.score: ScoreName = score
        self.kind = _KINDS[score]
        self.strength = float(strength)
        self.total = float(self.data.total)
        self.cards = np.ascontiguousarray(self.data.cardinalities, dtype=np.int64)
        self.columns = np.ascontiguousarray(self.data.states.T, dtype=np.int32)
        self.weights = np.ascontiguousarray(self.data.weights, dtype=np.float64)
        self._codes = np.empty(len(self.weights), dtype=np.int64)
        self._known: dict[tuple[int, tuple[int, ...]], float] = {}
        self._known_additions: dict[tuple[int, tuple[int, ...]], Array] = {}
        self._rows = kernel.Rows(self.columns, self.cards, self.weights)
        self._rule = kernel.ScoreKind(self.kind, self.strength, self.total)
        self.evaluations = 0

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.cards)

    def codes(self, variables: Iterable[int]) -> tuple[Ints, int]:
        """Joint state of some variables in each row, and how many joint states there are."""
        chosen = np.array(sorted(variables), dtype=np.int64)
        size = count_states(self.cards[chosen])
        if size > _LARGEST:
            raise DataError(
                f"data: {len(chosen)} variables have {size:.3g} joint states, too many to count; "
                "allow fewer parents or conditions"
            )
        size = kernel.codes_of(self.columns, self.cards, chosen, self._codes)
        return self._codes, int(size)

    def family(self, child: int, parents: Iterable[int]) -> float:
        """Score of a child with its parents; -inf if the counts have too many entries."""
        key = child, tuple(sorted(parents))
        found = self._known.get(key)
        if found is None:
            size = count_states(self.cards[[child, *key[1]]])
            found = -math.inf if size > _LARGEST else self._family(*key)
            self._known[key] = found
        return found

    def _family(self, child: int, parents: tuple[int, ...]) -> float:
        codes, size = self.codes(parents)
        self.evaluations += 1
        return float(kernel.family_score(self._rows, child, codes, size, self._rule))

    def additions(self, child: int, parents: Iterable[int]) -> Array:
        """Score of the child with each other variable as one more parent; -inf for those that are
        parents already, and for the child itself.
        """
        key = child, tuple(sorted(parents))
        found = self._known_additions.get(key)
        if found is None:
            others = np.array(
                [u for u in range(self.n_variables) if u != child and u not in key[1]],
                dtype=np.int64,
            )
            codes, size = self.codes(key[1])
            values = np.empty(len(others))
            kernel.scores_with(self._rows, child, codes, size, others, _LARGEST, self._rule, values)
            self.evaluations += len(others)
            found = np.full(self.n_variables, -math.inf)
            found[others] = values
            self._known_additions[key] = found
        return found

    def dependence(self, x: int, y: int, given: Sequence[int]) -> tuple[float, float]:
        """G2 of two variables given others, and its degrees of freedom."""
        codes, size = self.codes(given)
        self.evaluations += 1
        statistic, freedom = kernel.dependence(self._rows, x, y, codes, size)
        return float(statistic), float(freedom)

    def structure(self, parents: Sequence[Iterable[int]]) -> float:
        """Score of a whole structure, given the parents of each variable."""
        return sum(self.family(v, chosen) for v, chosen in enumerate(parents))


def fitted_network(
    data: Data | ArrayLike,
    parents: Sequence[Iterable[int]],
    *,
    pseudo_count: float = 0.0,
    strength: float = 0.0,
) -> FactorGraph:
    """The directed model of a structure with tables of frequencies.

    Parameters
    ----------
    data : complete rows.
    parents : the parents of each variable, by number.
    pseudo_count : added to every count.
    strength : spread evenly over each table, as the prior of `bdeu`. Without either, joint states
        of the parents that never occur get the uniform distribution.

    >>> net = fitted_network([[0, 0], [1, 1], [0, 0], [1, 0]], [[], [0]])
    >>> net.table(1).round(6).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    scores = FamilyScores(data, "likelihood")
    rows = scores.data
    factors = []
    for v, chosen in enumerate(parents):
        scope = sorted(chosen)
        codes, size = scores.codes(scope)
        states = int(scores.cards[v])
        seen: Array = np.bincount(
            codes * states + scores.columns[v], weights=scores.weights, minlength=size * states
        ).astype(np.float64)
        counts = seen.reshape(size, states) + pseudo_count + strength / (size * states)
        totals = counts.sum(axis=1, keepdims=True)
        table = np.divide(counts, totals, out=np.full_like(counts, 1 / states), where=totals > 0)
        factors.append(([*scope, v], table.reshape(*(int(scores.cards[u]) for u in scope), states)))
    return FactorGraph(
        rows.cardinalities,
        factors,
        names=rows.names,
        states=rows.state_names,
        children=list(range(rows.n_variables)),
    )
