"""Strides, places and state maps against the index arithmetic of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.engines.kernels.tables import project
from kikuchi.engines.tables import StateMaps, outer, places, strides


def test_equal_shapes_share_one_map() -> None:
    maps = StateMaps([2, 3, 2, 3])
    assert maps.offset((0, 1), (1,)) == maps.offset((2, 3), (3,))
    at = maps.offset((0, 1), (1, 0))
    assert maps.flat()[at : at + 6].tolist() == [0, 2, 4, 1, 3, 5]
    assert maps.flat().size == 12


@pytest.mark.parametrize("cards", [(2, 3, 4), (5, 7, 11, 13)])  # digits kept, and not
def test_maps_are_the_row_major_states_of_the_subset(cards: tuple[int, ...]) -> None:
    maps = StateMaps(cards)
    digits = np.indices(cards).reshape(len(cards), -1)
    for subset in ((0,), (2, 0), (1, 2), ()):
        shape = tuple(cards[v] for v in subset)
        expected = (
            np.ravel_multi_index(tuple(digits[v] for v in subset), shape)
            if subset
            else np.zeros(digits.shape[1], dtype=int)
        )
        assert maps.map(range(len(cards)), subset).tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_places_and_compiled_projections_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 5, size=6).astype(np.uint32)
    names = rng.permutation(6)[:4].astype(np.uint32)
    shape = tuple(int(cards[v]) for v in names)
    digits = np.indices(shape).reshape(len(shape), -1)
    sub = rng.permutation(names)[:2].astype(np.int64)
    steps = strides([int(cards[v]) for v in sub])
    step_of = dict(zip(sub.tolist(), steps, strict=True))
    by_axis = [step_of.get(int(v), 0) for v in names]
    expected = np.array(by_axis) @ digits
    assert places(shape, by_axis).tolist() == expected.tolist()
    out = np.full(expected.size + 3, 99, dtype=np.int32)
    size = project(cards, names, sub, np.array(steps), 5, out[2:])
    assert size == expected.size
    assert out.tolist() == [99, 99, *(5 + expected).tolist(), 99]


def test_strides_and_outer_products() -> None:
    for shape in ((), (3,), (2, 3, 4), (2, 1, 5)):
        wanted = np.array(np.empty(shape).strides) // 8
        assert strides(shape) == wanted.tolist()
    rows = [np.arange(1.0, n + 1) for n in (2, 3, 2)]
    assert outer(rows).tolist() == np.einsum("i,j,k->ijk", *rows).ravel().tolist()
