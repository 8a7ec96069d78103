"""Generators by optimal transport, plans and two-sample tests (LIU-M16, LIU-L11)."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import make_moons

from kikuchi.core.errors import DataError
from kikuchi.flows import TransportGenerator, mmd_test, nearest_neighbour_test
from kikuchi.flows.transport import TransportLoss, generated, sinkhorn_plan


def test_plan_tends_to_the_exact_assignment():
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
    return TransportGenerator(4, epochs=40, random_state=0).fit(rows)


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
