"""The glossary: in order, of a useful size, and every name in it exists."""

from __future__ import annotations

import operator
import re
from importlib import import_module
from pathlib import Path

import typer

import kikuchi as kk
from kikuchi.boltzmann.rules import RULES
from kikuchi.cli.main import app
from kikuchi.ica import POSTERIORS, PRIORS
from kikuchi.learning.registry import LEARNERS
from kikuchi.methods.registry import METHODS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
TEXT = PAGE.read_text(encoding="utf-8")


def command_line() -> tuple[set[str], set[str]]:
    """Every command as it is typed, and every option."""
    commands, options = set(), set()
    root = typer.main.get_command(app)
    todo = [("kikuchi", root)]
    while todo:
        words, command = todo.pop()
        commands.add(words)
        context = typer.Context(command)
        options |= {name for p in command.get_params(context) for name in p.opts}
        for name in getattr(command, "list_commands", lambda _: [])(context):
            todo.append((f"{words} {name}", command.get_command(context, name)))
    return commands, options


def test_terms_are_in_alphabetical_order() -> None:
    terms = [term.lower() for term in re.findall(r"^\*\*(.+)\*\*$", TEXT, re.MULTILINE)]
    assert terms == sorted(terms)
    assert 50 <= len(terms) == len(set(terms)) == TEXT.count("\n:   ")


def test_every_name_exists() -> None:
    commands, options = command_line()
    words = {*METHODS, *LEARNERS, *RULES, *POSTERIORS, *PRIORS}
    names = re.findall(r"`([^`]+)`", TEXT)
    assert len(names) > 80
    for name in names:
        if name.startswith("kk."):
            assert operator.attrgetter(name[3:])(kk) is not None, name
        elif name.startswith("kikuchi."):
            module, _, attribute = name.rpartition(".")
            assert hasattr(import_module(module), attribute), name
        elif name.startswith("--"):
            assert name in options, name
        else:
            assert name in words or name in commands, name


def test_every_link_leads_to_a_page() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert targets
    for target in targets:
        assert (PAGE.parent / target).is_file(), target
