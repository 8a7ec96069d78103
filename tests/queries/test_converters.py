"""Models of other libraries: the same answers, names and states, both ways."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import ModelError

ASIA = kk.example("asia")
LOOP = kk.FactorGraph(
    [2, 3, 2],
    [((0, 1), np.arange(1, 7)), ((2, 1), [[1, 2, 0], [2, 2, 9]]), ((0, 2), [[1, 4], [5, 2]])],
    names=["a", "b", "c"],
    states=[["n", "y"], ["p", "q", "r"], ["0", "1"]],
)


def same(one: kk.FactorGraph, other: kk.FactorGraph) -> None:
    assert set(one.names) == set(other.names)
    first, second = kk.query(one), kk.query(other)
    for name in one.names:
        assert first[name].states == second[name].states
        np.testing.assert_allclose(first[name].values_array, second[name].values_array, atol=1e-12)
    pair = list(one.names)[:3]
    np.testing.assert_allclose(
        kk.query(one, joint=pair).table, kk.query(other, joint=pair).table, atol=1e-12
    )


@pytest.mark.parametrize("graph", [ASIA, LOOP], ids=["directed", "undirected"])
def test_networkx_both_ways(graph: kk.FactorGraph) -> None:
    again = kk.as_model(kk.to_networkx(graph))
    assert again.is_directed == graph.is_directed
    same(graph, again)


@pytest.mark.parametrize("graph", [ASIA, LOOP], ids=["directed", "undirected"])
def test_pyagrum_both_ways(graph: kk.FactorGraph) -> None:
    gum = pytest.importorskip("pyagrum")
    theirs = kk.to_pyagrum(graph)
    same(graph, kk.as_model(theirs))
    name = graph.names[1]
    engine = (gum.LazyPropagation if graph.is_directed else gum.ShaferShenoyMRFInference)(theirs)
    engine.makeInference()
    np.testing.assert_allclose(
        engine.posterior(name).toarray(), kk.query(graph, name)[name].values_array, atol=1e-9
    )


def test_tables_of_few_digits_are_taken() -> None:
    """pyAgrum writes six digits and reads single precision: its rows sum to 1 to 1e-6 only."""
    gum = pytest.importorskip("pyagrum")
    net = gum.fastBN("a->b")
    net.cpt("a").fillWith([0.333333, 0.666666])
    graph = kk.as_model(net)
    assert kk.query(graph, "a")["a"][0] == pytest.approx(1 / 3, abs=1e-6)
    net.cpt("a").fillWith([0.3, 0.3])
    with pytest.raises(ModelError, match=r"sums to 0\.6, not to 1"):
        kk.as_model(net)


def test_an_influence_diagram_is_no_model() -> None:
    """It has tables, but also choices and utilities."""
    gum = pytest.importorskip("pyagrum")
    for diagram in (gum.InfluenceDiagram(), gum.fastID("A->*D->$U<-A")):
        with pytest.raises(ModelError, match="InfluenceDiagram is not taken; give a FactorGraph"):
            kk.as_model(diagram)


def test_networks_of_two_slices_are_pointed_to_ours() -> None:
    pytest.importorskip("pgmpy")
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DynamicBayesianNetwork

    filled = DynamicBayesianNetwork([(("R", 0), ("R", 1))])
    own, later = [[0.5], [0.5]], [[0.7, 0.3], [0.3, 0.7]]
    filled.add_cpds(TabularCPD(("R", 0), 2, own), TabularCPD(("R", 1), 2, later, [("R", 0)], [2]))
    for network in (DynamicBayesianNetwork(), filled):
        with pytest.raises(ModelError, match=r"kk\.queries\.TwoSliceNetwork\(variables, initial"):
            kk.as_model(network)


def test_models_without_variables_are_refused() -> None:
    import networkx as nx

    with pytest.raises(ModelError, match="this DiGraph has no variables; add some"):
        kk.as_model(nx.DiGraph())
    gum = pytest.importorskip("pyagrum")
    with pytest.raises(ModelError, match="this BayesNet has no variables; add some"):
        kk.as_model(gum.BayesNet())


@pytest.mark.slow
@pytest.mark.parametrize("graph", [ASIA, LOOP], ids=["directed", "undirected"])
def test_pgmpy_both_ways(graph: kk.FactorGraph) -> None:
    pytest.importorskip("pgmpy")
    from pgmpy.inference import VariableElimination

    theirs = kk.to_pgmpy(graph)
    same(graph, kk.as_model(theirs))
    name = graph.names[1]
    found = VariableElimination(theirs).query([name], show_progress=False)
    order = [found.state_names[name].index(s) for s in kk.query(graph, name)[name].states]
    np.testing.assert_allclose(
        found.values[order] / found.values.sum(),
        kk.query(graph, name)[name].values_array,
        atol=1e-9,
    )


def test_paths_and_strangers(tmp_path) -> None:
    import networkx as nx

    kk.write(ASIA, tmp_path / "a.bif")
    assert kk.as_model(str(tmp_path / "a.bif")).names == ASIA.names
    assert kk.as_model(ASIA) is ASIA
    with pytest.raises(ModelError, match="is not taken; give a FactorGraph, a path"):
        kk.as_model(object())
    bare = nx.DiGraph([("a", "b")])
    with pytest.raises(ModelError, match="node a of the networkx graph needs `states`"):
        kk.as_model(bare)
    nx.set_node_attributes(bare, 2, "states")
    with pytest.raises(ModelError, match="no attribute `table`"):
        kk.as_model(bare)
