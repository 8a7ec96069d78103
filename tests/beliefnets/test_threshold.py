"""Threshold networks: inference against brute force, margins, perceptrons, committees, files."""

import itertools

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from kikuchi.beliefnets import ThresholdNetworkClassifier
from kikuchi.beliefnets.threshold import ThresholdNetwork, temperatures
from kikuchi.core.errors import DataError, MethodError


@pytest.fixture(scope="module")
def xor():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(150, 2))
    return X, np.where(X[:, 0] * X[:, 1] > 0, "same", "other")


def brute_force(net, row, target, margin=0.0):
    """The best objective over all hidden states of a network of one hidden layer."""
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=int(net.sizes[1]))))
    w, v = net.matrix(1), net.matrix(2)
    a = row @ w[:-1] + w[-1]
    out = states @ v[:-1] + v[-1]
    hidden = 0.5 * (states @ a - np.abs(a).sum())
    return (hidden - np.maximum(margin - out * target, 0.0).sum(axis=1)).max()


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_inference_comes_near_to_brute_force_and_never_falls(margin):
    """LAW-T3 and LAW-I13: at zero temperature the objective rises; annealing finds most optima."""
    rng = np.random.default_rng(0)
    net = ThresholdNetwork.random((3, 7, 2), rng)
    rows, targets = rng.uniform(-1, 1, size=(60, 3)), rng.choice([-1.0, 1.0], size=(60, 2))
    best = np.array([brute_force(net, r, t, margin) for r, t in zip(rows, targets, strict=True)])
    found = net.infer(rows, targets, np.random.default_rng(1), margin=margin)
    assert np.all(found.objectives <= best + 1e-9)
    assert np.mean(found.objectives > best - 1e-9) > 0.8
    for seed in range(10):
        cold = net.infer(
            rows[seed : seed + 1], targets[seed : seed + 1], rng, margin=margin, anneal=False
        )
        assert np.all(np.diff(cold.trace) >= -1e-12)


def test_the_printed_update_is_worse():
    # LAW-I13
    rng = np.random.default_rng(0)
    net = ThresholdNetwork.random((5, 8, 2), rng)
    rows, targets = rng.normal(size=(200, 5)), rng.choice([-1.0, 1.0], size=(200, 2))
    exact = net.infer(rows, targets, np.random.default_rng(1)).objectives.mean()
    printed = net.infer(rows, targets, np.random.default_rng(1), printed=True).objectives.mean()
    assert printed < 1.1 * exact < 0


def test_stored_patterns_have_objective_zero():
    """LAW-T14: zero exactly where every unit agrees with the sign of its input."""
    # LAW-M4
    rng = np.random.default_rng(0)
    net = ThresholdNetwork.random((3, 6, 1), rng)
    rows = rng.normal(size=(40, 3))
    found = net.infer(rows, net.forward(rows), rng)
    assert found.objectives == pytest.approx(0.0, abs=1e-12)
    hidden = found.states[:, 3:9]
    w = net.matrix(1)
    assert np.array_equal(hidden, np.where(rows @ w[:-1] + w[-1] >= 0, 1.0, -1.0))
    wrong = net.infer(rows, -net.forward(rows), rng)
    w2 = net.matrix(2)
    agree = np.all(wrong.states[:, 3:9] * (rows @ w[:-1] + w[-1]) >= 0, axis=1)
    outputs = wrong.states[:, 3:9] @ w2[:-1] + w2[-1]
    agree &= np.all(outputs * wrong.states[:, 9:] >= 0, axis=1)
    assert np.array_equal(wrong.objectives > -1e-12, agree)


def test_temperatures_are_those_of_the_source():
    t = temperatures()
    assert len(t) == 62 and t[0] == 1000 and t[1] == 800 and t[-1] > 1e-3 > 0.8 * t[-1]


def test_one_unit_is_a_perceptron_that_converges():
    """LAW-T15, LAW-L4: on separable rows the rule ends without errors."""
    from kikuchi.beliefnets.kernels.threshold import perceptron_passes
    from kikuchi.core.seeds import kernel_seeds

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 3))
    targets = np.where(rows @ [1.0, -2.0, 0.5] + 0.3 > 0, 1.0, -1.0)[:, None]
    net = ThresholdNetwork.random((3, 1), rng)
    states = np.column_stack([rows, targets])
    perceptron_passes(net.arrays, states, 0.1, 2000, kernel_seeds(0, 1))
    assert np.array_equal(net.forward(rows), targets)


def test_margins_meet_their_optimality_conditions(xor):
    """LAW-T15, LAW-L5: of the last layer, with the hidden states that inference gave."""
    from kikuchi.beliefnets.threshold import _Rounds

    X, y = xor
    options = ThresholdNetworkClassifier(hidden_layer_sizes=4, C=2.0, random_state=0)
    work = _Rounds(options, (2, 4, 1), X, np.where(y == "same", 1.0, -1.0)[:, None])
    net = ThresholdNetwork.random((2, 4, 1), np.random.default_rng(0))
    states = net.infer(X, work.targets, np.random.default_rng(0), margin=1.0).states
    work._margins(net, states, 1e-3, 0)
    w = net.matrix(2)
    score = work.targets[:, 0] * (states[:, 2:6] @ w[:-1, 0] + w[-1, 0])
    primal = 0.5 * w[:-1, 0] @ w[:-1, 0] + 2.0 * np.maximum(1 - score, 0).sum()
    rng = np.random.default_rng(0)
    for _ in range(200):  # no small step lowers a convex objective at its minimum
        v = w[:, 0] + 0.02 * rng.normal(size=5)
        other = work.targets[:, 0] * (states[:, 2:6] @ v[:-1] + v[-1])
        assert primal <= 0.5 * v[:-1] @ v[:-1] + 2.0 * np.maximum(1 - other, 0).sum() + 1e-2


def test_classes_committees_layers_and_files(xor, tmp_path):
    X, y = xor
    clf = ThresholdNetworkClassifier(
        hidden_layer_sizes=10, n_init=4, committee=3, max_iter=4, random_state=0
    ).fit(X, y)
    assert clf.score(X, y) > 0.8 and len(clf.model_) == 3
    assert np.all(np.diff(clf.validation_errors_) >= 0)
    clf.save(tmp_path / "net.safetensors")
    again = ThresholdNetworkClassifier.load(tmp_path / "net.safetensors")
    assert np.array_equal(again.predict(X), clf.predict(X))
    rings = np.digitize(np.hypot(*X.T), [0.5, 0.9])
    deep = ThresholdNetworkClassifier(hidden_layer_sizes=(12, 6), max_iter=4, random_state=0).fit(
        X, rings
    )
    assert deep.decision_function(X).shape == (150, 3) and deep.score(X, rings) > 0.5


def test_perceptrons_learn(xor):
    # LAW-L4
    X, y = xor
    clf = ThresholdNetworkClassifier(
        hidden_layer_sizes=20, learner="perceptron", random_state=1
    ).fit(X, y)
    assert clf.score(X, y) > 0.7


def test_scikit_learn_accepts_the_classifier():
    check_estimator(ThresholdNetworkClassifier(hidden_layer_sizes=6, max_iter=3, random_state=0))


def test_what_is_refused(xor):
    X, y = xor
    with pytest.raises(DataError, match="one class"):
        ThresholdNetworkClassifier().fit(X, np.zeros(len(X), dtype=int))
    for hidden in (0, (), "a,b", (3, 0)):
        with pytest.raises(MethodError, match="hidden"):
            ThresholdNetworkClassifier(hidden_layer_sizes=hidden).fit(X, y)
    with pytest.raises(MethodError, match="committee of 3 of 1"):
        ThresholdNetworkClassifier(committee=3).fit(X, y)


@pytest.mark.parametrize(
    ("scaling", "size"), [("range", lambda a: np.abs(a).max(axis=0)), ("standard", np.std)]
)
def test_inputs_are_centred_and_scaled(xor, scaling, size):
    X, y = xor
    units = np.array([1000.0, 0.01])
    options = {"scaling": scaling, "max_iter": 1, "random_state": 0}
    clf = ThresholdNetworkClassifier(4, **options).fit(X, y)
    white = (X - clf._middle) / clf._scale
    assert white.mean(axis=0) == pytest.approx(0.0, abs=1e-12)
    assert size(white) == pytest.approx(1.0)
    other = ThresholdNetworkClassifier(4, **options).fit(X * units + 5.0, y)
    assert np.mean(other.predict(X * units + 5.0) == clf.predict(X)) > 0.98
    with pytest.raises(MethodError, match="scaling"):
        ThresholdNetworkClassifier(4, scaling="unit").fit(X, y)
