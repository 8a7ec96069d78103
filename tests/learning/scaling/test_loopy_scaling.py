"""Loopy scaling (TEH-L17): exact on junction trees, closed form on edges, outgoing elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import BudgetError, DataError, MethodError
from kikuchi.learning.registry import parse_learner
from kikuchi.learning.scaling.loopy_scaling import LoopyScalingML, region_tour
from kikuchi.learning.scaling.scaling import ProportionalFitting
from kikuchi.learning.scaling.scaling_tree import ScalingTree
from kikuchi.learning.scaling.targets import Targets
from oracle import enumerate_exact, random_model

P = np.array([0.20, 0.10, 0.05, 0.15, 0.10, 0.05, 0.15, 0.20]).reshape(2, 2, 2)


def triangle() -> kk.FactorGraph:
    return kk.FactorGraph([2] * 3, [(pair, np.ones(4)) for pair in ((0, 1), (1, 2), (0, 2))])


def golden_targets(graph: kk.FactorGraph) -> Targets:
    return Targets.given(graph, [P.sum(axis=2), P.sum(axis=0), P.sum(axis=1)])


def joint(graph: kk.FactorGraph) -> np.ndarray:
    states = np.array(list(np.ndindex(*(int(c) for c in graph.cardinalities))))
    logs = np.asarray(graph.log_score(states))
    p = np.exp(logs - logs.max())
    return p / p.sum()


def samples(graph: kk.FactorGraph, n: int, seed: int = 0) -> np.ndarray:
    return kk.plan(graph).calibrate().sample(n, seed=seed)


def closed_form(graph: kk.FactorGraph, targets: Targets) -> np.ndarray:
    """P prop. to prod_a p_a / prod_i p_i^(n_i - 1), over all states; written apart."""
    cards = [int(c) for c in graph.cardinalities]
    logs = np.zeros(cards)
    holders = np.zeros(len(cards))
    singles: list[np.ndarray] = [np.zeros(c) for c in cards]
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        table = targets.table(a)
        order = np.argsort(scope)
        shape = [cards[v] if v in scope else 1 for v in range(len(cards))]
        logs = logs + np.log(np.transpose(table, order)).reshape(shape)
        for k, v in enumerate(scope):
            holders[v] += 1
            singles[v] = table.sum(axis=tuple(j for j in range(len(scope)) if j != k))
    for v, single in enumerate(singles):
        shape = [cards[v] if w == v else 1 for w in range(len(cards))]
        logs = logs - (holders[v] - 1) * np.log(single).reshape(shape)
    p = np.exp(logs - logs.max())
    return (p / p.sum()).ravel()


# ---------------------------------------------------------------------- oracles


def test_golden_closed_form_of_the_triangle() -> None:
    graph = triangle()
    targets = golden_targets(graph)
    fit = LoopyScalingML(regions="bethe").fit_targets(graph, targets)
    p = joint(fit.graph)
    golden = [0.2, 0.1, 0.0727272727, 0.1272727273, 0.1, 0.05, 0.1272727273, 0.2227272727]
    assert fit.converged and p == pytest.approx(golden, abs=1e-8)
    assert float((P.ravel() * np.log(p)).sum()) == pytest.approx(-1.9820315165, abs=1e-9)
    cube = p.reshape(2, 2, 2)
    edges = [(cube.sum(axis=k), P.sum(axis=k)) for k in (2, 0, 1)]
    l1 = float(np.mean([np.abs(x - y).sum() for x, y in edges]))
    assert l1 == pytest.approx(0.0303030303, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_edges_as_regions_give_the_closed_form(seed: int) -> None:
    # TEH-T24
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, 4, size=5)
    pairs = [(i, j) for j in range(5) for i in range(j) if rng.random() < 0.8]
    graph = kk.FactorGraph(cards, [(p, np.ones(int(cards[p[0]] * cards[p[1]]))) for p in pairs])
    rows = rng.integers(0, cards, size=(30, 5))
    targets = Targets.of(graph, rows, smoothing=1.0)
    fit = LoopyScalingML(regions="bethe", smoothing=1.0, tol=1e-13).fit(graph, rows)
    covered = {v for pair in pairs for v in pair}
    assert covered == set(range(5))
    assert fit.converged and joint(fit.graph) == pytest.approx(
        closed_form(graph, targets), abs=1e-10
    )


@pytest.mark.parametrize("seed", range(5))
def test_exact_on_a_junction_tree(seed: int) -> None:
    # TEH-T24
    graph = random_model(np.random.default_rng(seed), n=6, n_factors=8, max_order=3, max_card=3)
    rows = samples(graph, 100, seed)
    loopy = LoopyScalingML(regions="junction-tree", smoothing=1.0, tol=1e-12).fit(graph, rows)
    exact = ProportionalFitting(smoothing=1.0, form="table", tol=1e-12).fit(graph, rows)
    assert loopy.converged and loopy.diagnostics["exact"] and loopy.diagnostics["damping"] == 0
    assert loopy.objective == pytest.approx(exact.objective, abs=1e-10)
    assert joint(loopy.graph) == pytest.approx(joint(exact.graph), abs=1e-10)


@pytest.mark.parametrize(("regions", "tol"), [("junction-tree", 1e-9), ("blocks:2x3", 0.02)])
def test_joint_marginals_observed_on_a_base_model(regions: str, tol: float) -> None:
    """TEH-X1: pair marginals observed on some edges of a model whose other factors stay."""
    model = kk.grid(3, 3, seed=4)
    scopes = [tuple(model.scope(a)) for a in range(model.n_factors)]
    observed = {scopes.index(pair): [[0.4, 0.1], [0.2, 0.3]] for pair in ((0, 1), (4, 7))}
    targets = Targets.given(model, observed)
    fit = LoopyScalingML(base="graph", regions=regions).fit_targets(model, targets)
    exact = ProportionalFitting(base="graph", form="table").fit_targets(model, targets)
    assert fit.converged and joint(fit.graph) == pytest.approx(joint(exact.graph), abs=tol)
    beliefs = kk.infer(exact.graph, "enumerate")
    for a in range(model.n_factors):
        if a in observed:
            assert beliefs.factor(a) == pytest.approx(np.array(observed[a]), abs=1e-8)
        else:
            assert fit.graph.table(a) == pytest.approx(model.table(a))


def test_the_walk_on_a_junction_tree_is_that_of_ups_jt() -> None:
    graph = kk.grid(3, 3, seed=0)
    regions = kk.regions.region_graph(graph, "junction-tree")
    tour = region_tour(regions)
    assert len(tour.sends) == 2 * len(ScalingTree(graph, kk.Budget()).separators)
    assert sorted(tour.sends.tolist()) == list(range(len(regions.edges)))


@pytest.mark.parametrize("regions", ["faces", "blocks:2x3", "junction:3", "cvm", "loops:4"])
def test_every_edge_is_sent_along_in_a_sweep(regions: str) -> None:
    found = kk.regions.region_graph(kk.grid(3, 3, seed=0), regions)
    tour = region_tour(found)
    assert set(tour.sends.tolist()) == set(range(len(found.edges)))
    assert len(set(tour.visits.tolist())) == len(found.regions)


# ---------------------------------------------------------------------- other regions


@pytest.mark.parametrize("regions", ["faces", "junction:3", "junction:4", "blocks:2x3", "auto"])
def test_regions_meet_the_targets_and_improve_on_bethe(regions: str) -> None:
    truth = kk.grid(4, 4, seed=3, coupling=0.8, field=0.3)
    rows = samples(truth, 3000)
    bethe = LoopyScalingML(regions="bethe", smoothing=1.0).fit(truth, rows)
    exact = parse_learner("ups-jt:smoothing=1").fit(truth, rows)
    fit = LoopyScalingML(regions=regions, smoothing=1.0).fit(truth, rows)
    assert fit.converged and fit.diagnostics["distance"] <= 1e-9
    assert bethe.log_likelihood < fit.log_likelihood <= exact.log_likelihood + 1e-7
    wanted = Targets.of(truth, rows, smoothing=1.0).tables

    def l1(graph: kk.FactorGraph) -> float:
        return float(np.abs(kk.infer(graph, "jt").flat_factors - wanted).sum())

    assert l1(fit.graph) < l1(bethe.graph)


def test_the_beliefs_of_the_fitted_model_are_the_targets() -> None:
    """Inference with the same regions on the learned tables finds the data's marginals again."""
    truth = kk.grid(3, 4, seed=5, coupling=0.4, field=0.3)
    rows = samples(truth, 2000)
    fit = LoopyScalingML(regions="faces").fit(truth, rows)
    beliefs = kk.infer(fit.graph, "kikuchi:regions=faces")
    wanted = Targets.of(truth, rows).tables
    assert beliefs.flat_factors == pytest.approx(wanted, abs=1e-6)


def test_the_objective_is_the_likelihood_by_the_region_estimate() -> None:
    truth = kk.grid(3, 3, seed=5, coupling=0.4, field=0.3)
    rows = samples(truth, 500)
    fit = LoopyScalingML(regions="faces").fit(truth, rows)
    log_z = kk.infer(fit.graph, "kikuchi:regions=faces,tol=1e-10").log_z
    score = float(np.mean(fit.graph.log_score(rows)))
    assert fit.objective == pytest.approx(score - log_z, abs=1e-6)


def test_given_cliques() -> None:
    graph = triangle()
    one = LoopyScalingML(cliques=[[0, 1, 2]])
    assert one.text == "loopy-is:cliques=0+1+2" and parse_learner(one.text) == one
    fit = one.fit_targets(graph, golden_targets(graph))
    assert fit.objective == pytest.approx(-1.9769499186, abs=1e-8)
    two = LoopyScalingML(cliques="0+1/1+2/0+2").fit_targets(graph, golden_targets(graph))
    assert joint(two.graph)[0] == pytest.approx(0.2, abs=1e-8)


@pytest.mark.parametrize(
    ("cliques", "message"),
    [("0+a", "sets of variable numbers"), ([[0, -1]], "got"), ([[]], "got"), (3, "got 3")],
)
def test_bad_cliques(cliques: object, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        LoopyScalingML(cliques=cliques)


def test_cliques_that_do_not_fit_the_graph() -> None:
    with pytest.raises(MethodError, match="no variable 7"):
        LoopyScalingML(cliques="0+7").fit(triangle(), [[0, 0, 0]])
    with pytest.raises(kk.KikuchiError, match="no clique holds"):
        LoopyScalingML(cliques="0+1").fit(triangle(), [[0, 0, 0]])


# ---------------------------------------------------------------------- awkward models


@pytest.mark.parametrize("regions", ["bethe", "junction-tree", "cvm"])
def test_awkward_models(regions: str) -> None:
    ones = np.ones
    models = [
        kk.FactorGraph([2, 3], []),
        kk.FactorGraph([3], [((0,), ones(3))]),
        kk.FactorGraph([2, 2], [((0, 1), ones(4)), ((0,), ones(2)), ((0,), ones(2))]),
        kk.FactorGraph([2] * 5, [((0, 1), ones(4)), ((2, 3), ones(4))]),
        kk.FactorGraph([2, 1, 2], [((0, 1, 2), ones(4)), ((1,), ones(1))]),
    ]
    for graph in models:
        rng = np.random.default_rng(0)
        rows = rng.integers(0, graph.cardinalities, size=(50, graph.n_variables))
        fit = LoopyScalingML(regions=regions, smoothing=1.0).fit(graph, rows)
        assert fit.converged
        tables = enumerate_exact(fit.graph)[2]
        wanted = Targets.of(graph, rows, smoothing=1.0).tables
        if tables:
            found = np.concatenate([t.ravel() for t in tables])
            assert found == pytest.approx(wanted, abs=1e-7)


def test_zeros_stay_and_empty_cells_become_zero() -> None:
    table = np.array([[1.0, 1.0], [1.0, 0.0]])
    graph = kk.FactorGraph([2] * 3, [((0, 1), table), ((1, 2), np.ones(4)), ((0, 2), np.ones(4))])
    rows = [[0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1]]
    for regions in ("bethe", "junction-tree"):
        fit = LoopyScalingML(regions=regions).fit(graph, rows)
        assert fit.converged and fit.graph.table(0)[1, 1] == 0 and fit.graph.table(1)[1, 1] == 0
        assert np.isfinite(fit.log_likelihood)


def test_targets_that_no_distribution_has_in_one_region() -> None:
    graph = triangle()
    unequal = np.array([[0.0, 0.5], [0.5, 0.0]])
    with pytest.raises(DataError, match="one distribution"):
        LoopyScalingML(cliques="0+1+2").fit_targets(graph, Targets.given(graph, [unequal] * 3))


def test_regions_beyond_the_memory_are_refused() -> None:
    graph = kk.generate.complete(16, seed=0)
    with pytest.raises(BudgetError):
        LoopyScalingML(regions="junction-tree").fit(
            graph, np.zeros((1, 16), dtype=int), budget=kk.Budget(bytes=10**5)
        )


def test_damping_is_raised_where_sweeps_make_no_progress_and_that_is_said() -> None:
    truth = kk.grid(5, 5, seed=0, coupling=1.0, field=0.2)
    rows = samples(truth, 200)
    fit = LoopyScalingML(regions="faces", smoothing=5.0, damping=0.0).fit(truth, rows, score=False)
    assert fit.converged and fit.diagnostics["damping"] > 0.0
    assert any("until damping was" in warning for warning in fit.warnings)
