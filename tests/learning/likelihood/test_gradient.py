"""Gradient maximum likelihood (TEH-L1, LIU-L1 to L3, L5, D9, HOJ-L1): gradients against finite
differences of log-likelihoods summed over all states, optima against moments and scikit-learn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.learning.ascent import penalised
from kikuchi.learning.data import Data
from kikuchi.learning.likelihood.gradient import GradientML
from kikuchi.learning.likelihood.objective import (
    InnerRuns,
    Likelihood,
    input_variables,
    response_factors,
)
from kikuchi.learning.registry import learn, parse_learner
from kikuchi.learning.ties import FeatureMatrix, Parameters, tied_groups
from oracle import enumerate_exact, random_model


def flat(graph: kk.FactorGraph) -> kk.FactorGraph:
    return graph.with_log_tables(np.where(np.isneginf(graph.log_tables), -np.inf, 0.0))


def samples(graph: kk.FactorGraph, n: int, seed: int = 0) -> np.ndarray:
    return kk.plan(graph).calibrate().sample(n, seed=seed)


def log_z_given(graph: kk.FactorGraph, seen: dict[int, int]) -> float:
    return enumerate_exact(graph.clamp(seen))[0]


def log_likelihood(graph: kk.FactorGraph, rows: np.ndarray, inputs: tuple[int, ...] = ()) -> float:
    """Mean of log p(observed | inputs) by enumeration, missing cells summed out."""
    values = []
    for row in rows:
        seen = {v: int(k) for v, k in enumerate(row) if k >= 0}
        given = {v: seen[v] for v in inputs}
        values.append(log_z_given(graph, seen) - log_z_given(graph, given))
    return float(np.mean(values))


def directed(seed: int) -> kk.FactorGraph:
    """p(a) p(b | a) p(c | a, b) p(d | c), three states for b, one structural zero."""
    rng = np.random.default_rng(seed)
    last = rng.dirichlet([1, 1, 1], size=2)
    last[0] = [0.0, 0.3, 0.7]
    return kk.FactorGraph(
        [2, 3, 2, 3],
        [
            ((0,), rng.dirichlet([1, 1])),
            ((0, 1), rng.dirichlet([1, 1, 1], size=2)),
            ((0, 1, 2), rng.dirichlet([1, 1], size=(2, 3))),
            ((2, 3), last),
        ],
        children=[0, 1, 2, 3],
    )


# ---------------------------------------------------------------------- gradients


CASES = ["complete", "missing", "inputs", "inputs and missing", "ties", "features", "directed"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_gradient_is_that_of_the_enumerated_likelihood(case: str, seed: int) -> None:
    # TEH-L1, TEH-X2, LIU-C18
    rng = np.random.default_rng(seed)
    graph = directed(seed) if case == "directed" else random_model(rng, n=4, n_factors=5)
    if case == "ties":
        graph = kk.grid(2, 2, seed=seed)
    rows = samples(graph, 12, seed)
    inputs: tuple[int, ...] = (0, 2) if "inputs" in case else ()
    if "missing" in case or case == "directed":
        gaps = rng.random(rows.shape) < 0.3
        gaps[:, list(inputs)] = False
        rows = np.where(gaps, -1, rows)
    features = FeatureMatrix(rng.normal(size=(graph.log_tables.size, 3)))
    parameters = Parameters(
        graph, "shape" if case == "ties" else None, features if case == "features" else None
    )
    likelihood = Likelihood(
        graph,
        Data.of(rows, graph).distinct(),
        Budget().start(),
        inputs=np.array(inputs, dtype=np.int64),
    )
    theta = parameters.start + 0.3 * rng.normal(size=parameters.n_free)

    def wanted(point: np.ndarray) -> float:
        model = graph.with_log_tables(parameters.tables(point))
        return log_likelihood(model, rows, inputs) - 0.05 * float(point @ point)

    value, gradient = penalised(likelihood.at, parameters, theta, 0.1)
    assert value == pytest.approx(wanted(theta), abs=1e-9)
    for k in rng.choice(parameters.n_free, size=min(8, parameters.n_free), replace=False):
        step = np.zeros(parameters.n_free)
        step[k] = 1e-5
        slope = (wanted(theta + step) - wanted(theta - step)) / 2e-5
        assert gradient[k] == pytest.approx(slope, abs=1e-7)


def test_moments_match_at_the_optimum_and_parameters_come_back() -> None:
    """LIU-L2: stationary means that model and data agree on every factor."""
    truth = kk.grid(3, 3, seed=2, coupling=0.5, field=0.5)
    rows = samples(truth, 60_000)
    fit = GradientML(tol=1e-7).fit(flat(truth), rows)
    assert fit.converged and fit.stopped == "converged"
    found = kk.infer(fit.graph, "jt")
    data = Data.of(rows, truth)
    assert found.flat_factors == pytest.approx(data.factor_counts(truth) / 60_000, abs=1e-6)
    assert found.flat_marginals == pytest.approx(kk.infer(truth, "jt").flat_marginals, abs=0.01)

    def couplings(graph: kk.FactorGraph) -> np.ndarray:
        tables = [graph.log_table(a) for a in range(graph.n_factors)]
        return np.array([t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0] for t in tables if t.ndim == 2]) / 4

    assert couplings(fit.graph) == pytest.approx(couplings(truth), abs=0.03)
    assert fit.log_likelihood == pytest.approx(fit.objective, abs=1e-9)
    assert fit.log_likelihood >= log_likelihood_of(truth, rows) - 1e-12


def log_likelihood_of(graph: kk.FactorGraph, rows: np.ndarray) -> float:
    return float(np.mean(graph.log_score(rows))) - kk.infer(graph, "jt").log_z


def test_hidden_variables_rise_above_the_start() -> None:
    """LIU-L5 with one variable never seen: the objective climbs and its gradient vanishes."""
    truth = kk.FactorGraph(
        [2, 2, 2, 2], [((0, v), [[4, 1], [1, 3]]) for v in (1, 2, 3)], names=list("hxyz")
    )
    rows = samples(truth, 3000)
    rows[:, 0] = -1
    start = truth.with_log_tables(np.random.default_rng(0).normal(size=truth.log_tables.size))
    fit = GradientML(tol=1e-6).fit(start, rows)
    assert fit.converged
    assert np.diff(fit.trace.objective).min() > -1e-13
    assert fit.objective >= log_likelihood(truth, rows[:200]) - 0.1
    likelihood = Likelihood(start, Data.of(rows, start), Budget().start())
    assert np.abs(likelihood.at(fit.graph.log_tables)[1]).max() < 1e-5


# ---------------------------------------------------------------------- kinds of inference


def test_belief_propagation_on_a_tree_learns_the_same() -> None:
    truth = kk.generate.random_tree(8, seed=1)
    rows = samples(truth, 500)
    exact = GradientML().fit(flat(truth), rows)
    bethe = GradientML(inference="bp:tol=1e-12").fit(flat(truth), rows)
    assert bethe.objective == pytest.approx(exact.objective, abs=1e-8)
    assert bethe.diagnostics["free"].startswith("bp") and bethe.diagnostics["inner_failures"] == 0


def test_bethe_learning_matches_moments_of_its_own_beliefs() -> None:
    truth = kk.grid(4, 4, seed=3, coupling=0.3, field=0.3)
    rows = samples(truth, 2000)
    fit = GradientML(inference="bp:tol=1e-12", tol=1e-7).fit(flat(truth), rows)
    assert fit.converged
    beliefs = kk.infer(fit.graph, "bp:tol=1e-12").flat_factors
    assert beliefs == pytest.approx(Data.of(rows, truth).factor_counts(truth) / 2000, abs=1e-6)


def test_clamped_phase_by_another_method() -> None:
    truth = kk.generate.random_tree(6, seed=4)
    rows = samples(truth, 60)
    rows[np.random.default_rng(0).random(rows.shape) < 0.2] = -1
    exact = GradientML(max_iter=20).fit(flat(truth), rows, score=False)
    other = GradientML(max_iter=20, clamped="bp:tol=1e-13").fit(flat(truth), rows, score=False)
    assert other.diagnostics["clamped"] == "bp:tol=1e-13"
    assert other.objective == pytest.approx(exact.objective, abs=1e-6)


def test_inner_inference_that_fails_is_damped_counted_and_told() -> None:
    spins = kk.generate.complete(8, seed=0, coupling=2.0, field=0.1)
    clock = Budget().start()
    engine = InnerRuns(spins, "bp:max_iter=3,damping=0", clock)
    engine.run(spins)
    assert [m.damping for m in engine.methods] == [0.0, 0.5, 0.9]
    assert engine.failures >= 1 and engine.level >= 1
    assert "did not converge" in engine.warnings[0]
    rows = samples(spins, 200)
    text = "bp:max_iter=2,damping=0"
    told = GradientML(inference=text, on_divergence="stop", max_iter=5).fit(
        spins, rows, score=False
    )
    assert told.stopped == "diverged" and any("on_divergence=stop" in w for w in told.warnings)
    switched = GradientML(inference=text, on_divergence="jt", max_iter=5).fit(
        spins, rows, score=False
    )
    assert switched.diagnostics["inner_failures"] == 1
    assert any("changed to jt" in w for w in switched.warnings)


def test_auto_says_what_it_took() -> None:
    small = kk.grid(3, 3, seed=0)
    assert GradientML(max_iter=1).fit(small, samples(small, 10)).diagnostics["free"] == "exact"
    large = kk.generate.complete(30, seed=0, coupling=0.05)
    rows = np.random.default_rng(0).integers(2, size=(50, 30))
    fit = GradientML(max_iter=2).fit(large, rows, score=False)
    assert fit.diagnostics["free"] == "bp"


def test_a_method_without_log_z_needs_adam() -> None:
    graph = kk.grid(2, 2, seed=0)
    rows = samples(graph, 20)
    with pytest.raises(MethodError, match="solver=adam"):
        GradientML(inference="gibbs:sweeps=20").fit(graph, rows, score=False)
    fit = GradientML(inference="gibbs:sweeps=50", solver="adam", max_iter=3).fit(
        graph, rows, score=False
    )
    assert fit.objective is None and np.isfinite(fit.graph.log_tables).all()


# ---------------------------------------------------------------------- optimisers and priors


@pytest.mark.parametrize("text", ["adam,learning_rate=0.1", "sgd,learning_rate=0.3"])
def test_stochastic_reaches_the_same_optimum(text: str) -> None:
    truth = kk.grid(2, 3, seed=0, coupling=0.5)
    rows = samples(truth, 400)
    exact = GradientML().fit(flat(truth), rows)
    full = learn(flat(truth), rows, f"gradient:solver={text},max_iter=400,tol=1e-4")
    assert full.objective == pytest.approx(exact.objective, abs=1e-4)
    small = learn(flat(truth), rows, f"gradient:solver={text},batch=50,max_iter=60,decay=0.2")
    assert small.objective == pytest.approx(exact.objective, abs=0.01)


@pytest.mark.parametrize("optimiser", ["lbfgs", "sgd"])
def test_l1_gives_zeros_and_meets_its_conditions(optimiser: str) -> None:
    truth = kk.grid(3, 3, seed=0, coupling=0.4, field=0.2)
    rows = samples(truth, 1000)
    learner = GradientML(l1=0.02, solver=optimiser, learning_rate=1.0, max_iter=800, tol=1e-5)
    fit = learner.fit(flat(truth), rows)
    assert fit.converged
    theta = fit.graph.log_tables
    counts = Data.of(rows, truth).factor_counts(truth) / 1000
    slope = counts - kk.infer(fit.graph, "jt").flat_factors
    zero = theta == 0
    assert 5 < zero.sum() < len(theta)
    assert np.all(np.abs(slope[zero]) <= 0.02 + 2e-5)
    assert slope[~zero] == pytest.approx(0.02 * np.sign(theta[~zero]), abs=2e-5)


def test_gaussian_prior_shrinks() -> None:
    # LIU-L3
    truth = kk.grid(2, 2, seed=0)
    rows = samples(truth, 100)
    norms = [
        float(np.linalg.norm(GradientML(l2=l2).fit(flat(truth), rows).graph.log_tables))
        for l2 in (0.01, 0.1, 1.0)
    ]
    assert norms[0] > norms[1] > norms[2] > 0


# ---------------------------------------------------------------------- tied and conditional


def test_ties_share_one_table() -> None:
    chain = kk.FactorGraph([2] * 5, [((i, i + 1), [[3, 1], [1, 2]]) for i in range(4)])
    rows = samples(chain, 4000)
    fit = GradientML(ties="0-1,3;2").fit(flat(chain), rows)
    assert np.array_equal(fit.graph.log_table(0), fit.graph.log_table(3))
    assert not np.array_equal(fit.graph.log_table(0), fit.graph.log_table(2))
    assert len(fit.diagnostics["theta"]) == 8
    assert parse_learner("gradient:ties=(0-1,3;2)").ties == "0-1,3;2"


def test_logistic_regression_is_a_conditional_special_case() -> None:
    """One feature [y = 1, x_i = 1] for each input: the same weights as scikit-learn's."""
    # TEH-X2
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    n, d = 400, 5
    x = rng.integers(2, size=(n, d))
    y = (rng.random(n) < 1 / (1 + np.exp(-(x @ rng.normal(size=d) * 2 - 0.5)))).astype(int)
    graph = kk.FactorGraph([2] * (d + 1), [((d, i), np.ones(4)) for i in range(d)])
    matrix = np.zeros((4 * d, d))
    matrix[4 * np.arange(d) + 3, np.arange(d)] = 1.0
    rows = np.column_stack([x, y])
    inputs = ",".join(map(str, range(d)))
    fit = GradientML(inputs=inputs, features=FeatureMatrix(matrix), l2=1 / n, tol=1e-9).fit(
        graph, rows, score=False
    )
    theirs = linear.LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000)
    theirs.fit(x, y)
    assert fit.diagnostics["theta"] == pytest.approx(theirs.coef_[0], abs=1e-5)


def test_inputs_must_be_known_and_observed() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), np.ones(4))], names=["x", "y"])
    assert input_variables(graph, "y,0").tolist() == [0, 1]
    with pytest.raises(MethodError, match="inputs"):
        GradientML(inputs="z").fit(graph, [[0, 0]])
    with pytest.raises(DataError, match="row 1 does not say the state of the input x"):
        GradientML(inputs="x").fit(graph, [[0, 0], [-1, 0]])


# ---------------------------------------------------------------------- zeros, bad input, warnings


def test_zeros_stay_zero_and_impossible_rows_are_refused() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), [[1, 1], [0, 1]])])
    fit = GradientML().fit(graph, [[0, 0], [0, 1], [1, 1], [1, -1]])
    assert np.isneginf(fit.graph.log_tables).tolist() == [False, False, True, False]
    with pytest.raises(DataError, match="row 1 is impossible"):
        GradientML().fit(graph, [[0, 0], [1, 0]])
    with pytest.raises(DataError, match="row 0 is impossible"):
        blocked = kk.FactorGraph([2, 2], [((0, 1), [[1, 1], [0, 0]]), ((0,), [1, 1])])
        GradientML().fit(blocked, [[1, -1]])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("gradient:l1=1,solver=adam", "l1 needs"),
        ("gradient:batch=5", "batch needs"),
        ("gradient:inference=nonsense", "no method 'nonsense'"),
        ("gradient:on_divergence=explode", "no method 'explode'"),
        ("gradient:ties=0-9", "not within"),
        ("gradient:ties=a", "no factor"),
        ("gradient:ties=(0;0)", "named twice"),
    ],
)
def test_bad_options_are_one_line(text: str, what: str) -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), np.ones(4)), ((1, 0), np.ones(4))])
    with pytest.raises(MethodError, match=what):
        learn(graph, [[0, 0]], text)


def test_ties_need_equal_shapes_and_zeros() -> None:
    graph = kk.FactorGraph([2, 3], [((0,), [1, 1]), ((1,), [1, 1, 1]), ((0,), [0, 1])])
    with pytest.raises(ModelError, match="different shapes"):
        tied_groups(graph, "0,1")
    with pytest.raises(ModelError, match="zeros in different places"):
        Parameters(graph, "0,2")
    with pytest.raises(ModelError, match="one row for each entry"):
        GradientML(features=FeatureMatrix(np.ones((3, 1)))).fit(graph, [[1, 0]])


def test_few_rows_without_a_prior_are_warned_about() -> None:
    graph = kk.grid(3, 3, seed=0)
    rows = samples(graph, 5)
    assert any("no prior" in w for w in GradientML(max_iter=2).fit(graph, rows).warnings)
    assert not GradientML(max_iter=2, l2=0.1).fit(graph, rows).warnings


def test_duplicate_scopes_single_variables_and_single_states() -> None:
    graph = kk.FactorGraph(
        [2, 1, 3], [((0, 1), [1, 1]), ((1, 0), [1, 1]), ((2,), [1, 1, 1]), ((1,), [1])]
    )
    fit = GradientML().fit(graph, [[0, 0, 2], [1, 0, 2], [1, 0, 0], [1, 0, 1]])
    marginals = kk.infer(fit.graph, "jt").flat_marginals
    assert marginals == pytest.approx([0.25, 0.75, 1, 0.25, 0.25, 0.5], abs=1e-5)


# ---------------------------------------------------------------------- fewer sweeps inside


def sweeps_inside(monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[int, float]:
    """Sweeps of inner inference in all of a fit, and the mean log-likelihood that it ends at."""
    truth = kk.grid(4, 4, seed=3, coupling=0.7, field=0.2)
    counted, run = [], InnerRuns._run

    def counting(
        self: InnerRuns, graph: kk.FactorGraph, evidence: dict[int, int] | None
    ) -> kk.Beliefs:
        beliefs = run(self, graph, evidence)
        counted.append(beliefs.iterations)
        return beliefs

    with monkeypatch.context() as patch:
        patch.setattr(InnerRuns, "_run", counting)
        fit = learn(flat(truth), samples(truth, 500), text)
    assert fit.log_likelihood is not None
    return sum(counted) // len(counted), fit.log_likelihood


@pytest.mark.parametrize("method", ["kikuchi:regions=faces", "trw"])
def test_inner_runs_that_minimise_start_from_each_other(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"gradient:inference=({method}),tol=1e-4"
    warm, reached = sweeps_inside(monkeypatch, text)
    monkeypatch.setattr(InnerRuns, "keep", lambda self: None)
    cold, aim = sweeps_inside(monkeypatch, text)
    assert warm < 0.9 * cold
    assert reached == pytest.approx(aim, abs=1e-3)


def test_inner_runs_of_adam_are_as_precise_as_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "gradient:inference=bp,solver=adam,learning_rate=0.05,max_iter=60"
    loose, reached = sweeps_inside(monkeypatch, text)
    exact, aim = sweeps_inside(monkeypatch, f"{text},precision=0")
    assert loose < 0.5 * exact
    assert reached == pytest.approx(aim, abs=1e-2)


# ---------------------------------------------------------------------- stopping and resuming


def test_seconds_end_a_fit_and_keep_its_best() -> None:
    graph = kk.grid(8, 8, seed=0)
    rows = np.random.default_rng(0).integers(2, size=(50, 64))
    learner = GradientML(inference="gbp:regions=faces", max_iter=10_000, tol=0)
    learner.fit(
        flat(kk.grid(2, 2)), rows[:, :4], budget=Budget(iterations=1), score=False
    )  # compiles
    fit = learner.fit(flat(graph), rows, budget=Budget(seconds=0.5), score=False)
    assert fit.stopped == "seconds" and fit.seconds < 5
    assert np.isfinite(fit.graph.log_tables).all()


# ---------------------------------------------------------------------- linear response (HOJ-L1)


def _weak_machine(n: int = 5) -> tuple[kk.FactorGraph, np.ndarray]:
    rng = np.random.default_rng(3)
    pairs = {(i, j): float(0.3 * rng.standard_normal()) for i in range(n) for j in range(i)}
    machine = kk.boltzmann_graph(pairs, (0.3 * rng.standard_normal(n)).tolist())
    return machine, kk.plan(machine).calibrate().sample(5000, seed=1)


def test_response_of_an_exact_method_is_its_beliefs() -> None:
    machine, _ = _weak_machine()
    exact = kk.infer(machine, "jt")
    assert np.allclose(response_factors(exact), exact.flat_factors, atol=1e-12)


def test_learning_by_linear_response_matches_means_and_correlations() -> None:
    """At the fixed point (D^-1 - W)^-1, D = m (1 - m), has the data's correlations (HOJ-I11)."""
    machine, rows = _weak_machine()
    text = "gradient:inference=mf,correlations=response,solver=adam,max_iter=3000,tol=1e-7"
    fit = kk.learn(machine, rows, text + ",learning_rate=0.02,decay=0.01")
    assert fit.converged
    weights, biases = np.zeros((5, 5)), np.zeros(5)
    for a in range(fit.graph.n_factors):
        table = fit.graph.log_table(a)
        if table.ndim == 1:
            biases[fit.graph.scope(a)[0]] += table[1] - table[0]
            continue
        i, j = fit.graph.scope(a)
        weights[i, j] = weights[j, i] = table[1, 1] - table[0, 1] - table[1, 0] + table[0, 0]
        biases[i] += table[1, 0] - table[0, 0]
        biases[j] += table[0, 1] - table[0, 0]
    m = rows.mean(axis=0)
    assert np.allclose(m, 1 / (1 + np.exp(-(weights @ m + biases))), atol=1e-5)
    response = np.linalg.inv(np.diag(1 / (m * (1 - m))) - weights)
    off = ~np.eye(5, dtype=bool)
    assert np.allclose(response[off], np.cov(rows.T, bias=True)[off], atol=1e-5)
    plain = kk.learn(machine, rows, "gradient:inference=mf,solver=adam,max_iter=300")
    assert fit.log_likelihood > plain.log_likelihood


def test_response_needs_pairs_and_no_line_search() -> None:
    with pytest.raises(MethodError, match="use solver adam or sgd"):
        kk.learning.GradientML(correlations="response")
    triple = kk.FactorGraph([2] * 3, [((0, 1, 2), np.ones(8))])
    with pytest.raises(MethodError, match="factors of one or two variables"):
        kk.learning.GradientML(inference="mf", correlations="response", solver="sgd").fit(
            triple, [[0, 1, 0]]
        )


@pytest.mark.parametrize("other", ["bp", "jt", "mf", "kikuchi:regions=bethe"])
def test_another_method_does_not_start_from_what_the_first_has_reached(other: str) -> None:
    grid = kk.grid(3, 3, seed=0, coupling=0.5)
    runs = InnerRuns(grid, "kikuchi", kk.Budget().start(), other)
    runs.run(grid)
    runs.keep()
    kept = runs.start.value
    runs.methods[0] = kk.methods.Kikuchi(max_iter=1)
    assert runs.run(grid.with_log_tables(2.0 * grid.log_tables)).converged
    runs.keep()
    assert runs.level == 1 and runs.start.value is kept


@pytest.mark.parametrize("text", ["trw", "kikuchi"])
def test_runs_go_on_from_arrays_where_a_variable_has_one_state(text: str) -> None:
    graph = kk.FactorGraph([2, 1, 2], [((0, 1, 2), np.ones((2, 1, 2))), ((0,), [1, 2])])
    runs, resumed = (InnerRuns(graph, text, kk.Budget().start()) for _ in range(2))
    runs.run(graph)
    runs.keep()
    resumed.load(runs.to_arrays())
    assert resumed.run(graph).log_z == pytest.approx(np.log(6.0))


def test_runs_that_follow_one_another_are_saved_where_tables_have_zeros(tmp_path: Path) -> None:
    pairs = [((k, (k + 1) % 4), [[1.0, 1.0], [1.0, 0.0]]) for k in range(4)]
    graph = kk.FactorGraph([2] * 4, [*pairs, ((0, 2), np.ones((2, 2)))])
    rows = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 0, 1]] * 4
    learner = GradientML(inference="kikuchi", l2=0.1, tol=1e-4)
    first, again = (learner.fit(graph, rows, checkpoint=tmp_path / "fit") for _ in range(2))
    assert first.converged and again.converged
    assert np.array_equal(first.graph.log_tables, again.graph.log_tables)
