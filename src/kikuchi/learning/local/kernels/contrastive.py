"""Counts of the table entries of chains."""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import U8, Array
from kikuchi.core.compiled import njit


@njit(cache=True, error_model="numpy")
def add_entries(entries: U8, weights: Array, out: Array) -> None:
    """Add each chain's weight at the entries of all tables that it is at."""
    chains = np.uint64(len(weights))
    for a in range(np.uint64(len(entries)) // chains):
        for c in range(chains):
            out[entries[a * chains + c]] += weights[c]
