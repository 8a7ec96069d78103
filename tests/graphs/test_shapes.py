"""Edges of the standard shapes, and recognising a grid."""

from __future__ import annotations

import itertools
from collections import Counter

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from kikuchi import FactorGraph, grid
from kikuchi.generate import complete, random_tree
from kikuchi.graphs.shapes import (
    _pair_of_number,
    _Switching,
    complete_edges,
    grid_edges,
    grid_shape,
    random_edges,
    regular_edges,
    tree_edges,
)


def as_set(edges: np.ndarray) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in edges}


def expected_grid(rows: int, cols: int, periodic: bool) -> set[tuple[int, int]]:
    lattice = nx.grid_2d_graph(rows, cols, periodic=periodic)
    numbers = [(r * cols + c, s * cols + d) for (r, c), (s, d) in lattice.edges]
    return {(min(pair), max(pair)) for pair in numbers}


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 2), (2, 7), (4, 3), (6, 6)])
def test_open_grids_have_the_edges_of_networkx(shape: tuple[int, int]) -> None:
    edges = grid_edges(*shape)
    assert len(as_set(edges)) == len(edges)
    assert as_set(edges) == expected_grid(*shape, periodic=False)
    assert np.all(edges[:, 0] < edges[:, 1])


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (5, 4)])
def test_periodic_grids_have_the_edges_of_networkx(shape: tuple[int, int]) -> None:
    edges = grid_edges(*shape, periodic=True)
    assert len(as_set(edges)) == len(edges) == 2 * shape[0] * shape[1]
    assert as_set(edges) == expected_grid(*shape, periodic=True)


def test_complete_edges_are_all_pairs() -> None:
    assert complete_edges(6).tolist() == [list(p) for p in itertools.combinations(range(6), 2)]
    assert complete_edges(1).shape == (0, 2)


def test_random_edges_are_independent_and_equally_likely() -> None:
    rng = np.random.default_rng(0)
    draws, n, p = 4000, 6, 0.3
    counts: Counter[tuple[int, int]] = Counter()
    sizes = []
    for _ in range(draws):
        edges = random_edges(n, p, rng)
        assert np.all(edges[:, 0] < edges[:, 1])
        assert len(as_set(edges)) == len(edges)
        counts.update(as_set(edges))
        sizes.append(len(edges))
    observed = [counts[pair] for pair in itertools.combinations(range(n), 2)]
    assert stats.chisquare(observed).pvalue > 1e-3
    assert np.mean(sizes) == pytest.approx(15 * p, abs=5 * np.sqrt(15 * p * (1 - p) / draws))
    assert np.var(sizes) == pytest.approx(15 * p * (1 - p), rel=0.1)


def test_random_edges_at_the_ends_of_the_range() -> None:
    rng = np.random.default_rng(0)
    assert random_edges(50, 0.0, rng).shape == (0, 2)
    assert np.array_equal(random_edges(50, 1.0, rng), complete_edges(50))
    assert random_edges(1, 0.5, rng).shape == (0, 2)
    assert len(random_edges(10**6, 1e-15, rng)) < 5


def test_random_edges_of_a_large_sparse_graph_reach_every_pair_number() -> None:
    edges = random_edges(10**5, 1e-4, np.random.default_rng(1))
    expected = 1e-4 * 1e5 * (1e5 - 1) / 2
    assert len(edges) == pytest.approx(expected, abs=5 * np.sqrt(expected))
    assert edges.max() > 99_990
    degrees = np.bincount(edges.ravel(), minlength=10**5)
    assert degrees.mean() == pytest.approx(10, rel=0.01)
    assert degrees[:1000].mean() == pytest.approx(degrees[-1000:].mean(), rel=0.1)


@pytest.mark.parametrize("n", range(1, 12))
def test_regular_graphs_of_every_small_size(n: int) -> None:
    rng = np.random.default_rng(n)
    for degree in range(n):
        if n * degree % 2:
            continue
        for _ in range(5):
            edges = regular_edges(n, degree, rng)
            assert np.all(edges[:, 0] < edges[:, 1])
            assert len(as_set(edges)) == len(edges)
            assert np.all(np.bincount(edges.ravel().astype(int), minlength=n) == degree)


@pytest.mark.parametrize(("n", "degree"), [(200, 3), (200, 60), (101, 50), (60, 45)])
def test_larger_regular_graphs(n: int, degree: int) -> None:
    edges = regular_edges(n, degree, np.random.default_rng(0))
    assert len(as_set(edges)) == len(edges)
    assert np.all(np.bincount(edges.ravel(), minlength=n) == degree)


@pytest.mark.parametrize("degree", [2, 3])
def test_small_regular_graphs_are_uniform(degree: int) -> None:
    """There are 70 cubic graphs on 6 labelled points, the complements of 70 unions of cycles."""
    rng = np.random.default_rng(degree)
    draws = (regular_edges(6, degree, rng) for _ in range(70 * 40))
    seen = Counter(tuple(map(tuple, edges.tolist())) for edges in draws)
    assert len(seen) == 70
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


@pytest.mark.parametrize("seed", range(20))
def test_loops_and_double_edges_are_mended(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fixed = [[0, 0], [1, 1], [2, 3], [3, 2], [2, 4], [4, 3]]
    ring = [[v, v + 1] for v in range(5, 11)] + [[11, 5]]
    edges = np.array(fixed + ring)
    degrees = np.bincount(edges.ravel())
    assert _Switching(12, edges, rng).mend()
    assert np.all(edges[:, 0] != edges[:, 1])
    assert len(as_set(np.sort(edges, axis=1))) == len(edges)
    assert np.array_equal(np.bincount(edges.ravel()), degrees)


def test_pairing_that_cannot_be_mended_says_so() -> None:
    assert not _Switching(2, np.array([[0, 0], [1, 1]]), np.random.default_rng(0)).mend()


def test_pairs_are_numbered_exactly_where_roots_round() -> None:
    for j in [1, 2, 94_906_267, 2**31 - 2, 2**31 - 1]:
        start = j * (j - 1) // 2
        numbers = np.array([start, start + j - 1], dtype=np.int64)
        assert _pair_of_number(numbers).tolist() == [[0, j], [j - 1, j]]
    rng = np.random.default_rng(0)
    j = rng.integers(1, 2**31, size=20_000)
    edge_cases = np.concatenate([j * (j - 1) // 2, j * (j - 1) // 2 + j - 1])
    expected = np.stack([np.concatenate([0 * j, j - 1]), np.concatenate([j, j])], axis=1)
    assert np.array_equal(_pair_of_number(edge_cases), expected)


def test_trees_are_trees() -> None:
    rng = np.random.default_rng(0)
    for n in [1, 2, 3, 10, 257]:
        edges = tree_edges(n, rng)
        graph = nx.empty_graph(n)
        graph.add_edges_from(edges.tolist())
        assert nx.is_tree(graph)


@pytest.mark.parametrize(("n", "count"), [(3, 3), (4, 16), (5, 125)])
def test_trees_are_uniform_over_cayleys_count(n: int, count: int) -> None:
    rng = np.random.default_rng(n)
    seen = Counter(tuple(map(tuple, tree_edges(n, rng).tolist())) for _ in range(80 * count))
    assert len(seen) == count
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


# ---------------------------------------------------------------------- recognising a grid


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2), (2, 9), (9, 2), (4, 4), (5, 8), (3, 3)])
@pytest.mark.parametrize("states", [2, 3])
def test_open_grids_are_recognised(shape: tuple[int, int], states: int) -> None:
    assert grid_shape(grid(*shape, states=states)) == shape


@pytest.mark.parametrize("shape", [(3, 3), (3, 4), (4, 3), (5, 5), (3, 8), (8, 3)])
def test_periodic_grids_are_recognised(shape: tuple[int, int]) -> None:
    assert grid_shape(grid(*shape, periodic=True)) == shape


def test_a_grid_without_unary_factors_or_with_double_ones_is_a_grid() -> None:
    ones = np.ones(4)
    edges = grid_edges(3, 4).tolist()
    assert grid_shape(FactorGraph([2] * 12, [(e, ones) for e in edges])) == (3, 4)
    doubled = [(e, ones) for e in edges] + [(e[::-1], ones) for e in edges[:5]]
    assert grid_shape(FactorGraph([2] * 12, doubled)) == (3, 4)


def test_other_graphs_are_not_grids() -> None:
    ones = np.ones(4)
    edges = grid_edges(3, 4).tolist()
    n = 12

    def model(pairs: list[list[int]]) -> FactorGraph:
        return FactorGraph([2] * n, [(pair, ones) for pair in pairs])

    assert grid_shape(model(edges[1:])) is None
    assert grid_shape(model([*edges, [0, 11]])) is None
    assert grid_shape(model([*edges[1:], [0, 5]])) is None
    shuffled = np.random.default_rng(0).permutation(n)
    assert grid_shape(model([[int(shuffled[i]), int(shuffled[j])] for i, j in edges])) is None
    assert grid_shape(complete(9)) is None
    assert grid_shape(random_tree(16)) is None
    assert grid_shape(grid(1, 12)) is None
    assert grid_shape(grid(12, 1)) is None
    assert grid_shape(FactorGraph([2] * 4, [])) is None
    assert grid_shape(FactorGraph([], [])) is None
    assert grid_shape(FactorGraph([2] * 4, [((0, 1, 2, 3), np.ones(16))])) is None
    cycle = [((0, 1), ones), ((1, 2), ones), ((2, 3), ones), ((0, 3), ones)]
    assert grid_shape(FactorGraph([2] * 4, cycle)) is None
    assert grid_shape(grid(4, 4).condition({5: 0}).graph) is None
