"""Sources that walk by Laplace steps (HOJ-M14, HOJ-I24)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

from kikuchi.core.errors import KikuchiError
from kikuchi.temporal import LaplaceWalks, TemporalICA, independent_components
from kikuchi.temporal.moments.temporal_ica import laplace_moments, walk_posterior
from kikuchi.temporal.sequences import read_sequences
from kikuchi.temporal.state_space.inference import filter_states


def walks(seed: int = 0, d: int = 2, m: int = 2, noise: float = 0.25) -> LaplaceWalks:
    rng = np.random.default_rng(seed)
    return LaplaceWalks(rng.normal(size=(d, m)), np.full(d, noise), np.full(m, np.sqrt(2.0)))


def density(s: float, power: int, mean: float, variance: float, rate: float) -> float:
    log_p = -rate * abs(s) - 0.5 * (s - mean) ** 2 / variance
    return float(s**power * np.exp(log_p) * 0.5 * rate / np.sqrt(2 * np.pi * variance))


def test_laplace_moments_equal_quadrature() -> None:
    for mean, variance, rate in ((0.3, 1.0, 1.4), (-6.0, 0.2, 3.0), (0.0, 40.0, 2.0)):
        found = [float(v[0, 0]) for v in laplace_moments(
            np.array([[mean]]), np.array([[variance]]), np.array([rate]))]  # fmt: skip
        sd = np.sqrt(variance)
        ends = (mean - 12 * sd, 0.0, mean + 12 * sd)
        parts = [
            sum(
                quad(density, a, b, args=(k, mean, variance, rate), epsabs=0, limit=200)[0]
                for a, b in itertools.pairwise(sorted(ends))
            )
            for k in range(3)
        ]
        first = parts[1] / parts[0]
        known = [np.log(parts[0]), first, parts[2] / parts[0] - first**2]
        assert np.allclose(found, known, rtol=1e-6, atol=1e-8)


def test_the_document_s_scheme_is_a_kalman_filter() -> None:
    """Matching moments of the predicted state: mean stays, the variance grows by 2 / rate^2."""
    model = walks()
    _, y = model.sample(60, np.random.default_rng(1))
    mean, cov = np.zeros(2), np.zeros((2, 2))
    found = TemporalICA.from_parameters(model).filter(y)
    for t in range(60):
        cov = cov + np.diag(2.0 / model.rates**2)
        s = model.mixing @ cov @ model.mixing.T + np.diag(model.noise)
        gain = cov @ model.mixing.T @ np.linalg.inv(s)
        mean, cov = mean + gain @ (y[t] - model.mixing @ mean), cov - gain @ model.mixing @ cov
        assert np.allclose(found.mean[t], mean) and np.allclose(found.covariance[t], cov)
    assert np.isclose(filter_states(model.equivalent(), y).log_likelihood, found.log_likelihood)
    steps = np.random.default_rng(0).laplace(size=200_000) / model.rates[0]
    assert np.isclose(steps.var(), 2.0 / model.rates[0] ** 2, rtol=0.03)


def grid_means(y: np.ndarray, rate: float, noise: float, h: float = 0.04) -> np.ndarray:
    """Exact posterior means of one walk, by forward and backward sums on a grid."""
    ticks = np.arange(y.min() - 4, y.max() + 4, h)
    reach = int(15 / rate / h)
    kernel = np.exp(-rate * h * np.abs(np.arange(-reach, reach + 1)))
    like = np.exp(-0.5 * (y[:, None] - ticks) ** 2 / noise)
    alpha, forward = np.exp(-rate * np.abs(ticks)), []
    for t, b in enumerate(like):
        alpha = (alpha if t == 0 else np.convolve(alpha, kernel, mode="same")) * b
        alpha /= alpha.sum()
        forward.append(alpha)
    beta, means = np.ones(len(ticks)), np.empty(len(y))
    for t in range(len(y) - 1, -1, -1):
        p = forward[t] * beta
        means[t] = p @ ticks / p.sum()
        beta = np.convolve(like[t] * beta, kernel, mode="same")
        beta /= beta.max()
    return means


def test_what_the_schemes_gain_over_kalman_and_what_there_is_to_gain() -> None:
    """With noise of standard deviation .5 the exact posterior itself gains less than half a decibel
    over the Kalman smoother: no scheme can gain one. Both projections get most of it.
    """
    rng = np.random.default_rng(5)
    model = LaplaceWalks([[1.0]], [0.25], [np.sqrt(2.0)])
    errors: dict[str, list[float]] = {"kalman": [], "tap": [], "ep": [], "exact": []}
    for _ in range(3):
        x, y = model.sample(700, rng)
        errors["exact"].append(
            float(np.mean((grid_means(y[:, 0], np.sqrt(2.0), 0.25) - x[:, 0]) ** 2))
        )
        for scheme in ("kalman", "tap", "ep"):
            p = walk_posterior(model, y, scheme)  # type: ignore[arg-type]
            assert p.converged
            errors[scheme].append(float(np.mean((p.mean - x) ** 2)))
    mse = {name: np.mean(values) for name, values in errors.items()}
    gain = {name: 10 * np.log10(mse["kalman"] / value) for name, value in mse.items()}
    assert 0.1 < gain["exact"] < 0.5
    assert 0.0 < gain["tap"] <= gain["exact"] and 0.0 < gain["ep"] <= gain["exact"]


def test_ep_separates_what_the_kalman_scheme_cannot() -> None:
    """Gaussian walks of equal rates have no axes of their own; Laplace steps do."""
    truth = LaplaceWalks([[1.0, 0.6], [-0.4, 1.0]], [0.02, 0.02], [np.sqrt(2.0)] * 2)
    _, y = truth.sample(800, np.random.default_rng(2))

    def apart(found: np.ndarray) -> float:
        """Largest share of another source in a recovered one."""
        p = np.abs(np.linalg.solve(truth.mixing, found))
        return float(max((np.sort(column)[0] / column.max()) for column in p.T))

    ep = TemporalICA(2, posterior="ep", random_state=0).fit(y)
    kalman = TemporalICA(2, posterior="kalman", random_state=0).fit(y)
    assert apart(ep.model_.mixing) < 0.12 < apart(kalman.model_.mixing)
    em = TemporalICA(2, posterior="kalman", max_iter=20, random_state=0).fit_em(y)
    assert np.diff(em.trace_.objective).min() > -1e-6  # exact EM
    assert ep.log_likelihood_ > kalman.log_likelihood_


def test_gradient_of_the_approximate_evidence() -> None:
    """At the fixed point of EP the derivative of its evidence is that with the sites held."""
    model = walks(4, 2, 2, 0.1)
    _, y = model.sample(40, np.random.default_rng(3))
    ica, sequences = TemporalICA(2), read_sequences(y)
    at = ica._pack(model)
    slope = ica._gradient(model, ica._expectation(model, sequences)[1])
    for i in range(len(at)):
        step = np.zeros(len(at))
        step[i] = 1e-4
        high, low = (
            ica._expectation(ica._unpack(model, at + s), sequences)[0] for s in (step, -step)
        )
        assert np.isclose(slope[i], (high - low) / 2e-4, rtol=1e-3, atol=1e-2)


def test_gaps_files_forecasts_and_errors(tmp_path: Path) -> None:
    model = walks(3, 3, 2)
    x, y = model.sample(80, np.random.default_rng(0))
    y[10:20] = np.nan
    ica = TemporalICA.from_parameters(model)
    s = ica.smooth(y)
    assert s.deviation[15, 0] > s.deviation[5, 0] and np.mean((s.mean - x) ** 2) < 1
    assert ica.forecast(y, 5).mean.shape == (5, 3)
    learnt = TemporalICA(2, max_iter=3, random_state=0).fit([y, y[:30]])
    learnt.save(tmp_path / "ica.safetensors")
    again = TemporalICA.load(tmp_path / "ica.safetensors")
    assert np.array_equal(again.smooth(y).mean, learnt.smooth(y).mean)
    with pytest.raises(KikuchiError, match="must be positive"):
        LaplaceWalks([[1.0]], [0.0], [1.0])
    with pytest.raises(KikuchiError, match="give \\(D, M\\)"):
        LaplaceWalks([[1.0]], [1.0, 1.0], [1.0])
    with pytest.raises(KikuchiError, match="no value at all"):
        TemporalICA(1).fit(np.full((5, 1), np.nan))


def test_sources_without_memory_are_independent_components() -> None:
    """One source and one sensor: each frame is an integral of its own, which EP does exactly."""
    model = independent_components([[0.8]], [0.3], [1.5])
    y = np.array([[1.2], [-0.4], [3.0]])
    found = walk_posterior(model, y, "ep", tol=1e-10)
    total = 0.0
    for t in range(3):
        centre, variance = y[t, 0] / 0.8, 0.3 / 0.64
        ends = sorted((centre - 12 * variance**0.5, 0.0, centre + 12 * variance**0.5))
        z, first = (
            sum(quad(density, a, b, args=(k, centre, variance, 1.5), epsabs=0)[0]
                for a, b in itertools.pairwise(ends))
            for k in (0, 1)
        )  # fmt: skip
        total += np.log(z / 0.8)
        assert np.isclose(found.mean[t, 0], first / z, rtol=1e-6)
    assert np.isclose(found.log_likelihood, total, rtol=1e-6)
    assert np.allclose(walk_posterior(model, y, "tap", tol=1e-9).mean, found.mean, atol=1e-6)
    x, rows = independent_components(np.eye(2), [0.1, 0.1], [1.4, 1.4]).sample(
        300, np.random.default_rng(0)
    )
    assert abs(np.corrcoef(x[1:, 0], x[:-1, 0])[0, 1]) < 0.2
    ica = TemporalICA(2, persistence=0.0, max_iter=5, random_state=0).fit(rows)
    assert ica.model_.persistence == 0.0
    with pytest.raises(KikuchiError, match="between 0 and 1"):
        LaplaceWalks([[1.0]], [1.0], [1.0], 1.5)
