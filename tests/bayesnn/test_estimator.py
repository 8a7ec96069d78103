"""The estimator: what it finds, interruptions, files, removal of nodes, input that is refused."""

import numpy as np
import pytest

from kikuchi.bayesnn import BayesianMLPRegressor
from kikuchi.bayesnn.bound import descent
from kikuchi.bayesnn.fitting import VariationalFit
from kikuchi.bayesnn.targets import SCALES
from kikuchi.core.errors import DataError, MethodError


@pytest.fixture(scope="module")
def sine():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(60, 2))
    return x, 3 + 2 * np.sin(3 * x[:, 0]) + 0.2 * rng.normal(size=60)


def net(posterior="diagonal", prior="ard", **options):
    given = {"n_init": 2, "random_state": 0, **options}
    return BayesianMLPRegressor(3, posterior, prior, **given)


@pytest.fixture(scope="module")
def fitted(sine):
    return {name: net(name).fit(*sine) for name in ("diagonal", "layered", "mixture:3")}


def test_richer_families_have_higher_bounds(fitted):
    # LAW-L10
    bounds = {name: model.bound_ for name, model in fitted.items()}
    assert bounds["diagonal"] <= min(bounds["layered"], bounds["mixture:3"])
    assert bounds["layered"] > bounds["diagonal"] + 1.0
    for model in fitted.values():
        assert model.converged_ and model.stopped_ == "converged" and not model.warnings_


def test_predictions_are_those_of_the_sine(fitted, sine):
    # LAW-M6
    x, y = sine
    rng = np.random.default_rng(1)
    new = rng.uniform(-0.9, 0.9, size=(300, 2))
    truth = 3 + 2 * np.sin(3 * new[:, 0])
    for model in fitted.values():
        mean, sd = model.predict(new, return_std=True)
        assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.12
        assert np.array_equal(mean, model.predict(new))
        cover = np.mean(np.abs(mean - truth - 0.2 * rng.normal(size=300)) < 1.96 * sd)
        assert 0.90 < cover < 0.995
        assert 0.15 < model.noise_ < 0.27
        assert model.relevance_[1] < 0.1 < 0.8 < model.relevance_[0]
        assert model.precisions_["input 1"] > 10 * model.precisions_["input 0"]
        assert model.score(x, y) > 0.97


def test_samples_have_the_predicted_moments(fitted, sine):
    # LAW-I21
    x = sine[0][:20]
    for model in fitted.values():
        mean, sd = model.predict(x, return_std=True)
        draws = model.sample_y(x, 4000, random_state=0)
        assert draws.shape == (20, 4000)
        assert draws.mean(axis=1) == pytest.approx(mean, abs=0.03)
        assert draws.std(axis=1) == pytest.approx(sd, rel=0.08)
        smooth = model.sample_y(x, 4000, noise=False, random_state=0)
        assert np.all(smooth.std(axis=1) < draws.std(axis=1))


def test_units_of_the_data_do_not_matter(fitted, sine):
    x, y = sine
    scaled = net().fit(10 * x - 5, 100 * y + 7)
    same = fitted["diagonal"]
    assert scaled.predict(10 * x - 5) == pytest.approx(100 * same.predict(x) + 7, rel=1e-3)
    assert scaled.bound_ == pytest.approx(same.bound_ - 60 * np.log(100), abs=0.05)


@pytest.mark.parametrize("posterior", ["layered", "mixture:2"])
def test_ctrl_c_between_two_stages_answers_with_the_one_before(posterior, sine, monkeypatch):
    """The first steps of a stage are a stage's own: parameters of another family have no place."""
    real = VariationalFit._ascend
    for stages in (1, 2):
        begun = []

        def cut(self, mean, sd, free, begun=begun, stages=stages):
            begun.append(self.stage)
            if len(set(begun)) > stages:
                self.scale = 7.0 * sd
                raise KeyboardInterrupt
            return real(self, mean, sd, free)

        monkeypatch.setattr(VariationalFit, "_ascend", cut)
        part = net(posterior, n_init=2, random_state=1).fit(*sine)
        assert part.stopped_ == "interrupted"
        assert np.isfinite(part.bound_) and np.isfinite(part.predict(sine[0])).all()
        assert part.bound_ > min(part.trace_.objective) - 10.0


def test_a_mixture_goes_on_with_the_best_distance_also_after_a_stop(fitted, sine, tmp_path):
    from kikuchi.bayesnn import fitting

    ends, begun = [], []
    keep, begin = fitting.VariationalFit._keep_held, fitting.VariationalFit._begin

    def kept(fit):
        ends.append(fit.bounds[-1])
        keep(fit)

    def beginning(fit, stage):
        ascent = begin(fit, stage)
        if fit.last:
            begun.append(-ascent.value)
        return ascent

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting.VariationalFit, "_keep_held", kept)
        patch.setattr(fitting.VariationalFit, "_begin", beginning)
        whole = net("mixture:3").fit(*sine)
    assert len(ends) >= len(fitting._APART) - 1 and max(ends) > min(ends)
    assert begun == pytest.approx([max(ends)]) and whole.bound_ == fitted["mixture:3"].bound_

    def stop(done, total, **measures):
        if done > whole.n_iter_ // 2:
            raise KeyboardInterrupt

    told = {"checkpoint": tmp_path / "mixture.part"}
    part = net("mixture:3", progress=stop, **told).fit(*sine)
    assert part.stopped_ == "interrupted"
    assert net("mixture:3", **told).fit(*sine).bound_ == whole.bound_


@pytest.mark.parametrize("name", ["diagonal", "layered", "mixture:3"])
def test_files_keep_everything(fitted, sine, tmp_path, name):
    model, file = fitted[name], tmp_path / "net.safetensors"
    model.save(file)
    again = BayesianMLPRegressor.load(file)
    for ours, theirs in zip(
        again.predict(sine[0], return_std=True),
        model.predict(sine[0], return_std=True),
        strict=True,
    ):
        assert np.array_equal(ours, theirs)
    assert again.bound_ == model.bound_ and again.precisions_ == model.precisions_
    assert np.array_equal(
        again.sample_y(sine[0], random_state=1), model.sample_y(sine[0], random_state=1)
    )
    assert again.trace_.objective == model.trace_.objective
    with pytest.raises(MethodError, match="needs X and y"):
        again.prune()


@pytest.mark.parametrize("prior", ["ard", pytest.param("nrd", marks=pytest.mark.slow)])
def test_useless_nodes_are_removed_and_the_bound_rises(sine, prior):
    # LAW-L11
    model = net("diagonal", prior).fit(*sine)
    before, mean = model.bound_, model.predict(sine[0])
    model.prune()
    assert model.bound_ > before
    assert model.inputs_kept_.tolist() == [True, False]
    assert 1 <= model.hidden_kept_.sum() <= 3
    assert model.relevance_[1] == 0.0
    assert model.predict(sine[0]) == pytest.approx(mean, abs=0.15)
    removed = [t for t in model.pruning_ if t["after"] > t["before"]]
    assert removed and removed[-1]["after"] == pytest.approx(model.bound_, abs=1e-6)


def test_one_function_is_compiled_for_one_shape(sine):
    x, y = sine
    net().fit(x, y)
    before = descent._cache_size()
    for seed in range(3):
        net(random_state=seed, max_iter=5).fit(x + seed, y)
    assert descent._cache_size() == before


def test_single_weights_are_removed(fitted, sine, tmp_path):
    # LAW-L11
    file = tmp_path / "net.safetensors"
    fitted["diagonal"].save(file)
    model = BayesianMLPRegressor.load(file).prune(*sine, weights=True)
    assert model.bound_ > fitted["diagonal"].bound_
    weights = [t for t in model.pruning_ if t["what"] == "weight"]
    assert weights and weights[-1]["weights"] == 1  # ends with a single weight that has to stay
    gone = sum(t["weights"] for t in model.pruning_ if t["after"] > t["before"])
    assert gone == np.sum(~model.weights_kept_)
    assert np.mean((model.predict(sine[0]) - fitted["diagonal"].predict(sine[0])) ** 2) < 0.02


def test_counts_on_the_scale_of_their_roots(sine):
    """Moments and intervals are those of draws, and the bound prefers the scale of the noise."""
    x = sine[0]
    rng = np.random.default_rng(2)
    y = rng.poisson(20 * np.exp(1.2 * x[:, 0])).astype(float)
    root, plain = (net("diagonal", scale=scale).fit(x, y) for scale in ("root", "plain"))
    assert root.bound_ > plain.bound_ + 5
    mean, sd = root.predict(x[:5], return_std=True)
    draws = root.sample_y(x[:5], 4000, random_state=0)
    assert draws.mean(axis=1) == pytest.approx(mean, rel=0.03)
    assert draws.std(axis=1) == pytest.approx(sd, rel=0.08)
    low, high = root.predict_interval(x)
    assert 0.9 < np.mean((low <= y) & (y <= high)) <= 1.0
    ends = np.quantile(draws, [0.025, 0.975], axis=1)
    assert low[:5] == pytest.approx(ends[0], rel=0.1, abs=1)
    assert high[:5] == pytest.approx(ends[1], rel=0.1, abs=1)
    with pytest.raises(DataError, match="from 0 up"):
        net(scale="root").fit(x, -y)
    with pytest.raises(DataError, match="above 0"):
        net(scale="log").fit(x, y - y.min())
    with pytest.raises(DataError, match="level"):
        root.predict_interval(x, 95)


def test_logarithms_have_log_normal_moments():
    scale = SCALES["log"]
    draws = np.exp(0.3 + 0.5 * np.random.default_rng(0).normal(size=400_000))
    mean, variance = scale.moments(np.array(0.3), np.array(0.25))
    assert float(mean) == pytest.approx(draws.mean(), rel=5e-3)
    assert float(variance) == pytest.approx(draws.var(), rel=2e-2)
    assert scale.log_slope(np.array([2.0, 4.0])) == pytest.approx(-np.log(8.0))


def test_a_fit_without_any_signal_says_so(sine):
    noise = np.random.default_rng(3).normal(size=60)
    model = net().fit(sine[0], noise)
    assert any("fallen to the prior" in text for text in model.warnings_)
    assert np.ptp(model.predict(sine[0])) < 0.1


def test_bad_input_is_refused(sine):
    x, y = sine
    constant = np.column_stack([x, np.ones(60)])
    with pytest.raises(DataError, match="column 2 of X is constant"):
        net().fit(constant, y)
    with pytest.raises(DataError, match="all targets are equal"):
        net().fit(x, np.ones(60))
    with pytest.raises(DataError, match="5 rows for 6 inputs"):
        net().fit(np.random.default_rng(0).normal(size=(5, 6)), y[:5])
    with pytest.raises(DataError, match="at least 3 rows"):
        net().fit(x[:2], y[:2])
    with pytest.raises(ValueError, match="NaN"):
        net().fit(np.where(x > 0.9, np.nan, x), y)
    with pytest.raises(ValueError, match="could not convert string"):
        net().fit(x, np.array(["a"] * 60))
    with pytest.raises(MethodError, match="no posterior 'banded'"):
        net("banded").fit(x, y)
    with pytest.raises(MethodError, match="prior"):
        net(prior="group").fit(x, y)
    with pytest.raises(MethodError, match="hidden"):
        BayesianMLPRegressor(0).fit(x, y)


@pytest.mark.slow
def test_conventions_of_scikit_learn():
    from sklearn.utils.estimator_checks import check_estimator

    check_estimator(BayesianMLPRegressor(2, "diagonal", "grouped", n_init=1, max_iter=30))
