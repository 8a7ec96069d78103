"""Four linear measures of how alike two faces are, to compare the pair machine with.

Faces are rows of pixels. Each measure has `fit(faces, people)` and `similarity(a, b)`, a table with
one row for each face of `a` and one column for each of `b`; a larger number means more alike.

Reference: TEH-M28.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MethodError


class FaceSimilarity(ABC):
    """Base of the measures of how alike two faces are."""

    name: ClassVar[str]

    @abstractmethod
    def fit(self, faces: ArrayLike, people: ArrayLike) -> Self:
        """Learn from faces (rows) and the number of the person on each."""

    @abstractmethod
    def similarity(self, a: ArrayLike, b: ArrayLike) -> Array:
        """How alike each face of `a` and each face of `b` are."""


@dataclass
class Correlation(FaceSimilarity):
    """Cosine of the angle between the vectors of pixels; nothing is learnt.

    >>> Correlation().similarity([[1, 0]], [[1, 1], [0, 2]]).round(4).tolist()
    [[0.7071, 0.0]]
    """

    name: ClassVar[str] = "correlation"

    def fit(self, faces: ArrayLike, people: ArrayLike) -> Self:
        """Nothing to learn; the faces are checked."""
        checked(faces, people)
        return self

    def similarity(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Cosines, in [-1, 1]."""
        return cosines(rows_of(a), rows_of(b))


@dataclass
class _Projection(FaceSimilarity):
    """Cosines of faces less `mean_`, in the space of the columns of `axes_`."""

    mean_: Array = field(init=False, repr=False)
    axes_: Array = field(init=False, repr=False)

    @property
    def n_components_(self) -> int:
        """Number of axes in use."""
        return int(self.axes_.shape[1])

    def similarity(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Cosines in the space of the axes."""
        return cosines(*((rows_of(x) - self.mean_) @ self.axes_ for x in (a, b)))


@dataclass
class Eigenfaces(_Projection):
    """Cosines in the space of the principal components `skip` + 1 to `components`.

    The first component is mostly the light, so that one is left out. There are at most as many
    components as the faces span; `n_components_` says how many were used.
    """

    name: ClassVar[str] = "eigenfaces"

    components: int = 200
    skip: int = 1

    def fit(self, faces: ArrayLike, people: ArrayLike) -> Self:
        """Find the components of the training faces."""
        if not 0 <= self.skip < self.components:
            raise MethodError(
                f"eigenfaces: skip must be in [0, {self.components}), got {self.skip}"
            )
        x, _ = checked(faces, people)
        self.mean_ = x.mean(axis=0)
        axes = _principal(x - self.mean_)
        self.axes_ = axes[:, self.skip : self.components]
        if not self.axes_.shape[1]:
            raise DataError(f"eigenfaces: the faces span {axes.shape[1]} components; give more")
        return self


@dataclass
class Fisherfaces(_Projection):
    """Cosines in the space that best separates the people of the training faces.

    Principal components first, `inner` of them; then the directions with the largest ratio of
    scatter between to scatter within. There are fewer of these than people. Without `inner` there
    are as many components as leave the scatter within people invertible: faces less people. With
    few faces of each person that is too many to be of use; the number of people is better then.
    """

    name: ClassVar[str] = "fisherfaces"

    components: int = 200
    inner: int | None = None

    def fit(self, faces: ArrayLike, people: ArrayLike) -> Self:
        """Find the directions that separate people."""
        from scipy.linalg import eigh

        x, who = checked(faces, people)
        count = len(np.unique(who))
        if not 1 < count < len(x):
            raise DataError(
                f"fisherfaces: {len(x)} faces of {count} people; there must be two people or more "
                "and two faces of some of them"
            )
        self.mean_ = x.mean(axis=0)
        axes = _principal(x - self.mean_)
        most = len(x) - count
        if self.inner is not None and self.inner < 1:
            raise MethodError(f"fisherfaces: inner must be positive or None, got {self.inner}")
        inner = axes[:, : most if self.inner is None else min(self.inner, most)]
        scores = (x - self.mean_) @ inner
        own_mean = _means_by_person(scores, who)
        between, within = own_mean.T @ own_mean, (scores - own_mean).T @ (scores - own_mean)
        try:
            ratios, directions = eigh(between, within)
        except np.linalg.LinAlgError:
            raise DataError(
                "fisherfaces: the scatter within people is singular; leave out faces that are "
                "the same picture twice"
            ) from None
        best = np.argsort(ratios)[::-1][: min(self.components, count - 1, inner.shape[1])]
        self.axes_ = inner @ directions[:, best]
        return self


@dataclass(frozen=True)
class PPCA:
    """Probabilistic principal components of vectors of mean zero.

    `axes` (columns) with variances `variances`, and `noise` in all other directions.
    """

    axes: Array
    variances: Array
    noise: float

    def log_density(self, a: Array, b: Array) -> Array:
        """Log density of each difference a_i - b_j."""
        from scipy.spatial.distance import cdist

        d, q = self.axes.shape
        left, right = a @ self.axes, b @ self.axes
        scaled = cdist(
            left / np.sqrt(self.variances), right / np.sqrt(self.variances), "sqeuclidean"
        )
        rest = np.maximum(cdist(a, b, "sqeuclidean") - cdist(left, right, "sqeuclidean"), 0.0)
        constant = (
            d * np.log(2 * np.pi) + np.log(self.variances).sum() + (d - q) * np.log(self.noise)
        )
        density: Array = -0.5 * (constant + scaled + rest / self.noise)
        return density


@dataclass
class DeltaPPCA(FaceSimilarity):
    """Log ratio of two densities of the difference of two faces: of one person, and of two.

    Each is a PPCA of mean zero, with `within` and `between` components. The second moments are
    those of all ordered pairs of training faces, from sums over faces, so that none is sampled.
    """

    name: ClassVar[str] = "delta-ppca"

    within: int = 10
    between: int = 30
    same_: PPCA = field(init=False, repr=False)
    other_: PPCA = field(init=False, repr=False)

    def fit(self, faces: ArrayLike, people: ArrayLike) -> Self:
        """Find both densities of differences."""
        x, who = checked(faces, people)
        centred = x - x.mean(axis=0)
        axes = _principal(centred)
        z = centred @ axes
        _, places, sizes = np.unique(who, return_inverse=True, return_counts=True)
        same_pairs = float((sizes * (sizes - 1)).sum())
        other_pairs = len(x) * (len(x) - 1) - same_pairs
        if not same_pairs or not other_pairs:
            raise DataError("delta-ppca: there must be two people, and two faces of some person")
        own = z - _means_by_person(z, who)
        # the pairs of n points, each order once, have n times twice the scatter around their mean
        same = 2 * (own * sizes[places][:, None]).T @ own
        everyone = 2 * len(x) * z.T @ z
        self.same_ = _ppca(same / same_pairs, axes, self.within, "same person")
        self.other_ = _ppca((everyone - same) / other_pairs, axes, self.between, "two people")
        return self

    def similarity(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Log ratio of the densities."""
        x, y = rows_of(a), rows_of(b)
        return self.same_.log_density(x, y) - self.other_.log_density(x, y)


# ---------------------------------------------------------------------- parts


def rows_of(faces: ArrayLike) -> Array:
    """Faces as a table of finite numbers, one per row."""
    x = np.atleast_2d(np.asarray(faces, dtype=np.float64))
    if x.ndim != 2 or not x.size or not np.all(np.isfinite(x)):
        raise DataError("faces must be rows of finite numbers")
    return x


def checked(faces: ArrayLike, people: ArrayLike) -> tuple[Array, Ints]:
    """Faces as a table, and the number of the person on each."""
    x = rows_of(faces)
    who = np.asarray(people, dtype=np.int64).ravel()
    if len(who) != len(x):
        raise DataError(f"{len(who)} numbers of people for {len(x)} faces")
    return x, who


def cosines(a: Array, b: Array) -> Array:
    """Cosine of the angle between each row of `a` and of `b`; 0 with a row of zeros."""
    left, right = (np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    tiny = np.finfo(np.float64).tiny
    result: Array = (a / np.maximum(left, tiny)) @ (b / np.maximum(right, tiny)).T
    return result


def _principal(centred: Array) -> Array:
    """Principal axes as columns, largest first; none whose spread is rounding."""
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    rank = int(np.sum(values > values[0] * max(centred.shape) * np.finfo(np.float64).eps))
    return np.asarray(axes[:rank].T)


def _means_by_person(x: Array, who: Ints) -> Array:
    """For each row the mean over the rows of its person."""
    _, places, sizes = np.unique(who, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), x.shape[1]))
    np.add.at(sums, places, x)
    return (sums / sizes[:, None])[places]


def _ppca(moment: Array, axes: Array, count: int, what: str) -> PPCA:
    """PPCA of a second moment that is given in the space of `axes` and zero outside it."""
    if count < 1:
        raise MethodError(f"delta-ppca: the number of components must be positive, got {count}")
    values, vectors = np.linalg.eigh(moment)
    order = np.argsort(values)[::-1]
    rank = int(np.sum(values > values.max() * len(values) * np.finfo(np.float64).eps))
    kept = order[: min(count, rank - 1, axes.shape[0] - 1)]
    if not len(kept):
        raise DataError(f"delta-ppca: too few pairs ({what}); give more faces")
    noise = float(values[order[len(kept) :]].sum()) / (axes.shape[0] - len(kept))
    return PPCA(axes @ vectors[:, kept], values[kept], noise)
