"""Files that are signed and wrong: what was found once stays mended, and the attack sees faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attack.resigned import (
    UNCHANGED,
    Subject,
    checkpoints_always,
    faults,
    interrupted,
    learned,
    mutations,
    trained,
)
from common.estimators import FAMILIES
from kikuchi.core.errors import DataError
from kikuchi.training import checkpoint as files

KIND = "kikuchi example"


def example(use: Any) -> Subject:
    """A file of one array and one fact."""

    def make(place: Path) -> None:
        files.save(place, KIND, {"mean": np.ones((2, 3))}, {"rows": 7})

    return Subject(make, use, KIND)


def test_every_array_and_every_fact_is_changed() -> None:
    arrays = {"mean": np.ones((2, 3)), "count": np.array(3), "trace/seconds": np.ones(2)}
    facts = {"about": {"options": {"tol": 0.1}, "sizes": [4, 5], "arrays": {}}}
    changed = [what for what, _, _ in mutations(arrays, facts)]
    assert len(set(changed)) == len(changed)
    for name in ("mean", "count", "about.options.tol", "about.sizes.0", "about"):
        assert f"{name} left out" in changed
    assert not any(what.startswith(("trace", "about.arrays")) for what in changed)
    for _, now, then in mutations(arrays, facts):
        equal = now.keys() == arrays.keys() and all(
            now[n].dtype == a.dtype and np.array_equal(now[n], a) for n, a in arrays.items()
        )
        assert not (equal and repr(then) == repr(facts))


def test_a_reader_that_checks_is_sound_and_one_that_does_not_is_seen(tmp_path: Path) -> None:
    def careful(place: Path) -> None:
        arrays, facts = files.load(place, (KIND,))
        with files.reading(place, "an example"):
            files.check_like(arrays, {"mean": np.ones((2, 3))})
            files.of_type(facts, "rows", int)

    def careless(place: Path) -> None:
        arrays, facts = files.load(place, (KIND,))
        if not np.isfinite(arrays["mean"] @ np.ones((3, facts["rows"]))).all():
            raise ArithmeticError("the product is NaN")

    def strict(place: Path) -> None:
        raise DataError("no file is good enough")

    tried, found = faults(example(careful), tmp_path)
    assert tried > 15 and found == []
    _, found = faults(example(careless), tmp_path)
    seen = {fault.split(": ")[0]: fault.split(": ")[1] for fault in found}
    assert seen["mean left out"] == seen["rows left out"] == "KeyError"
    assert seen["mean one wider"] == "ValueError" and seen["mean with nan"] == "ArithmeticError"
    assert seen["rows is 'odd'"] == "TypeError"
    _, found = faults(example(strict), tmp_path)
    assert found == [f"{UNCHANGED}: refused: no file is good enough"]


@pytest.mark.parametrize("text", ["em", "gradient:inference=bp", "ipf"])
def test_checkpoints_of_learners(text: str, tmp_path: Path) -> None:
    with checkpoints_always():
        tried, found = faults(learned(text), tmp_path, 50)
    assert tried > 40 and found == []


@pytest.mark.parametrize("make", [trained, interrupted])
@pytest.mark.parametrize("name", ["thresholds", "infomax", "noisy ICA", "Bayesian ICA"])
def test_models_and_checkpoints_of_estimators(name: str, make: Any, tmp_path: Path) -> None:
    with checkpoints_always():
        tried, found = faults(make(FAMILIES[name]), tmp_path, 50)
    assert tried > 40 and found == []
