"""Alpha-BP and fractional BP: LIU-I6, I7, M7, tests LIU-C5 to LIU-C9."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import ImpossibleEvidenceError, MethodError, ModelError
from kikuchi.engines.messages.kernels import reweighted as kernels
from kikuchi.engines.messages.reweighted import ReweightedMessages, reweighted_free_energy
from kikuchi.methods.alpha_bp import AlphaBP, with_prior
from kikuchi.methods.fractional import FractionalBP
from kikuchi.methods.registry import parse_method
from oracle import enumerate_exact, random_model

Messages = dict[tuple[int, int], np.ndarray]


def uniform(graph: kk.FactorGraph) -> Messages:
    """m[a, i]: from factor a, of several variables, to variable i."""
    return {
        (a, i): np.full(int(graph.cardinalities[i]), 1.0 / int(graph.cardinalities[i]))
        for a in range(graph.n_factors)
        for i in graph.scope(a)
        if len(graph.scope(a)) > 1
    }


def field(graph: kk.FactorGraph, i: int) -> np.ndarray:
    out = np.ones(int(graph.cardinalities[i]))
    for a in graph.neighbours(i):
        if len(graph.scope(a)) == 1:
            out = out * graph.table(a)
    return out


def around(graph: kk.FactorGraph, m: Messages, i: int, powers: dict[int, float]) -> np.ndarray:
    """field_i prod_b m_{b->i}^powers[b]."""
    out = field(graph, i)
    for b in graph.neighbours(i):
        if (b, i) in m:
            out = out * m[b, i] ** powers.get(b, 1.0)
    return out


def literal_alpha(graph: kk.FactorGraph, m: Messages, alpha: dict[int, float]) -> Messages:
    """One parallel sweep of LIU-I6 (3.15), for factors of any order, in plain probabilities."""
    new = {}
    for a, i in m:
        scope = graph.scope(a)
        inner = graph.table(a) ** alpha[a]
        for k, j in enumerate(scope):
            if j != i:
                shape = [1] * len(scope)
                shape[k] = -1
                inner = inner * around(graph, m, j, {a: 1.0 - alpha[a]}).reshape(shape)
        axes = tuple(k for k, j in enumerate(scope) if j != i)
        message = m[a, i] ** (1.0 - alpha[a]) * inner.sum(axis=axes)
        new[a, i] = message / message.sum()
    return new


def literal_reweighted(graph: kk.FactorGraph, n: Messages, mu: dict[int, float]) -> Messages:
    """One parallel sweep of LIU-I8 (3.20) for factors of any order."""
    new = {}
    for a, i in n:
        scope = graph.scope(a)
        inner = graph.table(a) ** (1.0 / mu[a])
        for k, j in enumerate(scope):
            if j != i:
                shape = [1] * len(scope)
                shape[k] = -1
                powers = {**mu, a: mu[a] - 1.0}
                inner = inner * around(graph, n, j, powers).reshape(shape)
        message = inner.sum(axis=tuple(k for k, j in enumerate(scope) if j != i))
        new[a, i] = message / message.sum()
    return new


def beliefs_of(graph: kk.FactorGraph, m: Messages) -> np.ndarray:
    parts = [around(graph, m, i, {}) for i in range(graph.n_variables)]
    return np.concatenate([b / b.sum() for b in parts])


def models() -> list[kk.FactorGraph]:
    mixed = random_model(np.random.default_rng(3), n=6, n_factors=8, max_order=3)
    return [
        kk.grid(3, 3, seed=1),
        kk.grid(2, 3, states=3, seed=2),
        mixed.condition({int(v): 0 for v in np.flatnonzero(mixed.cardinalities == 1)}).graph,
    ]


# ---------------------------------------------------------------------- the update


@pytest.mark.parametrize("alpha", [0.3, 0.7, 1.0, 1.4, -0.5])
def test_sweeps_are_the_printed_update(alpha: float) -> None:
    """Message by message through the beliefs, ratio form and tables alike (LIU-C9)."""
    # LIU-I6
    for graph in models():
        m = uniform(graph)
        powers = dict.fromkeys(range(graph.n_factors), alpha)
        for sweeps in range(1, 5):
            m = literal_alpha(graph, m, powers)
            method = AlphaBP(alpha=alpha, tol=0.0, max_iter=sweeps)
            found = method.run(graph, budget=kk.Budget(iterations=sweeps))
            engine = ReweightedMessages(
                graph,
                np.full(graph.n_factors, 1 / alpha),
                np.full(graph.n_factors, alpha),
                schedule="parallel",
            )
            engine.sweeps(sweeps)
            np.testing.assert_allclose(engine.marginals(), beliefs_of(graph, m), atol=1e-12)
            assert found.iterations == sweeps
        for (a, i), message in m.items():
            e = int(graph.scope_offsets[a]) + graph.scope(a).index(i)
            part = engine.messages[graph.message_offsets[e] : graph.message_offsets[e + 1]]
            np.testing.assert_allclose(np.exp(part) / np.exp(part).sum(), message, atol=1e-12)


def test_alpha_one_is_belief_propagation_sweep_by_sweep() -> None:
    """LIU-C5."""
    for graph in models():
        for sweeps in (1, 2, 3, 7):
            ours = ReweightedMessages(graph, np.ones(graph.n_factors), 1.0, schedule="parallel")
            ours.sweeps(sweeps)
            bp = kk.methods.BeliefPropagation(schedule="parallel", tol=0.0, max_iter=sweeps)
            np.testing.assert_allclose(ours.marginals(), bp.run(graph).flat_marginals, atol=1e-12)
        ours = kk.infer(graph, "alpha:alpha=1,damping=0.3,tol=1e-12")
        bp = kk.infer(graph, "bp:damping=0.3,tol=1e-12")
        assert ours.converged and bp.converged
        np.testing.assert_allclose(ours.flat_marginals, bp.flat_marginals, atol=1e-9)
        np.testing.assert_allclose(ours.flat_factors, bp.flat_factors, atol=1e-9)
        assert ours.log_z == pytest.approx(bp.log_z, abs=1e-9)


def test_binary_form_equals_tables() -> None:
    """LIU-C9: sweep by sweep, and the update itself against its two closed forms."""
    rng = np.random.default_rng(2)
    graph = kk.generate.complete(6, coupling=1.5, seed=1)
    weights = rng.uniform(0.4, 3.0, graph.n_factors)
    for steps in (0.4, 1.0):  # damped messages, and whole steps that keep their exponentials
        ratios = ReweightedMessages(graph, weights, steps, schedule="parallel")
        tables = ReweightedMessages(graph, weights, steps, schedule="parallel")
        tables._ratios = None
        for _ in range(6):
            assert ratios.sweeps(1) == pytest.approx(tables.sweeps(1), abs=1e-12)
            np.testing.assert_allclose(ratios.marginals(), tables.marginals(), atol=1e-12)
        assert (ratios.arithmetic, tables.arithmetic) == ("ratios", "probabilities")
    for kappa in (-900.0, -30.0, -0.7, 0.0, 1e-5, 2.0, 40.0, 800.0):
        for delta in (-1000.0, -3.0, 0.0, 0.2, 50.0, 900.0):
            with np.errstate(over="ignore", under="ignore"):
                found = kernels._log_ratio.py_func(np.exp(kappa), kappa, delta)
            exact = np.logaddexp(delta + kappa, 0.0) - np.logaddexp(delta, kappa)
            assert found == pytest.approx(exact, abs=1e-12 * max(1, abs(kappa), abs(delta)))
            if max(abs(kappa), abs(delta)) < 5:
                again = 2 * np.arctanh(np.tanh(kappa / 2) * np.tanh(delta / 2))
                assert found == pytest.approx(again, abs=1e-12)


def test_alpha_bp_is_damped_reweighting() -> None:
    """LIU-C6, one alpha a factor: n = m^alpha follows n <- n^(1-alpha) TRW_{1/alpha}(n)^alpha."""
    rng = np.random.default_rng(0)
    for graph in models():
        alpha = {a: float(rng.uniform(0.3, 1.3)) for a in range(graph.n_factors)}
        mu = {a: 1.0 / x for a, x in alpha.items()}
        m = {key: rng.dirichlet(np.ones(len(x))) for key, x in uniform(graph).items()}
        n = {(a, i): x ** alpha[a] for (a, i), x in m.items()}
        moved = literal_reweighted(graph, n, mu)
        for key, message in literal_alpha(graph, m, alpha).items():
            a = key[0]
            damped = n[key] ** (1 - alpha[a]) * moved[key] ** alpha[a]
            again = damped ** mu[a]
            np.testing.assert_allclose(again / again.sum(), message, atol=1e-12)


def test_one_alpha_for_each_factor() -> None:
    # LIU-I6
    rng = np.random.default_rng(1)
    for graph in models():
        alpha = rng.uniform(0.4, 1.0, graph.n_factors)
        m = uniform(graph)
        for _ in range(300):
            m = literal_alpha(graph, m, dict(enumerate(alpha)))
        found = AlphaBP(alpha=alpha.tolist(), tol=1e-13).run(graph)
        assert found.converged
        np.testing.assert_allclose(found.flat_marginals, beliefs_of(graph, m), atol=1e-9)
        energy = reweighted_free_energy(
            graph,
            np.where(np.diff(graph.scope_offsets) > 1, 1 / alpha, 1.0),
            found.flat_marginals,
            found.flat_factors,
        )
        assert found.log_z == pytest.approx(-energy, abs=1e-9)


def test_small_alpha_is_mean_field() -> None:
    """LIU-C7: beliefs and log Z, on a model whose mean field has one fixed point."""
    # HOJ-X7
    graph = kk.grid(3, 3, coupling=0.4, seed=3)
    mean_field = kk.infer(graph, "mf")
    small = kk.infer(graph, "fractional:fraction=0.001,schedule=parallel,damping=0.5,tol=1e-11")
    assert small.converged
    np.testing.assert_allclose(small.flat_marginals, mean_field.flat_marginals, atol=2e-3)
    assert small.log_z == pytest.approx(mean_field.log_z, abs=2e-3)
    slow = kk.infer(graph, "alpha:alpha=0.01,max_iter=10000")
    assert slow.converged
    np.testing.assert_allclose(slow.flat_marginals, mean_field.flat_marginals, atol=2e-2)


def test_factor_beliefs_agree_with_single_ones() -> None:
    """LIU-C8."""
    for graph in models():
        beliefs = kk.infer(graph, "alpha:alpha=0.6,tol=1e-13")
        assert beliefs.converged
        for a in range(graph.n_factors):
            for k, v in enumerate(graph.scope(a)):
                axes = tuple(i for i in range(len(graph.scope(a))) if i != k)
                np.testing.assert_allclose(beliefs.factor(a).sum(axis=axes), beliefs[v], atol=1e-8)


def test_free_energy_is_stationary_at_the_answer() -> None:
    graph = kk.grid(2, 2, seed=4)
    alpha = 0.6
    found = kk.infer(graph, f"alpha:alpha={alpha},tol=1e-14")
    mu = np.where(np.diff(graph.scope_offsets) > 1, 1 / alpha, 1.0)
    rng = np.random.default_rng(0)
    for _ in range(5):  # mixing in any distribution keeps the beliefs consistent
        p = rng.dirichlet(np.ones(16)).reshape([2] * 4)
        singles = np.concatenate(
            [p.sum(axis=tuple(w for w in range(4) if w != v)) for v in range(4)]
        )
        tables = []
        for a in range(graph.n_factors):
            scope = graph.scope(a)
            assert list(scope) == sorted(scope)
            tables.append(p.sum(axis=tuple(w for w in range(4) if w not in scope)).ravel())

        joined = np.concatenate(tables)

        def energy(t: float, singles=singles, tables=joined) -> float:
            return reweighted_free_energy(
                graph,
                mu,
                (1 - t) * found.flat_marginals + t * singles,
                (1 - t) * found.flat_factors + t * tables,
            )

        assert (energy(1e-5) - energy(-1e-5)) / 2e-5 == pytest.approx(0.0, abs=1e-6)


def test_fractional_has_the_fixed_points_of_alpha() -> None:
    for graph in models():
        for value in (0.7, 1.2):
            fractional = kk.infer(graph, f"fractional:fraction={value},damping=0.3,tol=1e-12")
            alpha = kk.infer(graph, f"alpha:alpha={value},damping=0.5,tol=1e-12")
            assert fractional.converged and alpha.converged
            np.testing.assert_allclose(fractional.flat_marginals, alpha.flat_marginals, atol=1e-8)
            assert fractional.log_z == pytest.approx(alpha.log_z, abs=1e-8)


def test_half_settles_where_belief_propagation_does_not() -> None:
    """What alpha is for: the catalogue's shares on such graphs are 0.92 and 0.12 (LIU-I6, D.1)."""
    settled = {0.5: 0, 1.0: 0}
    for seed in range(25):
        graph = kk.generate.random_graph(16, 0.4, coupling=0.6, field=0.3, seed=seed)
        for alpha in settled:
            beliefs = AlphaBP(alpha=alpha, max_iter=200, tol=1e-8).run(graph)
            settled[alpha] += beliefs.converged
    assert settled[0.5] >= 20
    assert settled[1.0] <= 8


# ---------------------------------------------------------------------- priors


def test_prior_multiplies_the_model() -> None:
    """LIU-I7 on LIU-M7, with and without evidence."""
    graph = kk.grid(3, 3, seed=6)
    prior = {0: [0.8, 0.2], 5: [0.1, 0.9]}
    method = AlphaBP(prior=prior)
    augmented = with_prior(graph, prior)
    assert augmented.n_factors == graph.n_factors + 2
    for evidence in ({}, {4: 1}, {5: 0}):
        found = method.run(graph, evidence=evidence)
        expected = AlphaBP().run(augmented, evidence=evidence)
        np.testing.assert_allclose(found.flat_marginals, expected.flat_marginals, atol=1e-12)
        assert found.log_z == pytest.approx(expected.log_z, abs=1e-9)
        assert found.flat_factors.size == graph.log_tables.size
    plain = graph.log_score(np.ones(9, dtype=int)) + np.log(0.2 * 0.9)
    assert augmented.log_score(np.ones(9, dtype=int)) == pytest.approx(plain)


def test_prior_as_text_and_as_list() -> None:
    text = parse_method("alpha:prior=0:0.25+0.75/2:1+0")
    assert text == AlphaBP(prior=[[0.25, 0.75], None, [1, 0]])
    assert parse_method(text.text) == text
    assert AlphaBP(prior=None) == AlphaBP(prior={}) == AlphaBP()
    big = AlphaBP(prior=np.full((5000, 2), 0.5))
    assert len(big.text) <= 200
    tiny = AlphaBP(prior={0: [1e-20, 1e20]})
    assert tiny == parse_method(tiny.text)


@pytest.mark.parametrize(
    "prior", ["x", "0:", "0:a+b", "0=1", {"a": [0.5, 0.5]}, {-1: [0.5, 0.5]}, {0: []}]
)
def test_bad_priors(prior: object) -> None:
    with pytest.raises(MethodError, match="option prior must be none, "):
        AlphaBP(prior=prior)  # type: ignore[arg-type]


def test_priors_that_do_not_fit_the_model() -> None:
    graph = kk.grid(2, 2)
    with pytest.raises(MethodError, match="prior of variable 0: 2 finite non-negative weights"):
        AlphaBP(prior={0: [0.2, 0.3, 0.5]}).run(graph)
    with pytest.raises(MethodError, match="prior of variable 1: all weights are 0"):
        AlphaBP(prior={1: [0, 0]}).run(graph)
    with pytest.raises(ModelError, match="no variable 9"):
        AlphaBP(prior={9: [0.5, 0.5]}).run(graph)
    with pytest.raises(ImpossibleEvidenceError, match="its prior excludes"):
        AlphaBP(prior={0: [1, 0]}).run(graph, evidence={0: 1})


# ---------------------------------------------------------------------- refusals and divergence


@pytest.mark.parametrize("method", ["alpha:alpha=0", "fractional:fraction=0", "alpha:alpha=1e-9"])
def test_zero_names_mean_field(method: str) -> None:
    with pytest.raises(MethodError, match="naive mean field, use mf"):
        kk.infer(kk.grid(2, 2), method)


def test_bad_options() -> None:
    with pytest.raises(MethodError, match="option alpha must be numbers such as"):
        AlphaBP(alpha="half")
    with pytest.raises(MethodError, match="option fraction must be numbers"):
        FractionalBP(fraction=[])
    with pytest.raises(MethodError, match="got nan"):
        AlphaBP(alpha=np.nan)
    with pytest.raises(MethodError, match="one for each of the 8 factors, got 3"):
        kk.infer(kk.grid(2, 2), "alpha:alpha=0.5/0.5/0.5")
    with pytest.raises(MethodError, match="fractions must be above 0, got -1"):
        kk.infer(kk.grid(2, 2), "fractional:fraction=-1")
    zero = kk.FactorGraph([2, 2], [((0,), [1, 2]), ((0, 1), [[1, 0], [1, 1]])])
    with pytest.raises(MethodError, match="below 0 needs tables without zeros, factor 1"):
        kk.infer(zero, "alpha:alpha=-0.5")
    assert AlphaBP(alpha=1) == parse_method("alpha:alpha=1.0")
    assert kk.infer(zero, "alpha").converged


def test_zeros_and_evidence() -> None:
    for seed in range(10):
        graph = random_model(np.random.default_rng(seed), n=6, n_factors=8, zeros=0.3)
        with np.errstate(divide="ignore"):
            _, singles, _ = enumerate_exact(graph)
        for method in ("alpha", "fractional", "alpha:alpha=1", "alpha:schedule=sequential"):
            beliefs = kk.infer(graph, method)
            json.dumps(beliefs.to_dict(), allow_nan=False)
            sums = np.add.reduceat(beliefs.flat_marginals, graph.state_offsets[:-1])
            np.testing.assert_allclose(sums, 1.0)
            assert beliefs.factor(0)[graph.table(0) == 0].sum() == 0
            if graph.is_forest and method == "alpha:alpha=1":
                np.testing.assert_allclose(
                    beliefs.flat_marginals, np.concatenate(singles), atol=1e-9
                )


def test_divergence_answers_with_the_best_point_seen() -> None:
    graph = kk.generate.complete(8, coupling=2.0, seed=0)
    wild = kk.infer(graph, "alpha:alpha=-0.9")
    assert not wild.converged and wild.stopped == "diverged"
    assert "diverged: the best messages still" in wild.warnings[0]
    assert wild.diagnostics["residual"] == min(wild.trace.residual)
    json.dumps(wild.to_dict(), allow_nan=False)
    restless = kk.infer(graph, "alpha:alpha=1.9,max_iter=50")
    assert not restless.converged
    assert restless.diagnostics["residual"] == min(restless.trace.residual)
    np.testing.assert_allclose(restless.flat_marginals.reshape(-1, 2).sum(axis=1), 1.0)
