"""A Dask cluster as an executor of `core.parallel.map`: work beyond one machine.

    with open_cluster("tcp://10.0.0.1:8786") as cluster:
        parallel.map(function, items, executor=cluster)

Every worker must have the same kikuchi installed. A worker that dies costs nothing but time: Dask
gives its chunks to another one.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kikuchi.core.chunks import THREAD_LIMITS, TICK, ChunkReport, Job, Stopped, run_chunk
from kikuchi.core.errors import KikuchiError, MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.interrupts import deferred_interrupts
from kikuchi.core.parallel import using
from kikuchi.core.text import is_whole

if TYPE_CHECKING:
    from distributed import Client as Client
    from distributed import Future

_CHUNKS_AHEAD = 2  # given to each worker, so that none waits for the next one
_PATIENCE = 20  # seconds until a scheduler and a first worker must answer, or a worker comes back
_LOOK_EVERY = 1.0  # seconds between two looks at how many workers there are
_LOCAL = "local:"
_GONE = (
    "the scheduler of the cluster has gone; start the cluster, then run this again (with --resume, "
    "where the command has it)"
)


class DaskCluster:
    """An executor over the workers that a `distributed.Client` reaches."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def workers(self) -> int:
        """Chunks that the cluster works on at a time: the threads of all its workers."""
        return max(1, int(sum(self.client.nthreads().values())))

    def run(self, job: Job) -> Stopped:
        """Do the job on the cluster; what nobody waits for any more is cancelled there."""
        pending: dict[Future, list[int]] = {}
        try:
            return self._work(job, pending)
        except KeyboardInterrupt:
            return "interrupted"
        finally:
            if pending:
                self.client.cancel(list(pending), force=True)

    def _work(self, job: Job, pending: dict[Future, list[int]]) -> Stopped:
        done: queue.SimpleQueue[Future] = queue.SimpleQueue()
        workers, watch = self.workers, _Watch(self.client)
        while job.waiting or pending:
            while job.waiting and len(pending) < _CHUNKS_AHEAD * workers:
                numbers = job.next_chunk(workers)
                future = self._submit(job.function, [job.items[k] for k in numbers])
                pending[future] = numbers
                future.add_done_callback(done.put)
            try:
                future = done.get(timeout=TICK)
            except queue.Empty:
                watch.look()
            else:
                for number, outcome in job.arrived(pending.pop(future), _report(future)):
                    job.deliver(number, outcome)
            if job.clock.expired and (job.waiting or pending):
                return "seconds"
        return "finished"

    def _submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Future:
        try:
            return self.client.submit(_run_capped, function, items, pure=False)
        except Exception as error:
            raise KikuchiError(
                f"the work cannot be sent to the cluster ({type(error).__name__}: {error}); use "
                "plain data and functions of modules"
            ) from error


class _Watch:
    """Looks now and then whether a cluster still has workers, and refuses to wait for ever."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.looked = self.seen = time.monotonic()

    def look(self) -> None:
        """Raise an error if the scheduler has gone, or no worker was there for `_PATIENCE` s."""
        now = time.monotonic()
        if now < self.looked + _LOOK_EVERY:
            return
        self.looked = now
        try:
            workers = self.client.nthreads()
        except (OSError, RuntimeError) as error:  # RuntimeError: the client has been closed
            raise KikuchiError(_GONE) from error
        if workers:
            self.seen = now
        elif now > self.seen + _PATIENCE:
            raise KikuchiError(
                f"the cluster has had no worker for {_PATIENCE:g} s; start workers for it, then "
                "run this again (with --resume, where the command has it)"
            )


def _report(future: Future) -> ChunkReport:
    """The report of a chunk; `run_chunk` raises nothing, so an error here is the cluster's."""
    from distributed import CancelledError, KilledWorker

    try:
        report: ChunkReport = future.result()
    except KilledWorker as error:
        raise KikuchiError(
            "several workers of the cluster ended while they did the same work (not enough "
            "memory?); give workers more memory, or work without the cluster"
        ) from error
    except (CancelledError, OSError) as error:  # lost connections are OSErrors
        raise KikuchiError(_GONE) from error
    except Exception as error:
        raise KikuchiError(
            f"a worker of the cluster cannot do the work ({type(error).__name__}: {error}); "
            "install the same kikuchi there"
        ) from error
    return report


def _run_capped(function: Callable[[Any], Any], items: Sequence[Any]) -> ChunkReport:
    """A chunk in a worker, with one thread for each numerical library however it was started."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    loaded = {"NUMBA_NUM_THREADS"} if "numba" in sys.modules else set()  # it refuses a change then
    os.environ.update({name: "1" for name in THREAD_LIMITS if name not in loaded})
    with threadpool_limits(1):
        return run_chunk(function, items)


# ---------------------------------------------------------------------- opening


@contextmanager
def shared_with(processes: int | Client | None) -> Iterator[int | None]:
    """A block whose work is shared by so many processes, or by the workers of a Dask client.

    Answers the number of processes that `parallel.map` is to be given.

    >>> with shared_with(2) as count:
    ...     print(count)
    2
    """
    if processes is None or isinstance(processes, int):
        yield processes
    elif all(hasattr(processes, name) for name in ("submit", "nthreads", "cancel")):
        with using(DaskCluster(processes)):
            yield None
    else:
        raise KikuchiError(
            f"processes must be a whole number, None or a Dask client, got {processes!r}"
        )


@contextmanager
def open_cluster(address: str) -> Iterator[DaskCluster]:
    """The cluster at an address such as `tcp://10.0.0.1:8786`, or `local:N`.

    `local:N` starts N workers of one thread on this machine that listen on the loopback interface
    only and end with the block. A cluster at an address is left running.
    """
    try:
        import distributed
    except ImportError:
        raise MissingExtraError(f"a cluster needs Dask; {install('cluster')}") from None
    count = _local_workers(address)
    if count is None:
        _check_address(address)
    with ExitStack() as opened:
        with deferred_interrupts():
            cluster = None
            if count is not None:
                cluster = distributed.LocalCluster(
                    n_workers=count,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address=None,
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # not a fixed port
                    silence_logs=logging.CRITICAL,
                    env=dict.fromkeys(THREAD_LIMITS, "1"),
                )
                opened.enter_context(cluster)
            try:
                client = distributed.Client(
                    cluster or address, timeout=_PATIENCE, set_as_default=False
                )
                opened.enter_context(client)
                client.wait_for_workers(1, timeout=_PATIENCE)
            except (OSError, ValueError, TimeoutError) as error:
                raise KikuchiError(
                    f"cluster {address}: no scheduler with a worker answers within {_PATIENCE} s; "
                    "check the address, as in tcp://10.0.0.1:8786, or use local:N"
                ) from error
        yield DaskCluster(client)


@contextmanager
def optional_cluster(address: str | None) -> Iterator[None]:
    """What an option `--cluster` means: every `map` of the block runs there, if there is one."""
    if address is None:
        yield
        return
    with open_cluster(address) as cluster, using(cluster):
        yield


def _check_address(address: str) -> None:
    """Refuse what is no address before a client waits for it."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    try:
        scheme, location = parse_address(address)
        get_backend(scheme)
        host, port = parse_host_port(location)
        if scheme == "inproc" or not host or not 0 < port < 2**16:
            raise ValueError("nothing that another process can listen on")
    except ValueError as error:
        raise KikuchiError(
            f"cluster {address}: this is no address of a scheduler; give one as in "
            "tcp://10.0.0.1:8786, or use local:N"
        ) from error


def _local_workers(address: str) -> int | None:
    """How many workers `local:N` asks for; None for any other address."""
    if not address.startswith(_LOCAL):
        return None
    text = address.removeprefix(_LOCAL)
    if not is_whole(text) or int(text) < 1:
        raise KikuchiError(
            f"cluster {address}: give a number of workers of at least 1, as in local:4"
        )
    return int(text)
