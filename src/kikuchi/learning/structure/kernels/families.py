"""Counts of families, and what they add to a score, without Python between the rows.

`columns` has a row for each variable, so that the states of one variable are neighbours in memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit

BIC = 0
AIC = 1
BDEU = 2
LIKELIHOOD = 3


class ScoreKind(NamedTuple):
    """Which score: its kind, the strength of the prior of BDeu, and the weight of all rows."""

    kind: int
    strength: float
    total: float


class Rows(NamedTuple):
    """Rows of data by variable: their states, cardinalities, and the weights of the rows."""

    columns: NDArray[np.int32]
    cards: Ints
    weights: Array


@njit(cache=True, error_model="numpy")
def codes_of(columns, cards, parents, out):
    """Number of the joint state of some variables in each row; answers how many there are."""
    size = np.int64(1)
    out[:] = 0
    for p in parents:
        column, card = columns[p], cards[p]
        for i in range(len(out)):
            out[i] = out[i] * card + column[i]
        size *= card
    return size


@njit(cache=True, error_model="numpy")
def _score(counts, configurations, states, rule):
    """ScoreKind of a family from its counts, the states of the child running fastest."""
    kind, strength, total = rule.kind, rule.strength, rule.total
    score = 0.0
    if kind == BDEU:
        by_row = strength / configurations
        by_entry = by_row / states
        for j in range(configurations):
            row = 0.0
            for k in range(states):
                n = counts[j * states + k]
                if n > 0.0:
                    score += math.lgamma(n + by_entry) - math.lgamma(by_entry)
                    row += n
            if row > 0.0:
                score += math.lgamma(by_row) - math.lgamma(row + by_row)
        return score
    for j in range(configurations):
        row = 0.0
        for k in range(states):
            n = counts[j * states + k]
            if n > 0.0:
                score += n * math.log(n)
                row += n
        if row > 0.0:
            score -= row * math.log(row)
    if kind == BIC:
        score -= 0.5 * math.log(total) * (states - 1) * configurations
    elif kind == AIC:
        score -= (states - 1) * configurations
    return score


@njit(cache=True, error_model="numpy")
def family_score(rows, child, codes, size, rule):
    """ScoreKind of a child whose parents' joint states are in `codes`."""
    columns, cards, weights = rows.columns, rows.cards, rows.weights
    states = cards[child]
    counts = np.zeros(size * states)
    column = columns[child]
    for i in range(len(codes)):
        counts[codes[i] * states + column[i]] += weights[i]
    return _score(counts, size, states, rule)


@njit(cache=True, error_model="numpy")
def scores_with(rows, child, codes, size, others, largest, rule, out):
    """Scores of a child with one more parent each; -inf where a table has too many entries."""
    columns, cards, weights = rows.columns, rows.cards, rows.weights
    states = cards[child]
    column = columns[child]
    for k in range(len(others)):
        u = others[k]
        card = cards[u]
        if size * card * states > largest:
            out[k] = -np.inf
            continue
        counts = np.zeros(size * card * states)
        more = columns[u]
        for i in range(len(codes)):
            counts[(codes[i] * card + more[i]) * states + column[i]] += weights[i]
        out[k] = _score(counts, size * card, states, rule)


@njit(cache=True, error_model="numpy")
def dependence(rows, x, y, codes, size):
    """(2 N times the conditional mutual information of x and y, its degrees of freedom).

    The first is the statistic G2. Degrees of freedom count the rows and columns of each stratum
    that occur.
    """
    columns, cards, weights = rows.columns, rows.cards, rows.weights
    rx, ry = cards[x], cards[y]
    counts = np.zeros(size * rx * ry)
    first, second = columns[x], columns[y]
    for i in range(len(codes)):
        counts[(codes[i] * rx + first[i]) * ry + second[i]] += weights[i]
    statistic, freedom = 0.0, 0.0
    by_x, by_y = np.empty(rx), np.empty(ry)
    for z in range(size):
        at = z * rx * ry
        by_x[:] = 0.0
        by_y[:] = 0.0
        whole = 0.0
        for a in range(rx):
            for b in range(ry):
                n = counts[at + a * ry + b]
                by_x[a] += n
                by_y[b] += n
                whole += n
        if whole == 0.0:
            continue
        for a in range(rx):
            for b in range(ry):
                n = counts[at + a * ry + b]
                if n > 0.0:
                    statistic += 2.0 * n * math.log(n * whole / (by_x[a] * by_y[b]))
        seen_x, seen_y = 0, 0
        for a in range(rx):
            seen_x += by_x[a] > 0.0
        for b in range(ry):
            seen_y += by_y[b] > 0.0
        freedom += (seen_x - 1) * (seen_y - 1)
    return statistic, freedom
