"""BIF, the Bayesian Interchange Format, as written by bnlearn and other programs.

`network`, `variable` and `probability` blocks; within the last, `table` (the child varies slowest
and the last parent fastest), rows `(parent states) p, p, ...;` and a `default` row for all other
rows. Properties and comments (`//` and `/* */`) are skipped. A comma or bar between words is
treated as a space. Names that contain spaces or brackets are in double quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import FormatError, ModelError, suggestion
from kikuchi.core.files import require_room
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats.directed import child_last
from kikuchi.graphs.formats.layout import first_repeat, too_many
from kikuchi.graphs.formats.network import (
    decoded,
    directed_model,
    first_tiny,
    first_wrong_sum,
    is_decimal,
)
from kikuchi.graphs.formats.tokens import SMALLEST_WEIGHT, shown
from kikuchi.graphs.formats.weights import LOWEST_LOG, weights_of

_BYTES_PER_LETTER = 35  # of names, numbers and tables, as measured

# Possessive quantifiers (++, *+) keep every pattern linear in the length of the text.
_NAME = r'(?:"[^"\n]*+"|[^\s{}()\[\];,|"]++)'
_IN_BRACES = r'((?:[^{}"]++|"[^"\n]*+")*+)'
_IN_BRACKETS = r'((?:[^(){};"]++|"[^"\n]*+")*+)'
_SPACE = re.compile(r"\s*+")
_WORD = re.compile(rf"\s*+({_NAME}|\S)")
_NAMES = re.compile(_NAME)
_COMMENTS = re.compile(r'"[^"\n]*+"|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(\*/)?')
_NETWORK = re.compile(rf"network\b(?:\s*{_NAME})*+\s*\{{")
_VARIABLE = re.compile(rf"variable\b\s*({_NAME})\s*\{{")
_TYPE = re.compile(rf"type\s++discrete\s*+\[\s*+([0-9]{{1,9}})\s*+\]\s*+\{{{_IN_BRACES}\}}\s*+;")
_PROPERTY = re.compile(r'property\b(?:[^;"{}]++|"[^"]*+")*+;')
_PROBABILITY = re.compile(rf"probability\b\s*\({_IN_BRACKETS}\)\s*\{{")
_ROW = re.compile(rf"\({_IN_BRACKETS}\)([^;{{}}()]*+);")
_TABLE = re.compile(r"(table|default)\b([^;{}()]*+);")


def read_bif(path: str, data: bytes) -> FactorGraph:
    """Read a directed model from the bytes of a file; `path` is only for errors.

    Rows must sum to 1 within 0.01 and are kept as they are.

    >>> text = '''network coin { }
    ... variable c { type discrete [ 2 ] { heads, tails }; }
    ... probability ( c ) { table 0.5, 0.5; }'''
    >>> read_bif("coin.bif", text.encode()).states
    (('heads', 'tails'),)
    """
    return _Reader(path, _decoded(path, data)).read()


def _decoded(path: str, data: bytes) -> str:
    text = decoded(path, data, "a BIF file", _BYTES_PER_LETTER)
    if "//" not in text and "/*" not in text:
        return text
    return _COMMENTS.sub(lambda match: _blanked(path, text, match), text)


def _blanked(path: str, text: str, match: re.Match[str]) -> str:
    """Replace a comment by a space and its line breaks, so that line numbers do not change."""
    comment = match[0]
    if comment.startswith('"'):
        return comment
    if comment.startswith("/*") and match[1] is None:
        line = text.count("\n", 0, match.start()) + 1
        raise FormatError(path, line, "found an unterminated comment", "expected */")
    return " " + "\n" * comment.count("\n")


def _unquoted(words: str) -> list[str]:
    """Return the names in a text, without quotes."""
    if '"' not in words:
        return words.replace(",", " ").replace("|", " ").split()
    return [w[1:-1] if w.startswith('"') else w for w in _NAMES.findall(words)]


@dataclass
class _Distribution:
    """A probability block: p(child | parents), a row for each state of the parents."""

    child: int
    parents: list[int]
    table: Array
    rows: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class _Reader:
    """One pass over the text; `place` is the current position."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.place = 0
        self.names: list[str] = []
        self.states: list[list[str]] = []
        self.number: dict[str, int] = {}
        self.state_number: list[dict[str, int]] = []
        self.distributions: list[_Distribution] = []
        self.given: dict[int, int] = {}

    def read(self) -> FactorGraph:
        """The whole file."""
        while self.peek():
            if self.take(_NETWORK):
                self.body(())
            elif match := self.take(_VARIABLE):
                self.variable(match)
            elif match := self.take(_PROBABILITY):
                self.probability(match)
            else:
                raise self.error("network, variable or probability and a block in braces")
        if not self.names:
            raise self.error("at least one variable")
        return self.build()

    # ------------------------------------------------------------------ the cursor

    def peek(self) -> str:
        """Return the next character that is not a space; an empty string at the end."""
        match = _SPACE.match(self.text, self.place)
        self.place = match.end() if match else self.place
        return self.text[self.place : self.place + 1]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Consume `pattern` if it is next."""
        match = pattern.match(self.text, self.place)
        if match:
            self.place = match.end()
        return match

    def error(
        self, expected: str, found: str | None = None, place: int | None = None
    ) -> FormatError:
        """Return the error about the word at `place`, or at the current position."""
        at = self.place if place is None else place
        line = self.text.count("\n", 0, min(at, len(self.text.rstrip()))) + 1
        if found is None:
            word = _WORD.match(self.text, at)
            found = f"found {shown(word[1])}" if word else "found the end of the file"
        return FormatError(self.path, line, found, f"expected {expected}")

    # ------------------------------------------------------------------ blocks

    def body(self, patterns: Sequence[re.Pattern[str]]) -> list[re.Match[str]]:
        """Statements up to the closing brace, without properties."""
        statements = []
        while self.peek() != "}":
            if self.take(_PROPERTY):
                continue
            match = next((m for p in patterns if (m := self.take(p))), None)
            if match is None:
                raise self.error(self.statement_text(patterns))
            statements.append(match)
        self.place += 1
        return statements

    @staticmethod
    def statement_text(patterns: Sequence[re.Pattern[str]]) -> str:
        if _TYPE in patterns:
            return "type discrete [ n ] { states }; or a property, ended by ; or }"
        if _ROW in patterns:
            return "table, default or (states) with numbers, or a property, ended by ; or }"
        return "a property ended by ; or }"

    def variable(self, match: re.Match[str]) -> None:
        name = _unquoted(match[1])[0]
        if name in self.number:
            raise self.error("a new name", f"found a second variable {shown(name)}", match.start(1))
        statements = self.body((_TYPE,))
        if len(statements) != 1:
            found = f"found {len(statements)} types of variable {shown(name)}"
            raise self.error("type discrete [ n ] { states };", found, match.start())
        count, states = int(statements[0][1]), _unquoted(statements[0][2])
        if len(states) != count or not count or len(set(states)) != count:
            found = f"found {len(set(states))} different states of variable {shown(name)}"
            raise self.error(f"{max(count, 1)} of them", found, statements[0].start())
        self.number[name] = len(self.names)
        self.names.append(name)
        self.states.append(states)
        self.state_number.append({state: k for k, state in enumerate(states)})

    def probability(self, match: re.Match[str]) -> None:
        family = [self.variable_number(name, match.start()) for name in _unquoted(match[1])]
        if not family or len(set(family)) != len(family):
            raise self.error("a variable and its parents, each once", place=match.start(1))
        child, parents = family[0], family[1:]
        if child in self.given:
            found = f"found a second probability of variable {shown(self.names[child])}"
            raise self.error("one for each variable", found, match.start())
        self.given[child] = match.start()
        rows = math.prod(float(len(self.states[v])) for v in parents)
        if too_many(rows * len(self.states[child]), len(self.text)):
            found = f"found a table of {rows * len(self.states[child]):.3g} entries"
            raise self.error("fewer, for the file is not that long", found, match.start())
        require_room(self.path, 32 * rows * len(self.states[child]), "a model with such a table")
        table = np.full((int(rows), len(self.states[child])), np.nan)
        block = _Distribution(child, parents, table)
        self.fill(block, self.body((_ROW, _TABLE)), match.start())
        self.distributions.append(block)

    def variable_number(self, name: str, place: int) -> int:
        if name not in self.number:
            hint = suggestion(name, self.names[:20])
            raise self.error(f"a variable from above; {hint}", f"found {shown(name)}", place)
        return self.number[name]

    # ------------------------------------------------------------------ rows

    def fill(self, block: _Distribution, statements: list[re.Match[str]], start: int) -> None:
        """Put the numbers of all statements of a block into its table."""
        default: list[float] | None = None
        card = len(self.states[block.child])
        for match in statements:
            if match.re is _ROW:
                block.rows.append(self.row_number(block, match))
                block.values += self.numbers(match, card)
                block.places.append(match.start())
            elif match[1] == "default" and default is None:
                default = self.numbers(match, card)
                self.check_sums(np.array([default]), [match.start()])
            elif match[1] == "table" and not block.rows:
                self.fill_table(block, match)
            else:
                raise self.error("each row of the table once", place=match.start())
        given = np.array(block.values).reshape(-1, card)
        self.check_sums(given, block.places)
        again = first_repeat(np.array(block.rows))
        if again >= 0:
            row = self.row_text(block, block.rows[again])
            raise self.error("each row once", f"found a second row {row}", block.places[again])
        if default is not None:
            block.table[:] = default
        block.table[block.rows] = given
        if np.isnan(block.table).any():
            missing = int(np.argmax(np.isnan(block.table[:, 0])))
            found = f"found no row {self.row_text(block, missing)}"
            raise self.error("a row for all states of the parents, or a default", found, start)

    def fill_table(self, block: _Distribution, match: re.Match[str]) -> None:
        """`table` lists the first state of the child for all parents, then the second, and on."""
        values = np.array(self.numbers(match, block.table.size)).reshape(block.table.T.shape)
        block.rows = list(range(len(block.table)))
        block.places = [match.start()] * len(block.table)
        block.values = values.T.ravel().tolist()

    def row_number(self, block: _Distribution, match: re.Match[str]) -> int:
        words = _unquoted(match[1])
        if len(words) != len(block.parents):
            found = f"found {len(words)} states"
            raise self.error(f"one for each of {len(block.parents)} parents", found, match.start())
        row = 0
        for parent, word in zip(block.parents, words, strict=True):
            k = self.state_number[parent].get(word)
            if k is None:
                hint = suggestion(word, self.states[parent][:20])
                found = f"found {shown(word)}"
                expected = f"a state of variable {shown(self.names[parent])}; {hint}"
                raise self.error(expected, found, match.start())
            row = row * len(self.states[parent]) + k
        return row

    def numbers(self, match: re.Match[str], count: int) -> list[float]:
        words = match[2].replace(",", " ").split()
        if len(words) != count:
            raise self.error(f"{count} of them", f"found {len(words)} numbers", match.start())
        try:
            values = list(map(float, words))
            strict = match[2].isascii() and "_" not in match[2]
        except ValueError:
            strict = False
        if not strict or not all(0 <= v < np.inf for v in values):
            bad = [w for w in words if not is_decimal(w) or not 0 <= float(w) < np.inf]
            if bad:  # none if only a space was not ASCII
                expected = "a finite number that is not negative"
                raise self.error(expected, f"found {shown(bad[0])}", match.start(2))
        tiny = first_tiny(words, values) if 0.0 in values else None
        if tiny is not None:
            found = f"found {shown(tiny)}, which is below the smallest number"
            raise self.error(f"0 or at least {SMALLEST_WEIGHT}", found, match.start(2))
        return values

    def check_sums(self, rows: Array, places: list[int]) -> None:
        wrong = first_wrong_sum(rows)
        if wrong is not None:
            row, total = wrong
            raise self.error("a sum of 1", f"found a row with sum {total:.6g}", places[row])

    def row_text(self, block: _Distribution, row: int) -> str:
        shape = [len(self.states[v]) for v in block.parents]
        where = np.unravel_index(row, shape) if shape else ()
        words = [self.states[v][int(k)] for v, k in zip(block.parents, where, strict=True)]
        return "(" + ", ".join(words) + ")"

    # ------------------------------------------------------------------ the graph

    def build(self) -> FactorGraph:
        """All blocks as a directed graph, factors in file order with their child last."""
        missing = [name for v, name in enumerate(self.names) if v not in self.given]
        if missing:
            found = f"found no probability of variable {shown(missing[0])}"
            raise self.error("one for each variable", found)
        scopes = [[*block.parents, block.child] for block in self.distributions]

        def cyclic(cycle: list[int]) -> FormatError:
            loop = " -> ".join(self.names[v] for v in cycle[:20])
            found = f"found a cycle of parents: {loop}"
            return self.error("a network without cycles", found, self.given[cycle[0]])

        states = dict(zip(self.names, self.states, strict=True))
        return directed_model(states, scopes, [b.table for b in self.distributions], cyclic)


# ---------------------------------------------------------------------- writing


def bif_text(graph: FactorGraph) -> Iterator[str]:
    """The text of a directed graph in pieces; missing names become x0, x1, ... and s0, s1, ...

    >>> graph = FactorGraph([2], [((0,), [0.25, 0.75])], names=["c"], children=[0])
    >>> print("".join(bif_text(graph)).splitlines()[-2])
      table 0.25, 0.75;
    """
    if graph.children is None:
        raise ModelError("only directed models can be written as BIF; write .uai or .fg instead")
    graph = child_last(graph)
    _check_is_network(graph)
    names = [_quoted(name) for name in graph.names or _numbered("x", graph.n_variables)]
    states = [
        [_quoted(state) for state in (graph.states[v] if graph.states else _numbered("s", int(c)))]
        for v, c in enumerate(graph.cardinalities)
    ]
    yield "network unknown {\n}\n"
    for name, group in zip(names, states, strict=True):
        listing = ", ".join(group)
        yield f"variable {name} {{\n  type discrete [ {len(group)} ] {{ {listing} }};\n}}\n"
    weights = weights_of(graph.log_tables)
    for a in range(graph.n_factors):
        yield _probability_text(graph, a, weights, names, states)


def _probability_text(
    graph: FactorGraph, factor: int, weights: Array, names: list[str], states: list[list[str]]
) -> str:
    *parents, child = graph.scope(factor)
    lo, hi = graph.table_offsets[factor], graph.table_offsets[factor + 1]
    rows = weights[lo:hi].reshape(-1, len(states[child])).tolist()
    if not parents:
        return f"probability ( {names[child]} ) {{\n  table {', '.join(map(repr, rows[0]))};\n}}\n"
    given = ", ".join(names[v] for v in parents)
    shape = tuple(len(states[v]) for v in parents)
    lines = [
        f"  ({', '.join(states[v][k] for v, k in zip(parents, where, strict=True))}) "
        f"{', '.join(map(repr, row))};\n"
        for where, row in zip(np.ndindex(shape), rows, strict=True)
    ]
    return f"probability ( {names[child]} | {given} ) {{\n{''.join(lines)}}}\n"


def _check_is_network(graph: FactorGraph) -> None:
    way_out = "write .json instead"
    if not graph.n_variables:
        raise ModelError(f"a BIF file needs at least one variable; {way_out}")
    if graph.log_constant != 0.0:
        raise ModelError(
            f"a BIF file cannot hold the constant factor exp({graph.log_constant:.6g}); {way_out}"
        )
    logs = graph.log_tables
    if np.any((logs > -np.inf) & (logs < LOWEST_LOG)):
        raise ModelError(f"a probability is too small for a BIF file; {way_out}")


def _numbered(letter: str, count: int) -> list[str]:
    return [f"{letter}{k}" for k in range(count)]


def _quoted(name: str) -> str:
    """A name as it can stand in a file, in quotes if it needs them."""
    if _NAMES.fullmatch(name) and not name.startswith('"') and not re.search(r"//|/\*", name):
        return name
    if '"' in name or "\n" in name:
        raise ModelError(f"the name {name!r} cannot be written in a BIF file; rename it")
    return f'"{name}"'
