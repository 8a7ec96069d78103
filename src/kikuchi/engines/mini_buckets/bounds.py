"""Both weighted mini-bucket bounds as functions of cost shifts and weights, with their gradients.

For one bucket with mini-buckets r, Hölder's inequality gives

    log sum_x exp(sum_r psi_r) <= sum_r w_r log sum_x exp(psi_r / w_r),    w_r > 0, sum_r w_r = 1,

and the reverse one >= if a single weight is positive, above 1, and the others are negative. Adding
functions that sum to zero to the mini-buckets (cost shifts) leaves the left side as it is, so the
bound may be optimised over shifts and weights. Its derivative by a shift is the belief of the
mini-bucket that takes it, by a weight the conditional entropy of the variable that it sums out.
The upper bound is convex in shifts and weights; the lower one is not concave. At the best shifts
the upper one is the maximum of a convexified region energy: mean log-tables plus the weighted
conditional entropies of the mini-buckets, over beliefs that agree.

Reference: TEH-X3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.engines.mini_buckets.kernels import passes as kernels
from kikuchi.engines.mini_buckets.plan import MEMORY, MiniBucketPlan

_CHUNK = 2.0**21  # table entries between two looks at the clock: a few hundredths of a second
_LEAST_WEIGHT = 1e-4
_FIRST_LOWER = -2.0  # log of minus a negative weight at the start
_LARGEST_LOG = 12.0
_LARGEST_MOVE = 3.0  # of a log-weight in one step
_LARGEST_SHIFT = 30.0  # of a shift in one step


class MiniBucketWorkspace:
    """Tables that all descents of a run share, since they are written anew in each pass.

    `owner` is the bound whose beliefs are in the tables, and `point` where; None between passes.
    """

    def __init__(self, plan: MiniBucketPlan) -> None:
        self.table = np.empty(0)
        self.digits = np.zeros(0, dtype=np.int64)
        self.owner: Bound | None = None
        self.point: Array | None = None
        self.reserve(plan)

    def reserve(self, plan: MiniBucketPlan) -> None:
        """Let the tables of a plan fit."""
        if plan.entries > len(self.table):
            self.table = np.empty(0)  # the old one must go first
            self.table = np.empty(int(plan.entries))
            self.owner = None
        if plan.largest_scope > len(self.digits):
            self.digits = np.zeros(plan.largest_scope, dtype=np.int64)


class Bound(ABC):
    """One bound on one plan: minus what is to be maximised, or what is to be minimised.

    A point is the shifts, then the logarithms that make the weights of all nodes in split buckets.
    """

    sign: float

    def __init__(
        self,
        plan: MiniBucketPlan,
        workspace: MiniBucketWorkspace,
        check_clock: Callable[[], None],
        constant: float = 0.0,
    ) -> None:
        self.plan = plan
        self.constant = constant
        self.workspace = workspace
        self.check_clock = check_clock
        self.program = plan.program
        self.inputs = plan.inputs
        self.n_shifts = int(plan.n_shifts)
        self.first_shift = int(plan.shift_places[0])
        self.n_static = int(plan.static_places[-1])
        self.values = np.zeros(self.first_shift + 2 * self.n_shifts)
        self.scale_factors(1.0)
        self.slopes = np.zeros_like(self.values)
        self.entropies = np.zeros(self.first_shift)
        self.node_entropies = np.zeros(plan.n_nodes)
        self.bucket = np.unique(plan.node_ranks, return_inverse=True)[1]
        self.bucket_sizes = np.bincount(self.bucket)
        self.split = np.flatnonzero(self.bucket_sizes[self.bucket] > 1)
        self.chunks = _chunks(plan.table_sizes)

    def scale_factors(self, strength: float) -> None:
        """Multiply all log-tables by `strength`; what follows bounds log Z only if that is 1."""
        self.values[: self.n_static] = strength * self.plan.static_values()

    @property
    def start(self) -> Array:
        """No shifts, and the weights to begin with."""
        return np.zeros(self.n_shifts + len(self.split))

    @abstractmethod
    def weights(self, logs: Array) -> Array:
        """The weight of each node."""

    @abstractmethod
    def weight_slopes(self, logs: Array, weights: Array) -> Array:
        """Derivative of the bound by `logs`, given the conditional entropies of the nodes."""

    def node_weights(self, point: Array) -> Array:
        """The weights at a point."""
        logs = np.zeros(self.plan.n_nodes)
        logs[self.split] = point[self.n_shifts :]
        return self.weights(logs)

    def at(self, point: Array) -> tuple[float, Array]:
        """Objective (the bound times `sign`) and its gradient."""
        bound, weights = self.propagate(point)
        gains, losses = np.split(self.slopes[self.first_shift :], 2)
        logs = np.zeros(self.plan.n_nodes)
        logs[self.split] = point[self.n_shifts :]
        by_logs = self.weight_slopes(logs, weights)[self.split]
        return self.sign * bound, self.sign * np.concatenate([gains - losses, by_logs])

    def propagate(self, point: Array) -> tuple[float, Array]:
        """Both passes; answers the bound and the weights, leaves beliefs in the tables."""
        weights = self.node_weights(point)
        total = self.forward(point, weights)
        self.slopes[self.n_static :] = 0.0
        workspace, conditionals = self.workspace, self._conditionals
        for first, last in reversed(self.chunks):
            self.check_clock()
            kernels.backward(
                self.program,
                self.inputs,
                self.slopes,
                conditionals,
                self.node_entropies,
                self.n_static,
                first,
                last,
            )
        workspace.owner, workspace.point = self, point
        return total, weights

    @property
    def _conditionals(self) -> kernels.Conditionals:
        workspace = self.workspace
        return kernels.Conditionals(workspace.table, self.entropies, workspace.digits)

    def forward(self, point: Array, weights: Array) -> float:
        """The bound; leaves the conditionals in the tables."""
        gains, losses = np.split(self.values[self.first_shift :], 2)
        gains[:] = point[: self.n_shifts]
        np.negative(gains, out=losses)  # to the last bit, so that nothing is gained by shifting
        total = self.constant
        conditionals = self._conditionals
        self.workspace.owner = None
        for first, last in self.chunks:
            self.check_clock()
            total += kernels.forward(
                self.program,
                self.inputs,
                weights,
                self.values,
                conditionals,
                first,
                last,
            )
        return float(total)

    def variable_beliefs(self, weights: Array) -> Array:
        """Marginals of all variables, by rank: the weighted mean over the mini-buckets of each.

        Call after `propagate`. Variables without a function get no mass.
        """
        cards = self.plan.ranked_cards
        places = np.cumsum(cards) - cards
        beliefs = np.zeros(int(cards.sum()))
        masses = np.abs(weights)
        shares = masses / np.bincount(self.bucket, masses)[self.bucket]
        table = self.workspace.table
        kernels.variable_beliefs(self.program, table, shares, places[self.plan.node_ranks], beliefs)
        return beliefs


class Upper(Bound):
    """Weights: a softmax in each bucket, kept a little above zero."""

    sign = 1.0

    @property
    def _least(self) -> Array:
        return np.minimum(_LEAST_WEIGHT, 0.1 / self.bucket_sizes)[self.bucket]

    def weights(self, logs: Array) -> Array:
        """w_r = least + (1 - least * count) softmax(logs)_r."""
        peaks = np.full(len(self.bucket_sizes), -np.inf)
        np.maximum.at(peaks, self.bucket, logs)
        masses = np.exp(logs - peaks[self.bucket])
        soft = masses / np.bincount(self.bucket, masses)[self.bucket]
        spare = 1.0 - self._least * self.bucket_sizes[self.bucket]
        return np.asarray(self._least + spare * soft)

    def weight_slopes(self, logs: Array, weights: Array) -> Array:
        """spare * soft_r * (H_r - mean of H)."""
        excess = weights - self._least
        spare = 1.0 - self._least * self.bucket_sizes[self.bucket]
        mean = np.bincount(self.bucket, excess * self.node_entropies)[self.bucket] / spare
        return np.asarray(excess * (self.node_entropies - mean))


class Lower(Bound):
    """Weights: -(least + exp(log)) for all nodes of a bucket but one, which makes the sum 1."""

    sign = -1.0

    @cached_property
    def negative(self) -> Mask:
        """Whether the weight of a node is negative."""
        negative = np.ones(self.plan.n_nodes, dtype=bool)
        negative[self.positive] = False
        return negative

    @property
    def start(self) -> Array:
        """No shifts, and small negative weights."""
        point = super().start
        point[self.n_shifts :] = _FIRST_LOWER
        return point

    @cached_property
    def positive(self) -> Ints:
        """In each bucket the node with the most zeros, since a zero in a node of negative weight
        forbids the whole row; the first and largest if there is none.
        """
        first = np.cumsum(self.bucket_sizes) - self.bucket_sizes
        if np.all(np.isfinite(self.plan.graph.log_tables)):
            return np.asarray(first)
        zeros = np.zeros(self.plan.n_nodes, dtype=np.int64)
        self.forward(super().start, np.ones(self.plan.n_nodes))
        kernels.count_zeros(self.program, self.workspace.table, zeros)
        order = np.lexsort((np.arange(len(zeros)), -zeros, self.bucket))
        return np.asarray(order[first])

    def _negatives(self, logs: Array) -> Array:
        sizes = np.exp(np.minimum(logs, _LARGEST_LOG))
        return np.where(self.negative, sizes, 0.0)

    def weights(self, logs: Array) -> Array:
        """Negative ones from their logarithms, the positive one 1 minus their sum."""
        sizes = np.where(self.negative, _LEAST_WEIGHT + self._negatives(logs), 0.0)
        return np.where(self.negative, -sizes, 1.0 + np.bincount(self.bucket, sizes)[self.bucket])

    def weight_slopes(self, logs: Array, weights: Array) -> Array:
        """exp(log_r) * (H of the positive node - H_r)."""
        against = self.node_entropies[self.positive][self.bucket]
        inside = logs < _LARGEST_LOG
        return np.asarray(self._negatives(logs) * inside * (against - self.node_entropies))


def _chunks(sizes: Array) -> list[tuple[int, int]]:
    """Ranges of nodes of about `_CHUNK` entries each."""
    cuts = np.searchsorted(np.cumsum(sizes), np.arange(_CHUNK, sizes.sum(), _CHUNK)) + 1
    ends = np.unique(np.concatenate([[0], np.minimum(cuts, len(sizes)), [len(sizes)]]))
    return [(int(a), int(b)) for a, b in pairwise(ends)]


class BoundDescent:
    """L-BFGS on one bound, step by step so that many can be compared; the objective never rises."""

    def __init__(self, bound: Bound, point: Array) -> None:
        self.bound = bound
        longest = np.full(len(point), _LARGEST_MOVE)
        longest[: bound.n_shifts] = _LARGEST_SHIFT
        self._search = Lbfgs(bound.at, point, memory=MEMORY, longest=longest, strict=True)
        self.stuck = len(point) == 0 or not np.isfinite(self.value)

    @property
    def point(self) -> Array:
        """Where the search is."""
        return self._search.point

    @property
    def value(self) -> float:
        """The objective there."""
        return self._search.value

    @property
    def log_z_bound(self) -> float:
        """The bound on log Z at the current point."""
        return self.bound.sign * self.value

    def step(self) -> None:
        """One step down, or `stuck` where none is found."""
        if not self.stuck:
            self.stuck = not self._search.step()
