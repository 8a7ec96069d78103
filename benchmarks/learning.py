"""Learning: the clamped phase, EM beside pgmpy, and gradient learning of a grid."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

import kikuchi as kk
from benchmarks.common import Row, cpu_seconds
from kikuchi.graphs.directed import ancestral_sample
from kikuchi.learning.data import Data
from kikuchi.learning.likelihood.clamped import ClampedRows
from kikuchi.learning.likelihood.em import EM
from kikuchi.learning.likelihood.gradient import GradientML


def rows() -> Iterator[Row]:
    yield from clamped_phase()
    yield from beside_pgmpy()
    yield from grid_epoch()


def clamped_phase() -> Iterator[Row]:
    """10 000 rows with 30% of the cells missing: the same cells, then other cells in each row."""
    grid = kk.grid(15, 15, seed=0)
    rng = np.random.default_rng(0)
    states = rng.integers(2, size=(10_000, 225))
    states[:, rng.random(225) < 0.3] = -1
    yield _per_row("15x15 grid, 30% of the variables hidden", grid, states)
    net = kk.example("asia")
    states = ancestral_sample(net, 10_000, seed=0)
    states[rng.random(states.shape) < 0.3] = -1
    yield _per_row("asia, 30% of the cells missing at random", net, states)


def _per_row(what: str, graph: kk.FactorGraph, states: np.ndarray) -> Row:
    many, one = (ClampedRows(graph, Data.of(part, graph)) for part in (states, states[:1]))
    many.statistics(graph.log_tables)
    batched = cpu_seconds(lambda: many.statistics(graph.log_tables), 3) / len(states)
    alone = cpu_seconds(lambda: one.statistics(graph.log_tables), 20)
    return Row(
        f"clamped phase, {what}, per row of 10 000",
        batched * 1e6,
        "us",
        alone * 1e6,
        "one row alone, its tree built before",
        "<= 2 x",
        batched <= 2 * alone,
        f"{len(many.groups)} trees",
    )


# ---------------------------------------------------------------------- pgmpy


def beside_pgmpy() -> Iterator[Row]:
    try:
        import pgmpy.estimators  # noqa: F401
    except ImportError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield _frequencies(2000)
        yield _frequencies(50_000)
        yield _hidden_class()


def _frequencies(n_rows: int) -> Row:
    from pandas import DataFrame
    from pgmpy.estimators import MaximumLikelihoodEstimator

    net = kk.example("asia")
    states = ancestral_sample(net, n_rows, seed=0)
    frame = DataFrame(states, columns=list(net.names))
    start = net.with_log_tables(np.where(np.isneginf(net.log_tables), -np.inf, -1.0))
    learner = EM()

    def theirs() -> list:
        return MaximumLikelihoodEstimator(_pgmpy_model(net), frame).get_parameters(n_jobs=1)

    fit = learner.fit(start, states, score=False)
    found = {cpd.variable: cpd for cpd in theirs()}
    seen = [
        (_table_of(found[net.names[c]], net, net.names[c]), fit.graph.table(a))
        for a, c in _families(net)
    ]
    off = max(float(np.abs(a - b).max()) for a, b in seen)
    seconds = cpu_seconds(lambda: learner.fit(start, states, score=False), 9)
    what = f"frequencies of asia, {n_rows} complete rows, all in"
    return _beside(what, seconds, cpu_seconds(theirs, 3), off)


def _hidden_class() -> Row:
    from pandas import DataFrame
    from pgmpy.estimators import ExpectationMaximization
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork

    rng = np.random.default_rng(0)
    names = ["h", *(f"x{k}" for k in range(6))]
    factors = [((0,), [0.4, 0.6])]
    factors += [((0, k), rng.dirichlet([1, 1, 1], size=2)) for k in range(1, 7)]
    net = kk.FactorGraph([2] + [3] * 6, factors, children=list(range(7)), names=names)
    states = ancestral_sample(net, 1000, seed=0)
    frame = DataFrame(states[:, 1:], columns=names[1:])
    states[:, 0] = -1
    model = DiscreteBayesianNetwork([("h", x) for x in names[1:]], latents={"h"})
    start = {"h": TabularCPD("h", 2, [[0.4], [0.6]])}
    for k, name in enumerate(names[1:], start=1):
        table = np.exp(net.log_table(k)).T
        start[name] = TabularCPD(name, 3, table, ["h"], [2])
    turns = 5

    def theirs() -> list:
        return ExpectationMaximization(model, frame).get_parameters(
            latent_card={"h": 2},
            max_iter=turns,
            atol=0.0,
            n_jobs=1,
            show_progress=False,
            init_cpds=dict(start),
        )

    learner = EM(max_iter=turns, tol=0.0)
    fit = learner.fit(net, states, score=False)
    found = {cpd.variable: cpd for cpd in theirs()}
    off = max(
        float(np.abs(_table_of(found[name], fit.graph, name) - fit.graph.table(k)).max())
        for k, name in enumerate(names)
    )
    seconds = cpu_seconds(lambda: learner.fit(net, states, score=False), 3)
    return _beside("EM of a hidden class, 1000 rows, 5 turns", seconds, cpu_seconds(theirs, 1), off)


def _beside(what: str, ours: float, theirs: float, off: float) -> Row:
    return Row(
        what,
        ours * 1e3,
        "ms",
        theirs * 1e3,
        "pgmpy",
        "<= 0.05 x pgmpy, same tables",
        ours <= 0.05 * theirs and off < 1e-6,
        f"{theirs / ours:.0f} x faster, tables differ by {off:.0e}",
    )


def _families(net: kk.FactorGraph) -> list[tuple[int, int]]:
    return [(a, int(c)) for a, c in enumerate(net.children)]


def _pgmpy_model(net: kk.FactorGraph):
    from pgmpy.models import DiscreteBayesianNetwork

    edges = [
        (net.names[v], net.names[c]) for a, c in _families(net) for v in net.scope(a) if v != c
    ]
    model = DiscreteBayesianNetwork(edges)
    model.add_nodes_from(net.names)
    return model


def _table_of(cpd, graph: kk.FactorGraph, name: str) -> np.ndarray:
    """pgmpy's table of a variable with axes and states as our factor has them."""
    factor = next(a for a, c in _families(graph) if graph.names[c] == name)
    order = [graph.names[v] for v in graph.scope(factor)]
    table = np.transpose(cpd.values, [cpd.variables.index(v) for v in order])
    for axis, v in enumerate(order):
        states = [int(x) for x in cpd.state_names[v]]
        table = np.take(table, np.argsort(states), axis=axis)
    return table


# ---------------------------------------------------------------------- LIU-E11


def grid_epoch() -> Iterator[Row]:
    """4000 rows of a 15x15 grid with strong couplings: exact and Kikuchi learning."""
    truth = kk.grid(15, 15, seed=3, field=0.1)
    sample = kk.plan(truth).calibrate().sample(5000, seed=5)
    rows, held_out = sample[:4000], sample[4000:]
    flat = truth.with_log_tables(np.zeros(truth.log_tables.size))
    scores = {}
    for name, text in (("exact", "exact"), ("Kikuchi", "kikuchi:regions=faces,tol=1e-6")):
        learner = GradientML(inference=text, tol=2e-3, max_iter=100, memory=30)
        fits = []
        spent = cpu_seconds(
            lambda fits=fits, f=learner: fits.append(f.fit(flat, rows, score=False)), 1
        )
        scores[name] = _nll(fits[-1].graph, held_out)
        seconds = spent / fits[-1].diagnostics["evaluations"]
        above = scores[name] - scores["exact"]
        yield Row(
            f"LIU-E11, 15x15 grid, 4000 rows, {name} learning, one epoch",
            seconds,
            "s",
            target="<= 1 s, NLL within 0.3 of exact",
            met=seconds <= 1 and above <= 0.3,
            note=f"test NLL {scores[name]:.3f}, {above:+.3f} from exact",
        )


def _nll(graph: kk.FactorGraph, rows: np.ndarray) -> float:
    return float(kk.infer(graph, "jt:order=min-fill").log_z - np.mean(graph.log_score(rows)))
