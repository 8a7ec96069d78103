"""Rows of evidence on one tree, side by side and one at a time, against enumeration."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.engines.trees import rows as engine
from kikuchi.engines.trees.row_layout import RowLayout
from kikuchi.engines.trees.rows import LinearTables, TreeRows
from oracle import enumerate_exact, random_model


def tree_of(graph: kk.FactorGraph, seen: list[int], read: str, n_rows: int | None = None):
    """The tree of rows that observe `seen`; with counts, rows may also miss the last of them."""
    missing = np.ones(graph.n_variables, dtype=bool)
    missing[seen[:-1] if read == "counts" else seen] = False
    column = np.full(graph.n_variables, -1)
    column[seen] = np.arange(len(seen))
    touched = [a for a in range(graph.n_factors) if missing[list(graph.scope(a))].any()]
    partly = np.array(seen[-1:] if read == "counts" else [], dtype=np.int64)
    layout = RowLayout(missing, column, np.array(touched), partly, read=read)
    tree = TreeRows(graph, layout, layout.plan(graph), n_rows)
    tree.set_tables(LinearTables.of(graph))
    return tree


def fixed_score(graph: kk.FactorGraph, tree: TreeRows, seen: dict[int, int]) -> float:
    """Log-weight of the factors that the tree leaves out."""
    rest = set(range(graph.n_factors)) - set(tree.layout.factors.tolist())
    return sum(
        float(graph.log_table(a)[tuple(seen[v] for v in graph.scope(a))]) for a in sorted(rest)
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0, 3000.0])
def test_marginals_and_counts_of_rows(seed: int, scale: float) -> None:
    """Tables that span up to 10^1000: what is not harmless goes to the engine with logarithms."""
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=6, n_factors=9, zeros=0.1 * (seed % 3), scale=1.0)
    graph = graph.with_log_tables(scale * graph.log_tables)
    seen = [0, 3, 4]
    states = np.stack([rng.integers(graph.cardinalities[v], size=9) for v in seen], axis=1)
    states = states.astype(np.int32)
    marginals, counts = tree_of(graph, seen, "variables"), tree_of(graph, seen, "counts")
    log_z, out = marginals.marginals(states, np.zeros((9, 0)))
    _, log_out = marginals.marginals(states, np.zeros((9, 0)), logs=True)
    states[::2, 2] = np.where(seed % 2, -1, states[::2, 2])  # not observed in every row
    weights = rng.random(9) + 0.1
    found = np.zeros(graph.log_tables.size)
    counted = counts.counts(states, weights, found, lambda: None)
    alone = counts.counts(states, weights, None, lambda: None)
    wanted = np.zeros_like(found)
    for row in range(9):
        given = {v: int(k) for v, k in zip(seen, states[row], strict=True) if k >= 0}
        with np.errstate(all="ignore"):
            exact, singles, tables = enumerate_exact(graph.clamp(given))
        rest = fixed_score(graph, counts, given)
        if not np.isfinite(exact):
            assert counted[row] + rest == alone[row] + rest == -np.inf
            continue
        assert counted[row] + rest == pytest.approx(exact, rel=1e-12, abs=1e-9)
        assert alone[row] + rest == pytest.approx(exact, rel=1e-12, abs=1e-9)
        flat = [t.ravel() for t in tables[: graph.n_factors]]
        for a in counts.layout.factors:
            at = graph.table_offsets[a]
            wanted[at : at + flat[a].size] += weights[row] * flat[a]
        if len(given) == len(seen):
            free = np.concatenate([singles[v] for v in marginals.layout.open])
            assert out[row] == pytest.approx(free, abs=1e-9)
            assert np.exp(log_out[row]) == pytest.approx(free, abs=1e-9)
            rest = fixed_score(graph, marginals, given)
            assert log_z[row] + rest == pytest.approx(exact, rel=1e-12, abs=1e-9)
    assert found == pytest.approx(wanted, abs=1e-9)


def latent_class(n: int, states: int = 3) -> kk.FactorGraph:
    """A hidden class with n observed variables, each state of which has probability about 1/9."""
    rng = np.random.default_rng(0)
    rows = [rng.dirichlet(np.full(9, 20.0), size=states) for _ in range(n)]
    factors = [((0,), np.full(states, 1 / states))]
    return kk.FactorGraph(
        [states] + [9] * n, [*factors, *(((0, k + 1), p) for k, p in enumerate(rows))]
    )


def test_products_of_many_tables_stay_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand operands of one clique, whose product is far below all floats, need no logarithms
    of single rows; and the answer is that of sums of logarithms.
    """

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a row went through the engine of single runs")

    monkeypatch.setattr(engine, "Tree", refused)
    graph = latent_class(1000)
    rng = np.random.default_rng(1)
    states = rng.integers(9, size=(150, 1000)).astype(np.int32)
    tree = tree_of(graph, list(range(1, 1001)), "variables")
    log_z, out = tree.marginals(states, np.zeros((150, 0)))
    logs = np.log(np.full(3, 1 / 3)) + sum(
        graph.log_table(k + 1)[:, states[:, k]].T for k in range(1000)
    )
    assert log_z.max() < -1500
    wanted = np.logaddexp.reduce(logs, axis=1)
    assert log_z == pytest.approx(wanted, rel=1e-13)
    assert out == pytest.approx(np.exp(logs - wanted[:, None]), abs=1e-10)


def test_numbers_that_matter_and_underflow_go_one_at_a_time() -> None:
    """Two factors that forbid each other up to e^-1600: the sum is of what plain numbers lose."""
    far = [[0.0, -800.0], [-800.0, 0.0]]
    graph = kk.FactorGraph([2, 2, 2], [((0, 1), far), ((0, 2), far)], log=True)
    tree = tree_of(graph, [1, 2], "variables")
    states = np.array([[0, 1], [0, 0]], dtype=np.int32)
    log_z, out = tree.marginals(states, np.zeros((2, 0)))
    assert log_z == pytest.approx([-800 + np.log(2), 0.0])
    assert out == pytest.approx(np.array([[0.5, 0.5], [1.0, 0.0]]))
    _, logs = tree.marginals(states, np.zeros((2, 0)), logs=True)
    assert logs[1] == pytest.approx([0.0, -1600.0])


def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = kk.grid(3, 4, seed=0)
    seen = [0, 5, 6, 7]
    states = np.random.default_rng(0).integers(2, size=(131, 4)).astype(np.int32)
    found = []
    for most in (64, 7, 1):
        monkeypatch.setattr(engine, "_MOST_ROWS", most)
        counts = np.zeros(graph.log_tables.size)
        log_z = tree_of(graph, seen, "counts").counts(states, np.ones(131), counts, lambda: None)
        found.append(np.concatenate([log_z, counts]))
    monkeypatch.setattr(engine, "MOST_ENTRIES", 0)
    counts = np.zeros(graph.log_tables.size)
    tree = tree_of(graph, seen, "counts")
    assert not tree.side_by_side
    log_z = tree.counts(states, np.ones(131), counts, lambda: None)
    for other in (*found[1:], np.concatenate([log_z, counts])):
        assert other == pytest.approx(found[0], rel=1e-12)


def test_a_forgotten_plan_is_made_again() -> None:
    graph = kk.grid(3, 3, seed=0)
    tree = tree_of(graph, [0, 4], "counts")
    before = tree.plan.elimination_order
    tree.forget_plan()
    assert tree.plan.elimination_order == before
