"""One file, one line, one test, one entry: the guide to a new method, carried out on a copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project_tools import ROOT, load_tool

import kikuchi as kk
from kikuchi.methods.registry import METHODS
from kikuchi.reports.facts import describe

examples = load_tool("examples")
GUIDE = ROOT / "docs" / "how-to" / "new-method.md"
ENTRY = "| `importance` | – | all distributions, by weighted draws | sampling | an estimate |\n"

ASK = """
import kikuchi as kk
from kikuchi.cli.main import app
from kikuchi.reports.facts import describe
from typer.testing import CliRunner

graph = kk.grid(3, 3, seed=1, coupling=0.5, field=0.5)
kk.write(graph, "grid.uai")
log_z = kk.infer(graph, "jt").log_z
assert abs(kk.infer(graph, "importance").log_z - log_z) < 0.05
assert "importance" in {fit.method for fit in describe(graph).fitting_methods() if fit.fits}
for words in (["methods"], ["methods", "importance"], ["info", "grid.uai"]):
    assert "importance sampling from the uniform" in CliRunner().invoke(app, words).output, words
report = ["infer", "grid.uai", "--method", "importance:batches=20", "--report", "page.html"]
assert CliRunner().invoke(app, report).exit_code == 0
assert "importance:batches=20" in open("page.html", encoding="utf-8").read()
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with the four additions of the guide, and no other change."""
    graph = kk.grid(3, 3, seed=1, coupling=0.5, field=0.5)
    kk.infer(graph, "jt")  # compiled here, where other tests profit; the copy finds it in the cache
    describe(graph)
    root = tmp_path_factory.mktemp("project")
    for folder in ("src", "tools", "docs"):
        shutil.copytree(ROOT / folder, root / folder)
    for name in ("oracle.py", "conftest.py"):
        if (ROOT / "tests" / name).is_file():
            (root / "tests").mkdir(exist_ok=True)
            shutil.copy(ROOT / "tests" / name, root / "tests" / name)
    for folder in ("methods", "common"):
        shutil.copytree(ROOT / "tests" / folder, root / "tests" / folder)
    shutil.copy(ROOT / "pyproject.toml", root)
    titled = {fence.title: fence.text for fence in examples.fences(GUIDE.read_text())}
    for title, text in titled.items():
        if title.startswith(("src/", "tests/")):
            (root / title).write_text(text)
    registry = root / "src" / "kikuchi" / "methods" / "names.py"
    text, count = re.subn(r'(        "auto": .*\n)', rf"\1{titled['line']}", registry.read_text())
    assert count == 1
    registry.write_text(text)
    theory = root / "docs" / "theory.md"
    theory.write_text(theory.read_text().replace("| `enumerate` |", f"{ENTRY}| `enumerate` |", 1))
    return root


def _run(root: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root / 'tests'}"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_part_of_the_program_knows_the_new_method(copy: Path) -> None:
    _run(copy, "-c", ASK)


def test_the_documents_know_the_new_method(copy: Path) -> None:
    assert f"{len(METHODS) + 1} methods" in _run(copy, "tools/methods.py")
    page = (copy / "docs" / "reference" / "methods.md").read_text()
    assert "## importance" in page and "| `importance` |  |  | any model |  | yes |  |" in page


def test_the_tests_of_the_guide_and_of_all_methods_hold_for_it(copy: Path) -> None:
    files = ["methods/test_importance.py", "methods/test_method.py", "common/test_methods.py"]
    paths = [f"tests/{file}" for file in files]
    said = _run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "importance", *paths)
    assert re.search(r"\d+ passed", said) or "100%" in said


def test_every_method_has_a_row_in_the_theory_map() -> None:
    text = (ROOT / "docs" / "theory.md").read_text()
    table = text[text.index("| method |") : text.index("$n_i$ is the number")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert named == set(METHODS)
