"""A graph at evidence, and the way back to the graph it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph


@dataclass(frozen=True)
class Conditioned:
    """A reduced graph and the way back to the graph it came from."""

    graph: FactorGraph
    original: FactorGraph
    observed: dict[int, int]
    variables: Ints
    factors: Ints

    def expand_marginals(self, reduced: Array) -> Array:
        """Flat marginals of the original graph: observed variables get all mass on their state."""
        original = self.original
        if not self.observed:
            return reduced
        out = np.zeros(int(original.state_offsets[-1]))
        out[self._unobserved_states] = reduced
        for v, k in self.observed.items():
            out[original.state_offsets[v] + k] = 1.0
        return out

    def expand_states(self, reduced: Ints) -> Ints:
        """A state vector, or rows of them, of the original graph."""
        out = np.empty((*reduced.shape[:-1], self.original.n_variables), dtype=np.int64)
        out[..., self.variables] = reduced
        for v, k in self.observed.items():
            out[..., v] = k
        return out

    @property
    def _unobserved_states(self) -> Mask:
        unobserved = np.zeros(self.original.n_variables, dtype=bool)
        unobserved[self.variables] = True
        return np.repeat(unobserved, self.original.cardinalities)
