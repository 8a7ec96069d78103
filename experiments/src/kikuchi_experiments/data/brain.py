"""Brain scans: a simulator whose activations are known, and small real recordings.

Reference: HOJ-E8, HOJ-E9.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import DataError, MethodError, suggestion
from kikuchi.core.seeds import Seed, generator
from kikuchi.data.images import package_folder

_NAMES = ("visual", "temples", "frontal", "drift", "vessels")
_AMPLITUDES = (2.5, 2.2, 1.7, 1.5, 1.5)  # of a brightness of 100
_VOXEL_MM = 3.0
_RECORDINGS = ("fmri1", "fmri2")


@dataclass(frozen=True)
class BrainScans:
    """Simulated scans (x, y, z, time) and everything that made them.

    `maps` (5, x, y, z) and `courses` (5, time) are the components called `names`; `stimulus` is on
    or off at each scan and `response` what the blood makes of it; `anatomy` is the mean scan.
    """

    scans: NDArray[np.float32]
    mask: Mask
    anatomy: Array
    maps: Array
    courses: Array
    names: tuple[str, ...]
    stimulus: Array
    response: Array
    interval: float
    affine: Array

    @property
    def matrix(self) -> Array:
        """Time courses of the voxels of the brain, (scans, voxels), without their means."""
        rows = self.scans[self.mask].astype(np.float64).T
        return np.asarray(rows - rows.mean(axis=0))

    @property
    def voxel_maps(self) -> Array:
        """The true maps inside the mask, (5, voxels)."""
        return np.asarray(self.maps[:, self.mask])


def simulate_brain(
    shape: tuple[int, int, int] = (64, 64, 20),
    n_scans: int = 100,
    *,
    interval: float = 2.0,
    block: float = 20.0,
    noise: float = 0.6,
    drift: float = 1.0,
    seed: Seed = 0,
) -> BrainScans:
    """Scans of an ellipsoid brain that sees a stimulus go on and off every `block` seconds.

    Five components: a patch on both sides at the back follows the stimulus through the
    haemodynamic response; one at the temples falls when it rises, with a delay; one at the front
    swings with the breath; a slow movement of the head shows as a drift at the rim; scattered
    vessels beat with the pulse. The strongest is 2.5 % of the brightness of the brain, white noise
    of deviation `noise` is added, and `drift` scales the drift.

    >>> brain = simulate_brain((16, 16, 8), 40, seed=1)
    >>> brain.scans.shape, brain.names[0], int(brain.stimulus.sum())
    ((16, 16, 8, 40), 'visual', 20)
    """
    _check(shape, n_scans, interval, block, noise)
    rng = generator(seed)
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij", sparse=True)
    mask = np.asarray((x / 0.78) ** 2 + (y / 0.94) ** 2 + (z / 1.1) ** 2 < 1)
    time = np.arange(n_scans, dtype=np.float64) * interval
    stimulus = (np.floor(time / block) % 2 == 1).astype(np.float64)
    response = _blood(stimulus, interval)
    maps = _maps(x, y, z, mask, rng)
    courses = _courses(time, response, interval, rng)
    amplitudes = np.array(_AMPLITUDES) * np.array([1, 1, 1, drift, 1])
    courses = courses * amplitudes[:, None]
    anatomy = _anatomy(x, y, z, mask)
    scans = np.einsum("kxyz,kt->xyzt", maps, courses).astype(np.float32)
    scans += anatomy[..., None].astype(np.float32)
    scans += noise * rng.standard_normal(scans.shape, dtype=np.float32)
    affine = np.diag([_VOXEL_MM, _VOXEL_MM, _VOXEL_MM, 1.0])
    affine[:3, 3] = [-0.5 * _VOXEL_MM * (n - 1) for n in shape]
    return BrainScans(
        *(scans, mask, anatomy, maps, courses, _NAMES),
        *(stimulus, response, float(interval), affine),
    )


def brain_file(name: str) -> Path:
    """File of a small real recording that comes with nitime: `fmri1` and `fmri2` (NIfTI, 10 x 10 x
    18 voxels, 40 scans).

    >>> brain_file("fmri1").name
    'fmri1.nii.gz'
    """
    if name not in _RECORDINGS:
        raise DataError(f"there is no brain recording '{name}'; {suggestion(name, _RECORDINGS)}")
    return package_folder("nitime", "brain recordings") / "data" / f"{name}.nii.gz"


# ---------------------------------------------------------------------- parts of the simulator


def _check(
    shape: tuple[int, int, int], n_scans: int, interval: float, block: float, noise: float
) -> None:
    if len(shape) != 3 or min(shape) < 6 or n_scans < 10:
        raise MethodError(
            f"a brain needs at least 6 x 6 x 6 voxels and 10 scans, got {shape} and {n_scans}"
        )
    if not interval > 0 or not noise >= 0:
        raise MethodError(f"interval must be > 0 and noise >= 0, got {interval!r}, {noise!r}")
    if not interval <= block <= 0.5 * interval * n_scans:
        raise MethodError(
            f"a block lasts from one scan to half of the recording "
            f"({interval:g} to {0.5 * interval * n_scans:g} s), got {block!r}"
        )


def _blood(stimulus: Array, interval: float) -> Array:
    """The stimulus through a gamma response of shape 6 and mean delay 5.4 s, scaled to [0, 1]."""
    from scipy.stats import gamma

    time = np.arange(0.0, 30.0, interval)
    response = gamma.pdf(time, 6.0, scale=0.9)
    course = np.convolve(stimulus, response / response.sum())[: len(stimulus)]
    return np.asarray(course / course.max())


def _maps(x: Array, y: Array, z: Array, mask: Mask, rng: np.random.Generator) -> Array:
    """The five maps, zero outside the brain."""

    def patch(cx: float, cy: float, cz: float, width: float) -> Array:
        distance = (np.abs(x) - cx) ** 2 + (y - cy) ** 2 + 0.5 * (z - cz) ** 2
        return np.asarray(np.exp(-0.5 * distance / width**2))

    def edge(smooth: Array) -> Array:
        return np.where(smooth > 0.25, smooth, 0.0)

    radius = np.sqrt((x / 0.78) ** 2 + (y / 0.94) ** 2 + (z / 1.1) ** 2)
    rim = np.where(radius > 0.92, np.sign(x + 0.3 * y + 1e-9), 0.0)  # the two sides move apart
    vessels = (rng.random(mask.shape) < 0.05).astype(np.float64)
    patches = (
        edge(patch(0.22, -0.62, 0.0, 0.16)),
        edge(patch(0.55, 0.05, -0.1, 0.14)),
        edge(patch(0.15, 0.62, 0.15, 0.17)),
    )
    maps = np.stack([*patches, rim, vessels])
    return np.asarray(maps * mask)


def _courses(time: Array, response: Array, interval: float, rng: np.random.Generator) -> Array:
    """The five time courses, each of about unit size and zero mean."""
    phases = rng.uniform(0, 2 * np.pi, 2)
    lag = max(1, round(6.0 / interval))
    late = -np.concatenate([np.full(lag, response[0]), response[:-lag]])
    breath = np.sin(2 * np.pi * 0.25 * 0.97 * time + phases[0])
    pulse = np.sin(2 * np.pi * 1.1 * time + phases[1])
    steady = time / time[-1]
    drift = 2 * steady - 1 + 0.3 * np.sin(2 * np.pi * 0.8 * steady)
    rows = np.stack([response, late, breath, drift, pulse])
    rows = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray(rows / np.abs(rows).max(axis=1, keepdims=True))


def _anatomy(x: Array, y: Array, z: Array, mask: Mask) -> Array:
    """Brightness of the still brain: folded rim, darker ventricles, dark outside."""
    radius = np.sqrt((x / 0.78) ** 2 + (y / 0.94) ** 2 + (z / 1.1) ** 2)
    angle = np.arctan2(y, x)
    folds = 4.0 * np.cos(14 * angle + 5 * z) * np.exp(-(((radius - 0.82) / 0.12) ** 2))
    folds = folds * np.minimum(1.0, 3.0 * (x**2 + y**2))
    rim = 18.0 / (1 + np.exp(-(radius - 0.72) / 0.05))
    ventricles = -22.0 * np.exp(
        -(((np.abs(x) - 0.12) / 0.08) ** 2) - ((y + 0.02) / 0.28) ** 2 - (z / 0.5) ** 2
    )
    return np.asarray((80.0 + folds + rim + ventricles) * mask)
