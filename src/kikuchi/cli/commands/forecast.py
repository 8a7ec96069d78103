"""`kikuchi forecast`: the steps after the last row of sequences."""

from __future__ import annotations

from typing import Annotated

from kikuchi.cli import options
from kikuchi.cli.command import StrictOutput, grouped
from kikuchi.cli.sequence_tasks import DataFiles, OutTable, Posterior, carry_out

Steps = Annotated[int, options.option("--steps N", "Steps after the last row.", min=1)]


@grouped
def forecast(
    model: options.FittedModel,
    data: DataFiles,
    out: OutTable = None,
    steps: Steps = 20,
    method: Posterior = None,
    *,
    output: StrictOutput,
) -> None:
    """Forecast the steps after sequences by a fitted model.

    Means and standard deviations of the outputs.
    """
    carry_out("forecast", "forecasts", model, data, out, output, steps=steps, method=method)
