"""Brackets on log Z against exact values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError
from kikuchi.core.progress import silent
from kikuchi.core.run import Run
from kikuchi.core.trace import Trace
from kikuchi.energy.annealing import _exchange, annealed_log_z
from kikuchi.energy.energies import LinearExperts
from kikuchi.energy.radial import RadialMap
from kikuchi.energy.samplers import ChainMoves


def test_the_bracket_of_a_square_model_holds_its_exact_value():
    rng = np.random.default_rng(0)
    energy = LinearExperts(expert="logistic")
    for _ in range(2):
        filters = (np.eye(8) + 0.4 * rng.normal(size=(8, 8))).astype(np.float32)
        parameters = {"filters": filters}
        rows = np.asarray(energy.draw(parameters, 1000, jax.random.key(1)))
        found = annealed_log_z(
            energy, parameters, rows, betas=150, confidence=0.999, random_state=0
        )
        assert found.lower < float(energy.log_z(parameters)) < found.upper
        assert found.width < 0.3
        assert found.exact_starts


def test_the_bracket_of_an_overcomplete_model_agrees_with_quadrature():
    energy = LinearExperts()
    filters = np.array([[1.0, 0.5], [-0.3, 0.8], [0.2, -1.0]], dtype=np.float32)
    parameters = {"filters": filters, "log_shapes": np.log(np.float32([2.0, 1.5, 1.2]))}
    grid = np.sinh(np.linspace(-1, 1, 801) * 12)
    weights = np.gradient(grid)
    rows = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    with jax.enable_x64(True):
        wide = {n: a.astype(np.float64) for n, a in parameters.items()}
        density = np.exp(-np.asarray(energy(wide, rows)))
    exact = np.log(density @ np.outer(weights, weights).ravel())
    data = np.random.default_rng(0).normal(size=(1000, 2))
    found = annealed_log_z(energy, parameters, data, betas=150, confidence=0.999, random_state=0)
    assert found.lower < exact < found.upper
    assert not found.exact_starts
    assert any("tempered" in warning for warning in found.warnings)


def test_no_time_is_an_error_that_says_so():
    energy = LinearExperts(expert="logistic")
    parameters = {"filters": np.eye(2, dtype=np.float32)}
    run = Run(Budget(seconds=1e-9).start(), silent, Trace("log Z"))
    with pytest.raises(BudgetError, match="time was over"):
        annealed_log_z(energy, parameters, np.random.default_rng(0).normal(size=(50, 2)), run=run)


def test_replicas_that_exchange_reach_a_mode_where_none_began():
    """Three quarters of the density lie around -6, all chains begin around 6."""

    def energy(parameters, x):
        near, far = ((x[:, 0] - place) ** 2 for place in (6.0, -6.0))
        return -jnp.logaddexp(-0.5 * near, jnp.log(3.0) - 0.5 * far)

    rng = np.random.default_rng(0)
    path = RadialMap.fit(rng.choice([-6.0, 6.0], size=(1000, 1)) + rng.normal(size=(1000, 1)))
    path = RadialMap(*(jnp.asarray(part, jnp.float32) for part in path))
    start = path.back(jnp.asarray(6.0 + rng.normal(size=(400, 1)), jnp.float32))
    betas = jnp.linspace(0.0, 1.0, 8)
    chains = jnp.broadcast_to(start, (8, *start.shape)), jnp.full(8, 0.2)
    z, _ = _exchange(
        energy, ChainMoves("hmc", 5), None, path, chains, betas, jax.random.key(0), sweeps=300
    )
    share = np.mean(np.asarray(path(z[-1]))[:, 0] < 0)
    assert share == pytest.approx(0.75, abs=0.08)
