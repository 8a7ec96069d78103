"""The folder that `kikuchi fit ica --folder` writes: all files, or none."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kikuchi.core.errors import KikuchiError
from kikuchi.core.files import resolved, suffix_of, temporary_path

if TYPE_CHECKING:
    from kikuchi.ica.evaluation import SourceEvaluation


_SOURCE_FILES = {".csv": ".csv", ".tsv": ".tsv", ".parquet": ".csv"}  # others: .npz


def check_folder(out: Path) -> None:
    """Refuse at once a folder that holds something, or that cannot be made."""
    if out.exists() and not out.is_dir():
        raise KikuchiError(f"cannot write {out}: it is a file; give the name of a new folder")
    if out.is_dir() and any(out.iterdir()):
        raise KikuchiError(f"cannot write {out}: the folder is not empty; name a new one")
    try:
        with tempfile.TemporaryFile(dir=resolved(out).parent):
            pass
    except OSError as error:
        raise KikuchiError(f"cannot write {out}: {error.strerror or error}") from None


def write_folder(out: Path, evaluation: SourceEvaluation) -> None:
    """The answer in a new folder: all files, or none."""
    target = resolved(out)
    work = temporary_path(target)
    try:
        work.mkdir()
        _write_files(work, evaluation)
        if target.is_dir():
            target.rmdir()
        work.rename(target)
    except BaseException as error:
        shutil.rmtree(work, ignore_errors=True)
        if isinstance(error, OSError):
            raise KikuchiError(f"cannot write {out}: {error.strerror or error}") from None
        raise


def _write_files(folder: Path, evaluation: SourceEvaluation) -> None:
    from kikuchi.cli.outputs import write_json
    from kikuchi.ica.fmri import write_maps
    from kikuchi.ica.recording import Recording
    from kikuchi.ica.recordings import write_matrix, write_recording, write_wav

    names = tuple(source.name for source in evaluation.sources)
    recording = evaluation.recording
    kind, labels = evaluation.mixing_rows
    write_matrix(folder / "mixing.csv", evaluation.mixing, names, labels, kind)
    more: dict[str, Any] = {}
    if evaluation.components is not None:
        write_maps(folder / "maps.nii.gz", evaluation.components.maps, recording)
        courses = Recording(evaluation.components.courses.T, names, recording.rate)
        write_recording(folder / "courses.csv", courses)
    elif recording.source.lower().endswith(".wav") and recording.rate is not None:
        more["gains"] = [
            write_wav(folder / f"source_{k + 1}.wav", signal, recording.rate)
            for k, signal in enumerate(evaluation.values.T)
        ]
    else:
        suffix = _SOURCE_FILES.get(suffix_of(recording.source), ".npz")
        found = Recording(evaluation.values, names, recording.rate)
        write_recording(folder / f"sources{suffix}", found)
    evaluation.files = sorted([*(path.name for path in folder.iterdir()), "model.json"])
    from kikuchi import __version__

    if evaluation.orientation is None:
        more["sensors"] = list(recording.names)  # of each row of mixing.csv
    write_json({"version": __version__, **evaluation.to_dict(), **more}, folder / "model.json")
