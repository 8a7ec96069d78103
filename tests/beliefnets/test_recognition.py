"""Recognition networks and importance-weighted bounds (LIU-L7)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kikuchi.beliefnets import SigmoidBeliefNetwork
from kikuchi.beliefnets.likelihood import exact_likelihood
from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.recognition import (
    add_recognition,
    draw_hidden,
    importance_bound,
    parse_recognition,
)
from kikuchi.core.errors import KikuchiError


@pytest.fixture(scope="module")
def small() -> SigmoidNetwork:
    net = SigmoidNetwork.random((1, 2, 3), span=2.0, random_state=1)
    add_recognition(net, np.random.default_rng(0))
    net.parameters["up_bias"][:] = [0.3, -0.5, 0.2]
    return net


ROW = np.array([[1.0, 0.0, 1.0]])


def expected_bound(net: SigmoidNetwork, draws: int) -> float:
    """E log mean_k P / q over all tuples of hidden states, written apart from the library."""
    up, c = net.parameters["up_weights"], net.parameters["up_bias"]
    first, second = up[:6].reshape(3, 2), up[6:].reshape(2, 1)
    told = []
    for h in itertools.product((0.0, 1.0), repeat=3):
        top, middle = np.array(h[:1]), np.array(h[1:])
        a, b = ROW[0] @ first + c[1:], middle @ second + c[:1]
        log_q = sum(x * z - np.log1p(np.exp(z)) for x, z in [*zip(middle, a, strict=True),
                                                               (top[0], b[0])])  # fmt: skip
        states = np.concatenate([top, middle, ROW[0]])
        told.append((log_q, net.log_joint(states[None])[0] - log_q))
    total = 0.0
    for group in itertools.product(told, repeat=draws):
        weight = np.exp(sum(log_q for log_q, _ in group))
        total += weight * np.log(np.mean(np.exp([w for _, w in group])))
    return float(total)


def test_bounds_rise_with_draws_to_the_likelihood(small: SigmoidNetwork) -> None:
    exact = exact_likelihood(small, small.clamped(ROW)).mean()
    one, two, three = (expected_bound(small, k) for k in (1, 2, 3))
    assert one < two < three < exact
    rng = np.random.default_rng(0)
    rows = np.repeat(ROW, 20_000, axis=0)
    for draws, known in ((1, one), (2, two)):
        found = importance_bound(draw_hidden(small, rows, draws, rng).log_weights(small))
        assert abs(found.mean() - known) < 4 * found.std() / np.sqrt(len(found))
    many = importance_bound(draw_hidden(small, ROW, 200_000, rng).log_weights(small))[0]
    assert abs(many - exact) < 0.02


def test_vimco_estimates_the_gradient_of_the_expected_bound(small: SigmoidNetwork) -> None:
    rule, rng = parse_recognition("vimco:2"), np.random.default_rng(3)
    rows = np.repeat(ROW, 4000, axis=0)
    found = [rule.gradient(small, rows, np.arange(4000), {}, rng).ascent for _ in range(25)]
    for name, values in small.parameters.items():
        stack = np.array([f[name] for f in found])
        mean, error = stack.mean(axis=0), stack.std(axis=0) / np.sqrt(len(stack))
        for i in range(len(values)):
            sides = []
            for step in (1e-4, -1e-4):
                net = small.copy()
                net.parameters[name][i] += step
                sides.append(expected_bound(net, 2))
            slope = (sides[0] - sides[1]) / 2e-4
            assert abs(mean[i] - slope) < 5 * error[i] + 1e-4, (name, i)


def bars(count: int, rng: Any) -> Any:
    """Rows or columns of a 3 x 3 image, each on with probability 0.4, never both kinds."""
    out = np.zeros((count, 3, 3))
    for image in out:
        on = rng.random(3) < 0.4
        if rng.random() < 0.5:
            image[on] = 1.0
        else:
            image[:, on] = 1.0
    return out.reshape(count, 9)


@pytest.mark.parametrize("learner", ["vimco:8", "reweighted:8", "wake-sleep"])
def test_learning_reaches_a_good_model(learner: str) -> None:
    rng = np.random.default_rng(0)
    X, new = bars(400, rng), bars(200, rng)
    net = SigmoidBeliefNetwork(
        (2, 8), learner=learner, posterior="recognition", max_iter=80, batch_size=50,
        learning_rate=0.03, random_state=0,
    ).fit(X)  # fmt: skip
    exact = net.row_likelihoods(new, "exact").mean()
    p = X.mean(axis=0)
    independent = float(np.mean(np.sum(new * np.log(p) + (1 - new) * np.log(1 - p), axis=1)))
    assert exact > independent + 1.0
    drawn = net.row_likelihoods(new, "importance", draws=300).mean()
    assert exact - 0.4 < drawn < exact + 0.02
    assert net.trace_.objective[-1] > net.trace_.objective[0]
    means = net.transform(new[:20])
    known = net.set_params(posterior="exact").transform(new[:20])
    assert np.abs(means - known).mean() < 0.15


def test_files_evidence_and_clear_errors(tmp_path: Path) -> None:
    X = bars(60, np.random.default_rng(1))
    weak = SigmoidNetwork.random((3, 9), span=0.5, random_state=0)
    net = SigmoidBeliefNetwork(start=weak, learner="vimco", posterior="recognition", max_iter=2,
                               learning_rate=0.02, random_state=0).fit(X)  # fmt: skip
    net.save(tmp_path / "n.safetensors")
    again = SigmoidBeliefNetwork.load(tmp_path / "n.safetensors")
    assert np.array_equal(again.transform(X), net.transform(X))
    exact = net.row_likelihoods(X, "exact").estimate
    assert np.all(net.score_samples(X) < exact + 0.3) and net.score(X) < exact.mean() + 0.02
    with pytest.raises(KikuchiError, match="visible units and nothing else"):
        net.infer({0: 1})
    assert np.isfinite(net.infer({0: 1}, posterior="mean-field").bound)
    with pytest.raises(KikuchiError, match="one of bound, wake-sleep"):
        SigmoidBeliefNetwork((3,), learner="guess").fit(X)
    with pytest.raises(KikuchiError, match="no recognition network"):
        SigmoidBeliefNetwork((3,), posterior="recognition").fit(X)
    tree = SigmoidNetwork.from_edges([0, 0, 0], {(0, 1): 1.0, (0, 2): 2.0}, [1, 2])
    with pytest.raises(KikuchiError, match="layered"):
        SigmoidBeliefNetwork(learner="vimco", start=tree).fit(X[:, :2])
    on = SigmoidBeliefNetwork((3,), learner="reweighted:4", ard=True, max_iter=2, random_state=0)
    first = on.fit(X).model_
    more = SigmoidBeliefNetwork((3,), learner="vimco", start=first, max_iter=1).fit(X).model_
    assert more.parameters["up_weights"].shape == first.parameters["up_weights"].shape
