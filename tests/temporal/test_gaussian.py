"""Gaussian potentials against dense integrals and SciPy's densities (HOJ-M16, HOJ-I25)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from kikuchi.core.errors import ModelError
from kikuchi.temporal.gaussian import CanonicalGaussian, MomentGaussian

SIZES = st.lists(st.integers(1, 3), min_size=2, max_size=3)
SEEDS = st.integers(0, 10**6)


def random_moments(sizes: list[int], seed: int) -> MomentGaussian:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    root = rng.normal(size=(n, n + 2))
    scope = {f"x{k}": size for k, size in enumerate(sizes)}
    return MomentGaussian(scope, rng.normal(size=n), root @ root.T, rng.normal())


def close(a: MomentGaussian, b: MomentGaussian) -> bool:
    return (
        dict(a.scope) == dict(b.scope)
        and np.allclose(a.mean, b.mean, atol=1e-7)
        and np.allclose(a.covariance, b.covariance, rtol=1e-7, atol=1e-9)
        and np.isclose(a.log_mass, b.log_mass, atol=1e-7)
    )


@given(SIZES, SEEDS)
def test_both_forms_agree_in_every_operation(sizes: list[int], seed: int) -> None:
    g = random_moments(sizes, seed)
    c = g.canonical()
    assert close(c.moments(), g)
    assert close(c.marginal(["x1"]).moments(), g.marginal(["x1"]))
    value = np.random.default_rng(seed + 1).normal(size=sizes[0])
    assert close(c.condition({"x0": value}).moments(), g.condition({"x0": value}))


@given(SIZES, SEEDS)
def test_values_are_those_of_the_density(sizes: list[int], seed: int) -> None:
    g = random_moments(sizes, seed)
    x = np.random.default_rng(seed + 2).normal(size=len(g.mean))
    known = multivariate_normal(g.mean, g.covariance).logpdf(x) + g.log_mass
    assert np.isclose(g.log_value(x), known) and np.isclose(g.canonical().log_value(x), known)


@given(SIZES, SEEDS)
def test_products_and_quotients_multiply_values(sizes: list[int], seed: int) -> None:
    a, b = random_moments(sizes, seed).canonical(), random_moments(sizes[:2], seed + 1).canonical()
    x = np.random.default_rng(seed + 2).normal(size=sum(sizes))
    part = x[: sum(sizes[:2])]
    assert np.isclose((a * b).log_value(x), a.log_value(x) + b.log_value(part))
    assert np.isclose((a / b).log_value(x), a.log_value(x) - b.log_value(part))
    again = (a * b) / b
    assert np.allclose(again.precision, a.precision) and np.allclose(again.shift, a.shift)


@given(st.integers(1, 3), st.integers(1, 3), SEEDS)
def test_a_conditional_is_rank_deficient_and_gives_the_joint(n: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    prior = MomentGaussian({"x": n}, rng.normal(size=n), np.diag(rng.uniform(0.5, 2, n)))
    a, r, b = rng.normal(size=(m, n)), np.diag(rng.uniform(0.5, 2, m)), rng.normal(size=m)
    edge = CanonicalGaussian.conditional("y", "x", a, r, b)
    assert edge.rank == m and not edge.is_proper
    joint = (prior.canonical() * edge).moments()
    cross = prior.covariance @ a.T
    assert np.allclose(joint.mean, np.concatenate([prior.mean, a @ prior.mean + b]))
    assert np.allclose(
        joint.covariance,
        np.block([[prior.covariance, cross], [cross.T, a @ cross + r]]),
    )
    assert abs(joint.log_mass) < 1e-9


def test_inversion_lemma_holds_for_marginals_of_random_matrices() -> None:
    rng = np.random.default_rng(0)
    a, d = (x @ x.T + np.eye(3) for x in rng.normal(size=(2, 3, 3)))
    b = 0.3 * rng.normal(size=(3, 3))
    joint = CanonicalGaussian({"u": 3, "v": 3}, np.zeros(6), np.block([[a, b], [b.T, d]]))
    inverse = np.linalg.inv(a)
    middle = np.linalg.inv(d - b.T @ inverse @ b)
    known = inverse + inverse @ b @ middle @ b.T @ inverse
    assert np.allclose(joint.marginal(["u"]).moments().covariance, known)


def test_one_clear_line_for_what_cannot_be() -> None:
    flat = CanonicalGaussian.flat({"x": 2, "y": 1})
    with pytest.raises(ModelError, match="integral over x is infinite"):
        flat.marginal(["y"])
    with pytest.raises(ModelError, match="rank 0 of 3"):
        flat.moments()
    with pytest.raises(ModelError, match="no block 'z'"):
        flat.condition({"z": [1.0]})
    with pytest.raises(ModelError, match="dimensions in one potential"):
        flat * CanonicalGaussian.flat({"x": 1})
    with pytest.raises(ModelError, match="negative eigenvalue"):
        MomentGaussian({"x": 1}, [0.0], [[-1.0]])
    with pytest.raises(ModelError, match="symmetric"):
        MomentGaussian({"x": 2}, [0.0, 0.0], [[1.0, 1.0], [0.0, 1.0]])
    with pytest.raises(ModelError, match="not positive definite"):
        CanonicalGaussian.conditional("y", "x", [[1.0]], [[0.0]])
    with pytest.raises(ModelError, match="no canonical form"):
        MomentGaussian({"x": 1}, [0.0], [[0.0]]).canonical()
