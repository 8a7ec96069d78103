"""`State`: what the next step of some iterative work depends on.

A state is a dataclass of arrays, numbers and parts. Its fields say how it is saved, loaded and
copied, so that no method or learner writes that again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.named_arrays import Arrays, from_json_array, json_array, part, prefixed

T = TypeVar("T")


@runtime_checkable
class Part(Protocol):
    """A field of a state that has arrays of its own: another state, a `Held` value, or work with a
    memory, such as L-BFGS.
    """

    def to_arrays(self) -> Arrays:
        """Return copies of everything that the next step depends on."""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take the values that `to_arrays` described."""


class Held(Generic[T]):
    """A value that is not an array, such as a model, with how arrays are made of it and read.

    None is written as no arrays.

    >>> held = Held({1, 2}, lambda arrays: set(arrays["all"].tolist()),
    ...             lambda value: {"all": np.array(sorted(value))})
    >>> arrays = held.to_arrays()
    >>> held.value = None
    >>> held.load(arrays)
    >>> held.value
    {1, 2}
    """

    def __init__(
        self,
        value: T | None,
        read: Callable[[Arrays], T],
        write: Callable[[T], Mapping[str, NDArray[Any]]] = lambda value: value.to_arrays(),  # type: ignore[attr-defined]
    ) -> None:
        self.value, self.read, self.write = value, read, write

    @property
    def now(self) -> T:
        """The value, which must not be None."""
        assert self.value is not None
        return self.value

    def to_arrays(self) -> Arrays:
        """Return the value as arrays."""
        if self.value is None:
            return {}
        return {name: np.array(array) for name, array in self.write(self.value).items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read the value from arrays; without any it is None, unless it never has any."""
        if arrays:
            self.value = self.read(dict(arrays))
        elif self.to_arrays():
            self.value = None


@dataclass(eq=False)
class State:
    """Base of states: dataclasses whose fields are arrays, numbers, lists of floats, arrays by
    name, random generators, and parts (other states, `Held` values) or tuples of parts.

    The arrays may be those in which an engine works. `assign` and `load` write into them and leave
    them in place, unless their sizes differ.

    Attributes
    ----------
    varying
        Names of arrays whose sizes may differ between two states of the same work, or beginnings of
        such names.
    logarithms
        Names of arrays that may contain -inf.

    >>> @dataclass(eq=False)
    ... class Sweeps(State):
    ...     messages: NDArray[np.float64]
    ...     done: int = 0
    >>> sweeps = Sweeps(np.zeros(2))
    >>> kept = sweeps.copy()
    >>> sweeps.messages[:], sweeps.done = 7.0, 3
    >>> sweeps.assign(kept)
    >>> sweeps
    Sweeps(messages=array([0., 0.]), done=0)
    >>> sweeps.load({"messages": np.ones(2), "done": np.array(5)})
    >>> sweeps
    Sweeps(messages=array([1., 1.]), done=5)
    """

    varying: ClassVar[tuple[str, ...]] = ()
    logarithms: ClassVar[tuple[str, ...]] = ()

    @property
    def whole(self) -> bool | None:
        """Whether the state can be saved although a step was cut short; None if nobody knows."""
        return None

    def to_arrays(self) -> Arrays:
        """Return copies of all fields as arrays, by name; numbers become arrays without axes."""
        arrays: Arrays = {}
        for name, value in self._items():
            arrays |= _written(name, value)
        return arrays

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take the values that `to_arrays` described; arrays of other names are left out."""
        for name, value in self._items():
            if isinstance(value, Part):
                value.load(part(arrays, name))
            elif isinstance(value, tuple):
                for number, inner in enumerate(value):
                    inner.load(part(arrays, f"{name}/{number}"))
            elif isinstance(value, np.random.Generator):
                value.bit_generator.state = from_json_array(arrays[name])
            elif isinstance(value, dict):
                setattr(self, name, part(arrays, name))
            elif isinstance(value, np.ndarray):
                self._take(name, np.array(arrays[name]))
            elif isinstance(value, list):
                setattr(self, name, arrays[name].tolist())
            else:
                setattr(self, name, type(value)(arrays[name].item()))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the state of arrays and numbers alone that `to_arrays` described."""
        values = {field.name: np.array(arrays[field.name]) for field in fields(cls)}
        numbers = {name: value.item() for name, value in values.items() if not value.ndim}
        return cls(**(values | numbers))

    def copy(self) -> Self:
        """Return a state that shares no array with this one; parts must be states."""
        return type(self)(**{name: _copied(value) for name, value in self._items()})

    def assign(self, other: Self) -> None:
        """Take the values of another state; its arrays are copied."""
        for name, value in other._items():
            own = getattr(self, name)
            if isinstance(own, State):
                own.assign(value)
            elif isinstance(value, np.ndarray):
                self._take(name, value.copy())
            else:
                setattr(self, name, _copied(value))

    def _take(self, name: str, value: NDArray[Any]) -> None:
        own = getattr(self, name)
        if isinstance(own, np.ndarray) and own.shape == value.shape:
            own[...] = value
        else:
            setattr(self, name, value)

    def _items(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


@dataclass(eq=False)
class Iterations(State):
    """The number of iterations done, of work whose arrays stay in an engine and are not saved."""

    done: int = 0


@dataclass(eq=False, init=False)
class Rounds(State):
    """A state that is saved as it was at the last call of `mark`, between two rounds of steps.

    Work whose rounds consist of several steps goes on from the begin of a round.

    >>> rounds = Rounds()
    >>> rounds.done = 1
    >>> rounds.mark()
    >>> rounds.done = 2
    >>> int(rounds.to_arrays()["done"])
    1
    """

    done: int

    def __init__(self) -> None:
        self.done = 0
        self._marked: Arrays | None = None

    def mark(self) -> None:
        """Save the present state until the next call."""
        self._marked = super().to_arrays()

    def unmark(self) -> None:
        """Save the state as it is from now on."""
        self._marked = None

    def to_arrays(self) -> Arrays:
        """Return the state that was marked, or the present one if none was."""
        return super().to_arrays() if self._marked is None else self._marked


def names_of(work: Any, kind: str) -> tuple[str, ...]:
    """Return `varying` or `logarithms` of some work and of its parts, by the names of their arrays.

    >>> @dataclass(eq=False)
    ... class Inner(State):
    ...     varying = ("rows",)
    ...     rows: NDArray[np.float64]
    >>> @dataclass(eq=False)
    ... class Outer(State):
    ...     inner: Inner
    >>> names_of(Outer(Inner(np.zeros(1))), "varying")
    ('inner/rows',)
    """
    own: tuple[str, ...] = getattr(work, kind, ())
    for name, value in work._items() if isinstance(work, State) else ():
        parts = {name: value}
        if isinstance(value, tuple):
            parts = {f"{name}/{number}": inner for number, inner in enumerate(value)}
        for place, inner in parts.items():
            if isinstance(inner, State):
                own += tuple(f"{place}/{each}" for each in names_of(inner, kind))
    return own


def _written(name: str, value: Any) -> Arrays:
    if isinstance(value, Part):
        return prefixed(value.to_arrays(), name)
    if isinstance(value, tuple):
        each = [prefixed(inner.to_arrays(), f"{name}/{k}") for k, inner in enumerate(value)]
        return {inner: array for arrays in each for inner, array in arrays.items()}
    if isinstance(value, dict):
        return {f"{name}/{inner}": np.array(array) for inner, array in value.items()}
    if isinstance(value, np.random.Generator):
        return {name: json_array(value.bit_generator.state)}
    if isinstance(value, list):
        return {name: np.array(value, dtype=np.float64)}
    return {name: np.array(value)}


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray | State) else deepcopy(value)
