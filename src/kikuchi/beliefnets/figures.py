"""The figures of the report page of a trained belief network."""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.page import Item, Picture
from kikuchi.plots.images import image_rows, tiles

_SHOWN = 12  # images in a row
_MOST_FEATURES = 60


def pictures(evaluation: Any) -> list[Item]:
    """Of images: data beside samples, and features by layer."""
    e, shape = evaluation.estimator, evaluation.shape
    if shape is None or len(shape) != 2 or not hasattr(e, "sample"):
        return []
    flat = (int(shape[0]), int(shape[1]))
    some = evaluation.rows[:: max(len(evaluation.rows) // _SHOWN, 1)][:_SHOWN]
    drawn = np.asarray(e.sample(_SHOWN, random_state=0))
    if getattr(e, "units", "bits") == "spins":
        drawn = (drawn + 1.0) / 2.0
        some = (some + 1.0) / 2.0
    found: list[Item] = [
        Picture(
            image_rows({"data": some, "samples": drawn}, flat, "Data and network"),
            "Rows of data, and independent samples from the top layer down.",
        )
    ]
    for name, features in _features(e).items():
        size = np.square(features).sum(axis=1)
        strongest = np.argsort(-size)[:_MOST_FEATURES]
        found.append(
            Picture(
                tiles(features[strongest], flat, name, signed=True),
                f"{name}: what switching a unit on adds to the inputs of the visible units "
                f"(through the layers between, linearly); {len(strongest)} units, strongest first.",
            )
        )
    return found


def _features(estimator: Any) -> dict[str, Array]:
    """Weights of each layer seen at the visible units, bottom layer first."""
    if hasattr(estimator, "diagnosis_"):
        return {"Weights of causes": estimator.diagnosis_.weights}
    network = estimator.model_
    if not network.layers:
        return {}
    features: dict[str, Array] = {}
    seen: Array | None = None
    matrices = network.matrices()
    for layer in range(len(matrices) - 1, -1, -1):
        # a quarter is the steepest slope of a sigmoid
        seen = matrices[layer] if seen is None else 0.25 * matrices[layer] @ seen
        features[f"Hidden layer {layer + 1} of {len(matrices)} from the top"] = seen
    return features
