r"""Linear response of region beliefs to changes of the tables.

At a fixed point of the double loop (every stationary point of the region free energy is one) a
change of the log-tables moves messages and common beliefs by the fixed point of the *linearised*
loop: where the loop takes marginals, its derivative takes conditional expectations. The linearised
sweeps need no logarithms and as many rounds as the loop itself, in constant memory.

Reference: LIU-D7, TEH-M27.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import KikuchiError
from kikuchi.engines.regions.double_loop import DoubleLoop
from kikuchi.engines.regions.engine import RegionBeliefs, scope_tables
from kikuchi.engines.regions.kernels import layout
from kikuchi.engines.regions.kernels import response as kernels
from kikuchi.engines.response.linear_response import CRITICAL, Response
from kikuchi.graphs.regions.sets import SetFamily

_PRECISE = 1e-11  # change of a belief in one sweep at which it ends, relative to the source
_INNER = (1, 8, 64)  # inner sweeps in each outer step, more where fewer do not settle
_MOST_SWEEPS = 20_000
_DIVERGED = 1e3  # growth of the changes from their least at which it has diverged


class RegionResponse(Response):
    """C applied to a direction at a fixed point of `kikuchi` or `gbp`.

    Parameters
    ----------
    beliefs : the engine, at its fixed point.

    >>> import kikuchi as kk
    >>> from kikuchi.graphs.regions.builders import region_graph
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]]), ((0,), [1, 3])])
    >>> engine = RegionBeliefs(region_graph(pair, "bethe"), kk.Budget())
    >>> for _, sweep in zip(range(20), engine.propagations(0.0, False)): pass
    >>> tables = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])  # on state 1 of variable 0
    >>> RegionResponse(engine).respond(np.zeros(4), tables)[0].round(6).tolist()
    [-0.1875, 0.1875, -0.0625, 0.0625]
    """

    def __init__(self, beliefs: RegionBeliefs) -> None:
        self.b = beliefs.b.copy()
        self.beliefs = beliefs
        self.graph = beliefs.graph
        self.loop = DoubleLoop(beliefs)
        beliefs.b[:] = self.b  # the loop starts by dividing the potentials
        regions, graph = beliefs.regions, beliefs.graph
        self.end = int(beliefs.table_at[regions.n_roots])
        self.n_messages = len(self.loop.messages)
        self.size = self.n_messages + len(self.b) - self.end
        held = regions.factors.take(np.arange(regions.n_roots)).items
        self.shares = 1.0 / np.maximum(np.bincount(held, minlength=graph.n_factors), 1)
        self.factor_tables = scope_tables(graph)
        n, at = graph.n_variables, graph.state_offsets.astype(np.int64)
        self.variable_tables = layout.ScopeTables(np.arange(n + 1), np.arange(n), at)
        self.factor_homes = _smallest(regions.factors)
        self.variable_homes = _smallest(regions.variables)

    def respond(self, fields: Array, tables: Array) -> tuple[Array, Array]:
        """C applied: changes of the flat marginals and of the flat factor beliefs."""
        source = self._source(fields, tables)
        for inner in _INNER:
            settled = self._settled(source, inner)
            if settled is not None:
                return self._read(*settled)
        raise KikuchiError(CRITICAL)

    def _settled(self, source: Array, inner: int) -> tuple[Array, Array] | None:
        """Sweep until nothing moves; None if that does not happen with so many inner sweeps."""
        weights = self.b[self.end :]
        scale = float(np.abs(source).max(initial=0.0))
        z, change = np.zeros(self.size), source
        least = np.inf
        for done in range(_MOST_SWEEPS):
            before = z[self.n_messages :]
            z, change = self._swept(z, source, inner)
            moved = float(np.abs(weights * (z[self.n_messages :] - before)).max(initial=0.0))
            if moved <= _PRECISE * scale:
                return z, change
            least = min(least, moved)
            if not moved < _DIVERGED * least or done == _MOST_SWEEPS // inner:
                return None
        return None

    def _source(self, fields: Array, tables: Array) -> Array:
        """The change of the root tables: each factor's, divided among the roots that hold it."""
        graph, regions = self.beliefs.graph, self.beliefs.regions
        values = np.array(tables, dtype=np.float64)
        for v in np.flatnonzero(np.logical_or.reduceat(fields != 0.0, graph.state_offsets[:-1])):
            near = graph.neighbours(int(v))
            if near:
                a = near[0]
                lo, hi = graph.table_offsets[a : a + 2]
                shape = [1] * len(graph.scope(a))
                shape[graph.scope(a).index(int(v))] = -1
                own = fields[graph.state_offsets[v] : graph.state_offsets[v + 1]]
                block = values[lo:hi].reshape(graph.shape(a))
                block += own.reshape(shape)
        out = np.zeros(self.end)
        offsets = self.beliefs.table_at.astype(np.int64)
        layout.add_potentials(
            self.beliefs.region_variables,
            layout.RegionFactors(regions.factors.offsets, regions.factors.items),
            self.factor_tables,
            values,
            self.shares,
            (0, regions.n_roots),
            offsets,
            out,
        )
        return out

    def _swept(self, z: Array, source: Array, inner: int) -> tuple[Array, Array]:
        """One outer step and some inner sweeps from z, and the changes of the roots after it."""
        loop, beliefs = self.loop, self.beliefs
        z = z.copy()
        messages, common = z[: self.n_messages], z[self.n_messages :]
        change = source.copy()
        links, around = beliefs.links, loop.around
        kernels.gather(links, around, messages, common, change)
        for _ in range(inner):
            kernels.sweep(links, around, self.b, messages, common, change, loop.work)
        return z, change

    def _read(self, z: Array, change: Array) -> tuple[Array, Array]:
        """Changes of marginals and factor beliefs, each from the smallest region that holds it."""
        beliefs, graph = self.beliefs, self.beliefs.graph
        moved = self.b * np.concatenate([change, z[self.n_messages :]])
        offsets = beliefs.table_at.astype(np.int64)
        total = np.add.reduceat(moved, offsets[:-1])
        moved -= self.b * np.repeat(total, np.diff(offsets))
        marginals, factors = np.empty(int(graph.state_offsets[-1])), np.empty(len(graph.log_tables))
        variables = beliefs.region_variables
        layout.sums(variables, self.variable_homes, self.variable_tables, offsets, moved, marginals)
        layout.sums(variables, self.factor_homes, self.factor_tables, offsets, moved, factors)
        return marginals, factors


def _smallest(members: SetFamily) -> Ints:
    homes = np.zeros(members.n_items, dtype=np.int64)
    homes[members.items] = members.owners  # the last one stays, and large come before small
    return homes
