"""Several hidden chains that share their outputs, by belief propagation between frames and chains.

Each frame's likelihood couples the states of all chains; each chain is kept whole. A chain tells a
frame what it believes about its state without that frame, the frame sums over the states of the
other chains and answers. Mean field multiplies expected logarithms instead, and is sure of too
much where outputs are ambiguous. The log-likelihood is the Bethe estimate, not a bound.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.special import logsumexp

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.temporal.chains.structured import (
    AdditiveGaussian,
    ChainsPosterior,
    HiddenChains,
    check_complete,
    check_product,
)
from kikuchi.temporal.kernels import chains as kernels

_MOST = 100_000  # combinations of states of a frame
_TINY = 1e-300
_LEAST = 1e-60  # of the largest message or cavity of a frame


def propagate_chains(
    model: HiddenChains, rows: Array, *, max_iter: int = 100, tol: float = 1e-4,
    damping: float = 0.0,
) -> ChainsPosterior:  # fmt: skip
    """Probabilities of the states of each chain by belief propagation, until none changes by `tol`.

    Parameters
    ----------
    model : the chains
    rows : outputs (T, d)
    max_iter, tol : when to stop
    damping : share of the logarithm of the old messages that is kept

    Reference: HOJ-X1, LAW-I24.
    """
    check_product(model.sizes, _MOST, "the table of emissions")
    work = _Messages(model, rows)
    sweeps, converged = 0, False
    before = np.zeros_like(work.beliefs)
    while sweeps < max_iter and not converged:
        sweeps += 1
        work.chains()
        change = float(np.abs(work.beliefs - before).max())
        converged = change <= tol or len(model.sizes) == 1
        before[:] = work.beliefs
        work.frames(damping if sweeps > 1 else 0.0)
    if converged and len(model.sizes) > 1:
        work.chains()
    parts = [np.ascontiguousarray(work.beliefs[:, s]) for s in work.slices]
    return ChainsPosterior(
        parts, work.bethe(), len(model.sizes) == 1, converged, sweeps, work.transitions
    )


class _Messages:
    """Messages from frames to chains, as logarithms (T, sum of K_c), and what follows from them."""

    def __init__(self, model: HiddenChains, rows: Array) -> None:
        self.model = model
        if isinstance(model.emission, AdditiveGaussian):
            check_complete(rows)
        logs = model.emission.table(rows, model.sizes).reshape(len(rows), -1)
        self.top = logs.max(axis=1)
        if not np.isfinite(self.top).all():
            raise DataError(f"no state can have produced row {int(np.argmin(self.top))}")
        self.weights = np.exp(logs - self.top[:, None])
        self.sizes = np.array(model.sizes, dtype=np.int64)
        ends = np.cumsum((0, *model.sizes)).tolist()
        self.slices = [slice(a, b) for a, b in pairwise(ends)]
        shape = (len(rows), ends[-1])
        self.beliefs, self.joint = np.empty(shape), np.empty(shape)
        self.cavities, self.messages = np.empty(shape), np.empty(shape)
        self.masses = np.empty(len(rows))
        self.log_z = np.zeros(len(model.sizes))
        self.transitions = [np.zeros((k, k)) for k in model.sizes]
        for c, part in enumerate(self.slices):  # cavities at first: no chain knows anything
            self.cavities[:, part] = 1.0 / model.sizes[c]
        self.messages[:] = 0.0
        self.frames(0.0)

    def chains(self) -> None:
        """Forward-backward of each chain with the messages of the frames."""
        m = self.model
        for c, part in enumerate(self.slices):
            fields = np.ascontiguousarray(self.messages[:, part])
            posterior, weights = np.empty_like(fields), np.empty_like(fields)
            self.transitions[c][:] = 0.0
            self.log_z[c], failed = kernels.forward_backward(
                m.starts[c], m.transitions[c], fields, m.lags[c], True, posterior, weights,
                self.transitions[c],
            )  # fmt: skip
            if failed >= 0:
                raise DataError(f"chain {c}: no state can have produced row {failed}")
            self.beliefs[:, part] = posterior
            cavity = posterior / np.maximum(weights, _LEAST)
            self.cavities[:, part] = cavity / cavity.sum(axis=1, keepdims=True)

    def frames(self, damping: float) -> None:
        """New messages of all frames from the cavities of all chains."""
        floor = np.maximum(self.cavities, _LEAST)
        kernels.frame_messages(self.weights, self.sizes, floor, self.joint, self.masses)
        if not (self.masses > 0.0).all():
            row = int(np.argmin(self.masses))
            raise DataError(f"no combination of states can have produced row {row}")
        logs = np.log(np.maximum(self.joint / floor, 1e-300))
        for part in self.slices:
            logs[:, part] -= logs[:, part].max(axis=1, keepdims=True)
        logs = np.maximum(logs, np.log(_LEAST))
        self.messages = damping * self.messages + (1.0 - damping) * logs

    def bethe(self) -> float:
        """Bethe estimate of the log-likelihood, at the messages that the chains have read."""
        floor = np.maximum(self.cavities, _LEAST)
        kernels.frame_messages(self.weights, self.sizes, floor, self.joint, self.masses)
        total = float(self.log_z.sum() + self.top.sum() + np.log(self.masses).sum())
        for part in self.slices:
            shares = floor[:, part] * np.exp(self.messages[:, part])
            total -= float(np.log(shares.sum(axis=1)).sum())
        return total


def filter_chains(model: HiddenChains, rows: Array) -> ChainsPosterior:
    """Probabilities given the rows up to each step, each step projected on independent chains
    (assumed density); exact for one chain.
    """
    check_product(model.sizes, _MOST, "the filter")
    table = model.emission.table(rows, model.sizes)
    count = len(model.sizes)
    parts = [np.empty((len(rows), k)) for k in model.sizes]
    total = 0.0
    for t in range(len(rows)):
        logs = table[t]
        for c, lag in enumerate(model.lags):
            prior = model.starts[c] if t < lag else parts[c][t - lag] @ model.transitions[c]
            shape = [1] * count
            shape[c] = -1
            logs = logs + np.log(np.maximum(prior, _TINY)).reshape(shape)
        step = float(logsumexp(logs))
        joint = np.exp(logs - step)
        total += step
        for c in range(count):
            parts[c][t] = joint.sum(axis=tuple(a for a in range(count) if a != c))
    return ChainsPosterior(parts, total, count == 1, True, 1, [])
