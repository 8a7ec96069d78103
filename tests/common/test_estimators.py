"""Every estimator, with the data of the table: seeds, containers, files, resuming, limits of time,
questions, samples and refusals.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pkgutil
import re
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kikuchi
from common.estimators import (
    FAMILIES,
    QUESTIONS,
    Killed,
    learnt,
    numbers,
    questions,
    quietly,
    same,
    saving,
)
from kikuchi.core.errors import KikuchiError
from kikuchi.training.estimator import Estimator, FitResults
from kikuchi.training.kinds import all_kinds

pytestmark = pytest.mark.filterwarnings("ignore")
EARLY = ("seconds", "converged", "validation", "unresolved")
NAMES = [name for name, family in FAMILIES.items()]
WAYS = [
    pytest.param(name, way, id=" ".join([name, *map(str, way.values())]))
    for name, family in FAMILIES.items()
    for way in family.ways
]
RESUMED = [case for case in WAYS if FAMILIES[case.values[0]].resumable]
each_family = pytest.mark.parametrize("name", NAMES)
each_way = pytest.mark.parametrize(("name", "way"), WAYS)


@functools.cache
def fitted(name: str) -> Any:
    with quietly():
        return FAMILIES[name].fit()


@functools.cache
def answers(name: str) -> dict[str, Any]:
    with quietly():
        return dict(questions(FAMILIES[name], fitted(name)))


def one_line(raised: Any) -> str:
    text = str(raised.value)
    assert isinstance(raised.value, ValueError) and text and "\n" not in text, text
    return text


def test_the_table_has_every_estimator() -> None:
    public: list[Any] = []
    for module in pkgutil.iter_modules(kikuchi.__path__, "kikuchi."):
        if module.name.rpartition(".")[2] not in ("cli", "reproduce", "__main__"):
            home = import_module(module.name)
            public += [getattr(home, name) for name in getattr(home, "__all__", ())]
    classes = [c for c in public if isinstance(c, type) and issubclass(c, Estimator)]
    kinds = {c.__name__ for c in classes if not inspect.isabstract(c)}
    baselines = {"LaplaceMLPRegressor", "SampledMLPRegressor"}  # without files, limits and resuming
    assert kinds == {f.kind.__name__ for f in FAMILIES.values()} | baselines
    assert kinds == {kind.class_name for kind in all_kinds().values()}


# ---------------------------------------------------------------------- fits


@each_family
def test_a_seed_repeats_in_any_container(name: str, tmp_path: Path) -> None:
    """Data frames, single precision and columns that lie one after the other are the same data."""
    pandas = pytest.importorskip("pandas")
    family, whole = FAMILIES[name], fitted(name)
    rows, *others = family.data
    columns = [f"column {k}" for k in range(rows.shape[1])]
    before = rows.copy()
    with quietly():
        framed = family.fit(pandas.DataFrame(rows, columns=columns), *others)
        single = family.fit(np.asfortranarray(rows.astype(np.float32)), *others)
    assert not hasattr(single, "feature_names_in_")
    assert whole.n_features_in_ == rows.shape[1]
    assert same(learnt(whole), learnt(framed)) == same(learnt(whole), learnt(single)) == []
    assert np.array_equal(rows, before)
    framed.save(tmp_path / "model")
    other = pandas.DataFrame(rows, columns=columns[::-1])
    question = next(q for q in QUESTIONS if hasattr(framed, q))
    for model in (framed, family.kind.load(tmp_path / "model")):
        assert list(model.feature_names_in_) == columns
        with quietly(), pytest.raises(ValueError, match=r"feature names|has columns"):
            getattr(model, question)(other)


@each_family
def test_a_fit_says_how_it_ended(name: str) -> None:
    whole = fitted(name)
    assert whole.converged_ == (whole.stopped_ in ("converged", "validation", "once"))
    assert whole.converged_ or whole.warnings_ or whole.stopped_ == "epochs"
    assert all("\n" not in text for text in whole.warnings_)
    assert whole.n_iter_ >= 1 and len(whole.trace_) >= 1
    assert set(FitResults.__annotations__) - {"row_scaling_"} <= set(vars(whole))


@pytest.mark.parametrize(("name", "way"), RESUMED)
def test_a_fit_that_was_cut_ends_as_the_whole_one(
    name: str, way: dict[str, Any], tmp_path: Path
) -> None:
    """Ctrl-C leaves a marked result, a killed process its last checkpoint; so does the time limit.
    A fit that has ended takes no further step.
    """
    family, place = FAMILIES[name], tmp_path / "fit"
    with quietly():
        whole = family.fit(**way) if way else fitted(name)
        with saving() as saves:
            kept = family.fit(checkpoint=tmp_path / "whole", **way)
        assert same(learnt(whole), learnt(kept)) == []
        assert saves.count >= 2
        short = family.fit(checkpoint=place, seconds=1e-9, **way)
        assert not short.converged_ and short.n_iter_ <= whole.n_iter_
        with saving(1 + saves.count // 3, "interrupted"):
            cut = family.fit(checkpoint=place, **way)
        assert not cut.converged_
        assert cut.stopped_ == "interrupted"
        assert any("interrupt" in text for text in cut.warnings_)
        with saving(max(1, saves.count // 3), "killed"), pytest.raises(Killed):
            family.fit(checkpoint=place, **way)
        for _ in range(2):
            again = family.fit(checkpoint=place, **way)
            assert same(learnt(whole), learnt(again)) == []
            assert (again.stopped_, again.converged_) == (whole.stopped_, whole.converged_)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("name", [n for n in NAMES if FAMILIES[n].resumable])
def test_a_checkpoint_belongs_to_one_fit(name: str, tmp_path: Path) -> None:
    family, place = FAMILIES[name], tmp_path / "fit"
    other = FAMILIES["blood" if name != "blood" else "thresholds"]
    rows, *others = family.data
    changed = rows[::-1].copy()
    with quietly():
        with saving(1, "killed"), pytest.raises(Killed):
            family.fit(checkpoint=place)
        for make in (
            lambda: family.fit(checkpoint=place, random_state=1),
            lambda: family.fit(changed, *others, checkpoint=place),
            lambda: other.fit(checkpoint=place),
        ):
            with pytest.raises(KikuchiError, match="another training") as raised:
                make()
            assert str(place) in one_line(raised)


@pytest.mark.parametrize("name", [n for n in NAMES if FAMILIES[n].limit])
def test_seconds_leave_a_marked_result(name: str) -> None:
    family = FAMILIES[name]
    endless = {family.limit: 10**6} | ({"tol": 1e-300} if "tol" in family.names else {})
    with quietly():
        short = family.fit(seconds=0.02, **endless)
    assert short.stopped_ in EARLY
    assert short.converged_ == (short.stopped_ in ("converged", "validation"))
    if short.stopped_ == "seconds":
        assert short.warnings_
    assert all(np.isfinite(a).all() for n, a in learnt(short).items() if "trace/" not in n)


# ---------------------------------------------------------------------- files


@each_way
def test_a_file_gives_the_estimator_back(name: str, way: dict[str, Any], tmp_path: Path) -> None:
    family, place = FAMILIES[name], tmp_path / "model"
    with quietly():
        whole = family.fit(**way) if way else fitted(name)
    whole.save(place)
    again = family.kind.load(place)
    assert same(learnt(whole), learnt(again)) == []
    for attribute in ("n_iter_", "stopped_", "converged_", "warnings_", "n_features_in_"):
        assert getattr(again, attribute) == getattr(whole, attribute), attribute
    assert again.get_params(deep=False) == whole.get_params(deep=False)
    assert same(whole.trace_.arrays(), again.trace_.arrays()) == []
    assert again.trace_.objective_name == whole.trace_.objective_name
    assert whole.trace_.objective_name != "objective" or np.isnan(whole.trace_.objective).all()
    for attribute, value in vars(whole).items():
        plain = isinstance(value, str | int | float | np.ndarray)
        if attribute.endswith("_") and plain:
            assert np.array_equal(getattr(again, attribute), value), attribute
    with quietly():
        asked = dict(questions(family, whole)) if way else answers(name)
        assert same(asked, dict(questions(family, again))) == []
    other = FAMILIES["labels" if name != "labels" else "HMM"].kind
    with pytest.raises(KikuchiError, match=r"expected|not ") as raised:
        other.load(place)
    assert str(place) in one_line(raised)
    place.write_bytes(place.read_bytes()[:-9])
    with pytest.raises(KikuchiError) as raised:
        family.kind.load(place)
    assert str(place) in one_line(raised)


@each_family
def test_nothing_is_asked_before_the_fit(name: str, tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    family = FAMILIES[name]
    made = family.make()
    for question in QUESTIONS:
        if hasattr(family.kind, question) and hasattr(made, question):
            with pytest.raises(NotFittedError) as raised:
                getattr(made, question)(*family.data[: 1 + (question == "score")])
            one_line(raised)
    asked = {
        "forecast": lambda: made.forecast(family.data[0], 2),
        "sample": lambda: made.sample(2, random_state=0),
    }
    for question, ask in asked.items():
        if hasattr(made, question):
            with pytest.raises(NotFittedError):
                ask()
    with pytest.raises(NotFittedError):
        made.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# ---------------------------------------------------------------------- questions


@each_family
def test_a_question_asked_twice_has_one_answer(name: str) -> None:
    with quietly():
        again = dict(questions(FAMILIES[name], fitted(name)))
    assert answers(name) and same(answers(name), again) == []
    for question, found in again.items():
        assert not any(np.isnan(a).any() for a in found if a.dtype.kind == "f"), question


@each_family
def test_a_score_is_the_mean_of_the_scores_of_rows(name: str) -> None:
    found = answers(name)
    if "score" not in found:
        pytest.skip("it has no score")
    rows, *others = FAMILIES[name].data
    if others and "predict_proba" in found:
        expected = np.mean(fitted(name).predict(rows) == others[0])
    elif others:
        return  # R^2, which is scikit-learn's own
    elif "score_samples" in found and found["score_samples"][0].dtype.kind == "f":
        assert found["score_samples"][0].shape == (len(rows),)
        expected = found["score_samples"][0].mean()
    else:
        pytest.skip("its score is no mean")
    assert found["score"][0] == pytest.approx(expected, rel=1e-6)


@each_family
def test_samples_have_the_shape_of_the_rows(name: str) -> None:
    model, (rows, *_) = fitted(name), FAMILIES[name].data
    if not hasattr(model, "sample"):
        pytest.skip("it draws no samples")
    with quietly():
        draws = [model.sample(7, random_state=seed) for seed in (1, 1, 2)]
    assert draws[0].shape == (7, rows.shape[1]) and np.isfinite(draws[0]).all()
    assert np.array_equal(draws[0], draws[1]) and not np.array_equal(draws[0], draws[2])
    assert model.sample(random_state=1).shape == (1, rows.shape[1])
    if "return_latents" in inspect.signature(model.sample).parameters:
        with quietly():
            again, latents = model.sample(7, random_state=1, return_latents=True)
        assert np.array_equal(again, draws[0]) and len(latents) == 7


@each_family
def test_one_row_is_answered_as_among_others(name: str) -> None:
    family, model, found = FAMILIES[name], fitted(name), answers(name)
    if hasattr(model, "forecast"):
        with quietly():
            alone = dict(questions(dataclasses.replace(family, data=(family.data[0][:1],)), model))
        assert np.isfinite(alone["score"][0])
        return
    with quietly():
        for question in ("predict", "predict_proba", "transform", "score_samples"):
            if question in found:
                (one,) = numbers(getattr(model, question)(family.data[0][4:5]))
                (many,) = found[question]
                assert one.shape == (1, *many.shape[1:])
                np.testing.assert_allclose(one[0], many[4], rtol=1e-4, atol=1e-5, err_msg=question)


# ---------------------------------------------------------------------- refusals


def wrong_rows(rows: Any) -> dict[str, Any]:
    """What is no table of numbers."""
    texts = rows.astype(object)
    texts[1, 1] = "many"
    return {
        "three axes": rows[None, None],
        "no rows": rows[:0],
        "no columns": rows[:, :0],
        "texts": texts,
        "complex": rows + 1j,
    }


@each_family
def test_rows_that_are_none_are_refused(name: str) -> None:
    family = FAMILIES[name]
    rows, *others = family.data
    for what, bad in wrong_rows(rows).items():
        y = [other[: len(bad)] for other in others]
        with quietly(), pytest.raises((ValueError, TypeError)) as raised:
            family.fit(bad, *y)
            pytest.fail(what)
        assert str(raised.value), what
    with quietly():
        try:
            family.fit(rows[:1], *(other[:1] for other in others))
        except ValueError as error:  # else one row is enough
            assert str(error)
    model = fitted(name)
    wide = np.hstack([rows, rows[:, :1]])
    for question in QUESTIONS:
        if hasattr(model, question):
            for bad in (wide, rows[:, :-1]):
                with quietly(), pytest.raises(ValueError, match=r"feature|column|width") as raised:
                    getattr(model, question)(bad, *(others if question == "score" else ()))
                one_line(raised)


@each_family
def test_missing_and_infinite_numbers_are_taken_or_refused(name: str) -> None:
    """Those that learn from gaps say so in their tags."""
    family = FAMILIES[name]
    rows, *others = family.data
    refused = r"(?i)nan|inf|finite|missing"
    for odd in (np.nan, np.inf):
        bad = rows.copy()
        bad[3, 1] = odd
        with quietly():
            if np.isnan(odd) and family.make().__sklearn_tags__().input_tags.allow_nan:
                found = learnt(family.fit(bad, *others))
                assert all(np.isfinite(a).all() for n, a in found.items() if "trace/" not in n)
            else:
                with pytest.raises(ValueError, match=refused):
                    family.fit(bad, *others)
            for question in filter(partial(hasattr, fitted(name)), QUESTIONS):
                given = (bad, *(others if question == "score" else ()))
                try:
                    found = numbers(getattr(fitted(name), question)(*given))
                    found = [a for a in found if a.dtype.kind == "f"]
                    assert all(np.isfinite(a).all() for a in found), question
                except ValueError as error:
                    assert re.search(refused, str(error)), question


@each_family
def test_options_out_of_range_are_refused_by_name(name: str) -> None:
    family = FAMILIES[name]
    for f in dataclasses.fields(family.kind):
        limits = {k: f.metadata.get(k) for k in ("low", "above", "high", "below")}
        least, most = (
            next((limits[k] for k in pair if limits[k] is not None), None)
            for pair in (("low", "above"), ("high", "below"))
        )
        wrong = [object(), *([] if least is None else [least - 1])]
        wrong += [] if most is None else [most + 1]
        if limits["above"] is not None:
            wrong.append(limits["above"])
        if f.name in ("progress", "random_state"):
            wrong = []
        for value in wrong:
            with quietly(), pytest.raises(ValueError, match=f.name) as raised:
                family.fit(**{f.name: value})
            one_line(raised)
    with pytest.raises(KikuchiError, match="no option 'colour'") as raised:
        family.make(colour="red")
    one_line(raised)
