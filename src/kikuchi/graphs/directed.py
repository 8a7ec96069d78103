"""Directed models: families, orders, moral graphs, separation and sampling.

A directed model is a `FactorGraph` with `children`: factor a is p(child | other variables of its
scope). Parents may be anywhere in the scope; `bayesian_network` puts the child last.

Reference: HOJ-I1, HOJ-I2, HOJ-M1, HOJ-M2, LAW-M2, LIU-M1, TEH-M1, TEH-M3.
"""

from __future__ import annotations

import graphlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import U4, Ints
from kikuchi.core.errors import EvidenceError, ModelError, suggestion
from kikuchi.core.seeds import Seed, generator
from kikuchi.graphs.conditional import TOLERANCE, ConditionalTable, conditional_table
from kikuchi.graphs.factor_graph import Evidence, FactorGraph, Variable

Variables = Variable | Iterable[Variable]


def bayesian_network(
    variables: Sequence[int] | Mapping[str, int | Sequence[str]],
    tables: Mapping[Any, tuple[Sequence[Variable], ArrayLike | Mapping[Any, Any]]],
) -> FactorGraph:
    """Build a directed model p(x) = prod_i p(x_i | parents of x_i) from conditional tables.

    Parameters
    ----------
    variables : Sequence[int] or Mapping[str, int or Sequence[str]]
        Number of states of each variable, or a mapping from names to a number of states or to the
        names of the states.
    tables : Mapping[Any, tuple[Sequence[Variable], array-like or Mapping[Any, Any]]]
        For each variable its parents and its conditional probability table, with one axis for each
        parent and the variable itself as the last axis, so that every row sums to 1; or cell by
        cell, as a mapping from states of the parents to probabilities, such as `{"no": 0.1, "yes":
        [0.2, 0.8]}`.

    >>> net = bayesian_network(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"rain": ([], [0.8, 0.2]), "wet": (["rain"], [[0.9, 0.1], [0.2, 0.8]])},
    ... )
    >>> net, parents(net, "wet")
    (FactorGraph(directed, 2 variables, 2 factors, 6 table entries), (0,))
    """
    names, states, cards = _described_variables(variables)
    keys = list(names) if names is not None else list(range(len(cards)))
    known = set(keys)
    missing = [key for key in keys if key not in tables]
    unknown = [key for key in tables if key not in known]
    if missing or unknown:
        what = f"no table for variable {missing[0]}" if missing else f"no variable {unknown[0]!r}"
        raise ModelError(f"there is {what}; every variable needs exactly one table")
    place = {key: v for v, key in enumerate(keys)}
    labels = states or [[str(state) for state in range(card)] for card in cards]
    factors = []
    for key in keys:
        above, given = _parents_and_table(key, tables[key])
        family = _family(key, above, place)
        own = [labels[place[name]] for name in family]
        words = [str(name) for name in family]
        table = conditional_table(words[-1], words[:-1], own, given)
        factors.append((family, table))
    graph = FactorGraph(cards, factors, names=names, states=states, children=keys)
    check_directed(graph)
    return graph


def _parents_and_table(key: Variable, given: Any) -> tuple[Any, Any]:
    """Return the pair (parents, table); a table alone belongs to a variable without parents."""
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        above, table = given
        if isinstance(above, str | int | np.integer) and not np.isscalar(table):
            return [above], table
        if isinstance(above, Sequence) and all(
            isinstance(u, str | int | np.integer) for u in above
        ):
            return above, table
    if np.isscalar(given) or isinstance(given, Mapping) or all(map(np.isscalar, given)):
        return [], given
    raise ModelError(
        f"tables: that of {key!r} must be a pair (parents, table), such as "
        f"(['rain'], [[0.9, 0.1], [0.2, 0.8]]), got {given!r:.60}"
    )


def _family(key: Variable, given: Any, place: Mapping[Any, int]) -> list[Any]:
    """The parents of a variable, checked, and the variable itself as the last."""
    own = [given] if isinstance(given, str | int) else list(given)
    for parent in own:
        if parent not in place:
            hint = suggestion(str(parent), [str(name) for name in place])
            raise ModelError(f"the parent {parent!r} of {key!r} is not a variable; {hint}")
    if len({key, *own}) <= len(own):
        raise ModelError(f"the parents of {key!r} are {own}: one is repeated, or is {key!r}")
    return [*own, key]


def parents(graph: FactorGraph, variable: Variable) -> tuple[int, ...]:
    """Parents of a variable, in the order of its table."""
    v = graph.index(variable)
    return tuple(u for u in graph.scope(family_factor(graph, v)) if u != v)


def child_variables(graph: FactorGraph, variable: Variable) -> tuple[int, ...]:
    """Children of a variable, in order of their numbers."""
    v = graph.index(variable)
    children = _require_children(graph)
    return tuple(sorted(int(children[a]) for a in graph.neighbours(v) if children[a] != v))


def cpt(graph: FactorGraph, variable: Variable) -> ConditionalTable:
    """Return the table of a variable with the names of its axes; see `FactorGraph.cpt`."""
    v = graph.index(variable)
    if graph.children is None:
        shared = ", ".join(map(str, graph.neighbours(v))) or "none"
        raise ModelError(
            f"the model has no directions, so {graph.label(v)} has no conditional table; its "
            f"factors are {shared}: read them with graph.table(factor)"
        )
    factor, above = family_factor(graph, v), parents(graph, v)
    axes = [graph.scope(factor).index(u) for u in (*above, v)]
    states = tuple(
        graph.states[u] if graph.states else tuple(map(str, range(int(graph.cardinalities[u]))))
        for u in (*above, v)
    )
    table = graph.table(factor).transpose(axes)
    return ConditionalTable(graph.label(v), tuple(map(graph.label, above)), states, table)


def topological_order(graph: FactorGraph) -> Ints:
    """Return the variables in an order with parents before children.

    >>> net = bayesian_network([2, 2], {0: ([1], np.full(4, 0.5)), 1: ([], [0.5, 0.5])})
    >>> topological_order(net).tolist()
    [1, 0]
    """
    order = check_acyclic(dict(enumerate(_all_parents(graph))), graph.names)
    return np.fromiter(order, dtype=np.int64, count=graph.n_variables)


def check_acyclic(families: Mapping[Any, Iterable[Any]], names: Any = None) -> list[Any]:
    """Return the variables with parents before children; raise an error if the arrows form a cycle.

    `families` contains the parents of each variable, `names` the names of variables given by
    number.

    >>> check_acyclic({"wet": ["rain"], "rain": []})
    ['rain', 'wet']
    """
    try:
        return list(graphlib.TopologicalSorter(families).static_order())
    except graphlib.CycleError as error:
        words = [str(v) if names is None else names[v] for v in error.args[1]]
        raise ModelError(
            f"the directions form a cycle: {' -> '.join(words)}; remove or turn one of these arrows"
        ) from error


def check_directed(graph: FactorGraph, *, tolerance: float = TOLERANCE) -> None:
    """Raise an error if a model has a directed cycle or a conditional that does not sum to 1.

    >>> check_directed(FactorGraph([2], [((0,), [1, 3])], children=[0]))
    Traceback (most recent call last):
        ...
    kikuchi.core.errors.ModelError: p(0) sums to 4, not to 1; normalise the table of factor 0
    """
    children = _require_children(graph)
    topological_order(graph)
    for a in range(graph.n_factors):
        child = int(children[a])
        sums = graph.table(a).sum(axis=graph.scope(a).index(child))
        wrong = np.argwhere(~(np.abs(sums - 1) <= tolerance))
        if len(wrong):
            given = _row_label(graph, parents(graph, child), wrong[0])
            raise ModelError(
                f"p({graph.label(child)}{given}) sums to {sums[tuple(wrong[0])]:.9g}, not to 1; "
                f"normalise the table of factor {a}"
            )
    if abs(graph.log_constant) > tolerance:
        raise ModelError(f"a directed model has log_constant 0, got {graph.log_constant:g}")


# ---------------------------------------------------------------------- moral graphs


def moralise(graph: FactorGraph) -> FactorGraph:
    """Return the undirected model of a directed one: marry parents, drop directions.

    Each conditional p(x_i | parents) is already a table over the clique of a family and is used
    once, so only the directions are removed; log Z is 0.

    >>> net = bayesian_network([2], {0: ([], [0.5, 0.5])})
    >>> moralise(net).is_directed
    False
    """
    _require_children(graph)
    return graph.replaced(children=None)


def moral_edges(graph: FactorGraph) -> U4:
    """Edges of the moral graph: every child with its parents, and all parents of one child."""
    _require_children(graph)
    return graph.pairs()


def markov_blanket(graph: FactorGraph, variable: Variable) -> tuple[int, ...]:
    """Return the variables that separate a variable from all others.

    Parents, children and other parents of the children in a directed model, neighbours in an
    undirected one: in both, the variables that share a factor with it.

    >>> net = bayesian_network(
    ...     [2, 2, 2],
    ...     {0: ([], [0.5, 0.5]), 1: ([], [0.5, 0.5]), 2: ([0, 1], np.full((2, 2, 2), 0.5))},
    ... )
    >>> markov_blanket(net, 0)
    (1, 2)
    """
    v = graph.index(variable)
    near = {u for a in graph.neighbours(v) for u in graph.scope(a)}
    return tuple(sorted(near - {v}))


def ancestral_subgraph(graph: FactorGraph, variables: Variables) -> tuple[FactorGraph, Ints]:
    """Return the model of some variables and their ancestors, and the original numbers of its
    variables.

    All others are barren: summing out a variable without children only deletes it, so the marginal
    of the remaining variables is unchanged.

    >>> net = bayesian_network([2, 3], {0: ([], [0.5, 0.5]), 1: ([0], np.full((2, 3), 1 / 3))})
    >>> ancestral_subgraph(net, 0)[0]
    FactorGraph(directed, 1 variable, 1 factor, 2 table entries)
    """
    keep = sorted(_ancestors(_all_parents(graph), _numbers(graph, variables)))
    return part_of(graph, keep)[0], np.array(keep, dtype=np.int64)


def part_of(graph: FactorGraph, keep: Sequence[int]) -> tuple[FactorGraph, dict[int, int]]:
    """Return the model of some variables with their own tables, whose parents are among them, and
    the new numbers of the variables.
    """
    children = _require_children(graph).tolist()
    numbers = {v: k for k, v in enumerate(keep)}
    factors = [a for a in range(graph.n_factors) if children[a] in numbers]
    part = FactorGraph(
        graph.cardinalities[list(keep)],
        [([numbers[v] for v in graph.scope(a)], graph.log_table(a)) for a in factors],
        log=True,
        names=None if graph.names is None else [graph.names[v] for v in keep],
        states=None if graph.states is None else [graph.states[v] for v in keep],
        children=[numbers[children[a]] for a in factors],
        log_constant=graph.log_constant,
    )
    return part, numbers


# ---------------------------------------------------------------------- separation


def separated(graph: FactorGraph, a: Variables, b: Variables, given: Variables = ()) -> bool:
    """Return whether every path from `a` to `b` contains a variable of `given`: then a ⊥ b | given.

    Directions are ignored: for a directed model this is separation in its moral graph.

    >>> chain = FactorGraph([2, 2, 2], [((0, 1), np.ones(4)), ((1, 2), np.ones(4))])
    >>> separated(chain, 0, 2), separated(chain, 0, 2, given=1)
    (False, True)
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    start, goal, observed = _disjoint(graph, a, b, given)
    is_open = np.ones(graph.n_variables, dtype=bool)
    is_open[list(observed)] = False
    edges = is_open[graph.scopes]
    rows = graph.scopes[edges].astype(np.int64)
    cols = graph.edge_factors[edges].astype(np.int64) + graph.n_variables
    size = graph.n_variables + graph.n_factors
    matrix = coo_array((np.ones(len(rows), dtype=np.int8), (rows, cols)), shape=(size, size))
    component = connected_components(matrix, directed=False)[1]
    return not np.isin(component[list(start)], component[list(goal)]).any()


def d_separated(
    graph: FactorGraph,
    a: Variables,
    b: Variables,
    given: Variables = (),
    *,
    deterministic: bool = False,
) -> bool:
    """Return whether every path from `a` to `b` is blocked by `given`.

    A path is blocked when some variable on it is a collider that is neither observed nor has an
    observed descendant, or is observed without being a collider. The test takes time proportional
    to the number of edges. `deterministic` also uses the zeros and ones of the tables
    (D-separation): a variable that is a function of its parents counts as observed when all its
    parents do.

    >>> half = [0.5, 0.5]
    >>> net = bayesian_network(
    ...     [2, 2, 2], {0: ([], half), 1: ([], half), 2: ([0, 1], np.full((2, 2, 2), 0.5))}
    ... )
    >>> d_separated(net, 0, 1), d_separated(net, 0, 1, given=2)
    (True, False)
    """
    start, goal, observed = _disjoint(graph, a, b, given)
    family = _all_parents(graph)
    if deterministic:
        observed = _determined(graph, family, observed)
    reached = _reachable(family, start, observed)
    return reached.isdisjoint(goal)


def _reachable(family: list[tuple[int, ...]], start: set[int], observed: set[int]) -> set[int]:
    """Return the unobserved variables connected to `start` by an active path (Bayes ball)."""
    children: list[list[int]] = [[] for _ in family]
    for v, parents_of_v in enumerate(family):
        for u in parents_of_v:
            children[u].append(v)
    opens_colliders = _ancestors(family, observed)
    queue = deque((v, True) for v in start)
    seen = set(queue)
    reached: set[int] = set()
    while queue:
        v, from_child = queue.popleft()
        steps: list[tuple[int, bool]] = []
        if v not in observed:
            reached.add(v)
            steps += [(w, False) for w in children[v]]
        if (from_child and v not in observed) or (not from_child and v in opens_colliders):
            steps += [(u, True) for u in family[v]]
        for step in steps:
            if step not in seen:
                seen.add(step)
                queue.append(step)
    return reached


def _determined(graph: FactorGraph, family: list[tuple[int, ...]], observed: set[int]) -> set[int]:
    """Return the observed variables and all variables that are functions of them."""
    known = set(observed)
    for v in topological_order(graph).tolist():
        if known.issuperset(family[v]) and _is_deterministic(graph, v):
            known.add(v)
    return known


def _is_deterministic(graph: FactorGraph, v: int) -> bool:
    table = graph.log_table(family_factor(graph, v))
    axis = graph.scope(family_factor(graph, v)).index(v)
    return bool(np.all(np.count_nonzero(table > -np.inf, axis=axis) == 1))


# ---------------------------------------------------------------------- sampling


def ancestral_sample(
    graph: FactorGraph, n: int, *, seed: Seed = 0, evidence: Evidence | None = None
) -> Ints:
    """Return n independent samples, one per row, drawing every variable after its parents.

    Evidence is exact only if all ancestors of the observed variables are also observed; other
    evidence raises an error.

    >>> net = bayesian_network([2, 2], {0: ([], [0.0, 1.0]), 1: ([0], [[0.5, 0.5], [1.0, 0.0]])})
    >>> ancestral_sample(net, 2, seed=1).tolist()
    [[1, 0], [1, 0]]
    """
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 0:
        raise ModelError(f"the number of samples must be a non-negative integer, got {n!r}")
    check_directed(graph)
    observed = _root_evidence(graph, evidence)
    rng = generator(seed)
    states = np.empty((n, graph.n_variables), dtype=np.int64)
    for v in topological_order(graph).tolist():
        states[:, v] = observed[v] if v in observed else _draw(graph, v, states, rng)
    return states


def _draw(graph: FactorGraph, v: int, states: Ints, rng: np.random.Generator) -> Ints:
    """A state of v for each row of `states`, given the parents in that row."""
    factor = family_factor(graph, v)
    scope = graph.scope(factor)
    table = np.moveaxis(graph.table(factor), scope.index(v), -1)
    row = np.zeros(len(states), dtype=np.int64)
    for u in parents(graph, v):
        row = row * int(graph.cardinalities[u]) + states[:, u]
    cumulative = np.cumsum(table.reshape(-1, table.shape[-1]), axis=1)
    cumulative /= cumulative[:, -1:]
    chosen = np.zeros(len(states), dtype=np.int64)
    uniform = rng.random(len(states))
    for k in range(table.shape[-1] - 1):
        chosen += cumulative[row, k] <= uniform
    return chosen


def _root_evidence(graph: FactorGraph, evidence: Evidence | None) -> dict[int, int]:
    observed = graph.resolve(evidence)
    for v in observed:
        hidden = [u for u in parents(graph, v) if u not in observed]
        if hidden:
            raise EvidenceError(
                f"variable {graph.label(v)} is observed but its parent {graph.label(hidden[0])} "
                "is not; ancestral sampling cannot condition on it, use gibbs or jt"
            )
    return observed


# ---------------------------------------------------------------------- helpers


def _require_children(graph: FactorGraph) -> U4:
    if graph.children is None:
        raise ModelError(
            "the model has no directions; build it with bayesian_network or FactorGraph(children=)"
        )
    return graph.children


def family_factor(graph: FactorGraph, v: int) -> int:
    """The factor whose child is v."""
    children = _require_children(graph)
    return next(a for a in graph.neighbours(v) if children[a] == v)


def _all_parents(graph: FactorGraph) -> list[tuple[int, ...]]:
    """Parents of every variable, by number."""
    children = _require_children(graph)
    family: list[tuple[int, ...]] = [()] * graph.n_variables
    for a, child in enumerate(children.tolist()):
        family[child] = tuple(u for u in graph.scope(a) if u != child)
    return family


def _ancestors(family: list[tuple[int, ...]], variables: Iterable[int]) -> set[int]:
    """The variables themselves and all their ancestors."""
    ancestors = set(variables)
    stack = list(ancestors)
    while stack:
        fresh = [u for u in family[stack.pop()] if u not in ancestors]
        ancestors.update(fresh)
        stack += fresh
    return ancestors


def _numbers(graph: FactorGraph, variables: Variables) -> set[int]:
    if isinstance(variables, str) or not isinstance(variables, Iterable):
        return {graph.index(variables)}
    return {graph.index(v) for v in variables}


def _disjoint(
    graph: FactorGraph, a: Variables, b: Variables, given: Variables
) -> tuple[set[int], set[int], set[int]]:
    one, other, observed = (_numbers(graph, group) for group in (a, b, given))
    shared = (one & other) | (one & observed) | (other & observed)
    if shared:
        raise ModelError(
            f"variable {graph.label(min(shared))} is in two of the three sets; they must be "
            "disjoint"
        )
    return one, other, observed


def _described_variables(
    variables: Sequence[int] | Mapping[str, int | Sequence[str]],
) -> tuple[list[str] | None, list[list[str]] | None, list[int]]:
    """Names, names of states and cardinalities."""
    if not isinstance(variables, Mapping):
        return None, None, list(variables)
    named = {k: v for k, v in variables.items() if not isinstance(v, int | np.integer)}
    cards = [len(v) if k in named else int(v) for k, v in variables.items()]  # type: ignore[arg-type]
    if not named:
        return list(variables), None, cards
    states = [
        list(named[k]) if k in named else [str(state) for state in range(c)]
        for k, c in zip(variables, cards, strict=True)
    ]
    return list(variables), states, cards


def _row_label(graph: FactorGraph, family: tuple[int, ...], row: Ints) -> str:
    """Return a string such as ` | rain = yes` for one row of a conditional table."""
    if not family:
        return ""
    names = [
        f"{graph.label(u)} = {graph.states[u][int(k)] if graph.states else int(k)}"
        for u, k in zip(family, row, strict=True)
    ]
    return " | " + ", ".join(names)
