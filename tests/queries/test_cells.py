"""Tables are read by one rule through every door, and states may be called `None`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import kikuchi as kk
from kikuchi.cli.main import app
from kikuchi.core.errors import DataError, KikuchiError
from kikuchi.learning.files import read_data
from kikuchi.queries.cases import read_cases

NAMES: list[list[str] | None] = [
    *(None, ["no", "yes"], ["yes", "no"], ["0", "1"], ["1", "0"], ["1", "2"], ["2", "1"]),
    *(["true", "false"], ["False", "True"], ["None", "x"], ["x", "1"], ["-1", "1"], ["1", "-1"]),
    *(["01", "02"], ["1", "01"], ["1.0", "2.0"], ["0.5", "1.5"], ["NA", "b"], ["5", "9"]),
    *(["+1", "0"], ["1e0", "0"], [" a", "a"]),
]
CELLS: list[Any] = [
    *(0, 1, 2, 5, 9, -1, 0.0, 1.0, 2.0, 0.5, True, False, None, float("nan"), np.int64(1), pd.NA),
    *("0", "1", "2", "-1", "01", "+1", "1.0", " 1 ", "yes", "true", "True", "None", "NA", "", "a"),
]


def reading(read: Any, rows: Any) -> int | None:
    """The state in the first cell, or None where it is refused by an error of ours."""
    try:
        return int(read(rows).states[0, 0])
    except KikuchiError as error:
        assert "\n" not in str(error)
        return None


@pytest.mark.parametrize("states", NAMES, ids=str)
@pytest.mark.parametrize("company", [[], [None], ["x", "yes", "1"]], ids=str)
def test_both_readers_give_the_same_state_or_refuse(
    states: list[str] | None, company: list[Any]
) -> None:
    graph = kk.FactorGraph([2], [], names=["v"], states=states and [states])
    first = [
        beside
        for beside in company
        if reading(lambda rows: read_cases(graph, rows, set()), {"v": [beside]}) is not None
    ]
    for cell in CELLS:
        table = {"v": [cell, *first]}  # cells beside it are states, or missing
        for rows in (table, pd.DataFrame(table)):
            data = reading(lambda rows: kk.Data.of(rows, graph), rows)
            cases = reading(lambda rows: read_cases(graph, rows, set()), rows)
            assert data == cases, (cell, table)


@pytest.mark.parametrize("states", NAMES, ids=str)
@pytest.mark.parametrize("company", [[], [None], ["x", "yes", "1"]], ids=str)
def test_data_without_a_model_never_become_two_states(
    states: list[str] | None, company: list[Any]
) -> None:
    graph = kk.FactorGraph([2], [], names=["v"], states=states and [states])
    for cell in CELLS:
        table = {"v": [cell, *company]}
        readers = (
            lambda rows: kk.Data.of(rows).matched(graph),
            lambda rows: read_cases(graph, rows, set()),
        )
        found = {reading(read, rows) for rows in (table, pd.DataFrame(table)) for read in readers}
        hidden = {-1} if cell is not pd.NA and cell in ("NA", "None") else set()  # no model yet
        assert len(found - hidden - {None}) <= 1, (cell, found)


DOORS = ["no", "yes", "0", "1", "1.0", " yes ", "", "NA", "-1", "maybe", "2"]
EXPECTED = [0, 1, 0, 1, 1, 1, -1, -1, -1, None, None]


@pytest.mark.parametrize(("cell", "state"), list(zip(DOORS, EXPECTED, strict=True)))
def test_a_cell_is_one_state_through_every_door(
    tmp_path: Path, cell: str, state: int | None
) -> None:
    """Learn, evaluate, predict, files and evidence: all see the same state of `v`."""
    tables = [((0,), [0.25, 0.75]), ((0, 1), [[0.9, 0.1], [0.2, 0.8]])]
    graph = kk.FactorGraph([2, 2], tables, names=["v", "w"], states=[["no", "yes"]] * 2)
    seen = {-1: 1.0, 0: 0.25, 1: 0.75}  # p(v), the weight of the evidence
    rows, source = {"v": [cell], "w": [None]}, tmp_path / "d.csv"
    source.write_text(f"v,w\n{cell},\n")
    out = tmp_path / "out.csv"
    doors = {
        "predict": lambda: float(np.exp(kk.predict_proba(graph, rows)["log_evidence"][0])),
        "predict_file": lambda: (
            kk.predict_file(graph, source, out, ["w"])
            and float(np.exp(float(out.read_text().split(",")[-1])))
        ),
        "evaluate": lambda: float(np.exp(kk.evaluate(graph, rows).log_likelihood)),
        "evaluate_file": lambda: float(
            np.exp(kk.evaluate(graph, kk.read_data(source, graph)).log_likelihood)
        ),
        "learn": lambda: seen[int(kk.Data.of(rows, graph).states[0, 0])],
    }
    if state is not None and state >= 0 and cell.strip() == cell and cell != "1.0":
        given = int(cell) if cell.isdecimal() else cell  # as `--evidence v=1` is read
        doors["query"] = lambda: float(
            np.exp(kk.query(graph, "w", evidence={"v": given}).log_evidence)
        )
        doors["most_probable"] = lambda: (
            seen[state]
            if kk.most_probable(graph, evidence={"v": given})[0]["v"] == ["no", "yes"][state]
            else 0.0
        )
    for name, door in doors.items():
        if state is None:
            with pytest.raises(KikuchiError, match="is not a state"):
                door()
        else:
            assert door() == pytest.approx(seen[state] / seen[-1], rel=1e-9), name


@pytest.mark.parametrize(("cell", "weight"), [("yes", 0.75), ("0", 0.25), ("1.0", 0.75)])
def test_commands_read_cells_by_the_same_rule(tmp_path: Path, cell: str, weight: float) -> None:
    model, source, out = tmp_path / "m.bif", tmp_path / "d.csv", tmp_path / "out.csv"
    net = kk.bayesian_network({"v": ["no", "yes"]}, {"v": ([], [0.25, 0.75])})
    kk.write(net, model)
    source.write_text(f"v\n{cell}\n")
    run = CliRunner()
    done = run.invoke(app, ["predict", str(model), str(source), "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert float(out.read_text().split(",")[-1]) == pytest.approx(np.log(weight))
    done = run.invoke(app, ["evaluate", str(model), str(source), "--json", "-"])
    assert done.exit_code == 0, done.output
    assert f"{np.log(weight):.6f}"[:8] in done.stdout
    source.write_text("v\nmaybe\n")
    predict = ["predict", str(model), str(source), "-o", str(out)]
    for words in (predict, ["evaluate", str(model), str(source)]):
        done = run.invoke(app, words)
        assert done.exit_code == 2 and "'maybe' is not a state" in " ".join(done.output.split())


def test_columns_go_by_name_and_else_by_place_through_every_door(tmp_path: Path) -> None:
    graph = kk.FactorGraph([2, 3], [((0, 1), [[1, 2, 3], [4, 5, 6]])])
    for head, cells in (("a,b", "1,2"), ("x1,x0", "2,1"), ("1,x0", "2,1"), (None, "1,2")):
        path = tmp_path / "d.csv"
        path.write_text((f"{head}\n" if head else "") + f"{cells}\n")
        kk.predict_file(graph, path, tmp_path / "out.csv")
        assert (tmp_path / "out.csv").read_text().split(",")[-1] == f"{math.log(6)!r}\n"
        assert kk.read_data(path, graph).states.tolist() == [[1, 2]]
        if head is None:
            continue
        table = dict(zip(head.split(","), ([int(x)] for x in cells.split(",")), strict=True))
        for rows in (table, pd.DataFrame(table)):
            assert kk.Data.of(rows, graph).states.tolist() == [[1, 2]]
            assert np.exp(kk.predict_proba(graph, rows)["log_evidence"][0]) == pytest.approx(6)
    for rows in ([[1, 2]], np.array([[1, 2]]), kk.Data.of([[1, 2]])):
        assert np.exp(kk.predict_proba(graph, rows)["log_evidence"][0]) == pytest.approx(6)
    for rows in ({"a": [1]}, {"x0": [1], "b": [1]}, {"x2": [0]}, {"x0": [1], "0": [1]}):
        with pytest.raises(DataError, match=r"not a variable of the model|two columns belong"):
            kk.Data.of(rows, graph)
        with pytest.raises(DataError, match=r"not a variable of the model|two columns belong"):
            kk.predict_proba(graph, rows)
    (tmp_path / "d.csv").write_text("1\n0\n")
    for read in (kk.read_data, lambda p, g: kk.predict_file(g, p, tmp_path / "out.csv")):
        with pytest.raises(DataError, match="1 columns for 2 variables"):
            read(tmp_path / "d.csv", graph)


def test_the_numbers_of_all_variables_are_a_header_where_they_are_no_row(tmp_path: Path) -> None:
    """A DataFrame without names of columns comes back from the file that pandas writes."""
    path, out = tmp_path / "d.csv", tmp_path / "out.csv"
    path.write_text("0,1,2\n1,0,1\n0,,0\n")
    for sizes, rows in (([2, 2, 2], 2), ([2, 2, 3], 3)):
        graph = kk.FactorGraph(sizes, [])
        assert len(kk.read_data(path, graph).states) == rows
        assert kk.predict_file(graph, path, out).rows == rows
    named = kk.FactorGraph([2, 2, 2], [], names=["a", "b", "c"])
    for read in (kk.read_data, lambda p, g: kk.predict_file(g, p, out)):
        with pytest.raises(DataError, match="'2' is not a state"):
            read(path, named)


def test_a_number_that_is_a_name_and_a_position_is_refused_by_both() -> None:
    graph = kk.FactorGraph([2], [((0,), [0.9, 0.1])], names=["v"], states=[["1", "2"]])
    frame = pd.DataFrame({"v": [1, 1]})
    for read in (kk.Data.of(frame).matched, lambda g: kk.Data.of(frame, g)):
        with pytest.raises(
            DataError, match="column v: 1 is the name at position 0 and the position"
        ):
            read(graph)
    with pytest.raises(DataError, match="column 'v': state 1 is the name at position 0"):
        kk.predict_proba(graph, frame)
    as_texts = frame.astype(str)
    assert kk.Data.of(as_texts, graph).states.tolist() == [[0], [0]]
    assert kk.predict_proba(graph, as_texts)["v=1"].tolist() == [1, 1]
    rows = np.array([[1], [0]])  # an array holds positions, always
    assert kk.Data.of(rows, graph).states.tolist() == rows.tolist()


def test_truth_values_are_names() -> None:
    graph = kk.FactorGraph([2], [], names=["v"], states=[["true", "false"]])
    frame = pd.DataFrame({"v": [True, False]})
    assert kk.Data.of(frame, graph).states.tolist() == [[0], [1]]
    other = kk.FactorGraph([2], [], names=["v"], states=[["yes", "no"]])
    with pytest.raises(DataError, match=r"row 0, column v: True is not a state; known: yes"):
        kk.Data.of(frame, other)


def test_a_large_column_of_positions_is_read_as_before() -> None:
    graph = kk.FactorGraph([3], [], names=["v"], states=[["low", "mid", "high"]])
    codes = np.random.default_rng(0).integers(-1, 3, 1000)
    assert np.array_equal(kk.Data.of({"v": codes}, graph).states[:, 0], codes)


# ---------------------------------------------------------------------- None


def words(declared: bool) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    flow = rng.choice(["None", "Lt_to_Rt"], 400)
    same = np.where(rng.random(400) < 0.9, flow, "None")
    frame = pd.DataFrame({"flow": flow, "same": same, "other": rng.choice(["u", "v"], 400)})
    return frame.astype("category") if declared else frame


@pytest.mark.parametrize("declared", [False, True])
def test_structures_of_data_with_a_state_called_none(declared: bool) -> None:
    frame = words(declared)
    found = kk.learning.hill_climb(frame, "bic")
    renamed = kk.learning.hill_climb(frame.astype(str).replace("None", "Neither"), "bic")
    assert (
        sorted(map(sorted, found.edges)) == sorted(map(sorted, renamed.edges)) == [["flow", "same"]]
    )
    assert found.score == pytest.approx(renamed.score)
    assert kk.Data.of(frame).complete
    assert kk.Data.of(frame).state_names == (("Lt_to_Rt", "None"),) * 2 + (("u", "v"),)


def test_a_file_with_a_state_called_none(tmp_path) -> None:
    words(False).to_csv(tmp_path / "d.csv", index=False)
    data = read_data(tmp_path / "d.csv")
    assert data.complete and data.state_names[0] == ("Lt_to_Rt", "None")


def test_none_among_numbers_is_missing() -> None:
    data = kk.Data.of({"a": ["1", "None", "0"], "b": ["None"] * 3, "c": ["x", None, "y"]})
    assert data.states.tolist() == [[1, -1, 0], [-1, -1, -1], [0, -1, 1]]


def test_categories_that_look_missing_are_states() -> None:
    column = pd.Series(["NA", "b", None], dtype=pd.CategoricalDtype(["NA", "b"]))
    assert kk.Data.of(pd.DataFrame({"v": column})).states[:, 0].tolist() == [0, 1, -1]


def test_missing_cells_are_named_where_complete_rows_are_needed() -> None:
    frame = pd.DataFrame({"a": ["x", "y"] * 4, "b": ["u", "NA", "v", "w"] * 2})
    with pytest.raises(DataError, match=r"in 2 of 8 rows \(first: row 1, column b\).*Categorical"):
        kk.learning.hill_climb(frame, "bic")
