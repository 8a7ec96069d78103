"""The UAI format: `MARKOV` and `BAYES` networks as in the UAI inference competitions.

A file is words between white space: the kind of network, the number of variables, their numbers of
states, the number of factors, the scope of each factor (its size, then its variables) and then the
table of each factor (its size, then its entries, with the last variable of the scope varying
fastest). In a BAYES network the last variable of each scope is the child. `#` and `//` begin
comments.

pyAgrum writes the name of the child as a comment after each scope, and the parents in reverse
order: the first varies fastest in the table. For a MARKOV network it writes scopes in any order,
and the order of the table, first variable fastest, as a comment after its size. Such files are
recognised by these comments, and read as intended, with their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.errors import FormatError, ModelError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats import count_walks
from kikuchi.graphs.formats.directed import child_last, directed_cycle
from kikuchi.graphs.formats.kinds import INTEGER
from kikuchi.graphs.formats.layout import (
    first_repeat,
    text_pieces,
    too_many,
)
from kikuchi.graphs.formats.tokens import WEIGHT, Check, Tokens, is_weight, tokenise
from kikuchi.graphs.formats.weights import text_weights, with_room_for_constant

_HUGE = 2**62
_COMMENT = re.compile(rb"(?:#|//)[^\n]*+")
_AGRUM = re.compile(rb"^[0-9]++(?: [0-9]++)++   # (\S++)$", re.MULTILINE)
_AGRUM_MARKOV = re.compile(rb"^[0-9]++ # \{([0-9]++(?:, [0-9]++)*+)\}\s*$", re.MULTILINE)


def read_uai(path: str, data: bytes, *, compiled: bool | None = None) -> FactorGraph:
    """Read a network from the bytes of a file; `path` is only for errors.

    Factors without variables are folded into `log_constant`.

    >>> graph = read_uai("x.uai", b"MARKOV 2  2 2  1  2 0 1  4  1 2 3 4")
    >>> graph.table(0).round(12).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    written_by_agrum: list[bytes] = []
    if b"#" in data or b"//" in data:
        written_by_agrum = _AGRUM.findall(data) or _AGRUM_MARKOV.findall(data)
        data = _COMMENT.sub(lambda match: b" " * len(match[0]), data)
    graph = _read(tokenise(path, data, names=1, compiled=compiled))
    if len(written_by_agrum) != graph.n_factors:
        return graph
    if graph.is_directed:
        return _as_agrum_means(path, graph, written_by_agrum)
    return _in_agrum_order(graph, written_by_agrum)


def _as_agrum_means(path: str, graph: FactorGraph, comments: list[bytes]) -> FactorGraph:
    """Return the graph with the parents of each table reversed, and the names from the comments."""
    assert graph.children is not None  # checked by the caller
    scopes = graph.scopes.copy()
    for lo, hi in zip(graph.scope_offsets[:-1], graph.scope_offsets[1:], strict=True):
        scopes[lo : hi - 1] = scopes[lo : hi - 1][::-1].copy()
    names = [""] * graph.n_variables
    for child, comment in zip(graph.children.tolist(), comments, strict=True):
        names[child] = comment.decode("utf-8", "replace")
    if len(set(names)) < len(names):
        raise FormatError(path, None, "found a name twice in the comments", "expected each once")
    return graph.replaced(scopes=scopes, names=names)


def _in_agrum_order(graph: FactorGraph, comments: list[bytes]) -> FactorGraph:
    """Return the graph with scopes in the reverse order of the comments, if these contain the same
    variables; other comments have another meaning.
    """
    orders = [[int(v) for v in comment.split(b", ")][::-1] for comment in comments]
    if any(sorted(graph.scope(a)) != sorted(order) for a, order in enumerate(orders)):
        return graph
    flat = [v for order in orders for v in order]
    return graph.replaced(scopes=np.array(flat, dtype=graph.scopes.dtype))


def _read(tokens: Tokens) -> FactorGraph:
    directed = _read_kind(tokens)
    n = tokens.whole(1, "the number of variables")
    cards = _read_cardinalities(tokens, n)
    m = tokens.whole(2 + n, "the number of factors")
    scopes = _read_scopes(tokens, 3 + n, m, cards, directed)
    log_tables = _read_tables(tokens, scopes.following, scopes.sizes)
    children = _children(tokens, scopes, n) if directed else None
    empty = scopes.orders == 0
    constant = 0.0
    if empty.any():
        is_constant = np.repeat(empty, scopes.sizes.astype(np.int64))
        constant = float(log_tables[is_constant].sum())
        log_tables = log_tables[~is_constant]
    return FactorGraph.from_arrays(
        cards.astype(np.uint32),
        scopes.variables,
        np.concatenate([[0], np.cumsum(scopes.orders[~empty])]),
        log_tables,
        children=children,
        log_constant=constant,
        validate=False,
    )


def _read_kind(tokens: Tokens) -> bool:
    """True for BAYES."""
    expected = "MARKOV or BAYES, the kind of the network"
    kind = tokens.text(0).upper() if len(tokens) else ""
    if kind not in ("MARKOV", "BAYES"):
        raise tokens.error(0, expected)
    return kind == "BAYES"


def _read_cardinalities(tokens: Tokens, n: int) -> Array:
    cards = tokens.wholes(2, n, lambda v: f"the number of states of variable {v} of {n}", low=1)
    if too_many(float(cards.sum()), len(tokens)):
        largest = 2 + int(np.argmax(cards))
        raise tokens.error(largest, f"fewer states: the file holds only {len(tokens)} numbers")
    return cards


@dataclass(frozen=True)
class _Scopes:
    """The section of scopes: token, order and table size of each, and all their variables.

    Sizes are floats because they may be beyond all integers. `following` is the token after them.
    """

    starts: Ints
    orders: Ints
    sizes: Array
    variables: U4
    following: int


def _read_scopes(tokens: Tokens, first: int, m: int, cards: Array, directed: bool) -> _Scopes:
    low = 1 if directed else 0
    capacity = tokens.capacity(m, first)
    starts, sizes = np.empty(capacity, dtype=np.int64), np.empty(capacity)
    variables = np.empty(tokens.capacity(len(tokens), first), dtype=np.uint32)
    seen = np.full(len(cards), -1)
    found = count_walks.ScopeLists(starts, sizes, variables, seen)
    good, following, filled = tokens.walk(count_walks.scopes, cards, first, low, found)
    if good < m:
        _raise_bad_scope(tokens, following, good, m, low, len(cards))
    orders = np.diff(starts, append=following) - 1
    return _Scopes(starts, orders, sizes, variables[:filled].copy(), following)


def _raise_bad_scope(tokens: Tokens, token: int, factor: int, m: int, low: int, n: int) -> NoReturn:
    """Raise the error for the invalid scope that begins at `token`."""
    order = tokens.whole(token, f"the number of variables of factor {factor} of {m}", low, n)
    scope = tokens.wholes(
        token + 1, order, lambda k: f"variable {k + 1} of factor {factor}", 0, n - 1
    )
    again = first_repeat(scope)
    raise tokens.error(token + 1 + again, f"every variable once in the scope of factor {factor}")


def _read_tables(tokens: Tokens, first: int, sizes: Array) -> Array:
    """Logarithms of all tables, one after the other."""
    ends = first + np.cumsum(sizes + 1)
    whole = int(np.searchsorted(ends, len(tokens), side="right"))
    following = int(ends[whole - 1]) if whole else first
    counts = (ends[:whole] - sizes[:whole] - 1).astype(np.int64)
    values = tokens.values[first:following]
    is_count = np.zeros(following - first, dtype=bool)
    is_count[counts - first] = True
    good = is_weight(values)
    fits = (tokens.kinds[counts] == INTEGER) & (tokens.values[counts] == sizes[:whole])
    good[counts - first] = fits

    def expected(k: int) -> str:
        factor = int(np.searchsorted(counts, first + k, side="right")) - 1
        if is_count[k]:
            return f"{sizes[factor]:.0f}, the number of entries of factor {factor}"
        return f"entry {first + k - counts[factor] - 1} of factor {factor}, {WEIGHT}"

    tokens.require(Check(good, lambda k: first + k, expected))
    tables = values[~is_count]
    _check_zero_factors(tokens, tables, counts)
    if whole < len(sizes):
        _raise_bad_table(tokens, following, whole, sizes)
    tokens.end(following, f"the tables of {len(sizes)} factors")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(tables, out=tables))


def _check_zero_factors(tokens: Tokens, tables: Array, counts: Ints) -> None:
    if not len(counts):
        return
    # The tables are packed without their counts, one of which stands before each of them.
    starts = counts - counts[0] - np.arange(len(counts))
    dead = np.flatnonzero(np.maximum.reduceat(tables, starts) == 0)
    if dead.size:
        raise tokens.error(
            int(counts[dead[0]]),
            "a positive entry, for otherwise no state has any probability",
            f"factor {dead[0]} is zero everywhere",
        )


def _raise_bad_table(tokens: Tokens, token: int, factor: int, sizes: Array) -> NoReturn:
    """Raise the error for the invalid table that begins at `token`."""
    size = int(min(sizes[factor], _HUGE))
    what = f"the number of entries of factor {factor} of {len(sizes)}"
    tokens.whole(token, what, size, size)
    tokens.weights(token + 1, size, lambda k: f"entry {k} of factor {factor}")
    raise AssertionError("a valid table was rejected")


def _children(tokens: Tokens, scopes: _Scopes, n: int) -> U4:
    """The last variable of each scope, if these make a directed model."""
    children = scopes.variables[np.cumsum(scopes.orders) - 1]
    factor = first_repeat(children)
    if factor >= 0:
        token = int(scopes.starts[factor] + scopes.orders[factor])
        raise tokens.error(token, "a last variable that is not already the child of a factor")
    if len(children) < n:
        v = int(np.setdiff1d(np.arange(n), children)[0])
        raise FormatError(
            tokens.path,
            None,
            f"variable {v} is not the last variable of any factor",
            f"expected a table for each of the {n} variables of a BAYES network",
        )
    cycle = directed_cycle(children, scopes.variables, scopes.orders)
    if cycle:
        found = "found a cycle of parents: " + " -> ".join(map(str, cycle[:20]))
        raise FormatError(tokens.path, None, found, "expected a BAYES network without cycles")
    return children


# ---------------------------------------------------------------------- writing


def uai_text(graph: FactorGraph) -> Iterator[str]:
    """The text of a graph in pieces: BAYES with the child last if it is directed, else MARKOV.

    Names are lost. `log_constant` is multiplied into the first factor (see `weights`).

    >>> print("".join(uai_text(FactorGraph([2], [((0,), [0.5, 1.5])]))))
    MARKOV
    1
    2
    1
    1 0
    <BLANKLINE>
    2
    0.5 1.5
    <BLANKLINE>
    """
    if graph.is_directed and graph.log_constant != 0.0:
        raise ModelError("a BAYES network cannot have a constant factor; write .json instead")
    graph = child_last(graph) if graph.is_directed else with_room_for_constant(graph)
    weights = text_weights(graph)
    kind = "BAYES" if graph.is_directed else "MARKOV"
    cards = " ".join(map(str, graph.cardinalities.tolist()))
    yield f"{kind}\n{graph.n_variables}\n{cards}\n{graph.n_factors}\n"
    for _, scopes in text_pieces(graph.scopes, graph.scope_offsets):
        yield "".join(f"{len(scope)} {' '.join(scope)}\n" for scope in scopes)
    for _, tables in text_pieces(weights, graph.table_offsets):
        yield "".join(f"\n{len(table)}\n{' '.join(table)}\n" for table in tables)
