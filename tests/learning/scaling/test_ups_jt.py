"""UPS-JT: the exact marginal at every visit, two propagations a separator, the optimum of IPF.

Rows TEH-L16, TEH-M26, TEH-L15.
"""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.learning.scaling.kernels import scaling as kernels
from kikuchi.learning.scaling.scaling import ProportionalFitting
from kikuchi.learning.scaling.scaling_tree import ScalingTree
from kikuchi.learning.scaling.targets import Targets
from kikuchi.learning.scaling.ups_jt import UnifiedScalingML
from oracle import enumerate_exact, random_model


def rows_for(graph: kk.FactorGraph, seed: int, n: int = 80) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, graph.cardinalities.astype(int), size=(n, graph.n_variables))
    same = rng.random(n) < 0.4
    rows[same] = np.minimum(rows[same, :1], graph.cardinalities.astype(int) - 1)
    return rows


def exact_clique(graph: kk.FactorGraph, clique: tuple[int, ...]) -> np.ndarray:
    """Marginal of a clique by summing over all states."""
    cards = [int(c) for c in graph.cardinalities]
    states = np.array(list(np.ndindex(*cards)))
    logs = np.asarray(graph.log_score(states))
    p = np.exp(logs - logs.max()).reshape(cards)
    p /= p.sum()
    return p.sum(axis=tuple(v for v in range(len(cards)) if v not in clique))


@pytest.mark.parametrize("seed", range(6))
def test_the_visited_clique_holds_its_exact_marginal(seed: int) -> None:
    """Invariant 1, at every visit of two sweeps, while the multipliers change all the time."""
    # TEH-T21
    graph = random_model(np.random.default_rng(seed), n=7, n_factors=9, max_order=3, max_card=3)
    targets = Targets.of(graph, rows_for(graph, seed), smoothing=1.0)
    base = np.array(graph.log_tables)
    tree = ScalingTree(graph, kk.Budget(), log_tables=base)
    assert len(tree.cliques) > 1
    for _ in range(2):
        for t in range(len(tree.walk.visits)):
            model = graph.with_log_tables(base + tree.weights)
            c = int(tree.walk.visits[t])
            assert tree.clique(c) == pytest.approx(exact_clique(model, tree.cliques[c]), abs=1e-14)
            kernels.ups_sweep(
                tree.layout,
                tree.tables,
                kernels.Walk(*(part[t : t + 1] for part in tree.walk)),
                targets.tables,
                targets.active,
                tree.weights,
                tree.work,
                None,
            )
            assert tree.clique(c).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(6))
def test_one_propagation_between_visits_and_two_a_separator_in_a_sweep(seed: int) -> None:
    """Invariant 2; every factor is scaled, and the likelihood never falls (invariant 3)."""
    # TEH-T22
    graph = random_model(np.random.default_rng(seed), n=8, n_factors=9, max_order=2, max_card=3)
    fit = UnifiedScalingML(smoothing=1.0).fit(graph, rows_for(graph, seed), score=False)
    tree = ScalingTree(graph, kk.Budget())
    visits, first, hops = tree.walk
    moves = hops != kernels.NO_MESSAGE
    hops = hops[moves]
    assert sorted(hops.tolist()) == list(range(2 * len(tree.separators)))
    assert sorted(visits[first].tolist()) == list(range(len(tree.cliques)))
    moved = [(int(tree.layout.sender[h]), int(tree.layout.receiver[h])) for h in hops]
    assert [c for c, _ in moved] == visits[moves].tolist()  # the walk leaves from where it is
    assert fit.diagnostics["propagations"] == fit.iterations * 2 * len(tree.separators)
    assert fit.diagnostics["scalings"] == fit.iterations * graph.n_factors
    assert np.diff(fit.trace.objective).min(initial=0.0) >= -1e-14


@pytest.mark.parametrize("seed", range(6))
def test_same_limit_as_ipf(seed: int) -> None:
    """Invariant 4, to 1e-8, against the table of all states."""
    # TEH-T23
    graph = random_model(np.random.default_rng(seed), n=7, n_factors=10, max_order=3, max_card=3)
    rows = rows_for(graph, seed)
    ups = UnifiedScalingML(smoothing=1.0).fit(graph, rows, score=False)
    table = ProportionalFitting(smoothing=1.0, form="table").fit(graph, rows, score=False)
    tree = ProportionalFitting(smoothing=1.0, form="tree").fit(graph, rows, score=False)
    assert ups.objective == pytest.approx(table.objective, abs=1e-9)
    assert tree.objective == pytest.approx(table.objective, abs=1e-9)
    one, other = (
        np.concatenate([t.ravel() for t in enumerate_exact(fit.graph)[2]]) for fit in (ups, table)
    )
    assert one == pytest.approx(other, abs=1e-8)


def test_effective_ipf_counts_one_propagation_for_each_factor_and_separator() -> None:
    # TEH-T22
    graph = kk.grid(3, 4, seed=0)
    fit = ProportionalFitting(smoothing=1.0, form="tree").fit(
        graph, rows_for(graph, 0, 400), score=False
    )
    tree = ScalingTree(graph, kk.Budget())
    per_sweep = graph.n_factors * len(tree.separators)
    assert fit.diagnostics["propagations"] == fit.iterations * per_sweep


@pytest.mark.parametrize("order", ["min-fill", "min-degree", "min-weight"])
def test_any_elimination_order(order: str) -> None:
    graph = kk.grid(3, 3, seed=1)
    rows = rows_for(graph, 1, 300)
    fit = UnifiedScalingML(smoothing=1.0, order=order).fit(graph, rows, score=False)
    default = ProportionalFitting(smoothing=1.0, form="table").fit(graph, rows, score=False)
    assert fit.objective == pytest.approx(default.objective, abs=1e-9)


def test_the_tree_knows_log_z_and_marginals_of_what_it_is_given() -> None:
    """TEH-M26: product of cliques over product of separators; with zeros and two parts."""
    for seed in range(8):
        graph = random_model(
            np.random.default_rng(seed), n=7, n_factors=6, max_order=3, max_card=3, zeros=0.2
        )
        tree = ScalingTree(graph, kk.Budget(), log_tables=np.array(graph.log_tables))
        log_z, _, tables = enumerate_exact(graph)
        assert tree.log_z == pytest.approx(log_z, abs=1e-10)
        wanted = np.concatenate([t.ravel() for t in tables])
        assert tree.factor_marginals() == pytest.approx(wanted, abs=1e-12)
        entropy = sum(-_plogp(tree.clique(c)) for c in range(len(tree.cliques)))
        at = tree.layout.separator_at.astype(int)
        for k in range(len(tree.separators)):
            entropy += _plogp(tree.tables.s[at[k] : at[k + 1]])
        states = np.array(list(np.ndindex(*(int(c) for c in graph.cardinalities))))
        logs = np.asarray(graph.log_score(states)) - log_z
        assert entropy == pytest.approx(-_plogp(np.exp(logs)), abs=1e-10)


def _plogp(p: np.ndarray) -> float:
    return float((p * np.log(np.where(p > 0, p, 1.0))).sum())
