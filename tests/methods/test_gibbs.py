"""Gibbs sampling: the kernel it applies, what it estimates, and what it says about itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kikuchi as kk
from kikuchi.core import seeds
from kikuchi.core.budget import Budget
from kikuchi.core.diagnostics import effective_sample_size, split_rhat
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError, KikuchiError, MethodError
from kikuchi.engines.feasibility import Constraints
from kikuchi.engines.sampling.kernels.gibbs import indicator_diagnostics, uniform
from kikuchi.engines.sampling.sweepers import BitSweeper, Sweeper, TableSweeper
from kikuchi.graphs.binary import boltzmann_parameters
from kikuchi.graphs.graph_arrays import flatten
from kikuchi.methods import gibbs
from oracle import enumerate_exact, random_model


def binary_model(seed: int, n: int = 5, n_factors: int = 9, scale: float = 1.0) -> kk.FactorGraph:
    rng = np.random.default_rng(seed)
    return random_model(rng, n=n, n_factors=n_factors, max_order=2, max_card=2, scale=scale)


def square(rows: int, columns: int, seed: int = 0, coupling: float = 0.5) -> kk.FactorGraph:
    rng = np.random.default_rng(seed)
    index = np.arange(rows * columns).reshape(rows, columns)
    pairs = [*zip(index[:, :-1].ravel(), index[:, 1:].ravel(), strict=True)]
    pairs += [*zip(index[:-1].ravel(), index[1:].ravel(), strict=True)]
    factors = [(p, coupling * rng.normal(size=(2, 2))) for p in pairs]
    return kk.FactorGraph([2] * rows * columns, factors, log=True)


def joint(graph: kk.FactorGraph) -> tuple[list[tuple[int, ...]], np.ndarray]:
    states = list(itertools.product(*(range(int(c)) for c in graph.cardinalities)))
    scores = graph.log_score(np.array(states))
    weights = np.exp(scores - scores.max())
    return states, weights / weights.sum()


def sweep_matrix(graph: kk.FactorGraph, order: np.ndarray) -> np.ndarray:
    """T[x, y] = probability that one sweep in `order` takes x to y, from the conditionals."""
    states = list(itertools.product(*(range(int(c)) for c in graph.cardinalities)))
    place = {s: k for k, s in enumerate(states)}
    total = np.eye(len(states))
    for v in order:
        step = np.zeros_like(total)
        for s in states:
            p = gibbs.conditional(graph, int(v), np.array(s))
            for x, probability in enumerate(p):
                step[place[s], place[(*s[:v], x, *s[v + 1 :])]] += probability
        total = total @ step
    return total


# ---------------------------------------------------------------------- the kernel


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3]))
@settings(max_examples=25)
def test_conditionals_are_those_of_the_joint(seed: int, zeros: float) -> None:
    # LAW-I2
    graph = random_model(np.random.default_rng(seed), n=4, n_factors=6, max_card=3, zeros=zeros)
    states, p = joint(graph)
    lookup = dict(zip(states, p, strict=True))
    for s in states:
        if lookup[s] == 0:
            continue
        for v, card in enumerate(graph.cardinalities):
            row = np.array([lookup[(*s[:v], x, *s[v + 1 :])] for x in range(int(card))])
            np.testing.assert_allclose(
                gibbs.conditional(graph, v, np.array(s)), row / row.sum(), atol=1e-13
            )


@pytest.mark.parametrize("schedule", ["sequential", "chromatic"])
def test_divergence_from_the_target_never_rises(schedule: str) -> None:
    """TEH-I3, T42: KL(Q_t || P) under the sweep kernel; and P is left where it is."""
    for seed in range(5):
        graph = random_model(np.random.default_rng(seed), n=4, n_factors=6, max_card=3, scale=1.5)
        _, p = joint(graph)
        kernel = sweep_matrix(graph, gibbs._update_order(graph, schedule))
        np.testing.assert_allclose(kernel.sum(axis=1), 1.0, atol=1e-12)
        np.testing.assert_allclose(p @ kernel, p, atol=1e-13)
        q = np.zeros(len(p))
        q[np.argmin(p)] = 1.0
        divergences = []
        for _ in range(12):
            positive = q > 0
            divergences.append(np.sum(q[positive] * np.log(q[positive] / p[positive])))
            q = q @ kernel
        assert np.all(np.diff(divergences) <= 1e-12)
        assert divergences[-1] < 0.2 * divergences[0]


def one_sweep_frequencies(sweeper: Sweeper, start: tuple[int, ...], rounds: int) -> dict:
    counts: dict[tuple[int, ...], int] = {}
    n = len(start)
    for _ in range(rounds):
        sweeper.set(np.repeat(np.array(start)[:, None], sweeper.chains, axis=1))
        sweeper.burn(1)
        for row in sweeper.states.reshape(n, sweeper.chains).T.tolist():
            counts[tuple(row)] = counts.get(tuple(row), 0) + 1
    return counts


@pytest.mark.parametrize("path", ["bits", "tables"])
@pytest.mark.parametrize("schedule", ["sequential", "chromatic"])
def test_compiled_sweep_moves_as_the_kernel_says(path: str, schedule: str) -> None:
    """One sweep from one state, many times, against the row of the exact transition matrix."""
    if path == "bits":
        graph = square(2, 3, seed=3, coupling=1.0)
        graph = kk.FactorGraph(  # a node with four neighbours, to take the written-out branch too
            [2] * 6, [*((graph.scope(a), graph.table(a)) for a in range(7)), ((1, 3), [1, 2, 3, 1])]
        )
    else:
        rng = np.random.default_rng(5)
        graph = random_model(rng, n=4, n_factors=6, max_card=3)
    order = gibbs._update_order(graph, schedule)
    chains, rounds = 2000, 20
    flat, bits = flatten(graph), boltzmann_parameters(graph)
    sweeper: Sweeper = (
        BitSweeper(flat, bits, chains, order)
        if path == "bits" and bits is not None
        else TableSweeper(flat, chains, order)
    )
    assert sweeper.path == path
    sweeper.seed(seeds.kernel_seeds(1, chains))
    states, _ = joint(graph)
    kernel = sweep_matrix(graph, order)
    for number in (0, len(states) - 1):
        counts = one_sweep_frequencies(sweeper, states[number], rounds)
        total = chains * rounds
        for k, s in enumerate(states):
            p = kernel[number, k]
            spread = np.sqrt(p * (1 - p) / total) + 1 / total
            assert abs(counts.get(s, 0) / total - p) < 5 * spread


def test_random_numbers_are_those_of_xoshiro() -> None:
    """The first outputs of xoshiro256++ from the state (1, 2, 3, 4)."""
    known = [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205]
    stream = np.array([1, 2, 3, 4], dtype=np.uint64)
    ours = [uniform(stream, np.uint64(0)) for _ in known]
    assert ours == [(word >> 11) / 2**53 for word in known]


# ---------------------------------------------------------------------- estimates


@pytest.mark.parametrize("schedule", ["sequential", "chromatic"])
@pytest.mark.parametrize("seed", range(4))
def test_marginals_within_statistical_error(schedule: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = (
        binary_model(seed, n=7, n_factors=12)
        if seed % 2
        else random_model(rng, n=6, n_factors=8, max_order=4, max_card=4)
    )
    log_z, singles, tables = enumerate_exact(graph)
    beliefs = kk.infer(graph, f"gibbs:schedule={schedule},sweeps=5000,seed={seed}")
    assert beliefs.diagnostics["path"] == ("bits" if seed % 2 else "tables")
    ess = beliefs.diagnostics["ess"]
    assert ess.min() > 500
    for v, p in enumerate(singles):
        error = np.sqrt(p * (1 - p) / ess[v])  # of plain counts; ours average conditionals
        assert np.all(np.abs(beliefs[v] - p) <= 5 * error + 1e-9)
    for a, p in enumerate(tables):
        error = np.sqrt(p * (1 - p) / ess[list(graph.scope(a))].min())
        assert np.all(np.abs(beliefs.factor(a) - p) <= 6 * error + 1e-3)
    assert beliefs.log_z is None
    assert beliefs.score - 1e-9 < beliefs.log_z_lower < beliefs.score <= log_z
    assert graph.log_score(beliefs.state) == pytest.approx(beliefs.score, abs=1e-10)
    assert beliefs.converged
    assert beliefs.stopped == "converged"


def test_best_state_is_found_and_scored() -> None:
    for seed in range(6):
        graph = binary_model(seed) if seed % 2 else random_model(np.random.default_rng(seed), n=5)
        states, p = joint(graph)
        beliefs = kk.infer(graph, "gibbs:sweeps=3000")
        best = graph.log_score(list(states[p.argmax()]))
        assert beliefs.score == pytest.approx(best, abs=1e-10)


def test_averages_of_conditionals_beat_counts() -> None:
    """Rao-Blackwell: over repeated runs the spread of the averages is the smaller one."""
    graph = binary_model(1, n=6)
    averages, counts = [], []
    for seed in range(60):
        beliefs = kk.infer(graph, f"gibbs:sweeps=200,burn_in=20,chains=1,seed={seed}")
        averages.append(beliefs.flat_marginals[1::2])
        counts.append([beliefs.factor(a) for a in range(graph.n_factors)])
    totals = []
    for v in range(6):
        a = next(a for a in range(graph.n_factors) if v in graph.scope(a))
        axis = graph.scope(a).index(v)
        totals.append([np.moveaxis(c[a], axis, 0)[1].sum() for c in counts])
    assert np.std(averages, axis=0).mean() < 0.8 * np.std(totals, axis=1).mean()


def test_strong_couplings_leave_the_form_in_bits() -> None:
    """Odds beyond the range of doubles are sampled in the log domain."""
    factors = [((0, 1), [[0, -800], [-800, 0]]), ((1, 2), [[0, 0], [0, 1]])]
    graph = kk.FactorGraph([2] * 3, factors, log=True)
    beliefs = kk.infer(graph, "gibbs:sweeps=2000,chains=8")
    assert beliefs.diagnostics["path"] == "tables"
    singles = enumerate_exact(graph)[1]
    assert np.isfinite(beliefs.flat_marginals).all()
    np.testing.assert_allclose(beliefs[2], singles[2], atol=0.2)
    weaker = kk.FactorGraph([2] * 3, [(s, np.array(t) / 100) for s, t in factors], log=True)
    assert kk.infer(weaker, "gibbs:sweeps=100").diagnostics["path"] == "bits"


def test_same_seed_same_result_and_another_differs() -> None:
    graph = square(4, 4)
    one, two = (kk.infer(graph, "gibbs:sweeps=200,seed=3") for _ in range(2))
    np.testing.assert_array_equal(one.flat_marginals, two.flat_marginals)
    np.testing.assert_array_equal(one.flat_factors, two.flat_factors)
    np.testing.assert_array_equal(one.diagnostics["ess"], two.diagnostics["ess"])
    other = kk.infer(graph, "gibbs:sweeps=200,seed=4")
    assert not np.array_equal(one.flat_marginals, other.flat_marginals)


def test_recorded_states_carry_their_log_weights() -> None:
    for graph in (square(3, 3), random_model(np.random.default_rng(0), n=5)):
        flat, bits, order = (
            flatten(graph),
            boltzmann_parameters(graph),
            np.arange(graph.n_variables),
        )
        sweeper: Sweeper = (
            TableSweeper(flat, 3, order) if bits is None else BitSweeper(flat, bits, 3, order)
        )
        sweeper.set(np.zeros((graph.n_variables, 3), dtype=np.int64))
        sweeper.seed(seeds.kernel_seeds(0, 3))
        sweeper.allocate(10)
        sweeper.sample(20, 2)
        constant = 0.0 if bits is None else bits.constant
        for draw, scores in zip(sweeper.draws, sweeper.scores, strict=True):
            states = draw.reshape(graph.n_variables, 3).T
            np.testing.assert_allclose(scores + constant, graph.log_score(states), atol=1e-12)
        last = graph.log_score(sweeper.states.reshape(graph.n_variables, 3).T)
        assert sweeper.mean_score() == pytest.approx(last.mean(), abs=1e-12)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for graph in (square(3, 3), random_model(np.random.default_rng(0), n=5)):
        whole = kk.infer(graph, "gibbs:sweeps=120,burn_in=31,thin=7")
        with monkeypatch.context() as patch:
            patch.setattr(gibbs, "_CHUNK_UPDATES", 5 * 4 * graph.n_variables)
            pieces = kk.infer(graph, "gibbs:sweeps=120,burn_in=31,thin=7")
        assert len(pieces.trace) > len(whole.trace)
        np.testing.assert_array_equal(pieces.flat_marginals, whole.flat_marginals)
        np.testing.assert_array_equal(pieces.flat_factors, whole.flat_factors)
        assert pieces.diagnostics["draws"] == 120 // 7


def test_trace_holds_the_log_weight_of_the_chains() -> None:
    for graph in (square(3, 3), random_model(np.random.default_rng(0), n=5)):
        shifted = kk.FactorGraph(
            graph.cardinalities,
            [(graph.scope(a), graph.log_table(a)) for a in range(graph.n_factors)],
            log=True,
            log_constant=100.0,
        )
        low = kk.infer(graph, "gibbs:chains=1,sweeps=50,thin=1")
        high = kk.infer(shifted, "gibbs:chains=1,sweeps=50,thin=1")
        assert high.trace.objective[-1] - low.trace.objective[-1] == pytest.approx(100.0)
        assert low.trace.objective[-1] <= kk.infer(graph, "enumerate").score + 1e-9


# ---------------------------------------------------------------------- colouring


@given(st.integers(0, 10**6))
@settings(max_examples=40)
def test_colouring_is_proper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=12, n_factors=14, max_order=4)
    colours = gibbs.colouring(graph)
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        assert len({int(colours[v]) for v in scope}) == len(scope)
    degrees = np.bincount(graph.pairs().ravel(), minlength=12)
    assert colours.max() <= degrees.max()
    order = gibbs._update_order(graph, "chromatic")
    assert sorted(order.tolist()) == list(range(12))
    assert np.all(np.diff(colours[order]) >= 0)


def test_two_colours_where_two_are_enough() -> None:
    assert gibbs.colouring(square(6, 7)).max() == 1
    for seed in range(10):
        rng = np.random.default_rng(seed)
        pairs = [(int(rng.integers(v)), v) for v in rng.permutation(np.arange(1, 30))]
        tree = kk.FactorGraph([2] * 30, [(p, np.ones(4)) for p in pairs])
        assert gibbs.colouring(tree).max() == 1


# ---------------------------------------------------------------------- diagnostics


def test_compiled_diagnostics_equal_those_of_core() -> None:
    rng = np.random.default_rng(0)
    cards = np.array([2, 3, 2, 4, 2], dtype=np.uint32)
    cards.flags.writeable = False
    for chains, draws in ((1, 40), (4, 51), (3, 200)):
        steps = np.cumsum(rng.integers(-1, 2, size=(5, chains, draws)), axis=2)
        series = (np.abs(steps) // 2 % cards[:, None, None]).astype(np.uint8)
        series[4] = 1  # never moves
        rhat, ess = np.empty(5), np.empty(5)
        indicator_diagnostics(series, cards, rhat, ess)
        for v in range(5):
            indicators = np.stack([series[v] == x for x in range(int(cards[v]))], axis=-1)
            assert rhat[v] == pytest.approx(max(1.0, split_rhat(indicators).max()), rel=1e-10)
            expected = min(2.0 * chains * (draws // 2), effective_sample_size(indicators).min())
            assert ess[v] == pytest.approx(expected, rel=1e-8)


def test_chains_that_cannot_mix_are_reported() -> None:
    table = 6.0 * np.array([[1, -1], [-1, 1]])
    graph = kk.FactorGraph([2] * 8, [((i, (i + 1) % 8), table) for i in range(8)], log=True)
    beliefs = kk.infer(graph, "gibbs:sweeps=300,chains=8,seed=1")
    assert not beliefs.converged
    assert beliefs.stopped == "iterations"
    assert beliefs.diagnostics["max_rhat"] > 1.5
    assert any("chains disagree" in w for w in beliefs.warnings)
    assert any("effective sample size" in w for w in beliefs.warnings)


def test_slow_mixing_gives_few_effective_draws() -> None:
    """Two coupled bits flip together ever more rarely: the sample size follows the exact chain."""
    weight = 3.0
    graph = kk.FactorGraph([2, 2], [((0, 1), [[weight, 0], [0, weight]])], log=True)
    stay = np.exp(weight) / (1 + np.exp(weight))
    # in one sweep bit 0 copies bit 1 with probability `stay`, then bit 1 copies bit 0:
    # the chain of bit 1 is symmetric with correlation (2 stay - 1)^2
    phi = (2 * stay - 1) ** 2
    beliefs = kk.infer(graph, "gibbs:sweeps=20000,thin=1")
    expected = 80_000 * (1 - phi) / (1 + phi)
    assert beliefs.diagnostics["ess"][1] == pytest.approx(expected, rel=0.1)


def test_diagnostics_follow_the_variables_of_the_original_graph() -> None:
    graph = random_model(np.random.default_rng(2), n=6, n_factors=9, max_card=2)
    beliefs = kk.infer(graph, "gibbs:sweeps=500", evidence={2: 1, 4: 0})
    assert beliefs.diagnostics["rhat"].shape == beliefs.diagnostics["ess"].shape == (6,)
    ess, total = beliefs.diagnostics["ess"], 4 * beliefs.diagnostics["draws"]
    assert ess[2] == ess[4] == total
    assert ess[5] < total
    assert beliefs.diagnostics["rhat"][2] == beliefs.diagnostics["rhat"][4] == 1.0
    assert beliefs.state[2] == 1
    assert beliefs[4].tolist() == [1.0, 0.0]
    singles = enumerate_exact(graph.clamp({2: 1, 4: 0}))[1]
    for v in range(6):
        np.testing.assert_allclose(beliefs[v], singles[v], atol=0.05)


# ---------------------------------------------------------------------- zeros


def test_hard_core_model() -> None:
    """No two neighbours occupied: single-site moves reach every state through the empty one."""
    rows = 3
    index = np.arange(rows * rows).reshape(rows, rows)
    pairs = [*zip(index[:, :-1].ravel(), index[:, 1:].ravel(), strict=True)]
    pairs += [*zip(index[:-1].ravel(), index[1:].ravel(), strict=True)]
    factors = [(p, [[1, 1], [1, 0]]) for p in pairs] + [((v,), [1, 1.5]) for v in range(9)]
    graph = kk.FactorGraph([2] * 9, factors)
    singles = enumerate_exact(graph)[1]
    beliefs = kk.infer(graph, "gibbs:sweeps=8000")
    for v in range(9):
        np.testing.assert_allclose(beliefs[v], singles[v], atol=0.02)
    assert beliefs.converged
    assert any("may not reach every state" in w for w in beliefs.warnings)


def test_zeros_of_single_variables_raise_no_warning() -> None:
    graph = kk.FactorGraph([3, 2], [((0,), [0, 1, 2]), ((0, 1), [[1, 2], [3, 4], [5, 6]])])
    beliefs = kk.infer(graph, "gibbs")
    assert beliefs[0][0] == 0.0
    assert beliefs.warnings == ()
    singles = enumerate_exact(graph)[1]
    np.testing.assert_allclose(beliefs[0], singles[0], atol=0.02)


def test_chains_start_at_states_of_positive_weight() -> None:
    for seed in range(10):
        graph = random_model(np.random.default_rng(seed), n=8, n_factors=12, zeros=0.6)
        beliefs = kk.infer(graph, f"gibbs:sweeps=50,burn_in=0,seed={seed}")
        assert np.isfinite(beliefs.score)
        possible = np.concatenate(enumerate_exact(graph)[1]) > 0
        assert np.all(beliefs.flat_marginals[~possible] == 0)
        assert np.all(beliefs.flat_factors[graph.log_tables == -np.inf] == 0)


def test_impossible_models_and_searches_that_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    xor = [[0, 1], [1, 0]]
    triangle = kk.FactorGraph([2] * 3, [((0, 1), xor), ((1, 2), xor), ((2, 0), xor)])
    with pytest.raises(ImpossibleEvidenceError, match="no state"):
        kk.infer(triangle, "gibbs")
    monkeypatch.setattr(Constraints, "find_state", lambda self, wish, rng, clock: None)
    with pytest.raises(KikuchiError, match="no state of positive weight to start from; use jt"):
        kk.infer(kk.FactorGraph([2, 2], [((0, 1), xor)]), "gibbs")


# ---------------------------------------------------------------------- budgets and options


def test_budget_of_iterations_is_shared_between_burn_in_and_keeping() -> None:
    beliefs = kk.infer(square(3, 3), "gibbs", budget=Budget(iterations=100))
    assert beliefs.iterations == 100
    assert beliefs.diagnostics["burn_in"] == 20
    assert beliefs.diagnostics["sweeps"] == 80


def test_time_budget_returns_what_was_sampled() -> None:
    graph = square(30, 30)
    kk.infer(graph, "gibbs:sweeps=10,burn_in=1")
    beliefs = kk.infer(graph, "gibbs:sweeps=1000000,burn_in=50", budget=Budget(seconds=0.3))
    assert beliefs.stopped == "seconds"
    assert 0 < beliefs.diagnostics["sweeps"] < 10**6
    assert any("of 1000050 sweeps" in w for w in beliefs.warnings)
    assert np.isfinite(beliefs.flat_marginals).all()
    assert beliefs.seconds < 10


def test_time_that_ends_during_burn_in() -> None:
    graph = square(30, 30)
    kk.infer(graph, "gibbs:sweeps=10,burn_in=1")
    beliefs = kk.infer(graph, "gibbs:sweeps=10,burn_in=10000000", budget=Budget(seconds=0.05))
    assert beliefs.stopped == "seconds"
    assert not beliefs.converged
    assert any("during burn-in" in w for w in beliefs.warnings)
    assert beliefs.diagnostics["draws"] >= 1
    assert beliefs.factor(0).sum() == pytest.approx(1.0)


def test_few_draws_have_no_diagnostics_and_do_not_count_as_converged() -> None:
    beliefs = kk.infer(square(3, 3), "gibbs:sweeps=100,thin=10")
    assert "rhat" not in beliefs.diagnostics
    assert not beliefs.converged
    assert any("too few for R-hat" in w for w in beliefs.warnings)
    beliefs = kk.infer(square(3, 3), "gibbs:sweeps=5,thin=100")
    assert beliefs.diagnostics["draws"] == 1


def test_memory_bounds_the_draws() -> None:
    graph = square(20, 20)
    beliefs = kk.infer(graph, "gibbs:sweeps=1000", budget=Budget(bytes=400_000))
    assert beliefs.diagnostics["draws"] * 400 * 4 <= 100_000
    assert beliefs.diagnostics["sweeps"] == 1000
    with pytest.raises(BudgetError, match="raise thin"):
        kk.infer(graph, "gibbs:sweeps=1000,thin=1", budget=Budget(bytes=400_000))


def test_variables_without_factors_and_many_states() -> None:
    beliefs = kk.infer(kk.FactorGraph([2, 300], []), "gibbs:sweeps=50,chains=2")
    np.testing.assert_allclose(beliefs[1], np.full(300, 1 / 300))
    assert beliefs.score == 0.0


@pytest.mark.parametrize(
    "text",
    ["gibbs:chains=0", "gibbs:sweeps=0", "gibbs:schedule=odd", "gibbs:rhat=1", "gibbs:thin=0"],
)
def test_options_are_checked(text: str) -> None:
    with pytest.raises(MethodError):
        kk.methods.parse_method(text)
