"""The scikit-learn interface of every family: options, checks, files, time limits, progress,
warnings.

An estimator is a dataclass whose fields are defined by `core.options.option`: scikit-learn uses the
generated signature, the command line derives its options from the fields, and ranges are checked in
`fit`. `Estimator` is the base class of everything that can be fitted; `TrainedEstimator` adds the
interface to the trainer, so that a family defines only its model, its rule and its methods.
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
from kikuchi.training.kinds import Kind
from kikuchi.training.model import restored
from kikuchi.training.optimiser import Optimiser, Sgd, parse_optimiser
from kikuchi.training.option_names import OTHER_NAMES
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
_NOT_IN_FILES = frozenset({"checkpoint", "progress"})  # output file and callback of a fit
RandomState = int | np.random.Generator | np.random.RandomState | None


class FitResults:
    """Fitted attributes: iterations, reason for the end, whether a stopping criterion was met,
    warnings, and the trace. Not a dataclass, since these are not options.
    """

    n_iter_: int
    stopped_: str
    converged_: bool
    warnings_: list[str]
    trace_: Trace
    n_features_in_: int
    row_scaling_: dict[str, float]  # preprocessing by the command line: divide, threshold


def validate_data(estimator: Any, X: Any, *arguments: Any, **options: Any) -> Any:
    """`validate_data` of scikit-learn with C-ordered output. Sums over the columns of
    Fortran-ordered data, such as those of data frames, have another order of summation, so that
    equal data would give different results.
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


@dataclass(eq=False, repr=False, kw_only=True)
class Estimator(FitResults, BaseEstimator):  # type: ignore[misc]
    """Base class with the options that every estimator has, and files; see `FitResults` for what
    `fit` sets.

    A family declares its estimator as `kind`, names its files by `file_kind` and defines their
    content in `_fitted_state` and `_restore_state`. Arrays of a file must be finite, except for
    those whose names begin with one of `may_be_infinite`, and have the axes in `file_layout`, if
    listed (see `checkpoint.check_sizes`); `columns` is the number of features. Those listed in
    `positive` must be above 0.
    """

    kind: ClassVar[Kind]
    file_kind: ClassVar[str] = "estimator"
    may_be_infinite: ClassVar[tuple[str, ...]] = ()
    file_layout: ClassVar[Mapping[str, str]] = {}
    positive: ClassVar[tuple[str, ...]] = ()

    seconds: float | None = option(None, "Time limit in seconds, without compilation.", above=0)
    checkpoint: str | PathLike[str] | None = option(
        None,
        "File with the state of the fit, from which a killed fit continues. The search for a "
        "start is then not limited by `seconds`, so that a resumed fit equals an uninterrupted "
        "one.",
    )
    random_state: RandomState = option(None, "Random seed.")
    verbose: int = option(0, "Print progress if above 0.", low=0)
    progress: Progress | bool | None = option(
        None, "Progress callback, called a few times per second; True prints the progress."
    )

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        list_options(cls)
        for name, member in list(vars(cls).items()):
            if inspect.isfunction(member) and not name.startswith("_"):
                setattr(cls, name, kept(member))  # compiled programs are cached on disk

    def __new__(cls, *values: Any, **options: Any) -> Self:
        """Raise an error for unknown options, with our name for those of other libraries."""
        known = [f.name for f in dataclasses.fields(cls) if f.init]
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            here = [name for name in OTHER_NAMES.get(unknown, ()) if name in known]
            hint = f"it is called {here[0]} here" if here else suggestion(unknown, known)
            raise UnknownOptionError(f"{cls.__name__} has no option {unknown!r}; {hint}")
        made: Self = super().__new__(cls)
        return made

    # ------------------------------------------------------------------ for the families

    def _check_options(self) -> None:
        """Raise an error for options of the wrong type or out of range; called by `fit`."""
        checked_options(self, type(self).__name__)

    def _run(self) -> Run:
        """Return a run with the time limit and the progress callback of the options."""
        return Run(Budget(seconds=self.seconds).start(), self._progress_callback(), TrainingTrace())

    def _search_clock(self) -> Clock:
        """Return a clock for the search for a start, which the time limit ends. With a checkpoint
        it is unlimited, so that a resumed fit has the same start as an uninterrupted one.
        """
        return Budget(seconds=self.seconds if self.checkpoint is None else None).start()

    def _progress_callback(self) -> Progress:
        """The progress callback."""
        if self.progress is True or (self.verbose and not self.progress):
            return PrintedProgress(type(self).__name__)
        return self.progress or silent

    def _checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint of the options; only a fit with the same seed can continue from
        it.
        """
        if self.checkpoint is None:
            return None
        # The state of a generator given by the caller cannot be compared and is omitted.
        seed = self.random_state
        known = int(seed) if isinstance(seed, int | np.integer) else None
        return Checkpoint(self.checkpoint, about={"random_state": repr(known)})

    def _ended(
        self, iterations: int, stopped: str, converged: bool, remarks: list[str], trace: Trace
    ) -> None:
        """Record how a fit ended; divergence also issues a warning of scikit-learn."""
        self.n_iter_, self.stopped_, self.converged_ = iterations, stopped, converged
        self.warnings_, self.trace_ = list(remarks), trace
        self._log_fit()
        if stopped == "diverged":
            warn_caller(self.warnings_[0], ConvergenceWarning)

    def _log_fit(self) -> None:
        """Log how a fit ended, and its warnings."""
        name = type(self).__name__
        _LOG.info("%s: stopped (%s) after %d iterations", name, self.stopped_, self.n_iter_)
        log_warnings(_LOG, name, self.warnings_)

    @abstractmethod
    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        """Return the arrays of the fitted estimator, facts that describe them, and other fitted
        values.
        """

    @abstractmethod
    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        """Set the fitted attributes from the result of `_fitted_state`."""

    # ------------------------------------------------------------------ files

    def plain_options(self) -> dict[str, Any]:
        """Return the options that a page can show: not generators, callbacks or arrays."""
        return {k: v for k, v in self.get_params(deep=False).items() if _is_plain(v)}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted state and the options to the safetensors file `path`."""
        check_is_fitted(self)
        arrays, facts, about = self._fitted_state()
        told: dict[str, Any] = {
            "estimator": type(self).__name__,
            "options": {k: v for k, v in self.plain_options().items() if k not in _NOT_IN_FILES},
            "iterations": self.n_iter_,
            "stopped": self.stopped_,
            "converged": self.converged_,
            "warnings": self.warnings_,
            "objective": self.trace_.objective_name,
            "n_features_in": self.n_features_in_,
            **about,
        }
        if tuples := [k for k, v in told["options"].items() if isinstance(v, tuple)]:
            told["tuples"] = tuples  # JSON only has lists
        if hasattr(self, "feature_names_in_"):
            told["feature_names_in"] = [str(name) for name in self.feature_names_in_]
        if hasattr(self, "row_scaling_"):
            told["row_scaling"] = self.row_scaling_
        arrays = arrays | prefixed(self.trace_.arrays(), "trace")
        told["arrays"] = _forms(arrays)
        save(path, f"kikuchi {self.file_kind}", arrays, {**facts, "about": told})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load the estimator from a file `path` that `save` wrote."""
        arrays, facts = load(path, (f"kikuchi {cls.file_kind}",))
        about: Any = facts.get("about")
        name = about.get("estimator") if isinstance(about, dict) else None
        if name != cls.__name__:
            kind = name or f"a {cls.file_kind} without an estimator"
            raise DataError(f"{path}: contains {kind}, not {cls.__name__}")
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
        """Restore the end of the fit, the facts about its data, and its trace from a file."""
        self.n_iter_ = of_type(about, "iterations", int)
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
        """Raise an error for arrays of a file that are not finite, or do not have the declared
        sizes and signs.
        """
        for name, array in arrays.items():
            if not name.startswith("trace/") and "/trace/" not in name:
                may_be = name.startswith(self.may_be_infinite)
                check_finite(name, array, np.array([np.inf]) if may_be else None)
        check_sizes(arrays, self.file_layout, columns=self.n_features_in_)
        for name in self.positive:
            if not np.all(arrays[name] > 0):
                raise DataError(f"its array {name} has a number that is not above 0")

    def _check_restored(self, arrays: Arrays) -> None:
        """Raise an error for arrays other than those that this estimator would save."""
        mine = _forms(self._fitted_state()[0] | prefixed(self.trace_.arrays(), "trace"))
        theirs = _forms(arrays)
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                raise DataError(
                    f"its array {name} is {theirs.get(name)}, expected {mine.get(name)}"
                )


@dataclass(eq=False, repr=False, kw_only=True)
class TrainedEstimator(Estimator):
    """Base class of the estimators whose model is trained by `kikuchi.training.trainer.train`.

    A family defines `_begin` (the model before training) and `_rule`, and `_rows` if it reads its
    data in another way. The trained model is in `model_`.
    """

    model_class: ClassVar[Any]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if hasattr(cls, "model_class"):
            cls.file_kind = cls.model_class.kind

    learning_rate: float = option(0.05, "Initial learning rate.", above=0)
    solver: str = option("sgd", 'Optimiser: "sgd", or one of optax such as "adam:b1=0.8".')
    momentum: float = option(0.0, "Momentum of sgd; 0 for other optimisers.", low=0, below=1)
    weight_decay: float = option(0.0, "Weight decay.", low=0)
    schedule: str = option(
        "constant",
        'Learning rate: "constant", "linear", "cosine", "exponential:factor=0.95", '
        '"inverse-time:decay=0.05" or "warmup-cosine".',
    )
    batch_size: int = option(100, "Number of rows per update.", low=1)
    max_iter: int = option(10, "Number of passes over the rows, each shuffled.", low=1)
    threads: int | None = option(
        1, "Threads of matrix products; none: chosen by the libraries.", low=1, high=1024
    )

    # ------------------------------------------------------------------ for the families

    @abstractmethod
    def _begin(self, rows: Any, rng: np.random.Generator) -> Any:
        """Return the model before training on these rows."""

    @abstractmethod
    def _rule(self, model: Any) -> BaseRule:
        """Return the learning rule of the options, for the model from `_begin`."""

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        """Return the checked training rows of X."""
        return validate_data(self, X, reset=reset, dtype=np.float64)

    def _remarks(self, rows: Any) -> list[str]:
        """Return further warnings about a model trained on these rows."""
        return []

    def _epochs(self, rows: Any) -> int:
        """Maximum number of passes over these rows in `fit`."""
        return self.max_iter

    def _averaged(self) -> float:
        """Last fraction of the epochs over which the parameters are averaged."""
        return 0.0

    @property
    def _model(self) -> Any:
        check_is_fitted(self, "model_")
        return self.model_

    # ------------------------------------------------------------------ learning

    @safe_interrupts()
    def fit(self, X: Any, y: object = None) -> Self:
        """Fit to rows `X` (rows, columns), from the start or from the checkpoint, if there is one;
        `y` is ignored.
        """
        self._check_options()
        rows = self._rows(X, reset=True)
        rng = generator(self.random_state)
        optimiser = self._optimiser(self.schedule)
        model = self._begin(rows, rng)
        self._train(model, rows, rng, optimiser, self._epochs(rows), self._checkpoint(), None)
        return self

    def partial_fit(self, X: Any, y: object = None) -> Self:
        """Make one more pass over the rows `X`, from the current model and persistent chains; `y`
        is ignored.

        There is no last epoch, so `schedule` is ignored and the rate is `learning_rate`.
        """
        self._check_options()
        first = not hasattr(self, "model_")
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
        """Call `train` with the options of the estimator, and `more` arguments."""
        return train(
            model, data, rule, optimiser=optimiser, epochs=epochs, batch_size=self.batch_size,
            seed=rng, run=self._run(), checkpoint=checkpoint, threads=self.threads, state=state,
            **more,
        )  # fmt: skip

    def _keep(self, training: Training[Any], rng: np.random.Generator) -> None:
        self.model_ = training.model
        self._rng, self._state = rng, training.state
        self._ended(
            training.epochs, training.stopped, training.converged, training.warnings, training.trace
        )

    def _optimiser(self, schedule: str) -> Optimiser:
        named = parse_optimiser(self.solver)
        shared: dict[str, Any] = {
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "schedule": schedule,
        }
        if isinstance(named, Sgd):
            shared["momentum"] = self.momentum
        elif self.momentum:
            raise MethodError(
                f"momentum belongs to solver sgd; {named.name} has its own options: set momentum=0"
            )
        return dataclasses.replace(named, **shared)

    # ------------------------------------------------------------------ files

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        model = self._model
        return model.to_arrays(), {model.kind: model.describe()}, {}

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        self.model_ = restored(self.model_class, arrays, facts)
        self._rng, self._state = generator(self.random_state), None


class FeatureTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin):  # type: ignore[misc]
    """Mixin of estimators whose `transform` gives features: `fit_transform`, names, containers."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # features have the type of the model
        return tags


def ending_remarks(
    stopped: str, converged: bool, objective: str, done: str, limit: str = "max_iter or tol"
) -> list[str]:
    """Return warnings for a fit that stopped before convergence; `done` is the work done."""
    if stopped in ("seconds", "interrupted"):
        return [f"stopped early ({stopped}): the best result so far is used"]
    if stopped == "diverged":
        return [f"no step raised the {objective} before tol was reached"]
    return [] if converged else [f"not converged in {done}; raise {limit}"]


class PrintedProgress:
    """Progress printed as lines."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self, done: int, total: int, *, residual: float | None, objective: float | None
    ) -> None:
        """Print one line."""
        told = "" if objective is None else f", objective {objective:.5g}"
        print(f"[{self.name}] epoch {done} of {total}{told}", flush=True)


def _read_options(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a file, as arguments of the class; raise an error if one is an output
    file.
    """
    options = of_type(about, "options", dict)
    if written := sorted(_NOT_IN_FILES & options.keys()):
        raise DataError(f"its options have {', '.join(written)}, which belong to no file")
    for name, value in options.items():
        if name != "random_state" and _has_large_number(value):
            raise DataError(f"its option {name} has an integer of more than 64 bits")
    return options | {k: tuple(options[k]) for k in about.get("tuples", [])}


def _has_large_number(value: Any) -> bool:
    """Return whether a value of a JSON file contains an integer too large for an array."""
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
