"""The four baselines of face recognition (TEH-M28) against formulas, scikit-learn and SciPy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from kikuchi.core.errors import DataError, MethodError
from kikuchi_experiments.applications.face_baselines import (
    Correlation,
    DeltaPPCA,
    Eigenfaces,
    FaceSimilarity,
    Fisherfaces,
)

Array = NDArray[np.float64]


@pytest.fixture
def people() -> tuple[Array, NDArray[np.int64], Array]:
    """Faces of six people with 3, 4 or 5 pictures each, and five new faces."""
    rng = np.random.default_rng(3)
    who = np.repeat(np.arange(6), [3, 4, 5, 3, 4, 5])
    centres = rng.normal(size=(6, 12))
    faces = centres[who] + 0.5 * rng.normal(size=(len(who), 12)) @ rng.normal(size=(12, 12)) / 3
    return faces, rng.permutation(who), rng.normal(size=(5, 12))


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_correlation_is_the_cosine(people: tuple[Array, NDArray[np.int64], Array]) -> None:
    faces, who, new = people
    table = Correlation().fit(faces, who).similarity(new, faces)
    assert table.shape == (5, len(faces))
    for i, j in product(range(5), range(4)):
        assert table[i, j] == pytest.approx(cosine(new[i], faces[j]), abs=1e-12)


def test_a_black_face_is_like_none() -> None:
    assert Correlation().similarity(np.zeros((1, 3)), np.ones((1, 3))).tolist() == [[0.0]]


def test_eigenfaces_are_those_of_scikit_learn(
    people: tuple[Array, NDArray[np.int64], Array],
) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    faces, who, new = people
    table = Eigenfaces(components=5).fit(faces, who).similarity(new, faces)
    pca = decomposition.PCA(n_components=5).fit(faces)
    a, b = pca.transform(new)[:, 1:], pca.transform(faces)[:, 1:]
    wanted = [[cosine(x, y) for y in b] for x in a]
    np.testing.assert_allclose(table, wanted, atol=1e-10)


def test_components_are_limited_by_the_data(
    people: tuple[Array, NDArray[np.int64], Array],
) -> None:
    faces, who, _ = people
    assert Eigenfaces().fit(faces, who).n_components_ == 11  # 12 pixels, the first left out
    assert Eigenfaces().fit(faces[:4], who[:4]).n_components_ == 2  # four faces span three
    assert Fisherfaces().fit(faces, who).n_components_ == 5  # six people


def test_fisherfaces_are_those_of_scikit_learn(
    people: tuple[Array, NDArray[np.int64], Array],
) -> None:
    """Directions with unit scatter within people: cosines do not see their common scale."""
    analysis = pytest.importorskip("sklearn.discriminant_analysis")
    faces, who, new = people
    table = Fisherfaces(components=4).fit(faces, who).similarity(new, faces)
    lda = analysis.LinearDiscriminantAnalysis(solver="svd", n_components=4).fit(faces, who)
    # scikit-learn centres on the weighted mean of the classes, which is the mean of the faces
    a, b = lda.transform(new), lda.transform(faces)
    wanted = [[cosine(x, y) for y in b] for x in a]
    np.testing.assert_allclose(table, wanted, atol=1e-8)


def test_fisherfaces_on_few_components(
    people: tuple[Array, NDArray[np.int64], Array],
) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    faces, who, new = people
    pca = decomposition.PCA(n_components=4).fit(faces)
    whole = Fisherfaces().fit(pca.transform(faces), who)
    assert whole.n_components_ == 4
    table = Fisherfaces(inner=4).fit(faces, who).similarity(new, faces)
    wanted = whole.similarity(pca.transform(new), pca.transform(faces))
    np.testing.assert_allclose(table, wanted, atol=1e-9)


def test_fisherfaces_with_more_pixels_than_faces() -> None:
    """Components first: on training faces the people become separate points."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(4), 4)
    faces = rng.normal(size=(4, 60))[who] + 0.8 * rng.normal(size=(16, 60))
    fisher = Fisherfaces().fit(faces, who)
    table = fisher.similarity(faces, faces)
    assert table[who[:, None] == who].min() > table[who[:, None] != who].max()


def test_delta_ppca_is_a_ratio_of_normal_densities(
    people: tuple[Array, NDArray[np.int64], Array],
) -> None:
    """Moments over pairs one by one; densities of SciPy with the full covariance."""
    faces, who, new = people
    moments = {True: np.zeros((12, 12)), False: np.zeros((12, 12))}
    counts = {True: 0, False: 0}
    for i, j in product(range(len(faces)), repeat=2):
        if i != j:
            same = bool(who[i] == who[j])
            moments[same] += np.outer(faces[i] - faces[j], faces[i] - faces[j])
            counts[same] += 1
    densities = {}
    for same, q in ((True, 3), (False, 5)):
        values, vectors = np.linalg.eigh(moments[same] / counts[same])
        values[:-q] = values[:-q].mean()
        covariance = (vectors * values) @ vectors.T
        densities[same] = multivariate_normal(np.zeros(12), covariance)
    table = DeltaPPCA(within=3, between=5).fit(faces, who).similarity(new, faces)
    for i, j in product(range(5), range(6)):
        delta = new[i] - faces[j]
        wanted = densities[True].logpdf(delta) - densities[False].logpdf(delta)
        assert table[i, j] == pytest.approx(wanted, abs=1e-9)


def test_delta_ppca_with_more_pixels_than_faces() -> None:
    """Directions that no training face has count as noise."""
    rng = np.random.default_rng(1)
    who = np.repeat(np.arange(5), 3)
    faces = rng.normal(size=(15, 40))
    model = DeltaPPCA(within=2, between=2).fit(faces, who)
    pairs = [(i, j) for i, j in product(range(15), repeat=2) if i != j and who[i] == who[j]]
    deltas = np.array([faces[i] - faces[j] for i, j in pairs])
    values = np.sort(np.linalg.eigvalsh(deltas.T @ deltas / len(deltas)))[::-1]
    np.testing.assert_allclose(model.same_.variances, values[:2], rtol=1e-10)
    assert model.same_.noise == pytest.approx(values[2:].mean(), rel=1e-10)


@pytest.mark.parametrize("method", [Correlation(), Eigenfaces(), Fisherfaces(), DeltaPPCA()])
def test_bad_faces_are_refused(method: FaceSimilarity) -> None:
    with pytest.raises(DataError, match="finite"):
        method.fit([[1.0, np.nan]], [0])
    with pytest.raises(DataError, match="2 numbers of people for 1 faces"):
        method.fit([[1.0, 2.0]], [0, 1])


def test_too_few_people_are_refused() -> None:
    faces = np.random.default_rng(0).normal(size=(3, 5))
    with pytest.raises(DataError, match="two people"):
        Fisherfaces().fit(faces, [0, 0, 0])
    with pytest.raises(DataError, match="two faces of some"):
        DeltaPPCA().fit(faces, [0, 1, 2])
    with pytest.raises(DataError, match="same picture twice"):
        Fisherfaces().fit(np.repeat(faces, 2, axis=0), [0, 0, 1, 1, 2, 2])
    with pytest.raises(MethodError, match="inner"):
        Fisherfaces(inner=0).fit(faces, [0, 0, 1])
    with pytest.raises(MethodError, match="skip"):
        Eigenfaces(components=2, skip=2).fit(faces, [0, 1, 2])
    with pytest.raises(DataError, match="span"):
        Eigenfaces(components=9, skip=4).fit(faces, [0, 1, 2])
    with pytest.raises(MethodError, match="positive"):
        DeltaPPCA(within=0).fit(faces, [0, 0, 1])
