"""Compiled loops: kept on disk where that is possible, and never stopped by what is there."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

from kikuchi.core import loop_cache
from kikuchi.core.compiling import AGAIN_NOTICE, COMPILING, NOTICE, CompilingTime

SOURCE = """
from kikuchi.core.compiled import njit

@njit(cache=True, error_model="numpy")
def twice(x):
    return 2 * x
"""


def loaded(place: Path) -> Any:
    spec = importlib.util.spec_from_file_location("loops", place)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(loop_cache, "user_folder", lambda: tmp_path / "kept")
    file = tmp_path / "loops.py"
    file.write_text(SOURCE)
    return file


@pytest.mark.parametrize(
    "body", [b"ckikuchi.core.compiled\nGone\n.", b"cno_such_module\nGone\n.", b"", b"\x80\xff"]
)
def test_an_index_that_this_version_cannot_read_counts_as_empty(place: Path, body: bytes) -> None:
    assert loaded(place).twice(2) == 4
    (index,) = place.parent.glob("kept/*/*.nbi")
    whole = index.read_bytes()
    head = whole[: whole.index(numba.__version__.encode()) + len(numba.__version__) + 2]
    index.write_bytes(head + body)
    assert loaded(place).twice(2) == 4
    again = loaded(place).twice
    assert again(2) == 4 and again.stats.cache_hits  # the repaired index is used


def test_a_full_disk_does_not_stop_a_loop(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core.caching import IndexDataCacheFile

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_save_index", full)
    assert loaded(place).twice(2) == 4


def test_without_a_folder_for_the_cache_there_is_one_warning() -> None:
    code = "import kikuchi.graphs.kernels.heap, kikuchi.graphs.kernels.disjoint_sets; print(1)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": os.devnull}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr
    assert result.stderr.count("NUMBA_CACHE_DIR") == 1 and "Traceback" not in result.stderr


# An inner loop that is too large to become part of its caller unless it is told to, and whose sums
# come out with other last digits when it is optimised a second time within the caller.
REORDERED = """
import numpy as np
from kikuchi.core.compiled import njit

FAST = {"contract", "reassoc", "nsz", "arcp"}


@njit(cache=True, error_model="numpy", fastmath=FAST)
def inner(precision, linear, chi, mu):
    count, lanes = precision.shape
    gamma, lam, factor = np.empty(lanes), np.empty(lanes), np.empty(lanes)
    for i in range(count):
        own, here, now, slope = chi[i], mu[i], precision[i], linear[i]
        for s in range(lanes):
            raw = 1.0 / own[s] - now[s]
            lam[s] = max(raw, 1e-10 / own[s])
            gamma[s] = here[s] / own[s] - slope[s] + (lam[s] - raw) * here[s]
        for s in range(lanes):
            change = 1.5 / own[s] - lam[s] - now[s]
            step = min(1.0, 0.9 / max(-change * own[s], 1e-300))
            slope[s] += step * (0.1 * (1.5 / own[s] + lam[s]) - gamma[s] - slope[s])
            factor[s] = step * change
        for j in range(count):
            other, centre = chi[max(i, j)], mu[j]
            for s in range(lanes):
                centre[s] += other[s] * factor[s]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def outer(precision, linear, chi, mu):
    inner(precision, linear, chi, mu)


def answer():
    values = np.random.default_rng(0).uniform(1, 2, size=(4, 5, 32))
    outer(*values)
    return values.tobytes().hex()


if __name__ == "__main__":
    print(answer(), sum(outer.stats.cache_hits.values()))
"""


def test_the_process_that_compiles_and_one_that_loads_get_the_same_last_digits(
    tmp_path: Path,
) -> None:
    place = tmp_path / "loops.py"
    place.write_text(REORDERED)
    runs = [
        subprocess.run(
            [sys.executable, place],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert [hits for _, hits in runs] == ["0", "1"]
    assert runs[0][0] == runs[1][0]


def test_loading_is_counted_apart_and_without_a_word():
    told = []
    taken = CompilingTime()
    taken.tell = told.append
    taken.begin()
    time.sleep(0.35)
    taken.end(loaded=True)
    assert taken.seconds > 0.3
    assert taken.compiled == 0.0
    assert not told
    for _ in range(3):
        taken.begin()
        time.sleep(0.55)
        taken.end()
        assert told == [NOTICE] * (taken.compiled > 1.0)
    assert told == [NOTICE]


def test_a_later_call_that_compiles_for_long_says_so_again() -> None:
    told: list[str] = []
    taken = CompilingTime()
    taken.tell = told.append

    def compile_for(seconds: float) -> None:
        taken.begin()
        time.sleep(seconds)
        taken.end()

    compile_for(1.1)
    taken.renew()
    compile_for(0.3)
    assert told == [NOTICE]
    compile_for(0.9)
    assert told == [NOTICE, AGAIN_NOTICE]


_SLOW_TO_COMPILE = """
import kikuchi as kk
from kikuchi.core.compiling import COMPILING
kk.infer(kk.grid(8, 8, seed=0), "trw")
assert COMPILING.compiled > 1.0, COMPILING.compiled
"""


def test_a_script_that_compiles_says_so_once_on_standard_error(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _SLOW_TO_COMPILE],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == ""
    assert run.stderr.splitlines() == [NOTICE]


def test_a_loop_from_disk_counts_as_loaded(place):
    loaded(place).twice(3)
    before = COMPILING.compiled, COMPILING.loading
    assert loaded(place).twice(3) == 6
    assert COMPILING.compiled == pytest.approx(before[0], abs=1e-9)
    assert COMPILING.loading > before[1]


def test_a_loop_does_not_get_what_only_its_caller_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "loops.py"
    place.write_text(
        "from kikuchi.core.compiled import njit\n"
        '@njit(cache=True, error_model="numpy")\n'
        "def total(x):\n    s = 0.0\n    for i in range(len(x)):\n        s += x[i]\n    return s\n"
        '@njit(cache=True, error_model="numpy", fastmath=True)\n'
        "def twice(x):\n    return 2.0 * total(x)\n",
        encoding="utf-8",
    )
    loops = loaded(place)
    x = np.random.default_rng(0).normal(size=10_000)
    in_order = float(np.cumsum(x)[-1])
    assert float(loops.twice(x)) == 2.0 * in_order  # compiles `total` for a caller that may reorder
    assert float(loops.total(x)) == in_order


PLANNED = """
import sys
import numpy as np
from kikuchi.core.compiled import njit
from kikuchi.core.compiling import COMPILING, PATIENCE, everything_compiled, patient

@njit(cache=True, error_model="numpy", plain_up_to=10)
def doubled(x, tables):
    return 2 * len(x) + inner(tables[0])

@njit(cache=True, error_model="numpy")
def inner(x):
    return x[0]

def ask(n):
    doubled(np.zeros(n), (np.full(3, 7),))
    return len(doubled.signatures)

"""


@pytest.mark.parametrize(
    ("ask", "forms"),
    [
        ("ask(7)", "0"),  # 7 entries and the 3 of the tuple
        ("ask(8)", "1"),
        ("(ask(8), ask(7))[1]", "1"),
        ("(setattr(PATIENCE, 'spent', PATIENCE.limit), ask(7))[1]", "1"),
        ("(inside := patient(), inside.__enter__(), ask(8))[2]", "0"),
        ("(inside := everything_compiled(), inside.__enter__(), ask(7))[2]", "1"),
    ],
)
def test_a_loop_that_plans_small_work_is_not_compiled(tmp_path: Path, ask: str, forms: str) -> None:
    place = tmp_path / "loops.py"
    place.write_text(f"{PLANNED}\nprint({ask})")
    ran = subprocess.run(
        [sys.executable, place],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert ran.stdout.strip() == forms


def test_a_loop_that_plans_is_used_compiled_if_it_is_on_disk(tmp_path: Path) -> None:
    place = tmp_path / "loops.py"
    place.write_text(f"{PLANNED}\nprint(ask(int(sys.argv[1])), COMPILING.compiled > 0)")
    answers = [
        subprocess.run(
            [sys.executable, place, n],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout.split()
        for n in ("7", "8", "7")
    ]
    assert answers == [["0", "False"], ["1", "True"], ["1", "False"]]
