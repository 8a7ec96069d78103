"""`core.parallel.map`: order, errors, interruption, time, and what workers are given."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from kikuchi.core import parallel
from kikuchi.core.budget import Budget
from kikuchi.core.errors import FormatError, KikuchiError


def square(x: int) -> int:
    return x * x


def late_square(x: int) -> int:
    time.sleep(0.05 * (5 - x))
    return x * x


def process_and_limits(_: int) -> tuple[int, list[str | None]]:
    time.sleep(0.2)  # long enough for the other worker to take an item too
    return os.getpid(), [os.environ.get(name) for name in parallel.THREAD_LIMITS]


def refuse_three(x: int) -> int:
    if x == 3:
        raise FormatError("a.uai", 7, "found x", "expected y")  # cannot be pickled
    return x


def divide_by(x: int) -> float:
    return 1 / x


def die(x: int) -> int:
    if x == 1:
        os._exit(9)
    return x


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def interrupt_at_two(x: int) -> int:
    if x == 2:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    return x


def interrupt_and_swallow(x: int) -> int:
    try:
        return interrupt_at_two(x)
    except KeyboardInterrupt:
        return -1


def test_results_are_in_order_and_reported_as_they_come() -> None:
    seen: list[int] = []
    counts: list[tuple[int, int]] = []

    def progress(done: int, total: int, *, residual: float | None, objective: float | None) -> None:
        counts.append((done, total))

    mapped = parallel.map(
        late_square,
        range(5),
        processes=2,
        progress=progress,
        finished=lambda number, result: seen.append(number),
    )
    assert mapped.values() == [0, 1, 4, 9, 16]
    assert mapped.complete and mapped.stopped == "finished"
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert counts == [(k, 5) for k in range(1, 6)]


def test_one_process_is_this_one_and_its_environment_is_left_alone() -> None:
    before = dict(os.environ)
    (pid, _), *_ = parallel.map(process_and_limits, [0], processes=1).values()
    assert pid == os.getpid()
    assert dict(os.environ) == before


def test_workers_are_other_processes_with_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    found = parallel.map(process_and_limits, range(4), processes=2).values()
    assert len({pid for pid, _ in found}) == 2 and os.getpid() not in {pid for pid, _ in found}
    assert all(limits == ["1"] * len(parallel.THREAD_LIMITS) for _, limits in found)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "NUMBA_NUM_THREADS" not in os.environ


def test_number_of_workers() -> None:
    assert parallel.worker_count(None, 10**6) == parallel.available_cores()
    assert parallel.worker_count(None, 1) == 1
    assert parallel.worker_count(4, 0) == 0
    assert parallel.map(square, []).complete
    with pytest.raises(KikuchiError, match="at least 1, got 0"):
        parallel.worker_count(0, 3)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_names_its_item_and_keeps_what_was_done(processes: int) -> None:
    kept: list[int] = []
    with pytest.raises(KikuchiError, match=r"^item 2, 3: a\.uai, line 7: found x; expected y$"):
        parallel.map(
            refuse_three,
            [1, 2, 3],
            processes=processes,
            finished=lambda number, result: kept.append(result),
        )
    assert kept == [1, 2] or processes == 2


@pytest.mark.parametrize("processes", [1, 2])
def test_a_bug_keeps_its_traceback(processes: int) -> None:
    with pytest.raises(RuntimeError, match="item 1, 0: ZeroDivisionError") as caught:
        parallel.map(divide_by, [1, 0], processes=processes)
    assert "divide_by" in caught.value.__notes__[0]


def test_a_worker_that_dies_is_said() -> None:
    with pytest.raises(KikuchiError, match="worker process ended"):
        parallel.map(die, range(4), processes=2)


def test_time_ends_the_work_between_items_here() -> None:
    mapped = parallel.map(sleep, [0.05] * 50, processes=1, budget=Budget(seconds=0.2))
    assert mapped.stopped == "seconds" and not mapped.complete
    assert 1 <= len(mapped.values()) < 10


def test_time_ends_workers_that_are_busy() -> None:
    begin = time.perf_counter()
    mapped = parallel.map(sleep, [0.0, 300.0, 300.0], processes=2, budget=Budget(seconds=6.0))
    assert time.perf_counter() - begin < 60
    assert mapped.stopped == "seconds"
    assert mapped.results == {0: 0.0}


@pytest.mark.parametrize("function", [interrupt_at_two, interrupt_and_swallow])
def test_ctrl_c_here_keeps_what_is_done(function: object) -> None:
    before = signal.getsignal(signal.SIGINT)
    mapped = parallel.map(function, range(5), processes=1)  # type: ignore[arg-type]
    assert mapped.stopped == "interrupted"
    assert mapped.results == {0: 0, 1: 1}
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_workers_are_started_is_kept_for_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    went_on = False
    with pytest.raises(KeyboardInterrupt), parallel._interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        went_on = True
    assert went_on
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == mask
    with parallel._interrupts_deferred():
        pass


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.4])
def test_ctrl_c_ends_workers_at_any_moment(delay: float) -> None:
    def interrupt_soon(number: int, result: float) -> None:
        threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    begin = time.perf_counter()
    mapped = parallel.map(sleep, [0.0, 300.0], processes=2, finished=interrupt_soon)
    assert time.perf_counter() - begin < 60
    assert mapped.stopped == "interrupted" and mapped.results == {0: 0.0}
