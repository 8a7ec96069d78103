"""What estimators of machines share: states, energies, files. References: TEH-I11, WH-I1, WH-M1."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from kikuchi.boltzmann.exact import (
    all_visible_states,
    clamped,
    exact,
    side_states,
    sum_of_rows,
    visible_states,
)
from kikuchi.boltzmann.layers import Layers
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.pseudo import pseudo_log_likelihood
from kikuchi.boltzmann.rules import parse_rule
from kikuchi.boltzmann.sampling_report import ChainRecord, SamplingReport
from kikuchi.boltzmann.units import BinaryUnits, Units, parse_units
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.log import warn_caller
from kikuchi.core.numerics import logsumexp
from kikuchi.core.options import option
from kikuchi.core.progress import silent
from kikuchi.core.run import Run
from kikuchi.core.seeds import generator
from kikuchi.core.trace import Trace
from kikuchi.engines.sampling.annealing import LogZ
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
from kikuchi.training.likelihoods import RowLikelihoods, keep_log_z
from kikuchi.training.rows import check_values, is_sparse
from kikuchi.training.rule import Rule
from kikuchi.training.trainer import Training, limited_threads

Array = NDArray[Any]
Limits = tuple[float, float]

_MOST_RECONSTRUCTED = 1000  # rows by which the remark on reconstructions is decided
_UNLEARNT = "rows are reconstructed no better"
_LEARNT = 1.0  # share of the spread that reconstructions must be below
_FROM_CHAINS, _FROM_ROWS = 100, 1000  # steps of `sample` from persistent chains and from rows
_CHAINS_TESTED = 20  # chains from which on `sample` tests whether they are at equilibrium
_DRIFT_RISK = 5e-5  # probability of a false alarm of that test, on either side
_KEPT_ROWS = 500  # training rows at which chains of `sample` and `log_z` begin
_MOST_SCORED = 2**16  # states of the visible units over which `score` sums
_MOST_SUMMED = 2**20  # states of a side over which `log_z` sums by itself


class MachineResults:
    """What fitting a machine leaves behind besides `FitResults`."""

    model_: Machine
    limits_: Limits | None
    log_z_: LogZ
    sampling_: SamplingReport


@dataclass(eq=False, repr=False)
class MachineEstimator(MachineResults, FeatureTransformer, TrainedEstimator):
    """Base of the estimators; see `RBM` for the attributes."""

    model_class: ClassVar[Any] = Machine

    n_components: int = option(100, "Number of hidden units.", low=0)
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
                warn_caller(f"{type(self).__name__}: {text}", ConvergenceWarning)
        return self

    def _keep(self, training: Training[Machine], rng: np.random.Generator) -> None:
        super()._keep(training, rng)
        for name in ("log_z_", "_normaliser", "sampling_"):  # those of the machine before
            self.__dict__.pop(name, None)
        self._kept_chains = self._chains_of(training)

    def _chains_of(self, training: Training[Machine]) -> Array:
        """Visible states of the persistent chains of the training; no rows if there were none."""
        m, state = training.model, training.state
        hidden = None if state is None else state.rule.get("hidden")
        if hidden is None or hidden.dtype != m.dtype:  # single bytes: chains that belong to rows
            return np.empty((0, m.n_visible), m.dtype)
        start = state.rule.get("visible") if state is not None else None
        rng = np.random.default_rng(0)
        drawn = Layers(m).visible(hidden, rng, start=None if start is None else start.copy()).drawn
        return np.array(drawn)

    def _train(self, model: Any, rows: Any, rng: np.random.Generator, *arguments: Any) -> None:
        chosen = np.random.default_rng(0).permutation(rows.shape[0])  # rows may come in some order
        kept = rows[np.sort(chosen[:_KEPT_ROWS])]
        self._kept_rows = np.ascontiguousarray(kept.toarray() if is_sparse(kept) else kept)
        super()._train(model, rows, rng, *arguments)

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
        warn_caller(
            f"{type(self).__name__}: values from {low:g} to {high:g} were scaled to the states "
            f"{first:g} to {last:g} of {self._units().name} units; say limits='data' or two "
            "numbers if that is meant, limits='strict' to refuse them",
        )
        return True

    def _remarks(self, rows: Any) -> list[str]:
        """A reconstruction that is no better than the mean of the rows."""
        m = self.model_
        if m.visible_weights is not None or m.hidden_weights is not None:
            return []  # what units of a side tell each other is not in a reconstruction
        some = rows[: min(rows.shape[0], _MOST_RECONSTRUCTED)]
        some = np.asarray(some.toarray() if is_sparse(some) else some)
        if len(some) < 2 or not self.model_.n_hidden or not np.any(np.std(some, axis=0)):
            return []
        again = self._visible_means(self._hidden_means(some))
        error = float(np.mean((again - some) ** 2))
        spread = float(np.mean(np.var(some, axis=0)))
        if error < _LEARNT * spread:
            return []
        return [
            f"{_UNLEARNT} (mean square error {error:.3g}) than by their mean "
            f"({spread:.3g}): the machine has learnt little of what they share; raise max_iter "
            "or the number of hidden units, or try another learning_rate"
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
        check_is_fitted(self, "model_")
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
        check_is_fitted(self, "model_")
        hidden = check_array(X, dtype=np.dtype(self.dtype), input_name="X")
        if hidden.shape[1] != self.model_.n_hidden:
            raise DataError(
                f"X has {hidden.shape[1]} columns; the machine has {self.model_.n_hidden} hidden "
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

    @property
    def score_kind_(self) -> str:
        """What `score_samples` and `score` are: "log-likelihood" or "pseudo-log-likelihood".

        It depends on the visible units alone, so that scores of machines with other options that
        were fitted to the same columns can be compared.
        """
        check_is_fitted(self, "model_")
        small = visible_states(self.model_) <= _MOST_SCORED
        return "log-likelihood" if small else "pseudo-log-likelihood"

    def score_samples(self, X: Any) -> Array:
        """Return the log-likelihood or the pseudo-log-likelihood of each row of `X`.

        Up to 16 binary columns (65,536 states of the visible units) it is the exact log-likelihood;
        where hidden units are connected, that of the approximation `energy`. Otherwise it is the
        sum of log p(v_i | all other columns). `score_kind_` says which. It does not depend on
        whether `log_z` was called: use `row_likelihoods` for log-likelihoods of larger machines.
        """
        rows = self._dense(X)
        with limited_threads(self.threads):
            if self.score_kind_ == "log-likelihood":
                return np.asarray(self._log_weights(rows) - self._log_normaliser())
            return self._pseudo_log_likelihood(rows)

    def score(self, X: Any, y: object = None) -> float:
        """Return the mean of `score_samples` over the rows of `X`; `y` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def _log_weights(self, rows: Array) -> Array:
        """Minus the free energies of rows, in double precision where they are exact."""
        if self.model_.hidden_weights is None:
            return clamped(self.model_, rows).log_weights
        return -self._free_energies(rows)

    def _log_normaliser(self) -> float:
        """log of the sum of exp(-free energy) over all states of the visible units."""
        if not hasattr(self, "_normaliser"):
            m = self.model_
            if m.hidden_weights is None:
                self._normaliser = exact(m).log_z
            else:
                states = all_visible_states(m).astype(m.dtype)
                self._normaliser = float(logsumexp(-self._free_energies(states)))
        return self._normaliser

    def _pseudo_log_likelihood(self, rows: Array) -> Array:
        m = self.model_
        energies = None if m.hidden_weights is None else self._free_energies
        return pseudo_log_likelihood(m, rows, energies)

    def log_z(
        self,
        method: Literal["auto", "exact", "ais"] = "auto",
        *,
        data: Any = None,
        seconds: float | None = None,
        **options: Any,
    ) -> LogZ:
        """Return log Z, the logarithm of the partition function; it is kept in `log_z_`.

        A bracket that is not reliable is a warning, and its reasons are listed in `warnings_`.

        Parameters
        ----------
        method : "exact" (enumeration of one layer), "ais" (annealed importance sampling, which
            gives a bracket), or "auto": exact where a layer has up to about 20 binary units.
        data : rows like those of the training, for "ais"; by default the training rows that the
            estimator keeps (500 at most). They make the bracket narrower.
        seconds : time limit of "ais".
        options : further options of `kikuchi.boltzmann.ais`, such as betas=10000; `random_state` is
            that of the estimator if it is not given.
        """
        from kikuchi.boltzmann.annealed_sampling import ais

        check_is_fitted(self, "model_")
        if method not in ("auto", "exact", "ais"):
            raise MethodError(f"method must be 'auto', 'exact' or 'ais', got {method!r}")
        if method == "auto":
            method = "exact" if side_states(self.model_) <= _MOST_SUMMED else "ais"
        with limited_threads(self.threads):
            if method == "exact":
                found = LogZ.exact(exact(self.model_).log_z)
            else:
                options.setdefault("random_state", self.random_state)
                run = Run(Budget(seconds=seconds).start(), silent, Trace("log Z"))
                rows = self._kept_rows if data is None else self._dense(data)
                found = ais(self.model_, data=rows, run=run, **options)
        keep_log_z(self, found)
        return found

    def row_likelihoods(
        self, X: Any, method: Literal["auto", "exact", "ais"] = "auto", **options: Any
    ) -> RowLikelihoods:
        """Return the log-likelihood of each row of `X`, minus free energy minus log Z, with bounds.

        The sum of exp(-F) over distinct rows is a lower bound on Z: where the rows prove more than
        the bracket of log Z says, it is raised for this answer, with a warning. Where hidden units
        are connected, free energies of rows are those of the approximation `energy`, and the bounds
        are those of log Z alone.

        Parameters
        ----------
        X : rows of data.
        method : "exact" or "ais" compute log Z anew, with the `options` of `log_z`; "auto" takes
            that of the last `log_z`, or else computes it as `log_z` does.
        """
        rows = self._dense(X)
        if method != "auto" or options or not hasattr(self, "log_z_"):
            self.log_z(method, **options)
        found = self._raised(rows)
        with limited_threads(self.threads):
            weights = self._log_weights(rows)
        return RowLikelihoods(
            weights - found.estimate, weights - found.upper, weights - found.lower,
            found.confidence, warnings=[] if found.reliable else list(found.warnings),
        )  # fmt: skip

    def _raised(self, rows: Array) -> LogZ:
        """log Z with ends that the distinct rows do not contradict."""
        found, m = self.log_z_, self.model_
        if found.stopped == "exact" or m.hidden_weights is not None:
            return found
        proven = sum_of_rows(m, rows)
        if proven <= found.lower:
            return found
        if proven > found.estimate:
            warn_caller(
                f"{type(self).__name__}: log Z is at least {proven:.4f} by the weights of these "
                f"rows, but was estimated as {found.estimate:.4f}; call log_z('ais', data=X, "
                "betas=10000)",
                ConvergenceWarning,
            )
        upper = found.upper if proven <= found.upper else np.inf
        return replace(found, lower=proven, estimate=max(proven, found.estimate), upper=upper)

    def score_bounds(self, X: Any) -> tuple[float, float]:
        """Return the mean log-likelihood of the rows of `X` by the upper and by the lower end of
        the bracket on log Z, as of `row_likelihoods`.
        """
        return self.row_likelihoods(X).mean_bounds()

    def sample(
        self, n_samples: int = 1, *, steps: int | None = None, random_state: RandomState = None,
        return_latents: bool = False,
    ) -> Any:  # fmt: skip
        """Draw `n_samples` rows by Gibbs chains that begin where the persistent chains of
        the training ended, or else at training rows (of the 500 at most that the estimator keeps).

        `sampling_` reports on the chains: where they began, and by R-hat whether each of them has
        visited what the others have. Chains that have not stay near the modes where they began:
        the shares of the modes are then those of the training's chains or rows, and need not be
        those of the machine. A warning is issued if the free energies of the chains, or the sums of
        their visible units, still change between half of the steps and the last one (from 20
        chains on). `kikuchi.boltzmann.gibbs_chains.TemperedChains` move between distant modes.

        Parameters
        ----------
        n_samples : number of rows, one chain for each.
        steps : Gibbs steps of each chain; by default 100 from persistent chains, 1000 from rows.
        random_state : seed; without it the generator of the fit goes on.
        return_latents : whether to return the pair of rows and states of the hidden units.
        """
        check_is_fitted(self, "model_")
        persistent = len(self._kept_chains) > 0
        if steps is None:
            steps = _FROM_CHAINS if persistent else _FROM_ROWS
        for name, value in (("n_samples", n_samples), ("steps", steps)):
            if value < 1:
                raise MethodError(f"{name} must be at least 1, got {value!r}")
        machine = self.model_
        rng = self._rng if random_state is None else generator(random_state)
        layers = Layers(machine)
        starts = self._kept_chains if persistent else self._kept_rows
        visible = starts[np.resize(rng.permutation(len(starts)), n_samples)]
        hidden = machine.hidden.draw(np.zeros((n_samples, machine.n_hidden), machine.dtype), rng)
        record = ChainRecord(self._kept_rows, steps)
        with limited_threads(self.threads):
            before = visible
            for step in range(steps):
                before = visible.copy() if step == (steps + 1) // 2 else before
                hidden = layers.hidden(visible, rng, start=hidden).drawn
                visible = layers.visible(hidden, rng, start=visible).drawn
                record.add(step, visible)
            where = "persistent chains" if persistent else "training rows"
            self.sampling_ = SamplingReport(where, n_samples, steps, record.r_hat())
            self._check_drift(np.asarray(before), np.asarray(visible), steps)
        rows = np.array(self._to_data(np.asarray(visible)))
        return (rows, np.array(hidden)) if return_latents else rows

    def _check_drift(self, before: Array, after: Array, steps: int) -> None:
        """Warn if free energies or sums of the visible units change from `before` to `after` by
        more than chance: at equilibrium they do not change on average.
        """
        count = len(after)
        if count < _CHAINS_TESTED:
            return
        changes = {
            "free energies": self._free_energies(after) - self._free_energies(before),
            "sums of visible units": np.sum(after - before, axis=1),
        }
        for name, change in changes.items():
            error = float(np.std(change, ddof=1)) / count**0.5
            drift = float(np.mean(change))
            if abs(drift) > float(stdtrit(count - 1, 1.0 - _DRIFT_RISK)) * error:
                warn_caller(
                    f"{type(self).__name__}: the chains of sample have not reached equilibrium: "
                    f"their {name} changed by {drift:+.3g} on average between step "
                    f"{(steps + 1) // 2} and step {steps}; raise steps",
                    ConvergenceWarning,
                )
                return

    @abstractmethod
    def _hidden_means(self, rows: Array) -> Array: ...

    @abstractmethod
    def _visible_means(self, hidden: Array) -> Array: ...

    @abstractmethod
    def _free_energies(self, rows: Array) -> Array: ...

    # ------------------------------------------------------------------ files

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays, facts, about = super()._fitted_state()
        arrays["kept_rows"] = _compact(self._kept_rows)
        if len(self._kept_chains):
            arrays["kept_chains"] = _compact(self._kept_chains)
        if hasattr(self, "log_z_"):
            arrays |= prefixed(self.log_z_.to_arrays(), "log_z")
            about["log_z"] = self.log_z_.describe()
        return arrays, facts, {**about, "limits": self.limits_}

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        self.n_features_in_ = self.model_.n_visible
        self._kept_rows = self._restored_rows(arrays["kept_rows"])
        self._kept_chains = self._kept_rows[:0]
        if "kept_chains" in arrays:
            self._kept_chains = self._restored_rows(arrays["kept_chains"])
        if "log_z" in about:
            self.log_z_ = LogZ.restored(part(arrays, "log_z"), about["log_z"])
        limits = about.get("limits")
        if limits is not None:
            low, high = of_type(about, "limits", list)
            limits = float(low), float(high)
        self.limits_ = limits

    def _restored_rows(self, held: Array) -> Array:
        """Training rows of a file, checked."""
        m = self.model_
        rows: Array = np.asarray(held, dtype=m.dtype)
        if rows.ndim != 2 or rows.shape[1] != m.n_visible or not len(rows):
            raise DataError(f"rows of shape {rows.shape} for {m.n_visible} visible units")
        low, high = m.visible.limits
        if not np.all(np.isfinite(rows) & (low <= rows) & (rows <= high)):
            raise DataError(f"its rows are not states of {m.visible.name} units")
        return rows

    # ------------------------------------------------------------------ conventions

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_hidden

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        strict = isinstance(self.limits, str) and self.limits == "strict"
        tags.input_tags.positive_only = strict and self._units().limits[0] >= 0
        return tags


def _compact(rows: Array) -> Array:
    """Rows in single bytes, where that loses nothing."""
    small = rows.astype(np.uint8) if rows.min() >= 0 and rows.max() <= 255 else rows
    return small if np.array_equal(small, rows) else rows


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
            self.n_components,
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
        check_is_fitted(self, "model_")
        return self.model_.weights.T

    def _hidden_means(self, rows: Array) -> Array:
        return Layers(self.model_).hidden(rows, None).mean

    def _visible_means(self, hidden: Array) -> Array:
        return Layers(self.model_).visible(hidden, None).mean

    def _free_energies(self, rows: Array) -> Array:
        m = self.model_
        sums = np.asarray(Layers(m).hidden(rows, None).log_sums)
        wide = np.float64  # the answer of a row must not depend on the rows beside it
        energies: Array = -(rows.astype(wide) @ m.visible_bias.astype(wide)) - sums
        if not isinstance(m.visible, BinaryUnits):
            energies -= np.sum(m.visible.log_base(rows), axis=1, dtype=np.float64)
        return energies
