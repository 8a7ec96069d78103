"""The page of a trained belief network."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.plots.images import image_rows, tiles
from kikuchi.reports.page import Item, Picture
from kikuchi.reports.train_page import measured_report, training_picture

if TYPE_CHECKING:
    from kikuchi.beliefnets.evaluation import BeliefEvaluation

_SHOWN = 12  # images in a row
_MOST_FEATURES = 60


def beliefnet_report(
    evaluation: BeliefEvaluation, path: str | PathLike[str], *, command: str | None = None
) -> None:
    """Write one self-contained page: figures, the bound over time, features by layer, samples."""
    training: list[Item] = [training_picture(evaluation)]
    sections = {"Training": training, "Pictures": _pictures(evaluation)}
    measured_report(evaluation, path, sections=sections, room="beliefnets", command=command)


def _pictures(evaluation: BeliefEvaluation) -> list[Item]:
    e, shape = evaluation.estimator, evaluation.shape
    if shape is None or len(shape) != 2 or evaluation.kind == "ThresholdNetworkClassifier":
        return []
    flat = (int(shape[0]), int(shape[1]))
    some = evaluation.rows[:: max(len(evaluation.rows) // _SHOWN, 1)][:_SHOWN]
    drawn = np.asarray(e.sample(_SHOWN, random_state=0))
    if getattr(e, "units", "bits") == "spins":
        drawn = (drawn + 1.0) / 2.0
        some = (some + 1.0) / 2.0
    pictures: list[Item] = [
        Picture(
            image_rows({"data": some, "samples": drawn}, flat, "Data and network"),
            "Rows of data, and independent samples from the top layer down.",
        )
    ]
    for name, features in _features(e).items():
        size = np.square(features).sum(axis=1)
        strongest = np.argsort(-size)[:_MOST_FEATURES]
        pictures.append(
            Picture(
                tiles(features[strongest], flat, name, signed=True),
                f"{name}: what switching a unit on adds to the inputs of the visible units "
                f"(through the layers between, linearly); {len(strongest)} units, strongest first.",
            )
        )
    return pictures


def _features(estimator: Any) -> dict[str, Array]:
    """Weights of each layer seen at the visible units, bottom layer first."""
    if hasattr(estimator, "diagnosis_"):
        return {"Weights of causes": estimator.diagnosis_.weights}
    network = estimator.model_
    if not network.layers:
        return {}
    found: dict[str, Array] = {}
    seen: Array | None = None
    matrices = network.matrices()
    for layer in range(len(matrices) - 1, -1, -1):
        # a quarter is the steepest slope of a sigmoid
        seen = matrices[layer] if seen is None else 0.25 * matrices[layer] @ seen
        found[f"Hidden layer {layer + 1} of {len(matrices)} from the top"] = seen
    return found
