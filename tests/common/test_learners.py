"""Every learner, and the ways in which it works: cut fits, budgets, seeds, scores and refusals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import kikuchi as kk
from common.estimators import Killed, quietly, saving
from kikuchi.core.errors import KikuchiError, MethodError
from kikuchi.graphs.directed import ancestral_sample
from kikuchi.learning.registry import LEARNERS
from oracle import enumerate_exact


class Model(NamedTuple):
    """Where a learner starts, and rows for it."""

    graph: kk.FactorGraph
    rows: Any


def _directed(seed: int) -> kk.FactorGraph:
    """p(a) p(b | a) p(c | a, b) p(d | c)."""
    rng = np.random.default_rng(seed)
    tables = [
        ((0,), rng.dirichlet([2, 2])),
        ((1, 0), rng.dirichlet([2, 2, 2], size=2).T),
        ((0, 2, 1), rng.dirichlet([1, 1], size=(2, 3)).transpose(0, 2, 1)),
        ((2, 3), rng.dirichlet([2, 2, 2], size=2)),
    ]
    return kk.FactorGraph([2, 3, 2, 3], tables, children=[0, 1, 2, 3])


def _gaps(rows: Any) -> Any:
    return np.where(np.random.default_rng(0).random(rows.shape) < 0.2, -1, rows)


_TRUTH = kk.grid(2, 3, seed=4, coupling=0.8, field=0.3)
_ROWS = kk.plan(_TRUTH).calibrate().sample(150, seed=0)
_FLAT = _TRUTH.with_log_tables(np.zeros(_TRUTH.log_tables.size))
MODELS = {
    "complete": Model(_FLAT, _ROWS),
    "gaps": Model(_TRUTH, _gaps(_ROWS)),
    "directed": Model(_directed(5), _gaps(ancestral_sample(_directed(0), 100, seed=0))),
}
_REGIONS = "regions=faces,rate=0.01,learning_rate=0.05,max_iter=6"
_BATCHES = "max_iter=8,batch=40,seed=3"
CASES = [
    ("gradient", "complete"),
    ("gradient:tol=1e-8", "gaps"),
    ("gradient:inference=bp,tol=1e-6", "gaps"),
    ("gradient:inference=kikuchi,tol=1e-6", "gaps"),
    ("gradient:inference=trw,tol=1e-6", "gaps"),
    ("gradient:inference=bp,solver=adam,max_iter=6", "gaps"),
    ("gradient:l1=0.01", "gaps"),
    ("gradient:solver=adam,batch=40,max_iter=6", "gaps"),
    ("gradient:solver=sgd,batch=40,max_iter=6,learning_rate=0.5", "gaps"),
    ("em", "directed"),
    ("em:prior=1", "directed"),
    ("em:m_steps=3,tol=1e-4", "gaps"),
    ("vbem", "directed"),
    ("pseudo", "complete"),
    ("piecewise", "complete"),
    ("surrogate:energy=trw,start=graph,l2=0.01", "complete"),
    ("surrogate:energy=bethe,start=graph,l2=0.01", "complete"),
    ("mf-trw:l2=0.01", "gaps"),
    *((f"{name}:{_BATCHES}", data) for name in ("cd", "pcd", "brief-gibbs") for data in MODELS
      if data != "directed"),
    ("one-shot", "complete"),
    ("ups-jt", "complete"),
    ("ipf", "complete"),
    ("ipf:base=graph,form=tree", "complete"),
    ("gis:form=table", "complete"),
    ("gis:form=tree,smoothing=1.0", "complete"),
    ("iis:form=table", "complete"),
    ("iis:form=tree", "complete"),
    ("loopy-is:regions=faces,smoothing=1.0", "complete"),
    (f"min-max:{_REGIONS},network=none,model_steps=5,batch=60", "complete"),
    (f"min-max:{_REGIONS},embedding=16", "complete"),
    ("mf-trw-net:l2=0.01,max_iter=5", "gaps"),
]  # fmt: skip
EXACT = ("gradient", "ups-jt", "ipf", "gis", "iis")  # maximum likelihood of complete rows
each_case = pytest.mark.parametrize(("text", "model"), CASES)
each_learner = pytest.mark.parametrize("name", [n for n in LEARNERS if n != "auto"])


@functools.cache
def fitted(text: str, model: str) -> kk.Fit:
    graph, rows = MODELS[model]
    return kk.learn(graph, rows, text)


def case_of(name: str) -> tuple[str, str]:
    """The first case of a learner."""
    return next(case for case in CASES if case[0].partition(":")[0] == name)


def assert_same(one: kk.Fit, two: kk.Fit) -> None:
    assert np.array_equal(one.graph.log_tables, two.graph.log_tables)
    assert (one.iterations, one.stopped, one.converged, one.objective) == (
        two.iterations, two.stopped, two.converged, two.objective,
    )  # fmt: skip
    assert one.trace.iterations == two.trace.iterations
    assert np.array_equal(one.trace.objective, two.trace.objective, equal_nan=True)


def test_the_table_has_every_learner() -> None:
    assert {text.partition(":")[0] for text, _ in CASES} == {n for n in LEARNERS if n != "auto"}


# ---------------------------------------------------------------------- fits


@each_case
def test_a_fit_that_was_cut_ends_as_the_whole_one(text: str, model: str, tmp_path: Path) -> None:
    """By the number of iterations, by Ctrl-C, and by the end of the process. A fit that has ended
    takes no further step.
    """
    (graph, rows), whole = MODELS[model], fitted(text, model)
    if whole.iterations < 3:
        assert whole.iterations == 1  # in closed form
        return

    def fit(place: str, **options: Any) -> kk.Fit:
        return kk.learn(graph, rows, text, checkpoint=tmp_path / place, **options)

    with saving() as saves:
        assert_same(whole, fit("whole"))
    assert saves.count >= 3
    part = fit("cut", budget=kk.Budget(iterations=2))
    assert (part.stopped, part.converged, part.iterations) == ("iterations", False, 2)
    with saving(1 + saves.count // 3, "interrupted"):
        part = fit("cut")
    assert (part.stopped, part.converged) == ("interrupted", False)
    with saving(1, "killed"), pytest.raises(Killed):
        fit("cut")
    assert_same(whole, fit("cut"))
    assert_same(whole, fit("cut"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut", "whole"]
    with pytest.raises(KikuchiError, match=r"another training: its (rows|data)"):
        kk.learn(graph, rows[1:], text, checkpoint=tmp_path / "cut")


@each_case
def test_a_fit_is_the_same_twice_and_leaves_its_data_alone(text: str, model: str) -> None:
    graph, rows = MODELS[model]
    before = rows.copy(), graph.log_tables.copy()
    assert_same(fitted(text, model), kk.learn(graph, np.asfortranarray(rows), text))
    assert np.array_equal(rows, before[0]) and np.array_equal(graph.log_tables, before[1])


@each_case
def test_a_fit_says_how_it_ended(text: str, model: str) -> None:
    fit = fitted(text, model)
    assert fit.converged == (fit.stopped == "converged") or fit.warnings
    assert all("\n" not in warning for warning in fit.warnings)
    assert LEARNERS.parse(fit.learner) == LEARNERS.parse(text)
    assert fit.to_dict()["stopped"] == fit.stopped


@each_case
def test_the_score_is_the_enumerated_likelihood(text: str, model: str) -> None:
    (_, rows), fit = MODELS[model], fitted(text, model)
    log_z = enumerate_exact(fit.graph)[0]
    clamped = [fit.graph.clamp({v: int(k) for v, k in enumerate(r) if k >= 0}) for r in rows[:30]]
    with np.errstate(all="ignore"):
        expected = np.mean([enumerate_exact(graph)[0] - log_z for graph in clamped])
    found = kk.evaluate(fit.graph, rows[:30]).log_likelihood
    assert found == pytest.approx(expected, abs=1e-9)
    assert fit.log_likelihood == pytest.approx(kk.evaluate(fit.graph, rows).log_likelihood)
    name, value = fit.trace.objective_name, fit.objective
    assert value is None or np.isfinite(value)  # None where only bounds are known
    if name == "log-likelihood per row" and text in ("gradient", "em", "ups-jt", "ipf"):
        assert value == pytest.approx(fit.log_likelihood, abs=1e-6)
    if "lower bound" in name:
        assert value is not None and value <= fit.log_likelihood + 1e-9


@pytest.mark.parametrize("text", [text for text, _ in CASES if text.partition(":")[0] in EXACT])
def test_maximum_likelihood_matches_the_counts(text: str) -> None:
    if any(
        word in text for word in ("bp", "trw", "l1", "adam", "sgd", "smoothing", "base", "1e-8")
    ):
        return  # other optima, or rows with gaps
    _, rows = MODELS["complete"]
    fit = fitted(text, "complete")
    for a, table in enumerate(enumerate_exact(fit.graph)[2]):
        counts = np.zeros(table.shape)
        np.add.at(counts, tuple(rows[:, list(fit.graph.scope(a))].T), 1 / len(rows))
        np.testing.assert_allclose(table, counts, atol=2e-5)


@each_case
def test_seconds_leave_a_marked_fit(text: str, model: str) -> None:
    graph, rows = MODELS[model]
    fitted(text, model)
    fit = kk.learn(graph, rows, text, seconds=1e-9)
    assert fit.stopped in ("seconds", "converged") or fit.iterations == 1  # in closed form
    assert fit.converged == (fit.stopped == "converged")
    assert np.isfinite(fit.graph.log_tables).all()


# ---------------------------------------------------------------------- models and refusals


@each_learner
def test_zeros_stay_zero_or_are_refused(name: str) -> None:
    text, model = case_of(name)
    graph, rows = MODELS[model]
    possible = np.where(rows < 0, 0, rows) if model == "gaps" else rows
    a = next(
        a for a in range(graph.n_factors)
        if len(graph.scope(a)) == 2
        and (graph.children is None or graph.shape(a) == (2, 3))
    )  # fmt: skip
    first, second = graph.scope(a)
    possible = possible[~((possible[:, first] == 1) & (possible[:, second] == 1))]
    tables = [graph.table(b) for b in range(graph.n_factors)]
    tables[a] = tables[a].copy()
    tables[a][1, 1] = 0.0
    if graph.children is not None:
        axis = graph.scope(a).index(int(graph.children[a]))
        tables[a] /= tables[a].sum(axis=axis, keepdims=True)
    zero = kk.FactorGraph(
        graph.cardinalities,
        [(graph.scope(b), table) for b, table in enumerate(tables)],
        children=graph.children,
    )
    with quietly():
        try:
            fit = kk.learn(zero, possible, text)
        except KikuchiError as error:
            assert "zero" in str(error) and "\n" not in str(error)
            return
    assert fit.graph.table(a)[1, 1] == 0.0


@each_learner
def test_conditional_tables_stay_normalised_or_are_refused(name: str) -> None:
    graph, rows = MODELS["directed"]
    complete = ancestral_sample(graph, 40, seed=1)
    if name in ("em", "vbem", "gradient"):
        complete = rows
    text = case_of(name)[0].replace("start=graph,", "").replace("regions=faces,", "")
    with quietly():
        try:
            fit = kk.learn(graph, complete, text)
        except MethodError as error:
            assert "conditional" in str(error) and "use learner" in str(error)
            return
    if fit.graph.children is not None:
        for a, child in enumerate(fit.graph.children):
            sums = fit.graph.table(a).sum(axis=fit.graph.scope(a).index(int(child)))
            np.testing.assert_allclose(sums, 1.0, atol=1e-9)


@each_learner
def test_rows_that_are_no_data_are_refused(name: str) -> None:
    text, model = case_of(name)
    graph, rows = MODELS[model]
    wide, large, half = np.hstack([rows, rows[:, :1]]), rows.copy(), rows.astype(float)
    large[2, 1], half[2, 1] = 7, 0.5
    bad: dict[str, Callable[[], Any]] = {
        "wide": lambda: wide,
        "narrow": lambda: rows[:, :-1] if rows.shape[1] < 2 else np.zeros((2, 2, 2)),
        "no rows": lambda: rows[:0],
        "no such state": lambda: large,
        "half a state": lambda: half,
        "infinite": lambda: np.where(half == 0.5, np.inf, half),
        "weights": lambda: kk.Data.of(rows, graph, weights=np.zeros(len(rows))),
    }
    for what, make in bad.items():
        with pytest.raises(KikuchiError) as raised:
            kk.learn(graph, make(), text)
            pytest.fail(what)
        assert str(raised.value) and "\n" not in str(raised.value), what
    if not LEARNERS.find(name).takes_missing and model == "complete":
        with pytest.raises(KikuchiError, match="needs complete rows"):
            kk.learn(graph, MODELS["gaps"].rows, text)


@each_learner
def test_options_out_of_range_are_refused_by_name(name: str) -> None:
    kind = LEARNERS.find(name)
    for f in dataclasses.fields(kind):
        low, above = f.metadata.get("low"), f.metadata.get("above")
        high, below = f.metadata.get("high"), f.metadata.get("below")
        wrong = [bound - 1 for bound in (low, above) if bound is not None]
        wrong += [bound + 1 for bound in (high, below) if bound is not None]
        wrong += [] if above is None else [above]
        for value in wrong:
            with pytest.raises(MethodError, match=f.name) as raised:
                kind(**{f.name: value})
            assert "\n" not in str(raised.value)
    with pytest.raises(MethodError, match="colour"):
        LEARNERS.parse(f"{name}:colour=red")
