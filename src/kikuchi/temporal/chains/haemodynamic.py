"""`HaemodynamicHMM`: a hidden on-off state seen through an unknown response of the blood.

The output of a frame depends on the last L states, y_t = base + sum_l h_l s_t-l + noise. The window
of L states is itself a state of a Markov chain with 2^L states, two of which can follow each: exact
forward-backward, and the response is a regression on expected windows.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.stats import gamma

from kikuchi.core.arrays import Array
from kikuchi.core.options import option
from kikuchi.temporal import kinds
from kikuchi.temporal.base import Fitted, RowsEstimator
from kikuchi.temporal.chains.inference import chain_posterior, chain_row_scores, sample_chain
from kikuchi.temporal.sequences import Sequences
from kikuchi.training.checkpoint import Arrays, check_sizes

_LOG_2PI = math.log(2.0 * math.pi)


def blood_response(lags: int, interval: float) -> Array:
    """A gamma response of shape 6 and mean delay 5.4 s at frames `interval` seconds apart, with
    sum 1.

    >>> int(blood_response(8, 2.0).argmax())
    2
    """
    values = gamma.pdf(np.arange(lags) * interval, 6.0, scale=0.9)
    return np.asarray(values / values.sum())


@dataclass(frozen=True, eq=False)
class BloodModel:
    """p(on | off), p(off | on), base (D,), response (D, L) and noise variances (D,).

    Reference: HOJ-X4.
    """

    rise: float
    fall: float
    base: Array
    response: Array
    noise: Array

    def to_arrays(self) -> Arrays:
        """Everything by name."""
        return {
            "switches": np.array([self.rise, self.fall]), "base": self.base,
            "response": self.response, "noise": self.noise,
        }  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> BloodModel:
        """The inverse of `to_arrays`."""
        check_sizes(arrays, {"base": "columns", "response": "columns lags", "noise": "columns"})
        rise, fall = (float(v) for v in arrays["switches"])
        return cls(rise, fall, *(np.array(arrays[n]) for n in ("base", "response", "noise")))

    @property
    def lags(self) -> int:
        """Frames that the response lasts."""
        return int(self.response.shape[1])

    def windows(self) -> Array:
        """The states of the last frames in each window, newest first, (2^L, L)."""
        codes = np.arange(2**self.lags)
        return ((codes[:, None] >> np.arange(self.lags)) & 1).astype(np.float64)

    def chain(self) -> tuple[Array, Array]:
        """Start (all off before the first frame) and transition of the windows."""
        k = 2**self.lags
        switch = np.array([[1 - self.rise, self.rise], [self.fall, 1 - self.fall]])
        codes = np.arange(k)
        transition = np.zeros((k, k))
        for bit in (0, 1):
            transition[codes, ((codes << 1) | bit) & (k - 1)] += switch[codes & 1, bit]
        start = np.zeros(k)
        start[0], start[1] = 1 - self.rise, self.rise
        return start, transition

    def log_likelihood(self, rows: Array) -> Array:
        """Of each row in each window; missing entries say nothing."""
        means = self.base + self.windows() @ self.response.T
        known = ~np.isnan(rows)
        error = np.where(known[:, None], rows[:, None] - means[None], 0.0)
        constant = known @ np.log(2 * np.pi * self.noise)
        return np.asarray(-0.5 * ((error**2 / self.noise).sum(axis=2) + constant[:, None]))


class BloodPosterior(NamedTuple):
    """Probability that the state is on at each frame (T,), what the model expects of the outputs
    (T, D), and the log-likelihood.
    """

    probability: Array
    expected: Array
    log_likelihood: float


class BloodForecast(NamedTuple):
    """Probability of being on (steps,), and mean and variance of the outputs (steps, D)."""

    probability: Array
    mean: Array
    variance: Array

    @property
    def deviation(self) -> Array:
        """Standard deviation of each output."""
        return np.sqrt(self.variance)


@dataclass(eq=False, repr=False)
class HaemodynamicHMM(RowsEstimator, Fitted[BloodModel]):
    """A hidden on-off state of the brain and the response of the blood, both unknown.

    Learnt by EM or along the gradient, with exact posteriors of the windows; the response has a
    Gaussian prior around the gamma response of its own amplitude, each probability of switching a
    prior worth one switch and one stay. Columns are voxels or regions, each with its response.

    The parameters are point estimates. Posteriors of the on-off state are exact given them; there
    is no posterior of the response, and no effect that differs between repeated trials.

    Attributes
    ----------
    model_ (switching probabilities, base, response, noise), log_likelihood_, trace_ (its objective
    also has the logarithms of the priors), converged_, stopped_, n_iter_, warnings_.

    >>> rng = np.random.default_rng(0)
    >>> on = np.repeat([0.0, 1.0, 0.0, 1.0, 0.0], 15)
    >>> seen = np.convolve(on, blood_response(6, 2.0))[:75]
    >>> brain = HaemodynamicHMM(lags=6).fit(seen[:, None] + 0.2 * rng.normal(size=(75, 1)))
    >>> found = brain.smooth(seen[:, None]).probability > 0.5
    >>> bool(np.mean(found == (on > 0)) > 0.9)
    True

    Reference: HOJ-X4.
    """

    kind = kinds.BLOOD
    file_kind: ClassVar[str] = "haemodynamic-markov"

    lags: int = option(8, "Frames that the response lasts.", low=1, high=10)
    _: KW_ONLY
    interval: float = option(2.0, "Seconds between frames.", above=0)
    stiffness: float = option(
        5.0, "How many rows the prior of the response is worth; 0: none.", low=0
    )

    def _begin(self, sequences: Sequences, rng: np.random.Generator) -> BloodModel:
        rows = sequences.stacked()
        low, high = np.nanquantile(rows, 0.2, axis=0), np.nanquantile(rows, 0.8, axis=0)
        shape = blood_response(self.lags, self.interval)
        variance = np.maximum(np.nanvar(rows, axis=0), 1e-12)
        reference = np.nan_to_num(rows - np.nanmean(rows, axis=0))
        lead = np.linalg.svd(reference, full_matrices=False)[2][0]
        sign = np.where(lead * lead[np.argmax(np.abs(lead))] >= 0, 1.0, -1.0)
        size = sign * np.maximum(high - low, 1e-6)
        base = np.where(sign > 0, low, high)
        return BloodModel(0.1, 0.1, base, size[:, None] * shape, 0.5 * variance)

    def _expectation(self, model: BloodModel, sequences: Sequences) -> tuple[float, Any]:
        windows = model.windows()
        design = np.hstack([np.ones((len(windows), 1)), windows])
        start, transition = model.chain()
        d, size = len(model.base), self.lags + 1
        total = self._beside(model)
        zz, zy = np.zeros((d, size, size)), np.zeros((d, size))
        yy, counts, switches = np.zeros(d), np.zeros(d), np.zeros((2, 2))
        for rows in sequences.tables:
            p = chain_posterior(start, transition, model.log_likelihood(rows), counts=True)
            total += p.log_likelihood
            known = ~np.isnan(rows)
            filled = np.nan_to_num(rows - model.base)
            weights = known.T.astype(np.float64) @ p.probabilities
            zz += np.einsum("ki,dk,kj->dij", design, weights, design)
            zy += filled.T @ p.probabilities @ design
            yy += (filled**2).sum(axis=0)
            counts += known.sum(axis=0)
            codes = np.arange(len(start)) & 1
            np.add.at(switches, (codes[:, None], codes[None, :]), p.transitions)
            switches[0] += [
                p.probabilities[0, codes == 0].sum(),
                p.probabilities[0, codes == 1].sum(),
            ]
        return total, (zz, zy, yy, counts, switches)

    def _prior(self, model: BloodModel) -> tuple[Array, Array]:
        """Centre (D, L) and precision (D,) of the prior of the response."""
        shape = blood_response(self.lags, self.interval)
        size = model.response @ shape / (shape @ shape)
        return size[:, None] * shape, self.stiffness / model.noise

    def _beside(self, model: BloodModel) -> float:
        """Logarithm of the priors, up to a constant."""
        centre, weight = self._prior(model)
        away = 0.5 * float((weight * ((model.response - centre) ** 2).sum(axis=1)).sum())
        switches = np.array([model.rise, model.fall])
        return float(np.log(switches * (1.0 - switches)).sum()) - away

    def _stiff(self) -> Array:
        """Precision of the prior of (base, response) in units of the noise: that of what is not
        along the gamma response.
        """
        shape = blood_response(self.lags, self.interval)
        stiff = np.zeros((self.lags + 1, self.lags + 1))
        stiff[1:, 1:] = self.stiffness * (
            np.eye(self.lags) - np.outer(shape, shape) / (shape @ shape)
        )
        return stiff

    def _maximisation(self, model: BloodModel, statistics: Any) -> BloodModel:
        zz, zy, yy, counts, switches = statistics
        stiff = self._stiff()
        ridge = 1e-9 * np.eye(self.lags + 1)
        w = np.linalg.solve(zz + stiff + ridge, zy[:, :, None])[:, :, 0]
        scatter = yy - 2 * (w * zy).sum(axis=1) + np.einsum("di,dij,dj->d", w, zz + stiff, w)
        noise = np.maximum(scatter / np.maximum(counts, 1.0), 1e-8 * yy / np.maximum(counts, 1.0))
        rows = switches.sum(axis=1) + 2.0
        rise, fall = (switches[0, 1] + 1.0) / rows[0], (switches[1, 0] + 1.0) / rows[1]
        base = model.base + w[:, 0]
        return BloodModel(float(rise), float(fall), base, w[:, 1:], np.maximum(noise, 1e-300))

    def _pack(self, model: BloodModel) -> Array:
        chances = np.array([model.rise, model.fall])
        logits = np.log(chances / (1.0 - chances))
        w = np.column_stack([model.base, model.response])
        return np.concatenate([logits, w.ravel(), np.log(model.noise)])

    def _unpack(self, model: BloodModel, vector: Array) -> BloodModel:
        rise, fall = (1.0 / (1.0 + np.exp(-vector[:2]))).tolist()
        d, size = len(model.base), self.lags + 1
        w = vector[2 : 2 + d * size].reshape(d, size)
        return BloodModel(rise, fall, w[:, 0], w[:, 1:], np.exp(vector[2 + d * size :]))

    def _gradient(self, model: BloodModel, statistics: Any) -> Array:
        zz, zy, yy, counts, switches = statistics
        w, both = np.column_stack([0.0 * model.base, model.response]), zz + self._stiff()
        chances, moved = np.array([model.rise, model.fall]), switches[[0, 1], [1, 0]] + 1.0
        slopes = moved - chances * (switches.sum(axis=1) + 2.0)
        along = (zy - np.einsum("dij,dj->di", both, w)) / model.noise[:, None]
        scatter = yy - 2 * (w * zy).sum(axis=1) + np.einsum("di,dij,dj->d", w, both, w)
        return np.concatenate([slopes, along.ravel(), 0.5 * (scatter / model.noise - counts)])

    def _read_model(self, arrays: Arrays) -> BloodModel:
        return BloodModel.from_arrays(arrays)

    # ------------------------------------------------------------------ asking

    def smooth(self, X: Any) -> Any:
        """Probability that the state is on, given all rows `X` (frames, voxels): `BloodPosterior`,
        or a list for a list of tables.
        """
        return self._posteriors(X, smooth=True)

    def filter(self, X: Any) -> Any:
        """Probability that the state is on, given the rows of `X` up to each frame."""
        return self._posteriors(X, smooth=False)

    def _posteriors(self, X: Any, *, smooth: bool) -> Any:
        model: BloodModel = self._model
        sequences = self._sequences(X)
        start, transition = model.chain()
        windows, answers = model.windows(), []
        for rows in sequences.tables:
            p = chain_posterior(start, transition, model.log_likelihood(rows), smooth=smooth)
            expected = model.base + p.probabilities @ windows @ model.response.T
            on = p.probabilities @ windows[:, 0]
            answers.append(BloodPosterior(on, expected, p.log_likelihood))
        return sequences.answer(answers)

    def _row_scores(self, rows: Array) -> Array:
        model: BloodModel = self._model
        return chain_row_scores(*model.chain(), model.log_likelihood(rows))

    def _ahead(self, rows: Array, steps: int) -> BloodForecast:
        model: BloodModel = self._model
        (start, transition), windows = model.chain(), model.windows()
        means = model.base + windows @ model.response.T
        p = chain_posterior(start, transition, model.log_likelihood(rows), smooth=False)
        now, ahead = p.probabilities[-1], []
        for _ in range(steps):
            now = now @ transition
            ahead.append(now)
        found = np.array(ahead)
        mean = found @ means
        away = means - mean[:, None]
        variance = (found[:, :, None] * away**2).sum(axis=1) + model.noise
        return BloodForecast(found @ windows[:, 0], mean, variance)

    def _drawn(self, steps: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """On-off states (steps,) and rows (steps, voxels)."""
        model: BloodModel = self._model
        codes = sample_chain(*model.chain(), steps, rng)
        means = model.base + model.windows()[codes] @ model.response.T
        noise = np.sqrt(model.noise) * rng.normal(size=means.shape)
        return (codes & 1).astype(np.float64), means + noise
