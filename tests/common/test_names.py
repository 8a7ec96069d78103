"""One signature for one thing: the names of options and questions, in every estimator."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np
import pytest

from common.estimators import FAMILIES, quietly
from common.test_estimators import fitted
from kikuchi.bayesnn import LaplaceMLPRegressor, SampledMLPRegressor
from kikuchi.core.errors import UnavailableError, UnknownOptionError
from kikuchi.training.option_names import OTHER_NAMES

CLASSES: list[Any] = [
    *{family.kind: None for family in FAMILIES.values()}, LaplaceMLPRegressor, SampledMLPRegressor
]  # fmt: skip
OURS = {"n_components", "density"}  # names of our own that other classes give to other things
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
each_family = pytest.mark.parametrize("name", FAMILIES)


def options(cls: Any) -> set[str]:
    return {f.name for f in dataclasses.fields(cls) if f.init}


@each_class
def test_no_option_has_a_name_that_is_refused_elsewhere(cls: Any) -> None:
    assert options(cls) & OTHER_NAMES.keys() <= OURS
    assert {"random_state", "verbose", "progress"} <= options(cls)


@each_class
def test_a_name_of_another_library_is_refused_with_ours(cls: Any) -> None:
    own = options(cls)
    for other, ours in OTHER_NAMES.items():
        here = [name for name in ours if name in own]
        if other not in own and here:
            with pytest.raises(UnknownOptionError, match=f"'{other}'; it is called {here[0]} here"):
                cls(**{other: 1})


@each_class
def test_questions_have_one_signature(cls: Any) -> None:
    """The data are `X`; `sample` takes a number of rows, and all else by name."""
    for question in ("fit", "predict", "predict_proba", "transform", "score_samples", "score"):
        if hasattr(cls, question):
            first = list(inspect.signature(getattr(cls, question)).parameters)[1]
            assert first == "X", question
    if hasattr(cls, "sample"):
        _, first, *rest = inspect.signature(cls.sample).parameters.values()
        assert (first.name, first.default) == ("n_samples", 1)
        assert {p.kind for p in rest} == {inspect.Parameter.KEYWORD_ONLY}
        assert "random_state" in {p.name for p in rest}


def test_no_name_is_a_method_of_one_class_and_an_attribute_of_another() -> None:
    """Options, properties and what a fit leaves behind, as far as classes declare it."""
    methods: dict[str, str] = {}
    values: dict[str, str] = {}
    for cls in CLASSES:
        values |= dict.fromkeys(options(cls), cls.__name__)
        for base in cls.__mro__:
            values |= dict.fromkeys(vars(base).get("__annotations__", {}), cls.__name__)
        for member in (m for m in dir(cls) if not m.startswith("_")):
            found = getattr(cls, member)  # of a descriptor the function that it holds
            kind = methods if callable(found) and not isinstance(found, type) else values
            kind[member] = cls.__name__
    both = {m: (methods[m], values[m]) for m in methods.keys() & values.keys()}
    assert not both and "sample" in methods and "n_iter_" in values
    assert not [m for m in methods if m.endswith("_")]  # these are what a fit leaves behind


@each_family
def test_scores_of_the_rows_of_a_sequence_add_up_to_its_likelihood(name: str) -> None:
    model, family = fitted(name), FAMILIES[name]
    if not hasattr(model, "forecast"):
        pytest.skip("its rows are independent")
    if type(model).__name__ in ("FactorialHMM", "FrameHoppingHMM", "TemporalICA"):
        assert not hasattr(model, "score_samples")
        with pytest.raises(UnavailableError, match="whole sequences only"):
            model.score_samples(family.data[0])
        return
    rows = family.data[0][:20]
    with quietly():
        scores = model.score_samples(rows)
        assert scores.sum() == pytest.approx(model.filter(rows).log_likelihood, rel=1e-7)
        first = model.score_samples(rows[:5])
    np.testing.assert_allclose(first, scores[:5], rtol=1e-6)  # given the past alone
    if "lengths" in inspect.signature(model.score_samples).parameters:
        joined = model.score_samples(rows, lengths=[5, 15])
        apart = np.concatenate(model.score_samples([rows[:5], rows[5:]]))
        np.testing.assert_array_equal(joined, apart)
