"""What `kikuchi train` does for flows: rows, classes, the fit, the answer and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kikuchi.cli.commands.train import TrainingJob


def train_flow(job: TrainingJob) -> None:
    """Train, save, measure and show."""
    import numpy as np

    from kikuchi.cli.estimators import fit_quietly
    from kikuchi.core.progress import phase
    from kikuchi.flows.evaluation import evaluate
    from kikuchi.training.trainer import COMPLETE

    training = job.training
    labels: tuple[Any, Any] | None = None
    if job.kind == "flow-classes":
        assert training.target is not None
        given = job.data, training.target, training.seed
        table = job.preparation.read_target(*given, classes=True)
        rows, held_out, labels = table.x, table.held_out, (table.y, table.held_out_y)
        names = table.input_names
    else:
        rows, held_out, _, names = job.preparation.read_numbers(job.data, training.seed)
        rows = np.asarray(rows)
    with job.estimator(names) as estimator:
        fit_quietly(estimator, rows, *([] if labels is None else labels[:1]))
    with phase("measuring"):
        evaluation = evaluate(
            estimator, rows, held_out, source=job.data, labels=labels, names=names
        )
    job.finish(evaluation, "flow_page", "flow_report", complete=estimator.stopped_ in COMPLETE)
