"""Queries beside pyAgrum and pgmpy: one answer, many cases, all networks that pgmpy carries.

    python benchmarks/query.py [--structure] [--rows] [--networks a,b,c] [--limit 60] [--memory 6]

Times are CPU seconds of one process, the best of a few runs; ratios are to pyAgrum, or to pgmpy
for structures. Answers are compared as they are timed. In the table of networks each program
answers in a process of its own, with one thread, that is ended after `--limit` CPU seconds and has
`--memory` gigabytes: all marginals without evidence, from the loaded model to the last answer.
pgmpy is asked twice, by a calibrated clique tree and by variable elimination. An answer that no
peer has is compared with that of another elimination order.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import kikuchi as kk
from kikuchi.graphs.directed import ancestral_sample, parents
from kikuchi.learning.data import Data
from kikuchi.learning.structure.families import FamilyScores
from kikuchi.methods.junction_tree import JunctionTree

_PROCESSES = multiprocessing.get_context("forkserver")  # which import once: pgmpy takes seconds
_RUNS = 100  # at most, of a program on a network
PEERS = ("pyAgrum", "pgmpy tree", "pgmpy elimination")


def network_files() -> dict[str, Path]:
    """All BIF networks that pgmpy carries, by name."""
    spec = importlib.util.find_spec("pgmpy")
    if spec is None or spec.origin is None:
        sys.exit("pgmpy is not installed; pip install 'kikuchi[peers]'")
    folder = Path(spec.origin).parent / "utils" / "example_models"
    return {path.name.removesuffix(".bif.gz"): path for path in sorted(folder.glob("*.bif.gz"))}


def timed(function: Callable[[], Any], repeats: int = 30) -> tuple[float, Any]:
    """Least CPU time of some runs that take half a second in all, and the last answer."""
    best, total, answer = np.inf, 0.0, None
    for _ in range(repeats):
        began = time.process_time()
        answer = function()
        spent = time.process_time() - began
        best, total = min(best, spent), total + spent
        if total > 0.5:
            break
    return best, answer


# ---------------------------------------------------------------------- one answer and many


def warm_query(files: dict[str, Path]) -> None:
    import pyagrum

    graph = kk.read(files["alarm"])
    net = kk.to_pyagrum(graph)
    names = list(graph.names or ())
    target, seen = "CATECHOL", ["HRBP", "EXPCO2", "BP"]
    rows = ancestral_sample(graph, 200, seed=0)
    cases = [
        {name: graph.states[graph.index(name)][row[graph.index(name)]] for name in seen}
        for row in rows
    ]
    kk.query(graph, target, evidence=cases[0])

    def ours() -> list[Any]:
        return [kk.query(graph, target, evidence=case)[target].values_array for case in cases]

    def theirs() -> list[Any]:
        engine = pyagrum.LazyPropagation(net)
        engine.setTargets({target})
        found = []
        for case in cases:
            engine.setEvidence(case)
            engine.makeInference()
            found.append(engine.posterior(target).toarray())
        return found

    a, mine = timed(ours)
    b, other = timed(theirs)
    worst = max(float(np.abs(x - y).max()) for x, y in zip(mine, other, strict=True))
    print(
        f"one variable of alarm, warm: {a / 200 * 1e3:.3f} ms a query, pyAgrum "
        f"{b / 200 * 1e3:.3f} ms (ratio {a / b:.2f}), largest difference {worst:.1e}"
    )
    assert names


def many_cases(files: dict[str, Path]) -> None:
    import pandas as pd

    graph = kk.read(files["alarm"])
    rows = ancestral_sample(graph, 500, seed=1)
    rng = np.random.default_rng(0)
    words = [np.array(group, dtype=object) for group in graph.states or ()]
    whole = pd.DataFrame({n: words[v][rows[:, v]] for v, n in enumerate(graph.names or ())})
    one = whole[[graph.names[v] for v in rng.permutation(37)[:8]]]
    hidden = np.array([rng.permutation(37) >= 8 for _ in range(500)])
    several = whole.mask(hidden)
    for what, frame in (("the same 8", one), ("any 8", several)):
        kk.predict_proba(graph.replaced(), frame)
        cold = graph.replaced()
        began = time.process_time()
        kk.predict_proba(cold, frame)
        first = time.process_time() - began
        warm, table = timed(lambda cold=cold, frame=frame: kk.predict_proba(cold, frame))
        row = {n: s for n, s in frame.iloc[7].items() if isinstance(s, str)}
        exact = JunctionTree().run(graph, evidence=row).flat_marginals
        worst = float(np.abs(table.iloc[7, :-1].to_numpy(float) - exact).max())
        print(
            f"500 cases of alarm, {what} observed, all marginals: {first:.4f} s with a new tree, "
            f"{warm:.4f} s after, largest difference {worst:.1e}"
        )
    asia = kk.read(files["asia"])
    rows = ancestral_sample(asia, 10**6, seed=0)
    frame = pd.DataFrame(
        {
            n: np.array(asia.states[v])[rows[:, v]]
            for v, n in enumerate(asia.names or ())
            if n not in ("lung", "tub")
        }
    )
    seconds, _ = timed(lambda: kk.predict_proba(asia, frame, ["lung", "tub"]), 2)
    print(f"10^6 cases of one pattern on asia: {seconds:.3f} s")


# ---------------------------------------------------------------------- all networks


@dataclass(frozen=True)
class Side:
    """All marginals of a network by one program, one after the other, or why there are none."""

    seconds: float = 0.0
    answer: np.ndarray | None = None
    variables: int = 0
    failure: str = ""

    def __str__(self) -> str:
        return self.failure or f"{self.seconds:.3g}"


def all_networks(files: dict[str, Path], limit: float, memory: float, peers: list[str]) -> None:
    """One row per network as it comes: CPU seconds of each program, in processes of their own."""
    heads = " | ".join(f"{peer}, s" for peer in peers)
    print(f"| network | variables | ours, s | {heads} | ours / quickest | differences from |")
    print("|---|" + "--:|" * (len(peers) + 3) + "---|", flush=True)
    for name, path in files.items():
        ours = _side(path, "ours", limit, memory)
        found = {peer: _side(path, peer, limit, memory) for peer in peers}
        taken = {peer: side for peer, side in found.items() if side.answer is not None}
        least = min((side.seconds for side in taken.values()), default=0.0)
        if not taken:
            taken = {"another order": _side(path, "another order", limit, memory)}
        ratio = f"{ours.seconds / least:.3f}" if least and ours.answer is not None else "-"
        print(
            f"| {name} | {ours.variables} | {ours} | {' | '.join(map(str, found.values()))} | "
            f"{ratio} | {_differences(ours, taken)} |",
            flush=True,
        )


def _differences(ours: Side, others: dict[str, Side]) -> str:
    """The largest difference of a probability from each of the other answers."""
    found = []
    for name, side in others.items():
        if ours.answer is not None and side.answer is not None:
            found.append(f"{float(np.abs(ours.answer - side.answer).max()):.1e} {name}")
    return ", ".join(found) or "none compared"


def _side(path: Path, side: str, limit: float, memory: float) -> Side:
    """One program on one network, ended after some CPU seconds of its own, the model being loaded.

    They are counted from here: a timer of CPU seconds would make the clock of the process coarse.
    """
    here, there = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_alone, args=(path, side, memory, there))
    process.start()
    there.close()
    try:
        here.recv()  # the model is loaded
        if _over(process, here, limit):
            return Side(failure=f"stopped after {limit:g} s")
        found: Side = here.recv()
        return found
    except EOFError:
        process.join()
        return Side(failure=f"ended with exit code {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _over(process: Any, answer: Connection, limit: float) -> bool:
    """Wait for the answer of a process; whether its CPU seconds were over before."""
    watched = psutil.Process(process.pid)
    began = sum(watched.cpu_times()[:2])
    while not answer.poll(0.02):
        if sum(watched.cpu_times()[:2]) - began > limit:
            return True
    return False


def _alone(path: Path, side: str, memory: float, answer: Connection) -> None:
    """The process of one program: load the model, say so, answer as often as half a second lets."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        run = SIDES[side](kk.read(path))
        most = psutil.Process().memory_info().vms + int(memory * 1e9)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        answer.send("ready")
        seconds, found = timed(run, 1)  # which may load what was compiled before
        if seconds < 10.0:
            seconds, found = timed(run, _RUNS)
        answer.send(Side(seconds, np.concatenate(found), len(found)))
    except Exception as error:  # of any kind: it may not be our program
        answer.send(Side(failure=_failure(error, memory)))


def _failure(error: Exception, memory: float) -> str:
    """Why a program gave no answer, in a few words."""
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    if any(word in text for word in ("Memory", "bad_alloc", "allocate")):
        return f"out of {memory:g} GB"
    return text[:60].replace("|", "/")


def _ours(graph: kk.FactorGraph) -> Callable[[], list[np.ndarray]]:
    fresh = iter([graph.replaced() for _ in range(_RUNS + 1)])  # nothing is remembered of these

    def run() -> list[np.ndarray]:
        answer = kk.query(next(fresh))
        if not answer.exact:
            raise RuntimeError(f"by {answer.method}, which is not exact")
        return [answer[name].values_array for name in answer]

    return run


def _another_order(graph: kk.FactorGraph) -> Callable[[], list[np.ndarray]]:
    return lambda: JunctionTree(order="min-degree").run(graph).marginals


def _pyagrum(graph: kk.FactorGraph) -> Callable[[], list[np.ndarray]]:
    import pyagrum

    net = kk.to_pyagrum(graph)

    def run() -> list[np.ndarray]:
        engine = pyagrum.LazyPropagation(net)
        engine.setNumberOfThreads(1)
        engine.makeInference()
        return [engine.posterior(graph.label(v)).toarray() for v in range(graph.n_variables)]

    return run


def _pgmpy(kind: str) -> Callable[[kk.FactorGraph], Callable[[], list[np.ndarray]]]:
    """pgmpy by a calibrated clique tree, or by eliminating anew for each variable."""

    def prepared(graph: kk.FactorGraph) -> Callable[[], list[np.ndarray]]:
        engines = importlib.import_module("pgmpy.inference")
        net = kk.to_pgmpy(graph)

        def run() -> list[np.ndarray]:
            engine = getattr(engines, kind)(net)
            if kind == "BeliefPropagation":
                engine.calibrate()
            return [_in_our_order(graph, v, engine) for v in range(graph.n_variables)]

        return run

    return prepared


def _in_our_order(graph: kk.FactorGraph, v: int, engine: Any) -> np.ndarray:
    name = graph.label(v)
    found = engine.query([name], show_progress=False)
    values = np.empty(int(graph.cardinalities[v]))
    values[[graph.state_index(v, s) for s in found.state_names[name]]] = found.values
    return values


SIDES = {
    "ours": _ours,
    "another order": _another_order,
    "pyAgrum": _pyagrum,
    "pgmpy tree": _pgmpy("BeliefPropagation"),
    "pgmpy elimination": _pgmpy("VariableElimination"),
}


# ---------------------------------------------------------------------- rows by approximations


def approximate_rows(files: dict[str, Path]) -> None:
    """Cases by belief propagation side by side, beside one run for each."""
    import pandas as pd

    for name in ("alarm", "insurance", "hepar2", "win95pts"):
        graph = kk.read(files[name])
        rows = ancestral_sample(graph, 500, seed=1)
        chosen = np.random.default_rng(0).permutation(graph.n_variables)[:8]
        frame = pd.DataFrame(
            {graph.names[v]: np.array(graph.states[v], dtype=object)[rows[:, v]] for v in chosen}
        ).drop_duplicates()
        kk.predict_proba(graph, frame.head(3), method="bp")
        ours, table = timed(lambda g=graph, f=frame: kk.predict_proba(g, f, method="bp"))
        few = frame.head(40)

        def one_by_one(graph: Any = graph, few: Any = few) -> list[Any]:
            return [kk.infer(graph, "bp", evidence=dict(row)) for _, row in few.iterrows()]

        single, found = timed(one_by_one, 2)
        worst = max(
            float(np.abs(table.loc[k].to_numpy()[:-1] - beliefs.flat_marginals).max())
            for k, beliefs in zip(few.index, found, strict=True)
            if beliefs.converged
        )
        ratio = single / len(few) / (ours / len(frame))
        print(
            f"{name}: {len(frame)} distinct cases by bp, {ours / len(frame) * 1e3:.3f} ms each, "
            f"{ratio:.1f} times as fast as one by one, largest difference {worst:.1e}",
            flush=True,
        )


# ---------------------------------------------------------------------- structures


def structures(files: dict[str, Path]) -> None:
    import pandas as pd
    import pyagrum
    from pgmpy.estimators import HillClimbSearch

    for name in ("alarm", "insurance", "hailfinder"):
        graph = kk.read(files[name])
        rows = ancestral_sample(graph, 10_000, seed=1)
        frame = pd.DataFrame(
            {n: np.array(graph.states[v])[rows[:, v]] for v, n in enumerate(graph.names or ())}
        )
        data = Data.of(frame)
        scores = FamilyScores(data)
        names = list(data.names or ())

        def score(edges: Any, scores: FamilyScores = scores, names: list[str] = names) -> float:
            found: list[list[int]] = [[] for _ in names]
            for u, v in edges:
                found[names.index(v)].append(names.index(u))
            return scores.structure(found)

        kk.learning.hill_climb(data, restarts=0)
        ours, found = timed(lambda data=data: kk.learning.hill_climb(data), 1)

        def agrum(frame: Any = frame) -> Any:
            learner = pyagrum.BNLearner(frame)
            learner.useScoreBIC()
            learner.useNoPrior()
            learner.useLocalSearchWithTabuList()
            ids = learner.names()
            return [(ids[a], ids[b]) for a, b in learner.learnDAG().arcs()]

        peer, arcs = timed(agrum, 1)
        slow, dag = timed(
            lambda frame=frame: HillClimbSearch(frame).estimate(
                scoring_method="bic-d", show_progress=False
            ),
            1,
        )
        true = [
            (graph.label(u), graph.label(v))
            for v in range(graph.n_variables)
            for u in parents(graph, v)
        ]
        print(
            f"{name}: ours {score(found.edges):.1f} in {ours:.2f} s; pyAgrum {score(arcs):.1f} "
            f"in {peer:.2f} s; pgmpy {score(dag.edges()):.1f} in {slow:.2f} s "
            f"(ours / pgmpy {ours / slow:.3f}); true structure {score(true):.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--structure", action="store_true", help="only learning of structures")
    parser.add_argument("--networks", default="", help="only these networks, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="the peers of the networks")
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds of a program")
    parser.add_argument("--memory", type=float, default=6.0, help="gigabytes of a program")
    parser.add_argument("--rows", action="store_true", help="only cases by approximations")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are started
    files = network_files()
    if chosen.rows:
        approximate_rows(files)
        return
    if chosen.structure:
        structures(files)
        return
    if not chosen.networks:
        warm_query(files)
        many_cases(files)
    else:
        files = {name: files[name] for name in chosen.networks.split(",")}
    _PROCESSES.set_forkserver_preload(["kikuchi.methods", "pyagrum", "pgmpy.inference"])
    all_networks(files, chosen.limit, chosen.memory, [p for p in chosen.peers.split(",") if p])


if __name__ == "__main__":
    main()
