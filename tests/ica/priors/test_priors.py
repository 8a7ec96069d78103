"""Source priors: golden values, limits, derivatives, draws, hyper-parameters and texts (HOJ-M8)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kikuchi.core.errors import MethodError, ModelError
from kikuchi.ica.priors.closed import (
    Binary01Prior,
    ExponentialPrior,
    LaplacePrior,
    PositiveGaussianPrior,
    UniformPrior,
)
from kikuchi.ica.priors.designed import DesignedPrior
from kikuchi.ica.priors.mixture import BiGaussianPrior, MixturePrior
from kikuchi.ica.priors.numerical import LogDensityPrior
from kikuchi.ica.priors.prior import PRIORS, SourcePrior, as_priors, parse_prior

POINTS = [(0.0, 1.0), (1.0, 1.0), (-2.0, 1.0), (3.0, 0.5)]
FIVE = "mixture:weights=(1,1,1,1,1),means=(-4,-2,0,2,4),variances=(1,1,1,1,1)"

GOLDEN = {  # mean, response, log Z0 at each of POINTS
    "binary": "0 1 -.5 / .761594 .419974 -.066219 / -.964028 .070651 .825003 "
    "/ .995055 .009866 2.059329",
    "binary01:rate=0.3": "0.206312 .163748 -.125609 / .414038 .242611 .177825 "
    "/ .033984 .032829 -.322100 / .870197 .112954 1.685063",
    "gaussian": "0 .5 -.346574 / .5 .5 -.096574 / -1 .5 .653426 / 2 .666667 2.797267",
    "bi-gaussian": "0 .75 -.596574 / .731059 .696612 -.226459 / -1.380797 .604994 .837207 "
    "/ 2.642685 .698067 3.955604",
    "mixture": "0 .616228 -.549635 / .627070 .649044 -.238824 / -1.321243 .750170 .726867 "
    "/ 3.868444 1.535287 4.825588",
    "mixture:means=(-3,3),variances=(1,1)": "0 2.75 -2.596574 / 1.857722 .906590 -1.491133 "
    "/ -2.492582 .522199 .712755 / 3.999975 .666765 6.604126",
    "laplace": "0 .474865 -.422083 / .503223 .558957 -.177523 / -1.161089 .767357 .637011 "
    "/ 4.005024 1.978692 4.571280",
    "laplace:rate=0.25": "0 .821612 -1.349168 / .841913 .878607 -.933118 "
    "/ -1.766729 .964649 .363894 / 5.500043 1.999750 6.748563",
    "exponential": "0.525135 .199098 -.422083 / .797885 .363380 .225791 "
    "/ .283099 .070559 -1.188788 / 4.010358 1.958462 5.263171",
    "positive-gaussian": "0.564190 .181690 -.346574 / .788978 .272003 .322466 "
    "/ .319484 .078446 -1.196179 / 2.016334 .633731 3.483236",
    "uniform": "0 .291125 -.155924 / .277210 .251316 -.013924 / -.489950 .173453 .376225 "
    "/ .650820 .105586 1.070575",
    "power-law:alpha=0.5": "0 0 / .666667 1.111111 / -1.777778 1.086420 / 5.837838 2.051132",
    "power-law": "0 0 / .5 1 / -1.6 1.12 / 5.684211 2.094183",
    "power-law:k=2": "0 .5 / .666667 .888889 / -1.666667 1.055556 / 5.7 2.08",
}
SMOOTH = [*GOLDEN, FIVE, "cosh", "logistic", "rayleigh", "gaussian:variance=3", "laplace:rate=2"]


@pytest.mark.parametrize("text", GOLDEN)
def test_golden_values(text: str) -> None:
    # HOJ-M8a, HOJ-M8b, HOJ-M8c, HOJ-M8d, HOJ-M8e, HOJ-M8f, HOJ-M8g, HOJ-M8h, HOJ-M8i, HOJ-M8j
    prior = parse_prior(text)
    for (gamma, lam), cell in zip(POINTS, GOLDEN[text].split("/"), strict=True):
        expected = [float(number) for number in cell.split()]
        found = [*prior.moments(gamma, lam), prior.log_partition(gamma, lam)][: len(expected)]
        np.testing.assert_allclose(np.array(found, dtype=float), expected, atol=6e-7)


@pytest.mark.parametrize("text", SMOOTH)
def test_mean_and_response_are_derivatives(text: str) -> None:
    prior = parse_prior(text)
    gamma, lam = np.meshgrid([-30.0, -2.0, -0.3, 0.4, 1.7, 50.0], [1e-3, 0.1, 1.0, 20.0, 1e4])
    mean, response = prior.moments(gamma, lam)
    assert np.all(np.isfinite(mean)) and np.all(response >= 0.0)
    if prior.support == "positive":
        assert np.all(mean > 0.0)
    step = 1e-3 * (np.sqrt(lam) + 1e-2 * np.abs(gamma))

    def slope(f):
        inner = (f(gamma + step) - f(gamma - step)) / (2 * step)
        outer = (f(gamma + 2 * step) - f(gamma - 2 * step)) / (4 * step)
        return (4 * inner - outer) / 3

    spread = np.maximum(np.abs(response), 1e-12)
    rise = slope(lambda g: prior.moments(g, lam)[0])
    np.testing.assert_allclose(rise / spread, response / spread, rtol=2e-4, atol=2e-4)
    level = np.abs(mean) + np.sqrt(response)
    gain = slope(lambda g: prior.log_partition(g, lam))
    noise = 1e-14 * np.abs(prior.log_partition(gamma, lam)) / step
    assert np.all(np.abs(gain - mean) <= 1e-4 * level + 10 * noise)


@pytest.mark.parametrize("text", [t for t in SMOOTH if not t.startswith("power")])
def test_second_moment_is_the_slope_in_lam(text: str) -> None:
    prior = parse_prior(text)
    gamma, lam = np.meshgrid([-3.0, -0.5, 0.0, 2.0], [0.05, 0.7, 6.0])
    h = 1e-4 * lam
    slope = (prior.log_partition(gamma, lam + h) - prior.log_partition(gamma, lam - h)) / (2 * h)
    np.testing.assert_allclose(-2 * slope, prior.second_moment(gamma, lam), rtol=1e-5, atol=1e-7)


@given(
    text=st.sampled_from(SMOOTH),
    gamma=st.floats(-1e4, 1e4),
    log_lam=st.floats(-8.0, 8.0),
    stretch=st.floats(1e-3, 1.0),
)
@settings(max_examples=200, deadline=None)
def test_properties_of_every_tilt(text: str, gamma: float, log_lam: float, stretch: float) -> None:
    prior, lam = parse_prior(text), 10.0**log_lam
    mean, response = (float(a) for a in prior.moments(gamma, lam))
    assert math.isfinite(mean) and 0.0 <= response < math.inf
    assert math.isfinite(float(prior.log_partition(gamma, lam)))
    if prior.log_concave:
        assert response <= (1.0 + 1e-12) / lam
    if prior.symmetric:
        mirror = prior.moments(-gamma, lam)
        scale = abs(mean) + math.sqrt(response)
        assert float(mirror[0]) == pytest.approx(-mean, abs=1e-10 * scale)
        assert float(mirror[1]) == pytest.approx(response, rel=1e-9)
    further = float(prior.moments(gamma + stretch * math.sqrt(lam), lam)[0])
    assert further >= mean - 1e-10 * (abs(mean) + math.sqrt(response))
    if prior.support == "positive":
        assert mean > 0.0
    if prior.support == "interval":
        assert -1.0 <= mean <= 1.0


def grid() -> tuple[np.ndarray, np.ndarray]:
    gamma, lam = np.meshgrid([-50.0, -2.0, 0.0, 0.3, 7.0], [1e-3, 1.0, 1e4])
    return gamma, lam


def same(one: SourcePrior, other: SourcePrior, rtol: float = 1e-9) -> None:
    gamma, lam = grid()
    for a, b in zip(one.moments(gamma, lam), other.moments(gamma, lam), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9)
    difference = one.log_partition(gamma, lam) - other.log_partition(gamma, lam)
    np.testing.assert_allclose(difference, difference[1, 2], atol=1e-5)


def test_limits_join_the_families() -> None:
    """The catalogue's invariant 2."""
    same(MixturePrior.of([1, 1], [-1, 1], [0, 0]), parse_prior("binary"))
    same(MixturePrior.of([0.7, 0.3], [0, 1], [0, 0]), Binary01Prior(rate=0.3))
    same(BiGaussianPrior(mean=0.0, variance=2.0), parse_prior("gaussian:variance=2"))
    same(BiGaussianPrior(mean=1.5, variance=0.3), BiGaussianPrior(mean=1.5, variance=0.3).mixture)
    same(BiGaussianPrior(mean=1.0, variance=0.0), parse_prior("binary"))
    wide = PositiveGaussianPrior(mean=-1e9, variance=1e9)
    gamma, lam = grid()
    for a, b in zip(wide.moments(gamma, lam), ExponentialPrior().moments(gamma, lam), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    mean, response = UniformPrior(low=-1e6, high=1e6).moments(gamma, lam)
    np.testing.assert_allclose(mean, gamma / lam, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(response, 1 / lam, rtol=1e-9)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cosh", "cosh:scale=3"),
        ("logistic", "logistic:scale=3"),
        ("rayleigh", "rayleigh:variance=9"),
        ("laplace", f"laplace:rate={1 / 3}"),
    ],
)
def test_the_scale_of_a_prior_is_a_unit(one: str, other: str) -> None:
    gamma, lam = grid()
    mean, response = parse_prior(one).moments(3.0 * gamma, 9.0 * lam)
    found = parse_prior(other).moments(gamma, lam)
    np.testing.assert_allclose(found[0], 3.0 * mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[1], 9.0 * response, rtol=1e-9)
    s = np.array([0.1, 0.5, 40.0])
    expected = parse_prior(one).log_density(s / 3.0) - math.log(3.0)
    np.testing.assert_allclose(parse_prior(other).log_density(s), expected, rtol=1e-12)


def test_an_interval_is_symmetric_around_zero_only() -> None:
    assert UniformPrior(low=-2.0, high=2.0).symmetric
    assert not UniformPrior(low=0.0, high=1.0).symmetric


def test_power_law_has_no_scale() -> None:
    # HOJ-M8h
    prior = parse_prior("power-law:alpha=0.7")
    one, other = prior.moments(3.0, 2.0), prior.moments(3.0 / 5.0, 2.0 / 25.0)
    assert float(other[0]) == pytest.approx(5.0 * float(one[0]))
    assert float(other[1]) == pytest.approx(25.0 * float(one[1]))


@pytest.mark.parametrize(
    ("text", "kurtosis"),
    [
        ("gaussian", 0.0),
        ("binary", -2.0),
        ("binary01:rate=0.5", -2.0),
        ("laplace", 3.0),
        ("exponential", 6.0),
        ("uniform", -1.2),
        ("bi-gaussian", -0.5),
        ("cosh", 2.0),
        ("logistic", 1.2),
        ("rayleigh", 0.2450893007),
        ("positive-gaussian", 0.8691773036),
        ("positive-gaussian:mean=-1e4", 5.9999995200),
        ("positive-gaussian:mean=50", 0.0),
        ("power-law", math.inf),
    ],
)
def test_kurtosis(text: str, kurtosis: float) -> None:
    assert parse_prior(text).kurtosis == pytest.approx(kurtosis, abs=1e-8)


PROPER = [t for t in SMOOTH if not t.startswith("power")]


@pytest.mark.parametrize("text", [*PROPER, "positive-gaussian:mean=-4", "positive-gaussian:mean=2"])
def test_draws_have_the_moments_of_the_prior(text: str) -> None:
    prior = parse_prior(text)
    draws = prior.sample(np.random.default_rng(3), (200, 1000))
    assert draws.shape == (200, 1000) and draws.dtype == np.float64
    mean, variance = prior.mean_variance
    error = math.sqrt(variance / draws.size)
    assert abs(float(np.mean(draws)) - mean) < 5 * error
    fourth = (prior.kurtosis + 3.0) * variance**2
    assert abs(float(np.var(draws)) - variance) < 6 * math.sqrt(fourth / draws.size)
    if prior.support == "positive":
        assert np.min(draws) >= 0.0
    centred = (draws - mean) ** 4
    error = float(np.std(centred)) / math.sqrt(draws.size)
    assert abs(float(np.mean(centred)) - fourth) < 6 * error + 1e-12


@pytest.mark.parametrize("text", [t for t in PROPER if parse_prior(t).support != "discrete"])
def test_densities_are_normalised(text: str) -> None:
    prior = parse_prior(text)
    s = np.linspace(-60.0, 60.0, 1_200_001)
    density = np.exp(prior.log_density(s))
    mean, variance = prior.mean_variance
    assert np.trapezoid(density, s) == pytest.approx(1.0, abs=2e-4)
    assert np.trapezoid(density * s, s) == pytest.approx(mean, abs=2e-4)
    assert np.trapezoid(density * (s - mean) ** 2, s) == pytest.approx(variance, rel=1e-3)


@pytest.mark.parametrize("text", ["binary", "power-law", "mixture:variances=(0,1)"])
def test_no_density_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="no density"):
        parse_prior(text).log_density(0.0)


def test_power_law_cannot_be_sampled() -> None:
    with pytest.raises(ModelError, match="not proper"):
        parse_prior("power-law").sample(np.random.default_rng(0), 3)


# ---------------------------------------------------------------------- hyper-parameters (HOJ-L7)


@pytest.mark.parametrize(
    ("true", "first"),
    [
        (Binary01Prior(rate=0.2), Binary01Prior(rate=0.6)),
        (LaplacePrior(rate=2.0), LaplacePrior(rate=0.7)),
        (ExponentialPrior(rate=0.5), ExponentialPrior(rate=1.0)),
        (
            MixturePrior.of([0.7, 0.3], [-1, 2], [0.3, 0.6]),
            MixturePrior.of([1, 1], [-0.5, 0.5], [1, 1]),
        ),
    ],
)
def test_em_of_one_noisy_source_climbs_and_finds_the_prior(
    true: SourcePrior, first: SourcePrior
) -> None:
    """x = s + noise: the likelihood is the product of Z0 at gamma = x / noise, lam = 1 / noise."""
    # HOJ-L7
    rng = np.random.default_rng(8)
    noise = 0.05
    x = true.sample(rng, 10000) + math.sqrt(noise) * rng.standard_normal(10000)
    prior, lam = first, 1.0 / noise
    last = -math.inf
    for _ in range(40):
        level = float(np.sum(prior.log_partition(x * lam, lam)))
        assert level >= last - 1e-7 * abs(level)
        last = level
        half = [prior.statistics(part * lam, lam) for part in (x[:1000], x[1000:])]
        prior = prior.updated(half[0] + half[1])
    assert last >= float(np.sum(true.log_partition(x * lam, lam))) - 0.5
    assert prior.n_parameters >= 1
    for found, right in zip(prior.mean_variance, true.mean_variance, strict=True):
        assert found == pytest.approx(right, rel=0.1, abs=0.05)


def test_rates_stay_inside() -> None:
    assert Binary01Prior().updated(np.array([10.0, 0.0, 0.0])).rate == 0.001
    assert Binary01Prior().updated(np.array([10.0, 10.0, 10.0])).rate == 0.999
    assert LaplacePrior().updated(np.array([5.0, 0.0])).rate == 1.0
    assert parse_prior("gaussian").updated(np.array([5.0, 0.0, 1.0])) == parse_prior("gaussian")


def test_a_component_without_samples_keeps_its_shape() -> None:
    prior = MixturePrior.of([0.5, 0.5], [0, 500], [1, 2])
    new = prior.updated(prior.statistics(np.zeros(50), 1.0))
    weights, means, variances = new.parameters
    assert weights[1] < 1e-9 and means[1] == 500.0 and variances[1] == 2.0


def test_points_stay_points() -> None:
    """A point has neither mean nor variance to learn: only weights move, and states are kept."""
    prior = MixturePrior.of([1, 1, 2], [-1, 3, 0], [0, 0, 0.5])
    new = prior.updated(prior.statistics(np.linspace(-2.0, 4.0, 50), 2.0))
    weights, means, variances = new.parameters
    assert list(means[:2]) == [-1.0, 3.0] and list(variances[:2]) == [0.0, 0.0]
    assert variances[2] > 0.0 and weights[1] != prior.parameters[0][1]
    assert prior.n_parameters == 2 + 2
    points = MixturePrior.of([1, 1], [-1, 3], [0, 0])
    assert points.updated(points.statistics([0.3, 1.0], 1.0)).states is not None
    assert points.n_parameters == 1


def test_statistics_without_an_integral_say_where() -> None:
    with pytest.raises(ModelError, match=r"gamma=7, lam=-0.25 \(1 of 3"):
        MixturePrior.of([0, 1], [0, 0], [1, 4]).statistics([0.0, 1.0, 7.0], [1.0, 1.0, -0.25])


# ---------------------------------------------------------------------- texts and bad input


def test_texts_name_priors_exactly() -> None:
    for name in PRIORS:
        assert PRIORS.find(name).name == name
        prior = parse_prior(name)
        assert prior.text == name and parse_prior(prior.text) == prior
    odd = [
        LaplacePrior(rate=math.pi),
        Binary01Prior(rate=1 / 3),
        MixturePrior.of([1, 2], [math.e, 0.1], [0, 0.3]),
    ]
    for prior in odd:
        assert parse_prior(prior.text) == prior


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("laplce", "did you mean 'laplace'"),
        ("laplace:rate=0", "must be in"),
        ("binary01:rate=1", "must be in"),
        ("uniform:low=1,high=1", "low must be below high"),
        ("mixture:weights=(1,2,3)", "3 weights, 2 means"),
        ("mixture:weights=(1,x)", "numbers not below 0"),
        ("mixture:weights=(0,0)", "positive weight"),
        ("mixture:variances=(1,-1)", "numbers not below 0"),
        ("power-law:k=0.5", "must be in"),
    ],
)
def test_bad_texts(text: str, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        parse_prior(text)


def test_priors_of_several_sources() -> None:
    assert [p.name for p in as_priors("cosh", 2)] == ["cosh", "cosh"]
    mixed = as_priors(["binary", LaplacePrior(rate=3)], 2)
    assert mixed[1].rate == 3
    with pytest.raises(MethodError, match="2 priors are given for 3"):
        as_priors(["binary", "cosh"], 3)
    with pytest.raises(MethodError, match="prior: a string such as"):
        as_priors([1.0], 1)  # type: ignore[list-item]
    for nothing in (5, None):
        with pytest.raises(MethodError, match=f"prior: a string such as.*got {nothing}"):
            as_priors(nothing, 2)  # type: ignore[arg-type]


def test_broadcasting_and_shapes() -> None:
    mean, response = parse_prior("cosh").moments(np.zeros((3, 1)), np.ones(4))
    assert mean.shape == response.shape == (3, 4)
    assert parse_prior("laplace").moments(0.0, 1.0)[0].shape == ()
    assert parse_prior("laplace").log_partition(np.zeros(0), 1.0).shape == (0,)


# ---------------------------------------------------------------------- designed (HOJ-L9)


def cosh_mean(gamma, lam):
    """The mean function of two points at +-1 with Gaussian noise of variance 1."""
    c = 1.0 / (1.0 + lam)
    t = np.tanh(gamma * c)
    return c * (gamma + t), c + c * c * (1 - t * t)


def test_a_designed_prior_behaves_like_the_prior_of_its_mean_function() -> None:
    # HOJ-L9
    designed = DesignedPrior(cosh_mean)
    gamma, lam = np.meshgrid([-3.0, 0.0, 2.0], [0.5, 4.0])
    for a, b in zip(
        designed.moments(gamma, lam), BiGaussianPrior().moments(gamma, lam), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert not designed.has_log_partition and not designed.is_proper
    with pytest.raises(MethodError, match="no log partition"):
        designed.log_partition(0.0, 1.0)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda g, lam: (-g / lam, -1 / lam), "response not below 0"),
        (lambda g, lam: (g / lam, 0.5 / lam), "not the derivative"),
        (lambda g, lam: (np.tanh(g)[:3], g[:3] ** 0), "arrays like gamma"),
        (None, "must be"),
    ],
)
def test_bad_mean_functions(function: object, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        DesignedPrior(function)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- densities of your own


def test_a_density_of_your_own_equals_the_closed_form() -> None:
    own = LogDensityPrior(lambda s: -0.5 * s * s, lambda s: -s)
    gamma, lam = grid()
    for a, b in zip(
        own.moments(gamma, lam), parse_prior("gaussian").moments(gamma, lam), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    positive = LogDensityPrior(lambda s: -s, lambda s: -np.ones_like(s), left=0.0)
    assert positive.support == "positive"
    for a, b in zip(
        positive.moments(gamma, lam), ExponentialPrior().moments(gamma, lam), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    np.testing.assert_allclose(
        positive.log_partition(gamma, lam), ExponentialPrior().log_partition(gamma, lam), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("log_p", "slope", "message"),
    [
        (lambda s: -((s * s - 4) ** 2), lambda s: -4 * s * (s * s - 4), "slope must fall"),
        (lambda s: -0.5 * s * s, lambda s: -2 * s, "is not the slope"),
        (lambda s: s * np.nan, lambda s: s * np.nan, "slope must fall"),
    ],
)
def test_bad_densities(log_p: object, slope: object, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        LogDensityPrior(log_p, slope)  # type: ignore[arg-type]
