"""What "auto" chooses: the prior, the posterior, and the kind of noise."""

import warnings

import numpy as np
import pytest

from kikuchi.ica import MeanFieldICA, adaptation
from kikuchi.ica.channels import _gain_of_noise, _gain_with_mixing, with_channel_variances
from kikuchi.ica.em import Rules
from kikuchi.ica.measures import amari_distance, matched_correlation
from kikuchi.ica.mixing import parse_mixing_prior
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.noise import make_noise
from kikuchi.ica.posteriors.posterior import parse_posterior
from kikuchi.ica.priors.prior import as_priors

RULES = Rules("free", parse_mixing_prior("flat"), "none")


def _fitted(x, *arguments, **options):
    with warnings.catch_warnings(action="ignore"):
        return MeanFieldICA(*arguments, random_state=0, **options).fit(x)


def _laplace(seed, channels, sources, own, count=4000):
    """Mixing and rows, with a noise of 0.3 deviations of each channel or of all."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(channels, sources))
    clean = rng.laplace(size=(count, sources)) @ mixing.T
    scale = clean.std(axis=0) if own else clean.std()
    return mixing, clean + 0.3 * scale * rng.normal(size=clean.shape)


# ---------------------------------------------------------------------- prior


def _mixed(draws, noise, seed=0, count=3000, channels=None):
    """Mixing, sources and rows of sources that `draws` draw."""
    rng = np.random.default_rng(seed)
    s = np.array([draw(rng, count) for draw in draws]).T
    s = (s - s.mean(axis=0)) / s.std(axis=0)
    mixing = rng.normal(size=(channels or len(draws), len(draws)))
    clean = s @ mixing.T
    return mixing, s, clean + noise * clean.std() * rng.normal(size=clean.shape)


def _laplace_draw(rng, n):
    return rng.laplace(size=n)


def _uniform_draw(rng, n):
    return rng.uniform(size=n)


def _sign_draw(rng, n):
    return rng.choice([-1.0, 1.0], n)


def _exponential_draw(rng, n):
    return rng.exponential(size=n)


@pytest.mark.parametrize(
    "draws",
    [
        [_uniform_draw] * 4,
        [_laplace_draw, _uniform_draw, _exponential_draw, _uniform_draw],
        [_exponential_draw] * 3,
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_priors_adapt_to_each_source(draws, noise):
    mixing, _, x = _mixed(draws, noise)
    ica = _fitted(x, len(draws))
    fixed = _fitted(x, len(draws), prior="laplace")
    distance = amari_distance(ica.components_, mixing)
    assert distance < 0.04
    assert distance < amari_distance(fixed.components_, mixing)
    assert len(ica.shapes_) == len(draws)


def test_binary_sources_are_found_to_be_binary_and_enumerated():
    _, s, x = _mixed([_sign_draw] * 3, 0.2)
    ica = _fitted(x, 3)
    assert ica.shapes_ == ["two values"] * 3
    assert ica.posterior_ == "exact"
    assert matched_correlation(ica.transform(x), s).min() > 0.99


def test_more_sources_than_channels_and_missing_values_are_laplace():
    _, _, x = _mixed([_uniform_draw] * 3, 0.2, channels=4, count=400)
    x[::9, 0] = np.nan
    assert _fitted(x, 3, missing="hidden", max_iter=3).shapes_ == ["laplace"] * 3
    assert _fitted(x[:, 1:3], 3, max_iter=3).shapes_ == ["laplace"] * 3


def test_a_prior_that_mixes_sources_up_is_named_as_the_cause():
    _, _, x = _mixed([_uniform_draw] * 4, 0.1, seed=3)
    with pytest.warns(UserWarning, match=r"shapes are .*: the prior may be wrong.*prior='auto'"):
        MeanFieldICA(4, prior="laplace", random_state=0).fit(x)
    adapted = _fitted(x, 4)
    assert not any("less independent" in text for text in adapted.warnings_)


def _spikes_draw(rng, n):
    return rng.standard_normal(n) * (rng.random(n) < 0.2)


def test_a_fit_whose_steps_stay_long_says_that_more_will_not_help():
    """No prior of the stock has a source that is zero most of the time."""
    _, _, x = _mixed([_spikes_draw] * 5, 0.05, seed=2, count=2000)
    with pytest.warns(UserWarning, match="no longer become shorter .* raise tol"):
        stalled = MeanFieldICA(5, random_state=0).fit(x)
    assert stalled.stopped_ == "stalled" and stalled.n_iter_ < 100
    converged = _fitted(_mixed([_spikes_draw] * 5, 0.02, count=2000)[2], 5)
    assert converged.converged_ and not converged.warnings_


@pytest.mark.parametrize("count", [1, 3])
def test_separations_that_agree_are_compared_once(count, monkeypatch):
    _, _, x = _mixed([_laplace_draw, _uniform_draw, _uniform_draw], 0.1)
    calls = []
    turns = iter([np.eye(3)[[2, 0, 1]], -np.eye(3), np.eye(3)])
    if count == 3:
        turns = iter([np.linalg.qr(np.vander([1.0, 2.0, 3.0 + k]))[0] for k in range(3)])
    monkeypatch.setattr("kikuchi.ica.adaptation.rotation", lambda *_: next(turns))
    chosen = adaptation.choose_shapes

    def counted(*arguments):
        calls.append(arguments)
        return chosen(*arguments)

    monkeypatch.setattr("kikuchi.ica.adaptation.choose_shapes", counted)
    adaptation.adapt_priors(Observations.of(x.T), 3, None, np.random.default_rng(0))
    assert len(calls) == count


@pytest.mark.parametrize("seed", [0, 4])
def test_a_first_separation_at_a_saddle_is_not_taken(seed):
    """Half separated, these Laplace sources look logistic, and a third would be preferred."""
    mixing = np.array([[1.0, 0.3], [-0.5, 1.0], [0.2, 0.8]])
    s = np.random.default_rng(2 * seed).laplace(size=(600, 2))
    x = s @ mixing.T + 0.1 * np.random.default_rng(2 * seed + 1).standard_normal((600, 3))
    with warnings.catch_warnings(action="ignore"):
        choice = MeanFieldICA(random_state=0, max_iter=60).choose_sources(x, range(4))
    assert choice.n_components == 2
    assert choice.best.shapes_ == ["laplace"] * 2


def test_the_number_of_flat_sources_is_found():
    _, _, x = _mixed([_uniform_draw] * 2, 0.2, channels=5, count=1500)
    assert MeanFieldICA(random_state=0).choose_sources(x, range(5)).n_components == 2


# ---------------------------------------------------------------------- posterior


def test_few_binary_sources_are_enumerated():
    rng = np.random.default_rng(10)
    mixing = rng.normal(size=(4, 4))
    s = rng.integers(0, 2, size=(4000, 4)).astype(float)
    x = s @ mixing.T + 0.1 * rng.normal(size=(4000, 4))
    ica = _fitted(x, 4, prior="binary01")
    assert ica.posterior_ == "exact"
    assert ica.converged_
    assert matched_correlation(ica.transform(x), s).min() > 0.99
    lr = _fitted(x, 4, prior="binary01", posterior="lr")
    assert matched_correlation(lr.transform(x), s).min() < 0.95


@pytest.mark.parametrize(
    ("prior", "count", "name"),
    [
        ("binary", 10, "exact"),
        ("binary", 11, "lr"),
        (["binary", "laplace"], 2, "lr"),
        ("laplace", 20, "importance"),
        ("laplace", 21, "adatap"),
    ],
)
def test_the_posterior_depends_on_the_number_of_joint_states(prior, count, name):
    posterior, _ = MeanFieldICA().method_for(as_priors(prior, count))
    assert posterior.name == name


@pytest.mark.parametrize(
    "options",
    [
        {"mixing": "nonnegative"},
        {"missing": "hidden"},
        {"solver": "lbfgs"},
        {"batch_size": 100},
    ],
)
def test_enumeration_serves_every_option(options):
    rng = np.random.default_rng(1)
    s = rng.integers(0, 2, size=(600, 2)).astype(float)
    x = s @ np.array([[1.0, 0.3, 0.6], [0.2, 1.0, 0.9]]) + 0.1 * rng.normal(size=(600, 3))
    if "missing" in options:
        x[::7, 1] = np.nan
    ica = _fitted(x, 2, prior="binary01", **options)
    assert ica.posterior_ == "exact"
    assert matched_correlation(ica.transform(x), s).min() > 0.98


def test_few_samples_of_many_sensors_do_not_take_scoring():
    """Outer products of the gradients of 200 samples are singular for 400 parameters."""
    rng = np.random.default_rng(0)
    mixing, s = rng.normal(size=(100, 3)), rng.laplace(size=(200, 3))
    x = s @ mixing.T + 0.3 * rng.normal(size=(200, 100))
    ica = _fitted(x, 3)
    assert ica.posterior_.startswith("adatap")
    assert ica.converged_
    assert matched_correlation(ica.transform(x), s).min() > 0.98


def test_the_chosen_posterior_is_kept_in_files(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(60, 2)) @ rng.normal(size=(2, 20)) + 0.3 * rng.normal(size=(60, 20))
    ica = _fitted(x, 2)
    ica.save(tmp_path / "ica.safetensors")
    again = MeanFieldICA.load(tmp_path / "ica.safetensors")
    assert again.posterior_ == ica.posterior_
    assert np.array_equal(again.transform(x), ica.transform(x))


# ---------------------------------------------------------------------- noise


@pytest.mark.parametrize("posterior", ["auto", "lr", "adatap"])
def test_auto_finds_channels_that_differ_with_every_posterior(posterior):
    mixing, x = _laplace(3, 8, 4, own=True)
    ica = _fitted(x, 4, posterior=posterior)
    assert ica.noise_.shape == (8,)
    assert amari_distance(ica.components_, mixing) < 0.03


@pytest.mark.parametrize("posterior", ["auto", "lr", "adatap"])
def test_auto_keeps_one_variance_where_channels_are_alike(posterior):
    _, x = _laplace(3, 8, 4, own=False)
    ica = _fitted(x, 4, posterior=posterior, max_iter=60)
    assert ica.noise_ == pytest.approx(0.89, abs=0.03)


def test_discrete_and_constrained_sources_have_channels_that_differ():
    rng = np.random.default_rng(2)
    s = rng.integers(0, 2, size=(2000, 2)).astype(float)
    true = np.array([0.1, 0.3, 0.6])
    x = s @ np.array([[1.0, 0.3, 0.6], [0.2, 1.0, 0.9]]) + true * rng.normal(size=(2000, 3))
    for mixing in ("free", "nonnegative"):
        ica = _fitted(x, 2, prior="binary01", mixing=mixing)
        assert np.sqrt(ica.noise_) == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize("own", [True, False])
def test_a_fit_stopped_early_tests_channels_as_well(own):
    _, x = _laplace(3, 8, 4, own=own)
    ica = _fitted(x, 4, posterior="lr", max_iter=4)
    assert np.ndim(ica.noise_) == own
    assert ica.n_iter_ == 4


def test_the_gain_is_twice_the_rise_of_a_gaussian_likelihood():
    """Gaussian sources: the likelihood is known, and the best variances are near the first."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(12, 1))
    true = 1.0 + 0.1 * rng.normal(size=12)
    count = 20_000
    x = mixing @ rng.normal(size=(1, count)) + np.sqrt(true)[:, None] * rng.normal(size=(12, count))
    data, posterior = Observations.of(x), parse_posterior("adatap")

    def rise(variances):
        covariance = mixing @ mixing.T + np.diag(variances)
        _, log_det = np.linalg.slogdet(covariance)
        return -0.5 * (log_det + np.trace(np.linalg.solve(covariance, x @ x.T / count)))

    one = float(np.mean(true))
    priors = tuple(as_priors("gaussian", 1))
    model = Model(mixing, make_noise("isotropic", np.full(12, one)), priors)
    expected = 2.0 * (rise(true) - rise(np.full(12, one)))
    own = with_channel_variances(model)
    assert _gain_of_noise(own, data, posterior) == pytest.approx(expected, rel=0.15)
    assert _gain_with_mixing(own, data, posterior, RULES) == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize("own", [True, False])
def test_adaptive_tap_says_what_the_samples_leave_open(own):
    """Sources that are mixed up: the fit is at its optimum and says that it is not enough."""
    mixing, x = _laplace(4, 4, 4, own=own)
    ica = _fitted(x, 4, prior="laplace", posterior="adatap")
    assert amari_distance(ica.components_, mixing) > 0.1
    assert ica.doubt_.max() > 0.5
    assert (ica.converged_, ica.stopped_) == (False, "unresolved")


def test_noise_at_its_floor_is_not_converged():
    """A channel copied from a source without noise, fitted by EM."""
    rng = np.random.default_rng(5)
    s = rng.integers(0, 2, size=(500, 2)).astype(float)
    x = s @ np.array([[1.0, 0.3, 0.0], [0.2, 1.0, 0.0]])
    x[:, :2] += 0.2 * rng.normal(size=(500, 2))
    x[:, 2] = s[:, 0]
    ica = _fitted(x, 2, prior="binary01", noise="diagonal", solver="em")
    assert ica.stopped_ == "unresolved"
    assert not ica.converged_
    assert "the noise of channel 2 (at its floor)" in ica.warnings_[0]
