"""Annealed importance sampling: from the weights of chains to a bracket on log Z.

Chains are led along distributions f_beta from a base whose Z is known (beta = 0) to the model
(beta = 1). The product of the ratios of f along a chain has expectation Z / Z_base (forward); led
back from samples of the model it has expectation Z_base / Z (reverse). The families lead the
chains; here are the steps of beta and the bracket.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.numerics import logsumexp

Schedule = Literal["linear", "sigmoid", "dense-start"]

_LEAST_EFFECTIVE = (
    0.05  # fraction of the chains below which the normal approximation is not trusted
)


@dataclass(frozen=True)
class LogZ:
    """An estimate of log Z with a bracket.

    `lower` comes from the forward chains, `upper` from the reverse ones (infinite without them).
    Both hold together with probability `confidence`, by the normal approximation of the mean of
    the weights. `certain_lower` and `certain_upper` need no approximation (Markov's inequality).
    `exact_starts` says that the reverse chains began at independent samples of the model;
    otherwise they began where long tempered chains ended, and the upper end is as good as these.
    `forward` and `reverse` are the logarithms of the weights of single chains.
    """

    estimate: float
    lower: float
    upper: float
    confidence: float
    certain_lower: float
    certain_upper: float
    forward: Array = field(repr=False)
    reverse: Array = field(repr=False)
    exact_starts: bool
    stopped: str
    warnings: list[str] = field(default_factory=list)

    @property
    def width(self) -> float:
        """Width of the bracket in nats."""
        return self.upper - self.lower

    def to_arrays(self) -> dict[str, Array]:
        """The weights of the chains, as files hold them."""
        return {"forward": self.forward, "reverse": self.reverse}

    def describe(self) -> dict[str, Any]:
        """Everything but the weights, as files hold it."""
        return {name: v for name, v in vars(self).items() if name not in ("forward", "reverse")}

    @classmethod
    def restored(cls, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> LogZ:
        """The answer that `to_arrays` and `describe` told of."""
        weights: dict[str, Any] = {
            name: np.asarray(arrays[name]) for name in ("forward", "reverse")
        }
        return cls(**facts, **weights)


def beta_steps(betas: int | ArrayLike, schedule: Schedule = "linear") -> Array:
    """The steps from 0 to 1: so many, spaced as `schedule` says, or as they are.

    `sigmoid` is dense at both ends, `dense-start` near 0.

    >>> beta_steps(3).tolist(), beta_steps(3, "dense-start").tolist()
    ([0.0, 0.5, 1.0], [0.0, 0.25, 1.0])
    """
    if isinstance(betas, int):
        if betas < 2:
            raise MethodError(f"ais: at least 2 betas are needed, got {betas}")
        line = np.linspace(0.0, 1.0, betas)
        if schedule == "dense-start":
            return line * line
        if schedule == "sigmoid":
            curve = np.tanh(2.0 * (2.0 * line - 1.0))
            steps = 0.5 * (curve / curve[-1] + 1.0)
            steps[0], steps[-1] = 0.0, 1.0
            return np.asarray(steps)
        return line
    steps = np.asarray(betas, dtype=np.float64)
    good = steps.ndim == 1 and len(steps) >= 2 and steps[0] == 0.0 and steps[-1] == 1.0
    if not good or np.any(np.diff(steps) <= 0):
        raise MethodError("ais: betas must rise from 0 to 1")
    return steps


def bracket(
    base: float, up: Array, down: Array, confidence: float, *, exact_starts: bool, stopped: str
) -> LogZ:
    """The bracket of chains with log weights `up` (forward) and `down` (reverse, may be empty).

    `base` is log Z of the base.

    >>> found = bracket(1.0, np.zeros(10), np.zeros(10), 0.95, exact_starts=True, stopped="batches")
    >>> found.lower, found.estimate, found.upper
    (1.0, 1.0, 1.0)
    """
    outside = 0.5 * (1.0 - confidence) if len(down) else 1.0 - confidence
    forward = WeightMean(up, outside)
    warnings = forward.warnings("forward")
    lower, certain_lower = base + forward.low, base + forward.certain_low
    estimate, upper, certain_upper = base + forward.log_mean, math.inf, math.inf
    if len(down):
        backward = WeightMean(down, outside)
        warnings += backward.warnings("reverse")
        upper, certain_upper = base - backward.low, base - backward.certain_low
        estimate = base + _combined(forward, backward)
        if not exact_starts:
            warnings.append(
                "reverse chains began at tempered chains, not at exact samples: the upper end "
                "is as good as these"
            )
        if upper < lower:
            warnings.append(
                "the two directions contradict each other: samples of the model miss modes; "
                "use more betas and a longer burn_in"
            )
            lower, upper = min(lower, upper), max(lower, upper)
    return LogZ(
        float(estimate), float(lower), float(upper), confidence, float(certain_lower),
        float(certain_upper), up, down, exact_starts, stopped, warnings,
    )  # fmt: skip


class WeightMean:
    """The mean of exp(x) with its one-sided lower limits at risk `outside`."""

    def __init__(self, log_weights: Array, outside: float) -> None:
        n = len(log_weights)
        self.log_mean = float(logsumexp(log_weights)) - math.log(n)
        relative = np.exp(log_weights - self.log_mean)
        self.error = float(relative.std(ddof=1)) / math.sqrt(n)
        self.effective = n / float(np.mean(relative**2))
        self.count = n
        self.certain_low = self.log_mean + math.log(outside)
        left = 1.0 - float(-ndtri(outside)) * self.error
        self.low = max(self.log_mean + math.log(left) if left > 0 else -math.inf, self.certain_low)

    def warnings(self, name: str) -> list[str]:
        """What makes the limits doubtful."""
        if self.effective >= _LEAST_EFFECTIVE * self.count:
            return []
        return [
            f"{name} chains: {self.effective:.1f} of {self.count} count (effective size), so the "
            "normal approximation is rough; use more betas"
        ]


def _combined(forward: WeightMean, backward: WeightMean) -> float:
    """Both estimates of log Z - log Z_base, weighted by how certain they are."""
    a, b = 1.0 / max(forward.error, 1e-12) ** 2, 1.0 / max(backward.error, 1e-12) ** 2
    return (a * forward.log_mean - b * backward.log_mean) / (a + b)
