"""Signal detection: the posterior of ±1 symbols sent through a noisy linear channel (LIU-M8).

N antennas receive y = H x + e with e ~ N(0, noise) in each component, noise a variance, and x in
{-1, +1}^N uniform. Every symbol then interferes with every other: a complete pairwise model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.errors import ModelError
from kikuchi.core.seeds import Seed, generator
from kikuchi.graphs.binary import spin_graph
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.shapes import complete_edges

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ChannelUses:
    """Many uses of a channel: a matrix, a received vector and the sent symbols for each.

    `channels` has shape (uses, N, N), `received` and `sent` (uses, N); `noise` is the variance of
    each component. Each use of its own is a model: `graph(k)`.
    """

    channels: Array
    received: Array
    sent: Array
    noise: float

    def __len__(self) -> int:
        return len(self.received)

    def graph(self, use: int) -> FactorGraph:
        """The posterior of one use as a factor graph."""
        return mimo(self.channels[use], self.received[use], self.noise)


def mimo(channel: ArrayLike, received: ArrayLike, noise: float) -> FactorGraph:
    r"""Posterior of the symbols as a complete binary model; state 1 is the symbol +1 (LIU-M8).

    With S = H'H: couplings -S_ij / noise, fields <h_i, y> / noise. The constant is such that the
    log-weight of x is -|y - Hx|² / (2 noise), so that log Z compares channels.

    >>> graph = mimo([[1.0, 0.5], [0.0, 1.0]], [0.5, -1.0], noise=0.1)
    >>> round(graph.log_score([1, 0]), 12)  # symbols +1, -1 explain it without noise
    0.0
    """
    matrix, y, variance = check_channel(channel, received, noise)
    if matrix.ndim != 2:
        raise ModelError(f"a channel must be a matrix, got an array of shape {matrix.shape}")
    n = matrix.shape[1]
    energy = matrix.T @ matrix / variance
    edges = complete_edges(n)
    couplings = -energy[edges[:, 0], edges[:, 1]]
    constant = -(float(y @ y) / variance + float(np.trace(energy))) / 2.0
    return spin_graph(n, edges, couplings, matrix.T @ y / variance, log_constant=constant)


def channel_uses(n: int, ratio: float, uses: int, *, seed: Seed = 0) -> ChannelUses:
    """Random uses of a fading channel with n symbols, n even (LIU-E3).

    n / 2 complex symbols on n / 2 antennas, written in real numbers: H = [[R, -I], [I, R]] with
    entries of R and I drawn from N(0, 1 / n); noise variance 1 / ratio in each real component.

    >>> drawn = channel_uses(8, ratio=40.0, uses=3, seed=1)
    >>> drawn.channels.shape, drawn.noise, sorted(set(drawn.sent.ravel().tolist()))
    ((3, 8, 8), 0.025, [-1.0, 1.0])
    """
    if n < 2 or n % 2:
        raise ModelError(f"the number of real symbols must be even and at least 2, got {n}")
    if uses < 1:
        raise ModelError(f"the number of channel uses must be at least 1, got {uses}")
    if not (np.isfinite(ratio) and ratio > 0):
        raise ModelError(f"the ratio of signal to noise must be positive, got {ratio}")
    rng = generator(seed)
    real, imaginary = rng.normal(scale=np.sqrt(1.0 / n), size=(2, uses, n // 2, n // 2))
    channels = np.concatenate(
        [
            np.concatenate([real, -imaginary], axis=2),
            np.concatenate([imaginary, real], axis=2),
        ],
        axis=1,
    )
    sent = rng.choice(np.array([-1.0, 1.0]), size=(uses, n))
    errors = rng.normal(scale=np.sqrt(1.0 / ratio), size=(uses, n))
    received = np.einsum("kij,kj->ki", channels, sent) + errors
    return ChannelUses(channels, received, sent, 1.0 / float(ratio))


def check_channel(
    channel: ArrayLike, received: ArrayLike, noise: float
) -> tuple[Array, Array, float]:
    """Matrices, received vectors and noise variance as arrays, refused if they do not fit.

    Leading axes count channel uses and must agree.

    >>> check_channel(np.eye(2), [1.0, 2.0], 0.5)[2]
    0.5
    """
    try:
        matrix = np.asarray(channel, dtype=np.float64)
        y = np.asarray(received, dtype=np.float64)
        variance = float(noise)
    except (TypeError, ValueError) as error:
        raise ModelError(f"channel, received and noise must be numbers: {error}") from None
    if matrix.ndim < 2 or matrix.shape[-1] == 0 or matrix.shape[:-1] != y.shape:
        raise ModelError(
            f"a channel of shape {matrix.shape} needs received values of shape "
            f"{matrix.shape[:-1]}, got {y.shape}"
        )
    if not (np.all(np.isfinite(matrix)) and np.all(np.isfinite(y))):
        raise ModelError("channel and received values must be finite")
    if not (np.isfinite(variance) and variance > 0):
        raise ModelError(f"the noise variance must be positive, got {noise}")
    return matrix, y, variance
