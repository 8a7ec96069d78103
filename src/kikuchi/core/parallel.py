"""Work that splits: `map` applies a function to items (seeds, restarts, cases) on several workers.

The workers are processes of this machine (`core.worker_processes`) unless an executor is given,
such as a Dask cluster (`core.cluster`). Those two modules start processes; nothing else does. Items
go to workers in chunks of about a fifth of a second, as measured while the work goes on.
`map_threads` is for compiled loops over parts of one array: threads of this process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from kikuchi.core.budget import Budget
from kikuchi.core.chunks import Job, Stopped, call
from kikuchi.core.errors import KikuchiError
from kikuchi.core.interrupts import watched_interrupts
from kikuchi.core.progress import Progress, silent

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Mapped(Generic[Result]):
    """What `map` did: results by number of the item, and why it stopped.

    `results` has the items that were finished, in the order of the items; `stopped` is "finished",
    "seconds" (the budget ended) or "interrupted" (Ctrl-C).
    """

    total: int
    results: dict[int, Result] = field(default_factory=dict)
    stopped: Stopped = "finished"

    @property
    def complete(self) -> bool:
        """Whether every item was finished."""
        return len(self.results) == self.total

    def values(self) -> list[Result]:
        """Results of the finished items, in the order of the items."""
        return list(self.results.values())


class Executor(Protocol):
    """Workers that `map` can use: processes of this machine, or a cluster."""

    @property
    def workers(self) -> int:
        """How many chunks are worked on at a time."""
        ...

    def run(self, job: Job) -> Stopped:
        """Do the job, pass each result to it, and return why the work ended."""
        ...


_CURRENT: ContextVar[Executor | None] = ContextVar("executor", default=None)


@contextmanager
def using(executor: Executor | None) -> Iterator[None]:
    """A block in which every `map` of this thread uses these workers; None changes nothing.

    The number of `processes` that a map asks for is then left aside.
    """
    before = _CURRENT.set(executor or _CURRENT.get())
    try:
        yield
    finally:
        _CURRENT.reset(before)


def in_this_process(processes: int | None) -> bool:
    """Whether a `map` over several items with so many processes would use this one only."""
    return _CURRENT.get() is None and worker_count(processes, 2) == 1


def map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    processes: int | None = None,
    executor: Executor | None = None,
    budget: Budget | None = None,
    progress: Progress = silent,
    finished: Callable[[int, Result], None] | None = None,
) -> Mapped[Result]:
    """Apply `function` to every item, on several cores or machines if there are any.

    `processes` is the number of worker processes: by default one for each core, and no more than
    items; with one the work is done in this process. `executor` replaces them, for example by a
    Dask cluster (`core.cluster.open_cluster`). Unless the work is done in this process, `function`,
    items and results must be picklable. `finished(number, result)` is called in this process soon
    after an item is done.

    Ctrl-C and the end of `budget.seconds` stop the workers; the answer has what is finished, and an
    item that is cut short counts as not done. In this process the time is looked at between items.
    An error in an item is raised with the item's name, after the results before it have been passed
    to `finished`: as `KikuchiError` if it is one, as `RuntimeError` with its traceback otherwise.

    >>> from math import factorial
    >>> map(factorial, [3, 4], processes=1).values()
    [6, 24]
    """
    clock = (budget or Budget()).start()
    mapped: Mapped[Result] = Mapped(len(items))

    def keep(number: int, result: Result) -> None:
        mapped.results[number] = result
        if finished is not None:
            finished(number, result)
        progress(len(mapped.results), len(items), residual=None, objective=None)

    job = Job(function, items, clock, keep)
    mapped.stopped = _executor(processes, executor, len(items)).run(job)
    mapped.results = dict(sorted(mapped.results.items()))
    return mapped


def map_threads(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> list[Result]:
    """Apply `function` to every item in threads of this process; results in the order of items.

    Only work that releases Python's lock, such as loops compiled with `nogil`, gains by it. The
    first error of an item is raised as it is, once all threads have ended.

    >>> map_threads(abs, [-1, -2, 3], 2)
    [1, 2, 3]
    """
    if threads < 1:
        raise KikuchiError(f"threads must be at least 1, got {threads}")
    if threads == 1 or len(items) < 2:
        return [function(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(function, items))


def _executor(processes: int | None, executor: Executor | None, items: int) -> Executor:
    if executor is not None:
        if processes is not None:
            raise KikuchiError("give a number of processes or an executor, not both")
        return executor
    current = _CURRENT.get()
    if current is not None:
        return current
    workers = worker_count(processes, items)
    if workers <= 1:
        return _ThisProcess()
    from kikuchi.core.worker_processes import WorkerProcesses

    return WorkerProcesses(workers)


def worker_count(processes: int | None, items: int) -> int:
    """How many workers to start: the number asked for or that of the cores, at most one per item.

    >>> worker_count(8, 3), worker_count(2, 100)
    (3, 2)
    """
    if processes is not None and processes < 1:
        raise KikuchiError(f"processes must be at least 1, got {processes}")
    return min(processes or available_cores(), items)


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _ThisProcess:
    """The executor that does everything here, one item after the other."""

    workers = 1

    def run(self, job: Job) -> Stopped:
        try:
            with watched_interrupts() as interrupted:
                for number, item in enumerate(job.items):
                    if job.clock.expired:
                        return "seconds"
                    outcome = call(job.function, item)
                    if interrupted.is_set():  # the function swallowed Ctrl-C: its answer is partial
                        return "interrupted"
                    job.deliver(number, outcome)
        except KeyboardInterrupt:
            return "interrupted"
        return "finished"
