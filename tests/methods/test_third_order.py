"""The lower bound of third order against enumeration and finite differences (HOJ-X8)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import kikuchi as kk
from kikuchi.engines.units.spins import spin_model
from kikuchi.methods.third_order import bound_moments, third_order_bound
from spin_oracle import random_spins


def test_the_inequality_of_the_exponential() -> None:
    grid = np.linspace(-6, 6, 61)
    for nu, lam in itertools.product((-2.0, 0.0, 1.5), (-3.0, -0.5, 0.0, 0.7, 2.0)):
        d = grid - nu
        bound = np.exp(nu) * (1 + d + np.exp(lam) * ((1 - lam) * d**2 / 2 + d**3 / 6))
        assert np.all(bound <= np.exp(grid) * (1 + 1e-12))


@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_bound_and_slopes_at_any_point(scale: float, seed: int) -> None:
    """By enumeration: cumulants of the log-weight, the bound, below log Z wherever q is."""
    j, h = random_spins(seed, 6, scale)
    model = spin_model(kk.ising(j, h), "third-order")
    x = np.random.default_rng(seed).normal(size=6)
    spins = np.array(list(itertools.product((-1.0, 1.0), repeat=6)))
    logs = 0.5 * np.einsum("si,ij,sj->s", spins, j, spins) + spins @ h
    log_q = spins @ x - np.log(2 * np.cosh(x)).sum()
    q, delta = np.exp(log_q), logs - log_q
    mean = q @ delta
    second, third = q @ (delta - mean) ** 2, q @ (delta - mean) ** 3
    known = mean + np.log1p(0.5 * second * np.exp(third / (3 * second)))
    value, slope = third_order_bound(model, x)
    assert value == pytest.approx(known, rel=1e-10)
    assert mean < value <= np.log(np.exp(logs).sum()) + 1e-12
    numeric = approx_fprime(x, lambda p: third_order_bound(model, p)[0], 1e-6)
    np.testing.assert_allclose(slope, numeric, atol=2e-5 * (1 + scale**3))


def test_moments_are_derivatives_by_parameters() -> None:
    j, h = random_spins(1, 4, 0.6)
    x = np.array([0.3, -0.2, 0.5, 0.1])

    def value(couplings: np.ndarray, fields: np.ndarray) -> float:
        return third_order_bound(spin_model(kk.ising(couplings, fields), "third-order"), x)[0]

    model = spin_model(kk.ising(j, h), "third-order")
    found = bound_moments(model, x)
    step = 1e-5
    for i in range(4):
        moved = step * np.eye(4)[i]
        slope = (value(j, h + moved) - value(j, h - moved)) / (2 * step)
        assert found.means[i] == pytest.approx(slope, abs=1e-7)
    for at, (a, b) in enumerate(zip(model.rows, model.columns, strict=True)):
        moved = np.zeros((4, 4))
        moved[a, b] = moved[b, a] = step
        slope = (value(j + moved, h) - value(j - moved, h)) / (2 * step)
        assert found.correlations[at] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.5])
def test_closer_than_mean_field_and_below_the_truth(scale: float) -> None:
    gaps = []
    for seed in range(4):
        j, h = random_spins(seed, 8, scale)
        graph = kk.ising(j, h)
        exact, field = kk.infer(graph, "jt").log_z, kk.infer(graph, "mf").log_z
        found = kk.infer(graph, "third-order")
        assert found.converged
        assert field - 1e-9 <= found.log_z <= exact + 1e-9
        assert found.log_z_lower == pytest.approx(found.log_z, abs=1e-9)
        assert found.diagnostics["mean_field_bound"] < found.log_z
        gaps.append(((exact - found.log_z), (exact - field)))
    if scale == 0.1:  # weak couplings: most of what mean field leaves is found
        assert sum(a for a, _ in gaps) < 0.15 * sum(b for _, b in gaps)


def test_independent_spins_are_exact_and_too_few_steps_are_reported() -> None:
    graph = kk.ising({}, [0.3, -1.0])
    assert kk.infer(graph, "third-order").log_z == pytest.approx(kk.infer(graph, "jt").log_z)
    j, h = random_spins(0, 8, 0.5)
    short = kk.infer(kk.ising(j, h), "third-order:max_iter=1,restarts=0")
    assert not short.converged and "still increases" in " ".join(short.warnings)
    machine = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -0.5}, [0.2, -0.4, 0.1])
    truth, bound = kk.infer(machine, "jt").log_z, kk.infer(machine, "third-order").log_z
    assert truth - 0.01 < bound < truth
