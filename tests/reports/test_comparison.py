"""Comparisons of methods: what their seconds are of."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import kikuchi as kk
from kikuchi.methods.belief_propagation import BeliefPropagation
from kikuchi.reports.comparison import compare


@pytest.mark.parametrize("loads", [True, False])
def test_a_run_that_loads_a_library_is_made_again(
    loads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, runs = kk.grid(3, 3, seed=0), []
    kk.infer(graph, "bp")  # what it loads by itself is there
    solve = BeliefPropagation._solve

    def loading(self: BeliefPropagation, *arguments: Any) -> Any:
        runs.append(self.text)
        if loads:
            monkeypatch.setitem(sys.modules, "a_library_of_this_test", ModuleType("a_library"))
        return solve(self, *arguments)

    monkeypatch.setattr(BeliefPropagation, "_solve", loading)
    result = compare(graph, ["bp"])
    assert len(runs) == (2 if loads else 1)
    assert result.rows[0].beliefs is not None
