"""Teh's thesis, section 5.7: speed and accuracy on lattices with observed borders (TEH-E9, E10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.seeds import generator
from kikuchi.graphs.binary import boltzmann_graph
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.iterative_scaling import IterativeScaling
from kikuchi.methods.registry import parse_method
from kikuchi_experiments import figures
from kikuchi_experiments.aggregate import (
    Claims,
    above,
    all_of,
    average,
    below,
    holds,
    levels,
    of_total,
    results_of,
    significant,
)
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.methods.beliefs import Beliefs

# ---------------------------------------------------------------------- lattices


@dataclass(frozen=True, eq=False)
class ObservedLattice:
    """A Boltzmann machine on bits and the probabilities of 1 wanted of its border."""

    graph: FactorGraph
    targets: dict[int, float]

    @property
    def hidden(self) -> list[int]:
        """Variables inside the border."""
        return [v for v in range(self.graph.n_variables) if v not in self.targets]

    @property
    def marginals(self) -> dict[int, list[float]]:
        """The wanted marginals as evidence."""
        return {v: [1.0 - p, p] for v, p in self.targets.items()}

    @property
    def states(self) -> dict[int, int]:
        """The likelier state of each border variable, as hard evidence: a fair coin."""
        return {v: int(p > 0.5) for v, p in self.targets.items()}


def observed_lattice(
    side: int, seed: int, *, weight: float, bias: float, target: float
) -> ObservedLattice:
    """A lattice of `side` by `side` bits drawn as in section 5.7 of Teh's thesis.

    Weights W ~ N(0, weight^2); biases b_i ~ N(-sum_j W_ij / 2, bias^2), which keeps the means near
    1/2; wanted P(x_i = 1) = 1 / (1 + exp(a_i)) with a_i ~ N(0, target^2) for the border variables.

    >>> lattice = observed_lattice(5, 0, weight=5.0, bias=1.0, target=4.0)
    >>> lattice.graph.n_variables, len(lattice.targets), len(lattice.hidden)
    (25, 16, 9)
    """
    rng = generator(seed)
    edges = lattice_edges(side)
    weights = rng.normal(0.0, weight, len(edges))
    incoming = np.bincount(edges.ravel(), np.repeat(weights, 2), side * side)
    biases = rng.normal(-incoming / 2.0, bias)
    rows, cols = np.divmod(np.arange(side * side), side)
    border = (rows % (side - 1) == 0) | (cols % (side - 1) == 0)
    wanted = 1.0 / (1.0 + np.exp(rng.normal(0.0, target, int(border.sum()))))
    couplings = {(int(i), int(j)): float(w) for (i, j), w in zip(edges, weights, strict=True)}
    targets = dict(zip(np.flatnonzero(border).tolist(), wanted.tolist(), strict=True))
    return ObservedLattice(boltzmann_graph(couplings, biases), targets)


def lattice_edges(side: int) -> Ints:
    """Neighbours in a square lattice, numbered row by row.

    >>> lattice_edges(2).tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    number = np.arange(side * side).reshape(side, side)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def generalised_means(graph: FactorGraph, targets: Mapping[int, float]) -> tuple[Array, float]:
    """P(x = 1) of every bit in the distribution nearest to a machine that meets `targets`.

    Exact (TEH-M24), by the method `is`. Also answers how far a target is missed.

    >>> lattice = observed_lattice(3, 0, weight=1.0, bias=1.0, target=1.0)
    >>> means, missed = generalised_means(lattice.graph, lattice.targets)
    >>> missed < 1e-8, bool(abs(means[0] - lattice.targets[0]) < 1e-8)
    (True, True)
    """
    wanted = {v: [1.0 - p, p] for v, p in targets.items()}
    beliefs = IterativeScaling().run(graph, evidence=wanted)
    return beliefs.flat_marginals[1::2], float(beliefs.diagnostics["residual"])


# ---------------------------------------------------------------------- TEH-E9

_SPEED = {
    "loopy IS": "loopy-is:tol=1e-10,max_iter=75000",
    "UPS-HV": "ups:clamps=rows-columns,accelerate=false,tol=1e-10,max_iter=100000",
    "UPS-V": "ups:clamps=columns,accelerate=false,tol=1e-10,max_iter=100000",
    "IS+BP": "is-bp:tol=1e-10,inner_tol=1e-10",
    "GIS+BP": "gis-bp:tol=1e-10,inner_tol=1e-10",
}
_UPS = ("UPS-HV", "UPS-V")
_ROUNDING = 1e-9
_AGREE = 1e-6
_CLAIMS = Claims.of(__name__, "TEH-E9", "TEH-E10")


class SpeedOfConvergence(Experiment):
    """Messages until convergence on 5 by 5 lattices (TEH-E9, figure 5.5 of the thesis)."""

    id: ClassVar[str] = "TEH-E9"

    def run_case(self, case: Case) -> Result:
        """All algorithms on one network."""
        lattice = _lattice(case)
        runs = {
            name: parse_method(text).run(lattice.graph, evidence=lattice.marginals)
            for name, text in _SPEED.items()
        }
        return {
            name: {
                "converged": beliefs.converged,
                "messages": beliefs.diagnostics["messages"],
                "rise": largest_rise(beliefs) if name in _UPS else None,
                "hidden": [float(beliefs[v][1]) for v in lattice.hidden],
            }
            for name, beliefs in runs.items()
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Medians, ranking, monotony and agreement."""
        results = [one.result for one in finished]
        rows = [_speed_row(name, results) for name in _SPEED]
        return [
            *rows,
            _ranking_row(results),
            _rows_and_columns_row(results),
            _monotone_row(results),
            _agreement_row(results),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Box plots, as figure 5.5."""
        results = [one.result for one in finished]
        counts = {_with_failures(name, results): converged_counts(name, results) for name in _SPEED}
        return figures.box_plots(counts, "messages until convergence", "Speed of convergence")


def _lattice(case: Case) -> ObservedLattice:
    scales = {key: case[key] for key in ("weight", "bias", "target")}
    return observed_lattice(case["side"], case["seed"], **scales)


def largest_rise(beliefs: Beliefs) -> float:
    """The most that the Bethe free energy rose in one iteration; 0 if it never did."""
    log_z = np.array(beliefs.trace.objective)
    return float(max(0.0, -np.diff(log_z).min(initial=0.0)))


def converged_counts(name: str, results: Sequence[Result]) -> list[int]:
    """Messages of the runs of one algorithm that converged."""
    return [r[name]["messages"] for r in results if r[name]["converged"]]


def _with_failures(name: str, results: Sequence[Result]) -> str:
    failed = sum(not r[name]["converged"] for r in results)
    return f"{name} ({failed} failed)" if failed else name


def median_rank(name: str, results: Sequence[Result]) -> float:
    """Median of the messages, where a run that did not converge needs infinitely many."""
    counts = [r[name]["messages"] if r[name]["converged"] else np.inf for r in results]
    return float(np.median(counts))


def _speed_row(name: str, results: Sequence[Result]) -> Row:
    counts = converged_counts(name, results)
    note = f"{of_total(len(counts), len(results))} networks converged"
    if not counts:
        return _CLAIMS.row(name, None, note=note)
    low, middle, high = np.percentile(counts, [25, 50, 75])
    note += f"; quartiles {low:,.0f} to {high:,.0f}"
    return _CLAIMS.row(name, round(middle), note=note)


def _ranking_row(results: Sequence[Result]) -> Row:
    medians = {name: median_rank(name, results) for name in _SPEED}
    order = " < ".join(sorted(medians, key=lambda name: medians[name]))
    slow = min(medians["IS+BP"], medians["GIS+BP"])
    same = medians["loopy IS"] < medians["UPS-HV"] < medians["UPS-V"] < slow
    return _CLAIMS.row("ranking", order, holds(same, "the same order"))


def _rows_and_columns_row(results: Sequence[Result]) -> Row:
    faster = sum(r["UPS-HV"]["messages"] < r["UPS-V"]["messages"] for r in results)
    return _CLAIMS.row("faster", of_total(faster, len(results)))


def _monotone_row(results: Sequence[Result]) -> Row:
    rises = [r[name]["rise"] for r in results for name in _UPS]
    good = sum(rise <= _ROUNDING for rise in rises)
    ours = of_total(good, len(rises))
    return _CLAIMS.row("monotone", ours, all_of(good, len(rises)), rise=max(rises))


def _agreement_row(results: Sequence[Result]) -> Row:
    worst = max((gap for result in results for gap in _gaps(result)), default=0.0)
    return _CLAIMS.row("agreement", significant(worst, 2), below(worst, _AGREE))


def _gaps(result: Result) -> list[float]:
    hidden = [np.array(run["hidden"]) for run in result.values() if run["converged"]]
    return [float(np.abs(one - hidden[0]).max()) for one in hidden[1:]]


# ---------------------------------------------------------------------- TEH-E10

_REGIMES = {
    "a": "observed states",
    "b": "nothing observed",
    "c": "targets near 1/2",
    "d": "spread targets",
}
_SPREADS = {"a": 1.0, "b": 1.0, "c": 0.2, "d": 2.0}
_MISSED = 1e-8  # the exact answer meets its targets to this
_LOOPY = "loopy-is:damping_end=0.99,anneal=2000,max_iter=2000,tol=1e-8"
_CONVERGENT = "ups:clamps=rows-columns,tol=1e-8"
_SAME_ERROR = 1e-4


class AccuracyOfMarginals(Experiment):
    """Errors of loopy IS and UPS under four kinds of observation (TEH-E10, figure 5.6)."""

    id: ClassVar[str] = "TEH-E10"
    case_axes: ClassVar[CaseAxes] = {
        "regime": tuple(_REGIMES),
        "weight": "weights",
        "bias": "biases",
    }

    def run_case(self, case: Case) -> Result:
        """Both algorithms and the exact answer on one network."""
        regime = case["regime"]
        lattice = _lattice({**case, "target": _SPREADS[regime]})
        evidence: Any = {"a": lattice.states, "b": {}}.get(regime, lattice.marginals)
        hidden = [v for v in range(lattice.graph.n_variables) if v not in evidence]
        truth, missed = _exact_means(lattice, regime)
        loopy, convergent = (
            parse_method(text).run(lattice.graph, evidence=evidence)
            for text in (_LOOPY, _CONVERGENT)
        )
        ups = _means(convergent, hidden)
        return {
            "missed": missed,
            "loopy": {
                "converged": loopy.converged,
                "error": float(np.abs(_means(loopy, hidden) - truth[hidden]).mean()),
            },
            "ups": {
                "converged": convergent.converged,
                "error": float(np.abs(ups - truth[hidden]).mean()),
                "rise": largest_rise(convergent),
                "decided": float(np.abs(ups - 0.5).mean()),
            },
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Errors of each regime, apart for networks on which loopy IS converged and did not."""
        rows = [row for regime in _REGIMES for row in _regime_rows(regime, finished)]
        return [*rows, _always_converges_row(finished), _advantage_row(finished)]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Error maps, as figure 5.6."""
        weights, biases = levels(finished, "weight"), levels(finished, "bias")
        maps = {
            (name, f"({regime}) {text}"): _error_map(key, regime, weights, biases, finished)
            for name, key in (("loopy IS", "loopy"), ("UPS-HV", "ups"))
            for regime, text in _REGIMES.items()
        }
        return figures.error_maps(maps, weights, biases)


def _means(beliefs: Beliefs, hidden: Sequence[int]) -> Any:
    return np.array([beliefs[v][1] for v in hidden])


def _exact_means(lattice: ObservedLattice, regime: str) -> tuple[Any, float]:
    if regime in ("c", "d"):
        return generalised_means(lattice.graph, lattice.targets)
    evidence = lattice.states if regime == "a" else {}
    beliefs = parse_method("jt").run(lattice.graph, evidence=evidence)
    return beliefs.flat_marginals[1::2], 0.0


def _of_regime(regime: str, finished: Sequence[Finished]) -> list[Result]:
    """Results of one kind of observation for which the exact answer is exact."""
    return [r for r in results_of(finished, regime=regime) if r["missed"] < _MISSED]


def mean_errors(results: Sequence[Result]) -> tuple[float, float]:
    """Mean error of loopy IS and of UPS."""
    return average(results, "loopy", "error"), average(results, "ups", "error")


def _regime_rows(regime: str, finished: Sequence[Finished]) -> list[Row]:
    results = _of_regime(regime, finished)
    good = [r for r in results if r["loopy"]["converged"]]
    bad = [r for r in results if not r["loopy"]["converged"]]
    rows = []
    if good:
        same = sum(abs(r["loopy"]["error"] - r["ups"]["error"]) < _SAME_ERROR for r in good)
        loopy, ups = mean_errors(good)
        label = f"({regime}) {_REGIMES[regime]}: loopy IS / UPS, where the first converged"
        note = f"equal on {of_total(same, len(good))} networks; reference: other networks"
        near = abs(loopy - ups) <= max(5e-3, 0.2 * loopy)
        judgement = holds(near, "equal within 0.005 or a fifth")
        errors = f"{loopy:.4f} / {ups:.4f}"
        rows.append(_CLAIMS.row(regime, errors, judgement, label=label, note=note))
    return [*rows, _failure_row(regime, bad, len(results))] if bad else rows


def _failure_row(regime: str, bad: Sequence[Result], total: int) -> Row:
    """Errors where loopy IS failed: whether UPS is better there, or not, as published."""
    loopy, ups = mean_errors(bad)
    published = "UPS better" if regime in ("c", "d") else "UPS not better"
    ours = "UPS better" if ups < loopy - _SAME_ERROR else "UPS not better"
    decided = average(bad, "ups", "decided")
    note = f"{of_total(len(bad), total)} networks; means by UPS are {decided:.2f} from 1/2"
    judgement = holds(ours == published, f"{published} by more than {_SAME_ERROR:g}")
    label = f"({regime}) {_REGIMES[regime]}"
    errors = f"{loopy:.4f} / {ups:.4f}"
    return _CLAIMS.row("failed", errors, judgement, label=label, published=published, note=note)


def _always_converges_row(finished: Sequence[Finished]) -> Row:
    runs = [one.result["ups"] for one in finished]
    good = sum(run["converged"] and run["rise"] <= _ROUNDING for run in runs)
    rise = max(run["rise"] for run in runs)
    return _CLAIMS.row("converges", of_total(good, len(runs)), all_of(good, len(runs)), rise=rise)


def _advantage_row(finished: Sequence[Finished]) -> Row:
    results = [*_of_regime("c", finished), *_of_regime("d", finished)]
    gains = [
        r["loopy"]["error"] - r["ups"]["error"] for r in results if not r["loopy"]["converged"]
    ]
    if not gains:
        return _CLAIMS.row("never", "loopy IS never failed")
    better = sum(gain > _SAME_ERROR for gain in gains)
    worse = sum(gain < -_SAME_ERROR for gain in gains)
    ours = f"better {better}, equal {len(gains) - better - worse}, worse {worse} times"
    gain = float(np.mean(gains))
    judgement = above(gain, _SAME_ERROR, f"{_SAME_ERROR:g} less error in the mean")
    return _CLAIMS.row("advantage", ours, judgement, gain=gain)


def _error_map(
    key: str,
    regime: str,
    weights: Sequence[float],
    biases: Sequence[float],
    finished: Sequence[Finished],
) -> tuple[Any, Any]:
    """Mean error and number of runs that did not converge, by bias (rows) and weight (columns)."""
    errors = np.full((len(biases), len(weights)), np.nan)
    failures = np.zeros(errors.shape, dtype=np.int64)
    for row, bias in enumerate(biases):
        for column, weight in enumerate(weights):
            here = results_of(finished, regime=regime, weight=weight, bias=bias)
            if here:
                errors[row, column] = average(here, key, "error")
                failures[row, column] = sum(not result[key]["converged"] for result in here)
    return errors, failures
