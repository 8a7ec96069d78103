"""States from a junction tree after the upward pass: exact samples and the most probable state.

Cliques are visited from the roots down. Given the states of its separator, the weights of the
variables that a clique sums out are the product of its factors and of its children's messages.
`states` has a row for each rank and a column for each sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from kikuchi.inference.kernels.junction_passes import clique_axes, table_steps


@njit(cache=True, error_model="numpy")
def _inputs(tree: Any, c: int, dims: Any, steps: Any, bases: Any) -> Any:
    """Operands whose product, given the separator, is the weight of the rest: (axes, separator
    axes, operands, states of the rest).
    """
    low = tree.clique_offsets[c]
    nd = clique_axes(tree.card, tree.clique_vars, low, tree.clique_offsets[c + 1], dims)
    names = tree.clique_vars
    if len(tree.tables):
        bases[0] = tree.tables[c]
        table_steps(steps, 0, dims, names, low, nd, names, low, low + nd)
        k = 1
    else:
        k = 0
        for g in range(tree.groups[c], tree.groups[c + 1]):
            bases[k] = tree.group_tables[g]
            first, end = tree.group_offsets[g], tree.group_offsets[g + 1]
            table_steps(steps, k, dims, names, low, nd, tree.group_vars, first, end)
            k += 1
        for i in range(tree.child_offsets[c], tree.child_offsets[c + 1]):
            j = tree.children[i]
            bases[k] = tree.up[j]
            first, end = tree.clique_offsets[j], tree.clique_offsets[j + 1] - tree.residual[j]
            table_steps(steps, k, dims, names, low, nd, names, first, end)
            k += 1
    ns = nd - tree.residual[c]
    size = 1
    for a in range(ns, nd):
        size *= dims[a]
    return nd, ns, k, size


@njit(cache=True, error_model="numpy")
def _weights(
    mem: Any,
    dims: Any,
    steps: Any,
    bases: Any,
    names: Any,
    low: int,
    nd: int,
    ns: int,
    k: int,
    states: Any,
    column: int,
    size: int,
    logs: bool,
    index: Any,
    weights: Any,
) -> None:
    """Product of the k operands for every state of the rest, given the separator's states."""
    for r in range(size):
        weights[r] = 0.0 if logs else 1.0
    for j in range(k):
        place = bases[j]
        for a in range(nd):
            index[a] = 0
            if a < ns:
                place += steps[j * nd + a] * states[names[low + a], column]
        for r in range(size):
            if logs:
                weights[r] += mem[place]
            else:
                weights[r] *= mem[place]
            a = nd - 1
            while a >= ns:
                index[a] += 1
                place += steps[j * nd + a]
                if index[a] < dims[a]:
                    break
                place -= steps[j * nd + a] * dims[a]
                index[a] = 0
                a -= 1


@njit(cache=True, error_model="numpy")
def _write(
    names: Any, dims: Any, low: int, nd: int, ns: int, r: int, states: Any, column: int
) -> None:
    for a in range(nd - 1, ns - 1, -1):
        states[names[low + a], column] = r % dims[a]
        r //= dims[a]


@njit(cache=True, error_model="numpy")
def draw(
    tree: Any,
    s: Any,
    mem: Any,
    c: int,
    states: Any,
    uniforms: Any,
    weights: Any,
    logs: bool,
) -> None:
    """Draw the variables that clique c sums out, for all samples, given its separator's states.

    Samples that share the states of the separator share the weights.
    """
    low, names = tree.clique_offsets[c], tree.clique_vars
    nd, ns, k, size = _inputs(tree, c, s.dims, s.steps, s.bases)
    n = len(uniforms)
    key = np.zeros(n, np.int64)
    for a in range(ns):
        for i in range(n):
            key[i] = key[i] * s.dims[a] + states[names[low + a], i]
    order = np.argsort(key) if ns else np.arange(n)
    previous = np.int64(-1)
    for place in range(n):
        i = order[place]
        if key[i] != previous:
            previous = key[i]
            _weights(
                mem, s.dims, s.steps, s.bases, names, low, nd, ns, k, states, i, size, logs,
                s.count, weights,
            )  # fmt: skip
            top = weights[:size].max() if logs else 0.0
            total = 0.0
            for r in range(size):
                total += np.exp(weights[r] - top) if logs else weights[r]
                weights[r] = total
        wanted = uniforms[i] * weights[size - 1]
        first, end = 0, size - 1
        while first < end:  # the first state whose cumulative weight is above what is wanted
            middle = (first + end) >> 1
            if weights[middle] > wanted:
                end = middle
            else:
                first = middle + 1
        while first > 0 and weights[first] == weights[first - 1]:  # rounding: never weight 0
            first -= 1
        _write(names, s.dims, low, nd, ns, first, states, i)


@njit(cache=True, error_model="numpy")
def decode(tree: Any, s: Any, mem: Any, states: Any, weights: Any) -> None:
    """The best state after an upward pass of maxima; the first of equals (HOJ-I5)."""
    for c in range(len(tree.parent) - 1, -1, -1):
        low, names = tree.clique_offsets[c], tree.clique_vars
        nd, ns, k, size = _inputs(tree, c, s.dims, s.steps, s.bases)
        _weights(
            mem, s.dims, s.steps, s.bases, names, low, nd, ns, k, states, 0, size, True,
            s.count, weights,
        )  # fmt: skip
        best = 0
        for r in range(1, size):
            if weights[r] > weights[best]:
                best = r
        _write(names, s.dims, low, nd, ns, best, states, 0)
