"""Contrastive divergence of machines whose units count replicas, in proportions.

Reference: TEH-L9, TEH-M10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.layers import workspace
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.products import add_product
from kikuchi.boltzmann.units import BinaryUnits, BinomialUnits, Units
from kikuchi.core.errors import ModelError
from kikuchi.core.options import option
from kikuchi.training.rule import GradientEstimate, Ints, Rule, State

Array = NDArray[Any]


@dataclass(frozen=True)
class RateCodedDivergence(Rule[Machine]):
    """One step from the rows: hidden units drawn, the reconstruction a mean.

    With p the probability that a replica of a hidden unit is on, and v the share of replicas of a
    visible unit that are, the direction of a weight is <v p> of the rows minus <v p> of their
    reconstructions. These are statistics of shares, not of counts: the learning rate is that of
    weights between two replicas. Biases go `bias_factor` times as fast. The objective is the mean
    squared error of the reconstruction.

    With `nonnegative`, weights below 0 are set to 0 after each update; biases are free.

    >>> from kikuchi.boltzmann.rules import parse_rule
    >>> parse_rule("rate-cd:nonnegative=true").text
    'rate-cd:nonnegative=true'
    """

    name: ClassVar[str] = "rate-cd"
    summary: ClassVar[str] = "one step with drawn hidden units and a mean reconstruction, in shares"
    objective_name: ClassVar[str] = "squared error of the reconstruction per unit"
    takes_sparse: ClassVar[bool] = True

    bias_factor: float = option(2.0, "rate of biases as a multiple of that of weights", low=0)
    nonnegative: bool = option(False, "hold weights at 0 or above")

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """Nothing is carried on; machines of other kinds are refused."""
        if not machine.restricted:
            raise ModelError("rate-cd learns restricted machines; use architecture brf")
        for units in (machine.visible, machine.hidden):
            replicas_of(units)
        self.project(machine)
        return {}

    def project(self, machine: Machine, rate: float = 0.0) -> None:
        """Weights that are not below 0, where that is wanted."""
        if self.nonnegative:
            np.maximum(machine.weights, 0, out=machine.weights)

    def gradient(
        self, machine: Machine, batch: Array, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """<v p> of the rows minus that of their reconstructions."""
        per_visible, per_hidden = replicas_of(machine.visible), replicas_of(machine.hidden)
        field = machine.hidden_field(batch)
        positive = machine.hidden.mean(field)
        drawn = machine.hidden.draw(field, rng)
        again = machine.visible.mean(machine.visible_field(drawn))
        negative = machine.hidden.mean(machine.hidden_field(again))
        weights = workspace(state, "ascent", machine.weights.shape, machine.dtype)
        share = 1.0 / (len(batch) * per_visible * per_hidden)
        add_product(batch, positive, share, weights, fresh=True)
        add_product(again, negative, -share, weights)
        off = batch - again
        faster = machine.dtype.type(self.bias_factor)
        ascent = {
            "weights": weights,
            "visible_bias": faster * off.mean(axis=0) / per_visible,
            "hidden_bias": faster * (positive - negative).mean(axis=0) / per_hidden,
        }
        return GradientEstimate(ascent, float(np.vdot(off, off)) / (off.size * per_visible**2))


def replicas_of(units: Units) -> int:
    """How many binary units share the weights of one unit.

    >>> replicas_of(BinomialUnits(replicas=7)), replicas_of(BinaryUnits())
    (7, 1)
    """
    if isinstance(units, BinomialUnits):
        return units.replicas
    if isinstance(units, BinaryUnits):
        return 1
    raise ModelError(f"{units.name} units have no replicas; use binary or binomial ones")
