"""Common parts of the pages about a model: the question, figures of beliefs, marginals, and the
code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kikuchi.core import text
from kikuchi.core.page import Picture
from kikuchi.graphs.picture import is_drawable, network_picture
from kikuchi.graphs.shapes import grid_shape
from kikuchi.plots import beliefs as belief_plots
from kikuchi.plots import factor_graph as graph_plots
from kikuchi.reports import html, wording
from kikuchi.reports.comparison import variable_errors
from kikuchi.reports.evidence import Observed, observed_states

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.methods.beliefs import Beliefs

OPEN_ROWS = 200
_MOST_ROWS = 1000  # keeps the page of a large model small
_MOST_COLUMNS = 5


def model_pairs(
    graph: FactorGraph, model: str | None, evidence: Observed | None
) -> list[tuple[str, str]]:
    """Return the input: the model, its size and the evidence."""
    cards = graph.cardinalities
    states = "no variables"
    if len(cards):
        low, high = int(cards.min()), int(cards.max())
        states = f"{low} states each" if low == high else f"{low} to {high} states each"
    size = (
        f"{text.count(graph.n_variables, 'variable')} ({states}), "
        f"{text.count(graph.n_factors, 'factor')}, "
        f"{text.count(graph.log_tables.size, 'table entry', 'table entries')}"
    )
    kind = "directed (conditional tables)" if graph.is_directed else "undirected factors"
    shape = grid_shape(graph)
    return [
        ("Model", model or "given in Python"),
        ("Size", size),
        ("Kind", kind + (f", a grid of {shape[0]} by {shape[1]}" if shape else "")),
        ("Evidence", wording.observations(graph, evidence or {})),
    ]


# ---------------------------------------------------------------------- pictures


def belief_pictures(beliefs: Beliefs, evidence: Observed | None) -> list[Picture]:
    """The pictures that suit the model: an image of a grid, or a drawing and bars, or counts."""
    graph = beliefs.graph
    if graph.n_variables == 0:
        return []
    shape = grid_shape(graph)
    if shape is not None and len(set(graph.cardinalities.tolist())) == 1:
        p = beliefs.flat_beliefs.reshape(graph.n_variables, -1)
        caption = f"{belief_name(beliefs)}s of the {shape[0]} by {shape[1]} grid, one cell each."
        image = belief_plots.grid_beliefs(p, *shape, max_product=beliefs.max_product)
        return [Picture(image, caption)]
    if is_drawable(graph) and not beliefs.max_product:
        return [_network(beliefs, evidence)]
    pictures = []
    if graph_plots.drawable(graph.n_variables, graph.n_factors):
        pictures.append(_drawing(beliefs, evidence))
    if graph.n_variables <= belief_plots.MOST_BARS:
        bars = belief_plots.marginal_bars(
            beliefs.variable_beliefs, graph.names, graph.states, max_product=beliefs.max_product
        )
        caption = f"{belief_name(beliefs)} of each variable; segments are its states in order."
        pictures.append(Picture(bars, caption))
    else:
        counts = belief_plots.histogram(beliefs.variable_beliefs, max_product=beliefs.max_product)
        pictures.append(Picture(counts, "How decided the variables are."))
    return pictures


def _network(beliefs: Beliefs, evidence: Observed | None) -> Picture:
    observed = observed_states(evidence or {})
    marginals = dict(enumerate(beliefs.marginals))
    figure = network_picture(beliefs.graph, marginals, observed=observed)
    caption = "The network with the marginal of each variable, in percent"
    return Picture(figure, caption + ("; amber boxes are observed." if observed else "."))


def _drawing(beliefs: Beliefs, evidence: Observed | None) -> Picture:
    graph = beliefs.graph
    shade, label, centred = _shading(beliefs)
    figure = graph_plots.draw_graph(
        [graph.scope(a) for a in range(graph.n_factors)],
        graph.n_variables,
        belief=shade,
        names=graph.names,
        children=None if graph.children is None else [int(c) for c in graph.children],
        observed=list(evidence or {}),
        belief_label=label,
        centred=centred,
    )
    caption = "The factor graph, shaded by belief"
    caption += "; arrows point to the child of a table" if graph.is_directed else ""
    return Picture(figure, caption + ("; heavy rims are observed." if evidence else "."))


def _shading(beliefs: Beliefs) -> tuple[list[float], str, bool]:
    """P(state 1) if all variables are binary with the same states, else how decided each is."""
    graph = beliefs.graph
    marginals = beliefs.variable_beliefs
    of = "max-marginal of {}" if beliefs.max_product else "P({})"
    if all(len(m) == 2 for m in marginals):
        names = set(graph.states) if graph.states is not None else {("0", "1")}
        if len(names) == 1:
            return [float(m[1]) for m in marginals], of.format(names.pop()[1]), True
    measure = "max-marginal" if beliefs.max_product else "probability"
    return [float(m.max()) for m in marginals], f"{measure} of the most probable state", False


# ---------------------------------------------------------------------- marginals


def belief_name(beliefs: Beliefs) -> str:
    """Return the name of the numbers of each variable."""
    return "Max-marginal" if beliefs.max_product else "Marginal"


def marginal_table(beliefs: Beliefs, exact: Beliefs | None = None) -> str:
    """All marginals or max-marginals; many are folded away, and of more than `_MOST_ROWS` only the
    first are shown.
    """
    graph = beliefs.graph
    shown = min(graph.n_variables, _MOST_ROWS)
    body = _marginal_rows(beliefs, exact, shown)
    if graph.n_variables <= OPEN_ROWS:
        return body
    if shown == graph.n_variables:
        return html.collapsed(
            f"{belief_name(beliefs)}s of all {graph.n_variables:,} variables", body
        )
    summary = f"The first {shown:,} of {graph.n_variables:,} variables; all of them: "
    return html.collapsed(summary + "kikuchi infer ... --out marginals.csv", body)


def _marginal_rows(beliefs: Beliefs, exact: Beliefs | None, shown: int) -> str:
    graph = beliefs.graph
    cards = graph.cardinalities[:shown]
    uniform = len(cards) > 0 and cards.min() == cards.max() <= _MOST_COLUMNS
    same = graph.states is None or len(set(graph.states[:shown])) == 1
    names = [wording.variable_name(graph, v) for v in range(shown)]
    numbers = beliefs.variable_beliefs
    of = "max-marginal of {}" if beliefs.max_product else "P({})"
    if uniform and same:
        head = ["variable", *(of.format(s) for s in wording.state_names(graph, 0))]
        rows = [[names[v], *(f"{p:.6f}" for p in numbers[v])] for v in range(shown)]
        numeric = list(range(1, len(head)))
    else:
        head = ["variable", belief_name(beliefs).lower()]
        rows = [
            [names[v], wording.marginal_text(graph, v, numbers[v].tolist())] for v in range(shown)
        ]
        numeric = []
    if beliefs.state is not None:
        head.append("best state")
        for v, row in enumerate(rows):
            row.append(wording.state_names(graph, v)[int(beliefs.state[v])])
    if exact is not None and exact is not beliefs and graph.n_variables:
        numeric.append(len(head))
        head.append("error")
        for row, value in zip(rows, variable_errors(beliefs, exact).tolist(), strict=False):
            row.append(text.error(value))
    return html.table(head, rows, numeric)


# ---------------------------------------------------------------------- code


def python_text(graph: FactorGraph, model: str | None, call: str, evidence: Observed) -> str:
    """The lines of Python that do the same, with the names of variables and states."""
    if model and model.startswith("example:"):
        source = f"graph = kk.example({model[8:]!r})"
    else:
        source = f"graph = kk.read({model!r})" if model else "graph = ...  # the model of this page"
    given = {
        v if graph.names is None else graph.names[v]: graph.states[v][value]
        if graph.states is not None and isinstance(value, int)
        else value
        for v, value in evidence.items()
    }
    return f"import kikuchi as kk\n{source}\nevidence = {given or None!r}\n{call}"
