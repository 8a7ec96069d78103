r"""Adaptive TAP, the cavity method with a self-consistent reaction term.

For p(s) = (1/Z) prod_i rho_i(s_i) exp(s'Js / 2 + theta's) the field of the other spins on s_i is
treated as Gaussian with variance V_i in the system without s_i:

    p(s_i) prop. to rho_i(s_i) exp(V_i s_i^2 / 2 + f_i s_i),
    f_i = theta_i + sum_j J_ij m_j - V_i m_i,

with mean m_i and variance v_i. The V_i are not computed from the couplings, as in TAP, but from a
consistency condition: with Lambda_i = V_i + 1 / v_i, chi = (Lambda - J)^-1 has chi_ii = v_i. This
is a fixed point of expectation propagation with a Gaussian factor exp(g_i s_i - Lambda_i s_i^2 / 2)
in place of every rho_i, and is computed in this way, one factor after the other.

Reference: HOJ-I16, HOJ-M4, HOJ-M12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import KikuchiError
from kikuchi.core.run import StepAborted
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import State
from kikuchi.engines.response.linear_response import checked, states_of
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.engines.sites.dense import Cavity, SpinSites
from kikuchi.engines.units.spins import (
    PairBeliefs,
    SpinModel,
    spin_covariance_root,
    spin_marginals,
    spin_model,
)
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import Method, more_damping, option

_PATIENCE = 20  # sweeps without a smaller residual before damping is increased
_MOST_DAMPING = 0.99
_SMALL_EXCESS = 1e-3
_WORK_MATRICES = 4


@dataclass(frozen=True)
class AdaptiveTap(Method):
    """Adaptive TAP: Gaussian cavity fields, dense binary pairwise models.

    Expectation propagation with Gaussian factors, one variable after the other with rank-one
    updates, n^3 operations per sweep: for dense models of up to a few thousand variables. `damping`
    is the fraction of each step that is not made; it increases when the residual does not decrease.
    The run converges when no mean or variance of a single spin differs from that of the joint
    Gaussian by more than `tol`; the best point is returned. `log_z` is not a bound.
    `beliefs.covariance()` is chi, whose diagonal agrees with the marginals.

    >>> import kikuchi as kk
    >>> couplings = np.random.default_rng(0).normal(0, 0.1, (8, 8))
    >>> model = kk.ising(couplings + couplings.T, [0.3] * 8)
    >>> beliefs = kk.infer(model, "adatap")
    >>> abs(beliefs.log_z - kk.infer(model, "jt").log_z) < 0.02
    True
    """

    name: ClassVar[str] = "adatap"
    objective_name: ClassVar[str] = "adaptive TAP log Z"
    needs_binary_pairwise: ClassVar[bool] = True
    needs_positive_tables: ClassVar[bool] = True
    gives_covariance: ClassVar[bool] = True

    damping: float = option(0.3, "initial fraction of each step that is not made", low=0, below=1)
    tol: float = option(1e-9, "stop when no mean or variance differs by more than this", low=0)
    max_iter: int = option(1000, "maximum number of sweeps over all variables", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        model = spin_model(graph, self.name)
        _require_memory(model.size, run.clock.budget)
        iteration = _CavityIteration(self, model, run.clock)
        ended = iterate(iteration.step, iteration.state, run, tol=self.tol, limit=self.max_iter)
        return iteration.solution(graph, ended.iterations, ended.converged)


def _require_memory(n: int, budget: Budget) -> None:
    budget.require_bytes(
        8 * _WORK_MATRICES * n**2,
        f"adaptive TAP of {n} variables",
        "use tap, bp or mf, which store only the couplings",
    )


@dataclass(eq=False)
class _SiteState(State):
    """The factors of the sites, the state of the cavity method, and the current damping."""

    precision: Array
    linear: Array
    damping: float
    done: int = 0
    since: int = 0  # the best point


class _CavityIteration:
    """Sweeps with as much damping as convergence requires, and the best point so far."""

    def __init__(self, method: AdaptiveTap, model: SpinModel, clock: Clock) -> None:
        self.clock = clock
        self.method = method
        self.model = model
        couplings = model.sparse(model.couplings).toarray()
        began = clock.seconds
        self.cavity = Cavity(couplings, model.fields, SpinSites())
        # Seconds to restore the best point, with a margin for a busy machine.
        self._to_end = 2.0 * (clock.seconds - began)
        self.residual = math.inf
        self.state = _SiteState(self.cavity.precision, self.cavity.linear, method.damping)
        self.best = self.state.copy()

    def step(self, state: _SiteState) -> Step | None:
        """Make one sweep; return None when the damping cannot be increased further."""
        if state.since >= _PATIENCE:
            state.damping, state.since = 0.5 * (1.0 + state.damping), 0
            self._go_back()
        if state.damping >= _MOST_DAMPING:
            return None
        before = state.copy()
        residual = self._sweep(state.damping)
        state.done += 1
        state.since += 1
        if residual < self.residual:
            self.residual, state.since = residual, 0
            self.best = state.copy() if residual <= self.method.tol else before
        log_z = self.model.constant + self.cavity.log_z if residual < math.inf else math.nan
        return Step(state.done, residual, log_z)

    def _sweep(self, damping: float) -> float:
        """Make one sweep; if it fails, restore the best point and return infinity."""
        try:
            residual = self.cavity.sweep(damping, self._must_end)
        except KikuchiError:
            self._go_back()
            return math.inf
        if residual == math.inf and self._must_end():
            raise StepAborted("seconds")
        return residual

    def _must_end(self) -> bool:
        """Return whether there is only time left to restore the best point."""
        limit = self.clock.budget.seconds
        return limit is not None and self.clock.seconds + self._to_end >= limit

    def _go_back(self) -> None:
        """Restore the best point."""
        self.cavity.precision[:] = self.best.precision
        self.cavity.linear[:] = self.best.linear
        self.cavity.refresh()

    def solution(self, graph: FactorGraph, done: int, converged: bool) -> Solution:
        """Return the best point as a solution."""
        self._go_back()
        cavity, model = self.cavity, self.model
        fields = cavity.cavity_fields
        marginals = spin_marginals(fields)
        m = np.tanh(fields)
        chi = cavity.covariance[model.rows, model.columns]
        pairs = PairBeliefs(model, marginals, m[model.rows] * m[model.columns] + chi)
        solution = Solution(
            marginals,
            log_z=model.constant + cavity.log_z,
            converged=converged,
            iterations=done,
            factor_tables=lambda: pairs.tables(graph),
            covariance=lambda variables: _state_covariance(cavity, graph, variables),
            diagnostics={"residual": self.residual, "largest_reaction": _largest(cavity.reactions)},
        )
        if not converged:
            solution.warnings.append(
                f"not converged: single and joint moments differ by {self.residual:.2g}; the best "
                f"point is returned: try {more_damping(self.method.damping)} or more "
                "max_iter, or use tap or bp"
            )
        if pairs.excess > _SMALL_EXCESS:
            solution.warnings.append(
                "the fields of the others are not Gaussian here: a correlation of two spins "
                f"exceeds its range by {pairs.excess:.2g}; use bp or kikuchi"
            )
        return solution


def _largest(values: Array) -> float:
    return float(values.max(initial=0.0))


def _state_covariance(cavity: Cavity, graph: FactorGraph, variables: Ints) -> Array:
    """Return chi of the requested spins, as covariances of their states."""
    root = spin_covariance_root(np.ones(graph.n_variables))[states_of(graph, variables)]
    return checked(root @ cavity.covariance @ root.T)
