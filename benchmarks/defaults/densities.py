"""Tables of two columns whose true density is known or nearly so, and others of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
_TEST_ROWS = 4000
NUMBERS = (1, 2, 3, 5, 8, 12, 16, 20, 30, 40)
"""Components of which held-out rows choose, for the peer as for the flows."""


class Table(NamedTuple):
    train: Rows
    test: Rows


# ---------------------------------------------------------------------- generated rows


def moons(rng: np.random.Generator, n: int) -> Rows:
    from sklearn.datasets import make_moons

    return np.asarray(make_moons(n, noise=0.05, random_state=int(rng.integers(2**31)))[0])


def rings(rng: np.random.Generator, n: int) -> Rows:
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = rng.integers(1, 4, n) + 0.1 * rng.normal(size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def pinwheel(rng: np.random.Generator, n: int) -> Rows:
    """Five arms, each a Gaussian turned by an angle that grows along it."""
    arm = rng.integers(5, size=n)
    x = rng.normal(size=(n, 2)) * [0.3, 0.1] + [1.0, 0.0]
    angle = 2 * np.pi * arm / 5 + 0.25 * np.exp(x[:, 0])
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]], axis=1)


def swiss_roll(rng: np.random.Generator, n: int) -> Rows:
    t = 1.5 * np.pi * (1 + 2 * rng.random(n))
    curve = np.stack([t * np.cos(t), t * np.sin(t)], axis=1)
    return (curve + 0.5 * rng.normal(size=(n, 2))) / 5.0


def checkerboard(rng: np.random.Generator, n: int) -> Rows:
    """Eight squares of a board of sixteen; the entropy is log 32."""
    row, pair = rng.integers(4, size=n), rng.integers(2, size=n)
    corner = np.stack([2.0 * pair + row % 2, row], axis=1)
    return 2.0 * (corner + rng.random((n, 2))) - 4.0


def spirals(rng: np.random.Generator, n: int) -> Rows:
    t = np.sqrt(rng.random(n)) * 3 * np.pi
    s = rng.choice([-1.0, 1.0], n)
    return np.stack([-np.cos(t) * t * s, np.sin(t) * t * s], 1) / 3 + 0.1 * rng.normal(size=(n, 2))


def eight_gaussians(rng: np.random.Generator, n: int) -> Rows:
    k = rng.integers(8, size=n) * np.pi / 4
    return 2 * np.stack([np.cos(k), np.sin(k)], axis=1) + 0.2 * rng.normal(size=(n, 2))


def banana(rng: np.random.Generator, n: int) -> Rows:
    x = 2 * rng.normal(size=n)
    return np.stack([x, 0.25 * x * x + 0.5 * rng.normal(size=n)], axis=1)


def waves(rng: np.random.Generator, n: int) -> Rows:
    x = rng.uniform(-4, 4, n)
    return np.stack([x, np.sin(2 * x) + 0.2 * rng.normal(size=n)], axis=1)


def square_with_a_hole(rng: np.random.Generator, n: int) -> Rows:
    x = rng.uniform(-1, 1, (2 * n + 1000, 2))
    return np.asarray(x[np.abs(x).max(axis=1) > 0.5][:n])


def generated(draw: Callable[[np.random.Generator, int], Rows], n: int) -> Table:
    rows = draw(np.random.default_rng(11), n + _TEST_ROWS)
    rows = rows[np.random.default_rng(12).permutation(len(rows))]
    return Table(rows[:n], rows[n:])


def of_sklearn(name: str, columns: int | None = None) -> Table:
    """The first columns; whole numbers, where one has no others, with the same uniform noise for
    everybody.
    """
    from sklearn import datasets

    return dequantised(getattr(datasets, f"load_{name}")().data[:, :columns])


def dequantised(x: Rows) -> Table:
    """Columns of whole numbers with uniform noise; seven tenths of the rows to learn from."""
    rng = np.random.default_rng(0)
    whole = np.all(x == np.floor(x), axis=0)
    x = (x + whole * rng.random(x.shape))[rng.permutation(len(x))]
    cut = len(x) * 7 // 10
    return Table(x[:cut], x[cut:])


def two_dimensional(n: int) -> dict[str, Callable[[], Table]]:
    """The tables whose figures are reported."""
    drawn = (moons, rings, pinwheel, swiss_roll, checkerboard)
    return {f"{d.__name__.replace('_', ' ')}, {n:,} rows": partial(generated, d, n) for d in drawn}


def for_choosing() -> dict[str, Callable[[], Table]]:
    drawn = (spirals, eight_gaussians, banana, waves, square_with_a_hole)
    tables = {d.__name__.replace("_", " "): partial(generated, d, 2000) for d in drawn}
    return tables | {
        "iris": partial(of_sklearn, "iris"),
        "breast cancer, 6 columns": partial(of_sklearn, "breast_cancer", 6),
    }


# ---------------------------------------------------------------------- peers and the baseline


def one_gaussian(table: Table, seed: int) -> float:
    return mixture(table.train, table.test, 1, seed)


def validated_mixture(table: Table, seed: int) -> float:
    """scikit-learn's mixture: a tenth of the rows chooses its size, then all rows fit it."""
    order = np.random.default_rng(seed).permutation(len(table.train))
    count = len(order) // 10
    held, rest = table.train[order[:count]], table.train[order[count:]]
    numbers = [k for k in NUMBERS if len(rest) >= 10 * k]
    scores = {k: mixture(rest, held, k, seed) for k in numbers}
    return mixture(table.train, table.test, max(numbers, key=lambda k: scores[k]), seed)


def mixture(train: Rows, test: Rows, components: int, seed: int) -> float:
    """Held-out nats per row of scikit-learn's mixture of so many."""
    from sklearn.mixture import GaussianMixture

    mean, scale = train.mean(axis=0), train.std(axis=0)
    with warnings.catch_warnings(action="ignore"):
        model = GaussianMixture(components, random_state=seed).fit((train - mean) / scale)
    return float(model.score((test - mean) / scale) - np.log(scale).sum())


def reported(model: Any) -> None:
    """Issue what a fit keeps in `warnings_`, so that it stands in the table."""
    for told in model.warnings_:
        warnings.warn(told, stacklevel=2)
