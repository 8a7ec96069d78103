"""Coordinates of rows of different lengths: determinant, inverse, and what they are for."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kikuchi.energy.annealing import annealed_log_z
from kikuchi.energy.radial import RadialMap, length_spread
from kikuchi.energy.samplers import ChainMoves


@pytest.fixture
def uneven():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2000, 5)) @ rng.normal(size=(5, 5)) * rng.lognormal(size=(2000, 1))


def test_the_determinant_is_that_of_the_jacobian(uneven):
    with jax.enable_x64(True):
        chart = RadialMap.fit(uneven)
        z = np.random.default_rng(1).normal(size=(6, 5))
        expected = [np.linalg.slogdet(jax.jacfwd(lambda a: chart(a[None])[0])(row))[1] for row in z]
        assert np.asarray(chart.log_det(z)) == pytest.approx(np.array(expected), abs=1e-9)
    assert float(chart.stretch) > 0.3


def test_the_map_is_undone_for_short_and_long_rows(uneven):
    with jax.enable_x64(True):
        chart = RadialMap.fit(uneven)
        lengths = np.logspace(-4, 4, 9)[:, None]
        rows = chart.mean + lengths * np.random.default_rng(2).normal(size=(9, 5))
        assert np.asarray(chart(chart.back(rows)) - chart.mean) == pytest.approx(
            rows - chart.mean, rel=1e-9
        )


def test_gaussian_rows_get_a_plain_linear_map():
    chart = RadialMap.fit(np.random.default_rng(0).uniform(-1, 1, size=(5000, 6)))
    assert chart.stretch == chart.centre == 0.0


def test_log_lengths_are_those_of_the_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 30)) * rng.lognormal(0.5, 0.8, size=(5000, 1))
    chart = RadialMap(0.0, None, *length_spread(rows))
    made = np.asarray(chart(rng.normal(size=(5000, 30)).astype(np.float32)))
    logs, wanted = (np.log(np.linalg.norm(x, axis=1)) for x in (made, rows))
    assert logs.mean() == pytest.approx(wanted.mean(), abs=0.1)
    assert logs.std() == pytest.approx(wanted.std(), rel=0.05)


def heavy(parameters, x):
    """Student's t of many dimensions, whose rows differ in length by orders of magnitude."""
    half = 0.5 * (parameters["degrees"] + x.shape[-1])
    return half * jnp.log1p(jnp.sum(x * x, axis=-1) / parameters["degrees"])


def test_rows_of_very_different_lengths_have_a_narrow_bracket():
    size, degrees = 20, 3.0
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, size))
    rows /= np.sqrt(rng.chisquare(degrees, size=(3000, 1)) / degrees)
    parameters = {"degrees": np.array(degrees, dtype=np.float32)}
    exact = 0.5 * size * np.log(np.pi * degrees)
    exact += math.lgamma(0.5 * degrees) - math.lgamma(0.5 * (degrees + size))
    found = annealed_log_z(
        heavy, parameters, rows, betas=200, batches=1, burn_in=50, confidence=0.999, random_state=0
    )
    assert found.lower < exact < found.upper
    assert found.width < 0.5


def test_chains_that_begin_at_zero_move():
    """A window of silence is a row of zeros."""
    chart = RadialMap(0.0, None, 0.1, 0.3)
    rows, _ = ChainMoves("hmc", 3).run(
        lambda z: 0.5 * jnp.sum(z * z, axis=-1) - chart.log_det(z),
        chart.back(np.zeros((50, 4), np.float32)), 0.2, jax.random.key(0), 5,
    )  # fmt: skip
    assert np.all(np.linalg.norm(np.asarray(rows), axis=1) > 0)
