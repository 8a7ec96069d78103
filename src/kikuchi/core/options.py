"""Options and registries: dataclasses with checked values, named by a specification string.

Inference methods, learners, priors and optimisers share this: the specification string
`name:option=value,...` describes one completely, on the command line and in Python. A `Registry`
contains all classes of one kind by name.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np

from kikuchi.core.errors import MethodError, suggestion
from kikuchi.core.extensions import extensions
from kikuchi.core.extras import extras_named

T = TypeVar("T")

_DEEPEST = 20  # nested specification strings
_ROWS = re.compile(r" \([A-Z]+-[^()]*\)")  # rows of the catalogues, such as (TEH-L4, WH-L2)
_LIMITS = ("low", "high", "above", "below")
_ARTICLES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_KINDS = {int: "whole number", float: "number", bool: "true | false", str: "text"}


def option(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """Declare a dataclass field with its description and range: `low` and `high` are included in
    it, `above` and `below` are not.
    """
    limits = {"low": low, "high": high, "above": above, "below": below}
    return field(default=default, metadata={"help": help, **limits})


def fixed(value: Any) -> Any:
    """Declare that an option of a parent class is fixed in this one: it always has this value.

    >>> @dataclass
    ... class Sampler:
    ...     rate: float = option(0.1, "step length", above=0)
    >>> @dataclass
    ... class UnitSampler(Sampler):
    ...     rate: float = fixed(1.0)
    >>> UnitSampler().rate, inspect.signature(UnitSampler).parameters
    (1.0, mappingproxy(OrderedDict()))
    """
    return field(default=value, init=False)


def layer_sizes(given: Any, name: str) -> tuple[int, ...]:
    """Sizes of hidden layers given as the option `name`: a whole number, several, or "8,24".

    >>> layer_sizes("8,24", "hidden_layer_sizes")
    (8, 24)
    """
    sizes = (given,) if isinstance(given, int | np.integer) else given
    try:
        found = tuple(float(n) for n in (sizes.split(",") if isinstance(sizes, str) else sizes))
    except (TypeError, ValueError):
        found = ()
    if not found or not all(n >= 1 and n.is_integer() for n in found):
        raise MethodError(
            f"{name} are the sizes of at least one hidden layer, such as (8, 24), got {given!r}"
        )
    return tuple(int(n) for n in found)


@dataclass(frozen=True)
class Configured:
    """Base class of objects with a specification string; `kind` is the word for them in messages,
    given as `class Base(Configured, kind="method")`.

    `summary` is the first line of the docstring, without row ids, unless the class overrides it.
    The options are listed at the end of the docstring.
    """

    kind: ClassVar[str] = "method"
    name: ClassVar[str]
    summary: ClassVar[str] = ""

    def __init_subclass__(cls, *, kind: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.kind = kind or cls.kind
        if "summary" not in vars(cls) and cls.__doc__:
            line = _ROWS.sub("", cls.__doc__.partition("\n")[0]).removesuffix(".")
            cls.summary = line[:1].lower() + line[1:]
        list_options(cls)

    def __post_init__(self) -> None:
        for name, value in checked_options(self, f"{self.kind} {self.name}").items():
            object.__setattr__(self, name, value)

    @property
    def text(self) -> str:
        """The specification string: the name and the options that differ from their defaults."""
        changed = [
            f"{f.name}={option_text(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.name + (":" + ",".join(changed) if changed else "")


class Registry(Mapping[str, type[T]], Generic[T]):
    """Classes of one `kind` by name, each imported on first use.

    `entries` maps a name to `module:Class` below the package `home`, or to the class itself; the
    classes have the same `kind`. Entries that higher packages have added to this `home`
    (`core.extensions`) follow, with full paths; None reserves the position of an added name among
    the entries.

    >>> from kikuchi.methods.registry import METHODS
    >>> METHODS.find("bp").__name__, METHODS.parse("bp:damping=0.5").damping
    ('BeliefPropagation', 0.5)
    """

    def __init__(self, home: str, kind: str, entries: Mapping[str, str | type[T] | None]) -> None:
        self.home = home
        self.kind = kind
        added = extensions(home)
        own = {
            name: f"{home}.{entry}" if isinstance(entry, str) else entry or added[name]
            for name, entry in entries.items()
        }
        self._entries: dict[str, str | type[T]] = {**own, **added}

    def __getitem__(self, name: str) -> type[T]:
        entry = self._entries[name]
        if isinstance(entry, str):
            module, attribute = entry.split(":")
            with extras_named():
                entry = cast("type[T]", getattr(import_module(module), attribute))
            self._entries[name] = entry
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, cls: type[T]) -> type[T]:
        """Register a class under its own `name`; works as a decorator."""
        name = cast(Any, cls).name
        if name in self._entries and self[name] is not cls:
            raise MethodError(f"there is a {self.kind} '{name}' already; use another name")
        self._entries[name] = cls
        return cls

    def remove(self, name: str) -> None:
        """Remove a class that `add` registered."""
        del self._entries[name]

    def find(self, name: str) -> type[T]:
        """Return the class of a registered name; the error for an unknown name suggests known
        ones.
        """
        if name not in self._entries:
            raise MethodError(f"there is no {self.kind} '{name}'; {suggestion(name, self)}")
        return self[name]

    def parse(self, text: str | T, more: Mapping[str, Any] | None = None) -> T:
        """Return the object described by a specification string; an object of this kind is returned
        unchanged.

        A value in parentheses may contain commas, so that one specification can contain another.
        `more` are further options by name.
        """
        chosen = self._parse(text)
        if not more:
            return chosen
        known = [f.name for f in dataclasses.fields(cast(Any, chosen))]
        for name in more:
            if name not in known:
                label = f"{self.kind} {cast(Any, chosen).name}"
                raise MethodError(f"{label} has no option '{name}'; {suggestion(name, known)}")
        return cast(T, dataclasses.replace(cast(Any, chosen), **more))

    def _parse(self, text: str | T) -> T:
        if isinstance(text, str):
            if text.count(":") > _DEEPEST:
                raise MethodError(
                    f"a {self.kind} within a {self.kind}, more than {_DEEPEST} deep: "
                    f"'{text[:40]}...'; name a simpler one"
                )
            name, _, options = text.strip().partition(":")
            cls = self.find(name.strip())
            return cls(**_read_options(cls, options))
        if isinstance(text, Configured) and text.kind == self.kind:
            return text
        got = f"the class itself; write {text.__name__}()" if isinstance(text, type) else repr(text)
        raise MethodError(
            f"{self.kind}: a string such as '{next(iter(self))}' or an object is required, got "
            f"{got}"
        )

    def help(self) -> str:
        """Return every name with its summary, one per line."""
        width = max(map(len, self))
        return "\n".join(f"{name:{width}}  {cast(Any, self[name]).summary}" for name in self)


# ---------------------------------------------------------------------- types and ranges


@functools.cache
def option_hints(cls: Any) -> dict[str, Any]:
    """Return the types of a method's options, cached because the lookup takes longer than a small
    model.
    """
    return typing.get_type_hints(cls)


def option_types(hint: Any) -> tuple[list[Any], bool]:
    """Return the types that an option may have, and whether it may be None."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        members = typing.get_args(hint)
        return [t for t in members if t is not type(None)], type(None) in members
    return [hint], False


def option_range(f: dataclasses.Field[Any]) -> str:
    """Return the range of an option as text, such as `[0, 1)`; empty if it has none."""
    low, high, above, below = (f.metadata.get(k) for k in _LIMITS)
    if low is None and above is None and high is None and below is None:
        return ""
    left = f"[{low:g}" if low is not None else f"({above:g}" if above is not None else "(-inf"
    right = f"{high:g}]" if high is not None else f"{below:g})" if below is not None else "inf)"
    return f"{left}, {right}"


def list_options(cls: type) -> None:
    """Add the options of a class to its docstring: meaning, range and default of each.

    Called during class creation, before `dataclass` has processed the fields.
    """
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= getattr(base, "__dataclass_fields__", {})
    fields |= {n: f for n, f in vars(cls).items() if isinstance(f, dataclasses.Field)}
    lines = []
    for name, f in fields.items():
        if "help" in f.metadata:
            limits = option_range(f)
            where = f" In {limits}." if limits else ""
            lines.append(f"{name} : {_sentence(f.metadata['help'])}{where} Default: {f.default!r}.")
    if cls.__doc__ and lines:
        section = "\n".join(["Parameters", "----------", *lines])
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{section}"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def option_facts(cls: Any, f: dataclasses.Field[Any]) -> dict[str, str]:
    """Return the name, type and range, default and meaning of one option, as strings."""
    kinds, optional = option_types(option_hints(cls)[f.name])
    takes = [_takes(kind, option_range(f)) for kind in kinds] + ["none"] * optional
    return {
        "option": f.name,
        "takes": " | ".join(takes),
        "default": option_text(f.default),
        "help": str(f.metadata.get("help", "")),
    }


def _takes(kind: Any, limits: str) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return " | ".join(map(str, typing.get_args(kind)))
    name = str(_KINDS.get(kind) or getattr(kind, "__name__", kind))
    return f"{name} in {limits}" if limits and kind in (int, float) else name


def checked_options(instance: Any, label: str) -> dict[str, Any]:
    """Return the options of a dataclass instance by name, checked for type and range.

    Integers given for floats, and NumPy scalars, are converted to plain Python numbers. `label`
    names the instance in messages. Only fields declared with `option` are checked.

    >>> @dataclass
    ... class Sampler:
    ...     rate: float = option(0.1, "step length", above=0)
    >>> checked_options(Sampler(1), "sampler")
    {'rate': 1.0}
    >>> checked_options(Sampler(-1), "sampler")
    Traceback (most recent call last):
        ...
    kikuchi.core.errors.MethodError: sampler: option rate must be in (0, inf), got -1.0
    """
    hints = option_hints(cast(Any, type(instance)))
    return {
        f.name: checked_value(
            f"{label}: option {f.name}", f, hints[f.name], getattr(instance, f.name)
        )
        for f in dataclasses.fields(instance)
        if "help" in f.metadata
    }


def checked_value(where: str, f: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    """Return one value of an option, checked for type and range; `where` names it in messages."""
    kinds, optional = option_types(hint)
    if value is None and optional:
        return None
    for kind in kinds:
        fits, plain = _as_kind(kind, value)
        if fits:
            if kind in (int, float) and not _in_range(f, plain):
                raise MethodError(f"{where} must be in {option_range(f)}, got {plain}")
            return plain
    raise MethodError(f"{where} must be {' or '.join(map(_wanted, kinds))}, got {value!r}")


def _as_kind(kind: Any, value: Any) -> tuple[bool, Any]:
    """Return whether a value has a type, and the value converted to it."""
    if typing.get_origin(kind) is typing.Literal:
        return value in typing.get_args(kind), value
    if isinstance(value, bool):
        return kind is bool, value
    if kind is float and isinstance(value, int | float | np.number):
        try:
            return True, float(value)
        except OverflowError:  # an integer too large for a float
            return False, value
    if kind is int and isinstance(value, int | np.integer):
        return True, int(value)
    return isinstance(value, _class_of(kind)), value


def _class_of(kind: Any) -> Any:
    """Return the class of a parametrised type, such as ndarray for NDArray[np.float64]."""
    found = typing.get_origin(kind) or kind
    while hasattr(found, "__value__"):  # an alias, which NDArray is since NumPy 2.5
        found = typing.get_origin(found.__value__) or found.__value__
    return found


def _in_range(f: dataclasses.Field[Any], value: float) -> bool:
    low, high, above, below = (f.metadata.get(k) for k in _LIMITS)
    return not (
        value != value  # NaN, also for an integer too large for a float
        or (low is not None and value < low)
        or (high is not None and value > high)
        or (above is not None and value <= above)
        or (below is not None and value >= below)
    )


def _wanted(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(kind)))}"
    return str(_ARTICLES.get(kind) or getattr(kind, "__name__", kind))


# ---------------------------------------------------------------------- texts


def option_text(value: Any) -> str:
    """Return a value as written in a specification string; parsing it gives exactly the same value.

    >>> option_text(0.1 + 0.2), option_text(1e-6), option_text(100.0), option_text(None)
    ('0.30000000000000004', '1e-06', '100', 'none')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and "," in value:
        return f"({value})"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def _read_options(cls: Any, options: str) -> dict[str, Any]:
    """Return the values of `option=value,...` by name, parsed as the types of the class's
    options.
    """
    label = f"{cls.kind} {cls.name}"
    hints = option_hints(cls)
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
    return values


def _split(label: str, options: str) -> list[str]:
    """Split options at commas outside parentheses."""
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
    kinds, optional = option_types(hint)
    if optional and text.lower() == "none":
        return None
    kind = kinds[0]
    if typing.get_origin(kind) is typing.Literal:
        return next((c for c in typing.get_args(kind) if str(c) == text), text)
    if kind is str:
        return text[1:-1].strip() if text.startswith("(") and text.endswith(")") else text
    words = {"true": True, "yes": True, "on": True, "1": True}
    words |= {"false": False, "no": False, "off": False, "0": False}
    if kind is bool and text.lower() in words:
        return words[text.lower()]
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:  # the message below describes the option
            pass
    raise MethodError(f"{where} cannot be '{text}'; it takes {_ARTICLES.get(kind, 'a text')}")
