"""The junction tree beside pyAgrum: real Bayesian networks and competition instances."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import BudgetError

gum = pytest.importorskip("pyagrum")

NETWORKS = ["asia", "cancer", "alarm", "child", "insurance", "hailfinder", "hepar2", "win95pts"]
NETWORKS += ["water", "pigs", "andes", "mildew", "diabetes", "pathfinder"]
QUICK_FOR_PYAGRUM = ["Promedus_24", "Pedigree_11", "Segmentation_11", "Alchemy_11"]
INSTANCES = [
    *QUICK_FOR_PYAGRUM,
    *("CSP_11", "DBN_11", "Grids_11", "Grids_15", "ObjectDetection_28", "Promedus_11"),
    "linkage_16",
]
LONG_SOUGHT = ["CSP_11", "DBN_11", "Grids_15", "ObjectDetection_28"]  # an order that would fit


def network(name: str) -> kk.FactorGraph:
    spec = importlib.util.find_spec("pgmpy")
    if spec is None or spec.origin is None:
        pytest.skip("pgmpy, which carries the networks, is not installed")
    path = Path(spec.origin).parent / "utils" / "example_models" / f"{name}.bif.gz"
    if not path.exists():
        pytest.skip(f"this pgmpy has no network {name}")
    return kk.read(path)


def bayes_net(graph: kk.FactorGraph) -> gum.BayesNet:
    net = gum.BayesNet()
    for v, states in enumerate(graph.cardinalities):
        net.add(gum.LabelizedVariable(f"v{v}", "", int(states)))
    for a, child in enumerate(graph.children):
        for parent in graph.scope(a):
            if parent != child:
                net.addArc(parent, int(child))
    for a, child in enumerate(graph.children):
        table = net.cpt(int(child))
        axes = [int(name[1:]) for name in reversed(table.names)]
        order = [graph.scope(a).index(v) for v in axes]
        table.fillWith(np.transpose(graph.table(a), order).ravel().tolist())
    return net


def markov_net(graph: kk.FactorGraph) -> gum.MarkovRandomField:
    """Each table scaled to a largest entry of 1: pyAgrum multiplies plain numbers."""
    net = gum.MarkovRandomField()
    for v, states in enumerate(graph.cardinalities):
        net.add(gum.LabelizedVariable(f"v{v}", "", int(states)))
    tables: dict[tuple[int, ...], np.ndarray] = {}
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        logs = np.transpose(graph.log_table(a), np.argsort(scope))
        key = tuple(sorted(scope))
        tables[key] = tables.get(key, 0.0) + logs
    for scope, logs in tables.items():
        table = gum.Tensor()
        for v in reversed(scope):
            table.add(net.variable(v))
        table.fillWith(np.exp(logs - logs.max()).ravel().tolist())
        net.addFactor(table)
    return net


def largest_difference(inference: object, beliefs: kk.Beliefs) -> float:
    inference.makeInference()
    return max(
        float(np.abs(inference.posterior(f"v{v}").toarray() - beliefs[v]).max())
        for v in range(beliefs.graph.n_variables)
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    graph = network(name)
    inference = gum.LazyPropagation(bayes_net(graph))
    inference.setNumberOfThreads(1)
    beliefs = kk.infer(graph, "jt")
    assert largest_difference(inference, beliefs) < 1e-9
    assert beliefs.log_z == pytest.approx(0.0, abs=1e-5)  # tables in files are rounded


@pytest.mark.parametrize("name", ["alarm", "child", "insurance", "hepar2", "win95pts", "pigs"])
@pytest.mark.parametrize("propagation", ["shafer-shenoy", "hugin"])
def test_networks_with_evidence(name: str, propagation: str) -> None:
    graph = network(name)
    rng = np.random.default_rng(0)
    state = kk.plan(graph).calibrate().sample(1, seed=1)[0]
    seen = rng.choice(graph.n_variables, size=min(8, graph.n_variables // 3), replace=False)
    evidence = {int(v): int(state[v]) for v in seen}
    inference = gum.LazyPropagation(bayes_net(graph))
    inference.setNumberOfThreads(1)
    inference.setEvidence({f"v{v}": k for v, k in evidence.items()})
    beliefs = kk.methods.JunctionTree(propagation=propagation).run(graph, evidence=evidence)
    assert largest_difference(inference, beliefs) < 1e-9
    assert beliefs.log_z == pytest.approx(np.log(inference.evidenceProbability()), abs=1e-9)


def instance(shared: Path, name: str) -> tuple[kk.FactorGraph, dict[int, int]]:
    path = shared / "reference" / "uai2014" / f"{name}.uai"
    graph = kk.read(path)
    return graph, dict(kk.read_evidence(path.with_suffix(".uai.evid"), graph) or {})


@pytest.mark.parametrize("name", QUICK_FOR_PYAGRUM)
def test_competition_instances(shared: Path, name: str) -> None:
    graph, evidence = instance(shared, name)
    inference = gum.ShaferShenoyMRFInference(markov_net(graph))
    inference.setNumberOfThreads(1)
    inference.setEvidence({f"v{v}": k for v, k in evidence.items()})
    beliefs = kk.infer(graph, "jt", evidence=evidence)
    assert largest_difference(inference, beliefs) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DBN_11", "CSP_11", "Grids_11", "ObjectDetection_28"])
def test_competition_instances_that_take_pyagrum_long(shared: Path, name: str) -> None:
    test_competition_instances(shared, name)


@pytest.mark.parametrize("name", INSTANCES)
def test_every_instance_is_planned_within_its_figure(shared: Path, name: str) -> None:
    graph, evidence = instance(shared, name)
    plan = kk.plan(graph, evidence=evidence)
    assert plan.complete
    assert plan.width <= 28  # what counts is the cost, not the width
    assert plan.bytes < 4e9


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in LONG_SOUGHT else ()) for n in INSTANCES],
)
def test_instances_are_refused_where_memory_is_short(shared: Path, name: str) -> None:
    graph, evidence = instance(shared, name)
    needed = kk.plan(graph, evidence=evidence).bytes
    small = kk.Budget(bytes=needed // 100)  # a little less, and another order may fit
    with pytest.raises(BudgetError, match=r"width \d+\) needs .*B but the budget is"):
        kk.infer(graph, "jt", evidence=evidence, budget=small)
