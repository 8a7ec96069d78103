"""Measures of recovery: their extremes, their invariances and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.core.errors import DataError
from kikuchi.ica.measures import (
    amari_distance,
    column_angles,
    match_sources,
    matched_correlation,
    snr,
)


def test_amari_distance_is_zero_at_scaled_permutations_and_one_at_worst():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(5, 5))
    turned = np.diag([1.0, -2.0, 3.0, 0.1, 5.0])[rng.permutation(5)] @ np.linalg.inv(mixing)
    assert amari_distance(turned, mixing) < 1e-13
    for size in (2, 7):
        assert amari_distance(np.ones((size, size)), np.eye(size)) == 1.0
    assert amari_distance([[2.0]], [[-3.0]]) == 0.0


def test_amari_distance_follows_its_definition():
    p = np.array([[1.0, 0.5], [0.25, -2.0]])
    expected = (0.5 + 0.125 + 0.25 + 0.25) / (2 * 2 * 1)
    assert amari_distance(p, np.eye(2)) == pytest.approx(expected)
    assert amari_distance(p.T, np.eye(2)) == pytest.approx(expected)


def test_amari_distance_of_more_channels_than_sources():
    mixing = np.random.default_rng(1).normal(size=(6, 3))
    assert amari_distance(np.linalg.pinv(mixing), mixing) < 1e-13


def test_matching_undoes_order_and_sign():
    rng = np.random.default_rng(2)
    true = rng.laplace(size=(500, 4))
    order, sign = np.array([2, 0, 3, 1]), np.array([1.0, -1.0, -1.0, 1.0])
    estimated = (true * sign)[:, order] + 0.1 * rng.normal(size=(500, 4))
    match = match_sources(estimated, true)
    assert np.array_equal(order[match.order], np.arange(4))
    assert np.array_equal(match.sign, sign)
    assert matched_correlation(estimated, true).min() > 0.98
    assert np.corrcoef(match.apply(estimated)[:, 1], true[:, 1])[0, 1] > 0.98


def test_matching_is_of_greatest_total_where_a_greedy_one_fails():
    """Estimate 0 is nearest to both true sources; whoever takes it first leaves the other poor."""
    rng = np.random.default_rng(5)
    basis = np.linalg.qr(rng.normal(size=(50, 4)))[0]
    basis -= basis.mean(axis=0)
    true = np.linalg.qr(basis)[0][:, :2]
    rest = np.linalg.qr(basis)[0][:, 2:]
    shared = 0.70 * true[:, 0] + 0.71 * true[:, 1]
    alone = 0.69 * true[:, 1] + 0.72 * rest[:, 0]
    match = match_sources(np.column_stack([shared, alone]), true)
    assert match.order.tolist() == [0, 1]  # greedy: 0.71 first, then 0 for the true source 0


def test_units_of_sources_do_not_matter():
    rng = np.random.default_rng(6)
    true = rng.normal(size=(100, 2)) * [1e-9, 1e6]
    assert matched_correlation(true[:, ::-1], true) == pytest.approx([1.0, 1.0])


def test_correlation_and_ratio_agree_with_numpy():
    rng = np.random.default_rng(3)
    true = rng.normal(size=(400, 1))
    estimated = 3.0 * true + rng.normal(size=(400, 1)) - 7.0
    r = np.corrcoef(estimated[:, 0], true[:, 0])[0, 1]
    slope = np.polyfit(true[:, 0], estimated[:, 0], 1)
    residual = estimated[:, 0] - np.polyval(slope, true[:, 0])
    signal = np.polyval(slope, true[:, 0])
    expected = 10 * np.log10(signal.var() / residual.var())
    assert matched_correlation(estimated, true)[0] == pytest.approx(abs(r))
    assert snr(estimated, true)[0] == pytest.approx(expected)
    assert snr(true, true)[0] > 100
    assert snr(np.ones((400, 1)), true)[0] == -np.inf


def test_angles_match_columns_whatever_sign_and_length():
    rng = np.random.default_rng(4)
    true = rng.normal(size=(3, 4))
    tilt = np.radians(5.0)
    axis = np.linalg.svd(true[:, :1])[0][:, 1]
    moved = true.copy()
    length = np.linalg.norm(true[:, 0])
    moved[:, 0] = np.cos(tilt) * true[:, 0] + np.sin(tilt) * length * axis
    angles = column_angles((moved * [2, -1, 0.5, -3])[:, [3, 1, 0, 2]], true)
    assert angles[0] == pytest.approx(5.0)
    assert angles[1:].max() < 1e-5
    lost = true.copy()
    lost[:, 2] = 0.0
    assert column_angles(lost, true).max() == pytest.approx(90.0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: amari_distance(np.ones((2, 3)), np.ones((2, 3))), "product must be square"),
        (lambda: amari_distance([[1.0, 0.0], [0.0, 0.0]], np.eye(2)), "missing altogether"),
        (lambda: amari_distance([1.0], np.eye(2)), "a matrix is needed"),
        (lambda: amari_distance([[np.nan]], [[1.0]]), "NaN"),
        (lambda: match_sources(np.ones((3, 1)), np.ones((4, 1))), "3 samples"),
        (lambda: match_sources(np.ones((3, 1)), np.ones((3, 2))), "cannot cover"),
        (lambda: column_angles(np.ones((3, 1)), np.ones((3, 2))), "every true column"),
    ],
)
def test_bad_input_is_one_clear_line(call, text):
    with pytest.raises(DataError, match=text) as caught:
        call()
    assert "\n" not in str(caught.value)
