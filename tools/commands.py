"""The options of every command, written into the page of commands from the program itself.

    python tools/commands.py             fill docs/reference/commands.md between its marks
    python tools/commands.py --check     exit code 1 if the page is not what the program says

The page is written by hand. What this tool writes stands between `<!-- command: NAME -->` and
`<!-- end -->`; a command that has no such place gets one at the end.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import typer

from kikuchi.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "commands.md"

_PLACE = re.compile(r"(<!-- command: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render(page: str) -> str:
    """The page with every place filled; a place for a command that is gone is an error."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    places = [match[2] for match in _PLACE.finditer(page)]
    gone = [name for name in places if name not in commands]
    if gone:
        raise SystemExit(f"{PAGE.name} describes {', '.join(gone)}, which kikuchi does not have")
    for name in commands:
        if name not in places:
            page += f"\n## kikuchi {name}\n\n<!-- command: {name} -->\n<!-- end -->\n"
    return _PLACE.sub(lambda m: f"{m[1]}\n{describe(m[2], commands[m[2]])}\n{m[3]}", page)


def describe(name: str, command: Any) -> str:
    """What a command does, how it is called and what it takes."""
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        lines = [f"{command.help}", "", "| kind | makes |", "|---|---|"]
        for kind in command.list_commands(context):
            sub = command.get_command(context, kind)
            lines.append(f"| `{synopsis(f'{name} {kind}', sub)}` | {cell(first_line(sub.help))} |")
        return "\n".join(lines) + "\n"
    lines = [*paragraphs(command.help), "```sh", synopsis(f"kikuchi {name}", command), "```", ""]
    context = typer.Context(command)
    rows = [row(p) for p in command.get_params(context) if p.name != "help"]
    return "\n".join([*lines, "| takes | default | meaning |", "|---|---|---|", *rows]) + "\n"


def synopsis(words: str, command: Any) -> str:
    """The command with its arguments."""
    arguments = [p.metavar or p.name.upper() for p in command.params if is_argument(p)]
    required = [f"{p.opts[0]} {p.metavar}" for p in command.params if is_required_option(p)]
    return " ".join([words, *arguments, *required])


def is_argument(parameter: Any) -> bool:
    """True for what is given by its place."""
    return bool(parameter.param_type_name == "argument")


def is_required_option(parameter: Any) -> bool:
    """True for options that must be given."""
    return bool(parameter.required) and not is_argument(parameter)


def row(parameter: Any) -> str:
    """One line of the table: an argument or an option."""
    if is_argument(parameter):
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        value = f" {parameter.metavar}" if parameter.metavar and not parameter.is_flag else ""
        names = ", ".join(f"`{opt}{value}`" for opt in parameter.opts)
    default = parameter.default
    shown = (
        f"`{default}`" if isinstance(default, str | int | float) and default is not False else ""
    )
    return f"| {names} | {shown} | {cell(parameter.help or '')} |"


def paragraphs(text: str) -> list[str]:
    """A docstring as lines, an empty line after each paragraph."""
    return [
        line for part in text.split("\n\n") for line in (" ".join(part.split()), "") if part.strip()
    ]


def first_line(text: str) -> str:
    """The first paragraph in one line."""
    return " ".join(text.split("\n\n")[0].split())


def cell(text: str) -> str:
    """A text that fits in one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare; write nothing")
    options = parser.parse_args(arguments)
    page = PAGE.read_text(encoding="utf-8")
    text = render(page)
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    fresh = text == page or not options.check
    name = PAGE.relative_to(ROOT)
    print(f"{name}: up to date" if fresh else f"{name}: not up to date; run tools/commands.py")
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main())
