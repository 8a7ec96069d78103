"""Names of options: those that were removed, and options in messages about parameters of Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kikuchi.training.option_names import OTHER_NAMES

_QUOTES = "'\""
_SHELL: dict[str, tuple[str, ...]] = {
    "--given": ("--evidence",),
    "--output": ("--out",),
    "--targets": ("--target",),
    "--label": ("--target",),
    "--table": ("--out",),
    "--random-state": ("--seed",),
    "--features": ("--n-components",),
    "--steps": ("--max-iter",),
    "--iterations": ("--max-iter",),
    "--rate": ("--learning-rate",),
    "--batch": ("--batch-size",),
    "--decay": ("--weight-decay",),
    "--price": ("--C",),
    "--double": ("--dtype",),
}
"""Words of the command line alone; names of options in Python are in `OTHER_NAMES`."""
_ADVICE = re.compile(r"(?:^|[;:,(] |\bor )(?:raise|lower|give|use|try|set|more|fewer)\b[^;:(]*")


def new_name(name: str, flags: Iterable[str]) -> str | None:
    """The option of a command in place of one that it lacks; None if there is none.

    >>> new_name("--given", ["--evidence", "--out"]), new_name("--batch_size", ["--batch-size"])
    ('--evidence', '--batch-size')
    >>> new_name("--n-hidden", ["--n-components"]), new_name("--states", ["--n-states"])
    ('--n-components', '--n-states')
    """
    known, word = set(flags), name.replace("_", "-")
    if word in known:
        return word
    ours = OTHER_NAMES.get(word.removeprefix("--").replace("-", "_"), ())
    flags_of_ours = ("--" + name.replace("_", "-") for name in ours)
    return next((flag for flag in (*_SHELL.get(word, ()), *flags_of_ours) if flag in known), None)


def option_names(context: Any) -> dict[str, str | None]:
    """The options of the fields of an estimator by their names in Python, None where the command
    has none; empty for commands that fit no estimator.
    """
    fields = getattr(context.command.callback, "python_names", ())
    own = {
        parameter.name: max(parameter.opts, key=len)
        for parameter in context.command.get_params(context)
        if parameter.param_type_name == "option"
    }
    names = {name: own.get(name) for name in fields}
    return names | ({"random_state": "--seed"} if fields else {})


def with_flags(message: str, names: Mapping[str, str | None]) -> str:
    """The message with options in place of parameters of Python.

    `name=value` and names with an underscore are parameters wherever they occur; a plain word is
    one only where the message gives advice (raise, lower, give, use, try, set).

    >>> names = {"max_iter": "--max-iter", "tol": "--tol", "prior": "--prior", "start": None}
    >>> with_flags("the prior is flat; raise max_iter or tol", names)
    'the prior is flat; raise --max-iter or --tol'
    >>> with_flags("not stable: use prior='ard'; or start='random'", names)
    "not stable: use --prior ard; or start='random' (in Python)"
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
