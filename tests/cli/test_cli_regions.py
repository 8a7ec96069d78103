"""`kikuchi regions`: plans, data, pictures and clear refusals (TEH-M27, LIU-I10 to I12)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_runner import fails, run

from kikuchi import grid, write
from kikuchi.generate import complete
from kikuchi.graphs.regions.builders import REGION_TEXTS


@pytest.fixture
def square(tmp_path: Path) -> Path:
    path = tmp_path / "grid.uai"
    write(grid(3, 3), path)
    return path


def test_the_plan(square: Path) -> None:
    result = run("regions", square, "--regions", "faces")
    assert result.exit_code == 0
    assert "faces: 9, 4 of them roots" in result.stdout
    assert "exact for 192 of 192 spanning trees" in result.stdout
    rows = re.findall(r"^ +(\d+) +([+-]\d+) +(\d+)$", result.stdout, re.M)
    assert rows == [("4", "+1", "4"), ("2", "-1", "4"), ("1", "+1", "1")]


def test_short_option_default_and_quiet(square: Path) -> None:
    assert run("regions", square, "-r", "bethe").stdout.count("\n") > 5
    assert "auto: 9" in run("regions", square).stdout
    assert run("regions", square, "-q").stdout == ""


def test_exact_regions_say_so() -> None:
    assert "exact: the regions form" in run("regions", "example:asia", "-r", "junction-tree").stdout


def test_help_names_every_text() -> None:
    words = " ".join(run("regions", "--help").stdout.split())
    assert all(text in words for text in REGION_TEXTS)


def test_json_can_be_read_back_as_roots(square: Path, tmp_path: Path) -> None:
    out = tmp_path / "faces.json"
    assert run("regions", square, "-r", "faces", "--json", out, "-q").exit_code == 0
    data = json.loads(out.read_text())
    assert data["roots"][0] == [0, 1, 3, 4] and data["text"] == "faces" and not data["exact"]
    assert sum(r["counting"] for r in data["regions"] if 4 in r["variables"]) == 1
    again = json.loads(run("regions", square, "-r", f"file:{out}", "--json", "-").stdout)
    assert again["regions"] == data["regions"] and again["edges"] == data["edges"]


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize("text", ["faces", "faces+outer", "junction-tree"])
def test_pictures(square: Path, tmp_path: Path, ending: str, text: str) -> None:
    out = tmp_path / f"picture.{ending}"
    assert run("regions", square, "-r", text, "--plot", out).exit_code == 0
    start = out.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if ending == "png" else b"<svg" in out.read_bytes()[:1000]


def test_bad_input(square: Path, tmp_path: Path) -> None:
    fails(["regions", square, "-r", "faced"], "did you mean 'faces'", "junction:K")
    fails(["regions", square, "-r", "loops:9"], "3..6")
    fails(["regions", square, "-r", "star"], "no triangle")
    fails(
        ["regions", square, "-r", "junction-tree", "--memory", "100B"], "budget is 100 B", "states"
    )
    fails(["regions", square, "--memory", "much"], "not a size")
    fails(["regions", square, "--plot", tmp_path / "a.gif"], "which kind of picture", ".png")
    fails(["regions", square, "--plot", tmp_path / "no" / "a.png"], "cannot write")
    fails(["regions", square, "--json", square], "is an input of this command")
    fails(["regions", tmp_path / "absent.uai"], "absent.uai")
    path = tmp_path / "k5.uai"
    write(complete(5), path)
    fails(["regions", path, "-r", "faces"], "not planar", "tree-robust")
    roots = tmp_path / "roots.json"
    for content, words in [("[[0, 7]]", "7"), ("{", "line 1"), ("[3]", "root 0 is 3")]:
        roots.write_text(content)
        fails(["regions", path, "-r", f"file:{roots}"], "roots.json", words)
    fails(["regions", path, "-r", "file:"], "write file:ROOTS.json")
