"""The heap with changing keys against sorting."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.graphs.kernels.heap import sift


@pytest.mark.parametrize("columns", [None, 4])
def test_items_leave_by_falling_key_whatever_changed_before(columns: int | None) -> None:
    rng = np.random.default_rng(0)
    n = 60
    keys = rng.integers(0, 4, size=(n, 4)) if columns else rng.random(n)
    if columns:
        keys[:, 3] = rng.permutation(n)  # ties are broken by the last column
    heap, position = np.arange(n, dtype=np.uint32), np.arange(n, dtype=np.uint32)
    for i in range(n):
        sift(heap[: i + 1], position, keys, np.uint64(i))
    for item in rng.integers(0, n, size=40):
        keys[item] = -keys[item]
        sift(heap, position, keys, np.uint64(position[item]))
        assert heap[position].tolist() == list(range(n))
    left = []
    while len(heap):
        left.append(tuple(np.atleast_1d(keys[heap[0]])))
        last, heap = heap[-1], heap[:-1]
        if len(heap):
            heap[0] = last
            sift(heap, position, keys, np.uint64(0))
    assert left == sorted(left, reverse=True)
