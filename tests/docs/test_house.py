"""The rules of the house hold, and the check that says so finds what breaks them."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from project_tools import ROOT, load_tool

house = load_tool("check_house")
PUBLIC = {
    "read": "graphs",
    "infer": "methods",
    "methods": "methods",
    "kikuchi.generate.ldpc": "graphs",
}


def imports(name: str, source: str) -> list[str]:
    return list(house.import_faults(name, ast.parse(source), PUBLIC))


def banned(source: str) -> list[str]:
    return list(house.banned_faults(ast.parse(source)))


def test_the_project_keeps_the_rules() -> None:
    assert house.check() == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("kikuchi/methods/bp.py", "from kikuchi.graphs.factor_graph import FactorGraph"),
        ("kikuchi/methods/bp.py", "from kikuchi.methods.kernels import bp_binary"),
        ("kikuchi/methods/bp.py", "from .kernels import bp_binary"),
        ("kikuchi/graphs/formats/uai.py", "from ..factor_graph import FactorGraph"),
        ("kikuchi/graphs/formats/uai.py", "import kikuchi.core.errors"),
        ("kikuchi/cli/main.py", "from kikuchi import __version__"),
        ("kikuchi/cli/main.py", "from kikuchi import infer, read"),
        ("kikuchi/cli/main.py", "from kikuchi import methods"),
        ("kikuchi/cli/main.py", "from kikuchi.generate import ldpc"),
        ("kikuchi/plots/beliefs.py", "from kikuchi.core.trace import Trace"),
        ("kikuchi/reports/page.py", "from kikuchi.data import grids"),
        ("kikuchi/__init__.py", "from kikuchi.cli.main import main"),
        ("kikuchi/graphs/binary.py", "import numpy as np\nfrom dataclasses import dataclass"),
        ("kikuchi_experiments/runner.py", "from kikuchi.cli.command import finish"),
        ("kikuchi_experiments/runner.py", "from kikuchi.data.digits import digits"),
        ("kikuchi_experiments/toys/toys.py", "from kikuchi_experiments.runner import reproduce"),
    ],
)
def test_imports_that_go_down_are_allowed(name: str, source: str) -> None:
    assert imports(name, source) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("kikuchi/graphs/binary.py", "from kikuchi.methods.method import Method"),
        ("kikuchi/graphs/binary.py", "def f():\n    from kikuchi.methods import method"),
        ("kikuchi/graphs/formats/uai.py", "from ...methods import method"),
        ("kikuchi/graphs/binary.py", "from kikuchi import infer"),
        ("kikuchi/graphs/binary.py", "import kikuchi"),
        ("kikuchi/graphs/binary.py", "from kikuchi import methods"),
        ("kikuchi/core/trace.py", "from kikuchi.generate import ldpc"),
        ("kikuchi/plots/beliefs.py", "from kikuchi.graphs.factor_graph import FactorGraph"),
        ("kikuchi/core/trace.py", "from kikuchi.plots import beliefs"),
        ("kikuchi/methods/bp.py", "from kikuchi.data import grids"),
        ("kikuchi/boltzmann/estimators/rbm.py", "from kikuchi.ica import priors"),
        ("kikuchi/reports/page.py", "from kikuchi.cli import main"),
        ("kikuchi/attic/old.py", "import numpy"),
        ("kikuchi/cli/main.py", "from kikuchi_experiments.runner import reproduce"),
        ("kikuchi/cli/main.py", "import kikuchi_experiments"),
        ("kikuchi/cli/main.py", "PATH = 'kikuchi_experiments.command:reproduce'"),
        ("kikuchi/methods/registry.py", "METHODS = {'x': 'kikuchi.neural.region_networks:Renn'}"),
    ],
)
def test_imports_that_do_not_are_faults(name: str, source: str) -> None:
    assert len(imports(name, source)) == 1


def private(name: str, source: str) -> list[str]:
    return list(house.private_faults(name, ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "from kikuchi.graphs._parts import f",
        "from kikuchi.graphs import _parts",
        "import kikuchi.graphs._parts.more",
        "def f():\n    from kikuchi.graphs.parts import _f",
    ],
)
def test_private_modules_and_names_stay_in_their_room(source: str) -> None:
    (fault,) = private("kikuchi/methods/bp.py", source)
    assert fault.endswith("which is private")
    assert private("kikuchi/graphs/binary.py", source) == []
    assert private("kikuchi/methods/bp.py", "from kikuchi import __version__") == []
    assert private("kikuchi/methods/bp.py", "from numpy import _core") == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
        "try:\n    f()\nexcept:\n    x = 1",
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept (ValueError, BaseException):\n    pass",
    ],
)
def test_banned_code_is_found(source: str) -> None:
    assert len(banned(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "np.load(path, allow_pickle=False)",
        "try:\n    f()\nexcept ValueError:\n    pass",
        "try:\n    f()\nexcept BaseException:\n    clean()\n    raise",
    ],
)
def test_honest_code_is_not(source: str) -> None:
    assert banned(source) == []


def test_notes_long_modules_and_classes_among_kernels_are_found() -> None:
    note = "x = 1  # TO" + "DO later\n"
    assert len(list(house.note_faults(note))) == 1
    assert list(house.note_faults("x = 'to do'  # a plain comment\n")) == []
    assert len(list(house.length_faults("kikuchi/graphs/x.py", "\n" * 601))) == 1
    assert list(house.length_faults("kikuchi/graphs/x.py", "\n" * 600)) == []
    assert len(list(house.class_faults(ast.parse("class A: ...")))) == 1
    assert list(house.class_faults(ast.parse("class A(NamedTuple): ..."))) == []


def test_a_class_name_that_stands_twice_is_a_fault(tmp_path: Path) -> None:
    for folder in ("src/kikuchi/core", "experiments/src/kikuchi_experiments"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "things.py").write_text("class Thing:\n    pass\n")
    (tmp_path / "src" / "kikuchi" / "__init__.pyi").write_text("")
    (fault,) = house.check(tmp_path)
    assert fault.startswith(
        "class Thing stands in kikuchi/core/things.py, kikuchi_experiments/things.py"
    )


def test_machine_paths_are_found_in_any_file(tmp_path: Path) -> None:
    package = tmp_path / "src" / "kikuchi"
    package.mkdir(parents=True)
    (package / "__init__.pyi").write_text("")
    (tmp_path / "notes.md").write_text("see /" + "home/ada/models\nand https://x.org/home/page\n")
    faults = house.check(tmp_path)
    assert len(faults) == 1 and faults[0].startswith("notes.md: line 1")


def test_import_kikuchi_stays_light() -> None:
    heavy = ["numba", "scipy", "matplotlib", "networkx", "rich", "typer"]
    code = f"import sys, kikuchi; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_processes_are_started_in_one_place() -> None:
    source = ast.parse("def work():\n    from concurrent.futures import ProcessPoolExecutor\n")
    (fault,) = house.start_faults("kikuchi/ica/fitting.py", source)
    assert fault == "line 2: imports concurrent; call core.parallel.map"
    assert list(house.start_faults("kikuchi/core/worker_processes.py", source)) == []
    assert list(house.start_faults("kikuchi/ica/fitting.py", ast.parse("import threading"))) == []


def test_cycles_are_found_wherever_the_import_stands(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "core/__init__.py": "",
        "core/a.py": "from kikuchi.core.b import f",
        "core/b.py": "def f():\n    from kikuchi.core import c",
        "core/c.py": "if TYPE_CHECKING:\n    from .a import A",
        "core/d.py": "import kikuchi.core.e",
        "core/e.py": "from kikuchi.core.a import f",
    }
    for name, text in files.items():
        path = tmp_path / "src" / "kikuchi" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    cycles = house.import_cycles(house.modules(tmp_path))
    assert cycles == [["kikuchi.core.a", "kikuchi.core.b", "kikuchi.core.c"]]
    assert list(house.cycle_faults(cycles, 1)) == []
    assert "1 import cycles, at most 0" in next(house.cycle_faults(cycles, 0))


def test_functions_with_many_parameters_are_counted(tmp_path: Path) -> None:
    place = tmp_path / "src" / "kikuchi" / "core"
    place.mkdir(parents=True)
    given = ", ".join("abcdefgh")
    place.joinpath("a.py").write_text(
        f"def few({given}, *rest, **options): ...\n"
        f"class A:\n    async def many(self, {given}): ...\n"
        f"def keywords(*, {given}, i): ...\n"
    )
    found = house.many_parameters(house.modules(tmp_path))
    assert found == ["kikuchi/core/a.py: keywords has 9", "kikuchi/core/a.py: many has 9"]
    assert list(house.parameter_faults(found, 2)) == []
    assert "2 functions have more than 8 parameters, at most 1" in next(
        house.parameter_faults(found, 1)
    )


SCRIPTS = sorted(
    path for folder in ("benchmarks", "tools") for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_import_names_that_exist(path: Path) -> None:
    """Also within functions, which no other test calls: benchmarks take minutes."""
    wanted = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kikuchi")
        for alias in node.names
    ]
    missing = [
        f"{module}.{name}"
        for module, name in wanted
        if not hasattr(importlib.import_module(str(module)), name)
        and importlib.util.find_spec(f"{module}.{name}") is None
    ]
    assert not missing
