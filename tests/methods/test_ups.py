"""Unified propagation and scaling: golden values, monotone free energy, counts, schedules.

Rows TEH-M23, I16, I17, WH-I5; tests T10, T15, T16, T17, T18 of the catalogue.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.core.errors import (
    BudgetError,
    EvidenceError,
    ImpossibleEvidenceError,
    MethodError,
)
from kikuchi.engines.messages.clamped_messages import (
    ClampedMessages,
    free_energy_limit,
    observed_marginals,
)
from kikuchi.engines.messages.kernels import bp_messages
from kikuchi.engines.messages.update_order import Walks, make_update_order
from kikuchi.methods import UnifiedScaling
from oracle import enumerate_exact, random_model

CYCLE = kk.boltzmann_graph(
    {(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (0, 3): 3.0}, [0.1, -0.4, 0.3, -1.0]
)


def bethe_free_energy(beliefs: kk.Beliefs) -> float:
    """F of TEH-M23 from the beliefs and the tables alone."""
    graph = beliefs.graph
    value = 0.0
    for a in range(graph.n_factors):
        b, log_phi = beliefs.factor(a), graph.log_table(a)
        on = b > 0
        value += float((b[on] * (np.log(b[on]) - log_phi[on])).sum())
    for v in range(graph.n_variables):
        b = beliefs[v][beliefs[v] > 0]
        value += (1 - len(graph.neighbours(v))) * float((b * np.log(b)).sum())
    return value


def margin(table: np.ndarray, v: int) -> np.ndarray:
    return table.sum(axis=tuple(u for u in range(table.ndim) if u != v))


def check_consistent(beliefs: kk.Beliefs, tol: float = 1e-8) -> None:
    for a in range(beliefs.graph.n_factors):
        for position, v in enumerate(beliefs.graph.scope(a)):
            np.testing.assert_allclose(margin(beliefs.factor(a), position), beliefs[v], atol=tol)


def thesis_lattice(
    seed: int, weight: float = 5.0, bias: float = 1.0, target: float = 4.0, size: int = 5
) -> tuple[FactorGraph, dict[int, np.ndarray]]:
    """A random lattice machine with observed border, as in TEH-E9."""
    rng = np.random.default_rng(seed)
    n = size * size
    weights = np.zeros((n, n))
    for i in range(n):
        for j in ([i + 1] if (i + 1) % size else []) + ([i + size] if i + size < n else []):
            weights[i, j] = weights[j, i] = rng.normal(0, weight)
    biases = rng.normal(-0.5 * weights.sum(axis=1), bias)
    border = [v for v in range(n) if v // size in (0, size - 1) or v % size in (0, size - 1)]
    high = 1 / (1 + np.exp(rng.normal(0, target, len(border))))
    targets = {v: np.array([1 - x, x]) for v, x in zip(border, high, strict=True)}
    return kk.boltzmann_graph(weights, biases), targets


# ---------------------------------------------------------------------- golden values


def test_golden_descent_of_the_cycle() -> None:
    # TEH-T5
    found = UnifiedScaling(clamps=[[0], [2]], tol=1e-12).run(CYCLE)
    wanted = [3.9569957482, 4.8460427823, 4.8463225482, 4.8463225686]
    np.testing.assert_allclose(found.trace.objective[:4], wanted, atol=1e-9)
    means = [0.9541356350, 0.6456501152, 0.5463677573, 0.8950052559]
    np.testing.assert_allclose([m[1] for m in found.marginals], means, atol=1e-9)


def test_golden_homogeneous_cycle() -> None:
    cycle = kk.boltzmann_graph({(0, 1): 1, (1, 2): 1, (2, 3): 1, (0, 3): 1}, [-0.8] * 4)
    found = kk.infer(cycle, "ups:tol=1e-12")
    np.testing.assert_allclose([m[1] for m in found.marginals], 0.5814700111, atol=1e-9)
    assert found.log_z == pytest.approx(2.3290880308, abs=1e-9)


# ---------------------------------------------------------------------- equal to the others


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("clamps", ["auto", "greedy"])
def test_equals_bp_where_it_converges(seed: int, clamps: str) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=8, n_factors=12, scale=0.7)
    evidence = {1: 0} if seed % 2 else {}
    other = kk.infer(graph, "bp:tol=1e-12,damping=0.2", evidence=evidence)
    assert other.converged
    found = kk.infer(graph, f"ups:tol=1e-11,clamps={clamps}", evidence=evidence)
    assert found.converged
    np.testing.assert_allclose(found.flat_marginals, other.flat_marginals, atol=1e-8)
    np.testing.assert_allclose(found.flat_factors, other.flat_factors, atol=1e-8)
    assert found.log_z == pytest.approx(other.log_z, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_thesis_lattices_agree_between_methods(seed: int) -> None:  # T16
    # TEH-T16
    graph, targets = thesis_lattice(seed)
    first = kk.infer(graph, "ups:tol=1e-11", evidence=targets)
    assert first.converged
    assert np.all(np.diff(first.trace.objective) >= -1e-9)
    check_consistent(first)
    for method in ("ups:clamps=columns", "ups:clamps=greedy", "bo", "loopy-is:max_iter=500"):
        found = kk.infer(graph, method, evidence=targets)
        assert found.converged, method
        assert found.log_z == pytest.approx(first.log_z, abs=1e-8)
        np.testing.assert_allclose(found.flat_marginals, first.flat_marginals, atol=1e-7)


@pytest.mark.parametrize("options", ["", "start=bp", "clamps=columns", "clamps=greedy"])
@pytest.mark.parametrize(("coupling", "log_z"), [(1.0, 29.69519426), (2.0, 52.18550606)])
def test_converges_and_falls_at_strong_coupling(
    options: str, coupling: float, log_z: float
) -> None:
    graph = kk.grid(5, 5, seed=1, coupling=coupling, field=0.3)
    found = kk.infer(graph, f"ups:{options}")
    assert found.converged
    assert np.all(np.diff(found.trace.objective) >= -1e-9)
    assert found.diagnostics["stationarity"] < 1e-6
    assert found.log_z == pytest.approx(log_z, abs=1e-6)
    check_consistent(found)
    assert -bethe_free_energy(found) == pytest.approx(found.log_z, abs=1e-6)


def test_bp_does_not_converge_there() -> None:
    graph = kk.grid(5, 5, seed=1, coupling=2.0, field=0.3)
    assert not kk.infer(graph, "bp").converged
    assert not kk.infer(graph, "loopy-is").converged


@pytest.mark.parametrize("clamps", ["rows-columns", "columns", "greedy"])
@pytest.mark.parametrize("coupling", [5.0, 10.0, 30.0, 60.0, 100.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_couplings_up_to_a_hundred(seed: int, coupling: float, clamps: str) -> None:
    """Monotone to 1e-9, converged, and the free energy is that of the beliefs that are returned."""
    # TEH-T16
    graph = kk.grid(5, 5, seed=seed, coupling=coupling, field=0.3)
    found = kk.infer(graph, f"ups:clamps={clamps}", budget=Budget(seconds=20))
    assert found.converged and found.diagnostics["stationarity"] < 1e-6
    assert np.all(np.diff(found.trace.objective) >= -1e-9)
    assert found.log_z == pytest.approx(found.trace.objective[-1], abs=1e-9)
    check_consistent(found, 1e-10)
    assert -bethe_free_energy(found) == pytest.approx(found.log_z, abs=1e-9)
    if clamps != "greedy":  # other sets lead to the same point
        other = kk.infer(graph, "ups:clamps=greedy")
        assert found.log_z == pytest.approx(other.log_z, abs=1e-6)


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_strong_factors_zeros_and_targets_never_rise(seed: int) -> None:
    """Any factors, any sets; also where the sets in turn are not helped by joint steps."""
    # TEH-T16
    rng = np.random.default_rng(seed)
    scale, zeros = float(rng.choice([1.0, 10.0, 30.0, 100.0])), float(rng.choice([0.0, 0.2]))
    graph = random_model(rng, n=7, n_factors=9, scale=scale, zeros=zeros)
    hidden = np.flatnonzero(graph.cardinalities > 1)
    chosen = rng.permutation(hidden)[: rng.integers(0, 3)]
    targets = {int(v): rng.dirichlet(np.ones(graph.cardinalities[v])) for v in chosen}
    options = f"clamps=greedy,accelerate={rng.choice(['true', 'false'])}"
    budget = Budget(iterations=100, seconds=2)
    try:
        found = kk.infer(graph, f"ups:{options}", evidence=targets, budget=budget)
    except EvidenceError:
        assert zeros and targets
        return
    objective = np.array(found.trace.objective)
    assert np.all(np.diff(objective[np.isfinite(objective)]) >= -1e-9)
    check_consistent(found, 1e-9)
    assert -bethe_free_energy(found) == pytest.approx(found.log_z, abs=1e-8)


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_free_energy_never_rises(seed: int) -> None:
    # TEH-T16
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=7, n_factors=10, scale=float(rng.uniform(0.3, 2.5)))
    hidden = np.flatnonzero(graph.cardinalities > 1)
    chosen = rng.permutation(hidden)[: rng.integers(0, 3)]
    targets = {int(v): rng.dirichlet(np.ones(graph.cardinalities[v])) for v in chosen}
    found = kk.infer(graph, "ups", evidence=targets, budget=Budget(iterations=300))
    assert np.all(np.diff(found.trace.objective) >= -1e-9)
    assert -bethe_free_energy(found) == pytest.approx(found.log_z, abs=1e-6)


# ---------------------------------------------------------------------- the parts


def test_clamping_splits_the_free_energy() -> None:  # T15, Theorem 5.6.1 with ER18
    # TEH-T15
    graph = kk.grid(2, 3, seed=4, coupling=0.5)
    rng = np.random.default_rng(0)
    targets = {v: rng.dirichlet(np.ones(2)) for v in (1, 4)}
    found = kk.infer(graph, "ups-t:tol=1e-13", evidence=targets)
    # Replace every observed variable by one leaf for each of its factors and solve exactly.
    factors, cards, copies = [], [], {}
    number = {}
    for v in range(6):
        if v not in targets:
            number[v] = len(cards)
            cards.append(2)
    for a in range(graph.n_factors):
        scope = []
        for v in graph.scope(a):
            if v in targets:
                copies[len(cards)] = targets[v]
                scope.append(len(cards))
                cards.append(2)
            else:
                scope.append(number[v])
        factors.append((scope, graph.table(a)))
    split = FactorGraph(cards, factors)
    assert split.is_forest
    parts = kk.infer(split, "is:tol=1e-8,max_iter=100000", evidence=copies)
    constant = 0.0
    for v, target in targets.items():
        constant += (1 - len(graph.neighbours(v))) * float((target * np.log(target)).sum())
    assert -found.log_z == pytest.approx(-parts.log_z + constant, abs=1e-9)


def star_with_tail() -> FactorGraph:
    """Leaves 1, 2, 3 round 0, and a chain 0 - 4 - 5 that leads nowhere."""
    rng = np.random.default_rng(1)
    edges = [(0, 1), (0, 2), (3, 0), (0, 4), (4, 5)]
    singles = [((v,), rng.random(2) + 0.1) for v in range(6)]
    return FactorGraph([2] * 6, [*singles, *((e, rng.random((2, 2)) + 0.1) for e in edges)])


def test_counts_of_messages_and_scalings() -> None:  # T18
    # TEH-T18
    targets = {1: [0.2, 0.8], 2: [0.6, 0.4], 3: [0.5, 0.5]}
    found = kk.infer(star_with_tail(), "ups-t", evidence=targets)
    counts = found.diagnostics
    assert counts["messages_per_walk"] == [2 * 3]  # 2 |E(S)|: the tail is outside S
    assert counts["scalings_per_walk"] == [3]
    assert counts["scalings"] == 3 * counts["walks"]
    assert counts["messages"] == 2 * 5 + 6 * counts["walks"]  # and one pass up and down
    assert counts["walks"] == found.iterations > 2


def test_one_target_needs_one_scaling_and_none_none() -> None:
    one = kk.infer(star_with_tail(), "ups-t", evidence={5: [0.1, 0.9]})
    assert one.diagnostics["scalings_per_walk"] == [1]
    assert one.iterations == 2  # the second walk only finds that nothing moves
    none = kk.infer(star_with_tail(), "ups-t")
    assert none.iterations == 1 and none.diagnostics["scalings"] == 0
    np.testing.assert_allclose(
        none.flat_marginals, kk.infer(star_with_tail(), "jt").flat_marginals, atol=1e-12
    )


def test_scaled_marginals_are_exact_and_dual_is_monotone() -> None:  # TEH-I16
    graph = star_with_tail()
    targets = {1: np.array([0.2, 0.8]), 2: np.array([0.6, 0.4]), 5: np.array([0.9, 0.1])}
    found = kk.infer(graph, "ups-t", evidence=targets)
    assert np.all(np.diff(found.trace.objective) <= 1e-12)  # minus the dual falls
    observed, marginals = observed_marginals(graph, targets)
    schedule = make_update_order(graph, observed)
    assert schedule is not None
    messages = ClampedMessages(graph, bp_messages.SUM)
    messages.clamp(observed, marginals)
    messages.collect(schedule)
    progress = Walks.begin(schedule)
    messages.scale(schedule, progress, 1, 0.0)
    messages.distribute(schedule)
    # The tilt of a leaf is what it sends less what its own factor says; the last one matches.
    factors = [(graph.scope(a), graph.table(a)) for a in range(graph.n_factors)]
    for v in targets:
        own, pair = graph.variable_edges[graph.variable_offsets[v] : graph.variable_offsets[v + 1]]
        sent = messages.nu[graph.message_offsets[pair] : graph.message_offsets[pair] + 2]
        said = messages.m[graph.message_offsets[own] : graph.message_offsets[own] + 2]
        factors.append(((v,), sent / said))
    _, singles, _ = enumerate_exact(FactorGraph(graph.cardinalities, factors))
    away = [np.abs(singles[v] - t).max() for v, t in targets.items()]
    assert min(away) < 1e-12 < max(away)


@pytest.mark.parametrize("seed", range(3))
def test_order_of_variables_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = kk.generate.random_tree(9, seed=seed, states=3)
    targets = {v: rng.dirichlet(np.ones(3)) for v in (0, 3, 5, 8)}
    found = kk.infer(graph, "ups-t", evidence=targets)
    new = rng.permutation(9)  # variable v is called new[v]
    factors = [
        ([int(new[v]) for v in graph.scope(a)], graph.table(a)) for a in range(graph.n_factors)
    ]
    order = rng.permutation(len(factors))
    shuffled = FactorGraph([3] * 9, [factors[a] for a in order])
    other = kk.infer(shuffled, "ups-t", evidence={int(new[v]): t for v, t in targets.items()})
    for v in range(9):
        np.testing.assert_allclose(found[v], other[int(new[v])], atol=1e-9)


def test_free_energy_limit_bounds_consistent_beliefs() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        graph = random_model(rng, n=5, n_factors=6, zeros=0.2)
        found = kk.infer(graph, "bp:damping=0.3")
        assert -found.log_z <= free_energy_limit(graph) + 1e-9


# ---------------------------------------------------------------------- clamps and options


def test_given_clamps_by_original_numbers() -> None:
    graph = kk.grid(3, 3, seed=0)
    found = UnifiedScaling(clamps=[[4, 0], [1, 3, 5, 7]]).run(graph, evidence={0: 1})
    assert found.converged and found.diagnostics["clamp_sets"] == [1, 4]
    text = UnifiedScaling(clamps=[[4, 0], [1, 3]]).text
    assert text == "ups:clamps=4+0/1+3"
    assert kk.methods.parse_method(text) == UnifiedScaling(clamps=[[4, 0], [1, 3]])


@pytest.mark.parametrize(
    ("clamps", "words"),
    [
        ([[0], [4]], "leaves a cycle"),
        ([[4, 1], [4, 3]], "in every clamp set"),
        ("sideways", "clamps must be one of"),
        ([[-1]], "clamps must be one of"),
        (None, "clamps must be one of"),
        ("", "clamps must be one of"),
    ],
)
def test_bad_clamps(clamps: object, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        UnifiedScaling(clamps=clamps).run(kk.grid(3, 3))  # type: ignore[arg-type]


def test_lattice_clamps_need_a_lattice() -> None:
    for graph in (kk.generate.complete(5), kk.grid(4, 4, periodic=True)):
        with pytest.raises(MethodError, match="greedy"):
            kk.infer(graph, "ups:clamps=rows-columns")
        assert kk.infer(graph, "ups").converged


def test_trees_only_method_refuses_cycles_and_names_ups() -> None:
    with pytest.raises(MethodError, match="use ups"):
        kk.infer(CYCLE, "ups-t")
    cut = kk.infer(CYCLE, "ups-t", evidence={1: [0.5, 0.5]})  # the target cuts the only cycle
    assert cut.converged and cut.log_z_lower is None  # Bethe, not exact


# ---------------------------------------------------------------------- zeros


def test_zeros_start_from_consistent_beliefs() -> None:
    code = kk.generate.ldpc(24, 3, 6, noise=0.04, seed=2)
    other = kk.infer(code, "bp:tol=1e-12")
    for clamps in ("greedy", "auto"):
        found = kk.infer(code, f"ups:clamps={clamps}")
        assert found.converged
        np.testing.assert_allclose(found.flat_marginals, other.flat_marginals, atol=1e-6)
        assert np.all(np.diff(found.trace.objective) >= -1e-9)
        check_consistent(found, 1e-10)
        assert -bethe_free_energy(found) == pytest.approx(found.log_z, abs=1e-9)


def test_stuck_by_zeros_is_said() -> None:
    """Two tied variables in turn: neither can move while the other is clamped, but both at once."""
    table = np.array([[3.0, 1.0], [1.0, 2.0]])
    tied = FactorGraph(
        [2, 2, 2],
        [((0, 1), np.eye(2)), ((0, 2), table), ((1, 2), table), ((0,), [1.0, 5.0])],
    )
    found = kk.infer(tied, "ups:clamps=0/1,accelerate=false")
    assert not found.converged and found.diagnostics["stationarity"] > 1e-3
    assert "zeros tie" in found.warnings[0]
    free = kk.infer(tied, "ups:clamps=2/0")
    joint = kk.infer(tied, "ups:clamps=0/1")
    assert free.converged and joint.converged and free.log_z > found.log_z
    assert joint.log_z == pytest.approx(free.log_z, abs=1e-9)
    np.testing.assert_allclose(joint.flat_marginals, free.flat_marginals, atol=1e-7)


def test_impossible_and_contradictory() -> None:
    triangle = FactorGraph(
        [2, 2, 2], [((i, j), 1 - np.eye(2)) for i, j in ((0, 1), (1, 2), (0, 2))]
    )
    for evidence in (None, {0: [0.3, 0.7]}):  # locally consistent, though no state is possible
        with pytest.raises(ImpossibleEvidenceError):
            kk.infer(triangle, "ups", evidence=evidence)
    path = FactorGraph([2, 2, 2], [((0, 1), 1 - np.eye(2)), ((1, 2), 1 - np.eye(2))])
    with pytest.raises(EvidenceError, match="contradict"):
        kk.infer(path, "ups", evidence={0: [0.3, 0.7], 2: [0.5, 0.5]})


# ---------------------------------------------------------------------- budgets


def test_budget_and_best_so_far() -> None:
    graph = kk.grid(40, 40, seed=1, coupling=3.0, field=0.3)
    few = kk.infer(graph, "ups", budget=Budget(iterations=3))
    assert few.iterations == 3 and not few.converged and few.stopped == "iterations"
    check_consistent(few, 1e-5)
    assert few.log_z == pytest.approx(few.trace.objective[-1], abs=1e-12)
    short = kk.infer(graph, "ups", budget=Budget(seconds=0.5))
    assert short.stopped == "seconds" and not short.converged and short.warnings
    assert short.seconds < 3.0
    assert np.isfinite(short.flat_marginals).all()


def test_interrupt_restores_the_last_complete_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    original = ClampedMessages.scale

    def scale(self: ClampedMessages, *words: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            original(self, *words)
            raise KeyboardInterrupt
        original(self, *words)

    monkeypatch.setattr(ClampedMessages, "scale", scale)
    found = kk.infer(kk.grid(4, 4, seed=0), "ups")
    assert found.stopped == "interrupted" and found.iterations == 5
    assert found.log_z == pytest.approx(found.trace.objective[-1], abs=1e-12)
    check_consistent(found, 1e-5)


def test_logarithms_take_over_in_the_middle() -> None:
    graph = kk.generate.complete(5, coupling=60.0, field=60.0, seed=1)
    found = kk.infer(graph, "ups", budget=Budget(iterations=6, seconds=5))
    assert found.diagnostics["arithmetic"] == "logarithms"
    assert np.isfinite(found.log_z)


def test_time_for_the_linear_programme_is_limited() -> None:
    code = kk.generate.ldpc(96, 3, 6, noise=0.04, seed=2)
    try:
        found = kk.infer(code, "ups", budget=Budget(seconds=0.02))
    except BudgetError as error:
        assert "seconds" in str(error)
    else:
        assert not found.converged or found.seconds < 5
