"""Covariances: exact against enumeration, linear response against finite differences.

Rows TEH-I7, HOJ-I11; test T9 of the catalogue.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.core.errors import BudgetError, KikuchiError, ModelError
from oracle import random_model


def enumerated_covariance(graph: FactorGraph) -> np.ndarray:
    """Covariance of all indicators by listing every state."""
    cards = [int(c) for c in graph.cardinalities]
    states = np.array(list(product(*map(range, cards))))
    scores = np.array([graph.log_score(s) for s in states])
    p = np.exp(scores - scores.max())
    p /= p.sum()
    columns = [states[:, v] == k for v, card in enumerate(cards) for k in range(card)]
    indicators = np.stack(columns, axis=1).astype(float)
    mean = p @ indicators
    return (indicators * p[:, None]).T @ indicators - np.outer(mean, mean)


def with_field(graph: FactorGraph, variable: int, field: np.ndarray) -> FactorGraph:
    factors = [(graph.scope(a), graph.log_table(a)) for a in range(graph.n_factors)]
    return FactorGraph(graph.cardinalities, [*factors, ((variable,), field)], log=True)


def numeric_response(graph: FactorGraph, method: str, step: float = 1e-4) -> np.ndarray:
    """d marginals / d fields by central differences."""
    columns = []
    for v, card in enumerate(graph.cardinalities):
        for k in range(int(card)):
            field = np.zeros(int(card))
            field[k] = step
            ends = [kk.infer(with_field(graph, v, s * field), method) for s in (1, -1)]
            assert all(end.converged for end in ends)
            columns.append((ends[0].flat_marginals - ends[1].flat_marginals) / (2 * step))
    return np.stack(columns, axis=1)


def weak_model(seed: int) -> FactorGraph:
    """Mixed cardinalities, loops, factors of three variables, weak enough to converge."""
    rng = np.random.default_rng(seed)
    return random_model(rng, n=5, n_factors=7, max_order=3, max_card=3, scale=0.4)


# ---------------------------------------------------------------------- exact


@pytest.mark.parametrize("method", ["jt", "jt:propagation=hugin", "enumerate"])
@pytest.mark.parametrize("zeros", [0.0, 0.2])
def test_exact_methods_equal_enumeration(method: str, zeros: float) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        graph = random_model(rng, n=5, n_factors=6, zeros=zeros, scale=1.5)
        found = kk.infer(graph, method).covariance()
        np.testing.assert_allclose(found, enumerated_covariance(graph), atol=1e-10)


def test_observed_variables_have_no_covariance() -> None:
    graph = random_model(np.random.default_rng(3), n=6, n_factors=9)
    evidence = {1: 0, 4: int(graph.cardinalities[4]) - 1}
    wanted = enumerated_covariance(graph.clamp(evidence))
    for method in ("jt", "enumerate"):
        found = kk.infer(graph, method, evidence=evidence).covariance()
        np.testing.assert_allclose(found, wanted, atol=1e-10)
    offsets = graph.state_offsets
    for v in evidence:
        assert not found[offsets[v] : offsets[v + 1]].any()
        assert not found[:, offsets[v] : offsets[v + 1]].any()


@pytest.mark.parametrize("method", ["jt", "enumerate", "bp", "mf"])
def test_some_variables_are_rows_and_columns_of_all(method: str) -> None:
    graph = weak_model(1)
    beliefs = kk.infer(graph, method, evidence={2: 0})
    whole = beliefs.covariance()
    asked = [4, 2, 0]
    offsets = graph.state_offsets
    places = np.concatenate([np.arange(offsets[v], offsets[v + 1]) for v in asked])
    np.testing.assert_allclose(beliefs.covariance(asked), whole[np.ix_(places, places)], atol=1e-12)
    assert beliefs.covariance([]).shape == (0, 0)
    assert not beliefs.covariance([2]).any()


def test_names_and_graphs_without_factors() -> None:
    graph = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]])], names=["a", "b"])
    beliefs = kk.infer(graph, "jt")
    np.testing.assert_allclose(beliefs.covariance(["b"]), [[0.25, -0.25], [-0.25, 0.25]])
    np.testing.assert_allclose(beliefs.covariance("b"), beliefs.covariance([1]))  # type: ignore[arg-type]
    alone = kk.infer(FactorGraph([2, 3, 1], []), "bp").covariance()
    wanted = enumerated_covariance(FactorGraph([2, 3, 1], []))
    np.testing.assert_allclose(alone, wanted, atol=1e-15)


# ---------------------------------------------------------------------- belief propagation


@pytest.mark.parametrize("seed", range(4))
def test_bp_is_exact_on_trees(seed: int) -> None:
    tree = kk.generate.random_tree(8, seed=seed, states=2 + seed % 2)
    found = kk.infer(tree, "bp").covariance()
    np.testing.assert_allclose(found, kk.infer(tree, "jt").covariance(), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_bp_is_exact_on_trees_of_large_factors_with_zeros(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cards = [2, 3, 2, 2, 3, 2, 2]
    scopes = [(0, 1, 2), (2, 3), (3, 4, 5), (1, 6), (4,)]
    factors = []
    for scope in scopes:
        table = rng.random([cards[v] for v in scope]) * (
            rng.random([cards[v] for v in scope]) < 0.7
        )
        table[(0,) * len(scope)] = 1.0
        factors.append((scope, table))
    graph = FactorGraph(cards, factors)
    assert graph.is_forest
    wanted = enumerated_covariance(graph)
    np.testing.assert_allclose(kk.infer(graph, "bp").covariance(), wanted, atol=1e-12)


def test_bp_takes_hard_constraints() -> None:
    """Equality and parity: no factor's own covariance has an inverse."""
    equal = np.eye(2)
    parity = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    factors = [
        ((0,), [1, 3]),
        ((0, 1), equal),
        ((1, 2), equal),
        ((2, 3, 4), parity),
        ((3,), [2, 1]),
    ]
    graph = FactorGraph([2] * 5, factors)
    wanted = enumerated_covariance(graph)
    np.testing.assert_allclose(kk.infer(graph, "bp").covariance(), wanted, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_bp_equals_finite_differences_on_loopy_graphs(seed: int) -> None:
    graph = weak_model(seed)
    beliefs = kk.infer(graph, "bp:tol=1e-14")
    numeric = numeric_response(graph, "bp:tol=1e-14")
    np.testing.assert_allclose(beliefs.covariance(), numeric, atol=1e-7)


def test_bp_counts_factors_over_the_same_pair_as_it_does_in_its_messages() -> None:
    table = [[1.5, 1.0], [1.0, 1.5]]
    graph = FactorGraph([2, 2, 2], [((0, 1), table), ((1, 0), table), ((1, 2), table)])
    numeric = numeric_response(graph, "bp:tol=1e-14")
    np.testing.assert_allclose(kk.infer(graph, "bp").covariance(), numeric, atol=1e-7)


def test_bp_strong_couplings_in_ratios_and_tables() -> None:
    """The binary form (ratios) and the general one give the same matrix."""
    graph = kk.grid(4, 4, seed=2, coupling=1.0)
    padded = FactorGraph(
        [2] * 17,
        [(graph.scope(a), graph.log_table(a)) for a in range(graph.n_factors)]
        + [((16,), [0.0, -np.inf])],
        log=True,
    )
    ratios, tables = (kk.infer(g, "bp:damping=0.3,tol=1e-12") for g in (graph, padded))
    assert ratios.diagnostics["arithmetic"] != tables.diagnostics["arithmetic"]
    whole = tables.covariance()
    np.testing.assert_allclose(whole[:32, :32], ratios.covariance(), atol=1e-8)
    assert not whole[32:].any()


# ---------------------------------------------------------------------- mean field and expansions


@pytest.mark.parametrize("seed", range(4))
def test_mean_field_equals_finite_differences(seed: int) -> None:  # T9
    # TEH-T9
    graph = weak_model(seed)
    method = "mf:restarts=0,tol=1e-14"
    numeric = numeric_response(graph, method)
    np.testing.assert_allclose(kk.infer(graph, method).covariance(), numeric, atol=1e-7)


def test_mean_field_inside_a_box_without_forbidden_states() -> None:
    """States that a zero rules out do not respond; the others do, as differences say."""
    graph = FactorGraph(
        [3, 2, 2],
        [((0, 1), [[2, 1], [1, 3], [0, 1]]), ((1, 2), [[2, 1], [1, 2]]), ((0,), [2, 2, 0.1])],
    )
    method = "mf:restarts=0,tol=1e-14"
    beliefs = kk.infer(graph, method)
    assert beliefs.flat_marginals.min() == 0.0
    numeric = numeric_response(graph, method)
    np.testing.assert_allclose(beliefs.covariance(), numeric, atol=1e-7)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_expansions_equal_finite_differences(order: int, seed: int) -> None:
    graph = kk.grid(2, 3, seed=seed, coupling=0.4, field=0.5)
    method = f"plefka:order={order},restarts=0,tol=1e-14"
    numeric = numeric_response(graph, method)
    np.testing.assert_allclose(kk.infer(graph, method).covariance(), numeric, atol=1e-7)


def test_golden_pair() -> None:
    pair = kk.boltzmann_graph({(0, 1): 1.0}, [0.2, -0.4])
    assert kk.infer(pair, "mf").covariance()[1, 3] == pytest.approx(0.0559645552, abs=1e-9)
    for exact in ("jt", "bp", "enumerate"):
        assert kk.infer(pair, exact).covariance()[1, 3] == pytest.approx(0.0537229560, abs=1e-9)


def test_far_better_than_no_covariance_on_weak_networks() -> None:
    """TEH-I7: off the diagonal the error is a small part of what plain mean field (0) misses."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        weights = np.triu(rng.normal(0, 0.1, (6, 6)), 1)
        graph = kk.boltzmann_graph(weights + weights.T, rng.normal(0, 0.5, 6))
        exact = kk.infer(graph, "enumerate").covariance()[1::2, 1::2]
        found = kk.infer(graph, "mf").covariance()[1::2, 1::2]
        apart = ~np.eye(6, dtype=bool)
        error, signal = np.abs(found - exact)[apart].mean(), np.abs(exact)[apart].mean()
        assert error < 0.1 * signal


def test_every_matrix_is_symmetric_and_its_rows_sum_to_zero() -> None:
    graph = kk.grid(3, 3, seed=1, coupling=0.3)
    for method in ("jt", "bp", "mf", "tap", "plefka", "adatap"):
        found = kk.infer(graph, method).covariance()
        np.testing.assert_array_equal(found, found.T)
        np.testing.assert_allclose(found.reshape(18, 9, 2).sum(axis=2), 0.0, atol=1e-12)
        assert np.linalg.eigvalsh(found).min() > -1e-9


# ---------------------------------------------------------------------- refusals


def test_runs_that_did_not_converge_are_refused() -> None:
    graph = kk.grid(3, 3, seed=0)
    for method in ("bp", "tap", "mf:restarts=0", "adatap"):
        beliefs = kk.infer(graph, method, budget=Budget(iterations=1))
        assert not beliefs.converged
        with pytest.raises(KikuchiError, match="did not converge"):
            beliefs.covariance()


def test_critical_and_unstable_points_are_refused() -> None:
    for coupling, complaint in ((1.0, "critical"), (1.5, "negative variance")):
        graph = kk.ising({(0, 1): coupling}, [0.0, 0.0])
        beliefs = kk.infer(graph, "plefka:order=1,restarts=0")  # stays at m = 0
        assert beliefs.converged
        with pytest.raises(KikuchiError, match=complaint):
            beliefs.covariance()


def test_memory_is_asked_for_first() -> None:
    graph = kk.grid(20, 20, seed=0, coupling=0.1)
    beliefs = kk.infer(graph, "bp", budget=Budget(bytes=10**6))
    with pytest.raises(BudgetError, match=r"the covariance of 800 states needs 20 MB.*fewer"):
        beliefs.covariance()
    assert beliefs.covariance([0, 399]).shape == (4, 4)


def test_bad_variables_are_named() -> None:
    beliefs = kk.infer(kk.grid(2, 2, seed=0), "jt")
    with pytest.raises(ModelError, match="a variable is repeated"):
        beliefs.covariance([0, 0])
    with pytest.raises(ModelError):
        beliefs.covariance([7])


def test_dense_and_sparse_solvers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    from kikuchi.engines.response import linear_response

    graph = kk.generate.complete(12, seed=0, coupling=0.1)
    one = [kk.infer(graph, m).covariance() for m in ("mf", "bp", "tap")]
    monkeypatch.setattr(linear_response, "_DENSE_SIZE", 0)
    monkeypatch.setattr(linear_response, "_COLUMNS", 5)
    for method, wanted in zip(("mf", "bp", "tap"), one, strict=True):
        np.testing.assert_allclose(kk.infer(graph, method).covariance(), wanted, atol=1e-12)


def test_certain_variables_have_no_covariance() -> None:
    graph = FactorGraph([2, 2], [((0, 1), [[0, 1], [0, 0]])])
    for method in ("bp", "jt", "enumerate", "mf"):
        np.testing.assert_array_equal(kk.infer(graph, method).covariance(), np.zeros((4, 4)))


@pytest.mark.parametrize("stiff", [0.0, 1e9])
def test_stiff_factors_are_solved_the_other_way(
    stiff: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eliminating every factor, or none, gives the same matrix."""
    from kikuchi.engines.response import reweighted

    graph = weak_model(2)
    beliefs = kk.infer(graph, "bp", evidence={1: 0})
    wanted = beliefs.covariance()
    monkeypatch.setattr(reweighted, "_STIFF", stiff)
    np.testing.assert_allclose(beliefs.covariance(), wanted, atol=1e-12)
