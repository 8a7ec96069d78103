r"""Linear response: how the beliefs of a fixed point move with the tables of the model.

At a stationary point of its free energy the estimate of log Z has the factor beliefs as its
gradient in the log-tables (all that depends on the beliefs is stationary), so the derivative of the
factor beliefs is a Hessian, and symmetric. With one field, a factor of a single variable, added to
every variable, marginals are factor beliefs too: one symmetric operator C carries a change of
fields and tables to the change of marginals and factor beliefs, and is its own adjoint. Its block
of the fields is the covariance of states: exactly,

    d p_i(k) / d theta_j(l) = Cov(1[x_i = k], 1[x_j = l]),

and an approximation of the marginals, differentiated the same way at its fixed point, gives
covariances also of variables that share no factor. Covariances run over the states of the
variables asked for, one variable after the other, as `flat_marginals` does.

Reference: HOJ-I11, TEH-I7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import KikuchiError
from kikuchi.graphs.factor_graph import FactorGraph

_COLUMNS = 256  # right-hand sides solved at once
_DENSE_FRACTION = 0.1  # of entries above which a matrix is factored as a dense one
_DENSE_SIZE = 4000
_SINGULAR = 1e-13  # smallest over largest pivot
_NEGATIVE = -1e-9  # variances below this are no rounding

CRITICAL = (
    "the covariance does not exist: the fixed point is a critical one, where a small field moves "
    "the marginals without limit; use jt, or weaken the couplings"
)
_UNSTABLE = (
    "linear response gives a negative variance: the fixed point is no minimum of its free energy; "
    "use jt, or try other starts or damping"
)


class Response(ABC):
    """The operator C at one fixed point of one engine, with the tables that it had there."""

    graph: FactorGraph

    @abstractmethod
    def respond(self, fields: Array, tables: Array) -> tuple[Array, Array]:
        """Apply C to one direction.

        Parameters
        ----------
        fields : change of the log-weight of every state, flat as marginals are.
        tables : change of the log-tables, flat.

        Returns
        -------
        The changes of the flat marginals and of the flat factor beliefs.
        """

    def covariance(self, variables: Ints) -> Array:
        """The covariance of the states of some variables: C applied to a field on each of them."""
        states = states_of(self.graph, variables)
        field, tables = (
            np.zeros(int(self.graph.state_offsets[-1])),
            np.zeros_like(self.graph.log_tables),
        )
        out = np.empty((len(states), len(states)))
        for row, state in enumerate(states.tolist()):
            field[state] = 1.0
            out[row] = self.respond(field, tables)[0][states]
            field[state] = 0.0
        return checked(out)


# ---------------------------------------------------------------------- exact


def product_covariance(graph: FactorGraph, marginals: Array, variables: Ints) -> Array:
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
    variables: Ints,
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


# ---------------------------------------------------------------------- parts


def symmetric_response(matrix: Any, root: Any, rows: Ints) -> Array:
    """The rows and columns `rows` of root matrix^-1 root', for sparse `matrix` and `root`.

    Free energies scaled by the square root of the single covariances have this form; it stays
    finite where a variable is certain.
    """
    return projected_inverse(factored(matrix), root.tocsr()[rows])


def projected_inverse(solve: Callable[[Array], Array], rows: Any) -> Array:
    """rows matrix^-1 rows' for sparse `rows` and the solver of a symmetric matrix."""
    size = rows.shape[0]
    out = np.empty((size, size))
    for lo in range(0, size, _COLUMNS):
        out[:, lo : lo + _COLUMNS] = rows @ solve(rows[lo : lo + _COLUMNS].T.toarray())
    return checked(out)


def unit_columns(chosen: Ints, size: int) -> Iterator[tuple[int, Array]]:
    """Blocks of columns, each with a 1 in one of the rows `chosen`: where they begin, and them."""
    for lo in range(0, len(chosen), _COLUMNS):
        rows = chosen[lo : lo + _COLUMNS]
        block = np.zeros((size, len(rows)))
        block[rows, np.arange(len(rows))] = 1.0
        yield lo, block


def scattered(blocks: Array, rows: Ints, cols: Ints) -> tuple[Ints, Ints, Array]:
    """Entries of many blocks, each with its own rows and columns; negative ones are left out."""
    at_row = np.broadcast_to(rows[:, :, None], blocks.shape)
    at_col = np.broadcast_to(cols[:, None, :], blocks.shape)
    inside = (at_row >= 0) & (at_col >= 0)
    return at_row[inside], at_col[inside], blocks[inside]


def states_of(graph: FactorGraph, variables: Ints) -> Ints:
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
