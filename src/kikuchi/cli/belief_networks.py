"""What `kikuchi train` does for belief networks: rows, labels, the fit, the answer and the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kikuchi import __version__
from kikuchi.core.errors import DataError

if TYPE_CHECKING:
    from kikuchi.cli.command import PageOutput
    from kikuchi.cli.commands.train import TrainingOptions
    from kikuchi.cli.estimators import Given
    from kikuchi.cli.rows import RowOptions


def train_belief_network(
    kind: str,
    data: str,
    out: Path,
    settings: Given,
    preparation: RowOptions,
    training: TrainingOptions,
    output: PageOutput,
) -> None:
    """Train, save, measure and show."""
    from kikuchi.beliefnets.evaluation import evaluate
    from kikuchi.cli.command import finish
    from kikuchi.cli.console import ProgressBar
    from kikuchi.cli.estimators import fit_quietly
    from kikuchi.training.trainer import COMPLETE

    part = out.with_name(out.name + ".part")
    labels: tuple[Any, Any] | None = None
    shape: tuple[int, ...] | None = None
    if kind == "threshold":
        rows, held_out, labels = _labelled(data, training, preparation)
    else:
        rows, held_out, shape = preparation.read_numbers(data, training.seed)
    with ProgressBar(kind, quiet=output.quiet) as bar:
        estimator = training.estimator(kind, settings, part, bar)
        fit_quietly(estimator, rows, *([] if labels is None else labels[:1]))
    estimator.set_params(checkpoint=None, progress=None).save(out)
    evaluation = evaluate(
        estimator, rows, held_out, labels=labels, shape=shape, source=data, seed=training.seed,
        annealed=training.log_z == "ais",
    )  # fmt: skip
    notes = []
    if estimator.stopped_ in (*COMPLETE, "rounds"):
        part.unlink(missing_ok=True)
    elif part.exists():
        notes = [f"stopped ({estimator.stopped_}); --resume goes on from {part}"]

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.beliefnet_page import beliefnet_report

        beliefnet_report(evaluation, path, command=command)

    head = {"data": data, "out": str(out), "version": __version__}
    finish(evaluation, output, head=head, page=page, written=[out], notes=notes)


def _labelled(
    data: str, training: TrainingOptions, preparation: RowOptions
) -> tuple[Any, Any, tuple[Any, Any]]:
    """Rows without the column of classes, and the classes of those and of rows held out."""
    import numpy as np

    assert training.target is not None
    table = preparation.read_target(data, training.target, training.seed)
    every = table.y if table.held_out_y is None else np.append(table.y, table.held_out_y)
    if np.any(every != np.round(every)):
        raise DataError(
            f"--target {training.target}: classes are whole numbers, and this column is not"
        )
    others = None if table.held_out_y is None else table.held_out_y.astype(np.int64)
    return table.x, table.held_out, (table.y.astype(np.int64), others)
