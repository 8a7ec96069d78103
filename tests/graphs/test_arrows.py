"""Bayesian networks from arrows and tables by name, against the same tables as arrays."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from kikuchi.core.errors import ModelError
from kikuchi.graphs.arrows import network
from kikuchi.graphs.directed import bayesian_network, parents
from kikuchi.graphs.factor_graph import FactorGraph

LUNG = [[0.99, 0.01], [0.9, 0.1]]
XRAY = np.array([[[0.95, 0.05], [0.02, 0.98]], [[0.02, 0.98], [0.01, 0.99]]])


def _by_arrays():
    yes_no = ["no", "yes"]
    return bayesian_network(
        {"smoke": yes_no, "lung": yes_no, "xray": yes_no, "tub": yes_no},
        {
            "smoke": ([], [0.5, 0.5]),
            "lung": (["smoke"], LUNG),
            "xray": (["lung", "tub"], XRAY),
            "tub": ([], [0.99, 0.01]),
        },
    )


def _cells(as_key):
    return {
        as_key(lung, tub): float(XRAY[i, j, 1])
        for (i, lung), (j, tub) in itertools.product(enumerate(["no", "yes"]), repeat=2)
    }


@pytest.mark.parametrize(
    "xray",
    [
        XRAY,
        XRAY.tolist(),
        (["tub", "lung"], XRAY.swapaxes(0, 1)),
        _cells(lambda lung, tub: (lung, tub)),
        _cells(lambda lung, tub: f"tub={tub}, lung = {lung}"),
        {
            (a, b): XRAY[i, j]
            for (i, a), (j, b) in itertools.product(enumerate(["no", "yes"]), repeat=2)
        },
        {
            (a, b): {"yes": XRAY[i, j, 1]}
            for (i, a), (j, b) in itertools.product(enumerate(["no", "yes"]), repeat=2)
        },
    ],
    ids=["array", "lists", "other order", "tuples", "text", "rows", "one state"],
)
def test_every_way_to_give_a_table_is_the_same_model(xray):
    net = network(
        "smoke -> lung -> xray <- tub",
        {"smoke": 0.5, "lung": LUNG, "xray": xray, "tub": {"yes": 0.01}},
    )
    reference = _by_arrays()
    assert net.names == reference.names and net.states == reference.states
    every = np.array(list(itertools.product([0, 1], repeat=4)))
    np.testing.assert_allclose(net.log_score(every), reference.log_score(every), atol=1e-12)


def test_texts_of_arrows():
    net = network("die[6] -> weather{sun|rain|snow};  x-ray <- die\nlone wolf, a->b")
    assert net.names == ("die", "weather", "x-ray", "lone wolf", "a", "b")
    assert net.states[0] == tuple("012345") and net.states[1] == ("sun", "rain", "snow")
    assert net.states[2] == ("no", "yes")
    assert parents(net, "weather") == parents(net, "x-ray") == (0,)
    assert network([("a", "b"), ("a", "c")]).names == ("a", "b", "c")
    assert network("a -> b", states={"b": ["x", "y", "z"]}).states[1] == ("x", "y", "z")


def test_without_tables_they_are_uniform():
    net = network("a{x|y|z} -> b")
    np.testing.assert_allclose(net.table(0), 1 / 3)
    np.testing.assert_allclose(net.table(1), np.full((3, 2), 0.5))


@pytest.mark.parametrize(
    ("arrows", "tables", "message"),
    [
        ("", None, "no variable"),
        ("a -> a", None, "'a' points to itself"),
        ("a -> b -> a", None, "cycle: "),
        ("a -- b", None, "'a -- b'"),
        ("a -> ", None, "'' in 'a ->' is not a variable"),
        ("a{x|y} -> b; a{x|z} -> c", None, "states of 'a' are given twice"),
        ("a -> b", {"a": 0.5}, "there is no table for 'b'"),
        ("a -> b", {"a": 0.5, "b": LUNG, "bb": 1}, "no variable 'bb'"),
        ("a -> b", {"a": 0.5, "b": np.transpose(LUNG)}, r"a = no\) sums to 1.89.*Transposed\? b"),
        ("a -> b{x|y|z}", {"a": 0.5, "b": np.full((3, 2), 0.5)}, r"\(transposed\? b itself"),
        ("a -> b", {"a": 0.5, "b": {"no": 0.1}}, r"p\(b \| a = yes\) is missing"),
        ("a -> b", {"a": 0.5, "b": {"no": 0.1, "nope": 0.2}}, "has no state 'nope'"),
        ("a -> b", {"a": 0.5, "b": {"no": 0.1, "a=no": 0.2}}, "defined twice"),
        ("a -> b", {"a": 0.5, "b": {"c=no": 0.1}}, "'c' is not a parent of b"),
        ("a -> b", {"a": -0.5, "b": LUNG}, r"p\(a\): -0.5 is not a probability of 'yes'"),
        ("a -> b", {"a": 1.5, "b": LUNG}, r"p\(a\): -0.5 is not a probability of 'no'"),
        ("a -> b", {"a": "half", "b": LUNG}, r"p\(a\): the table must contain numbers"),
        ("a{x|y|z}", {"a": 0.5}, r"p\(a\): the table has shape \(\)"),
        ("a{x|y|z}", {"a": {"x": 0.5}}, "no probability for y, z"),
        ("a -> b", {"a": 0.5, "b": {("no", "no"): 1}}, "gives 2 states for 1 parents"),
        ("a -> b", {"a": 0.5, "b": (["c"], LUNG)}, "make them agree"),
    ],
)
def test_mistakes_are_named(arrows, tables, message):
    with pytest.raises(ModelError, match=message):
        network(arrows, tables)


@pytest.mark.parametrize(
    ("arrows", "tables", "message"),
    [
        ("a -> b -> a", {"a": LUNG, "b": LUNG}, "cycle: .*; remove or turn one of these arrows"),
        ("a -> b", {"a": 0.5, "b": {"no": 0.1, "yes": "q"}}, r"p\(b \| a = yes\): .* numbers"),
        ("a -> b", {"a": 0.5, "b": {"no": 0.1, "yes": {"no": "q"}}}, r"a = yes\): .* numbers"),
        ("a -> b", {"a": {"no": [0.5]}, "b": LUNG}, r"p\(a\): one probability is needed"),
        ("a -> b", [0.2, 0.3], "tables must be a mapping .* got list"),
        (3, None, "arrows must be a string .* got int"),
        ([3], None, r"3 is not a pair \(parent, child\)"),
    ],
)
def test_mistakes_of_type_are_named_too(arrows, tables, message):
    with pytest.raises(ModelError, match=message):
        network(arrows, tables)


def test_a_table_with_the_variable_as_rows_is_called_transposed():
    values = np.array([[0.2] * 4, [0.3] * 4, [0.5] * 4])  # as pgmpy lays them out
    arrows = "a -> c{x|y|z} <- b"
    with pytest.raises(ModelError, match=r"p\(c \| a, b\).*transposed\? c itself is the last axis"):
        network(arrows, {"a": 0.5, "b": 0.5, "c": values})
    net = network(arrows, {"a": 0.5, "b": 0.5, "c": values.T})
    np.testing.assert_allclose(net.cpt("c").table, values.T.reshape(2, 2, 3))


def test_tables_of_variables_without_parents_need_no_pair():
    yes_no = ["no", "yes"]
    net = bayesian_network(
        {"a": yes_no, "b": yes_no, "c": yes_no},
        {"a": 0.3, "b": [0.2, 0.8], "c": (["a", "b"], XRAY)},
    )
    np.testing.assert_allclose(net.cpt("a").table, [0.7, 0.3])
    np.testing.assert_allclose(net.cpt("b").table, [0.2, 0.8])
    numbered = bayesian_network([2, 2], {0: [0.2, 0.8], 1: (0, LUNG)})
    np.testing.assert_allclose(numbered.cpt(1).table, LUNG)
    with pytest.raises(ModelError, match=r"that of 'c' must be a pair \(parents, table\)"):
        bayesian_network({"c": yes_no}, {"c": (LUNG,)})


# ---------------------------------------------------------------------- reading a network back


def test_tables_parents_children_edges_and_states_are_read_back_by_name():
    net = _by_arrays()
    assert net.parents("xray") == ("lung", "tub") and net.parents("smoke") == ()
    assert net.children("lung") == ("xray",) and net.children("xray") == ()
    assert net.children.tolist() == [0, 1, 2, 3]
    assert set(net.edges) == {("smoke", "lung"), ("lung", "xray"), ("tub", "xray")}
    assert net.states["lung"] == net.states("lung") == net.states[1] == ("no", "yes")
    np.testing.assert_allclose(net.cpt("xray").table, XRAY)
    assert net.cpt("xray")["yes", "no"]["yes"] == pytest.approx(0.98)
    assert net.cpt("xray")["tub=no, lung=yes"]["yes"] == pytest.approx(0.98)
    assert net.cpt("smoke").to_pandas().shape == (1, 2)
    frame = net.cpt("xray").to_pandas()
    assert frame.loc[("yes", "no"), "yes"] == pytest.approx(0.98)


def test_a_child_may_stand_anywhere_in_its_table():
    turned = FactorGraph(
        [2, 2], [((0,), [0.2, 0.8]), ((1, 0), np.transpose(LUNG))], children=[0, 1]
    )
    np.testing.assert_allclose(turned.cpt(1).table, LUNG)
    assert turned.parents(1) == (0,) and turned.edges == ((0, 1),)


def test_parts_survive_pickling_and_undirected_models_have_none():
    net = pickle.loads(pickle.dumps(_by_arrays()))
    assert net == _by_arrays() and net.states["tub"] == ("no", "yes")
    assert net.children("smoke") == ("lung",)
    pair = FactorGraph([2, 2], [((0, 1), np.ones(4))])
    assert pair.edges == ((0, 1),) and pair.children is None
    for call in (pair.cpt, pair.parents):
        with pytest.raises(ModelError, match="no directions"):
            call(0)


def test_html_of_a_table_and_of_a_network_is_escaped():
    net = network([("a<b>", "c")], states={"c": ["x", "<y>"]})
    text = net.cpt("c")._repr_html_()
    assert "<b>" not in text and "&lt;y&gt;" in text
    assert "parents: a&lt;b&gt;" in net._repr_html_()
