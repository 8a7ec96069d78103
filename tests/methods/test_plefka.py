"""The Plefka expansion against the exact constrained free energy and finite differences.

Rows HOJ-I13, TEH-I6.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import kikuchi as kk
from kikuchi.core.errors import MethodError
from kikuchi.engines.units.spins import spin_model
from kikuchi.methods.plefka import Expansion, Plefka
from spin_oracle import HALVINGS, error_slopes, gibbs_free_energy, random_spins, slopes


def expansion(j: np.ndarray, h: np.ndarray, order: int, m: np.ndarray) -> Expansion:
    return Expansion(spin_model(kk.ising(j, h), "plefka"), order, np.arctanh(m))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_every_order_is_right_at_any_means(order: int) -> None:
    """G(m) less its expansion falls as the next power of the couplings."""
    j, h = random_spins(0, 5)
    m = np.random.default_rng(1).uniform(-0.8, 0.8, 5)
    errors = []
    for s in HALVINGS:
        errors.append(abs(expansion(s * j, h, order, m).value - gibbs_free_energy(s * j, h, m)))
    np.testing.assert_allclose(slopes(errors), order + 1, atol=0.25)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_log_z_and_marginals_at_the_right_order(order: int) -> None:
    found = error_slopes(f"plefka:order={order},restarts=0,tol=1e-15")
    np.testing.assert_allclose(found["log_z"], order + 1, atol=0.3)
    np.testing.assert_allclose(found["marginals"], order + 1, atol=0.3)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_gradient_and_hessian_are_derivatives(order: int, seed: int) -> None:
    j, h = random_spins(seed, 5, 0.8)
    j[0, 1] = j[1, 0] = 0.0  # not every triangle is there
    m = np.random.default_rng(seed).uniform(-0.9, 0.9, 5)
    at = expansion(j, h, order, m)
    numeric = approx_fprime(m, lambda x: expansion(j, h, order, x).value, 1e-7)
    np.testing.assert_allclose(at.gradient, numeric, atol=1e-5)
    root = np.sqrt(1 - m**2)
    hessian = at.scaled_hessian().toarray() / np.outer(root, root)
    slopes_of_gradient = approx_fprime(m, lambda x: expansion(j, h, order, x).gradient, 1e-7)
    np.testing.assert_allclose(hessian, slopes_of_gradient, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_first_order_is_mean_field_and_second_is_tap(seed: int) -> None:
    j, h = random_spins(seed, 8, 0.4)
    graph = kk.ising(j, h)
    for text, other in (("plefka:order=1", "mf"), ("plefka:order=2", "tap")):
        one, two = kk.infer(graph, text), kk.infer(graph, other)
        np.testing.assert_allclose(one.flat_marginals, two.flat_marginals, atol=1e-7)
        assert one.log_z == pytest.approx(two.log_z, abs=1e-10)
        np.testing.assert_allclose(one.flat_factors, two.flat_factors, atol=1e-7)
        np.testing.assert_allclose(one.covariance(), two.covariance(), atol=1e-6)
    first = kk.infer(graph, "plefka:order=1")
    assert first.log_z == pytest.approx(first.log_z_lower, abs=1e-9)


def test_triangles_count() -> None:
    """On a triangle the third order adds tanh-like J^3 to log Z: 3 log cosh J + log(1 + t^3)."""
    for coupling in (0.1, -0.1):
        graph = kk.ising({(0, 1): coupling, (1, 2): coupling, (0, 2): coupling}, [0.0, 0.0, 0.0])
        third = kk.infer(graph, "plefka").log_z - kk.infer(graph, "tap").log_z
        assert third == pytest.approx(coupling**3, rel=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_ends_at_a_stationary_point(order: int, scale: float) -> None:
    for seed in range(4):
        j, h = random_spins(seed, 7, scale)
        graph = kk.ising(j, h)
        found = kk.infer(graph, f"plefka:order={order},tol=1e-13")
        assert found.converged
        p = found.flat_marginals
        x = 0.5 * (np.log(p[1::2]) - np.log(p[::2]))
        at = Expansion(spin_model(graph, "plefka"), order, x)
        np.testing.assert_allclose((1 - at.m**2) * at.gradient, 0.0, atol=1e-9)


def test_order_is_checked() -> None:
    with pytest.raises(MethodError, match=r"order must be in \[1, 3\], got 4"):
        Plefka(order=4)


def test_more_starts_are_never_worse_by_the_rule() -> None:
    j, h = random_spins(1, 10, 1.0)
    graph = kk.ising(j, h)
    one, many = (kk.infer(graph, f"plefka:order=1,restarts={k}") for k in (0, 8))
    assert many.log_z >= one.log_z
