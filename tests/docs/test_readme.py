"""What the README shows works."""

from __future__ import annotations

import re

import pytest
from project_tools import ROOT

TEXT = (ROOT / "README.md").read_text()


def test_python_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "True" in capsys.readouterr().out


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
    commands = set(re.findall(r"^kikuchi (\w+)", TEXT, re.MULTILINE))
    known = {c.name or c.callback.__name__ for c in app.registered_commands}
    known |= {g.name for g in app.registered_groups}
    assert commands <= known
