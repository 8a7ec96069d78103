"""The page of a comparison of methods."""

from __future__ import annotations

from os import PathLike

from kikuchi.plots.comparison import comparison, scatter
from kikuchi.plots.convergence import convergence
from kikuchi.reports import html, parts, text
from kikuchi.reports.comparison import Comparison, Row

_HEAD = (
    "method",
    "log Z",
    "bounds",
    "error",
    "largest error",
    "mean error",
    "sweeps",
    "seconds",
    "converged",
)


def compare_report(
    results: Comparison,
    path: str | PathLike[str],
    *,
    model: str | None = None,
    command: str | None = None,
) -> None:
    """Write one self-contained HTML page about a comparison of methods on one model.

    >>> import tempfile, pathlib, kikuchi as kk
    >>> from kikuchi.reports import compare
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "compare.html"
    >>> compare_report(compare(kk.FactorGraph([2], [((0,), [1, 3])]), ["bp"]), target)
    >>> target.read_text().count("<section>") >= 3
    True
    """
    html.write_page(path, _page(results, model, command))


def _page(results: Comparison, model: str | None, command: str | None) -> str:
    rows = [row for row in results.rows if row.beliefs is not None]
    texts = [row.method for row in results.rows]
    call = f"from kikuchi.reports import compare\ncompare(graph, {texts!r}, evidence=evidence)"
    return html.document(
        f"Methods compared on {model or 'a model'}",
        "The same question, answered by several methods",
        html.section(
            "Answers",
            html.warning_box(_warnings(results)),
            html.table(_HEAD, [_cells(row) for row in results.rows], range(1, 8)),
            _footnote(results),
        ),
        html.section("Side by side", *_side_by_side(rows, results)),
        html.section(
            "Question",
            html.definition_table(
                [
                    *parts.model_pairs(results.graph, model, results.evidence),
                    ("Methods", "; ".join(texts)),
                    ("Exact answer", results.exact_note),
                    *parts.version_pairs(),
                ]
            ),
        ),
        html.section("Convergence", _convergence(rows)),
        html.section("Beliefs", *_beliefs(rows, results)),
        html.section("Marginals", _marginals(rows, results)),
        parts.rerun(command, parts.python_text(model, call, results.evidence)),
    )


def _warnings(results: Comparison) -> list[str]:
    found = []
    for row in results.rows:
        if row.beliefs is None:
            found.append(f"{row.method} gave no answer: {row.problem}")
        else:
            if not row.beliefs.converged and not row.beliefs.warnings:
                found.append(f"{row.method} did not converge ({row.beliefs.stopped}).")
            found += [f"{row.method}: {warning}" for warning in row.beliefs.warnings]
    return found


def _cells(row: Row) -> list[str]:
    answer = row.beliefs
    if answer is None:
        return [row.method, *[text.UNKNOWN] * 7, "no answer"]
    return [
        row.method,
        text.log_z(answer.log_z, 6),
        text.UNKNOWN if text.bounds(answer) == "none certified" else text.bounds(answer, 6),
        text.error(row.log_z_error),
        text.error(row.largest_error),
        text.error(row.mean_error),
        text.whole(answer.iterations),
        f"{answer.seconds:.3g}",
        "yes" if answer.converged else f"no ({answer.stopped})",
    ]


def _footnote(results: Comparison) -> str:
    note = (
        f"{results.exact_note[:1].upper()}{results.exact_note[1:]}. Bounds on log Z are certified; "
        "error is log Z minus the exact one. The error of a marginal is the "
        "largest difference over the states of a variable; largest and mean are over the variables "
        "that were not observed. Seconds are wall clock; compiled loops were loaded beforehand."
    )
    return f'<p class="note">{html.escape(note)}</p>'


def _side_by_side(rows: list[Row], results: Comparison) -> list[str]:
    answers = [(row, row.beliefs) for row in rows if row.beliefs is not None]
    if not any(b.log_z is not None or row.largest_error is not None for row, b in answers):
        return []
    figure = comparison(
        [row.method for row in rows],
        log_z=[b.log_z for _, b in answers],
        lower=[b.log_z_lower for _, b in answers],
        upper=[b.log_z_upper for _, b in answers],
        largest=[row.largest_error for row in rows],
        mean=[row.mean_error for row in rows],
        exact_log_z=None if results.exact is None else results.exact.log_z,
    )
    return [html.picture(figure, "log Z with certified bounds, and errors of marginals.", 1)]


def _convergence(rows: list[Row]) -> str:
    traces = {row.method: row.beliefs.trace for row in rows if row.beliefs is not None}
    traces = {name: trace for name, trace in traces.items() if len(trace) > 1}
    if not traces:
        return ""
    return html.picture(convergence(traces), "How each run approached its answer.", 2)


def _beliefs(rows: list[Row], results: Comparison) -> list[str]:
    """Pictures of the best answer, then each other answer against the exact one."""
    best = _best(rows, results)
    if best is None or best.beliefs is None:
        return []
    found = [f"<h3>{html.escape(best.method)}</h3>"]
    drawn = parts.belief_pictures(best.beliefs, results.evidence)
    found += [html.picture(figure, caption, 3 + k) for k, (figure, caption) in enumerate(drawn)]
    scatters = [
        html.picture(
            scatter(
                results.exact.flat_marginals,
                row.beliefs.flat_marginals,
                row.method,
                (row.largest_error, row.mean_error or 0.0),
            ),
            f"{row.method} against exact.",
            10 + k,
        )
        for k, row in enumerate(rows)
        if results.exact is not None
        and row.beliefs is not None
        and row.beliefs is not results.exact
        and row.largest_error is not None
        and row.beliefs.flat_marginals.size
    ]
    return [*found, f'<div class="row">{"".join(scatters)}</div>' if scatters else ""]


def _best(rows: list[Row], results: Comparison) -> Row | None:
    """The exact answer, or else the first that converged, or else the first."""
    exact = [row for row in rows if row.beliefs is results.exact]
    converged = [row for row in rows if row.beliefs is not None and row.beliefs.converged]
    return next(iter([*exact, *converged, *rows]), None)


def _marginals(rows: list[Row], results: Comparison) -> str:
    best = _best(rows, results)
    if best is None or best.beliefs is None:
        return ""
    return f"<p>By {html.escape(best.method)}.</p>\n" + parts.marginal_table(best.beliefs)
