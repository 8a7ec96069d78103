"""Filter and smoother of long sequences on several cores: blocks of time side by side.

Every block but the first is filtered as if the state before it were known to be zero, while the
weight of that state in the answers is tracked (the conditional elements of the associative scan).
Once it is forgotten, the rest of the block is final. Blocks are then joined one after the other,
and only the steps that still owe something to the state before them are filtered again, blocks side
by side. The smoother does the same backwards. The answers are those of the sequential recursions to
rounding; a state that is never forgotten costs its block a second pass.

Reference: HOJ-I6, HOJ-I7.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.errors import ModelError
from kikuchi.core.parallel import map_threads
from kikuchi.temporal.kernels import blocks as kernels
from kikuchi.temporal.kernels.covariance import FilteredSteps, StepsGivenAll, filter_forward

LEAST = 256  # steps of a block below which threads cost more than they gain


class WhiteChain(NamedTuple):
    """A sequence as `filter_forward` reads it: outputs in units of their noise."""

    a: Array
    q: Array
    drift: Array
    c: Array
    which: U4
    counts: Ints
    y: Array
    mean0: Array
    cov0: Array

    def part(self, low: int, high: int, mean: Array, cov: Array) -> WhiteChain:
        """A block of steps, from these moments of the state before its outputs."""
        return WhiteChain(
            _cut(self.a, low, high), _cut(self.q, low, high), _cut(self.drift, low, high), self.c,
            self.which[low:high], self.counts, self.y[low:high], mean, cov,
        )  # fmt: skip

    def predicted(self, step: int, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Moments of a state before its outputs, from those of the state before it."""
        a = self.a[step if len(self.a) > 1 else 0]
        q, b = self.q[step if len(self.q) > 1 else 0], self.drift
        moved = a @ mean + b[step if len(b) > 1 else 0]
        return moved, a @ cov @ a.T + q


def _cut(parameter: Array, low: int, high: int) -> Array:
    """Rows of a parameter that varies; a constant one has one row."""
    return parameter[low:high] if len(parameter) > 1 else parameter


def untracked(n: int) -> tuple[Array, Array, Array]:
    """What `filter_forward` takes in place of weights, pull and information of a state before the
    sequence, where there is none.
    """
    return np.empty((0, n)), np.empty(0), np.empty((0, n))


def block_edges(steps: int, threads: int) -> list[int]:
    """First steps of the blocks, and the end: a block per thread, unless they would be short.

    >>> block_edges(1000, 3), block_edges(100, 3)
    ([0, 333, 666, 1000], [0, 100])
    """
    count = max(1, min(threads, steps // LEAST))
    return [steps * k // count for k in range(count + 1)]


# ---------------------------------------------------------------------- filter


class _Element(NamedTuple):
    """A block after an unknown state x: what its end and its likelihood owe to x.

    `done` steps were tracked; unless they are all of the block, x is forgotten after them.
    """

    log_start: float
    log_rest: float
    done: int
    weights: Array
    pull: Array
    information: Array


def filter_blocks(
    chain: WhiteChain, means: Array, covs: Array, predicted: Array, threads: int
) -> float:
    """Means, covariances, and predicted covariances if there is room, of the filter; answers the
    log-likelihood of the whitened outputs.
    """
    edges = block_edges(len(means), threads)
    spans = list(pairwise(edges))
    keep = len(predicted) > 0

    def steps_of(low: int, high: int) -> FilteredSteps:
        before = predicted[low:high] if keep else predicted
        return FilteredSteps(means[low:high], covs[low:high], before)

    def run(low: int, high: int, mean: Array, cov: Array) -> float:
        if low == high:
            return 0.0
        value, _, failed = filter_forward(
            chain.part(low, high, mean, cov), 0.0, steps_of(low, high), *untracked(len(mean))
        )
        _check(low, failed, value)
        return float(value)

    def element(number: int) -> Any:
        low, high = spans[number]
        if not number:
            return run(low, high, chain.mean0, chain.cov0)
        n = means.shape[1]
        mean, cov = chain.predicted(low, np.zeros(n), np.zeros((n, n)))
        told = chain.a[low if len(chain.a) > 1 else 0].copy(), np.zeros(n), np.zeros((n, n))
        value, done, failed = filter_forward(
            chain.part(low, high, mean, cov), 0.0, steps_of(low, high), *told
        )
        _check(low, failed, value)
        rest = 0.0
        if low + done < high:
            before = low + done - 1
            start = chain.predicted(low + done, means[before], covs[before])
            rest = run(low + done, high, *start)
        return _Element(float(value), rest, int(done), *told)

    elements = map_threads(element, range(len(spans)), threads)
    starts = _joined(spans, elements, means, covs)

    def again(number: int) -> float:
        low = spans[number + 1][0]
        e: _Element = elements[number + 1]
        start = chain.predicted(low, *starts[number])
        return run(low, low + e.done, *start) + e.log_rest

    return float(elements[0]) + sum(map_threads(again, range(len(starts)), threads))


def _joined(
    spans: list[tuple[int, int]], elements: list[Any], means: Array, covs: Array
) -> list[tuple[Array, Array]]:
    """Mean and covariance of the state before each block but the first."""
    out = [(means[spans[0][1] - 1], covs[spans[0][1] - 1])]
    for (_, high), e in zip(spans[1:-1], elements[1:-1], strict=True):
        mean, cov = out[-1]
        shrink = np.eye(len(mean)) + cov @ e.information
        solved = np.linalg.solve(shrink, np.column_stack([cov, mean + cov @ e.pull]))
        w = e.weights
        end = w @ solved[:, -1] + means[high - 1]
        spread = w @ solved[:, :-1] @ w.T + covs[high - 1]
        out.append((end, 0.5 * (spread + spread.T)))
    return out if len(spans) > 1 else []


def _check(low: int, failed: int, value: float) -> None:
    if failed >= 0 or not math.isfinite(value):
        step = low + failed if failed >= 0 else "unknown"
        raise ModelError(
            f"the covariance is no longer positive (step {step}); use "
            "arithmetic='square-root', or check "
            "the scale of the noise"
        )


# ---------------------------------------------------------------------- smoother


def smooth_blocks(
    chain: WhiteChain, filtered: tuple[Array, Array, Array], out: Array, covs: Array, pairs: Array,
    threads: int,
) -> None:  # fmt: skip
    """Means, covariances and covariances of neighbours given all outputs, from means, covariances
    and predicted covariances of the filter.
    """
    means, filtered_covs, predicted = filtered
    steps, n = means.shape
    edges = block_edges(steps, threads)
    edges[-1] = steps - 1
    spans = list(pairwise(edges))
    out[-1], covs[-1] = means[-1], filtered_covs[-1]

    def run(low: int, high: int, stop: int, mean: Array, cov: Array, weights: Array) -> int:
        """Down from step high - 1 to stop, the state at step `high` having these moments."""
        if high == stop:
            return stop
        room, v = np.empty((high - low + 1, n)), cov.copy()
        room[-1] = mean
        reached, failed = kernels.smooth_span(
            _cut(chain.a, low, high + 1), _cut(chain.drift, low, high + 1),
            FilteredSteps(means[low:high], filtered_covs[low:high], predicted[low : high + 1]),
            stop - low, v, weights, StepsGivenAll(room, covs[low:high], pairs[low:high]),
        )  # fmt: skip
        if failed >= 0:
            raise ModelError(
                f"the predicted covariance of step {low + failed + 1} is singular; use "
                "arithmetic='square-root'"
            )
        out[low + reached : high] = room[reached:-1]
        return int(low + reached)

    def element(number: int) -> Any:
        low, high = spans[number]
        none = np.empty((0, n))
        if number == len(spans) - 1:
            run(low, high, low, out[high], covs[high], none)
            return None
        weights = np.empty((n, n))
        reached = run(low, high, low, np.zeros(n), np.zeros((n, n)), weights)
        if reached > low:
            run(low, reached, low, out[reached], covs[reached], none)
        return reached, weights

    elements = map_threads(element, range(len(spans)), threads)
    ends, (mean, cov) = [], (out[spans[-1][0]], covs[spans[-1][0]])
    for number in range(len(spans) - 2, -1, -1):
        ends.append((number, mean.copy(), cov.copy()))
        low, w = spans[number][0], elements[number][1]
        mean, cov = out[low] + w @ mean, covs[low] + w @ cov @ w.T

    def again(end: tuple[int, Array, Array]) -> None:
        number, mean, cov = end
        low, high = spans[number]
        run(low, high, elements[number][0], mean, cov, np.empty((0, n)))

    map_threads(again, ends, threads)
