"""Learners: gradients against the likelihood, and what each one finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kikuchi.core.errors import MethodError
from kikuchi.energy.energies import ENERGIES, LinearExperts
from kikuchi.energy.learners import LEARNERS, ScoreLoss
from kikuchi.training.trainer import train

SQUARE = LinearExperts(expert="logistic")


def update(text, parameters, rows, key=0):
    """Gradient of one learner's loss at these rows."""
    rule = LEARNERS.parse(text).rule(SQUARE)
    if rule.begin is None:
        return jax.grad(rule.loss)(parameters, rows, jax.random.key(key))
    memory = rule.begin(parameters, rows, jax.random.key(9))
    return jax.grad(rule.loss, has_aux=True)(parameters, rows, jax.random.key(key), memory)[0]


def test_the_likelihoods_gradient_is_that_of_bell_and_sejnowski():
    """TEH-T32, the sign of the gradient."""
    # TEH-L12
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        filters, rows = rng.normal(size=(3, 3)), rng.laplace(size=(50, 3))
        found = update("exact", {"filters": filters}, rows)["filters"]
        scores = np.tanh(rows @ filters.T / 2)
        expected = scores.T @ rows / len(rows) - np.linalg.inv(filters).T
    assert np.asarray(found) == pytest.approx(expected, abs=1e-10)


def test_moments_of_exact_samples_are_the_inverse_of_the_filters():
    """TEH-T34."""
    # TEH-L12
    filters = np.array([[1.0, 0.5], [-0.3, 0.8]], dtype=np.float32)
    rows = np.asarray(SQUARE.draw({"filters": filters}, 200_000, jax.random.key(0)))
    scores = np.tanh(rows @ filters.T / 2)
    assert scores.T @ rows / len(rows) == pytest.approx(np.linalg.inv(filters).T, abs=0.02)


@pytest.mark.parametrize("text", ["cd:k=1", "cd:k=5", "cd:radial=true", "equilibrium", "pcd"])
def test_at_the_truth_the_expected_update_vanishes(text):
    """TEH-T28."""
    # TEH-L8, TEH-L11
    filters = np.array([[1.0, 0.5], [-0.3, 0.8]], dtype=np.float32)
    parameters = {"filters": jnp.asarray(filters)}
    rows = SQUARE.draw(parameters, 20_000, jax.random.key(3))
    found = update(text.replace("pcd", "pcd:chains=20000"), parameters, rows)["filters"]
    assert np.abs(np.asarray(found)).max() < 0.03


def test_long_chains_approach_the_gradient_of_the_likelihood():
    # TEH-L8, TEH-L11, TEH-T28
    filters = jnp.asarray([[0.7, 0.1], [0.2, 0.9]], dtype=jnp.float32)
    rows = jnp.asarray(np.random.default_rng(0).laplace(size=(20_000, 2)) * 0.5, jnp.float32)
    exact = np.asarray(update("exact", {"filters": filters}, rows)["filters"])
    errors = []
    for k in (1, 20):
        found = update(f"cd:k={k},step=0.8,leapfrogs=4", {"filters": filters}, rows)["filters"]
        errors.append(np.abs(np.asarray(found) - exact).max())
    assert errors[1] < 0.06 < errors[0]


@pytest.mark.parametrize("text", ["linear", "topographic", "feed-forward"])
def test_score_matching_equals_its_definition(text):
    rng = np.random.default_rng(0)
    energy = ENERGIES.parse(text)
    with jax.enable_x64(True):
        parameters = {n: np.asarray(a, float) for n, a in energy.initial(3, 9, rng).items()}
        rows = rng.normal(size=(5, 3))
        found = float(ScoreLoss(energy)(parameters, rows, None))
        expected = 0.0
        for row in rows:
            hessian = jax.hessian(lambda x: energy(parameters, x[None])[0])(row)
            slope = jax.grad(lambda x: energy(parameters, x[None])[0])(row)
            expected += float(0.5 * slope @ slope - jnp.trace(hessian)) / len(rows)
    assert found == pytest.approx(expected, rel=1e-9)


def test_noise_contrastive_estimation_learns_log_z():
    from kikuchi.energy import ExpertICA

    rows = np.random.default_rng(0).laplace(size=(5000, 2)) @ [[1.0, 0.5], [0.2, 1.0]]
    model = ExpertICA(
        expert="logistic", learner="nce", start="random", max_iter=40, learning_rate=0.05,
        schedule="linear", random_state=0,
    ).fit(rows)  # fmt: skip
    first = np.log(2 * np.pi)
    learnt, exact = float(model.model_.parameters["log_z"]), model.log_z().estimate
    assert learnt == pytest.approx(exact, abs=0.05)
    assert abs(first - exact) > 0.3


def test_denoising_learns_the_density_of_the_noisy_rows():
    from kikuchi.energy import EnergyModel

    rows = np.random.default_rng(0).normal(size=(5000, 2)) * [1.0, 2.0]
    model = EnergyModel(
        lambda p, x: 0.5 * jnp.sum((x * p["scale"]) ** 2, axis=-1), whiten="none",
        parameters={"scale": np.full(2, 0.5)}, learner="denoising:noise=1", max_iter=40,
        learning_rate=0.02, schedule="linear", random_state=0,
    ).fit(rows)  # fmt: skip
    variances = np.asarray(model.model_.parameters["scale"]) ** -2.0
    assert variances == pytest.approx([2.0, 5.0], rel=0.08)


def test_learners_of_square_models_refuse_others():
    with pytest.raises(MethodError, match="linear experts"):
        LEARNERS.parse("exact").rule(ENERGIES.parse("topographic"))


def test_chains_at_the_floor_are_reported():
    rule = LEARNERS.parse("cd:floor=0.001").rule(SQUARE)
    state = {"step": np.array(0.001), "acceptance": np.array(0.2)}
    assert "floor" in rule.warnings(state)[0]


def test_measures_are_recorded_and_survive_a_stop(tmp_path):
    from kikuchi.energy import ExpertICA

    rows = np.random.default_rng(0).laplace(size=(400, 3))
    options = {"n_components": 5, "max_iter": 6, "random_state": 0, "learner": "pcd:leapfrogs=3"}
    whole = ExpertICA(**options).fit(rows)
    assert list(whole.trace_.measures) == [
        "acceptance", "step size", "longest filter", "held-out score matching"
    ]  # fmt: skip
    part = tmp_path / "state"
    ExpertICA(**options | {"max_iter": 2}, checkpoint=part).fit(rows)
    resumed = ExpertICA(**options, checkpoint=part).fit(rows)
    assert np.array_equal(resumed.filters_, whole.filters_)
    assert resumed.trace_.measures == whole.trace_.measures


def test_a_rate_that_explodes_keeps_the_last_good_state():
    from kikuchi.energy import ExpertICA

    rows = np.random.default_rng(0).laplace(size=(400, 3))
    model = ExpertICA(learning_rate=1e6, max_iter=5, random_state=0, learner="cd:leapfrogs=3")
    with pytest.warns(UserWarning, match="diverged"):
        model.fit(rows)
    assert model.stopped_ == "diverged"
    assert np.all(np.isfinite(model.filters_))


def test_training_is_independent_of_where_the_rule_came_from():
    from kikuchi.energy.estimator import EnergyParameters
    from kikuchi.training.updates import _program

    rows = np.random.default_rng(0).laplace(size=(200, 2)).astype(np.float32)
    start = EnergyParameters(SQUARE.initial(2, 2, np.random.default_rng(0)))
    train(start, rows, LEARNERS.parse("cd").rule(SQUARE), epochs=1, seed=0)
    before = _program.cache_info().misses
    train(
        start, rows, LEARNERS.parse("cd").rule(LinearExperts(expert="logistic")), epochs=1, seed=0
    )
    assert _program.cache_info().misses == before  # compiled once for equal settings
