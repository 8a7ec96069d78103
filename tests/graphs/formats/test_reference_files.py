"""The reference models: real files of both number formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kikuchi import read, read_evidence, write
from kikuchi.graphs.formats.uai import read_uai


@pytest.mark.parametrize("name", ["g10", "w10"])
def test_uai_and_fg_files_of_a_grid_are_the_same_model(shared: Path, name: str) -> None:
    grids = shared / "reference" / "grids"
    uai, fg = read(grids / f"{name}.uai"), read(grids / f"{name}.fg")
    assert uai.cardinalities.tolist() == fg.cardinalities.tolist() == [2] * 100
    assert [uai.scope(a) for a in range(uai.n_factors)] == [
        fg.scope(a) for a in range(fg.n_factors)
    ]
    assert np.allclose(uai.log_tables, fg.log_tables, rtol=1e-15, atol=0)


@pytest.mark.parametrize("name", ["g10", "g30", "w10", "w30"])
def test_the_grids_hold_the_numbers_that_stand_in_the_file(shared: Path, name: str) -> None:
    path = shared / "reference" / "grids" / f"{name}.uai"
    graph = read(path)
    words = path.read_text().split()
    last = [float(word) for word in words[-4:]]
    assert np.array_equal(graph.log_table(graph.n_factors - 1).ravel(), np.log(last))
    assert read_uai("x", path.read_bytes(), compiled=True) == graph


def test_all_competition_files_read_with_their_evidence(shared: Path, tmp_path: Path) -> None:
    paths = sorted((shared / "reference" / "uai2014").glob("*.uai"))
    assert len(paths) == 13
    sizes = {}
    for path in paths:
        graph = read(path)
        evidence = read_evidence(path.with_name(path.name + ".evid"), graph)
        sizes[path.stem] = len(evidence)
        assert graph.n_variables == int(path.read_text().split()[1])
        assert graph.log_constant == 0.0
        assert graph.resolve(evidence) == evidence
        assert read_uai("x", path.read_bytes(), compiled=True) == graph
        for suffix in ("uai", "fg"):
            write(graph, tmp_path / f"copy.{suffix}")
            assert read(tmp_path / f"copy.{suffix}") == graph
    assert {k: v for k, v in sizes.items() if v} == {
        "Pedigree_11": 37,
        "Promedus_11": 8,
        "Promedus_24": 4,
    }
