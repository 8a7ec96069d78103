"""Tree-reweighted belief propagation: a convex relative of Bethe, and an upper bound on log Z.

Reference: LIU-D6, LIU-I8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import OutOfTimeError
from kikuchi.core.seeds import generator
from kikuchi.engines.loops.iterate import Ended
from kikuchi.engines.messages.reweighted import (
    ReweightedMessages,
    numbers_of,
    numbers_text,
    require_bytes,
    shortened,
)
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.appearances import (
    Appearances,
    forest_appearances,
    given_appearances,
    sampled_appearances,
    uniform_appearances,
)
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import EngineMethod, option

_NAMED = ("uniform", "sampled", "optimised")
_SINGLE_READINGS = 4  # sweeps after each of which the bound is computed; later after every few
_READ_EVERY = 8
_LARGE = 100_000  # edges
_SETTING_UP = 0.5  # part of the time left that appearances may take
_EDGE_SECONDS = 1e-6  # for each edge, to make the messages and read a bound; graphs beyond caches
_FOREST_SECONDS = 3e-7  # for each edge, to grow a forest
_LATE = 0.25  # seconds by which a set-up may exceed the limit
_WINDOW = 100  # sweeps in which the residual must fall, or damping is raised
_MUST_FALL = 1.0
_MOST_DAMPING = 0.75
_JUMP = 10.0  # rise of the residual at which past sweeps are forgotten
_LARGEST_MESSAGE = 1e6  # that is extrapolated
_INNER_TOL = 1e-6  # of the messages between two changes of the appearances
_INNER_SWEEPS = 60
_FIRST_STEP = 0.5  # of the conditional gradient
_LARGEST_STEP = 0.9
_LEAST_WEIGHT = 1e-6  # powers 1 / weight beyond this cost digits and gain nothing
_LEAST_STEP = 2.0**-12  # of the first one tried in a round


@dataclass(frozen=True)
class TreeReweighted(EngineMethod):
    """Tree-reweighted BP: a certified upper bound on log Z.

    Minimises the reweighted free energy whose weights are the probabilities of the factors
    in a random forest. It is convex, so there is one answer, and minus its minimum is never below
    log Z. `log_z` is the bound. It is computed from the messages in a form that holds at any of
    them (`ReweightedMessages.log_z_upper`), so a run may be stopped anywhere; single sweeps may
    raise it, and the smallest is answered. On forests all weights are 1 and the answer is exact.

    `appearances`: `uniform` over all spanning trees, exactly (effective resistances; models with
    larger factors get `sampled`, and so do those whose factorisation would take more than half of
    the seconds left, with a warning), `sampled` random forests, `optimised` by conditional gradient
    from there (the forest of largest mutual informations is mixed in as long as the bound falls),
    or one probability for each factor, `[0.5, 0.5, 1]` in Python and `0.5/0.5/1` as a text (those
    of factors of one variable are not looked at). Given ones outside the spanning-tree polytope are
    refused with the variables at fault.

    Sweeps are accelerated by combining the last few (Anderson); damping starts at `damping` and
    rises by itself where the messages do not converge.

    >>> import kikuchi as kk
    >>> ring = kk.boltzmann_graph({(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (0, 3): 3.0}, [0.1] * 4)
    >>> exact, bound = kk.infer(ring, "jt").log_z, kk.infer(ring, "trw").log_z_upper
    >>> round(exact, 4), round(bound, 4)
    (6.1233, 6.1515)
    >>> round(kk.infer(ring, "trw:appearances=optimised").log_z_upper, 4)
    6.141
    """

    name: ClassVar[str] = "trw"
    edge_seconds: ClassVar[float] = 3e-7
    objective_name: ClassVar[str] = "upper bound"
    exactness = "forests"
    certifies = ("upper",)
    takes_start: ClassVar[bool] = True

    appearances: str | Sequence[float] = option(
        "uniform", "of factors in forests: uniform, sampled, optimised, or such as 0.5/0.5/1"
    )
    damping: float = option(0.0, "least weight on the old message", low=0, below=1)
    accelerate: int = option(
        10, "past sweeps that are combined; 0 for plain sweeps", low=0, high=50
    )
    schedule: Literal["sequential", "parallel"] = option(
        "sequential", "order of updates: variable by variable, or all at once"
    )
    tol: float = option(1e-9, "largest change of a message to stop at; 0 runs on", low=0)
    max_iterations: int = option(5000, "most sweeps over all messages", low=1)
    forests: int = option(100, "random forests of sampled appearances", low=1)
    rounds: int = option(50, "most changes of optimised appearances", low=0)
    gap: float = option(1e-2, "stop optimising when the bound can fall by less", low=0)
    seed: int = option(0, "seed of the random forests", low=0)

    def __post_init__(self) -> None:
        text = numbers_text(self.name, "appearances", self.appearances, _NAMED)
        object.__setattr__(self, "appearances", text)
        super().__post_init__()

    @property
    def text(self) -> str:
        """The method as one text; long lists of numbers are cut."""
        return shortened(super().text)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        descent, ended = self._descended(graph, run, self.prepared(graph, run))
        return descent.solution(ended.iterations, ended.converged)

    def prepared(self, graph: FactorGraph, run: MethodRun) -> Appearances:
        """The appearances that a run begins with."""
        require_bytes(graph, run.clock.budget, self._copies)
        _require_seconds(graph, run, _least_forests(graph))
        return self.choose_appearances(graph, run)

    def settled(
        self, graph: FactorGraph, run: MethodRun, prepared: Appearances | None = None
    ) -> tuple[ReweightedMessages, Ended]:
        """The messages after the last sweep."""
        descent, ended = self._descended(graph, run, prepared or self.prepared(graph, run))
        descent.engine.responds = self.appearances != "optimised"
        return descent.engine, ended

    def _descended(
        self, graph: FactorGraph, run: MethodRun, appearances: Appearances
    ) -> tuple[_BoundDescent, Ended]:
        _require_seconds(graph, run, 0)
        descent = _BoundDescent(self, graph, run, appearances)
        iterations, converged = run.iterate(
            descent.steps(), tol=self.tol, limit=self.max_iterations
        )
        return descent, Ended(iterations, converged, descent.residual)

    @property
    def _copies(self) -> int:
        """Copies of all messages that the acceleration keeps."""
        return 2 * (self.accelerate + 2)

    def choose_appearances(self, graph: FactorGraph, run: MethodRun) -> Appearances:
        """The appearances in the `graph` that the `run` starts from; they depend on the scopes
        alone.
        """
        assert isinstance(self.appearances, str)
        if self.appearances not in _NAMED:
            rho = numbers_of(self.name, "appearances", self.appearances, run)
            return given_appearances(graph, rho)
        if graph.is_forest:
            return forest_appearances(graph, np.ones(graph.n_factors))
        clock = run.clock
        if self.starts_uniform(graph):
            with suppress(OutOfTimeError):  # then sampled forests, which a warning tells
                return uniform_appearances(graph, clock.budget, _SETTING_UP * clock.seconds_left)
        latest = clock.seconds + _SETTING_UP * clock.seconds_left
        rng = generator(self.seed)
        return sampled_appearances(graph, self.forests, rng, lambda: clock.seconds >= latest)

    def starts_uniform(self, graph: FactorGraph) -> bool:
        """Whether the first appearances are those of all spanning trees of the `graph`, if time
        allows.
        """
        return self.appearances != "sampled" and bool(np.all(np.diff(graph.scope_offsets) <= 2))


def _least_forests(graph: FactorGraph) -> int:
    """The smallest number of forests that can hold all factors of several variables."""
    joins = int((np.diff(graph.scope_offsets) - 1).sum())  # of trees, by all factors
    return -(-joins // max(graph.n_variables - 1, 1))


def _require_seconds(graph: FactorGraph, run: MethodRun, forests: int) -> None:
    """Refuse a set-up with so many forests that cannot end in time."""
    needed = graph.n_edges * (_EDGE_SECONDS + forests * _FOREST_SECONDS)
    if needed > run.clock.seconds_left + _LATE:
        raise OutOfTimeError(
            f"setting up tree-reweighted messages takes about {needed:.2g} s, more than the budget "
            "leaves; give more seconds or use mf"
        )


@dataclass(eq=False)
class _BoundDescent:
    """One run: messages, appearances, and the smallest bound so far."""

    method: TreeReweighted
    graph: FactorGraph
    run: MethodRun
    appearances: Appearances

    def __post_init__(self) -> None:
        method = self.method
        self.engine = ReweightedMessages(
            self.graph,
            self.appearances.weights,
            schedule=method.schedule,
            budget=self.run.clock.budget,
            copies=method._copies,
        )
        if self.run.start is not None and self.run.reduced is not None:
            self.engine.state = self.run.start.messages(self.run.reduced)
        self.past = _Anderson(method.accelerate)
        self.damping = method.damping
        self.done = 0
        self.rounds = 0
        self.gap = math.inf
        self.upper = self.engine.log_z_upper(self.appearances.parents)
        self.residual = math.inf
        self._window = (math.inf, math.inf)  # least residual of the last window and of this
        self._in_window = 0

    # ------------------------------------------------------------------ messages

    def steps(self) -> Iterator[Step]:
        if self.method.appearances == "optimised" and not self.graph.is_forest:
            yield from self._optimise()
        yield from self._sweeps(0.0, None, math.nan)

    def _sweeps(self, tol: float, count: int | None, gap: float) -> Iterator[Step]:
        """Sweeps until the residual is at most `tol`, at most `count`; a step for each reading."""
        taken = 0
        while count is None or taken < count:
            self._sweep()
            taken += 1
            ended = self.residual <= (tol if count is not None else self.method.tol)
            if ended or taken == count or self._is_time_to_read(taken):
                residual = self.residual if math.isnan(gap) else max(self.residual, gap)
                yield Step(self.done, residual, self._bound(), upper=self.upper)
            if ended and count is not None:
                return

    def _is_time_to_read(self, taken: int) -> bool:
        """A reading costs about as much as five sweeps: every sweep at first, then every few."""
        every = _READ_EVERY if self.graph.n_edges < _LARGE else 4 * _READ_EVERY
        due = self.done <= _SINGLE_READINGS or taken % every == 0
        return due or self.run.clock.expired

    def _sweep(self) -> None:
        before = self._centred()
        self.residual = self.engine.sweeps(1, self.damping)
        self.done += 1
        if not math.isfinite(self.residual):  # too strong for the present damping
            self.engine.set_messages(np.zeros_like(before))
            self._damp()
            return
        if self.residual > self.method.tol:
            better = self.past.combined(before, self._centred(), self.residual)
            if better is not None:
                self.engine.set_messages(better)
        self._watch()

    def _centred(self) -> Array:
        """The messages with mean 0 each, a form that is linear and so can be extrapolated."""
        messages, offsets = self.engine.messages, self.graph.message_offsets
        sizes = np.diff(offsets)
        means = np.add.reduceat(messages, offsets[:-1]) / sizes
        return np.asarray(messages - np.repeat(means, sizes))

    def _watch(self) -> None:
        """Raise damping when the residual no longer falls."""
        last, least = self._window
        self._window = (last, min(least, self.residual))
        self._in_window += 1
        if self._in_window == _WINDOW:
            last, least = self._window
            if least > _MUST_FALL * last and least > self.method.tol:
                self._damp()
            self._window = (least, math.inf)
            self._in_window = 0

    def _damp(self) -> None:
        self.damping = max(self.damping, min(_MOST_DAMPING, 0.5 * (1.0 + self.damping)))
        self.past.clear()

    def _bound(self) -> float:
        upper = self.engine.log_z_upper(self.appearances.parents)
        self.upper = min(self.upper, upper)
        return upper

    # ------------------------------------------------------------------ appearances

    def _optimise(self) -> Iterator[Step]:
        """Conditional gradient: the bound has slope -I_a in the weight of factor a."""
        step = _FIRST_STEP
        yield from self._sweeps(_INNER_TOL, 4 * _INNER_SWEEPS, 1.0)
        level = self._bound()
        while self.rounds < self.method.rounds:
            gains = self.engine.informations()
            forest = self._best_forest(gains)
            self.gap = float(gains @ (forest.weights - self.appearances.weights))
            if self.gap <= self.method.gap or self.appearances.weights.min() < _LEAST_WEIGHT:
                return
            first = step
            kept, messages = self.appearances, self.engine.messages.copy()
            self._use(kept.mixed(forest, step))
            while True:
                yield from self._sweeps(_INNER_TOL, _INNER_SWEEPS, self.gap)
                bound = self._bound()
                if bound < level:
                    break
                step *= 0.5
                self.engine.set_messages(messages)
                if step < first * _LEAST_STEP:
                    self._use(kept)
                    return
                self._use(kept.mixed(forest, step))
            level = bound
            self.rounds += 1
            if step == first:
                step = min(_LARGEST_STEP, 1.3 * step)

    def _best_forest(self, gains: Array) -> Appearances:
        """The forest of largest total gain; larger factors have no sure rule, so two are tried."""
        forest = forest_appearances(self.graph, gains)
        cost = np.maximum(np.diff(self.graph.scope_offsets) - 1, 1)
        if cost.max() > 1:
            other = forest_appearances(self.graph, gains / cost)
            forest = max(forest, other, key=lambda candidate: float(gains @ candidate.weights))
        return forest

    def _use(self, appearances: Appearances) -> None:
        self.appearances = appearances
        self.engine.set_weights(appearances.weights)
        self.past.clear()
        self._window = (math.inf, math.inf)
        self._in_window = 0

    # ------------------------------------------------------------------ the answer

    def solution(self, iterations: int, converged: bool) -> Solution:
        if self.run.stopped == "interrupted":  # perhaps in the middle of a change of weights
            self._use(self.appearances)
        self._bound()
        solution = Solution(
            self.engine.marginals(),
            self.upper,
            converged=converged,
            iterations=iterations,
            log_z_upper=self.upper,
            factor_tables=self.engine.factor_marginals,
            engine=self.engine,
            diagnostics={
                "arithmetic": self.engine.arithmetic,
                "residual": self.residual if math.isfinite(self.residual) else None,
                "appearances": "optimised" if self.rounds else self.appearances.kind,
                "appearance_range": self._range(),
                "damping": self.damping,
            },
        )
        if self.method.appearances == "optimised":
            solution.diagnostics["rounds"] = self.rounds
            solution.diagnostics["gap"] = self.gap if math.isfinite(self.gap) else None
        if self.appearances.kind == "sampled" and self.method.starts_uniform(self.graph):
            solution.warnings.append(
                "appearances are those of sampled forests, as uniform ones would have taken too "
                "long; the upper bound holds, more seconds would lower it"
            )
        if not converged:
            solution.warnings.append(
                f"not converged: a message still changes by {self.residual:.2g}; the upper "
                "bound holds, more max_iterations would lower it"
            )
        return solution

    def _range(self) -> list[float]:
        many = self.appearances.weights[np.diff(self.graph.scope_offsets) > 1]
        return [float(many.min(initial=1.0)), float(many.max(initial=0.0))] if many.size else []


class _Anderson:
    """Anderson acceleration: the combination of past sweeps whose changes cancel best."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.clear()

    def clear(self) -> None:
        """Forget all sweeps."""
        self._last: tuple[Array, Array] | None = None  # where it ended and how it moved
        self._moves: list[Array] = []
        self._rises: list[Array] = []
        self._products = np.zeros((0, 0))
        self._least = math.inf

    def combined(self, before: Array, after: Array, residual: float) -> Array | None:
        """Messages to go on from after a sweep, None for those that the sweep gave."""
        if self.depth == 0:
            return None
        if residual > _JUMP * self._least:
            self.clear()
        self._least = min(self._least, residual)
        change = after - before
        last, self._last = self._last, (after, change)
        if last is None:
            return None
        self._remember(after - last[0], change - last[1])
        scale = np.trace(self._products)
        if not scale > 0:
            return None
        matrix = self._products + 1e-12 * scale * np.eye(len(self._products))
        weights = np.linalg.solve(matrix, np.array([rise @ change for rise in self._rises]))
        out = after.copy()
        for weight, move in zip(weights, self._moves, strict=True):
            out -= weight * move
        return out if np.abs(out).max() < _LARGEST_MESSAGE else None

    def _remember(self, move: Array, rise: Array) -> None:
        """Keep the last `depth` differences, and the products of the rises with each other."""
        self._moves = [*self._moves, move][-self.depth :]
        self._rises = [*self._rises, rise][-self.depth :]
        old = self._products[-(self.depth - 1) :, -(self.depth - 1) :] if self.depth > 1 else None
        size = len(self._rises)
        self._products = np.empty((size, size))
        if old is not None and size > 1:
            self._products[:-1, :-1] = old
        self._products[-1] = self._products[:, -1] = [other @ rise for other in self._rises]
