"""`Start`: what one run has reached, for another run to go on from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import MethodError
from kikuchi.engines.engine import Engine
from kikuchi.engines.loops.state import State
from kikuchi.engines.mean_field.product import ProductState
from kikuchi.engines.messages.state import MessageState
from kikuchi.graphs.conditioned import expand_marginals
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph


@dataclass(frozen=True, eq=False)
class Start:
    """What a run has reached, and the model given the evidence of that run.

    Attributes
    ----------
    method
        The text of the method of that run.
    engine
        The engine where the run has left it, or
    saved
        its state, which is data only.
    """

    conditioned: Conditioned
    method: str
    engine: Engine | None = None
    saved: State | None = None

    @property
    def state(self) -> State:
        """The state to go on from."""
        if self.engine is None:
            assert self.saved is not None  # one of the two is there
            return self.saved
        return self.engine.state

    def as_data(self) -> Start:
        """The same without the engine."""
        return Start(self.conditioned, self.method, saved=self.state)

    def require_scopes(self, graph: FactorGraph) -> None:
        """Refuse a start from a model with other variables or factors."""
        mine = self.conditioned.original
        for part in ("cardinalities", "scopes", "scope_offsets"):
            if not np.array_equal(getattr(mine, part), getattr(graph, part)):
                raise MethodError(
                    "start: these beliefs are of a model with other variables or factors; only "
                    "tables and evidence may differ"
                )

    def refused(self, able: str) -> MethodError:
        """The error for a start from a method that keeps something else than what is needed."""
        return MethodError(
            f"start: a result of {self.method} holds nothing that this method could start from; "
            f"start from one of {able}"
        )

    def messages(self, now: Conditioned, graph: FactorGraph | None = None) -> MessageState:
        """The messages between factors and variables that are not observed now; those that were
        not there before are uniform.

        `graph` is the reduced model `now`, perhaps with more factors after its own.
        """
        found = self.state
        if not isinstance(found, MessageState):
            raise self.refused("bp, fractional, alpha or trw")
        whole = np.zeros(int(now.original.message_offsets[-1]))
        before = _kept(self.conditioned)
        count = np.count_nonzero(before)
        if len(found.messages) < count:
            raise MethodError("start: these messages belong to another graph")
        whole[before] = found.messages[:count]
        out = np.zeros(int((graph or now.graph).message_offsets[-1]))
        here = whole[_kept(now)]
        out[: len(here)] = here
        return MessageState(out)

    def marginals(self, now: Conditioned) -> Array:
        """The marginals of the variables that are not observed now."""
        found = self.saved
        if self.engine is not None:
            found = ProductState(self.engine.marginals())
        if not isinstance(found, ProductState):
            raise self.refused("mf")
        whole = expand_marginals(self.conditioned, found.q)
        free = np.zeros(now.original.n_variables, dtype=bool)
        free[now.variables] = True
        return np.asarray(whole[np.repeat(free, now.original.cardinalities)])


def _kept(conditioned: Conditioned) -> Mask:
    """Which entries of the messages of the original graph are left."""
    graph = conditioned.original
    free = np.zeros(graph.n_variables, dtype=bool)
    free[conditioned.variables] = True
    return np.repeat(free[graph.scopes], np.diff(graph.message_offsets))
