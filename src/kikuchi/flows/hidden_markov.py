"""`FlowHMM`: hidden Markov models whose states emit rows by mixtures of flows.

    p(x_1:T) = sum over paths of q(s_1) prod A(s_t-1, s_t) prod_t sum_k pi_sk p_sk(x_t)

Flows of all states see the rows of all sequences in one compiled evaluation, in parts of one size;
forward-backward is that of `kikuchi.temporal`. EM: start, transitions and weights in closed form,
the flows along gradients of the expected log-likelihood, shortened where that would fall.

Reference: LIU-M15, LIU-X7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from scipy.special import logsumexp

from kikuchi.core import text
from kikuchi.core.answer import attributes
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.named_arrays import from_json_array, json_array
from kikuchi.core.options import option
from kikuchi.core.run import Run
from kikuchi.engines.loops.state import Held, State
from kikuchi.flows import kinds
from kikuchi.flows.bijections import FLOWS
from kikuchi.flows.densities import FlowDensity, FlowSpec, drawn_rows, evaluate_joint, in_parts
from kikuchi.flows.learning import HeldOutScores, MaximisationStep, responsibilities
from kikuchi.flows.preparation import RowPreparation, prepare
from kikuchi.temporal.chains.emissions import Emission, GaussianEmission, MixtureEmission
from kikuchi.temporal.chains.inference import chain_posterior
from kikuchi.temporal.chains.models import HMM, EmissionKind, HiddenMarkov
from kikuchi.temporal.chains.shares import learnt_shares
from kikuchi.temporal.covariances import covariance_structure, structured
from kikuchi.temporal.sequences import Sequences
from kikuchi.training.checkpoint import Arrays, check_sizes
from kikuchi.training.optimiser import parse_optimiser

Covariance = Literal["full", "diag", "spherical"]

_DRAWS = 2000  # rows that estimate the mean and variance of a state


@dataclass(frozen=True, eq=False)
class FlowEmission(Emission):
    """Mixtures of flows, one per state; rows with a missing value are ignored."""

    kind: ClassVar[str] = "flow"
    density: FlowDensity
    preparation: RowPreparation

    @property
    def n_states(self) -> int:  # type: ignore[override]
        """Number of states."""
        return self.density.spec.groups

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """Dimensions of a row."""
        return self.density.spec.columns

    def joint(self, rows: Array) -> Array:
        """log pi_sk p_sk of standardised rows, (rows, states, components)."""
        return evaluate_joint(self.density.spec, self.density.parameters, rows)

    def log_likelihood(self, rows: Array) -> Array:
        """Log-densities of rows in each state."""
        known = ~np.isnan(rows).any(axis=1)
        logs = np.zeros((len(rows), self.n_states))
        if known.any():
            prepared = self.preparation.standardised(rows[known])
            logs[known] = logsumexp(self.joint(prepared), axis=2) + self.preparation.log_det
        return logs

    def statistics(self, rows: Array, posterior: Array) -> Any:
        """Standardised rows and the share of each component in them."""
        prepared = self.preparation.standardised(rows)
        return prepared, posterior[:, :, None] * responsibilities(self.joint(prepared))

    def maximised(self, statistics: Any) -> Emission:
        """Flows have no closed form."""
        raise MethodError("flows are learnt along gradients: fit a FlowHMM")

    def mean(self) -> Array:
        """Mean row of each state, of rows that are drawn."""
        return np.array([rows.mean(axis=0) for rows in self._drawn()])

    def variance(self) -> Array:
        """Variances of each state, of rows that are drawn."""
        return np.array([rows.var(axis=0) for rows in self._drawn()])

    def _drawn(self) -> list[Array]:
        rng = np.random.default_rng(0)
        return [self.sample(np.full(_DRAWS, s), rng) for s in range(self.n_states)]

    def sample(self, states: Ints, rng: np.random.Generator) -> Array:
        """One row per state."""
        spec = self.density.spec
        logits = np.asarray(self.density.parameters["base"]["logits"], dtype=np.float64)
        edges = np.cumsum(responsibilities(logits.reshape(spec.groups, -1)), axis=1)[states]
        drawn = (edges < rng.random(len(states))[:, None]).sum(axis=1)
        which = np.minimum(drawn, edges.shape[1] - 1)
        noise = rng.normal(size=(len(states), spec.columns)).astype(spec.dtype)
        rows = in_parts(spec, drawn_rows, self.density.parameters, noise, states, which)
        return self.preparation.restored(rows.astype(np.float64))

    def to_arrays(self) -> Arrays:
        """The parameters, the preparation, and the spec as JSON."""
        told = {f"preparation/{n}": a for n, a in self.preparation.arrays().items()}
        return self.density.to_arrays() | told | {"spec": json_array(self.density.spec.facts())}

    @classmethod
    def read(cls, arrays: Arrays) -> FlowEmission:
        """The emission of its arrays."""
        density = FlowDensity.from_arrays(arrays, from_json_array(arrays["spec"]))
        preparation = RowPreparation.read(arrays)
        check_sizes(
            preparation.arrays(),
            dict.fromkeys(("cells", "means", "scales"), "columns"),
            columns=density.spec.columns,
        )
        return cls(density, preparation)


class _FlowStatistics(NamedTuple):
    first: Array
    transitions: Array
    rows: Array
    share: Array


class _FlowChainFit:
    covariance_type_: Covariance
    validation_scores_: list[float]
    _groups: Any = None
    _clock: Clock
    _judged: HeldOutScores[HiddenMarkov]


@dataclass(eq=False, repr=False)
class FlowHMM(_FlowChainFit, HMM):
    """Hidden Markov model with mixtures of flows as emissions, trained by EM.

    It holds out a fraction of the sequences, starts from the hidden Markov model with Gaussian
    mixtures (by EM) with the best held-out score, and returns the round with the best held-out
    score, which may be the first. Flows quickly overfit to individual speakers, patients or
    machines: if new ones are to be recognised, pass `groups` to `fit`, so that whole groups are
    held out. With topology `left-right` states follow each other in order.

    Attributes
    ----------
    model_ (start, transition, emission), covariance_type_ (of the Gaussians that it began with),
    log_likelihood_, validation_scores_, trace_, converged_, stopped_, n_iter_, warnings_.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(20, 2)) + np.repeat([[-2.0], [2.0]], 10, axis=0) for _ in range(8)]
    >>> hmm = FlowHMM(2, flow="coupling:layers=1,width=4", n_mix=1, max_iter=2, random_state=0)
    >>> hmm.fit(X).predict(X[0]).shape
    (20,)

    Reference: LIU-M15, LIU-X7.
    """

    kind = kinds.CHAIN
    file_kind: ClassVar[str] = "flow-hidden-markov"

    _: KW_ONLY
    flow: str = option(
        "coupling:layers=4,width=24", "Bijection: coupling, spline, autoregressive or affine."
    )
    topology: Literal["full", "left-right"] = option(
        "full", "Transitions: full, or left-right (no return to an earlier state)."
    )
    emission: EmissionKind | Literal["flow"] = option("flow", "Outputs of a state: flow.")  # type: ignore[assignment]
    covariance_type: Literal["auto", "full", "diag", "spherical"] = option(  # type: ignore[assignment]
        "auto",
        "Covariances of the Gaussians that it begins with: full, diag or spherical; auto: "
        "diag or full, whichever scores better on held-out sequences.",
    )
    n_mix: int = option(1, "Flows of each state.", low=1)
    max_iter: int = option(20, "Largest number of rounds of EM.", low=1)
    inner_max_iter: int = option(4, "Passes over the rows per maximisation step.", low=1)
    learning_rate: float = option(2e-3, "Rate of the updates of the flows.", above=0)
    weight_decay: float = option(1e-3, "Decay of the flows towards the identity.", low=0)
    batch_size: int = option(256, "Number of rows per update.", low=1)
    noise: float = option(
        0.01, "Gaussian noise on rows while learning, in deviations of the columns.", low=0
    )
    floor: float = option(
        1e-2, "Least deviation of a Gaussian, in deviations of the columns.", above=0
    )
    validation_fraction: float = option(
        0.1, "Fraction of the sequences held out to stop by; 0: none.", low=0, below=1
    )
    patience: int = option(3, "Rounds without a better held-out score before the end.", low=1)
    threads: int | None = option(
        1, "Threads of matrix products; none: chosen by the libraries.", low=1, high=1024
    )

    def _check_options(self) -> None:
        super()._check_options()
        if self.emission != "flow":
            raise MethodError("a FlowHMM has flows as emissions; use HMM for others")
        if self.learner != "em":
            raise MethodError("a FlowHMM is learnt by em")
        if FLOWS.parse(self.flow).needs_image:
            raise MethodError("rows of sequences are not images; use another flow")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        return tags

    # ------------------------------------------------------------------ learning

    def fit(
        self, X: Any, y: object = None, *, lengths: Any = None, groups: Any = None
    ) -> Self:  # fmt: skip
        """Learn from rows `X` (time, outputs), or from a list of such tables; `y` is ignored.

        `lengths` are those of sequences in one table. `groups` contains the group of each sequence;
        whole groups are then held out.
        """
        self._groups = None if groups is None else np.asarray(groups)
        try:
            return super().fit(X, y, lengths=lengths)
        finally:
            del self._groups  # of this fit only

    def _begin(self, sequences: Sequences, rng: np.random.Generator) -> HiddenMarkov:
        rows = sequences.stacked()
        if np.isnan(rows).any():
            raise DataError("flows cannot learn from missing values; fill them in")
        told, _, self._said = prepare(rows, "auto", np.random.default_rng(0))
        if told.cells.any():
            raise DataError(
                f"column {int(np.argmax(told.cells > 0))} holds whole numbers only, whose density "
                "is unbounded; add uniform noise in [0, 1) to it"
            )
        self._clock = self._search_clock()
        self._split(sequences, rng)
        hmm = self._liked_gaussians(told, int(rng.integers(2**31)))
        parts = hmm.emission
        assert isinstance(parts, MixtureEmission)
        shape = (self.n_states, self.n_mix, rows.shape[1])
        spec = FlowSpec("mixture", self.flow, rows.shape[1], self.n_mix, self.n_states)
        base = {
            "weights": parts.weights,
            "means": parts.parts.means.reshape(shape),
            "covariances": parts.parts.covariances.reshape(*shape, shape[-1]),
        }
        density = FlowDensity.of(spec, base, rng)
        model = HiddenMarkov(hmm.start, hmm.transition, FlowEmission(density, told))
        score = (lambda m: _log_density(m, self._held)) if self._held else None
        self._judged = HeldOutScores(Held(model, self._read_model), rng, score, self.patience)
        return model

    def _left(self) -> float | None:
        """Seconds that are left to the beginning."""
        seconds = self._clock.seconds_left
        return None if np.isinf(seconds) else max(seconds, 1e-3)

    def _sequence_run(self, name: str) -> Run:
        """The search for the beginning counts as time of the fit."""
        run = super()._sequence_run(name)
        if self.seconds is not None and "_clock" in self.__dict__:
            run.clock = Budget(seconds=max(self.seconds - self._clock.seconds, 1e-3)).start()
        return run

    def _split(self, sequences: Sequences, rng: np.random.Generator) -> None:
        """Sequences to learn from and sequences to judge by."""
        tables = sequences.tables
        groups, what, least = np.arange(len(tables)), "sequence", 3
        if self._groups is not None:
            if self._groups.shape != (len(tables),):
                raise DataError(
                    f"groups of shape {self._groups.shape} for {len(tables)} sequences; give one "
                    "group of each"
                )
            groups, what, least = np.unique(self._groups, return_inverse=True)[1], "group", 2
        number, fraction = int(groups.max()) + 1, self.validation_fraction
        count = round(fraction * number)
        if self._groups is not None and fraction > 0:
            count = max(count, 1)
        if fraction > 0 and number < least:
            self._said.append(
                f"{text.count(number, what)}: none is held out, and every round counts as better"
            )
            count = 0
        held = np.isin(groups, rng.permutation(number)[:count])
        self._held = [t for t, out in zip(tables, held, strict=True) if out]
        self._learnt = Sequences([t for t, out in zip(tables, held, strict=True) if not out], False)

    def _liked_gaussians(self, told: RowPreparation, seed: int) -> HiddenMarkov:
        """The chain of Gaussian mixtures that held-out sequences like best, the simplest first."""
        tables = [told.standardised(t) for t in self._learnt.tables]
        held = [told.standardised(t) for t in self._held]
        tried: tuple[Covariance, ...] = ("diag",)
        if self.covariance_type != "auto":
            tried = (self.covariance_type,)
        elif held:
            tried = ("diag", "full")
        models: list[HiddenMarkov] = []
        for covariance in tried:
            if not models or not self._clock.expired:
                models.append(self._gaussian_model(tables, covariance, seed))
        best = int(np.argmax([_log_density(m, held) for m in models])) if len(models) > 1 else 0
        self.covariance_type_ = tried[best]
        return models[best]

    def _gaussian_model(
        self, tables: list[Array], covariance: Covariance, seed: int
    ) -> HiddenMarkov:
        """The hidden Markov model with Gaussian mixtures that EM finds from an even division."""
        k, m = self.n_states, self.n_mix
        start, transition = np.full(k, 1.0 / k), np.full((k, k), 1.0 / k)
        if self.topology == "left-right":
            start = np.eye(k)[0]
            transition = 0.8 * np.eye(k) + 0.2 * np.eye(k, k=1)
            transition[-1, -1] = 1.0
            states = np.concatenate([np.arange(len(t)) * k // len(t) for t in tables])
        else:
            model = HMM(
                k, covariance_type=covariance, max_iter=30, n_init=self.n_init, random_state=seed,
                seconds=self._left(),
            )  # fmt: skip
            _whole(model, tables)
            states = np.concatenate([model.predict(t) for t in tables])
            start, transition = model.model_.start, model.model_.transition
        parts = self._segment_gaussians(np.concatenate(tables), states, covariance, seed)
        first = HiddenMarkov(start, transition, MixtureEmission(np.full((k, m), 1.0 / m), parts))
        fitted = HMM(
            k, emission="mixture", n_mix=m, covariance_type=covariance, start=first,
            pseudo_count=0.0, max_iter=30, tol=1e-4, random_state=seed, seconds=self._left(),
        )  # fmt: skip
        found: HiddenMarkov = _whole(fitted, tables).model_
        return found

    def _segment_gaussians(
        self, rows: Array, states: Ints, covariance: Covariance, seed: int
    ) -> GaussianEmission:
        """Gaussians of clusters of the rows of each state."""
        from sklearn.cluster import KMeans

        floor = np.full(rows.shape[1], self.floor**2)
        structure, _ = covariance_structure(covariance)
        means, covariances = [], []
        for s in range(self.n_states):
            own = rows[states == s]
            if len(own) < 2 * self.n_mix:
                own = rows
            labels = KMeans(self.n_mix, n_init=1, random_state=seed).fit(own).labels_
            for c in range(self.n_mix):
                cluster = own[labels == c] if np.any(labels == c) else own
                spread = cluster if len(cluster) > rows.shape[1] else own
                means.append(cluster.mean(axis=0))
                raw = np.cov(spread.T, bias=True).reshape(rows.shape[1], -1)
                covariances.append(structured(raw, structure, floor))
        made = np.array(means), np.array(covariances)
        return GaussianEmission(*made, structure, False, floor)

    def _expectation(self, model: HiddenMarkov, sequences: Sequences) -> tuple[float, Any]:
        emission: Any = model.emission
        learnt = self._learnt
        prepared = emission.preparation.standardised(learnt.stacked())
        joint = emission.joint(prepared)
        logs = logsumexp(joint, axis=2) + emission.preparation.log_det
        k, total = model.n_states, 0.0
        first, transitions, posterior, begin = np.zeros(k), np.zeros((k, k)), [], 0
        for table in learnt.tables:
            here = logs[begin : begin + len(table)]
            p = chain_posterior(model.start, model.transition, here, counts=True)
            total += p.log_likelihood
            first += p.probabilities[0]
            transitions += p.transitions
            posterior.append(p.probabilities)
            begin += len(table)
        share = np.concatenate(posterior)[:, :, None] * responsibilities(joint)
        self._judged.judge(model)
        return total + self._beside(model), _FlowStatistics(first, transitions, prepared, share)

    def _maximisation(self, model: HiddenMarkov, statistics: Any) -> HiddenMarkov:
        if self._judged.exhausted:
            return model
        emission: Any = model.emission
        adam = f"adam:learning_rate={self.learning_rate},weight_decay={self.weight_decay}"
        step = MaximisationStep(
            self.floor, parse_optimiser(adam), self.inner_max_iter, self.batch_size, self.noise,
            self._judged.generator, self.threads,
        )  # fmt: skip
        density = step(emission.density, statistics.rows, statistics.share)
        return HiddenMarkov(
            learnt_shares(statistics.first, model.start, self.pseudo_count),
            learnt_shares(statistics.transitions, model.transition, self.pseudo_count),
            FlowEmission(density, emission.preparation),
        )

    def _conclude(
        self, model: Any, run: Run, done: int, converged: bool, failure: str = ""
    ) -> None:
        super()._conclude(self._judged.best.now, run, done, converged, failure)
        self.validation_scores_ = self._judged.scores
        if self._judged.exhausted:
            self.stopped_, self.converged_ = "validation", True
            self.warnings_ = []
        self.warnings_ += self.__dict__.pop("_said", [])
        for name in ("_learnt", "_held", "_judged", "_clock"):
            self.__dict__.pop(name, None)

    def _beside_model(self) -> State:
        return self._judged

    def _read_model(self, arrays: Arrays) -> HiddenMarkov:
        emission = FlowEmission.read(arrays)
        return HiddenMarkov(np.array(arrays["start"]), np.array(arrays["transition"]), emission)

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays, facts, about = super()._fitted_state()
        if hasattr(self, "covariance_type_"):  # else it was made from parameters
            about |= attributes(self, "covariance_type_ validation_scores_")
        return arrays, facts, about

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        if "covariance_type_" in about:
            self.covariance_type_ = about["covariance_type_"]
            self.validation_scores_ = [float(score) for score in about["validation_scores_"]]


def _log_density(model: HiddenMarkov, tables: list[Array]) -> float:
    """Log-density of sequences per row."""
    logs = [model.emission.log_likelihood(t) for t in tables]
    each = [
        chain_posterior(model.start, model.transition, b, smooth=False).log_likelihood for b in logs
    ]
    return sum(each) / sum(map(len, logs))


def _whole(hmm: HMM, tables: list[Array]) -> HMM:
    """A fit that the whole one begins from: Ctrl-C there ends both, so that no other answer comes
    of half of it.
    """
    if hmm.fit(tables).stopped_ == "interrupted":
        raise KeyboardInterrupt
    return hmm
