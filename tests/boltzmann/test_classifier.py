"""`FreeEnergyClassifier` (WH-L10)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from kikuchi.boltzmann import RBM, BoltzmannMachine, FreeEnergyClassifier
from kikuchi.core.errors import DataError


def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return (X > 8).astype(np.float64), y


@pytest.mark.parametrize("options", [{"visible": "gaussian"}, {"limits": "data"}])
def test_scikit_learn_accepts_the_estimator(options: dict) -> None:
    """Its checks seed estimators that have a `random_state`; the machine has no seed of its own."""
    check_estimator(FreeEnergyClassifier(RBM(3, learning_rate=0.01, max_iter=3, **options)))


def test_a_seed_of_the_classifier_makes_fits_of_unseeded_machines_equal() -> None:
    X, y = digits()
    keep = y < 3
    X, y = X[keep], y[keep]

    def energies(seed: int | None) -> np.ndarray:
        model = FreeEnergyClassifier(RBM(4, max_iter=2), random_state=seed)
        return model.fit(X, y).free_energies(X[:20])

    first = energies(0)
    assert np.array_equal(first, energies(0))
    assert not np.array_equal(first, energies(1)) and not np.array_equal(first, energies(None))


def test_digits_are_told_apart_better_than_by_pixels() -> None:
    X, y = digits()
    machine = BoltzmannMachine(25, architecture="poe", max_iter=8, random_state=0)
    model = FreeEnergyClassifier(machine).fit(
        X[:600], y[:600], X_more=X[600:900], y_more=y[600:900]
    )
    ours = np.mean(model.predict(X[900:]) != y[900:])
    pixels = LogisticRegression(max_iter=2000).fit(X[:900], y[:900])
    assert ours < np.mean(pixels.predict(X[900:]) != y[900:])
    assert model.predict_proba(X[:5]).shape == (5, 10)
    assert model.free_energies(X[:5]).shape == (5, 10)
    for k, label in enumerate(model.classes_[:3]):
        expected = model.machines_[k].free_energy(X[:5])
        assert np.allclose(model.free_energies(X[:5])[:, k], expected)
        assert label == k


def test_sparse_rows_and_words_as_labels() -> None:
    X, y = digits()
    keep = y < 2
    X, words = X[keep], np.where(y[keep] == 1, "one", "zero")
    model = FreeEnergyClassifier(RBM(5, random_state=0))
    dense = model.fit(X, words).predict_proba(X)
    sparse = model.fit(scipy.sparse.csr_matrix(X), words).predict_proba(scipy.sparse.csr_matrix(X))
    assert np.allclose(dense, sparse)
    assert model.classes_.tolist() == ["one", "zero"]
    assert model.score(X, words) > 0.97


def test_bad_classes_are_refused() -> None:
    X, y = digits()
    model = FreeEnergyClassifier(RBM(2, max_iter=1), classes=range(11))
    with pytest.raises(DataError, match="class 10 has no rows"):
        model.fit(X, y)
    with pytest.raises(DataError, match="none of the classes"):
        FreeEnergyClassifier(RBM(2, max_iter=1), classes=[0, 1]).fit(X, y)
    with pytest.raises(DataError, match="one class"):
        FreeEnergyClassifier(RBM(2, max_iter=1)).fit(X, np.zeros(len(X)))
    with pytest.raises(DataError, match="one known label"):
        FreeEnergyClassifier(RBM(2, max_iter=1)).fit(X, y, X_more=X[:3], y_more=[0, 1, 99])
    with pytest.raises(ValueError, match="outside"):
        FreeEnergyClassifier(RBM(2, max_iter=1)).fit(X * 3, y)


def test_machines_of_all_classes_scale_rows_alike() -> None:
    """Rows of one class are dimmer: limits of each class would make them alike."""
    rng = np.random.default_rng(0)
    X = rng.random((60, 6))
    y = np.arange(60) % 2
    X[y == 1] *= 0.2
    model = FreeEnergyClassifier(RBM(2, max_iter=1, limits="data", random_state=0)).fit(X, y)
    assert len({machine.limits_ for machine in model.machines_}) == 1
    assert model.machines_[0].limits_ == (X.min(), X.max())


def test_the_classifier_says_what_its_machines_and_its_regression_say() -> None:
    rows = (np.random.default_rng(0).random((40, 4)) < 0.5).astype(np.float64)
    labels = rows[:, 0] > 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cut = FreeEnergyClassifier(RBM(2, max_iter=9, seconds=1e-9, random_state=0), max_iter=1)
        cut.fit(rows, labels)
    assert not cut.converged_ and len(cut.warnings_) == 5
    assert "class False: ended after" in cut.warnings_[0] and "the regression" in cut.warnings_[-1]
    whole = FreeEnergyClassifier(RBM(2, max_iter=2, random_state=0)).fit(rows, labels)
    assert whole.converged_
    assert not any("ended after" in text or "the regression" in text for text in whole.warnings_)


def test_ctrl_c_in_one_class_ends_the_others_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []

    def cut(machine: RBM, rows: np.ndarray, y: object = None) -> RBM:
        fitted.append(len(rows))
        machine.stopped_ = "interrupted"
        return machine

    monkeypatch.setattr(RBM, "fit", cut)
    rows = (np.random.default_rng(0).random((40, 4)) < 0.5).astype(np.float64)
    with pytest.raises(KeyboardInterrupt):
        FreeEnergyClassifier(RBM(2)).fit(rows, rows[:, 0] > 0.5)
    assert len(fitted) == 1
