"""Classification by flows of each class (LIU-X6)."""

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

from kikuchi.core.errors import DataError
from kikuchi.flows import FlowClassifier


@pytest.fixture(scope="module")
def moons():
    return make_moons(500, noise=0.15, random_state=0)


@pytest.fixture(scope="module")
def fitted(moons):
    return FlowClassifier(
        1, flow="coupling:layers=4,width=16", max_iter=30, learning_rate=5e-3, random_state=0
    ).fit(*moons)


def test_beats_one_gaussian_per_class(fitted, moons):
    fresh, labels = make_moons(2000, noise=0.15, random_state=1)
    gaussian = QuadraticDiscriminantAnalysis().fit(*moons).score(fresh, labels)
    assert fitted.score(fresh, labels) > gaussian + 0.03
    shares = fitted.predict_proba(fresh)
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert np.array_equal(fitted.predict(fresh), shares.argmax(axis=1))


def test_affine_classes_are_gaussian(moons):
    """With the affine flow and no training to speak of, Bayes' rule of Gaussians."""
    x, y = moons
    model = FlowClassifier(
        1, flow="affine", max_iter=1, learning_rate=1e-12, validation_fraction=0.0, random_state=0
    ).fit(x, y)
    peer = QuadraticDiscriminantAnalysis(store_covariance=True).fit(x, y)
    assert np.mean(model.predict(x) == peer.predict(x)) > 0.995
    from scipy.stats import multivariate_normal

    own = x[y == 1]
    exact = multivariate_normal(own.mean(axis=0), np.cov(own.T, bias=True)).logpdf(x)
    assert np.allclose(model.class_log_densities(x)[:, 1], exact, atol=1e-2)


def test_files_and_bad_input(fitted, moons, tmp_path):
    x = moons[0]
    fitted.save(tmp_path / "c.safetensors")
    again = FlowClassifier.load(tmp_path / "c.safetensors")
    assert np.array_equal(again.predict_proba(x), fitted.predict_proba(x))
    with pytest.raises(DataError, match="column 0 holds whole numbers only"):
        FlowClassifier(dequantise="none").fit(np.floor(10 * x), moons[1])
    with pytest.raises(DataError, match="column 2 is constant"):
        FlowClassifier().fit(np.column_stack([x, np.full(len(x), 0.5)]), moons[1])
    with pytest.raises(DataError, match="one class only"):
        FlowClassifier().fit(x, np.zeros(len(x)))
    with pytest.raises(DataError, match=r"class 1\.0 has 3 rows"):
        FlowClassifier(5).fit(x[:53], np.r_[np.zeros(50), np.ones(3)])


def test_fewer_rows_than_columns_is_said():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(16, 20)), np.repeat([0, 1], 8)
    model = FlowClassifier(flow="affine", max_iter=1, random_state=0).fit(rows, labels)
    assert any("7 rows of the smallest class to learn 1 cov" in w for w in model.warnings_)
    assert np.all(np.isfinite(model.predict_proba(rows)))


def test_rows_too_far_away_are_of_no_class():
    rows, labels = np.random.default_rng(0).normal(size=(40, 2)), np.repeat([0, 1], 20)
    model = FlowClassifier(flow="affine", max_iter=1, random_state=0).fit(rows, labels)
    assert np.all(model.class_log_densities([[1e300, 0.0]]) == -np.inf)
    with pytest.raises(DataError, match="row 0 lies so far"):
        model.predict_proba([[1e300, 0.0]])
    with pytest.raises(DataError, match="class True has 1 row, too few for 1 flow;"):
        model.fit(rows, np.arange(40) == 3)


def test_the_number_of_components_is_chosen_by_held_out_classes():
    """Each class has four clusters in the corners of a checkerboard: one Gaussian sees nothing."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, 4, size=(800, 2))
    rows, labels = places + 0.15 * rng.normal(size=places.shape), places.sum(axis=1) % 2
    options = {"flow": "affine", "max_iter": 1, "random_state": 0}
    model = FlowClassifier(**options).fit(rows[:600], labels[:600])
    assert model.model_.spec.components >= 8
    one = FlowClassifier(1, **options).fit(rows[:600], labels[:600])
    assert one.score(rows[600:], labels[600:]) < 0.7 < 0.95 < model.score(rows[600:], labels[600:])
