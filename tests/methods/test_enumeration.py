"""Enumeration against the oracle of the tests, which shares no code with it."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.methods import enumeration
from oracle import enumerate_exact, random_model


def chain(n: int, seed: int = 0) -> kk.FactorGraph:
    rng = np.random.default_rng(seed)
    factors = [((i, i + 1), np.exp(rng.normal(size=(2, 2)))) for i in range(n - 1)]
    return kk.FactorGraph([2] * n, factors)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 0.7]))
def test_equals_the_oracle(seed: int, zeros: float) -> None:
    # LAW-I1
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=6, n_factors=8, max_order=4, max_card=4, zeros=zeros, scale=2.0)
    log_z, singles, tables = enumerate_exact(graph)
    beliefs = kk.infer(graph, "enumerate")
    assert beliefs.log_z == pytest.approx(log_z, abs=1e-11)
    assert beliefs.log_z_lower < beliefs.log_z < beliefs.log_z_upper < beliefs.log_z_lower + 1e-10
    for v in range(6):
        np.testing.assert_allclose(beliefs[v], singles[v], atol=1e-12)
    for a in range(8):
        np.testing.assert_allclose(beliefs.factor(a), tables[a], atol=1e-12)


def test_most_probable_state() -> None:
    for seed in range(20):
        graph = random_model(np.random.default_rng(seed), n=5, zeros=0.2)
        states = list(itertools.product(*(range(int(c)) for c in graph.cardinalities)))
        scores = graph.log_score(np.array(states))
        beliefs = kk.infer(graph, "enumerate")
        assert beliefs.score == pytest.approx(scores.max(), abs=1e-12)
        assert graph.log_score(beliefs.state) == pytest.approx(beliefs.score, abs=1e-12)


def test_evidence_and_constant() -> None:
    graph = kk.FactorGraph(
        [2, 3, 2], [((0, 1), np.arange(1, 7)), ((1, 2), np.arange(2, 8))], log_constant=0.7
    )
    log_z, singles, _ = enumerate_exact(graph.clamp({1: 2}))
    beliefs = kk.infer(graph, "enumerate", evidence={1: 2})
    assert beliefs.log_z == pytest.approx(log_z, abs=1e-12)
    np.testing.assert_allclose(beliefs[0], singles[0], atol=1e-14)
    assert beliefs.state[1] == 2
    assert beliefs.score == pytest.approx(graph.log_score(beliefs.state), abs=1e-12)


def test_weights_far_apart_neither_overflow_nor_vanish() -> None:
    rng = np.random.default_rng(0)
    tables = [rng.uniform(-5000, 5000, size=(2, 2)) for _ in range(9)]
    graph = kk.FactorGraph([2] * 10, [((i, i + 1), t) for i, t in enumerate(tables)], log=True)
    log_z, singles, _ = enumerate_exact(graph)
    beliefs = kk.infer(graph, "enumerate")
    assert beliefs.log_z == pytest.approx(log_z, abs=1e-9)
    np.testing.assert_allclose(np.array(beliefs.marginals), np.array(singles), atol=1e-12)


def test_golden_values_of_the_catalogue() -> None:
    """TEH-I5 and TEH-I8: two nodes, and the 4-cycle."""
    pair = kk.FactorGraph(
        [2, 2], [((0, 1), [[0, 0], [0, 1]]), ((0,), [0, 0.2]), ((1,), [0, -0.4])], log=True
    )
    beliefs = kk.infer(pair, "enumerate")
    assert beliefs.log_z == pytest.approx(1.6326198690, abs=1e-10)
    assert beliefs[0][1] == pytest.approx(0.6735911743, abs=1e-10)
    assert beliefs[1][1] == pytest.approx(0.5659002791, abs=1e-10)
    weights = {(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (3, 0): 3.0}
    factors = [(s, [[0, 0], [0, w]]) for s, w in weights.items()]
    factors += [((i,), [0, b]) for i, b in enumerate([0.1, -0.4, 0.3, -1.0])]
    cycle = kk.infer(kk.FactorGraph([2] * 4, factors, log=True), "enumerate")
    assert cycle.log_z == pytest.approx(4.8426189099, abs=1e-10)
    means = [m[1] for m in cycle.marginals]
    np.testing.assert_allclose(means, [0.9575057988, 0.6467309922, 0.5467118548, 0.8979366102])


def test_chunks_change_nothing_and_their_sums_are_lower_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = random_model(np.random.default_rng(5), n=7, zeros=0.2)
    monkeypatch.setattr(enumeration, "FEW_STATES", 0)
    whole = kk.infer(graph, "enumerate")
    monkeypatch.setattr(enumeration, "_VISITS", 3)
    pieces = kk.infer(graph, "enumerate")
    assert len(pieces.trace) > 10
    assert pieces.log_z == whole.log_z
    np.testing.assert_array_equal(pieces.flat_factors, whole.flat_factors)
    sums = np.asarray(pieces.trace.objective)
    assert np.all(np.diff(sums[np.isfinite(sums)]) >= 0)
    assert np.all(np.diff(pieces.trace.iterations) >= 0)
    assert pieces.trace.objective[-1] == whole.log_z
    assert pieces.trace.iterations[-1] == whole.diagnostics["states"]


def test_too_many_states_are_refused_with_the_figure() -> None:
    with pytest.raises(BudgetError, match=r"1024 states but max_states is 1023; raise max_states"):
        kk.infer(chain(10), "enumerate:max_states=1023")
    assert kk.infer(chain(10), "enumerate:max_states=1024").diagnostics["states"] == 1024
    with pytest.raises(BudgetError, match=r"10\^30\.1 states .* use jt"):
        kk.infer(chain(100), "enumerate")


def test_no_half_answer_when_time_ends_or_the_user_interrupts() -> None:
    kk.infer(chain(3), "enumerate")  # compile outside the clock
    with pytest.raises(BudgetError, match=r"time budget ended .* so far log Z >= .* more seconds"):
        kk.infer(chain(22), "enumerate", budget=Budget(seconds=1e-3))

    def interrupt(done: int, total: int, *, residual: object, objective: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(BudgetError, match="interrupted"):
        kk.infer(chain(24), "enumerate", progress=interrupt)


def test_impossible_models() -> None:
    graph = kk.FactorGraph([2, 2], [((0,), [1, 0]), ((0, 1), [[0, 0], [1, 1]])])
    with pytest.raises(ImpossibleEvidenceError, match="no state"):
        kk.infer(graph, "enumerate")


def test_variables_without_factors() -> None:
    beliefs = kk.infer(kk.FactorGraph([2, 3], []), "enumerate")
    assert beliefs.log_z == pytest.approx(np.log(6))
    np.testing.assert_allclose(beliefs[1], np.full(3, 1 / 3))


def test_states_are_not_stored() -> None:
    graph = chain(20)
    kk.infer(chain(4), "enumerate")
    tracemalloc.start()
    kk.infer(graph, "enumerate")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20  # one byte a state would already be more


def test_a_zero_prefix_skips_its_subtree() -> None:
    """Equal chains have two states of positive weight among 2^24: found in a few visits."""
    n = 24
    graph = kk.FactorGraph([2] * n, [((i, i + 1), np.eye(2)) for i in range(n - 1)])
    beliefs = kk.infer(graph, "enumerate")
    assert beliefs.log_z == pytest.approx(np.log(2))
    assert len(beliefs.trace) == 1
