"""Flows invert, and their log-determinants are those of numerical Jacobians (LIU-M12, LIU-C23)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kikuchi.core.errors import MethodError
from kikuchi.flows.bijections import FLOWS, joined_bijection, split_bijection

TEXTS = [
    "coupling:layers=3,width=5",
    "spline:layers=2,width=5",
    "autoregressive:layers=2,width=5",
    pytest.param("autoregressive:layers=1,width=5,transformer=spline", marks=pytest.mark.slow),
    "image:blocks=1,layers=2,width=4",
]


@pytest.mark.parametrize("text", TEXTS)
def test_identity_inverse_and_log_determinant(text):
    # LIU-M12, LIU-C23
    def look(leaves, away, x):
        start, flow = (joined_bijection(p, tree, static) for p in (leaves, away))
        z, log_det = flow.transform_and_log_det(x)
        back, minus = flow.inverse_and_log_det(z)
        return start.transform_and_log_det(x), z, log_det, back, minus

    with jax.enable_x64(True):
        leaves, tree, static = split_bijection(FLOWS.parse(text).bijection(4, (2, 2, 1), 0))
        rng = np.random.default_rng(1)
        away = {n: a + 0.3 * rng.normal(size=a.shape) for n, a in leaves.items()}
        x, step = np.random.default_rng(2).normal(size=4), 1e-6
        points = jnp.asarray([x, *(x + step * np.eye(4)), *(x - step * np.eye(4))])
        answers = jax.jit(jax.vmap(look, in_axes=(None, None, 0)))(leaves, away, points)
        (same, zero), z, log_det, back, minus = jax.tree.map(np.asarray, answers)
    assert np.allclose(same, points, atol=1e-6) and np.all(np.abs(zero) < 1e-6)
    assert np.abs(z - points).max() > 0.05
    assert np.allclose(back, points, atol=1e-5)
    assert np.allclose(minus, -log_det, atol=1e-5)
    jacobian = (z[1:5] - z[5:9]) / (2 * step)
    assert np.linalg.slogdet(jacobian)[1] == pytest.approx(float(log_det[0]), abs=1e-5)


def test_one_column_and_bad_names():
    assert FLOWS.parse("coupling").bijection(1, None, 0) is None
    spline = FLOWS.parse("spline").bijection(1, None, 0)
    assert float(spline.transform(jnp.ones(1))[0]) == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(MethodError, match="coupling"):
        FLOWS.parse("couplng")
    with pytest.raises(MethodError, match="multiples of 4"):
        FLOWS.parse("image").bijection(36, (6, 6, 1), 0)
    with pytest.raises(MethodError, match="image_shape"):
        FLOWS.parse("image").bijection(16, None, 0)
