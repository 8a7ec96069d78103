r"""log Z, marginals and factor beliefs as JAX functions with implicit gradients.

The fixed point is computed by the compiled kernels of `engines`, outside JAX; nothing of its
sweeps is recorded. At a stationary point of a free energy F(b; theta) = -<theta, b> - H(b),

    d log Z / d theta = the factor beliefs,

because all else that moves is stationary, for every weighting of the entropies H: mean field,
Bethe (BP), tree-reweighted, Kikuchi, exact. The derivative of the factor beliefs, a Hessian, is
symmetric, so that its adjoint is itself: one linear response per cotangent
(`engines.response`). Memory does not depend on the number of sweeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget
from kikuchi.core.errors import ImpossibleEvidenceError, MethodError
from kikuchi.core.extras import extras_named
from kikuchi.graphs.checks import all_zero_factors
from kikuchi.graphs.factor_graph import Evidence, FactorGraph
from kikuchi.graphs.traced import TracedGraph
from kikuchi.methods.method import Method
from kikuchi.methods.registry import parse_method
from kikuchi.neural.fixed_points import FixedPoint, Respond, RowsSolver, Solver, numbers
from kikuchi.neural.solvers import solver_for

_KEPT = 64  # structures whose solvers are kept

_solvers: OrderedDict[Any, _Kernel] = OrderedDict()


class Differentiated(NamedTuple):
    """Result of `beliefs`: JAX arrays that can be differentiated.

    `marginals` have the layout of `graph.state_offsets`, `factors` that of `graph.log_tables`.
    """

    log_z: Any
    marginals: Any
    factors: Any


def log_z(
    graph: FactorGraph,
    method: str | Method = "jt",
    *,
    evidence: Evidence | None = None,
    budget: Budget | None = None,
) -> Any:
    """The method's log Z as a JAX scalar; its gradient in the log-tables is the factor beliefs.

    Derivatives are reverse ones, two of them for log Z and one for beliefs: a Hessian is
    `jax.jacrev(jax.grad(f))`, and forward ones (`jax.jvp`, `jax.hessian`) are refused by JAX.

    Parameters
    ----------
    graph : FactorGraph
        The model; inside `jax.grad`, `jax.jit` or `jax.vmap` one made by
        `graph.with_log_tables(tables)`.
    method : str or Method, default "jt"
        One of jt, bp, trw, kikuchi, gbp and mf, as a specification string or an object.
    evidence : Evidence, optional
        Observed states, {variable: state}.
    budget : Budget, optional
        Limits of each run of the method.

    >>> import jax, kikuchi as kk
    >>> graph = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> gradient = jax.grad(lambda t: log_z(graph.with_log_tables(t), "kikuchi"))
    >>> [round(float(slope), 3) for slope in gradient(graph.log_tables)]
    [0.1, 0.2, 0.3, 0.4]
    """
    kernel = kernel_of(graph, method, evidence, budget)
    if not isinstance(graph, TracedGraph):
        return _plain(kernel, graph).log_z
    return kernel.log_z(graph.log_tables) + graph.log_constant


def marginals(
    graph: FactorGraph,
    method: str | Method = "jt",
    *,
    evidence: Evidence | None = None,
    budget: Budget | None = None,
) -> Any:
    """The method's marginals as a flat JAX array, with implicit gradients.

    Parameters
    ----------
    graph, method, evidence, budget
        As for `log_z`.

    >>> import jax, kikuchi as kk
    >>> graph = kk.FactorGraph([2], [((0,), [1, 3])])
    >>> chance = lambda t: marginals(graph.with_log_tables(t), "bp")[1]
    >>> jax.grad(chance)(graph.log_tables).tolist()  # p (1 - p)
    [-0.1875, 0.1875]
    """
    return beliefs(graph, method, evidence=evidence, budget=budget).marginals


def factor_beliefs(
    graph: FactorGraph,
    method: str | Method = "jt",
    *,
    evidence: Evidence | None = None,
    budget: Budget | None = None,
) -> Any:
    """The method's beliefs of all factors as one flat JAX array, laid out as `graph.log_tables`,
    with implicit gradients.

    Parameters
    ----------
    graph, method, evidence, budget
        As for `log_z`.

    >>> import kikuchi as kk
    >>> graph = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> [round(float(chance), 3) for chance in factor_beliefs(graph, "jt")]
    [0.1, 0.2, 0.3, 0.4]
    """
    return beliefs(graph, method, evidence=evidence, budget=budget).factors


def beliefs(
    graph: FactorGraph,
    method: str | Method = "jt",
    *,
    evidence: Evidence | None = None,
    budget: Budget | None = None,
) -> Differentiated:
    """log Z, marginals and factor beliefs of one run.

    Parameters
    ----------
    graph, method, evidence, budget
        As for `log_z`.

    >>> import kikuchi as kk
    >>> answer = beliefs(kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])]), evidence={0: 1})
    >>> [round(float(chance), 3) for chance in answer.marginals]
    [0.0, 1.0, 0.429, 0.571]
    """
    kernel = kernel_of(graph, method, evidence, budget)
    if not isinstance(graph, TracedGraph):
        return _plain(kernel, graph)
    found = kernel.beliefs(graph.log_tables)
    return found._replace(log_z=found.log_z + graph.log_constant)


@extras_named()
def kernel_of(
    graph: FactorGraph,
    method: str | Method,
    evidence: Evidence | None = None,
    budget: Budget | None = None,
) -> _Kernel:
    """The kernel of a structure, method and evidence, of which the last ones are kept."""
    chosen = parse_method(method)
    budget = budget or Budget()
    states = graph.resolve(evidence)
    arrays = (graph.cardinalities, graph.scopes, graph.scope_offsets)
    key = (*(a.tobytes() for a in arrays), chosen, budget, tuple(sorted(states.items())))
    kernel = _solvers.get(key)
    if kernel is None:
        reduced = _Reduced(graph, states)
        kernel = _solvers[key] = _Kernel(reduced, solver_for(reduced.graph, chosen, budget))
        while len(_solvers) > _KEPT:
            _solvers.popitem(last=False)
    _solvers.move_to_end(key)
    return kernel


def _plain(kernel: _Kernel, graph: FactorGraph) -> Differentiated:
    """The answer for tables that are numbers, without JAX in between: errors stay what they are."""
    import jax.numpy as jnp

    found = kernel.point(np.ascontiguousarray(graph.log_tables), fresh=True)
    parts = (found.log_z + graph.log_constant, found.marginals, found.factors)
    return Differentiated(*(jnp.asarray(part) for part in parts))


class _Reduced:
    """The graph without observed variables and those of one state, which entries it keeps, and the
    way from its answers to those of the whole graph.
    """

    def __init__(self, graph: FactorGraph, states: dict[int, int]) -> None:
        plain = FactorGraph.from_arrays(
            graph.cardinalities,
            graph.scopes,
            graph.scope_offsets,
            np.arange(graph.log_tables.shape[0], dtype=np.float64),
            validate=False,
        )
        conditioned = plain.reduce(states)
        self.kept = conditioned.graph.log_tables.astype(np.int64)
        self.graph = conditioned.graph.with_log_tables(np.zeros(len(self.kept)))
        self.whole = plain
        gone = np.setdiff1d(np.arange(plain.n_factors), conditioned.factors)
        entries = [_entry(plain, a, conditioned.observed) for a in gone.tolist()]
        self.settled = np.array(entries, dtype=np.int64)
        self.observed_states = plain.state_offsets[list(conditioned.observed)] + np.array(
            list(conditioned.observed.values()), dtype=np.int64
        )
        offsets = plain.state_offsets
        free = conditioned.variables
        self.free_states: Ints = np.concatenate(
            [np.arange(offsets[v], offsets[v + 1]) for v in free.tolist()] or [np.zeros(0, int)]
        )

    def solved(self, solver: Solver, log_tables: Array) -> FixedPoint:
        """The fixed point of the whole graph: observed states have probability 1, and factors whose
        variables are all observed contribute a constant.
        """
        tables = numbers(self.whole, log_tables)
        constant, kept = float(tables[self.settled].sum()), tables[self.kept]
        if constant == -np.inf or all_zero_factors(kept, self.graph.table_offsets).size:
            raise ImpossibleEvidenceError(
                "no state has any probability with these tables; check the observed states, and "
                "what a network forbids"
            )
        found = solver.solve(kept)
        marginals, factors = self._expanded(found.marginals, found.factors, 1.0)
        respond = partial(self._response, found)
        return FixedPoint(found.log_z + constant, marginals, factors, respond)

    @cached_property
    def _is_whole(self) -> bool:
        """Whether nothing is observed or of one state: answers need not be moved then."""
        return len(self.free_states) == int(self.whole.state_offsets[-1]) and np.array_equal(
            self.kept, np.arange(len(self.whole.log_tables))
        )

    def rows_solved(self, solver: RowsSolver, tables: Array) -> tuple[Array, Array, Array]:
        """log Z, marginals and factor beliefs of the whole graph for each row of tables."""
        rows = numbers(self.whole, tables)
        if self._is_whole:
            return solver.beliefs(rows)
        log_z, marginals, factors = solver.beliefs(rows[:, self.kept])
        constants = rows[:, self.settled].sum(axis=1)
        solver.require_possible(constants)
        return log_z + constants, *self._expanded(marginals, factors, 1.0)

    def rows_response(
        self, solver: RowsSolver, tables: Array, states: Array, factors: Array
    ) -> Array:
        """The linear response of the factor beliefs of each row."""
        if self._is_whole:
            whole = (np.asarray(part, dtype=np.float64) for part in (tables, states, factors))
            return solver.response(*whole)[1]
        parts = tables[:, self.kept], states[:, self.free_states], factors[:, self.kept]
        whole = (np.asarray(part, dtype=np.float64) for part in parts)
        return self._expanded(*solver.response(*whole), 0.0)[1]

    def _expanded(self, marginals: Array, factors: Array, settled: float) -> tuple[Array, Array]:
        """Beliefs of the whole graph, along any leading axes."""
        states = np.zeros((*marginals.shape[:-1], int(self.whole.state_offsets[-1])))
        states[..., self.free_states], states[..., self.observed_states] = marginals, settled
        entries = np.zeros((*factors.shape[:-1], len(self.whole.log_tables)))
        entries[..., self.kept], entries[..., self.settled] = factors, settled
        return states, entries

    def _response(self, found: FixedPoint) -> Respond:
        """Return the response, in which observed states do not change with the tables."""
        response = found.response
        return lambda u, t: self._expanded(*response(u[self.free_states], t[self.kept]), 0.0)


def _entry(graph: FactorGraph, factor: int, observed: dict[int, int]) -> int:
    where = tuple(observed[v] for v in graph.scope(factor))
    return int(graph.table_offsets[factor]) + int(np.ravel_multi_index(where, graph.shape(factor)))


class _Kernel:
    """The three functions of one structure and method, for JAX: a callback, and its adjoint.

    Fixed points of the last call are kept, so that the adjoint need not find them again.
    """

    def __init__(self, reduced: _Reduced, solver: Solver) -> None:
        import jax

        self.reduced = reduced
        self.solver = solver
        self._last: dict[bytes, FixedPoint] = {}
        beliefs = jax.custom_vjp(self._solved)
        beliefs.defvjp(self._beliefs_forward, self._beliefs_backward)
        self.beliefs = beliefs
        log_z = jax.custom_vjp(lambda tables: self._solved(tables).log_z)
        log_z.defvjp(self._log_z_forward, lambda factors, weight: (weight * factors,))
        self.log_z = log_z
        adjoint = jax.custom_vjp(self._responded)
        adjoint.defvjp(lambda *values: (self._responded(*values), None), _refuse_once_more)
        self._adjoint = adjoint

    # ------------------------------------------------------------------ for JAX

    def _solved(self, tables: Any) -> Differentiated:
        graph = self.reduced.whole
        sizes = ((), (int(graph.state_offsets[-1]),), (len(graph.log_tables),))
        return Differentiated(*_called(self._find, sizes, tables))

    def _log_z_forward(self, tables: Any) -> tuple[Any, Any]:
        found = self.beliefs(tables)
        return found.log_z, found.factors

    def _beliefs_forward(self, tables: Any) -> tuple[Differentiated, tuple[Any, Any]]:
        found = self.beliefs(tables)
        return found, (tables, found.factors)

    def _beliefs_backward(self, kept: tuple[Any, Any], cotangent: Differentiated) -> tuple[Any]:
        tables, factors = kept
        moved = self._adjoint(tables, cotangent.marginals, cotangent.factors)
        return (cotangent.log_z * factors + moved,)

    def _responded(self, tables: Any, *turned: Any) -> Any:
        return _called(self._respond, (tables.shape,), tables, *turned)[0]

    # ------------------------------------------------------------------ outside JAX

    def _find(self, tables: Any) -> tuple[Array, Array, Array]:
        rows = np.asarray(tables)
        lead, kind = rows.shape[:-1], rows.dtype
        log_z, marginals, factors = (
            part.astype(kind, copy=False) for part in self.found(_rows(rows))
        )
        return log_z.reshape(lead), marginals.reshape(*lead, -1), factors.reshape(*lead, -1)

    def _respond(self, tables: Any, marginals: Any, factors: Any) -> tuple[Array]:
        rows = np.asarray(tables)
        turned = (_rows(np.asarray(part)) for part in (marginals, factors))
        return (self.moved(_rows(rows), *turned).reshape(rows.shape).astype(rows.dtype),)

    def found(self, rows: Array) -> tuple[Array, Array, Array]:
        """log Z, marginals and factor beliefs of each row of tables."""
        if isinstance(self.solver, RowsSolver):
            return self.reduced.rows_solved(self.solver, rows)
        points = [self.point(row, fresh=k == 0) for k, row in enumerate(rows)]
        graph = self.reduced.whole
        marginals = np.empty((len(rows), int(graph.state_offsets[-1])))
        factors = np.empty((len(rows), len(graph.log_tables)))
        for k, point in enumerate(points):
            marginals[k], factors[k] = point.marginals, point.factors
        return np.array([point.log_z for point in points]), marginals, factors

    def moved(self, rows: Array, marginals: Array, factors: Array) -> Array:
        """The adjoint of marginals and factor beliefs of each row: changes of the tables."""
        out = np.zeros(rows.shape)
        turned = np.any(marginals, axis=1) | np.any(factors, axis=1)
        if isinstance(self.solver, RowsSolver):
            parts = rows[turned], marginals[turned], factors[turned]
            out[turned] = self.reduced.rows_response(self.solver, *parts)
            return out
        for k in np.flatnonzero(turned):
            point = self.point(rows[k], fresh=False)
            along = marginals[k].astype(np.float64), factors[k].astype(np.float64)
            out[k] = point.response(*along)[1]
        return out

    def point(self, row: Array, *, fresh: bool) -> FixedPoint:
        """The fixed point of one set of tables; with `fresh` those of earlier calls are dropped."""
        key = row.tobytes()
        if key in self._last:
            return self._last[key]
        if fresh:
            self._last.clear()
        point = self._last[key] = self.reduced.solved(self.solver, row)
        return point


def _refuse_once_more(*_: Any) -> Any:
    raise MethodError(
        "the linear response of beliefs has no derivative: log Z can be differentiated twice, "
        "marginals and factor beliefs once"
    )


@dataclass(frozen=True)
class _InPlace:
    """A function of arrays as JAX calls it on a processor: answers are written where they belong.

    Equal functions make equal objects, so that JAX need not compile again.
    """

    function: Callable[..., Any]

    def __call__(self, context: Any, places: Sequence[Any], *values: Any) -> None:
        found = self.function(*(np.asarray(value).copy() for value in values))  # theirs do not last
        for place, part in zip(places, found, strict=True):
            np.asarray(place)[...] = part


@dataclass(frozen=True)
class _InHalves:
    """A function of arrays of 64 bits, taking and giving pairs of whole numbers of 32."""

    function: Callable[..., Any]

    def __call__(self, *halves: Any) -> tuple[Any, ...]:
        whole = [np.ascontiguousarray(np.asarray(h)).view(np.float64)[..., 0] for h in halves]
        found = (np.array(part, dtype=np.float64, order="C") for part in self.function(*whole))
        return tuple(part[..., None].view(np.uint32) for part in found)


def _called(function: Callable[..., Any], sizes: Sequence[Any], *values: Any) -> Any:
    """`function` of arrays called outside JAX, for its answers of these sizes.

    On processors it sees the buffers of JAX. `jax.pure_callback` makes arrays of JAX of them, which
    wait for a second thread of its pool: a process with one core would wait for ever.
    """
    import jax
    from jax.experimental.buffer_callback import buffer_callback

    struct: Any = jax.ShapeDtypeStruct
    shapes = tuple(struct(size, values[0].dtype) for size in sizes)
    near: Any = buffer_callback(_InPlace(function), shapes, vmap_method="broadcast_all")
    return jax.lax.platform_dependent(
        *values, cpu=near, default=partial(_from_a_device, function, shapes)
    )


def _from_a_device(function: Callable[..., Any], shapes: Sequence[Any], *values: Any) -> Any:
    """`jax.enable_x64` holds for one thread; a callback may run in another one, where JAX would cut
    what goes in and out to 32 bits. So numbers of 64 bits travel as pairs of whole numbers of 32.
    """
    import jax

    if shapes[0].dtype != np.float64:
        return jax.pure_callback(function, shapes, *values, vmap_method="broadcast_all")
    struct: Any = jax.ShapeDtypeStruct
    halves = tuple(struct((*s.shape, 2), np.uint32) for s in shapes)
    sent = [jax.lax.bitcast_convert_type(value, np.uint32) for value in values]
    found = jax.pure_callback(_InHalves(function), halves, *sent, vmap_method="broadcast_all")
    return tuple(jax.lax.bitcast_convert_type(part, np.float64) for part in found)


def _rows(values: Array) -> Array:
    return values.reshape(int(np.prod(values.shape[:-1])), values.shape[-1])
