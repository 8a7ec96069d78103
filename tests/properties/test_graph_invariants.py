"""What must not matter does not: orders of variables, factors, axes and states, scales, splits.

Each property is checked for every method by its text. Approximate methods get weak couplings, so
that their fixed point is unique and the order of the updates cannot choose another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kikuchi as kk
from kikuchi.core import numerics
from kikuchi.core.errors import ImpossibleEvidenceError
from oracle import enumerate_exact, random_model

EXACT = ["jt", "enumerate"]
APPROXIMATE = ["bp:tol=1e-12", "bp:schedule=parallel,tol=1e-12", "mf:tol=1e-12"]
METHODS = EXACT + APPROXIMATE
TOLERANCE = 1e-8

Factor = tuple[Sequence[int], np.ndarray]
few = settings(max_examples=20)


@st.composite
def models(draw: st.DrawFn, method: str) -> kk.FactorGraph:
    """A random mixed model; with zeros and strong factors only where the method is exact."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    exact = method in EXACT
    return random_model(
        rng,
        n=draw(st.integers(1, 6)),
        n_factors=draw(st.integers(1, 8)),
        max_order=draw(st.integers(1, 3)),
        max_card=draw(st.integers(2, 3)),
        zeros=draw(st.sampled_from([0.0, 0.4])) if exact else 0.0,
        scale=1.5 if exact else 0.25,
    )


def factors_of(graph: kk.FactorGraph) -> list[Factor]:
    return [(graph.scope(a), graph.log_table(a)) for a in range(graph.n_factors)]


def build(cards: Sequence[int], factors: Sequence[Factor], constant: float = 0.0) -> kk.FactorGraph:
    return kk.FactorGraph(np.array(cards, dtype=int), factors, log=True, log_constant=constant)


def solve(graph: kk.FactorGraph, method: str, **options: object) -> kk.Beliefs:
    beliefs = kk.infer(graph, method, **options)  # type: ignore[arg-type]
    assume(beliefs.converged)
    return beliefs


def assert_same(old: kk.Beliefs, new: kk.Beliefs, *, shift: float = 0.0) -> None:
    assert new.log_z == pytest.approx(old.log_z + shift, abs=TOLERANCE)
    assert np.allclose(new.flat_marginals, old.flat_marginals, atol=TOLERANCE)


def rng_of(data: st.DataObject) -> np.random.Generator:
    return np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))


@pytest.mark.parametrize("method", METHODS)
@few
@given(data=st.data())
def test_the_order_of_variables_does_not_matter(method: str, data: st.DataObject) -> None:
    graph = data.draw(models(method))
    place = rng_of(data).permutation(graph.n_variables)  # variable v becomes place[v]
    cards = np.empty(graph.n_variables, dtype=int)
    cards[place] = graph.cardinalities
    moved = build(cards, [([int(place[v]) for v in s], t) for s, t in factors_of(graph)])
    old, new = solve(graph, method), solve(moved, method)
    assert new.log_z == pytest.approx(old.log_z, abs=TOLERANCE)
    for v in range(graph.n_variables):
        assert np.allclose(new[int(place[v])], old[v], atol=TOLERANCE)


@pytest.mark.parametrize("method", METHODS)
@few
@given(data=st.data())
def test_the_order_of_factors_does_not_matter(method: str, data: st.DataObject) -> None:
    graph = data.draw(models(method))
    order = rng_of(data).permutation(graph.n_factors)
    factors = factors_of(graph)
    old = solve(graph, method)
    new = solve(build(graph.cardinalities, [factors[a] for a in order]), method)
    assert_same(old, new)
    for k, a in enumerate(order):
        assert np.allclose(new.factor(k), old.factor(int(a)), atol=TOLERANCE)


@pytest.mark.parametrize("method", METHODS)
@few
@given(data=st.data())
def test_the_order_of_axes_does_not_matter(method: str, data: st.DataObject) -> None:
    graph = data.draw(models(method))
    rng = rng_of(data)
    factors, orders = [], []
    for scope, table in factors_of(graph):
        axes = rng.permutation(len(scope))
        orders.append(axes)
        factors.append(([scope[k] for k in axes], np.transpose(table, axes)))
    old, new = solve(graph, method), solve(build(graph.cardinalities, factors), method)
    assert_same(old, new)
    for a, axes in enumerate(orders):
        assert np.allclose(new.factor(a), np.transpose(old.factor(a), axes), atol=TOLERANCE)


@pytest.mark.parametrize("method", METHODS)
@few
@given(data=st.data())
def test_the_order_of_states_does_not_matter(method: str, data: st.DataObject) -> None:
    graph = data.draw(models(method))
    rng = rng_of(data)
    new_order = [rng.permutation(int(c)) for c in graph.cardinalities]
    factors = [(s, t[np.ix_(*(new_order[v] for v in s))]) for s, t in factors_of(graph)]
    old, new = solve(graph, method), solve(build(graph.cardinalities, factors), method)
    assert new.log_z == pytest.approx(old.log_z, abs=TOLERANCE)
    for v in range(graph.n_variables):
        assert np.allclose(new[v], old[v][new_order[v]], atol=TOLERANCE)


@pytest.mark.parametrize("method", METHODS)
@few
@given(data=st.data())
def test_scaling_tables_shifts_log_z_only(method: str, data: st.DataObject) -> None:
    """TEH-M1 (b)."""
    graph = data.draw(models(method))
    rng = rng_of(data)
    scales, constant = 20 * rng.normal(size=graph.n_factors), float(rng.normal())
    factors = [(s, t + scales[a]) for a, (s, t) in enumerate(factors_of(graph))]
    old = solve(graph, method)
    new = solve(build(graph.cardinalities, factors, constant), method)
    assert_same(old, new, shift=scales.sum() + constant)
    assert np.allclose(new.flat_factors, old.flat_factors, atol=TOLERANCE)


@pytest.mark.parametrize("method", METHODS)
@few
@given(data=st.data())
def test_models_side_by_side_do_not_touch(method: str, data: st.DataObject) -> None:
    one, other = data.draw(models(method)), data.draw(models(method))
    n = one.n_variables
    shifted = [([v + n for v in s], t) for s, t in factors_of(other)]
    cards = [*one.cardinalities.tolist(), *other.cardinalities.tolist()]
    both = solve(build(cards, factors_of(one) + shifted), method)
    apart = [solve(one, method), solve(other, method)]
    assert both.log_z == pytest.approx(apart[0].log_z + apart[1].log_z, abs=TOLERANCE)
    expected = np.concatenate([beliefs.flat_marginals for beliefs in apart])
    assert np.allclose(both.flat_marginals, expected, atol=TOLERANCE)


@pytest.mark.parametrize("method", METHODS)
@few
@given(data=st.data())
def test_a_variable_of_one_state_does_not_matter(method: str, data: st.DataObject) -> None:
    graph = data.draw(models(method))
    n = graph.n_variables
    factors = [((*s, n), t[..., None]) for s, t in factors_of(graph)]
    old = solve(graph, method)
    new = solve(build([*graph.cardinalities.tolist(), 1], factors), method)
    assert new.log_z == pytest.approx(old.log_z, abs=TOLERANCE)
    assert np.allclose(new.flat_marginals, [*old.flat_marginals, 1.0], atol=TOLERANCE)


# ---------------------------------------------------------------------- exact methods only


@pytest.mark.parametrize("method", EXACT)
@few
@given(data=st.data())
def test_exact_methods_agree_with_the_oracle(method: str, data: st.DataObject) -> None:
    graph = data.draw(models(method))
    beliefs = solve(graph, method)
    log_z, marginals, tables = enumerate_exact(graph)
    assert beliefs.log_z == pytest.approx(log_z, abs=1e-10)
    assert np.allclose(beliefs.flat_marginals, np.concatenate(marginals), atol=1e-10)
    for a in range(graph.n_factors):
        assert np.allclose(beliefs.factor(a), tables[a], atol=1e-10)


@pytest.mark.parametrize("method", EXACT)
@few
@given(data=st.data())
def test_splitting_a_factor_does_not_matter(method: str, data: st.DataObject) -> None:
    graph = data.draw(models(method))
    share = rng_of(data).random(graph.n_factors)
    halves = []
    for a, (scope, table) in enumerate(factors_of(graph)):
        kept = numerics.xlogy(share[a], np.where(np.isfinite(table), table, 0.0))
        halves += [(scope, kept), (scope, table - kept)]
    assert_same(solve(graph, method), solve(build(graph.cardinalities, halves), method))


@pytest.mark.parametrize("method", EXACT)
@few
@given(data=st.data())
def test_evidence_clamping_and_the_sum_over_evidence(method: str, data: st.DataObject) -> None:
    """LIU-M4: both ways to condition agree, and the weights of all cases add up to Z."""
    graph = data.draw(models(method))
    size = data.draw(st.integers(1, min(2, graph.n_variables)))
    observed = [int(v) for v in rng_of(data).choice(graph.n_variables, size=size, replace=False)]
    cases = []
    for states in itertools.product(*(range(int(graph.cardinalities[v])) for v in observed)):
        evidence = dict(zip(observed, states, strict=True))
        try:
            reduced = solve(graph, method, evidence=evidence)
        except ImpossibleEvidenceError:
            continue
        clamped = solve(graph.clamp(evidence), method)
        assert_same(clamped, reduced)
        cases.append(reduced.log_z)
    total = float(numerics.logsumexp(np.array(cases)))
    assert total == pytest.approx(solve(graph, method).log_z, abs=TOLERANCE)


@pytest.mark.parametrize("method", EXACT)
@few
@given(data=st.data())
def test_the_pairwise_form_has_the_same_answers(method: str, data: st.DataObject) -> None:
    graph = data.draw(models(method))
    assume(
        np.prod([len(c) for c in kk.graphs.to_pairwise(graph).configurations], initial=1) < 10**4
    )
    pairwise = kk.graphs.to_pairwise(graph)
    old, new = solve(graph, method), solve(pairwise.graph, method)
    assert new.log_z == pytest.approx(old.log_z, abs=TOLERANCE)
    restricted = pairwise.restrict_marginals(new.flat_marginals)
    assert np.allclose(restricted, old.flat_marginals, atol=TOLERANCE)
