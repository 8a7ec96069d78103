"""Optimisers of the trainer beside optax itself."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest

from kikuchi.boltzmann.machine import Machine
from kikuchi.core.errors import MethodError
from kikuchi.training.optimiser import (
    OPTIMISERS,
    SCHEDULES,
    parse_optimiser,
    parse_schedule,
)

WEIGHTS_ONLY = {"weights": True, "visible_bias": False, "hidden_bias": False}


def machine_of(dtype) -> Machine:
    machine = Machine.random(7, 5, scale=1.0, dtype=dtype, random_state=0)
    machine.visible_bias[:] = np.linspace(-1, 1, 7)
    return machine


def slopes(dtype, count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    shapes = {"weights": (7, 5), "visible_bias": (7,), "hidden_bias": (5,)}
    return [
        {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
        for _ in range(count)
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("momentum, nesterov", [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("schedule", ["constant", "cosine:end=0.1", "exponential:factor=0.5"])
def test_fused_sgd_is_optax(dtype, momentum: float, nesterov: bool, schedule: str) -> None:
    machine = machine_of(dtype)
    text = f"sgd:learning_rate=0.1,momentum={momentum},nesterov={nesterov},weight_decay=0.05"
    options = parse_optimiser(f"{text},schedule=({schedule})")
    with jax.enable_x64(dtype == np.float64):
        rate = parse_schedule(schedule).optax(0.1, 3, 4)
        theirs = optax.chain(
            optax.add_decayed_weights(0.05, WEIGHTS_ONLY),
            optax.sgd(rate, momentum or None, nesterov=nesterov),
        )
        values = {n: jax.numpy.asarray(a) for n, a in machine.parameters.items()}
        state = theirs.init(values)
        for ascent in slopes(dtype, 12):
            gradient = {n: jax.numpy.asarray(-a) for n, a in ascent.items()}
            moves, state = theirs.update(gradient, state, values)
            values = optax.apply_updates(values, moves)
    updater = options.start(machine, 3, 4)
    for k, ascent in enumerate(slopes(dtype, 12)):
        largest = updater.step(ascent, k // 3, k % 3)
    # optax counts in float32 within its exponential schedule
    tolerance = 2e-6 if dtype == np.float32 else 1e-12 if schedule[0] == "c" else 1e-7
    for name, array in machine.parameters.items():
        assert np.allclose(array, values[name], rtol=0, atol=tolerance), name
    assert largest == pytest.approx(np.abs(machine.weights).max())


@pytest.mark.parametrize(
    "name, dtype", [("adam", np.float32), *((n, np.float64) for n in OPTIMISERS if n != "sgd")]
)
def test_other_optimisers_are_optax_and_go_on_from_their_state(name: str, dtype) -> None:
    machine = machine_of(dtype)
    options = parse_optimiser(f"{name}:learning_rate=0.02,schedule=linear,weight_decay=0.01")
    begin = machine.copy()
    updater = options.start(machine, 4, 3)
    half = None
    for k, ascent in enumerate(slopes(dtype, 12)):
        if k == 6:
            half = (machine.copy(), {n: a.copy() for n, a in updater.to_arrays().items()})
        updater.step(ascent, k // 4, k % 4)
    other, state = half
    again = options.start(other, 4, 3)
    again.load(state)
    for k, ascent in list(enumerate(slopes(dtype, 12)))[6:]:
        again.step(ascent, k // 4, k % 4)
    for n, array in machine.parameters.items():
        assert np.array_equal(array, other.parameters[n])
        assert array.dtype == dtype
        assert np.abs(array - begin.parameters[n]).max() > 1e-4


def test_adam_without_decay_is_optax_adam() -> None:
    machine = machine_of(np.float64)
    with jax.enable_x64(True):
        theirs = optax.adam(0.01, b1=0.8)
        values = {n: jax.numpy.asarray(a) for n, a in machine.parameters.items()}
        state = theirs.init(values)
        for ascent in slopes(np.float64, 5):
            gradient = {n: jax.numpy.asarray(-a) for n, a in ascent.items()}
            moves, state = theirs.update(gradient, state, values)
            values = optax.apply_updates(values, moves)
    updater = parse_optimiser("adam:learning_rate=0.01,b1=0.8").start(machine, 5, 1)
    for k, ascent in enumerate(slopes(np.float64, 5)):
        updater.step(ascent, 0, k)
    assert np.allclose(machine.weights, values["weights"], rtol=0, atol=1e-12)


def test_numbers_that_are_not_finite_are_seen() -> None:
    for text in ("sgd", "sgd:momentum=0.5", "adam"):
        for bad in (np.nan, np.inf):
            machine = machine_of(np.float32)
            ascent = slopes(np.float32, 1)[0]
            ascent["hidden_bias"][2] = bad
            assert not np.isfinite(parse_optimiser(text).start(machine, 1, 1).step(ascent, 0, 0))


def test_schedules_end_where_they_say() -> None:
    for name in SCHEDULES:
        rates = np.concatenate([parse_schedule(name).rates(0.2, 10, 3, e) for e in range(3)])
        assert len(rates) == 30 and np.all(rates >= 0) and rates.max() <= 0.2 + 1e-9
    assert parse_schedule("linear").rates(1.0, 10, 2, 1)[5] == pytest.approx(0.25)
    assert parse_schedule("exponential:factor=0.5").rates(1.0, 4, 9, 2)[0] == pytest.approx(0.25)


def test_bad_options_are_refused() -> None:
    with pytest.raises(MethodError, match="did you mean 'adam'"):
        parse_optimiser("adm")
    with pytest.raises(MethodError, match="learning_rate must be in"):
        parse_optimiser("sgd:learning_rate=-1")
    with pytest.raises(MethodError, match="no schedule"):
        parse_optimiser("sgd:schedule=cosin")
    with pytest.raises(MethodError, match="momentum"):
        parse_optimiser("sgd:momentum=1")
    for name in OPTIMISERS:
        assert OPTIMISERS.find(name).name == name and OPTIMISERS.find(name).summary


def test_trainings_of_equal_shape_share_one_compiled_update() -> None:
    options = parse_optimiser("adam:learning_rate=0.0123")
    updaters = [options.start(machine_of(np.float64), *horizon) for horizon in ((5, 1), (7, 3))]
    for updater in updaters:
        updater.step(next(iter(slopes(np.float64, 1))), 0, 0)
    assert updaters[0]._update is updaters[1]._update
    assert updaters[0]._update._cache_size() == 1
