"""Models and checkpoints as files: one safetensors file each, with arrays and JSON, but no code.

Arrays have names such as `parameters/weights` or `rule/hidden`; everything else is one JSON string
in the metadata of the file. Files are written atomically, so that a killed process leaves the
previous file. This module is independent of the content: families choose a `kind`, arrays and
facts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kikuchi import __version__
from kikuchi.core.errors import BudgetError, DataError, KikuchiError, MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.files import atomic_write, guarded_reading, require_room
from kikuchi.core.named_arrays import part as part
from kikuchi.core.named_arrays import prefixed as prefixed
from kikuchi.core.run import StepAborted

Array = NDArray[Any]
Arrays = dict[str, Array]
T = TypeVar("T")

FORMAT_VERSION = 1
CHECKPOINT = "kikuchi checkpoint"
"""Kind of file that `Checkpoint` writes."""
_TIMES = "trace/seconds"  # name of the array of wall-clock times
_EVERY = 5.0  # seconds between two checkpoints within an epoch


def save(
    path: str | PathLike[str], kind: str, arrays: Mapping[str, Array], facts: Mapping[str, Any]
) -> None:
    """Write named arrays and JSON facts; `kind` is the kind of file, such as "kikuchi machine".

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
    header |= _digests(tensors, text)
    data = _safetensors().numpy.save(tensors, metadata=header)
    with atomic_write(path, "wb") as file:
        file.write(data)


def load(path: str | PathLike[str], kinds: tuple[str, ...]) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and facts of a file of one of these kinds; other files raise a one-line
    error.

    So does a file without a digest, or with digests that do not match its content.
    """
    library = _safetensors()
    with guarded_reading(path, "a model or checkpoint"):
        require_room(path, Path(path).stat().st_size, "its content")
        with library.safe_open(str(path), framework="np") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if header.get("format") not in kinds:
        kind = header.get("format", "another kind of file")
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
    digests = _digests(arrays, header["json"])
    if any(header.get(name) != digests.get(name) for name in ("digest", "times")):
        raise DataError(
            f"{path}: damaged: its contents are not those that were written; delete it, or use "
            "another file"
        )
    return arrays, facts


@contextmanager
def reading(
    path: str | PathLike[str], what: str, way_out: str = "use another file"
) -> Iterator[None]:
    """Context manager that interprets the content of a file: any exception becomes a `DataError`.

    Only code that parses or restores the content belongs inside. A file with a correct digest may
    still contain anything, so no list of exceptions is complete; the original one is chained.
    Limits of time and memory, missing extras and undefined names are not attributed to the file.

    >>> with reading("a.safetensors", "the file of a machine"):
    ...     {}["weights"]
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.DataError: a.safetensors: not the file of a machine (KeyError: 'weights'); \
use another file
    """
    try:
        yield
    except (BudgetError, MissingExtraError, StepAborted, NameError, ImportError):
        raise
    except Exception as error:
        why = " ".join(str(error).split())
        if not isinstance(error, KikuchiError):
            why = f"{type(error).__name__}: {why}"
        raise DataError(f"{path}: not {what} ({why}); {way_out}") from error


def restoring(path: str | PathLike[str]) -> AbstractContextManager[None]:
    """Context manager that restores a fit from its checkpoint; see `reading`."""
    return reading(path, "the state of this fit", "delete it to start again")


def check_like(
    found: Mapping[str, Array],
    expected: Mapping[str, Array],
    *,
    varying: Sequence[str] = (),
    logarithms: Sequence[str] = (),
) -> None:
    """Raise an error if the names, types or shapes of the arrays of a file differ from those of a
    new state.

    If `expected` contains non-finite numbers, `found` may, too. Names that begin with one of
    `varying` may be absent or have other sizes; those of `logarithms` may contain -inf. Strings
    (arrays of bytes) may have any length.

    >>> check_like({"mean": np.zeros(3)}, {"mean": np.zeros(2)})
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.DataError: its array mean is float64 of shape (3,), expected float64 of \
shape (2,)
    """
    for name, value in expected.items():
        wanted, free = np.asarray(value), name.startswith(tuple(varying))
        if free and name not in found:
            continue
        if name not in found:
            raise DataError(f"its array {name} is missing")
        array = found[name]
        free = free or wanted.dtype == np.uint8
        fits = array.ndim == wanted.ndim if free else array.shape == wanted.shape
        if array.dtype != wanted.dtype or not fits:
            raise DataError(
                f"its array {name} is {array.dtype} of shape {array.shape}, expected "
                f"{wanted.dtype} of shape {wanted.shape}"
            )
    for name, array in found.items():
        like = expected.get(name, None if array.ndim else np.array(np.nan))
        check_finite(name, array, like, minus=name.startswith(tuple(logarithms)))


def check_finite(
    name: str, array: Array, like: Array | None = None, *, minus: bool = False
) -> None:
    """Raise an error if an array contains non-finite numbers, unless `like` does, too.

    With a `like`, a single number may be infinite (not known yet); `minus` allows -inf (log 0) in
    arrays.

    >>> check_finite("mean", np.array([1.0, np.nan]))
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.DataError: its array mean has a number that is not finite: nan
    """
    if array.dtype.kind not in "fc" or np.isfinite(array).all():
        return
    before = np.zeros(1) if like is None else np.asarray(like)
    allowed = np.isfinite(array)
    if np.isnan(before).any():
        allowed = allowed | np.isnan(array)
    if np.isinf(before).any() or (like is not None and not array.ndim):
        allowed = allowed | np.isinf(array)
    if minus:
        allowed = allowed | np.isneginf(array)
    if not allowed.all():
        worst = array[~allowed].reshape(-1)[0]
        raise DataError(f"its array {name} has a number that is not finite: {worst}")


def check_sizes(arrays: Mapping[str, Array], layout: Mapping[str, str], **sizes: int) -> None:
    """Raise an error if the sizes of arrays contradict each other.

    `layout` names the axes of each array. Axes with the same name must have the same length, and
    the length in `sizes` if it is given there.

    >>> arrays = {"mixing": np.zeros((3, 2)), "mean": np.zeros(4)}
    >>> check_sizes(arrays, {"mixing": "channels sources", "mean": "channels"})
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.DataError: its array mean has the shape (4,), expected (channels=3)
    """
    known = dict(sizes)
    for name, axes in layout.items():
        if name not in arrays:
            raise DataError(f"its array {name} is missing")
        shape, words = arrays[name].shape, axes.split()
        for word, size in zip(words, shape, strict=False):
            known.setdefault(word, size)
        if shape != tuple(known.get(word) for word in words):
            wanted = ", ".join(f"{word}={known.get(word, '?')}" for word in words)
            raise DataError(f"its array {name} has the shape {shape}, expected ({wanted})")


def of_type(facts: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a fact of a file after checking its type.

    >>> of_type({"epochs": 3}, "epochs", int)
    3
    """
    value = facts[name]
    if type(value) is not kind:
        raise DataError(f"its {name} is {value!r}")
    return value


def read_labels(facts: Mapping[str, Any], name: str) -> Array:
    """Return distinct class labels from the facts of a file: integers, floats or strings.

    >>> read_labels({"classes": ["no", "yes"]}, "classes").tolist()
    ['no', 'yes']
    """
    given = of_type(facts, name, list)
    labels, types = np.array(given), set(map(type, given))
    good = len(types) == 1 and len(labels) > 1 and labels.dtype.kind in "biufU"
    if not good or len(np.unique(labels)) != len(labels):
        raise DataError(f"its {name} are not labels of classes")
    check_finite(name, labels)
    return labels


@dataclass(frozen=True)
class SavedState:
    """The content of a checkpoint: arrays, and JSON facts about the progress."""

    arrays: Arrays
    progress: dict[str, Any]


class Checkpoint:
    """The saved state of a long computation; only the same computation can continue from it.

    `about` lists what else must agree, such as the seed. `identity`, set before `load`, contains
    everything that must agree with the file: model, data, options. `every` is the number of seconds
    between two checkpoints. A file that was modified, or written by another version of the program,
    raises an error.

    Save only states from which the next step can be taken, never in the middle of an update.

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
        _safetensors()  # if it is missing, raise the error before the work
        self.path = Path(path)
        self.about = {**(about or {}), "program": __version__}
        self.every = every
        self.identity: dict[str, Any] = {}
        self._last = time.monotonic()

    def load(self) -> SavedState | None:
        """Return the last saved state, or None without a file; the state of another computation
        raises an error.
        """
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
                    f"{_short(theirs.get(name))}, here it is {_short(mine)}; delete it or use "
                    f"another name"
                )
        return SavedState(arrays, progress)

    @property
    def due(self) -> bool:
        """Return whether `every` seconds have passed since the state was saved."""
        return time.monotonic() - self._last >= self.every

    def save(
        self,
        arrays: Mapping[str, Array],
        progress: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the saved state; `facts` is metadata, read by the loader of a model only."""
        identity, progress = self.identity | self.about, dict(progress or {})
        told = {**(facts or {}), "identity": identity, "progress": progress}
        save(self.path, CHECKPOINT, arrays, told)
        self._last = time.monotonic()


def _digests(arrays: Mapping[str, Array], text: str) -> dict[str, str]:
    """Return the digest of arrays and text, and separately that of the times of the trace: equal
    trainings have the same `digest`, however long they took.
    """
    times = {name: array for name, array in arrays.items() if name == _TIMES}
    others = {name: array for name, array in arrays.items() if name != _TIMES}
    found = {"digest": _digest(others, text)}
    return found | {"times": _digest(times, "")} if times else found


def _digest(arrays: Mapping[str, Array], text: str) -> str:
    """Return a digest of arrays and a string."""
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
            f"models and checkpoints in files need safetensors; {install('learn')}"
        ) from None
    return safetensors
