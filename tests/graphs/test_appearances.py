"""Appearance probabilities of factors in forests (LIU-D6, LIU-I8, test LIU-C22)."""

from __future__ import annotations

import itertools
import time

import networkx as nx
import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import BudgetError, MethodError, OutOfTimeError
from kikuchi.graphs.appearances import (
    Appearances,
    forest_appearances,
    given_appearances,
    sampled_appearances,
    uniform_appearances,
)
from oracle import random_model


def pairs_of(graph: kk.FactorGraph) -> np.ndarray:
    return np.flatnonzero(np.diff(graph.scope_offsets) == 2)


def model_of(n: int, edges: list[tuple[int, int]]) -> kk.FactorGraph:
    return kk.FactorGraph([2] * n, [(e, np.ones((2, 2))) for e in edges])


def spanning_forests(graph: kk.FactorGraph) -> list[tuple[int, ...]]:
    """All spanning forests as sets of factors, by trying every set of the right size."""
    chosen = pairs_of(graph)
    size = graph.n_variables - graph.n_components
    found = []
    for subset in itertools.combinations(chosen.tolist(), size):
        g = nx.MultiGraph()
        g.add_nodes_from(range(graph.n_variables))
        g.add_edges_from(graph.scope(a) for a in subset)
        if nx.number_connected_components(g) == graph.n_components:
            found.append(subset)
    return found


def parent_frequencies(graph: kk.FactorGraph, forests: list[tuple[int, ...]]) -> np.ndarray:
    """How often each variable is the parent of each factor, over all forests and all roots."""
    count = np.zeros(graph.n_edges)
    for forest in forests:
        bipartite = nx.Graph()
        bipartite.add_nodes_from(range(graph.n_variables))
        for a in forest:
            bipartite.add_edges_from((f"f{a}", v) for v in graph.scope(a))
        for part in nx.connected_components(bipartite):
            roots = [v for v in part if not isinstance(v, str)]
            for root in roots:
                for child, parent in nx.bfs_predecessors(bipartite, root):
                    if isinstance(child, str):
                        a = int(child[1:])
                        e = graph.scope_offsets[a] + graph.scope(a).index(parent)
                        count[e] += 1 / len(roots)
    return count / len(forests)


def root_weights(graph: kk.FactorGraph, found: Appearances) -> np.ndarray:
    children = found.weights[graph.edge_factors] - found.parents
    return 1.0 - np.bincount(graph.scopes, children, graph.n_variables)


def check_parts(graph: kk.FactorGraph, found: Appearances) -> None:
    assert found.parents.min() >= 0
    sums = np.bincount(graph.edge_factors, found.parents, graph.n_factors)
    np.testing.assert_allclose(sums, found.weights, atol=1e-12)
    assert root_weights(graph, found).min() > -1e-12


# ---------------------------------------------------------------------- uniform


@pytest.mark.parametrize(
    "graph",
    [
        kk.grid(3, 3),
        kk.generate.complete(5),
        model_of(4, [(0, 1), (0, 1), (1, 2), (2, 0), (1, 0), (2, 3)]),
        model_of(7, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (3, 4)]),
        model_of(3, [(2, 1)]),
    ],
)
def test_uniform_is_the_frequency_in_all_spanning_trees(graph: kk.FactorGraph) -> None:
    """LIU-C22, parallel factors and several components included."""
    forests = spanning_forests(graph)
    found = uniform_appearances(graph)
    count = np.bincount(np.ravel(forests), minlength=graph.n_factors) / len(forests)
    pairs = pairs_of(graph)
    np.testing.assert_allclose(found.weights[pairs], count[pairs], atol=1e-12)
    expected = parent_frequencies(graph, forests)
    inside = np.isin(graph.edge_factors, pairs)
    np.testing.assert_allclose(found.parents[inside], expected[inside], atol=1e-12)
    check_parts(graph, found)


def test_grid_of_three_has_192_spanning_trees() -> None:
    assert len(spanning_forests(kk.grid(3, 3))) == 192


def test_closed_forms() -> None:
    for n in (3, 6, 30):
        graph = kk.generate.complete(n)
        np.testing.assert_allclose(
            uniform_appearances(graph).weights[pairs_of(graph)], 2 / n, atol=1e-12
        )
    m, n = 4, 7
    bipartite = model_of(m + n, [(i, m + j) for i in range(m) for j in range(n)])
    weights = uniform_appearances(bipartite).weights
    np.testing.assert_allclose(weights, (m + n - 1) / (m * n), atol=1e-12)


def test_large_graphs_agree_with_a_dense_pseudo_inverse() -> None:
    graph = kk.generate.random_graph(150, p=0.03, seed=3)
    pairs = pairs_of(graph)
    laplacian = np.zeros((150, 150))
    for a in pairs:
        i, j = graph.scope(int(a))
        laplacian[[i, j], [i, j]] += 1
        laplacian[[i, j], [j, i]] -= 1
    inverse = np.linalg.pinv(laplacian, rcond=1e-10, hermitian=True)
    ends = np.array([graph.scope(int(a)) for a in pairs])
    i, j = ends.T
    expected = inverse[i, i] + inverse[j, j] - 2 * inverse[i, j]
    found = uniform_appearances(graph)
    np.testing.assert_allclose(found.weights[pairs], expected, atol=1e-9)
    assert found.weights[pairs].sum() == pytest.approx(150 - graph.n_components, abs=1e-9)
    check_parts(graph, found)


def test_uniform_refuses_larger_factors_and_small_budgets() -> None:
    triple = kk.FactorGraph([2] * 3, [((0, 1, 2), np.ones(8))])
    with pytest.raises(MethodError, match="at most two variables; use sampled"):
        uniform_appearances(triple)
    with pytest.raises(BudgetError, match="use appearances=sampled"):
        uniform_appearances(kk.grid(20, 20), kk.Budget(bytes=1000))


# ---------------------------------------------------------------------- forests


def test_greedy_forest_is_a_heaviest_spanning_tree() -> None:
    rng = np.random.default_rng(0)
    for seed in range(10):
        graph = kk.generate.random_graph(12, p=0.4, seed=seed)
        gains = rng.random(graph.n_factors)
        pairs = pairs_of(graph)
        g = nx.Graph()
        g.add_weighted_edges_from((*graph.scope(int(a)), gains[a]) for a in pairs)
        best = sum(d["weight"] for _, _, d in nx.maximum_spanning_edges(g, data=True))
        found = forest_appearances(graph, gains)
        assert gains[pairs] @ found.weights[pairs] == pytest.approx(best)


def test_forests_of_any_factors_have_no_cycle_and_cannot_grow() -> None:
    rng = np.random.default_rng(1)
    for seed in range(40):
        graph = random_model(np.random.default_rng(seed), n=8, n_factors=10, max_order=4)
        found = forest_appearances(graph, rng.random(graph.n_factors))
        many = np.diff(graph.scope_offsets) > 1
        chosen = np.flatnonzero((found.weights == 1) & many)

        def part(factors: np.ndarray, graph: kk.FactorGraph = graph) -> kk.FactorGraph:
            tables = [(graph.scope(int(a)), graph.table(int(a))) for a in factors]
            return kk.FactorGraph(graph.cardinalities, tables)

        assert part(chosen).is_forest
        for a in np.flatnonzero((found.weights == 0) & many):
            assert not part(np.append(chosen, a)).is_forest
        expected = parent_frequencies(graph, [tuple(chosen.tolist())])
        inside = many[graph.edge_factors]
        np.testing.assert_allclose(found.parents[inside], expected[inside], atol=1e-12)


def test_sampled_appearances_bound_the_entropy() -> None:
    """H(p) <= sum_i H_i - sum_a rho_a I_a for every p, here for concentrated random ones."""

    def entropy(p: np.ndarray) -> float:
        return float(-np.sum(p[p > 0] * np.log(p[p > 0])))

    for seed in range(15):
        rng = np.random.default_rng(seed)
        graph = random_model(rng, n=6, n_factors=9, max_order=4, max_card=2)
        found = sampled_appearances(graph, 20, rng)
        many = np.diff(graph.scope_offsets) > 1
        assert found.weights[many].min() > 0 and found.weights.max() <= 1
        check_parts(graph, found)
        for concentration in (0.02, 0.3):
            p = rng.dirichlet(np.full(64, concentration)).reshape([2] * 6)
            axes = range(6)
            singles = [entropy(p.sum(axis=tuple(w for w in axes if w != v))) for v in axes]
            bound = sum(singles)
            for a in np.flatnonzero(many):
                scope = graph.scope(int(a))
                joint = entropy(p.sum(axis=tuple(w for w in axes if w not in scope)))
                bound -= found.weights[a] * (sum(singles[v] for v in scope) - joint)
            assert entropy(p) <= bound + 1e-12


def test_sampling_is_repeatable_and_near_uniform_on_average() -> None:
    graph = kk.generate.complete(6)
    first = sampled_appearances(graph, 60, np.random.default_rng(3))
    again = sampled_appearances(graph, 60, np.random.default_rng(3))
    np.testing.assert_array_equal(first.weights, again.weights)
    np.testing.assert_allclose(first.weights[pairs_of(graph)], 1 / 3, atol=0.05)


# ---------------------------------------------------------------------- given


def heaviest_set(graph: kk.FactorGraph, rho: np.ndarray) -> float:
    """Largest rho(E[S]) - |S| + 1 over all sets, by trying them."""
    ends = [(set(graph.scope(int(a))), rho[a]) for a in pairs_of(graph)]
    worst = -np.inf
    for size in range(2, graph.n_variables + 1):
        for s in itertools.combinations(range(graph.n_variables), size):
            inside = sum(r for e, r in ends if e <= set(s))
            worst = max(worst, inside - size + 1)
    return worst


def test_given_appearances_are_accepted_exactly_inside_the_polytope() -> None:
    inside = outside = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        graph = kk.generate.random_graph(7, p=0.6, seed=seed)
        if graph.is_forest:
            continue
        pairs = pairs_of(graph)
        rho = np.ones(graph.n_factors)
        rho[pairs] = rng.uniform(0.05, 1.0, len(pairs))
        rho[pairs] *= rng.uniform(0.6, 1.6) * 6 / rho[pairs].sum()
        rho[pairs] = np.minimum(rho[pairs], 1.0)
        worst = heaviest_set(graph, rho)
        if abs(worst) < 1e-6:
            continue
        if worst < 0:
            inside += 1
            found = given_appearances(graph, rho)
            np.testing.assert_array_equal(found.weights[pairs], rho[pairs])
            check_parts(graph, found)
            assert root_weights(graph, found).min() >= 1 / 7 - 1e-9
        else:
            outside += 1
            with pytest.raises(MethodError, match="no forest contains more than") as error:
                given_appearances(graph, rho)
            text = str(error.value)
            named = {int(v) for v in text.split("variables ")[1].split(" sum")[0].split(", ")}
            heavy = sum(rho[a] for a in pairs if set(graph.scope(int(a))) <= named)
            assert heavy > len(named) - 1
            assert f"sum to {heavy:g}" in text and f"more than {len(named) - 1} " in text
    assert inside > 10 and outside > 10


def test_uniform_ones_are_on_the_border_and_accepted() -> None:
    for graph in (
        kk.grid(5, 5),
        kk.generate.complete(7),
        model_of(3, [(0, 1), (0, 1), (1, 2), (0, 2)]),
    ):
        weights = uniform_appearances(graph).weights
        check_parts(graph, given_appearances(graph, weights))
        with pytest.raises(MethodError, match="no forest contains more"):
            given_appearances(graph, np.minimum(weights * 1.001, 1.0))


def test_forests_take_any_weights_up_to_one() -> None:
    tree = kk.FactorGraph([2] * 4, [((0, 1, 2), np.ones(8)), ((2, 3), np.ones(4)), ((0,), [1, 1])])
    found = given_appearances(tree, [0.3, 1.0, 0.0])
    np.testing.assert_allclose(found.weights, [0.3, 1.0, 1.0])
    check_parts(tree, found)


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ([0.5, 0.5], "one number for each of the 3 factors is required, got 2"),
        ([0.5, 0.0, 0.5], r"that of factor 1 must be in \(0, 1\], got 0"),
        ([0.5, 0.5, 1.5], r"that of factor 2 must be in \(0, 1\], got 1.5"),
        ([0.5, np.nan, 0.5], "got nan"),
    ],
)
def test_bad_given_appearances(weights: list[float], complaint: str) -> None:
    with pytest.raises(MethodError, match=complaint):
        given_appearances(model_of(3, [(0, 1), (1, 2), (0, 2)]), weights)


def test_given_appearances_of_larger_factors_are_refused_on_cycles() -> None:
    graph = kk.FactorGraph([2] * 3, [((0, 1, 2), np.ones(8)), ((0, 1), np.ones(4))])
    with pytest.raises(MethodError, match="use sampled or optimised"):
        given_appearances(graph, [0.5, 0.5])


def test_uniform_appearances_refuse_before_they_take_too_long() -> None:
    graph = kk.generate.random_graph(3000, 0.002, seed=1)
    begin = time.process_time()
    with pytest.raises(OutOfTimeError, match=r"about .* s, more than the budget leaves; .*sampled"):
        uniform_appearances(graph, seconds=0.02)
    assert time.process_time() - begin < 0.3  # the factorisation itself takes longer


def test_uniform_appearances_are_the_same_with_enough_seconds() -> None:
    graph = kk.grid(60, 60)
    found, hurried = uniform_appearances(graph), uniform_appearances(graph, seconds=20.0)
    np.testing.assert_array_equal(found.weights, hurried.weights)
