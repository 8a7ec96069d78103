"""Moment passing against quadrature, exact answers and particles (HOJ-I22, HOJ-I23)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr

from kikuchi.core.errors import KikuchiError
from kikuchi.engines.sites.kernels.half_line import probit_gain
from kikuchi.temporal.moments.emissions import EMISSIONS
from kikuchi.temporal.moments.inference import (
    expectation_propagation,
    moment_filter,
    particle_filter,
    particle_smoother,
)
from kikuchi.temporal.moments.learning import _DYNAMICS, evidence_slope
from kikuchi.temporal.moments.models import MomentSSM
from kikuchi.temporal.sequences import read_sequences
from kikuchi.temporal.state_space.coordinates import pack, unpack
from kikuchi.temporal.state_space.inference import filter_states
from kikuchi.temporal.state_space.parameters import StateSpace

TEXTS = ["probit", "logistic", "poisson", "student:dof=3,scale=0.2", "quantised:edges=-1;0.5;2"]
OUTPUTS = {"probit": [1.0, -1.0], "logistic": [1.0, -1.0], "poisson": [0.0, 7.0, 60.0],
           "student": [-4.0, 0.3], "quantised": [0.0, 1.0, 3.0]}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_tilted_moments_equal_adaptive_quadrature(text: str) -> None:
    emission = EMISSIONS.parse(text)
    for y in OUTPUTS[emission.name]:
        for mean, variance in ((0.0, 1.0), (-3.0, 4.0), (2.0, 0.01), (1.0, 30.0)):
            found = emission.tilted(np.array([y]), np.array([mean]), np.array([variance]))
            sd = np.sqrt(variance)

            def density(
                f: float, power: int, y: float = y, mean: float = mean, sd: float = sd
            ) -> float:
                log_p = emission.log_likelihood(y, f) - 0.5 * ((f - mean) / sd) ** 2
                return float((f - mean) ** power * np.exp(log_p) / (sd * np.sqrt(2 * np.pi)))

            ends = (
                mean - 10 * sd,
                mean + 25 * sd if emission.name == "poisson" else mean + 10 * sd,
            )
            peaks = [
                p for p in (mean, y, np.log(y + 0.5) if y >= 0 else 0.0) if ends[0] < p < ends[1]
            ]
            mass, first, second = (
                quad(density, *ends, args=(k,), points=peaks, limit=400, epsabs=0)[0]
                for k in range(3)
            )
            if mass < 1e-200:
                continue
            assert np.isclose(found[0][0], np.log(mass), atol=1e-6), (y, mean, variance)
            assert np.isclose(found[1][0], mean + first / mass, atol=1e-5 * sd + 1e-7)
            assert np.isclose(found[2][0], second / mass - (first / mass) ** 2, rtol=1e-4)


def test_golden_gains() -> None:
    """HOJ-E10: r and H of the probit filter."""
    golden = {
        -4: (4.225607, 0.953327), -2: (2.373216, 0.885721), -1: (1.525135, 0.800902),
        0: (0.797885, 0.636620), 1: (0.287600, 0.370314), 2: (0.055248, 0.113548),
        4: (0.000134, 0.000535),
    }  # fmt: skip
    for kappa, (r, h) in golden.items():
        found = probit_gain(float(kappa))
        assert abs(found[0] - r) < 1e-6 and abs(found[1] - h) < 1e-6
    for kappa in (-5.0 + 1e-9, -5.0 - 1e-9, -30.0, -1e4, 30.0):
        r, h, log_p = probit_gain(kappa)
        assert np.isclose(log_p, log_ndtr(kappa), rtol=1e-9, atol=1e-12) and 0 <= h <= 1
        assert np.isclose(
            r, np.exp(-0.5 * kappa**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(kappa)), 1e-7
        )


def walk(n: int = 2, seed: int = 0) -> StateSpace:
    rng = np.random.default_rng(seed)
    turn = 0.95 * np.linalg.qr(rng.normal(size=(n, n)))[0]
    return StateSpace(
        turn, rng.normal(size=(1, n)), 0.2 * np.eye(n), [[0.0]], 0.1 * np.ones(n), [0.3],
        initial_covariance=np.eye(n),
    )  # fmt: skip


def simulated(text: str, model: StateSpace, steps: int, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    x = np.zeros(model.n_states)
    f = np.empty(steps)
    for t in range(steps):
        x = model.transition @ x + model.state_offset + np.sqrt(0.2) * rng.normal(size=len(x))
        f[t] = model.output[0] @ x + model.output_offset[0]
    return EMISSIONS.parse(text).sample(f, rng)


def test_gaussian_outputs_are_exact() -> None:
    """A Student t of many degrees of freedom is Gaussian: filter and EP are those of Kalman."""
    model = walk()
    y = simulated("student:dof=1e7,scale=0.5", model, 40)
    y[7] = np.nan
    known = model.updated(output_noise=[[0.25]])
    emission = EMISSIONS.parse("student:dof=1e7,scale=0.5")
    f, exact = moment_filter(model, emission, y), filter_states(known, y[:, None])
    assert np.allclose(f.mean, exact.mean, atol=1e-4)
    assert np.isclose(f.log_evidence, exact.log_likelihood, atol=1e-3)
    ep = expectation_propagation(model, emission, y)
    from kikuchi.temporal.state_space.inference import smooth_states

    s = smooth_states(known, y[:, None])
    assert ep.converged and np.allclose(ep.mean, s.mean, atol=1e-4)
    assert np.allclose(ep.covariance, s.covariance, atol=1e-4)
    assert np.isclose(ep.log_evidence, s.log_likelihood, atol=1e-3)


def grid_smoother(model: StateSpace, emission: Any, y: Any) -> tuple[Any, float]:
    """Exact posterior means of one state, and log p(y), on a fine grid."""
    ticks = np.linspace(-8, 8, 801)
    a, q = float(model.transition[0, 0]), float(model.state_noise[0, 0])
    kernel = np.exp(-0.5 * (ticks[None] - a * ticks[:, None]) ** 2 / q)
    kernel /= kernel.sum(axis=1, keepdims=True)
    like = np.array([np.exp(emission.log_likelihood(v, ticks)) for v in y])
    alpha = np.exp(-0.5 * ticks**2)
    alpha /= alpha.sum()
    forward, log_z = [], 0.0
    for t, b in enumerate(like):
        alpha = (alpha if t == 0 else alpha @ kernel) * b
        log_z += np.log(alpha.sum())
        alpha = alpha / alpha.sum()
        forward.append(alpha)
    beta, means = np.ones(len(ticks)), np.empty(len(y))
    for t in range(len(y) - 1, -1, -1):
        p = forward[t] * beta
        means[t] = (p / p.sum()) @ ticks
        beta = kernel @ (like[t] * beta)
        beta /= beta.max()
    return means, float(log_z)


@pytest.mark.parametrize("text", TEXTS)
def test_ep_is_near_the_exact_posterior_and_nearer_than_the_filter(text: str) -> None:
    model = StateSpace([[0.9]], [[1.0]], [[0.2]], [[0.0]], initial_covariance=[[1.0]])
    emission = EMISSIONS.parse(text)
    y = simulated(text, walk(1), 60)
    means, log_z = grid_smoother(model, emission, y)
    ep, adf = (
        expectation_propagation(model, emission, y, damping=0.2),
        moment_filter(model, emission, y),
    )
    assert ep.converged
    assert np.abs(ep.mean[:, 0] - means).max() < 0.05
    assert abs(ep.log_evidence - log_z) < 0.15
    assert abs(adf.log_evidence - log_z) < 3
    assert abs(ep.log_evidence - log_z) <= abs(adf.log_evidence - log_z) + 0.02


def test_particles_agree_with_ep() -> None:
    # HOJ-X3
    model = walk(2, 3)
    emission = EMISSIONS.parse("probit")
    y = simulated("probit", model, 30)
    w = model.output[0]

    def likelihood(t: int, x: Any) -> Any:
        return log_ndtr(y[t] * (x @ w + 0.3))

    f = particle_filter(model, likelihood, 30, particles=20000, seed=0)
    adf = moment_filter(model, emission, y)
    assert np.abs(f.mean - adf.mean).max() < 0.1
    assert abs(f.log_evidence - adf.log_evidence) < 0.3
    s = particle_smoother(model, likelihood, 30, particles=1500, paths=600, seed=1)
    ep = expectation_propagation(model, emission, y)
    assert np.abs(s.mean - ep.mean).mean() < 0.1  # three standard errors of 600 paths
    assert abs(f.log_evidence - ep.log_evidence) < 0.2


def test_particles_follow_the_weights_of_a_network() -> None:
    """HOJ-X3: on-line classification by a network whose weights drift; no line separates these."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    labels = np.where(np.abs(x[:, 0]) > 0.7, 1.0, -1.0)
    hidden, n = 2, 2 * 3 + 3
    model = StateSpace(np.eye(n), np.zeros((1, n)), 2e-3 * np.eye(n), [[0.0]],
                       initial_covariance=4 * np.eye(n))  # fmt: skip

    def outputs(weights: Any, row: Any) -> Any:
        first = weights[:, :6].reshape(-1, hidden, 3)
        units = np.tanh(first[:, :, :2] @ row + first[:, :, 2])
        return (units * weights[:, 6:8]).sum(axis=1) + weights[:, 8]

    chances = []

    def likelihood(t: int, weights: Any) -> Any:
        f = outputs(weights, x[t])
        chances.append(float(np.mean(f > 0)))
        return -np.logaddexp(0.0, -labels[t] * f)

    particle_filter(model, likelihood, 300, particles=2000, seed=1)
    late = np.where(np.array(chances[150:]) > 0.5, 1.0, -1.0)
    assert np.mean(late == labels[150:]) > 0.85 > 0.7 > np.mean(labels[150:] == 1)


def test_deterministic_weights_are_batch_regression() -> None:
    """A = I and no drift: EP is that of probit regression; flipped labels flip the means."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = np.where(x @ [1.0, -2.0, 0.5] + rng.normal(size=80) > 0, 1.0, -1.0)
    model = StateSpace(np.eye(3), x[:, None, :], np.zeros((3, 3)), [[0.0]],
                       initial_covariance=np.eye(3))  # fmt: skip
    emission = EMISSIONS.parse("probit")
    ep = expectation_propagation(model, emission, y)
    assert ep.converged and np.allclose(ep.mean, ep.mean[0], atol=1e-6)
    draws = rng.normal(size=(400_000, 3))
    logs = log_ndtr(y[:, None] * (x @ draws.T)).sum(axis=0)
    w = np.exp(logs - logs.max())
    assert np.allclose(ep.mean[0], w @ draws / w.sum(), atol=0.05)
    assert np.isclose(ep.log_evidence, np.log(w.mean()) + logs.max(), atol=0.1)
    flipped = moment_filter(model, emission, -y)
    assert np.allclose(flipped.mean, -moment_filter(model, emission, y).mean)


def test_one_clear_line_for_bad_outputs() -> None:
    model = walk()
    bad: dict[str, Any] = {
        "labels are 1 and -1": lambda: moment_filter(model, EMISSIONS.parse("probit"), [0.0]),
        "whole numbers >= 0": lambda: moment_filter(model, EMISSIONS.parse("poisson"), [1.5]),
        "intervals are numbered": lambda: moment_filter(model, EMISSIONS.parse("quantised"), [9.0]),
        "at least one": lambda: moment_filter(model, EMISSIONS.parse("probit"), []),
        "increasing": lambda: EMISSIONS.parse("quantised:edges=1;0"),
        "no emission 'gauss'": lambda: EMISSIONS.parse("gauss"),
        "proper prior": lambda: moment_filter(
            model.updated(initial_covariance=None), EMISSIONS.parse("probit"), [1.0]
        ),
        "not singular": lambda: particle_smoother(
            model.updated(state_noise=np.zeros((2, 2))), lambda t, x: x[:, 0], 2
        ),
        "must answer": lambda: particle_filter(model, lambda t, x: x, 2),
    }
    for message, make in bad.items():
        with pytest.raises(KikuchiError, match=message):
            make()


def test_gradient_of_the_evidence_and_its_ascent() -> None:
    walk = StateSpace(
        [[0.9]], [[1.0]], [[0.1]], [[0.0]], output_offset=[1.0], initial_covariance=[[1.0]]
    )
    counts = MomentSSM(walk, "poisson")
    y = counts.sample(150, random_state=1)
    sequences, held = read_sequences(y), _DYNAMICS
    at = pack(walk, held)
    slope = evidence_slope(walk, counts.emission, sequences)[1]
    for i in range(len(at)):
        step = np.zeros(len(at))
        step[i] = 1e-4
        high, low = (
            evidence_slope(unpack(walk, at + s, held), counts.emission, sequences)[0]
            for s in (step, -step)
        )
        assert np.isclose(slope[i], (high - low) / 2e-4, rtol=1e-3, atol=1e-2)
    begin = MomentSSM(walk.updated(transition=[[0.4]]), "poisson")
    em, up = begin.fit_em(y, tol=1e-6, max_iter=200), begin.fit_gradient(y)
    assert up.log_likelihood(y) > begin.log_likelihood(y) + 1
    assert abs(up.log_likelihood(y) - em.log_likelihood(y)) < 0.1
    with pytest.raises(KikuchiError, match="not singular"):
        MomentSSM(walk.updated(state_noise=[[0.0]]), "poisson").fit_gradient(y)
