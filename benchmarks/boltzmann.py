"""Restricted machines: one update beside its matrix products, an epoch beside scikit-learn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.common import Row, cpu_seconds
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.rules import parse_rule
from kikuchi.training.optimiser import parse_optimiser
from kikuchi.training.trainer import limited_threads, train

VISIBLE, HIDDEN, BATCH, ROWS = 784, 500, 100, 10_000
ROUNDS, EPOCHS = 60, 12  # of updates and of epochs: noise comes in spells of seconds


def rows() -> Iterator[Row]:
    with limited_threads(1):
        yield from one_update()
        yield from one_epoch()
    yield from default_threads()


def data(dtype: type) -> np.ndarray:
    """As many pixels are on as in handwritten digits."""
    return (np.random.default_rng(0).random((ROWS, VISIBLE)) < 0.19).astype(dtype)


def one_update() -> Iterator[Row]:
    """CD-1 with momentum beside its products, measured in turns as the machine may be busy."""
    dtype = np.float32
    machine = Machine.random(VISIBLE, HIDDEN, dtype=dtype, random_state=0)
    batch, numbers = data(dtype)[:BATCH], np.arange(BATCH)
    rng = np.random.default_rng(0)
    rule = parse_rule("cd:k=1")
    state = rule.begin(machine, batch, rng)
    updater = parse_optimiser("sgd:learning_rate=0.001,momentum=0.9").start(machine, 10**6, 1)

    def update() -> None:
        slope = rule.gradient(machine, batch, numbers, state, rng)
        updater.step(slope.ascent, 0, 0)

    w = machine.weights
    up, down, statistics = np.empty((BATCH, HIDDEN), dtype), np.empty_like(batch), np.empty_like(w)
    hidden = rng.random((BATCH, HIDDEN)).astype(dtype)
    both, both_hidden = np.vstack([batch, batch]), np.vstack([hidden, -hidden])

    def through() -> None:
        np.matmul(batch, w, out=up)
        np.matmul(hidden, w.T, out=down)
        np.matmul(batch, w, out=up)

    def all_products() -> None:
        through()
        np.matmul(both.T, both_hidden, out=statistics)

    update()
    ours, three, products = in_turns([update, through, all_products], ROUNDS)
    what = f"CD-1 with momentum, {VISIBLE}x{HIDDEN}, batch {BATCH}, float32, one update"
    yield Row(
        what,
        ours * 1e3,
        "ms",
        products * 1e3,
        "its products by BLAS: up, down, up and statistics",
        "<= 1.2 x",
        ours <= 1.2 * products,
        f"{ours / three:.2f} x the three products through the layers alone",
    )


def one_epoch() -> Iterator[Row]:
    from sklearn.neural_network import BernoulliRBM

    for dtype, kind, target in (
        (np.float32, "0 and 1", 2.0),
        (np.float64, "0 and 1", 1.0),
        (np.float32, "grey", None),
    ):
        x = data(dtype)
        if kind == "grey":
            x *= np.random.default_rng(1).random(x.shape, dtype=dtype)
        machine = Machine.random(VISIBLE, HIDDEN, dtype=dtype, random_state=0)
        theirs = BernoulliRBM(HIDDEN, learning_rate=0.05, batch_size=BATCH, n_iter=1)
        options = {"optimiser": "sgd:learning_rate=0.05", "batch_size": BATCH, "seed": 0}

        def ours(x=x, machine=machine, options=options) -> object:
            return train(machine, x, "pcd:k=1,chains=100", epochs=1, **options)

        ours()
        mine, other = in_turns([ours, lambda x=x, f=theirs: f.fit(x)], EPOCHS)
        yield Row(
            f"epoch of pcd, {ROWS}x{VISIBLE} {kind}, {HIDDEN} hidden, {dtype.__name__}",
            mine,
            "s",
            other,
            "scikit-learn's BernoulliRBM",
            "" if target is None else f"<= {1 / target:.1f} x",
            None if target is None else mine * target <= other,
            f"{other / mine:.2f} x faster, the same update rule",
        )


def default_threads() -> Iterator[Row]:
    """The default beside one thread and beside what the libraries would take, by the clock."""
    x = data(np.float32)[:2000]
    machine = Machine.random(VISIBLE, HIDDEN, dtype=np.float32, random_state=0)

    def run(**threads: int | None) -> Callable[[], object]:
        return lambda: train(machine, x, "cd", epochs=1, seed=0, **threads)

    by_default, one, free = in_turns([run(), run(threads=1), run(threads=None)], 3, time.monotonic)
    yield Row(
        "default threads, 20 updates by the clock",
        by_default,
        "s",
        one,
        "one thread",
        "never slower than one thread",
        by_default <= 1.15 * one,
        f"threads=None takes {free / one:.2f} x",
    )


def in_turns(
    works: list[Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Least time of each, measured in turns: what disturbs one disturbs all."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for k, work in enumerate(works):
            if clock is time.process_time:
                best[k] = min(best[k], cpu_seconds(work, 1))
            else:
                begin = clock()
                work()
                best[k] = min(best[k], clock() - begin)
    return best
