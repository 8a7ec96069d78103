"""Queries beside pyAgrum and pgmpy: one answer, many cases, all networks that pgmpy carries.

    python benchmarks/query.py [--structure] [--rows] [--pgmpy] [--networks a,b,c]

Times are CPU seconds of one process, the best of a few runs; ratios are to pyAgrum, or to pgmpy
for structures. Answers are compared as they are timed. With `--pgmpy` each network is also given to
pgmpy, in a process of its own that is stopped after ten seconds of CPU: once by a calibrated clique
tree and once by variable elimination, and the quicker of the two counts.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kikuchi as kk
from kikuchi.graphs.directed import ancestral_sample, parents
from kikuchi.inference.trees.junction_tree import JunctionTree
from kikuchi.learning.data import Data
from kikuchi.learning.structure.families import FamilyScores

FEW = ("asia", "cancer", "earthquake", "sachs", "survey")
_LIMIT = 10  # CPU seconds after which a peer is stopped
_MEMORY = 8 * 10**9  # bytes that a peer may take


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


def all_networks(files: dict[str, Path], with_pgmpy: bool) -> None:
    print(
        f"{'network':<12} {'variables':>9} {'ours s':>9} {'pyAgrum s':>10} {'ratio':>6} "
        f"{'pgmpy s':>9}  largest difference (to)"
    )
    peers = _pgmpy(list(files)) if with_pgmpy else {}
    for name, path in files.items():
        graph = kk.read(path)
        fresh = iter([graph.replaced() for _ in range(31)])  # each without what queries remember
        ours, answer = timed(lambda fresh=fresh: kk.query(next(fresh), method="exact"))
        theirs, compared, against = _pyagrum(graph, ours)
        if compared is None:  # another elimination order, by the engine itself
            compared = JunctionTree(order="min-degree").run(graph).marginals
            against = "order"
        worst = max(
            float(np.abs(answer[graph.label(v)].values_array - compared[v]).max())
            for v in range(graph.n_variables)
        )
        ratio = f"{ours / theirs:.2f}" if theirs else "-"
        peer = f"{theirs:.3f}" if theirs else "-"
        slow = peers.get(name, "-")
        print(
            f"{name:<12} {graph.n_variables:>9} {ours:>9.4f} {peer:>10} {ratio:>6} {slow:>9}  "
            f"{worst:.1e} ({against})",
            flush=True,
        )


def _pyagrum(graph: kk.FactorGraph, ours: float) -> tuple[float, list[Any] | None, str]:
    import pyagrum

    if ours > 1.0:  # pyAgrum needs more memory than there is for link and munin
        return 0.0, None, ""
    net = kk.to_pyagrum(graph)

    def run() -> list[Any]:
        engine = pyagrum.LazyPropagation(net)
        engine.makeInference()
        return [engine.posterior(graph.label(v)).toarray() for v in range(graph.n_variables)]

    try:
        seconds, found = timed(run)
    except Exception as error:  # of any kind: it is not our program
        print(f"pyAgrum: {str(error)[:80]}")
        return 0.0, None, ""
    return seconds, found, "pyAgrum"


def _pgmpy(names: list[str]) -> dict[str, str]:
    """CPU seconds of pgmpy on each network as texts, in a process of its own."""
    command = [sys.executable, __file__, "--alone", ",".join(names)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


class _OverError(Exception):
    """The seconds of a peer are over."""


_began = [0.0]  # CPU seconds when the present work began


def _look(number: int, frame: object) -> None:
    """Twice a second: a timer of CPU seconds would make the clock of the process coarse."""
    if time.process_time() - _began[0] > _LIMIT:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise _OverError


def pgmpy_alone(files: dict[str, Path]) -> None:
    """Every marginal of networks by pgmpy, the quicker of two ways; prints CPU seconds.

    Each way is stopped after `_LIMIT` seconds, and has `_MEMORY` bytes.
    """
    importlib.import_module("pgmpy.inference")  # which takes seconds
    signal.signal(signal.SIGALRM, _look)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    for name, path in files.items():
        graph = kk.read(path)
        net = kk.to_pgmpy(graph)
        least, why = float("inf"), f"> {_LIMIT}"
        for how in ("tree", "elimination"):
            _began[0] = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
            try:
                least = min(least, _pgmpy_marginals(graph, net, how))
            except Exception as error:  # of any kind: it is not our program
                why = f"> {_LIMIT}" if isinstance(error, _OverError) else type(error).__name__
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        print(name, f"{least:.4f}" if least < float("inf") else why, flush=True)


def _pgmpy_marginals(graph: kk.FactorGraph, net: Any, how: str) -> float:
    from pgmpy.inference import BeliefPropagation, VariableElimination

    began = time.process_time()
    engine = (BeliefPropagation if how == "tree" else VariableElimination)(net)
    if how == "tree":
        engine.calibrate()
    for v in range(graph.n_variables):
        engine.query([graph.label(v)], show_progress=False)
    return time.process_time() - began


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

        kk.hill_climb(data, restarts=0)
        ours, found = timed(lambda data=data: kk.hill_climb(data), 1)

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
    parser.add_argument("--pgmpy", action="store_true", help="time pgmpy too")
    parser.add_argument("--rows", action="store_true", help="only cases by approximations")
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    files = network_files()
    if chosen.alone:
        pgmpy_alone({name: files[name] for name in chosen.alone.split(",")})
        return
    if chosen.rows:
        approximate_rows(files)
        return
    if chosen.structure:
        structures(files)
        return
    if chosen.networks:
        all_networks({n: files[n] for n in chosen.networks.split(",")}, chosen.pgmpy)
        return
    warm_query(files)
    many_cases(files)
    all_networks(files, chosen.pgmpy)


if __name__ == "__main__":
    main()
