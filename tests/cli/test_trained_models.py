"""`kikuchi info`, `sample` and `evaluate` of trained models of every family."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kikuchi.cli.main import app
from kikuchi.training.kinds import kind_of_class

RUN = CliRunner()
RNG = np.random.default_rng(0)
BITS = (RNG.random((60, 6)) < 0.4).astype(float)
NUMBERS = RNG.laplace(size=(80, 3)) @ RNG.normal(size=(3, 3))
LABELLED = np.column_stack([NUMBERS, NUMBERS[:, 0] > 0]).astype(float)


def run(*words: str, code: int = 0) -> str:
    result = RUN.invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def fitted(name: str) -> tuple[Any, np.ndarray]:
    """A small fitted estimator and rows to judge it by."""
    kind = kind_of_class(name)
    assert kind is not None
    cls = kind.load()
    if name == "RBM":
        return cls(3, max_iter=2, random_state=0).fit(BITS), BITS
    if name == "ExpertICA":
        return cls(max_iter=2, random_state=0).fit(NUMBERS), NUMBERS
    if name == "InfomaxICA":
        return cls(random_state=0).fit(NUMBERS), NUMBERS
    if name == "MeanFieldICA":
        return cls(2, max_iter=5, random_state=0).fit(NUMBERS), NUMBERS
    if name == "BayesianMLPRegressor":
        model = cls(hidden_layer_sizes=2, max_iter=5, random_state=0)
        return model.fit(LABELLED[:, :3], LABELLED[:, 3]), LABELLED
    if name == "SigmoidBeliefNetwork":
        return cls([2], max_iter=2, random_state=0).fit(BITS), BITS
    if name == "ThresholdNetworkClassifier":
        return cls(random_state=0).fit(BITS[:, :5], BITS[:, 5]), BITS
    if name == "HMM":
        return cls(2, max_iter=3, random_state=0).fit(NUMBERS), NUMBERS
    return cls(2, max_iter=3, random_state=0).fit(NUMBERS), NUMBERS


SHOWN = {
    "RBM": "reconstruction",
    "ExpertICA": "log",
    "InfomaxICA": "log-likelihood per row",
    "MeanFieldICA": "log-likelihood per row",
    "BayesianMLPRegressor": "relevance",
    "SigmoidBeliefNetwork": "bound per row",
    "ThresholdNetworkClassifier": "errors per row",
    "HMM": "log-likelihood per step",
    "LinearGaussianSSM": "log-likelihood per step",
}


COMPILED_LONG = ("BayesianMLPRegressor", "ExpertICA")  # their own command tests evaluate them


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in COMPILED_LONG else n for n in SHOWN]
)
def test_every_family(name: str, tmp_path: Path) -> None:
    estimator, rows = fitted(name)
    model, data, out = (str(tmp_path / n) for n in ("m.safetensors", "d.csv", "s.csv"))
    estimator.save(model)
    np.savetxt(data, rows, delimiter=",")
    told = json.loads(run("info", model, "--json", "-"))
    assert told["estimator"] == name and told["arrays"] and name in run("info", model)
    assert SHOWN[name] in run("evaluate", model, data)
    run("evaluate", model, data, "--json", str(tmp_path / "e.json"))
    if "samples" not in estimator.kind.gives:
        assert "samples come from" in run("sample", model, "-o", out, code=2)
    else:
        run("sample", model, "-o", out, "-n", "7", "--seed", "1")
        drawn = np.loadtxt(out, delimiter=",", ndmin=2)
        assert drawn.shape == (7, rows.shape[1]) and np.isfinite(drawn).all()
        assert drawn.std() > 0


def test_scores_are_those_of_python(tmp_path: Path) -> None:
    estimator, rows = fitted("HMM")
    estimator.save(tmp_path / "m.safetensors")
    np.savetxt(tmp_path / "d.csv", rows, delimiter=",", fmt="%.17g")
    words = ("evaluate", str(tmp_path / "m.safetensors"), str(tmp_path / "d.csv"), "--json", "-")
    assert json.loads(run(*words))["mean"] == pytest.approx(estimator.score(rows))


def test_bad_files_get_one_line(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    from kikuchi.training.checkpoint import save

    other = str(tmp_path / "other.safetensors")
    save_file({"a": np.zeros(2)}, other)
    assert "some other safetensors" in run("info", other, code=2)
    save(other, "kikuchi machine", {"a": np.zeros(2)}, {})
    assert "a machine without its fit" in run("evaluate", other, other, code=2)
    save(other, "kikuchi strange", {"a": np.zeros(2)}, {"about": {"estimator": "Strange"}})
    assert "holds a Strange" in run("sample", other, "-o", str(tmp_path / "s.csv"), code=2)
    assert "no such file" in run("info", str(tmp_path / "none.safetensors"), code=2)


def write_columns(path: Path, columns: dict[str, Any]) -> str:
    """A table with these columns, in this order."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


@pytest.fixture
def named_rbm(tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """A machine that was trained on columns with names, and these columns."""
    columns = {
        "rare": np.arange(40) % 8 == 0,
        "often, mostly": np.arange(40) % 8 > 0,
        "half": np.arange(40) % 2,
    }
    columns = {name: np.asarray(bits, dtype=int) for name, bits in columns.items()}
    model, data = str(tmp_path / "m.safetensors"), write_columns(tmp_path / "a.csv", columns)
    run("fit", "rbm", data, "-o", model, "--n-components", "2", "--max-iter", "1")
    return model, columns


def test_columns_are_found_by_their_names(
    named_rbm: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    model, columns = named_rbm
    turned = write_columns(tmp_path / "b.csv", dict(reversed(columns.items())))
    told = [
        json.loads(run("evaluate", model, data, "--json", "-"))["log_likelihood"]
        for data in (str(tmp_path / "a.csv"), turned)
    ]
    assert told[0] == told[1]
    other = write_columns(tmp_path / "c.csv", {**dict(list(columns.items())[:2]), "x": [0] * 40})
    assert "other columns than those of" in run("evaluate", model, other, code=2)


def test_rows_that_are_drawn_have_the_names_of_the_columns(
    named_rbm: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    model, columns = named_rbm
    run("sample", model, "-o", str(tmp_path / "drawn.csv"), "-n", "3")
    with (tmp_path / "drawn.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(columns) and [len(row) for row in rows] == [3] * 4


def test_classes_are_those_of_the_column_that_was_the_target(tmp_path: Path) -> None:
    columns = {"left": BITS[:, 0], "kind": BITS[:, 0] > 0, "right": BITS[:, 1]}
    columns = {name: np.asarray(bits, dtype=int) for name, bits in columns.items()}
    data = write_columns(tmp_path / "a.csv", columns)
    model = str(tmp_path / "m.safetensors")
    run("fit", "threshold", data, "--target", "kind", "-o", model, "--hidden-layer-sizes", "2")
    shown = run("evaluate", model, data)
    assert f"(0 of {len(BITS)}; column kind)" in shown
    turned = write_columns(tmp_path / "b.csv", dict(reversed(columns.items())))
    assert f"(0 of {len(BITS)}; column kind)" in run("evaluate", model, turned)


@pytest.mark.parametrize("steps", [["--divide", "255"], ["--divide", "51", "--threshold", "2"]])
def test_new_rows_are_scaled_as_those_of_the_training(steps: list[str], tmp_path: Path) -> None:
    """Rows of grey values: without the scale of the training they would be other rows."""
    grey = 51 * np.random.default_rng(0).integers(0, 6, (60, 3))
    bits = grey / float(steps[1])
    if "--threshold" in steps:
        bits = (bits >= 2).astype(float)
    raw, ready = tmp_path / "raw.csv", tmp_path / "ready.csv"
    np.savetxt(raw, grey, fmt="%d", delimiter=",")
    np.savetxt(ready, bits, delimiter=",")
    options = ["--n-components", "2", "--max-iter", "1"]
    scores = []
    for data, given in ((raw, steps), (ready, [])):
        model = str(tmp_path / f"{data.stem}.safetensors")
        run("fit", "rbm", str(data), *given, "-o", model, *options)
        shown = run("evaluate", model, str(data))
        assert ("as in training" in shown) == bool(given)
        told = json.loads(run("evaluate", model, str(data), "--json", "-"))
        scores.append(told["log_likelihood"])
    assert scores[0] == scores[1]


@pytest.mark.parametrize("option", ["--evidence", "--format"])
def test_options_of_models_of_variables_are_refused(
    named_rbm: tuple[str, dict[str, Any]], tmp_path: Path, option: str
) -> None:
    model, out = named_rbm[0], tmp_path / "drawn.csv"
    told = f"{option} is not for trained models"
    assert told in run("sample", model, "-o", str(out), option, "rare=1", code=2)
    assert told in run("info", model, option, "rare=1", code=2)
    assert not out.exists()


def test_rows_of_a_belief_network_are_not_called_those_that_it_learnt_from(tmp_path: Path) -> None:
    model, data = str(tmp_path / "m.safetensors"), str(tmp_path / "new.csv")
    fitted("SigmoidBeliefNetwork")[0].save(model)
    np.savetxt(data, 1 - BITS, fmt="%d", delimiter=",")
    shown = run("evaluate", model, data)
    assert "bound per row, these rows" in shown and "training rows" not in shown


@pytest.fixture
def classifier(tmp_path: Path) -> str:
    """A classifier of the classes 0 and 1 by two columns."""
    model = str(tmp_path / "m.safetensors")
    columns = {"left": BITS[:, 0], "right": BITS[:, 1], "kind": BITS[:, 0]}
    columns = {name: np.asarray(bits, dtype=int) for name, bits in columns.items()}
    data = write_columns(tmp_path / "a.csv", columns)
    run("fit", "threshold", data, "--target", "kind", "-o", model, "--hidden-layer-sizes", "2")
    return model


@pytest.mark.parametrize("labels", [["no", "yes"], [7, 8]])
def test_labels_that_were_never_learnt_are_no_errors(
    classifier: str, labels: list[Any], tmp_path: Path
) -> None:
    data = write_columns(tmp_path / "b.csv", {"left": [0, 1], "right": [0, 1], "kind": labels})
    told = run("evaluate", classifier, data, code=2)
    assert f"column kind: '{labels[0]}' is none of the classes learnt (0, 1)" in told


def test_a_new_class_beside_those_learnt_is_told(classifier: str, tmp_path: Path) -> None:
    columns = {"left": [0, 1, 1], "right": [0, 1, 1], "kind": [0, 1, 2]}
    told = json.loads(
        run("evaluate", classifier, write_columns(tmp_path / "b.csv", columns), "--json", "-")
    )
    assert told["mean"] == pytest.approx(1 / 3)
    assert any("1 row of classes that were not learnt" in line for line in told["warnings"])


def test_texts_that_are_numbers_are_the_classes_of_these_names(tmp_path: Path) -> None:
    """Classes 1, 2 and x are texts; rows of the first two alone are read as numbers."""
    model = str(tmp_path / "m.safetensors")
    columns: dict[str, Any] = {"a": [0, 0, 1] * 9, "b": [0, 1, 1] * 9, "kind": ["1", "2", "x"] * 9}
    data = write_columns(tmp_path / "a.csv", columns)
    run("fit", "threshold", data, "--target", "kind", "-o", model, "--hidden-layer-sizes", "4")
    some = write_columns(tmp_path / "b.csv", {"a": [0, 0], "b": [0, 1], "kind": [1, 2]})
    assert json.loads(run("evaluate", model, some, "--json", "-"))["mean"] == 0


@pytest.mark.parametrize("name", ["HMM", "LinearGaussianSSM"])
def test_sequences_may_have_gaps(name: str, tmp_path: Path) -> None:
    estimator, rows = fitted(name)
    rows = rows.copy()
    rows[3, 1] = np.nan
    estimator.save(tmp_path / "m.safetensors")
    np.savetxt(tmp_path / "d.csv", rows, delimiter=",", fmt="%.17g")
    words = ("evaluate", str(tmp_path / "m.safetensors"), str(tmp_path / "d.csv"), "--json", "-")
    assert json.loads(run(*words))["mean"] == pytest.approx(estimator.score(rows))
    rows[3, 1] = np.inf
    np.savetxt(tmp_path / "d.csv", rows, delimiter=",", fmt="%.17g")
    assert "row 4, column 2" in run(*words, code=2)


def test_columns_of_a_network_are_found_by_their_names(tmp_path: Path) -> None:
    columns = {"left": NUMBERS[:, 0], "goal": NUMBERS[:, 0] * 2, "right": NUMBERS[:, 1]}
    data, model = write_columns(tmp_path / "a.csv", columns), str(tmp_path / "m.safetensors")
    options = ("--hidden-layer-sizes", "1", "--n-init", "1", "--max-iter", "3")
    run("fit", "bayesnn", data, "--target", "goal", "-o", model, *options)
    turned = write_columns(tmp_path / "b.csv", dict(reversed(columns.items())))
    bare = tmp_path / "c.csv"
    np.savetxt(bare, NUMBERS[:, [0, 1, 0]] * [1, 1, 2], delimiter=",", fmt="%.17g")
    told = [
        json.loads(run("evaluate", model, str(place), "--json", "-"))["rmse"]
        for place in (data, turned, bare)
    ]
    assert told == pytest.approx([told[0]] * 3)
    other = write_columns(
        tmp_path / "d.csv", {**columns, "left": columns["goal"], "x": NUMBERS[:, 0]}
    )
    assert "other columns than those of" in run("evaluate", model, other, code=2)
