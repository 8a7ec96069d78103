"""Ctrl-C between and inside the runs of a portfolio."""

from __future__ import annotations

import pytest

import kikuchi as kk
from kikuchi.brackets import log_z_bounds
from kikuchi.methods.mean_field import MeanField
from kikuchi.methods.tree_reweighted import TreeReweighted


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_before_a_method_iterates_keeps_the_bounds_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = kk.grid(4, 4, seed=0)
    log_z_bounds.load_loops(log_z_bounds.LOOPS, kk.grid(2, 2, seed=0))
    monkeypatch.setattr(TreeReweighted, "_solve", interrupt)
    found = log_z_bounds.bounds(grid, budget=kk.Budget(seconds=5.0))
    assert found.lower_method == "mf"
    assert found.lower <= kk.infer(grid, "jt").log_z
    assert not any(step.method.startswith("wmb") for step in found.history)


def test_an_interrupt_with_nothing_to_keep_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    log_z_bounds.load_loops(log_z_bounds.LOOPS, kk.grid(2, 2, seed=0))
    monkeypatch.setattr(MeanField, "_solve", interrupt)
    with pytest.raises(KeyboardInterrupt):
        log_z_bounds.bounds(kk.grid(4, 4, seed=0), budget=kk.Budget(seconds=5.0))


def test_an_interrupt_while_loops_load_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kikuchi.methods.method.MethodRun.record", interrupt)
    with pytest.raises(KeyboardInterrupt):
        log_z_bounds._load_loops.__wrapped__(("trw",), False)
