"""Reweighted message passing: the engine behind `trw`, `alpha` and `fractional`.

All three look for stationary points of the reweighted free energy (for any factors)

    F(b) = sum_i sum b_i log b_i + sum_a mu_a I_a(b) - sum_a sum b_a log phi_a,
    I_a(b) = sum b_a log(b_a / prod_{i in a} b_i),

with one weight mu_a for each factor: appearance probabilities, or 1 / alpha.
At *any* messages the beliefs of the engine are a reparameterisation of the model,

    prod_a phi_a = exp(C) prod_i b_i prod_a (b_a / prod_{i in a} b_i)^mu_a,
    C = sum_i log Z_i + sum_a mu_a log Z_a,

which is where its bound comes from (`ReweightedMessages.log_z_upper`).

Reference: LIU-D5, LIU-D6, LIU-I6, LIU-I8.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.budget import Budget
from kikuchi.core.errors import MethodError, ModelError
from kikuchi.core.numerics import entropy, log, segment_sums, xlogy
from kikuchi.engines.feasibility import Constraints
from kikuchi.engines.messages.kernels import beliefs, bp_messages
from kikuchi.engines.messages.kernels import reweighted as kernels
from kikuchi.engines.messages.ratios import PairEdges
from kikuchi.engines.messages.state import MessageState
from kikuchi.engines.messages.tables import message_buffer, message_layout
from kikuchi.engines.response.reweighted import ReweightedResponse
from kikuchi.graphs.binary import SpinFactors, spin_factors
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import flatten, local_fields

_LARGEST_MESSAGE = 1e12  # beyond it the messages have diverged


class ReweightedMessages:
    """Messages of one model under given weights, and all that can be read off them.

    `weights` and `steps` have one entry for each factor; those of factors of one variable are not
    used, since such a factor is only a field. `messages` are the logarithms that each factor adds
    to the belief of each of its variables, flat as `graph.message_offsets` says. `copies` of them
    that the caller will keep are counted against the budget. `responds` is False where the weights
    were chosen for the tables.

    >>> square = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]]), ((0,), [1, 3])])
    >>> engine = ReweightedMessages(square, np.ones(2))
    >>> engine.sweeps(3)
    0.0
    >>> engine.marginals().round(6).tolist()
    [0.25, 0.75, 0.416667, 0.583333]
    """

    def __init__(
        self,
        graph: FactorGraph,
        weights: Array,
        steps: Array | float = 1.0,
        *,
        schedule: str = "sequential",
        budget: Budget | None = None,
        copies: int = 0,
    ) -> None:
        require_bytes(graph, budget or Budget(), copies)
        self.graph = graph
        self.responds = True
        self.schedule = schedule
        self.layout = message_layout(graph)
        self.state_at = graph.state_offsets.view(np.uint64)
        self.orders = np.diff(graph.scope_offsets)
        self.messages = np.zeros(int(graph.message_offsets[-1]))
        self.order = np.arange(graph.n_variables, dtype=np.uint32)
        self._log_b = np.empty(int(graph.state_offsets[-1]))
        self._nu = np.zeros_like(self.messages)
        self._new = np.zeros_like(self.messages)
        self._work = message_buffer(graph)
        self._reading: Reading | None = None
        self._read_tables()
        self.set_weights(weights, steps)

    def _read_tables(self) -> None:
        self.field = _fields(self.graph)
        factors = spin_factors(self.graph)
        self._ratios = None if factors is None else _LogRatios(self.graph, factors)

    # ------------------------------------------------------------------ tables and weights

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables; weights and messages are kept."""
        self.graph = self.graph.replaced(log_tables=log_tables)
        self._read_tables()
        self.set_weights(self.weights, self.steps)

    def set_weights(self, weights: Array, steps: Array | float = 1.0) -> None:
        """Change weights and steps; the messages, and with them the marginals, are kept."""
        graph = self.graph
        self.weights = np.asarray(weights, dtype=np.float64)
        self.steps = steps
        self.power = 1.0 / self.weights
        self.gain = np.broadcast_to(np.asarray(steps) * self.weights, self.weights.shape).copy()
        sizes = np.diff(graph.table_offsets)
        self._log_tables = np.repeat(self.power, sizes) * graph.log_tables
        peaks = np.maximum.reduceat(self._log_tables, graph.table_offsets[:-1])
        self._log_tables -= np.repeat(peaks, sizes)
        self._peaks = peaks
        if self._ratios is not None:
            self._ratios.set_powers(self.power, self.gain)
        floor = bp_messages.TABLE_FLOOR
        low = (self._log_tables > -np.inf) & (self._log_tables < np.log(floor))
        self._set_mode(bp_messages.LOG_SUM if low.any() else bp_messages.SUM)

    def _set_mode(self, mode: int) -> None:
        self._mode = mode
        self._tables = np.exp(self._log_tables) if mode == bp_messages.SUM else self._log_tables
        self._stale = True
        self._reading = None

    @property
    def arithmetic(self) -> str:
        """How the messages are computed: "ratios", "probabilities" or "logarithms"."""
        if self._ratios is not None:
            return "ratios"
        return "probabilities" if self._mode == bp_messages.SUM else "logarithms"

    # ------------------------------------------------------------------ sweeps

    @property
    def state(self) -> MessageState:
        """The messages."""
        return MessageState(self.messages.copy())

    @state.setter
    def state(self, state: MessageState) -> None:
        messages = state.bounded(self.graph)
        single = np.repeat(
            self.orders[self.graph.edge_factors] == 1, np.diff(self.graph.message_offsets)
        )
        messages[single] = 0.0  # such a factor is a field
        self.set_messages(messages)

    def sweep(self, damping: float = 0.0) -> float:
        """One sweep over all messages; answers the largest change, undamped."""
        return self.sweeps(1, damping)

    def set_messages(self, messages: Array) -> None:
        """Take other messages."""
        self.messages[:] = messages
        self._stale = True
        self._reading = None

    def sweeps(self, count: int, damping: float = 0.0) -> float:
        """`count` sweeps over all messages; answers the largest change of the last, undamped.

        A message is n as a probability, as in `bp`; the change is before damping. Infinite when the
        messages have left the range of doubles.
        """
        self._reading = None
        if self._ratios is not None:
            residual = self._ratios.sweeps(self.messages, count, damping, self.order, self.schedule)
            self._stale = True
        else:
            gain = self.gain * (1.0 - damping)
            for _ in range(count):
                residual = self._general_sweep(gain)
        return residual if self._largest_message < _LARGEST_MESSAGE else np.inf

    def _general_sweep(self, gain: Array) -> float:
        while True:
            if self._stale and not self._refresh():
                continue
            at = (self.layout, self._weighted(gain), self._state)
            if self.schedule == "parallel":
                status, residual = kernels.parallel(*at, self._mode)
            else:
                status, residual = kernels.sequential(*at, self.order, self._mode)
            if status == bp_messages.OK or self._mode != bp_messages.SUM:
                return float(residual)
            self._set_mode(bp_messages.LOG_SUM)

    def _weighted(self, gain: Array) -> kernels.WeightedTables:
        return kernels.WeightedTables(self._tables, self.state_at, self.field, self.power, gain)

    @property
    def _state(self) -> kernels.WeightedMessages:
        return kernels.WeightedMessages(self.messages, self._log_b, self._nu, self._new, self._work)

    def _refresh(self) -> bool:
        """Beliefs and cavities anew; False if that needs logarithms, which are used from now on."""
        status = kernels.refresh(self.layout, self._weighted(self.gain), self._state, self._mode)
        if status != bp_messages.OK and self._mode == bp_messages.SUM:
            self._set_mode(bp_messages.LOG_SUM)
            return False
        self._stale = False
        return True

    # ------------------------------------------------------------------ reading

    def reading(self) -> Reading:
        """What the present messages say; kept until they change."""
        if self._reading is None:
            self._reading = self._read()
        return self._reading

    def _read(self) -> Reading:
        graph = self.graph
        node_norms, factor_norms = np.empty(graph.n_variables), np.empty(graph.n_factors)
        cross, log_ratio = np.empty(graph.n_factors), np.empty_like(self.messages)
        log_b = np.empty_like(self.field)
        kernels.normalised_beliefs(
            self.layout, self.state_at, self.field, self.messages, log_b, node_norms
        )
        self._stale = True  # the buffer of cavities is used
        status = kernels.factor_reading(
            self.layout,
            self._weighted(self.gain),
            self._state._replace(log_b=log_b),
            kernels.FactorReading(factor_norms, cross, log_ratio),
            self._mode,
        )
        if status != bp_messages.OK and self._mode == bp_messages.SUM:
            self._set_mode(bp_messages.LOG_SUM)
            return self._read()
        many = self.orders > 1
        factor_norms[many] += self._peaks[many]
        factor_norms[~many] = 0.0
        return Reading(log_b, node_norms, factor_norms, cross, log_ratio)

    def marginals(self) -> Array:
        """Beliefs of the variables, flat."""
        return np.exp(self.reading().log_b)

    def log_z(self) -> float:
        """Minus the reweighted free energy of the present beliefs.

        Without logarithms of tables: <log phi_a, b_a> - mu_a I_a = mu_a log Z_a + <l_a, b_a>.
        """
        reading = self.reading()
        b = np.exp(reading.log_b)
        nodes = float(xlogy(b, self.field).sum()) + float(entropy(b))
        return nodes + float(self.weights @ reading.factor_norms) + float(reading.cross.sum())

    def log_z_upper(self, parents: Array) -> float:
        """An upper bound on log Z that holds at any messages.

        The weights must be the appearance probabilities of the factors in a random forest, and
        `parents`, one number for each edge, any split of them: parents_ai >= 0, sum_i parents_ai =
        mu_a, and r_i = 1 - sum_{a in i} (mu_a - parents_ai) >= 0, such as the probability that i is
        the parent of a when the forest hangs from random roots (then r_i: that i is a root).

        Proof. log Z <= max over consistent t of <log phi, t> + H_mu(t), since H <= H_mu. On
        consistent t, H_mu = sum_i r_i H(t_i) + sum_ai parents_ai (H(t_a) - H(t_i)); putting in the
        reparameterisation, the maximand is C - sum_i r_i KL(t_i || b_i) + sum_ai parents_ai
        (KL(t_i || b_i) - KL(t_a || b_a)), and KL(t_a || b_a) >= KL(t_i || b_ai), b_ai being the
        marginal of b_a. What is left is a sum over variables, each with a closed maximum, which
        vanishes as soon as all b_ai = b_i.
        """
        reading = self.reading()
        children = self.weights[self.graph.edge_factors] - parents
        children[self.orders[self.graph.edge_factors] == 1] = 0.0
        load = np.bincount(self.graph.scopes, children, self.graph.n_variables)
        roots = np.maximum(1.0 - load, 0.0)
        roots[roots < 1e-12] = 0.0
        gap = kernels.slack(
            self.layout, self.state_at, reading.log_b, reading.log_ratio, parents, roots
        )
        terms = self.weights * reading.factor_norms
        constant = float(reading.node_norms.sum()) + float(terms.sum())
        return min(constant + float(gap) + self._rounding(terms), self.trivial_upper)

    def _rounding(self, terms: Array) -> float:
        """What rounding can have taken from the bound: a few units of all that was added up."""
        sizes = np.abs(terms).sum() + np.abs(self.reading().node_norms).sum()
        sizes += self.weights[self.orders > 1].sum() * self._largest_message
        return 8.0 * float(np.finfo(np.float64).eps) * float(sizes)

    @property
    def _largest_message(self) -> float:
        return float(np.abs(self.messages).max(initial=0.0))

    @property
    def trivial_upper(self) -> float:
        """Every possible state at the largest weight of each table."""
        peaks = np.maximum.reduceat(self.graph.log_tables, self.graph.table_offsets[:-1])
        possible = np.add.reduceat((self.field > -np.inf).astype(float), self._state_starts)
        return float(peaks.sum()) + float(np.log(possible).sum())

    @property
    def _state_starts(self) -> Ints:
        return self.graph.state_offsets[:-1]

    def factor_marginals(self) -> Array:
        """Beliefs of all factors, flat as `graph.log_tables`."""
        log_b = self.reading().log_b
        while self._stale and not self._refresh():
            pass
        out = np.empty_like(self._tables)
        beliefs.factor_beliefs(self.layout, self._tables, self._nu, out, self._mode)
        for a in np.flatnonzero(self.orders == 1):
            v = int(self.graph.scopes[self.graph.scope_offsets[a]])
            lo, hi = self.graph.state_offsets[v : v + 2]
            out[self.graph.table_offsets[a] : self.graph.table_offsets[a + 1]] = np.exp(
                log_b[lo:hi]
            )
        return out

    def response(self) -> ReweightedResponse:
        """How the marginals at this fixed point move with the tables; the weights must stay."""
        if not self.responds:
            raise MethodError(
                "trw:appearances=optimised: the appearances depend on the tables, and only log_z "
                "has a gradient; use uniform or sampled ones for marginals and factor beliefs"
            )
        return ReweightedResponse(
            self.graph, self.marginals(), self.factor_marginals(), self.weights
        )

    def informations(self) -> Array:
        """The multi-information I_a of each factor's belief; 0 for factors of one variable."""
        reading = self.reading()
        out = np.empty(self.graph.n_factors)
        kernels.informations(
            self.layout,
            self.graph.log_tables,
            self.state_at,
            self.power,
            reading.log_b,
            self.messages,
            reading.factor_norms,
            out,
        )
        return np.maximum(out, 0.0)


class Reading(NamedTuple):
    """Beliefs and normalisers at some messages (see `kernels.reweighted.factor_reading`)."""

    log_b: Array
    node_norms: Array
    factor_norms: Array
    cross: Array
    log_ratio: Array


class _LogRatios:
    """Sweeps over the log-ratios of a positive binary pairwise model, node by node."""

    def __init__(self, graph: FactorGraph, factors: SpinFactors) -> None:
        self.pairs = PairEdges(graph, factors)
        self.factor = graph.edge_factors[self.pairs.edge]
        self.at = 2 * self.pairs.edge.astype(np.int64)
        self.local_field = factors.local_fields[self.pairs.edge]
        self.field = factors.fields

    def set_powers(self, power: Array, gain: Array) -> None:
        """What follows from the weights, once for many sweeps."""
        self.power, self.gain = power[self.factor], gain[self.factor]
        self.kappa = 2.0 * self.power * self.pairs.coupling
        with np.errstate(over="ignore", under="ignore"):
            self.k = np.exp(self.kappa)
        self.full = bool(np.all(np.abs(self.gain * self.power - 1.0) < 1e-14))
        self.mild = bool(np.abs(self.kappa).max(initial=0.0) < kernels.MILD)

    def sweeps(
        self, messages: Array, count: int, damping: float, order: U4, schedule: str
    ) -> float:
        """Sweeps on the log-ratios that `messages` hold beyond each factor's own local field."""
        z = messages[self.at + 1] - messages[self.at] - self.local_field
        log_n = self.power * z
        mild = self.mild and bool(np.abs(log_n).max(initial=0.0) < kernels.MILD)
        now = (z, np.exp(log_n) if mild else log_n)
        spare = (np.empty_like(z), np.empty_like(z)) if schedule == "parallel" else now
        gain = self.gain * (1.0 - damping)
        pairs = kernels.WeightedPairs(
            self.pairs.start, self.pairs.reverse, self.k, self.kappa, self.power, gain, self.field
        )
        residual = 0.0
        for _ in range(count):
            residual = kernels.binary_sweep(
                pairs, now, spare, order, mild, self.full and damping == 0.0
            )
            now, spare = spare, now
        ratio = now[0] + self.local_field
        messages[self.at] = np.minimum(-ratio, 0.0)
        messages[self.at + 1] = np.minimum(ratio, 0.0)
        return float(residual)


def reweighted_free_energy(
    graph: FactorGraph, weights: ArrayLike, marginals: ArrayLike, factors: ArrayLike
) -> float:
    """The reweighted free energy F of given beliefs; minus F estimates log Z.

    `weights`: one mu for each factor (mu = 1 is the Bethe free energy); `marginals` and
    `factors` flat, as `Beliefs.flat_marginals` and `Beliefs.flat_factors`. Infinite if a belief
    gives mass to an entry of weight zero.

    `graph` is the model.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]])])
    >>> round(reweighted_free_energy(pair, [1.0], [0.5] * 4, np.array([2, 1, 1, 2]) / 6), 6)
    -1.791759
    """
    mu = np.asarray(weights, dtype=np.float64)
    b, tables = np.asarray(marginals, dtype=np.float64), np.asarray(factors, dtype=np.float64)
    expected = (graph.n_factors, int(graph.state_offsets[-1]), graph.log_tables.size)
    if (mu.size, b.size, tables.size) != expected:
        raise ModelError(
            f"the free energy needs {expected[0]} weights, {expected[1]} marginal and "
            f"{expected[2]} factor entries, got {mu.size}, {b.size} and {tables.size}"
        )
    products = np.zeros(tables.size)
    flat = flatten(graph)
    sizes = np.diff(graph.table_offsets)
    entry = np.arange(tables.size) - np.repeat(graph.table_offsets[:-1], sizes)
    for position in range(int(np.diff(graph.scope_offsets).max(initial=0))):
        has = np.diff(graph.scope_offsets) > position
        edge = np.where(has, graph.scope_offsets[:-1] + position, 0)
        chosen = np.repeat(has, sizes)
        e = np.repeat(edge, sizes)[chosen]
        v = graph.scopes[e]
        state = entry[chosen] // flat.edge_strides[e] % graph.cardinalities[v].astype(np.int64)
        products[chosen] += log(b)[graph.state_offsets[v] + state]
    with np.errstate(invalid="ignore"):
        information = segment_sums(xlogy(tables, log(tables) - products), graph.table_offsets)
    average = float(xlogy(tables, graph.log_tables).sum())
    return float(mu @ information) - average - float(entropy(b)) - graph.log_constant


def _fields(graph: FactorGraph) -> Array:
    """Log-weights of the factors of one variable, -inf for states that the zeros exclude."""
    field = local_fields(graph)
    if not np.all(np.isfinite(graph.log_tables)):
        field[~Constraints(flatten(graph)).alive] = -np.inf
    return field


def require_bytes(graph: FactorGraph, budget: Budget, copies: int) -> None:
    """Refuse messages, and `copies` of them, that do not fit the memory."""
    needed = 8 * (2 * graph.log_tables.size + (8 + copies) * int(graph.message_offsets[-1]))
    budget.require_bytes(needed, "reweighted message passing", "raise --memory, or use mf")
