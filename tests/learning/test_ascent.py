"""Objectives without a finite maximum, line searches that get stuck, traces of resumed fits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.ascent import Ascent
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun
from kikuchi.learning.local.pseudo import PseudoLikelihood
from kikuchi.learning.registry import learn
from kikuchi.learning.ties import FeatureMatrix, Parameters

PAIR = FactorGraph([2, 2], [((0, 1), np.ones(4))], names=["cause", "effect"])
# the effect never without its cause: one state of the pair is never seen
IMPLIED = np.repeat([[0, 0], [1, 0], [1, 1]], (30, 20, 50), axis=0)

RING = FactorGraph([2] * 3, [((0, 1), np.ones(4)), ((1, 2), np.ones(4)), ((0, 2), np.ones(4))])
# never all alike: every state of every pair occurs, yet the moments lie on a facet of the polytope
FRUSTRATED = np.array([x for x in itertools.product((0, 1), repeat=3) if 0 < sum(x) < 3] * 20)

VOTE = FactorGraph([2] * 4, [((i, 3), np.ones(4)) for i in range(3)] + [((3,), np.ones(2))])
# the last variable is the majority of the others
MAJORITY = np.array([(*x, int(sum(x) > 1)) for x in itertools.product((0, 1), repeat=3)] * 20)


@pytest.mark.parametrize(
    "text",
    [
        "pseudo",
        "pseudo:ties=0",
        "gradient",
        "gradient:inference=bp",
        "gradient:solver=adam,tol=0.02",
        "em:tol=1e-3",
        "surrogate",
        "mf-trw",
    ],
)
def test_a_state_that_no_row_shows_leaves_no_maximum(text: str) -> None:
    fit = learn(PAIR, IMPLIED, text)
    assert not fit.converged and fit.stopped != "converged"
    (warning,) = [w for w in fit.warnings if "no finite maximum" in w]
    assert "cause=0, effect=1 in factor 0" in warning and "no row shows that state" in warning
    assert "l2=0.01" in warning


@pytest.mark.parametrize(
    ("graph", "rows", "text"),
    [
        (RING, FRUSTRATED, "pseudo"),
        (RING, FRUSTRATED, "gradient"),
        (VOTE, MAJORITY, "gradient:inputs=(0,1,2)"),
    ],
)
def test_separable_data_without_an_empty_state_are_noticed(
    graph: FactorGraph, rows: np.ndarray, text: str
) -> None:
    fit = learn(graph, rows, text)
    assert not fit.converged and fit.stopped == "diverged"
    assert any("the data are separable" in warning for warning in fit.warnings)
    mend = "," if ":" in text else ":"
    mended = learn(graph, rows, f"{text}{mend}l2={1 / len(rows):.1g}")
    assert mended.converged and not any("finite" in w for w in mended.warnings)
    largest = [np.abs(found.graph.log_tables).max() for found in (mended, fit)]
    assert largest[0] < 0.7 * largest[1]


def test_the_advised_penalty_mends_the_prediction_of_other_rows() -> None:
    truth = kk.grid(3, 3, seed=2, coupling=0.8)
    rows = kk.plan(truth).calibrate().sample(520, seed=0)
    few, others = rows[:20], rows[20:]
    fits = [learn(truth, few, f"pseudo:l2={l2}") for l2 in (0.0, 1 / 20)]
    nll = [kk.infer(f.graph, "jt").log_z - np.mean(f.graph.log_score(others)) for f in fits]
    assert not fits[0].converged and fits[1].converged
    assert nll[1] < nll[0] - 1.0


@pytest.mark.parametrize("text", ["pseudo", "gradient"])
def test_a_maximum_is_a_maximum(text: str) -> None:
    """States that are rare, that zeros forbid, or that no row could show raise no alarm."""
    rare = np.repeat([[0, 0], [1, 0], [1, 1], [0, 1]], (500, 299, 200, 1), axis=0)
    assert learn(PAIR, rare, text).converged
    forbidden = FactorGraph([2, 2], [((0, 1), [[1, 0], [1, 1]]), ((0,), [1, 1])])
    assert learn(forbidden, IMPLIED, text).converged
    elsewhere = FactorGraph([2, 2], [((0, 1), [[1, 0], [1, 1]]), ((1, 0), np.ones(4))])
    assert learn(elsewhere, IMPLIED, text).converged


def test_features_that_no_row_has() -> None:
    learner = kk.learning.GradientML(features=FeatureMatrix([[0.0], [1.0], [0.0], [0.0]]))
    fit = learner.fit(PAIR, IMPLIED)
    assert not fit.converged and "cause=0, effect=1" in fit.warnings[0]
    signed = kk.learning.GradientML(features=FeatureMatrix([[1.0], [-1.0], [-1.0], [0.0]]))
    assert signed.fit(PAIR, IMPLIED).converged


def test_hidden_variables_hide_what_is_never_seen() -> None:
    rows = IMPLIED.copy()
    rows[::2, 0] = -1
    fit = learn(PAIR, rows, "gradient:tol=1e-4")
    assert not any("no row shows" in warning for warning in fit.warnings)


def test_a_line_search_that_is_stuck_has_not_converged() -> None:
    graph = FactorGraph([2], [((0,), [1, 1])])
    data = Data.of([[0], [1]], graph)

    def wrong(tables: np.ndarray) -> tuple[float, np.ndarray]:
        return -float(tables @ tables), np.array([5e-6, 0.0])  # no gradient of this value

    run = FitRun(PseudoLikelihood(), graph, (data.states,), None, None, None)
    learned = Ascent(graph, data, Parameters(graph), wrong).maximise(run, tol=1e-6, limit=100)
    assert not learned.converged and run.stopped == "diverged"
    assert "no better point" in learned.warnings[0] and "5.0e-06" in learned.warnings[0]
