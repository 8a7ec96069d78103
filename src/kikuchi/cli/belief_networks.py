"""What `kikuchi train` does for belief networks: rows, labels, the fit, the answer and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kikuchi.core.errors import DataError

if TYPE_CHECKING:
    from kikuchi.cli.commands.train import TrainingJob, TrainingOptions
    from kikuchi.cli.rows import RowOptions


def train_belief_network(job: TrainingJob) -> None:
    """Train, save, measure and show."""
    from kikuchi.beliefnets.evaluation import evaluate
    from kikuchi.cli.estimators import fit_quietly
    from kikuchi.core.progress import phase
    from kikuchi.training.trainer import COMPLETE

    training = job.training
    labels: tuple[Any, Any] | None = None
    shape: tuple[int, ...] | None = None
    if job.kind == "threshold":
        rows, held_out, labels, names = _labelled(job.data, training, job.preparation)
    else:
        rows, held_out, shape, names = job.preparation.read_numbers(job.data, training.seed)
    with job.estimator(names) as estimator:
        fit_quietly(estimator, rows, *([] if labels is None else labels[:1]))
    with phase("measuring"):
        evaluation = evaluate(
            estimator, rows, held_out, labels=labels, shape=shape, source=job.data,
            seed=training.seed, annealed=training.log_z == "ais",
        )  # fmt: skip
    complete = estimator.stopped_ in (*COMPLETE, "iterations")
    job.finish(evaluation, "beliefnet_page", "beliefnet_report", complete=complete)


def _labelled(
    data: str, training: TrainingOptions, preparation: RowOptions
) -> tuple[Any, Any, tuple[Any, Any], list[str] | None]:
    """Rows without the column of classes, the classes of those and of rows held out, and names."""
    import numpy as np

    assert training.target is not None
    table = preparation.read_target(data, training.target, training.seed, classes=True)
    if table.y.dtype.kind == "U":
        return table.x, table.held_out, (table.y, table.held_out_y), table.input_names
    every = table.y if table.held_out_y is None else np.append(table.y, table.held_out_y)
    if np.any(every != np.round(every)):
        raise DataError(
            f"--target {training.target}: classes are names or whole numbers, and this column has "
            "neither"
        )
    others = None if table.held_out_y is None else table.held_out_y.astype(np.int64)
    return table.x, table.held_out, (table.y.astype(np.int64), others), table.input_names
