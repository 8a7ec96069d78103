"""Elimination orders against a plain implementation on networkx graphs, and their limits."""

from __future__ import annotations

import itertools
import time

import networkx as nx
import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import MethodError
from kikuchi.graphs.elimination import cheapest, eliminate
from oracle import random_model

ORDERS = ["min-fill", "min-degree", "min-weight"]


def primal(graph: kk.FactorGraph) -> nx.Graph:
    g = nx.Graph()
    g.add_nodes_from(range(graph.n_variables))
    for a in range(graph.n_factors):
        g.add_edges_from(itertools.combinations(graph.scope(a), 2))
    return g


def pairwise(
    n: int, edges: list[tuple[int, int]], cards: list[int] | None = None
) -> kk.FactorGraph:
    cards = cards or [2] * n
    return kk.FactorGraph(cards, [(e, np.ones(cards[e[0]] * cards[e[1]])) for e in edges])


def fill_of(g: nx.Graph, v: int) -> int:
    return sum(not g.has_edge(a, b) for a, b in itertools.combinations(g[v], 2))


def weight_of(g: nx.Graph, v: int, cards: np.ndarray) -> float:
    return float(np.prod([float(cards[u]) for u in (v, *g[v])]))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(12))
def test_every_step_is_greedy(order: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=14, n_factors=18, max_order=3, max_card=4)
    g = primal(graph)
    found = eliminate(graph, order, tries=1, seed=None if seed % 2 else seed)
    assert sorted(found.order.tolist()) == list(range(14))
    cards = graph.cardinalities
    cost = 0.0
    for v, clique in zip(found.order.tolist(), found.cliques, strict=True):
        score = {
            "min-fill": lambda u: (fill_of(g, u), weight_of(g, u, cards)),
            "min-degree": lambda u: (len(g[u]), weight_of(g, u, cards)),
            "min-weight": lambda u: (weight_of(g, u, cards),),
        }[order]
        best = min(score(u) for u in g)
        assert score(v)[0] == pytest.approx(best[0])
        assert score(v)[-1] == pytest.approx(best[-1])
        assert clique == tuple(sorted((v, *g[v])))
        cost += weight_of(g, v, cards)
        g.add_edges_from(itertools.combinations(list(g[v]), 2))
        g.remove_node(v)
    assert found.width == max(len(c) for c in found.cliques) - 1
    assert found.cost == pytest.approx(cost, rel=1e-4)
    assert 2**found.log2_weight == pytest.approx(
        max(np.prod(cards[list(c)].astype(float)) for c in found.cliques), rel=1e-4
    )


@pytest.mark.parametrize("order", ORDERS)
def test_the_filled_graph_is_chordal_and_holds_every_factor(order: str) -> None:
    # HOJ-I3
    rng = np.random.default_rng(3)
    for _ in range(10):
        graph = random_model(rng, n=20, n_factors=24, max_order=4)
        filled = nx.Graph()
        filled.add_nodes_from(range(20))
        cliques = [set(c) for c in eliminate(graph, order).cliques]
        for clique in cliques:
            filled.add_edges_from(itertools.combinations(clique, 2))
        assert nx.is_chordal(filled)
        assert all(any(set(graph.scope(a)) <= c for c in cliques) for a in range(graph.n_factors))


def test_two_orders_give_two_valid_trees() -> None:
    # A cycle of four has two triangulations; which one is made depends on the ties.
    square = pairwise(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    chords = set()
    for seed in range(20):
        cliques = eliminate(square, seed=seed).cliques
        assert max(len(c) for c in cliques) == 3
        chords.add(frozenset(frozenset(c) for c in cliques if len(c) == 3))
    assert len(chords) == 2


def test_ties_go_to_the_lighter_clique() -> None:
    # Every corner adds one edge; only the clique of 2 leaves the heavy variable 0 out.
    square = pairwise(4, [(0, 1), (1, 2), (2, 3), (3, 0)], cards=[9, 2, 3, 2])
    assert eliminate(square, "min-fill", tries=1).order[0] == 2


@pytest.mark.parametrize("side,width", [(5, 5), (10, 14), (15, 15), (20, 20)])
def test_grids(side: int, width: int) -> None:
    assert eliminate(kk.grid(side, side, seed=0)).width <= width


def test_known_widths() -> None:
    assert eliminate(kk.generate.random_tree(200, seed=0)).width == 1
    assert eliminate(kk.generate.complete(9, seed=0)).width == 8
    assert eliminate(pairwise(6, [(i, (i + 1) % 6) for i in range(6)])).width == 2
    assert eliminate(kk.FactorGraph([2, 3], [])).width == 0
    nothing = eliminate(kk.FactorGraph([], []))
    assert (nothing.width, nothing.cliques, nothing.complete) == (0, [], True)


def test_seeds() -> None:
    graph = kk.grid(12, 12, seed=0)
    first, again = eliminate(graph, seed=7), eliminate(graph, seed=7)
    assert first.order.tolist() == again.order.tolist()
    assert eliminate(graph).order.tolist() == eliminate(graph).order.tolist()
    orders = {tuple(eliminate(graph, seed=s, tries=1).order.tolist()) for s in range(5)}
    assert len(orders) == 5


def test_more_tries_are_never_worse() -> None:
    for seed in range(5):
        graph = kk.generate.random_graph(60, 0.08, seed=seed)
        costs = [eliminate(graph, seed=1, tries=t).cost for t in (1, 4, 16)]
        assert costs == sorted(costs, reverse=True)


def test_hubs_are_cheap() -> None:
    n = 100_000
    star = pairwise_arrays(n, np.stack([np.zeros(n - 1), np.arange(1, n)], axis=1))
    begin = time.process_time()
    found = eliminate(star)
    assert (found.width, found.complete) == (1, True)
    assert time.process_time() - begin < 5


def test_a_hundred_thousand_variables() -> None:
    # A ladder: width 2, whatever its length.
    n = 50_000
    rails = np.stack([np.arange(2 * n - 2), np.arange(2, 2 * n)], axis=1)
    rungs = np.stack([np.arange(0, 2 * n, 2), np.arange(1, 2 * n, 2)], axis=1)
    begin = time.process_time()
    found = eliminate(pairwise_arrays(2 * n, np.concatenate([rails, rungs])))
    assert found.complete
    assert found.width == 2
    assert time.process_time() - begin < 10


def test_a_hopeless_grid_is_given_up() -> None:
    found = eliminate(kk.grid(300, 300, seed=0))
    assert not found.complete
    assert found.width >= 39
    assert found.log2_weight >= 40


def test_a_dense_graph_is_given_up_with_a_bound_on_every_order() -> None:
    found = eliminate(kk.generate.complete(1200, seed=0))
    assert not found.complete
    assert found.width == 1199
    assert len(found.order) == 0


def test_an_unknown_order_is_named() -> None:
    with pytest.raises(MethodError, match="min-fil'; did you mean 'min-fill'"):
        eliminate(kk.grid(2, 2, seed=0), "min-fil")  # type: ignore[arg-type]


def pairwise_arrays(n: int, edges: np.ndarray) -> kk.FactorGraph:
    return kk.FactorGraph.from_arrays(
        np.full(n, 2),
        edges.astype(np.uint32).ravel(),
        np.arange(0, 2 * len(edges) + 1, 2),
        np.zeros(4 * len(edges)),
        validate=False,
    )


@pytest.mark.parametrize("excess", [1e4, 0.5], ids=["refused", "allowed"])
def test_a_search_ends_where_no_order_has_smaller_cliques(excess: float) -> None:
    """Orders without new edges make the cliques of the model; other models are searched on."""
    judge = lambda found: (1e12, excess)  # noqa: E731
    complete = cheapest(kk.generate.complete(12, seed=0), judge, most_effort=1e7)
    assert complete.tries <= 5 and complete.width == 11
    assert cheapest(kk.grid(6, 6, seed=0), judge, most_effort=1e7).tries > 5
