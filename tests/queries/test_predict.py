"""Batches of cases against one query each, and through files."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import BudgetError, DataError, ImpossibleEvidenceError
from kikuchi.graphs.directed import ancestral_sample
from kikuchi.queries.case_files import predict_file
from kikuchi.queries.cases import read_cases
from kikuchi.queries.predict import distinct_rows

pd = pytest.importorskip("pandas")
ASIA = kk.example("asia")


@pytest.fixture(scope="module")
def cases() -> pd.DataFrame:
    """Cases of asia with a random half of their cells missing."""
    rows = ancestral_sample(ASIA, 60, seed=3)
    rng = np.random.default_rng(1)
    words = np.array([["no", "yes"]] * 8, dtype=object)
    frame = pd.DataFrame(
        {name: words[v][rows[:, v]] for v, name in enumerate(ASIA.names)},
        index=[f"case {k}" for k in range(60)],
    )
    return frame.mask(rng.random(frame.shape) < 0.5)


def expected(frame: pd.DataFrame, row: int, skip: tuple[str, ...] = ()) -> kk.Distributions:
    cells = frame.iloc[row]
    evidence = {k: v for k, v in cells.items() if isinstance(v, str) and k not in skip}
    return kk.query(ASIA, list(ASIA.names), evidence=evidence)


def test_every_case_equals_its_own_query(cases: pd.DataFrame) -> None:
    table = kk.predict_proba(ASIA, cases)
    assert table.index.tolist() == cases.index.tolist()
    for row in range(len(cases)):
        answer = expected(cases, row)
        for name in ASIA.names:
            for state in ("no", "yes"):
                got = table[f"{name}={state}"].iloc[row]
                assert got == pytest.approx(answer[name][state], abs=1e-13)
        assert table.log_evidence.iloc[row] == pytest.approx(answer.log_evidence, abs=1e-12)


def test_targets_are_predicted_and_not_read(cases: pd.DataFrame) -> None:
    table = kk.predict_proba(ASIA, cases, ["lung", "tub"])
    assert table.columns.tolist() == ["lung=no", "lung=yes", "tub=no", "tub=yes", "log_evidence"]
    answer = expected(cases, 7, skip=("lung", "tub"))
    assert table["tub=yes"].iloc[7] == pytest.approx(answer["tub"]["yes"], abs=1e-13)


def test_approximate_methods_answer_row_by_row(cases: pd.DataFrame) -> None:
    few = cases.iloc[:4]
    table = kk.predict_proba(ASIA, few, ["lung"], method="bp")
    for row in range(4):
        evidence = {k: v for k, v in few.iloc[row].items() if isinstance(v, str) and k != "lung"}
        beliefs = kk.infer(ASIA, "bp", evidence=evidence)
        assert table["lung=yes"].iloc[row] == pytest.approx(beliefs["lung"][1], abs=1e-12)


def test_processes_give_the_same_table(cases: pd.DataFrame) -> None:
    one = kk.predict_proba(ASIA, cases, ["lung"])
    two = kk.predict_proba(ASIA, cases, ["lung"], processes=2)
    np.testing.assert_allclose(one.to_numpy(), two.to_numpy(), atol=1e-13)


def test_many_rows_of_one_pattern_and_many_patterns() -> None:
    graph = kk.generate.random_graph(9, 0.4, seed=2)
    rng = np.random.default_rng(0)
    states = rng.integers(-1, 2, size=(700, 9)).astype(np.int32)
    states[:300, :4] = rng.integers(0, 2, size=(300, 4))
    states[:300, 4:] = -1
    frame = {f"x{v}": [None if k < 0 else int(k) for k in states[:, v]] for v in range(9)}
    table = kk.predict_proba(graph, frame).to_numpy()
    for row in (0, 299, 300, 512, 699):
        evidence = {v: int(k) for v, k in enumerate(states[row]) if k >= 0}
        beliefs = kk.infer(graph, "enumerate", evidence=evidence)
        np.testing.assert_allclose(table[row, :-1], beliefs.flat_marginals, atol=1e-12)
        assert table[row, -1] == pytest.approx(beliefs.log_z, abs=1e-10)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_files_stream(cases: pd.DataFrame, ending: str, tmp_path, monkeypatch) -> None:
    from kikuchi.queries import case_files

    monkeypatch.setattr(case_files, "_ROWS_AT_ONCE", 7)
    source, out = tmp_path / f"cases{ending}", tmp_path / f"out{ending}"
    if ending == ".parquet":
        cases.reset_index(drop=True).to_parquet(source)
    else:
        cases.to_csv(source, sep="\t" if ending == ".tsv" else ",", index=False)
    done = predict_file(ASIA, source, out, ["lung", "xray"])
    assert (done.rows, done.impossible) == (60, 0)
    if ending == ".parquet":
        written = pd.read_parquet(out)
    else:
        written = pd.read_csv(out, sep="\t" if ending == ".tsv" else ",")
    direct = kk.predict_proba(ASIA, cases, ["lung", "xray"])
    assert written.columns.tolist() == direct.columns.tolist()
    np.testing.assert_allclose(written.to_numpy(), direct.to_numpy(), atol=1e-14)


def test_impossible_cases_are_named_or_left_empty(tmp_path) -> None:
    frame = {"tub": ["no", "yes"], "either": ["no", "no"]}
    with pytest.raises(ImpossibleEvidenceError, match=r"row 1: .*tub=yes, either=no together"):
        kk.predict_proba(ASIA, frame, ["lung"])
    table = kk.predict_proba(ASIA, frame, ["lung"], impossible="missing")
    assert table["lung=no"].isna().tolist() == [False, True]
    source = tmp_path / "cases.csv"
    source.write_text("tub,either\nno,no\nyes,no\n")
    with pytest.raises(ImpossibleEvidenceError, match=r"cases\.csv: row 2: "):
        predict_file(ASIA, source, tmp_path / "out.csv", ["lung"])
    assert not (tmp_path / "out.csv").exists()
    done = predict_file(ASIA, source, tmp_path / "out.csv", ["lung"], impossible="missing")
    assert done.impossible == 1
    assert (tmp_path / "out.csv").read_text().splitlines()[2] == ",,-inf"


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        ({"tbu": ["no"]}, "column 'tbu' is not a variable of the model.*did you mean 'tub'"),
        (
            {"tub": ["no", "maybe"]},
            "row 1, column 'tub': 'maybe' is not a state; the states are no, yes",
        ),
        ({"tub": ["no"], "lung": []}, "different lengths"),
        ({"tub": [7]}, "row 0, column 'tub': 7 is not a state"),
        (5, "cases of kind int are not taken"),
        ({"tub": "yes"}, r"column 'tub' must be a list of cells, got 'yes'; write \['yes'\]"),
        ({"tub": ["no", ["yes"]]}, r"row 1, column 'tub': \['yes'\] is not a state"),
        (pd.DataFrame({"tub": ["no", ["yes"]]}), r"row 1, column 'tub': \['yes'\] is not a state"),
        (pd.DataFrame({"tub": ["no", "nay"]}, index=[10, 20]), "row 1, column 'tub': 'nay'"),
        (
            pd.DataFrame([["no", "no"]], columns=["tub", "tub"]),
            "two columns for one variable, 'tub'",
        ),
    ],
)
def test_bad_cases_get_one_clear_line(frame: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        kk.predict_proba(ASIA, frame)


def test_cells_may_be_numbers_booleans_or_missing() -> None:
    graph = kk.FactorGraph(
        [2, 3, 2],
        [],
        names=["a", "b", "c"],
        states=[["false", "true"], ["x", "y", "z"], ["0", "1"]],
    )
    frame = pd.DataFrame({"a": [True, False, None], "b": [2.0, np.nan, 0.0], "c": [1, 0, 1]})
    found = read_cases(graph, frame, set()).states.tolist()
    assert found == [[1, 2, 1], [0, -1, 0], [-1, 0, 1]]
    gaps = {"b": ["x", pd.NA, pd.NaT, None, np.nan, ""]}
    for columns in (gaps, pd.DataFrame(gaps, dtype=object)):
        assert read_cases(graph, columns, set()).states.ravel().tolist() == [0] + [-1] * 5


@pytest.mark.parametrize("cards", [[2, 2, 3], [2**40, 2**40, 3]])
def test_distinct_rows(cards: list[int]) -> None:
    rng = np.random.default_rng(0)
    states = rng.integers(-1, 2, size=(50, 3)).astype(np.int32)
    first, inverse = distinct_rows(states, cards)
    assert np.array_equal(states[first][inverse], states)
    assert len({tuple(row) for row in states.tolist()}) == len(first)


def test_empty_lines_of_a_file_of_cases_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kikuchi.queries.case_files._ROWS_AT_ONCE", 2)
    source, out = tmp_path / "cases.csv", tmp_path / "out.csv"
    source.write_text("\nxray,smoke\nyes,yes\n\n\n\n\n,N/A\nno,None\n\n")
    done = predict_file(kk.example("asia"), source, out, ["lung"])
    assert done.rows == 3 and len(out.read_text().splitlines()) == 4
    source.write_text("xray\nyes\n\n\n")
    assert predict_file(kk.example("asia"), source, out, ["lung"]).rows == 1
    source.write_text("xray\nyes\n\n\nno\n")
    with pytest.raises(DataError, match="a line before row 2 is empty"):
        predict_file(kk.example("asia"), source, out, ["lung"])


def test_a_header_is_read_within_the_limit_and_the_guard(tmp_path: Path) -> None:
    asia, out = kk.example("asia"), tmp_path / "out.csv"
    long = tmp_path / "long.csv"
    long.write_text("smoke," + "x" * 140_000 + "\nyes,1\n")
    with pytest.raises(DataError, match=r"long\.csv: cannot be read as text"):
        predict_file(asia, long, out)
    for name, text in {"head": b"smoke", "row": b"smoke\nyes\n"}.items():
        bomb = tmp_path / f"{name}.csv.gz"
        bomb.write_bytes(gzip.compress(text + b"," * 40_000_000, 1))
        tracemalloc.start()
        with pytest.raises(BudgetError, match=f"{name}.csv.gz: a line takes"):
            predict_file(asia, bomb, out, memory="20MB")
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
        tracemalloc.stop()
    assert not out.exists()


def test_a_row_over_many_lines_is_read_within_the_limit(tmp_path: Path) -> None:
    bomb, out = tmp_path / "row.csv.gz", tmp_path / "out.csv"
    bomb.write_bytes(gzip.compress(b"smoke,xray\n" + b'"xy\n",' * 2_000_000, 1))
    tracemalloc.start()
    with pytest.raises(BudgetError, match=r"row\.csv\.gz: a row takes"):
        predict_file(kk.example("asia"), bomb, out, memory="20MB")
    assert tracemalloc.get_traced_memory()[1] < 30_000_000
    tracemalloc.stop()


def test_long_tables_are_read_in_chunks_within_the_limit(tmp_path: Path) -> None:
    names = [f"v{k}" for k in range(64)]
    graph = kk.FactorGraph(
        [2] * 64,
        [((k,), [1, 2]) for k in range(64)],
        names=names,
        states=[["no", "yes"]] * 64,
    )
    cases = tmp_path / "cases.csv"
    rows = [",".join(["yes"] * (k % 2) + ["no"] * (64 - k % 2)) for k in range(8000)]
    cases.write_text(",".join(names) + "\n" + "\n".join(rows) + "\n")
    tracemalloc.start()
    predict_file(graph, cases, tmp_path / "out.csv", ["v0"], memory="20MB")
    assert tracemalloc.get_traced_memory()[1] < 22_000_000
    tracemalloc.stop()


def test_a_repeated_text_in_parquet_is_one_object(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    long = "x" * 100_000
    states = [["no", long], ["0", "1"]]
    graph = kk.FactorGraph([2, 2], [((0, 1), [1, 2, 3, 4])], names=["a", "b"], states=states)
    codes = pyarrow.array([0, None] * 2000, pyarrow.int32())
    column = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array([long]))
    cases = tmp_path / "cases.parquet"
    parquet.write_table(pyarrow.table({"a": column}), cases, store_schema=False)
    tracemalloc.start()
    done = predict_file(graph, cases, tmp_path / "out.csv", ["b"], memory="20MB")
    assert done.rows == 4000 and tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_wide_rows_come_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kikuchi.queries import case_files

    cases = tmp_path / "cases.csv"
    cases.write_text("smoke,xray\n" + "yes,no\nno,\n" * 20)
    whole = predict_file(kk.example("asia"), cases, tmp_path / "whole.csv", ["lung"])
    monkeypatch.setattr(case_files, "_CELLS_AT_ONCE", 6)
    monkeypatch.setattr(case_files, "_LETTERS_AT_ONCE", 8)
    parts = predict_file(kk.example("asia"), cases, tmp_path / "parts.csv", ["lung"])
    assert whole.rows == parts.rows == 40
    tables = [pd.read_csv(tmp_path / name) for name in ("whole.csv", "parts.csv")]
    pd.testing.assert_frame_equal(*tables, rtol=1e-12)
