"""Access by name to children and states."""

from __future__ import annotations

from typing import Any, Protocol, SupportsIndex, overload

import numpy as np

from kikuchi.graphs.checks import variable_number


class NamedModel(Protocol):
    """A model whose variables may have names."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the variables."""

    def index(self, variable: int | str) -> int:
        """Return the number of a variable."""

    def neighbours(self, variable: int | str) -> tuple[int, ...]:
        """Return the factors that contain a variable."""


class ChildVariables(np.ndarray[Any, np.dtype[np.uint32]]):
    """The child variable of each factor, as an array; calling it with a variable returns its
    children.

    >>> import kikuchi as kk
    >>> net = kk.network("a -> b -> c; a -> c")
    >>> net.children.tolist(), net.children("a")
    ([0, 1, 2], ('b', 'c'))
    """

    _graph: NamedModel | None = None

    @classmethod
    def of(cls, graph: NamedModel, numbers: Any) -> ChildVariables:
        """The array `numbers` as that of the children of `graph`."""
        array: ChildVariables = numbers.view(cls)
        array._graph = graph
        return array

    def __call__(self, variable: int | str) -> tuple[int | str, ...]:
        """Children of a variable, in the order of their numbers; by name if there are names."""
        if self._graph is None:
            raise TypeError("a slice of the array of children does not belong to a model")
        v = self._graph.index(variable)
        found = sorted(int(self[a]) for a in self._graph.neighbours(v) if self[a] != v)
        return named(self._graph, tuple(found))


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
        index = {name: v for v, name in enumerate(self.names or ())}
        return super().__getitem__(variable_number(variable, index, len(self)))

    def __call__(self, variable: int | str) -> tuple[str, ...]:
        """Names of the states of one variable."""
        return self[variable]


def named(graph: NamedModel, variables: tuple[int, ...]) -> tuple[int | str, ...]:
    """Names of variables given by number; the numbers if the model has no names."""
    return variables if graph.names is None else tuple(graph.names[v] for v in variables)
