"""Directed models from any file format: variables and tables by name, checked after reading.

The reader of a format adds variables and tables in file order; all validation errors are raised
here, with the location in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kikuchi.core import numerics
from kikuchi.core.arrays import Array
from kikuchi.core.errors import FormatError, ModelError, suggestion
from kikuchi.core.files import require_room
from kikuchi.core.numerics import count_states
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats.directed import ROW_TOLERANCE, child_last, directed_cycle
from kikuchi.graphs.formats.tokens import SMALLEST_WEIGHT
from kikuchi.graphs.formats.weights import LOWEST_LOG, weights_of

_DECIMAL = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?", re.ASCII)


def is_decimal(word: str) -> bool:
    """Whether a word is a decimal number; `nan`, `inf` and digits of other scripts are not."""
    return _DECIMAL.fullmatch(word) is not None


def first_tiny(words: Sequence[str], values: Sequence[float]) -> str | None:
    """Return the first word that is not zero but was read as zero; None if there is none."""
    for word, value in zip(words, values, strict=True):
        if value == 0 and word.lower().partition("e")[0].strip("+-.0"):
            return word
    return None


def first_wrong_sum(rows: Array) -> tuple[int, float] | None:
    """Return the first row that does not sum to 1, and its sum; None if all do."""
    sums = rows.sum(axis=1)
    wrong = np.flatnonzero(np.abs(sums - 1.0) > ROW_TOLERANCE)
    return (int(wrong[0]), float(sums[int(wrong[0])])) if wrong.size else None


def decoded(path: str, data: bytes, what: str, bytes_per_letter: int = 40) -> str:
    """The text of a file in UTF-8; names, numbers and tables take memory for each letter."""
    require_room(path, bytes_per_letter * len(data), f"{what} of this length")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"found the byte 0x{data[error.start]:02x}"
        raise FormatError(path, line, found, "expected text in UTF-8") from error


@dataclass(frozen=True)
class NetworkTable:
    """A conditional table as given in a file: the child varies fastest, then the last parent."""

    child: str
    parents: list[str]
    numbers: Array | None
    line: int | None


def directed_model(
    states: Mapping[str, Sequence[str]],
    scopes: Sequence[Sequence[int]],
    tables: Sequence[Array],
    cyclic: Callable[[list[int]], FormatError],
) -> FactorGraph:
    """Return the model of checked tables: factors in the order of the file, the child of each last.

    `states` are those of each variable by name; `cyclic` makes the error for arrows that form a
    cycle from its variables.
    """
    orders = np.array([len(scope) for scope in scopes], dtype=np.int64)
    flat = np.array([v for scope in scopes for v in scope], dtype=np.uint32)
    children = np.array([scope[-1] for scope in scopes], dtype=np.uint32)
    cycle = directed_cycle(children, flat, orders)
    if cycle:
        raise cyclic(cycle)
    return FactorGraph.from_arrays(
        [len(group) for group in states.values()],
        flat,
        np.concatenate([[0], np.cumsum(orders)]),
        numerics.log(np.concatenate([table.ravel() for table in tables])),
        names=list(states),
        states=list(states.values()),
        children=children,
        validate=False,
    )


class NetworkReader:
    """Collects variables and tables of a file, and builds the model."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.states: dict[str, list[str]] = {}
        self.tables: dict[str, NetworkTable] = {}

    def error(self, line: int | None, found: str, expected: str) -> FormatError:
        """An error at a place of the file."""
        return FormatError(self.path, line, found, expected)

    def variable(self, name: str, states: Sequence[str], line: int | None = None) -> None:
        """Add a variable."""
        if name in self.states:
            raise self.error(line, f"variable '{name}' is there twice", "expected it once")
        if not states:
            raise self.error(line, f"variable '{name}' has no states", "expected at least one")
        if len(set(states)) < len(states):
            raise self.error(line, f"variable '{name}' has a state twice", "expected each once")
        self.states[name] = list(states)

    def numbers(self, words: Sequence[str], line: int | None = None) -> Array:
        """Words as probabilities."""
        for word in words:
            if not is_decimal(word):
                raise self.error(line, f"found '{word[:40]}'", "expected a probability")
        values = np.array([float(word) for word in words])
        bad = np.flatnonzero(~((values >= 0) & (values <= 1 + ROW_TOLERANCE)))
        if bad.size:
            raise self.error(line, f"found {words[int(bad[0])]}", "expected a probability in 0..1")
        tiny = first_tiny(words, values.tolist()) if 0.0 in values else None
        if tiny is not None:
            raise self.error(line, f"found {tiny[:40]}", SMALLEST_WEIGHT)
        return values

    def table(
        self, child: str, parents: Sequence[str], numbers: Array | None, line: int | None = None
    ) -> None:
        """Add a conditional table; without numbers every row is uniform."""
        if child in self.tables:
            raise self.error(line, f"variable '{child}' has two tables", "expected one")
        self.tables[child] = NetworkTable(child, list(parents), numbers, line)

    def graph(self) -> FactorGraph:
        """Return the model, after the whole file has been read."""
        if not self.states:
            raise self.error(None, "there are no variables", "expected at least one")
        missing = [name for name in self.states if name not in self.tables]
        if missing:
            raise self.error(None, f"variable '{missing[0]}' has no table", "expected one")
        factors = [self._factor(self._known(table)) for table in self.tables.values()]
        number = {name: v for v, name in enumerate(self.states)}
        scopes = [[number[name] for name in scope] for scope, _ in factors]

        def cyclic(cycle: list[int]) -> FormatError:
            names = list(self.states)
            circle = " -> ".join(names[v] for v in cycle)
            return self.error(None, f"the arrows form a cycle: {circle}", "expected none")

        return directed_model(self.states, scopes, [table for _, table in factors], cyclic)

    def _known(self, table: NetworkTable) -> NetworkTable:
        scope = [*table.parents, table.child]
        for name in scope:
            if name not in self.states:
                hint = suggestion(name, self.states)
                raise self.error(table.line, f"there is no variable '{name}'", hint)
        if len(set(scope)) < len(scope):
            raise self.error(
                table.line, f"the table of '{table.child}' names a variable twice", "expected once"
            )
        return table

    def _factor(self, table: NetworkTable) -> tuple[list[str], Array]:
        scope = [*table.parents, table.child]
        shape = [len(self.states[name]) for name in scope]
        size = count_states(shape)
        if table.numbers is None:
            require_room(self.path, 8 * size, f"the table of '{table.child}'")
            return scope, np.full(int(size), 1.0 / shape[-1])
        if len(table.numbers) != size:
            raise self.error(
                table.line,
                f"the table of '{table.child}' has {len(table.numbers)} numbers",
                f"expected {size:.0f}",
            )
        wrong = first_wrong_sum(table.numbers.reshape(-1, shape[-1]))
        if wrong is not None:
            raise self.error(
                table.line,
                f"row {wrong[0]} of the table of '{table.child}' sums to {wrong[1]:.6g}",
                "expected 1",
            )
        return scope, table.numbers


# ---------------------------------------------------------------------- writing


@dataclass(frozen=True)
class WrittenTable:
    """A conditional table to write: names, and rows of probabilities, one for each joint state of
    the parents.
    """

    child: int
    parents: list[int]
    rows: list[list[float]]


class NetworkWriter:
    """Names, states and tables of a directed model, ready to be written."""

    def __init__(self, graph: FactorGraph, what: str) -> None:
        if graph.children is None:
            raise ModelError(f"only directed models can be written as {what}; write .json or .uai")
        if not graph.n_variables:
            raise ModelError(f"{what} needs at least one variable; write .uai instead")
        if graph.log_constant != 0.0:
            raise ModelError(f"{what} cannot hold a constant factor; write .json instead")
        logs = graph.log_tables
        if np.any((logs > -np.inf) & (logs < LOWEST_LOG)):
            raise ModelError(f"a probability is too small for {what}; write .json instead")
        self.graph = child_last(graph)
        self.names = list(graph.names or [f"x{v}" for v in range(graph.n_variables)])
        self.states = [
            list(graph.states[v]) if graph.states else [f"s{k}" for k in range(int(c))]
            for v, c in enumerate(graph.cardinalities)
        ]

    def tables(self) -> Iterator[WrittenTable]:
        """Every conditional table, in the order of the factors."""
        graph = self.graph
        weights = weights_of(graph.log_tables)
        for a in range(graph.n_factors):
            *parents, child = graph.scope(a)
            lo, hi = graph.table_offsets[a], graph.table_offsets[a + 1]
            rows = weights[lo:hi].reshape(-1, len(self.states[child])).tolist()
            yield WrittenTable(child, parents, rows)
