"""What an answer depends on: sensitivity to entries of tables, and which test to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, RunLimits, limits, named_limits
from kikuchi.core.errors import ImpossibleEvidenceError, ModelError
from kikuchi.core.labelled import html_facts, pandas_module
from kikuchi.core.text import printable
from kikuchi.graphs.factor_graph import FactorGraph, State, Variable
from kikuchi.inference.beliefs import Beliefs
from kikuchi.inference.registry import infer
from kikuchi.query.cache import cache_of
from kikuchi.query.conflicts import impossible
from kikuchi.query.foreign import as_model
from kikuchi.query.question import (
    asked_variables,
    given,
    state_labels,
    state_number,
    variable_number,
)

_SHOWN = 10


# ---------------------------------------------------------------------- sensitivity


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity:
    """Derivatives of P(target = state | evidence) by the entries of tables.

    `derivatives[a]` is laid out as the table of factor a. In directed models an entry of a
    conditional table changes together with the others of its row, which keep their proportions, so
    that the row still sums to 1; in others the entry changes alone.
    """

    graph: FactorGraph
    target: str
    state: str
    probability: float
    derivatives: dict[int, Array]

    def rows(self) -> list[tuple[int, tuple[int, ...], float]]:
        """(factor, entry, derivative), the largest in absolute value first."""
        found = [
            (a, tuple(int(k) for k in place), float(table[tuple(place)]))
            for a, table in self.derivatives.items()
            for place in np.argwhere(np.ones(table.shape, dtype=bool)).tolist()
        ]
        return sorted(found, key=lambda row: (-abs(row[2]), row[0], row[1]))

    def _entry(self, a: int, place: tuple[int, ...]) -> str:
        graph = self.graph
        words = [
            f"{graph.label(v)}={state_labels(graph, v)[k]}"
            for v, k in zip(graph.scope(a), place, strict=True)
        ]
        if graph.children is None:
            return ", ".join(words)
        axis = graph.scope(a).index(int(graph.children[a]))
        parents = words[:axis] + words[axis + 1 :]
        return f"p({words[axis]}{' | ' + ', '.join(parents) if parents else ''})"

    def to_pandas(self) -> Any:
        """A DataFrame with one row for each entry, the most important first."""
        return pandas_module().DataFrame(
            [
                {
                    "entry": self._entry(a, place),
                    "value": float(self.graph.table(a)[place]),
                    "derivative": derivative,
                }
                for a, place, derivative in self.rows()
            ]
        )

    def _repr_html_(self) -> str:
        facts = [
            (self._entry(a, place), f"{derivative:+.6g}")
            for a, place, derivative in self.rows()[:_SHOWN]
        ]
        title = f"P({self.target}={self.state}) = {self.probability:.6g}"
        return html_facts(title, facts, "change per unit of each entry, the largest first")

    def __repr__(self) -> str:
        lines = [f"P({self.target}={self.state}) = {self.probability:.6g} changes by"]
        for a, place, derivative in self.rows()[:_SHOWN]:
            value = float(self.graph.table(a)[place])
            lines.append(f"{derivative:+.6g} per unit of {self._entry(a, place)} = {value:.6g}")
        return "\n".join(map(printable, lines))


@named_limits
def sensitivity(
    model: Any,
    target: Variable,
    state: State,
    evidence: Mapping[Any, Any] | None = None,
    *,
    tables: Sequence[Variable] | None = None,
    **within: Unpack[RunLimits],
) -> Sensitivity:
    """How P(target = state | evidence) changes with each entry of the tables, exactly.

    P(q, e) and P(e) are linear in an entry t, so that dP(q | e)/dt = P(q | e) (P(x | q, e) -
    P(x | e)) / t with x the states that the entry is about.

    Parameters
    ----------
    model, evidence : as in `query`.
    target, state : the answer whose sensitivity is asked.
    tables : in directed models the variables whose conditional tables are looked at, else numbers
        of factors; all by default.
    budget, seconds, memory : limits of the run: a budget, or seconds and memory.

    >>> import kikuchi as kk
    >>> found = kk.sensitivity(kk.example("asia"), "lung", "yes", {"xray": "yes"}, tables=["xray"])
    >>> found.to_pandas().entry[0]
    'p(xray=yes | either=no)'
    """
    graph = model if isinstance(model, FactorGraph) else as_model(model)
    budget = limits(**within)
    known = given(graph, evidence)
    v = variable_number(graph, target)
    if v in known.states:
        raise ModelError(f"variable {graph.label(v)} is observed; nothing changes its probability")
    k = state_number(graph, v, state)
    chosen = _factors(graph, tables)
    try:
        plain = infer(graph, "jt", evidence=known.states, budget=budget)
    except ImpossibleEvidenceError:
        raise impossible(graph, known) from None
    p = float(plain[v][k])
    asked = {**known.states, v: k}
    joint = infer(graph, "jt", evidence=asked, budget=budget) if p > 0.0 else None
    derivatives = {}
    for a in chosen:
        table = graph.table(a)
        if joint is not None and (table > 0.0).all():
            raw = p * (joint.factor(a) - plain.factor(a)) / table
        else:
            raw = _linear(graph, a, known.states, asked, plain, p, budget)
        derivatives[a] = _with_row(graph, a, raw) if graph.is_directed else raw
    return Sensitivity(graph, graph.label(v), state_labels(graph, v)[k], p, derivatives)


def _factors(graph: FactorGraph, tables: Sequence[Variable] | None) -> list[int]:
    if tables is None:
        return list(range(graph.n_factors))
    if graph.children is None:
        numbers = [int(a) for a in tables]
        if any(not 0 <= a < graph.n_factors for a in numbers):
            raise ModelError(f"tables: the model has factors 0..{graph.n_factors - 1}")
        return numbers
    home = {int(child): a for a, child in enumerate(graph.children.tolist())}
    return [home[v] for v in asked_variables(graph, tables, "tables")]


def _linear(
    graph: FactorGraph,
    a: int,
    known: dict[int, int],
    asked: dict[int, int],
    plain: Beliefs,
    p: float,
    budget: Budget | None,
) -> Array:
    """Derivatives where entries are zero: from the model with ones in place of the table."""
    low, high = graph.table_offsets[a], graph.table_offsets[a + 1]
    logs = graph.log_tables.copy()
    logs[low:high] = 0.0
    without = graph.replaced(log_tables=logs, children=None)
    assert plain.log_z is not None  # jt gives it

    def slope(evidence: dict[int, int]) -> Array:
        """dP(evidence)/dt over P(known)."""
        try:
            found = infer(without, "jt", evidence=evidence, budget=budget)
        except ImpossibleEvidenceError:
            return np.zeros(graph.shape(a))
        assert found.log_z is not None and plain.log_z is not None
        return np.asarray(found.factor(a) * np.exp(found.log_z - plain.log_z))

    return np.asarray(slope(asked) - p * slope(known))


def _with_row(graph: FactorGraph, a: int, raw: Array) -> Array:
    """Derivatives while the other entries of a row keep their proportions."""
    assert graph.children is not None  # the caller has looked
    axis = graph.scope(a).index(int(graph.children[a]))
    table, slopes = np.moveaxis(graph.table(a), axis, -1), np.moveaxis(raw, axis, -1)
    others = (table * slopes).sum(axis=-1, keepdims=True) - table * slopes
    rest = 1.0 - table
    count = table.shape[-1] - 1
    even = (slopes.sum(axis=-1, keepdims=True) - slopes) / max(count, 1)
    share = np.divide(others, rest, out=even, where=rest > 1e-12)
    return np.moveaxis(slopes - share, -1, axis)


# ---------------------------------------------------------------------- information


@named_limits
def information_gain(
    model: Any,
    target: Variable,
    evidence: Mapping[Any, Any] | None = None,
    *,
    candidates: Sequence[Variable] | None = None,
    **within: Unpack[RunLimits],
) -> dict[str, float]:
    """Mutual information of the target with each unobserved variable given evidence, in nats.

    It is what a test of the variable is expected to take off the entropy of the target; the most
    informative one comes first.

    Parameters
    ----------
    model, evidence : as in `query`.
    target : the variable that one wants to know.
    candidates : variables that could be observed; all others by default.
    budget, seconds, memory : limits of the run: a budget, or seconds and memory.

    >>> import kikuchi as kk
    >>> gain = kk.information_gain(kk.example("asia"), "lung", {"dysp": "yes"})
    >>> list(gain)[:2]
    ['either', 'xray']
    """
    graph = model if isinstance(model, FactorGraph) else as_model(model)
    known = given(graph, evidence)
    t = variable_number(graph, target)
    if t in known.states:
        raise ModelError(f"variable {graph.label(t)} is observed; there is nothing to gain")
    chosen = (
        [v for v in range(graph.n_variables) if v != t and v not in known.states]
        if candidates is None
        else asked_variables(graph, candidates, "candidates")
    )
    wrong = [v for v in chosen if v == t or v in known.states]
    if wrong:
        raise ModelError(f"candidates: {graph.label(wrong[0])} is observed or is the target")
    clock = limits(**within).start()
    observed = tuple(sorted(known.states))
    tree = cache_of(graph).tree_for(observed, (t,), {t, *chosen}, (), clock)
    count = int(graph.cardinalities[t])
    rows = np.repeat(np.array([[known.states[v] for v in observed]], np.int32), count, axis=0)
    log_z, given_state = tree.run(rows, np.eye(count), clock)
    if np.all(log_z == -np.inf):
        raise impossible(graph, known)
    weights = np.exp(log_z - log_z.max())
    weights /= weights.sum()
    gains = {}
    for v in chosen:
        if graph.cardinalities[v] == 1:
            gains[v] = 0.0
            continue
        at = int(tree.target_at[int(tree.number[v])])
        table = weights[:, None] * given_state[:, at : at + int(graph.cardinalities[v])]
        product = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
        inside = table > 0.0
        gains[v] = max(float((table[inside] * np.log(table[inside] / product[inside])).sum()), 0.0)
    ordered = sorted(gains.items(), key=lambda pair: (-pair[1], pair[0]))
    return {graph.label(v): value for v, value in ordered}
