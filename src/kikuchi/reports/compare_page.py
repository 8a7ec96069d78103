"""The page of a comparison of methods."""

from __future__ import annotations

from os import PathLike

from kikuchi.core import text
from kikuchi.core.answer import TextTable
from kikuchi.core.page import Facts, Item, Picture
from kikuchi.plots.comparison import comparison, scatter
from kikuchi.reports import html, model_parts, wording
from kikuchi.reports.comparison import ComparedMethod, Comparison
from kikuchi.reports.page import Report, convergence_picture, versions

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
    rows = [row for row in results.rows if row.beliefs is not None]
    texts = [row.method for row in results.rows]
    question = [
        *model_parts.model_pairs(results.graph, model, results.evidence),
        ("Methods", "; ".join(texts)),
        ("Exact answer", results.exact_note),
        *versions(),
    ]
    traces = {row.method: row.beliefs.trace for row in rows if row.beliefs is not None}
    call = f"from kikuchi.reports import compare\ncompare(graph, {texts!r}, evidence=evidence)"
    Report(
        title=f"Methods compared on {model or 'a model'}",
        subtitle="The same question, answered by several methods",
        heading="Answers",
        warnings=_warnings(results),
        answer=[
            TextTable(_HEAD, [_cells(row) for row in results.rows], range(1, 8)),
            _footnote(results),
        ],
        sections={
            "Side by side": [_side_by_side(rows, results)],
            "Question": [Facts(question)],
            "Convergence": [convergence_picture(traces, "How each run approached its answer.")],
            "Beliefs": _beliefs(rows, results),
            **_marginals(rows, results),
        },
        python=model_parts.python_text(results.graph, model, call, results.evidence),
    ).write(path, command)


def _warnings(results: Comparison) -> list[str]:
    warnings = []
    for row in results.rows:
        if row.beliefs is None:
            warnings.append(f"{row.method} gave no answer: {row.problem}")
        else:
            if not row.beliefs.converged and not row.beliefs.warnings:
                warnings.append(f"{row.method} did not converge ({row.beliefs.stopped}).")
            warnings += [f"{row.method}: {warning}" for warning in row.beliefs.warnings]
    return warnings


def _cells(row: ComparedMethod) -> list[str]:
    """The cells of the screen, with the bounds after log Z."""
    cells = row.cells(decimals=6)
    answer, unknown = row.beliefs, text.UNKNOWN
    bounds = unknown if answer is None else wording.bounds(answer, 6, unknown)
    return [*cells[:2], bounds, *cells[2:]]


def _footnote(results: Comparison) -> str:
    note = (
        f"{results.exact_note[:1].upper()}{results.exact_note[1:]}. Bounds on log Z are certified; "
        "error is log Z minus the exact one. The error of a marginal is the "
        "largest difference over the states of a variable; largest and mean are over the variables "
        "that were not observed. Seconds are wall clock; libraries and compiled loops were loaded "
        "before."
    )
    return f'<p class="note">{html.escape(note)}</p>'


def _side_by_side(rows: list[ComparedMethod], results: Comparison) -> Picture | None:
    answers = [(row, row.beliefs) for row in rows if row.beliefs is not None]
    if not any(b.log_z is not None or row.largest_error is not None for row, b in answers):
        return None
    figure = comparison(
        [row.method for row in rows],
        log_z=[b.log_z for _, b in answers],
        lower=[b.log_z_lower for _, b in answers],
        upper=[b.log_z_upper for _, b in answers],
        largest=[row.largest_error for row in rows],
        mean=[row.mean_error for row in rows],
        exact_log_z=None if results.exact is None else results.exact.log_z,
    )
    return Picture(figure, "log Z with certified bounds, and errors of marginals.")


def _beliefs(rows: list[ComparedMethod], results: Comparison) -> list[Item]:
    """Pictures of the best answer, then each other answer against the exact one."""
    best, exact = _best(rows, results), results.exact
    if best is None or best.beliefs is None:
        return []
    title = f"<h3>{html.escape(best.method)}</h3>"
    pictures = model_parts.belief_pictures(best.beliefs, results.evidence)
    scatters = [
        Picture(
            scatter(
                exact.flat_marginals,
                row.beliefs.flat_marginals,
                row.method,
                (row.largest_error, row.mean_error or 0.0),
            ),
            f"{row.method} against exact.",
        )
        for row in rows
        if exact is not None
        and row.beliefs is not None
        and row.beliefs is not exact
        and row.largest_error is not None
        and row.beliefs.flat_beliefs.size
    ]
    return [title, *pictures, scatters]


def _best(rows: list[ComparedMethod], results: Comparison) -> ComparedMethod | None:
    """The exact answer, or else the first that converged, or else the first."""
    exact = [row for row in rows if row.beliefs is results.exact]
    converged = [row for row in rows if row.beliefs is not None and row.beliefs.converged]
    return next(iter([*exact, *converged, *rows]), None)


def _marginals(rows: list[ComparedMethod], results: Comparison) -> dict[str, list[Item]]:
    best = _best(rows, results)
    if best is None or best.beliefs is None:
        return {}
    table = model_parts.marginal_table(best.beliefs)
    title = f"{model_parts.belief_name(best.beliefs)}s"
    return {title: [f"<p>By {html.escape(best.method)}.</p>\n{table}"]}
