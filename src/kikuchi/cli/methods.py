"""`kikuchi methods`: every method with its options."""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.core.options import Configured
    from kikuchi.inference.method import Method


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show one method only.")
    ] = None,
    json: options.Json = None,
) -> None:
    """List the methods and their options."""
    from kikuchi.cli.console import Screen
    from kikuchi.cli.outputs import STANDARD_OUTPUT, check_outputs, write_json
    from kikuchi.inference.registry import DEFAULT, METHODS, method_class

    check_outputs("", json)
    classes = [method_class(word) for word in ([name] if name else METHODS)]
    if json is not None:
        write_json([_as_data(cls) for cls in classes], json)
    screen = Screen(quiet=json == STANDARD_OUTPUT)
    screen.line("A method is written name:option=value,option=value, for example")
    screen.line(f"bp:damping=0.5,schedule=residual. The default method is {DEFAULT}.")
    for cls in classes:
        screen.line()
        screen.line(f"{cls.name}  {cls.summary}")
        if cls.takes_observed_marginals:
            screen.line("takes observed marginals (x4=0.3:0.7) besides observed states")
        described = [option_facts(cls, f) for f in dataclasses.fields(cls)]
        rows = [[d["option"], d["takes"], d["default"], d["help"]] for d in described]
        if rows:
            screen.table(["option", "takes", "default", "meaning"], rows)


def option_facts(cls: type[Configured], f: dataclasses.Field[Any]) -> dict[str, str]:
    """Name, what it takes, default and meaning of one option, as texts."""
    from kikuchi.core.options import option_range, option_type

    kind, optional = option_type(typing.get_type_hints(cls)[f.name])
    if typing.get_origin(kind) is typing.Literal:
        takes = " | ".join(str(choice) for choice in typing.get_args(kind))
    else:
        names = {int: "whole number", float: "number", bool: "true | false", str: "text"}
        takes = " in ".join(filter(None, [names.get(kind, str(kind)), option_range(f)]))
    return {
        "option": f.name,
        "takes": takes + (" | none" if optional else ""),
        "default": _default_text(f.default),
        "help": str(f.metadata.get("help", "")),
    }


def _default_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _as_data(cls: type[Method]) -> dict[str, Any]:
    described = [option_facts(cls, f) for f in dataclasses.fields(cls)]
    return {
        "method": cls.name,
        "summary": cls.summary,
        "takes_observed_marginals": cls.takes_observed_marginals,
        "options": described,
    }
