"""The estimators: what they find, files, and input that is refused."""

import re
import time

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.stats import multivariate_normal, norm
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from kikuchi.core.errors import DataError, MethodError
from kikuchi.energy import EnergyModel, ExpertICA, Whitening, patches
from kikuchi.energy.annealing import _Annealing
from kikuchi.energy.defaults import LINEAR, NETWORK
from kikuchi.energy.estimator import _SHORT
from kikuchi.energy.evaluation import evaluate
from kikuchi.energy.start import independent_components
from kikuchi.ica.infomax.infomax_ica import InfomaxICA


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, 4))
    return rng.laplace(size=(3000, 4)) @ mixing.T, mixing


def amari(product):
    p = np.abs(product)
    rows, columns = p / p.max(axis=1, keepdims=True), p / p.max(axis=0, keepdims=True)
    return rows.sum() + columns.sum() - 2 * len(p)


@pytest.mark.parametrize("learner", ["exact", "equilibrium", "cd:leapfrogs=10"])
def test_square_models_find_the_sources(mixed, learner):
    rows, mixing = mixed
    model = ExpertICA(
        expert="logistic", learner=learner, learning_rate=0.05, schedule="linear", max_iter=25,
        start="rows", random_state=0,
    ).fit(rows)  # fmt: skip
    assert amari(model.filters_ @ mixing) < 1.0
    assert model.log_z().width == 0.0


def test_the_exact_learner_is_infomax(mixed):
    """With all rows in each update: the same filters up to their order and signs."""
    rows, _ = mixed
    model = ExpertICA(
        expert="logistic", learner="exact", start="rows", batch_size=len(rows), learning_rate=0.2,
        max_iter=600, validation_fraction=0.0, random_state=0,
    ).fit(rows)  # fmt: skip
    infomax = InfomaxICA(tol=1e-9, random_state=1).fit(rows)
    ours, theirs = model.filters_, infomax.components_
    near = ours @ np.linalg.pinv(theirs)  # a permutation with signs
    order = np.argmax(np.abs(near), axis=1)
    signs = np.sign(near[np.arange(4), order])
    assert sorted(order) == [0, 1, 2, 3]
    assert ours == pytest.approx(signs[:, None] * theirs[order], abs=1e-4 * np.abs(theirs).max())


def test_the_density_of_a_square_model_is_that_of_its_definition(mixed):
    # TEH-M13, TEH-I11
    rows, _ = mixed
    model = ExpertICA(expert="logistic", learner="exact", max_iter=2, random_state=0).fit(rows)
    u = (rows - rows.mean(axis=0)) @ model.filters_.T
    expected = np.linalg.slogdet(model.filters_)[1] - np.sum(
        np.abs(u) + 2 * np.log1p(np.exp(-np.abs(u))), axis=1
    )
    assert model.score_samples(rows) == pytest.approx(expected, abs=1e-3)


def test_log_z_of_an_earlier_fit_is_forgotten(mixed):
    rows, _ = mixed
    model = ExpertICA(expert="logistic", learner="exact", max_iter=1, random_state=0).fit(rows)
    model.log_z()
    model.set_params(max_iter=5).fit(5.0 * rows + rows**3)
    fresh = ExpertICA(expert="logistic", learner="exact", max_iter=5, random_state=0)
    assert model.score(rows) == fresh.fit(5.0 * rows + rows**3).score(rows)


def test_files_keep_everything(mixed, tmp_path):
    rows, _ = mixed
    model = ExpertICA(n_components=6, max_iter=1, random_state=0).fit(rows)
    model.save(tmp_path / "m.safetensors")
    again = ExpertICA.load(tmp_path / "m.safetensors")
    assert np.array_equal(again.transform(rows), model.transform(rows))
    assert np.array_equal(
        again.sample(5, sweeps=3, random_state=1), model.sample(5, sweeps=3, random_state=1)
    )
    assert again.whitening_.kind == "zca"
    found = model.log_z(betas=20, chains=10, random_state=7)
    model.save(tmp_path / "m.safetensors")
    again = ExpertICA.load(tmp_path / "m.safetensors")
    assert again.log_z_.estimate == found.estimate and again.log_z_.warnings == found.warnings
    assert np.array_equal(again.log_z_.forward, found.forward)
    assert again.score_bounds(rows) == model.score_bounds(rows)


@pytest.mark.parametrize("expert", ["laplace", "gaussian-mixture"])
def test_experts_with_tables_are_learnt_exactly(mixed, expert):
    rows, _ = mixed
    model = ExpertICA(expert=expert, learner="exact", max_iter=1, random_state=0).fit(rows)
    assert np.isfinite(model.score(rows))


def test_features_have_names_also_in_data_frames(mixed):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(mixed[0][:50], columns=list("abcd"))
    model = ExpertICA(n_components=4, max_iter=1, random_state=0).set_output(transform="pandas")
    features = model.fit(frame).transform(frame)
    assert list(features.columns) == [f"expertica{k}" for k in range(4)]
    assert list(features.columns) == model.get_feature_names_out().tolist()


def test_a_function_of_the_users_is_a_model():
    # TEH-M12
    def bowl(parameters, x):
        return 0.5 * jnp.sum((x * parameters["scale"]) ** 2, axis=-1)

    rows = np.random.default_rng(0).normal(size=(2000, 2)) * [1.0, 3.0]
    model = EnergyModel(
        bowl, parameters={"scale": np.full(2, 0.5)}, learner="score-matching", whiten="none",
        max_iter=60, learning_rate=0.02, schedule="linear", random_state=0,
    ).fit(rows)  # fmt: skip
    assert np.abs(model.model_.parameters["scale"]) == pytest.approx([1.0, 1 / 3], rel=0.05)
    with pytest.raises(MethodError, match="cannot be saved"):
        model.save("nowhere.safetensors")


@pytest.mark.parametrize("kind", ["pca", "zca"])
def test_whitening_is_undone(mixed, kind):
    rows, _ = mixed
    whitening = Whitening.fit(rows, kind)
    white = whitening(rows)
    assert np.cov(white, rowvar=False, bias=True) == pytest.approx(np.eye(4), abs=1e-9)
    assert whitening.undo(white) == pytest.approx(rows, abs=1e-9)
    assert whitening.log_det == pytest.approx(np.linalg.slogdet(whitening.forward)[1], abs=1e-9)


def test_bad_rows_are_refused_in_one_line():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 3))
    with pytest.raises(DataError, match="2 of 3 directions"):
        ExpertICA().fit(np.column_stack([rows[:, :2], rows[:, 0]]))
    with pytest.raises(DataError, match="2 of 3 directions"):
        ExpertICA(whiten="none").fit(np.column_stack([rows[:, :2], np.ones(50)]))
    with pytest.raises(DataError, match="all alike"):
        ExpertICA().fit(np.ones((50, 3)))
    with pytest.raises(DataError, match="cannot be whitened"):
        ExpertICA().fit(rng.normal(size=(3, 5)))
    with pytest.raises(ValueError, match="NaN"):
        ExpertICA().fit(np.full((10, 2), np.nan))
    with pytest.raises(MethodError, match="as many linear features"):
        ExpertICA(n_components=5, learner="exact").fit(rows)
    with pytest.raises(MethodError, match="not finite"):
        EnergyModel(lambda p, x: jnp.log(p["a"]) * x[:, 0], parameters={"a": -1.0}).fit(rows)
    late = np.abs(rng.normal(size=(200, 1)))
    late[150] = -1.0
    with pytest.raises(MethodError, match="energy is not finite at some of the rows 0 to 199"):
        EnergyModel(
            lambda p, x: p["a"] * jnp.log(x[:, 0]), parameters={"a": 1.0}, whiten="none"
        ).fit(late)
    with pytest.raises(MethodError, match="JAX cannot differentiate"):
        EnergyModel(lambda p, x: p["a"] * np.asarray(x)[:, 0], parameters={"a": 1.0}).fit(rows)
    with pytest.raises(MethodError, match="one number per row"):
        EnergyModel(lambda p, x: p["a"] * x, parameters={"a": 1.0}).fit(rows)


def test_an_improper_density_is_said():
    rows = np.random.default_rng(0).normal(size=(100, 3))
    model = ExpertICA(n_components=2, max_iter=1, random_state=0).fit(rows)
    assert any("Z is infinite" in warning for warning in model.warnings_)
    for answer in (model.log_z, model.sample, lambda: model.score(rows)):
        with pytest.raises(MethodError, match=r"no density.*span 2 of 3 dimensions"):
            answer()
    told = evaluate(model, rows, log_z="ais")
    assert ("log Z", "infinite: there is no density") in told.facts()


def test_rows_in_some_order_are_all_seen():
    """Half of the rows around -5, then half around 5: chains begin at both."""

    def wells(parameters, x):
        near, far = ((x[:, 0] - place) ** 2 for place in (5.0, -5.0))
        return -jnp.logaddexp(-parameters["a"] * near, -parameters["a"] * far)

    rows = np.random.default_rng(0).normal(size=(12_000, 1)) + np.repeat([[-5.0], [5.0]], 6000, 0)
    model = EnergyModel(
        wells, parameters={"a": 0.5}, whiten="none", learner="score-matching", max_iter=1,
        learning_rate=1e-6, random_state=0,
    ).fit(rows)  # fmt: skip
    samples = model.sample(400, sweeps=10, random_state=0)
    assert np.mean(samples > 0) == pytest.approx(0.5, abs=0.1)
    normal = evaluate(model, rows).gaussian
    assert normal == pytest.approx(np.mean(norm(0, rows.std()).logpdf(rows)), abs=0.02)


def test_filters_begin_as_components(mixed):
    """Two sets and a bit of the four sources; along rows where there are too few of them."""
    rows, mixing = mixed
    model = ExpertICA(n_components=9, random_state=0)
    white = model._rows(rows, reset=True)
    filters = model._begin(white, np.random.default_rng(0)).parameters["filters"]
    assert np.linalg.norm(filters, axis=1) == pytest.approx(np.ones(9), rel=1e-5)
    for part in (filters[:4], filters[4:8]):
        assert amari(part @ model.whitening_.forward @ mixing) < 1.0
    few = white[:39]
    along = model._begin(few, np.random.default_rng(0)).parameters["filters"] @ few.T
    assert (along / np.linalg.norm(few, axis=1)).max(axis=1) == pytest.approx(np.ones(9), rel=1e-5)


def test_the_search_for_first_filters_keeps_to_the_time_limit():
    """Components of many columns take longer than the limit: what was found by then is used."""
    rows = np.random.default_rng(0).laplace(size=(30_000, 100))
    model = ExpertICA(n_components=400, learner="cd:leapfrogs=2", seconds=1.0, random_state=0)
    began = time.perf_counter()
    model.fit(rows)
    assert model.stopped_ == "seconds"
    assert time.perf_counter() - began < 20.0  # compilation included


def test_the_mean_of_the_last_epochs_is_the_answer(mixed):
    """With a tiny rate nothing moves; with a larger one the mean lies between the epochs."""
    found = {
        average: ExpertICA(
            expert="logistic", learner="equilibrium", start="rows", learning_rate=0.1, max_iter=4,
            average=average, random_state=0, validation_fraction=0.0,
        ).fit(mixed[0])
        for average in (0.0, 0.5)
    }  # fmt: skip
    infomax = InfomaxICA(random_state=0).fit(mixed[0]).score(mixed[0])
    last, mean = (infomax - found[average].score(mixed[0]) for average in (0.0, 0.5))
    assert 0 < mean < 0.5 * last


@pytest.mark.parametrize("start", ["rows", "random"])
def test_filters_begin_as_asked(mixed, start):
    model = ExpertICA(n_components=9, start=start, random_state=0)
    white = model._rows(mixed[0], reset=True)
    filters = model._begin(white, np.random.default_rng(0)).parameters["filters"]
    assert np.linalg.norm(filters, axis=1) == pytest.approx(np.ones(9), rel=1e-5)
    directions = white[1000:] / np.linalg.norm(white[1000:], axis=1, keepdims=True)
    along = (filters @ directions.T).max(axis=1)
    assert (np.sum(along > 1 - 1e-6) > 4) == (start == "rows")


def test_an_unknown_start_is_refused(mixed):
    with pytest.raises(MethodError, match="start is ica, rows, random"):
        ExpertICA(start="zeros").fit(mixed[0])


def test_a_rate_that_makes_shapes_vanish_is_named():
    rows = np.random.default_rng(0).laplace(size=(400, 4))
    model = ExpertICA(n_components=8, learning_rate=1e4, max_iter=2, random_state=0).fit(rows)
    (remark,) = model.warnings_
    assert "Z is infinite" in remark and "fell to 0 while learning: lower learning_rate" in remark


def test_first_filters_need_no_inverse(mixed, monkeypatch):
    """That of FastICA does not converge for some matrices with orthogonal rows."""

    def failing(*_, **__):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr("scipy.linalg.pinv", failing)
    rng = np.random.default_rng(0)
    rows = rng.laplace(size=(2000, 3))
    found = independent_components(rows, np.eye(3), rng)
    assert np.abs(found).max(axis=1).min() > 0.95


def test_patches_are_checked_by_a_fitted_model_only():
    made = patches([np.random.default_rng(0).normal(size=(40, 40))], size=4, count=50, seed=0)
    with pytest.raises(NotFittedError):
        EnergyModel().check_patches(made)


# ---------------------------------------------------------------------- compared with one Gaussian


def _mixed(kind, seed=0):
    """Four mixed sources, and their mean log-density."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(4, 4))
    sources = getattr(rng, kind)(size=(5000, 4))
    density = getattr(stats, kind)().logpdf(sources).sum(axis=1).mean()
    return sources @ mixing.T, float(density - np.linalg.slogdet(mixing)[1])


@pytest.mark.parametrize("epochs", [10, 50])
def test_score_matching_of_a_density_with_a_kink_says_so(epochs):
    """Far below the truth after 10 epochs, and without a density after 50."""
    rows, _ = _mixed("laplace")
    model = ExpertICA(learner="score-matching", max_iter=epochs, random_state=0).fit(rows)
    assert any("has a kink" in text and "learner='exact'" in text for text in model.warnings_)


def test_the_remark_has_the_levels_of_model_and_gaussian():
    rows, truth = _mixed("laplace")
    model = ExpertICA(
        learner="score-matching", max_iter=10, validation_fraction=0.0, random_state=0
    ).fit(rows)
    gaussian = stats.multivariate_normal(rows.mean(axis=0), np.cov(rows.T, ddof=0))
    level = gaussian.logpdf(rows).mean()
    assert model.score(rows) < level < truth
    found = [float(x) for x in re.findall(r"-\d+\.\d+", model.warnings_[-1])]
    assert found == pytest.approx([model.score(rows), level], abs=5e-3)


@pytest.mark.parametrize(
    ("kind", "learner", "expert"),
    [
        ("laplace", "exact", "student-t"),
        ("logistic", "exact", "student-t"),
        ("laplace", "score-matching", "logistic"),
        ("logistic", "score-matching", "logistic"),
    ],
)
def test_models_better_than_a_gaussian_are_not_remarked_on(kind, learner, expert):
    rows, truth = _mixed(kind)
    model = ExpertICA(learner=learner, expert=expert, max_iter=10, random_state=0).fit(rows)
    assert model.warnings_ == []
    assert model.score(rows) > truth - 0.2


def test_a_density_below_that_of_a_normal_distribution_is_a_warning():
    """Score matching of Laplace rows, whose density has a kink, and the likelihood itself."""
    rng = np.random.default_rng(0)
    rows = rng.laplace(size=(2000, 4)) @ rng.normal(size=(4, 4))
    normal = multivariate_normal(rows.mean(axis=0), np.cov(rows.T)).logpdf(rows).mean()
    with pytest.warns(ConvergenceWarning, match="below that of a normal.*learner='exact'"):
        model = EnergyModel("linear", 4, learner="score-matching", random_state=0).fit(rows)
    assert model.score(rows) < normal - 0.2
    (text,) = [t for t in model.warnings_ if "below that of a normal" in t]
    told = [float(x) for x in re.findall(r"-[0-9.]+[0-9]", text)]
    assert told == pytest.approx([model.score(rows), normal], abs=0.01)
    exact = EnergyModel("linear", 4, learner="exact", random_state=0).fit(rows)
    assert exact.score(rows) > normal and exact.warnings_ == []


def test_an_annealed_density_below_that_of_a_normal_distribution_is_a_warning():
    """Rows that are normal but for whitening, and an energy that is too wide for them."""

    def wide(parameters, x):
        return 0.02 * jnp.sum(x * x, axis=1) + 0.0 * parameters["b"]

    rows = np.random.default_rng(0).normal(size=(500, 2)) * [3.0, 0.5]
    model = EnergyModel(wide, parameters={"b": np.zeros(())}, max_iter=1, random_state=0)
    model.set_params(learner="score-matching", whiten="none").fit(rows)
    assert not [t for t in model.warnings_ if "below that of a normal" in t]  # log Z is not known
    with pytest.warns(ConvergenceWarning, match="below that of a normal distribution"):
        model.log_z(betas=50, chains=40, batches=1, burn_in=50)
    assert model.log_z_.estimate == pytest.approx(np.log(2 * np.pi / 0.04), abs=0.2)
    assert sum("below that of a normal" in t for t in model.warnings_) == 1


# ------------------------------------------------------------------ without choosing anything


def three_clusters(count, seed):
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 3.0], [-2.0, 0.0], [2.0, 0.0]])
    return centres[rng.integers(3, size=count)] + 0.3 * rng.normal(size=(count, 2))


def test_the_default_describes_rows_of_few_columns(tmp_path, monkeypatch):
    """Linear experts by ten epochs of contrastive divergence are below one normal distribution."""
    monkeypatch.setattr(EnergyModel, "judged_columns", 0)  # Z by quadrature instead
    rows, fresh = three_clusters(1000, 0), three_clusters(2000, 1)
    model = EnergyModel(random_state=0).fit(rows)
    assert model.warnings_ == [] and model.recipe_ is NETWORK
    ticks = np.linspace(-8.0, 8.0, 161), np.linspace(-7.0, 9.0, 161)
    grid = np.stack(np.meshgrid(*ticks), axis=-1).reshape(-1, 2)
    log_z = np.logaddexp.reduce(-model.energies(grid).astype(float)) + 2 * np.log(0.1)
    found = -model.energies(fresh).mean() - log_z
    normal = multivariate_normal(rows.mean(axis=0), np.cov(rows.T)).logpdf(fresh).mean()
    truth = -np.log(3) - np.log(2 * np.pi * 0.09) - 1.0  # clusters hardly overlap
    assert normal + 1.0 < truth - 0.3 < found < truth + 0.05
    model.save(tmp_path / "m.safetensors")
    again = EnergyModel.load(tmp_path / "m.safetensors")
    assert again.recipe_ == model.recipe_
    assert np.array_equal(again.energies(fresh), model.energies(fresh))


@pytest.mark.slow
def test_a_fit_to_few_columns_is_compared_with_a_normal_distribution():
    rows, fresh = three_clusters(1000, 0), three_clusters(2000, 1)
    model = EnergyModel(random_state=0).fit(rows)
    assert model.warnings_ == [] and model.log_z_.width < 0.5
    assert model.score(fresh) == pytest.approx(-1.6, abs=0.2)
    with pytest.warns(ConvergenceWarning, match="below that of a normal"):
        EnergyModel("feed-forward", 8, start="random", max_iter=1, random_state=0).fit(rows)


@pytest.mark.slow
def test_a_network_that_overfits_a_small_table_is_a_warning():
    """Training rows are denser than under a normal distribution, held-out rows less."""
    rows = np.random.default_rng(0).normal(size=(300, 6))
    with pytest.warns(ConvergenceWarning, match="held-out row.*it overfits: lower max_iter"):
        model = EnergyModel(random_state=0).fit(rows)
    normal = multivariate_normal(rows.mean(axis=0), np.cov(rows.T)).logpdf(rows).mean()
    assert model.score(rows) > normal


def test_linear_experts_below_a_normal_distribution_name_the_way_out():
    with pytest.warns(ConvergenceWarning, match="below that of a normal.*leave energy and learner"):
        EnergyModel("linear", random_state=0).fit(three_clusters(1000, 0))


def test_what_is_chosen_follows_the_rows():
    def chosen(rows, **options):
        model = EnergyModel(random_state=0, **options)
        model._rows(rows, reset=True)
        return model.recipe_

    rows = np.random.default_rng(0).laplace(size=(300, 20))
    pieces = patches([np.random.default_rng(0).normal(size=(60, 60))], size=2, count=300, seed=0)
    assert chosen(rows[:, :6]) is NETWORK
    assert chosen(rows) is LINEAR and chosen(rows[:60, :2]) is LINEAR and chosen(pieces) is LINEAR
    assert chosen(rows[:, :2], learner="exact") is LINEAR
    assert chosen(rows[:, :2], energy="linear") is LINEAR
    assert LINEAR.epochs(2000, 100) == 10 and LINEAR.energy == "linear"
    assert NETWORK.epochs(2000, 100) == 150 and NETWORK.epochs(100_000, 100) == 10


@pytest.mark.parametrize("when", ["before a batch", "between batches"])
def test_an_interrupted_comparison_leaves_no_shorter_bracket(mixed, tmp_path, monkeypatch, when):
    monkeypatch.setitem(_SHORT, "width", 0.01)  # so narrow a bracket takes more than one batch
    rows = mixed[0][:200]
    model = EnergyModel(max_iter=3, batch_size=20, random_state=0)
    whole = EnergyModel(max_iter=3, batch_size=20, random_state=0).fit(rows)
    assert whole.stopped_ == "epochs" and whole.log_z_.stopped in ("converged", "iterations")
    ask, calls = _Annealing._lead, []

    def interrupted(self, *arguments, **options):
        calls.append(len(self.forward))
        if (when == "before a batch") or self.forward:
            raise KeyboardInterrupt
        return ask(self, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(_Annealing, "_lead", interrupted)
        model.set_params(checkpoint=tmp_path / "state").fit(rows)
    assert calls
    assert model.stopped_ == "interrupted" and not model.converged_
    assert not hasattr(model, "log_z_")
    assert "compared with a normal one" in model.warnings_[-1]
    resumed = model.fit(rows)
    assert resumed.stopped_ == whole.stopped_
    assert resumed.log_z_.estimate == whole.log_z_.estimate
