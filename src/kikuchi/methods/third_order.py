r"""A lower bound on log Z of third order, above that of mean field at every point.

For every x, nu and lambda, with d = x - nu,

    e^x >= e^nu (1 + d + e^lambda ((1 - lambda) d^2 / 2 + d^3 / 6)),

since e^x - e^nu (1 + d) is twice the integral of e^s between nu and x, and e^s lies above each of
its tangents. Averaged over independent spins q with x = log weight - log q, and at the best lambda,
with kappa_1, kappa_2, kappa_3 the first cumulants of x under q and nu = kappa_1,

    log Z >= kappa_1 + log(1 + kappa_2 / 2 exp(kappa_3 / (3 kappa_2))).

The first term alone is the bound of mean field. The fields of the spins then maximise the whole
bound.

Reference: HOJ-X8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.engines.units.spins import PairBeliefs, SpinModel, spin_marginals, spin_model
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import BinaryPairwiseMethod, option
from kikuchi.methods.plefka import Expansion, ExpansionDescent
from kikuchi.methods.saddle_point import cumulants

_LEAST = 1e-280  # negligible variance of the log-weight
_STEEPEST = 20.0  # largest field of a spin: larger ones have no effect


def third_order_bound(model: SpinModel, x: Array) -> tuple[float, Array]:
    """Return the bound at independent spins in the fields x, without the model's constant, and its
    gradient.

    >>> from kikuchi import ising
    >>> model = spin_model(ising({(0, 1): 0.5}, [0.0, 0.0]), "third-order")
    >>> value, _ = third_order_bound(model, np.zeros(2))
    >>> round(value, 6), round(math.log(4 * math.cosh(0.5)), 6)
    (1.504077, 1.506409)
    """
    found = _Slopes(model, x)
    return found.value, found.by_field


class BoundMoments(NamedTuple):
    """Derivatives of the bound by fields and stored couplings, as approximations of E[s_i] and
    E[s_i s_j]; they need not be moments of any distribution.
    """

    means: Array
    correlations: Array


def bound_moments(model: SpinModel, x: Array) -> BoundMoments:
    """Return the derivatives of the bound by the model's parameters, for fixed independent spins.

    >>> from kikuchi import ising
    >>> model = spin_model(ising({(0, 1): 0.5}, [0.0, 0.0]), "third-order")
    >>> bound_moments(model, np.zeros(2)).correlations.round(4).tolist()  # tanh 0.5 = 0.4621
    [0.4444, 0.4444]
    """
    return _Slopes(model, x).moments()


class _Slopes:
    """The bound at a point and its derivatives."""

    def __init__(self, model: SpinModel, x: Array) -> None:
        terms = cumulants(model, x)
        self.model, self.at = model, Expansion(model, 3, x)
        at, j, columns = self.at, model.couplings, model.columns
        m, v, t = at.m, at.v, -2.0 * at.u
        self.t = t
        self.a = a = model.fields - x + model.sums(j * m[columns])
        self.value, self.by_field = terms.log_z0 + terms.first, v * a
        self.weight, self.ratio, self.by_a = 0.0, 0.0, np.zeros_like(x)
        if not terms.second > _LEAST:
            return
        self.ratio = ratio = terms.third / (3.0 * terms.second)
        size = math.log(0.5 * terms.second) + ratio
        self.value += float(np.logaddexp(0.0, size))
        self.weight = math.exp(ratio - math.log(2.0) - float(np.logaddexp(0.0, size)))
        over = model.sums(j**2 * v[columns])
        bent = model.sums(j * (a * v)[columns])
        self.by_a = by_a = (1.0 - ratio) * 2.0 * a * v + a**2 * t + 2.0 * v * bent + t * over
        by_v = (1.0 - ratio) * (a**2 + over) + 2.0 * a * bent
        by_v = by_v + model.sums(j**2 * (a * t)[columns]) + model.sums(j * at.paths * v[columns])
        by_t = (a**3 + 3.0 * a * over + model.sums(j**3 * t[columns])) / 3.0
        by_m = -2.0 * m * by_v + (6.0 * m**2 - 2.0) * by_t + model.sums(j * by_a[columns])
        self.by_field = self.by_field + self.weight * (v * by_m - by_a)

    def moments(self) -> BoundMoments:
        """Return the derivatives by fields and couplings."""
        at, j, rows, columns = self.at, self.model.couplings, self.model.rows, self.model.columns
        m, v, a, t = at.m, at.v, self.a, self.t
        both = v[rows] * v[columns]
        direct = 2.0 * (1.0 - self.ratio) * j * both + 2.0 * (a[rows] * a[columns]) * both
        direct += 2.0 * j * (a[rows] * t[rows] * v[columns] + a[columns] * t[columns] * v[rows])
        direct += j**2 * t[rows] * t[columns] + 2.0 * at.paths * both
        through = self.by_a[rows] * m[columns] + self.by_a[columns] * m[rows]
        return BoundMoments(
            m + self.weight * self.by_a,
            m[rows] * m[columns] + self.weight * (direct + through),
        )


def ascend_bound(model: SpinModel, x: Array, limit: int, tol: float) -> tuple[float, Array, bool]:
    """Return the highest bound that L-BFGS reaches from x, its point, and whether the gradient is
    below `tol`.

    For callers without a budget, such as rows of data with a model each.
    """
    descent = _descent(model, x)
    for _ in descent.steps(limit, tol=tol):
        pass
    return -descent.value, descent.point, descent.residual <= tol


def _descent(model: SpinModel, x: Array) -> Lbfgs:
    def objective(point: Array) -> tuple[float, Array]:
        if np.abs(point).max(initial=0.0) > _STEEPEST:
            return math.inf, np.zeros_like(point)
        value, slope = third_order_bound(model, point)
        return -value, -slope

    return Lbfgs(objective, np.clip(x, -_STEEPEST, _STEEPEST), longest=2.0)


@dataclass(frozen=True)
class ThirdOrder(BinaryPairwiseMethod):
    """Lower bound of third order, tighter than mf: binary pairwise models.

    Maximises the bound from several mean-field solutions and returns the best result. `log_z` is
    the bound, which is at least that of mean field. The marginals are those of the independent
    spins at which the bound is highest.

    >>> import kikuchi as kk
    >>> triangle = kk.ising({(0, 1): 0.4, (1, 2): 0.4, (0, 2): 0.4}, [0.1, 0.0, 0.0])
    >>> [round(kk.infer(triangle, m).log_z, 4) for m in ("mf", "third-order", "jt")]
    [2.0899, 2.3571, 2.3717]
    """

    name: ClassVar[str] = "third-order"
    edge_seconds: ClassVar[float] = 5.5e-7
    edge_setup_seconds: ClassVar[float | None] = 2e-7
    objective_name: ClassVar[str] = "lower bound"
    certifies = ("lower",)

    tol: float = option(1e-6, "stop when no component of the gradient is larger", low=0)
    max_iter: int = option(500, "maximum number of steps of each start", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        model = spin_model(graph, self.name)
        field = ExpansionDescent(model, run, order=1, damping=0.0, tol=1e-6, limit=500)
        field.from_starts(self.restarts, self.seed)
        starts = [minimum.at.x for minimum in field.minima]
        best: tuple[float, Array, bool] | None = None
        for x in starts:
            if best is not None and field.must_end:
                break
            found = self._ascend(model, x, run, field)
            if best is None or found[0] > best[0]:
                best = found
        assert best is not None
        return self._found(graph, model, run, field, best)

    def _ascend(
        self, model: SpinModel, x: Array, run: MethodRun, field: ExpansionDescent
    ) -> tuple[float, Array, bool]:
        descent, first = _descent(model, x), field.done

        def step(state: Iterations) -> Step | None:
            if descent.residual <= self.tol or not descent.step():
                return None
            state.done += 1
            return Step(state.done, descent.residual, model.constant - descent.value)

        if descent.residual > self.tol and not field.must_end:
            limit = first + self.max_iter
            ended = iterate(step, Iterations(first), run, tol=self.tol, limit=limit)
            field.done = max(ended.iterations, field.done)
        return -descent.value, descent.point, descent.residual <= self.tol

    def _found(
        self, graph: FactorGraph, model: SpinModel, run: MethodRun, field: ExpansionDescent,
        best: tuple[float, Array, bool],
    ) -> Solution:  # fmt: skip
        value, x, converged = best
        if run.stopped not in ("seconds", "interrupted"):
            run.stopped = "converged" if converged else "iterations"
        marginals = spin_marginals(x)
        m = np.tanh(x)
        pairs = PairBeliefs(model, marginals, m[model.rows] * m[model.columns])
        first = cumulants(model, x).log_z(1)
        solution = Solution(
            marginals,
            log_z=model.constant + value,
            log_z_lower=model.constant + value,
            converged=converged,
            iterations=field.done,
            factor_tables=lambda: pairs.tables(graph),
            diagnostics={"mean_field_bound": model.constant + first},
        )
        if not converged:
            solution.warnings.append(
                "not converged: the bound still increases; raise max_iter or allow more time"
            )
        return solution
