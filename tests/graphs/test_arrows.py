"""Bayesian networks from arrows and tables by name, against the same tables as arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kikuchi.core.errors import ModelError
from kikuchi.graphs.arrows import network
from kikuchi.graphs.directed import bayesian_network, parents

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
        ("a -> b", {"a": 0.5}, "there is none for 'b'"),
        ("a -> b", {"a": 0.5, "b": LUNG, "bb": 1}, "no variable 'bb'"),
        ("a -> b", {"a": 0.5, "b": np.transpose(LUNG)}, r"a = no\) sums to 1.89.*Transposed\? b"),
        ("a -> b{x|y|z}", {"a": 0.5, "b": np.full((3, 2), 0.5)}, r"\(transposed\? b itself"),
        ("a -> b", {"a": 0.5, "b": {"no": 0.1}}, r"p\(b \| a = yes\) is missing"),
        ("a -> b", {"a": 0.5, "b": {"no": 0.1, "nope": 0.2}}, "has no state 'nope'"),
        ("a -> b", {"a": 0.5, "b": {"no": 0.1, "a=no": 0.2}}, "given twice"),
        ("a -> b", {"a": 0.5, "b": {"c=no": 0.1}}, "'c' is not a parent of b"),
        ("a -> b", {"a": -0.5, "b": LUNG}, r"p\(a\): -0.5 is not a probability of 'yes'"),
        ("a -> b", {"a": 1.5, "b": LUNG}, r"p\(a\): -0.5 is not a probability of 'no'"),
        ("a -> b", {"a": "half", "b": LUNG}, r"p\(a\): the table must hold numbers"),
        ("a{x|y|z}", {"a": 0.5}, r"p\(a\): the table has shape \(\)"),
        ("a{x|y|z}", {"a": {"x": 0.5}}, "no probability for y, z"),
        ("a -> b", {"a": 0.5, "b": {("no", "no"): 1}}, "gives 2 states for 1 parents"),
        ("a -> b", {"a": 0.5, "b": (["c"], LUNG)}, "make them agree"),
    ],
)
def test_mistakes_are_named(arrows, tables, message):
    with pytest.raises(ModelError, match=message):
        network(arrows, tables)
