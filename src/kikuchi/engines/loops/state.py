"""`State`: what the next step of some iterative work depends on.

A state is a dataclass of arrays and numbers. Its fields say how it is saved, restored and copied,
so that no method or learner writes that again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False)
class State:
    """Base of states: dataclasses whose fields are arrays, whole numbers, floats and booleans.

    The arrays may be those in which an engine works. `assign` writes into them and leaves them in
    place, unless their sizes differ.

    Attributes
    ----------
    varying
        Names of arrays whose sizes may differ between two states of the same work.
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
    >>> Sweeps.from_arrays(sweeps.to_arrays()).done
    0
    """

    varying: ClassVar[tuple[str, ...]] = ()
    logarithms: ClassVar[tuple[str, ...]] = ()

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of all fields as arrays, by name; numbers become arrays without axes."""
        return {name: np.array(value) for name, value in self._items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the state that `to_arrays` described; arrays of other names are left out."""
        values = {field.name: np.array(arrays[field.name]) for field in fields(cls)}
        numbers = {name: value.item() for name, value in values.items() if not value.ndim}
        return cls(**(values | numbers))

    def copy(self) -> Self:
        """Return a state that shares no array with this one."""
        return type(self)(
            **{
                name: value.copy() if isinstance(value, np.ndarray) else value
                for name, value in self._items()
            }
        )

    def assign(self, other: Self) -> None:
        """Take the values of another state; its arrays are copied."""
        for name, value in other._items():
            own = getattr(self, name)
            if not isinstance(value, np.ndarray):
                setattr(self, name, value)
            elif isinstance(own, np.ndarray) and own.shape == value.shape:
                own[...] = value
            else:
                setattr(self, name, value.copy())

    def _items(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


@dataclass(eq=False)
class Iterations(State):
    """The number of iterations done, of work whose arrays stay in an engine and are not saved."""

    done: int = 0
