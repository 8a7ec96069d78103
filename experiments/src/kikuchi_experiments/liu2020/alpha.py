"""Liu's thesis, chapter 3: the certificate of alpha-belief propagation (LIU-E1, E2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.seeds import generator
from kikuchi.engines.certificates import certify
from kikuchi.graphs.binary import spin_graph
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.shapes import random_edges
from kikuchi_experiments.aggregate import Claims, all_of, holds, of_total, within
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.liu2020 import figures
from kikuchi_experiments.liu2020.published import (
    CERTIFIED,
    CURVES,
    SIGMA_MAX,
    SPREADS,
    TRACES,
    Curve,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 16
_SWEEPS = 200
_SLOPE = (10, 80)  # sweeps between which the speed is measured
_ERRORS = 4.0  # standard errors within which two estimates agree


# ---------------------------------------------------------------------- random graphs


def random_ising(spread: float, density: float, rng: np.random.Generator) -> FactorGraph:
    """A random graph of 16 spins with p ∝ exp(-x'Jx - b'x): couplings -2 J, fields -b (LIU-E1).

    J ~ N(0, spread) on the edges, b ~ N(0, spread / 4); both are standard deviations.

    >>> random_ising(0.1, 1.0, np.random.default_rng(0)).n_factors
    136
    """
    edges = random_edges(NODES, density, rng)
    couplings = -2.0 * rng.normal(scale=spread, size=len(edges))
    return spin_graph(NODES, edges, couplings, -rng.normal(scale=spread / 4.0, size=NODES))


def message_paths(graph: FactorGraph, alpha: float, sweeps: int) -> Array:
    """Probabilities of +1 in all messages after 0, 1, ... parallel sweeps of alpha-BP (LIU-I6).

    >>> message_paths(random_ising(0.1, 0.5, np.random.default_rng(0)), 0.5, 3).shape[0]
    4
    """
    from kikuchi.graphs.binary import couplings_and_fields

    form = couplings_and_fields(graph)
    theta = form.couplings.toarray()
    pull = np.tanh(alpha * theta)
    edges = theta != 0.0
    z = np.zeros_like(theta)
    paths = [z[edges]]
    for _ in range(sweeps):
        inflow = (2.0 * form.fields + z.sum(axis=0))[:, None] - alpha * z.T
        z = (1.0 - alpha) * z + 2.0 * np.arctanh(pull * np.tanh(inflow / 2.0))
        paths.append(z[edges])
    return np.asarray(0.5 * (1.0 + np.tanh(np.array(paths) / 2.0)))


class SingularValues(Experiment):
    """Largest singular value of the certificate's matrix (LIU-E1, I9; Fig. 3.3)."""

    id: ClassVar[str] = "LIU-E1"

    def run_case(self, case: Case) -> Result:
        """Singular values and spectral radii by curve and spread."""
        rng = generator(case["seed"])
        result: Result = {_name(curve): {} for curve in CURVES}
        for curve in CURVES:
            for spread in SPREADS:
                result[_name(curve)][f"{spread:g}"] = _matrix_facts(spread, curve, rng)
        for curve, spread in CERTIFIED:
            facts = _matrix_facts(spread, curve, rng, run=True)
            result[_name(curve)][f"{spread:g}"] = facts
        return result

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Means beside the published curve, then shares of certified graphs."""
        shown = (0.041, 0.102, 0.208, 0.300)
        rows = [_sigma_row(curve, s, finished) for curve in CURVES for s in shown]
        rows += [_certified_row(*key, finished) for key in CERTIFIED]
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Means by spread."""
        lines = {}
        for curve in CURVES:
            ours = np.array([_mean(curve, s, "sigma", finished) for s in SPREADS])
            radius = np.array([_mean(curve, s, "radius", finished) for s in SPREADS])
            lines[_name(curve)] = (ours, radius, np.array(SIGMA_MAX[curve]))
        return figures.singular_values(np.array(SPREADS), lines)


def _name(curve: Curve) -> str:
    return f"α = {curve[0]:g}, density {curve[1]:g}"


def _matrix_facts(
    spread: float, curve: Curve, rng: np.random.Generator, *, run: bool = False
) -> Result:
    alpha, density = curve
    graph = random_ising(spread, density, rng)
    certificate = certify(graph, alpha=alpha)
    facts: Result = {
        "sigma": certificate["largest singular value"].value,
        "radius": certificate["spectral radius"].value,
    }
    if run:
        last = message_paths(graph, alpha, _SWEEPS)[-2:]
        facts["converged"] = bool(np.abs(np.diff(last, axis=0)).max(initial=0.0) < 1e-8)
    return facts


def _values(curve: Curve, spread: float, key: str, finished: Sequence[Finished]) -> Array:
    return np.array([one.result[_name(curve)][f"{spread:g}"][key] for one in finished], dtype=float)


def _mean(curve: Curve, spread: float, key: str, finished: Sequence[Finished]) -> float:
    return float(_values(curve, spread, key, finished).mean())


_MATRIX = Claims.of(__name__, "LIU-E1")
_TRACE = Claims.of(__name__, "LIU-E2")


def _sigma_row(curve: Curve, spread: float, finished: Sequence[Finished]) -> Row:
    values = _values(curve, spread, "sigma", finished)
    published = SIGMA_MAX[curve][SPREADS.index(spread)]
    error = values.std() * np.sqrt(1 / len(values) + 1 / 100)
    ours = float(values.mean())
    judgement = within(ours, published, 0.05 + _ERRORS * float(error))
    where: dict[str, Any] = {"curve": _name(curve), "spread": spread}
    return _MATRIX.row("sigma", round(ours, 3), judgement, published=published, **where)


def _certified_row(curve: Curve, spread: float, finished: Sequence[Finished]) -> Row:
    sigma = (_values(curve, spread, "sigma", finished) < 1).mean()
    radius = (_values(curve, spread, "radius", finished) < 1).mean()
    converged = _values(curve, spread, "converged", finished).mean()
    expected = CERTIFIED[curve, spread]
    draws = 1 / len(finished) + 1 / 100
    allowed = [_ERRORS * np.sqrt(max(share * (1 - share), 0.05) * draws) for share in expected]
    ours = (sigma, radius, converged)
    near = all(abs(a - b) < e for a, b, e in zip(ours, expected, allowed, strict=True))
    texts = [" ".join(f"{share:.2f}" for share in shares) for shares in (ours, expected)]
    where: dict[str, Any] = {"curve": _name(curve), "spread": spread, "known": texts[1]}
    sound = near and _all_sound(curve, spread, finished)
    words = f"within {_ERRORS:g} standard errors; all with a spectral radius below 0.9 converge"
    return _MATRIX.row("certified", texts[0], holds(sound, words), **where)


def _all_sound(curve: Curve, spread: float, finished: Sequence[Finished]) -> bool:
    """Every certified graph converged (those near the threshold may need more sweeps)."""
    radius = _values(curve, spread, "radius", finished)
    converged = _values(curve, spread, "converged", finished)
    return bool(np.all(converged[radius < 0.9] == 1.0))


# ---------------------------------------------------------------------- traces


class MessageTraces(Experiment):
    """Distance of the messages from their last state (LIU-E2; Fig. 3.4)."""

    id: ClassVar[str] = "LIU-E2"
    case_axes: ClassVar[CaseAxes] = {"regime": tuple(TRACES)}

    def run_case(self, case: Case) -> Result:
        """Distances from the messages of sweep 200, as published (probabilities)."""
        regime = TRACES[case["regime"]]
        rng = generator(len(TRACES) * case["seed"] + sorted(TRACES).index(case["regime"]))
        graph = random_ising(regime.spread, regime.density, rng)
        drawn = 1
        while regime.certified and not _certified(graph, regime.alpha):
            graph = random_ising(regime.spread, regime.density, rng)
            drawn += 1
        paths = message_paths(graph, regime.alpha, _SWEEPS)
        distances = np.linalg.norm(paths - paths[-1], axis=1) / np.linalg.norm(paths[-1])
        radius = certify(graph, alpha=regime.alpha)["spectral radius"].value
        return {"distances": distances.tolist(), "drawn": drawn, "radius": radius}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """The claims, then log10 of the mean distance beside the published one."""
        rows = []
        for name, regime in TRACES.items():
            here = [one for one in finished if one.case["regime"] == name]
            if not here:
                continue
            rows.append(_certified_traces(here) if regime.certified else _open_traces(here))
            means = _paths(name, finished).mean(axis=0)
            for sweep, published in regime.published.items():
                ours = round(float(np.log10(max(means[sweep], 1e-17))), 2)
                near = None if regime.certified else within(ours, published, 0.3)
                where: dict[str, Any] = {"regime": name, "sweep": sweep, "note": regime.note}
                rows.append(_TRACE.row("distance", ours, near, published=published, **where))
            if regime.certified:
                rows.append(_slope_row(means, regime.published))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Traces of both regimes."""
        panels = {}
        for name, regime in TRACES.items():
            paths = _paths(name, finished)
            if len(paths):
                drawn = f"density {regime.density:g}, spread {regime.spread:g}"
                panels[f"({name}) α = {regime.alpha:g}, {drawn}"] = (paths, regime.published)
        return figures.traces(panels)


def _open_traces(here: Sequence[Finished]) -> Row:
    far = sum(max(one.result["distances"][100:-1]) > 1e-3 for one in here)
    return _TRACE.row(
        "open", of_total(far, len(here)), holds(far > 0.6 * len(here), "more than 60 %")
    )


def _certified_traces(here: Sequence[Finished]) -> Row:
    """The slope of each trace against its certificate, where it is far from rounding."""
    sound = []
    for one in here:
        distances = np.array(one.result["distances"])
        last = int(np.argmax(distances < 1e-11)) or len(distances) - 1
        rate = (distances[last] / distances[0]) ** (1.0 / last)
        sound.append(last < 150 and rate <= one.result["radius"] * 1.02)
    return _TRACE.row("certified", of_total(sum(sound), len(sound)), all_of(sum(sound), len(sound)))


def _slope_row(means: Array, published: Mapping[int, float]) -> Row:
    """Speed of convergence, which does not depend on which messages are measured."""
    first, last = _SLOPE
    ours = float(np.log10(means[first] / means[last])) / (last - first)
    theirs = (published[first] - published[last]) / (last - first)
    values = {"first": first, "last": last, "published": round(theirs, 3)}
    judgement = within(ours, theirs, 0.2 * theirs)
    return _TRACE.row("slope", round(ours, 3), judgement, **values)


def _certified(graph: FactorGraph, alpha: float) -> bool:
    return certify(graph, alpha=alpha)["largest singular value"].holds


def _paths(name: str, finished: Sequence[Finished]) -> Array:
    return np.array([one.result["distances"] for one in finished if one.case["regime"] == name])
