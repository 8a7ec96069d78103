"""Where the entries of one table lie in another, for compiled loops."""

from __future__ import annotations

from kikuchi.core.compiled import njit


@njit(cache=True, error_model="numpy")
def project(cards, names, axes, sub, kept, strides, begin, out):
    """Write, for each entry of a table in row-major order, its place in a table over `sub`.

    The `axes` (low, high) of the table are the variables names[low:high], whose numbers of states
    are in `cards`. The other one has an axis for each of sub[first:end], `kept` being (first, end),
    with these strides. With `begin` = (start, at) it begins at `start`, and places go to out[at:];
    returns how many.
    """
    low, high = axes
    first, end = kept
    start, at = begin
    out[at] = start
    size = 1
    for k in range(high - 1, low - 1, -1):
        name = names[k]
        stride = 0
        for j in range(first, end):
            if sub[j] == name:
                stride = strides[j]
        for state in range(1, cards[name]):
            shift, begin = state * stride, at + state * size
            for e in range(size):
                out[begin + e] = out[at + e] + shift
        size *= cards[name]
    return size
