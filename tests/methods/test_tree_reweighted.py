"""Tree-reweighted propagation and the reweighted engine: LIU-D6, LIU-I8, tests LIU-C3, C4, C6."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from scipy.optimize import minimize

import kikuchi as kk
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError, MethodError, ModelError
from kikuchi.engines.messages.reweighted import ReweightedMessages, reweighted_free_energy
from kikuchi.graphs.appearances import sampled_appearances, uniform_appearances
from kikuchi.methods.registry import parse_method
from oracle import enumerate_exact, random_model

TEXTS = ["trw", "trw:appearances=sampled,forests=5", "trw:appearances=optimised,rounds=4"]


def two_states_or_more(graph: kk.FactorGraph) -> kk.FactorGraph:
    """The engine, unlike a method, takes no variable of one state."""
    return graph.condition({int(v): 0 for v in np.flatnonzero(graph.cardinalities == 1)}).graph


def literal_free_energy(
    graph: kk.FactorGraph, mu: np.ndarray, singles: list[np.ndarray], tables: list[np.ndarray]
) -> float:
    """LIU-D6 by loops over table entries."""
    total = sum(float(np.sum(b[b > 0] * np.log(b[b > 0]))) for b in singles)
    for a in range(graph.n_factors):
        for state in itertools.product(*(range(k) for k in graph.shape(a))):
            b = tables[a][state]
            if b > 0:
                rest = np.prod([singles[v][x] for v, x in zip(graph.scope(a), state, strict=True)])
                total += mu[a] * b * np.log(b / rest) - b * graph.log_table(a)[state]
    return total - graph.log_constant


# ---------------------------------------------------------------------- the bound


@pytest.mark.parametrize("zeros", [0.0, 0.3])
@pytest.mark.parametrize("order", [2, 4])
def test_bound_holds_wherever_the_run_stops(order: int, zeros: float) -> None:
    """LIU-C3: after 1, 2, 3 sweeps and at the end, mixed cardinalities, weak to strong tables."""
    # LIU-I8
    for seed in range(12):
        rng = np.random.default_rng(1000 * order + seed)
        scale = (0.3, 1.0, 3.0, 10.0)[seed % 4]
        graph = random_model(rng, n=6, n_factors=9, max_order=order, zeros=zeros, scale=scale)
        with np.errstate(divide="ignore"):
            log_z, _, _ = enumerate_exact(graph)
        for text in TEXTS:
            for limit in (1, 2, 3, None):
                beliefs = kk.infer(graph, text, budget=kk.Budget(iterations=limit))
                assert beliefs.log_z_upper is not None
                assert beliefs.log_z_upper >= log_z - 1e-10 * max(1.0, abs(log_z))
                assert beliefs.log_z < beliefs.log_z_upper < beliefs.log_z + 1e-9
                assert np.min(beliefs.trace.objective) >= log_z - 1e-9
            assert beliefs.converged or "optimised" in text  # tiny weights at scale 10 are slow


def test_bound_holds_at_any_messages_and_any_split() -> None:
    """Not only where sweeps lead: random messages, and the roots at one variable or spread."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        graph = two_states_or_more(
            random_model(np.random.default_rng(seed), n=6, n_factors=8, max_order=3)
        )
        log_z = enumerate_exact(graph)[0] - graph.log_constant
        found = sampled_appearances(graph, 7, rng)
        engine = ReweightedMessages(graph, found.weights)
        for scale in (0.1, 1.0, 5.0):
            messages = scale * rng.normal(size=engine.messages.size)
            single = np.repeat(
                (np.diff(graph.scope_offsets) == 1)[graph.edge_factors],
                graph.cardinalities[graph.scopes],
            )
            engine.set_messages(np.where(single, 0.0, messages))
            assert engine.log_z_upper(found.parents) >= log_z - 1e-10


def test_mean_field_and_reweighting_bracket_log_z() -> None:
    """LIU-C3."""
    for seed in range(10):
        graph = kk.generate.complete(7, coupling=0.5, seed=seed)
        log_z, _, _ = enumerate_exact(graph)
        lower, upper = kk.infer(graph, "mf").log_z_lower, kk.infer(graph, "trw").log_z_upper
        assert lower is not None and upper is not None
        assert lower <= log_z <= upper
        assert upper - log_z < 4.0


def test_answer_is_the_least_free_energy_on_the_local_polytope() -> None:
    """Against a general optimiser over pseudo-marginals of a triangle."""
    # TEH-X3, LIU-D6
    for seed in range(2):
        graph = kk.generate.complete(3, coupling=1.0, seed=seed)
        mu = uniform_appearances(graph).weights
        pairs = [a for a in range(graph.n_factors) if len(graph.scope(a)) == 2]

        def beliefs(x: np.ndarray, graph: kk.FactorGraph = graph, pairs: list = pairs) -> tuple:
            singles = [np.array([1 - p, p]) for p in x[:3]]
            tables = []
            for a in range(graph.n_factors):
                if a not in pairs:
                    tables.append(singles[graph.scope(a)[0]])
                    continue
                i, j = graph.scope(a)
                both = x[3 + pairs.index(a)]
                rest = 1 - x[i] - x[j] + both
                tables.append(np.array([[rest, x[j] - both], [x[i] - both, both]]))
            return singles, tables

        def energy(x: np.ndarray, graph: kk.FactorGraph = graph, mu: np.ndarray = mu) -> float:
            singles, tables = beliefs(x)
            if min(t.min() for t in tables) <= 0:
                return 1e6
            return literal_free_energy(graph, mu, singles, tables)

        start = np.array([0.5] * 3 + [0.25] * 3)
        options = {"xatol": 1e-7, "fatol": 1e-11, "maxiter": 3000, "maxfev": 3000}
        best = minimize(energy, start, method="Nelder-Mead", options=options)
        best = minimize(energy, best.x, method="Nelder-Mead", options=options)
        found = kk.infer(graph, "trw:tol=1e-12")
        assert found.log_z == pytest.approx(-best.fun, abs=1e-7)
        np.testing.assert_allclose(found.flat_marginals[1::2], best.x[:3], atol=1e-3)


def test_the_free_energy_of_the_answer_is_the_bound() -> None:
    """LIU-D6: primal and dual values meet at the optimum, and the pieces are consistent."""
    for seed in range(10):
        graph = random_model(np.random.default_rng(seed), n=6, n_factors=9, max_order=2, zeros=0.1)
        beliefs = kk.infer(graph, "trw:tol=1e-13")
        weights = np.ones(graph.n_factors)
        reduced = two_states_or_more(graph)
        if not reduced.n_factors:
            continue
        kept = graph.condition({int(v): 0 for v in np.flatnonzero(graph.cardinalities == 1)})
        if not reduced.is_forest:
            weights[kept.factors] = uniform_appearances(reduced).weights
        energy = reweighted_free_energy(
            graph, weights, beliefs.flat_marginals, beliefs.flat_factors
        )
        assert beliefs.log_z == pytest.approx(-energy, abs=1e-9)
        tables = [beliefs.factor(a) for a in range(graph.n_factors)]
        assert energy == pytest.approx(
            literal_free_energy(graph, weights, beliefs.marginals, tables), abs=1e-10
        )
        for a in range(graph.n_factors):
            for k, v in enumerate(graph.scope(a)):
                axes = tuple(i for i in range(tables[a].ndim) if i != k)
                np.testing.assert_allclose(tables[a].sum(axis=axes), beliefs[v], atol=1e-9)


# ---------------------------------------------------------------------- special cases


def test_exact_on_trees() -> None:
    """LIU-C4, factors of any order."""
    for seed in range(10):
        tree = kk.generate.random_tree(10, seed=seed, states=3)
        log_z, singles, tables = enumerate_exact(tree)
        beliefs = kk.infer(tree, "trw:tol=1e-13")
        assert beliefs.converged
        assert beliefs.log_z_upper == pytest.approx(log_z, abs=1e-10)
        assert beliefs.log_z_lower is None  # a test of residuals proves nothing
        np.testing.assert_allclose(beliefs.flat_marginals, np.concatenate(singles), atol=1e-10)
        flat = np.concatenate([t.ravel() for t in tables])
        np.testing.assert_allclose(beliefs.flat_factors, flat, atol=1e-10)
    rng = np.random.default_rng(0)
    hyper = kk.FactorGraph(
        [2, 3, 2, 2, 2],
        [((0, 1, 2), rng.random(12)), ((2, 3, 4), rng.random(8)), ((1,), rng.random(3))],
    )
    assert kk.infer(hyper, "trw:tol=1e-13").log_z == pytest.approx(
        enumerate_exact(hyper)[0], abs=1e-11
    )


def test_weights_of_one_are_belief_propagation() -> None:
    """LIU-D6 with mu = 1 is Bethe, on graphs with cycles too, in all three arithmetics."""
    for graph, arithmetic in [
        (kk.grid(4, 4, coupling=0.5, seed=2), "ratios"),
        (kk.grid(3, 3, coupling=0.5, states=3, seed=1), "probabilities"),
        (two_states_or_more(random_model(np.random.default_rng(3), n=7, zeros=0.2)), None),
    ]:
        bp = kk.infer(graph, "bp:tol=1e-12,damping=0.3")
        engine = ReweightedMessages(graph, np.ones(graph.n_factors))
        assert engine.sweeps(500, 0.3) < 1e-12
        if arithmetic:
            assert engine.arithmetic == arithmetic
        assert bp.converged
        np.testing.assert_allclose(engine.marginals(), bp.flat_marginals, atol=1e-9)
        np.testing.assert_allclose(engine.factor_marginals(), bp.flat_factors, atol=1e-9)
        assert engine.log_z() + graph.log_constant == pytest.approx(bp.log_z, abs=1e-9)
        if graph.is_forest:
            continue
        # Logarithms, forced by a table whose entries are too far apart, give the same.
        logs = ReweightedMessages(graph, np.ones(graph.n_factors))
        logs._ratios = None
        logs._set_mode(1)
        logs.sweeps(500, 0.3)
        assert logs.arithmetic == "logarithms"
        np.testing.assert_allclose(logs.marginals(), engine.marginals(), atol=1e-10)
        assert logs.log_z() == pytest.approx(engine.log_z(), abs=1e-9)


def literal_sweep(graph: kk.FactorGraph, mu: np.ndarray, n: dict, fields: list) -> dict:
    """One parallel sweep of LIU-I8 (3.20) as printed; n[t, s] is the message from t to s."""
    edges = {graph.scope(a): a for a in range(graph.n_factors) if len(graph.scope(a)) == 2}
    new = {}
    for (i, j), a in edges.items():
        for t, s in ((i, j), (j, i)):
            table = graph.table(a) if (t, s) == (i, j) else graph.table(a).T
            inner = fields[t] * n[s, t] ** (mu[a] - 1.0)
            for (u, v), b in edges.items():
                if t in (u, v) and b != a:
                    w = v if t == u else u
                    inner = inner * n[w, t] ** mu[b]
            message = inner @ table ** (1.0 / mu[a])
            new[t, s] = message / message.sum()
    return new


@pytest.mark.parametrize("states", [2, 3])
def test_parallel_sweeps_are_the_printed_update(states: int) -> None:
    # LIU-I8
    graph = kk.grid(3, 3, coupling=1.0, states=states, seed=4)
    mu = uniform_appearances(graph).weights
    fields = [graph.table(a) for a in range(9)]
    assert all(graph.scope(a) == (a,) for a in range(9))
    edges = [graph.scope(a) for a in range(9, graph.n_factors)]
    n = {}
    for i, j in edges:
        n[i, j] = n[j, i] = np.full(states, 1 / states)
    engine = ReweightedMessages(graph, mu, schedule="parallel")
    for _ in range(5):
        n = literal_sweep(graph, mu, n, fields)
        engine.sweeps(1)
        belief = []
        for v in range(9):
            b = fields[v].copy()
            for (i, j), a in zip(edges, range(9, graph.n_factors), strict=True):
                if v in (i, j):
                    b = b * n[(j if v == i else i), v] ** mu[a]
            belief.append(b / b.sum())
        np.testing.assert_allclose(engine.marginals(), np.concatenate(belief), atol=1e-12)


def test_informations_are_those_of_the_beliefs() -> None:
    graph = two_states_or_more(
        random_model(np.random.default_rng(5), n=6, n_factors=8, max_order=3, zeros=0.1)
    )
    weights = sampled_appearances(graph, 20, np.random.default_rng(0)).weights
    engine = ReweightedMessages(graph, weights)
    engine.sweeps(300)
    tables, marginals = (
        engine.factor_marginals(),
        np.split(engine.marginals(), graph.state_offsets[1:-1]),
    )
    for a, found in enumerate(engine.informations()):
        b = tables[graph.table_offsets[a] : graph.table_offsets[a + 1]].reshape(graph.shape(a))
        product = np.ones(())
        for v in graph.scope(a):
            product = np.multiply.outer(product, marginals[v])
        inside = b > 0
        expected = np.sum(b[inside] * np.log(b[inside] / product[inside]))
        assert found == pytest.approx(expected, abs=1e-9)


# ---------------------------------------------------------------------- appearances


def test_optimising_lowers_the_bound_round_by_round() -> None:
    for graph in (
        kk.grid(4, 4, seed=1),
        kk.generate.complete(6, seed=2),
        random_model(np.random.default_rng(6), n=8, n_factors=12, max_order=3, scale=2.0),
    ):
        log_z, _, _ = enumerate_exact(graph)
        bounds = [
            kk.infer(graph, f"trw:appearances=optimised,rounds={k},gap=0").log_z_upper
            for k in (0, 1, 2, 4, 8)
        ]
        assert all(after <= before + 1e-9 for before, after in itertools.pairwise(bounds))
        assert bounds[-1] < bounds[0] - 1e-3
        assert bounds[-1] >= log_z


def test_given_appearances() -> None:
    graph = kk.grid(3, 3, seed=5)
    weights = uniform_appearances(graph).weights
    given = kk.methods.TreeReweighted(appearances=weights.tolist())
    assert given.run(graph).log_z == pytest.approx(kk.infer(graph, "trw").log_z, abs=1e-9)
    assert len(given.text) <= 200
    third = kk.methods.TreeReweighted(appearances=0.5)
    assert third == parse_method("trw:appearances=0.5") == parse_method(third.text)
    looser = third.run(graph)
    assert looser.log_z >= enumerate_exact(graph)[0]
    with pytest.raises(MethodError, match="no forest contains more than"):
        kk.infer(graph, "trw:appearances=0.9")
    with pytest.raises(MethodError, match="one for each of the 21 factors, got 2"):
        kk.infer(graph, "trw:appearances=0.9/0.5")
    with pytest.raises(MethodError, match="one of uniform, sampled, optimised, or numbers"):
        kk.methods.TreeReweighted(appearances="best")
    # Those of the factors that evidence leaves are taken from the list.
    observed = given.run(graph, evidence={4: 1})
    assert observed.log_z_upper >= kk.infer(graph, "jt", evidence={4: 1}).log_z


def test_seconds_hold_on_large_models_and_appearances_are_sampled_for_want_of_time() -> None:
    graph = kk.grid(110, 110, coupling=1.0, seed=0)
    kk.infer(kk.grid(4, 4, seed=0), "trw:appearances=sampled")  # loads what is compiled
    hurried = kk.infer(graph, "trw", budget=kk.Budget(seconds=0.02))
    assert hurried.diagnostics["appearances"] == "sampled"
    assert any("uniform ones would have taken too long" in text for text in hurried.warnings)
    unhurried = kk.infer(graph, "trw", budget=kk.Budget(iterations=3))
    assert unhurried.diagnostics["appearances"] == "uniform"
    assert not any("uniform ones" in text for text in unhurried.warnings)
    assert min(hurried.log_z_upper, unhurried.log_z_upper) > kk.infer(graph, "mf").log_z_lower


def test_parallel_factors_disconnected_parts_and_lone_variables() -> None:
    rng = np.random.default_rng(7)
    graph = kk.FactorGraph(
        [2, 3, 2, 2, 2, 4],
        [
            ((0, 1), rng.random(6)),
            ((1, 0), rng.random(6)),
            ((0, 1), rng.random(6)),
            ((2, 3), rng.random(4)),
            ((4,), rng.random(2)),
        ],
    )
    log_z, singles, _ = enumerate_exact(graph)
    for text in TEXTS:
        beliefs = kk.infer(graph, text)
        assert beliefs.converged and beliefs.log_z >= log_z - 1e-12
        np.testing.assert_allclose(beliefs[5], 0.25)
        np.testing.assert_allclose(beliefs[4], singles[4], atol=1e-12)
        np.testing.assert_allclose(beliefs[3], singles[3], atol=1e-8)
    only_fields = kk.FactorGraph([2, 2], [((0,), [1, 3]), ((1,), [2, 2])])
    assert kk.infer(only_fields, "trw").log_z == pytest.approx(np.log(16))


def test_zeros_exclude_states_for_good() -> None:
    equal = np.eye(2)
    graph = kk.FactorGraph(
        [2, 2, 2], [((0, 1), equal), ((1, 2), equal), ((0, 2), [[1, 2], [3, 4]]), ((0,), [0, 1])]
    )
    beliefs = kk.infer(graph, "trw")
    assert beliefs.log_z == pytest.approx(np.log(4))
    assert beliefs.flat_marginals.tolist() == [0, 1, 0, 1, 0, 1]
    with pytest.raises(ImpossibleEvidenceError):
        kk.infer(graph, "trw", evidence={2: 0})
    # A state that no sweep excludes but the optimum does: messages run off, beliefs settle.
    odd = np.array([[0.0, 1.0], [1.0, 0.0]])
    hidden = kk.FactorGraph(
        [3, 2, 2, 2],
        [
            ((1, 2), equal),
            ((2, 3), equal),
            ((0, 1, 3), np.stack([equal, equal, odd])),
        ],
    )
    beliefs = kk.infer(hidden, "trw")
    assert beliefs.log_z_upper >= np.log(4) - 1e-12


def test_strong_couplings_and_large_tables_stay_finite() -> None:
    strong = kk.grid(4, 4, coupling=300.0, field=300.0, seed=0)
    log_z = kk.infer(strong, "jt").log_z
    for text in ("trw:max_iter=200", "trw:appearances=optimised,max_iter=200"):
        beliefs = kk.infer(strong, text)
        assert log_z - 1e-8 <= beliefs.log_z_upper < 1.5 * log_z
        json.dumps(beliefs.to_dict(), allow_nan=False)
    wide = kk.FactorGraph(
        [2, 2, 2],
        [((i, j), [[0, -2000], [-1500, 1000]]) for i, j in ((0, 1), (1, 2), (0, 2))],
        log=True,
    )
    assert kk.infer(wide, "trw").log_z_upper == pytest.approx(3000.0)


def test_budgets() -> None:
    graph = kk.grid(6, 6, seed=1)
    beliefs = kk.infer(graph, "trw", budget=kk.Budget(iterations=2))
    assert (beliefs.converged, beliefs.stopped, beliefs.iterations) == (False, "iterations", 2)
    assert "the upper bound is valid" in beliefs.warnings[0]
    with pytest.raises(BudgetError, match="reweighted message passing needs"):
        kk.infer(kk.generate.random_tree(500), "trw", budget=kk.Budget(bytes=1000))
    assert not kk.infer(graph, "trw", budget=kk.Budget(seconds=1e-9)).converged


def test_interrupted_anywhere_the_bound_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between the appearances of a trial and the weights of the engine, too."""
    graph = kk.grid(3, 3, seed=2)
    log_z, _, _ = enumerate_exact(graph)
    plain = ReweightedMessages.set_weights
    for calls in (2, 3, 5):
        left = calls

        def stopping(self: ReweightedMessages, *args: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            plain(self, *args)

        monkeypatch.setattr(ReweightedMessages, "set_weights", stopping)
        beliefs = kk.infer(graph, "trw:appearances=optimised")
        assert beliefs.stopped == "interrupted" and not beliefs.converged
        assert log_z <= beliefs.log_z_upper < log_z + 5.0


def test_free_energy_checks_its_input() -> None:
    graph = kk.grid(2, 2)
    with pytest.raises(ModelError, match="needs 8 weights, 8 marginal and 24 factor entries"):
        reweighted_free_energy(graph, [1.0], np.ones(8), np.ones(24))
    forbidden = kk.FactorGraph([2, 2], [((0, 1), [[1, 0], [0, 1]])])
    assert reweighted_free_energy(forbidden, [1.0], [0.5] * 4, [0.25] * 4) == np.inf


# ---------------------------------------------------------------------- reference grids


def test_reference_grid(shared) -> None:
    """g10: below what another program finds with 100 random trees (176.839), and optimised."""
    graph = kk.read(shared / "reference" / "grids" / "g10.uai")
    uniform = kk.infer(graph, "trw")
    assert uniform.converged and uniform.log_z == pytest.approx(176.769068, abs=1e-6)
    optimised = kk.infer(graph, "trw:appearances=optimised")
    assert 165.647464292 <= optimised.log_z_upper < 168.51
