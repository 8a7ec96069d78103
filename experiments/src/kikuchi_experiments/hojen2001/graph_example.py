"""Højen-Sørensen's thesis, chapter 2: moralisation, triangulation, junction trees (HOJ-E11)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.seeds import generator
from kikuchi.graphs.directed import (
    ancestral_subgraph,
    bayesian_network,
    d_separated,
    markov_blanket,
    moral_edges,
    moralise,
    separated,
)
from kikuchi.graphs.elimination import Elimination
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.junction_tree import Clique, Separator, junction_tree
from kikuchi_experiments import figures
from kikuchi_experiments.aggregate import (
    Claims,
    all_of,
    below,
    holds,
    of_total,
    significant,
    within,
)
from kikuchi_experiments.experiment import Case, Experiment, Finished, Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = "ABCDEF"
PARENTS = {"A": "", "B": "A", "C": "A", "D": "B", "E": "CD", "F": "DE"}
ORDERS = ("ABCDEF", "ADBCEF")
STATEMENTS = (  # first, second, given, whether independent
    ("B", "C", "A", True),
    ("B", "C", "AE", False),
    ("B", "C", "AF", False),
    ("A", "D", "B", True),
    ("A", "D", "BE", False),
    ("A", "E", "D", False),
    ("A", "E", "CD", True),
    ("A", "F", "DE", True),
    ("C", "D", "B", True),
    ("C", "D", "", False),
)
_PLACES = {
    "A": (0.0, 1.3),
    "B": (0.0, 0.3),
    "C": (1.0, 1.0),
    "D": (1.15, 0.0),
    "E": (2.0, 1.3),
    "F": (2.15, 0.3),
}
_DEPENDENT = 1e-6  # random tables leave more than this of a dependence that is there
_INDEPENDENT = 1e-12


class GraphExample(Experiment):
    """A worked example with the properties of figures 2.5 and 2.6 (HOJ-E11, I1, I2, I3)."""

    id: ClassVar[str] = "HOJ-E11"

    def run_case(self, case: Case) -> Result:
        """The graphs of the example, and its statements in numbers with random tables."""
        net = example_network(case["states"], case["seed"])
        joint = joint_table(net)
        moral = moralise(net)
        trees = [_tree_facts(moral, order, joint) for order in ORDERS]
        return {
            "married": married_parents(net),
            "moral_error": float(np.abs(joint_table(moral) - joint).max()),
            "blankets_agree": all(_blanket_agrees(net, v) for v in range(net.n_variables)),
            "trees": trees,
            "statements": [_statement_facts(net, joint, *words[:3]) for words in STATEMENTS],
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Properties of the two figures, then the checks in numbers."""
        results = [one.result for one in finished]
        return [*_graph_rows(results[0]), *_number_rows(results)]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """The graphs and the trees."""
        result = finished[0].result
        arrows = [(p, child) for child, parents in PARENTS.items() for p in parents]
        married = [_as_pair(text) for text in result["married"]]
        moral = [*arrows, *married]
        panels: list[Any] = [
            ("directed graph", arrows, married, True),
            ("moral graph", moral, [], False),
        ]
        trees = []
        for order, tree in zip(ORDERS, result["trees"], strict=True):
            fill = [_as_pair(text) for text in tree["fill"]]
            panels.append((f"eliminating {order[0]}, {order[1]}, …", moral, fill, False))
            trees.append((f"its junction tree: {tree['states']} states", *_tree_texts(tree)))
        return figures.graph_panels(_PLACES, panels, trees)


# ---------------------------------------------------------------------- the example


def example_network(states: int, seed: int) -> FactorGraph:
    """The directed model of the example with random tables.

    >>> net = example_network(2, 0)
    >>> net, married_parents(net)
    (FactorGraph(directed, 6 variables, 6 factors, 30 table entries), ['CD'])
    """
    rng = generator(seed)
    return bayesian_network(
        dict.fromkeys(NAMES, states),
        {
            child: (list(parents), rng.dirichlet(np.ones(states), (states,) * len(parents)))
            for child, parents in PARENTS.items()
        },
    )


def joint_table(graph: FactorGraph) -> Array:
    """The joint distribution as one array, by multiplying all tables."""
    shape = tuple(graph.cardinalities.tolist())
    states = np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape), axis=1)
    weights: Array = np.exp(np.asarray(graph.log_score(states)))
    return weights.reshape(shape)


def married_parents(net: FactorGraph) -> list[str]:
    """Edges that only the moral graph has."""
    directed = {frozenset((p, child)) for child, parents in PARENTS.items() for p in parents}
    moral = {frozenset(NAMES[int(v)] for v in pair) for pair in moral_edges(net)}
    return sorted("".join(sorted(pair)) for pair in moral - directed)


def _blanket_agrees(net: FactorGraph, v: int) -> bool:
    """Neighbours in the moral graph, and `markov_blanket`, against the definition (HOJ-I1)."""
    name = NAMES[v]
    families = [{child, *parents} for child, parents in PARENTS.items()]
    by_definition = set().union(*(family for family in families if name in family)) - {name}
    near = {int(u) for pair in moral_edges(net) for u in pair if v in pair.tolist()} - {v}
    return {NAMES[u] for u in near} == by_definition and near == set(markov_blanket(net, v))


# ---------------------------------------------------------------------- elimination


def eliminated(
    graph: FactorGraph, order: Sequence[int]
) -> tuple[Elimination, list[tuple[int, int]]]:
    """Eliminate in the given order (HOJ-I3): the cliques, and the fill-in edges.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones(4)) for i in range(4)])
    >>> eliminated(square, [0, 1, 2, 3])[1]
    [(1, 3)]
    """
    near: dict[int, set[int]] = {v: set() for v in range(graph.n_variables)}
    for one, other in graph.pairs().tolist():
        near[one].add(other)
        near[other].add(one)
    rest: list[list[int]] = []
    fill: list[tuple[int, int]] = []
    for v in order:
        around = sorted(near.pop(v))
        rest.append(around)
        for u in around:
            near[u].discard(v)
        for one, other in itertools.combinations(around, 2):
            if other not in near[one]:
                fill.append((one, other))
                near[one].add(other)
                near[other].add(one)
    return _as_elimination(graph, order, rest), fill


def _as_elimination(
    graph: FactorGraph, order: Sequence[int], rest: Sequence[Sequence[int]]
) -> Elimination:
    sizes = [
        float(np.prod(graph.cardinalities[[v, *around]]))
        for v, around in zip(order, rest, strict=True)
    ]
    return Elimination(
        n_variables=graph.n_variables,
        order=np.array(order, dtype=np.uint32),
        neighbour_offsets=np.cumsum([0, *map(len, rest)]),
        neighbours=np.array([u for around in rest for u in around], dtype=np.uint32),
        width=max(map(len, rest)),
        log2_weight=float(np.log2(max(sizes))),
        cost=sum(sizes),
        effort=0,
    )


def _tree_facts(graph: FactorGraph, order: str, joint: Array) -> Result:
    elimination, fill = eliminated(graph, [NAMES.index(name) for name in order])
    tree = junction_tree(elimination)
    cliques, separators = tree.cliques, tree.separators
    states = [int(np.prod(graph.cardinalities[list(clique)])) for clique in cliques]
    return {
        "order": order,
        "fill": [_text(pair) for pair in fill],
        "cliques": [_text(clique) for clique in cliques],
        "separators": [[one, other, _text(members)] for one, other, members in separators],
        "states": sum(states),
        "running_intersection": running_intersection(cliques, separators),
        "error": float(np.abs(_from_marginals(joint, cliques, separators) - joint).max()),
    }


def running_intersection(cliques: Sequence[Clique], separators: Sequence[Separator]) -> bool:
    """Whether the cliques with any one variable are connected by separators that hold it."""
    for v in {v for clique in cliques for v in clique}:
        inside = sum(v in clique for clique in cliques)
        joined = sum(v in members for _, _, members in separators)
        if inside - joined != 1:  # a forest over them with one tree
            return False
    return len(separators) == len(cliques) - 1


def _from_marginals(
    joint: Array, cliques: Sequence[Clique], separators: Sequence[Separator]
) -> Array:
    """Product of clique marginals over product of separator marginals (HOJ 2.13)."""
    product = np.ones_like(joint)
    for clique in cliques:
        product = product * _marginal(joint, clique)
    for _, _, members in separators:
        product = product / _marginal(joint, members)
    return product


def _marginal(joint: Array, keep: Sequence[int]) -> Array:
    axes = tuple(v for v in range(joint.ndim) if v not in keep)
    total: Array = joint.sum(axis=axes, keepdims=True)
    return total


# ---------------------------------------------------------------------- independence


def _statement_facts(net: FactorGraph, joint: Array, one: str, other: str, given: str) -> Result:
    """A ⊥ B | C decided on the directed graph, on its moral ancestral graph, and in numbers."""
    a, b, c = NAMES.index(one), NAMES.index(other), [NAMES.index(name) for name in given]
    ancestral, kept = ancestral_subgraph(net, [a, b, *c])
    place = {int(v): k for k, v in enumerate(kept)}
    return {
        "statement": f"{one} ⊥ {other}" + (f" | {', '.join(given)}" if given else ""),
        "d_separated": d_separated(net, a, b, c),
        "moral_separated": separated(
            moralise(ancestral), place[a], place[b], [place[v] for v in c]
        ),
        "dependence": dependence(joint, a, b, c),
    }


def dependence(joint: Array, a: int, b: int, given: Sequence[int]) -> float:
    """Largest |p(a, b | c) - p(a | c) p(b | c)| over all states."""
    both = _marginal(joint, [a, b, *given])
    total = _marginal(joint, given)
    apart = _marginal(joint, [a, *given]) * _marginal(joint, [b, *given]) / total
    return float(np.abs((both - apart) / total).max())


# ---------------------------------------------------------------------- the table


_CLAIMS = Claims.of(__name__, "HOJ-E11")


def _graph_rows(result: Result) -> list[Row]:
    first, second = result["trees"]
    married = len(result["married"])
    cliques = [tree["cliques"] for tree in (first, second)]
    texts = [", ".join(names) for names in cliques]
    sizes = f"{first['states']} against {second['states']}"
    return [
        _CLAIMS.row("married", married, within(married, 1, 0)),
        _CLAIMS.row("first", len(cliques[0]), within(len(cliques[0]), 4, 0), cliques=texts[0]),
        _CLAIMS.row("second", len(cliques[1]), within(len(cliques[1]), 2, 0), cliques=texts[1]),
        _CLAIMS.row("states", sizes, below(first["states"], second["states"])),
    ]


def _number_rows(results: Sequence[Result]) -> list[Row]:
    trees = [tree for result in results for tree in result["trees"]]
    moral = max(result["moral_error"] for result in results)
    factored = max(tree["error"] for tree in trees)
    valid = all(tree["running_intersection"] for tree in trees)
    right = [_all_agree(k, results) for k in range(len(STATEMENTS))]
    blankets = all(result["blankets_agree"] for result in results)
    ours = of_total(sum(right), len(right))
    return [
        _CLAIMS.row("moral", significant(moral, 2), below(moral, _INDEPENDENT)),
        _CLAIMS.row("factored", significant(factored, 2), below(factored, _INDEPENDENT)),
        _CLAIMS.row("trees", "all" if valid else "not all", holds(valid, "all"), count=len(trees)),
        _CLAIMS.row("blankets", "all" if blankets else "not all", holds(blankets, "all")),
        _CLAIMS.row("alike", ours, all_of(sum(right), len(right)), count=len(results)),
    ]


def _all_agree(k: int, results: Sequence[Result]) -> bool:
    expected = STATEMENTS[k][3]
    facts = [result["statements"][k] for result in results]
    graphs = all(f["d_separated"] == f["moral_separated"] == expected for f in facts)
    largest = max(f["dependence"] for f in facts)
    return graphs and (largest < _INDEPENDENT if expected else largest > _DEPENDENT)


def _text(variables: Sequence[int]) -> str:
    return "".join(NAMES[v] for v in sorted(variables))


def _as_pair(text: str) -> tuple[str, str]:
    return text[0], text[1]


def _tree_texts(tree: Result) -> tuple[list[str], list[tuple[int, int, str]]]:
    joins = [(one, other, " ".join(members)) for one, other, members in tree["separators"]]
    return [" ".join(clique) for clique in tree["cliques"]], joins
