r"""Linear response of beliefs to changes of the tables, at a fixed point.

At a stationary point of its free energy the estimate of log Z has the factor beliefs as its
gradient in the log-tables (all that depends on the beliefs is stationary), so the derivative of the
factor beliefs is a Hessian, and symmetric. With one field, a factor of a single variable, added to
every variable, marginals are factor beliefs too: one symmetric operator C carries a change of
fields and tables to the change of marginals and factor beliefs, and is its own adjoint. The classes
here apply it to one direction; the covariances of `linear_response` are its block of the fields.

Reference: HOJ-I11, LIU-D5, LIU-D6, TEH-I7.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.engines.response.linear_response import factored, scattered
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.table_shapes import same_shapes

_IMPOSSIBLE = 1e-16  # beliefs from here on do not respond
_STIFF = 1e-3  # determinant of a factor's own system below which it is not eliminated


class TableResponse(Protocol):
    """What every response offers: C applied to a change of the fields and of the tables."""

    def __call__(self, fields: Array, tables: Array) -> tuple[Array, Array]:
        """Changes of the flat marginals and of the flat factor beliefs."""


class FactorGroup(NamedTuple):
    """Factors of one shape: where their tables and the states of their variables stand.

    `entries` has a row per factor with the positions of its table, `states` one with the positions
    of the states of its variables end to end, and `onto` tells for each entry of the table, in
    column k, which of those states its k-th variable takes.
    """

    entries: Ints
    states: Ints
    onto: Ints
    shape: tuple[int, ...]


def factor_groups(graph: FactorGraph) -> list[FactorGroup]:
    """All factors, those of one variable too, by the shape of their tables."""
    groups = []
    for factors, shape in same_shapes(graph, least_order=1):
        begin = np.concatenate([[0], np.cumsum(shape)])
        edges = graph.scope_offsets[factors][:, None] + np.arange(len(shape))
        starts = graph.state_offsets[graph.scopes[edges]]
        entries = graph.table_offsets[factors][:, None] + np.arange(prod(shape))
        states = np.concatenate(
            [starts[:, i, None] + np.arange(card) for i, card in enumerate(shape)], axis=1
        )
        digits = np.indices(shape).reshape(len(shape), -1).T
        groups.append(FactorGroup(entries, states, digits + begin[:-1], shape))
    return groups


class ReweightedResponse:
    r"""The response of belief propagation and its reweighted relatives, for any factors.

    The fixed points make sum_i sum b_i log b_i + sum_a mu_a I_a(b) - <log phi, b> stationary, with
    a weight mu_a per factor (1 for belief propagation; appearance probabilities for the
    tree-reweighted bound). With b_a prop. to phi_a^(1/mu_a) prod_i b_i exp(-m_ai / mu_a)
    and log b_i = field_i + sum_a m_ai, agreement of b_a with b_i to first order reads

        dm_ai = E_a[dtheta_a | x_i] + sum_{j in a \ i} E_a[mu_a df_j - dm_aj | x_i],
        df_i = dfield_i + sum_a dm_ai,

    each up to a constant. With T_a the matrix of conditional expectations of factor a, this is
    (1 + T_a) dm_a = s_a + mu_a T_a df_a, and leaves a sparse system in df once the dm are
    eliminated; factors whose 1 + T_a is nearly singular, as hard constraints are, keep theirs.

    Parameters
    ----------
    graph : the model.
    marginals, tables : beliefs of variables and factors at the fixed point, flat.
    weights : mu_a of each factor.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]]), ((0,), [1, 3])])
    >>> import kikuchi as kk
    >>> beliefs = kk.infer(pair, "bp")
    >>> found = beliefs.flat_marginals, beliefs.flat_factors
    >>> response = ReweightedResponse(pair, *found, np.ones(2))
    >>> fields = np.array([0.0, 1.0, 0.0, 0.0])  # on state 1 of variable 0
    >>> response(fields, np.zeros(6))[0].round(6).tolist()
    [-0.1875, 0.1875, -0.0625, 0.0625]
    """

    def __init__(self, graph: FactorGraph, marginals: Array, tables: Array, weights: Array) -> None:
        self.marginals = marginals
        self.starts = graph.state_offsets[:-1]
        self.cards = graph.cardinalities
        self.size = len(marginals)
        self.owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
        reference = np.lexsort((-marginals, self.owner))[self.starts]
        is_free = marginals > _IMPOSSIBLE
        is_free[reference] = False
        self.reference = reference
        self.number = np.full(self.size, -1, dtype=np.int64)
        self.number[is_free] = np.arange(int(is_free.sum()))
        self.n_free = int(is_free.sum())
        orders = np.diff(graph.scope_offsets)
        at = dict(zip(graph.table_offsets[:-1].tolist(), range(graph.n_factors), strict=True))
        self.groups = []
        for group in factor_groups(graph):
            factors = np.array([at[first] for first in group.entries[:, 0].tolist()])
            many = orders[factors[0]] > 1
            mu = weights[factors] if many else np.ones(len(factors))
            self.groups.append(_FactorResponses(self, group, tables, mu))
        self.solve = factored(self._system())

    def _system(self) -> Any:
        from scipy.sparse import coo_array

        size = self.n_free
        parts = [(np.arange(size), np.arange(size), np.ones(size))]
        for group in self.groups:
            group.first_unknown = size
            parts += group.equations()
            size += group.n_stiff
        self.n_unknowns = size
        rows, cols, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        return coo_array((values, (rows, cols)), shape=(size, size)).tocsc()

    def __call__(self, fields: Array, tables: Array) -> tuple[Array, Array]:
        """C applied: changes of the flat marginals and of the flat factor beliefs."""
        sources = [group.source(tables) for group in self.groups]
        known = np.zeros(self.n_unknowns)
        free = self.number >= 0
        known[: self.n_free] = self._referred(fields)[free]
        for group, source in zip(self.groups, sources, strict=True):
            group.add_known(source, known)
        solved = self.solve(known)
        change = np.zeros(self.size)
        change[free] = solved[: self.n_free]
        out = np.zeros(len(tables))
        for group, source in zip(self.groups, sources, strict=True):
            group.write(change, source, solved, tables, out)
        return self._weighed(change), out

    def _referred(self, values: Array) -> Array:
        """Counted from the likeliest state of each variable."""
        return np.asarray(values - values[self.reference][self.owner])

    def _weighed(self, change: Array) -> Array:
        """b (change - its mean under b), variable by variable."""
        mean = np.add.reduceat(self.marginals * change, self.starts)
        return np.asarray(self.marginals * (change - mean[self.owner]))


class _FactorResponses:
    """How the factors of one shape answer to the fields of their variables and to their tables."""

    def __init__(
        self, whole: ReweightedResponse, group: FactorGroup, tables: Array, weights: Array
    ) -> None:
        self.group = group
        self.whole = whole
        self.weights = weights
        self.beliefs = tables[group.entries]
        self.beliefs = self.beliefs / self.beliefs.sum(axis=1, keepdims=True)
        width = group.states.shape[1]
        self.free = whole.number[group.states]
        axis = np.repeat(np.arange(len(group.shape)), group.shape)
        reference = whole.reference[whole.owner[group.states]]
        # the column, among the states of the factor, of the reference state of each variable
        self.at_reference = np.arange(width) + (reference - group.states)
        self.onto = _incidence(group)
        sums = self.beliefs @ self.onto
        joint = np.stack([self.beliefs @ (self.onto * self.onto[:, [s]]) for s in range(width)], 1)
        self.inverse = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > _IMPOSSIBLE)
        gain = joint * self.inverse[:, :, None]
        gain = gain - np.take_along_axis(gain, self.at_reference[:, :, None], axis=1)
        gain *= (self.free >= 0)[:, :, None] & (self.free >= 0)[:, None, :]
        gain *= axis[None, :, None] != axis[None, None, :]
        self.gain = gain
        self.within = np.eye(width) + gain
        self.soft = np.abs(np.linalg.det(self.within)) > _STIFF
        self.solver = np.linalg.inv(self.within[self.soft])
        self.n_stiff = int((~self.soft).sum()) * width
        self.first_unknown = 0

    @property
    def own(self) -> Ints:
        """Numbers of the unknown dm of the stiff factors."""
        return self.first_unknown + np.arange(self.n_stiff).reshape(-1, self.gain.shape[1])

    def equations(self) -> list[tuple[Ints, Ints, Array]]:
        """Entries of the system: what these factors add to the fields of their variables."""
        soft, stiff = self.soft, ~self.soft
        fields = self.free
        answer = -self.weights[soft, None, None] * (self.solver @ self.gain[soft])
        parts = [scattered(answer, fields[soft], fields[soft])]
        if self.n_stiff:
            own = self.own
            parts.append(scattered(self.within[stiff], own, own))
            pull = -self.weights[stiff, None, None] * self.gain[stiff]
            parts.append(scattered(pull, own, fields[stiff]))
            copied = fields[stiff] >= 0
            parts.append((fields[stiff][copied], own[copied], -np.ones(int(copied.sum()))))
        return parts

    def source(self, tables: Array) -> Array:
        """s_a: the mean change of the log-table given each state, from the reference on."""
        weighed = self.beliefs * tables[self.group.entries]
        mean = (weighed @ self.onto) * self.inverse
        mean = mean - np.take_along_axis(mean, self.at_reference, axis=1)
        return np.asarray(mean * (self.free >= 0))

    def add_known(self, source: Array, known: Array) -> None:
        """Put the part of the right-hand side that comes from the tables."""
        soft = self.soft
        moved = np.einsum("fij,fj->fi", self.solver, source[soft])
        fields = self.free[soft]
        np.add.at(known, fields[fields >= 0], moved[fields >= 0])
        if self.n_stiff:
            known[self.own.ravel()] = source[~soft].ravel()

    def write(self, change: Array, source: Array, solved: Array, tables: Array, out: Array) -> None:
        """Changes of these factors' beliefs from those of the fields."""
        fields = change[self.group.states] * (self.free >= 0)
        pulled = source + self.weights[:, None] * np.einsum("fij,fj->fi", self.gain, fields)
        messages = np.empty_like(source)
        messages[self.soft] = np.einsum("fij,fj->fi", self.solver, pulled[self.soft])
        if self.n_stiff:
            messages[~self.soft] = solved[self.own]
        nodes = fields - messages / self.weights[:, None]
        logs = tables[self.group.entries] / self.weights[:, None]
        for k in range(len(self.group.shape)):
            logs = logs + nodes[:, self.group.onto[:, k]]
        mean = (self.beliefs * logs).sum(axis=1, keepdims=True)
        out[self.group.entries] = self.beliefs * (logs - mean)


def _incidence(group: FactorGroup) -> Array:
    """1 where an entry of the table has a state of one of the variables, else 0."""
    out = np.zeros((len(group.onto), group.states.shape[1]))
    out[np.arange(len(out))[:, None], group.onto] = 1.0
    return out


def narrow_root(graph: FactorGraph, q: Array) -> Any:
    """R with R R' = diag(q) - q q' in each block, and a column fewer than states per variable.

    R = diag(s) B, where s = sqrt(q) and the columns of B are those of the Householder reflection
    that takes s to the first axis, but for the first: an orthonormal basis of all that is
    orthogonal to s.

    >>> coin = FactorGraph([2], [((0,), [1, 3])])
    >>> root = narrow_root(coin, np.array([0.25, 0.75]))
    >>> root.shape, (root @ root.T).toarray().round(6).tolist()
    ((2, 1), [[0.1875, -0.1875], [-0.1875, 0.1875]])
    """
    from scipy.sparse import coo_array

    s = np.sqrt(q)
    columns_at = graph.state_offsets[:-1] - np.arange(graph.n_variables)
    rows, cols, values = [], [], []
    for card in np.unique(graph.cardinalities).tolist():
        chosen = graph.cardinalities == card
        states = graph.state_offsets[:-1][chosen][:, None] + np.arange(card)
        block = s[states]
        mirror = block + np.eye(card)[0]
        turned = mirror[:, :, None] * mirror[:, None, 1:] / (1.0 + block[:, 0])[:, None, None]
        values.append((block[:, :, None] * (np.eye(card)[:, 1:] - turned)).ravel())
        rows.append(np.repeat(states, card - 1, axis=1).ravel())
        cols.append(np.tile(columns_at[chosen][:, None] + np.arange(card - 1), card).ravel())
    positions = (np.concatenate(rows), np.concatenate(cols))
    shape = (len(q), len(q) - graph.n_variables)
    return coo_array((np.concatenate(values), positions), shape=shape).tocsr()


class MeanFieldResponse:
    r"""The response of naive mean field at a stationary point, for any factors.

    From log q_i = field_i + sum_a E_q[log phi_a | x_i] follows dq = C (ds + H dq), with the blocks
    C_i = diag(q_i) - q_i q_i', the source ds_i = dfield_i + sum_a E_q[dtheta_a | x_i], and
    H_ij = sum_a E_q[log phi_a | x_i, x_j]. Factor beliefs are the products of their variables'.

    Parameters
    ----------
    graph : the model, with its tables.
    marginals : q, flat.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]]), ((0,), [1, 3])])
    >>> import kikuchi as kk
    >>> response = MeanFieldResponse(pair, kk.infer(pair, "mf").flat_marginals)
    >>> response(np.array([0.0, 1.0, 0.0, 0.0]), np.zeros(6))[0].round(3).tolist()
    [-0.191, 0.191, -0.064, 0.064]
    """

    def __init__(self, graph: FactorGraph, marginals: Array) -> None:
        from scipy.sparse import coo_array, eye_array

        self.q = marginals
        self.starts = graph.state_offsets[:-1]
        self.owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
        self.groups = factor_groups(graph)
        allowed = np.where(np.isfinite(graph.log_tables), graph.log_tables, 0.0)
        size = len(marginals)
        root = narrow_root(graph, marginals)
        parts = [part for group in self.groups for part in self._curvature(group, allowed)]
        matrix: Any = eye_array(root.shape[1], format="csc")
        if parts:
            rows, cols, values = (np.concatenate(part) for part in zip(*parts, strict=True))
            curvature = coo_array((values, (rows, cols)), shape=(size, size)).tocsr()
            matrix = (matrix - root.T @ curvature @ root).tocsc()
        self.root = root
        self.solve = factored(matrix)

    def _curvature(
        self, group: FactorGroup, log_tables: Array
    ) -> Iterator[tuple[Ints, Ints, Array]]:
        values = log_tables[group.entries]
        for i in range(len(group.shape)):
            for j in range(len(group.shape)):
                if i != j:
                    weight = self._others(group, (i, j)) * values
                    rows = group.states[:, group.onto[:, i]]
                    cols = group.states[:, group.onto[:, j]]
                    yield rows.ravel(), cols.ravel(), weight.ravel()

    def _others(self, group: FactorGroup, without: tuple[int, ...]) -> Array:
        """The product of q over the variables of each table entry but some."""
        weight = np.ones(group.entries.shape)
        for k in range(len(group.shape)):
            if k not in without:
                weight = weight * self.q[group.states[:, group.onto[:, k]]]
        return weight

    def __call__(self, fields: Array, tables: Array) -> tuple[Array, Array]:
        """C applied: changes of the flat marginals and of the flat factor beliefs."""
        source = np.array(fields, dtype=np.float64)
        for group in self.groups:
            for k in range(len(group.shape)):
                mean = self._others(group, (k,)) * tables[group.entries]
                np.add.at(source, group.states[:, group.onto[:, k]], mean)
        change = np.asarray(self.root @ self.solve(self.root.T @ source))
        out = np.empty(len(tables))
        for group in self.groups:
            total = np.zeros(group.entries.shape)
            for k in range(len(group.shape)):
                total += self._others(group, (k,)) * change[group.states[:, group.onto[:, k]]]
            out[group.entries] = total
        return change, out
