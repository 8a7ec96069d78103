"""Access by name to parents, children, states and conditional probability tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from kikuchi.core.errors import ModelError

if TYPE_CHECKING:
    from kikuchi.graphs.conditional import ConditionalTable
    from kikuchi.graphs.factor_graph import FactorGraph, Variable


class ChildVariables(np.ndarray[Any, np.dtype[np.uint32]]):
    """The child variable of each factor, as an array; calling it with a variable returns its
    children.

    >>> import kikuchi as kk
    >>> net = kk.network("a -> b -> c; a -> c")
    >>> net.children.tolist(), net.children("a")
    ([0, 1, 2], ('b', 'c'))
    """

    _graph: FactorGraph | None = None

    @classmethod
    def of(cls, graph: FactorGraph, numbers: Any) -> ChildVariables:
        """The array `numbers` as that of the children of `graph`."""
        array: ChildVariables = numbers.view(cls)
        array._graph = graph
        return array

    def __call__(self, variable: Variable) -> tuple[Variable, ...]:
        """Children of a variable, in the order of their numbers; by name if there are names."""
        if self._graph is None:
            raise TypeError("a slice of the array of children does not belong to a model")
        from kikuchi.graphs.directed import child_variables

        return named(self._graph, child_variables(self._graph, variable))


class StateNames(tuple[tuple[str, ...], ...]):
    """The names of the states of each variable, by number or by name.

    >>> import kikuchi as kk
    >>> net = kk.network("weather{sun|rain} -> wet")
    >>> net.states["weather"], net.states[1], net.states("wet")
    (('sun', 'rain'), ('no', 'yes'), ('no', 'yes'))
    """

    names: tuple[str, ...] | None

    def __new__(cls, groups: Any, names: tuple[str, ...] | None = None) -> StateNames:
        """Create the tuple with the `names` of the variables."""
        made = super().__new__(cls, groups)
        made.names = names
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self), self.names

    @overload
    def __getitem__(self, variable: SupportsIndex | str) -> tuple[str, ...]: ...

    @overload
    def __getitem__(self, variable: slice) -> tuple[tuple[str, ...], ...]: ...

    def __getitem__(self, variable: Any) -> Any:
        if not isinstance(variable, str):
            return super().__getitem__(variable)
        from kikuchi.graphs.checks import variable_number

        index = {name: v for v, name in enumerate(self.names or ())}
        return super().__getitem__(variable_number(variable, index, len(self)))

    def __call__(self, variable: Variable) -> tuple[str, ...]:
        """Names of the states of one variable."""
        return self[variable]


def named(graph: FactorGraph, variables: tuple[int, ...]) -> tuple[Variable, ...]:
    """Names of variables given by number; the numbers if the model has no names."""
    return variables if graph.names is None else tuple(graph.names[v] for v in variables)


def conditional(graph: FactorGraph, variable: Variable) -> ConditionalTable:
    """The table of `variable` with the names of its axes; see `FactorGraph.cpt`."""
    from kikuchi.graphs.conditional import ConditionalTable
    from kikuchi.graphs.directed import family_factor, parents

    v = graph.index(variable)
    if graph.children is None:
        shared = ", ".join(map(str, graph.neighbours(v))) or "none"
        raise ModelError(
            f"the model has no directions, so {graph.label(v)} has no conditional table; its "
            f"factors are {shared}: read them with graph.table(factor)"
        )
    factor, above = family_factor(graph, v), parents(graph, v)
    axes = [graph.scope(factor).index(u) for u in (*above, v)]
    states = tuple(
        graph.states[u] if graph.states else tuple(map(str, range(int(graph.cardinalities[u]))))
        for u in (*above, v)
    )
    table = graph.table(factor).transpose(axes)
    return ConditionalTable(graph.label(v), tuple(map(graph.label, above)), states, table)
