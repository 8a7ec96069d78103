"""The page of one fit, and its findings as short texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core.budget import Budget
from kikuchi.core.errors import KikuchiError
from kikuchi.core.numerics import entropy
from kikuchi.inference.registry import parse_method
from kikuchi.learning.data import Data
from kikuchi.learning.fit import Fit
from kikuchi.learning.registry import parse_learner
from kikuchi.plots.convergence import convergence
from kikuchi.plots.learning import moments, strengths
from kikuchi.reports import html, parts, text
from kikuchi.reports.comparison import cheap_exact

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.inference.beliefs import Beliefs
    from kikuchi.learning.evaluation import Score

_SHOWN_FACTORS = 20
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

    `source` and `graph` name the data and the graph for people; `command` repeats the fit.

    >>> import tempfile, pathlib, kikuchi as kk
    >>> from kikuchi.learning.registry import learn
    >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "fit.html"
    >>> rows = Data.of([[1], [1], [0]], coin)
    >>> learn_report(learn(coin, rows, "pseudo"), rows, target)
    >>> "-0.636514" in target.read_text()
    True
    """
    html.write_page(path, _page(fit, data, source, graph, command))


# ---------------------------------------------------------------------- short texts


def data_text(data: Data) -> str:
    """Rows, distinct rows and missing cells in one line.

    >>> data_text(Data.of([[0, 1], [0, -1]]))
    '2 rows of 2 variables, 1 cell missing'
    """
    missing = int(np.count_nonzero(data.states < 0))
    rest = f", {text.count(missing, 'cell')} missing" if missing else ""
    rows = text.count(data.n_rows, "row")
    if data.total != data.n_rows:
        rows += f" (weight {data.total:g})"
    return f"{rows} of {text.count(data.n_variables, 'variable')}{rest}"


def score_pairs(score: Score) -> list[tuple[str, str]]:
    """How well a model explains rows, for a table."""
    pairs = [("log-likelihood per row", likelihood(score))]
    if score.pseudo is not None:
        pairs.append(("pseudo-log-likelihood per row", text.log_z(score.pseudo, 6)))
    if score.marginal_l1 is not None:
        pairs.append(("mean L1 distance of marginals", text.figure(score.marginal_l1, 4)))
    return pairs


def likelihood(score: Score) -> str:
    """The log-likelihood: exact, an interval, one side, or unknown.

    >>> from kikuchi.learning.evaluation import Score
    >>> likelihood(Score(3, None, -2.5, -2.25)), likelihood(Score(3, -2.0, -2.0, -2.0))
    ('between -2.500000 and -2.250000', '-2.000000 (exact)')
    """
    low, high = score.lower, score.upper
    if score.log_likelihood is not None:
        return f"{text.log_z(score.log_likelihood, 6)} (exact)"
    if low is not None and high is not None:
        return f"between {text.log_z(low, 6)} and {text.log_z(high, 6)}"
    if low is None and high is None:
        return "not known"
    side, value = ("at least", low) if high is None else ("at most", high)
    return f"{side} {text.log_z(value, 6)}"


def certified_pairs(fit: Fit) -> list[tuple[str, str]]:
    """The lower bound on the log-likelihood that the learner itself certifies, if it does."""
    bound = fit.diagnostics.get("certified_lower")
    return [] if bound is None else [("certified by the learner", f"at least {bound:.6f} per row")]


def objective_name(fit: Fit) -> str:
    """What the objective is, and whether penalties are taken off it."""
    learner = parse_learner(fit.learner)
    penalised = any(getattr(learner, name, 0.0) > 0 for name in ("l1", "l2"))
    return fit.trace.objective_name + (", penalties taken off" if penalised else "")


def fit_verdict(fit: Fit) -> str:
    """Whether the learner converged, and if not, what stopped it."""
    if fit.converged:
        return "yes"
    reasons = {
        "iterations": "no: the limit of iterations was reached",
        "seconds": "no: the time budget ended",
        "interrupted": "no: interrupted",
        "diverged": "no: no better point was found",
        "converged": "no",
    }
    return reasons.get(fit.stopped, f"no: {fit.stopped}")


# ---------------------------------------------------------------------- the page


def _page(fit: Fit, data: Data, source: str | None, graph: str | None, command: str | None) -> str:
    beliefs = _beliefs(fit.graph)
    return html.document(
        f"{fit.learner.partition(':')[0]} on {source or 'a table of data'}",
        "A model learnt from data, with how well it explains them",
        html.section("Answer", html.warning_box(_warnings(fit)), html.tiles(_tiles(fit))),
        html.section("Question", html.definition_table(_question(fit, data, source, graph))),
        html.section("How the fit was found", _convergence(fit)),
        html.section("Model and data", *_pictures(fit.graph, data, beliefs)),
        html.section("Strongest factors", _factor_table(fit.graph, beliefs)),
        html.section("Diagnostics", _diagnostics(fit)),
        parts.rerun(command, _python(fit, data, source, graph)),
    )


def _warnings(fit: Fit) -> list[str]:
    found = list(fit.warnings)
    if not fit.converged:
        found.insert(
            0,
            f"The learner did not converge ({fit_verdict(fit).removeprefix('no: ')}): the model is "
            "the best so far.",
        )
    return found


def _tiles(fit: Fit) -> list[tuple[str, str, str]]:
    found = [
        (label + ", exact" * value.endswith(" (exact)"), value.removesuffix(" (exact)"), "")
        for label, value in ([] if fit.score is None else score_pairs(fit.score))
    ]
    if fit.objective is not None and fit.trace.objective_name != "log-likelihood per row":
        label = f"objective: {objective_name(fit)}"
        found.append((label, text.log_z(fit.objective, 6), ""))
    found += [(label, value, "") for label, value in certified_pairs(fit)]
    return [
        *found,
        ("converged", "yes" if fit.converged else "no", "good" if fit.converged else "bad"),
        ("iterations", text.whole(fit.iterations), ""),
        ("time, with loading", text.seconds(fit.seconds), ""),
    ]


def _question(fit: Fit, data: Data, source: str | None, graph: str | None) -> list[tuple[str, str]]:
    learner = parse_learner(fit.learner)
    options = [f"{f.name}={_plain(getattr(learner, f.name))}" for f in dataclasses.fields(learner)]
    hidden = [text.variable_name(fit.graph, int(v)) for v in data.hidden]
    pairs = [
        ("Data", f"{source or 'given in Python'}: {data_text(data)}"),
        ("Hidden variables", _listed(hidden) if hidden else "none"),
        *((a, b) for a, b in parts.model_pairs(fit.graph, graph, {}) if a != "Evidence"),
        ("Learner", f"{learner.name}: {learner.summary}"),
        ("Learner text", fit.learner),
    ]
    if options:
        pairs.append(("Options", ", ".join(options)))
    return [*pairs, *parts.version_pairs()]


def _plain(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _listed(names: Sequence[str], most: int = 20) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f", and {more} more" if more > 0 else "")


def _convergence(fit: Fit) -> str:
    if len(fit.trace) < 2:
        return ""
    return html.picture(
        convergence({fit.learner: fit.trace}),
        "The fit, step by step; the residual is the largest slope that is left.",
        1,
    )


# ---------------------------------------------------------------------- the fitted model


def _beliefs(graph: FactorGraph) -> Beliefs | None:
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


def _pictures(graph: FactorGraph, data: Data, beliefs: Beliefs | None) -> list[str]:
    if beliefs is None:
        return []
    drawn = []
    seen = ~np.any(data.states < 0, axis=0)
    whole = [a for a in range(graph.n_factors) if all(seen[v] for v in graph.scope(a))]
    if whole:
        frequencies = np.concatenate([data.counts(graph.scope(a)).ravel() for a in whole])
        model = np.concatenate([beliefs.factor(a).ravel() for a in whole])
        note = "" if len(whole) == graph.n_factors else " of factors without hidden variables"
        caption = f"Each dot is one entry of one table{note}; a perfect fit lies on the line."
        drawn.append((moments(frequencies / data.total, model, beliefs.method), caption))
    drawn += parts.belief_pictures(beliefs, {})
    return [html.picture(figure, caption, 2 + k) for k, (figure, caption) in enumerate(drawn)]


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


def _factor_table(graph: FactorGraph, beliefs: Beliefs | None) -> str:
    many = np.diff(graph.scope_offsets) > 1
    if beliefs is None or not many.any():
        return ""
    values = _informations(graph, beliefs)
    order = np.argsort(-np.where(many, values, -1.0), kind="stable")
    order = order[: min(_SHOWN_FACTORS, int(many.sum()))]
    labels = [", ".join(text.variable_name(graph, v) for v in graph.scope(int(a))) for a in order]
    picture = html.picture(
        strengths(labels, values[order]),
        "Mutual information of each factor's variables in the fitted model "
        f"(by {beliefs.method}), the {len(order)} largest of {int(many.sum())}.",
        9,
    )
    rows = [
        [str(int(a)), label, f"{values[a]:.6f}", _entries(graph, int(a))]
        for a, label in zip(order, labels, strict=True)
    ]
    head = ["factor", "variables", "information", "log-table, row by row"]
    return picture + html.collapsed("Their tables", html.table(head, rows, [0, 2]))


def _entries(graph: FactorGraph, factor: int, most: int = 12) -> str:
    values = graph.log_table(factor).ravel()
    shown = "  ".join(f"{x:.4f}" for x in values[:most])
    return shown + (f"  ... ({values.size} entries)" if values.size > most else "")


def _diagnostics(fit: Fit) -> str:
    pairs = []
    for name, value in fit.diagnostics.items():
        plain = value.tolist() if hasattr(value, "tolist") else value
        shown = f"{plain:.6g}" if isinstance(plain, float) else str(plain)
        pairs.append((name, shown if len(shown) <= 400 else shown[:400] + " ..."))
    return html.definition_table(pairs) if pairs else ""


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
            f"graph = kk.graph_from_text({graph!r}, rows)",
        ]
    return "\n".join([*lines, f"fit = kk.learn(graph, rows, {fit.learner!r})"])
