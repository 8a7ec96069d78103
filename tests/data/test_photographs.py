"""Photographs of packages and of files."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from kikuchi.core.errors import DataError
from kikuchi.data.photographs import photographs, read_photograph


def test_photographs_of_scikit_learn_are_those_that_it_loads():
    for photograph, colours in zip(
        photographs("sklearn"), load_sample_images().images, strict=True
    ):
        grey = np.asarray(Image.fromarray(colours).convert("L")) / 255
        assert photograph.grey == pytest.approx(grey, abs=0.6 / 255)


@pytest.mark.parametrize("suffix", [".png", ".pgm", ".tif"])
def test_grey_files_keep_their_values(tmp_path, suffix):
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    Image.fromarray(levels).save(tmp_path / f"a{suffix}")
    assert read_photograph(tmp_path / f"a{suffix}").grey == pytest.approx(levels / 255)
    assert len(photographs(str(tmp_path))) == 1


def test_two_bytes_for_each_pixel(tmp_path):
    levels = np.linspace(0, 65535, 12).astype(np.uint16).reshape(3, 4)
    Image.fromarray(levels).save(tmp_path / "a.png")
    assert read_photograph(tmp_path / "a.png").grey == pytest.approx(levels / 65535)


def test_what_is_no_photograph_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"nothing")
    (tmp_path / "empty").mkdir()
    for source, message in [
        (tmp_path / "a.png", "cannot be read as a picture"),
        (tmp_path / "empty", "contains no images"),
        (tmp_path / "b.jpg", "no such file"),
    ]:
        with pytest.raises(DataError, match=message):
            photographs(str(source))
    with pytest.raises(DataError, match="no photographs were given"):
        photographs()
