"""`kikuchi fit`, `filter`, `forecast` and `sample` for models of sequences, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import fails, run

from kikuchi.temporal import FactorialHMM, ProbitFilter

KINDS = {
    "ssm": ["--n-components", "1"],
    "hmm": ["--n-states", "2"],
    "factorial": ["--n-states", "2,2", "--n-init", "2"],
    "hopping": ["--n-states", "2,2", "--lags", "1,2", "--n-init", "2"],
    "temporal-ica": ["--n-components", "1"],
    "haemodynamic": ["--lags", "3"],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.normal(size=(60, 2)), axis=0)
    path = tmp_path / "walk.csv"
    lines = ["a,b", *(f"{x:.4f},{y:.4f}" for x, y in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "m.safetensors"


def fit(kind: str, *words: object) -> Any:
    result = run("fit", kind, *words)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_fit_then_every_task(kind: str, data: Path, model: Path, tmp_path: Path) -> None:
    page, table = tmp_path / "page.html", tmp_path / "t.csv"
    words = [data, *KINDS[kind], "--max-iter", "5", "-o", model, "--report", page]
    result = fit(kind, *words)
    assert "log-likelihood" in result.output or "bound" in result.output
    assert page.read_text().count("<svg") >= 2
    rows = {"filter": 60, "forecast": 4}
    for task, more in (("filter", ["--smooth"]), ("forecast", ["--steps", "4"])):
        out = tmp_path / f"{task}.json"
        words = [task, model, data, *more, "--out", table, "--json", out, "--report", page]
        result = run(*words)
        assert result.exit_code == 0, result.output
        found = json.loads(out.read_text())
        lines = table.read_text().splitlines()
        assert found["kind"] == kind
        assert len(found["rows"]) == rows[task] == len(lines) - 1
        assert np.isfinite(np.array(found["rows"], dtype=float)).all()
        assert lines[0].split(",") == found["columns"]
    assert run("sample", model, "-n", "5", "-o", table, "--latents").exit_code == 0
    head, *lines = table.read_text().splitlines()
    assert head.startswith("state0,") and head.endswith("a,b") and len(lines) == 5


def test_a_fit_of_probit_and_inputs_and_several_sequences(
    data: Path, model: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 2))
    y = np.where(x[:, 0] > 0, 1, -1)
    path, out, table = tmp_path / "labels.csv", tmp_path / "p.json", tmp_path / "t.csv"
    lines = ["u,v,label", *(f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    words = [path, "--target", "label", "--drift", "0.001", "-o", model, "--json", out]
    assert "log-evidence" in fit("probit", *words, "--report", tmp_path / "p.html").output
    p = np.array(json.loads(out.read_text())["rows"])[:, 0]
    assert p.shape == (80,) and np.mean((p[40:] > 0.5) == (y[40:] > 0)) > 0.9
    score = json.loads(run("evaluate", model, path, "--json", "-").stdout)
    assert score["measure"] == "errors per row" and score["mean"] < 0.1
    fit("ssm", path, "--columns", "u", "--inputs", "v", "--max-iter", "3", "-o", model)
    fit("ssm", data, data, "--max-iter", "3", "-o", model)
    assert run("filter", model, data, data, "--out", table).exit_code == 0
    assert table.read_text().startswith("sequence,") and len(table.read_text().splitlines()) == 121


def test_posteriors_of_chains_and_sources_without_memory(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, table = tmp_path / "o.json", tmp_path / "t.csv"
    fit("factorial", data, *KINDS["factorial"], "--max-iter", "3", "--method", "bp", "-o", model)
    used = []
    for name in ("smooth", "forecast"):
        known = getattr(FactorialHMM, name)

        def recorded(*given: Any, known: Any = known, **more: Any) -> Any:
            used.append((known.__name__, more["method"]))
            return known(*given, **more)

        monkeypatch.setattr(FactorialHMM, name, recorded)
    for method in ("mean-field", "bp", "exact"):
        for task, more in (("filter", ["--smooth"]), ("forecast", ["--steps", "3"])):
            result = run(task, model, data, *more, "--method", method, "--json", out)
            assert result.exit_code == 0, result.output
            assert used[-1] == ({"filter": "smooth"}.get(task, task), method)
            assert np.isfinite(np.array(json.loads(out.read_text())["rows"], dtype=float)).all()
    words = ["--n-components", "1", "--max-iter", "3", "--persistence", "0", "-o", model]
    fit("temporal-ica", data, *words)
    assert run("sample", model, "-n", "2000", "--latents", "-o", table).exit_code == 0
    source = np.loadtxt(table, delimiter=",", skiprows=1)[:, 0]
    assert abs(np.corrcoef(source[1:], source[:-1])[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["kalman"], "there is no kind of model 'kalman'"),
        (["factorial", "--n-states", "2,x"], "--n-states are whole numbers"),
        (["ssm", "--columns", "c"], "there is no column 'c'"),
        (["ssm", "--columns", "a,a"], "column 'a' is asked for twice"),
        (["ssm", "--n-components", "0"], "--n-components must be in [1, inf)"),
        (["probit"], "Unknown label type"),
        (["probit", "--forecast", "3"], "probit has no forecast"),
        (["ssm", "--inputs", "a", "--forecast", "3"], "with --inputs there is no forecast"),
        (["factorial", "--method", "x"], "--method must be one of mean-field, bp, exact"),
        (["temporal-ica", "--persistence", "2"], "must be in [0, 1]"),
        (["hmm", "--seed", "-1"], "--seed must be a whole number >= 0"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, data: Path, model: Path) -> None:
    fails(["fit", words[0], data, *words[1:], "-o", model], message)
    assert not model.exists()


def test_a_task_that_a_kind_does_not_have_is_refused(data: Path, model: Path) -> None:
    fit("hmm", data, "--max-iter", "2", "-o", model)
    fails(["filter", model, data, "--method", "bp"], "hmm has no option --method")
    fails(["transform", model, data, "-o", "t.csv"], "kind hmm gives density", "rbm")
    fails(["forecast", data, data], "a fitted model is needed")


def _reversed_columns(source: Path, target: Path) -> Path:
    lines = [",".join(reversed(line.split(","))) for line in source.read_text().splitlines()]
    target.write_text("\n".join(lines) + "\n")
    return target


def test_columns_are_put_in_the_order_of_the_model(data: Path, model: Path, tmp_path: Path) -> None:
    turned = _reversed_columns(data, tmp_path / "turned.csv")
    fit("ssm", data, "--n-components", "1", "--max-iter", "3", "-o", model)
    tables = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for source, table in zip((data, turned), tables, strict=True):
        assert run("filter", model, source, "--out", table).exit_code == 0
    assert tables[0].read_text() == tables[1].read_text()
    told = [run("evaluate", model, source).stdout.splitlines()[-1] for source in (data, turned)]
    assert told[0] == told[1] and "log-likelihood" in told[0]
    assert "columns    2: a, b" in run("info", model).stdout
    wider, bare = tmp_path / "wider.csv", tmp_path / "bare.csv"
    wider.write_text("a,c,b\n1,2,3\n4,x,6\n")
    bare.write_text("b,a\n3,1\n6,4\n")
    for source, table in zip((wider, bare), tables, strict=True):
        assert run("filter", model, source, "--out", table).exit_code == 0
    assert tables[0].read_text() == tables[1].read_text()
    wider.write_text("a,c\n1,2\n4,5\n")
    fails(["filter", model, wider], "there is no column 'b', which")


def test_columns_are_put_in_the_order_of_the_first_file(
    data: Path, model: Path, tmp_path: Path
) -> None:
    turned = _reversed_columns(data, tmp_path / "turned.csv")
    answers = []
    for second in (data, turned):
        out = tmp_path / "o.json"
        words = [data, second, "--n-states", "2", "--max-iter", "3", "--json", out, "-o", model]
        fit("hmm", *words)
        answers.append(json.loads(out.read_text())["log_likelihood"])
    assert answers[0] == answers[1]
    other = tmp_path / "other.csv"
    other.write_text("a,c\n1,2\n")
    fails(["fit", "hmm", data, other, "-o", model], f"'b', which {data} has")


def test_a_fitted_probit_filter_is_applied_to_the_rows_that_are_given(
    model: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(1).normal(size=(30, 2))
    y = np.where(x[:, 0] > 0, 1, -1)
    paths = [tmp_path / name for name in ("all.csv", "turned.csv", "inputs.csv", "plain.csv")]
    lines = [f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True)]
    paths[0].write_text("\n".join(["u,v,label", *lines]) + "\n")
    _reversed_columns(paths[0], paths[1])
    paths[2].write_text("\n".join(["u,v", *(f"{a},{b}" for a, b in x)]) + "\n")
    paths[3].write_text("\n".join(f"{a},{b}" for a, b in x[::-1]) + "\n")
    table = tmp_path / "t.csv"
    fit("probit", paths[0], "--target", "label", "-o", model)
    fitted = ProbitFilter.load(model)
    del fitted.feature_names_in_
    expected = fitted.predict_proba(x)[:, 1]
    for path in paths:
        result = run("filter", model, path, "--out", table)
        assert result.exit_code == 0, result.output
        found = np.loadtxt(table, skiprows=1)
        assert np.allclose(found[::-1] if path == paths[3] else found, expected)
    words = ["fit", "probit", paths[0], "--target", "label,u", "-o", model]
    fails(words, "--target is one column")


def test_a_column_of_dates_needs_no_option(data: Path, model: Path, tmp_path: Path) -> None:
    lines = data.read_text().splitlines()
    dates = (np.datetime64("2021-01-01") + np.arange(len(lines) - 1)).astype(str)
    daily, table = tmp_path / "daily.csv", tmp_path / "t.csv"
    body = [f"{d},{line}" for d, line in zip(dates, lines[1:], strict=True)]
    daily.write_text("\n".join([f"day,{lines[0]}", *body]) + "\n")
    for more in ([], ["--columns", "a,b"]):
        fit("ssm", daily, "--max-iter", "3", *more, "-o", model)
        result = run("forecast", model, daily, "--steps", "3", "--out", table)
        assert result.exit_code == 0, result.output
        head, first, *_ = table.read_text().splitlines()
        assert head == "day,a,b,a_sd,b_sd" and first.startswith("2021-03-02,")


def test_the_page_of_a_fit_says_what_is_drawn(data: Path, model: Path, tmp_path: Path) -> None:
    page, out = tmp_path / "page.html", tmp_path / "o.json"
    fit("hmm", data, "--n-states", "3", "--max-iter", "4", "-o", model, "--report", page)
    text = page.read_text()
    assert "coloured by the most probable state" in text and "chain 1" not in text
    assert "largest change in one iteration" not in text
    assert run("forecast", model, data, "--json", out).exit_code == 0
    assert json.loads(out.read_text())["seconds"] > 1e-4  # of the forecast, not of an empty step


def test_a_fit_shows_the_regimes_that_it_found(model: Path, tmp_path: Path) -> None:
    """Three regimes far apart: rows, shares, means and the table are those of the data."""
    rng = np.random.default_rng(0)
    regimes = np.repeat([0, 1, 2, 1], [40, 60, 50, 50])
    means = np.array([[0.0, 8.0], [9.0, -3.0], [-9.0, 2.0]])
    rows = means[regimes] + 0.5 * rng.normal(size=(200, 2))
    source, table, page = tmp_path / "r.csv", tmp_path / "t.csv", tmp_path / "page.html"
    np.savetxt(source, rows, delimiter=",", header="temp,load", comments="")
    result = fit("hmm", source, "--n-states", 3, "--report", page, "-o", model)
    assert run("filter", model, source, "--smooth", "--out", table).exit_code == 0
    head, *lines = table.read_text().splitlines()
    assert head == "state,p0,p1,p2"
    found = np.array([int(line.split(",")[0]) for line in lines])
    name = {regime: found[regimes == regime][0] for regime in range(3)}
    assert [name[r] for r in regimes] == found.tolist()
    said = f"{name[0]} in 1-40, {name[1]} in 41-100, {name[2]} in 101-150, {name[1]} in 151-200"
    assert f"states by rows: {said}" in result.output
    shown = {line.split()[0]: line for line in result.output.splitlines() if line.strip()}
    for regime, share in ((0, "20%"), (1, "55%"), (2, "25%")):
        own = rows[regimes == regime]
        line = shown[str(name[regime])]
        assert share in line
        assert f"{own[:, 0].mean():.4g} ±" in line
    text = page.read_text()
    assert "state 2" in text and "coloured by the most probable state" in text
    assert "temp" in text and "load" in text
    predicted = tmp_path / "p.csv"
    assert run("predict", model, source, "-o", predicted).exit_code == 0
    assert np.loadtxt(predicted, skiprows=1).astype(int).tolist() == found.tolist()


def test_a_fit_forecasts_if_it_is_asked_to(data: Path, model: Path, tmp_path: Path) -> None:
    out, page, later = (tmp_path / name for name in ("o.json", "page.html", "later.json"))
    words = [data, "--n-components", 1, "--max-iter", 5, "--forecast", 3, "-o", model]
    result = fit("ssm", *words, "--json", out, "--report", page)
    assert "forecast of 3 steps after the last row" in result.output
    found = json.loads(out.read_text())["forecast"]
    assert run("forecast", model, data, "--steps", 3, "--json", later).exit_code == 0
    other = json.loads(later.read_text())
    assert found == {name: other[name] for name in ("columns", "rows")}
    assert "Next steps" in page.read_text()


@pytest.fixture
def dated(tmp_path: Path) -> Path:
    """Thirty days, of which two have no row, with a column of words beside."""
    rng = np.random.default_rng(0)
    level = np.cumsum(rng.normal(size=30))
    days = np.arange("2021-03-01", "2021-03-31", dtype="M8[D]")
    lines = ["date,load,site"]
    lines += [f"{day},{x:.4f},north" for k, (day, x) in enumerate(zip(days, level, strict=True))
              if k not in (4, 5)]  # fmt: skip
    path = tmp_path / "daily.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_dates_are_the_index_and_missing_days_are_gaps(
    dated: Path, model: Path, tmp_path: Path
) -> None:
    table, out = tmp_path / "t.csv", tmp_path / "o.json"
    words = [dated, "--columns", "load", "--forecast", "2", "-o", model, "--json", out]
    assert "2021-03-01 to 2021-03-30 by day, 2 without a row" in fit("ssm", *words).output
    found = json.loads(out.read_text())
    assert found["forecast"]["index"] == {"column": "date", "labels": ["2021-03-31", "2021-04-01"]}
    widths = np.array(found["rows"])[:, 1]
    assert widths[4] > widths[10]  # less is known on a day without a row
    assert run("filter", model, dated, "--smooth", "--out", table).exit_code == 0
    lines = table.read_text().splitlines()
    assert lines[0] == "date,state0,state0_sd" and len(lines) == 31
    assert [line[:10] for line in lines[5:7]] == ["2021-03-05", "2021-03-06"]
    words = ["forecast", model, dated, "--steps", "2", "--out", table]
    result = run(*words, "--report", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    lines = table.read_text().splitlines()
    assert lines[0] == "date,load,load_sd" and lines[1].startswith("2021-03-31,")


def test_columns_of_dates_that_cannot_be_an_index(dated: Path, model: Path) -> None:
    words = ["fit", "ssm", dated, "-o", model]
    fails([*words, "--columns", "date,load"], "column 'date' holds the dates of the rows")
    fails(words, "leave column 'site' out with --columns")
    text = dated.read_text()
    dated.write_text(text.replace("2021-03-02", "2021-03-01"))
    fails([*words, "--columns", "load"], "line 3: 2021-03-01 is there twice")
    lines = text.splitlines()
    dated.write_text("\n".join([lines[0], lines[1], lines[3], lines[8], lines[20]]))
    fails([*words, "--columns", "load"], "the dates are irregular")
