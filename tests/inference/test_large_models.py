"""Limits of time on models whose set-up alone takes longer than the limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import kikuchi as kk
from attack.budgets import relational
from kikuchi.core import budget as core_budget
from kikuchi.core.errors import OutOfTimeError
from kikuchi.graphs.appearances import sampled_appearances
from kikuchi.graphs.elimination import eliminate
from kikuchi.inference.messages.belief_propagation import BeliefPropagation


@pytest.fixture
def processor_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks count the seconds of the processor, so that other programs do not matter."""
    monkeypatch.setattr(core_budget, "time", SimpleNamespace(perf_counter=time.process_time))
    yield


@pytest.fixture(scope="module")
def large() -> kk.FactorGraph:
    return kk.grid(1000, 1000, coupling=1.0, seed=0)


def seconds_of(graph: kk.FactorGraph, method: str, seconds: float) -> tuple[float, object]:
    """Seconds of the processor that a run takes, and its beliefs or its error."""
    begin = time.process_time()
    try:
        found: object = kk.infer(graph, method, seconds=seconds, memory="6GB")
    except OutOfTimeError as error:
        found = error
    return time.process_time() - begin, found


@pytest.mark.parametrize("method", ["auto", "wmb", "trw", "gbp", "tap", "alpha"])
@pytest.mark.usefixtures("processor_time")
def test_a_million_variables_take_no_longer_than_allowed(
    large: kk.FactorGraph, method: str
) -> None:
    kk.infer(kk.grid(4, 4, seed=0), method, seconds=20)  # loads the compiled loops
    taken, _ = seconds_of(large, method, 1.0)
    assert taken <= 1.3


@pytest.mark.slow
@pytest.mark.usefixtures("processor_time")
def test_auto_bounds_a_million_variables_in_five_seconds(large: kk.FactorGraph) -> None:
    kk.infer(kk.grid(40, 40, seed=0), "auto", seconds=2)
    taken, found = seconds_of(large, "auto", 5.0)
    assert isinstance(found, kk.Beliefs) and taken <= 5.5
    assert found.log_z_lower is not None and found.log_z_upper is not None
    assert found.log_z_lower <= found.log_z_upper


@pytest.mark.usefixtures("processor_time")
def test_auto_gives_bounds_however_little_time_there_is() -> None:
    for graph in (relational(60), kk.grid(60, 60, seed=0), kk.complete(40, coupling=0.5, seed=0)):
        kk.infer(graph, "auto", seconds=0.05)
        found = kk.infer(graph, "auto", seconds=1e-3)
        assert found.log_z_lower is not None and found.log_z_upper is not None
        better = kk.infer(graph, "auto", seconds=1.0)
        assert found.log_z_lower <= better.log_z_upper
        assert better.log_z_lower <= found.log_z_upper


def test_forests_end_with_an_error_where_the_time_is_over() -> None:
    graph = relational(20)
    calls = iter([False, False, True, True, True])
    with pytest.raises(OutOfTimeError, match=r"after 2 random forests \d+ factors"):
        sampled_appearances(graph, 100, np.random.default_rng(0), lambda: next(calls))


def test_an_elimination_is_given_up_after_its_effort() -> None:
    graph = kk.grid(60, 60, seed=0)
    assert eliminate(graph).complete
    cut = eliminate(graph, most_effort=1e4)
    assert not cut.complete and cut.given_up and cut.effort < 1e5


def test_small_models_have_no_least_time(large: kk.FactorGraph) -> None:
    assert BeliefPropagation().least_seconds(kk.grid(10, 10)) == 0.0
    assert BeliefPropagation().least_seconds(large) > 1.0
    with pytest.raises(OutOfTimeError, match=r"bp takes about .* on a model of 1000000 variables"):
        kk.infer(large, "bp", seconds=0.2)


def test_a_model_without_variables_has_no_beliefs() -> None:
    assert kk.infer(kk.FactorGraph([], []), "jt").variable_beliefs == []
