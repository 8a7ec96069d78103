"""Bayesian ICA of Lawrence's thesis (LAW-E19, LAW-E20, LAW-L12)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kurtosis

pytest.importorskip("sklearn")

from kikuchi.core.errors import DataError
from kikuchi.plots import to_svg
from kikuchi_experiments import find_experiment, reproduce
from kikuchi_experiments.lawrence2000.ica import (
    _matched,
    excess_kurtosis,
    mixtures,
    sparse_toy,
    two_images,
)


def test_the_third_source_of_the_toy_is_switched_off() -> None:
    outcome = reproduce("LAW-E19", quick=True, seeds=1, processes=1)
    assert all(row.agrees for row in outcome.rows())
    (one,) = outcome.finished
    # a column of zeros has the posterior of its prior: (a + P/2) / b
    assert one.result["relevance"][2] == pytest.approx(np.log10(1.501 / 1e-3), abs=0.01)
    assert to_svg(outcome.figure()).startswith("<?xml")


def test_the_toy_is_as_described() -> None:
    mixing, sources, samples = sparse_toy(3, 50_000)
    assert sources.var(axis=0) == pytest.approx([25.5, 25.5], rel=0.05)
    assert kurtosis(sources).min() > 1.5
    rest = samples - sources @ mixing.T
    assert rest.var() == pytest.approx(1e-4, rel=0.02)


def test_two_images_come_back() -> None:
    outcome = reproduce("LAW-E20", quick=True, seeds=1, first_seed=1, processes=1)
    rows = {row.quantity: row for row in outcome.rows()}
    assert rows["excess kurtosis of the images"].ours < 0
    assert rows["correlation of images and sources, two sources"].agrees
    assert rows["phantom source stays, three sources"].agrees
    for one in outcome.finished:
        assert one.result["pruned"]["kept"] == 2
        assert one.result["two"]["bound"] > one.result["three"]["bound"]
    assert to_svg(outcome.figure()).startswith("<?xml")


def test_each_source_stands_for_one_image() -> None:
    both_in_one = _matched(np.array([[0.9, 0.1], [0.8, 0.2]]))
    assert both_in_one["matched"] == [0.9, 0.2] and both_in_one["ghost"] == 0.8
    crossed = _matched(np.array([[0.1, 0.9], [0.7, 0.3]]))
    assert crossed["matched"] == [0.9, 0.7] and crossed["ghost"] == 0.3


def test_images_are_standard_and_mixed_as_asked() -> None:
    pixels, shape = two_images(None)
    assert pixels.shape == (shape[0] * shape[1], 2)
    assert pixels.mean(axis=0) == pytest.approx([0, 0], abs=1e-10)
    assert pixels.std(axis=0) == pytest.approx([1, 1])
    assert excess_kurtosis(pixels) == pytest.approx(kurtosis(pixels))
    mixing, mixed = mixtures(pixels, 0, 0.078)
    assert np.var(mixed - pixels @ mixing.T) == pytest.approx(0.078, rel=0.03)


def test_images_of_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    place = tmp_path / "pair.npz"
    np.savez(place, images=rng.random((2, 6, 5)))
    pixels, shape = two_images(str(place))
    assert shape == (6, 5) and pixels.shape == (30, 2)
    np.savez(place, images=rng.random((3, 6, 5)))
    with pytest.raises(DataError, match="has 3 images; expected two"):
        two_images(str(place))
    assert find_experiment("LAW-E20", str(place)).source()["digest"]
