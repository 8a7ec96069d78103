"""The figures of the report page of fitted flows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.page import Item, Picture
from kikuchi.plots.flows import MOST_COLUMNS, held_out_scores, pair_plot, samples_beside_data
from kikuchi.plots.images import image_rows

_SHOWN = 12  # images in a row
_DRAWN = 1000


def training(evaluation: Any) -> list[Item]:
    """Held-out scores by epoch."""
    e = evaluation.estimator
    if not e.validation_scores_:
        return []
    scores = e.validation_scores_
    figure = held_out_scores(scores, e.gaussian_score_)
    answer = (
        f"the dot is epoch {int(np.argmax(scores)) + 1}, whose parameters are the answer"
        if max(scores) > e.gaussian_score_
        else "no epoch was better than the Gaussian mixture, which is the answer"
    )
    caption = f"Log-likelihood of the rows that the training held out, epoch by epoch; {answer}."
    return [Picture(figure, caption)]


def samples(evaluation: Any) -> list[Item]:
    """Samples beside data."""
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
    names = evaluation.names or [f"column {k}" for k in range(rows.shape[1])]
    shown = list(range(min(rows.shape[1], MOST_COLUMNS)))
    figure = pair_plot(rows[:, shown], drawn[:, shown], [names[k] for k in shown])
    caption = "Pairs of columns: data in grey below the diagonal, samples in blue above it."
    more = rows.shape[1] - len(shown)
    pictures: list[Item] = [
        Picture(figure, f"{caption} {more} more columns are not drawn." if more else caption)
    ]
    if len(e.weights_) > 1:
        pair = _shown_columns(rows)
        figure = samples_beside_data(
            rows[:, pair], drawn[:, pair], e.predict(rows), (names[pair[0]], names[pair[1]])
        )
        caption = (
            "The two columns that depend on each other most: data, samples, and the data by their "
            f"most probable component ({len(e.weights_)} components)."
        )
        pictures.append(Picture(figure, caption))
    return pictures


def _shown_columns(rows: Any) -> list[int]:
    """The two columns that depend on each other most, in order."""
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.nan_to_num(np.abs(np.corrcoef(rows.T)))
    np.fill_diagonal(size, -1.0)
    return sorted(int(k) for k in np.unravel_index(int(np.argmax(size)), size.shape))
