"""What the estimators of machines share: data as states of units, free energies, samples, files.

Reference: TEH-I11, WH-I1, WH-M1.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.boltzmann.exact import ExactStatistics, exact
from kikuchi.boltzmann.layers import Layers
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.rules import parse_rule
from kikuchi.boltzmann.units import BinaryUnits, Units, parse_units
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import option
from kikuchi.core.seeds import generator
from kikuchi.inference.sampling.annealing import LogZ
from kikuchi.training.checkpoint import Arrays, part, prefixed
from kikuchi.training.estimator import (
    ConvergenceWarning,
    FeatureTransformer,
    RandomState,
    TrainedEstimator,
    check_array,
    check_is_fitted,
    of_type,
    validate_data,
)
from kikuchi.training.rows import check_values, is_sparse
from kikuchi.training.rule import Rule
from kikuchi.training.trainer import Training, limited_threads

Array = NDArray[Any]
Limits = tuple[float, float]

_MOST_RECONSTRUCTED = 1000  # rows by which the remark on reconstructions is decided
_UNLEARNT = "rows are reconstructed no better"
_LEARNT = 1.0  # share of the spread that reconstructions must be below
_BURN_IN = 1000  # steps of the chains that `sample` draws from


class MachineResults:
    """What fitting a machine leaves behind besides `FitResults`."""

    machine_: Machine
    limits_: Limits | None
    log_z_: float | None


@dataclass(eq=False, repr=False)
class MachineEstimator(MachineResults, FeatureTransformer, TrainedEstimator):
    """Base of the estimators; see `RBM` for the attributes."""

    model_attribute: ClassVar[str] = "machine_"
    model_class: ClassVar[Any] = Machine

    n_hidden: int = option(100, "Number of hidden units.", low=0)
    _: KW_ONLY
    limits: Sequence[float] | str | None = option(
        None,
        "Values of the data that stand for the smallest and the largest state, such as (0, 255); "
        '"data": the smallest and the largest that `fit` saw; "strict": data are states, others '
        "are refused; none: data are states, unless `fit` sees others, which are then scaled as by "
        '"data", with a warning.',
    )
    dtype: Literal["float32", "float64"] = option("float32", "Type of the numbers.")

    # ------------------------------------------------------------------ learning

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn from rows, from the beginning (or from the checkpoint, if there is one)."""
        super().fit(X, y)
        for text in self.warnings_:
            if text.startswith(_UNLEARNT):
                warnings.warn(f"{type(self).__name__}: {text}", ConvergenceWarning, stacklevel=2)
        return self

    def _keep(self, training: Training[Machine], rng: np.random.Generator) -> None:
        super()._keep(training, rng)
        self.log_z_ = None
        self.__dict__.pop("log_z_answer_", None)  # that of the machine before

    # ------------------------------------------------------------------ rows

    def _units(self) -> Units:
        """Kind of the visible units."""
        return parse_units("binary")

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        """Rows as states of the visible units in the machine's dtype, dense or CSR, checked."""
        rows = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.dtype(self.dtype))
        if reset:
            self.limits_ = self._limits_of(rows)
        units = self._units()
        if self.limits_ is None:
            told = f"of {units.name} units; scale the data, give limits, or use visible=gaussian"
            check_values(rows, units.limits, told)
            return rows
        if self.limits is not None and self.limits != "data":
            check_values(rows, self.limits_, "of the limits given; scale the data")
        return self._to_states(rows)

    def _limits_of(self, rows: Any) -> Limits | None:
        """The values that stand for the smallest and the largest state; None: states themselves."""
        strict = isinstance(self.limits, str) and self.limits == "strict"
        if strict or (self.limits is None and not self._must_be_scaled(rows)):
            return None
        if not np.all(np.isfinite(self._units().limits)):
            raise MethodError(f"{self._units().name} units have no limits: standardise the data")
        if self.limits is None or (isinstance(self.limits, str) and self.limits == "data"):
            low, high = float(rows.min()), float(rows.max())
            return low, high if high > low else low + 1.0
        try:
            low, high = (float(value) for value in self.limits)
        except (TypeError, ValueError):
            low = high = np.nan
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise MethodError(
                f"limits must be two rising numbers, 'data', 'strict' or None, got {self.limits!r}"
            )
        return low, high

    def _must_be_scaled(self, rows: Any) -> bool:
        """Whether rows have values that are no states, of which there is a warning then."""
        first, last = self._units().limits
        low, high = float(rows.min()), float(rows.max())
        if first <= low and high <= last:
            return False
        warnings.warn(
            f"{type(self).__name__}: values from {low:g} to {high:g} were scaled to the states "
            f"{first:g} to {last:g} of {self._units().name} units; say limits='data' or two "
            "numbers if that is meant, limits='strict' to refuse them",
            stacklevel=6,
        )
        return True

    def _remarks(self, rows: Any) -> list[str]:
        """A reconstruction that is no better than the mean of the rows."""
        m = self.machine_
        if m.visible_weights is not None or m.hidden_weights is not None:
            return []  # what units of a side tell each other is not in a reconstruction
        some = rows[: min(rows.shape[0], _MOST_RECONSTRUCTED)]
        some = np.asarray(some.toarray() if is_sparse(some) else some)
        if len(some) < 2 or not self.machine_.n_hidden or not np.any(np.std(some, axis=0)):
            return []
        again = self._visible_means(self._hidden_means(some))
        error = float(np.mean((again - some) ** 2))
        spread = float(np.mean(np.var(some, axis=0)))
        if error < _LEARNT * spread:
            return []
        return [
            f"{_UNLEARNT} (mean square error {error:.3g}) than by their mean "
            f"({spread:.3g}): the machine has learnt little of what they share; give more epochs, "
            "hidden units or another learning_rate"
        ]

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
        """Means of the hidden units given each row of `X` (rows, visible units)."""
        rows = self._dense(X)
        with limited_threads(self.threads):
            return self._hidden_means(rows)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Means of the visible units given `X`, rows of hidden means (rows, hidden units)."""
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
        """Means of the visible units given the hidden means of each row of `X`."""
        return self.inverse_transform(self.transform(X))

    def free_energy(self, X: Any) -> Array:
        """Minus the logarithm of the sum of exp(-E) over hidden states, for each row of `X`."""
        rows = self._dense(X)
        with limited_threads(self.threads):
            return self._free_energies(rows)

    def score_samples(self, X: Any) -> Array:
        """Log-likelihood of each row of `X`: minus the free energy minus log Z.

        As long as `log_z` has not been called since the last fit, log Z is unknown and left out:
        scores of one machine can then be compared with each other, but not with other machines.
        """
        scores: Array = -self.free_energy(X)
        return scores if self.log_z_ is None else scores - self.log_z_

    def score(self, X: Any, y: object = None) -> float:
        """Mean of `score_samples` over the rows of `X`; `y` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def log_z(self, method: Literal["exact", "ais"] = "ais", **options: Any) -> float:
        """Logarithm of the partition function, by the `method` "exact" (enumeration) or "ais"
        (annealed importance sampling), whose `options` are those of `kikuchi.boltzmann.ais`; its
        `random_state` is that of the estimator if none is given.

        The answer is kept in `log_z_`, so that `score_samples` gives log-likelihoods from now on;
        the whole answer of `ais` (its bracket, what it can promise) in `log_z_answer_`.
        """
        from kikuchi.boltzmann.annealed_sampling import ais

        check_is_fitted(self, "machine_")
        if method not in ("exact", "ais"):
            raise MethodError(f"method must be 'exact' or 'ais', got {method!r}")
        with limited_threads(self.threads):
            if method == "exact":
                self.log_z_answer_: Any = exact(self.machine_)
                self.log_z_ = self.log_z_answer_.log_z
            else:
                options.setdefault("random_state", self.random_state)
                self.log_z_answer_ = ais(self.machine_, **options)
                self.log_z_ = float(self.log_z_answer_.estimate)
        return float(self.log_z_)

    def sample(
        self, n_samples: int = 1, steps: int = _BURN_IN, *, random_state: RandomState = None
    ) -> Array:
        """`n_samples` rows drawn by Gibbs chains of `steps` steps, each begun at random hidden
        states.

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

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays, facts, about = super()._fitted_state()
        answer = getattr(self, "log_z_answer_", None)
        if isinstance(answer, LogZ):
            arrays |= prefixed(answer.to_arrays(), "log_z")
            about["log_z_answer"] = answer.describe()
        elif answer is not None:
            arrays |= prefixed(answer.statistics, "log_z_statistics")
        return arrays, facts, {**about, "log_z": self.log_z_, "limits": self.limits_}

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        self.n_features_in_ = self.machine_.n_visible
        self.log_z_ = None if about["log_z"] is None else of_type(about, "log_z", float)
        if "log_z_answer" in about:
            self.log_z_answer_ = LogZ.restored(part(arrays, "log_z"), about["log_z_answer"])
        elif self.log_z_ is not None and (held := part(arrays, "log_z_statistics")):
            self.log_z_answer_ = ExactStatistics(self.log_z_, held)
        limits = about.get("limits")
        if limits is not None:
            low, high = of_type(about, "limits", list)
            limits = float(low), float(high)
        self.limits_ = limits

    # ------------------------------------------------------------------ conventions

    @property
    def _n_features_out(self) -> int:
        return self.machine_.n_hidden

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        strict = isinstance(self.limits, str) and self.limits == "strict"
        tags.input_tags.positive_only = strict and self._units().limits[0] >= 0
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class LearnerEstimator(MachineEstimator):
    """What machines share that any rule may learn, from small random weights."""

    learner: str = option(
        "pcd:k=1", 'Learning rule such as "pcd:k=1"; see `kikuchi learners --machines`.'
    )
    start: Literal["means", "zero"] = option(
        "means", "Visible biases at the start: those of the means of the data, or 0."
    )
    scale: float = option(0.01, "Standard deviation of the first weights.", low=0)

    def _rule(self, model: Any) -> Rule[Machine]:
        return parse_rule(self.learner)

    def _begin(self, rows: Any, rng: np.random.Generator) -> Machine:
        machine = Machine.random(
            rows.shape[1],
            self.n_hidden,
            scale=self.scale,
            dtype=np.dtype(self.dtype),
            random_state=rng,
            **self._structure(),
        )
        if self.start == "means":
            machine.visible_bias[...] = machine.mean_biases(rows)
        return machine

    @abstractmethod
    def _structure(self) -> dict[str, Any]:
        """Architecture and units, as `Machine.random` takes them."""


class RestrictedMachine(MachineResults):
    """How estimators of restricted machines compute: one product, then one function per unit."""

    @property
    def components_(self) -> Array:
        """Weights, one row per hidden unit."""
        check_is_fitted(self, "machine_")
        return self.machine_.weights.T

    def _hidden_means(self, rows: Array) -> Array:
        return Layers(self.machine_).hidden(rows, None).mean

    def _visible_means(self, hidden: Array) -> Array:
        return Layers(self.machine_).visible(hidden, None).mean

    def _free_energies(self, rows: Array) -> Array:
        m = self.machine_
        sums = np.asarray(Layers(m).hidden(rows, None).log_sums)
        wide = np.float64  # the answer of a row must not depend on the rows beside it
        energies: Array = -(rows.astype(wide) @ m.visible_bias.astype(wide)) - sums
        if not isinstance(m.visible, BinaryUnits):
            energies -= np.sum(m.visible.log_base(rows), axis=1, dtype=np.float64)
        return energies
