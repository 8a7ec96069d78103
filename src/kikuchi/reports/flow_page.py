"""The page of fitted flows."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.plots.flows import held_out_scores, samples_beside_data
from kikuchi.plots.images import image_rows
from kikuchi.reports.page import Item, Picture
from kikuchi.reports.train_page import measured_report

if TYPE_CHECKING:
    from kikuchi.flows.evaluation import FlowEvaluation

_SHOWN = 12  # images in a row
_DRAWN = 1000


def flow_report(
    evaluation: FlowEvaluation, path: str | PathLike[str], *, command: str | None = None
) -> None:
    """Write one self-contained page: figures, held-out scores by epoch, samples beside data."""
    sections = {"Training": _training(evaluation), "Samples": _samples(evaluation)}
    measured_report(evaluation, path, sections=sections, room="flows", command=command)


def _training(evaluation: FlowEvaluation) -> list[Item]:
    e = evaluation.estimator
    if not e.validation_scores_:
        return []
    figure = held_out_scores(e.validation_scores_, e.gaussian_score_)
    caption = (
        "Log-likelihood of the rows that the training held out, epoch by epoch; the dot is the "
        "epoch whose parameters are the answer."
    )
    return [Picture(figure, caption)]


def _samples(evaluation: FlowEvaluation) -> list[Item]:
    e: Any = evaluation.estimator
    if not hasattr(e, "sample"):
        return []
    drawn = e.sample(_DRAWN, random_state=0)
    if e.image_shape is not None and len(e.image_shape) == 2:
        flat = (int(e.image_shape[0]), int(e.image_shape[1]))
        some = {"data": evaluation.rows[:_SHOWN], "samples": drawn[:_SHOWN]}
        return [Picture(image_rows(some, flat, "Data and flow"), "Rows of data, and samples.")]
    rows = evaluation.rows
    if rows.shape[1] < 2:
        return []
    first, second = _shown_columns(rows)
    names = getattr(e, "feature_names_in_", [f"column {k}" for k in range(rows.shape[1])])
    pair = np.sort([first, second])
    figure = samples_beside_data(
        rows[:, pair], drawn[:, pair], e.predict(rows), (str(names[pair[0]]), str(names[pair[1]]))
    )
    caption = (
        "Two columns of the data, of samples, and of the data by their most probable component "
        f"({len(e.weights_)} components)."
    )
    return [Picture(figure, caption)]


def _shown_columns(rows: Any) -> tuple[int, int]:
    """The two columns that depend on each other most."""
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.nan_to_num(np.abs(np.corrcoef(rows.T)))
    np.fill_diagonal(size, -1.0)
    first, second = np.unravel_index(int(np.argmax(size)), size.shape)
    return int(first), int(second)
