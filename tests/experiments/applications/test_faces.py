"""The machine of face pairs: golden values, symmetries, identification (TEH-M11, TEH-I18)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import comb, logsumexp

pytest.importorskip("sklearn")

from kikuchi.boltzmann.estimators.rate_coded import RateCodedRBM
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinomialUnits
from kikuchi.core.errors import DataError, ModelError
from kikuchi_experiments.applications.faces import (
    FacePairRBM,
    PairGoodness,
    identify,
    rank_errors,
    same_person_pairs,
)

Array = NDArray[np.float64]
A, B = np.array([[0.2, 0.9]]), np.array([[0.6, 0.4]])


@pytest.fixture
def golden() -> PairGoodness:
    """The example of TEH-M11: hidden units of two and of three replicas."""
    first = np.array([[0.8, -0.4], [-0.2, 0.6]])
    second = np.array([[0.5, 0.1], [0.3, -0.7]])
    return PairGoodness(first, second, 0.0, np.array([2, 3]))


def test_golden_values(golden: PairGoodness) -> None:
    # TEH-T31
    wanted = {(0, 1): 3.7981186407, (1, 0): 3.5980430595, (0, 0): 3.5743198054}
    wanted[1, 1] = 3.8094860248
    both = np.concatenate([A, B])
    table = golden.goodness(both, both)
    for (i, j), value in wanted.items():
        assert table[i, j] == pytest.approx(value, abs=1e-10)
    assert golden.similarity(A, B)[0, 0] == pytest.approx(0.0123558700, abs=1e-10)


def test_three_forms_of_goodness(golden: PairGoodness) -> None:
    """Sum over counts (3.7), entropy form (3.9) and closed form (3.10) are one number."""
    # TEH-T31
    n = np.array([2, 3])
    inputs = A @ golden.first + B @ golden.second
    counts = [
        logsumexp([np.log(comb(m, k)) + x * k / m for k in range(m + 1)])
        for x, m in zip(inputs[0], n, strict=True)
    ]
    p = 1 / (1 + np.exp(-inputs / n))
    entropy = np.sum(inputs * p) - np.sum(n * (p * np.log(p) + (1 - p) * np.log(1 - p)))
    closed = golden.goodness(A, B)[0, 0]
    assert sum(counts) == pytest.approx(closed, abs=1e-12)
    assert entropy == pytest.approx(closed, abs=1e-12)


def test_similarity_is_symmetric_and_zero_for_the_same_face() -> None:
    # TEH-T31
    rng = np.random.default_rng(0)
    pair = PairGoodness(*rng.normal(size=(2, 7, 4)), rng.normal(size=4), 5)
    faces = rng.random((6, 7))
    table = pair.similarity(faces, faces)
    np.testing.assert_allclose(table, table.T, atol=1e-12)
    np.testing.assert_allclose(np.diag(table), 0, atol=1e-12)
    assert np.abs(table).max() > 0.1
    some = pair.see(faces[:2])
    np.testing.assert_allclose(pair.similarity(some, faces), table[:2], atol=1e-12)


def test_blocks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    pair = PairGoodness(*rng.normal(size=(2, 5, 3)), 0.3, 4)
    a, b = rng.random((9, 5)), rng.random((4, 5))
    whole = pair.similarity(a, b)
    monkeypatch.setattr("kikuchi_experiments.applications.faces._BLOCK", 25)
    np.testing.assert_array_equal(pair.similarity(a, b), whole)


def test_goodness_is_minus_the_free_energy_of_the_machine() -> None:
    """F from free energies with all visible terms, summed over all states of the hidden units."""
    rng = np.random.default_rng(2)
    machine = Machine(
        rng.normal(size=(4, 2)),
        rng.normal(size=4),
        rng.normal(size=2),
        visible=BinomialUnits(replicas=3),
        hidden=BinomialUnits(replicas=2),
    )
    states = np.array(list(product(range(3), repeat=2)), dtype=float)
    base = machine.hidden.log_base(states).sum(axis=1)

    def minus_free_energy(a: Array, b: Array) -> float:
        counts = 3 * np.concatenate([a, b])[None]
        energies = machine.energy(np.repeat(counts, len(states), axis=0), states)
        own = machine.visible.log_base(counts).sum()
        return float(logsumexp(base - energies) + own)

    a, b = np.array([1 / 3, 1.0]), np.array([2 / 3, 0.0])
    wanted = minus_free_energy(a, b) + minus_free_energy(b, a)
    wanted -= minus_free_energy(a, a) + minus_free_energy(b, b)
    found = PairGoodness.of(machine).similarity(a, b)
    assert found[0, 0] == pytest.approx(wanted, abs=1e-12)


def test_pairs_of_one_person_in_both_orders() -> None:
    pairs = same_person_pairs([5, 7, 5, 5, 8])
    assert {tuple(p) for p in pairs.tolist()} == {(0, 2), (2, 0), (0, 3), (3, 0), (2, 3), (3, 2)}
    drawn = same_person_pairs(np.repeat([0, 1], 5), 7, seed=3)
    listed = {tuple(p) for p in drawn.tolist()}
    assert len(listed) == 14 and {(b, a) for a, b in listed} == listed
    with pytest.raises(DataError, match="two faces"):
        same_person_pairs([0, 1, 2])
    with pytest.raises(DataError, match="3 pairs of one person, asked for 4"):
        same_person_pairs([0, 0, 0], 4)


def test_ranks_one_by_one() -> None:
    rng = np.random.default_rng(0)
    table = rng.random((30, 20))
    who, theirs = rng.integers(0, 4, 30), np.arange(20) % 4
    for n, error in zip((1, 3, 7), rank_errors(table, who, theirs, (1, 3, 7)), strict=True):
        missed = [
            all(theirs[g] != p for g in np.argsort(-row)[:n])
            for row, p in zip(table, who, strict=True)
        ]
        assert error == pytest.approx(np.mean(missed), abs=1e-15)
    assert np.mean(identify(table, theirs) != who) == rank_errors(table, who, theirs, (1,))[0]
    # nothing said: the right person comes last
    assert rank_errors(np.zeros((1, 3)), [0], [0, 1, 2], (1, 2, 3)).tolist() == [1.0, 1.0, 0.0]


def test_bad_galleries_are_refused() -> None:
    with pytest.raises(DataError, match="person 3 is not in the gallery"):
        rank_errors(np.ones((2, 2)), [0, 3], [0, 1])
    with pytest.raises(DataError, match="finite"):
        rank_errors([[np.nan, 1.0]], [0], [0, 1])
    with pytest.raises(DataError, match="gallery of 3"):
        identify(np.ones((2, 2)), [0, 1, 2])
    with pytest.raises(ModelError, match="alike"):
        PairGoodness(np.ones((2, 1)), np.ones((3, 1)))
    with pytest.raises(ModelError, match="even number"):
        PairGoodness.of(Machine.random(3, 2))
    with pytest.raises(DataError, match="pixels"):
        PairGoodness(np.ones((2, 1)), np.ones((2, 1))).goodness(np.ones((1, 3)), A)


@pytest.fixture(scope="module")
def people() -> tuple[Array, NDArray[np.int64]]:
    """Faces of eight people: a pattern each, and changes that all people share."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(8), 10)
    own, common = rng.normal(size=(8, 40)), rng.normal(size=(2, 40))
    field = own[who] + 1.5 * rng.normal(size=(80, 2)) @ common + 0.2 * rng.normal(size=(80, 40))
    return 1 / (1 + np.exp(-field)), who


def test_trained_on_pairs_it_knows_people(people: tuple[Array, NDArray[np.int64]]) -> None:
    faces, who = people
    train = np.arange(80) % 10 < 6
    template = RateCodedRBM(20, learning_rate=0.01, max_iter=300)
    model = FacePairRBM(template, random_state=0).fit(faces[train], who[train])
    assert model.n_pairs_ == 8 * 30 and model.warnings_ == []
    named = model.identify(faces[~train], faces[train], who[train])
    pixels = -np.linalg.norm(faces[~train][:, None] - faces[train], axis=2)
    error = np.mean(named != who[~train])
    assert error < 0.1 and np.mean(identify(pixels, who[train]) != who[~train]) > 0.25
    # trained on both orders, the two goodnesses are near each other compared with their spread
    one, other = model.goodness(faces, faces), model.goodness(faces, faces).T
    assert np.abs(one - other).mean() < 0.25 * one.std()
    again = FacePairRBM(template, random_state=0).fit(faces[train], who[train])
    np.testing.assert_array_equal(again.rbm_.model_.weights, model.rbm_.model_.weights)


def test_some_pairs_only(people: tuple[Array, NDArray[np.int64]]) -> None:
    faces, who = people
    model = FacePairRBM(RateCodedRBM(3, max_iter=2), pairs=10, random_state=1).fit(faces, who)
    assert model.n_pairs_ == 20
    assert model.get_params()["machine__n_components"] == 3


def test_counts_and_shares_of_replicas_are_the_same_faces() -> None:
    rng = np.random.default_rng(3)
    faces, who = rng.random((8, 6)), np.repeat(np.arange(4), 2)
    options = {"max_iter": 3, "dtype": "float64"}
    shares = FacePairRBM(RateCodedRBM(3, **options), random_state=0).fit(faces, who)
    counts = FacePairRBM(RateCodedRBM(3, limits=None, **options), random_state=0)
    counts.fit(10 * faces, who)
    found = counts.similarity(10 * faces, 10 * faces)
    assert np.allclose(found, shares.similarity(faces, faces), atol=1e-9)
