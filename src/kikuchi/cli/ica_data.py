"""Recordings as `kikuchi ica` takes them: read, checked, and without trends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kikuchi.ica.recordings import Recording


def read(
    data: list[str],
    rate: float | None,
    mask: str | None,
    stimulus: str | None,
    orientation: str | None,
) -> Recording:
    """The recording; options of scans are refused for anything else."""
    from kikuchi.core.errors import DataError
    from kikuchi.ica.recordings import read_recording

    chosen = None if mask == "none" else mask or "auto"
    recording = read_recording(data, rate=rate, mask=chosen)
    if recording.mask is None:
        words = {"mask": mask, "stimulus": stimulus, "orientation": orientation}
        for name, value in words.items():
            if value is not None:
                raise DataError(f"--{name} is for brain scans (.nii); leave it out")
    return recording


def prepared(
    recording: Recording, where: str | None, detrend: str | None, *, missing: bool, wide: bool
) -> NDArray[Any]:
    """Rows as an estimator takes them; what no method can use is refused."""
    from kikuchi.core.errors import DataError
    from kikuchi.ica.fmri import samples_of

    _refuse_gaps(recording, missing)
    _refuse_constant(recording)
    if where is None and recording.n_samples < recording.n_sensors and not wide:
        raise DataError(
            f"{recording.source}: {recording.n_samples} samples of {recording.n_sensors} sensors; "
            "rows are samples: transpose the table, or give --wide if it is meant"
        )
    kind = detrend or ("none" if where is None else "polynomial")
    if kind != "none":
        if missing:
            raise DataError("--detrend needs complete rows; leave --missing out")
        recording = _without_trend(recording, kind)
    if where is None:
        return recording.data
    return samples_of(recording, "spatial" if where == "spatial" else "temporal")


def _refuse_gaps(recording: Recording, missing: bool) -> None:
    import numpy as np

    from kikuchi.core.errors import DataError

    gaps = np.isnan(recording.data)
    empty = np.flatnonzero(gaps.all(axis=1))
    if missing and len(empty):
        raise DataError(f"{recording.source}: row {empty[0] + 1} has no value; leave it out")
    good = np.isfinite(recording.data) | (gaps if missing else False)
    if good.all():
        return
    row, sensor = (int(k) for k in np.argwhere(~good)[0])
    name = recording.names[sensor]
    if np.isnan(recording.data[row, sensor]):
        raise DataError(
            f"{recording.source}: row {row + 1}, '{name}' is missing (NaN); complete the data, or "
            "give --missing to go on without such values"
        )
    raise DataError(f"{recording.source}: row {row + 1}, '{name}' is infinite; mend the data")


def varying(recording: Recording) -> NDArray[Any]:
    """Which sensors change at all."""
    import numpy as np

    seen = ~np.isnan(recording.data)
    low = np.min(recording.data, axis=0, initial=np.inf, where=seen)
    high = np.max(recording.data, axis=0, initial=-np.inf, where=seen)
    return np.asarray(high - low > 1e-14 * np.maximum(np.abs(low), np.abs(high)))


def without_constant_pixels(recording: Recording) -> tuple[Recording, NDArray[Any]]:
    """The pixels of images that change, and which they are: corners often never do."""
    from dataclasses import replace

    kept = varying(recording)
    if kept.all() or not kept.any():
        return recording, kept
    names = tuple(name for name, keep in zip(recording.names, kept, strict=True) if keep)
    return replace(recording, data=recording.data[:, kept], sensors=names), kept


def _refuse_constant(recording: Recording) -> None:
    import numpy as np

    from kikuchi.core.errors import DataError

    constant = np.flatnonzero(~varying(recording))
    if len(constant):
        names = ", ".join(f"'{recording.names[k]}'" for k in constant[:5])
        more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
        what = "sensor without change" if len(constant) == 1 else "sensors without change"
        raise DataError(f"{recording.source}: {what}: {names}{more}; leave out what is constant")


def _without_trend(recording: Recording, text: str) -> Recording:
    from kikuchi.core.errors import MethodError
    from kikuchi.ica.fmri import detrended

    kind, _, number = text.partition(":")
    if kind == "polynomial" and (not number or number.isdecimal()):
        return detrended(recording, "polynomial", order=int(number or 2))
    if number and not number.replace(".", "", 1).isdecimal():
        raise MethodError(f"--detrend {text}: '{number}' is no number")
    if kind == "cosine":
        return detrended(recording, "cosine", cutoff=float(number or 128.0))
    if kind == "constant" and not number:
        return detrended(recording, "constant")
    raise MethodError(
        f"--detrend {text}: use constant, polynomial[:order] with a whole number, "
        "cosine[:seconds] or none"
    )


def read_stimulus(path: str | None, recording: Recording) -> NDArray[Any] | None:
    """The stimulus, one value a scan."""
    import numpy as np

    from kikuchi.core.errors import DataError
    from kikuchi.core.tables import read_table

    if path is None:
        return None
    values = read_table(path, what="a stimulus").values
    values = values.ravel() if values.ndim == 1 or 1 in values.shape else values
    if values.ndim != 1 or len(values) != recording.n_samples:
        raise DataError(
            f"{path}: has shape {values.shape}; a stimulus is one value for each of "
            f"{recording.n_samples} scans"
        )
    if not np.isfinite(values).all() or np.ptp(values) == 0:
        raise DataError(f"{path}: a stimulus must be complete and must change")
    return values


def image_shape(text: str | None, sensors: int, where: str | None) -> tuple[int, int] | None:
    """Height and width of the images whose pixels are the sensors."""
    from kikuchi.core.errors import DataError

    if text is None:
        return None
    words = text.lower().split("x")
    if where is None and len(words) == 2 and all(w.isdecimal() for w in words):
        height, width = int(words[0]), int(words[1])
        if height * width == sensors:
            return height, width
    raise DataError(f"--image {text}: {sensors} sensors are no images of that size")
