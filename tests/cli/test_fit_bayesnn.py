"""`kikuchi fit bayesnn`: files, pages, what `kikuchi evaluate` says of them, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runner import fails, run

pytest.importorskip("jax")

from kikuchi.bayesnn import BayesianMLPClassifier, BayesianMLPRegressor


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(60, 2))
    y = 3 + 2 * np.sin(3 * x[:, 0]) + 0.2 * rng.normal(size=60)
    place = tmp_path_factory.mktemp("bayesnn") / "sine.csv"
    rows = np.column_stack([x, y, (y > 3)])
    np.savetxt(place, rows, delimiter=",", header="first,second,height,high", comments="")
    return place


def test_a_network_is_trained_saved_shown_and_judged(table: Path, tmp_path: Path) -> None:
    out, page, answer = tmp_path / "n.safetensors", tmp_path / "n.html", tmp_path / "n.json"
    words = [
        "fit",
        "bayesnn",
        table,
        "--target",
        "height",
        "--drop",
        "high",
        "--hidden-layer-sizes",
        3,
    ]
    more = ["--posterior", "diagonal", "--n-init", 1, "--hold-out", 0.2, "--prune", "--out", out]
    result = run(*words, *more, "--report", page, "--json", answer)
    assert result.exit_code == 0, result.stderr
    told = json.loads(answer.read_text())
    assert told["rows"] == 48 and told["held_out"] == 12 and told["rmse"] < 0.5
    assert told["inputs_kept"] == ["first"] and told["pruning"]
    text = page.read_text()
    assert all(word in text for word in ("Calibration", "Bands", "Relevance", "Pruning", "Bound"))
    net = BayesianMLPRegressor.load(out)
    assert net.columns_ == ["first", "second", "height"] and net.hidden_layer_sizes == 3
    assert not list(tmp_path.glob("*.part"))
    small = tmp_path / "new.csv"
    small.write_text("first,third,height\n0.0,0.1,3.0\n")
    fails(["evaluate", out, small], "other columns")
    expected = np.sqrt(np.mean((net.predict([[0.0, 0.1], [0.5, 0.2]]) - [3, 5]) ** 2))
    for rows in (
        "first,second,height\n0.0,0.1,3.0\n0.5,0.2,5.0\n",
        "second,height,first\n0.1,3.0,0.0\n0.2,5.0,0.5\n",
    ):
        small.write_text(rows)
        result = run("evaluate", out, small, "--json", answer)
        assert result.exit_code == 0, result.stderr
        assert json.loads(answer.read_text())["rmse"] == pytest.approx(float(expected))


def test_classes(table: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "n.safetensors", tmp_path / "n.html"
    words = ["fit", "bayesnn-classes", table, "--target", "high", "--drop", "height"]
    more = ["--hidden-layer-sizes", 2, "--posterior", "diagonal", "--n-init", 1, "--out", out]
    result = run(*words, *more, "--no-skip", "--report", page)
    assert result.exit_code == 0, result.stderr
    assert "accuracy" in result.stdout and "share that came true" in page.read_text()
    net = BayesianMLPClassifier.load(out)
    assert net.classes_.tolist() == [0.0, 1.0] and not net.skip
    result = run("evaluate", out, table)
    assert result.exit_code != 0 and "(first, second, high)" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bayesnn"], "give its name as --target"),
        (["bayesnn", "--target", "width"], "has no such column"),
        (["bayesnn", "--target", "height", "--posterior", "banded"], "no posterior 'banded'"),
        (["bayesnn", "--target", "height", "--prior", "group"], "--prior must be one of"),
        (
            ["bayesnn", "--target", "height", "--hidden-layer-sizes", 0],
            "--hidden-layer-sizes are the sizes",
        ),
        (["bayesnn", "--target", "height", "--max-iter", 0], "--max-iter must be"),
        (["bayesnn-classes", "--target", "height"], "whole numbers"),
    ],
)
def test_bad_words(table: Path, tmp_path: Path, words: list[object], message: str) -> None:
    fails(["fit", words[0], table, *words[1:], "--out", tmp_path / "n.safetensors"], message)
