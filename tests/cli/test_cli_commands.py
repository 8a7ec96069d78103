"""info, compare, generate, convert, methods, examples."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from cli_runner import fails, run

import kikuchi as kk
from kikuchi.cli import outputs
from kikuchi.cli.commands import generate
from kikuchi.cli.console import plain_table
from kikuchi.cli.inputs import split_methods
from kikuchi.data import examples as bundled
from kikuchi.graphs import formats
from kikuchi.graphs.generators import GENERATORS
from kikuchi.methods.registry import METHODS
from oracle import enumerate_exact

# ---------------------------------------------------------------------- info


def test_info_counts_everything(loop: Path) -> None:
    result = run("info", loop)
    assert result.exit_code == 0 and result.stderr == ""
    facts = dict(
        re.split(r"  +", line, maxsplit=1) for line in result.stdout.splitlines()[:14] if line
    )
    assert facts["variables"] == "3"
    assert facts["factors"] == "6"
    assert facts["edges"] == "9"
    assert facts["variables in a factor"] == "1 (3 times), 2 (3 times)"
    assert facts["states of a variable"] == "2 (3 times)"
    assert facts["cycles"] == "yes"
    assert facts["elimination width"].startswith("2 ")


def test_info_as_json(loop: Path) -> None:
    data = json.loads(run("info", loop, "--json", "-").stdout)
    assert data["variables"] == 3 and data["edges"] == 9 and data["zeros"] == 0
    assert data["cardinalities"] == [[2, 3]] and data["orders"] == [[1, 3], [2, 3]]
    assert data["forest"] is False and data["components"] == 1 and data["directed"] is False
    assert data["width"] == 2 and data["exact_bytes"] > 0 and data["exact_operations"] > 0
    assert data["log10_states"] == pytest.approx(3 * math.log10(2))
    assert [m["method"] for m in data["methods"]] == list(METHODS)


def test_info_after_evidence_sees_what_is_left(loop: Path) -> None:
    data = json.loads(run("info", loop, "-e", "x0=1", "--json", "-").stdout)
    assert data["observed"] == 1 and data["variables"] == 3
    assert data["forest"] is True and data["width"] == 1


def test_info_says_which_methods_fit(tmp_path: Path) -> None:
    model = tmp_path / "k.uai"
    kk.write(kk.generate.complete(40, seed=0), model)
    data = json.loads(run("info", model, "--memory", "1MB", "--json", "-").stdout)
    fits = {m["method"]: m["fits"] for m in data["methods"]}
    expected = {"jt": False, "enumerate": False, "bp": True, "mf": True, "gibbs": True}
    assert expected.items() <= fits.items()


def test_info_of_a_grid_and_of_a_directed_model(tmp_path: Path) -> None:
    model = tmp_path / "g.uai"
    kk.write(kk.grid(3, 4, seed=0), model)
    assert "grid of 3 by 4" in run("info", model).stdout
    assert "directed (conditional tables)" in run("info", "example:asia").stdout
    assert run("info", "example:asia", "--quiet").stdout == ""


# ---------------------------------------------------------------------- compare


def test_compare_measures_against_exact(loop: Path) -> None:
    data = json.loads(run("compare", loop, "--methods", "jt,bp,mf,gibbs", "--json", "-").stdout)
    log_z, singles, _ = enumerate_exact(kk.read(loop))
    rows = {row["method"]: row for row in data["methods"]}
    assert list(rows) == ["jt", "bp", "mf", "gibbs"]
    assert data["exact"]["log_z"] == pytest.approx(log_z, abs=1e-9)
    assert rows["jt"]["largest_error"] == 0.0
    bp = kk.infer(kk.read(loop), "bp")
    gaps = [np.abs(m - s).max() for m, s in zip(bp.marginals, singles, strict=True)]
    assert rows["bp"]["largest_error"] == pytest.approx(max(gaps), abs=1e-9)
    assert rows["bp"]["mean_error"] == pytest.approx(np.mean(gaps), abs=1e-9)
    assert rows["bp"]["log_z_error"] == pytest.approx(bp.log_z - log_z, abs=1e-9)
    assert rows["mf"]["log_z_error"] < 0, "mean field is a lower bound"
    assert rows["gibbs"]["log_z"] is None and rows["gibbs"]["log_z_error"] is None
    assert rows["gibbs"]["largest_error"] < 0.1


def test_compare_prints_a_table_with_footnotes(loop: Path) -> None:
    result = run("compare", loop, "--methods", "jt,bp:damping=0.5,schedule=parallel")
    assert result.exit_code == 0
    assert re.search(
        r"^method +log Z +error +largest +mean +sweeps +seconds +converged$", result.stdout, re.M
    )
    assert re.search(r"^jt +\S+ +0 +0 +0 ", result.stdout, re.M)
    assert "bp:schedule=parallel,damping=0.5" in result.stdout
    assert "libraries and compiled loops were loaded before" in result.stdout


def test_a_method_that_refuses_is_a_row_with_its_reason(loop: Path) -> None:
    result = run("compare", loop, "--methods", "bp:schedule=tree,jt,enumerate:max_states=2")
    assert result.exit_code == 0
    assert re.search(r"^bp:schedule=tree +– .*no answer$", result.stdout, re.M)
    assert "bp:schedule=tree: " in result.stdout and "cycles" in result.stdout
    assert "max_states is 2" in result.stdout
    data = json.loads(run("compare", loop, "-m", "bp:schedule=tree,jt", "--json", "-").stdout)
    assert data["methods"][0]["problem"] and data["methods"][1]["problem"] is None


def test_compare_fails_only_if_nothing_answers(loop: Path) -> None:
    result = run("compare", loop, "--methods", "bp:schedule=tree")
    assert result.exit_code == 2 and "no method gave an answer" in result.stderr


def test_compare_without_exact_says_so_with_the_figure(tmp_path: Path) -> None:
    model = tmp_path / "k.uai"
    kk.write(kk.generate.complete(40, seed=0, coupling=0.1), model)
    result = run("compare", model, "--methods", "bp,mf", "--memory", "1MB")
    assert result.exit_code == 0
    assert "exact inference is not feasible: width 39" in result.stdout
    assert "the budget is 1 MB" in result.stdout
    data = json.loads(run("compare", model, "-m", "bp", "--memory", "1MB", "--json", "-").stdout)
    assert data["exact"] is None and data["methods"][0]["largest_error"] is None


def test_compare_with_impossible_evidence_is_an_error(tmp_path: Path) -> None:
    model = tmp_path / "m.uai"
    model.write_text("MARKOV 2  2 2  1  2 0 1  4  1 0 0 1")
    fails(["compare", model, "-e", "x0=0,x1=1"], "probability zero")


def test_max_product_is_not_measured_as_marginals(pair: Path) -> None:
    data = json.loads(run("compare", pair, "-m", "bp:mode=max", "--json", "-").stdout)
    assert data["methods"][0]["largest_error"] is None


def test_mean_error_leaves_out_observed_variables(loop: Path) -> None:
    words = ["compare", loop, "--methods", "mf", "-e", "x0=1", "--json", "-"]
    row = json.loads(run(*words).stdout)["methods"][0]
    graph = kk.read(loop)
    exact = kk.infer(graph, "enumerate", evidence={0: 1})
    found = kk.infer(graph, "mf", evidence={0: 1})
    gaps = [np.abs(found[v] - exact[v]).max() for v in (1, 2)]
    assert row["mean_error"] == pytest.approx(np.mean(gaps), abs=1e-12)


def test_compare_writes_a_report_and_is_quiet(loop: Path, tmp_path: Path) -> None:
    page = tmp_path / "c.html"
    result = run("compare", loop, "--report", page, "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert "Methods compared on" in page.read_text()


def test_method_lists() -> None:
    assert split_methods("bp, mf ,") == ["bp", "mf"]
    assert split_methods("bp:damping=0.5,tol=1e-3,jt") == ["bp:damping=0.5,tol=1e-3", "jt"]
    assert split_methods("bp,damping=0.5") == ["bp:damping=0.5"]


# ---------------------------------------------------------------------- generate and convert

GENERATE = {
    "grid": (["3", "4"], {"rows": 3, "cols": 4}),
    "complete": (["5"], {"n": 5}),
    "random": (["12", "0.3"], {"n": 12, "p": 0.3}),
    "regular": (["8", "3"], {"n": 8, "degree": 3}),
    "tree": (["9"], {"n": 9}),
    "ldpc": (["12"], {"n": 12}),
    "tables": (["6", "5", "3", "4"], {"n": 6, "n_factors": 5, "max_order": 3, "max_states": 4}),
}


def test_every_generator_has_a_command() -> None:
    assert set(GENERATE) == set(GENERATORS)


@pytest.mark.parametrize("kind", GENERATE)
def test_generate_writes_the_model_of_the_library(kind: str, tmp_path: Path) -> None:
    words, arguments = GENERATE[kind]
    out, again = tmp_path / "m.uai", tmp_path / "n.uai"
    assert run("generate", kind, *words, "--out", out, "--seed", 7).exit_code == 0
    kk.write(GENERATORS[kind](**arguments, seed=7), again)
    assert out.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("kind", GENERATE)
def test_generate_offers_every_option_with_its_default(kind: str) -> None:
    command = typer.main.get_command(generate.app).get_command(None, kind)  # type: ignore[attr-defined]
    offered = {p.name: p for p in command.params}
    for name, parameter in inspect.signature(GENERATORS[kind]).parameters.items():
        assert name in offered
        if parameter.default is not inspect.Parameter.empty:
            assert offered[name].default == parameter.default, name


def test_generate_options_reach_the_generator(tmp_path: Path) -> None:
    out, again = tmp_path / "m.uai", tmp_path / "n.uai"
    words = ["--periodic", "--states", "3", "--coupling", "0.5", "--field", "0"]
    assert run("generate", "grid", 3, 3, *words, "-o", out).exit_code == 0
    kk.write(kk.grid(3, 3, seed=0, periodic=True, states=3, coupling=0.5, field=0.0), again)
    assert out.read_bytes() == again.read_bytes()


def test_generate_refuses_what_does_not_exist(tmp_path: Path) -> None:
    out = tmp_path / "m.uai"
    fails(["generate", "regular", 5, 3, "--out", out], "no graph of 5 variables")
    fails(["generate", "grid", 0, 3, "--out", out], "rows must be")
    fails(["generate", "grid", 3, 3, "--coupling", "-1", "--out", out], "coupling")
    assert not out.exists()


@pytest.mark.parametrize("target", ["b.uai", "b.fg", "b.fg.gz"])
def test_convert_keeps_the_model(loop: Path, tmp_path: Path, target: str) -> None:
    result = run("convert", loop, tmp_path / target)
    assert result.exit_code == 0 and "3 variables" in result.stdout
    before, after = kk.read(loop), kk.read(tmp_path / target)
    assert enumerate_exact(after)[0] == pytest.approx(enumerate_exact(before)[0], abs=1e-12)


def test_convert_an_example_and_refuse_what_a_format_cannot_hold(
    loop: Path, tmp_path: Path
) -> None:
    assert run("convert", "example:asia", tmp_path / "asia.bif", "-q").stdout == ""
    assert kk.read(tmp_path / "asia.bif").names is not None
    fails(["convert", loop, tmp_path / "loop.bif"], "only directed models")


def test_known_endings_are_those_of_the_formats(pair: Path, tmp_path: Path) -> None:
    assert outputs.MODEL_SUFFIXES == formats.SUFFIXES
    for ending in outputs.MODEL_SUFFIXES:
        anything = ending in (".uai", ".fg", ".json")
        kk.write(kk.read(pair) if anything else kk.example("asia"), tmp_path / f"m{ending}")


# ---------------------------------------------------------------------- methods and examples


def test_methods_prints_every_option_of_every_method() -> None:
    result = run("methods")
    assert result.exit_code == 0
    for name in METHODS:
        cls = METHODS.find(name)
        assert f"\n{name}  {cls.summary}" in result.stdout
        for field in dataclasses.fields(cls):
            assert re.search(rf"^{field.name} ", result.stdout, re.M), field.name
    assert "[0, 1)" in result.stdout and "sequential" in result.stdout


def test_one_method_and_json() -> None:
    assert "gibbs  " not in run("methods", "bp").stdout
    data = json.loads(run("methods", "--json", "-").stdout)
    assert [m["method"] for m in data] == list(METHODS)
    damping = next(o for m in data for o in m["options"] if o["option"] == "damping")
    assert damping["takes"] == "number in [0, 1)"
    takes = {m["method"] for m in data if m["takes_observed_marginals"]}
    assert takes == {name for name in METHODS if METHODS.find(name).takes_observed_marginals}
    fails(["methods", "bpp"], "did you mean 'bp'")


def test_every_method_runs_on_a_small_model(pair: Path) -> None:
    for name in METHODS:
        assert run("infer", pair, "--method", name, "-q").exit_code == 0, name


def test_examples_are_listed_and_each_can_be_read() -> None:
    result = run("examples")
    for name, description in bundled().items():
        assert f"example:{name} " in result.stdout and description in result.stdout
        assert run("info", f"example:{name}", "-q").exit_code == 0
    assert json.loads(run("examples", "--json", "-").stdout) == bundled()


def test_help_of_every_command() -> None:
    for words in ([], ["infer"], ["info"], ["compare"], ["generate"], ["convert"], ["methods"]):
        result = run(*words, "--help")
        assert result.exit_code == 0 and "Usage: " in result.stdout
    for kind in GENERATORS:
        assert "--out" in run("generate", kind, "--help").stdout


def test_version() -> None:
    lines = run("--version").stdout.splitlines()
    assert lines[0] == f"kikuchi {kk.__version__}"
    assert f"NumPy {np.__version__}" in lines and lines[1].startswith("Python 3.")


def test_plain_table_aligns_numbers_to_the_right() -> None:
    lines = plain_table(["a", "b"], [["x", "1"], ["yy", "10"]], right=[1])
    assert lines == ["a    b", "--  --", "x    1", "yy  10"]


def test_finite_json() -> None:
    data = {"x": [float("nan"), 1.0], "y": np.array([np.inf, 2.0]), 3: (1, None)}
    assert outputs.finite(data) == {"x": [None, 1.0], "y": [None, 2.0], "3": [1, None]}


@pytest.mark.parametrize("words", [("generate", "grid"), ("learn",)])
def test_every_format_that_is_written_is_named(words: tuple[str, ...]) -> None:
    told = run(*words, "--help").stdout
    for ending in (".uai", ".fg", ".bif", ".xmlbif", ".net", ".xdsl", ".dsl", ".json"):
        assert ending in told
