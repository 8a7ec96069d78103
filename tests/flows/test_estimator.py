"""Mixtures of flows as estimators, against Gaussian mixtures and integrals (LIU-M13, LIU-M14)."""

import pickle

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import check_estimator

from kikuchi.core.errors import DataError, MethodError
from kikuchi.flows import FlowMixture, LatentMixtureFlow, densities
from kikuchi.flows.evaluation import evaluate

SMALL = "coupling:layers=2,width=8"


@pytest.fixture(scope="module")
def moons():
    return make_moons(400, noise=0.1, random_state=0)[0]


@pytest.fixture(scope="module")
def mixture(moons):
    return FlowMixture(2, flow=SMALL, max_iter=8, random_state=0).fit(moons)


@pytest.fixture(scope="module")
def latent(moons):
    return LatentMixtureFlow(4, flow=SMALL, max_iter=8, random_state=0).fit(moons)


# ------------------------------------------------------------------ Gaussian mixtures


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("form", [FlowMixture, LatentMixtureFlow])
def test_affine_em_is_the_em_of_gaussian_mixtures(moons, form, k):
    """LIU-L9, LIU-L10, LIU-C23: the same rounds as scikit-learn's, from the same k-means."""
    # LIU-M13
    scaled = (moons - moons.mean(axis=0)) / moons.std(axis=0)
    for rounds in (2, 6):
        ours = form(
            k, flow="affine", learner="em", start="k-means", validation_fraction=0.0, noise=0.0,
            dtype="float64", max_iter=rounds, tol=0.0, random_state=0,
        ).fit(moons)  # fmt: skip
        seed = int(np.random.default_rng(0).integers(2**31))
        peer = GaussianMixture(k, random_state=seed, tol=0.0, max_iter=rounds - 1, reg_covar=1e-6)
        with pytest.warns(UserWarning):
            peer.fit(scaled)
        expected = peer.score_samples(scaled) - np.log(moons.std(axis=0)).sum()
        assert np.allclose(ours.score_samples(moons), expected, atol=1e-5)
        assert np.allclose(np.sort(ours.weights_), np.sort(peer.weights_), atol=1e-5)


@pytest.mark.parametrize("form", ["mixture", "latent"])
def test_models_begin_as_gaussian_mixtures(moons, form):
    # LIU-M14
    peer = GaussianMixture(2, random_state=0).fit(moons)
    spec = densities.FlowSpec(form, SMALL, 2, 2, double=True)
    base = {"weights": peer.weights_, "means": peer.means_, "covariances": peer.covariances_}
    base = {name: array[None] for name, array in base.items()}
    model = densities.FlowDensity.of(spec, base, np.random.default_rng(0))
    joint = densities.evaluate_joint(spec, model.parameters, moons)[:, 0]
    assert np.allclose(np.logaddexp.reduce(joint, axis=1), peer.score_samples(moons), atol=1e-6)
    shares = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    assert np.allclose(shares, peer.predict_proba(moons), atol=1e-6)


@pytest.mark.parametrize(
    "form", [FlowMixture, pytest.param(LatentMixtureFlow, marks=pytest.mark.slow)]
)
def test_em_never_lowers_the_likelihood(moons, form):
    # LIU-L9, LIU-L10
    model = form(
        2, flow=SMALL, learner="em", start="k-means", validation_fraction=0.0, noise=0.0,
        max_iter=6, inner_max_iter=2, learning_rate=0.05, dtype="float64", random_state=1,
    ).fit(moons)  # fmt: skip
    losses = np.array(model.trace_.objective)
    assert len(losses) == 6
    assert np.all(np.diff(losses) <= 1e-9) and losses[0] - losses[-1] > 0.01


# ------------------------------------------------------------------ densities


def test_densities_integrate_to_one(mixture, latent):
    # LIU-M13, LIU-M14
    ticks = np.linspace(-3.5, 4.5, 220), np.linspace(-3.0, 3.5, 180)
    grid = np.stack(np.meshgrid(*ticks), axis=-1).reshape(-1, 2)
    cell = np.log(ticks[0][1] - ticks[0][0]) + np.log(ticks[1][1] - ticks[1][0])
    for model in (mixture, latent):
        assert np.exp(np.logaddexp.reduce(model.score_samples(grid)) + cell) == pytest.approx(
            1.0, abs=5e-3
        )


def test_samples_follow_the_density(mixture):
    drawn = mixture.sample(4000, random_state=0)
    again = mixture.sample(4000, random_state=0)
    assert np.array_equal(drawn, again)
    inside = (drawn[:, 0] > 0.5).mean()
    ticks = np.linspace(-3.5, 4.5, 220), np.linspace(-3.0, 3.5, 180)
    grid = np.stack(np.meshgrid(*ticks), axis=-1).reshape(-1, 2)
    p = np.exp(mixture.score_samples(grid))
    share = p[grid[:, 0] > 0.5].sum() / p.sum()
    assert abs(inside - share) < 4 * np.sqrt(share * (1 - share) / 4000) + 5e-3


def test_responsibilities_and_latent_values(mixture, latent, moons):
    shares = mixture.predict_proba(moons)
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert np.array_equal(mixture.predict(moons), shares.argmax(axis=1))
    assert mixture.transform(moons).shape == moons.shape
    z = latent.transform(moons)
    assert list(latent.get_feature_names_out()) == ["latentmixtureflow0", "latentmixtureflow1"]
    assert np.linalg.matrix_rank(z) == 2
    mean, error = mixture.score_with_error(moons)
    logs = mixture.score_samples(moons)
    assert mean == pytest.approx(logs.mean())
    assert error == pytest.approx(logs.std(ddof=1) / 20)


def test_learning_improves_on_its_beginning(mixture, moons):
    fresh = make_moons(2000, noise=0.1, random_state=5)[0]
    gaussian = GaussianMixture(2, random_state=0).fit(moons).score(fresh)
    assert mixture.score(fresh) > gaussian
    assert len(mixture.validation_scores_) == mixture.n_iter_ == 8
    assert max(mixture.validation_scores_) > mixture.gaussian_score_


# ------------------------------------------------------------------ guards


def test_a_mixture_that_no_flow_betters_is_fitted_to_all_rows() -> None:
    """Rows that are held out to judge the flow are not lost to the answer."""
    rows = np.random.default_rng(3).normal(size=(300, 2)) * [1.0, 0.5] + [2.0, -1.0]
    model = FlowMixture(
        1, flow="spline:layers=1,width=4", max_iter=3, learning_rate=0.3, patience=1, random_state=0
    ).fit(rows)
    assert any("fitted to all rows" in warning for warning in model.warnings_)
    assert max(model.validation_scores_) < model.gaussian_score_
    assert model.score(rows) == pytest.approx(
        multivariate_normal(rows.mean(axis=0), np.cov(rows.T, bias=True)).logpdf(rows).mean(),
        abs=0.01,
    )
    means = model.model_.parameters["base"]["means"]  # of columns that are centred on all rows
    np.testing.assert_allclose(means, 0.0, atol=1e-6)


def test_explosion_is_seen_and_said():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 8)) * (1 + rng.normal(size=(60, 1)) ** 2)
    model = FlowMixture(
        1, flow="coupling:layers=2,width=32", max_iter=120, patience=120, learning_rate=0.02,
        weight_decay=0.0, noise=0.0, validation_fraction=0.3, random_state=0,
    ).fit(rows)  # fmt: skip
    assert any("fell from" in w and "overfit" in w for w in model.warnings_)
    assert max(model.validation_scores_) - min(model.validation_scores_) > 1.0
    chosen = max([*model.validation_scores_, model.gaussian_score_])
    held_out = model.score(rows)  # includes what was learnt from: at least finite and sane
    assert np.isfinite(held_out) and chosen > -40


def test_collapse_is_said(moons):
    model = FlowMixture(2, flow="affine", max_iter=1, random_state=0).fit(moons)
    model.model_.parameters["base"]["logits"] = np.array([0.0, -20.0], np.float32)
    model._said = []
    model._remark(None)
    assert any("component 1 has collapsed" in w for w in model.warnings_)
    floor = densities.BaseFloor(model.model_.spec, 0.1)
    spike = {"base": {**model.model_.parameters["base"]}, "flow": {}}
    spike["base"]["whiteners"] = np.full(6, 9.0, np.float32)
    raw = np.asarray(floor(spike)["base"]["whiteners"]).reshape(2, 3)
    assert np.allclose(raw[:, [0, 2]], np.log(10.0)) and np.allclose(raw[:, 1], 9.0)


# ------------------------------------------------------------------ beside Gaussian mixtures


def bent(count, seed):
    """A parabola with noise, of which few Gaussians are a poor description."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, count)
    return np.column_stack([x, x * x + 0.1 * rng.normal(size=count)])


def test_the_default_is_never_below_the_mixture_that_held_out_rows_choose():
    """Three flows were the default, whatever the rows: far below the mixture of these rows."""
    rows, fresh = bent(500, 0), bent(2000, 1)
    model = FlowMixture(flow="coupling:layers=1,width=4", max_iter=2, random_state=0).fit(rows)
    assert len(model.weights_) > 5
    assert model.flow_gain_ == 0.0 and model.gaussian_score_ == model.mixture_score_
    assert model.start_score_ < model.gaussian_score_  # five flows were tried
    assert any(f"mixture of {len(model.weights_)} that is" in w for w in model.warnings_)
    few = max(GaussianMixture(k, random_state=0).fit(rows).score(fresh) for k in (1, 3, 5))
    assert model.score(fresh) > few + 0.05
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.partial_fit(rows).weights_, model.partial_fit(rows).weights_)


def test_a_fit_below_a_gaussian_mixture_says_so():
    with pytest.warns(ConvergenceWarning, match="below a Gaussian mixture of .*leave n_components"):
        model = FlowMixture(1, flow="affine", max_iter=1, random_state=0).fit(bent(500, 0))
    (told,) = [w for w in model.warnings_ if "below a Gaussian" in w]
    assert f"{model.mixture_score_:.4g} nats per held-out row" in told
    normal = np.random.default_rng(0).normal(size=(500, 2))
    good = FlowMixture(1, flow="affine", max_iter=1, random_state=0).fit(normal)
    assert not [w for w in good.warnings_ if "below" in w]


def test_rows_that_were_held_out_are_learnt_in_the_end(moons, tmp_path):
    model = LatentMixtureFlow(1, flow=SMALL, learning_rate=0.01, max_iter=12, random_state=0)
    model.fit(moons)
    assert model.flow_gain_ == max(model.validation_scores_) - model.start_score_ > 0.0
    rng = np.random.default_rng(0)
    rng.integers(2**31)
    held = moons[rng.permutation(len(moons))[:40]]
    assert model.score(held) > max(model.validation_scores_)
    model.save(tmp_path / "m.safetensors")
    again = LatentMixtureFlow.load(tmp_path / "m.safetensors")
    assert (again.flow_gain_, again.mixture_score_) == (model.flow_gain_, model.mixture_score_)
    (gain,) = [text for name, text in evaluate(model, moons).facts() if name == "gain of the flow"]
    assert gain.startswith(f"{model.flow_gain_:+.3g} nats per held-out row")


def test_latent_values_have_their_rows(mixture, latent, moons):
    assert np.allclose(latent.inverse_transform(latent.transform(moons)), moons, atol=1e-4)
    z, which = mixture.transform(moons), mixture.predict(moons)
    assert np.allclose(mixture.inverse_transform(z, which), moons, atol=1e-4)
    with pytest.raises(DataError, match=r"2 flows; give components=model\.predict\(X\)"):
        mixture.inverse_transform(z)
    with pytest.raises(DataError, match="whole numbers from 0 to 1"):
        mixture.inverse_transform(z, which + 1)
    with pytest.raises(DataError, match="1 columns; give 2"):
        latent.inverse_transform(z[:, :1])


def test_whole_numbers_come_back_from_latent_values():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 9, 100), rng.normal(size=100)])
    model = LatentMixtureFlow(1, flow="affine", max_iter=1, random_state=0).fit(rows)
    back = model.inverse_transform(model.transform(rows))
    assert np.array_equal(back[:, 0], rows[:, 0]) and np.allclose(back[:, 1], rows[:, 1], atol=1e-5)


# ------------------------------------------------------------------ data


def test_whole_numbers_are_dequantised_or_refused():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 3, 300), rng.normal(size=300)])
    model = FlowMixture(1, flow="affine", max_iter=1, random_state=0).fit(rows)
    assert any("1 columns hold whole numbers" in w for w in model.warnings_)
    assert model.preparation_.cells.tolist() == [1.0, 0.0]
    drawn = model.sample(20, random_state=0)
    assert np.all(drawn[:, 0] == np.floor(drawn[:, 0])) and not np.all(drawn[:, 1] % 1 == 0)
    # P(x) of the whole number is the integral over its cell
    row = np.array([[1.0, 0.2]])
    fine = np.column_stack([1 + (np.arange(400) + 0.5) / 400, np.full(400, 0.2)])
    mean = np.logaddexp.reduce(model.score_samples(fine)) - np.log(400)
    assert model.score_samples(row)[0] == pytest.approx(mean, abs=0.1)
    with pytest.raises(DataError, match=r"column 0 holds whole numbers only.*dequantise"):
        FlowMixture(1, dequantise="none").fit(rows)
    with pytest.raises(DataError, match="column 1 holds numbers that are not whole"):
        FlowMixture(1, dequantise="uniform").fit(rows)


def test_bad_input(moons):
    flat = np.column_stack([moons, np.full(400, 0.5)])
    with pytest.raises(DataError, match=r"column 2 is constant \(0.5\)"):
        FlowMixture().fit(flat)
    with pytest.raises(DataError, match="1 sample"):
        FlowMixture().fit(moons[:1])
    with pytest.raises(DataError, match="9 components for 6 rows"):
        FlowMixture(9).fit(moons[:6])
    with pytest.raises(MethodError, match="there is no flow 'glow'"):
        FlowMixture(flow="glow").fit(moons)
    with pytest.raises(MethodError, match="image_shape"):
        FlowMixture(flow="image").fit(moons)
    with pytest.raises(DataError, match="not images of shape"):
        FlowMixture(1, flow="image:blocks=1", image_shape=(3, 3)).fit(moons)
    with pytest.raises(MethodError, match="start"):
        FlowMixture(start="nowhere").fit(moons)
    with pytest.raises(ValueError, match="NaN"):
        FlowMixture().fit([[np.nan, 1.0], [0.5, 1.0]])


def test_fewer_rows_than_columns_is_said():
    rows = np.random.default_rng(0).normal(size=(12, 20))
    model = FlowMixture(1, flow="affine", max_iter=2, random_state=0).fit(rows)
    assert any("covariances of 20 columns" in w for w in model.warnings_)
    assert np.all(np.isfinite(model.score_samples(rows + 0.1)))


# ------------------------------------------------------------------ files, budgets, programs


@pytest.mark.parametrize("form", [FlowMixture, LatentMixtureFlow])
def test_files_of_the_affine_flow_which_has_no_parameters_of_its_own(moons, tmp_path, form):
    fitted = form(2, flow="affine", max_iter=1, random_state=0).fit(moons)
    fitted.save(tmp_path / "m.safetensors")
    again = form.load(tmp_path / "m.safetensors")
    assert np.array_equal(again.score_samples(moons), fitted.score_samples(moons))
    assert np.array_equal(again.transform(moons), fitted.transform(moons))


def test_pickle_keeps_double_precision(moons):
    model = FlowMixture(2, flow=SMALL, max_iter=1, dtype="float64", random_state=0).fit(moons)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.score_samples(moons), model.score_samples(moons))
    assert np.array_equal(again.weights_, model.weights_)
    scores = [m.partial_fit(moons).score_samples(moons) for m in (model, again)]
    assert np.array_equal(*scores)


@pytest.mark.parametrize("learner", ["gradient", pytest.param("em", marks=pytest.mark.slow)])
def test_a_fit_that_was_cut_short_goes_on(moons, tmp_path, learner):
    options = {
        "flow": SMALL,
        "max_iter": 4,
        "inner_max_iter": 1,
        "random_state": 0,
        "learner": learner,
    }
    whole = FlowMixture(2, **options).fit(moons)
    file = tmp_path / "part"
    part = FlowMixture(2, **options, seconds=1e-3, checkpoint=file).fit(moons)
    assert part.stopped_ == "seconds" and not part.converged_
    done = FlowMixture(2, **options, checkpoint=file).fit(moons)
    assert done.n_iter_ == whole.n_iter_
    assert np.allclose(done.score_samples(moons), whole.score_samples(moons), atol=1e-6)


def test_partial_fit_goes_on(moons):
    model = FlowMixture(2, flow=SMALL, random_state=0)
    model.partial_fit(moons)
    model.partial_fit(moons)
    assert model.n_iter_ == 2


def test_no_program_per_number_of_rows(moons):
    """Fits to other numbers of rows, and answers to any number, share compiled programs."""
    from kikuchi.training import updates

    options = {"flow": "coupling:layers=1,width=4", "max_iter": 1, "random_state": 0}
    options["schedule"] = "constant"  # others are part of the program
    model = FlowMixture(1, **options).fit(moons[:390])
    model.score_samples(moons[:3])
    spec = model.model_.spec
    rule_programs = updates._program.cache_info().currsize
    evaluation = densities._compiled(spec, densities.log_joint)
    sizes = evaluation._cache_size()
    for count in (391, 393, 398):
        other = FlowMixture(1, **options).fit(moons[:count])
        other.score_samples(moons[: count // 7])
        assert other.model_.spec == spec
    assert updates._program.cache_info().currsize == rule_programs
    assert evaluation._cache_size() == sizes
    from kikuchi.flows.learning import LikelihoodLoss

    loss = LikelihoodLoss(spec, 0.01)
    program = updates._program(
        loss, densities.BaseFloor(spec, 1e-3), False, model._optimiser("constant"), (0, 0)
    )
    assert program._cache_size() <= 1


@pytest.mark.slow
def test_scikit_learn_conventions():
    for made in (
        FlowMixture(1, flow="coupling:layers=1,width=4", max_iter=1, random_state=0),
        LatentMixtureFlow(1, flow="affine", max_iter=1, random_state=0),
    ):
        check_estimator(made)


def test_image_flow_on_small_images():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 4)) + rng.normal(size=(100, 1))
    model = FlowMixture(
        1, flow="image:blocks=1,layers=1,width=2", image_shape=(2, 2), max_iter=2, random_state=0
    ).fit(rows)
    assert model.sample(3, random_state=0).shape == (3, 4)
    assert np.isfinite(model.score(rows))


# ------------------------------------------------------------------ rows at the edge


def test_rows_too_far_away_have_no_density_and_tell_nothing(mixture, latent):
    far = [[0.5, 0.2], [1e20, 0.0], [1e300, 0.0]]
    for model in (mixture, latent):
        logs = model.score_samples(far)
        assert np.isfinite(logs[0]) and np.all(logs[1:] == -np.inf)
        for answer in (model.predict_proba, model.predict, model.transform):
            with pytest.raises(DataError, match="row 1 lies so far"):
                answer(far)


def test_small_deviations_on_a_large_offset_are_no_constant(moons):
    model = FlowMixture(1, flow="affine", max_iter=1, random_state=0)
    plain = model.fit(moons).score(moons)
    moved = moons * 1e-6 + 1e6
    assert abs(model.fit(moved).score(moved) - plain - 2 * np.log(1e6)) < 1e-3
    with pytest.raises(DataError, match="column 0 is constant to within rounding"):
        model.fit(moons * 1e-9 + 1e6)


def test_only_one_answer_is_named():
    rows = np.repeat(np.random.default_rng(0).normal(size=(2, 2)), 100, axis=0)
    model = FlowMixture(2, flow=SMALL, max_iter=3, random_state=0).fit(rows)
    told = [w for w in model.warnings_ if "the answer" in w]
    assert len(told) == 1 and "Gaussian mixture" in told[0]


def test_em_that_was_interrupted_says_so(moons):
    def interrupt(done, total, **more):
        raise KeyboardInterrupt

    endless = {"tol": 0.0, "patience": 10**6, "max_iter": 10**6}
    model = FlowMixture(
        2, flow="affine", learner="em", progress=interrupt, random_state=0, **endless
    )
    assert model.fit(moons).stopped_ == "interrupted"
    assert model.warnings_ == ["stopped early (interrupted): the best result so far is used"]
    assert np.isfinite(model.score(moons))
