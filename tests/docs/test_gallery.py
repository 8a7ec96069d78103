"""The lines of the gallery draw the pictures that it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_tools import load_tool

gallery = load_tool("gallery")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    gallery.draw(folder)
    return folder


def test_every_picture_is_drawn_and_stored(drawn: Path) -> None:
    names = {name for name, _ in gallery.blocks()}
    assert len(names) >= 10
    assert {path.stem for path in drawn.glob("*.png")} == names
    assert {path.stem for path in gallery.FOLDER.glob("*.png")} == names


def test_stored_pictures_have_the_size_of_drawn_ones(drawn: Path) -> None:
    from matplotlib.image import imread

    for path in drawn.glob("*.png"):
        now, stored = imread(path), imread(gallery.FOLDER / path.name)
        assert now.std() > 0.01, path.name
        assert now.shape == stored.shape, f"{path.name} is old; run tools/gallery.py"
