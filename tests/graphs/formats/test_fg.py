"""libDAI's format: what is read, and what is written."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi import FactorGraph
from kikuchi.graphs.formats.fg import fg_text, read_fg
from oracle import enumerate_exact


def text(graph: FactorGraph) -> str:
    return "".join(fg_text(graph))


@pytest.mark.parametrize("compiled", [True, False])
def test_the_first_variable_runs_fastest(compiled: bool) -> None:
    data = b"# a comment\n1\n\n2\n0 1 # labels\n2 3\n5\n0 0.1\n1 3.5\n2 2.8\n3 6.3\n5 8.4\n"
    graph = read_fg("x.fg", data, compiled=compiled)
    assert graph.cardinalities.tolist() == [2, 3]
    assert np.allclose(graph.table(0), [[0.1, 2.8, 0.0], [3.5, 6.3, 8.4]], rtol=1e-15, atol=0)
    assert graph.names is None


def test_scopes_keep_their_order() -> None:
    graph = read_fg("x", b"1  2  1 0  3 2  2  1 5.0  3 7.0")
    assert graph.scope(0) == (1, 0)
    assert graph.cardinalities.tolist() == [2, 3]
    assert graph.table(0).round(12).tolist() == [[0.0, 7.0], [5.0, 0.0], [0.0, 0.0]]


def test_labels_with_gaps_become_names() -> None:
    graph = read_fg("x", b"2  1  7  2  2  0 1 1 2   2  3 7  2 2  1  0 1.0")
    assert graph.names == ("3", "7")
    assert [graph.scope(a) for a in range(2)] == [(1,), (0, 1)]
    assert text(graph).splitlines()[3] == "7"
    assert read_fg("x", text(graph).encode()) == graph


def test_three_variables_in_a_scope_come_back_as_they_were() -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph([2, 3, 4, 2], [((3, 1, 2), rng.random((2, 3, 4))), ((0,), [1, 0])])
    lines = text(graph).split("\n\n")[1].splitlines()
    assert lines[:4] == ["3", "3 1 2", "2 3 4", "24"]
    assert float(lines[5].split()[1]) == pytest.approx(graph.table(0)[1, 0, 0], rel=1e-15)
    again = read_fg("x", text(graph).encode())
    assert again.scope(0) == (3, 1, 2)
    assert np.allclose(again.log_tables, graph.log_tables, rtol=1e-15, atol=1e-15)


def test_variables_without_factors_are_kept() -> None:
    graph = FactorGraph([2, 5], [((0,), [1, 2])])
    again = read_fg("x", text(graph).encode())
    assert again.cardinalities.tolist() == [2, 5]
    assert enumerate_exact(again)[0] == pytest.approx(enumerate_exact(graph)[0], rel=1e-15)


def test_the_constant_and_factors_without_variables() -> None:
    graph = read_fg("x", b"2  0  1  0 5.0   1  0  2  1  1 3.0")
    assert graph.log_constant == pytest.approx(np.log(5.0))
    again = read_fg("x", text(graph).encode())
    assert again.log_constant == 0.0
    assert enumerate_exact(again)[0] == pytest.approx(np.log(15.0), rel=1e-15)


def test_a_sparse_table_may_be_larger_than_the_file() -> None:
    labels = " ".join(map(str, range(20)))
    data = f"1  20  {labels}  {'2 ' * 20}  2  0 1.0  1048575 2.0"
    graph = read_fg("x", data.encode())
    assert np.flatnonzero(graph.table(0)).tolist() == [0, 2**20 - 1]


def test_names_that_are_not_rising_numbers_are_lost() -> None:
    factors = [((0,), [1.0, 2.0]), ((1,), [3.0, 4.0])]
    for names in (["b", "a"], ["7", "3"], ["01", "2"]):
        again = read_fg("x", text(FactorGraph([2, 2], factors, names=names)).encode())
        assert again.names is None
        assert again.table(0).round(12).tolist() == [1.0, 2.0]
