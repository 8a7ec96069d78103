"""Region graphs: closure, counting numbers, validity (TEH-M27, LIU-M9, LIU-I10, LIU-I11)."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kikuchi import FactorGraph, grid
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, ModelError
from kikuchi.graphs.regions import sets
from kikuchi.graphs.regions.region_graph import Region, RegionGraph
from kikuchi.graphs.regions.sets import SetFamily
from oracle import enumerate_exact, random_model
from region_checks import assert_one_balanced, counted, pairwise, region_entropy


def family_of(regions: RegionGraph) -> list[tuple[frozenset[int], frozenset[int]]]:
    return [(frozenset(r.variables), frozenset(r.factors)) for r in regions.regions]


def naive_closure(roots: list[frozenset[int]]) -> set[frozenset[int]]:
    """All intersections of any number of roots, by brute force."""
    found = set(roots)
    while True:
        more = {a & b for a in found for b in found} - {frozenset()} - found
        if not more:
            return found
        found |= more


# ---------------------------------------------------------------------- golden values


def test_plaquettes_of_a_3_by_3_grid() -> None:
    """TEH-M27, T26: the golden counting numbers."""
    faces = [(0, 1, 3, 4), (1, 2, 4, 5), (3, 4, 6, 7), (4, 5, 7, 8)]
    regions = RegionGraph.closure(grid(3, 3), faces)
    edges = {(3, 4): -1, (1, 4): -1, (4, 7): -1, (4, 5): -1}
    assert counted(regions) == {**dict.fromkeys(faces, 1), **edges, (4,): 1}
    assert regions.n_roots == 4 and len(regions.edges) == 12
    assert_one_balanced(regions)


def test_roots_for_which_the_printed_rule_fails() -> None:
    """LIU-I10: with level-wise intersections variable 0 would be counted twice."""
    roots = [(0, 1, 2, 3), (2, 4, 5), (0, 1, 2, 5), (0, 4)]
    graph = pairwise(6, [(0, 1), (2, 3), (4, 5), (2, 5), (0, 4)])
    regions = RegionGraph.closure(graph, roots)
    assert (0,) in counted(regions)
    assert_one_balanced(regions)


def test_factors_are_part_of_a_region() -> None:
    """LIU-M9: the outer cycle of a 2 by 3 grid has all variables of a face but does not hold it."""
    edges = [(0, 1), (1, 2), (0, 3), (1, 4), (2, 5), (3, 4), (4, 5)]
    graph = pairwise(6, edges)
    outer = Region((0, 1, 2, 3, 4, 5), (0, 1, 2, 4, 5, 6))
    face = Region((0, 1, 3, 4), (0, 2, 3, 5))
    assert not outer.contains(face)
    regions = RegionGraph.closure(graph, [(0, 1, 3, 4), (1, 2, 4, 5), outer])
    assert regions.n_roots == 3
    assert Region((0, 1, 3, 4), (0, 2, 5)) in regions.regions
    assert_one_balanced(regions)
    everything = RegionGraph.closure(graph, [(0, 1, 3, 4), range(6)])
    assert len(everything.regions) == 1 and everything.is_exact


def test_figure_4_1_three_levels() -> None:
    """LIU-I11: loops, 7 single edges, 6 single variables; not the closure of the loops."""
    loops = [(0, 1, 4, 3), (1, 2, 5, 4), (0, 1, 2, 5, 4, 3)]
    regions = RegionGraph.loop_edge_vertex(grid(2, 3), loops)
    assert Counter(len(r.variables) for r in regions.regions) == {6: 1, 4: 2, 2: 7, 1: 6}
    by_size = {len(r.variables): c for r, c in zip(regions.regions, regions.counting, strict=True)}
    assert by_size[4] == by_size[6] == 1 and by_size[2] == -1
    assert_one_balanced(regions)


def test_loop_edge_vertex_covers_factors_in_no_loop() -> None:
    tables = [((0, 1), np.ones(4)), ((1, 2), np.ones(4)), ((0, 2), np.ones(4))]
    tables += [((2, 3, 4), np.ones(8)), ((0, 1), np.ones(4)), ((0,), np.ones(2))]
    graph = FactorGraph([2] * 6, tables)
    regions = RegionGraph.loop_edge_vertex(graph, [(0, 1, 2)])
    assert regions.roots == [(0, 1, 2), (2, 3, 4), (5,)]
    assert_one_balanced(regions)
    with pytest.raises(ModelError, match="is not a cycle"):
        RegionGraph.loop_edge_vertex(graph, [(0, 1, 0)])


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_grid_closed_form(n: int) -> None:
    """C13: faces 1, interior edges -1, interior vertices +1."""
    # LIU-C13
    cells = np.arange(n * n).reshape(n, n)
    faces = [cells[i : i + 2, j : j + 2].ravel() for i in range(n - 1) for j in range(n - 1)]
    regions = RegionGraph.closure(grid(n, n), faces)
    inner = n - 2
    expected = {(4, 1): (n - 1) ** 2, (2, -1): 2 * inner * (n - 1), (1, 1): inner**2}
    found = {(size, c): count for size, c, count in regions.groups()}
    assert found == {kind: count for kind, count in expected.items() if count}


# ---------------------------------------------------------------------- any roots


@st.composite
def root_families(draw: st.DrawFn) -> tuple[int, list[tuple[int, ...]], list[tuple[int, ...]]]:
    n = draw(st.integers(2, 8))
    subset = st.sets(st.integers(0, n - 1), min_size=1, max_size=5).map(lambda s: tuple(sorted(s)))
    scope = st.sets(st.integers(0, n - 1), min_size=1, max_size=3).map(lambda s: tuple(sorted(s)))
    return n, draw(st.lists(subset, max_size=6)), draw(st.lists(scope, max_size=8))


@settings(max_examples=300)
@given(root_families())
def test_closure_of_any_roots_is_valid(
    family: tuple[int, list[tuple[int, ...]], list[tuple[int, ...]]],
) -> None:
    """LIU-I10: 1-balanced, closed, parents before children, edges of the Hasse diagram."""
    n, roots, scopes = family
    graph = FactorGraph([2] * n, [(s, np.ones(2 ** len(s))) for s in scopes])
    regions = RegionGraph.closure(graph, roots)
    assert_one_balanced(regions)
    regions.check()
    found = [frozenset(v) | {n + a for a in f} for v, f in family_of(regions)]
    tops = found[: regions.n_roots]
    assert set(found) == naive_closure(tops) and len(set(found)) == len(found)
    assert all(any(set(root) <= top for top in tops) for root in roots)
    for k, above in enumerate(regions.supersets):
        assert list(above) == [j for j, other in enumerate(found) if found[k] < other]
        assert all(j < k for j in above)
    covers = {
        (j, k)
        for k, small in enumerate(found)
        for j, large in enumerate(found)
        if small < large and not any(small < m < large for m in found)
    }
    assert {tuple(edge) for edge in regions.edges.tolist()} == covers
    for k, kids in enumerate(regions.children):
        assert {(k, kid) for kid in kids} == {e for e in covers if e[0] == k}
    for k, elders in enumerate(regions.parents):
        assert {(elder, k) for elder in elders} == {e for e in covers if e[1] == k}


def test_small_roots_come_before_larger_overlaps() -> None:
    graph = pairwise(7, [(0, 1), (5, 6)])
    regions = RegionGraph.closure(graph, [(0, 1, 2, 3), (0, 1, 2, 4), (5, 6)])
    assert regions.n_roots == 3
    assert [r.variables for r in regions.regions] == [
        (0, 1, 2, 3),
        (0, 1, 2, 4),
        (5, 6),
        (0, 1, 2),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_bethe_regions(seed: int) -> None:
    """C14: sum_r c_r H_r is the Bethe entropy, also for factors that share several variables."""
    graph = random_model(np.random.default_rng(seed), n=5, n_factors=8, max_order=3, max_card=3)
    regions = RegionGraph.bethe(graph)
    assert_one_balanced(regions)
    _, singles, tables = enumerate_exact(graph)
    many = [a for a in range(graph.n_factors) if len(graph.scope(a)) > 1]
    degree = np.bincount([v for a in many for v in graph.scope(a)], minlength=5)
    entropy = [-float(np.sum(p * np.log(p))) for p in singles]
    expected = sum((1 - degree[v]) * entropy[v] for v in range(5))
    expected -= sum(float(np.sum(tables[a] * np.log(tables[a]))) for a in many)
    assert region_entropy(graph, regions) == pytest.approx(expected, abs=1e-10)


# ---------------------------------------------------------------------- junction graphs


@pytest.mark.parametrize("seed", range(8))
def test_junction_graph_is_a_tree_for_each_variable(seed: int) -> None:
    """TEH-M27: cliques - separators = 1 for each variable, and each variable's are connected."""
    # TEH-T25
    rng = np.random.default_rng(seed)
    cliques = [tuple(rng.choice(9, size=int(rng.integers(2, 5)), replace=False)) for _ in range(9)]
    cliques += [(v,) for v in range(9)]
    regions = RegionGraph.junction_graph(FactorGraph([2] * 9, []), cliques)
    assert set(regions.counting.tolist()) <= {1.0, -1.0}
    tops = regions.regions[: regions.n_roots]
    below = regions.regions[regions.n_roots :]
    for v in range(9):
        assert sum(v in r.variables for r in tops) - sum(v in r.variables for r in below) == 1
    assert all(len(p) == 2 for p in regions.parents[regions.n_roots :])
    for k, parents in enumerate(regions.parents):
        assert all(regions.regions[p].contains(regions.regions[k]) for p in parents)
    regions.check()


def test_cliques_of_a_junction_tree_get_its_separators() -> None:
    """All spanning trees break ties alike, so they are parts of one tree."""
    cliques = [(0, 1), (0, 2), (0, 3), (0, 4, 5), (4, 5, 6), (5, 7)]
    graph = FactorGraph([2] * 8, [(c, np.ones(2 ** len(c))) for c in cliques])
    regions = RegionGraph.junction_graph(graph, cliques)
    assert regions.is_exact
    assert len(regions.regions) == 6 + 5


def test_explicit_counting_is_checked() -> None:
    graph = pairwise(3, [(0, 1), (1, 2)])
    parts = [Region((0, 1), (0,)), Region((1, 2), (1,)), Region((1,), ())]
    edges = [(0, 2), (1, 2)]
    good = RegionGraph(graph, parts, edges=edges, counting=[1, 1, -1])
    assert counted(good) == {(0, 1): 1, (1, 2): 1, (1,): -1}
    with pytest.raises(ModelError, match="variable 1 is counted 2 times"):
        RegionGraph(graph, parts, edges=edges, counting=[1, 1, 0])
    with pytest.raises(ModelError, match="not connected"):
        RegionGraph(graph, parts, edges=[(0, 2)], counting=[1, 1, -1])
    with pytest.raises(ModelError, match="not a proper subset"):
        RegionGraph(graph, parts, edges=[(2, 0)])
    with pytest.raises(ModelError, match="edges must join"):
        RegionGraph(graph, parts, edges=[(0, 7)])


# ---------------------------------------------------------------------- exactness


@pytest.mark.parametrize("seed", range(12))
def test_is_exact_means_that_the_entropy_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, n_factors=5, max_order=3, max_card=2)
    everything = RegionGraph.closure(graph, [range(5)])
    true = region_entropy(graph, everything)
    choices = [RegionGraph.bethe(graph), RegionGraph.closure(graph, []), everything]
    for _ in range(4):
        roots = [tuple(rng.choice(5, size=3, replace=False)) for _ in range(3)]
        choices.append(RegionGraph.closure(graph, roots))
        choices.append(
            RegionGraph.junction_graph(graph, [r.variables for r in choices[-1].regions])
        )
    assert everything.is_exact
    for regions in choices:
        if regions.is_exact:
            assert region_entropy(graph, regions) == pytest.approx(true, abs=1e-10)


def test_not_exact_where_it_is_not() -> None:
    triangle = pairwise(3, [(0, 1), (1, 2), (0, 2)])
    assert not RegionGraph.bethe(triangle).is_exact
    twice = pairwise(2, [(0, 1), (0, 1)])
    assert not RegionGraph.bethe(twice).is_exact
    assert RegionGraph.closure(twice, []).is_exact
    fan = pairwise(5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)])
    assert RegionGraph.closure(fan, [(0, 1, 2), (0, 2, 3), (0, 3, 4)]).is_exact
    assert RegionGraph.bethe(pairwise(4, [(0, 1), (1, 2), (1, 3)])).is_exact


# ---------------------------------------------------------------------- bad input, cost, data


@pytest.mark.parametrize(
    ("roots", "words"),
    [
        ([(0, 9)], "root 0: .*9"),
        ([(0, 1), ()], "root 1 has no variables"),
        ([(0, "x")], "root 0"),
        ([3], "root 0: 3 is not a list"),
        (["ab"], "is not a list"),
        ([Region((0,), (0,))], "not inside"),
        ([Region((0,), (17,))], "factor 17"),
    ],
)
def test_bad_roots(roots: list[object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        RegionGraph.closure(pairwise(3, [(0, 1), (1, 2)]), roots)  # type: ignore[arg-type]


def test_roots_must_cover_unless_told_to() -> None:
    graph = pairwise(3, [(0, 1), (1, 2)])
    assert RegionGraph.closure(graph, [(0, 1)]).roots == [(0, 1), (1, 2)]
    with pytest.raises(ModelError, match="variable 2 is counted 0 times"):
        RegionGraph.closure(graph, [(0, 1)], cover=False)
    with pytest.raises(ModelError, match=r"factor 1 over \(1, 2\) is counted 0 times"):
        RegionGraph.closure(graph, [(0, 1), (2,)], cover=False)
    with pytest.raises(ModelError, match="no clique holds factor 1"):
        RegionGraph.junction_graph(graph, [(0, 1), (2,)])


def test_too_large_is_refused_with_the_figure() -> None:
    graph = pairwise(60, [(0, 1)])
    regions = RegionGraph.closure(graph, [range(60)])
    with pytest.raises(BudgetError, match=r"60 variables and 1\.15e\+18 states: needs 4\.6 EB"):
        regions.require(Budget())
    huge = RegionGraph.closure(pairwise(3000, []), [range(3000)])
    assert np.isinf(huge.sizes[0]) and huge.bytes == 2**62
    RegionGraph.bethe(graph).require(Budget(bytes=10_000))


def test_roots_with_very_many_overlaps_are_refused_at_once() -> None:
    roots = list(itertools.combinations(range(24), 4))
    with pytest.raises(BudgetError, match="overlap too often"):
        RegionGraph.closure(FactorGraph([2] * 24, []), roots)


def test_closures_that_explode_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kikuchi.graphs.regions.region_graph.MOST_REGIONS", 40)
    everything_but_one = [[v for v in range(8) if v != k] for k in range(8)]
    with pytest.raises(BudgetError, match="more than 40 regions"):
        RegionGraph.closure(FactorGraph([2] * 8, []), everything_but_one)


def test_sizes_and_data() -> None:
    graph = FactorGraph([2, 3, 4], [((0, 1), np.ones(6)), ((1, 2), np.ones(12))])
    regions = RegionGraph.closure(graph, [])
    assert regions.sizes.tolist() == [6, 12, 3]
    assert regions.bytes == 8 * 21 + 4 * 18
    data = regions.to_dict()
    assert data["roots"] == [[0, 1], [1, 2]] and data["exact"] is True
    assert data["regions"][2] == {"variables": [1], "factors": [], "counting": -1}
    assert data["edges"] == [[0, 2], [1, 2]]
    assert "1 region  of 1 variable, counted -1" in regions.describe()
    assert repr(regions) == "RegionGraph(3 regions, 2 roots)"


def test_no_variables_at_all() -> None:
    empty = RegionGraph.closure(FactorGraph([], []), [])
    assert len(empty.regions) == 0 and empty.bytes == 0
    assert "0 regions" in empty.describe()


# ---------------------------------------------------------------------- families of sets


@settings(max_examples=200)
@given(
    st.lists(st.sets(st.integers(0, 6), min_size=1), max_size=7),
    st.lists(st.sets(st.integers(0, 6), min_size=1), max_size=7),
    st.integers(1, 40),
)
def test_set_families_against_python_sets(
    small: list[set[int]], large: list[set[int]], block: int
) -> None:
    one, other = SetFamily.of(small, 7), SetFamily.of(large, 7)
    before = sets._PAIRS_AT_ONCE
    sets._PAIRS_AT_ONCE = block  # several blocks even for few sets
    try:
        rows, cols = sets.subset_pairs(one, other)
        closed = sets.closure(one, 7, 1000).tuples()
        top = sets.maximal(one).tuples()
    finally:
        sets._PAIRS_AT_ONCE = before
    expected = [(i, j) for i, a in enumerate(small) for j, b in enumerate(large) if a <= b]
    assert list(zip(rows.tolist(), cols.tolist(), strict=True)) == expected
    frozen = list(dict.fromkeys(map(frozenset, small)))
    assert len(closed) == len(set(closed))
    assert {frozenset(s) for s in closed} == naive_closure(frozen)
    assert [frozenset(s) for s in top] == [s for s in frozen if not any(s < t for t in frozen)]
    assert one.tuples() == [tuple(sorted(s)) for s in small]
