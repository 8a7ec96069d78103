"""The region free energy over free tables of the roots, with a penalty on disagreement.

Reference: LIU-I14b.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.engines.regions.engine import RegionBeliefs
from kikuchi.engines.regions.kernels import regions as kernels
from kikuchi.engines.run import MethodRun, Step

_PENALTIES = (10.0, 30.0, 100.0, 300.0)
_LEAST_DECREASE = 1e-10  # of the penalised free energy in one step, relative: less ends a penalty
_LEAST_GRADIENT = 1e-6


class PenalisedEnergy:
    """J = F + w sum_(P -> R) |b_R - marginal(b_P)|^2 over logits of the roots.

    Beliefs of smaller regions are the mean of their parents' marginals.
    """

    def __init__(self, beliefs: RegionBeliefs) -> None:
        self.beliefs = beliefs
        self.weight = _PENALTIES[0]
        self.end = int(beliefs.table_at[beliefs.regions.n_roots])
        self.alive = beliefs.b[: self.end] > 0
        self.gradient = np.empty_like(beliefs.b)
        parents = np.array([len(p) for p in beliefs.regions.parents], dtype=np.float64)
        self.shares = 1.0 / np.maximum(parents, 1.0)

    def minimise(self, run: MethodRun, limit: int, tol: float) -> tuple[int, bool]:
        """L-BFGS for each penalty weight in turn, from where the last one ended."""
        limit = run.clock.iterations(limit)
        most = -(-limit // len(_PENALTIES))
        logits = np.log(self.beliefs.b[: self.end][self.alive])
        done, stopped, converged = 0, "", False
        try:
            for self.weight in _PENALTIES:
                descent = Lbfgs(self.value, logits)
                for _ in descent.steps(most, least_decrease=_LEAST_DECREASE, tol=_LEAST_GRADIENT):
                    done, logits = done + 1, descent.point
                    if descent.evaluated is not logits:
                        self.value(logits)
                    run.record(Step(done, objective=-self.beliefs.free_energy()), limit)
                    if done >= limit or run.clock.expired:
                        stopped = "iterations" if done >= limit else "seconds"
                        break
                converged = descent.converged
                if stopped:
                    break
        except KeyboardInterrupt:
            stopped = "interrupted"
        self.value(logits)
        converged = converged and not stopped
        run.stopped = "converged" if converged else stopped or "iterations"
        return done, converged

    def value(self, logits: Array) -> tuple[float, Array]:
        """J and its gradient in the logits of the positive root entries."""
        beliefs = self.beliefs
        beliefs.b[: self.end][self.alive] = logits
        value = kernels.penalised_energy(
            beliefs.links,
            kernels.RegionEnergy(
                beliefs.log_phi, beliefs.regions.counting, beliefs.edge_link, self.shares
            ),
            np.uint64(beliefs.regions.n_roots),
            self.weight,
            beliefs.b,
            self.gradient,
            np.empty(beliefs.width),
        )
        return float(value), self.gradient[: self.end][self.alive].copy()
