"""EM of noisy ICA: gradients, monotone objectives, exact special cases, batches, missing values."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kikuchi.ica import MeanFieldICA
from kikuchi.ica.em import Chart, EMIteration, Rules, expectation, maximisation
from kikuchi.ica.evidence import evidence
from kikuchi.ica.fitting import choose_fit
from kikuchi.ica.measures import column_angles
from kikuchi.ica.mixing import FlatMixing, GaussianMixing
from kikuchi.ica.model import Model, Observations, is_learned
from kikuchi.ica.noise import make_noise
from kikuchi.ica.posteriors.posterior import parse_posterior
from kikuchi.ica.priors.mixture import MixturePrior
from kikuchi.ica.priors.prior import as_priors, parse_prior
from kikuchi.ica.restarts import RestartFit, collapsed_sources

FREE = Rules("free", FlatMixing(), "shape")


def _mixture(prior, shape, count, noise, seed):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=shape)
    s = np.array([parse_prior(prior).sample(rng, count) for _ in range(shape[1])])
    return mixing, Observations.of(mixing @ s + noise * rng.normal(size=(shape[0], count)))


def _begin(prior, shape, data, kind="isotropic", seed=1):
    rng = np.random.default_rng(seed)
    return Model(
        rng.normal(size=shape), make_noise(kind, data.variances), tuple(as_priors(prior, shape[1]))
    )


def _objectives(learning, optimiser, count, batch=None):
    learning.begin(optimiser, batch, 0)
    return [step.objective for _ in range(count) if (step := learning.step()) is not None]


def _numerical_gradient(value, at, step=1e-5):
    out = np.empty(at.shape)
    for index in np.ndindex(at.shape):
        shift = np.zeros(at.shape)
        shift[index] = step
        out[index] = (value(at + shift) - value(at - shift)) / (2 * step)
    return out


@pytest.mark.parametrize(
    ("prior", "posterior"),
    [("laplace", "variational"), ("laplace", "adatap"), ("binary01", "exact"), ("gaussian", "lr")],
)
def test_moments_are_the_gradient_of_the_log_likelihood(prior, posterior):
    _, data = _mixture(prior, (3, 2), 30, 0.7, 0)
    model = _begin(prior, (3, 2), data)
    solver = parse_posterior(posterior if posterior == "exact" else f"{posterior}:tol=1e-11")

    def likelihood(mixing):
        changed = Model(mixing, model.noise, model.priors)
        return expectation(changed, data, solver, "none")[0].log_likelihood

    statistics, _ = expectation(model, data, solver, "none")
    analytic = model.noise.times_precision(statistics.cross - model.mixing @ statistics.second)
    numerical = _numerical_gradient(likelihood, model.mixing)
    assert np.abs(analytic - numerical).max() < 1e-5 * np.abs(numerical).max()


@pytest.mark.parametrize("kind", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize(
    ("prior", "posterior"),
    [("laplace", "variational"), ("binary01", "exact"), ("mixture", "variational")],
)
def test_em_never_lowers_a_bound_or_the_likelihood(prior, posterior, kind):
    _, data = _mixture(prior, (3, 2), 200, 0.6, 2)
    model = _begin(prior, (3, 2), data, kind)
    values = _objectives(EMIteration(model, data, parse_posterior(posterior), FREE), "em", 30)
    assert np.diff(values).min() > -1e-9
    assert values[-1] > values[0] + 0.01


@pytest.mark.parametrize("seed", range(4))
def test_em_with_learned_points_never_lowers_the_exact_likelihood(seed):
    """Weights of the points come from the enumerated states, not from fields (HOJ-L7)."""
    rng = np.random.default_rng(seed)
    points = MixturePrior.of([0.2, 0.5, 0.3], [-1.0, 0.0, 2.0], [0.0, 0.0, 0.0])
    sources = np.array([points.sample(rng, 300) for _ in range(3)])
    data = Observations.of(rng.normal(size=(3, 3)) @ sources + 0.5 * rng.normal(size=(3, 300)))
    start = MixturePrior.of([1 / 3] * 3, [-1.0, 0.0, 2.0], [0.0] * 3)
    noise = make_noise("isotropic", data.variances)
    model = Model(rng.normal(size=(3, 3)), noise, (start,) * 3)
    learning = EMIteration(model, data, parse_posterior("exact"), FREE)
    values = _objectives(learning, "em", 25)
    assert np.diff(values).min() > -1e-12
    assert all(p.states is not None for p in learning.model.priors)


@pytest.mark.parametrize("rule", ["nonnegative", "multiplicative"])
def test_nonnegative_em_never_lowers_the_bound(rule):
    rng = np.random.default_rng(3)
    x = rng.uniform(size=(4, 2)) @ rng.exponential(size=(2, 200)) + 0.1 * rng.normal(size=(4, 200))
    data = Observations.of(x)
    model = Model(
        rng.uniform(0.5, 1.0, (4, 2)),
        make_noise("isotropic", data.variances),
        tuple(as_priors("exponential", 2)),
    )
    rules = Rules(rule, GaussianMixing(0.1), "shape")
    learning = EMIteration(model, data, parse_posterior("variational"), rules)
    values = _objectives(learning, "em", 40)
    assert np.diff(values).min() > -1e-9
    assert learning.model.mixing.min() >= 0.0


def test_gaussian_sources_with_linear_response_reach_probabilistic_pca():
    """HOJ-L6 test (a): the closed-form likelihood of PPCA, at whatever rotation."""
    rng = np.random.default_rng(4)
    data = Observations.of(
        rng.normal(size=(5, 2)) @ rng.normal(size=(2, 200)) + 0.5 * rng.normal(size=(5, 200))
    )
    values, vectors = np.linalg.eigh(data.x @ data.x.T / 200)
    level = values[:3].mean()
    signal = vectors[:, 3:] * (values[3:] - level)
    covariance = signal @ vectors[:, 3:].T + level * np.eye(5)
    expected = multivariate_normal(np.zeros(5), covariance).logpdf(data.x.T).mean()
    for posterior, optimiser in (("lr", "em"), ("lr", "over-relaxed"), ("adatap", "lbfgs")):
        learning = EMIteration(
            _begin("gaussian", (5, 2), data), data, parse_posterior(posterior), FREE
        )
        assert _objectives(learning, optimiser, 100)[-1] == pytest.approx(expected, abs=1e-5)


def test_naive_mean_field_orthogonalises_gaussian_columns_and_loses_what_is_too_many():
    rng = np.random.default_rng(5)
    mixing = rng.normal(size=(4, 2))
    data = Observations.of(mixing @ rng.normal(size=(2, 800)) + 0.5 * rng.normal(size=(4, 800)))
    learning = EMIteration(_begin("gaussian", (4, 2), data), data, parse_posterior("naive"), FREE)
    _objectives(learning, "em", 300)
    a, b = learning.model.mixing.T
    assert abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b) < 0.01
    narrow = Observations.of(
        rng.normal(size=(2, 3)) @ rng.normal(size=(3, 800)) + 0.4 * rng.normal(size=(2, 800))
    )
    for posterior, lost in (("naive", True), ("lr", False)):
        learning = EMIteration(
            _begin("gaussian", (2, 3), narrow), narrow, parse_posterior(posterior), FREE
        )
        _objectives(learning, "em", 400)
        smallest = np.linalg.norm(learning.model.mixing, axis=0).min()
        assert (smallest < 0.01) == lost


def test_optimisers_agree_and_the_fast_ones_need_fewer_steps():
    _, data = _mixture("binary", (2, 2), 300, 1.2, 6)  # so much noise that EM is slow
    ends, counts = [], []
    for optimiser in ("em", "over-relaxed", "lbfgs"):
        learning = EMIteration(_begin("binary", (2, 2), data), data, parse_posterior("exact"), FREE)
        learning.begin(optimiser, None, 0)
        while (step := learning.step()) is not None:
            if step.residual < 1e-6 or step.iterations == 2000:
                break
        ends.append(learning.objective)
        counts.append(step.iterations)
    assert max(ends) - min(ends) < 1e-8
    assert counts[1] < 0.8 * counts[0]
    assert counts[2] < 0.8 * counts[0]
    assert counts[0] < 2000


def test_incremental_batches_reach_the_same_bound():
    _, data = _mixture("laplace", (3, 2), 400, 0.4, 7)
    posterior = parse_posterior("variational")
    whole = EMIteration(_begin("laplace", (3, 2), data), data, posterior, FREE)
    _objectives(whole, "em", 400)
    parts = EMIteration(_begin("laplace", (3, 2), data), data, posterior, FREE)
    values = _objectives(parts, "em", 100, batch=50)
    final, _ = expectation(parts.model, data, posterior, "none")
    assert final.log_likelihood / 400 == pytest.approx(whole.objective, abs=1e-5)
    assert np.diff(values[1:]).min() > -1e-4


def test_sums_of_batches_are_those_of_all_samples():
    _, data = _mixture("binary01", (3, 2), 100, 0.4, 8)
    model = _begin("binary01", (3, 2), data, "full")
    posterior = parse_posterior("exact")
    whole, _ = expectation(model, data, posterior, "shape")
    first, _ = expectation(model, data.take(slice(0, 30)), posterior, "shape")
    second, _ = expectation(model, data.take(slice(30, 100)), posterior, "shape")
    total = first.plus(second)
    for name in ("count", "cross", "second", "squares", "counts", "outer", "log_likelihood"):
        assert np.allclose(getattr(total, name), getattr(whole, name))
    one, other = maximisation(model, whole, FREE), maximisation(model, total, FREE)
    assert Chart(one, whole).gradient_of(other) < 1e-10


@pytest.mark.parametrize("kind", ["isotropic", "diagonal"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 2)])
def test_the_step_of_em_in_a_chart_is_the_gradient_there(kind, shape):
    """By finite differences of the energy of adaptive TAP; a small noise does not shrink it."""
    _, data = _mixture("laplace", shape, 200, 0.1, 3)
    model = replace(
        _begin("laplace", shape, data, kind),
        noise=make_noise(kind, 0.02 + np.arange(shape[0]) / 50),
    )
    posterior = parse_posterior("adatap:tol=1e-11")
    statistics, _ = expectation(model, data, posterior, "none")
    chart = Chart(model, statistics)
    point = chart.point(model)

    def value(at):
        return expectation(chart.model(at), data, posterior, "none")[0].log_likelihood

    gradient = chart.gradient(model, statistics, FlatMixing())
    numerical = _numerical_gradient(value, point)
    assert np.allclose(gradient, numerical, rtol=1e-3, atol=1e-3 * np.abs(gradient).max())
    plain = maximisation(model, statistics, FREE)
    mixing_only = replace(plain, noise=model.noise)
    size = np.abs(gradient[: model.mixing.size]).max() / data.count
    assert chart.gradient_of(mixing_only) == pytest.approx(size, rel=0.05)


def test_scoring_reaches_the_optimum_that_lbfgs_reaches():
    _, data = _mixture("laplace", (4, 3), 400, 0.4, 21)
    ends = []
    for optimiser in ("lbfgs", "scoring"):
        learning = EMIteration(
            _begin("laplace", (4, 3), data, "diagonal"), data, parse_posterior("adatap"), FREE
        )
        learning.begin(optimiser, None, 0)
        assert any(learning.step().residual < 1e-4 for _ in range(150))
        ends.append(expectation(learning.model, data, learning.posterior, "none")[0].log_likelihood)
    assert ends[1] == pytest.approx(ends[0], abs=0.01)


# ---------------------------------------------------------------------- missing values


def test_missing_values_are_integrated_out():
    """Gaussian sources: the likelihood of what is observed, and its gradient, are known."""
    rng = np.random.default_rng(9)
    mixing = rng.normal(size=(4, 2))
    x = mixing @ rng.normal(size=(2, 40)) + 0.5 * rng.normal(size=(4, 40))
    x[rng.random(x.shape) < 0.3] = np.nan
    x[0] = np.where(np.isnan(x).all(axis=0), 1.0, x[0])
    data = Observations.of(x)
    noise = make_noise([0.2, 0.3, 0.4, 0.5], np.ones(4))
    model = Model(mixing, noise, tuple(as_priors("gaussian", 2)))

    def exact(matrix):
        total = 0.0
        for column in x.T:
            seen = ~np.isnan(column)
            covariance = matrix[seen] @ matrix[seen].T + np.diag(noise.value[seen])
            total += multivariate_normal(np.zeros(seen.sum()), covariance).logpdf(column[seen])
        return total

    statistics, _ = expectation(model, data, parse_posterior("lr"), "none")
    assert statistics.log_likelihood == pytest.approx(exact(mixing), abs=1e-8)
    pull = np.einsum("di,dij->dj", mixing, statistics.second)
    analytic = noise.times_precision(statistics.cross - pull)
    assert np.allclose(analytic, _numerical_gradient(exact, mixing), atol=1e-4)


def test_em_with_missing_values_is_monotone_and_recovers_the_mixing():
    mixing, data = _mixture("binary", (4, 2), 600, 0.3, 10)
    x = data.x.copy()
    x[np.random.default_rng(11).random(x.shape) < 0.25] = np.nan
    x = x[:, ~np.isnan(x).all(axis=0)]
    holes = Observations.of(x)
    learning = EMIteration(_begin("binary", (4, 2), holes), holes, parse_posterior("exact"), FREE)
    values = _objectives(learning, "em", 80)
    assert np.diff(values).min() > -1e-9
    assert column_angles(learning.model.mixing, mixing).max() < 5.0
    assert learning.model.noise.value == pytest.approx(0.09, rel=0.15)


# ---------------------------------------------------------------------- choosing restarts


def test_restarts_are_not_chosen_by_an_energy_that_prefers_collapse():
    """HOJ-I17: three sparse sources in two sensors with little noise; at a solution with two
    columns the mean field energies are higher than at the truth, the likelihood is not.
    """
    rng = np.random.default_rng(13)
    angles = np.radians([0.0, 60.0, 120.0])
    mixing = np.array([np.cos(angles), np.sin(angles)])
    signal = mixing @ rng.laplace(size=(3, 1000))
    level = 0.02 * signal.var()
    data = Observations.of(signal + math.sqrt(level) * rng.normal(size=signal.shape))
    truth = Model(
        mixing, make_noise("isotropic", np.full(2, level)), tuple(as_priors("laplace", 3))
    )
    naive = parse_posterior("naive")
    learning = EMIteration(truth, data, naive, FREE)
    _objectives(learning, "em", 300)
    lost = learning.model
    assert collapsed_sources(lost)
    energies = [expectation(m, data, naive, "none")[0].log_likelihood for m in (truth, lost)]
    assert energies[1] > energies[0] + 300  # the trap
    lr = parse_posterior("lr")
    assert evidence(truth, data, lr).value > evidence(lost, data, lr).value
    fits = [
        RestartFit(lost, None, True, "converged", energies[1], ()),  # its collapse overlooked
        RestartFit(truth, None, True, "converged", energies[0], ()),
    ]
    assert choose_fit(fits, data, lr)[0].model is truth
    fits[0] = RestartFit(lost, None, True, "converged", energies[1], collapsed_sources(lost))
    assert choose_fit(fits, data, naive)[0].model is truth


def test_discrete_sources_are_compared_by_enumeration():
    mixing, data = _mixture("binary", (2, 2), 100, 1.0, 14)
    model = Model(mixing, make_noise(1.0, np.ones(2)), tuple(as_priors("binary", 2)))
    found = evidence(model, data, parse_posterior("naive"))
    states = np.array([[a, b] for a in (-1, 1) for b in (-1, 1)], dtype=float) @ mixing.T
    densities = [multivariate_normal(c, np.eye(2)).pdf(data.x.T) for c in states]
    assert found.method == "enumeration"
    assert found.value == pytest.approx(np.mean(np.log(np.mean(densities, axis=0))))


def test_what_is_learned_of_priors():
    assert not is_learned(parse_prior("laplace"), "shape")
    assert is_learned(parse_prior("laplace"), "all")
    assert not is_learned(parse_prior("binary01"), "none")
    _, data = _mixture("binary01:rate=0.2", (4, 1), 2000, 0.3, 15)
    learning = EMIteration(_begin("binary01", (4, 1), data), data, parse_posterior("exact"), FREE)
    _objectives(learning, "em", 60)
    rate = learning.model.priors[0].rate
    assert min(rate, 1 - rate) == pytest.approx(0.2, abs=0.03)
    assert learning.model.n_parameters("shape") == 4 + 1 + 1
    assert learning.model.n_parameters("none") == 4 + 1


# ---------------------------------------------------------------------- what is kept


@pytest.mark.parametrize(
    ("options", "precise"),
    [
        ({"prior": "binary01", "posterior": "exact"}, 1e-12),
        ({"prior": "binary01", "posterior": "exact", "solver": "over-relaxed"}, 1e-12),
        ({"posterior": "adatap", "noise": "isotropic"}, 1e-6),
        ({"posterior": "adatap", "noise": "isotropic", "solver": "em"}, 1e-4),
    ],
)
@pytest.mark.parametrize("most", [2, 5, 200])
def test_the_last_objective_is_that_of_the_parameters_kept(options, precise, most):
    rng = np.random.default_rng(3)
    s = rng.integers(0, 2, size=(400, 2)).astype(float)
    x = s @ rng.normal(size=(2, 3)) + 0.4 * rng.normal(size=(400, 3))
    with warnings.catch_warnings(action="ignore"):
        ica = MeanFieldICA(2, max_iter=most, random_state=0, **options).fit(x)
    assert ica.trace_.objective[-1] == pytest.approx(ica.score(x), abs=precise)
    assert ica.restarts_[0].objective == ica.trace_.objective[-1]


@pytest.mark.parametrize("cut_short", [False, True])
def test_a_fit_that_did_not_converge_keeps_its_likeliest_model(cut_short):
    """After a step that made things worse: the model before it; if converged, the last one."""
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 2, size=(300, 2)) @ rng.normal(size=(2, 3))).T
    data = Observations.of(x + 0.3 * rng.normal(size=x.shape))
    priors = tuple(as_priors("binary01", 2))
    model = Model(rng.normal(size=(3, 2)), make_noise("isotropic", data.variances), priors)
    learning = EMIteration(
        model, data, parse_posterior("exact"), Rules("free", FlatMixing(), "all")
    )
    learning.begin("em", None, 0)
    values = [learning.step().objective for _ in range(5)]
    good = learning.model
    learning.step()
    learning.model = worse = replace(good, mixing=3.0 * good.mixing)
    learning.conclude(False, cut_short)
    assert learning.model is good
    assert learning.objective > max(values)
    learning.model = worse
    learning.conclude(True, False)
    assert learning.model is worse
    assert learning.objective < max(values)
