"""Estimators of ICA as files: what comes back gives the same answers bit for bit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kikuchi.core.errors import DataError, KikuchiError, MethodError
from kikuchi.ica import PRIORS, BayesianICA, InfomaxICA, MeanFieldICA, parse_prior
from kikuchi.ica.posteriors.exact import ExactPosterior
from kikuchi.ica.priors.closed import LaplacePrior
from kikuchi.ica.priors.designed import DesignedPrior


def data(seed: int = 0, positive: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    sources = rng.exponential(size=(80, 2)) if positive else rng.laplace(size=(80, 2))
    return sources @ rng.normal(size=(2, 3)) + 0.2 * rng.normal(size=(80, 3))


def fitted(estimator: Any, rows: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(rows)


def reloaded(estimator: Any, path: Path) -> Any:
    estimator.save(path)
    again = type(estimator).load(path)
    for name in ("mixing_", "components_", "mean_"):
        assert np.array_equal(getattr(again, name), getattr(estimator, name)), name
    for name in ("n_iter_", "converged_", "stopped_", "warnings_", "n_features_in_"):
        assert getattr(again, name) == getattr(estimator, name), name
    assert again.trace_.objective_name == estimator.trace_.objective_name
    assert np.array_equal(again.trace_.objective, estimator.trace_.objective, equal_nan=True)
    assert list(again.get_feature_names_out()) == list(estimator.get_feature_names_out())
    sources = np.random.default_rng(5).normal(size=(4, estimator.mixing_.shape[1]))
    assert np.array_equal(again.inverse_transform(sources), estimator.inverse_transform(sources))
    return again


@pytest.mark.parametrize("name", list(PRIORS))
def test_mean_field_with_every_prior(name: str, tmp_path: Path) -> None:
    rows = data(positive=parse_prior(name).support == "positive")
    ica = fitted(MeanFieldICA(2, prior=name, max_iter=3, random_state=0), rows)
    again = reloaded(ica, tmp_path / "ica.safetensors")
    assert np.array_equal(again.transform(rows), ica.transform(rows))
    assert [p.text for p in again.priors_] == [p.text for p in ica.priors_]
    assert again.n_parameters() == ica.n_parameters()
    assert again.selection_ == ica.selection_ and again.collapsed_ == ica.collapsed_
    if parse_prior(name).has_log_partition:
        assert np.array_equal(again.score_samples(rows), ica.score_samples(rows))
        one, two = (e.sample(4, random_state=1) for e in (again, ica))
        assert np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1])


@pytest.mark.parametrize("posterior", ["naive", "variational:tol=1e-5", "lr", "adatap", "exact"])
@pytest.mark.parametrize("noise", ["isotropic", "diagonal", "full", 0.05])
def test_mean_field_with_every_posterior_and_noise(
    posterior: str, noise: Any, tmp_path: Path
) -> None:
    rows = data()
    options = {"prior": "binary", "posterior": posterior, "noise": noise, "max_iter": 3}
    ica = fitted(MeanFieldICA(2, random_state=0, **options), rows)
    again = reloaded(ica, tmp_path / "ica.safetensors")
    assert np.array_equal(again.transform(rows), ica.transform(rows))
    assert np.array_equal(again.source_covariance(rows), ica.source_covariance(rows))
    assert np.array_equal(again.noise_, ica.noise_)
    assert again.bic(rows) == ica.bic(rows)


def test_options_given_as_objects_come_back_as_texts(tmp_path: Path) -> None:
    rows = data()
    known = 0.04 * np.eye(3)
    given = {"prior": [LaplacePrior(rate=0.1 + 0.2), "binary"], "noise": known, "max_iter": 2}
    ica = fitted(MeanFieldICA(2, n_init=2, random_state=0, **given), rows)
    again = reloaded(ica, tmp_path / "ica.safetensors")
    assert again.prior == ["laplace:rate=0.30000000000000004", "binary"]
    assert np.array_equal(again.noise, known)
    assert [f.objective for f in again.restarts_] == [f.objective for f in ica.restarts_]
    fitted(again, rows)
    assert np.array_equal(again.mixing_, ica.mixing_)
    exact = fitted(MeanFieldICA(2, prior="binary", posterior=ExactPosterior(max_states=8)), rows)
    assert reloaded(exact, tmp_path / "exact").posterior == "exact:max_states=8"


def test_batches_go_on_after_loading(tmp_path: Path) -> None:
    first, second = np.array_split(data(), 2)
    one = MeanFieldICA(2, random_state=0).partial_fit(first)
    two = reloaded(one, tmp_path / "ica.safetensors")
    assert np.array_equal(one.partial_fit(second).mixing_, two.partial_fit(second).mixing_)


def test_what_cannot_be_saved_or_loaded_is_one_clear_line(tmp_path: Path) -> None:
    def shrink(gamma: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = np.sqrt(gamma**2 + lam)
        return gamma / lam - gamma / root / lam**0.5, 1 / lam - lam**0.5 / root**3

    rows, path = data(), tmp_path / "ica.safetensors"
    ica = fitted(MeanFieldICA(2, prior=DesignedPrior(shrink), max_iter=2), rows)
    with pytest.raises(MethodError, match="prior designed, whose functions no file can hold") as e:
        ica.save(path)
    assert "\n" not in str(e.value) and not path.exists()
    fitted(InfomaxICA(), rows).save(path)
    with pytest.raises(DataError, match="contains InfomaxICA, not BayesianICA"):
        BayesianICA.load(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(KikuchiError, match="cannot be read"):
        InfomaxICA.load(path)
