"""`show`: a model as a picture, with the belief of every variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kikuchi.graphs.factor_graph import Variable
from kikuchi.graphs.picture import network_picture
from kikuchi.methods.method import Method
from kikuchi.queries.converters import as_model
from kikuchi.queries.query import query

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def show(
    model: Any,
    evidence: Mapping[Any, Any] | None = None,
    *,
    variables: Sequence[Variable] | None = None,
    method: str | Method = "auto",
    seconds: float | None = None,
    title: str | None = None,
) -> Figure:
    """Draw a model as a network: a box for each variable, with a bar for each of its states.

    Boxes are laid out in layers, so that arrows point downwards. Observed variables have another
    colour. A notebook shows the figure; `figure.savefig("asia.svg")` writes it to a file.

    Parameters
    ----------
    model
        A `FactorGraph`, a path, or what `as_model` takes.
    evidence : Mapping[Any, Any], optional
        Observed states by variable, both by name or number.
    variables : Sequence[Variable], optional
        The variables to draw, with the edges between them; all by default. A picture of more than
        100 variables is refused.
    method : str or Method, default "auto"
        How the beliefs are computed; exact where it is affordable by default.
    seconds : float, optional
        Time limit for the computation.
    title : str, optional
        Text above the picture.

    >>> import kikuchi as kk
    >>> figure = kk.show(kk.example("asia"), {"xray": "yes"})
    >>> "48.9%" in [text.get_text() for text in figure.axes[0].texts]
    True
    """
    graph = as_model(model)
    asked = list(range(graph.n_variables)) if variables is None else variables
    observed = graph.resolve(evidence)
    chosen = [v for v in map(graph.index, asked) if v not in observed]
    answer = query(graph, chosen, evidence=observed, method=method, seconds=seconds)
    beliefs = dict(zip(chosen, answer.values_by_variable, strict=True))
    return network_picture(graph, beliefs, observed=observed, variables=asked, title=title)
