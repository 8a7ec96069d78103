"""Learners of directed structures as called without options: distance to the true structure.

Rows are drawn from published networks that the package pgmpy carries. The score counts pairs of
variables whose edge is absent in one of the two structures, present in the other, or directed
otherwise, where both are reduced to what all equivalent structures share (CPDAG).
"""

from __future__ import annotations

import gzip
import logging
import math
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

import kikuchi as kk
from benchmarks.defaults.frame import Contender, Task
from kikuchi.graphs.directed import ancestral_sample
from kikuchi.learning.structure.hill_climb import hill_climb
from kikuchi.learning.structure.pc import pc

Marks = dict[tuple[int, int], int]  # by pair u < v: 0 undirected, 1 from u to v, 2 from v to u

CHOOSING = ("asia", "survey", "earthquake", "sachs", "child", "alarm", "insurance")
REPORTING = ("hailfinder", "hepar2", "win95pts", "water", "mildew")
ROWS = (1000, 5000)
PATIENCE = 20  # CPU seconds of a peer's fit


class Table(NamedTuple):
    network: kk.FactorGraph
    truth: Marks
    n_rows: int

    def rows(self, seed: int) -> np.ndarray:
        return ancestral_sample(self.network, self.n_rows, seed=seed)


def tasks() -> Sequence[Task]:
    logging.getLogger("pgmpy").setLevel(logging.ERROR)
    measure = "errors of the learnt CPDAG"
    tables = {"choosing": _tables(CHOOSING), "reporting": _tables(REPORTING)}
    nothing = Contender("no edges", "baseline", _scored(lambda rows: {}))
    by_tests = [
        Contender("pc(rows)", "ours", _scored(_pc)),
        Contender("pgmpy PC()", "peer", _scored(_pgmpy)),
        Contender("pyAgrum usePC()", "peer", _scored(_pyagrum)),
        nothing,
    ]
    by_score = [
        Contender("hill_climb(rows)", "ours", _scored(_hill_climb)),
        Contender("pyAgrum useGreedyHillClimbing()", "peer", _scored(_greedy)),
        Contender("pyAgrum BNLearner()", "peer", _scored(_miic)),
        nothing,
    ]
    return [
        Task("Structures by tests", measure, False, 0.05, **tables, contenders=by_tests,
             seeds=(0, 1), relative=True),
        Task("Structures by a score", measure, False, 0.05, **tables, contenders=by_score,
             seeds=(0, 1), relative=True),
    ]  # fmt: skip


def _tables(names: Iterable[str]) -> dict[str, Callable[[], Table]]:
    return {f"{name}, {n} rows": partial(_table, name, n) for name in names for n in ROWS}


@cache
def _network(name: str) -> kk.FactorGraph:
    packed = files("pgmpy").joinpath("utils", "example_models", f"{name}.bif.gz").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.bif"
        path.write_bytes(gzip.decompress(packed))
        return kk.read(path)


def _table(name: str, n_rows: int) -> Table:
    network = _network(name)
    parents = [set() for _ in range(network.n_variables)]
    for a, child in enumerate(network.children):
        parents[child] = {v for v in network.scope(a) if v != child}
    return Table(network, _class_of(parents), n_rows)


def _scored(learn: Callable[[np.ndarray], Marks]) -> Callable[[Table, int], float]:
    def score(table: Table, seed: int) -> float:
        try:
            found = learn(table.rows(seed))
        except TimeoutError:
            warnings.warn(f"not finished within {PATIENCE} s", stacklevel=2)
            return math.nan
        return float(sum(found.get(k) != table.truth.get(k) for k in found | table.truth))

    return score


# ---------------------------------------------------------------------- learners


def _pc(rows: np.ndarray) -> Marks:
    found = pc(rows)
    return _marks(found.arrows, found.undirected)


def _hill_climb(rows: np.ndarray) -> Marks:
    parents: list[set[int]] = [set() for _ in range(rows.shape[1])]
    for u, v in hill_climb(rows).arrows:
        parents[v].add(u)
    return _class_of(parents)


def _frame(rows: np.ndarray) -> Any:
    from pandas import DataFrame

    return DataFrame(rows.astype(str), columns=[f"v{k:04d}" for k in range(rows.shape[1])])


def _pgmpy(rows: np.ndarray) -> Marks:
    """Its defaults but for the number of processes: chi-square at 0.01, up to five conditions."""
    from pgmpy.causal_discovery import PC

    with _at_most(PATIENCE):
        search = PC(n_jobs=1, show_progress=False).fit(_frame(rows).astype("category"))
    found = search.causal_graph_
    number = {f"v{k:04d}": k for k in range(rows.shape[1])}
    directed = [(number[u], number[v]) for u, v in found.directed_edges]
    return _marks(directed, [(number[u], number[v]) for u, v in found.undirected_edges])


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after so many CPU seconds."""

    def expired(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, expired)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _learner(rows: np.ndarray) -> Any:
    import pyagrum

    return pyagrum.BNLearner(_frame(rows))


def _pyagrum(rows: np.ndarray) -> Marks:
    learner = _learner(rows)
    learner.usePC()
    found = learner.learnPDAG()
    return _marks(found.arcs(), found.edges())


def _greedy(rows: np.ndarray) -> Marks:
    learner = _learner(rows)
    learner.useGreedyHillClimbing()
    return _learnt(learner.learnDAG(), rows.shape[1])


def _miic(rows: np.ndarray) -> Marks:
    return _learnt(_learner(rows).learnDAG(), rows.shape[1])


def _learnt(graph: Any, n: int) -> Marks:
    return _class_of([set(graph.parents(v)) for v in range(n)])


# ---------------------------------------------------------------------- classes of structures


def _marks(arrows: Iterable[tuple[int, int]], undirected: Iterable[tuple[int, int]]) -> Marks:
    marks = {(min(pair), max(pair)): 0 for pair in undirected}
    for u, v in arrows:
        marks[min(u, v), max(u, v)] = 1 if u < v else 2
    return marks


def _class_of(parents: Sequence[set[int]]) -> Marks:
    """The CPDAG of a structure: an edge is directed if it is compelled.

    Edges are labelled in the order of Chickering (1995): for each variable in topological order,
    from its last parent to its first.
    """
    graph = nx.DiGraph([(u, v) for v, chosen in enumerate(parents) for u in chosen])
    graph.add_nodes_from(range(len(parents)))
    place = {v: k for k, v in enumerate(nx.topological_sort(graph))}
    compelled: dict[tuple[int, int], bool] = {}
    for y in sorted(place, key=place.__getitem__):
        for x in sorted(parents[y], key=place.__getitem__, reverse=True):
            if (x, y) not in compelled:
                _label(x, y, parents, compelled)
    return _marks(
        (edge for edge, forced in compelled.items() if forced),
        (edge for edge, forced in compelled.items() if not forced),
    )


def _label(
    x: int, y: int, parents: Sequence[set[int]], compelled: dict[tuple[int, int], bool]
) -> None:
    for w in parents[x]:
        if not compelled[w, x]:
            continue
        if w not in parents[y]:
            compelled.update({(u, y): True for u in parents[y]})
            return
        compelled[w, y] = True
    forced = any(z != x and z not in parents[x] for z in parents[y])
    unknown = [u for u in parents[y] if (u, y) not in compelled]
    compelled.update({(u, y): forced for u in unknown})
