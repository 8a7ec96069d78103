"""The measured speed of propagation: kept beside the compiled loops, and harmless without them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.inference.trees import speed


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "speed.json"
    monkeypatch.setattr(speed, "_place", lambda: path)
    speed.measured.cache_clear()
    yield path
    speed.measured.cache_clear()


def test_it_is_measured_once_and_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = speed.measured()
    speed.measured.cache_clear()
    monkeypatch.setattr(speed, "_measure", lambda: pytest.fail("measured twice"))
    assert speed.measured() == first
    assert all(x > 0 for x in first)


@pytest.mark.parametrize("text", ["", "{}", '{"few": "x"}', "[1]", '{"few": 1e9}'])
def test_a_damaged_file_is_measured_anew(place: Path, text: str) -> None:
    place.write_text(text)
    assert all(0 < x < 1 for x in speed.measured())
    assert "many" in place.read_text()


def test_a_folder_that_is_not_there_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "_place", lambda: tmp_path / "missing" / "speed.json")
    speed.measured.cache_clear()
    assert speed.measured().few > 0
    speed.measured.cache_clear()


def test_cliques_of_many_states_are_priced_by_what_they_take() -> None:
    graph = kk.grid(5, 5, states=14, seed=0)
    plan = kk.plan(graph)
    kinds = speed.clique_kinds(plan.found_tree)
    assert np.all(kinds[plan.found_tree.clique_size > 1e4] == 2)
    kk.infer(graph, "jt:order=min-fill")
    begin = time.process_time()
    kk.infer(graph, "jt:order=min-fill")
    taken = time.process_time() - begin
    price = kk.plan(graph, order="min-fill").seconds(speed.measured())
    assert taken / 3 < price < 3 * taken
