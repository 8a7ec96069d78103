"""Structures from tests of conditional independence: the PC algorithm.

Pairs that some set of neighbours separates lose their edge, level by level of the size of the set
(the neighbours are those at the beginning of the level, so that the order of the columns does not
matter). A set that determines one of the pair leaves nothing to test and separates nothing. A
common neighbour of a pair that was separated is a collider if it is in fewer than half of all sets
of neighbours that separate the pair (the majority rule of Colombo and Maathuis 2014): the first
separating set alone is often a chance acceptance. What follows from the colliders without new
colliders or cycles is directed, the rest stays undirected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, Unpack

from numpy.typing import ArrayLike

from kikuchi.core.budget import Clock, RunLimits, limits, named_limits
from kikuchi.core.errors import MethodError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.labelled import html_facts
from kikuchi.core.progress import Progress, ProgressOption, shown
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.structure.families import PSEUDO_COUNT, FamilyScores, fitted_network

Pair = tuple[int, int]
_LARGEST_VOTER = 3  # conditions of a set that votes on a collider


@dataclass(frozen=True, eq=False)
class PartialOrder:
    """Arrows that the tests decide, edges whose direction they leave open, and separating sets.

    `stopped` is "converged", "conditions" where larger sets were left out, "seconds" or
    "interrupted".
    """

    data: Data
    arrows: frozenset[Pair]
    undirected: frozenset[Pair]
    separators: dict[Pair, tuple[int, ...]]
    tests: int
    stopped: str

    def _name(self, v: int) -> str:
        return self.data.names[v] if self.data.names else str(v)

    @property
    def edges(self) -> list[tuple[str, str]]:
        """Directed edges (parent, child) by name."""
        return [(self._name(u), self._name(v)) for u, v in sorted(self.arrows)]

    @property
    def open_edges(self) -> list[tuple[str, str]]:
        """Edges without a direction, by name."""
        return [(self._name(u), self._name(v)) for u, v in sorted(self.undirected)]

    def directed(self) -> list[frozenset[int]]:
        """Parents of each variable in a structure with these edges and no new collider.

        Where the tests contradict each other there is none, and directions follow the columns.
        """
        return _extension(self.data.n_variables, set(self.arrows), set(self.undirected))

    def network(self, *, pseudo_count: float = PSEUDO_COUNT) -> FactorGraph:
        """The directed model of such a structure, with tables of frequencies."""
        return fitted_network(self.data, self.directed(), pseudo_count=pseudo_count)

    def __repr__(self) -> str:
        return (
            f"PartialOrder({len(self.arrows)} arrows, {len(self.undirected)} undirected edges, "
            f"{self.tests} tests, {self.stopped})"
        )

    def _repr_html_(self) -> str:
        facts = [
            ("arrows", ", ".join(f"{u} → {v}" for u, v in self.edges[:60])),
            ("undirected", ", ".join(f"{u} – {v}" for u, v in self.open_edges[:60])),
            ("tests", str(self.tests)),
            ("stopped", self.stopped),
        ]
        return html_facts("Structure by tests of independence", facts)


@safe_interrupts()
@named_limits
def pc(
    data: Data | ArrayLike,
    *,
    test: Literal["g2", "information"] = "g2",
    level: float = 0.05,
    max_conditions: int | None = None,
    progress: ProgressOption = None,
    **within: Unpack[RunLimits],
) -> PartialOrder:
    """The structure that tests of conditional independence leave.

    Parameters
    ----------
    data : complete rows.
    test : "g2" for the likelihood-ratio test, two variables being independent if the chance of so
        large a statistic is above `level`; "information" for conditional mutual information, two
        variables being independent below `level` nats.
    level : see there.
    max_conditions : the largest set of conditions that is tried; no limit by default.
    budget, seconds, memory : limits of the run: a budget, or seconds and memory. When time is up,
        what was found so far comes back, and says so.
    progress : True for a bar, or a function that is told how far the search is.

    >>> rows = [[a, b, a | b] for a in (0, 1) for b in (0, 1)] * 200
    >>> pc(rows).edges
    [('0', '2'), ('1', '2')]
    """
    if test not in ("g2", "information"):
        raise MethodError(f"there is no test '{test}'; known: g2, information")
    if not level > 0:
        raise MethodError(f"level must be positive, got {level!r}")
    if max_conditions is not None and max_conditions < 0:
        raise MethodError(f"max_conditions must not be negative, got {max_conditions}")
    scores = FamilyScores(data, "likelihood")
    tests = _Tests(scores, test, level)
    clock = limits(**within).start()
    with shown(progress, "pc") as report:
        search = _Skeleton(tests, max_conditions, clock, report)
        search.run()
        arrows, undirected = _orient(search)
    return PartialOrder(
        scores.data,
        frozenset(arrows),
        frozenset(undirected),
        search.separators,
        scores.evaluations,
        search.stopped,
    )


class _Tests:
    """Tests of independence, each computed once."""

    def __init__(self, scores: FamilyScores, test: str, level: float) -> None:
        self.scores, self.test, self.level = scores, test, level
        self._known: dict[tuple[Pair, tuple[int, ...]], bool | None] = {}

    def independent(self, x: int, y: int, given: tuple[int, ...]) -> bool | None:
        """Whether x and y are independent given others; None where there is nothing to test,
        because one of them does not vary once the others are known.
        """
        key = (x, y), given
        if key not in self._known:
            self._known[key] = self._tested(x, y, given)
        return self._known[key]

    def _tested(self, x: int, y: int, given: tuple[int, ...]) -> bool | None:
        statistic, freedom = self.scores.dependence(x, y, given)
        if freedom <= 0:
            return None if given else True
        if self.test == "information":
            return statistic / (2.0 * self.scores.total) < self.level
        from scipy.special import gammaincc

        return float(gammaincc(freedom / 2.0, statistic / 2.0)) > self.level


class _Skeleton:
    """Neighbours that no set of conditions has separated so far."""

    def __init__(self, tests: _Tests, most: int | None, clock: Clock, progress: Progress) -> None:
        self.tests, self.most, self.clock, self.progress = tests, most, clock, progress
        n = tests.scores.n_variables
        self.near = [set(range(n)) - {v} for v in range(n)]
        self.separators: dict[Pair, tuple[int, ...]] = {}
        self.determining: dict[Pair, set[int]] = {}
        self.stopped = "converged"

    def run(self) -> None:
        """Level by level, until no pair has enough neighbours left."""
        size = 0
        try:
            while any(len(near) > size for near in self.near):
                if self.most is not None and size > self.most:
                    self.stopped = "conditions"
                    return
                if not self._level(size):
                    self.stopped = "seconds"
                    return
                size += 1
        except KeyboardInterrupt:
            self.stopped = "interrupted"

    def _level(self, size: int) -> bool:
        before = [frozenset(near) for near in self.near]
        for x in range(len(before)):
            self.progress(x, len(before), residual=None, objective=float(size))
            for y in sorted(before[x]):
                if y < x or y not in self.near[x]:
                    continue
                found = self._separator(x, y, size, before)
                if found is not None:
                    self.near[x].discard(y)
                    self.near[y].discard(x)
                    self.separators[x, y] = found
                if self.clock.expired:
                    return False
        return True

    def _separator(
        self, x: int, y: int, size: int, before: list[frozenset[int]]
    ) -> tuple[int, ...] | None:
        for given in self.conditions(x, y, size, before):
            independent = self.tests.independent(x, y, given)
            if independent:
                return given
            if independent is None and size == 1:
                self.determining.setdefault((x, y), set()).update(given)
        return None

    def conditions(
        self, x: int, y: int, size: int, near: Sequence[Set[int]]
    ) -> Iterator[tuple[int, ...]]:
        """Sets of so many neighbours of x, then of y. Sets with a variable that alone determines x
        or y are left out: nothing is left to test given any of them.
        """
        without = self.determining.get((x, y), set()) | {x, y}
        tried = set()
        for side in (x, y):
            for given in combinations(sorted(near[side] - without), size):
                if given not in tried:
                    tried.add(given)
                    yield given

    def separating(self, x: int, y: int) -> list[tuple[int, ...]]:
        """All sets of at most three final neighbours that separate x and y, and the one that was
        found first; that one alone once the time is up or the search was interrupted.
        """
        first = [self.separators[x, y]]
        if self.stopped in ("seconds", "interrupted"):
            return first
        try:
            return first + list(self._further_separators(x, y))
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            return first

    def _further_separators(self, x: int, y: int) -> Iterator[tuple[int, ...]]:
        most = _LARGEST_VOTER if self.most is None else min(self.most, _LARGEST_VOTER)
        for size in range(most + 1):
            for given in self.conditions(x, y, size, self.near):
                if self.clock.expired:
                    self.stopped = "seconds"
                    return
                if given != self.separators[x, y] and self.tests.independent(x, y, given):
                    yield given


# ---------------------------------------------------------------------- directions


def _orient(search: _Skeleton) -> tuple[set[Pair], set[Pair]]:
    """Colliders first, those that fewest separating sets contradict before others, then what
    follows from them. A collider that contradicts an earlier one is left out.
    """
    near = search.near
    arrows: set[Pair] = set()
    for _, x, y, z in sorted(_colliders(search)):
        if (z, x) not in arrows and (z, y) not in arrows:
            arrows |= {(x, z), (y, z)}
    undirected = {
        (u, v)
        for u in range(len(near))
        for v in near[u]
        if u < v and (u, v) not in arrows and (v, u) not in arrows
    }
    while _follow(near, arrows, undirected):
        pass
    return arrows, undirected


def _colliders(search: _Skeleton) -> Iterator[tuple[float, int, int, int]]:
    """Pairs with a common neighbour that is in fewer than half of their separating sets: the share
    of these sets, the pair, and the neighbour.
    """
    for x, y in search.separators:
        common = search.near[x] & search.near[y]
        if not common:
            continue
        sets = search.separating(x, y)
        for z in common:
            share = sum(z in given for given in sets) / len(sets)
            if share < 0.5:
                yield share, x, y, z


def _follow(near: list[set[int]], arrows: set[Pair], undirected: set[Pair]) -> bool:
    """Direct one edge that must be: else there were a new collider, or a cycle."""
    for pair in sorted(undirected):
        for u, v in (pair, pair[::-1]):
            into = [w for w in near[u] if (w, u) in arrows]
            if (
                any(w not in near[v] and w != v for w in into)
                or any((u, w) in arrows and (w, v) in arrows for w in near[u])
                or _two_ways(near, arrows, undirected, u, v)
            ):
                undirected.discard(pair)
                arrows.add((u, v))
                return True
    return False


def _two_ways(
    near: list[set[int]], arrows: set[Pair], undirected: set[Pair], u: int, v: int
) -> bool:
    """Whether u - w1 -> v and u - w2 -> v with w1 and w2 apart."""
    ways = [w for w in near[u] if (min(u, w), max(u, w)) in undirected and (w, v) in arrows]
    return any(b not in near[a] for a, b in combinations(ways, 2))


def _extension(n: int, arrows: set[Pair], undirected: set[Pair]) -> list[frozenset[int]]:
    """Directions for all edges without a new collider, sinks first; by columns if there are none.

    A sink has no arrow out, and all its other neighbours are neighbours of each undirected one.
    """
    parents: list[set[int]] = [set() for _ in range(n)]
    for u, v in arrows:
        parents[v].add(u)
    left = set(range(n))
    inward, loose = set(arrows), set(undirected)
    while left:
        sink = next((v for v in sorted(left, reverse=True) if _is_sink(v, inward, loose)), None)
        if sink is None:
            break
        for pair in [p for p in loose if sink in p]:
            other = pair[0] if pair[1] == sink else pair[1]
            parents[sink].add(other)
            loose.discard(pair)
        inward = {(u, v) for u, v in inward if sink not in (u, v)}
        left.discard(sink)
    if left:
        return _by_columns(n, arrows | undirected)
    return [frozenset(chosen) for chosen in parents]


def _is_sink(v: int, arrows: set[Pair], undirected: set[Pair]) -> bool:
    if any(u == v for u, _ in arrows):
        return False
    loose = {a if b == v else b for a, b in undirected if v in (a, b)}
    around = loose | {u for u, w in arrows if w == v}

    def joined(a: int, b: int) -> bool:
        return bool({(a, b), (b, a)} & (arrows | undirected))

    return all(joined(a, b) for a in loose for b in around if a != b)


def _by_columns(n: int, pairs: Iterable[Pair]) -> list[frozenset[int]]:
    parents: list[set[int]] = [set() for _ in range(n)]
    for u, v in pairs:
        parents[max(u, v)].add(min(u, v))
    return [frozenset(chosen) for chosen in parents]
