"""Bayesian ICA (LAW-M9, LAW-I22, LAW-L12) against quadrature, its own guarantees and LAW-E19."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import gamma, multivariate_normal, norm, t
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from kikuchi.core.errors import BudgetError, DataError, MethodError
from kikuchi.ica.bayesian.bayesian_ica import BayesianICA
from kikuchi.ica.bayesian.sources import (
    ComponentStats,
    Mixing,
    Mixtures,
    expected_error,
    source_posterior,
    tuples_of,
)
from kikuchi.ica.bayesian.updates import BayesianPosterior, Gamma, Hyperpriors

LAWRENCE = {"unit": 1.0, "noise_prior": (1e-3, 1e-3)}


def toy(seed: int, n_samples: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """LAW-E19: two sources of variances 1 and 50 in three sensors, noise variance 1e-4."""
    rng = np.random.default_rng(seed)
    scale = np.where(rng.random((2, n_samples)) < 0.5, 1.0, math.sqrt(50))
    sources = scale * rng.standard_normal((2, n_samples))
    mixing = rng.standard_normal((3, 2))
    noise = 1e-2 * rng.standard_normal((3, n_samples))
    return mixing, sources, (mixing @ sources + noise).T


def cosines(true: np.ndarray, found: np.ndarray) -> np.ndarray:
    a = true / np.linalg.norm(true, axis=0)
    b = found / np.linalg.norm(found, axis=0)
    return np.abs(a.T @ b).max(axis=1)


# ---------------------------------------------------------------------- source posterior


def some_problem(seed: int = 0) -> tuple[np.ndarray, Mixing, Mixtures]:
    rng = np.random.default_rng(seed)
    root = 0.3 * rng.standard_normal((2, 2))
    mixing = Mixing(rng.standard_normal((3, 2)), root @ root.T, 1.7)
    mixtures = Mixtures(
        np.array([[0.3, 0.7], [0.6, 0.4]]),
        np.array([[-1.0, 0.5], [0.2, 1.0]]),
        np.array([[0.5, 2.0], [1.5, 0.3]]),
    )
    return rng.standard_normal((3, 4)), mixing, mixtures


def test_source_posterior_against_a_grid():
    # LAW-I22
    data, mixing, mixtures = some_problem()
    found = source_posterior(data, mixing, mixtures)
    line = np.linspace(-14, 14, 281)
    x = np.stack(np.meshgrid(line, line, indexing="ij"))
    log_prior = sum(
        logsumexp(
            [
                np.log(mixtures.weights[i, m])
                + norm.logpdf(x[i], mixtures.means[i, m], mixtures.variances[i, m] ** 0.5)
                for m in range(2)
            ],
            axis=0,
        )
        for i in range(2)
    )
    slack = 3 * np.einsum("iab,ij,jab->ab", x, mixing.covariance, x)
    covariance = np.zeros((2, 2))
    for n in range(data.shape[1]):
        rest = data[:, n, None, None] - np.einsum("pi,iab->pab", mixing.mean, x)
        weights = log_prior - 0.5 * mixing.noise_precision * (np.sum(rest**2, axis=0) + slack)
        cell = (line[1] - line[0]) ** 2
        mass = np.exp(weights) * cell
        z = mass.sum()
        mean = np.array([(mass * x[i]).sum() / z for i in range(2)])
        second = np.array([[(mass * x[i] * x[j]).sum() / z for j in range(2)] for i in range(2)])
        covariance += second - np.outer(mean, mean)
        assert found.log_z[n] == pytest.approx(math.log(z), abs=1e-9)
        assert found.mean[:, n] == pytest.approx(mean, abs=1e-9)
    assert found.covariance_sum == pytest.approx(covariance, abs=1e-9)


def test_chunks_give_the_same_answer(monkeypatch):
    data, mixing, mixtures = some_problem()
    whole = source_posterior(data, mixing, mixtures)
    monkeypatch.setattr("kikuchi.ica.bayesian.sources._CHUNK", 8)
    parts = source_posterior(data, mixing, mixtures)
    assert parts.covariance_sum == pytest.approx(whole.covariance_sum, rel=1e-12)
    assert parts.components.squares == pytest.approx(whole.components.squares, rel=1e-12)


def test_component_statistics_add_up():
    data, mixing, mixtures = some_problem()
    found = source_posterior(data, mixing, mixtures)
    stats = found.components
    assert stats.counts.sum(axis=1) == pytest.approx([4.0, 4.0])
    assert stats.sums.sum(axis=1) == pytest.approx(found.mean.sum(axis=1))
    assert stats.squares.sum(axis=1) == pytest.approx(np.diagonal(found.second))


def test_expected_error_against_sampling():
    data, mixing, mixtures = some_problem()
    found = source_posterior(data, mixing, mixtures)
    rng = np.random.default_rng(1)
    draws = 20_000
    root = np.linalg.cholesky(found.second / 4)  # any x with the right second moment serves
    weights = mixing.mean + np.einsum(
        "ij,kpj->kpi", np.linalg.cholesky(mixing.covariance), rng.standard_normal((draws, 3, 2))
    )
    x = np.einsum("ij,kj->ki", root, rng.standard_normal((draws, 2)))
    total = np.einsum("kpi,ki->kp", weights, x)
    power = float(np.mean(np.sum(total**2, axis=1))) * 4
    cross = float(np.sum(data * (mixing.mean @ found.mean)))
    expected = float(np.sum(data**2)) - 2 * cross + power
    assert expected_error(data, mixing, found) == pytest.approx(expected, rel=0.03)


def test_too_many_tuples_are_refused():
    with pytest.raises(BudgetError, match="4096"):
        tuples_of(13, 2)


# ---------------------------------------------------------------------- bound


BLOCKS = (
    "update_sources",
    "update_mixing",
    "update_mean",
    "update_relevance",
    "update_noise",
    "adapt_sources",
)


@pytest.mark.parametrize("kind", ["heavy-tailed", "sparse", "bimodal", "gaussian"])
@pytest.mark.parametrize(("n_sensors", "n_components"), [(3, 3), (2, 3), (5, 2)])
def test_no_block_lowers_the_bound(kind, n_sensors, n_components):
    """LAW-T19, LAW-T3: every block, in any order, to 1e-9."""
    # LAW-I22
    rng = np.random.default_rng(7)
    data = rng.standard_normal((n_sensors, 2)) @ rng.laplace(size=(2, 60))
    data = data + 0.1 * rng.standard_normal((n_sensors, 60)) + 1.0
    start = rng.standard_normal((n_sensors, n_components))
    posterior = BayesianPosterior(
        data, start, 0.2, Mixtures.shared(kind, n_components), Hyperpriors()
    )
    last = posterior.bound
    for name in rng.choice(BLOCKS, 300):
        getattr(posterior, name)()
        bound = posterior.bound
        assert bound >= last - 1e-9
        last = bound


def test_each_block_is_the_best_of_its_kind():
    rng = np.random.default_rng(3)
    data = rng.standard_normal((3, 40))
    posterior = BayesianPosterior(
        data, rng.standard_normal((3, 2)), 0.3, Mixtures.shared("sparse", 2), Hyperpriors()
    )
    checks = {
        "update_mixing": ("weights", "weight_covariance"),
        "update_mean": ("mean", "mean_variance"),
        "update_relevance": ("relevance",),
        "update_noise": ("noise",),
    }
    for block, parts in checks.items():
        getattr(posterior, block)()
        best = posterior.bound
        for part in parts:
            kept = getattr(posterior, part)
            for factor in (0.98, 1.02):
                changed = (
                    Gamma(kept.a, kept.b * factor) if isinstance(kept, Gamma) else kept * factor
                )
                setattr(posterior, part, changed)
                assert posterior.bound < best
            setattr(posterior, part, kept)


def test_bound_is_below_the_log_evidence_and_near_it():
    """One sensor, one source: the evidence by quadrature over mixing, noise and mean."""
    data = np.array([[0.4, -1.3, 2.0, 0.1, -0.2]])
    priors = Hyperpriors(2.0, 2.0, 3.0, 1.0, 0.5)
    mixtures = Mixtures(np.array([[0.4, 0.6]]), np.array([[-0.5, 0.5]]), np.array([[0.5, 2.0]]))
    w = np.linspace(-12, 12, 241)
    mu = np.linspace(-7, 7, 71)
    beta = np.linspace(1e-3, 18, 90)
    log_w = t.logpdf(w, 2 * 2.0, scale=math.sqrt(2.0 / 2.0))  # the relevance integrated out
    log_mu = norm.logpdf(mu, 0, priors.mean_precision**-0.5)
    log_beta = gamma.logpdf(beta, 3.0, scale=1.0)
    likelihood = np.zeros((len(w), len(mu), len(beta)))
    for value in data[0]:
        terms = [
            math.log(mixtures.weights[0, m])
            + norm.logpdf(
                value,
                w[:, None, None] * mixtures.means[0, m] + mu[None, :, None],
                np.sqrt(w[:, None, None] ** 2 * mixtures.variances[0, m] + 1 / beta),
            )
            for m in range(2)
        ]
        likelihood += np.logaddexp(*terms)
    likelihood += log_w[:, None, None] + log_mu[None, :, None] + log_beta
    cell = (w[1] - w[0]) * (mu[1] - mu[0]) * (beta[1] - beta[0])
    evidence = float(logsumexp(likelihood)) + math.log(cell)
    posterior = BayesianPosterior(data, np.array([[1.0]]), 0.5, mixtures, priors)
    for _ in range(200):
        for block in BLOCKS[:5]:
            getattr(posterior, block)()
    assert evidence - 2.0 < posterior.bound < evidence


def test_gamma_divergence_against_quadrature():
    """LAW-I20."""
    q = Gamma(2.5, np.array([1.5, 0.4]))

    def term(x: float, rate: float) -> float:
        mine = gamma.logpdf(x, 2.5, scale=1 / rate)
        return math.exp(mine) * (mine - gamma.logpdf(x, 0.7, scale=1 / 2.0))

    expected = sum(quad(term, 0, np.inf, args=(rate,))[0] for rate in q.b)
    assert q.divergence(0.7, 2.0) == pytest.approx(expected, abs=1e-8)


def test_expected_log_of_known_sources():
    """With every sample in a known component it is a sum of log densities."""
    rng = np.random.default_rng(2)
    x, component = rng.standard_normal((2, 30)), rng.integers(0, 2, (2, 30))
    mixtures = some_problem()[2]
    total, stats = 0.0, [np.zeros((2, 2)) for _ in range(3)]
    for i, n in np.ndindex(2, 30):
        m = component[i, n]
        spread = mixtures.variances[i, m] ** 0.5
        total += norm.logpdf(x[i, n], mixtures.means[i, m], spread)
        total += math.log(mixtures.weights[i, m])
        for power, stat in enumerate(stats):
            stat[i, m] += x[i, n] ** power
    assert mixtures.expected_log(ComponentStats(*stats)) == pytest.approx(total, rel=1e-12)


def test_adapting_gains_what_the_prior_gains():
    rng = np.random.default_rng(3)
    data = rng.standard_normal((3, 40))
    start = rng.standard_normal((3, 2))
    posterior = BayesianPosterior(data, start, 0.3, Mixtures.shared("bimodal", 2), Hyperpriors())
    posterior.update_sources()
    before, stats = posterior.bound, posterior.sources.components
    old = posterior.mixtures.expected_log(stats)
    posterior.adapt_sources()
    gain = posterior.mixtures.expected_log(stats) - old
    assert gain > 0.1
    assert posterior.bound - before == pytest.approx(gain, rel=1e-9)


def test_adapted_mixtures_are_the_best():
    rng = np.random.default_rng(0)
    counts = rng.uniform(1, 5, (2, 2))
    sums = rng.standard_normal((2, 2))
    stats = ComponentStats(counts, sums, sums**2 / counts + rng.uniform(1, 2, (2, 2)))
    best = Mixtures.shared("bimodal", 2).adapted(stats)
    value = best.expected_log(stats)
    for factor in (0.99, 1.01):
        assert (
            Mixtures(best.weights, best.means * factor, best.variances).expected_log(stats) < value
        )
        assert (
            Mixtures(best.weights, best.means, best.variances * factor).expected_log(stats) < value
        )
    moved = best.weights + np.array([[0.01, -0.01]])
    assert Mixtures(moved, best.means, best.variances).expected_log(stats) < value


# ---------------------------------------------------------------------- LAW-E19, LAW-E20


@pytest.mark.parametrize("seed", range(2))
def test_toy_of_the_source_document(seed):
    """LAW-E19: the phantom is off, directions and noise are right, two sources win by 23 nats."""
    mixing, _, samples = toy(seed)
    three = BayesianICA(3, "sparse", pruning="none", **LAWRENCE).fit(samples)
    two = BayesianICA(2, "sparse", pruning="none", **LAWRENCE).fit(samples)
    assert np.log10(three.relevance_[-1]) == pytest.approx(3.18, abs=0.02)
    assert (three.relevance_[:-1] < 100).all()
    assert cosines(mixing, three.mixing_).min() > 0.997
    assert 0.8e-4 < three.noise_variance_ < 1.4e-4
    assert 20 < two.bound_ - three.bound_ < 26
    assert three.converged_
    assert (np.diff(three.trace_.objective) > -1e-9).all()
    assert len(three.relevance_history_) > 5


def test_number_of_sources_is_found_both_ways():
    """LAW-L12, LAW-T19."""
    _, sources, samples = toy(1)
    for prune in ("bound", "relevance"):
        found = BayesianICA(3, "sparse", pruning=prune, **LAWRENCE).fit(samples)
        assert found.n_components_ == 2
        assert found.mixing_.shape == (3, 2)
        assert found.relevance_[2] == pytest.approx(found.prior_relevance_, rel=0.05)
        assert found.prior_relevance_ == pytest.approx((1e-3 + 1.5) / 1e-3)
    correlation = np.abs(np.corrcoef(found.transform(samples).T, sources)[:2, 2:])
    assert correlation.max(axis=0).min() > 0.999


@pytest.mark.parametrize("kind", ["laplace", "student"])
def test_the_default_density_counts_sources_right(kind):
    """LAW-L12: the document's density keeps a phantom where tails are lighter than its own."""
    rng = np.random.default_rng(0)
    sources = rng.laplace(size=(300, 2)) if kind == "laplace" else rng.standard_t(4, (300, 2))
    samples = sources @ rng.standard_normal((2, 4)) + 0.2 * rng.standard_normal((300, 4))
    found = BayesianICA(3).fit(samples)
    assert found.n_components_ == 2
    named = BayesianICA(3, "sparse").fit(samples)
    assert named.n_components_ == 3
    assert found.bound_ > named.bound_ + 10


def test_one_source_too_few_is_much_worse():
    samples = toy(0)[2]
    assert (
        BayesianICA(1, "sparse", **LAWRENCE).fit(samples).bound_
        < BayesianICA(2, "sparse", **LAWRENCE).fit(samples).bound_ - 300
    )


@pytest.mark.parametrize("n_components", [2, 3])
def test_sub_gaussian_sources(n_components):
    """LAW-E20's setting: flat sources, here 500 samples, three channels, 7.8 % of noise."""
    rng = np.random.default_rng(0)
    sources = rng.uniform(-1, 1, (2, 500))
    sources /= sources.std(axis=1, keepdims=True)
    mixing = rng.standard_normal((3, 2))
    samples = (mixing @ sources + math.sqrt(0.078) * rng.standard_normal((3, 500))).T
    found = BayesianICA(n_components, "bimodal", **LAWRENCE).fit(samples)
    assert found.n_components_ == 2
    assert cosines(mixing, found.mixing_).min() > 0.99
    better = BayesianICA(n_components, "bimodal", adapt=True, **LAWRENCE).fit(samples)
    assert better.bound_ > found.bound_ + 10
    assert (better.mixtures_.variances < 1).all()


def test_gaussian_sources_find_the_subspace_only():
    """LAW-I22: one component is Bayesian principal components."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((5, 2))
    samples = rng.standard_normal((400, 2)) @ mixing.T + 0.1 * rng.standard_normal((400, 5))
    found = BayesianICA(4, "gaussian").fit(samples)
    assert found.n_components_ == 2
    a, b = np.linalg.qr(mixing)[0], np.linalg.qr(found.mixing_)[0]
    assert np.linalg.svd(a.T @ b)[1].min() > 0.999


# ---------------------------------------------------------------------- estimator


@parametrize_with_checks([BayesianICA(max_iter=3, inner_max_iter=5)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def test_units_do_not_matter():
    samples = toy(2, 60)[2]
    first = BayesianICA(3).fit(samples)
    second = BayesianICA(3).fit(1e-6 * samples + 5.0)
    assert second.n_components_ == first.n_components_ == 2
    assert 1e6 * second.mixing_ == pytest.approx(first.mixing_, rel=1e-3, abs=1e-3)
    assert second.bound_ == pytest.approx(first.bound_ - samples.size * math.log(1e-6), abs=0.1)


def test_scores_are_log_densities():
    samples = toy(0)[2][:50]
    found = BayesianICA(2, max_iter=5).fit(samples)
    mixtures, total = found.mixtures_, np.full(50, -np.inf)
    for choice in tuples_of(2, 3):
        picked = (np.arange(2), choice)
        centre = found.mean_ + found.mixing_ @ mixtures.means[picked]
        spread = found.mixing_ * mixtures.variances[picked] @ found.mixing_.T
        spread = spread + found.noise_variance_ * np.eye(3)
        density = multivariate_normal(centre, spread).logpdf(samples)
        total = np.logaddexp(total, np.log(mixtures.weights[picked]).sum() + density)
    assert found.score_samples(samples) == pytest.approx(total, abs=1e-6)
    assert found.score(samples) == pytest.approx(total.mean(), abs=1e-6)


def test_samples_have_the_covariance_of_the_model():
    found = BayesianICA(2, max_iter=5).fit(toy(0)[2])
    drawn, sources = found.sample(40_000, random_state=0, return_latents=True)
    expected = found.mixing_ * found.mixtures_.variance @ found.mixing_.T
    expected = expected + found.noise_variance_ * np.eye(3)
    assert np.cov(drawn.T) == pytest.approx(expected, rel=0.06, abs=0.06 * expected.max())
    assert sources.shape == (40_000, 2)


def test_restarts_never_lower_the_bound():
    samples = toy(5, 100)[2]
    one = BayesianICA(2, random_state=0, max_iter=2).fit(samples)
    more = BayesianICA(2, random_state=0, max_iter=2, n_init=3).fit(samples)
    assert more.bound_ >= one.bound_ - 1e-9
    again = clone(more).fit(samples)
    assert np.array_equal(again.mixing_, more.mixing_)


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    calls = []
    whole = BayesianPosterior.update_mixing

    def interrupted(self: BayesianPosterior) -> None:
        calls.append(1)
        if len(calls) > 20:
            raise KeyboardInterrupt
        whole(self)

    monkeypatch.setattr(BayesianPosterior, "update_mixing", interrupted)
    found = BayesianICA(3).fit(toy(0)[2])
    assert not found.converged_
    assert "interrupted" in found.warnings_[0]
    assert np.isfinite(found.mixing_).all()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"n_components": 0}, "n_components"),
        ({"prior": "spiky"}, "spiky"),
        ({"prior": ([1.0], [0.0], [-1.0])}, "positive"),
        ({"prior": ([1.0, 1.0], [0.0], [1.0])}, "three rows"),
        ({"pruning": "hard"}, "pruning"),
        ({"unit": -1.0}, "unit"),
        ({"relevance_prior": 3.0}, "relevance_prior"),
        ({"noise_prior": (0.0, 1.0)}, "noise_prior"),
        ({"tol": 0.0}, "tol"),
        ({"max_iter": 1.5}, "max_iter"),
    ],
)
def test_bad_options_are_one_clear_line(options, word):
    with pytest.raises(MethodError, match=word) as caught:
        BayesianICA(**options).fit(toy(0)[2])
    assert "\n" not in str(caught.value)


def test_bad_data_is_one_clear_line():
    samples = toy(0)[2]
    for value, word in ((np.nan, "NaN"), (np.inf, "inf"), (1e200, "beyond")):
        broken = samples.copy()
        broken[3, 1] = value
        with pytest.raises(DataError, match=f"row 3, sensor 1 is .*{word}"):
            BayesianICA(2).fit(broken)
    constant = samples.copy()
    constant[:, 2] = 4.0
    with pytest.raises(DataError, match="sensor 2 never changes; remove it"):
        BayesianICA(2).fit(constant)
    with pytest.raises(BudgetError, match="tuples"):
        BayesianICA(20).fit(samples)
    found = BayesianICA(2, max_iter=2).fit(samples)
    with pytest.raises(DataError, match=r"shape \(samples, 2\), got shape \(1, 7\)"):
        found.inverse_transform(np.zeros((1, 7)))
    for count in (0, -1, 1.5):
        with pytest.raises(DataError, match="at least 1 sample"):
            found.sample(count)
