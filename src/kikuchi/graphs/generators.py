"""Seeded models: grids, complete, random and regular graphs, trees, codes and random tables.

The same arguments give the same model on every machine. Pairwise models have one factor for each
variable first, then one for each edge; with two states they are Ising models in spins, with
fields h ~ N(0, field) and couplings J ~ N(0, coupling); with more states every entry of a
log-table is drawn from N(0, field) or N(0, coupling). Both are standard deviations.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.budget import format_bytes
from kikuchi.core.errors import BudgetError, ModelError
from kikuchi.core.seeds import Seed, generator
from kikuchi.graphs.binary import pairwise_scopes, spin_graph
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.shapes import (
    Edges,
    complete_edges,
    grid_edges,
    random_edges,
    regular_edges,
    tree_edges,
)

_MAX_VARIABLES = 2**31 - 1


def grid(
    rows: int,
    cols: int,
    *,
    seed: Seed = 0,
    coupling: float = 1.0,
    field: float = 1.0,
    states: int = 2,
    periodic: bool = False,
) -> FactorGraph:
    """A rectangular grid with variables numbered row by row.

    `periodic` joins the opposite borders and needs at least 3 rows and 3 columns.

    `rows` and `cols` are its size. `coupling` and `field` are the standard deviations of the random
    log-weights of pairs and of single variables, `states` the number of states of each variable,
    `seed` that of the randomness.

    >>> grid(3, 4)
    FactorGraph(12 variables, 29 factors, 92 table entries)
    """
    rows, cols = _whole("rows", rows, 1), _whole("cols", cols, 1)
    if periodic and min(rows, cols) < 3:
        raise ModelError(
            f"a periodic grid needs at least 3 rows and 3 columns, got {rows} x {cols}"
        )
    _check_pairwise(rows * cols, 2 * rows * cols, coupling, field, states)
    edges = grid_edges(rows, cols, periodic=periodic)
    return _pairwise(rows * cols, edges, generator(seed), coupling, field, states)


def complete(
    n: int, *, seed: Seed = 0, coupling: float = 1.0, field: float = 1.0, states: int = 2
) -> FactorGraph:
    """A complete graph of n variables; couplings are not scaled with n.

    `n` is the number of variables. `coupling` and `field` are the standard deviations of the random
    log-weights of pairs and of single variables, `states` the number of states of each variable,
    `seed` that of the randomness.

    >>> complete(4)
    FactorGraph(4 variables, 10 factors, 32 table entries)
    """
    n = _whole("n", n, 1)
    _check_pairwise(n, n * (n - 1) // 2, coupling, field, states)
    return _pairwise(n, complete_edges(n), generator(seed), coupling, field, states)


def random_graph(
    n: int, p: float, *, seed: Seed = 0, coupling: float = 1.0, field: float = 1.0, states: int = 2
) -> FactorGraph:
    """An Erdős–Rényi graph: each pair is joined with probability p, independently.

    Time and memory are proportional to the number of edges, not to n².

    `n` is the number of variables, `p` the probability of each pair. `coupling` and `field` are the
    standard deviations of the random log-weights of pairs and of single variables, `states` the
    number of states of each variable, `seed` that of the randomness.

    >>> random_graph(100, 0.05, seed=1).n_factors
    347
    """
    n = _whole("n", n, 1)
    if not 0 <= _number("p", p) <= 1:
        raise ModelError(f"p must be a probability in [0, 1], got {p}")
    _check_pairwise(n, math.ceil(p * n * (n - 1) / 2), coupling, field, states)
    rng = generator(seed)
    return _pairwise(n, random_edges(n, p, rng), rng, coupling, field, states)


def random_regular(
    n: int,
    degree: int,
    *,
    seed: Seed = 0,
    coupling: float = 1.0,
    field: float = 1.0,
    states: int = 2,
) -> FactorGraph:
    """A uniformly random graph in which every variable has `degree` neighbours.

    It is only nearly uniform for large `degree`: see `kikuchi.graphs.shapes.regular_edges`.

    `n` is the number of variables. `coupling` and `field` are the standard deviations of the random
    log-weights of pairs and of single variables, `states` the number of states of each variable,
    `seed` that of the randomness.

    >>> graph = random_regular(10, 3, seed=0)
    >>> np.bincount(graph.pairs().ravel()).tolist()
    [3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
    """
    n = _whole("n", n, 1)
    degree = _whole("degree", degree, 0)
    if degree >= n or n * degree % 2:
        raise ModelError(
            f"no graph of {n} variables has {degree} neighbours for each: "
            "degree must be below n and n * degree even"
        )
    _check_pairwise(n, n * degree // 2, coupling, field, states)
    rng = generator(seed)
    return _pairwise(n, regular_edges(n, degree, rng), rng, coupling, field, states)


def random_tree(
    n: int, *, seed: Seed = 0, coupling: float = 1.0, field: float = 1.0, states: int = 2
) -> FactorGraph:
    """A tree drawn uniformly from all n^(n-2) labelled trees.

    `n` is the number of variables. `coupling` and `field` are the standard deviations of the random
    log-weights of pairs and of single variables, `states` the number of states of each variable,
    `seed` that of the randomness.

    >>> tree = random_tree(50, seed=3)
    >>> tree.is_forest, tree.n_components
    (True, 1)
    """
    n = _whole("n", n, 1)
    _check_pairwise(n, n - 1, coupling, field, states)
    rng = generator(seed)
    return _pairwise(n, tree_edges(n, rng), rng, coupling, field, states)


def ldpc(
    n: int, column_weight: int = 3, row_weight: int = 6, *, noise: float = 0.05, seed: Seed = 0
) -> FactorGraph:
    """Decoding of a regular Gallager code of n bits after a binary symmetric channel.

    The transmitted word is all zeros (on this channel all codewords are equally hard to decode);
    each received bit r_i is flipped with probability `noise`. Factor i < n is p(r_i | x_i); then
    n * column_weight / row_weight parity checks follow, which are 1 for even and 0 for odd sums.
    Every bit is in `column_weight` checks, every check has `row_weight` bits. The received word can
    be read off the first n factors: r_i is the more likely state.

    `n` is the number of bits, `seed` that of code and noise.

    >>> graph = ldpc(12, 2, 4)
    >>> graph, graph.shape(12)
    (FactorGraph(12 variables, 18 factors, 120 table entries), (2, 2, 2, 2))
    """
    n = _whole("n", n, 1)
    column_weight = _whole("column_weight", column_weight, 1)
    row_weight = _whole("row_weight", row_weight, 2)
    if n % row_weight:
        raise ModelError(f"n must be a multiple of row_weight {row_weight}, got {n}")
    if not 0 <= _number("noise", noise) <= 0.5:
        raise ModelError(f"noise must be a probability in [0, 0.5], got {noise}")
    n_checks = n * column_weight // row_weight
    _require_memory(n, n + n_checks, 2 * n + n_checks * 2.0**row_weight)
    rng = generator(seed)
    likelihood = _channel_log_tables(rng.random(n) < noise, noise)
    checks = _gallager_checks(n, column_weight, row_weight, rng)
    sizes = np.repeat([1, row_weight], [n, n_checks])
    return FactorGraph.from_arrays(
        np.full(n, 2, dtype=np.uint32),
        np.concatenate([np.arange(n), checks.ravel()]),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([likelihood, np.tile(_parity_log_table(row_weight), n_checks)]),
    )


def random_tables(
    n: int,
    n_factors: int,
    max_order: int,
    max_states: int,
    *,
    zeros: float = 0.0,
    scale: float = 1.0,
    seed: Seed = 0,
) -> FactorGraph:
    """Factors over random sets of up to `max_order` variables of 2 to `max_states` states.

    Log-table entries are drawn from N(0, scale); a fraction `zeros` of the weights is set to 0, but
    one randomly chosen joint state always has a positive weight.

    `n` and `n_factors` are the numbers of variables and factors, `scale` the standard deviation of
    the log-weights, `seed` that of the draw.

    >>> random_tables(5, 4, 3, 4, zeros=0.2, seed=1)
    FactorGraph(5 variables, 4 factors, 89 table entries)
    """
    n = _whole("n", n, 1)
    n_factors = _whole("n_factors", n_factors, 0)
    max_order = _whole("max_order", max_order, 1)
    max_states = _whole("max_states", max_states, 2)
    _not_negative("scale", scale)
    if max_order > n:
        raise ModelError(f"max_order {max_order} is more than the {n} variables")
    if not 0 <= _number("zeros", zeros) < 1:
        raise ModelError(f"zeros must be a fraction in [0, 1), got {zeros}")
    _require_memory(n, n_factors, n_factors * max_order)
    rng = generator(seed)
    cards = rng.integers(2, max_states + 1, size=n).astype(np.uint32)
    orders = rng.integers(1, max_order + 1, size=n_factors)
    scopes, offsets = _random_scopes(n, orders, rng)
    sizes = _table_sizes(cards, scopes, offsets)
    _require_memory(n, n_factors, float(sizes.sum()))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    log_tables = scale * rng.standard_normal(int(starts[-1]))
    vanishes = rng.random(len(log_tables)) < zeros
    alive = rng.integers(0, cards)
    vanishes[starts[:-1] + _flat_positions(alive, cards, scopes, offsets)] = False
    log_tables[vanishes] = -np.inf
    return FactorGraph.from_arrays(cards, scopes, offsets, log_tables)


GENERATORS: dict[str, Callable[..., FactorGraph]] = {
    "grid": grid,
    "complete": complete,
    "random": random_graph,
    "regular": random_regular,
    "tree": random_tree,
    "ldpc": ldpc,
    "tables": random_tables,
}
"""The generators by the names that the command line uses."""


# ---------------------------------------------------------------------- checks


def _whole(name: str, value: Any, low: int) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < low:
        raise ModelError(f"{name} must be an integer of at least {low}, got {value!r}")
    return int(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise ModelError(f"{name} must be a number, got {value!r}")
    return float(value)


def _not_negative(name: str, value: Any) -> None:
    if not 0 <= _number(name, value) < math.inf:
        raise ModelError(f"{name} is a standard deviation and must be finite and >= 0, got {value}")


def _check_pairwise(n: int, n_edges: int, coupling: float, field: float, states: int) -> None:
    _not_negative("coupling", coupling)
    _not_negative("field", field)
    _whole("states", states, 2)
    _require_memory(n, n + n_edges, float(n) * states + float(n_edges) * states**2)


def _require_memory(n: int, n_factors: int, entries: float) -> None:
    """Raise an error for a model larger than the memory of this machine, before it is allocated."""
    if n > _MAX_VARIABLES:
        raise ModelError(f"{n} variables are too many; at most {_MAX_VARIABLES} can be numbered")
    needed = 8 * entries + 40.0 * n_factors
    machine = _physical_memory()
    if needed > machine:
        raise BudgetError(
            f"the model needs {format_bytes(needed)} but this machine has "
            f"{format_bytes(machine)}; choose a smaller one"
        )


def _physical_memory() -> float:
    """Return the memory of this machine in bytes; infinity if unknown."""
    if not hasattr(os, "sysconf"):
        return math.inf
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


# ---------------------------------------------------------------------- pairwise models


def _pairwise(
    n: int, edges: Edges, rng: np.random.Generator, coupling: float, field: float, states: int
) -> FactorGraph:
    if states == 2:
        fields = field * rng.standard_normal(n)
        couplings = coupling * rng.standard_normal(len(edges))
        return spin_graph(n, edges, couplings, fields)
    log_tables = np.empty(n * states + len(edges) * states**2)
    rng.standard_normal(out=log_tables)
    log_tables[: n * states] *= field
    log_tables[n * states :] *= coupling
    scopes, offsets = pairwise_scopes(n, edges)
    cards = np.full(n, states, dtype=np.uint32)
    return FactorGraph.from_arrays(cards, scopes, offsets, log_tables, validate=False)


# ---------------------------------------------------------------------- codes


def _channel_log_tables(flipped: Mask, noise: float) -> Array:
    """log p(r_i | x_i), flat, for the received bits r_i."""
    right = math.log1p(-noise)
    wrong = math.log(noise) if noise > 0 else -math.inf
    tables = np.empty((len(flipped), 2))
    tables[:, 0] = np.where(flipped, wrong, right)
    tables[:, 1] = np.where(flipped, right, wrong)
    return tables.ravel()


def _gallager_checks(n: int, column_weight: int, row_weight: int, rng: np.random.Generator) -> Ints:
    """`column_weight` random partitions of the bits into groups of `row_weight`."""
    bands = [rng.permutation(n).reshape(-1, row_weight) for _ in range(column_weight)]
    return np.sort(np.concatenate(bands), axis=1)


def _parity_log_table(order: int) -> Array:
    odd = np.zeros(1, dtype=bool)
    for _ in range(order):
        odd = np.concatenate([odd, ~odd])
    return np.where(odd, -np.inf, 0.0)


# ---------------------------------------------------------------------- random tables


def _random_scopes(n: int, orders: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Uniform ordered sets of distinct variables, drawn for all factors of one order at once."""
    offsets = np.concatenate([[0], np.cumsum(orders)]).astype(np.int64)
    scopes = np.empty(int(offsets[-1]), dtype=np.int64)
    for order in np.unique(orders):
        starts = offsets[:-1][orders == order]
        scopes[starts[:, None] + np.arange(order)] = _subsets(n, int(order), len(starts), rng)
    return scopes, offsets


def _subsets(n: int, size: int, count: int, rng: np.random.Generator) -> Ints:
    """Floyd's sampling without replacement, one row for each of `count` subsets."""
    rows = np.full((count, size), -1, dtype=np.int64)
    for k, top in enumerate(range(n - size, n)):
        drawn = rng.integers(0, top + 1, size=count)
        taken = np.any(rows == drawn[:, None], axis=1)
        rows[:, k] = np.where(taken, top, drawn)
    return rng.permuted(rows, axis=1)


def _table_sizes(cards: U4, scopes: Ints, offsets: Ints) -> Array:
    if len(offsets) == 1:
        return np.zeros(0)
    with np.errstate(over="ignore"):  # an infinite size fails the memory check
        return np.asarray(np.multiply.reduceat(cards[scopes].astype(np.float64), offsets[:-1]))


def _flat_positions(state: Ints, cards: U4, scopes: Ints, offsets: Ints) -> Ints:
    """Row-major position of `state` within each factor's table."""
    orders = np.diff(offsets)
    position = np.zeros(len(orders), dtype=np.int64)
    for k in range(int(orders.max(initial=0))):
        reaches = orders > k
        v = scopes[offsets[:-1][reaches] + k]
        position[reaches] = position[reaches] * cards[v] + state[v]
    return position
