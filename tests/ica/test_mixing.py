"""M-steps of the mixing matrix against numerical optimisation and known updates (HOJ-M9)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from kikuchi.core.errors import MethodError
from kikuchi.ica.mixing import (
    ElasticMixing,
    FlatMixing,
    GaussianMixing,
    LaplaceMixing,
    MixingTask,
    linear,
    multiplicative,
    parse_mixing_prior,
    update_mixing,
)
from kikuchi.ica.noise import make_noise

KINDS = ["isotropic", "diagonal", "full"]


def _task(kind, prior, seed=0, channels=4, sources=3, positive=False, by_channel=False):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(sources, 60))
    a = rng.normal(size=(channels, sources))
    if positive:
        s, a = np.abs(s), np.abs(a)
    x = a @ s + 0.5 * rng.normal(size=(channels, 60))
    second = s @ s.T + 4.0 * np.eye(sources)
    root = rng.normal(size=(channels, channels))
    noise = {
        "isotropic": 0.7,
        "diagonal": rng.uniform(0.3, 2.0, channels),
        "full": root @ root.T + np.eye(channels),
    }[kind]
    if by_channel:
        second = second * rng.uniform(0.5, 1.0, channels)[:, None, None]
    return MixingTask(x @ s.T, second, make_noise(noise, np.ones(channels)), prior)


def _direct_value(task, a):
    """The objective with an explicit precision matrix."""
    value = np.asarray(task.noise.value)
    channels = len(a)
    covariance = value if value.ndim == 2 else np.diag(np.broadcast_to(value, channels))
    precision = np.linalg.inv(covariance)
    quadratic = 0.5 * np.trace(precision @ a @ task.second @ a.T)
    penalty = 0.5 * task.prior.alpha * np.sum(a**2) + task.prior.beta * np.abs(a).sum()
    return quadratic - np.trace(precision @ task.cross @ a.T) + penalty


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prior", [FlatMixing(), GaussianMixing(2.5)])
def test_free_mixing_has_zero_gradient_and_is_the_minimum(kind, prior):
    # HOJ-L3
    task = _task(kind, prior)
    found = linear(task)
    assert np.abs(task.gradient(found)).max() < 1e-10 * np.abs(task.cross).max()
    numerical = minimize(
        lambda p: _direct_value(task, p.reshape(found.shape)), np.zeros(found.size), tol=1e-12
    )
    assert np.allclose(numerical.x.reshape(found.shape), found, atol=1e-4)
    assert task.value(found) == pytest.approx(_direct_value(task, found))


def test_gaussian_prior_is_ridge_regression():
    # HOJ-L3
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(1)
    s, x = rng.normal(size=(3, 80)), rng.normal(size=(2, 80))
    noise = make_noise(0.5, np.ones(2))
    found = linear(MixingTask(x @ s.T, s @ s.T, noise, GaussianMixing(4.0)))
    ridge = Ridge(alpha=4.0 * 0.5, fit_intercept=False).fit(s.T, x.T)
    assert np.allclose(found, ridge.coef_, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prior", [LaplaceMixing(30.0), ElasticMixing(5.0, 30.0)])
def test_sparse_mixing_satisfies_its_conditions(kind, prior):
    task = _task(kind, prior)
    found = update_mixing("free", np.ones((4, 3)), task)
    slope = task.gradient(found)
    zero = found == 0.0
    assert zero.any()
    assert not zero.all()
    assert np.abs(slope[~zero] + prior.beta * np.sign(found[~zero])).max() < 1e-5
    assert np.abs(slope[zero]).max() <= prior.beta + 1e-8
    rng = np.random.default_rng(2)
    for size in (1e-3, 1e-1):
        for _ in range(20):
            trial = found + size * rng.normal(size=found.shape)
            assert _direct_value(task, trial) > _direct_value(task, found)


def test_laplace_prior_is_the_lasso():
    from sklearn.linear_model import Lasso

    rng = np.random.default_rng(3)
    s = rng.normal(size=(4, 50))
    x = np.array([[1.0, 0.0, -0.5, 0.05]]) @ s + 0.3 * rng.normal(size=(1, 50))
    task = MixingTask(x @ s.T, s @ s.T, make_noise(0.25, np.ones(1)), LaplaceMixing(40.0))
    lasso = Lasso(alpha=40.0 * 0.25 / 50, fit_intercept=False, tol=1e-12, max_iter=10_000)
    expected = lasso.fit(s.T, x[0]).coef_
    assert np.allclose(update_mixing("free", np.zeros((1, 4)), task)[0], expected, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_nonnegative_mixing_satisfies_the_conditions_of_kuhn_and_tucker(kind):
    # HOJ-L4
    task = _task(kind, ElasticMixing(0.5, 1.0))
    found = update_mixing("nonnegative", np.ones((4, 3)), task)
    slope = task.gradient(found) + task.prior.beta
    assert found.min() == 0.0
    assert slope.min() > -1e-6
    assert np.abs(slope * found).max() < 1e-6


def test_nonnegative_rows_are_those_of_nnls():
    task = _task("isotropic", FlatMixing())
    found = update_mixing("nonnegative", np.ones((4, 3)), task)
    root = np.linalg.cholesky(task.second)
    for row, cross in zip(found, task.cross, strict=True):
        expected = nnls(root.T, np.linalg.solve(root, cross))[0]
        assert np.allclose(row, expected, atol=1e-8)


def test_multiplication_never_raises_the_objective_and_reaches_the_same_minimum():
    # HOJ-L4
    task = _task("diagonal", ElasticMixing(0.5, 1.0), positive=True)
    now = np.full((4, 3), 0.5)
    values = [task.value(now)]
    for _ in range(400):
        now = multiplicative(now, task)
        values.append(task.value(now))
    assert np.diff(values).max() < 1e-9 * abs(values[0])
    best = task.value(update_mixing("nonnegative", np.ones((4, 3)), task))
    assert values[-1] == pytest.approx(best, rel=1e-6)


def test_ten_multiplications_are_those_of_nonnegative_factorisation():
    rng = np.random.default_rng(4)
    s, x = rng.uniform(size=(3, 40)), rng.uniform(size=(5, 40))
    start = rng.uniform(0.5, 1.5, size=(5, 3))
    expected = start.copy()
    for _ in range(10):  # the squared-loss update of W in X = W H
        expected = expected * (x @ s.T) / (expected @ s @ s.T)
    task = MixingTask(x @ s.T, s @ s.T, make_noise(0.3, np.ones(5)), FlatMixing())
    assert np.allclose(multiplicative(start, task), expected, rtol=1e-10)


def test_multiplication_gives_way_where_moments_are_negative():
    task = _task("isotropic", FlatMixing())  # negative cross products
    found = update_mixing("multiplicative", np.ones((4, 3)), task)
    assert found.min() >= 0.0
    assert task.value(found) == pytest.approx(
        task.value(update_mixing("nonnegative", np.ones((4, 3)), task))
    )


@pytest.mark.parametrize("rule", ["free", "nonnegative"])
def test_channels_with_moments_of_their_own(rule):
    task = _task("diagonal", GaussianMixing(0.5), by_channel=True)
    found = update_mixing(rule, np.ones((4, 3)), task)
    for d in range(4):
        alone = MixingTask(
            task.cross[d : d + 1],
            task.second[d],
            make_noise(float(task.noise.value[d]), np.ones(1)),
            task.prior,
        )
        assert np.allclose(update_mixing(rule, np.ones((1, 3)), alone)[0], found[d], atol=1e-8)


def test_a_dead_source_gets_an_empty_column():
    task = _task("isotropic", FlatMixing())
    second, cross = task.second.copy(), task.cross.copy()
    second[1], second[:, 1], cross[:, 1] = 0.0, 0.0, 0.0
    found = linear(MixingTask(cross, second, task.noise, task.prior))
    assert np.array_equal(found[:, 1], np.zeros(4))
    assert np.isfinite(found).all()


def test_a_dead_source_gets_an_empty_column_with_missing_values_too():
    task = _task("diagonal", FlatMixing(), by_channel=True)
    second, cross = task.second.copy(), task.cross.copy()
    second[:, 1], second[:, :, 1], cross[:, 1] = 0.0, 0.0, 0.0
    found = linear(MixingTask(cross, second, task.noise, task.prior))
    assert np.array_equal(found[:, 1], np.zeros(4))
    rest = np.linalg.solve(second[2][np.ix_([0, 2], [0, 2])], cross[2, [0, 2]])
    assert found[2, [0, 2]] == pytest.approx(rest)


def test_sources_that_are_always_alike_share_their_column():
    second = np.array([[20.0, 20.0], [20.0, 20.0 * (1.0 + 4e-16)]])
    cross = np.array([[30.0, 30.0], [-10.0, -10.0 * (1.0 + 4e-16)]])
    noise = make_noise("isotropic", np.ones(2))
    mixing = linear(MixingTask(cross, second, noise, FlatMixing()))
    assert mixing == pytest.approx(np.array([[0.75, 0.75], [-0.25, -0.25]]))


def test_unknown_mixing_priors_are_refused():
    with pytest.raises(MethodError, match="did you mean 'gaussian'"):
        parse_mixing_prior("gausian")
    with pytest.raises(MethodError, match="must be in"):
        parse_mixing_prior("laplace:rate=-1")
