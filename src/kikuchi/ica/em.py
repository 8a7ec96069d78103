r"""EM of noisy ICA: moments of the sources, then mixing, noise and priors.

Plain and over-relaxed EM, L-BFGS and scoring on the log-likelihood whose gradient the E-step gives:
d log p / dA = P (X <S>^T - A <SS^T>). All of them stop by that gradient in one chart. With naive or
exact moments EM never lowers its objective; with linear response and adaptive TAP nothing is
promised, it is only watched.

Reference: HOJ-L2, HOJ-L3, HOJ-L4, HOJ-L5, HOJ-L6, HOJ-L7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.run import Step
from kikuchi.engines.loops.state import Held, Rounds
from kikuchi.ica.mixing import RULES, MixingPrior, MixingTask, update_mixing
from kikuchi.ica.model import Model, Observations, deviations, is_learned, weakest
from kikuchi.ica.noise import FullNoise, IndependentNoise, Noise
from kikuchi.ica.noiseless import noiseless_optimum
from kikuchi.ica.posteriors.importance import ImportancePosterior
from kikuchi.ica.posteriors.posterior import Moments, Posterior, Problem
from kikuchi.ica.priors.prior import SourcePrior
from kikuchi.ica.restarts import (
    check_state_sizes,
    read_batches,
    read_best,
    read_model,
    written_batches,
    written_best,
    written_model,
)
from kikuchi.ica.scoring import AndersonScoring, Evaluation, evaluate, model_at, point_of
from kikuchi.ica.statistics import Statistics

WEAK = 0.7  # deviation of sources in units of noise, below which there may be several optima
OPTIMISERS = ("em", "over-relaxed", "lbfgs", "scoring")
GRADIENTS = ("lbfgs", "scoring")
CONSISTENT = ("naive", "variational", "adatap", "exact")  # moments are the gradient of log Z
LIKELIHOODS = (*CONSISTENT, "importance")  # whose objectives can be compared
_GROWTH = 1.2  # of over-relaxation after a good step
_MOST_RELAXED = 20.0
_WORSE = 1.2  # growth of the EM step that ends over-relaxation where no objective can be trusted
_ROUND = 25  # L-BFGS steps before its coordinates are chosen anew
_SETTLED = 0.03  # of the gradient at the begin of a round: enough before priors are learned again
_LEAST_KNOWN = 1e-3  # part of a sensor that sources do not explain: less is as good as nothing
_LEAST_POWER = 1e-4  # of a prior's variance that a source has at least: one that is off may awake
_DRAWS = 32  # of each sample, in importance sampling within a fit
_STRENGTHS = 1.5, 0.7  # of the weakest direction of the sources, below which draws double
_OVERCOMPLETE = 8  # times as many where sources are more than channels, and posteriors less normal
_NOT_RELAXED = (1.0, -math.inf, math.inf)  # length of a step, last objective, last change


@dataclass(frozen=True)
class Rules:
    """What the M-step may do: rule and prior of the mixing, and which priors are learned."""

    mixing: str
    mixing_prior: MixingPrior
    learned: str


def expectation(
    model: Model,
    data: Observations,
    posterior: Posterior,
    learned: str,
    start: Moments | None = None,
) -> tuple[Statistics, Moments]:
    """The E-step: moments of every sample and their sums."""
    problem = model.problem(data)
    moments = posterior.solve(problem, start)
    log_likelihood = math.nan
    if moments.log_z is not None:
        log_likelihood = float(np.sum(moments.log_z) + np.sum(model.log_base(data)))
    statistics = Statistics(
        float(data.count),
        data.x @ moments.mean.T,
        _second_moments(problem, moments, data, posterior),
        data.squares,
        data.channel_counts,
        data.outer if isinstance(model.noise, FullNoise) else None,
        _prior_statistics(model.priors, moments, learned),
        log_likelihood,
    )
    return statistics, moments


def maximisation(model: Model, statistics: Statistics, rules: Rules) -> Model:
    """The M-step: mixing, noise, then priors."""
    task = MixingTask(statistics.cross, statistics.second, model.noise, rules.mixing_prior)
    mixing = update_mixing(rules.mixing, model.mixing, task)
    return Model(mixing, model.noise.updated(statistics, mixing), _updated(model, statistics))


def posterior_within_em(posterior: Posterior, solver: str = "em") -> Posterior:
    """The posterior with a tolerance that is enough inside EM, where every solution is the start of
    the next. L-BFGS compares values and needs them more exactly.
    """
    tol, sweeps = (1e-8, 40) if solver == "lbfgs" else (1e-4, 20)
    fields: dict[str, Any] = {}
    if isinstance(posterior, ImportancePosterior):
        tol, sweeps = 0.3, 4  # draws correct what is left
        fields |= {"draws": min(posterior.draws, _DRAWS), "numbered": True}
    if hasattr(posterior, "tol"):
        fields["tol"] = max(posterior.tol, tol)
    if hasattr(posterior, "max_iter"):
        fields["max_iter"] = min(posterior.max_iter, sweeps)
    return replace(posterior, **fields) if fields else posterior


@dataclass(eq=False, init=False)
class EMIteration(Rounds):
    """A model that is being fitted: the model so far, its moments and its objective.

    `begin` says by which solver; whoever takes a `step` decides when to stop. L-BFGS goes on
    from the begin of a round, scoring from that of its last step.

    Attributes
    ----------
    kept, moments
        The model so far, and the moments of the last E-step.
    objective
        That of the last E-step.
    relaxation
        Of over-relaxed EM: length of a step, last objective, last change.
    fallback
        Where EM's own step would have led.
    settled
        Whether the model that it began with was found more than once.
    times
        As many draws as usual.
    best
        The highest of the objectives that are likelihoods, and its model.
    batches, total
        Sums and moments of each batch, and the sums over all batches.
    ascent
        The memory of scoring.
    """

    varying: ClassVar[tuple[str, ...]] = ("ascent/points", "ascent/steps", "moments/")

    kept: Held[Model]
    moments: Held[Moments]
    objective: float
    relaxation: Array
    fallback: Held[Model]
    settled: bool
    times: int
    best: Held[tuple[float, Model]]
    batches: Held[list[tuple[Statistics, Moments]]]
    total: Held[Statistics]
    ascent: Held[AndersonScoring]

    def __init__(
        self,
        model: Model,
        data: Observations,
        posterior: Posterior,
        rules: Rules,
        moments: Moments | None = None,
    ) -> None:
        super().__init__()
        self.data = data
        self.given = posterior
        self.posterior = posterior_within_em(posterior)
        self.rules = rules
        self.kept = Held(model, read_model, written_model)
        self.moments = Held(moments, Moments.from_fields, Moments.fields)
        self.objective = math.nan
        self.settled, self.times = True, 1
        self.pseudo = 0.0  # samples that keep noise from zero, in scoring
        self.most_times = 2 ** len(_STRENGTHS)
        self.evaluation: Evaluation | None = None  # the last one of scoring
        self._solver: Callable[[], Step | None] = self._plain
        self._prepare: Callable[[], None] | None = None
        self._clear()

    def _clear(self) -> None:
        """Forget everything but the model, its moments and the iterations."""
        self.relaxation = np.array(_NOT_RELAXED)
        self.fallback = Held(None, read_model, written_model)
        self.best = Held(None, read_best, written_best)
        self.batches = Held(None, read_batches, written_batches)
        self.total = Held(None, Statistics.from_arrays)
        self.ascent = Held(AndersonScoring(), AndersonScoring.from_state, AndersonScoring.state)
        self.known: tuple[float, Model] | None = None  # the last objective, and whose it is
        self._round: _DescentRound | None = None
        self.unmark()

    @property
    def model(self) -> Model:
        """The model so far."""
        return self.kept.now

    @model.setter
    def model(self, model: Model) -> None:
        self.kept.value = model

    def begin(self, solver: str, batch_size: int | None, seed: int) -> None:
        """Choose the solver of the next steps."""
        self._prepare = None
        if batch_size is not None and batch_size < self.data.count:
            self._prepare = partial(self._divide, batch_size, seed)
            self._solver = self._incremental
            return
        self.posterior = posterior_within_em(self.given, solver)
        steps = {"lbfgs": self._quasi_newton, "scoring": self._scoring}
        steps["over-relaxed"] = self._relaxed
        self._solver = steps.get(solver, self._plain)
        if solver == "scoring":
            self._prepare = self._set_draws

    def step(self) -> Step | None:
        """Take a step of the solver; None where it ends by itself."""
        if self._prepare is not None:
            self._prepare()
            self._prepare = None
        return self._solver()

    def begin_again(self, model: Model) -> None:
        """Go on from another model of the same data, with nothing kept but the iterations."""
        self.model = model
        self._clear()

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take the values that `to_arrays` described."""
        check_state_sizes(arrays, self.data)
        super().load(arrays)

    def conclude(self, converged: bool, cut_short: bool) -> None:
        """Set model and objective to those of one and the same point: where the fit has converged
        the last, else the one of highest likelihood, where the objective is a likelihood. What was
        cut short makes no other E-step, nor does scoring that has converged: the information says
        what its last step has added.
        """
        if self.total.value is not None:  # sums of batches, each under a model of its own
            return
        if not cut_short and (self.known is None or self.known[1] is not self.model):
            if converged and self.evaluation is not None and self.ascent.now.points:
                self.objective = self.evaluation.next_value  # of a step shorter than errors
                return
            self._expect()
        if self.known is None or math.isnan(self.known[0]):
            return
        kept = (
            self.known
            if converged or self.best.value is None
            else max(self.best.value, self.known, key=lambda pair: pair[0])
        )
        self.objective, self.model = kept

    def _note(self, model: Model) -> None:
        """Keep the objective as that of this model."""
        self.known = (self.objective, model)
        trusted = self.posterior.name in LIKELIHOODS
        if trusted and (self.best.value is None or self.objective > self.best.value[0]):
            self.best.value = self.known

    # ------------------------------------------------------------------ EM

    def _plain(self) -> Step:
        statistics = self._expect()
        plain = maximisation(self.model, statistics, self.rules)
        return self._move(plain, Chart(self.model, statistics).gradient_of(plain))

    def _relaxed(self) -> Step:
        """EM steps made longer while that helps; back to EM's own when it does not."""
        trusted = self.posterior.name in CONSISTENT
        length, last_objective, last_size = self.relaxation.tolist()
        statistics = self._expect()
        plain = maximisation(self.model, statistics, self.rules)
        size = Chart(self.model, statistics).gradient_of(plain)
        worse = self.objective < last_objective if trusted else size > _WORSE * last_size
        if worse and self.fallback.value is not None:
            target, self.fallback.value = self.fallback.value, None
            self.relaxation = np.array(_NOT_RELAXED)
            return self._move(target, size)
        target, self.fallback.value = plain, None
        if length > 1.0:
            target = _extrapolated(self.model, plain, length, self.rules)
            self.fallback.value = plain
        self.relaxation = np.array([min(length * _GROWTH, _MOST_RELAXED), self.objective, size])
        return self._move(target, size)

    def _divide(self, size: int, seed: int) -> None:
        """Make batches of the samples, and draw the orders of the passes before."""
        self._rng = np.random.default_rng(seed)
        self._parts = [self.data.take(samples) for samples in self.data.batches(size, self._rng)]
        for _ in range(self.done):
            self._rng.permutation(len(self._parts))

    def _incremental(self) -> Step:
        """Incremental EM: each batch replaces its own part of the sums, then the M-step."""
        before, parts, total = self.model, self._parts, self.total
        results = dict(enumerate(self.batches.value or []))
        for k in self._rng.permutation(len(parts)):
            old = results.get(k)
            start = None if old is None else old[1]
            new = expectation(self.model, parts[k], self.posterior, self.rules.learned, start)
            results[k] = new
            if total.value is None:
                total.value = new[0]
            else:
                total.value = total.value.plus(new[0])
                if old is not None:
                    total.value = total.value.plus(old[0], 1.0, -1.0)
            self.model = maximisation(self.model, total.now, self.rules)
        self.batches.value = [results[k] for k in range(len(parts))]
        self.done += 1
        self.objective = total.now.log_likelihood / total.now.count - self._penalty()
        residual = Chart(before, total.now).gradient_of(self.model)
        return Step(self.done, residual=residual, objective=self.objective)

    def _expect(self) -> Statistics:
        statistics, self.moments.value = expectation(
            self.model, self.data, self.posterior, self.rules.learned, self.moments.value
        )
        self.objective = statistics.log_likelihood / statistics.count - self._penalty()
        self._note(self.model)
        return statistics

    def _penalty(self) -> float:
        return self.rules.mixing_prior.penalty(self.model.mixing) / self.data.count

    def _move(self, model: Model, residual: float) -> Step:
        self.model = model
        self.done += 1
        return Step(self.done, residual=residual, objective=self.objective)

    # ------------------------------------------------------------------ L-BFGS

    def _quasi_newton(self) -> Step | None:
        """Rounds of L-BFGS on mixing and noise in a chart; between two rounds an EM step, which
        also moves the priors. Where priors are learned, the gradient must be small before and after
        that. The steps end where no point along the gradient is better.
        """
        learned = any(is_learned(prior, self.rules.learned) for prior in self.model.priors)
        now = self._round
        if now is None:
            return self._begin_round()
        if now.descent is None:
            objective, point = self._descent(now.chart), now.chart.point(self.model)
            now.descent = Lbfgs(objective, point, memory=_ROUND, longest=now.chart.longest)
        enough = learned and now.descent.residual <= _SETTLED * now.begun
        if now.taken == _ROUND or enough:
            return self._begin_round()
        if not now.descent.step():
            return self._begin_round() if now.taken else None
        now.taken += 1
        self.objective = -now.descent.value
        residual = now.descent.residual
        residual = max(now.begun, residual) if learned else residual
        step = self._move(now.chart.model(now.descent.point), residual)
        self._note(self.model)
        return step

    def _begin_round(self) -> Step:
        self.mark()
        statistics = self._expect()
        chart = Chart(self.model, statistics)
        plain = maximisation(self.model, statistics, self.rules)
        self._round = _DescentRound(chart, chart.gradient_of(plain))
        return self._move(plain, self._round.begun)

    def _scoring(self) -> Step | None:
        if self.ascent.now.is_stalled:
            return None
        self.mark()  # what the last step finds beside the model is not saved, but found again
        prior = self.rules.mixing_prior
        start = self.moments.value
        now = evaluate(self.model, self.data, self.posterior, start, prior, self.pseudo)
        self.moments.value, self.objective = now.moments, now.value
        self.evaluation = now
        self._note(self.model)
        clear = self._step_without_noise(now)
        if clear is not None:
            self.ascent.value = AndersonScoring()
            return self._move(*clear)
        if now.is_far:
            self.ascent.value = AndersonScoring()
            plain = maximisation(self.model, self._expect(), self.rules)
            return self._move(plain, 1.0)
        return self._move(*self.ascent.now.advance(now))

    def _step_without_noise(self, now: Evaluation) -> tuple[Model, float] | None:
        """The next model, and how far from the optimum it is, where noise is too low to matter: by
        Newton's method in the mixing, by scoring in the variances.
        """
        rules = self.rules
        if rules.mixing != RULES[0] or rules.mixing_prior.alpha or rules.mixing_prior.beta:
            return None
        found = noiseless_optimum(self.model, self.data)
        if found is None:
            return None
        mixing, residual = found
        size = mixing.size
        gradient, information = now.gradient[size:], np.diag(now.information)[size:]
        logs = point_of(self.model)[size:] + np.clip(gradient / information, -1.0, 1.0)
        left = float(np.max(np.abs(gradient) / np.sqrt(information), initial=0.0))
        model = model_at(self.model, np.concatenate([mixing.ravel(), logs]))
        return model, max(residual, left)

    def _set_draws(self) -> None:
        """As many draws as the weakest direction of the sources at the first step asks for."""
        if not isinstance(self.posterior, ImportancePosterior):
            return
        if self.done == 0:
            self.times = 2 ** sum(weakest(self.model) < strength for strength in _STRENGTHS)
        times = min(self.times, self.most_times)
        if self.model.sources > self.model.channels:
            times = _OVERCOMPLETE
        self.posterior = replace(self.posterior, draws=times * self.posterior.draws)

    def _descent(self, chart: Chart) -> Callable[[Array], tuple[float, Array]]:
        def value(point: Array) -> tuple[float, Array]:
            model = chart.model(point)
            statistics, self.moments.value = expectation(
                model, self.data, self.posterior, "none", self.moments.value
            )
            penalty = self.rules.mixing_prior.penalty(model.mixing)
            total = statistics.log_likelihood - penalty
            if not math.isfinite(total):
                return math.inf, np.zeros(point.shape)
            gradient = chart.gradient(model, statistics, self.rules.mixing_prior)
            return -total / statistics.count, -gradient / statistics.count

        return value


@dataclass
class _DescentRound:
    """A round of L-BFGS: its coordinates, the gradient at its begin, and the steps taken."""

    chart: Chart
    begun: float
    descent: Lbfgs | None = None
    taken: int = 0


class Chart:
    """Coordinates in which the information of a sample about mixing and noise is about the
    identity: a gradient in them is a step, and its size says how far away the optimum is.

    A = diag(deviation) T B R^-1 with R R^T = <SS^T> / N and T T^T the covariance of data in units
    of the noise. In much noise T is the identity and the curvature that of EM; without noise B is a
    relative change of A. A variance enters by its logarithm times the part of its sensor that the
    sources do not explain: where noise is low, and as many sources as sensors explain everything, a
    small gradient of the logarithm is still one that matters.
    """

    def __init__(self, model: Model, statistics: Statistics) -> None:
        self.base = model
        noise = model.noise
        self.deviation = np.sqrt(noise.channel_variances(model.channels))[:, None]
        second = statistics.second
        second = second.mean(axis=0) if second.ndim == 3 else second
        size = second / statistics.count
        size = size + _LEAST_POWER * np.diag(deviations(model.priors) ** 2)
        self.root = np.linalg.cholesky(size)
        scaled = (model.mixing / self.deviation) @ self.root
        self.span, lengths, _ = np.linalg.svd(scaled, full_matrices=False)
        self.stretch = np.sqrt(1.0 + lengths**2)[:, None]
        left = 1.0 / (1.0 + lengths**2)  # of a direction of the span, in the inverse covariance
        if np.size(noise.value) == 1:
            known = math.sqrt(max(0, model.channels - len(lengths)) + float(left @ left))
            self.known = np.array([max(known, _LEAST_KNOWN)])
        else:
            self.known = np.maximum(1.0 - self.span**2 @ (1.0 - left), _LEAST_KNOWN)
        independent = noise.learned and isinstance(noise, IndependentNoise)
        self.noise_size = np.size(noise.value) if independent else 0
        self.noise_scale = math.sqrt(0.5) * self.known[: self.noise_size]

    @property
    def longest(self) -> Array:
        """How far one step may move each coordinate: one, and variances by a factor e."""
        return np.concatenate([np.ones(self.base.mixing.size), self.noise_scale])

    def gradient_of(self, plain: Model) -> float:
        """The largest component of the gradient, from EM's own step to `plain`, which is the
        gradient in units of the complete data's information; under constraints, what they leave.
        """
        move = (plain.mixing - self.base.mixing) / self.deviation @ self.root
        largest = float(np.abs(self._stretched(move, self.stretch)).max())
        channels = self.base.channels
        before, after = (m.noise.channel_variances(channels) for m in (self.base, plain))
        excess = math.sqrt(0.5) * np.abs(after / before - 1.0)
        excess = excess[:1] * channels if self.known.size == 1 else excess
        return max(largest, float((excess / self.known).max()))

    def point(self, model: Model) -> Array:
        """Coordinates of a model."""
        inner = self._stretched((model.mixing / self.deviation) @ self.root, 1.0 / self.stretch)
        logs = np.log(np.atleast_1d(model.noise.value)) if self.noise_size else np.empty(0)
        return np.concatenate([inner.ravel(), self.noise_scale * logs])

    def model(self, point: Array) -> Model:
        """The model at a point."""
        from scipy.linalg import solve_triangular

        count = self.base.mixing.size
        inner = point[:count].reshape(self.base.mixing.shape)
        inner = self._stretched(inner, self.stretch)
        mixing = self.deviation * solve_triangular(self.root, inner.T, lower=True, trans="T").T
        return replace(self.base, mixing=mixing, noise=self._noise(point[count:]))

    def _stretched(self, inner: Array, stretch: Array) -> Array:
        """T times a matrix, or T^-1: T is the identity but for the span of the mixing."""
        return np.asarray(inner + self.span @ ((stretch - 1.0) * (self.span.T @ inner)))

    def _noise(self, logs: Array) -> Noise:
        if not self.noise_size:
            return self.base.noise
        assert isinstance(self.base.noise, IndependentNoise)
        values = np.exp(np.clip(logs / self.noise_scale, -690.0, 690.0))
        return self.base.noise.with_variances(values)

    def gradient(self, model: Model, statistics: Statistics, prior: MixingPrior) -> Array:
        """Gradient of log-likelihood plus log-prior in these coordinates."""
        from scipy.linalg import solve_triangular

        task = MixingTask(statistics.cross, statistics.second, model.noise, prior)
        outer = self._stretched(-task.gradient(model.mixing) * self.deviation, self.stretch)
        inner = solve_triangular(self.root, outer.T, lower=True).T
        if not self.noise_size:
            return np.asarray(inner.ravel())
        assert isinstance(model.noise, IndependentNoise)
        variances = model.noise.channel_variances(model.channels)
        residuals = statistics.channel_residuals(model.mixing) / variances
        logs = 0.5 * (residuals - statistics.counts)
        logs = np.array([logs.sum()]) if self.noise_size == 1 else logs
        logs[model.noise.at_floor & (logs < 0)] = 0.0
        return np.concatenate([inner.ravel(), logs / self.noise_scale])


def _second_moments(
    problem: Problem, moments: Moments, data: Observations, posterior: Posterior
) -> Array:
    if data.observed is None:
        return moments.second_moment_sum
    sources = problem.n_sources
    total = np.zeros((data.channels, sources * sources))
    for chunk in problem.chunks(sources**2):
        piece = moments.take(chunk)
        each = posterior.covariances(problem.take(chunk), piece)
        each += piece.mean.T[:, :, None] * piece.mean.T[:, None, :]
        total += data.observed[:, chunk] @ each.reshape(len(each), -1)
    return total.reshape(-1, sources, sources)


def _prior_statistics(
    priors: tuple[SourcePrior, ...], moments: Moments, learned: str
) -> tuple[Array, ...]:
    totals = []
    for i, prior in enumerate(priors):
        if not is_learned(prior, learned):
            totals.append(np.empty(0))
        elif type(prior).statistics is SourcePrior.statistics:  # moments alone, known already
            mean, variance = moments.mean[i], moments.variances[i]
            sums = [mean.size, np.sum(mean), np.sum(variance + mean * mean)]
            totals.append(np.array(sums, dtype=np.float64))
        elif moments.state_sums:
            totals.append(prior.statistics_of_states(moments.state_sums[i]))
        else:
            totals.append(prior.statistics(moments.gamma[i], moments.lam[i]))
    return tuple(totals)


def _updated(model: Model, statistics: Statistics) -> tuple[SourcePrior, ...]:
    pairs = zip(model.priors, statistics.priors, strict=True)
    return tuple(prior.updated(sums) if sums.size else prior for prior, sums in pairs)


def _extrapolated(model: Model, plain: Model, length: float, rules: Rules) -> Model:
    """The model `length` EM steps away, variances in the logarithm; priors as EM has them."""
    mixing = model.mixing + length * (plain.mixing - model.mixing)
    if rules.mixing != "free":
        mixing = np.maximum(mixing, 0.0)
    return Model(mixing, model.noise.extrapolated(plain.noise, length), plain.priors)
