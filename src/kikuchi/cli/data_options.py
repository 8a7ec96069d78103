"""The options by which the commands read the data that a kind of estimator takes."""

from __future__ import annotations

from typing import Any

from kikuchi.cli.recordings import RecordingOptions
from kikuchi.cli.rows import LabelledRowOptions, RowOptions
from kikuchi.cli.sequences import (
    DrivenSequenceOptions,
    LabelledSequenceOptions,
    SequenceOptions,
)
from kikuchi.training.kinds import Kind, Takes

_OPTIONS: dict[Takes, Any] = {
    "rows": RowOptions,
    "labelled rows": LabelledRowOptions,
    "sequences": SequenceOptions,
    "sequences with inputs": DrivenSequenceOptions,
    "labelled sequences": LabelledSequenceOptions,
    "recordings": RecordingOptions,
}
DATA: dict[Takes, str] = {
    "rows": "Rows of numbers: .csv, .tsv, .parquet, .npy or .npz.",
    "labelled rows": "Rows of numbers with a column to predict: .csv, .tsv, .parquet or .npz.",
    "sequences": "Tables with a row per step, one per sequence; an empty cell is missing.",
    "sequences with inputs": "Tables with a row per step, one per sequence.",
    "labelled sequences": "Tables with a row per step and a column of labels.",
    "recordings": "A table, wave files of one recording, or brain scans (.nii, .nii.gz).",
}
"""What the argument DATA is, for the help of each kind."""


def options_for(kind: Kind) -> Any:
    """The class of the options for the data of a kind."""
    return _OPTIONS[kind.takes]
