"""The page of one inference run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.graphs.factor_graph import Evidence
from kikuchi.inference.beliefs import Beliefs
from kikuchi.inference.registry import parse_method
from kikuchi.plots.bracket import bracket
from kikuchi.plots.comparison import scatter
from kikuchi.plots.convergence import convergence
from kikuchi.reports import html, parts, text
from kikuchi.reports.comparison import marginal_errors
from kikuchi.reports.evidence import Observed, as_observed


def infer_report(
    beliefs: Beliefs,
    path: str | PathLike[str],
    exact: Beliefs | None = None,
    *,
    model: str | None = None,
    evidence: Evidence | None = None,
    command: str | None = None,
) -> None:
    """Write one self-contained HTML page about a run: the question, the answer, how far to trust
    it, pictures, marginals, and how to run it again.

    `exact` adds the errors and a scatter plot; `model` names the model for people; `evidence` is
    what the run was given; `command` is the command line that repeats it.

    >>> import tempfile, pathlib, kikuchi as kk
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "run.html"
    >>> infer_report(kk.infer(kk.FactorGraph([2], [((0,), [1, 3])]), "bp"), target)
    >>> "1.386294361" in target.read_text()
    True
    """
    observed = as_observed(beliefs.graph, evidence)
    html.write_page(path, _page(beliefs, exact, model, observed, command))


def _page(
    beliefs: Beliefs,
    exact: Beliefs | None,
    model: str | None,
    observed: Observed,
    command: str | None,
) -> str:
    call = f"beliefs = kk.infer(graph, {beliefs.method!r}, evidence=evidence)"
    return html.document(
        f"{beliefs.method} on {model or 'a model'}",
        "Marginals and log Z, with how far to trust them",
        html.section(
            "Answer",
            html.warning_box(_warnings(beliefs)),
            html.tiles(_tiles(beliefs)),
            _choice(beliefs),
            _against_exact(beliefs, exact, observed),
        ),
        html.section(
            "Question",
            html.definition_table(
                [
                    *parts.model_pairs(beliefs.graph, model, observed),
                    *_method_pairs(beliefs.method),
                    *parts.version_pairs(),
                ]
            ),
        ),
        html.section("Bounds on log Z", _bounds(beliefs)),
        html.section("Convergence", _convergence(beliefs)),
        html.section("Beliefs", *_pictures(beliefs, exact, observed)),
        html.section("Marginals", parts.marginal_table(beliefs, exact)),
        html.section("Diagnostics", _diagnostics(beliefs.diagnostics)),
        parts.rerun(command, parts.python_text(model, call, observed)),
    )


def _warnings(beliefs: Beliefs) -> list[str]:
    found = list(beliefs.warnings)
    if not beliefs.converged and not any("converged" in message for message in found):
        residual = beliefs.trace.last_residual
        last = f"; the last residual was {residual:.3g}" if np.isfinite(residual) else ""
        found.insert(
            0,
            f"The method did not converge ({text.verdict(beliefs).removeprefix('no: ')}{last}): "
            "the numbers below are the best so far, not a fixed point.",
        )
    return found


def _tiles(beliefs: Beliefs) -> list[tuple[str, str, str]]:
    entries = [
        ("log Z (nats)", text.log_z(beliefs.log_z), ""),
        ("bounds on log Z", text.bounds(beliefs), ""),
        ("converged", "yes" if beliefs.converged else "no", "good" if beliefs.converged else "bad"),
        ("iterations", text.whole(beliefs.iterations), ""),
        ("time, with loading", text.seconds(beliefs.seconds), ""),
    ]
    if beliefs.score is not None:
        entries.append(("log-weight of the best state", text.log_z(beliefs.score), ""))
    return entries


def _choice(beliefs: Beliefs) -> str:
    pairs = [(name.capitalize(), value) for name, value in text.choice(beliefs)]
    return html.definition_table(pairs) if pairs else ""


def _against_exact(beliefs: Beliefs, exact: Beliefs | None, observed: Observed) -> str:
    if exact is None:
        return ""
    largest, mean = marginal_errors(beliefs, exact, observed)
    gap = None
    if beliefs.log_z is not None and exact.log_z is not None:
        gap = beliefs.log_z - exact.log_z
    pairs = [
        ("Exact log Z", f"{text.log_z(exact.log_z)} (by {exact.method})"),
        ("Error of log Z", text.error(gap)),
        ("Largest error of a marginal", text.error(largest)),
        ("Mean error of the marginals", text.error(mean)),
    ]
    return "<h3>Against the exact answer</h3>\n" + html.definition_table(pairs)


def _method_pairs(method: str) -> list[tuple[str, str]]:
    chosen = parse_method(method)
    options = [f"{f.name}={_plain(getattr(chosen, f.name))}" for f in dataclasses.fields(chosen)]
    pairs = [("Method", f"{chosen.name}: {chosen.summary}"), ("Method text", method)]
    if options:
        pairs.append(("Options", ", ".join(options)))
    seed = getattr(chosen, "seed", None)
    return [*pairs, ("Seed", "not used: deterministic" if seed is None else str(seed))]


def _plain(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _bounds(beliefs: Beliefs) -> str:
    """The bracket over time, where the run recorded at least two steps with a bound."""
    columns = beliefs.trace.arrays()
    lower, upper = (_known(columns[side]) for side in ("lower", "upper"))
    bounded = np.isfinite(lower) | np.isfinite(upper)
    if np.count_nonzero(bounded) < 2:
        return ""
    figure = bracket(
        columns["seconds"][bounded].tolist(),
        lower[bounded].tolist(),
        upper[bounded].tolist(),
        [],
        estimate=beliefs.log_z,
    )
    return html.picture(figure, "Certified bounds on log Z against time.", 0)


def _known(bound: NDArray[np.float64]) -> NDArray[np.float64]:
    """The bounds with NaN where there was none yet, however the method said so."""
    return np.where(np.isfinite(bound), bound, np.nan)


def _convergence(beliefs: Beliefs) -> str:
    if len(beliefs.trace) < 2:
        return ""
    figure = convergence({beliefs.method: beliefs.trace})
    return html.picture(figure, "How the run approached its answer.", 1)


def _pictures(beliefs: Beliefs, exact: Beliefs | None, observed: Observed) -> list[str]:
    drawn = parts.belief_pictures(beliefs, observed)
    if exact is not None and beliefs.flat_marginals.size:
        errors = marginal_errors(beliefs, exact, observed)
        figure = scatter(exact.flat_marginals, beliefs.flat_marginals, beliefs.method, errors)
        drawn.append((figure, "Each dot is the probability of one state of one variable."))
    return [html.picture(figure, caption, 2 + k) for k, (figure, caption) in enumerate(drawn)]


def _diagnostics(diagnostics: Mapping[str, Any]) -> str:
    pairs = [(name, _short(value)) for name, value in diagnostics.items()]
    return html.definition_table(pairs) if pairs else ""


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.size > 8:
            numbers = value.astype(np.float64)
            return (
                f"{value.size:,} values, smallest {numbers.min():.4g}, "
                f"median {np.median(numbers):.4g}, largest {numbers.max():.4g}"
            )
        value = value.tolist()
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    return shown if len(shown) <= 400 else shown[:400] + " ..."
