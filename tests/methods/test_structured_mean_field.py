"""Structured mean field: TEH-I5, LAW-I5, LAW-M11, HOJ-I10."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.core.errors import BudgetError, MethodError, OutOfTimeError
from kikuchi.engines.mean_field import structured_subgraph
from kikuchi.engines.mean_field.structured_builder import lay_out
from kikuchi.engines.mean_field.structured_subgraph import forest_of, split
from kikuchi.methods.structured_mean_field import StructuredMeanField, read_ranges
from oracle import enumerate_exact, random_model

KINDS = ("tree-mf", "tree-mf:width=0", "tree-mf:width=2", "tree-mf:subgraph=tree",
         "tree-mf:subgraph=strips:2", "tree-mf:subgraph=subsets:0-2/3 4")  # fmt: skip


def _tree_joint(graph: FactorGraph, beliefs: kk.Beliefs) -> np.ndarray:
    """The trial distribution on the spanning tree that was chosen: pairs over singles."""
    method = StructuredMeanField(subgraph="tree")
    forest = method._forest(graph, _FakeRun(), kk.infer(graph, "mf").flat_marginals)
    n = graph.n_variables
    pair_of = {tuple(sorted(graph.scope(a))): a for a in range(graph.n_factors)}
    log_q = np.zeros((2,) * n)
    used = np.zeros(n)
    for clique in forest.cliques:
        i, j = sorted(clique)
        table = beliefs.factor(pair_of[i, j])
        table = table if graph.scope(pair_of[i, j]) == (i, j) else table.T
        log_q = log_q + np.log(table).reshape([2 if w in (i, j) else 1 for w in range(n)])
        used[[i, j]] += 1
    for v in range(n):
        shape = [2 if w == v else 1 for w in range(n)]
        log_q = log_q - (used[v] - 1) * np.log(beliefs[v]).reshape(shape)
    return np.exp(log_q)


def _weights(graph: FactorGraph) -> np.ndarray:
    states = np.array(list(itertools.product(*[range(int(c)) for c in graph.cardinalities])))
    return np.asarray(graph.log_score(states)).reshape(graph.cardinalities)


def _rises_within_starts(beliefs: kk.Beliefs, slack: float = 1e-9) -> bool:
    """Each start climbs; a fall can only be where the next start begins."""
    falls = np.diff(beliefs.trace.objective) < -slack
    return int(falls.sum()) < len(beliefs.diagnostics["bounds"])


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_bound_is_below_log_z_and_above_naive(method: str, seed: int) -> None:
    # LAW-T1
    rng = np.random.default_rng(seed)
    for zeros in (0.0, 0.25):
        graph = random_model(rng, 6, 9, 3, 3, zeros=zeros, scale=1.0 + seed % 3)
        exact = enumerate_exact(graph)[0]
        beliefs = kk.infer(graph, method)
        naive = kk.infer(graph, "mf")
        if naive.log_z is not None:
            assert beliefs.log_z_lower is not None
            assert beliefs.log_z_lower >= naive.log_z - 1e-9
        if beliefs.log_z_lower is not None:
            assert beliefs.log_z_lower <= exact + 1e-9
        assert all(abs(m.sum() - 1) < 1e-9 for m in beliefs.marginals)
        assert _rises_within_starts(beliefs)


@pytest.mark.parametrize("seed", range(6))
def test_gap_is_the_divergence_of_the_trial_distribution(seed: int) -> None:
    """Pairs that the tree cuts are not products: their belief comes along the path between."""
    # LAW-T2
    graph = kk.grid(3, 3, seed=seed)
    beliefs = kk.infer(graph, "tree-mf:subgraph=tree")
    q = _tree_joint(graph, beliefs)
    assert q.sum() == pytest.approx(1.0, abs=1e-9)
    bound = float((q * (_weights(graph) - np.log(q))).sum())
    assert beliefs.log_z == pytest.approx(bound, abs=1e-9)
    for a in range(graph.n_factors):
        scope = sorted(graph.scope(a))
        others = tuple(w for w in range(9) if w not in scope)
        assert q.sum(axis=others) == pytest.approx(beliefs.factor(a), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_no_tree_distribution_nearby_is_better(seed: int) -> None:
    """The answer is a maximum over all distributions on its tree, by random steps away from it."""
    graph = kk.grid(2, 3, seed=seed)
    beliefs = kk.infer(graph, "tree-mf:subgraph=tree,tol=1e-12")
    log_q = np.log(_tree_joint(graph, beliefs))
    log_p = _weights(graph)
    forest = StructuredMeanField(subgraph="tree")._forest(
        graph, _FakeRun(), kk.infer(graph, "mf").flat_marginals
    )
    rng = np.random.default_rng(seed)
    for _ in range(30):
        step = np.zeros((2,) * 6)
        for clique in forest.cliques:
            shape = [2 if w in clique else 1 for w in range(6)]
            step = step + rng.normal(size=shape)
        for size in (1e-3, -1e-3):
            q = np.exp(log_q + size * step)
            q /= q.sum()
            assert float((q * (log_p - np.log(q))).sum()) <= beliefs.log_z + 1e-12


class _FakeRun:
    """Stands for a run without a time limit."""

    clock = Budget().start()


@pytest.mark.parametrize("seed", range(5))
def test_one_subset_is_exact(seed: int) -> None:
    graph = random_model(np.random.default_rng(seed), 6, 8, 3, 3, zeros=0.2)
    log_z, singles, tables = enumerate_exact(graph)
    for method in ("tree-mf:subgraph=subsets:0-5", "tree-mf:width=5"):
        beliefs = kk.infer(graph, method)
        assert beliefs.log_z == pytest.approx(log_z, abs=1e-9)
        assert np.concatenate(singles) == pytest.approx(beliefs.flat_marginals, abs=1e-9)
        for a, table in enumerate(tables):
            assert beliefs.factor(a) == pytest.approx(table, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_single_nodes_are_naive_mean_field(seed: int) -> None:
    # LAW-T6
    graph = random_model(np.random.default_rng(seed), 7, 12, 3, 3)
    naive = kk.infer(graph, "mf:tol=1e-12")
    ours = kk.infer(graph, "tree-mf:width=0,tol=1e-12")
    assert ours.log_z >= naive.log_z - 1e-10
    if abs(ours.log_z - naive.log_z) < 1e-8:
        assert ours.flat_marginals == pytest.approx(naive.flat_marginals, abs=1e-5)


def test_subsets_satisfy_the_fixed_point_of_lawrence() -> None:
    """(1.33): ln Q_j = <ln P> over the other subsets + const, computed by enumeration."""
    graph = random_model(np.random.default_rng(3), 5, 9, 3, 2)
    beliefs = kk.infer(graph, "tree-mf:subgraph=subsets:0-2/3 4,tol=1e-13")
    log_p = _weights(graph)
    q2 = _pair(graph, beliefs, log_p)
    q1 = np.exp(np.einsum("abcde,de->abc", log_p, q2))
    q1 /= q1.sum()
    for v in range(3):
        others = tuple(w for w in range(3) if w != v)
        assert q1.sum(axis=others) == pytest.approx(beliefs[v], abs=1e-7)


def _pair(graph: FactorGraph, beliefs: kk.Beliefs, log_p: np.ndarray) -> np.ndarray:
    """Q of the subset {3, 4}: the fixed point of Lawrence's two updates near the answer."""
    q2 = np.multiply.outer(beliefs[3], beliefs[4])
    for _ in range(2000):
        q1 = np.exp(np.einsum("abcde,de->abc", log_p, q2))
        q1 /= q1.sum()
        q2 = np.exp(np.einsum("abcde,abc->de", log_p, q1))
        q2 /= q2.sum()
    return q2


def test_wider_subgraphs_close_the_gap(shared) -> None:
    graph = kk.read(shared / "reference" / "grids" / "g10.uai")
    exact = 165.647464292
    naive = kk.infer(graph, "mf").log_z
    bounds = [kk.infer(graph, f"tree-mf:width={w}").log_z for w in (1, 3, 5, 7)]
    assert naive < bounds[0]
    assert all(np.diff(bounds) > 0)
    assert exact - 0.01 < bounds[-1] <= exact + 1e-8
    strips = kk.infer(graph, "tree-mf:subgraph=strips:5")
    assert exact - 0.3 < strips.log_z <= exact


@pytest.mark.parametrize("blocks", [1, 3, 6])
def test_trees_cut_into_pieces_still_give_a_bound(blocks: int) -> None:
    graph = random_model(np.random.default_rng(blocks), 9, 14, 3, 2)
    whole = forest_of(graph, [list(graph.scope(a)) for a in range(0, graph.n_factors, 2)])
    pieces = split(whole, blocks)
    assert sorted(pieces.home) == list(range(9))
    for c, p in enumerate(pieces.parent):  # running intersection
        if p >= 0:
            shared = pieces.cliques[c][: len(pieces.cliques[c]) - pieces.residual[c]]
            assert set(shared) <= set(pieces.cliques[p])
    method = StructuredMeanField()
    import kikuchi.methods.structured_mean_field as module

    beliefs = _with_forest(module, method, graph, pieces)
    assert kk.infer(graph, "mf").log_z - 1e-9 <= beliefs.log_z <= enumerate_exact(graph)[0] + 1e-9


def _with_forest(module, method, graph, forest) -> kk.Beliefs:
    class Given(module.StructuredMeanField):
        def _forest(self, graph, run, q):
            return forest

    return Given().run(graph)


def test_many_branches_meet_in_one_clique() -> None:
    """A factor of order 4 over the leaves of a star: three and more parts behind one clique."""
    rng = np.random.default_rng(0)
    factors = [((0, k), np.exp(rng.normal(size=(2, 2)))) for k in range(1, 6)]
    factors.append(((1, 2, 3, 4), np.exp(rng.normal(size=(2, 2, 2, 2)))))
    graph = FactorGraph([2] * 6, factors)
    beliefs = kk.infer(graph, "tree-mf:subgraph=tree,tol=1e-12")
    log_z, _, _ = enumerate_exact(graph)
    assert kk.infer(graph, "mf").log_z < beliefs.log_z <= log_z
    assert beliefs.factor(5).sum() == pytest.approx(1.0)
    for k in range(4):
        others = tuple(w for w in range(4) if w != k)
        assert beliefs.factor(5).sum(axis=others) == pytest.approx(beliefs[k + 1], abs=1e-10)
    assert _rises_within_starts(beliefs)


def test_shapes_that_are_easy_to_get_wrong() -> None:
    single = FactorGraph([3], [((0,), [1.0, 2.0, 5.0])])
    assert kk.infer(single, "tree-mf").log_z == pytest.approx(np.log(8.0))
    apart = FactorGraph([2, 3, 2], [((0,), [1, 2]), ((1,), [1, 1, 1]), ((0, 2), np.ones((2, 2)))])
    assert kk.infer(apart, "tree-mf").log_z == pytest.approx(np.log(18.0))
    twice = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]]), ((1, 0), [[1, 2], [3, 4]])])
    assert kk.infer(twice, "tree-mf").log_z == pytest.approx(enumerate_exact(twice)[0])
    observed = kk.infer(kk.grid(3, 3, seed=1), "tree-mf:subgraph=subsets:0-4/5-8", evidence={4: 1})
    assert observed[4].tolist() == [0.0, 1.0]
    assert observed.log_z <= kk.infer(kk.grid(3, 3, seed=1), "jt", evidence={4: 1}).log_z + 1e-9


def test_hard_constraints() -> None:
    """A parity check inside a clique is exact; cut, the support stays inside it."""
    parity = np.indices((2, 2, 2)).sum(axis=0) % 2 == 0
    graph = FactorGraph(
        [2] * 4, [((0, 1, 2), parity), ((1, 2, 3), parity), ((0,), [1, 2]), ((3,), [1, 3])]
    )
    log_z = enumerate_exact(graph)[0]
    assert kk.infer(graph, "tree-mf:width=3").log_z == pytest.approx(log_z)
    narrow = kk.infer(graph, "tree-mf:width=1")
    assert narrow.log_z is not None and narrow.log_z <= log_z + 1e-9
    assert narrow.factor(0)[~parity].max() == 0.0


def test_strong_couplings_stay_finite() -> None:
    graph = _strong()
    beliefs = kk.infer(graph, "tree-mf:width=2")
    exact = kk.infer(graph, "jt").log_z
    assert np.isfinite(beliefs.log_z) and beliefs.log_z <= exact + 1e-6 * abs(exact)


def _strong() -> FactorGraph:
    rng = np.random.default_rng(0)
    scopes = [(i, j) for i in range(8) for j in range(i)]
    return FactorGraph([2] * 8, [(s, 200 * rng.normal(size=(2, 2))) for s in scopes], log=True)


def test_budgets_and_interruptions_leave_a_bound() -> None:
    graph = kk.grid(8, 8, seed=0)
    exact = kk.infer(graph, "jt").log_z
    one = kk.infer(graph, "tree-mf:width=2", budget=Budget(iterations=1))
    assert not one.converged and one.log_z_lower <= exact
    short = kk.infer(graph, "tree-mf:width=2", budget=Budget(seconds=1e-6))
    assert short.stopped == "seconds" and short.log_z_lower <= exact

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    stopped = StructuredMeanField(width=2, tol=0.0).run(graph, progress=stop)
    assert stopped.log_z_lower <= exact
    with pytest.raises(BudgetError, match="lower width"):
        kk.infer(graph, "tree-mf:subgraph=subsets:0-63", budget=Budget(bytes=10_000))


def test_the_set_up_may_end_at_any_look_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python loops over 300,000 cliques take seconds: each looks at the clock on its way."""
    graph = kk.grid(1, 4096, seed=0)
    naive = kk.infer(graph, "mf").log_z
    looks, last = 0, 10**9

    def look(what: str, way_out: str) -> None:
        nonlocal looks
        looks += 1
        if looks >= last:
            raise OutOfTimeError(f"{what}; {way_out}")

    monkeypatch.setattr(structured_subgraph, "require_time", look)
    assert kk.infer(graph, "tree-mf:restarts=0").log_z > naive
    per_loop = 4096 // 256
    assert looks > 15 * per_loop
    every = looks
    for last in np.linspace(1, every // 2, 12, dtype=int).tolist():
        looks = 0
        short = kk.infer(graph, "tree-mf:restarts=0")
        assert looks == last and short.stopped == "seconds" and not short.converged
        assert short.log_z_lower == pytest.approx(naive) and "no time" in short.warnings[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tree-mf:subgraph=ladder", "must be auto"),
        ("tree-mf:subgraph=strips:0", "must be auto"),
        ("tree-mf:subgraph=subsets:a-b", "neither a number nor a range"),
        ("tree-mf:subgraph=subsets:0-1/1-2", "two subsets"),
        ("tree-mf:subgraph=subsets:0-99", "no variable 9"),
        ("tree-mf:subgraph=factors:0-99", "no factor"),
    ],
)
def test_bad_subgraphs_are_refused(text: str, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        kk.infer(kk.grid(3, 3, seed=0), text)


def test_ranges() -> None:
    assert read_ranges("3") == [[3]]
    assert read_ranges("0-2/5 7-8") == [[0, 1, 2], [5, 7, 8]]


def test_given_factors_are_kept() -> None:
    graph = kk.grid(3, 3, seed=2)
    every = kk.infer(graph, f"tree-mf:subgraph=factors:0-{graph.n_factors - 1}")
    assert every.log_z == pytest.approx(kk.infer(graph, "jt").log_z)
    assert every.diagnostics["cut_factors"] == 0
    layout = lay_out(graph, forest_of(graph, [[0, 1]]), Budget())
    assert layout is not None and layout.forest.width == 1
