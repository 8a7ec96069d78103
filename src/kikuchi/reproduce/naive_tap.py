"""TAP equations iterated naively, as the counter-example TEH-E8 needs them; no general method."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.graphs.binary import couplings_and_fields, spins_to_bits
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.method import Method, MethodRun, Solution, Step, option


@dataclass(frozen=True)
class NaiveTap(Method):
    """TAP equations solved by putting in one mean after the other (TEH-I6).

    m_i = sigma(b_i + sum_j W_ij m_j + (1/2 - m_i) sum_j W_ij^2 m_j (1 - m_j)). The last term is the
    reaction of the neighbours. The thesis prints it with the other sign (ER2), which
    `sign="printed"` keeps. Begins at m = 1/2. For small positive binary pairwise models.

    >>> import kikuchi as kk
    >>> pair = kk.boltzmann_graph({(0, 1): 1.0}, [-0.5, -0.5])
    >>> NaiveTap(damping=0.5).run(pair)[0].round(6).tolist()
    [0.5, 0.5]
    """

    name: ClassVar[str] = "naive-tap"
    summary: ClassVar[str] = "TAP equations iterated one by one"

    sign: Literal["corrected", "printed"] = option("corrected", "sign of the reaction term")
    damping: float = option(0.0, "weight on the old mean", low=0, below=1)
    tol: float = option(1e-12, "stop when no mean moves more than this in a sweep", above=0)
    max_iterations: int = option(400, "most sweeps", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        form = couplings_and_fields(graph)
        weights, biases, _ = spins_to_bits(form.couplings.toarray(), form.fields)
        means = np.full(graph.n_variables, 0.5)
        iterations, converged = run.iterate(
            self._steps(weights, biases, means), tol=self.tol, limit=self.max_iterations
        )
        marginals = np.stack([1.0 - means, means], axis=1).ravel()
        return Solution(marginals, converged=converged, iterations=iterations)

    def _steps(
        self,
        weights: Array,
        biases: Array,
        means: Array,
    ) -> Iterator[Step]:
        sign = 1.0 if self.sign == "corrected" else -1.0
        done = 0
        while True:
            before = means.copy()
            for i in range(len(means)):
                reaction = float(weights[i] ** 2 @ (means * (1.0 - means)))
                field = biases[i] + weights[i] @ means + sign * (0.5 - means[i]) * reaction
                new = 0.5 * (1.0 + math.tanh(0.5 * float(field)))
                means[i] = self.damping * means[i] + (1.0 - self.damping) * new
            done += 1
            yield Step(done, float(np.abs(means - before).max()))
