"""The sums over samples that the M-step of mean-field ICA is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError


@dataclass(frozen=True)
class Statistics:
    """Everything that the M-step needs of data and sources, as sums over samples.

    `cross` is X <S>^T and `second` is <SS^T>, or one per channel (D, I, I) with missing values;
    `counts` are the observed samples of each channel.
    """

    count: float
    cross: Array
    second: Array
    squares: Array
    counts: Array
    outer: Array | None
    priors: tuple[Array, ...]
    log_likelihood: float

    def channel_residuals(self, mixing: Array) -> Array:
        """Expected squared residual of each channel, summed over its samples."""
        product = times_second(mixing, self.second)
        return np.asarray(self.squares + np.einsum("di,di->d", product - 2.0 * self.cross, mixing))

    def residual_matrix(self, mixing: Array) -> Array:
        """Expected outer products of the residuals, summed over samples."""
        if self.outer is None:
            raise MethodError("full noise needs the products of all channels")
        crossed = self.cross @ mixing.T
        return np.asarray(self.outer - crossed - crossed.T + mixing @ self.second @ mixing.T)

    def plus(self, other: Statistics, here: float = 1.0, there: float = 1.0) -> Statistics:
        """here self + there other: batches add up, and old ones may be forgotten."""
        theirs = other.to_arrays()
        mine = self.to_arrays()
        return Statistics.from_arrays({k: here * a + there * theirs[k] for k, a in mine.items()})

    def to_arrays(self) -> dict[str, Array]:
        """All sums by name; those of the priors are numbered."""
        arrays = {n: np.asarray(a) for n, a in vars(self).items() if n not in ("outer", "priors")}
        if self.outer is not None:
            arrays["outer"] = self.outer
        return arrays | {f"prior{k}": sums for k, sums in enumerate(self.priors)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Statistics:
        """The inverse of `to_arrays`."""
        named: dict[str, Any] = {n: float(arrays[n]) for n in ("count", "log_likelihood")}
        named |= {n: arrays[n] for n in ("cross", "second", "squares", "counts")}
        priors = tuple(arrays[f"prior{k}"] for k in range(arrays["cross"].shape[1]))
        return cls(**named, outer=arrays.get("outer"), priors=priors)


def times_second(mixing: Array, second: Array) -> Array:
    """A S, channel by channel where every channel has its own S."""
    if second.ndim == 3:
        return np.asarray(np.einsum("di,dij->dj", mixing, second))
    return np.asarray(mixing @ second)
