"""Running the command line inside the test process, and models to run it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.testing import CliRunner

from kikuchi.cli.main import app

COIN_AND_COPY = "MARKOV 2  2 2  2  1 0  2 0 1  2  1 3  4  2 1 1 2"
"""Weights 1, 3 on x0 and a factor that prefers x1 = x0: Z = 12, P(x1 = 1) = 7 / 12."""

LOOP = """MARKOV
3
2 2 2
6
1 0
1 1
1 2
2 0 1
2 1 2
2 0 2
2  1 2
2  1 1.5
2  2 1
4  3 1 1 3
4  1 3 3 1
4  2 1 1 2
"""


def run(*words: object) -> Any:
    """The outcome of one command; an error that is no exit shows its traceback in the test."""
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def fails(words: Sequence[object], *fragments: str, code: int = 2) -> str:
    """Check that a command ends with one line on standard error, and answer with that line."""
    result = run(*words)
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("kikuchi: "), result.stderr
    for fragment in fragments:
        assert fragment in lines[0], lines[0]
    return lines[0]
