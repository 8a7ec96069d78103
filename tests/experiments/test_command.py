"""`kikuchi reproduce`: the list, a run, its outputs, bad words."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runner import LOOP, fails, run

from kikuchi.cli.console import Screen
from kikuchi_experiments import EXPERIMENTS, find_experiment, reproduce
from kikuchi_experiments.catalogue import all_experiments
from kikuchi_experiments.command import CatalogueAnswer, OutcomeAnswer

FIELDS = {
    "experiment",
    "document",
    "title",
    "claim",
    "version",
    "versions",
    "setting",
    "settings",
    "seeds",
    "cases",
    "finished",
    "resumed",
    "outdated",
    "complete",
    "stopped",
    "processes",
    "seconds",
    "case_seconds",
    "verdict",
    "rows",
    "results",
}


def test_without_an_id_the_experiments_are_listed() -> None:
    result = run("reproduce")
    assert result.exit_code == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["id", "title", "quick", "full", "status"]
    assert "TEH-*: Teh 2003" in lines
    assert [line.split()[0] for line in lines[2 : 2 + len(EXPERIMENTS)]] == list(EXPERIMENTS)


def test_no_word_of_a_table_is_broken_at_80_columns(monkeypatch) -> None:
    """On a terminal of 80 columns every word of a cell stands whole on a line."""
    outcome = reproduce("HOJ-E11", quick=True, processes=1)
    answers = [CatalogueAnswer(list(all_experiments())), OutcomeAnswer(outcome)]
    for answer in answers:
        stream = Terminal()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TERM", "dumb")
        Screen().answer(answer)
        monkeypatch.undo()
        lines = stream.getvalue().splitlines()
        assert max(map(len, lines)) <= 80
        shown = set(stream.getvalue().split())
        table = answer.table()
        words = {word for row in [table.head, *table.rows] for c in row for word in c.split()}
        assert words <= shown, words - shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_list_as_json() -> None:
    data = json.loads(run("reproduce", "--json", "-").stdout)
    assert [entry["id"] for entry in data] == list(EXPERIMENTS)
    assert set(data[0]) == {"id", "document", "title", "quick", "full", "status", "run"}


def test_a_cluster_gives_the_table_of_this_machine() -> None:
    pytest.importorskip("distributed")
    words = ["reproduce", "hoj-e11", "--quick", "--json", "-"]
    here, there = run(*words, "--processes", 1), run(*words, "--cluster", "local:1")
    assert there.exit_code == 0
    assert json.loads(there.stdout)["rows"] == json.loads(here.stdout)["rows"]
    fails([*words[:2], "--cluster", "local:0"], "number of workers must be at least 1")
    fails([*words[:2], "--cluster", "local:1", "--processes", 2], "--processes or --cluster")


def test_a_run_prints_ours_beside_theirs(tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "page.html"
    words = ["reproduce", "hoj-e11", "--quick", "--processes", 1, "--json", out, "--report", page]
    result = run(*words)
    assert result.exit_code == 0
    assert "quantity" in result.stdout and "corrected reference" in result.stdout
    assert "32 against 40" in result.stdout and "5 of 5 finished" in result.stdout
    assert f"written: {out}" in result.stderr and f"written: {page}" in result.stderr
    data = json.loads(out.read_text())
    assert set(data) == FIELDS
    assert data["experiment"] == "HOJ-E11" and data["setting"] == "quick" and data["complete"]
    text = page.read_text()
    assert "<svg" in text and "Ours beside theirs" in text and "http" not in text
    assert "kikuchi reproduce hoj-e11 --quick --processes 1 --report" in text


def test_resume_skips_what_is_there(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    words = ["reproduce", "HOJ-E11", "--quick", "--processes", 1, "--resume", kept, "--json", "-"]
    first = json.loads(run(*words, "--seeds", 2).stdout)
    second = json.loads(run(*words, "--seeds", 3).stdout)
    fresh = json.loads(run(*words[:5], "--seeds", 3, "--json", "-").stdout)
    assert (first["resumed"], second["resumed"], fresh["resumed"]) == (0, 2, 0)
    assert second["rows"] == fresh["rows"]
    assert [r["result"] for r in second["results"]] == [r["result"] for r in fresh["results"]]


def test_quiet_prints_nothing() -> None:
    result = run("reproduce", "HOJ-E11", "--quick", "--seeds", 1, "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["TEH-E99"], "there is no experiment 'TEH-E99'; did you mean 'TEH-E9'?"),
        (["HOJ-E11", "--seeds", "0"], "number of seeds must be at least 1"),
        (["HOJ-E11", "--seed", "-1"], "first seed"),
        (["HOJ-E11", "--processes", "0"], "processes must be at least 1"),
        (["HOJ-E11", "--seconds", "0"], "seconds must be positive"),
        (["HOJ-E11", "--seconds", "1e-9", "--processes", "1"], "allow more seconds"),
        (["TEH-E8", "--seeds", "3"], "no random numbers"),
        (["HOJ-E11", "--json", "no-such-folder/out.json"], "cannot write"),
        (["HOJ-E11", "--resume", "no-such-folder/kept"], "there is no folder"),
    ],
)
def test_bad_words(words: list[str], fragment: str) -> None:
    fails(["reproduce", *words], fragment)


def test_another_file_is_not_taken_for_finished_cases(tmp_path: Path) -> None:
    loop = tmp_path / "loop.uai"
    loop.write_text(LOOP)
    before = loop.read_bytes()
    fails(["reproduce", "HOJ-E11", "--quick", "--resume", loop], "line 1", "another kind of line")
    assert loop.read_bytes() == before


def test_ctrl_c_leaves_a_table_of_what_was_finished(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    words = ["reproduce", "HOJ-E11", "--seeds", "5000", "--processes", "2", "--resume", kept]
    process = subprocess.Popen(
        [sys.executable, "-m", "kikuchi", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    limit = time.monotonic() + 60
    while (not kept.exists() or kept.stat().st_size < 5000) and time.monotonic() < limit:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "stopped: interrupted" in output and "edges added by moralisation" in output
    assert "--resume" in errors and "Traceback" not in errors
    lines = kept.read_text().splitlines()
    assert lines and all(json.loads(line)["experiment"] == "HOJ-E11" for line in lines)


def test_own_data_are_taken_or_refused(tmp_path: Path) -> None:
    fails(["reproduce", "LIU-E9", "--data", "x.csv"], "LIU-E9 makes its own data")
    fails(["reproduce", "TEH-E11", "--data", tmp_path / "none.csv"], "cannot be read")
    assert "--data of TEH-E11: 8x8 images" in run("reproduce").stdout


def test_a_changed_file_is_another_case(tmp_path: Path) -> None:
    place = tmp_path / "eights.csv"
    place.write_text("0,1\n")
    first = find_experiment("TEH-E11", str(place)).source()
    place.write_text("1,0\n")
    assert find_experiment("TEH-E11", str(place)).source() != first
