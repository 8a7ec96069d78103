"""`FacePairRBM`: how alike two faces are, by a machine that has learnt pairs of faces.

A rate-coded machine sees two pictures of the same person side by side. The goodness of a pair is
high when both may be one person; balanced by the goodness of each face with itself, it ranks the
faces of a gallery.

Reference: TEH-I18, TEH-M11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.boltzmann.estimators.rate_coded import RateCodedRBM
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.rules.rate_coded import replicas_of
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MissingExtraError, ModelError
from kikuchi.core.extras import install
from kikuchi.core.seeds import generator
from kikuchi_experiments.applications.face_baselines import FaceSimilarity, checked, rows_of

try:
    from sklearn.base import BaseEstimator, clone
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtraError(
        f"machines of face pairs need scikit-learn; {install('learn')}"
    ) from None


RANKS = (1, 2, 4, 8, 16)
_BLOCK = 2**22  # numbers held at once when all pairs of two sets are compared


@dataclass(frozen=True)
class Gallery:
    """Faces as the hidden units see them: input from the first place, from the second, and the
    goodness of each face with itself.
    """

    first: Array
    second: Array
    itself: Array


@dataclass(frozen=True)
class PairGoodness:
    """Goodness of pairs under given weights.

    `first` and `second` (pixels x hidden) are the scaled weights, those between two replicas times
    the number of replicas of both units; `bias` is that of one replica; `replicas` are those of
    each hidden unit. Faces are rows of [0, 1].

        I_j(a, b) = sum_i first_ij a_i + sum_i second_ij b_i + n_j bias_j
        G(a, b)   = sum_j n_j log(1 + exp(I_j / n_j))                        (3.10)
        F(a, b)   = G(a, b) + G(b, a) - G(a, a) - G(b, b)                    (3.8)

    What depends on visible units alone cancels in F, and is left out of G.

    >>> pair = PairGoodness(np.array([[0.8], [0.1]]), np.array([[0.2], [0.9]]), 0.0, 1)
    >>> a, b = [[1.0, 0.0]], [[0.0, 1.0]]
    >>> bool(np.allclose(pair.similarity(a, b), pair.similarity(b, a).T))
    True
    """

    first: Array
    second: Array
    bias: ArrayLike = 0.0
    replicas: ArrayLike = 1

    def __post_init__(self) -> None:
        if self.first.ndim != 2 or self.first.shape != self.second.shape:
            raise ModelError(
                f"weights of both faces must be alike, got {self.first.shape} and "
                f"{self.second.shape}"
            )

    @classmethod
    def of(cls, machine: Machine) -> PairGoodness:
        """The weights of a machine whose visible units are two faces, one after the other."""
        if machine.n_visible % 2:
            raise ModelError(f"two faces are an even number of units, got {machine.n_visible}")
        per_hidden = replicas_of(machine.hidden)
        scaled = machine.weights.astype(np.float64) * (replicas_of(machine.visible) * per_hidden)
        half = machine.n_visible // 2
        bias = machine.hidden_bias.astype(np.float64)
        return cls(scaled[:half], scaled[half:], bias, per_hidden)

    def see(self, faces: ArrayLike) -> Gallery:
        """What is computed once for each face."""
        rows = rows_of(faces)
        if rows.shape[1] != len(self.first):
            raise DataError(f"faces have {rows.shape[1]} pixels, the weights {len(self.first)}")
        first, second = rows @ self.first, rows @ self.second
        return Gallery(first, second, self._total(first + second))

    def goodness(self, a: ArrayLike, b: ArrayLike) -> Array:
        """G of each face of `a` in the first place with each face of `b` in the second (3.10)."""
        return self._paired(self.see(a).first, self.see(b).second)

    def similarity(self, a: ArrayLike | Gallery, b: ArrayLike | Gallery) -> Array:
        """F of each face of `a` with each of `b` (3.8); symmetric, and 0 for the same face."""
        x = a if isinstance(a, Gallery) else self.see(a)
        y = b if isinstance(b, Gallery) else self.see(b)
        both: Array = self._paired(x.first, y.second) + self._paired(y.first, x.second).T
        return both - x.itself[:, None] - y.itself

    def _paired(self, first: Array, second: Array) -> Array:
        result = np.empty((len(first), len(second)))
        step = max(1, _BLOCK // max(second.size, 1))
        for begin in range(0, len(first), step):
            part = first[begin : begin + step, None, :] + second
            result[begin : begin + step] = self._total(part)
        return result

    def _total(self, inputs: Array) -> Array:
        n = np.asarray(self.replicas, dtype=np.float64)
        bias = np.asarray(self.bias, dtype=np.float64)
        total: Array = np.sum(n * np.logaddexp(0.0, inputs / n + bias), axis=-1)
        return total


class FacePairRBM(FaceSimilarity, BaseEstimator):  # type: ignore[misc]
    """Rate-coded machine of pairs of faces, as a measure of likeness.

    Attributes: `rbm_` (the trained machine), `pair_` (`PairGoodness`), `n_pairs_` (ordered ones).

    Parameters
    ----------
    machine: a `RateCodedRBM` with the wanted settings; None: 100 hidden units, 250 epochs.
    pairs: how many pairs to learn from, drawn at random, each in both orders; None: all pairs of
        different pictures of one person.
    random_state: seed of that draw and of the machine.
    """

    name: ClassVar[str] = "rate-coded RBM"

    def __init__(
        self,
        machine: RateCodedRBM | None = None,
        *,
        pairs: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.machine = machine
        self.pairs = pairs
        self.random_state = random_state

    def fit(self, faces: ArrayLike, people: ArrayLike) -> Self:
        """Learn all ordered pairs of different faces of one person."""
        rows, who = checked(faces, people)
        chosen = same_person_pairs(who, self.pairs, self.random_state)
        self.n_pairs_ = len(chosen)
        template = RateCodedRBM() if self.machine is None else self.machine
        rbm: RateCodedRBM = clone(template).set_params(random_state=self.random_state)
        self.rbm_ = rbm.fit(np.concatenate([rows[chosen[:, 0]], rows[chosen[:, 1]]], axis=1))
        self.pair_ = PairGoodness.of(rbm.model_)
        return self

    @property
    def warnings_(self) -> list[str]:
        """What went wrong in the training."""
        check_is_fitted(self)
        found: list[str] = self.rbm_.warnings_
        return found

    def similarity(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Balanced similarity F of each face of `a` with each of `b`."""
        check_is_fitted(self)
        return self.pair_.similarity(self._shares(a), self._shares(b))

    def goodness(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Goodness G of each face of `a`, as the first, with each of `b`, as the second."""
        check_is_fitted(self)
        return self.pair_.goodness(self._shares(a), self._shares(b))

    def identify(self, faces: ArrayLike, gallery: ArrayLike, people: ArrayLike) -> NDArray[Any]:
        """The person of the most similar face of the gallery, for each face."""
        return identify(self.similarity(faces, gallery), people)

    def _shares(self, faces: ArrayLike) -> Array:
        low, high = self.rbm_.limits_ or (0.0, float(self.rbm_.visible_replicas))
        return (rows_of(faces) - low) / (high - low)


# ---------------------------------------------------------------------- pairs and ranks


def same_person_pairs(people: ArrayLike, count: int | None = None, seed: int | None = None) -> Ints:
    """Numbers of two different faces of one person, each pair in both orders.

    With `count` so many pairs are drawn, each different; both orders of each are kept.

    >>> same_person_pairs([0, 1, 0, 1]).tolist()
    [[0, 2], [1, 3], [2, 0], [3, 1]]
    """
    who = np.asarray(people)
    first, second = np.nonzero(np.triu(who[:, None] == who, 1))
    if not len(first):
        raise DataError("no person has two faces: pairs of the same person are needed")
    if count is not None:
        if not 1 <= count <= len(first):
            raise DataError(f"there are {len(first)} pairs of one person, asked for {count}")
        drawn = np.sort(generator(seed).choice(len(first), count, replace=False))
        first, second = first[drawn], second[drawn]
    once = np.column_stack([first, second])
    return np.concatenate([once, once[:, ::-1]])


def identify(similarity: ArrayLike, people: ArrayLike) -> NDArray[Any]:
    """The person of the most similar face of the gallery (column), for each face (row)."""
    table, who = np.asarray(similarity), np.asarray(people)
    if table.ndim != 2 or table.shape[1] != len(who):
        raise DataError(f"similarities of shape {table.shape} for a gallery of {len(who)}")
    found: NDArray[Any] = who[np.argmax(table, axis=1)]
    return found


def rank_errors(
    similarity: ArrayLike,
    people: ArrayLike,
    gallery_people: ArrayLike,
    ranks: Sequence[int] = RANKS,
) -> Array:
    """Share of faces whose n most similar faces of the gallery are all of others.

    One row of `similarity` for each face, one column for each of the gallery. A tie counts
    against the right person.

    >>> rank_errors([[3, 2, 1], [1, 2, 3]], [0, 0], [0, 1, 1], ranks=(1, 2, 3)).tolist()
    [0.5, 0.5, 0.0]
    """
    table = np.asarray(similarity, dtype=np.float64)
    who, theirs = np.asarray(people), np.asarray(gallery_people)
    if table.shape != (len(who), len(theirs)) or not np.all(np.isfinite(table)):
        raise DataError(
            f"similarities must be finite, {len(who)} x {len(theirs)}; got {table.shape}"
        )
    right = who[:, None] == theirs
    if not right.any(axis=1).all():
        missing = who[np.argmin(right.any(axis=1))]
        raise DataError(f"person {missing} is not in the gallery: no rank is right")
    best = np.max(np.where(right, table, -np.inf), axis=1)
    before = np.sum((table >= best[:, None]) & ~right, axis=1)
    return np.array([np.mean(before >= rank) for rank in ranks])
