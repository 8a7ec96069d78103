"""Detectors of symbols sent through a noisy linear channel, over many channel uses at once.

The posterior of one use is the complete model `graphs.mimo.mimo` (LIU-M8). A detector is named by
a text: `bp`, `alpha:0.5`, `trw:0.25` (edge appearance probability), `mf`, `mmse` and `map`
(LIU-I16); `+mmse` after one of the first four multiplies the linear estimate in as a prior
(LIU-M7, I7), counting its evidence twice on purpose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, MethodError, ModelError, suggestion
from kikuchi.graphs.mimo import check_channel

Array = NDArray[np.float64]

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
class Detection:
    """Detected symbols of each channel use.

    `symbols` is -1 or +1; `log_odds` that of +1 against -1 (twice the linear estimate over its
    variance for `mmse`, None for `map`); `converged` says for each use whether the messages did.
    All have as many rows as uses were handled: fewer than asked for when the time was used up.
    """

    detector: str
    symbols: Array
    log_odds: Array | None
    converged: NDArray[np.bool_]
    seconds: float

    def __len__(self) -> int:
        return len(self.symbols)


def detect(
    channels: ArrayLike,
    received: ArrayLike,
    noise: float,
    detector: str = "alpha:0.5+mmse",
    *,
    iterations: int = 50,
    tol: float = 1e-6,
    schedule: Literal["parallel", "sequential"] = "parallel",
    fields: Literal["gradual", "full"] = "gradual",
    damping: float = 0.0,
    damping_kind: Literal["geometric", "linear"] = "geometric",
    budget: Budget | None = None,
) -> Detection:
    """Detect the symbols of every channel use (LIU-I6 to I8, I16).

    `channels` has shape (uses, M, N) with M receivers and N symbols, `received` (uses, M).
    Message passing ends after `iterations` sweeps or when no log-ratio of a message moves more than
    `tol`. With gradual `fields` the one-variable factors of alpha-BP are approached from uniform by
    its own rule (3.16) after each sweep, as the published curves need (alpha:1 then idles in the
    first); with full ones that rule has nothing to do. The fixed points are the same, but small
    alpha finds better ones gradually. `damping` is the
    weight on the old message, of log-ratios (geometric, always so for alpha, whose rule is itself
    a geometric step) or of probabilities (linear).

    >>> from kikuchi.graphs.mimo import channel_uses
    >>> uses = channel_uses(8, ratio=40.0, uses=200, seed=0)
    >>> found = detect(uses.channels, uses.received, uses.noise, "map")
    >>> float(symbol_errors(uses.sent, found.symbols).mean()) < 0.01
    True
    """
    plan = _parse(detector)
    matrices, y, variance = check_channel(channels, received, noise)
    if matrices.ndim != 3:
        raise ModelError(f"channels must have shape (uses, M, N), got {matrices.shape}")
    how = _How(iterations, tol, schedule, fields, damping, damping_kind)
    how.check()
    if plan.name == "map" and matrices.shape[2] > _LARGEST_MAP:
        raise BudgetError(
            f"map tries all 2^{matrices.shape[2]} sign vectors; at most {_LARGEST_MAP} symbols, "
            "use alpha:0.5+mmse or jt"
        )
    clock = (budget or Budget()).start()
    done = 0
    parts: list[_Part] = []
    while done < len(y) and (not parts or not clock.expired):
        here = slice(done, done + _CHUNK)
        model = _Posterior.of(matrices[here], y[here], variance)
        parts.append(_run(plan, model, how))
        done += _CHUNK
    return _joined(detector, parts, matrices.shape[2], clock.seconds)


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


# ---------------------------------------------------------------------- parts


class _Plan(NamedTuple):
    name: str
    number: float
    prior: bool


class _Part(NamedTuple):
    symbols: Array
    log_odds: Array | None
    converged: NDArray[np.bool_]


def _parse(text: str) -> _Plan:
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
        return _Plan(name, 1.0, prior)
    return _Plan(name, _number(name, match[2]), prior)


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


class _How(NamedTuple):
    """How message passing is done."""

    iterations: int
    tol: float
    schedule: str
    fields: str
    damping: float
    damping_kind: str

    def check(self) -> None:
        """Refuse what cannot be meant."""
        if self.iterations < 1:
            raise MethodError(f"iterations must be at least 1, got {self.iterations}")
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


def _run(plan: _Plan, model: _Posterior, how: _How) -> _Part:
    from kikuchi.inference.kernels import mimo as kernels

    uses, n = model.fields.shape
    converged = np.ones(uses, dtype=np.bool_)
    if plan.name == "mmse":
        odds = 2.0 * model.estimate / model.variances
        return _Part(_signs(odds), odds, converged)
    if plan.name == "map":
        best = np.empty((uses, n))
        kernels.most_probable(model.couplings, model.fields, best)
        return _Part(best, None, converged)
    fields = model.fields + model.estimate / model.variances if plan.prior else model.fields
    odds = np.empty((uses, n))
    if plan.name == "mf":
        kernels.mean_field(model.couplings, fields, how.iterations, how.tol, odds, converged)
        return _Part(_signs(odds), odds, converged)
    weight, step = _weight_and_step(plan)
    linear = how.damping_kind == "linear" and plan.name != "alpha"
    kernels.messages(
        model.couplings,
        fields,
        weight,
        step * (1.0 - how.damping),
        0.0 if plan.name == "alpha" and how.fields == "gradual" else 1.0,
        plan.number,
        linear,
        how.schedule == "parallel",
        how.iterations,
        how.tol,
        odds,
        converged,
    )
    return _Part(_signs(odds), odds, converged)


def _weight_and_step(plan: _Plan) -> tuple[float, float]:
    """alpha-BP is reweighting by 1 / alpha with the step alpha (LIU-I6)."""
    return {
        "bp": (1.0, 1.0),
        "alpha": (1.0 / plan.number, plan.number),
        "trw": (plan.number, 1.0),
    }[plan.name]


def _signs(odds: Array) -> Array:
    return np.where(odds > 0.0, 1.0, -1.0)


def _joined(detector: str, parts: list[_Part], n: int, seconds: float) -> Detection:
    if not parts:
        empty = np.zeros((0, n))
        return Detection(detector, empty, empty, np.zeros(0, dtype=np.bool_), seconds)
    odds = [part.log_odds for part in parts if part.log_odds is not None]
    return Detection(
        detector,
        np.concatenate([part.symbols for part in parts]),
        np.concatenate(odds) if odds else None,
        np.concatenate([part.converged for part in parts]),
        seconds,
    )
