"""Tree-reweighted belief propagation: a convex variant of Bethe, and an upper bound on log Z.

Reference: LIU-D6, LIU-I8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.errors import OutOfTimeError
from kikuchi.core.seeds import generator
from kikuchi.engines.loops.iterate import Ended
from kikuchi.engines.messages.bound_descent import ReweightedDescent, copies_kept
from kikuchi.engines.messages.reweighted import (
    ReweightedMessages,
    require_bytes,
)
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.graphs.appearances import (
    Appearances,
    forest_appearances,
    given_appearances,
    sampled_appearances,
    uniform_appearances,
)
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.lists import numbers_of, numbers_text, shortened
from kikuchi.methods.method import EngineMethod, option

_NAMED = ("uniform", "sampled", "optimised")
_SETTING_UP = 0.5  # fraction of the remaining time that appearances may take
_EDGE_SECONDS = (
    1e-6  # per edge, to create the messages and read off a bound, for graphs larger than the caches
)
_FOREST_SECONDS = 3e-7  # per edge, to build a forest
_LATE = 0.25  # seconds by which a set-up may exceed the limit


@dataclass(frozen=True)
class TreeReweighted(EngineMethod):
    """Tree-reweighted BP: a certified upper bound on log Z.

    Minimises the reweighted free energy whose weights are the probabilities of the factors
    in a random forest. It is convex, so there is one solution, and minus its minimum is never below
    log Z. `log_z` is the bound. It is computed from the messages in a form that is valid for any
    messages (`ReweightedMessages.log_z_upper`), so the bound is valid whenever the run is stopped;
    single sweeps may increase it, and the smallest is returned. On forests all weights are 1 and
    the result is exact.

    `appearances`: `uniform` over all spanning trees, exactly (effective resistances; models with
    larger factors use `sampled`, and so do those whose factorisation would take more than half of
    the remaining time, with a warning), `sampled` random forests, `optimised` by conditional
    gradient from there (the forest with the largest mutual information is mixed in while the bound
    decreases), or one probability for each factor, `[0.5, 0.5, 1]` in Python and `0.5/0.5/1` in a
    specification string (those of single-variable factors are ignored). Probabilities outside the
    spanning-tree polytope raise an error that names the variables.

    Sweeps are accelerated by combining the last few (Anderson); damping starts at `damping` and
    increases automatically if the messages do not converge.

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
        "uniform",
        "probabilities of factors in forests: uniform, sampled, optimised, or such as 0.5/0.5/1",
    )
    damping: float = option(0.0, "minimum weight on the old message", low=0, below=1)
    accelerate: int = option(
        10, "past sweeps that are combined; 0 for plain sweeps", low=0, high=50
    )
    schedule: Literal["sequential", "parallel"] = option(
        "sequential", "order of updates: variable by variable, or all at once"
    )
    tol: float = option(1e-9, "stop when no message changes by more than this; 0: never", low=0)
    max_iter: int = option(5000, "maximum number of sweeps over all messages", low=1)
    forests: int = option(100, "number of random forests for sampled appearances", low=1)
    rounds: int = option(50, "maximum number of updates of optimised appearances", low=0)
    gap: float = option(
        1e-2, "stop optimising when the bound can decrease by less than this", low=0
    )
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
        return self._read(descent, ended)

    def prepared(self, graph: FactorGraph, run: MethodRun) -> Appearances:
        """Return the appearances that a run begins with."""
        require_bytes(graph, run.clock.budget, copies_kept(self.accelerate))
        _require_seconds(graph, run, _least_forests(graph))
        return self.choose_appearances(graph, run)

    def settled(
        self, graph: FactorGraph, run: MethodRun, prepared: Appearances | None = None
    ) -> tuple[ReweightedMessages, Ended]:
        """Return the messages after the last sweep."""
        descent, ended = self._descended(graph, run, prepared or self.prepared(graph, run))
        descent.engine.responds = not self.optimises
        return descent.engine, ended

    def _descended(
        self, graph: FactorGraph, run: MethodRun, appearances: Appearances
    ) -> tuple[ReweightedDescent, Ended]:
        _require_seconds(graph, run, 0)
        descent = ReweightedDescent(self, graph, run, appearances)
        iterations, converged = run.iterate(descent.steps(), tol=self.tol, limit=self.max_iter)
        descent.finish()
        return descent, Ended(iterations, converged, descent.residual)

    @property
    def optimises(self) -> bool:
        """Whether the appearances are optimised for the tables."""
        return self.appearances == "optimised"

    def _read(self, descent: ReweightedDescent, ended: Ended) -> Solution:
        engine, residual = descent.engine, descent.residual
        solution = Solution(
            engine.marginals(),
            descent.upper,
            converged=ended.converged,
            iterations=ended.iterations,
            log_z_upper=descent.upper,
            factor_tables=engine.factor_marginals,
            engine=engine,
            diagnostics={
                "arithmetic": engine.arithmetic,
                "residual": residual if math.isfinite(residual) else None,
                "appearances": "optimised" if descent.rounds else descent.appearances.kind,
                "appearance_range": _range(descent.graph, descent.appearances),
                "damping": descent.damping,
            },
        )
        if self.optimises:
            solution.diagnostics["rounds"] = descent.rounds
            solution.diagnostics["gap"] = descent.gap if math.isfinite(descent.gap) else None
        if descent.appearances.kind == "sampled" and self.starts_uniform(descent.graph):
            solution.warnings.append(
                "appearances are those of sampled forests, since uniform ones would have taken "
                "too long; the upper bound is valid, and more seconds would lower it"
            )
        if not ended.converged:
            solution.warnings.append(
                f"not converged: a message still changes by {residual:.2g}; the upper bound is "
                "valid, and a larger max_iter would lower it"
            )
        return solution

    def choose_appearances(self, graph: FactorGraph, run: MethodRun) -> Appearances:
        """Return the initial appearances of the `run`, which depend only on the scopes of the
        `graph`.
        """
        assert isinstance(self.appearances, str)
        if self.appearances not in _NAMED:
            rho = numbers_of(self.name, "appearances", self.appearances, run)
            return given_appearances(graph, rho)
        if graph.is_forest:
            return forest_appearances(graph, np.ones(graph.n_factors))
        clock = run.clock
        if self.starts_uniform(graph):
            with suppress(OutOfTimeError):  # then sampled forests, with a warning
                return uniform_appearances(graph, clock.budget, _SETTING_UP * clock.seconds_left)
        latest = clock.seconds + _SETTING_UP * clock.seconds_left
        rng = generator(self.seed)
        return sampled_appearances(graph, self.forests, rng, lambda: clock.seconds >= latest)

    def starts_uniform(self, graph: FactorGraph) -> bool:
        """Return whether the initial appearances are those of all spanning trees of the `graph`, if
        time allows.
        """
        return self.appearances != "sampled" and bool(np.all(np.diff(graph.scope_offsets) <= 2))


def _range(graph: FactorGraph, appearances: Appearances) -> list[float]:
    """Return the smallest and the largest appearance of a factor of several variables."""
    many = appearances.weights[np.diff(graph.scope_offsets) > 1]
    return [float(many.min(initial=1.0)), float(many.max(initial=0.0))] if many.size else []


def _least_forests(graph: FactorGraph) -> int:
    """Return the smallest number of forests that can contain all factors of several variables."""
    joins = int((np.diff(graph.scope_offsets) - 1).sum())  # number of trees, for all factors
    return -(-joins // max(graph.n_variables - 1, 1))


def _require_seconds(graph: FactorGraph, run: MethodRun, forests: int) -> None:
    """Raise an error if a set-up with this many forests cannot end in time."""
    needed = graph.n_edges * (_EDGE_SECONDS + forests * _FOREST_SECONDS)
    if needed > run.clock.seconds_left + _LATE:
        raise OutOfTimeError(
            f"setting up tree-reweighted messages takes about {needed:.2g} s, more than the budget "
            "leaves; give more seconds or use mf"
        )
