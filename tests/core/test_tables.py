"""Tables of numbers: every format, missing cells, and every refusal."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from kikuchi.core.errors import BudgetError, DataError, KikuchiError
from kikuchi.core.files import reading_limit
from kikuchi.core.tables import read_parquet, read_table


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
    with pytest.raises(DataError, match="there must be an array 'rows'"):
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
        ("a.csv", b"a,b\n", "column names but no rows"),
        ("a.csv", b"a,a\n1,2\n", "two columns have the name 'a'"),
        ("a.csv", b"1,2\n3\n", "line 2 has 1 cells, the first has 2"),
        ("a.csv", b"1,2\n3,red\n", "line 2, column 2: 'red' is not a number"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read as text"),
        ("a.npy", b"no array", "cannot be read as NumPy arrays"),
        ("a.npz", b"PK\x03\x04 cut short", "cannot be read as NumPy arrays"),
        ("a.xls", b"1", "not a table"),
        ("a.csv.gz", b"not compressed", "cannot be read as gzip data"),
    ],
)
def test_refusals(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    place = tmp_path / name
    place.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_table(place)


def test_rows_with_texts_need_names_of_columns_lest_the_first_be_taken_for_them(
    tmp_path: Path,
) -> None:
    place = tmp_path / "a.csv"
    place.write_text("5.1,3.5,red\n4.9,3.0,blue\n6.3,3.3,red\n")
    with pytest.raises(
        DataError, match="'red' is also a value of column 3; add a line of column names"
    ):
        read_table(place, texts=True)
    place.write_text("a,b,kind\n" + place.read_text())
    assert read_table(place, texts=True).values.shape == (3, 3)


def test_columns_of_texts_are_coded_if_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    place.write_text("x,kind\n1,red\n2,\n3,7\n4,blue\n")
    found = read_table(place, texts=True)
    assert found.texts[1].tolist() == ["7", "blue", "red"] and list(found.texts) == [1]
    np.testing.assert_array_equal(found.values, [[1, 2], [2, np.nan], [3, 0], [4, 1]])
    assert found.fault_of(1) == "line 2, column 2: 'red' is not a number"
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"x": [1, 2, 3], "kind": ["red", None, "blue"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = read_table(tmp_path / "a.parquet", texts=True)
    assert found.texts[1].tolist() == ["blue", "red"] and np.isnan(found.values[1, 1])
    with pytest.raises(DataError, match="column kind: the values must be numbers"):
        read_table(tmp_path / "a.parquet")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "a.csv")


def array_file(header: str, body: bytes = bytes(32), version: int = 1) -> bytes:
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + body


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (8589934592,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -2), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<U0', 'fortran_order': False, 'shape': (9999999,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
        "{'descr': '<c16', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4,",
        "{'descr': '<f8', 'fortran_order': False, 'shape': 1 2}",
        "{'descr': '<f8', 1: False, 'shape': (4,), }",
        "(" * 3000,
    ],
)
def test_heads_of_arrays_that_do_not_fit_their_file(tmp_path: Path, header: str) -> None:
    place = tmp_path / "a.npy"
    for version in (1, 2):
        place.write_bytes(array_file(header, version=version))
        with pytest.raises(DataError, match="cannot be read") as caught:
            read_table(place)
        assert "\n" not in str(caught.value)


def test_an_archive_that_grows_is_refused_before_it_does(tmp_path: Path) -> None:
    place = tmp_path / "a.npz"
    np.savez_compressed(place, data=np.zeros((1000, 2000)))
    assert place.stat().st_size < 100_000
    with reading_limit(10_000_000), pytest.raises(BudgetError, match=r"16 MB to read, but 10 MB"):
        read_table(place)
    small = np.zeros((2000, 1000), dtype=np.int8)  # eight times as large as numbers
    np.save(tmp_path / "a.npy", small)
    with reading_limit(10_000_000), pytest.raises(BudgetError, match="16 MB"):
        read_table(tmp_path / "a.npy")


def test_a_table_of_repeated_values_is_refused_before_it_grows(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    place = tmp_path / "a.parquet"
    for column in (np.zeros(3_000_000), ["x" * 100_000] * 1000):
        parquet.write_table(pyarrow.table({"a": column}), place)
        assert place.stat().st_size < 200_000
        with reading_limit(20_000_000), pytest.raises(BudgetError, match="20 MB is the limit"):
            read_table(place)


def test_a_text_that_is_repeated_is_refused_before_it_is(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    place, codes = tmp_path / "a.parquet", pyarrow.array([0] * 4000, pyarrow.int32())
    column = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(["x" * 100_000]))
    parquet.write_table(pyarrow.table({"a": column}), place, store_schema=False)
    assert place.stat().st_size < 50_000
    pool = pyarrow.proxy_memory_pool(pyarrow.default_memory_pool())
    pyarrow.set_memory_pool(pool)
    try:
        with reading_limit(20_000_000), pytest.raises(BudgetError, match="20 MB is the limit"):
            read_table(place)
    finally:
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    assert pool.max_memory() < 20_000_000


def test_columns_of_codes_and_tables_without_rows(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    place = tmp_path / "a.parquet"
    numbers = pyarrow.array([2, 3, 2]).dictionary_encode()
    words = pyarrow.array(["x", None, "x"]).dictionary_encode()
    parquet.write_table(pyarrow.table({"a": numbers, "b": words}), place)
    columns = read_parquet(place)
    assert columns["a"].tolist() == [2, 3, 2] and columns["b"].tolist() == ["x", None, "x"]
    parquet.write_table(pyarrow.table({"a": numbers, "b": words})[:0], place)
    assert {name: len(c) for name, c in read_parquet(place).items()} == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    "text",
    [
        "smoke\n" + "yes\n" * 50_000,
        "a,b\n" + "ab,cd\n" * 50_000,
        "a,b\n" + ("x" * 100_000 + ",y\n") * 30,
        "a,b\n" + ("é" * 1000 + "😀,y\n") * 1000,
        "a,b\n" + '"x\n","y\n"\n' * 30_000,
        ",".join(f"c{k}" for k in range(3000)) + "\n" + (",".join(["ab"] * 3000) + "\n") * 20,
    ],
    ids=["one column", "short cells", "long cells", "wide letters", "quotes", "many columns"],
)
def test_texts_take_no_more_memory_than_they_are_allowed(text: str, tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    place.write_text(text, encoding="utf-8")
    tracemalloc.start()
    read_table(place, texts=True)
    needed = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with reading_limit(int(0.9 * needed)), pytest.raises(BudgetError, match="is the limit"):
        read_table(place, texts=True)
    with reading_limit(3 * needed):
        read_table(place, texts=True)


def test_every_kind_of_nan_is_missing(tmp_path: Path) -> None:
    signalling = np.array([0x7F800001, 0x3F800000], dtype=np.uint32).view(np.float32)
    np.save(tmp_path / "a.npy", signalling[:, None])
    values = read_table(tmp_path / "a.npy").values
    assert np.isnan(values[0, 0]) and values[1, 0] == 1.0


def test_archives_with_one_changed_byte_are_read_or_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, data=np.arange(12.0).reshape(3, 4))
    whole, place, refused = buffer.getvalue(), tmp_path / "a.npz", 0
    for where in range(0, len(whole), 3):
        place.write_bytes(whole[:where] + bytes([whole[where] ^ 0x55]) + whole[where + 1 :])
        try:
            read_table(place)
        except KikuchiError as error:
            assert str(error).startswith(str(place))
            refused += 1
    assert refused > 30
    assert zipfile.is_zipfile(buffer)


def test_files_that_broke_readers(shared: Path) -> None:
    from kikuchi.ica.recordings import read_recording
    from kikuchi.learning.files import read_data

    suffixes = (".csv", ".tsv", ".csv.gz", ".npy", ".npz", ".parquet", ".wav", ".nii")
    files = [p for p in (shared / "reference/faults").iterdir() if p.name.endswith(suffixes)]
    assert len(files) > 20
    for place in files:
        for reader in (read_table, read_data, read_recording):
            try:
                reader(place)
            except KikuchiError as error:
                assert str(error).startswith((str(place), "data: "))


def test_texts_that_hold_no_letters(tmp_path: Path) -> None:
    from kikuchi.learning.files import read_data

    place = tmp_path / "a.npy"
    np.save(place, np.array([["a", "b"]]))
    whole = place.read_bytes()
    place.write_bytes(whole[:-4] + b"\xff\xff\xff\x7f")
    with pytest.raises(DataError, match="an invalid string"):
        read_data(place)


def test_missing_cells_as_other_programs_write_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    words = ["N/A", "n/a", "#N/A", "<NA>", "NULL", "-nan", "?"]
    path.write_text(
        "a,b,c\n" + "".join(f"1,{word},{word}\n" for word in words) + "2,3,none\n2,None,None\n"
    )
    table = read_table(path, texts=True)
    assert np.isnan(table.values[:-2, 1]).all() and table.values[-2, 1] == 3
    assert np.isnan(table.values[-1, 1])  # of numbers; among words it is one of them
    assert table.texts[2].tolist() == ["None", "none"] and np.isnan(table.values[:-2, 2]).all()


def test_lines_are_counted_as_in_the_file_and_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("\na\tb\n1\t2\n\n\t\n3\t4\n")
    assert np.array_equal(read_table(path).values, [[1, 2], [np.nan] * 2, [3, 4]], equal_nan=True)
    path.write_text("a\tb\n1\t2\n\n   \n3\tred\n")
    with pytest.raises(DataError, match="line 5, column 2: 'red' is not a number"):
        read_table(path)
    assert read_table(path, texts=True).lines == (2, 5)
    path.write_text("a\tb\nred\t2\n\n3\t4\n")
    assert read_table(path, texts=True).fault_of(0).startswith("line 2, ")
    path.write_text("a\tb\n1\t2\n\n3\n")
    with pytest.raises(DataError, match="line 4 has 1 cells"):
        read_table(path)
    path.write_text('a\tb\n1\t"two\nlines"\n3\tone\n')
    table = read_table(path, texts=True)
    assert table.values[:, 0].tolist() == [1, 3] and table.lines == (2, 4)
    path.write_text("a\n1\n\n3\n")
    with pytest.raises(DataError, match="line 3 is empty; in a table of one column"):
        read_table(path)
    path.write_text("a\n1\n3\n\n\n")
    assert read_table(path).values.ravel().tolist() == [1, 3]


def test_names_with_underscores_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("2020_01,2020_02\n1,2\n")
    table = read_table(path)
    assert table.names == ("2020_01", "2020_02") and table.values.tolist() == [[1, 2]]
