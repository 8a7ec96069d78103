"""Weights as text: decimal numbers whose logarithms are reproduced exactly.

Files contain weights, a `FactorGraph` their logarithms. exp and log can each change the last bit,
so the weight to write is searched for: a short decimal nearby, or else a neighbouring double, whose
logarithm is exactly the stored one. Logarithms that came from a file always have one, so they are
reproduced, and 0.1 is written as 0.1. Logarithms that are not the logarithm of any double change
once, by less than 1e-15 max(1, |log|).
"""

from __future__ import annotations

import numpy as np

from kikuchi.core import numerics
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import ModelError
from kikuchi.graphs.factor_graph import FactorGraph

LOWEST_LOG = -708.3964185  # normal doubles only: below, weights have fewer digits
HIGHEST_LOG = 709.7827
_EDGE = 1e-9
_CHUNK = 1 << 18
# Decimal digits to try, and from which |log| on: beyond 16, many doubles share a logarithm.
_DIGITS = ((12, 16.0), (15, 0.0))
_ULPS = (0, 1, -1, 2, -2, 3, -3, 4, -4)


def text_weights(graph: FactorGraph) -> Array:
    """exp(log_constant) prod_a phi_a as tables to write, laid out as `graph.log_tables`.

    The constant is multiplied into the first factor. Factors outside the range of doubles are
    rescaled, and the scale is moved to the first factors that can represent it.

    >>> graph = FactorGraph([2], [((0,), [0.1, 0.7])])
    >>> text_weights(graph).tolist()
    [0.1, 0.7]
    """
    logs = graph.log_tables
    shifts = _shifts(graph)
    if np.any(shifts):
        logs = logs + np.repeat(shifts, np.diff(graph.table_offsets))
    return weights_of(logs)


def weights_of(logs: Array) -> Array:
    """The weight to write for each logarithm.

    >>> weights_of(np.log([0.3, 1e-12, 2.0]))[:2].tolist()
    [0.3, 1e-12]
    """
    out = np.empty(len(logs))
    for lo in range(0, len(logs), _CHUNK):
        out[lo : lo + _CHUNK] = _weights_of_chunk(logs[lo : lo + _CHUNK])
    return out


def _weights_of_chunk(logs: Array) -> Array:
    weights = np.exp(logs)
    out = weights.copy()
    missing = weights > 0

    def attempt(places: Ints, candidates: Array) -> None:
        fits = numerics.log(candidates) == logs[places]
        out[places[fits]] = candidates[fits]
        missing[places[fits]] = False

    for digits, beyond in _DIGITS:
        places = np.flatnonzero(missing & (np.abs(logs) >= beyond))
        attempt(places, _rounded(weights[places], digits))
    for ulps in _ULPS:
        places = np.flatnonzero(missing)
        # Neighbouring doubles are neighbouring integers.
        attempt(places, (weights[places].view(np.int64) + ulps).view(np.float64))
    return out


def _rounded(weights: Array, digits: int) -> Array:
    """Each weight rounded to so many decimal digits: the nearest double to that decimal."""
    scale = digits - 1 - np.floor(np.log10(weights))
    exact = np.abs(scale) <= 22  # powers of ten that doubles hold exactly
    power = 10.0 ** np.where(exact, np.abs(scale), 0)
    out = np.where(scale >= 0, np.rint(weights * power) / power, np.rint(weights / power) * power)
    for k in np.flatnonzero(~exact):
        out[k] = float(f"{weights[k]:.{digits}g}")
    return out


# ---------------------------------------------------------------------- range


def _shifts(graph: FactorGraph) -> Array:
    """Return what to add to the logarithms of each factor; it sums to `log_constant`."""
    if not graph.n_factors:
        return np.zeros(0)
    starts = graph.table_offsets[:-1]
    lowest = np.minimum.reduceat(
        np.where(graph.log_tables == -np.inf, np.inf, graph.log_tables), starts
    )
    down = LOWEST_LOG - lowest
    up = HIGHEST_LOG - np.maximum.reduceat(graph.log_tables, starts)
    if np.any(down > up):
        factor = int(np.argmax(down - up))
        ratio = down[factor] - up[factor] + HIGHEST_LOG - LOWEST_LOG
        raise ModelError(
            f"factor {factor} cannot be written: its largest weight is exp({ratio:.4g}) times its "
            "smallest, more than the numbers in a file can hold"
        )
    # A weight that was moved to the edge once may lie beyond it by a rounding: it stays.
    inside = (down <= _EDGE) & (up >= -_EDGE)
    shifts = np.where(inside, 0.0, np.clip(0.0, down, up))
    rest = graph.log_constant - shifts.sum()
    capacity = np.maximum(up - shifts if rest > 0 else shifts - down, 0.0)
    taken = np.clip(abs(rest) - (np.cumsum(capacity) - capacity), 0.0, capacity)
    if taken.sum() < abs(rest) * (1 - 1e-12):
        raise ModelError(
            f"the constant exp({graph.log_constant:.6g}) of the model cannot be written: its "
            "factors are too close to the largest or smallest number that a file can hold"
        )
    return np.asarray(shifts + np.copysign(taken, rest))


def with_units(graph: FactorGraph, variables: Ints) -> FactorGraph:
    """The same undirected model with a factor of ones for each of `variables` at its end."""
    units = [(v, np.zeros(int(graph.cardinalities[v]))) for v in variables.tolist()]
    return graph.with_fields(units) if units else graph


def with_room_for_constant(graph: FactorGraph) -> FactorGraph:
    """The same model with at least one factor, if its constant needs one to go into."""
    if graph.n_factors or graph.log_constant == 0.0:
        return graph
    if not graph.n_variables:
        raise ModelError(
            "a model without variables has no factor that could hold its constant "
            f"exp({graph.log_constant:.6g}); add a variable"
        )
    return with_units(graph, np.zeros(1, dtype=np.int64))
