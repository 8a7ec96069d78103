"""`Ledger`: a file that remembers finished cases, so that a stopped run can go on.

One JSON object per line, written and forced to the disk as soon as its case is finished. A line
that a crash cut short can only be the last one; it is left out when the file is read, and
overwritten.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kikuchi import __version__
from kikuchi.core.errors import FormatError, KikuchiError
from kikuchi.reproduce.experiment import Case, Finished

_KEYS = {"experiment", "version", "case", "result", "seconds"}
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
        self._whole_bytes: int | None = None  # where a line that was cut short begins
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
            if self._whole_bytes is not None:
                os.truncate(self.path, self._whole_bytes)
                self._whole_bytes = None
            with self.path.open("ab") as file:
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
            data = self.path.read_bytes()
        except OSError as error:
            raise KikuchiError(f"cannot read {self.path}: {error.strerror or error}") from error
        *lines, rest = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            entry = _entry(line)
            if entry is None:
                raise FormatError(self.path, number, "found another kind of line", _EXPECTED)
            self._take(entry)
        if not _BEGIN.startswith(rest[: len(_BEGIN)]):
            raise FormatError(self.path, len(lines) + 1, "found another kind of line", _EXPECTED)
        if rest:
            self._whole_bytes = len(data) - len(rest)

    def _take(self, entry: dict[str, Any]) -> None:
        if entry["experiment"] != self.experiment:
            return
        if entry["version"] != __version__:
            self.outdated += 1
            return
        finished = Finished(entry["case"], entry["result"], float(entry["seconds"]))
        self._found[case_key(finished.case)] = finished


def case_key(case: Case) -> str:
    """A case as one text, the same for the same parameters in any order.

    >>> case_key({"seed": 1, "a": 0.5}) == case_key({"a": 0.5, "seed": 1})
    True
    """
    return json.dumps(case, sort_keys=True, allow_nan=False)


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:  # also what is no text
        return None
    if not isinstance(entry, dict) or not entry.keys() >= _KEYS:
        return None
    whole = isinstance(entry["case"], dict) and isinstance(entry["result"], dict)
    return entry if whole and isinstance(entry["seconds"], int | float) else None
