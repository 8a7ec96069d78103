"""`kikuchi learn`, `evaluate`, `sample` and `learners`: round trips, files, and every bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from cli_runner import fails, run

import kikuchi as kk
from kikuchi.core.errors import DataError
from kikuchi.learning.data import Data
from kikuchi.learning.files import read_data, write_states
from kikuchi.training.checkpoint import Checkpoint
from oracle import enumerate_exact


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three hundred rows of three named variables, one of three named states."""
    rng = np.random.default_rng(0)
    rain = rng.integers(0, 2, 300)
    sky = np.where(rng.random(300) < 0.7, 2 * rain, rng.integers(0, 3, 300))
    wet = np.where(rng.random(300) < 0.9, rain, 1 - rain)
    path = tmp_path / "weather.csv"
    words = [["no", "yes"], ["black", "blue", "grey"], ["no", "yes"]]
    write_states(path, np.stack([rain, sky, wet], axis=1), ["rain", "sky", "wet"], words)
    return path


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "edges.csv"
    path.write_text("from,to\nrain,sky\nrain,wet\n")
    return path


def learn_json(*words: object) -> dict[str, Any]:
    result = run("learn", *words, "--json", "-")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


# ---------------------------------------------------------------------- round trips


def test_learn_evaluate_sample_and_infer(table: Path, edges: Path, tmp_path: Path) -> None:
    fitted = tmp_path / "fitted.uai"
    report = tmp_path / "fit.html"
    result = run(
        "learn", table, "--graph", edges, "--learner", "pseudo", "--out", fitted,
        "--report", report, "--json", tmp_path / "fit.json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "log-likelihood per row" in result.stdout and "(exact)" in result.stdout
    found = json.loads((tmp_path / "fit.json").read_text())
    assert found["converged"] and found["learner"] == "pseudo" and found["out"] == str(fitted)

    model = kk.read(fitted)
    data = read_data(table)
    scores = model.log_score(data.states)
    expected = float(scores.mean()) - enumerate_exact(model)[0]
    assert found["score"]["log_likelihood"] == pytest.approx(expected, abs=1e-9)

    held = run("evaluate", fitted, table, "--json", "-")
    score = json.loads(held.stdout)
    assert score["log_likelihood"] == pytest.approx(expected, abs=1e-9)
    assert score["impossible_rows"] == 0 and score["rows"] == 300

    drawn = tmp_path / "drawn.csv"
    result = run("sample", fitted, "-n", "400", "--out", drawn, "--seed", "3")
    assert result.exit_code == 0 and "exact, from a junction tree" in result.stdout
    first = drawn.read_text()
    assert first.splitlines()[0] == "rain,sky,wet" and len(first.splitlines()) == 401
    assert run("evaluate", fitted, drawn, "-q").exit_code == 0
    run("sample", fitted, "-n", "400", "--out", drawn, "--seed", "3", "-q")
    assert drawn.read_text() == first

    page = report.read_text()
    assert "Strongest factors" in page and "Moments of the factors" in page
    assert "rain, wet" in page and "<script" not in page
    assert "kk.learning.graph_from_text(" in page and "penalties" not in page
    assert "yes:" in run("infer", fitted).stdout  # names beside the model are read again


def test_states_keep_their_names_in_a_table_that_lacks_some(
    table: Path, edges: Path, tmp_path: Path
) -> None:
    fitted = tmp_path / "fitted.uai"
    run("learn", table, "--graph", edges, "--learner", "pseudo", "--out", fitted, "-q")
    few = tmp_path / "few.csv"
    few.write_text("sky,wet,rain\ngrey,yes,yes\ngrey,no,no\n")
    score = json.loads(run("evaluate", fitted, few, "--json", "-").stdout)
    model = kk.read(fitted)
    exact = model.log_score([[1, 2, 1], [0, 2, 0]]).mean() - enumerate_exact(model)[0]
    assert score["log_likelihood"] == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(
    "learner",
    ["gradient", "pseudo", "piecewise", "surrogate", "cd:max_iter=3", "pcd:max_iter=3",
     "brief-gibbs:max_iter=3"],
)  # fmt: skip
@pytest.mark.parametrize("graph", ["chow-liu", "grid:1x3"])
def test_every_learner_and_graph(learner: str, graph: str, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.uai"
    found = learn_json(table, "--graph", graph, "--learner", learner, "--out", out)
    assert found["learner"] == learner
    assert kk.infer(kk.read(out), "jt").log_z is not None


def test_options_reach_the_learner(table: Path, tmp_path: Path) -> None:
    words = [table, "-g", "chow-liu", "-o", tmp_path / "f.uai"]
    found = learn_json(*words, "-l", "pseudo", "--l2", "0.1", "--l1", "0.01")
    assert found["learner"] == "pseudo:l1=0.01,l2=0.1"
    shown = run("learn", *words, "-l", "pseudo", "--l2", "0.1").stdout
    assert "(pseudo-log-likelihood per row, penalties taken off)" in shown
    found = learn_json(*words, "-l", "gradient", "--inference", "bp:damping=0.5", "--seed", "4")
    assert found["learner"].startswith("gradient:inference=bp:damping=0.5")
    assert (
        learn_json(*words, "-l", "cd:max_iter=2", "--seed", "4")["learner"]
        == "cd:max_iter=2,seed=4"
    )


def test_hidden_variables(table: Path, tmp_path: Path) -> None:
    star = tmp_path / "star.csv"
    star.write_text("rain,cause\nsky,cause\nwet,cause\n")
    out = tmp_path / "f.uai"
    found = learn_json(table, "-g", star, "--hidden", "cause:3", "-l", "mf-trw:l2=0.001", "-o", out)
    model = kk.read(out)
    assert model.n_variables == 4 and int(model.cardinalities[3]) == 3
    assert found["diagnostics"]["certified_lower"] <= found["score"]["log_likelihood"] + 1e-9
    masked = learn_json(
        table, "-g", "chow-liu", "--hidden", "sky", "-l", "pcd:max_iter=3", "-o", out
    )
    assert masked["score"]["pseudo_log_likelihood"] is None


def test_a_model_file_and_unnamed_columns(tmp_path: Path) -> None:
    model = tmp_path / "grid.uai"
    kk.write(kk.grid(3, 3, seed=0), model)
    rows = tmp_path / "rows.csv"
    run("sample", model, "-n", "200", "--out", rows, "-q")
    found = learn_json(rows, "-g", model, "-l", "pseudo:l2=0.01", "-o", tmp_path / "f.uai")
    assert found["converged"]
    plain = tmp_path / "plain.csv"
    plain.write_text("\n".join(rows.read_text().splitlines()[1:]))  # no line of names
    again = learn_json(plain, "-g", model, "-l", "pseudo:l2=0.01", "-o", tmp_path / "g.uai")
    assert again["objective"] == found["objective"]


def test_directed_models_stay_directed(tmp_path: Path) -> None:
    rows = tmp_path / "asia.csv"
    run("sample", "example:asia", "-n", "300", "--out", rows, "-q")
    out = tmp_path / "asia.bif"
    assert learn_json(rows, "-g", "example:asia", "-l", "em", "-o", out)["converged"]
    assert kk.read(out).is_directed
    assert run("evaluate", out, rows).exit_code == 0


def test_gibbs_samples_are_said_to_be(tmp_path: Path) -> None:
    big = tmp_path / "big.uai"
    kk.write(kk.generate.complete(24, seed=0, coupling=0.2), big)
    result = run("sample", big, "-n", "50", "--out", tmp_path / "s.csv", "--memory", "100kB")
    assert result.exit_code == 0, result.stderr
    assert "Gibbs" in result.stdout and "neither exact nor independent" in result.stdout
    assert read_data(tmp_path / "s.csv").states.shape == (50, 24)


def test_gibbs_samples_have_the_right_means() -> None:
    graph = kk.FactorGraph(
        [2, 3, 1, 2], [((0, 1), [[1, 0, 2], [3, 1, 1]]), ((1, 3), np.eye(3, 2) + 0.2)]
    )
    from kikuchi.core.budget import Budget
    from kikuchi.learning.sampling import _by_gibbs

    states = _by_gibbs(graph, 4000, {3: 1}, 0, Budget(), "why; not").states
    exact = kk.infer(graph, "enumerate", evidence={3: 1})
    for v in range(4):
        found = Data.of(states, graph).counts([v]) / 4000
        assert np.abs(found - exact[v]).max() < 0.04


def test_evidence_holds_in_samples(tmp_path: Path) -> None:
    out = tmp_path / "s.csv"
    run("sample", "example:asia", "-n", "20", "--out", out, "-e", "smoke=yes", "-q")
    assert set(read_data(out, kk.example("asia")).states[:, 2].tolist()) == {
        kk.example("asia").state_index("smoke", "yes")
    }


def test_rows_that_are_impossible_are_counted(tmp_path: Path) -> None:
    model = tmp_path / "m.uai"
    model.write_text("MARKOV 2 2 2 1 2 0 1 4 1 0 1 1")
    rows = tmp_path / "r.csv"
    rows.write_text("x0,x1\n0,0\n0,1\n1,1\n")
    result = run("evaluate", model, rows)
    assert result.exit_code == 0 and "-inf" in result.stdout
    assert "warning: 1 row of 3 impossible" in result.stderr
    assert json.loads(run("evaluate", model, rows, "--json", "-").stdout)["impossible_rows"] == 1


def test_learners_lists_all() -> None:
    from kikuchi.learning.registry import LEARNERS

    listed = run("learners").stdout
    assert all(f"\n{name}  " in listed for name in LEARNERS)
    assert json.loads(run("learners", "pseudo", "--json", "-").stdout)[0]["learner"] == "pseudo"
    fails(["learners", "pseud"], "did you mean 'pseudo'")


# ---------------------------------------------------------------------- checkpoints


def test_checkpoint_and_resume(table: Path, tmp_path: Path) -> None:
    place = tmp_path / "fit.npz"
    words = [table, "-g", "chow-liu", "-l", "pseudo", "--checkpoint", place]
    short = [table, "-g", "chow-liu", "-l", "pseudo:max_iter=3", "--checkpoint", place]
    part = learn_json(*short, "-o", tmp_path / "a.uai")
    assert not part["converged"] and place.exists()
    fails(["learn", *short, "-o", tmp_path / "a.uai"], "there is a checkpoint already", "--resume")
    fails(["learn", *words, "-o", tmp_path / "a.uai", "--resume"], "its learner is")
    fails(["learn", table, "-g", "chow-liu", "-o", tmp_path / "a.uai", "--resume"], "--checkpoint")


def test_checkpoint_stays_until_the_result_is_written(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "fit.npz"
    words = ["learn", table, "-g", "chow-liu", "-l", "pseudo", "--checkpoint", place]
    words += ["-o", tmp_path / "a.uai", "-q"]
    monkeypatch.setattr(Checkpoint, "due", True)
    with monkeypatch.context() as broken:
        broken.setattr(
            "kikuchi.graphs.formats.write", Mock(side_effect=kk.KikuchiError("disk full"))
        )
        assert run(*words).exit_code != 0
    assert place.exists()
    assert run(*words, "--resume").exit_code == 0
    assert not place.exists()


def test_killed_and_resumed_is_the_same_fit(tmp_path: Path) -> None:
    """kill -9 in the middle of a fit; the resumed one ends at the same tables."""
    model, rows = tmp_path / "m.uai", tmp_path / "r.csv"
    kk.write(kk.grid(6, 6, seed=1), model)
    run("sample", model, "-n", "2000", "--out", rows, "-q")
    learner = "pcd:max_iter=60,batch=50,learning_rate=0.02"
    place = tmp_path / "fit.npz"
    often = "from kikuchi.training.checkpoint import Checkpoint as C; C.due = True"
    begin = f"{often}; from kikuchi.cli.startup import main; main()"
    words = ["learn", rows, "-g", model, "-l", learner, "-o", tmp_path / "k.uai"]
    process = subprocess.Popen(
        [sys.executable, "-c", begin, *map(str, words), "--checkpoint", str(place), "-q"]
    )
    deadline = time.monotonic() + 60
    while not place.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    assert place.exists() and process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "k.uai").exists()
    for out, more in (("k.uai", ["--checkpoint", place, "--resume"]), ("w.uai", [])):
        assert run("learn", rows, "-g", model, "-l", learner, "-o", tmp_path / out, *more,
                   "-q").exit_code == 0  # fmt: skip
    assert (tmp_path / "k.uai").read_text() == (tmp_path / "w.uai").read_text()


# ---------------------------------------------------------------------- bad input


def test_too_few_rows_are_warned_of(tmp_path: Path) -> None:
    rows = tmp_path / "r.csv"
    rows.write_text("a,b,c\n0,1,0\n1,1,1\n0,0,1\n")
    words = ["learn", rows, "-g", "grid:1x3", "-o", tmp_path / "f.uai"]
    for learner in ("pseudo", "gradient", "pcd:max_iter=2"):
        assert "3 rows for" in run(*words, "-l", learner).stderr
    assert "rows for" not in run(*words, "-l", "pseudo:l2=0.1").stderr


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        ("", ["the file is empty"]),
        ("rain,sky\n", ["no rows"]),
        ("rain,sky,wet\nno,blue\n", ["line 2 has 2 cells"]),
        ("rain,rain\nno,no\n", ["two columns have the name 'rain'"]),
        ("rain,sky,mood\nno,blue,no\n", ["column 'mood' is not a variable of the model"]),
        ("rain,sky,wet\nno,purple,no\n", ["'purple' is not a state", "black"]),
        ("rain,sky,wet\n0,7,0\n", ["'7' is not a state"]),
    ],
)
def test_bad_tables(content: str, fragments: list[str], tmp_path: Path) -> None:
    model = tmp_path / "weather.bif"
    states = [["no", "yes"], ["black", "blue", "grey"], ["no", "yes"]]
    tables = [((0,), [0.5, 0.5]), ((1,), [0.3, 0.3, 0.4]), ((0, 2), [[0.5, 0.5], [0.5, 0.5]])]
    graph = kk.FactorGraph(
        [2, 3, 2], tables, names=["rain", "sky", "wet"], states=states, children=[0, 1, 2]
    )
    kk.write(graph, model)
    rows = tmp_path / "r.csv"
    rows.write_text(content)
    fails(["learn", rows, "-g", model, "-l", "em", "-o", tmp_path / "f.bif"], *fragments)
    fails(["evaluate", model, rows], *fragments)


def test_impossible_rows_are_refused(tmp_path: Path) -> None:
    model = tmp_path / "m.uai"
    model.write_text("MARKOV 2 2 2 1 2 0 1 4 1 0 1 1")
    rows = tmp_path / "r.csv"
    rows.write_text("x0,x1\n0,0\n0,1\n1,1\n")
    for learner in ("pseudo", "gradient", "cd", "surrogate", "ipf"):
        words = ["learn", rows, "-g", model, "-l", learner, "-o", tmp_path / "f.uai"]
        fails(words, "row 1 is impossible", "factor 0")


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["-g", "chow-liu", "-l", "psuedo"], ["no learner 'psuedo'", "did you mean 'pseudo'"]),
        (["-g", "chow-liu", "-l", "pseudo:l3=1"], ["learner pseudo has no option 'l3'"]),
        (["-g", "chow-liu", "-l", "pseudo", "--inference", "bp"], ["no option inference"]),
        (["-g", "chow-liu", "-l", "one-shot"], ["of 3 states", "use learner pseudo"]),
        (["-g", "chow-liu", "--l2", "-1"], ["option l2 must be in [0, inf)"]),
        (["-g", "grid:9x9"], ["grid"]),
        (["-g", "nowhere.uai"], ["nowhere.uai"]),
        (["-g", "nowhere.csv"], ["nowhere.csv", "no such file"]),
        (["-g", "example:asiaa"], ["did you mean 'asia'"]),
        (["-g", "chow-liu", "--hidden", "mood"], ["--hidden mood", "chow-liu has no place"]),
        (["-g", "chow-liu", "--hidden", "rain,sky,wet"], ["no variable is left"]),
        (["-g", "chow-liu", "-l", "pseudo", "--hidden", "sky"], ["needs complete rows"]),
        (["-g", "chow-liu", "--seconds", "0"], ["seconds must be positive"]),
        (["-g", "chow-liu", "--memory", "lots"], ["'lots' is not a size"]),
        (["-g", "grid:1x3", "--hidden", "h:1"], ["from 2 up"]),
    ],
)
def test_bad_words(words: list[str], fragments: list[str], table: Path, tmp_path: Path) -> None:
    fails(["learn", table, *words, "-o", tmp_path / "f.uai"], *fragments)


@pytest.mark.parametrize("ending", ["bif", "net", "xdsl", "xmlbif"])
def test_what_a_format_cannot_hold_is_refused_before_the_fit(
    ending: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = Mock(side_effect=AssertionError("the work began"))
    monkeypatch.setattr("kikuchi.learning.learner.Learner.fit", fit)
    out = tmp_path / f"f.{ending}"
    fails(["learn", table, "-g", "chow-liu", "-o", out], "directed models")
    quoted = tmp_path / "quoted.csv"
    quoted.write_text('"a ""b""",c\n' + "0,0\n1,1\n" * 20)
    if ending == "bif":
        fails(["learn", quoted, "-g", "hill-climb:bic", "-o", out], "cannot be written in a BIF")
    assert not out.exists()


def test_bad_files(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.uai"
    fails(["learn", tmp_path / "no.csv", "-g", "chow-liu", "-o", out], "no such file")
    fails(["learn", tmp_path / "no.docx", "-g", "chow-liu", "-o", out], "not a table of data")
    fails(["learn", table, "-g", "chow-liu", "-o", tmp_path / "f.docx"], ".docx", ".uai")
    fails(["learn", table, "-g", "chow-liu", "-o", tmp_path / "f.bif"], "directed models only")
    fails(["learn", table, "-g", "chow-liu", "-o", tmp_path / "no" / "f.uai"], "cannot write")
    fails(["learn", table, "-g", "chow-liu", "-o", out, "--report", out], "two outputs go to")
    fails(["sample", "example:asia", "--out", tmp_path / "s.txt"], "rows are written as .csv")
    fails(["sample", "example:asia", "--out", tmp_path / "s.csv", "-e", "smoke=7"], "smoke")
    bad = tmp_path / "m.uai"
    bad.write_text("MARKOV 1  2  1  1 0  2 1 1")
    (tmp_path / "m.uai.names.json").write_text('{"names": ["a", "b"], "states": null}')
    fails(["infer", bad], "m.uai.names.json", "not the names of this model")


def test_strict_exits_with_three(table: Path, tmp_path: Path) -> None:
    words = ["learn", table, "-g", "chow-liu", "-o", tmp_path / "f.uai", "--strict", "-q"]
    assert run(*words, "-l", "pseudo:max_iter=1,l2=0.1").exit_code == 3
    assert run(*words, "-l", "pseudo:l2=0.1").exit_code == 0


def test_directed_models_are_counted_by_default(tmp_path) -> None:
    import kikuchi as kk
    from kikuchi.graphs.directed import ancestral_sample

    asia = kk.example("asia")
    rows = ancestral_sample(asia, 500, seed=3)
    fit = kk.learn(asia, rows)
    assert fit.learner == "em:prior=0.2" and fit.converged
    table = fit.graph.table(asia.names.index("lung"))
    smoke, lung = rows[:, asia.names.index("smoke")], rows[:, asia.names.index("lung")]
    for s in (0, 1):
        counts = np.bincount(lung[smoke == s], minlength=2) + 0.2
        np.testing.assert_allclose(table[s], counts / counts.sum(), rtol=1e-9)
    assert kk.learn(kk.grid(2, 2, seed=0), [[0, 1, 1, 0]] * 3, l2=0.1).learner.startswith(
        "gradient"
    )


# ---------------------------------------------------------------------- Bayesian networks


@pytest.fixture(scope="module")
def asia_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("asia") / "rows.csv"
    assert run("sample", "example:asia", "-n", "500", "--seed", "1", "--out", path).exit_code == 0
    return path


def test_a_network_shows_arrows_score_held_out_likelihood_and_tables(
    asia_rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "fitted.bif"
    result = run(
        "learn", asia_rows, "--graph", "hill-climb:bic", "--out", out, "--json", tmp_path / "j.json"
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads((tmp_path / "j.json").read_text())
    rows = read_data(asia_rows)
    search = kk.learning.hill_climb(rows, "bic")
    assert sorted(map(tuple, found["edges"])) == sorted(search.edges)
    assert found["converged"] and found["structure_score"] == pytest.approx(search.score)
    assert all(f"{u} -> {v}" in result.stdout for u, v in search.edges)
    assert f"{search.score:.3f}" in result.stdout
    assert "p(xray | either)" in result.stdout and "converged" in result.stdout

    # held-out: the same by hand, from the rows that the command set aside
    order = np.random.default_rng(0).permutation(500)
    train, test = (rows.states[np.sort(part)] for part in (order[100:], order[:100]))
    part = rows.like(train, np.ones(400))
    model = kk.learning.hill_climb(part, "bic", pseudo_count=0.2).graph
    assert found["held_out"]["rows"] == 100
    assert found["held_out"]["log_likelihood"] == pytest.approx(model.log_score(test).mean())


def test_hold_out_may_be_switched_off_and_is_checked(asia_rows: Path, tmp_path: Path) -> None:
    words = [asia_rows, "--graph", "example:asia", "--out", tmp_path / "f.bif"]
    assert learn_json(*words, "--hold-out", "0")["held_out"] is None
    fails(["learn", *words, "--hold-out", "1.5"], "--hold-out must be a fraction")


def test_real_numbers_are_refused_and_bins_are_the_way_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    height = rng.normal(170, 10, 300)
    weight = 0.5 * height + rng.normal(0, 3, 300)
    source, out = tmp_path / "people.csv", tmp_path / "people.bif"
    lines = [f"{h:.2f},{w:.2f}" for h, w in zip(height, weight, strict=True)]
    source.write_text("\n".join(["height,weight", *lines]) + "\n")
    words = ["learn", source, "--graph", "hill-climb:bic", "--out", out]
    fails(words, "column height", "is not a state", "--bins 5")
    result = run(*words, "--bins", "3")
    assert result.exit_code == 0, result.stderr
    model = kk.read(out)
    assert [len(states) for states in model.states] == [3, 3]
    top = float(model.states["height"][-1].removeprefix(">="))
    assert np.mean(height >= top) == pytest.approx(1 / 3, abs=0.01)
    # evidence as a number, in the shell and in Python, is the bin that holds it
    answer = run("query", out, "weight", "--evidence", "height=190", "--json", "-")
    assert answer.exit_code == 0, answer.stderr
    expected = kk.query(model, "weight", evidence={"height": model.states["height"][-1]})
    by_value = kk.query(model, "weight", evidence={"height": 190.0})
    np.testing.assert_allclose(by_value["weight"], expected["weight"])
    assert f"{expected['weight'][2]:.6f}"[:8] in answer.stdout
    # later rows, too
    np.testing.assert_array_equal(
        kk.Data.of({"height": height.round(2), "weight": weight.round(2)}, model).states,
        read_data(source, bins=3).states,
    )
    again = [*words[:2], "--graph", out, "--out", tmp_path / "b.bif", "--bins", "3"]
    fails(again, "--bins 3", "has its states already")


def test_python_refuses_real_numbers_with_the_same_way_out() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 2))
    for given in (rows, {"a": rows[:, 0], "b": rows[:, 1].astype(str)}):
        with pytest.raises(DataError, match=r"is not a state.*bins=5"):
            kk.learning.hill_climb(given)
    assert kk.Data.of(rows, bins=5).cardinalities.tolist() == [5, 5]


def test_python_holds_rows_out() -> None:
    truth = kk.example("asia")
    rows = kk.plan(truth).calibrate().sample(400, seed=1)
    blank = kk.network(truth.edges)
    data = Data(rows, np.ones(400), np.full(8, 2), truth.names, truth.states)
    fit = kk.learn(blank, data, hold_out=0.25)
    assert fit.converged and fit.learner == "em:prior=0.2" and fit.held_out.rows == 100
    order = np.random.default_rng(0).permutation(400)
    part = kk.learn(blank, data.like(rows[np.sort(order[100:])], np.ones(300))).graph
    test = data.like(rows[np.sort(order[:100])], np.ones(100)).matched(blank)
    expected = part.log_score(test.states).mean()
    assert fit.held_out.log_likelihood == pytest.approx(expected)
    assert "asia -> tub" in fit.report() and "held-out rows" in fit.report()
    assert "p(tub | asia)" in fit._repr_html_()
