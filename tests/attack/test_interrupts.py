"""The attack by kills and interrupts sees what it looks for: victims with a planted fault."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kikuchi as kk
from attack.interrupts import Victim, _named_model, _odd, _put_older_model, _trial

_STEPS = 20
_PAUSE = 0.02  # seconds of a step


def counted(folder: Path, first: int = 0) -> None:
    """Count to `_STEPS` with a state on the disk after each, from the state that is there."""
    place = folder / "state"
    done = int(place.read_text()) if place.exists() else first
    while done < _STEPS:
        time.sleep(_PAUSE)
        done += 1
        temporary = folder / "new"
        temporary.write_text(str(done))
        temporary.replace(place)


def sound(folder: Path) -> None:
    counted(folder)
    (folder / "answer").write_text((folder / "state").read_text())


def forgetful(folder: Path) -> None:
    """A resumed run takes a step more than the unbroken one."""
    again = (folder / "state").exists()
    counted(folder)
    (folder / "answer").write_text(str(_STEPS + again))


def untidy(folder: Path) -> None:
    (folder / f".{os.getpid()}.part").touch()
    sound(folder)


def clumsy(folder: Path) -> None:
    """Turns Ctrl-C into an error of its own."""
    try:
        sound(folder)
    except KeyboardInterrupt:
        raise ValueError("cut short") from None


def parent(folder: Path) -> None:
    """Starts a process that outlives it."""
    subprocess.Popen(["sleep", "30"])
    sound(folder)


def deaf(folder: Path) -> None:
    """Calls an interrupted run complete."""
    try:
        counted(folder)
    except KeyboardInterrupt:
        (folder / "answer").write_text((folder / "state").read_text())
    else:
        sound(folder)


def answer(folder: Path) -> str | None:
    place = folder / "answer"
    return place.read_text() if place.exists() else None


def faults(run: Callable[[Path], None], number: int, folder: Path) -> list[str]:
    """What the attack finds when it sends this signal in the middle of the run."""
    trial: dict[str, Any] = {"victim": "example", "signal": int(number), "moment": 0.5}
    return _trial(Victim(run, answer, 1), trial, folder / "trial", str(_STEPS), _STEPS * _PAUSE)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_sound_victim_has_no_faults(number: int, tmp_path: Path) -> None:
    assert faults(sound, number, tmp_path) == []


@pytest.mark.parametrize(
    ("run", "number", "fault"),
    [
        (forgetful, signal.SIGKILL, "the answer is not that of the unbroken run"),
        (deaf, signal.SIGINT, "the answer is not that of the unbroken run"),
        (untidy, signal.SIGKILL, "hidden files stay"),
        (clumsy, signal.SIGINT, "ValueError: cut short"),
        (parent, signal.SIGKILL, "processes live on"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_fault_is_seen(
    run: Callable[[Path], None], number: int, fault: str, tmp_path: Path
) -> None:
    assert any(fault in found for found in faults(run, number, tmp_path))


def test_what_python_prints_in_spite_of_a_line_is_odd() -> None:
    assert not _odd("kikuchi: interrupted\n")
    assert _odd("Exception ignored in: <function f>\n")


def test_a_model_with_the_names_of_another_is_seen(tmp_path: Path) -> None:
    folder, inputs = tmp_path / "trial", tmp_path / "inputs"
    folder.mkdir()
    inputs.mkdir()
    older = kk.FactorGraph([2, 2], [((0,), [1, 9]), ((1,), [5, 5])], names=["rain", "sick"])
    newer = kk.FactorGraph([2, 2], [((0,), [5, 5]), ((1,), [1, 9])], names=["sick", "rain"])
    kk.write(older, inputs / "older.uai")
    _put_older_model(folder, inputs)
    assert _named_model(folder) is None
    kk.write(newer, folder / "out.uai")
    whole = _named_model(folder)
    assert whole is not None and whole[0] == newer.names
    names = folder / "out.uai.names.json"
    mixed = {**json.loads(names.read_text()), "names": list(older.names or ())}
    mixed.pop("before", None)
    names.write_text(json.dumps(mixed))
    assert _named_model(folder) not in (None, whole)
