"""`kikuchi temporal`: every kind and task on small files, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import fails, run

from kikuchi.temporal import FactorialHMM, ProbitFilter

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


def _reversed_columns(source: Path, target: Path) -> Path:
    lines = [",".join(reversed(line.split(","))) for line in source.read_text().splitlines()]
    target.write_text("\n".join(lines) + "\n")
    return target


def test_columns_are_put_in_the_order_of_the_model(data: Path, tmp_path: Path) -> None:
    turned = _reversed_columns(data, tmp_path / "turned.csv")
    model = tmp_path / "m.safetensors"
    words = ["temporal", "fit", "ssm", str(data), "--state", "1", "--iterations", "3"]
    assert run(*words, "-o", str(model)).exit_code == 0
    tables = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for source, table in zip((data, turned), tables, strict=True):
        words = ["temporal", "filter", "ssm", str(source), "--model", str(model)]
        assert run(*words, "--table", str(table)).exit_code == 0
    assert tables[0].read_text() == tables[1].read_text()
    told = [run("evaluate", str(model), str(source)).stdout.splitlines()[-1]
            for source in (data, turned)]  # fmt: skip
    assert told[0] == told[1] and "log-likelihood" in told[0]
    again = tmp_path / "again.safetensors"
    words = ["temporal", "filter", "ssm", str(data), "--model", str(model), "-o", str(again)]
    assert run(*words).exit_code == 0
    assert "columns    2: a, b" in run("info", str(again)).stdout
    wider = tmp_path / "wider.csv"
    wider.write_text("a,c,b\n1,2,3\n4,5,6\n")
    words = ["temporal", "filter", "ssm", str(wider), "--model", str(model)]
    fails(words, "column 'c' is none of", "--columns")
    assert run(*words, "--columns", "b,a").exit_code == 0
    wider.write_text("a,c\n1,2\n4,5\n")
    fails(words, "there is no column 'b', which")


def test_columns_are_put_in_the_order_of_the_first_file(data: Path, tmp_path: Path) -> None:
    turned = _reversed_columns(data, tmp_path / "turned.csv")
    answers = []
    for second in (data, turned):
        out = tmp_path / "o.json"
        words = ["temporal", "fit", "hmm", str(data), str(second), "--states", "2"]
        assert run(*words, "--iterations", "3", "--json", str(out)).exit_code == 0
        answers.append(json.loads(out.read_text())["log_likelihood"])
    assert answers[0] == answers[1]
    other = tmp_path / "other.csv"
    other.write_text("a,c\n1,2\n")
    fails(["temporal", "fit", "hmm", str(data), str(other)], f"'b', which {data} has")


def test_a_fitted_probit_filter_answers_for_the_rows_that_are_given(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(30, 2))
    y = np.where(x[:, 0] > 0, 1, -1)
    paths = [tmp_path / name for name in ("all.csv", "turned.csv", "inputs.csv", "plain.csv")]
    lines = [f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True)]
    paths[0].write_text("\n".join(["u,v,label", *lines]) + "\n")
    _reversed_columns(paths[0], paths[1])
    paths[2].write_text("\n".join(["u,v", *(f"{a},{b}" for a, b in x)]) + "\n")
    paths[3].write_text("\n".join(f"{a},{b}" for a, b in x[::-1]) + "\n")
    model, table = tmp_path / "m.safetensors", tmp_path / "t.csv"
    words = ["temporal", "fit", "probit", str(paths[0]), "--label", "label", "-o", str(model)]
    assert run(*words).exit_code == 0
    fitted = ProbitFilter.load(model)
    del fitted.feature_names_in_
    expected = fitted.predict_proba(x)[:, 1]
    for path in paths:
        words = ["temporal", "filter", "probit", str(path), "--model", str(model)]
        result = run(*words, "--table", str(table))
        assert result.exit_code == 0, result.output
        found = np.loadtxt(table, skiprows=1)
        assert np.allclose(found[::-1] if path == paths[3] else found, expected)
    fails(["temporal", "fit", "probit", str(paths[0]), "--label", "label,u"], "--label is one")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "probit", "--table", "t.csv"], "probit or with --inputs has no table"),
        (["fit", "probit", "--forecast", "3"], "probit has no forecast"),
        (["fit", "ssm", "--inputs", "a", "--forecast", "3"], "with --inputs there is no forecast"),
        (["filter", "probit", "--smooth"], "probit has no option --smooth"),
        (["fit", "ssm", "--columns", "a,a"], "column 'a' is asked for twice"),
        (["filter", "factorial", "--chains", "2,3", "--model", "m"], "leave --chains and --lags"),
    ],
)
def test_options_that_would_be_passed_over_are_refused(
    words: list[str], message: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fails(["temporal", *words[:2], str(data), *words[2:], "-o", "n.safetensors"], message)
    assert not Path("n.safetensors").exists() and not Path("t.csv").exists()


def test_a_column_of_dates_needs_no_option(data: Path, tmp_path: Path) -> None:
    lines = data.read_text().splitlines()
    dates = (np.datetime64("2021-01-01") + np.arange(len(lines) - 1)).astype(str)
    daily, table = tmp_path / "daily.csv", tmp_path / "t.csv"
    body = [f"{d},{line}" for d, line in zip(dates, lines[1:], strict=True)]
    daily.write_text("\n".join([f"day,{lines[0]}", *body]) + "\n")
    words = ["temporal", "forecast", "ssm", str(daily), "--steps", "3", "--iterations", "3"]
    for more in ([], ["--columns", "a,b"]):
        result = run(*words, *more, "--table", str(table))
        assert result.exit_code == 0, result.output
        head, first, *_ = table.read_text().splitlines()
        assert head == "day,a,b,a_sd,b_sd" and first.startswith("2021-03-02,")


def test_tables_have_the_names_of_the_columns(data: Path, tmp_path: Path) -> None:
    table, bare = tmp_path / "t.csv", tmp_path / "bare.csv"
    bare.write_text("\n".join(data.read_text().splitlines()[1:]) + "\n")
    words = ["temporal", "sample", "hmm"]
    more = ["--iterations", "2", "--steps", "2", "--table", str(table)]
    for source, names in ((data, "state0,a,b"), (bare, "state0,column0,column1")):
        assert run(*words, str(source), *more).exit_code == 0
        assert table.read_text().splitlines()[0] == names


def test_the_page_of_a_fit_says_what_is_drawn(data: Path, tmp_path: Path) -> None:
    page, model = tmp_path / "page.html", tmp_path / "m.safetensors"
    words = ["temporal", "fit", "hmm", str(data), "--states", "3", "--iterations", "4"]
    assert run(*words, "-o", str(model), "--report", str(page)).exit_code == 0
    text = page.read_text()
    assert "coloured by the most probable state" in text and "chain 1" not in text
    assert "largest change in one iteration" not in text
    out = tmp_path / "o.json"
    words = ["temporal", "forecast", "hmm", str(data), "--model", str(model), "--json", str(out)]
    assert run(*words).exit_code == 0
    assert json.loads(out.read_text())["seconds"] > 1e-4  # of the forecast, not of an empty step


def test_a_fit_shows_the_regimes_that_it_found(tmp_path: Path) -> None:
    """Three regimes far apart: rows, shares, means and the table are those of the data."""
    rng = np.random.default_rng(0)
    regimes = np.repeat([0, 1, 2, 1], [40, 60, 50, 50])
    means = np.array([[0.0, 8.0], [9.0, -3.0], [-9.0, 2.0]])
    rows = means[regimes] + 0.5 * rng.normal(size=(200, 2))
    source, table, page = tmp_path / "r.csv", tmp_path / "t.csv", tmp_path / "page.html"
    np.savetxt(source, rows, delimiter=",", header="temp,load", comments="")
    words = ["temporal", "fit", "hmm", source, "--states", 3, "--table", table, "--report", page]
    result = run(*words)
    assert result.exit_code == 0, result.output
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


def test_a_fit_forecasts_if_it_is_asked_to(data: Path, tmp_path: Path) -> None:
    model, out, page = (tmp_path / name for name in ("m.safetensors", "o.json", "page.html"))
    words = ["temporal", "fit", "ssm", data, "--state", 1, "--iterations", 5, "--forecast", 3]
    result = run(*words, "-o", model, "--json", out, "--report", page)
    assert "forecast of 3 steps after the last row" in result.output
    found = json.loads(out.read_text())["forecast"]
    later = tmp_path / "later.json"
    words = ["temporal", "forecast", "ssm", data, "--model", model, "--steps", 3, "--json", later]
    assert run(*words).exit_code == 0
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


def test_dates_are_the_index_and_missing_days_are_gaps(dated: Path, tmp_path: Path) -> None:
    model, table, out = tmp_path / "m.safetensors", tmp_path / "t.csv", tmp_path / "o.json"
    words = ["temporal", "fit", "ssm", dated, "--columns", "load", "--forecast", "2"]
    result = run(*words, "-o", model, "--table", table, "--json", out)
    assert result.exit_code == 0, result.output
    assert "2021-03-01 to 2021-03-30 by day, 2 without a row" in result.output
    lines = table.read_text().splitlines()
    assert lines[0] == "date,state0,state0_sd" and len(lines) == 31
    assert [line[:10] for line in lines[5:7]] == ["2021-03-05", "2021-03-06"]
    found = json.loads(out.read_text())
    assert found["forecast"]["index"] == {"column": "date", "labels": ["2021-03-31", "2021-04-01"]}
    widths = np.array(found["rows"])[:, 1]
    assert widths[4] > widths[10]  # less is known on a day without a row
    words = ["temporal", "forecast", "ssm", dated, "--columns", "load", "--model", model]
    result = run(*words, "--steps", "2", "--table", table, "--report", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    lines = table.read_text().splitlines()
    assert lines[0] == "date,load,load_sd" and lines[1].startswith("2021-03-31,")


def test_columns_of_dates_that_cannot_be_an_index(dated: Path) -> None:
    words = ["temporal", "fit", "ssm", dated]
    fails([*words, "--columns", "date,load"], "column 'date' holds the dates of the rows")
    fails(words, "leave column 'site' out with --columns")
    text = dated.read_text()
    dated.write_text(text.replace("2021-03-02", "2021-03-01"))
    fails([*words, "--columns", "load"], "line 3: 2021-03-01 is there twice")
    lines = text.splitlines()
    dated.write_text("\n".join([lines[0], lines[1], lines[3], lines[8], lines[20]]))
    fails([*words, "--columns", "load"], "the dates are irregular")
