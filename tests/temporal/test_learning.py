"""Learning of state spaces: monotone EM, gradients, constraints, files (HOJ-M6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from kikuchi.core.errors import KikuchiError
from kikuchi.temporal import (
    HMM,
    FactorialHMM,
    FrameHoppingHMM,
    HaemodynamicHMM,
    LinearGaussianSSM,
    StateSpace,
    TemporalICA,
)
from kikuchi.temporal.sequences import read_sequences
from kikuchi.temporal.state_space.inference import sample_states
from kikuchi.temporal.state_space.learning import (
    StateConstraints,
    expected_statistics,
    gradient,
    maximise,
    pack,
    unpack,
)


def true_model(k: int = 0) -> StateSpace:
    rng = np.random.default_rng(5)
    turn = 0.95 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    return StateSpace(
        turn, rng.normal(size=(3, 2)), 0.3 * np.eye(2), 0.4 * np.eye(3), [0.1, 0.0],
        rng.normal(size=3),
        rng.normal(size=(2, k)) if k else None, rng.normal(size=(3, k)) if k else None,
        initial_covariance=np.eye(2),
    )  # fmt: skip


def data(steps: int = 120, seed: int = 0, k: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(steps, k)) if k else None
    y = sample_states(true_model(k), steps, seed, u)[1]
    y[rng.random(y.shape) < 0.1] = np.nan
    return y, u


CONSTRAINTS = {
    "free": StateConstraints(state_noise="full", output_noise="full"),
    "diagonal": StateConstraints(state_noise="diagonal", output_noise="diagonal"),
    "fixed": StateConstraints(frozenset({"output", "state_noise", "state_offset"})),
    "tied": StateConstraints(
        patterns={"transition": [["a", "b"], ["c", "a"]], "output_offset": ["d", 0.5, "d"]},
        state_noise="isotropic",
        output_noise="isotropic",
    ),
}


def structured(model: StateSpace, c: StateConstraints) -> StateSpace:
    """A model that obeys the constraints: its own packing unpacked."""
    noisy = model.updated(
        state_noise=0.2 * np.eye(2) + 0.1 * (c.state_noise == "full"),
        output_noise=0.5 * np.eye(3) + 0.1 * (c.output_noise == "full"),
    )
    return unpack(noisy, pack(noisy, c), c)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_gradient_is_that_of_finite_differences(name: str) -> None:
    c, (y, u) = CONSTRAINTS[name], data(40, 1, k=1)
    sequences = read_sequences([y, y[:11]])
    inputs = [u, u[:11]]
    model = structured(true_model(1), c)
    at = pack(model, c)
    _, statistics = expected_statistics(model, sequences, inputs)
    slope = gradient(model, statistics, c)
    assert slope.shape == at.shape
    for i in range(len(at)):
        step = np.zeros(len(at))
        step[i] = 1e-5
        high, low = (
            expected_statistics(unpack(model, at + s, c), sequences, inputs)[0]
            for s in (step, -step)
        )
        assert np.isclose(slope[i], (high - low) / 2e-5, rtol=1e-4, atol=1e-3), i


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_em_never_lowers_the_likelihood_and_keeps_constraints(name: str) -> None:
    c, (y, u) = CONSTRAINTS[name], data(60, 2, k=1)
    sequences, inputs = read_sequences([y, y[:20], y[30:]]), [u, u[:20], u[30:]]
    model = structured(true_model(1), c)
    start, values = model, []
    for _ in range(25):
        value, statistics = expected_statistics(model, sequences, inputs)
        values.append(value)
        model = maximise(model, statistics, c)
    assert np.diff(values).min() > -1e-8 * abs(values[0]) and values[-1] > values[0] + 1
    if name == "fixed":
        for kept in ("output", "state_noise", "state_offset"):
            assert np.array_equal(getattr(model, kept), getattr(start, kept))
    if name == "tied":
        a, d = model.transition, model.output_offset
        assert a[0, 0] == a[1, 1] and a[0, 1] != a[1, 0]
        assert d is not None and d[0] == d[2] and d[1] == 0.5
    if name != "free":
        off = model.output_noise - np.diag(np.diagonal(model.output_noise))
        assert not off.any()


def test_both_learners_come_near_the_truth_and_each_other() -> None:
    y, _ = data(800, 3)
    em = LinearGaussianSSM(2, max_iter=300, tol=1e-7, random_state=0).fit(y)
    up = LinearGaussianSSM(2, learner="gradient", max_iter=150, tol=1e-7, random_state=0).fit(y)
    truth = LinearGaussianSSM.from_parameters(true_model()).log_likelihood(y)
    assert em.log_likelihood_ > truth and up.log_likelihood_ > truth
    assert abs(em.log_likelihood_ - up.log_likelihood_) < 3
    angle = np.abs(np.angle(np.linalg.eigvals(em.model_.transition)))
    assert np.allclose(angle, 0.4, atol=0.05)
    assert np.isclose(em.log_likelihood(y), em.log_likelihood_, rtol=1e-6)


def test_flat_start_lists_and_files(tmp_path: Path) -> None:
    y, _ = data(80, 4)
    ssm = LinearGaussianSSM(1, initial="flat", max_iter=15).fit([y[:50], y[50:]])
    assert ssm.model_.is_flat and not ssm.converged_ and "max_iter" in ssm.warnings_[0]
    answers = ssm.smooth([y[:50], y[50:]])
    assert [len(a.mean) for a in answers] == [50, 30]
    assert len(ssm.forecast([y, y], 4)) == 2
    ssm.save(tmp_path / "model.safetensors")
    again = LinearGaussianSSM.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.smooth(y).mean, ssm.smooth(y).mean) and again.model_.is_flat


def test_a_fit_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    y, _ = data(60, 5)
    whole = LinearGaussianSSM(2, max_iter=12, tol=0, random_state=0).fit(y)
    path = tmp_path / "part"
    options: dict[str, Any] = {"tol": 0, "random_state": 0, "checkpoint": path}

    LinearGaussianSSM(2, max_iter=12, seconds=1e-9, **options).fit(y)
    again = LinearGaussianSSM(2, max_iter=12, **options).fit(y)
    assert np.isclose(again.log_likelihood_, whole.log_likelihood_, rtol=1e-12)


def test_one_clear_line_for_bad_data() -> None:
    y, u = data(30, 6, k=1)
    bad = {
        "different width": lambda: LinearGaussianSSM(1).fit([y, y[:, :2]]),
        "is empty": lambda: LinearGaussianSSM(1).fit(y[:0]),
        "1 sample cannot be learnt from": lambda: LinearGaussianSSM(1).fit(y[:1]),
        "no value at all": lambda: LinearGaussianSSM(1).fit(np.where([[1, 0, 1]], y, np.nan)),
        "infinite": lambda: LinearGaussianSSM(1).fit(y * np.inf),
        "rows of inputs": lambda: LinearGaussianSSM(1).fit(y, inputs=u[:9]),
        "needs start": lambda: LinearGaussianSSM(1, fixed=["output"]).fit(y),
        "no parameter 'colour'": lambda: LinearGaussianSSM(
            2, fixed=["colour"], start=true_model()
        ).fit(y),
        "must be in": lambda: LinearGaussianSSM(0).fit(y),
        "the model has none": lambda: LinearGaussianSSM(1, max_iter=2).fit(y).smooth(y, inputs=u),
        "columns, but the model": lambda: LinearGaussianSSM(1, max_iter=2).fit(y).smooth(y[:, :2]),
        "pattern of transition": lambda: LinearGaussianSSM(
            2, patterns={"transition": [["a"]]}, start=true_model()
        ).fit(y),
    }  # fmt: skip
    for message, make in bad.items():
        with pytest.raises(KikuchiError, match=message):
            make()


@pytest.mark.parametrize(
    "estimator",
    [
        HMM(2), FactorialHMM(), FrameHoppingHMM(), HaemodynamicHMM(), TemporalICA(2),
        LinearGaussianSSM(2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)  # fmt: skip
def test_what_was_not_fitted_says_so(estimator: Any) -> None:
    asked = ["filter", "smooth", "score", "log_likelihood"]
    for name in [*asked, "predict"] if hasattr(estimator, "predict") else asked:
        with pytest.raises(NotFittedError):
            getattr(estimator, name)(np.zeros((5, 2)))
    with pytest.raises(NotFittedError):
        estimator.forecast(np.zeros((5, 2)), 3)
    with pytest.raises(NotFittedError):
        estimator.sample(3)
