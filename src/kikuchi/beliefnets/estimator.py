"""`SigmoidBeliefNetwork`: a layered sigmoid network as an estimator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.beliefnets.learning import BoundRule, random_start, relevance, switched_off
from kikuchi.beliefnets.likelihood import (
    annealed_likelihood,
    exact_likelihood,
    importance_likelihood,
)
from kikuchi.beliefnets.models import Evidence, SigmoidNetwork, layer_sizes
from kikuchi.beliefnets.posteriors.base import UnitPosterior, parse_posterior
from kikuchi.beliefnets.recognition import UP, add_recognition, has_recognition, parse_recognition
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.log import warn_caller
from kikuchi.core.options import option
from kikuchi.core.seeds import Seed, generator
from kikuchi.training.checkpoint import Arrays
from kikuchi.training.estimator import (
    ConvergenceWarning,
    FeatureTransformer,
    TrainedEstimator,
    validate_data,
)
from kikuchi.training.likelihoods import RowLikelihoods
from kikuchi.training.rule import Rule

_BOUND = "lower bound on the log-likelihood"
METHODS = ("exact", "importance", "ais")


class UnitBeliefs(NamedTuple):
    """Probabilities of all units given evidence on some.

    `means` are probabilities of 1 (known units: 0 or 1), `bound` is below the log-probability of
    the evidence, or is it where `exact` says so, and NaN of posteriors that have none.
    """

    means: Array
    bound: float
    exact: bool
    converged: bool


class _NetworkResults:
    """What a fit leaves behind besides `FitResults`."""

    network_: SigmoidNetwork


@dataclass(eq=False, repr=False)
class SigmoidBeliefNetwork(_NetworkResults, FeatureTransformer, TrainedEstimator):
    """A sigmoid belief network, learnt by ascending a lower bound on the log-likelihood.

    Hidden layers are given from the top. The posterior of the hidden units is a product, a mixture
    of products or a chain with certified bounds, or exact, or sampled. `score_samples` is the
    bound; `log_likelihood` comes nearer to the truth at a price. Other learners train a recognition
    network beside it, which guesses the hidden units in one pass upwards.

    Attributes
    ----------
    network_ : the `SigmoidNetwork`.
    trace_, converged_, stopped_, n_iter_, warnings_ : how the training went.

    Reference: LAW-M3, LAW-L2, LIU-L7.

    >>> rng = np.random.default_rng(0)
    >>> on = rng.integers(0, 2, size=(200, 1))
    >>> X = np.repeat(np.concatenate([on, 1 - on], axis=1), 2, axis=1).astype(float)
    >>> net = SigmoidBeliefNetwork(layers=(2,), epochs=60, random_state=0).fit(X)
    >>> bool(net.score(X) < net.log_likelihood(X).mean() < -np.log(2) + 0.05)
    True
    >>> net.transform(X).shape, net.sample(3, random_state=0).shape
    ((200, 2), (3, 4))
    """

    model_attribute: ClassVar[str] = "network_"
    model_class: ClassVar[Any] = SigmoidNetwork

    layers: tuple[int, ...] | list[int] | int | str = option(
        (16,), "Sizes of the hidden layers from the top, such as 8,24."
    )
    posterior: str = option(
        "mean-field",
        "Posterior of the hidden units: mean-field, mixture:M, chain, quadratic, third-order, "
        "tree-mf:width, gibbs, exact, or recognition (of learners with a recognition network).",
    )
    _: KW_ONLY
    learner: str = option(
        "bound",
        "How it learns: bound (of the posterior), or with a recognition network vimco:K "
        "(importance-weighted bound of K draws), reweighted:K or wake-sleep.",
    )
    units: Literal["bits", "spins"] = option("bits", "Values of the data: bits 0, 1; spins -1, 1.")
    threshold: float | None = option(
        None, "Data above it are 1 and others 0 (or -1); none: data have these values already."
    )
    ard: bool = option(
        False, "Learn a precision of the weights of each hidden unit, which may switch it off."
    )
    sweeps: int = option(20, "Sweeps of the posterior for each update at most.", low=1)
    start: SigmoidNetwork | None = option(
        None, "Network to begin from, of any acyclic form; its layers replace those given."
    )
    learning_rate: float = option(0.02, "First rate of the updates.", above=0)
    optimiser: str = option("adam", 'Optimiser: "sgd", or one of optax such as "adam:b1=0.8".')
    epochs: int = option(100, "Passes over the rows, each in an order of its own.", low=1)

    # ------------------------------------------------------------------ learning

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        """`layers` as whole numbers, checked."""
        return layer_sizes(self.layers, "layers")

    def _posterior(self, text: str | None = None) -> UnitPosterior:
        return parse_posterior(self.posterior if text is None else text)

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        rows = np.asarray(validate_data(self, X, reset=reset, dtype=np.float64))
        if self.threshold is not None:
            return (rows > self.threshold).astype(np.float64)
        wanted = (-1.0, 1.0) if self.units == "spins" else (0.0, 1.0)
        off = (rows != wanted[0]) & (rows != wanted[1])
        if np.any(off):
            row, column = np.argwhere(off)[0]
            pair = f"{wanted[0]:g} and {wanted[1]:g}"
            raise DataError(
                f"row {row}, column {column} is {rows[row, column]:g}; units are {pair}: give such "
                "data, or a threshold"
            )
        return (rows + 1.0) / 2.0 if self.units == "spins" else rows

    def _begin(self, rows: Array, rng: np.random.Generator) -> SigmoidNetwork:
        self._posterior()
        network = self._first_network(rows, rng)
        if self.learner != "bound" and not has_recognition(network):
            parse_recognition(self.learner)
            add_recognition(network, rng)
        if self.learner == "bound":  # it would stay behind
            for name in UP:
                network.parameters.pop(name, None)
        return network

    def _first_network(self, rows: Array, rng: np.random.Generator) -> SigmoidNetwork:
        if self.start is None:
            sizes = (*self.hidden_layers, rows.shape[1])
            return random_start(sizes, rows, rng, self.units)
        if len(self.start.visible) != rows.shape[1]:
            raise DataError(
                f"rows of {rows.shape[1]} columns for {len(self.start.visible)} visible units"
            )
        network = self.start.copy()
        network.units = self.units
        return network

    def _rule(self, model: Any) -> Rule[SigmoidNetwork]:
        if self.learner != "bound":
            return dataclasses.replace(
                parse_recognition(self.learner), ard=self.ard, n_rows=self._n_rows
            )
        return BoundRule(
            posterior=self.posterior, sweeps=self.sweeps, ard=self.ard, n_rows=self._n_rows
        )

    def _train(self, model: Any, rows: Any, rng: np.random.Generator, *arguments: Any) -> None:
        self._n_rows = len(rows)
        super()._train(model, rows, rng, *arguments)

    def _remarks(self, rows: Any) -> list[str]:
        remarks = []
        family = self._posterior()
        some = self.network_.clamped(np.asarray(rows)[:200])
        if self.posterior.startswith("mixture") and self.stopped_ != "seconds":
            remarks += family.fit(self.network_, some, rng=generator(0)).remarks
        if self.ard:
            off = switched_off(self.network_)
            if len(off):
                remarks.append(
                    f"{len(off)} of {len(self.network_.hidden)} hidden units are switched off"
                )
        return remarks

    # ------------------------------------------------------------------ answers

    def _states(self, X: ArrayLike) -> Array:
        network = self._model
        return np.asarray(network.clamped(self._rows(X)))

    def _fit_posterior(self, X: ArrayLike, random_state: Seed = 0) -> Any:
        states = self._states(X)
        return self._posterior().fit(self.network_, states, rng=generator(random_state))

    def score_samples(self, X: ArrayLike) -> Array:
        """Lower bound on the log-probability of each row of `X` (rows, visible units), exact with
        posterior="exact"; with posterior="recognition" it holds in expectation over draws.
        """
        if not self._posterior().bounds:
            raise MethodError(
                f"posterior {self.posterior} has no bound; use log_likelihood, or score with "
                "set_params(posterior='mean-field')"
            )
        return np.asarray(self._fit_posterior(X).bound)

    @property
    def score_kind_(self) -> str:
        """What `score_samples` and `score` are: "log-likelihood" with posterior="exact", otherwise
        "lower bound on the log-likelihood", which depends on the posterior.
        """
        return "log-likelihood" if self.posterior == "exact" else _BOUND

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples` over the rows of `X`; `y` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def transform(self, X: ArrayLike) -> Array:
        """Posterior probability that each hidden unit is 1, top layer first, for each row of `X`
        (rows, visible units).
        """
        return np.asarray(self._fit_posterior(X).means[:, self.network_.hidden])

    @property
    def _n_features_out(self) -> int:
        return len(self._model.hidden)

    @property
    def relevance_(self) -> Array:
        """Root mean square of the weights that leave each hidden unit."""
        return relevance(self._model)

    @property
    def switched_off_(self) -> Ints:
        """Hidden units whose weights are next to nothing."""
        return switched_off(self._model)

    def log_likelihood(
        self,
        X: ArrayLike,
        method: str = "auto",
        *,
        draws: int = 1000,
        steps: int = 500,
        chains: int = 16,
        confidence: float = 0.95,
        random_state: Seed = 0,
    ) -> RowLikelihoods:
        """Return the log-likelihood of each row, nearer to the truth than the bound.

        Rows whose bounds are not reliable, because too few draws carry weight, are a warning.

        Parameters
        ----------
        X : rows of data.
        method : "exact" (enumeration, up to 20 hidden units), "importance" (draws from the
            posterior: a lower limit), "ais" (annealing from the prior to the posterior and back: a
            bracket), or "auto": exact up to 12 hidden units, else importance.
        draws : of importance sampling, for each row.
        steps, chains : of annealing, for each row.
        confidence : probability, for each row, that its log-likelihood is within the bounds.
        random_state : seed of the draws.
        """
        states = self._states(X)
        network = self.network_
        if method == "auto":
            method = "exact" if len(network.hidden) <= 12 else "importance"
        if method == "exact":
            return exact_likelihood(network, states)
        if method == "ais":
            found = annealed_likelihood(
                network, states, steps=steps, chains=chains, confidence=confidence,
                random_state=random_state,
            )  # fmt: skip
        elif method == "importance":
            family = self._posterior()
            if family.name in ("gibbs", "gibbs-proposals", "exact", "tree-mf"):
                family = parse_posterior("mean-field")
            found = importance_likelihood(
                network, states, family, draws=draws, confidence=confidence,
                random_state=random_state,
            )  # fmt: skip
        else:
            raise MethodError(f"method is one of auto, {', '.join(METHODS)}; got {method!r}")
        for text in found.warnings:
            warn_caller(f"{type(self).__name__}: {text}", ConvergenceWarning)
        return found

    def infer(
        self, evidence: Evidence, *, posterior: str | None = None, random_state: Seed = 0
    ) -> UnitBeliefs:
        """Probabilities of all units given the values of any of them.

        Parameters
        ----------
        evidence : {unit: value}, or one value per unit with NaN for unknown. Units count from the
            top; the visible ones are `network_.visible`.
        posterior : in place of that of the estimator.
        random_state : seed of the start.
        """
        network = self._model
        row = network.evidence_row(evidence)[None]
        family = self._posterior(posterior)
        fit = family.fit(network, row, rng=generator(random_state))
        return UnitBeliefs(fit.means[0], float(fit.bound[0]), fit.exact, bool(fit.converged[0]))

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> Array:
        """`n_samples` rows of the model, from the top layer down; `random_state` is the seed."""
        network = self._model
        states = network.sample_states(n_samples, random_state)
        return np.asarray(network.from_bits(states[:, network.visible]))

    # ------------------------------------------------------------------ files

    def plain_options(self) -> dict[str, Any]:
        """As of every estimator; a start network is what the file holds learnt further."""
        options = super().plain_options()
        layers = options.get("layers")
        if isinstance(layers, tuple):
            options["layers"] = list(layers)
        return options

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        visible = len(self._model.visible)
        if visible != self.n_features_in_:
            raise DataError(f"its network has {visible} visible units for {self.n_features_in_}")
