"""Energies against quadrature, finite differences and closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from kikuchi.core.errors import MethodError
from kikuchi.energy.energies import ENERGIES, LinearExperts, clamped_energy, improper
from kikuchi.energy.experts import EXPERTS

TEXTS = ["linear", "linear:expert=logistic", "topographic", "feed-forward:layers=2", "recurrent",
         "recurrent:inhibition=true", "manifold", "uniform-gaussian", "sequence:frames=3",
         "uniform-gaussian:factors=2", "uniform-gaussian:factors=1,pairs=true"]  # fmt: skip


def double(parameters):
    return {name: np.asarray(array, dtype=np.float64) for name, array in parameters.items()}


@pytest.fixture(autouse=True)
def in_double():
    with jax.enable_x64(True):
        yield


def quadrature(energy, parameters, reach=60.0, points=801):
    """The integral of exp(-E) over the plane."""
    grid = np.sinh(np.linspace(-1, 1, points) * np.arcsinh(reach))
    weights = np.gradient(grid)
    rows = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(-np.asarray(energy(parameters, jnp.asarray(rows))))
    return float(density @ np.outer(weights, weights).ravel())


def test_the_square_logistic_model_has_the_published_normaliser():
    """TEH-T32."""
    # TEH-M13
    parameters = {"filters": np.array([[1.0, 0.5], [-0.3, 0.8]])}
    energy = LinearExperts(expert="logistic")
    assert np.exp(energy.log_z(parameters)) == pytest.approx(1.0526315789, abs=1e-9)
    assert quadrature(energy, parameters) == pytest.approx(1.0526315789, abs=1e-4)


@pytest.mark.parametrize("expert", list(EXPERTS))
def test_normalisers_and_draws_agree_with_quadrature(expert):
    # TEH-M6, TEH-M14
    one = EXPERTS.parse(expert)
    shape = np.array([1.7])
    shapes = None if one.first_shape is None else shape

    grid = np.sinh(np.linspace(-1, 1, 40_001) * np.arcsinh(1e5))[:, None]
    density = np.exp(-np.asarray(one.energy(grid, shapes)))[:, 0]
    mass = np.concatenate(
        [[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid[:, 0]))]
    )
    normaliser = np.ravel(np.asarray(one.log_normaliser(shapes)))[0]
    assert normaliser == pytest.approx(np.log(mass[-1]), abs=1e-4)
    draws = np.ravel(one.draw(jax.random.key(0), (4000, 1), shapes))
    at = np.array([-2, -0.5, 1])
    below = np.interp(at, grid[:, 0], mass / mass[-1])
    assert np.mean(draws[:, None] < at, axis=0) == pytest.approx(below, abs=0.025)


def test_logistic_energy_is_that_of_the_density():
    u = np.linspace(-30, 30, 13)
    energy = EXPERTS.parse("logistic").energy(u, None)
    assert np.asarray(energy) == pytest.approx(-stats.logistic.logpdf(u), abs=1e-12)


@pytest.mark.parametrize("text", TEXTS)
def test_gradients_agree_with_finite_differences(text):
    # TEH-M7, TEH-M12, TEH-M20
    rng = np.random.default_rng(1)
    energy = ENERGIES.parse(text)
    parameters = double(energy.initial(3, 9, rng))
    x = rng.normal(size=(4, 3))
    assert energy(parameters, x).shape == (4,)
    slope = jax.grad(lambda rows: jnp.sum(energy(parameters, rows)))(x)
    step = 1e-6 * rng.normal(size=x.shape)
    change = np.sum(energy(parameters, x + step) - energy(parameters, x - step)) / 2
    assert float(change) == pytest.approx(float(np.sum(slope * step)), rel=1e-5)


def test_the_infomax_manifold_has_the_published_length():
    # TEH-M18
    energy = ENERGIES.parse("manifold")
    parameters = {"filters": np.array([[1.3], [-0.6]])}

    x = np.linspace(-80, 80, 40_001)
    density = np.exp(-np.asarray(energy(parameters, x[:, None])))
    assert np.trapezoid(density, x) == pytest.approx(1.5174811761, abs=1e-8)


@pytest.mark.parametrize("expert", ["logistic", "laplace"])
def test_clamping_the_larger_ica_gives_the_overcomplete_model_whatever_the_other_filters(expert):
    """TEH-T35."""
    # TEH-M19
    filters = np.array([[1.3], [-0.6]])
    x = np.linspace(-30, 30, 20_001)[:, None]
    densities = []
    for auxiliary in (np.array([[0.4], [1.1]]), np.array([[-2.0], [0.3]])):
        log_joint = -np.asarray(clamped_energy(expert, filters, auxiliary, x, np.zeros_like(x)))
        joint = np.exp(log_joint)
        densities.append(joint / np.trapezoid(joint, x[:, 0]))
    overcomplete = LinearExperts(expert=expert)
    own = np.exp(-np.asarray(overcomplete({"filters": filters}, x)))
    own /= np.trapezoid(own, x[:, 0])
    assert densities[0] == pytest.approx(own, abs=1e-12)
    assert densities[1] == pytest.approx(own, abs=1e-12)


def test_students_t_says_when_z_is_infinite():
    # TEH-M14
    eye = np.eye(3)
    assert improper(eye, np.array([1.0, 1.0, 1.0])) is None
    assert "infinite" in improper(eye, np.array([1.0, 1.0, 0.5]))
    assert "span 2 of 3" in improper(eye[:2], np.array([1.0, 1.0]))
    # three filters with small shapes around one axis hold it together
    around = np.vstack([eye, eye[2:] + 0.1, eye[2:]])
    assert improper(around, np.array([1, 1, 0.3, 0.3, 0.3])) is None
    assert improper(np.zeros((2, 2)), None) is not None


def test_every_subspace_is_judged():
    """Against all sets of filters: those outside the span of a set must outweigh what is left."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(150):
        columns, count = rng.integers(1, 4), rng.integers(3, 7)
        filters = rng.integers(-1, 2, size=(count, columns)).astype(float)
        shapes = rng.uniform(0.05, 0.8, count)
        if np.linalg.matrix_rank(filters) < columns:
            continue
        finite = True
        for chosen in itertools.product([False, True], repeat=int(count)):
            inside = filters[np.array(chosen)]
            rank = np.linalg.matrix_rank(inside)
            outside = [np.linalg.matrix_rank(np.vstack([inside, w])) > rank for w in filters]
            finite &= bool(rank == columns or 2 * shapes[outside].sum() > columns - rank)
        fault = improper(filters, shapes)
        assert (fault is None) == finite, (filters, shapes, fault)
        found.append(fault and fault[:8])
    assert found.count(None) > 30 and found.count("Z is inf") > 30


def test_pools_may_have_a_z_where_their_features_alone_have_none():
    energy = ENERGIES.parse("topographic")
    filters = np.eye(9, dtype=np.float32)
    shapes = np.log(np.array([5.0] + 8 * [0.4], dtype=np.float32))
    assert improper(filters, np.exp(shapes)).startswith("Z is infinite")
    assert energy.proper({"filters": filters, "log_shapes": shapes}).startswith("Z may be")
    assert energy.proper({"filters": filters, "log_shapes": 0 * shapes}) is None
    assert "span 8 of 9" in energy.proper({"filters": filters[:8], "log_shapes": shapes[:8]})


def test_topographic_grids_must_be_squares():
    with pytest.raises(MethodError, match="square"):
        ENERGIES.parse("topographic").initial(4, 10, np.random.default_rng(0))


@pytest.mark.parametrize("pairs", [False, True])
def test_experts_with_factors_are_mixtures_with_factor_analysers(pairs):
    # TEH-M7
    energy = ENERGIES.parse(f"uniform-gaussian:factors=2,pairs={str(pairs).lower()}")
    rng = np.random.default_rng(0)
    parameters = double(energy.initial(4, 3, rng))
    parameters["log_widths"] += 0.3 * rng.normal(size=parameters["log_widths"].shape)
    parameters["loadings"] = rng.normal(size=parameters["loadings"].shape)
    x = rng.normal(size=(5, 4))
    expected = stats.norm(0, 3).logpdf(x).sum(axis=1) + 4 * np.log(3 * np.sqrt(2 * np.pi))
    for e in range(3):
        parts = []
        for g in range(1 + pairs):
            width = np.exp(parameters["log_widths"][g, e])
            loadings = width[:, None] * parameters["loadings"][g, e]
            normal = stats.multivariate_normal(
                parameters["centres"][g, e], np.diag(width**2) + loadings @ loadings.T
            )
            parts.append(np.exp(normal.logpdf(x) - normal.logpdf(parameters["centres"][g, e])))
        expected += np.log(sum(parts) if pairs else 1 + parts[0])
    assert -np.asarray(energy(parameters, x)) == pytest.approx(expected, abs=1e-5)


def test_the_energy_of_a_sequence_depends_on_the_order_of_its_frames():
    # TEH-M20
    energy = ENERGIES.parse("sequence:frames=3")
    rng = np.random.default_rng(0)
    parameters = double(energy.initial(6, 5, rng))
    rows = rng.normal(size=(4, 3, 2))
    found = np.asarray(energy(parameters, rows.reshape(4, 6)))
    y, expected = np.zeros((4, 5)), np.zeros(4)
    for t in range(3):
        u = rows[:, t] @ parameters["filters"].T
        y = np.tanh(u + y @ parameters["lateral"])
        expected += np.log1p(u * u).sum(axis=1) + 0.1 * (y * y).sum(axis=1)
    assert found == pytest.approx(expected, abs=1e-6)
    backwards = np.asarray(energy(parameters, rows[:, ::-1].reshape(4, 6)))
    assert np.abs(backwards - found).min() > 1e-6
    with pytest.raises(MethodError, match="not 4 frames"):
        ENERGIES.parse("sequence:frames=4").initial(6, 5, rng)
