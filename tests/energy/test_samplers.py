"""Hamiltonian moves: the catalogue's golden values, reversibility, volume, stationarity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.integrators import new_integrator_state, velocity_verlet
from blackjax.mcmc.metrics import default_metric

from kikuchi.core.errors import MethodError
from kikuchi.energy.energies import LinearExperts
from kikuchi.energy.samplers import ChainMoves, leapfrog, sample_chains


def quartic(x):
    return jnp.sum(0.25 * x**4 + 0.5 * x**2, axis=-1)


def quartic_slope(x):
    return x**3 + x


def test_leapfrogs_of_the_harmonic_well_give_the_catalogues_numbers():
    """TEH-T37."""
    # TEH-I4
    with jax.enable_x64(True):
        x, k = leapfrog(lambda x: x, jnp.ones(1), jnp.zeros(1), 0.1, 10)
        assert float(x[0]) == pytest.approx(0.5399512509, abs=1e-10)
        assert float(k[0]) == pytest.approx(-0.8406435124, abs=1e-10)
        assert float(0.5 * (x**2 + k**2)[0]) == pytest.approx(0.4991144342, abs=1e-10)


def test_leapfrogs_are_reversible_and_keep_volume():
    """TEH-T37."""
    # TEH-I4
    with jax.enable_x64(True):
        x, k = jnp.array([0.3, -1.2]), jnp.array([0.8, 0.1])
        moved, momentum = leapfrog(quartic_slope, x, k, 0.2, 7)
        back, turned = leapfrog(quartic_slope, moved, -momentum, 0.2, 7)
        assert np.asarray(back) == pytest.approx(np.asarray(x), abs=1e-12)
        assert np.asarray(-turned) == pytest.approx(np.asarray(k), abs=1e-12)

        def flow(state):
            return jnp.concatenate(leapfrog(quartic_slope, state[:2], state[2:], 0.2, 7))

        jacobian = jax.jacfwd(flow)(jnp.concatenate([x, k]))
        assert float(jnp.linalg.det(jacobian)) == pytest.approx(1.0, abs=1e-12)


def test_leapfrogs_are_those_of_blackjax():
    with jax.enable_x64(True):
        x, k = jnp.array([0.3, -1.2]), jnp.array([0.8, 0.1])
        metric = default_metric(jnp.ones(2))
        step = velocity_verlet(lambda x: -quartic(x), metric.kinetic_energy)
        state = new_integrator_state(lambda x: -quartic(x), x, k)
        for _ in range(7):
            state = step(state, 0.2)
        moved, momentum = leapfrog(quartic_slope, x, k, 0.2, 7)
        assert np.asarray(moved) == pytest.approx(np.asarray(state.position), abs=1e-12)
        assert np.asarray(momentum) == pytest.approx(np.asarray(state.momentum), abs=1e-12)


def test_the_error_of_the_hamiltonian_is_of_second_order():
    """TEH-T37."""

    def error(step, count):
        x, k = jnp.array([1.0]), jnp.array([0.5])
        before = quartic(x) + 0.5 * jnp.sum(k * k)
        x, k = leapfrog(quartic_slope, x, k, step, count)
        return abs(float(quartic(x) + 0.5 * jnp.sum(k * k) - before))

    with jax.enable_x64(True):
        ratio = error(0.02, 50) / error(0.01, 100)
    assert ratio == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("sampler", ["hmc", "mala"])
def test_chains_keep_a_gaussian(sampler):
    # TEH-I4
    covariance = np.array([[2.0, 0.8], [0.8, 1.0]])
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)

    def energy(parameters, x):
        return 0.5 * jnp.sum((x @ parameters) * x, axis=-1)

    rng = np.random.default_rng(0)
    start = rng.multivariate_normal([0, 0], covariance, 4000).astype(np.float32)
    moves = ChainMoves(sampler, leapfrogs=5, rate=0.0)
    rows, _, _ = sample_chains(energy, moves, precision, start, 0.7, jax.random.key(0), count=20)
    assert np.cov(np.asarray(rows), rowvar=False) == pytest.approx(covariance, abs=0.15)


def test_langevin_dynamics_have_the_variance_of_their_step():
    """Without rejection x <- (1 - step² / 2) x + step k has the variance 1 / (1 - step² / 4)."""
    start = np.random.default_rng(0).normal(size=(20_000, 1)).astype(np.float32)
    for step in (0.1, 1.0):
        moves = ChainMoves("langevin", rate=0.0)
        rows, _, rate = sample_chains(
            lambda _, x: 0.5 * jnp.sum(x * x, axis=-1), moves, None, start, step,
            jax.random.key(0), count=40,
        )  # fmt: skip
        assert np.var(np.asarray(rows)) == pytest.approx(1 / (1 - step**2 / 4), rel=0.03)
        assert float(rate) < 1.0


def test_the_controller_reaches_the_desired_acceptance():
    """TEH-T38."""
    # TEH-I4
    rng = np.random.default_rng(0)
    energy = LinearExperts(expert="logistic")
    parameters = energy.initial(16, 16, rng)
    rows = rng.normal(size=(100, 16)).astype(np.float32)
    moves = ChainMoves("hmc", 30, desired=0.9, rate=0.1)
    _, step, rate = sample_chains(
        energy, moves, parameters, rows, 0.05, jax.random.key(1), count=400
    )
    assert float(rate) == pytest.approx(0.9, abs=0.04)
    assert float(step) > 0.05


def test_an_unknown_sampler_is_refused():
    with pytest.raises(MethodError, match="no sampler"):
        ChainMoves("nuts")
