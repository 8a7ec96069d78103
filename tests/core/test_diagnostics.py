"""Split R-hat and effective sample size against plain loops and known answers."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.core.diagnostics import effective_sample_size, split_rhat
from kikuchi.core.errors import KikuchiError


def plain_rhat(chains: list[list[float]]) -> float:
    halves = []
    for chain in chains:
        half = len(chain) // 2
        halves += [chain[:half], chain[-half:]]
    n, m = len(halves[0]), len(halves)
    means = [sum(h) / n for h in halves]
    grand = sum(means) / m
    within = (
        sum(sum((x - mu) ** 2 for x in h) / (n - 1) for h, mu in zip(halves, means, strict=True))
        / m
    )
    between = sum((mu - grand) ** 2 for mu in means) / (m - 1)
    return float((((n - 1) / n * within + between) / within) ** 0.5)


def plain_ess(chains: list[list[float]]) -> float:
    halves = []
    for chain in chains:
        half = len(chain) // 2
        halves += [chain[:half], chain[-half:]]
    n, m = len(halves[0]), len(halves)
    means = [sum(h) / n for h in halves]
    grand = sum(means) / m
    within = (
        sum(sum((x - mu) ** 2 for x in h) / (n - 1) for h, mu in zip(halves, means, strict=True))
        / m
    )
    pooled = (n - 1) / n * within + sum((mu - grand) ** 2 for mu in means) / (m - 1)

    def rho(lag: int) -> float:
        if lag == 0:
            return 1.0
        covariance = 0.0
        for h, mu in zip(halves, means, strict=True):
            covariance += sum((h[t] - mu) * (h[t + lag] - mu) for t in range(n - lag)) / n
        return 1.0 - (within - covariance / m) / pooled

    tau, last = -1.0, float("inf")
    for k in range((n - 1 + 1) // 2):
        if 2 * k + 1 > n - 1:
            break
        pair = min(rho(2 * k) + rho(2 * k + 1), last)
        if pair <= 0:
            break
        tau += 2 * pair
        last = pair
    return m * n / max(tau, 1 / np.log10(m * n))


@pytest.mark.parametrize("shape", [(1, 40), (2, 41), (4, 30), (3, 8)])
def test_equal_to_plain_loops(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    draws = np.cumsum(rng.normal(size=(*shape, 5)), axis=1) * 0.3 + rng.normal(size=(*shape, 5))
    rhat, ess = split_rhat(draws), effective_sample_size(draws)
    for k in range(5):
        chains = draws[:, :, k].tolist()
        assert rhat[k] == pytest.approx(plain_rhat(chains), rel=1e-12)
        assert ess[k] == pytest.approx(plain_ess(chains), rel=1e-10)


def autoregressive(phi: float, chains: int, draws: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = np.empty((chains, draws))
    x[:, 0] = rng.normal(size=chains) / np.sqrt(1 - phi**2)
    noise = rng.normal(size=(chains, draws))
    for t in range(1, draws):
        x[:, t] = phi * x[:, t - 1] + noise[:, t]
    return x


@pytest.mark.parametrize("phi", [-0.4, 0.0, 0.5, 0.9])
def test_autoregressive_chains_have_the_known_sample_size(phi: float) -> None:
    x = autoregressive(phi, 4, 20_000, seed=3)
    known = x.size * (1 - phi) / (1 + phi)
    assert float(effective_sample_size(x)) == pytest.approx(known, rel=0.1)
    assert float(split_rhat(x)) == pytest.approx(1.0, abs=0.005)


def test_sample_size_predicts_the_spread_of_the_mean() -> None:
    x = autoregressive(0.8, 1000, 400, seed=4)
    spread = x.mean(axis=1).var()
    sizes = effective_sample_size(x.T[None].reshape(1, 400, 1000))
    assert x.var() / spread == pytest.approx(float(np.median(sizes)), rel=0.15)


def test_chains_apart_and_chains_that_drift_are_seen() -> None:
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(4, 200)) + np.arange(4)[:, None]
    drift = rng.normal(size=(4, 200)) + np.linspace(0, 3, 200)
    assert float(split_rhat(apart)) > 1.3
    assert float(split_rhat(drift)) > 1.2


def test_series_that_never_move() -> None:
    same = np.ones((4, 50))
    stuck = np.repeat([[0.0], [0.0], [1.0], [1.0]], 50, axis=1)
    assert float(split_rhat(same)) == 1.0
    assert float(effective_sample_size(same)) == 200.0
    assert float(split_rhat(stuck)) == np.inf
    assert float(effective_sample_size(stuck)) < 10.0


@pytest.mark.parametrize("shape", [(4,), (4, 3), (2, 0)])
def test_too_few_draws_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(KikuchiError, match="at least 4 draws"):
        split_rhat(np.zeros(shape))
