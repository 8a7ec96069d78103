"""Propagation on a planned junction tree: buffers, arithmetic, and the clock between cliques.

Sums are first made with plain numbers, every message scaled to a largest entry of 1. If a product of
entries above zero falls below what a float can safely hold, the run starts again with logarithms.
Maxima always use logarithms: they cost the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Clock, format_bytes
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.inference.junction_plan import WAY_OUT, Mode, Plan, Propagation
from kikuchi.inference.kernels import junction_passes as passes
from kikuchi.inference.kernels import junction_states as states
from kikuchi.inference.kernels.junction_passes import Scratch, Targets, Tree

Report = Callable[[int, int], None]
Read = Callable[[Plan], Targets]

_CHUNK = 5e7  # multiply-adds between two looks at the clock
_LOG_FLOOR = -667.0
_NO_TABLES = np.zeros(0, dtype=np.int64)


class _Underflow(Exception):
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
        skeleton = plan._skeleton
        self.cost = plan.cost(targets, logs=arithmetic == passes.LOG_SUM)
        separator = skeleton.separator_size.astype(np.int64)
        end = int(skeleton.group_tables[-1])
        up, end = _offsets(separator, end)
        down, end = _offsets(separator, end) if keep and not hugin else (up, end)
        clique = skeleton.clique_size.astype(np.int64)
        tables, end = _offsets(clique, end) if hugin else (_NO_TABLES, end)
        self.tree = Tree(
            skeleton.card,
            skeleton.clique_offsets,
            skeleton.clique_vars,
            skeleton.residual,
            skeleton.parent,
            skeleton.child_offsets,
            skeleton.children,
            separator,
            skeleton.groups,
            skeleton.group_offsets,
            skeleton.group_vars,
            skeleton.group_tables,
            up,
            down,
            tables,
        )
        self.mem = np.empty(end)
        self.temporary = np.empty(int(self.cost.temporary))
        self.scratch = _scratch(*plan.scratch_sizes(targets))
        self.group_floors = np.zeros(len(skeleton.group_tables) - 1)
        self.message_floors = np.zeros(skeleton.n_cliques)
        self.scales = np.zeros(skeleton.n_cliques)
        self.out = np.empty(int(targets.sizes.sum()))
        self.log_z = self._multiply_factors()
        self.state: NDArray[np.int64] | None = None

    def _multiply_factors(self) -> float:
        skeleton, graph = self.plan._skeleton, self.plan.graph
        log_scale = passes.multiply_factors(
            self.mem,
            self.tree,
            graph.log_tables,
            graph.table_offsets,
            graph.scope_offsets,
            skeleton.factor_ranks,
            skeleton.factor_strides,
            skeleton.group_of,
            self.group_floors,
        )
        if log_scale == -np.inf:
            raise _impossible()
        if self.arithmetic == passes.LINEAR:
            if self.group_floors.min(initial=0.0) < _LOG_FLOOR:
                raise _Underflow
            products = self.mem[: skeleton.group_tables[-1]]
            np.exp(products, out=products)
        return float(log_scale)

    @property
    def logs(self) -> bool:
        """True if the tables hold logarithms."""
        return self.arithmetic != passes.LINEAR

    def collect(self, watch: Watch, total: float) -> None:
        """The upward pass: afterwards `log_z` is known (the best score, for maxima)."""
        task = passes.HUGIN_UP if self.hugin else passes.UP
        for start, stop, done in _chunks(self.cost.up):
            self._sweep(task, start, stop)
            watch.check(done, total)
        self.log_z += float(self.scales.sum())

    def distribute(self, watch: Watch, total: float) -> None:
        """The downward pass: afterwards `out` holds all targets."""
        before = float(self.cost.up.sum())
        task = passes.HUGIN_DOWN if self.hugin else passes.DOWN
        for start, stop, done in _chunks(self.cost.down[::-1]):
            self._sweep(task, start, stop)
            watch.check(before + done, total)

    def read(self, clique: int, targets: Targets) -> NDArray[np.float64]:
        """Targets from the belief of one clique, after both passes with messages kept."""
        size = int(targets.sizes.sum())
        temporary = np.empty(2 * size if self.arithmetic == passes.LOG_SUM else size)
        out = np.empty(size)
        _raise_for(self._call(passes.READ, temporary, targets, out, clique, clique + 1))
        return out

    def _sweep(self, task: int, start: int, stop: int) -> None:
        _raise_for(self._call(task, self.temporary, self.targets, self.out, start, stop))

    def _call(
        self,
        task: int,
        temporary: NDArray[np.float64],
        targets: Targets,
        out: NDArray[np.float64],
        start: int,
        stop: int,
    ) -> int:
        status: int = passes.sweep(
            task,
            self.tree,
            self.scratch,
            self.mem,
            temporary,
            self.group_floors,
            self.message_floors,
            self.scales,
            targets,
            out,
            start,
            stop,
            self.arithmetic,
        )
        return status

    def best_state(self) -> NDArray[np.int64]:
        """The most probable state of the reduced graph, after a `collect` of maxima (HOJ-I5)."""
        columns = np.zeros((self.plan.graph.n_variables, 1), dtype=np.int64)
        weights = np.empty(int(self.plan.largest_residual))
        states.decode(self.tree, self.scratch, self.mem, columns, weights)
        return self._by_variable(columns)[0]

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`n` exact samples of the reduced graph, from the roots down, after a `collect`."""
        columns = np.zeros((self.plan.graph.n_variables, n), dtype=np.int64)
        weights = np.empty(int(self.plan.largest_residual))
        for c in range(self.plan._skeleton.n_cliques - 1, -1, -1):
            states.draw(
                self.tree, self.scratch, self.mem, c, columns, rng.random(n), weights, self.logs
            )
        return self._by_variable(columns)

    def _by_variable(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.ascontiguousarray(columns[self.plan._skeleton.rank].T)


def propagate(
    plan: Plan,
    read: Read,
    watch: Watch,
    *,
    mode: Mode = "sum",
    propagation: Propagation = "shafer-shenoy",
    keep: bool = False,
    distribute: bool = True,
) -> Run:
    """Run both passes (or the upward one), with logarithms if plain numbers do not reach.

    `read` says which marginals to read; with `mode` max the best state is found as well.
    """
    _refuse_endless(plan, watch)
    targets = read(plan)
    hugin = propagation == "hugin"
    arithmetics = (passes.LOG_MAX,) if mode == "max" else (passes.LINEAR, passes.LOG_SUM)
    for arithmetic in arithmetics:
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
            total = float(run.cost.up.sum()) + distribute * float(run.cost.down.sum())
            run.collect(watch, total)
            if mode == "max":
                run.state = run.best_state()  # before messages down take the place of those up
            if distribute:
                run.distribute(watch, total)
            return run
        except _Underflow:
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
    """Refuse a plan without a tree, or with tables that no machine can address."""
    if plan.runnable:
        return
    least = "" if plan.complete else " at least"
    watch.clock.budget.require_bytes(plan.bytes, _what(plan), WAY_OUT)
    raise BudgetError(f"{_what(plan)} needs{least} {format_bytes(plan.bytes)}; {WAY_OUT}")


def _offsets(sizes: NDArray[np.int64], start: int) -> tuple[NDArray[np.int64], int]:
    ends = start + np.cumsum(sizes)
    return ends - sizes, int(ends[-1]) if len(ends) else start


def _scratch(tile: int, operands: int, table: int, axes: int) -> Scratch:
    def ints(size: int) -> NDArray[np.int64]:
        return np.empty(size, dtype=np.int64)

    return Scratch(
        np.empty(tile),
        ints(axes),
        ints(table),
        ints(operands),
        ints(table),
        ints(table),
        ints(operands),
        ints(operands),
        ints(3 * axes),
    )


def _chunks(work: NDArray[np.float64]) -> Iterator[tuple[int, int, float]]:
    """Ranges of cliques that cost about _CHUNK each, with the work done after each."""
    total = np.cumsum(work)
    if len(total) == 0:
        return
    start, done = 0, 0.0
    while start < len(work):
        stop = int(np.searchsorted(total, done + _CHUNK)) + 1
        stop = min(max(stop, start + 1), len(work))
        done = float(total[stop - 1])
        yield start, stop, done
        start = stop


def _raise_for(status: int) -> None:
    if status == passes.UNDERFLOW:
        raise _Underflow
    if status == passes.IMPOSSIBLE:
        raise _impossible()


def _impossible() -> ImpossibleEvidenceError:
    return ImpossibleEvidenceError(
        "the evidence has probability zero: no state satisfies all factors at once; "
        "check the observed states and the zeros of the tables"
    )
