"""Rows that only fill a shape change nothing, and spare compilations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from kikuchi.bayesnn import BayesianMLPClassifier, BayesianMLPRegressor  # noqa: E402
from kikuchi.bayesnn.bound import (  # noqa: E402
    ClassData,
    GammaDensity,
    Hyper,
    RegressionData,
    descent,
    filled,
    filled_size,
    mode_descent,
    mode_precision,
)
from kikuchi.bayesnn.network import Network  # noqa: E402
from kikuchi.bayesnn.networks import NetworksPosterior  # noqa: E402
from kikuchi.bayesnn.posteriors import Weights, weight_posterior  # noqa: E402

HYPER = Hyper(GammaDensity(2.0, 1.5), GammaDensity(1.5, 0.3))


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def some_data(kind: str, rng: np.random.Generator) -> tuple[Any, int]:
    x = jnp.asarray(np.column_stack([rng.normal(size=(21, 2)), np.ones(21)]))
    if kind == "regression":
        return RegressionData(x, jnp.asarray(rng.normal(size=21))), 1
    if kind == "two classes":
        return ClassData(x, jnp.asarray(rng.choice([-1.0, 1.0], size=(21, 1)))), 1
    return ClassData(x, jnp.asarray(np.eye(3)[rng.integers(3, size=21)])), 3


@pytest.mark.parametrize("kind", ["regression", "two classes", "three classes"])
def test_value_and_gradient_are_those_of_the_rows_alone(kind: str) -> None:
    rng = np.random.default_rng(0)
    data, networks = some_data(kind, rng)
    more = filled(data)
    assert more.y.shape[0] == filled_size(21) == 24 and float(more.present.sum()) == 21
    network = Network(2, 3, False)
    posterior: Any = weight_posterior("layered", network)
    if kind != "regression":
        posterior = NetworksPosterior(network, posterior, networks)
    weights = Weights(jnp.ones(posterior.n_weights), jnp.ones(posterior.n_weights))
    flat = 0.3 * rng.normal(size=posterior.size)
    pairs = [descent(posterior, "ard", jnp.asarray(flat), weights, d, HYPER) for d in (data, more)]
    assert float(pairs[0][0]) == pytest.approx(float(pairs[1][0]), rel=1e-12)
    np.testing.assert_allclose(pairs[0][2], pairs[1][2], rtol=1e-9, atol=1e-10)
    along = rng.normal(size=flat.shape)
    ends = [
        float(descent(posterior, "ard", jnp.asarray(flat + h * along), weights, more, HYPER)[0])
        for h in (1e-5, -1e-5)
    ]
    slope = float(np.asarray(pairs[1][2]) @ along)
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-6)

    w = jnp.asarray(rng.normal(size=networks * network.n_weights))
    modes = [mode_descent(network, w, d, jnp.asarray(0.3), 20.0) for d in (data, more)]
    assert float(modes[0][0]) == pytest.approx(float(modes[1][0]), rel=1e-12)
    np.testing.assert_allclose(modes[0][1], modes[1][1], rtol=1e-9, atol=1e-10)
    if kind == "regression":
        curved = [mode_precision(network, w, d, jnp.asarray(0.3), 20.0) for d in (data, more)]
        np.testing.assert_allclose(curved[0], curved[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("estimator", [BayesianMLPRegressor, BayesianMLPClassifier])
def test_tables_of_similar_length_share_their_programs(estimator: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(63, 2))
    y = x[:, 0] + 0.3 * rng.normal(size=63)
    targets = y if estimator is BayesianMLPRegressor else y > 0
    options = {"n_init": 1, "max_iter": 5, "random_state": 0}
    sizes = []
    for rows in (58, 60, 63):
        estimator(2, "diagonal", **options).fit(x[:rows], targets[:rows])
        sizes.append((descent._cache_size(), mode_descent._cache_size()))
    assert sizes == [sizes[0]] * 3
