"""Options: frozen dataclasses whose values are checked when made and written as one short text.

Inference methods and learners share this: `name:option=value,...` names one fully, on the command
line and in Python alike.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np

from kikuchi.core.errors import MethodError, suggestion

C = TypeVar("C", bound="Configured")


def option(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A dataclass field with its description and range: `low`, `high` belong to it, `above`,
    `below` do not.
    """
    limits = {"low": low, "high": high, "above": above, "below": below}
    return field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True)
class Configured:
    """Base of everything that is fully named by a short text; `kind` is its word in messages."""

    kind: ClassVar[str] = "method"
    name: ClassVar[str]
    summary: ClassVar[str]

    def __post_init__(self) -> None:
        hints = option_hints(typing.cast(Any, type(self)))
        for f in dataclasses.fields(self):
            where = f"{self.kind} {self.name}: option {f.name}"
            value = _checked(where, f, hints[f.name], getattr(self, f.name))
            object.__setattr__(self, f.name, value)

    @property
    def text(self) -> str:
        """The name and the options that differ from their defaults, as one text."""
        changed = [
            f"{f.name}={_option_text(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.name + (":" + ",".join(changed) if changed else "")


def find_class(name: str, registry: Mapping[str, str], home: str, kind: str) -> Any:
    """The class of a registered name; a registry holds `module:Class` below the package `home`."""
    if name not in registry:
        raise MethodError(f"there is no {kind} '{name}'; {suggestion(name, registry)}")
    module, attribute = registry[name].split(":")
    return getattr(import_module(f"{home}.{module}"), attribute)


def parse(text: str, find: Callable[[str], type[C]]) -> C:
    """What a text names; `find` answers the class of a name.

    A value in parentheses may hold commas, so that one method can name another.
    """
    name, _, options = text.strip().partition(":")
    cls = find(name.strip())
    label = f"{cls.kind} {cls.name}"
    hints = option_hints(typing.cast(Any, cls))
    known = [f.name for f in dataclasses.fields(cls)]
    values: dict[str, Any] = {}
    for part in filter(None, _split(label, options)):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise MethodError(f"{label}: '{part}' is not of the form option=value")
        if key not in known:
            raise MethodError(f"{label} has no option '{key}'; {suggestion(key, known)}")
        if key in values:
            raise MethodError(f"{label}: option {key} is given twice")
        values[key] = _read_value(f"{label}: option {key}", value, hints[key])
    return cls(**values)


# ---------------------------------------------------------------------- types and ranges


@functools.cache
def option_hints(cls: Any) -> dict[str, Any]:
    """Types of a method's options; looked up once, since that takes longer than a small model."""
    return typing.get_type_hints(cls)


def option_type(hint: Any) -> tuple[Any, bool]:
    """The type of an option and whether it may be None."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        inner = [t for t in typing.get_args(hint) if t is not type(None)]
        return inner[0], True
    return hint, False


def option_range(f: dataclasses.Field[Any]) -> str:
    """The range of an option for people, such as `[0, 1)`; empty when it has none."""
    m = f.metadata
    low, high, above, below = (m.get(k) for k in ("low", "high", "above", "below"))
    if low is None and above is None and high is None and below is None:
        return ""
    left = f"[{low:g}" if low is not None else f"({above:g}" if above is not None else "(-inf"
    right = f"{high:g}]" if high is not None else f"{below:g})" if below is not None else "inf)"
    return f"{left}, {right}"


def _checked(where: str, f: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    kind, optional = option_type(hint)
    if value is None and optional:
        return None
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise MethodError(
                f"{where} must be one of {', '.join(map(str, choices))}, got {value!r}"
            )
        return value
    if kind is float and isinstance(value, int | float | np.number) and not isinstance(value, bool):
        value = float(value)
    elif kind is int and isinstance(value, int | np.integer) and not isinstance(value, bool):
        value = int(value)
    elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise MethodError(f"{where} must be {_type_name(kind)}, got {value!r}")
    m = f.metadata
    if kind in (int, float) and (
        math.isnan(value)
        or (m.get("low") is not None and value < m["low"])
        or (m.get("high") is not None and value > m["high"])
        or (m.get("above") is not None and value <= m["above"])
        or (m.get("below") is not None and value >= m["below"])
    ):
        raise MethodError(f"{where} must be in {option_range(f)}, got {value}")
    return value


def _type_name(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, str(kind))


def _option_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and "," in value:
        return f"({value})"
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------- reading texts


def _split(label: str, options: str) -> list[str]:
    """Options between commas; those inside parentheses do not count."""
    parts = [""]
    depth = 0
    for letter in options:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise MethodError(f"{label}: parentheses do not match in '{options}'")
    return [part.strip() for part in parts]


def _read_value(where: str, text: str, hint: Any) -> Any:
    kind, optional = option_type(hint)
    if optional and text.lower() == "none":
        return None
    if typing.get_origin(kind) is typing.Literal:
        return next((c for c in typing.get_args(kind) if str(c) == text), text)
    if kind is bool:
        word = text.lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
    elif kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    elif kind is str:
        return text[1:-1].strip() if text.startswith("(") and text.endswith(")") else text
    raise MethodError(f"{where} cannot be '{text}'; it takes {_kind(kind)}")


def _kind(kind: Any) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "a text")
