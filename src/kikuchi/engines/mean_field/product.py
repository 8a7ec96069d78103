"""Product distributions: the sweeps of naive mean field, and the engine that they make up.

Reference: LIU-D3, LIU-I2, TEH-I5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import U4, Array, Mask
from kikuchi.engines.loops.state import State
from kikuchi.engines.response.mean_field import MeanFieldResponse
from kikuchi.graphs.binary import BoltzmannParameters
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import GraphArrays, flatten


@dataclass(eq=False)
class ProductState(State):
    """The marginals of a product distribution, flat."""

    q: Array


class ProductDistribution:
    """Naive mean field as an engine: one distribution for each variable.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[3, 1], [1, 3]]), ((0,), [1, 2])])
    >>> engine = ProductDistribution(pair, np.full(4, 0.5))
    >>> while engine.sweep() > 1e-12: pass
    >>> engine.marginals().round(4).tolist()
    [0.1814, 0.8186, 0.332, 0.668]
    """

    def __init__(self, graph: FactorGraph, q: Array) -> None:
        self.graph = graph
        self.flat = flatten(graph)
        self.q = np.array(q)

    @property
    def state(self) -> ProductState:
        """The marginals."""
        return ProductState(self.q.copy())

    @state.setter
    def state(self, state: ProductState) -> None:
        self.q[:] = state.q

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables and keep the marginals."""
        self.graph = self.graph.replaced(log_tables=log_tables)
        self.flat = flatten(self.graph)

    def sweep(self, damping: float = 0.0) -> float:
        """Set each variable to its optimum in turn; answers the largest change of a probability."""
        sweeps = TableSweeps(self.flat, np.ones(len(self.q), dtype=bool))
        sweeps.set(self.q)
        order = np.arange(self.graph.n_variables, dtype=np.uint32)
        _, change = sweeps.sweeps(order, np.ones(1), 0.0)
        self.q = damping * self.q + (1.0 - damping) * sweeps.q()
        return change

    def marginals(self) -> Array:
        """The marginals of all variables, flat."""
        return self.q

    def factor_marginals(self) -> Array:
        """The products of the marginals, flat as the tables."""
        from kikuchi.engines.mean_field.kernels.mean_field import products

        tables = np.empty(self.flat.log_tables.size)
        products(self.flat, self.q, tables)
        return tables

    def log_z(self) -> float:
        """The lower bound on log Z."""
        from kikuchi.engines.mean_field.kernels.mean_field import bound

        return float(bound(self.flat, self.q, 1.0, scratch_of(self.flat)))

    def response(self) -> MeanFieldResponse:
        """How the marginals at this stationary point move with the tables."""
        return MeanFieldResponse(self.graph, self.q)


class Sweeps(ABC):
    """Current probabilities, and sweeps that change them."""

    work: float

    @abstractmethod
    def set(self, q: Array) -> None:
        """Start again at `q`."""

    @abstractmethod
    def q(self) -> Array:
        """The current probabilities, flat."""

    @abstractmethod
    def sweeps(self, order: U4, temperatures: Array, tol: float) -> tuple[int, float]:
        """One sweep per temperature, fewer when the largest change is at most `tol`."""

    @abstractmethod
    def use_tables(self, flat: GraphArrays) -> None:
        """Use other log-potentials from now on."""


class TableSweeps(Sweeps):
    """Any cardinalities, any order, zeros."""

    def __init__(self, flat: GraphArrays, alive: Mask) -> None:
        self._flat = flat
        self._alive = alive
        self._q = np.zeros(len(alive))
        self._field = np.zeros(flat.max_card)
        self._scratch = scratch_of(flat)
        orders = np.diff(flat.scope_offsets)
        sizes = np.diff(flat.table_offsets)
        self.work = float((orders * sizes).sum()) + 10.0 * len(alive)

    def set(self, q: Array) -> None:
        """Start again at `q`."""
        self._q[:] = q

    def q(self) -> Array:
        """The current probabilities, flat."""
        return self._q.copy()

    def use_tables(self, flat: GraphArrays) -> None:
        """Use other log-potentials from now on."""
        self._flat = flat

    def sweeps(self, order: U4, temperatures: Array, tol: float) -> tuple[int, float]:
        """One sweep per temperature, fewer when the largest change is at most `tol`."""
        from kikuchi.engines.mean_field.kernels.mean_field import sweep_tables

        done, change = sweep_tables(
            self._flat, self._q, self._alive, order, temperatures, tol, self._field, self._scratch
        )
        return int(done), float(change)


class BitSweeps(Sweeps):
    """Binary variables, at most two in a factor, no zeros: one number per variable."""

    def __init__(self, bits: BoltzmannParameters) -> None:
        self._bits = bits
        self._means = np.zeros(len(bits.biases))
        self.work = float(len(bits.weights)) + 10.0 * len(bits.biases)

    def set(self, q: Array) -> None:
        """Start again at `q`."""
        self._means[:] = q[1::2]

    def q(self) -> Array:
        """The current probabilities, flat."""
        return np.stack([1.0 - self._means, self._means], axis=1).ravel()

    def use_tables(self, flat: GraphArrays) -> None:
        """Use other log-potentials from now on."""
        raise AssertionError("the form in bits has no zeros, so no other tables are ever needed")

    def sweeps(self, order: U4, temperatures: Array, tol: float) -> tuple[int, float]:
        """One sweep per temperature, fewer when the largest change is at most `tol`."""
        from kikuchi.engines.mean_field.kernels.mean_field import sweep_bits

        done, change = sweep_bits(*self._bits[:4], self._means, order, temperatures, tol)
        return int(done), float(change)


def scratch_of(flat: GraphArrays) -> Array:
    """Room for the contraction of one table."""
    return np.zeros(max(1, int(np.diff(flat.table_offsets).max(initial=1)) // 2))
