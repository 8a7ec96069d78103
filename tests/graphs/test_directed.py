"""Directed models: separation against independence in numbers, moral graphs, samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import networkx as nx
import numpy as np
import pytest

from kikuchi import FactorGraph
from kikuchi.core.errors import EvidenceError, ModelError
from kikuchi.graphs.directed import (
    ancestral_sample,
    ancestral_subgraph,
    bayesian_network,
    check_directed,
    child_variables,
    d_separated,
    markov_blanket,
    moral_edges,
    moralise,
    parents,
    separated,
    topological_order,
)
from oracle import enumerate_exact, random_model

HALF = [0.5, 0.5]


def random_network(
    rng: np.random.Generator, n: int, p: float = 0.4, max_card: int = 2, sharp: float = 1.5
) -> FactorGraph:
    """Random directions along a random order; the child stands anywhere in its scope."""
    order = rng.permutation(n)
    cards = rng.integers(2, max_card + 1, size=n)
    factors, children = [], []
    for k, child in enumerate(order):
        family = [int(u) for u in order[:k] if rng.random() < p][:4]
        scope = [*family, int(child)]
        table = np.exp(sharp * rng.normal(size=[cards[v] for v in scope]))
        table /= table.sum(axis=-1, keepdims=True)
        axes = rng.permutation(len(scope))
        factors.append(([scope[a] for a in axes], np.transpose(table, axes)))
        children.append(int(child))
    return FactorGraph(cards, factors, children=children)


def joint(graph: FactorGraph) -> np.ndarray:
    states = np.array(list(itertools.product(*(range(int(c)) for c in graph.cardinalities))))
    weights = np.exp(graph.log_score(states)).reshape(graph.cardinalities)
    return weights / weights.sum()


def mutual_information(
    p: np.ndarray, a: Iterable[int], b: Iterable[int], given: Iterable[int]
) -> float:
    """I(a; b | given) in nats, from the joint table."""

    def entropy(keep: Iterable[int]) -> float:
        kept = set(keep)
        q = p.sum(axis=tuple(v for v in range(p.ndim) if v not in kept)).ravel()
        q = q[q > 0]
        return float(-(q * np.log(q)).sum())

    a, b, c = set(a), set(b), set(given)
    return entropy(a | c) + entropy(b | c) - entropy(a | b | c) - entropy(c)


def triples(n: int) -> Iterable[tuple[int, int, tuple[int, ...]]]:
    for a, b in itertools.combinations(range(n), 2):
        rest = [v for v in range(n) if v not in (a, b)]
        for size in range(len(rest) + 1):
            for given in itertools.combinations(rest, size):
                yield a, b, given


def as_networkx(graph: FactorGraph) -> nx.DiGraph:
    directed = nx.DiGraph()
    directed.add_nodes_from(range(graph.n_variables))
    for v in range(graph.n_variables):
        directed.add_edges_from((u, v) for u in parents(graph, v))
    return directed


# ---------------------------------------------------------------------- construction


def test_a_network_from_names() -> None:
    net = bayesian_network(
        {"rain": ["no", "yes"], "mood": 3},
        {"rain": ([], [0.8, 0.2]), "mood": (["rain"], [[0.2, 0.3, 0.5], [0.5, 0.5, 0.0]])},
    )
    assert net.names == ("rain", "mood")
    assert net.states == (("no", "yes"), ("0", "1", "2"))
    assert net.children is not None
    assert net.children.tolist() == [0, 1]
    assert np.allclose(net.table(1)[1], [0.5, 0.5, 0.0])
    assert bayesian_network({"a": 2}, {"a": ([], HALF)}).states is None


@pytest.mark.parametrize(
    ("variables", "tables", "message"),
    [
        ([2, 2], {0: ([], HALF)}, "no table for variable 1"),
        ([2], {0: ([], HALF), 5: ([], HALF)}, "no variable 5"),
        ([2], {0: ([], [0.5, 0.6])}, r"p\(0\) sums to 1.1, not to 1"),
        (
            {"a": ["n", "y"], "b": 2},
            {"a": ([], HALF), "b": (["a"], [HALF, [0.5, 0.4]])},
            r"p\(b \| a = y\) sums to 0.9",
        ),
        ([2, 2], {0: ([1], [HALF, HALF]), 1: ([0], [HALF, HALF])}, "form a cycle: "),
        ([2, 2], {0: ([], HALF), 1: ([7], [HALF, HALF])}, "parent 7 of 1 is not a variable"),
        ([2, 2], {0: ([], HALF), 1: ([0], HALF)}, r"p\(1 \| 0\): the table has shape \(2,\)"),
    ],
)
def test_bad_networks_are_refused(variables, tables, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        bayesian_network(variables, tables)


def test_cycles_are_named() -> None:
    pair = np.full((2, 2), 0.5)
    graph = FactorGraph(
        [2] * 4,
        [(("a",), HALF), (("d", "b"), pair), (("b", "c"), pair), (("c", "d"), pair)],
        names="abcd",
        children=["a", "b", "c", "d"],
    )
    with pytest.raises(ModelError, match="cycle") as caught:
        topological_order(graph)
    assert set("bcd") <= set(str(caught.value).split(": ")[1].split(";")[0])


def test_a_scaled_network_is_refused() -> None:
    graph = FactorGraph([2], [((0,), HALF)], children=[0], log_constant=1.0)
    with pytest.raises(ModelError, match="log_constant 0"):
        check_directed(graph)


def test_undirected_models_have_no_directions() -> None:
    graph = FactorGraph([2], [((0,), HALF)])
    for function in (topological_order, moralise, moral_edges, check_directed):
        with pytest.raises(ModelError, match="no directions"):
            function(graph)
    for function in (parents, child_variables):
        with pytest.raises(ModelError, match="no directions"):
            function(graph, 0)
    with pytest.raises(ModelError, match="no directions"):
        ancestral_sample(graph, 3)
    two = FactorGraph([2, 2], [((0,), HALF)])
    with pytest.raises(ModelError, match="no directions"):
        d_separated(two, 0, 1)


# ---------------------------------------------------------------------- families and orders


@pytest.mark.parametrize("seed", range(10))
def test_families_agree_with_networkx(seed: int) -> None:
    graph = random_network(np.random.default_rng(seed), 8)
    directed = as_networkx(graph)
    for v in range(8):
        assert child_variables(graph, v) == tuple(sorted(directed.successors(v)))
    place = {int(v): k for k, v in enumerate(topological_order(graph))}
    assert sorted(place) == list(range(8))
    assert all(place[u] < place[v] for u, v in directed.edges)


@pytest.mark.parametrize("seed", range(5))
def test_the_joint_sums_to_one_and_moralising_keeps_it(seed: int) -> None:
    """HOJ-M1 (a), HOJ-I2, LIU-M1: log Z = 0."""
    graph = random_network(np.random.default_rng(seed), 6, max_card=3)
    check_directed(graph)
    undirected = moralise(graph)
    assert not undirected.is_directed
    log_z, _, _ = enumerate_exact(undirected)
    assert log_z == pytest.approx(0.0, abs=1e-12)
    assert np.array_equal(joint(undirected), joint(graph))


@pytest.mark.parametrize("seed", range(10))
def test_markov_blanket_is_parents_children_and_coparents(seed: int) -> None:
    # HOJ-I1
    graph = random_network(np.random.default_rng(seed), 8)
    directed = as_networkx(graph)
    moral = nx.moral_graph(directed)
    assert {tuple(e) for e in moral_edges(graph).tolist()} == {
        (min(e), max(e)) for e in moral.edges
    }
    for v in range(8):
        children = set(directed.successors(v))
        coparents = {u for w in children for u in directed.predecessors(w)} - {v}
        expected = set(directed.predecessors(v)) | children | coparents
        assert set(markov_blanket(graph, v)) == expected == set(moral.neighbors(v))
        others = set(range(8)) - expected - {v}
        if others:
            assert d_separated(graph, v, others, expected)


def test_markov_blanket_of_an_undirected_model_is_its_neighbours() -> None:
    graph = random_model(np.random.default_rng(0), n=7, n_factors=6)
    neighbours = nx.Graph(graph.pairs().tolist())
    for v in range(7):
        expected = set(neighbours.neighbors(v)) if v in neighbours else set()
        assert set(markov_blanket(graph, v)) == expected


def test_a_v_structure_gains_exactly_one_edge() -> None:
    net = bayesian_network(
        [2, 2, 2], {0: ([], HALF), 1: ([], HALF), 2: ([0, 1], np.full((2, 2, 2), 0.5))}
    )
    assert moral_edges(net).tolist() == [[0, 1], [0, 2], [1, 2]]
    chain = bayesian_network(
        [2, 2, 2], {0: ([], HALF), 1: ([0], [HALF, HALF]), 2: ([1], [HALF, HALF])}
    )
    assert moral_edges(chain).tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("seed", range(8))
def test_barren_variables_can_be_deleted(seed: int) -> None:
    """HOJ-M1 (d): the joint of the rest is unchanged."""
    rng = np.random.default_rng(seed)
    graph = random_network(rng, 7, p=0.3, max_card=3)
    wanted = [int(v) for v in rng.choice(7, size=2, replace=False)]
    reduced, numbers = ancestral_subgraph(graph, wanted)
    directed = as_networkx(graph)
    expected = set(wanted).union(*(nx.ancestors(directed, v) for v in wanted))
    assert set(numbers.tolist()) == expected
    check_directed(reduced)
    gone = tuple(v for v in range(7) if v not in expected)
    assert np.allclose(joint(reduced), joint(graph).sum(axis=gone), atol=1e-14)


def test_barren_removal_keeps_names() -> None:
    net = bayesian_network(
        {"a": ["n", "y"], "b": ["n", "y"], "c": ["n", "y"]},
        {"a": ([], HALF), "b": (["a"], [HALF, HALF]), "c": (["a"], [HALF, HALF])},
    )
    reduced, numbers = ancestral_subgraph(net, "c")
    assert reduced.names == ("a", "c")
    assert numbers.tolist() == [0, 2]


# ---------------------------------------------------------------------- separation (TEH-T44)


@pytest.mark.parametrize("seed", range(6))
def test_d_separation_is_independence_in_numbers(seed: int) -> None:
    """HOJ-M1 (c), TEH-T44: separated pairs are independent, all others are not."""
    # TEH-M3
    graph = random_network(np.random.default_rng(seed), 5)
    p = joint(graph)
    for a, b, given in triples(5):
        information = mutual_information(p, {a}, {b}, given)
        if d_separated(graph, a, b, given):
            assert abs(information) < 1e-12
        else:
            assert information > 1e-10


@pytest.mark.parametrize("seed", range(6))
def test_d_separation_agrees_with_networkx_and_the_moral_ancestral_graph(seed: int) -> None:
    # HOJ-I1
    rng = np.random.default_rng(100 + seed)
    graph = random_network(rng, 9, p=0.3)
    directed = as_networkx(graph)
    for _ in range(200):
        order = [int(v) for v in rng.permutation(9)]
        sizes = rng.integers(1, 3, size=2)
        a = set(order[: sizes[0]])
        b = set(order[sizes[0] : sizes[0] + sizes[1]])
        given = set(order[sizes.sum() : sizes.sum() + int(rng.integers(0, 4))])
        answer = d_separated(graph, a, b, given)
        assert answer == nx.is_d_separator(directed, a, b, given)
        assert answer == d_separated(graph, b, a, given)
        reduced, numbers = ancestral_subgraph(graph, a | b | given)
        new = {int(v): k for k, v in enumerate(numbers)}
        moral = moralise(reduced)
        sets = ({new[v] for v in group} for group in (a, b, given))
        assert answer == separated(moral, *sets)


@pytest.mark.parametrize("seed", range(6))
def test_separation_is_independence_in_undirected_models(seed: int) -> None:
    """TEH-M1 (a), TEH-T44; random positive tables make all other pairs dependent."""
    # HOJ-M2
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, n_factors=5, max_order=3, max_card=2, scale=1.5)
    p = joint(graph)
    for a, b, given in triples(5):
        information = mutual_information(p, {a}, {b}, given)
        if separated(graph, a, b, given):
            assert abs(information) < 1e-12
        else:
            assert information > 1e-10


THREE_NODES = {
    "serial": ({0: ([], HALF), 1: ([0], [HALF, HALF]), 2: ([1], [HALF, HALF])}, False, True),
    "diverging": ({1: ([], HALF), 0: ([1], [HALF, HALF]), 2: ([1], [HALF, HALF])}, False, True),
    "converging": ({0: ([], HALF), 2: ([], HALF), 1: ([0, 2], [[HALF] * 2] * 2)}, True, False),
}


@pytest.mark.parametrize("kind", THREE_NODES)
def test_the_three_connections(kind: str) -> None:
    tables, free, observed = THREE_NODES[kind]
    net = bayesian_network([2, 2, 2], tables)
    assert d_separated(net, 0, 2) is free
    assert d_separated(net, 0, 2, given=1) is observed


def test_a_descendant_of_a_collider_opens_it() -> None:
    net = bayesian_network(
        [2] * 4,
        {
            0: ([], HALF),
            1: ([], HALF),
            2: ([0, 1], np.full((2, 2, 2), 0.5)),
            3: ([2], [HALF, HALF]),
        },
    )
    assert d_separated(net, 0, 1)
    assert not d_separated(net, 0, 1, given=3)
    assert d_separated(net, 0, 3, given=2)


def test_deterministic_variables_block_when_their_parents_are_known() -> None:
    """D-separation: x = f(a), and x screens b from c; a observed makes x known."""
    copy = np.eye(2)
    mixed = [[0.8, 0.2], [0.3, 0.7]]
    net = bayesian_network(
        {"a": 2, "x": 2, "b": 2, "c": 2},
        {"a": ([], HALF), "x": (["a"], copy), "b": (["x"], mixed), "c": (["x"], mixed)},
    )
    assert not d_separated(net, "b", "c", given="a")
    assert d_separated(net, "b", "c", given="a", deterministic=True)
    assert not d_separated(net, "b", "c", deterministic=True)
    assert mutual_information(joint(net), {2}, {3}, {0}) == pytest.approx(0.0, abs=1e-12)
    assert mutual_information(joint(net), {2}, {3}, set()) > 1e-3


@pytest.mark.parametrize("seed", range(6))
def test_what_deterministic_variables_separate_is_independent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = random_network(rng, 5, p=0.5)
    factors = []
    for a in range(5):
        scope, table = base.scope(a), base.table(a)
        if rng.random() < 0.5 and len(scope) > 1:
            assert base.children is not None
            axis = scope.index(int(base.children[a]))
            best = table.argmax(axis=axis)
            table = (np.expand_dims(best, axis) == np.indices(table.shape)[axis]).astype(float)
        factors.append((scope, table))
    assert base.children is not None
    graph = FactorGraph(base.cardinalities, factors, children=base.children.tolist())
    p = joint(graph)
    for a, b, given in triples(5):
        plain = d_separated(graph, a, b, given)
        more = d_separated(graph, a, b, given, deterministic=True)
        assert more or not plain
        if more:
            assert abs(mutual_information(p, {a}, {b}, given)) < 1e-12


def test_sets_must_be_apart() -> None:
    graph = random_network(np.random.default_rng(0), 4)
    for sets in [(0, 0, ()), (0, 1, 0), (0, [1, 2], [2])]:
        with pytest.raises(ModelError, match="two of the three sets"):
            d_separated(graph, *sets)
        with pytest.raises(ModelError, match="two of the three sets"):
            separated(graph, *sets)
    with pytest.raises(ModelError, match="no variable 9"):
        d_separated(graph, 0, 9)


# ---------------------------------------------------------------------- samples


def test_samples_have_the_frequencies_of_the_joint() -> None:
    graph = random_network(np.random.default_rng(3), 5, p=0.5, max_card=3)
    p = joint(graph)
    n = 200_000
    samples = ancestral_sample(graph, n, seed=1)
    assert samples.shape == (n, 5)
    counts = np.bincount(np.ravel_multi_index(tuple(samples.T), p.shape), minlength=p.size)
    error = np.abs(counts / n - p.ravel())
    assert np.all(error < 6 * np.sqrt(p.ravel() * (1 - p.ravel()) / n) + 1e-9)


def test_samples_never_have_probability_zero() -> None:
    table = [[0.3, 0.0, 0.7, 0.0], [0.0, 0.1, 0.9, 0.0]]
    net = bayesian_network([2, 4], {0: ([], HALF), 1: ([0], table)})
    samples = ancestral_sample(net, 20_000, seed=0)
    assert np.isfinite(net.log_score(samples)).all()


def test_samples_are_seeded() -> None:
    graph = random_network(np.random.default_rng(0), 6)
    assert np.array_equal(ancestral_sample(graph, 50, seed=4), ancestral_sample(graph, 50, seed=4))
    assert not np.array_equal(
        ancestral_sample(graph, 50, seed=4), ancestral_sample(graph, 50, seed=5)
    )
    assert ancestral_sample(graph, 0).shape == (0, 6)


def test_evidence_at_the_roots_conditions_exactly() -> None:
    net = bayesian_network(
        {"a": 2, "b": 2, "c": 2},
        {
            "a": ([], [0.9, 0.1]),
            "b": (["a"], [[0.9, 0.1], [0.2, 0.8]]),
            "c": (["b"], [[0.7, 0.3], [0.4, 0.6]]),
        },
    )
    samples = ancestral_sample(net, 50_000, seed=0, evidence={"a": 1})
    assert np.all(samples[:, 0] == 1)
    assert samples[:, 1].mean() == pytest.approx(0.8, abs=0.01)
    with pytest.raises(EvidenceError, match="its parent a is not"):
        ancestral_sample(net, 5, evidence={"b": 1})


@pytest.mark.parametrize("n", [-1, 2.5, True])
def test_a_bad_number_of_samples_is_refused(n: object) -> None:
    net = bayesian_network([2], {0: ([], HALF)})
    with pytest.raises(ModelError, match="number of samples"):
        ancestral_sample(net, n)  # type: ignore[arg-type]
