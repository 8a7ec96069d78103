"""A line while a large package is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ASK = """
import sys, types
sys.path.insert(0, sys.argv[1])
from kikuchi.core.loading import announced
{before}
with announced(0.1):
    import jax
with announced(0.1):
    import pandas
"""


def _said(folder: Path, wait: float, before: str = "") -> list[str]:
    for name in ("jax", "pandas"):
        (folder / f"{name}.py").write_text(f"import time\ntime.sleep({wait})\n")
    ran = subprocess.run(
        [sys.executable, "-c", _ASK.replace("{before}", before), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert ran.stdout == ""
    return ran.stderr.splitlines()


def test_a_package_that_loads_for_long_is_named_once(tmp_path: Path) -> None:
    assert _said(tmp_path, 1.5) == ["kikuchi: loading JAX, usually for 2 to 10 seconds."]


def test_packages_that_load_at_once_are_not_named(tmp_path: Path) -> None:
    assert _said(tmp_path, 0.0) == []


@pytest.mark.parametrize("tell", ["None", "lambda text: print('told', file=sys.stderr)"])
def test_where_notices_are_off_or_go_elsewhere_this_one_does_too(tmp_path: Path, tell: str) -> None:
    before = f"from kikuchi.core.compiling import COMPILING\nCOMPILING.tell = {tell}"
    assert _said(tmp_path, 1.5, before) == ([] if tell == "None" else ["told"])
