"""Regions by name, cycles, tree-robustness, junction graphs (TEH-M27; LIU-I10 to LIU-I12)."""

from __future__ import annotations

import dataclasses
import json
import time
from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kikuchi import FactorGraph, grid
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, FormatError, KikuchiError, MethodError, ModelError
from kikuchi.generate import complete, random_graph, random_tree
from kikuchi.graphs.elimination import eliminate
from kikuchi.graphs.junction_tree import junction_tree
from kikuchi.graphs.regions import cycles
from kikuchi.graphs.regions.builders import REGION_TEXTS, read_roots, region_graph, robustness
from kikuchi.graphs.regions.junction import grown_cliques
from kikuchi.graphs.regions.region_graph import RegionGraph
from kikuchi.graphs.regions.robustness import (
    grow_roots,
    is_tree_robust,
    log_spanning_trees,
    random_trees,
    spanning_trees,
    tree_exact,
)
from oracle import random_model
from region_checks import assert_one_balanced, counted, pairwise, region_entropy

K5 = list(combinations(range(5), 2))
PLAIN = [text for text in REGION_TEXTS if not set(text) & set(":[")] + [
    "junction:3",
    "junction:30",
    "loops:3",
    "loops:4",
    "loops:6",
]


def grid_edges(rows: int, cols: int) -> list[tuple[int, int]]:
    return cycles.pair_edges(grid(rows, cols))


def rank_of_cycles(edges: list[tuple[int, int]], found: list[tuple[int, ...]]) -> int:
    """Dimension over GF(2) of the space that cycles span, by plain elimination."""
    place = {edge: k for k, edge in enumerate(edges)}
    rows = []
    for cycle in found:
        row = np.zeros(len(edges), dtype=bool)
        row[[place[e] for e in cycles.edges_of_cycle(cycle)]] = True
        rows.append(row)
    rank = 0
    for column in range(len(edges)):
        pivot = next((r for r in rows if r[column]), None)
        if pivot is not None:
            rows = [r ^ pivot if r[column] else r for r in rows if r is not pivot]
            rank += 1
    return rank


# ---------------------------------------------------------------------- every text


@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize("seed", range(4))
def test_every_builder_is_one_balanced(text: str, seed: int) -> None:
    """C13: (4.13) for every builder, with factors of several orders and free variables."""
    # LIU-C13
    rng = np.random.default_rng(seed)
    models = [
        grid(3, 4, seed=seed),
        grid(3, 3, periodic=True),
        complete(5, seed=seed),
        random_tree(7, seed=seed),
        random_graph(9, 0.4, seed=seed),
        random_model(rng, n=8, n_factors=7, max_order=4, max_card=3),
        FactorGraph([2, 3], []),
    ]
    built = 0
    for graph in models:
        try:
            regions = region_graph(graph, text)
        except ModelError as error:
            assert "planar" in str(error) or "triangle" in str(error)
            continue
        assert_one_balanced(regions)
        built += 1
    assert built >= 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("text", ["junction-tree", "junction:9"])
def test_junction_trees_are_exact(text: str, seed: int) -> None:
    graph = random_model(np.random.default_rng(seed), n=6, n_factors=8, max_order=3, max_card=2)
    regions = region_graph(graph, text)
    assert regions.is_exact
    everything = RegionGraph.closure(graph, [range(6)])
    assert region_entropy(graph, regions) == pytest.approx(
        region_entropy(graph, everything), abs=1e-10
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("face", "did you mean 'faces'"),
        ("", "known: auto, bethe"),
        ("loops", "write loops:K"),
        ("loops:2", "3..6"),
        ("loops:7", "3..6"),
        ("loops:x", "3..6"),
        ("junction:1", "2..1000"),
        ("junction:", "write junction:K"),
        ("bethe:3", "nothing after a colon"),
        ("faces:", "nothing after a colon"),
    ],
)
def test_unknown_texts(text: str, words: str) -> None:
    with pytest.raises(MethodError) as caught:
        region_graph(grid(2, 2), text)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_text_lists_what_exists() -> None:
    with pytest.raises(MethodError) as caught:
        region_graph(grid(2, 2), "nonsense")
    assert all(text in str(caught.value) for text in REGION_TEXTS)


def test_budget_is_honoured_before_anything_is_allocated() -> None:
    ring = FactorGraph([2] * 200, [((i, (i + 1) % 200), np.ones(4)) for i in range(200)])
    everything = json.dumps([list(range(200))])
    with pytest.raises(BudgetError, match="200 variables"):
        RegionGraph.closure(ring, json.loads(everything)).require(Budget())
    with pytest.raises(BudgetError, match="but the budget is"):
        region_graph(grid(10, 10), "faces", budget=Budget(bytes=1000))
    with pytest.raises(BudgetError, match=r"e\+1\d states: needs"):
        region_graph(grid(60, 60), "junction-tree", budget=Budget())


def test_a_junction_tree_that_was_given_up_is_refused() -> None:
    found = eliminate(grid(4, 4))
    stopped = dataclasses.replace(found, order=found.order[:5], log2_weight=48.0)
    with pytest.raises(BudgetError, match=r"at least 2\^48 states"):
        junction_tree(stopped)


# ---------------------------------------------------------------------- faces and stars


def test_grid_with_outer_face() -> None:
    """C13: 5 by 5 has 17 roots, 36 regions at -1 with 2 or 3 variables, 21 variables at +1."""
    regions = region_graph(grid(5, 5), "faces+outer")
    assert regions.groups() == [(16, 1, 1), (4, 1, 16), (3, -1, 4), (2, -1, 32), (1, 1, 21)]
    assert regions.n_roots == 17


def test_outer_face_of_two_rows_does_not_swallow_the_faces() -> None:
    regions = region_graph(grid(2, 3), "faces+outer")
    assert sorted(len(root) for root in regions.roots) == [4, 4, 6]
    assert_one_balanced(regions)


@pytest.mark.parametrize(("n", "edge", "vertex"), [(9, -6, 21), (16, -13, 91), (4, -1, 1)])
def test_star_closed_form(n: int, edge: int, vertex: int) -> None:
    """C13: triangles 1, root edges 3 - N, root 1 + (N - 1)(N - 4) / 2."""
    found = {(size, c): k for size, c, k in region_graph(complete(n), "star").groups()}
    assert found == {(3, 1): (n - 1) * (n - 2) // 2, (2, edge): n - 1, (1, vertex): 1}


def test_star_root_by_number_and_name() -> None:
    tables = [(edge, np.ones(4)) for edge in combinations("abcd", 2)]
    graph = FactorGraph([2] * 4, tables, names=list("abcd"))
    for word in ("c", "2"):
        regions = region_graph(graph, f"star:{word}")
        assert all(2 in root for root in regions.roots)
    with pytest.raises(ModelError, match="z"):
        region_graph(graph, "star:z")
    with pytest.raises(ModelError, match="variable 1 is in no triangle"):
        region_graph(grid(2, 2), "star:1")
    with pytest.raises(ModelError, match="no triangle"):
        region_graph(grid(2, 2), "star")


def test_default_star_finds_a_triangle() -> None:
    hub = [(0, k) for k in range(1, 7)] + [(7, 8), (8, 9), (7, 9), (6, 7)]
    assert (7, 8, 9) in region_graph(pairwise(10, hub), "star").roots


def test_periodic_grid_faces() -> None:
    regions = region_graph(grid(4, 5, periodic=True), "faces")
    assert regions.groups() == [(4, 1, 20), (2, -1, 40), (1, 1, 20)]
    assert "periodic" in regions.note


def test_planar_faces_agree_with_grid_faces() -> None:
    """The embedding of a grid has its unit squares as faces and its border as outer face."""
    found = cycles.planar_faces(grid_edges(4, 5))
    assert found is not None
    expected = {frozenset(face) for face in cycles.grid_faces(4, 5)}
    assert {frozenset(face) for face in found} == expected and len(found) == 12
    everything = cycles.planar_faces(grid_edges(4, 5), outer=True)
    assert everything is not None
    assert {frozenset(f) for f in everything} - expected == {frozenset(cycles.grid_border(4, 5))}


def test_faces_of_parts_joined_by_bridges() -> None:
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (3, 6)]
    regions = region_graph(pairwise(8, edges), "faces")
    assert sorted(regions.roots) == [(0, 1, 2), (2, 3), (3, 4, 5, 6), (7,)]
    assert regions.is_exact


def test_not_planar_is_said() -> None:
    with pytest.raises(ModelError, match=r"not planar.*use tree-robust"):
        region_graph(complete(5), "faces")
    with pytest.raises(ModelError, match="not planar"):
        region_graph(random_model(np.random.default_rng(0), 6, 9, 5), "faces+outer")


def test_long_faces_are_cut_and_stay_exact() -> None:
    """A ring is one face; cut into pieces it costs little and is still exact (LIU-I12 d)."""
    ring = FactorGraph([2] * 40, [((i, (i + 1) % 40), np.ones(4)) for i in range(40)])
    regions = region_graph(ring, "faces", budget=Budget(bytes=10**6))
    assert regions.is_exact and "1 long cycle cut" in regions.note
    assert max(len(root) for root in regions.roots) == 12


@given(st.integers(3, 12), st.lists(st.integers(2, 5), min_size=12, max_size=12))
def test_cut_cycles(length: int, cards: list[int]) -> None:
    pieces = cycles.cut_cycle(tuple(range(length)), cards, 64)
    covered = {frozenset(e) for p in pieces for e in combinations(p, 2)}
    assert all(frozenset(e) in covered for e in cycles.edges_of_cycle(range(length)))
    for piece in pieces:
        states = int(np.prod([cards[v] for v in piece]))
        assert states <= 64 or len(piece) == 3 or len(pieces) == 1
    whole = FactorGraph(cards[:length], [])
    assert RegionGraph.closure(whole, pieces).is_exact


# ---------------------------------------------------------------------- cycles


@settings(max_examples=60)
@given(st.integers(3, 8), st.integers(0, 10**6), st.integers(3, 6))
def test_short_cycles_against_networkx(n: int, seed: int, longest: int) -> None:
    graph = nx.gnp_random_graph(n, 0.5, seed=seed)
    expected = {
        frozenset(cycles.edges_of_cycle(c)) for c in nx.simple_cycles(graph, length_bound=longest)
    }
    found = cycles.short_cycles(n, list(graph.edges), longest)
    assert {frozenset(cycles.edges_of_cycle(c)) for c in found} == expected
    assert len(found) == len(expected)


@settings(max_examples=60)
@given(st.integers(3, 9), st.integers(0, 10**6))
def test_shortest_cycle_basis_against_networkx(n: int, seed: int) -> None:
    graph = nx.gnp_random_graph(n, 0.45, seed=seed)
    edges = sorted(cycles.ordered(i, j) for i, j in graph.edges)
    found = cycles.minimum_cycle_basis(n, edges)
    expected = nx.minimum_cycle_basis(graph)
    assert sorted(map(len, found)) == sorted(map(len, expected))
    assert rank_of_cycles(edges, found) == len(found) == cycles.n_independent(n, edges)


def test_shortest_basis_of_a_grid_is_its_faces() -> None:
    regions = region_graph(grid(6, 7), "cycles")
    assert counted(regions) == counted(region_graph(grid(6, 7), "faces"))
    ring = cycles.minimum_cycle_basis(30, [cycles.ordered(i, (i + 1) % 30) for i in range(30)])
    assert len(ring) == 1 and len(ring[0]) == 30


def test_too_many_cycles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycles, "MOST_CYCLES", 50)
    with pytest.raises(BudgetError, match="more than 50 cycles"):
        region_graph(complete(9), "loops:4")
    monkeypatch.setattr(cycles, "MOST_CYCLES", 10**6)
    with pytest.raises(BudgetError, match="too many paths"):
        cycles.loops(9, list(combinations(range(9), 2)), 5, steps=50)


def test_auto_chooses_by_density() -> None:
    assert counted(region_graph(grid(5, 5), "auto")) == counted(region_graph(grid(5, 5), "faces"))
    assert counted(region_graph(complete(9), "auto")) == counted(region_graph(complete(9), "star"))
    assert region_graph(complete(6), "auto").groups() == [(3, 1, 10), (2, -3, 5), (1, 6, 1)]
    dense = random_graph(30, 0.5)
    assert counted(region_graph(dense, "auto")) == counted(region_graph(dense, "bethe"))
    two_hubs = pairwise(402, [(hub, k) for hub in (0, 1) for k in range(2, 402)])
    assert "Bethe" in region_graph(two_hubs, "auto").note
    star = pairwise(1200, [(1199, k) for k in range(1199)])
    assert region_graph(star, "auto").is_exact and region_graph(star, "loops:6").is_exact


def test_factors_over_many_variables_are_cliques_of_the_pair_graph() -> None:
    graph = FactorGraph([2] * 5, [((0, 1, 2), np.ones(8)), ((2, 3), np.ones(4))])
    regions = region_graph(graph, "loops:3")
    assert sorted(regions.roots) == [(0, 1, 2), (2, 3), (4,)]
    quad = FactorGraph(
        [2] * 5, [(range(4), np.ones(16)), ((0, 4), np.ones(4)), ((1, 4), np.ones(4))]
    )
    assert region_graph(quad, "loops:3").roots == [(0, 1, 2, 3), (0, 1, 4)]


# ---------------------------------------------------------------------- tree-robustness


def test_trees_for_which_bases_are_exact() -> None:
    """C15: 3 by 3 faces 192/192, K5 star 125/125, fundamental basis of a path 102/125."""
    # LIU-C15
    faces = is_tree_robust(grid_edges(3, 3), cycles.grid_faces(3, 3))
    assert (faces.exact_trees, faces.trees, bool(faces)) == (192, 192, True)
    star = is_tree_robust(K5, cycles.star_triangles(cycles.neighbour_sets(5, K5), 0))
    assert (star.exact_trees, star.trees, bool(star)) == (125, 125, True)
    chords = [(i, j) for i, j in K5 if j > i + 1]
    path = is_tree_robust(K5, [tuple(range(i, j + 1)) for i, j in chords])
    assert (path.exact_trees, path.trees, bool(path)) == (102, 125, False)
    assert not path.sampled and "102 of 125" in str(path)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_tree_exact_against_all_orders(seed: int) -> None:
    """The greedy answer is that of the definition, tried with every order of the cycles."""
    from itertools import permutations

    graph = nx.gnp_random_graph(5, 0.7, seed=seed)
    if not nx.is_connected(graph) or graph.number_of_edges() < 6:
        return
    found = [tuple(c) for c in nx.cycle_basis(graph)][:4]
    tree = list(nx.random_spanning_tree(graph, seed=seed).edges)
    inside = {cycles.ordered(*edge) for edge in tree}
    rings = [set(cycles.edges_of_cycle(c)) for c in found]

    def works(order: tuple[int, ...]) -> bool:
        earlier: set[tuple[int, int]] = set()
        for k in order:
            if not rings[k] - earlier - inside:
                return False
            earlier |= rings[k]
        return True

    expected = any(works(order) for order in permutations(range(len(rings))))
    assert tree_exact(found, tree) == expected


def test_fewer_cycles_than_a_basis_are_not_robust() -> None:
    verdict = is_tree_robust(grid_edges(3, 3), cycles.grid_faces(3, 3)[:3])
    assert not verdict and "not as many cycles" in str(verdict)


def test_large_graphs_are_sampled_and_say_so() -> None:
    verdict = is_tree_robust(grid_edges(6, 6), cycles.grid_faces(6, 6), samples=30, seed=1)
    assert verdict and verdict.sampled and verdict.trees == 30
    assert "drawn at random" in str(verdict)
    again = is_tree_robust(grid_edges(6, 6), cycles.grid_faces(6, 6), samples=30, seed=1)
    assert again == verdict


def test_bad_cycles_and_graphs() -> None:
    with pytest.raises(ModelError, match="which is not an edge"):
        is_tree_robust([(0, 1), (1, 2)], [(0, 1, 2)])
    with pytest.raises(ModelError, match="not connected"):
        is_tree_robust([(0, 1), (2, 3)], [])


@pytest.mark.parametrize(("edges", "count"), [(K5, 125), (grid_edges(3, 3), 192)])
def test_spanning_trees(edges: list[tuple[int, int]], count: int) -> None:
    trees = [frozenset(tree) for tree in spanning_trees(edges)]
    assert len(set(trees)) == len(trees) == count
    assert np.exp(log_spanning_trees(edges)) == pytest.approx(count)
    assert all(nx.is_tree(nx.Graph(list(tree))) for tree in trees)


def test_random_trees_are_uniform() -> None:
    """Each of the 8 trees of a square with a diagonal, 4000 draws: chi-squared below the 0.999."""
    edges = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]
    drawn = [frozenset(tree) for tree in random_trees(edges, 4000, seed=5)]
    assert set(drawn) == {frozenset(tree) for tree in spanning_trees(edges)}
    counts = np.array([drawn.count(tree) for tree in set(drawn)])
    assert np.sum((counts - 500.0) ** 2 / 500.0) < 24.3


def test_robustness_of_a_text() -> None:
    assert robustness(grid(3, 3), "faces")
    assert robustness(complete(5), "star")
    assert robustness(complete(5), "cycles") is not None
    assert robustness(grid(3, 3), "bethe") is None
    assert robustness(grid(40, 40), "faces") is None
    assert not robustness(grid(3, 3, periodic=True), "faces")


# ---------------------------------------------------------------------- Algorithm 1


@pytest.mark.parametrize("seed", range(12))
def test_algorithm_1_covers_any_graph(seed: int) -> None:
    """Every edge lies in a root, cycles are cycles of the graph and a basis of its cycle space."""
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(int(rng.integers(4, 22)), float(rng.uniform(0.1, 0.9)), seed=seed)
    n, edges = len(graph), sorted(cycles.ordered(i, j) for i, j in graph.edges)
    grown = grow_roots(n, edges)
    known = set(edges)
    rings = [root for root in grown.roots if len(root) > 2]
    assert all(set(cycles.edges_of_cycle(ring)) <= known for ring in rings)
    assert all(len(set(ring)) == len(ring) for ring in rings)
    covered = {e for root in grown.roots for e in cycles.edges_of_cycle(root)}
    assert covered == known
    assert rank_of_cycles(edges, rings) == len(rings) == cycles.n_independent(n, edges)
    bridges = {cycles.ordered(*edge) for edge in nx.bridges(graph)}
    assert {root for root in grown.roots if len(root) == 2} == bridges


def test_algorithm_1_takes_the_larger_core() -> None:
    clique = list(combinations(range(8), 2))
    tail = [(7, 8), (8, 9), (9, 10), (10, 0)]
    assert grow_roots(11, clique + tail).core == "complete"
    crossed = [*grid_edges(5, 5), (0, 24), (4, 20), (2, 22), (10, 14)]
    grown = grow_roots(25, crossed)
    assert grown.core == "planar" and grown.n_core >= 16


def test_tree_robust_chooses_by_the_graph() -> None:
    assert counted(region_graph(grid(4, 4), "tree-robust")) == counted(
        region_graph(grid(4, 4), "faces")
    )
    assert counted(region_graph(complete(6), "tree-robust")) == counted(
        region_graph(complete(6), "star:0")
    )
    torus = region_graph(grid(4, 4, periodic=True), "tree-robust")
    assert "tree-robust basis of it" in torus.note
    assert region_graph(random_tree(12), "tree-robust").is_exact


# ---------------------------------------------------------------------- junction graphs


@pytest.mark.parametrize("seed", range(5))
def test_junction_tree_cliques(seed: int) -> None:
    """Maximal, running intersection, every factor inside one."""
    graph = random_graph(14, 0.25, seed=seed)
    junction = junction_tree(eliminate(graph))
    cliques, separators = junction.cliques, junction.separators
    assert all(not set(a) <= set(b) for a, b in combinations(cliques, 2))
    assert all(not set(b) <= set(a) for a, b in combinations(cliques, 2))
    for a in range(graph.n_factors):
        assert any(set(graph.scope(a)) <= set(clique) for clique in cliques)
    tree = nx.Graph()
    tree.add_nodes_from(range(len(cliques)))
    for i, j, shared in separators:
        assert set(shared) == set(cliques[i]) & set(cliques[j])
        tree.add_edge(i, j)
    assert nx.is_forest(tree)
    for v in range(14):
        assert nx.is_connected(tree.subgraph([k for k, c in enumerate(cliques) if v in c]))


@pytest.mark.parametrize("most", [2, 3, 4, 5])
def test_grown_cliques(most: int) -> None:
    """Specs 10.4: at most K variables, inside cliques of the junction tree, none inside another."""
    graph = grid(5, 5)
    found, note = grown_cliques(graph, most)
    limits = [set(c) for c in junction_tree(eliminate(graph)).cliques]
    assert max(map(len, found)) == most
    assert all(any(set(c) <= limit for limit in limits) for c in found)
    assert all(not set(a) <= set(b) and not set(b) <= set(a) for a, b in combinations(found, 2))
    assert all(any(set(e) <= set(c) for c in found) for e in grid_edges(5, 5))
    assert f"grown to {most}" in note


def test_cliques_grow_along_edges_where_no_junction_tree_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = grid(8, 8)
    found = eliminate(graph)
    stopped = dataclasses.replace(found, order=found.order[:5])
    monkeypatch.setattr("kikuchi.graphs.regions.junction.eliminate", lambda _: stopped)
    regions = region_graph(graph, "junction:4")
    assert "along edges" in regions.note
    assert {len(root) for root in regions.roots} == {4}
    joined = nx.Graph(grid_edges(8, 8))
    assert all(nx.is_connected(joined.subgraph(root)) for root in regions.roots)


def test_larger_cliques_are_better_on_average() -> None:
    """The entropy of the true distribution gets closer as cliques grow to the junction tree."""
    errors = np.zeros((12, 4))
    for seed in range(12):
        graph = grid(3, 3, seed=seed, coupling=0.7)
        true = region_entropy(graph, region_graph(graph, "junction-tree"))
        for k, most in enumerate((2, 3, 4, 9)):
            regions = region_graph(graph, f"junction:{most}")
            errors[seed, k] = abs(region_entropy(graph, regions) - true)
    assert errors[:, 3].max() < 1e-10
    assert errors[:, 2].mean() < 0.5 * errors[:, 0].mean()
    assert errors[:, 1].mean() < errors[:, 0].mean()


# ---------------------------------------------------------------------- files and evidence


def test_roots_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "roots.json"
    path.write_text("[[0, 1, 3, 4], [1, 2, 4, 5]]")
    graph = grid(2, 3)
    regions = region_graph(graph, f"file:{path}")
    assert regions.roots == [(0, 1, 3, 4), (1, 2, 4, 5)]
    path.write_text(json.dumps(regions.to_dict()))
    assert region_graph(graph, f"file:{path}").roots == regions.roots
    named = FactorGraph([2, 2], [(("a", "b"), np.ones(4))], names=["a", "b"])
    path.write_text('[["a", "b"]]')
    assert region_graph(named, f"file:{path}").roots == [(0, 1)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[[0, 1]", "line 1"),
        ("3", "not a list of roots"),
        ('{"regions": []}', "not a list of roots"),
        ("[0, 1]", "root 0 is 0"),
        ("[[0, 1.5]]", r"root 0 is \[0, 1.5\]"),
        ("[[0, true]]", "root 0"),
        ("[[0, 99]]", "root 0: .*99"),
        ("[[0], []]", "root 1 has no variables"),
        ('[["x"]]', "root 0"),
    ],
)
def test_bad_root_files(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "roots.json"
    path.write_text(content)
    with pytest.raises(ModelError, match=words) as caught:
        region_graph(grid(2, 2), f"file:{path}")
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_missing_root_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="No such file"):
        read_roots(tmp_path / "absent.json")
    with pytest.raises(KikuchiError):
        region_graph(grid(2, 2), f"file:{tmp_path}")


def test_variables_of_texts_are_those_of_the_whole_model(tmp_path: Path) -> None:
    graph = complete(5)
    reduced = graph.condition({1: 0})
    assert region_graph(reduced.graph, "star:2", reduced=reduced).roots == [
        (0, 1, 2),
        (0, 1, 3),
        (1, 2, 3),
    ]
    with pytest.raises(ModelError, match="observed"):
        region_graph(reduced.graph, "star:1", reduced=reduced)
    path = tmp_path / "roots.json"
    path.write_text("[[0, 1, 2], [1], [2, 3, 4]]")
    roots = region_graph(reduced.graph, f"file:{path}", reduced=reduced).roots
    assert (1, 2, 3) in roots and (0, 1) in roots
    path.write_text("[[0, 5]]")
    with pytest.raises(ModelError, match="5"):
        region_graph(reduced.graph, f"file:{path}", reduced=reduced)


# ---------------------------------------------------------------------- size


@pytest.mark.parametrize("text", ["faces", "loops:4", "cycles", "bethe"])
def test_large_grids_take_time_in_proportion(text: str) -> None:
    """Four times the grid takes about four times as long, not sixteen times."""

    def seconds(side: int) -> float:
        graph = grid(side, side)
        best = np.inf
        for _ in range(2):
            start = time.process_time()
            region_graph(graph, text)
            best = min(best, time.process_time() - start)
        return float(best)

    seconds(10)
    assert seconds(60) < 10 * max(seconds(30), 0.02)
