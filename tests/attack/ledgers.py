"""Damaged ledgers of `reproduce --resume`, and runs that share one.

A fault is any exception but a `KikuchiError` when a damaged file is read, a case that was there and
is lost when another is added, or a case that one of several runs finished and the file lacks. The
runs add cases in a random order, and some of them are cut short in the middle of a line.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from attack.readers import damaged
from attack.tally import Tally
from kikuchi.core.errors import KikuchiError
from kikuchi_experiments.experiment import Finished
from kikuchi_experiments.ledger import Ledger

_ID = "X"
_NUMBERS = ("NaN", "-Infinity", "1e999", "1" + "0" * 400, "9" * 4400, "[" * 2000, "null", "-0.0")


def finished(seed: int) -> Finished:
    """A case as runs finish them."""
    return Finished({"seed": seed, "tol": 1e-3}, {"value": 0.5 * seed, "name": "é"}, 0.25)


def attack(count: int, seed: int, seconds: float) -> Tally:
    """Damage or share `count` ledgers, until the `seconds` are over."""
    tally = Tally("ledgers")
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            if time.monotonic() > end:
                break
            rng = np.random.default_rng([seed, number])
            place = Path(folder) / str(number)
            trial = read_damaged if number % 2 else shared
            tally.faults += [f"seed {number}: {fault}" for fault in trial(place, rng)]
            tally.tried += 1
            place.unlink(missing_ok=True)
    return tally


def read_damaged(place: Path, rng: np.random.Generator, kind: Any = Ledger) -> list[str]:
    """What is wrong with how a damaged file is read, and with what is added to it."""
    known = kind(place, _ID)
    for seed in range(3):
        known.add(finished(seed))
    content = place.read_bytes()
    if rng.random() < 0.5:
        content = content.replace(b"0.25", rng.choice(_NUMBERS).encode(), 1)
    else:
        content = damaged(content, ".jsonl", rng)
    place.write_bytes(content)
    try:
        before = [case for case in map(finished, range(3)) if kind(place, _ID).find(case.case)]
        kind(place, _ID).add(finished(7))
        after = kind(place, _ID)
    except KikuchiError as error:
        return [] if str(error) else ["a message without a word"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    lost = [case.case for case in (*before, finished(7)) if after.find(case.case) is None]
    return [f"lost {lost}"] if lost else []


def shared(place: Path, rng: np.random.Generator, kind: Any = Ledger) -> list[str]:
    """What is lost when several runs share a file and die now and then."""
    runs, done = [kind(place, _ID)], []
    for seed in range(12):
        event = rng.random()
        if event < 0.3:
            runs.append(kind(place, _ID))
        elif event < 0.5 and done:
            with place.open("ab") as file:
                file.write(b'{"experiment": "X", "version": '[: rng.integers(1, 30)])
        runs[rng.integers(len(runs))].add(finished(seed))
        done.append(seed)
    last = kind(place, _ID)
    lost = [seed for seed in done if last.find(finished(seed).case) != finished(seed)]
    return [f"lost {lost} of {len(done)}"] if lost else []
