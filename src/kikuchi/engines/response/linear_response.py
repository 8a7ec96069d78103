r"""Covariances of states, exact and by linear response.

Put a field theta_i(k) on every state, a factor exp(theta_i(x_i)) beside the others. Exactly,

    d p_i(k) / d theta_j(l) = Cov(1[x_i = k], 1[x_j = l]),

and an approximation of the marginals, differentiated the same way at its fixed point, gives
covariances also of variables that share no factor. All matrices here run over the states of the
variables asked for, one variable after the other, as `flat_marginals` does.

Reference: HOJ-I11, TEH-I7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import KikuchiError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.table_shapes import same_shapes

Indices = Ints

_COLUMNS = 256  # right-hand sides solved at once
_DENSE_FRACTION = 0.1  # of entries above which a matrix is factored as a dense one
_DENSE_SIZE = 4000
_SINGULAR = 1e-13  # smallest over largest pivot
_NEGATIVE = -1e-9  # variances below this are no rounding
_IMPOSSIBLE = 1e-16  # beliefs from here on could not be seen in a covariance
_STIFF = 1e-3  # determinant of a factor's own system below which it is not eliminated

CRITICAL = (
    "the covariance does not exist: the fixed point is a critical one, where a small field moves "
    "the marginals without limit; use jt, or weaken the couplings"
)
_UNSTABLE = (
    "linear response gives a negative variance: the fixed point is no minimum of its free energy; "
    "use jt, or try other starts or damping"
)


# ---------------------------------------------------------------------- exact


def product_covariance(graph: FactorGraph, marginals: Array, variables: Indices) -> Array:
    """Independent variables: a block diag(p) - p p' for each, zero between them.

    >>> graph = FactorGraph([2, 2], [])
    >>> product_covariance(graph, np.array([0.5, 0.5, 0.2, 0.8]), np.array([1])).round(6).tolist()
    [[0.16, -0.16], [-0.16, 0.16]]
    """
    cards = graph.cardinalities[variables].astype(np.int64)
    p = marginals[states_of(graph, variables)]
    owner = np.repeat(np.arange(len(variables)), cards)
    out = np.where(owner[:, None] == owner[None, :], -np.multiply.outer(p, p), 0.0)
    out[np.diag_indices(len(p))] += p
    return out


def clamped_covariance(
    graph: FactorGraph,
    marginals: Array,
    conditional: Callable[[int, int], Array],
    variables: Indices,
) -> Array:
    """p_i(k) (p_j(l | x_i = k) - p_j(l)), where `conditional(i, k)` answers all flat marginals
    given x_i = k. The likeliest state of each variable is what the others leave.
    """
    positions = states_of(graph, variables)
    base = marginals[positions]
    out = np.zeros((len(positions), len(positions)))
    row = 0
    for v in variables.tolist():
        p = marginals[graph.state_offsets[v] : graph.state_offsets[v + 1]]
        rest = row + int(p.argmax())
        for k in np.flatnonzero(p > 0.0).tolist():
            if row + k != rest:
                out[row + k] = p[k] * (conditional(v, k)[positions] - base)
                out[rest] -= out[row + k]
        row += len(p)
    return 0.5 * (out + out.T)


# ---------------------------------------------------------------------- responses


def symmetric_response(matrix: Any, root: Any, rows: Indices) -> Array:
    """The rows and columns `rows` of root matrix^-1 root', for sparse `matrix` and `root`.

    Free energies scaled by the square root of the single covariances have this form; it stays
    finite where a variable is certain.
    """
    solve = factored(matrix)
    wanted = root.tocsr()[rows]
    out = np.empty((len(rows), len(rows)))
    for lo in range(0, len(rows), _COLUMNS):
        columns = wanted[lo : lo + _COLUMNS].T.toarray()
        out[:, lo : lo + _COLUMNS] = wanted @ solve(columns)
    return checked(out)


def mean_field_covariance(graph: FactorGraph, q: Array, variables: Indices) -> Array:
    r"""Linear response of naive mean field, for any cardinalities and orders.

    From q_i prop. to exp(theta_i + E_q[log weight | x_i]) follows dq = C (dtheta + H dq), with
    C_i = diag(q_i) - q_i q_i' and H_ij(x_i, x_j) = sum_a E_q[log phi_a | x_i, x_j]. With
    C = R R' the response is R (1 - R' H R)^-1 R'.
    """
    from scipy.sparse import coo_array, eye_array

    size = len(q)
    allowed = np.where(np.isfinite(graph.log_tables), graph.log_tables, 0.0)  # q forbids the others
    entries = []
    for factors, shape in same_shapes(graph):
        edges = graph.scope_offsets[factors][:, None] + np.arange(len(shape))
        starts = graph.state_offsets[graph.scopes[edges]]
        for i, j, mean in _pair_tables(graph, factors, shape, allowed, q):
            rows = starts[:, i, None] + np.arange(shape[i])
            cols = starts[:, j, None] + np.arange(shape[j])
            entries.append(scattered(mean, rows, cols))
            entries.append(scattered(mean.transpose(0, 2, 1), cols, rows))
    root = covariance_root(graph, q)
    matrix: Any = eye_array(size, format="csc")
    if entries:
        at_row, at_col, values = (np.concatenate(part) for part in zip(*entries, strict=True))
        curvature = coo_array((values, (at_row, at_col)), shape=(size, size)).tocsr()
        matrix = (matrix - root.T @ curvature @ root).tocsc()
    return symmetric_response(matrix, root, states_of(graph, variables))


def covariance_root(graph: FactorGraph, q: Array) -> Any:
    """R with R R' = diag(q) - q q' in each block: diag(s) (1 - s s'), s = sqrt(q)."""
    from scipy.sparse import coo_array

    s = np.sqrt(q)
    rows, cols, values = [], [], []
    for card in np.unique(graph.cardinalities).tolist():
        states = graph.state_offsets[:-1][graph.cardinalities == card][:, None] + np.arange(card)
        block = s[states]
        values.append(block[:, :, None] * (np.eye(card) - block[:, :, None] * block[:, None, :]))
        rows.append(np.repeat(states, card, axis=1).ravel())
        cols.append(np.tile(states, card).ravel())
    flat = np.concatenate([v.ravel() for v in values])
    positions = (np.concatenate(rows), np.concatenate(cols))
    return coo_array((flat, positions), shape=(len(q), len(q))).tocsr()


def bethe_covariance(
    graph: FactorGraph, marginals: Array, tables: Array, variables: Indices
) -> Array:
    r"""Linear response of belief propagation at its fixed point, for any factor graph.

    The derivatives of the log-messages obey

        dm_{a->i}(x_i) = sum_{j in a \ i} sum_{x_j} b_a(x_j | x_i) dn_{j->a}(x_j),
        dn_{j->a} = df_j - dm_{a->j},    df_j = dtheta_j + sum_{b : j in b} dm_{b->j},

    each up to a constant, so they are counted from the likeliest state of their variable; states
    of no probability stay at it. With T_a the matrix of the first line, factor a answers to the
    fields of its variables by dm_a = (1 + T_a)^-1 T_a df_a, which leaves a sparse system in df.
    Factors for which 1 + T_a is nearly singular, as hard constraints are, keep their dm as
    unknowns. Then db_i = (diag(b_i) - b_i b_i') df_i.
    """
    from scipy.sparse import coo_array

    free = _FreeStates(graph, marginals)
    wanted = free.of(variables)
    if len(wanted) == 0:  # certain variables, or none
        return np.zeros((len(states_of(graph, variables)),) * 2)
    system = _bethe_system(graph, free, tables)
    solve = factored(system)
    responses = np.empty((len(wanted), len(wanted)))
    blocks = _free_blocks(free, marginals, wanted)
    for lo in range(0, len(wanted), _COLUMNS):
        chunk = wanted[lo : lo + _COLUMNS]
        positions = (chunk, np.arange(len(chunk)))
        unit = coo_array((np.ones(len(chunk)), positions), shape=(system.shape[0], len(chunk)))
        responses[:, lo : lo + _COLUMNS] = blocks @ solve(unit.toarray())[wanted]
    spread = free.spread(variables, wanted)
    return checked(spread @ (0.5 * (responses + responses.T)) @ spread.T)


def _bethe_system(graph: FactorGraph, free: _FreeStates, tables: Array) -> Any:
    """The matrix that takes df (and the dm of stiff factors, after them) to dtheta (and 0)."""
    from scipy.sparse import coo_array

    size = len(free.states)
    entries = [(np.arange(size), np.arange(size), np.ones(size))]
    for states, gain in _factor_gains(graph, free, tables):
        fields = free.number[states]
        within = np.eye(gain.shape[1]) + gain
        soft = np.abs(np.linalg.det(within)) > _STIFF
        entries.append(scattered(-np.linalg.solve(within[soft], gain[soft]), *2 * [fields[soft]]))
        stiff = fields[~soft]
        own = size + np.arange(stiff.size).reshape(stiff.shape)
        size += stiff.size
        entries.append(scattered(within[~soft], own, own))
        entries.append(scattered(-gain[~soft], own, stiff))
        copied = stiff >= 0
        entries.append((stiff[copied], own[copied], -np.ones(int(copied.sum()))))
    rows, cols, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    return coo_array((values, (rows, cols)), shape=(size, size)).tocsc()


def scattered(blocks: Array, rows: Indices, cols: Indices) -> tuple[Indices, Indices, Array]:
    """Entries of many blocks, each with its own rows and columns; negative ones are left out."""
    at_row = np.broadcast_to(rows[:, :, None], blocks.shape)
    at_col = np.broadcast_to(cols[:, None, :], blocks.shape)
    inside = (at_row >= 0) & (at_col >= 0)
    return at_row[inside], at_col[inside], blocks[inside]


def _factor_gains(
    graph: FactorGraph, free: _FreeStates, tables: Array
) -> Iterator[tuple[Indices, Array]]:
    """T_a of all factors of one shape, over all states of their variables end to end, with these
    states: b_a(x_j | x_i) - b_a(x_j | r_i) in row x_i and column x_j, r_i the likeliest state.
    """
    for factors, shape in same_shapes(graph):
        begin = np.concatenate([[0], np.cumsum(shape)])
        edges = graph.scope_offsets[factors][:, None] + np.arange(len(shape))
        starts = graph.state_offsets[graph.scopes[edges]]
        states = np.concatenate(
            [starts[:, k, None] + np.arange(card) for k, card in enumerate(shape)], axis=1
        )
        gain = np.zeros((len(factors), begin[-1], begin[-1]))
        references = free.reference[graph.scopes[edges]] - starts
        for i, j, joint in _pair_tables(graph, factors, shape, tables, None):
            for row, col, table in ((i, j, joint), (j, i, joint.transpose(0, 2, 1))):
                part = gain[:, begin[row] : begin[row + 1], begin[col] : begin[col + 1]]
                part[:] = _conditional_differences(table, references[:, row])
        is_free = free.number[states] >= 0
        gain *= is_free[:, :, None] & is_free[:, None, :]
        yield states, gain


def _conditional_differences(joint: Array, reference: Indices) -> Array:
    sums = joint.sum(axis=2, keepdims=True)
    given = np.divide(joint, sums, out=np.zeros_like(joint), where=sums > 0.0)
    return np.asarray(given - np.take_along_axis(given, reference[:, None, None], axis=1))


class _FreeStates:
    """The states that messages are counted in: all possible ones but the likeliest."""

    def __init__(self, graph: FactorGraph, marginals: Array) -> None:
        n_states = len(marginals)
        self.graph = graph
        self.owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
        order = np.lexsort((-marginals, self.owner))
        self.reference = order[graph.state_offsets[:-1]]
        is_free = marginals > _IMPOSSIBLE
        is_free[self.reference] = False
        self.states = np.flatnonzero(is_free)
        self.number = np.full(n_states, -1, dtype=np.int64)
        self.number[self.states] = np.arange(len(self.states))

    def of(self, variables: Indices) -> Indices:
        """Numbers of the free states of some variables."""
        numbers = self.number[states_of(self.graph, variables)]
        return np.asarray(numbers[numbers >= 0])

    def spread(self, variables: Indices, wanted: Indices) -> Any:
        """From free states to all states of some variables: the likeliest is minus the others."""
        from scipy.sparse import coo_array

        states = states_of(self.graph, variables)
        position = np.full(len(self.owner), -1, dtype=np.int64)
        position[states] = np.arange(len(states))
        chosen = self.states[wanted]
        columns = np.arange(len(wanted))
        rows = np.concatenate([position[chosen], position[self.reference[self.owner[chosen]]]])
        signs = np.repeat([1.0, -1.0], len(wanted))
        shape = (len(states), len(wanted))
        return coo_array((signs, (rows, np.tile(columns, 2))), shape=shape).tocsr()


def _free_blocks(free: _FreeStates, marginals: Array, wanted: Indices) -> Any:
    """diag(b) - b b' over the free states of each variable asked for, sparse."""
    from scipy.sparse import coo_array, diags_array

    b = marginals[free.states[wanted]]
    owners = free.owner[free.states[wanted]]
    positions = (np.arange(len(wanted)), owners)
    spread = coo_array((b, positions), shape=(len(wanted), free.graph.n_variables)).tocsr()
    return diags_array(b).tocsr() - spread @ spread.T


# ---------------------------------------------------------------------- parts


def _pair_tables(
    graph: FactorGraph,
    factors: Indices,
    shape: tuple[int, ...],
    tables: Array,
    weights: Array | None,
) -> Iterator[tuple[int, int, Array]]:
    """Every pair of variables of factors of one shape: their positions in the scope, and one table
    over both per factor. The other variables are summed out, each against its part of `weights`
    (flat by states) if they are given.
    """
    order = len(shape)
    size = int(np.prod(shape))
    whole = tables[graph.table_offsets[factors][:, None] + np.arange(size)]
    whole = whole.reshape(len(factors), *shape)
    edges = graph.scope_offsets[factors][:, None] + np.arange(order)
    starts = graph.state_offsets[graph.scopes[edges]]
    for first, second in combinations(range(order), 2):
        values = whole
        for axis in reversed([k for k in range(order) if k not in (first, second)]):
            if weights is not None:
                w = weights[starts[:, axis, None] + np.arange(shape[axis])]
                ones = (1,) * (values.ndim - 2)
                values = values * np.moveaxis(w.reshape(*w.shape, *ones), 1, axis + 1)
            values = values.sum(axis=axis + 1)
        yield first, second, values


def states_of(graph: FactorGraph, variables: Indices) -> Indices:
    """Positions in a flat buffer of marginals of all states of some variables.

    >>> states_of(FactorGraph([2, 3], []), np.array([1, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    cards = graph.cardinalities[variables].astype(np.int64)
    ends = np.cumsum(cards)
    within = np.arange(int(cards.sum())) - np.repeat(ends - cards, cards)
    return np.asarray(np.repeat(graph.state_offsets[variables], cards) + within)


def factored(matrix: Any) -> Callable[[Array], Array]:
    """A solver of matrix x = b for many b; refuses a matrix that is singular to rounding."""
    size = matrix.shape[0]
    if size == 0:
        return lambda b: b
    if matrix.nnz > _DENSE_FRACTION * size**2 and size <= _DENSE_SIZE:
        return _dense_factored(matrix.toarray())
    from scipy.sparse.linalg import splu

    try:
        factors = splu(matrix.tocsc())
    except RuntimeError as error:  # SuperLU met a pivot that is exactly zero
        raise KikuchiError(CRITICAL) from error
    _check_regular(factors.U.diagonal())
    return lambda b: np.asarray(factors.solve(b))


def _dense_factored(matrix: Array) -> Callable[[Array], Array]:
    from scipy.linalg import get_lapack_funcs

    factor, back = get_lapack_funcs(("getrf", "getrs"), (matrix,))
    lu, pivots, _ = factor(matrix)
    _check_regular(np.diagonal(lu))
    return lambda b: np.asarray(back(lu, pivots, b)[0])


def _check_regular(pivots: Array) -> None:
    sizes = np.abs(pivots)
    if not sizes.min() > _SINGULAR * sizes.max():
        raise KikuchiError(CRITICAL)


def checked(covariance: Array) -> Array:
    """Made symmetric to the last bit; refused where a variance is negative or not finite."""
    if not np.all(np.isfinite(covariance)):
        raise KikuchiError(CRITICAL)
    if np.any(np.diagonal(covariance) < _NEGATIVE):
        raise KikuchiError(_UNSTABLE)
    return np.asarray(0.5 * (covariance + covariance.T))
