"""Options of dataclasses, their texts, and registries of classes by name."""

from __future__ import annotations

import dataclasses
import types
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kikuchi.core.errors import MethodError
from kikuchi.core.options import (
    Configured,
    Registry,
    checked_options,
    checked_value,
    option,
    option_facts,
)


@dataclass(frozen=True)
class Toy(Configured):
    kind: ClassVar[str] = "toy"
    name: ClassVar[str] = "plain"
    summary: ClassVar[str] = "a toy"

    rate: float = option(0.5, "step length", above=0, high=1)
    count: int | None = option(None, "how many", low=1)
    order: Literal["up", "down"] = option("up", "direction")
    inner: str = option("", "another text")
    fast: bool = option(False, "whether it is fast")


@dataclass(frozen=True)
class Other(Toy):
    name: ClassVar[str] = "other"


TOYS: Registry[Toy] = Registry("tests", "toy", {"plain": Toy, "other": Other})


@given(st.floats(min_value=1e-300, max_value=1.0), st.none() | st.integers(1, 10**12))
def test_a_text_names_an_object_fully(rate: float, count: int | None) -> None:
    toy = Toy(rate=rate, count=count, inner="plain:rate=0.1,count=2", fast=True)
    assert TOYS.parse(toy.text) == toy


def test_round_values_are_written_without_superfluous_digits() -> None:
    assert Toy(rate=1.0).text == "plain:rate=1"
    assert Toy(rate=0.1 + 0.2).text == "plain:rate=0.30000000000000004"
    assert Toy().text == "plain"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 0.0}, r"option rate must be in \(0, 1\], got 0.0"),
        ({"rate": float("nan")}, "got nan"),
        ({"rate": "x"}, "option rate must be a number, got 'x'"),
        ({"count": 0}, r"option count must be in \[1, inf\), got 0"),
        ({"count": 1.5}, "option count must be a whole number, got 1.5"),
        ({"count": True}, "must be a whole number, got True"),
        ({"order": "left"}, "option order must be one of up, down, got 'left'"),
        ({"fast": 1}, "option fast must be true or false, got 1"),
        ({"inner": None}, "option inner must be a text, got None"),
    ],
)
def test_a_value_outside_its_type_or_range_is_an_error(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(MethodError, match=message):
        Toy(**values)


def test_numbers_of_numpy_become_plain_ones() -> None:
    toy = Toy(rate=np.float32(0.5), count=np.int64(3))
    assert type(toy.rate) is float and type(toy.count) is int


def test_any_dataclass_can_be_checked_also_with_several_types() -> None:
    @dataclass
    class Estimator:
        learner: str | Toy = option("plain", "a text or a toy")
        rate: float = option(0.1, "step length", above=0)
        data: Any = None

    globals()["Estimator"] = Estimator
    assert checked_options(Estimator(Toy(), 1), "estimator") == {"learner": Toy(), "rate": 1.0}
    with pytest.raises(MethodError, match="estimator: option learner must be a text or Toy, got 3"):
        checked_options(Estimator(3), "estimator")  # type: ignore[arg-type]
    with pytest.raises(MethodError, match="option learner must be a text or Toy, got None"):
        checked_options(Estimator(None), "estimator")  # type: ignore[arg-type]


def test_an_option_may_be_of_an_alias_with_parameters() -> None:
    """As `NDArray[np.float64]` since NumPy 2.5."""

    class Alias:
        __value__ = types.GenericAlias(np.ndarray, (Any, Any))

    field = dataclasses.fields(Toy)[0]
    hint = types.GenericAlias(Alias(), (float,))  # type: ignore[arg-type]
    rates = np.ones(2)
    assert checked_value("rates", field, hint, rates) is rates
    with pytest.raises(MethodError, match="rates must be"):
        checked_value("rates", field, hint, "many")


def test_facts_say_what_an_option_takes() -> None:
    fields = {f.name: f for f in dataclasses.fields(Toy)}
    takes = {name: option_facts(Toy, fields[name])["takes"] for name in fields}
    assert takes == {
        "rate": "number in (0, 1]",
        "count": "whole number in [1, inf) | none",
        "order": "up | down",
        "inner": "text",
        "fast": "true | false",
    }
    assert option_facts(Toy, fields["count"])["default"] == "none"


def test_the_docstring_lists_every_option_also_inherited_ones() -> None:
    from kikuchi.learning.registry import LEARNERS
    from kikuchi.methods.registry import METHODS

    for cls in (*METHODS.values(), *LEARNERS.values()):
        document = cls.__doc__ or ""
        options = dataclasses.fields(cls)
        assert document.count("Parameters\n----------") == bool(options), cls
        for f in options:
            assert f"\n{f.name} : {f.metadata['help']}" in document, (cls, f.name)
    assert "seed : seed of the random starts and orders. In [0, inf). Default: 0." in (
        METHODS["mf"].__doc__ or ""
    )


def test_a_registry_finds_parses_and_lists() -> None:
    assert list(TOYS) == ["plain", "other"] and len(TOYS) == 2 and "plain" in TOYS
    assert TOYS.find("other") is Other and TOYS["plain"] is Toy
    toy = Toy(rate=0.25)
    assert TOYS.parse(toy) is toy
    assert TOYS.help() == "plain  a toy\nother  a toy"
    with pytest.raises(MethodError, match="there is no toy 'plan'; did you mean 'plain'"):
        TOYS.find("plan")
    with pytest.raises(
        MethodError, match="toy: a string such as 'plain' or an object is required, got 3"
    ):
        TOYS.parse(3)  # type: ignore[arg-type]


def test_a_registry_imports_when_asked_and_takes_new_classes() -> None:
    lazy: Registry[Any] = Registry("kikuchi.core", "error", {"budget": "errors:BudgetError"})
    assert lazy.find("budget").__name__ == "BudgetError"
    toys: Registry[Toy] = Registry("tests", "toy", {"plain": Toy})
    assert toys.add(Other) is Other and toys.parse("other:fast=yes").fast
    assert toys.add(Other) is Other
    toys.remove("other")
    assert list(toys) == ["plain"] and toys.add(Other) is Other

    @dataclass(frozen=True)
    class Impostor(Toy):
        name: ClassVar[str] = "other"

    with pytest.raises(MethodError, match="there is a toy 'other' already"):
        toys.add(Impostor)


@pytest.mark.parametrize("nested", ["clamp:method=" * 5000, "clamp:method=(k=2," * 5000])
def test_texts_within_texts_are_refused_by_depth(nested: str) -> None:
    from kikuchi.learning.registry import LEARNERS
    from kikuchi.methods.registry import METHODS

    with pytest.raises(MethodError, match="more than 20 deep"):
        METHODS.parse(nested + "bp")
    with pytest.raises(MethodError, match="more than 20 deep"):
        LEARNERS.parse("gradient:inference=" + nested + "bp")


def test_numbers_beyond_every_float_are_refused() -> None:
    from kikuchi.methods.registry import METHODS

    for text in ("bp:damping=", "bp:max_iter=-", "gibbs:chains=-"):
        with pytest.raises(MethodError, match="option"):
            METHODS.parse(text + "9" * 400)
    with pytest.raises(MethodError, match="option"):
        METHODS.find("bp")(damping=10**400)  # type: ignore[call-arg]
