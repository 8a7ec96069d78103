"""`SigmoidBeliefNetwork`: a layered sigmoid network as an estimator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.beliefnets import kinds
from kikuchi.beliefnets.learning import BoundRule, relevance, switched_off
from kikuchi.beliefnets.likelihood import (
    annealed_likelihood,
    exact_likelihood,
    importance_likelihood,
)
from kikuchi.beliefnets.models import Evidence, SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import UnitPosterior, parse_posterior
from kikuchi.beliefnets.recognition import (
    UP,
    RecognitionRule,
    add_recognition,
    has_recognition,
    parse_recognition,
)
from kikuchi.beliefnets.start import log_odds, parts_start, random_start
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, DataError, MethodError
from kikuchi.core.log import warn_caller
from kikuchi.core.options import layer_sizes, option
from kikuchi.core.progress import phase, silent
from kikuchi.core.run import Run
from kikuchi.core.seeds import Seed, generator
from kikuchi.training.checkpoint import Arrays
from kikuchi.training.estimator import (
    ConvergenceWarning,
    FeatureTransformer,
    TrainedEstimator,
    validate_data,
)
from kikuchi.training.likelihoods import RowLikelihoods
from kikuchi.training.optimiser import Optimiser
from kikuchi.training.rule import Rule
from kikuchi.training.trainer import Training, TrainingTrace, Validation, train

AUTO = "auto"
_USUAL = "reweighted:10"  # learner of networks whose states are too many to enumerate
_MOST_ENUMERATED = 10  # hidden units
_UPDATES, _FEW_UPDATES, _FEWEST_EPOCHS, _MOST_EPOCHS = 4000, 1000, 20, 1000
_TRIAL_UPDATES, _TRIAL_ROWS = 200, 2000  # of each start
_MOST_HELD_OUT, _FEWEST_HELD_OUT = 1000, 10  # rows
_LEAST_PATIENCE = 5  # epochs
_SURE = 3.0  # standard errors by which held-out rows must be below independent bits
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

    model_: SigmoidNetwork
    _n_rows: int = 1
    _spent: float = 0.0  # seconds that the search for a start took
    _held_out: Array


@dataclass(eq=False, repr=False)
class SigmoidBeliefNetwork(_NetworkResults, FeatureTransformer, TrainedEstimator):
    """A sigmoid belief network, learnt by ascending a lower bound on the log-likelihood.

    Hidden layers are given from the top. The posterior of the hidden units is a product, a mixture
    of products or a chain with certified bounds, or exact, or sampled. `score_samples` is the
    bound; `row_likelihoods` comes nearer to the truth at a price. Other learners train a
    recognition network beside it, which guesses the hidden units in one pass upwards.

    Attributes
    ----------
    model_ : the `SigmoidNetwork`.
    trace_, converged_, stopped_, n_iter_, warnings_ : how the training went.

    Reference: LAW-M3, LAW-L2, LIU-L7.

    >>> rng = np.random.default_rng(0)
    >>> on = rng.integers(0, 2, size=(200, 1))
    >>> X = np.repeat(np.concatenate([on, 1 - on], axis=1), 2, axis=1).astype(float)
    >>> net = SigmoidBeliefNetwork(hidden_layer_sizes=(2,), max_iter=60, random_state=0).fit(X)
    >>> bool(-np.log(2) - 0.05 < net.score(X) < -np.log(2) + 0.05), net.score_kind_
    (True, 'log-likelihood')
    >>> net.transform(X).shape, net.sample(3, random_state=0).shape
    ((200, 2), (3, 4))
    """

    kind = kinds.SIGMOID
    model_class: ClassVar[Any] = SigmoidNetwork

    hidden_layer_sizes: tuple[int, ...] | list[int] | int | str = option(
        (16,), "Sizes of the hidden layers from the top, such as 8,24."
    )
    posterior: str = option(
        "auto",
        "Posterior of the hidden units: mean-field, mixture:M, chain, quadratic, third-order, "
        "tree-mf:width, gibbs, exact, or recognition (of learners with a recognition network); "
        "auto: exact up to 10 hidden units, mean-field beyond.",
    )
    _: KW_ONLY
    learner: str = option(
        "auto",
        "How it learns: bound (of the posterior), or with a recognition network vimco:K "
        "(importance-weighted bound of K draws), reweighted:K or wake-sleep; auto: reweighted:10 "
        "for more than 10 hidden units in layers if the posterior is auto too, bound otherwise.",
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
    n_init: int = option(
        4,
        "Number of starts, by turns from parts of the rows and from random weights. Each is "
        "trained briefly, and training goes on from the best. Posteriors that have no bound or fit "
        "rows one by one (third-order, tree-mf), and ard, take the first.",
        low=1,
    )
    learning_rate: float = option(0.1, "Initial learning rate.", above=0)
    schedule: str = option("cosine", "How the rate changes, as of every trained estimator.")
    solver: str = option("adam", 'Optimiser: "sgd", or one of optax such as "adam:b1=0.8".')
    batch_size: int = option(50, "Number of rows per update.", low=1)
    max_iter: int | None = option(  # type: ignore[assignment]
        None,
        "Maximum number of passes over the rows; none: as many as 4000 updates take (1000 "
        "with third-order and tree-mf, which fit rows one by one), between 20 and 1000.",
        low=1,
    )
    validation_fraction: float = option(
        0.1,
        "Fraction of the rows held out (1000 at most) to end the training; 0, and with ard: it "
        "ends after all epochs.",
        low=0,
        below=1,
    )
    tol: float = option(
        0.01,
        "Training ends when the score of the rows held out has not risen by more nats per row for "
        "a fifth of the epochs, and for 5 at least.",
        low=0,
    )

    # ------------------------------------------------------------------ learning

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        """`hidden_layer_sizes` as whole numbers, checked."""
        return layer_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")

    def _posterior(self, text: str | None = None) -> UnitPosterior:
        return parse_posterior(self._posterior_text(self._model) if text is None else text)

    def _posterior_text(self, network: SigmoidNetwork) -> str:
        """The posterior of the options, for this network."""
        if self.posterior != AUTO:
            return self.posterior
        return "exact" if len(network.hidden) <= _MOST_ENUMERATED else "mean-field"

    def _learner_text(self, network: SigmoidNetwork) -> str:
        """The learner of the options, for this network."""
        if self.learner != AUTO:
            return self.learner
        small = len(network.hidden) <= _MOST_ENUMERATED
        return "bound" if small or self.posterior != AUTO or not network.layers else _USUAL

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

    def _epochs(self, rows: Any) -> int:
        if self.max_iter is not None:
            return self.max_iter
        per_epoch = -(-len(rows) // self.batch_size)
        costly = self.posterior != AUTO and parse_posterior(self.posterior).costly
        updates = _FEW_UPDATES if costly else _UPDATES
        return min(max(-(-updates // per_epoch), _FEWEST_EPOCHS), _MOST_EPOCHS)

    def _begin(self, rows: Array, rng: np.random.Generator) -> SigmoidNetwork:
        clock = self._search_clock()
        best, highest = self._first_network(rows, rng, 0), -np.inf
        family = self._family(best)
        searched = self._judges(best) and not (family.costly or self.ard or self.start is not None)
        if not searched or self.n_init == 1:
            return best
        some = rows[rng.permutation(len(rows))[:_TRIAL_ROWS]]
        with phase("starts"):
            for number in range(self.n_init):
                network = self._first_network(rows, rng, number) if number else best
                rule = self._rule(network)
                network = self._tried(network, rule, some, rng)
                try:
                    score = float(np.mean(rule.row_scores(network, some, clock)))
                except BudgetError:
                    if not clock.expired:
                        raise
                    break  # the starts that were tried so far must do
                if score > highest:
                    best, highest = network, score
        self._spent = clock.seconds
        return best

    def _judges(self, network: SigmoidNetwork) -> bool:
        """Whether the learner of this network can score rows."""
        return self._learner_text(network) != "bound" or self._family(network).bounds

    def _tried(
        self, network: SigmoidNetwork, rule: Rule[SigmoidNetwork], rows: Array,
        rng: np.random.Generator,
    ) -> SigmoidNetwork:  # fmt: skip
        """A start after a short training at the first rate, which may take its share of half the
        time limit, if that ends the search.
        """
        left = self._search_clock().seconds_left
        seconds = None if np.isinf(left) else 0.5 * left / self.n_init
        per_epoch = -(-len(rows) // self.batch_size)
        done = train(
            network, rows, rule, optimiser=self._optimiser("constant"),
            epochs=min(-(-_TRIAL_UPDATES // per_epoch), self._epochs(rows)),
            batch_size=self.batch_size, seed=rng, threads=self.threads,
            run=Run(Budget(seconds=seconds).start(), silent, TrainingTrace()),
        )  # fmt: skip
        if done.stopped == "interrupted":
            raise KeyboardInterrupt
        return done.model

    def _family(self, network: SigmoidNetwork) -> UnitPosterior:
        return parse_posterior(self._posterior_text(network))

    def _first_network(self, rows: Array, rng: np.random.Generator, number: int) -> SigmoidNetwork:
        """Start `number`, with the recognition network that the learner needs."""
        network = self._generative(rows, rng, number)
        network.units = self.units
        learner = self._learner_text(network)
        if learner == "bound":  # a recognition network would stay behind
            for name in UP:
                network.parameters.pop(name, None)
        elif not has_recognition(network):
            parse_recognition(learner)
            add_recognition(network, rng)
        self._family(network).check(network)
        return network

    def _generative(self, rows: Array, rng: np.random.Generator, number: int) -> SigmoidNetwork:
        if self.start is None:
            # parts would give every unit a use, and relevance none to switch off
            begin = random_start if number % 2 or self.ard else parts_start
            return begin((*self.hidden_layers, rows.shape[1]), rows, rng)
        if len(self.start.visible) != rows.shape[1]:
            raise DataError(
                f"rows of {rows.shape[1]} columns for {len(self.start.visible)} visible units"
            )
        return self.start.copy()

    def _rule(self, model: Any) -> BoundRule | RecognitionRule:
        learner = self._learner_text(model)
        if learner != "bound":
            return dataclasses.replace(
                parse_recognition(learner), ard=self.ard, n_rows=self._n_rows
            )
        return BoundRule(
            posterior=self._posterior_text(model), sweeps=self.sweeps, ard=self.ard,
            n_rows=self._n_rows,
        )  # fmt: skip

    def _run(self) -> Run:
        run = super()._run()
        if self.seconds is not None:
            left = self.seconds - self._spent
            run.clock = Budget(seconds=max(left, 1e-3)).start()
        self._spent = 0.0
        return run

    def _train(
        self, model: Any, rows: Any, rng: np.random.Generator, optimiser: Optimiser, epochs: int,
        *arguments: Any,
    ) -> None:  # fmt: skip
        self._held_out = rows[:0]
        count = min(round(self.validation_fraction * len(rows)), _MOST_HELD_OUT)
        # the prior of relevance shrinks units long after the score of held-out rows has settled
        if self._judges(model) and not self.ard and epochs > 1 and count >= _FEWEST_HELD_OUT:
            order = rng.permutation(len(rows))
            self._held_out, rows = rows[order[:count]], rows[order[count:]]
        self._n_rows = len(rows)
        super()._train(model, rows, rng, optimiser, epochs, *arguments)

    def _trained(self, *arguments: Any, **more: Any) -> Training[Any]:
        if len(self._held_out):
            patience = max(-(-arguments[5] // 5), _LEAST_PATIENCE)
            more["validation"] = Validation(self._held_out, patience, self.tol)
        return super()._trained(*arguments, **more)

    def _remarks(self, rows: Any) -> list[str]:
        remarks = []
        family = self._posterior()
        some = self.model_.clamped(np.asarray(rows)[:200])
        if self.posterior.startswith("mixture") and self.stopped_ != "seconds":
            remarks += family.fit(self.model_, some, rng=generator(0)).remarks
        if self.ard:
            off = switched_off(self.model_)
            if len(off):
                remarks.append(
                    f"{len(off)} of {len(self.model_.hidden)} hidden units are switched off"
                )
        return remarks + self._doubts(np.asarray(rows))

    def _doubts(self, rows: Array) -> list[str]:
        """A warning if held-out rows score no better than independent bits would, and a remark if
        their score was still rising at the end.
        """
        if not len(self._held_out) or self.stopped_ in ("seconds", "interrupted"):
            return []
        if self.stopped_ == "epochs":
            rising = [
                f"the score of held-out rows was still rising by more than {self.tol:g} nats per "
                f"row after {self.n_iter_} epochs; raise max_iter"
            ]
        else:
            rising = []
        odds = log_odds(rows)
        bits = self._held_out @ odds - np.sum(np.logaddexp(0.0, odds))
        gain = self._rule(self.model_).row_scores(self.model_, self._held_out) - bits
        if np.mean(gain) + _SURE * np.std(gain) / np.sqrt(len(gain)) >= 0:
            return rising
        text = (
            f"held-out rows score {np.mean(bits + gain):.4g} nats, below {np.mean(bits):.4g} of "
            "independent bits; raise n_init or max_iter, lower learning_rate, or use fewer hidden "
            "units"
        )
        warn_caller(f"{type(self).__name__}: {text}", ConvergenceWarning)
        return [text, *rising]

    # ------------------------------------------------------------------ answers

    def _states(self, X: ArrayLike) -> Array:
        network = self._model
        return np.asarray(network.clamped(self._rows(X)))

    def _fit_posterior(self, X: ArrayLike, random_state: Seed = 0) -> Any:
        states = self._states(X)
        return self._posterior().fit(self.model_, states, rng=generator(random_state))

    def score_samples(self, X: ArrayLike) -> Array:
        """Lower bound on the log-probability of each row of `X` (rows, visible units), exact with
        posterior="exact"; with posterior="recognition" it holds in expectation over draws.
        """
        if not self._posterior().bounds:
            raise MethodError(
                f"posterior {self.posterior} has no bound; use row_likelihoods, or score with "
                "set_params(posterior='mean-field')"
            )
        return np.asarray(self._fit_posterior(X).bound)

    @property
    def score_kind_(self) -> str:
        """What `score_samples` and `score` are: "log-likelihood" with posterior="exact", otherwise
        "lower bound on the log-likelihood", which depends on the posterior.
        """
        return "log-likelihood" if self._posterior_text(self._model) == "exact" else _BOUND

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples` over the rows of `X`; `y` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def transform(self, X: ArrayLike) -> Array:
        """Posterior probability that each hidden unit is 1, top layer first, for each row of `X`
        (rows, visible units).
        """
        return np.asarray(self._fit_posterior(X).means[:, self.model_.hidden])

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

    def row_likelihoods(
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
        network = self.model_
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
            top; the visible ones are `model_.visible`.
        posterior : in place of that of the estimator.
        random_state : seed of the start.
        """
        network = self._model
        row = network.evidence_row(evidence)[None]
        family = self._posterior(posterior)
        fit = family.fit(network, row, rng=generator(random_state))
        return UnitBeliefs(fit.means[0], float(fit.bound[0]), fit.exact, bool(fit.converged[0]))

    def sample(
        self, n_samples: int = 1, *, random_state: Seed = None, return_latents: bool = False
    ) -> Any:
        """Draw `n_samples` rows, from the top layer down, with the seed `random_state`; with
        `return_latents` the pair of rows and states (0, 1) of all hidden units.
        """
        if n_samples < 1:
            raise DataError(f"sample: at least 1 sample is needed, got {n_samples}")
        network = self._model
        states = network.sample_states(n_samples, random_state)
        rows = np.asarray(network.from_bits(states[:, network.visible]))
        return (rows, states[:, network.hidden]) if return_latents else rows

    # ------------------------------------------------------------------ files

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        visible = len(self._model.visible)
        if visible != self.n_features_in_:
            raise DataError(f"its network has {visible} visible units for {self.n_features_in_}")
