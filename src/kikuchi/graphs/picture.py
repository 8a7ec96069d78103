"""Figure of a model: variables as boxes with beliefs, joined by edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from kikuchi.core.errors import ModelError
from kikuchi.graphs.factor_graph import FactorGraph, Variable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def network_picture(
    graph: FactorGraph,
    beliefs: Mapping[int, ArrayLike],
    *,
    observed: Mapping[int, int] | None = None,
    variables: Sequence[Variable] | None = None,
    percentages: bool = True,
    title: str | None = None,
) -> Figure:
    """Draw the variables of `graph` as boxes with a bar for each state, parents above children.

    Parameters
    ----------
    graph : FactorGraph
        The model; edges of an undirected model are drawn without arrowheads.
    beliefs : Mapping[int, array-like]
        Probabilities of the states by variable number. A variable without an entry shows its name
        only, unless it is observed.
    observed : Mapping[int, int], optional
        Evidence as {variable number: state number}; these boxes have another colour.
    variables : Sequence[Variable], optional
        The variables to draw, by name or number, with the edges between them; all by default.
    percentages : bool, default True
        Whether the percentage of each state is written next to its bar.
    title : str, optional
        Text above the figure.

    >>> graph = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])], names=["a", "b"])
    >>> figure = network_picture(graph, {0: [0.3, 0.7]}, observed={1: 0})
    >>> [text.get_text() for text in figure.axes[0].texts if text.get_text() in ("a", "100%")]
    ['a', '100%']
    """
    from kikuchi.plots.network import draw_network

    chosen = list(range(graph.n_variables)) if variables is None else _numbers(graph, variables)
    place = {v: k for k, v in enumerate(chosen)}
    seen = {v: k for v, k in (observed or {}).items() if v in place}
    labels = [_state_labels(graph, v) for v in chosen]
    values: list[ArrayLike | None] = [
        [float(k == seen[v]) for k in range(len(names))] if v in seen else beliefs.get(v)
        for v, names in zip(chosen, labels, strict=True)
    ]
    edges = [(place[u], place[v]) for u, v in edge_numbers(graph) if u in place and v in place]
    return draw_network(
        [_name(graph, v) for v in chosen],
        edges,
        labels,
        values,
        observed={place[v]: k for v, k in seen.items()},
        directed=graph.is_directed,
        percentages=percentages,
        grid=_open_grid(graph, edges) if chosen == list(range(graph.n_variables)) else None,
        title=title,
    )


def _open_grid(graph: FactorGraph, edges: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the rows and columns of an undirected open grid."""
    from kikuchi.graphs.shapes import grid_shape

    shape = None if graph.is_directed else grid_shape(graph)
    if shape is None or any(v - u not in (1, shape[1]) for u, v in edges):
        return None
    return shape


def is_drawable(graph: FactorGraph) -> bool:
    """Whether the model is a Bayesian network that fits on one page.

    >>> is_drawable(FactorGraph([2], [((0,), [0.5, 0.5])], children=[0]))
    True
    """
    from kikuchi.plots.network import MOST_NODES

    return graph.is_directed and 0 < graph.n_variables <= MOST_NODES


def edge_numbers(graph: FactorGraph) -> list[tuple[int, int]]:
    """Edges as pairs (parent, child) of variable numbers; in an undirected model as (u, v), u < v.

    >>> edge_numbers(FactorGraph([2, 2], [((1, 0), [[1, 2], [3, 4]])]))
    [(0, 1)]
    """
    if graph.children is None:
        return [(int(u), int(v)) for u, v in graph.pairs()]
    families = zip(graph.children.tolist(), map(graph.scope, range(graph.n_factors)), strict=True)
    return [(u, child) for child, scope in families for u in scope if u != child]


def _numbers(graph: FactorGraph, variables: Sequence[Variable]) -> list[int]:
    if isinstance(variables, str):
        return [graph.index(variables)]
    numbers = [graph.index(v) for v in variables]
    if len(set(numbers)) < len(numbers):
        raise ModelError(f"variables: one is named twice in {list(variables)}")
    return numbers


def _name(graph: FactorGraph, v: int) -> str:
    return graph.label(v) if graph.names is not None else f"x{v}"


def _state_labels(graph: FactorGraph, v: int) -> tuple[str, ...]:
    if graph.states is not None:
        return graph.states[v]
    return tuple(map(str, range(int(graph.cardinalities[v]))))
