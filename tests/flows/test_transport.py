"""Generators by optimal transport, plans and two-sample tests (LIU-M16, LIU-L11)."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError

from kikuchi.core.errors import BudgetError, DataError
from kikuchi.flows import TransportGenerator, mmd_test, nearest_neighbour_test
from kikuchi.flows.transport import (
    AdversarialLoss,
    GeneratorNetwork,
    TransportLoss,
    generated,
    sinkhorn_plan,
)


def test_plan_tends_to_the_exact_assignment():
    # LIU-M16
    rng = np.random.default_rng(0)
    cost = rng.random((12, 12))
    uniform = jnp.full(12, 1 / 12)
    plan = np.asarray(sinkhorn_plan(jnp.asarray(cost, jnp.float32), uniform, uniform, 0.003, 3000))
    rows, columns = linear_sum_assignment(cost)
    assert np.sum(plan * cost) == pytest.approx(cost[rows, columns].mean(), abs=2e-3)
    assert np.allclose(plan.sum(axis=0), 1 / 12, atol=1e-5)
    assert np.allclose(plan.sum(axis=1), 1 / 12, atol=1e-3)


def test_gradient_is_that_of_the_entropic_cost():
    """The envelope theorem: finite differences of <P, M> - epsilon H(P), unbalanced weights."""
    # LIU-M16
    import jax

    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        x, y = jnp.asarray(rng.normal(size=(6, 2))), jnp.asarray(rng.normal(size=(6, 2)))
        a, b, loss = jnp.asarray(rng.dirichlet(np.ones(6))), jnp.full(6, 1 / 6), None

        def entropic(y):
            cost = jnp.sum((x[:, None] - y[None]) ** 2, axis=-1) / 2
            plan = sinkhorn_plan(cost, a, b, 0.3, 4000)
            return jnp.sum(plan * cost) + 0.3 * jnp.sum(plan * (jnp.log(plan) - 1.0))

        loss = TransportLoss(0.3, 4000, debiased=False)
        slope = np.asarray(jax.grad(lambda y: loss._cost(x, y, a, b))(y))
        value = jax.jit(entropic)
        for i, j in ((0, 0), (3, 1)):
            step = np.zeros((6, 2))
            step[i, j] = 1e-5
            change = (float(value(y + step)) - float(value(y - step))) / 2e-5
            assert slope[i, j] == pytest.approx(change, rel=1e-5, abs=1e-8)


@pytest.fixture(scope="module")
def fitted():
    rows = make_moons(600, noise=0.08, random_state=0)[0]
    return TransportGenerator(4, max_iter=40, random_state=0).fit(rows)


def test_generated_rows_look_like_the_rows(fitted):
    fresh = make_moons(400, noise=0.08, random_state=1)[0]
    ours = fitted.measure(fresh)
    rng = np.random.default_rng(0)
    gaussian = rng.multivariate_normal(fresh.mean(axis=0), np.cov(fresh.T), size=400)
    theirs = nearest_neighbour_test(fresh, gaussian).statistic
    assert ours["nearest-neighbour"].statistic < theirs - 0.05
    assert ours["mmd"].statistic < mmd_test(fresh, gaussian).statistic
    assert fitted.score(fresh) > -0.1
    assert fitted.trace_.objective[-1] < 0.3 * fitted.trace_.objective[0]


def test_samples_that_are_not_like_the_rows_are_reported():
    """Where the tests that `measure` makes on fresh rows reject, and only there."""
    rows, fresh = (make_moons(n, noise=0.08, random_state=n)[0] for n in (600, 400))
    short = TransportGenerator(4, max_iter=10, random_state=0).fit(rows)
    assert short.measure(fresh)["nearest-neighbour"].p_value < 1e-6
    [warning] = [w for w in short.warnings_ if "generated rows differ" in w]
    assert "use LatentMixtureFlow" in warning
    rows = np.random.default_rng(0).normal(size=(400, 1))
    easy = TransportGenerator(1, max_iter=60, random_state=0).fit(rows)
    again = easy.measure(np.random.default_rng(1).normal(size=(200, 1)))
    assert again["nearest-neighbour"].p_value > 0.001
    assert not [w for w in easy.warnings_ if "generated rows differ" in w]


def test_an_estimator_that_was_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        TransportGenerator().measure(np.zeros((4, 2)))


def test_each_side_descends_its_own_loss():
    """Of both losses in one, the generator sees its own slope only, and so do the features."""
    # LIU-M16
    import jax

    rng = np.random.default_rng(3)
    layers = GeneratorNetwork.random([2, 4, 2], rng, [2, 4, 3]).parameters
    batch = jnp.asarray(rng.normal(size=(8, 2)), jnp.float32), jnp.ones(8)
    loss, key = AdversarialLoss(0.5, 40, margin=50.0), jax.random.key(0)

    def slope(of, loss=loss):
        return jax.grad(lambda p: of(loss.parts(p, batch, key)))(layers)

    generator, features = slope(lambda parts: parts[0]), slope(lambda parts: parts[1])
    for name in layers:
        own, other = (generator, features) if name.startswith("layer") else (features, generator)
        assert np.abs(own[name]["weights"]).max() > 1e-4
        assert np.abs(other[name]["weights"]).max() == 0.0
    # a step of the features along their slope takes generated rows further from the rows
    moved = jax.tree.map(lambda p, g: p - 0.01 * g, layers, features)
    before, after = (loss.parts(p, batch, key) for p in (layers, moved))
    assert after[0] > before[0] and after[1] < before[1]
    # far enough apart they rest
    still = slope(lambda parts: parts[1], AdversarialLoss(0.5, 40, margin=1e-3))
    assert all(np.abs(layer["weights"]).max() == 0.0 for layer in still.values())


@pytest.mark.slow
def test_features_against_the_generator():
    """Learnt distances lead to the rows as well, judged by tests that do not know them."""
    rows = make_moons(600, noise=0.08, random_state=0)[0]
    fresh = make_moons(400, noise=0.08, random_state=1)[0]
    model = TransportGenerator(4, features=8, max_iter=60, patience=60, random_state=0)
    before = TransportGenerator(4, features=8, max_iter=1, learning_rate=1e-9, random_state=0)
    first, last = (m.fit(rows).measure(fresh)["mmd"].statistic for m in (before, model))
    assert last < 0.2 * first
    assert len(model.validation_scores_) == 60 and max(model.validation_scores_) <= 0.05


def test_files_and_bad_input(fitted, tmp_path):
    fitted.save(tmp_path / "g.safetensors")
    again = TransportGenerator.load(tmp_path / "g.safetensors")
    one, other = (m.sample(5, random_state=0) for m in (fitted, again))
    assert np.array_equal(one, other)
    noise = np.zeros((1, 4), np.float32)
    assert generated(fitted.model_.parameters, noise).shape == (1, 2)
    with pytest.raises(DataError, match="equally many"):
        nearest_neighbour_test(np.zeros((3, 2)), np.zeros((4, 2)))
    with pytest.raises(DataError, match="at least 1"):
        fitted.sample(0)
    with pytest.raises(DataError, match="constant"):
        TransportGenerator().fit(np.full((5, 2), 0.5))


def test_tests_have_their_level():
    """Under equal laws p-values are not small too often; under others they are."""
    rng = np.random.default_rng(2)
    equal = [nearest_neighbour_test(*rng.normal(size=(2, 80, 3))).p_value for _ in range(100)]
    assert np.mean(np.array(equal) < 0.05) < 0.12
    x = rng.normal(size=(80, 3))
    assert nearest_neighbour_test(x, 1.5 * rng.normal(size=(80, 3)) + 1.0).p_value < 0.01


def test_ties_are_shared_among_all_nearest_rows():
    """Whole numbers have many nearest rows; the first of them is of the first sample."""
    rng = np.random.default_rng(3)
    equal = [nearest_neighbour_test(*rng.integers(6, size=(2, 80, 2))).p_value for _ in range(100)]
    assert 0.0 < np.mean(np.array(equal) < 0.1) < 0.2
    x, y = rng.binomial(5, 0.5, (200, 2)), rng.binomial(5, 0.65, (200, 2))
    assert nearest_neighbour_test(x, y).p_value < 1e-3


def test_samples_that_are_alike_and_samples_that_are_none():
    same = np.ones((5, 2))
    assert mmd_test(same, same).p_value == 1.0
    mostly = np.zeros((30, 2))
    mostly[:8] = 1.0
    assert mmd_test(np.zeros((30, 2)), mostly).p_value < 0.01
    for test in (mmd_test, nearest_neighbour_test):
        with pytest.raises(DataError, match="not finite"):
            test(np.full((5, 2), np.nan), same)


def test_distances_between_very_many_rows_are_refused_before_they_are_made(fitted):
    rows = np.random.default_rng(0).normal(size=(40000, 2))
    with pytest.raises(BudgetError, match="random part"):
        fitted.score(rows)
    with pytest.raises(BudgetError, match="random part"):
        fitted.measure(rows)
