"""`core.parallel.map`: order, errors, interruption, time, and what workers are given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kikuchi.core import chunks, parallel
from kikuchi.core.budget import Budget
from kikuchi.core.errors import FormatError, KikuchiError
from kikuchi.core.interrupts import deferred_interrupts


def square(x: int) -> int:
    return x * x


def late_square(x: int) -> int:
    time.sleep(0.05 * (5 - x))
    return x * x


def process_and_limits(_: int) -> tuple[int, list[str | None]]:
    time.sleep(0.2)  # long enough for the other worker to take an item too
    return os.getpid(), [os.environ.get(name) for name in chunks.THREAD_LIMITS]


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
    assert all(limits == ["1"] * len(chunks.THREAD_LIMITS) for _, limits in found)
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
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        went_on = True
    assert went_on
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == mask
    with deferred_interrupts():
        pass


def test_ctrl_c_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        mapped = parallel.map(interrupt_at_two, range(4), processes=1)
        with deferred_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert mapped.complete


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.4])
def test_ctrl_c_ends_workers_at_any_moment(delay: float) -> None:
    def interrupt_soon(number: int, result: float) -> None:
        threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    begin = time.perf_counter()
    mapped = parallel.map(sleep, [0.0, 300.0], processes=2, finished=interrupt_soon)
    assert time.perf_counter() - begin < 60
    assert mapped.stopped == "interrupted" and mapped.results == {0: 0.0}


def leave(x: int) -> int:
    sys.exit(x)


def unpicklable(x: int) -> object:
    return lambda: x


@pytest.mark.parametrize("processes", [1, 2])
def test_a_call_of_exit_is_the_error_of_its_item(processes: int) -> None:
    with pytest.raises(RuntimeError, match=r"item \d, [56]: SystemExit: "):
        parallel.map(leave, [5, 6], processes=processes)


def test_what_cannot_be_sent_is_said() -> None:
    with pytest.raises(KikuchiError, match=r"item \d, \d: its result cannot be sent"):
        parallel.map(unpicklable, [1, 2], processes=2)
    with pytest.raises(KikuchiError, match=r"item 0, 1: its function or item cannot be sent"):
        parallel.map(lambda x: x, [1, 2], processes=2)


def tiny(x: int) -> int:
    time.sleep(0.001)
    return x


def test_tiny_items_travel_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    next_chunk = chunks.Job.next_chunk

    def counted(job: chunks.Job, workers: int) -> list[int]:
        numbers = next_chunk(job, workers)
        sizes.append(len(numbers))
        return numbers

    monkeypatch.setattr(chunks.Job, "next_chunk", counted)
    assert parallel.map(tiny, range(1000), processes=2).values() == list(range(1000))
    assert len(sizes) < 60 and max(sizes) >= 50


def test_a_chunk_that_takes_too_long_gives_items_back() -> None:
    job = chunks.Job(sleep, [0.0, 0.3, 0.0, 0.0], Budget().start(), lambda number, result: None)
    assert job.next_chunk(1) == [0]
    job.record_chunk([0], chunks.run_chunk(sleep, [0.0]))
    numbers = job.next_chunk(1)
    assert numbers == [1, 2, 3]
    done = job.record_chunk(numbers, chunks.run_chunk(sleep, [job.items[k] for k in numbers]))
    assert [number for number, _ in done] == [1] and list(job.waiting) == [2, 3]


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("busy", ["time.sleep(300)", "sum(range(10**12))"])  # one never looks up
def test_workers_end_soon_after_a_parent_that_was_killed(tmp_path: Path, busy: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, time\n"
        "from kikuchi.core import parallel\n"
        "def work(path):\n"
        "    open(path, 'w').write(str(os.getpid()))\n"
        f"    {busy}\n"
        "if __name__ == '__main__':\n"
        "    parallel.map(work, sys.argv[1:], processes=2)\n"
    )
    notes = [tmp_path / "a", tmp_path / "b"]
    parent = subprocess.Popen([sys.executable, program, *notes])
    while not all(note.exists() and note.read_text() for note in notes):
        time.sleep(0.05)
    workers = [int(note.read_text()) for note in notes]
    parent.kill()
    parent.wait()
    deadline = time.perf_counter() + 2.0
    while any(Path(f"/proc/{pid}").exists() and _runs(pid) for pid in workers):
        assert time.perf_counter() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
