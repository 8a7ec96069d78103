"""The energy of a row's length beside the experts: definitions, quadrature and a known law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from kikuchi.core.errors import MethodError
from kikuchi.energy import EnergyModel, ExpertICA
from kikuchi.energy.annealing import annealed_log_z
from kikuchi.energy.energies import ENERGIES, LinearExperts
from kikuchi.energy.evaluation import evaluate
from kikuchi.energy.learners import ScoreLoss


def some_parameters(dtype):
    parameters = {
        "filters": np.array([[1.0, 0.5], [-0.3, 0.8], [0.4, -1.2]]),
        "log_shapes": np.log([1.5, 0.8, 1.1]),
        "contrast": np.array([0.8, -1.1, 0.4]),
        "log_lengths": np.log([0.2, 1.0, 5.0]),
    }
    return {name: array.astype(dtype) for name, array in parameters.items()}


def test_the_energy_is_that_of_its_definition_and_finite_at_both_ends():
    energy, parameters = ENERGIES.parse("linear:contrast=3"), some_parameters(np.float64)
    with jax.enable_x64(True):
        rows = np.random.default_rng(0).normal(size=(5, 2))
        extra = energy(parameters, rows) - LinearExperts()(parameters, rows)
        squares = np.sum(rows**2, axis=1)
        steps = [v * squares / (squares + c * c) for v, c in
                 zip([0.8, -1.1, 0.4], [0.2, 1.0, 5.0], strict=True)]  # fmt: skip
        wanted = 2 * np.sum(steps, axis=0) + 1.5 * np.log(1 + squares / 100.0)
        assert np.asarray(extra) == pytest.approx(wanted, rel=1e-12)
        ends = np.array([[0.0, 0.0], [1e100, 0.0]])
        extra = energy(parameters, ends) - LinearExperts()(parameters, ends)
        assert np.asarray(extra) == pytest.approx([0.0, 0.2 + 297 * np.log(10)], abs=1e-9)
        slope = jax.grad(lambda x: jnp.sum(energy(parameters, x)))(jnp.asarray(ends))
        assert np.all(np.isfinite(np.asarray(slope)))


def test_gradients_and_laplacian_agree_with_finite_differences():
    energy, parameters = ENERGIES.parse("linear:contrast=3"), some_parameters(np.float64)
    with jax.enable_x64(True):
        rows = np.random.default_rng(0).normal(size=(4, 2))
        slope = jax.grad(lambda v, x: jnp.sum(energy(v, x)), argnums=(0, 1))(parameters, rows)
        step = 1e-6
        for k in range(3):
            moved = [parameters["contrast"] + sign * step * np.eye(3)[k] for sign in (1, -1)]
            up, down = (float(jnp.sum(energy({**parameters, "contrast": v}, rows))) for v in moved)
            assert float(slope[0]["contrast"][k]) == pytest.approx((up - down) / 2e-6, rel=1e-6)
        assert np.all(np.asarray(slope[0]["log_lengths"]) == 0.0)  # places stay where they are
        laplacian, wide = np.zeros(4), 1e-4
        for d in range(2):
            shift = wide * np.eye(2)[d]
            up, here, down = (np.asarray(energy(parameters, rows + s * shift)) for s in (1, 0, -1))
            laplacian += (up - 2 * here + down) / wide**2
            gradient = (up - down) / (2 * wide)
            assert np.asarray(slope[1])[:, d] == pytest.approx(gradient, abs=1e-6)
        loss = ScoreLoss(energy)(parameters, rows, jax.random.key(0))
        wanted = np.mean(0.5 * np.sum(np.asarray(slope[1]) ** 2, axis=1) - laplacian)
        assert float(loss) == pytest.approx(wanted, abs=1e-5)


def test_z_is_finite_without_the_experts():
    """The law of the lengths alone, in three dimensions, beyond any length seen."""
    energy, parameters = ENERGIES.parse("linear:contrast=2"), {
        "filters": np.eye(3)[:1], "log_shapes": np.array([-20.0]),
        "contrast": np.array([3.0, -4.0]), "log_lengths": np.log([1.0, 10.0]),
    }  # fmt: skip
    assert energy.proper(parameters) is None
    assert "span 1 of 3" in LinearExperts().proper(parameters)
    with jax.enable_x64(True):
        logs = np.linspace(-10, 30, 400_001)
        rows = jnp.asarray(np.exp(logs)[:, None] * np.array([[0.0, 1.0, 0.0]]))
        mass = np.exp(3 * logs - np.asarray(energy(parameters, rows)))
    total = np.trapezoid(mass, logs)
    assert np.trapezoid(mass[logs < 15], logs[logs < 15]) == pytest.approx(total, rel=1e-4)


def test_the_bracket_on_log_z_agrees_with_quadrature():
    energy = ENERGIES.parse("linear:contrast=3")
    grid = np.sinh(np.linspace(-1, 1, 1201) * np.arcsinh(3e3))
    rows = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    with jax.enable_x64(True):
        weights = np.gradient(grid)
        density = np.exp(-np.asarray(energy(some_parameters(np.float64), jnp.asarray(rows))))
    exact = np.log(density @ np.outer(weights, weights).ravel())
    rng = np.random.default_rng(0)
    drawn = rows[rng.choice(len(rows), 3000, p=(p := density * np.outer(weights, weights).ravel())
                            / p.sum())]  # fmt: skip
    found = annealed_log_z(
        energy, some_parameters(np.float32), drawn, betas=200, batches=1, burn_in=50,
        confidence=0.999, random_state=0,
    )  # fmt: skip
    assert found.lower < exact < found.upper
    assert found.width < 0.5
    assert not found.exact_starts


@pytest.fixture(scope="module")
def two_contrasts():
    """Rows in all directions alike, half of them eight times as long: rows, and log-densities."""
    rng = np.random.default_rng(0)
    logs = np.where(rng.random(6000) < 0.5, -1.0, 1.1) + 0.5 * rng.normal(size=6000)
    rows = rng.normal(size=(6000, 3))
    rows *= np.exp(logs)[:, None] / np.linalg.norm(rows, axis=1, keepdims=True)
    parts = [stats.norm.logpdf(logs, centre, 0.5) + np.log(0.5) for centre in (-1.0, 1.1)]
    return rows, np.logaddexp(*parts) - logs - np.log(4 * np.pi) - 2 * logs


def test_a_known_law_of_the_lengths_is_learnt(two_contrasts, tmp_path):
    rows, truth = two_contrasts
    found = {}
    for energy in ("linear", "linear:contrast=10"):
        model = ExpertICA(
            energy=energy, n_components=6, learner="cd:leapfrogs=5,radial=true", solver="adam",
            momentum=0.0, learning_rate=0.02, schedule="cosine", max_iter=30, random_state=0,
        ).fit(rows[:5000])  # fmt: skip
        model.log_z(betas=200, batches=2, burn_in=50)
        found[energy] = truth[5000:].mean() - model.score(rows[5000:])
        assert model.trace_.measures["acceptance"][-1] > 0.8
    assert found["linear:contrast=10"] < 0.05
    assert found["linear"] > 0.3
    lengths = np.exp(model._values["log_lengths"])
    white = np.linalg.norm(model.whitening_(rows[:5000]), axis=1)
    assert lengths[[0, -1]] == pytest.approx(np.quantile(white, [0.001, 0.999]), rel=0.1)

    model.save(tmp_path / "model.safetensors")
    again = ExpertICA.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.energies(rows[:50]), model.energies(rows[:50]))
    told = evaluate(again, rows[5000:])
    assert "linear:contrast=10" in dict(told.facts())["energy"]
    assert told.to_dict()["contrast"]["lengths"] == pytest.approx(lengths.tolist())


def test_experts_begin_in_their_tails(two_contrasts):
    rows, _ = two_contrasts
    model = ExpertICA(energy="linear:contrast=4", n_components=9, max_iter=1, learning_rate=1e-9)
    model.fit(rows)
    features = model.transform(rows)
    assert np.mean(np.mean(features**2, axis=1) > 1) == pytest.approx(0.75, abs=0.05)
    assert model.shapes_ == pytest.approx(np.full(9, 1 / 3), abs=1e-3)


@pytest.mark.parametrize("learner", ["exact", "equilibrium"])
def test_what_needs_an_exact_z_is_refused(two_contrasts, learner):
    rows, _ = two_contrasts
    with pytest.raises(MethodError, match="with contrast there is no exact Z"):
        EnergyModel("linear:contrast=4", learner=learner, max_iter=1).fit(rows)


def test_a_square_model_with_contrast_is_bracketed(two_contrasts):
    rows, _ = two_contrasts
    model = ExpertICA(energy="linear:contrast=4", expert="logistic", max_iter=1, random_state=0)
    model.fit(rows[:1000])
    assert model._energy() == LinearExperts(expert="logistic", contrast=4)
    assert not model.is_square
    assert model.log_z(betas=50, batches=1, burn_in=20).width > 0
    with pytest.raises(MethodError, match="without contrast"):
        evaluate(model, rows[:100], log_z="exact")
    with pytest.raises(MethodError, match="two experts"):
        ExpertICA(energy="linear:expert=laplace", expert="logistic").fit(rows[:1000])
