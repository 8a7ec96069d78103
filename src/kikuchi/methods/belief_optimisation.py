"""Belief optimisation: Bethe free energy of binary models over single marginals.

Reference: TEH-I9, WH-I4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import MethodError
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.seeds import generator
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.binary import BoltzmannParameters, boltzmann_parameters, pairwise_factor_tables
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import BinaryPairwiseMethod, option

_STRONGEST = 1400.0  # exp(-W / 2) must not underflow
_FIRST_STEPS = 100  # of L-BFGS, before Newton steps
_MEMORY = 20  # pairs that it stores
_LEAST_DECREASE = 1e-9  # relative decrease of F in one step below which it ends
_FIRST_DAMPING = 1e-2
_LEAST_DAMPING = 1e-12
_LAST_DAMPING = 1e12
_LARGEST_STEP = 4.0  # in logits
_SMOOTH = 10.0  # coupling up to which no annealing is needed
_WARM_TOL = 1e-4
_LARGEST_LOGIT = 500.0
_START_SPREAD = 2.0


@dataclass(frozen=True)
class BeliefOptimisation(BinaryPairwiseMethod):
    """Belief optimisation: Bethe by descent, binary pairwise models.

    Given the single marginals q, the optimal pair beliefs are known in closed form, so the free
    energy is a function of the logits of q alone. L-BFGS descends from the marginals of independent
    variables and from `restarts` random points, with annealing for strong couplings, followed by
    damped Newton steps on the sparse Hessian. The lowest point is returned. It is a stationary
    point, and so a fixed point of `bp`, whether or not `bp` converges to it. Observed marginals are
    fixed at their values.

    The run converges when no q_i differs from its fixed-point update by more than `tol`. `log_z` is
    minus the Bethe free energy, which is not a bound unless the model is a tree. Factors over the
    same pair are merged, whereas they form a cycle for `bp` and `ups`.

    >>> import kikuchi as kk
    >>> cycle = kk.boltzmann_graph({(0, 1): 1, (1, 2): 1, (2, 3): 1, (0, 3): 1}, [-0.8] * 4)
    >>> beliefs = kk.infer(cycle, "bo")
    >>> beliefs[0].round(6).tolist(), round(beliefs.log_z, 6)
    ([0.41853, 0.58147], 2.329088)
    """

    name: ClassVar[str] = "bo"
    edge_seconds: ClassVar[float] = 5e-7
    edge_setup_seconds: ClassVar[float | None] = 6e-7
    objective_name: ClassVar[str] = "Bethe log Z"
    exactness = "forests"
    takes_observed_marginals: ClassVar[bool] = True

    tol: float = option(
        1e-9, "stop when no fixed-point update would change a marginal by more than this", above=0
    )
    max_iter: int = option(2000, "maximum number of steps of each start", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        bits = boltzmann_parameters(graph)
        if bits is None:
            raise MethodError(
                "method bo needs binary variables, factors of at most two variables and no zeros; "
                "use ups, which supports any model"
            )
        if np.abs(bits.weights).max(initial=0.0) > _STRONGEST:
            raise MethodError(
                f"method bo: a coupling of {np.abs(bits.weights).max():.4g} is beyond "
                f"{_STRONGEST:g}; use ups"
            )
        return _RestartedDescent(self, _Energy(bits, graph, run), run).solution(graph)


class _Energy:
    """F, its gradient and Hessian over the logits of the unobserved variables."""

    def __init__(self, bits: BoltzmannParameters, graph: FactorGraph, run: MethodRun) -> None:
        n = graph.n_variables
        rows = np.repeat(np.arange(n), bits.degrees)
        upper = rows < bits.neighbours
        self.bits = bits
        self.first = rows[upper].astype(np.uint32)
        self.second = bits.neighbours[upper]
        self.weights = bits.weights[upper]
        self.degrees = bits.degrees.astype(np.float64)
        self.scale = 1.0  # of biases and couplings: an inverse temperature
        self.theta = np.zeros(n)
        self.free = np.ones(n, dtype=bool)
        for v, target in run.targets.items():
            self.free[v] = False
            self.theta[v] = math.log(target[1]) - math.log(target[0])
        self.singles = np.empty((4, n))
        self.gradient_q = np.empty(n)

    @property
    def field(self) -> Array:
        """Return the logits of independent variables: the bias with every neighbour at one half."""
        rows = np.repeat(np.arange(len(self.theta)), self.bits.degrees)
        coupled = np.bincount(rows, self.bits.weights, len(self.theta))
        return np.asarray((self.bits.biases + 0.5 * coupled)[self.free])

    def at(self, logits: Array) -> tuple[float, Array]:
        """Return F and dF / dlogit."""
        from kikuchi.engines.messages.kernels.belief_optimisation import value_and_gradient

        self.theta[self.free] = np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT)
        value = value_and_gradient(
            self.theta,
            self.scale * self.bits.biases,
            self.first,
            self.second,
            self.scale * self.weights,
            self.degrees,
            self.singles,
            self.gradient_q,
        )
        slope = self.singles[0] * self.singles[1] * self.gradient_q
        return float(value), slope[self.free]

    @property
    def residual(self) -> float:
        """Largest |sigmoid(theta - dF/dq) - q|, the change by a fixed-point update."""
        from scipy.special import expit

        moved = expit(self.theta - self.gradient_q)
        return float(np.abs(moved - self.singles[0])[self.free].max(initial=0.0))

    def hessian(self) -> Any:
        """Second derivatives at the point of the last `at`, each divided by its natural scale.

        In steps of q_i / sqrt(q_i (1 - q_i)); a sparse matrix over the free variables.
        """
        from scipy.sparse import coo_array, diags_array

        from kikuchi.engines.messages.kernels.belief_optimisation import hessian

        n = len(self.theta)
        diagonal, coupling = np.empty(n), np.empty(len(self.first))
        hessian(
            self.first,
            self.second,
            self.scale * self.weights,
            self.degrees,
            self.singles,
            diagonal,
            coupling,
        )
        pairs = coo_array((coupling, (self.first, self.second)), shape=(n, n))
        matrix: Any = (pairs + pairs.T + diags_array(diagonal)).tocsc()
        return matrix[self.free][:, self.free].tocsc()

    def newton(self, matrix: Any, damping: float) -> Array | None:
        """The step in logits of (H + damping) step = -gradient; None if there is no such step."""
        from scipy.sparse import eye_array
        from scipy.sparse.linalg import splu

        root = np.sqrt(self.singles[0] * self.singles[1])[self.free]
        if not np.all(np.isfinite(matrix.data)) or not np.all(root > 0.0):
            return None
        shifted: Any = (matrix + damping * eye_array(matrix.shape[0])).tocsc()
        try:
            step = splu(shifted).solve(-root * self.gradient_q[self.free]) / root
        except RuntimeError:  # singular
            return None
        return np.clip(step, -_LARGEST_STEP, _LARGEST_STEP) if np.all(np.isfinite(step)) else None

    def pair_tables(self) -> Array:
        """Beliefs of all pairs, four numbers each."""
        from kikuchi.engines.messages.kernels.belief_optimisation import pair_beliefs

        out = np.empty(4 * len(self.first))
        pair_beliefs(self.first, self.second, self.weights, self.singles, out)
        return out


@dataclass
class _LocalMinimum:
    """The end of the descent from one start."""

    logits: Array
    value: float
    residual: float


@dataclass(eq=False)
class _RestartedDescent:
    """Descents from all starts, and the lowest of their minima."""

    method: BeliefOptimisation
    energy: _Energy
    run: MethodRun

    def __post_init__(self) -> None:
        method, energy = self.method, self.energy
        self.done = 0
        self.minima: list[_LocalMinimum] = []
        self.stop = False
        self.tol = method.tol
        self.best_here = _LocalMinimum(energy.field, math.inf, math.inf)
        rng = generator(method.seed)
        try:
            for start in range(method.restarts + 1):
                noise = 0.0 if start == 0 else rng.normal(0.0, _START_SPREAD, energy.free.sum())
                self._from(energy.field + noise)
                if self.stop:
                    break
        except KeyboardInterrupt:
            self.run.stopped = "interrupted"
            self.minima.append(self.best_here)

    def _from(self, logits: Array) -> None:
        """Anneal from high temperatures to 1, each starting from the last result."""
        self.limit = self.done + self.method.max_iter
        strongest = float(np.abs(self.energy.weights).max(initial=0.0))
        coolings = max(0, math.ceil(math.log2(max(strongest, 1.0) / _SMOOTH)))
        for k in range(coolings, -1, -1):
            self.energy.scale = 0.5**k
            self.tol = self.method.tol if k == 0 else _WARM_TOL
            self._descend_at_temperature(logits)
            logits = self.best_here.logits
        self.minima.append(self.best_here)

    def _descend_at_temperature(self, logits: Array) -> None:
        value, _ = self.energy.at(logits)
        self.best_here = _LocalMinimum(logits, value, self.energy.residual)
        while not self._finished:
            before = self.best_here
            self._lbfgs_steps()
            self._newton_steps()
            if self.best_here.value >= before.value and self.best_here.residual >= before.residual:
                break  # only rounding is left

    @property
    def _finished(self) -> bool:
        return self.stop or self.best_here.residual <= self.method.tol or self.done >= self.limit

    def _lbfgs_steps(self) -> None:
        """Take L-BFGS steps from the current point while they make good progress."""
        left = self.run.clock.iterations(self.limit) - self.done
        descent = Lbfgs(self.energy.at, self.best_here.logits, memory=_MEMORY)
        for _ in descent.steps(min(left, _FIRST_STEPS), least_decrease=_LEAST_DECREASE):
            self._note(descent.point)
            if self._finished:
                return

    def _note(self, logits: Array) -> None:
        """Record a step; the last point is the best, since each step decreases F."""
        value, _ = self.energy.at(logits)
        self.done += 1
        self.best_here = _LocalMinimum(logits.copy(), value, self.energy.residual)
        warm = self.energy.scale < 1.0
        log_z = math.nan if warm else self.energy.bits.constant - value
        self.run.record(Step(self.done, self.best_here.residual, log_z), self.limit)
        if self.run.clock.expired:
            self.run.stopped = "seconds"
            self.stop = True
        elif self.run.clock.iterations(self.done + 1) <= self.done:
            self.stop = True

    def _newton_steps(self) -> None:
        """Take Newton steps, damped as much as needed to descend (Levenberg and Marquardt)."""
        damping = _FIRST_DAMPING
        while not self._finished and damping < _LAST_DAMPING:
            here = self.best_here
            self.energy.at(here.logits)
            matrix = self.energy.hessian()
            taken = False
            while not taken and damping < _LAST_DAMPING:
                self.energy.at(here.logits)
                step = self.energy.newton(matrix, damping)
                taken = step is not None and self._accept_if_lower(here, here.logits + step)
                damping = max(damping / 5.0, _LEAST_DAMPING) if taken else damping * 4.0

    def _accept_if_lower(self, here: _LocalMinimum, logits: Array) -> bool:
        """Accept a step that decreases F, or that reduces the residual if the change of F is below
        rounding.
        """
        value, _ = self.energy.at(logits)
        rounding = 1e-13 * (1.0 + abs(here.value))
        lower = value < here.value - rounding
        nearer = value <= here.value + rounding and self.energy.residual < 0.9 * here.residual
        if not lower and not nearer:
            return False
        self._note(logits)
        return True

    # ------------------------------------------------------------------ result

    def solution(self, graph: FactorGraph) -> Solution:
        """Return the lowest minimum as a solution."""
        number = int(np.argmin([minimum.value for minimum in self.minima]))
        best = self.minima[number]
        self.energy.scale = 1.0
        value, _ = self.energy.at(best.logits)
        converged = self.energy.residual <= self.method.tol
        if self.run.stopped == "converged" and (self.stop or not converged):
            self.run.stopped = "iterations"
        q = self.energy.singles[:2]
        constant = self.energy.bits.constant
        solution = Solution(
            np.stack([q[1], q[0]], axis=1).ravel(),
            log_z=constant - value,
            converged=converged,
            iterations=self.done,
            factor_tables=lambda: _factor_tables(graph, self.energy),
            diagnostics={
                "log_z_of_starts": [
                    constant - minimum.value + graph.log_constant for minimum in self.minima
                ],
                "best_start": number,
                "residual": self.energy.residual,
            },
        )
        if not converged:
            solution.warnings.append(
                "not converged: a fixed-point update would still change a marginal by "
                f"{self.energy.residual:.2g}; raise max_iter or allow more time"
            )
        if len(self.minima) <= self.method.restarts:
            solution.warnings.append(
                f"the budget ended after {len(self.minima)} of {self.method.restarts + 1} starts"
            )
        return solution


def _factor_tables(graph: FactorGraph, energy: _Energy) -> Array:
    """Beliefs of all factors from single and pair beliefs."""
    n = graph.n_variables
    beliefs = energy.pair_tables().reshape(-1, 4)
    keys = energy.first.astype(np.int64) * n + energy.second

    def pair_tables(first: Ints, second: Ints) -> Array:
        low, high = np.minimum(first, second), np.maximum(first, second)
        tables = beliefs[np.searchsorted(keys, low * n + high)]
        return np.where((first > second)[:, None], tables[:, [0, 2, 1, 3]], tables)

    return pairwise_factor_tables(graph, energy.singles[1::-1].T, pair_tables)
