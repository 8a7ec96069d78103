"""Mean field: the bound, its monotone ascent, zeros, and the published reference values."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import MethodError
from kikuchi.core.progress import silent
from kikuchi.core.trace import Trace
from kikuchi.engines.feasibility import Constraints
from kikuchi.engines.mean_field.kernels.mean_field import bound, sweep_tables
from kikuchi.engines.run import MethodRun
from kikuchi.graphs.binary import boltzmann_parameters
from kikuchi.graphs.graph_arrays import flatten
from kikuchi.methods import mean_field
from oracle import enumerate_exact, random_model


def plain_bound(graph: kk.FactorGraph, q: list[np.ndarray]) -> float:
    """E_q log weight + H(q) by a sum over every state, with 0 log 0 = 0."""
    total = 0.0
    for state in itertools.product(*(range(int(c)) for c in graph.cardinalities)):
        p = math.prod(q[v][x] for v, x in enumerate(state))
        if p > 0:
            total += p * (graph.log_score(list(state)) - math.log(p))
    return total


def joint(graph: kk.FactorGraph) -> tuple[np.ndarray, np.ndarray]:
    """Every state, and its probability."""
    states = np.array(list(itertools.product(*(range(int(c)) for c in graph.cardinalities))))
    scores = graph.log_score(states)
    weights = np.exp(scores - scores.max())
    return states, weights / weights.sum()


def two_nodes() -> kk.FactorGraph:
    factors = [((0, 1), [[0, 0], [0, 1]]), ((0,), [0, 0.2]), ((1,), [0, -0.4])]
    return kk.FactorGraph([2, 2], factors, log=True)


def ferromagnet(n: int, coupling: float) -> kk.FactorGraph:
    table = coupling * np.array([[1, -1], [-1, 1]])
    return kk.FactorGraph([2] * n, [((i, (i + 1) % n), table) for i in range(n)], log=True)


# ---------------------------------------------------------------------- the bound


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.0, 0.4, 0.7]))
@settings(max_examples=60)
def test_bound_is_below_log_z_and_the_gap_is_the_divergence(seed: int, zeros: float) -> None:
    """LIU C3, LAW-T1, LAW-T2: log Z - L = KL(q || p) >= 0."""
    # LIU-D3, LIU-C3, LAW-I4
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, n_factors=6, max_order=4, max_card=3, zeros=zeros, scale=2.0)
    log_z = enumerate_exact(graph)[0]
    beliefs = kk.infer(graph, f"mf:seed={seed}")
    assert beliefs.log_z is not None
    assert beliefs.log_z - 1e-9 < beliefs.log_z_lower < beliefs.log_z
    upper = beliefs.log_z_upper  # to rounding where every variable has one state, otherwise none
    assert upper is None or log_z <= upper < log_z + 1e-9
    assert beliefs.log_z <= log_z + 1e-9
    states, p = joint(graph)
    q = np.prod([beliefs.marginals[v][states[:, v]] for v in range(5)], axis=0)
    assert np.all(p[q > 0] > 0)
    divergence = float(np.sum(q[q > 0] * np.log(q[q > 0] / p[q > 0])))
    assert log_z - beliefs.log_z == pytest.approx(divergence, abs=1e-9)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5]))
@settings(max_examples=40)
def test_bound_kernel_equals_the_sum_over_states(seed: int, zeros: float) -> None:
    # LIU-D4
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, n_factors=6, max_order=5, max_card=3, zeros=zeros)
    q = [rng.dirichlet(np.ones(int(c))) for c in graph.cardinalities]
    if zeros:
        states, p = joint(graph)
        best = states[p.argmax()]
        q = [np.eye(int(c))[x] for c, x in zip(graph.cardinalities, best, strict=True)]
    flat = flatten(graph)
    value = bound(flat, np.concatenate(q), 1.0, np.zeros(3**5))
    assert value == pytest.approx(plain_bound(graph, q), abs=1e-10)


def test_forbidden_entries_of_positive_probability_give_minus_infinity() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), np.eye(2))])
    assert bound(flatten(graph), np.full(4, 0.5), 1.0, np.zeros(2)) == -np.inf


def test_exact_when_the_model_factorises() -> None:
    rng = np.random.default_rng(0)
    factors = [((v,), rng.random(3)) for v in range(4)]
    factors += [((0, 1), np.outer(rng.random(3), rng.random(3)))]
    graph = kk.FactorGraph([3] * 4, factors)
    log_z, singles, tables = enumerate_exact(graph)
    beliefs = kk.infer(graph, "mf")
    assert beliefs.log_z == pytest.approx(log_z, abs=1e-12)
    for v in range(4):
        np.testing.assert_allclose(beliefs[v], singles[v], atol=1e-12)
    np.testing.assert_allclose(beliefs.factor(4), tables[4], atol=1e-12)


def test_factor_beliefs_are_products() -> None:
    graph = random_model(np.random.default_rng(1), n=5, n_factors=7, max_order=4)
    beliefs = kk.infer(graph, "mf")
    for a in range(graph.n_factors):
        expected = np.ones(())
        for v in graph.scope(a):
            expected = np.multiply.outer(expected, beliefs[v])
        np.testing.assert_allclose(beliefs.factor(a), expected, atol=1e-14)


# ---------------------------------------------------------------------- the ascent


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_no_single_update_lowers_the_bound(seed: int) -> None:
    """LAW-T3, TEH-T6: one variable at a time, measured by the sum over states."""
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=4, n_factors=6, max_order=3, max_card=3, scale=2.0)
    flat = flatten(graph)
    q = np.concatenate([rng.dirichlet(np.ones(int(c))) for c in graph.cardinalities])
    alive = np.ones(len(q), dtype=bool)
    pieces = graph.state_offsets[1:-1]
    before = plain_bound(graph, np.split(q, pieces))
    for v in rng.permutation(np.tile(np.arange(4), 3)):
        order = np.array([v], dtype=np.uint32)
        sweep_tables(flat, q, alive, order, np.ones(1), 0.0, np.zeros(3), np.zeros(27))
        after = plain_bound(graph, np.split(q, pieces))
        assert after >= before - 1e-9
        before = after


@pytest.mark.parametrize("zeros", [0.0, 0.5])
@pytest.mark.parametrize("order", ["given", "random"])
def test_trace_rises_in_every_start(zeros: float, order: str) -> None:
    for seed in range(10):
        graph = random_model(np.random.default_rng(seed), n=7, n_factors=10, zeros=zeros)
        beliefs = kk.infer(graph, f"mf:order={order},restarts=3,anneal_from=3")
        steps = [*beliefs.diagnostics["first_steps"], len(beliefs.trace)]
        assert len(steps) == 5
        for first, last in itertools.pairwise(steps):
            objective = np.array(beliefs.trace.objective[first:last])
            ascent = objective[~np.isnan(objective)]
            assert len(ascent) >= 1
            assert np.all(np.diff(ascent) >= -1e-9)
            assert np.isfinite(ascent).all()


def test_fixed_point_is_stationary() -> None:
    """The bound falls in every direction that keeps q normalised (finite differences)."""
    graph = random_model(np.random.default_rng(11), n=5, n_factors=7, max_card=3)
    beliefs = kk.infer(graph, "mf:tol=1e-13")
    rng = np.random.default_rng(0)
    flat = flatten(graph)
    for _ in range(20):
        moved = [0.999 * m + 0.001 * rng.dirichlet(np.ones(len(m))) for m in beliefs.marginals]
        assert bound(flat, np.concatenate(moved), 1.0, np.zeros(27)) <= beliefs.log_z + 1e-12


def test_form_in_bits_equals_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        graph = random_model(rng, n=12, n_factors=25, max_order=2, max_card=2, scale=1.5)
        bits = kk.infer(graph, "mf:restarts=2")
        assert boltzmann_parameters(graph) is not None
        with monkeypatch.context() as patch:
            patch.setattr(mean_field, "boltzmann_parameters", lambda graph: None)
            tables = kk.infer(graph, "mf:restarts=2")
        assert bits.iterations == tables.iterations
        np.testing.assert_allclose(bits.flat_marginals, tables.flat_marginals, atol=1e-11)
        assert bits.log_z == pytest.approx(tables.log_z, abs=1e-11)


# ---------------------------------------------------------------------- reference values


def test_golden_two_nodes() -> None:
    """TEH-I5."""
    beliefs = kk.infer(two_nodes(), "mf:tol=1e-12")
    assert beliefs[0][1] == pytest.approx(0.6836143601, abs=1e-10)
    assert beliefs[1][1] == pytest.approx(0.5704321088, abs=1e-10)
    assert beliefs.log_z == pytest.approx(1.6058133289, abs=1e-10)


def test_ising_fixed_point_in_spins() -> None:
    """LIU-I2, HOJ-I9: m_i = tanh(h_i + sum_j J_ij m_j)."""
    rng = np.random.default_rng(2)
    n, fields = 6, rng.normal(size=6) * 0.5
    couplings = np.triu(rng.normal(size=(n, n)) * 0.3, 1)
    spins = np.array([-1.0, 1.0])
    factors = [((i,), fields[i] * spins) for i in range(n)]
    factors += [
        ((i, j), couplings[i, j] * np.outer(spins, spins))
        for i in range(n)
        for j in range(i + 1, n)
    ]
    beliefs = kk.infer(kk.FactorGraph([2] * n, factors, log=True), "mf:tol=1e-13")
    m = np.array([b @ spins for b in beliefs.marginals])
    symmetric = couplings + couplings.T
    np.testing.assert_allclose(m, np.tanh(fields + symmetric @ m), atol=1e-12)
    entropy = -sum(p * np.log(p) for b in beliefs.marginals for p in b)
    energy = fields @ m + 0.5 * m @ symmetric @ m
    assert beliefs.log_z == pytest.approx(energy + entropy, abs=1e-12)


def read_grid(path: Path) -> kk.FactorGraph:
    """A MARKOV file of one- and two-variable tables, read without the library's own reader."""
    words = iter(path.read_text().split())
    assert next(words) == "MARKOV"
    n = int(next(words))
    cards = [int(next(words)) for _ in range(n)]
    scopes = [[int(next(words)) for _ in range(int(next(words)))] for _ in range(int(next(words)))]
    tables = [[float(next(words)) for _ in range(int(next(words)))] for _ in scopes]
    return kk.FactorGraph(cards, list(zip(scopes, tables, strict=True)))


def ascend_all(graph: kk.FactorGraph, method: kk.methods.MeanField) -> mean_field.MeanFieldAscent:
    ascent = mean_field.MeanFieldAscent(
        method, graph, MethodRun(Budget().start(), silent, Trace(), 0.0)
    )
    ascent.from_all_starts()
    return ascent


def test_reference_grid(shared: Path) -> None:
    """g10: one of our starts ends at libDAI's optimum, and the best bound is above it."""
    graph = read_grid(shared / "reference" / "grids" / "g10.uai")
    exact = json.loads((shared / "reference" / "grids" / "g10.exact.json").read_text())
    method = kk.methods.MeanField(restarts=150)
    ascent = ascend_all(graph, method)
    bounds = np.array([optimum.bound for optimum in ascent.optima])
    theirs = np.flatnonzero(np.abs(bounds - 159.997404587) < 1e-6)
    assert len(theirs) >= 1
    errors = np.abs(ascent.optima[theirs[0]].beliefs[1::2] - np.array(exact["p1"]))
    assert errors.max() == pytest.approx(0.641, abs=5e-4)
    assert bounds[0] == pytest.approx(160.935362327, abs=1e-6)  # the uniform start
    assert 159.997404587 <= bounds.max() <= exact["log_z"]
    best = kk.infer(graph, method)
    assert best.log_z == pytest.approx(bounds.max(), abs=1e-10)
    assert best.converged


def test_catalogued_grid_w10(shared: Path) -> None:
    graph = read_grid(shared / "reference" / "grids" / "w10.uai")
    beliefs = kk.infer(graph, "mf")
    assert 115.0 < beliefs.log_z <= 122.697880624
    assert beliefs.converged


# ---------------------------------------------------------------------- starts and annealing


def test_uniform_start_of_a_symmetric_model_is_a_saddle_that_restarts_leave() -> None:
    graph = ferromagnet(6, 1.0)
    saddle = kk.infer(graph, "mf:restarts=0")
    np.testing.assert_allclose(saddle.flat_marginals, 0.5, atol=1e-12)
    assert saddle.log_z == pytest.approx(6 * np.log(2), abs=1e-12)
    better = kk.infer(graph, "mf:restarts=2")
    assert better.log_z > saddle.log_z + 1.0
    assert better.diagnostics["best_start"] > 0
    assert better.diagnostics["bounds"][0] == pytest.approx(saddle.log_z, abs=1e-12)


def test_bounds_of_starts_include_the_constant() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), [[4, 1], [1, 4]])], log_constant=5.0)
    beliefs = kk.infer(graph, "mf")
    assert max(beliefs.diagnostics["bounds"]) == pytest.approx(beliefs.log_z, abs=1e-12)
    assert beliefs.trace.objective[-1] <= beliefs.log_z + 1e-9


def test_annealing_is_followed_by_the_ascent_at_temperature_one() -> None:
    rng = np.random.default_rng(4)
    graph = random_model(rng, n=8, n_factors=16, max_order=2, max_card=3, scale=2.0)
    beliefs = kk.infer(graph, "mf:anneal_from=10,anneal_sweeps=30,restarts=0")
    assert np.isnan(beliefs.trace.objective[:30]).all()
    assert np.isfinite(beliefs.trace.objective[30:]).all()
    assert beliefs.converged
    cold = kk.infer(graph, "mf:restarts=0")
    assert np.isfinite(cold.trace.objective).all()
    assert beliefs.log_z == pytest.approx(plain_bound(graph, beliefs.marginals), abs=1e-10)


def test_hot_start_forgets_where_it_began() -> None:
    graph = two_nodes()
    method = kk.methods.MeanField(restarts=6, anneal_from=1e6, anneal_sweeps=40)
    bounds = kk.infer(graph, method).diagnostics["bounds"]
    np.testing.assert_allclose(bounds, bounds[0], atol=1e-12)


# ---------------------------------------------------------------------- zeros


def test_equality_constraint_ends_on_one_state() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), np.eye(2)), ((0,), [1, 3])])
    beliefs = kk.infer(graph, "mf")
    assert beliefs.log_z == pytest.approx(np.log(3))
    np.testing.assert_allclose(beliefs[1], [0, 1])


def test_support_is_as_large_as_it_can_be() -> None:
    """One forbidden pair: no state that could be added without it is left out."""
    table = np.ones((3, 3))
    table[0, 0] = 0.0
    graph = kk.FactorGraph([3, 3], [((0, 1), table)])
    beliefs = kk.infer(graph, "mf")
    assert beliefs.log_z == pytest.approx(np.log(6))  # 3 x 2 states; the exact sum has 8
    assert beliefs.converged


def test_states_that_cannot_occur_get_exactly_nothing() -> None:
    graph = kk.FactorGraph([3, 2], [((0,), [0, 1, 2]), ((0, 1), [[5, 5], [1, 0], [0, 1]])])
    beliefs = kk.infer(graph, "mf")
    assert beliefs[0][0] == 0.0
    assert beliefs.log_z == pytest.approx(np.log(2))


def test_parity_checks() -> None:
    """A product distribution on code words is one code word: the bound is its weight."""
    parity = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    triples = [(0, 1, 2), (2, 3, 4), (4, 5, 0), (1, 3, 5)]
    noise = [((v,), [0.8, 0.2] if v % 2 else [0.3, 0.7]) for v in range(6)]
    graph = kk.FactorGraph([2] * 6, [*((t, parity) for t in triples), *noise])
    beliefs = kk.infer(graph, "mf")
    assert set(beliefs.flat_marginals.tolist()) == {0.0, 1.0}
    state = [int(m[1]) for m in beliefs.marginals]
    assert beliefs.log_z == pytest.approx(graph.log_score(state))


def test_no_admissible_distribution_is_said_and_not_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Constraints, "box", lambda self, q: None)
    monkeypatch.setattr(Constraints, "find_state", lambda self, p, rng, clock: None)
    graph = kk.FactorGraph([2, 2], [((0, 1), np.eye(2))])
    beliefs = kk.infer(graph, "mf:restarts=1")
    assert beliefs.log_z is None
    assert beliefs.log_z_lower is None
    assert not beliefs.converged
    assert beliefs.diagnostics["bounds"] == [None, None]
    assert "no product distribution" in beliefs.warnings[0]
    assert np.isfinite(beliefs.flat_marginals).all()


def test_search_takes_over_where_the_greedy_box_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Constraints, "box", lambda self, q: None)
    for seed in range(5):
        graph = random_model(np.random.default_rng(seed), n=6, n_factors=9, zeros=0.5)
        beliefs = kk.infer(graph, "mf")
        assert -np.inf < beliefs.log_z <= enumerate_exact(graph)[0] + 1e-9


# ---------------------------------------------------------------------- budgets and options


def big_grid(zeros: bool = False) -> kk.FactorGraph:
    rng = np.random.default_rng(0)
    index = np.arange(2500).reshape(50, 50)
    pairs = np.concatenate(
        [
            np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], 1),
            np.stack([index[:-1].ravel(), index[1:].ravel()], 1),
        ]
    )
    tables = np.exp(rng.normal(size=(len(pairs), 2, 2)))
    if zeros:
        tables[:, 1, 1] = 0.0
    return kk.FactorGraph([2] * 2500, list(zip(pairs.tolist(), tables, strict=True)))


@pytest.mark.parametrize("zeros", [False, True])
def test_time_budget_returns_a_bound_marked(zeros: bool) -> None:
    graph = big_grid(zeros)
    kk.infer(graph, "mf:max_iter=1,restarts=0")
    beliefs = kk.infer(graph, "mf:restarts=100,tol=0", budget=Budget(seconds=0.05))
    assert beliefs.stopped == "seconds"
    assert not beliefs.converged
    assert np.isfinite(beliefs.log_z)
    assert any("of 101 starts" in w for w in beliefs.warnings)
    assert beliefs.seconds < 5


def test_interrupt_outside_the_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Constraints, q: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Constraints, "box", interrupted)
    beliefs = kk.infer(kk.FactorGraph([2, 2], [((0, 1), np.eye(2))]), "mf")
    assert beliefs.stopped == "interrupted"
    assert beliefs.log_z is None


def test_iteration_limits() -> None:
    graph = random_model(np.random.default_rng(3), n=8, n_factors=14, scale=2.0)
    cut = kk.infer(graph, "mf:max_iter=2,restarts=0")
    assert (cut.stopped, cut.converged, cut.iterations) == ("iterations", False, 2)
    assert any("max_iter" in w for w in cut.warnings)
    budget = kk.infer(graph, "mf", budget=Budget(iterations=3))
    assert (budget.stopped, budget.iterations) == ("iterations", 3)
    assert budget.log_z <= enumerate_exact(graph)[0]
    every = kk.infer(graph, "mf:tol=0,max_iter=37,restarts=0")
    assert (every.iterations, every.converged) == (37, False)


def test_evidence() -> None:
    graph = random_model(np.random.default_rng(9), n=6, n_factors=9, max_card=3)
    v = int(np.flatnonzero(graph.cardinalities > 1)[0])
    log_z = enumerate_exact(graph.clamp({v: 1}))[0]
    beliefs = kk.infer(graph, "mf", evidence={v: 1})
    assert beliefs[v][1] == 1.0
    assert beliefs.log_z <= log_z + 1e-9
    assert beliefs.log_z == pytest.approx(plain_bound(graph, beliefs.marginals), abs=1e-10)


def test_variables_without_factors() -> None:
    beliefs = kk.infer(kk.FactorGraph([2, 3], []), "mf")
    assert beliefs.log_z == pytest.approx(np.log(6))


@pytest.mark.parametrize(
    "text", ["mf:order=sideways", "mf:restarts=-1", "mf:anneal_from=0.5", "mf:tol=-1"]
)
def test_options_are_checked(text: str) -> None:
    with pytest.raises(MethodError):
        kk.methods.parse_method(text)
