"""Mixtures of product distributions: a lower bound on log Z that covers several modes.

The trial distribution is Q(x) = sum_m Q(m) prod_i q_m(x_i). Its bound is

    L[Q] = sum_m Q(m) L[q_m] + I(m; x),        0 <= I <= ln M,

the mean bound of the components plus the mutual information between component and state. I itself
cannot be summed; with positive functions R_m(x) = prod_i R_m(x_i) and numbers lambda_m,

    I >= sum_m Q(m) (E_m[ln R_m] - ln Q(m) + ln lambda_m)
         - sum_m lambda_m sum_k Q(k) pi(m, k) + 1,       pi(m, k) = sum_x R_m(x) q_k(x)

(2.24), and with the best lambda_m = Q(m) / sum_k Q(k) pi(m, k) eliminated

    I >= sum_m Q(m) (E_m[ln R_m] - ln sum_k Q(k) pi(m, k)).

Updates are those of the catalogue, with rederived corrections of the published ones: each block is
set to its exact optimum, so the bound never decreases.

Reference: HOJ-I10, LAW-E11, LAW-I9, LAW-I12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.numerics import count_states, entropy, log, logsumexp
from kikuchi.core.progress import silent
from kikuchi.core.trace import Trace
from kikuchi.engines.feasibility import Constraints
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.mean_field.ascent import MultiStartAscent, normalised
from kikuchi.engines.mean_field.mixture import Mixture
from kikuchi.engines.mean_field.mixture_bound import make_mixture, mixture_bound, table_workspace
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import GraphArrays, flatten
from kikuchi.methods.mean_field import MeanField, MeanFieldAscent
from kikuchi.methods.method import Method, option

__all__ = [
    "Mixture",
    "MixtureMeanField",
    "exact_mixture_bound",
    "make_mixture",
    "mixture_bound",
    "sample_set_bound",
    "table_workspace",
]

_TRIAL_SWEEPS = 12  # of each candidate for a new component
_APART = 1e-3  # components closer than this in every probability are the same
_PERTURBATION = 0.3  # standard deviation of the log-probabilities of a perturbed copy
_NEW_WEIGHT = 0.3
_MOST_STATES = 2**22  # enumerated for the exact entropy of a mixture
_WAY_OUT = "use fewer components, or mf"


@dataclass(frozen=True)
class MixtureMeanField(Method):
    """Mixture of mean field solutions: a lower bound on log Z.

    `log_z` and `log_z_lower` are Lawrence's bound with lambda at its optimum, or with
    `entropy=exact` the bound with the true entropy of the mixture (models that can be enumerated).
    Components are added one by one, from other mean field solutions and from perturbed copies of
    existing components; a component that does not increase the bound is discarded, so the bound is
    never below that of the best single component. Random starts begin with all components at
    temperature `anneal_from`, as in Lawrence's work. `form=eliminated` continues from there with
    gradients of the second form of the bound.

    >>> import kikuchi as kk
    >>> pair = kk.boltzmann_graph({(0, 1): 4.0}, [-2.0, -2.0])
    >>> [round(kk.infer(pair, f"mixture-mf:components={m}").log_z, 3) for m in (1, 2)]
    [0.386, 0.82]
    >>> round(kk.infer(pair, "jt").log_z, 3)
    0.82
    """

    most_interpreted: ClassVar[int] = 0
    name: ClassVar[str] = "mixture-mf"
    edge_seconds: ClassVar[float] = 2.5e-7
    objective_name: ClassVar[str] = "lower bound"
    certifies = ("lower",)

    components: int = option(4, "product distributions in the mixture", low=1)
    form: Literal["lambda", "eliminated"] = option(
        "lambda",
        "coordinate ascent with lambda, or followed by gradients of the bound without lambda",
    )
    entropy: Literal["bound", "exact"] = option(
        "bound", "entropy of the mixture: bounded, or exact by enumeration (small models)"
    )
    start: Literal["both", "grow", "random"] = option(
        "both", "add components one by one, or begin with all at random; both: keep the better"
    )
    anneal_from: float = option(60.0, "initial temperature of a random start", low=1.0)
    anneal_sweeps: int = option(8, "number of temperatures from there down to 1", low=1)
    tries: int = option(4, "candidates for each new component; random starts", low=1)
    tol: float = option(
        1e-7, "stop when no probability changes by more than this in a sweep", low=0.0
    )
    max_iter: int = option(500, "maximum number of sweeps for each number of components", low=1)
    seed: int = option(0, "seed of the starts", low=0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        needed = 8 * self.components * (2 * int(graph.state_offsets[-1]) + 3 * self.components)
        run.clock.budget.require_bytes(3 * needed, "the mixture", _WAY_OUT)
        if self.entropy == "exact":
            _check_enumerable(graph)
        naive, solutions = _mean_field_solutions(graph, run, self.seed, self.components)
        ascent = MixtureAscent(self, graph, run, naive)
        if naive.log_z is None:
            return naive
        ascent.begin(solutions)
        if self.components > 1 and not ascent.must_end:
            if self.start != "random":
                ascent.grow()
            if self.start != "grow" and not ascent.must_end:
                ascent.all_at_once()
        if self.form == "eliminated" and not ascent.must_end:
            ascent.follow_gradients()
        return ascent.solution()


class MixtureAscent(MultiStartAscent):
    """The best mixture so far, and the searches for a better one."""

    def __init__(
        self, method: MixtureMeanField, graph: FactorGraph, run: MethodRun, naive: Solution
    ) -> None:
        super().__init__(method.seed, run)
        self.method = method
        self.graph = graph
        self.naive = naive
        self.flat: GraphArrays = flatten(graph)
        self.alive = Constraints(self.flat).alive
        self.field = np.zeros(self.flat.max_card)
        self.scratch = table_workspace(self.flat)
        self.converged = bool(naive.converged)
        self.bounds: list[float] = []
        self.candidates: list[Array] = []
        self.best: Mixture
        self.best_bound = -math.inf

    def begin(self, solutions: list[Array]) -> None:
        """Start with one component: the best mean field solution."""
        self.candidates = solutions[1:]
        self._keep(self._mixture(np.ones(1), solutions[:1]), self.converged)
        self.bounds = [self.best_bound]

    # ------------------------------------------------------------------ starts

    def grow(self) -> None:
        """Add one component after the other while the bound increases."""
        for size in range(2, self.method.components + 1):
            extended = self._best_candidate()
            if extended is not None:
                self._ascend(extended)
            if self.must_end:
                break
            self.bounds.extend([self.best_bound] * (size - len(self.bounds)))

    def _best_candidate(self) -> Mixture | None:
        """Return the best candidate for a new component after a few sweeps of the mixture."""
        best, best_bound = None, -math.inf
        for q in self._new_components():
            mixture = self._extended(q)
            bounds = np.zeros(len(mixture.weights))
            for _ in range(_TRIAL_SWEEPS):
                self._sweep(mixture, 1.0, bounds)
                self.done += 1
            value = self._value(mixture)
            if value > best_bound:
                best, best_bound = mixture, value
            if self.must_end:
                break
        return best

    def _new_components(self) -> Iterator[Array]:
        """Other mean field solutions, perturbed copies of heavy components, random products."""
        fresh = [q for q in self.candidates if self._apart(q)]
        heavy = np.argsort(-self.best.weights)
        for k in range(self.method.tries):
            if k % 3 == 0 and k // 3 < len(fresh):
                yield fresh[k // 3]
            elif k % 3 == 1:
                yield self._perturbed(self.best.q[heavy[k // 3 % len(heavy)]])
            else:
                yield self._supported(self.rng.standard_exponential(len(self.alive)))

    def _apart(self, q: Array) -> bool:
        return bool(np.all(np.abs(self.best.q - q).max(axis=1) > _APART))

    def _perturbed(self, q: Array) -> Array:
        noise = np.exp(_PERTURBATION * self.rng.standard_normal(len(q)))
        return normalised(q * noise, self.graph.state_offsets)

    def _extended(self, q: Array) -> Mixture:
        weights = np.append((1.0 - _NEW_WEIGHT) * self.best.weights, _NEW_WEIGHT)
        return self._mixture(weights, [*self.best.q, q])

    def all_at_once(self) -> None:
        """Anneal random components together, several times."""
        m = self.method
        temperatures = np.geomspace(m.anneal_from, 1.0, m.anneal_sweeps + 1)[:-1]
        for _ in range(m.tries):
            masses = self.rng.standard_exponential((m.components, len(self.alive)))
            mixture = self._mixture(
                np.full(m.components, 1.0 / m.components),
                [self._supported(row) for row in masses],
            )
            bounds = np.zeros(m.components)
            for temperature in temperatures if m.anneal_from > 1.0 else ():
                self._sweep(mixture, float(temperature), bounds)
                self.done += 1
            self._ascend(mixture)
            if self.must_end:
                break
        self.bounds[-1] = self.best_bound

    def _supported(self, masses: Array) -> Array:
        """Return random distributions on the support of the mean field solution, so that the bound
        is finite.
        """
        return normalised(masses * (self.naive.marginals > 0.0), self.graph.state_offsets)

    def _mixture(self, weights: Array, rows: list[Array]) -> Mixture:
        return make_mixture(self.flat, weights, np.array(rows))

    # ------------------------------------------------------------------ ascent

    def _sweep(self, mixture: Mixture, temperature: float, bounds: Array) -> float:
        from kikuchi.engines.mean_field.kernels.mixture_mean_field import overlaps, sweep

        overlaps(self.graph.state_offsets, mixture)  # sums and differences accumulate errors
        return float(
            sweep(self.flat, self.alive, mixture, temperature, self.field, self.scratch, bounds)
        )

    def _ascend(self, mixture: Mixture) -> None:
        limit = self.done + self.method.max_iter
        self._keep(mixture, self.take(self._step(mixture), self.method.tol, limit))

    def _step(self, mixture: Mixture) -> Callable[[Iterations], Step]:
        """Make a sweep over the mixture, which never decreases the bound."""
        bounds = np.zeros(len(mixture.weights))

        def step(state: Iterations) -> Step:
            change = self._sweep(mixture, 1.0, bounds)
            self.done = state.done = state.done + 1
            value = self._value(mixture)
            return Step(state.done, residual=change, objective=value, lower=value)

        return step

    def _value(self, mixture: Mixture) -> float:
        """Return the bound with lambda eliminated, computed from scratch."""
        return mixture_bound(self.flat, mixture, self.scratch)

    def _keep(self, mixture: Mixture, converged: bool) -> None:
        value = self._value(mixture)
        if value > self.best_bound:
            self.best, self.best_bound, self.converged = mixture.copy(), value, converged

    def follow_gradients(self) -> None:
        """Maximise the bound without lambda over all parameters jointly."""
        from kikuchi.engines.mean_field.mixture_gradient import maximise

        mixture, evaluations = maximise(self.flat, self.best, self.method.max_iter, self.run)
        self.done += evaluations
        self._keep(mixture, self.converged)
        self.bounds[-1] = self.best_bound

    @property
    def must_end(self) -> bool:
        """Return whether the budget is used up or the user has interrupted, and record it."""
        if self.run.stopped != "interrupted" and self.run.clock.expired:
            self.run.stopped = "seconds"
        return super().must_end

    # ------------------------------------------------------------------ answer

    def solution(self) -> Solution:
        """Return the best mixture as a solution."""
        best = self.best
        value = self.best_bound
        if self.method.entropy == "exact":
            value = max(value, exact_mixture_bound(self.graph, best.weights, best.q))
        self.record_stop(self.converged)
        constant = self.graph.log_constant
        return Solution(
            marginals=best.weights @ best.q,
            log_z=value,
            log_z_lower=value,
            converged=self.converged,
            iterations=max(self.done, 1),
            factor_tables=lambda: self._factor_tables(best),
            diagnostics={
                "weights": best.weights.copy(),
                "components": best.q.copy(),
                "information": value - float(best.weights @ self._component_bounds(best)),
                "minimum_overlap": float(entropy(best.weights)),
                "bounds": [b + constant for b in self.bounds],
            },
        )

    def _component_bounds(self, mixture: Mixture) -> Array:
        from kikuchi.engines.mean_field.kernels.mixture_mean_field import component_bounds

        bounds = np.zeros(len(mixture.weights))
        component_bounds(self.flat, mixture.q, 1.0, bounds, self.scratch)
        return np.where(mixture.weights > 0.0, bounds, 0.0)

    def _factor_tables(self, mixture: Mixture) -> Array:
        from kikuchi.engines.mean_field.kernels.mean_field import products

        total = np.zeros(self.flat.log_tables.size)
        tables = np.empty_like(total)
        for weight, q in zip(mixture.weights, mixture.q, strict=True):
            products(self.flat, np.ascontiguousarray(q), tables)
            total += weight * tables
        return total


# ---------------------------------------------------------------------- bounds


def exact_mixture_bound(graph: FactorGraph, weights: ArrayLike, components: ArrayLike) -> float:
    """L[Q] of a mixture of products with its true entropy, by enumeration (2.20).

    `components` has a row of flat marginals for each component. Without `graph.log_constant`.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1.0, 3.0])])
    >>> round(exact_mixture_bound(coin, [0.25, 0.75], [[1, 0], [0, 1]]), 6)
    1.386294
    """
    _check_enumerable(graph)
    a = np.asarray(weights, dtype=np.float64)
    rows = np.asarray(components, dtype=np.float64)
    mixed = np.zeros(1)
    for weight, row in zip(a, rows, strict=True):
        joint = np.full(1, weight)
        for v in range(graph.n_variables):
            p = row[graph.state_offsets[v] : graph.state_offsets[v + 1]]
            joint = np.multiply.outer(joint, p).ravel()
        mixed = mixed + joint
    states = np.flatnonzero(mixed)
    total = 0.0
    for first in range(0, len(states), 2**16):
        chunk = states[first : first + 2**16]
        x = np.stack(np.unravel_index(chunk, graph.cardinalities.astype(np.int64)), axis=1)
        scores = graph.log_score(x) - graph.log_constant
        total += float(np.sum(mixed[chunk] * (scores - log(mixed[chunk]))))
    return total


def sample_set_bound(graph: FactorGraph, states: ArrayLike) -> float:
    """Return the log of the summed weight of the distinct states among `states`, a lower bound.

    It is the bound of the mixture of point masses on these states with the best weights,
    Q(m) proportional to the weight of state m; components do not overlap, so that the mutual
    information is the entropy of Q(m) exactly.

    `graph` is the model.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1.0, 3.0])])
    >>> round(sample_set_bound(coin, [[1], [1], [0]]), 6)
    1.386294
    """
    x = np.atleast_2d(np.asarray(states))
    if x.size == 0:
        return -math.inf
    return float(logsumexp(graph.log_score(np.unique(x, axis=0))))


def _check_enumerable(graph: FactorGraph) -> None:
    count = count_states(graph.cardinalities)
    if count > _MOST_STATES:
        raise MethodError(
            f"the exact entropy of a mixture sums over all {count:.3g} states, at most "
            f"{_MOST_STATES} are allowed; use entropy=bound"
        )


def _mean_field_solutions(
    graph: FactorGraph, run: MethodRun, seed: int, components: int
) -> tuple[Solution, list[Array]]:
    """Return the result of `mf`, and the distinct solutions of its starts, best first."""
    starts = MeanField().restarts if components == 1 else max(MeanField().restarts, 2 * components)
    inner = MethodRun(run.clock, silent, Trace(), 0.0, reduced=run.reduced)
    ascent = MeanFieldAscent(MeanField(seed=seed, restarts=starts), graph, inner)
    ascent.from_all_starts()
    naive = ascent.solution()
    if inner.stopped in ("seconds", "interrupted"):
        run.stopped = inner.stopped
    different: list[Array] = []
    for optimum in sorted(ascent.optima, key=lambda optimum: -optimum.bound):
        q = optimum.beliefs
        if optimum.bound > -math.inf and all(np.abs(p - q).max() > _APART for p in different):
            different.append(q)
    return naive, different
