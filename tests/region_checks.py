"""What several tests of region graphs ask of them, written apart from the library."""

from __future__ import annotations

import itertools

import numpy as np

from kikuchi import FactorGraph
from kikuchi.graphs.regions.region_graph import RegionGraph


def pairwise(n: int, edges: list[tuple[int, int]], fields: bool = False) -> FactorGraph:
    factors = [(edge, np.ones((2, 2))) for edge in edges]
    return FactorGraph([2] * n, factors + [((v,), np.ones(2)) for v in range(n) if fields])


def counted(regions: RegionGraph) -> dict[tuple[int, ...], int]:
    return {r.variables: int(c) for r, c in zip(regions.regions, regions.counting, strict=True)}


def assert_one_balanced(regions: RegionGraph) -> None:
    """(4.13), written out for variables and factors, apart from `check`."""
    graph = regions.graph
    for v in range(graph.n_variables):
        held = [
            c for r, c in zip(regions.regions, regions.counting, strict=True) if v in r.variables
        ]
        assert sum(held) == 1
    for a in range(graph.n_factors):
        held = [c for r, c in zip(regions.regions, regions.counting, strict=True) if a in r.factors]
        assert sum(held) == 1


def region_entropy(graph: FactorGraph, regions: RegionGraph) -> float:
    """sum_r c_r H_r of the true distribution of the model."""
    cards = [int(c) for c in graph.cardinalities]
    p = np.exp([graph.log_score(x) for x in itertools.product(*map(range, cards))])
    p = (p / p.sum()).reshape(cards)
    total = 0.0
    for region, c in zip(regions.regions, regions.counting, strict=True):
        rest = tuple(v for v in range(len(cards)) if v not in region.variables)
        q = p.sum(axis=rest).ravel()
        total -= c * float(np.sum(q * np.log(q)))
    return total
