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
    from kikuchi.training.trainer import COMPLETE

    part = out.with_name(out.name + ".part")
    rows, held_out, shape = preparation.read_numbers(data, training.seed)
    labels: tuple[Any, Any] | None = None
    if kind == "threshold":
        rows, held_out, labels = _labelled(rows, held_out, data, training, preparation)
        shape = None
    with ProgressBar(kind, quiet=output.quiet) as bar:
        estimator = training.estimator(kind, settings, part, bar)
        _fit(estimator, rows, None if labels is None else labels[0])
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


def _fit(estimator: Any, rows: Any, labels: Any) -> None:
    """Fit; what there is to say is in `warnings_`, and shown once at the end."""
    import warnings

    with warnings.catch_warnings(action="ignore"):
        estimator.fit(rows, labels)


def _labelled(
    rows: Any, held_out: Any, data: str, training: TrainingOptions, preparation: RowOptions
) -> tuple[Any, Any, tuple[Any, Any]]:
    """Rows without the column of classes, and the classes."""
    import numpy as np

    from kikuchi.core.tables import read_table
    from kikuchi.core.text import is_whole

    word = str(training.label)
    names = read_table(data, arrays=("data", "images", "X")).names
    if names is not None and preparation.drop:
        gone = {w.strip() for w in preparation.drop.split(",")}
        names = tuple(name for name in names if name not in gone)
    width = rows.shape[1]
    if names is not None and word in names:
        column = names.index(word)
    elif is_whole(word.removeprefix("-")) and -width <= int(word) < width:
        column = int(word)
    else:
        known = "" if names is None else f" (columns: {', '.join(names[:8])} ...)"
        raise DataError(f"--label {word}: there is no such column{known}")

    def divided(table: Any) -> tuple[Any, Any]:
        classes = table[:, column]
        if np.any(classes != np.round(classes)):
            raise DataError(f"--label {word}: classes are whole numbers, and this column is not")
        return np.delete(table, column, axis=1), classes.astype(np.int64)

    inputs, classes = divided(np.asarray(rows))
    if held_out is None:
        return inputs, None, (classes, None)
    others, other_classes = divided(np.asarray(held_out))
    return inputs, others, (classes, other_classes)
