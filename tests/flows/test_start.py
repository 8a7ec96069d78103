"""Gaussian mixtures that flows begin from: covariances shrunk as held-out rows advise."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.core.arrays import Array
from kikuchi.flows.evaluation import GAUSSIANS
from kikuchi.flows.start import (
    CANDIDATES,
    _parts,
    gaussian_log_density,
    gaussian_start,
    refitted,
)


def clusters(count: int, seed: int, shared: bool) -> Array:
    """Rows around six centres in ten dimensions, with one covariance or one each."""
    rng = np.random.default_rng(7)
    centres = 6.0 * rng.normal(size=(6, 10))
    factors = rng.normal(size=(6, 10, 10)) / np.sqrt(10) + np.eye(10)
    rng = np.random.default_rng(seed)
    which = rng.integers(6, size=count)
    chosen = factors[np.zeros_like(which) if shared else which]
    noise = np.einsum("nij,nj->ni", chosen, rng.normal(size=(count, 10)))
    return np.asarray(centres[which] + noise)


@pytest.mark.parametrize("shared", [True, False])
def test_covariances_are_pooled_where_components_share_one(shared: bool) -> None:
    rows, held, test = clusters(180, 0, shared), clusters(60, 1, shared), clusters(2000, 2, shared)
    start = gaussian_start(rows, held, 6, 1e-3, 0)
    alone = gaussian_start(rows, None, 6, 1e-3, 0)  # the fixed shrinkage of few rows
    pooling = start.shrinking[0]
    assert pooling >= 0.5 if shared else pooling <= 0.3

    def score(mixture: object) -> float:
        arrays = mixture.weights, mixture.means, mixture.covariances  # type: ignore[attr-defined]
        return float(gaussian_log_density(*arrays, test).mean())

    assert score(start) > score(alone) + (1.0 if shared else 0.0)
    assert score(refitted(start, np.concatenate([rows, held]), 1e-3)) > score(start)


def test_one_component_is_shrunk_towards_its_diagonal_only() -> None:
    rng = np.random.default_rng(0)
    start = gaussian_start(rng.normal(size=(15, 10)), rng.normal(size=(40, 10)), 1, 1e-3, 0)
    assert start.shrinking[0] == 0.0 and start.shrinking[1] >= 0.5


def test_few_held_out_rows_are_joined_by_other_parts() -> None:
    rows = np.arange(180.0)[:, None]
    held = np.arange(180.0, 200.0)[:, None]
    parts = _parts(rows, held)
    assert len(parts) == 5
    judged = np.concatenate([part for _, part in parts])
    assert len(np.unique(judged)) == 100  # no row judges twice
    for learnt, part in parts:
        assert np.array_equal(
            np.sort(np.concatenate([learnt, part]), axis=0), np.arange(200)[:, None]
        )
    assert len(_parts(np.zeros((9000, 1)), np.zeros((1000, 1)))) == 1


def test_the_peers_may_have_as_many_components_as_the_start() -> None:
    assert GAUSSIANS == CANDIDATES
