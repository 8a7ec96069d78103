"""Running an experiment: cases on several cores, kept as they finish, put together at the end."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kikuchi import __version__
from kikuchi.core import parallel
from kikuchi.core.answer import attributes
from kikuchi.core.budget import Budget
from kikuchi.core.errors import KikuchiError
from kikuchi.core.parallel import Executor
from kikuchi.core.progress import Progress, silent
from kikuchi_experiments.catalogue import find_experiment
from kikuchi_experiments.experiment import Case, Experiment, Finished, Row, Verdict, verdict_of
from kikuchi_experiments.ledger import Ledger

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PACKAGES = ("numpy", "scipy", "numba")


@dataclass(frozen=True)
class Outcome:
    """An experiment that was run: its table, its figure and every case behind them.

    `stopped` is "finished", "seconds" or "interrupted"; in the last two the table holds the cases
    that were finished. `resumed` of them came from the file of an earlier run, which also holds
    `outdated` cases of another version that were not used. `seconds` is wall clock of this run,
    `case_seconds` the sum over all cases whenever they were computed.
    """

    experiment: Experiment
    quick: bool
    seeds: tuple[int, ...]
    total: int
    finished: tuple[Finished, ...]
    resumed: int
    processes: int
    stopped: str
    seconds: float
    outdated: int

    @property
    def complete(self) -> bool:
        """Whether every case is there."""
        return len(self.finished) == self.total

    @property
    def case_seconds(self) -> float:
        """Seconds that all cases took together."""
        return sum(one.seconds for one in self.finished)

    def rows(self) -> list[Row]:
        """The table: quantity, ours, published, corrected reference, verdict, criterion, note."""
        return self.experiment.rows(self.finished)

    @property
    def verdict(self) -> Verdict:
        """What the rows say together; about the document if the setting is the full one."""
        return verdict_of(self.rows())

    def figure(self) -> Figure:
        """The figure."""
        return self.experiment.figure(self.finished)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: what was done, with what, and what came out."""
        setting = self.experiment.setting(self.quick)
        return {
            "experiment": self.experiment.id,
            **attributes(self.experiment, "document title claim"),
            "version": __version__,
            "versions": versions(),
            "setting": "quick" if self.quick else "full",
            "settings": dict(setting.parameters),
            "seeds": list(self.seeds),
            "cases": self.total,
            "finished": len(self.finished),
            **attributes(self, "resumed outdated complete stopped processes seconds"),
            **attributes(self, "case_seconds verdict"),
            "rows": [row.to_dict() for row in self.rows()],
            "results": [one.to_dict() for one in self.finished],
        }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def reproduce(
    experiment: str | Experiment,
    *,
    quick: bool = False,
    seeds: int | None = None,
    first_seed: int = 0,
    processes: int | None = None,
    executor: Executor | None = None,
    resume: str | PathLike[str] | None = None,
    budget: Budget | None = None,
    progress: Progress = silent,
) -> Outcome:
    """Run an experiment of the source documents, all of it or the `quick` setting.

    `seeds` networks or data sets are drawn, from the seeds `first_seed`, `first_seed` + 1, ...; the
    setting has its own number of them. With `resume` (a file, or a folder for one file each) every
    finished case is kept there at once, and cases that are there already are not computed again.
    `processes` and `executor` as in `core.parallel.map`.

    >>> outcome = reproduce("HOJ-E11", quick=True, processes=1)
    >>> outcome.complete, all(row.agrees is not False for row in outcome.rows())
    (True, True)
    """
    begin = time.perf_counter()
    chosen = find_experiment(experiment) if isinstance(experiment, str) else experiment
    numbers = seed_numbers(chosen, quick, seeds, first_seed)
    cases = _plain(chosen.cases(chosen.setting(quick).parameters, numbers))
    ledger = None if resume is None else Ledger(Path(resume), chosen.id)
    known = {} if ledger is None else _known(ledger, cases)
    missing = [k for k in range(len(cases)) if k not in known]

    def keep(place: int, finished: Finished) -> None:
        known[missing[place]] = finished
        if ledger is not None:
            ledger.add(finished)

    resumed = len(known)
    mapped = parallel.map(
        _CaseRunner(chosen),
        [cases[k] for k in missing],
        processes=processes,
        executor=executor,
        budget=budget,
        progress=progress,
        finished=keep,
    )
    if not known:
        raise _nothing_finished(mapped.stopped)
    if executor is None:
        workers = parallel.worker_count(processes, len(missing))
    else:
        workers = min(executor.workers, len(missing))
    return Outcome(
        chosen,
        quick,
        numbers,
        len(cases),
        tuple(known[k] for k in sorted(known)),
        resumed,
        workers,
        mapped.stopped,
        time.perf_counter() - begin,
        0 if ledger is None else ledger.outdated,
    )


def seed_numbers(
    experiment: Experiment, quick: bool, seeds: int | None, first_seed: int
) -> tuple[int, ...]:
    """The seeds of a run."""
    default = experiment.setting(quick).seeds
    if not default and (seeds is not None or first_seed):
        raise KikuchiError(f"{experiment.id} uses no random numbers; leave the seeds out")
    if seeds is not None and seeds < 1:
        raise KikuchiError(f"the number of seeds must be at least 1, got {seeds}")
    if first_seed < 0:
        raise KikuchiError(f"the first seed must be a whole number >= 0, got {first_seed}")
    return tuple(range(first_seed, first_seed + (seeds or default)))


@dataclass(frozen=True)
class _CaseRunner:
    """One case as a worker computes it; the result goes through JSON, as if read from a file."""

    experiment: Experiment

    def __call__(self, case: Case) -> Finished:
        begin = time.perf_counter()
        result = self.experiment.run_case(case)
        return Finished(case, _plain(result), time.perf_counter() - begin)


def _known(ledger: Ledger, cases: Sequence[Case]) -> dict[int, Finished]:
    entries = ((k, ledger.find(case)) for k, case in enumerate(cases))
    return {k: finished for k, finished in entries if finished is not None}


def _plain(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


def _nothing_finished(stopped: str) -> BaseException:
    if stopped == "interrupted":
        return KeyboardInterrupt()
    return KikuchiError("no case was finished in the given time; allow more seconds")
