"""The site builds strictly, fetches nothing from elsewhere, and lists the methods that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from project_tools import ROOT, load_tool


def test_the_page_of_methods_is_what_the_registry_says() -> None:
    methods = load_tool("methods")
    assert methods.PAGE.read_text(encoding="utf-8") == methods.render()


def test_the_page_of_commands_has_the_options_of_the_program() -> None:
    commands = load_tool("commands")
    page = commands.PAGE.read_text(encoding="utf-8")
    assert commands.render(page) == page
    assert "## kikuchi infer\n" in commands.render("# Commands\n")
    with pytest.raises(SystemExit, match="does not have"):
        commands.render(page.replace("<!-- command: infer -->", "<!-- command: inferno -->"))


def test_docstrings_are_made_ready_for_the_site() -> None:
    pytest.importorskip("griffe")
    ready = load_tool("griffe_docstrings").for_site
    fenced = "```pycon\n>>> 1\n1\n```"
    assert (
        ready("Adds.\n\n>>> 1\n1\n\nMore.\n>>> 1\n1") == f"Adds.\n\n{fenced}\n\nMore.\n\n{fenced}"
    )
    assert ready(fenced) == fenced
    examples = "Adds.\n\nExamples\n--------\n>>> 1\n1"
    assert ready(examples) == examples
    assert ready("Weights\n>= 0.") == "Weights\n&gt;= 0."
    section = "Parameters\n----------\n"
    assert (
        ready(f"{section}n : how many,\n    at least 1.\n\n>>> 1\n1")
        == f"{section}n\n    how many,\n    at least 1.\n\nExamples\n--------\n>>> 1\n1"
    )
    assert ready(f"{section}n : how many\n\nReference: A-M1.\n\n>>> 1\n1") == (
        f"Reference: A-M1.\n\n{section}n\n    how many\n\n\nExamples\n--------\n>>> 1\n1"
    )
    typed = f"{section}n, m : int, default 1\n    Numbers of rows.\nx : array-like\n    Rows."
    assert ready(typed) == typed
    listed = "Attributes\n----------\na_, b_ (of all),\nc_."
    assert ready(f"Fits.\n\n{listed}\n\n{section}n: how many") == (
        f"Fits.\n\nAttributes: a_, b_ (of all),\nc_.\n\n{section}n\n    how many"
    )
    named = "Attributes\n----------\n"
    assert ready(f"{named}a_, b_ : what") == f"{named}a_\n    what\nb_\n    what"


def test_options_are_shown_with_their_defaults() -> None:
    griffe = pytest.importorskip("griffe")
    tool = griffe.load_extensions(f"{ROOT / 'tools' / 'griffe_docstrings.py'}:HouseDocstrings")
    source = """
from dataclasses import dataclass
from elsewhere import option

@dataclass
class Model:
    n: int = option(3, "How many.", low=1)
    m: int = max(1, 2)
"""
    files = {"__init__.py": source}
    with griffe.temporary_visited_package("made_up", files, extensions=tool) as package:
        shown = {p.name: str(p.default) for p in package["Model"].parameters if p.name != "self"}
    assert shown == {"n": "3", "m": "max(1, 2)"}


def test_limits_of_a_run_are_shown_one_by_one() -> None:
    griffe = pytest.importorskip("griffe")
    tool = griffe.load_extensions(f"{ROOT / 'tools' / 'griffe_docstrings.py'}:HouseDocstrings")
    source = "def wait(turns: int, *, often=1, **within: Unpack[RunLimits]) -> None: ..."
    files = {"__init__.py": source}
    with griffe.temporary_visited_package("made_up", files, extensions=tool) as package:
        shown = {p.name: str(p.annotation) for p in package["wait"].parameters}
    assert list(shown) == ["turns", "often", "budget", "seconds", "memory"]
    assert shown["seconds"] == "float | None"


def test_equations_become_mathml_and_wrong_ones_are_faults() -> None:
    pytest.importorskip("latex2mathml")
    hooks = load_tool("site_hooks")
    shown = hooks.on_page_content('<p><span class="arithmatex">\\(x &lt; \\log Z\\)</span></p>')
    assert shown.startswith("<p><math") and "arithmatex" not in shown and "&#x0003C;" in shown
    assert 'display="block"' in hooks.on_page_content(
        '<div class="arithmatex">\\[\\sum_x p(x) = 1\\]</div>'
    )
    with pytest.raises(ValueError, match="unknown command"):
        hooks.mathml(r"\nonsense x")


def test_pictures_are_links_to_their_files() -> None:
    pytest.importorskip("latex2mathml")
    shown = load_tool("site_hooks").on_page_content('<p><img alt="a" src="../a.png" /></p>')
    assert '<a class="picture" href="../a.png"><img alt="a" src="../a.png" /></a>' in shown


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]*\ssrc=\"?(?:https?:)?//[^\s\">]*"
        r"|<link[^>]*rel=\"?(?:stylesheet|preconnect|preload)[^>]*href=\"?(?:https?:)?//[^>]*"
    )
    imported = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*")
    for page in site.rglob("*.html"):
        assert loads.findall(page.read_text(encoding="utf-8")) == [], page
    for sheet in site.rglob("*.css"):
        assert imported.findall(sheet.read_text(encoding="utf-8")) == [], sheet


def test_pages_can_be_opened_from_the_disk(site: Path) -> None:
    """Links lead to files, not to folders that only a server turns into pages; search too."""
    assert (site / "search" / "search_index.js").is_file()
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "javascripts/iframe-worker.js" in text or page.name == "404.html", page
        for link in re.findall(r"<a [^>]*href=\"?([^\s\">#]+)", text):
            if "://" not in link and not link.startswith(("mailto:", "/")):
                assert (page.parent / link).is_file(), f"{page.name}: {link}"


def test_equations_are_set(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert sum("<math" in text for text in pages.values()) >= 10
    for path, text in pages.items():
        assert "arithmatex" not in text and "$$" not in text, path


def test_the_reference_has_every_public_name(site: Path) -> None:
    import kikuchi

    pages = (site / "reference").rglob("*.html")
    anchors = set(re.findall(r"id=\"?kikuchi\.([\w.]+)", "".join(p.read_text() for p in pages)))
    documented = {anchor.rpartition(".")[2] for anchor in anchors}
    names = set(kikuchi.__all__) - {"__version__"}
    for module in ("brackets", "generate", "graphs", "learning", "methods", "queries", "regions"):
        names |= set(getattr(kikuchi, module).__all__)
    assert names <= documented
