"""The comparison of shown and printed output notices wrong figures, and no page evades it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from project_tools import ROOT, load_tool

outputs, examples, notebooks = (load_tool(n) for n in ("outputs", "examples", "notebooks"))

TABLE = """method      log Z  seconds  converged
------  ---------  -------  ---------
bp      {log_z:>9}  {seconds:>7}  yes
"""


@pytest.mark.parametrize(
    ("shown", "got"),
    [
        ("log Z 96.627", "log Z 96.62699"),
        ("largest error 0.084", "largest error 0.085"),
        ("yes (3 iterations, 8 ms)", "yes (3 iterations, 1.2 s)"),
        ("a cycle of 1e-17", "a cycle of 0"),
        ("2,500 sweeps", "2,501 sweeps"),
        ("[0.3 0.7]", "[0.3  0.7]"),
        ("first\n...\nlast 1", "first\nsecond\nthird\nlast 1"),
        (
            TABLE.format(log_z="96.88319", seconds="0.00138"),
            TABLE.format(log_z="96.88320", seconds="1.2"),
        ),
    ],
)
def test_rounding_times_and_white_space_are_alike(shown: str, got: str) -> None:
    assert outputs.same(shown, got) and outputs.same(got, shown) == ("..." not in shown)


@pytest.mark.parametrize(
    ("shown", "got"),
    [
        ("log Z 96.627", "log Z 96.9"),
        ("log Z 96.627", "log Z -96.627"),
        ("33 iterations", "34 iterations"),
        ("True", "False"),
        ("example grid10", "example grid12"),
        ("version 0.1.0 of 2026-11-16", "version 0.1.0 of 2026-11-17"),
        ("first\n...\nlast 1", "first\nsecond\nlast 2"),
        ("first", "first\nsecond"),
        ("lung 0.4", "bronc 0.4"),
        ("needs ... of 4 GB", "needs 2 MB of 4 GB"),
        ("0.1 nats", "0.1 seconds"),
        (
            TABLE.format(log_z="96.88319", seconds="0.00138"),
            TABLE.format(log_z="97.18319", seconds="0.00138"),
        ),
        (
            TABLE.format(log_z="96.88319", seconds="0.00138"),
            TABLE.format(log_z="96.88319", seconds="unknown"),
        ),
    ],
)
def test_a_planted_wrong_figure_is_a_difference(shown: str, got: str) -> None:
    assert not outputs.same(shown, got)


def shown_outputs() -> Iterator[tuple[str, str, float]]:
    """Page, text and tolerance of every output that the tests compare."""
    for page in examples.pages():
        for fence in examples.fences(page.read_text(encoding="utf-8")):
            if fence.language in ("text", "console"):
                yield f"{page.name}, line {fence.first}", fence.text, fence.tolerance
    for path in notebooks.paths():
        for text in stored_texts(path):
            yield path.name, text, notebooks.TOLERANCE


def stored_texts(path: Path) -> Iterator[str]:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            yield "".join(output.get("text", "") or output["data"].get("text/plain", ""))


def wrong(figure: str) -> str:
    """Another figure, more than three times as large."""
    return f"{3 * abs(float(figure.replace(',', '').replace('−', '-'))) + 7}"


def test_every_figure_of_every_page_is_compared() -> None:
    """A wrong one in any place is a difference, unless it is a time."""
    checked = 0
    for place, text, tolerance in shown_outputs():
        timed = {first for first, _ in outputs.times(text)}
        for match in outputs.NUMBER.finditer(text):
            if match.start() in timed:
                continue
            planted = text[: match.start()] + wrong(match[0]) + text[match.end() :]
            assert not outputs.same(text, planted, tolerance), f"{place}: {match[0]}"
            checked += 1
    assert checked > 1000


def test_tolerances_are_small_and_stated_where_needed() -> None:
    stated = {place: t for place, _, t in shown_outputs() if t != outputs.TOLERANCE}
    assert all(0 < t <= 0.5 for t in stated.values()), stated


def test_pages_show_figures_and_not_whether_they_are_right() -> None:
    """An output of nothing but truth values tells a reader nothing, and neither does `...`."""
    for place, text, _ in shown_outputs():
        shown = {word for line in text.splitlines() if line[:1] != "$" for word in line.split()}
        assert not shown or shown - {"True", "False", "..."}, place


def test_pages_and_notebooks_are_compared_alike() -> None:
    assert examples.same is notebooks.same
    assert Path(examples.same.__code__.co_filename) == ROOT / "tools" / "outputs.py"
