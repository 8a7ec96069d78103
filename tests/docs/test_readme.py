"""What the README shows works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from cli_runner import run
from project_tools import ROOT

TEXT = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"`(kikuchi [a-z][^`]+)`", TEXT)


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
    write_files(photographs="train energy" in line)
    result = run(*shlex.split(line)[1:])
    assert result.exit_code == 0, result.stderr
    assert result.stdout


def write_files(*, photographs: bool) -> None:
    import kikuchi as kk

    rng = np.random.default_rng(0)
    Path("CASES.csv").write_text("xray,smoke\nyes,no\n,yes\n")
    asia = kk.example("asia")
    states = kk.plan(asia).calibrate().sample(200, seed=0)
    lines = [",".join(n[s] for n, s in zip(asia.states, row, strict=True)) for row in states]
    Path("ROWS.csv").write_text("\n".join([",".join(asia.names), *lines]) + "\n")
    np.savez("ROWS.npz", data=(rng.random((60, 16)) < 0.4).astype(float))
    sources = rng.laplace(size=(300, 3))
    np.savetxt("RECORDING.csv", sources @ rng.normal(size=(3, 4)), delimiter=",")
    np.savetxt("SERIES.csv", np.cumsum(rng.normal(size=(200, 2)), axis=0), delimiter=",")
    table = np.column_stack([sources[:80], sources[:80, 0] + 0.1 * rng.normal(size=80)])
    np.savetxt("TABLE.csv", sources @ rng.normal(size=(3, 3)), delimiter=",")
    kinds = ["long" if x > 0 else "short" for x in sources[:, 0]]
    rows = [f"{a:.6g},{b:.6g},{kind}" for (a, b, _), kind in zip(sources, kinds, strict=True)]
    Path("CLASSES.csv").write_text("\n".join(["a,b,kind", *rows]) + "\n")
    np.savetxt("DATA.csv", table, delimiter=",", header="a,b,c,fat", comments="")
    if photographs:
        assert run("patches", "photographs", "--count", "3000", "--out", "P.npz").exit_code == 0


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
