"""What is written is read back: the same model, and after the first time the same bits."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kikuchi import FactorGraph, KikuchiError, read, write
from kikuchi.graphs.formats.bif import bif_text, read_bif
from kikuchi.graphs.formats.fg import fg_text, read_fg
from kikuchi.graphs.formats.tokens import COMPILED_FROM
from kikuchi.graphs.formats.uai import read_uai, uai_text
from kikuchi.graphs.formats.weights import weights_of
from oracle import enumerate_exact, random_model

Reader = Callable[[str, bytes], FactorGraph]
Writer = Callable[[FactorGraph], Iterator[str]]
UNDIRECTED: list[tuple[Writer, Reader]] = [(uai_text, read_uai), (fg_text, read_fg)]
ALL = [*UNDIRECTED, (bif_text, read_bif)]


def again(graph: FactorGraph, writer: Writer, reader: Reader) -> FactorGraph:
    return reader("again", "".join(writer(graph)).encode())


def random_network(rng: np.random.Generator, n: int) -> FactorGraph:
    """A random directed model, its child anywhere in the scope, its factors in any order."""
    cards = rng.integers(1, 4, size=n)
    factors, children = [], []
    for v in rng.permutation(n).tolist():
        parents = rng.permutation(v)[: rng.integers(0, min(v, 3) + 1)].tolist()
        scope = [*parents, v]
        table = rng.dirichlet(np.full(cards[v], 0.7), size=[cards[u] for u in parents])
        order = rng.permutation(len(scope))
        factors.append(([scope[k] for k in order], np.transpose(table, order)))
        children.append(v)
    return FactorGraph(cards, factors, children=children)


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal to 1e-15, relative to the weight or its logarithm, whichever is larger."""
    finite = np.isfinite(b)
    error = np.abs(a[finite] - b[finite]) / np.maximum(1.0, np.abs(b[finite]))
    return bool(np.array_equal(finite, np.isfinite(a)) and np.all(error <= 1e-15))


@pytest.mark.parametrize(("writer", "reader"), UNDIRECTED)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.01, 1.0, 30.0]))
def test_random_models_come_back(writer: Writer, reader: Reader, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, n_factors=6, max_order=4, max_card=4, zeros=0.3, scale=scale)
    first = again(graph, writer, reader)
    m = graph.n_factors  # libDAI's format adds factors of ones for lone variables
    assert first.cardinalities.tolist() == graph.cardinalities.tolist()
    assert [first.scope(a) for a in range(m)] == [graph.scope(a) for a in range(m)]
    size = graph.log_tables.size
    assert close(first.log_tables[:size], graph.log_tables)
    assert not first.log_tables[size:].any()
    assert again(first, writer, reader) == first


@pytest.mark.parametrize(("writer", "reader"), ALL)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_networks_come_back(writer: Writer, reader: Reader, seed: int) -> None:
    graph = random_network(np.random.default_rng(seed), n=6)
    first = again(graph, writer, reader)
    assert first.is_directed == (writer is not fg_text)
    if first.children is not None and graph.children is not None:
        assert first.children.tolist() == graph.children.tolist()
        assert [first.scope(a)[-1] for a in range(6)] == graph.children.tolist()
    for expected, found in zip(enumerate_exact(graph)[1], enumerate_exact(first)[1], strict=True):
        assert np.allclose(found, expected, rtol=1e-13, atol=1e-15)
    assert again(first, writer, reader) == first


@given(
    seed=st.integers(0, 2**32 - 1),
    constant=st.floats(-1500, 1500),
    low=st.floats(-1500, 500),
)
@settings(max_examples=50)
def test_any_range_of_logarithms_keeps_its_partition_function(
    seed: int, constant: float, low: float
) -> None:
    rng = np.random.default_rng(seed)
    factors = [((v,), low + rng.uniform(0, 900, size=2)) for v in range(5)]
    graph = FactorGraph([2] * 5, factors, log=True, log_constant=constant)
    # Each factor alone may move until its smallest or largest weight leaves the doubles.
    least = sum(np.log(np.finfo(float).tiny) - table.min() for _, table in factors)
    most = sum(np.log(np.finfo(float).max) - table.max() for _, table in factors)
    for writer, reader in UNDIRECTED:
        if least + 0.01 < constant < most - 0.01:
            first = again(graph, writer, reader)
            assert enumerate_exact(first)[0] == pytest.approx(enumerate_exact(graph)[0], abs=1e-10)
            assert again(first, writer, reader) == first
        elif not least - 0.01 < constant < most + 0.01:
            with pytest.raises(KikuchiError, match="cannot be written"):
                again(graph, writer, reader)


def test_weights_from_a_file_are_written_as_they_were() -> None:
    rng = np.random.default_rng(0)
    weights = np.concatenate(
        [
            rng.random(100_000),
            np.exp(40 * rng.normal(size=100_000)),
            rng.integers(0, 1000, size=10_000) / 1000,
            10.0 ** np.arange(-300, 300),
        ]
    )
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    written = weights_of(logs)
    with np.errstate(divide="ignore"):
        assert np.array_equal(np.log(written), logs)
    short = [0.1, 0.3, 0.7, 1e-300, 123.456, 3.004166, 1e22, 2.5e-7, 0.999541696713]
    assert weights_of(np.log(short)).tolist() == short


def test_logarithms_of_any_size_move_by_less_than_1e_15() -> None:
    rng = np.random.default_rng(1)
    logs = np.concatenate([rng.uniform(-700, 700, 100_000), rng.normal(size=100_000) * 1e-3])
    assert close(np.log(weights_of(logs)), logs)


@pytest.mark.parametrize("suffix", [".uai", ".fg", ".bif", ".UAI.gz", ".fg.GZ", ".Bif.gz"])
def test_files_plain_and_packed(tmp_path: Path, suffix: str) -> None:
    graph = random_network(np.random.default_rng(3), n=5)
    path = tmp_path / f"model{suffix}"
    write(graph, path)
    data = path.read_bytes()
    assert data.startswith(b"\x1f\x8b") == suffix.lower().endswith(".gz")
    first = read(path)
    write(first, path)
    assert read(path) == first
    if suffix.lower().endswith(".gz"):
        write(first, path)
        packed = path.read_bytes()
        write(first, path)
        assert path.read_bytes() == packed
        assert gzip.decompress(packed).isascii()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def big_graph() -> FactorGraph:
    """A model whose files are beyond the size where the compiled scanner begins."""
    rng = np.random.default_rng(5)
    n = 30_000
    scopes = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1).ravel()
    offsets = 2 * np.arange(n)
    logs = rng.normal(size=4 * (n - 1))
    logs[::7] = -np.inf
    return FactorGraph.from_arrays([2] * n, scopes, offsets, logs)


@pytest.mark.parametrize(("writer", "reader"), UNDIRECTED)
def test_large_files_take_the_compiled_path_and_agree(writer: Writer, reader: Reader) -> None:
    graph = big_graph()
    data = "".join(writer(graph)).encode()
    assert len(data) > COMPILED_FROM
    fast = reader("x", data)
    assert fast == reader("x", data, compiled=False)  # type: ignore[call-arg]
    assert close(fast.log_tables, graph.log_tables)
    assert again(fast, writer, reader) == fast


def test_small_files_do_not_import_the_compiler(tmp_path: Path) -> None:
    write(random_network(np.random.default_rng(0), 5), tmp_path / "m.uai")
    program = (
        "import sys; from kikuchi import read; read(sys.argv[1]);"
        "sys.exit(any(m in sys.modules for m in ('numba', 'scipy', 'matplotlib', 'networkx')))"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path / "m.uai"]).returncode == 0
