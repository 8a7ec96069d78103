"""Networks in time: a two-slice template, unrolled or filtered and smoothed slice by slice.

The interface are the variables that the next slice depends on. Given its state, past and future are
independent, so that a table over the interface is all that one slice passes to the next (the
interface algorithm). Filtering keeps one such table, with a lag as many as the lag has slices;
smoothing one in every square root of the number of slices, and computes those between again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Clock, RunLimits, limits, named_limits
from kikuchi.core.errors import EvidenceError, ImpossibleEvidenceError, ModelError, suggestion
from kikuchi.core.labels import required_place
from kikuchi.graphs.directed import bayesian_network
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.queries.answers import Distributions
from kikuchi.queries.pattern_table import PatternTable, fits
from kikuchi.queries.patterns import EvidencePattern, PatternEngine, log_of

_BEFORE = "[-1]"

Tables = Mapping[str, tuple[Sequence[str], ArrayLike]]


class TwoSliceNetwork:
    """A dynamic network: tables of the first slice, and those of every later one.

    Parameters
    ----------
    variables : Mapping[str, int or Sequence[str]]
        Names of the variables of a slice, with their states or the number of them.
    initial : Tables
        For each variable its parents in the first slice, and its table (the parents' axes in order,
        then its own).
    transition : Tables
        The same for every later slice; a parent `name[-1]` is in the slice before.

    >>> weather = TwoSliceNetwork(
    ...     {"rain": ["no", "yes"], "umbrella": ["no", "yes"]},
    ...     {"rain": ([], [0.5, 0.5]), "umbrella": (["rain"], [[0.8, 0.2], [0.1, 0.9]])},
    ...     {"rain": (["rain[-1]"], [[0.7, 0.3], [0.3, 0.7]]),
    ...      "umbrella": (["rain"], [[0.8, 0.2], [0.1, 0.9]])},
    ... )
    >>> days = [{"umbrella": "yes"}, {"umbrella": "yes"}]
    >>> round(list(weather.filter(days))[1]["rain"]["yes"], 4)
    0.8834
    >>> round(weather.smooth(days)[0]["rain"]["yes"], 4)
    0.8834
    """

    def __init__(
        self,
        variables: Mapping[str, int | Sequence[str]],
        initial: Tables,
        transition: Tables,
    ) -> None:
        self.variables = dict(variables)
        self.names = list(variables)
        wrong = [name for name in self.names if name.endswith(_BEFORE)]
        if wrong:
            raise ModelError(f"a variable must not be called {wrong[0]}: that is its past")
        self.first = bayesian_network(self.variables, initial)
        self.initial, self.transition = dict(initial), dict(transition)
        before = {p for parents, _ in transition.values() for p in parents if p.endswith(_BEFORE)}
        unknown = [p for p in before if p.removesuffix(_BEFORE) not in self.variables]
        if unknown:
            word = unknown[0].removesuffix(_BEFORE)
            raise ModelError(f"there is no variable '{word}'; {suggestion(word, self.names)}")
        self.interface = [name for name in self.names if name + _BEFORE in before]
        if set(transition) != set(self.names):
            odd = sorted(set(transition) ^ set(self.names))[0]
            raise ModelError(f"transition: one table for each variable is needed; see '{odd}'")
        self.unroll(2)  # checks every table

    def unroll(self, slices: int) -> FactorGraph:
        """The model of so many `slices`, at least 1; variables are called `name[t]`.

        >>> chain = TwoSliceNetwork({"x": 2}, {"x": ([], [1, 0])}, {"x": (["x[-1]"], np.eye(2))})
        >>> chain.unroll(3).names
        ('x[0]', 'x[1]', 'x[2]')
        """
        if slices < 1:
            raise ModelError(f"a network in time has at least one slice, got {slices}")
        tables: dict[str, tuple[list[str], ArrayLike]] = {}
        for t in range(slices):
            for name, (parents, table) in (self.transition if t else self.initial).items():
                scope = [
                    f"{p.removesuffix(_BEFORE)}[{t - 1}]" if p.endswith(_BEFORE) else f"{p}[{t}]"
                    for p in parents
                ]
                tables[f"{name}[{t}]"] = (scope, table)
        variables = {f"{n}[{t}]": s for t in range(slices) for n, s in self.variables.items()}
        return bayesian_network(variables, tables)

    @named_limits
    def filter(
        self,
        evidence: Iterable[Mapping[str, Any]],
        *,
        lag: int = 0,
        **within: Unpack[RunLimits],
    ) -> Iterator[Distributions]:
        """Distributions of each slice given the evidence up to it, or up to `lag` slices after it,
        as they come: any number of slices in the same memory.

        Parameters
        ----------
        evidence : Iterable[Mapping[str, Any]]
            For each slice its observed states by name, an empty mapping for none.
        lag : int, default 0
            How many later slices an answer waits for (fixed-lag smoothing); each costs a step back
            in time for every slice.
        budget, seconds, memory
            Limits of the run: a budget, or seconds and memory.
        """
        engine = _SliceEngine(self, limits(**within).start())
        if not isinstance(lag, int | np.integer) or lag < 0:
            raise ModelError(f"lag must be an integer of at least 0, got {lag!r}")
        held: deque[_Step] = deque()
        alpha: Array | None = None
        total = 0.0
        for t, seen in enumerate(evidence):
            part = engine.at(t)
            held.append(_Step(t, part, part.weights(seen, t), alpha))
            log_z, alpha = part.forward(held[-1].weights, alpha, None, t)
            total += log_z
            if len(held) > lag:
                yield self._oldest(held, total)
        while held:
            yield self._oldest(held, total)

    def _oldest(self, held: deque[_Step], total: float) -> Distributions:
        """The slice that was held longest, given what came in with it and after it."""
        beta: Array | None = None
        for step in reversed(list(islice(held, 1, None))):
            beta = step.part.backward(step.weights, beta, step.t)
        step = held.popleft()
        _, answer = step.part.marginals(step.weights, step.alpha, beta, step.t)
        return self._labelled(step.part, answer, total)

    @named_limits
    def smooth(
        self,
        evidence: Sequence[Mapping[str, Any]],
        **within: Unpack[RunLimits],
    ) -> list[Distributions]:
        """Distributions of each slice given all evidence.

        Parameters
        ----------
        evidence : Sequence[Mapping[str, Any]]
            As in `filter`, for all slices.
        budget, seconds, memory
            Limits of the run: a budget, or seconds and memory.
        """
        engine = _SliceEngine(self, limits(**within).start())
        n = len(evidence)
        block = max(int(np.sqrt(n)), 1)
        kept: dict[int, Array | None] = {0: None}  # the table that comes into a slice
        alpha: Array | None = None
        total = 0.0
        for t, seen in enumerate(evidence):
            part = engine.at(t)
            log_z, alpha = part.forward(part.weights(seen, t), alpha, None, t)
            total += log_z
            if (t + 1) % block == 0:
                kept[t + 1] = alpha
        answers: list[Distributions | None] = [None] * n
        beta: Array | None = None
        for start in reversed(range(0, n, block)):
            stop = min(start + block, n)
            inward = [kept[start]]
            for t in range(start, stop - 1):
                part = engine.at(t)
                inward.append(part.forward(part.weights(evidence[t], t), inward[-1], None, t)[1])
            for t in reversed(range(start, stop)):
                part = engine.at(t)
                weights = part.weights(evidence[t], t)
                _, answer = part.marginals(weights, inward[t - start], beta, t)
                answers[t] = self._labelled(part, answer, total)
                if t:
                    beta = part.backward(weights, beta, t)
        return [answer for answer in answers if answer is not None]

    def _labelled(self, part: _Slice, answer: list[Array], total: float) -> Distributions:
        states = tuple(part.states(name) for name in self.names)
        return Distributions(
            tuple(self.names), states, tuple(answer), method="interface", log_evidence=total
        )


class _Step(NamedTuple):
    """A slice that waits for its answer: its evidence, and the table that comes into it."""

    t: int
    part: _Slice
    weights: Array
    alpha: Array | None


@dataclass
class _SliceEngine:
    """The trees of the first slice, and those that all later ones share."""

    network: TwoSliceNetwork
    clock: Clock

    def __post_init__(self) -> None:
        self.first = _Slice(self.network, self.network.first, False, self.clock)
        self.later = _Slice(self.network, None, True, self.clock)

    def at(self, t: int) -> _Slice:
        return self.first if t == 0 else self.later


class _Slice:
    """One slice with what comes in from both sides as tables that are put in at every step.

    These two tables have an observed variable of their own in their scope, so that the trees cut
    them from the tables of the step rather than multiply them beforehand.
    """

    def __init__(
        self, network: TwoSliceNetwork, first: FactorGraph | None, past: bool, clock: Clock
    ) -> None:
        self.network, self.clock = network, clock
        variables: dict[str, Any] = dict(network.variables)
        tables: Any = network.initial
        if past:
            variables |= {n + _BEFORE: network.variables[n] for n in network.interface}
            tables = network.transition
        cards = [s if isinstance(s, int) else len(s) for s in variables.values()]
        names = list(variables)
        number = {name: v for v, name in enumerate(names)}
        switch = len(names)
        self.cards = [*cards, 2]
        self.now = [number[n] for n in network.interface]
        self.before = [number[n + _BEFORE] for n in network.interface] if past else []
        factors = [
            ([*(number[p] for p in parents), number[name]], table)
            for name, (parents, table) in tables.items()
        ]
        self.ends: list[int] = []
        for scope in (self.before, self.now):
            self.ends.append(len(factors))
            factors.append(([switch, *scope], np.ones([2, *(self.cards[v] for v in scope)])))
        self.graph = FactorGraph(self.cards, factors)
        self.names, self.number, self.switch = names, number, switch
        self.own = [number[n] for n in network.names]
        self._engines: dict[str, PatternEngine] = {}

    def states(self, name: str) -> tuple[str, ...]:
        given = self.network.variables[name]
        return tuple(map(str, range(given))) if isinstance(given, int) else tuple(given)

    def weights(self, seen: Mapping[str, Any], t: int) -> Array:
        """Log-weights of all states of the slice's variables: 0, and -inf where another state was
        observed.
        """
        rows = {v: np.zeros(self.cards[v]) for v in self.own}
        for name, state in seen.items():
            if name not in self.network.variables:
                hint = suggestion(str(name), self.network.names)
                raise EvidenceError(f"slice {t}: there is no variable '{name}'; {hint}")
            labels = self.states(name)
            place = required_place(f"slice {t}: {name}", labels, state, EvidenceError)
            rows[self.number[name]] = log_of(np.eye(len(labels))[place])
        return np.concatenate([rows[v] for v in sorted(self.own)])

    def _engine(self, what: str, together: list[int]) -> PatternEngine:
        """The engine of one kind of question: a table of a small slice, else a compiled tree."""
        if what not in self._engines:
            pattern = EvidencePattern(
                (self.switch,), tuple(sorted(self.own)), tuple(sorted(together))
            )
            if fits(self.graph, pattern, 1, self.clock.budget):
                self._engines[what] = PatternTable(self.graph, pattern)
            else:
                from kikuchi.engines.trees.rows import LinearTables
                from kikuchi.queries.pattern_tree import PatternTree

                linear = LinearTables.of(self.graph)
                self._engines[what] = PatternTree(self.graph, linear, pattern, self.clock)
        return self._engines[what]

    def _run(
        self,
        what: str,
        together: list[int],
        weights: Array,
        alpha: Array | None,
        beta: Array | None,
        t: int,
    ) -> tuple[float, Array, PatternEngine]:
        engine = self._engine(what, together)
        if not engine.many_rows_are_cheap:
            raise ModelError("a slice of this network is too large for the interface algorithm")
        logs = self.graph.log_tables.copy()
        for factor, table in zip(self.ends, (alpha, beta), strict=True):
            if table is not None:
                at = int(self.graph.table_offsets[factor])
                logs[at : at + table.size] = table.ravel()
        engine.refill(self.graph.replaced(log_tables=logs))
        states = np.zeros((1, 1), dtype=np.int32)
        log_z, out = engine.run(states, weights[None], self.clock, logs=bool(together))
        if log_z[0] == -np.inf:
            raise ImpossibleEvidenceError(
                f"slice {t}: the evidence up to here has probability zero; check it"
            )
        return float(log_z[0]), out[0], engine

    def marginals(
        self, weights: Array, alpha: Array | None, beta: Array | None, t: int
    ) -> tuple[float, list[Array]]:
        """log Z of the slice and the distribution of each of its variables."""
        log_z, out, engine = self._run("marginals", [], weights, alpha, beta, t)
        return log_z, [engine.marginal(out, v) for v in self.own]

    def forward(
        self, weights: Array, alpha: Array | None, beta: Array | None, t: int
    ) -> tuple[float, Array]:
        """log Z, and the log-probabilities of the interface that go to the next slice."""
        if not self.now:
            return self.marginals(weights, alpha, beta, t)[0], np.zeros(1)
        log_z, out, _ = self._run("forward", self.now, weights, alpha, beta, t)
        return log_z, self._ordered(out, self.now)

    def backward(self, weights: Array, beta: Array | None, t: int) -> Array:
        """The log-table over the interface of the slice before: how well it explains the rest."""
        if not self.before:
            return np.zeros(1)
        _, out, _ = self._run("backward", self.before, weights, None, beta, t)
        return self._ordered(out - out.max(), self.before)

    def _ordered(self, out: Array, variables: list[int]) -> Array:
        """A joint in the order of the interface; the tree has it by rising number."""
        ordered = sorted(variables)
        table = out.reshape([self.cards[v] for v in ordered])
        return np.ascontiguousarray(np.transpose(table, [ordered.index(v) for v in variables]))
