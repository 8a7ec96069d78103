"""States become arrays, come back and are copied by their fields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kikuchi.engines.loops.state import Held, Iterations, State, names_of


@dataclass(eq=False)
class _Pair(State):
    values: np.ndarray
    more: np.ndarray
    number: int = 3
    level: float = 0.25
    done: bool = False


def _pair() -> _Pair:
    return _Pair(np.arange(3.0), np.zeros((0, 2), dtype=np.int64), 7, np.inf, True)


def test_arrays_hold_every_field_and_come_back_with_their_types() -> None:
    state = _pair()
    arrays = state.to_arrays()
    assert list(arrays) == ["values", "more", "number", "level", "done"]
    back = _Pair(np.zeros(3), np.ones((0, 2), dtype=np.int64))
    back.load({**arrays, "trace/residual": np.zeros(4)})
    assert back.values.tolist() == [0.0, 1.0, 2.0] and back.more.shape == (0, 2)
    assert (back.number, back.level, back.done) == (7, np.inf, True)
    assert [type(x) for x in (back.number, back.level, back.done)] == [int, float, bool]


def test_arrays_are_not_those_of_the_state() -> None:
    state = _pair()
    arrays, copy = state.to_arrays(), state.copy()
    back = _Pair(np.zeros(3), np.zeros((0, 2), dtype=np.int64))
    back.load(arrays)
    state.values[:] = -1.0
    for other in (arrays["values"], copy.values):
        assert other.tolist() == [0.0, 1.0, 2.0]
    arrays["values"][:] = 5.0
    assert back.values.tolist() == [0.0, 1.0, 2.0]


def test_assignment_writes_into_the_arrays_of_an_engine() -> None:
    engine = np.zeros(3)
    state = _Pair(engine, np.zeros((0, 2), dtype=np.int64))
    state.assign(_pair())
    assert state.values is engine and engine.tolist() == [0.0, 1.0, 2.0]
    assert (state.number, state.level, state.done) == (7, np.inf, True)


def test_assignment_of_another_size_copies() -> None:
    state, other = _pair(), _Pair(np.ones(5), np.ones((1, 2), dtype=np.int64))
    state.assign(other)
    other.values[:] = 0.0
    assert state.values.tolist() == [1.0] * 5 and state.more.shape == (1, 2)


@dataclass(eq=False)
class _Whole(State):
    pair: _Pair
    model: Held[tuple[float, float]]
    named: dict[str, np.ndarray]
    rng: np.random.Generator
    scores: list[float]
    engines: tuple[State, ...]


def _whole(seed: int = 0) -> _Whole:
    model = Held(None, _read, lambda model: {"both": np.array(model)})
    engines = (Iterations(seed), Iterations(2))
    return _Whole(_pair(), model, {}, np.random.default_rng(seed), [], engines)


def _read(arrays: dict[str, np.ndarray]) -> tuple[float, float]:
    first, second = arrays["both"].tolist()
    return first, second


def test_parts_of_every_kind_come_back() -> None:
    state, back = _whole(1), _whole()
    state.model.value, state.named, state.scores = (1.0, 2.0), {"a": np.ones(2)}, [0.5, -np.inf]
    arrays = state.to_arrays()
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert {"pair/values", "model/both", "named/a", "engines/1/done"} <= set(arrays)
    back.load(arrays)
    assert back.model.value == (1.0, 2.0) and back.named["a"].tolist() == [1.0, 1.0]
    assert back.scores == [0.5, -np.inf] and [e.done for e in back.engines] == [1, 2]
    assert back.rng.random() == state.rng.random()
    back.load(_whole().to_arrays())
    assert back.model.value is None and back.named == {} and back.scores == []


def test_names_that_are_free_are_those_of_the_parts_too() -> None:
    @dataclass(eq=False)
    class Inner(State):
        varying = ("rows",)
        rows: np.ndarray

    @dataclass(eq=False)
    class Outer(State):
        varying = ("more",)
        inner: Inner
        each: tuple[Inner, ...]

    work = Outer(Inner(np.zeros(1)), (Inner(np.zeros(1)),))
    assert names_of(work, "varying") == ("more", "inner/rows", "each/0/rows")
    assert names_of(work, "logarithms") == ()
