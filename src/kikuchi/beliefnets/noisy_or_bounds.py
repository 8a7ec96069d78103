"""Bounds on the probability of findings in a two-layer noisy-or network, from both sides.

A finding i is absent with probability exp(-z_i), z_i = leak_i + sum_j w_ij d_j. Absent findings
leave the causes independent. Present ones do not: log(1 - e^{-z}) is concave, hence below

    lambda z - g(lambda),     g(lambda) = (lambda + 1) log(lambda + 1) - lambda log(lambda),

for every lambda > 0 (Jaakkola and Jordan's upper bound), and by Jensen's inequality above

    sum_j q_j [d_j f(leak + w_j / q_j) + (1 - d_j) f(leak)],       f(z) = log(1 - e^{-z}),

for every distribution q over the causes of the finding. Both leave the causes independent again.
The findings whose bounds are loosest are summed over exactly, so that both sides close as more are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, ImpossibleEvidenceError, ModelError
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.seeds import Seed, generator, kernel_seeds

_ROUNDS = 60  # of the fixed point of the lower bound
_NEGLIGIBLE = 5.0  # nats below the sum so far: the rest of the core is bounded roughly
_DRAWS = 200  # of causes, to find the loosest findings
_LEAST = 1e-12
_WORK, _FEWEST = 2e7, 12  # numbers changed for the marginals of one state of the core


class FindingBracket(NamedTuple):
    """log P(findings) between certified bounds, and probabilities of the causes given them.

    `marginals` are those of the model with bounded findings (of the upper bound), `exact` is the
    number of present findings that were summed over exactly. With all of them exact the two ends
    and the log-probability are the same, and so are the marginals.
    """

    lower: float
    upper: float
    marginals: Array
    exact: int
    present: int


@dataclass(frozen=True)
class DiagnosisModel:
    """A two-layer noisy-or network.

    Attributes
    ----------
    prior : probability of each cause.
    weights : (causes, findings), not negative; P(cause j fails to turn on i) = exp(-weights[j, i]).
    leak : (findings,), not negative: the same for what is not modelled.

    >>> model = DiagnosisModel(np.array([0.1]), np.array([[2.0]]), np.array([0.01]))
    >>> bracket = model.bracket({0: 1})
    >>> truth = np.log(0.9 * -np.expm1(-0.01) + 0.1 * -np.expm1(-2.01))
    >>> bool(np.isclose(bracket.lower, truth) and np.isclose(bracket.upper, truth))
    True
    """

    prior: Array
    weights: Array
    leak: Array

    def __post_init__(self) -> None:
        shape = (len(self.prior), len(self.leak))
        if self.weights.shape != shape:
            raise ModelError(
                f"weights of shape {self.weights.shape}; {shape[0]} causes and {shape[1]} findings "
                f"need {shape}"
            )
        if not np.all((self.prior > 0) & (self.prior < 1)):
            raise ModelError("priors of causes must lie strictly between 0 and 1")
        for name in ("weights", "leak"):
            values = getattr(self, name)
            if not np.all(np.isfinite(values) & (values >= 0)):
                raise ModelError(f"{name} must be finite and not negative")

    # ------------------------------------------------------------------ evidence

    def _split(self, findings: dict[int, int]) -> tuple[Ints, Array, float]:
        """Present findings, log-odds of the causes given the absent ones, log P of these if no
        cause were there.
        """
        for finding, value in findings.items():
            if not 0 <= finding < len(self.leak):
                raise DataError(f"finding {finding}; findings are 0 to {len(self.leak) - 1}")
            if value not in (0, 1):
                raise DataError(f"finding {finding} is {value!r}; findings are 0 or 1")
        present = np.array(sorted(i for i, v in findings.items() if v), dtype=np.int64)
        absent = np.array(sorted(i for i, v in findings.items() if not v), dtype=np.int64)
        for i in present:
            if self.leak[i] == 0 and not np.any(self.weights[:, i] > 0):
                raise ImpossibleEvidenceError(
                    f"finding {i} is present, but nothing can cause it: its leak and all its "
                    "weights are 0"
                )
        odds = np.log(self.prior) - np.log1p(-self.prior) - self.weights[:, absent].sum(axis=1)
        return present, odds, -float(self.leak[absent].sum())

    def _constant(self, leak_part: float) -> float:
        """log of the product of 1 - prior, and the leaks of absent findings."""
        return float(np.log1p(-self.prior).sum()) + leak_part

    # ------------------------------------------------------------------ bounds

    def bracket(
        self, findings: dict[int, int], *, exact: int = 12, core: int = 7, random_state: Seed = 0
    ) -> FindingBracket:
        """Certified bounds on log P(findings), and marginals of the causes.

        Reference: HOJ-X6.

        Parameters
        ----------
        findings : {finding: 0 or 1}; others are unknown.
        exact : present findings that are summed over exactly, at most; cost doubles with each.
        core : likely causes over whose states the sum is exact, each with bounds of its own; cost
            doubles with each.
        random_state : seed of the draws by which findings are chosen; any choice is valid.
        """
        for name, value, most in (("exact", exact, 20), ("core", core, 16)):
            if not 0 <= value <= most:
                raise DataError(f"{name} must be in [0, {most}], got {value}")
        present, odds, leaks = self._split(findings)
        rng = generator(random_state)
        constant = self._constant(leaks)
        whole = _Findings(self.weights[:, present], self.leak[present], odds)
        if len(present) <= exact:
            found = whole.bounds(exact, rng)
            return FindingBracket(
                constant + found.lower, constant + found.upper, found.marginals, len(present),
                len(present),
            )  # fmt: skip
        causes = whole.likeliest(core)
        parts = [
            whole.given(causes, (np.arange(1 << len(causes))[state] >> np.arange(len(causes))) & 1)
            for state in range(1 << len(causes))
        ]
        rough = np.array([part.rough_upper() for part in parts])
        order = np.argsort(-rough)
        left = np.logaddexp.accumulate(rough[order][::-1])[::-1]  # what is still to come, at most
        lower, upper, middle = -np.inf, -np.inf, -np.inf
        marginals = np.zeros(len(odds))
        for turn, state in enumerate(order):
            if left[turn] < upper - _NEGLIGIBLE:
                upper = float(np.logaddexp(upper, left[turn]))
                break
            found = parts[state].bounds(exact, rng)
            upper = float(np.logaddexp(upper, found.upper))
            lower = float(np.logaddexp(lower, found.lower))
            own = 0.5 * (found.lower + found.upper) if np.isfinite(found.lower) else found.upper
            middle = float(np.logaddexp(middle, own))  # by which states of the core are weighed
            share = np.exp(own - middle)
            marginals = (1.0 - share) * marginals + share * found.marginals
        return FindingBracket(
            constant + lower, constant + upper, marginals, min(exact, len(present)), len(present)
        )

    # ------------------------------------------------------------------ sampling

    def sampled_marginals(
        self, findings: dict[int, int], *, sweeps: int = 20_000, random_state: Seed = 0
    ) -> Array:
        """Probabilities of the causes given `findings` {finding: 0 or 1} by `sweeps` of Gibbs
        sampling with the seed `random_state`: a reference.
        """
        from kikuchi.beliefnets.kernels.noisy_or import CauseEdges, gibbs_causes

        present, odds, _ = self._split(findings)
        edges = CauseEdges(*_edges(self.weights[:, present]))
        rng = generator(random_state)
        state, means = np.ones(len(odds)), np.zeros(len(odds))
        words = kernel_seeds(rng, 1)
        leaks = self.leak[present]
        burn = max(sweeps // 10, 1)
        for count in (burn, sweeps):
            means[:] = 0.0
            gibbs_causes(leaks, odds, edges, state, count, words, means)
        return means / sweeps

    def sample(self, count: int, random_state: Seed = None) -> tuple[Array, Array]:
        """Causes and findings (0, 1) of `count` cases drawn from the model with the seed
        `random_state`.
        """
        if count < 1:
            raise DataError(f"at least 1 sample is needed, got {count}")
        rng = generator(random_state)
        causes = (rng.random((count, len(self.prior))) < self.prior).astype(np.float64)
        on = -np.expm1(-(self.leak + causes @ self.weights))
        return causes, (rng.random(on.shape) < on).astype(np.float64)


class _Bounds(NamedTuple):
    lower: float
    upper: float
    marginals: Array


class _Findings:
    """Present findings, with log-odds of the causes that may be there and known ones in the leaks.

    `known` are causes of known state (their odds and weights are 0), `constant` what these states
    weigh.
    """

    def __init__(
        self, weights: Array, leak: Array, odds: Array, known: Array | None = None,
        constant: float = 0.0,
    ) -> None:  # fmt: skip
        self.weights, self.leak, self.odds = weights, leak, odds
        self.known = np.full(len(odds), np.nan) if known is None else known
        self.constant = constant
        self.free = np.isnan(self.known)
        self._logs: Array | None = None

    def likeliest(self, count: int) -> Ints:
        """The causes that the model with bounded findings holds for likeliest."""
        lam = self.best_lambda(self.weights, self.leak, self.odds)
        p = expit(self.odds + self.weights @ lam)
        linked = np.any(self.weights > 0, axis=1)
        order = np.argsort(-np.where(linked, p, -1.0))
        return order[: min(count, int(linked.sum()))]

    def given(self, causes: Ints, states: Array) -> _Findings:
        """With these causes in these states."""
        weights, known = self.weights.copy(), self.known.copy()
        on = causes[states > 0]
        leak = self.leak + weights[on].sum(axis=0)
        constant = self.constant + float(self.odds[on].sum())
        weights[causes] = 0.0
        known[causes] = states
        odds = np.where(np.isnan(known), self.odds, 0.0)
        return _Findings(weights, leak, odds, known, constant)

    def rough_upper(self) -> float:
        """The upper bound with all findings bounded, soon found."""
        lam = self.best_lambda(self.weights, self.leak, self.odds, steps=15)
        total = lam @ self.leak - _conjugate(lam).sum()
        shifted = (self.odds + self.weights @ lam)[self.free]
        return self.constant + float(total + np.logaddexp(0.0, shifted).sum())

    def bounds(self, exact: int, rng: np.random.Generator) -> _Bounds:
        """Both bounds, with the loosest findings summed over exactly."""
        everything = np.arange(len(self.leak))
        chosen = everything if len(everything) <= exact else self._loosest(exact, rng)
        rest = np.setdiff1d(everything, chosen)
        lam = self.best_lambda(self.weights[:, rest], self.leak[rest], self.odds)
        up = self.weights[:, rest] @ lam
        upper = float(lam @ self.leak[rest] - _conjugate(lam).sum())
        upper += self._summed(chosen, self.odds + up)
        low, lower = self._lower_tilts(rest, up)
        if np.isfinite(lower):
            lower += self._summed(chosen, self.odds + low)
        marginals = self._marginals(chosen, self.odds + up)
        return _Bounds(self.constant + lower, self.constant + upper, marginals)

    def best_lambda(self, w: Array, leak: Array, odds: Array, steps: int = 300) -> Array:
        """The lambda of the least upper bound: a convex problem."""
        if not len(leak):
            return np.empty(0)
        linked = np.any(w > 0, axis=1)
        small, own = w[linked], odds[linked]

        def value(logs: Array) -> tuple[float, Array]:
            lam = np.exp(logs)
            shifted = own + small @ lam
            total = lam @ leak - _conjugate(lam).sum() + np.logaddexp(0.0, shifted).sum()
            slope = leak - (np.log1p(lam) - logs) + small.T @ expit(shifted)
            return float(total), slope * lam

        start = np.log(1.0 / np.expm1(np.maximum(leak + expit(own) @ small, 1e-3)))
        descent = Lbfgs(value, np.maximum(start, -30.0))
        for _ in descent.steps(steps, least_decrease=1e-10, tol=1e-6):
            pass
        return np.asarray(np.exp(descent.point))

    def _lower_tilts(self, rest: Ints, up: Array) -> tuple[Array, float]:
        """Shifts of the log-odds and a constant, at a fixed point of the best q."""
        leak = self.leak[rest]
        if not len(rest):
            return np.zeros(len(self.odds)), 0.0
        if np.any(leak == 0):
            return np.zeros(len(self.odds)), -np.inf
        rows = np.flatnonzero(np.any(self.weights[:, rest] > 0, axis=1))
        w, own = self.weights[rows][:, rest], self.odds[rows]
        base, linked = _log_on(leak), w > 0
        q = np.where(linked, w * expit(own + up[rows])[:, None] + _LEAST, 0.0)
        q /= np.maximum(q.sum(axis=0), _LEAST)
        for turn in range(_ROUNDS + 1):
            ratio = np.where(linked, w / np.maximum(q, _LEAST), 0.0)
            gain = np.where(linked, _log_on(leak + ratio) - base, 0.0)
            shifts = (q * gain).sum(axis=1)
            if turn == _ROUNDS:
                break
            slope = 1.0 / np.expm1(np.minimum(leak + ratio, 500.0))
            on = expit(own + shifts)
            fresh = on[:, None] * q * np.maximum(gain - ratio * slope, 0.0)
            total = fresh.sum(axis=0)
            q = np.where(total > 0, fresh / np.where(total > 0, total, 1.0), q)
        tilts = np.zeros(len(self.odds))
        tilts[rows] = shifts
        return tilts, float(base.sum())

    def _loosest(self, count: int, rng: np.random.Generator) -> Ints:
        """The findings whose upper bound is furthest from the truth at draws of the causes."""
        lam = self.best_lambda(self.weights, self.leak, self.odds)
        p = expit(self.odds + self.weights @ lam)
        draws = (rng.random((_DRAWS, len(p))) < p).astype(np.float64)
        z = draws @ self.weights + self.leak
        slack = lam * z - _conjugate(lam) - np.maximum(_log_on(np.maximum(z, _LEAST)), -50.0)
        order = np.argsort(-slack.mean(axis=0) - 1e6 * (self.leak == 0))
        return np.sort(order[:count])

    # ------------------------------------------------------------------ exact sums

    def _summed(self, chosen: Ints, odds: Array) -> float:
        """log sum over free causes of e^(odds d) times P(chosen findings | d)."""
        from kikuchi.beliefnets.kernels.noisy_or import log_all_on

        linked = np.any(self.weights[:, chosen] > 0, axis=1)
        apart = float(np.logaddexp(0.0, odds[self.free & ~linked]).sum())
        if not len(chosen):
            return apart
        first, bits, weights = _edges(self.weights[linked][:, chosen])
        off = np.zeros(int(linked.sum()))
        return apart + float(
            log_all_on(self.leak[chosen], off, odds[linked].copy(), first, bits, weights)
        )

    def _marginals(self, chosen: Ints, odds: Array) -> Array:
        """P(d_j = 1) of the same sum: with the cause present, over all."""
        from kikuchi.beliefnets.kernels.noisy_or import log_all_on

        found = np.where(self.free, expit(odds), self.known)
        linked = np.flatnonzero(np.any(self.weights[:, chosen] > 0, axis=1))
        if not len(linked):
            return np.asarray(found)
        first, bits, weights = _edges(self.weights[linked][:, chosen])
        off, on = np.zeros(len(linked)), odds[linked].copy()
        leak = self.leak[chosen]
        total = log_all_on(leak, off, on, first, bits, weights)
        # a cause gains most where nothing else explains the findings; those that can be likeliest
        # first, as many as the time is for, and others keep their odds
        own = self.weights[linked][:, chosen]
        gain = (_log_on(leak + own + _LEAST) - _log_on(leak + _LEAST)).sum(axis=1)
        order = np.argsort(-on - gain)
        affordable = int(_WORK / ((1 << len(chosen)) * (len(linked) + len(bits))))
        for k in order[: max(affordable, _FEWEST)]:
            absent = off.copy()
            absent[k] = -np.inf
            with_it = log_all_on(leak, absent, on, first, bits, weights)
            found[linked[k]] = np.exp(min(with_it - total, 0.0))
        return np.asarray(found)


def _edges(weights: Array) -> tuple[Ints, Ints, Array]:
    """Edges of each row of a matrix that are not zero, flat."""
    rows, columns = np.nonzero(weights)
    first = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(weights)))])
    return first.astype(np.int64), columns.astype(np.int64), weights[rows, columns]


def _conjugate(lam: Array) -> Array:
    return np.asarray((lam + 1.0) * np.log1p(lam) - lam * np.log(lam))


def _log_on(z: Array) -> Array:
    return np.asarray(np.log(-np.expm1(-z)))
