"""The suite ends hangs, and gives tests a Ctrl-C that works."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import os, signal, subprocess, sys, time
import pytest

@pytest.mark.seconds(2)
def test_hangs():
    time.sleep(600)

def test_ctrl_c_here_and_in_children():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    child = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
    done = subprocess.run([sys.executable, "-c", child], stderr=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGINT
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_hang_ends_with_its_stack_and_ctrl_c_works_where_it_was_ignored(
    tmp_path: Path, workers: int
) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-v", "-n", str(workers), "test_it.py"]
    if workers == 0:
        command += ["--deselect", "test_it.py::test_hangs"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert "1 passed" in done.stdout
    if workers:
        assert "1 failed" in done.stdout and "crashed while running 'test_it.py::test_hangs'" in (
            done.stdout
        )
        assert "Timeout" in done.stderr and ", line 7 in test_hangs" in done.stderr
