"""States from a junction tree after the upward pass: exact samples and the most probable state.

Cliques are visited from the roots down. Given the states of its separator, the weights of the
variables that a clique sums out are the product of its factors and of its children's messages.
The inputs are those of the upward
program: of the last operation of each clique.

Reference: HOJ-I5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.engines.trees.kernels.program import AXES, BASES, DIMS, FIXED, STEPS


class Decoding(NamedTuple):
    """The tables that states are read from, and whether they hold logarithms; the `states`, with a
    row for each rank and a column for each sample; scratch for the digits and weights of a clique.
    """

    mem: Array
    logs: bool
    states: Ints
    digits: Ints
    weights: Array


@njit(cache=True, error_model="numpy")
def _weights(program, tree, c, decoding, column):
    """Weight of each state of the variables that clique c sums out, given the separator's states.

    The inputs are those of the last operation of the clique. Returns the number of weights.
    """
    mem, logs, states, index, weights = decoding
    o = program.ends[c + 1] - 1
    nd, dims_at, steps_at, bases_at = (
        program.ops[o, AXES],
        program.ops[o, DIMS],
        program.ops[o, STEPS],
        program.ops[o, BASES],
    )
    dims, steps, bases = program.dims, program.steps, program.bases
    names, names_at = tree.clique_vars, tree.clique_offsets[c]
    ns = nd - tree.residual[c]
    size = 1
    for a in range(ns, nd):
        size *= dims[dims_at + a]
    for r in range(size):
        weights[r] = 0.0 if logs else 1.0
    for j in range(program.ops[o, FIXED]):
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
def _write(program, tree, c, r, states, column):
    """Write state r of the variables that clique c sums out."""
    at = program.ops[program.ends[c + 1] - 1, DIMS]
    first, end = tree.clique_offsets[c], tree.clique_offsets[c + 1]
    for k in range(end - 1, end - tree.residual[c] - 1, -1):
        card = program.dims[at + k - first]
        states[tree.clique_vars[k], column] = r % card
        r //= card


@njit(cache=True, error_model="numpy")
def _draw(program, tree, c, decoding, uniforms):
    """Draw the variables that one clique sums out, for all samples, given its separator's states.

    Samples that share the states of the separator share the weights.
    """
    states, weights, logs = decoding.states, decoding.weights, decoding.logs
    first_name = tree.clique_offsets[c]
    ns = tree.clique_offsets[c + 1] - first_name - tree.residual[c]
    n = len(uniforms)
    key = np.zeros(n, np.int64)
    for k in range(first_name, first_name + ns):
        card = tree.card[tree.clique_vars[k]]
        for i in range(n):
            key[i] = key[i] * card + states[tree.clique_vars[k], i]
    order = np.argsort(key) if ns else np.arange(n)
    previous = np.int64(-1)
    size = 1
    for place in range(n):
        i = order[place]
        if key[i] != previous:
            previous = key[i]
            size = _weights(program, tree, c, decoding, i)
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
        _write(program, tree, c, first, states, i)


@njit(cache=True, error_model="numpy")
def draw(program, tree, start, stop, decoding, uniforms):
    """Draw the variables of cliques stop - 1 down to start, one row of `uniforms` per clique."""
    for c in range(stop - 1, start - 1, -1):
        _draw(program, tree, c, decoding, uniforms[stop - 1 - c])


@njit(cache=True, error_model="numpy")
def decode(program, tree, decoding):
    """Find the best state after an upward pass of maxima; the first of equals."""
    weights = decoding.weights
    for c in range(len(tree.residual) - 1, -1, -1):
        size = _weights(program, tree, c, decoding, 0)
        best = 0
        for r in range(1, size):
            if weights[r] > weights[best]:
                best = r
        _write(program, tree, c, best, decoding.states, 0)
