"""A Dask cluster as the executor of `core.parallel.map`: the same answers, whatever workers do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from kikuchi.core import cluster as cluster_module
from kikuchi.core import parallel
from kikuchi.core.budget import Budget
from kikuchi.core.cluster import DaskCluster, open_cluster, optional_cluster
from kikuchi.core.errors import KikuchiError
from kikuchi_experiments import reproduce


def square(x: int) -> int:
    return x * x


def process_number(_: int) -> int:
    return os.getpid()


def slow_square(x: int) -> int:
    time.sleep(0.15)
    return x * x


def tiny(x: int) -> int:
    time.sleep(0.001)
    return x


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fail_at_three(x: int) -> int:
    if x == 3:
        raise KikuchiError("three is one too many")
    return x


def leave(x: int) -> int:
    sys.exit(x)


def unpicklable(x: int) -> object:
    return lambda: x


def kill_once(item: tuple[int, str]) -> int:
    """The first worker that gets item 4 dies with it; the next one does the work."""
    number, mark = item
    if number == 4 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return number * number


def die(x: int) -> int:
    os._exit(9)


def blas_threads(_: int) -> list[int]:
    import numpy as np
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    np.ones((2, 2)) @ np.ones((2, 2))
    return [pool["num_threads"] for pool in threadpool_info()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskCluster]:
    with open_cluster("local:2") as opened:
        yield opened


def test_results_are_in_order_with_progress_and_the_same_as_here(cluster: DaskCluster) -> None:
    counts: list[int] = []
    seen: dict[int, int] = {}

    def progress(done: int, total: int, *, residual: float | None, objective: float | None) -> None:
        counts.append(done)

    mapped = parallel.map(
        slow_square, range(7), executor=cluster, progress=progress, finished=seen.__setitem__
    )
    assert mapped.results == parallel.map(square, range(7), processes=1).results == seen | {}
    assert list(mapped.results) == list(range(7))
    assert mapped.complete and mapped.stopped == "finished"
    assert counts == list(range(1, 8))
    assert cluster.workers == 2


def test_tiny_items_travel_in_chunks(cluster: DaskCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    submit = cluster._submit

    def counted(function: object, items: list[int]) -> object:
        sizes.append(len(items))
        return submit(function, items)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster, "_submit", counted)
    assert parallel.map(tiny, range(2000), executor=cluster).values() == list(range(2000))
    assert len(sizes) < 100  # about 2 s of work: twenty chunks of 0.2 s, and those of both ends
    assert max(sizes) >= 50


def test_a_worker_that_dies_in_the_middle_changes_nothing(
    cluster: DaskCluster, tmp_path: Path
) -> None:
    mark = tmp_path / "killed"
    items = [(k, str(mark)) for k in range(12)]
    mapped = parallel.map(kill_once, items, executor=cluster)
    assert mark.exists()
    assert mapped.values() == [k * k for k in range(12)]


def test_an_experiment_gives_the_same_table_when_a_worker_is_killed(cluster: DaskCluster) -> None:
    here = reproduce("HOJ-E1", quick=True, processes=1)
    (first, *_) = cluster.client.run(os.getpid).values()
    threading.Timer(0.3, lambda: os.kill(first, signal.SIGKILL)).start()
    there = reproduce("HOJ-E1", quick=True, executor=cluster)
    assert there.rows() == here.rows()
    assert there.complete and there.processes >= 1
    assert first not in cluster.client.run(os.getpid).values()


def test_errors_are_those_of_one_machine(cluster: DaskCluster) -> None:
    with pytest.raises(KikuchiError, match=r"^item 2, 3: three is one too many$"):
        parallel.map(fail_at_three, [1, 2, 3], executor=cluster)
    with pytest.raises(RuntimeError, match="item 0, 5: SystemExit: 5"):
        parallel.map(leave, [5], executor=cluster)
    with pytest.raises(KikuchiError, match="item 0, 1: its result cannot be sent"):
        parallel.map(unpicklable, [1], executor=cluster)
    with pytest.raises(KikuchiError, match="processes or an executor, not both"):
        parallel.map(square, [1], processes=2, executor=cluster)
    with pytest.raises(KikuchiError, match="cannot be sent to the cluster"):
        parallel.map(square, [threading.Lock()], executor=cluster)  # type: ignore[list-item]


def test_workers_use_one_thread_for_each_library(cluster: DaskCluster) -> None:
    (threads,) = parallel.map(blas_threads, [0], executor=cluster).values()
    assert threads and set(threads) == {1}


def test_everything_listens_on_loopback_only_and_there_is_no_dashboard(
    cluster: DaskCluster,
) -> None:
    import psutil

    this = psutil.Process()
    sockets = [
        socket.laddr
        for process in [this, *this.children(recursive=True)]
        for socket in process.net_connections(kind="inet")
        if socket.status == psutil.CONN_LISTEN
    ]
    assert len(sockets) >= 3 and {socket.ip for socket in sockets} == {"127.0.0.1"}
    assert 8787 not in {socket.port for socket in sockets}


def test_time_and_ctrl_c_keep_what_is_done(cluster: DaskCluster) -> None:
    def interrupt(number: int, result: float) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    mapped = parallel.map(sleep, [0.0, 1.0, 1.0], executor=cluster, finished=interrupt)
    assert mapped.stopped == "interrupted" and mapped.results == {0: 0.0}
    assert parallel.map(square, range(3), executor=cluster).values() == [0, 1, 4]
    time.sleep(1.0)  # what was cut short runs to its end in the workers
    begin = time.perf_counter()
    mapped = parallel.map(sleep, [0.0, 20.0, 20.0], executor=cluster, budget=Budget(seconds=1.0))
    assert time.perf_counter() - begin < 10.0
    assert mapped.stopped == "seconds" and mapped.results == {0: 0.0}


@pytest.mark.slow
def test_work_that_kills_every_worker_is_said() -> None:
    with (
        open_cluster("local:1") as opened,
        pytest.raises(KikuchiError, match="several workers of the cluster died"),
    ):
        parallel.map(die, [0], executor=opened)


@pytest.mark.parametrize("address", ["local:0", "local:", "local:x", "local:-1"])
def test_bad_numbers_of_workers(address: str) -> None:
    with (
        pytest.raises(KikuchiError, match="number of workers must be at least 1"),
        open_cluster(address),
    ):
        pass


def test_an_address_where_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_PATIENCE", 1)
    with pytest.raises(KikuchiError, match="check the address"), open_cluster("tcp://127.0.0.1:1"):
        pass


@pytest.mark.parametrize(
    "address",
    ["nonsense", "http://127.0.0.1:8786", "tcp://127.0.0.1:99999", "tcp://x", "inproc://x", ""],
)
def test_what_is_no_address_never_reaches_a_client(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that begins to wait for it prints a traceback of its own, a minute later."""
    monkeypatch.setattr("distributed.Client", None)
    with pytest.raises(KikuchiError, match="not the address of a scheduler"), open_cluster(address):
        pass


Running = tuple[str, dict[str, subprocess.Popen[str]]]


@pytest.fixture
def running() -> Iterator[Running]:
    """Address of a scheduler, and the processes of it and of a worker that nobody restarts."""
    program = [sys.executable, "-m"]
    quiet = ["--no-dashboard"]
    started: dict[str, subprocess.Popen[str]] = {}
    try:
        started["scheduler"] = subprocess.Popen(
            [*program, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
             *quiet], stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        address = _address(started["scheduler"])
        started["worker"] = subprocess.Popen(
            [*program, "distributed.cli.dask_worker", address, "--no-nanny", "--nthreads", "1",
             *quiet], stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        yield address, started
    finally:
        for process in started.values():
            process.kill()
            process.communicate()


def _address(scheduler: subprocess.Popen[str]) -> str:
    assert scheduler.stderr is not None
    for line in scheduler.stderr:
        if found := re.search(r"Scheduler at:\s+(tcp://\S+)", line):
            return found[1]
    raise AssertionError("the scheduler has not started")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "message"), [("worker", "no worker for 2 s"), ("scheduler", "the scheduler .* gone")]
)
def test_a_cluster_that_is_lost_is_said(
    running: Running, lost: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, started = running
    with open_cluster(address) as opened:
        monkeypatch.setattr(cluster_module, "_PATIENCE", 2)
        timer = threading.Timer(1.0, started[lost].kill)
        timer.start()
        with pytest.raises(KikuchiError, match=message):
            parallel.map(sleep, [0.2] * 1000, executor=opened, budget=Budget(seconds=60))
        timer.join()


class FakeClient:
    """Has these numbers of workers at successive looks; an exception is raised."""

    def __init__(self, *looks: int | Exception) -> None:
        self.looks = list(looks)

    def nthreads(self) -> dict[str, int]:
        now = self.looks.pop(0)
        if isinstance(now, Exception):
            raise now
        return {f"tcp://{k}": 1 for k in range(now)}


def test_waiting_for_workers_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.5, 2.0, 15.0, 22.0, 30.0, 36.0, 43.0])
    clock = SimpleNamespace(monotonic=lambda: next(times))  # the loop of Dask keeps its own
    monkeypatch.setattr(cluster_module, "time", clock)
    watch = cluster_module._Watch(FakeClient(1, 0, 1, 0, 0, 0))  # type: ignore[arg-type]
    for _ in range(6):  # the look at 0.5 s comes too soon; the worker of 22 s was away for 20
        watch.look()
    with pytest.raises(KikuchiError, match="no worker for 20 s"):
        watch.look()


def test_a_scheduler_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_LOOK_EVERY", 0.0)
    watch = cluster_module._Watch(FakeClient(1, OSError("closed")))  # type: ignore[arg-type]
    watch.look()
    with pytest.raises(KikuchiError, match="scheduler of the cluster is gone"):
        watch.look()


def test_a_block_may_name_the_workers_of_every_map(cluster: DaskCluster) -> None:
    here = os.getpid()
    assert parallel.in_this_process(1)
    with parallel.using(cluster):
        assert not parallel.in_this_process(1)
        assert here not in parallel.map(process_number, range(3), processes=1).values()
    assert parallel.map(process_number, range(3), processes=1).values() == [here] * 3


def test_no_cluster_changes_nothing() -> None:
    with optional_cluster(None):
        assert parallel.map(process_number, [0], processes=1).values() == [os.getpid()]
