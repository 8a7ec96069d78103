"""Propagation on a planned junction tree: buffers, arithmetic, and the clock between cliques.

Sums are first made with plain numbers, every message scaled to a largest entry of 1. If products
of entries above zero fall below what a float can hold, and could matter, the run starts again with
logarithms. Maxima always use logarithms: they cost the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Clock, format_bytes
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.inference.trees.kernels import passes, states
from kikuchi.inference.trees.kernels import program as programs
from kikuchi.inference.trees.kernels.contraction import tile_split
from kikuchi.inference.trees.kernels.program import Program
from kikuchi.inference.trees.plan import WAY_OUT, Mode, Plan, Propagation
from kikuchi.inference.trees.shape import Targets

Report = Callable[[int, int], None]
Read = Callable[[Plan], Targets]
Chunk = tuple[int, int, float]

_CHUNK = 5e7  # multiply-adds between two looks at the clock
_MOST_BYTES = 2**53
_MOST_OPERATIONS = 1e15  # weeks
_AT_BEST = 1e10  # multiply-adds in a second that no core exceeds
_NO_TABLES = np.zeros(0, dtype=np.int64)


class Underflow(Exception):
    """Plain numbers do not reach: use logarithms."""


@dataclass
class Watch:
    """Looks at the clock between cliques, and knows how far the run is."""

    clock: Clock
    report: Report | None = None
    done: float = 0.0

    def check(self, done: float, total: float) -> None:
        """Refuse to go on when the time is over: exact inference has no half answer."""
        self.done = done / max(total, 1.0)
        if self.report is not None:
            self.report(round(100 * self.done), 100)
        if self.clock.expired and done < total:
            raise BudgetError(
                f"the junction tree was {100 * self.done:.0f}% done when its "
                f"{self.clock.budget.seconds:g} seconds were over; exact inference has no half "
                "answer: allow more seconds, or use bp, mf or gibbs"
            )


class Scratch(NamedTuple):
    """Room for the operands of one walk."""

    tile: NDArray[np.float64]
    runs: NDArray[np.int64]
    strides: NDArray[np.int64]
    lengths: NDArray[np.int64]
    places: NDArray[np.int64]
    counters: NDArray[np.int64]


class Room(NamedTuple):
    """Where walks leave results, where targets end, and scratch."""

    temporary: NDArray[np.float64]
    out: NDArray[np.float64]
    scratch: Scratch


class Run:
    """The tables of one propagation, and its passes."""

    def __init__(
        self,
        plan: Plan,
        targets: Targets,
        *,
        arithmetic: int,
        keep: bool = False,
        hugin: bool = False,
    ) -> None:
        self.plan = plan
        self.targets = targets
        self.arithmetic = arithmetic
        self.hugin = hugin
        tree = plan.found_tree
        logs = arithmetic == passes.LOG_SUM
        self.measure = plan.measure(targets, hugin=hugin)
        self.separator_size = tree.separator_size.astype(np.int64)
        end = int(tree.group_tables[-1])
        self.up, end = _offsets(self.separator_size, end)
        self.down = self.up
        if keep and not hugin:
            self.down, end = _offsets(self.separator_size, end)
        self.clique_tables = _NO_TABLES
        if hugin:
            self.clique_tables, end = _offsets(tree.clique_size.astype(np.int64), end)
        self.mem = np.empty(end)
        self.room = Room(
            np.empty(int(self.measure.temporary(logs))),
            np.empty(int(self.measure.targets)),
            _scratch(*self.measure.scratch.tolist()),
        )
        self.floors = np.zeros(len(tree.group_tables) - 1 + tree.n_nodes)
        self.losses = np.full(len(self.floors), np.inf)
        self.scales = np.zeros(tree.n_nodes)
        self.flags = np.zeros(1, dtype=np.int64)
        self.log_z = self._multiply_factors()
        self.upward = self._upward_program()
        self.state: NDArray[np.int64] | None = None

    def _multiply_factors(self) -> float:
        tree, graph = self.plan.found_tree, self.plan.graph
        log_scale = passes.multiply_factors(
            self.mem,
            tree.card,
            tree.group_offsets,
            tree.group_vars,
            tree.group_tables,
            graph.log_tables,
            graph.table_offsets,
            graph.scope_offsets,
            tree.factor_ranks,
            tree.factor_strides,
            tree.group_of,
            self.floors,
        )
        if log_scale == -np.inf:
            raise _impossible()
        if self.arithmetic == passes.LINEAR:
            if self.floors.min(initial=0.0) < passes.LOG_FLOOR:
                raise Underflow
            products = self.mem[: tree.group_tables[-1]]
            np.exp(products, out=products)
        return float(log_scale)

    @property
    def out(self) -> NDArray[np.float64]:
        """The targets, after both passes."""
        return self.room.out

    @property
    def logs(self) -> bool:
        """True if the tables hold logarithms."""
        return self.arithmetic != passes.LINEAR

    def _upward_program(self) -> Program:
        s = self.plan.found_tree
        return Program(
            *programs.upward(
                self.measure.up_room,
                s.card,
                s.clique_offsets,
                s.clique_vars,
                s.residual,
                s.child_offsets,
                s.children,
                self.separator_size,
                s.groups,
                s.group_offsets,
                s.group_vars,
                s.group_tables,
                self.up,
                self.clique_tables,
            )
        )

    def _downward_program(self) -> Program:
        s = self.plan.found_tree
        return Program(
            *programs.downward(
                self.measure.down_room,
                int(self.measure.down_results),
                s.card,
                s.clique_offsets,
                s.clique_vars,
                s.residual,
                s.parent,
                s.child_offsets,
                s.children,
                self.separator_size,
                s.groups,
                s.group_offsets,
                s.group_vars,
                s.group_tables,
                self.up,
                self.down,
                self.clique_tables,
                *self.targets,
            )
        )

    def collect(self, watch: Watch, total: float) -> None:
        """The upward pass: afterwards `log_z` is known (the best score, for maxima)."""
        chunks = _chunks(self.measure.up, self.measure.up_total)
        self._run(self.upward, self.measure.up, chunks, watch, 0.0, total)
        self.log_z += float(self.scales.sum())

    def distribute(self, watch: Watch, total: float) -> None:
        """The downward pass: afterwards `out` holds all targets."""
        work = self.measure.down[::-1]
        chunks = _chunks(work, self.measure.down_total)
        before = self.measure.up_total
        self._run(self._downward_program(), work, chunks, watch, before, total)

    def _run(
        self,
        program: Program,
        work: NDArray[np.float64],
        chunks: Iterable[Chunk],
        watch: Watch,
        before: float,
        total: float,
    ) -> None:
        for start, stop, done in chunks:
            first, end = int(program.ends[start]), int(program.ends[stop])
            pieces = int(np.ceil(work[start] / _CHUNK)) if stop == start + 1 else 1
            if pieces > 1:
                here = before + done - float(work[start])
                for share in self._pieces(program, first, end, pieces):
                    watch.check(here + share * float(work[start]), total)
            else:
                self._execute(program, first, end)
            watch.check(before + done, total)

    def _pieces(self, program: Program, first: int, end: int, pieces: int) -> Iterator[float]:
        """Walk one large clique in pieces; yields the share that is done after each."""
        phases = 2 if self.arithmetic == passes.LOG_SUM else 1
        for o in range(first, end):
            for phase in range(1 if program.ops[o, programs.STORE] else phases):
                for piece in range(pieces):
                    self._execute(program, o, o + 1, phase, piece, pieces)
                    part = (phase + (piece + 1) / pieces) / phases
                    yield (o - first + part) / (end - first)

    def _execute(
        self,
        program: Program,
        start: int,
        stop: int,
        phase: int = -1,
        piece: int = 0,
        pieces: int = 1,
        *,
        room: Room | None = None,
    ) -> None:
        room = room or self.room
        status = passes.execute(
            *program[:6],
            start,
            stop,
            phase,
            piece,
            pieces,
            self.mem,
            room.temporary,
            room.out,
            *room.scratch,
            self.floors,
            self.losses,
            self.scales,
            self.flags,
            self.arithmetic,
        )
        if status == passes.UNDERFLOW:
            raise Underflow
        if status == passes.IMPOSSIBLE:
            raise _impossible()

    def read(self, clique: int, targets: Targets) -> NDArray[np.float64]:
        """Targets from the belief of one clique, after both passes with messages kept."""
        size = int(targets.sizes.sum())
        temporary = np.empty(2 * size if self.arithmetic == passes.LOG_SUM else size)
        program, scratch = self._reading_program(clique, targets)
        room = Room(temporary, np.empty(size), scratch)
        self._execute(program, 0, 1, room=room)
        return room.out

    def _reading_program(self, c: int, targets: Targets) -> tuple[Program, Scratch]:
        """One operation: the belief of clique c, summed onto the targets."""
        s = self.plan.found_tree
        low, high = int(s.clique_offsets[c]), int(s.clique_offsets[c + 1])
        inputs = self._belief_inputs(c)
        n_axes, n_operands = high - low, len(inputs) + len(targets.sizes)
        ops = np.zeros((2, programs.COLUMNS), dtype=np.int64)
        dims, bases, tables = _ints(n_axes), _ints(n_operands), _ints(n_operands)
        steps = _ints(n_operands * n_axes)
        actions = np.empty((len(targets.sizes), programs.ACTION_COLUMNS), dtype=np.int64)
        at = np.zeros(5, dtype=np.int64)
        programs.begin(at, ops, dims, actions, s.card, s.clique_vars, low, high)
        for names, first, end, base in inputs:
            programs.add_table(
                at, ops, dims, steps, bases, tables, 0, s.clique_vars, low, names, first, end,
                base, -1,
            )  # fmt: skip
        ops[0, programs.FIXED] = len(inputs)
        place = 0
        for t, size in enumerate(targets.sizes):
            programs.add_target(
                at, ops, steps, bases, 0, s.clique_vars, low, targets.ranks, targets.strides,
                targets.offsets[t], targets.offsets[t + 1], place,
            )  # fmt: skip
            programs.add_action(
                at, actions, programs.ANSWER, place, size, targets.places[t], -1, -1, -1
            )
            place += int(size)
        ops[0, programs.HIGH] = place
        ops[1, programs.ACTIONS] = at[4]
        program = Program(ops, dims, steps, bases, tables, actions, np.array([0, 1]))
        _, tile = tile_split(dims, 0, n_axes, 1)
        return program, _scratch(int(tile), n_operands, n_operands * n_axes, n_axes)

    def _belief_inputs(self, c: int) -> list[tuple[NDArray[np.int64], int, int, int]]:
        """Tables whose product is the belief of clique c: (names, first, end, offset)."""
        s = self.plan.found_tree
        low, ends = s.clique_offsets, s.clique_offsets[1:] - s.residual
        if self.hugin:
            return [(s.clique_vars, int(low[c]), int(low[c + 1]), int(self.clique_tables[c]))]
        found = [
            (
                s.group_vars,
                int(s.group_offsets[g]),
                int(s.group_offsets[g + 1]),
                int(s.group_tables[g]),
            )
            for g in range(s.groups[c], s.groups[c + 1])
        ]
        if s.parent[c] >= 0:
            found.append((s.clique_vars, int(low[c]), int(ends[c]), int(self.down[c])))
        for j in s.children[s.child_offsets[c] : s.child_offsets[c + 1]]:
            found.append((s.clique_vars, int(low[j]), int(ends[j]), int(self.up[j])))
        return found

    def best_state(self) -> NDArray[np.int64]:
        """The most probable state of the reduced graph, after a `collect` of maxima (HOJ-I5)."""
        s, up = self.plan.found_tree, self.upward
        columns = np.zeros((self.plan.graph.n_variables, 1), dtype=np.int64)
        weights = np.empty(int(self.plan.found_tree.largest_residual))
        states.decode(
            up.ops,
            up.ends,
            up.dims,
            up.steps,
            up.bases,
            s.clique_vars,
            s.clique_offsets,
            s.residual,
            self.mem,
            columns,
            self.room.scratch.counters,
            weights,
        )
        state: NDArray[np.int64] = self._by_variable(columns)[0]
        return state

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` exact samples of the reduced graph, from the roots down, after a `collect`."""
        s, up = self.plan.found_tree, self.upward
        columns = np.zeros((self.plan.graph.n_variables, n), dtype=np.int64)
        weights = np.empty(int(self.plan.found_tree.largest_residual))
        for c in range(s.n_nodes - 1, -1, -1):
            states.draw(
                up.ops[up.ends[c + 1] - 1],
                up.dims,
                up.steps,
                up.bases,
                s.clique_vars,
                s.clique_offsets[c],
                s.residual[c],
                self.mem,
                columns,
                rng.random(n),
                self.logs,
                self.room.scratch.counters,
                weights,
            )
        return self._by_variable(columns)

    def _by_variable(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.ascontiguousarray(columns[self.plan.found_tree.rank].T)


def propagate(
    plan: Plan,
    read: Read,
    watch: Watch,
    *,
    mode: Mode = "sum",
    propagation: Propagation = "shafer-shenoy",
    keep: bool = False,
    distribute: bool = True,
    logs: bool = False,
) -> Run:
    """Run both passes (or the upward one), with logarithms if plain numbers do not reach.

    `read` says which marginals to read; with `mode` max the best state is found as well. `logs`
    does not try plain numbers.
    """
    _refuse_endless(plan, watch)
    targets = read(plan)
    hugin = propagation == "hugin"
    arithmetics = [passes.LINEAR, passes.LOG_SUM]
    if mode == "max":
        arithmetics = [passes.LOG_MAX]
    for arithmetic in arithmetics[-1:] if logs else arithmetics:
        needed = plan.bytes_for(
            targets,
            logs=arithmetic == passes.LOG_SUM,
            keep=keep,
            hugin=hugin,
            decode=mode == "max" or keep,
        )
        watch.clock.budget.require_bytes(needed, _what(plan), WAY_OUT)
        try:
            run = Run(plan, targets, arithmetic=arithmetic, keep=keep, hugin=hugin)
            total = run.measure.up_total + distribute * run.measure.down_total
            run.collect(watch, total)
            if mode == "max":
                run.state = run.best_state()  # before messages down take the place of those up
            if distribute:
                run.distribute(watch, total)
            return run
        except Underflow:
            continue
        except KeyboardInterrupt as stop:
            raise BudgetError(
                f"the junction tree was interrupted when it was {100 * watch.done:.0f}% done; "
                "exact inference has no half answer"
            ) from stop
    raise AssertionError("logarithms do not underflow")


def _what(plan: Plan) -> str:
    return f"the junction tree (width {'' if plan.complete else 'at least '}{plan.width})"


def _refuse_endless(plan: Plan, watch: Watch) -> None:
    """Refuse a plan without a tree, and one that could not end in the time there is."""
    least = "" if plan.complete else "at least "
    budget = watch.clock.budget
    budget.require_bytes(plan.bytes, _what(plan), WAY_OUT)
    if not plan.complete or plan.bytes > _MOST_BYTES or plan.operations > _MOST_OPERATIONS:
        raise BudgetError(
            f"{_what(plan)} needs {least}{format_bytes(plan.bytes)} and "
            f"{least}{plan.operations:.2g} multiply-adds; {WAY_OUT}"
        )
    if budget.seconds is not None and plan.operations > _AT_BEST * budget.seconds:
        raise BudgetError(
            f"{_what(plan)} needs {plan.operations:.2g} multiply-adds, which {budget.seconds:g} "
            "seconds do not allow; allow more seconds, or use bp, mf or gibbs"
        )


def _offsets(sizes: NDArray[np.int64], start: int) -> tuple[NDArray[np.int64], int]:
    ends = start + np.cumsum(sizes)
    return ends - sizes, int(ends[-1]) if len(ends) else start


def _ints(size: int) -> NDArray[np.int64]:
    return np.empty(size, dtype=np.int64)


def _scratch(tile: int, operands: int, table: int, axes: int) -> Scratch:
    return Scratch(
        np.empty(tile),
        _ints(table),
        _ints(table),
        _ints(operands),
        _ints(operands),
        _ints(3 * axes),
    )


def _chunks(work: NDArray[np.float64], whole: float) -> Iterator[Chunk]:
    """Ranges of cliques that cost at most _CHUNK together, with the work done after each; a
    clique that costs more stands alone.
    """
    if whole <= _CHUNK:
        yield 0, len(work), whole
        return
    total = np.cumsum(work)
    start, done = 0, 0.0
    while start < len(work):
        stop = max(int(np.searchsorted(total, done + _CHUNK, side="right")), start + 1)
        done = float(total[stop - 1])
        yield start, stop, done
        start = stop


def _impossible() -> ImpossibleEvidenceError:
    return ImpossibleEvidenceError(
        "the evidence has probability zero: no state satisfies all factors at once; "
        "check the observed states and the zeros of the tables"
    )
