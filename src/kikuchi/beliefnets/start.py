"""First networks: parts of the rows as the weights of hidden units, or small random weights.

The likelihood of a network has many optima, and the one that training reaches depends on the start.
Where rows are unions of parts, as strokes of digits are, a non-negative factorisation finds parts
in a moment that gradients from small random weights seldom do.
"""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
from scipy.special import logit

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.core.arrays import Array

_PART_WEIGHT = 3.0  # from a hidden unit to the middle of its part
_JITTER = 0.1  # of the weights around parts
_MOST_ROWS = 2000  # that are factorised
_PASSES = 100
_HALF = 0.5  # share of the largest entry of a part from which on a row has the part


def random_start(sizes: tuple[int, ...], rows: Array, rng: np.random.Generator) -> SigmoidNetwork:
    """Small random weights; visible biases are the log-odds of the data.

    >>> net = random_start((2, 3), np.zeros((4, 3)), np.random.default_rng(0))
    >>> net.layers
    (2, 3)
    """
    weights = [rng.normal(size=pair) * 0.5 / np.sqrt(pair[0]) for pair in pairwise(sizes)]
    biases = [np.zeros(size) for size in sizes]
    # hidden units begin half on, so that their mean input is taken back
    biases[-1] = log_odds(rows) - 0.5 * weights[-1].sum(axis=0)
    return SigmoidNetwork.layered(weights, biases)


def parts_start(sizes: tuple[int, ...], rows: Array, rng: np.random.Generator) -> SigmoidNetwork:
    """Weights of the lowest hidden layer along the parts of a non-negative factorisation.

    Hidden units begin as often on as rows have their parts, visible units at the log-odds of the
    data; layers above begin with random weights.

    >>> rows = np.repeat([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]], 20, axis=0)
    >>> net = parts_start((2, 4), rows, np.random.default_rng(0))
    >>> sorted((np.argmax(net.matrices()[0], axis=1) // 2).tolist())
    [0, 1]
    """
    parts, on = _factorised(rows, sizes[-2], rng)
    lowest = _PART_WEIGHT * parts + _JITTER * rng.normal(size=parts.shape)
    weights = [rng.normal(size=pair) / np.sqrt(pair[0]) for pair in pairwise(sizes[:-1])]
    biases = [np.zeros(size) for size in sizes]
    biases[-2] = logit(on)
    biases[-1] = log_odds(rows) - on @ lowest
    for at, above in enumerate(weights):
        biases[at + 1] -= 0.5 * above.sum(axis=0)
    return SigmoidNetwork.layered([*weights, lowest], biases)


def log_odds(rows: Array) -> Array:
    """Log-odds that each column is 1, with half a count added to both states."""
    return np.asarray(logit((rows.sum(axis=0) + 0.5) / (len(rows) + 1.0)))


def _factorised(rows: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Parts (count, columns) with largest entry 1, and the share of the rows that have each."""
    from sklearn.decomposition import NMF

    some = rows[rng.permutation(len(rows))[:_MOST_ROWS]]
    model = NMF(
        count, init="random", max_iter=_PASSES, tol=1e-3, random_state=int(rng.integers(2**31))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not converge: a start is all that is wanted
        activity = model.fit_transform(some)
    largest = model.components_.max(axis=1)
    parts = model.components_ / np.maximum(largest, np.finfo(np.float64).tiny)[:, None]
    has = np.sum(activity * largest > _HALF, axis=0)
    return parts, (has + 0.5) / (len(some) + 1.0)
