"""A binary heap of numbered items with changing keys: the item of the largest key comes first.

`heap` lists the items, `position` inverts it. A key is a number, or a row of four numbers that are
compared from left to right.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import planner

_U0, _U1, _U2 = np.uint64(0), np.uint64(1), np.uint64(2)


@planner
def _key_of(keys, item):
    if keys.ndim == 1:  # decided at compile time
        return keys[item]
    return keys[item, 0], keys[item, 1], keys[item, 2], keys[item, 3]


@planner
def sift(heap, position, keys, at):
    """Restore the heap after the key of the item at `at` has changed."""
    item = heap[at]
    key = _key_of(keys, item)
    while at > _U0:
        parent = (at - _U1) // _U2
        if _key_of(keys, heap[parent]) >= key:
            break
        heap[at] = heap[parent]
        position[heap[at]] = at
        at = parent
    size = np.uint64(heap.size)
    while True:
        child = _U2 * at + _U1
        if child >= size:
            break
        if child + _U1 < size and _key_of(keys, heap[child + _U1]) > _key_of(keys, heap[child]):
            child += _U1
        if _key_of(keys, heap[child]) <= key:
            break
        heap[at] = heap[child]
        position[heap[at]] = at
        at = child
    heap[at] = item
    position[item] = np.uint32(at)
