"""Belief propagation: sum-product and max-product on any factor graph (TEH-I1, I8; LIU-I3, I4)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import ImpossibleEvidenceError, MethodError
from kikuchi.core.numerics import log
from kikuchi.core.seeds import generator
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.bounds.certificates import attach_uniqueness_certificate
from kikuchi.inference.expansions.linear_response import bethe_covariance
from kikuchi.inference.messages.kernels import bp_binary, bp_messages, bp_tables
from kikuchi.inference.method import Method, Run, Solution, Step, option

_RATIO_LIMIT = 300.0  # sum of |log ratio| around a node that the ratio form is trusted with


@dataclass(frozen=True)
class BeliefPropagation(Method):
    r"""Loopy belief propagation, exact on forests.

    Messages m_{a->i}(x_i) prop. to sum_{x_a \ x_i} phi_a prod_{j in a \ i} prod_{b != a} m_{b->j}
    (LIU-I3, TEH-I1) are updated by one of the schedules until none changes by more than `tol` as a
    probability, before damping. `log_z` is minus the Bethe free energy (LIU-D5, TEH-M23), which is
    exact on forests and no bound elsewhere. `damping` is the weight on the old message (TEH-I8);
    with `damping_end` it moves there linearly over the first `anneal` iterations.

    Positive binary pairwise models whose numbers stay in range run in ratio form; all others in
    tables of probabilities, or of logarithms as soon as a number would underflow. The choice is in
    `diagnostics["arithmetic"]`; the answers agree.

    >>> import kikuchi as kk
    >>> chain = kk.FactorGraph([2, 2], [((0,), [1, 3]), ((0, 1), [[2, 1], [1, 2]])])
    >>> BeliefPropagation(schedule="tree").run(chain)[1].round(6).tolist()
    [0.416667, 0.583333]
    """

    name: ClassVar[str] = "bp"
    summary: ClassVar[str] = "Belief propagation: Bethe approximation, exact on forests"
    objective_name: ClassVar[str] = "Bethe log Z"
    exactness = "forests"
    gives_covariance: ClassVar[bool] = True

    schedule: Literal["parallel", "sequential", "random", "residual", "tree"] = option(
        "sequential",
        "order of updates: all at once, variable by variable, in random order, "
        "largest change first, or the two exact passes over a forest",
    )
    damping: float = option(0.0, "weight on the old message", low=0, below=1)
    tol: float = option(1e-9, "largest change of a message to stop at; 0 runs on", low=0)
    max_iterations: int = option(1000, "most sweeps over all messages", low=1)
    mode: Literal["sum", "max"] = option("sum", "marginals, or max-marginals and a best state")
    damping_kind: Literal["linear", "geometric"] = option(
        "linear", "mix probabilities, or their logarithms"
    )
    damping_end: float | None = option(
        None, "weight on the old message after `anneal` iterations", low=0, below=1
    )
    anneal: int = option(1000, "iterations over which damping moves to damping_end", low=1)
    trace_energy: bool = option(False, "also record the Bethe log Z at every step")
    seed: int = option(0, "seed of the random schedule", low=0)

    @property
    def gives_marginals(self) -> bool:
        """Whether it sums: in `max` mode the beliefs are max-marginals."""
        return self.mode == "sum"

    def _solve(self, graph: FactorGraph, run: Run) -> Solution:
        if self.schedule == "tree" and not graph.is_forest:
            raise MethodError(
                "method bp: schedule=tree needs a graph without cycles; use sequential or residual"
            )
        binary = _Ratios.of(graph) if self.mode == "sum" else None
        if binary is not None:
            return self._run(binary, run)
        if self.mode == "max":
            return self._run(_Tables(graph, bp_messages.LOG_MAX), run)
        try:
            return self._run(_Tables(graph, bp_messages.SUM), run)
        except _UnderflowError:
            run.trace.clear()
            return self._run(_Tables(graph, bp_messages.LOG_SUM), run)

    def _run(self, messages: _Messages, run: Run) -> Solution:
        if self.schedule == "tree":
            iterations, _ = run.iterate(self._steps(messages, run), tol=0.0, limit=2)
            converged = iterations == 2
            run.stopped = "converged" if converged else run.stopped
        else:
            iterations, converged = run.iterate(
                self._steps(messages, run), tol=self.tol, limit=self.max_iterations
            )
        return self._read(messages, iterations, converged, run)

    def _steps(self, messages: _Messages, run: Run) -> Iterator[Step]:
        limit = run.clock.iterations(self.max_iterations)
        orders = self._orders(messages.graph)
        done = 0
        while True:
            sweeps = 1
            damping = self._damping_at(done)
            if self.schedule == "residual":
                residual = messages.residual(damping, self._kind, self.tol)
            elif self.schedule == "parallel":
                sweeps = min(limit - done, messages.sweeps_per_call(self.tol))
                residual = messages.parallel(sweeps, damping, self._kind)
            else:
                residual = messages.sequential(next(orders), damping, self._kind)
            done += sweeps
            traced = self.trace_energy and self.mode == "sum"
            energy = messages.log_z(messages.variable_beliefs()) if traced else math.nan
            yield Step(done, residual, energy)

    def _orders(self, graph: FactorGraph) -> Iterator[NDArray[np.uint32]]:
        """The order of the variables in each sweep."""
        order = np.arange(graph.n_variables, dtype=np.uint32)
        if self.schedule == "tree":
            order = bp_tables.breadth_first(_layout(graph))
            yield order[::-1].copy()
        rng = generator(self.seed)
        while True:
            if self.schedule == "random":
                order = rng.permutation(order)
            yield order

    def _damping_at(self, iteration: int) -> float:
        if self.damping_end is None:
            return self.damping
        share = min(1.0, iteration / self.anneal)
        return self.damping + share * (self.damping_end - self.damping)

    @property
    def _kind(self) -> int:
        return bp_messages.LINEAR if self.damping_kind == "linear" else bp_messages.GEOMETRIC

    # ------------------------------------------------------------------ reading

    def _read(self, messages: _Messages, iterations: int, converged: bool, run: Run) -> Solution:
        marginals = messages.variable_beliefs()
        solution = Solution(
            marginals,
            converged=converged,
            iterations=iterations,
            diagnostics={"arithmetic": messages.arithmetic, "residual": run.trace.last_residual},
        )
        if self.mode == "max":
            assert isinstance(messages, _Tables)
            solution.state = messages.decode()
            solution.score = float(messages.graph.log_score(solution.state))
            solution.score -= messages.graph.log_constant
            if solution.score > -np.inf:
                solution.log_z_lower = solution.score
            else:
                solution.state = solution.score = None
                solution.warnings.append("no state of positive weight was decoded")
        else:
            solution.log_z = messages.log_z(marginals)
            solution.factor_tables = messages.factor_beliefs
            solution.covariance = lambda variables: bethe_covariance(
                messages.graph, marginals, messages.factor_beliefs(), variables
            )
            if messages.graph.is_forest and converged:
                solution.log_z_lower = solution.log_z_upper = solution.log_z
        if not converged:
            solution.warnings.append(
                f"not converged: a message still changes by {run.trace.last_residual:.2g}; "
                "try damping=0.5, schedule=residual or more max_iterations"
            )
        if self.mode == "sum":
            attach_uniqueness_certificate(messages.graph, solution)
        return solution


class _UnderflowError(Exception):
    """Probabilities became too small; the run must start again with logarithms."""


class _Messages(Protocol):
    """Messages in some arithmetic: how to update them and what can be read off them."""

    graph: FactorGraph
    arithmetic: str

    def sweeps_per_call(self, tol: float) -> int: ...
    def parallel(self, sweeps: int, damping: float, kind: int) -> float: ...
    def sequential(self, order: NDArray[np.uint32], damping: float, kind: int) -> float: ...
    def residual(self, damping: float, kind: int, tol: float) -> float: ...
    def variable_beliefs(self) -> NDArray[np.float64]: ...
    def factor_beliefs(self) -> NDArray[np.float64]: ...
    def log_z(self, marginals: NDArray[np.float64]) -> float: ...


class _Tables:
    """Messages of a general factor graph as probabilities or logarithms (kernels.bp_tables)."""

    def __init__(self, graph: FactorGraph, mode: int) -> None:
        self.graph = graph
        self.layout = _layout(graph)
        peaks = np.maximum.reduceat(graph.log_tables, graph.table_offsets[:-1])
        sizes = np.diff(graph.table_offsets)
        self.peaks = float(peaks.sum())
        self.tables: NDArray[np.float64] = graph.log_tables - np.repeat(peaks, sizes)
        self._set_mode(mode)
        if mode == bp_messages.SUM:
            np.exp(self.tables, out=self.tables)
            if np.any((self.tables < bp_messages.TABLE_FLOOR) & (graph.log_tables > -np.inf)):
                raise _UnderflowError
        self.m = self._initial(np.diff(graph.scope_offsets))
        self.nu = np.empty_like(self.m)
        self.new = np.empty_like(self.m)
        largest = max(int(sizes.max()), int(graph.cardinalities.max()))
        self.work = np.empty(2 * (largest + 1))
        self._queue: tuple[NDArray[Any], ...] | None = None
        self._refresh()

    def _set_mode(self, mode: int) -> None:
        self.mode = mode
        self.arithmetic = "probabilities" if mode == bp_messages.SUM else "logarithms"

    def _initial(self, orders: NDArray[Any]) -> NDArray[np.float64]:
        """Uniform messages, but those of one-variable factors at their final value."""
        graph = self.graph
        sizes = graph.cardinalities[graph.scopes]
        single = orders[graph.edge_factors] == 1
        at_message = np.repeat(single, sizes)
        at_table = np.repeat(orders == 1, np.diff(graph.table_offsets))
        if self.mode == bp_messages.SUM:
            m = np.repeat(1.0 / sizes, sizes)
            totals = np.add.reduceat(self.tables, graph.table_offsets[:-1])[orders == 1]
            m[at_message] = self.tables[at_table] / np.repeat(totals, sizes[single])
        else:
            m = np.zeros(int(graph.message_offsets[-1]))
            m[at_message] = self.tables[at_table]
        return m

    @property
    def _state(self) -> tuple[Any, ...]:
        return self.layout, self.tables, self.m, self.nu, self.new, self.work

    def _refresh(self) -> None:
        self._check(bp_tables.all_cavities(self.layout, self.m, self.nu, self.work, self.mode))

    def _check(self, status: int) -> None:
        if status == bp_messages.OK:
            return
        if self.mode == bp_messages.SUM:
            raise _UnderflowError  # a contradiction too is only believed in logarithms
        raise ImpossibleEvidenceError(
            "the evidence has probability zero: the tables allow no common state"
        )

    # -------------------------------------------------------------- sweeps

    def sweeps_per_call(self, tol: float) -> int:
        return 1

    def parallel(self, sweeps: int, damping: float, kind: int) -> float:
        residual = math.inf
        for _ in range(sweeps):
            status, residual = bp_tables.parallel(*self._state, damping, kind, self.mode)
            self._check(status)
        return float(residual)

    def sequential(self, order: NDArray[np.uint32], damping: float, kind: int) -> float:
        status, residual = bp_tables.sequential(*self._state, order, damping, kind, self.mode)
        self._check(status)
        return float(residual)

    def residual(self, damping: float, kind: int, tol: float) -> float:
        """As many single updates as there are changing messages make one iteration."""
        if self._queue is None:
            self._queue = _new_queue(self.graph.n_edges)
            self._check(bp_tables.residual_start(*self._state, self.mode, *self._queue))
        count = int(np.sum(np.diff(self.graph.scope_offsets)[self.graph.edge_factors] > 1))
        status, residual, _ = bp_tables.residual_updates(
            *self._state, damping, kind, self.mode, *self._queue, count, tol
        )
        self._check(status)
        return float(residual)

    # -------------------------------------------------------------- answers

    def variable_beliefs(self) -> NDArray[np.float64]:
        out = np.empty(int(self.graph.state_offsets[-1]))
        state_at = self.graph.state_offsets.view(np.uint64)
        status = bp_tables.variable_beliefs(self.layout, self.m, state_at, out, self.mode)
        if status == bp_messages.UNDERFLOW:
            self._to_logarithms()
            return self.variable_beliefs()
        self._check(status)
        return out

    def log_z(self, marginals: NDArray[np.float64]) -> float:
        """Minus the Bethe free energy."""
        try:
            self._refresh()
            state_at = self.graph.state_offsets.view(np.uint64)
            status, energy = bp_tables.bethe(
                self.layout,
                self.tables,
                self.nu,
                marginals,
                state_at,
                self.new,
                self.work,
                self.mode,
            )
            self._check(status)
        except _UnderflowError:
            self._to_logarithms()
            return self.log_z(marginals)
        return self.peaks - float(energy)

    def factor_beliefs(self) -> NDArray[np.float64]:
        """Beliefs of all factors, in the layout of the tables."""
        out = np.empty_like(self.tables)
        bp_tables.factor_beliefs(self.layout, self.tables, self.nu, out, self.mode)
        return out

    def decode(self) -> NDArray[np.int64]:
        """A state of high weight from max-product messages."""
        states = np.zeros(self.graph.n_variables, dtype=np.int64)
        order = bp_tables.breadth_first(self.layout)
        bp_tables.decode(
            self.layout, self.tables, self.m, self.nu.copy(), self.new, self.work, order, states
        )
        return states

    def _to_logarithms(self) -> None:
        """Read the same messages as logarithms."""
        self._set_mode(bp_messages.LOG_SUM)
        self.tables = log(self.tables)
        self.m = log(self.m)


class _Ratios:
    """Messages of a positive binary pairwise model as ratios (kernels.bp_binary)."""

    arithmetic = "ratios"

    @classmethod
    def of(cls, graph: FactorGraph) -> _Ratios | None:
        """None for models of another kind, or whose products could leave the range of a double."""
        if (
            np.any(graph.cardinalities != 2)
            or np.any(np.diff(graph.scope_offsets) > 2)
            or not np.all(np.isfinite(graph.log_tables))
        ):
            return None
        model = _binary_model(graph)
        around = np.abs(model.fields)
        around += np.bincount(
            graph.scopes[model.edges],
            np.repeat(np.abs(2.0 * model.couplings), 2),
            graph.n_variables,
        )
        return cls(graph, model) if around.max() < _RATIO_LIMIT else None

    def __init__(self, graph: FactorGraph, model: _BinaryModel) -> None:
        self.graph = graph
        self.constant = model.constant
        edges = graph.variable_edges
        by_node = edges[np.diff(graph.scope_offsets)[graph.edge_factors[edges]] == 2]
        self.slot = np.empty(graph.n_edges, dtype=np.uint32)
        self.slot[by_node] = np.arange(len(by_node), dtype=np.uint32)
        # The two edges of a pair factor stand beside each other in `model.edges`.
        at_edge = np.empty(graph.n_edges)
        at_edge[model.edges] = np.repeat(np.exp(2.0 * model.couplings), 2)
        partner = np.empty(graph.n_edges, dtype=np.uint32)
        partner[model.edges] = model.edges.reshape(-1, 2)[:, ::-1].ravel()
        self.reverse = self.slot[partner[by_node]]
        self.k = at_edge[by_node]
        self.node = graph.scopes[by_node]
        counts = np.bincount(self.node, minlength=graph.n_variables)
        self.start = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
        self.field = np.exp(model.fields)
        self.r = np.ones(len(by_node))
        self.spare = np.empty_like(self.r)
        self.product = np.empty(graph.n_variables)
        self._queue: tuple[NDArray[Any], ...] | None = None

    @property
    def _state(self) -> tuple[NDArray[Any], ...]:
        return self.start, self.reverse, self.k, self.field, self.r

    def sweeps_per_call(self, tol: float) -> int:
        """Even, so that the messages end in the buffer they began in."""
        return 4 if tol > 0 else 20

    def parallel(self, sweeps: int, damping: float, kind: int) -> float:
        return float(bp_binary.parallel(*self._state, self.spare, sweeps, damping, kind))

    def sequential(self, order: NDArray[np.uint32], damping: float, kind: int) -> float:
        return float(bp_binary.sequential(*self._state, order, damping, kind))

    def residual(self, damping: float, kind: int, tol: float) -> float:
        if self.r.size == 0:
            return 0.0
        if self._queue is None:
            self._queue = _new_queue(self.r.size)
            bp_binary.residual_start(*self._state, self.spare, *self._queue)
        return float(
            bp_binary.residual_updates(
                *self._state, self.node, self.spare, *self._queue, damping, kind, self.r.size, tol
            )
        )

    def variable_beliefs(self) -> NDArray[np.float64]:
        out = np.empty(2 * self.graph.n_variables)
        bp_binary.beliefs(self.start, self.field, self.r, self.product, out)
        return out

    def log_z(self, marginals: NDArray[np.float64]) -> float:
        energy = bp_binary.bethe(
            self.start, self.reverse, self.node, self.k, self.field, self.r, self.product
        )
        return self.constant - float(energy)

    def factor_beliefs(self) -> NDArray[np.float64]:
        """Through general messages: m(1) / m(0) is the ratio times the factor's own pull."""
        general = _Tables(self.graph, bp_messages.LOG_SUM)
        model = _binary_model(self.graph)
        edges = model.edges.astype(np.int64)
        log_ratio = np.log(self.r[self.slot[edges]]) + model.pulls[edges]
        general.m[2 * edges] = 0.0
        general.m[2 * edges + 1] = log_ratio
        general._refresh()
        return general.factor_beliefs()


@dataclass(frozen=True)
class _BinaryModel:
    """log weight = constant + sum_pairs J s s' + sum_i fields_i x_i, with s = 2x - 1 (LIU-M6)."""

    couplings: NDArray[np.float64]  # of each pair factor
    edges: NDArray[np.uint32]  # of the pair factors, two beside each other
    pulls: NDArray[np.float64]  # log-ratio that each edge's factor puts on its variable
    fields: NDArray[np.float64]
    constant: float


def _binary_model(graph: FactorGraph) -> _BinaryModel:
    pair = np.diff(graph.scope_offsets) == 2
    first = graph.scope_offsets[:-1][pair]
    begin = graph.table_offsets[:-1][pair]
    t00, t01, t10, t11 = (graph.log_tables[begin + k] for k in range(4))
    couplings = 0.25 * (t00 + t11 - t01 - t10)
    pulls = np.zeros(graph.n_edges)
    pulls[first] = 0.5 * (t10 + t11 - t00 - t01)
    pulls[first + 1] = 0.5 * (t01 + t11 - t00 - t10)
    constant = 0.25 * float(t00.sum() + t01.sum() + t10.sum() + t11.sum())
    del t00, t01, t10, t11  # large graphs: the arrays below need their room
    begin = graph.table_offsets[:-1][~pair]
    u0, u1 = graph.log_tables[begin], graph.log_tables[begin + 1]
    pulls[graph.scope_offsets[:-1][~pair]] = u1 - u0
    constant += 0.5 * float(u0.sum() + u1.sum() - pulls.sum())
    edges = np.empty(2 * len(first), dtype=np.uint32)
    edges[0::2] = first
    edges[1::2] = first + 1
    fields = np.bincount(graph.scopes, pulls, graph.n_variables).astype(np.float64)
    return _BinaryModel(couplings, edges, pulls, fields, constant)


def _new_queue(size: int) -> tuple[NDArray[Any], ...]:
    """Keys, heap and places of a priority queue of messages."""
    return np.zeros(size), np.empty(size, dtype=np.uint32), np.empty(size, dtype=np.uint32)


def _layout(graph: FactorGraph) -> tuple[NDArray[Any], ...]:
    return (
        graph.scope_offsets.view(np.uint64),
        graph.table_offsets.view(np.uint64),
        graph.message_offsets.view(np.uint64),
        graph.variable_offsets.view(np.uint64),
        graph.variable_edges,
        graph.edge_factors,
        graph.scopes,
    )
