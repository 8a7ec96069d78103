"""Log-domain numerics against SciPy and exact cases."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy import special

from kikuchi.core import numerics

INF = np.inf


def test_log_of_zero_is_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numerics.log([0.0, 1.0, np.e]).tolist() == [-INF, 0.0, 1.0]
        assert numerics.log(0).shape == ()


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (0, 1, 2)])
def test_logsumexp_agrees_with_scipy(axis) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 5)) * 400
    x[rng.random(x.shape) < 0.2] = -INF
    assert np.allclose(numerics.logsumexp(x, axis), special.logsumexp(x, axis), rtol=1e-14)
    assert np.shape(numerics.logsumexp(x, axis)) == np.shape(special.logsumexp(x, axis))


def test_logsumexp_of_nothing_but_zeros() -> None:
    assert numerics.logsumexp([-INF, -INF]) == -INF
    x = np.array([[-INF, -INF], [0.0, -INF]])
    assert numerics.logsumexp(x, axis=1).tolist() == [-INF, 0.0]
    assert float(numerics.logsumexp(-3.0)) == -3.0


def test_logsumexp_does_not_overflow() -> None:
    assert float(numerics.logsumexp([1e4, 1e4])) == pytest.approx(1e4 + np.log(2))
    assert float(numerics.logsumexp([-1e4, -1e4])) == pytest.approx(-1e4 + np.log(2))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_normalise_log_agrees_with_softmax(axis) -> None:
    x = np.random.default_rng(1).normal(size=(4, 6)) * 300
    assert np.allclose(numerics.normalise_log(x, axis), special.softmax(x, axis), rtol=1e-13)
    assert np.allclose(numerics.normalise_log(x, axis).sum(axis=axis), 1.0)


def test_xlogy_counts_zero_times_minus_infinity_as_zero() -> None:
    p = np.array([0.0, 0.25, 0.75])
    assert numerics.xlogy(p, numerics.log(p)) == pytest.approx(special.xlogy(p, p))
    assert numerics.xlogy(0.0, -INF) == 0.0
    assert numerics.xlogy(0.5, -INF) == -INF


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_entropy_agrees_with_scipy(axis) -> None:
    p = np.random.default_rng(2).dirichlet(np.ones(5), size=3)
    p[0, 0] = 0.0
    assert np.allclose(numerics.entropy(p, axis), special.entr(p).sum(axis=axis))


def test_segment_sums() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        sizes = rng.integers(0, 4, size=8)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        values = rng.normal(size=int(offsets[-1]))
        expected = [values[lo:hi].sum() for lo, hi in itertools.pairwise(offsets)]
        assert np.allclose(numerics.segment_sums(values, offsets), expected)
    assert numerics.segment_sums(np.zeros(0), np.array([0])).tolist() == []
    assert numerics.segment_sums(np.zeros(0), np.array([0, 0])).tolist() == [0.0]
