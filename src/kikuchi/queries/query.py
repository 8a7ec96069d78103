"""`query`: distributions of named variables given evidence.

Queries on small models use a table of all joint states, those on larger ones a junction tree.
Either is cached with the model and shared by all queries with the same evidence pattern. Where a
tree is too expensive, `auto` answers.

Reference: HOJ-I4, LIU-M4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock, limits
from kikuchi.core.errors import EvidenceError, KikuchiError, ModelError
from kikuchi.core.progress import Progress, ProgressOption, shown
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method
from kikuchi.methods.registry import METHODS, infer
from kikuchi.queries.answers import Distributions, JointDistribution
from kikuchi.queries.barren import rest_of, without_variables
from kikuchi.queries.cache import cache_of
from kikuchi.queries.conflicts import impossible
from kikuchi.queries.converters import as_model
from kikuchi.queries.patterns import PatternEngine, log_of, no_weights
from kikuchi.queries.question import Given, asked_variables, given, state_labels

EXACT = ("auto", "jt", "exact")
_MATCHED = 1e-10  # largest difference from an observed marginal
_MOST_SWEEPS = 1000


def query(
    model: Any,
    variables: Sequence[Variable] | Variable | None = None,
    *,
    joint: Sequence[Variable] | None = None,
    evidence: Mapping[Any, Any] | None = None,
    likelihood: Mapping[Any, Any] | None = None,
    observed_marginals: Mapping[Any, Any] | None = None,
    method: str | Method = "auto",
    budget: Budget | None = None,
    seconds: float | None = None,
    memory: int | str | None = None,
    progress: ProgressOption = None,
) -> Any:
    """Distributions of variables given evidence, with their names.

    In a directed model, variables without asked or observed descendants are left out, since their
    conditional tables sum to 1. Rows that miss 1 by at most 1e-6 count as rounded by their file;
    `infer` takes every table as it is written.

    Parameters
    ----------
    model
        A `FactorGraph`, a path, or what `as_model` takes. A model of another library is converted
        at every call; convert it once where there are many questions.
    variables : Sequence[Variable] or Variable, optional
        The variables asked for, by name or number; by default all that are not in `evidence`.
    joint : Sequence[Variable], optional
        Variables whose joint distribution is computed, instead of `variables`.
    evidence : Mapping[Any, Any], optional
        Observed states, by name or number.
    likelihood : Mapping[Any, Any], optional
        Virtual evidence: of a variable, the probability of what was seen given each of its states,
        up to a factor; in the order of the states, or by their names.
    observed_marginals : Mapping[Any, Any], optional
        Jeffrey's rule: the distribution that a variable shall have afterwards. Of all distributions
        with these marginals the answer is that of the least divergence from the model.
    method : str or Method, default "auto"
        "auto" for an exact answer where it is affordable, "exact" (or "jt") to insist on one, or
        the text of any inference method.
    budget : Budget, optional
        Limits as a `Budget`, in place of the next two.
    seconds, memory
        Time limit, and memory limit in bytes or as a string such as "2GB".
    progress : ProgressOption, optional
        True for a bar, or a progress callback; exact results are usually faster.

    >>> import kikuchi as kk
    >>> asia = kk.example("asia")
    >>> kk.query(asia, "lung", evidence={"xray": "yes", "smoke": "yes"})
    lung  no 0.354009, yes 0.645991
    (jt, exact, log evidence -2.578966)
    >>> round(kk.query(asia, "lung", likelihood={"smoke": [0.2, 0.8]})["lung"]["yes"], 6)
    0.082
    >>> round(kk.query(asia, "lung", observed_marginals={"smoke": [0.1, 0.9]})["lung"]["yes"], 6)
    0.091
    """
    graph = model if isinstance(model, FactorGraph) else as_model(model)
    clock = limits(budget, seconds, memory).start()
    known = given(graph, evidence, likelihood, observed_marginals)
    if joint is not None:
        if variables is not None:
            raise ModelError("request either `variables` or a `joint`, not both")
        together = asked_variables(graph, joint, "joint")
        if not together:
            raise ModelError("joint: name at least one variable")
        with shown(progress, "query") as report:
            return _joint_answer(_Question(graph, together, known, method, clock, report))
    if variables is None:
        asked = [v for v in range(graph.n_variables) if v not in known.evidence]
    else:
        asked = asked_variables(graph, variables, "variables")
    with shown(progress, "query") as report:
        return _single_answers(_Question(graph, asked, known, method, clock, report))


class _Question(NamedTuple):
    graph: FactorGraph
    asked: list[int]
    known: Given
    method: str | Method
    clock: Clock
    progress: Progress

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the queried variables."""
        return tuple(self.graph.label(v) for v in self.asked)

    @property
    def states(self) -> tuple[tuple[str, ...], ...]:
        """Names of their states."""
        return tuple(state_labels(self.graph, v) for v in self.asked)

    @property
    def drawn(self) -> dict[str, Any]:
        """Return what a figure of the result needs besides its probabilities."""
        return {"graph": self.graph, "observed": dict(self.known.states)}

    def facts(self, log_z: float, warnings: tuple[str, ...]) -> dict[str, Any]:
        """Return the attributes of an exact result."""
        log_evidence = None if self.known.marginals else log_z
        told: dict[str, Any] = {"converged": not warnings, "warnings": warnings}
        return {"method": "jt", "log_evidence": log_evidence, **told}


# ---------------------------------------------------------------------- single variables


def _single_answers(q: _Question) -> Distributions:
    graph, known = q.graph, q.known
    found = _exact_row(q, ())
    if found is not None:
        values = tuple(found.marginal(graph, known, v) for v in q.asked)
        facts = q.facts(found.log_z, found.warnings)
        return Distributions(q.names, q.states, values, **facts, **q.drawn)
    beliefs, number = _inferred(graph, set(q.asked), known, q.method, q.clock, q.progress)
    values = tuple(_belief(graph, beliefs, number, known, v) for v in q.asked)
    return Distributions(q.names, q.states, values, **_facts(beliefs, known), **q.drawn)


def _belief(
    graph: FactorGraph, beliefs: Beliefs, number: Mapping[int, int], known: Given, v: int
) -> Array:
    return _point(graph, v, known.states[v]) if v in known.states else beliefs[number[v]]


def _point(graph: FactorGraph, v: int, state: int) -> Array:
    out = np.zeros(int(graph.cardinalities[v]))
    out[state] = 1.0
    return out


# ---------------------------------------------------------------------- joints


def _joint_answer(q: _Question) -> JointDistribution:
    graph, asked, known, states = q.graph, q.asked, q.known, q.states
    shape = tuple(map(len, states))
    needed = 8 * math.prod(shape)
    q.clock.budget.require_bytes(needed, f"the joint of {len(asked)} variables", "request fewer")
    free = tuple(v for v in asked if v not in known.states)
    found = _exact_row(q, free)
    if found is None:
        beliefs, number = _inferred(graph, set(asked), known, q.method, q.clock, q.progress)
        inner = beliefs.joint([number[v] for v in free]) if free else np.ones(())
        facts = _facts(beliefs, known)
    else:
        inner = _free_joint(graph, found.row, free)
        facts = q.facts(found.log_z, found.warnings)
    table = np.zeros(shape)
    where = tuple(known.states.get(v, slice(None)) for v in asked)
    table[where] = inner.reshape(table[where].shape)
    return JointDistribution(q.names, states, table, **facts)


def _free_joint(graph: FactorGraph, row: Array, free: tuple[int, ...]) -> Array:
    """The joint of the variables in the order asked; an engine has them in rising order."""
    if not free:
        return np.ones(())
    ordered = sorted(free)
    table = row.reshape([int(graph.cardinalities[v]) for v in ordered])
    return np.transpose(table, [ordered.index(v) for v in free])


# ---------------------------------------------------------------------- exact


class _ExactRow(NamedTuple):
    """The answer of an engine to one row, or the marginals of all variables if there is none."""

    engine: PatternEngine | None
    log_z: float
    row: Array
    warnings: tuple[str, ...] = ()

    def marginal(self, graph: FactorGraph, known: Given, v: int) -> Array:
        """The marginal of one variable."""
        if v in known.states:
            return _point(graph, v, known.states[v])
        if self.engine is None:
            return self.row[graph.state_offsets[v] : graph.state_offsets[v + 1]]
        return self.engine.marginal(self.row, v) if self.engine.is_open[v] else np.ones(1)


def _exact_row(q: _Question, together: tuple[int, ...]) -> _ExactRow | None:
    """An exact answer, or None where the method is another one or the tree costs too much.

    The tree is required if the method is given explicitly; it then raises its own errors.
    """
    graph, known, method, clock, asked = q.graph, q.known, q.method, q.clock, set(q.asked)
    if not isinstance(method, str) or method not in EXACT:
        return None
    cache = cache_of(graph)
    weighted = tuple(sorted({*known.weights, *known.marginals}))
    observed = tuple(sorted(known.states))
    if not (observed or weighted or together):
        prior = cache.prior_by_parts(asked, clock)
        if prior is not None:
            return _ExactRow(None, graph.log_constant, prior)
    engine = cache.engine(observed, weighted, asked, tuple(sorted(together)), clock)
    if method == "auto" and not engine.affordable(clock.budget):
        return None
    states = np.array([[known.states[v] for v in observed]], dtype=np.int32)
    if known.marginals:
        return _matched(graph, engine, known, states, clock)
    weights = no_weights(1)
    if weighted:
        weights = log_of(np.concatenate([known.weights[v] for v in weighted])[None])
    log_z, row = cache.row(engine, states, weights, clock)
    if log_z == -np.inf:
        raise impossible(graph, known)
    return _ExactRow(engine, log_z, row)


def _matched(
    graph: FactorGraph, engine: PatternEngine, known: Given, states: Any, clock: Clock
) -> _ExactRow:
    """The answer with weights of the variables with observed marginals that make them match."""
    pattern, reader = engine.pattern, engine
    if pattern.together:  # the marginals are read by an engine without the joint
        reader = cache_of(graph).engine(pattern.observed, pattern.weighted, set(), (), clock)
    logs = {v: log_of(w) for v, w in known.weights.items()}
    logs |= {v: np.zeros(len(q)) for v, q in known.marginals.items()}
    warnings = _match(graph, reader, known, states, logs, clock)
    log_z, out = engine.run(states, _row(engine, logs), clock)
    return _ExactRow(engine, float(log_z[0]), out[0], warnings)


def _row(engine: PatternEngine, log_weights: Mapping[int, Array]) -> Array:
    return np.concatenate([log_weights[v] for v in engine.weighted.tolist()])[None]


def _match(
    graph: FactorGraph,
    engine: PatternEngine,
    known: Given,
    states: Any,
    log_weights: dict[int, Array],
    clock: Clock,
) -> tuple[str, ...]:
    """Change `log_weights` until every observed marginal is met, by iterative proportional fitting;
    a warning where it is not.
    """
    worst = np.inf
    for _ in range(_MOST_SWEEPS):
        worst = 0.0
        for v, wanted in known.marginals.items():
            log_z, out = engine.run(states, _row(engine, log_weights), clock, logs=True)
            if log_z[0] == -np.inf:
                raise impossible(graph, known)
            logs = engine.marginal(out[0], v)
            if np.any((logs == -np.inf) & (wanted > 0.0)):
                raise EvidenceError(
                    f"variable {graph.label(v)}: an observed marginal gives a chance to a state "
                    "that the model and the evidence exclude"
                )
            worst = max(worst, float(np.abs(np.exp(logs) - wanted).max()))
            change = log_of(wanted) - np.where(logs > -np.inf, logs, 0.0)
            new = log_weights[v] + change
            log_weights[v] = new - new.max()
        if worst <= _MATCHED:
            return ()
        if clock.expired:
            break
    return (f"the observed marginals are met to {worst:.2g} only; they may contradict each other",)


# ---------------------------------------------------------------------- any other method


def _inferred(
    graph: FactorGraph,
    asked: set[int],
    known: Given,
    method: str | Method,
    clock: Clock,
    progress: Progress,
) -> tuple[Beliefs, dict[int, int]]:
    """Beliefs by an inference method on the model without its barren variables, and the number that
    each variable has there.
    """
    left_out = cache_of(graph).barren({*known.variables, *asked})
    part, numbers = without_variables(graph, left_out)
    fields = [(numbers[v], log_of(w)) for v, w in known.weights.items()]
    if fields:
        part = part.with_fields(fields)
    observed: dict[int, Any] = {numbers[v]: k for v, k in known.states.items()}
    observed |= {numbers[v]: q for v, q in known.marginals.items()}
    beliefs = infer(part, method, evidence=observed, budget=rest_of(clock), progress=progress)
    if beliefs.max_product:
        raise KikuchiError(
            f"{beliefs.method} gives max-marginals, which are not probabilities of states; call "
            f"`most_probable` for the best state, or query with mode=sum"
        )
    return beliefs, numbers


def _facts(beliefs: Beliefs, known: Given) -> dict[str, Any]:
    cls = METHODS.parse(beliefs.method.partition(" ")[0])
    exact = cls.exactness == "always" or beliefs.log_z_lower == beliefs.log_z_upper is not None
    return {
        "method": beliefs.method,
        "log_evidence": None if known.marginals else beliefs.log_z,
        "exact": bool(exact),
        "converged": beliefs.converged,
        "warnings": beliefs.warnings,
    }
