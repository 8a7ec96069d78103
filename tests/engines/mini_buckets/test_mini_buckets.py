"""Weighted mini-buckets: bounds that hold everywhere, their gradient, exactness and edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.engines.mini_buckets import bounds as mini_bucket_bounds
from kikuchi.engines.mini_buckets import successive_halving
from kikuchi.engines.mini_buckets.bounds import Bound, Lower, MiniBucketWorkspace, Upper
from kikuchi.engines.mini_buckets.plan import MiniBucketPlan, least_ibound, make_plan
from oracle import enumerate_exact, random_model

EXACT_G10 = 165.647464292
SLACK = 1e-9
_PRECISE = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9}


def bound_of(kind: type[Bound], plan: MiniBucketPlan) -> Bound:
    return kind(plan, MiniBucketWorkspace(plan), lambda: None)


def random_point(bound: Bound, rng: np.random.Generator, spread: float = 1.0) -> np.ndarray:
    return bound.start + spread * rng.normal(size=len(bound.start))


def split_model(seed: int, **options: float) -> tuple[kk.FactorGraph, MiniBucketPlan]:
    """A random model whose plan at the least i-bound splits, without single-state variables."""
    rng = np.random.default_rng(seed)
    while True:
        graph = random_model(rng, n=7, n_factors=12, max_order=3, max_card=3, **options)
        single = {int(v): 0 for v in np.flatnonzero(graph.cardinalities == 1)}
        graph = graph.condition(single).graph
        plan = make_plan(graph, least_ibound(graph), "min-split", None)
        if not plan.exact:
            return graph, plan


def dense_model(rng: np.random.Generator, zeros: float, scale: float) -> kk.FactorGraph:
    """Most pairs and a few triples of mixed variables coupled, with one state that is possible."""
    n = int(rng.integers(4, 8))
    cards = rng.integers(2, 4, size=n)
    possible = [int(rng.integers(c)) for c in cards]
    scopes = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.8]
    scopes += [tuple(rng.choice(n, 3, replace=False)) for _ in range(int(rng.integers(3)))]
    factors = []
    for scope in scopes:
        table = np.exp(scale * rng.normal(size=[cards[v] for v in scope]))
        table[rng.random(table.shape) < zeros] = 0.0
        table[tuple(possible[v] for v in scope)] = 1.0
        factors.append((scope, table))
    return kk.FactorGraph(cards, factors)


# ---------------------------------------------------------------------- the bounds hold


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("zeros", [0.0, 0.15])
def test_brackets_enumeration_wherever_it_stops(scale: float, zeros: float) -> None:
    rng = np.random.default_rng(int(10 * scale + 100 * zeros))
    splits = 0
    for number in range(140):
        graph = dense_model(rng, zeros, scale)
        exact = enumerate_exact(graph)[0]
        least = least_ibound(kk.methods.mini_bucket_plan(graph, 3).graph)
        for ibound in range(least, graph.n_variables + 1):
            method = kk.methods.WeightedMiniBuckets(
                ibound=ibound, orders=2, max_iter=(0, 1, 3)[number % 3]
            )
            beliefs = method.run(graph)
            assert beliefs.log_z_upper is not None
            assert beliefs.log_z_upper >= exact - SLACK
            assert beliefs.log_z_lower is not None
            assert beliefs.log_z_lower <= exact + SLACK
            assert np.isfinite(beliefs.flat_marginals).all()
            if beliefs.diagnostics.get("exact", True):
                break
            splits += 1
    assert splits >= 140  # else the models are too sparse to say anything


@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from([0.0, 0.2]))
@settings(max_examples=150)
def test_any_shifts_and_weights_give_bounds(seed: int, spread: float, zeros: float) -> None:
    graph, plan = split_model(seed, zeros=zeros)
    exact = enumerate_exact(graph)[0] - graph.log_constant
    free = np.diff(graph.variable_offsets) == 0
    exact -= float(np.log(graph.cardinalities[free]).sum())
    rng = np.random.default_rng(seed)
    upper, lower = bound_of(Upper, plan), bound_of(Lower, plan)
    assert upper.at(random_point(upper, rng, spread))[0] >= exact - SLACK
    assert -lower.at(random_point(lower, rng, spread))[0] <= exact + SLACK


def test_weights_are_what_holder_asks_for() -> None:
    _, plan = split_model(3)
    rng = np.random.default_rng(0)
    for kind in (Upper, Lower):
        bound = bound_of(kind, plan)
        weights = bound.node_weights(random_point(bound, rng, 3.0))
        sums = np.bincount(bound.bucket, weights)
        assert np.allclose(sums, 1.0, atol=1e-12)
        positive = np.bincount(bound.bucket, weights > 0)
        if kind is Upper:
            assert (weights > 0).all()
        else:
            assert (positive == 1).all()


def test_bounds_are_monotone_in_the_trace() -> None:
    graph = kk.grid(6, 6, seed=1, coupling=1.5)
    exact = kk.infer(graph, "jt").log_z
    beliefs = kk.infer(graph, "wmb:ibound=2,orders=4")
    upper, lower = (np.array(column) for column in (beliefs.trace.upper, beliefs.trace.lower))
    assert len(upper) > 20
    assert (np.diff(upper) <= 0).all() and (np.diff(lower) >= 0).all()
    assert (lower <= exact).all() and (exact <= upper).all()
    np.testing.assert_allclose(beliefs.trace.objective, upper, atol=1e-9)
    assert beliefs.log_z_upper == upper[-1] and beliefs.log_z_lower == lower[-1]


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_the_passes_equal_the_formula(zeros: float) -> None:
    """Messages by NumPy, node by node, from the plan's scopes alone."""
    for seed in range(20):
        graph, plan = split_model(seed, zeros=zeros)
        for kind in (Upper, Lower):
            bound = bound_of(kind, plan)
            point = random_point(bound, np.random.default_rng(seed), 0.5)
            with np.errstate(all="ignore"):
                wanted = plain_bound(graph, plan, bound, point)
            found = bound.sign * bound.at(point)[0]
            assert found == pytest.approx(wanted, abs=1e-9)


def plain_bound(
    graph: kk.FactorGraph, plan: MiniBucketPlan, bound: Bound, point: np.ndarray
) -> float:
    weights = bound.node_weights(point)
    n = graph.n_variables
    tables = [np.zeros([1] * n) for _ in range(plan.n_nodes)]  # one axis a rank

    def spread_out(table: np.ndarray, ranks: list[int]) -> np.ndarray:
        order = np.argsort(ranks)
        shape = [1] * n
        for k, rank in enumerate(ranks):
            shape[rank] = table.shape[k]
        return np.transpose(table, order).reshape(shape)

    for a in range(graph.n_factors):
        ranks = [int(plan.rank[v]) for v in graph.scope(a)]
        node = plan.owners[a]
        tables[node] = tables[node] + spread_out(graph.log_table(a), ranks)
    at = 0
    for s, (gains, loses) in enumerate(plan.set_nodes):
        ranks = [int(r) for r in plan.set_ranks[plan.set_offsets[s] : plan.set_offsets[s + 1]]]
        shape = [int(plan.ranked_cards[r]) for r in ranks]
        shift = spread_out(point[at : at + math.prod(shape)].reshape(shape), ranks)
        tables[gains] = tables[gains] + shift
        tables[loses] = tables[loses] - shift
        at += math.prod(shape)
    total = 0.0
    for r in range(plan.n_nodes):
        axis = int(plan.node_ranks[r])
        scaled = tables[r] / weights[r]
        peak = scaled.max(axis=axis, keepdims=True)
        safe = np.where(np.isfinite(peak), peak, 0.0)
        message = np.log(np.exp(scaled - safe).sum(axis=axis, keepdims=True)) + safe
        message = weights[r] * np.where(peak == np.inf, np.inf, message)
        parent = plan.owners[graph.n_factors + r]
        if parent < 0:
            total += float(message.ravel()[0])
        else:
            tables[parent] = tables[parent] + message
    return total


# ---------------------------------------------------------------------- gradient


@pytest.mark.parametrize("kind", [Upper, Lower])
@pytest.mark.parametrize("seed", range(6))
def test_gradient_equals_finite_differences(kind: type[Bound], seed: int) -> None:
    _, plan = split_model(seed)
    bound = bound_of(kind, plan)
    rng = np.random.default_rng(seed)
    point = random_point(bound, rng, 0.5)
    _, gradient = bound.at(point)
    step = 1e-5
    for k in range(len(point)):
        ahead, behind = point.copy(), point.copy()
        ahead[k] += step
        behind[k] -= step
        slope = (bound.at(ahead)[0] - bound.at(behind)[0]) / (2 * step)
        assert gradient[k] == pytest.approx(slope, abs=2e-7)


def test_upper_bound_is_convex_along_lines() -> None:
    for seed in range(20):
        _, plan = split_model(seed)
        bound = bound_of(Upper, plan)
        rng = np.random.default_rng(seed)
        a, b = random_point(bound, rng), random_point(bound, rng)
        b[bound.n_shifts :] = a[bound.n_shifts :]  # convex in shifts for given weights
        middle = bound.at(0.5 * (a + b))[0]
        assert middle <= 0.5 * (bound.at(a)[0] + bound.at(b)[0]) + 1e-10


@pytest.mark.parametrize("seed", range(8))
def test_upper_bound_is_the_best_convexified_region_energy(seed: int) -> None:
    """Duality: at the best shifts the bound is energy plus weighted conditional entropies of the
    mini-buckets, a concave function of beliefs that agree, at its maximum. Exact marginals agree
    too: their value is below it, and above log Z.
    """
    # TEH-X3
    graph, plan = split_model(seed)
    bound = bound_of(Upper, plan)
    best = minimize(bound.at, bound.start, jac=True, method="L-BFGS-B", options=_PRECISE)
    value, weights = bound.propagate(best.x)
    gains, losses = np.split(bound.slopes[bound.first_shift :], 2)
    np.testing.assert_allclose(gains, losses, atol=1e-4)  # beliefs agree on what they share
    entropy = float(weights @ bound.node_entropies)
    ends = []
    for strength in (1 - 1e-5, 1 + 1e-5):
        bound.scale_factors(strength)
        ends.append(bound.forward(best.x, weights))
    energy = (ends[1] - ends[0]) / 2e-5  # mean log-tables under the beliefs
    assert energy + entropy == pytest.approx(value, abs=1e-3)

    log_z, _, factors = enumerate_exact(graph)
    true_energy = sum(
        float(np.sum(belief * graph.log_table(a))) for a, belief in enumerate(factors)
    )
    joint = joint_table(graph)
    variables = np.argsort(plan.rank)
    spread = 0.0
    for n in range(plan.n_nodes):
        scope = variables[plan.scopes[plan.scope_offsets[n] : plan.scope_offsets[n + 1]]]
        rest = [v for v in scope if v != variables[plan.node_ranks[n]]]
        spread += weights[n] * (entropy_of(joint, scope) - entropy_of(joint, rest))
    assert log_z - SLACK <= true_energy + spread <= value + SLACK


def joint_table(graph: kk.FactorGraph) -> np.ndarray:
    """Probabilities of all states, an axis for each variable."""
    states = np.indices(graph.cardinalities)
    logs = sum(
        graph.log_table(a)[tuple(states[list(graph.scope(a))])] for a in range(graph.n_factors)
    )
    weights = np.exp(logs - np.max(logs))
    return np.asarray(weights / weights.sum())


def entropy_of(joint: np.ndarray, scope: Sequence[int]) -> float:
    """Entropy of some of the variables."""
    p = joint.sum(axis=tuple(v for v in range(joint.ndim) if v not in scope)).ravel()
    return -float(np.sum(p[p > 0] * np.log(p[p > 0])))


# ---------------------------------------------------------------------- exactness


@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_exact_at_full_width(zeros: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        graph = random_model(rng, n=6, n_factors=9, max_order=3, max_card=4, zeros=zeros)
        log_z, singles, tables = enumerate_exact(graph)
        beliefs = kk.infer(graph, f"wmb:ibound={max(kk.plan(graph).width, 2)}")
        assert beliefs.log_z_lower == pytest.approx(log_z, abs=1e-10)
        assert beliefs.log_z_upper == pytest.approx(log_z, abs=1e-10)
        assert beliefs.converged
        for v, exact in enumerate(singles):
            assert np.allclose(beliefs[v], exact, atol=1e-10)
        for a, exact in enumerate(tables):
            assert np.allclose(beliefs.factor(a), exact, atol=1e-10)


def test_exact_on_trees() -> None:
    for seed in range(10):
        tree = kk.generate.random_tree(40, seed=seed)
        exact = kk.infer(tree, "jt")
        beliefs = kk.infer(tree, "wmb:ibound=1")
        assert beliefs.log_z_lower == pytest.approx(exact.log_z, abs=1e-10)
        assert beliefs.log_z_upper == pytest.approx(exact.log_z, abs=1e-10)
        assert np.allclose(beliefs.flat_marginals, exact.flat_marginals, atol=1e-10)


def test_default_is_exact_where_that_is_cheap() -> None:
    graph = kk.grid(8, 8, seed=0)
    beliefs = kk.infer(graph, "wmb")
    assert beliefs.log_z == pytest.approx(kk.infer(graph, "jt").log_z, abs=1e-10)
    assert beliefs.diagnostics["exact"]


def test_only_the_bound_that_was_asked_for() -> None:
    graph = kk.grid(5, 5, seed=0)
    exact = kk.infer(graph, "jt").log_z
    for ibound in (2, 5):
        upper = kk.infer(graph, f"wmb:ibound={ibound},bound=upper")
        assert upper.log_z_lower is None and exact - SLACK <= upper.log_z < upper.log_z_upper
        lower = kk.infer(graph, f"wmb:ibound={ibound},bound=lower")
        assert lower.log_z_upper is None and lower.log_z_lower < lower.log_z <= exact + SLACK
        assert lower.trace.objective_name == "lower bound"
        assert lower.trace.objective[-1] == pytest.approx(lower.log_z_lower, abs=1e-9)


def test_bounds_close_as_the_ibound_grows() -> None:
    graph = kk.grid(7, 7, seed=2, coupling=1.0, field=1.0)
    brackets = []
    for ibound in (1, 3, 5, 7):
        beliefs = kk.infer(graph, f"wmb:ibound={ibound},orders=4")
        brackets.append(beliefs.log_z_upper - beliefs.log_z_lower)
    assert brackets[1] < 0.5 * brackets[0] and brackets[2] < 0.5 * brackets[1]
    assert 0 < brackets[3] < 1e-9


# ---------------------------------------------------------------------- plans


@pytest.mark.parametrize("order", ["min-split", "sweep", "min-fill", "min-degree", "min-weight"])
def test_plans_are_mini_bucket_eliminations(order: str) -> None:
    rng = np.random.default_rng(0)
    for number in range(40):
        graph = random_model(rng, n=9, n_factors=16, max_order=3, max_card=2)
        ibound = least_ibound(graph) + number % 3
        plan = make_plan(graph, ibound, order, None if number % 2 else number)
        assert sorted(plan.rank) == list(range(9))
        assert plan.largest_scope <= ibound + 1
        scopes = [set(part) for part in np.split(plan.scopes, plan.scope_offsets[1:-1])]
        for a in range(graph.n_factors):
            assert {int(plan.rank[v]) for v in graph.scope(a)} <= scopes[plan.owners[a]]
        for r in range(plan.n_nodes):
            assert plan.node_ranks[r] == min(scopes[r])
            parent = plan.owners[graph.n_factors + r]
            rest = scopes[r] - {int(plan.node_ranks[r])}
            assert (parent < 0) == (not rest)
            assert parent < 0 or (parent > r and rest <= scopes[parent])
        for s, (a, b) in enumerate(plan.set_nodes):
            shared = set(plan.set_ranks[plan.set_offsets[s] : plan.set_offsets[s + 1]])
            assert plan.node_ranks[a] == plan.node_ranks[b] and shared == scopes[a] & scopes[b]
        for _, nodes in itertools.groupby(range(plan.n_nodes), key=plan.node_ranks.__getitem__):
            group = list(nodes)
            linked = {group[0]}
            for _ in group:
                linked |= {x for pair in plan.set_nodes for x in pair if linked & set(pair)}
            assert set(group) <= linked


def test_plan_tells_its_price() -> None:
    graph = kk.grid(12, 12, seed=0)
    small, large = (kk.methods.mini_bucket_plan(graph, ibound) for ibound in (3, 8))
    assert small.entries < large.entries and small.bytes < large.bytes
    assert small.operations < large.operations and small.splits > large.splits
    observed = kk.methods.mini_bucket_plan(graph, 3, evidence=dict.fromkeys(range(12), 0))
    assert observed.graph.n_variables == 132


def test_hub_with_very_many_factors() -> None:
    rng = np.random.default_rng(0)
    n = 150
    factors = [((0, v), rng.normal(size=(2, 2))) for v in range(1, n)]
    factors += [((v, v + 1), rng.normal(size=(2, 2))) for v in range(1, n - 1)]
    factors += [((v, (v + 40) % (n - 1) + 1), rng.normal(size=(2, 2))) for v in range(1, n)]
    graph = kk.FactorGraph([2] * n, factors, log=True)
    forced = make_plan(graph, 1, "min-degree", None)
    assert np.bincount(forced.node_ranks).max() > 16
    for order in ("min-split", "min-degree"):
        beliefs = kk.infer(graph, f"wmb:ibound=2,order={order},orders=2,max_iter=60")
        parts = [graph.condition({0: k}) for k in range(2)]
        bounds = [kk.infer(part.graph, "wmb:ibound=9,max_iter=60,orders=2") for part in parts]
        assert beliefs.log_z_lower <= np.logaddexp(*[b.log_z_upper for b in bounds])
        assert beliefs.log_z_upper >= np.logaddexp(*[b.log_z_lower for b in bounds])


# ---------------------------------------------------------------------- edges


def test_ibound_below_the_largest_factor_is_refused() -> None:
    graph = kk.FactorGraph([2] * 4, [((0, 1, 2, 3), np.ones(16)), ((0, 1), np.ones(4))])
    with pytest.raises(MethodError, match=r"i-bound 1 .* factor of 4 variables; use ibound=3"):
        kk.infer(graph, "wmb:ibound=1")
    assert kk.infer(graph, "wmb:ibound=3").log_z == pytest.approx(math.log(16), abs=1e-12)


def test_memory_is_refused_before_it_is_taken() -> None:
    graph = kk.generate.complete(40, seed=0)
    with pytest.raises(BudgetError, match=r"mini-buckets with i-bound 30 needs .* smaller i-bound"):
        kk.infer(graph, "wmb:ibound=30", budget=Budget(bytes=10**8))
    beliefs = kk.infer(graph, "wmb:max_iter=2", budget=Budget(bytes=4 * 10**6))
    assert beliefs.diagnostics["bytes"] <= 4 * 10**6


def test_few_seconds_are_kept() -> None:
    graph = kk.grid(30, 30, seed=0)
    kk.infer(graph, "wmb:ibound=3,max_iter=1")  # compile first
    first = kk.infer(graph, "wmb:ibound=12,tol=0,max_iter=0")  # how busy the machine is
    seconds = max(0.5, 4 * first.seconds)
    beliefs = kk.infer(graph, "wmb:ibound=12,tol=0", budget=Budget(seconds=seconds))
    assert beliefs.stopped == "seconds" and not beliefs.converged
    assert beliefs.log_z_lower <= beliefs.log_z_upper < first.log_z_upper
    assert beliefs.seconds < 10 * seconds  # generous: a busy machine; alone it is a little more


def test_time_that_runs_out_inside_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = kk.grid(6, 6, seed=0)
    exact = kk.infer(graph, "jt").log_z
    monkeypatch.setattr(mini_bucket_bounds, "_CHUNK", 16.0)
    whole = kk.infer(graph, "wmb:ibound=2,max_iter=4")
    again = kk.infer(graph, "wmb:ibound=2,max_iter=4", budget=Budget(seconds=1e-9))
    assert again.stopped == "seconds" and again.iterations == 0
    assert again.log_z_lower <= whole.log_z_lower <= exact <= whole.log_z_upper
    assert whole.log_z_upper <= again.log_z_upper


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = kk.grid(6, 6, seed=0)
    whole = kk.infer(graph, "wmb:ibound=3,max_iter=5")
    monkeypatch.setattr(mini_bucket_bounds, "_CHUNK", 10.0)
    parts = kk.infer(graph, "wmb:ibound=3,max_iter=5")
    assert parts.log_z_upper == pytest.approx(whole.log_z_upper, abs=1e-10)
    assert np.allclose(parts.flat_marginals, whole.flat_marginals, atol=1e-10)


def test_zeros_in_every_row_leave_a_bound_on_likely_states() -> None:
    """Parity checks: every row of a mini-bucket of negative weight has a zero."""
    code = _parities()
    for bound, iterations in itertools.product(("both", "lower"), (0, 4, 40)):
        beliefs = kk.infer(code, f"wmb:ibound=2,bound={bound},max_iter={iterations}")
        assert beliefs.log_z_lower is not None and not beliefs.warnings
        assert -1e-9 <= beliefs.log_z_lower <= enumerate_exact(code)[0] + SLACK
        assert np.isfinite(beliefs.flat_marginals).all()


def test_bounds_on_likely_states_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = []
    plain = successive_halving.boxed_graph

    def spied(*args: object) -> object:
        boxes.append(plain(*args))
        return boxes[-1]

    monkeypatch.setattr(successive_halving, "boxed_graph", spied)
    rng = np.random.default_rng(4)
    parity = _parities().table(0)
    for _ in range(30):
        factors = [(rng.choice(9, 3, False), parity * rng.random((2, 2, 2))) for _ in range(6)]
        factors += [(rng.choice(9, 2, False), rng.random((2, 2))) for _ in range(6)]
        graph = kk.FactorGraph([2] * 9, factors)
        exact = enumerate_exact(graph)[0]
        early = kk.infer(graph, "wmb:ibound=2,orders=2,max_iter=1")
        beliefs = kk.infer(graph, "wmb:ibound=2,orders=2,max_iter=25")
        assert early.log_z_lower <= beliefs.log_z_lower <= exact + SLACK
        assert exact <= beliefs.log_z_upper + SLACK
    assert len(boxes) >= 15


def test_no_box_and_no_state_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successive_halving, "boxed_graph", lambda *args: None)
    beliefs = kk.infer(_parities(), "wmb:ibound=2,max_iter=30")
    assert beliefs.log_z_lower is None and "no finite lower bound" in beliefs.warnings[0]
    assert beliefs.log_z == pytest.approx(beliefs.log_z_upper, abs=1e-9)


def _parities() -> kk.FactorGraph:
    parity = np.zeros((2, 2, 2))
    for x in itertools.product(range(2), repeat=3):
        parity[x] = (sum(x) + 1) % 2
    scopes = [(0, 1, 2), (2, 3, 4), (4, 5, 0), (1, 3, 5), (0, 3, 6), (1, 4, 6)]
    return kk.FactorGraph([2] * 7, [(scope, parity) for scope in scopes])


def test_states_that_zeros_rule_out_are_left_out() -> None:
    rng = np.random.default_rng(1)
    table = rng.random((3, 3))
    table[2] = 0.0
    factors = [((i, (i + 1) % 4), table) for i in range(4)] + [((0,), [1.0, 0.0, 1.0])]
    graph = kk.FactorGraph([3] * 4, factors)
    log_z, singles, tables = enumerate_exact(graph)
    beliefs = kk.infer(graph, "wmb:ibound=3")
    assert beliefs.log_z == pytest.approx(log_z, abs=1e-10)
    for v, exact in enumerate(singles):
        assert np.allclose(beliefs[v], exact, atol=1e-10)
    for a, exact in enumerate(tables):
        assert np.allclose(beliefs.factor(a), exact, atol=1e-10)


@pytest.mark.parametrize(
    "graph",
    [
        kk.FactorGraph([3], [((0,), [1.0, 2.0, 3.0])]),
        kk.FactorGraph([2, 3, 2], [((0,), [1.0, 2.0]), ((1,), [1.0, 0.0, 3.0])]),
        kk.FactorGraph([2, 2], [((0, 1), [[3, 1], [1, 3]]), ((1, 0), [[1, 2], [3, 4]])]),
        kk.FactorGraph([2] * 6, [((0, 1), [[3, 1], [1, 3]]), ((4, 5), [[1, 9], [2, 1]])]),
        kk.FactorGraph([2, 1, 2], [((0, 1, 2), np.arange(1.0, 5.0))]),
    ],
    ids=["single", "order one", "twice the same scope", "disconnected", "one state"],
)
def test_small_models(graph: kk.FactorGraph) -> None:
    log_z, singles, _ = enumerate_exact(graph)
    beliefs = kk.infer(graph, "wmb")
    assert beliefs.log_z_lower == pytest.approx(log_z, abs=1e-12)
    assert beliefs.log_z_upper == pytest.approx(log_z, abs=1e-12)
    for v, exact in enumerate(singles):
        assert np.allclose(beliefs[v], exact, atol=1e-12)


def test_evidence_is_taken() -> None:
    rng = np.random.default_rng(8)
    graph = random_model(rng, n=7, n_factors=12, max_order=3, max_card=3)
    evidence = {0: 0, 3: 0}
    clamped = enumerate_exact(graph.clamp(evidence))[0]
    beliefs = kk.infer(graph, "wmb:ibound=2", evidence=evidence)
    assert beliefs.log_z_lower - SLACK <= clamped <= beliefs.log_z_upper + SLACK
    assert beliefs[0][0] == 1.0


def test_strong_couplings_stay_finite() -> None:
    graph = kk.grid(6, 6, seed=0, coupling=200.0, field=50.0)
    exact = kk.infer(graph, "jt").log_z
    beliefs = kk.infer(graph, "wmb:ibound=3,max_iter=50")
    assert beliefs.log_z_lower <= exact + 1e-7 and exact <= beliefs.log_z_upper + 1e-7
    assert beliefs.log_z_upper - beliefs.log_z_lower < 0.1 * abs(exact)


# ---------------------------------------------------------------------- reference grid


def test_reference_grid_bracket(shared: Path) -> None:
    graph = kk.read(shared / "reference" / "grids" / "g10.uai")
    for ibound, most in ((3, 1.5), (5, 0.25), (7, 0.02)):
        beliefs = kk.infer(graph, f"wmb:ibound={ibound}")
        assert beliefs.log_z_lower <= EXACT_G10 <= beliefs.log_z_upper
        assert beliefs.log_z_upper - beliefs.log_z_lower <= most
    exact = kk.infer(graph, "wmb:ibound=10")
    assert exact.log_z_upper == pytest.approx(EXACT_G10, abs=2e-9)
    assert 0.0 < exact.log_z_upper - exact.log_z_lower < 1e-9


def test_marginals_approach_the_exact_ones(shared: Path) -> None:
    graph = kk.read(shared / "reference" / "grids" / "g10.uai")
    exact = kk.infer(graph, "jt").flat_marginals
    beliefs = kk.infer(graph, "wmb:ibound=7")
    assert np.abs(beliefs.flat_marginals - exact).max() < 0.005
    sums = [beliefs.factor(a).sum() for a in range(graph.n_factors)]
    assert np.allclose(sums, 1.0, atol=1e-9)


def test_large_ibound_in_the_race_is_affordable() -> None:
    """Orders that are tried share one table, and are fewer where it is large."""
    graph = kk.grid(20, 20, seed=0)
    beliefs = kk.infer(graph, "wmb:ibound=12,max_iter=1")
    most = successive_halving._MOST_ENTRIES / kk.methods.mini_bucket_plan(graph, 12).entries
    assert beliefs.diagnostics["orders"] == max(1, int(most)) < 16


@pytest.mark.parametrize("seed", range(4))
def test_clamping_tightens_negative_reweighting(seed: int) -> None:
    """LIU-I17: one positive tree weight bounds from below, and clamping brings the bound nearer."""
    graph = kk.generate.complete(7, coupling=1.0, seed=seed)
    exact = kk.infer(graph, "enumerate").log_z
    plain = kk.infer(graph, "wmb:ibound=1,bound=lower").log_z_lower
    clamped = kk.infer(graph, "clamp:method=(wmb:ibound=1,bound=lower),k=2").log_z_lower
    assert plain is not None
    assert clamped is not None
    assert exact is not None
    assert plain < clamped <= exact + 1e-9
