"""`kikuchi query`, `predict` and `most-probable`: answers, files and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kikuchi as kk
from kikuchi.cli.main import app

RUN = CliRunner()
ASIA = kk.example("asia")


def run(*words: str, code: int = 0) -> str:
    result = RUN.invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def test_query_on_the_screen_and_as_json() -> None:
    text = run("query", "example:asia", "xray", "bronc", "--evidence", "dysp=yes")
    assert "xray" in text and "exact" in text and "dysp=yes" in text
    words = ("query", "example:asia", "xray", "--evidence", "dysp=yes", "--evidence", "smoke=no")
    data = json.loads(run(*words, "--likelihood", "tub=0.8,0.3", "--json", "-"))
    expected = kk.query(
        ASIA, "xray", evidence={"dysp": "yes", "smoke": "no"}, likelihood={"tub": [0.8, 0.3]}
    )
    assert data["distributions"]["xray"]["yes"] == pytest.approx(expected["xray"]["yes"])
    joint = json.loads(run("query", "example:asia", "xray", "tub", "--joint", "--json", "-"))
    assert joint["variables"] == ["xray", "tub"] and len(joint["joint"]) == 2
    marginal = json.loads(
        run("query", "example:asia", "lung", "-e", "smoke=0.1:0.9", "--json", "-")
    )
    assert marginal["distributions"]["lung"]["yes"] == pytest.approx(0.091)
    bp = json.loads(run("query", "example:asia", "lung", "--method", "bp", "--json", "-"))
    assert bp["exact"] is False and bp["method"] == "bp"


def test_most_probable() -> None:
    words = ("most-probable", "example:asia", "--evidence", "xray=yes", "--best", "3")
    data = json.loads(run(*words, "--json", "-"))
    found = kk.most_probable(ASIA, {"xray": "yes"}, best=3)
    assert [item["states"] for item in data["most_probable"]] == [dict(item) for item in found]
    assert "0.235139" in run(*words)
    some = json.loads(run("most-probable", "example:asia", "smoke", "lung", "--json", "-"))
    assert some["exact"] and set(some["states"]) == {"smoke", "lung"}


def test_predict(tmp_path: Path) -> None:
    cases, out = tmp_path / "cases.csv", tmp_path / "answers.csv"
    cases.write_text("xray,smoke\nyes,yes\n,no\n")
    words = ("predict", "example:asia", str(cases), "--target", "lung,tub", "--out", str(out))
    assert "2 rows" in run(*words)
    assert out.read_text().splitlines()[0] == "lung=no,lung=yes,tub=no,tub=yes,log_evidence"
    cases.write_text("xray,smoke\nyes,maybe\n")
    text = run(*words, code=2)
    assert "row 1, column 'smoke': 'maybe' is not a state; the states are no, yes" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("query", "example:asia", "lnug"), "did you mean 'lung'"),
        (("query", "example:asia", "--joint"), "name the variables"),
        (("query", "example:asia", "--likelihood", "tub"), "is no likelihood"),
        (("query", "example:asia", "-e", "tub=yes,either=no"), "tub=yes, either=no together"),
        (("most-probable", "example:asia", "--best", "0"), "at least 1"),
        (("most-probable", "example:asia", "tub", "--best", "2"), "leave the names out"),
        (("predict", "example:asia", "none.csv", "--out", "a.csv"), "no such file"),
        (("predict", "example:asia", "none.txt", "--out", "a.csv"), "no file of cases"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], says: str) -> None:
    text = run(*words, code=2)
    assert says in text and len(text.strip().splitlines()) == 1


def test_infer_names_its_variables_in_json() -> None:
    data = json.loads(run("infer", "example:asia", "--method", "jt", "--json", "-"))
    assert data["variables"] == list(ASIA.names)
    assert data["state_names"][0] == ["no", "yes"]


def test_names_with_an_equals_sign(tmp_path: Path) -> None:
    model = tmp_path / "m.json"
    table = [[0.4, 0.1], [0.2, 0.3]]
    states = [["low", "b=c"], ["no", "yes"]]
    kk.write(kk.FactorGraph([2, 2], [((0, 1), table)], names=["p=q", "r"], states=states), model)
    for given, expected in (("p=q=low", 0.8), ("p=q = b=c", 0.4)):
        told = json.loads(run("query", str(model), "r", "-e", given, "--json", "-"))
        assert told["distributions"]["r"]["no"] == pytest.approx(expected)
    assert "no variable 'p'" in run("query", str(model), "r", "-e", "p=low", code=2)
    told = run("query", str(model), "r", "-e", "a,b=1", code=2)
    assert "names with commas can be given in a JSON file" in told
