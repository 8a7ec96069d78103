"""First-order changes of the beliefs of a calibrated junction tree.

A change of the log-weights, spread over the cliques, is carried over the tree by conditional
expectations: what a clique tells its parent about a separator state is the mean of the change
below, given that state. Separators are the leading axes of the clique below them.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit


@njit(cache=True, error_model="numpy")
def _positions(card, clique_vars, low, high, names, strides, first, end, out):
    """For each state of a clique, where it falls in a table over some of its variables.

    The table has an axis for each of names[first:end], in the order of the clique.
    """
    length = 1
    out[0] = 0
    j = end - 1
    for k in range(high - low - 1, -1, -1):
        name = clique_vars[low + k]
        stride = 0
        if j >= first and names[j] == name:
            stride = strides[j]
            j -= 1
        for value in range(1, card[name]):
            shift = value * stride
            begin = value * length
            for i in range(length):
                out[begin + i] = out[i] + shift
        length *= card[name]


@njit(cache=True, error_model="numpy")
def separator_strides(card, clique_offsets, clique_vars, residual):
    """Row-major strides of the separator above each clique, at the places of its variables."""
    strides = np.zeros(len(clique_vars), np.int64)
    for c in range(len(residual)):
        step = 1
        for k in range(clique_offsets[c + 1] - residual[c] - 1, clique_offsets[c] - 1, -1):
            strides[k] = step
            step *= card[clique_vars[k]]
    return strides


@njit(cache=True, error_model="numpy")
def respond(tree, strides, table_at, separator_at, b, items, by_clique, values, change, up, out):
    """Fill `out`, laid out as `values`, with the changes of the items' beliefs.

    `b` are normalised clique tables, `items` the tables whose logarithms change by `values`: their
    axes (offsets, ranks, strides), places in `values` and cliques; `by_clique` lists them.
    """
    low, card, names = tree.clique_offsets, tree.card, tree.clique_vars
    n = len(tree.parent)
    widest = 1
    for c in range(n):
        widest = max(widest, table_at[c + 1] - table_at[c])
    at = np.empty(widest, np.uint32)
    number, weight = np.zeros(widest), np.zeros(widest)
    change[:] = 0.0
    for c in range(n):
        begin, size = table_at[c], table_at[c + 1] - table_at[c]
        for item in by_clique.members[by_clique.offsets[c] : by_clique.offsets[c + 1]]:
            first, end = items.offsets[item], items.offsets[item + 1]
            _positions(card, names, low[c], low[c + 1], items.ranks, items.strides, first, end, at)
            for s in range(size):
                change[begin + s] += values[items.places[item] + at[s]]
        p = tree.parent[c]
        if p < 0:
            continue
        above = separator_at[c]
        n_above = separator_at[c + 1] - above
        inner = size // n_above
        for s in range(n_above):
            total, mass = 0.0, 0.0
            for i in range(begin + s * inner, begin + (s + 1) * inner):
                total += b[i] * change[i]
                mass += b[i]
            up[above + s] = total / mass if mass > 0.0 else 0.0
        end = low[c + 1] - tree.residual[c]
        _positions(card, names, low[p], low[p + 1], names, strides, low[c], end, at)
        for s in range(table_at[p + 1] - table_at[p]):
            change[table_at[p] + s] += up[above + at[s]]
    for c in range(n - 1, -1, -1):
        p = tree.parent[c]
        if p < 0:
            continue
        begin, size, above = table_at[c], table_at[c + 1] - table_at[c], separator_at[c]
        n_above = separator_at[c + 1] - above
        end = low[c + 1] - tree.residual[c]
        _positions(card, names, low[p], low[p + 1], names, strides, low[c], end, at)
        number[:n_above] = 0.0
        weight[:n_above] = 0.0
        for s in range(table_at[p + 1] - table_at[p]):
            number[at[s]] += b[table_at[p] + s] * change[table_at[p] + s]
            weight[at[s]] += b[table_at[p] + s]
        inner = size // n_above
        for s in range(n_above):
            down = number[s] / weight[s] - up[above + s] if weight[s] > 0.0 else 0.0
            for i in range(begin + s * inner, begin + (s + 1) * inner):
                change[i] += down
    _read(tree, table_at, b, items, by_clique, change, at, out)


@njit(cache=True, error_model="numpy")
def _read(tree, table_at, b, items, by_clique, change, at, out):
    low, card, names = tree.clique_offsets, tree.card, tree.clique_vars
    out[:] = 0.0
    for c in range(len(tree.parent)):
        begin, size = table_at[c], table_at[c + 1] - table_at[c]
        mean = 0.0
        for s in range(begin, begin + size):
            mean += b[s] * change[s]
        for s in range(begin, begin + size):
            change[s] = b[s] * (change[s] - mean)
        for item in by_clique.members[by_clique.offsets[c] : by_clique.offsets[c + 1]]:
            first, end = items.offsets[item], items.offsets[item + 1]
            _positions(card, names, low[c], low[c + 1], items.ranks, items.strides, first, end, at)
            for s in range(size):
                out[items.places[item] + at[s]] += change[begin + s]
