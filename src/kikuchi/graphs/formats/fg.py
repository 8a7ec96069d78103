"""libDAI's factor graph format, `.fg`.

A file begins with the number of factors. Each factor is: its number of variables, their labels,
their numbers of states, the number of listed entries, and that many lines "index value". The first
variable varies fastest in the index (in kikuchi's tables the last one does). Entries that are not
listed are zero. Everything from a `#` to the end of its line is a comment.

Labels need not be 0, 1, 2, ...: variables are numbered in the order of their labels, and if the
labels have gaps, they become the names of the variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

import numpy as np

from kikuchi.core import numerics
from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.files import require_room
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats import count_walks
from kikuchi.graphs.formats.kinds import INTEGER
from kikuchi.graphs.formats.layout import (
    first_repeat,
    ragged,
    repeated_variable,
    reverse_layout,
    table_sizes,
    text_pieces,
    too_many,
)
from kikuchi.graphs.formats.tokens import (
    LARGEST_COUNT,
    WEIGHT,
    Check,
    Tokens,
    is_weight,
    tokenise,
)
from kikuchi.graphs.formats.weights import text_weights, with_room_for_constant, with_units

_COMMENT = re.compile(rb"#[^\n]*")
_LARGEST_LABEL = 2**53 - 1
_BYTES_PER_ENTRY = 48  # of a table, its copies and the places in it, as measured


def read_fg(path: str, data: bytes, *, compiled: bool | None = None) -> FactorGraph:
    """Read a factor graph from the bytes of a file; `path` is only for errors.

    >>> graph = read_fg("x.fg", b"1  2  0 1  2 2  3  0 1.0  1 2.0  3 4.0")
    >>> graph.table(0).round(12).tolist()
    [[1.0, 0.0], [2.0, 4.0]]
    """
    if b"#" in data:
        data = _COMMENT.sub(b"", data)
    tokens = tokenise(path, data, compiled=compiled)
    m = tokens.whole(0, "the number of factors")
    blocks = _read_blocks(tokens, m)
    labels, scopes = _number_variables(tokens, blocks)
    cards = _cardinalities(tokens, blocks, scopes, len(labels))
    tables = _read_entries(tokens, blocks, cards, scopes)
    empty = blocks.orders == 0
    sizes = table_sizes(cards, scopes, blocks.orders).astype(np.int64)
    constant = np.repeat(empty, sizes)
    log_tables = numerics.log(tables)
    gaps = len(labels) > 0 and int(labels[-1]) != len(labels) - 1
    return FactorGraph.from_arrays(
        cards.astype(np.uint32),
        scopes,
        np.concatenate([[0], np.cumsum(blocks.orders[~empty])]),
        log_tables[~constant],
        names=[str(label) for label in labels.tolist()] if gaps else None,
        log_constant=float(log_tables[constant].sum()),
        validate=False,
    )


@dataclass(frozen=True)
class _Blocks:
    """The factors of a file: first token, order and number of listed entries of each."""

    starts: Ints
    orders: Ints
    listed: Ints

    @property
    def labels(self) -> Ints:
        """Tokens of all labels, in file order."""
        return ragged(self.starts + 1, self.orders)

    @property
    def cardinalities(self) -> Ints:
        """Tokens of all numbers of states, parallel to `labels`."""
        return ragged(self.starts + 1 + self.orders, self.orders)

    @property
    def counts(self) -> Ints:
        """Token of the number of listed entries of each factor."""
        return self.starts + 1 + 2 * self.orders

    @property
    def indices(self) -> Ints:
        """Tokens of all indices; the value of each is the next token."""
        pairs = ragged(np.zeros_like(self.listed), self.listed)
        return np.repeat(self.counts + 1, self.listed) + 2 * pairs

    def owner(self, token: int) -> int:
        """The factor to which a token belongs."""
        return int(np.searchsorted(self.starts, token, side="right")) - 1


def _read_blocks(tokens: Tokens, m: int) -> _Blocks:
    starts = np.empty(tokens.capacity(m, 1), dtype=np.int64)
    good, following = tokens.walk(count_walks.block_starts, 1, starts)
    starts = starts[:good]
    orders = tokens.values[starts].astype(np.int64)
    listed = tokens.values[starts + 1 + 2 * orders].astype(np.int64)
    blocks = _Blocks(starts, orders, listed)
    _check_numbers(tokens, blocks, m)
    if good < m:
        _raise_bad_block(tokens, following, good, m)
    tokens.end(following, f"{m} factors")
    return blocks


def _check_numbers(tokens: Tokens, blocks: _Blocks, m: int) -> None:
    """Counts, labels and indices are whole numbers, values are weights."""
    labels, cards, counts = blocks.labels, blocks.cardinalities, blocks.counts
    indices = blocks.indices
    values, whole = tokens.values, tokens.kinds == INTEGER

    def of(what: str, places: Ints) -> Check:
        return Check(
            whole[places],
            lambda k: int(places[k]),
            lambda k: f"{what} of factor {blocks.owner(int(places[k]))}, a whole number",
        )

    tokens.require(
        of("the number of variables", blocks.starts),
        Check(
            whole[labels] & (values[labels] <= _LARGEST_LABEL),
            lambda k: int(labels[k]),
            lambda k: f"a label of factor {blocks.owner(int(labels[k]))}, a whole number",
        ),
        Check(
            whole[cards] & (values[cards] >= 1) & (values[cards] <= LARGEST_COUNT),
            lambda k: int(cards[k]),
            lambda k: (
                f"a number of states of factor {blocks.owner(int(cards[k]))}, a whole number >= 1"
            ),
        ),
        of("the number of entries", counts),
        of("an index", indices),
        Check(
            is_weight(values[indices + 1]),
            lambda k: int(indices[k]) + 1,
            lambda k: f"an entry of factor {blocks.owner(int(indices[k]))}, {WEIGHT}",
        ),
    )


def _raise_bad_block(tokens: Tokens, token: int, factor: int, m: int) -> NoReturn:
    """Raise the error for the incomplete factor that begins at `token`."""
    of = f"of factor {factor} of {m}"
    order = tokens.whole(token, f"the number of variables {of}")
    tokens.wholes(token + 1, order, lambda k: f"label {k} {of}", high=_LARGEST_LABEL)
    tokens.wholes(token + 1 + order, order, lambda k: f"number of states {k} {of}", low=1)
    count = token + 1 + 2 * order
    listed = tokens.whole(count, f"the number of entries {of}")
    indices, entries = slice(count + 1, None, 2), slice(count + 2, None, 2)
    tokens.require(
        Check(
            tokens.kinds[indices] == INTEGER,
            lambda k: count + 1 + 2 * k,
            lambda k: f"index {k} {of}, a whole number",
        ),
        Check(
            is_weight(tokens.values[entries]),
            lambda k: count + 2 + 2 * k,
            lambda k: f"entry {k} {of}, {WEIGHT}",
        ),
    )
    raise tokens.error(len(tokens), f"{listed} listed entries {of}")


def _number_variables(tokens: Tokens, blocks: _Blocks) -> tuple[Ints, U4]:
    """The labels in rising order, and the scopes in numbers of variables."""
    places = blocks.labels
    labels, scopes = np.unique(tokens.values[places].astype(np.int64), return_inverse=True)
    numbers = scopes.ravel().astype(np.uint32)
    twice = repeated_variable(numbers, blocks.orders)
    if twice is not None:
        token = int(blocks.starts[twice[0]]) + 1 + twice[1]
        raise tokens.error(token, f"every label once in factor {twice[0]}")
    return labels, numbers


def _cardinalities(tokens: Tokens, blocks: _Blocks, scopes: U4, n: int) -> Array:
    places = blocks.cardinalities
    given = tokens.values[places]
    cards = np.zeros(n)
    cards[scopes[::-1]] = given[::-1]  # the first mention counts

    def expected(k: int) -> str:
        label = tokens.text(int(blocks.labels[k]))
        return f"{cards[scopes[k]]:.0f} states of variable {label}, as in the factors before"

    tokens.require(Check(given == cards[scopes], lambda k: int(places[k]), expected))
    return cards


def _read_entries(tokens: Tokens, blocks: _Blocks, cards: Array, scopes: U4) -> Array:
    """All tables, one after the other, last variable fastest."""
    sizes = table_sizes(cards, scopes, blocks.orders)
    if too_many(float(sizes.sum()), len(tokens)):
        factor = int(np.argmax(sizes))
        found = f"factor {factor} has {sizes[factor]:.3g} entries"
        reason = f"fewer entries: the file holds only {len(tokens)} numbers"
        raise tokens.error(int(blocks.starts[factor]), reason, found)
    require_room(tokens.path, _BYTES_PER_ENTRY * float(sizes.sum()), "a model with such tables")
    places = blocks.indices
    index = tokens.values[places]
    limits = np.repeat(sizes, blocks.listed)

    def expected(k: int) -> str:
        return f"an index of factor {blocks.owner(int(places[k]))} in 0..{limits[k] - 1:.0f}"

    tokens.require(Check(index < limits, lambda k: int(places[k]), expected))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    targets = np.repeat(offsets[:-1], blocks.listed) + index.astype(np.int64)
    _check_repeated_entries(tokens, blocks, targets, int(offsets[-1]))
    tables = np.zeros(int(offsets[-1]))
    tables[targets] = tokens.values[places + 1]
    _check_zero_factors(tokens, blocks, tables, offsets)
    return reverse_layout(tables, cards, scopes, blocks.orders, to_last_fastest=True)


def _check_repeated_entries(tokens: Tokens, blocks: _Blocks, targets: Ints, size: int) -> None:
    given = np.zeros(size, dtype=bool)
    given[targets] = True
    if np.count_nonzero(given) == len(targets):
        return
    token = int(blocks.indices[first_repeat(targets)])
    raise tokens.error(token, f"every index once in factor {blocks.owner(token)}")


def _check_zero_factors(tokens: Tokens, blocks: _Blocks, tables: Array, offsets: Ints) -> None:
    if not len(blocks.starts):
        return
    dead = np.flatnonzero(np.maximum.reduceat(tables, offsets[:-1]) == 0)
    if dead.size:
        raise tokens.error(
            int(blocks.starts[dead[0]]),
            "a positive entry, for otherwise no state has any probability",
            f"factor {dead[0]} is zero everywhere",
        )


# ---------------------------------------------------------------------- writing


def fg_text(graph: FactorGraph) -> Iterator[str]:
    """The text of a graph in pieces; only entries that are not zero are listed.

    The format knows variables from factors only, so a variable that is in none gets a factor of
    ones. `log_constant` is multiplied into the first factor; which variables are children is lost.

    >>> print("".join(fg_text(FactorGraph([2], [((0,), [0.5, 0.0])]))))
    1
    <BLANKLINE>
    1
    0
    2
    1
    0 0.5
    <BLANKLINE>
    """
    graph = with_room_for_constant(graph)
    graph = with_units(graph, np.setdiff1d(np.arange(graph.n_variables), graph.scopes))
    labels, cards = _labels(graph), list(map(str, graph.cardinalities.tolist()))
    orders = np.diff(graph.scope_offsets)
    weights = reverse_layout(
        text_weights(graph), graph.cardinalities, graph.scopes, orders, to_last_fastest=False
    )
    yield f"{graph.n_factors}\n"
    tables = text_pieces(weights, graph.table_offsets)
    scopes = text_pieces(graph.scopes, graph.scope_offsets)
    for (_, scope_piece), (_, table_piece) in zip(scopes, tables, strict=True):
        pairs = zip(scope_piece, table_piece, strict=True)
        yield "".join(_factor_text(scope, table, labels, cards) for scope, table in pairs)


def _factor_text(scope: list[str], table: list[str], labels: list[str], cards: list[str]) -> str:
    variables = [int(v) for v in scope]
    entries = [f"{k} {weight}\n" for k, weight in enumerate(table) if weight != "0.0"]
    names = " ".join(labels[v] for v in variables)
    shape = " ".join(cards[v] for v in variables)
    return f"\n{len(scope)}\n{names}\n{shape}\n{len(entries)}\n{''.join(entries)}"


def _labels(graph: FactorGraph) -> list[str]:
    """Names that are rising whole numbers are labels, as reading made them; else 0, 1, 2, ..."""
    names = graph.names or ()
    if names and all(re.fullmatch("0|[1-9][0-9]{0,14}", name) for name in names):
        numbers = [int(name) for name in names]
        if all(a < b for a, b in pairwise(numbers)):
            return list(names)
    return [str(v) for v in range(graph.n_variables)]
