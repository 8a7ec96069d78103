"""Mixtures of mean field solutions: LAW-I9, LAW-I12, HOJ-I10; properties LAW-T4, T5, T9."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import check_grad

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.core.numerics import normalise_log
from kikuchi.engines.mean_field.kernels import mixture_mean_field as kernels
from kikuchi.engines.mean_field.mixture import Mixture
from kikuchi.engines.mean_field.mixture_bound import make_mixture, mixture_bound
from kikuchi.engines.mean_field.mixture_gradient import Objective
from kikuchi.graphs.graph_arrays import flatten
from kikuchi.methods.mixture_mean_field import (
    MixtureMeanField,
    exact_mixture_bound,
    sample_set_bound,
)
from oracle import enumerate_exact, random_model


def _random_mixture(graph: FactorGraph, n: int, rng: np.random.Generator) -> Mixture:
    cards = [int(c) for c in graph.cardinalities]
    q = np.array([np.concatenate([rng.dirichlet(np.ones(c)) for c in cards]) for _ in range(n)])
    r = rng.uniform(0.1, 1.0, size=q.shape)
    return Mixture(
        rng.dirichlet(np.ones(n)), q, r, rng.normal(size=n), np.zeros((n, n)),
        np.zeros((n, n), dtype=np.int64), np.zeros(n), np.zeros(max(cards)),
    )  # fmt: skip


def _tensors(graph: FactorGraph, rows: np.ndarray) -> np.ndarray:
    """Each row of flat values as a product over all states."""
    out = []
    for row in rows:
        joint = np.ones(1)
        for v in range(graph.n_variables):
            part = row[graph.state_offsets[v] : graph.state_offsets[v + 1]]
            joint = np.multiply.outer(joint, part).ravel()
        out.append(joint)
    return np.array(out)


def _log_weights(graph: FactorGraph) -> np.ndarray:
    states = np.array(list(itertools.product(*[range(int(c)) for c in graph.cardinalities])))
    return np.asarray(graph.log_score(states)) - graph.log_constant


def _lawrence(graph: FactorGraph, w: Mixture) -> float:
    """(2.20) with (2.24), written out over all states."""
    q, r, a, scale = (
        _tensors(graph, w.q),
        _tensors(graph, w.smoothing),
        w.weights,
        np.exp(w.log_scale),
    )
    log_p = _log_weights(graph)
    components = (q * (log_p - np.log(q))).sum(axis=1)
    pi = r @ q.T
    information = (
        a @ (q * np.log(r)).sum(axis=1) - a @ np.log(a) - scale @ pi @ a + a @ np.log(scale) + 1
    )
    return float(a @ components + information)


@pytest.mark.parametrize("seed", range(6))
def test_both_forms_equal_their_definitions_and_are_bounds(seed: int) -> None:
    # LAW-T1
    rng = np.random.default_rng(seed)
    graph = random_model(rng, 5, 7, 3, 3)
    w = _random_mixture(graph, 3, rng)
    flat = flatten(graph)
    explicit = mixture_bound(flat, w, form="lambda")
    assert explicit == pytest.approx(_lawrence(graph, w), abs=1e-10)
    eliminated = mixture_bound(flat, w)
    assert explicit <= eliminated + 1e-12
    exact = exact_mixture_bound(graph, w.weights, w.q)
    assert eliminated <= exact + 1e-12
    assert exact <= enumerate_exact(graph)[0] - graph.log_constant + 1e-12
    kernels.set_scales(w)
    assert mixture_bound(flat, w, form="lambda") == pytest.approx(eliminated, abs=1e-10)
    assert _lawrence(graph, w) == pytest.approx(eliminated, abs=1e-10)


def test_information_is_between_zero_and_the_entropy_of_the_weights() -> None:
    """LAW-T4, and LAW-T9: the scale of R does not matter once lambda is at its optimum."""
    rng = np.random.default_rng(1)
    graph = random_model(rng, 5, 7, 3, 3)
    w = _random_mixture(graph, 4, rng)
    flat = flatten(graph)
    before = mixture_bound(flat, w)
    w.smoothing[1] *= 7.0
    assert mixture_bound(flat, w) == pytest.approx(before, abs=1e-12)
    w.smoothing[:] = 1.0
    kernels.overlaps(graph.state_offsets, w)
    kernels.set_scales(w)
    assert kernels.information(w)[0] == pytest.approx(0.0, abs=1e-12)
    q = _tensors(graph, w.q)
    exact = float(w.weights @ (q * np.log(q / (w.weights @ q))).sum(axis=1))
    assert 0.0 <= exact <= -float(w.weights @ np.log(w.weights)) <= np.log(4)


@pytest.mark.parametrize("seed", range(4))
def test_every_update_is_a_maximum_of_the_bound(seed: int) -> None:
    """After each block update no move of that block alone raises Lawrence's bound."""
    # LAW-T3
    rng = np.random.default_rng(seed)
    graph = random_model(rng, 4, 6, 3, 3)
    flat = flatten(graph)
    w = _random_mixture(graph, 3, rng)
    alive = np.ones(w.q.shape[1], dtype=bool)
    kernels.overlaps(graph.state_offsets, w)
    room = np.zeros(flat.max_card), np.zeros(64)
    first, last = int(graph.state_offsets[2]), int(graph.state_offsets[3])

    def no_better(change) -> None:
        here = _lawrence(graph, w)
        for _ in range(20):
            other = w.copy()
            change(other)
            assert _lawrence(graph, other) <= here + 1e-12

    before = _lawrence(graph, w)
    kernels._move(flat, alive, w, 2, 1, 1.0, *room)
    after_q = _lawrence(graph, w)
    assert after_q >= before - 1e-12

    def other_q(o: Mixture) -> None:
        logits = np.log(o.q[1, first:last]) + 0.1 * rng.normal(size=last - first)
        o.q[1, first:last] = normalise_log(logits)

    no_better(other_q)
    kernels.smooth(w, 1, first, last)
    after_r = _lawrence(graph, w)
    assert after_r >= after_q - 1e-12

    def other_r(o: Mixture) -> None:
        o.smoothing[1, first:last] *= np.exp(0.1 * rng.normal(size=last - first))

    no_better(other_r)
    kernels.set_scales(w)
    assert _lawrence(graph, w) >= after_r - 1e-12

    def other_scale(o: Mixture) -> None:
        o.log_scale[:] += 0.1 * rng.normal(size=3)

    no_better(other_scale)
    after_scale = _lawrence(graph, w)
    bounds = np.zeros(3)
    kernels.component_bounds(flat, w.q, 1.0, bounds, room[1])
    kernels.set_weights(w, bounds)
    assert _lawrence(graph, w) >= after_scale - 1e-12

    def other_weights(o: Mixture) -> None:
        o.weights[:] = normalise_log(np.log(o.weights) + 0.1 * rng.normal(size=3))

    no_better(other_weights)


@pytest.mark.parametrize("seed", range(6))
def test_bound_holds_rises_and_grows_with_components(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for zeros in (0.0, 0.3):
        graph = random_model(rng, 6, 8, 3, 3, zeros=zeros, scale=2.0)
        exact = enumerate_exact(graph)[0]
        naive = kk.infer(graph, "mf")
        if naive.log_z is None:
            continue
        last = naive.log_z
        for m in (1, 2, 4):
            beliefs = kk.infer(graph, f"mixture-mf:components={m},start=grow")
            assert last - 1e-9 <= beliefs.log_z_lower <= exact + 1e-9
            assert naive.log_z - 1e-9 <= beliefs.log_z <= naive.log_z + 9.0
            last = beliefs.log_z if m == 1 else last
        assert all(abs(p.sum() - 1) < 1e-9 for p in beliefs.marginals)
        bounds = beliefs.diagnostics["bounds"]
        assert all(np.diff(bounds) >= -1e-12)  # LAW-T5: nested
        assert bounds[-1] - bounds[0] <= np.log(4) + 1e-9


def test_sweeps_never_lower_the_bound() -> None:
    # LAW-T3
    rng = np.random.default_rng(7)
    graph = random_model(rng, 7, 12, 3, 3, scale=2.0)
    beliefs = kk.infer(graph, "mixture-mf:components=3,start=random,tries=1,tol=0")
    assert len(beliefs.trace) > 20
    assert min(np.diff(beliefs.trace.objective)) > -1e-9


@pytest.mark.parametrize("seed", range(4))
def test_one_component_is_mean_field(seed: int) -> None:
    # LAW-T6
    graph = random_model(np.random.default_rng(seed), 6, 9, 3, 3)
    one = kk.infer(graph, "mixture-mf:components=1")
    naive = kk.infer(graph, "mf")
    assert one.log_z >= naive.log_z - 1e-9
    if abs(one.log_z - naive.log_z) < 1e-9:
        assert one.flat_marginals == pytest.approx(naive.flat_marginals, abs=1e-5)


def test_two_modes_are_seen() -> None:
    """Equal strong modes: one component misses ln 2, two components do not."""
    n = 6
    pairs = {(i, j): 1.5 for i in range(n) for j in range(i + 1, n)}
    graph = kk.ising(pairs, [0.0] * n)
    exact = kk.infer(graph, "jt").log_z
    assert exact - kk.infer(graph, "mf").log_z > 0.69
    two = kk.infer(graph, "mixture-mf:components=2")
    assert exact - two.log_z < 1e-3
    assert two[0] == pytest.approx([0.5, 0.5], abs=1e-3)
    pair = two.factor(next(a for a in range(graph.n_factors) if len(graph.scope(a)) == 2))
    assert pair[0, 0] == pytest.approx(0.5, abs=1e-2)
    assert two.diagnostics["information"] == pytest.approx(np.log(2), abs=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_of_the_second_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, 4, 6, 3, 3)
    objective = Objective(flatten(graph), w := _random_mixture(graph, 3, rng))
    start = objective.pack(w)
    error = check_grad(
        lambda x: objective.value_and_gradient(x)[0],
        lambda x: objective.value_and_gradient(x)[1],
        start,
    )
    assert error < 1e-5
    assert objective.value_and_gradient(start)[0] == pytest.approx(
        mixture_bound(flatten(graph), w), abs=1e-9
    )


def test_gradients_and_exact_entropy_only_raise_the_bound() -> None:
    graph = random_model(np.random.default_rng(11), 6, 12, 2, 2, scale=2.0)
    exact = enumerate_exact(graph)[0]
    options = "components=3,start=grow,max_iter=30"
    plain = kk.infer(graph, f"mixture-mf:{options}").log_z
    gradients = kk.infer(graph, f"mixture-mf:{options},form=eliminated").log_z
    true_entropy = kk.infer(graph, f"mixture-mf:{options},entropy=exact").log_z
    assert plain - 1e-12 <= gradients <= exact + 1e-9
    assert plain - 1e-12 <= true_entropy <= exact + 1e-9


def test_sample_set_bound() -> None:
    """LAW-I12: below log Z, monotone in the states, exact with all of them."""
    # LAW-T1
    rng = np.random.default_rng(0)
    graph = random_model(rng, 5, 7, 3, 3)
    log_z = enumerate_exact(graph)[0]
    states = kk.plan(graph).calibrate().sample(200, seed=0)
    last = -np.inf
    for n in (1, 10, 50, 200):
        bound = sample_set_bound(graph, states[:n])
        assert last <= bound <= log_z + 1e-12
        last = bound
    every = np.array(list(itertools.product(*[range(int(c)) for c in graph.cardinalities])))
    assert sample_set_bound(graph, every) == pytest.approx(log_z)
    assert sample_set_bound(graph, np.concatenate([every, every])) == pytest.approx(log_z)
    assert sample_set_bound(graph, every[:0]) == -np.inf


def test_hard_constraints_and_evidence() -> None:
    parity = np.indices((2, 2, 2)).sum(axis=0) % 2 == 0
    graph = FactorGraph([2] * 3, [((0, 1, 2), parity), ((0,), [1, 2])])
    beliefs = kk.infer(graph, "mixture-mf:components=4,start=grow")
    assert beliefs.log_z <= np.log(6) + 1e-9
    assert beliefs.log_z > kk.infer(graph, "mf").log_z + 0.3
    assert beliefs.factor(0)[~parity].max() == 0.0
    seen = kk.infer(graph, "mixture-mf", evidence={0: 1})
    assert seen.log_z <= np.log(4) + 1e-9


def test_budgets_leave_a_bound_and_options_are_checked() -> None:
    graph = kk.grid(6, 6, seed=0)
    exact = kk.infer(graph, "jt").log_z
    naive = kk.infer(graph, "mf").log_z
    short = kk.infer(graph, "mixture-mf", budget=Budget(seconds=0.05))
    assert short.stopped == "seconds" and short.log_z_lower <= exact
    few = kk.infer(graph, "mixture-mf", budget=Budget(iterations=3))
    assert few.log_z_lower <= exact
    assert kk.infer(graph, "mixture-mf:components=2").log_z >= naive
    with pytest.raises(BudgetError, match="fewer components"):
        kk.infer(graph, "mixture-mf:components=1000", budget=Budget(bytes=10**6))
    with pytest.raises(MethodError, match="entropy=bound"):
        kk.infer(graph, "mixture-mf:entropy=exact")
    with pytest.raises(MethodError, match="components"):
        MixtureMeanField(components=0)


def test_components_of_hardly_any_weight_give_finite_numbers() -> None:
    graph = FactorGraph([2, 2], [((0, 1), np.array([[0.0, 300.0], [-300.0, 9.0]]))], log=True)
    weights = np.array([1.0, 1e-300])
    q = np.array([[1.0, 0.0, 0.5, 0.5], [1.0, 1e-100, 0.5, 0.5]])
    mixture = make_mixture(flatten(graph), weights, q)
    assert np.isfinite(mixture.smoothing).all()
    objective = Objective(flatten(graph), mixture)
    value, gradient = objective.value_and_gradient(
        objective.pack(mixture) - 800.0 * (np.arange(16) == 6)
    )
    assert np.isfinite(value) and np.isfinite(gradient).all()
