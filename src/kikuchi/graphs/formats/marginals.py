"""Result files: marginals as UAI `MAR` or as a table, log Z as UAI `PR`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import Protocol

from kikuchi.core.arrays import Array
from kikuchi.core.errors import KikuchiError
from kikuchi.core.text import spreadsheet_cell
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats.layout import text_pieces


class Marginals(Protocol):
    """Protocol of the written results: a graph and the flat marginals of its variables."""

    @property
    def graph(self) -> FactorGraph:
        """The graph."""

    @property
    def flat_marginals(self) -> Array:
        """The marginals, laid out by `graph.state_offsets`; an error if there are none."""

    @property
    def flat_beliefs(self) -> Array:
        """The marginals, or the max-marginals if `max_product` is True."""

    @property
    def max_product(self) -> bool:
        """Whether the numbers are max-marginals."""


def mar_text(beliefs: Marginals) -> Iterator[str]:
    """UAI MAR: the word, then the number of variables and, for each, its states and probabilities.

    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> graph = FactorGraph([2, 1], [])
    >>> beliefs = SimpleNamespace(graph=graph, flat_marginals=np.array([0.25, 0.75, 1.0]))
    >>> print("".join(mar_text(beliefs)), end="")
    MAR
    2 2 0.25 0.75 1 1.0
    """
    yield f"MAR\n{beliefs.graph.n_variables}"
    for _, groups in text_pieces(beliefs.flat_marginals, beliefs.graph.state_offsets):
        yield "".join(f" {len(words)} {' '.join(words)}" for words in groups)
    yield "\n"


def csv_text(beliefs: Marginals) -> Iterator[str]:
    """A table with the columns variable, state and probability (max_marginal of a run that
    maximised); names where the graph has them.

    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> graph = FactorGraph([2], [], names=["rain"], states=[["no", "yes"]])
    >>> numbers = np.array([0.25, 0.75])
    >>> beliefs = SimpleNamespace(graph=graph, flat_beliefs=numbers, max_product=False)
    >>> print("".join(csv_text(beliefs)), end="")
    variable,state,probability
    rain,no,0.25
    rain,yes,0.75
    """
    graph = beliefs.graph
    yield f"variable,state,{'max_marginal' if beliefs.max_product else 'probability'}\n"
    for first, groups in text_pieces(beliefs.flat_beliefs, beliefs.graph.state_offsets):
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        for v, words in enumerate(groups, start=first):
            labels = graph.states[v] if graph.states else map(str, range(len(words)))
            states = map(spreadsheet_cell, labels)
            name = spreadsheet_cell(graph.label(v))
            writer.writerows((name, s, p) for s, p in zip(states, words, strict=True))
        yield buffer.getvalue()


def pr_text(log_z: float) -> str:
    """UAI PR: the word, then log Z to base 10.

    >>> pr_text(0.0).split()
    ['PR', '0.0']
    """
    if not math.isfinite(log_z):
        raise KikuchiError(f"log Z must be a finite number to be written, got {log_z}")
    return f"PR\n{float(log_z) * math.log10(math.e)!r}\n"
