"""Contrastive divergence and its relatives: expected updates by enumeration, recovery, resuming.

Rows TEH-L4 (brief Gibbs) and TEH-L8 (contrastive divergence) on graphs of any tables.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import MethodError
from kikuchi.learning.data import Data
from kikuchi.learning.graph_model import GraphModel
from kikuchi.learning.local.contrastive import (
    BriefGibbs,
    ContrastiveDivergence,
    PersistentDivergence,
    SampledGraphRule,
)
from kikuchi.learning.ties import FeatureMatrix
from kikuchi.methods.gibbs import conditional
from kikuchi.training.checkpoint import Checkpoint
from kikuchi.training.model import load_model, save_model
from oracle import random_model

LEARNERS = [ContrastiveDivergence, PersistentDivergence, BriefGibbs]


def _rows(graph: kk.FactorGraph, count: int, seed: int = 0) -> np.ndarray:
    return kk.plan(graph).calibrate().sample(count, seed=seed)


def _blank(graph: kk.FactorGraph) -> kk.FactorGraph:
    return graph.with_log_tables(np.where(np.isneginf(graph.log_tables), -np.inf, 0.0))


def _swept(graph: kk.FactorGraph, p: np.ndarray) -> np.ndarray:
    """The distribution after one sweep in order, by enumeration of every transition."""
    shape = tuple(int(c) for c in graph.cardinalities)
    p = p.reshape(shape)
    for v in range(graph.n_variables):
        new = np.zeros(shape)
        for state in np.ndindex(shape):
            q = conditional(graph, v, np.array(state))
            for x, share in enumerate(q):
                moved = list(state)
                moved[v] = x
                new[tuple(moved)] += p[state] * share
        p = new
    return p


def _factor_means(graph: kk.FactorGraph, p: np.ndarray) -> np.ndarray:
    parts = []
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        joint = p.sum(axis=tuple(v for v in range(graph.n_variables) if v not in scope))
        parts.append(np.transpose(joint, np.argsort(np.argsort(scope))).ravel())
    return np.concatenate(parts)


def test_the_expected_update_of_cd_is_data_minus_one_sweep() -> None:
    graph = random_model(np.random.default_rng(1), 3, 4, 2, 3, scale=1.0)
    rows = np.repeat(_rows(graph, 25), 4000, axis=0)  # many copies: the mean over chains is sharp
    learner = ContrastiveDivergence(batch=len(rows))
    data, rng, rule = Data.of(rows, graph), np.random.default_rng(0), learner._rule()
    model = GraphModel(graph, data=data)
    state, every = rule.begin(model, data.weights, rng), np.arange(len(rows))
    update = rule.gradient(model, data.weights, every, state, rng).ascent["theta"]
    counts = Data.of(rows, graph).counts(range(graph.n_variables)) / len(rows)
    expected = _factor_means(graph, counts) - _factor_means(graph, _swept(graph, counts))
    np.testing.assert_allclose(update, expected, atol=5 * 0.5 / np.sqrt(len(rows)))
    assert np.abs(expected).max() > 0.02


@pytest.mark.parametrize("learner", LEARNERS)
def test_recovers_a_grid(learner: Any) -> None:
    truth = kk.grid(3, 3, seed=4, coupling=0.5, field=0.3)
    rows = _rows(truth, 4000)
    fit = learner(max_iter=40).fit(_blank(truth), rows)
    assert fit.converged, fit
    from kikuchi.learning.likelihood.gradient import GradientML

    best = GradientML(inference="jt").fit(_blank(truth), rows).log_likelihood
    assert fit.log_likelihood > best - 0.02


@pytest.mark.parametrize("learner", LEARNERS)
def test_hidden_variables(learner: Any) -> None:
    """A hidden variable explains the coupling of its neighbours."""
    star = kk.boltzmann_graph({(0, 3): 3.0, (1, 3): 3.0, (2, 3): 3.0}, [-1.5, -1.5, -1.5, -4.5])
    rows = _rows(star, 1500)
    rows[:, 3] = -1
    rng = np.random.default_rng(0)
    start = star.with_log_tables(0.3 * rng.normal(size=star.log_tables.size))
    fit = learner(max_iter=60, learning_rate=0.3).fit(start, rows)
    observed = Data.of(rows[:, :3])
    pair = observed.counts([0, 1]) / len(rows)
    joint = kk.plan(fit.graph).calibrate().joint([0, 1])
    assert np.abs(joint - pair).max() < 0.06
    assert pair[1, 1] - pair[1].sum() * pair[:, 1].sum() > 0.1  # strongly coupled
    assert joint[1, 1] - joint[1].sum() * joint[:, 1].sum() > 0.06


def test_restarting_brief_gibbs() -> None:
    truth = kk.grid(2, 2, seed=4, coupling=0.5, field=0.3)
    fit = BriefGibbs(restart=True, sweeps=10).fit(_blank(truth), _rows(truth, 1000))
    start = kk.infer(_blank(truth), "jt").flat_factors
    wanted = kk.infer(truth, "jt").flat_factors
    found = kk.infer(fit.graph, "jt").flat_factors
    assert np.abs(found - wanted).max() < 0.5 * np.abs(start - wanted).max()


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("missing", [False, True])
def test_ctrl_c_in_the_middle_of_an_update_and_resumed_is_the_same_fit(
    learner: Any, missing: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The chains have moved and the parameters have not: that state must not be saved."""
    truth = kk.grid(3, 3, seed=4)
    rows = _rows(truth, 150)
    if missing:
        rows[np.random.default_rng(0).random(rows.shape) < 0.2] = -1
    chosen = learner(max_iter=6, batch=40, seed=3)
    whole = chosen.fit(_blank(truth), rows, score=False)
    calls, original = 0, SampledGraphRule.unpenalised

    def cut(self: SampledGraphRule, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        answer = original(self, *arguments)
        if calls == 10:
            raise KeyboardInterrupt
        return answer

    place = tmp_path / "fit.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(SampledGraphRule, "unpenalised", cut)
        patch.setattr(Checkpoint, "due", True)
        broken = chosen.fit(_blank(truth), rows, checkpoint=place, score=False)
    assert broken.stopped == "interrupted" and not broken.converged and place.exists()
    resumed = chosen.fit(_blank(truth), rows, checkpoint=place, score=False)
    assert np.array_equal(resumed.graph.log_tables, whole.graph.log_tables)


def test_ctrl_c_from_the_keyboard_keeps_the_last_whole_update(tmp_path: Path) -> None:
    truth = kk.grid(3, 3, seed=4)
    rows = _rows(truth, 400)
    chosen = PersistentDivergence(max_iter=30, batch=40, seed=3)
    whole = chosen.fit(_blank(truth), rows, score=False)
    place = tmp_path / "fit.safetensors"
    calls, original = 0, SampledGraphRule.unpenalised

    def pressed(self: SampledGraphRule, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 25:
            signal.raise_signal(signal.SIGINT)
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SampledGraphRule, "unpenalised", pressed)
        broken = chosen.fit(_blank(truth), rows, checkpoint=place, score=False)
    assert broken.stopped == "interrupted" and place.exists()
    resumed = chosen.fit(_blank(truth), rows, checkpoint=place, score=False)
    assert np.array_equal(resumed.graph.log_tables, whole.graph.log_tables)


def test_the_last_parameters_instead_of_their_mean() -> None:
    truth = kk.grid(3, 3, seed=4, coupling=0.5, field=0.3)
    rows = _rows(truth, 4000)
    mean, last = (
        ContrastiveDivergence(max_iter=40, average=average).fit(_blank(truth), rows, score=False)
        for average in (True, False)
    )
    assert mean.converged and last.converged  # both are judged by the second half
    assert mean.diagnostics["moment_difference"] == last.diagnostics["moment_difference"]
    assert not np.array_equal(mean.graph.log_tables, last.graph.log_tables)
    assert np.abs(mean.graph.log_tables - last.graph.log_tables).max() < 0.3


def test_convergence_with_an_l1_penalty_counts_the_penalty() -> None:
    """Nonzero parameters balance l1 at the optimum: the gradient alone does not vanish there."""
    truth = kk.grid(2, 2, seed=4, coupling=0.5, field=0.3)
    fit = PersistentDivergence(l1=0.05, max_iter=100, chains=400).fit(
        _blank(truth), _rows(truth, 2000)
    )
    assert fit.converged, fit
    gradient = Data.of(_rows(truth, 2000), truth).factor_counts(truth) / 2000
    gradient -= kk.infer(fit.graph, "jt").flat_factors
    large = np.abs(fit.graph.log_tables) > 0.2
    assert large.sum() >= 4
    assert gradient[large] == pytest.approx(0.05 * np.sign(fit.graph.log_tables[large]), abs=0.01)


def test_a_graph_model_comes_back_from_its_file(tmp_path: Path) -> None:
    graph = random_model(np.random.default_rng(0), 4, 5)
    for model in (
        GraphModel(graph),
        GraphModel(kk.grid(2, 2, seed=1), ties="shape"),
        GraphModel(graph, features=FeatureMatrix(np.ones((graph.log_tables.size, 2)))),
    ):
        model.theta[:] += np.random.default_rng(1).normal(size=model.theta.shape)
        save_model(tmp_path / "model.safetensors", model)
        again, _ = load_model(tmp_path / "model.safetensors", GraphModel)
        assert np.array_equal(again.tables, model.tables)
        assert again.describe() == model.describe()


def test_weights_count_as_copies() -> None:
    pair = kk.FactorGraph([2, 2], [((0, 1), np.ones(4))])
    data = Data.of([[0, 0], [1, 1], [0, 1], [1, 0]], pair, weights=[4.0, 4.0, 1.0, 0.0])
    fit = PersistentDivergence(l2=0.02, max_iter=400).fit(pair, data)
    table = kk.infer(fit.graph, "enumerate").factor(0)
    assert table[0, 0] > 0.3 and table[1, 1] > 0.3 and table[1, 0] < 0.15


def test_zeros_stay_and_are_told() -> None:
    graph = kk.FactorGraph([2, 3], [((0, 1), [[1, 0, 1], [1, 1, 1]])])
    fit = ContrastiveDivergence(max_iter=5).fit(graph, [[0, 0], [1, 1], [1, 2], [0, 2]])
    assert fit.graph.table(0)[0, 1] == 0.0
    assert any("zeros" in warning for warning in fit.warnings)
    with pytest.raises(MethodError, match="variable 1 is hidden and factor 0 has zeros"):
        ContrastiveDivergence().fit(graph, [[0, -1], [1, 1]])


def test_l1_gives_exact_zeros() -> None:
    truth = kk.grid(3, 3, seed=4)
    fit = ContrastiveDivergence(l1=0.05, average=False, max_iter=20).fit(
        _blank(truth), _rows(truth, 300)
    )
    assert np.mean(fit.graph.log_tables == 0) > 0.1


def test_a_fit_cut_short_says_so() -> None:
    truth = kk.grid(3, 3, seed=4)
    fit = ContrastiveDivergence().fit(truth, _rows(truth, 300), budget=Budget(iterations=3))
    assert not fit.converged and fit.stopped == "iterations"
    assert any("ended after 3 of 60 epochs" in warning for warning in fit.warnings)
