"""The wheel, in an environment that has what the core declares and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from project_tools import ROOT


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=250
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


def core_of(requirements: list[str]) -> set[str]:
    """Distributions that are needed without extras, and what these need in turn."""
    found: set[str] = set()
    waiting = [r for r in requirements if "extra ==" not in r]
    while waiting:
        line = waiting.pop()
        name = re.match(r"[\w.-]+", line)[0].lower().replace("_", "-")
        marker = line.partition(";")[2]
        if name in found or "extra" in marker or "platform" in marker or "python_version" in marker:
            continue
        found.add(name)
        waiting += metadata.requires(name) or []
    return found


@pytest.fixture(scope="module")
def core_only(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and links to what its core needs."""
    folder = tmp_path_factory.mktemp("core-only")
    venv.create(folder, with_pip=False, symlinks=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", scheme))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        (facts,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        requirements = re.findall(r"^Requires-Dist: (.*)$", archive.read(facts).decode(), re.M)
    for name in core_of(requirements):
        distribution = metadata.distribution(name)
        for top in {Path(str(f)).parts[0] for f in distribution.files or ()} - {"..", "docs"}:
            if not (site / top).exists() and top != "__pycache__":
                (site / top).symlink_to(distribution.locate_file(top))
    return folder / "bin" / "python"


def test_the_wheel_holds_what_the_package_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry,) = (n for n in names if n.endswith("entry_points.txt"))
        assert "kikuchi = kikuchi.cli.startup:main" in archive.read(entry).decode()
    assert {"kikuchi/py.typed", "kikuchi/__init__.pyi"} <= set(names)
    assert any("data/models/asia" in name for name in names)
    assert all(name.startswith("kikuchi") for name in names)  # no tests, no documents


def test_the_core_answers(core_only: Path, tmp_path: Path) -> None:
    done = run(core_only, "-m", "kikuchi", "infer", "example:asia", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lung" in done.stdout and "0.945000" in done.stdout
    version = run(core_only, "-m", "kikuchi", "--version", cwd=tmp_path).stdout
    assert "NumPy" in version and "Numba" in version and "Python" in version


def test_a_missing_extra_is_one_line_with_the_way_out(core_only: Path, tmp_path: Path) -> None:
    absent = run(core_only, "-c", "import jax", cwd=tmp_path)
    assert "ModuleNotFoundError" in absent.stderr  # the environment is what it is called
    (tmp_path / "rows.csv").write_text("a,b\n0,1\n1,0\n")
    done = run(core_only, "-m", "kikuchi", "train", "rbm", "rows.csv", "--out", "m", cwd=tmp_path)
    assert done.returncode == 2 and "pip install '.[learn]'" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) <= 2


@pytest.mark.slow
def test_the_wheel_installs_into_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """With pip and the registry, as users do; what nothing is compiled for must come quickly."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    done = run(python, "-m", "pip", "install", "--quiet", "--no-compile", wheel, cwd=tmp_path)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("the registry is not reached from here")
    assert done.returncode == 0, done.stderr
    done = run(tmp_path / "env" / "bin" / "kikuchi", "infer", "example:asia", cwd=tmp_path)
    assert done.returncode == 0 and "lung" in done.stdout, done.stderr
