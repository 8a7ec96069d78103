"""Many sets of tables of a chain or tree at once, against enumeration and single runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.methods.junction_tree import JunctionTree
from kikuchi.neural import beliefs, chain_graph, crf_loss, log_z, marginals, pairwise_tables
from kikuchi.neural.differentiable import kernel_of
from kikuchi.neural.fixed_points import Solver
from kikuchi.neural.forests import ForestSolver
from kikuchi.neural.solvers import solver_for
from oracle import enumerate_exact

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def random_forest(rng: np.random.Generator, n: int = 7) -> kk.FactorGraph:
    """Factors of one to three variables without a cycle, in no particular order; some variables
    alone, some in no factor.
    """
    cards = rng.integers(2, 4, size=n)
    names = rng.permutation(n)
    scopes: list[list[int]] = []
    joined = 1
    while joined < n:
        order = min(int(rng.integers(1, 3)), n - joined)
        if rng.random() < 0.8:
            scope = [int(rng.integers(joined)), *range(joined, joined + order)]
            scopes.append(rng.permutation(scope).tolist())
        joined += order
    scopes += [[v] for v in range(n) if rng.random() < 0.4]
    scopes = [scopes[k] for k in rng.permutation(len(scopes))]
    factors = [[int(names[v]) for v in scope] for scope in scopes]
    return kk.FactorGraph(
        cards, [(s, np.exp(rng.normal(size=[cards[v] for v in s]))) for s in factors]
    )


@pytest.mark.parametrize("seed", range(10))
def test_rows_of_random_forests_equal_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_forest(rng)
    assert graph.is_forest
    tables = rng.normal(size=(3, graph.log_tables.size)) * [[0.1], [1.0], [4.0]]
    tables[rng.random(tables.shape) < 0.1] = -np.inf
    solver = solver_for(graph, JunctionTree(), kk.Budget())
    assert isinstance(solver, ForestSolver)
    possible = [row for row in tables if np.isfinite(enumerate_exact(_with(graph, row))[0])]
    values, states, factors = solver.beliefs(np.array(possible))
    for k, row in enumerate(possible):
        exact, singles, joint = enumerate_exact(_with(graph, row))
        assert values[k] == pytest.approx(exact, abs=1e-10)
        np.testing.assert_allclose(states[k], np.concatenate(singles), atol=1e-12)
        np.testing.assert_allclose(
            factors[k], np.concatenate([j.ravel() for j in joint]), atol=1e-12
        )


def _with(graph: kk.FactorGraph, row: np.ndarray) -> kk.FactorGraph:
    return graph.with_log_tables(row)


@pytest.mark.parametrize("seed", range(5))
def test_the_response_equals_that_of_the_junction_tree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_forest(rng)
    forest = solver_for(graph, JunctionTree(), kk.Budget())
    tree = Solver(graph, JunctionTree(), kk.Budget())
    tables = rng.normal(size=graph.log_tables.size)
    along = rng.normal(size=int(graph.state_offsets[-1])), rng.normal(size=tables.size)
    found, exact = forest.solve(tables), tree.solve(tables)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-12)
    in_factors = np.isin(np.repeat(np.arange(graph.n_variables), graph.cardinalities), graph.scopes)
    for ours, theirs in zip(found.response(*along), exact.response(*along), strict=True):
        mask = in_factors if ours.size == in_factors.size else slice(None)
        np.testing.assert_allclose(ours[mask], theirs[mask], atol=1e-12)


def test_weights_of_any_size_keep_their_digits() -> None:
    """Two states whose weights are e^-2000 of others, which evidence elsewhere excludes."""
    graph = chain_graph(3, 2)
    unary = np.array([[0.0, -2000.0], [0.0, 0.0], [-3000.0, 0.0]])
    tables = np.asarray(pairwise_tables(graph, unary, np.array([[0.0, -np.inf], [-np.inf, 0.5]])))
    value = float(jax.jit(lambda t: log_z(graph.with_log_tables(t)))(tables))
    assert value == pytest.approx(-1999.0, abs=1e-9)


def test_gradients_of_a_batch_equal_finite_differences() -> None:
    graph, rng = chain_graph(5, 3), np.random.default_rng(1)
    weights = rng.normal(size=15)
    labels = rng.integers(3, size=(4, 5))
    batch = rng.normal(size=(4, graph.log_tables.size))

    def loss(tables: Any) -> Any:
        def one(row: Any, label: Any) -> Any:
            flat = marginals(graph.with_log_tables(row), evidence={1: 2})
            return crf_loss(graph, row, label) + jnp.sin(flat @ weights)

        return jax.vmap(one)(tables, labels).sum()

    slopes = jax.jit(jax.grad(loss))(batch)
    for seed in range(3):
        along = np.random.default_rng(seed).normal(size=batch.shape)
        ends = [float(loss(batch + step * along)) for step in (1e-5, -1e-5)]
        assert float((slopes * along).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


def test_a_batch_is_one_call_of_the_compiled_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    whole = ForestSolver.beliefs

    def counted(self: ForestSolver, tables: np.ndarray) -> Any:
        calls.append(len(tables))
        return whole(self, tables)

    monkeypatch.setattr(ForestSolver, "beliefs", counted)
    graph = chain_graph(4, 2)
    batch = np.random.default_rng(0).normal(size=(2, 7, graph.log_tables.size))
    batched = jax.vmap(jax.vmap(lambda t: log_z(graph.with_log_tables(t))))
    assert batched(batch).shape == (2, 7) and calls == [14]


def test_an_impossible_row_is_named() -> None:
    graph = chain_graph(2, 2)
    rows = np.zeros((3, graph.log_tables.size))
    rows[1] = [0, -np.inf, 0, -np.inf, -np.inf, 0, 0, 0]  # both 0, and not both
    with pytest.raises(ImpossibleEvidenceError, match="row 1 of 3"):
        kernel_of(graph, "jt").found(rows)
    with pytest.raises(ImpossibleEvidenceError, match="no state has any probability"):
        beliefs(graph.with_log_tables(rows[1]))
