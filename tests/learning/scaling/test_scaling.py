"""IPF, GIS and IIS: golden values, monotony, the optimum found in other ways, bad targets.

Rows TEH-M2, TEH-M5, TEH-M25, TEH-L5, TEH-L14, TEH-L15, TEH-L18.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

import kikuchi as kk
from kikuchi.core.errors import BudgetError, DataError, MethodError
from kikuchi.learning.learner import Learner
from kikuchi.learning.registry import parse_learner
from kikuchi.learning.scaling.improved_scaling import ImprovedScalingML
from kikuchi.learning.scaling.scaling import GeneralisedScalingML, ProportionalFitting
from kikuchi.learning.scaling.scaling_tree import ScalingTree
from kikuchi.learning.scaling.targets import Targets
from kikuchi.learning.scaling.ups_jt import UnifiedScalingML
from kikuchi.learning.structure.features import Feature, Features, table_features
from oracle import enumerate_exact, random_model

P = np.array([0.20, 0.10, 0.05, 0.15, 0.10, 0.05, 0.15, 0.20]).reshape(2, 2, 2)
PAIRS = ((0, 1), (1, 2), (0, 2))
LIMIT = -1.9769499186
EXACT = [
    ProportionalFitting(form="table"),
    ProportionalFitting(form="tree"),
    UnifiedScalingML(),
    GeneralisedScalingML(form="table"),
    GeneralisedScalingML(form="tree"),
    ImprovedScalingML(form="table"),
    ImprovedScalingML(form="tree"),
]


def triangle() -> kk.FactorGraph:
    return kk.FactorGraph([2] * 3, [(pair, np.ones(4)) for pair in PAIRS])


def all_pairs(cards: list[int]) -> kk.FactorGraph:
    pairs = [(i, j) for j in range(len(cards)) for i in range(j)]
    return kk.FactorGraph(cards, [((i, j), np.ones(cards[i] * cards[j])) for i, j in pairs])


def golden_targets(graph: kk.FactorGraph) -> Targets:
    return Targets.given(graph, [P.sum(axis=2), P.sum(axis=0), P.sum(axis=1)])


def joint(graph: kk.FactorGraph) -> np.ndarray:
    states = np.array(list(np.ndindex(*(int(c) for c in graph.cardinalities))))
    logs = np.asarray(graph.log_score(states))
    p = np.exp(logs - logs.max())
    return p / p.sum()


def random_rows(rng: np.random.Generator, graph: kk.FactorGraph, n: int) -> np.ndarray:
    """Dependent rows: half of the cells copy their left neighbour where that has such a state."""
    cards = graph.cardinalities.astype(int)
    rows = rng.integers(0, cards, size=(n, len(cards)))
    for v in range(1, len(cards)):
        copy = (rng.random(n) < 0.5) & (rows[:, v - 1] < cards[v])
        rows[copy, v] = rows[copy, v - 1]
    return rows


# ---------------------------------------------------------------------- golden values


@pytest.mark.parametrize("learner", EXACT, ids=lambda learner: learner.text)
def test_golden_limit(learner: Learner) -> None:
    graph = triangle()
    fit = learner.fit_targets(graph, golden_targets(graph))
    assert fit.converged and fit.objective == pytest.approx(LIMIT, abs=2e-10)
    golden = [
        0.1902760874,
        0.1097239126,
        0.0597239126,
        0.1402760874,
        0.1097239126,
        0.0402760874,
        0.1402760874,
        0.2097239126,
    ]
    assert joint(fit.graph) == pytest.approx(golden, abs=5e-9)
    assert np.diff(fit.trace.objective).min() >= -1e-14


@pytest.mark.parametrize("form", ["table", "tree"])
def test_golden_sweeps_of_gis(form: str) -> None:
    # TEH-T27
    graph = triangle()
    fit = GeneralisedScalingML(form=form).fit_targets(graph, golden_targets(graph))
    golden = [-2.0229823683, -1.9997810838, -1.9893602998]
    assert fit.trace.objective[:3] == pytest.approx(golden, abs=1e-10)


@pytest.mark.parametrize("form", ["table", "tree"])
def test_golden_updates_of_ipf(form: str) -> None:
    """Each of the first six updates, one factor at a time."""
    # TEH-T27
    graph = triangle()
    targets = golden_targets(graph)
    tree = ScalingTree(graph, kk.Budget(), form=form)
    found = []
    for k in range(6):
        only = np.arange(3) == k % 3
        tree.ipf_sweep(targets.tables, only)
        found.append(targets.mean_of(tree.weights) - tree.log_z)
    golden = [
        -2.0282323457,
        -1.9820315165,
        -1.9778821151,
        -1.9775384964,
        -1.9771379040,
        -1.9770051482,
    ]
    assert found == pytest.approx(golden, abs=1e-10)


def test_iis_equals_gis_where_the_sum_is_constant_and_gis_equals_ipf_for_one_factor() -> None:
    # TEH-T27
    graph = triangle()
    targets = golden_targets(graph)
    one = ImprovedScalingML(form="table").fit_targets(graph, targets).trace.objective
    other = GeneralisedScalingML(form="table").fit_targets(graph, targets).trace.objective
    assert one == pytest.approx(other, abs=1e-13)
    single = kk.FactorGraph([2] * 3, [((0, 1, 2), np.ones(8))])
    whole = Targets.given(single, [P])
    for learner in (GeneralisedScalingML(), ProportionalFitting()):
        fit = learner.fit_targets(single, whole)
        assert fit.trace.objective[0] == pytest.approx((P * np.log(P)).sum(), abs=1e-14)


# ---------------------------------------------------------------------- the optimum, other ways


def gradient_fit(graph: kk.FactorGraph, targets: Targets) -> float:
    """Greatest likelihood by L-BFGS with gradients from enumeration: no code of the learners."""

    def negative(logs: np.ndarray) -> tuple[float, np.ndarray]:
        model = graph.with_log_tables(logs)
        log_z, _, tables = enumerate_exact(model)
        marginals = np.concatenate([t.ravel() for t in tables])
        return log_z - float(targets.tables @ logs), marginals - targets.tables

    start = np.zeros(graph.log_tables.size)
    found = minimize(negative, start, jac=True, method="L-BFGS-B", options={"gtol": 1e-9})
    return -float(found.fun)


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_that_of_gradient_ascent(seed: int) -> None:
    # TEH-T23
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, n_factors=6, max_order=3, max_card=3)
    rows = random_rows(rng, graph, 60)
    best = gradient_fit(graph, Targets.of(graph, rows, smoothing=2.0))
    for text in ("ipf:form=table", "ipf:form=tree", "ups-jt", "iis:form=tree"):
        learner = parse_learner(f"{text}{',' if ':' in text else ':'}smoothing=2")
        fit = learner.fit(graph, rows)
        assert fit.converged and fit.objective == pytest.approx(best, abs=1e-7), text
        _, _, tables = enumerate_exact(fit.graph)
        wanted = Targets.of(graph, rows, smoothing=2.0).tables
        assert np.concatenate([t.ravel() for t in tables]) == pytest.approx(wanted, abs=2e-9)


@pytest.mark.parametrize("seed", range(4))
def test_likelihood_is_minus_the_entropy_at_the_optimum(seed: int) -> None:
    """TEH-M5: E_data[log P] = -H(P); TEH-M25."""
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, n_factors=5, max_order=3, max_card=3)
    fit = ProportionalFitting(smoothing=3.0).fit(graph, random_rows(rng, graph, 40), score=False)
    p = joint(fit.graph)
    assert fit.objective == pytest.approx(float((p * np.log(p)).sum()), abs=1e-8)


def test_the_order_of_the_factors_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    graph = random_model(rng, n=5, n_factors=6, max_order=2, max_card=3)
    rows = random_rows(rng, graph, 50)
    back = kk.FactorGraph(
        graph.cardinalities, [(graph.scope(a), graph.table(a)) for a in range(5, -1, -1)]
    )
    one = ProportionalFitting(smoothing=1.0).fit(graph, rows)
    other = ProportionalFitting(smoothing=1.0).fit(back, rows)
    assert joint(one.graph) == pytest.approx(joint(other.graph), abs=1e-8)


def test_the_objective_is_the_log_likelihood_of_the_rows() -> None:
    rng = np.random.default_rng(8)
    graph = random_model(rng, n=5, n_factors=5, max_order=2, max_card=3)
    rows = random_rows(rng, graph, 200)
    fit = UnifiedScalingML().fit(graph, rows)
    assert fit.log_likelihood == pytest.approx(fit.objective, abs=1e-8)


def test_parameters_are_recovered_from_many_samples() -> None:
    truth = kk.grid(3, 3, seed=2, coupling=0.5, field=0.3)
    rows = kk.plan(truth).calibrate().sample(200_000, seed=1)
    fit = UnifiedScalingML().fit(truth, rows)
    assert np.abs(joint(fit.graph) - joint(truth)).sum() < 0.02


# ---------------------------------------------------------------------- awkward models


def awkward() -> dict[str, kk.FactorGraph]:
    ones = np.ones
    return {
        "nothing": kk.FactorGraph([2, 3], []),
        "one variable": kk.FactorGraph([3], [((0,), ones(3))]),
        "order one": kk.FactorGraph([2, 3], [((0,), ones(2)), ((1,), ones(3))]),
        "twice the same": kk.FactorGraph([2, 2], [((0, 1), ones(4)), ((1, 0), ones(4))]),
        "disconnected": kk.FactorGraph([2] * 5, [((0, 1), ones(4)), ((2, 3), ones(4))]),
        "single states": kk.FactorGraph([2, 1, 2], [((0, 1, 2), ones(4)), ((1,), ones(1))]),
    }


@pytest.mark.parametrize("name", awkward())
@pytest.mark.parametrize("learner", EXACT, ids=lambda learner: learner.text)
def test_awkward_models(name: str, learner: Learner) -> None:
    graph = awkward()[name]
    rows = random_rows(np.random.default_rng(0), graph, 30)
    rows = np.concatenate([rows, np.zeros_like(rows[:1]), graph.cardinalities[None, :] - 1])
    fit = learner.fit(graph, rows)
    assert fit.converged
    _, _, tables = enumerate_exact(fit.graph)
    wanted = Targets.of(graph, rows).tables
    if tables:
        assert np.concatenate([t.ravel() for t in tables]) == pytest.approx(wanted, abs=1e-8)
    assert fit.log_likelihood == pytest.approx(fit.objective, abs=1e-8)


@pytest.mark.parametrize("learner", EXACT, ids=lambda learner: learner.text)
def test_zeros_stay_and_empty_cells_become_zero(learner: Learner) -> None:
    table = np.array([[1.0, 1.0], [1.0, 0.0]])
    graph = kk.FactorGraph([2] * 3, [((0, 1), table), ((1, 2), np.ones(4))])
    rows = [[0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]  # never x1 = x2 = 1
    fit = learner.fit(graph, rows)
    assert fit.converged and "smoothing" in " ".join(fit.warnings)
    assert fit.graph.table(0)[1, 1] == 0.0 and fit.graph.table(1)[1, 1] == 0.0
    _, _, tables = enumerate_exact(fit.graph)
    wanted = Targets.of(graph, rows).tables
    assert np.concatenate([t.ravel() for t in tables]) == pytest.approx(wanted, abs=1e-8)


def test_strong_base_is_refused_not_wrong() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), [[0.0, 900.0], [900.0, 0.0]])], log=True)
    with pytest.raises(MethodError, match=r"e\^700.*gradient"):
        ProportionalFitting(base="graph").fit(graph, [[0, 0], [1, 1]])


def test_too_large_trees_are_refused_before_they_are_built() -> None:
    graph = kk.generate.complete(24, seed=0)
    with pytest.raises(BudgetError, match=r"junction tree.*loopy-is"):
        UnifiedScalingML().fit(graph, np.zeros((1, 24), dtype=int), budget=kk.Budget(bytes=10**6))


def test_directed_models_and_missing_cells_are_refused() -> None:
    directed = kk.FactorGraph(
        [2, 2], [((0,), [0.5, 0.5]), ((0, 1), np.full(4, 0.5))], children=[0, 1]
    )
    with pytest.raises(MethodError, match="use learner em"):
        ProportionalFitting().fit(directed, [[0, 0]])
    with pytest.raises(DataError, match="complete rows"):
        ProportionalFitting().fit(triangle(), [[0, -1, 0]])


# ---------------------------------------------------------------------- targets


def test_targets_that_contradict_each_other_where_they_overlap() -> None:
    graph = triangle()
    with pytest.raises(DataError, match=r"factors 0 and 1 disagree about \(1\)"):
        Targets.given(graph, {0: [[0.4, 0.1], [0.1, 0.4]], 1: [[0.4, 0.3], [0.1, 0.2]]})


@pytest.mark.parametrize("learner", EXACT, ids=lambda learner: learner.text)
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_targets_that_no_distribution_has(learner: Learner, share: float) -> None:
    """Three variables that all differ from each other: each pair table is fine, all are not."""
    graph = triangle()
    unequal = np.array([[share, 0.5 - share], [0.5 - share, share]])
    with pytest.raises(DataError, match=r"targets: .*one distribution"):
        learner.fit_targets(graph, Targets.given(graph, [unequal] * 3))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([0.5, 0.5], "needs shape"),
        ([[0.5, 0.5], [0.5, 0.5]], "sums to 2"),
        ([[0.5, -0.1], [0.3, 0.3]], "no probability"),
        ([[np.nan, 0.5], [0.3, 0.2]], "no probability"),
        ("abcd", "not a table"),
    ],
)
def test_bad_target_tables(table: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Targets.given(triangle(), {0: table})


def test_targets_of_another_graph_and_on_zeros() -> None:
    graph = triangle()
    other = kk.FactorGraph([2] * 3, [((0, 2), np.ones(4))])
    with pytest.raises(DataError, match="another graph"):
        ProportionalFitting().fit_targets(other, golden_targets(graph))
    holed = kk.FactorGraph([2, 2], [((0, 1), [[1, 1], [1, 0]])])
    with pytest.raises(DataError, match="weight zero where its target"):
        Targets.given(holed, {0: np.full(4, 0.25)})
    with pytest.raises(DataError, match="smoothing"):
        Targets.of(holed, [[0, 0]], smoothing=1.0)


def test_smoothed_targets_are_marginals_of_one_distribution() -> None:
    graph = kk.FactorGraph(
        [2, 3, 2], [((0, 1), np.ones(6)), ((1,), np.ones(3)), ((2, 1), np.ones(6))]
    )
    targets = Targets.of(graph, [[0, 2, 1], [1, 0, 0]], smoothing=0.7)
    Targets.given(graph, [targets.table(a) for a in range(3)])  # checks that they agree
    assert targets.tables.min() > 0


# ---------------------------------------------------------------------- base model (TEH-L18)


def test_least_relative_entropy_to_a_base() -> None:
    """The answer has the targets and is nearer to the base than other distributions with them."""
    rng = np.random.default_rng(3)
    factors = [((0, 1), np.exp(rng.normal(size=4))), ((1, 2), np.exp(rng.normal(size=4)))]
    base = kk.FactorGraph([2] * 3, [*factors, ((0,), np.ones(2)), ((2,), np.ones(2))])
    targets = Targets.given(base, {2: [0.3, 0.7], 3: [0.6, 0.4]})
    p0 = joint(base)
    for learner in (ProportionalFitting(base="graph"), UnifiedScalingML(base="graph")):
        fit = learner.fit_targets(base, targets)
        assert fit.graph.table(0) == pytest.approx(base.table(0))  # no target: as it was
        p = joint(fit.graph)
        cube = p.reshape(2, 2, 2)
        assert cube.sum(axis=(1, 2)) == pytest.approx([0.3, 0.7], abs=1e-9)
        assert cube.sum(axis=(0, 1)) == pytest.approx([0.6, 0.4], abs=1e-9)
        least = float((p * np.log(p / p0)).sum())
        for _ in range(50):
            noise = rng.uniform(-0.2, 0.2, size=(2, 2, 2)) * p.min()
            noise -= noise.mean(axis=(1, 2), keepdims=True)
            noise -= noise.mean(axis=(0, 1), keepdims=True)
            q = p + noise.ravel()
            assert float((q * np.log(q / p0)).sum()) > least - 1e-12


def test_without_a_base_the_untargeted_factors_become_ones() -> None:
    base = kk.FactorGraph([2] * 2, [((0, 1), [[4, 1], [1, 4]]), ((0,), np.ones(2))])
    fit = ProportionalFitting().fit_targets(base, Targets.given(base, {1: [0.1, 0.9]}))
    assert joint(fit.graph) == pytest.approx([0.05, 0.05, 0.45, 0.45])


# ---------------------------------------------------------------------- features


def ising_features(graph: kk.FactorGraph, tied: bool) -> Features:
    equal = [Feature.table(graph.scope(a), np.eye(2)) for a in range(graph.n_factors)]
    return Features(graph, [Feature.tied(equal)] if tied else equal)


@pytest.mark.parametrize("tied", [False, True])
def test_expectations_match_and_likelihood_is_greatest(tied: bool) -> None:
    rng = np.random.default_rng(2)
    pairs = [(i, j) for i in range(4) for j in range(i)]
    graph = kk.FactorGraph([2] * 4, [(pair, np.ones(4)) for pair in pairs])
    rows = random_rows(rng, graph, 80)
    features = ising_features(graph, tied)
    wanted = features.expectations(Targets.of(graph, rows).tables)

    def negative(theta: np.ndarray) -> float:
        model = graph.with_log_tables(features.log_tables(theta))
        return enumerate_exact(model)[0] - float(theta @ wanted)

    best = -minimize(negative, np.zeros(len(features)), options={"gtol": 1e-8}).fun
    learners = [
        GeneralisedScalingML(features=features, form="table"),
        GeneralisedScalingML(features=features, form="tree"),
        ImprovedScalingML(features=features, form="table"),
    ]
    learners += [] if tied else [ImprovedScalingML(features=features, form="tree")]
    for learner in learners:
        fit = learner.fit(graph, rows)
        assert fit.converged and fit.objective == pytest.approx(best, abs=1e-7)
        assert fit.log_likelihood == pytest.approx(best, abs=1e-7)
        _, _, tables = enumerate_exact(fit.graph)
        means = features.expectations(np.concatenate([t.ravel() for t in tables]))
        assert means == pytest.approx(wanted, abs=1e-8)
        theta = np.array(fit.diagnostics["theta"])
        difference = fit.graph.log_tables - features.log_tables(theta)
        assert np.ptp(difference) < 1e-9  # up to constants the tables are theta's
        assert np.diff(fit.trace.objective).min() >= -1e-13


def test_unequal_feature_values_on_a_tree_against_the_table() -> None:
    rng = np.random.default_rng(4)
    scopes = [(0, 1), (1, 2), (2, 3)]
    graph = kk.FactorGraph([2, 3, 2, 3], [(s, np.ones(6)) for s in scopes])
    values = [rng.random(graph.shape(a)) * 3 for a in range(3)]
    features = Features(graph, [Feature.table(s, v) for s, v in zip(scopes, values, strict=True)])
    rows = random_rows(rng, graph, 300)
    options = {"features": features, "tol": 1e-8}
    table = ImprovedScalingML(form="table", **options).fit(graph, rows)
    tree = ImprovedScalingML(form="tree", **options).fit(graph, rows)
    gis = GeneralisedScalingML(form="tree", **options).fit(graph, rows)
    assert table.converged and tree.converged and gis.converged
    assert tree.objective == pytest.approx(table.objective, abs=1e-8)
    assert gis.objective == pytest.approx(table.objective, abs=1e-8)
    assert tree.iterations < table.iterations < gis.iterations


def test_feature_expectations_given_directly() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), np.ones(4))])
    features = Features(graph, [Feature.table((0, 1), np.eye(2)), Feature.where((0, 1), (1, 1))])
    for learner in (GeneralisedScalingML(features=features), ImprovedScalingML(features=features)):
        fit = learner.fit_targets(graph, [0.7, 0.5])
        assert joint(fit.graph) == pytest.approx([0.2, 0.15, 0.15, 0.5], abs=1e-8)
        with pytest.raises(DataError, match="2 features"):
            learner.fit_targets(graph, [0.7])
    with pytest.raises(MethodError, match="takes Targets"):
        ProportionalFitting().fit_targets(graph, [0.7, 0.5])


def test_impossible_expectations() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), [[1, 1], [1, 0]])])
    features = Features(graph, [Feature.where((0, 1), (1, 1))])
    for learner in (
        GeneralisedScalingML(features=features),
        ImprovedScalingML(features=features, form="table"),
        ImprovedScalingML(features=features, form="tree"),
    ):
        with pytest.raises(DataError, match="targets"):
            learner.fit_targets(graph, [0.3])


def test_tied_features_on_a_tree_are_refused_by_iis_only() -> None:
    graph = kk.FactorGraph([2] * 3, [((0, 1), np.ones(4)), ((1, 2), np.ones(4))])
    features = ising_features(graph, True)
    with pytest.raises(MethodError, match=r"form=table.*gis"):
        ImprovedScalingML(features=features, form="tree").fit(graph, [[0, 0, 0], [0, 1, 1]])


def test_all_table_entries_as_features_are_the_tables() -> None:
    graph = triangle()
    explicit = ImprovedScalingML(features=table_features(graph), form="tree")
    fit = explicit.fit_targets(graph, golden_targets(graph))
    assert fit.objective == pytest.approx(LIMIT, abs=1e-9)


# ---------------------------------------------------------------------- budget and checkpoints


def test_ctrl_c_in_the_middle_of_a_sweep_leaves_a_sound_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = np.random.default_rng(6)
    graph = random_model(rng, n=6, n_factors=8, max_order=2, max_card=3)
    rows = random_rows(rng, graph, 90)
    learner = GeneralisedScalingML(form="tree", smoothing=1.0)
    unbroken = learner.fit(graph, rows, score=False)
    place = tmp_path / "fit.npz"
    calls = 0
    original = ScalingTree.add

    def add(self: ScalingTree, *args: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 10:
            raise KeyboardInterrupt
        original(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ScalingTree, "add", add)
    stopped = learner.fit(graph, rows, score=False, checkpoint=place)
    assert stopped.stopped == "interrupted" and calls == 10
    resumed = learner.fit(graph, rows, score=False, checkpoint=place)
    assert resumed.converged
    assert resumed.objective == pytest.approx(unbroken.objective, abs=1e-9)


def test_checkpoint_of_a_fit_to_targets(tmp_path: Path) -> None:
    graph = triangle()
    targets = golden_targets(graph)
    place = tmp_path / "fit.npz"
    learner = UnifiedScalingML()
    learner.fit_targets(graph, targets, checkpoint=place, budget=kk.Budget(iterations=2))
    fit = learner.fit_targets(graph, targets, checkpoint=place)
    assert fit.converged and fit.objective == pytest.approx(LIMIT, abs=1e-9)
    assert fit.iterations == learner.fit_targets(graph, targets).iterations


def test_seconds_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by 1 ms whenever it is read: the same stop on every machine."""
    graph = all_pairs([2] * 9)
    rows = random_rows(np.random.default_rng(0), graph, 500)
    learner = GeneralisedScalingML(smoothing=0.1)
    reads = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: 1e-3 * next(reads))
    monkeypatch.setattr("kikuchi.core.budget.time", clock)
    fit = learner.fit(graph, rows, budget=kk.Budget(seconds=0.1), score=False)
    assert fit.stopped == "seconds" and not fit.converged and fit.iterations > 1
    assert 0.1 <= fit.seconds < 0.2
    longer = learner.fit(graph, rows, budget=kk.Budget(seconds=0.2), score=False)
    assert longer.stopped == "seconds" and longer.iterations > fit.iterations
