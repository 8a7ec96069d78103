"""The wheel, in an environment that has what the core declares and nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from project_tools import ROOT
from readme_files import COMMANDS, write_files


def run(*words: str | Path, cwd: Path, seconds: float = 250) -> subprocess.CompletedProcess[str]:
    """Run a command that finds nothing of the source tree, and no cache."""
    unset = ("PYTHONPATH", "NUMBA_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR")
    surroundings = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**surroundings, "XDG_CACHE_HOME": str(cwd / "cache")},
        capture_output=True,
        text=True,
        timeout=seconds,
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
    # no tests, documents or experiments
    assert all(name.startswith(("kikuchi/", "kikuchi-")) for name in names)


def test_the_wheel_of_the_experiments_holds_their_settings_and_results(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    done = run(*build, cwd=ROOT / "experiments")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (entry,) = (n for n in names if n.endswith("entry_points.txt"))
        assert "reproduce = kikuchi_experiments.command:reproduce" in archive.read(entry).decode()
    assert all(name.startswith("kikuchi_experiments") for name in names)
    source = ROOT / "experiments" / "src"
    files = [p for p in source.rglob("*") if p.suffix in (".json", ".toml")]
    assert len(files) > 60 and {p.relative_to(source).as_posix() for p in files} <= set(names)


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
    done = run(
        core_only, "-m", "kikuchi", "fit", "rbm", "rows.csv", "--out", "m.safetensors", cwd=tmp_path
    )
    assert done.returncode == 2 and "pip install '.[learn]'" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) <= 2


def test_without_the_experiments_one_line_says_how_to_get_them(
    core_only: Path, tmp_path: Path
) -> None:
    done = run(core_only, "-m", "kikuchi", "reproduce", "WH-E1", "--quick", cwd=tmp_path)
    assert done.returncode == 2 and "pip install './experiments[data]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


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


@pytest.mark.slow
@pytest.mark.seconds(3600)
def test_the_commands_of_the_readme_run_with_the_newest_versions(
    wheel: Path, tmp_path: Path
) -> None:
    """Without constraints: whatever pip finds today for an empty environment."""
    venv.create(tmp_path / "env", with_pip=True)
    commands = tmp_path / "env" / "bin"
    install = [commands / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    done = run(*install, f"{wheel}[learn]", ROOT / "experiments", cwd=tmp_path, seconds=1200)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("the registry is not reached from here")
    assert done.returncode == 0, done.stderr
    write_files(tmp_path)
    patches = shlex.split("patches photographs --count 2000 --out P.npz")
    assert run(commands / "kikuchi", *patches, cwd=tmp_path).returncode == 0
    failed = {}
    for line in dict.fromkeys(COMMANDS):
        words = shlex.split(line)[1:]
        if words[:2] == ["fit", "energy"]:
            words += ["--max-iter", "1"]  # of ten, which take minutes
        done = run(commands / "kikuchi", *words, cwd=tmp_path, seconds=1200)
        if done.returncode or not done.stdout:
            failed[line] = done.stderr[-500:]
    assert len(COMMANDS) >= 18 and not failed, failed


# ---------------------------------------------------------------------- compiled loops


@pytest.fixture(scope="module")
def compiled_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `make wheel`, which takes minutes."""
    folder = tmp_path_factory.mktemp("compiled")
    tool = [sys.executable, "tools/wheel.py", "--out", str(folder)]
    subprocess.run(tool, cwd=ROOT, check=True, capture_output=True, timeout=3000)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture
def compiled(compiled_wheel: Path, tmp_path: Path) -> Path:
    """The interpreter of an environment with that wheel beside the packages of this one."""
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", scheme))
    with zipfile.ZipFile(compiled_wheel) as archive:
        archive.extractall(site)
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def loops_of(python: Path) -> Path:
    (folder,) = python.parents[1].glob("lib/*/site-packages/kikuchi/_loops")
    return folder


@pytest.mark.slow
@pytest.mark.seconds(3600)
def test_the_wheel_of_make_wheel_compiles_nothing(compiled: Path, tmp_path: Path) -> None:
    """On models and rows other than those that the loops were compiled with."""
    from kikuchi.methods.registry import METHODS

    program = (ROOT / "tests" / "docs" / "first_calls.py").read_text(encoding="utf-8")
    done = run(compiled, "-c", program, cwd=tmp_path, seconds=1800)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert str(tmp_path) in found.pop("package")
    ran = {name: loops for name, loops in found.items() if not isinstance(loops, str)}
    assert {name.partition(" on ")[0] for name in ran} >= {*METHODS} - {"enumerate"}
    assert len(found) - len(ran) < len(METHODS)  # refusals
    assert {name: loops for name, loops in ran.items() if loops} == {}


_ANSWER = """
import kikuchi as kk
from kikuchi.core.compiling import COMPILING
graph = kk.grid(12, 12, seed=3)
print(round(kk.infer(graph, "jt").log_z, 9), COMPILING.loops > 0)
"""


@pytest.mark.slow
@pytest.mark.seconds(3600)
@pytest.mark.parametrize("fault", ["none", "versions", "features", "damaged", "source"])
def test_a_wheel_that_does_not_fit_falls_back_with_the_same_answer(
    compiled: Path, tmp_path: Path, fault: str
) -> None:
    import kikuchi as kk

    folder = loops_of(compiled)
    manifest = json.loads((folder / "manifest.json").read_text())
    if fault == "versions":
        manifest["versions"]["llvmlite"] = "0.1"
    elif fault == "features":
        manifest["features"].append("a feature that no processor has")
    elif fault == "damaged":
        for path in folder.glob("*/*.nbc"):
            path.write_bytes(path.read_bytes()[:100])
    elif fault == "source":
        for path in folder.glob("kikuchi.engines.trees*"):
            shutil.move(path, path.with_name(f"{path.name[:-16]}{'0' * 16}"))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    done = run(compiled, "-c", _ANSWER, cwd=tmp_path, seconds=600)
    assert done.returncode == 0, done.stderr
    log_z, compiles = done.stdout.split()
    assert float(log_z) == pytest.approx(kk.infer(kk.grid(12, 12, seed=3), "jt").log_z, abs=1e-8)
    assert compiles == str(fault != "none")
