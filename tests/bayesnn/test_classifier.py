"""Classification: the bound and what it is below, classes found, files, input that is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln, log_expit, log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from kikuchi.bayesnn import BayesianMLPClassifier
from kikuchi.bayesnn.bound import ClassData, descent
from kikuchi.bayesnn.network import precisions
from kikuchi.bayesnn.posteriors import OutputMoments
from kikuchi.core.errors import DataError


def make(hidden=2, posterior="diagonal", prior="grouped", **options):
    given = {"n_init": 1, "random_state": 0, **options}
    return BayesianMLPClassifier(hidden, posterior, prior, **given)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(90, 2))


@pytest.fixture(scope="module")
def ring(rows):
    return np.where(np.abs(rows[:, 0]) > 0.7, "outside", "inside")


@pytest.fixture(scope="module")
def binary(rows, ring):
    return make(3).fit(rows, ring)


@pytest.fixture(scope="module")
def three(rows):
    return make().fit(rows, np.digitize(rows[:, 0], [-0.5, 0.5]))


@pytest.mark.parametrize("count", [1, 3])
def test_local_bound_is_below_the_expected_log_probability(count):
    rng = np.random.default_rng(count)
    mean, sd = 2 * rng.normal(size=(count, 5)), rng.uniform(0.1, 2, size=(count, 5))
    labels = rng.integers(2 if count == 1 else count, size=5)
    marks = 2.0 * labels[:, None] - 1 if count == 1 else np.eye(count)[labels]
    with jax.enable_x64(True):
        data = ClassData(jnp.ones((5, 1)), jnp.asarray(marks))
        moments = OutputMoments(jnp.asarray(mean), jnp.asarray(sd**2))
        lower = float(data.expected(moments, None)[0])
    f = mean[:, :, None] + sd[:, :, None] * rng.normal(size=(count, 5, 200_000))
    logs = log_expit(marks[:, 0, None] * f[0]) if count == 1 else log_softmax(f, axis=0)
    truth = logs if count == 1 else logs[labels, np.arange(5)]
    value, error = truth.sum(axis=0).mean(), truth.sum(axis=0).std() / np.sqrt(200_000)
    assert value - (6.0 if count == 3 else 2.0) < lower < value + 3 * error


def test_classes_are_found_with_calibrated_probabilities(binary, rows, ring):
    assert binary.converged_ and binary.classes_.tolist() == ["inside", "outside"]
    new = np.random.default_rng(1).normal(size=(400, 2))
    truth = np.abs(new[:, 0]) > 0.7
    p = binary.predict_proba(new)
    assert p.sum(axis=1) == pytest.approx(1.0)
    assert np.mean((binary.predict(new) == "outside") == truth) > 0.93
    assert -np.mean(np.log(np.where(truth, p[:, 1], p[:, 0]))) < 0.25
    assert binary.relevance_[1] < 0.3 * binary.relevance_[0]


def test_three_classes(three, rows):
    truth = np.digitize(rows[:, 0], [-0.5, 0.5])
    assert three.converged_ and three.score(rows, truth) > 0.9
    assert three.hidden_kept_.shape == (3, 2)
    p = three.predict_proba(rows)
    assert p.shape == (90, 3) and p.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["binary", "three"])
def test_gradient_by_finite_differences(name, request):
    net = request.getfixturevalue(name)
    with jax.enable_x64(True):
        problem, at = net._problem_, net._flat + 0.1
        weights = jax.tree.map(jnp.asarray, net._weights)
        given = (weights, problem.data, problem.hyper)
        way, e = np.random.default_rng(0).normal(size=len(at)), 1e-5
        up, down = (
            float(descent(problem.posterior, "grouped", at + s * e * way, *given)[0])
            for s in (1, -1)
        )
        slope = descent(problem.posterior, "grouped", at, *given)[2]
        assert (up - down) / (2 * e) == pytest.approx(float(slope @ way), rel=1e-6)


def log_joint_of_draws(net, count, rng):
    """log p(classes, w, alpha) - log q(w, alpha) of draws of a diagonal posterior."""
    problem = net._problem_
    found = descent(
        problem.posterior, "grouped", net._flat, jax.tree.map(jnp.asarray, net._weights),
        problem.data, problem.hyper,
    )[1]  # fmt: skip
    q = problem.posterior.read(jnp.asarray(net._flat), jax.tree.map(jnp.asarray, net._weights))
    mean, sd = np.asarray(q.mean), np.asarray(q.sd)
    first = precisions(net._network, "grouped").first
    a, b = problem.hyper.alpha
    total = np.zeros(count)
    outputs = []
    for k in range(len(mean)):
        w = mean[k] + sd[k] * rng.standard_normal((count, mean.shape[1]))
        total += np.sum(0.5 * ((w - mean[k]) / sd[k]) ** 2 + np.log(sd[k]), axis=1)
        squares = np.array([np.sum(w[:, first == g] ** 2, axis=1) for g in range(first.max() + 1)])
        counts = np.bincount(first)[:, None]
        shape, rate = counts / 2 + a, squares / 2 + b  # alpha summed out: exact
        total += np.sum(a * np.log(b) - gammaln(a) + gammaln(shape) - shape * np.log(rate), axis=0)
        outputs.append(np.asarray(jax.vmap(lambda v: net._network.output(v, problem.data.x))(w)))
    assert found.alpha.mean.shape == (len(mean), first.max() + 1)
    f, y = np.array(outputs), np.asarray(problem.data.y)
    logs = (
        log_expit(y[:, 0] * f[0]) if len(f) == 1 else (log_softmax(f, axis=0) * y.T[:, None]).sum(0)
    )
    return total + logs.sum(axis=-1)


@pytest.mark.parametrize("name", ["binary", "three"])
def test_bound_is_below_the_importance_weighted_evidence(name, request):
    net = request.getfixturevalue(name)
    with jax.enable_x64(True):
        logs = log_joint_of_draws(net, 4000, np.random.default_rng(0))
    estimate = np.log(np.mean(np.exp(logs - logs.max()))) + logs.max()
    assert net.bound_ < logs.mean() + 3 * logs.std() / np.sqrt(4000) < estimate
    assert estimate - net.bound_ < 60


def test_files_and_removal(binary, rows, ring, tmp_path):
    file = tmp_path / "net.safetensors"
    binary.save(file)
    again = BayesianMLPClassifier.load(file)
    assert np.array_equal(again.predict_proba(rows), binary.predict_proba(rows))
    assert again.classes_.tolist() == binary.classes_.tolist()
    again.prune(rows, ring)
    assert again.bound_ >= binary.bound_ and again.pruning_
    assert again.score(rows, ring) > 0.9


def test_bad_classes_are_refused(binary, rows, ring):
    with pytest.raises(DataError, match="one class only"):
        make().fit(rows, np.zeros(90))
    with pytest.raises(ValueError, match="Unknown label type"):
        make().fit(rows, rows[:, 0])
    with pytest.raises(DataError, match="none of the classes"):
        binary.prune(rows, np.where(ring == "inside", "in", ring))
    with pytest.raises(DataError, match="at least as many rows as inputs"):
        make().fit(rows[:6].repeat(4, axis=1), ring[:6])


@pytest.mark.slow
def test_conventions_of_scikit_learn():
    from sklearn.utils.estimator_checks import check_estimator

    check_estimator(BayesianMLPClassifier(2, "diagonal", "grouped", n_init=1, max_iter=30))


def test_a_fit_below_the_class_frequencies_says_so(rows):
    """Labels without any relation to the inputs are fitted in part all the same."""
    rng = np.random.default_rng(5)
    lost = make(3, weight_shape=20.0, weight_rate=20.0).fit(rows, rng.integers(2, size=90))
    (text,) = lost.warnings_
    assert "not better than the class frequencies" in text and "more rows" in text
    assert lost._score < lost._trivial(lost._problem_).score


def test_score_is_the_log_loss_less_the_parameters_that_are_determined(binary, rows, ring):
    assert not binary.warnings_
    loss = log_loss(ring, binary.predict_proba(rows), normalize=False)
    determined = binary._score + loss
    assert -rows.size * 3 < determined < -1.0  # minus their number
    shares = np.mean(ring == "inside"), np.mean(ring == "outside")
    frequencies = 90 * sum(s * np.log(s) for s in shares) - 1
    assert binary._trivial(binary._problem_).score == pytest.approx(frequencies)
    assert binary._score > frequencies + 20


@pytest.mark.slow
def test_skip_connections_are_part_of_the_defaults():
    """Without them nets of few rows were behind logistic regression."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = x[:, 0] + 0.5 * x[:, 1] + 0.7 * rng.normal(size=60) > 0
    new = rng.normal(size=(1000, 3))
    truth = new[:, 0] + 0.5 * new[:, 1] + 0.7 * rng.normal(size=1000) > 0
    net = BayesianMLPClassifier(random_state=0).fit(x, y)
    ours, theirs = (
        log_loss(truth, fit.predict_proba(new)) for fit in (net, LogisticRegression().fit(x, y))
    )
    assert ours < theirs + 0.02 and not net.warnings_
