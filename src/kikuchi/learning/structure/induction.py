"""Feature induction: add the feature that explains most, fit again, and so on.

Minimax entropy: given features the model has the most entropy; among features those are best that
leave the least. The gain of a candidate f is estimated with all other parameters fixed,
max_a { a E_data[f] - log E_model[e^(a f)] }: a new fit of all parameters gains at least that.

Reference: TEH-L6, TEH-M5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, RunLimits, limits, named_limits
from kikuchi.core.errors import ModelError
from kikuchi.engines.trees.calibrated import CalibratedTree, plan
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.fit import Fit
from kikuchi.learning.scaling.improved_scaling import ImprovedScalingML
from kikuchi.learning.scaling.scaling import FeatureLearner, GeneralisedScalingML
from kikuchi.learning.structure.features import Feature, Features

Scope = tuple[int, ...]

_NEWTON_STEPS = 100
_MOST_SWEEPS = 2000  # weights of features that are always or never there go to infinity
_LARGEST_WEIGHT = 30.0  # of a candidate that occurs in all rows or in none


@dataclass(frozen=True)
class Induced:
    """A model grown feature by feature: what was added, what it promised, and what it brought.

    `log_likelihoods` has one entry more than `gains`: the first is that of the model before.
    """

    fit: Fit
    features: Features
    gains: tuple[float, ...]
    log_likelihoods: tuple[float, ...]

    @property
    def graph(self) -> FactorGraph:
        """The fitted model."""
        return self.fit.graph


@named_limits
def induce_features(
    data: Data | ArrayLike,
    candidates: Iterable[Feature] | None = None,
    *,
    count: int = 10,
    start: Iterable[Feature] | None = None,
    min_gain: float = 1e-4,
    learner: FeatureLearner | None = None,
    **within: Unpack[RunLimits],
) -> Induced:
    """Grow a log-linear model greedily by up to `count` features of greatest gain.

    It starts from `start` (one feature for each state but the first of every variable) and looks at
    `candidates` (one for each pair of states but the first of every pair of variables). Candidates
    with fewer variables are preferred among equals. Stops when no candidate promises `min_gain`
    nats per row. After each addition all parameters are fitted again, by `iis` unless a learner
    with features is given. The likelihood never falls. The limits are those of each
    fit: `seconds` and `memory`, or a `budget` of both.

    `data` are complete rows, `learner` is a learner of features such as `ImprovedScalingML()`.

    >>> rows = [[0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0]]
    >>> found = induce_features(rows, count=1)
    >>> [scope for scope, _ in found.features.features[-1].parts]
    [(0, 1)]
    """
    rows = Data.of(data)
    rows.require_complete("induce_features")
    chosen = list(_single_states(rows) if start is None else start)
    waiting = list(_pair_states(rows) if candidates is None else candidates)
    chooser = learner or ImprovedScalingML(tol=1e-8, max_iter=_MOST_SWEEPS)
    budget = limits(**within)
    fit, features = _fitted(rows, chosen, chooser, budget)
    likelihoods, gains = [_objective(fit)], []
    for _ in range(count):
        best = _best_candidate(fit.graph, rows, waiting, budget)
        if best is None or best[1] < min_gain:
            break
        place, gain = best
        chosen.append(waiting.pop(place))
        fit, features = _fitted(rows, chosen, chooser, budget)
        gains.append(gain)
        likelihoods.append(_objective(fit))
    return Induced(fit, features, tuple(gains), tuple(likelihoods))


def candidate_gain(feature: Feature, model: FactorGraph, data: Data | ArrayLike) -> float:
    """max_a { a E_data[f] - log E_model[e^(a f)] } of one feature, in nats per row.

    >>> fair = FactorGraph([2], [((0,), [1, 1])])
    >>> heads = Feature.where((0,), (1,))
    >>> round(candidate_gain(heads, fair, [[1], [1], [1], [0]]), 6)
    0.130812
    """
    rows = Data.of(data, model)
    tree = plan(model).calibrate()
    return _gain(feature, tree, model, rows)


# ---------------------------------------------------------------------- parts


def _fitted(
    rows: Data, chosen: Sequence[Feature], learner: FeatureLearner, budget: Budget | None
) -> tuple[Fit, Features]:
    import dataclasses

    graph = _graph_of(rows, chosen)
    features = Features(graph, chosen)
    if features.is_tied and isinstance(learner, ImprovedScalingML):
        learner = GeneralisedScalingML(tol=learner.tol, max_iter=learner.max_iter)
    learner = dataclasses.replace(learner, features=features)
    return learner.fit(graph, rows, budget=budget, score=False), features


def _graph_of(rows: Data, features: Sequence[Feature]) -> FactorGraph:
    """Tables of ones on the scopes of the features."""
    index = {name: v for v, name in enumerate(rows.names or ())}
    scopes: dict[frozenset[int], Scope] = {}
    for feature in features:
        for scope, _ in feature.parts:
            numbers = tuple(index.get(v, -1) if isinstance(v, str) else int(v) for v in scope)
            if any(not 0 <= v < rows.n_variables for v in numbers):
                raise ModelError(f"a feature has variables {scope}, but the data have no such")
            scopes.setdefault(frozenset(numbers), numbers)
    cards = rows.cardinalities
    tables = [(s, np.ones([int(cards[v]) for v in s])) for s in scopes.values()]
    return FactorGraph(cards, tables, names=rows.names, states=rows.state_names)


def _best_candidate(
    model: FactorGraph, rows: Data, waiting: Sequence[Feature], budget: Budget | None
) -> tuple[int, float] | None:
    tree = plan(model).calibrate(budget=budget)
    joints = _Joints(model, tree)
    best: tuple[float, int, int] | None = None
    for k, feature in enumerate(waiting):
        gain = _gain(feature, tree, model, rows, joints)
        width = max(len(scope) for scope, _ in feature.parts)
        key = (-round(gain, 12), width, k)
        best = key if best is None else min(best, key)
    return None if best is None else (best[2], -best[0])


class _Joints:
    """Joint marginals of scopes under a model; all pairs at once where pairs are asked for."""

    def __init__(self, model: FactorGraph, tree: CalibratedTree) -> None:
        self.model = model
        self.tree = tree
        self.pairs: Array | None = None
        self.kept: dict[Scope, Array] = {}

    def of(self, scope: Scope) -> Array:
        """Joint of a scope, axes in its order."""
        if scope not in self.kept:
            self.kept[scope] = self._pair(*scope) if len(scope) == 2 else self.tree.joint(scope)
        return self.kept[scope]

    def _pair(self, i: int, j: int) -> Array:
        if self.pairs is None:
            self.pairs = _all_pairs(self.model, self.tree)
        at = self.model.state_offsets
        return self.pairs[at[i] : at[i + 1], at[j] : at[j + 1]]


def _all_pairs(model: FactorGraph, tree: CalibratedTree) -> Array:
    """p(state, state) of all pairs: one exact run for each state, given it."""
    at = model.state_offsets
    flat = tree.flat_marginals
    out = np.zeros((int(at[-1]), int(at[-1])))
    for v in range(model.n_variables):
        for k in range(int(model.cardinalities[v])):
            p = float(flat[at[v] + k])
            if p > 0:
                given = plan(model, evidence={v: k}, order="min-fill").calibrate()
                out[at[v] + k] = p * given.flat_marginals
    return out


def _gain(
    feature: Feature,
    tree: CalibratedTree,
    model: FactorGraph,
    rows: Data,
    joints: _Joints | None = None,
) -> float:
    if len(feature.parts) != 1:
        raise ModelError(
            "a candidate with parts on several scopes has no quick gain; fit it instead"
        )
    scope, entries = feature.parts[0]
    numbers = tuple(model.index(v) for v in scope)
    present = (joints or _Joints(model, tree)).of(numbers)
    values = np.zeros(present.shape)
    for states, value in entries.items():
        values[states] = value
    counts = rows.counts(numbers)
    wanted = float((counts / counts.sum() * values).sum())
    return best_gain(values.ravel(), present.ravel(), wanted)


def best_gain(values: Array, present: Array, wanted: float) -> float:
    """max_a a * wanted - log sum present e^(a values), by Newton's method within bounds.

    >>> round(best_gain(np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0.75), 6)
    0.130812
    """
    live = present > 0
    values, logs = values[live], np.log(present[live] / present[live].sum())
    low, high, weight = -_LARGEST_WEIGHT, _LARGEST_WEIGHT, 0.0

    def tilted(a: float) -> tuple[float, Any]:
        terms = logs + a * values
        top = terms.max()
        p = np.exp(terms - top)
        return float(top + np.log(p.sum())), p / p.sum()

    for _ in range(_NEWTON_STEPS):
        _, p = tilted(weight)
        slope = wanted - float(p @ values)
        if slope > 0:
            low = weight
        else:
            high = weight
        curvature = float(p @ values**2 - (p @ values) ** 2)
        new = weight + slope / curvature if curvature > 1e-300 else np.inf
        new = new if low < new < high else 0.5 * (low + high)
        if abs(new - weight) <= 1e-12 * max(1.0, abs(weight)):
            break
        weight = new
    return max(weight * wanted - tilted(weight)[0], 0.0)


def _single_states(rows: Data) -> Iterable[Feature]:
    for v in range(rows.n_variables):
        for k in range(1, int(rows.cardinalities[v])):
            yield Feature.where((v,), (k,))


def _pair_states(rows: Data) -> Iterable[Feature]:
    cards = rows.cardinalities.tolist()
    for i, j in combinations(range(rows.n_variables), 2):
        for a in range(1, cards[i]):
            for b in range(1, cards[j]):
                yield Feature.where((i, j), (a, b))


def _objective(fit: Fit) -> float:
    assert fit.objective is not None  # every scaling learner knows it
    return fit.objective
