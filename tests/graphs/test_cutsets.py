"""Cycle-cutting sets: they cut, they spare nothing needlessly, and they take turns (TEH-I17)."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import kikuchi as kk
from kikuchi.graphs.cutsets import cuts_cycles, greedy_cutsets, lattice_cutsets
from oracle import random_model


def acyclic(graph: kk.FactorGraph, cut: np.ndarray) -> bool:
    """By networkx: variables outside the cut and factors form a forest."""
    bipartite = nx.Graph()
    bipartite.add_nodes_from(("f", a) for a in range(graph.n_factors))
    bipartite.add_edges_from(
        (("f", a), v) for a in range(graph.n_factors) for v in graph.scope(a) if not cut[v]
    )
    return nx.is_forest(bipartite)


@pytest.mark.parametrize("seed", range(30))
def test_greedy_sets_cut_are_minimal_and_fair(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=9, n_factors=int(rng.integers(4, 14)))
    observed = rng.random(9) < 0.2
    sets = greedy_cutsets(graph, observed)
    for cut in sets:
        assert acyclic(graph, cut | observed)
        assert cuts_cycles(graph, cut | observed)
        assert not np.any(cut & observed)
        for v in np.flatnonzero(cut):
            less = cut.copy()
            less[v] = False
            assert not acyclic(graph, less | observed)
    assert not np.logical_and.reduce(sets).any()


def test_cuts_cycles_agrees_with_networkx() -> None:
    rng = np.random.default_rng(5)
    outcomes = set()
    for _ in range(200):
        graph = random_model(rng, n=7, n_factors=7)
        cut = rng.random(7) < 0.3
        outcomes.add(acyclic(graph, cut))
        assert cuts_cycles(graph, cut) == acyclic(graph, cut)
    assert outcomes == {True, False}


@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (5, 5), (4, 7)])
@pytest.mark.parametrize("both", [True, False])
def test_lattice_sets(shape: tuple[int, int], both: bool) -> None:
    graph = kk.grid(*shape)
    sets = lattice_cutsets(*shape, both=both)
    assert len(sets) == (4 if both else 2)
    assert all(acyclic(graph, cut) for cut in sets)
    assert not np.logical_and.reduce(sets).any()


def test_greedy_sets_are_smaller_than_columns_and_empty_on_forests() -> None:
    sizes = [cut.sum() for cut in greedy_cutsets(kk.grid(10, 10))]
    assert (
        max(sizes) <= 33
    )  # every second column has 50; 100 / 3 is the known limit for large grids
    assert [cut.sum() for cut in greedy_cutsets(kk.generate.random_tree(20))] == [0]
    assert all(cut.sum() == 8 for cut in greedy_cutsets(kk.generate.complete(10)))
