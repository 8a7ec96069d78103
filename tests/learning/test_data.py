"""Rows of data: arrays, columns, files, missing cells, and every refusal."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import DataError
from kikuchi.learning.data import Data, merged_rows
from kikuchi.learning.files import read_data, write_states

WEATHER = kk.FactorGraph(
    [2, 3],
    [((0, 1), np.ones((2, 3)))],
    names=["rain", "sky"],
    states=[["no", "yes"], ["blue", "grey", "black"]],
)


def test_an_array_keeps_its_states() -> None:
    data = Data.of([[0, 2], [1, 0], [-1, 1]], WEATHER)
    assert data.states.tolist() == [[0, 2], [1, 0], [-1, 1]]
    assert data.cardinalities.tolist() == [2, 3]
    assert not data.complete
    assert data.total == 3.0


def test_columns_are_matched_by_name_and_words_become_numbers() -> None:
    data = Data.of({"sky": ["black", "", "grey"], "rain": ["yes", "no", None]}, WEATHER)
    assert data.states.tolist() == [[1, 2], [0, -1], [-1, 1]]


def test_a_variable_without_a_column_is_hidden() -> None:
    data = Data.of({"sky": ["black", "grey"]}, WEATHER)
    assert data.hidden.tolist() == [0]


def test_a_data_frame_is_columns() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"rain": ["yes", None], "sky": ["blue", "grey"]})
    assert Data.of(frame, WEATHER).states.tolist() == [[1, 0], [-1, 1]]


def test_without_a_graph_the_states_are_those_that_occur() -> None:
    data = Data.of({"a": ["u", "v", "u"], "b": [0, 2, 1]})
    assert data.cardinalities.tolist() == [2, 3]
    assert data.state_names == (("u", "v"), ("0", "1", "2"))
    assert data.names == ("a", "b")


def test_data_made_without_a_graph_can_be_matched_to_one_later() -> None:
    loose = Data.of({"sky": ["black", "blue"], "rain": ["yes", "yes"]})
    assert Data.of(loose, WEATHER).states.tolist() == [[1, 2], [1, 0]]


def test_distinct_rows_add_their_weights() -> None:
    data = Data.of([[1, 0], [0, 1], [1, 0], [1, -1]], weights=[1.0, 2.0, 0.5, 4.0])
    merged = data.distinct()
    assert merged.states.tolist() == [[1, 0], [0, 1], [1, -1]]
    assert merged.weights.tolist() == [1.5, 2.0, 4.0]
    assert merged.total == data.total


def test_patterns_group_the_rows_that_observe_the_same() -> None:
    data = Data.of([[0, 1], [-1, 1], [1, 1], [-1, 0], [-1, -1]])
    found = [(seen.tolist(), rows.tolist()) for seen, rows in data.patterns()]
    assert found == [([0, 1], [0, 2]), ([1], [1, 3]), ([], [4])]


def test_counts_agree_with_counting() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, [2, 3, 4], (200, 3))
    weights = rng.random(200)
    data = Data.of(rows, weights=weights)
    table = np.zeros((4, 2))
    for row, weight in zip(rows, weights, strict=True):
        table[row[2], row[0]] += weight
    np.testing.assert_allclose(data.counts([2, 0]), table, rtol=1e-12)
    graph = kk.FactorGraph([2, 3, 4], [((2, 0), np.ones((4, 2))), ((1,), np.ones(3))])
    flat = data.factor_counts(graph)
    np.testing.assert_allclose(flat[:8], table.ravel(), rtol=1e-12)
    np.testing.assert_allclose(flat[8:].sum(), weights.sum(), rtol=1e-12)


def test_counts_leave_out_rows_that_miss_a_variable() -> None:
    data = Data.of([[0, 1], [0, -1], [1, 1]])
    assert data.counts([0, 1]).tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert data.counts([0]).tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0, 3]], "row 0, variable sky: state 3"),
        ([[0, 1, 1]], "3 columns for 2 variables"),
        ([[0, -2]], "-2 is not a state"),
        ([[0.5, 1]], "0.5 is not a state"),
        ({"sky": ["green"]}, "'green' is not a state; known: blue, grey, black"),
        ({"wind": [0]}, "column 'wind' is not a variable"),
        ({"sky": [0, 1], "rain": [0]}, "columns of different lengths"),
        ([], "a table of rows by variables"),
        (np.zeros((0, 2), dtype=int), "no rows"),
    ],
)
def test_what_cannot_be_used_is_refused(rows: object, words: str) -> None:
    with pytest.raises(DataError, match=words.replace("(", r"\(")):
        Data.of(rows, WEATHER)  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [1.0, np.nan]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(DataError, match="weights"):
        Data.of([[0, 1], [1, 1]], weights=weights)


# ---------------------------------------------------------------------- files


def test_csv_with_names_in_any_order(tmp_path: Path) -> None:
    place = tmp_path / "d.csv"
    place.write_text("sky,rain\nblue, yes\n?,no\n\ngrey,\n")
    assert read_data(place, WEATHER).states.tolist() == [[1, 0], [0, -1], [-1, 1]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_without_names_is_read_by_place(tmp_path: Path, delimiter: str) -> None:
    place = tmp_path / "d.csv"
    place.write_text(f"0{delimiter}2\n1{delimiter}-1\n")
    assert read_data(place, WEATHER).states.tolist() == [[0, 2], [1, -1]]


def test_compressed_text(tmp_path: Path) -> None:
    place = tmp_path / "d.csv.gz"
    place.write_bytes(gzip.compress(b"rain,sky\nyes,blue\n"))
    assert read_data(place, WEATHER).states.tolist() == [[1, 0]]


def test_arrays(tmp_path: Path) -> None:
    rows = np.array([[0, 2], [1, 1]])
    np.save(tmp_path / "d.npy", rows)
    np.savez(tmp_path / "d.npz", states=rows, weights=[1.0, 3.0])
    assert read_data(tmp_path / "d.npy", WEATHER).states.tolist() == rows.tolist()
    assert read_data(tmp_path / "d.npz", WEATHER).weights.tolist() == [1.0, 3.0]


def test_states_written_are_read_again(tmp_path: Path) -> None:
    rows = np.array([[0, 2], [1, -1]])
    place = tmp_path / "s.csv"
    write_states(place, rows, WEATHER.names or (), WEATHER.states)
    assert place.read_text() == "rain,sky\nno,black\nyes,\n"
    assert read_data(place, WEATHER).states.tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.csv", "", "empty"),
        ("d.csv", "rain,sky\n", "no rows"),
        ("d.csv", "rain,sky\nyes\n", "line 2 has 1 cells"),
        ("d.csv", "rain,rain\nyes,no\n", "two columns"),
        ("d.txt", "0,1\n", "not a table of data"),
        ("d.npy", "0,1\n", "NumPy"),
        ("d.parquet", "0,1\n", "Parquet"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, content: str, words: str) -> None:
    place = tmp_path / name
    place.write_text(content)
    with pytest.raises(kk.KikuchiError, match=words):
        read_data(place, WEATHER)


def test_a_pickled_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="NumPy"):
        read_data(tmp_path / "d.npy", WEATHER)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_data(tmp_path / "none.csv")


@pytest.mark.parametrize("seed", range(5))
def test_rows_over_few_variables_are_merged_as_all_rows_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 4, size=4)
    states = rng.integers(-1, cards, size=(400, 4)).astype(np.int32)
    weights = rng.random(400)
    few = merged_rows(states, weights, cards)
    for ours, other in zip(few, merged_rows(states, weights), strict=True):
        assert np.array_equal(ours, other)
    values, counts = np.unique(states, axis=0, return_counts=True)
    assert len(few[0]) == len(values)
    assert sorted(np.bincount(few[1]).tolist()) == sorted(counts.tolist())
    assert few[2].sum() == pytest.approx(weights.sum())


def test_missing_cells_of_other_programs_are_no_states(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    words = ["N/A", "<NA>", "NULL", "#N/A", "na", "?"]
    path.write_text("rain,sky\nyes,blue\nno,none\n" + "".join(f"yes,{word}\n" for word in words))
    data = read_data(path)
    assert data.state_names == (("no", "yes"), ("blue", "none"))
    assert data.states[:, 1].tolist() == [0, 1] + [-1] * len(words)


def test_states_named_like_missing_cells_are_states(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("spin,fault\n-1,None\n1,NA\n?,big\n")
    states = [["-1", "1"], ["None", "NA", "big"]]
    graph = kk.FactorGraph([2, 3], [], names=["spin", "fault"], states=states)
    assert read_data(path, graph).states.tolist() == [[0, 0], [1, 1], [-1, 2]]


def test_a_first_row_with_a_missing_cell_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("0,?,1\n1,0,1\n")
    assert read_data(path).states.tolist() == [[0, -1, 1], [1, 0, 1]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("rain,sky\nyes,blue\n\nno,green\n", "d.csv: line 4, column sky: 'green' is not a state"),
        ("0,1\n0,7\n", "d.csv: line 2, variable sky: '7' is not a state"),
        ("rain,wind\nyes,1\n", "d.csv: column 'wind' is not a variable"),
    ],
)
def test_the_file_and_the_line_of_a_fault_are_named(
    tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "d.csv").write_text(content)
    with pytest.raises(DataError, match=words):
        read_data(tmp_path / "d.csv", WEATHER)


def test_the_row_of_a_fault_in_an_array_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.array([[0, 1], [0, 7]]))
    with pytest.raises(DataError, match=r"d\.npy: row 2, variable sky: state 7"):
        read_data(tmp_path / "d.npy", WEATHER)


@pytest.mark.parametrize("graph", [kk.FactorGraph([12], [((0,), np.ones(12))]), None])
def test_whole_numbers_with_a_point_are_numbers_of_states(graph: kk.FactorGraph | None) -> None:
    """As pandas writes a column of whole numbers that has gaps."""
    data = Data.of(np.array([["10.0"], ["2.0"], [""], ["3."]], dtype=object), graph)
    assert data.states.ravel().tolist() == [10, 2, -1, 3]
    assert data.state_names is None


def test_names_of_states_that_are_numbers_are_found_by_number() -> None:
    graph = kk.FactorGraph(
        [3], [((0,), np.ones(3))], names=["dose"], states=[["1", "2", "3 or more"]]
    )
    assert Data.of({"dose": ["1.0", "2", "3 or more"]}, graph).states.ravel().tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="row 1, column dose: '0' is not a state; known: 1, 2"):
        Data.of({"dose": ["1", "0"]}, graph)


@pytest.mark.parametrize("rows", [[["no"], ["yes"]], [["yes"], ["yes"]]])
def test_words_for_states_without_names_are_refused(rows: list[list[str]]) -> None:
    graph = kk.FactorGraph([2], [((0,), np.ones(2))])
    with pytest.raises(DataError, match="no names of its 2 states: write numbers from 0 to 1"):
        Data.of(rows, graph)


@pytest.mark.parametrize("shape", [(10**12, 0), (0, 10**12), (5, 0), (0, 3), (0,), ()])
def test_arrays_without_entries(tmp_path: Path, shape: tuple[int, ...]) -> None:
    place = tmp_path / "a.npy"
    with place.open("wb") as file:
        head = {"descr": "<i8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, head)
        file.write(bytes(8) if shape == () else b"")
    with pytest.raises(DataError, match=r"a\.npy"):
        read_data(place)
