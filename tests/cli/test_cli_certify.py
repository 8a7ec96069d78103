"""`kikuchi certify`: the table, data, evidence and clear refusals (LIU-I9)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_runner import fails, run

from kikuchi import grid, write
from kikuchi.brackets import certify


@pytest.fixture
def square(tmp_path: Path) -> Path:
    path = tmp_path / "grid.uai"
    write(grid(4, 4, coupling=0.3), path)
    return path


def test_the_table(square: Path) -> None:
    result = run("certify", square)
    assert result.exit_code == 0
    assert "verdict  certified: one fixed point" in result.stdout
    found = re.search(r"^spectral radius +([0-9.e-]+) +below 1 +yes$", result.stdout, re.M)
    assert found is not None
    expected = certify(grid(4, 4, coupling=0.3))["spectral radius"].value
    assert float(found[1]) == pytest.approx(expected, rel=1e-5)
    assert result.stdout.count("below 1") == 5


def test_alpha_and_evidence(square: Path) -> None:
    plain = json.loads(run("certify", square, "--json", "-").stdout)
    fewer = json.loads(run("certify", square, "--evidence", "x5=0", "--json", "-").stdout)
    other = json.loads(run("certify", square, "--alpha", "0.5", "--json", "-").stdout)
    radius = [data["conditions"][1]["value"] for data in (plain, fewer, other)]
    assert radius[1] < radius[0] < radius[2] and other["alpha"] == 0.5
    assert plain["certified"] and set(plain) >= {"model", "version", "rate", "facts", "remarks"}


def test_frustrated_and_hard_models(loop: Path) -> None:
    assert re.search(r"^cycles beyond one .* 0  below 1  yes$", run("certify", loop).stdout, re.M)
    result = run("certify", "example:ldpc24")
    assert "not certified" in result.stdout and "zeros in the tables" in result.stdout
    assert "no cycles" in run("certify", "example:hmm30").stdout
    refused = run("certify", "example:ldpc24", "--alpha", "0.5")
    assert "unknown" in refused.stdout and "alpha = 1 only" in refused.stdout
    assert run("certify", loop, "-q").stdout == ""


def test_bad_input(square: Path, tmp_path: Path) -> None:
    fails(["certify", square, "--alpha", "0"], "alpha must be finite and not 0")
    fails(["certify", square, "-e", "x0=0.5:0.5"], "a state is required")
    fails(["certify", square, "-e", "x99=1"], "99")
    fails(["certify", square, "--memory", "1kB"], "budget is 1 kB")
    fails(["certify", square, "--json", square], "is an input of this command")
    fails(["certify", tmp_path / "absent.uai"], "absent.uai")
