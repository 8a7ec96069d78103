"""Pseudo-likelihood of a large grid: the rows are counted once, then the tables are fitted."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

import kikuchi as kk
from benchmarks.common import Row
from kikuchi.core import seeds
from kikuchi.engines.sampling.sweepers import make_sweeper
from kikuchi.graphs.graph_arrays import flatten
from kikuchi.learning.data import Data
from kikuchi.learning.local.pseudo import PseudoLikelihood

_SWEEPS = 10


def rows() -> Iterator[Row]:
    """100 by 100 binary variables, 10 000 rows of Gibbs chains, tables from zero."""
    small = kk.grid(3, 3)
    PseudoLikelihood().fit(small, np.eye(9, dtype=int), score=False)  # loads the compiled loops
    truth = kk.grid(100, 100, seed=1, coupling=0.5, field=0.3)
    data = _chains(truth, 10_000)
    start = truth.with_log_tables(np.zeros_like(truth.log_tables))
    began = time.process_time()
    fit = PseudoLikelihood().fit(start, data, score=False)
    seconds = time.process_time() - began
    yield Row(
        "pseudo-likelihood, 100x100 grid, 10 000 rows, to a slope of 1e-6",
        seconds,
        "s",
        None,
        "",
        "<= 10 s",
        seconds <= 10.0 and fit.converged,
        f"{fit.iterations} steps, {fit.diagnostics['local_configurations']} configurations",
    )


def _chains(graph: kk.FactorGraph, count: int) -> Data:
    """The states of many chains after a few sweeps, one a row."""
    n = graph.n_variables
    sweeper = make_sweeper(graph, flatten(graph), count, np.arange(n))
    sweeper.set(np.random.default_rng(0).integers(0, 2, (n, count)))
    sweeper.seed(seeds.kernel_seeds(0, count))
    sweeper.burn(_SWEEPS)
    states = np.ascontiguousarray(sweeper.states.reshape(n, count).T.astype(np.int32))
    return Data(states, np.ones(count), graph.cardinalities.astype(np.int64))
