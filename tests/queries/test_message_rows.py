"""Many cases by belief propagation side by side, against a run for each, and exact on forests."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.queries.message_rows import MessageRows, takes

GRID = kk.grid(4, 4, seed=3, coupling=0.6)


def cases(graph: kk.FactorGraph, count: int, seed: int) -> pd.DataFrame:
    """Rows with about a third of the cells observed."""
    rng = np.random.default_rng(seed)
    states = rng.integers(0, 2, (count, graph.n_variables)).astype(float)
    states[rng.random(states.shape) < 0.7] = np.nan
    return pd.DataFrame(states, columns=[graph.label(v) for v in range(graph.n_variables)])


def each(graph: kk.FactorGraph, frame: pd.DataFrame, method: str) -> list[kk.Beliefs]:
    """A run for each row."""
    rows = [{int(v): int(k) for v, k in row.items() if k == k} for _, row in frame.iterrows()]
    return [kk.infer(graph, method, evidence=row) for row in rows]


@pytest.mark.parametrize("method", ["bp", "bp:damping=0.3"])
def test_rows_side_by_side_answer_as_runs_of_their_own(method: str) -> None:
    frame = cases(GRID, 70, 0)  # more than a block
    table = kk.predict_proba(GRID, frame, method=method)
    for row, beliefs in enumerate(each(GRID, frame, method)):
        assert beliefs.converged
        np.testing.assert_allclose(table.iloc[row, :-1], beliefs.flat_marginals, atol=1e-7)
        assert table.log_evidence[row] == pytest.approx(beliefs.log_z, abs=1e-7)
    exact = kk.predict_proba(GRID, frame)
    assert np.abs(table.to_numpy() - exact.to_numpy()).max() > 1e-6  # not the exact answers


def test_a_row_does_not_depend_on_the_others() -> None:
    frame = cases(GRID, 30, 1)
    table = kk.predict_proba(GRID, frame, method="bp")
    backwards = kk.predict_proba(GRID, frame.iloc[::-1].head(11), method="bp")
    np.testing.assert_array_equal(backwards.to_numpy(), table.loc[backwards.index].to_numpy())


def test_forests_and_large_tables_are_exact() -> None:
    rng = np.random.default_rng(0)
    tree = kk.FactorGraph(
        [2, 3, 2, 4, 2],
        [
            ((0, 1, 2), rng.random((2, 3, 2)) * (rng.random((2, 3, 2)) > 0.2)),
            ((2, 3), rng.random((2, 4))),
            ((3, 4), rng.random((4, 2))),
            ((4,), rng.random(2)),
        ],
    )
    frame = pd.DataFrame({"x4": [0, 1, None, 0], "x1": [None, 2, 1, 0]})
    rows = MessageRows(tree, kk.methods.BeliefPropagation())
    found = rows.solve([4, 1], np.array([[0, -1], [1, 2], [-1, 1], [0, 0]], np.int32), _clock())
    assert not found.left.any() and found.converged.all()
    table = kk.predict_proba(tree, frame, method="bp")
    exact = kk.predict_proba(tree, frame, method="exact")
    np.testing.assert_allclose(table.to_numpy(), exact.to_numpy(), atol=1e-12)


def _clock() -> object:
    return Budget().start()


def test_impossible_rows_and_zeros() -> None:
    asia = kk.example("asia")
    frame = pd.DataFrame({"tub": ["yes", "no", "yes"], "either": ["no", "no", "yes"]})
    with pytest.raises(ImpossibleEvidenceError, match=r"row 0: .*tub=yes, either=no together"):
        kk.predict_proba(asia, frame, ["lung"], method="bp")
    table = kk.predict_proba(asia, frame, ["lung"], method="bp", impossible="missing")
    assert np.isnan(table.iloc[0, 0]) and table.log_evidence[0] == -np.inf
    single = kk.infer(asia, "bp", evidence={"tub": "yes", "either": "yes"})
    assert table["lung=yes"][2] == pytest.approx(single["lung"][1], abs=1e-9)


def test_numbers_out_of_range_are_left_to_runs_with_logarithms() -> None:
    tiny = np.log([[1.0, 1e-150], [1e-150, 1.0]])
    chain = kk.FactorGraph([2] * 3, [((0, 1), tiny), ((1, 2), tiny), ((0,), [0.0, 1.0])], log=True)
    assert not MessageRows(chain, kk.methods.BeliefPropagation()).in_range
    frame = pd.DataFrame({"x0": [0, 1], "x2": [1, None]})
    table = kk.predict_proba(chain, frame, method="bp")
    exact = kk.predict_proba(chain, frame, method="exact")
    np.testing.assert_allclose(table.to_numpy(), exact.to_numpy(), rtol=1e-9)


def test_rows_that_do_not_converge_are_named() -> None:
    hard = kk.generate.complete(12, seed=0, coupling=3.0)
    frame = pd.DataFrame({"x0": [0, 1, None], "x1": [None, 1, 0]})
    with pytest.warns(UserWarning, match="3 of 3 cases did not converge"):
        table = kk.predict_proba(hard, frame, method="bp:max_iter=3")
    assert table.attrs["not_converged"] == [0, 1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "not_converged" not in kk.predict_proba(GRID, cases(GRID, 3, 2), method="bp").attrs


def test_time_ends_with_an_error_and_other_methods_share_it() -> None:
    large = kk.grid(30, 30, seed=0, coupling=1.0)
    frame = pd.DataFrame({"x0": [0, 1], "x1": [0, 1]})
    with pytest.raises(BudgetError, match=r"distinct cases were completed when the 0.05 seconds"):
        kk.predict_proba(large, frame, method="bp:tol=0,max_iter=1000000", seconds=0.05)
    many = cases(large, 40, 0)
    with pytest.raises(BudgetError, match="of 40 distinct cases"):
        kk.predict_proba(large, many, [0], method="gibbs", seconds=0.3)


def test_which_methods_run_side_by_side() -> None:
    assert takes(kk.methods.BeliefPropagation(damping=0.2), GRID)
    assert not takes(kk.methods.BeliefPropagation(schedule="residual"), GRID)
    assert not takes(kk.methods.BeliefPropagation(mode="max"), GRID)
    assert not takes(kk.methods.MeanField(), GRID)


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_a_method_without_log_z_leaves_the_evidence_empty(tmp_path) -> None:
    frame = cases(GRID, 2, 0)
    table = kk.predict_proba(GRID, frame, [0], method="gibbs:sweeps=200")
    assert table.log_evidence.isna().all() and (table["0=0"] > 0).all()
    frame.astype("Int64").to_csv(tmp_path / "cases.csv", index=False)
    out = tmp_path / "out.csv"
    kk.predict_file(GRID, tmp_path / "cases.csv", out, [0], method="gibbs:sweeps=200")
    assert out.read_text().splitlines()[1].endswith(",")


def test_an_unknown_method_is_refused_before_work(tmp_path) -> None:
    with pytest.raises(kk.KikuchiError, match=r"^there is no method 'bq'"):
        kk.predict_proba(GRID, cases(GRID, 2, 0), method="bq")
