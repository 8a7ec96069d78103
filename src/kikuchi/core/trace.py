"""`Trace`: the recorded steps of an iterative method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MEASURE = "measure/"  # prefix of measures among the column names


@dataclass
class Trace:
    """Iteration, residual, objective, bounds on log Z and seconds of each recorded step.

    A step may comprise several sweeps; `iterations` contains the number done so far. Unknown values
    are NaN (belief propagation, for example, has no decreasing objective). `lower` and `upper` are
    the certified bounds on log Z at that step. `measures` are further quantities by name, such as
    the acceptance rate of chains, NaN where none was reported.

    `objective_name` and `residual_name` describe `objective` and `residual` (by default the size of
    the last change); `seconds` is the time since the start.

    >>> trace = Trace(objective_name="lower bound")
    >>> trace.record(1, residual=0.5, objective=-3.0, seconds=0.01)
    >>> len(trace), trace.last_residual
    (1, 0.5)
    """

    objective_name: str = "objective"
    iterations: list[int] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    measures: dict[str, list[float]] = field(default_factory=dict)
    residual_name: str = "largest change in one iteration"

    def record(
        self,
        iteration: int,
        *,
        residual: float = math.nan,
        objective: float = math.nan,
        seconds: float = math.nan,
        lower: float = math.nan,
        upper: float = math.nan,
        measures: Mapping[str, float] | None = None,
    ) -> None:
        """Append the step `iteration`: its largest change (`residual`), the `objective`, the
        `seconds` since the start, certified bounds `lower` and `upper`, and other `measures` by
        name. Unknown values are NaN.
        """
        told, length = measures or {}, len(self.iterations)
        for name in told:
            self.measures.setdefault(name, [math.nan] * length)
        row: list[tuple[list[Any], float]] = [
            (column, float(told.get(name, math.nan))) for name, column in self.measures.items()
        ]
        row += [
            (self.residual, float(residual)),
            (self.objective, float(objective)),
            (self.seconds, float(seconds)),
            (self.lower, float(lower)),
            (self.upper, float(upper)),
            (self.iterations, int(iteration)),
        ]
        try:
            _fill(row, length)
        except KeyboardInterrupt:
            _fill(row, length)  # a row is complete or absent
            raise

    def clear(self) -> None:
        """Remove all steps; the run starts again."""
        self.iterations.clear()
        for column in (self.residual, self.objective, self.seconds, self.lower, self.upper):
            column.clear()
        self.measures.clear()

    def __len__(self) -> int:
        return len(self.iterations)

    @property
    def last_residual(self) -> float:
        """Residual of the last step; NaN if nothing was recorded."""
        return self.residual[-1] if self.residual else math.nan

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns as NumPy arrays, by name."""
        return {
            "iterations": np.array(self.iterations, dtype=np.int64),
            "residual": np.array(self.residual, dtype=np.float64),
            "objective": np.array(self.objective, dtype=np.float64),
            "seconds": np.array(self.seconds, dtype=np.float64),
            "lower": np.array(self.lower, dtype=np.float64),
            "upper": np.array(self.upper, dtype=np.float64),
        } | {
            f"{_MEASURE}{name}": np.array(column, dtype=np.float64)
            for name, column in self.measures.items()
        }

    def restore(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Replace the content by these `columns`, arrays by name: the inverse of `arrays`.

        >>> trace = Trace()
        >>> trace.restore({**Trace().arrays(), "iterations": np.array([1])})
        Traceback (most recent call last):
        ...
        ValueError: the columns of a trace must be equally long
        """
        mine = Trace().arrays()
        measures = {name for name in columns if name.startswith(_MEASURE)}
        if set(columns) - measures != set(mine):
            raise ValueError(f"the columns of a trace are {', '.join(mine)}")
        if len({column.shape for column in columns.values()}) != 1:
            raise ValueError("the columns of a trace must be equally long")
        for name, column in columns.items():
            wanted = mine[name].dtype if name in mine else np.dtype(np.float64)
            if column.dtype != wanted or column.ndim != 1:
                raise ValueError(
                    f"the column {name} of a trace must be a vector of {wanted} numbers"
                )
        for name in mine:
            getattr(self, name)[:] = columns[name].tolist()
        self.measures = {
            name.removeprefix(_MEASURE): columns[name].tolist() for name in sorted(measures)
        }


def _fill(row: list[tuple[list[Any], float]], length: int) -> None:
    """Append to each column that has no more than `length` values so far."""
    for column, value in row:
        if len(column) == length:
            column.append(value)
