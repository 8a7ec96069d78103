"""`kikuchi fit` for belief networks: what it writes, shows and refuses."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from kikuchi.beliefnets import SigmoidBeliefNetwork, ThresholdNetworkClassifier
from kikuchi.cli.main import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("belief")
    rng = np.random.default_rng(0)
    on = rng.integers(0, 2, size=(60, 1))
    np.savetxt(place / "bits.csv", np.repeat(np.hstack([on, 1 - on]), 2, axis=1), "%d", ",")
    x = rng.normal(size=(60, 2))
    table = np.column_stack([x, x[:, 0] > 0])
    np.savetxt(place / "labels.csv", table, "%.6g", ",", header="a,b,class", comments="")
    return place


def run(folder, *words):
    return CliRunner().invoke(app, ["fit", *map(str, words)])


def test_sigmoid_networks(folder):
    out, page = folder / "net.safetensors", folder / "net.html"
    words = (
        "--hidden-layer-sizes",
        "2,2",
        "--posterior",
        "mixture:2",
        "--max-iter",
        5,
        "--hold-out",
        0.2,
    )
    done = run(folder, "sbn", folder / "bits.csv", "-o", out, *words, "--report", page)
    assert done.exit_code == 0, done.output
    assert "2-2-4 sigmoid units" in done.output and "gap of the bound there" in done.output
    assert SigmoidBeliefNetwork.load(out).model_.layers == (2, 2, 4)
    text = page.read_text()
    assert (
        "Hidden layer 2 of 2" in text and "samples" in text and not (folder / "net.part").exists()
    )


def test_threshold_networks(folder):
    out = folder / "hard.safetensors"
    words = (
        "--target",
        "class",
        "--hidden-layer-sizes",
        3,
        "--hold-out",
        0.25,
        "--json",
        "-",
        "--quiet",
    )
    done = run(folder, "threshold", folder / "labels.csv", "-o", out, *words)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["measures"]["errors on rows held out"] < 0.3
    assert len(ThresholdNetworkClassifier.load(out).classes_) == 2


def test_noisy_or(folder):
    out = folder / "or.safetensors"
    done = run(
        folder, "noisy-or", folder / "bits.csv", "-o", out, "--n-components", 2, "--max-iter", 3
    )
    assert done.exit_code == 0 and "2 causes of 4 findings" in done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("threshold", "labels.csv"), "give its name as --target"),
        (("sbn", "labels.csv"), "units are 0 and 1"),
        (("sbn", "bits.csv", "--posterior", "mean"), "no posterior 'mean'"),
        (("sbn", "bits.csv", "--hidden-layer-sizes", "0"), "--hidden-layer-sizes are the sizes"),
        (("sbn", "bits.csv", "--log-z", "exact"), "leave --log-z exact out"),
        (("threshold", "labels.csv", "--target", "colour"), "no such column"),
        (("threshold", "labels.csv", "--target", "a"), "whole numbers"),
    ],
)
def test_what_is_refused(folder, words, told):
    done = run(folder, words[0], folder / words[1], "-o", folder / "no.safetensors", *words[2:])
    assert done.exit_code == 2 and told in done.output
