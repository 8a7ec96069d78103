"""Models in XML: XMLBIF (`.xmlbif`, `.bifxml`, `.xml`) and GeNIe's `.xdsl`.

The parser supports only the five predefined entities of XML: a file that declares its own raises an
error, which excludes entity expansion and external entities.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from kikuchi.core.errors import FormatError, ModelError
from kikuchi.core.files import require_room
from kikuchi.core.log import warn_caller
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats.network import NetworkReader, NetworkWriter

_BYTES_PER_LETTER = 40
_DEEPEST = 100
_NOT_KEPT = re.compile(
    "[\x00-\x08\x0b-\x1f\ufffe\uffff]"
)  # not allowed by XML, or read as another character


# ---------------------------------------------------------------------- the parser


@dataclass
class Element:
    """A part of an XML file: its tag in small letters, attributes, text, line and parts."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    parts: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """The parts of a kind."""
        return [part for part in self.parts if part.tag == tag]

    def words(self, tag: str) -> list[str]:
        """The texts of the parts of a kind."""
        return [part.text.strip() for part in self.all(tag)]


def parse_xml(path: str, data: bytes) -> Element:
    """The outermost element of a file.

    >>> parse_xml("a.xml", b"<a><b c='1'>x</b></a>").words("b")
    ['x']
    """
    require_room(path, _BYTES_PER_LETTER * len(data), "an XML file of this length")
    return _Parser(path).parse(data)


class _Parser:
    def __init__(self, path: str) -> None:
        self.path = path
        self.stack: list[Element] = []
        self.root: Element | None = None
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._refuse
        self.parser.ExternalEntityRefHandler = self._refuse
        self.parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def parse(self, data: bytes) -> Element:
        try:
            self.parser.Parse(data, True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            line = getattr(error, "lineno", None)
            why = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else error
            raise FormatError(self.path, line, f"found no XML ({why})", "expected XML") from None
        if self.root is None:
            raise FormatError(self.path, None, "the file is empty", "expected XML")
        return self.root

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag.lower(), attributes, self.line)
        if len(self.stack) >= _DEEPEST:
            raise FormatError(
                self.path, self.line, "elements are nested too deeply", "expected less"
            )
        if self.stack:
            self.stack[-1].parts.append(element)
        else:
            self.root = element
        self.stack.append(element)

    def _end(self, tag: str) -> None:
        self.stack.pop()

    def _text(self, text: str) -> None:
        if self.stack:
            self.stack[-1].text += text

    def _refuse(self, *_: Any) -> int:
        raise FormatError(
            self.path, self.line, "found an entity declaration", "expected none; write it out"
        )


# ---------------------------------------------------------------------- XMLBIF


def read_xmlbif(path: str, data: bytes) -> FactorGraph:
    """Read a directed model in XMLBIF; `path` is only for errors.

    >>> text = b'''<BIF><NETWORK><VARIABLE><NAME>c</NAME><OUTCOME>h</OUTCOME><OUTCOME>t</OUTCOME>
    ... </VARIABLE><DEFINITION><FOR>c</FOR><TABLE>0.5 0.5</TABLE></DEFINITION></NETWORK></BIF>'''
    >>> read_xmlbif("coin.xmlbif", text).states
    (('h', 't'),)
    """
    root = parse_xml(path, data)
    networks = [root] if root.tag == "network" else root.all("network")
    if len(networks) != 1:
        found = f"found <{root.tag}> with {len(networks)} networks"
        raise FormatError(path, root.line, found, "expected <BIF> with one <NETWORK>")
    reader = NetworkReader(path)
    for part in networks[0].all("variable"):
        kind = part.attributes.get("TYPE", "nature").lower()
        if kind != "nature":
            raise reader.error(part.line, f"found a {kind} node", "expected chance nodes only")
        reader.variable(_only(reader, part, "name"), part.words("outcome"), part.line)
    for tag in ("definition", "probability"):
        for part in networks[0].all(tag):
            tables = part.words("table")
            if len(tables) > 1:
                raise reader.error(part.line, "found two tables", "expected one <TABLE>")
            child = _only(reader, part, "for")
            numbers = reader.numbers(tables[0].split(), part.line) if tables else None
            reader.table(child, part.words("given"), numbers, part.line)
    return reader.graph()


def _only(reader: NetworkReader, part: Element, tag: str) -> str:
    found = part.words(tag)
    if len(found) != 1 or not found[0]:
        raise reader.error(
            part.line, f"found {len(found)} <{tag.upper()}> in <{part.tag.upper()}>", "expected one"
        )
    return found[0]


def xmlbif_text(graph: FactorGraph) -> Iterator[str]:
    """The text of a directed model in XMLBIF, in pieces."""
    writer = NetworkWriter(graph, "XMLBIF")
    for name in writer.names:
        _require_kept(name, empty=False)
    for states in writer.states:
        for state in states:
            _require_kept(state, empty=True)
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<BIF VERSION="0.3">\n<NETWORK>\n'
    yield "<NAME>unknown</NAME>\n"
    for name, states in zip(writer.names, writer.states, strict=True):
        outcomes = "".join(f"  <OUTCOME>{escape(state)}</OUTCOME>\n" for state in states)
        yield f'<VARIABLE TYPE="nature">\n  <NAME>{escape(name)}</NAME>\n{outcomes}</VARIABLE>\n'
    for table in writer.tables():
        given = "".join(f"  <GIVEN>{escape(writer.names[v])}</GIVEN>\n" for v in table.parents)
        rows = "".join(f"    {' '.join(map(repr, row))}\n" for row in table.rows)
        yield (
            f"<DEFINITION>\n  <FOR>{escape(writer.names[table.child])}</FOR>\n{given}"
            f"  <TABLE>\n{rows}  </TABLE>\n</DEFINITION>\n"
        )
    yield "</NETWORK>\n</BIF>\n"


def _require_kept(name: str, *, empty: bool) -> None:
    """Raise an error for a name that a reader would change, or that XML cannot represent."""
    if _NOT_KEPT.search(name) or name != name.strip() or not (name or empty):
        raise ModelError(
            f"the name {name!r} cannot be written in an XMLBIF file; rename it or write .json"
        )


# ---------------------------------------------------------------------- GeNIe

_READ_NODES = ("cpt", "deterministic")
_AGRUM = re.compile(rb'app="aGrUM|created by pyAgrum')


def read_xdsl(path: str, data: bytes) -> FactorGraph:
    """Read a model of GeNIe: nodes of kind `cpt` and `deterministic`; `path` is only for errors.

    pyAgrum writes the parents of a node in the reverse order of its numbers; its files are
    recognised and read as intended.

    >>> text = b'''<smile><nodes><cpt id="c"><state id="h"/><state id="t"/>
    ... <probabilities>0.5 0.5</probabilities></cpt></nodes></smile>'''
    >>> read_xdsl("coin.xdsl", text).names
    ('c',)
    """
    root = parse_xml(path, data)
    groups = root.all("nodes")
    if root.tag != "smile" or len(groups) != 1:
        raise FormatError(path, root.line, f"found <{root.tag}>", "expected <smile> with <nodes>")
    reader = NetworkReader(path)
    reversed_parents = _AGRUM.search(data) is not None
    nodes = groups[0].parts
    for node in nodes:
        if node.tag not in _READ_NODES:
            raise reader.error(
                node.line, f"found a node of kind {node.tag}", "expected cpt or deterministic"
            )
        states = [state.attributes.get("id", "") for state in node.all("state")]
        reader.variable(node.attributes.get("id", ""), states, node.line)
    for node in nodes:
        parents = " ".join(node.words("parents")).split()
        if reversed_parents:
            parents.reverse()
        name = node.attributes.get("id", "")
        numbers = None
        if node.tag == "cpt":
            words = " ".join(node.words("probabilities")).split()
            numbers = reader.numbers(words, node.line)
        else:
            numbers = _determined(reader, node, name)
        reader.table(name, parents, numbers, node.line)
    return reader.graph()


def _determined(reader: NetworkReader, node: Element, name: str) -> Any:
    """Return the 0/1 table of the state determined by each joint state of the parents."""
    states = reader.states[name]
    words = " ".join(node.words("resultingstates")).split()
    rows = []
    for word in words:
        if word not in states:
            expected = f"expected one of {', '.join(states)}"
            raise reader.error(node.line, f"'{word[:40]}' is not a state of '{name}'", expected)
        rows.append([float(word == state) for state in states])
    return np.array(rows).ravel()


def xdsl_text(graph: FactorGraph) -> Iterator[str]:
    """The text of a directed model for GeNIe, in pieces; names become identifiers where needed.

    pyAgrum rejects a file without the element `extensions`, and reads the parents of a node in the
    reverse order of GeNIe. This element, with the original names, is therefore written only if no
    node has two parents: no file with such a node is correct for both programs.
    """
    from kikuchi.graphs.formats.directed import parents_first

    writer = NetworkWriter(graph, "an .xdsl file")
    names = identifiers(writer.names)
    states = [identifiers(group) for group in writer.states]
    warn_of_new_names("an .xdsl file", [writer.names, *writer.states], [names, *states])
    tables = {table.child: table for table in writer.tables()}
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<smile version="1.0" id="unknown">\n  <nodes>\n'
    for v in parents_first(writer.graph):
        parts = "".join(f"      <state id={quoteattr(state)} />\n" for state in states[v])
        if tables[v].parents:
            parts += f"      <parents>{' '.join(names[u] for u in tables[v].parents)}</parents>\n"
        numbers = " ".join(repr(p) for row in tables[v].rows for p in row)
        parts += f"      <probabilities>{numbers}</probabilities>\n"
        yield f"    <cpt id={quoteattr(names[v])}>\n{parts}    </cpt>\n"
    yield "  </nodes>\n"
    if all(len(table.parents) < 2 for table in tables.values()):
        yield '  <extensions>\n    <genie version="1.0" app="kikuchi" name="unknown">\n'
        for identifier, name in zip(names, writer.names, strict=True):
            shown = escape(_NOT_KEPT.sub("_", name))
            yield f"      <node id={quoteattr(identifier)}><name>{shown}</name></node>\n"
        yield "    </genie>\n  </extensions>\n"
    yield "</smile>\n"


def identifiers(names: list[str]) -> list[str]:
    """Return names as words without spaces and signs, each different.

    >>> identifiers(["a b", "a_b", "1"])
    ['a_b', 'a_b_1', '1']
    """
    found: dict[str, str] = {}
    tails: dict[str, int] = {}
    for name in names:
        start = word = re.sub(r"\W", "_", name) or "_"
        while word in found:
            tails[start] = tails.get(start, 0) + 1
            word = f"{start}_{tails[start]}"
        found[word] = name
    return list(found)


def warn_of_new_names(what: str, old: list[list[str]], new: list[list[str]]) -> None:
    """Warn that a file contains other names than the model, with the first three of them."""
    pairs = [
        (name, word)
        for names, words in zip(old, new, strict=True)
        for name, word in zip(names, words, strict=True)
        if name != word
    ]
    if not pairs:
        return
    listing = ", ".join(f"{name!r} as {word!r}" for name, word in dict(pairs[:3]).items())
    warn_caller(
        f"{what} allows identifiers only: {len(pairs)} names of variables or states are written "
        f"differently ({listing}); write .json, .bif or .xmlbif to keep them",
    )
