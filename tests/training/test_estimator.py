"""The shell of estimators: options are described where people look for them, and equal data give
equal answers.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from safetensors import safe_open
from sklearn.base import clone

from kikuchi.beliefnets import SigmoidBeliefNetwork
from kikuchi.boltzmann import RBM, BoltzmannMachine, RateCodedRBM
from kikuchi.core.errors import DataError
from kikuchi.ica import BayesianICA, InfomaxICA, MeanFieldICA
from kikuchi.temporal import HMM


@pytest.mark.parametrize(
    "estimator", [RBM, BoltzmannMachine, RateCodedRBM, MeanFieldICA, BayesianICA, InfomaxICA]
)
def test_help_lists_every_option_with_its_meaning_and_default(estimator: type) -> None:
    document = estimator.__doc__ or ""
    assert document.count("Parameters\n----------") == 1
    for field in dataclasses.fields(estimator):
        (line,) = [words for words in document.splitlines() if words.startswith(f"{field.name} : ")]
        assert field.metadata["help"] in line and f"Default: {field.default!r}." in line


@pytest.mark.parametrize("estimator", [RBM, SigmoidBeliefNetwork, InfomaxICA, MeanFieldICA])
def test_words_in_place_of_numbers_are_refused_with_a_way_out(estimator: type) -> None:
    words = [["red", "1"], ["blue", "2"], ["red", "3"]]
    with pytest.raises(DataError, match=r"takes numbers, 'red' is none.*OneHotEncoder"):
        estimator().fit(words)


def test_options_that_are_tuples_come_back_as_tuples(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (30, 4)).astype(float)
    for limits in ((0.0, 255.0), [0.0, 255.0]):
        machine = RBM(2, limits=limits, max_iter=1, random_state=0).fit(rows)
        machine.save(tmp_path / "m.safetensors")
        found = RBM.load(tmp_path / "m.safetensors").get_params()["limits"]
        assert found == limits and type(found) is type(limits)


@pytest.mark.parametrize(
    "estimator",
    [
        RBM(2, max_iter=3, random_state=0),
        SigmoidBeliefNetwork((2,), max_iter=3, random_state=0),
        InfomaxICA(max_iter=4, random_state=0),
        HMM(2, max_iter=3, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_the_digest_of_a_file_does_not_depend_on_the_time(estimator: Any, tmp_path: Path) -> None:
    """Two fits with the same seed, of which one is slowed down."""
    rows = (np.random.default_rng(0).random((40, 3)) < 0.5).astype(np.float64)
    headers = []
    for name in ("quick", "slow"):
        fitted = clone(estimator).fit(rows)
        if name == "slow":
            fitted.trace_.seconds[:] = [2.0 * s + 1.0 for s in fitted.trace_.seconds]
        fitted.save(tmp_path / name)
        with safe_open(str(tmp_path / name), framework="np") as content:
            headers.append(content.metadata())
    assert headers[0]["digest"] == headers[1]["digest"]
    assert headers[0]["times"] != headers[1]["times"]
    again = type(estimator).load(tmp_path / "slow")
    assert again.trace_.seconds == fitted.trace_.seconds


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("n_hidden", "'n_hidden'; it is called n_components here"),
        ("n_iter", "it is called max_iter here"),
        ("learning_rat", "did you mean 'learning_rate'"),
    ],
)
def test_options_of_other_libraries_are_named(option, hint):
    import pickle

    from sklearn.base import clone

    from kikuchi.boltzmann import RBM

    with pytest.raises(TypeError, match=hint):
        RBM(**{option: 3})
    machine = RBM(3, random_state=0)
    assert clone(machine).n_components == pickle.loads(pickle.dumps(machine)).n_components == 3
