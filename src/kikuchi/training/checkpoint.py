"""Models and checkpoints as files: one safetensors file each, arrays and JSON, nothing that runs.

Arrays have names such as `parameters/weights` or `rule/hidden`; everything else is one JSON text in
the file's metadata. Files are written whole or not at all, so that a killed process leaves the one
before. Nothing here knows what is stored: families choose a `kind`, arrays and facts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi import __version__
from kikuchi.core.errors import DataError, MissingExtraError
from kikuchi.core.files import atomic_write, guarded_reading, require_room

Array = NDArray[Any]
Arrays = dict[str, Array]

FORMAT_VERSION = 1
CHECKPOINT = "kikuchi checkpoint"
"""Kind of file that `Checkpoint` writes."""
_EVERY = 5.0  # seconds between two checkpoints within an epoch


def save(
    path: str | PathLike[str], kind: str, arrays: Mapping[str, Array], facts: Mapping[str, Any]
) -> None:
    """Write named arrays and JSON facts; `kind` says what the file is, such as "kikuchi machine".

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "small.safetensors"
    >>> save(file, "kikuchi example", {"mean": np.arange(3.0)}, {"rows": 7})
    >>> arrays, facts = load(file, ("kikuchi example",))
    >>> arrays["mean"].tolist(), facts
    ([0.0, 1.0, 2.0], {'rows': 7})
    """
    tensors = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(facts)
    header = {"format": kind, "version": str(FORMAT_VERSION), "json": text}
    header["digest"] = _digest(tensors, text)
    data = _safetensors().numpy.save(tensors, metadata=header)
    with atomic_write(path, "wb") as file:
        file.write(data)


def load(path: str | PathLike[str], kinds: tuple[str, ...]) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and facts of a file of one of these kinds; anything else is refused in one line.

    So is a file whose contents have changed since it was written, which its digest tells. Models
    of early versions have none and are taken as they are.
    """
    library = _safetensors()
    with guarded_reading(path, "a model or checkpoint"):
        require_room(path, Path(path).stat().st_size, "its content")
        with library.safe_open(str(path), framework="np") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if header.get("format") not in kinds:
        kind = header.get("format", "a file of something else")
        raise DataError(f"{path}: found {kind}, expected {' or '.join(kinds)}")
    if header.get("version") != str(FORMAT_VERSION):
        raise DataError(
            f"{path}: version {header.get('version')} of the format; this program reads version "
            f"{FORMAT_VERSION}"
        )
    try:
        facts = json.loads(header["json"])
    except (KeyError, ValueError, RecursionError):
        raise DataError(f"{path}: its description is not JSON; use another file") from None
    if not isinstance(facts, dict):
        raise DataError(f"{path}: its description is not a JSON object; use another file")
    needs_digest = "digest" in header or header["format"] == CHECKPOINT
    if needs_digest and header.get("digest") != _digest(arrays, header["json"]):
        raise DataError(
            f"{path}: damaged: its contents are not those that were written; delete it, or use "
            "another file"
        )
    return arrays, facts


@contextmanager
def reading(path: str | PathLike[str], what: str) -> Iterator[None]:
    """A block that interprets what a file holds: whatever goes wrong there is a `DataError`.

    >>> with reading("a.safetensors", "the file of a machine"):
    ...     {}["weights"]
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.DataError: a.safetensors: not the file of a machine ('weights')
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise DataError(f"{path}: not {what} ({why})") from None


def part(arrays: Mapping[str, Array], prefix: str) -> Arrays:
    """The arrays whose names begin with `prefix/`, by the rest of their names.

    >>> list(part({"rule/hidden": np.zeros(1), "trace/seconds": np.zeros(1)}, "rule"))
    ['hidden']
    """
    start = f"{prefix}/"
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}


def prefixed(arrays: Mapping[str, Any], prefix: str) -> Arrays:
    """The arrays under names that begin with `prefix/`: the inverse of `part`."""
    return {f"{prefix}/{name}": np.asarray(array) for name, array in arrays.items()}


@dataclass(frozen=True)
class SavedState:
    """What a checkpoint held: arrays, and JSON facts about how far the work had come."""

    arrays: Arrays
    progress: dict[str, Any]


class Checkpoint:
    """Where a long computation keeps its state; only the same computation goes on from it.

    `about` names what else must agree, such as the seed. `identity`, set before `load`,
    holds everything that the file must agree with: model, data, options. `every` is the number of
    seconds between two checkpoints. A file whose contents have changed since it was written, or
    that another version of the program wrote, is refused.

    Save only states from which the next step can be taken: never in the middle of an update.

    >>> import tempfile
    >>> checkpoint = Checkpoint(Path(tempfile.mkdtemp()) / "state.safetensors")
    >>> checkpoint.identity = {"data": "abc"}
    >>> checkpoint.load() is None
    True
    >>> checkpoint.save({"mean": np.zeros(2)}, {"iteration": 3})
    >>> checkpoint.load().progress
    {'iteration': 3}
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        about: Mapping[str, str] | None = None,
        every: float = _EVERY,
    ) -> None:
        _safetensors()  # if it is missing, say so before the work and not after it
        self.path = Path(path)
        self.about = {**(about or {}), "program": __version__}
        self.every = every
        self.identity: dict[str, Any] = {}
        self._last = time.monotonic()

    def load(self) -> SavedState | None:
        """The state saved last; None without a file; refuses that of another computation."""
        if not self.path.exists():
            return None
        arrays, facts = load(self.path, (CHECKPOINT,))
        theirs, progress = facts.pop("identity", None), facts.pop("progress", None)
        if not isinstance(theirs, dict) or not isinstance(progress, dict):
            raise DataError(f"{self.path}: not a checkpoint of this program; delete it")
        for name, mine in (self.identity | self.about).items():
            if theirs.get(name) != mine:
                raise DataError(
                    f"{self.path}: checkpoint of another training: its {name} is "
                    f"{_short(theirs.get(name))}, here it is {_short(mine)}; delete it or choose "
                    "another name"
                )
        return SavedState(arrays, progress)

    @property
    def due(self) -> bool:
        """Whether `every` seconds have passed since the state was saved."""
        return time.monotonic() - self._last >= self.every

    def save(
        self,
        arrays: Mapping[str, Array],
        progress: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the state in place of the one before; `facts` are read by nobody but people and
        the loader of a model.
        """
        identity, progress = self.identity | self.about, dict(progress or {})
        told = {**(facts or {}), "identity": identity, "progress": progress}
        save(self.path, CHECKPOINT, arrays, told)
        self._last = time.monotonic()


def _digest(arrays: Mapping[str, Array], text: str) -> str:
    """A text that differs when any array or the given text does."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise MissingExtraError(
            "models and checkpoints in files need safetensors; pip install 'kikuchi[learn]'"
        ) from None
    return safetensors
