"""Quantile bins, their names, and the way back from a number to its bin."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.core.bins import (
    bin_column,
    check_bins,
    interval_edges,
    interval_given,
    interval_names,
    interval_of,
    quantile_edges,
)
from kikuchi.core.errors import DataError


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e4, 1e12])
@pytest.mark.parametrize("bins", [2, 3, 5, 10])
def test_bins_have_equal_sizes_and_their_names_give_the_edges_back(bins, scale):
    values = scale * np.random.default_rng(bins).normal(3.0, 1.0, 600)
    codes, names = bin_column(values, bins, "column x")
    assert len(names) == bins
    np.testing.assert_array_equal(np.bincount(codes.astype(int)), np.full(bins, 600 // bins))
    edges = interval_edges(names)
    assert interval_names(edges) == names
    assert [interval_of(names, x) for x in values] == codes.tolist()


def test_equal_values_share_a_bin_and_gaps_stay_gaps():
    codes, names = bin_column(np.array([0.5] * 8 + [1.5, 2.5, np.nan]), 4, "column x")
    assert names == ("<1", ">=1")
    np.testing.assert_array_equal(codes, [0] * 8 + [1, 1, np.nan])


def test_columns_that_are_states_already_stay():
    assert bin_column(np.array(["a", "b"], dtype=object), 5, "c") is None
    assert bin_column(np.array([0, 1, 2, 3, 4]), 5, "c") is None
    assert bin_column(np.array([True, False]), 5, "c") is None
    assert bin_column(np.arange(100), 5, "c")[1] == ("<20", "20..40", "40..60", "60..80", ">=80")


@pytest.mark.parametrize(
    "names",
    [("no", "yes"), ("<1", ">=2"), ("<2", "2..1", ">=1"), ("<a", ">=a"), ("<1",), ("<1", "1..2")],
)
def test_other_names_are_no_intervals(names):
    assert interval_edges(names) is None and interval_of(names, 1.0) is None


def test_evidence_counts_states_by_whole_numbers_and_holds_real_ones():
    names = ("<1", "1..2", ">=2")
    assert [interval_given(names, x) for x in (1, "1..2", True)] == [None, None, None]
    assert [interval_given(names, x) for x in (1.0, "1", np.float64(7))] == [1, 1, 2]


def test_edges_are_the_shortest_numbers_that_divide():
    assert quantile_edges([0.123, 0.456, 0.789, 0.999], 2) == [0.6]
    assert quantile_edges([1.0, np.nextafter(1.0, 2)], 2) == [np.nextafter(1.0, 2)]


def test_bad_bins_and_infinite_numbers_are_refused():
    with pytest.raises(DataError, match="bins must be an integer of at least 2, got 1"):
        check_bins(1)
    with pytest.raises(DataError, match="column x contains an infinite number"):
        bin_column(np.array([0.5, np.inf, 1.5]), 2, "column x")
