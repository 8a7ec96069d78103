"""Posteriors of sigmoid networks against enumeration, finite differences and each other."""

import dataclasses

import numpy as np
import pytest

from kikuchi.beliefnets.kernels.tilted import EdgeTilts, best_xi, tilt
from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import parse_posterior
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.methods.enumeration import Enumeration
from kikuchi.methods.mixture_mean_field import exact_mixture_bound

FAMILIES = ("mean-field", "mixture:3", "chain", "quadratic")


def network(span=2.0, layers=(2, 3, 5), seed=0):
    return SigmoidNetwork.random(layers, span=span, random_state=seed)


def rows(net, seed=0, count=4):
    rng = np.random.default_rng(seed)
    return net.clamped(rng.integers(0, 2, size=(count, len(net.visible))).astype(float))


def fitted(text, net, states, **options):
    family = parse_posterior(text)
    if options:
        family = dataclasses.replace(family, **options)
    return family.fit(net, states, rng=np.random.default_rng(1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("span", [0.5, 2.0, 6.0])
def test_bounds_are_bounds_in_their_order(span, seed):
    """LAW-T1: every family is below enumeration, and richer ones are above mean field."""
    # LAW-I8, LAW-I11
    net = network(span, seed=seed)
    states = rows(net, seed)
    truth = fitted("exact", net, states).bound
    bound = {text: fitted(text, net, states).bound for text in FAMILIES}
    for text in FAMILIES:
        assert np.all(bound[text] <= truth + 1e-9), text
    assert np.all(bound["mixture:3"] >= bound["mean-field"] - 1e-9)
    assert np.all(bound["chain"] >= bound["mean-field"] - 1e-9)


def test_enumeration_is_that_of_the_factor_graph():
    net = SigmoidNetwork.from_edges(
        [0.3, -0.5, 0.2, 0.1],
        {(0, 1): 1.5, (0, 2): -2.0, (1, 2): 0.7, (1, 3): 1.0, (2, 3): -1.2},
        [2, 3],
    )
    beliefs = Enumeration().run(net.to_factor_graph(), evidence={2: 1, 3: 0})
    found = fitted("exact", net, net.clamped(np.array([[1.0, 0.0]])))
    assert found.exact and found.bound[0] == pytest.approx(beliefs.log_z, abs=1e-12)
    marginals = [beliefs.marginals[v][1] for v in (0, 1)]
    assert found.means[0, :2] == pytest.approx(marginals, abs=1e-12)


def test_gap_is_the_divergence_where_no_local_bound_is_needed():
    """LAW-T2: with inputs that are known the mean field bound is exact."""
    net = SigmoidNetwork.layered([np.zeros((2, 3))], [[0.4, -1.0], [0.3, 0.0, -2.0]])
    states = rows(net)
    assert fitted("mean-field", net, states).bound == pytest.approx(
        fitted("exact", net, states).bound, abs=1e-10
    )


@pytest.mark.parametrize("text", FAMILIES)
def test_ascent_never_falls(text):
    """LAW-T3: one sweep after the other, the bound of each row rises or stays."""
    # LAW-I8
    net = network(3.0)
    states = rows(net)
    family = dataclasses.replace(parse_posterior(text), tol=1e-13, max_iter=1)
    if text == "quadratic":
        family = dataclasses.replace(family, inner=1)
    fit = family.fit(net, states, rng=np.random.default_rng(1))
    for _ in range(25):
        before = fit.bound
        start = {name: array.copy() for name, array in fit.state.items()}
        fit = family.fit(net, states, rng=np.random.default_rng(1), start=start)
        assert np.all(fit.bound >= before - 1e-9)


@pytest.mark.parametrize("text", [*FAMILIES, "exact"])
def test_gradients_are_those_of_the_bound(text):
    """LAW-T7."""
    # LAW-L2, LAW-L3
    net = network(1.5)
    states = rows(net)
    family = parse_posterior(text)
    if text != "exact":
        family = dataclasses.replace(family, tol=1e-9, max_iter=20000)
    fit = family.fit(net, states, rng=np.random.default_rng(1))
    gradient = family.gradient(net, states, fit)
    rng = np.random.default_rng(5)
    for name, array in gradient.items():
        for k in rng.choice(len(array), 4, replace=False):
            values = []
            for step in (1e-4, -1e-4):
                moved = net.copy()
                moved.parameters[name][k] += step
                start = {n: a.copy() for n, a in fit.state.items()} or None
                again = family.fit(moved, states, rng=np.random.default_rng(1), start=start)
                values.append(again.bound.sum())
            assert array[k] == pytest.approx((values[0] - values[1]) / 2e-4, abs=1e-5)


def test_best_xi_is_the_minimum_of_a_convex_function():
    """LAW-T8: Newton agrees with a grid, the function is convex and its minimum in [0, 1]."""
    rng = np.random.default_rng(0)
    for span in (0.3, 3.0, 30.0):
        net = network(span, (4, 1), seed=int(span))
        means = np.append(rng.uniform(size=4), 1.0)
        grown = np.exp(net.parameters["weights"])
        edges = EdgeTilts(np.zeros(net.n_edges), np.zeros(net.n_edges), grown)
        inputs = net.inputs(means)[0, 4]

        def value(xi, net=net, means=means, edges=edges, inputs=inputs):
            log_a, log_b, *_ = tilt(net.edges, 4, xi, means, edges, False)
            return xi * inputs + np.logaddexp(log_a, log_b)

        grid = np.linspace(0, 1, 2001)
        values = np.array([value(x) for x in grid])
        assert np.all(np.diff(values, 2) > -1e-9)
        xi, *_ = best_xi(net.edges, 4, 0.5, inputs, means, edges, False)
        assert value(xi) <= values.min() + 1e-10
        assert abs(xi - grid[values.argmin()]) < 2e-3 or np.ptp(values) < 1e-9


def test_one_component_is_mean_field_and_a_tied_chain_too():
    """LAW-T6."""
    # LAW-I11
    net = network()
    states = rows(net)
    field = fitted("mean-field", net, states)
    single = fitted("mixture:components=1,tol=1e-5", net, states)
    assert single.bound == pytest.approx(field.bound, abs=1e-12)
    chain = dataclasses.replace(parse_posterior("chain"), max_iter=1, tol=1e9)
    start = {"odds": np.repeat(field.means[:, :, None], 2, axis=2), "xi": field.state["xi"][:, 0]}
    from kikuchi.beliefnets.kernels.chain import _settle

    means, inputs = np.empty(net.n_units), np.empty(net.n_units)
    starts = np.cumsum((0, *net.layers))
    tied = _settle(net.edges, starts, start["odds"][0], means, inputs, start["xi"][0].copy())
    assert tied == pytest.approx(field.bound[0], abs=1e-9)
    assert chain.fit(net, states, rng=None, start=start).bound[0] >= tied - 1e-12


def test_the_information_is_below_that_of_the_mixture():
    """The smoothed bound of the mixture against the exact entropy of the same mixture."""
    # LAW-I10
    net = network(3.0, (2, 4))
    states = rows(net, count=1)
    fit = fitted("mixture:3", net, states)
    graph = net.to_factor_graph().clamp({int(v): int(states[0, v]) for v in net.visible})
    means = fit.state["means"][0]
    flat = np.stack([np.column_stack([1 - m, m]).ravel() for m in means])
    exact = exact_mixture_bound(graph, fit.state["weights"][0], flat)
    assert fit.bound[0] <= exact + 1e-9 <= fitted("exact", net, states).bound[0] + 1e-9
    assert np.all(np.diff(fit.state["bounds"], axis=1) >= -1e-9)
    assert fit.state["bounds"][0, -1] - fit.state["bounds"][0, 0] <= np.log(3)


def test_labels_of_components_and_units_do_not_matter():
    """LAW-T24."""
    net = network(2.0, (3, 5))
    states = rows(net)
    fit = fitted("mixture:2", net, states)
    family = dataclasses.replace(parse_posterior("mixture:2"), tol=1e-7)
    swapped = {name: array[:, ::-1].copy() for name, array in fit.state.items()}
    plain = {name: array.copy() for name, array in fit.state.items()}
    again = [family.fit(net, states, rng=None, start=s).bound for s in (plain, swapped)]
    assert again[0] == pytest.approx(again[1], abs=1e-6)
    (w,), bias = net.matrices(), net.parameters["bias"]
    order = [2, 0, 1]
    other = SigmoidNetwork.layered([w[order]], [bias[:3][order], bias[3:]])
    field = fitted("mean-field", net, states, tol=1e-9)
    moved = fitted("mean-field", other, states, tol=1e-9)
    assert moved.bound == pytest.approx(field.bound, abs=1e-7)
    assert moved.means[:, :3] == pytest.approx(field.means[:, order], abs=1e-4)


def test_gibbs_comes_to_the_exact_means():
    # LAW-I2
    net = network()
    states = rows(net)
    found = fitted("gibbs:20000", net, states)
    assert found.means == pytest.approx(fitted("exact", net, states).means, abs=0.02)
    assert np.all(np.isnan(found.bound))


def test_proposals_keep_the_posterior_and_leave_modes():
    """HOJ-X2: where single-unit sweeps stay in one of two modes, proposals move between them."""
    net = network()
    states = rows(net)
    exact = fitted("exact", net, states).means
    assert fitted("gibbs-proposals:3000", net, states).means == pytest.approx(exact, abs=0.03)
    # two hidden units of which exactly one must be on: each change of one unit is penalised
    either = SigmoidNetwork.layered(
        [np.array([[14.0, -14.0], [14.0, -14.0]])], [[0.0, 0.0], [-7.0, 21.0]]
    )
    on = either.clamped(np.ones((8, 2)))
    truth = fitted("exact", either, on).means[0, :2]
    assert truth == pytest.approx([0.5, 0.5], abs=1e-3)
    stuck = fitted("gibbs:200", either, on).means[:, :2]
    moving = fitted("gibbs-proposals:200", either, on).means[:, :2]
    assert np.abs(stuck - 0.5).mean() > 2 * np.abs(moving - 0.5).mean()


def test_rows_with_different_unknown_units():
    # LAW-M1
    net = network()
    states = rows(net)
    states[1, 6] = np.nan
    states[2, 0] = 1.0
    truth = fitted("exact", net, states)
    for text in FAMILIES:
        found = fitted(text, net, states)
        assert np.all(found.bound <= truth.bound + 1e-9)
        alone = fitted(text, net, states[1:2])
        assert found.bound[1] == pytest.approx(alone.bound[0], abs=0.05)
        assert np.all(found.means[2, 0] == 1.0)
    assert truth.bound[1] > fitted("exact", net, rows(net)).bound[1]


def test_collapse_is_reported():
    # LAW-I10
    net = SigmoidNetwork.layered([np.full((1, 2), 1e-3)], [[0.0], [0.0, 0.0]])
    found = fitted("mixture:3", net, rows(net))
    assert (
        found.remarks and "collapsed" in found.remarks[0] and "in 4 of 4 rows" in found.remarks[0]
    )


def test_what_cannot_be_done_is_said():
    free = SigmoidNetwork.from_edges([0, 0, 0], {(0, 1): 1.0, (0, 2): 1.0, (1, 2): 1.0}, [2])
    for text in ("chain", "quadratic"):
        with pytest.raises(MethodError, match="layered"):
            fitted(text, free, rows(free))
    with pytest.raises(BudgetError, match=r"2\^25"):
        large = network(layers=(25, 2))
        fitted("exact", large, rows(large))
    with pytest.raises(MethodError, match="no posterior 'mixtur'"):
        parse_posterior("mixtur:3")
    with pytest.raises(MethodError, match="takes no number"):
        parse_posterior("chain:3")


@pytest.mark.parametrize("span", [3.0, 40.0, 300.0])
def test_mixtures_of_hard_units_keep_their_bound(span: float) -> None:
    """Overlaps of components that exclude each other vanish: logarithms take over from products."""
    rng = np.random.default_rng(0)
    for seed in range(3):
        net = SigmoidNetwork.random((2, 4, 6), span=span, random_state=seed)
        rows = net.clamped(rng.integers(0, 2, size=(2, 6)).astype(float))
        exact = parse_posterior("exact").fit(net, rows, rng=rng).bound
        found = parse_posterior("mixture:4").fit(net, rows, rng=rng)
        assert np.all(np.isfinite(found.bound)) and np.all(found.bound <= exact + 1e-9)
        assert np.all(np.diff(found.state["bounds"], axis=1) > -1e-4)
