"""`query`: distributions of named variables given evidence.

Small and moderate models are answered exactly by a junction tree that is kept with the model and
shared by all questions with the same evidence pattern; where such a tree is too costly, by `auto`.

Reference: HOJ-I4, LIU-M4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock, limits
from kikuchi.core.errors import (
    BudgetError,
    EvidenceError,
    ImpossibleEvidenceError,
    KikuchiError,
    ModelError,
)
from kikuchi.core.progress import Progress, ProgressOption, shown
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.inference.beliefs import Beliefs
from kikuchi.inference.method import Method
from kikuchi.inference.registry import METHODS, infer
from kikuchi.query.answers import Distributions, JointDistribution
from kikuchi.query.barren import marginals_by_parts, rest_of, without_variables
from kikuchi.query.cache import ModelCache, cache_of, empty_weights
from kikuchi.query.conflicts import impossible
from kikuchi.query.foreign import as_model
from kikuchi.query.question import Given, asked_variables, given, state_labels
from kikuchi.query.small import SmallAnswer, enumerated

if TYPE_CHECKING:
    from kikuchi.query.pattern_tree import PatternTree

EXACT = ("auto", "jt", "exact")
_MATCHED = 1e-10  # largest difference from an observed marginal
_MOST_SWEEPS = 1000
_FEW_VARIABLES = 128
_NO_SEARCH = 16  # variables up to which a search for orders costs more than it gains
_DEFAULT_SECONDS = 60.0  # of a tree that is propagated where no limit was given


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
    model : a `FactorGraph`, a path, or what `as_model` takes. A model of another library is
        converted at every call; convert it once where there are many questions.
    variables : the variables asked for, by name or number; all that are not observed by default.
    joint : variables whose joint distribution is asked for, in place of `variables`.
    evidence : observed states, by name or number.
    likelihood : virtual evidence: of a variable, the probability of what was seen given each of its
        states, up to a factor; in the order of the states, or by their names.
    observed_marginals : Jeffrey's rule: the distribution that a variable shall have afterwards.
        Of all distributions with these marginals the answer is that of the least divergence from
        the model.
    method : "auto" for an exact answer where it is affordable, "exact" (or "jt") to insist on one,
        or the text of any inference method.
    budget : limits as a `Budget`, in place of the next two.
    seconds, memory : most seconds, and most memory in bytes or as a text such as "2GB".
    progress : True for a bar, or a function that is told; exact answers are mostly there before.

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
            raise ModelError("ask for `variables` or for a `joint`, not for both")
        together = asked_variables(graph, joint, "joint")
        if not together:
            raise ModelError("joint: name at least one variable")
        with shown(progress, "query") as report:
            return _joint_answer(_Question(graph, together, known, method, clock, report))
    if variables is None:
        asked = [v for v in range(graph.n_variables) if v not in known.states]
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
        """Names of the variables that are asked for."""
        return tuple(self.graph.label(v) for v in self.asked)

    @property
    def states(self) -> tuple[tuple[str, ...], ...]:
        """Names of their states."""
        return tuple(state_labels(self.graph, v) for v in self.asked)

    def facts(self, log_z: float, warnings: tuple[str, ...]) -> dict[str, Any]:
        """What there is to say of an exact answer."""
        log_evidence = None if self.known.marginals else log_z
        told: dict[str, Any] = {"converged": not warnings, "warnings": warnings}
        return {"method": "jt", "log_evidence": log_evidence, **told}


# ---------------------------------------------------------------------- single variables


def _single_answers(q: _Question) -> Distributions:
    graph, known = q.graph, q.known
    found = _exact_row(q, ())
    if found is not None:
        tree, log_z, row, warnings = found
        values = tuple(_marginal(graph, tree, row, known, v) for v in q.asked)
        return Distributions(q.names, q.states, values, **q.facts(log_z, warnings))
    beliefs, number = _inferred(graph, set(q.asked), known, q.method, q.clock, q.progress)
    values = tuple(_belief(graph, beliefs, number, known, v) for v in q.asked)
    return Distributions(q.names, q.states, values, **_facts(beliefs, known))


def _marginal(
    graph: FactorGraph, tree: PatternTree | SmallAnswer, row: Array, known: Given, v: int
) -> Array:
    if v in known.states:
        return _point(graph, v, known.states[v])
    if graph.cardinalities[v] == 1 and v not in known.weights:
        return np.ones(1)
    k = int(tree.number[v])
    at = int(tree.target_at[k])
    return row[at : at + int(tree.target_size[k])]


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
    q.clock.budget.require_bytes(needed, f"the joint of {len(asked)} variables", "ask for fewer")
    free = tuple(v for v in asked if v not in known.states)
    found = _exact_row(q, free)
    if found is None:
        beliefs, number = _inferred(graph, set(asked), known, q.method, q.clock, q.progress)
        inner = beliefs.joint([number[v] for v in free]) if free else np.ones(())
        facts = _facts(beliefs, known)
    else:
        _, log_z, row, warnings = found
        inner = _tree_joint(graph, row, free)
        facts = q.facts(log_z, warnings)
    table = np.zeros(shape)
    where = tuple(known.states.get(v, slice(None)) for v in asked)
    table[where] = inner.reshape(table[where].shape)
    return JointDistribution(q.names, states, table, **facts)


def _tree_joint(graph: FactorGraph, row: Array, free: tuple[int, ...]) -> Array:
    """The joint of the variables in the order asked; the tree has them in rising order."""
    if not free:
        return np.ones(())
    ordered = sorted(free)
    table = row.reshape([int(graph.cardinalities[v]) for v in ordered])
    return np.transpose(table, [ordered.index(v) for v in free])


# ---------------------------------------------------------------------- exact


def _exact_row(
    q: _Question, together: tuple[int, ...]
) -> tuple[PatternTree | SmallAnswer, float, Array, tuple[str, ...]] | None:
    """The answer of the tree, or None where the method is another one or the tree costs too much.

    The tree is insisted upon if the method is; its own errors then say what it lacks.
    """
    graph, known, method, clock, asked = q.graph, q.known, q.method, q.clock, set(q.asked)
    if not isinstance(method, str) or method not in EXACT:
        return None
    cache = cache_of(graph)
    weighted = tuple(sorted({*known.weights, *known.marginals}))
    observed = tuple(sorted(known.states))
    new = not known.marginals and cache.is_new(observed, weighted, together)
    plain = not weighted and not together
    if new or (plain and not observed and cache.prior is not None):
        first = enumerated(graph, known.states, known.weights, list(together)) if new else None
        if first is None and plain and not observed:
            first = _by_parts(graph, asked, clock)
        if first is None and new and plain:
            first = _once(graph, known, clock)
        if first is not None:
            where, log_z, row = first
            if log_z == -np.inf:
                raise impossible(graph, known)
            return where, log_z, row, ()
    tree = cache.tree_for(observed, weighted, asked, tuple(sorted(together)), clock)
    if method == "auto" and not affordable(tree, clock.budget):
        return None
    states = np.array([[known.states[v] for v in observed]], dtype=np.int32)
    if known.marginals:
        return tree, *_matched(cache, tree, known, states, clock)
    weights = empty_weights(1)
    if weighted:
        weights = np.concatenate([known.weights[v] for v in weighted])[None]
    log_z, row = cache.row(tree, states, weights, clock)
    if log_z == -np.inf:
        raise impossible(graph, known)
    return tree, log_z, row, ()


def _by_parts(
    graph: FactorGraph, asked: set[int], clock: Clock
) -> tuple[SmallAnswer, float, Array] | None:
    """Marginals without evidence from narrow parts of a model, where these are quicker; they are
    kept with the model.
    """
    cache = cache_of(graph)
    if cache.prior is None or not asked <= cache.prior[0]:
        flat = marginals_by_parts(graph, sorted(asked), cache.normalised, clock)
        if flat is None:
            return None
        cache.prior = frozenset(asked), flat
    return _every_variable(graph), graph.log_constant, cache.prior[1]


def _every_variable(graph: FactorGraph) -> SmallAnswer:
    """Where marginals of all variables are, one after the other."""
    offsets = graph.state_offsets
    return SmallAnswer(np.arange(graph.n_variables), offsets[:-1], np.diff(offsets))


def _once(
    graph: FactorGraph, known: Given, clock: Clock
) -> tuple[SmallAnswer, float, Array] | None:
    """All marginals of a model of a few variables by one propagation, for a question that may never
    come again; None where its tree does not fit.
    """
    if graph.n_variables > _FEW_VARIABLES:
        return None
    from kikuchi.inference.trees.junction_tree import JunctionTree

    try:
        order: Literal["min-fill", "cheapest"] = (
            "min-fill" if graph.n_variables <= _NO_SEARCH else "cheapest"
        )
        tree = JunctionTree(order=order)
        found = tree.run(graph, evidence=known.states, budget=clock.budget)
    except ImpossibleEvidenceError:
        raise impossible(graph, known) from None
    except BudgetError:
        return None
    assert found.log_z is not None  # jt gives it
    return _every_variable(graph), found.log_z, found.flat_marginals


def affordable(tree: PatternTree, budget: Budget) -> bool:
    """Whether a tree fits the memory and the time of a budget."""
    if tree.side_by_side:
        return True
    if not tree.plan.complete or (budget.bytes is not None and tree.plan.bytes > budget.bytes):
        return False
    limit = _DEFAULT_SECONDS if budget.seconds is None else 0.5 * budget.seconds
    return tree.plan.seconds() <= limit


def _matched(
    cache: ModelCache, tree: PatternTree, known: Given, states: Any, clock: Clock
) -> tuple[float, Array, tuple[str, ...]]:
    """Weights of the variables with observed marginals, by iterative proportional fitting."""
    graph = cache.graph
    weights = {**known.weights, **{v: np.ones(len(q)) for v, q in known.marginals.items()}}
    order = [int(v) for v in tree.weighted]
    if tree.pattern.together:  # the marginals are read from a tree without the joint
        plain = cache.tree_for(tree.pattern.observed, tree.pattern.weighted, set(), (), clock)
        _, _, warnings = _matched_weights(graph, plain, known, states, weights, clock)
    else:
        _, _, warnings = _matched_weights(graph, tree, known, states, weights, clock)
    row = np.concatenate([weights[v] for v in order])[None]
    log_z, out = tree.run(states, row, clock)
    return float(log_z[0]), out[0], warnings


def _matched_weights(
    graph: FactorGraph,
    tree: PatternTree,
    known: Given,
    states: Any,
    weights: dict[int, Array],
    clock: Clock,
) -> tuple[float, Array, tuple[str, ...]]:
    """Change `weights` until every observed marginal is met."""
    order = [int(v) for v in tree.weighted]
    worst = np.inf
    for _ in range(_MOST_SWEEPS):
        worst = 0.0
        for v, wanted in known.marginals.items():
            row = np.concatenate([weights[u] for u in order])[None]
            log_z, out = tree.run(states, row, clock)
            if log_z[0] == -np.inf:
                raise impossible(graph, known)
            found = _marginal(graph, tree, out[0], known, v)
            if np.any((found == 0.0) & (wanted > 0.0)):
                raise EvidenceError(
                    f"variable {graph.label(v)}: an observed marginal gives a chance to a state "
                    "that the model and the evidence exclude"
                )
            worst = max(worst, float(np.abs(found - wanted).max()))
            ratio = np.divide(wanted, found, out=np.zeros_like(found), where=found > 0.0)
            weights[v] = weights[v] * ratio
            weights[v] /= weights[v].max()
        if worst <= _MATCHED:
            return float(log_z[0]), out[0], ()
        if clock.expired:
            break
    warning = f"the observed marginals are met to {worst:.2g} only; they may contradict each other"
    return float(log_z[0]), out[0], (warning,)


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
    fields = [(numbers[v], _log(w)) for v, w in known.weights.items()]
    if fields:
        part = part.with_fields(fields)
    observed: dict[int, Any] = {numbers[v]: k for v, k in known.states.items()}
    observed |= {numbers[v]: q for v, q in known.marginals.items()}
    beliefs = infer(part, method, evidence=observed, budget=rest_of(clock), progress=progress)
    if beliefs.max_product:
        raise KikuchiError(
            f"{beliefs.method} gives max-marginals, which are no probabilities of states; ask "
            "`most_probable` for the best state, or query with mode=sum"
        )
    return beliefs, numbers


def _log(weights: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights))


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
