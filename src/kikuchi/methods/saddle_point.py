r"""Saddle point and cumulant expansion of spin models.

The saddle point of Z as an integral over means m and fields x is m_i = tanh x_i with
x_i = -dE(m)/dm_i. Every product in E contains distinct spins, so E(m) is the mean of E(s) for
independent spins, and the saddle point is the naive mean-field solution.

Around independent spins with energy E_0 = -sum_i x_i s_i

    log Z = log Z_0 + kappa_1 + kappa_2 / 2! + kappa_3 / 3! + ...,

kappa_k the k-th cumulant of E_0 - E. With v = 1 - m^2, t = -2 m v the third central moment and
a_i = h_i - x_i + sum_j J_ij m_j, which is 0 at the saddle point,

    kappa_1 = sum_{i<j} J_ij m_i m_j + sum_i (h_i - x_i) m_i,
    kappa_2 = sum_i a_i^2 v_i + sum_{i<j} J_ij^2 v_i v_j,
    kappa_3 = sum_i a_i^3 t_i + 6 sum_{i<j} a_i a_j J_ij v_i v_j
              + 3 sum_{i<j} J_ij^2 (a_i t_i v_j + a_j t_j v_i)
              + sum_{i<j} J_ij^3 t_i t_j + 6 sum_{i<j<k} J_ij J_jk J_ki v_i v_j v_k.

log Z_0 + kappa_1 is the bound of Gibbs, Bogoliubov and Feynman at any x. In information geometry
its gap, KL(q_0 || p), is KL(q_0 || q) + KL(q || p) for the q with the couplings of p and the means
of q_0; the higher terms at m are the expansion of the first of these two.

Reference: HOJ-I8, HOJ-I14, HOJ-I15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import KikuchiError
from kikuchi.engines.response.linear_response import factored
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.engines.units.spins import PairBeliefs, SpinModel, spin_marginals, spin_model
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import BinaryPairwiseMethod, option
from kikuchi.methods.plefka import (
    Expansion,
    ExpansionDescent,
    strong_coupling_warnings,
)


class Cumulants(NamedTuple):
    """log Z_0 of independent spins and the first cumulants of the omitted energy."""

    log_z0: float
    first: float
    second: float
    third: float

    def log_z(self, order: int) -> float:
        """Return the expansion to some order, without the model's constant."""
        terms = (self.first, self.second / 2.0, self.third / 6.0)
        return self.log_z0 + sum(terms[:order])


def cumulants(model: SpinModel, x: Array) -> Cumulants:
    """Return the cumulants of E_0 - E under independent spins in the fields x, for any x.

    >>> from kikuchi import ising
    >>> model = spin_model(ising({(0, 1): 0.5}, [0.0, 0.0]), "saddle")
    >>> [round(k, 6) for k in cumulants(model, np.zeros(2))]
    [1.386294, 0.0, 0.25, 0.0]
    """
    at = Expansion(model, 3, x)
    m, v, t = at.m, at.v, -2.0 * at.u
    rows, columns, j = model.rows, model.columns, model.couplings
    a = model.fields - x + model.sums(j * m[columns])
    size = np.abs(x)
    log_z0 = float((size + np.log1p(np.exp(-2.0 * size))).sum())
    first = 0.5 * float(j @ (m[rows] * m[columns])) + float((model.fields - x) @ m)
    second = float(a**2 @ v) + 0.5 * float(j**2 @ (v[rows] * v[columns]))
    third = float(a**3 @ t) + 3.0 * float(j @ ((a * v)[rows] * (a * v)[columns]))
    third += 3.0 * float(j**2 @ ((a * t)[rows] * v[columns]))
    third += 0.5 * float(j**3 @ (t[rows] * t[columns]))
    third += float((j * at.paths) @ (v[rows] * v[columns]))
    return Cumulants(log_z0, first, second, third)


@dataclass(frozen=True)
class SaddlePoint(BinaryPairwiseMethod):
    """Saddle point with cumulant corrections: binary pairwise models.

    The saddle point is naive mean field; of several starts the one with the best bound is used.
    Order 1 returns it; order 2 adds the variance and order 3 the third cumulant to `log_z`, and the
    marginals are its derivatives in the fields: m + dm with dm = -chi d(G_k - G_1)/dm, where chi is
    the linear response of mean field, applied as a change of atanh m so that they remain
    probabilities. This takes one linear system and no further iteration. `log_z` is not a bound
    beyond order 1; `log_z_lower` is that of order 1. Orders above 1 have no covariances.

    >>> import kikuchi as kk
    >>> pair = kk.boltzmann_graph({(0, 1): 1.0}, [0.2, -0.4])
    >>> [round(kk.infer(pair, f"saddle:order={k}").log_z, 4) for k in (1, 2, 3)]
    [1.6058, 1.6323, 1.6328]
    >>> round(kk.infer(pair, "jt").log_z, 4)
    1.6326
    """

    name: ClassVar[str] = "saddle"
    objective_name: ClassVar[str] = "lower bound"
    certifies = ("lower",)

    order: int = option(2, "number of cumulants in the sum", low=1, high=3)
    restarts: int = option(4, "random starts after the first; the best result is returned", low=0)
    tol: float = option(1e-10, "stop when no probability would change by more than this", low=0)
    max_iter: int = option(2000, "maximum number of sweeps of each start", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        model = spin_model(graph, self.name)
        descent = ExpansionDescent(
            model, run, order=1, damping=0.0, tol=self.tol, limit=self.max_iter
        )
        descent.from_starts(self.restarts, self.seed)
        solution = descent.solution(graph, self.name)
        if self.order > 1 and run.clock.expired:
            solution.warnings.append(
                "no time was left for cumulants beyond the first; allow more seconds"
            )
        elif self.order > 1:
            self._add_cumulants(solution, model, descent.best.at.x, graph)
        return solution

    def _add_cumulants(
        self, solution: Solution, model: SpinModel, x: Array, graph: FactorGraph
    ) -> None:
        """Add higher orders to the saddle point."""
        terms = cumulants(model, x)
        at = Expansion(model, self.order, x)
        moved = x
        try:
            moved = x + _response_move(model, at)
        except KikuchiError:
            solution.warnings.append(
                "the saddle point is critical and marginals have no correction there; they are "
                "those of first order"
            )
        there = Expansion(model, self.order, moved)
        marginals = spin_marginals(moved)
        pairs = PairBeliefs(model, marginals, there.correlations)
        solution.marginals = marginals
        solution.log_z = model.constant + terms.log_z(self.order)
        solution.factor_tables = lambda: pairs.tables(graph)
        solution.covariance = None
        solution.diagnostics["cumulants"] = [terms.first, terms.second, terms.third][: self.order]
        solution.diagnostics["strength"] = at.strength
        solution.warnings += strong_coupling_warnings(at, at.strength, pairs, self.name)


def _response_move(model: SpinModel, at: Expansion) -> Array:
    """dx = dm / v for dm = -chi d(G_k - G_1)/dm, chi the response of mean field at this point."""
    root = np.sqrt(at.v)
    solve = factored(Expansion(model, 1, at.x).scaled_hessian().tocsc())
    step = solve(root * at.reaction_gradient)
    return np.asarray(-np.divide(step, root, out=np.zeros_like(step), where=root > 0.0))
