"""`MeanFieldICA` as an estimator: conventions, recovery, collapse, bad input (HOJ-M7, HOJ-L6)."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import FastICA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kikuchi.core.errors import BudgetError, DataError, KikuchiError, MethodError
from kikuchi.ica.mean_field_ica import MeanFieldICA
from kikuchi.ica.measures import amari_distance, column_angles, matched_correlation

QUICK = {"max_iter": 30, "tol": 1e-2}


@pytest.mark.filterwarnings("ignore:MeanFieldICA")
@parametrize_with_checks([MeanFieldICA(**QUICK), MeanFieldICA(1, posterior="naive", **QUICK)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def _laplace(seed=0, count=2000, noise=0.2, shape=(4, 3)):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=shape)
    s = rng.laplace(size=(count, shape[1]))
    return mixing, s, s @ mixing.T + noise * rng.normal(size=(count, shape[0]))


def _fit(X, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MeanFieldICA(**params).fit(X)


# ---------------------------------------------------------------------- answers


def test_sparse_sources_are_recovered_with_their_noise():
    mixing, s, x = _laplace(seed=1, count=3000)
    ica = MeanFieldICA(3, random_state=0).fit(x + 5.0)
    assert ica.converged_
    assert ica.warnings_ == []
    assert amari_distance(ica.components_, mixing) < 0.03
    assert matched_correlation(ica.transform(x + 5.0), s).min() > 0.95
    assert ica.noise_ == pytest.approx(0.04, rel=0.1)
    assert np.allclose(ica.mean_, (x + 5.0).mean(axis=0))
    assert ica.components_.shape == (3, 4)


@pytest.mark.parametrize("kind", ["laplace", "t3"])
@pytest.mark.parametrize("condition", [5.0, 150.0])
@pytest.mark.filterwarnings("ignore:MeanFieldICA")
def test_the_unmixing_inverts_mixings_without_noise_however_conditioned(kind, condition):
    """Judged by the filters of another program on the same rows."""
    ours, theirs = [], []
    for seed in range(40, 43):
        rng = np.random.default_rng(seed)
        size = (4000, 4)
        s = rng.laplace(size=size) if kind == "laplace" else rng.standard_t(3, size=size)
        left, _, right = np.linalg.svd(rng.normal(size=(4, 4)))
        mixing = left * np.geomspace(1.0, 1.0 / condition, 4) @ right
        x = s @ mixing.T
        fast = FastICA(4, whiten="unit-variance", max_iter=1000, random_state=0).fit(x)
        ica = MeanFieldICA(4, random_state=0).fit(x)
        ours.append(amari_distance(ica.components_, mixing))
        theirs.append(amari_distance(fast.components_, mixing))
        np.testing.assert_allclose(ica.components_ @ ica.mixing_, np.eye(4), atol=1e-9)
    assert np.median(ours) < 1.5 * np.median(theirs)


def test_inverse_transform_and_covariances_belong_to_the_posterior():
    _, _, x = _laplace()
    ica = _fit(x, n_components=3, random_state=0)
    s = ica.transform(x)
    assert np.mean((ica.inverse_transform(s) - x) ** 2) < 1.2 * ica.noise_
    covariances = ica.source_covariance(x[:50])
    assert covariances.shape == (50, 3, 3)
    assert np.linalg.eigvalsh(covariances).min() > 0
    assert np.allclose(ica.transform(x[:50]), s[:50], atol=1e-6)


def test_complex_sources_are_refused():
    model = MeanFieldICA(2, **QUICK, random_state=0)
    model.fit(np.random.default_rng(0).laplace(size=(50, 2)))
    with pytest.raises(DataError, match="sources are real numbers, got complex ones"):
        model.inverse_transform(np.ones((3, 2)) + 1j)


def test_scores_of_gaussian_sources_are_the_density_of_the_model():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(300, 4))
    ica = _fit(x, n_components=2, prior="gaussian", random_state=0)
    covariance = ica.mixing_ @ ica.mixing_.T + ica.noise_ * np.eye(4)
    exact = multivariate_normal(ica.mean_, covariance).logpdf(x)
    assert np.allclose(ica.score_samples(x), exact, atol=1e-6)
    assert ica.score(x) == pytest.approx(exact.mean())
    assert ica.n_parameters() == 2 * 4 + 1
    assert ica.bic(x) == pytest.approx(-2 * exact.sum() + 9 * np.log(300))
    assert ica.aic(x) == pytest.approx(-2 * exact.sum() + 18)


def test_golden_values_of_one_sample():
    """Catalogue section 8: the E-step of two binary sources in two sensors."""
    a = np.array([[1.0, 1.0], [1.0, -0.5]])
    x = np.array([[0.7, -0.4]])
    means = {"naive": (-0.065886, 0.731963), "lr": (-0.065886, 0.731963)}
    means |= {"adatap": (-0.020059, 0.645306), "exact": (-0.043938, 0.643753)}
    logs = {"naive": -3.426127, "lr": -3.364731, "adatap": -3.364229, "exact": -3.364991}
    rng = np.random.default_rng(2)
    train = rng.choice([-1.0, 1.0], size=(50, 2)) @ a.T + rng.normal(size=(50, 2))
    for posterior in means:
        ica = _fit(
            train, n_components=2, prior="binary", posterior=posterior, noise=1.0, max_iter=1
        )
        ica._keep(type(ica.model_)(a, ica.model_.noise, ica.model_.priors))
        ica.mean_ = np.zeros(2)
        assert ica.transform(x)[0] == pytest.approx(means[posterior], abs=1e-6)
        assert ica.score(x) == pytest.approx(logs[posterior], abs=1e-6)


def test_sampling_follows_the_model():
    _, _, x = _laplace()
    ica = _fit(x, n_components=3, random_state=0)
    drawn, s = ica.sample(200_000, random_state=1, return_latents=True)
    assert s.shape == (200_000, 3)
    covariance = 2.0 * ica.mixing_ @ ica.mixing_.T + ica.noise_ * np.eye(4)
    assert np.abs(np.cov(drawn.T) - covariance).max() < 0.05 * np.abs(covariance).max()
    again = ica.sample(5, random_state=1)
    assert np.array_equal(again, ica.sample(5, random_state=1))


def test_mixed_priors_find_their_sources():
    rng = np.random.default_rng(3)
    s = np.column_stack([rng.laplace(size=3000), rng.choice([-1.0, 1.0], size=3000)])
    mixing = np.array([[1.0, 0.8], [-0.5, 1.0], [0.3, 0.4]])
    x = s @ mixing.T + 0.2 * rng.normal(size=(3000, 3))
    ica = _fit(x, prior=["laplace", "binary"], random_state=0)
    assert [p.name for p in ica.priors_] == ["laplace", "binary"]
    found = ica.transform(x)
    for k in range(2):
        assert abs(np.corrcoef(found[:, k], s[:, k])[0, 1]) > 0.95


def test_positive_parts_with_nonnegative_mixing():
    rng = np.random.default_rng(4)
    mixing = np.kron(np.eye(3), np.ones((3, 1))) + 0.02
    s = rng.exponential(size=(1500, 3))
    x = s @ mixing.T + 0.1 * rng.normal(size=(1500, 9))
    for rule in ("nonnegative", "multiplicative"):
        ica = _fit(x, n_components=3, prior="exponential", mixing=rule, n_init=2, random_state=0)
        assert ica.mixing_.min() >= 0.0
        assert np.array_equal(ica.mean_, np.zeros(9))
        assert column_angles(ica.mixing_, mixing).max() < 5.0


@pytest.mark.parametrize("noise", ["diagonal", "full"])
def test_noise_of_other_shapes_is_learned(noise):
    rng = np.random.default_rng(5)
    mixing = rng.normal(size=(6, 2))
    spread = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    x = rng.laplace(size=(4000, 2)) @ mixing.T + np.sqrt(spread) * rng.normal(size=(4000, 6))
    ica = _fit(x, n_components=2, noise=noise, random_state=0)
    found = np.diag(ica.noise_) if noise == "full" else ica.noise_
    if noise == "diagonal":
        assert np.abs(found / spread - 1).max() < 0.25
    assert ica.n_parameters() == 12 + (6 if noise == "diagonal" else 21)


def test_missing_values_are_hidden():
    mixing, s, x = _laplace(shape=(6, 2))
    holes = x.copy()
    holes[np.random.default_rng(6).random(x.shape) < 0.2] = np.nan
    ica = _fit(holes, n_components=2, missing="hidden", random_state=0)
    assert amari_distance(ica.components_, mixing) < 0.05
    assert matched_correlation(ica.transform(holes), s).min() > 0.95
    assert np.isfinite(ica.score_samples(holes)).all()
    with pytest.raises(ValueError, match="NaN"):
        _fit(holes, n_components=2)


def test_batches_and_partial_fit_come_near_the_whole():
    mixing, _, x = _laplace(count=4000)
    batched = _fit(x, n_components=3, batch_size=500, max_iter=30, random_state=0)
    assert amari_distance(batched.components_, mixing) < 0.05
    stream = MeanFieldICA(3, random_state=0)
    for part in np.array_split(np.tile(x, (3, 1)), 24):
        stream.partial_fit(part)
    assert stream.n_iter_ == 24
    assert amari_distance(stream.components_, mixing) < 0.06
    assert stream.score(x) > batched.score(x) - 0.05


def test_equal_seeds_give_equal_fits_and_pipelines_work():
    _, _, x = _laplace(count=300)
    params = {"n_components": 3, "n_init": 2, "start": "random", "max_iter": 20}
    one, two = (_fit(x, random_state=7, **params) for _ in range(2))
    assert np.array_equal(one.mixing_, two.mixing_)
    assert len(one.restarts_) == 2
    assert one.selection_ == "importance sampling"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = make_pipeline(StandardScaler(), MeanFieldICA(2, max_iter=10))
        assert pipeline.fit_transform(x).shape == (300, 2)
    assert list(one.get_feature_names_out()) == [f"meanfieldica{k}" for k in range(3)]


def test_many_channels_need_no_matrix_of_their_square():
    rng = np.random.default_rng(8)
    channels, scans = 4196, 60
    bits = (rng.random((scans, 2)) < 0.5).astype(float)
    x = bits @ (0.5 * rng.normal(size=(2, channels))) + rng.normal(size=(scans, channels))
    params = {"n_components": 2, "prior": "binary01", "posterior": "variational", "max_iter": 20}
    _fit(x[:, :300], random_state=0, **params)
    tracemalloc.start()
    ica = _fit(x, random_state=0, **params)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < channels**2 * 8 / 4
    assert matched_correlation(ica.transform(x), bits).min() > 0.95


# ---------------------------------------------------------------------- collapse


def _binary_problem(seed):
    rng = np.random.default_rng(seed)
    while True:
        mixing = rng.normal(size=(2, 2))
        lengths = np.linalg.norm(mixing, axis=0)
        if lengths.min() >= 0.7 and abs(mixing[:, 0] @ mixing[:, 1]) <= 0.866 * lengths.prod():
            break
    x = rng.choice([-1.0, 1.0], size=(1000, 2)) @ mixing.T + rng.normal(size=(1000, 2))
    return mixing, x


def test_noise_makes_naive_mean_field_lose_columns_and_not_linear_response():
    """HOJ-E3: a lost column is seen, warned of and named; linear response loses none."""
    lost = {"naive": 0, "lr": 0}
    for seed in range(8):
        mixing, x = _binary_problem(seed)
        for posterior in lost:
            params = {"n_components": 2, "prior": "binary", "posterior": posterior}
            ica = _fit(x, start="random", max_iter=300, random_state=seed, **params)
            shortest = np.linalg.norm(ica.mixing_, axis=0).min()
            gone = shortest < 0.3 * np.linalg.norm(mixing, axis=0).min()
            lost[posterior] += gone
            if shortest < 0.01:
                assert ica.collapsed_ == (int(np.argmin(np.linalg.norm(ica.mixing_, axis=0))),)
                assert any("collapsed" in text for text in ica.warnings_)
    assert lost["lr"] == 0
    assert lost["naive"] >= 2


def test_a_lost_column_is_warned_of():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 2)).T
    with pytest.warns(UserWarning, match="collapsed: source"):
        MeanFieldICA(3, prior="gaussian", posterior="naive", random_state=1, max_iter=400).fit(x)


def test_what_does_not_converge_or_runs_out_of_time_says_so():
    _, _, x = _laplace(count=500)
    with pytest.warns(UserWarning, match="not converged in 2 iterations"):
        ica = MeanFieldICA(3, max_iter=2, tol=1e-9, random_state=0).fit(x)
    assert not ica.converged_
    with (
        pytest.warns(UserWarning, match="stopped early"),
        pytest.warns(UserWarning, match="4 of 5 restarts were left out"),
    ):
        ica = MeanFieldICA(3, seconds=1e-3, n_init=5, tol=0.0, random_state=0).fit(x)
    assert np.isfinite(ica.mixing_).all()


# ---------------------------------------------------------------------- bad input


def _rows(count=50, channels=3, seed=0):
    return np.random.default_rng(seed).laplace(size=(count, channels))


def _with(x, where, value):
    x[where] = value
    return x


@pytest.mark.parametrize(
    ("params", "x", "error", "text"),
    [
        ({}, _with(_rows(), (slice(None), 1), 2.0), DataError, "channel 1 is constant"),
        ({}, _with(_rows(), (3, 1), np.nan), ValueError, "NaN"),
        (
            {"missing": "hidden"},
            _with(_rows(), (slice(None), 2), np.nan),
            DataError,
            "channel 2 has no value",
        ),
        ({"missing": "hidden"}, _with(_rows(), 4, np.nan), DataError, "row 4 has no value"),
        ({"noise": "full"}, _rows(3, 5), DataError, "5 sources need at least 5 samples"),
        (
            {"n_components": 2, "noise": "full"},
            _rows(4, 5),
            DataError,
            "more samples than channels",
        ),
        (
            {"missing": "hidden", "noise": "full"},
            _with(_rows(), (3, 1), np.nan),
            MethodError,
            "isotropic or diagonal",
        ),
        (
            {"prior": "exponential", "mixing": "nonnegative"},
            -np.abs(_rows()),
            DataError,
            "without positives",
        ),
        (
            {"prior": "exponential", "mixing": "nonnegative"},
            _rows(),
            DataError,
            "values are negative",
        ),
        (
            {"n_components": 40, "prior": "binary", "posterior": "exact"},
            _rows(),
            BudgetError,
            "40",
        ),
        ({"prior": "laplas"}, _rows(), MethodError, "did you mean 'laplace'"),
        (
            {"prior": ["laplace"], "n_components": 2},
            _rows(),
            MethodError,
            "1 priors are given for 2",
        ),
        ({"posterior": "mean"}, _rows(), MethodError, "there is no posterior"),
        (
            {"solver": "lbfgs", "posterior": "lr"},
            _rows(),
            MethodError,
            "does not belong to its moments",
        ),
        (
            {"solver": "lbfgs", "posterior": "naive", "mixing": "nonnegative"},
            _rows(),
            MethodError,
            "free mixing",
        ),
        ({"n_components": 0}, _rows(), MethodError, "n_components must be"),
        ({"n_init": 0}, _rows(), MethodError, "n_init must be"),
        ({"tol": -1.0}, _rows(), MethodError, "tol must be"),
        ({"mixing": "sparse"}, _rows(), MethodError, "mixing must be one of"),
        ({"start": "warm"}, _rows(), MethodError, "start must be one of"),
        ({"n_components": 4, "start": "pca"}, _rows(), MethodError, "use start='random'"),
        ({"center": "maybe"}, _rows(), MethodError, "center must be"),
    ],
)
def test_bad_input_is_refused_before_the_work(params, x, error, text):
    with pytest.raises(error, match=text) as caught:
        MeanFieldICA(**params).fit(x)
    if issubclass(error, KikuchiError):
        assert "\n" not in str(caught.value)


def test_priors_without_a_density_have_no_likelihood():
    _, _, x = _laplace(count=300, shape=(2, 2))
    ica = _fit(x, n_components=2, prior="power-law", max_iter=5, n_init=2, random_state=0)
    for score in (ica.score, ica.bic):
        with pytest.raises(MethodError, match="power-law is a mean function without a density"):
            score(x)
    assert ica.selection_ == "least noise"
    assert np.isfinite(ica.transform(x)).all()


@pytest.mark.parametrize("posterior", ["exact", "lr"])
def test_sources_of_three_points_stay_discrete(posterior):
    rng = np.random.default_rng(10)
    s = rng.choice([-1.0, 0.0, 2.0], size=(300, 2), p=[0.5, 0.3, 0.2])
    x = s @ rng.normal(size=(2, 3)) + 0.2 * rng.normal(size=(300, 3))
    points = "mixture:weights=(1,1,1),means=(-1,0,2),variances=(0,0,0)"
    options = {"posterior": posterior, "noise": "isotropic", "max_iter": 40, "random_state": 0}
    ica = _fit(x, n_components=2, prior=points, **options)
    for prior in ica.priors_:
        assert prior.states[0].tolist() == [-1.0, 0.0, 2.0]
        assert np.ptp(prior.parameters[0]) > 0.05  # weights are learned
    assert ica.n_parameters() == 2 * 3 + 1 + 2 * 2


def test_uniform_sources_of_one_sign_are_not_centred():
    x = np.random.default_rng(11).uniform(size=(200, 2)) @ np.array([[1.0, 0.3], [0.2, 1.0]])
    assert _fit(x, prior="uniform:low=0,high=1", max_iter=3).mean_.tolist() == [0.0, 0.0]
    assert _fit(x, prior="uniform", max_iter=3).mean_ == pytest.approx(x.mean(axis=0))


def test_mean_field_takes_every_kind_of_seed_and_refuses_no_priors() -> None:
    rows = np.random.default_rng(0).laplace(size=(60, 2))
    options = {"max_iter": 2, "start": "random"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (
            MeanFieldICA(2, random_state=np.random.default_rng(5), **options).fit(rows)
            for _ in range(2)
        )
    assert np.array_equal(one.mixing_, two.mixing_)
    assert one.sample(3, random_state=np.random.default_rng(0)).shape == (3, 2)
    for seed in (-1, "x", 2**40):
        with pytest.raises(MethodError, match="random_state must be"):
            MeanFieldICA(2, random_state=seed, **options).fit(rows)
    with pytest.raises(MethodError, match="no prior is given"):
        MeanFieldICA(prior=[]).fit(rows)
