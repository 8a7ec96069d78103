"""State maps against numpy's own index arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.graphs.state_maps import StateMaps


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
