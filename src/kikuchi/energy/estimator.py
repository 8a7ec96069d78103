"""`EnergyModel`: any energy as an estimator. Reference: TEH-M12."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import BudgetError, DataError, MethodError
from kikuchi.core.log import warn_caller
from kikuchi.core.options import option
from kikuchi.core.progress import phase, silent
from kikuchi.core.run import Run
from kikuchi.core.seeds import Seed, generator
from kikuchi.core.trace import Trace
from kikuchi.energy import kinds
from kikuchi.energy.annealing import annealed_log_z, need_density, without_density
from kikuchi.energy.defaults import AUTO, FEW_COLUMNS, LINEAR, NETWORK, Recipe, recipe
from kikuchi.energy.energies import (
    ENERGIES,
    INFINITE,
    Energy,
    EnergyFunction,
    LinearExperts,
    begin_contrast,
    shapes_of,
    square_experts,
)
from kikuchi.energy.learners import LEARNERS, LOG_Z, EnergyRule, ScoreLearner, ScoreLoss
from kikuchi.energy.preparation import Patches, Preparation
from kikuchi.energy.samplers import ChainMoves, sample_chains
from kikuchi.energy.start import STARTS, directions_of_rows, independent_components
from kikuchi.energy.whitening import Whitening
from kikuchi.engines.sampling.annealing import LogZ
from kikuchi.training.available import available_unless
from kikuchi.training.checkpoint import Arrays, part, prefixed
from kikuchi.training.estimator import (
    ConvergenceWarning,
    FeatureTransformer,
    TrainedEstimator,
    check_is_fitted,
)
from kikuchi.training.likelihoods import keep_log_z
from kikuchi.training.model import PytreeModel, named_leaves
from kikuchi.training.optimiser import Optimiser, Sgd, parse_optimiser, precision
from kikuchi.training.trainer import COMPLETE, limited_threads
from kikuchi.training.updates import loss_of

_MOST_HELD_OUT = 1000  # score matching takes one derivative per column
_START_SHARE = 0.5  # of the time limit, which the search for first filters may take
_FIRST_ROWS, _CHECKED = 100, 5000  # rows at which energies of ours, and those of users, are tried
_COLLAPSED = 1e-3  # a shape that has lost its expert's influence
_BELOW_NORMAL = "the log-density is below that of a normal distribution"
_OVERFITS = "it overfits: lower max_iter or n_components, or give more rows"
_SURE = 3.0  # standard errors by which it must be
_SHORT: dict[str, Any] = {  # of the bracket by which a fit is judged
    "betas": 300, "chains": 60, "burn_in": 60, "replicas": 8, "batches": 3, "width": 0.2,
}  # fmt: skip
_FEWEST_JUDGED = 10  # held-out rows
_JUDGES_OF_NETWORK = 40  # held-out rows, where there are ten times as many
_BASE_ROWS = 5000  # white rows that are kept for the base of annealed importance sampling


class EnergyParameters(PytreeModel):
    """The parameters of an energy of white rows."""

    kind: ClassVar[str] = "energy-model"
    weight_limit: ClassVar[float] = 1e4
    batch_dtype = np.float32


@dataclass(eq=False, repr=False)
class EnergyModel(FeatureTransformer, TrainedEstimator):
    """A density p(x) = exp(-E(x)) / Z of rows of real numbers, for any energy E.

    The energy is named by a text, or is a function `energy(parameters, rows)` that JAX can
    differentiate, with the first `parameters` given as a dictionary of arrays. Rows are whitened
    first, and everything is answered in the coordinates of the rows. How `Patches` were prepared
    is kept in `preparation_`, also in files.

    Without an energy and a learner, rows of up to six columns are learnt by a network of two tanh
    layers by noise-contrastive estimation, patches and rows of more columns by linear experts and
    contrastive divergence. `recipe_` holds what was chosen. After a fit to few columns log Z is
    found, and a density below that of one normal distribution is reported.

    >>> rows = np.random.default_rng(0).laplace(size=(1000, 2))
    >>> model = EnergyModel("linear:expert=logistic", 2, learner="exact", max_iter=20)
    >>> model.fit(rows).log_z().width
    0.0
    >>> model.transform(rows).shape, model.sample(3, random_state=0).shape
    ((1000, 2), (3, 2))
    """

    kind = kinds.DENSITY
    model_class: ClassVar[Any] = EnergyParameters

    energy: str | Callable[..., Any] = option(
        AUTO,
        "Energy: auto, a text such as linear:expert=logistic, or a function of parameters, rows.",
    )
    n_components: int | None = option(
        None, "Number of features; none: one per white column, or 32 of a network.", low=1
    )
    _: KW_ONLY
    parameters: Mapping[str, Any] | None = option(
        None, "First parameters of an energy that is a function, as arrays by name."
    )
    learner: str = option(
        AUTO, "auto, cd, pcd, equilibrium, exact, score-matching, denoising or nce, with options."
    )
    start: str = option(
        AUTO,
        "First filters: auto, independent components (ica; rows where there are fewer than ten "
        "rows a column), along rows of the data (rows), or random directions (random).",
    )
    whiten: str = option("zca", "Whitening of the rows: zca, pca or none.")
    pca_components: int | None = option(
        None, "Principal components kept, as columns of pca.", low=1
    )
    validation_fraction: float = option(
        0.05,
        "Fraction of the rows held out (1000 at most; with a network by default 40 or a tenth of "
        "the rows at least), which measure score matching and are compared with a normal density.",
        low=0,
        below=1,
    )
    learning_rate: float = option(0.01, "Initial learning rate.", above=0)
    solver: str = option(
        AUTO, 'Optimiser: auto (adam of a network, else sgd), "sgd", or one of optax.'
    )
    schedule: str = option(
        AUTO,
        "Learning rate: auto (cosine of a network, else constant), constant, linear, cosine, "
        '"exponential:factor=0.95", "inverse-time:decay=0.05" or "warmup-cosine".',
    )
    max_iter: int | None = option(  # type: ignore[assignment]
        None,
        "Passes over the rows, each in an order of its own; none: 10, or about 3000 updates of a "
        "network.",
        low=1,
    )
    momentum: float = option(0.9, "Fraction of the velocity that sgd keeps.", low=0, below=1)
    average: float = option(
        0.0,
        "Last fraction of the epochs of which the mean of the parameters is the answer; 0: the "
        "last parameters.",
        low=0,
        high=1,
    )

    # ------------------------------------------------------------------ learning

    judged_columns: ClassVar[int] = FEW_COLUMNS

    @property
    def _chosen(self) -> Recipe:
        """Values of the options that say auto; before a fit, those of rows of many columns."""
        found: Recipe = getattr(self, "recipe_", LINEAR)
        return found

    def _energy(self) -> Energy:
        if callable(self.energy):
            return self.energy
        return ENERGIES.parse(self._chosen.energy if self.energy == AUTO else self.energy)

    @property
    def _learner(self) -> str:
        return self._chosen.learner if self.learner == AUTO else self.learner

    @property
    def _start(self) -> str:
        return self._chosen.start if self.start == AUTO else self.start

    def _optimiser(self, schedule: str) -> Optimiser:
        """That of the options, or of the recipe: momentum is for sgd."""
        schedule = self._chosen.schedule if schedule == AUTO else schedule
        if self.solver != AUTO:
            return super()._optimiser(schedule)
        named = parse_optimiser(self._chosen.optimiser)
        shared: dict[str, Any] = {"momentum": self.momentum} if isinstance(named, Sgd) else {}
        shared |= {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        return replace(named, schedule=schedule, **shared)

    def _epochs(self, rows: Any) -> int:
        return self.max_iter or self._chosen.epochs(len(rows), self.batch_size)

    def check_patches(self, patches: Patches) -> None:
        """Refuse `patches` that were whitened otherwise than those learnt from."""
        check_is_fitted(self, "preparation_")
        ours = None if self.preparation_ is None else self.preparation_.whitening.forward
        if ours is not None and not np.array_equal(ours, patches.preparation.whitening.forward):
            raise DataError(
                "these patches were prepared in another way than those that the model was trained "
                "on; make them with like=model.preparation_, or kikuchi patches --like"
            )

    def _rows(self, X: Any, *, reset: bool = False) -> NDArray[np.float32]:
        if isinstance(X, Patches) and not reset:
            self.check_patches(X)
        rows = np.asarray(
            super()._rows(np.asarray(X) if isinstance(X, Patches) else X, reset=reset)
        )
        if reset:
            if len(rows) < 2:
                raise DataError("at least 2 rows are needed, got 1 sample")
            kind, components = self.whiten, self.pca_components
            if components is not None and kind == "none":
                raise MethodError("pca_components are those of a whitening: give whiten='pca'")
            self.preparation_ = X.preparation if isinstance(X, Patches) else None
            if self.preparation_ is not None and components is None and kind != "none":
                # patches without their means vary in one direction less than they have columns
                components = min(self.preparation_.rank, rows.shape[1])
            if components is not None and components < rows.shape[1] and kind == "zca":
                kind = "pca"  # as many columns as directions, or the density has no Z
            with limited_threads(self.threads):  # or a resumed fit may round otherwise
                self.whitening_ = Whitening.fit(rows, kind, components)
                if kind == "none":  # refuse rows that no density describes, in units of any size
                    spread = rows.std(axis=0)
                    Whitening.fit(rows / np.where(spread > 0, spread, 1.0), "pca")
            columns = len(self.whitening_.forward)
            patches = self.preparation_ is not None
            self.recipe_ = recipe(self.energy, self.learner, columns, len(rows), patches=patches)
        with limited_threads(self.threads):
            return self.whitening_(rows).astype(np.float32)

    def _begin(self, rows: Array, rng: np.random.Generator) -> EnergyParameters:
        energy = self._energy()
        columns = rows.shape[1]
        if isinstance(energy, EnergyFunction):
            if self.parameters is not None:
                raise MethodError(
                    f"parameters are for energies that are functions, not {energy.text}"
                )
            features = self.n_components or self._chosen.features or columns
            values = energy.initial(columns, features, rng)
            if self._start not in STARTS:
                raise MethodError(f"start is {', '.join(STARTS)}, got {self.start!r}")
            if "filters" in values:
                values["filters"] = self._first_filters(rows, values["filters"], rng)
            if "contrast" in values:
                values = begin_contrast(values, rows)
        else:
            if self.parameters is None:
                raise MethodError("an energy that is a function needs its first parameters")
            values = {n: np.array(a, dtype=np.float32) for n, a in self.parameters.items()}
        if self._learner.split(":")[0] == "nce":
            values[LOG_Z] = np.array(0.5 * columns * np.log(2 * np.pi), dtype=np.float32)
        self._check_energy(energy, values, rows)
        chosen = np.random.default_rng(0).permutation(len(rows))  # rows may come in some order
        self._base_rows = rows[np.sort(chosen[:_BASE_ROWS])]
        return EnergyParameters(values, {"energy": _name(energy), "learner": self._learner})

    def _first_filters(self, rows: Array, random: Array, rng: np.random.Generator) -> Array:
        """Filters before learning; the search for them counts as time of the fit."""
        self._spent = 0.0
        if self._start == "random":
            return random
        pieces = rows.reshape(-1, random.shape[1])  # the frames, where rows are sequences
        if self._start == "rows":
            return directions_of_rows(pieces, random, rng)
        clock, run = self._search_clock(), super()._run()
        most = _START_SHARE * clock.seconds_left

        def going() -> bool:
            run.progress(0, self._epochs(rows), residual=None, objective=None)
            return clock.seconds < most

        with limited_threads(self.threads), phase("start by ICA"):
            filters = independent_components(pieces, random, rng, going)
        self._spent = clock.seconds
        return filters

    def _run(self) -> Run:
        run = super()._run()
        if self.seconds is not None:
            left = self.seconds - self.__dict__.pop("_spent", 0.0)
            run.clock = Budget(seconds=max(left, 1e-3)).start()
        return run

    def _averaged(self) -> float:
        return self.average

    def _check_energy(self, energy: Energy, values: Any, rows: Array) -> None:
        """Refuse an energy whose values or gradients are not finite numbers, one per row."""
        most = _FIRST_ROWS if isinstance(energy, EnergyFunction) else len(rows)
        for first in range(0, most, _CHECKED):
            with precision(values):
                self._check_piece(energy, values, rows[first : min(first + _CHECKED, most)], first)
        if self._needs_square and isinstance(energy, LinearExperts):
            energy.need_exact()
        if self._needs_square and square_experts(energy, values) is None:
            raise MethodError(
                f"learner {self._learner} needs as many linear features as white columns "
                f"({rows.shape[1]}); use cd, pcd, score-matching, denoising or nce"
            )

    def _check_piece(self, energy: Energy, values: Any, rows: Array, first: int) -> None:
        slope = jax.grad(lambda v, x: jnp.sum(energy(v, x)), argnums=(0, 1))
        both = jax.jit(lambda v, x: (jnp.asarray(energy(v, x)), slope(v, x)))  # one program
        try:
            answer, slopes = both(values, jnp.asarray(rows))
        except jax.errors.JAXTypeError as fault:
            line = str(fault).splitlines()[0]
            raise MethodError(f"JAX cannot differentiate the energy: {line}") from None
        if answer.shape != (len(rows),):
            raise MethodError(
                f"the energy answers shape {answer.shape} for {len(rows)} rows; it must give "
                "one number per row"
            )
        leaves = {"energy": answer, "gradient by the rows": slopes[1]}
        leaves |= {f"gradient by {n}": a for n, a in named_leaves(slopes[0]).items()}
        for what, array in leaves.items():
            if not np.all(np.isfinite(np.asarray(array))):
                last = first + len(rows) - 1
                raise MethodError(f"the {what} is not finite at some of the rows {first} to {last}")

    @property
    def _needs_square(self) -> bool:
        return self._learner.split(":")[0] in ("exact", "equilibrium")

    def _rule(self, model: Any) -> EnergyRule:
        rule = LEARNERS.parse(self._learner).rule(self._energy())
        return replace(rule, held_out=self._held_out)

    def _train(self, model: Any, rows: Any, rng: np.random.Generator, *arguments: Any) -> None:
        self.__dict__.pop("log_z_", None)  # that of the model before
        clock = Budget(seconds=self.seconds).start()
        count = min(round(self.validation_fraction * len(rows)), _MOST_HELD_OUT)
        if self._chosen is NETWORK and count:  # few training rows cannot judge a network
            count = max(count, min(_JUDGES_OF_NETWORK, len(rows) // 10))
        order = rng.permutation(len(rows)) if count else np.arange(len(rows))
        self._held_out = rows[order[:count]] if count else None
        super()._train(model, rows[order[count:]] if count else rows, rng, *arguments)
        try:
            self._judge_fit(clock)
        except KeyboardInterrupt:
            self.__dict__.pop("log_z_", None)  # that of fewer batches than an unbroken fit makes
            self.stopped_, self.converged_ = "interrupted", False
            self.warnings_.append("interrupted before the density was compared with a normal one")

    def _judge_fit(self, clock: Clock) -> None:
        """Compare the density with that of one normal distribution, where log Z is known or there
        are few columns, in what the `clock` of the fit leaves.
        """
        if self.improper is not None:
            return
        exact = self._exact_log_z()
        if exact is not None:
            self._judge_density(exact)
        elif (
            self._base_rows.shape[1] <= self.judged_columns
            and isinstance(self._energy(), EnergyFunction)
            and self.stopped_ in COMPLETE
        ):
            said = list(self.warnings_)
            try:
                found = self.log_z(seconds=clock.left().seconds, **_SHORT)
            except BudgetError:
                self.warnings_.append("no time was left to compare the density with a normal one")
                return
            if found.stopped == "interrupted":
                raise KeyboardInterrupt
            if found.reliable:  # what there is to know of the bracket stays in `log_z_`
                below = [text for text in self.warnings_ if text.startswith(_BELOW_NORMAL)]
                self.warnings_ = said + below

    def _remarks(self, rows: Any) -> list[str]:
        fault, shapes = self.improper, shapes_of(self._values)
        if fault is not None and shapes is not None and float(np.min(shapes)) < _COLLAPSED:
            rate = f"learning_rate = {self.learning_rate:g}"
            fault += f"; some fell to 0 while learning: lower {rate}"
        if fault is not None:
            matched = self.is_square and isinstance(LEARNERS.parse(self._learner), ScoreLearner)
            return [f"{fault}; {self._remedy()}" if matched else fault]
        return []

    def _remedy(self) -> str:
        """Why the model may have no density or a bad one, and what to do."""
        few = self._base_rows.shape[1] <= self.judged_columns
        named = not isinstance(LEARNERS.parse(self._learner), ScoreLearner)
        if few and named and self._chosen is not NETWORK and not callable(self.energy):
            return "leave energy and learner out: so few columns are then learnt by a network"
        if not self.is_square:
            return "raise max_iter or n_components, or another energy or learner"
        learner = LEARNERS.parse(self._learner)
        if isinstance(learner, ScoreLearner):
            return (
                "score matching compares slopes of log-densities, and loses the density where that "
                "of the rows has a kink, as Laplace's has; the filters may still be right; use "
                "learner='exact', or expert='logistic'"
            )
        if learner.name != "exact":
            return "use learner='exact', which ascends the likelihood"
        return "use another expert or start, a larger max_iter, or a lower learning_rate"

    # ------------------------------------------------------------------ answers

    @property
    def _values(self) -> Any:
        return self._model.parameters

    @property
    def improper(self) -> str | None:
        """Why Z is infinite, or may be; None where it is finite, and for functions of the user."""
        energy = self._energy()
        return energy.proper(self._values) if isinstance(energy, EnergyFunction) else None

    @property
    def has_density(self) -> bool:
        """False where Z is known to be infinite."""
        return not (self.improper or "").startswith(INFINITE)

    def _white(self, X: ArrayLike) -> NDArray[np.float32]:
        self._model  # noqa: B018  (refuses an estimator that was not fitted)
        return self._rows(X)

    def energies(self, X: ArrayLike) -> Array:
        """E of each row of `X` (rows, columns), after whitening."""
        with precision(self._values):
            return np.asarray(self._energy()(self._values, jnp.asarray(self._white(X))))

    def transform(self, X: ArrayLike) -> Array:
        """The features of each row of `X` (rows, columns)."""
        return self._features(self._white(X))

    def _features(self, white: NDArray[Any]) -> Array:
        energy = self._energy()
        if not isinstance(energy, EnergyFunction):
            raise MethodError("an energy that is a function has no features; use energies")
        with precision(self._values):
            return np.asarray(energy.features(self._values, jnp.asarray(white)))

    @property
    def _n_features_out(self) -> int:
        # not by `transform`, which asks for this number where it answers with data frames
        return int(self._features(self._base_rows[:1]).shape[1])

    def log_z(
        self, *, seconds: float | None = None, random_state: Seed = 0, **options: Any
    ) -> LogZ:
        """Return log Z of the density of white rows: exact for a square model, else between bounds,
        for at most `seconds` and with the seed `random_state`.

        `options` are those of `kikuchi.energy.annealing.annealed_log_z`. The result is kept in
        `log_z_` for `score_samples`. A warning is issued if it is not reliable, and if the training
        rows have a lower density than under one normal distribution.
        """
        need_density(self)
        energy, values = self._energy(), self._values
        found = self._exact_log_z()
        if found is None:
            run = Run(Budget(seconds=seconds).start(), silent, Trace("log Z"))
            rows = self._base_rows.astype(np.float64)
            found = annealed_log_z(
                energy, values, rows, random_state=random_state, run=run, **options
            )
        keep_log_z(self, found)
        self._judge_density(found)
        return found

    def _exact_log_z(self) -> LogZ | None:
        """log Z of a square model; None of others."""
        square = square_experts(self._energy(), self._values)
        if square is None:
            return None
        with precision(self._values):
            return LogZ.exact(float(square.log_z(self._values)))

    def _judge_density(self, found: LogZ) -> None:
        """Warn if one normal distribution describes training or held-out rows better."""
        self.warnings_ = [text for text in self.warnings_ if not text.startswith(_BELOW_NORMAL)]
        below, remedy = self._below_normal(found, self._base_rows, "training row"), self._remedy()
        held = getattr(self, "_held_out", None)
        if below is None and held is not None and len(held) >= _FEWEST_JUDGED:
            below, remedy = self._below_normal(found, held, "held-out row"), _OVERFITS
        if below is not None:
            self.warnings_.append(f"{below}; {remedy}")
            warn_caller(f"{type(self).__name__}: {self.warnings_[-1]}", ConvergenceWarning)

    def _below_normal(self, found: LogZ, rows: NDArray[Any], what: str) -> str | None:
        """By how much the model is below one normal distribution on these rows, if it surely is."""
        with precision(self._values):
            energies = np.asarray(self._energy()(self._values, jnp.asarray(rows)), np.float64)
        ours = -energies - found.lower  # the end that is in favour of the model
        normal = self.whitening_.normal_log_densities(rows, self._base_rows)
        gain = ours - normal
        if np.mean(gain) + _SURE * np.std(gain) / np.sqrt(len(gain)) >= 0:
            return None
        constant = self.whitening_.log_det
        return (
            f"{_BELOW_NORMAL}: {np.mean(ours) + constant:.4g} nats per {what}, "
            f"{np.mean(normal) + constant:.4g} of one normal distribution"
        )

    @property
    def is_square(self) -> bool:
        """Whether there are as many linear features as white columns, so that log Z is exact."""
        return square_experts(self._energy(), self._values) is not None

    @available_unless(without_density)
    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row of `X` (rows, columns), by the estimate of `log_z` (made now if
        it was not).

        Where the whitening has dropped directions it is the density within those kept, which
        cannot be compared for different `pca_components`.
        """
        white = self._white(X)
        found = self.log_z_ if hasattr(self, "log_z_") else self.log_z()
        with precision(self._values):
            energies = np.asarray(self._energy()(self._values, jnp.asarray(white)))
        return self.whitening_.log_det - found.estimate - energies.astype(np.float64)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean log-density of the rows of `X`; `y` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def score_bounds(self, X: ArrayLike) -> tuple[float, float]:
        """Mean log-density of the rows of `X` by the upper and by the lower end of the bracket on
        log Z.
        """
        mean, found = self.score(X), self.log_z_
        return mean + found.estimate - found.upper, mean + found.estimate - found.lower

    def score_matching_loss(self, X: ArrayLike) -> float:
        """Score-matching loss of the rows of `X`, which needs no Z: smaller is better."""
        return loss_of(ScoreLoss(self._energy()), self._values, self._white(X))

    def sample(self, n_samples: int = 1, *, sweeps: int = 500, random_state: Seed = None) -> Array:
        """`n_samples` rows of the model: exact if it is square, else chains of `sweeps` Hamiltonian
        moves that begin at rows of the data. `random_state` is the seed.
        """
        need_density(self)
        energy, values = self._energy(), self._values
        key = jax.random.key(int(generator(random_state).integers(2**31)))
        with precision(values):
            square = square_experts(energy, values)
            if square is not None:
                return self.whitening_.undo(np.asarray(square.draw(values, n_samples, key)))
            first, second = jax.random.split(key)
            rows = jax.random.randint(first, (n_samples,), 0, len(self._base_rows))
            start = jnp.asarray(self._base_rows)[rows]
            moved, _, _ = sample_chains(
                energy, ChainMoves(), values, start, 0.1, second, count=sweeps
            )
        return self.whitening_.undo(np.asarray(moved))

    # ------------------------------------------------------------------ files

    file_layout: ClassVar[Mapping[str, str]] = {
        "whitening/mean": "columns",
        "whitening/forward": "white columns",
        "whitening/backward": "columns white",
        "base_rows": "rows white",
    }

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        if callable(self.energy):
            raise MethodError("a model whose energy is a function of yours cannot be saved")
        arrays, facts, about = super()._fitted_state()
        arrays |= prefixed(self.whitening_.arrays(), "whitening") | {"base_rows": self._base_rows}
        about["whitening"] = self.whitening_.facts()
        if self.preparation_ is not None:
            arrays |= prefixed(self.preparation_.arrays(), "preparation")
            about["preparation"] = self.preparation_.to_dict()
        if hasattr(self, "log_z_"):
            arrays |= prefixed(self.log_z_.to_arrays(), "log_z")
            about["log_z"] = self.log_z_.describe()
        return arrays, facts, about

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        chosen = self._model.facts.get("energy")
        self.recipe_ = NETWORK if self.energy == AUTO and chosen == NETWORK.energy else LINEAR
        self.whitening_ = Whitening.restored(part(arrays, "whitening"), about["whitening"])
        self._base_rows = np.asarray(arrays["base_rows"], dtype=np.float32)
        if not len(self._base_rows):
            raise DataError("its array base_rows has no rows")
        told = about.get("preparation")
        held = part(arrays, "preparation")
        self.preparation_ = None if told is None else Preparation.restored(held, told)
        if "log_z" in about:
            self.log_z_ = LogZ.restored(part(arrays, "log_z"), about["log_z"])


def _name(energy: Energy) -> str:
    if isinstance(energy, EnergyFunction):
        return energy.text
    return f"{energy.__module__}.{getattr(energy, '__qualname__', type(energy).__qualname__)}"
