"""Report pages of questions about a model, and columns that predictions keep."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from cli_runner import fails, run

import kikuchi as kk


def _page(path):
    text = path.read_text()
    assert text.startswith("<!DOCTYPE html>") and "http" not in text and "<script" not in text
    return text


def test_reports_of_questions(tmp_path):
    page = tmp_path / "page.html"
    words = ["query", "example:asia", "lung", "--evidence", "xray=yes", "--report", page]
    assert run(*words).exit_code == 0
    text = _page(page)
    assert "<h1>lung given xray=yes</h1>" in text
    assert text.count("<svg") == 1 and "amber boxes are observed" in text
    exact = kk.query(kk.example("asia"), ["lung", "smoke"], evidence={"xray": "yes"})
    assert f"{exact['lung']['yes']:.6g}" in text
    assert f"{100 * exact['smoke']['yes']:.1f}%" in text  # in the network: not asked for
    assert "kk.query(graph, variables=[&#x27;lung&#x27;], evidence=" in text

    assert (
        run("most-probable", "example:asia", "--evidence", "xray=yes", "--report", page).exit_code
        == 0
    )
    assert "Most probable states given xray=yes" in _page(page)
    words = ["most-probable", "example:asia", "lung", "bronc", "--evidence", "xray=yes"]
    assert run(*words, "--report", page).exit_code == 0
    assert "kk.marginal_map(graph, variables=" in _page(page)

    assert run("bounds", "example:grid10", "--seconds", 2, "--report", page).exit_code == 0
    text = _page(page)
    assert "Bounds on log Z of example:grid10" in text and "lower bound" in text
    words = ["bounds", "example:asia", "-e", "xray=yes", "--seconds", 2, "--report", page]
    assert run(*words).exit_code == 0
    assert "given xray=yes" in _page(page)
    assert run("certify", "example:asia", "--report", page).exit_code == 0
    assert "certain to converge" in _page(page)


def test_large_models_are_drawn_near_the_question_only(tmp_path):
    page = tmp_path / "page.html"
    assert run("query", "example:grid10", "x44", "--report", page).exit_code == 0
    text = _page(page)
    assert "nearest to the question, of 100" in text and "<svg" in text
    assert run("query", "example:grid10", "--report", page).exit_code == 0
    text = _page(page)
    assert "A model of 100 variables is not drawn" in text and "<svg" not in text


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_predict_keeps_columns_beside_its_answers(ending, tmp_path):
    cases, out, page = (tmp_path / name for name in ("c.csv", f"a.{ending}", "page.html"))
    cases.write_text('id,xray,smoke\na1,yes,yes\n"b,2",,no\na1,yes,yes\n')
    words = ["predict", "example:asia", cases, "-o", out, "-t", "lung", "--keep", "id,smoke"]
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    result = run(*words, "--report", page)
    assert result.exit_code == 0, result.output
    if ending == "parquet":
        import pyarrow.parquet as parquet

        table = parquet.read_table(out).to_pydict()
    else:
        with out.open() as file:
            rows = list(csv.DictReader(file, delimiter="," if ending == "csv" else "\t"))
        table = {name: [row[name] for row in rows] for name in rows[0]}
    assert list(table) == ["id", "smoke", "lung=no", "lung=yes", "log_evidence"]
    assert table["id"] == ["a1", "b,2", "a1"] and table["smoke"] == ["yes", "no", "yes"]
    exact = [
        kk.query(kk.example("asia"), "lung", evidence=e)["lung"]["yes"]
        for e in ({"xray": "yes", "smoke": "yes"}, {"smoke": "no"}, {"xray": "yes", "smoke": "yes"})
    ]
    assert [float(x) for x in table["lung=yes"]] == pytest.approx(exact)
    text = _page(page)
    assert "averaged over the cases" in text and f"{np.mean(exact):.3f}".lstrip("0") in text
    fails([*words[:-1], "ID"], "there is no column 'ID'", "known: id, xray")
    fails([*words[:-1], "id,id"], "would be written twice")
    fails(words[:-2], "column 'id' is not a variable")


def test_the_report_of_an_evaluation(tmp_path):
    rows, page = tmp_path / "rows.csv", tmp_path / "page.html"
    assert run("sample", "example:asia", "-n", 50, "-o", rows).exit_code == 0
    result = run("evaluate", "example:asia", rows, "--report", page)
    assert result.exit_code == 0, result.output
    text = _page(page)
    figure = next(line for line in result.stdout.splitlines() if line.startswith("log-likelihood"))
    assert figure.split()[3] in text and text.count("<svg") >= 1
