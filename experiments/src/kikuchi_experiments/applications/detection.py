"""Detection of symbols sent through a noisy linear channel, over many channel uses at once.

M antennas receive y = H x + e with e ~ N(0, noise) in each component, noise a variance, and x in
{-1, +1}^N uniform. Every symbol interferes with every other, so the posterior of one channel use is
a complete pairwise model. A detector is named by a text: `bp`, `alpha:0.5`, `trw:0.25`
(edge appearance probability), `mf`, `mmse` and `map`; `+mmse` after one of the first four
multiplies the linear estimate in as a prior, which counts its evidence twice on
purpose.

Reference: LIU-E3, LIU-I6, LIU-I6 to I8, LIU-I7, LIU-I16, LIU-M7, LIU-M8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.budget import RunLimits, limits, named_limits
from kikuchi.core.errors import BudgetError, MethodError, ModelError, suggestion
from kikuchi.core.seeds import Seed, generator
from kikuchi.graphs.binary import spin_graph
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.shapes import complete_edges

_CHUNK = 2000  # channel uses between two looks at the clock
_LARGEST_MAP = 24  # symbols
_NUMBERS = {"alpha": "alpha", "trw": "appearance probability"}
_PLAIN = ("bp", "mf", "mmse", "map")
_CHOICES = {
    "schedule": ("parallel", "sequential"),
    "fields": ("gradual", "full"),
    "damping_kind": ("geometric", "linear"),
}
DETECTORS = (*_PLAIN, *_NUMBERS)


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
    r"""Posterior of the symbols as a complete binary model; state 1 is the symbol +1.

    With S = H'H: couplings -S_ij / noise, fields <h_i, y> / noise. The constant is such that the
    log-weight of x is -|y - Hx|² / (2 noise), so that log Z compares channels.

    `channel` is the matrix H (receivers, symbols), `received` the vector y, `noise` the variance of
    the noise.

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
    """Random uses of a fading channel with n symbols, n even.

    n / 2 complex symbols on n / 2 antennas, written in real numbers: H = [[R, -I], [I, R]] with
    entries of R and I drawn from N(0, 1 / n); noise variance 1 / ratio in each real component.

    `n` is the number of real symbols, `ratio` that of signal to noise, `uses` how many channels are
    drawn, `seed` that of the draws.

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
    """Matrices, received vectors and noise variance as arrays of shapes that fit.

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


# ---------------------------------------------------------------------- detectors


@dataclass(frozen=True, eq=False)
class Detection:
    """Detected symbols of each channel use.

    `symbols` is -1 or +1; `log_odds` that of +1 against -1 (twice the linear estimate over its
    variance for `mmse`, None for `map`); `converged` says for each use whether the messages did.
    All have as many rows as uses were handled: fewer than asked for when the time was used up.
    """

    detector: str
    symbols: Array
    log_odds: Array | None
    converged: Mask
    seconds: float

    def __len__(self) -> int:
        return len(self.symbols)


@named_limits
def detect(
    channels: ArrayLike,
    received: ArrayLike,
    noise: float,
    detector: str = "alpha:0.5+mmse",
    *,
    max_iter: int = 50,
    tol: float = 1e-6,
    schedule: Literal["parallel", "sequential"] = "parallel",
    fields: Literal["gradual", "full"] = "gradual",
    damping: float = 0.0,
    damping_kind: Literal["geometric", "linear"] = "geometric",
    **within: Unpack[RunLimits],
) -> Detection:
    """Detect the symbols of every channel use.

    `channels` has shape (uses, M, N) with M receivers and N symbols, `received` (uses, M).
    Message passing ends after `max_iter` sweeps or when no log-ratio of a message moves more
    than `tol`. With gradual `fields` the one-variable factors of alpha-BP are approached from
    uniform by its own rule (3.16) after each sweep, as the published curves need (alpha:1 then
    idles in the first); with full ones that rule has nothing to do. The fixed points are the same,
    but small alpha finds better ones gradually. `damping` is the weight on the old message, of
    log-ratios (geometric, always so for alpha, whose rule is itself a geometric step) or of
    probabilities (linear). `seconds` and `memory`, or a `budget` of both, are limits.

    `noise` is the variance of the noise in each real component, `detector` the text of the
    detector; messages are updated all at once or one after another (`schedule`), and damped as
    `damping_kind` says.

    >>> uses = channel_uses(8, ratio=40.0, uses=200, seed=0)
    >>> detection = detect(uses.channels, uses.received, uses.noise, "map")
    >>> float(symbol_errors(uses.sent, detection.symbols).mean()) < 0.01
    True
    """
    parsed = _parse(detector)
    matrices, y, variance = check_channel(channels, received, noise)
    if matrices.ndim != 3:
        raise ModelError(f"channels must have shape (uses, M, N), got {matrices.shape}")
    settings = _Settings(max_iter, tol, schedule, fields, damping, damping_kind)
    settings.check()
    if parsed.name == "map" and matrices.shape[2] > _LARGEST_MAP:
        raise BudgetError(
            f"map tries all 2^{matrices.shape[2]} sign vectors; at most {_LARGEST_MAP} symbols, "
            "use alpha:0.5+mmse or jt"
        )
    clock = limits(**within).start()
    done = 0
    results: list[_ChunkResult] = []
    while done < len(y) and (not results or not clock.expired):
        here = slice(done, done + _CHUNK)
        model = _Posterior.of(matrices[here], y[here], variance)
        results.append(_run(parsed, model, settings))
        done += _CHUNK
    return _joined(detector, results, matrices.shape[2], clock.seconds)


def symbol_errors(sent: ArrayLike, detected: ArrayLike, *, complex_symbols: bool = True) -> Array:
    """Share of wrong symbols in each channel use.

    A complex symbol is the pair (i, i + N / 2) and wrong if either part is; with
    `complex_symbols=False` every real symbol counts for itself.

    >>> symbol_errors([[1, 1, 1, 1]], [[1, -1, 1, -1]]).tolist()
    [0.5]
    """
    wrong = np.asarray(sent) != np.asarray(detected)
    if complex_symbols:
        if wrong.shape[-1] % 2:
            raise ModelError("complex symbols need an even number of real ones")
        half = wrong.shape[-1] // 2
        wrong = wrong[..., :half] | wrong[..., half:]
    return np.asarray(wrong.mean(axis=-1), dtype=np.float64)


# ---------------------------------------------------------------------- one chunk of uses


class _Detector(NamedTuple):
    name: str
    number: float
    prior: bool


class _ChunkResult(NamedTuple):
    symbols: Array
    log_odds: Array | None
    converged: Mask


def _parse(text: str) -> _Detector:
    match = re.fullmatch(r"\s*([a-z]+)(?::([^+]*))?(\+mmse)?\s*", text)
    name = match[1] if match else text
    if match is None or name not in DETECTORS:
        raise MethodError(f"there is no detector '{text}'; {suggestion(name, DETECTORS)}")
    prior = match[3] is not None
    if prior and name in ("mmse", "map"):
        raise MethodError(f"detector {name} takes no prior; leave +mmse out")
    if name in _PLAIN:
        if match[2] is not None:
            raise MethodError(f"detector {name} takes no number, got '{match[2]}'")
        return _Detector(name, 1.0, prior)
    return _Detector(name, _number(name, match[2]), prior)


def _number(name: str, text: str | None) -> float:
    high = np.inf if name == "alpha" else 1.0
    try:
        value = float(text or "")
    except ValueError:
        value = np.nan
    if not 0.0 < value <= high or value == np.inf:
        limit = "above 0" if high == np.inf else "in (0, 1]"
        raise MethodError(
            f"detector {name} needs its {_NUMBERS[name]}, a number {limit}, as in {name}:0.5; "
            f"got '{text or ''}'"
        )
    return value


class _Settings(NamedTuple):
    """How message passing is done."""

    max_iter: int
    tol: float
    schedule: str
    fields: str
    damping: float
    damping_kind: str

    def check(self) -> None:
        """Raise an error if a setting is out of its range."""
        if self.max_iter < 1:
            raise MethodError(f"max_iter must be at least 1, got {self.max_iter}")
        if not self.tol >= 0:
            raise MethodError(f"tol must be at least 0, got {self.tol}")
        if not 0 <= self.damping < 1:
            raise MethodError(f"damping must be in [0, 1), got {self.damping}")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise MethodError(f"{name} must be {' or '.join(choices)}, got {value!r}")


class _Posterior(NamedTuple):
    """Couplings and fields of many uses, and the linear estimate with its variances."""

    couplings: Array
    fields: Array
    estimate: Array
    variances: Array

    @classmethod
    def of(cls, matrices: Array, y: Array, noise: float) -> _Posterior:
        gram = np.matmul(matrices.transpose(0, 2, 1), matrices)
        matched = np.einsum("kmi,km->ki", matrices, y)
        n = gram.shape[1]
        inverse = np.linalg.inv(gram + noise * np.eye(n))
        estimate = np.einsum("kij,kj->ki", inverse, matched)
        variances = noise * np.diagonal(inverse, axis1=1, axis2=2)
        couplings = -gram / noise
        couplings[:, np.arange(n), np.arange(n)] = 0.0
        return cls(couplings, matched / noise, estimate, np.ascontiguousarray(variances))


def _run(detector: _Detector, model: _Posterior, settings: _Settings) -> _ChunkResult:
    from kikuchi_experiments.applications.kernels import detection as kernels

    uses, n = model.fields.shape
    converged = np.ones(uses, dtype=np.bool_)
    if detector.name == "mmse":
        odds = 2.0 * model.estimate / model.variances
        return _ChunkResult(_signs(odds), odds, converged)
    if detector.name == "map":
        best = np.empty((uses, n))
        kernels.most_probable(model.couplings, model.fields, best)
        return _ChunkResult(best, None, converged)
    fields = model.fields + model.estimate / model.variances if detector.prior else model.fields
    odds = np.empty((uses, n))
    if detector.name == "mf":
        kernels.mean_field(
            model.couplings, fields, settings.max_iter, settings.tol, odds, converged
        )
        return _ChunkResult(_signs(odds), odds, converged)
    weight, step = _weight_and_step(detector)
    linear = settings.damping_kind == "linear" and detector.name != "alpha"
    kernels.messages(
        model.couplings,
        fields,
        weight,
        step * (1.0 - settings.damping),
        0.0 if detector.name == "alpha" and settings.fields == "gradual" else 1.0,
        detector.number,
        linear,
        settings.schedule == "parallel",
        settings.max_iter,
        settings.tol,
        odds,
        converged,
    )
    return _ChunkResult(_signs(odds), odds, converged)


def _weight_and_step(detector: _Detector) -> tuple[float, float]:
    """alpha-BP is reweighting by 1 / alpha with the step alpha."""
    return {
        "bp": (1.0, 1.0),
        "alpha": (1.0 / detector.number, detector.number),
        "trw": (detector.number, 1.0),
    }[detector.name]


def _signs(odds: Array) -> Array:
    return np.where(odds > 0.0, 1.0, -1.0)


def _joined(detector: str, results: list[_ChunkResult], n: int, seconds: float) -> Detection:
    if not results:
        empty = np.zeros((0, n))
        return Detection(detector, empty, empty, np.zeros(0, dtype=np.bool_), seconds)
    odds = [one.log_odds for one in results if one.log_odds is not None]
    return Detection(
        detector,
        np.concatenate([one.symbols for one in results]),
        np.concatenate(odds) if odds else None,
        np.concatenate([one.converged for one in results]),
        seconds,
    )
