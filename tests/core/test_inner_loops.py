"""Loops that only other loops call: taken into their callers, kept on disk, callable still."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_LOOPS = """
import numpy as np
from kikuchi.core.compiled import njit

@njit(cache=True, error_model="numpy")
def _root(x):
    if x < 0:
        raise ValueError("below zero")
    return x ** 0.5

@njit(cache=True, error_model="numpy")
def _total(x):
    s = 0.0
    for i in range(len(x)):
        s += _root(x[i])
    return s

@njit(cache=True, error_model="numpy")
def both(x):
    return _total(x) + _root(x[0])

@njit(cache=True, error_model="numpy")
def other(x):
    return 2.0 * _total(x)
"""
_TAIL = """
import json
from kikuchi.core.compiling import COMPILING
x = np.array([4.0, 9.0])
print(json.dumps([{ask}, COMPILING.loops]))
"""


def _run(folder: Path, ask: str) -> Any:
    place = folder / "loops.py"
    place.write_text(_LOOPS)
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\nfrom loops import *\nimport loops\n"
    ran = subprocess.run(
        [sys.executable, "-c", code + _TAIL.replace("{ask}", ask)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "kept")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return json.loads(ran.stdout)


def test_an_inner_loop_is_compiled_once_for_all_callers_and_processes(tmp_path: Path) -> None:
    assert _run(tmp_path, "both(x)") == [7.0, 3]
    assert _run(tmp_path, "both(x)") == [7.0, 0]
    assert _run(tmp_path, "other(x)") == [10.0, 1]  # the inner loops come from disk
    assert _run(tmp_path, "[other(x), both(x)]") == [[10.0, 7.0], 0]


def test_only_loops_that_python_calls_have_machine_code(tmp_path: Path) -> None:
    _run(tmp_path, "both(x)")
    names = {
        f.name.split("-")[0] for f in tmp_path.glob("kept/*/*/*.nbi") if "-inner" not in f.name
    }
    assert names == {"loops.both"}


def test_an_inner_loop_that_python_calls_is_compiled_for_it(tmp_path: Path) -> None:
    ask = "[both(x), loops._total(x), loops._total(x), both(x)]"
    assert _run(tmp_path, ask) == [[7.0, 5.0, 5.0, 7.0], 4]
    assert _run(tmp_path, ask) == [[7.0, 5.0, 5.0, 7.0], 0]


@pytest.mark.parametrize("kept", [False, True])
def test_errors_of_an_inner_loop_reach_python(tmp_path: Path, kept: bool) -> None:
    if kept:
        _run(tmp_path, "both(x)")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        _run(tmp_path, "both(-x)")
    assert "ValueError: below zero" in caught.value.stderr


@pytest.mark.parametrize("kind", ["nbc", "nbi"])
@pytest.mark.parametrize("body", [b"", b"\x80\xff", b"ckikuchi.core.compiled\nGone\n."])
def test_a_damaged_inner_loop_on_disk_is_compiled_anew(
    tmp_path: Path, body: bytes, kind: str
) -> None:
    _run(tmp_path, "both(x)")
    damaged = list(tmp_path.glob(f"kept/*/*/*-inner*.{kind}"))
    assert len(damaged) == 2
    for file in damaged:
        file.write_bytes(body)
    assert _run(tmp_path, "other(x)") == [10.0, 3]
    assert _run(tmp_path, "both(x)") == [7.0, 0]


def test_without_a_folder_inner_loops_are_compiled_in_each_process(tmp_path: Path) -> None:
    place = tmp_path / "loops.py"
    place.write_text(_LOOPS + "\nprint(both(np.array([4.0, 9.0])))")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", place],
        env={**os.environ, "NUMBA_CACHE_DIR": os.devnull},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert ran.stdout.strip() == "7.0"
