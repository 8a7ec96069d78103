"""Gradients of Lawrence's mixture bound with lambda eliminated, and their ascent.

Everything at once: weights and probabilities as soft maxima, smoothing functions as exponentials,

    L = sum_m a_m (L_m + E_m[ln R_m] - ln sum_k a_k pi(m, k)),

maximised by L-BFGS. Entries of probability zero stay zero. The bound holds at every point, so
what is answered is the best one seen.

Reference: LAW-I9.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.numerics import log
from kikuchi.engines.mean_field.mixture import Mixture
from kikuchi.engines.mean_field.mixture_bound import mixture_bound, table_workspace
from kikuchi.engines.run import MethodRun
from kikuchi.graphs.graph_arrays import GraphArrays

_LEAST = -690.0  # log-probabilities are kept above the smallest number of a float
_LEAST_INCREASE = 2.2e-9  # of the bound in one step, relative: less ends the ascent
_LEAST_GRADIENT = 1e-5


class Objective:
    """Value and gradient of the bound at a vector of log-weights, logits and ln R."""

    def __init__(self, flat: GraphArrays, mixture: Mixture) -> None:
        self.flat = flat
        self.like = mixture
        self.live = mixture.q > 0.0
        self.n = len(mixture.weights)
        self.owner = np.repeat(np.arange(len(flat.cards)), flat.cards.astype(np.int64))
        self.scratch = table_workspace(flat)

    def pack(self, mixture: Mixture) -> Array:
        """The vector of a mixture."""
        live = self.live
        parts = (log(mixture.weights), log(mixture.q[live]), log(mixture.smoothing[live]))
        return np.maximum(np.concatenate(parts), _LEAST)

    def unpack(self, vector: Array) -> Mixture:
        """The mixture of a vector."""
        live, n, starts = self.live, self.n, self.flat.state_offsets[:-1]
        count = int(live.sum())
        weights = np.exp(vector[:n] - vector[:n].max())
        logits = np.full(live.shape, -np.inf)
        logits[live] = vector[n : n + count]
        tops = np.maximum.reduceat(logits, starts, axis=1)[:, self.owner]
        q = np.exp(logits - tops)
        q /= np.add.reduceat(q, starts, axis=1)[:, self.owner]
        smooth = np.full(live.shape, -np.inf)
        smooth[live] = vector[n + count :]
        smooth -= np.maximum.reduceat(smooth, starts, axis=1)[:, self.owner]  # scale is free
        return self.like.copy()._replace(
            weights=weights / weights.sum(),
            q=q,
            smoothing=np.where(live, np.exp(np.maximum(smooth, _LEAST)), 0.0),
        )

    def value_and_gradient(self, vector: Array) -> tuple[float, Array]:
        """The bound and its derivatives."""
        from kikuchi.engines.mean_field.kernels.mixture_mean_field import (
            component_bounds,
            fields,
        )

        w = self.unpack(vector)
        value = mixture_bound(self.flat, w, self.scratch)
        a, q, r = w.weights, w.q, w.smoothing
        field = np.zeros_like(q)
        fields(self.flat, q, field, self.scratch)
        bounds = np.zeros(self.n)
        component_bounds(self.flat, q, 1.0, bounds, self.scratch)
        dots = np.stack([np.add.reduceat(r[m] * q, self.flat.state_offsets[:-1], axis=1)
                         for m in range(self.n)])  # fmt: skip
        share = self._shares(w)  # a_k pi(m, k) / sum_l a_l pi(m, l)
        seen = q > 0.0  # a live entry may have underflown
        logs = log(np.where(seen, r, 1.0))
        smoothed = np.sum(q * logs, axis=1)
        masses = self._log_masses(w)
        to_weight = bounds + smoothed - masses - (a @ share) / np.maximum(a, np.finfo(float).tiny)
        to_q = a[:, None] * np.where(seen, field - log(np.where(seen, q, 1.0)) + logs, 0.0)
        to_r = a[:, None] * np.where(self.live, q, 0.0)
        for m in range(self.n):
            for k in range(self.n):
                with np.errstate(divide="ignore", invalid="ignore"):
                    tilt = np.where(dots[m, k] > 0.0, share[m, k] / dots[m, k], 0.0)[self.owner]
                to_q[k] -= a[m] * tilt * r[m]
                to_r[m] -= a[m] * tilt * r[m] * q[k]
        gradient = np.concatenate(
            [
                a * (to_weight - a @ to_weight),
                self._through_softmax(q, to_q)[self.live],
                to_r[self.live],
            ]
        )
        return value, gradient

    def _log_masses(self, w: Mixture) -> Array:
        pi = np.where(w.disjoint > 0, -np.inf, w.overlap) + log(w.weights)
        top = pi.max(axis=1)
        return np.asarray(top + np.log(np.exp(pi - top[:, None]).sum(axis=1)))

    def _shares(self, w: Mixture) -> Array:
        pi = np.where(w.disjoint > 0, -np.inf, w.overlap) + log(w.weights)
        return np.asarray(np.exp(pi - self._log_masses(w)[:, None]))

    def _through_softmax(self, q: Array, to_q: Array) -> Array:
        mean = np.add.reduceat(q * to_q, self.flat.state_offsets[:-1], axis=1)
        return np.asarray(q * (to_q - mean[:, self.owner]))


def maximise(flat: GraphArrays, start: Mixture, limit: int, run: MethodRun) -> tuple[Mixture, int]:
    """The best mixture that L-BFGS sees from `start`, and the evaluations it took."""
    kept = np.flatnonzero(start.weights > 0.0)
    start = _restricted(start, kept)
    objective = Objective(flat, start)
    best, best_value = objective.pack(start), mixture_bound(flat, start, objective.scratch)
    count = 0

    def negative(vector: Array) -> tuple[float, Array]:
        nonlocal count, best, best_value
        count += 1
        value, gradient = objective.value_and_gradient(vector)
        if value > best_value:
            best, best_value = vector, value
        return -value, -gradient

    try:
        descent = Lbfgs(negative, best)
        for _ in descent.steps(limit, least_decrease=_LEAST_INCREASE, tol=_LEAST_GRADIENT):
            if run.clock.expired:
                run.stopped = "seconds"
                break
    except KeyboardInterrupt:
        run.stopped = "interrupted"
    return objective.unpack(best), count


def _restricted(mixture: Mixture, kept: Ints) -> Mixture:
    """The mixture without components of weight zero."""
    square = np.ix_(kept, kept)
    return Mixture(
        mixture.weights[kept],
        mixture.q[kept],
        mixture.smoothing[kept],
        mixture.log_scale[kept],
        mixture.overlap[square],
        mixture.disjoint[square],
        mixture.gains[kept],
        mixture.row.copy(),
    )
