"""Models in text with braces: Hugin's `.net` and the older `.dsl` of GeNIe.

Both are lists of blocks `word names { key = value; ... }`; the values are words, texts in quotes
and lists in brackets. `%` (Hugin), `//` and `/* */` begin comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kikuchi.core.errors import FormatError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats.network import NetworkReader, NetworkWriter, decoded
from kikuchi.graphs.formats.xml_models import identifiers, warn_of_new_names

_WORDS = re.compile(
    r"(?P<space>\s++)|(?P<comment>%[^\n]*+|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)"
    r'|(?P<text>"(?:[^"\\]++|\\.)*+")|(?P<sign>[(){}=;|,])|(?P<word>[^\s(){}=;|,"%]++)|(?P<bad>.)'
)
_MOST_BRACKETS = 100


@dataclass
class Block:
    """A block: the words before its brace, its values by key, and the blocks inside it."""

    head: list[str]
    line: int
    values: dict[str, list[str]] = field(default_factory=dict)
    parts: list[Block] = field(default_factory=list)

    def first(self, key: str) -> list[str] | None:
        """A value here or in the blocks inside."""
        if key in self.values:
            return self.values[key]
        for part in self.parts:
            found = part.first(key)
            if found is not None:
                return found
        return None


class _Scanner:
    """Iterates over the words of a text."""

    def __init__(self, path: str, text: str, comments: str) -> None:
        self.path = path
        self.words: list[tuple[str, int]] = []
        line = 1
        for match in _WORDS.finditer(text):
            kind, word = match.lastgroup, match[0]
            if kind == "comment" and word[0] not in comments:
                kind = "bad"
            if kind == "bad":
                raise FormatError(
                    path, line, f"found {word[:20]!r}", "expected a word or a punctuation mark"
                )
            if kind == "text":
                word = '"' + re.sub(r"\\(.)", r"\1", word[1:-1])
            if kind not in ("space", "comment"):
                self.words.append((word, line))
            line += match[0].count("\n")
        self.last = line
        self.place = 0

    def peek(self) -> str:
        return self.words[self.place][0] if self.place < len(self.words) else ""

    @property
    def line(self) -> int:
        return self.words[self.place][1] if self.place < len(self.words) else self.last

    def next(self) -> str:
        word = self.peek()
        if not word:
            raise FormatError(self.path, self.last, "the file ends too early", "expected '}'")
        self.place += 1
        return word

    def expect(self, sign: str) -> None:
        found, line = self.peek(), self.line
        if found != sign:
            raise FormatError(self.path, line, f"found '{found[:40]}'", f"expected '{sign}'")
        self.place += 1

    def blocks(self) -> Iterator[Block]:
        while self.peek():
            if self.peek() == ";":
                self.place += 1
                continue
            yield self.block(0)

    def block(self, depth: int) -> Block:
        """A block, from the words before its brace to the one that closes it."""
        if depth > _MOST_BRACKETS:
            raise FormatError(self.path, self.line, "blocks are nested too deeply", "expected less")
        line, head = self.line, []
        while self.peek() != "{":
            head.append(self.next())
            if len(head) > 100_000 or head[-1] in "};":
                raise FormatError(self.path, line, f"found '{head[0][:40]}'", "expected a block")
        self.place += 1
        found = Block(head, line)
        self._fill(found, depth)
        return found

    def _fill(self, block: Block, depth: int) -> None:
        while self.peek() != "}":
            if self.peek() == ";":
                self.place += 1
                continue
            if self._is_key():
                key = self.next().lower()
                self.expect("=")
                if self.peek() == "{":
                    inside = Block([key], self.line)
                    self.place += 1
                    if depth > _MOST_BRACKETS:
                        raise FormatError(self.path, self.line, "too deep", "expected less")
                    self._fill(inside, depth + 1)
                    block.parts.append(inside)
                else:
                    block.values[key] = self._value()
            else:
                block.parts.append(self.block(depth + 1))
        self.place += 1

    def _is_key(self) -> bool:
        return self.place + 1 < len(self.words) and self.words[self.place + 1][0] == "="

    def _value(self) -> list[str]:
        """Return the words of a value up to its semicolon, without brackets and commas."""
        found = []
        while self.peek() not in (";", "}"):
            word = self.next()
            if word not in "(),":
                found.append(word)
        return found


def _plain(word: str) -> str:
    return word[1:] if word.startswith('"') else word


# ---------------------------------------------------------------------- Hugin


def read_net(path: str, data: bytes) -> FactorGraph:
    """Read a directed model in Hugin's format; `path` is only for errors.

    >>> text = b'node c { states = ("h" "t"); } potential (c) { data = (0.5 0.5); }'
    >>> read_net("coin.net", text).states
    (('h', 't'),)
    """
    reader = NetworkReader(path)
    for block in _Scanner(path, decoded(path, data, "a .net file"), "%/").blocks():
        kind = block.head[0].lower() if block.head else ""
        if kind in ("net", "class"):
            continue
        if kind == "potential":
            _add_potential(reader, block)
        elif kind in ("node", "discrete") and block.head[-1] != kind:
            states = block.values.get("states")
            if states is None:
                raise reader.error(block.line, "found a node without states", "expected states")
            reader.variable(_plain(block.head[-1]), [_plain(s) for s in states], block.line)
        else:
            raise reader.error(
                block.line, f"found '{' '.join(block.head)[:40]}'", "expected node or potential"
            )
    return reader.graph()


def _add_potential(reader: NetworkReader, block: Block) -> None:
    words = [_plain(word) for word in block.head[1:] if word not in "(),"]
    bar = words.index("|") if "|" in words else len(words)
    if bar != 1:
        raise reader.error(
            block.line, f"found a potential of {bar} variables", "expected one before the bar"
        )
    data = block.values.get("data")
    numbers = None if data is None else reader.numbers(data, block.line)
    reader.table(words[0], words[bar + 1 :], numbers, block.line)


def net_text(graph: FactorGraph) -> Iterator[str]:
    """The text of a directed model for Hugin, in pieces; names become identifiers where needed."""
    writer = NetworkWriter(graph, "a .net file")
    names = identifiers(writer.names)
    warn_of_new_names("a .net file", [writer.names], [names])
    yield "net\n{\n}\n"
    for name, states in zip(names, writer.states, strict=True):
        listing = " ".join(map(_quoted, states))
        yield f"node {name}\n{{\n  states = ({listing});\n}}\n"
    for table in writer.tables():
        given = " | " + " ".join(names[v] for v in table.parents) if table.parents else ""
        shape = [len(writer.states[v]) for v in table.parents]
        rows = _nested(table.rows, shape)
        yield f"potential ({names[table.child]}{given})\n{{\n  data = {rows};\n}}\n"


def _nested(rows: list[list[float]], shape: list[int]) -> str:
    """Rows in brackets, with a pair of brackets for each parent."""
    pieces = [f"({' '.join(map(repr, row))})" for row in rows]
    for size in reversed(shape):
        pieces = [f"({' '.join(pieces[k : k + size])})" for k in range(0, len(pieces), size)]
    return pieces[0]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# ---------------------------------------------------------------------- GeNIe's older format


def read_dsl(path: str, data: bytes) -> FactorGraph:
    """Read a directed model in the older text format of GeNIe; `path` is only for errors.

    >>> text = b'''net n { node c { TYPE = CPT; HEADER = { ID = c; }; PARENTS = ();
    ... DEFINITION = { NAMESTATES = (h, t); PROBABILITIES = (0.5, 0.5); }; }; };'''
    >>> read_dsl("coin.dsl", text).names
    ('c',)
    """
    blocks = list(_Scanner(path, decoded(path, data, "a .dsl file"), "/").blocks())
    reader = NetworkReader(path)
    nets = [block for block in blocks if block.head and block.head[0].lower() == "net"]
    if len(nets) != 1:
        raise reader.error(None, f"found {len(nets)} networks", "expected one block net")
    for node in nets[0].parts:
        if not node.head or node.head[0].lower() != "node":
            continue  # layout of the drawing program
        kind = (node.values.get("type") or ["CPT"])[0].upper()
        if kind not in ("CPT", "CHANCE"):
            raise reader.error(node.line, f"found a node of kind {kind}", "expected CPT")
        name = _plain((node.first("id") or node.head[1:] or [""])[0])
        states = node.first("namestates") or []
        numbers = node.first("probabilities")
        reader.variable(name, [_plain(state) for state in states], node.line)
        parents = [_plain(parent) for parent in node.values.get("parents", [])]
        values = None if numbers is None else reader.numbers(numbers, node.line)
        reader.table(name, parents, values, node.line)
    return reader.graph()


def dsl_text(graph: FactorGraph) -> Iterator[str]:
    """The text of a directed model in GeNIe's older format, in pieces."""
    from kikuchi.graphs.formats.directed import parents_first

    writer = NetworkWriter(graph, "a .dsl file")
    names = identifiers(writer.names)
    states = [identifiers(group) for group in writer.states]
    warn_of_new_names("a .dsl file", [writer.names, *writer.states], [names, *states])
    yield "net unknown\n{\n"
    tables = {table.child: table for table in writer.tables()}
    for v in parents_first(writer.graph):  # some readers want parents first
        table = tables[v]
        name = names[table.child]
        listing = ", ".join(states[v])
        parents = ", ".join(names[u] for u in table.parents)
        numbers = ", ".join(repr(p) for row in table.rows for p in row)
        yield (
            f"  node {name}\n  {{\n    TYPE = CPT;\n    HEADER =\n    {{\n      ID = {name};\n"
            f"      NAME = {_quoted(writer.names[table.child])};\n    }};\n"
            f"    PARENTS = ({parents});\n    DEFINITION =\n    {{\n"
            f"      NAMESTATES = ({listing});\n      PROBABILITIES = ({numbers});\n    }};\n  }};\n"
        )
    yield "};\n"
