"""The scikit-learn shell of every family: options, checks, files, time limits, progress, warnings.

An estimator is a dataclass whose fields are made by `core.options.option`: scikit-learn reads the
generated signature, the command line makes its options from the fields, and ranges are checked in
`fit`. `Estimator` is the shell of anything that can be fitted; `TrainedEstimator` adds what the
trainer needs, so that a family writes only its model, its rule and what users do with them.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np

from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import (
    DataError,
    MethodError,
    MissingExtraError,
    UnknownOptionError,
    suggestion,
)
from kikuchi.core.extras import install
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.log import log_warnings, logger, warn_caller
from kikuchi.core.options import checked_options, list_options, option
from kikuchi.core.programs import kept
from kikuchi.core.progress import Progress, silent
from kikuchi.core.run import Run
from kikuchi.core.seeds import generator
from kikuchi.core.trace import Trace
from kikuchi.training.checkpoint import (
    Arrays,
    Checkpoint,
    check_finite,
    check_sizes,
    load,
    of_type,
    part,
    prefixed,
    reading,
    save,
)
from kikuchi.training.model import restored
from kikuchi.training.optimiser import Optimiser, Sgd, parse_optimiser
from kikuchi.training.rule import BaseRule
from kikuchi.training.trainer import Training, TrainingTrace, train
from kikuchi.training.updates import TrainerState

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import validation
    from sklearn.utils.validation import check_array, check_is_fitted
except ImportError:
    raise MissingExtraError(f"these estimators need scikit-learn; {install('learn')}") from None

__all__ = [
    "ConvergenceWarning",
    "Estimator",
    "FeatureTransformer",
    "FitResults",
    "PrintedProgress",
    "RandomState",
    "TrainedEstimator",
    "check_array",
    "check_is_fitted",
    "of_type",
    "validate_data",
]

_LOG = logger("training")
_NOT_IN_FILES = frozenset({"checkpoint", "progress"})  # where a fit writes, and whom it tells
RandomState = int | np.random.Generator | np.random.RandomState | None


class FitResults:
    """What every fit leaves behind: iterations, why it ended, whether a stopping criterion was met,
    what the reader must know, and the trace. Not a dataclass: these are no options.
    """

    n_iter_: int
    stopped_: str
    converged_: bool
    warnings_: list[str]
    trace_: Trace
    n_features_in_: int
    row_scaling_: dict[str, float]  # what the command line did to the rows: divide, threshold


def validate_data(estimator: Any, X: Any, *arguments: Any, **options: Any) -> Any:
    """That of scikit-learn, with rows that lie one after the other in memory: columns that do, as
    those of data frames, are added up in another order, so that equal data gave other answers.
    """
    try:
        return validation.validate_data(estimator, X, *arguments, **{"order": "C"} | options)
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise DataError(
            f"{type(estimator).__name__} takes numbers, {str(error).rpartition(': ')[2]} is none; "
            "encode words first, for example with sklearn.preprocessing.OneHotEncoder"
        ) from None


_OTHER_NAMES = {  # of scikit-learn and hmmlearn
    "n_components": ("states", "n_hidden", "n_sources", "hidden"),
    "covariance_type": ("covariance",),
    "n_iter": ("epochs", "max_iter"),
    "max_iter": ("epochs",),
    "n_mix": ("components",),
    "n_jobs": ("processes", "threads"),
    "seed": ("random_state",),
}


@dataclass(eq=False, repr=False, kw_only=True)
class Estimator(FitResults, BaseEstimator):  # type: ignore[misc]
    """Options that every estimator has, and files; see `FitResults` for what `fit` sets.

    A family names its files by `file_kind` and says what they
    hold in `_fitted_state` and `_restore_state`. Arrays of a file must be finite, but for those
    whose names begin with one of `may_be_infinite`, and have the axes that `file_layout` names
    where it does (see `checkpoint.check_sizes`); `columns` is the number of features. Those named
    by `positive` must be above 0.
    """

    file_kind: ClassVar[str] = "estimator"
    may_be_infinite: ClassVar[tuple[str, ...]] = ()
    file_layout: ClassVar[Mapping[str, str]] = {}
    positive: ClassVar[tuple[str, ...]] = ()

    seconds: float | None = option(
        None, "Time limit in seconds; compiling is not counted.", above=0
    )
    checkpoint: str | PathLike[str] | None = option(
        None,
        "File of the fit so far; a fit that was killed goes on from there. The search for a start "
        "is then not cut short by `seconds`, so that it ends as an unbroken fit does.",
    )
    random_state: RandomState = option(None, "Seed of everything random.")
    verbose: int = option(0, "Print progress if above 0.", low=0)
    progress: Progress | bool | None = option(
        None, "Told a few times per second how far the fit is; True prints it."
    )

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        list_options(cls)
        for name, member in list(vars(cls).items()):
            if inspect.isfunction(member) and not name.startswith("_"):
                setattr(cls, name, kept(member))  # programs that it compiles stay on disk

    def __new__(cls, *values: Any, **options: Any) -> Self:
        """Refuse options that there are not, with the name that other libraries' ones have here."""
        known = [f.name for f in dataclasses.fields(cls) if f.init]
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            here = [name for name in _OTHER_NAMES.get(unknown, ()) if name in known]
            hint = f"it is called {here[0]} here" if here else suggestion(unknown, known)
            raise UnknownOptionError(f"{cls.__name__} has no option {unknown!r}; {hint}")
        made: Self = super().__new__(cls)
        return made

    # ------------------------------------------------------------------ for the families

    def _check_options(self) -> None:
        """Refuse options of the wrong type or out of range; called by `fit`."""
        checked_options(self, type(self).__name__)

    def _run(self) -> Run:
        """A run with the time limit and the progress of the options."""
        return Run(Budget(seconds=self.seconds).start(), self._told(), TrainingTrace())

    def _search_clock(self) -> Clock:
        """A clock of the search for a beginning, which the time limit ends. With a checkpoint it
        does not, so that a fit that goes on has begun where an unbroken one does.
        """
        return Budget(seconds=self.seconds if self.checkpoint is None else None).start()

    def _told(self) -> Progress:
        """Who is told how far a fit is."""
        if self.progress is True or (self.verbose and not self.progress):
            return PrintedProgress(type(self).__name__)
        return self.progress or silent

    def _checkpoint(self) -> Checkpoint | None:
        """The checkpoint of the options; only a fit with the same seed goes on from it."""
        if self.checkpoint is None:
            return None
        # The state of a generator given by the caller cannot be compared: it is left out.
        seed = self.random_state
        known = int(seed) if isinstance(seed, int | np.integer) else None
        return Checkpoint(self.checkpoint, about={"random_state": repr(known)})

    def _ended(
        self, iterations: int, stopped: str, converged: bool, remarks: list[str], trace: Trace
    ) -> None:
        """Keep how a fit ended; divergence is a warning of scikit-learn's as well."""
        self.n_iter_, self.stopped_, self.converged_ = iterations, stopped, converged
        self.warnings_, self.trace_ = list(remarks), trace
        self._log_fit()
        if stopped == "diverged":
            warn_caller(self.warnings_[0], ConvergenceWarning)

    def _log_fit(self) -> None:
        """Record how a fit ended, and what it warns of."""
        name = type(self).__name__
        _LOG.info("%s: stopped (%s) after %d iterations", name, self.stopped_, self.n_iter_)
        log_warnings(_LOG, name, self.warnings_)

    @abstractmethod
    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        """Arrays of the fitted estimator, facts about what they are, and other fitted values."""

    @abstractmethod
    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        """Set the fitted attributes from what `_fitted_state` gave."""

    # ------------------------------------------------------------------ files

    def plain_options(self) -> dict[str, Any]:
        """The options that a page can show: not generators, callbacks or arrays."""
        return {k: v for k, v in self.get_params(deep=False).items() if _is_plain(v)}

    def save(self, path: str | PathLike[str]) -> None:
        """Write what was learnt and the options to the safetensors file `path`."""
        check_is_fitted(self)
        arrays, facts, about = self._fitted_state()
        told: dict[str, Any] = {
            "estimator": type(self).__name__,
            "options": {k: v for k, v in self.plain_options().items() if k not in _NOT_IN_FILES},
            "epochs": self.n_iter_,
            "stopped": self.stopped_,
            "converged": self.converged_,
            "warnings": self.warnings_,
            "objective": self.trace_.objective_name,
            "n_features_in": self.n_features_in_,
            **about,
        }
        if tuples := [k for k, v in told["options"].items() if isinstance(v, tuple)]:
            told["tuples"] = tuples  # JSON has lists only
        if hasattr(self, "feature_names_in_"):
            told["feature_names_in"] = [str(name) for name in self.feature_names_in_]
        if hasattr(self, "row_scaling_"):
            told["row_scaling"] = self.row_scaling_
        arrays = arrays | prefixed(self.trace_.arrays(), "trace")
        told["arrays"] = _forms(arrays)
        save(path, f"kikuchi {self.file_kind}", arrays, {**facts, "about": told})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The estimator of a file `path` that `save` wrote."""
        arrays, facts = load(path, (f"kikuchi {cls.file_kind}",))
        about: Any = facts.get("about")
        name = about.get("estimator") if isinstance(about, dict) else None
        if name != cls.__name__:
            kind = name or f"a {cls.file_kind} without an estimator"
            raise DataError(f"{path}: holds {kind}, not {cls.__name__}")
        with reading(path, f"the file of a {cls.__name__}"):
            if about["arrays"] != _forms(arrays):
                raise DataError("its arrays are not those that were saved")
            estimator = cls(**_read_options(about))
            estimator._check_options()
            estimator._read_ending(arrays, about)
            estimator._check_arrays(arrays)
            estimator._restore_state(arrays, facts, about)
            estimator._check_restored(arrays)
        return estimator

    def _read_ending(self, arrays: Arrays, about: Mapping[str, Any]) -> None:
        """How the fit of a file ended, what it was told of its data, and its trace."""
        self.n_iter_ = of_type(about, "epochs", int)
        self.stopped_ = of_type(about, "stopped", str)
        self.converged_ = of_type(about, "converged", bool)
        self.warnings_ = [str(text) for text in of_type(about, "warnings", list)]
        self.trace_ = TrainingTrace()
        self.trace_.objective_name = of_type(about, "objective", str)
        self.trace_.restore(part(arrays, "trace"))
        self.n_features_in_ = of_type(about, "n_features_in", int)
        if "feature_names_in" in about:
            names = of_type(about, "feature_names_in", list)
            check_sizes(
                {"names": np.array(names)}, {"names": "columns"}, columns=self.n_features_in_
            )
            self.feature_names_in_ = np.array([str(n) for n in names], dtype=object)
        if "row_scaling" in about:
            scaling = of_type(about, "row_scaling", dict)
            self.row_scaling_ = {str(k): float(v) for k, v in scaling.items()}

    def _check_arrays(self, arrays: Arrays) -> None:
        """Refuse arrays of a file that are not finite, or not of the sizes and signs declared."""
        for name, array in arrays.items():
            if not name.startswith("trace/") and "/trace/" not in name:
                may_be = name.startswith(self.may_be_infinite)
                check_finite(name, array, np.array([np.inf]) if may_be else None)
        check_sizes(arrays, self.file_layout, columns=self.n_features_in_)
        for name in self.positive:
            if not np.all(arrays[name] > 0):
                raise DataError(f"its array {name} has a number that is not above 0")

    def _check_restored(self, arrays: Arrays) -> None:
        """Refuse arrays that are not those which an estimator like this one would save."""
        mine = _forms(self._fitted_state()[0] | prefixed(self.trace_.arrays(), "trace"))
        theirs = _forms(arrays)
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                raise DataError(
                    f"its array {name} is {theirs.get(name)}, expected {mine.get(name)}"
                )


@dataclass(eq=False, repr=False, kw_only=True)
class TrainedEstimator(Estimator):
    """Base of the estimators whose model is trained by `kikuchi.training.trainer.train`.

    A family gives `_begin` (the model before training) and `_rule`; `_rows` if it reads its data in
    another way. The trained model is in `model_`, or in the attribute that `model_attribute` names.
    """

    model_attribute: ClassVar[str] = "model_"
    model_class: ClassVar[Any]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if hasattr(cls, "model_class"):
            cls.file_kind = cls.model_class.kind

    learning_rate: float = option(0.05, "First rate of the updates.", above=0)
    optimiser: str = option("sgd", 'Optimiser: "sgd", or one of optax such as "adam:b1=0.8".')
    momentum: float = option(
        0.0, "Fraction of the velocity that sgd keeps; 0 for other optimisers.", low=0, below=1
    )
    weight_decay: float = option(0.0, "Strength of the decay of weights towards 0.", low=0)
    schedule: str = option(
        "constant",
        'Learning rate: "constant", "linear", "cosine", "exponential:factor=0.95", '
        '"inverse-time:decay=0.05" or "warmup-cosine".',
    )
    batch_size: int = option(100, "Rows of each update.", low=1)
    epochs: int = option(10, "Passes over the rows, each in an order of its own.", low=1)
    threads: int | None = option(
        1, "Threads of matrix products; none: as libraries choose.", low=1, high=1024
    )

    # ------------------------------------------------------------------ for the families

    @abstractmethod
    def _begin(self, rows: Any, rng: np.random.Generator) -> Any:
        """The model before training on these rows."""

    @abstractmethod
    def _rule(self, model: Any) -> BaseRule:
        """The learning rule of the options, for the model that `_begin` made."""

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        """X as rows that the model learns from, checked."""
        return validate_data(self, X, reset=reset, dtype=np.float64)

    def _remarks(self, rows: Any) -> list[str]:
        """What else must be said of a model that was trained on these rows."""
        return []

    def _epochs(self, rows: Any) -> int:
        """Passes over these rows that `fit` makes at most."""
        return self.epochs

    def _averaged(self) -> float:
        """Last fraction of the epochs of which the mean of the parameters is the answer."""
        return 0.0

    @property
    def _model(self) -> Any:
        check_is_fitted(self, self.model_attribute)
        return getattr(self, self.model_attribute)

    # ------------------------------------------------------------------ learning

    @safe_interrupts()
    def fit(self, X: Any, y: object = None) -> Self:
        """Learn from rows `X` (rows, columns), from the beginning (or from the checkpoint, if there
        is one); `y` is ignored.
        """
        self._check_options()
        rows = self._rows(X, reset=True)
        rng = generator(self.random_state)
        optimiser = self._optimiser(self.schedule)
        model = self._begin(rows, rng)
        self._train(model, rows, rng, optimiser, self._epochs(rows), self._checkpoint(), None)
        return self

    def partial_fit(self, X: Any, y: object = None) -> Self:
        """One more pass over the rows `X`, from the model as it is; persistent chains go on; `y` is
        ignored.

        There is no last epoch here, so that `schedule` is left aside: the rate is `learning_rate`.
        """
        self._check_options()
        first = not hasattr(self, self.model_attribute)
        rows = self._rows(X, reset=first)
        if first:
            rng = generator(self.random_state)
            model, state, before = self._begin(rows, rng), None, 0
        else:
            rng, model, state, before = self._rng, self._model, self._state, self.n_iter_
        self._train(model, rows, rng, self._optimiser("constant"), 1, None, state)
        self.n_iter_ += before
        return self

    def _train(
        self,
        model: Any,
        rows: Any,
        rng: np.random.Generator,
        optimiser: Optimiser,
        epochs: int,
        checkpoint: Checkpoint | None,
        state: TrainerState | None,
    ) -> None:
        training = self._trained(
            model, rows, self._rule(model), rng, optimiser, epochs, checkpoint, state,
            average=self._averaged(),
        )  # fmt: skip
        self._keep(training, rng)
        remarks = self._remarks(rows)
        self.warnings_ += remarks
        log_warnings(_LOG, type(self).__name__, remarks)

    def _trained(
        self, model: Any, data: Any, rule: BaseRule, rng: np.random.Generator, optimiser: Optimiser,
        epochs: int, checkpoint: Checkpoint | None, state: TrainerState | None, **more: Any,
    ) -> Training[Any]:  # fmt: skip
        """`train` with the options of the estimator, and `more` of its own."""
        return train(
            model, data, rule, optimiser=optimiser, epochs=epochs, batch_size=self.batch_size,
            seed=rng, run=self._run(), checkpoint=checkpoint, threads=self.threads, state=state,
            **more,
        )  # fmt: skip

    def _keep(self, training: Training[Any], rng: np.random.Generator) -> None:
        setattr(self, self.model_attribute, training.model)
        self._rng, self._state = rng, training.state
        self._ended(
            training.epochs, training.stopped, training.converged, training.warnings, training.trace
        )

    def _optimiser(self, schedule: str) -> Optimiser:
        named = parse_optimiser(self.optimiser)
        shared: dict[str, Any] = {
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "schedule": schedule,
        }
        if isinstance(named, Sgd):
            shared["momentum"] = self.momentum
        elif self.momentum:
            raise MethodError(
                f"momentum belongs to optimiser sgd; {named.name} has options of its own: give "
                "momentum=0"
            )
        return dataclasses.replace(named, **shared)

    # ------------------------------------------------------------------ files

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        model = self._model
        return model.to_arrays(), {model.kind: model.describe()}, {}

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        setattr(self, self.model_attribute, restored(self.model_class, arrays, facts))
        self._rng, self._state = generator(self.random_state), None


class FeatureTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin):  # type: ignore[misc]
    """Mixin of estimators whose `transform` gives features: `fit_transform`, names, containers."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # features are of the model's own type
        return tags


def ending_remarks(
    stopped: str, converged: bool, objective: str, done: str, limit: str = "max_iter or tol"
) -> list[str]:
    """What must be said of a fit that ended before it converged, after what was `done`."""
    if stopped in ("seconds", "interrupted"):
        return [f"stopped early ({stopped}): the best so far is kept"]
    if stopped == "diverged":
        return [f"no step raised the {objective} any more before tol was reached"]
    return [] if converged else [f"not converged in {done}; raise {limit}"]


class PrintedProgress:
    """Progress as lines on the screen."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self, done: int, total: int, *, residual: float | None, objective: float | None
    ) -> None:
        """Print one line."""
        told = "" if objective is None else f", objective {objective:.5g}"
        print(f"[{self.name}] epoch {done} of {total}{told}", flush=True)


def _read_options(about: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a file, as they are given to the class; none names a file to write to."""
    options = of_type(about, "options", dict)
    if written := sorted(_NOT_IN_FILES & options.keys()):
        raise DataError(f"its options have {', '.join(written)}, which belong to no file")
    for name, value in options.items():
        if name != "random_state" and _has_large_number(value):
            raise DataError(f"its option {name} has a whole number of more than 64 bits")
    return options | {k: tuple(options[k]) for k in about.get("tuples", [])}


def _has_large_number(value: Any) -> bool:
    """Whether a value of a JSON file has a whole number that no array can hold."""
    if isinstance(value, dict | list):
        return any(map(_has_large_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= 2**63


def _forms(arrays: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Type and shape of each array, as JSON."""
    return {n: [str(a.dtype), *a.shape] for n, a in sorted(arrays.items())}


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True
