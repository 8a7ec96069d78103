"""All single flips of a row at once: the pseudo-likelihood of a machine in O(units x experts).

Flipping visible unit i moves the field of hidden unit j by d W_ij with d = 1 - 2 v_i, and

    (1 + exp(a_j + d W_ij)) / (1 + exp(a_j)) = q_j + p_j exp(d W_ij),    p_j = sigma(a_j) = 1 - q_j,

so that exponentials of the weights, taken once, are all that is needed (ER8).

Reference: TEH-L10.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.compiled import njit


class FlippedRows(NamedTuple):
    """Rows, the field on each of their units without hidden units, and p and q of each row."""

    visible: Array
    own: Array
    on: Array
    off: Array


@njit(cache=True, error_model="numpy")
def flips(rows, grown, shrunk, chunk, odds, hidden, corrections):
    """Log odds of each flip, and what their gradients add up to.

    `grown[i, j]` is exp(W_ij), `shrunk` exp(-W_ij). Results: `odds[n, i]`, the log of the ratio of
    the weights of the flipped row and the row; with g = sigma(odds), `hidden[n, j]` is the sum over
    i of g (mean of j after the flip - mean now), and `corrections[i, j]` the sum over n of g d
    times the mean of j after the flip. `chunk` ratios are multiplied before a logarithm is taken.
    """
    visible, own, on, off = rows
    count, units = visible.shape
    experts = on.shape[1]
    after = np.empty(experts)
    for i in range(units):
        for n in range(count):
            d = 1.0 - 2.0 * visible[n, i]
            factor = grown[i] if d > 0 else shrunk[i]
            p, q = on[n], off[n]
            total = d * own[n, i]
            for start in range(0, experts, chunk):
                product = 1.0
                for j in range(start, min(start + chunk, experts)):
                    up = p[j] * factor[j]
                    ratio = q[j] + up
                    product *= ratio
                    after[j] = up / ratio
                total += np.log(product)
            odds[n, i] = total
            g = 1.0 / (1.0 + np.exp(-total)) if total > -700.0 else 0.0
            row, correction = hidden[n], corrections[i]
            for j in range(experts):
                row[j] += g * (after[j] - p[j])
                correction[j] += g * d * after[j]
