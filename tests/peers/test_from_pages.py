"""Pages for users of other libraries: their code prints what is shown, and ours is no longer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    "pgmpy": "from-pgmpy.md",
    "pyagrum": "from-pyagrum.md",
    "hmmlearn": "from-hmmlearn.md",
    "sklearn": "from-scikit-learn.md",
}
_MARK = "-- end of a fence --"
_QUIET = "import logging, warnings\nwarnings.simplefilter('ignore')\nlogging.disable()\n"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def _sections(page: str) -> list[list[tuple[str, str]]]:
    """The fences of each section, as language and text; before the first heading, the set-up."""
    parts = re.split(r"^## .*$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [_FENCE.findall(part) for part in parts]


def _lines(fences: list[tuple[str, str]], language: str) -> int:
    text = "\n".join(body for kind, body in fences if kind == language)
    return sum(bool(line.strip()) for line in text.splitlines())


@pytest.mark.parametrize("page", PAGES.values())
def test_ours_has_at_most_as_many_lines(page: str) -> None:
    tasks = [part for part in _sections(page) if any(kind == "py" for kind, _ in part)]
    assert tasks
    for fences in tasks:
        assert 0 < _lines(fences, "python") <= _lines(fences, "py")
        kinds = [kind for kind, _ in fences]
        assert all(kinds[k + 1] == "text" for k, kind in enumerate(kinds) if kind == "py")


@pytest.mark.parametrize(("library", "page"), PAGES.items())
def test_the_other_library_prints_what_is_shown(library: str, page: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    first, *tasks = _sections(page)
    code, expected = [_QUIET], []
    for fences in (first, *tasks):
        for k, (kind, body) in enumerate(fences):
            if kind == "console":
                words = body.splitlines()[0].removeprefix("$ kikuchi ").split()
                _run(["-m", "kikuchi", *words], tmp_path)
            elif kind == "py":
                code.append(f"{body}\nprint({_MARK!r})\n")
                expected.append(fences[k + 1][1])
            elif kind == "python" and fences is first:
                code.append(body)
    (tmp_path / "page.py").write_text("\n".join(code), encoding="utf-8")
    printed = _run(["page.py"], tmp_path).split(_MARK)[:-1]
    for got, shown in zip(printed, expected, strict=True):
        _compare(got, shown)


def _run(words: list[str], folder: Path) -> str:
    """What a Python program prints; pgmpy's search depends on the seed of hashes."""
    env = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, *words]
    done = subprocess.run(
        command, check=True, capture_output=True, encoding="utf-8", cwd=folder, env=env
    )
    return done.stdout


def _compare(printed: str, shown: str) -> None:
    """Equal words, and numbers equal to three digits: other versions round otherwise."""
    assert _NUMBER.sub("#", printed).split() == _NUMBER.sub("#", shown).split()
    numbers = [[float(x) for x in _NUMBER.findall(text)] for text in (printed, shown)]
    assert numbers[0] == pytest.approx(numbers[1], rel=2e-3, abs=2e-3)
