"""Where the entries of one table lie in another, for compiled loops."""

from __future__ import annotations

from kikuchi.core.compiled import njit


@njit(cache=True, error_model="numpy")
def project(cards, names, sub, strides, start, out):
    """Write, for each entry of a table in row-major order, its place in a table over `sub`.

    The axes of the table are the variables `names`, whose numbers of states are in `cards`. The
    other table has an axis for each variable of `sub`, with these strides, and begins at `start`.
    Returns how many places were written to `out`.
    """
    out[0] = start
    size = 1
    for k in range(len(names) - 1, -1, -1):
        name = names[k]
        stride = 0
        for j in range(len(sub)):
            if sub[j] == name:
                stride = strides[j]
        for state in range(1, cards[name]):
            shift, begin = state * stride, state * size
            for e in range(size):
                out[begin + e] = out[e] + shift
        size *= cards[name]
    return size
