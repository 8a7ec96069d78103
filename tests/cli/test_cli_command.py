"""What commands share: option groups, options of estimators, the ending, and short functions."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import cli_runner
import pytest
import typer
from typer.testing import CliRunner

import kikuchi.cli
import kikuchi_experiments.command
from kikuchi.cli.command import Limits, StrictOutput, finish, grouped, replay
from kikuchi.cli.estimators import KindCommand
from kikuchi.core.answer import Answer, TextTable

MOST_PARAMETERS = 10
MOST_LINES = 60


@dataclass
class Walker:
    """What the test command makes."""

    gait: str
    speed: float | None


@dataclass(frozen=True)
class Trip(Answer):
    """What the test command answers."""

    walker: Any

    @property
    def converged(self) -> bool:
        return bool(self.walker.speed != 13)

    @property
    def warnings(self) -> list[str]:
        return [] if self.converged else ["unlucky"]

    def facts(self) -> list[tuple[str, str]]:
        return [("what", repr(self.walker))]

    def table(self) -> TextTable:
        return TextTable(["a"], [["1"]])

    def remarks(self) -> list[str]:
        return ["that is all"]

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self.walker))


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("go", cls=KindCommand)
@grouped
def go(
    kind: Annotated[str, typer.Argument()],
    names: Annotated[list[str] | None, typer.Option("--name")] = None,
    speed: float | None = None,
    *,
    limits: Limits,
    output: StrictOutput,
) -> None:
    """Go somewhere."""

    def page(path: Path, command: str) -> None:
        path.write_text(command)

    def write(path: Path) -> None:
        path.write_text("further")

    chosen = Walker(kind, speed)
    assert names is None or limits.seconds is None
    further = output.report.with_suffix(".txt") if output.report else None
    finish(Trip(chosen), output, page=page, files=[(further, write)], notes=["bye"])


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_the_ending_of_a_command(tmp_path: Path) -> None:
    page, answer = tmp_path / "p.html", tmp_path / "a.json"
    words = ["walk", "--speed", "13", "--name", "a b", "--name", "c", "--report", page]
    result = run(*words, "--json", answer)
    assert result.exit_code == 0
    assert (
        result.stdout.startswith("what  Walker(") and "\n\na\n-\n1\nthat is all\n" in result.stdout
    )
    written = [f"written: {path}" for path in (answer, tmp_path / "p.txt", page)]
    assert result.stderr.splitlines() == ["warning: unlucky", *written, "bye"]
    assert page.read_text() == f"go walk --name 'a b' --name c --speed 13.0 --report {page}"
    assert json.loads(answer.read_text())["speed"] == 13
    quiet = run(*words, "--quiet", "--strict")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (3, "", "")
    assert run("walk", "--strict").exit_code == 0


def test_the_command_line_as_text_leaves_out_what_was_not_given() -> None:
    said = []
    small = typer.Typer(add_completion=False)

    @small.command("show")
    def show(context: typer.Context, n: int = 3, resume: bool = False, wide: bool = False) -> None:
        said.append(replay(context))

    CliRunner().invoke(small, ["--resume", "--wide"], catch_exceptions=False)
    assert said == ["show --wide"]


def functions() -> list[tuple[str, ast.FunctionDef]]:
    folder = Path(kikuchi.cli.__file__).parent
    paths = [*sorted(folder.rglob("*.py")), Path(kikuchi_experiments.command.__file__)]
    return [
        (f"{path.name}:{node.name}", node)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]


def test_no_function_of_the_command_line_is_long_or_takes_much() -> None:
    found = functions()
    assert len(found) > 100
    for name, node in found:
        taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        assert len(taken) <= MOST_PARAMETERS, name
        assert (node.end_lineno or 0) - node.lineno + 1 <= MOST_LINES, name


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    """It is shown without loading them: that it is true is held here."""
    from pkgutil import iter_modules

    from kikuchi.cli import commands
    from kikuchi.cli.main import EXTERNAL, SUMMARIES, app

    modules = {module.name.replace("_", "-") for module in iter_modules(commands.__path__)}
    assert set(SUMMARIES) == modules | set(EXTERNAL) and not modules & set(EXTERNAL)
    found = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in found.items():
        assert " ".join(command.help.split("\n\n")[0].split()) == SUMMARIES[name], name


def test_without_the_experiments_their_command_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    for words in ([], ["WH-E1", "--quick"], ["--json", "-"]):
        cli_runner.fails(["reproduce", *words], "pip install './experiments[data]' in a clone")
    shown = cli_runner.run("reproduce", "--help")
    assert shown.exit_code == 0 and "./experiments[data]" in shown.stdout
    assert cli_runner.run("examples").exit_code == 0


def test_a_command_loads_no_other() -> None:
    code = (
        "import sys, typer; from kikuchi.cli.main import app\n"
        "group = typer.main.get_command(app)\n"
        "group.get_help(typer.Context(group)) and group.get_command(None, 'examples')\n"
        "names = [n for n in sys.modules if n.startswith('kikuchi.cli.commands.')]\n"
        "assert names == ['kikuchi.cli.commands.examples'], names\n"
        "assert 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below one, with the words that name it."""
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
        return
    for name, inner in below.items():
        yield from _leaves(inner, (*words, name))


def test_commands_are_called_with_what_their_signatures_declare() -> None:
    """Newer versions of typer assert this where older ones passed on whatever was parsed."""
    from kikuchi.cli.main import app

    commands = list(_leaves(typer.main.get_command(app)))
    assert len(commands) > 20
    for words, command in commands:
        context = command.make_context(words[-1], [], resilient_parsing=True)
        passed: dict[str, Any] = {}
        context.invoke = lambda _, *, found=passed, **values: found.update(values)
        command.invoke(context)
        declared = inspect.signature(command.callback).parameters
        assert passed and passed.keys() <= declared.keys(), words
