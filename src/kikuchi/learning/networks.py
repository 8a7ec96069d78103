"""Learnt Bayesian networks: the score of their arrows, and their likelihood on held-out rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError, suggestion
from kikuchi.core.numerics import log, xlogy
from kikuchi.core.seeds import Seed, generator
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.evaluation import Score, evaluate, mean_log_weight
from kikuchi.learning.likelihood.dirichlet import ConditionalTables

SCORES = ("bic", "aic", "bdeu", "likelihood")


def structure_score(graph: FactorGraph, data: Data, score: str = "bic") -> float:
    """Score of the arrows of `graph` for complete rows, as `hill_climb` computes it.

    Parameters
    ----------
    graph : a directed model; its tables do not matter.
    data : complete rows over its variables.
    score : "bic", "aic", "bdeu" or "likelihood"; higher is better.

    >>> import kikuchi as kk
    >>> rows = kk.Data.of([[a, b, a & b] for a in (0, 1) for b in (0, 1)] * 50)
    >>> found = kk.learning.hill_climb(rows, "bic")
    >>> round(structure_score(found.graph, rows) - found.score, 9)
    0.0
    """
    if score not in SCORES:
        raise MethodError(f"there is no score '{score}'; {suggestion(score, SCORES)}")
    rows = data.distinct()
    rows.require_complete("the score of a structure")
    tables = ConditionalTables(graph.with_log_tables(np.zeros_like(graph.log_tables)))
    counts = rows.factor_counts(graph)
    if score == "bdeu":
        return tables.log_evidence(tables.pseudo_counts(1.0, "table"), counts)
    fitted = _log_likelihood(tables, counts)
    price = {"bic": np.log(rows.total) / 2, "aic": 1.0, "likelihood": 0.0}[score]
    return fitted - float(price) * (len(counts) - tables.n_rows)


def _log_likelihood(tables: ConditionalTables, counts: Array) -> float:
    sums = tables.row_sums(counts)[tables.row_of]
    return float((xlogy(counts, log(counts)) - xlogy(counts, log(sums))).sum())


def held_out_score(
    fit: Callable[[Data], FactorGraph],
    data: Data,
    share: float,
    *,
    seed: Seed = 0,
    budget: Budget | None = None,
) -> Score | None:
    """Mean log-likelihood of rows that were set aside, under the model of the others.

    Parameters
    ----------
    fit : from rows to a model; it is called once, with the rows that are not set aside.
    data : all rows.
    share : fraction of the rows to set aside, drawn at random.
    seed : of the draw.
    budget : limits for computing the likelihood.

    Returns
    -------
    Score or None
        None if the share is 0, or too small for a single row.
    """
    train, test = divided(data, share, seed)
    if test is None:
        return None
    graph, limit = fit(train), budget or Budget()
    rows = test.matched(graph)
    if not graph.is_directed:
        return evaluate(graph, rows, budget=limit)
    mean = mean_log_weight(graph, rows.distinct(), limit)  # log Z is 0
    return Score(rows.n_rows, mean, mean, mean)


def divided(data: Data, share: float, seed: Seed = 0) -> tuple[Data, Data | None]:
    """Rows to learn from, and a random part of the rows, None if it is empty.

    >>> [part.n_rows for part in divided(Data.of([[0], [1], [1], [0], [1]]), 0.4)]
    [3, 2]
    """
    if not 0.0 <= share < 1.0:
        raise DataError(f"hold_out must be a fraction from 0 up to 1, got {share:g}")
    aside = round(share * data.n_rows)
    if not aside:
        return data, None
    if aside == data.n_rows:
        raise DataError(f"hold_out {share:g} leaves none of {aside} rows to learn from")
    order = generator(seed).permutation(data.n_rows)
    parts = np.sort(order[aside:]), np.sort(order[:aside])
    train, test = (data.like(data.states[part], data.weights[part]) for part in parts)
    return train, test
