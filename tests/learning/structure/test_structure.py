"""Graphs from data: trees against all trees, growth against its rules, texts (TEH-L19, TEH-E11)."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import DataError, FormatError, KikuchiError, ModelError
from kikuchi.graphs.elimination import eliminate
from kikuchi.graphs.junction_tree import junction_tree
from kikuchi.learning.data import Data
from kikuchi.learning.evaluation import mean_log_score
from kikuchi.learning.scaling.ups_jt import UnifiedScalingML
from kikuchi.learning.structure.graphs import (
    chow_liu,
    graph_from_text,
    grow_cliques,
    mutual_information,
    pair_tables,
    random_augmentation,
    spanning_tree,
)

mutual_info_score = pytest.importorskip("sklearn.metrics").mutual_info_score


def dependent_rows(seed: int, n: int = 60, cards: tuple[int, ...] = (2, 3, 2, 2, 3)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, cards, size=(n, len(cards)))
    for v in range(1, len(cards)):
        copy = rng.random(n) < 0.2 * v
        rows[copy, v] = np.minimum(rows[copy, v - 1], cards[v] - 1)
    return rows


# ---------------------------------------------------------------------- mutual information


def test_mutual_information_is_that_of_scikit_learn() -> None:
    rows = dependent_rows(0)
    found = mutual_information(rows)
    for i, j in combinations(range(5), 2):
        wanted = mutual_info_score(rows[:, i], rows[:, j])
        assert found[i, j] == pytest.approx(wanted, abs=1e-12)
        assert found[j, i] == pytest.approx(wanted, abs=1e-12)


def test_mutual_information_of_pairs_that_are_both_observed() -> None:
    rows = dependent_rows(1)
    rows[::3, 1] = -1
    rows[1::4, 2] = -1
    both = (rows[:, 1] >= 0) & (rows[:, 2] >= 0)
    wanted = mutual_info_score(rows[both, 1], rows[both, 2])
    assert mutual_information(rows)[1, 2] == pytest.approx(wanted, abs=1e-12)


def test_smoothed_pair_tables_are_those_of_added_rows() -> None:
    rows = dependent_rows(2)
    everything = np.array(list(np.ndindex(2, 3, 2, 2, 3)))
    weights = np.concatenate([np.ones(len(rows)), np.full(len(everything), 5.0 / len(everything))])
    added = Data.of(np.concatenate([rows, everything]), weights=weights)
    assert pair_tables(Data.of(rows), 5.0) == pytest.approx(pair_tables(added), abs=1e-10)
    assert mutual_information(rows, 5.0) == pytest.approx(mutual_information(added), abs=1e-12)


# ---------------------------------------------------------------------- trees


@pytest.mark.parametrize("seed", range(4))
def test_no_other_spanning_tree_has_a_greater_likelihood(seed: int) -> None:
    """T43, over all 125 trees of 5 variables, each fitted by counting apart from the library."""
    # TEH-T43
    rows = dependent_rows(seed)
    data = Data.of(rows)
    ours = mean_log_score(chow_liu(rows), data)  # the tables are normalised: log Z = 0
    best = -np.inf
    for code in np.ndindex(5, 5, 5):
        tree = nx.from_prufer_sequence(list(code))
        value = sum(np.log(_frequency(rows, (v,))).mean() for v in range(5))
        for i, j in tree.edges:
            own = _frequency(rows, (i,)) * _frequency(rows, (j,))
            value += np.log(_frequency(rows, (i, j)) / own).mean()
        best = max(best, value)
    assert ours == pytest.approx(best, abs=1e-10)


def _frequency(rows: np.ndarray, scope: tuple[int, ...]) -> np.ndarray:
    """The share of rows that agree with each row on some columns."""
    part = rows[:, list(scope)]
    return np.mean(np.all(part[:, None] == part[None], axis=2), axis=1)


def test_the_tables_are_the_maximum_likelihood_of_the_tree() -> None:
    rows = dependent_rows(5)
    tree = chow_liu(rows, smoothing=1.0)
    assert kk.infer(tree, "jt").log_z == pytest.approx(0.0, abs=1e-12)
    fitted = UnifiedScalingML(smoothing=1.0).fit(tree, rows)
    ours = mean_log_score(tree, Data.of(rows, tree))
    assert fitted.log_likelihood == pytest.approx(ours, abs=1e-8)
    assert np.all(np.isfinite(tree.log_tables))


def test_independent_and_constant_columns_stay_apart() -> None:
    rows = [[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]]
    tree = chow_liu(rows, graph=kk.FactorGraph([2, 2, 2], []))
    assert tree.n_factors == 3 and tree.n_components == 3
    assert tree.table(2).tolist() == [0.0, 1.0]


def test_names_and_states_are_kept() -> None:
    tree = chow_liu({"rain": ["no", "yes", "no", "yes"], "wet": ["dry", "wet", "dry", "wet"]})
    assert tree.names == ("rain", "wet") and tree.states == (("no", "yes"), ("dry", "wet"))


def test_spanning_tree_is_heaviest() -> None:
    rng = np.random.default_rng(3)
    weights = rng.random((12, 12))
    weights = weights + weights.T
    ours = sum(weights[i, j] for i, j in spanning_tree(weights))
    graph = nx.from_numpy_array(weights)
    wanted = nx.maximum_spanning_tree(graph).size(weight="weight")
    assert ours == pytest.approx(wanted)


def test_augmentation_adds_a_share_of_the_near_pairs() -> None:
    tree = chow_liu(kk.plan(kk.grid(5, 5, seed=0)).calibrate().sample(500, seed=0))
    network = nx.Graph(map(tuple, tree.pairs().tolist()))
    near = dict(nx.all_pairs_shortest_path_length(network, cutoff=4))
    pairs = {(i, j) for i in near for j, d in near[i].items() if i < j and 2 <= d <= 4}
    more = random_augmentation(tree, share=0.3, distance=4, seed=7)
    added = {more.scope(a) for a in range(tree.n_factors, more.n_factors)}
    assert len(added) == more.n_factors - tree.n_factors == round(0.3 * len(pairs))
    assert added <= pairs
    again = random_augmentation(tree, share=0.3, distance=4, seed=7)
    other = random_augmentation(tree, share=0.3, distance=4, seed=8)
    assert more == again and more != other
    assert random_augmentation(tree, share=0.0) is tree
    with pytest.raises(ModelError, match="share"):
        random_augmentation(tree, share=1.5)


# ---------------------------------------------------------------------- growing cliques


def test_cliques_grow_from_edges_to_the_junction_tree() -> None:
    truth = kk.grid(4, 4, seed=1, coupling=0.7)
    rows = kk.plan(truth).calibrate().sample(300, seed=0)
    limits = [set(c) for c in junction_tree(eliminate(truth, "min-degree")).cliques]
    steps = list(grow_cliques(truth, rows))
    assert [size for size, _ in steps] == list(range(2, max(map(len, limits)) + 1))
    assert sorted(steps[0][1]) == sorted(tuple(map(int, p)) for p in truth.pairs())
    assert sorted(map(sorted, steps[-1][1])) == sorted(map(sorted, limits))
    for size, cliques in steps:
        assert max(map(len, cliques)) <= size
        assert all(any(set(c) <= limit for limit in limits) for c in cliques)
        assert not any(set(c) < set(d) for c in cliques for d in cliques)
        kk.regions.RegionGraph.junction_graph(truth, cliques)  # checks itself


def test_the_first_growth_is_the_one_of_greatest_information() -> None:
    """On a cycle the best chord is known: it joins the pair with the most mutual information."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, size=(200, 4))
    rows[:, 2] = np.where(rng.random(200) < 0.9, rows[:, 0], rows[:, 2])
    cycle = kk.FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones(4)) for i in range(4)])
    final = list(grow_cliques(cycle, rows))[-1]
    assert final[0] == 3 and len(final[1]) == 2


# ---------------------------------------------------------------------- texts


def test_graph_texts(tmp_path: Path) -> None:
    rows = {name: [0, 1, 1, 0, 1, 0] for name in ("a", "b", "c", "d")}
    rows["b"] = [0, 0, 1, 0, 1, 0]
    data = Data.of(rows)
    assert graph_from_text("chow-liu", data, smoothing=1.0) == chow_liu(data, smoothing=1.0)
    grid = graph_from_text("grid:2x2", data)
    assert grid.names == data.names
    assert grid.pairs().tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    edges = tmp_path / "edges.csv"
    edges.write_text("from,to\na,b\nd,b\nb,a\n")
    assert graph_from_text(str(edges), data).pairs().tolist() == [[0, 1], [1, 3]]
    edges.write_text("0,1\n2,3\n")
    plain = graph_from_text(str(edges), [[0, 1, 0, 1], [1, 0, 1, 0]])
    assert plain.pairs().tolist() == [[0, 1], [2, 3]] and plain.n_factors == 6
    model = tmp_path / "model.uai"
    kk.write(grid, model)
    assert graph_from_text(str(model), data).n_factors == grid.n_factors


@pytest.mark.parametrize(
    ("text", "content", "message"),
    [
        ("e.csv", "a,z\n", "no variable is called 'z'"),
        ("e.csv", "a,b,c\n", "found 3 columns"),
        ("e.csv", "a,a\n", "joined to itself"),
        ("e.csv", "\n", "no pairs"),
        ("e.csv", "from,to\n", "no pairs"),
        ("e.csv", None, "no such file"),
        ("grid:3x3", None, "9 variables, but the data have 4"),
        ("grid:2", None, "write for example grid:8x8"),
        ("tree", None, "no graph 'tree'"),
    ],
)
def test_bad_graph_texts(text: str, content: str | None, message: str, tmp_path: Path) -> None:
    data = Data.of({name: [0, 1] for name in "abcd"})
    if text.endswith(".csv"):
        text = str(tmp_path / text)
    if content is not None:
        Path(text).write_text(content)
    with pytest.raises((ModelError, FormatError), match=message):
        graph_from_text(text, data)


def test_data_without_a_graph_in_it() -> None:
    with pytest.raises(KikuchiError, match="never observed"):
        chow_liu([[0, -1], [1, -1]])
    with pytest.raises(DataError, match="weight 0"):
        chow_liu(Data.of([[0, 1]], weights=[0.0]))


def test_a_chow_liu_tree_to_learn_on_forbids_nothing() -> None:
    rows = [[0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 0]]
    assert np.isneginf(chow_liu(rows).log_tables).any()
    tree = graph_from_text("chow-liu", rows)
    assert np.all(tree.log_tables == 0)
    assert kk.learn(tree, rows, "ups-jt:smoothing=1").converged
