"""The worked example of moral graphs, triangulation and junction trees (HOJ-E11, I1, I2, I3)."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from kikuchi import FactorGraph, infer
from kikuchi.graphs.directed import moralise
from kikuchi.plots import to_svg
from kikuchi_experiments import Outcome, reproduce
from kikuchi_experiments.hojen2001.graph_example import (
    NAMES,
    ORDERS,
    PARENTS,
    STATEMENTS,
    eliminated,
    example_network,
    joint_table,
    running_intersection,
)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return reproduce("HOJ-E11", quick=True, processes=1)


def directed() -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(NAMES)
    graph.add_edges_from((p, child) for child, parents in PARENTS.items() for p in parents)
    return graph


def test_the_example_has_the_properties_of_the_figures(outcome: Outcome) -> None:
    assert [row for row in outcome.rows() if row.agrees is not True] == []
    first, second = outcome.finished[0].result["trees"]
    assert outcome.finished[0].result["married"] == ["CD"]
    assert sorted(first["cliques"]) == ["ABC", "BCD", "CDE", "DEF"] and first["fill"] == ["BC"]
    assert sorted(second["cliques"]) == ["ABC", "BCDEF"]
    assert first["states"] == 32 < second["states"] == 40
    assert second["separators"][0][2] == "BC"


def test_statements_against_networkx() -> None:
    graph = directed()
    for one, other, given, independent in STATEMENTS:
        assert nx.is_d_separator(graph, {one}, {other}, set(given)) == independent


def test_moral_graph_against_networkx(outcome: Outcome) -> None:
    moral = nx.moral_graph(directed())
    added = {frozenset(e) for e in moral.edges} - {frozenset(e) for e in directed().edges}
    assert added == {frozenset(text) for text in outcome.finished[0].result["married"]}


@pytest.mark.parametrize("order", ORDERS)
def test_triangulations_are_chordal_and_their_cliques_those_of_networkx(order: str) -> None:
    graph = moralise(example_network(2, 0))
    found, fill = eliminated(graph, [NAMES.index(name) for name in order])
    drawn = nx.Graph(graph.pairs().tolist())
    assert not nx.is_chordal(drawn)
    drawn.add_edges_from(fill)
    assert nx.is_chordal(drawn)
    largest = {frozenset(clique) for clique in nx.chordal_graph_cliques(drawn)}
    ours = [frozenset(clique) for clique in found.cliques]
    assert {c for c in ours if not any(c < other for other in ours)} == largest
    assert found.cost == sum(2 ** len(clique) for clique in found.cliques)


def test_joint_table_is_the_model() -> None:
    net = example_network(2, 7)
    joint = joint_table(net)
    assert joint.sum() == pytest.approx(1.0)
    marginals = infer(net, "enumerate")
    for v in range(6):
        rest = tuple(u for u in range(6) if u != v)
        assert joint.sum(axis=rest) == pytest.approx(marginals[v], abs=1e-12)


def test_running_intersection_can_fail() -> None:
    cliques = [(0, 1), (1, 2), (2, 3)]
    assert running_intersection(cliques, [(0, 1, (1,)), (1, 2, (2,))])
    assert not running_intersection([(0, 1), (2, 3), (1, 2)], [(0, 1, ()), (1, 2, (2,))])


def test_elimination_in_any_order_covers_the_factors() -> None:
    square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones(4)) for i in range(4)])
    for order in itertools.permutations(range(4)):
        found, fill = eliminated(square, order)
        assert len(fill) == 1 and found.width == 2 and found.complete


def test_figure_shows_four_graphs_and_two_trees(outcome: Outcome) -> None:
    figure = outcome.figure()
    assert len(figure.axes) == 6
    assert "junction tree: 32 states" in to_svg(figure)
