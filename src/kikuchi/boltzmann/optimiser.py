"""Optimisers of the trainer: gradient ascent with momentum as one fused loop, others from optax.

One text names an optimiser fully: `sgd:learning_rate=0.05,momentum=0.9,weight_decay=1e-4` or
`adam:learning_rate=0.001,schedule=cosine`. Weight decay pulls weights to 0, never biases (WH-L4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.machine import Machine, Parameters, masked
from kikuchi.core.errors import MissingExtraError
from kikuchi.core.options import Configured, Registry, option

Array = NDArray[Any]
Arrays = dict[str, Array]

OPTIMISERS: Registry[Optimiser] = Registry(
    "kikuchi.boltzmann",
    "optimiser",
    {
        "sgd": "optimiser:Sgd",
        "adam": "optimiser:Adam",
        "adamw": "optimiser:AdamW",
        "amsgrad": "optimiser:AmsGrad",
        "nadam": "optimiser:Nadam",
        "adabelief": "optimiser:AdaBelief",
        "yogi": "optimiser:Yogi",
        "lion": "optimiser:Lion",
        "rmsprop": "optimiser:RmsProp",
        "adagrad": "optimiser:AdaGrad",
    },
)
SCHEDULES: Registry[Schedule] = Registry(
    "kikuchi.boltzmann",
    "schedule",
    {
        "constant": "optimiser:Constant",
        "linear": "optimiser:Linear",
        "cosine": "optimiser:Cosine",
        "exponential": "optimiser:Exponential",
        "warmup-cosine": "optimiser:WarmupCosine",
    },
)
_NOT_DECAYED = ("visible_bias", "hidden_bias")


# ---------------------------------------------------------------------- schedules


@dataclass(frozen=True)
class Schedule(Configured, ABC):
    """How the learning rate changes from update to update, as optax's schedule of that name."""

    kind: ClassVar[str] = "schedule"
    needs_end: ClassVar[bool] = False  # whether it depends on the number of epochs

    @abstractmethod
    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """The schedule as optax takes it: a number or a function of the update."""

    def rates(self, rate: float, per_epoch: int, epochs: int, epoch: int) -> Array:
        """The rates of all updates of one epoch, as float64."""
        schedule = self.optax(rate, per_epoch, epochs)
        import jax

        with jax.enable_x64(True):
            updates = jax.numpy.arange(epoch * per_epoch, (epoch + 1) * per_epoch)
            return np.asarray(schedule(updates), dtype=np.float64)


@dataclass(frozen=True)
class Constant(Schedule):
    """The same rate throughout."""

    name: ClassVar[str] = "constant"
    summary: ClassVar[str] = "the same rate throughout"

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """A plain number."""
        return rate

    def rates(self, rate: float, per_epoch: int, epochs: int, epoch: int) -> Array:
        """The rate itself; needs no optax."""
        return np.full(per_epoch, rate)


@dataclass(frozen=True)
class Linear(Schedule):
    """From the rate to a share of it, in equal steps over all epochs."""

    name: ClassVar[str] = "linear"
    summary: ClassVar[str] = "falls in equal steps over all epochs"
    needs_end: ClassVar[bool] = True

    end: float = option(0.0, "last rate as a share of the first", low=0)

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """optax.linear_schedule."""
        return _optax().linear_schedule(rate, self.end * rate, per_epoch * epochs)


@dataclass(frozen=True)
class Cosine(Schedule):
    """From the rate to a share of it along half a cosine over all epochs."""

    name: ClassVar[str] = "cosine"
    summary: ClassVar[str] = "falls along half a cosine over all epochs"
    needs_end: ClassVar[bool] = True

    end: float = option(0.0, "last rate as a share of the first", low=0)

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """optax.cosine_decay_schedule."""
        return _optax().cosine_decay_schedule(rate, per_epoch * epochs, alpha=self.end)


@dataclass(frozen=True)
class Exponential(Schedule):
    """Multiplied by `factor` over each epoch."""

    name: ClassVar[str] = "exponential"
    summary: ClassVar[str] = "multiplied by a factor over each epoch"

    factor: float = option(0.95, "what one epoch multiplies the rate by", above=0, high=1)

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """optax.exponential_decay."""
        return _optax().exponential_decay(rate, per_epoch, self.factor)


@dataclass(frozen=True)
class WarmupCosine(Schedule):
    """Rises from 0 over the first epochs, then falls along half a cosine."""

    name: ClassVar[str] = "warmup-cosine"
    summary: ClassVar[str] = "rises over the first epochs, then falls along half a cosine"
    needs_end: ClassVar[bool] = True

    warmup: float = option(1.0, "epochs of rising", low=0)
    end: float = option(0.0, "last rate as a share of the highest", low=0)

    def optax(self, rate: float, per_epoch: int, epochs: int) -> Any:
        """optax.warmup_cosine_decay_schedule."""
        total = per_epoch * epochs
        rising = min(round(self.warmup * per_epoch), total - 1)
        return _optax().warmup_cosine_decay_schedule(
            0.0, rate, rising, total, end_value=self.end * rate
        )


parse_schedule = SCHEDULES.parse


# ---------------------------------------------------------------------- optimisers


@dataclass(frozen=True)
class Optimiser(Configured, ABC):
    """Base of the optimisers."""

    kind: ClassVar[str] = "optimiser"

    learning_rate: float = option(0.05, "first rate of the updates", above=0)
    weight_decay: float = option(0.0, "pull of weights to 0, as a share of them", low=0)
    schedule: str = option("constant", "how the rate changes: " + ", ".join(SCHEDULES))

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_schedule(self.schedule)

    @abstractmethod
    def start(self, machine: Machine, per_epoch: int, epochs: int) -> Updater:
        """The updater of one training of `machine`, which changes its arrays."""


class Updater(ABC):
    """An optimiser at work on one machine."""

    @abstractmethod
    def step(self, ascent: Parameters, epoch: int, update: int) -> float:
        """Move all parameters; answers the largest size of a weight, not finite if any number is
        not. `update` counts within the epoch.
        """

    @property
    @abstractmethod
    def state(self) -> Arrays:
        """Everything that the next step depends on, besides the parameters."""

    @abstractmethod
    def restore(self, state: Arrays) -> None:
        """Go on from a state."""


@dataclass(frozen=True)
class Sgd(Optimiser):
    """Gradient ascent with momentum: velocity = momentum velocity + slope - decay weights.

    The same steps as optax's add_decayed_weights and sgd, in one fused loop.
    """

    name: ClassVar[str] = "sgd"
    summary: ClassVar[str] = "stochastic gradient ascent with momentum"

    momentum: float = option(0.0, "share of the velocity that is kept", low=0, below=1)
    nesterov: bool = option(False, "look ahead along the velocity")

    def start(self, machine: Machine, per_epoch: int, epochs: int) -> Updater:
        """Its fused loop."""
        return _Fused(self, machine, per_epoch, epochs)


@dataclass(frozen=True)
class OptaxOptimiser(Optimiser):
    """Base of the optimisers that optax has under the same name."""

    def start(self, machine: Machine, per_epoch: int, epochs: int) -> Updater:
        """optax's transformation at work."""
        rate = parse_schedule(self.schedule).optax(self.learning_rate, per_epoch, epochs)
        return _Optax(self._transform(rate), machine)

    def _transform(self, rate: Any) -> Any:
        """Decay of weights, then optax's optimiser."""
        optax = _optax()
        made = getattr(optax, self.name)(learning_rate=rate, **self._extra())
        if not self.weight_decay:
            return made
        return optax.chain(optax.add_decayed_weights(self.weight_decay, _weights_only), made)

    def _extra(self) -> dict[str, Any]:
        shared = {"learning_rate", "weight_decay", "schedule"}
        return {k: v for k, v in vars(self).items() if k not in shared}


@dataclass(frozen=True)
class Adam(OptaxOptimiser):
    """Slopes over their running root mean squares."""

    name: ClassVar[str] = "adam"
    summary: ClassVar[str] = "running means of slopes over running root mean squares"

    b1: float = option(0.9, "memory of the mean slope", low=0, below=1)
    b2: float = option(0.999, "memory of the mean square", low=0, below=1)
    eps: float = option(1e-8, "added to the root mean square", above=0)


@dataclass(frozen=True)
class AmsGrad(Adam):
    """Adam with root mean squares that never fall."""

    name: ClassVar[str] = "amsgrad"
    summary: ClassVar[str] = "adam with root mean squares that never fall"


@dataclass(frozen=True)
class Nadam(Adam):
    """Adam that looks ahead."""

    name: ClassVar[str] = "nadam"
    summary: ClassVar[str] = "adam that looks ahead"


@dataclass(frozen=True)
class AdaBelief(Adam):
    """Adam with the deviation from the mean slope in place of its size."""

    name: ClassVar[str] = "adabelief"
    summary: ClassVar[str] = "adam with deviations from the mean slope"

    eps: float = option(1e-16, "added to the root mean square", above=0)


@dataclass(frozen=True)
class Yogi(Adam):
    """Adam whose mean squares grow and fall in bounded steps."""

    name: ClassVar[str] = "yogi"
    summary: ClassVar[str] = "adam whose mean squares change in bounded steps"

    eps: float = option(1e-3, "added to the root mean square", above=0)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay beside the slopes, not through them."""

    name: ClassVar[str] = "adamw"
    summary: ClassVar[str] = "adam with weight decay beside the slopes"

    def _transform(self, rate: Any) -> Any:
        return _optax().adamw(
            rate, weight_decay=self.weight_decay, mask=_weights_only, **self._extra()
        )


@dataclass(frozen=True)
class Lion(OptaxOptimiser):
    """Steps of one size, with the signs of a running mean."""

    name: ClassVar[str] = "lion"
    summary: ClassVar[str] = "steps of one size with the signs of a running mean"

    b1: float = option(0.9, "memory of the sign", low=0, below=1)
    b2: float = option(0.99, "memory of the mean slope", low=0, below=1)

    def _transform(self, rate: Any) -> Any:
        return _optax().lion(
            rate, weight_decay=self.weight_decay, mask=_weights_only, **self._extra()
        )


@dataclass(frozen=True)
class RmsProp(OptaxOptimiser):
    """Slopes over their running root mean squares, with plain momentum."""

    name: ClassVar[str] = "rmsprop"
    summary: ClassVar[str] = "slopes over their running root mean squares"

    decay: float = option(0.9, "memory of the mean square", low=0, below=1)
    eps: float = option(1e-8, "added to the mean square", above=0)
    momentum: float = option(0.0, "share of the last update that is kept", low=0, below=1)


@dataclass(frozen=True)
class AdaGrad(OptaxOptimiser):
    """Slopes over the root of the sum of all squares so far."""

    name: ClassVar[str] = "adagrad"
    summary: ClassVar[str] = "slopes over the root of the sum of all squares so far"

    initial_accumulator_value: float = option(0.1, "first sum of squares", low=0)
    eps: float = option(1e-7, "added to the sum", above=0)


parse_optimiser = OPTIMISERS.parse


# ---------------------------------------------------------------------- at work


class _Fused(Updater):
    def __init__(self, options: Sgd, machine: Machine, per_epoch: int, epochs: int) -> None:
        self.options = options
        self.machine = machine
        self.velocity: Arrays = {}
        if options.momentum:
            self.velocity = {n: np.zeros_like(a) for n, a in machine.parameters.items()}
        schedule = parse_schedule(options.schedule)
        self._rates = partial(schedule.rates, options.learning_rate, per_epoch, epochs)
        self._epoch = -1
        self._current = np.empty(0)

    def step(self, ascent: Parameters, epoch: int, update: int) -> float:
        if epoch != self._epoch:
            self._epoch, self._current = epoch, self._rates(epoch)
        largest = 0.0
        for name, array in self.machine.parameters.items():
            size = self._move(name, array, ascent[name], float(self._current[update]))
            if not np.isfinite(size):
                return np.inf
            largest = largest if name in _NOT_DECAYED else max(largest, size)
        return largest

    def _move(self, name: str, array: Array, ascent: Array, rate: float) -> float:
        from kikuchi.boltzmann.kernels import updates

        number = array.dtype.type
        decay = number(0.0 if name in _NOT_DECAYED else self.options.weight_decay)
        flat, slope = array.reshape(-1), ascent.reshape(-1)
        if not self.options.momentum:
            return float(updates.ascend(flat, slope, number(rate), decay))
        loop: Callable[..., float] = (
            updates.ascend_looking_ahead if self.options.nesterov else updates.ascend_with_momentum
        )
        velocity = self.velocity[name].reshape(-1)
        momentum = number(self.options.momentum)
        return float(loop(flat, velocity, slope, number(rate), momentum, decay))

    @property
    def state(self) -> Arrays:
        return dict(self.velocity)

    def restore(self, state: Arrays) -> None:
        for name, array in self.velocity.items():
            array[...] = state[name]


class _Optax(Updater):
    """optax minimises, so it is given minus the ascent."""

    def __init__(self, transform: Any, machine: Machine) -> None:
        import jax

        self._jax = jax
        self.machine = machine
        with self._precision():
            self._state = transform.init(self._arrays())
            self._update = jax.jit(transform.update)

    def step(self, ascent: Parameters, epoch: int, update: int) -> float:
        largest = 0.0
        with self._precision():
            slopes = {n: self._jax.numpy.array(-a) for n, a in ascent.items()}
            moves, self._state = self._update(slopes, self._state, self._arrays())
        for name, array in self.machine.parameters.items():
            array += np.asarray(moves[name])
            array[...] = masked(name, array, self.machine.masks.get(name))
            size = float(np.max(np.abs(array), initial=0.0))
            if not np.isfinite(size):
                return np.inf
            largest = largest if name in _NOT_DECAYED else max(largest, size)
        return largest

    @property
    def state(self) -> Arrays:
        leaves = self._jax.tree.leaves(self._state)
        return {f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}

    def restore(self, state: Arrays) -> None:
        with self._precision():
            leaves, shape = self._jax.tree.flatten(self._state)
            kept = [self._jax.numpy.array(state[f"leaf{k}"]) for k in range(len(leaves))]
            self._state = self._jax.tree.unflatten(shape, kept)

    def _arrays(self) -> Any:
        """Copies: jax works on while the machine's own arrays change."""
        return {n: self._jax.numpy.array(a) for n, a in self.machine.parameters.items()}

    def _precision(self) -> Any:
        return self._jax.enable_x64(self.machine.dtype == np.float64)


def _weights_only(parameters: Any) -> dict[str, bool]:
    return {name: name not in _NOT_DECAYED for name in parameters}


def _optax() -> Any:
    try:
        import optax  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError(
            "this optimiser or schedule needs optax; pip install 'kikuchi[learn]', or use sgd with "
            "schedule=constant"
        ) from None
    return optax
