"""What the README shows works."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from cli_runner import run
from project_tools import ROOT, load_tool
from readme_files import COMMANDS, write_files

PAGE = ROOT / "README.md"
TEXT = PAGE.read_text()
TABLE = TEXT[TEXT.index("| you have |") : TEXT.index("Times are")]
ROWS = [re.findall(r"`(kikuchi [a-z][^`]+)`", line) for line in TABLE.splitlines()]

examples = load_tool("examples")


def test_python_blocks_print_what_is_shown() -> None:
    faults = examples.run_page(PAGE)
    assert not faults, "\n".join(str(fault) for fault in faults)
    assert len([f for f in examples.fences(TEXT) if f.language == "text"]) >= 3


def test_the_table_of_make_run_shows_what_the_methods_answer() -> None:
    import kikuchi as kk

    rows = re.findall(r"^([a-z:=]+) +(\d+\.\d+) .* (yes|no)", TEXT, re.MULTILINE)
    assert [row[0] for row in rows] == ["jt", "bp", "bp:schedule=residual", "kikuchi", "mf"]
    graph = kk.example("grid10")
    for method, log_z, converged in rows:
        beliefs = kk.infer(graph, method)
        assert beliefs.log_z == pytest.approx(float(log_z), abs=1e-5), method
        assert beliefs.converged == (converged == "yes"), method


def test_pictures_and_pages_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert len(targets) >= 6
    for target in targets:
        assert (ROOT / target).exists(), target


def test_methods_and_commands_named_exist() -> None:
    from kikuchi.cli.main import app
    from kikuchi.methods.registry import METHODS

    table = TEXT[TEXT.index("| kind | methods |") : TEXT.index("Learners fit the tables")]
    named = {name for line in table.splitlines() for name in re.findall(r"`([a-z-]+)`", line)}
    assert named == set(METHODS)
    commands = {line.split()[1] for line in COMMANDS}
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert len(commands) > 10 and commands <= known


def quick(row: list[str]) -> bool:
    return all("example:" in line for line in row)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[] if quick(row) else pytest.mark.slow, id=row[0][8:40])
        for row in ROWS
        if row
    ],
)
def test_rows_run_as_printed(
    row: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On bundled models and files of the kind that the table names, one after another."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    for line in row:
        words = shlex.split(line)[1:]
        if words[0] == "patches":
            words += ["--count", "3000"]
        result = run(*words)
        assert result.exit_code == 0, result.stderr
        assert result.stdout
        for option, file in pairwise(words):
            if option in ("--out", "--table", "--report"):
                assert Path(file).exists(), f"{line} does not write {file}"


def test_the_large_model_is_too_large_for_exact_inference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kikuchi as kk

    monkeypatch.chdir(tmp_path)
    row = next(row for row in ROWS if row and row[0].startswith("kikuchi generate"))
    assert run(*shlex.split(row[0])[1:]).exit_code == 0
    graph = kk.read("BIG.uai")
    assert kk.plan(graph).bytes > 4e9
    answer = kk.infer(graph, seconds=3)
    assert answer.log_z_lower < answer.log_z < answer.log_z_upper
    assert answer.log_z_upper - answer.log_z_lower > 0.1


def test_every_row_says_how_long_it_takes() -> None:
    for line in TABLE.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "`kikuchi" in line:
            assert re.fullmatch(r"[\d.]+ (?:s|min)|as given", cells[3]), line


@pytest.mark.parametrize("line", re.findall(r"`(from kikuchi[^`]*)`", TEXT))
def test_lines_of_the_table_run(line: str) -> None:
    exec(line, {})


def test_options_of_commands_exist() -> None:
    for line in COMMANDS:
        words = shlex.split(line)[1:]
        names = words[:2] if words[0] in ("fit", "generate") else words[:1]
        shown = run(*names, "--help").stdout
        for option in (w for w in words if w.startswith("--")):
            assert option in shown, f"{option} of {' '.join(names)}"
