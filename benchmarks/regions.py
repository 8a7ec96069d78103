"""Region methods: the reference grid, a large grid, and the grids of Liu's tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import kikuchi as kk
from benchmarks.common import Row, cpu_seconds, reference_grid


def rows() -> Iterator[Row]:
    yield from reference()
    yield large_grid()
    yield from spin_glasses()


def reference() -> Iterator[Row]:
    graph = reference_grid(10, 1.0)
    text = "kikuchi:regions=faces"
    beliefs = kk.infer(graph, text)
    exact = kk.infer(graph, "jt")
    seconds = cpu_seconds(lambda: kk.infer(graph, text))
    off = abs(beliefs.log_z - 165.650381446)
    error = float(np.abs(beliefs.flat_marginals - exact.flat_marginals).max())
    yield Row(
        "Kikuchi on the faces of g10, to 1e-9",
        seconds,
        "s",
        target="<= 0.2 s",
        met=seconds <= 0.2 and off <= 1e-6 and error <= 0.0022,
        note=f"log Z off libDAI's by {off:.0e}, largest error {error:.5f}",
    )


def large_grid() -> Row:
    graph = kk.grid(100, 100, seed=0, coupling=0.3, field=0.3)

    def run(sweeps: int) -> float:
        method = kk.methods.GeneralisedBP(regions="faces", tol=0.0, damping=0.8, max_iter=sweeps)
        return cpu_seconds(lambda: method.run(graph), 2)

    run(1)
    seconds = (run(60) - run(10)) * 2
    return Row(
        "generalised BP, 100x100 grid, 100 sweeps",
        seconds,
        "s",
        target="<= 2 s",
        met=seconds <= 2,
    )


def spin_glasses() -> Iterator[Row]:
    """LIU-E6 and E7 at n = 100: mean of |b(1) - p(1)| and of the error of log Z, 20 seeds."""
    for field, most_l1, most_log_z in ((0.1, 0.006, 0.3), (1.0, 0.002, 0.4)):
        distances, errors = [], []
        for seed in range(20):
            graph = kk.grid(10, 10, seed=seed, coupling=1.0, field=field)
            exact = kk.infer(graph, "jt")
            beliefs = kk.infer(graph, "kikuchi:regions=faces")
            distances.append(np.abs(beliefs.flat_marginals - exact.flat_marginals)[1::2].mean())
            errors.append(abs(beliefs.log_z - exact.log_z))
        l1, log_z = float(np.mean(distances)), float(np.mean(errors))
        yield Row(
            f"Kikuchi on faces, 10x10, J ~ N(0, 1), field deviation {field:g}: l1",
            l1,
            "",
            target=f"<= {most_l1}",
            met=l1 <= most_l1,
        )
        yield Row(
            "  its error of log Z", log_z, "", target=f"<= {most_log_z}", met=log_z <= most_log_z
        )
