"""Teh's thesis, section 5.5: scaling with marginals that are only estimated (TEH-E8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.graphs.binary import boltzmann_graph
from kikuchi.inference.messages.iterative_scaling import ScalingPath, plug_in_scaling
from kikuchi.inference.method import Method
from kikuchi.inference.registry import parse_method
from kikuchi.reproduce import figures
from kikuchi.reproduce.aggregate import Claims
from kikuchi.reproduce.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi.reproduce.naive_tap import NaiveTap

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


def _verdict(result: Result) -> str:
    if result["converged"]:
        return f"converges to {result['biases'][0]:.7f}"
    if result["period"]:
        values = ", ".join(f"{b:.3f}" for b in result["cycle"])
        return f"cycles ({values})"
    return "wanders"


_CLAIMS = Claims.of(__name__, "TEH-E8")
_FIXED_POINTS = {"exact": -2.9594661, "bp": -2.9594661, "tap-damped": -3.397}
_CYCLES = {"mf": [-5.4545, -2.4204, -0.8796], "tap-printed": [-5.8796, -0.8630, 0.2728]}


def _source_row(source: str, result: Result) -> Row:
    if source in _FIXED_POINTS:
        close = 1e-3 if source == "tap-damped" else 1e-6
        met = result["converged"] and abs(result["biases"][0] - _FIXED_POINTS[source]) < close
    elif source in _CYCLES:
        cycles = (result["period"] or 0) > 1
        met = cycles and np.allclose(result["cycle"], _CYCLES[source], atol=1e-3, rtol=0.0)
    else:
        met = not result["converged"]
    return _CLAIMS.row(source, _verdict(result), met)
