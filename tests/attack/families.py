"""Every estimator that can be resumed: Ctrl-C at random moments, short times, rows that are not
numbers, and what it says of its own end.

A fit is interrupted twice and resumed from its checkpoint until it has an answer. A fault is an
answer other than that of the unbroken fit, a hidden file that stays, a fit that calls itself
converged although something else ended it, one that takes longer than its seconds, or numbers that
are not finite.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from attack.tally import Tally
from common.estimators import FAMILIES, Family, ctrl_c_works, learnt

_TRIALS = 8  # interrupted fits of each family
_INTERRUPTS = 2  # of each fit
_SECONDS = 0.3  # of a short fit, which may take as much again
_SHORT_FITS = 4  # until one holds its time


def attack(count: int, seed: int, seconds: float) -> Tally:
    """Interrupt `count` fits, until the `seconds` are over."""
    tally = Tally("families")
    rng = np.random.default_rng(seed)
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, ctrl_c_works(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, family in FAMILIES.items():
            if not family.resumable:
                continue
            if tally.tried >= count or time.monotonic() > end:
                break
            whole, warm = _whole(family)
            found = [*_end(whole), *_short(family), *_not_numbers(family)]
            for trial in range(min(_TRIALS, count - tally.tried)):
                if trial and time.monotonic() > end:
                    break
                place = Path(folder) / f"{name} {trial}"
                place.mkdir()
                found += _interrupted(family, whole, place, warm * rng.random(_INTERRUPTS))
                tally.tried += 1
            tally.faults += [f"{name}: {fault}" for fault in found]
    return tally


def _whole(family: Family) -> tuple[Any, float]:
    """An unbroken fit, and the seconds that it takes when everything is compiled."""
    family.fit()
    begin = time.monotonic()
    return family.fit(), time.monotonic() - begin


def _end(fitted: Any) -> list[str]:
    """What is wrong with how a fit says that it ended."""
    if fitted.converged_ != (fitted.stopped_ in ("converged", "validation")):
        return [f"converged is {fitted.converged_} where the fit ended by {fitted.stopped_}"]
    return []


def _short(family: Family) -> list[str]:
    """A fit that has very many iterations and little time. Programs that no whole fit needs may be
    compiled in the first fits, the later the busier the machine is: a fault stands in all of them.
    """
    for _ in range(_SHORT_FITS):
        begin = time.process_time()
        fitted = family.fit(seconds=_SECONDS, **{family.limit: 10**6})
        taken = time.process_time() - begin
        if taken <= 2 * _SECONDS:
            break
    found = _end(fitted)
    if fitted.stopped_ not in ("seconds", "converged", "validation", "unresolved"):
        found.append(f"{_SECONDS} seconds were over, and it says {fitted.stopped_}")
    if taken > 2 * _SECONDS:
        found.append(f"took {taken:.2f} s of the processor where {_SECONDS} were given")
    return found


def _not_numbers(family: Family) -> list[str]:
    """A row with a value that is missing or infinite: refused, or the answer is finite."""
    found = []
    for odd in (np.nan, np.inf):
        rows = family.data[0].copy()
        rows[3, 1] = odd
        try:
            fitted = family.fit(rows, *family.data[1:])
        except ValueError:  # ours and those of scikit-learn
            continue
        if not all(np.isfinite(a).all() for a in learnt(fitted).values() if a.dtype.kind == "f"):
            found.append(f"rows with {odd} give an answer that is not finite")
    return found


def _interrupted(family: Family, whole: Any, folder: Path, moments: Any) -> list[str]:
    """What is wrong with a fit that gets Ctrl-C at these moments and is resumed each time."""
    place = folder / "state"
    fitted = None
    for moment in moments:
        try:
            fitted = _cut(family, place, float(moment))
        except Exception as error:
            return [f"interrupted after {moments} s: {type(error).__name__}: {error}"]
        if fitted is not None and fitted.stopped_ != "interrupted":
            break
    if fitted is None or fitted.stopped_ == "interrupted":
        fitted = family.fit(checkpoint=place)
    found = _end(fitted)
    theirs, mine = learnt(whole), learnt(fitted)
    differ = [n for n in theirs if n not in mine or mine[n].tobytes() != theirs[n].tobytes()]
    if differ or fitted.n_iter_ != whole.n_iter_:
        found.append(f"resumed after {moments} s, {differ[:3]} differ, {fitted.n_iter_} iterations")
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    return [*found, f"hidden files stay: {hidden}"] if hidden else found


def _cut(family: Family, place: Path, moment: float) -> Any:
    """The fit that Ctrl-C after some seconds leaves; None where it had nothing to answer with."""
    timer = threading.Timer(moment, os.kill, (os.getpid(), signal.SIGINT))
    fitted = None
    try:
        timer.start()
        fitted = family.fit(checkpoint=place)
        timer.cancel()
        timer.join()
    except KeyboardInterrupt:  # perhaps after the fit
        timer.join()
    return fitted
