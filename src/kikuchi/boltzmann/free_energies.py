"""Free energies of means: mean field, TAP and Bethe behind one interface.

    F(r, q) = -b'r - c'q - r'J q + L(V, r) + L(W, q) - S(r) - S(q)

for means r of the visible and q of the hidden units. Only L differs, the part of the connections
inside a side; the cross term is always that of mean field, the evidence that one side is for the
other. Hence all three are the same on a restricted machine.

Reference: WH-I2, WH-I2 to I4, WH-I3, WH-I4, WH-L3, WH-L4 to L6, WH-M1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from scipy.special import entr

from kikuchi.boltzmann.exact import mean_statistics, without_diagonal
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits, BinomialUnits, GaussianUnits, Units
from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError, ModelError, suggestion
from kikuchi.training.model import Parameters

Energy = Literal["mf", "tap", "bethe"]


class FreeEnergy(ABC):
    """One kind of free energy: the part of connections inside a side, and its pair statistics."""

    name: ClassVar[str]
    strongest: ClassVar[float] = np.inf  # weight that its arithmetic can bear

    def check_weights(self, weights: Array) -> None:
        """Refuse weights inside a side that are too strong for the arithmetic."""
        largest = float(np.abs(weights).max(initial=0.0))
        if not largest <= self.strongest:
            raise ModelError(
                f"free energy {self.name}: a weight of {largest:.4g} is beyond {self.strongest:g}; "
                "use mf, or smaller weights (a lower learning rate, weight decay)"
            )

    @abstractmethod
    def sweeps(self) -> Callable[..., None]:
        """The compiled sweeps that iterate rows of means in place (see `fixed_point_means`)."""

    @abstractmethod
    def lateral(self, weights: Array, means: Array) -> Array:
        """L(weights, means) of each row."""

    @abstractmethod
    def pairs(self, weights: Array, means: Array) -> Array:
        """-dL/dw_ij averaged over rows, zero on the diagonal: what stands for <s_i s_j>."""

    def value(
        self, machine: Machine, visible: Array, hidden: Array, *, clamped: bool = False
    ) -> Array:
        """F of each row. With `clamped`, `visible` are data: they have no entropy."""
        total = -visible @ machine.visible_bias - hidden @ machine.hidden_bias
        total = total - np.sum((visible @ machine.weights) * hidden, axis=1)
        if machine.visible_weights is not None:
            v = machine.visible_weights.astype(np.float64)
            total = total + (MEAN_FIELD if clamped else self).lateral(v, visible)
        if machine.hidden_weights is not None:
            total = total + self.lateral(machine.hidden_weights.astype(np.float64), hidden)
        spread = (
            machine.visible.log_base(visible) if clamped else unit_entropy(machine.visible, visible)
        )
        total = total - np.sum(spread, axis=1)
        return np.asarray(total - np.sum(unit_entropy(machine.hidden, hidden), axis=1))

    def statistics(
        self, machine: Machine, visible: Array, hidden: Array, *, clamped: bool = False
    ) -> Parameters:
        """-dF / d parameters, averaged over rows."""
        means = mean_statistics(machine, visible, hidden)
        if machine.visible_weights is not None and not clamped:
            v = machine.visible_weights.astype(np.float64)
            means["visible_weights"] = self.pairs(v, visible)
        if machine.hidden_weights is not None:
            means["hidden_weights"] = self.pairs(machine.hidden_weights.astype(np.float64), hidden)
        return means


class MeanFieldEnergy(FreeEnergy):
    """L = -q'W q / 2: with it F is at least -log Z."""

    name = "mf"
    second_order: ClassVar[bool] = False  # whether sweeps have the TAP term

    def sweeps(self) -> Callable[..., None]:
        """Each mean in turn to the minimum of F over it."""
        from kikuchi.engines.units.kernels.dense import sweep_means

        return partial(sweep_means, self.second_order)

    def lateral(self, weights: Array, means: Array) -> Array:
        """-q'W q / 2."""
        return np.asarray(-0.5 * np.sum((means @ weights) * means, axis=1))

    def pairs(self, weights: Array, means: Array) -> Array:
        """q_i q_j."""
        return without_diagonal(means.T @ means / len(means))


class TapEnergy(MeanFieldEnergy):
    """Mean field minus sum_{i<j} w_ij^2 q_i (1 - q_i) q_j (1 - q_j) / 2."""

    name = "tap"
    second_order = True

    def lateral(self, weights: Array, means: Array) -> Array:
        """Both terms."""
        spread = means * (1.0 - means)
        correction = 0.25 * np.sum((spread @ (weights * weights)) * spread, axis=1)
        return np.asarray(MEAN_FIELD.lateral(weights, means) - correction)

    def pairs(self, weights: Array, means: Array) -> Array:
        """q_i q_j + w_ij q_i (1 - q_i) q_j (1 - q_j)."""
        spread = means * (1.0 - means)
        both = means.T @ means + weights * (spread.T @ spread)
        return without_diagonal(both / len(means))


class BetheEnergy(FreeEnergy):
    """The Bethe energy with the best pair table for each two means."""

    name = "bethe"
    strongest = 150.0

    def sweeps(self) -> Callable[..., None]:
        """Each mean in turn towards the minimum of F over it, and not beyond."""
        from kikuchi.engines.units.kernels.dense import sweep_bethe_means

        return partial(sweep_bethe_means)

    def lateral(self, weights: Array, means: Array) -> Array:
        """sum_{i<j} -w_ij xi_ij + sum p ln(p / q q) over the four states of the pair."""
        return self._parts(weights, means)[0]

    def pairs(self, weights: Array, means: Array) -> Array:
        """xi_ij, the probability that both are on."""
        return self._parts(weights, means)[1]

    def _parts(self, weights: Array, means: Array) -> tuple[Array, Array]:
        from kikuchi.engines.units.kernels.dense import bethe_parts

        self.check_weights(weights)
        values, sums = np.zeros(len(means)), np.zeros(weights.shape)
        bethe_parts(
            np.ascontiguousarray(weights), np.ascontiguousarray(means, np.float64), values, sums
        )
        return values, sums / len(means)


MEAN_FIELD = MeanFieldEnergy()
ENERGIES: dict[str, FreeEnergy] = {"mf": MEAN_FIELD, "tap": TapEnergy(), "bethe": BetheEnergy()}
"""The three free energies by name."""


def free_energy_named(name: str) -> FreeEnergy:
    """The free energy of a name.

    >>> free_energy_named("tap").name
    'tap'
    """
    if name not in ENERGIES:
        raise MethodError(f"there is no free energy '{name}'; {suggestion(name, ENERGIES)}")
    return ENERGIES[name]


def unit_entropy(units: Units, means: Array) -> Array:
    """log_partition(x) - x mean at the field x that has this mean: the entropy of each unit,
    relative to its base measure.

    >>> unit_entropy(BinaryUnits(), np.array([0.25, 0.5])).round(6).tolist()
    [0.562335, 0.693147]
    """
    if isinstance(units, GaussianUnits):
        return np.asarray(-0.5 * means * means)
    if isinstance(units, BinomialUnits):
        return units.replicas * unit_entropy(BinaryUnits(), means / units.replicas)
    if not isinstance(units, BinaryUnits):
        raise ModelError(f"units of kind {units.text} have no known entropy")
    return np.asarray(entr(means) + entr(1.0 - means))
