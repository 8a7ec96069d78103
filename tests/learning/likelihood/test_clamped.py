"""The clamped phase (LIU-L5) against sums over all completions."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import BudgetError, DataError, MethodError
from kikuchi.engines.trees.kernels import rows as kernels
from kikuchi.learning.data import Data
from kikuchi.learning.likelihood import clamped
from kikuchi.learning.likelihood.clamped import ClampedRows, clamped_log_z, clamped_statistics
from oracle import enumerate_exact, random_model


def random_rows(rng: np.random.Generator, graph: kk.FactorGraph, n: int, share: float):
    rows = rng.integers(graph.cardinalities, size=(n, graph.n_variables))
    rows[rng.random(rows.shape) < share] = -1
    return rows


def by_enumeration(graph: kk.FactorGraph, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log Z and factor marginals of every row, written apart: one clamped model each."""
    values, tables = [], []
    for row in rows:
        seen = {v: int(k) for v, k in enumerate(row) if k >= 0}
        with np.errstate(all="ignore"):
            log_z, _, parts = enumerate_exact(graph.clamp(seen))
        values.append(log_z if np.isfinite(log_z) else -np.inf)
        tables.append(np.concatenate([p.ravel() for p in parts[: graph.n_factors]]))
    return np.array(values), np.array(tables)


@pytest.mark.parametrize("seed", range(24))
def test_every_row_as_by_enumeration(seed: int) -> None:
    # LIU-M11
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, n_factors=6, zeros=0.15 * (seed % 2), scale=1 + 2 * (seed % 3))
    rows = random_rows(rng, graph, 15, (0.0, 0.2, 0.6, 1.0)[seed % 4])
    wanted, tables = by_enumeration(graph, rows)
    assert clamped_log_z(graph, rows) == pytest.approx(wanted, abs=1e-9)
    possible = np.isfinite(wanted)
    if possible.any():
        weights = rng.random(possible.sum()) + 0.1
        data = Data.of(rows[possible], graph, weights=weights)
        mean, counts = clamped_statistics(graph, data)
        assert mean == pytest.approx(weights @ wanted[possible] / weights.sum(), abs=1e-9)
        assert counts == pytest.approx(weights @ tables[possible], abs=1e-9)
    if not possible.all():
        with pytest.raises(DataError, match=rf"row {np.flatnonzero(~possible)[0]} is impossible"):
            clamped_statistics(graph, rows)


@pytest.mark.parametrize("plan_seconds", [0.0, 1e9])
def test_one_tree_for_all_patterns_or_one_for_each(
    plan_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    graph = random_model(rng, n=6, n_factors=8)
    rows = random_rows(rng, graph, 40, 0.4)
    monkeypatch.setattr(clamped, "_SECONDS_PER_PLAN", plan_seconds)
    monkeypatch.setattr(clamped, "_SECONDS_PER_OPERATION", 1.0 if plan_seconds == 0 else 1e-9)
    phase = ClampedRows(graph, Data.of(rows, graph))
    assert (len(phase.groups) <= 2) == (plan_seconds > 0)
    wanted, tables = by_enumeration(graph, rows)
    assert phase.log_z(graph.log_tables) == pytest.approx(wanted, abs=1e-9)
    mean, counts = phase.statistics(graph.log_tables)
    assert mean == pytest.approx(wanted.mean())
    assert counts == pytest.approx(tables.sum(axis=0), abs=1e-9)
    few = np.array([1, 5, 30])
    mean, counts = phase.statistics(graph.log_tables, few)
    assert mean == pytest.approx(wanted[few].mean())
    assert counts == pytest.approx(tables[few].sum(axis=0), abs=1e-9)


def test_other_tables_on_the_same_trees() -> None:
    rng = np.random.default_rng(5)
    graph = random_model(rng, n=6, n_factors=8)
    rows = random_rows(rng, graph, 10, 0.5)
    phase = ClampedRows(graph, Data.of(rows, graph))
    other = graph.with_log_tables(rng.normal(size=graph.log_tables.size))
    assert phase.log_z(other.log_tables) == pytest.approx(by_enumeration(other, rows)[0])


def test_numbers_beyond_floats_use_logarithms() -> None:
    """Chains whose weights span 10^-1000: plain products would vanish."""
    rng = np.random.default_rng(0)
    factors = [((i, i + 1), 900 * rng.normal(size=(2, 2))) for i in range(5)]
    graph = kk.FactorGraph([2] * 6, factors, log=True)
    rows = random_rows(rng, graph, 12, 0.6)
    wanted, tables = by_enumeration(graph, rows)
    mean, counts = clamped_statistics(graph, rows)
    assert clamped_log_z(graph, rows) == pytest.approx(wanted, rel=1e-12)
    assert mean == pytest.approx(wanted.mean(), rel=1e-12)
    assert counts == pytest.approx(tables.sum(axis=0), abs=1e-9)


def test_variables_without_factors_and_constants() -> None:
    graph = kk.FactorGraph([2, 3, 1], [((0,), [1, 3])], log_constant=0.5)
    found = clamped_log_z(graph, [[-1, -1, -1], [0, -1, 0], [-1, 2, -1], [1, 1, 0]])
    assert np.exp(found - 0.5) == pytest.approx([12.0, 3.0, 4.0, 3.0])
    assert clamped_log_z(kk.FactorGraph([2, 2], []), [[-1, 0]]) == pytest.approx([np.log(2)])


def test_rows_cost_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand rows of one pattern are one call of the compiled loop."""
    calls = []
    compiled = kernels.run_rows
    monkeypatch.setattr(kernels, "run_rows", lambda *a: calls.append(a[4] - a[3]) or compiled(*a))
    graph = kk.grid(4, 4, seed=0)
    rows = np.random.default_rng(0).integers(2, size=(1000, 16))
    rows[:, [0, 5, 6, 10]] = -1
    clamped_statistics(graph, rows)
    assert len(calls) == 1 and calls[0] <= 1000


def test_rows_that_agree_near_the_hidden_share_a_propagation() -> None:
    graph = kk.FactorGraph([2, 2, 2], [((0, 1), np.ones(4)), ((1, 2), np.ones(4))])
    rows = np.array([[-1, 0, 0], [-1, 0, 1], [-1, 1, 0], [-1, 1, 1]])
    phase = ClampedRows(graph, Data.of(rows, graph))
    assert [len(group.unique) for group in phase.groups] == [2]


def test_any_method_inside() -> None:
    rng = np.random.default_rng(1)
    graph = random_model(rng, n=5, n_factors=6)
    rows = random_rows(rng, graph, 8, 0.4)
    exact = clamped_statistics(graph, rows)
    other = clamped_statistics(graph, rows, inference="jt")
    assert other[0] == pytest.approx(exact[0]) and other[1] == pytest.approx(exact[1])
    near = clamped_statistics(graph, rows, inference="mf")
    assert near[0] <= exact[0]
    with pytest.raises(MethodError, match="no log Z"):
        clamped_statistics(kk.grid(2, 2, seed=0), [[-1, -1, 0, 0]], inference="gibbs:sweeps=10")


def test_memory_is_refused_beforehand() -> None:
    graph = kk.generate.complete(24, seed=0)
    with pytest.raises(BudgetError, match="clamped junction tree"):
        clamped_log_z(graph, np.full((1, 24), -1), budget=kk.Budget(bytes=10**6))
