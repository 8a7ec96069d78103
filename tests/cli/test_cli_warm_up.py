"""`kikuchi warm-up`: every loop is compiled beforehand."""

from __future__ import annotations

import json

import pytest
from cli_runner import run

from kikuchi.cli.commands import warm_up
from kikuchi.core.compiled import njit
from kikuchi.learning.registry import LEARNERS
from kikuchi.methods.registry import METHODS


def test_every_method_and_learner_is_named_once() -> None:
    tasks = warm_up._tasks()
    assert len(set(tasks)) == len(tasks)
    assert {f"method {name}" for name in METHODS} <= set(tasks)
    assert {f"learner {name}" for name in LEARNERS} <= set(tasks)


def test_the_learner_of_directed_models_gets_rows_that_are_possible() -> None:
    warmed = warm_up._compile("learner vbem")
    assert (warmed.name, warmed.left_out) == ("learner vbem", "")


def test_the_command_says_what_is_ready_and_what_was_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warm_up, "_tasks", lambda: ["method enumerate", "method nonsense"])
    result = run("warm-up", "--processes", "1")
    assert result.exit_code == 0
    assert "2 of 2" in result.stdout and "left out" in result.stdout
    found = json.loads(run("warm-up", "--processes", "1", "--json", "-").stdout)
    assert [row["task"] for row in found["tasks"]] == ["method enumerate", "method nonsense"]
    assert found["tasks"][0]["left_out"] is None
    assert "nonsense" in found["tasks"][1]["left_out"]


def test_only_what_some_methods_need() -> None:
    found = json.loads(run("warm-up", "--methods", "enumerate", "-q", "--json", "-").stdout)
    assert [row["task"] for row in found["tasks"]] == ["method enumerate"]
    refused = run("warm-up", "--methods", "enumerate,nonsense")
    assert refused.exit_code == 2 and "nonsense" in refused.stderr


def test_timings_list_the_loops_that_were_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = njit(cache=False)(lambda x: x + 1)
    monkeypatch.setattr(warm_up, "_tasks", lambda: ["made up"])
    monkeypatch.setitem(warm_up._FAMILIES, "made up", lambda: loop(1) + loop(1.0))
    result = run("warm-up", "--processes", "1", "--timings")
    assert result.exit_code == 0, result.stderr
    (row,) = (line.split() for line in result.stdout.splitlines() if "<lambda>" in line)
    assert float(row[1]) > 0.0 and row[2] == "2"
    assert "CPU seconds" in result.stdout
    found = json.loads(run("warm-up", "--processes", "1", "--json", "-").stdout)
    assert found["loops"] == {}  # they are compiled already
