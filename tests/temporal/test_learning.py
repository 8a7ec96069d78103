"""Learning of state spaces: monotone EM, gradients, constraints, files (HOJ-M6)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from kikuchi.core.errors import KikuchiError, ModelError
from kikuchi.engines.loops.state import Held
from kikuchi.temporal import (
    LinearGaussianSSM,
    StateSpace,
)
from kikuchi.temporal.ascent import SeriesEM
from kikuchi.temporal.sequences import read_sequences
from kikuchi.temporal.state_space.coordinates import gradient, pack, unpack
from kikuchi.temporal.state_space.inference import filter_states, sample_states
from kikuchi.temporal.state_space.learning import (
    StateConstraints,
    expected_statistics,
    maximise,
    noise_covariance,
)
from kikuchi.temporal.state_space.parameters import local_level


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


FIRST = ("fixed", "mean", "noise", "free", "flat")


def first_state(
    name: str, first: Any, k: int = 1
) -> tuple[StateSpace, StateConstraints, Callable[[StateSpace, Any, Any], float]]:
    """A model, constraints with this way to learn the first state, and what is maximised."""
    c = replace(CONSTRAINTS[name], first="noise" if first == "flat" else first)
    model = structured(true_model(k), c)
    if first == "flat":
        model = model.updated(initial_covariance=None)

    def objective(m: StateSpace, sequences: Any, inputs: Any) -> float:
        value = expected_statistics(m, sequences, inputs)[0]
        if first != "flat":
            return value
        steps = [np.linalg.matrix_power(m.transition, j) for j in range(m.n_states)]
        spread = sum(a @ m.state_noise @ a.T for a in steps)
        return value - 0.5 * len(inputs) * np.linalg.slogdet(2 * np.pi * spread)[1]

    return model, c, objective


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_gradient_is_that_of_finite_differences(name: str, first: str) -> None:
    y, u = data(40, 1, k=1)
    model, c, objective = first_state(name, first)
    sequences, inputs = read_sequences([y, y[:11], y[20:]]), [u, u[:11], u[20:]]
    at = pack(model, c)
    _, statistics = expected_statistics(model, sequences, inputs)
    slope = gradient(model, statistics, c)
    assert slope.shape == at.shape
    for i in range(len(at)):
        step = np.zeros(len(at))
        step[i] = 1e-5
        high, low = (objective(unpack(model, at + s, c), sequences, inputs) for s in (step, -step))
        assert np.isclose(slope[i], (high - low) / 2e-5, rtol=1e-6, atol=1e-5), i


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_em_never_lowers_the_likelihood_and_keeps_constraints(name: str, first: str) -> None:
    y, u = data(60, 2, k=1)
    sequences, inputs = read_sequences([y, y[:20], y[30:]]), [u, u[:20], u[30:]]
    model, c, objective = first_state(name, first)
    start, values = model, []
    for _ in range(25):
        values.append(objective(model, sequences, inputs))
        model = maximise(model, expected_statistics(model, sequences, inputs)[1], c)
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


def wandering(state: int = 1, steps: int = 200) -> Any:
    """A series that the noise of so many states explains alone."""
    rng, out = np.random.default_rng(0), np.zeros((steps, 1))
    for t in range(2, steps):
        before = out[t - 1] if state == 1 else 1.6 * out[t - 1] - 0.7 * out[t - 2]
        out[t] = before + rng.normal(size=1) / 8
    return out + 5.0


@pytest.mark.parametrize("initial", ["learnt", "flat"])
@pytest.mark.parametrize("state", [1, 2])
def test_the_unit_of_the_state_does_not_raise_the_likelihood(state: int, initial: Any) -> None:
    """Output noise tends to zero here; with a first state in a unit of its own the density of the
    first row would grow with it, and so would the state noise.
    """
    y = wandering(state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rounding may end the climb
        em, up = (
            LinearGaussianSSM(
                state, learner=learner, initial=initial, tol=1e-9, max_iter=400, random_state=0
            ).fit(y)
            for learner in ("em", "gradient")
        )
    assert abs(em.trace_.objective[-1] - up.trace_.objective[-1]) < 1.5
    assert np.diagonal(up.model_.state_noise).max() < 1e3
    if initial == "learnt":  # the largest log-density of a row with deviation 1/8 is 1.16
        for fit in (em, up):
            assert filter_states(fit.model_, y[:state]).log_likelihood < 1.5 * state


@pytest.mark.parametrize("first", ["noise", "free", "flat"])
def test_what_is_maximised_does_not_depend_on_the_unit(first: str) -> None:
    y, u = data(40, 1, k=1)
    model, c, objective = first_state("free", first)
    unit = np.array([[20.0, 3.0], [-1.0, 0.1]])
    back = np.linalg.inv(unit)
    other = model.updated(
        transition=unit @ model.transition @ back, output=model.output @ back,
        state_noise=unit @ model.state_noise @ unit.T, state_offset=unit @ model.state_offset,
        state_input=unit @ model.state_input, initial_mean=unit @ model.initial_mean,
        initial_covariance=None if first == "flat" else unit @ model.initial_covariance @ unit.T,
    )  # fmt: skip
    one, two = (
        objective(unpack(m, pack(m, c), c), read_sequences([y]), [u]) for m in (model, other)
    )
    assert np.isclose(one, two, rtol=1e-9)


def test_the_first_covariance_is_learnt_from_more_sequences_than_states() -> None:
    y, _ = data(60, 8)
    fits = [
        LinearGaussianSSM(2, learner=learner, max_iter=30, random_state=0).fit([y, y[:30], y[30:]])
        for learner in ("em", "gradient")
    ]
    for fit in fits:
        found = fit.model_.initial_covariance
        assert not np.allclose(found, np.eye(2), atol=1e-3)
        assert not np.allclose(
            found, noise_covariance(fit.model_.transition, fit.model_.state_noise)
        )
    one = LinearGaussianSSM(2, max_iter=3, random_state=0).fit(y).model_
    assert np.allclose(one.initial_covariance, noise_covariance(one.transition, one.state_noise))


def test_a_pinned_unit_keeps_the_first_covariance() -> None:
    y = wandering(steps=40)
    start = local_level(0.1, 0.1).updated(initial_covariance=[[7.0]])
    pinned: list[dict[str, Any]] = [
        {"fixed": ["output"]}, {"fixed": ["state_noise"]}, {"fixed": ["initial_covariance"]},
        {"patterns": {"output": [[1.0]]}},
    ]  # fmt: skip
    for options in pinned:
        fit = LinearGaussianSSM(1, start=start, max_iter=3, **options).fit(y)
        assert fit.model_.initial_covariance == [[7.0]]
    with pytest.raises(KikuchiError, match=r"give start and fixed=\['output'\]"):
        LinearGaussianSSM(1, initial="fixed", start=start).fit(y)
    fit = LinearGaussianSSM(1, initial="fixed", start=start, fixed=["output"], max_iter=3).fit(y)
    assert fit.model_.initial_mean == [0.0] and fit.model_.initial_covariance == [[7.0]]


@pytest.mark.parametrize("learner", ["em", "gradient"])
def test_a_large_offset_does_not_change_the_fit(learner: Any) -> None:
    y = np.round(64 * data(80, 9)[0]) / 64
    near, far = (
        LinearGaussianSSM(2, learner=learner, max_iter=15, random_state=0).fit(y + offset)
        for offset in (0.0, 2.0**30)
    )
    assert np.isclose(near.log_likelihood_, far.log_likelihood_, rtol=1e-3)
    assert np.allclose(near.model_.output_noise, far.model_.output_noise, rtol=1e-2)


def test_both_learners_come_near_the_truth_and_each_other() -> None:
    y, _ = data(800, 3)
    em = LinearGaussianSSM(2, max_iter=300, tol=1e-7, random_state=0).fit(y)
    up = LinearGaussianSSM(2, learner="gradient", max_iter=150, tol=1e-7, random_state=0).fit(y)
    truth = LinearGaussianSSM.from_parameters(true_model()).filter(y).log_likelihood
    assert em.log_likelihood_ > truth and up.log_likelihood_ > truth
    assert abs(em.log_likelihood_ - up.log_likelihood_) < 3
    angle = np.abs(np.angle(np.linalg.eigvals(em.model_.transition)))
    assert np.allclose(angle, 0.4, atol=0.05)
    assert np.isclose(em.filter(y).log_likelihood, em.log_likelihood_, rtol=1e-6)


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


def test_one_clear_line_for_bad_data() -> None:
    y, u = data(30, 6, k=1)
    bad = {
        "different width": lambda: LinearGaussianSSM(1).fit([y, y[:, :2]]),
        "is empty": lambda: LinearGaussianSSM(1).fit(y[:0]),
        "at least 2 rows are needed": lambda: LinearGaussianSSM(1).fit(y[:1]),
        "no value at all": lambda: LinearGaussianSSM(1).fit(np.where([[1, 0, 1]], y, np.nan)),
        "infinite": lambda: LinearGaussianSSM(1).fit(y * np.inf),
        "rows of inputs": lambda: LinearGaussianSSM(1).fit(y, inputs=u[:9]),
        "needs start": lambda: LinearGaussianSSM(1, fixed=["output"]).fit(y),
        "no parameter 'colour'": lambda: LinearGaussianSSM(
            2, fixed=["colour"], start=true_model()
        ).fit(y),
        "must be in": lambda: LinearGaussianSSM(0).fit(y),
        "the model has none": lambda: LinearGaussianSSM(1, max_iter=2).fit(y).smooth(y, inputs=u),
        "X has 2 features, but": lambda: LinearGaussianSSM(1, max_iter=2).fit(y).smooth(y[:, :2]),
        "pattern of transition": lambda: LinearGaussianSSM(
            2, patterns={"transition": [["a"]]}, start=true_model()
        ).fit(y),
    }  # fmt: skip
    for message, make in bad.items():
        with pytest.raises(KikuchiError, match=message):
            make()


# ---------------------------------------------------------------------- flat priors


def noisy_process(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    x = np.zeros(200)
    for t in range(1, 200):
        x[t] = 0.9 * x[t - 1] + rng.normal()
    return (x + 1.5 * rng.normal(size=200))[:, None]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("learner", ["em", "gradient"])
def test_a_flat_prior_with_learnt_dynamics_is_doubted(seed: int, learner: Any) -> None:
    """Its likelihood grows without limit as outputs lose sight of the first state, up to where
    rounding takes over: the fit ends there without falling, and is not called converged.
    """
    y = noisy_process(seed)
    options: dict[str, Any] = {"learner": learner, "tol": 1e-8, "max_iter": 600, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = LinearGaussianSSM(2, initial="flat", **options).fit(y)
    assert "has no maximum" in fit.warnings_[-1]
    assert (np.diff(fit.trace_.objective) > -1e-3).all()
    assert np.isclose(fit.filter(y).log_likelihood, fit.log_likelihood_, rtol=1e-6)


def test_a_flat_prior_with_known_dynamics_is_not_doubted() -> None:
    start = StateSpace([[1.0]], [[1.0]], [[0.5]], [[1.0]])
    fit = LinearGaussianSSM(
        1, start=start, fixed=["transition", "output", "state_offset", "output_offset"],
        initial="flat", tol=1e-4, random_state=0,
    ).fit(noisy_process(0))  # fmt: skip
    assert fit.converged_ and not fit.warnings_


def test_an_iteration_that_fails_keeps_the_parameters_before_it() -> None:
    def expectation(model: Any) -> tuple[float, Any]:
        if model.level >= 3:
            raise ModelError("too high")
        return float(model.level), model.level

    class Level:
        def __init__(self, level: int) -> None:
            self.level = level

    em: Any = SeriesEM(Held(Level(0), Level), expectation, lambda m, s: Level(s + 1))
    assert [em.step().objective for _ in range(3)] == [0.0, 1.0, 2.0]
    assert em.step() is None
    assert em.now.level == 2 and em.failure == "too high"
    em = SeriesEM(Held(Level(5), Level), expectation, lambda m, s: m)
    with pytest.raises(ModelError, match="too high"):
        em.step()
