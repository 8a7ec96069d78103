"""`Ledger`: a file that remembers finished cases, so that a stopped run can go on.

One JSON object per line, written and forced to the disk as soon as its case is finished. A line
that a crash cut short can only be the last one; it is left out when the file is read, and
overwritten. Several runs may share a file: each locks it while it reads it or appends a line, so
that what looks like a line cut short is never one that another run is still writing.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import IO, Any

from kikuchi import __version__
from kikuchi.core.errors import FormatError, KikuchiError
from kikuchi.core.files import locked, read_stream, require_room
from kikuchi_experiments.experiment import Case, Finished

_KEYS = {"experiment", "version", "case", "result", "seconds"}
_CHUNK = 1 << 16
_MEMORY_PER_BYTE = 30  # of JSON, once it is read
_BEGIN = b'{"experiment": '
_EXPECTED = "expected finished cases of kikuchi reproduce, or a file that does not exist yet"


class Ledger:
    """Finished cases of one experiment in a file, which may hold those of others too.

    Cases that another version of kikuchi computed are kept in the file and not used;
    `outdated` counts them.
    """

    def __init__(self, path: Path, experiment: str) -> None:
        self.path = path / f"{experiment}.jsonl" if path.is_dir() else path
        self.experiment = experiment
        self.outdated = 0
        self._found: dict[str, Finished] = {}
        self._read()

    def __len__(self) -> int:
        return len(self._found)

    def find(self, case: Case) -> Finished | None:
        """The finished case with the same parameters and seed, if the file has it."""
        return self._found.get(case_key(case))

    def add(self, finished: Finished) -> None:
        """Append one case; on return it is on the disk."""
        line = {"experiment": self.experiment, "version": __version__, **finished.to_dict()}
        text = json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n"
        try:
            with self.path.open("a+b") as file, locked(file):
                _drop_line_cut_short(file)
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise KikuchiError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._found[case_key(finished.case)] = finished

    # ------------------------------------------------------------------ reading

    def _read(self) -> None:
        if not self.path.exists():
            if not self.path.parent.is_dir():
                raise KikuchiError(
                    f"cannot write {self.path}: there is no folder {self.path.parent}"
                )
            return
        try:
            with self.path.open("rb") as file, locked(file, shared=True):
                data = read_stream(file, self.path, packed=False, error=FormatError)
        except OSError as error:
            raise KikuchiError(f"cannot read {self.path}: {error.strerror or error}") from error
        require_room(self.path, _MEMORY_PER_BYTE * len(data), "its cases")
        *lines, rest = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                self._take(_entry(line))
            except (ValueError, OverflowError, RecursionError):
                raise FormatError(
                    self.path, number, "found another kind of line", _EXPECTED
                ) from None
        if not _BEGIN.startswith(rest[: len(_BEGIN)]):
            raise FormatError(self.path, len(lines) + 1, "found another kind of line", _EXPECTED)

    def _take(self, entry: dict[str, Any]) -> None:
        finished = Finished(entry["case"], entry["result"], float(entry["seconds"]))
        key = case_key(finished.case)
        if finished.seconds < 0:
            raise ValueError(f"it took {finished.seconds} s")
        if entry["experiment"] != self.experiment:
            return
        if entry["version"] != __version__:
            self.outdated += 1
            return
        self._found[key] = finished


def case_key(case: Case) -> str:
    """A case as one text, the same for the same parameters in any order.

    >>> case_key({"seed": 1, "a": 0.5}) == case_key({"a": 0.5, "seed": 1})
    True
    """
    return json.dumps(case, sort_keys=True, allow_nan=False)


def _entry(line: bytes) -> dict[str, Any]:
    """What a line holds; a `ValueError` or `RecursionError` where that is no finished case."""
    entry = json.loads(line, parse_constant=_finite, parse_float=_finite)
    if not isinstance(entry, dict) or not entry.keys() >= _KEYS:
        raise ValueError("it lacks a key")
    whole = isinstance(entry["case"], dict) and isinstance(entry["result"], dict)
    if not whole or not isinstance(entry["seconds"], int | float):
        raise ValueError("a value is of another type")
    return entry


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


def _drop_line_cut_short(file: IO[bytes]) -> None:
    """Truncate a locked file after its last line that is whole."""
    end = size = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _CHUNK)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            end = begin + newline + 1
            break
        end = begin
    if end < size:
        file.truncate(end)
