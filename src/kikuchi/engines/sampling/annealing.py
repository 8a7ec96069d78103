"""Annealed importance sampling: from the weights of chains to a bracket on log Z.

Chains are led along distributions f_beta from a base whose Z is known (beta = 0) to the model
(beta = 1). The product of the ratios of f along a chain has expectation Z / Z_base (forward); led
back from samples of the model it has expectation Z_base / Z (reverse). The families lead the
chains; this module has the steps of beta and computes the bracket.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_expit, stdtrit

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.numerics import logsumexp

Schedule = Literal["linear", "sigmoid", "dense-start"]

TEMPERED_STARTS = (
    "reverse chains began at tempered chains, not at exact samples: the upper end is valid only if "
    "these have mixed"
)
_LEAST_EFFECTIVE = 0.05  # fraction of the chains below which an estimate is not reliable
_LEAST_CHAINS = 5.0  # the same as a number, or half of the chains where these are fewer than ten
_SIGMAS, _SLACK = 4.0, 0.1  # two estimates of log Z disagree beyond so many errors and nats


@dataclass(frozen=True)
class LogZ:
    """An estimate of log Z with a bracket.

    Attributes
    ----------
    estimate : combines the chains of both directions (Bennett's acceptance ratio); without reverse
        chains it is the mean of the forward weights.
    lower, upper : with probability `confidence` log Z is between them, by Student's t approximation
        of the means of the weights. `lower` comes from the forward chains, and is raised where the
        sum over distinct states of the model proves more; `upper` comes from the reverse chains.
        It is infinite without them, and where it was refuted by the lower end.
    confidence : probability that log Z is in the bracket.
    certain_lower, certain_upper : the same ends without the approximation (Markov's inequality).
    forward, reverse : log weights of single chains.
    exact_starts : whether the reverse chains began at independent samples of the model. Otherwise
        they began where long tempered chains or forward chains ended, and the upper end is only
        valid if these have mixed; `warnings` states which.
    stopped : why no further chains were run.
    reliable : False where the chains show that they have not found all of the model. The bracket
        must then not be trusted; `warnings` has the reasons.
    warnings : everything to know about the bracket.
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
    reliable: bool = True
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def exact(cls, value: float) -> LogZ:
        """The bracket of a log Z that is known.

        >>> LogZ.exact(1.5).width
        0.0
        """
        nothing = np.empty(0)
        return cls(value, value, value, 1.0, value, value, nothing, nothing, True, "exact")

    @property
    def width(self) -> float:
        """Width of the bracket in nats."""
        return self.upper - self.lower

    def to_arrays(self) -> dict[str, Array]:
        """The weights of the chains, as files hold them."""
        held = {"forward": self.forward, "reverse": self.reverse}
        return {name: array for name, array in held.items() if len(array)}

    def describe(self) -> dict[str, Any]:
        """Everything but the weights, as files hold it."""
        return {name: v for name, v in vars(self).items() if name not in ("forward", "reverse")}

    @classmethod
    def restored(cls, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> LogZ:
        """The answer that `to_arrays` and `describe` told of."""
        weights: dict[str, Any] = {
            name: np.asarray(arrays.get(name, np.empty(0))) for name in ("forward", "reverse")
        }
        for name in ("estimate", "lower", "upper", "confidence", "certain_lower", "certain_upper"):
            if not isinstance(facts[name], int | float):
                raise DataError(f"its log_z has {name} {facts[name]!r}, which is not a number")
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
    base: float,
    weights: tuple[Array, Array],
    confidence: float,
    *,
    exact_starts: bool,
    stopped: str,
    certain: tuple[float, float] = (-math.inf, math.inf),
    groups: Sequence[Array] = (),
    doubts: Sequence[str] = (),
    starts: str = TEMPERED_STARTS,
) -> LogZ:
    """Return the bracket of chains with these log weights.

    Parameters
    ----------
    base : log Z of the base.
    weights : log weights of the forward chains and of the reverse ones, which may be empty.
    confidence : probability that log Z is to be in the bracket.
    exact_starts : whether reverse chains began at independent samples of the model.
    stopped : why no further chains were run.
    certain : lower and upper bound on log Z that hold for certain.
    groups : the parts of the reverse chains that began in different ways. The largest of their
        upper ends is taken, as chains that do not mix agree only by chance.
    doubts : what makes the starts of the reverse chains doubtful.
    starts : how reverse chains began that did not begin at exact samples, and what the upper end
        then depends on.

    >>> even = (np.zeros(99), np.zeros(99))
    >>> found = bracket(1.0, even, 0.95, exact_starts=True, stopped="batches")
    >>> round(found.lower, 2), found.estimate, round(found.upper, 2)
    (0.97, 1.0, 1.03)
    """
    up, down = weights
    proven, ceiling = certain
    outside = 0.5 * (1.0 - confidence) if len(down) else 1.0 - confidence
    forward = WeightMean(up, outside)
    reasons = forward.doubts("forward")
    lower, certain_lower = (max(base + x, proven) for x in (forward.low, forward.certain_low))
    estimate, upper, certain_upper = base + forward.log_mean, math.inf, math.inf
    notes: list[str] = []
    if len(down):
        backward = [WeightMean(part, outside) for part in (groups or [down])]
        reasons += [*WeightMean(down, outside).doubts("reverse"), *doubts]
        reasons += _disagreements(forward, backward)
        upper = base - min(part.low for part in backward)
        certain_upper = base - min(part.certain_low for part in backward)
        estimate = base + acceptance_ratio(up, down)
        if not exact_starts:
            notes.append(starts)
        if upper < lower and exact_starts and proven <= upper:  # both ends miss, by chance
            lower, upper = upper, lower
        elif upper < lower:
            reasons.append(
                f"the upper end from the reverse chains ({upper:.4g}) is below the lower end "
                f"({lower:.4g}) and was dropped: samples of the model miss modes; raise betas and "
                "burn_in"
            )
            upper = certain_upper = math.inf
    upper, certain_upper = min(upper, ceiling), min(certain_upper, ceiling)
    return LogZ(
        min(max(float(estimate), float(lower)), float(upper)), float(lower), float(upper),
        confidence, float(certain_lower), float(certain_upper), up, down, exact_starts, stopped,
        not reasons, reasons + notes,
    )  # fmt: skip


class WeightMean:
    """The mean of exp(x) with its one-sided lower limits at risk `outside`.

    `low` is the limit by Student's t, `certain_low` that of Markov's inequality. For `low` and for
    `error`, the relative standard error, one more chain of weight 0 is counted: chains that all
    have the same weight do not show how often a weight is much smaller. For n equal weights the
    limit is then close to the binomial one, outside^(1/n) of the mean.
    """

    def __init__(self, log_weights: Array, outside: float) -> None:
        n = len(log_weights)
        self.log_mean = float(logsumexp(log_weights)) - math.log(n)
        relative = np.exp(log_weights - self.log_mean)
        self.effective = n / float(np.mean(relative**2))
        self.count = n
        guarded = np.append(relative, 0.0)
        self.error = float(np.std(guarded, ddof=1)) / math.sqrt(n + 1)
        self.certain_low = self.log_mean + math.log(outside)
        left = float(np.mean(guarded)) - float(stdtrit(n, 1.0 - outside)) * self.error
        self.low = max(self.log_mean + math.log(left) if left > 0 else -math.inf, self.certain_low)

    def doubts(self, name: str) -> list[str]:
        """Return what makes the estimate doubtful."""
        least = max(_LEAST_EFFECTIVE * self.count, min(_LEAST_CHAINS, 0.5 * self.count))
        if self.effective >= least:
            return []
        return [
            f"{name} chains: only {self.effective:.1f} of {self.count} carry weight (effective "
            "sample size), so the estimate of log Z is uncertain; raise betas"
        ]


def acceptance_ratio(up: Array, down: Array) -> float:
    """Return log Z - log Z_base by Bennett's acceptance ratio.

    Each chain, forward or reverse, has the same say. It is the maximum-likelihood estimate given
    the weights of both directions; where these do not overlap it is midway between the two means.

    >>> round(acceptance_ratio(np.array([1.0, 1.2]), np.array([-1.4, -1.6])), 6)
    1.3
    """
    ratio = math.log(len(down) / len(up))

    def excess(c: float) -> float:
        forward = logsumexp(log_expit(up - c + ratio))
        return float(forward - logsumexp(log_expit(c + down - ratio)))

    ends = np.concatenate([up, -down])
    room = abs(ratio) + math.log(len(ends)) + 1.0
    return float(brentq(excess, float(ends.min()) - room, float(ends.max()) + room, xtol=1e-10))


def _disagreements(forward: WeightMean, backward: Sequence[WeightMean]) -> list[str]:
    """Return pairs of estimates that differ by more than their errors explain."""
    found = []
    if len(backward) > 1:
        gap, most = _gap(backward[0].log_mean, backward[1].log_mean, backward)
        if gap > most:
            found.append(
                f"reverse chains that began at rows and at random states disagree by {gap:.2g} "
                "nats: they have not mixed; raise burn_in"
            )
    for part in backward:
        gap, most = _gap(forward.log_mean, -part.log_mean, (forward, part))
        if gap > most:
            found.append(
                f"forward and reverse chains disagree by {gap:.2g} nats, more than their errors: "
                "chains miss modes of the model; raise betas"
            )
            break
    return found


def _gap(one: float, other: float, means: Sequence[WeightMean]) -> tuple[float, float]:
    """Return how far two estimates are apart, and how far they may be."""
    return abs(one - other), _SIGMAS * math.hypot(*(m.error for m in means)) + _SLACK
