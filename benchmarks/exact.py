"""Junction tree: grids, and real networks beside pyAgrum and pgmpy."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import kikuchi as kk
from benchmarks.common import Row, cpu_seconds, in_fresh_process, reference_grid

NETWORKS = ["asia", "cancer", "alarm", "child", "insurance", "hailfinder", "hepar2", "win95pts"]
LARGE_NETWORKS = ["water", "pigs", "andes", "diabetes", "munin2", "munin3", "munin4"]


def rows() -> Iterator[Row]:
    for size, target in ((10, 0.005), (15, 0.5)):
        graph = reference_grid(size, 1.0)
        kk.infer(graph, "jt")
        seconds = cpu_seconds(lambda g=graph: kk.infer(g, "jt"))
        yield Row(
            f"junction tree, {size}x{size} grid, plan and all marginals",
            seconds,
            "s",
            target=f"<= {target} s",
            met=seconds <= target,
        )
    yield from twenty()
    yield from networks()


TWENTY = """
import time
import kikuchi as kk
from benchmarks.common import reference_grid
kk.infer(reference_grid(5, 1.0), "jt")
graph = reference_grid(20, 1.0)
result["width"] = kk.plan(graph).width
begin = time.process_time()
beliefs = kk.infer(graph, "jt")
result["seconds"] = time.process_time() - begin
"""


def twenty() -> Iterator[Row]:
    found = in_fresh_process(TWENTY)
    yield Row(
        f"junction tree, 20x20 grid (width {found['width']}), all marginals",
        found["seconds"],
        "s",
        target="<= 12 s",
        met=found["seconds"] <= 12,
    )
    yield Row(
        "  its peak resident memory",
        found["peak_mb"] / 1000,
        "GB",
        target="<= 4 GB",
        met=found["peak_mb"] <= 4000,
    )


def _network_file(name: str) -> Path | None:
    spec = importlib.util.find_spec("pgmpy")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "utils" / "example_models" / f"{name}.bif.gz"
    return path if path.exists() else None


def networks() -> Iterator[Row]:
    if importlib.util.find_spec("pyagrum") is None:
        return
    for name in NETWORKS + LARGE_NETWORKS:
        path = _network_file(name)
        if path is None:
            continue
        graph = kk.read(path)
        plan = kk.plan(graph)
        if plan.bytes > 2e9:
            yield Row(f"network {name}", plan.bytes / 1e9, "GB", note="too large for 2 GB")
            continue
        repeats = 5 if plan.operations < 1e7 else 2
        beliefs = kk.infer(graph, "jt")
        ours = cpu_seconds(lambda g=graph: kk.infer(g, "jt"), repeats)
        theirs, error = _pyagrum(graph, beliefs, repeats)
        yield Row(
            f"network {name} ({graph.n_variables} variables, width {plan.width}), all marginals",
            ours * 1e3,
            "ms",
            theirs * 1e3,
            "pyAgrum",
            "not slower",
            ours <= theirs and error < 1e-9,
            note=f"largest difference of a marginal {error:.0e}",
        )
    yield from _pgmpy("alarm")


def _pyagrum(graph: kk.FactorGraph, beliefs: kk.Beliefs, repeats: int) -> tuple[float, float]:
    """CPU seconds of pyAgrum's lazy propagation, one thread, and the largest difference.

    Its tables are filled from ours: its file readers round numbers to single precision.
    """
    import pyagrum as gum

    gum.setNumberOfThreads(1)
    net = gum.BayesNet()
    for v, states in enumerate(graph.cardinalities):
        net.add(gum.LabelizedVariable(f"x{v}", "", int(states)))
    children = [int(c) for c in graph.children]
    for a, child in enumerate(children):
        for v in graph.scope(a):
            if v != child:
                net.addArc(f"x{v}", f"x{child}")
    for a, child in enumerate(children):
        table = net.cpt(f"x{child}")
        axes = [graph.scope(a).index(int(name[1:])) for name in reversed(table.names)]
        table[:] = np.ascontiguousarray(np.transpose(graph.table(a), axes))
    best, posteriors = float("inf"), []
    for _ in range(repeats):
        begin = time.process_time()
        inference = gum.LazyPropagation(net)
        inference.makeInference()
        posteriors = [inference.posterior(f"x{v}").toarray() for v in range(graph.n_variables)]
        best = min(best, time.process_time() - begin)
    pairs = zip(posteriors, beliefs.marginals, strict=True)
    return best, max(float(np.abs(theirs - ours).max()) for theirs, ours in pairs)


def _pgmpy(name: str) -> Iterator[Row]:
    path = _network_file(name)
    if path is None:
        return
    import gzip

    from pgmpy.inference import BeliefPropagation
    from pgmpy.readwrite import BIFReader

    model = BIFReader(string=gzip.decompress(path.read_bytes()).decode()).get_model()
    graph = kk.read(path)
    kk.infer(graph, "jt")
    ours = cpu_seconds(lambda: kk.infer(graph, "jt"))

    def theirs() -> None:
        tree = BeliefPropagation(model)
        tree.calibrate()
        for node in model.nodes():
            tree.query([node], show_progress=False)

    yield Row(
        f"network {name}, all marginals",
        ours * 1e3,
        "ms",
        cpu_seconds(theirs, 1) * 1e3,
        "pgmpy",
        "not slower",
    )
