"""Machines and checkpoints as files: one safetensors file each, arrays and JSON, nothing that runs.

Arrays have names such as `parameters/weights` or `rule/hidden`; all else is one JSON text in the
file's metadata. Files are written whole or not at all, so that a killed process leaves the one
before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import parse_units
from kikuchi.core.errors import DataError, MissingExtraError
from kikuchi.core.files import atomic_write

Array = NDArray[Any]
Arrays = dict[str, Array]

FORMAT_VERSION = 1
_MACHINE, _CHECKPOINT = "kikuchi machine", "kikuchi checkpoint"
_EVERY = 5.0  # seconds between two checkpoints within an epoch


# ---------------------------------------------------------------------- machines


def save_machine(
    path: str | PathLike[str], machine: Machine, about: Mapping[str, Any] | None = None
) -> None:
    """Write a machine, and in `about` whatever JSON can say of it.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "small.safetensors"
    >>> save_machine(file, Machine.random(3, 2, random_state=0), {"learner": "cd"})
    >>> machine, about = load_machine(file)
    >>> machine.n_visible, about["learner"]
    (3, 'cd')
    """
    facts = {"machine": describe(machine), "about": dict(about or {})}
    _write(Path(path), _MACHINE, machine_arrays(machine), facts)


def load_machine(path: str | PathLike[str]) -> tuple[Machine, dict[str, Any]]:
    """A machine and what was said of it; checkpoints are read too."""
    arrays, facts = _read(Path(path), (_MACHINE, _CHECKPOINT))
    try:
        machine = read_machine(arrays, facts["machine"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not the file of a machine ({error})") from None
    return machine, dict(facts.get("about", {}))


def machine_arrays(machine: Machine) -> Arrays:
    """Parameters and masks by the names they have in files."""
    arrays = {f"parameters/{name}": array for name, array in machine.parameters.items()}
    return arrays | {f"masks/{name}": mask for name, mask in machine.masks.items()}


def read_machine(arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Machine:
    """The machine of a file's arrays."""
    return Machine(
        **part(arrays, "parameters"),
        masks=part(arrays, "masks"),
        visible=parse_units(facts["visible"]),
        hidden=parse_units(facts["hidden"]),
    )


def describe(machine: Machine) -> dict[str, Any]:
    """What a machine is, apart from its numbers."""
    digest = hashlib.sha256()
    for name in sorted(machine.masks):
        digest.update(name.encode() + np.packbits(machine.masks[name]).tobytes())
    return {
        "units": [machine.n_visible, machine.n_hidden],
        "architecture": machine.architecture,
        "visible": machine.visible.text,
        "hidden": machine.hidden.text,
        "dtype": str(machine.dtype),
        "masks": digest.hexdigest()[:16] if machine.masks else "none",
    }


def part(arrays: Mapping[str, Array], prefix: str) -> Arrays:
    """The arrays whose names begin with `prefix/`, by the rest of their names."""
    start = f"{prefix}/"
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}


# ---------------------------------------------------------------------- checkpoints


@dataclass(frozen=True)
class Saved:
    """What a checkpoint held."""

    arrays: Arrays
    progress: dict[str, Any]


class Checkpoint:
    """Where a training keeps its state; only the same training goes on from it.

    `about` names what else must agree, such as the seed. `identity` (set by the trainer) holds
    what the file must agree with: machine, data, rule, optimiser, batch size and `about`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        about: Mapping[str, str] | None = None,
        every: float = _EVERY,
    ) -> None:
        self.path = Path(path)
        self.about = dict(about or {})
        self.every = every
        self.identity: dict[str, Any] = {}
        self._last = time.monotonic()

    def load(self) -> Saved | None:
        """The state that was saved last; None if there is no file; refuses that of another run."""
        if not self.path.exists():
            return None
        arrays, facts = _read(self.path, (_CHECKPOINT,))
        theirs = facts.get("identity", {})
        for name, mine in self.identity.items():
            if theirs.get(name) != mine:
                raise DataError(
                    f"{self.path}: checkpoint of another training: its {name} is "
                    f"{_short(theirs.get(name))}, here it is {_short(mine)}; delete it or choose "
                    "another name"
                )
        return Saved(arrays, facts["progress"])

    @property
    def due(self) -> bool:
        """Whether so much time has passed that the state should be saved within an epoch."""
        return time.monotonic() - self._last >= self.every

    def save(self, machine: Machine, arrays: Arrays, progress: Mapping[str, Any]) -> None:
        """Write the state in place of the one before."""
        facts = {
            "machine": describe(machine),
            "identity": self.identity,
            "progress": dict(progress),
        }
        _write(self.path, _CHECKPOINT, machine_arrays(machine) | arrays, facts)
        self._last = time.monotonic()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:79] + "…"


# ---------------------------------------------------------------------- bytes


def _write(path: Path, kind: str, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
    tensors = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header = {"format": kind, "version": str(FORMAT_VERSION), "json": json.dumps(facts)}
    data = _safetensors().numpy.save(tensors, metadata=header)
    with atomic_write(path, "wb") as file:
        file.write(data)


def _read(path: Path, kinds: tuple[str, ...]) -> tuple[Arrays, dict[str, Any]]:
    library = _safetensors()
    try:
        with library.safe_open(str(path), framework="np") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, library.SafetensorError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(
            f"{path}: cannot be read, or was cut short ({what}); use another file"
        ) from None
    if header.get("format") not in kinds:
        found = header.get("format", "a file of something else")
        raise DataError(f"{path}: found {found}, expected {' or '.join(kinds)}")
    if header.get("version") != str(FORMAT_VERSION):
        raise DataError(
            f"{path}: version {header.get('version')} of the format; this program reads version "
            f"{FORMAT_VERSION}"
        )
    try:
        facts = json.loads(header["json"])
    except (KeyError, ValueError):
        raise DataError(f"{path}: its description is not JSON; use another file") from None
    return arrays, facts


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise MissingExtraError(
            "files of machines need safetensors; pip install 'kikuchi[learn]'"
        ) from None
    return safetensors
