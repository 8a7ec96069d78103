"""`RateCodedRBM`: restricted machine whose units count how many of their replicas are on (TEH-M9).

A visible unit stands for n binary units with the same weights, a hidden one for m; only the shares
of them that are on matter. So grey values are modelled as rates, without noise of single bits.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.optimiser import Sgd
from kikuchi.boltzmann.rate_rule import RateCodedDivergence
from kikuchi.boltzmann.training import Training, limited_threads, train
from kikuchi.boltzmann.units import Binomial
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi.core.progress import Progress, silent
from kikuchi.core.run import Run
from kikuchi.core.seeds import generator
from kikuchi.core.trace import Trace

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError(
        "rate-coded machines need scikit-learn; run: pip install 'kikuchi[learn]'"
    ) from None

Array = NDArray[Any]
Limits = tuple[float, float]

_SCALE, _HIDDEN_START = 1e-4, -0.5
# Weights that can only add begin so that a mean row raises the fields of hidden units from a low
# start to about -0.5: with fewer or more of their replicas on, most units are soon off for good.
_FIRST_RISE, _LOW_START = 3.5, -4.0
_DEAD = 1e-3  # spread over the data below which a hidden unit says nothing


class RateCodedRBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Rate-coded restricted Boltzmann machine, learnt by TEH-L9 (TEH-M9, M10).

    Parameters
    ----------
    n_hidden: number of hidden units.
    visible_replicas, hidden_replicas: binary units that one unit stands for.
    nonnegative: hold weights at 0 or above, which makes features local parts (TEH-M10).
    learning_rate: of weights between single replicas; biases go `bias_factor` times as fast. The
        thesis used 0.0025 in the end; large steps while weights are still random may switch all
        hidden units off, which `warnings_` tells.
    momentum, batch_size, epochs: of the training; one epoch sees all rows once.
    scale: spread of the first weights; None: 0.0001, or where they are non-negative as large as
        raises the fields of hidden units by 3.5 for a mean row.
    hidden_start: hidden biases at the start; None: -0.5, or -4 where weights are non-negative.
    limits: the values of X that stand for no replica and for all of them, or "data": the smallest
        and the largest of the rows that `fit` saw.
    dtype: "float32" or "float64". threads: of matrix products. seconds: time limit of `fit`.
    checkpoint: file that holds the training so far; an interrupted one goes on from there.
    progress: told how far the training is.
    random_state: seed.

    Attributes: `machine_` (weights are those between two replicas), `trace_`, `n_iter_` (epochs),
    `stopped_`, `warnings_`, `limits_`.

    >>> rows = np.repeat([[0.9, 0.8, 0.1], [0.1, 0.2, 0.9]], 40, axis=0)
    >>> rbm = RateCodedRBM(2, learning_rate=0.05, epochs=200, random_state=0).fit(rows)
    >>> rbm.transform(rows[:1]).shape
    (1, 2)
    >>> bool(np.abs(rbm.reconstruct(rows) - rows).max() < 0.1)
    True
    """

    def __init__(
        self,
        n_hidden: int = 100,
        *,
        visible_replicas: int = 10,
        hidden_replicas: int = 100,
        nonnegative: bool = False,
        learning_rate: float = 2.5e-4,
        bias_factor: float = 2.0,
        momentum: float = 0.95,
        batch_size: int = 100,
        epochs: int = 250,
        scale: float | None = None,
        hidden_start: float | None = None,
        limits: Limits | Literal["data"] = (0.0, 1.0),
        dtype: str = "float32",
        threads: int | None = 1,
        seconds: float | None = None,
        checkpoint: str | None = None,
        progress: Progress | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.visible_replicas = visible_replicas
        self.hidden_replicas = hidden_replicas
        self.nonnegative = nonnegative
        self.learning_rate = learning_rate
        self.bias_factor = bias_factor
        self.momentum = momentum
        self.batch_size = batch_size
        self.epochs = epochs
        self.scale = scale
        self.hidden_start = hidden_start
        self.limits = limits
        self.dtype = dtype
        self.threads = threads
        self.seconds = seconds
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    # ------------------------------------------------------------------ learning

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn from rows whose values lie within the limits."""
        rows = self._rows(X, reset=True)
        self.limits_ = self._limits_of(rows)
        shares = self._shares(rows)
        rng = generator(self.random_state)
        self._train(self._start(shares, rng), shares, rng, self.epochs)
        return self

    def partial_fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn from these rows once more, from the machine as it is."""
        if not hasattr(self, "machine_"):
            rows = self._rows(X, reset=True)
            self.limits_ = self._limits_of(rows)
            rng = generator(self.random_state)
            machine = self._start(self._shares(rows), rng)
            before = 0
        else:
            rows, machine, rng, before = self._rows(X), self.machine_, self._rng, self.n_iter_
        self._train(machine, self._shares(rows), rng, 1)
        self.n_iter_ += before
        return self

    def _train(
        self, machine: Machine, shares: Array, rng: np.random.Generator, epochs: int
    ) -> None:
        rule = RateCodedDivergence(bias_factor=self.bias_factor, nonnegative=self.nonnegative)
        training = train(
            machine,
            shares * machine.dtype.type(self.visible_replicas),
            rule,
            optimiser=Sgd(learning_rate=self.learning_rate, momentum=self.momentum),
            epochs=epochs,
            batch_size=self.batch_size,
            rng=rng,
            run=Run(Budget(seconds=self.seconds).start(), self.progress or silent, Trace()),
            checkpoint=self.checkpoint,
            threads=self.threads,
        )
        self._rng = rng
        self._keep(training, shares)

    def _keep(self, training: Training, shares: Array) -> None:
        self.machine_ = training.machine
        self.trace_ = training.trace
        self.n_iter_ = training.epochs
        self.stopped_ = training.stopped
        self.warnings_ = list(training.warnings)
        dead = int(np.sum(np.std(self._rates(shares), axis=0) < _DEAD))
        if len(shares) > 1 and dead > 0.9 * self.n_hidden:
            self.warnings_.append(
                f"{dead} of {self.n_hidden} hidden units answer all rows alike: the machine has "
                "collapsed; lower learning_rate or scale"
            )

    def _start(self, shares: Array, rng: np.random.Generator) -> Machine:
        """Small random weights, and visible biases with which a mean row gives the mean again."""
        machine = Machine.random(
            shares.shape[1],
            self.n_hidden,
            scale=self._first_scale(shares) if self.scale is None else self.scale,
            visible=Binomial(replicas=self.visible_replicas),
            hidden=Binomial(replicas=self.hidden_replicas),
            dtype=shares.dtype,
            random_state=rng,
        )
        if self.nonnegative:
            np.abs(machine.weights, out=machine.weights)
        start = _LOW_START if self.nonnegative else _HIDDEN_START
        machine.hidden_bias[...] = start if self.hidden_start is None else self.hidden_start
        mean = np.clip(shares.mean(axis=0, keepdims=True), 0.01, 0.99)
        hidden = machine.hidden.mean(machine.hidden_field(self.visible_replicas * mean))
        from_hidden = machine.visible_field(hidden)  # the visible biases are still 0
        machine.visible_bias[...] = (np.log(mean / (1 - mean)) - from_hidden)[0]
        return machine

    def _first_scale(self, shares: Array) -> float:
        if not self.nonnegative:
            return _SCALE
        mean_size = np.sqrt(2 / np.pi)  # of a standard normal number
        total = self.visible_replicas * float(shares.mean(axis=0).sum()) * mean_size
        return float(_FIRST_RISE / max(total, 1.0))

    # ------------------------------------------------------------------ using

    def transform(self, X: ArrayLike) -> Array:
        """Expected share of the replicas of each hidden unit that are on, in [0, 1]."""
        check_is_fitted(self)
        return self._rates(self._shares(self._rows(X)))

    def inverse_transform(self, H: ArrayLike) -> Array:
        """Expected values of the visible units given shares of the hidden ones."""
        check_is_fitted(self)
        machine = self.machine_
        hidden = np.asarray(H, dtype=machine.dtype)
        if hidden.ndim != 2 or hidden.shape[1] != machine.n_hidden:
            raise DataError(f"rows of {machine.n_hidden} shares are needed, got {hidden.shape}")
        with limited_threads(self.threads):
            field = machine.visible_field(hidden * machine.dtype.type(self.hidden_replicas))
        low, high = self.limits_
        rates = machine.visible.mean(field) / machine.dtype.type(self.visible_replicas)
        result: Array = low + (high - low) * rates
        return result

    def reconstruct(self, X: ArrayLike) -> Array:
        """X through the expected rates of the hidden units and back."""
        return self.inverse_transform(self.transform(X))

    def score_samples(self, X: ArrayLike) -> Array:
        """log P of each row up to the constant log Z: minus the free energy (TEH-M9)."""
        check_is_fitted(self)
        machine = self.machine_
        counts = self._shares(self._rows(X)).astype(np.float64) * self.visible_replicas
        with limited_threads(self.threads):
            field = machine.hidden_field(counts)
        inside = np.clip(counts, 0, self.visible_replicas)
        total: Array = counts @ machine.visible_bias.astype(np.float64)
        total += np.sum(machine.visible.log_base(inside), axis=1)
        total += np.sum(machine.hidden.log_partition(field), axis=1)
        return total

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Minus the mean squared error of the reconstruction."""
        rows = self._rows(X) if hasattr(self, "machine_") else X
        return -float(np.mean((self.reconstruct(rows) - rows) ** 2))

    def sample(self, n_samples: int = 1, *, steps: int = 100, seed: int | None = None) -> Array:
        """Rows drawn by `steps` of block Gibbs sampling, from hidden units at their biases."""
        check_is_fitted(self)
        if n_samples < 1 or steps < 1:
            raise MethodError(f"n_samples and steps must be positive, got {n_samples}, {steps}")
        rng, machine = generator(seed), self.machine_
        hidden = machine.hidden.draw(np.tile(machine.hidden_bias, (n_samples, 1)), rng)
        with limited_threads(self.threads):
            for _ in range(steps):
                visible = machine.visible.draw(machine.visible_field(hidden), rng)
                hidden = machine.hidden.draw(machine.hidden_field(visible), rng)
        low, high = self.limits_
        result: Array = low + (high - low) * visible / self.visible_replicas
        return result

    @property
    def _n_features_out(self) -> int:
        return int(self.machine_.n_hidden)

    def _rates(self, shares: Array) -> Array:
        machine = self.machine_
        with limited_threads(self.threads):
            field = machine.hidden_field(shares * machine.dtype.type(self.visible_replicas))
        rates: Array = machine.hidden.mean(field) / machine.dtype.type(self.hidden_replicas)
        return rates

    # ------------------------------------------------------------------ data

    def _rows(self, X: ArrayLike, *, reset: bool = False) -> Array:
        if self.dtype not in ("float32", "float64"):
            raise MethodError(f"dtype must be float32 or float64, got {self.dtype!r}")
        rows: Array = validate_data(self, X, reset=reset, dtype=np.float64)
        return rows

    def _limits_of(self, rows: Array) -> Limits:
        """The values that stand for no replica and for all."""
        if isinstance(self.limits, str) and self.limits == "data":
            low, high = float(rows.min()), float(rows.max())
            return low, high if high > low else low + 1.0
        try:
            low, high = (float(value) for value in self.limits)
        except (TypeError, ValueError):
            low = high = np.nan
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise MethodError(f"limits must be two rising numbers or 'data', got {self.limits!r}")
        return low, high

    def _shares(self, rows: Array) -> Array:
        """Rows as shares of replicas; values outside given limits are refused."""
        low, high = self.limits_
        if not isinstance(self.limits, str):
            bad = np.argwhere((rows < low) | (rows > high))
            if len(bad):
                row, column = bad[0]
                raise DataError(
                    f"data: row {row}, column {column} is {rows[row, column]:g}, outside "
                    f"[{low:g}, {high:g}]; scale the data or give limits"
                )
        shares: Array = ((rows - low) / (high - low)).astype(self.dtype)
        return shares

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # answers have the dtype of the machine
        tags.non_deterministic = False
        return tags
