"""`FactorGraph`: variables and log-tables. Reference: LIU-M2, LIU-M3, LIU-M4, TEH-M1, TEH-M24."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.errors import EvidenceError, ModelError
from kikuchi.graphs.checks import (
    INDEX,
    MAX_STATES,
    as_cardinalities,
    as_distribution,
    as_names,
    as_states,
    as_table,
    check_children,
    check_scopes,
    check_size,
    check_tables,
    frozen,
    log_of_weights,
    offsets_of_tables,
    part_of_factor,
    same,
    scope_and_table,
    scope_rows,
    state_number,
    variable_number,
)
from kikuchi.graphs.reading import ChildVariables, StateNames, named

if TYPE_CHECKING:
    from kikuchi.graphs.conditional import ConditionalTable

Variable = int | str
State = int | str
Evidence = Mapping[Any, Any]

_ARRAYS = ("cardinalities", "scopes", "scope_offsets", "log_tables", "children")
_OTHERS = ("names", "states", "log_constant")


class FactorGraph:
    r"""An unnormalised distribution p(x) = (1/Z) exp(c) prod_a phi_a(x_a) over discrete variables.

    Immutable. Tables are stored as logarithms in one buffer; each table is row-major over its
    scope, so the last variable of a scope varies fastest. Zeros are allowed and stored as -inf.
    Factors without variables are included in the constant c, `log_constant`.

    Parameters
    ----------
    cardinalities : array of int
        Number of states of each variable, each at least 1.
    factors : Iterable[tuple[Sequence[Variable], array-like]]
        Pairs (scope, table); a scope is a sequence of variable numbers or names, a table anything
        that NumPy can shape into the cardinalities of the scope. Entries are weights >= 0, or their
        logarithms with `log=True`.
    names, states
        Optional names of the variables and of each variable's states.
    children : Sequence[Variable], optional
        For directed models, the child variable of each factor: table a is then p(child | the rest
        of its scope), and every variable is the child of one factor.

    >>> graph = FactorGraph([2, 2], [(["a", "b"], [[1, 2], [3, 4]])], names=["a", "b"])
    >>> graph
    FactorGraph(2 variables, 1 factor, 4 table entries)
    >>> graph.table(0).round(12).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

    cardinalities: U4
    scopes: U4
    scope_offsets: Ints
    log_tables: Array
    table_offsets: Ints
    names: tuple[str, ...] | None
    states: StateNames | None
    log_constant: float
    _children: U4 | None

    def __init__(
        self,
        cardinalities: ArrayLike,
        factors: Iterable[tuple[Sequence[Variable], ArrayLike]],
        *,
        log: bool = False,
        names: Sequence[str] | None = None,
        states: Sequence[Sequence[str]] | None = None,
        children: Sequence[Variable] | None = None,
        log_constant: float = 0.0,
    ) -> None:
        cards = as_cardinalities(np.array(cardinalities))
        index = {name: v for v, name in enumerate(names)} if names is not None else {}
        constant = float(log_constant)
        scopes: list[list[int]] = []
        tables: list[Array] = []
        for number, factor in enumerate(factors):
            scope, table = scope_and_table(factor, number)
            variables = [variable_number(v, index, len(cards)) for v in scope]
            shape = tuple(int(cards[v]) for v in variables)
            values = as_table(table, shape, number)
            logs = values if log else log_of_weights(values, number)
            if variables:
                scopes.append(variables)
                tables.append(logs.ravel())
            else:
                constant += float(logs.ravel()[0])
        orders = [len(scope) for scope in scopes]
        child_numbers = (
            None
            if children is None
            else np.array([variable_number(v, index, len(cards)) for v in children], dtype=INDEX)
        )
        self._set(
            cards,
            np.array([v for scope in scopes for v in scope], dtype=INDEX),
            np.concatenate([[0], np.cumsum(orders, dtype=np.int64)]).astype(np.int64),
            np.concatenate(tables) if tables else np.zeros(0),
            names=names,
            states=states,
            children=child_numbers,
            log_constant=constant,
        )

    @classmethod
    def from_arrays(
        cls,
        cardinalities: ArrayLike,
        scopes: ArrayLike,
        scope_offsets: ArrayLike,
        log_tables: ArrayLike,
        *,
        names: Sequence[str] | None = None,
        states: Sequence[Sequence[str]] | None = None,
        children: ArrayLike | None = None,
        log_constant: float = 0.0,
        validate: bool = True,
    ) -> FactorGraph:
        """Build from flat arrays, without a Python object for each factor.

        `scopes` holds that of factor a from `scope_offsets[a]` up to `scope_offsets[a + 1]`, and
        `log_tables` all tables. Other arguments are those of the class. Arrays of the right type
        are not copied and become read-only. `validate=False` skips the check of values.

        >>> FactorGraph.from_arrays([2, 2], [0, 1], [0, 2], np.zeros(4)).scope(0)
        (0, 1)
        """
        graph = cls.__new__(cls)
        raw = np.asarray(scopes)
        if raw.size and raw.dtype.kind not in "iu":
            raise ModelError(f"scopes must contain integers, got {raw.dtype}")
        if raw.size and raw.dtype != INDEX and (raw.min() < 0 or raw.max() > MAX_STATES):
            worst = raw.min() if raw.min() < 0 else raw.max()
            raise ModelError(f"scopes: variable numbers must be in 0..n-1, got {worst}")
        graph._set(
            as_cardinalities(cardinalities),
            np.ascontiguousarray(raw, dtype=INDEX),
            np.ascontiguousarray(scope_offsets, dtype=np.int64),
            np.ascontiguousarray(log_tables, dtype=np.float64),
            names=names,
            states=states,
            children=None if children is None else np.ascontiguousarray(children, dtype=INDEX),
            log_constant=float(log_constant),
            validate=validate,
        )
        return graph

    def with_log_tables(self, log_tables: ArrayLike) -> FactorGraph:
        """The same variables and scopes with other `log_tables` (JAX may trace them); no constant.

        >>> FactorGraph([2], [((0,), [1, 3])]).with_log_tables([0.0, 0.0]).log_score([1])
        0.0
        """
        changed: FactorGraph = import_module("kikuchi.graphs.traced").with_tables(self, log_tables)
        return changed

    def replaced(self, *, validate: bool = False, **changes: Any) -> FactorGraph:
        """Return the model with `changes` of arguments of `from_arrays`; `validate` checks values.

        >>> FactorGraph([2], [((0,), [1, 3])]).replaced(names=["coin"]).names
        ('coin',)
        """
        return FactorGraph.from_arrays(
            **{name: getattr(self, name) for name in _ARRAYS + _OTHERS} | changes, validate=validate
        )

    def _set(
        self,
        cards: U4,
        scopes: U4,
        scope_offsets: Ints,
        log_tables: Array,
        *,
        names: Sequence[str] | None,
        states: Sequence[Sequence[str]] | None,
        children: U4 | None,
        log_constant: float,
        validate: bool = True,
    ) -> None:
        check_scopes(cards, scopes, scope_offsets)
        table_offsets = offsets_of_tables(cards, scopes, scope_offsets)
        check_size(log_tables, table_offsets)
        if not np.isfinite(log_constant):
            raise ModelError(f"the constant factor must be positive and finite, got {log_constant}")
        if validate:
            check_tables(log_tables, table_offsets)
        labels, words = as_names(names, len(cards)), as_states(states, cards)
        fields: dict[str, Any] = {
            "cardinalities": cards,
            "scopes": scopes,
            "scope_offsets": scope_offsets,
            "log_tables": log_tables,
            "table_offsets": table_offsets,
            "names": labels,
            "states": None if words is None else StateNames(words, labels),
            "_children": children,
            "log_constant": log_constant,
        }
        if children is not None:
            check_children(children, len(cards), scopes, scope_offsets)
        for name, value in fields.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            self.__dict__[name] = value

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"FactorGraph is immutable; build a new one instead of setting {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"FactorGraph is immutable; {name} cannot be deleted")

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copied or unpickled array is writable again, which is another type for compiled loops.
        for name, value in state.items():
            self.__dict__[name] = frozen(value) if isinstance(value, np.ndarray) else value

    # ------------------------------------------------------------------ sizes and display

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.cardinalities)

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.scope_offsets) - 1

    @property
    def n_edges(self) -> int:
        """Number of (factor, variable) pairs: edges of the bipartite graph."""
        return len(self.scopes)

    @property
    def is_directed(self) -> bool:
        """True when every factor is a conditional table p(child | parents)."""
        return self._children is not None

    @property
    def nbytes(self) -> int:
        """Number of bytes of the flat arrays."""
        arrays = (self.cardinalities, self.scopes, self.scope_offsets, self.log_tables)
        return sum(a.nbytes for a in arrays) + self.table_offsets.nbytes

    def __repr__(self) -> str:
        kind = "directed, " if self.is_directed else ""
        factors = "1 factor" if self.n_factors == 1 else f"{self.n_factors} factors"
        variables = "1 variable" if self.n_variables == 1 else f"{self.n_variables} variables"
        return f"FactorGraph({kind}{variables}, {factors}, {self.log_tables.size} table entries)"

    def _repr_html_(self) -> str:
        return str(import_module("kikuchi.graphs.shapes").html_summary(self))

    def __eq__(self, other: object) -> bool:
        """Return whether every array and name is equal, bit by bit."""
        if not isinstance(other, FactorGraph):
            return NotImplemented
        arrays = ("cardinalities", "scopes", "scope_offsets", "log_tables", "children")
        return (
            all(same(getattr(self, a), getattr(other, a)) for a in arrays)
            and self.names == other.names
            and self.states == other.states
            and self.log_constant == other.log_constant
        )

    __hash__ = None  # type: ignore[assignment]

    # ------------------------------------------------------------------ factors and variables

    def scope(self, factor: int) -> tuple[int, ...]:
        """Variables of the factor number `factor`, in table order."""
        return tuple(self.scopes[part_of_factor(self.scope_offsets, factor)].tolist())

    def shape(self, factor: int) -> tuple[int, ...]:
        """Cardinalities of the scope of the factor number `factor`."""
        scope = self.scopes[part_of_factor(self.scope_offsets, factor)]
        return tuple(self.cardinalities[scope].tolist())

    def log_table(self, factor: int) -> Array:
        """Log-potentials of the factor number `factor`: a read-only view, an axis per variable."""
        entries = self.log_tables[part_of_factor(self.table_offsets, factor)]
        return entries.reshape(self.shape(factor))

    def table(self, factor: int) -> Array:
        """Potentials of the factor number `factor`, exp(log_table)."""
        return np.asarray(np.exp(self.log_table(factor)))

    # ------------------------------------------------------------------ directed models

    @property
    def children(self) -> ChildVariables | None:
        """The child variable of each factor, None if the model has no directions.

        `graph.children(variable)` returns the children of one variable, by name if there are names.
        """
        return None if self._children is None else ChildVariables.of(self, self._children)

    def parents(self, variable: Variable) -> tuple[Variable, ...]:
        """Parents of a `variable` in the order of its table, by name if the model has names.

        >>> import kikuchi as kk
        >>> kk.example("asia").parents("either")
        ('lung', 'tub')
        """
        return named(self, import_module("kikuchi.graphs.directed").parents(self, variable))

    @property
    def edges(self) -> tuple[tuple[Variable, ...], ...]:
        """Pairs (parent, child), by name if the model has names.

        In a model without directions, the pairs of variables that share a factor.

        >>> import kikuchi as kk
        >>> kk.network("rain -> wet <- sprinkler").edges
        (('rain', 'wet'), ('sprinkler', 'wet'))
        """
        pairs = import_module("kikuchi.graphs.picture").edge_numbers(self)
        return tuple(named(self, pair) for pair in pairs)

    def cpt(self, variable: Variable) -> ConditionalTable:
        """The conditional probability table (CPT) of a `variable`, with the names of its axes.

        >>> import kikuchi as kk
        >>> kk.example("asia").cpt("lung")
        p(lung | smoke)
        smoke  no    yes
        no     0.99  0.01
        yes    0.9   0.1
        """
        table: ConditionalTable = import_module("kikuchi.graphs.directed").cpt(self, variable)
        return table

    def neighbours(self, variable: Variable) -> tuple[int, ...]:
        """Factors that contain a `variable`, given by number or name."""
        v = self.index(variable)
        lo, hi = self.variable_offsets[v], self.variable_offsets[v + 1]
        return tuple(int(a) for a in self.edge_factors[self.variable_edges[lo:hi]])

    def index(self, variable: Variable) -> int:
        """Number of a `variable` given by number or name."""
        return variable_number(variable, self._name_index, self.n_variables)

    def state_index(self, variable: Variable, state: State) -> int:
        """Number of a `state` of a `variable`, both given by number or name."""
        v = self.index(variable)
        names = None if self.states is None else self.states[v]
        return state_number(state, names, int(self.cardinalities[v]), self.label(v))

    def label(self, variable: int) -> str:
        """The name of the variable number `variable`, or its number as text."""
        return self.names[variable] if self.names is not None else str(variable)

    @cached_property
    def _name_index(self) -> dict[str, int]:
        return {name: v for v, name in enumerate(self.names or ())}

    # ------------------------------------------------------------------ flat adjacency

    @cached_property
    def edge_factors(self) -> U4:
        """Factor of each edge; edge e is the e-th entry of `scopes`."""
        orders = np.diff(self.scope_offsets)
        return frozen(np.repeat(np.arange(self.n_factors, dtype=INDEX), orders))

    @cached_property
    def variable_offsets(self) -> Ints:
        """Start of the edges of each variable in `variable_edges`; has n + 1 entries."""
        counts = np.bincount(self.scopes, minlength=self.n_variables)
        return frozen(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    @cached_property
    def variable_edges(self) -> U4:
        """Edges grouped by variable, in factor order within each."""
        return frozen(np.argsort(self.scopes, kind="stable").astype(INDEX))

    @cached_property
    def state_offsets(self) -> Ints:
        """Start of the states of each variable in a flat buffer of marginals."""
        return frozen(np.concatenate([[0], np.cumsum(self.cardinalities, dtype=np.int64)]))

    @cached_property
    def message_offsets(self) -> Ints:
        """Start of the message of each edge in a flat buffer of messages."""
        sizes = self.cardinalities[self.scopes].astype(np.int64)
        return frozen(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    @cached_property
    def edge_strides(self) -> Ints:
        """Stride of each edge's variable in the factor's table."""
        strides = np.ones(self.n_edges, dtype=np.int64)
        orders = np.diff(self.scope_offsets)
        cards = self.cardinalities[self.scopes].astype(np.int64)
        for order in np.unique(orders[orders > 1]):
            first = self.scope_offsets[:-1][orders == order]
            for k in range(int(order) - 2, -1, -1):
                strides[first + k] = strides[first + k + 1] * cards[first + k + 1]
        return frozen(strides)

    @cached_property
    def components(self) -> Ints:
        """Connected component of each variable, numbered from 0."""
        return frozen(import_module("kikuchi.graphs.shapes").component_labels(self))

    @property
    def n_components(self) -> int:
        """Number of connected components (of variables)."""
        return int(self.components.max()) + 1 if self.n_variables else 0

    @property
    def is_forest(self) -> bool:
        """True when the bipartite graph has no cycle: belief propagation is then exact."""
        # Every factor has a variable, so components of variables are all the components.
        if self.n_edges and self.n_edges >= self.n_variables + self.n_factors:
            return False
        return self.n_edges == self.n_variables + self.n_factors - self.n_components

    def pairs(self) -> U4:
        """Edges of the primal (moral) graph: unordered pairs that share a factor, each once.

        >>> FactorGraph([2, 2, 2], [((0, 1, 2), np.ones(8))]).pairs().tolist()
        [[0, 1], [0, 2], [1, 2]]
        """
        found: U4 = import_module("kikuchi.graphs.shapes").primal_pairs(self)
        return found

    # ------------------------------------------------------------------ values

    def log_score(self, states: ArrayLike) -> Any:
        """Return the log unnormalised weight of one vector of `states`, or of each row of several.

        >>> round(FactorGraph([2], [((0,), [1.0, 3.0])]).log_score([1]), 6)
        1.098612
        """
        x = np.atleast_2d(np.asarray(states))
        if x.ndim != 2 or x.shape[1] != self.n_variables:
            raise ModelError(
                f"states must have {self.n_variables} columns, one per variable, got {x.shape[-1]}"
            )
        whole = x.size == 0 or x.dtype.kind in "iub"
        if not whole or np.any(x < 0) or np.any(x >= self.cardinalities):
            raise ModelError("states must be integers in 0..cardinality - 1")
        x = x.astype(np.int64, copy=False)
        total = np.full(len(x), self.log_constant)
        orders = np.diff(self.scope_offsets)
        for order in np.unique(orders):
            chosen = np.flatnonzero(orders == order)
            rows = scope_rows(self.scopes, self.scope_offsets, orders, int(order))
            index = np.zeros((len(x), len(rows)), dtype=np.int64)
            for k in range(int(order)):
                column = rows[:, k]
                index = index * self.cardinalities[column].astype(np.int64) + x[:, column]
            total += self.log_tables[self.table_offsets[chosen] + index].sum(axis=1)
        return total if np.ndim(states) > 1 else float(total[0])

    # ------------------------------------------------------------------ evidence (LIU-M4)

    def observations(self, evidence: Evidence | None) -> tuple[dict[int, int], dict[int, Array]]:
        """Return the checked `evidence` by number: observed states, and observed marginals.

        A marginal with all its mass on one state is returned as that state.

        >>> graph = FactorGraph([2, 2, 2], [], names=["a", "b", "c"])
        >>> graph.observations({"a": 1, "b": [0.25, 0.75], "c": [1, 0]})
        ({0: 1, 2: 0}, {1: array([0.25, 0.75])})
        """
        distributions: dict[int, Array] = {}
        if evidence is not None and not isinstance(evidence, Mapping):
            raise EvidenceError(
                "evidence must be a mapping such as {'smoke': 'yes'}, got "
                f"{type(evidence).__name__}"
            )
        for variable, value in (evidence or {}).items():
            v = self._evidence_variable(variable)
            if np.ndim(value) == 0:
                target = np.zeros(int(self.cardinalities[v]))
                target[self.state_index(v, value)] = 1.0
            else:
                target = as_distribution(value, int(self.cardinalities[v]), self.label(v))
            if v in distributions and not np.array_equal(distributions[v], target):
                raise EvidenceError(f"variable {self.label(v)} is observed twice, differently")
            distributions[v] = target
        states = {v: int(t.argmax()) for v, t in distributions.items() if t.max() == 1.0}
        return states, {v: t for v, t in distributions.items() if v not in states}

    def resolve(self, evidence: Evidence | None) -> dict[int, int]:
        """Return the checked `evidence` by number: {variable number: state number}."""
        states, targets = self.observations(evidence)
        if targets:
            raise EvidenceError(
                f"variable {self.label(next(iter(targets)))}: a distribution was given where a "
                "state is required"
            )
        return states

    def _evidence_variable(self, variable: Variable) -> int:
        try:
            return self.index(variable)
        except ModelError as error:
            raise EvidenceError(str(error)) from error

    def condition(self, evidence: Evidence | None) -> Conditioned:
        """Reduce the graph: slice every table at the `evidence` and remove the observed variables.

        Factors whose variables are all observed are added to `log_constant`, so log Z of the
        reduced graph is the log of the total weight of the states that agree with the evidence.

        >>> graph = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
        >>> graph.condition({0: 1}).graph.table(0).round(12).tolist()
        [3.0, 4.0]
        """
        return self._sliced(self.resolve(evidence))

    def reduce(self, states: Mapping[int, int]) -> Conditioned:
        """Condition on `states` {variable number: state number} returned by `observations` or
        `resolve`, without checking them again; variables with a single state are also removed.

        >>> FactorGraph([2, 1], [((0, 1), [[1], [3]])]).reduce({}).graph.n_variables
        1
        """
        single = {int(v): 0 for v in np.flatnonzero(self.cardinalities == 1)}
        return self._sliced({**states, **single})

    def _sliced(self, observed: dict[int, int]) -> Conditioned:
        found: Conditioned = import_module("kikuchi.graphs.conditioned").conditioned(self, observed)
        return found

    def clamp(self, evidence: Evidence | None) -> FactorGraph:
        """Clamp the domains: keep all variables, add a 0/1 factor per observation in `evidence`.

        >>> FactorGraph([2], [((0,), [1.0, 3.0])]).clamp({0: 1}).n_factors
        2
        """
        fields = []
        for v, k in self.resolve(evidence).items():
            fields.append((v, np.full(int(self.cardinalities[v]), -np.inf)))
            fields[-1][1][k] = 0.0
        return self.with_fields(fields)

    def with_fields(self, fields: Iterable[tuple[int, Array]]) -> FactorGraph:
        """Add a factor for each pair (variable number, log-weights) of `fields`.

        >>> FactorGraph([2], [((0,), [1.0, 3.0])]).with_fields([(0, np.zeros(2))]).n_factors
        2
        """
        fields = list(fields)
        added = np.array([v for v, _ in fields], dtype=INDEX)
        return self.replaced(
            scopes=np.concatenate([self.scopes, added]),
            scope_offsets=np.append(self.scope_offsets, self.n_edges + 1 + np.arange(len(fields))),
            log_tables=np.concatenate([self.log_tables, *(table for _, table in fields)]),
            children=None,
        )


@dataclass(frozen=True)
class Conditioned:
    """A reduced graph and the mapping back to the original graph (see `graphs.conditioned`)."""

    graph: FactorGraph
    original: FactorGraph
    observed: dict[int, int]
    variables: Ints
    factors: Ints


def check_graph(graph: Any, taker: str) -> None:
    """Raise an error unless `graph` is a `FactorGraph`; `taker` is the calling function."""
    if not isinstance(graph, FactorGraph):
        raise ModelError(
            f"{taker} takes a FactorGraph, got {type(graph).__name__}; kk.as_model converts a "
            "path or a model of another library"
        )
