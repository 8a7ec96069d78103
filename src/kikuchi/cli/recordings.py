"""Recordings as independent component analysis takes them: read, checked, and without trends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kikuchi.cli.options import flag
from kikuchi.core.errors import DataError, MethodError, suggestion
from kikuchi.core.text import is_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kikuchi.ica.evaluation import PreparedRecording
    from kikuchi.ica.recording import Recording
    from kikuchi.ica.workflow import RecordingData
    from kikuchi.training.kinds import Kind
    from kikuchi.training.workflow import DataSet

ORIENTATIONS = ("spatial", "temporal")


@dataclass(frozen=True)
class RecordingOptions:
    """How a recording is read, and what is done to it before sources are looked for."""

    HEADING: ClassVar[str] = "Data"

    orientation: str | None = flag("--orientation O", "Of scans: spatial or temporal.  [spatial]")
    mask: str | None = flag("--mask FILE", "Of scans: NIfTI file, auto or none.  [auto]")
    detrend: str | None = flag(
        "--detrend KIND",
        "Trends to remove: constant, polynomial[:order], cosine[:seconds], none.  [none; "
        "polynomial of scans]",
    )
    stimulus: str | None = flag("--stimulus FILE", "Of scans: one value per scan.")
    rate: float | None = flag("--rate HZ", "Samples per second, if the file does not say.")
    image: str | None = flag("--image HxW", "Sensors are pixels; constant ones are left out.")
    wide: bool = flag("--wide", "Allow fewer samples than sensors in a table.", False)
    folder: Path | None = flag(
        "--folder DIR", "A new folder for mixing, sources, maps and a model.json."
    )

    @property
    def files(self) -> list[str]:
        """Further files that are read."""
        return [name for name in (self.mask, self.stimulus) if name is not None]

    def check(self) -> None:
        """Refuse an orientation that does not exist."""
        if self.orientation is not None and self.orientation not in ORIENTATIONS:
            known = suggestion(self.orientation, ORIENTATIONS)
            raise MethodError(f"there is no orientation '{self.orientation}'; {known}")

    def read(self, kind: Kind, estimator: Any, data: list[str], seed: int) -> RecordingData:
        """The recording for a fit."""
        from kikuchi.ica.workflow import RecordingData

        self.check()
        prepared = self.prepared(data, missing=getattr(estimator, "missing", "error") == "hidden")
        recording = prepared.recording
        named = recording.mask is None and prepared.orientation is None
        return RecordingData(
            source=recording.source,
            rows=prepared.samples,
            names=list(recording.names) if named else None,
            prepared=prepared,
        )

    def read_for(self, kind: Kind, estimator: Any, model: str, data: list[str]) -> DataSet:
        """A recording for a fitted model; tables are read as rows."""
        from kikuchi.cli.rows import RowOptions

        if len(data) == 1 and not data[0].lower().endswith((".wav", ".nii", ".nii.gz")):
            missing = getattr(estimator, "missing", "error") == "hidden"
            return RowOptions.of(estimator).read_for(kind, estimator, model, data, gaps=missing)
        return self.read(kind, estimator, data, 0)

    def prepared(self, data: list[str], *, missing: bool) -> PreparedRecording:
        """The recording, and its samples as an estimator takes them."""
        from kikuchi.cli.inputs import image_shape
        from kikuchi.ica.evaluation import PreparedRecording

        recording = self._recording(data)
        where = None if recording.mask is None else self.orientation or "spatial"
        stimulus = None if self.stimulus is None else read_stimulus(self.stimulus, recording)
        shape = pixels = None
        if self.image is not None:
            if where is not None:
                raise DataError(f"--image {self.image}: voxels are no images of that size")
            shape = image_shape(self.image, recording.n_sensors)
            recording, pixels = without_constant_pixels(recording)
        samples = self._samples(recording, where, missing=missing)
        return PreparedRecording(recording, samples, where, stimulus, shape, pixels)

    def _recording(self, data: list[str]) -> Recording:
        """The recording; options of scans are refused for anything else."""
        from kikuchi.ica.recordings import read_recording

        mask = None if self.mask == "none" else self.mask or "auto"
        recording = read_recording(data, rate=self.rate, mask=mask)
        if recording.mask is None:
            for name in ("mask", "stimulus", "orientation"):
                if getattr(self, name) is not None:
                    raise DataError(f"--{name} is for brain scans (.nii); leave it out")
        return recording

    def _samples(self, recording: Recording, where: str | None, *, missing: bool) -> NDArray[Any]:
        """Rows as an estimator takes them; what no method can use is refused."""
        from kikuchi.ica.fmri import samples_of

        _check_gaps(recording, missing)
        _check_variation(recording)
        samples, sensors = recording.n_samples, recording.n_sensors
        if where is None and samples < sensors and not self.wide:
            raise DataError(
                f"{recording.source}: {samples} samples of {sensors} sensors; rows are samples: "
                "transpose the table, or give --wide if it is meant"
            )
        kind = self.detrend or ("none" if where is None else "polynomial")
        if kind != "none":
            if missing:
                raise DataError("--detrend needs complete rows; leave --missing out")
            recording = _without_trend(recording, kind)
        if where is None:
            return recording.data
        return samples_of(recording, "spatial" if where == "spatial" else "temporal")


def _check_gaps(recording: Recording, missing: bool) -> None:
    import numpy as np

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
            "give --missing hidden to go on without such values"
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


def _check_variation(recording: Recording) -> None:
    import numpy as np

    constant = np.flatnonzero(~varying(recording))
    if len(constant):
        names = ", ".join(f"'{recording.names[k]}'" for k in constant[:5])
        more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
        what = "sensor without change" if len(constant) == 1 else "sensors without change"
        raise DataError(f"{recording.source}: {what}: {names}{more}; leave out what is constant")


def _without_trend(recording: Recording, text: str) -> Recording:
    from kikuchi.ica.fmri import detrended

    kind, _, number = text.partition(":")
    if kind == "polynomial" and (not number or is_whole(number)):
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


def read_stimulus(path: str, recording: Recording) -> NDArray[Any]:
    """The stimulus, one value per scan."""
    import numpy as np

    from kikuchi.core.tables import read_table

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
