"""Filter and smoother of state spaces against dense joint Gaussians (HOJ-M6, HOJ-I6, HOJ-I7)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kikuchi.core.errors import KikuchiError
from kikuchi.temporal import LaplaceWalks, MomentSSM
from kikuchi.temporal.gaussian import CanonicalGaussian, MomentGaussian
from kikuchi.temporal.kernels import covariance, information, square_root
from kikuchi.temporal.moments.temporal_ica import walk_posterior
from kikuchi.temporal.state_space.inference import (
    filter_states,
    forecast_states,
    sample_states,
    smooth_states,
)
from kikuchi.temporal.state_space.parameters import (
    StateSpace,
    autoregression,
    factor_analysis,
    local_level,
    probabilistic_pca,
)


def random_model(
    seed: int, n: int = 3, m: int = 2, k: int = 0, steps: int = 0, flat: bool = False
) -> StateSpace:
    """Random parameters; with `steps` each of them differs from step to step."""
    rng = np.random.default_rng(seed)
    lead = (steps,) if steps else ()

    def positive(size: int, *shape: int) -> Any:
        root = rng.normal(size=(*shape, size, size + 2))
        return root @ np.swapaxes(root, -1, -2) / size

    return StateSpace(
        0.5 * rng.normal(size=(*lead, n, n)),
        rng.normal(size=(*lead, m, n)),
        positive(n, *lead),
        positive(m, *lead),
        rng.normal(size=(*lead, n)),
        rng.normal(size=(*lead, m)),
        rng.normal(size=(n, k)) if k else None,
        rng.normal(size=(m, k)) if k else None,
        rng.normal(size=n),
        None if flat else positive(n),
    )


def at(value: Any, t: int, axes: int) -> Any:
    return value[t] if np.ndim(value) > axes else value


def dense_states(model: StateSpace, y: Any, u: Any = None) -> tuple[Any, Any, float]:
    """Mean and covariance of all states given all outputs by one dense block-tridiagonal solve, and
    log p(y) (density against a flat prior of height 1, if the model has one).
    """
    steps, n = len(y), model.n_states
    u = np.zeros((steps, model.n_inputs)) if u is None else u
    precision, shift, constant = np.zeros((steps * n, steps * n)), np.zeros(steps * n), 0.0
    block = lambda t: slice(t * n, (t + 1) * n)  # noqa: E731
    if model.initial_covariance is not None:
        inverse = np.linalg.inv(model.initial_covariance)
        precision[block(0), block(0)] += inverse
        shift[block(0)] += inverse @ model.initial_mean
        constant += -0.5 * model.initial_mean @ inverse @ model.initial_mean
        constant += -0.5 * np.linalg.slogdet(2 * np.pi * model.initial_covariance)[1]
    for t in range(steps):
        if t:
            a, q = at(model.transition, t, 2), np.linalg.inv(at(model.state_noise, t, 2))
            b = at(model.state_offset, t, 1) + model.state_input @ u[t]
            now, before = block(t), block(t - 1)
            precision[now, now] += q
            precision[before, before] += a.T @ q @ a
            precision[now, before] -= q @ a
            precision[before, now] -= a.T @ q
            shift[now] += q @ b
            shift[before] -= a.T @ q @ b
            constant += -0.5 * (b @ q @ b + np.linalg.slogdet(2 * np.pi * np.linalg.inv(q))[1])
        seen = ~np.isnan(y[t])
        c = at(model.output, t, 2)[seen]
        r = at(model.output_noise, t, 2)[np.ix_(seen, seen)]
        e = y[t, seen] - (at(model.output_offset, t, 1) + model.output_input @ u[t])[seen]
        weight = np.linalg.inv(r) if seen.any() else r
        precision[block(t), block(t)] += c.T @ weight @ c
        shift[block(t)] += c.T @ weight @ e
        constant += -0.5 * (e @ weight @ e + np.linalg.slogdet(2 * np.pi * r)[1])
    covariance = np.linalg.inv(precision)
    mean = covariance @ shift
    log_z = constant + 0.5 * shift @ mean - 0.5 * np.linalg.slogdet(precision / (2 * np.pi))[1]
    return mean.reshape(steps, n), covariance, float(log_z)


def with_gaps(rng: np.random.Generator, y: Any) -> Any:
    y = y.copy()
    y[rng.random(y.shape) < 0.25] = np.nan
    y[len(y) // 2] = np.nan
    return y


CASES = {
    "constant": {},
    "varying": {"steps": 9},
    "inputs": {"k": 2},
    "flat": {"flat": True},
    "varying and flat": {"steps": 9, "flat": True},
    "one state": {"n": 1, "m": 3},
}


@pytest.mark.parametrize("arithmetic", ["covariance", "information", "square-root"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("gaps", [False, True])
def test_smoother_equals_a_dense_solve(case: str, arithmetic: str, gaps: bool) -> None:
    # HOJ-I7
    options: dict[str, Any] = CASES[case]
    if options.get("flat") and arithmetic != "information":
        pytest.skip("a flat prior has the information form only")
    model, steps = random_model(3, **options), 9
    rng = np.random.default_rng(4)
    y = rng.normal(size=(steps, model.n_outputs)) * 2
    u = rng.normal(size=(steps, model.n_inputs)) if model.n_inputs else None
    y = with_gaps(rng, y) if gaps else y
    s = smooth_states(model, y, u, arithmetic=arithmetic)
    mean, covariance, log_z = dense_states(model, y, u)
    n = model.n_states
    assert np.abs(s.mean - mean).max() < 1e-9 * max(1, np.abs(mean).max())
    for t in range(steps):
        block = covariance[t * n : (t + 1) * n, t * n : (t + 1) * n]
        assert np.abs(s.covariance[t] - block).max() < 1e-9 * max(1, np.abs(covariance).max())
        if t + 1 < steps:
            pair = covariance[t * n : (t + 1) * n, (t + 1) * n : (t + 2) * n]
            assert np.abs(s.pair_covariance[t] - pair).max() < 1e-9 * max(1, np.abs(pair).max())
    assert np.isclose(s.log_likelihood, log_z, atol=1e-8)


@pytest.mark.parametrize("arithmetic", ["covariance", "information", "square-root"])
def test_filter_is_the_smoother_of_what_came_before(arithmetic: str) -> None:
    # HOJ-I6
    model = random_model(5)
    y = with_gaps(np.random.default_rng(0), np.random.default_rng(1).normal(size=(7, 2)))
    f = filter_states(model, y, arithmetic=arithmetic)
    for t in range(len(y)):
        mean, covariance, log_z = dense_states(model, y[: t + 1])
        assert np.allclose(f.mean[t], mean[-1], atol=1e-9)
        assert np.allclose(f.covariance[t], covariance[-3:, -3:], atol=1e-9)
    assert np.isclose(f.log_likelihood, log_z)


def test_log_likelihood_is_that_of_one_normal_distribution() -> None:
    model = random_model(7, n=2)
    steps, n, m = 5, 2, 2
    rng = np.random.default_rng(0)
    y = rng.normal(size=(steps, m))
    means, blocks = [model.initial_mean], np.zeros((steps * n, steps * n))
    blocks[:n, :n] = model.initial_covariance
    for t in range(1, steps):
        means.append(model.transition @ means[-1] + model.state_offset)
        old, now = slice((t - 1) * n, t * n), slice(t * n, (t + 1) * n)
        blocks[now, : t * n] = model.transition @ blocks[old, : t * n]
        blocks[: t * n, now] = blocks[now, : t * n].T
        blocks[now, now] = (
            model.transition @ blocks[old, old] @ model.transition.T + model.state_noise
        )
    c = np.kron(np.eye(steps), model.output)
    mean = c @ np.concatenate(means) + np.tile(model.output_offset, steps)
    covariance = c @ blocks @ c.T + np.kron(np.eye(steps), model.output_noise)
    known = multivariate_normal(mean, covariance).logpdf(y.ravel())
    assert np.isclose(filter_states(model, y).log_likelihood, known)


def test_smoother_identities_of_the_junction_tree() -> None:
    """The message into an emission clique equals the smoothed state, by the Gaussian algebra."""
    # HOJ-I7
    model = random_model(11, n=2, m=1)
    y = np.random.default_rng(0).normal(size=(4, 1))
    joint = MomentGaussian({"x0": 2}, model.initial_mean, model.initial_covariance).canonical()
    for t in range(4):
        if t:
            joint = joint * CanonicalGaussian.conditional(
                f"x{t}", f"x{t - 1}", model.transition, model.state_noise, model.state_offset
            )
        seen = CanonicalGaussian.conditional(
            "y", f"x{t}", model.output, model.output_noise, model.output_offset
        )
        joint = joint * seen.condition({"y": y[t]})
    s = smooth_states(model, y, arithmetic="information")
    for t in range(4):
        block = joint.marginal([f"x{t}"]).moments()
        assert np.allclose(block.mean, s.mean[t]) and np.allclose(block.covariance, s.covariance[t])
    assert np.isclose(joint.log_integral(), s.log_likelihood)


def test_steady_state_changes_nothing_but_the_time() -> None:
    model = random_model(2, n=3, m=2)
    y = np.random.default_rng(0).normal(size=(600, 2))
    fast, slow = filter_states(model, y), filter_states(model, y, steady=False)
    assert fast.steady < 200 and slow.steady == 600
    assert np.allclose(fast.mean, slow.mean, atol=1e-10)
    assert np.allclose(fast.covariance, slow.covariance, atol=1e-10)
    assert np.isclose(fast.log_likelihood, slow.log_likelihood, rtol=1e-12)
    quick, full = smooth_states(model, y), smooth_states(model, y, steady=False)
    assert quick._covariances.high - quick._covariances.low > 300
    sums, known = quick.covariance_sums(), full.covariance_sums()
    assert all(np.allclose(a, b, atol=1e-9) for a, b in zip(sums, known, strict=True))
    for name in ("mean", "covariance", "pair_covariance"):
        assert np.allclose(getattr(quick, name), getattr(full, name), atol=1e-10)


@pytest.mark.parametrize("decay", [0.8, 0.9999])
@pytest.mark.parametrize("inputs", [False, True])
def test_long_sequences_with_and_without_room_for_their_covariances(
    decay: float, inputs: bool
) -> None:
    """At 0.9999 covariances settle too late for the room that long sequences get at first."""
    rng = np.random.default_rng(0)
    turn = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    model = StateSpace(
        decay * turn, [[1.0, 0.0]], (1 - decay**2) * 1e-4 * np.eye(2), [[1.0]], [0.1, 0.0], [0.3],
        [[1.0], [0.0]] if inputs else None, [[0.2]] if inputs else None,
        initial_covariance=np.eye(2),
    )  # fmt: skip
    y = rng.normal(size=(17_000, 1))
    u = rng.normal(size=(17_000, 1)) if inputs else None
    fast, slow = filter_states(model, y, u), filter_states(model, y, u, steady=False)
    assert (fast.steady < 1024) == (decay == 0.8)
    assert np.allclose(fast.mean, slow.mean, atol=1e-9)
    assert np.allclose(fast.covariance, slow.covariance, atol=1e-10)
    assert np.isclose(fast.log_likelihood, slow.log_likelihood, rtol=1e-12)
    quick, full = smooth_states(model, y, u), smooth_states(model, y, u, steady=False)
    sums, known = quick.covariance_sums(), full.covariance_sums()
    assert all(np.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(sums, known, strict=True))
    for name in ("mean", "covariance", "pair_covariance"):
        assert np.allclose(getattr(quick, name), getattr(full, name), atol=1e-9)


def test_a_steady_smoother_needs_memory_for_means_only() -> None:
    model = random_model(2, n=6, m=2)
    y = np.random.default_rng(0).normal(size=(40_000, 2))
    smooth_states(model, y)
    tracemalloc.start()
    smooth_states(model, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000 * 8 * 36  # one array of covariances; means, outputs and masks are half


def test_loops_are_compiled_once_for_all_models() -> None:
    y = np.random.default_rng(0).normal(size=(9, 2))
    for options in ({}, {"steps": 9}, {"k": 1}):
        model = random_model(0, **options)
        u = np.ones((9, 1)) if options.get("k") else None
        for arithmetic in ("covariance", "information", "square-root"):
            smooth_states(model, y, u, arithmetic=arithmetic)  # type: ignore[arg-type]
    MomentSSM(local_level(0.1, 1.0).updated(initial_covariance=np.eye(1)), "poisson").smooth(
        np.ones((5, 1))
    )
    walks = LaplaceWalks(np.ones((2, 1)), np.ones(2), np.ones(1))
    walk_posterior(walks, y, "ep")
    for loop in (
        covariance.filter_forward, covariance.smooth_backward, information.information_forward,
        information.information_backward, square_root.root_forward, square_root.root_backward,
    ):  # fmt: skip
        assert len(loop.signatures) == 1


def test_deterministic_dynamics_in_square_root_form() -> None:
    """A rotation without noise: the states are a linear function of the first one."""
    turn = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    model = StateSpace(turn, [[1.0, 0.0]], np.zeros((2, 2)), [[0.1]], initial_covariance=np.eye(2))
    y = np.random.default_rng(0).normal(size=(30, 1))
    s = smooth_states(model, y)
    assert s.arithmetic == "square-root"
    powers = np.array([np.linalg.matrix_power(turn, t) for t in range(30)])
    design = powers[:, 0]
    covariance = np.linalg.inv(np.eye(2) + design.T @ design / 0.1)
    mean = covariance @ design.T @ y[:, 0] / 0.1
    assert np.allclose(s.mean, powers @ mean, atol=1e-9)
    assert np.allclose(s.covariance, powers @ covariance @ np.swapaxes(powers, 1, 2), atol=1e-9)


def test_small_noise_costs_the_information_form_no_digits() -> None:
    model = random_model(0, n=2).updated(state_noise=1e-10 * np.eye(2))
    y = np.random.default_rng(0).normal(size=(40, 2))
    a, b = (smooth_states(model, y, arithmetic=f) for f in ("information", "square-root"))
    assert np.allclose(a.mean, b.mean, atol=1e-7) and np.allclose(a.covariance, b.covariance, 1e-6)


def test_flat_prior_tells_what_is_not_known_yet() -> None:
    trend = StateSpace([[1.0, 1.0], [0.0, 1.0]], [[1.0, 0.0]], 0.01 * np.eye(2), [[1.0]])
    f = filter_states(trend, np.array([[1.0], [2.0], [3.0]]))
    assert f.proper.tolist() == [False, True, True]
    assert np.isinf(f.covariance[0, 1, 1]) and f.mean[0].tolist() == [1.0, 0.0]
    assert np.isfinite(f.covariance[1:]).all()
    near = trend.updated(initial_covariance=1e9 * np.eye(2))
    y = np.random.default_rng(0).normal(size=(20, 1)).cumsum(axis=0)
    wide = smooth_states(near, y, arithmetic="square-root")
    assert np.allclose(smooth_states(trend, y).mean, wide.mean, atol=1e-5)


def test_samples_have_the_moments_of_the_model() -> None:
    model = random_model(1, n=2, m=2)
    mean, covariance = model.stationary()
    model = model.updated(initial_mean=mean, initial_covariance=covariance)
    states, outputs = sample_states(model, 40_000, 0)
    assert np.allclose(states.mean(axis=0), mean, atol=0.1)
    assert np.allclose(np.cov(states.T), covariance, rtol=0.1, atol=0.1)
    known = model.output @ covariance @ model.output.T + model.output_noise
    assert np.allclose(np.cov(outputs.T), known, rtol=0.1, atol=0.1)


def test_forecast_is_a_smoother_over_missing_outputs() -> None:
    model = random_model(6, k=1)
    rng = np.random.default_rng(0)
    y, u = rng.normal(size=(8, 2)), rng.normal(size=(12, 1))
    f = filter_states(model, y, u[:8])
    ahead = forecast_states(model, *f.last, 4, u[8:])
    gaps = np.vstack([y, np.full((4, 2), np.nan)])
    s = smooth_states(model, gaps, u)
    assert np.allclose(ahead.state_mean, s.mean[8:]) and np.allclose(
        ahead.state_covariance, s.covariance[8:]
    )


def test_special_cases() -> None:
    # HOJ-M5
    rng = np.random.default_rng(0)
    loadings, noise, mean = rng.normal(size=(4, 2)), rng.uniform(0.5, 1, 4), rng.normal(size=4)
    rows = rng.multivariate_normal(mean, loadings @ loadings.T + np.diag(noise), size=200)
    fa = filter_states(factor_analysis(loadings, noise, mean), rows)
    known = multivariate_normal(mean, loadings @ loadings.T + np.diag(noise)).logpdf(rows)
    assert np.isclose(fa.log_likelihood, known.sum())
    from sklearn.decomposition import PCA

    pca = PCA(2).fit(rows)
    ours = filter_states(probabilistic_pca(rows, 2), rows).log_likelihood
    biased = probabilistic_pca(rows, 2)
    covariance = biased.output @ biased.output.T + biased.output_noise
    assert np.allclose(covariance * 200 / 199, pca.get_covariance())
    assert ours >= pca.score(rows) * 200 - 1e-6  # the maximum likelihood has the biased covariance
    walk = smooth_states(local_level(0.5, 1.0), rows[:, :1])
    assert walk.arithmetic == "information"
    process = autoregression([0.6, 0.2], 0.5, 1.0)
    y = sample_states(process, 50, 0)[1]
    f = filter_states(process, y)
    e = y[2:, 0] - 1 - 0.6 * (y[1:-1, 0] - 1) - 0.2 * (y[:-2, 0] - 1)
    head = multivariate_normal([1, 1], process.initial_covariance).logpdf(y[1::-1, 0])
    known = head + multivariate_normal(0, 0.5).logpdf(e).sum()
    assert np.isclose(f.log_likelihood, known)


@pytest.mark.parametrize("steps", [1, 2])
def test_very_short_sequences(steps: int) -> None:
    model = random_model(9)
    y = np.random.default_rng(0).normal(size=(steps, 2))
    for arithmetic in ("covariance", "information", "square-root"):
        s = smooth_states(model, y, arithmetic=arithmetic)
        mean, _, log_z = dense_states(model, y)
        assert np.allclose(s.mean, mean) and np.isclose(s.log_likelihood, log_z)
        assert s.pair_covariance.shape == (steps - 1, 3, 3)


def test_one_clear_line_for_bad_parameters() -> None:
    eye = np.eye(2)
    bad = {
        "loadings are": lambda: factor_analysis([1.0, 2.0], [0.5, 0.5]),
        "0.5 components": lambda: probabilistic_pca(np.ones((3, 1)), 0.5),  # type: ignore[arg-type]
        "missing or infinite": lambda: probabilistic_pca([[1.0, np.nan], [0.0, 1.0]], 1),
        "not positive semidefinite": lambda: StateSpace(eye, eye, -eye, eye),
        "symmetric": lambda: StateSpace(eye, eye, [[1, 2], [0, 1]], eye),
        "must have": lambda: StateSpace(eye, eye, np.eye(3), eye),
        "not finite": lambda: StateSpace(eye * np.nan, eye, eye, eye),
        "no stationary": lambda: StateSpace(eye, eye, eye, eye).stationary(),
        "unstable dynamics": lambda: forecast_states(
            StateSpace(2 * eye, eye, eye, eye), np.zeros(2), eye, 20
        ),
        "flat prior has no covariance form": lambda: filter_states(
            StateSpace(eye, eye, eye, eye), np.zeros((2, 2)), arithmetic="covariance"
        ),
        "singular noise has no information form": lambda: filter_states(
            StateSpace(eye, eye, 0 * eye, eye), np.zeros((2, 2))
        ),
        "covariance of the outputs of step 0 is singular": lambda: filter_states(
            StateSpace(eye, eye, eye, 0 * eye, initial_covariance=0 * eye), np.zeros((2, 2))
        ),
        "do not determine the state": lambda: filter_states(
            StateSpace(eye, [[1.0, 0.0]], eye, [[1.0]]), np.zeros((3, 1))
        ),
        "cannot be sampled": lambda: sample_states(StateSpace(eye, eye, eye, eye), 3),
    }
    for message, make in bad.items():
        with pytest.raises(KikuchiError, match=message):
            make()
