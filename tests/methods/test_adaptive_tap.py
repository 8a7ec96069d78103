"""Adaptive TAP: exact for GaussianSites, self-consistent and stationary for spins.

Rows HOJ-I16, HOJ-M12.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import kikuchi as kk
from kikuchi import Budget
from kikuchi.core.errors import BudgetError, ModelError
from kikuchi.engines.sites.dense import Cavity, GaussianSites, SpinSites
from spin_oracle import error_slopes, random_spins


def settled(cavity: Cavity, tol: float = 1e-13) -> Cavity:
    for _ in range(1000):
        if cavity.sweep(0.1) <= tol:
            return cavity
    raise AssertionError("no fixed point")


@pytest.mark.parametrize("seed", range(4))
def test_exact_for_gaussians(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 5
    a = rng.normal(size=(n, n))
    precision, theta = a @ a.T + np.eye(n), rng.normal(size=n)
    couplings = np.diag(np.diag(precision)) - precision
    cavity = settled(Cavity(couplings, theta, GaussianSites(np.diag(precision).copy())))
    covariance = np.linalg.inv(precision)
    mean = covariance @ theta
    np.testing.assert_allclose(cavity.covariance, covariance, atol=1e-10)
    np.testing.assert_allclose(cavity.mean, mean, atol=1e-10)
    log_z = 0.5 * (n * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] + theta @ mean)
    assert cavity.log_z == pytest.approx(log_z, abs=1e-10)


def test_gaussians_that_cannot_be_normalised_are_refused() -> None:
    couplings = np.array([[0.0, 2.0], [2.0, 0.0]])
    with pytest.raises(ModelError, match="no normalisable Gaussian"):
        settled(Cavity(couplings, np.zeros(2), GaussianSites(np.ones(2))))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [0.1, 0.4])
def test_self_consistent_at_the_fixed_point(seed: int, scale: float) -> None:
    j, theta = random_spins(seed, 7, scale)
    cavity = settled(Cavity(j, theta, SpinSites()))
    v = cavity.reactions
    assert v.min() >= 0.0
    m = np.tanh(cavity.cavity_fields)
    np.testing.assert_allclose(m, cavity.mean, atol=1e-10)
    chi = np.linalg.inv(np.diag(v + 1 / (1 - m**2)) - j)
    np.testing.assert_allclose(np.diag(chi), 1 - m**2, atol=1e-8)
    np.testing.assert_allclose(chi, cavity.covariance, atol=1e-8)


def test_log_z_is_stationary_in_every_parameter() -> None:
    """Derivatives in both multipliers of every spin vanish at the fixed point, and only there."""
    j, theta = random_spins(0, 6, 0.4)
    cavity = settled(Cavity(j, theta, SpinSites()))

    def slope(array: np.ndarray, i: int, step: float = 1e-4) -> float:
        ends = []
        for sign in (1, -1):
            array[i] += sign * step
            cavity.refresh()
            ends.append(cavity.log_z)
            array[i] -= sign * step
        cavity.refresh()
        return (ends[0] - ends[1]) / (2 * step)

    for i in range(6):
        assert slope(cavity.precision, i) == pytest.approx(0.0, abs=1e-8)
        assert slope(cavity.linear, i) == pytest.approx(0.0, abs=1e-8)
    cavity.linear[0] += 0.3
    cavity.refresh()
    assert abs(slope(cavity.linear, 1)) > 1e-4


def test_error_falls_with_the_cube_of_the_couplings() -> None:
    found = error_slopes("adatap:tol=1e-14,max_iter=60")
    assert found["log_z"].min() > 2.7
    assert found["marginals"].min() > 2.7


def test_no_couplings_no_reaction() -> None:
    cavity = settled(Cavity(np.zeros((3, 3)), np.array([0.5, 0.0, -1.0]), SpinSites()))
    np.testing.assert_allclose(cavity.reactions, 0.0, atol=1e-12)
    np.testing.assert_allclose(cavity.mean, np.tanh([0.5, 0.0, -1.0]), atol=1e-12)


def test_covariance_is_chi_with_the_variances_of_the_marginals() -> None:
    j, theta = random_spins(2, 6, 0.3)
    found = kk.infer(kk.ising(j, theta), "adatap:tol=1e-12")
    covariance = found.covariance()
    p = found.flat_marginals
    np.testing.assert_allclose(np.diag(covariance), p * (1 - p), atol=1e-9)
    np.testing.assert_allclose(covariance[::2, 1::2], -covariance[1::2, 1::2], atol=1e-15)
    np.testing.assert_allclose(found.covariance([3]), covariance[6:8, 6:8], atol=1e-15)


def test_ends_at_the_best_point_when_it_does_not_converge() -> None:
    graph = kk.grid(4, 4, seed=0)
    found = kk.infer(graph, "adatap", budget=Budget(iterations=2))
    assert not found.converged and found.stopped == "iterations"
    assert any("not converged" in w for w in found.warnings)
    assert np.isfinite(found.log_z)


def test_seconds_are_kept_inside_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a millisecond whenever it is read: no machine is too fast."""
    reads = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: 1e-3 * next(reads))
    monkeypatch.setattr("kikuchi.core.budget.time", clock)
    found = kk.infer(
        kk.generate.complete(300, seed=0, coupling=0.05), "adatap", budget=Budget(seconds=0.1)
    )
    assert found.stopped == "seconds" and not found.converged
    assert found.iterations == 0  # a sweep reads the clock for each of its 300 variables
    assert np.isfinite(found.log_z)


def test_memory_is_asked_for_first() -> None:
    with pytest.raises(BudgetError, match=r"adaptive TAP of 400 variables needs .*; use tap"):
        kk.infer(kk.grid(20, 20, seed=0), "adatap", budget=Budget(bytes=10**6))


def test_a_factor_that_breaks_down_is_damped(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the Gaussian is lost, the search goes on from the best point with more damping."""
    from kikuchi.core.errors import KikuchiError

    real, calls = Cavity.sweep, []

    def failing(self: Cavity, damping: float, stop: Callable[[], bool]) -> float:
        calls.append(damping)
        if damping < 0.5:
            self.precision[0] = -5.0
            raise KikuchiError("lost")
        return real(self, damping, stop)

    monkeypatch.setattr(Cavity, "sweep", failing)
    graph = kk.grid(3, 3, seed=0, coupling=0.3)
    found = kk.infer(graph, "adatap")
    assert found.converged and max(calls) > 0.5
    monkeypatch.undo()
    assert found.log_z == pytest.approx(kk.infer(graph, "adatap").log_z, abs=1e-8)
