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
    (tmp_path / "tests/graphs/test_a.py").write_text("# TEH-M1\ndef test_directed(): ...\n")
    return tmp_path


def claim(row_id: str, **changes: object) -> object:
    fields = {
        "title": "t",
        "status": "done",
        "room": "",
        "modules": ("graphs/a.py",),
        "tests": ("graphs/test_a.py",),
        "note": "",
    }
    return coverage.Row(id=row_id, **(fields | changes))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (claim("TEH-M1"), None),
        (claim("TEH-M1", modules=("kikuchi_experiments/b.py",)), None),
        (claim("TEH-M3", tests=("graphs/test_a.py::test_directed",)), None),
        (claim("TEH-T1", modules=()), "does not cite it"),
        (claim("TEH-M3"), "cite it there or name the test function"),
        (claim("TEH-M3", tests=("graphs/test_a.py::test_gone",)), "no such test"),
        (claim("TEH-M1", tests=("graphs/test_b.py",)), "does not exist"),
        (claim("TEH-M1", tests=()), "names no test"),
        (claim("TEH-M1", modules=("graphs/b.py",)), "does not exist"),
        (claim("TEH-M1", modules=()), "names no module"),
        (claim("TEH-M4", tests=("graphs/test_a.py::test_directed",)), "does not cite it"),
        (claim("TEH-M1", status="partial"), "what is missing"),
        (claim("TEH-M1", status="nearly"), "has status"),
        (claim("TEH-M1", title=""), "no title"),
        (claim("TEH-M1", status="planned", room="graphs"), "names modules or tests"),
        (claim("TEH-M1", status="planned", modules=(), tests=(), room="attic"), "room"),
        (claim("TEH-M1", status="planned", modules=(), tests=(), room="graphs"), None),
    ],
)
def test_claims_are_checked(small_project: Path, row: object, fault: str | None) -> None:
    faults = coverage.check_row(row, small_project)
    assert faults == [] if fault is None else len(faults) == 1 and fault in faults[0]


def test_unknown_rows_in_the_source_and_a_stale_page_are_faults(small_project: Path) -> None:
    listed = {"TEH-M1": claim("TEH-M1")}
    faults, remarks = coverage.check(listed, small_project, shared=small_project / "absent")
    assert faults == [
        "src/kikuchi/graphs/a.py cites TEH-M3, which is not a row",
        "docs/coverage.md is not up to date; run python tools/rows.py",
    ]
    assert len(remarks) == 1
    (small_project / "docs/coverage.md").write_text(coverage.render(listed))
    faults, _ = coverage.check(listed, small_project, shared=small_project / "absent")
    assert len(faults) == 1


def test_rows_cited_by_a_module_but_claimed_by_no_entry_are_listed(small_project: Path) -> None:
    listed = {"TEH-M1": claim("TEH-M1"), "TEH-M3": claim("TEH-M3", modules=())}
    assert coverage.unclaimed(listed, small_project) == [
        "graphs/a.py: TEH-M3 (done)",
        "kikuchi_experiments/b.py: TEH-M1 (done)",
    ]
