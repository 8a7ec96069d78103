"""Belief propagation: cost of one update, time to convergence, large graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

import kikuchi as kk
from benchmarks.common import (
    Row,
    baseline,
    cpu_seconds,
    in_fresh_process,
    pointer,
    reference_grid,
)


def rows() -> Iterator[Row]:
    yield binary_update()
    yield from convergence()
    yield table_update("K=16 pairwise 100x100", *_pair_grid(100, 16), 16)
    yield table_update("binary factors of order 4, 100x100", *_block_grid(100, 2), 2)
    yield table_update("K=4 factors of order 4, 40x40", *_block_grid(40, 4), 4)
    yield from large()


def per_sweep(graph: kk.FactorGraph, few: int, many: int) -> float:
    """CPU seconds of one parallel sweep through the public interface, set-up taken out."""

    def run(sweeps: int) -> float:
        method = kk.methods.BeliefPropagation(schedule="parallel", tol=0.0, max_iter=sweeps)
        method.run(graph)
        return cpu_seconds(lambda: method.run(graph))

    return (run(many) - run(few)) / (many - few)


def binary_update() -> Row:
    graph = kk.grid(300, 300, seed=0, coupling=0.3, field=0.3)
    updates = 4 * 300 * 299
    ours = per_sweep(graph, 20, 220) / updates
    library = baseline()
    limit = None if library is None else _binary_limit(graph, library) / updates
    return Row(
        "parallel BP, 300x300 binary grid, per directed update",
        ours * 1e9,
        "ns",
        None if limit is None else limit * 1e9,
        "C++",
        "<= 1.2 x C++",
        None if limit is None else ours <= 1.2 * limit,
    )


def _binary_limit(graph: kk.FactorGraph, library: ctypes.CDLL) -> float:
    from kikuchi.engines.messages.ratios import RatioMessages

    ratios = RatioMessages.of(graph)
    assert ratios is not None
    pairs = ratios.pairs
    arrays = (
        pairs.start,
        pairs.reverse,
        ratios.model.k,
        ratios.model.field,
        ratios.r,
        ratios.spare,
    )
    nodes = ctypes.c_size_t(graph.n_variables)

    def run() -> None:
        library.binary_sweeps(nodes, *map(pointer, arrays), 100)

    run()
    return cpu_seconds(run) / 100


def convergence() -> Iterator[Row]:
    cases = [
        ("w100", 0.5, "bp", 12518.973664472, 0.03),
        ("g100", 1.0, "bp:schedule=residual", 17017.646912148, 0.3),
        ("g100", 1.0, "bp:damping=0.5", 17017.646912148, 0.3),
    ]
    for name, coupling, text, log_z, target in cases:
        graph = reference_grid(100, coupling)
        beliefs = kk.infer(graph, text)
        seconds = cpu_seconds(lambda g=graph, t=text: kk.infer(g, t))
        right = beliefs.converged and abs(beliefs.log_z - log_z) < 1e-5
        yield Row(
            f"{text} to 1e-9 on {name}",
            seconds,
            "s",
            target=f"<= {target} s",
            met=right and seconds <= target,
            note=f"{beliefs.iterations} sweeps, log Z off by {abs(beliefs.log_z - log_z):.1e}",
        )


def _pair_grid(size: int, states: int):
    at = np.arange(size * size).reshape(size, size)
    across = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], axis=1)
    down = np.stack([at[:-1].ravel(), at[1:].ravel()], axis=1)
    return _with_tables(size, np.concatenate([across, down]), states)


def _block_grid(size: int, states: int):
    at = np.arange(size * size).reshape(size, size)
    corners = [at[:-1, :-1], at[:-1, 1:], at[1:, :-1], at[1:, 1:]]
    return _with_tables(size, np.stack([c.ravel() for c in corners], axis=1), states)


def _with_tables(size: int, scopes: np.ndarray, states: int):
    rng = np.random.default_rng(0)
    singles = rng.normal(0, 0.5, (size * size, states))
    tables = rng.normal(0, 0.5, (len(scopes), states ** scopes.shape[1]))
    return scopes, singles, tables


def table_update(
    what: str, scopes: np.ndarray, singles: np.ndarray, tables: np.ndarray, states: int
) -> Row:
    nodes, order = len(singles), scopes.shape[1]
    graph = kk.FactorGraph.from_arrays(
        np.full(nodes, states),
        np.concatenate([np.arange(nodes), scopes.ravel()]),
        np.concatenate([np.arange(nodes + 1), nodes + order * np.arange(1, len(scopes) + 1)]),
        np.concatenate([singles.ravel(), tables.ravel()]),
    )
    ours = per_sweep(graph, 2, 22) / tables.size
    library = baseline()
    limit = None
    if library is not None:
        limit = _table_limit(library, scopes, singles, tables, states) / tables.size
    return Row(
        f"parallel BP, {what}, per table entry",
        ours * 1e9,
        "ns",
        None if limit is None else limit * 1e9,
        "C++",
        "<= 2 x C++",
        None if limit is None else ours <= 2 * limit,
    )


def _table_limit(
    library: ctypes.CDLL,
    scopes: np.ndarray,
    singles: np.ndarray,
    tables: np.ndarray,
    states: int,
) -> float:
    receivers = scopes.ravel()
    edges = np.argsort(receivers, kind="stable").astype(np.uint32)
    counts = np.bincount(receivers, minlength=len(singles))
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    m = np.full((scopes.size, states), 1.0 / states)
    nu = np.empty_like(m)
    field, weights = np.exp(singles), np.exp(tables)
    sizes = [len(singles), len(scopes), scopes.shape[1], states]

    def run() -> None:
        library.table_sweeps(
            *map(ctypes.c_size_t, sizes),
            *map(pointer, (start, edges, field, weights, m, nu)),
            20,
        )

    run()
    return cpu_seconds(run) / 20


LARGE = """
import time
import kikuchi as kk
def run(size):
    graph = kk.grid(size, size, seed=0, coupling=0.3, field=0.3)
    kk.methods.BeliefPropagation(schedule="parallel", tol=0.0, max_iter=20).run(graph)
    times = []
    for sweeps in (10, 60):
        method = kk.methods.BeliefPropagation(schedule="parallel", tol=0.0, max_iter=sweeps)
        best = float("inf")
        for _ in range(5):
            begin = time.process_time()
            method.run(graph)
            best = min(best, time.process_time() - begin)
        times.append(best)
    return (times[1] - times[0]) / 50 / (4 * size * (size - 1)) * 1e9
result["small"] = run(300)
result["large"] = run(1000)
"""


def large() -> Iterator[Row]:
    found = in_fresh_process(LARGE)
    yield Row(
        "parallel BP, 1000x1000 grid, per directed update",
        found["large"],
        "ns",
        found["small"],
        "300x300",
        "<= 1.5 x 300x300",
        found["large"] <= 1.5 * found["small"],
    )
    yield Row(
        "peak resident memory, 1000x1000 grid, 50 sweeps",
        found["peak_mb"],
        "MB",
        target="< 700 MB",
        met=found["peak_mb"] < 700,
        note="generator included",
    )
