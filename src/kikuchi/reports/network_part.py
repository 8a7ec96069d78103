"""The network in a report: all of a small model, or what is near to the variables of a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from kikuchi.core import text
from kikuchi.core.page import Item, Picture
from kikuchi.graphs.picture import edge_numbers, network_picture

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph

MOST_DRAWN = 60  # variables of a whole model
_MOST_NEAR = 30  # variables of a neighbourhood

Ask = Callable[[list[int]], Mapping[int, ArrayLike]]
"""The distributions of some variables, by number."""


def network_part(
    graph: FactorGraph,
    asked: Sequence[int],
    observed: Mapping[int, int],
    ask: Ask,
    *,
    caption: str = "The network with the probabilities of its states in percent",
    percentages: bool = True,
) -> list[Item]:
    """The picture of the network with its beliefs, and what it leaves out.

    A model of more than 60 variables is drawn near the variables in `asked` only, and not at all
    if those are too many themselves.

    >>> from kikuchi.graphs.generators import grid
    >>> [said] = network_part(grid(1, 100), range(100), {}, lambda wanted: {})
    >>> said
    '<p class="note">A model of 100 variables is not drawn. Name fewer variables to see them.</p>'
    """
    if graph.n_variables == 0:
        return []
    whole = graph.n_variables <= MOST_DRAWN
    drawn = list(range(graph.n_variables)) if whole else near(graph, asked)
    if not drawn:
        count = text.count(graph.n_variables, "variable")
        said = f"A model of {count} is not drawn. Name fewer variables to see them."
        return [f'<p class="note">{said}</p>']
    beliefs = ask([v for v in drawn if v not in observed])
    figure = network_picture(
        graph, beliefs, observed=observed, variables=drawn, percentages=percentages
    )
    if observed.keys() & set(drawn):
        caption += "; amber boxes are observed"
    if not whole:
        caption += (
            f". Drawn are the {len(drawn)} variables nearest to the question, of "
            f"{text.whole(graph.n_variables)}"
        )
    return [Picture(figure, f"{caption}.")]


def near(graph: FactorGraph, asked: Sequence[int]) -> list[int]:
    """The variables in `asked` and those around them, a step at a time while at most 30 are drawn.

    >>> from kikuchi.graphs.generators import grid
    >>> near(grid(1, 100), [50])[:3], len(near(grid(1, 100), [50]))
    ([36, 37, 38], 29)
    """
    found = set(asked)
    if not found or len(found) > _MOST_NEAR:
        return []
    neighbours: dict[int, set[int]] = {}
    for u, v in edge_numbers(graph):
        neighbours.setdefault(u, set()).add(v)
        neighbours.setdefault(v, set()).add(u)
    while True:
        wider = found.union(*(neighbours.get(v, ()) for v in found))
        if wider == found or len(wider) > _MOST_NEAR:
            return sorted(found)
        found = wider
