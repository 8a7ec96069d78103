"""Constraint propagation, search and boxes against enumeration and known puzzles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import ImpossibleEvidenceError, MethodError
from kikuchi.engines.feasibility import Constraints, require_possible
from kikuchi.graphs.binary import boltzmann_parameters
from kikuchi.graphs.graph_arrays import flatten
from kikuchi.methods.registry import METHODS
from oracle import enumerate_exact, random_model


def queens(n: int) -> kk.FactorGraph:
    a, b = np.indices((n, n))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    tables = [((a != b) & (np.abs(a - b) != i - j)).astype(float) for i, j in pairs]
    return kk.FactorGraph([n] * n, list(zip(pairs, tables, strict=True)))


@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.6, 0.8]))
@settings(max_examples=60)
def test_against_enumeration(seed: int, zeros: float) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=6, n_factors=9, max_order=4, max_card=4, zeros=zeros)
    constraints = Constraints(flatten(graph))
    possible = np.concatenate(enumerate_exact(graph)[1]) > 0
    assert np.all(constraints.alive[possible])
    wish = rng.random(len(possible))
    state = constraints.find_state(wish, rng, Budget().start())
    assert state is not None
    assert np.isfinite(graph.log_score(state))
    box = constraints.box(wish)
    if box is not None:
        for a in range(graph.n_factors):
            sides = [
                box[graph.state_offsets[v] : graph.state_offsets[v + 1]] for v in graph.scope(a)
            ]
            inside = graph.log_table(a)[np.ix_(*sides)]
            assert inside.size
            assert np.isfinite(inside).all()


def test_queens() -> None:
    rng = np.random.default_rng(0)
    graph = queens(10)
    states = set()
    for _ in range(5):
        state = Constraints(flatten(graph)).find_state(rng.random(100), rng, Budget().start())
        assert graph.log_score(state) == 0.0
        states.add(tuple(state.tolist()))
    assert len(states) > 1
    with pytest.raises(ImpossibleEvidenceError, match="no state"):
        Constraints(flatten(queens(3))).find_state(np.zeros(9), rng, Budget().start())


def test_the_wish_is_followed_where_nothing_forbids_it() -> None:
    graph = kk.FactorGraph([3, 3], [((0, 1), [[0, 1, 1], [1, 1, 1], [1, 1, 1]])])
    rng = np.random.default_rng(0)
    state = Constraints(flatten(graph)).find_state(
        np.array([0, 0, 1.0, 0, 1.0, 0]), rng, Budget().start()
    )
    assert state.tolist() == [2, 1]


def test_box_keeps_the_likelier_states() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), [[1, 0], [1, 1]])])
    constraints = Constraints(flatten(graph))
    assert constraints.binding
    box = constraints.box(np.array([0.1, 0.9, 0.5, 0.5]))
    assert box.tolist() == [False, True, True, True]
    box = constraints.box(np.array([0.6, 0.4, 0.7, 0.3]))
    assert box.tolist() == [True, True, True, False]


def test_bits_form_has_the_same_weights() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        graph = random_model(rng, n=6, n_factors=12, max_order=2, max_card=2)
        bits = boltzmann_parameters(graph)
        states = rng.integers(0, 2, size=(20, 6))
        dense = np.zeros((6, 6))
        rows = np.repeat(np.arange(6), bits.degrees)
        dense[rows, bits.neighbours] = bits.weights
        np.testing.assert_array_equal(dense, dense.T)
        ours = bits.constant + states @ bits.biases
        ours += 0.5 * np.einsum("ki,ij,kj->k", states, dense, states)
        np.testing.assert_allclose(ours, graph.log_score(states), atol=1e-12)


@pytest.mark.parametrize(
    "graph",
    [
        kk.FactorGraph([2, 3], []),
        kk.FactorGraph([2, 2, 2], [((0, 1, 2), np.ones(8))]),
        kk.FactorGraph([2, 2], [((0, 1), [1, 0, 1, 1])]),
    ],
)
def test_no_bits_form_for_other_models(graph: kk.FactorGraph) -> None:
    assert boltzmann_parameters(graph) is None


# ---------------------------------------------------------------------- before every method

CONTRADICTION = kk.FactorGraph([2, 2], [((0, 1), np.eye(2)), ((0, 1), 1 - np.eye(2))])
ODD_RING = kk.FactorGraph([2] * 5, [((i, (i + 1) % 5), 1 - np.eye(2)) for i in range(5)])
TWO_FIELDS = kk.FactorGraph([2], [((0,), [0.0, 1.0]), ((0,), [1.0, 0.0])])


@pytest.mark.parametrize("graph", [CONTRADICTION, ODD_RING, TWO_FIELDS])
@pytest.mark.parametrize("text", [*METHODS, "kikuchi:solver=penalty", "ups-t"])
def test_no_method_answers_where_no_state_is_possible(text: str, graph: kk.FactorGraph) -> None:
    with pytest.raises((ImpossibleEvidenceError, MethodError)):
        kk.infer(graph, text)


def test_the_check_costs_less_than_the_method() -> None:
    """A large model that has zeros and no contradiction: the search finds a state at once."""
    graph = kk.FactorGraph(
        [3] * 20_000, [((i, i + 1), 1 - 0.999 * np.eye(3) * (i % 2)) for i in range(19_999)]
    )
    zeros = kk.FactorGraph([3] * 20_000, [((i, i + 1), 1 - np.eye(3)) for i in range(19_999)])
    require_possible(zeros)  # loads the loops
    clock = Budget().start()
    require_possible(zeros)
    check = clock.seconds
    kk.infer(graph, "bp:tol=0,max_iter=20")
    assert check < clock.seconds - check
