"""Teh's thesis, section 5.5: scaling with marginals that are only estimated (TEH-E8)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.binary import boltzmann_graph, couplings_and_fields, spins_to_bits
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import Method, option
from kikuchi.methods.plug_in import ScalingPath, plug_in_scaling
from kikuchi.methods.registry import parse_method
from kikuchi_experiments import figures
from kikuchi_experiments.aggregate import Claims, holds
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SOURCES = {
    "exact": "exact",
    "bp": "belief propagation",
    "mf": "mean field",
    "tap-printed": "TAP, sign as printed",
    "tap": "TAP, undamped",
    "tap-damped": "TAP, damped",
}
_TAIL = 60  # scalings at the end in which a cycle is looked for; many of its periods fit
_SAME = 1e-6


class CounterExample(Experiment):
    """Scaling with plugged-in marginals on two units (TEH-E8, T20)."""

    id: ClassVar[str] = "TEH-E8"
    case_axes: ClassVar[CaseAxes] = {"source": tuple(_SOURCES)}

    def run_case(self, case: Case) -> Result:
        """Scale until the means are met or the scalings are used up."""
        pair = boltzmann_graph({(0, 1): case["weight"]}, [case["bias"]] * 2)
        wanted = np.array([1.0 - case["mean"], case["mean"]])
        path = plug_in_scaling(
            pair, {0: wanted, 1: wanted}, _source(case["source"]), sweeps=case["scalings"] // 2
        )
        biases = case["bias"] + path.tilts[:, [1, 3]]
        period = None if path.converged else cycle_period(biases[-_TAIL:])
        return {
            "converged": path.converged,
            "period": period,
            "scalings": _scalings(path),
            "biases": biases[-1].tolist(),
            "cycle": sorted(set(biases[-period:].round(6).ravel().tolist())) if period else [],
            "path": biases[:_TAIL].tolist(),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """What each source of marginals led to."""
        known = {one.case["source"]: one.result for one in finished}
        return [_source_row(source, known[source]) for source in _SOURCES if source in known]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Paths of the biases."""
        paths = {_SOURCES[one.case["source"]]: one.result["path"] for one in finished}
        return figures.bias_paths(paths)


def _source(name: str) -> Method:
    if name == "tap-printed":
        return NaiveTap(sign="printed")
    if name in ("tap", "tap-damped"):
        return NaiveTap(damping=0.5 if name == "tap-damped" else 0.0)
    texts = {"exact": "enumerate", "bp": "bp:tol=1e-13", "mf": "mf:restarts=0,tol=1e-12"}
    return parse_method(texts[name])


def _scalings(path: ScalingPath) -> int:
    return len(path.tilts) - 1


def cycle_period(points: Any) -> int | None:
    """The period after which a path repeats itself to the end, None if it does not.

    >>> cycle_period(np.array([[9.0], [1.0], [2.0], [1.0], [2.0], [1.0], [2.0]]))
    2
    """
    path = np.asarray(points, dtype=np.float64)
    for period in range(1, len(path) // 3 + 1):
        tail = path[-3 * period :]
        if np.abs(tail[period:] - tail[:-period]).max() < _SAME:
            return period
    return None


def _end(result: Result) -> str:
    if result["converged"]:
        return f"converges to {result['biases'][0]:.7f}"
    if result["period"]:
        values = ", ".join(f"{b:.3f}" for b in result["cycle"])
        return f"cycles ({values})"
    return "wanders"


_CLAIMS = Claims.of(__name__, "TEH-E8")
_FIXED_POINTS = {"exact": -2.9594661, "bp": -2.9594661}
_CYCLES = {"mf": [-5.4545, -2.4204, -0.8796], "tap-printed": [-5.8796, -0.8630, 0.2728]}


def _source_row(source: str, result: Result) -> Row:
    if source in _FIXED_POINTS:
        near = abs(result["biases"][0] - _FIXED_POINTS[source]) < 1e-6
        judgement = holds(result["converged"] and near, "converges to the reference within 1e-6")
    elif source in _CYCLES:
        cycles = (result["period"] or 0) > 1
        same = cycles and np.allclose(result["cycle"], _CYCLES[source], atol=1e-3, rtol=0.0)
        judgement = holds(same, "cycles, through the values of the reference within 1e-3")
    else:
        judgement = holds(not result["converged"], "does not converge")
    return _CLAIMS.row(source, _end(result), judgement)


# ---------------------------------------------------------------------- TAP equations, naively


@dataclass(frozen=True)
class NaiveTap(Method):
    """TAP equations solved by putting in one mean after the other (TEH-I6).

    m_i = sigma(b_i + sum_j W_ij m_j + (1/2 - m_i) sum_j W_ij^2 m_j (1 - m_j)). The last term is the
    reaction of the neighbours. The thesis prints it with the other sign (ER2), which
    `sign="printed"` keeps. Begins at m = 1/2. For small positive binary pairwise models: what this
    experiment needs, no general method.

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
    max_iter: int = option(400, "most sweeps", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        form = couplings_and_fields(graph)
        weights, biases, _ = spins_to_bits(form.couplings.toarray(), form.fields)
        means = np.full(graph.n_variables, 0.5)
        iterations, converged = run.iterate(
            self._steps(weights, biases, means), tol=self.tol, limit=self.max_iter
        )
        marginals = np.stack([1.0 - means, means], axis=1).ravel()
        return Solution(marginals, converged=converged, iterations=iterations)

    def _steps(self, weights: Array, biases: Array, means: Array) -> Iterator[Step]:
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
