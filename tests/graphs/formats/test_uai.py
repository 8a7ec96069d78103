"""The UAI format: what is read, and what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kikuchi import FactorGraph, KikuchiError, read, write
from kikuchi.graphs.formats.uai import read_uai, uai_text
from oracle import enumerate_exact

GOLDEN = b"""MARKOV
3
2 2 3
3
1 0
2 0 1
2 1 2

2
 0.436 0.564

4
 0.128 0.872
 0.920 0.080

6
 0.210 0.333 0.457
 0.811 0.000 0.189
"""


def text(graph: FactorGraph) -> str:
    return "".join(uai_text(graph))


@pytest.mark.parametrize("compiled", [True, False])
def test_a_markov_network_of_the_format_description(compiled: bool) -> None:
    graph = read_uai("golden.uai", GOLDEN, compiled=compiled)
    assert graph.cardinalities.tolist() == [2, 2, 3]
    assert [graph.scope(a) for a in range(3)] == [(0,), (0, 1), (1, 2)]
    assert not graph.is_directed
    expected = [[0.210, 0.333, 0.457], [0.811, 0.0, 0.189]]
    assert np.allclose(graph.table(2), expected, rtol=1e-15, atol=0)
    assert graph.log_table(2)[1, 1] == -np.inf
    assert graph.log_constant == 0.0


@pytest.mark.parametrize("compiled", [True, False])
def test_the_last_variable_of_a_bayes_scope_is_its_child(compiled: bool) -> None:
    data = b"bayes 2 2 3  2  1 1  2 1 0  3 .2 .3 .5  6 .1 .9 .2 .8 .3 .7"
    graph = read_uai("x", data, compiled=compiled)
    assert graph.is_directed
    assert graph.children is not None
    assert graph.children.tolist() == [1, 0]
    assert graph.table(1).round(12).tolist() == [[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]


@pytest.mark.parametrize("compiled", [True, False])
def test_factors_without_variables_go_into_the_constant(compiled: bool) -> None:
    data = b"MARKOV 1 2  3  0  1 0  0   1 5  2 1 3  1 0.5"
    graph = read_uai("x", data, compiled=compiled)
    assert graph.n_factors == 1
    assert graph.log_constant == pytest.approx(np.log(2.5), abs=1e-15)
    assert graph.table(0).round(12).tolist() == [1.0, 3.0]


def test_a_network_without_factors_or_variables() -> None:
    assert read_uai("x", b"MARKOV 2 3 4 0").cardinalities.tolist() == [3, 4]
    assert read_uai("x", b"MARKOV 0 0").n_variables == 0
    assert read_uai("x", text(FactorGraph([], [])).encode()) == FactorGraph([], [])


def test_line_breaks_tabs_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "Model.UAI"
    path.write_bytes(b"\xef\xbb\xbf" + GOLDEN.replace(b"\n", b"\r\n").replace(b" ", b"\t \v"))
    assert read(path) == read_uai("x", GOLDEN)


def test_the_text_of_a_markov_network() -> None:
    graph = FactorGraph([2, 3], [((1, 0), [[1, 2], [0, 4], [5, 0.1]]), ((1,), [1, 1e-9, 2])])
    assert text(graph) == (
        "MARKOV\n2\n2 3\n2\n2 1 0\n1 1\n\n6\n1.0 2.0 0.0 4.0 5.0 0.1\n\n3\n1.0 1e-09 2.0\n"
    )


def test_a_directed_graph_is_written_as_bayes_with_the_child_last() -> None:
    table = np.array([[0.1, 0.2, 0.3], [0.9, 0.8, 0.7]])  # p(x0 | x1), child first
    graph = FactorGraph([2, 3], [((1,), [0.2, 0.3, 0.5]), ((0, 1), table)], children=[1, 0])
    again = read_uai("x", text(graph).encode())
    assert text(graph).startswith("BAYES\n2\n2 3\n2\n1 1\n2 1 0\n")
    assert again.is_directed
    assert np.allclose(again.table(1), table.T, rtol=1e-15, atol=0)
    assert enumerate_exact(again)[0] == pytest.approx(0.0, abs=1e-14)


def test_the_constant_is_kept_in_the_first_factor() -> None:
    graph = FactorGraph([2, 2], [((0,), [1, 2]), ((1,), [3, 4])], log_constant=1.5)
    again = read_uai("x", text(graph).encode())
    assert again.log_constant == 0.0
    assert enumerate_exact(again)[0] == pytest.approx(enumerate_exact(graph)[0], rel=1e-15)
    assert np.array_equal(again.log_table(1), graph.log_table(1))


def test_a_constant_without_factors_gets_one() -> None:
    again = read_uai("x", text(FactorGraph([3, 2], [], log_constant=-2.0)).encode())
    assert again.scope(0) == (0,)
    assert enumerate_exact(again)[0] == pytest.approx(np.log(6) - 2.0, rel=1e-15)
    with pytest.raises(KikuchiError, match="without variables"):
        text(FactorGraph([], [], log_constant=1.0))


def test_factors_out_of_the_range_of_doubles_are_rescaled() -> None:
    logs = [np.array([-900.0, -1000.0]), np.array([0.0, 1.0]), np.array([800.0, 1500.0])]
    graph = FactorGraph([2, 2, 2], [((v,), t) for v, t in enumerate(logs)], log=True)
    again = read_uai("x", text(graph).encode())
    assert enumerate_exact(again)[0] == pytest.approx(enumerate_exact(graph)[0], rel=1e-13)
    for a in range(3):
        difference = np.diff(again.log_table(a)) - np.diff(graph.log_table(a))
        assert abs(difference[0]) < 1e-12
    assert read_uai("x", text(again).encode()) == again


def test_a_huge_constant_spreads_over_factors() -> None:
    factors = [((v,), [1.0, 2.0]) for v in range(4)]
    for constant in (2000.0, -2000.0):
        graph = FactorGraph([2] * 4, factors, log_constant=constant)
        again = read_uai("x", text(graph).encode())
        assert enumerate_exact(again)[0] == pytest.approx(enumerate_exact(graph)[0], rel=1e-13)
    with pytest.raises(KikuchiError, match=r"constant exp\(3000\) of the model cannot be written"):
        text(FactorGraph([2] * 4, factors, log_constant=3000.0))


def test_a_factor_that_no_file_can_hold_is_refused() -> None:
    graph = FactorGraph([2, 2], [((0,), [0, 0]), ((1,), [-800.0, 700.0])], log=True)
    with pytest.raises(KikuchiError, match=r"factor 1 cannot be written: .* exp\(1500\) times"):
        text(graph)


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "m.uai"
    path.write_text("before")
    with pytest.raises(KikuchiError):
        write(FactorGraph([2], [((0,), [-800.0, 700.0])], log=True), path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
