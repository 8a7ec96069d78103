"""Hill climbing and PC: scores against formulas and another program, searches against optima."""

from __future__ import annotations

import itertools
from itertools import product
from math import lgamma, log

import networkx as nx
import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.graphs.directed import ancestral_sample, bayesian_network, d_separated
from kikuchi.learning.data import Data
from kikuchi.learning.structure.families import FamilyScores, fitted_network
from kikuchi.learning.structure.hill_climb import edge_confidence, hill_climb
from kikuchi.learning.structure.pc import pc

ASIA = kk.example("asia")


@pytest.fixture(scope="module")
def rows() -> Data:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 400)
    b = (a + (rng.random(400) < 0.2)) % 3
    c = rng.integers(0, 2, 400)
    d = (b + c + (rng.random(400) < 0.1)) % 2
    return Data.of(np.stack([a, b, c, d], axis=1))


def by_hand(rows: np.ndarray, child: int, parents: list[int], name: str, strength: float) -> float:
    """The score of a family, written apart."""
    cards = rows.max(axis=0) + 1
    r, q = int(cards[child]), int(np.prod(cards[parents]))
    total = 0.0
    for state in product(*(range(int(cards[u])) for u in parents)):
        here = rows[np.all(rows[:, parents] == state, axis=1)] if parents else rows
        n = [int(np.sum(here[:, child] == k)) for k in range(r)]
        if name == "bdeu":
            total += lgamma(strength / q) - lgamma(sum(n) + strength / q)
            total += sum(lgamma(x + strength / (r * q)) - lgamma(strength / (r * q)) for x in n)
        else:
            total += sum(x * log(x / sum(n)) for x in n if x)
    if name == "bic":
        total -= 0.5 * log(len(rows)) * (r - 1) * q
    elif name == "aic":
        total -= (r - 1) * q
    return total


@pytest.mark.parametrize("name", ["bic", "aic", "bdeu", "likelihood"])
def test_family_scores_by_hand(rows: Data, name: str) -> None:
    scores = FamilyScores(rows, name, 3.0)
    for child, parents in ((0, []), (1, [0]), (3, [1, 2]), (3, [0, 1, 2])):
        expected = by_hand(np.asarray(rows.states), child, parents, name, 3.0)
        assert scores.family(child, parents) == pytest.approx(expected, abs=1e-8)
    added = scores.additions(3, [1])
    assert added[2] == pytest.approx(scores.family(3, [1, 2]), abs=1e-9)
    assert added[1] == added[3] == -np.inf


@pytest.mark.parametrize("name", ["bic", "bdeu"])
def test_the_climb_finds_the_best_of_all_structures(rows: Data, name: str) -> None:
    scores = FamilyScores(rows, name)
    pairs = [(u, v) for u in range(4) for v in range(u)]
    best = -np.inf
    for choice in product(range(3), repeat=len(pairs)):
        parents: list[set[int]] = [set() for _ in range(4)]
        for (u, v), way in zip(pairs, choice, strict=True):
            if way:
                parents[v if way == 1 else u].add(u if way == 1 else v)
        left = set(range(4))
        while free := {v for v in left if not parents[v] & left}:
            left -= free
        if not left:
            best = max(best, scores.structure(parents))
    found = hill_climb(rows, name)
    assert found.score == pytest.approx(best, abs=1e-8) and found.stopped == "converged"
    assert found.score == pytest.approx(
        scores.structure([{u for u, w in found.arrows if w == v} for v in range(4)]), abs=1e-8
    )


def test_rules_are_kept(rows: Data) -> None:
    free = hill_climb(rows)
    assert (1, 2) in free.arrows or (2, 1) in free.arrows
    ruled = hill_climb(rows, required=[(0, 2)], forbidden=[(1, 2), (2, 1)], max_parents=1)
    assert (0, 2) in ruled.arrows and not {(1, 2), (2, 1)} & set(ruled.arrows)
    assert max(np.bincount([v for _, v in ruled.arrows])) == 1
    again = hill_climb(rows, seed=0)
    assert again.arrows == free.arrows
    cut = hill_climb(rows, budget=kk.Budget(iterations=1))
    assert cut.stopped == "iterations" and len(cut.arrows) == 1


def test_asia_is_found_up_to_its_class() -> None:
    drawn = ancestral_sample(ASIA, 20000, seed=3)
    data = Data.of(drawn, ASIA)
    found = hill_climb(data)
    undirected = {frozenset(edge) for edge in found.edges}
    true = {
        frozenset((ASIA.label(u), ASIA.label(v)))
        for a in range(ASIA.n_factors)
        for v in [int(ASIA.children[a])]
        for u in ASIA.scope(a)
        if u != v
    }
    # asia - tub is too weak for so few rows
    assert true - undirected <= {frozenset(("asia", "tub"))}
    score = FamilyScores(data)
    index = {name: v for v, name in enumerate(data.names)}
    parents = [
        [index[ASIA.label(u)] for u in ASIA.scope(int(np.flatnonzero(ASIA.children == v)[0]))[:-1]]
        for v in range(8)
    ]
    assert found.score >= score.structure(parents) - 1e-6
    assert found.graph.names == ASIA.names and "arrows" in found._repr_html_()


def test_bad_input(rows: Data) -> None:
    with pytest.raises(MethodError, match="did you mean 'bdeu'"):
        hill_climb(rows, "bdue")
    with pytest.raises(ModelError, match="both required and forbidden"):
        hill_climb(rows, required=[(0, 1)], forbidden=[(0, 1)])
    with pytest.raises(ModelError, match="cycle"):
        hill_climb(rows, required=[(0, 1), (1, 0)])
    with pytest.raises(ModelError, match="own parent"):
        hill_climb(rows, forbidden=[(1, 1)])
    with pytest.raises(DataError, match="complete rows"):
        hill_climb([[0, 1], [-1, 0]])
    with pytest.raises(MethodError, match="no test"):
        pc(rows, test="chi")  # type: ignore[arg-type]


def test_bootstrap(rows: Data) -> None:
    found = edge_confidence(rows, samples=8, restarts=0, seed=2)
    both = found.get(("0", "1"), 0.0) + found.get(("1", "0"), 0.0)
    assert both == pytest.approx(1.0) and max(found.values()) <= 1.0


def separable_network() -> kk.FactorGraph:
    """x0 -> x2 <- x1, x2 -> x3 -> x4, x2 -> x4: colliders, a chain and a triangle."""
    strong = np.array([[0.9, 0.1], [0.15, 0.85]])
    both = np.array([[[0.95, 0.05], [0.4, 0.6]], [[0.3, 0.7], [0.05, 0.95]]])
    return bayesian_network(
        [2] * 5,
        {
            0: ([], [0.5, 0.5]),
            1: ([], [0.6, 0.4]),
            2: ([0, 1], both),
            3: ([2], strong),
            4: ([2, 3], both[::-1]),
        },
    )


def test_pc_finds_skeleton_colliders_and_what_follows() -> None:
    net = separable_network()
    found = pc(ancestral_sample(net, 20000, seed=0), level=0.01)
    assert set(found.edges) >= {("0", "2"), ("1", "2"), ("2", "3"), ("2", "4")}
    assert {frozenset(e) for e in found.edges + found.open_edges} == {
        frozenset(e) for e in [("0", "2"), ("1", "2"), ("2", "3"), ("2", "4"), ("3", "4")]
    }
    for (x, y), given in found.separators.items():
        assert d_separated(net, x, y, given=list(given))
    parents = found.directed()
    assert parents[2] == {0, 1} and sum(map(len, parents)) == 5
    by_information = pc(ancestral_sample(net, 20000, seed=0), test="information", level=4e-4)
    assert by_information.edges == found.edges
    assert found.network().is_directed


def test_g2_by_scipy(rows: Data) -> None:
    from scipy.stats import chi2_contingency

    scores = FamilyScores(rows, "likelihood")
    states = np.asarray(rows.states)
    statistic, freedom = scores.dependence(0, 1, [2])
    total = df = 0.0
    for z in (0, 1):
        here = states[states[:, 2] == z]
        table = np.array(
            [[np.sum((here[:, 0] == a) & (here[:, 1] == b)) for b in range(3)] for a in range(2)]
        )
        table = table[:, table.sum(axis=0) > 0]
        test = chi2_contingency(table, lambda_="log-likelihood", correction=False)
        total, df = total + test.statistic, df + test.dof
    assert statistic == pytest.approx(total) and freedom == df


def test_fitted_tables_and_graph_texts(rows: Data) -> None:
    net = fitted_network(rows, [[], [0], [], [1, 2]], pseudo_count=1.0)
    counts = rows.counts([1, 2, 3]) + 1.0
    np.testing.assert_allclose(net.table(3), counts / counts.sum(axis=2, keepdims=True))
    for text in ("hill-climb", "hill-climb:bdeu", "pc"):
        graph = kk.learning.graph_from_text(text, rows)
        assert graph.is_directed and graph.table(0).min() > 0


# ---------------------------------------------------------------------- PC with known answers


def equal_structures(edges: set[tuple[int, int]], n: int) -> list[set[tuple[int, int]]]:
    """All directed acyclic graphs with the same edges and the same colliders, by trying all."""

    def colliders(arrows: set[tuple[int, int]]) -> set[tuple[int, int, int]]:
        joined = {frozenset(arrow) for arrow in arrows}
        return {
            (x, z, y)
            for (x, z), (y, w) in itertools.permutations(arrows, 2)
            if z == w and x < y and frozenset((x, y)) not in joined
        }

    found = []
    for flips in itertools.product((False, True), repeat=len(edges)):
        arrows = {(v, u) if flip else (u, v) for flip, (u, v) in zip(flips, edges, strict=True)}
        acyclic = nx.is_directed_acyclic_graph(nx.DiGraph(arrows))
        if acyclic and colliders(arrows) == colliders(edges):
            found.append(arrows)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_pc_with_perfect_tests_gives_what_all_equal_structures_share(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    n = 6
    edges = {(u, v) for u in range(n) for v in range(u + 1, n) if rng.random() < 0.45}
    parents = {v: [u for u, w in edges if w == v] for v in range(n)}
    net = bayesian_network(
        [2] * n, {v: (p, rng.dirichlet([1, 1], size=(2,) * len(p))) for v, p in parents.items()}
    )

    def separated(self: object, x: int, y: int, given: tuple[int, ...]) -> bool:
        return d_separated(net, x, y, given=list(given))

    monkeypatch.setattr("kikuchi.learning.structure.pc._Tests._tested", separated)
    found = pc(ancestral_sample(net, 50, seed=0))
    shared = set.intersection(*equal_structures(edges, n))
    assert found.arrows == shared
    assert {frozenset(e) for e in found.undirected} == {frozenset(e) for e in edges - shared}


def test_pc_needs_more_than_one_mistaken_test_for_a_collider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 - 2 - 1 with 2 - 3: one accepted test of 0 and 1 given nothing made 2 a collider."""
    strong = np.array([[0.9, 0.1], [0.15, 0.85]])
    net = bayesian_network([2] * 4, {0: ([], [0.5, 0.5]), **{v: ([u], strong) for u, v in
                                     [(0, 2), (2, 1), (2, 3)]}})  # fmt: skip

    def separated(self: object, x: int, y: int, given: tuple[int, ...]) -> bool:
        return (x, y, given) == (0, 1, ()) or d_separated(net, x, y, given=list(given))

    monkeypatch.setattr("kikuchi.learning.structure.pc._Tests._tested", separated)
    found = pc(ancestral_sample(net, 50, seed=0))
    assert found.arrows == frozenset() and len(found.undirected) == 3


def test_pc_keeps_the_edges_of_columns_that_determine_each_other() -> None:
    """Given a copy nothing is left to test, which is no sign of independence."""
    rng = np.random.default_rng(0)
    first = rng.integers(2, size=400)
    child = np.where(rng.random(400) < 0.9, first, 1 - first)
    found = pc(np.stack([first, first, first, child], axis=1))
    joined = {frozenset(e) for e in found.arrows | found.undirected}
    assert joined == {frozenset(e) for e in itertools.combinations(range(4), 2)}
    copies = pc(np.stack([first] * 20, axis=1), seconds=30)
    assert len(copies.undirected) == 190 and copies.stopped == "converged" and copies.tests < 5000


def test_pc_finds_the_cause_of_a_column_that_is_a_function_of_others() -> None:
    net = kk.example("asia")
    found = pc(Data.of(ancestral_sample(net, 5000, seed=0), net))
    names = {frozenset(e) for e in found.edges + found.open_edges}
    either = next(name for name in net.names if name.lower().startswith("either"))
    a = next(k for k, v in enumerate(net.children) if net.names[v] == either)
    causes = [net.names[v] for v in net.scope(a) if net.names[v] != either]
    assert len(causes) == 2 and {frozenset((either, cause)) for cause in causes} <= names
