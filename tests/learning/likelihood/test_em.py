"""EM, generalised EM and variational Bayes (TEH-L2, TEH-L3, LIU-L6, LIU-D8, HOJ-L2, LAW-L1)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaln

import kikuchi as kk
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.graphs.directed import ancestral_sample
from kikuchi.learning.data import Data
from kikuchi.learning.likelihood.dirichlet import ConditionalTables
from kikuchi.learning.likelihood.em import EM, VariationalEM
from kikuchi.learning.likelihood.gradient import GradientML
from oracle import enumerate_exact


def network(seed: int = 0) -> kk.FactorGraph:
    """p(a) p(b | a) p(c | a, b) p(d | c) with the child first, in the middle and last."""
    rng = np.random.default_rng(seed)
    third = rng.dirichlet([1, 1], size=(2, 3)).transpose(0, 2, 1)
    return kk.FactorGraph(
        [2, 3, 2, 3],
        [
            ((0,), rng.dirichlet([2, 2])),
            ((1, 0), rng.dirichlet([2, 2, 2], size=2).T),
            ((0, 2, 1), third),
            ((2, 3), rng.dirichlet([2, 2, 2], size=2)),
        ],
        children=[0, 1, 2, 3],
        names=list("abcd"),
    )


def with_gaps(rows: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, -1, rows)


def mixture(classes: int = 2, seen: int = 4, seed: int = 0) -> kk.FactorGraph:
    """A class that nobody sees and binary features that depend on it alone."""
    rng = np.random.default_rng(seed)
    factors = [((0,), rng.dirichlet(np.full(classes, 5.0)))]
    factors += [((0, k), rng.dirichlet([0.5, 0.5], size=classes)) for k in range(1, seen + 1)]
    return kk.FactorGraph([classes] + [2] * seen, factors, children=list(range(seen + 1)))


def is_normalised(graph: kk.FactorGraph) -> bool:
    rows = ConditionalTables(graph)
    return bool(np.allclose(rows.row_sums(np.exp(graph.log_tables)), 1.0))


# ---------------------------------------------------------------------- directed


def test_complete_rows_give_frequencies_in_one_step() -> None:
    rows = ancestral_sample(network(), 500, seed=1)
    fit = EM().fit(network(5), rows)
    assert fit.converged and fit.iterations <= 2
    for a in range(4):
        scope = fit.graph.scope(a)
        counts = np.zeros(fit.graph.shape(a))
        np.add.at(counts, tuple(rows[:, list(scope)].T), 1)
        child = scope.index(int(fit.graph.children[a]))
        wanted = counts / counts.sum(axis=child, keepdims=True)
        assert fit.graph.table(a) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_likelihood_never_falls_and_stationary_points_are_those_of_the_gradient(seed: int) -> None:
    # TEH-T41, LIU-C19
    rows = with_gaps(ancestral_sample(network(), 200, seed=seed), 0.3, seed)
    fit = EM(tol=1e-8).fit(network(seed + 7), rows)
    assert fit.converged and is_normalised(fit.graph)
    assert np.diff(fit.trace.objective).min() > -1e-12
    assert fit.objective == pytest.approx(fit.log_likelihood, abs=1e-9)
    further = GradientML(tol=1e-9, max_iter=50).fit(fit.graph, rows)
    assert further.objective == pytest.approx(fit.objective, abs=1e-6)


def test_objective_is_the_enumerated_likelihood_of_the_observed() -> None:
    # LIU-C19
    rows = with_gaps(ancestral_sample(network(), 30, seed=0), 0.4)
    fit = EM(max_iter=3).fit(network(9), rows)
    values = [
        enumerate_exact(fit.graph.clamp({v: int(k) for v, k in enumerate(row) if k >= 0}))[0]
        for row in rows
    ]
    assert fit.objective == pytest.approx(float(np.mean(values)), abs=1e-10)


def test_parameters_come_back_from_plenty_of_rows_with_gaps() -> None:
    truth = network(1)
    rows = with_gaps(ancestral_sample(truth, 30_000, seed=2), 0.1)
    fit = EM(tol=1e-6).fit(network(8), rows, score=False)
    assert np.exp(fit.graph.log_tables) == pytest.approx(np.exp(truth.log_tables), abs=0.03)


def test_hidden_classes_are_found_again() -> None:
    truth = mixture(seed=3)
    rows = ancestral_sample(truth, 5000, seed=0)
    rows[:, 0] = -1
    fit = EM(start="random", seed=1).fit(truth, rows)
    assert np.diff(fit.trace.objective).min() > -1e-12
    true = EM(max_iter=1).fit(truth, rows)
    assert fit.objective == pytest.approx(true.objective, abs=0.01)


def test_prior_and_its_objective() -> None:
    """A Dirichlet prior is so many rows seen besides; its MAP objective climbs too."""
    rows = with_gaps(ancestral_sample(network(), 40, seed=1), 0.3)
    fit = EM(prior=0.5).fit(network(3), rows)
    assert np.diff(fit.trace.objective).min() > -1e-12
    assert np.exp(fit.graph.log_tables).min() > 0
    log_prior = 0.5 * fit.graph.log_tables.sum() / 40
    assert fit.objective == pytest.approx(fit.log_likelihood + log_prior, abs=1e-9)
    spread = EM(prior=6.0, spread="table").fit(network(3), [[0, 0, 0, 0]])
    assert spread.graph.table(3)[1] == pytest.approx([1 / 3] * 3)
    assert spread.graph.table(3)[0] == pytest.approx([2 / 4, 1 / 4, 1 / 4])


def test_rows_never_seen_keep_their_values_and_are_told() -> None:
    start = network(2)
    fit = EM().fit(start, [[0, 0, 0, 0], [0, 1, 0, 1]])
    assert any("never occur in the data" in w for w in fit.warnings)
    assert fit.graph.table(3)[1] == pytest.approx(start.table(3)[1])
    assert is_normalised(fit.graph)


def test_structural_zeros_stay() -> None:
    net = kk.FactorGraph(
        [2, 2], [((0,), [0.5, 0.5]), ((0, 1), [[1.0, 0.0], [0.5, 0.5]])], children=[0, 1]
    )
    fit = EM(prior=1.0).fit(net, [[0, 0], [-1, 0], [1, -1]])
    assert fit.graph.table(1)[0].tolist() == [1.0, 0.0]
    with pytest.raises(DataError, match="impossible"):
        EM().fit(net, [[0, 1]])


def test_tied_tables_are_those_of_a_homogeneous_chain() -> None:
    """Hidden Markov chain, three tied transitions and four tied emissions: monotone, shared."""
    rng = np.random.default_rng(0)
    move, show = rng.dirichlet([1, 1], size=2), rng.dirichlet([1, 1, 1], size=2)
    factors = [((0,), [0.4, 0.6])]
    factors += [((t, t + 1), move) for t in range(3)]
    factors += [((t, 4 + t), show) for t in range(4)]
    chain = kk.FactorGraph([2] * 4 + [3] * 4, factors, children=list(range(8)))
    rows = ancestral_sample(chain, 300, seed=0)
    rows[:, :4] = -1
    fit = EM(ties="1-3;4-7", start="random", max_iter=60).fit(chain, rows, score=False)
    assert np.diff(fit.trace.objective).min() > -1e-12
    assert np.array_equal(fit.graph.table(1), fit.graph.table(3))
    assert np.array_equal(fit.graph.table(4), fit.graph.table(7))
    assert is_normalised(fit.graph)


def test_any_method_makes_the_e_step() -> None:
    rows = with_gaps(ancestral_sample(network(), 25, seed=0), 0.3)
    exact = EM(max_iter=4).fit(network(4), rows, score=False)
    other = EM(max_iter=4, inference="jt").fit(network(4), rows, score=False)
    assert other.graph.log_tables == pytest.approx(exact.graph.log_tables, abs=1e-9)
    bound = EM(max_iter=4, inference="mf:restarts=3").fit(network(4), rows, score=False)
    assert bound.diagnostics["e_step"] == "mf:restarts=3"
    assert bound.objective <= EM(max_iter=50).fit(network(4), rows).objective + 1e-9


# ---------------------------------------------------------------------- undirected


def test_generalised_em_climbs_to_the_gradients_optimum() -> None:
    truth = kk.grid(2, 3, seed=1)
    rows = with_gaps(kk.plan(truth).calibrate().sample(400, seed=0), 0.2)
    start = truth.with_log_tables(np.zeros(truth.log_tables.size))
    fit = EM(tol=1e-4).fit(start, rows)
    assert fit.converged
    assert np.diff(fit.trace.objective).min() > -1e-12
    assert fit.objective == pytest.approx(GradientML().fit(start, rows).objective, abs=2e-4)
    assert fit.objective == pytest.approx(fit.log_likelihood, abs=1e-9)
    with pytest.raises(MethodError, match="prior is for directed"):
        EM(prior=1.0).fit(start, rows)


# ---------------------------------------------------------------------- variational Bayes


def log_beta(alpha: np.ndarray) -> float:
    return float(gammaln(alpha).sum() - gammaln(alpha.sum()))


def log_evidence(graph: kk.FactorGraph, rows: np.ndarray, prior: float) -> float:
    """log of the sum over all completions of the rows of their Dirichlet-multinomial evidence."""
    gaps = np.argwhere(rows < 0)
    values = []
    for filling in itertools.product(*[range(int(graph.cardinalities[v])) for _, v in gaps]):
        full = rows.copy()
        full[tuple(gaps.T)] = filling
        total = 0.0
        for a in range(graph.n_factors):
            scope = graph.scope(a)
            counts = np.zeros(graph.shape(a))
            np.add.at(counts, tuple(full[:, list(scope)].T), 1)
            axis = scope.index(int(graph.children[a]))
            for row in np.moveaxis(counts, axis, -1).reshape(-1, counts.shape[axis]):
                flat = np.full(len(row), prior)
                total += log_beta(flat + row) - log_beta(flat)
        values.append(total)
    return float(np.logaddexp.reduce(values))


def test_evidence_is_exact_when_nothing_is_hidden() -> None:
    rows = ancestral_sample(network(), 30, seed=0)
    fit = VariationalEM(prior=0.7).fit(network(), rows)
    assert fit.diagnostics["log_evidence"] == pytest.approx(log_evidence(network(), rows, 0.7))
    counts = Data.of(rows, network()).factor_counts(network())
    assert fit.diagnostics["alpha"] == pytest.approx(0.7 + counts)


@pytest.mark.parametrize("seed", range(4))
def test_bound_climbs_and_stays_below_the_evidence(seed: int) -> None:
    # TEH-L3, TEH-T41
    graph = mixture(seen=3, seed=seed)
    rows = ancestral_sample(graph, 9, seed=seed)
    rows[:, 0] = -1
    rows[0, 2] = -1
    fit = VariationalEM(start="random", seed=seed).fit(graph, rows, score=False)
    bounds = np.array(fit.trace.objective) * 9
    assert fit.converged and np.diff(bounds).min() > -1e-10
    exact = log_evidence(graph, rows, 1.0)
    assert np.all(bounds <= exact + 1e-10)
    assert bounds[-1] > exact - 5  # it does not miss by much on so few rows
    assert fit.trace.objective_name == "bound on log evidence per row"
    assert is_normalised(fit.graph)


def test_bound_prefers_the_right_number_of_classes() -> None:
    """TEH-L3: the evidence bound chooses between models, where likelihood always wants more."""
    truth = mixture(classes=2, seen=6, seed=11)
    rows = ancestral_sample(truth, 800, seed=0)
    rows[:, 0] = -1
    best = {}
    for classes in (1, 2, 5):
        graph = mixture(classes, 6, seed=1)
        fits = [VariationalEM(start="random", seed=s).fit(graph, rows, score=False) for s in (0, 1)]
        best[classes] = max(fit.diagnostics["log_evidence"] for fit in fits)
    assert best[2] > best[1] and best[2] > best[5]


def test_variational_bayes_needs_directions() -> None:
    with pytest.raises(ModelError, match="directed"):
        VariationalEM().fit(kk.grid(2, 2, seed=0), [[0, 0, 0, 0]])


# ---------------------------------------------------------------------- peers


def test_same_tables_as_bernoulli_naive_bayes() -> None:
    bayes = pytest.importorskip("sklearn.naive_bayes")
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    x = (rng.random((200, 5)) < rng.random((3, 5))[y]).astype(int)
    theirs = bayes.BernoulliNB(alpha=1.3).fit(x, y)
    factors = [((0,), np.full(3, 1 / 3))]
    factors += [((0, k + 1), np.full((3, 2), 0.5)) for k in range(5)]
    graph = kk.FactorGraph([3] + [2] * 5, factors, children=list(range(6)))
    ours = EM(prior=1.3).fit(graph, np.column_stack([y, x]))
    for k in range(5):
        assert ours.graph.log_table(k + 1)[:, 1] == pytest.approx(theirs.feature_log_prob_[:, k])


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_same_tables_as_pgmpy() -> None:
    models = pytest.importorskip("pgmpy.models")
    estimators = pytest.importorskip("pgmpy.estimators")
    pandas = pytest.importorskip("pandas")
    truth = network(1)
    rows = ancestral_sample(truth, 3000, seed=0)
    frame = pandas.DataFrame(rows, columns=list("abcd"))
    edges = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]
    model = models.DiscreteBayesianNetwork(edges)
    theirs = estimators.MaximumLikelihoodEstimator(model, frame)
    ours = EM().fit(network(6), rows)
    for a, name in enumerate("abcd"):
        cpd = theirs.estimate_cpd(name)
        scope = [ours.graph.names[v] for v in ours.graph.scope(a)]
        table = np.transpose(cpd.values, [cpd.variables.index(v) for v in scope])
        assert ours.graph.table(a) == pytest.approx(table, abs=1e-12)


# ---------------------------------------------------------------------- stopping and resuming


def test_bad_options() -> None:
    with pytest.raises(MethodError, match="no method 'what'"):
        EM(inference="what")
    with pytest.raises(MethodError, match="prior must be in"):
        VariationalEM(prior=0.0)


def test_a_fit_that_had_ended_says_the_same_again(tmp_path: Path) -> None:
    directed = kk.FactorGraph(
        [3, 2], [((0,), np.ones(3)), ((0, 1), np.ones((3, 2)))], children=[0, 1]
    )
    undirected = kk.FactorGraph([2, 3], [((0, 1), np.ones((2, 3)))])
    rows = [[0, 0], [1, 1], [0, 1], [1, 0]] * 4
    for graph, gap in ((directed, [0, -1]), (undirected, [0, 0])):
        learner, file = EM(tol=1e-2), tmp_path / f"{gap}"
        first, again = (learner.fit(graph, [*rows, gap], checkpoint=file) for _ in range(2))
        assert first.warnings and again.warnings == first.warnings
        told = [(fit.converged, fit.stopped, fit.iterations) for fit in (first, again)]
        assert told[0] == told[1]
