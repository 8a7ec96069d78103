"""The texts that are listed as clean have none of the refused phrases, and the check finds them."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_tools import ROOT, load_tool

english = load_tool("check_english")


def phrases(words: str, is_docstring: bool = False) -> list[str]:
    return [message for _, message in english.faults_of(english.Text(1, words, is_docstring))]


def test_packages_and_pages_that_are_clean_stay_clean() -> None:
    assert english.check() == []


def test_the_list_of_clean_packages_names_what_exists_once() -> None:
    assert len(set(english.CLEAN)) == len(english.CLEAN)
    assert {f"src/kikuchi/{p}" for p in ("core", "graphs", "methods", "plots")} <= set(
        english.CLEAN
    )
    assert english.check(["src/kikuchi/attic"])[0].endswith("does not exist")


@pytest.mark.parametrize(
    ("words", "better"),
    [
        ("Sweeps, and answers with the residual.", "returns"),
        ("The best point is answered.", "is returned"),
        ("A function that is told how far the run is.", "is passed"),
        ("A warning says so.", "reports"),
        ("`log_z` is no bound.", "is not a"),
        ("Refuse what is no number.", "anything but"),
        ("Diagonal or full, as held-out rows like better.", "scores better"),
        ("log-likelihood per row, rows learnt from", "training"),
        ("most sweeps over all messages", "maximum number"),
        ("largest change of a message to stop at; 0 runs on", "0: never"),
        ("Memory as a text such as 2GB.", "a string"),
        ("a method text is all that changes", "specification string"),
        ("variables between two looks at the clock", "check of the clock"),
        ("ever dearer bounds", "more expensive"),
        ("Numbers for people.", "human-readable"),
        ("Whom a run tells.", "to which"),
        ("killed and taken up again", "resumed"),
    ],
)
def test_phrases_of_the_dialect_are_found(words: str, better: str) -> None:
    assert any(better in message for message in phrases(words))


@pytest.mark.parametrize(
    "words",
    [
        "Return the marginals of all variables.",
        "There is no bound, and the bound is no longer finite.",
        "Colours tell states apart.",
        "Maximum number of sweeps; the most probable state.",
        "The values that `answers` and `told` contain.",
        "Stop when no message changes by more than this; 0: never.",
    ],
)
def test_plain_english_passes(words: str) -> None:
    assert phrases(words) == []


def test_docstrings_begin_with_an_imperative_or_a_noun() -> None:
    assert phrases("What a run has left.", is_docstring=True)
    assert not phrases("What a run has left.")
    assert not phrases("Return what a run has left.", is_docstring=True)


def test_places_are_lines_of_the_file_and_code_is_passed_over(tmp_path: Path) -> None:
    module = tmp_path / "a.py"
    module.write_text(
        '"""A module.\n\nThe answer is told.\n\n>>> "said"\n\'said\'\n"""\n'
        "x = 1  # which is answered\n"
        'raise ValueError(f"{x} is no number")\n'
        "class Desk: ...\n"
    )
    assert [fault.split(": ")[0] for fault in english.check_file(module)] == [
        "a.py:3",
        "a.py:8",
        "a.py:9",
        "a.py:10",
    ]
    page = tmp_path / "a.md"
    page.write_text("It says so.\n```\nIt says so.\n```\nThe field `says` is a text.\n")
    assert [fault.split(": ")[0] for fault in english.check_file(page)] == ["a.md:1"]


def test_counts_cover_the_source_and_the_documents() -> None:
    found = english.counts()
    assert {"docs", "README.md"} <= set(found)
    assert all((ROOT / name).exists() for name in found)
