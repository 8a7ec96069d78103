r"""Fisher scoring of noisy ICA: steps by the information that the samples themselves give.

The gradient of the log-likelihood of each sample follows from its moments, in the mixing by
P (x <s>^T - A <ss^T>) and in the logarithm of a variance by (<(x - A s)^2> / variance - 1) / 2. The
mean of their outer products is the information F of a sample; F^-1 times the mean gradient g is a
step that needs no objective, and that approximate or sampled moments cannot mislead further than
they mislead g. In units of F the length of that step says how many standard errors the optimum is
away, which is what a fit should stop by; the inverse of F says how well noise is known at all.

Reference: HOJ-L6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.run import State
from kikuchi.ica.mixing import MixingPrior
from kikuchi.ica.model import Model, Observations, deviations, is_clear
from kikuchi.ica.noise import FLOOR, IndependentNoise
from kikuchi.ica.posteriors.posterior import Moments, Posterior

_CHUNK = 2**17  # of the numbers that gradients of samples may take
_LEAST_ROWS = 4000  # that the information is estimated from, or
_ROWS = 20  # as many for every parameter, if there are so many
_RIDGE = 1e-4  # of the information in a parameter by itself, where others say the same
_SAMPLES_EACH = 2  # for each parameter: with fewer the information is singular or nearly so
_MOST_PARAMETERS = 600
_LONGEST = 0.5  # that a step may move the mixing in units of the chart
_LONGEST_NOISE = 1.0  # or the logarithm of a variance
_REMEMBERED = 4  # steps that Anderson acceleration combines
_WORSE = 0.02  # nats for each sample by which a step may lower the likelihood that draws estimate
_SHORTER = 0.3  # length of a step that is taken again
_LEAST_SHARE = 0.02
_GROWTH = 1.5  # of the length of steps that ends acceleration
_PSEUDO_LEVEL = 2e-3  # variance of pseudo-samples, as a fraction of the channel's
_FAR = 0.5  # of the squares of gradients, in units of the information
_DOUBT = 0.1  # of a source that the samples do not tell from others
_NOISE_ERROR = 0.25  # standard error of the logarithm of a variance that they do not determine
_LEAST_RATE = 0.2  # that is counted on
_LONGEST_ONE_STEP = 2.0  # standard errors that one step may go to the end, where its rate is known
_SHORTENED = 0.95  # length of a step that is progress
_PATIENCE = 12  # steps without any
_NOTHING = np.empty((0, 0), dtype=bool)


@dataclass(frozen=True)
class Evaluation:
    """Log-likelihood of a model for each sample, its gradient and the information of a sample, in
    coordinates of the model's own: the mixing moves by `basis` times them, variances by their
    exponentials. `moments` are what the next evaluation can start from.
    """

    model: Model
    count: int
    value: float
    gradient: Array
    information: Array
    basis: Array
    inverse_basis: Array
    moments: Moments

    def solve(self, vectors: Array) -> Array:
        """F^-1 times vectors."""
        scale = 1.0 / np.sqrt(np.maximum(np.diag(self.information), 1e-300))
        shape = (-1,) + (1,) * (vectors.ndim - 1)
        matrix = self.information * scale[:, None] * scale
        matrix[np.diag_indices_from(matrix)] += _RIDGE
        return np.asarray(
            scale.reshape(shape) * np.linalg.solve(matrix, scale.reshape(shape) * vectors)
        )

    @property
    def is_far(self) -> bool:
        """Whether most of what gradients of samples have in common is the mean: then their outer
        products are no information, and steps by them are short and turn to and fro.
        """
        return float(self.gradient @ self.solve(self.gradient)) > _FAR

    @property
    def next_value(self) -> float:
        """The log-likelihood for each sample after a whole step, to second order."""
        return self.value + 0.5 * float(self.gradient @ self.solve(self.gradient))

    def precision(self) -> Precision:
        """What the samples leave open, by the inverse of their information."""
        model, size = self.model, self.model.mixing.size
        covariance = self.solve(np.eye(len(self.gradient))) / self.count
        each = covariance[:size, :size].reshape(model.mixing.shape * 2)
        rows = self.basis @ np.einsum("eifi->ef", each) @ self.basis.T
        outer = model.mixing @ model.mixing.T
        doubt = np.zeros(model.sources)
        for matrix, sign in ((outer, 1.0), (outer + rows, -1.0)):
            near = np.linalg.lstsq(matrix, model.mixing, rcond=1e-12)[0]
            doubt += sign * np.einsum("di,di->i", model.mixing, near)
        logs = np.sqrt(np.maximum(np.diag(covariance)[size:], 0.0))
        if logs.size > 1 or (logs.size and model.sources > model.channels):
            assert isinstance(model.noise, IndependentNoise)
            logs[model.noise.at_floor] = math.inf
        if logs.size and is_clear(model):  # those that are held could be anything below
            logs[self.gradient[size:] == 0.0] = math.inf
        return Precision(doubt, logs)

    def in_chart(self, raw: Array) -> Array:
        """A change of mixing and log variances, in the coordinates of this evaluation."""
        return self._mapped(self.inverse_basis, raw)

    def as_change(self, step: Array) -> Array:
        """A change in these coordinates, as one of mixing and log variances."""
        return self._mapped(self.basis, step)

    def _mapped(self, matrix: Array, change: Array) -> Array:
        size = self.model.mixing.size
        mixing = change[:size].reshape(self.model.mixing.shape[0], -1)
        return np.concatenate([(matrix @ mixing).reshape(change[:size].shape), change[size:]])


@dataclass(frozen=True)
class Precision:
    """How well a mixing matrix and its noise are known.

    `doubt` is, for each source, how much the errors of A add to the least expected |w A - e|^2
    that any row w of an unmixing can have, e being the row that separates the source: 0 where it is
    known, 1 where it is not. `noise_error` are the standard errors of the logarithms of the
    variances, infinite for one that has fallen to its floor unless all channels share it and
    sources are no more than channels.
    """

    doubt: Array
    noise_error: Array

    @property
    def open_sources(self) -> list[int]:
        """Sources that the samples do not tell from others."""
        return [int(i) for i in np.flatnonzero(self.doubt > _DOUBT)]

    @property
    def open_noise(self) -> list[int]:
        """Variances that the samples do not determine."""
        return [int(i) for i in np.flatnonzero(self.noise_error > _NOISE_ERROR)]


def point_of(model: Model) -> Array:
    """Mixing and logarithms of learned variances as one vector."""
    noise = model.noise
    learned = noise.learned and isinstance(noise, IndependentNoise)
    logs = np.log(np.atleast_1d(noise.value)) if learned else np.empty(0)
    return np.concatenate([model.mixing.ravel(), logs])


def model_at(model: Model, point: Array) -> Model:
    """The model with other mixing and variances; the inverse of `point_of`."""
    size = model.mixing.size
    noise = model.noise
    if point.size > size:
        assert isinstance(noise, IndependentNoise)
        noise = noise.with_variances(np.exp(np.clip(point[size:], -690.0, 690.0)))
    return replace(model, mixing=point[:size].reshape(model.mixing.shape), noise=noise)


def has_enough_samples(sources: int, samples: int, channels: int) -> bool:
    """Whether outer products of the gradients of so many samples are an information matrix."""
    return samples >= _SAMPLES_EACH * channels * (sources + 1)


def has_information(sources: int, data: Observations) -> bool:
    """Whether the information matrix of a fit to `data` exists, and is small enough for one
    evaluation by a method that does not need it.
    """
    small = data.channels * (sources + 1) <= _MOST_PARAMETERS
    return small and has_enough_samples(sources, data.count, data.channels)


def evaluate(
    model: Model,
    data: Observations,
    posterior: Posterior,
    start: Moments | None,
    prior: MixingPrior | None = None,
    pseudo: float = 0.0,
) -> Evaluation:
    """Log-likelihood, gradient and information of a model, chunk by chunk of samples.

    `pseudo` more samples with next to no noise in any channel keep learned variances from zero.
    """
    from kikuchi.ica.kernels.scores import sample_scores

    deviation = np.sqrt(model.noise.channel_variances(model.channels))[:, None]
    mixing, basis, inverse = model.mixing / deviation, *_stretch(model, data, deviation)
    problem, size = model.problem(data), model.mixing.size
    noise = point_of(model).size - size
    own = noise > 1
    stretched = mixing if data.observed is not None else basis @ mixing
    products = np.einsum("di,dj->ijd", mixing, mixing).reshape(-1, model.channels)
    gradient, information = np.zeros(size + noise), np.zeros((size + noise, size + noise))
    mean, gamma, lam = (np.empty(problem.field.shape) for _ in range(3))
    total = 0.0
    rows = max(_LEAST_ROWS, _ROWS * gradient.size)
    stride = max(1, data.count // rows)
    counted = 0
    width = max(64, _CHUNK // gradient.size)
    for begin in range(0, data.count, width):
        part = slice(begin, min(begin + width, data.count))
        piece = problem.take(part)
        moments, second = posterior.joint(piece, None if start is None else start.take(part), begin)
        x = data.x[:, part] / deviation
        turned = x if data.observed is not None else basis @ x
        few = slice(0, None, 1 if data.observed is not None else stride)
        fewer, some = np.ascontiguousarray(moments.mean[:, few]), second[few]
        left = x.T[few] * (x[:, few] - 2.0 * (mixing @ fewer)).T
        left += some.reshape(len(some), -1) @ products
        seen = _NOTHING if data.observed is None else data.observed[:, part]
        scores = np.empty((len(some), gradient.size))
        turned_few = np.ascontiguousarray(turned[:, few])
        sample_scores(left, seen, turned_few, stretched, fewer, some, own, scores)
        if data.observed is None:
            gradient += _summed_scores(x, turned, mixing, stretched, moments, own, noise)
        else:
            gradient += scores.sum(axis=0)
            scores = scores[::stride]
        information += scores.T @ scores
        counted += len(scores)
        total += math.nan if moments.log_z is None else float(moments.log_z.sum())
        mean[:, part], gamma[:, part], lam[:, part] = moments.mean, moments.gamma, moments.lam
    total += float(np.sum(model.log_base(data)))
    if prior is not None and prior.alpha > 0:
        total -= prior.penalty(model.mixing)
        gradient[:size] -= prior.alpha * (basis @ (deviation * model.mixing)).ravel()
    gradient, information = gradient / data.count, information / counted
    if pseudo and noise:
        assert isinstance(model.noise, IndependentNoise)
        level = _PSEUDO_LEVEL * np.asarray(model.noise.floor) / FLOOR
        ratio = (level if own else np.mean(level)) / model.noise.flat
        total -= 0.5 * pseudo * float(np.sum(np.log(model.noise.flat) + ratio))
        gradient[size:] += 0.5 * pseudo / data.count * (ratio - 1.0)
        information[range(size, size + noise), range(size, size + noise)] += (
            0.5 * pseudo / data.count * ratio
        )
    _hold_at_floor(model, gradient, information)
    scaled = deviation * basis, inverse / deviation.T
    known = Moments.from_fields({"mean": mean, "gamma": gamma, "lam": lam})
    value = total / data.count
    return Evaluation(model, data.count, value, gradient, information, *scaled, known)


def _summed_scores(
    x: Array,
    turned: Array,
    mixing: Array,
    stretched: Array,
    moments: Moments,
    own: bool,
    noise: int,
) -> Array:
    """The sum of what `sample_scores` has for each sample, where no value is missing."""
    second = moments.covariance_sum + moments.mean @ moments.mean.T
    total = turned @ moments.mean.T - stretched @ second
    left = np.einsum("dn,dn->d", x, x - 2.0 * (mixing @ moments.mean))
    left += np.einsum("di,ij,dj->d", mixing, second, mixing)
    slopes = 0.5 * (left - x.shape[1])
    slopes = slopes if own else slopes.sum(keepdims=True)
    return np.concatenate([total.ravel(), slopes[:noise]])


def _stretch(model: Model, data: Observations, deviation: Array) -> tuple[Array, Array]:
    """A map of the channels, in units of the noise, after which the information is about the same
    in all directions: the root of the covariance of the data; and its inverse.
    """
    identity = np.eye(model.channels)
    if data.observed is not None:
        return identity, identity
    scaled = model.mixing / deviation * deviations(model.priors)
    span, lengths, _ = np.linalg.svd(scaled, full_matrices=False)
    longer = np.sqrt(1.0 + lengths**2)
    there, back = (longer - 1.0)[:, None] * span.T, (1.0 / longer - 1.0)[:, None] * span.T
    return identity + span @ there, identity + span @ back


def _hold_at_floor(model: Model, gradient: Array, information: Array) -> None:
    """Variances that are at their floor, or too low to matter, and would fall further are not
    moved.
    """
    size = model.mixing.size
    if gradient.size == size:
        return
    assert isinstance(model.noise, IndependentNoise)
    low = model.noise.at_floor | is_clear(model)
    held = size + np.flatnonzero(low & (gradient[size:] < 0))
    gradient[held] = 0.0
    information[held], information[:, held] = 0.0, 0.0
    information[held, held] = 1.0


@dataclass
class AndersonScoring:
    """Steps of scoring with Anderson acceleration, which combines the last steps so that the next
    would vanish if they were linear. Where a step has lowered the likelihood by more than draws may
    err, it is taken again, shorter.
    """

    share: float = 1.0  # of a step
    value: float = -math.inf
    length: float = math.inf  # of the last step
    least: float = math.inf  # of all
    stalled: float = 0.0  # steps since then
    rate: float = 1.0  # at which steps become shorter; below 1 if a fit to some samples has told
    points: list[Array] = field(default_factory=list)
    steps: list[Array] = field(default_factory=list)

    def advance(self, now: Evaluation) -> tuple[Model, float]:
        """The next model, and how far from the optimum it will be: the length of the step for each
        parameter in units of the information of a sample, times the rate at which steps become
        shorter; but at least one standard error if the step is longer than that or had to be cut.
        """
        if self.points and not now.value >= self.value - _WORSE and self.share > _LEAST_SHARE:
            self.share *= _SHORTER
            del self.points[:-1], self.steps[:-1]
            target = self.points[-1] + self.share * self.steps[-1]
            return model_at(now.model, target), max(self.length, 1.0 / math.sqrt(now.count))
        step = now.solve(now.gradient)
        residual = math.sqrt(max(0.0, float(now.gradient @ step)) / step.size)
        if residual > _GROWTH * self.length:
            self.points, self.steps = [], []
        first = math.isinf(self.length)
        told = first and self.rate < 1.0
        rate = self.rate if first else min(1.0, residual / self.length)
        self.rate = max(rate, _LEAST_RATE)
        self.length, self.value = residual, now.value
        shorter = residual < _SHORTENED * self.least
        self.least, self.stalled = (residual, 0.0) if shorter else (self.least, self.stalled + 1.0)
        move, cut = self._cut(now, step)
        self.points.append(point_of(now.model))
        self.steps.append(now.as_change(move))
        if cut > 1.0 or self.share < 1.0:
            del self.points[:-1], self.steps[:-1]
        elif len(self.points) > 1:
            move, cut = self._cut(now, self._accelerated(now, move))
        self.share, share = min(1.0, 2.0 * self.share), self.share
        self.points, self.steps = self.points[-_REMEMBERED:], self.steps[-_REMEMBERED:]
        target = self.points[-1] + share * now.as_change(move)
        error = 1.0 / math.sqrt(now.count)
        longest = _LONGEST_ONE_STEP * error if told else error
        if cut > 1.0 or share < 1.0 or residual > longest:
            return model_at(now.model, target), max(residual, error)
        return model_at(now.model, target), residual * rate

    @property
    def is_stalled(self) -> bool:
        """Whether steps have long ceased to become shorter."""
        return self.stalled >= _PATIENCE

    def _cut(self, now: Evaluation, step: Array) -> tuple[Array, float]:
        size = now.model.mixing.size
        longest = float(np.abs(step[:size]).max()) / _LONGEST
        cut = max(1.0, longest, float(np.abs(step[size:]).max(initial=0.0)) / _LONGEST_NOISE)
        return step / cut, cut

    def _accelerated(self, now: Evaluation, step: Array) -> Array:
        moves = now.in_chart(np.diff(np.array(self.points), axis=0).T)
        changes = now.in_chart(np.diff(np.array(self.steps), axis=0).T)
        metric = now.information @ changes
        normal = changes.T @ metric
        normal[np.diag_indices_from(normal)] *= 1.0 + 1e-6
        weights = np.linalg.lstsq(normal, metric.T @ step, rcond=1e-10)[0]
        return np.asarray(step - (moves + changes) @ weights)

    def state(self) -> State:
        """Everything as arrays."""
        numbers = np.array(
            [self.share, self.value, self.length, self.least, self.stalled, self.rate]
        )
        points, steps = (np.array(m) if m else np.empty((0, 0)) for m in (self.points, self.steps))
        return {"numbers": numbers, "points": points, "steps": steps}

    @classmethod
    def from_state(cls, state: Any) -> AndersonScoring:
        """The inverse of `state`."""
        share, value, length, least, stalled, rate = (float(x) for x in state["numbers"])
        memory = list(state["points"]), list(state["steps"])
        return cls(share, value, length, least, stalled, rate, *memory)
