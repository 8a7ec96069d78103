"""A binary heap of numbered items with changing keys, for residual schedules."""

from __future__ import annotations

import numpy as np
from numba import njit

_U0 = np.uint64(0)
_U1 = np.uint64(1)


@njit(cache=True, error_model="numpy")
def sift(heap, place, key, at):
    """Restore the heap (largest key first) around position `at`; `place` inverts `heap`."""
    item = heap[at]
    value = key[item]
    while at > _U0:
        parent = (at - _U1) // np.uint64(2)
        if key[heap[parent]] >= value:
            break
        heap[at] = heap[parent]
        place[heap[at]] = at
        at = parent
    size = np.uint64(heap.size)
    while True:
        child = np.uint64(2) * at + _U1
        if child >= size:
            break
        if child + _U1 < size and key[heap[child + _U1]] > key[heap[child]]:
            child += _U1
        if key[heap[child]] <= value:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = item
    place[item] = np.uint32(at)
