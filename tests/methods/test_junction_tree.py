"""The junction tree against enumeration, reference values and hand-made extremes."""

from __future__ import annotations

import itertools
import json
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from scipy import stats

import kikuchi as kk
from kikuchi.core.budget import Clock
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError, MethodError, ModelError
from kikuchi.engines.trees import propagation as junction_engine
from kikuchi.engines.trees.calibrated import Plan
from kikuchi.engines.trees.kernels import passes
from kikuchi.engines.trees.plan import make_plan, unconditioned, variable_targets
from kikuchi.engines.trees.propagation import Watch
from kikuchi.engines.trees.tree import Tree
from kikuchi.graphs.conditioned import expand_marginals
from oracle import enumerate_exact, random_model

PROPAGATIONS = ["shafer-shenoy", "hugin"]


def mixed_model(seed: int, scales: Sequence[float] = (0.5, 3.0, 150.0)) -> kk.FactorGraph:
    """Random scopes (some repeated), zeros, single states, disconnected and isolated variables."""
    rng = np.random.default_rng(seed)
    return random_model(
        rng,
        n=int(rng.integers(1, 9)),
        n_factors=int(rng.integers(0, 11)),
        max_order=4,
        max_card=4,
        zeros=float(rng.choice([0.0, 0.3, 0.7])),
        scale=float(rng.choice(scales)),
    )


def worst_error(beliefs: kk.Beliefs, graph: kk.FactorGraph) -> float:
    log_z, singles, tables = enumerate_exact(graph)
    gaps = [abs(beliefs.log_z - log_z) / max(1.0, abs(log_z))]
    gaps += [np.abs(beliefs[v] - p).max() for v, p in enumerate(singles)]
    gaps += [np.abs(beliefs.factor(a) - p).max() for a, p in enumerate(tables)]
    return float(max(gaps))


def all_states(graph: kk.FactorGraph) -> np.ndarray:
    return np.array(list(itertools.product(*(range(int(c)) for c in graph.cardinalities))))


# ---------------------------------------------------------------------- marginals and log Z


@pytest.mark.parametrize("propagation", PROPAGATIONS)
@pytest.mark.parametrize("seed", range(60))
def test_equal_to_enumeration(seed: int, propagation: str) -> None:
    # TEH-I2, HOJ-I4
    graph = mixed_model(seed)
    beliefs = kk.methods.JunctionTree(propagation=propagation).run(graph)
    assert worst_error(beliefs, graph) < 1e-12
    assert beliefs.log_z_lower < beliefs.log_z < beliefs.log_z_upper < beliefs.log_z_lower + 1e-10
    assert beliefs.converged


@pytest.mark.parametrize("order", ["min-fill", "min-degree", "min-weight"])
def test_every_order_and_seed_gives_the_same(order: str) -> None:
    for seed in range(8):
        graph = mixed_model(seed)
        beliefs = kk.methods.JunctionTree(order=order, seed=seed).run(graph)
        assert worst_error(beliefs, graph) < 1e-12


def test_shafer_shenoy_equals_hugin() -> None:
    """TEH-T3 beyond what enumeration reaches."""
    # TEH-I2
    graph = kk.grid(9, 9, seed=3, coupling=1.0, field=1.0)
    one, two = (kk.methods.JunctionTree(propagation=p).run(graph) for p in PROPAGATIONS)
    assert abs(one.log_z - two.log_z) < 1e-12 * abs(one.log_z)
    assert np.abs(one.flat_marginals - two.flat_marginals).max() < 1e-12
    assert np.abs(one.flat_factors - two.flat_factors).max() < 1e-12


def test_many_small_messages_meet_one_large_clique() -> None:
    """Join nodes: a clique of 12 variables with a hundred children."""
    rng = np.random.default_rng(0)
    core = list(range(12))
    factors = [((i, j), rng.exponential(size=(2, 2))) for i in core for j in core if i < j]
    leaves = range(12, 112)
    for leaf in leaves:
        scope = (*(int(v) for v in rng.choice(12, size=2, replace=False)), leaf)
        factors.append((scope, rng.exponential(size=(2, 2, 3))))
    graph = kk.FactorGraph([2] * 12 + [3] * 100, factors)
    plan = kk.plan(graph)
    assert len(plan.cliques) > plan.tree.n_cliques
    beliefs = kk.infer(graph, "jt")
    # Sum the leaves out by hand: what is left has twelve variables.
    small = kk.FactorGraph(
        [2] * 12, [(s[:2], t.sum(axis=2) if t.ndim == 3 else t) for s, t in factors]
    )
    log_z, singles, _ = enumerate_exact(small)
    assert beliefs.log_z == pytest.approx(log_z, rel=1e-12)
    for v in core:
        assert np.abs(beliefs[v] - singles[v]).max() < 1e-12
    hugin = kk.infer(graph, "jt:propagation=hugin")
    assert np.abs(beliefs.flat_marginals - hugin.flat_marginals).max() < 1e-12


def test_a_variable_without_factors_is_uniform() -> None:
    beliefs = kk.infer(kk.FactorGraph([3, 2], [((1,), [1.0, 3.0])]), "jt")
    assert beliefs[0].tolist() == [1 / 3, 1 / 3, 1 / 3]
    assert beliefs.log_z == pytest.approx(np.log(3 * 4))


def test_evidence() -> None:
    graph = random_model(np.random.default_rng(5), n=7, n_factors=9, max_card=3)
    evidence = {2: 0, 5: int(graph.cardinalities[5]) - 1}
    log_z, singles, tables = enumerate_exact(graph.clamp(evidence))
    beliefs = kk.infer(graph, "jt", evidence=evidence)
    assert beliefs.log_z == pytest.approx(log_z, rel=1e-12)
    for v in range(7):
        assert np.abs(beliefs[v] - singles[v]).max() < 1e-12
    for a in range(graph.n_factors):
        assert np.abs(beliefs.factor(a) - tables[a]).max() < 1e-12
    everything = dict.fromkeys(range(7), 0)
    assert kk.infer(graph, "jt", evidence=everything).log_z == pytest.approx(
        graph.log_score([0] * 7), rel=1e-12
    )


@pytest.mark.parametrize("name", ["g10", "w10"])
@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_reference_grids(shared: Path, name: str, propagation: str) -> None:
    # LIU-I1
    folder = shared / "reference" / "grids"
    exact = json.loads((folder / f"{name}.exact.json").read_text())
    graph = kk.read(folder / f"{name}.uai")
    beliefs = kk.methods.JunctionTree(propagation=propagation).run(graph)
    assert beliefs.log_z == pytest.approx(exact["log_z"], abs=1e-9)
    assert np.abs([beliefs[v][1] for v in range(100)] - np.array(exact["p1"])).max() < 1e-9
    if name == "g10":
        assert beliefs.log_z == pytest.approx(165.64746429242805, abs=1e-9)


# ---------------------------------------------------------------------- hard numbers


@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_couplings_beyond_the_range_of_floats(propagation: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        signs = rng.choice([-800.0, 800.0], size=12)
        edges = [(i, j) for i in range(6) for j in range(i + 1, 6)][:12]
        tables = [s * np.array([[1.0, -1.0], [-1.0, 1.0]]) for s in signs]
        fields = [((v,), rng.normal(size=2)) for v in range(6)]
        graph = kk.FactorGraph([2] * 6, [*zip(edges, tables, strict=True), *fields], log=True)
        beliefs = kk.methods.JunctionTree(propagation=propagation).run(graph)
        assert worst_error(beliefs, graph) < 1e-12
        assert beliefs.diagnostics["arithmetic"] == "logarithms"


@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_what_underflows_on_the_way_may_decide_in_the_end(propagation: str) -> None:
    """Both ends of a chain forbid what the other finds likely: only tiny products survive."""
    drift = np.array([[0.0, -40.0, -np.inf], [-np.inf, 0.0, -40.0], [-np.inf, -np.inf, 0.0]])
    n = 24
    factors = [((i, i + 1), drift - 30.0 * np.eye(3)) for i in range(n - 1)]
    ends = [((0,), [0.0, -np.inf, -np.inf]), ((n - 1,), [-np.inf, -np.inf, 0.0])]
    pull = [((i,), [0.0, -3.0 * i, -60.0]) for i in range(n)]
    graph = kk.FactorGraph([3] * n, [*factors, *ends, *pull], log=True)
    log_z, marginals = chain_by_hand(graph)
    beliefs = kk.methods.JunctionTree(propagation=propagation).run(graph)
    assert beliefs.log_z == pytest.approx(log_z, rel=1e-12)
    assert np.abs(np.array(beliefs.marginals) - marginals).max() < 1e-10


def test_a_long_chain_with_hard_constraints() -> None:
    rng = np.random.default_rng(2)
    n, k = 3000, 4
    step = np.where(np.abs(np.subtract.outer(np.arange(k), np.arange(k))) <= 1, 0.0, -np.inf)
    factors = [((i, i + 1), step + 2.0 * rng.normal(size=(k, k))) for i in range(n - 1)]
    fields = [((i,), 5.0 * rng.normal(size=k)) for i in range(n)]
    graph = kk.FactorGraph([k] * n, [*factors, *fields], log=True)
    log_z, marginals = chain_by_hand(graph)
    for propagation in PROPAGATIONS:
        beliefs = kk.methods.JunctionTree(propagation=propagation).run(graph)
        assert beliefs.log_z == pytest.approx(log_z, rel=1e-12)
        assert np.abs(np.array(beliefs.marginals) - marginals).max() < 1e-10


def chain_by_hand(graph: kk.FactorGraph) -> tuple[float, np.ndarray]:
    """Forward-backward with logarithms, written for chains only."""
    n, k = graph.n_variables, int(graph.cardinalities[0])
    single, pair = np.zeros((n, k)), np.zeros((n - 1, k, k))
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        if len(scope) == 1:
            single[scope[0]] += graph.log_table(a)
        else:
            assert scope[1] == scope[0] + 1
            pair[scope[0]] += graph.log_table(a)
    forward, backward = single.copy(), np.zeros((n, k))
    for i in range(1, n):
        forward[i] += np.logaddexp.reduce(forward[i - 1][:, None] + pair[i - 1], axis=0)
    for i in range(n - 2, -1, -1):
        backward[i] = np.logaddexp.reduce(pair[i] + (single[i + 1] + backward[i + 1]), axis=1)
    joint = forward + backward
    log_z = float(np.logaddexp.reduce(joint[0]))
    return log_z, np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])


def test_lost_products_that_cannot_matter_do_not_cost_logarithms() -> None:
    """Strong agreement everywhere: products of disagreement vanish, and nobody needs them."""
    n = 14
    edges = [(i, j) for i in range(n) for j in range(i + 1, n)]
    table = 12.0 * np.eye(2)
    fields = [((v,), [0.0, 0.1 * v]) for v in range(n)]
    graph = kk.FactorGraph([2] * n, [*((e, table) for e in edges), *fields], log=True)
    hub = kk.FactorGraph(
        [2] * (n + 40),
        [
            *((graph.scope(a), graph.log_table(a)) for a in range(graph.n_factors)),
            *(((v % n, (v + 1) % n, n + v), 30.0 * np.eye(2)[None] + np.zeros((2, 2, 2)))
              for v in range(40)),
        ],
        log=True,
    )  # fmt: skip
    plan = kk.plan(hub)
    watch = Watch(kk.Budget().start())
    logs = junction_engine.Propagation(plan, plan.variable_targets, arithmetic=passes.LOG_SUM)
    logs.fill(plan.graph.log_tables)
    logs.collect(watch, 1.0)
    logs.distribute(watch, 1.0)
    run = Tree(plan, watch.clock).run(variable_targets)
    assert run.log_z == pytest.approx(logs.log_z, rel=1e-12)
    assert np.abs(run.out - logs.out).max() < 1e-12


@pytest.mark.parametrize("propagation", PROPAGATIONS)
@pytest.mark.parametrize("seed", range(15))
def test_logarithms_give_the_same(seed: int, propagation: str) -> None:
    graph = mixed_model(100 + seed)
    plan, watch = kk.plan(graph), Watch(kk.Budget().start())
    hugin = propagation == "hugin"
    run = junction_engine.Propagation(
        plan, plan.variable_targets, arithmetic=passes.LOG_SUM, hugin=hugin
    )
    run.fill(plan.graph.log_tables)
    run.collect(watch, 1.0)
    run.distribute(watch, 1.0)
    log_z, singles, _ = enumerate_exact(graph)
    assert run.log_z + plan.graph.log_constant == pytest.approx(log_z, rel=1e-12, abs=1e-12)
    marginals = expand_marginals(plan.conditioned, run.out)
    assert np.abs(marginals - np.concatenate(singles)).max() < 1e-12


def test_a_contradiction_found_only_by_propagation() -> None:
    """An odd cycle of inequalities between bits: every factor alone can be satisfied."""
    differ = np.array([[0.0, 1.0], [1.0, 0.0]])
    graph = kk.FactorGraph([2] * 5, [((i, (i + 1) % 5), differ) for i in range(5)])
    for text in ("jt", "jt:propagation=hugin", "jt:mode=max"):
        with pytest.raises(ImpossibleEvidenceError, match="has probability zero"):
            kk.infer(graph, text)


# ---------------------------------------------------------------------- best states


@pytest.mark.parametrize("propagation", PROPAGATIONS)
@pytest.mark.parametrize("seed", range(40))
def test_most_probable_states_and_max_marginals(seed: int, propagation: str) -> None:
    # HOJ-I5
    graph = mixed_model(200 + seed)
    states = all_states(graph)
    scores = graph.log_score(states)
    beliefs = kk.methods.JunctionTree(mode="max", propagation=propagation).run(graph)
    assert beliefs.score == pytest.approx(scores.max(), rel=1e-12, abs=1e-12)
    assert graph.log_score(beliefs.state) == pytest.approx(beliefs.score)
    if kk.plan(graph).graph.n_factors:  # independent variables are answered before any method
        assert beliefs.log_z is None
        assert beliefs.score - 1e-9 < beliefs.log_z_lower < beliefs.score
    for v in range(graph.n_variables):
        best = [scores[states[:, v] == k].max() for k in range(int(graph.cardinalities[v]))]
        wanted = np.exp(np.array(best) - max(best))
        assert np.abs(beliefs.max_marginals[v] - wanted / wanted.sum()).max() < 1e-12


def test_equal_states_are_decided_the_same_way() -> None:
    graph = kk.FactorGraph([2] * 6, [((i, i + 1), np.eye(2)) for i in range(5)])
    found = {tuple(kk.infer(graph, "jt:mode=max").state.tolist()) for _ in range(3)}
    assert found == {(0,) * 6}
    assert kk.plan(graph).calibrate().max_state()[0].tolist() == [0] * 6


def test_most_probable_state_of_g10(shared: Path) -> None:
    graph = kk.read(shared / "reference" / "grids" / "g10.uai")
    beliefs = kk.infer(graph, "jt:mode=max")
    assert beliefs.score == pytest.approx(155.764347, abs=1e-6)
    state, score = kk.plan(graph).calibrate().max_state()
    assert score == pytest.approx(beliefs.score, abs=1e-9)
    assert state.tolist() == beliefs.state.tolist()


# ---------------------------------------------------------------------- calibrated trees


@pytest.mark.parametrize("propagation", PROPAGATIONS)
@pytest.mark.parametrize("seed", range(20))
def test_joint_marginals_of_any_set(seed: int, propagation: str) -> None:
    graph = mixed_model(300 + seed, scales=(0.5, 3.0))
    rng = np.random.default_rng(seed)
    n = graph.n_variables
    evidence = {int(rng.integers(n)): 0} if n > 3 and seed % 2 else {}
    joint = np.exp(graph.log_score(all_states(graph)))
    joint = joint.reshape(graph.cardinalities)
    if evidence:
        ((seen, state),) = evidence.items()
        mask = np.zeros(int(graph.cardinalities[seen]))
        mask[state] = 1.0
        joint = joint * mask.reshape([-1 if v == seen else 1 for v in range(n)])
    if joint.sum() == 0:
        pytest.skip("this evidence is impossible")
    joint /= joint.sum()
    tree = kk.plan(graph, evidence=evidence).calibrate(propagation=propagation)
    for size in {1, min(2, n), n}:
        asked = [int(v) for v in rng.choice(n, size=size, replace=False)]
        rest = tuple(v for v in range(n) if v not in asked)
        wanted = np.transpose(joint.sum(axis=rest), np.argsort(np.argsort(asked)))
        assert np.abs(tree.joint(asked) - wanted).max() < 1e-11
    assert np.abs(np.concatenate(tree.marginals) - tree.flat_marginals).max() == 0
    for a in range(graph.n_factors):
        assert np.abs(tree.factor(a) - tree.joint(graph.scope(a))).max() < 1e-12


@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_cliques_over_separators_give_the_joint(propagation: str) -> None:
    """HOJ-M3: p(x) = product of clique marginals over product of separator marginals."""
    graph = random_model(np.random.default_rng(4), n=8, n_factors=10, max_card=3, zeros=0.2)
    plan = kk.plan(graph)
    tree = plan.calibrate(propagation=propagation)
    states = all_states(graph)
    log_p = np.zeros(len(states))
    for c, (clique, separator) in enumerate(zip(plan.cliques, plan.separators, strict=True)):
        with np.errstate(divide="ignore"):
            log_p += np.log(tree.clique(c)[tuple(states[:, clique].T)])
            below = tree.separator(c)[tuple(states[:, separator].T)]
            log_p -= np.log(np.where(below == 0, 1.0, below))
    p = np.exp(graph.log_score(states) - tree.log_z)
    assert np.abs(np.exp(log_p) - p).max() < 1e-12


def test_running_intersection_and_separators() -> None:
    # HOJ-I3
    for seed in range(10):
        rng = np.random.default_rng(seed)
        graph = random_model(rng, n=25, n_factors=30, max_order=3, max_card=2)
        check_tree(kk.plan(graph, seed=seed), graph)
    check_tree(kk.plan(kk.grid(8, 8, seed=0)), kk.grid(8, 8, seed=0))


def check_tree(plan: Plan, graph: kk.FactorGraph) -> None:
    cliques = [set(c) for c in plan.cliques]
    forest = nx.Graph()
    forest.add_nodes_from(range(len(cliques)))
    for c, parent in enumerate(plan.parents):
        if parent >= 0:
            assert parent > c
            forest.add_edge(c, parent)
            assert set(plan.separators[c]) == cliques[c] & cliques[parent]
        else:
            assert plan.separators[c] == ()
    assert nx.is_forest(forest)
    assert nx.number_connected_components(forest) == graph.n_components
    for v in range(graph.n_variables):
        holders = [c for c, clique in enumerate(cliques) if v in clique]
        assert nx.is_connected(forest.subgraph(holders))
    for a, c in plan.factor_cliques.items():
        assert set(graph.scope(a)) <= cliques[c]
    assert plan.width == max(map(len, cliques)) - 1
    assert plan.largest_clique == max(
        int(np.prod(graph.cardinalities[list(c)].astype(int))) for c in cliques
    )
    assert sorted(plan.elimination_order) == list(range(graph.n_variables))


@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_samples_have_the_right_law(propagation: str) -> None:
    # LIU-I1
    graph = random_model(np.random.default_rng(8), n=6, n_factors=8, max_card=3, zeros=0.3)
    evidence = {1: 0}
    p = np.exp(graph.log_score(all_states(graph))) * (all_states(graph)[:, 1] == 0)
    p /= p.sum()
    n = 20_000
    tree = kk.plan(graph, evidence=evidence).calibrate(propagation=propagation)
    x = tree.sample(n, seed=11)
    counts = np.bincount(np.ravel_multi_index(x.T, graph.cardinalities), minlength=len(p))
    assert counts[p == 0].sum() == 0
    common = p * n >= 5
    seen = np.append(counts[common], counts[~common].sum())
    wanted = np.append(p[common], p[~common].sum()) * n
    keep = wanted > 0
    assert stats.chisquare(seen[keep], wanted[keep]).pvalue > 1e-3
    assert np.array_equal(x, tree.sample(n, seed=11))
    assert not np.array_equal(x, tree.sample(n, seed=12))


def test_samples_of_a_large_clique_and_of_extreme_tables() -> None:
    """One clique of 2^13 states, and tables that only logarithms can hold."""
    rng = np.random.default_rng(0)
    edges = itertools.combinations(range(13), 2)
    graph = kk.FactorGraph(
        [2] * 13, [(e, rng.normal(scale=0.5, size=(2, 2))) for e in edges], log=True
    )
    tree = kk.plan(graph).calibrate()
    x = tree.sample(20_000, seed=0)
    assert np.abs(x.mean(axis=0) - [m[1] for m in tree.marginals]).max() < 0.02
    steep = kk.FactorGraph([2, 2], [((0, 1), [[0.0, -900.0], [-900.0, 0.5]])], log=True)
    tree = kk.plan(steep).calibrate()
    x = tree.sample(5000, seed=0)
    assert (x[:, 0] == x[:, 1]).all()
    assert x.mean() == pytest.approx(1 / (1 + np.exp(-0.5)), abs=0.03)
    assert tree.sample(0, seed=0).shape == (0, 2)


@pytest.mark.parametrize("distance", [150.0, 250.0, 310.0])
@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_neighbours_that_are_sure_of_different_states(distance: float, propagation: str) -> None:
    sure = -distance * (1 - np.eye(3))
    factors = [((0, k + 1), sure[:, [k]] + np.array([0.0, -1.0])) for k in range(3)]
    graph = kk.FactorGraph([3, 2, 2, 2], factors, log=True)
    log_z, singles, tables = enumerate_exact(graph)
    tree = kk.plan(graph).calibrate(propagation=propagation)
    assert tree.log_z == pytest.approx(log_z, rel=1e-12)
    for a in range(3):
        assert np.abs(tree.joint(graph.scope(a)) - tables[a]).max() < 1e-12
    assert np.abs(tree.joint([0]) - singles[0]).max() < 1e-12


def test_a_belief_that_underflows_only_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mixed_model(3, scales=(1.0,))
    tree = kk.plan(graph).calibrate()
    wanted = [tree.joint([v]) for v in range(graph.n_variables)]
    read = junction_engine.Propagation.read

    def only_logarithms(self: junction_engine.Propagation, *question: object) -> np.ndarray:
        if not self.logs:
            raise junction_engine.Underflow
        return read(self, *question)

    monkeypatch.setattr(junction_engine.Propagation, "read", only_logarithms)
    for v in range(graph.n_variables):
        assert np.abs(tree.joint([v]) - wanted[v]).max() < 1e-12
    assert np.isfinite(graph.log_score(tree.sample(50, seed=0))).all()


def test_bad_questions() -> None:
    tree = kk.plan(kk.FactorGraph([2, 2], [((0, 1), np.ones(4))])).calibrate()
    with pytest.raises(ModelError, match="a variable is repeated"):
        tree.joint([0, 0])
    with pytest.raises(ModelError, match="no variable 5"):
        tree.joint([5])
    with pytest.raises(MethodError, match="must not be negative"):
        tree.sample(-1)
    assert tree.joint([]).shape == ()


# ---------------------------------------------------------------------- plans and budgets


def test_a_plan_is_printed_before_it_is_paid() -> None:
    plan = kk.plan(kk.grid(20, 20, seed=0))
    assert plan.width == 20
    assert 1e8 < plan.bytes < 4e9
    text = plan.describe()
    assert "width               20" in text
    assert f"elimination order   {plan.order} (" in text
    assert "width 20" in str(plan)


def test_the_cheapest_order_is_never_dearer_and_is_the_same_every_time() -> None:
    gains = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        cards = rng.choice([2, 12], 50)
        pairs = [(v, int(u)) for v in range(1, 50) for u in rng.choice(v, min(v, 2), replace=False)]
        factors = [((u, v), np.ones((cards[u], cards[v]))) for v, u in pairs]
        graph = kk.FactorGraph(cards, factors)
        plain, cheapest = kk.plan(graph, order="min-fill"), kk.plan(graph)
        gains.append(plain.operations / cheapest.operations)
        assert cheapest.elimination_order == kk.plan(graph).elimination_order
    assert min(gains) >= 1
    assert max(gains) > 1.5


def test_orders_are_sought_by_operations_and_bytes() -> None:
    # The sweep of a grid is cheapest in operations and needs more memory.
    graph = unconditioned(kk.grid(19, 19, seed=0))
    sweep = make_plan(graph, "cheapest", None)
    narrow = make_plan(graph, "cheapest", None, kk.Budget(bytes=100_000_000).start())
    assert narrow.bytes < 0.8 * sweep.bytes
    assert narrow.operations > sweep.operations


def test_local_search_finds_what_greedy_orders_do_not() -> None:
    rng = np.random.default_rng(2)
    cards = rng.choice([2, 30], 120, p=[0.8, 0.2])
    pairs = [(v, int(u)) for v in range(1, 120) for u in rng.choice(v, min(v, 2), replace=False)]
    graph = kk.FactorGraph(cards, [((u, v), np.ones((cards[u], cards[v]))) for v, u in pairs])
    best = kk.plan(graph)
    assert best.operations < 3e9  # the best of hundreds of greedy orders: 1.8e10, and 4.9 GB
    assert best.bytes < 1e9


def test_the_search_for_orders_ends_with_the_clock() -> None:
    graph = unconditioned(kk.grid(25, 25, seed=0))
    make_plan(graph, "min-fill", None)
    begin = time.process_time()
    plan = make_plan(graph, "cheapest", None, kk.Budget(seconds=0.2).start())
    assert time.process_time() - begin < 0.3
    assert plan.complete


@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_bytes_are_what_is_allocated(propagation: str) -> None:
    graph = kk.grid(13, 13, seed=0)
    method = kk.methods.JunctionTree(propagation=propagation)
    method.run(graph)
    plan = kk.plan(graph)
    hugin = propagation == "hugin"
    expected = plan.bytes_for(plan.variable_targets, hugin=hugin)
    tracemalloc.start()
    method.run(graph)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.9 * expected < peak < 1.1 * expected + 300_000


def test_a_plan_over_the_budget_is_refused_before_anything_is_allocated() -> None:
    graph = kk.grid(20, 20, seed=0)
    with pytest.raises(BudgetError, match="bp, mf or gibbs"):  # loads compiled loops
        kk.infer(graph, "jt", budget=kk.Budget(bytes=10**8))
    tracemalloc.start()
    with pytest.raises(BudgetError, match=r"width 2\d\) needs \d\d\d MB but the budget is 100 MB"):
        kk.infer(graph, "jt", budget=kk.Budget(bytes=10**8))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10**7


def test_a_hopeless_plan_is_refused_with_a_bound() -> None:
    graph = kk.grid(200, 200, seed=0)
    plan = kk.plan(graph)
    assert not plan.complete
    assert plan.width >= 39
    assert "at least" in str(plan)
    assert "stopped" in plan.describe()
    for budget in (kk.Budget(), kk.Budget(bytes=None)):
        with pytest.raises(BudgetError, match="at least"):
            kk.infer(graph, "jt", budget=budget)
    with pytest.raises(BudgetError, match="no tree"):
        _ = plan.cliques
    dense = kk.plan(kk.generate.complete(1200, seed=0))
    assert dense.width == 1199
    assert "at least" in str(dense)


def test_a_figure_that_no_machine_can_address() -> None:
    plan = kk.plan(kk.generate.complete(300, seed=0))
    assert plan.complete
    assert plan.largest_clique == 2**300
    with pytest.raises(BudgetError, match="width 299"):
        kk.infer(kk.generate.complete(300, seed=0), "jt", budget=kk.Budget(bytes=None))


def test_expired_seconds_say_how_far_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junction_engine, "_CHUNK", 1e4)
    monkeypatch.setattr(Clock, "expired", property(lambda self: True))
    graph = kk.grid(12, 12, seed=0)
    with pytest.raises(BudgetError, match=r"was \d+% done when \S+ of its 60 seconds were over"):
        kk.infer(graph, "jt", budget=kk.Budget(seconds=60))


def test_seconds_that_cannot_suffice_are_told_at_once() -> None:
    with pytest.raises(BudgetError, match=r"multiply-adds, which 0.001 seconds do not"):
        kk.infer(kk.grid(20, 20, seed=0), "jt", budget=kk.Budget(seconds=0.001))


def test_an_interruption_says_how_far_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junction_engine, "_CHUNK", 1e4)
    calls = []

    def interrupted(self: Watch, done: float, total: float) -> None:
        self.done = done / total
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "check", interrupted)
    with pytest.raises(BudgetError, match=r"interrupted when it was [1-9]\d*% done"):
        kk.infer(kk.grid(12, 12, seed=0), "jt")


def test_a_run_that_will_not_end_in_time_is_given_up_early() -> None:
    clock = kk.Budget(seconds=1000).start()
    watch = Watch(clock, foresee=True)
    watch.check(0.0, 100.0)
    clock._start -= 300  # three tenths of the time for a tenth of the work
    with pytest.raises(BudgetError, match="10% done when 300 of its 1000 seconds"):
        watch.check(10.0, 100.0)
    watch.check(40.0, 100.0)
    Watch(clock, began=0.0).check(10.0, 100.0)


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junction_engine, "_CHUNK", 1e6)
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int, *, residual: object, objective: object) -> None:
        seen.append((done, total))

    kk.infer(kk.grid(18, 18, seed=0), "jt", progress=progress)
    assert seen
    assert all(0 <= done <= total == 100 for done, total in seen)
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)


@pytest.mark.parametrize("text", ["jt", "jt:propagation=hugin", "jt:mode=max"])
@pytest.mark.parametrize("strength", [1.0, 300.0])
def test_work_done_in_pieces_gives_the_same(
    text: str, strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large cliques are walked in pieces, with looks at the clock in between."""
    graph = kk.grid(7, 14, seed=0, coupling=strength, field=strength)
    whole = kk.infer(graph, text)
    if "max" not in text:
        assert whole.diagnostics["arithmetic"] == ("linear" if strength == 1 else "logarithms")
    monkeypatch.setattr(junction_engine, "_CHUNK", 100.0)
    pieces = kk.infer(graph, text)
    assert np.array_equal(whole.flat_beliefs, pieces.flat_beliefs)
    assert whole.log_z == pieces.log_z
    assert whole.score == pieces.score


def test_options() -> None:
    assert kk.methods.JunctionTree().text == "jt"
    method = kk.methods.parse_method("jt:order=min-weight,propagation=hugin,mode=max,seed=3")
    assert method == kk.methods.JunctionTree("min-weight", "hugin", "max", 3)
    with pytest.raises(MethodError, match="propagation must be one of shafer-shenoy, hugin"):
        kk.methods.parse_method("jt:propagation=lazy")


def test_a_joint_of_more_variables_than_a_table_has_axes_is_refused() -> None:
    graph = kk.FactorGraph([1] * 70, [((v,), np.ones(1)) for v in range(70)])
    with pytest.raises(kk.KikuchiError, match="at most 64 axes"):
        kk.infer(graph, "jt").joint(range(70))
