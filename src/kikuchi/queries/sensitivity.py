"""Sensitivity of results to entries of tables, and the choice of the next test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, RunLimits, limits, named_limits
from kikuchi.core.errors import ImpossibleEvidenceError, ModelError
from kikuchi.core.labelled import html_facts, pandas_module
from kikuchi.core.text import printable
from kikuchi.graphs.factor_graph import FactorGraph, State, Variable
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.enumeration import FEW_STATES
from kikuchi.methods.registry import infer
from kikuchi.queries.cache import cache_of
from kikuchi.queries.conflicts import impossible
from kikuchi.queries.converters import as_model
from kikuchi.queries.patterns import log_of
from kikuchi.queries.question import (
    asked_variables,
    given,
    state_labels,
    state_number,
    variable_number,
)

_SHOWN = 10
_ROUNDING = 1e-15  # of a logarithm, relative to one more than its size
_WIDE = 300.0  # range of a log-table: beliefs in its smallest entries are still exact


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
    """Return the exact change of P(target = state | evidence) with each entry of the tables.

    P(q, e) and P(e) are linear in an entry t, so that dP(q | e)/dt = P(q | e) (P(x | q, e) -
    P(x | e)) / t with x the states that the entry is about.

    Parameters
    ----------
    model, evidence
        As in `query`.
    target, state
        The result whose sensitivity is computed.
    tables : Sequence[Variable], optional
        In directed models the variables whose conditional tables are looked at, else numbers of
        factors; all by default.
    budget, seconds, memory
        Limits of the run: a budget, or seconds and memory.

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
    method = _exact_method(graph)
    try:
        plain = infer(graph, method, evidence=known.states, budget=budget)
    except ImpossibleEvidenceError:
        raise impossible(graph, known) from None
    p = float(plain[v][k])
    asked = {**known.states, v: k}
    joint = infer(graph, method, evidence=asked, budget=budget) if p > 0.0 else None
    derivatives = {}
    for a in chosen:
        logs = graph.log_table(a)
        with np.errstate(over="ignore", invalid="ignore"):
            if joint is not None and logs.min() > logs.max() - _WIDE:
                log_p = _log_z(joint) - _log_z(plain)  # p itself may be too small a number
                raw = (joint.factor(a) - plain.factor(a)) * np.exp(log_p - logs)
            else:
                raw = _linear(graph, a, known.states, asked, plain, p, budget)
        if not np.isfinite(raw).all():
            raise ModelError(
                f"the derivatives by the table of factor {a} are too large for floating-point "
                f"numbers; multiply the table by {1e200:g}, which divides them by as much"
            )
        derivatives[a] = _with_row(graph, a, raw) if graph.is_directed else raw
    return Sensitivity(graph, graph.label(v), state_labels(graph, v)[k], p, derivatives)


def _log_z(beliefs: Beliefs) -> float:
    assert beliefs.log_z is not None  # exact methods give it
    return beliefs.log_z


def _exact_method(graph: FactorGraph) -> str:
    """Enumeration without compiled loops where the model has few states, else a junction tree."""
    few = float(np.log2(graph.cardinalities).sum()) <= np.log2(FEW_STATES)
    return "enumerate" if few else "jt"


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
    """Derivatives where entries are zero or tiny: from the model with ones for the table."""
    low, high = graph.table_offsets[a], graph.table_offsets[a + 1]
    logs = graph.log_tables.copy()
    logs[low:high] = 0.0
    without = graph.replaced(log_tables=logs, children=None)

    def slope(evidence: dict[int, int]) -> Array:
        """dP(evidence)/dt over P(known)."""
        try:
            found = infer(without, _exact_method(graph), evidence=evidence, budget=budget)
        except ImpossibleEvidenceError:
            return np.zeros(graph.shape(a))
        return np.asarray(found.factor(a) * np.exp(_log_z(found) - _log_z(plain)))

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


class InformationGain(dict[str, float]):
    """The gain in nats of each variable by its name, the largest first; a table in notebooks.

    `target` is the name of the variable that one wants to know.
    """

    def __init__(self, gains: Iterable[tuple[str, float]] = (), *, target: str = "") -> None:
        super().__init__(gains)
        self.target = target

    def _repr_html_(self) -> str:
        facts = [(name, f"{gain:.6g}") for name, gain in self.items()]
        return html_facts(f"Information about {self.target}", facts, "mutual information in nats")


@named_limits
def information_gain(
    model: Any,
    target: Variable,
    evidence: Mapping[Any, Any] | None = None,
    *,
    candidates: Sequence[Variable] | None = None,
    **within: Unpack[RunLimits],
) -> InformationGain:
    """Mutual information of the target with each unobserved variable given evidence, in nats.

    It is what a test of the variable is expected to take off the entropy of the target; the most
    informative one comes first.

    Parameters
    ----------
    model, evidence
        As in `query`.
    target : Variable
        The variable that one wants to know.
    candidates : Sequence[Variable], optional
        Variables that could be observed; all others by default.
    budget, seconds, memory
        Limits of the run: a budget, or seconds and memory.

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
    count = int(graph.cardinalities[t])
    engine = cache_of(graph).engine(observed, (t,), {t, *chosen}, (), clock, rows=count)
    rows = np.repeat(np.array([[known.states[v] for v in observed]], np.int32), count, axis=0)
    log_z, given_state = engine.run(rows, log_of(np.eye(count)), clock)
    if np.all(log_z == -np.inf):
        raise impossible(graph, known)
    log_weights = log_z - np.logaddexp.reduce(log_z)
    gains = {}
    for v in chosen:
        if engine.is_open[v]:
            at = int(engine.target_at[int(engine.number[v])])
            size = int(graph.cardinalities[v])
            gains[v] = _mutual_information(log_weights, given_state[:, at : at + size])
        else:
            gains[v] = 0.0  # a single state
    ordered = sorted(gains.items(), key=lambda pair: (-pair[1], pair[0]))
    return InformationGain(((graph.label(v), value) for v, value in ordered), target=graph.label(t))


def _mutual_information(log_weights: Array, given: Array) -> float:
    """Sum of w_s KL(p_s | m) over the rows p_s of `given`, with m = sum_s w_s p_s.

    Every term p log(p / m) - p + m is at least 0, so that small gains do not cancel; logarithms
    keep products of small weights from vanishing.
    """
    inside = log_weights > -np.inf
    log_w, p = log_weights[inside, None], given[inside]
    log_p = log_of(p)
    log_m = np.logaddexp.reduce(log_w + log_p, axis=0, keepdims=True)
    m = np.exp(log_m)
    log_m = np.where(log_m > -np.inf, log_m, 0.0)
    ratio = np.where(p > 0.0, log_p - log_m, 0.0)
    ratio[np.abs(ratio) < _ROUNDING * (1.0 - log_m)] = 0.0  # independent, but for rounding
    terms = p * ratio - p + m
    near = np.abs(ratio) < 1e-4  # p (r - 1 + exp(-r)) = p r^2 / 2 - p r^3 / 6 + ...
    terms = np.where(near & (p > 0.0), p * ratio**2 * (0.5 - ratio / 6), terms)
    return float((np.exp(log_w) * np.maximum(terms, 0.0)).sum())
