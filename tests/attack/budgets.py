"""Budgets: every method on a list of models, with seconds and bytes that it must hold.

Seconds are those of the processor, also for the method's own clock, so that other work on the
machine does not count. Memory is the peak resident size of the process less that before the run. A
process is warm when it has done the same once: a fault is what stands in later runs too.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from threadpoolctl import threadpool_limits

import kikuchi as kk
from attack.tally import Tally
from kikuchi.core import budget as core_budget
from kikuchi.core.errors import KikuchiError
from kikuchi.graphs.factor_graph import Evidence
from kikuchi.methods.registry import METHODS
from oracle import random_model

_PART, _LEAST = 0.1, 0.3  # an overrun beyond both is a fault
_MEMORY_PART, _MEMORY_LEAST = 0.1, 60e6
_BYTES = (100_000_000, 400_000_000)
_SECONDS = (0.5, 1.0)
_LARGEST = "a grid of 1000x1000"
_LARGEST_LIMITS = (5.0, 1_000_000_000)  # what its set-up takes is more than the usual ones
_RUNS = 3  # the first loads compiled loops; a busy machine may spoil another
Model = tuple[str, Callable[[], kk.FactorGraph]]


def attack(count: int, seed: int, seconds: float) -> Tally:
    """Cases until `count` of them are tried or the `seconds` are over."""
    rng = np.random.default_rng(seed)
    tally = Tally("budgets")
    models = {label: functools.cache(make) for label, make in _models()}
    cases = [(label, name) for label in models for name in METHODS]
    end = time.monotonic() + seconds
    with _processor_time(), threadpool_limits(1):  # idle threads of linear algebra count too
        for number in rng.permutation(len(cases))[:count]:
            if time.monotonic() > end:
                break
            label, name = cases[number]
            limits = float(rng.choice(_SECONDS)), int(rng.choice(_BYTES))
            if label == _LARGEST:
                limits = _LARGEST_LIMITS
            tally.faults += faults(label, models[label](), name, *limits)
            tally.tried += 1
    return tally


def faults(label: str, graph: kk.FactorGraph, name: str, seconds: float, most: int) -> list[str]:
    """What a method takes beyond its seconds and bytes, in words."""
    evidence = None
    if METHODS[name].only_for_observed_marginals:
        evidence = {v: _tilted(int(graph.cardinalities[v])) for v in range(0, graph.n_variables, 9)}
    _warm_up(name, graph)
    case = f"{name} on {label} with {seconds:g} s and {most / 1e6:g} MB"
    found: list[str] = []
    for _ in range(_RUNS):
        taken, peak, told = _measured(graph, name, evidence, kk.Budget(seconds=seconds, bytes=most))
        found = []
        if taken > seconds + max(_PART * seconds, _LEAST):
            found.append(f"{case}: took {taken:.2f} s{told}")
        if peak > most + max(_MEMORY_PART * most, _MEMORY_LEAST):
            found.append(f"{case}: took {peak / 1e6:.0f} MB{told}")
        if not found:
            break
    return found


def _measured(
    graph: kk.FactorGraph, name: str, evidence: Evidence | None, budget: kk.Budget
) -> tuple[float, float, str]:
    """Seconds and bytes that a run took, and how it ended."""
    before = _reset_peak()
    begin = time.process_time()
    told = ""
    try:
        kk.infer(graph, name, evidence=evidence, budget=budget)
    except KikuchiError as error:
        told = f", which ended with: {error}"
    return time.process_time() - begin, _peak() - before, told


def _warm_up(name: str, graph: kk.FactorGraph) -> None:
    """Load the compiled loops by a small model of the same kind."""
    cards = graph.cardinalities
    plain = bool(np.all(cards == 2)) and bool(np.all(np.diff(graph.scope_offsets) <= 2))
    small = kk.grid(4, 4, seed=0) if plain else random_model(np.random.default_rng(0))
    evidence = None
    if METHODS[name].only_for_observed_marginals:
        evidence = {0: _tilted(int(small.cardinalities[0]))}
    try:
        kk.infer(small, name, evidence=evidence, budget=kk.Budget(seconds=20))
    except KikuchiError:
        return  # the method does not take such models, and will say so of the large one


def _tilted(states: int) -> list[float]:
    weights = np.arange(1.0, states + 1)
    return list(weights / weights.sum())


# ---------------------------------------------------------------------- models


def _models() -> list[Model]:
    return [
        ("a grid of 200x200", lambda: kk.grid(200, 200, coupling=1.0, seed=0)),
        ("a grid of 30x30", lambda: kk.grid(30, 30, coupling=1.0, field=0.1, seed=0)),
        ("a grid of 16x16 with 6 states", lambda: kk.grid(16, 16, states=6, seed=0)),
        ("a complete graph of 150", lambda: kk.generate.complete(150, coupling=0.1, seed=0)),
        ("objects of 15 states", lambda: kk.generate.random_graph(30, 0.3, states=15, seed=1)),
        ("a chain of 100000", lambda: kk.grid(1, 100_000, seed=0)),
        ("a relational model of 420", lambda: relational(20)),
        ("a relational model of 12100", lambda: relational(110)),  # variables of 438 factors
        ("a strip of 14x40", lambda: kk.grid(14, 40, coupling=1.0, seed=0)),
        (_LARGEST, lambda: kk.grid(1000, 1000, coupling=1.0, seed=0)),
    ]


def relational(people: int, seed: int = 0) -> kk.FactorGraph:
    """Friends share a habit: a variable for each person and each pair, a factor for each pair."""
    rng = np.random.default_rng(seed)
    factors = [((v,), np.exp(rng.normal(0, 1, 2))) for v in range(people)]
    like = np.ones((2, 2, 2))
    like[1] = np.where(np.eye(2) > 0, 3.0, 1.0)
    number = people
    for a in range(people):
        for b in range(people):
            if a != b:
                factors += [((number, a, b), like), ((number,), np.exp(rng.normal(-1, 1, 2)))]
                number += 1
    return kk.FactorGraph([2] * number, factors)


# ---------------------------------------------------------------------- time and memory


@contextmanager
def _processor_time() -> Iterator[None]:
    """All clocks of budgets count the processor's seconds."""
    usual = core_budget.time
    core_budget.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    try:
        yield
    finally:
        core_budget.time = usual


@contextmanager
def added_bytes() -> Iterator[Callable[[], float]]:
    """Yields a function: the most by which the resident size has grown since the block began."""
    before = _reset_peak()
    yield lambda: _peak() - before


def _reset_peak() -> float:
    """Forget the peak of the resident size; answers the size now, 0 where nobody tells it."""
    forget = Path("/proc/self/clear_refs")
    if not forget.exists():
        return 0.0
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # else what others freed is used first
    if trim is not None:
        trim(0)
    forget.write_text("5")
    return _peak()


def _peak() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
    return 1024.0 * float(line.split()[1])
