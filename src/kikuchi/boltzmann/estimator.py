"""What the estimators share: scikit-learn's conventions around `train`."""

from __future__ import annotations

import dataclasses
import json
import warnings
from abc import abstractmethod
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.boltzmann.layers import Layers
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.rules import parse_rule
from kikuchi.boltzmann.units import Units, parse_units
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi.core.progress import Progress, silent
from kikuchi.core.run import Run
from kikuchi.core.seeds import generator
from kikuchi.training.checkpoint import Checkpoint
from kikuchi.training.model import load_model, save_model
from kikuchi.training.optimiser import Optimiser, Sgd, parse_optimiser
from kikuchi.training.rows import check_values, is_sparse
from kikuchi.training.rule import Rule
from kikuchi.training.trainer import Training, TrainingTrace, limited_threads, train
from kikuchi.training.updates import TrainerState

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError(
        "these estimators need scikit-learn; pip install 'kikuchi[learn]'"
    ) from None

Array = NDArray[Any]
Limits = tuple[float, float]
RandomState = int | np.random.Generator | np.random.RandomState | None

_BURN_IN = 1000  # steps of the chains that `sample` draws from


class MachineEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators; see `RBM` for the parameters."""

    n_hidden: int
    learner: str
    learning_rate: float
    optimiser: str
    momentum: float
    weight_decay: float
    schedule: str
    batch_size: int
    epochs: int
    start: str
    limits: Limits | Literal["data"] | None
    dtype: str
    threads: int | None
    seconds: float | None
    checkpoint: str | PathLike[str] | None
    random_state: RandomState
    verbose: int
    progress: Progress | None

    machine_: Machine
    trace_: TrainingTrace
    limits_: Limits | None

    # ------------------------------------------------------------------ learning

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn from rows, from the beginning (or from the checkpoint, if there is one)."""
        rows = self._rows(X, reset=True)
        rng = generator(self.random_state)
        checkpoint = None
        if self.checkpoint is not None:
            # A generator given by the caller cannot be compared: what it says is left out.
            seed = self.random_state if isinstance(self.random_state, int) else None
            about = {"random_state": repr(seed)}
            checkpoint = Checkpoint(self.checkpoint, about=about)
        self._train(self._begun(rows, rng), rows, rng, self.epochs, checkpoint, None)
        return self

    def partial_fit(self, X: Any, y: object = None) -> Self:
        """One more pass over these rows, from the machine as it is; persistent chains go on."""
        if self.schedule != "constant":
            raise MethodError(
                f"partial_fit knows no last epoch; use schedule='constant', not {self.schedule!r}"
            )
        first = not hasattr(self, "machine_")
        rows = self._rows(X, reset=first)
        if first:
            rng = generator(self.random_state)
            machine, state, before = self._begun(rows, rng), None, 0
        else:
            rng, machine, state = self._rng, self.machine_, self._state
            before = self.n_iter_
        self._train(machine, rows, rng, 1, None, state)
        self.n_iter_ += before
        return self

    def _begun(self, rows: Any, rng: np.random.Generator) -> Machine:
        """The machine before training, with biases at the means of the data if asked."""
        if self.start not in ("means", "zero"):
            raise MethodError(f"start must be 'means' or 'zero', got {self.start!r}")
        machine = self._start(rows.shape[1], rng)
        if self.start == "means":
            machine.visible_bias[...] = machine.mean_biases(rows)
        return machine

    def _train(
        self,
        machine: Machine,
        rows: Any,
        rng: np.random.Generator,
        epochs: int,
        checkpoint: Checkpoint | None,
        state: TrainerState | None,
    ) -> None:
        training = train(
            machine,
            rows,
            self._rule(),
            optimiser=self._optimiser(),
            epochs=epochs,
            batch_size=self.batch_size,
            seed=rng,
            run=Run(Budget(seconds=self.seconds).start(), self._progress(), TrainingTrace()),
            checkpoint=checkpoint,
            threads=self.threads,
            state=state,
        )
        self._rng = rng
        self._keep(training)
        self.warnings_ += self._remarks(rows)

    def _remarks(self, rows: Any) -> list[str]:
        """What else must be said of a machine that was trained on these rows."""
        return []

    def _keep(self, training: Training[Machine]) -> None:
        self.machine_ = training.model
        self.trace_ = training.trace  # type: ignore[assignment]
        self.n_iter_ = training.epochs
        self.stopped_ = training.stopped
        self.converged_ = training.converged
        self.warnings_ = list(training.warnings)
        self._state = training.state
        self.log_z_: float | None = None
        if training.stopped == "diverged":
            warnings.warn(self.warnings_[0], ConvergenceWarning, stacklevel=4)

    @abstractmethod
    def _start(self, n_visible: int, rng: np.random.Generator) -> Machine:
        """The machine before training."""

    def _rule(self) -> Rule[Machine]:
        return parse_rule(self.learner)

    def _optimiser(self) -> Optimiser:
        named = parse_optimiser(self.optimiser)
        shared: dict[str, Any] = {
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "schedule": self.schedule,
        }
        if isinstance(named, Sgd):
            shared["momentum"] = self.momentum
        elif self.momentum:
            raise MethodError(
                f"momentum belongs to optimiser sgd; {named.name} has options of its own: give "
                "momentum=0"
            )
        return dataclasses.replace(named, **shared)

    def _progress(self) -> Progress:
        if self.progress is not None:
            return self.progress
        return _Printed(type(self).__name__) if self.verbose else silent

    # ------------------------------------------------------------------ rows

    def _units(self) -> Units:
        """Kind of the visible units."""
        return parse_units("binary")

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        """Rows as states of the visible units in the machine's dtype, dense or CSR, checked."""
        if self.dtype not in ("float32", "float64"):
            raise MethodError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}")
        rows = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.dtype(self.dtype))
        if reset:
            self.limits_ = self._limits_of(rows)
        units = self._units()
        if self.limits_ is None:
            told = f"of {units.name} units; scale the data, give limits, or use visible=gaussian"
            check_values(rows, units.limits, told)
            return rows
        if self.limits != "data":
            check_values(rows, self.limits_, "of the limits given; scale the data")
        return self._to_states(rows)

    def _limits_of(self, rows: Any) -> Limits | None:
        """The values that stand for the smallest and the largest state; None: states themselves."""
        if self.limits is None:
            return None
        if not np.all(np.isfinite(self._units().limits)):
            raise MethodError(f"{self._units().name} units have no limits: standardise the data")
        if isinstance(self.limits, str) and self.limits == "data":
            low, high = float(rows.min()), float(rows.max())
            return low, high if high > low else low + 1.0
        try:
            low, high = (float(value) for value in self.limits)
        except (TypeError, ValueError):
            low = high = np.nan
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise MethodError(
                f"limits must be two rising numbers, 'data' or None, got {self.limits!r}"
            )
        return low, high

    def _to_states(self, rows: Any) -> Any:
        """Data as states of the visible units; what is beyond limits of the data is at them."""
        if self.limits_ is None:
            return rows
        (low, high), (first, last) = self.limits_, self._units().limits
        factor = rows.dtype.type((last - first) / (high - low))
        if is_sparse(rows):
            if low or first:
                raise DataError(
                    f"sparse data with limits from {low:g}: 0 would not stay 0; use dense"
                )
            scaled = rows.copy()
            scaled.data = np.clip(rows.data * factor, first, last)
            return scaled
        return np.clip((rows - rows.dtype.type(low)) * factor + rows.dtype.type(first), first, last)

    def _to_data(self, states: Array) -> Array:
        """States of visible units as values of the data."""
        if self.limits_ is None:
            return states
        (low, high), (first, last) = self.limits_, self._units().limits
        number = states.dtype.type
        data: Array = (states - number(first)) * number((high - low) / (last - first))
        data += number(low)
        return data

    def _dense(self, X: Any) -> Array:
        check_is_fitted(self, "machine_")
        rows = self._rows(X)
        dense: Array = rows.toarray() if hasattr(rows, "toarray") else rows
        return np.ascontiguousarray(dense)

    # ------------------------------------------------------------------ using

    def transform(self, X: Any) -> Array:
        """Means of the hidden units given each row (TEH-I11)."""
        rows = self._dense(X)
        with limited_threads(self.threads):
            return self._hidden_means(rows)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Means of the visible units given rows of hidden means."""
        check_is_fitted(self, "machine_")
        hidden = check_array(X, dtype=np.dtype(self.dtype), input_name="X")
        if hidden.shape[1] != self.machine_.n_hidden:
            raise DataError(
                f"X has {hidden.shape[1]} columns; the machine has {self.machine_.n_hidden} hidden "
                "units, give one column for each"
            )
        with limited_threads(self.threads):
            return self._to_data(self._visible_means(np.ascontiguousarray(hidden)))

    def reconstruct(self, X: Any) -> Array:
        """Means of the visible units given the hidden means of each row."""
        return self.inverse_transform(self.transform(X))

    def free_energy(self, X: Any) -> Array:
        """Minus the logarithm of the sum of exp(-E) over hidden states, for each row (WH-M1)."""
        rows = self._dense(X)
        with limited_threads(self.threads):
            return self._free_energies(rows)

    def score_samples(self, X: Any) -> Array:
        """Log-likelihood of each row: minus the free energy minus log Z.

        As long as `log_z` has not been called since the last fit, log Z is unknown and left out:
        scores of one machine can then be compared with each other, but not with other machines.
        """
        scores: Array = -self.free_energy(X)
        return scores if self.log_z_ is None else scores - self.log_z_

    def score(self, X: Any, y: object = None) -> float:
        """Mean of `score_samples`."""
        return float(np.mean(self.score_samples(X)))

    def log_z(self, method: Literal["exact", "ais"] = "ais", **options: Any) -> float:
        """Logarithm of the partition function, by enumeration or annealed importance sampling.

        The answer is kept in `log_z_`, so that `score_samples` gives log-likelihoods from now on;
        the whole answer of `ais` (its bracket, what it can promise) in `log_z_answer_`.
        """
        from kikuchi.boltzmann.annealed_sampling import ais
        from kikuchi.boltzmann.exact import exact

        check_is_fitted(self, "machine_")
        if method not in ("exact", "ais"):
            raise MethodError(f"method must be 'exact' or 'ais', got {method!r}")
        with limited_threads(self.threads):
            if method == "exact":
                self.log_z_answer_: Any = exact(self.machine_)
                self.log_z_ = self.log_z_answer_.log_z
            else:
                options.setdefault("random_state", self._rng)
                self.log_z_answer_ = ais(self.machine_, **options)
                self.log_z_ = float(self.log_z_answer_.estimate)
        return float(self.log_z_)

    def sample(
        self, n_samples: int = 1, steps: int = _BURN_IN, *, random_state: RandomState = None
    ) -> Array:
        """Rows drawn by Gibbs chains of `steps` steps, each begun at random hidden states (WH-I1).

        Without `random_state` the generator of the fit goes on.
        """
        check_is_fitted(self, "machine_")
        for name, value in (("n_samples", n_samples), ("steps", steps)):
            if value < 1:
                raise MethodError(f"{name} must be at least 1, got {value!r}")
        machine = self.machine_
        rng = self._rng if random_state is None else generator(random_state)
        layers = Layers(machine)
        hidden = machine.hidden.draw(np.zeros((n_samples, machine.n_hidden), machine.dtype), rng)
        visible: Array | None = None
        with limited_threads(self.threads):
            for _ in range(steps):
                visible = layers.visible(hidden, rng, start=visible).drawn
                hidden = layers.hidden(visible, rng, start=hidden).drawn
        return np.array(self._to_data(np.asarray(visible)))

    @abstractmethod
    def _hidden_means(self, rows: Array) -> Array: ...

    @abstractmethod
    def _visible_means(self, hidden: Array) -> Array: ...

    @abstractmethod
    def _free_energies(self, rows: Array) -> Array: ...

    # ------------------------------------------------------------------ files

    def plain_options(self) -> dict[str, Any]:
        """The options that a file or a page can hold: not generators, callbacks or arrays."""
        return {k: v for k, v in self.get_params(deep=False).items() if _is_plain(v)}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the machine and its options to a safetensors file."""
        check_is_fitted(self, "machine_")
        about = {
            "estimator": type(self).__name__,
            "options": self.plain_options(),
            "epochs": self.n_iter_,
            "stopped": self.stopped_,
            "log_z": self.log_z_,
            "limits": self.limits_,
        }
        save_model(path, self.machine_, about)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The estimator of a file that `save` wrote."""
        machine, about = load_model(path, Machine)
        if about.get("estimator") != cls.__name__:
            raise DataError(
                f"{path}: holds {about.get('estimator', 'a machine without an estimator')}, not "
                f"{cls.__name__}"
            )
        estimator = cls(**about["options"])
        rng = generator(estimator.random_state)
        estimator._rng = rng
        estimator.n_features_in_ = machine.n_visible
        estimator._keep(Training(machine, TrainingTrace(), about["epochs"], about["stopped"]))
        estimator.log_z_ = about["log_z"]
        limits = about.get("limits")
        estimator.limits_ = None if limits is None else (limits[0], limits[1])
        return estimator

    # ------------------------------------------------------------------ conventions

    @property
    def _n_features_out(self) -> int:
        return self.machine_.n_hidden

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = self.limits is None and self._units().limits[0] >= 0
        tags.transformer_tags.preserves_dtype = []
        return tags


class _Printed:
    """Progress as lines on the screen."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self, done: int, total: int, *, residual: float | None, objective: float | None
    ) -> None:
        told = "" if objective is None else f", objective {objective:.5g}"
        print(f"[{self.name}] epoch {done} of {total}{told}", flush=True)


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True
