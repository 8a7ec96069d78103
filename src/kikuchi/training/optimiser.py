"""Optimisers of the trainer: gradient ascent with momentum as one fused loop, others from optax.

A specification string describes an optimiser:
`sgd:learning_rate=0.05,momentum=0.9,weight_decay=1e-4` or
`adam:learning_rate=0.001,schedule=cosine`. Weight decay applies to weights, not to biases: arrays
of two or more dimensions are weights, vectors and scalars are biases.

NumPy parameters are modified in place by an `Updater`; losses in JAX use `Optimiser.transform`
within their compiled loop. Only this module uses optax.

Reference: WH-L4.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.options import Configured, Registry, option
from kikuchi.training.model import Parameters, Trainable

Array = NDArray[Any]
Arrays = dict[str, Array]


# ---------------------------------------------------------------------- schedules


@dataclass(frozen=True)
class RateSchedule(Configured, ABC, kind="schedule"):
    """The schedule of the learning rate, equal to that of optax with the same name."""

    needs_end: ClassVar[bool] = False  # whether the schedule depends on the number of epochs

    @abstractmethod
    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """Return the schedule for optax: a number or a function of the update."""

    def rates(self, rate: float, per_epoch: int, epochs: int, epoch: int) -> Array:
        """Return the rates of all updates of one epoch, as float64."""
        schedule = self.optax(rate, per_epoch, epochs)
        import jax

        with jax.enable_x64(True):
            updates = jax.numpy.arange(epoch * per_epoch, (epoch + 1) * per_epoch)
            return np.asarray(schedule(updates), dtype=np.float64)


class ConstantRate(RateSchedule):
    """Constant learning rate."""

    name: ClassVar[str] = "constant"

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """Return the rate as a number."""
        return rate

    def rates(self, rate: float, per_epoch: int, epochs: int, epoch: int) -> Array:
        """Return the constant rates; does not need optax."""
        return np.full(per_epoch, rate)


@dataclass(frozen=True)
class DecayToEnd(RateSchedule):
    """Base class of schedules that reach their last rate in the last epoch."""

    needs_end: ClassVar[bool] = True

    end: float = option(0.0, "last rate as a fraction of the first", low=0)


class LinearDecay(DecayToEnd):
    """Linear decay over all epochs."""

    name: ClassVar[str] = "linear"

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """optax.linear_schedule."""
        return _optax().linear_schedule(rate, self.end * rate, per_epoch * epochs)


class CosineDecay(DecayToEnd):
    """Cosine decay over all epochs."""

    name: ClassVar[str] = "cosine"

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """optax.cosine_decay_schedule."""
        return _optax().cosine_decay_schedule(rate, per_epoch * epochs, alpha=self.end)


@dataclass(frozen=True)
class ExponentialDecay(RateSchedule):
    """Exponential decay: multiplied by a factor over each epoch."""

    name: ClassVar[str] = "exponential"

    factor: float = option(0.95, "factor of the rate per epoch", above=0, high=1)

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """optax.exponential_decay."""
        return _optax().exponential_decay(rate, per_epoch, self.factor)


@dataclass(frozen=True)
class InverseTimeDecay(RateSchedule):
    """Inverse-time decay: divided by 1 + decay times the epoch."""

    name: ClassVar[str] = "inverse-time"

    decay: float = option(0.05, "growth of the divisor per epoch", low=0)

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """Return a function of the update that is constant within an epoch."""
        return lambda count: rate / (1.0 + self.decay * (count // per_epoch))

    def rates(self, rate: float, per_epoch: int, epochs: int, epoch: int) -> Array:
        """Return one rate per epoch; does not need optax."""
        return np.full(per_epoch, rate / (1.0 + self.decay * epoch))


@dataclass(frozen=True)
class WarmupCosineDecay(RateSchedule):
    """Linear warm-up over the first epochs, then cosine decay."""

    name: ClassVar[str] = "warmup-cosine"
    needs_end: ClassVar[bool] = True

    warmup: float = option(1.0, "number of warm-up epochs", low=0)
    end: float = option(0.0, "last rate as a fraction of the highest", low=0)

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """optax.warmup_cosine_decay_schedule."""
        total = per_epoch * epochs
        rising = min(round(self.warmup * per_epoch), total - 1)
        return _optax().warmup_cosine_decay_schedule(
            0.0, rate, rising, total, end_value=self.end * rate
        )


SCHEDULES: Registry[RateSchedule] = Registry(
    "kikuchi.training",
    "schedule",
    {
        cls.name: cls
        for cls in (
            ConstantRate,
            LinearDecay,
            CosineDecay,
            ExponentialDecay,
            InverseTimeDecay,
            WarmupCosineDecay,
        )
    },
)
parse_schedule = SCHEDULES.parse


# ---------------------------------------------------------------------- optimisers


@dataclass(frozen=True)
class Optimiser(Configured, ABC, kind="optimiser"):
    """Base class of the optimisers."""

    learning_rate: float = option(0.05, "initial learning rate", above=0)
    weight_decay: float = option(0.0, "weight decay", low=0)
    schedule: str = option("constant", "schedule of the learning rate: " + ", ".join(SCHEDULES))

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_schedule(self.schedule)

    @abstractmethod
    def start(self, model: Trainable, per_epoch: int, epochs: int) -> Updater:
        """Return the updater of one training, which modifies the NumPy parameters of `model`."""

    @abstractmethod
    def transform(self, per_epoch: int, epochs: int) -> Any:
        """Return the optimiser as a gradient transformation of optax, which minimises."""

    @property
    def rate_schedule(self) -> RateSchedule:
        """The schedule of the learning rate."""
        return parse_schedule(self.schedule)

    def horizon(self, per_epoch: int, epochs: int) -> tuple[int, int]:
        """Return the lengths that a compiled update depends on; (1, 1) for a constant rate."""
        return (1, 1) if self.rate_schedule.name == "constant" else (per_epoch, epochs)


class Updater(ABC):
    """An optimiser applied to the NumPy parameters of one model."""

    def __init__(self, options: Optimiser, model: Trainable, per_epoch: int, epochs: int) -> None:
        self.options = options
        self.model = model
        self._rates = partial(options.rate_schedule.rates, options.learning_rate, per_epoch, epochs)
        self._epoch = -1
        self._current = np.empty(0)

    def rate(self, epoch: int, update: int) -> float:
        """Return the learning rate of an update; `update` is its number within the epoch."""
        if epoch != self._epoch:
            self._epoch, self._current = epoch, self._rates(epoch)
        return float(self._current[update])

    def step(self, ascent: Parameters, epoch: int, update: int) -> float:
        """Move all parameters along `ascent`; return the largest absolute value of a weight, which
        is not finite if any parameter is not.
        """
        largest = 0.0
        for array, size in self._move(ascent, self.rate(epoch, update)):
            if not math.isfinite(size):
                return math.inf
            largest = max(largest, size) if is_weight(array) else largest
        return largest

    @abstractmethod
    def _move(self, ascent: Parameters, rate: float) -> Iterator[tuple[Array, float]]:
        """Move one array after the other; yield the arrays and their largest absolute values."""

    @abstractmethod
    def to_arrays(self) -> Arrays:
        """Return everything that the next step depends on, besides the parameters."""

    @abstractmethod
    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from the result of `to_arrays`."""


def is_weight(array: Any) -> bool:
    """Return whether an array contains weights, to which weight decay applies, and not biases."""
    return bool(array.ndim >= 2)


@dataclass(frozen=True)
class Sgd(Optimiser):
    """Gradient ascent with momentum: velocity = momentum velocity + gradient - decay weights.

    For NumPy parameters the steps are those of `transform`, in one fused loop.
    """

    name: ClassVar[str] = "sgd"
    summary: ClassVar[str] = "stochastic gradient ascent with momentum"

    momentum: float = option(0.0, "momentum", low=0, below=1)
    nesterov: bool = option(False, "use Nesterov momentum")

    def start(self, model: Trainable, per_epoch: int, epochs: int) -> Updater:
        """Return the fused loop."""
        return FusedSgd(self, model, per_epoch, epochs)

    def transform(self, per_epoch: int, epochs: int) -> Any:
        """Return optax.sgd after weight decay."""
        rate = self.rate_schedule.optax(self.learning_rate, per_epoch, epochs)
        made = _optax().sgd(rate, self.momentum or None, nesterov=self.nesterov)
        return _decaying(made, self.weight_decay)


@dataclass(frozen=True)
class OptaxOptimiser(Optimiser):
    """Base class of the optimisers with the same name in optax."""

    decays_beside: ClassVar[bool] = False  # decoupled weight decay

    def start(self, model: Trainable, per_epoch: int, epochs: int) -> Updater:
        """Return an updater with optax's transformation."""
        return OptaxUpdater(self, model, per_epoch, epochs)

    def transform(self, per_epoch: int, epochs: int) -> Any:
        """Return weight decay followed by optax's optimiser."""
        rate = self.rate_schedule.optax(self.learning_rate, per_epoch, epochs)
        make, extra = getattr(_optax(), self.name), self._extra()
        if self.decays_beside:
            return make(rate, weight_decay=self.weight_decay, mask=_weights_only, **extra)
        return _decaying(make(learning_rate=rate, **extra), self.weight_decay)

    def _extra(self) -> dict[str, Any]:
        shared = {"learning_rate", "weight_decay", "schedule"}
        return {k: v for k, v in vars(self).items() if k not in shared}


@dataclass(frozen=True)
class Adam(OptaxOptimiser):
    """Adam: running means of gradients divided by running root mean squares."""

    name: ClassVar[str] = "adam"

    b1: float = option(0.9, "decay rate of the mean gradient", low=0, below=1)
    b2: float = option(0.999, "decay rate of the mean square", low=0, below=1)
    eps: float = option(1e-8, "added to the root mean square", above=0)


class AmsGrad(Adam):
    """Adam with non-decreasing root mean squares."""

    name: ClassVar[str] = "amsgrad"


class Nadam(Adam):
    """Adam with Nesterov momentum."""

    name: ClassVar[str] = "nadam"


@dataclass(frozen=True)
class AdaBelief(Adam):
    """Adam with deviations from the mean gradient."""

    name: ClassVar[str] = "adabelief"

    eps: float = option(1e-16, "added to the root mean square", above=0)


@dataclass(frozen=True)
class Yogi(Adam):
    """Adam whose mean squares change in bounded steps."""

    name: ClassVar[str] = "yogi"

    eps: float = option(1e-3, "added to the root mean square", above=0)


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    name: ClassVar[str] = "adamw"
    decays_beside: ClassVar[bool] = True


@dataclass(frozen=True)
class Lion(OptaxOptimiser):
    """Lion: steps of constant size with the signs of a running mean."""

    name: ClassVar[str] = "lion"
    decays_beside: ClassVar[bool] = True

    b1: float = option(0.9, "decay rate of the mean inside the sign", low=0, below=1)
    b2: float = option(0.99, "decay rate of the mean gradient", low=0, below=1)


@dataclass(frozen=True)
class RmsProp(OptaxOptimiser):
    """RMSProp: gradients divided by their running root mean squares."""

    name: ClassVar[str] = "rmsprop"

    decay: float = option(0.9, "decay rate of the mean square", low=0, below=1)
    eps: float = option(1e-8, "added to the mean square", above=0)
    momentum: float = option(0.0, "momentum", low=0, below=1)


@dataclass(frozen=True)
class AdaGrad(OptaxOptimiser):
    """AdaGrad: gradients divided by the root of the sum of all squares so far."""

    name: ClassVar[str] = "adagrad"

    initial_accumulator_value: float = option(0.1, "initial sum of squares", low=0)
    eps: float = option(1e-7, "added to the sum", above=0)


OPTIMISERS: Registry[Optimiser] = Registry(
    "kikuchi.training",
    "optimiser",
    {
        cls.name: cls
        for cls in (Sgd, Adam, AdamW, AmsGrad, Nadam, AdaBelief, Yogi, Lion, RmsProp, AdaGrad)
    },
)
parse_optimiser = OPTIMISERS.parse


# ---------------------------------------------------------------------- at work


class FusedSgd(Updater):
    """Stochastic gradient ascent in one compiled pass per array."""

    def __init__(self, options: Sgd, model: Trainable, per_epoch: int, epochs: int) -> None:
        super().__init__(options, model, per_epoch, epochs)
        self.momentum, self.nesterov = options.momentum, options.nesterov
        self.velocity: Arrays = {}
        if options.momentum:
            self.velocity = {n: np.zeros_like(a) for n, a in model.parameters.items()}

    def _move(self, ascent: Parameters, rate: float) -> Iterator[tuple[Array, float]]:
        for name, array in self.model.parameters.items():
            yield array, self._move_one(name, array, ascent[name], rate)

    def _move_one(self, name: str, array: Array, ascent: Array, rate: float) -> float:
        from kikuchi.training.kernels import updates

        number = array.dtype.type
        decay = number(self.options.weight_decay if is_weight(array) else 0.0)
        flat, gradient = array.reshape(-1), ascent.reshape(-1)
        if not self.momentum:
            return float(updates.ascend(flat, gradient, number(rate), decay))
        loop: Callable[..., float] = (
            updates.ascend_looking_ahead if self.nesterov else updates.ascend_with_momentum
        )
        velocity = self.velocity[name].reshape(-1)
        return float(loop(flat, velocity, gradient, number(rate), number(self.momentum), decay))

    def to_arrays(self) -> Arrays:
        """Return the velocities."""
        return dict(self.velocity)

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue with these velocities."""
        for name, array in self.velocity.items():
            array[...] = arrays[name]


class OptaxUpdater(Updater):
    """A transformation of optax, applied to minus the ascent direction since optax minimises."""

    def __init__(self, options: Optimiser, model: Trainable, per_epoch: int, epochs: int) -> None:
        super().__init__(options, model, per_epoch, epochs)
        _optax()  # raises an error with the command to install optax and JAX
        import jax

        self._jax = jax
        begin, self._update = _compiled(options, options.horizon(per_epoch, epochs))
        with self._precision():
            self._state = begin(self._arrays())

    def _move(self, ascent: Parameters, rate: float) -> Iterator[tuple[Array, float]]:
        with self._precision():
            gradients = {n: self._jax.numpy.array(-a) for n, a in ascent.items()}
            found, self._state = self._update(gradients, self._state, self._arrays())
        moves = {name: np.array(move) for name, move in found.items()}
        self.model.constrain(moves)  # rounding errors may have broken a symmetry
        for name, array in self.model.parameters.items():
            array += moves[name]
            yield array, float(np.max(np.abs(array), initial=0.0))

    def to_arrays(self) -> Arrays:
        """Return the leaves of optax's state."""
        return numbered_leaves(self._state)

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue with these leaves."""
        with self._precision():
            self._state = with_numbered_leaves(self._state, arrays)

    def _arrays(self) -> Any:
        """Return copies, since JAX continues to compute while the arrays of the model change."""
        return {n: self._jax.numpy.array(a) for n, a in self.model.parameters.items()}

    def _precision(self) -> Any:
        return precision(self.model.parameters)


@lru_cache(maxsize=64)
def _compiled(options: Optimiser, horizon: tuple[int, int]) -> tuple[Any, Any]:
    """Return the initialisation and one update of optax's state, compiled once per shape of
    parameters.
    """
    import jax

    transform = options.transform(*horizon)
    return transform.init, jax.jit(transform.update)


def numbered_leaves(tree: Any) -> Arrays:
    """Return the leaves of a tree of JAX by number."""
    import jax

    return {f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(tree))}


def with_numbered_leaves(tree: Any, arrays: Mapping[str, Array]) -> Any:
    """Return a tree of this form with the leaves that `numbered_leaves` returned."""
    import jax

    leaves, shape = jax.tree.flatten(tree)
    kept = [jax.numpy.array(arrays[f"leaf{k}"]) for k in range(len(leaves))]
    return jax.tree.unflatten(shape, kept)


def precision(tree: Any) -> Any:
    """Context manager in which JAX computes in the precision of these arrays, whatever its global
    flag.

    >>> with precision({"weights": np.zeros(2)}):
    ...     import jax.numpy as jnp
    ...     str(jnp.zeros(1).dtype)
    'float64'
    """
    import jax

    return jax.enable_x64(any(leaf.dtype == np.float64 for leaf in jax.tree.leaves(tree)))


def _decaying(transform: Any, weight_decay: float) -> Any:
    """Return the transformation preceded by weight decay, if any."""
    if not weight_decay:
        return transform
    optax = _optax()
    return optax.chain(optax.add_decayed_weights(weight_decay, _weights_only), transform)


def _weights_only(parameters: Any) -> Any:
    import jax

    return jax.tree.map(is_weight, parameters)


def _optax() -> Any:
    try:
        import optax  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError(
            f"this optimiser or schedule needs optax; {install('learn')}, or use sgd with "
            "schedule=constant"
        ) from None
    return optax
