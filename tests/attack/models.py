"""Random models against enumeration: every method of the registry, default and random options.

A model is small enough to sum in long double, and hard on purpose: zeros, tables that span hundreds
of decades, constant factors, repeated scopes, single-state variables, variables without factors,
evidence of probability zero. `make(seed, number)` gives any of them again.
"""

from __future__ import annotations

import dataclasses
import time
import typing
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kikuchi as kk
from attack.tally import Tally
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.core.options import option_hints, option_types
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method
from kikuchi.methods.registry import METHODS

MOST_STATES = 200
METHODS_PER_MODEL = 4
NETWORKS = ("renn", "bethe-net")  # a program is compiled for each size of model: seconds,
NETWORK_EVERY = 100  # so that they meet one model in so many
KINDS = ("tree", "loop", "grid", "directed", "random", "empty")
TABLES = ("mild", "strong", "wide", "zeros", "deterministic", "constant")
TEXTS = {  # of the options that are texts: what may follow the name, besides the default
    "regions": ("auto", "bethe", "loops:3", "loops:5", "cycles", "pairs", "buckets:3", "all"),
    "clamps": ("auto", "greedy"),
    "method": ("mf", "trw", "jt", "bp", "wmb:ibound=2", "tree-mf"),
}


@dataclasses.dataclass(frozen=True)
class RandomModel:
    """A graph, what was observed, and the sums of the weights of its states in long double."""

    graph: kk.FactorGraph
    evidence: dict[int, int]
    weights: NDArray[Any]  # logarithms, over all joint states

    @property
    def log_z(self) -> np.longdouble:
        return _log_sum(self.weights)

    def marginals(self) -> NDArray[Any]:
        total = self.log_z
        axes = range(self.graph.n_variables)
        sums = [
            np.exp(
                _log_sum(np.moveaxis(self.weights, v, 0).reshape(self.weights.shape[v], -1), 1)
                - total
            )
            for v in axes
        ]
        return np.concatenate([np.zeros(0), *sums]).astype(np.float64)


def make(seed: int, number: int) -> RandomModel:
    """The model of a number."""
    rng = np.random.default_rng([seed, number])
    kind = str(rng.choice(KINDS, p=[0.2, 0.2, 0.15, 0.2, 0.23, 0.02]))
    cards = _cards(rng, kind)
    scopes = _scopes(rng, kind, len(cards))
    style = str(rng.choice(TABLES))
    factors = []
    for number, scope in enumerate(scopes):
        mixed = style if rng.random() < 0.7 else str(rng.choice(TABLES))
        child = number if kind == "directed" else None
        factors.append((scope, _table(rng, [cards[v] for v in scope], mixed, child)))
    constant = float(rng.choice([0.0, 0.0, rng.normal() * 10, 700 * rng.normal()]))
    graph = kk.FactorGraph(cards, factors, log=True, log_constant=constant)
    observed = [v for v in range(len(cards)) if rng.random() < 0.15] if rng.random() < 0.5 else []
    evidence = {v: int(rng.integers(cards[v])) for v in observed}
    return RandomModel(graph, evidence, _weights(graph, evidence))


def attack(count: int, seed: int, seconds: float) -> Tally:
    """Random models, each by a few methods in turn, so that every method meets as many."""
    tally = Tally("models")
    names = [name for name in METHODS if name not in NETWORKS]
    end = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() > end:
            break
        model = make(seed, number)
        rng = np.random.default_rng([seed, number, 1])
        for turn in range(METHODS_PER_MODEL):
            name = names[(number * METHODS_PER_MODEL + turn) % len(names)]
            if turn == 0 and number % NETWORK_EVERY == NETWORK_EVERY - 1:
                name = NETWORKS[number // NETWORK_EVERY % len(NETWORKS)]
            method = METHODS[name]() if rng.random() < 0.4 else random_method(rng, name)
            tally.faults += [
                f"make({seed}, {number}), {method.text}: {fault}" for fault in faults(model, method)
            ]
        tally.tried += 1
    return tally


def random_method(rng: np.random.Generator, name: str) -> Method:
    """A method with some of its options drawn at random."""
    cls = METHODS[name]
    hints = option_hints(cls)
    chosen = {}
    for f in dataclasses.fields(cls):
        if f.name == "max_iter":
            chosen[f.name] = int(rng.choice([1, 5, 200]))
        elif rng.random() < 0.4:
            chosen[f.name] = _value(rng, f, hints[f.name])
    try:
        return cls(**chosen)
    except kk.KikuchiError:  # options that exclude each other
        return cls()


def faults(model: RandomModel, method: Method) -> list[str]:
    """What is wrong with the answer of a method about a model; empty where nothing is."""
    budget = kk.Budget(seconds=1.0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            beliefs = method.run(model.graph, evidence=model.evidence, budget=budget)
            return list(_wrong(model, method, beliefs))
    except ImpossibleEvidenceError as error:
        return [f"Z > 0, but: {error}"] if model.log_z > -np.inf else []
    except kk.KikuchiError as error:
        return [str(error)] if "bug in kikuchi" in str(error) else []
    except Exception as error:  # what an attack looks for
        return [f"{type(error).__name__}: {error}"]


def _wrong(model: RandomModel, method: Method, beliefs: Beliefs) -> typing.Iterator[str]:
    log_z, lower, upper = model.log_z, beliefs.log_z_lower, beliefs.log_z_upper
    if log_z == -np.inf:
        if beliefs.converged:
            yield "converged, but Z = 0"
        return
    if lower is not None and lower > log_z:
        yield f"the lower bound is {float(lower - log_z):.3g} too high"
    if upper is not None and upper < log_z:
        yield f"the upper bound is {float(log_z - upper):.3g} too low"
    numbers = beliefs.flat_beliefs
    if not np.all((numbers >= 0) & (numbers <= 1 + 1e-9)):
        yield "a belief is no probability"
    if not np.allclose([b.sum() for b in beliefs.variable_beliefs], 1.0, atol=1e-6):
        yield "a belief does not sum to 1"
    if beliefs.log_z is not None and not np.isfinite(beliefs.log_z):
        yield f"log Z is {beliefs.log_z}"
    outside = beliefs.log_z is not None and not (
        (lower is None or lower <= beliefs.log_z) and (upper is None or beliefs.log_z <= upper)
    )
    if outside and not beliefs.warnings:
        yield "log Z is outside its bounds, and no warning says so"
    if beliefs.state is not None:
        yield from _wrong_state(model, method, beliefs)
    if beliefs.max_product:
        return
    if method.gives_factor_beliefs and beliefs._factor_tables is not None:
        tables = beliefs.flat_factors
        sums = np.add.reduceat(tables, model.graph.table_offsets[:-1]) if tables.size else tables
        if not np.allclose(sums, 1.0, atol=1e-6):
            yield "a belief of a factor does not sum to 1"
    if _must_be_exact(model, method, beliefs):
        scale = 1e-9 * (1 + float(np.abs(model.weights[np.isfinite(model.weights)]).max()))
        if beliefs.log_z is None or abs(beliefs.log_z - float(log_z)) > scale:
            yield f"log Z is {beliefs.log_z}, not {float(log_z)!r}"
        if np.abs(numbers - model.marginals()).max(initial=0.0) > 1e-6:
            yield f"a marginal is {np.abs(numbers - model.marginals()).max():.2g} off"


def _wrong_state(model: RandomModel, method: Method, beliefs: Beliefs) -> typing.Iterator[str]:
    score = float(model.weights[tuple(beliefs.state)])
    scale = 1e-9 * (1 + abs(score))
    if beliefs.score is None or abs(beliefs.score - score) > scale:
        yield f"the best state has log-weight {score}, not {beliefs.score}"
    exact = method.exactness == "always" or (model.graph.is_forest and beliefs.converged)
    if beliefs.max_product and exact and score < float(model.weights.max()) - scale:
        yield f"the best state has log-weight {score}, another {float(model.weights.max())}"


def _must_be_exact(model: RandomModel, method: Method, beliefs: Beliefs) -> bool:
    if not beliefs.converged:
        return False
    if method.exactness == "always":
        return True
    if method.name == "auto":
        return str(beliefs.diagnostics.get("chosen")) == "jt"
    if method.exactness != "forests" or not model.graph.reduce(model.evidence).graph.is_forest:
        return False
    return method.name == "bp" or method == type(method)()  # a coarse tolerance is one's own choice


# ---------------------------------------------------------------------- parts


def _log_sum(x: NDArray[Any], axis: int | None = None) -> Any:
    top = np.max(x, axis=axis, keepdims=True)
    shift = np.where(np.isfinite(top), top, np.longdouble(0))
    with np.errstate(divide="ignore"):
        return np.squeeze(np.log(np.exp(x - shift).sum(axis=axis, keepdims=True)) + shift, axis)[()]


def _weights(graph: kk.FactorGraph, evidence: dict[int, int]) -> NDArray[Any]:
    cards = [int(c) for c in graph.cardinalities]
    total = np.full(cards, graph.log_constant, dtype=np.longdouble)
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        table = np.transpose(graph.log_table(a).astype(np.longdouble), np.argsort(scope))
        total += table.reshape([cards[v] if v in scope else 1 for v in range(len(cards))])
    for v, state in evidence.items():
        keep = np.arange(cards[v]) == state
        shape = [1] * len(cards)
        shape[v] = -1
        total = np.where(keep.reshape(shape), total, -np.longdouble(np.inf))
    return total


def _cards(rng: np.random.Generator, kind: str) -> list[int]:
    if kind == "grid":
        return (
            [2] * int(rng.choice([4, 6])) if rng.random() < 0.5 else [int(rng.integers(2, 4))] * 4
        )
    binary = rng.random() < 0.4
    cards: list[int] = []
    for _ in range(int(rng.integers(1, 8))):
        card = 2 if binary else int(rng.integers(1, 6))
        if np.prod([*cards, card]) <= MOST_STATES:
            cards.append(card)
    return cards


def _scopes(rng: np.random.Generator, kind: str, n: int) -> list[list[int]]:
    singles = [[v] for v in range(n) if rng.random() < 0.5]
    if kind == "empty":
        return []
    if kind == "tree":
        return singles + [[int(rng.integers(v)), v] for v in range(1, n) if rng.random() < 0.9]
    if kind == "loop":
        return singles + ([[v, (v + 1) % n] for v in range(n)] if n > 1 else [])
    if kind == "grid":
        cols = n // 2
        pairs = [[v, v + cols] for v in range(cols)]
        pairs += [[v, v + 1] for v in range(n) if (v + 1) % cols]
        return singles + pairs
    if kind == "directed":
        return [
            [*rng.choice(v, min(v, int(rng.integers(3))), replace=False).tolist(), v]
            for v in range(n)
        ]
    count = int(rng.integers(1, 7))
    sizes = [min(n, int(rng.integers(1, 4))) for _ in range(count)]
    scopes = [rng.choice(n, size, replace=False).tolist() for size in sizes]
    if rng.random() < 0.3:
        scopes.append(scopes[0][::-1])
    return singles + scopes


def _table(
    rng: np.random.Generator, shape: list[int], style: str, child: int | None
) -> NDArray[np.float64]:
    """Logarithms of a table."""
    spread = {"mild": 1.0, "strong": 8.0, "constant": 0.0}.get(style, 2.0)
    table = rng.normal(size=shape) * spread
    if style == "wide":
        table = rng.uniform(-700, 700, size=shape) * float(rng.choice([0.1, 1.0]))
    if style == "constant":
        table = table + float(rng.normal() * 5)
    if style in ("zeros", "deterministic"):
        keep = rng.random(shape) < (0.6 if style == "zeros" else 0.3)
        if rng.random() < 0.9 and not keep.any():
            keep.flat[int(rng.integers(keep.size))] = True
        if not keep.any():
            keep.flat[0] = True
        table = np.where(keep, table if style == "zeros" else 0.0, -np.inf)
    if child is not None:  # a conditional distribution of the last variable
        top = table.max(axis=-1, keepdims=True)
        table = np.where(np.isfinite(top), table - np.where(np.isfinite(top), top, 0.0), 0.0)
        with np.errstate(divide="ignore"):
            table = table - np.log(np.exp(table).sum(axis=-1, keepdims=True))
    return table


def _value(rng: np.random.Generator, f: dataclasses.Field[Any], hint: Any) -> Any:
    kinds, optional = option_types(hint)
    kind = kinds[0]
    if optional and rng.random() < 0.3:
        return None
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)[int(rng.integers(len(typing.get_args(kind))))]
    if kind is bool:
        return bool(rng.random() < 0.5)
    low = f.metadata.get("low", None)
    low = f.metadata.get("above") if low is None else low
    high = f.metadata.get("high", None)
    high = f.metadata.get("below") if high is None else high
    if kind is int:
        return int(rng.integers(low or 0, min(high or 12, 12) + 1))
    if kind is float:
        if f.name == "tol":
            return float(10.0 ** rng.uniform(-12, -2))
        return float(rng.uniform(low or 0.0, 1.0 if high is None else high))
    options = TEXTS.get(f.name)
    return f.default if options is None else str(rng.choice(options))
