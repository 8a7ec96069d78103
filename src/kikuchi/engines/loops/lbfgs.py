"""L-BFGS as a part of a state."""

from __future__ import annotations

from functools import partial
from typing import Any

from kikuchi.core.arrays import Array
from kikuchi.core.lbfgs import Lbfgs, Objective
from kikuchi.core.named_arrays import Arrays
from kikuchi.engines.loops.state import Held


class HeldDescent(Held[Lbfgs]):
    """A descent of `objective` from `point` that can be saved and loaded; `options` are those of
    `Lbfgs`.

    Unless it has `begun`, its value is None, and nothing is evaluated.

    >>> import numpy as np
    >>> descent = HeldDescent(lambda x: (float(x @ x), 2 * x), np.ones(2))
    >>> saved, _ = descent.to_arrays(), descent.value.step()
    >>> descent.load(saved)
    >>> descent.value.point.tolist()
    [1.0, 1.0]
    """

    def __init__(
        self, objective: Objective, point: Array, *, begun: bool = True, **options: Any
    ) -> None:
        def read(arrays: Arrays | None) -> Lbfgs:
            return Lbfgs(objective, point, state=arrays, **options)

        super().__init__(read(None) if begun else None, read, lambda descent: descent.state)
        self._first = partial(read, None)

    def begin(self) -> None:
        """Evaluate the first point."""
        self.value = self._first()
