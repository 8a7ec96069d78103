"""`kikuchi evaluate`: how well a model explains rows of data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from kikuchi.cli import options
from kikuchi.cli.learn import DataFile

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.learning.data import Data


def evaluate(
    model: options.Model,
    data: DataFile,
    json: options.Json = None,
    seconds: options.Seconds = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """Log-likelihood per row (exact, or bounds), pseudo-likelihood and distance of marginals."""
    from kikuchi import __version__
    from kikuchi.cli.console import Screen
    from kikuchi.cli.inputs import load_model, make_budget
    from kikuchi.cli.outputs import STANDARD_OUTPUT, check_outputs, write_json
    from kikuchi.learning import evaluation
    from kikuchi.learning.files import read_data
    from kikuchi.reports import text
    from kikuchi.reports.learn_page import data_text, score_pairs

    check_outputs(model, json)
    budget = make_budget(seconds, memory)
    graph = load_model(model)
    rows = read_data(data, graph)
    impossible = impossible_rows(graph, rows)
    score = evaluation.evaluate(graph, rows, budget=budget)
    screen = Screen(quiet=quiet or json == STANDARD_OUTPUT)
    size = f"{text.count(graph.n_variables, 'variable')}, {text.count(graph.n_factors, 'factor')}"
    screen.facts(
        [
            ("model", f"{model}: {size}"),
            ("data", f"{data}: {data_text(rows)}"),
            *score_pairs(score),
        ]
    )
    if impossible and not quiet:
        shown = ", ".join(map(str, impossible[:5])) + (", ..." if len(impossible) > 5 else "")
        typer.echo(
            f"warning: {text.count(len(impossible), 'row')} of {rows.n_rows} impossible under the "
            f"model (its zeros), so that the log-likelihood is -inf: {shown}",
            err=True,
        )
    if json is not None:
        content = {"model": model, "data": data, "version": __version__, **score.to_dict()}
        write_json({**content, "impossible_rows": len(impossible)}, json)
        if json != STANDARD_OUTPUT:
            screen.note(f"written: {json}")


def impossible_rows(graph: FactorGraph, data: Data) -> list[int]:
    """Complete rows that the model gives no weight."""
    import numpy as np

    if not np.isneginf(graph.log_tables).any():
        return []
    whole = np.flatnonzero(np.all(data.states >= 0, axis=1) & (data.weights > 0))
    found: list[int] = whole[np.isneginf(graph.log_score(data.states[whole]))].tolist()
    return found
