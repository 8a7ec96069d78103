"""Loops of adaptive TAP: Gaussian posteriors of many samples, with one factor per source.

The posterior of a sample has precision J + diag(site) and linear part h plus that of the sites.
Samples are the last axis, so that the inner loops run over them.

Reference: HOJ-I19.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.ica.kernels.response import BLOCK, _entry, block_arrays, invert_block


@njit(cache=True, error_model="numpy")
def _build(couplings, site, start, width, root, work, fine):
    """The precision of a block, scaled to ones on its diagonal."""
    count = site.shape[0]
    shared = couplings.shape[0] == 1
    for b in range(BLOCK):
        fine[b] = 1.0
    for i in range(count):
        for b in range(BLOCK):
            n = start + min(b, width - 1)
            own = couplings[0 if shared else n, i, i] + site[i, n]
            if not own > 0.0:
                fine[b] = 0.0
                own = 1.0
            root[i, b] = 1.0 / math.sqrt(own)
            work[i, i, b] = 1.0
        for j in range(i):
            for b in range(BLOCK):
                n = start + min(b, width - 1)
                value = couplings[0 if shared else n, i, j]
                work[i, j, b] = root[i, b] * value * root[j, b]


@njit(cache=True, error_model="numpy")
def refresh(couplings, site, linear, chi, mean, log_det, definite):
    """chi = (J + diag site)^-1, mean = chi linear and log det of the precision.

    Samples whose precision is not positive definite are marked and left as they were.
    """
    count, total = site.shape
    work, inverse, root, fine, product, block_det, entry = block_arrays(count)
    positive = np.empty(BLOCK)
    for start in range(0, total, BLOCK):
        width = min(BLOCK, total - start)
        _build(couplings, site, start, width, root, work, positive)
        invert_block(work, inverse, fine, product, block_det)
        for b in range(BLOCK):
            fine[b] *= positive[b]
        for i in range(count):
            for j in range(i + 1):
                _entry(inverse, root, fine, i, j, entry)
                for b in range(width):
                    if fine[b] == 1.0:
                        chi[i, j, start + b] = entry[b]
                        chi[j, i, start + b] = entry[b]
        for b in range(width):
            n = start + b
            definite[n] = fine[b] == 1.0
            if fine[b] == 1.0:
                log_det[n] = block_det[b]
                for i in range(count):
                    log_det[n] -= 2.0 * math.log(root[i, b])
                    value = 0.0
                    for j in range(count):
                        value += chi[i, j, n] * linear[j, n]
                    mean[i, n] = value


@njit(cache=True, error_model="numpy")
def change_site(chi, mean, i, precision_change, linear_change, factor, shift, column):
    """Add to one factor's precision and linear part; chi and mean follow exactly (rank one).

    `factor`, `shift` (n,) and `column` (I, n) are work space.
    """
    count, total = mean.shape
    for n in range(total):
        bottom = 1.0 + precision_change[n] * chi[i, i, n]
        factor[n] = precision_change[n] / bottom
        shift[n] = (linear_change[n] - precision_change[n] * mean[i, n]) / bottom
    for j in range(count):
        for n in range(total):
            column[j, n] = chi[j, i, n]
    for j in range(count):
        for n in range(total):
            mean[j, n] += column[j, n] * shift[n]
        for k in range(count):
            if j != i and k != i:
                for n in range(total):
                    chi[j, k, n] -= factor[n] * column[j, n] * column[k, n]
        for n in range(total):  # by a quotient: a difference would leave nothing of a small chi_ii
            value = column[j, n] / (1.0 + precision_change[n] * column[i, n])
            chi[j, i, n] = value
            chi[i, j, n] = value
