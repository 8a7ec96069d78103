"""Where compiled loops are kept, and when those that are shipped are used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kikuchi.core import loop_cache
from kikuchi.core.cache_folder import cache_home

_LOOP = """
from kikuchi.core.compiled import njit

@njit(cache=True)
def total(n):
    s = 0.0
    for i in range(n):
        s += 0.5 * i
    return s
"""
_RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kikuchi.core import loop_cache
loop_cache.SHIPPED = Path(sys.argv[2])
import loops
from kikuchi.core.compiling import COMPILING
print(loops.total(5), COMPILING.compiled > 0)
"""
_BUILD = (
    "import sys; from pathlib import Path; from kikuchi.core.loop_cache import write_manifest; "
)
_BUILD += "write_manifest(Path(sys.argv[1]))"


def _python(code: str, *words: object, cache: Path, **environment: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return run.stdout.split()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "loops.py").write_text(_LOOP, encoding="utf-8")
    return folder


def test_a_copy_of_the_source_elsewhere_uses_what_was_compiled(source, tmp_path):
    none, cache = tmp_path / "none", tmp_path / "cache"
    assert _python(_RUN, source, none, cache=cache) == ["5.0", "True"]
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "loops.py").write_text(_LOOP, encoding="utf-8")  # with another time
    assert _python(_RUN, copy, none, cache=cache) == ["5.0", "False"]
    # Of another length: byte code is recognised by the second and the size of its source.
    (copy / "loops.py").write_text(_LOOP.replace("0.5", "1.500"), encoding="utf-8")
    assert _python(_RUN, copy, none, cache=cache) == ["15.0", "True"]


def test_the_stamp_follows_what_a_module_imports(tmp_path, monkeypatch):
    inner = tmp_path / "inner.py"
    inner.write_text("RATE = 1\n", encoding="utf-8")
    outer = tmp_path / "outer.py"
    outer.write_text("from kikuchi.made_up import RATE\n", encoding="utf-8")
    monkeypatch.setattr(loop_cache, "find_spec", lambda name: type("S", (), {"origin": str(inner)}))
    before = loop_cache.source_stamp.__wrapped__(str(outer))
    assert loop_cache.source_stamp.__wrapped__(str(outer)) == before
    inner.write_text("RATE = 2\n", encoding="utf-8")
    assert loop_cache.source_stamp.__wrapped__(str(outer)) != before


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files on this system")
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = loop_cache.user_folder.__wrapped__()
    assert folder is not None and folder.parent == tmp_path
    folder.chmod(0o777)
    assert loop_cache.user_folder.__wrapped__() is None
    folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert loop_cache.user_folder.__wrapped__() is None


@pytest.fixture
def shipped(source: Path, tmp_path: Path) -> Path:
    """A folder of loops as the wheel has it, compiled for the baseline."""
    if not loop_cache.has_features(list(loop_cache.FEATURES)):
        pytest.skip(f"the processor is not one of {loop_cache.BASELINE}")
    baseline = {"NUMBA_CPU_NAME": loop_cache.BASELINE, "NUMBA_CPU_FEATURES": ""}
    built = tmp_path / "built"
    _python(_RUN, source, tmp_path / "none", cache=built, **baseline)
    (folder,) = built.glob("numba-*")
    _python(_BUILD, folder, cache=built, **baseline)
    return folder


def test_shipped_loops_are_used_without_compiling(source, shipped, tmp_path):
    assert _python(_RUN, source, shipped, cache=tmp_path / "new") == ["5.0", "False"]


@pytest.mark.parametrize("fault", ["damaged", "cut", "version", "features", "manifest", "source"])
def test_shipped_loops_that_do_not_fit_are_compiled_anew(source, shipped, tmp_path, fault):
    if fault in ("damaged", "cut"):
        for path in shipped.glob("*/*.nbc"):
            content = path.read_bytes()
            path.write_bytes(b"\x00" * 99 if fault == "damaged" else content[: len(content) // 2])
    elif fault == "source":
        (source / "loops.py").write_text(_LOOP + "# changed\n", encoding="utf-8")
    else:
        manifest = shipped / loop_cache.MANIFEST
        found = json.loads(manifest.read_text(encoding="utf-8"))
        if fault == "version":
            found["versions"]["numba"] = "0.1"
        elif fault == "features":
            found["features"] = ["a feature that no processor has"]
        else:
            found = []
        manifest.write_text(json.dumps(found), encoding="utf-8")
    assert _python(_RUN, source, shipped, cache=tmp_path / "new") == ["5.0", "True"]
    assert _python(_RUN, source, shipped, cache=tmp_path / "new") == ["5.0", "False"]


def test_loops_are_kept_below_the_cache_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_home() == tmp_path / "kikuchi"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_home() == Path.home() / ".cache" / "kikuchi"
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = loop_cache.user_folder.__wrapped__()
    assert folder is not None and folder.is_relative_to(tmp_path / "kikuchi" / "loops")
    shutil.rmtree(tmp_path / "kikuchi")
