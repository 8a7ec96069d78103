"""`kikuchi filter`: states of sequences."""

from __future__ import annotations

from typing import Annotated

from kikuchi.cli import options
from kikuchi.cli.command import StrictOutput, grouped
from kikuchi.cli.sequence_tasks import DataFiles, OutTable, Posterior, carry_out

Smooth = Annotated[
    bool, options.option("--smooth", "Use all rows, not only those up to each step.")
]


@grouped
def filter(
    model: options.FittedModel,
    data: DataFiles,
    out: OutTable = None,
    smooth: Smooth = False,
    method: Posterior = None,
    *,
    output: StrictOutput,
) -> None:
    """Estimate the states of sequences by a fitted model.

    The state at each step given the rows up to it or, with --smooth, given all rows.
    """
    task = "smooth" if smooth else "filter"
    carry_out(task, "states", model, data, out, output, method=method)
