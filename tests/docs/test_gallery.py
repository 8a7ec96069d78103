"""The code of the gallery draws the pictures that it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_tools import load_tool

gallery = load_tool("gallery")


def check(folder: Path, names: list[str]) -> None:
    from matplotlib.image import imread

    assert {path.stem for path in folder.glob("*.png")} == set(names)
    for path in folder.glob("*.png"):
        now, stored = imread(path), imread(gallery.FOLDER / path.name)
        assert now.std() > 0.01, path.name
        assert now.shape == stored.shape, f"{path.name} is old; run tools/gallery.py"


def test_pictures_are_drawn_as_stored(tmp_path: Path) -> None:
    names = gallery.draw(tmp_path, leave_out=gallery.trained())
    assert len(names) >= 10
    check(tmp_path, names)


@pytest.mark.slow
def test_pictures_of_trained_models_are_drawn_as_stored(tmp_path: Path) -> None:
    names = gallery.draw(tmp_path)
    assert set(gallery.trained()) < set(names)
    check(tmp_path, names)


def test_every_family_has_a_picture() -> None:
    code = "".join(lines for _, lines in gallery.blocks())
    for family in ("boltzmann", "energy", "ica", "beliefnets", "bayesnn", "temporal", "flows"):
        assert f"from kikuchi.{family} import" in code, family
    assert {path.stem for path in gallery.FOLDER.glob("*.png")} == {n for n, _ in gallery.blocks()}


def test_the_overview_shows_every_picture() -> None:
    page = gallery.PAGE.read_text(encoding="utf-8")
    assert gallery.overview(page) == page, "run tools/gallery.py"
    assert page.count("<!-- thumbnail -->") == len(gallery.blocks())
