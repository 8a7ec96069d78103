"""BIF files of real networks, read by us and by pyAgrum."""

from __future__ import annotations

import gzip
import importlib.resources
import time
from pathlib import Path

import numpy as np
import pytest

from kikuchi import FactorGraph, read, write

NETWORKS = [
    *("alarm", "andes", "asia", "barley", "cancer", "child", "diabetes", "earthquake"),
    *("hailfinder", "hepar2", "insurance", "link", "mildew", "munin", "munin1", "munin2"),
    *("munin3", "munin4", "pathfinder", "pigs", "sachs", "survey", "water", "win95pts"),
]
# Not child: pyAgrum does not read names like Asy/Patch and <5.
COMPARED = ["asia", "alarm", "sachs", "insurance", "survey", "hailfinder", "water"]


@pytest.fixture(scope="module")
def networks() -> Path:
    pytest.importorskip("pgmpy")
    folder = importlib.resources.files("pgmpy") / "utils" / "example_models"
    if not isinstance(folder, Path) or not folder.is_dir():
        pytest.skip("pgmpy carries no networks here")
    return folder


@pytest.mark.parametrize("name", NETWORKS)
def test_all_networks_read_and_come_back(networks: Path, tmp_path: Path, name: str) -> None:
    begin = time.process_time()
    graph = read(networks / f"{name}.bif.gz")
    assert time.process_time() - begin < 5.0
    assert graph.is_directed
    assert graph.names is not None
    assert len(graph.names) == graph.n_factors
    if graph.log_tables.size < 100_000:
        write(graph, tmp_path / "copy.bif")
        assert read(tmp_path / "copy.bif") == graph


@pytest.mark.parametrize("name", COMPARED)
def test_tables_agree_with_pyagrum(networks: Path, tmp_path: Path, name: str) -> None:
    gum = pytest.importorskip("pyagrum")
    path = tmp_path / f"{name}.bif"
    path.write_bytes(gzip.decompress((networks / f"{name}.bif.gz").read_bytes()))
    check_against_pyagrum(read(path), gum.loadBN(str(path)), gum)


def test_what_we_write_is_what_pyagrum_reads(tmp_path: Path) -> None:
    gum = pytest.importorskip("pyagrum")
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(4), size=(2, 3))
    graph = FactorGraph(
        [2, 3, 4],
        [((0,), [0.25, 0.75]), ((1,), [0.2, 0.3, 0.5]), ((2, 0, 1), np.moveaxis(table, -1, 0))],
        names=["a", "b", "c"],
        states=[["no", "yes"], ["x", "y", "z"], ["p", "q", "r", "s"]],
        children=[0, 1, 2],
    )
    write(graph, tmp_path / "m.bif")
    check_against_pyagrum(read(tmp_path / "m.bif"), gum.loadBN(str(tmp_path / "m.bif")), gum)


def test_a_table_with_parents_agrees_with_pyagrum(tmp_path: Path) -> None:
    gum = pytest.importorskip("pyagrum")
    (tmp_path / "m.bif").write_text(
        "network unknown { }\n"
        "variable a { type discrete [ 2 ] { x, y }; }\n"
        "variable b { type discrete [ 3 ] { p, q, r }; }\n"
        "variable c { type discrete [ 2 ] { u, v }; }\n"
        "probability ( a ) { table 0.25, 0.75; }\n"
        "probability ( c ) { table 0.5, 0.5; }\n"
        "probability ( b | a, c )"
        " { table 0.1, 0.2, 0.3, 0.4, 0.5, 0.1, 0.2, 0.3, 0.4, 0.7, 0.5, 0.3; }\n"
    )
    check_against_pyagrum(read(tmp_path / "m.bif"), gum.loadBN(str(tmp_path / "m.bif")), gum)


def check_against_pyagrum(graph: FactorGraph, network: object, gum: object) -> None:
    """Every entry of every table, addressed by the names of variables and the numbers of states."""
    assert graph.names is not None
    assert graph.states is not None
    assert graph.children is not None
    assert set(graph.names) == set(network.names())  # type: ignore[attr-defined]
    for a in range(graph.n_factors):
        child = graph.names[graph.children[a]]
        theirs = network.cpt(child)  # type: ignore[attr-defined]
        variable = network.variable(child)  # type: ignore[attr-defined]
        assert variable.labels() == graph.states[graph.children[a]]
        scope = [graph.names[v] for v in graph.scope(a)]
        assert set(theirs.names) == set(scope)
        where = gum.Instantiation(theirs)  # type: ignore[attr-defined]
        table = graph.table(a)
        while not where.end():
            ours = table[tuple(where.val(name) for name in scope)]
            # pyAgrum reads the numbers of a BIF file in single precision.
            assert ours == pytest.approx(theirs.get(where), rel=1e-6, abs=1e-9)
            where.inc()
