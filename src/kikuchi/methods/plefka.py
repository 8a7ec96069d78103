r"""Plefka expansion of the free energy of spins: mean field, TAP, third order.

The free energy with given means, G(m) = min {E_q[-log weight] - H(q) : E_q[s] = m}, expanded in
the couplings (v = 1 - m^2, u = m v):

    G_1 = -H(m) - sum_i h_i m_i - sum_{i<j} J_ij m_i m_j,
    G_2 = G_1 - 1/2 sum_{i<j} J_ij^2 v_i v_j,
    G_3 = G_2 - 2/3 sum_{i<j} J_ij^3 u_i u_j - sum_{i<j<k} J_ij J_jk J_ki v_i v_j v_k.

G_1 is naive mean field and an upper bound on -log Z at every m; G_2 is the TAP free energy, with
the fixed point m_i = tanh(h_i + sum_j J_ij m_j - m_i sum_j J_ij^2 v_j). The reaction term has this
sign; the sources print the opposite sign (TEH erratum ER2) or a wrong factor.

Reference: HOJ-I11, HOJ-I13, TEH-I6, TEH-I7, WH-I3.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.seeds import generator
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.response.linear_response import states_of, symmetric_response
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.engines.units.spins import (
    PairBeliefs,
    SpinModel,
    spin_covariance_root,
    spin_marginals,
    spin_model,
)
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import Method, option

_POWER_STEPS = 100
_SMALL_EXCESS = 1e-6
_MEAN_FIELD_SWEEPS = 100  # maximum number, to reach a mean-field solution to start from
_MEAN_FIELD_TOL = 1e-6
_ROUNDING = 1e-12
_WORK = 1e8  # elementary steps between two checks of the clock: some tenths of a second


class Expansion:
    """The expansion of one model to one order at one point: value, gradient, Hessian, pairs.

    A point is x = atanh m, so that the small variance of nearly certain spins is accurate.

    >>> from kikuchi import ising
    >>> model = spin_model(ising({(0, 1): 0.5}, [0.0, 0.0]), "plefka")
    >>> round(-Expansion(model, 2, np.zeros(2)).value, 6)  # 2 log 2 + 0.5^2 / 2
    1.511294
    """

    def __init__(self, model: SpinModel, order: int, x: Array) -> None:
        self.model = model
        self.order = order
        self.x = x
        self.m = np.tanh(x)
        tail = np.exp(-2.0 * np.abs(x))
        self.v = 4.0 * tail / (1.0 + tail) ** 2
        self.u = self.m * self.v

    @cached_property
    def terms(self) -> tuple[float, float, float]:
        """Return the contribution of each order to the free energy: G_1, G_2 - G_1, G_3 - G_2."""
        model, rows, columns = self.model, self.model.rows, self.model.columns
        size = np.abs(self.x)
        entropy = size + np.log1p(np.exp(-2.0 * size)) - self.x * self.m
        j = model.couplings
        first = -float(entropy.sum() + model.fields @ self.m)
        first -= 0.5 * float(j @ (self.m[rows] * self.m[columns]))
        second = third = 0.0
        if self.order > 1:
            second = -0.25 * float(j**2 @ (self.v[rows] * self.v[columns]))
        if self.order > 2:
            third = -float(j**3 @ (self.u[rows] * self.u[columns])) / 3.0
            third -= float((j * self.paths) @ (self.v[rows] * self.v[columns])) / 6.0
        return first, second, third

    @property
    def value(self) -> float:
        """The free energy to this order, without the model's constant."""
        return math.fsum(self.terms)

    @cached_property
    def paths(self) -> Array:
        """sum_k J_ik J_kj v_k for each stored coupling ij."""
        from kikuchi.engines.units.kernels.tap import paths

        model = self.model
        out = np.empty(len(model.couplings))
        marks = np.zeros(model.size)
        paths(model.offsets, model.neighbours, model.couplings, self.v, marks, out)
        return out

    @cached_property
    def _reactions(self) -> tuple[Array, Array]:
        """b and c of every spin (see `kernels.tap`)."""
        model, columns = self.model, self.model.columns
        b = c = np.zeros(model.size)
        if self.order > 1:
            b = model.sums(model.couplings**2 * self.v[columns])
        if self.order > 2:
            b = b + model.sums(model.couplings * self.paths * self.v[columns])
            c = model.sums(model.couplings**3 * self.u[columns])
        return b, c

    @property
    def reaction_gradient(self) -> Array:
        """Return the derivatives in m of all terms beyond first order."""
        b, c = self._reactions
        return np.asarray(b * self.m - (2.0 / 3.0) * c * (1.0 - 3.0 * self.m**2))

    @property
    def gradient(self) -> Array:
        """Return the derivatives in m of the free energy."""
        model = self.model
        local_fields = model.fields + model.sums(model.couplings * self.m[model.columns])
        return np.asarray(self.x - local_fields + self.reaction_gradient)

    def scaled_hessian(self) -> Any:
        """Return the second derivatives in m, each times sqrt(v) of both spins, as a sparse matrix.

        To second order delta_ij (1/v_i + sum_k J_ik^2 v_k) - J_ij - 2 J_ij^2 m_i m_j.
        """
        from scipy.sparse import diags_array

        model, rows, columns = self.model, self.model.rows, self.model.columns
        b, c = self._reactions
        j, m = model.couplings, self.m
        off = -j
        if self.order > 1:
            off = off - 2.0 * j**2 * m[rows] * m[columns]
        if self.order > 2:
            bend = 1.0 - 3.0 * m**2
            off = off - (2.0 / 3.0) * j**3 * bend[rows] * bend[columns]
            off = off - 4.0 * j * self.paths * m[rows] * m[columns]
        root = np.sqrt(self.v)
        diagonal = 1.0 + self.v * (b + 4.0 * c * m)
        return model.sparse(off * root[rows] * root[columns]) + diags_array(diagonal)

    def covariance(self, graph: FactorGraph, variables: Ints) -> Array:
        """Return the linear response: the inverse of the Hessian, over states."""
        root = spin_covariance_root(np.sqrt(self.v))
        return symmetric_response(self.scaled_hessian(), root, states_of(graph, variables))

    @property
    def correlations(self) -> Array:
        """E[s_i s_j] = -dG/dJ_ij for each stored coupling."""
        model, rows, columns = self.model, self.model.rows, self.model.columns
        out = self.m[rows] * self.m[columns]
        if self.order > 1:
            out = out + model.couplings * self.v[rows] * self.v[columns]
        if self.order > 2:
            out = out + 2.0 * model.couplings**2 * self.u[rows] * self.u[columns]
            out = out + self.paths * self.v[rows] * self.v[columns]
        return np.asarray(out)

    @property
    def strength(self) -> float:
        """Spectral radius of J_ij^2 v_i v_j: the expansion is not reliable from 1 on.

        For couplings of many independent spins this is Plefka's condition.
        """
        model = self.model
        vector = np.sqrt(self.v)
        radius = 0.0
        for _ in range(_POWER_STEPS):
            length = float(np.linalg.norm(vector))
            if length == 0.0:
                return 0.0
            vector = vector / length
            vector = self.v * model.sums(model.couplings**2 * (self.v * vector)[model.columns])
            radius = float(np.linalg.norm(vector))
        return radius


@dataclass(frozen=True)
class _Expanded(Method):
    """Base class of the expansions of any order."""

    objective_name: ClassVar[str] = "expanded log Z"
    certifies = ("lower",)
    needs_binary_pairwise: ClassVar[bool] = True
    needs_positive_tables: ClassVar[bool] = True
    gives_covariance: ClassVar[bool] = True

    damping: float = option(0.0, "fraction of each step that is not made", low=0, below=1)
    restarts: int = option(2, "number of starts from mean-field solutions, after the first", low=0)
    tol: float = option(1e-10, "stop when no probability would change by more than this", low=0)
    max_iter: int = option(2000, "maximum number of sweeps of each start", low=1)
    seed: int = option(0, "seed of the random starts", low=0)

    @property
    @abstractmethod
    def _order(self) -> int:
        """Terms of the expansion."""

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        descent = ExpansionDescent(
            spin_model(graph, self.name),
            run,
            order=self._order,
            damping=self.damping,
            tol=self.tol,
            limit=self.max_iter,
        )
        descent.from_starts(self.restarts, self.seed)
        return descent.solution(graph, self.name)


@dataclass(frozen=True)
class Plefka(_Expanded):
    """Plefka expansion: the free energy of a positive binary pairwise model, expanded in its
    couplings.

    Order 1 is naive mean field, order 2 TAP, order 3 adds the cubes of couplings and the triangles.
    Spins are updated one after the other, each to the minimum of the free energy in its own mean
    (its fixed-point equation, which contains its own mean, is solved and not merely iterated). The
    free energy therefore decreases with every update, and the iteration cannot diverge or
    oscillate. The first start is that of independent spins; each restart is a mean-field solution,
    the first reached from the same point and the others from random points.

    `log_z` is minus the expansion, which is not a bound; `log_z_lower` is the mean-field bound at
    the same means, which is valid at any point. The expansion is for weak couplings: of several
    starts, the lowest is returned among those at which it is reliable (`diagnostics["strength"]`
    below 1, see `Expansion.strength`), and a warning is issued if there is none. Factor beliefs
    come from -dG/dJ.

    >>> import kikuchi as kk
    >>> triangle = kk.ising({(0, 1): 0.2, (1, 2): 0.2, (0, 2): 0.2}, [0.1, 0.0, 0.0])
    >>> [round(kk.infer(triangle, m).log_z, 4) for m in ("plefka:order=1", "tap", "plefka", "jt")]
    [2.085, 2.1445, 2.1524, 2.1517]
    """

    name: ClassVar[str] = "plefka"
    edge_seconds: ClassVar[float] = 9e-7
    edge_setup_seconds: ClassVar[float | None] = 2e-7
    edge_bytes: ClassVar[int] = 92
    summary: ClassVar[str] = "Plefka expansion to order 1 (mf), 2 (tap) or 3: binary pairwise"

    order: int = option(3, "terms of the expansion", low=1, high=3)

    @property
    def _order(self) -> int:
        return self.order


class Tap(_Expanded):
    """TAP free energy of a positive binary pairwise model: `plefka` to order 2.

    m_i = tanh(h_i + sum_j J_ij m_j - m_i sum_j J_ij^2 (1 - m_j^2)), each solved for its own m_i.
    The free energy is convex in every single mean, so this is exact coordinate descent: it always
    converges. In bits the reaction is + (1 - 2 q_i) / 2 sum_j W_ij^2 q_j (1 - q_j). See `Plefka`.

    >>> import kikuchi as kk
    >>> beliefs = kk.infer(kk.boltzmann_graph({(0, 1): 1.0}, [0.2, -0.4]), "tap")
    >>> beliefs[0][1].round(6).item(), round(beliefs.log_z, 6)
    (0.673007, 1.632597)
    """

    name: ClassVar[str] = "tap"
    edge_seconds: ClassVar[float] = 7e-7
    edge_setup_seconds: ClassVar[float | None] = 2e-7
    edge_bytes: ClassVar[int] = 92
    summary: ClassVar[str] = "TAP: mean field with its reaction term, binary pairwise models"

    @property
    def _order(self) -> int:
        return 2


@dataclass
class _ExpansionMinimum:
    """The end of the descent from one start."""

    at: Expansion
    strength: float
    residual: float
    converged: bool

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key: reliable minima first, the lowest best; then unreliable ones, the weakest
        best.
        """
        trusted = self.strength < 1.0
        return (not trusted, self.at.value if trusted else self.strength)


@dataclass(eq=False)
class ExpansionDescent:
    """Coordinate descent on the expansion from one or more starts."""

    model: SpinModel
    run: MethodRun
    order: int
    damping: float
    tol: float
    limit: int

    def __post_init__(self) -> None:
        self.done = 0
        self.starts = 1
        self.x = self.model.fields.copy()
        self.minima: list[_ExpansionMinimum] = []

    def from_starts(self, restarts: int, seed: int) -> None:
        """Descend from independent spins and then from random ones."""
        rng, n = generator(seed), self.model.size
        self.starts = restarts + 1
        try:
            for number in range(self.starts):
                from_mean_field = number > 0 and self.order > 1
                independent = number == 0 or (number == 1 and from_mean_field)
                self.x = (self.model.fields if independent else rng.normal(size=n)).copy()
                if from_mean_field:
                    self._go_to_mean_field()
                self._descend()
                if self.must_end:
                    break
        except KeyboardInterrupt:
            self.run.stopped = "interrupted"
            self._add_minimum(converged=False)

    def _go_to_mean_field(self) -> None:
        """Move to a mean-field solution, where results for strong couplings are most reliable."""
        from kikuchi.engines.units.kernels.tap import sweep

        state = self._state
        which = np.arange(self.model.size, dtype=np.uint32)
        for _ in range(_MEAN_FIELD_SWEEPS):
            if self.must_end or sweep(1, which, *state) <= _MEAN_FIELD_TOL:
                break
            self.done += 1

    def _descend(self) -> None:
        limit = self.done + self.limit
        step = self._sweep()
        ended = iterate(step, Iterations(self.done), self.run, tol=self.tol, limit=limit)
        self.done = max(ended.iterations, self.done)
        self._add_minimum(ended.converged)

    def _sweep(self) -> Callable[[Iterations], Step]:
        """Make a step of a descent: one sweep over all spins."""
        from kikuchi.engines.units.kernels.tap import sweep

        arrays, parts = self._state, self._parts

        def step(state: Iterations) -> Step:
            change = 0.0
            for part in parts:
                change = max(change, float(sweep(self.order, part, *arrays)))
                if self.run.clock.expired and part is not parts[-1]:
                    change = math.inf  # the result of a complete sweep is unknown
                    break
            state.done += 1
            log_z = self.model.constant - Expansion(self.model, self.order, self.x).value
            return Step(state.done, change, log_z)

        return step

    @property
    def _parts(self) -> list[U4]:
        """Yield all spins in order, in pieces between checks of the clock."""
        model = self.model
        degrees = np.diff(model.offsets.astype(np.int64)).astype(np.float64)
        work = 10.0 + (model.sums(degrees[model.columns]) if self.order > 2 else degrees)
        cuts = np.flatnonzero(np.diff(np.floor(np.cumsum(work) / _WORK))) + 1
        return np.split(np.arange(model.size, dtype=np.uint32), cuts)

    @property
    def _state(self) -> tuple[Any, ...]:
        """Return the arguments of a sweep, which updates `x`, m and v."""
        from kikuchi.engines.units.kernels.tap import SpinMoments, SpinRows

        model, at = self.model, Expansion(self.model, 1, self.x)
        rows = SpinRows(model.fields, model.offsets, model.neighbours, model.couplings)
        return rows, self.damping, SpinMoments(self.x, at.m, at.v), np.zeros(model.size)

    def _add_minimum(self, converged: bool) -> None:
        at = Expansion(self.model, self.order, self.x.copy())
        strength = at.strength if self.order > 1 else 0.0  # first order is a bound: always reliable
        self.minima.append(_ExpansionMinimum(at, strength, self.run.trace.last_residual, converged))

    @property
    def must_end(self) -> bool:
        """Return whether the budget is used up or the user has interrupted."""
        clock = self.run.clock
        used_up = clock.iterations(self.done + 1) <= self.done
        return self.run.stopped in ("seconds", "interrupted") or used_up or clock.expired

    @property
    def best(self) -> _ExpansionMinimum:
        """The minimum that is returned."""
        return min(self.minima, key=lambda minimum: minimum.rank)

    # ------------------------------------------------------------------ answer

    def solution(self, graph: FactorGraph, name: str) -> Solution:
        """Return the best minimum as a solution."""
        best = self.best
        if self.run.stopped not in ("seconds", "interrupted"):
            complete = len(self.minima) == self.starts
            self.run.stopped = "converged" if best.converged and complete else "iterations"
        marginals = spin_marginals(best.at.x)
        pairs = PairBeliefs(self.model, marginals, best.at.correlations)
        constant = self.model.constant
        solution = Solution(
            marginals,
            log_z=constant - best.at.value,
            log_z_lower=constant - best.at.terms[0],
            converged=best.converged,
            iterations=self.done,
            factor_tables=lambda: pairs.tables(graph),
            covariance=lambda variables: best.at.covariance(graph, variables),
            diagnostics={"strength": best.strength, "residual": best.residual},
        )
        solution.warnings = self._warnings(best, pairs, name)
        return solution

    def _warnings(self, best: _ExpansionMinimum, pairs: PairBeliefs, name: str) -> list[str]:
        warnings = []
        if not best.converged:
            warnings.append(
                f"not converged: a probability would still change by {best.residual:.2g}; "
                "raise max_iter or allow more time"
            )
        if len(self.minima) < self.starts:
            warnings.append(f"the budget ended after {len(self.minima)} of {self.starts} starts")
        warnings += strong_coupling_warnings(best.at, best.strength, pairs, name)
        return warnings


def strong_coupling_warnings(
    at: Expansion, strength: float, pairs: PairBeliefs, name: str
) -> list[str]:
    """Return warnings if couplings are too strong for an expansion at a point."""
    if at.order == 1:
        return []
    if strength >= 1.0:
        why = f"J^2 v v has the spectral radius {strength:.3g}, and from 1 on its terms increase"
    elif at.value > at.terms[0] + _ROUNDING * abs(at.value):
        why = "its log Z is below the certified lower bound"
    elif pairs.excess > _SMALL_EXCESS:
        why = f"a correlation of two spins exceeds its range by {pairs.excess:.2g}"
    else:
        return []
    return [f"the couplings are too strong for {name}: {why}; use bp, kikuchi or mf"]
