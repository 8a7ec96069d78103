"""How well a model explains rows of data: log-likelihood, exact or bounded, and local measures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, RunLimits, limits, named_limits
from kikuchi.core.errors import BudgetError
from kikuchi.graphs.factor_graph import FactorGraph, check_graph
from kikuchi.learning.data import Data

_CHUNK = 2**24  # table look-ups at a time
_SECONDS_PER_OPERATION = 1e-9  # of a multiply-add
_LONG = 60.0  # seconds that summing out missing cells may take where no limit is given


@dataclass(frozen=True)
class Score:
    """Mean log-likelihood of a row in nats, exact or between bounds, and what else was measured.

    `log_likelihood` is None where only bounds are known. `pseudo` is the mean over rows of the sum
    over variables of log p(x_i | rest), of complete rows. `marginal_l1` is the mean over variables
    of the distance sum_x |p(x) - data frequency| of their marginals.
    """

    rows: int
    log_likelihood: float | None
    lower: float | None
    upper: float | None
    pseudo: float | None = None
    marginal_l1: float | None = None

    def lines(self, rows: str) -> list[str]:
        """The figures in words; `rows` says which rows they are of.

        >>> Score(3, -2.0, -2.0, -2.0).lines("held-out rows")
        ['log-likelihood per row, held-out rows: -2.000000 (3 rows)']
        """
        if self.log_likelihood is not None:
            figure = f"{self.log_likelihood:.6f}"
        elif self.lower is None and self.upper is None:
            figure = "unknown"
        else:
            low, high = ("unknown" if x is None else f"{x:.6f}" for x in (self.lower, self.upper))
            figure = f"between {low} and {high}"
        return [f"log-likelihood per row, {rows}: {figure} ({self.rows} rows)"]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = asdict(self)
        data["pseudo_log_likelihood"] = data.pop("pseudo")
        return data


@named_limits
def evaluate(
    graph: FactorGraph,
    data: Data | ArrayLike,
    **within: Unpack[RunLimits],
) -> Score:
    """Mean log-likelihood of the rows under the model, exact if that fits the budget.

    Otherwise bounds on log Z give bounds on it. Missing cells are summed out exactly; where that
    does not fit either, the log-likelihood is unknown.

    Parameters
    ----------
    graph : the model.
    data : rows of states, as any learner takes them.
    budget, seconds, memory : limits of the run: a budget, or seconds and memory.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1, 3])])
    >>> round(evaluate(coin, [[1], [1], [0]]).log_likelihood, 6)
    -0.653886
    """
    check_graph(graph, "evaluate")
    rows = Data.of(data, graph).distinct()
    budget = limits(**within)
    lower, upper, marginals = log_z_bounds(graph, budget)
    scores = mean_log_weight(graph, rows, budget)
    if scores is None:
        lower = upper = None
    from kikuchi.learning.local.conditionals import pseudo_log_likelihood

    exact = lower is not None and upper is not None and upper - lower <= 1e-9 * max(1, abs(lower))
    return Score(
        rows=Data.of(data, graph).n_rows,
        log_likelihood=_less(scores, lower) if exact else None,
        lower=_less(scores, upper),
        upper=_less(scores, lower),
        pseudo=pseudo_log_likelihood(graph, rows) if rows.complete else None,
        marginal_l1=None if marginals is None else _marginal_l1(graph, rows, marginals),
    )


def mean_log_weight(graph: FactorGraph, rows: Data, budget: Budget) -> float | None:
    """Mean over rows of the log-weight, missing cells summed out; None if that does not fit."""
    if rows.complete:
        return mean_log_score(graph, rows)
    from kikuchi.learning.likelihood.clamped import ClampedRows

    try:
        phase = ClampedRows(graph, rows, budget=budget)
    except BudgetError:
        return None
    if _SECONDS_PER_OPERATION * phase.price > (budget.seconds or _LONG):
        return None
    values = phase.log_z(np.array(graph.log_tables)) + graph.log_constant
    counted = rows.weights > 0
    return float(rows.weights[counted] @ values[counted]) / rows.total


def _less(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def log_z_bounds(
    graph: FactorGraph, budget: Budget
) -> tuple[float | None, float | None, Array | None]:
    """Bounds on log Z (equal if exact inference fits), and marginals."""
    from kikuchi.methods.registry import parse_method

    beliefs = parse_method("auto").run(graph, budget=budget)
    return beliefs.log_z_lower, beliefs.log_z_upper, beliefs.flat_marginals


def mean_log_score(graph: FactorGraph, data: Data) -> float:
    """Mean over complete rows of the log-weight, without log Z."""
    chunk = max(_CHUNK // max(graph.n_factors, 1), 1)
    total = 0.0
    for start in range(0, data.n_rows, chunk):
        stop = start + chunk
        scores = graph.log_score(data.states[start:stop])
        with np.errstate(invalid="ignore"):
            weighted = np.where(data.weights[start:stop] > 0, data.weights[start:stop] * scores, 0)
        total += float(weighted.sum())
    return total / data.total


def _marginal_l1(graph: FactorGraph, data: Data, marginals: Array) -> float:
    distances = []
    for v in range(graph.n_variables):
        counts = data.counts([v])
        if counts.sum() > 0:
            p = marginals[graph.state_offsets[v] : graph.state_offsets[v + 1]]
            distances.append(float(np.abs(p - counts / counts.sum()).sum()))
    return float(np.mean(distances)) if distances else 0.0
