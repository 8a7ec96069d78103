"""Learning with a mixture of mean fields for the free phase.

Reference: LAW-L9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.mixture import JointMixture, fit_mixture, mixture_statistics, random_mixture
from kikuchi.boltzmann.rules.mean_field import (
    MeanFieldRule,
    conditional_means,
    contrast,
    read_temperatures,
)
from kikuchi.core.options import option
from kikuchi.training.rule import GradientEstimate, Ints, State, count_unconverged

Array = NDArray[Any]

_LEAST_WEIGHT = 1e-12  # a component that has died may come back after the parameters have moved


@dataclass(frozen=True)
class MixtureRule(MeanFieldRule):
    """Mean field of the data against a mixture of mean fields of the joint.

    The mixture goes on from the step before. The objective is L+ - L-, no bound; with more
    components L- comes nearer to log Z and the gradient nearer to that of the likelihood.
    """

    name: ClassVar[str] = "mixture"
    objective_name: ClassVar[str] = "difference of bounds"

    components: int = option(2, "product distributions in the mixture", low=1)
    form: Literal["lambda", "eliminated"] = option(
        "lambda",
        "coordinate ascent with lambda, or followed by gradients of the bound without lambda",
    )
    conditional: Literal["half", "joint"] = option(
        "half", "where the hidden means of a row start: 1/2, or those of the joint"
    )
    temperatures: str = option(
        "", "one sweep at each of these, such as 100,10,2, before those at 1"
    )
    max_iter: int = option(100, "sweeps at most in each phase", low=1)

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """A random mixture."""
        self._check_units(machine)
        read_temperatures(self.temperatures)
        return _state_of(random_mixture(machine, self.components, rng))

    def gradient(
        self, machine: Machine, batch: Array, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Average over the rows minus the moments of the mixture (4.25)."""
        data = batch.astype(np.float64)
        temperatures = read_temperatures(self.temperatures)
        joint = fit_mixture(
            machine,
            _mixture_of(state),
            temperatures=temperatures,
            form=self.form,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        state.update(_state_of(joint))
        start = None
        if self.conditional == "joint":
            free = (joint.weights @ joint.means)[machine.n_visible :]
            start = np.tile(free, (len(data), 1))
        hidden, converged = conditional_means(
            machine, data, start, temperatures=temperatures, **self._iteration
        )
        count_unconverged(state, converged and joint.converged, len(data))
        return contrast(machine, data, hidden, mixture_statistics(machine, joint), joint.bound)


def _state_of(mixture: JointMixture) -> State:
    return {
        "mixture_weights": mixture.weights,
        "mixture_means": mixture.means,
        "mixture_smoothing": mixture.smoothing,
    }


def _mixture_of(state: State) -> JointMixture:
    weights = np.maximum(state["mixture_weights"], _LEAST_WEIGHT)
    return JointMixture(
        weights / weights.sum(),
        state["mixture_means"],
        state["mixture_smoothing"],
        -np.inf,
        False,
        0,
    )
