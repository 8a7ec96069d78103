"""Fisher scoring (HOJ-L6): gradients of samples, their information, and what fits say of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kikuchi.ica.mean_field_ica import MeanFieldICA
from kikuchi.ica.measures import amari_distance, column_angles, matched_correlation
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.noise import make_noise
from kikuchi.ica.posteriors.importance import ImportancePosterior
from kikuchi.ica.posteriors.posterior import Problem, parse_posterior
from kikuchi.ica.priors.prior import as_priors
from kikuchi.ica.scoring import evaluate, model_at, point_of


def _laplace(seed, shape, count, noise):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=shape)
    s = rng.laplace(size=(count, shape[1]))
    return mixing, s, s @ mixing.T + noise * rng.normal(size=(count, shape[0]))


def _learned(kind, values):
    return replace(make_noise(kind, values), floor=1e-9 * values)


@pytest.mark.parametrize("kind", ["isotropic", "diagonal"])
@pytest.mark.parametrize("missing", [False, True])
def test_the_gradient_is_that_of_the_likelihood(kind, missing):
    """Of Gaussian sources, whose likelihood is known, by finite differences."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 2)) @ rng.normal(size=(2, 50)) + 0.7 * rng.normal(size=(4, 50))
    if missing:
        x[1, :20] = np.nan
    data = Observations.of(x)
    priors = tuple(as_priors("gaussian", 2))
    model = Model(rng.normal(size=(4, 2)), _learned(kind, np.array([0.3, 0.5, 0.4, 0.9])), priors)

    def exact(point):
        at = model_at(model, point)
        whole = at.mixing @ at.mixing.T + np.diag(at.noise.channel_variances(4))
        total = 0.0
        for row in x.T:
            seen = np.flatnonzero(~np.isnan(row))
            part = multivariate_normal(np.zeros(seen.size), whole[np.ix_(seen, seen)])
            total += part.logpdf(row[seen])
        return total / 50

    now = evaluate(model, data, parse_posterior("importance:draws=32,numbered=true"), None)
    point = point_of(model)
    assert now.value == pytest.approx(exact(point), abs=1e-9)
    steps = 1e-6 * now.as_change(np.eye(point.size))
    slopes = [(exact(point + step) - exact(point - step)) / 2e-6 for step in steps.T]
    assert np.allclose(now.gradient, slopes, atol=1e-6)
    assert np.allclose(now.in_chart(now.as_change(np.eye(point.size))), np.eye(point.size))


def test_draws_in_loops_are_those_of_numpy():
    """Two ways to the same weights: compiled for Laplace sources, and for any density."""
    mixing, _, x = _laplace(1, (3, 3), 200, 0.6)
    model = Model(mixing, make_noise(0.36, np.ones(3)), tuple(as_priors("laplace", 3)))
    problem: Problem = model.problem(Observations.of(x.T))
    posterior = ImportancePosterior(draws=4096, tol=1e-8)
    codes = [prior.code for prior in model.priors]
    one, second = posterior._compiled(problem, codes, None, 0)
    other, also = posterior._around_factors(problem, None, 0)
    assert np.allclose(one.gamma, other.gamma, atol=1e-5)
    assert np.abs(one.log_z - other.log_z).mean() < 0.02
    assert np.abs(one.mean - other.mean).mean() < 0.01
    assert np.abs(second - also).mean() < 0.02


def test_at_the_truth_the_optimum_is_one_standard_error_away():
    """So the outer products of gradients are their information, and draws add no bias to it."""
    lengths = []
    for seed in range(4):
        mixing, _, x = _laplace(seed, (5, 4), 4000, 0.7)
        model = Model(
            mixing, _learned("isotropic", np.full(5, 0.49)), tuple(as_priors("laplace", 4))
        )
        posterior = parse_posterior("importance:draws=64,numbered=true")
        now = evaluate(model, Observations.of(x.T), posterior, None)
        step = now.solve(now.gradient)
        lengths.append(4000 * float(now.gradient @ step) / step.size)
    assert 0.7 < np.mean(lengths) < 1.4


def test_standard_errors_of_noise_are_those_that_are_seen():
    errors, said = [], []
    for seed in range(8):
        _, _, x = _laplace(seed, (6, 3), 2000, 0.5)
        ica = MeanFieldICA(3, noise="diagonal", random_state=0).fit(x)
        errors.append(np.log(ica.noise_ / 0.25))
        said.append(ica.noise_error_)
    ratio = np.sqrt(np.mean(np.square(errors)) / np.mean(np.square(said)))
    assert 0.7 < ratio < 1.4


def test_each_sensor_gets_its_noise_only_where_they_differ():
    for noise, kind in ((0.5, "isotropic"), (np.array([0.2, 1.5, 0.6, 1.0, 0.4]), "diagonal")):
        mixing, s, x = _laplace(3, (5, 3), 4000, noise)
        ica = MeanFieldICA(3, random_state=0).fit(x)
        assert ica.model_.noise.kind == kind
        found = ica.model_.noise.channel_variances(5)
        assert found.sum() == pytest.approx(np.square(noise * np.ones(5)).sum(), rel=0.1)
        assert amari_distance(ica.components_, mixing) < 0.03
        assert matched_correlation(ica.transform(x), s).min() > 0.85


def _loud_and_unequal():
    """Mixing, variances of the noise and rows of as many sensors as sources."""
    rng = np.random.default_rng(106)
    rng.integers(4, 11)
    level = rng.uniform(0.05, 1.0, size=7)
    mixing = rng.normal(size=(7, 7))
    s = rng.laplace(size=(10_000, 7))
    noise = level * np.sqrt(2.0 * (mixing**2).sum(axis=1))
    return mixing, np.square(noise), s @ mixing.T + noise * rng.normal(size=s.shape)


@pytest.mark.filterwarnings("ignore:MeanFieldICA")
def test_adapted_priors_leave_sensors_their_own_noise():
    """Laplace sources in noise of some sensors do not pass for smoother sources in less noise."""
    _, noise, x = _loud_and_unequal()
    ica = MeanFieldICA(7, random_state=0).fit(x)
    assert ica.shapes_ == ["laplace"] * 7
    assert ica.model_.noise.kind == "diagonal"
    assert ica.noise_.sum() == pytest.approx(noise.sum(), rel=0.1)


@pytest.mark.filterwarnings("ignore:MeanFieldICA")
def test_sensors_that_a_part_of_the_samples_shows_to_differ_are_tested_with_more():
    """With one variance the loudest noise passes for a source."""
    mixing, noise, x = _loud_and_unequal()
    for kind in ("auto", "diagonal"):
        ica = MeanFieldICA(7, prior="laplace", noise=kind, random_state=0).fit(x)
        assert ica.model_.noise.kind == "diagonal"
        assert ica.noise_.sum() == pytest.approx(noise.sum(), rel=0.1)
        many = ImportancePosterior(draws=4096, numbered=True)
        some = Observations.of((x - ica.mean_).T[:, :2000])
        known = replace(evaluate(ica.model_, some, many, None), count=len(x)).precision()
        told = ica.noise_error_ / known.noise_error  # errors by few draws are a sixth for one
        assert np.median(told) > 0.9 and told.min() > 0.25
        ica.posterior = "importance:draws=2000"
        found = ica.score_samples(x).sum()
        ica.model_ = replace(ica.model_, mixing=mixing, noise=_learned("diagonal", noise))
        assert found > ica.score_samples(x).sum()


def test_the_exponential_of_weights_is_that_of_the_library():
    from kikuchi.engines.sites.kernels.half_line import exponential

    x = -np.concatenate([np.linspace(0.0, 5.0, 400), np.logspace(-12.0, 2.84, 400)])
    found = np.array([exponential(value) for value in x])
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-13)
    assert exponential(-1e4) < 1e-300


def test_noise_that_samples_do_not_tell_is_not_called_found():
    """As many sensors as sources and little noise: its level is a matter of chance."""
    _, _, x = _laplace(5, (3, 3), 2000, 0.05)
    with pytest.warns(UserWarning, match="do not determine the noise"):
        ica = MeanFieldICA(3, random_state=0).fit(x)
    assert not ica.converged_ and ica.stopped_ == "unresolved"
    assert ica.noise_error_[0] > 0.25
    assert ica.doubt_.max() < 0.01


def test_noise_too_low_to_matter_is_not_called_found_either():
    """The mixing has converged whatever the noise is, and its error says that it is not known."""
    mixing, _, x = _laplace(5, (3, 3), 2000, 0.0)
    ica = MeanFieldICA(3, random_state=0).fit(x)
    assert ica.converged_ and ica.warnings_ == []
    assert ica.noise_error_[0] > 0.25
    assert amari_distance(ica.components_, mixing) < 0.02


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore:MeanFieldICA")
def test_sources_that_samples_do_not_tell_apart_are_named(seed):
    """Noise as strong as the signal, as many sensors as sources, few samples."""
    mixing, _, x = _laplace(20 + seed, (4, 4), 600, 0.0)
    x = x + x.std() * np.random.default_rng(seed).normal(size=x.shape)
    ica = MeanFieldICA(4, random_state=0).fit(x)
    assert amari_distance(ica.components_, mixing) > 0.1
    assert not ica.converged_
    if ica.stopped_ == "unresolved":
        assert any("do not tell source" in text for text in ica.warnings_)


@pytest.mark.filterwarnings("ignore:MeanFieldICA")
def test_three_sources_in_two_sensors_with_little_noise():
    """Directions are found; noise is not, and that is said."""
    for seed in range(3):
        rng = np.random.default_rng(500 + seed)
        angles = np.radians(np.array([0.0, 60.0, 120.0]) + rng.uniform(-10, 10, 3))
        mixing = np.array([np.cos(angles), np.sin(angles)])
        x = rng.laplace(size=(5000, 3)) @ mixing.T
        x += 0.05 * x.std() * rng.normal(size=x.shape)
        ica = MeanFieldICA(3, random_state=0).fit(x)
        near = column_angles(ica.mixing_, mixing).max() < 10.0
        level = 0.9 < ica.noise_ / (0.05 * x.std()) ** 2 < 1.1
        assert (near and level) or not ica.converged_


def test_a_file_keeps_how_well_everything_is_known(tmp_path):
    _, _, x = _laplace(7, (4, 2), 1500, 0.4)
    ica = MeanFieldICA(2, random_state=0).fit(x)
    ica.save(tmp_path / "model.npz")
    again = MeanFieldICA.load(tmp_path / "model.npz")
    for name in ("components_", "doubt_", "noise_error_"):
        assert np.array_equal(getattr(again, name), getattr(ica, name))
    assert again.restarts_[0].precision is not None


def test_many_halves_at_once_agree_with_one_at_a_time():
    from kikuchi.engines.sites.kernels.half_line import moments_of_many, scaled

    x = np.concatenate([-np.logspace(4, -3, 200), np.linspace(0.0, 30.0, 100)])
    found = np.empty((3, x.size))
    moments_of_many(x, *found)
    known = np.array([scaled(value) for value in x]).T
    np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("kind", ["isotropic", "diagonal"])
def test_fewer_samples_for_the_information_leave_the_gradient_as_it_is(kind, monkeypatch):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 3)) @ rng.laplace(size=(3, 900)) + 0.5 * rng.normal(size=(4, 900))
    posterior = ImportancePosterior(draws=32, numbered=True)
    model = Model(rng.normal(size=(4, 3)), make_noise(kind, np.ones(4)), as_priors("laplace", 3))
    every = evaluate(model, Observations(x), posterior, None)
    monkeypatch.setattr("kikuchi.ica.scoring._LEAST_ROWS", 100)
    some = evaluate(model, Observations(x), posterior, None)
    np.testing.assert_allclose(some.gradient, every.gradient, rtol=1e-12, atol=1e-12)
    assert not np.allclose(some.information, every.information, rtol=1e-3)
