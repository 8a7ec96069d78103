"""Brain scans: NIfTI files in and out, masks, trends, maps and time courses.

Reference: HOJ-M11.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.files import atomic_write, guarded_reading, read_bytes, require_room
from kikuchi.core.log import warn_caller
from kikuchi.ica.recording import LARGEST, File, Recording

Orientation = Literal["temporal", "spatial"]

_TIME_UNITS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6, "unknown": 1.0}
_BINS = 256
_BACKGROUND = 0.5  # brightness of dark voxels, relative to bright ones, that is no background
_FEW = 0.05  # share of all voxels that is less than a brain


# ---------------------------------------------------------------------- files


def read_nifti(path: File, *, mask: Any = "auto") -> Recording:
    """The scans of a 4-D .nii or .nii.gz file: samples are scans, sensors the voxels of the mask.

    `mask` is `"auto"` (`brain_mask`), `None` (every voxel), an array of truth values, or the path
    of a 3-D NIfTI file that is not zero inside the brain. Voxels that never change are left out.
    """
    place = Path(path)
    scans, image = _read_volumes(place)
    if scans.ndim != 4 or scans.shape[3] < 2:
        raise DataError(
            f"{place}: has shape {scans.shape}; expected volumes over time, (x, y, z, scans)"
        )
    if not np.all(np.abs(scans) <= LARGEST):
        raise DataError(
            f"{place}: some voxels are NaN, infinite or beyond {LARGEST:g}; mend the file first"
        )
    inside = _mask_for(place, scans, mask) & (np.ptp(scans, axis=3) > 0)
    if not inside.any():
        raise DataError(f"{place}: no voxel inside the mask changes over time")
    data = np.ascontiguousarray(scans[inside].T)
    affine = np.array(image.affine, dtype=np.float64)
    return Recording(data, (), _scan_rate(place, image), affine, inside, str(place))


def write_maps(path: File, maps: ArrayLike, recording: Recording) -> None:
    """Maps (components, voxels) as a 4-D NIfTI file with the affine of the recording, zero outside
    its mask; a row of voxels alone makes a 3-D file.
    """
    nibabel = _nibabel()
    place = Path(path)
    if not place.name.lower().endswith((".nii", ".nii.gz")):
        raise DataError(f"{place}: maps are written as .nii or .nii.gz")
    volumes = recording.volume(maps)
    if volumes.ndim not in (3, 4):
        raise DataError(f"maps are (components, voxels), got shape {np.shape(maps)}")
    if volumes.ndim == 4:
        volumes = np.moveaxis(volumes, 0, 3)
    with np.errstate(over="ignore"):
        values = volumes.astype(np.float32)
    if not np.isfinite(values).all():
        raise DataError(f"{place}: maps must be finite numbers of single precision")
    image = nibabel.Nifti1Image(values, recording.affine)
    content = image.to_bytes()
    if place.name.lower().endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    with atomic_write(place, "wb") as file:
        file.write(content)


def _nibabel() -> Any:
    try:
        import nibabel
    except ImportError:
        raise MissingExtraError(f"brain scans need nibabel; {install('fmri')}") from None
    return nibabel


@contextmanager
def _silent(logger: Any) -> Iterator[None]:
    """Without remarks of a library on a header that it mends."""
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _read_volumes(place: Path) -> tuple[Array, Any]:
    """The values of a .nii or .nii.gz file, and the image with its header."""
    nibabel = _nibabel()
    if not place.is_file():
        raise DataError(f"{place}: no such file")
    content = read_bytes(place)
    with guarded_reading(place, "NIfTI"), _silent(nibabel.imageglobals.logger):
        second = {content[:4], content[3::-1]} & {(540).to_bytes(4, "little")}
        kind = nibabel.Nifti2Image if second else nibabel.Nifti1Image
        image = kind.from_bytes(content)
    shape = image.shape
    if not 3 <= len(shape) <= 4 or min(shape) < 1:
        raise DataError(
            f"{place}: has shape {shape}; expected volumes (x, y, z), perhaps over time"
        )
    require_room(place, 8 * math.prod(shape), f"an image of shape {shape}")
    with guarded_reading(place, "NIfTI"), np.errstate(all="ignore"):
        return np.asarray(image.get_fdata(dtype=np.float64)), image


def _mask_for(place: Path, scans: Array, mask: Any) -> Mask:
    if mask is None:
        return np.ones(scans.shape[:3], dtype=bool)
    if isinstance(mask, str) and mask == "auto":
        return brain_mask(scans)
    from_file = isinstance(mask, str | Path)
    inside = _read_volumes(Path(mask))[0] if from_file else np.asarray(mask)
    if inside.shape != scans.shape[:3]:
        raise DataError(f"{place}: the mask has shape {inside.shape}, a scan {scans.shape[:3]}")
    return np.asarray((inside != 0) & ~np.isnan(inside))  # masks often have NaN outside the brain


def _scan_rate(place: Path, image: Any) -> float | None:
    """Scans per second, where the header tells the time between two scans."""
    with guarded_reading(place, "NIfTI"):
        seconds, unit = float(image.header.get_zooms()[3]), image.header.get_xyzt_units()[1]
    seconds *= _TIME_UNITS.get(unit, 0.0)
    return 1.0 / seconds if 0 < seconds < math.inf else None


# ---------------------------------------------------------------------- preparing


def brain_mask(scans: ArrayLike) -> Mask:
    """Voxels of the brain: the largest bright piece of the mean scan, without holes.

    Bright is above the threshold that separates dark from bright voxels best (Otsu); an opening
    cuts thin bridges to the skull, where the volume is thick enough for one. Warns if the volume
    seems to have no dark background: the mask then selects the brightest part of the brain.

    >>> ball = sum((x - 7.5) ** 2 for x in np.indices((16, 16, 16))) < 36
    >>> bool((brain_mask(100.0 * ball) == ball).all())
    True
    """
    from scipy import ndimage

    volume = np.asarray(scans, dtype=np.float64)
    mean = volume.mean(axis=3) if volume.ndim == 4 else volume
    if mean.ndim != 3 or not np.isfinite(mean).all():
        raise DataError(f"a brain mask needs finite volumes (x, y, z), got shape {mean.shape}")
    if np.ptp(mean) <= 1e-9 * np.abs(mean).max() + 1e-300:  # too little for a histogram
        raise DataError("all voxels are alike: there is no brain to find; give a mask")
    bright = mean > otsu_threshold(mean)
    level = float(mean[~bright].mean() / mean[bright].mean())
    opened = ndimage.binary_opening(bright, ndimage.generate_binary_structure(3, 1))
    cut = opened if opened.sum() >= 0.5 * bright.sum() else bright
    pieces, count = ndimage.label(cut)
    sizes = ndimage.sum_labels(cut, pieces, np.arange(1, count + 1))
    inside = ndimage.binary_fill_holes(pieces == 1 + int(np.argmax(sizes)))
    if level > _BACKGROUND or inside.sum() < _FEW * inside.size:
        warn_caller(
            f"the automatic mask kept {inside.sum()} of {inside.size} voxels, but the volume seems "
            f"to have no dark background (dark voxels have {max(level, 0.0):.0%} of the brightness "
            "of bright ones); use mask=None to keep every voxel, or give a mask",
        )
    return np.asarray(inside, dtype=bool)


def otsu_threshold(values: ArrayLike) -> float:
    """The value that splits `values` in two groups of least variance within."""
    counts, edges = np.histogram(np.asarray(values).ravel(), bins=_BINS)
    centres = 0.5 * (edges[1:] + edges[:-1])
    below = np.cumsum(counts)[:-1].astype(np.float64)
    above = counts.sum() - below
    sums = np.cumsum(counts * centres)
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = sums[:-1] / below - (sums[-1] - sums[:-1]) / above
        between = np.nan_to_num(below * above * gap**2)
    best = np.flatnonzero(between == between.max())
    return float(edges[1:-1][best].mean())


def detrended(
    recording: Recording,
    kind: Literal["polynomial", "cosine", "constant"] = "polynomial",
    *,
    order: int = 2,
    cutoff: float = 128.0,
) -> Recording:
    """The recording without the mean and the slow part of each sensor.

    `polynomial` takes away polynomials in time up to `order`; `cosine` the cosines with periods
    longer than `cutoff` seconds (the rate must be known); `constant` the mean alone.
    """
    if not np.isfinite(recording.data).all():
        raise DataError("a trend needs every value; some are missing (NaN) or infinite")
    trend = trends(recording.n_samples, kind, order=order, cutoff=cutoff, rate=recording.rate)
    return replace(recording, data=recording.data - trend @ (trend.T @ recording.data))


def trends(
    n_samples: int, kind: str, *, order: int = 2, cutoff: float = 128.0, rate: float | None = None
) -> Array:
    """Orthonormal columns (samples, k) that span the slow time courses of `detrended`.

    >>> trends(100, "polynomial", order=2).shape
    (100, 3)
    """
    if kind == "constant":
        order, kind = 0, "polynomial"
    if kind == "polynomial":
        if not isinstance(order, int | np.integer) or not 0 <= order < n_samples:
            raise MethodError(
                f"order must be a whole number in [0, {n_samples - 1}], got {order!r}"
            )
        time = np.linspace(-1, 1, n_samples)
        columns = np.polynomial.legendre.legvander(time, order)
    elif kind == "cosine":
        columns = _cosines(n_samples, cutoff, rate)
    else:
        raise MethodError(f"there is no trend '{kind}'; use polynomial, cosine or constant")
    return np.asarray(np.linalg.qr(columns)[0])


def _cosines(n_samples: int, cutoff: float, rate: float | None) -> Array:
    if rate is None:
        raise DataError("cosine trends need the rate of the recording; give rate or a polynomial")
    if not cutoff > 0:
        raise MethodError(f"cutoff must be a positive number of seconds, got {cutoff!r}")
    count = max(0, min(int(2 * n_samples / rate / cutoff), n_samples - 2))
    time = (np.arange(n_samples) + 0.5) / n_samples
    return np.cos(np.pi * np.outer(time, np.arange(count + 1)))


# ---------------------------------------------------------------------- orientations


@dataclass(frozen=True)
class BrainComponents:
    """Maps (components, voxels) and time courses (components, scans); their products add up to
    the recording.

    >>> found = BrainComponents(np.array([[-2.0, 0.0, 0.0]]), np.array([[1.0, -1.0]]))
    >>> found.upright().maps.tolist()
    [[2.0, -0.0, -0.0]]
    """

    maps: Array
    courses: Array

    def upright(self) -> BrainComponents:
        """Signs changed so that the far tail of each map is positive."""
        centred = self.maps - np.median(self.maps, axis=1, keepdims=True)
        sign = np.where(np.sum(centred**3, axis=1) < 0, -1.0, 1.0)[:, None]
        return BrainComponents(sign * self.maps, sign * self.courses)

    def ordered(self, order: Sequence[int] | NDArray[Any]) -> BrainComponents:
        """Components in another order."""
        places = np.asarray(order)
        return BrainComponents(self.maps[places], self.courses[places])


def samples_of(recording: Recording, orientation: Orientation) -> Array:
    """The data as an estimator takes them: `temporal` has one sample per scan, and
    sources are time courses; `spatial` has one sample per voxel, and sources are maps.
    """
    if orientation == "temporal":
        return recording.data
    if orientation == "spatial":
        return np.ascontiguousarray(recording.data.T)
    raise MethodError(f"orientation must be temporal or spatial, got {orientation!r}")


def components_of(
    mixing: ArrayLike, sources: ArrayLike, orientation: Orientation
) -> BrainComponents:
    """Maps and time courses from a mixing matrix (sensors, sources) and sources (samples, sources)
    of an estimator that was fitted to `samples_of` in the same orientation.
    """
    columns = np.asarray(mixing, dtype=np.float64).T
    rows = np.asarray(sources, dtype=np.float64).T
    if orientation not in ("temporal", "spatial"):
        raise MethodError(f"orientation must be temporal or spatial, got {orientation!r}")
    if columns.ndim != 2 or rows.ndim != 2 or len(columns) != len(rows):
        raise DataError(
            f"mixing {np.shape(mixing)} and sources {np.shape(sources)} have different components"
        )
    if orientation == "temporal":
        return BrainComponents(columns.copy(), rows.copy())
    return BrainComponents(rows.copy(), columns.copy())


# ---------------------------------------------------------------------- stimulus


def haemodynamic_response(interval: float, seconds: float = 32.0) -> Array:
    """Response of the blood to a short stimulus, sampled every `interval` seconds, sum 1: a gamma
    density that peaks after 5 s, less a sixth of one that peaks after 15 s.

    >>> int(np.argmax(haemodynamic_response(1.0)))
    5
    """
    from scipy.stats import gamma

    if not 0 < interval < seconds:
        raise MethodError(f"the interval must be in (0, {seconds:g}) seconds, got {interval!r}")
    time = np.arange(0.0, seconds, interval)
    response = gamma.pdf(time, 6.0) - gamma.pdf(time, 16.0) / 6.0
    return np.asarray(response / response.sum())


def expected_course(stimulus: ArrayLike, interval: float) -> Array:
    """The time course that a stimulus (one value per scan) makes in the blood."""
    given = np.asarray(stimulus, dtype=np.float64)
    if given.ndim != 1 or not given.size:
        raise DataError(f"a stimulus has one value per scan, got an array of shape {given.shape}")
    return np.asarray(np.convolve(given, haemodynamic_response(interval))[: len(given)])


def stimulus_correlation(
    courses: ArrayLike, stimulus: ArrayLike, *, interval: float | None = None
) -> Array:
    """Correlation of each time course with a stimulus, blurred and delayed by the blood if the
    `interval` between scans is given. A constant course has correlation 0.

    >>> stimulus_correlation([[0.0, 1.0, 0.0, 1.0], [3.0, 3.0, 3.0, 3.0]], [0, 1, 0, 1]).tolist()
    [1.0, 0.0]
    """
    rows = np.atleast_2d(np.asarray(courses, dtype=np.float64))
    given = np.asarray(stimulus, dtype=np.float64)
    if given.ndim != 1 or rows.ndim != 2 or rows.shape[1] != len(given):
        raise DataError(
            f"the stimulus has shape {given.shape}; expected one value for each of "
            f"{rows.shape[1]} scans of time courses (components, scans)"
        )
    if not (np.isfinite(given).all() and np.isfinite(rows).all()):
        raise DataError("stimulus and time courses must be finite")
    if np.ptp(given) == 0:
        raise DataError("the stimulus never changes: nothing can correlate with it")
    reference = given if interval is None else expected_course(given, interval)
    a = rows - rows.mean(axis=1, keepdims=True)
    b = reference - reference.mean()
    size = np.linalg.norm(a, axis=1) * np.linalg.norm(b)
    flat = size <= 1e-12 * np.maximum(np.abs(rows).max(axis=1), 1e-300) * np.linalg.norm(b)
    return np.asarray(np.where(flat, 0.0, a @ b / np.where(flat, 1.0, size)))
