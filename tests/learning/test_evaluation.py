"""Scores of a model on rows: exact, between bounds, with missing cells, or unknown."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.learning.evaluation import evaluate
from kikuchi.learning.local.conditionals import pseudo_log_likelihood
from oracle import enumerate_exact


def test_exact_scores() -> None:
    graph = kk.grid(3, 3, seed=0)
    rows = kk.plan(graph).calibrate().sample(50, seed=0)
    score = evaluate(graph, rows)
    log_z, singles, _ = enumerate_exact(graph)
    assert score.log_likelihood == pytest.approx(graph.log_score(rows).mean() - log_z, abs=1e-9)
    assert score.pseudo == pytest.approx(pseudo_log_likelihood(graph, rows), abs=1e-9)
    distances = [
        np.abs(singles[v] - np.bincount(rows[:, v], minlength=2) / 50).sum() for v in range(9)
    ]
    assert score.marginal_l1 == pytest.approx(np.mean(distances), abs=1e-9)


def test_bounds_where_exact_does_not_fit() -> None:
    graph = kk.generate.complete(40, seed=0, coupling=0.1)
    rows = np.random.default_rng(0).integers(0, 2, (20, 40))
    score = evaluate(graph, rows, budget=Budget(bytes=10_000_000, seconds=1))
    assert score.log_likelihood is None
    assert score.lower is not None and score.upper is not None and score.lower < score.upper
    bounds = kk.bounds(graph, budget=Budget(bytes=10_000_000, seconds=1))
    mean = graph.log_score(rows).mean()
    assert score.lower <= mean - bounds.lower + 1e-9
    assert score.upper >= mean - bounds.upper - 1e-9


def test_a_hidden_part_that_does_not_fit_is_unknown_not_an_error() -> None:
    graph = kk.generate.complete(40, seed=0, coupling=0.1)
    rows = np.full((3, 40), -1)
    rows[:, 0] = [0, 1, 1]
    score = evaluate(graph, rows, budget=Budget(bytes=10_000_000, seconds=1))
    assert score.log_likelihood is None and score.lower is None and score.upper is None
    assert score.pseudo is None
