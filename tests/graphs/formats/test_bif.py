"""BIF: what is read, and what is written."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi import FactorGraph, KikuchiError
from kikuchi.graphs.formats.bif import bif_text, read_bif

FULL = """// a comment
network "a network; {with} odd words" { property author "me; you"; property date today ; }
variable Age { /* ages
 in years */ type discrete [ 3 ] { <5, 5-12, 12+ }; property position = (10, 20) ; }
variable "the child" {
  type discrete[2] { Asy/Patch "two words" };  // no comma
}
variable http { type discrete [ 2 ] { "http://x", no }; }
probability ( Age ) { table 0.2, 0.3, 0.5; }
probability ( http | "the child", Age ) {
  default 0.5, 0.5;
  ("two words", 12+) .1, 9e-1;
  (Asy/Patch, <5) 0.25 0.75;
  property checked;
}
probability ( "the child" | Age ) { table 0.1 0.2 0.3  0.9 0.8 0.7 ; }
"""


def text(graph: FactorGraph) -> str:
    return "".join(bif_text(graph))


def test_everything_that_the_grammar_has() -> None:
    graph = read_bif("x.bif", FULL.encode())
    assert graph.names == ("Age", "the child", "http")
    assert graph.states == (
        ("<5", "5-12", "12+"),
        ("Asy/Patch", "two words"),
        ("http://x", "no"),
    )
    assert [graph.scope(a) for a in range(3)] == [(0,), (1, 0, 2), (0, 1)]
    assert graph.children is not None
    assert graph.children.tolist() == [0, 2, 1]
    rows = np.full((2, 3, 2), 0.5)
    rows[1, 2] = [0.1, 0.9]
    rows[0, 0] = [0.25, 0.75]
    assert np.allclose(graph.table(1), rows, rtol=1e-15, atol=0)
    # A table lists the child slowest and the last parent fastest.
    assert np.allclose(graph.table(2), [[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]], rtol=1e-15, atol=0)


def test_odd_names_come_back() -> None:
    graph = read_bif("x.bif", FULL.encode())
    assert read_bif("y.bif", text(graph).encode()) == graph


def test_rows_that_nearly_sum_to_one_are_kept_as_they_are() -> None:
    data = b"variable a { type discrete [ 2 ] { x, y }; } probability ( a ) { table 0.33, 0.66; }"
    graph = read_bif("x", data)
    assert np.allclose(graph.table(0), [0.33, 0.66], rtol=1e-15, atol=0)


def test_any_white_space_separates_numbers() -> None:
    text = "variable a { type discrete [ 2 ] { x, y }; } probability ( a ) { table\n.5\u00a0.5; }"
    assert read_bif("x", text.encode()).table(0).tolist() == [0.5, 0.5]


def test_the_text_of_a_directed_graph() -> None:
    table = [[[0.1, 0.9], [0.2, 0.8]], [[0.3, 0.7], [1.0, 0.0]]]
    graph = FactorGraph(
        [2, 2, 2],
        [((0,), [0.5, 0.5]), ((1,), [0.25, 0.75]), ((2, 0, 1), np.moveaxis(table, -1, 0))],
        children=[0, 1, 2],
    )
    assert text(graph) == (
        "network unknown {\n}\n"
        "variable x0 {\n  type discrete [ 2 ] { s0, s1 };\n}\n"
        "variable x1 {\n  type discrete [ 2 ] { s0, s1 };\n}\n"
        "variable x2 {\n  type discrete [ 2 ] { s0, s1 };\n}\n"
        "probability ( x0 ) {\n  table 0.5, 0.5;\n}\n"
        "probability ( x1 ) {\n  table 0.25, 0.75;\n}\n"
        "probability ( x2 | x0, x1 ) {\n"
        "  (s0, s0) 0.1, 0.9;\n  (s0, s1) 0.2, 0.8;\n"
        "  (s1, s0) 0.3, 0.7;\n  (s1, s1) 1.0, 0.0;\n}\n"
    )


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (FactorGraph([2], [((0,), [1, 1])]), "only directed models can be written as BIF"),
        (
            FactorGraph([2], [((0,), [0.5, 0.5])], children=[0], log_constant=1.0),
            r"cannot hold the constant factor exp\(1\)",
        ),
        (
            FactorGraph([2], [((0,), [0.0, -800.0])], children=[0], log=True),
            "too small for a BIF file",
        ),
        (
            FactorGraph([2], [((0,), [0.5, 0.5])], children=[0], names=['a"b']),
            "cannot be written in a BIF file",
        ),
        (FactorGraph([], [], children=[]), "at least one variable"),
    ],
)
def test_what_bif_cannot_hold_is_refused(graph: FactorGraph, message: str) -> None:
    with pytest.raises(KikuchiError, match=message):
        text(graph)
