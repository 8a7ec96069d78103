"""The installed command as a process of its own: start-up, signals, pipes, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kikuchi as kk

COMMAND = [sys.executable, "-m", "kikuchi"]
HEAVY = ("scipy.linalg", "scipy.sparse", "matplotlib", "networkx", "pandas")


def start(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *(str(word) for word in words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def imported_by(*words: object) -> set[str]:
    """Names of all modules that a command imports."""
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kikuchi", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip() for line in lines}


def test_help_imports_nothing_heavy() -> None:
    found = imported_by("--help")
    assert "typer" in found
    for name in (*HEAVY, "numpy", "numba", "scipy", "rich.console", "kikuchi.graphs"):
        assert name not in found, name


def test_inference_by_bp_imports_nothing_it_does_not_need(loop: Path) -> None:
    found = imported_by("infer", loop, "--method", "bp")
    assert "numba" in found
    for name in (*HEAVY, "rich.console"):
        assert name not in found, name


def test_exit_codes_and_streams(pair: Path, tmp_path: Path) -> None:
    good = start("infer", pair, "--method", "enumerate")
    assert good.returncode == 0 and good.stderr == "" and "log Z" in good.stdout
    bad = start("infer", tmp_path / "nowhere.uai")
    assert bad.returncode == 2 and bad.stdout == ""
    assert bad.stderr.count("\n") == 1 and bad.stderr.startswith("kikuchi: ")
    assert start("infer", pair, "--method", "bp:nonsense=1").returncode == 2
    assert start("infer").returncode == 2


def test_not_converged_with_strict(loop: Path) -> None:
    result = start("infer", loop, "--method", "bp:max_iter=1", "--strict", "-q")
    assert (result.returncode, result.stdout, result.stderr) == (3, "", "")


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    model = tmp_path / "g.uai"
    kk.write(kk.grid(60, 60, seed=0, coupling=0.1), model)
    process = subprocess.Popen(
        [*COMMAND, "infer", str(model), "--method", "bp", "--json", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    message = process.stderr.read().decode()
    process.stderr.close()
    process.wait(timeout=120)
    assert message == ""


def in_terminal(*words: object, stream: str) -> str:
    """What a command writes to `stream` (stdout or stderr) when that is a terminal."""
    import pty

    parent, child = pty.openpty()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: child}
    process = subprocess.Popen(
        [*COMMAND, *(str(word) for word in words)],
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "PYTHONUTF8": "1"},
        **streams,
    )
    os.close(child)
    pieces = []
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # Linux says so at the end of a terminal
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(parent)
    assert process.wait(timeout=120) == 0
    reset = "\x1b[0m"  # colorama, where it is installed, writes this at the end of any program
    return b"".join(pieces).decode().removesuffix(reset)


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
def test_a_terminal_gets_rich_tables(loop: Path) -> None:
    text = in_terminal("infer", loop, "--method", "enumerate", stream="stdout")
    assert "\x1b[" in text and "─" in text and "x2" in text
    assert in_terminal("infer", loop, "--method", "enumerate", "--quiet", stream="stdout") == ""


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
def test_a_terminal_gets_progress_with_the_residual(tmp_path: Path) -> None:
    model = tmp_path / "g.uai"
    kk.write(kk.grid(100, 100, seed=0), model)
    words = ["infer", model, "--method", "bp:tol=0,max_iter=1000000", "--seconds", "0.8"]
    text = in_terminal(*words, stream="stderr")
    assert "residual" in text and "/1000000" in text
    assert in_terminal(*words, "--quiet", stream="stderr") == ""


def interrupted(patch: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A command whose program is patched first, so that Ctrl-C comes at a known place."""
    arguments = ["kikuchi", *(str(word) for word in words)]
    program = (
        "import os, signal, sys\n"
        "def ctrl_c(*_, **__):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        f"{patch}\n"
        "from kikuchi.cli.startup import main\n"
        f"sys.argv = {arguments!r}\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_while_streams_are_prepared(tmp_path: Path) -> None:
    """A stream that is being set up has no encoder for a moment, and could not be written to."""
    while_set_up = (
        "import kikuchi.cli.startup as s\n"
        "ready = s.prepare_streams\n"
        "s.prepare_streams = lambda: (ctrl_c(), print('set up'), ready())"
    )
    result = interrupted(while_set_up, "examples")
    assert (result.returncode, result.stdout) == (130, "set up\n")
    assert result.stderr == "kikuchi: interrupted\n"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_gives_the_best_so_far(tmp_path: Path) -> None:
    model = tmp_path / "g.uai"
    kk.write(kk.grid(50, 50, seed=0), model)
    at_first_report = "import kikuchi.cli.console as c; c.ProgressBar.__call__ = ctrl_c"
    endless = "bp:tol=0,max_iter=1000000000"
    result = interrupted(at_first_report, "infer", model, "--method", endless)
    assert result.returncode == 0, result.stderr
    assert "no: interrupted" in result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_stops_a_comparison_after_the_running_method(tmp_path: Path) -> None:
    model = tmp_path / "g.uai"
    kk.write(kk.grid(50, 50, seed=0), model)
    at_first_report = "import kikuchi.cli.console as c; c.ProgressBar.__call__ = ctrl_c"
    methods = "bp:tol=0,max_iter=1000000000,mf"
    result = interrupted(at_first_report, "compare", model, "--methods", methods, "--memory", "2MB")
    assert result.returncode == 0, result.stderr
    assert "no (interrupted)" in result.stdout
    assert "mf: not run: interrupted" in result.stdout


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_elsewhere_exits_with_130(pair: Path) -> None:
    while_reading = "import kikuchi.cli.inputs as inputs; inputs.load_model = ctrl_c"
    result = interrupted(while_reading, "infer", pair, "--method", "enumerate")
    assert (result.returncode, result.stderr) == (130, "kikuchi: interrupted\n")


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize(
    "pressed",
    [
        "    ctrl_c()\n",
        "    try:\n        ctrl_c()\n    except BaseException:\n        raise SystemError('odd')\n",
        "    class Last:\n        __del__ = ctrl_c\n    Last()\n    time.sleep(60)\n",
        "    class Half:\n        def __del__(self):\n            self.made\n"
        "    half = Half()\n    ctrl_c()\n",
    ],
    ids=["passed on", "turned into an error", "swallowed", "half made"],
)
@pytest.mark.parametrize("where", ["kikuchi.cli.main", "kikuchi.graphs.formats"])
def test_ctrl_c_while_loading_is_one_line(pair: Path, pressed: str, where: str) -> None:
    patch = (
        "import importlib.abc, time\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {where!r}:\n"
        "            press()\n"
        f"def press():\n{pressed}"
        "sys.meta_path.insert(0, Finder())\n"
    )
    result = interrupted(patch, "infer", pair, "--method", "enumerate")
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == "kikuchi: interrupted\n"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_destructors_that_fail_without_ctrl_c_are_told(pair: Path) -> None:
    patch = (
        "import kikuchi.cli.inputs as inputs\n"
        "class Half:\n    def __del__(self):\n        self.made\n"
        "load = inputs.load_model\n"
        "inputs.load_model = lambda *words: (Half(), load(*words))[1]\n"
    )
    result = interrupted(patch, "infer", pair, "--method", "enumerate")
    assert result.returncode == 0
    assert "'Half' object has no attribute 'made'" in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_that_is_ignored_stays_ignored(pair: Path) -> None:
    patch = (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import kikuchi.cli.inputs as inputs\n"
        "load = inputs.load_model\n"
        "inputs.load_model = lambda *words: (ctrl_c(), load(*words))[1]\n"
    )
    result = interrupted(patch, "infer", pair, "--method", "enumerate")
    assert (result.returncode, result.stderr) == (0, "")
