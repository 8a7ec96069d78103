r"""Linear response of belief propagation and its reweighted relatives.

Reference: HOJ-I11, LIU-D5, LIU-D6, TEH-I7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.engines.response.linear_response import (
    Response,
    checked,
    factored,
    scattered,
    states_of,
    unit_columns,
)
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.table_shapes import FactorGroup, factor_groups, pair_sums, scope_sums

_IMPOSSIBLE = 1e-16  # beliefs from here on do not respond
_STIFF = 1e-3  # determinant of a factor's own system below which it is not eliminated


class ReweightedResponse(Response):
    r"""The response of belief propagation and its reweighted relatives, for any factors.

    The fixed points make sum_i sum b_i log b_i + sum_a mu_a I_a(b) - <log phi, b> stationary, with
    a weight mu_a per factor (1 for belief propagation; appearance probabilities for the
    tree-reweighted bound). With b_a prop. to phi_a^(1/mu_a) prod_i b_i exp(-m_ai / mu_a)
    and log b_i = field_i + sum_a m_ai, agreement of b_a with b_i to first order reads

        dm_ai = E_a[dtheta_a | x_i] + sum_{j in a \ i} E_a[mu_a df_j - dm_aj | x_i],
        df_i = dfield_i + sum_a dm_ai,

    each up to a constant, so they are counted from the likeliest state of their variable; states
    of no probability stay at it. With T_a the matrix of conditional expectations of factor a, this
    is (1 + T_a) dm_a = s_a + mu_a T_a df_a, and leaves a sparse system in df once the dm are
    eliminated; factors whose 1 + T_a is nearly singular, as hard constraints are, keep theirs.
    Then db_i = (diag(b_i) - b_i b_i') df_i.

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
    >>> response.respond(fields, np.zeros(6))[0].round(6).tolist()
    [-0.1875, 0.1875, -0.0625, 0.0625]
    >>> response.covariance(np.array([1]))[0].round(6).tolist()
    [0.243056, -0.243056]
    """

    def __init__(self, graph: FactorGraph, marginals: Array, tables: Array, weights: Array) -> None:
        self.graph = graph
        self.marginals = marginals
        self.starts = graph.state_offsets[:-1]
        self.owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
        self.reference = np.lexsort((-marginals, self.owner))[self.starts]
        is_free = marginals > _IMPOSSIBLE
        is_free[self.reference] = False
        self.free_states = np.flatnonzero(is_free)
        self.number = np.full(len(marginals), -1, dtype=np.int64)
        self.number[is_free] = np.arange(len(self.free_states))
        orders = np.diff(graph.scope_offsets)
        mu = np.where(orders > 1, weights, 1.0)
        self.groups = [
            _FactorResponses(self, group, tables, mu[group.factors])
            for group in factor_groups(graph)
        ]
        self.solve = factored(self._system())

    def _system(self) -> Any:
        """The matrix that takes df (and the dm of stiff factors, after them) to what is given."""
        from scipy.sparse import coo_array

        size = len(self.free_states)
        parts = [(np.arange(size), np.arange(size), np.ones(size))]
        for group in self.groups:
            group.first_unknown = size
            parts += group.equations()
            size += group.n_stiff
        self.n_unknowns = size
        rows, cols, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        return coo_array((values, (rows, cols)), shape=(size, size)).tocsc()

    def respond(self, fields: Array, tables: Array) -> tuple[Array, Array]:
        """C applied: changes of the flat marginals and of the flat factor beliefs."""
        sources = [group.source(tables) for group in self.groups]
        known = np.zeros(self.n_unknowns)
        size = len(self.free_states)
        known[:size] = (fields - fields[self.reference][self.owner])[self.free_states]
        for group, source in zip(self.groups, sources, strict=True):
            group.add_known(source, known)
        solved = self.solve(known)
        change = np.zeros(len(self.number))
        change[self.free_states] = solved[:size]
        out = np.zeros(len(tables))
        for group, source in zip(self.groups, sources, strict=True):
            group.write(change, source, solved, tables, out)
        return self._weighed(change), out

    def _weighed(self, change: Array) -> Array:
        """b (change - its mean under b), variable by variable."""
        mean = np.add.reduceat(self.marginals * change, self.starts)
        return np.asarray(self.marginals * (change - mean[self.owner]))

    # ------------------------------------------------------------------ covariances

    def covariance(self, variables: Ints) -> Array:
        """The covariance of the states of some variables, many columns at once."""
        states = states_of(self.graph, variables)
        wanted = self.number[states]
        wanted = wanted[wanted >= 0]
        if len(wanted) == 0:  # certain variables, or none
            return np.zeros((len(states), len(states)))
        blocks = self._blocks(wanted)
        out = np.empty((len(wanted), len(wanted)))
        for lo, unit in unit_columns(wanted, self.n_unknowns):
            out[:, lo : lo + unit.shape[1]] = blocks @ self.solve(unit)[wanted]
        spread = self._spread(states, wanted)
        return checked(spread @ (0.5 * (out + out.T)) @ spread.T)

    def _blocks(self, wanted: Ints) -> Any:
        """diag(b) - b b' over the free states of each variable asked for, sparse."""
        from scipy.sparse import coo_array, diags_array

        b = self.marginals[self.free_states[wanted]]
        positions = (np.arange(len(wanted)), self.owner[self.free_states[wanted]])
        spread = coo_array((b, positions), shape=(len(wanted), len(self.starts))).tocsr()
        return diags_array(b).tocsr() - spread @ spread.T

    def _spread(self, states: Ints, wanted: Ints) -> Any:
        """From free states to all states of some variables: the likeliest is minus the others."""
        from scipy.sparse import coo_array

        position = np.full(len(self.owner), -1, dtype=np.int64)
        position[states] = np.arange(len(states))
        chosen = self.free_states[wanted]
        columns = np.arange(len(wanted))
        rows = np.concatenate([position[chosen], position[self.reference[self.owner[chosen]]]])
        signs = np.repeat([1.0, -1.0], len(wanted))
        shape = (len(states), len(wanted))
        return coo_array((signs, (rows, np.tile(columns, 2))), shape=shape).tocsr()


class _FactorResponses:
    """How the factors of one shape respond to the fields of their variables and to their tables."""

    def __init__(
        self, whole: ReweightedResponse, group: FactorGroup, tables: Array, weights: Array
    ) -> None:
        self.group = group
        self.weights = weights
        self.beliefs = tables[group.entries]
        self.beliefs = self.beliefs / self.beliefs.sum(axis=1, keepdims=True)
        width = group.states.shape[1]
        self.free = whole.number[group.states]
        # the column, among the states of the factor, of the reference state of each variable
        reference = whole.reference[whole.owner[group.states]]
        self.at_reference = np.arange(width) + (reference - group.states)
        sums = scope_sums(self.beliefs, group.shape)
        self.inverse = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > _IMPOSSIBLE)
        self.gain = self._conditional_differences()
        self.within = np.eye(width) + self.gain
        self.soft = np.abs(np.linalg.det(self.within)) > _STIFF
        self.solver = np.linalg.inv(self.within[self.soft])
        self.n_stiff = int((~self.soft).sum()) * width
        self.first_unknown = 0

    def _conditional_differences(self) -> Array:
        """b_a(x_j | x_i) - b_a(x_j | r_i) in row x_i and column x_j, r_i the likeliest state."""
        group, begin = self.group, self.group.starts
        gain = np.zeros((len(self.beliefs), begin[-1], begin[-1]))
        for i, j, joint in pair_sums(self.beliefs, group.shape):
            gain[:, begin[i] : begin[i + 1], begin[j] : begin[j + 1]] = joint
            gain[:, begin[j] : begin[j + 1], begin[i] : begin[i + 1]] = joint.transpose(0, 2, 1)
        gain *= self.inverse[:, :, None]
        gain -= np.take_along_axis(gain, self.at_reference[:, :, None], axis=1)
        gain *= (self.free >= 0)[:, :, None] & (self.free >= 0)[:, None, :]
        return gain

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
        mean = scope_sums(weighed, self.group.shape) * self.inverse
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
