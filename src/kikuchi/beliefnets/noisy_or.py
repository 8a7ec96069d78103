"""`NoisyOrNetwork`: independent causes of findings, each of which may turn a finding on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from kikuchi.beliefnets import kinds
from kikuchi.beliefnets.noisy_or_bounds import DiagnosisModel, FindingBracket
from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.methods import constructor
from kikuchi.core.options import option
from kikuchi.core.seeds import Seed, generator
from kikuchi.training.estimator import FeatureTransformer, TrainedEstimator, validate_data
from kikuchi.training.model import PytreeModel
from kikuchi.training.optimiser import precision
from kikuchi.training.rule import LossRule
from kikuchi.training.trainer import TrainingTrace

_ROUNDS = 15  # of the best q of each row
_LEAST_LEAK = 1e-4
_FLOOR = "least_leak"  # name among the facts of a model
_ZERO = 1e-300  # stands for a weight or leak of 0 in front of the logarithm
_TINY = 1e-8


class NoisyOrParameters(PytreeModel):
    """Logits of the causes, and weights and leaks before they are made positive.

    Leaks of networks that learn are at least 1e-4, those of a network that was given are as given.
    """

    kind: ClassVar[str] = "noisy-or-network"

    @classmethod
    def of(cls, known: DiagnosisModel) -> NoisyOrParameters:
        """The parameters of a network that is known; its zeros are kept."""
        values = {
            "prior": np.log(known.prior) - np.log1p(-known.prior),
            "weights": _inverse_softplus(known.weights, _ZERO),
            "leak": _inverse_softplus(known.leak, _ZERO),
        }
        return cls(values, {_FLOOR: 0.0})

    @property
    def least_leak(self) -> float:
        """What is added to every leak."""
        return float(self.facts.get(_FLOOR, _LEAST_LEAK))

    def positive(self) -> DiagnosisModel:
        """The same in the terms of the model."""
        with precision(self.parameters):
            p = {name: jnp.asarray(array) for name, array in self.parameters.items()}
            weights = np.asarray(jax.nn.softplus(p["weights"]), dtype=np.float64)
            leak = np.asarray(self.least_leak + jax.nn.softplus(p["leak"]), dtype=np.float64)
            prior = np.asarray(jax.nn.sigmoid(p["prior"]), dtype=np.float64)
        weights, leak = (np.where(a <= 2 * _ZERO, 0.0, a) for a in (weights, leak))
        return DiagnosisModel(np.clip(prior, 1e-12, 1 - 1e-12), weights, leak)


def _log_on(z: Any) -> Any:
    return jnp.log(-jnp.expm1(-z))


def _tilted_odds(parameters: Any, rows: Any, least: float) -> tuple[Any, Any]:
    """Log-odds of the causes of each row in its best lower bound, and what does not depend on them.

    The derivative of the bound by the best q vanishes, so that q is held.
    """
    weights = jax.nn.softplus(parameters["weights"])  # (causes, findings)
    leak = least + jax.nn.softplus(parameters["leak"])
    odds = parameters["prior"] - (1.0 - rows) @ weights.T
    base = _log_on(leak)

    def gains(q: Any) -> tuple[Any, Any]:
        ratio = weights / jnp.maximum(q, _TINY)
        return ratio, _log_on(leak + ratio) - base

    def better(q: Any, _: Any) -> tuple[Any, None]:
        ratio, gain = gains(q)
        shifts = jnp.einsum("njf,njf,nf->nj", q, gain, rows)
        slope = 1.0 / jnp.expm1(jnp.minimum(leak + ratio, 80.0))
        on = jax.nn.sigmoid(odds + shifts)
        fresh = on[:, :, None] * q * jnp.maximum(gain - ratio * slope, 0.0) + _TINY
        return fresh / jnp.sum(fresh, axis=1, keepdims=True), None

    start = weights * jax.nn.sigmoid(odds)[:, :, None] + _TINY
    start = start / jnp.sum(start, axis=1, keepdims=True)
    best, _ = jax.lax.scan(better, jax.lax.stop_gradient(start), None, length=_ROUNDS)
    best = jax.lax.stop_gradient(best)
    _, gain = gains(best)
    shifts = jnp.einsum("njf,njf,nf->nj", best, gain, rows)
    constant = rows @ base - (1.0 - rows) @ leak
    return odds + shifts, constant + jnp.sum(jax.nn.log_sigmoid(-parameters["prior"]))


def lower_bounds(parameters: Any, rows: Any, least: float = _LEAST_LEAK) -> Any:
    """Lower bound on the log-probability of each row of findings; leaks are at least `least`."""
    odds, constant = _tilted_odds(parameters, rows, least)
    return constant + jnp.sum(jax.nn.softplus(odds), axis=1)


def negative_bound(parameters: Any, batch: Any, key: Any) -> Any:
    """What learning minimises."""
    return -jnp.mean(lower_bounds(parameters, batch))


@dataclass(eq=False, repr=False)
class NoisyOrNetwork(FeatureTransformer, TrainedEstimator):
    """Two layers: independent causes, and findings that any of their causes can turn on.

    `fit` learns causes from rows of findings (0, 1) by ascending a lower bound on the
    log-likelihood; `from_parameters` takes a network that is known. `infer` brackets the
    log-probability of findings between certified bounds and gives the causes' probabilities.

    Attributes
    ----------
    diagnosis_ : the network as a `DiagnosisModel`, with `prior`, `weights` and `leak`.
    trace_, converged_, stopped_, n_iter_, warnings_ : how the training went.

    Reference: HOJ-X6.

    >>> net = NoisyOrNetwork.from_parameters([0.1, 0.2], [[2.0, 0.5], [0.0, 3.0]], [0.01, 0.02])
    >>> found = net.infer({0: 1, 1: 0})
    >>> bool(found.upper - found.lower < 1e-9), bool(found.marginals[0] > 0.8)
    (True, True)
    """

    kind = kinds.NOISY_OR
    model_class: ClassVar[Any] = NoisyOrParameters
    file_layout: ClassVar[Mapping[str, str]] = {
        "parameters/prior": "causes",
        "parameters/weights": "causes columns",
        "parameters/leak": "columns",
    }

    n_components: int = option(8, "Number of causes.", low=1)
    _: KW_ONLY
    threshold: float | None = option(
        None, "Data above it are 1 and others 0; none: data are 0 and 1 already."
    )
    solver: str = option("adam", 'Optimiser: "sgd", or one of optax such as "adam:b1=0.8".')
    max_iter: int = option(100, "Number of passes over the rows, each shuffled.", low=1)

    @constructor
    def from_parameters(
        cls, prior: ArrayLike, weights: ArrayLike, leak: ArrayLike, **options: Any
    ) -> Self:
        """A network that needs no fit.

        Parameters
        ----------
        prior : probability of each cause.
        weights : (causes, findings), not negative; P(cause j fails to turn on i) = exp(-w[j, i]).
        leak : not negative; P(finding i is on without any cause) = 1 - exp(-leak[i]).
        options : of the estimator.
        """
        known = DiagnosisModel(*(np.asarray(a, dtype=np.float64) for a in (prior, weights, leak)))
        net = cls(n_components=len(known.prior), **options)
        net.model_ = NoisyOrParameters.of(known)
        net.n_features_in_ = len(known.leak)
        net._ended(0, "given", True, [], TrainingTrace("loss per row"))
        net._rng, net._state = generator(0), None
        return net

    # ------------------------------------------------------------------ learning

    @property
    def learner(self) -> str:
        """How it learns, in words."""
        return "lower bound"

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        rows = np.asarray(validate_data(self, X, reset=reset, dtype=np.float64))
        if self.threshold is not None:
            return (rows > self.threshold).astype(np.float64)
        off = (rows != 0.0) & (rows != 1.0)
        if np.any(off):
            row, column = np.argwhere(off)[0]
            raise DataError(
                f"row {row}, column {column} is {rows[row, column]:g}; findings are 0 and 1: give "
                "such data, or a threshold"
            )
        return rows

    def _begin(self, rows: Array, rng: np.random.Generator) -> NoisyOrParameters:
        means = np.clip(rows.mean(axis=0), 0.01, 0.9)
        chosen = rows[rng.integers(len(rows), size=self.n_components)]
        weights = np.clip(0.2 + 0.8 * chosen + 0.2 * rng.random(chosen.shape), 0.05, None)
        values = {
            "prior": np.full(self.n_components, -np.log(max(self.n_components, 2) - 1.0 + 1e-9)),
            "weights": _inverse_softplus(weights),
            "leak": _inverse_softplus(-np.log1p(-0.2 * means)),
        }
        return NoisyOrParameters({n: a.astype(np.float64) for n, a in values.items()})

    def _rule(self, model: Any) -> LossRule:
        return LossRule(negative_bound)

    def _keep(self, training: Any, rng: np.random.Generator) -> None:
        super()._keep(training, rng)
        self.model_.facts.pop(_FLOOR, None)  # a network that was given has learnt

    # ------------------------------------------------------------------ answers

    @property
    def diagnosis_(self) -> DiagnosisModel:
        """The network with its probabilities."""
        model: NoisyOrParameters = self._model
        return model.positive()

    def score_samples(self, X: ArrayLike) -> Array:
        """Lower bound on the log-probability of each row of `X` (rows, findings)."""
        return self._computed(lower_bounds, X)

    @property
    def score_kind_(self) -> str:
        """What `score_samples` and `score` are."""
        return "lower bound on the log-likelihood"

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples` over the rows of `X`; `y` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def transform(self, X: ArrayLike) -> Array:
        """Probability of each cause in the lower bound of each row of `X` (rows, findings)."""
        return self._computed(lambda p, x, least: jax.nn.sigmoid(_tilted_odds(p, x, least)[0]), X)

    def _computed(self, function: Any, X: ArrayLike) -> Array:
        parameters, least = self._model.parameters, self._model.least_leak
        rows = self._rows(X)
        size = max(1, 4_000_000 // (self.n_components * rows.shape[1]))
        with precision(parameters):
            parts = [
                np.asarray(function(parameters, jnp.asarray(rows[first : first + size]), least))
                for first in range(0, len(rows), size)
            ]
        return np.concatenate(parts)

    @property
    def _n_features_out(self) -> int:
        return int(self._model.parameters["prior"].shape[0])

    def infer(
        self, findings: Mapping[int, int], *, exact: int = 12, core: int = 7, random_state: Seed = 0
    ) -> FindingBracket:
        """Bounds on log P(`findings`), {finding: 0 or 1}, and the causes' probabilities. At most
        `exact` present findings are summed over exactly, and the states of `core` likely causes;
        `random_state` is the seed by which they are chosen. See `DiagnosisModel.bracket`.
        """
        return self.diagnosis_.bracket(
            dict(findings), exact=exact, core=core, random_state=random_state
        )

    def sample(
        self, n_samples: int = 1, *, random_state: Seed = None, return_latents: bool = False
    ) -> Any:
        """Draw `n_samples` rows of findings (0, 1) with the seed `random_state`; with
        `return_latents` the pair of rows and causes (n_samples, n_components).
        """
        if n_samples < 1:
            raise DataError(f"sample: at least 1 sample is needed, got {n_samples}")
        causes, rows = self.diagnosis_.sample(n_samples, random_state)
        return (rows, causes) if return_latents else rows


def _inverse_softplus(values: Any, least: float = 1e-12) -> Array:
    """The numbers whose softplus these are, or `least` where they are smaller."""
    positive = np.maximum(np.asarray(values, dtype=np.float64), least)
    return np.asarray(positive + np.log(-np.expm1(-positive)))
