"""The page of one inference run."""

from __future__ import annotations

import dataclasses
from os import PathLike

import numpy as np

from kikuchi.core import text
from kikuchi.core.arrays import Array
from kikuchi.core.page import Facts, Picture, Tile, settings_text
from kikuchi.graphs.factor_graph import Evidence
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.registry import parse_method
from kikuchi.plots.bounds import bounds_over_time
from kikuchi.plots.comparison import scatter
from kikuchi.reports import html, model_parts, page, wording
from kikuchi.reports.comparison import log_z_error, marginal_errors
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

    `exact` adds the errors and a scatter plot; `model` is the displayed name of the model,
    `evidence` the evidence of the run, and `command` the command line that repeats it.

    >>> import tempfile, pathlib, kikuchi as kk
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "run.html"
    >>> infer_report(kk.infer(kk.FactorGraph([2], [((0,), [1, 3])]), "bp"), target)
    >>> "1.386294361" in target.read_text()
    True
    """
    observed = as_observed(beliefs.graph, evidence)
    question = [
        *model_parts.model_pairs(beliefs.graph, model, observed),
        *_method_pairs(beliefs.method),
        *page.versions(),
    ]
    steps = {beliefs.method: beliefs.trace}
    call = f"beliefs = kk.infer(graph, {beliefs.method!r}, evidence=evidence)"
    page.Report(
        title=_title(beliefs, model, observed),
        subtitle=(
            "The most probable state and max-marginals"
            if beliefs.max_product
            else "Marginals and log Z"
        )
        + ", with how far to trust them",
        warnings=_warnings(beliefs),
        tiles=_tiles(beliefs),
        answer=[
            Facts([(name.capitalize(), value) for name, value in wording.choice(beliefs)]),
            _against_exact(beliefs, exact, observed),
        ],
        sections={
            "Beliefs": _pictures(beliefs, exact, observed),
            f"{model_parts.belief_name(beliefs)}s": [model_parts.marginal_table(beliefs, exact)],
            "Bounds on log Z": [_bounds(beliefs)],
            "Convergence": [page.convergence_picture(steps, "How the run approached its answer.")],
            "Question": [Facts(question)],
            "Diagnostics": [page.diagnostics(beliefs.diagnostics)],
        },
        python=model_parts.python_text(beliefs.graph, model, call, observed),
    ).write(path, command)


def _title(beliefs: Beliefs, model: str | None, observed: Observed) -> str:
    """The method, the model and the evidence."""
    given = f" given {wording.observations(beliefs.graph, observed, most=4)}" if observed else ""
    return f"{beliefs.method} on {model or 'a model'}{given}"


def _warnings(beliefs: Beliefs) -> list[str]:
    warnings = list(beliefs.warnings)
    if not beliefs.converged and not any("converged" in message for message in warnings):
        residual = beliefs.trace.last_residual
        last = f"; the last residual was {residual:.3g}" if np.isfinite(residual) else ""
        reason = wording.verdict(beliefs).removeprefix("no: ")
        warnings.insert(
            0,
            f"The method did not converge ({reason}{last}): the numbers below are the best so "
            "far, not a fixed point.",
        )
    return warnings


def _tiles(beliefs: Beliefs) -> list[Tile]:
    entries = [
        Tile("log Z (nats)", text.log_z(beliefs.log_z)),
        Tile("bounds on log Z", wording.bounds(beliefs)),
        Tile.judged("converged", beliefs.converged),
        Tile("iterations", text.whole(beliefs.iterations)),
        Tile("time", text.seconds(beliefs.seconds)),
    ]
    if beliefs.score is not None:
        entries.append(Tile("log-weight of the best state", text.log_z(beliefs.score)))
    return entries


def _against_exact(beliefs: Beliefs, exact: Beliefs | None, observed: Observed) -> str:
    if exact is None:
        return ""
    largest, mean = marginal_errors(beliefs, exact, observed)
    pairs = [
        ("Exact log Z", f"{text.log_z(exact.log_z)} (by {exact.method})"),
        ("Error of log Z", text.error(log_z_error(beliefs, exact))),
        ("Largest error of a marginal", text.error(largest)),
        ("Mean error of the marginals", text.error(mean)),
    ]
    return "<h3>Against the exact answer</h3>\n" + html.definition_table(pairs)


def _method_pairs(method: str) -> list[tuple[str, str]]:
    chosen = parse_method(method)
    pairs = [("Method", f"{chosen.name}: {chosen.summary}")]
    if method != chosen.name:
        pairs.append(("Method text", method))
    if dataclasses.fields(chosen):
        pairs.append(("Settings", settings_text(chosen)))
    seed = getattr(chosen, "seed", None)
    return [*pairs, ("Seed", "not used: deterministic" if seed is None else str(seed))]


def _bounds(beliefs: Beliefs) -> Picture | None:
    """The bounds over time, where the run recorded at least two steps with a bound."""
    columns = beliefs.trace.arrays()
    lower, upper = (_known(columns[side]) for side in ("lower", "upper"))
    bounded = np.isfinite(lower) | np.isfinite(upper)
    if np.count_nonzero(bounded) < 2:
        return None
    figure = bounds_over_time(
        columns["seconds"][bounded].tolist(),
        lower[bounded].tolist(),
        upper[bounded].tolist(),
        [],
        estimate=beliefs.log_z,
    )
    return Picture(figure, "Certified bounds on log Z against time.")


def _known(bound: Array) -> Array:
    """Return the bounds with NaN where there was none yet, however the method marked it."""
    return np.where(np.isfinite(bound), bound, np.nan)


def _pictures(beliefs: Beliefs, exact: Beliefs | None, observed: Observed) -> list[Picture]:
    pictures = model_parts.belief_pictures(beliefs, observed)
    if exact is not None and beliefs.flat_beliefs.size:
        errors = marginal_errors(beliefs, exact, observed)
        figure = scatter(exact.flat_marginals, beliefs.flat_marginals, beliefs.method, errors)
        pictures.append(
            Picture(figure, "Each dot is the probability of one state of one variable.")
        )
    return pictures
