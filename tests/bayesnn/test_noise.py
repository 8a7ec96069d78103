"""Student noise: the bound and what it is below, outliers, predictions, files, what is refused."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import gamma, norm
from scipy.stats import t as student_t

from kikuchi.bayesnn import BayesianMLPRegressor, LaplaceMLPRegressor, log_evidence
from kikuchi.bayesnn.bound import GammaDensity, Hyper, RegressionData
from kikuchi.bayesnn.network import precisions
from kikuchi.bayesnn.noise import DEGREES, StudentData, student_mixture
from kikuchi.bayesnn.posteriors import OutputMoments
from kikuchi.bayesnn.regressor import network_outputs
from kikuchi.core.errors import DataError, MethodError

PRIOR = GammaDensity(2.0, 0.5)
HYPER = Hyper(GammaDensity(2.0, 2.0), PRIOR)


def make(hidden=3, noise="student", **options):
    given = {"n_init": 2, "random_state": 0, **options}
    return BayesianMLPRegressor(hidden, "diagonal", "grouped", noise=noise, **given)


def log_student(errors, degrees, precision):
    if math.isinf(degrees):
        return 0.5 * (math.log(precision / (2 * math.pi)) - precision * errors**2)
    unit = student_t.logpdf(0.0, degrees) + 0.5 * math.log(precision)
    return unit - 0.5 * (degrees + 1) * np.log1p(precision * errors**2 / degrees)


def log_evidence_of(errors):
    """ln p of independent errors: quadrature over the precision, sum over the degrees."""

    def density(log_precision, degrees):
        precision = math.exp(log_precision)
        prior = gamma.logpdf(precision, PRIOR.shape, scale=1.0 / PRIOR.rate) + log_precision
        return math.exp(prior + log_student(errors, degrees, precision).sum() + offset)

    offset = -max(
        log_student(errors, d, p).sum() for d in DEGREES for p in np.exp(np.arange(-8, 8))
    )
    parts = [quad(density, -12, 12, (d,), limit=50, points=(-6, -3, 0, 3, 6))[0] for d in DEGREES]
    return math.log(sum(parts) / len(DEGREES)) - offset


@jax.jit
def expected(data, mean, variance):
    return data.expected(OutputMoments(mean, variance), HYPER)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_expected_density_is_below_the_quadrature_and_near_it(seed):
    rng = np.random.default_rng(seed)
    errors = (0.3, 1.0, 5.0)[seed] * rng.standard_t((2, 5, 100)[seed], size=20)
    with jax.enable_x64(True):
        data, none = StudentData(jnp.ones((20, 1)), jnp.asarray(errors)), jnp.zeros(20)
        found, noise = expected(data, none, none)
        vague, _ = expected(data, none, 0.1 * errors**2)
        gaussian, _ = expected(RegressionData(*data), none, none)
    truth = log_evidence_of(errors)
    assert truth - 0.5 < float(found) <= truth
    assert float(vague) < float(found)
    assert float(gaussian) - math.log(len(DEGREES)) <= float(found)
    assert np.asarray(noise.probability).sum() == pytest.approx(1.0)


def test_gradient_by_finite_differences():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, y = jnp.ones((20, 1)), jnp.asarray(rng.standard_t(3, size=20))
        mean, variance = jnp.asarray(rng.normal(size=20)), jnp.asarray(rng.uniform(0.1, 1, 20))

        def value(mean, variance):
            return expected(StudentData(x, y), mean, variance)[0]

        slopes = jax.jit(jax.grad(value, (0, 1)))(mean, variance)
        ways = rng.normal(size=20), rng.uniform(-1, 1, 20)
        ends = [value(mean + h * ways[0], variance + h * ways[1]) for h in (1e-5, -1e-5)]
        along = sum(float(s @ w) for s, w in zip(slopes, ways, strict=True))
    assert float(ends[0] - ends[1]) / 2e-5 == pytest.approx(along, rel=1e-6)


@pytest.fixture(scope="module")
def contaminated():
    """A sine with noise of .1, and one target in ten 4 off."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(63, 1))
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=63)
    y[::10] += rng.choice([-4.0, 4.0], size=7)
    return x, y


@pytest.fixture(scope="module")
def robust(contaminated):
    return make().fit(*contaminated)


def test_outliers_count_little(contaminated, robust):
    gaussian = make(noise="gaussian").fit(*contaminated)
    new = np.linspace(-0.95, 0.95, 200)[:, None]
    errors = [
        np.sqrt(np.mean((net.predict(new) - np.sin(3 * new[:, 0])) ** 2))
        for net in (robust, gaussian)
    ]
    assert errors[0] < 0.06 and errors[1] > 4 * errors[0]
    assert robust.converged_ and robust.bound_ > gaussian.bound_ + 20
    assert robust.degrees_of_freedom_ <= 4 and math.isinf(gaussian.degrees_of_freedom_)
    held = np.random.default_rng(1)
    x = held.uniform(-1, 1, size=(400, 1))
    y = np.sin(3 * x[:, 0]) + 0.1 * held.normal(size=400)
    assert robust.log_density(x, y).mean() > gaussian.log_density(x, y).mean() + 1.0
    for level in (0.5, 0.9):
        widths = [np.subtract(*net.predict_interval(x, level)[::-1]) for net in (robust, gaussian)]
        assert np.all(widths[0] < widths[1])


def test_gaussian_noise_is_found_as_well():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(63, 1))
    y = np.sin(3 * x[:, 0]) + 0.2 * rng.normal(size=63)
    nets = [make(noise=noise).fit(x, y) for noise in ("student", "gaussian")]
    assert nets[0].degrees_of_freedom_ >= 10
    assert nets[0].noise_ == pytest.approx(nets[1].noise_, rel=0.1)
    assert nets[0].predict(x) == pytest.approx(nets[1].predict(x), abs=0.08)
    assert nets[1].bound_ - 2.5 < nets[0].bound_


def test_bound_is_below_the_importance_weighted_evidence(robust):
    """Precisions of the weights are summed out exactly, that of the noise by a grid."""
    problem = robust._problem_
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        weights = jax.tree.map(jnp.asarray, robust._weights)
        q = problem.posterior.read(jnp.asarray(robust._flat), weights)
        mean, sd = np.asarray(q.mean), np.asarray(q.sd)
        w = mean + sd * rng.standard_normal((500, len(mean)))
        f = np.asarray(network_outputs(robust._network, jnp.asarray(w), problem.data.x)).T
    first = precisions(robust._network, "grouped").first
    total = np.sum(0.5 * ((w - mean) / sd) ** 2 + np.log(sd), axis=1)
    squares = np.array([np.sum(w[:, first == g] ** 2, axis=1) for g in range(4)])
    a, b = problem.hyper.alpha
    shape, rate = np.bincount(first)[:, None] / 2 + a, squares / 2 + b
    gammas = a * math.log(b) - gammaln(a) + gammaln(shape) - shape * np.log(rate)
    total += gammas.sum(axis=0)
    errors = np.asarray(problem.data.y) - f
    step = 0.15
    grid = np.exp(np.arange(1.0, 7.0, step))
    noise = problem.hyper.beta
    prior = gamma.logpdf(grid, noise.shape, scale=1.0 / noise.rate) + np.log(grid)
    logs = [
        log_student(errors, d, p).sum(axis=1) + own + math.log(step / len(DEGREES))
        for d in DEGREES
        for p, own in zip(grid, prior, strict=True)
    ]
    total += np.logaddexp.reduce(np.array(logs), axis=0)
    estimate = np.logaddexp.reduce(total) - math.log(len(total)) + robust._shift()
    average = total.mean() + robust._shift()
    assert robust.bound_ < average + 3 * total.std() / math.sqrt(len(total)) < estimate
    assert estimate - robust.bound_ < 60


@pytest.mark.parametrize("degrees", DEGREES)
def test_predictive_densities_and_intervals_are_those_of_students_t(degrees):
    probability = np.array([float(d == degrees) for d in DEGREES])
    noise = student_mixture(probability, 51.0, np.full(len(DEGREES), 100.0))
    errors, none = np.array([0.0, 1.0, 9.0]), np.zeros(3)
    truth = norm(scale=2**0.5) if math.isinf(degrees) else student_t(degrees, scale=2**0.5)
    assert noise.log_density(errors, none) == pytest.approx(truth.logpdf(errors), abs=1e-6)
    assert noise.total == pytest.approx(truth.var())
    for level in (0.5, 0.99):
        wide = truth.ppf(0.5 + 0.5 * level)
        assert noise.reach(level, none) == pytest.approx([wide] * 3, rel=1e-6)
    assert np.all(noise.reach(0.5, np.array([1.0])) > truth.ppf(0.75))


def test_samples_have_the_predicted_distribution(robust, contaminated):
    x = contaminated[0][:4]
    draws = robust.sample_y(x, 20_000, random_state=0)
    low, high = robust.predict_interval(x, 0.9)
    inside = np.mean((draws >= low[:, None]) & (draws <= high[:, None]), axis=1)
    assert inside == pytest.approx([0.9] * 4, abs=0.01)
    mean, sd = robust.predict(x, return_std=True)
    assert np.median(draws, axis=1) == pytest.approx(mean, abs=0.02)
    assert np.all(sd > 0) and np.isfinite(sd).all()


def test_log_density_of_gaussian_noise_integrates_to_one_on_every_scale():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(63, 1))
    y = rng.poisson(20 * np.exp(x[:, 0])) + 1.0
    for scale, top in (("root", 300.0), ("log", 2000.0)):
        net = BayesianMLPRegressor(
            2, "diagonal", "grouped", scale=scale, n_init=1, random_state=0
        ).fit(x, y)
        grid = np.geomspace(1e-3, top, 4000)
        density = np.exp(net.log_density(np.zeros((4000, 1)), grid))
        assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=2e-3)


def test_files(robust, contaminated, tmp_path):
    x, y = contaminated
    robust.save(tmp_path / "net.safetensors")
    again = BayesianMLPRegressor.load(tmp_path / "net.safetensors")
    assert again.degrees_of_freedom_ == robust.degrees_of_freedom_
    assert again.noise_ == pytest.approx(robust.noise_)
    assert again.log_density(x, y) == pytest.approx(robust.log_density(x, y))
    damaged = {**robust._facts(), "degrees": [1.0]}
    with pytest.raises(DataError, match="degrees of freedom"):
        again._restore_facts(damaged)


def test_what_has_no_student_noise_is_refused(robust, contaminated):
    x, y = contaminated
    with pytest.raises(MethodError, match="scale='plain'"):
        make(scale="log").fit(x, y + 10)
    with pytest.raises(MethodError, match="Gaussian noise"):
        log_evidence(robust)
    with pytest.raises(MethodError, match="no option 'noise'"):
        LaplaceMLPRegressor(2, prior="grouped", noise="student")
