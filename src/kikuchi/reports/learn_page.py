"""The page of one fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core import text
from kikuchi.core.budget import Budget
from kikuchi.core.errors import KikuchiError
from kikuchi.core.numerics import entropy
from kikuchi.core.page import Facts, Item, Picture, Tile, settings_text
from kikuchi.graphs.picture import edge_numbers
from kikuchi.learning.data import Data
from kikuchi.learning.fit import Fit
from kikuchi.learning.networks import structure_score
from kikuchi.learning.registry import parse_learner
from kikuchi.methods.registry import parse_method
from kikuchi.plots.learning import moments, strengths
from kikuchi.reports import html, model_parts, page, wording
from kikuchi.reports.comparison import cheap_exact

if TYPE_CHECKING:
    from kikuchi.graphs.conditional import ConditionalTable
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.methods.beliefs import Beliefs

_SHOWN_FACTORS = 20
_FEW_STEPS = 3  # of a fit, which no picture needs to show
_MOST_ARROWS, _MOST_TABLES, _OPEN_TABLES, _MOST_ROWS = 100, 100, 12, 64
_SECONDS_FOR_BELIEFS = 10.0


def learn_report(
    fit: Fit,
    data: Data,
    path: str | PathLike[str],
    *,
    source: str | None = None,
    graph: str | None = None,
    command: str | None = None,
) -> None:
    """Write one self-contained HTML page about a fit: how well it explains its data, how it was
    found, its moments beside those of the data, its strongest factors, and how to run it again.

    `source` and `graph` are the displayed names of the data and the graph; `command` repeats the
    fit.

    >>> import tempfile, pathlib, kikuchi as kk
    >>> from kikuchi.learning.registry import learn
    >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "fit.html"
    >>> rows = Data.of([[1], [1], [0]], coin)
    >>> learn_report(learn(coin, rows, "pseudo"), rows, target)
    >>> "-0.636514" in target.read_text()
    True
    """
    beliefs = fitted_beliefs(fit.graph)
    caption = "The fit, step by step; the residual is the largest slope that is left."
    steps = {fit.learner: fit.trace} if len(fit.trace) > _FEW_STEPS else {}
    page.Report(
        title=f"{_what(fit)} learned from {source or 'a table of data'}",
        subtitle=f"By {fit.learner}, with how well it explains the data",
        warnings=_warnings(fit),
        tiles=[*_tiles(fit), *_structure(fit.graph, data, graph)],
        answer=_found(fit.graph, beliefs),
        sections={
            "Conditional probability tables": _tables(fit.graph),
            "Model and data": model_and_data(fit.graph, data, beliefs),
            "Strongest factors": _strongest_factors(fit.graph, beliefs),
            "Question": [Facts(_question(fit, data, source, graph))],
            "How the fit was found": [page.convergence_picture(steps, caption)],
            "Diagnostics": [page.diagnostics(fit.diagnostics)],
        },
        python=_python(fit, data, source, graph),
    ).write(path, command)


def _structure(model: FactorGraph, data: Data, graph: str | None) -> list[Tile]:
    """The score of the arrows: the one that the search for them used, else BIC."""
    if not (model.is_directed and data.complete):
        return []
    search, _, score = (graph or "").strip().lower().partition(":")
    name = score if search == "hill-climb" and score else "bic"
    return [Tile(name.upper(), f"{structure_score(model, data, name):.3f}")]


def _what(fit: Fit) -> str:
    return "A Bayesian network" if fit.graph.is_directed else "A model"


def _found(graph: FactorGraph, beliefs: Beliefs | None) -> list[Item]:
    """The network with its marginals, and its arrows."""
    items: list[Item] = []
    if beliefs is not None:
        items += model_parts.belief_pictures(beliefs, {})
    if not graph.is_directed:
        return items
    arrows = [
        f"{wording.variable_name(graph, u)} → {wording.variable_name(graph, v)}"
        for u, v in edge_numbers(graph)
    ]
    more = f", and {len(arrows) - _MOST_ARROWS} more" if len(arrows) > _MOST_ARROWS else ""
    shown = ", ".join(arrows[:_MOST_ARROWS]) + more
    return [*items, Facts([(f"Arrows ({len(arrows)})", shown or "none")])]


def _tables(graph: FactorGraph) -> list[Item]:
    """The conditional probability table of each variable; of large networks folded away."""
    if not graph.is_directed:
        return []
    shown = range(min(graph.n_variables, _MOST_TABLES))
    tables = [graph.cpt(v) for v in shown]
    parts = [
        html.collapsed(table.title, html.table(*_cells(table))) if len(tables) > _OPEN_TABLES
        else f"<div><h3>{html.escape(table.title)}</h3>{html.table(*_cells(table))}</div>"
        for table in tables
    ]  # fmt: skip
    more = graph.n_variables - len(tables)
    return [
        f'<div class="tables">{"".join(parts)}</div>',
        f'<p class="note">{more} more tables are in the file.</p>' if more else "",
    ]


def _cells(table: ConditionalTable) -> tuple[list[str], list[list[str]], list[int]]:
    """Head, rows and columns of numbers; a row for each combination of states of the parents."""
    head = [*table.parents, *table.states[-1]]
    rows = [
        [*given, *(f"{p:.4g}" for p in numbers)]
        for given, numbers in zip(
            itertools.product(*table.states[:-1]),
            table.table.reshape(-1, table.table.shape[-1]).tolist(),
            strict=True,
        )
    ]
    few = rows[:_MOST_ROWS]
    if len(rows) > len(few):
        few.append([f"{len(rows) - len(few)} more rows", *[""] * (len(head) - 1)])
    return head, few, list(range(len(table.parents), len(head)))


def _warnings(fit: Fit) -> list[str]:
    if fit.converged:
        return list(fit.warnings)
    reason = wording.fit_verdict(fit).removeprefix("no: ")
    stopped = f"The learner did not converge ({reason}): the model is the best so far."
    return [stopped, *fit.warnings]


def _tiles(fit: Fit) -> list[Tile]:
    scores = [] if fit.score is None else wording.score_pairs(fit.score)
    tiles = [
        Tile(label + ", exact" * value.endswith(" (exact)"), value.removesuffix(" (exact)"))
        for label, value in scores
    ]
    if fit.held_out is not None:
        figure = wording.likelihood(fit.held_out).removesuffix(" (exact)")
        tiles.insert(1, Tile(f"on {text.count(fit.held_out.rows, 'held-out row')}", figure))
    if fit.objective is not None and fit.trace.objective_name != "log-likelihood per row":
        label = f"objective: {wording.objective_name(fit)}"
        tiles.append(Tile(label, text.log_z(fit.objective, 6)))
    tiles += [Tile(label, value) for label, value in wording.certified_pairs(fit)]
    return [
        *tiles,
        Tile.judged("converged", fit.converged),
        Tile("iterations", text.whole(fit.iterations)),
        Tile("time", text.seconds(fit.seconds)),
    ]


def _question(fit: Fit, data: Data, source: str | None, graph: str | None) -> list[tuple[str, str]]:
    learner = parse_learner(fit.learner)
    hidden = [wording.variable_name(fit.graph, int(v)) for v in data.hidden]
    pairs = [
        ("Data", f"{source or 'given in Python'}: {wording.data_text(data)}"),
        ("Hidden variables", _listed(hidden) if hidden else "none"),
        *((a, b) for a, b in model_parts.model_pairs(fit.graph, graph, {}) if a != "Evidence"),
        ("Learner", f"{learner.name}: {learner.summary}"),
        ("Learner text", fit.learner),
        ("Settings", settings_text(learner)),
    ]
    return [*pairs, *page.versions()]


def _listed(names: Sequence[str], most: int = 20) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f", and {more} more" if more > 0 else "")


# ---------------------------------------------------------------------- the fitted model


def fitted_beliefs(graph: FactorGraph) -> Beliefs | None:
    """Marginals of the fitted model, exact where cheap, by belief propagation otherwise."""
    if graph.n_factors == 0:
        return None
    exact = cheap_exact(graph, None)
    if exact is not None:
        return exact
    try:
        return parse_method("bp").run(graph, budget=Budget(seconds=_SECONDS_FOR_BELIEFS))
    except KikuchiError:
        return None


def model_and_data(graph: FactorGraph, data: Data, beliefs: Beliefs | None) -> list[Picture]:
    """Pictures of the tables of a model beside frequencies of the data, and of its beliefs."""
    if beliefs is None:
        return []
    pictures = []
    seen = ~np.any(data.states < 0, axis=0)
    whole = [a for a in range(graph.n_factors) if all(seen[v] for v in graph.scope(a))]
    if whole:
        frequencies = np.concatenate([data.counts(graph.scope(a)).ravel() for a in whole])
        model = np.concatenate([beliefs.factor(a).ravel() for a in whole])
        note = "" if len(whole) == graph.n_factors else " of factors without hidden variables"
        caption = f"Each dot is one entry of one table{note}; a perfect fit lies on the line."
        pictures.append(Picture(moments(frequencies / data.total, model, beliefs.method), caption))
    return pictures


def _informations(graph: FactorGraph, beliefs: Beliefs) -> np.ndarray[Any, np.dtype[np.float64]]:
    """sum_i H(x_i) - H(x_a) of every factor's belief: 0 if its variables are independent."""
    out = np.zeros(graph.n_factors)
    for a in range(graph.n_factors):
        table = beliefs.factor(a)
        if table.ndim > 1:
            axes = range(table.ndim)
            singles = [table.sum(axis=tuple(k for k in axes if k != axis)) for axis in axes]
            out[a] = sum(float(entropy(p)) for p in singles) - float(entropy(table))
    return np.maximum(out, 0.0)


def _strongest_factors(graph: FactorGraph, beliefs: Beliefs | None) -> list[Item]:
    many = np.diff(graph.scope_offsets) > 1
    if beliefs is None or not many.any():
        return []
    values = _informations(graph, beliefs)
    order = np.argsort(-np.where(many, values, -1.0), kind="stable")
    order = order[: min(_SHOWN_FACTORS, int(many.sum()))]
    scopes = [graph.scope(int(a)) for a in order]
    labels = [", ".join(wording.variable_name(graph, v) for v in scope) for scope in scopes]
    picture = Picture(
        strengths(labels, values[order]),
        "Mutual information of each factor's variables in the fitted model "
        f"(by {beliefs.method}), the {len(order)} largest of {int(many.sum())}.",
    )
    rows = [
        [str(int(a)), label, f"{values[a]:.6f}", _entries(graph, int(a))]
        for a, label in zip(order, labels, strict=True)
    ]
    head = ["factor", "variables", "information", "log-table, row by row"]
    return [picture, html.collapsed("Their tables", html.table(head, rows, [0, 2]))]


def _entries(graph: FactorGraph, factor: int, most: int = 12) -> str:
    values = graph.log_table(factor).ravel()
    shown = "  ".join(f"{x:.4f}" for x in values[:most])
    return shown + (f"  ... ({values.size} entries)" if values.size > most else "")


def _python(fit: Fit, data: Data, source: str | None, graph: str | None) -> str:
    """The lines of Python that do the same."""
    lines = ["import kikuchi as kk"]
    if graph is None or source is None or data.hidden.size:
        lines.append("graph, rows = ...  # the model and the data of this page")
    elif graph.startswith("example:"):
        lines += [f"graph = kk.example({graph[8:]!r})", f"rows = kk.read_data({source!r}, graph)"]
    elif graph.lower().removesuffix(".gz").endswith((".uai", ".bif", ".fg")):
        lines += [f"graph = kk.read({graph!r})", f"rows = kk.read_data({source!r}, graph)"]
    else:
        lines += [
            f"rows = kk.read_data({source!r})",
            f"graph = kk.learning.graph_from_text({graph!r}, rows)",
        ]
    return "\n".join([*lines, f"fit = kk.learn(graph, rows, {fit.learner!r})"])
