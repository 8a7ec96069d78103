"""State spaces with tiny, singular or no noise against conditioning in 70 decimal digits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

from kikuchi.core.errors import ModelError
from kikuchi.temporal.state_space.inference import (
    Arithmetic,
    filter_states,
    sample_states,
    smooth_states,
)
from kikuchi.temporal.state_space.parameters import StateSpace, local_level
from kikuchi.temporal.state_space.results import EqualSteps, SmoothedStates

EPSILON = np.finfo(float).eps
TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563281257")
FORMS: tuple[Arithmetic, ...] = ("auto", "covariance", "information", "square-root")


class Exact(NamedTuple):
    filtered_mean: Any
    filtered: Any
    mean: Any
    covariance: Any
    pairs: Any
    log_likelihood: float
    scale: float


def decimals(x: Any) -> Any:
    x = np.asarray(x, dtype=float)
    return np.array([Decimal(v) for v in x.ravel().tolist()], dtype=object).reshape(x.shape)


def exact_states(model: StateSpace, y: Any) -> Exact:
    """All states and outputs as one Gaussian, conditioned on one output after the other; raises
    ZeroDivisionError where an output is determined by those before it.
    """
    with localcontext() as context:
        context.prec = 70
        return _exact(model, y)


def _exact(model: StateSpace, y: Any) -> Exact:
    a, c, q, r = (
        decimals(p) for p in (model.transition, model.output, model.state_noise, model.output_noise)
    )
    steps, n, m = len(y), model.n_states, model.n_outputs
    block = [slice(t * n, (t + 1) * n) for t in range(steps)]
    cov = np.full((steps * n, steps * n), Decimal(0), dtype=object)
    mean = np.full(steps * n, Decimal(0), dtype=object)
    for t in range(steps):
        before = block[t - 1]
        cov[block[t], block[t]] = x = (
            a @ cov[before, before] @ a.T + q if t else decimals(model.initial_covariance)
        )
        mean[block[t]] = a @ mean[before] if t else decimals(model.initial_mean)
        for later in block[t + 1 :]:
            x = a @ x
            cov[later, block[t]], cov[block[t], later] = x, x.T
    scale = float(max(np.diagonal(cov)))
    means, covs, log_z = np.empty((steps, n)), np.empty((steps, n, n)), Decimal(0)
    for t, now in enumerate(block):
        cross = cov[:, now] @ c.T
        s = c @ cov[now, now] @ c.T + r
        e = decimals(y[t]) - c @ mean[now]
        for o in range(m):  # eliminate one output of the step after the other
            pivot = s[o, o]
            if not pivot > Decimal("1e-50"):
                raise ZeroDivisionError
            log_z -= (pivot.ln() + TWO_PI.ln() + e[o] ** 2 / pivot) / 2
            row, column = s[o].copy(), cross[:, o].copy()
            mean = mean + column * (e[o] / pivot)
            cov = cov - np.outer(column, column / pivot)
            cross = cross - np.outer(column, row / pivot)
            e = e - row * (e[o] / pivot)
            s = s - np.outer(row, row / pivot)
        means[t], covs[t] = mean[now].astype(float), cov[now, now].astype(float)
    return Exact(
        means, covs, mean.astype(float).reshape(steps, n),
        np.array([cov[b, b].astype(float) for b in block]),
        np.array([cov[block[t], block[t + 1]].astype(float) for t in range(steps - 1)]),
        float(log_z), scale,
    )  # fmt: skip


def drawn(seed: int, noise: float, rank: int = 0, steps: int = 24) -> tuple[StateSpace, Any]:
    """Three turning states and two outputs: Q = qq' + noise and R = noise, or R = 0 and Q of a rank
    that is exact in binary numbers.
    """
    rng = np.random.default_rng(seed)
    turn = 0.98 * np.linalg.qr(rng.normal(size=(3, 3)))[0]
    c = rng.normal(size=(2, 3))
    q = rng.normal(size=(3, max(rank, 1)))
    q = np.round(8 * q) / 8 if rank else q
    model = StateSpace(
        turn, c, q @ q.T + noise * np.eye(3), noise * np.eye(2), initial_covariance=np.eye(3)
    )
    return model, sample_states(model, steps, seed)[1]


def check(model: StateSpace, y: Any, arithmetic: Arithmetic, exact: Exact, noise: float) -> bool:
    """Whether the form answers; every answer must be right.

    Moments in units of the prior, to 1e-12 (1e-7 for means with tiny noise; 1e-4 for the filter in
    information form, which inverts precisions). The smallest eigenvalue of Q has a relative error
    of EPSILON / noise as a stored number, which is what log-likelihoods can be right to.
    """
    try:
        f, s = (
            filter_states(model, y, arithmetic=arithmetic),
            smooth_states(model, y, arithmetic=arithmetic),
        )
    except ModelError as error:
        assert "digits" in str(error) or "no information form" in str(error)
        return False
    spread = np.sqrt(exact.scale)
    loose = 1e-4 if arithmetic == "information" else 0.0
    assert np.abs(f.mean - exact.filtered_mean).max() < max(1e-7, loose) * spread
    assert np.abs(f.covariance - exact.filtered).max() < max(1e-12, loose) * exact.scale
    assert np.abs(s.mean - exact.mean).max() < 1e-7 * spread
    assert np.abs(s.covariance - exact.covariance).max() < 1e-12 * exact.scale
    assert np.abs(s.pair_covariance - exact.pairs).max() < 1e-12 * exact.scale
    assert np.linalg.eigvalsh(s.covariance).min() > -1e-13 * exact.scale
    assert np.abs(s.deviation**2 - np.diagonal(exact.covariance, axis1=1, axis2=2)).max() < 1e-12
    limit = 1e-9 + 40 * EPSILON / noise if noise else 1e-9
    if arithmetic == "information":
        limit = 1e-2 + 1e-5 * abs(exact.log_likelihood)
    assert abs(f.log_likelihood - exact.log_likelihood) < limit
    assert f.log_likelihood == s.log_likelihood
    return True


@pytest.mark.parametrize("noise", [1e-4, 1e-8, 1e-10, 1e-12, 1e-14])
@pytest.mark.parametrize("seed", [0, 1])
def test_tiny_noise_in_all_forms(seed: int, noise: float) -> None:
    model, y = drawn(seed, noise, steps=9)
    exact = exact_states(model, y)
    for arithmetic in FORMS:
        answered = check(model, y, arithmetic, exact, noise)
        assert answered or arithmetic == "information"
        assert answered or noise < 1e-8


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("seed", [0, 2])
def test_no_output_noise(seed: int, rank: int) -> None:
    model, y = drawn(seed, 0.0, rank, steps=12)
    assert check(model, y, "auto", exact_states(model, y), 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_singular_innovations_are_refused(seed: int) -> None:
    model, y = drawn(seed, 0.0, 1, steps=9)
    with pytest.raises(ModelError, match=r"outputs of step 2 is singular.*output_noise"):
        filter_states(model, y)
    with pytest.raises(ModelError, match="outputs of step 2 is singular"):
        smooth_states(model, y)


def test_singular_innovations_after_a_gap_are_refused() -> None:
    """What is determined stays determined through steps without outputs."""
    model = StateSpace(
        0.9 * np.eye(2), np.eye(2), np.zeros((2, 2)), np.zeros((2, 2)), initial_covariance=np.eye(2)
    )
    y = np.array([[1.0, 2.0], [np.nan, np.nan], [np.nan, 1.62], [0.7, np.nan]])
    assert np.isfinite(filter_states(model, y[:2]).log_likelihood)
    with pytest.raises(ModelError, match="outputs of step 2 is singular"):
        filter_states(model, y)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("first", [1.0, 100.0])
def test_outputs_that_rounding_of_the_noise_determines_are_refused(seed: int, first: float) -> None:
    """Q = qq' + 1e-16 as stored is qq' and rounding, which would decide on a likelihood where the
    output noise is smaller still.
    """
    rng = np.random.default_rng(seed)
    turn, q = np.linalg.qr(rng.normal(size=(3, 3)))[0], rng.uniform(0.5, 2.0, size=(3, 1))
    model = StateSpace(
        turn, rng.normal(size=(3, 3)), q @ q.T + 1e-16 * np.eye(3), 1e-19 * np.eye(3),
        initial_covariance=first * np.eye(3),
    )  # fmt: skip
    y = np.cumsum(rng.normal(size=(9, 3)), axis=0)
    with pytest.raises(ModelError, match=r"outputs of step 1 is singular.*output_noise"):
        filter_states(model, y)


def test_known_zeros_of_the_noise_are_no_rounding() -> None:
    """A trend of constant slope whose level alone has noise, seen twice with little noise."""
    model = StateSpace(
        [[1.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]], np.diag([1.0, 0.0]),
        1e-18 * np.eye(2), initial_covariance=np.eye(2),
    )  # fmt: skip
    y = sample_states(model, 9, 0)[1]
    found, exact = smooth_states(model, y), exact_states(model, y)
    assert abs(found.log_likelihood - exact.log_likelihood) < 1e-5
    assert np.abs(found.covariance - exact.covariance).max() < 1e-12


def test_a_known_start_is_not_hidden_by_later_noise() -> None:
    noise = np.array([[1.0, 0.3], [0.3, 1.0]])
    model = StateSpace(
        np.eye(2), np.eye(2), noise, np.zeros((2, 2)), initial_covariance=1e-20 * np.eye(2)
    )
    y = sample_states(model, 6, 0)[1]
    found = filter_states(model, y).log_likelihood
    assert np.isclose(found, exact_states(model, y).log_likelihood, rtol=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_covariance_form_is_refused_where_it_has_no_digits(threads: int) -> None:
    """Two outputs of one state: all terms of the second one are rounding of the first."""
    rng = np.random.default_rng(0)
    model = StateSpace(
        [[0.98]], rng.normal(size=(2, 1)), [[1.0]], 1e-18 * np.eye(2), initial_covariance=[[1.0]]
    )
    y = sample_states(model, 11, 0)[1]
    y[3, 1] = np.nan
    with pytest.raises(ModelError, match=r"no digits left.*arithmetic='square-root'"):
        filter_states(model, y, arithmetic="covariance", threads=threads)
    assert filter_states(model, y).arithmetic == "square-root"


def test_units_do_not_decide_what_is_singular() -> None:
    """A state in a unit 10^12 times smaller has the same likelihood but for the change of unit."""
    model, y = drawn(0, 1e-2, steps=20)
    unit = np.diag([1.0, 1e12, 1.0])
    back = np.linalg.inv(unit)
    other = StateSpace(
        unit @ model.transition @ back, model.output @ back, unit @ model.state_noise @ unit,
        model.output_noise, initial_covariance=unit @ unit,
    )  # fmt: skip
    one = smooth_states(model, y, arithmetic="square-root")
    two = smooth_states(other, y)
    assert np.isclose(one.log_likelihood, two.log_likelihood, rtol=1e-9)
    assert np.allclose(one.mean, two.mean / np.diag(unit), atol=1e-9)
    assert np.allclose(one.deviation, two.deviation / np.diag(unit), atol=1e-9)


def test_auto_leaves_the_covariance_form_where_it_loses_its_digits() -> None:
    """Both noises regular and 1e-18 of the first variance: subtracted covariances are rounding."""
    rng = np.random.default_rng(0)
    turn = 0.98 * np.linalg.qr(rng.normal(size=(3, 3)))[0]
    model = StateSpace(
        turn, rng.normal(size=(2, 3)), 1e-18 * np.eye(3), 1e-18 * np.eye(2),
        initial_covariance=np.eye(3),
    )  # fmt: skip
    y = sample_states(model, 9, 0)[1]
    with pytest.raises(ModelError, match="square-root"):
        smooth_states(model, y, arithmetic="covariance")
    s, exact = smooth_states(model, y), exact_states(model, y)
    assert s.arithmetic == "square-root"
    assert np.abs(s.covariance - exact.covariance).max() < 1e-7 * exact.covariance.max()
    assert abs(s.log_likelihood - exact.log_likelihood) < 1e-5


def test_information_form_refuses_a_spoilt_likelihood_of_a_flat_prior() -> None:
    rows = 1e3 + np.cumsum(1e-6 * np.random.default_rng(0).normal(size=(400, 1)), axis=0)
    with pytest.raises(ModelError, match=r"digits.*initial_covariance"):
        filter_states(local_level(1e-12, 1e-12), rows)
    filter_states(local_level(1e-12, 1e-12), rows - 1e3)


def test_deviation_does_not_hide_a_negative_variance() -> None:
    matrices = np.array([np.eye(2), [[1.0, 0.0], [0.0, -1e-3]]])
    broken = SmoothedStates(np.zeros((2, 2)), 0.0, "covariance", EqualSteps(matrices),
                            EqualSteps(matrices[:1]))  # fmt: skip
    with pytest.raises(ModelError, match="negative"):
        _ = broken.deviation


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-13, 1e-14])
def test_many_draws_of_tiny_noise(noise: float) -> None:
    for seed in range(25):
        model, y = drawn(seed, noise)
        exact = exact_states(model, y)
        for arithmetic in FORMS:
            assert check(model, y, arithmetic, exact, noise) or arithmetic == "information"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [2, 3])
def test_many_draws_without_output_noise(rank: int) -> None:
    for seed in range(25):
        model, y = drawn(seed, 0.0, rank)
        try:
            exact = exact_states(model, y)
        except ZeroDivisionError:  # two columns of q were drawn dependent
            with pytest.raises(ModelError, match="singular"):
                filter_states(model, y)
            continue
        assert check(model, y, "auto", exact, 0.0)
