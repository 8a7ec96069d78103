"""Directed structures by hill climbing with a tabu list and restarts.

A step adds, removes or turns one arrow, whichever raises the score most; where none does, the least
loss is taken, and what was left is not gone back to for a while (tabu). A restart begins at the
best structure without some of its arrows, or at none, and breaks ties in another way.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core import parallel
from kikuchi.core.arrays import Mask
from kikuchi.core.budget import Budget, Clock, RunLimits, limits, named_limits
from kikuchi.core.cluster import shared_with
from kikuchi.core.errors import ModelError, suggestion
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.labelled import html_facts
from kikuchi.core.progress import Progress, ProgressOption, shown
from kikuchi.core.seeds import Seed, generator
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.structure.families import (
    PSEUDO_COUNT,
    FamilyScores,
    ScoreName,
    fitted_network,
)

if TYPE_CHECKING:
    from kikuchi.core.cluster import Client

Arrow = tuple[int, int]
NamedArrow = tuple[Any, Any]
Step = tuple[Literal["add", "remove", "turn"], int, int]

_GAIN = 1e-9  # a smaller gain is rounding
_TIES = 1e-6  # gains that differ by less are equal when a climb begins anew
_SHARE_OUT = (0.05, 0.3)  # of the arrows that a restart takes out


@dataclass(frozen=True, eq=False)
class LearntStructure:
    """Arrows that were found, their score, and the model with tables of frequencies.

    `stopped` says why the search ended: "converged" (no step of any restart is better), "seconds",
    "iterations" or "interrupted"; the best structure so far is here in any case.
    """

    graph: FactorGraph
    arrows: tuple[Arrow, ...]
    score: float
    score_name: str
    iterations: int
    evaluations: int
    seconds: float
    stopped: str

    @property
    def edges(self) -> list[tuple[str, str]]:
        """(parent, child) by name."""
        return [(self.graph.label(u), self.graph.label(v)) for u, v in self.arrows]

    def __repr__(self) -> str:
        return (
            f"LearntStructure({len(self.arrows)} arrows, {self.score_name} {self.score:.3f}, "
            f"{self.stopped})"
        )

    def _repr_html_(self) -> str:
        facts = [
            ("variables", str(self.graph.n_variables)),
            ("arrows", ", ".join(f"{u} → {v}" for u, v in self.edges[:60])),
            (self.score_name, f"{self.score:.3f}"),
            ("stopped", self.stopped),
        ]
        return html_facts("Learnt structure", facts)


@safe_interrupts()
@named_limits
def hill_climb(
    data: Data | ArrayLike,
    score: ScoreName = "bic",
    *,
    strength: float = 1.0,
    max_parents: int | None = None,
    required: Iterable[NamedArrow] = (),
    forbidden: Iterable[NamedArrow] = (),
    start: Iterable[NamedArrow] = (),
    tabu: int = 20,
    restarts: int = 100,
    max_iter: int = 100_000,
    pseudo_count: float = PSEUDO_COUNT,
    seed: Seed = 0,
    progress: ProgressOption = None,
    **within: Unpack[RunLimits],
) -> LearntStructure:
    """A directed structure of high score, by hill climbing, and its tables of frequencies.

    Parameters
    ----------
    data : complete rows, as any learner takes them.
    score : "bic", "aic", "bdeu" (with the prior's `strength`) or "likelihood".
    max_parents : of a variable; no limit by default, but tables of more than 4 million entries are
        left out.
    required, forbidden : arrows (parent, child) by name or number that must or must not be there.
    start : arrows to begin with, besides the required ones.
    tabu : how many of the latest steps may not be undone, and how many steps without a new best
        structure end a climb.
    restarts : climbs from the best structure without a random part of its arrows, or in turn from
        none; each may only improve it.
    pseudo_count : added to each count of the fitted tables, as `learn` does, so that what no row
        shows is improbable and not impossible.
    seed : of the random steps.
    max_iter : most steps of all climbs.
    budget, seconds, memory : limits of the run: a budget, or seconds and memory.
    progress : True for a bar, or a function that is told how far the search is.

    >>> rows = [[a, b, a & b] for a in (0, 1) for b in (0, 1)] * 50
    >>> found = hill_climb(rows)
    >>> found.stopped, sorted(found.edges)
    ('converged', [('0', '2'), ('1', '2')])
    """
    scores = FamilyScores(data, score, strength)
    rules = _Rules.of(scores, required, forbidden, max_parents)
    clock = limits(**within).start()
    begin = {*rules.required, *_arrows(scores.data, start, "start")}
    _require_acyclic(scores.data, begin)
    limit = clock.iterations(max_iter)
    with shown(progress, "hill climbing") as report:
        climb = _Climb(scores, rules, tabu, clock, limit, report)
        climb.run(_parent_sets(scores.n_variables, begin))
        rng = generator(seed)
        for _ in range(restarts):
            if climb.stopped != "converged":
                break
            climb.run(climb.shaken(rng))
    parents = climb.best
    return LearntStructure(
        fitted_network(scores.data, parents, pseudo_count=pseudo_count),
        tuple((u, v) for v, chosen in enumerate(parents) for u in sorted(chosen)),
        climb.best_score,
        score,
        climb.iterations,
        scores.evaluations,
        clock.seconds,
        climb.stopped,
    )


# ---------------------------------------------------------------------- the search


@dataclass(frozen=True)
class _Rules:
    """Arrows that must or must not be, and the most parents of a variable."""

    required: frozenset[Arrow]
    forbidden: frozenset[Arrow]
    max_parents: float

    @classmethod
    def of(
        cls,
        scores: FamilyScores,
        required: Iterable[NamedArrow],
        forbidden: Iterable[NamedArrow],
        max_parents: int | None,
    ) -> _Rules:
        must = frozenset(_arrows(scores.data, required, "required"))
        never = frozenset(_arrows(scores.data, forbidden, "forbidden"))
        if must & never:
            u, v = min(must & never)
            names = _names(scores.data)
            raise ModelError(f"the arrow {names[u]} -> {names[v]} is both required and forbidden")
        if max_parents is not None and max_parents < 0:
            raise ModelError(f"max_parents must not be negative, got {max_parents}")
        return cls(must, never, math.inf if max_parents is None else max_parents)


class _Climb:
    """The state of the search: parents of each variable, gains of all steps, the best so far."""

    def __init__(
        self,
        scores: FamilyScores,
        rules: _Rules,
        tabu: int,
        clock: Clock,
        limit: int,
        progress: Progress,
    ) -> None:
        self.scores, self.rules, self.clock, self.limit = scores, rules, clock, limit
        self.patience = max(tabu, 1)
        self.progress = progress
        n = scores.n_variables
        self.best: list[frozenset[int]] = [frozenset()] * n
        self.best_score = -math.inf
        self.iterations = self.restart = 0
        self.stopped = "converged"
        self.ties = np.zeros((3, n, n))
        self.allowed = ~np.eye(n, dtype=bool)
        for u, v in rules.forbidden:
            self.allowed[u, v] = False

    def run(self, parents: list[frozenset[int]]) -> None:
        """Climb from a structure until nothing better was found for a while."""
        self.parents = list(parents)
        n = self.scores.n_variables
        self.own = np.array([self.scores.family(v, self.parents[v]) for v in range(n)])
        self.add = np.full((n, n), -np.inf)
        self.remove = np.full((n, n), -np.inf)
        for v in range(n):
            self._refresh(v)
        total = float(self.own.sum())
        self._keep(total)
        latest: deque[Step] = deque(maxlen=self.patience)
        without = 0
        try:
            while without < self.patience:
                if self.clock.expired or self.iterations >= self.limit:
                    self.stopped = "seconds" if self.clock.expired else "iterations"
                    return
                step, gain = self._best_step(latest)
                if step is None:
                    return
                self._take(step)
                latest.append(_undo(step))
                total += gain
                self.iterations += 1
                without = 0 if self._keep(total) else without + 1
                if self.iterations % 16 == 0:
                    self.progress(
                        self.iterations, self.limit, residual=None, objective=self.best_score
                    )
        except KeyboardInterrupt:
            self.stopped = "interrupted"

    def _keep(self, total: float) -> bool:
        if total <= self.best_score + _GAIN:
            return False
        self.best, self.best_score = list(self.parents), total
        return True

    def _refresh(self, v: int) -> None:
        """Gains of all steps at the parents of v."""
        chosen = self.parents[v]
        self.own[v] = self.scores.family(v, chosen)
        self.add[:, v] = -np.inf
        if len(chosen) < self.rules.max_parents:
            self.add[:, v] = self.scores.additions(v, chosen) - self.own[v]
        self.remove[:, v] = -np.inf
        for u in chosen:
            if (u, v) not in self.rules.required:
                self.remove[u, v] = self.scores.family(v, chosen - {u}) - self.own[v]

    def _best_step(self, latest: Sequence[Step]) -> tuple[Step | None, float]:
        below = _descendants(self.parents)
        adding = np.where(self.allowed & ~below.T, self.add, -np.inf)
        removing = self.remove.copy()
        turning = np.full_like(removing, -np.inf)
        for v, chosen in enumerate(self.parents):
            for u in chosen:
                around = any(below[u, p] for p in chosen if p != u)
                if self.allowed[v, u] and not around:
                    turning[u, v] = self.remove[u, v] + self.add[v, u]
        for kind, u, v in latest:
            {"add": adding, "remove": removing, "turn": turning}[kind][u, v] = -np.inf
        best: tuple[Step | None, float] = (None, -math.inf)
        steps: tuple[tuple[Any, Any], ...] = (
            ("add", adding),
            ("remove", removing),
            ("turn", turning),
        )
        for (kind, gains), ties in zip(steps, self.ties, strict=True):
            place = int(np.argmax(gains + ties))
            u, v = divmod(place, len(gains))
            if gains[u, v] > best[1]:
                best = (kind, u, v), float(gains[u, v])
        return best

    def _take(self, step: Step) -> None:
        kind, u, v = step
        if kind == "add":
            self.parents[v] |= {u}
        else:
            self.parents[v] -= {u}
        self._refresh(v)
        if kind == "turn":
            self.parents[u] |= {v}
            self._refresh(u)

    def shaken(self, rng: np.random.Generator) -> list[frozenset[int]]:
        """Where the next climb begins: the best structure without some of its arrows, or in turn
        the required arrows alone; ties between steps are broken in another way.

        Before arrows are taken out, some u -> v are turned whose ends have the same other parents:
        that leads through structures of equal score, from which other steps are open.
        """
        n = self.scores.n_variables
        self.ties = _TIES * rng.random((3, n, n))
        self.restart += 1
        if self.restart % 3 == 0:
            return _parent_sets(n, self.rules.required)
        parents = list(self.best)
        if self.restart % 3 == 1:
            self._turn_covered(parents, rng)
        arrows = [
            (u, v)
            for v, chosen in enumerate(parents)
            for u in sorted(chosen)
            if (u, v) not in self.rules.required
        ]
        share = rng.uniform(*_SHARE_OUT)
        for k in rng.permutation(len(arrows))[: round(share * len(arrows))].tolist():
            u, v = arrows[k]
            parents[v] -= {u}
        return parents

    def _turn_covered(self, parents: list[frozenset[int]], rng: np.random.Generator) -> None:
        for _ in range(4 * len(parents)):
            arrows = [(u, v) for v, chosen in enumerate(parents) for u in sorted(chosen)]
            if not arrows:
                return
            u, v = arrows[int(rng.integers(len(arrows)))]
            covered = parents[v] - {u} == parents[u]
            if covered and self.allowed[v, u] and (u, v) not in self.rules.required:
                parents[v] -= {u}
                parents[u] |= {v}


def _undo(step: Step) -> Step:
    kind, u, v = step
    if kind == "turn":
        return "turn", v, u
    return ("remove" if kind == "add" else "add"), u, v


def _descendants(parents: Sequence[frozenset[int]]) -> Mask:
    """Entry (u, v): whether v can be reached from u along arrows, or is u itself."""
    n = len(parents)
    waiting = [0] * n
    for chosen in parents:
        for u in chosen:
            waiting[u] += 1
    below = np.eye(n, dtype=bool)
    ready = [v for v in range(n) if not waiting[v]]
    while ready:
        v = ready.pop()
        for u in parents[v]:
            below[u] |= below[v]
            waiting[u] -= 1
            if not waiting[u]:
                ready.append(u)
    return below


# ---------------------------------------------------------------------- names


def _names(data: Data) -> list[str]:
    return list(data.names) if data.names else [str(v) for v in range(data.n_variables)]


def _arrows(data: Data, arrows: Iterable[NamedArrow], what: str) -> set[Arrow]:
    names = _names(data)

    def number(word: Any) -> int:
        if isinstance(word, str):
            if word not in names:
                raise ModelError(f"{what}: no column is '{word}'; {suggestion(word, names)}")
            return names.index(word)
        if not 0 <= int(word) < len(names):
            raise ModelError(f"{what}: there is no column {word}")
        return int(word)

    found = set()
    for arrow in arrows:
        try:
            u, v = arrow
        except (TypeError, ValueError):
            raise ModelError(f"{what}: {arrow!r} is no pair (parent, child)") from None
        pair = number(u), number(v)
        if pair[0] == pair[1]:
            raise ModelError(f"{what}: {names[pair[0]]} cannot be its own parent")
        found.add(pair)
    return found


def _parent_sets(n: int, arrows: Iterable[Arrow]) -> list[frozenset[int]]:
    parents: list[set[int]] = [set() for _ in range(n)]
    for u, v in arrows:
        parents[v].add(u)
    return [frozenset(chosen) for chosen in parents]


def _require_acyclic(data: Data, arrows: set[Arrow]) -> None:
    parents = _parent_sets(data.n_variables, arrows)
    left = set(range(data.n_variables))
    while True:
        free = {v for v in left if not parents[v] & left}
        if not free:
            break
        left -= free
    if left:
        names = ", ".join(_names(data)[v] for v in sorted(left))
        raise ModelError(f"the arrows to begin with form a cycle through some of {names}")


# ---------------------------------------------------------------------- bootstrap


def edge_confidence(
    data: Data | ArrayLike,
    *,
    samples: int = 100,
    seed: Seed = 0,
    processes: int | Client | None = 1,
    progress: ProgressOption = None,
    budget: Budget | None = None,
    seconds: float | None = None,
    memory: int | str | None = None,
    **options: Any,
) -> dict[tuple[str, str], float]:
    """How often each arrow is found when the rows are drawn anew with replacement.

    Parameters
    ----------
    data : complete rows.
    samples : how many times to draw and to learn.
    seed : of the draws.
    processes : worker processes, None for one for each core; or a client of Dask.
    budget : limits as a `Budget`, in place of the next two.
    seconds, memory : most seconds (the samples that were finished count),
        and most memory in bytes or as a text such as "2GB".
    progress : True for a bar, or a function that is told how many samples are done.
    options : those of `hill_climb`.

    >>> rows = [[k % 2, k % 2, (k // 2) % 2] for k in range(64)]
    >>> found = edge_confidence(rows, samples=5)
    >>> round(found.get(("0", "1"), 0) + found.get(("1", "0"), 0), 6)
    1.0
    """
    rows = FamilyScores(data).data
    if samples < 1:
        raise ModelError(f"samples must be at least 1, got {samples}")
    seeds = generator(seed).integers(0, 2**31, samples).tolist()
    work = partial(_resampled, rows, options)
    allowed = limits(budget, seconds, memory)
    with shown(progress, "edge confidence") as report, shared_with(processes) as count:
        mapped = parallel.map(work, seeds, processes=count, budget=allowed, progress=report)
    counts: dict[Arrow, int] = {}
    for arrows in mapped.values():
        for arrow in arrows:
            counts[arrow] = counts.get(arrow, 0) + 1
    names, done = _names(rows), max(len(mapped.results), 1)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return {(names[u], names[v]): count / done for (u, v), count in ordered}


def _resampled(rows: Data, options: dict[str, Any], seed: int) -> tuple[Arrow, ...]:
    """Arrows learnt from rows drawn with replacement."""
    share = rows.weights / rows.weights.sum()
    counts = generator(seed).multinomial(round(rows.total), share)
    drawn = rows.like(rows.states, counts.astype(np.float64))
    return hill_climb(drawn, **options).arrows
