"""`kikuchi warm-up`: compile every loop once, so that no later command has to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from kikuchi.cli.command import Output, finish, grouped
from kikuchi.cli.options import option
from kikuchi.core.answer import Answer, TextTable
from kikuchi.core.text import seconds

Processes = Annotated[int | None, option("--processes N", "Worker processes; one per core.")]
Methods = Annotated[
    str, option("--methods TEXTS", "Only what these inference methods need, as in jt,bp,kikuchi.")
]

Timings = Annotated[
    bool, option("--timings", "Print the CPU seconds of each loop that was compiled.")
]

_SECONDS = 5.0  # of a small problem; compiling does not count
_LARGEST_FIRST = ("auto", "ups", "wmb", "tree-mf", "trw", "gibbs", "gbp", "mixture-mf", "bp")


@grouped
def warm_up(
    methods: Methods = "",
    processes: Processes = None,
    timings: Timings = False,
    *,
    output: Output,
) -> None:
    """Compile every loop, once; they are kept on disk.

    Every method, learner and family is run on a small problem. Loops that are on disk already take
    no time, and those of families whose packages are not installed are left out.
    """
    from kikuchi.cli.console import ProgressBar
    from kikuchi.core import parallel

    output.check("")
    tasks = _method_tasks(methods) if methods else _tasks()
    with ProgressBar("compiling", quiet=output.quiet) as progress:
        mapped = parallel.map(_compile, tasks, processes=processes, progress=progress)
    finish(WarmUpAnswer(mapped.values(), len(tasks), timings), output)


class WarmedTask(NamedTuple):
    """What one task compiled: the seconds, why it was left out, and its loops, each with its CPU
    seconds and compiled forms.
    """

    name: str
    seconds: float
    left_out: str
    loops: dict[str, tuple[float, int]]


@dataclass(frozen=True)
class WarmUpAnswer(Answer):
    """What was compiled, as the screen and JSON show it."""

    taken: list[WarmedTask]
    total: int
    timings: bool

    def facts(self) -> list[tuple[str, str]]:
        """How much is ready, and what compiling took."""
        spent = sum(task.seconds for task in self.taken)
        pairs = [
            ("ready", f"{len(self.taken)} of {self.total} methods, learners and families"),
            ("compiling", f"{seconds(spent)}, added over all processes"),
        ]
        return pairs + [("left out", f"{t.name}: {t.left_out}") for t in self.taken if t.left_out]

    def table(self) -> TextTable | None:
        """The loops that were compiled, the slowest first, if they are wanted."""
        if not self.timings:
            return None
        rows = [
            [name, f"{seconds:.2f}", str(forms)]
            for name, (seconds, forms) in sorted(
                self.loops.items(), key=lambda item: item[1][0], reverse=True
            )
        ]
        return TextTable(["loop", "CPU seconds", "forms"], rows, right=(1, 2))

    @property
    def loops(self) -> dict[str, tuple[float, int]]:
        """CPU seconds and compiled forms by loop, over all processes."""
        found: dict[str, tuple[float, int]] = {}
        for task in self.taken:
            for name, (taken, forms) in task.loops.items():
                before = found.get(name, (0.0, 0))
                found[name] = before[0] + taken, before[1] + forms
        return found

    def to_dict(self) -> dict[str, Any]:
        """Seconds by task and by loop."""
        rows = [
            {"task": t.name, "seconds": t.seconds, "left_out": t.left_out or None}
            for t in self.taken
        ]
        loops = {n: {"cpu_seconds": s, "forms": f} for n, (s, f) in self.loops.items()}
        return {"total": self.total, "tasks": rows, "loops": loops}


def _tasks() -> list[str]:
    from kikuchi.learning.registry import LEARNERS
    from kikuchi.methods.registry import METHODS

    methods = [*_LARGEST_FIRST, *(name for name in METHODS if name not in _LARGEST_FIRST)]
    learners = [f"learner {name}" for name in LEARNERS]
    # families first: one that came last would keep one core busy and the others idle
    return [*_FAMILIES, *(f"method {name}" for name in methods), *learners]


def _method_tasks(texts: str) -> list[str]:
    """One task for each method of a list; a name that is not known is an error at once."""
    from kikuchi.cli.inputs import split_methods
    from kikuchi.methods.registry import parse_method

    found = split_methods(texts)
    for text in found:
        parse_method(text)
    return [f"method {text}" for text in found]


def _compile(task: str) -> WarmedTask:
    """Run one small problem."""
    import warnings

    from kikuchi.core.compiled import measured_loops
    from kikuchi.core.compiling import COMPILING, everything_compiled
    from kikuchi.core.errors import KikuchiError

    before, why = COMPILING.compiled, ""
    kind, _, name = task.partition(" ")
    try:
        with everything_compiled(), measured_loops() as times, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of problems that are too small to be served well
            if kind in ("method", "learner"):
                {"method": _run_method, "learner": _run_learner}[kind](name)
            else:
                _FAMILIES[task]()
    except KikuchiError as error:  # a method that needs another kind of model says so
        why = str(error)
    loops = {name: (times.seconds[name], times.forms[name]) for name in times.seconds}
    return WarmedTask(task, COMPILING.compiled - before, why, loops)


def _run_method(name: str) -> None:
    """Run a method on what it takes of two grids, a model of mixed states, and a chain.

    Models of a hundred variables use sparse matrices where smaller ones use dense ones.
    """
    from kikuchi.core.budget import Budget
    from kikuchi.core.errors import KikuchiError
    from kikuchi.graphs.generators import grid
    from kikuchi.methods.registry import infer

    budget = Budget(seconds=_SECONDS, iterations=3)
    refusals = []
    graphs = (grid(4, 4, seed=0), grid(12, 12, seed=0), _mixed_model(), grid(1, 12, seed=0))
    for graph in graphs:
        observed = {v: [0.4, 0.6] for v in (0, 6)} if name == "ups-t" else None
        try:
            infer(graph, name, evidence=observed, budget=budget)
        except KikuchiError as error:
            refusals.append(error)
    if len(refusals) == len(graphs):
        raise refusals[-1]


def _mixed_model() -> Any:
    """Variables of two and three states in factors of one to three."""
    import numpy as np

    from kikuchi.graphs.factor_graph import FactorGraph

    rng = np.random.default_rng(0)
    states = [2, 3] * 6
    scopes = [(v, v + 1, v + 2) for v in range(10)] + [(v,) for v in range(12)] + [(0, 11)]
    tables = [rng.uniform(0.5, 2.0, size=[states[v] for v in scope]) for scope in scopes]
    return FactorGraph(states, list(zip(scopes, tables, strict=True)))


def _run_learner(name: str) -> None:
    import numpy as np

    from kikuchi.core.budget import Budget
    from kikuchi.data.examples import example
    from kikuchi.graphs.directed import ancestral_sample
    from kikuchi.graphs.generators import grid
    from kikuchi.learning.registry import learn

    if name == "vbem":  # which needs a directed model, whose tables make many rows impossible
        graph = example("asia")
        rows = ancestral_sample(graph, 50, seed=0)
    else:
        graph = grid(4, 4, seed=0)
        rows = np.random.default_rng(0).integers(0, 2, size=(50, graph.n_variables))
    learn(graph, rows, name, budget=Budget(seconds=_SECONDS, iterations=3))


def _run_machine() -> None:
    import numpy as np

    from kikuchi.boltzmann import RBM

    rows = np.random.default_rng(0).integers(0, 2, size=(50, 16)).astype(float)
    machine = RBM(n_components=8, max_iter=1, random_state=0).fit(rows)
    machine.log_z(method="ais", betas=10)
    machine.sample(2)


def _run_sources() -> None:
    import numpy as np

    from kikuchi.ica import MeanFieldICA

    rows = np.random.default_rng(0).laplace(size=(200, 3))
    MeanFieldICA(n_components=2, max_iter=3, random_state=0).fit(rows)


def _run_questions() -> None:
    """Queries, draws and tables of cases, by trees and by messages side by side."""
    from kikuchi.engines.trees.calibrated import plan
    from kikuchi.queries.most_probable import most_probable
    from kikuchi.queries.predict import predict_proba
    from kikuchi.queries.query import query

    model = _mixed_model()
    for state in (0, 1):
        query(model, [0], evidence={3: state}, likelihood={5: [0.5, 1.0, 0.2]})
    most_probable(model, {3: 0}, best=2)
    plan(model).calibrate().sample(2, seed=0)
    for method in ("exact", "bp"):
        predict_proba(model, {"x1": [0, 1, 2], "x4": [0, 1, None]}, [0], method=method)


def _run_states() -> None:
    """Gaussian states in time, filtered, smoothed and learnt, and labels one by one."""
    import numpy as np

    from kikuchi.temporal import LinearGaussianSSM, ProbitFilter

    rows = np.cumsum(np.random.default_rng(0).normal(size=(40, 2)), axis=0)
    LinearGaussianSSM(n_components=2, max_iter=2).fit(rows).smooth(rows)
    labels = (rows[:, 0] > rows[:, 1]).astype(np.int64)
    ProbitFilter(drift=1e-3).partial_fit(rows, labels).predict_proba(rows)


def _run_chains() -> None:
    """Hidden Markov chains, one and several."""
    import numpy as np

    from kikuchi.temporal import HMM, FactorialHMM

    rows = np.random.default_rng(0).normal(size=(40, 2))
    HMM(2, max_iter=2, random_state=0).fit(rows).predict(rows)
    FactorialHMM(n_states=(2, 2), max_iter=2, random_state=0).fit(rows)


def _run_belief_networks() -> None:
    """Sigmoid, threshold and noisy-or networks."""
    import numpy as np

    from kikuchi.beliefnets import (
        NoisyOrNetwork,
        SigmoidBeliefNetwork,
        ThresholdNetworkClassifier,
    )

    rows = np.random.default_rng(0).integers(0, 2, size=(40, 4))
    SigmoidBeliefNetwork(hidden_layer_sizes=(2,), max_iter=1, random_state=0).fit(rows)
    ThresholdNetworkClassifier(hidden_layer_sizes=2, C=1, random_state=0).fit(rows, rows[:, 0])
    net = NoisyOrNetwork.from_parameters([0.1, 0.2], [[2.0, 0.5], [0.0, 3.0]], [0.01, 0.02])
    net.infer({0: 1})


_FAMILIES: dict[str, Callable[[], None]] = {
    "questions": _run_questions,  # first: at once with a method it would compile the same loops
    "mean field ICA": _run_sources,
    "Gaussian states in time": _run_states,
    "Boltzmann machines": _run_machine,
    "belief networks": _run_belief_networks,
    "hidden Markov chains": _run_chains,
}
