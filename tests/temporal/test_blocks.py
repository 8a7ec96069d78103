"""Blocks of time side by side equal the sequential recursions (HOJ-I6, HOJ-I7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kikuchi.core.errors import KikuchiError, MethodError, ModelError
from kikuchi.core.parallel import map_threads
from kikuchi.temporal import LinearGaussianSSM, StateSpace, filter_states, smooth_states
from kikuchi.temporal.state_space.inference import sample_states

STEPS = 1400


def model(kind: str) -> StateSpace:
    rng = np.random.default_rng(3)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    c = rng.normal(size=(2, 4))
    a: Any = 0.95 * turn
    if kind == "never forgets":  # two walks that no output sees
        a, c = np.eye(4), np.eye(2, 4)
    if kind == "unstable":
        a = 1.002 * turn
    if kind == "varying":
        a = a * rng.uniform(0.7, 1.0, size=(STEPS, 1, 1))
        c = c * rng.uniform(0.5, 2.0, size=(STEPS, 1, 1))
    return StateSpace(
        a, c, 0.1 * np.eye(4), np.diag([1.0, 0.3]), initial_covariance=np.eye(4),
        state_offset=np.full(4, 0.1),
    )  # fmt: skip


def far(one: Any, other: Any) -> float:
    return float(np.abs(one - other).max() / np.abs(one).max())


@pytest.mark.parametrize("kind", ["forgets", "never forgets", "unstable", "varying"])
@pytest.mark.parametrize("threads", [2, 5])
def test_equal_to_the_sequential_recursions(kind: str, threads: int) -> None:
    space = model(kind)
    y = sample_states(space, STEPS, 0)[1]
    y[np.random.default_rng(1).random(y.shape) < 0.1] = np.nan
    f, g = (filter_states(space, y, steady=False, threads=k) for k in (1, threads))
    assert far(f.mean, g.mean) < 1e-9
    assert far(f.covariance, g.covariance) < 1e-9
    assert abs(f.log_likelihood - g.log_likelihood) < 1e-9 * abs(f.log_likelihood)
    s, r = (smooth_states(space, y, steady=False, threads=k) for k in (1, threads))
    assert far(s.mean, r.mean) < 1e-9
    assert far(s.covariance, r.covariance) < 1e-9
    assert far(s.pair_covariance, r.pair_covariance) < 1e-9
    assert r.log_likelihood == g.log_likelihood


def test_inputs_and_the_estimator() -> None:
    rng = np.random.default_rng(0)
    space = model("forgets").updated(
        state_input=rng.normal(size=(4, 1)), output_input=np.zeros((2, 1))
    )
    ssm = LinearGaussianSSM.from_parameters(space)
    u = rng.normal(size=(STEPS, 1))
    y = ssm.sample(STEPS, inputs=u, random_state=0)
    one = ssm.smooth(y, inputs=u, steady=False)
    two = ssm.smooth(y, inputs=u, steady=False, threads=2)
    assert far(one.mean, two.mean) < 1e-9
    steady = ssm.filter(y, inputs=u, threads=2)  # constant: one thread, means only
    assert steady.steady < STEPS


def test_what_threads_cannot_do() -> None:
    space, y = model("forgets"), np.zeros((600, 2))
    with pytest.raises(MethodError, match="flat prior"):
        filter_states(space.updated(initial_covariance=None), y, threads=2)
    with pytest.raises(MethodError, match="at least 1"):
        filter_states(space, y, threads=0)
    with pytest.raises(KikuchiError, match="at least 1"):
        map_threads(abs, [1, 2], 0)
    stuck = StateSpace(  # a state without noise that is known: nothing to smooth by covariances
        np.eye(2), np.ones((1, 2)), np.diag([1.0, 0.0]), [[1.0]],
        initial_covariance=np.diag([1.0, 0.0]),
    )  # fmt: skip
    with pytest.raises(ModelError, match="square-root"):
        smooth_states(stuck, np.zeros((600, 1)), arithmetic="covariance", steady=False, threads=2)


def test_an_error_in_a_thread_is_raised() -> None:
    def divide(x: int) -> float:
        return 1 / x

    with pytest.raises(ZeroDivisionError):
        map_threads(divide, [1, 0, 2], 2)
