"""Graphs from data: the maximum-likelihood tree, added edges, grown cliques.

Reference: TEH-E11, TEH-L19, TEH-M27.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, FormatError, KikuchiError, ModelError
from kikuchi.core.files import guarded_reading, read_text
from kikuchi.core.seeds import Seed, generator
from kikuchi.core.text import is_whole
from kikuchi.graphs.elimination import Order, eliminate
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.junction_tree import Clique, junction_tree
from kikuchi.graphs.regions.junction import grow_greedily
from kikuchi.learning.data import Data

Edge = tuple[int, int]

GRAPH_TEXTS: dict[str, str] = {
    "chow-liu": "the tree of greatest likelihood",
    "hill-climb:SCORE": "a directed structure of high score: bic, aic or bdeu",
    "pc": "a directed structure by tests of independence",
    "grid:RxC": "a grid with the columns of the data row by row, such as grid:8x8",
    "EDGES.csv": "a file with two columns: pairs of variables by name or number",
    "MODEL": "a model file; its tables are where learning starts",
}
"""What `graph_from_text` understands, each with a few words."""

_NO_GAIN = 1e-12  # nats: less mutual information than this is none
_MOST_PAIRS = 2**27  # entries of the table of all pairs of states


# ---------------------------------------------------------------------- mutual information


def pair_tables(data: Data, smoothing: float = 0.0) -> Array:
    """Weights of all pairs of states: entry (state of i, state of j) of a square matrix.

    The states of variable i begin at sum of the cardinalities before i. Rows that miss one of two
    variables do not count for that pair. `smoothing` rows are spread over all states.
    """
    at = np.concatenate([[0], np.cumsum(data.cardinalities)])
    total = int(at[-1])
    if total**2 > _MOST_PAIRS:
        raise DataError(f"data: {total} states of all variables are too many for a table of pairs")
    rows, columns = np.nonzero(data.states >= 0)
    one_hot = np.zeros((data.n_rows, total))
    one_hot[rows, at[columns] + data.states[rows, columns]] = 1.0
    counts = (one_hot * data.weights[:, None]).T @ one_hot
    if smoothing > 0:
        uniform = 1.0 / np.repeat(data.cardinalities, data.cardinalities)
        spread = smoothing * np.outer(uniform, uniform)
        for i in range(data.n_variables):
            block = slice(at[i], at[i + 1])
            spread[block, block] = smoothing * np.diag(uniform[block])
        counts += spread
    return np.asarray(counts)


def mutual_information(data: Data | ArrayLike, smoothing: float = 0.0) -> Array:
    """Mutual information of all pairs of variables in nats; the diagonal is their entropy.

    `data` are complete rows; `smoothing` is added to every count of a pair of states.

    >>> mutual_information([[0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]]).round(6).tolist()[0]
    [0.693147, 0.693147, 0.0]
    """
    rows = Data.of(data)
    counts = pair_tables(rows, smoothing)
    at = np.concatenate([[0], np.cumsum(rows.cardinalities)]).astype(np.int64)[:-1]
    weight = np.add.reduceat(np.add.reduceat(counts, at, axis=0), at, axis=1)

    def summed(entropies: Array) -> Array:
        return np.add.reduceat(np.add.reduceat(entropies, at, axis=0), at, axis=1)

    def log_terms(x: Array) -> Array:
        return x * np.log(np.where(x > 0, x, 1.0))

    one = np.add.reduceat(counts, at, axis=1)  # weight of a state in rows that observe j as well
    marginal = np.add.reduceat(log_terms(one), at, axis=0)
    terms = summed(log_terms(counts)) - marginal - marginal.T + log_terms(weight)
    found = np.divide(terms, weight, out=np.zeros_like(terms), where=weight > 0)
    return np.maximum(found, 0.0)


# ---------------------------------------------------------------------- trees


def chow_liu(
    data: Data | ArrayLike, *, smoothing: float = 0.0, graph: FactorGraph | None = None
) -> FactorGraph:
    """The tree whose likelihood is greatest among all trees, with fitted tables.

    A maximum-weight spanning tree of the mutual informations; ties go to the lower numbers, and
    pairs that are independent in the data stay apart. The tables are frequencies of the first
    variable of each part, and conditional frequencies p(j | i) along the edges. With a `graph` its
    variables are used (its factors are not), so that states which never occur are known.

    `data` are complete rows; `smoothing` is added to every count of a pair of states.

    >>> tree = chow_liu([[0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 0]])
    >>> [tree.scope(a) for a in range(tree.n_factors)]
    [(0,), (0, 1), (0, 2)]
    >>> tree.table(2).round(6).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    rows = _checked_rows(Data.of(data, graph))
    edges = spanning_tree(mutual_information(rows, smoothing))
    counts = pair_tables(rows, smoothing)
    at = np.concatenate([[0], np.cumsum(rows.cardinalities)]).astype(np.int64)
    children = {j for _, j in edges}
    factors: list[tuple[tuple[int, ...], Array]] = []
    for v in range(rows.n_variables):
        if v not in children:
            own = np.diag(counts[at[v] : at[v + 1], at[v] : at[v + 1]])
            factors.append(((v,), own / own.sum()))
    for i, j in edges:
        pair = counts[at[i] : at[i + 1], at[j] : at[j + 1]]
        given = pair.sum(axis=1, keepdims=True)
        uniform = np.full_like(pair, 1.0 / pair.shape[1])  # for a state that never occurs
        factors.append(((i, j), np.divide(pair, given, out=uniform, where=given > 0)))
    return FactorGraph(rows.cardinalities, factors, names=rows.names, states=rows.state_names)


def spanning_tree(weights: Array) -> list[Edge]:
    """Edges (parent, child) of a maximum-weight spanning forest, by Prim's rule from variable 0.

    >>> spanning_tree(np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0.0]]))
    [(0, 2), (2, 1)]
    """
    n = len(weights)
    best, above = np.full(n, -np.inf), np.zeros(n, dtype=np.int64)
    outside = np.ones(n, dtype=bool)
    edges: list[Edge] = []
    for _ in range(n):
        v = int(np.argmax(np.where(outside, best, -np.inf)))
        if best[v] > _NO_GAIN:
            edges.append((int(above[v]), v))
        else:
            v = int(np.flatnonzero(outside)[0])  # a new part begins
        outside[v] = False
        nearer = outside & (weights[v] > best)
        best[nearer], above[nearer] = weights[v][nearer], v
    return edges


def random_augmentation(
    tree: FactorGraph, *, share: float = 0.05, distance: int = 6, seed: Seed = 0
) -> FactorGraph:
    """A graph with a random `share` of the pairs of variables that are near in it.

    Near are pairs that are no edge and at most `distance` edges apart. What the graph has stays as
    it is; the new factors are tables of ones.

    `tree` is the graph to begin with, `seed` that of the draw.

    >>> chain = FactorGraph([2] * 5, [((i, i + 1), np.ones(4)) for i in range(4)])
    >>> more = random_augmentation(chain, share=0.5, distance=2, seed=1)
    >>> more.n_factors - chain.n_factors
    2
    """
    if not 0 <= share <= 1 or distance < 1:
        raise ModelError(
            f"random_augmentation: share must be in [0, 1] and distance at least 1, got {share} "
            f"and {distance}"
        )
    pairs = _pairs_within(tree, distance)
    count = round(share * len(pairs))
    if not count:
        return tree
    chosen = generator(seed).choice(len(pairs), size=count, replace=False)
    return with_edges(tree, [pairs[k] for k in sorted(chosen.tolist())])


def _pairs_within(graph: FactorGraph, distance: int) -> list[Edge]:
    """Pairs that share no factor and are at most so many edges apart, in order."""
    edges = graph.pairs().astype(np.int64)
    near: list[set[int]] = [set() for _ in range(graph.n_variables)]
    for i, j in edges.tolist():
        near[i].add(j)
        near[j].add(i)
    found = []
    for start in range(graph.n_variables):
        seen, ring = {start}, {start}
        for _ in range(distance):
            ring = set().union(*(near[v] for v in ring)) - seen
            seen |= ring
        found += [(start, v) for v in sorted(seen - near[start]) if v > start]
    return found


def with_edges(graph: FactorGraph, edges: Sequence[Edge]) -> FactorGraph:
    """The graph with a table of ones for each of some pairs of variables."""
    cards = graph.cardinalities.astype(np.int64)
    sizes = [int(cards[i] * cards[j]) for i, j in edges]
    ends = graph.scope_offsets[-1] + 2 * np.arange(1, len(edges) + 1)
    return graph.replaced(
        scopes=np.append(graph.scopes, np.array(edges, dtype=np.uint32).ravel()),
        scope_offsets=np.append(graph.scope_offsets, ends),
        log_tables=np.append(graph.log_tables, np.zeros(sum(sizes))),
        children=None,
        validate=True,
    )


# ---------------------------------------------------------------------- growing cliques


def grow_cliques(
    graph: FactorGraph, data: Data | ArrayLike, *, order: Order = "min-degree"
) -> Iterator[tuple[int, list[Clique]]]:
    """Cliques for junction graphs, from the factors to the junction tree.

    Each step adds one variable to one clique, so that it stays inside a clique of the junction tree
    and the mutual information of pairs that come together for the first time is greatest; without
    such pairs the smallest clique grows. Cliques inside others are dropped. Cliques grow to at most
    2 variables (or the largest factor), then 3, and so on; yields (most variables, cliques) each
    time when none can grow further. The last are those of the junction tree, all of them.

    `graph` is the model, `data` give the mutual informations, `order` is the elimination order of
    the junction tree.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones(4)) for i in range(4)])
    >>> rows = [[0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 0, 0], [1, 0, 1, 0]]
    >>> [(size, len(cliques)) for size, cliques in grow_cliques(square, rows)]
    [(2, 4), (3, 2)]
    """
    growth = _CliqueGrowth(graph, mutual_information(Data.of(data, graph)), order)
    most = max(map(len, growth.cliques.values()))
    while most < growth.widest:
        yield most, growth.sorted()
        most += 1
        if most < growth.widest:
            growth.grow(most)
    yield most, growth.junction_tree


class _CliqueGrowth:
    """Cliques that are alive, pairs that are together, and the cliques that limit both."""

    def __init__(self, graph: FactorGraph, information: Array, order: Order) -> None:
        self.information = information.tolist()
        self.junction_tree = sorted(junction_tree(eliminate(graph, order)).cliques)
        limits = [frozenset(c) for c in self.junction_tree]
        self.widest = max(map(len, limits))
        self.limits_with: list[set[frozenset[int]]] = [set() for _ in range(graph.n_variables)]
        for limit in limits:
            for v in limit:
                self.limits_with[v].add(limit)
        scopes = {frozenset(graph.scope(a)) for a in range(graph.n_factors)}
        scopes |= {frozenset([v]) for v in range(graph.n_variables)}
        tops = [s for s in sorted(scopes, key=sorted) if not any(s < other for other in scopes)]
        self.cliques = dict(enumerate(tops))
        self.together = {(i, j) for c in tops for i in c for j in c}
        self.count = len(tops)

    def sorted(self) -> list[Clique]:
        return sorted(tuple(sorted(c)) for c in self.cliques.values())

    def grow(self, most: int) -> None:
        """Grow, the greatest gain first, until no clique of fewer than `most` variables can."""
        grow_greedily(self.cliques, partial(self._best, most), self._extend)

    def _best(self, most: int, k: int) -> tuple[float, int, int, int] | None:
        """(-gain, size, clique, variable) of the best extension of a clique."""
        clique = self.cliques[k]
        if len(clique) >= most:
            return None
        around = set.intersection(*(self.limits_with[v] for v in clique))
        fitting = frozenset().union(*around) - clique
        return min(((-self._gain(clique, v), len(clique), k, v) for v in fitting), default=None)

    def _gain(self, clique: frozenset[int], v: int) -> float:
        own = self.information[v]
        return float(sum(own[u] for u in sorted(clique) if (u, v) not in self.together))

    def _extend(self, k: int, v: int) -> int:
        """Put a variable into a clique; answers the number of the new clique."""
        grown = self.cliques[k] | {v}
        self.together |= {(u, v) for u in grown} | {(v, u) for u in grown}
        for j in [j for j, clique in self.cliques.items() if clique <= grown]:
            del self.cliques[j]
        self.cliques[self.count] = grown
        self.count += 1
        return self.count - 1


# ---------------------------------------------------------------------- texts


def graph_from_text(text: str, data: Data | ArrayLike, *, smoothing: float = 0.0) -> FactorGraph:
    """The graph that `--graph` names, over the variables of the data (`GRAPH_TEXTS`).

    `text` is a name or a file, `data` are the rows, `smoothing` is added to the counts where a text
    fits tables.

    >>> rows = [[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]]
    >>> graph_from_text("grid:2x2", rows)
    FactorGraph(4 variables, 8 factors, 24 table entries)
    """
    rows = _checked_rows(Data.of(data))
    word = text.strip()
    name = word.lower()
    if name == "chow-liu":
        tree = chow_liu(rows, smoothing=smoothing)
        # What no row shows is not impossible: learning starts flat where the tables have zeros.
        zeros = np.isneginf(tree.log_tables).any()
        return tree.with_log_tables(np.zeros_like(tree.log_tables)) if zeros else tree
    if name == "pc" or name.partition(":")[0] == "hill-climb":
        return _directed(name, rows, smoothing)
    if name.startswith("grid"):
        return _pairwise(rows, _grid_edges(word, rows.n_variables))
    if re.sub(r"\.gz$", "", name).endswith((".csv", ".tsv")):
        return _pairwise(rows, read_edges(word, rows))
    if not Path(word).is_file():
        known = ", ".join(GRAPH_TEXTS)
        raise ModelError(f"there is no graph '{text}' and no such file; known: {known}")
    from kikuchi.graphs.formats import read

    return read(word)


def _directed(name: str, rows: Data, smoothing: float) -> FactorGraph:
    """A directed structure with its tables of frequencies, none of them zero."""
    from kikuchi.learning.structure.hill_climb import hill_climb
    from kikuchi.learning.structure.pc import pc

    pseudo_count = smoothing if smoothing > 0 else 1e-3
    if name == "pc":
        return pc(rows).network(pseudo_count=pseudo_count)
    score: Any = name.partition(":")[2] or "bic"
    return hill_climb(rows, score, pseudo_count=pseudo_count).graph


def read_edges(path: str | Path, data: Data) -> list[Edge]:
    """Pairs of variables of the data from a file with two columns; a header may stand above."""
    place = Path(path)
    if not place.is_file():
        raise ModelError(f"{path}: no such file")
    text = read_text(place, FormatError)
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1)]
    with guarded_reading(place, "text", FormatError):
        rows = [(n, next(csv.reader([re.sub(r"[;\t]", ",", line)]))) for n, line in lines if line]
    index = {name: v for v, name in enumerate(data.names or ())}
    edges: list[Edge] = []
    for k, (n, cells) in enumerate(rows):
        words = [cell.strip() for cell in cells]
        if len(words) != 2:
            raise FormatError(path, n, f"found {len(words)} columns", "expected two variables")
        pair = [_variable(word, index, data.n_variables) for word in words]
        if None in pair:
            if k == 0 and pair == [None, None]:
                continue  # a header
            bad = words[pair.index(None)]
            raise FormatError(path, n, f"no variable is called '{bad}'", "use the data's columns")
        i, j = sorted(v for v in pair if v is not None)
        if i == j:
            raise FormatError(path, n, f"'{words[0]}' is joined to itself", "leave the line out")
        edges.append((i, j))
    if not edges:
        raise FormatError(path, None, "there are no pairs in the file", "expected two columns")
    return sorted(set(edges))


def _variable(word: str, index: dict[str, int], n: int) -> int | None:
    if word in index:
        return index[word]
    number = word.removeprefix("x") if not index else word
    return int(number) if is_whole(number) and int(number) < n else None


def _grid_edges(text: str, n: int) -> list[Edge]:
    match = re.fullmatch(r"grid:\s*(\d{1,9})\s*x\s*(\d{1,9})", text.strip().lower())
    if match is None:
        raise ModelError(f"graph '{text}' is not a grid; write for example grid:8x8")
    rows, cols = int(match[1]), int(match[2])
    if rows * cols != n:
        raise ModelError(
            f"graph '{text}' has {rows * cols} variables, but the data have {n} columns"
        )
    across = [(r * cols + c, r * cols + c + 1) for r in range(rows) for c in range(cols - 1)]
    down = [(r * cols + c, (r + 1) * cols + c) for r in range(rows - 1) for c in range(cols)]
    return sorted(across + down)


def _pairwise(data: Data, edges: Sequence[Edge]) -> FactorGraph:
    """Tables of ones for each variable and each edge."""
    cards = data.cardinalities
    single = [((v,), np.ones(int(cards[v]))) for v in range(data.n_variables)]
    double = [((i, j), np.ones((int(cards[i]), int(cards[j])))) for i, j in edges]
    return FactorGraph(cards, [*single, *double], names=data.names, states=data.state_names)


def _checked_rows(rows: Data) -> Data:
    if rows.n_variables == 0:
        raise DataError("data: there are no columns")
    if rows.total <= 0:
        raise DataError("data: all rows have weight 0; give at least one a positive weight")
    if rows.hidden.size:
        name = rows.names[rows.hidden[0]] if rows.names else f"column {rows.hidden[0]}"
        raise KikuchiError(f"data: {name} is never observed, so no graph can be found for it")
    return rows
