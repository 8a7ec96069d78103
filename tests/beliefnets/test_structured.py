"""Blocks of hidden units kept together, by `tree-mf` (HOJ-I10)."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.beliefnets import SigmoidBeliefNetwork
from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import parse_posterior
from kikuchi.core.errors import KikuchiError


def bounds(net: SigmoidNetwork, rows: np.ndarray, *names: str) -> list[float]:
    rng = np.random.default_rng(0)
    return [float(parse_posterior(name).fit(net, rows, rng=rng).bound.sum()) for name in names]


def test_wider_blocks_come_nearer() -> None:
    for seed in range(2):
        net = SigmoidNetwork.random((2, 4, 6), random_state=seed)
        rows = net.clamped(np.zeros((1, 6)))
        found = bounds(net, rows, "quadratic", "tree-mf:1", "tree-mf:5", "exact")
        assert found[0] < found[1] <= found[2] + 1e-6 < found[3]
        alone = bounds(net, rows, "tree-mf:subgraph=subsets:0/1/2/3/4/5")[0]
        assert alone == pytest.approx(found[0], abs=1e-3)  # single units are mean field


def test_gradient_is_that_of_the_bound() -> None:
    net = SigmoidNetwork.random((2, 3, 3), span=1.5, random_state=1)
    rows = net.clamped(np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]))
    family = parse_posterior("tree-mf:width=1,tol=1e-10,inner_max_iter=2000")
    rng = np.random.default_rng(0)
    fit = family.fit(net, rows, rng=rng)
    found = family.gradient(net, rows, fit)
    for name, at in (("weights", 0), ("weights", 8), ("bias", 1), ("bias", 6)):
        sides = []
        for step in (1e-4, -1e-4):
            moved = net.copy()
            moved.parameters[name][at] += step
            sides.append(float(family.fit(moved, rows, rng=rng, start=fit.state).bound.sum()))
        assert found[name][at] == pytest.approx((sides[0] - sides[1]) / 2e-4, abs=1e-4)


def test_evidence_learning_and_errors() -> None:
    rng = np.random.default_rng(0)
    on = rng.integers(0, 2, size=(8, 1))
    X = np.repeat(np.concatenate([on, 1 - on], axis=1), 2, axis=1).astype(float)
    net = SigmoidBeliefNetwork(
        (2,), posterior="tree-mf:1", max_iter=4, batch_size=8, learning_rate=0.2, random_state=0
    ).fit(X)
    assert net.trace_.objective[-1] > net.trace_.objective[0]
    assert net.score(X) < net.row_likelihoods(X, "exact").mean()
    told = net.infer({0: 1, 2: 1})
    exact = net.infer({0: 1, 2: 1}, posterior="exact")
    assert told.bound < exact.bound and np.abs(told.means - exact.means).max() < 0.1
    whole = net.infer(dict.fromkeys(range(6), 1))  # nothing is unknown
    known = net.infer(dict.fromkeys(range(6), 1), posterior="exact")
    assert whole.bound == pytest.approx(known.bound)
    with pytest.raises(KikuchiError, match="subgraph"):
        net.set_params(posterior="tree-mf:subgraph=forest").score(X)
