"""Pairwise forms against enumeration of the original model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kikuchi import Budget, FactorGraph, grid
from kikuchi.core.errors import BudgetError, ModelError
from kikuchi.graphs import to_pairwise
from kikuchi.graphs.pairwise import phi_form
from oracle import enumerate_exact, random_model


def all_states(graph: FactorGraph) -> np.ndarray:
    return np.array(list(itertools.product(*(range(int(c)) for c in graph.cardinalities))))


def small_model(seed: int, zeros: float) -> FactorGraph:
    rng = np.random.default_rng(seed)
    return random_model(rng, n=4, n_factors=5, max_order=3, max_card=3, zeros=zeros)


@pytest.mark.parametrize("zeros", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(8))
def test_log_z_and_marginals_are_unchanged(seed: int, zeros: float) -> None:
    graph = small_model(seed, zeros)
    pairwise = to_pairwise(graph)
    assert np.diff(pairwise.graph.scope_offsets).max(initial=0) <= 2
    log_z, marginals, tables = enumerate_exact(graph)
    pair_log_z, pair_marginals, _ = enumerate_exact(pairwise.graph)
    flat = np.concatenate(pair_marginals)
    assert pair_log_z == pytest.approx(log_z, abs=1e-12)
    assert np.allclose(pairwise.restrict_marginals(flat), np.concatenate(marginals), atol=1e-12)
    for a in pairwise.factors:
        assert np.allclose(pairwise.factor_marginal(flat, a), tables[a], atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_every_state_keeps_its_weight(seed: int) -> None:
    # LIU-M5
    graph = small_model(seed, 0.4)
    pairwise = to_pairwise(graph)
    states = all_states(graph)
    states = states[np.isfinite(graph.log_score(states))]
    extended = pairwise.extend_states(states)
    assert np.allclose(pairwise.graph.log_score(extended), graph.log_score(states), atol=1e-12)
    assert np.array_equal(pairwise.restrict_states(extended), states)
    assert np.array_equal(pairwise.extend_states(states[0]), extended[0])


def test_added_states_are_the_configurations_of_positive_weight() -> None:
    table = np.zeros((2, 3, 2))
    table[0, 1, 1], table[1, 2, 0] = 2.0, 3.0
    graph = FactorGraph([2, 3, 2], [((2,), [1, 2]), ((0, 1, 2), table)])
    pairwise = to_pairwise(graph)
    assert pairwise.graph.cardinalities.tolist() == [2, 3, 2, 2]
    assert pairwise.configurations[0].tolist() == [[0, 1, 1], [1, 2, 0]]
    assert pairwise.factors == (1,)
    scopes = [pairwise.graph.scope(a) for a in range(pairwise.graph.n_factors)]
    assert scopes == [(2,), (3,), (0, 3), (1, 3), (2, 3)]


def test_a_state_of_weight_zero_has_no_extension() -> None:
    graph = FactorGraph([2] * 3, [((0, 1, 2), [1, 0, 0, 1, 0, 1, 1, 0])])
    with pytest.raises(ModelError, match="weight zero in factor 0"):
        to_pairwise(graph).extend_states(np.array([1, 1, 1]))


def test_evidence_works_through_the_pairwise_form() -> None:
    graph = small_model(3, 0.0)
    pairwise = to_pairwise(graph)
    v = int(np.argmax(graph.cardinalities))
    reduced = enumerate_exact(graph.condition({v: 1}).graph)
    through = enumerate_exact(pairwise.graph.condition({v: 1}).graph)
    assert through[0] == pytest.approx(reduced[0], abs=1e-12)


def test_a_pairwise_model_stays_as_it_is() -> None:
    graph = grid(3, 3, seed=1)
    pairwise = to_pairwise(graph)
    assert pairwise.graph == graph
    assert pairwise.factors == ()


def test_names_and_states_go_along() -> None:
    graph = FactorGraph(
        [2, 2, 2, 2],
        [(("a", "b", "factor_0"), np.ones(8)), (("a", "b", "c"), np.ones(8))],
        names=["a", "b", "factor_0", "c"],
        states=[["no", "yes"]] * 4,
    )
    pairwise = to_pairwise(graph).graph
    assert pairwise.names == ("a", "b", "factor_0", "c", "factor_0_", "factor_1")
    assert pairwise.states is not None
    assert pairwise.states[4][:2] == ("0-0-0", "0-0-1")


def test_the_budget_is_kept() -> None:
    graph = FactorGraph([2] * 12, [(tuple(range(12)), np.ones(2**12))])
    with pytest.raises(BudgetError, match="the pairwise form needs 852 kB but the budget is 10 kB"):
        to_pairwise(graph, budget=Budget(bytes=10_000))


def test_only_replaced_factors_have_a_table() -> None:
    pairwise = to_pairwise(grid(2, 2))
    with pytest.raises(ModelError, match="factor 0 was not replaced"):
        pairwise.factor_marginal(np.zeros(8), 0)


def test_empty_models() -> None:
    assert to_pairwise(FactorGraph([], [])).graph.n_variables == 0
    assert to_pairwise(FactorGraph([2], [], log_constant=3.0)).graph.log_constant == 3.0


# ---------------------------------------------------------------------- the phi form


def pairwise_model(seed: int, zeros: float) -> FactorGraph:
    rng = np.random.default_rng(seed)
    return random_model(rng, n=5, n_factors=9, max_order=2, max_card=3, zeros=zeros)


@pytest.mark.parametrize("zeros", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(8))
def test_both_forms_agree_on_every_state(seed: int, zeros: float) -> None:
    """TEH-M22; scopes are in random order and some pairs have several factors."""
    graph = pairwise_model(seed, zeros)
    states = all_states(graph)
    phi, psi = phi_form(graph).log_score(states), graph.log_score(states)
    possible = np.isfinite(psi)
    assert np.array_equal(np.isfinite(phi), possible)
    assert np.allclose(phi[possible], psi[possible], atol=1e-11)


def test_phi_tables_are_products_of_psi_tables() -> None:
    rng = np.random.default_rng(0)
    one, two, pair = rng.random(2) + 0.1, rng.random(3) + 0.1, rng.random((3, 2)) + 0.1
    graph = FactorGraph([2, 3], [((0,), one), ((1,), two), ((1, 0), pair)])
    phi = phi_form(graph)
    assert [phi.scope(a) for a in range(3)] == [(0,), (1,), (0, 1)]
    assert np.allclose(phi.table(2), pair.T * one[:, None] * two)
    assert np.allclose(phi.table(0), 1.0)  # one neighbour: the power is zero


def test_lonely_variables_keep_their_factor() -> None:
    graph = FactorGraph([2, 2], [((0,), [0.0, 2.0])])
    assert phi_form(graph).table(0).tolist() == [0.0, 2.0]
    assert phi_form(graph).table(1).tolist() == [1.0, 1.0]


def test_the_phi_form_needs_a_pairwise_model() -> None:
    with pytest.raises(ModelError, match="factor 0 has more than two variables"):
        phi_form(FactorGraph([2] * 3, [((0, 1, 2), np.ones(8))]))
