"""Products by tables of sums are products, and are used for 0 and 1 alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kikuchi.boltzmann.kernels import binary_products
from kikuchi.boltzmann.products import add_product, contrast, layer_product

DTYPES = [np.float32, np.float64]
SHAPES = [(100, 784, 500), (64, 700, 96), (233, 181, 97), (70, 601, 129), (1000, 41, 111)]


@pytest.fixture
def by_tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Notes each product that was made by tables."""
    made: list[bool] = []
    original = binary_products.pattern_products

    def noted(*arguments) -> None:
        made.append(True)
        original(*arguments)

    monkeypatch.setattr(binary_products, "pattern_products", noted)
    yield made


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [(100, 100), (37, 100), (60, 1)])
@pytest.mark.parametrize("value", [1.0, 0.5])
def test_contrasts(dtype, rows: tuple[int, int], value: float) -> None:
    """Whether both sides are 0 and 1, or a number of the second is not."""
    rng = np.random.default_rng(1)
    lefts = tuple((rng.random((n, 700)) < 0.3).astype(dtype) for n in rows)
    rights = tuple(rng.random((n, 211)).astype(dtype) for n in rows)
    lefts[1][-1, -1] = value
    out = np.full((700, 211), np.nan, dtype)
    contrast(lefts, rights, (0.5, -0.25), out)
    truth = 0.5 * lefts[0].T @ rights[0] - 0.25 * lefts[1].T @ rights[1]
    assert np.allclose(out, truth, rtol=0, atol=200 * np.finfo(dtype).eps)


def bits_and_numbers(shape: tuple[int, int, int], dtype) -> tuple[np.ndarray, np.ndarray]:
    rows, inner, columns = shape
    rng = np.random.default_rng(rows)
    bits = (rng.random((rows, inner)) < 0.3).astype(dtype)
    return bits, rng.normal(size=(inner, columns)).astype(dtype)


def close(found: np.ndarray, bits: np.ndarray, numbers: np.ndarray, truth: np.ndarray) -> bool:
    """Within the rounding of sums of so many numbers."""
    size = np.abs(bits).astype(float) @ np.abs(numbers).astype(float)
    return bool(np.all(np.abs(found - truth) <= 4 * np.finfo(found.dtype).eps * (size + 1)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("turned", [False, True])
def test_layers(shape, dtype, turned: bool, by_tables) -> None:
    bits, numbers = bits_and_numbers(shape, dtype)
    right = np.ascontiguousarray(numbers.T).T if turned else numbers
    out = np.full((len(bits), numbers.shape[1]), np.nan, dtype)
    layer_product(bits, right, out)
    assert close(out, bits, numbers, bits.astype(float) @ numbers.astype(float))
    assert by_tables


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_statistics(shape, dtype, by_tables) -> None:
    bits, numbers = bits_and_numbers(shape, dtype)
    left = np.ascontiguousarray(bits.T)
    out = np.full((len(bits), numbers.shape[1]), np.nan, dtype)
    truth = bits.astype(float) @ numbers.astype(float)
    add_product(left, numbers, 0.5, out, fresh=True)
    assert close(out, bits, numbers, 0.5 * truth)
    add_product(left, numbers, -2.0, out)
    assert close(out, 3 * bits, numbers, -1.5 * truth)
    assert len(by_tables) == 2


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0, 257.0, np.nan, np.inf])
def test_one_number_that_is_no_bit(value: float, by_tables) -> None:
    bits, numbers = bits_and_numbers(SHAPES[0], np.float32)
    bits[-1, -1] = value
    out = np.empty((len(bits), numbers.shape[1]), np.float32)
    layer_product(bits, numbers, out)
    assert np.array_equal(out, bits @ numbers, equal_nan=True)
    add_product(np.ascontiguousarray(bits.T), numbers, 1.0, out, fresh=True)
    assert np.allclose(out, bits @ numbers, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert not by_tables


def test_what_stays_with_blas(by_tables) -> None:
    """Small products, arrays with holes, mixed numbers."""
    bits, numbers = bits_and_numbers((100, 784, 500), np.float64)
    truth = bits @ numbers
    holes = np.repeat(bits, 2, axis=1)[:, ::2]
    for left, right in ((holes, numbers), (bits.astype(np.float32), numbers)):
        out = np.empty_like(truth)
        layer_product(left, right, out)
        assert np.allclose(out, truth)
    small = np.empty((100, 5))
    layer_product(bits, np.ascontiguousarray(numbers[:, :5]), small)
    assert np.allclose(small, truth[:, :5])
    assert not by_tables
