"""First-order changes of the beliefs of a calibrated junction tree.

A change of the log-weights, spread over the cliques, is carried over the tree by conditional
expectations: what a clique tells its parent about a separator state is the mean of the change
below, given that state. Separators are the leading axes of the clique below them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.engines.kernels.tables import project


class ItemTables(NamedTuple):
    """Tables within cliques: their axes (ranks, strides), and where their values begin. Those of
    clique c are `members[of_clique[c]:of_clique[c + 1]]`.
    """

    offsets: Ints
    ranks: Ints
    strides: Ints
    places: Ints
    of_clique: Ints
    members: Ints


class CliqueBeliefs(NamedTuple):
    """Normalised tables of the cliques, where each of them and each separator begins, and the
    strides of the separator above each clique (see `separator_strides`).
    """

    values: Array
    table_at: Ints
    separator_at: Ints
    strides: Ints


class ResponseScratch(NamedTuple):
    """Changes of the entries of all cliques, and of the messages to their parents."""

    change: Array
    up: Array


@njit(cache=True, error_model="numpy", inline="always")
def _item_places(tree, c, items, i, at):
    """Write which entry of item `i` belongs to each entry of clique c."""
    low, high = tree.clique_offsets[c], tree.clique_offsets[c + 1]
    first, end = items.offsets[i], items.offsets[i + 1]
    project(
        tree.card, tree.clique_vars[low:high], items.ranks[first:end], items.strides[first:end],
        0, at,
    )  # fmt: skip


@njit(cache=True, error_model="numpy", inline="always")
def _separator_places(tree, c, strides, at):
    """Write where each entry of the parent of clique c falls in the separator between them."""
    p = tree.parent[c]
    names, low = tree.clique_vars, tree.clique_offsets
    first, end = low[c], low[c + 1] - tree.residual[c]
    project(tree.card, names[low[p] : low[p + 1]], names[first:end], strides[first:end], 0, at)


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
def respond(tree, beliefs, items, values, scratch, out):
    """Fill `out`, laid out as `values`, with the changes of the items' beliefs.

    The logarithms of the items change by `values`.
    """
    n = len(tree.parent)
    b, table_at, separator_at = beliefs.values, beliefs.table_at, beliefs.separator_at
    change, up = scratch.change, scratch.up
    widest = 1
    for c in range(n):
        widest = max(widest, table_at[c + 1] - table_at[c])
    at = np.empty(widest, np.uint32)
    number, weight = np.zeros(widest), np.zeros(widest)
    change[:] = 0.0
    for c in range(n):
        begin, size = table_at[c], table_at[c + 1] - table_at[c]
        for item in items.members[items.of_clique[c] : items.of_clique[c + 1]]:
            _item_places(tree, c, items, item, at)
            place = items.places[item]
            for s in range(size):
                change[begin + s] += values[place + at[s]]
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
        _separator_places(tree, c, beliefs.strides, at)
        for s in range(table_at[p + 1] - table_at[p]):
            change[table_at[p] + s] += up[above + at[s]]
    for c in range(n - 1, -1, -1):
        p = tree.parent[c]
        if p < 0:
            continue
        begin, size, above = table_at[c], table_at[c + 1] - table_at[c], separator_at[c]
        n_above = separator_at[c + 1] - above
        _separator_places(tree, c, beliefs.strides, at)
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
    _read(tree, beliefs, items, change, at, out)


@njit(cache=True, error_model="numpy")
def _read(tree, beliefs, items, change, at, out):
    b, table_at = beliefs.values, beliefs.table_at
    out[:] = 0.0
    for c in range(len(tree.parent)):
        begin, size = table_at[c], table_at[c + 1] - table_at[c]
        mean = 0.0
        for s in range(begin, begin + size):
            mean += b[s] * change[s]
        for s in range(begin, begin + size):
            change[s] = b[s] * (change[s] - mean)
        for item in items.members[items.of_clique[c] : items.of_clique[c + 1]]:
            _item_places(tree, c, items, item, at)
            place = items.places[item]
            for s in range(size):
                out[place + at[s]] += change[begin + s]
