"""Warnings and errors of the library in the words of the command that was used.

The library names parameters of Python (`raise max_iter`). A command declares which option gives
which parameter (`cli.estimators.EstimatorOptions`); here its messages name the option
(`raise --iterations`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_QUOTES = "'\""
_SYNONYMS = (
    ("--given", "--evidence"),
    ("--out", "--output", "--table", "--json"),
    ("--target", "--targets"),
    ("--state", "--states"),
    ("--report", "--plot"),
    ("--seed", "--random-state"),
    ("--iterations", "--max-iter", "--max-iterations", "--epochs", "--steps"),
)
"""Options with one meaning and several names in different commands."""
_ADVICE = re.compile(r"(?:^|[;:,(] |\bor )(?:raise|lower|give|use|try|set|more|fewer)\b[^;:(]*")


def option_names(context: Any) -> dict[str, str | None]:
    """Options by the names of parameters in Python; None for those that the command lacks.

    A parameter that the command declares itself under the same name has its option.
    """
    own = {
        parameter.name: max(parameter.opts, key=len)
        for parameter in context.command.get_params(context)
        if parameter.param_type_name == "option"
    }
    names: dict[str, str | None] = {}
    for options in getattr(context.command, "named_options", lambda _: [])(context):
        names |= options.flag_names()
    return {name: flag or own.get(name) for name, flag in names.items()}


def option_flags(command: Any, context: Any) -> dict[str, str | None]:
    """Every option of a command by its own name and by that of the parameter in Python."""
    flags: dict[str, str | None] = {
        flag: flag for p in command.get_params(context) for flag in p.opts if flag.startswith("--")
    }
    python = option_names(context) if context.command is command else {}
    return flags | {f"--{n.replace('_', '-')}": f for n, f in python.items() if f is not None}


def other_name(name: str, flags: Mapping[str, str | None]) -> str | None:
    """The option that a command has in place of one that it lacks, by which others call it.

    >>> other_name("--evidence", {"--given": "--given", "--max-iter": "--iterations"})
    '--given'
    >>> other_name("--max-iter", {"--given": "--given", "--max-iter": "--iterations"})
    '--iterations'
    """
    word = name.replace("_", "-")
    if flags.get(word):
        return flags[word]
    for group in _SYNONYMS:
        if word in group:
            return next((flags[other] for other in group if other in flags), None)
    return None


def with_flags(message: str, names: Mapping[str, str | None]) -> str:
    """The message with options in place of parameters of Python.

    `name=value` and names with an underscore are parameters wherever they stand; a plain word is
    one only where the message gives advice (raise, lower, give, use, try, set).

    >>> names = {"max_iter": "--iterations", "tol": "--tol", "prior": "--prior", "form": None}
    >>> with_flags("the prior is flat; raise max_iter or tol", names)
    'the prior is flat; raise --iterations or --tol'
    >>> with_flags("not stable: use prior='ard'; or form='square-root'", names)
    "not stable: use --prior ard; or form='square-root' (in Python)"
    """
    if not names:
        return message
    words = "|".join(sorted(map(re.escape, names), key=len, reverse=True))

    def given(found: re.Match[str]) -> str:
        flag = names[found[1]]
        return f"{found[0]} (in Python)" if flag is None else f"{flag} {found[2].strip(_QUOTES)}"

    def named(found: re.Match[str]) -> str:
        return names[found[0]] or found[0]

    def advised(found: re.Match[str]) -> str:
        return re.sub(rf"(?<![\w='.-])(?:{words})(?![\w='.-]| (?:the|an?|of)\b)", named, found[0])

    message = re.sub(rf"(?<![\w.-])({words})=('[^']*'|\"[^\"]*\"|[\w.]+)", given, message)
    marked = "|".join(word for word in words.split("|") if "_" in word)
    if marked:
        message = re.sub(rf"(?<![\w='.-])(?:{marked})(?![\w='.-])", named, message)
    return _ADVICE.sub(advised, message)
