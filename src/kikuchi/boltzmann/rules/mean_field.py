"""Learning with mean field in both phases: F = L+ - L- per row.

L+ is the bound of the hidden units with the row clamped, L- that of all units together. F is not a
bound on the log-likelihood, but if the joint is started from the conditional it is never above
zero.

Reference: LAW-I6, LAW-I14, LAW-L7, LAW-L7 to L9, LAW-L8, LAW-M5, LAW-T10, WH-L8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.exact import ascent, mean_statistics
from kikuchi.boltzmann.fixed_point import Joint, check_connected, hidden_means, joint_means
from kikuchi.boltzmann.free_energies import MEAN_FIELD, unit_entropy
from kikuchi.boltzmann.machine import Machine
from kikuchi.core.arrays import Mask
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.core.text import is_whole
from kikuchi.training.model import Parameters
from kikuchi.training.rule import GradientEstimate, Ints, Rule, State, count_unconverged

Array = NDArray[Any]


# ---------------------------------------------------------------------- reading options


def read_temperatures(text: str) -> tuple[float, ...]:
    """Temperatures of an annealing from a text such as `100,50,10,2`; none from an empty one.

    >>> read_temperatures("8, 4, 2")
    (8.0, 4.0, 2.0)
    """
    try:
        values = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        values = (0.0,)
    if not all(0.0 < t < np.inf for t in values):
        raise MethodError(f"temperatures '{text}': give positive numbers between commas")
    return values


def read_inputs(text: str | None, n_visible: int) -> Mask | None:
    """The mask of visible units from a text such as `0-5` or `0-2,7`; None from None.

    >>> read_inputs("0-1,3", 5).tolist()
    [True, True, False, True, False]
    """
    if text is None:
        return None
    mask = np.zeros(n_visible, dtype=np.bool_)
    for part in text.split(","):
        ends = part.strip().split("-")
        if len(ends) > 2 or not all(is_whole(end.strip()) for end in ends):
            raise MethodError(f"inputs '{text}': give units or ranges such as 0-5 or 0-2,7")
        first, last = int(ends[0]), int(ends[-1])
        if not first <= last < n_visible:
            raise MethodError(f"inputs '{text}': visible units are 0 to {n_visible - 1}")
        mask[first : last + 1] = True
    return mask


# ---------------------------------------------------------------------- both phases


def conditional_means(
    machine: Machine,
    data: Array,
    start: Array | None = None,
    *,
    temperatures: tuple[float, ...] = (),
    tol: float,
    max_iter: int,
    damping: float = 0.0,
) -> tuple[Array, bool]:
    """Hidden means of each row with the visible units clamped, and whether they converged."""
    if machine.hidden_weights is None or not temperatures:
        point = hidden_means(machine, data, start, tol=tol, max_iter=max_iter, damping=damping)
        return point.means, point.converged
    half = np.full((len(data), machine.n_hidden), 0.5) if start is None else start
    joint = joint_means(
        machine,
        data,
        half,
        inputs=np.ones(machine.n_visible, dtype=np.bool_),
        temperatures=temperatures,
        tol=tol,
        max_iter=max_iter,
        damping=damping,
    )
    return joint.hidden, joint.converged


def joint_bound(machine: Machine, joint: Joint, inputs: Mask | None = None) -> Array:
    """L- of each row (4.14); units that are clamped have no entropy."""
    value = -MEAN_FIELD.value(machine, joint.visible, joint.hidden)
    if inputs is not None:
        value = value - unit_entropy(machine.visible, joint.visible[:, inputs]).sum(axis=1)
    return np.asarray(value)


def observed_log_score(data: Array, means: Array, outputs: Mask) -> Array:
    """F_obs of each row: log-probability of the outputs under their means in the free phase (4.27,
    in the sign of a log-likelihood).
    """
    target, mean = data[:, outputs], means[:, outputs]
    chosen = np.where(target > 0.5, mean, 1.0 - mean)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(chosen).sum(axis=1))


def contrast(
    machine: Machine, data: Array, hidden: Array, free: Parameters, bound: float
) -> GradientEstimate:
    """Statistics of the data and their hidden means minus those of the free phase, and the mean
    field bound of the data minus `bound`, that of the free phase.
    """
    moved = ascent(machine, mean_statistics(machine, data, hidden), free)
    clamped = -MEAN_FIELD.value(machine, data, hidden, clamped=True)
    return GradientEstimate(moved, float(clamped.mean() - bound))


@dataclass(frozen=True)
class MeanFieldRule(Rule[Machine]):
    """What rules with mean field in both phases share."""

    objective_name: ClassVar[str] = "difference of mean field bounds"

    damping: float = option(0.0, "part of each mean's move that is not made", low=0.0, below=1.0)
    tol: float = option(1e-5, "means move no more than this in the end", above=0.0)
    max_iter: int = option(500, "sweeps at most in each phase", low=1)

    def _check_units(self, machine: Machine) -> None:
        check_connected(machine.visible)
        check_connected(machine.hidden)

    @property
    def _iteration(self) -> dict[str, Any]:
        """When the fixed-point iterations end."""
        return {"tol": self.tol, "max_iter": self.max_iter, "damping": self.damping}


@dataclass(frozen=True)
class JointMeanField(MeanFieldRule):
    """Mean field of the conditional against mean field of the joint.

    `init=conditional` starts each row's joint from its conditional and does not anneal it: both
    phases stay in one mode, and the objective F is never above zero. `zeros` is Galland's rule,
    `previous` starts from the joint of the step before. With `inputs`, those visible units stay
    clamped in the free phase: supervised learning of the others given them. Without
    inputs, `zeros` and `previous` have one joint for all rows.

    >>> from kikuchi.boltzmann.rules import parse_rule
    >>> rule = parse_rule("mf-joint:inputs=0-1")
    >>> machine = Machine.random(4, 2, architecture="fcrf", scale=1.0, random_state=0)
    >>> rng, data = np.random.default_rng(0), np.eye(4)
    >>> estimate = rule.gradient(machine, data, np.arange(4), rule.begin(machine, data, rng), rng)
    >>> estimate.objective < 0, estimate.ascent["visible_bias"][:2].tolist()
    (True, [0.0, 0.0])
    """

    name: ClassVar[str] = "mf-joint"

    init: Literal["conditional", "zeros", "previous"] = option(
        "conditional", "where the joint starts: at the conditional, at 1/2, at the last step's"
    )
    inputs: str | None = option(None, "visible units clamped in both phases, such as 0-5 or 0-2,7")
    temperatures: str = option(
        "", "one sweep at each of these, such as 100,10,2, before those at 1"
    )

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """Means of the joint where it is kept."""
        self._check_units(machine)
        read_temperatures(self.temperatures)
        inputs = read_inputs(self.inputs, machine.n_visible)
        if self.init != "previous":
            return {}
        count = 1 if inputs is None else data.shape[0]
        return {
            "joint_visible": np.full((count, machine.n_visible), 0.5),
            "joint_hidden": np.full((count, machine.n_hidden), 0.5),
        }

    def gradient(
        self, machine: Machine, batch: Array, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Conditional minus joint products of means (4.15)."""
        data = batch.astype(np.float64)
        inputs = read_inputs(self.inputs, machine.n_visible)
        hidden, converged = conditional_means(
            machine, data, temperatures=read_temperatures(self.temperatures), **self._iteration
        )
        joint = self._joint(machine, data, hidden, rows, state, inputs)
        count_unconverged(state, converged and joint.converged, len(data))
        free = mean_statistics(machine, joint.visible, joint.hidden)
        return contrast(machine, data, hidden, free, joint_bound(machine, joint, inputs).mean())

    def _joint(
        self,
        machine: Machine,
        data: Array,
        hidden: Array,
        rows: NDArray[np.int64],
        state: State,
        inputs: Mask | None,
    ) -> Joint:
        conditional = self.init == "conditional"
        kept = rows if inputs is not None else np.zeros(1, dtype=np.int64)
        if conditional:
            start, start_hidden = data, hidden
        elif self.init == "previous":
            start, start_hidden = state["joint_visible"][kept], state["joint_hidden"][kept]
        else:
            start = np.full((len(kept), machine.n_visible), 0.5)
            start_hidden = np.full((len(kept), machine.n_hidden), 0.5)
        if inputs is not None:
            start = np.where(inputs, data, start)
        joint = joint_means(
            machine,
            start,
            start_hidden,
            inputs=inputs,
            temperatures=() if conditional else read_temperatures(self.temperatures),
            **self._iteration,
        )
        if self.init == "previous":
            state["joint_visible"][kept] = joint.visible
            state["joint_hidden"][kept] = joint.hidden
        return joint


@dataclass(frozen=True)
class MeanFieldStar(MeanFieldRule):
    """Mean field of the data against one mean field of the free machine.

    The baseline that contrastive rules are measured against: one mode cannot stand for a
    distribution with several. It starts at random and goes on from the step before; with `init=
    random` it starts anew each time.
    """

    name: ClassVar[str] = "mf-star"

    init: Literal["previous", "random"] = option("previous", "where the free mean field starts")

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """Random means."""
        self._check_units(machine)
        return {
            "joint_visible": rng.uniform(size=(1, machine.n_visible)),
            "joint_hidden": rng.uniform(size=(1, machine.n_hidden)),
        }

    def gradient(
        self, machine: Machine, batch: Array, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Average over the data minus one product."""
        data = batch.astype(np.float64)
        if self.init == "random":
            state.update(self.begin(machine, data, rng))
        hidden, converged = conditional_means(machine, data, **self._iteration)
        joint = joint_means(
            machine, state["joint_visible"], state["joint_hidden"], **self._iteration
        )
        state["joint_visible"], state["joint_hidden"] = joint.visible, joint.hidden
        count_unconverged(state, converged and joint.converged, len(data))
        free = mean_statistics(machine, joint.visible, joint.hidden)
        return contrast(machine, data, hidden, free, joint_bound(machine, joint)[0])
