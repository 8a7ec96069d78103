"""`kikuchi fit rbm`: a machine from a table, its file and page, resuming, and every refusal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cli_runner import fails, run

pytest.importorskip("sklearn")
pytest.importorskip("safetensors")

from kikuchi.boltzmann import RBM, BoltzmannMachine


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    bars = np.repeat(rng.random((200, 3)) < 0.3, 3, axis=1).astype(int)
    place = tmp_path / "bars.csv"
    np.savetxt(place, bars, delimiter=",", fmt="%d")
    return place


def test_a_machine_is_trained_and_saved(rows: Path, tmp_path: Path) -> None:
    out, page, answer = tmp_path / "m.safetensors", tmp_path / "m.html", tmp_path / "m.json"
    words = [
        "fit",
        "rbm",
        rows,
        "--n-components",
        4,
        "--learner",
        "cd:k=1",
        "--max-iter",
        5,
        "--out",
    ]
    more = ["--hold-out", 0.2, "--log-z", "exact", "--report", page, "--json", answer]
    result = run(*words, out, *more)
    assert result.exit_code == 0, result.stderr
    assert "9 visible and 4 hidden units" in result.stdout
    assert "(exact)" in result.stdout
    data = json.loads(answer.read_text())
    assert data["epochs"] == 5 and data["rows"] == 160 and data["held_out"] == 40
    text = page.read_text()
    assert "Weights of hidden units" in text and "--hold-out 0.2" in text
    rbm = RBM.load(out)
    assert rbm.model_.weights.shape == (9, 4)
    assert rbm.log_z_.estimate == data["log_z"]["estimate"]
    assert rbm.log_z("exact").estimate == pytest.approx(data["log_z"]["estimate"], abs=1e-4)
    assert not list(tmp_path.glob("*.part"))


def test_other_architectures(rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.safetensors"
    words = ["fit", "machine", rows, "--architecture", "poe", "--n-components", 2, "--max-iter", 1]
    assert run(*words, "--dtype", "float64", "--out", out).exit_code == 0
    loaded = BoltzmannMachine.load(out)
    assert loaded.model_.architecture == "poe" and loaded.model_.dtype == np.float64


def test_likelihoods_that_are_approximate_are_said_to_be(rows: Path, tmp_path: Path) -> None:
    words = [
        "fit",
        "machine",
        rows,
        "--n-components",
        2,
        "--max-iter",
        1,
        "--log-z",
        "exact",
        "--out",
    ]
    plain = run(*words, tmp_path / "p.safetensors", "--architecture", "poe")
    connected = run(*words, tmp_path / "f.safetensors", "--architecture", "fcrf")
    assert "approximate" in connected.stdout and "approximate" not in plain.stdout


def test_values_are_made_fit(tmp_path: Path) -> None:
    place, out = tmp_path / "grey.csv", tmp_path / "m.safetensors"
    place.write_text("a,b,label\n" + "\n".join(f"{k % 256},{255 - k % 256},{k}" for k in range(40)))
    fails(["fit", "rbm", place, "--out", out], "[0, 1]")
    fails(["fit", "rbm", place, "--drop", "color", "--out", out], "no such column")
    words = [
        "fit",
        "rbm",
        place,
        "--drop",
        "label",
        "--max-iter",
        1,
        "--n-components",
        2,
        "--out",
        out,
    ]
    assert run(*words, "--divide", 255).exit_code == 0
    assert run(*words, "--threshold", 100).exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["forest"], "there is no kind of model 'forest'"),
        (["rbm", "--learner", "sgd"], "there is no learner 'sgd'"),
        (["rbm", "--hold-out", "1.5"], "--hold-out must be a fraction"),
        (["rbm", "--image", "2x2"], "no images of that size"),
        (["rbm", "--log-z", "guess"], "--log-z is exact or ais"),
        (["rbm", "--n-components", "-1"], "--n-components must be"),
        (["rbm", "--hold-out", "0.999"], "leaves none of 200 rows"),
        (["rbm", "--threshold", "nan"], "--threshold must be a finite number"),
        (["rbm", "--divide", "inf"], "--divide must be positive and finite"),
        (["rbm", "--drop", "0,1,2,3,4,5,6,7,8"], "leaves no column"),
    ],
)
def test_bad_words(rows: Path, tmp_path: Path, words: list[str], message: str) -> None:
    kind, *rest = words
    fails(["fit", kind, rows, *rest, "--out", tmp_path / "m.safetensors"], message)
    assert not list(tmp_path.glob("m.*"))  # refused before anything is learnt


def test_values_outside_are_named_by_file_and_place(tmp_path: Path) -> None:
    place, out = tmp_path / "grey.csv", tmp_path / "m.safetensors"
    place.write_text("0,1,0\n1,0.5,0\n0,1,3\n")
    words = [
        "fit",
        "rbm",
        place,
        "--hold-out",
        0.3,
        "--max-iter",
        1,
        "--n-components",
        2,
        "--out",
        out,
    ]
    fails(words, f"{place}: row 3, column 3 is 3, outside [0, 1]", "--divide")
    assert run(*words, "--visible", "gaussian").exit_code == 0


def test_bad_files(tmp_path: Path, rows: Path) -> None:
    fails(["fit", "rbm", rows, "--out", tmp_path / "m.npz"], "written as .safetensors")
    gaps = tmp_path / "gaps.csv"
    gaps.write_text("1,0\n,1\n")
    fails(["fit", "rbm", gaps, "--out", tmp_path / "m.safetensors"], "NaN")
    for shape in ((), (0, 5), (7,)):
        np.save(tmp_path / "odd.npy", np.zeros(shape))
        words = ["fit", "rbm", tmp_path / "odd.npy", "--out", tmp_path / "m.safetensors"]
        fails(words, "rows of numbers are needed")


def test_divergence_is_said_once_and_without_a_python_warning(rows: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "kikuchi", "fit", "rbm", str(rows), "--learning-rate", "1e9"]
    command = [*words, "--max-iter", "2", "--out", str(tmp_path / "m.safetensors")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr.count("diverged in epoch") == 1
    assert "ConvergenceWarning" not in result.stderr


def test_a_trained_machine_is_kept_when_it_cannot_be_measured(tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.eye(60))
    out = tmp_path / "m.safetensors"
    words = [
        "fit",
        "rbm",
        tmp_path / "wide.npy",
        "--n-components",
        60,
        "--max-iter",
        1,
        "--out",
        out,
    ]
    fails([*words, "--log-z", "exact"], "log Z")
    assert RBM.load(out).model_.n_visible == 60


def test_a_killed_training_goes_on(rows: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    words = [
        "fit",
        "rbm",
        str(rows),
        "--n-components",
        "4",
        "--max-iter",
        "2000",
        "--batch-size",
        "10",
    ]
    assert run(*words, "--out", whole).exit_code == 0
    part = Path(f"{cut}.part")
    command = [sys.executable, "-m", "kikuchi", *words, "--out", str(cut)]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    limit = time.monotonic() + 60
    while not part.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if cut.exists():
        pytest.skip("the training was over before it could be killed")
    assert part.exists()
    fails([*words, "--out", cut], "give --resume")
    assert run(*words, "--resume", "--out", cut).exit_code == 0
    ours, theirs = RBM.load(cut).model_, RBM.load(whole).model_
    assert all(np.array_equal(ours.parameters[n], theirs.parameters[n]) for n in ours.parameters)
    assert not part.exists()


def test_the_rules_are_listed() -> None:
    from kikuchi.boltzmann.rules import RULES

    listed = run("learners", "--machines").stdout
    assert all(f"\n{name}  " in listed for name in RULES)
    assert "energy" in run("learners", "cf", "--machines").stdout
    fails(["learners", "cff", "--machines"], "there is no learner 'cff'")
