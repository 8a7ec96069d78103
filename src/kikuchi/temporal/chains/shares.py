"""Tables of probabilities as parameters: learnt from counts, packed, differentiated.

The last axis of a table sums to 1. Entries that are zero are structural: they stay zero, get no
pseudo-counts and are no parameters.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.special import logsumexp

from kikuchi.core.arrays import Array


def softmax(logits: Array) -> Array:
    """Normalised exponentials of the last axis."""
    return np.asarray(np.exp(logits - logsumexp(logits, axis=-1, keepdims=True)))


def learnt_shares(counts: Array, before: Array, pseudo_count: float = 0.0) -> Array:
    """Relative counts, with a pseudo-count for each entry that is possible in the table `before`;
    rows without counts stay as they were.

    >>> before = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    >>> learnt_shares(np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), before, 1.0).round(2).tolist()
    [[0.6, 0.4, 0.0], [0.0, 0.0, 1.0]]
    """
    counts = counts + pseudo_count * (before > 0.0)
    totals = counts.sum(axis=-1, keepdims=True)
    return np.where(totals > 1e-300, counts / np.maximum(totals, 1e-300), before)


def log_prior(tables: Iterable[Array], pseudo_count: float) -> float:
    """What pseudo-counts add to the log-likelihood: their number times the logarithm of each
    possible entry. The maximum of the sum is what EM with pseudo-counts tends to.
    """
    if not pseudo_count:
        return 0.0
    return pseudo_count * float(sum(np.log(table[table > 0.0]).sum() for table in tables))


def free_shares(table: Array) -> int:
    """Return the number of free parameters: of each row one less than its possible entries.

    >>> free_shares(np.array([[0.2, 0.8, 0.0], [0.2, 0.3, 0.5]]))
    3
    """
    return int(np.count_nonzero(table) - table[..., 0].size)


def pack_shares(table: Array) -> Array:
    """Logarithms of the possible entries, as a vector."""
    return np.asarray(np.log(table[table > 0.0]))


def unpack_shares(table: Array, vector: Array) -> Array:
    """A table with the zeros of `table`, from logarithms of the other entries up to a constant of
    each row.

    >>> unpack_shares(np.array([[0.2, 0.8, 0.0]]), np.zeros(2)).tolist()
    [[0.5, 0.5, 0.0]]
    """
    logits = np.full(table.shape, -np.inf)
    logits[table > 0.0] = vector
    return softmax(logits)


def shares_slope(counts: Array, table: Array, pseudo_count: float = 0.0) -> Array:
    """Slope of sum (counts + pseudo_count) log(entry) along `pack_shares`."""
    some = table > 0.0
    counts = counts + pseudo_count * some
    return np.asarray((counts - counts.sum(axis=-1, keepdims=True) * table)[some])
