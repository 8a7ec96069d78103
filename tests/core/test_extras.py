"""A package of an extra that is not installed is one line with the command that installs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module

import pytest
from tests.docs.project_tools import ROOT

import kikuchi
from kikuchi.core.errors import MissingExtraError
from kikuchi.core.extras import EXTRAS, extras_named

LEARN = ",".join(EXTRAS["learn"])


def without(packages: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that cannot import these packages."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({packages!r}.split(',')))"
    return subprocess.run(
        [sys.executable, "-c", f"{hide}\n{program}"], capture_output=True, text=True, check=False
    )


def test_the_extras_are_those_of_the_project() -> None:
    library, beside = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (".", "experiments")
    )
    stated = dict(library["optional-dependencies"])
    stated["experiments"] = [beside["name"], *beside["optional-dependencies"]["data"][1:]]
    for extra, packages in EXTRAS.items():
        assert {line.partition(">=")[0] for line in stated[extra]} == {
            {"sklearn": "scikit-learn", "kikuchi_experiments": "kikuchi-experiments"}.get(p, p)
            for p in packages
        }


def test_the_experiments_have_the_version_of_the_library() -> None:
    text = (ROOT / "experiments" / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    assert project["version"] == kikuchi.__version__
    assert project["dependencies"] == [f"kikuchi[learn]=={kikuchi.__version__}"]


def test_only_packages_of_extras_are_explained() -> None:
    says = r"needs jax, .*pip install '\.\[learn\]'"
    with pytest.raises(MissingExtraError, match=says), extras_named():
        raise ModuleNotFoundError("No module named 'jax.numpy'", name="jax.numpy")
    with pytest.raises(ModuleNotFoundError, match="elsewhere"), extras_named():
        import_module("elsewhere")


def test_every_family_says_what_to_install() -> None:
    program = """
import importlib
import kikuchi as kk
for room in ("boltzmann", "energy", "ica", "beliefnets", "bayesnn", "temporal", "flows"):
    module = importlib.import_module("kikuchi." + room)
    for name in module.__all__:
        try:
            getattr(module, name)
        except kk.KikuchiError as error:
            assert "pip install '.[learn]'" in str(error), error
"""
    ran = without(LEARN, program)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    "ask",
    [
        "kk.learn(kk.grid(2, 2), [[0, 1, 0, 1]] * 3, 'gradient:solver=adam')",
        "__import__('kikuchi.neural').neural.log_z(kk.grid(2, 2))",
        "__import__('kikuchi.neural').neural.crf_loss(kk.grid(2, 2), [0.0], [0])",
    ],
)
def test_functions_say_what_to_install(ask: str) -> None:
    ran = without(LEARN, f"import kikuchi as kk\n{ask}")
    assert "pip install '.[learn]'" in ran.stderr.splitlines()[-1]


def test_commands_say_what_to_install_in_one_line() -> None:
    program = "sys.argv = ['kikuchi', 'fit', 'flow', 'rows.csv', '-o', 'm.safetensors']\n"
    ran = without(LEARN, f"{program}from kikuchi.cli.startup import main; main()")
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1 and "pip install '.[learn]'" in ran.stderr


def test_an_import_without_its_extra_shows_the_line_of_the_user_and_the_remedy() -> None:
    ran = without(LEARN, "from kikuchi.boltzmann import RBM")
    assert ran.returncode == 1
    assert ran.stderr.count("Traceback") == 1
    places = [line for line in ran.stderr.splitlines() if line.startswith('  File "')]
    assert len(places) == 2  # the line itself, and the one that raises
    assert "importlib" not in ran.stderr
    assert "pip install '.[learn]'" in ran.stderr.splitlines()[-1]


def test_no_text_names_a_package_that_is_not_published() -> None:
    places = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    wrong = re.compile(r"pip install ['\"]?kikuchi")
    assert not [str(p) for p in places if wrong.search(p.read_text(encoding="utf-8"))]
