r"""Certificates: what can be proved about belief propagation in a model before it is run.

Change the messages of a factor graph: by how much does one round of (alpha-)belief propagation
change them? Measure a message by the range of its logarithm. Then the new changes are at most M
times the old ones, entry by entry, with the matrix M of `kernels.certificates` and

    T_a(i, j) = tanh(alpha_a D_a(i, j) / 4),

where D_a(i, j) is the largest log odds ratio of the table between two states of i and two of j. For
two binary variables D / 4 is the size of the coupling, and M is the published matrix; with
alpha = 1 it is the condition of Mooij and Kappen for tables of any shape. Whenever the powers
of M vanish, all starts lead to one fixed point. Largest singular value, row sums and column sums
(Theorem 1 and its corollaries) bound the spectral radius, so that the last is the sharpest.

Errata that are mended here: (3.28) has the field of the sender and its other neighbours, (3.33)
needs |theta|, (3.36) needs M |z| for |M z|. Fields and other one-variable factors never enter M.

Reference: LIU-I9.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.budget import Budget, Clock, RunLimits, limits, named_limits
from kikuchi.core.errors import MethodError
from kikuchi.core.labelled import html_facts
from kikuchi.engines.run import Solution
from kikuchi.engines.small_work import loops_for
from kikuchi.graphs.factor_graph import Evidence, FactorGraph, check_graph
from kikuchi.graphs.graph_arrays import flatten

NOTE_EDGES = 20_000  # beyond it the note would cost more than the run
_NOTE_WORK = 5e7  # nor where the tables need more elementary steps than this
_ROUNDING = 1e-9  # a value must stay this far below its threshold
_CHUNK = 10  # power steps between two looks at the clock
_MOST_STEPS = 2000
_NOTE_STEPS = 60
_NOTE_CHUNK = 4
_SLOW = 0.1  # part of the way to 1 that such a chunk must make for a note to go on
_CLOSE = 1e-10  # relative gap of two bounds that is closed
_STALLED = 1e-8  # relative fall of a bound in a chunk that is none
_LARGE = 100_000  # edges from which on the search ends sooner
_STALLED_LARGE = 1e-3
_TABLE_CHUNK = 2e7

_ALL = "one fixed point, reached from every start under every schedule"


@dataclass(frozen=True)
class Condition:
    """One sufficient condition: it holds when `value` is below `threshold`.

    `value` is an upper bound of the quantity that holds in spite of rounding, None where it could
    not be computed; `proves` says what follows where it `holds`, `remark` why it does not.
    """

    name: str
    value: float | None
    threshold: float
    holds: bool
    proves: str
    remark: str = ""


@dataclass(frozen=True)
class Certificate:
    """What is known of belief propagation in a model before running it.

    `rate` bounds how fast the logarithms of the messages close in on the fixed point, a factor for
    each round (0: exact after finitely many); None where nothing is proved or no rate is known.
    `facts` are other properties of the model that bear on the answer, `remarks` what to mind.

    `alpha` is the order of the divergence (1: belief propagation; None: one for each factor),
    `conditions` are the criteria that were tried, `seconds` what that took.

    >>> import kikuchi as kk
    >>> certificate = certify(kk.ising({(0, 1): 0.3, (1, 2): 0.3, (0, 2): 0.3}))
    >>> certificate.holds, round(certificate.rate, 6)
    (True, 0.291313)
    """

    alpha: float | None
    conditions: tuple[Condition, ...]
    rate: float | None
    facts: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether any condition holds: convergence to one fixed point is then certain."""
        return any(condition.holds for condition in self.conditions)

    def __getitem__(self, name: str) -> Condition:
        """A condition by its name."""
        return next(c for c in self.conditions if c.name == name)

    def __repr__(self) -> str:
        return f"Certificate({self.text})"

    def _repr_html_(self) -> str:
        facts = [(c.name, "holds" if c.holds else "does not hold") for c in self.conditions]
        return html_facts("Certificate of belief propagation", facts, self.text)

    @property
    def text(self) -> str:
        """The verdict in one line."""
        if self.rate == 0.0:
            return "certified: no cycles, exact after two passes"
        if self.holds:
            speed = "" if self.rate is None else f", error times {self.rate:.3g} each round"
            return f"certified: {_ALL}{speed}"
        radius = self["spectral radius"].value
        why = "" if radius is None else f" (spectral radius bound {radius:.3g}, not below 1)"
        return f"not certified{why}: it may converge or not, and have several fixed points"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = {**asdict(self), "certified": self.holds, "text": self.text}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in data.items()}


@named_limits
def certify(
    graph: FactorGraph,
    evidence: Evidence | None = None,
    alpha: ArrayLike = 1.0,
    **within: Unpack[RunLimits],
) -> Certificate:
    """Sufficient conditions for alpha-belief propagation to converge to a unique fixed point.

    `alpha` is one number, or one for each factor; 1 is plain belief propagation (Theorem 1
    and Corollary 1; also the spectral radius, and graphs with at most one cycle in each component).
    A condition that holds is proved, damped or not; one that does not hold proves nothing.
    The seconds end the search for a sharper bound; what was found by then is answered.

    Parameters
    ----------
    graph : the model.
    evidence : observed states by variable, both by name or number.
    alpha : one number, or one for each factor.
    budget, seconds, memory : limits of the run: a budget, or seconds and memory.

    >>> import kikuchi as kk
    >>> certify(kk.grid(4, 4, coupling=0.1)).text
    'certified: one fixed point, reached from every start under every schedule, error times \
0.107 each round'
    >>> certify(kk.grid(4, 4, coupling=2.0)).holds
    False
    """
    check_graph(graph, "certify")
    clock = limits(**within).start()
    reduced = graph.reduce(graph.resolve(evidence))
    alphas = _alphas(alpha, graph.n_factors)[reduced.factors]
    common = float(np.ravel(alpha)[0]) if np.ndim(alpha) == 0 else None
    with loops_for(graph):
        return _Proof(reduced.graph, alphas, clock).certificate(common)


def quick_certificate(graph: FactorGraph, alpha: ArrayLike = 1.0) -> Certificate | None:
    """The structure and the spectral radius only, as far as needed to decide.

    None for forests, and for graphs in which even that is not cheap.
    """
    sizes = np.diff(graph.table_offsets).astype(np.float64)
    work = float((sizes * np.diff(graph.scope_offsets) ** 2).sum()) * int(graph.cardinalities.max())
    if graph.n_edges > NOTE_EDGES or work > _NOTE_WORK or graph.is_forest:
        return None
    alphas = np.broadcast_to(np.asarray(alpha, dtype=np.float64), graph.n_factors).copy()
    one = float(alphas[0]) if np.all(alphas == alphas[0]) else None
    return _Proof(graph, alphas, Budget().start()).quick(one)


def attach_uniqueness_certificate(
    graph: FactorGraph, solution: Solution, alpha: ArrayLike = 1.0
) -> None:
    """Put in an answer whether its fixed point is certainly the only one, where that is cheap."""
    found = quick_certificate(graph, alpha)
    if found is None:
        return
    solution.diagnostics["certified"] = found.holds
    solution.diagnostics["certificate"] = found.text
    if not solution.converged:
        solution.warnings.append(found.text)
    elif not found.holds:
        solution.warnings.append("other fixed points may exist: uniqueness is not certified")


# ---------------------------------------------------------------------- the proof


class _Proof:
    """The matrix of one model, and the bounds that are computed from it."""

    def __init__(self, graph: FactorGraph, alphas: Array, clock: Clock) -> None:
        self.graph = graph
        self.alphas = alphas
        self.clock = clock
        self.plain = bool(np.all(alphas == 1.0))
        self.orders = np.diff(graph.scope_offsets)
        self.blocks = np.concatenate([[0], np.cumsum(self.orders**2)]).astype(np.int64)
        _require_memory(graph, int(self.blocks[-1]), clock.budget)
        self.tables, self.zeros = _live_tables(graph)
        self.refusal = self._refusal()
        self.complete = True
        self.strength = np.zeros(int(self.blocks[-1]))
        if self.refusal is None:
            self._fill_strengths()
        self.core = self._core()

    def _refusal(self) -> str | None:
        if self.zeros and not self.plain:
            return "tables with zeros are certified for alpha = 1 only"
        return None

    # ------------------------------------------------------------------ the matrix

    def _fill_strengths(self) -> None:
        from kikuchi.engines.kernels.certificates import strengths

        graph = self.graph
        flat = flatten(graph).with_tables(self.tables)
        widest = int(graph.cardinalities.max(initial=1))
        high, low = np.empty(widest), np.empty(widest)
        chosen = np.flatnonzero(self.orders > 1).astype(np.uint32)
        work = np.diff(graph.table_offsets)[chosen] * self.orders[chosen] ** 2 * widest
        last_chunk = np.cumsum(work.astype(np.float64)) // _TABLE_CHUNK
        for part in np.split(chosen, np.flatnonzero(np.diff(last_chunk)) + 1):
            if self.clock.expired:
                self.complete = False
                self.refusal = "the time was used up before all tables were read"
                return
            strengths(flat, self.blocks, part, high, low, self.strength)
        odds = self.strength * np.repeat(np.abs(self.alphas), self.orders**2) / 4.0
        self.strength = np.tanh(odds)

    def _live(self) -> Mask:
        """Factors whose messages can change: those that couple their variables at all."""
        if self.complete and self.plain:
            return np.maximum.reduceat(self.strength, self.blocks[:-1]) > 0.0
        return self.orders > 1

    def _on(self, factors: Mask) -> NDArray[np.uint8]:
        return np.repeat(factors, self.orders).astype(np.uint8)

    def _matrix(self, on: NDArray[np.uint8]) -> tuple[NDArray[Any], ...]:
        graph = self.graph
        kept = np.add.reduceat(on, graph.scope_offsets[:-1]) > 0
        return (
            graph.scopes,
            graph.scope_offsets,
            self.blocks,
            self.strength,
            np.abs(1.0 - self.alphas),
            np.flatnonzero(kept).astype(np.uint32),
            on,
        )

    def _core(self) -> NDArray[np.uint8]:
        """Edges on cycles or between them."""
        from kikuchi.engines.kernels.certificates import trim

        graph = self.graph
        self.core_nodes = 0
        if graph.n_factors == 0:
            return np.zeros(0, dtype=np.uint8)
        on = self._on(self._live())
        degrees = [np.zeros(n, dtype=np.uint32) for n in (graph.n_factors, graph.n_variables)]
        trim(flatten(graph), on, np.empty(graph.n_edges, dtype=np.uint32), *degrees)
        self.core_nodes = sum(int(np.count_nonzero(d)) for d in degrees)
        return on

    # ------------------------------------------------------------------ conditions

    def certificate(self, alpha: float | None) -> Certificate:
        """All conditions."""
        conditions = [self._structure(), self._radius(_MOST_STEPS, decide=False)]
        conditions += [self._singular(), *self._norms()]
        facts = _facts(self.graph, conditions, self._radius_above_one)
        return self._put_together(alpha, conditions, facts)

    def quick(self, alpha: float | None) -> Certificate:
        """Structure and spectral radius, stopped as soon as the latter is decided."""
        return self._put_together(
            alpha, [self._structure(), self._radius(_NOTE_STEPS, decide=True)], []
        )

    def _put_together(
        self, alpha: float | None, conditions: list[Condition], facts: list[str]
    ) -> Certificate:
        remarks = [] if self.refusal is None else [self.refusal]
        if self.zeros and self.plain and not any(c.holds for c in conditions):
            remarks.append("zeros in the tables count as couplings without bound")
        rates = [c.value for c in conditions[1:] if c.holds and c.value is not None]
        rate = 0.0 if self._exact else min(rates, default=None)
        return Certificate(
            alpha, tuple(conditions), rate, tuple(facts), tuple(remarks), self.clock.seconds
        )

    @property
    def _exact(self) -> bool:
        return self.plain and not self.core.any()

    def _structure(self) -> Condition:
        """No more than one cycle in a component: each then is a positive linear map."""
        excess = int(self.core.sum(dtype=np.int64)) - self.core_nodes
        name = "cycles beyond one in each component"
        remark = ""
        if not self.plain:
            remark = "of use for alpha = 1 only"
        elif excess == 0 and self.zeros and not self._exact:
            remark = "a cycle with zeros in its tables can run in circles"
        holds = excess == 0 and not remark
        return Condition(name, float(excess), 1.0, holds, "exact" if self._exact else _ALL, remark)

    def _radius(self, steps: int, *, decide: bool) -> Condition:
        """Collatz-Wielandt bound of the spectral radius; `decide` stops once it is clear of 1."""
        from kikuchi.engines.kernels.certificates import radius_steps

        name = "spectral radius"
        on = self.core if self.plain else self._on(self._live())
        self._radius_above_one = False
        if self.refusal is not None:
            return Condition(name, None, 1.0, False, _ALL, self.refusal)
        if not on.any():
            return Condition(name, 0.0, 1.0, True, _ALL)
        matrix = self._matrix(on)
        x, y = np.ones(len(on)), np.zeros(len(on))
        sums = np.zeros(self.graph.n_variables)
        lower, upper = 0.0, math.inf
        chunk = _NOTE_CHUNK if decide else _CHUNK
        for done in range(0, steps, chunk):
            before = upper
            low, high = radius_steps(matrix, x, sums, y, min(chunk, steps - done))
            lower, upper = max(lower, float(low)), min(upper, float(high))
            hopeless = before - upper < _SLOW * (upper - 1.0)
            decided = decide and (upper < 1.0 - _ROUNDING or lower >= 1.0 or hopeless)
            if decided or self._closed(lower, upper, before) or self.clock.expired:
                break
        self._radius_above_one = lower > 1.0 + _ROUNDING
        return _below_one(name, upper)

    def _closed(self, lower: float, upper: float, before: float) -> bool:
        stalled = _STALLED if self.graph.n_edges < _LARGE else _STALLED_LARGE
        return upper - lower <= _CLOSE * upper or before - upper <= stalled * upper

    def _singular(self) -> Condition:
        """Theorem 1: the largest singular value."""
        from kikuchi.engines.kernels.certificates import singular_steps

        name = "largest singular value"
        on = self._on(self._live())
        if self.refusal is not None:
            return Condition(name, None, 1.0, False, _ALL, self.refusal)
        if not on.any():
            return Condition(name, 0.0, 1.0, True, _ALL)
        matrix = self._matrix(on)
        x = np.ones(len(on))
        y, work, z = np.zeros(len(on)), np.zeros(len(on)), np.zeros(len(on))
        sums = np.zeros(self.graph.n_variables)
        lower, upper = 0.0, math.inf
        for done in range(0, _MOST_STEPS, _CHUNK):
            before = upper
            low, high = singular_steps(matrix, x, sums, y, work, z, min(_CHUNK, _MOST_STEPS - done))
            lower, upper = max(lower, float(low)), min(upper, float(high))
            if self._closed(lower, upper, before) or self.clock.expired:
                break
        return _below_one(name, upper)

    def _norms(self) -> list[Condition]:
        """Corollary 1: the largest column sum and the largest row sum."""
        from kikuchi.engines.kernels.certificates import gather, spread

        names = ("largest column sum", "largest row sum")
        if self.refusal is not None:
            return [Condition(name, None, 1.0, False, _ALL, self.refusal) for name in names]
        on = self._on(self._live())
        matrix = self._matrix(on)
        ones = np.ones(len(on))
        sums = np.zeros(self.graph.n_variables)
        columns, rows, work = np.zeros(len(on)), np.zeros(len(on)), np.zeros(len(on))
        gather(matrix, ones, sums, work, columns)
        spread(matrix, ones, sums, rows)
        tops = (float(columns.max(initial=0.0)), float(rows.max(initial=0.0)))
        return [_below_one(name, top) for name, top in zip(names, tops, strict=True)]


def _below_one(name: str, value: float) -> Condition:
    return Condition(name, value, 1.0, value < 1.0 - _ROUNDING, _ALL)


def _alphas(alpha: ArrayLike, n_factors: int) -> Array:
    try:
        values = np.asarray(alpha, dtype=np.float64)
    except (TypeError, ValueError):
        raise MethodError(f"alpha must be a number or one for each factor, got {alpha!r}") from None
    if values.ndim > 1 or (values.ndim == 1 and len(values) != n_factors):
        raise MethodError(
            f"alpha must be one number or {n_factors}, one for each factor; got an array of "
            f"shape {values.shape}"
        )
    wrong = values[~np.isfinite(values) | (values == 0.0)]
    if wrong.size:
        raise MethodError(f"alpha must be finite and not 0, got {wrong[0]:g}; 0 is mean field, mf")
    return np.broadcast_to(values, (n_factors,)).astype(np.float64)


def _require_memory(graph: FactorGraph, entries: int, budget: Budget) -> None:
    needed = 8 * (2 * entries + 8 * graph.n_edges + graph.log_tables.size)
    budget.require_bytes(needed, "the certificate", "allow more memory or certify a part")


def _live_tables(graph: FactorGraph) -> tuple[Array, bool]:
    """The log-tables with NaN at states that zeros rule out, and whether zeros remain elsewhere."""
    if np.all(np.isfinite(graph.log_tables)):
        return graph.log_tables, False
    from kikuchi.engines.feasibility import Constraints

    alive = Constraints(flatten(graph)).alive
    tables = graph.log_tables.copy()
    for factor in range(graph.n_factors):
        lo, hi = graph.table_offsets[factor], graph.table_offsets[factor + 1]
        block = tables[lo:hi].reshape(graph.shape(factor))
        for axis, v in enumerate(graph.scope(factor)):
            dead = ~alive[graph.state_offsets[v] : graph.state_offsets[v + 1]]
            if dead.any():
                block[(slice(None),) * axis + (dead,)] = np.nan
    tables.flags.writeable = False
    return tables, bool(np.any(tables == -np.inf))


# ---------------------------------------------------------------------- binary pairwise models


def _facts(graph: FactorGraph, conditions: list[Condition], unstable: bool) -> list[str]:
    """What is known of attractive models, and of those without fields."""
    binary = np.all(graph.cardinalities == 2) and np.all(np.diff(graph.scope_offsets) <= 2)
    if not binary or graph.n_factors == 0 or graph.is_forest:
        return []
    if np.any(graph.log_tables == -np.inf):  # also where they rule out states of variables
        return []
    from kikuchi.graphs.binary import couplings_and_fields

    form = couplings_and_fields(graph)
    attractive = _balanced(form.couplings)
    facts = []
    if attractive:
        facts.append(
            "attractive, if need be after exchanging states: the Bethe log Z of belief propagation "
            "at a fixed point is at most the true one"
        )
    if float(np.abs(form.fields).max()) <= 1e-14 * (1.0 + float(abs(form.couplings).max())):
        text = "no fields: exact marginals are uniform, and so is a fixed point"
        certified = any(c.holds for c in conditions)
        if certified:
            text += ", the only one"
        elif attractive and unstable:
            text += ", but an unstable one: any disturbance leads belief propagation to another"
        facts.append(text)
    return facts


def _balanced(couplings: Any) -> bool:
    """Whether exchanging the states of some variables makes every coupling positive.

    In the graph with two copies of each variable, positive couplings join equal copies and
    negative ones opposite copies; frustration is a path from one copy to the other.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = couplings.tocoo()
    n = couplings.shape[0]
    used = pairs.data != 0.0
    row, col, negative = pairs.row[used], pairs.col[used], pairs.data[used] < 0
    rows = np.concatenate([row, row + n])
    cols = np.concatenate([col + n * negative, col + n * ~negative])
    double = coo_array((np.ones(len(rows), dtype=np.int8), (rows, cols)), shape=(2 * n, 2 * n))
    labels = connected_components(double, directed=False)[1]
    return bool(np.all(labels[:n] != labels[n:]))
