"""Mixtures of product distributions: how they are made, and their bound on log Z."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.numerics import xlogy
from kikuchi.engines.mean_field.mixture import Mixture
from kikuchi.graphs.graph_arrays import GraphArrays


def make_mixture(
    flat: GraphArrays, weights: Array, q: Array, smoothing: Array | None = None
) -> Mixture:
    """A mixture of the components `q` (rows of flat probabilities), with lambda to match.

    Smoothing functions are q_m / sum_k Q(k) q_k unless given.
    """
    from kikuchi.engines.mean_field.kernels.mixture_mean_field import overlaps, set_scales

    if smoothing is None:
        smoothing = q / np.maximum(weights @ q, np.finfo(np.float64).tiny)
        tops = np.maximum.reduceat(smoothing, flat.state_offsets[:-1], axis=1)
        smoothing = smoothing / np.repeat(tops, flat.cards.astype(np.int64), axis=1)
    n = len(weights)
    mixture = Mixture(
        weights.astype(np.float64),
        q,
        smoothing,
        np.zeros(n),
        np.zeros((n, n)),
        np.zeros((n, n), dtype=np.int64),
        np.zeros(n),
        np.zeros(flat.max_card),
    )
    overlaps(flat.state_offsets, mixture)
    set_scales(mixture)
    return mixture


def mixture_bound(
    flat: GraphArrays,
    mixture: Mixture,
    scratch: Array | None = None,
    form: Literal["lambda", "eliminated"] = "eliminated",
) -> float:
    """Lawrence's bound in either form, evaluated from scratch (2.20, 2.24)."""
    from kikuchi.engines.mean_field.kernels.mixture_mean_field import (
        component_bounds,
        information,
        overlaps,
    )

    if scratch is None:
        scratch = table_workspace(flat)
    overlaps(flat.state_offsets, mixture)
    bounds = np.zeros(len(mixture.weights))
    component_bounds(flat, mixture.q, 1.0, bounds, scratch)
    explicit, eliminated = information(mixture)
    mean = float(np.sum(xlogy(mixture.weights, bounds)))
    return mean + float(explicit if form == "lambda" else eliminated)


def table_workspace(flat: GraphArrays) -> Array:
    """Scratch for the contraction of any one factor."""
    return np.zeros(int(np.diff(flat.table_offsets).max(initial=1)))
