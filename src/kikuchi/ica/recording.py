"""`Recording`: samples of several sensors in time, with what is known about them."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, AxisLength, Mask
from kikuchi.core.errors import DataError

File = str | PathLike[str]

LARGEST = 1e100  # squares beyond this overflow


@dataclass(frozen=True)
class Recording:
    """Samples of sensors over time: `data` is (samples, sensors), as estimators take it.

    `rate` is in samples per second. Brain scans have one sensor per voxel inside `mask`, and keep
    the `affine` of their file.

    `sensors` are the names of the columns, `source` says where the recording came from.

    >>> recording = Recording(np.zeros((8000, 2)), ("left", "right"), rate=8000.0)
    >>> recording.seconds, recording.names
    (1.0, ('left', 'right'))
    """

    data: Array
    sensors: tuple[str, ...] = ()
    rate: float | None = None
    affine: Array | None = None
    mask: Mask | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if self.data.ndim != 2 or self.data.size == 0:
            raise DataError(
                f"a recording has samples and sensors, got an array of shape {self.data.shape}"
            )
        if self.sensors and len(self.sensors) != self.n_sensors:
            raise DataError(f"{len(self.sensors)} names for {self.n_sensors} sensors")
        if self.mask is not None and int(self.mask.sum()) != self.n_sensors:
            raise DataError(f"the mask has {int(self.mask.sum())} voxels, not {self.n_sensors}")

    n_samples = AxisLength("data", 0, "How many samples, or scans.")
    n_sensors = AxisLength("data", 1, "How many sensors, or voxels.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sensors, made up where the file has none."""
        return self.sensors or tuple(f"sensor {k + 1}" for k in range(self.n_sensors))

    @property
    def seconds(self) -> float | None:
        """Duration, if the rate is known."""
        return None if self.rate is None else self.n_samples / self.rate

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Size of the volume of a brain scan, else None."""
        return None if self.mask is None else self.mask.shape

    def volume(self, values: ArrayLike, outside: float = 0.0) -> Array:
        """The `values` of the voxels, (..., voxels), in their places: (..., x, y, z), with
        `outside` everywhere else.
        """
        if self.mask is None:
            raise DataError("only brain scans have a volume; this recording has no mask")
        rows = np.asarray(values, dtype=np.float64)
        if rows.shape[-1] != self.n_sensors:
            raise DataError(f"{rows.shape[-1]} values for {self.n_sensors} voxels")
        out = np.full((*rows.shape[:-1], *self.mask.shape), outside)
        out[..., self.mask] = rows
        return out
