"""Rate-coded machines: replicas enumerated, the learning rule, the estimator (TEH-M9, M10, L9)."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

pytest.importorskip("sklearn")

from kikuchi.boltzmann.estimators.rate_coded import RateCodedRBM
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.rules import parse_rule
from kikuchi.boltzmann.rules.rate_coded import RateCodedDivergence, replicas_of
from kikuchi.boltzmann.units import BinomialUnits, GaussianUnits
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.training.trainer import train

Array = NDArray[np.float64]


def small(rng: np.random.Generator, visible: int = 2, hidden: int = 3) -> Machine:
    """Three visible units and two hidden ones, with replicas and biases."""
    return Machine(
        rng.normal(size=(3, 2)),
        rng.normal(size=3),
        rng.normal(size=2),
        visible=BinomialUnits(replicas=visible),
        hidden=BinomialUnits(replicas=hidden),
    )


def joint_of_replicas(machine: Machine) -> dict[tuple[int, ...], float]:
    """P of all counts by enumeration of the plain RBM in which every replica is a unit."""
    n, m = replicas_of(machine.visible), replicas_of(machine.hidden)
    weights = np.kron(machine.weights, np.ones((n, m)))
    plain = Machine(weights, np.repeat(machine.visible_bias, n), np.repeat(machine.hidden_bias, m))
    bits = np.array(list(product((0, 1), repeat=plain.n_visible + plain.n_hidden)), dtype=float)
    v, h = bits[:, : plain.n_visible], bits[:, plain.n_visible :]
    p = np.exp(-plain.energy(v, h))
    p /= p.sum()
    counts = np.concatenate(
        [v.reshape(len(v), 3, n).sum(axis=2), h.reshape(len(h), 2, m).sum(axis=2)], axis=1
    ).astype(int)
    table: dict[tuple[int, ...], float] = {}
    for state, share in zip(map(tuple, counts.tolist()), p, strict=True):
        table[state] = table.get(state, 0.0) + float(share)
    return table


def test_counts_have_the_distribution_of_the_replicas() -> None:
    """TEH-M9 (a), equation 3.6 with its binomial coefficients."""
    # TEH-T30
    machine = small(np.random.default_rng(0))
    wanted = joint_of_replicas(machine)
    states = np.array(list(wanted), dtype=float)
    v, h = states[:, :3], states[:, 3:]
    logs = -machine.energy(v, h)
    logs += machine.visible.log_base(v).sum(axis=1) + machine.hidden.log_base(h).sum(axis=1)
    p = np.exp(logs) / np.exp(logs).sum()
    np.testing.assert_allclose(p, list(wanted.values()), atol=1e-13)


def test_conditionals_are_binomial() -> None:
    """TEH-M9 (b, c): SciPy's binomial, its mean and the variance p (1 - p) / n of shares."""
    # TEH-T30
    machine = small(np.random.default_rng(1))
    joint = joint_of_replicas(machine)
    v = (2, 0, 1)
    p = expit(np.array(v) @ machine.weights + machine.hidden_bias)
    given = {s[3:]: q for s, q in joint.items() if s[:3] == v}
    total = sum(given.values())
    for (a, b), q in given.items():
        assert q / total == pytest.approx(binom.pmf(a, 3, p[0]) * binom.pmf(b, 3, p[1]), abs=1e-15)
    shares = np.array([a / 3 for a, _ in given])
    weights = np.array(list(given.values())) / total
    mean = weights @ shares
    assert mean == pytest.approx(p[0], abs=1e-14)
    assert weights @ (shares - mean) ** 2 == pytest.approx(p[0] * (1 - p[0]) / 3, abs=1e-14)


def expected_update(machine: Machine, batch: Array) -> dict[str, Array]:
    """TEH-L9 written out: mean over all hidden counts, weighted by their probability."""
    n, m = replicas_of(machine.visible), replicas_of(machine.hidden)
    w, a, c = machine.weights, machine.visible_bias, machine.hidden_bias
    total = {"weights": np.zeros((3, 2)), "visible_bias": np.zeros(3), "hidden_bias": np.zeros(2)}
    for counts in batch:
        v0 = counts / n
        p0 = expit(n * v0 @ w + c)
        for h in product(range(m + 1), repeat=2):
            chance = np.prod(binom.pmf(h, m, p0))
            v1 = expit(w @ np.array(h) + a)
            p1 = expit(n * v1 @ w + c)
            total["weights"] += chance * (np.outer(v0, p0) - np.outer(v1, p1))
            total["visible_bias"] += chance * (v0 - v1)
            total["hidden_bias"] += chance * (p0 - p1)
    return {name: array / len(batch) for name, array in total.items()}


@pytest.mark.parametrize(("visible", "hidden"), [(4, 3), (1, 1)])
def test_mean_update_is_the_enumerated_one(visible: int, hidden: int) -> None:
    """Over many draws of the hidden units; the bound is five standard errors."""
    rng = np.random.default_rng(2)
    machine = small(rng, visible, hidden)
    batch = rng.integers(0, visible + 1, size=(2, 3)).astype(float)
    rule = RateCodedDivergence(bias_factor=3.0)
    many = 20000
    sums: dict[str, list[Array]] = {"weights": [], "visible_bias": [], "hidden_bias": []}
    for _ in range(20):
        slope = rule.gradient(machine, np.tile(batch, (many // 20, 1)), np.arange(0), {}, rng)
        for name, found in sums.items():
            found.append(slope.ascent[name].copy())
    for name, wanted in expected_update(machine, batch).items():
        factor = 1.0 if name == "weights" else 3.0
        found = np.array(sums[name])
        error = found.std(axis=0, ddof=1) / np.sqrt(20)
        assert np.all(np.abs(found.mean(axis=0) - factor * wanted) < 5 * error + 1e-12)
        assert np.abs(wanted).max() > 20 * error.max()  # the bound is tight enough to fail


def test_one_replica_is_cd_1_of_the_rbm() -> None:
    """With hidden states fixed by strong weights, the rule of TEH-L9 has no chance left in it."""
    # TEH-T30
    rng = np.random.default_rng(3)
    machine = Machine(80 * rng.normal(size=(4, 3)), rng.normal(size=4), 20 * rng.normal(size=3))
    batch = rng.integers(0, 2, size=(6, 4)).astype(float)
    p0 = expit(batch @ machine.weights + machine.hidden_bias)
    sure = np.abs(p0 - 0.5) > 0.499999
    batch = batch[sure.all(axis=1)]
    assert len(batch) >= 3
    p0 = expit(batch @ machine.weights + machine.hidden_bias)
    v1 = expit(np.round(p0) @ machine.weights.T + machine.visible_bias)
    p1 = expit(v1 @ machine.weights + machine.hidden_bias)
    wanted = (batch.T @ p0 - v1.T @ p1) / len(batch)
    slope = RateCodedDivergence(bias_factor=1.0).gradient(machine, batch, np.arange(0), {}, rng)
    np.testing.assert_allclose(slope.ascent["weights"], wanted, atol=1e-12)
    np.testing.assert_allclose(slope.ascent["visible_bias"], (batch - v1).mean(axis=0), atol=1e-12)
    assert slope.objective == pytest.approx(np.mean((batch - v1) ** 2), rel=1e-12)
    # the machine counts one replica exactly as binary units do
    ones = Machine(
        machine.weights,
        machine.visible_bias,
        machine.hidden_bias,
        visible=BinomialUnits(replicas=1),
        hidden=BinomialUnits(replicas=1),
    )
    same = RateCodedDivergence(bias_factor=1.0).gradient(ones, batch, np.arange(0), {}, rng)
    np.testing.assert_allclose(same.ascent["weights"], wanted, atol=1e-12)


def test_weights_stay_at_zero_or_above() -> None:
    """TEH-M10: after every update, so also after the last."""
    # TEH-T45
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 3, size=(30, 3)).astype(float)
    start = small(rng)
    assert start.weights.min() < 0
    free = train(start, rows, "rate-cd", epochs=3, batch_size=10, seed=0).model
    held = train(start, rows, "rate-cd:nonnegative=true", epochs=3, batch_size=10, seed=0).model
    assert free.weights.min() < 0 and held.weights.min() == 0.0
    assert held.visible_bias.min() < 0


def test_machines_without_replicas_are_refused() -> None:
    rows = np.ones((3, 4))
    with pytest.raises(ModelError, match="restricted"):
        train(Machine.random(4, 2, architecture="poe"), rows, "rate-cd")
    with pytest.raises(ModelError, match="no replicas"):
        train(Machine.random(4, 2, visible=GaussianUnits()), rows, "rate-cd")
    assert isinstance(parse_rule("rate-cd:bias_factor=1"), RateCodedDivergence)


# ---------------------------------------------------------------------- the estimator


# seen once on a busy machine, in a product whose factors were finite as far as they were printed
@pytest.mark.filterwarnings("default:invalid value encountered in matmul:RuntimeWarning")
def test_conventions_of_scikit_learn() -> None:
    from sklearn.utils.estimator_checks import check_estimator

    check_estimator(RateCodedRBM(5, limits="data", max_iter=3))


@pytest.fixture(scope="module")
def patterns() -> Array:
    """Grey patterns of two independent causes."""
    rng = np.random.default_rng(0)
    causes = rng.random((200, 2))
    shapes = np.array([[4, 4, 0, 0, -2, 0], [0, 0, 4, 4, 0, -2.0]])
    return expit(2 * causes @ shapes - 2 + 0.1 * rng.normal(size=(200, 6)))


def error_of(rbm: RateCodedRBM, rows: Array) -> float:
    """Mean squared error of reconstructions."""
    return float(np.mean((rbm.reconstruct(rows) - rows) ** 2))


@pytest.mark.parametrize("nonnegative", [False, True])
def test_patterns_are_reconstructed(patterns: Array, nonnegative: bool) -> None:
    rbm = RateCodedRBM(
        8, nonnegative=nonnegative, learning_rate=0.01, max_iter=400, random_state=0
    ).fit(patterns)
    variance = patterns.var(axis=0).mean()
    assert error_of(rbm, patterns) < (0.35 if nonnegative else 0.15) * variance
    assert rbm.warnings_ == [] and rbm.stopped_ == "epochs" and rbm.n_iter_ == 400
    assert (rbm.model_.weights.min() >= 0) == nonnegative
    rates = rbm.transform(patterns)
    assert rates.shape == (200, 8) and rates.min() >= 0 and rates.max() <= 1
    np.testing.assert_allclose(rbm.reconstruct(patterns), rbm.inverse_transform(rates))
    assert rbm.trace_.objective[-1] < 0.5 * rbm.trace_.objective[0]
    assert list(rbm.get_feature_names_out()[:1]) == ["ratecodedrbm0"]


def test_scores_are_enumerated_probabilities() -> None:
    """log P of counts by summing the joint of the replicas over hidden counts, up to log Z."""
    rng = np.random.default_rng(5)
    rbm = RateCodedRBM(2, visible_replicas=2, hidden_replicas=3, max_iter=1, dtype="float64")
    rbm.fit(rng.random((4, 3)))
    rbm.model_ = small(rng)
    joint = joint_of_replicas(rbm.model_)
    marginal: dict[tuple[int, ...], float] = {}
    for state, p in joint.items():
        marginal[state[:3]] = marginal.get(state[:3], 0.0) + p
    rows = np.array(list(marginal)) / 2
    off = rbm.score_samples(rows) - np.log(list(marginal.values()))
    assert np.ptp(off) < 1e-12


def test_samples_follow_the_model() -> None:
    """Means of Gibbs samples against enumeration, within five standard errors."""
    rng = np.random.default_rng(6)
    rbm = RateCodedRBM(2, visible_replicas=2, hidden_replicas=3, max_iter=1, dtype="float64")
    rbm.fit(rng.random((4, 3)))
    rbm.model_ = small(rng)
    mean = sum(p * np.array(state[:3]) / 2 for state, p in joint_of_replicas(rbm.model_).items())
    drawn = rbm.sample(4000, steps=100, random_state=0)
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5 * error)
    with pytest.raises(MethodError, match="at least 1"):
        rbm.sample(0)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_training_begins_at_the_mean(patterns: Array, nonnegative: bool) -> None:
    """Before anything is learnt, the mean row is its own reconstruction."""
    rbm = RateCodedRBM(
        9, nonnegative=nonnegative, learning_rate=1e-12, max_iter=1, dtype="float64", random_state=0
    ).fit(patterns)
    mean = patterns.mean(axis=0, keepdims=True)
    np.testing.assert_allclose(rbm.reconstruct(mean), mean, atol=1e-8)
    field = 10 * mean @ rbm.model_.weights + rbm.model_.hidden_bias
    assert field.mean() == pytest.approx(-0.5, abs=1.0)


def test_limits_of_the_data(patterns: Array) -> None:
    """Grey values 0..255 with their limits are the same data."""
    settings: dict[str, Any] = {
        "n_components": 3,
        "max_iter": 5,
        "random_state": 1,
        "dtype": "float64",
    }
    one = RateCodedRBM(**settings).fit(patterns)
    other = RateCodedRBM(**settings, limits=(0, 255)).fit(255 * patterns)
    np.testing.assert_allclose(one.model_.weights, other.model_.weights, atol=1e-12)
    np.testing.assert_allclose(
        255 * one.reconstruct(patterns), other.reconstruct(255 * patterns), atol=1e-8
    )
    own = RateCodedRBM(**settings, limits="data").fit(255 * patterns)
    assert own.limits_ == (255 * patterns.min(), 255 * patterns.max())


def test_parts_of_the_data_one_after_the_other(patterns: Array) -> None:
    rbm = RateCodedRBM(4, learning_rate=0.05, batch_size=10, random_state=0, dtype="float64")
    for _ in range(30):
        rbm.partial_fit(patterns[:100]).partial_fit(patterns[100:])
    assert rbm.n_iter_ == 60
    assert error_of(rbm, patterns) < 0.8 * patterns.var(axis=0).mean()


def test_collapse_is_told(patterns: Array) -> None:
    """Hidden units that begin far below 0 stay off."""
    rbm = RateCodedRBM(4, hidden_start=-30.0, max_iter=20, random_state=0).fit(patterns)
    assert "collapsed" in rbm.warnings_[-1] and np.all(np.isfinite(rbm.transform(patterns)))


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({}, [[0.5, 1.5]], "row 0, column 1 is 1.5"),
        ({}, [[0.5, np.nan]], "NaN"),
        ({"limits": (1, 0)}, [[0.5, 1.0]], "rising"),
        ({"limits": "all"}, [[0.5, 1.0]], "rising"),
        ({"dtype": "int8"}, [[0.5, 1.0]], "dtype"),
        ({"visible_replicas": 0}, [[0.5, 1.0]], "replicas"),
        ({"learning_rate": -1.0}, [[0.5, 1.0]], "learning_rate"),
        ({"max_iter": 0}, [[0.5, 1.0]], "max_iter"),
        ({"n_components": -1}, [[0.5, 1.0]], "n_components"),
    ],
)
def test_bad_settings_and_rows(settings: dict[str, Any], rows: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RateCodedRBM(**settings).fit(rows)


def test_bad_shares_are_refused(patterns: Array) -> None:
    rbm = RateCodedRBM(3, max_iter=1).fit(patterns)
    with pytest.raises(DataError, match="3 hidden"):
        rbm.inverse_transform(np.ones((2, 4)))
    with pytest.raises(ValueError, match="features"):
        rbm.transform(np.ones((2, 4)))


def test_files_hold_the_whole_estimator(patterns: Array, tmp_path: Path) -> None:
    rbm = RateCodedRBM(3, max_iter=5, limits=(0, 255), random_state=0).fit(255 * patterns)
    rbm.save(tmp_path / "rates.safetensors")
    again = RateCodedRBM.load(tmp_path / "rates.safetensors")
    assert again.limits_ == (0.0, 255.0) and again.get_params()["hidden_replicas"] == 100
    np.testing.assert_array_equal(again.transform(255 * patterns), rbm.transform(255 * patterns))
    np.testing.assert_array_equal(
        again.sample(2, steps=3),
        RateCodedRBM.load(tmp_path / "rates.safetensors").sample(2, steps=3),
    )
