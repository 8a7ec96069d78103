"""TEH-E11 in its quick setting: what the thesis found is found again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from kikuchi.core.errors import DataError
from kikuchi.learning.scaling.targets import Targets
from kikuchi.plots import to_svg
from kikuchi_experiments import Outcome, reproduce
from kikuchi_experiments.teh2003.learning import (
    LearnedDigits,
    augmented_tree,
    edge_solution,
    eights,
    measured,
)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return reproduce("TEH-E11", quick=True, seeds=2, processes=1)


def test_every_row_agrees(outcome: Outcome) -> None:
    rows = outcome.rows()
    assert [row for row in rows if row.agrees is False] == [] and len(rows) == 9
    assert sum(row.agrees is True for row in rows) == 6


def test_curves_end_at_maximum_likelihood(outcome: Outcome) -> None:
    for one in outcome.finished:
        graphs, exact = one.result["graphs"], one.result["exact"]
        assert [g["clique"] for g in graphs] == list(range(2, one.result["tree_clique"] + 1))
        assert graphs[-1]["log_likelihood"] == pytest.approx(exact["log_likelihood"], abs=1e-6)
        assert all(g["log_likelihood"] <= exact["log_likelihood"] + 1e-5 for g in graphs)
        assert exact["l1"] < 1e-7 < graphs[0]["l1"]


def test_figure(outcome: Outcome) -> None:
    figure = outcome.figure()
    assert len(figure.axes) == 2 and "junction" in to_svg(figure)


def test_the_images() -> None:
    images = eights()
    assert images.states.shape == (174, 64) and set(np.unique(images.states)) == {0, 1}


def test_networks_cover_all_pixels_and_differ_by_seed() -> None:
    images = eights()
    one, other = (augmented_tree(images, 0.1, seed) for seed in (0, 1))
    assert set(one.scopes.tolist()) == set(range(64)) and one != other
    assert set(np.diff(one.scope_offsets)) == {1, 2}


def test_edge_solution_has_the_bethe_form() -> None:
    """prod p_a / prod p_i^(n_i - 1) at one state, computed here from the counts."""
    images = eights()
    graph = augmented_tree(images, 0.05, 0)
    targets = Targets.of(graph, images, smoothing=1.0)
    state = images.states[3]
    wanted = 0.0
    held = np.zeros(64)
    single = np.zeros(64)
    for a in range(graph.n_factors):
        table = targets.table(a)
        scope = graph.scope(a)
        wanted += np.log(table[tuple(state[v] for v in scope)])
        for k, v in enumerate(scope):
            held[v] += 1
            rest = tuple(j for j in range(len(scope)) if j != k)
            single[v] = np.log(table.sum(axis=rest)[state[v]])
    wanted -= float(((held - 1) * single).sum())
    model = graph.with_log_tables(edge_solution(targets))
    assert model.log_score(state) == pytest.approx(wanted, abs=1e-10)
    assert measured(model, targets, images)["l1"] < 0.2


def test_images_from_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    place = tmp_path / "eights.npy"
    np.save(place, rng.integers(0, 17, size=(30, 64)))
    images = eights(str(place))
    assert images.n_rows == 30 and images.states.max() == 1
    assert LearnedDigits(str(place)).cases({"shares": [0.1]}, [0])[0]["data"] == str(place)
    np.save(place, rng.integers(0, 2, size=(30, 9)))
    with pytest.raises(DataError, match="64 pixels"):
        eights(str(place))
