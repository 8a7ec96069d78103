"""The bound: gamma posteriors, gradients, node relevance, and the evidence above it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from kikuchi.bayesnn import BayesianMLPRegressor
from kikuchi.bayesnn.bound import (
    GammaDensity,
    Hyper,
    RegressionData,
    bound,
    descent,
    gamma_posteriors,
    n_free,
    weight_precisions,
)
from kikuchi.bayesnn.fitting import NetworkProblem
from kikuchi.bayesnn.network import Network, precisions
from kikuchi.bayesnn.posteriors import Weights, weight_posterior
from kikuchi.bayesnn.structure import Pruning
from kikuchi.core.errors import MethodError
from kikuchi.energy.annealing import annealed_log_z

FAMILIES = ("diagonal", "layered", "full", "mixture:3")
HYPER = Hyper(GammaDensity(0.5, 0.7), GammaDensity(0.3, 0.2))


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def small(prior="grouped", text="diagonal", seed=0, skip=False):
    """A network of three units, data, and random parameters of its posterior."""
    rng = np.random.default_rng(seed)
    network = Network(2, 3, skip)
    family = weight_posterior(text, network)
    x = np.column_stack([rng.normal(size=(6, 2)), np.ones(6)])
    data = RegressionData(jnp.asarray(x), jnp.asarray(rng.normal(size=6)))
    flat = 0.6 * rng.normal(size=family.size + n_free(network, prior))
    return family, flat, Weights(jnp.ones(network.n_weights), jnp.ones(network.n_weights)), data


def test_moments_and_divergence_of_gamma_against_quadrature():
    # LAW-T18
    q, p = GammaDensity(2.5, 1.7), GammaDensity(0.4, 0.3)
    ours, theirs = (stats.gamma(g.shape, scale=1 / g.rate) for g in (q, p))

    def mean(f):
        return quad(lambda x: ours.pdf(x) * f(x), 0, 60, epsabs=1e-12, limit=300)[0]

    assert float(q.mean) == pytest.approx(mean(lambda x: x), abs=1e-9)
    assert float(q.log_mean) == pytest.approx(mean(np.log), abs=1e-8)
    divergence = mean(lambda x: ours.logpdf(x) - theirs.logpdf(x))
    assert float(q.divergence(p)) == pytest.approx(divergence, abs=1e-8)
    assert float(p.divergence(p)) == 0.0


@pytest.mark.parametrize("prior", [pytest.param("grouped", marks=pytest.mark.slow), "nrd"])
def test_eliminated_precisions_are_the_best_ones(prior):
    """No other rate of a gamma posterior gives a higher bound."""
    # LAW-M7, LAW-I20, LAW-I23, LAW-T3, LAW-T18
    family, flat, weights, data = small(prior, skip=True)
    groups = precisions(family.network, prior)
    found = bound(family, prior, flat, weights, data, HYPER)
    eliminated = np.setdiff1d(np.arange(len(groups.names)), groups.free)

    def of_rates(rates):
        alpha = GammaDensity(found.alpha.shape, rates)
        logs = weight_precisions(groups, alpha.log_mean, 0.0)
        products = weight_precisions(groups, alpha.mean, 1.0)
        return 0.5 * jnp.sum(logs - products * found.squares) - jnp.sum(
            alpha.divergence(HYPER.alpha)
        )

    slopes = np.asarray(jax.grad(of_rates)(found.alpha.rate))
    assert np.abs(slopes[eliminated]).max() < 1e-10
    best = float(of_rates(found.alpha.rate))
    for group in eliminated:
        for factor in (0.7, 1.4):
            rates = found.alpha.rate.at[group].multiply(factor)
            assert float(of_rates(rates)) < best


@pytest.mark.parametrize(
    ("text", "prior", "skip"),
    [("layered", "nrd", True),
     pytest.param("mixture:2", "single", True, marks=pytest.mark.slow),
     pytest.param("full", "grouped", False, marks=pytest.mark.slow),
     pytest.param("diagonal", "ard", False, marks=pytest.mark.slow)],
)  # fmt: skip
def test_gradient_by_finite_differences(text, prior, skip):
    # LAW-I23
    family, flat, weights, data = small(prior, text, skip=skip)
    removed = family.network.units == 1
    kept = Weights(weights.scale, jnp.asarray(np.where(removed, 0.0, 1.0)))
    rng = np.random.default_rng(3)
    for w in (weights, kept):
        _, _, slope = descent(family, prior, flat, w, data, HYPER)
        way, e = rng.normal(size=len(flat)), 1e-5
        up, down = (
            float(descent(family, prior, flat + s * e * way, w, data, HYPER)[0]) for s in (1, -1)
        )
        assert (up - down) / (2 * e) == pytest.approx(float(slope @ way), rel=1e-6)


def test_node_relevance_with_unit_scales_is_relevance_of_inputs():
    # LAW-T20
    network = Network(3, 2)
    nrd, ard = precisions(network, "nrd"), precisions(network, "ard")
    inputs = np.array([2.0, 3.0, 5.0])
    values = np.ones(len(nrd.names))
    values[:3] = inputs
    theirs = weight_precisions(ard, jnp.asarray([*inputs, 1.0, 1.0, 1.0]), 1.0)
    assert np.array_equal(weight_precisions(nrd, jnp.asarray(values), 1.0), theirs)


def test_one_scale_of_node_relevance_is_free():
    # LAW-M8, LAW-T20
    network = Network(3, 2)
    nrd = precisions(network, "nrd")
    values = np.random.default_rng(0).random(len(nrd.names)) + 0.5
    hidden = [name.startswith("unit") or name == "constant unit" for name in nrd.names]
    other = np.where(hidden, values / 3.0, values * 3.0)
    same = [weight_precisions(nrd, jnp.asarray(v), 1.0) for v in (values, other)]
    assert np.asarray(same[0]) == pytest.approx(np.asarray(same[1]))


def test_precisions_of_removed_groups_are_their_priors():
    network = Network(2, 3)
    groups = precisions(network, "nrd")
    kept = jnp.asarray(np.where(network.units == 1, 0.0, 1.0))
    found = gamma_posteriors(groups, jnp.ones(4), kept, kept, HYPER.alpha)
    gone = groups.names.index("unit 1")
    assert float(found.shape[gone]) == 0.5 and float(found.rate[gone]) == pytest.approx(0.7)


def test_unknown_prior_is_refused():
    with pytest.raises(MethodError, match="did you mean 'grouped'"):
        precisions(Network(1, 1), "group")


@pytest.mark.parametrize("prior", ["nrd", pytest.param("ard", marks=pytest.mark.slow)])
def test_removing_a_unit_that_is_as_its_prior_raises_the_bound(prior):
    # LAW-T21
    network = Network(1, 3)
    family = weight_posterior("diagonal", network)
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=30), np.ones(30)])
    data = RegressionData(jnp.asarray(x), jnp.asarray(np.tanh(x[:, 0])))
    unused = network.units == 2
    mean = np.where(unused, 0.0, rng.normal(size=network.n_weights))
    sd = np.full(network.n_weights, 0.3)
    problem = NetworkProblem(family, prior, data, HYPER)
    free = np.zeros(n_free(network, prior))
    weights = Weights(jnp.ones(network.n_weights), jnp.ones(network.n_weights))
    for _ in range(100):  # the unit's variances follow its precisions until both agree
        flat = np.concatenate([family.initial(mean, sd, np.ones(len(sd))), free])
        found = bound(family, prior, jnp.asarray(flat), weights, data, HYPER)
        alpha = weight_precisions(precisions(network, prior), found.alpha.mean, 1.0)
        sd = np.where(unused, 1 / np.sqrt(np.asarray(alpha)), sd)
        sd[-1] = 1e-4  # its output weight: no effect
    pruning = Pruning(problem, flat, weights, 1e-3)
    assert pruning._candidate(network.units) == 2
    before = float(found.value)
    removal = pruning._try("unit", network.units == 2, 2, before)
    assert removal.kept


# ---------------------------------------------------------------------- against the evidence


def joint_energy(parameters, points):
    """Minus the log joint density of data, weights, log alpha (4 groups) and log beta."""
    network = Network(1, 3)
    x, y, prior = parameters["x"], parameters["y"], parameters["prior"]
    groups = jnp.asarray(precisions(network, "grouped").first)

    def one(point):
        w, log_alpha, log_beta = point[:10], point[10:14], point[14]
        alpha = log_alpha[groups]
        total = 0.5 * len(y) * (log_beta - jnp.log(2 * jnp.pi))
        total -= 0.5 * jnp.exp(log_beta) * jnp.sum((y - network.output(w, x)) ** 2)
        total += 0.5 * jnp.sum(alpha - jnp.log(2 * jnp.pi) - jnp.exp(alpha) * w * w)
        for log_value, (a, b) in ((log_alpha, prior[0]), (log_beta, prior[1])):
            density = a * jnp.log(b) - jax.scipy.special.gammaln(a) + a * log_value
            total += jnp.sum(density - b * jnp.exp(log_value))
        return -total

    return jax.vmap(one)(points)


def evidence_and_bound(seed, posterior):
    """log evidence by annealing, and the bound, of data that a random 1-3-1 network made."""
    rng = np.random.default_rng(seed)
    network = Network(1, 3)
    x = rng.normal(size=(15, 1))
    rows = np.column_stack([x, np.ones(15)])
    y = np.asarray(network.output(rng.normal(size=10), jnp.asarray(rows)))
    y = y + 0.3 * rng.normal(size=15)
    priors = {"weight_shape": 2.0, "weight_rate": 2.0, "noise_shape": 2.0, "noise_rate": 0.2}
    net = BayesianMLPRegressor(
        3, posterior, "grouped", n_init=2, tol=1e-3, random_state=seed, **priors
    ).fit(x, y)
    problem, family = net._problem_, net._family()
    weights = Weights(*map(jnp.asarray, net._weights))
    q = family.read(jnp.asarray(net._flat[: family.size]), weights)
    found = bound(family, "grouped", net._flat, weights, problem.data, problem.hyper)
    w = np.asarray(family.sample(q, jax.random.key(seed), 2000))
    alpha = rng.gamma(found.alpha.shape, 1 / found.alpha.rate, size=(2000, 4))
    beta = rng.gamma(float(found.beta.shape), 1 / float(found.beta.rate), size=(2000, 1))
    points = np.column_stack([w, np.log(alpha), np.log(beta)])
    parameters = {
        "x": np.asarray(problem.data.x),
        "y": np.asarray(problem.data.y),
        "prior": np.array([[2.0, 2.0], [2.0, 0.2]]),
    }
    log_z = annealed_log_z(
        joint_energy, parameters, points, betas=150, chains=60, batches=1, leapfrogs=8,
        burn_in=50, replicas=6, random_state=seed,
    )  # fmt: skip
    return log_z, float(found.value)


@pytest.mark.slow
@pytest.mark.parametrize("posterior", FAMILIES)
def test_the_bound_is_below_the_evidence(posterior):
    # LAW-I18, LAW-I21
    log_z, lower = evidence_and_bound(0, posterior)
    assert lower < log_z.estimate
    assert log_z.estimate - lower < 15.0  # and near it
