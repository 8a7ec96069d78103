"""A Dask cluster as an executor of `core.parallel.map`: work beyond one machine.

    with open_cluster("tcp://10.0.0.1:8786") as cluster:
        parallel.map(function, items, executor=cluster)

Every worker must have the same version of kikuchi installed. If a worker dies, Dask gives its
chunks to another one.
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

_CHUNKS_AHEAD = 2  # chunks queued at each worker, so that none is idle
_PATIENCE = 20  # seconds to wait for a scheduler and a first worker, or for a worker to return
_LOOK_EVERY = 1.0  # seconds between two counts of the workers
_LOCAL = "local:"
_GONE = (
    "the scheduler of the cluster is gone; start the cluster, then run this again "
    "(with --resume if the command has it)"
)


class DaskCluster:
    """An executor over the workers that a `distributed.Client` reaches."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def workers(self) -> int:
        """Number of chunks processed at a time: the threads of all workers."""
        return max(1, int(sum(self.client.nthreads().values())))

    def run(self, job: Job) -> Stopped:
        """Run the job on the cluster; chunks that are no longer needed are cancelled."""
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
                for number, outcome in job.record_chunk(pending.pop(future), _report(future)):
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
    """Checks regularly that a cluster still has workers, so that no wait is endless."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.looked = self.seen = time.monotonic()

    def look(self) -> None:
        """Raise an error if the scheduler is gone, or if there was no worker for `_PATIENCE` s."""
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
                "run this again (with --resume if the command has it)"
            )


def _report(future: Future) -> ChunkReport:
    """Return the report of a chunk; `run_chunk` does not raise, so an error here is one of the
    cluster.
    """
    from distributed import CancelledError, KilledWorker

    try:
        report: ChunkReport = future.result()
    except KilledWorker as error:
        raise KikuchiError(
            "several workers of the cluster died on the same items (not enough memory?); give the "
            "workers more memory, or run without the cluster"
        ) from error
    except (CancelledError, OSError) as error:  # lost connections are OSErrors
        raise KikuchiError(_GONE) from error
    except Exception as error:
        raise KikuchiError(
            f"a worker of the cluster cannot run the work ({type(error).__name__}: {error}); "
            "install the same kikuchi there"
        ) from error
    return report


def _run_capped(function: Callable[[Any], Any], items: Sequence[Any]) -> ChunkReport:
    """Run a chunk in a worker, with one thread per numerical library however the worker was
    started.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    loaded = {"NUMBA_NUM_THREADS"} if "numba" in sys.modules else set()  # fixed by now
    os.environ.update({name: "1" for name in THREAD_LIMITS if name not in loaded})
    with threadpool_limits(1):
        return run_chunk(function, items)


# ---------------------------------------------------------------------- opening


@contextmanager
def shared_with(processes: int | Client | None) -> Iterator[int | None]:
    """Context manager that distributes work over processes or over the workers of a Dask client.

    Yields the number of processes to pass to `parallel.map`.

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
            f"processes must be an integer, None or a Dask client, got {processes!r}"
        )


@contextmanager
def open_cluster(address: str) -> Iterator[DaskCluster]:
    """Connect to the cluster at an address such as `tcp://10.0.0.1:8786`, or start `local:N`.

    `local:N` starts N single-threaded workers on this machine, which listen on the loopback
    interface only and end with the block. A cluster at an address keeps running.
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
                    f"cluster {address}: no scheduler with a worker responds within {_PATIENCE} s; "
                    "check the address, as in tcp://10.0.0.1:8786, or use local:N"
                ) from error
        yield DaskCluster(client)


@contextmanager
def optional_cluster(address: str | None) -> Iterator[None]:
    """Context manager for the option `--cluster`: every `map` in the block runs on the cluster, if
    one is given.
    """
    if address is None:
        yield
        return
    with open_cluster(address) as cluster, using(cluster):
        yield


def _check_address(address: str) -> None:
    """Raise an error for an invalid address before a client waits for it."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    try:
        scheme, location = parse_address(address)
        get_backend(scheme)
        host, port = parse_host_port(location)
        if scheme == "inproc" or not host or not 0 < port < 2**16:
            raise ValueError("not an address that another process can listen on")
    except ValueError as error:
        raise KikuchiError(
            f"cluster {address}: this is not the address of a scheduler; give one such as "
            "tcp://10.0.0.1:8786, or use local:N"
        ) from error


def _local_workers(address: str) -> int | None:
    """Return the number of workers of `local:N`; None for any other address."""
    if not address.startswith(_LOCAL):
        return None
    text = address.removeprefix(_LOCAL)
    if not is_whole(text) or int(text) < 1:
        raise KikuchiError(
            f"cluster {address}: the number of workers must be at least 1, as in local:4"
        )
    return int(text)
