"""The notebooks of the documents run and print what they show; the site shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from project_tools import ROOT, load_tool

notebooks = load_tool("notebooks")
PATHS = notebooks.paths()


def test_there_is_one_for_each_kind_of_question() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    assert len(PATHS) >= 7
    for path in PATHS:
        assert f"notebooks/{path.stem}.md" in nav


LONG = {"error-bars", "digits", "features"}  # twenty seconds each
CASES = [
    pytest.param(p, marks=[pytest.mark.slow] if p.stem in LONG else [], id=p.stem) for p in PATHS
]


@pytest.mark.parametrize("path", CASES)
def test_the_notebook_prints_what_it_shows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With programs compiled as for readers: other last digits lead fits to other optima."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    assert notebooks.differences(path) == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_notebook_tells_a_story_with_pictures(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert any("text/html" in output.get("data", {}) for output in outputs), "no HTML view"
    words = sum(len("".join(c["source"]).split()) for c in cells if c["cell_type"] == "markdown")
    assert len(pictures) >= 2 and words > 150
    assert path.stat().st_size < 400_000


def test_the_site_shows_the_html_views_of_a_notebook() -> None:
    pytest.importorskip("latex2mathml")
    view = '<style scoped>td {}</style><table border="1" class="dataframe">\n\n<td>1</td></table>'
    outputs = [{"output_type": "display_data", "data": {"text/plain": "1", "text/html": [view]}}]
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["table"], "outputs": outputs},
    ]
    shown, _ = load_tool("site_hooks").page({"cells": cells}, "stem")
    assert '<div class="output"><table>\n<td>1</td></table></div>' in shown
    assert "```text" not in shown


def test_a_change_of_what_is_printed_is_seen(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    from nbformat import v4, write

    shown = v4.new_output("stream", name="stdout", text="1\n")
    path = tmp_path / "small.ipynb"
    write(v4.new_notebook(cells=[v4.new_code_cell("print(2)", outputs=[shown])]), path)
    assert "shows\n1\nbut prints\n2" in notebooks.differences(path)[0]
