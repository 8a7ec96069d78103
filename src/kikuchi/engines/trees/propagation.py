"""Propagation on a planned junction tree: buffers, arithmetic, and the clock between cliques.

Sums are first made with plain numbers, every message scaled to a largest entry of 1. If products
of entries above zero fall below what a float can hold, and could matter, the run starts again with
logarithms. Maxima always use logarithms: they cost the same.

Reference: HOJ-I5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.engines.trees.kernels import passes, states
from kikuchi.engines.trees.kernels import program as programs
from kikuchi.engines.trees.kernels.contraction import Workspace, tile_split
from kikuchi.engines.trees.kernels.program import Operand, PropagationProgram
from kikuchi.engines.trees.plan import TreePlan
from kikuchi.engines.trees.shape import MarginalTargets

Report = Callable[[int, int], None]
Read = Callable[[TreePlan], MarginalTargets]
Chunk = tuple[int, int, float]

_CHUNK = 5e7  # multiply-adds between two looks at the clock
_TOO_SLOW = 1.5  # times the time left: the pace changes from clique to clique
_DRAWS = 2**20  # random numbers made at once
_NO_TABLES = np.zeros(0, dtype=np.int64)


class Underflow(Exception):
    """Products left the range of floating-point numbers: logarithms are needed."""


@dataclass
class Watch:
    """Looks at the clock between cliques, and knows how much of the work is done.

    With `foresee` it gives up as soon as the pace so far says that the time will not suffice.
    """

    clock: Clock
    report: Report | None = None
    foresee: bool = False
    done: float = 0.0
    began: float | None = None

    def check(self, done: float, total: float) -> None:
        """Stop with an error when the time is over: exact inference has no partial answer."""
        self.done = done / max(total, 1.0)
        if self.report is not None:
            self.report(round(100 * self.done), 100)
        if self.began is None:
            self.began = self.clock.seconds
        if (self.clock.expired or (self.foresee and self._too_slow())) and done < total:
            raise BudgetError(
                f"the junction tree was {100 * self.done:.0f}% done when {self.clock.seconds:.3g} "
                f"of its {self.clock.budget.seconds:g} seconds were over; exact inference has no "
                "half answer: allow more seconds, or use bp, mf or gibbs"
            )

    def _too_slow(self) -> bool:
        """Whether the pace of the first quarter of the time or more would take much too long."""
        limit = self.clock.budget.seconds
        assert self.began is not None  # set by `check`
        spent = self.clock.seconds - self.began
        if limit is None or spent < 0.25 * (limit - self.began):
            return False
        return spent > _TOO_SLOW * self.done * (limit - self.began)


class Propagation:
    """The tables of one propagation and its passes: `fill`, `collect`, then `distribute`."""

    def __init__(
        self,
        plan: TreePlan,
        targets: MarginalTargets,
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
        n_messages = tree.n_nodes
        n_tables = len(tree.group_tables) - 1 + n_messages
        self.tables = passes.PropagationState(
            mem=np.empty(end),
            floors=np.zeros(n_tables),
            losses=np.full(n_tables, np.inf),
            scales=np.zeros(n_messages),
            flags=np.zeros(1, dtype=np.int64),
        )
        self.workspace = _workspace(
            int(self.measure.temporary(logs)),
            int(self.measure.targets),
            *self.measure.scratch.tolist(),
        )
        self.log_z = 0.0
        self.upward: PropagationProgram = programs.upward(
            self.measure.up_lengths, tree, self.separator_size, self.up, self.clique_tables
        )
        self.state: Ints | None = None

    def _multiply_factors(self, log_tables: Array) -> float:
        tree, graph = self.plan.found_tree, self.plan.graph
        mem, floors = self.tables.mem, self.tables.floors
        log_scale = passes.multiply_factors(
            mem,
            floors,
            tree,
            log_tables,
            graph.table_offsets,
            graph.scope_offsets,
            self.workspace.counters,
        )
        if log_scale == -np.inf:
            raise _impossible()
        if self.arithmetic == passes.LINEAR:
            if floors.min(initial=0.0) < passes.LOG_FLOOR:
                raise Underflow
            products = mem[: tree.group_tables[-1]]
            np.exp(products, out=products)
        return float(log_scale)

    def fill(self, log_tables: Array) -> None:
        """Begin with these log-tables, flat as those of the graph; raises `Underflow` where
        logarithms are needed.
        """
        self.tables.losses.fill(np.inf)
        self.tables.scales.fill(0.0)
        self.log_z = self._multiply_factors(log_tables)

    @property
    def out(self) -> Array:
        """The targets, each summing to 1, after both passes."""
        return self._probabilities(self.workspace.out, self.targets)

    @property
    def log_out(self) -> Array:
        """Logarithms of the targets, each with a largest entry of 0, after both passes with
        logarithms: nothing underflows.
        """
        assert self.logs  # plain numbers have lost what is small
        return self.workspace.out

    @property
    def log_probabilities(self) -> Array:
        """Logarithms of the targets, each summing to 1, where `log_out` is there."""
        targets, logs = self.targets, self.log_out
        if not len(targets.sizes):
            return logs
        sums = np.log(np.add.reduceat(np.exp(logs), targets.places))
        return np.asarray(logs - np.repeat(sums, targets.sizes))

    def _probabilities(self, answers: Array, targets: MarginalTargets) -> Array:
        if not self.logs or not len(targets.sizes):
            return answers
        p = np.exp(answers)
        return np.asarray(p / np.repeat(np.add.reduceat(p, targets.places), targets.sizes))

    @property
    def logs(self) -> bool:
        """True if the tables hold logarithms."""
        return self.arithmetic != passes.LINEAR

    @cached_property
    def downward(self) -> PropagationProgram:
        """The program of the downward pass, which reads the targets."""
        program: PropagationProgram = programs.downward(
            self.measure.down_lengths,
            int(self.measure.down_results),
            self.plan.found_tree,
            self.separator_size,
            self.up,
            self.down,
            self.clique_tables,
            self.targets,
        )
        return program

    def collect(self, watch: Watch, total: float) -> None:
        """The upward pass: afterwards `log_z` is known (the best score, for maxima)."""
        chunks = _chunks(self.measure.up, self.measure.up_total)
        self._run(self.upward, self.measure.up, chunks, watch, 0.0, total)
        self.log_z += float(self.tables.scales.sum())

    def distribute(self, watch: Watch, total: float) -> None:
        """The downward pass: afterwards `out` holds all targets."""
        work = self.measure.down[::-1]
        chunks = _chunks(work, self.measure.down_total)
        before = self.measure.up_total
        self._run(self.downward, work, chunks, watch, before, total)

    def _run(
        self,
        program: PropagationProgram,
        work: Array,
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
                for fraction in self._pieces(program, first, end, pieces):
                    watch.check(here + fraction * float(work[start]), total)
            else:
                self._execute(program, first, end)
            watch.check(before + done, total)

    def _pieces(
        self, program: PropagationProgram, first: int, end: int, pieces: int
    ) -> Iterator[float]:
        """Walk one large clique in pieces; yields the fraction that is done after each."""
        phases = 2 if self.arithmetic == passes.LOG_SUM else 1
        for o in range(first, end):
            for phase in range(1 if program.ops[o, programs.STORE] else phases):
                for piece in range(pieces):
                    self._execute(program, o, o + 1, phase, piece, pieces)
                    done = (phase + (piece + 1) / pieces) / phases
                    yield (o - first + done) / (end - first)

    def _execute(
        self,
        program: PropagationProgram,
        start: int,
        stop: int,
        phase: int = -1,
        piece: int = 0,
        pieces: int = 1,
        *,
        workspace: Workspace | None = None,
    ) -> None:
        status = passes.execute(
            program,
            start,
            stop,
            phase,
            piece,
            pieces,
            self.tables,
            workspace or self.workspace,
            self.arithmetic,
        )
        if status == passes.UNDERFLOW:
            raise Underflow
        if status == passes.IMPOSSIBLE:
            raise _impossible()

    def read(self, clique: int, targets: MarginalTargets) -> Array:
        """Targets from the belief of one clique, after both passes with messages kept."""
        size = int(targets.sizes.sum())
        n_results = 2 * size if self.arithmetic == passes.LOG_SUM else size
        program, scratch = self._reading_program(clique, targets)
        workspace = _workspace(n_results, size, *scratch)
        self._execute(program, 0, 1, workspace=workspace)
        return self._probabilities(workspace.out, targets)

    def _reading_program(
        self, c: int, targets: MarginalTargets
    ) -> tuple[PropagationProgram, tuple[int, int, int, int]]:
        """One operation: the belief of clique c, summed onto the targets; and its scratch."""
        s = self.plan.found_tree
        low, high = int(s.clique_offsets[c]), int(s.clique_offsets[c + 1])
        inputs = self._belief_inputs(c)
        n_axes, n_operands = high - low, len(inputs) + len(targets.sizes)
        lengths = np.array([2, n_axes, n_operands * n_axes, n_operands, len(targets.sizes)])
        program = programs.new_program(lengths, 1)
        at = np.zeros(5, dtype=np.int64)
        programs.begin(at, program, s.card, s.clique_vars, low, high)
        for operand, base in inputs:
            programs.add_table(at, program, 0, s.clique_vars, low, operand, base, -1)
        program.ops[0, programs.FIXED] = len(inputs)
        end = 0
        for t in range(len(targets.sizes)):
            end = programs.add_target(at, program, 0, s.clique_vars, low, targets, t, end)
        program.ops[0, programs.HIGH] = end
        program.ops[1, programs.ACTIONS] = at[4]
        program.ends[1] = 1
        _, tile = tile_split(program.dims, 0, n_axes, 1)
        return program, (int(tile), n_operands, n_operands * n_axes, n_axes)

    def _belief_inputs(self, c: int) -> list[tuple[Operand, int]]:
        """Tables whose product is the belief of clique c, and where they begin."""
        s = self.plan.found_tree
        low, ends = s.clique_offsets, s.clique_offsets[1:] - s.residual
        if self.hugin:
            clique = Operand(s.clique_vars, int(low[c]), int(low[c + 1]))
            return [(clique, int(self.clique_tables[c]))]
        groups = range(s.groups[c], s.groups[c + 1])
        inputs = [
            (
                Operand(s.group_vars, int(s.group_offsets[g]), int(s.group_offsets[g + 1])),
                int(s.group_tables[g]),
            )
            for g in groups
        ]
        if s.parent[c] >= 0:
            separator = Operand(s.clique_vars, int(low[c]), int(ends[c]))
            inputs.append((separator, int(self.down[c])))
        for j in s.children[s.child_offsets[c] : s.child_offsets[c + 1]]:
            inputs.append((Operand(s.clique_vars, int(low[j]), int(ends[j])), int(self.up[j])))
        return inputs

    def best_state(self) -> Ints:
        """The most probable state of the reduced graph, after a `collect` of maxima."""
        tree = self.plan.found_tree
        columns = np.zeros((self.plan.graph.n_variables, 1), dtype=np.int64)
        states.decode(self.upward, tree, self._decoding(columns))
        state: Ints = self._by_variable(columns)[0]
        return state

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """`n` exact samples of the reduced graph, from the roots down, after a `collect`."""
        tree = self.plan.found_tree
        columns = np.zeros((self.plan.graph.n_variables, n), dtype=np.int64)
        decoding = self._decoding(columns)
        at_once = max(_DRAWS // max(n, 1), 1)
        for stop in range(tree.n_nodes, 0, -at_once):
            start = max(stop - at_once, 0)
            uniforms = rng.random((stop - start, n))
            states.draw(self.upward, tree, start, stop, decoding, uniforms)
        return self._by_variable(columns)

    def _decoding(self, columns: Ints) -> states.Decoding:
        weights = np.empty(int(self.plan.found_tree.largest_residual))
        counters = self.workspace.counters
        return states.Decoding(self.tables.mem, self.logs, columns, counters, weights)

    def _by_variable(self, columns: Ints) -> Ints:
        return np.ascontiguousarray(columns[self.plan.found_tree.rank].T)


def _offsets(sizes: Ints, start: int) -> tuple[Ints, int]:
    ends = start + np.cumsum(sizes)
    return ends - sizes, int(ends[-1]) if len(ends) else start


def _workspace(
    results: int, answers: int, tile: int, operands: int, table: int, axes: int
) -> Workspace:
    sizes = {"runs": table, "strides": table, "lengths": operands, "places": operands}
    return Workspace(
        temporary=np.empty(results),
        out=np.empty(answers),
        tile=np.empty(tile),
        counters=np.empty(3 * axes, dtype=np.int64),
        **{name: np.empty(size, dtype=np.int64) for name, size in sizes.items()},
    )


def _chunks(work: Array, whole: float) -> Iterator[Chunk]:
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
