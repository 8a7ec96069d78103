"""Streams of the process: encodings, full devices, closed descriptors, models on standard input."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import COIN_AND_COPY, fails
from typer.testing import CliRunner

from kikuchi.cli.main import app
from kikuchi.learning.files import read_data

ODD = """network odd {{ }}
variable "{name}" {{ type discrete [ 2 ] {{ "{state}", plain }}; }}
probability ( "{name}" ) {{ table 0.25, 0.75; }}
"""


def shell(words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command line of the program in a shell, where `kikuchi` starts it.

    Enumeration answers without compiled loops, which would take four fifths of every start.
    """
    program = f'kikuchi() {{ {shlex.quote(sys.executable)} -m kikuchi "$@"; }}; {words}'
    home = {n: v for n, v in os.environ.items() if not n.startswith(("LC_", "LANG", "PYTHONIO"))}
    return subprocess.run(
        ["bash", "-c", program],
        capture_output=True,
        timeout=120,
        check=False,
        env={**home, **environment},
    )


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    place = tmp_path / "größe→.bif"
    place.write_text(ODD.format(name="größe→", state="ja–"), encoding="utf-8")
    return place


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "cp1252", "C"],
)
def test_letters_that_the_encoding_lacks(odd: Path, environment: dict[str, str]) -> None:
    result = shell(f"kikuchi infer {odd} -m enumerate", **environment)
    assert (result.returncode, result.stderr) == (0, b"")
    assert rb"\u2192" in result.stdout and b"ja" in result.stdout
    told = shell(f"kikuchi infer {odd} -m enumerate --json -", **environment)
    assert told.returncode == 0 and json.loads(told.stdout)["model"].endswith(".bif")
    refused = shell("kikuchi info größe→", **environment)
    assert refused.returncode == 2 and refused.stderr.count(b"\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize(
    "words", ["infer example:asia -m enumerate", "examples --json -", "--help"]
)
def test_a_full_device_is_one_line(words: str) -> None:
    result = shell(f"kikuchi {words} > /dev/full")
    assert result.returncode == 2
    assert result.stderr == b"kikuchi: cannot read or write the output: No space left on device\n"
    assert shell(f"kikuchi {words} > /dev/full 2> /dev/full").returncode == 2


@pytest.mark.parametrize(
    ("closed", "code"),
    [(">&-", 0), ("2>&-", 0), (">&- 2>&-", 0), ("<&-", 0), ("<&- >&- 2>&-", 0)],
)
def test_closed_streams(tmp_path: Path, closed: str, code: int) -> None:
    out = tmp_path / "out.json"
    result = shell(f"kikuchi infer example:asia -m enumerate --json {out} {closed}")
    assert result.returncode == code
    assert b"Traceback" not in result.stderr + result.stdout
    assert json.loads(out.read_text())["log_z"] is not None
    assert shell(f"kikuchi infer nowhere.uai {closed}").returncode == 2


def test_a_reader_that_leaves_early() -> None:
    result = shell(
        "kikuchi methods --help | true; kikuchi infer example:asia -m enumerate | head -1; exit 0"
    )
    assert result.stderr == b""


def test_control_characters_of_names_are_shown_by_their_codes(tmp_path: Path) -> None:
    place = tmp_path / "odd.bif"
    place.write_text(ODD.format(name="\x1b[31mred", state="\x07bell\u202e"))
    for words in (["infer", place, "-m", "jt"], ["infer", place, "-e", "\x1b[2J=1"]):
        result = CliRunner().invoke(app, [str(word) for word in words])
        text = result.stdout + result.stderr
        assert "\\x1b[" in text and not set(text) & set("\x1b\x07\u202e")


def test_cells_that_a_spreadsheet_would_run(tmp_path: Path) -> None:
    place, out, rows = tmp_path / "odd.bif", tmp_path / "out.csv", tmp_path / "rows.csv"
    place.write_text(ODD.format(name="=1+1", state="@cmd"))
    run = CliRunner().invoke
    assert run(app, ["infer", str(place), "-m", "jt", "-o", str(out)]).exit_code == 0
    cells = [line.split(",")[:2] for line in out.read_text().splitlines()[1:]]
    assert cells == [["'=1+1", "'@cmd"], ["'=1+1", "plain"]]
    assert run(app, ["sample", str(place), "-n", "9", "-o", str(rows)]).exit_code == 0
    assert rows.read_text().startswith("'=1+1\n")
    found = read_data(rows)
    assert found.names == ("=1+1",) and set(found.state_names[0]) <= {"@cmd", "plain"}


def test_a_model_on_standard_input() -> None:
    for data in (COIN_AND_COPY.encode(), gzip.compress(COIN_AND_COPY.encode())):
        for command in ("info", "regions"):
            result = CliRunner().invoke(app, [command, "-", "--format", "uai", "--json", "-"], data)
            assert result.exit_code == 0, result.stderr
            assert json.loads(result.stdout)
    fails(["infer", "-"], "--format uai, fg, bif")
    fails(["infer", "-", "--format", "txt"], "there is no format 'txt'")
    result = CliRunner().invoke(app, ["infer", "-", "--format", "fg"], COIN_AND_COPY)
    assert result.exit_code == 2 and "line 1" in result.stderr
