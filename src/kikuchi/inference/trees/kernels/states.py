"""States from a junction tree after the upward pass: exact samples and the most probable state.

Cliques are visited from the roots down. Given the states of its separator, the weights of the
variables that a clique sums out are the product of its factors and of its children's messages.
`states` has a row for each rank and a column for each sample. The inputs are those of the upward
program: of the last operation of each clique.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kikuchi.inference.trees.kernels.program import AXES, BASES, DIMS, FIXED, STEPS


@njit(cache=True, error_model="numpy")
def _weights(
    mem,
    nd,
    ns,
    dims,
    dims_at,
    steps,
    steps_at,
    bases,
    bases_at,
    n_inputs,
    names,
    names_at,
    states,
    column,
    logs,
    index,
    weights,
):
    """Product of the inputs for each state of the rest, given the separator's; answers how many."""
    size = 1
    for a in range(ns, nd):
        size *= dims[dims_at + a]
    for r in range(size):
        weights[r] = 0.0 if logs else 1.0
    for j in range(n_inputs):
        place = bases[bases_at + j]
        step = steps_at + j * nd
        for a in range(nd):
            index[a] = 0
            if a < ns:
                place += steps[step + a] * states[names[names_at + a], column]
        for r in range(size):
            if logs:
                weights[r] += mem[place]
            else:
                weights[r] *= mem[place]
            a = nd - 1
            while a >= ns:
                index[a] += 1
                place += steps[step + a]
                if index[a] < dims[dims_at + a]:
                    break
                place -= steps[step + a] * dims[dims_at + a]
                index[a] = 0
                a -= 1
    return size


@njit(cache=True, error_model="numpy")
def _write(dims, at, names, names_at, nd, ns, r, states, column):
    for a in range(nd - 1, ns - 1, -1):
        states[names[names_at + a], column] = r % dims[at + a]
        r //= dims[at + a]


@njit(cache=True, error_model="numpy")
def draw(
    op, dims, steps, bases, names, names_at, residual, mem, states, uniforms, logs, index, weights
):
    """Draw the variables that one clique sums out, for all samples, given its separator's states.

    Samples that share the states of the separator share the weights.
    """
    nd, at = op[AXES], op[DIMS]
    ns = nd - residual
    n = len(uniforms)
    key = np.zeros(n, np.int64)
    for a in range(ns):
        for i in range(n):
            key[i] = key[i] * dims[at + a] + states[names[names_at + a], i]
    order = np.argsort(key) if ns else np.arange(n)
    previous = np.int64(-1)
    size = 1
    for place in range(n):
        i = order[place]
        if key[i] != previous:
            previous = key[i]
            size = _weights(
                mem, nd, ns, dims, at, steps, op[STEPS], bases, op[BASES], op[FIXED], names,
                names_at, states, i, logs, index, weights,
            )  # fmt: skip
            top = 0.0
            if logs:
                top = weights[0]
                for r in range(size):
                    top = max(top, weights[r])
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
        _write(dims, at, names, names_at, nd, ns, first, states, i)


@njit(cache=True, error_model="numpy")
def decode(ops, ends, dims, steps, bases, names, offsets, residual, mem, states, index, weights):
    """The best state after an upward pass of maxima; the first of equals (HOJ-I5)."""
    for c in range(len(residual) - 1, -1, -1):
        o = ends[c + 1] - 1
        nd, at = ops[o, AXES], ops[o, DIMS]
        ns = nd - residual[c]
        size = _weights(
            mem, nd, ns, dims, at, steps, ops[o, STEPS], bases, ops[o, BASES], ops[o, FIXED],
            names, offsets[c], states, 0, True, index, weights,
        )  # fmt: skip
        best = 0
        for r in range(1, size):
            if weights[r] > weights[best]:
                best = r
        _write(dims, at, names, offsets[c], nd, ns, best, states, 0)
