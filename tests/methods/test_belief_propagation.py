"""Belief propagation against enumeration, finite differences, golden values and itself.

Rows TEH-I1, I8, M23 (tests T1, T2, T4, T5, T19); LIU-I3, I4, D5; HOJ-I5.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import kikuchi as kk
from kikuchi import FactorGraph
from kikuchi.core.errors import ImpossibleEvidenceError, MethodError
from kikuchi.engines.messages.kernels import bp_messages
from kikuchi.engines.messages.ratios import RatioMessages
from kikuchi.engines.messages.tables import Damping, TableMessages
from kikuchi.methods import BeliefPropagation
from oracle import enumerate_exact, random_model

SCHEDULES = ["parallel", "sequential", "random", "residual"]


def boltzmann_cycle(weights: dict[tuple[int, int], float], biases: list[float]) -> FactorGraph:
    singles = [((i,), [0.0, b]) for i, b in enumerate(biases)]
    pairs = [(pair, [[0.0, 0.0], [0.0, w]]) for pair, w in weights.items()]
    return FactorGraph([2] * len(biases), singles + pairs, log=True)


def random_forest(rng: np.random.Generator, zeros: float = 0.0, n: int = 7) -> FactorGraph:
    """A forest of factors of order 1 to 4 over variables of 2 or 3 states."""
    cards = rng.integers(2, 4, size=n)
    alive = [int(rng.integers(c)) for c in cards]

    def table(scope: list[int]) -> np.ndarray:
        values = np.exp(rng.normal(size=[cards[v] for v in scope]))
        values[rng.random(values.shape) < zeros] = 0.0
        values[tuple(alive[v] for v in scope)] = 1.0
        return values

    waiting = list(range(1, n))
    placed = [0]
    factors = [((v,), table([v])) for v in range(n) if rng.random() < 0.5]
    while waiting:
        scope = [waiting.pop() for _ in range(min(len(waiting), int(rng.integers(1, 4))))]
        if rng.random() < 0.9:  # otherwise a new tree of the forest begins
            placed, scope = placed + scope, [int(rng.choice(placed)), *scope]
        else:
            placed = placed + scope
        factors.append((scope, table(scope)))
    return FactorGraph(cards, factors)


def force(monkeypatch: pytest.MonkeyPatch, arithmetic: str) -> None:
    """Make every run use one arithmetic."""
    if arithmetic != "ratios":
        monkeypatch.setattr(RatioMessages, "of", classmethod(lambda cls, graph: None))
    if arithmetic == "logarithms":
        monkeypatch.setattr(bp_messages, "TABLE_FLOOR", np.inf)


# ---------------------------------------------------------------------- exact on forests


@pytest.mark.parametrize("schedule", [*SCHEDULES, "tree"])
@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_exact_on_forests(schedule: str, zeros: float) -> None:
    # TEH-I1, TEH-T1, TEH-T2, LIU-C4
    for seed in range(25):
        graph = random_forest(np.random.default_rng(seed), zeros)
        assert graph.is_forest
        log_z, singles, tables = enumerate_exact(graph)
        beliefs = BeliefPropagation(schedule=schedule, tol=1e-13).run(graph)
        assert beliefs.converged
        assert beliefs.log_z == pytest.approx(log_z, abs=1e-11)
        assert beliefs.log_z_lower < beliefs.log_z < beliefs.log_z_upper
        assert beliefs.log_z_upper - beliefs.log_z_lower < 1e-10
        np.testing.assert_allclose(beliefs.flat_marginals, np.concatenate(singles), atol=1e-12)
        flat = np.concatenate([t.ravel() for t in tables])
        np.testing.assert_allclose(beliefs.flat_factors, flat, atol=1e-12)


@pytest.mark.parametrize("schedule", [*SCHEDULES, "tree"])
def test_binary_trees_in_ratio_form_are_exact(schedule: str) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        pairs = [(int(rng.integers(v)), v) for v in range(1, 9)]
        factors = [(p, rng.normal(size=(2, 2))) for p in pairs]
        factors += [((v,), rng.normal(size=2)) for v in range(9)]
        graph = FactorGraph([2] * 9, factors, log=True)
        log_z, singles, tables = enumerate_exact(graph)
        beliefs = BeliefPropagation(schedule=schedule, tol=1e-13).run(graph)
        assert beliefs.diagnostics["arithmetic"] == "ratios"
        assert beliefs.log_z == pytest.approx(log_z, abs=1e-11)
        np.testing.assert_allclose(beliefs.flat_marginals, np.concatenate(singles), atol=1e-12)
        flat = np.concatenate([t.ravel() for t in tables])
        np.testing.assert_allclose(beliefs.flat_factors, flat, atol=1e-12)


def test_tree_schedule_needs_a_forest_and_two_passes() -> None:
    chain = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    assert BeliefPropagation(schedule="tree").run(chain).iterations == 2
    triangle = FactorGraph([2] * 3, [((a, b), np.eye(2) + 1) for a, b in [(0, 1), (1, 2), (0, 2)]])
    with pytest.raises(MethodError, match="without cycles"):
        BeliefPropagation(schedule="tree").run(triangle)


# ---------------------------------------------------------------------- golden values


CYCLE = boltzmann_cycle({(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (3, 0): 3.0}, [0.1, -0.4, 0.3, -1])
CYCLE_MEANS = [0.9541356350, 0.6456501152, 0.5463677573, 0.8950052559]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arithmetic", ["ratios", "probabilities", "logarithms"])
@pytest.mark.parametrize("kind", ["linear", "geometric"])
def test_golden_four_cycle(
    schedule: str, arithmetic: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # TEH-T5
    force(monkeypatch, arithmetic)
    method = BeliefPropagation(schedule=schedule, tol=1e-12, damping=0.2, damping_kind=kind)
    beliefs = method.run(CYCLE)
    assert beliefs.diagnostics["arithmetic"] == arithmetic
    assert beliefs.log_z == pytest.approx(4.8463225686, abs=1e-9)
    np.testing.assert_allclose([beliefs[v][1] for v in range(4)], CYCLE_MEANS, atol=1e-9)
    assert beliefs.log_z_lower is None
    assert beliefs.log_z_upper is None


def test_golden_homogeneous_cycle() -> None:
    ring = {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0, (3, 0): 1.0}
    beliefs = BeliefPropagation(tol=1e-12).run(boltzmann_cycle(ring, [-0.8] * 4))
    assert beliefs.log_z == pytest.approx(2.3290880308, abs=1e-9)
    assert beliefs[0][1] == pytest.approx(0.5814700111, abs=1e-9)


def test_balanced_biases_give_even_beliefs() -> None:
    """TEH-M4: with b_i = -sum_j W_ij / 2 the model is symmetric under flipping all bits."""
    rng = np.random.default_rng(3)
    pairs = {(i, j): float(rng.normal()) for i in range(5) for j in range(i + 1, 5)}
    biases = [-0.5 * sum(w for p, w in pairs.items() if i in p) for i in range(5)]
    beliefs = BeliefPropagation(damping=0.5).run(boltzmann_cycle(pairs, biases))
    np.testing.assert_allclose(beliefs.flat_marginals, 0.5, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "text", "log_z"),
    [
        ("g10", "bp", 166.023737714),
        ("w10", "bp:schedule=parallel", 122.692829151),
        ("w30", "bp", 1139.690785015),
        ("g30", "bp:schedule=residual,tol=1e-11", 1530.348864542),
        ("g30", "bp:damping=0.5", 1530.348864542),
    ],
)
def test_reference_grids(shared, name: str, text: str, log_z: float) -> None:
    folder = shared / "reference" / "grids"
    beliefs = kk.infer(kk.read(folder / f"{name}.uai"), text)
    assert beliefs.converged
    assert beliefs.log_z == pytest.approx(log_z, abs=2e-8)
    p1 = beliefs.flat_marginals[1::2]
    if (folder / f"{name}.bp.json").exists():
        expected = json.loads((folder / f"{name}.bp.json").read_text())["p1"]
        np.testing.assert_allclose(p1, expected, atol=2e-8)
    else:
        exact = json.loads((folder / f"{name}.exact.json").read_text())["p1"]
        error = np.abs(p1 - np.array(exact)).max()
        assert error == pytest.approx({"g10": 0.10783, "w10": 0.01685}[name], abs=5e-6)


# ---------------------------------------------------------------------- paths agree


@pytest.mark.parametrize("arithmetic", ["probabilities", "logarithms"])
@pytest.mark.parametrize(
    "options", [{}, {"damping": 0.4}, {"damping": 0.3, "damping_kind": "geometric"}]
)
def test_ratio_form_equals_tables_sweep_by_sweep(
    arithmetic: str, options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    # LIU-C9
    graph = kk.grid(5, 6, seed=1, coupling=1.0, field=0.5)
    for sweeps in (1, 4, 7):
        method = BeliefPropagation(schedule="parallel", tol=0.0, max_iter=sweeps, **options)
        fast = method.run(graph)
        with monkeypatch.context() as patch:
            force(patch, arithmetic)
            slow = method.run(graph)
        assert fast.iterations == slow.iterations == sweeps
        assert fast.diagnostics["arithmetic"] == "ratios"
        assert slow.diagnostics["arithmetic"] == arithmetic
        np.testing.assert_allclose(fast.flat_marginals, slow.flat_marginals, atol=1e-13)
        np.testing.assert_allclose(fast.flat_factors, slow.flat_factors, atol=1e-13)
        assert fast.log_z == pytest.approx(slow.log_z, abs=1e-11)
        assert fast.trace.last_residual == pytest.approx(slow.trace.last_residual, rel=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_probabilities_equal_logarithms_on_mixed_models(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        graph = random_model(rng, n=6, n_factors=6, max_order=4, zeros=0.15, scale=0.7)
        method = BeliefPropagation(schedule=schedule, tol=0.0, max_iter=6, damping=0.1)
        linear = method.run(graph)
        with monkeypatch.context() as patch:
            force(patch, "logarithms")
            logs = method.run(graph)
        np.testing.assert_allclose(linear.flat_marginals, logs.flat_marginals, atol=1e-11)
        assert linear.log_z == pytest.approx(logs.log_z, abs=1e-9)


def test_pair_tables_with_fields_inside() -> None:
    """Any positive 2x2 table is a coupling, two fields and a constant; the answer is the same."""
    rng = np.random.default_rng(0)
    pairs = [(0, 1), (1, 2), (2, 0), (2, 3), (1, 2)]  # one pair twice: two factors, not one
    factors = [(p, 0.6 * rng.normal(size=(2, 2))) for p in pairs]
    graph = FactorGraph([2] * 4, factors, log=True)
    fast = BeliefPropagation(tol=1e-13).run(graph)
    slow = BeliefPropagation(tol=1e-13).run(
        FactorGraph([2] * 4 + [3], [*factors, ((4,), [0.0, 0.0, 0.0])], log=True)
    )
    assert fast.diagnostics["arithmetic"] == "ratios"
    assert slow.diagnostics["arithmetic"] == "probabilities"
    np.testing.assert_allclose(fast.flat_marginals, slow.flat_marginals[:8], atol=1e-12)
    assert fast.log_z == pytest.approx(slow.log_z - np.log(3), abs=1e-11)


# ---------------------------------------------------------------------- extreme numbers


@pytest.mark.parametrize("schedule", [*SCHEDULES, "tree"])
def test_strong_couplings_do_not_overflow(schedule: str) -> None:
    """exp(+-800) leaves the range of a double; a chain of such couplings must stay exact."""
    n = 12
    factors = [((i, i + 1), [[400.0, -400.0], [-400.0, 400.0]]) for i in range(n - 1)]
    factors.append(((0,), [0.0, 1.5]))
    factors.append(((n - 1,), [0.0, -900.0]))
    graph = FactorGraph([2] * n, factors, log=True)
    log_z, singles, _ = enumerate_exact(graph)
    beliefs = BeliefPropagation(schedule=schedule, tol=1e-12).run(graph)
    assert beliefs.diagnostics["arithmetic"] == "logarithms"
    assert beliefs.log_z == pytest.approx(log_z, rel=1e-12)
    np.testing.assert_allclose(beliefs.flat_marginals, np.concatenate(singles), atol=1e-12)


def test_small_numbers_behind_hard_constraints() -> None:
    """Underflow must not become a zero: the constraint kills the heavy state."""
    n = 40
    factors = [((i, i + 1), np.eye(3)) for i in range(n - 1)]
    factors += [((i,), [1.0, 1e-20, 1e-21]) for i in range(n)]
    factors.append(((n - 1,), [0.0, 1.0, 1.0]))
    beliefs = BeliefPropagation(tol=1e-12).run(FactorGraph([3] * n, factors))
    assert beliefs.diagnostics["arithmetic"] == "logarithms"
    assert beliefs.log_z == pytest.approx(n * np.log(1e-20), abs=1e-9)
    np.testing.assert_allclose(beliefs[0], [0.0, 1.0, 1e-40], atol=1e-12)


def test_hub_with_many_neighbours() -> None:
    """Products over a thousand neighbours underflow unless they are rescaled."""
    n = 1500
    pair = [[0.6, 0.4, 0.1], [0.5, 0.5, 0.1], [0.1, 0.1, 0.1]]
    graph = FactorGraph([3] * (n + 1), [((0, i), pair) for i in range(1, n + 1)])
    row_sums = np.log(np.array(pair).sum(axis=1)) * n
    expected = np.exp(row_sums - row_sums.max())
    beliefs = BeliefPropagation(schedule="tree").run(graph)
    np.testing.assert_allclose(beliefs[0], expected / expected.sum(), atol=1e-10)
    assert beliefs.log_z == pytest.approx(row_sums.max() + np.log(expected.sum()), rel=1e-12)


def test_contradiction_is_said() -> None:
    equal = [((0, 1), np.eye(2)), ((1, 2), np.eye(2))]
    graph = FactorGraph([2] * 3, [*equal, ((0,), [1, 0]), ((2,), [0, 1])])
    for schedule in SCHEDULES:
        with pytest.raises(ImpossibleEvidenceError, match="Z = 0"):
            BeliefPropagation(schedule=schedule).run(graph)


# ---------------------------------------------------------------------- the Bethe free energy


def bethe_free_energy(graph: FactorGraph, singles: list, tables: list) -> float:
    """LIU-D5 written out, apart from the library."""
    energy = 0.0
    for a, b in enumerate(tables):
        p = b.ravel()
        energy += np.sum(p * (np.log(p) - graph.log_table(a).ravel()))
    for v, b in enumerate(singles):
        energy -= (len(graph.neighbours(v)) - 1) * np.sum(b * np.log(b))
    return float(energy)


def test_fixed_points_are_stationary_points_of_the_bethe_free_energy() -> None:
    """TEH-T4: directional derivatives inside the marginalisation constraints vanish."""
    rng = np.random.default_rng(5)
    graph = random_model(rng, n=6, n_factors=9, max_order=3, max_card=3, scale=0.5)
    graph = graph.condition(dict.fromkeys(np.flatnonzero(graph.cardinalities == 1), 0)).graph
    beliefs = BeliefPropagation(tol=1e-14, damping=0.2, max_iter=5000).run(graph)
    assert beliefs.converged
    assert not graph.is_forest
    singles = beliefs.marginals
    tables = [beliefs.factor(a) for a in range(graph.n_factors)]
    for a, table in enumerate(tables):
        for axis, v in enumerate(graph.scope(a)):
            rest = tuple(k for k in range(table.ndim) if k != axis)
            np.testing.assert_allclose(table.sum(axis=rest), singles[v], atol=1e-12)
    assert bethe_free_energy(graph, singles, tables) == pytest.approx(-beliefs.log_z, abs=1e-10)
    for _ in range(20):
        shifts = [rng.normal(size=s.size) for s in singles]
        shifts = [s - s.mean() for s in shifts]
        moves = []
        for a, table in enumerate(tables):
            move = np.zeros(table.shape)
            noise = rng.normal(size=table.shape) if table.ndim > 1 else move
            for axis in range(table.ndim):  # a part that changes no marginal
                noise = noise - noise.mean(axis=axis, keepdims=True)
            move += noise
            for axis, v in enumerate(graph.scope(a)):  # and one that moves each by its shift
                shape = [-1 if k == axis else 1 for k in range(table.ndim)]
                spread = table.size / table.shape[axis]
                move += shifts[v].reshape(shape) / spread
            moves.append(move)
        size = 1e-6
        energy = [
            bethe_free_energy(
                graph,
                [s + sign * size * d for s, d in zip(singles, shifts, strict=True)],
                [t + sign * size * d for t, d in zip(tables, moves, strict=True)],
            )
            for sign in (1, -1)
        ]
        assert abs(energy[0] - energy[1]) / (2 * size) < 1e-5


def test_trace_energy_ends_at_the_answer() -> None:
    for graph in (CYCLE, random_forest(np.random.default_rng(1))):
        beliefs = BeliefPropagation(trace_energy=True, tol=1e-12).run(graph)
        assert beliefs.trace.objective[-1] == pytest.approx(beliefs.log_z, abs=1e-9)


# ---------------------------------------------------------------------- certificates

WIDE = FactorGraph(
    [2, 2, 2],
    [((2, 0), [[1e149, 1e-121], [1e10, 1e236]]), ((1, 0), [[1e276, 1e143], [1e33, 1e210]])],
)
CHAIN = FactorGraph(
    [2, 2, 2], [((0, 1), [[9, 1], [1, 9]]), ((1, 2), [[9, 1], [1, 9]]), ((0,), [5, 1])]
)
TINY = FactorGraph(
    [2, 2, 2],
    [
        ((2, 1), [[0.68, 4.25e-6], [1424.0, 0.062]]),
        ((0,), [1.82, 177027.0]),
        ((0, 2), [[2.18e-294, 2.29e-294], [5.79e-307, 5.47e-300]]),
    ],
)


@pytest.mark.parametrize(
    "text",
    [
        "bp:damping=0.9,tol=1e-2,schedule=parallel",
        "bp:damping=0.9,tol=1e-4,damping_kind=geometric",
        "bp:schedule=residual,tol=1e-2",
        "bp:schedule=residual",
        "bp:schedule=parallel,damping=0.5,damping_kind=geometric",
        "bp:schedule=tree,damping=0.8",
        "trw:tol=1e-2",
        "ups:tol=1e-2",
        "loopy-is:tol=1e-2",
        "is-bp:tol=1e-2",
        "auto:exact=false",
    ],
)
@pytest.mark.parametrize("graph", [CHAIN, WIDE, TINY], ids=["chain", "wide", "tiny"])
def test_what_is_certified_on_a_forest_is_true(graph: FactorGraph, text: str) -> None:
    exact = kk.infer(graph, "enumerate")
    found = kk.infer(graph, text)
    slack = 1e-15 * (abs(exact.log_z) + 1)
    assert found.log_z_lower is None or found.log_z_lower <= exact.log_z + slack
    assert found.log_z_upper is None or found.log_z_upper >= exact.log_z - slack
    if text.startswith("bp"):
        assert found.log_z_upper - found.log_z_lower < 1e-9
        np.testing.assert_allclose(found.flat_marginals, exact.flat_marginals, atol=1e-10)


@pytest.mark.parametrize("text", ["bp", "loopy-is"])
def test_small_changes_of_messages_that_decide_a_belief_are_no_convergence(text: str) -> None:
    """One field of 1e-290 and a coupling that undoes it: no message shows how far it has to go."""
    table = np.array([[1.0, 1e-250], [1e-250, 1.0]])
    ring = FactorGraph(
        [2] * 3,
        [((0, 1), table), ((1, 2), table), ((0,), [1.0, 1e-200]), ((2,), [1e-200, 1.01])],
    )
    found = kk.infer(ring, f"{text}:damping=0.9,damping_kind=geometric,max_iter=5000")
    exact = kk.infer(ring, "enumerate")
    if found.converged:
        np.testing.assert_allclose(found.flat_marginals, exact.flat_marginals, atol=1e-6)


# ---------------------------------------------------------------------- max-product


def test_max_product_is_exact_on_forests() -> None:
    for seed in range(30):
        graph = random_forest(np.random.default_rng(seed), zeros=0.3)
        states = list(np.ndindex(*map(int, graph.cardinalities)))
        scores = np.array([graph.log_score(np.array(x)) for x in states])
        beliefs = BeliefPropagation(mode="max", schedule="tree").run(graph)
        assert beliefs.score == pytest.approx(scores.max(), abs=1e-12)
        assert graph.log_score(beliefs.state) == beliefs.score
        assert beliefs.log_z is None
        assert beliefs.score - 1e-10 < beliefs.log_z_lower < beliefs.score
        array = np.array(states)
        for v in range(graph.n_variables):
            best = np.array(
                [scores[array[:, v] == k].max() for k in range(int(graph.cardinalities[v]))]
            )
            weights = np.exp(best - best.max())
            np.testing.assert_allclose(
                beliefs.max_marginals[v], weights / weights.sum(), atol=1e-12
            )


def test_max_product_decodes_ties() -> None:
    graph = FactorGraph([2] * 4, [((i, i + 1), 1 - np.eye(2)) for i in range(3)])
    beliefs = BeliefPropagation(mode="max").run(graph)
    assert graph.log_score(beliefs.state) == 0.0


# ---------------------------------------------------------------------- budgets, damping, runs


def test_tol_zero_runs_all_iterations() -> None:
    for schedule in SCHEDULES:
        beliefs = BeliefPropagation(schedule=schedule, tol=0.0, max_iter=37).run(CYCLE)
        assert beliefs.iterations == 37
        assert not beliefs.converged
        assert beliefs.stopped == "iterations"


def test_not_converged_is_said() -> None:
    graph = kk.grid(8, 8, seed=0, coupling=3.0, field=0.01)
    beliefs = BeliefPropagation(schedule="parallel", max_iter=50).run(graph)
    assert not beliefs.converged
    assert "not converged" in beliefs.warnings[0]
    assert np.isfinite(beliefs.log_z)


def test_annealed_damping_reaches_its_end() -> None:
    method = BeliefPropagation(damping=0.1, damping_end=0.9, anneal=10)
    damping = Damping(0.1, "linear", end=0.9, anneal=10)
    assert [damping.at(i) for i in (0, 5, 10, 50)] == pytest.approx([0.1, 0.5, 0.9, 0.9])
    assert method.run(CYCLE).log_z == pytest.approx(4.8463225686, abs=1e-7)


def test_evidence_equals_clamping() -> None:
    graph = kk.grid(3, 3, seed=4)
    evidence = {0: 1, 4: 0}
    reduced = BeliefPropagation(tol=1e-12).run(graph, evidence=evidence)
    clamped = BeliefPropagation(tol=1e-12).run(graph.clamp(evidence))
    np.testing.assert_allclose(reduced.flat_marginals, clamped.flat_marginals, atol=1e-9)
    assert reduced.log_z == pytest.approx(clamped.log_z, abs=1e-9)
    assert reduced[0].tolist() == [0.0, 1.0]
    flat = clamped.flat_factors[: graph.log_tables.size]
    np.testing.assert_allclose(reduced.flat_factors, flat, atol=1e-9)


def hub(n: int, states: int) -> FactorGraph:
    """Two variables that share a factor with each of the others: many short cycles."""
    rng = np.random.default_rng(0)
    pairs = [(a, v) for a in (0, 1) for v in range(a + 1, n)]
    tables = np.exp(0.1 * rng.normal(size=(len(pairs), states, states)))
    return FactorGraph([states] * n, list(zip(pairs, tables, strict=True)))


@pytest.mark.parametrize("make", [RatioMessages.of, lambda g: TableMessages(g, bp_messages.SUM)])
def test_a_sweep_of_single_updates_ends_in_the_middle_when_the_time_is_over(make) -> None:
    """At a variable of n factors each update makes n proposals: a sweep takes n^2 of them."""
    graph = hub(2000, 2)
    cut, whole = make(graph), make(graph)
    left = cut.residual(0.0, bp_messages.LINEAR, 0.0, kk.Budget(seconds=1e-9).start())
    assert left > whole.residual(0.0, bp_messages.LINEAR, 0.0, kk.Budget().start())


@pytest.mark.parametrize("states", [2, 3])
def test_a_sweep_in_pieces_is_the_same_sweep(monkeypatch, states: int) -> None:
    graph = hub(30, states)
    whole = kk.infer(graph, "bp:schedule=residual,max_iter=3")
    monkeypatch.setattr("kikuchi.engines.messages.ratios._PROPOSALS_PER_CALL", 7)
    monkeypatch.setattr("kikuchi.engines.messages.tables._ENTRIES_PER_CALL", 7)
    pieces = kk.infer(graph, "bp:schedule=residual,max_iter=3")
    np.testing.assert_array_equal(whole.flat_marginals, pieces.flat_marginals)
    assert whole.trace.residual == pieces.trace.residual
