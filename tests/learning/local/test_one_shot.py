"""One-shot linear response learning: errors fall with the square of the couplings (TEH-L7)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import DataError, MethodError
from kikuchi.graphs.binary import boltzmann_parameters
from kikuchi.learning.data import Data
from kikuchi.learning.local.one_shot import OneShot
from oracle import enumerate_exact

GOLDEN = [8.9e-3, 1.4e-3, 2.7e-4, 5.7e-5]
"""Largest error of a coupling in the catalogue, for weights scaled by 0.4, 0.2, 0.1, 0.05."""


def _machine(weights: np.ndarray, biases: np.ndarray) -> kk.FactorGraph:
    return kk.boltzmann_graph(weights, biases)


def _whole(graph: kk.FactorGraph) -> Data:
    """Every state, weighted by its probability."""
    states = list(itertools.product((0, 1), repeat=graph.n_variables))
    log_z = enumerate_exact(graph)[0]
    weights = [np.exp(graph.log_score(x) - log_z) for x in states]
    return Data.of(np.array(states), graph, weights=weights)


def _weights(graph: kk.FactorGraph) -> tuple[np.ndarray, np.ndarray]:
    bits = boltzmann_parameters(graph)
    n = graph.n_variables
    dense = np.zeros((n, n))
    rows = np.repeat(np.arange(n), bits.degrees)
    dense[rows, bits.neighbours] = bits.weights
    return dense, bits.biases


@pytest.mark.parametrize("seed", range(3))
def test_the_error_falls_at_least_quadratically(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = np.triu(rng.normal(size=(5, 5)), 1)
    w, b = w + w.T, 0.5 * rng.normal(size=5)
    errors = []
    for scale in (0.4, 0.2, 0.1, 0.05):
        truth = _machine(scale * w, b)
        fit = OneShot(prior=0.0).fit(truth, _whole(truth))
        found, biases = _weights(fit.graph)
        errors.append(np.abs(found - scale * w).max())
        assert np.abs(biases - b).max() < 0.5 * scale
    if seed == 0:  # this machine happens to be the catalogue's, or errs as it does
        np.testing.assert_allclose(errors, GOLDEN, rtol=0.03)
    assert errors[0] < 0.2
    for larger, smaller in itertools.pairwise(errors):
        assert smaller < larger / 3.0
    assert errors[-1] < 4 * 0.05**2


def test_the_equations_hold() -> None:
    """Mean field and linear response read backwards from the answer give the data's moments."""
    truth = kk.generate.complete(4, seed=1, coupling=0.2)
    data = _whole(truth)
    w, b = _weights(OneShot(prior=0.0).fit(truth, data).graph)
    x, p = data.states.astype(float), data.weights
    m = p @ x
    covariance = (x * p[:, None]).T @ x - np.outer(m, m)
    np.testing.assert_allclose(1 / (1 + np.exp(-(b + w @ m))), m, atol=1e-12)
    inverse = np.linalg.inv(covariance)
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(w[off], -inverse[off], atol=1e-10)


def test_pairs_without_unary_factors_and_repeated_ones() -> None:
    pairs = [((1, 0), np.ones(4)), ((0, 1), np.ones(4)), ((1, 2), np.ones(4))]
    graph = kk.FactorGraph([2, 2, 2, 2], pairs)
    machine = kk.boltzmann_graph({(0, 1): 0.1, (1, 2): -0.1}, [0.2, 0.1, -0.3])
    states = np.hstack([_whole(machine).states, np.zeros((8, 1), dtype=int)])
    data = Data.of(states, graph, weights=_whole(machine).weights)
    with pytest.raises(DataError, match="variable 3 is in the same state in every row"):
        OneShot(prior=0.0).fit(graph, data)
    fit = OneShot(prior=1e-3).fit(graph, data)
    w, b = _weights(fit.graph)
    assert w[0, 1] == pytest.approx(0.1, abs=0.01) and w[1, 2] == pytest.approx(-0.1, abs=0.01)
    assert b[:3] == pytest.approx([0.2, 0.1, -0.3], abs=0.02)


def test_copies_of_a_column_need_a_prior() -> None:
    graph = kk.generate.complete(2)
    with pytest.raises(DataError, match="singular"):
        OneShot(prior=0.0).fit(graph, [[0, 0], [1, 1]])
    fit = OneShot().fit(graph, [[0, 0], [1, 1]] * 20)
    assert _weights(fit.graph)[0][0, 1] > 0


@pytest.mark.parametrize(
    ("graph", "what"),
    [
        (kk.grid(2, 2, states=3), "a variable .0. of 3 states"),
        (kk.FactorGraph([2] * 3, [((0, 1, 2), np.ones(8))]), "more than two variables"),
        (kk.FactorGraph([2, 2], [((0, 1), [[1, 0], [1, 1]])]), "zeros"),
    ],
)
def test_other_models_are_refused(graph: kk.FactorGraph, what: str) -> None:
    with pytest.raises(MethodError, match=what + ".*use learner pseudo"):
        OneShot().fit(graph, np.zeros((2, graph.n_variables), dtype=int))


def test_couplings_beyond_linear_response_are_no_solution() -> None:
    """Strong couplings: the likelihood falls below that of independent variables (TEH-L7)."""
    for coupling, good in ((0.1, True), (1.0, False)):
        truth = kk.grid(4, 4, seed=0, coupling=coupling)
        rows = kk.plan(truth).calibrate().sample(1000, seed=1)
        fit = OneShot().fit(truth, rows)
        means = (rows.sum(axis=0) + 0.5) / (len(rows) + 1)
        alone = (rows @ np.log(means) + (1 - rows) @ np.log1p(-means)).mean()
        assert fit.converged == good == (fit.log_likelihood > alone)
        assert any("too strong for linear response" in w for w in fit.warnings) != good
        assert fit.stopped == ("converged" if good else "iterations")
