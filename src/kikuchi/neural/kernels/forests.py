"""Sum-product on a forest for many sets of tables, and its second derivative.

A layout of the forest comes first in each argument list: the factors in `order`, each before the
one that is nearer to the root. The entries of factor a are places `offsets[a]` to `offsets[a + 1]`
of `entries`, sorted by the state of the variable towards the root, `blocks[a]` entries for each of
its states, the first of which is `firsts[a]`. `lower` has the states of the other variables at each
place, `widths[a]` of them, from `lowers[a]` on. States are numbered as in
`FactorGraph.state_offsets`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Ints
from kikuchi.core.compiled import njit


class ForestLayout(NamedTuple):
    """The layout, see above; `roots` has one variable of each tree."""

    order: U4
    offsets: Ints
    entries: U4
    blocks: Ints
    firsts: Ints
    lower: U4
    lowers: Ints
    widths: Ints
    roots: U4
    state_offsets: Ints


@njit(cache=True, error_model="numpy")
def forest_beliefs(forest, tables, log_z, states, factors):
    """Fill log Z, marginals and factor beliefs of each row of tables; log Z is -inf where no state
    has any weight.
    """
    inward = np.empty(states.shape[1])
    conditional = np.empty(factors.shape[1])
    for row in range(len(tables)):
        _to_the_roots(forest, tables[row], inward, conditional)
        log_z[row] = _at_the_roots(forest, inward, states[row])
        _from_the_roots(forest, conditional, states[row], factors[row])


@njit(cache=True, error_model="numpy")
def forest_response(forest, tables, direction, moved):
    """Fill the derivative of the factor beliefs along a direction of the tables, row by row."""
    n_states = forest.state_offsets[-1]
    inward, states = np.empty(n_states), np.empty(n_states)
    inward_slopes, slopes = np.empty(n_states), np.empty(n_states)
    conditional, tilts = np.empty(tables.shape[1]), np.empty(tables.shape[1])
    factors = np.empty(tables.shape[1])
    for row in range(len(tables)):
        _to_the_roots(forest, tables[row], inward, conditional)
        _at_the_roots(forest, inward, states)
        _from_the_roots(forest, conditional, states, factors)
        _slopes_to_the_roots(forest, direction[row], conditional, inward_slopes, tilts)
        _slopes_at_the_roots(forest, states, inward_slopes, slopes)
        _slopes_from_the_roots(forest, conditional, tilts, factors, slopes, moved[row])


@njit(cache=True, error_model="numpy")
def _to_the_roots(forest, table, inward, conditional):
    """Log-messages towards the roots, summed in `inward` for each state; `conditional` becomes the
    distribution of a factor's lower variables given its upper one.
    """
    offsets, entries, lower = forest.offsets, forest.entries, forest.lower
    inward[:] = 0.0
    for a in forest.order:
        width, block, state = forest.widths[a], forest.blocks[a], forest.firsts[a]
        at = forest.lowers[a]
        for begin in range(offsets[a], offsets[a + 1], block):
            top = -np.inf
            for place in range(begin, begin + block):
                value = table[entries[place]]
                for _ in range(width):
                    value += inward[lower[at]]
                    at += 1
                conditional[place] = value
                top = max(top, value)
            if top == -np.inf:
                conditional[begin : begin + block] = 0.0
                inward[state] = -np.inf
            else:
                whole = 0.0
                for place in range(begin, begin + block):
                    weight = math.exp(conditional[place] - top)
                    conditional[place] = weight
                    whole += weight
                for place in range(begin, begin + block):
                    conditional[place] /= whole
                inward[state] += top + math.log(whole)
            state += 1


@njit(cache=True, error_model="numpy")
def _at_the_roots(forest, inward, states):
    """log Z; `states` gets the marginals of the roots, and 0 elsewhere."""
    states[:] = 0.0
    log_z = 0.0
    for v in forest.roots:
        begin, end = forest.state_offsets[v], forest.state_offsets[v + 1]
        top = -np.inf
        for s in range(begin, end):
            top = max(top, inward[s])
        if top == -np.inf:
            log_z = -np.inf
            continue
        whole = 0.0
        for s in range(begin, end):
            states[s] = math.exp(inward[s] - top)
            whole += states[s]
        for s in range(begin, end):
            states[s] /= whole
        log_z += top + math.log(whole)
    return log_z


@njit(cache=True, error_model="numpy")
def _from_the_roots(forest, conditional, states, factors):
    """Factor beliefs and the marginals of the other variables, from those of the roots."""
    offsets, entries, lower = forest.offsets, forest.entries, forest.lower
    for a in forest.order[::-1]:
        width, block, state = forest.widths[a], forest.blocks[a], forest.firsts[a]
        at = forest.lowers[a]
        for begin in range(offsets[a], offsets[a + 1], block):
            for place in range(begin, begin + block):
                belief = states[state] * conditional[place]
                factors[entries[place]] = belief
                for _ in range(width):
                    states[lower[at]] += belief
                    at += 1
            state += 1


@njit(cache=True, error_model="numpy")
def _slopes_to_the_roots(forest, direction, conditional, inward, tilts):
    """Derivatives of the messages, summed in `inward`, and of the logarithms of `conditional`."""
    offsets, entries, lower = forest.offsets, forest.entries, forest.lower
    inward[:] = 0.0
    for a in forest.order:
        width, block, state = forest.widths[a], forest.blocks[a], forest.firsts[a]
        at = forest.lowers[a]
        for begin in range(offsets[a], offsets[a + 1], block):
            mean = 0.0
            for place in range(begin, begin + block):
                slope = direction[entries[place]]
                for _ in range(width):
                    slope += inward[lower[at]]
                    at += 1
                tilts[place] = slope
                mean += conditional[place] * slope
            for place in range(begin, begin + block):
                tilts[place] -= mean
            inward[state] += mean
            state += 1


@njit(cache=True, error_model="numpy")
def _slopes_at_the_roots(forest, states, inward, slopes):
    slopes[:] = 0.0
    for v in forest.roots:
        begin, end = forest.state_offsets[v], forest.state_offsets[v + 1]
        mean = 0.0
        for s in range(begin, end):
            mean += states[s] * inward[s]
        for s in range(begin, end):
            slopes[s] = states[s] * (inward[s] - mean)


@njit(cache=True, error_model="numpy")
def _slopes_from_the_roots(forest, conditional, tilts, factors, slopes, moved):
    """Derivatives of factor beliefs and of the marginals below, from those of the roots."""
    offsets, entries, lower = forest.offsets, forest.entries, forest.lower
    for a in forest.order[::-1]:
        width, block, state = forest.widths[a], forest.blocks[a], forest.firsts[a]
        at = forest.lowers[a]
        for begin in range(offsets[a], offsets[a + 1], block):
            for place in range(begin, begin + block):
                e = entries[place]
                slope = slopes[state] * conditional[place] + factors[e] * tilts[place]
                moved[e] = slope
                for _ in range(width):
                    slopes[lower[at]] += slope
                    at += 1
            state += 1
