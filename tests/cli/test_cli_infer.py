"""`kikuchi infer`: the answer on the screen and in files, and its contract with programs."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from cli_runner import fails, run

import kikuchi as kk
from oracle import enumerate_exact

CONTRACT = {
    "model": str,
    "version": str,
    "evidence": dict,
    "method": str,
    "log_z": float,
    "log_z_lower": (float, type(None)),
    "log_z_upper": (float, type(None)),
    "converged": bool,
    "stopped": str,
    "iterations": int,
    "seconds": float,
    "variables": (list, type(None)),
    "state_names": (list, type(None)),
    "marginals": list,
    "state": (list, type(None)),
    "score": (float, type(None)),
    "warnings": list,
    "diagnostics": dict,
}


def strict_json(text: str) -> dict[str, object]:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    data = json.loads(text, parse_constant=refuse)
    assert isinstance(data, dict)
    return data


# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize("method", ["jt", "bp", "enumerate"])
def test_json_on_standard_output_is_the_contract(pair: Path, method: str) -> None:
    result = run("infer", pair, "--method", method, "--json", "-")
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 1
    data = strict_json(result.stdout)
    assert set(data) == set(CONTRACT)
    for name, kind in CONTRACT.items():
        assert isinstance(data[name], kind), name
    assert data["log_z"] == pytest.approx(math.log(12), abs=1e-9)
    np.testing.assert_allclose(data["marginals"], [[0.25, 0.75], [5 / 12, 7 / 12]], atol=1e-9)
    assert data["model"] == str(pair) and data["version"] == kk.__version__


def test_the_table_on_the_screen(pair: Path) -> None:
    result = run("infer", pair)
    assert result.exit_code == 0 and result.stderr == ""
    assert "log Z            2.484906650" in result.stdout
    assert "x1        0: 0.416667  1: 0.583333" in result.stdout
    assert "\x1b" not in result.stdout, "no colours when it is not a terminal"


def test_the_answer_agrees_with_enumeration_written_apart(loop: Path) -> None:
    log_z, singles, _ = enumerate_exact(kk.read(loop))
    data = strict_json(run("infer", loop, "--json", "-").stdout)
    assert data["log_z"] == pytest.approx(log_z, abs=1e-9)
    np.testing.assert_allclose(data["marginals"], singles, atol=1e-9)


def test_quiet_prints_nothing_but_still_writes(pair: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = run("infer", pair, "--quiet", "--json", out)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert strict_json(out.read_text())["converged"] is True


def test_many_variables_are_cut_short_on_the_screen(tmp_path: Path) -> None:
    model = tmp_path / "chain.uai"
    kk.write(kk.generate.random_tree(50, seed=1), model)
    result = run("infer", model, "--method", "bp")
    assert "... and 10 variables more" in result.stdout
    assert "x39" in result.stdout and "x40" not in result.stdout


def test_best_state_of_max_product_is_shown(pair: Path) -> None:
    result = run("infer", pair, "--method", "bp:mode=max")
    assert "best state" in result.stdout
    data = strict_json(run("infer", pair, "--method", "bp:mode=max", "--json", "-").stdout)
    assert data["state"] == [1, 1] and data["score"] == pytest.approx(math.log(6))


@pytest.mark.parametrize("method", ["bp:mode=max", "jt:mode=max"])
def test_max_marginals_are_called_so_everywhere(pair: Path, tmp_path: Path, method: str) -> None:
    table, page = tmp_path / "out.csv", tmp_path / "page.html"
    result = run("infer", pair, "-m", method, "-o", table, "--report", page, "--json", "-")
    data = strict_json(result.stdout)
    assert "marginals" not in data
    numbers = [p for belief in data["max_marginals"] for p in belief]
    head, *rows = table.read_text().splitlines()
    assert head == "variable,state,max_marginal"
    assert [float(row.split(",")[2]) for row in rows] == numbers
    text = page.read_text()
    assert "max-marginal of 1" in text and "P(1)" not in text and ">Marginals<" not in text
    screen = run("infer", pair, "-m", method).stdout
    assert "max-marginal" in screen and " marginal" not in screen
    for ending in ("MAR", "PR"):
        words = ["infer", pair, "-m", method, "-o", tmp_path / f"out.{ending}"]
        fails(words, "max-marginals", "mode=sum")


# ---------------------------------------------------------------------- files


def test_marginals_as_uai_and_as_a_table(pair: Path, tmp_path: Path) -> None:
    mar, table, pr = (tmp_path / name for name in ("out.MAR", "out.csv", "out.PR"))
    for path in (mar, table, pr):
        assert run("infer", pair, "--out", path).exit_code == 0
    words = mar.read_text().split()
    assert words[:3] == ["MAR", "2", "2"]
    assert float(words[4]) == pytest.approx(0.75) and float(words[7]) == pytest.approx(7 / 12)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["0", "1", "0", "1"]
    assert float(rows[3]["probability"]) == pytest.approx(7 / 12)
    assert pr.read_text().split()[0] == "PR"
    assert float(pr.read_text().split()[1]) == pytest.approx(math.log10(12))


def test_names_of_written_files_go_to_standard_error(pair: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.csv"
    result = run("infer", pair, "--out", out)
    assert result.stderr == f"written: {out}\n"


def test_a_report_is_written(pair: Path, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    assert run("infer", pair, "--report", page, "--method", "bp", "-e", "x0=1").exit_code == 0
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "kikuchi infer" in text and "--evidence x0=1" in text


def test_pr_needs_a_log_z(pair: Path, tmp_path: Path) -> None:
    result = run("infer", pair, "--method", "gibbs", "-q", "--out", tmp_path / "o.PR")
    assert result.exit_code == 2 and "gives no log Z" in result.stderr
    assert not (tmp_path / "o.PR").exists()


# ---------------------------------------------------------------------- evidence


def test_evidence_from_a_text_and_from_a_file_agree(pair: Path, tmp_path: Path) -> None:
    file = tmp_path / "e.evid"
    file.write_text("1 0 1")
    words = [str(file), "x0=1", "0=1", " x0 = 1 ,"]
    answers = [strict_json(run("infer", pair, "-e", e, "--json", "-").stdout) for e in words]
    for answer in answers:
        assert answer["evidence"] == {"0": 1}
        np.testing.assert_allclose(answer["marginals"], [[0, 1], [1 / 3, 2 / 3]], atol=1e-9)
        assert answer["log_z"] == pytest.approx(math.log(9), abs=1e-9)


def test_evidence_by_names_of_variables_and_states() -> None:
    by_name = strict_json(run("infer", "example:asia", "-e", "smoke=yes", "--json", "-").stdout)
    number = by_name["evidence"]["smoke"]  # type: ignore[index]
    by_number = run("infer", "example:asia", "-e", f"smoke={number}", "--json", "-").stdout
    assert by_name["marginals"] == strict_json(by_number)["marginals"]
    opposite = run("infer", "example:asia", "-e", f"smoke={1 - number}", "--json", "-").stdout
    assert by_name["marginals"] != strict_json(opposite)["marginals"]


def test_observed_marginals_reach_the_methods_that_take_them(pair: Path, tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_text('{"1": [0.2, 0.8]}')
    for evidence in ("x1=0.2:0.8", file):
        answer = run("infer", pair, "-m", "ups", "-e", evidence, "--json", "-").stdout
        data = strict_json(answer)
        assert data["evidence"] == {"1": [0.2, 0.8]}
        # p(x0 | x1) stays that of the model: 3/5 and 6/7 for x0 = 1.
        one = 0.2 * 3 / 5 + 0.8 * 6 / 7
        np.testing.assert_allclose(data["marginals"], [[1 - one, one], [0.2, 0.8]], atol=1e-6)
    fails(["infer", pair, "-m", "jt", "-e", "x1=0.2:0.8"], "not observed marginals")


def test_observed_marginals_in_a_report_and_a_comparison(pair: Path, tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    words = ["-e", "x1=0.2:0.8", "--report", page, "-q"]
    assert run("infer", pair, "-m", "ups", *words).exit_code == 0
    assert "x1=0.2:0.8" in page.read_text()
    result = run("compare", pair, "-m", "ups,bp", "-e", "x1=0.2:0.8")
    assert result.exit_code == 0
    assert "errors are against the junction tree" in result.stdout
    assert "bp: variable 1: method bp takes observed states" in result.stdout


def test_an_evidence_file_beside_the_model_is_not_used_by_itself(pair: Path) -> None:
    (pair.parent / "pair.uai.evid").write_text("1 0 1")
    (pair.parent / "pair.evid").write_text("1 0 1")
    assert strict_json(run("infer", pair, "--json", "-").stdout)["evidence"] == {}


@pytest.mark.parametrize(
    ("evidence", "fragment"),
    [
        ("x0=5", "has states 0..1, got 5"),
        ("x0=-1", "got -1"),
        ("x9=0", "there is no variable 9"),
        ("rain=1", "there is no variable 'rain'"),
        ("x0=yes", "state 'yes'"),
        ("x0", "there is no evidence file x0"),
        ("x0=", "not of the form variable=state"),
        ("=1", "not of the form variable=state"),
        ("x0=1,x0=0", "observed twice"),
        ("x0=0.3:b", "not a list of probabilities such as 0.3:0.7"),
        ("x0=0.3:0.3", "variable 0"),
        ("x0=0.2:0.3:0.5", "variable 0"),
        ("nowhere.evid", "there is no evidence file nowhere.evid"),
        ("a" * 5000, "there is no evidence file"),
    ],
)
def test_bad_evidence(pair: Path, evidence: str, fragment: str) -> None:
    fails(["infer", pair, "--evidence", evidence], fragment)


def test_impossible_evidence_says_so(tmp_path: Path) -> None:
    model = tmp_path / "m.uai"
    model.write_text("MARKOV 2  2 2  1  2 0 1  4  1 0 0 1")
    fails(["infer", model, "-e", "x0=0,x1=1"], "the evidence has probability zero")


# ---------------------------------------------------------------------- budgets, seeds, strictness


def test_strict_exits_with_three_after_writing(loop: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.json"
    words = ["infer", loop, "--method", "bp:max_iter=1", "--json", out]
    assert run(*words).exit_code == 0
    result = run(*words, "--strict")
    assert result.exit_code == 3
    data = strict_json(out.read_text())
    assert data["converged"] is False and data["stopped"] == "iterations"
    assert run("infer", loop, "--strict").exit_code == 0


def test_warnings_go_to_standard_error(loop: Path) -> None:
    result = run("infer", loop, "--method", "bp:max_iter=1")
    assert "warning: not converged" in result.stderr
    assert "converged        no: the limit of iterations was reached" in result.stdout


def test_seed_reaches_the_method_and_is_no_error_elsewhere(loop: Path) -> None:
    def answer(method: str, seed: int) -> dict[str, object]:
        words = ["infer", loop, "-m", method, "--seed", seed, "--json", "-"]
        return strict_json(run(*words).stdout)

    short = "gibbs:sweeps=50,burn_in=5"
    one, two, other = answer(short, 1), answer(short, 1), answer(short, 2)
    assert one["marginals"] == two["marginals"] != other["marginals"]
    assert "seed=2" in str(other["method"])
    assert answer("jt", 3)["method"] == "jt"


def test_memory_budget_is_passed_on(tmp_path: Path) -> None:
    model = tmp_path / "k.uai"
    kk.write(kk.generate.complete(20, seed=0), model)
    fails(["infer", model, "--method", "jt", "--memory", "1kB"], "the budget is 1 kB")


def test_an_expired_time_budget_gives_the_best_so_far(tmp_path: Path) -> None:
    model = tmp_path / "g.uai"
    kk.write(kk.grid(30, 30, seed=0), model)
    words = ["infer", model, "-m", "bp:tol=0,max_iter=100000000", "--seconds", "0.2"]
    data = strict_json(run(*words, "--json", "-").stdout)
    assert data["stopped"] == "seconds" and data["converged"] is False
    assert len(data["marginals"]) == 900  # type: ignore[arg-type]
