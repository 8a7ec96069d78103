"""Commands whose options come from estimators, under every version of typer that we allow."""

from __future__ import annotations

import inspect

import pytest
import typer.main

from kikuchi.cli.estimators import EstimatorCommand
from kikuchi.cli.main import app


def _commands(command, name=""):
    if hasattr(command, "commands"):
        for word, below in command.commands.items():
            yield from _commands(below, f"{name} {word}")
    elif isinstance(command, EstimatorCommand) and getattr(command.callback, "generated", []):
        yield name.strip(), command


COMMANDS = dict(_commands(typer.main.get_command(app)))


def test_the_commands_are_found():
    assert set(WORDS) <= set(COMMANDS)


WORDS = {
    "train": ["rbm", "ROWS.csv", "--hidden", "7", "--out", "M.safetensors"],
    "ica fit": ["ROWS.csv", "--sources", "3", "--out", "M"],
    "temporal fit": ["hmm", "ROWS.csv", "--states", "3"],
}


@pytest.mark.parametrize("name", WORDS)
def test_the_function_gets_the_parameters_of_its_signature_only(name, monkeypatch):
    """Typer 0.29 refuses to hand on others."""
    command, words = COMMANDS[name], WORDS[name]
    got = {}
    monkeypatch.setattr(command, "callback", _recorder(command.callback, got))
    with command.make_context(name, words) as context:
        command.invoke(context)
        given = context.params
    declared = set(inspect.signature(command.callback).parameters)
    assert set(got) <= declared
    assert set(given) > set(got)  # the options of estimators stay in the context


def _recorder(callback, got):
    def record(**values):
        got.update(values)

    record.generated = callback.generated
    record.__signature__ = inspect.signature(inspect.unwrap(callback, stop=_has_signature))
    return record


def _has_signature(function):
    return hasattr(function, "__signature__")
