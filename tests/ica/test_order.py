"""How many sources: BIC with the full count, held-out rows, Gaussians without any (HOJ-L8)."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kikuchi.core.errors import MethodError
from kikuchi.ica.mean_field_ica import MeanFieldICA
from kikuchi.ica.order import _split
from kikuchi.ica.priors.closed import ExponentialPrior


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _bits(seed, sources=3, channels=20, count=300):
    rng = np.random.default_rng(seed)
    bits = (rng.random((count, sources)) < rng.uniform(0.25, 0.75, sources)).astype(float)
    return bits @ rng.normal(size=(sources, channels)) + rng.normal(size=(count, channels))


@pytest.mark.parametrize("criterion", ["bic", "held-out"])
def test_the_right_number_of_binary_sources_is_chosen(criterion):
    x = _bits(0)
    ica = MeanFieldICA(prior="binary01", posterior="variational", n_init=2, random_state=0)
    choice = ica.choose_sources(x, range(6), criterion=criterion)
    assert choice.n_components == 3
    assert choice.best is choice.estimators[3]
    assert sorted(choice.values) == list(range(6))
    if criterion == "bic":
        fit = choice.best
        assert choice.values[3] == pytest.approx(-0.5 * fit.bic(x))
        assert fit.n_parameters() == 20 * 3 + 3 + 1
        assert choice.probabilities[3] > 0.99
        assert choice.averages[3] <= choice.values[3] + 1.0
    else:
        with pytest.raises(MethodError, match="criterion='bic'"):
            choice.probabilities  # noqa: B018


def test_noise_has_no_sources():
    x = np.random.default_rng(1).normal(size=(300, 5))
    choice = MeanFieldICA(n_init=2, random_state=0).choose_sources(x, range(3))
    assert choice.n_components == 0
    assert choice.best is None
    centred = x - x.mean(axis=0)
    variance = np.mean(centred**2)
    level = multivariate_normal(np.zeros(5), variance * np.eye(5)).logpdf(centred).sum()
    assert choice.null_models["isotropic"] == pytest.approx(level - 0.5 * math.log(300))
    covariance = centred.T @ centred / 300
    free = multivariate_normal(np.zeros(5), covariance).logpdf(centred).sum()
    assert choice.null_models["covariance"] == pytest.approx(free - 7.5 * math.log(300))
    assert choice.values[0] == max(choice.null_models.values())


def test_larger_models_also_start_from_smaller_ones():
    x = _bits(2)
    params = {"prior": "binary01", "posterior": "variational", "n_init": 1, "random_state": 0}
    choice = MeanFieldICA(**params).choose_sources(x, [2, 3, 4])
    assert len(choice.estimators[2].restarts_) == 1
    assert len(choice.estimators[3].restarts_) == 3
    likelihoods = [choice.estimators[k].score(x) for k in (2, 3)]
    assert likelihoods[1] > likelihoods[0]


def test_rows_are_held_out_from_gaussians_as_well():
    """Rows far from 0: the Gaussians see them centred, as the fits do."""
    x = np.random.default_rng(4).normal(size=(200, 3)) * [1.0, 2.0, 3.0] + 50.0
    params = {"n_init": 1, "random_state": 0, "max_iter": 20}
    choice = MeanFieldICA(**params).choose_sources(x, [0, 1], criterion="held-out")
    train, test = _split(x, "held-out", int(np.random.RandomState(0).randint(2**31 - 1)))
    mean = train.mean(axis=0)
    for name, covariance in (
        ("isotropic", np.mean((train - mean) ** 2) * np.eye(3)),
        ("covariance", (train - mean).T @ (train - mean) / len(train)),
    ):
        expected = multivariate_normal(mean, covariance).logpdf(test).mean()
        assert choice.null_models[name] == pytest.approx(expected)
    assert choice.values[0] == max(choice.null_models.values())


@pytest.mark.parametrize("prior", ["exponential", ExponentialPrior(), ["exponential"]])
def test_gaussians_are_centred_where_the_fits_are(prior):
    x = 5.0 + np.random.default_rng(5).normal(size=(100, 2))
    choice = MeanFieldICA(prior=prior, max_iter=3).choose_sources(x, [0, 1])
    assert np.array_equal(choice.estimators[1].mean_, np.zeros(2))
    level = multivariate_normal(np.zeros(2), np.mean(x**2) * np.eye(2)).logpdf(x).sum()
    assert choice.null_models["isotropic"] == pytest.approx(level - 0.5 * math.log(100))


@pytest.mark.parametrize("criterion", ["bic", "held-out"])
def test_a_singular_covariance_is_no_model(criterion):
    """Channels that add up to 0, as after a common reference: its density would be infinite."""
    x = np.random.default_rng(6).laplace(size=(100, 4))
    x -= x.mean(axis=1, keepdims=True)
    params = {"n_init": 1, "max_iter": 3, "random_state": 0}
    choice = MeanFieldICA(**params).choose_sources(x, [0, 2], criterion=criterion)
    assert list(choice.null_models) == ["isotropic"]
    assert np.isfinite(list(choice.values.values())).all()


def test_missing_values_leave_the_isotropic_gaussian():
    x = np.random.default_rng(7).laplace(size=(100, 3))
    x[3, 1] = np.nan
    params = {"missing": "hidden", "n_init": 1, "max_iter": 3, "random_state": 0}
    choice = MeanFieldICA(**params).choose_sources(x, [0, 1])
    centred = x - np.nanmean(x, axis=0)
    variance = np.nanmean(centred**2)
    assert list(choice.null_models) == ["isotropic"]
    expected = -0.5 * 299 * (1 + math.log(2 * math.pi * variance)) - 0.5 * math.log(100)
    assert choice.null_models["isotropic"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sources", "params", "criterion", "text"),
    [
        ([], {}, "bic", "whole numbers"),
        ([-1, 2], {}, "bic", "whole numbers"),
        ([1.5], {}, "bic", "whole numbers"),
        (3, {}, "bic", "whole numbers"),
        ([1], {"prior": "power-law"}, "bic", "no likelihood to choose"),
        ([1], {}, "aic", "criterion must be one of"),
    ],
)
def test_bad_questions_are_refused(sources, params, criterion, text):
    with pytest.raises(MethodError, match=text):
        MeanFieldICA(**params).choose_sources(_bits(3), sources, criterion)


# ---------------------------------------------------------------------- options


def test_every_number_is_fitted_with_the_options_of_the_estimator():
    x = np.random.default_rng(8).uniform(-1, 1, size=(200, 3))
    ica = MeanFieldICA(5, prior="uniform", noise="isotropic", max_iter=3, random_state=4)
    first, second = (ica.choose_sources(x, [1, 2]) for _ in range(2))
    assert not hasattr(ica, "mixing_")
    assert ica.n_components == 5
    for count, fit in first.estimators.items():
        assert fit.n_components == count
        assert {p.name for p in fit.priors_} == {"uniform"}
        assert np.ndim(fit.noise_) == 0
        assert (fit.noise, fit.max_iter) == ("isotropic", 3)
        assert np.array_equal(fit.mixing_, second.estimators[count].mixing_)
    assert first.values == second.values


def test_seeds_of_all_kinds_choose_sources():
    x = _bits(9, sources=1, channels=3, count=60)
    for seed in (np.random.default_rng(0), np.random.RandomState(0), None):
        ica = MeanFieldICA(prior="binary01", max_iter=2, random_state=seed)
        assert list(ica.choose_sources(x, [1]).values) == [1]
    with pytest.raises(MethodError, match="random_state must be"):
        MeanFieldICA(random_state="one").choose_sources(x, [1])


def test_on_the_class_the_right_call_is_named():
    right = r"write MeanFieldICA\(\.\.\.\)\.choose_sources"
    for options in ({}, {"prior": "uniform", "random_state": 0}):
        with pytest.raises(MethodError, match=right):
            MeanFieldICA.choose_sources(_bits(3), [1], **options)
