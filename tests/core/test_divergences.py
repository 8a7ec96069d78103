"""Divergences of measures: LIU-D1, D2, the projection LIU-I5, tests LIU-C1 and LIU-C2."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.core.divergences import alpha_divergence, alpha_projection, kl_divergence
from kikuchi.core.errors import ModelError

ALPHAS = [-1.5, -0.3, 0.2, 0.5, 0.9, 1.4, 3.0]


def measures(seed: int, size: int = 7, total: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return total * rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))


def literal(p: np.ndarray, q: np.ndarray, alpha: float) -> float:
    """The definition as printed, in long doubles."""
    p, q, a = p.astype(np.longdouble), q.astype(np.longdouble), np.longdouble(alpha)
    return float(np.sum(a * p + (1 - a) * q - p**a * q ** (1 - a)) / (a * (1 - a)))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("total", [1.0, 3.0])
def test_alpha_divergence_is_its_definition(alpha: float, total: float) -> None:
    # LIU-D2
    for seed in range(5):
        p, q = measures(seed, total=total)
        assert alpha_divergence(p, q, alpha) == pytest.approx(literal(p, q, alpha), rel=1e-11)
        assert alpha_divergence(p, q, alpha) > 0
        assert alpha_divergence(p, p, alpha) == 0


def test_limits_and_symmetry() -> None:
    """LIU-C1."""
    p, q = measures(0, total=1.7)
    assert alpha_divergence(p, q, 1.0) == pytest.approx(kl_divergence(p, q), rel=1e-13)
    assert alpha_divergence(p, q, 0.0) == pytest.approx(kl_divergence(q, p), rel=1e-13)
    for alpha in ALPHAS:
        forward, backward = alpha_divergence(p, q, alpha), alpha_divergence(q, p, 1 - alpha)
        assert forward == pytest.approx(backward, rel=1e-12)
    hellinger = 2 * np.sum((np.sqrt(p) - np.sqrt(q)) ** 2)
    assert alpha_divergence(p, q, 0.5) == pytest.approx(hellinger, rel=1e-13)


@pytest.mark.parametrize("small", [1e-3, 1.01e-4, 0.99e-4, 1e-5, 1e-7])
def test_no_digits_are_lost_near_the_limits(small: float) -> None:
    p, q = measures(1)
    for alpha in (small, -small, 1 - small, 1 + small):
        tolerance = 1e-17 / small + 3 * small**2 if small < 1e-4 else 1e-10
        assert alpha_divergence(p, q, alpha) == pytest.approx(
            literal(p, q, alpha), abs=tolerance + 1e-18 / small**2
        )


def test_kl_of_measures() -> None:
    # LIU-D1
    p, q = measures(2, total=2.0)
    expected = np.sum(p * np.log(p / q)) + np.sum(q - p)
    assert kl_divergence(p, q) == pytest.approx(expected, rel=1e-13)
    n, m = measures(3)
    assert kl_divergence(n, m) == pytest.approx(np.sum(n * np.log(n / m)), rel=1e-12)
    assert kl_divergence(n, m) != pytest.approx(kl_divergence(m, n))
    tiny = n * (1 + 1e-9 * np.sin(np.arange(7)))
    assert kl_divergence(n, tiny) == pytest.approx(0.5 * np.sum((tiny - n) ** 2 / n), rel=1e-5)


def test_masses_that_the_other_lacks() -> None:
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.0, 0.5])
    assert kl_divergence(p, q) == np.inf
    assert kl_divergence([0.0, 1.0], [0.5, 0.5]) == pytest.approx(np.log(2))
    for alpha in (1.0, 1.5):
        assert alpha_divergence(p, q, alpha) == np.inf
    for alpha in (0.0, -1.0):
        assert alpha_divergence(p, q, alpha) == np.inf
    for alpha in (0.00005, 0.3, 0.99995):
        expected = 0.5 / (1 - alpha) + 0.5 / alpha
        assert alpha_divergence(p, q, alpha) == pytest.approx(expected)


def test_gradient_identity() -> None:
    """LIU-C2: the gradient of D_alpha is that of KL(p' || q) / alpha with p' = p^a q^(1-a) held."""
    p, q = measures(4)
    direction = np.random.default_rng(5).normal(size=7) * q
    step = 1e-5
    for alpha in (0.3, 0.7, 1.6, -0.8):
        frozen = p**alpha * q ** (1 - alpha)

        def slope(f) -> float:
            return (f(q + step * direction) - f(q - step * direction)) / (2 * step)

        left = slope(lambda x, alpha=alpha: alpha_divergence(p, x, alpha))
        right = slope(lambda x, held=frozen: kl_divergence(held, x)) / alpha
        assert left == pytest.approx(right, rel=1e-6)
    exact = np.sum(direction) - np.sum(p / q * direction)
    assert slope(lambda x: kl_divergence(p, x)) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0, 1.3])
def test_projection_is_stationary(alpha: float) -> None:
    """LIU-I5: no change of a marginal lowers D_alpha to first order."""
    rng = np.random.default_rng(6)
    p = rng.dirichlet(np.ones(12)).reshape(2, 3, 2)
    q, met = alpha_projection(p, alpha)
    assert met

    def divergence(logs: list[np.ndarray]) -> float:
        return alpha_divergence(p, np.einsum("i,j,k->ijk", *(np.exp(x) for x in logs)), alpha)

    logs = [np.log(m) for m in q]
    step = 1e-5
    for axis in range(3):
        for k in range(len(q[axis])):
            up, down = [x.copy() for x in logs], [x.copy() for x in logs]
            up[axis][k] += step
            down[axis][k] -= step
            for moved in (up, down):
                moved[axis] -= np.log(np.exp(moved[axis]).sum())
            assert divergence(up) - divergence(down) == pytest.approx(0.0, abs=1e-10)


def test_projection_limits() -> None:
    rng = np.random.default_rng(7)
    p = rng.dirichlet(np.ones(9)).reshape(3, 3)
    q, met = alpha_projection(p, 1.0)
    assert met
    np.testing.assert_allclose(q[0], p.sum(axis=1), atol=1e-14)
    np.testing.assert_allclose(q[1], p.sum(axis=0), atol=1e-14)
    near, met = alpha_projection(p, 0.002, tol=1e-10, max_iter=100_000)
    assert met
    b = [np.full(3, 1 / 3), np.full(3, 1 / 3)]
    for _ in range(2000):  # naive mean field, written out
        b[0] = np.exp(np.log(p) @ b[1])
        b[0] /= b[0].sum()
        b[1] = np.exp(b[0] @ np.log(p))
        b[1] /= b[1].sum()
    np.testing.assert_allclose(near[0], b[0], atol=2e-3)
    zeros, met = alpha_projection([[0.5, 0.0], [0.0, 0.5]], 0.5)
    assert met
    np.testing.assert_allclose(zeros[0], [0.5, 0.5])
    assert not alpha_projection(p, 0.5, max_iter=1)[1]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: kl_divergence([1, 2], [1, 2, 3]), "equal shapes"),
        (lambda: kl_divergence([1, -2], [1, 2]), "finite non-negative weights; p"),
        (lambda: alpha_divergence([1.0], [np.nan], 0.5), "finite non-negative weights; q"),
        (lambda: alpha_divergence([1.0], [1.0], np.inf), "finite number"),
        (lambda: alpha_projection([[1, 1]], 0.0), "mean field, mf"),
        (lambda: alpha_projection([[1, 0]], -1.0), "without zeros"),
        (lambda: alpha_projection([[0, 0]], 1.0), "not all 0"),
    ],
)
def test_bad_input(call, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        call()
