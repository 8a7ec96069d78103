"""Local worker processes, the default executor of `core.parallel.map`.

Each worker is a fresh interpreter (`spawn`: safe with compiled loops and threads) whose numerical
libraries use one thread, so that many workers do not compete for the cores. A program that uses
more than one process must guard its own work by `if __name__ == "__main__":`, since workers import
it again. Every worker has its own pipe, so no lock is shared that a terminated worker could hold,
and a worker exits when this process does.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler

from kikuchi.core.chunks import (
    THREAD_LIMITS,
    TICK,
    ChunkReport,
    Job,
    Stopped,
    run_chunk,
    unsendable_chunk,
)
from kikuchi.core.compiling import COMPILING
from kikuchi.core.errors import KikuchiError
from kikuchi.core.interrupts import deferred_interrupts

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_PATIENCE = 5.0  # seconds for a worker to exit by itself


class WorkerProcesses:
    """An executor with a number of processes that are started and ended with each `map`."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, job: Job) -> Stopped:
        """Run the job in worker processes."""
        team: dict[Connection, SpawnProcess] = {}
        stopped: Stopped = "interrupted"
        try:
            with _single_threaded(), deferred_interrupts():
                for _ in range(self.workers):
                    connection, process = _start()
                    team[connection] = process
            stopped = _work(job, list(team))
        except KeyboardInterrupt:
            return "interrupted"
        finally:
            _end(team, at_once=stopped != "finished")
        return stopped


def _work(job: Job, idle: list[Connection]) -> Stopped:
    """Keep every worker busy until all items are done."""
    workers = len(idle)
    busy: dict[Connection, list[int]] = {}
    outcomes = []
    while job.waiting or busy:
        while job.waiting and idle:
            numbers = job.next_chunk(workers)
            report = _send(job, numbers, idle[-1])
            if report is None:
                busy[idle.pop()] = numbers
            else:
                outcomes += job.record_chunk(numbers, report)
        for number, outcome in sorted(outcomes):
            job.deliver(number, outcome)
        if job.clock.expired and (job.waiting or busy):
            return "seconds"
        outcomes = []
        for connection in wait(list(busy), timeout=TICK):
            assert isinstance(connection, Connection)
            outcomes += job.record_chunk(busy.pop(connection), _receive(connection))
            idle.append(connection)
    for number, outcome in sorted(outcomes):
        job.deliver(number, outcome)
    return "finished"


def _send(job: Job, numbers: list[int], worker: Connection) -> ChunkReport | None:
    """Send a chunk to an idle worker; return a report of the failure if it cannot be sent."""
    try:
        message = ForkingPickler.dumps((job.function, [job.items[k] for k in numbers]))
    except Exception as error:
        return unsendable_chunk(error)
    try:
        worker.send_bytes(message)
    except OSError as error:
        raise _ended_early() from error
    return None


def _receive(worker: Connection) -> ChunkReport:
    try:
        report: ChunkReport = worker.recv()
    except (EOFError, OSError) as error:
        raise _ended_early() from error
    return report


def _ended_early() -> KikuchiError:
    return KikuchiError(
        "a worker process ended before its work (not enough memory, or a program without "
        'if __name__ == "__main__":); use processes=1'
    )


def _start() -> tuple[Connection, SpawnProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), name="kikuchi-worker")
    process.start()
    theirs.close()
    return ours, process


def _end(team: dict[Connection, SpawnProcess], at_once: bool) -> None:
    """Stop idle workers, and terminate those whose results are no longer needed."""
    for connection, process in team.items():
        connection.close()
        if at_once:
            process.terminate()
    for process in team.values():
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Context manager in which new workers inherit a limit of one thread per library."""
    before = {name: os.environ.get(name) for name in THREAD_LIMITS}
    os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# ---------------------------------------------------------------------- in a worker


def _serve(connection: Connection) -> None:
    """Process chunks until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    COMPILING.tell = None  # otherwise every worker would notify the user
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if sys.platform == "linux":  # a compiled loop may block that thread for a long time
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    try:
        while True:
            connection.send(_answer(connection.recv_bytes()))
    except (EOFError, OSError):
        return


def _answer(message: bytes) -> ChunkReport:
    try:
        function, items = ForkingPickler.loads(message)
    except Exception as error:
        return unsendable_chunk(error)
    return run_chunk(function, items)


def _end_with_parent() -> None:
    """Wait for the parent process, and exit at once when it has ended, even if busy."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
