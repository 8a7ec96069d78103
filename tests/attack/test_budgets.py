"""The attack on budgets sees what it looks for: methods with a planted fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import kikuchi as kk
from attack import budgets
from attack.budgets import _models, _processor_time, faults
from kikuchi.core.errors import KikuchiError

GRID = kk.grid(3, 3, seed=0)


def slow(budget: Any) -> None:
    """Takes half as long again as it may."""
    begin = time.process_time()
    while time.process_time() < begin + 1.5 * budget.seconds:
        pass


def large(budget: Any) -> None:
    """Takes twice the memory that it may."""
    np.ones(budget.bytes // 4)


def refusing(budget: Any) -> None:
    slow(budget)
    raise KikuchiError("no time is left")


def found(fault: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the attack says of a method that does this."""

    def infer(graph: Any, name: str, *, evidence: Any, budget: Any) -> None:
        if graph is GRID:  # and not the small model that loads the loops
            fault(budget)

    monkeypatch.setattr(budgets.kk, "infer", infer)
    with _processor_time(), threadpool_limits(1):
        return faults("a grid", GRID, "bp", 0.7, 100_000_000)


def test_a_sound_method_has_no_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(lambda budget: None, monkeypatch) == []


@pytest.mark.parametrize(
    ("fault", "seen"),
    [(slow, "took 1.0"), (large, "took 200 MB"), (refusing, "which ended with: no time is left")],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_fault_is_seen(
    fault: Callable[[Any], None], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = found(fault, monkeypatch)
    assert len(lines) == 1 and lines[0].startswith("bp on a grid") and seen in lines[0]


def test_a_fault_of_a_single_run_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def once(budget: Any) -> None:
        runs.append(1)
        if len(runs) == 1:
            slow(budget)

    assert found(once, monkeypatch) == [] and len(runs) == 2


def test_a_model_of_a_million_variables_is_on_the_list() -> None:
    assert max(make().n_variables for label, make in _models() if "1000x1000" in label) == 10**6


def test_scaling_of_very_many_observed_marginals_holds_its_seconds() -> None:
    chain = "a chain of 100000"  # 11,112 of its variables are observed
    with _processor_time(), threadpool_limits(1):
        assert faults(chain, dict(_models())[chain](), "gis", 0.5, 400_000_000) == []
