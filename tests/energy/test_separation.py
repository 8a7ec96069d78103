"""Sources and parts that are known are found: three learners, and the transposed representation."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kikuchi.core.errors import DataError, MethodError
from kikuchi.energy import EnergyModel, ExpertICA, transposed_features
from kikuchi.ica.measures import amari_distance

SOURCES = 16


WITH_ONE_COMPONENT = [  # checks that set n_components to 1, with three columns
    "check_dont_overwrite_parameters",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_fit2d_predict1d",
]


@parametrize_with_checks(
    [
        ExpertICA(learner=learner, max_iter=1, validation_fraction=0, random_state=0)
        for learner in ("exact", "score-matching")
    ]
    + [EnergyModel("linear:expert=logistic", learner="exact", max_iter=1, validation_fraction=0)]
)
def test_conventions_of_scikit_learn(estimator, check):
    if estimator.learner == "exact" and check.func.__name__ in WITH_ONE_COMPONENT:
        with pytest.raises(MethodError, match=r"as many linear features as white columns \(3\)"):
            check(estimator)
    else:
        check(estimator)


def test_amari_distance_of_scaled_permutations_is_zero():
    # TEH-T40
    rng = np.random.default_rng(0)
    for size in (2, 5, 16):
        scaled = np.diag(rng.normal(size=size))[rng.permutation(size)]
        assert amari_distance(scaled, np.eye(size)) == pytest.approx(0.0, abs=1e-15)
    golden = np.array([[1.0, 0.1], [-0.2, 0.5]])
    assert 2 * 2 * (2 - 1) * amari_distance(golden, np.eye(2)) == pytest.approx(0.9, abs=1e-12)


def test_three_learners_separate_sixteen_sources():
    """Amari distances (the sum, not divided) below 3, and those of the likelihood not larger."""
    # TEH-T39
    rng = np.random.default_rng(0)
    mixing = np.full((SOURCES, SOURCES), 1 / 9) + (1 - 1 / 9) * np.eye(SOURCES)
    rows = rng.laplace(size=(80_000, SOURCES)) @ mixing.T
    found = {}
    for learner in ("exact", "equilibrium", "cd:leapfrogs=10"):
        model = ExpertICA(
            expert="logistic", learner=learner, learning_rate=0.05, schedule="linear", max_iter=4,
            start="rows", random_state=0,
        ).fit(rows)  # fmt: skip
        worst = 2 * SOURCES * (SOURCES - 1)
        found[learner] = worst * amari_distance(model.filters_, mixing)
    untrained = 2 * SOURCES * (SOURCES - 1) * amari_distance(
        ExpertICA(learner="exact", expert="logistic", learning_rate=1e-9, max_iter=1,
                  start="rows", random_state=0).fit(rows).filters_, mixing)  # fmt: skip
    assert max(found.values()) < 3.0 < untrained, found
    assert found["exact"] <= min(found.values()) + 1.0, found


def test_transposed_images_have_the_features_that_they_are_sums_of():
    """Spots that many images share, each in images of its own strength."""
    # TEH-M21
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:24, :24]
    centres = rng.uniform(2, 22, size=(6, 2))
    spots = np.array([np.exp(-((y - r) ** 2 + (x - c) ** 2) / 4).ravel() for r, c in centres])
    images = rng.normal(size=(30, 6)) @ spots + 0.01 * rng.normal(size=(30, 576))
    model = ExpertICA(
        pca_components=6, expert="logistic", learner="exact", learning_rate=0.05, max_iter=150,
        batch_size=64, schedule="linear", random_state=0,
    )  # fmt: skip
    found = transposed_features(images, model)
    assert found.features.shape == (6, 576)
    agreement = np.abs(np.corrcoef(found.features, spots)[:6, 6:])
    assert agreement.max(axis=0).min() > 0.9
    assert not hasattr(model, "model_")  # a copy was fitted
    with pytest.raises(DataError, match="rows of pixels"):
        transposed_features(np.ones(5))
