"""Sums over slices: exact within less memory than the junction tree takes."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.engines.trees.propagation import Watch
from kikuchi.engines.trees.slices import sliced_plan


def _tied(pairs: list[tuple[int, int]], *tables: np.ndarray) -> kk.FactorGraph:
    """A grid of which some pairs are tied by tables with zeros."""
    grid = kk.grid(12, 12, seed=0)
    factors = [(grid.scope(a), grid.table(a)) for a in range(grid.n_factors)]
    return kk.FactorGraph([2] * 144, [*factors, *((p, t) for p in pairs for t in tables)])


EQUAL = np.eye(2)


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        (kk.grid(12, 12, seed=0), 400_000),
        (kk.grid(5, 5, states=7, seed=0), 400_000),
        (_tied([(v, v + 12) for v in range(12, 120, 11)], EQUAL), 300_000),
    ],
    ids=["grid", "states", "zeros"],
)
def test_slices_are_exact(graph: kk.FactorGraph, most: int) -> None:
    exact = kk.infer(graph, "jt")
    plan = kk.plan(graph)
    assert plan.bytes > most
    clock = kk.Budget(bytes=most).start()
    sliced = sliced_plan(plan, clock)
    assert sliced is not None
    assert sliced.count > 1
    assert sliced.plan.bytes <= most
    log_z, marginals = sliced.solve(Watch(clock))
    assert log_z + graph.log_constant == pytest.approx(exact.log_z, abs=1e-9)
    np.testing.assert_allclose(marginals, exact.flat_marginals, atol=1e-10)


def test_auto_is_exact_within_the_memory() -> None:
    graph = kk.grid(12, 12, seed=0)
    exact = kk.infer(graph, "jt")
    found = kk.infer(graph, "auto", budget=kk.Budget(seconds=20, bytes=400_000))
    assert found.diagnostics["chosen"] == "jt"
    assert found.diagnostics["slices"] > 1
    assert found.log_z_upper - found.log_z_lower < 1e-8
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)
    np.testing.assert_allclose(found.flat_factors, exact.flat_factors, atol=1e-10)


@pytest.mark.parametrize("state", [0, 1, 2])
def test_slices_of_states_that_a_table_forbids_have_weight_zero(state: int) -> None:
    """One state of every variable is impossible, which no plan may take for all of the model."""
    free = kk.grid(9, 9, states=2, seed=1)
    kept = [k for k in range(3) if k != state]
    factors = []
    for a in range(free.n_factors):
        shape = [3] * len(free.scope(a))
        table = np.ones(shape)
        table[np.ix_(*[kept] * len(shape))] = free.table(a)
        factors.append((free.scope(a), table))
    allowed = np.array([0.0 if k == state else 1.0 for k in range(3)])
    graph = kk.FactorGraph([3] * 81, [*factors, *(((v,), allowed) for v in range(81))])
    exact = kk.infer(free, "jt")
    plan = kk.plan(graph)
    clock = kk.Budget(bytes=plan.bytes // 4).start()
    sliced = sliced_plan(plan, clock)
    assert sliced is not None and sliced.count > 1
    log_z, marginals = sliced.solve(Watch(clock))
    assert log_z + free.log_constant == pytest.approx(exact.log_z, abs=1e-9)
    found = marginals.reshape(81, 3)
    assert not found[:, state].any()
    np.testing.assert_allclose(found[:, kept].ravel(), exact.flat_marginals, atol=1e-10)
    answer = kk.infer(graph, "auto", memory=plan.bytes // 4)
    assert answer.log_z == pytest.approx(exact.log_z, abs=1e-9)


def test_impossible_in_every_slice() -> None:
    graph = _tied([(70, 71)], EQUAL, 1 - EQUAL)
    sliced = sliced_plan(kk.plan(graph), kk.Budget(bytes=400_000).start())
    assert sliced is not None
    with pytest.raises(ImpossibleEvidenceError):
        sliced.solve(Watch(kk.Budget().start()))
