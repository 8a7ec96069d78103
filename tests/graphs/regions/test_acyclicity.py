"""Which sets a junction tree can join (LIU-I11, TEH-M27)."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from kikuchi.graphs.regions import acyclicity
from kikuchi.graphs.regions.acyclicity import is_acyclic
from kikuchi.graphs.regions.sets import SetFamily

Sets = list[frozenset[int]]


def trees(n: int) -> list[list[tuple[int, int]]]:
    """All trees over n nodes, from their Pruefer codes."""
    found = []
    for code in itertools.product(range(n), repeat=n - 2):
        left, edges = list(code), []
        free = set(range(n))
        while left:
            leaf = min(free - set(left))
            edges.append((leaf, left.pop(0)))
            free.remove(leaf)
        found.append([*edges, tuple(sorted(free))])
    return found


def running_intersection(sets: Sets, tree: list[tuple[int, int]]) -> bool:
    """A subgraph of a tree is connected where it has one edge less than nodes."""
    for item in frozenset().union(*sets):
        nodes = sum(item in s for s in sets)
        edges = sum(item in sets[a] and item in sets[b] for a, b in tree)
        if edges != nodes - 1:
            return False
    return True


@pytest.mark.parametrize("slow", [0.0, 2.0], ids=["rounds", "spanning tree"])
@pytest.mark.parametrize("seed", range(8))
def test_acyclic_means_that_some_tree_has_the_running_intersection_property(
    seed: int, slow: float, monkeypatch
) -> None:
    monkeypatch.setattr(acyclicity, "_SLOW", slow)
    rng = np.random.default_rng(seed)
    answers = []
    for _ in range(40):
        n_sets, n_items = int(rng.integers(3, 6)), int(rng.integers(3, 6))
        sets = [
            frozenset(rng.choice(n_items, rng.integers(1, 3), replace=False)) for _ in range(n_sets)
        ]
        expected = any(running_intersection(sets, tree) for tree in trees(n_sets))
        assert is_acyclic(SetFamily.of(sets, n_items)) == expected
        answers.append(expected)
    assert any(answers) and not all(answers)


def test_long_chains_of_cliques_and_nothing_at_all() -> None:
    chain = [(k, k + 1, k + 2) for k in range(20_000)]
    assert is_acyclic(SetFamily.of(chain, 20_002))
    assert not is_acyclic(SetFamily.of([*chain, (0, 20_001)], 20_002))
    with_hub = [(k, k + 1, 20_001) for k in range(20_000)]
    assert is_acyclic(SetFamily.of(with_hub, 20_002))
    assert is_acyclic(SetFamily.of([], 3))


def test_overlaps_at_hubs_are_not_listed() -> None:
    """Pairs of sets that share one of a hundred items: 4 million, 48 bytes each."""
    pairs = [(a, b) for a in range(100) for b in range(100, 300)]
    family = SetFamily.of(pairs, 300)
    is_acyclic(SetFamily.of([(0, 1), (1, 2)], 3))  # compiles
    tracemalloc.start()
    assert not is_acyclic(family)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
