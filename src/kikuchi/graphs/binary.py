"""Binary pairwise models: Ising models in spins, Boltzmann machines in bits, and conversions.

State 0 is the spin -1 and state 1 the spin +1: s = 2x - 1. Couplings come as a symmetric matrix,
dense or SciPy sparse, or as a mapping {(i, j): value} with each pair once. Algorithms that need
such a model in another form than tables use `couplings_and_fields` (in spins),
`boltzmann_parameters` (in bits) or `spin_factors` (factor by factor).

Reference: HOJ-M4, LIU-M6, TEH-M1, TEH-M4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.errors import ModelError
from kikuchi.graphs.factor_graph import FactorGraph

Couplings = Any  # a symmetric matrix (dense or SciPy sparse), or a mapping {(i, j): value}


class SpinForm(NamedTuple):
    """log p(x) + log Z = constant + sum_{i<j} J_ij s_i s_j + sum_i h_i s_i.

    `couplings` is J as a symmetric SciPy CSR array, `fields` is h.
    """

    couplings: Any
    fields: Array
    constant: float


class BoltzmannParameters(NamedTuple):
    """log weight(x) = constant + sum_i biases_i x_i + sum_{i<j} W_ij x_i x_j, x in {0, 1}.

    W is symmetric, stored by rows: the neighbours of variable i are
    `neighbours[offsets[i]:offsets[i + 1]]`, and `weights` contains their couplings. The constant
    excludes `graph.log_constant`.
    """

    biases: Array
    offsets: U4
    neighbours: U4
    weights: Array
    constant: float

    @property
    def degrees(self) -> Ints:
        """Number of neighbours of each variable."""
        return np.diff(self.offsets.astype(np.int64)).astype(np.int64)


class SpinFactors(NamedTuple):
    """log weight = constant + sum_a J_a s_i s_j + sum_i fields_i x_i, factor by factor.

    An edge is one variable of one factor; edges are numbered as `graph.scopes`. The constant
    excludes `graph.log_constant`.
    """

    couplings: Array  # J_a of each factor of two variables
    pair_edges: Ints  # the first edge of each such factor; the second follows it
    local_fields: Array  # log-odds that each edge's factor gives its variable
    fields: Array  # their sum over the factors of each variable
    constant: float


def ising(
    couplings: Couplings, fields: ArrayLike | None = None, *, names: Sequence[str] | None = None
) -> FactorGraph:
    r"""Ising model p ∝ exp(sum_{i<j} J_ij s_i s_j + sum_i h_i s_i), s_i = ±1.

    Each unordered pair counts once, so a matrix J represents exp(s'Js / 2 + h's). A diagonal only
    multiplies every weight by exp(sum_i J_ii / 2), which is added to `log_constant`.

    One factor for each variable comes first, then one for each pair, in the order of (i, j).
    Zeros of a dense matrix create no factor; entries stored in a sparse matrix or a mapping do.

    `couplings` is a symmetric matrix, dense or sparse, or a mapping {(i, j): J}; `fields` has one
    number for each spin (zeros where None), `names` their names.

    >>> graph = ising({(0, 1): 0.5}, fields=[0.1, -0.2])
    >>> round(graph.log_score([1, 0]), 6)  # spins +1, -1
    -0.2
    >>> ising([[0.0, 0.5], [0.5, 0.0]], [0.1, -0.2]) == graph
    True
    """
    pairs = _read_pairs(couplings, fields, "couplings")
    h = _read_fields(fields, pairs.n, "fields")
    constant = float(pairs.diagonal.sum()) / 2
    return spin_graph(pairs.n, pairs.edges, pairs.values, h, names=names, log_constant=constant)


def boltzmann_graph(
    weights: Couplings, biases: ArrayLike | None = None, *, names: Sequence[str] | None = None
) -> FactorGraph:
    r"""Boltzmann machine p ∝ exp(sum_{i<j} W_ij x_i x_j + sum_i b_i x_i), x_i in {0, 1}.

    Each unordered pair counts once. A diagonal raises an error: since x² = x it would act as a
    bias, of W_ii or W_ii / 2 depending on the convention. Factors are ordered as in `ising`.

    `weights` is a symmetric matrix, dense or sparse, or a mapping {(i, j): weight}; `biases` has
    one number for each unit (zeros where None), `names` their names.

    >>> graph = boltzmann_graph({(0, 1): 2.0}, biases=[0.5, -1.0])
    >>> graph.log_score([1, 1]), graph.log_score([1, 0])
    (1.5, 0.5)
    """
    pairs = _read_pairs(weights, biases, "weights")
    pairs.check_no_diagonal("weights")
    b = _read_fields(biases, pairs.n, "biases")
    tables = np.zeros(2 * pairs.n + 4 * len(pairs.values))
    tables[1 : 2 * pairs.n : 2] = b
    tables[2 * pairs.n + 3 :: 4] = pairs.values
    return _binary_graph(pairs.n, pairs.edges, tables, names, 0.0)


def spins_to_bits(
    couplings: Couplings, fields: ArrayLike | None = None
) -> tuple[Couplings, Array, float]:
    """Convert an Ising model (J, h) in spins to (W, b, constant) in bits, equal on every state.

    With s = 2x - 1: W = 4J, b_i = 2 h_i - 2 sum_j J_ij, constant = sum_{i<j} J_ij - sum_i h_i
    (and half the diagonal of J). W is of the same kind as J: dense, sparse or mapping.

    >>> weights, biases, constant = spins_to_bits({(0, 1): 0.5}, [0.1, -0.2])
    >>> weights, biases.tolist(), constant
    ({(0, 1): 2.0}, [-0.8, -1.4], 0.6)
    """
    pairs = _read_pairs(couplings, fields, "couplings")
    h = _read_fields(fields, pairs.n, "fields")
    biases = 2 * h - 2 * pairs.row_sums()
    constant = float(pairs.values.sum() - h.sum() + pairs.diagonal.sum() / 2)
    return pairs.of_same_kind(couplings, 4 * pairs.values), biases, constant


def bits_to_spins(
    weights: Couplings, biases: ArrayLike | None = None
) -> tuple[Couplings, Array, float]:
    """Convert a Boltzmann machine (W, b) in bits to (J, h, constant) in spins, equal on every
    state.

    With x = (1 + s) / 2: J = W / 4, h_i = b_i / 2 + sum_j W_ij / 4 and
    constant = sum_{i<j} W_ij / 4 + sum_i b_i / 2. J is of the same kind as W.

    >>> couplings, fields, constant = bits_to_spins({(0, 1): 2.0}, [-0.8, -1.4])
    >>> couplings, fields.round(12).tolist(), round(constant, 12)
    ({(0, 1): 0.5}, [0.1, -0.2], -0.6)
    """
    pairs = _read_pairs(weights, biases, "weights")
    pairs.check_no_diagonal("weights")
    b = _read_fields(biases, pairs.n, "biases")
    fields = b / 2 + pairs.row_sums() / 4
    constant = float(pairs.values.sum() / 4 + b.sum() / 2)
    return pairs.of_same_kind(weights, pairs.values / 4), fields, constant


def couplings_and_fields(graph: FactorGraph) -> SpinForm:
    r"""Couplings, fields and constant of any positive binary pairwise model.

    A log-table t over two spins has the coupling (t₊₊ + t₋₋ - t₊₋ - t₋₊) / 4, the fields
    (t₊₊ + t₊₋ - t₋₊ - t₋₋) / 4 and (t₊₊ + t₋₊ - t₊₋ - t₋₋) / 4, and the constant mean(t).
    Factors over the same variables add up.

    >>> form = couplings_and_fields(boltzmann_graph({(0, 1): 2.0}, [-0.8, -1.4]))
    >>> form.couplings.toarray().tolist(), form.fields.round(12).tolist(), round(form.constant, 12)
    ([[0.0, 0.5], [0.5, 0.0]], [0.1, -0.2], -0.6)
    """
    fault = binary_pairwise_fault(graph)
    if fault is not None:
        raise ModelError(fault)
    factors = _spin_factors(graph)
    first = graph.scopes[factors.pair_edges]
    second = graph.scopes[factors.pair_edges + 1]
    matrix = _symmetric(first, second, factors.couplings, graph.n_variables)
    constant = factors.constant + 0.5 * float(factors.fields.sum())
    return SpinForm(matrix, 0.5 * factors.fields, graph.log_constant + constant)


def boltzmann_parameters(graph: FactorGraph) -> BoltzmannParameters | None:
    """The graph in bits; None unless it is a positive binary pairwise model.

    Factors over the same variables are added; couplings of zero are retained.

    >>> bits = boltzmann_parameters(FactorGraph([2, 2], [((0, 1), [[1, 1], [1, np.e]])]))
    >>> bits.biases.tolist(), bits.weights.tolist()
    ([0.0, 0.0], [1.0, 1.0])
    """
    if binary_pairwise_fault(graph) is not None:
        return None
    tables = _binary_tables(graph)
    (u0, u1), (t00, t01, t10, t11) = tables.singles, tables.pairs
    local_biases = np.empty(graph.n_edges)
    local_biases[tables.single_edges] = u1 - u0
    local_biases[tables.pair_edges] = t10 - t00
    local_biases[tables.pair_edges + 1] = t01 - t00
    first, second = graph.scopes[tables.pair_edges], graph.scopes[tables.pair_edges + 1]
    matrix = _symmetric(first, second, (t11 - t10) - (t01 - t00), graph.n_variables)
    return BoltzmannParameters(
        weighted_counts(graph.scopes, local_biases, graph.n_variables),
        matrix.indptr.astype(np.uint32),
        matrix.indices.astype(np.uint32),
        np.asarray(matrix.data, dtype=np.float64),
        float(u0.sum() + t00.sum()),
    )


def spin_factors(graph: FactorGraph) -> SpinFactors | None:
    """The couplings and fields of each factor; None unless it is a positive binary pairwise model.

    >>> factors = spin_factors(boltzmann_graph({(0, 1): 2.0}, [-0.8, -1.4]))
    >>> factors.couplings.tolist(), factors.fields.round(12).tolist()
    ([0.5], [0.2, -0.4])
    """
    return None if binary_pairwise_fault(graph) is not None else _spin_factors(graph)


def binary_pairwise_fault(graph: FactorGraph) -> str | None:
    """Return why a graph is not a positive binary pairwise model; None if it is one.

    >>> binary_pairwise_fault(FactorGraph([2], [((0,), [1, 0])]))
    'factor 0 has a zero; it has no finite coupling or field'
    """
    other = np.flatnonzero(graph.cardinalities != 2)
    if other.size:
        v = int(other[0])
        return (
            f"variable {graph.label(v)} has {graph.cardinalities[v]} states; "
            "couplings and fields exist for binary variables only"
        )
    wide = np.flatnonzero(np.diff(graph.scope_offsets) > 2)
    if wide.size:
        return (
            f"factor {wide[0]} has {len(graph.scope(int(wide[0])))} variables; couplings and "
            "fields exist for pairwise models only, see to_pairwise"
        )
    if not np.all(np.isfinite(graph.log_tables)):
        zero = np.flatnonzero(~np.isfinite(graph.log_tables))[0]
        factor = int(np.searchsorted(graph.table_offsets, zero, side="right")) - 1
        return f"factor {factor} has a zero; it has no finite coupling or field"
    return None


def spin_graph(
    n: int,
    edges: U4,
    couplings: Array,
    fields: Array,
    *,
    names: Sequence[str] | None = None,
    log_constant: float = 0.0,
) -> FactorGraph:
    """An Ising model from flat arrays: `edges` of shape (m, 2), a coupling for each, n fields.

    >>> spin_graph(2, np.array([[0, 1]], dtype=np.uint32), np.ones(1), np.zeros(2)).n_factors
    3
    """
    tables = np.empty(2 * n + 4 * len(edges))
    unary = tables[: 2 * n].reshape(n, 2)
    unary[:, 1] = fields
    np.negative(fields, out=unary[:, 0])
    pair = tables[2 * n :].reshape(len(edges), 4)
    pair[:, 0] = pair[:, 3] = couplings
    np.negative(couplings, out=pair[:, 1])
    pair[:, 2] = pair[:, 1]
    return _binary_graph(n, edges, tables, names, log_constant)


def pairwise_scopes(n: int, edges: U4) -> tuple[U4, Ints]:
    """Scopes and their offsets: one factor for each of n variables, then one for each edge.

    >>> [array.tolist() for array in pairwise_scopes(2, np.array([[0, 1]], dtype=np.uint32))]
    [[0, 1, 0, 1], [0, 1, 2, 4]]
    """
    scopes = np.empty(n + 2 * len(edges), dtype=np.uint32)
    scopes[:n] = np.arange(n, dtype=np.uint32)
    scopes[n:] = edges.ravel()
    offsets = np.empty(n + len(edges) + 1, dtype=np.int64)
    offsets[: n + 1] = np.arange(n + 1)
    offsets[n + 1 :] = np.arange(n + 2, n + 2 * len(edges) + 1, 2)
    return scopes, offsets


def pairwise_factor_tables(
    graph: FactorGraph,
    marginals: Array,
    pair_tables: Callable[[Ints, Ints], Array],
) -> Array:
    """Tables of all factors of a binary pairwise graph, laid out as its log-tables.

    `marginals` has one row per variable; `pair_tables(first, second)` returns one row of four
    numbers for each pair of variables.

    >>> graph = boltzmann_graph({(0, 1): 2.0}, [-0.8, -1.4])
    >>> pairwise_factor_tables(graph, np.full((2, 2), 0.5), lambda i, j: np.full((1, 4), 0.25))
    array([0.5 , 0.5 , 0.5 , 0.5 , 0.25, 0.25, 0.25, 0.25])
    """
    pair = np.diff(graph.scope_offsets) == 2
    edges, begin = graph.scope_offsets[:-1], graph.table_offsets[:-1]
    out = np.empty(graph.log_tables.size)
    out[begin[~pair][:, None] + np.arange(2)] = marginals[graph.scopes[edges[~pair]]]
    first, second = graph.scopes[edges[pair]], graph.scopes[edges[pair] + 1]
    out[begin[pair][:, None] + np.arange(4)] = pair_tables(
        first.astype(np.int64), second.astype(np.int64)
    )
    return out


def weighted_counts(places: NDArray[Any], values: Array, size: int) -> Array:
    """Return the sum of the `values` at each of `size` positions.

    >>> weighted_counts(np.array([0, 2, 2]), np.array([1.0, 2.0, 3.0]), 4).tolist()
    [1.0, 0.0, 5.0, 0.0]
    """
    return np.bincount(places, values, size).astype(np.float64, copy=False)


# ---------------------------------------------------------------------- reading couplings


@dataclass(frozen=True)
class _PairList:
    """Couplings as flat arrays: pairs i < j in lexicographic order, their values, the diagonal."""

    n: int
    edges: U4
    values: Array
    diagonal: Array

    def row_sums(self) -> Array:
        """sum_j J_ij for each i, without the diagonal."""
        first, second = self.edges[:, 0], self.edges[:, 1]
        n = self.n
        return weighted_counts(first, self.values, n) + weighted_counts(second, self.values, n)

    def check_no_diagonal(self, what: str) -> None:
        """Raise an error if there is a diagonal, which bits cannot have."""
        loaded = np.flatnonzero(self.diagonal)
        if loaded.size:
            i = loaded[0]
            raise ModelError(
                f"{what}[{i}, {i}] is {self.diagonal[i]:g}; for bits the diagonal must be 0, "
                "put it in the biases"
            )

    def of_same_kind(self, like: Couplings, values: Array) -> Couplings:
        """Couplings with these values, as a mapping, sparse array or dense matrix like `like`."""
        if isinstance(like, Mapping):
            pairs = zip(self.edges.tolist(), values.tolist(), strict=True)
            return {(i, j): value for (i, j), value in pairs}
        first, second = self.edges[:, 0], self.edges[:, 1]
        if _is_sparse(like):
            return _symmetric(first, second, values, self.n)
        matrix = np.zeros((self.n, self.n))
        matrix[first, second] = matrix[second, first] = values
        return matrix


def _is_sparse(couplings: Couplings) -> bool:
    return hasattr(couplings, "tocoo")


def _read_pairs(couplings: Couplings, fields: ArrayLike | None, what: str) -> _PairList:
    if isinstance(couplings, Mapping):
        pairs = _pairs_of_mapping(couplings, fields, what)
    elif _is_sparse(couplings):
        pairs = _pairs_of_sparse(couplings, what)
    else:
        pairs = _pairs_of_dense(couplings, what)
    bad = np.flatnonzero(~np.isfinite(pairs.values))
    if bad.size:
        i, j = pairs.edges[bad[0]]
        raise ModelError(f"{what}[{i}, {j}] is {pairs.values[bad[0]]}; it must be finite")
    if not np.all(np.isfinite(pairs.diagonal)):
        raise ModelError(f"the diagonal of the {what} must be finite")
    return pairs


def _pairs_of_dense(couplings: Couplings, what: str) -> _PairList:
    matrix = _as_floats(couplings, what)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ModelError(f"{what} must be a square matrix, got shape {matrix.shape}")
    first, second = np.nonzero(np.triu(matrix, 1))
    back_first, back_second = np.nonzero(np.tril(matrix, -1))
    _require_symmetry(matrix[back_first, back_second], matrix[back_second, back_first], what)
    _require_symmetry(matrix[first, second], matrix[second, first], what)
    edges = np.stack([first, second], axis=1).astype(np.uint32)
    return _PairList(len(matrix), edges, matrix[first, second], np.diagonal(matrix))


def _pairs_of_sparse(couplings: Couplings, what: str) -> _PairList:
    from scipy.sparse import csr_array

    shape = couplings.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ModelError(f"{what} must be a square matrix, got shape {shape}")
    matrix = csr_array(couplings, dtype=np.float64)
    matrix.sum_duplicates()
    coo = matrix.tocoo()
    transposed = matrix.T.tocsr().tocoo()
    same_places = np.array_equal(coo.row, transposed.row) and np.array_equal(
        coo.col, transposed.col
    )
    if not same_places:
        raise ModelError(_ASYMMETRIC.format(what=what))
    _require_symmetry(coo.data, transposed.data, what)
    upper = coo.row < coo.col
    edges = np.stack([coo.row[upper], coo.col[upper]], axis=1).astype(np.uint32)
    return _PairList(shape[0], edges, coo.data[upper], matrix.diagonal())


def _pairs_of_mapping(
    couplings: Mapping[Any, Any], fields: ArrayLike | None, what: str
) -> _PairList:
    keys = [_as_pair(key, what) for key in couplings]
    seen: set[tuple[int, int]] = set()
    for i, j in keys:
        if i == j:
            raise ModelError(f"{what}[{i}, {j}]: a variable has no coupling with itself")
        if (i, j) in seen:
            raise ModelError(f"{what} name the pair ({i}, {j}) twice; give each pair once")
        seen.add((i, j))
    values = _as_floats(list(couplings.values()), what)
    if values.ndim != 1:
        raise ModelError(f"{what}: every pair needs one number")
    needed = max((j for _, j in keys), default=-1) + 1
    n = needed if fields is None or np.ndim(fields) == 0 else len(np.asarray(fields))
    if needed > n:
        raise ModelError(f"{what} name variable {needed - 1}, but there are only {n} fields")
    edges = np.array(keys, dtype=np.int64).reshape(-1, 2)
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    return _PairList(n, edges[order].astype(np.uint32), values[order], np.zeros(n))


def _as_pair(key: Any, what: str) -> tuple[int, int]:
    whole = isinstance(key, tuple) and len(key) == 2
    whole = whole and all(isinstance(k, int | np.integer) and 0 <= k < 2**31 for k in key)
    if not whole:
        raise ModelError(f"{what}: {key!r} is not a pair (i, j) of variable numbers")
    i, j = (int(k) for k in key)
    return (i, j) if i <= j else (j, i)


def _read_fields(fields: ArrayLike | None, n: int, what: str) -> Array:
    values = _as_floats(0.0 if fields is None else fields, what)
    if values.ndim == 0:
        values = np.full(n, float(values))
    if values.shape != (n,):
        raise ModelError(f"{what} must be one number for each of {n} variables")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise ModelError(f"{what}[{bad[0]}] is {values[bad[0]]}; it must be finite")
    return values


def _as_floats(values: Any, what: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what} must be numbers, got {type(values).__name__}") from error


_ASYMMETRIC = (
    "the matrix of {what} is not symmetric; give J + J.T of a triangular one, "
    "or a mapping with each pair once"
)


def _require_symmetry(one: Array, other: Array, what: str) -> None:
    if not np.allclose(one, other, rtol=1e-10, atol=1e-12, equal_nan=True):
        raise ModelError(_ASYMMETRIC.format(what=what))


# ---------------------------------------------------------------------- graphs


def _binary_graph(
    n: int, edges: U4, log_tables: Array, names: Sequence[str] | None, log_constant: float
) -> FactorGraph:
    scopes, offsets = pairwise_scopes(n, edges)
    cards = np.full(n, 2, dtype=np.uint32)
    return FactorGraph.from_arrays(
        cards, scopes, offsets, log_tables, names=names, log_constant=log_constant, validate=False
    )


class _BinaryTables(NamedTuple):
    """Log-tables of a binary pairwise graph, one array for each entry, and where they belong."""

    single_edges: Ints
    singles: tuple[Array, Array]
    pair_edges: Ints
    pairs: tuple[Array, Array, Array, Array]


def _binary_tables(graph: FactorGraph) -> _BinaryTables:
    pair = np.diff(graph.scope_offsets) == 2
    edges, tables, begin = graph.scope_offsets[:-1], graph.log_tables, graph.table_offsets[:-1]
    single_at, pair_at = begin[~pair], begin[pair]
    return _BinaryTables(
        edges[~pair],
        (tables[single_at], tables[single_at + 1]),
        edges[pair],
        (tables[pair_at], tables[pair_at + 1], tables[pair_at + 2], tables[pair_at + 3]),
    )


def _spin_factors(graph: FactorGraph) -> SpinFactors:
    tables = _binary_tables(graph)
    (u0, u1), (t00, t01, t10, t11) = tables.singles, tables.pairs
    local_fields = np.empty(graph.n_edges)
    local_fields[tables.single_edges] = u1 - u0
    local_fields[tables.pair_edges] = 0.5 * (t10 + t11 - t00 - t01)
    local_fields[tables.pair_edges + 1] = 0.5 * (t01 + t11 - t00 - t10)
    constant = 0.25 * float(t00.sum() + t01.sum() + t10.sum() + t11.sum())
    constant += 0.5 * float(u0.sum() + u1.sum() - local_fields.sum())
    return SpinFactors(
        0.25 * (t00 + t11 - t01 - t10),
        tables.pair_edges,
        local_fields,
        weighted_counts(graph.scopes, local_fields, graph.n_variables),
        constant,
    )


def _symmetric(first: NDArray[Any], second: NDArray[Any], values: Array, n: int) -> Any:
    """A symmetric SciPy CSR array with sorted rows from values of pairs; equal pairs add up."""
    from scipy.sparse import coo_array, csr_array

    ends = (np.minimum(first, second), np.maximum(first, second))
    upper = coo_array((values, ends), shape=(n, n)).tocsr()
    lower = upper.T.tocsr()  # not the sum of both, which would drop couplings of zero
    number = np.arange(upper.nnz)
    at_lower = number + np.repeat(upper.indptr[:-1], np.diff(lower.indptr))
    at_upper = number + np.repeat(lower.indptr[1:], np.diff(upper.indptr))
    data, columns = np.empty(2 * upper.nnz), np.empty(2 * upper.nnz, dtype=upper.indices.dtype)
    data[at_lower], data[at_upper] = lower.data, upper.data
    columns[at_lower], columns[at_upper] = lower.indices, upper.indices
    return csr_array((data, columns, lower.indptr + upper.indptr), shape=(n, n))
