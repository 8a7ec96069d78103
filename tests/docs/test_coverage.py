"""The list of catalogue rows agrees with the code, and the check notices when it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from project_tools import ROOT, load_tool

coverage = load_tool("rows")


@pytest.fixture(scope="module")
def rows() -> dict:
    return coverage.load(ROOT / "docs" / "coverage.toml")


def test_list_code_tests_and_page_agree(rows: dict) -> None:
    faults, _ = coverage.check(rows)
    assert faults == []


def test_list_is_complete_against_the_catalogues(rows: dict, shared: Path) -> None:
    assert coverage.check_complete(rows, shared / "specs") == []


def test_no_row_can_be_dropped_or_invented(rows: dict, shared: Path) -> None:
    fewer = {key: row for key, row in rows.items() if key not in ("HOJ-M8c", "TEH-T45")}
    more = rows | {"WH-L99": replace(rows["WH-L9"], id="WH-L99")}
    assert coverage.check_complete(fewer, shared / "specs") == [
        "TEH-T45 of teh2003.md is not in the list",
        "HOJ-M8c of hojen2001.md is not in the list",
    ]
    assert coverage.check_complete(more, shared / "specs") == [
        "WH-L99 is in the list but not in welling2001.md"
    ]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Row TEH-I2.", "TEH-I2"),
        ("TEH-I5, I8", "TEH-I5 TEH-I8"),
        ("(TEH-I1,\n    # I8 and M23)", "TEH-I1 TEH-I8 TEH-M23"),
        ("LIU-M1 to M3; HOJ-I3 to I5, I9", "LIU-M1 LIU-M2 LIU-M3 HOJ-I3 HOJ-I4 HOJ-I5 HOJ-I9"),
        ("HOJ-M8a..M8c", "HOJ-M8a HOJ-M8b HOJ-M8c"),
        ("TEH-T1–T3, TEH-T19", "TEH-T1 TEH-T2 TEH-T3 TEH-T19"),
        ("LIU-M4 (b), 5 states, T=0.3, K2", "LIU-M4"),
        ("TEH-I8 - 10 sweeps", "TEH-I8"),
        ("XTEH-I8, TEH-I8x9, UTF-M8", ""),
    ],
)
def test_citations_are_read_with_lists_and_ranges(text: str, ids: str) -> None:
    assert coverage.cited_rows(text) == set(ids.split())


@pytest.fixture
def small_project(tmp_path: Path) -> Path:
    for folder in ("src/kikuchi/graphs", "tests/graphs", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/kikuchi/graphs/a.py").write_text('"""Rows TEH-M1, M3."""\n')
    beside = tmp_path / "experiments/src/kikuchi_experiments"
    beside.mkdir(parents=True)
    (beside / "b.py").write_text('"""Row TEH-M1."""\n')
    (tmp_path / "tests/graphs/test_a.py").write_text(
        "def test_directed():\n    # TEH-M1\n    ...\n\n\ndef test_other(): ...\n\n\n# TEH-T1\n"
    )
    (tmp_path / "tests/graphs/models.py").write_text("# TEH-M3 is in no test\n")
    return tmp_path


def listed(project: Path, text: str) -> dict:
    (project / "docs/coverage.toml").write_text(f"[rows]\n{text}\n")
    return coverage.load(project / "docs/coverage.toml", project)


def test_modules_and_tests_are_those_that_cite_a_row(small_project: Path) -> None:
    rows = listed(small_project, 'TEH-M1 = "t"\nTEH-T1 = { title = "u", note = "n" }')
    assert rows["TEH-M1"].modules == ("graphs/a.py", "kikuchi_experiments/b.py")
    assert rows["TEH-M1"].tests == ("graphs/test_a.py::test_directed",)
    assert rows["TEH-T1"].tests == ("graphs/test_a.py",)
    assert (rows["TEH-T1"].title, rows["TEH-T1"].note) == ("u", "n")
    with pytest.raises(SystemExit, match="unknown fields"):
        listed(small_project, 'TEH-M1 = { title = "t", modules = ["graphs/a.py"] }')


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('TEH-M1 = "t"', None),
        ('TEH-M1 = ""', "has no title"),
        ('TEH-M1 = { title = "t", status = "nearly" }', "has status"),
        ('TEH-M1 = { title = "t", status = "planned" }', "is planned but is cited"),
        ('TEH-M1 = { title = "t", status = "partial" }', "without a note"),
        ('TEH-M1 = { title = "t", status = "partial", note = "n" }', None),
        ('TEH-M3 = "t"', "no test cites it"),
        ('TEH-T1 = "t"', None),
        ('TEH-L1 = { title = "t", status = "planned" }', None),
    ],
)
def test_rows_are_checked(small_project: Path, text: str, fault: str | None) -> None:
    rows = listed(small_project, text)
    faults = [fault for row in rows.values() for fault in coverage.check_row(row)]
    assert faults == [] if fault is None else len(faults) == 1 and fault in faults[0]


def test_a_row_that_nothing_cites_has_neither_module_nor_test(small_project: Path) -> None:
    (row,) = listed(small_project, 'TEH-L1 = "t"').values()
    assert coverage.check_row(row) == [
        "TEH-L1 is done but no module cites it",
        "TEH-L1 is done but no test cites it",
    ]


def test_unknown_rows_in_the_source_and_a_stale_page_are_faults(small_project: Path) -> None:
    rows = listed(small_project, 'TEH-M1 = "t"')
    faults, remarks = coverage.check(rows, small_project, shared=small_project / "absent")
    assert faults == [
        "src/kikuchi/graphs/a.py cites TEH-M3, which is not a row",
        "docs/coverage.md is not up to date; run python tools/rows.py",
    ]
    assert len(remarks) == 1
    (small_project / "docs/coverage.md").write_text(coverage.render(rows))
    faults, _ = coverage.check(rows, small_project, shared=small_project / "absent")
    assert len(faults) == 1
