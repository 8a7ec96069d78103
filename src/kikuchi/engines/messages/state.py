"""Messages that a run has reached, as data: read without loading compiled loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.engines.loops.state import State
from kikuchi.graphs.factor_graph import FactorGraph

_LOWEST = -30.0  # logarithm of an entry of a message that another run starts from


@dataclass(eq=False)
class MessageState(State):
    """Logarithms of the messages from factors to variables, flat by `graph.message_offsets`."""

    logarithms: ClassVar[tuple[str, ...]] = ("messages",)

    messages: Array

    def bounded(self, graph: FactorGraph) -> Array:
        """The messages with a largest entry of 0 each, as a start: none so far below that no
        update could bring it back.
        """
        offsets = graph.message_offsets
        if len(self.messages) != offsets[-1]:
            raise MethodError("start: these messages belong to another graph")
        if not graph.n_edges:
            return self.messages.copy()
        tops = np.maximum.reduceat(self.messages, offsets[:-1])
        lowered = self.messages - np.repeat(tops, np.diff(offsets))
        return np.asarray(np.maximum(lowered, _LOWEST))
