"""Tables of numbers: every format, missing cells, and every refusal."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from kikuchi.core.errors import DataError
from kikuchi.core.tables import read_table


def test_text_with_and_without_names(tmp_path: Path) -> None:
    plain, named = tmp_path / "a.csv", tmp_path / "b.tsv"
    plain.write_text("1,2.5\n-3,4e2\n")
    named.write_text("x\ty\n1\t2\n\n3\t4\n")
    assert read_table(plain).values.tolist() == [[1, 2.5], [-3, 400]]
    assert read_table(plain).names is None
    found = read_table(named)
    assert found.names == ("x", "y") and found.values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("gap", ["", "?", "NA", "nan", "NULL"])
def test_missing_cells_are_nan(tmp_path: Path, gap: str) -> None:
    place = tmp_path / "a.csv"
    place.write_text(f"1,{gap},3\n4,5,6\n")
    values = read_table(place).values
    assert np.isnan(values[0, 1]) and np.isfinite(values).sum() == 5


def test_compressed_text(tmp_path: Path) -> None:
    place = tmp_path / "a.csv.gz"
    place.write_bytes(gzip.compress(b"a;b\n1;2\n"))
    assert read_table(place).values.tolist() == [[1, 2]]


def test_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    assert read_table(tmp_path / "a.npy").values.shape == (2, 3)
    np.savez(tmp_path / "b.npz", data=np.eye(2), labels=np.array([1, 0]))
    found = read_table(tmp_path / "b.npz")
    assert found.values.tolist() == np.eye(2).tolist()
    assert found.others["labels"].tolist() == [1, 0]
    np.savez(tmp_path / "c.npz", anything=np.eye(3))
    assert read_table(tmp_path / "c.npz").values.shape == (3, 3)
    with pytest.raises(DataError, match="name the array 'rows'"):
        read_table(tmp_path / "b.npz", arrays=("rows",))


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": [1, 2], "b": [0.5, None]}), tmp_path / "a.parquet")
    found = read_table(tmp_path / "a.parquet")
    assert found.names == ("a", "b") and np.isnan(found.values[1, 1])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"a,b\n", "names of columns but no rows"),
        ("a.csv", b"a,a\n1,2\n", "two columns have the name 'a'"),
        ("a.csv", b"1,2\n3\n", "line 2 has 1 cells, the first has 2"),
        ("a.csv", b"1,2\n3,red\n", "line 2, column 2: 'red' is not a number"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read as text"),
        ("a.npy", b"no array", "cannot be read as NumPy arrays"),
        ("a.npz", b"PK\x03\x04 cut short", "cannot be read as NumPy arrays"),
        ("a.xls", b"1", "not a table"),
        ("a.csv.gz", b"not compressed", "cannot be read as text"),
    ],
)
def test_refusals(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    place = tmp_path / name
    place.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_table(place)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "a.csv")
