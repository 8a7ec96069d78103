"""Sigmoid networks with the bound of third order (HOJ-X8)."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.beliefnets import SigmoidBeliefNetwork
from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import parse_posterior
from kikuchi.beliefnets.posteriors.third_order import (
    ThirdOrderUnits,
    dense_weights,
    local_points,
    quadratic_form,
)
from kikuchi.methods.third_order import third_order_bound


@pytest.mark.parametrize("form", ["layers", "any"])
def test_the_quadratic_form_is_below_the_weight(form: str) -> None:
    net = SigmoidNetwork.random((2, 3, 2), span=2.0, random_state=0)
    if form == "any":
        edges = {(0, 1): 1.0, (0, 2): -2.0, (1, 2): 1.5, (0, 3): 0.5, (2, 3): -1.0}
        net = SigmoidNetwork.from_edges([0.1, -0.3, 0.2, 0.4], edges, [3])
    known = net.clamped(np.ones((1, len(net.visible))))[0]
    free = np.flatnonzero(np.isnan(known))
    matrix = dense_weights(net)
    local = local_points(net, matrix, np.full(net.n_units, 0.5))
    spins = quadratic_form(net, matrix, known, free, local).spins
    couplings = np.zeros((len(free), len(free)))
    couplings[spins.rows, spins.columns] = spins.couplings
    for code in range(2 ** len(free)):
        bits = (code >> np.arange(len(free))) & 1
        state = np.where(np.isnan(known), 0.0, known)
        state[free] = bits
        s = 2.0 * bits - 1.0
        below = spins.constant + spins.fields @ s + 0.5 * s @ couplings @ s
        z = net.inputs(state[None])[0]
        curves = np.tanh(local / 2) / (4 * local)
        terms = state * z - 0.5 * z - curves * (z**2 - local**2) + 0.5 * local
        assert below == pytest.approx(np.sum(terms - np.logaddexp(0, local)), rel=1e-9)
        assert below <= net.log_joint(state[None])[0] + 1e-12


def test_bounds_lie_between_the_quadratic_one_and_the_truth() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for seed in range(6):
        net = SigmoidNetwork.random((2, 4, 6), random_state=seed)
        rows = net.clamped(rng.integers(0, 2, size=(2, 6)).astype(float))
        exact, low, found = (
            parse_posterior(name).fit(net, rows, rng=rng).bound
            for name in ("exact", "quadratic", "third-order")
        )
        assert np.all(found < exact) and np.all(found > low)
        shares += ((exact - found) / (exact - low)).tolist()
    assert np.mean(shares) < 0.5


def test_gradient_and_learning() -> None:
    net = SigmoidNetwork.random((2, 3, 4), span=1.5, random_state=1)
    rows = net.clamped(np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]]))
    family = ThirdOrderUnits(max_iter=1)
    fit = family.fit(net, rows, rng=np.random.default_rng(0))
    found = family.gradient(net, rows, fit)

    def value(other: SigmoidNetwork) -> float:
        total = 0.0
        for row in range(2):
            free = np.flatnonzero(np.isnan(rows[row]))
            form = quadratic_form(
                other, dense_weights(other), rows[row], free, fit.state["local"][row]
            )
            q = fit.state["means"][row, 0, free]
            x = 0.5 * np.log(q / (1 - q))
            total += third_order_bound(form.spins, x)[0] + form.spins.constant
        return total

    assert value(net) == pytest.approx(float(fit.bound.sum()))
    for name in ("weights", "bias"):
        for i in range(len(net.parameters[name])):
            sides = []
            for step in (1e-5, -1e-5):
                moved = net.copy()
                moved.parameters[name][i] += step
                sides.append(value(moved))
            assert found[name][i] == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=1e-6)
    rng = np.random.default_rng(0)
    on = rng.integers(0, 2, size=(40, 1))
    X = np.repeat(np.concatenate([on, 1 - on], axis=1), 2, axis=1).astype(float)
    learnt = SigmoidBeliefNetwork(
        (2,), posterior="third-order", max_iter=25, batch_size=20, learning_rate=0.1, random_state=0
    ).fit(X)
    assert learnt.trace_.objective[-1] > learnt.trace_.objective[0] + 0.5
    assert learnt.score(X) < learnt.row_likelihoods(X, "exact").mean()
