"""Saddle point, cumulants and information geometry against enumeration.

Rows HOJ-I8, HOJ-I14, HOJ-I15; HOJ invariant 16.
"""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.engines.units.spins import SpinModel, spin_model
from kikuchi.methods.plefka import Expansion
from kikuchi.methods.saddle_point import cumulants
from spin_oracle import (
    HALVINGS,
    all_states,
    error_slopes,
    gibbs_free_energy,
    random_spins,
    slopes,
    weights,
)


def model_of(j: np.ndarray, h: np.ndarray) -> SpinModel:
    return spin_model(kk.ising(j, h), "saddle")


@pytest.mark.parametrize("seed", range(4))
def test_cumulants_are_those_of_independent_spins(seed: int) -> None:
    """At any fields, not only at the saddle point."""
    j, h = random_spins(seed, 6)
    j[0, 2] = j[2, 0] = 0.0
    x = np.random.default_rng(seed).normal(size=6)
    s = all_states(6)
    p = np.exp(s @ x)
    left_out = weights(j, h) - s @ x
    log_z0 = np.log(p.sum())
    p /= p.sum()
    mean = p @ left_out
    found = cumulants(model_of(j, h), x)
    assert found.log_z0 == pytest.approx(log_z0, abs=1e-10)
    assert found.first == pytest.approx(mean, abs=1e-10)
    assert found.second == pytest.approx(p @ (left_out - mean) ** 2, abs=1e-10)
    assert found.third == pytest.approx(p @ (left_out - mean) ** 3, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_order_one_is_mean_field(seed: int) -> None:  # HOJ-I8
    j, h = random_spins(seed, 8, 0.3)
    graph = kk.ising(j, h)
    one, other = kk.infer(graph, "saddle:order=1"), kk.infer(graph, "mf")
    np.testing.assert_allclose(one.flat_marginals, other.flat_marginals, atol=1e-7)
    assert one.log_z == pytest.approx(other.log_z, abs=1e-10)
    assert one.log_z_lower == pytest.approx(one.log_z, abs=1e-9)
    np.testing.assert_allclose(one.covariance(), other.covariance(), atol=1e-6)


@pytest.mark.parametrize("order", [2, 3])
def test_cumulants_at_the_saddle_point_are_the_plefka_terms_there(order: int) -> None:
    """log Z_0 + kappa_1 + kappa_2 / 2 (+ kappa_3 / 6) = -G_TAP (-G_3) at the mean-field means."""
    j, h = random_spins(1, 7, 0.4)
    graph = kk.ising(j, h)
    saddle = kk.infer(graph, "saddle:order=1,tol=1e-15").flat_marginals
    x = 0.5 * np.log(saddle[1::2] / saddle[::2])
    model = model_of(j, h)
    value = -Expansion(model, order, x).value
    assert cumulants(model, x).log_z(order) == pytest.approx(value, abs=1e-10)
    found = kk.infer(graph, f"saddle:order={order}")
    assert found.log_z == pytest.approx(value, abs=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_log_z_and_marginals_at_the_right_order(order: int) -> None:
    found = error_slopes(f"saddle:order={order},restarts=0,tol=1e-15")
    np.testing.assert_allclose(found["log_z"], order + 1, atol=0.3)
    np.testing.assert_allclose(found["marginals"], order + 1, atol=0.3)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("scale", [0.05, 0.3])
def test_marginals_follow_from_log_z(order: int, scale: float) -> None:
    """d log Z / dh is m + (1 - m^2) dx, where the answered means are tanh(x + dx)."""
    j, h = random_spins(6, scale=scale)
    text = f"saddle:order={order},tol=1e-15"
    found = kk.infer(kk.ising(j, h), text).flat_marginals
    first = kk.infer(kk.ising(j, h), "saddle:order=1,tol=1e-15").flat_marginals
    x, moved = (0.5 * np.log(p[1::2] / p[::2]) for p in (first, found))
    wanted = np.tanh(x) + (moved - x) / np.cosh(x) ** 2
    assert np.abs(moved - x).min() > 1e-6  # so that the comparison says something
    for i in range(6):
        step = np.zeros(6)
        step[i] = 1e-4
        ends = [kk.infer(kk.ising(j, h + sign * step), text).log_z for sign in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(wanted[i], abs=1e-7)


def test_pythagoras_of_the_projections() -> None:  # HOJ-I15
    """KL(q0 || p) = KL(q0 || q) + KL(q || p), q with the couplings of p and the means of q0; and
    KL(q0 || q) is what the expansion adds to mean field, with the next power as its error.
    """
    j, h = random_spins(3, 5)
    s = all_states(5)
    errors = []
    for scale in HALVINGS:
        graph = kk.ising(scale * j, h)
        marginals = kk.infer(graph, "saddle:order=1,tol=1e-15").flat_marginals
        m = marginals[1::2] - marginals[::2]
        q0 = np.prod((1 + s * m) / 2, axis=1)
        log_p = weights(scale * j, h)
        log_p -= np.log(np.exp(log_p).sum())
        fields = _fields_with_means(scale * j, m)
        log_q = weights(scale * j, fields)
        log_q -= np.log(np.exp(log_q).sum())
        q = np.exp(log_q)
        whole = q0 @ (np.log(q0) - log_p)
        reaction = q0 @ (np.log(q0) - log_q)
        assert whole == pytest.approx(reaction + q @ (log_q - log_p), abs=1e-10)
        at = Expansion(model_of(scale * j, h), 3, np.arctanh(m))
        assert reaction == pytest.approx(at.terms[0] - gibbs_free_energy(scale * j, h, m), abs=1e-9)
        errors.append(abs(reaction + at.terms[1] + at.terms[2]))
    np.testing.assert_allclose(slopes(errors), 4.0, atol=0.4)


def _fields_with_means(j: np.ndarray, m: np.ndarray) -> np.ndarray:
    s = all_states(len(m))
    f = np.arctanh(m)
    for _ in range(50):
        p = np.exp(weights(j, f))
        p /= p.sum()
        mean = p @ s
        f = f - np.linalg.solve((s * p[:, None]).T @ s - np.outer(mean, mean), mean - m)
    return f


def test_a_diagonal_changes_only_the_constant() -> None:  # HOJ-M4
    j, h = random_spins(0, 5, 0.2)
    plain, loaded = (kk.ising(j + d * np.eye(5), h) for d in (0.0, 0.6))
    for method in ("saddle", "tap", "adatap", "plefka"):
        one, other = kk.infer(plain, method), kk.infer(loaded, method)
        assert other.log_z - one.log_z == pytest.approx(0.5 * 5 * 0.6, abs=1e-10)
        np.testing.assert_allclose(one.flat_marginals, other.flat_marginals, atol=1e-12)


def test_critical_saddle_keeps_first_order_marginals() -> None:
    graph = kk.ising({(0, 1): 1.0}, [0.0, 0.0])
    found = kk.infer(graph, "saddle:restarts=0")
    np.testing.assert_allclose(found.flat_marginals, 0.5)
    assert any("critical" in w for w in found.warnings)
    assert found.log_z == pytest.approx(2 * np.log(2) + 0.5)


def test_cumulants_are_reported() -> None:
    found = kk.infer(kk.ising({(0, 1): 0.2}, [0.1, 0.0]), "saddle:order=3")
    assert len(found.diagnostics["cumulants"]) == 3
    assert found.diagnostics["cumulants"][1] > 0
