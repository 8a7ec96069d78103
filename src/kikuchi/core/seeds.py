"""Seeds: all random generators are created here."""

from __future__ import annotations

import numpy as np

from kikuchi.core.errors import MethodError

Seed = int | np.random.Generator | np.random.SeedSequence | np.random.RandomState | None


def generator(seed: Seed) -> np.random.Generator:
    """Return a PCG64 generator; the same seed gives the same numbers on every machine.

    >>> float(generator(0).random()) == float(generator(0).random())
    True
    """
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, np.random.RandomState):  # as in scikit-learn
        seed = int(seed.randint(2**31))
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise MethodError(f"the seed must be a non-negative integer, got {seed!r}") from error


def kernel_seeds(seed: Seed, count: int) -> np.ndarray:
    """Return `count` non-zero 64-bit words that seed compiled loops, one for each chain.

    >>> kernel_seeds(0, 3).shape
    (3,)
    """
    return generator(seed).integers(1, 2**63, size=count, dtype=np.uint64)
