"""`kikuchi temporal`: every kind and task on small files, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import fails, run

from kikuchi.temporal import FactorialHMM

KINDS = {
    "ssm": ["--state", "1"],
    "hmm": ["--states", "2"],
    "factorial": ["--chains", "2,2", "--restarts", "2"],
    "hopping": ["--chains", "2,2", "--lags", "1,2", "--restarts", "2"],
    "ica": ["--sources", "1"],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.normal(size=(60, 2)), axis=0)
    path = tmp_path / "walk.csv"
    lines = ["a,b", *(f"{x:.4f},{y:.4f}" for x, y in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_fit_then_every_task(kind: str, data: Path, tmp_path: Path) -> None:
    model, page, table = (tmp_path / n for n in ("m.safetensors", "page.html", "t.csv"))
    words = ["temporal", "fit", kind, str(data), *KINDS[kind], "--iterations", "5"]
    result = run(*words, "-o", str(model), "--report", str(page))
    assert result.exit_code == 0, result.output
    assert "log-likelihood" in result.output or "bound" in result.output
    assert page.read_text().count("<svg") >= 2
    rows = {"filter": 60, "forecast": 4, "sample": 5}
    for task, more in (("filter", ["--smooth"]), ("forecast", ["--steps", "4"]),
                       ("sample", ["--steps", "5"])):  # fmt: skip
        out = tmp_path / f"{task}.json"
        words = ["temporal", task, kind, str(data), "--model", str(model), *more]
        result = run(*words, "--table", str(table), "--json", str(out), "--report", str(page))
        assert result.exit_code == 0, result.output
        found = json.loads(out.read_text())
        lines = table.read_text().splitlines()
        assert len(found["rows"]) == rows[task] == len(lines) - 1
        assert np.isfinite(np.array(found["rows"], dtype=float)).all()
        assert lines[0].split(",") == found["columns"]


def test_probit_and_inputs_and_sequences(data: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 2))
    y = np.where(x[:, 0] > 0, 1, -1)
    path = tmp_path / "labels.csv"
    lines = ["u,v,label", *(f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    table, page = tmp_path / "p.csv", tmp_path / "p.html"
    words = ["temporal", "filter", "probit", str(path), "--label", "label", "--drift", "0.001"]
    result = run(*words, "--table", str(table), "--report", str(page))
    assert result.exit_code == 0 and "log-evidence" in result.output
    p = np.loadtxt(table, skiprows=1)
    assert p.shape == (80,) and np.mean((p[40:] > 0.5) == (y[40:] > 0)) > 0.9
    words = ["temporal", "fit", "ssm", str(path), "--columns", "u", "--inputs", "v"]
    assert run(*words, "--iterations", "3").exit_code == 0
    words = ["temporal", "filter", "ssm", str(data), str(data), "--iterations", "3"]
    assert run(*words, "--table", str(table)).exit_code == 0
    assert table.read_text().startswith("sequence,") and len(table.read_text().splitlines()) == 121


def test_posteriors_of_chains_and_sources_without_memory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = tmp_path / "m.safetensors", tmp_path / "o.json"
    words = ["temporal", "fit", "factorial", str(data), *KINDS["factorial"], "--iterations", "3"]
    assert run(*words, "--method", "bp", "-o", str(model)).exit_code == 0
    used = []
    for name in ("smooth", "forecast"):
        known = getattr(FactorialHMM, name)

        def recorded(*given: Any, known: Any = known, **more: Any) -> Any:
            used.append((known.__name__, more["method"]))
            return known(*given, **more)

        monkeypatch.setattr(FactorialHMM, name, recorded)
    for method in ("mean-field", "bp", "exact"):
        for task, more in (("filter", ["--smooth"]), ("forecast", ["--steps", "3"])):
            words = ["temporal", task, "factorial", str(data), "--model", str(model), *more]
            result = run(*words, "--method", method, "--json", str(out))
            assert result.exit_code == 0, result.output
            assert used[-1] == ({"filter": "smooth"}.get(task, task), method)
            assert np.isfinite(np.array(json.loads(out.read_text())["rows"], dtype=float)).all()
    words = ["temporal", "fit", "ica", str(data), "--sources", "1", "--iterations", "3"]
    assert run(*words, "--persistence", "0", "-o", str(model)).exit_code == 0
    words = ["temporal", "sample", "ica", str(data), "--model", str(model), "--steps", "2000"]
    assert run(*words, "--json", str(out)).exit_code == 0
    source = np.array(json.loads(out.read_text())["rows"])[:, 0]
    assert abs(np.corrcoef(source[1:], source[:-1])[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "kalman"], "no kind of model 'kalman'"),
        (["fit", "hmm", "--state", "2"], "hmm has no option --state"),
        (["fit", "ssm", "--chains", "2"], "ssm has no option --chains"),
        (["fit", "factorial", "--chains", "2,x"], "whole numbers between commas"),
        (["fit", "ssm", "--columns", "c"], "there is no column 'c'"),
        (["forecast", "ssm", "--steps", "0", "--iterations", "2"], "give at least 1"),
        (["forecast", "probit"], "probit has no forecast"),
        (["fit", "ssm", "--state", "0"], "must be in [1, inf)"),
        (["fit", "probit"], "Unknown label type"),
        (["fit", "hmm", "--method", "bp"], "hmm has no option --method"),
        (["filter", "factorial", "--method", "x", "--iterations", "1"], "mean-field, bp, exact"),
        (["fit", "ica", "--persistence", "2"], "must be in [0, 1]"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, data: Path) -> None:
    fails(["temporal", *words[:2], str(data), *words[2:]], message)
