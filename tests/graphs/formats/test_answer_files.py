"""Files of answers: MAR, PR, tables."""

from __future__ import annotations

import csv
import gzip
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kikuchi import FactorGraph, KikuchiError
from kikuchi.graphs.formats import write_marginals, write_pr

GRAPH = FactorGraph([2, 3], [], names=["a,b", "c"], states=[["x", 'y"'], ["0", "1", "2"]])


def beliefs_of(graph: FactorGraph, numbers: np.ndarray) -> SimpleNamespace:
    return SimpleNamespace(
        graph=graph, flat_marginals=numbers, flat_beliefs=numbers, max_product=False
    )


BELIEFS = beliefs_of(GRAPH, np.array([1 / 3, 2 / 3, 0.5, 0.0, 0.5]))


@pytest.mark.parametrize("name", ["out.MAR", "out.mar"])
def test_mar(tmp_path: Path, name: str) -> None:
    write_marginals(BELIEFS, tmp_path / name)
    lines = (tmp_path / name).read_text().splitlines()
    assert lines == ["MAR", "2 2 0.3333333333333333 0.6666666666666666 3 0.5 0.0 0.5"]


def test_a_table_with_names(tmp_path: Path) -> None:
    write_marginals(BELIEFS, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["variable", "state", "probability"]
    assert rows[1] == ["a,b", "x", "0.3333333333333333"]
    assert rows[2][:2] == ["a,b", 'y"']
    assert [float(row[2]) for row in rows[1:]] == BELIEFS.flat_marginals.tolist()


def test_a_table_without_names_packed(tmp_path: Path) -> None:
    beliefs = beliefs_of(FactorGraph([2], []), np.array([0.25, 0.75]))
    write_marginals(beliefs, tmp_path / "out.csv.gz")
    text = gzip.decompress((tmp_path / "out.csv.gz").read_bytes()).decode()
    assert text == "variable,state,probability\n0,0,0.25\n0,1,0.75\n"


def test_more_variables_than_one_piece_holds(tmp_path: Path) -> None:
    n = 45_001
    marginals = np.random.default_rng(0).random(2 * n)
    beliefs = beliefs_of(FactorGraph([2] * n, []), marginals)
    write_marginals(beliefs, tmp_path / "out.MAR")
    words = (tmp_path / "out.MAR").read_text().split()
    assert words[:2] == ["MAR", str(n)]
    assert set(words[2::3]) == {"2"}
    read = np.array([words[3::3], words[4::3]], dtype=float).T.ravel()
    assert np.array_equal(read, marginals)


def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(KikuchiError, match=r"'\.txt' is not supported.* \.mar, \.csv"):
        write_marginals(BELIEFS, tmp_path / "out.txt")


def test_pr_is_to_base_ten(tmp_path: Path) -> None:
    write_pr(165.647464292, tmp_path / "g10.uai.PR")
    word, value = (tmp_path / "g10.uai.PR").read_text().split()
    assert word == "PR"
    assert float(value) == pytest.approx(165.647464292 / math.log(10), rel=1e-15)
    with pytest.raises(KikuchiError, match="finite"):
        write_pr(math.nan, tmp_path / "bad.PR")
    assert not (tmp_path / "bad.PR").exists()
