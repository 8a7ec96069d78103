"""How many sources: BIC with the full count, held-out rows, Gaussians without any (HOJ-L8)."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kikuchi.core.errors import MethodError
from kikuchi.ica.mean_field_ica import MeanFieldICA


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
    choice = MeanFieldICA.choose_sources(
        x,
        range(6),
        criterion=criterion,
        prior="binary01",
        posterior="variational",
        restarts=2,
        random_state=0,
    )
    assert choice.n_sources == 3
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
    choice = MeanFieldICA.choose_sources(x, range(3), restarts=2, random_state=0)
    assert choice.n_sources == 0
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
    params = {"prior": "binary01", "posterior": "variational", "restarts": 1, "random_state": 0}
    choice = MeanFieldICA.choose_sources(x, [2, 3, 4], **params)
    assert len(choice.estimators[2].restarts_) == 1
    assert len(choice.estimators[3].restarts_) == 3
    likelihoods = [choice.estimators[k].score(x) for k in (2, 3)]
    assert likelihoods[1] > likelihoods[0]


@pytest.mark.parametrize(
    ("sources", "params", "text"),
    [
        ([], {}, "whole numbers"),
        ([-1, 2], {}, "whole numbers"),
        ([1], {"criterion": "aic"}, "criterion must be one of"),
        ([1], {"n_sources": 2}, "give a range"),
    ],
)
def test_bad_questions_are_refused(sources, params, text):
    with pytest.raises(MethodError, match=text):
        MeanFieldICA.choose_sources(_bits(3), sources, **params)
