"""What the README shows works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from cli_runner import run
from project_tools import ROOT
from readme_files import COMMANDS, write_files

TEXT = (ROOT / "README.md").read_text()


def test_python_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "True" in capsys.readouterr().out


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
    from kikuchi.inference.registry import METHODS

    table = TEXT[TEXT.index("| method |") : TEXT.index("Tables may hold zeros")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert len(named) > 20 and named <= set(METHODS)  # the theory map has to name all of them
    commands = {line.split()[1] for line in COMMANDS}
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert len(commands) > 10 and commands <= known


def quick(line: str) -> bool:
    return "example:" in line


@pytest.mark.parametrize(
    "line", [c if quick(c) else pytest.param(c, marks=pytest.mark.slow) for c in COMMANDS]
)
def test_commands_run_as_printed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On bundled models and on files of the kind that the table names."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    if "train energy" in line:
        assert run("patches", "photographs", "--count", "3000", "--out", "P.npz").exit_code == 0
    result = run(*shlex.split(line)[1:])
    assert result.exit_code == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize("line", re.findall(r"`(from kikuchi[^`]*)`", TEXT))
def test_lines_of_the_table_run(line: str) -> None:
    exec(line, {})


def test_options_of_commands_exist() -> None:
    for line in COMMANDS:
        words = shlex.split(line)[1:]
        names = words[:2] if words[0] in ("ica", "temporal") else words[:1]
        shown = run(*names, "--help").stdout
        for option in (w for w in words if w.startswith("--")):
            assert option in shown, f"{option} of {' '.join(names)}"
