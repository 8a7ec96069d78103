"""Contrastive free energies: learning from how far a free energy falls from the data.

    CF_k = F_0(data, q_0) - F_k(r_k, q_k) >= 0

q_0 are the hidden means converged at the data, (r_k, q_k) the means after k rounds of descent from
there. The gradient ignores how r_k and q_k depend on the parameters (7).

Reference: WH-L3 to L9, WH-L4 to L7, WH-L9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.exact import ascent
from kikuchi.boltzmann.fixed_point import check_connected, hidden_means, reconstruct_means
from kikuchi.boltzmann.free_energies import free_energy_named
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.training.rule import GradientEstimate, Ints, Rule, State, count_unconverged

Array = NDArray[Any]


@dataclass(frozen=True)
class ContrastiveFreeEnergy(Rule[Machine]):
    """CF_k with mean field, TAP or Bethe inside each side.

    `k=1,energy=mf` is MF_1, `k=0` MF_infinity. The objective is -CF_k per row: at most zero
    whatever the energy, as every one of them is descended. With `sampled` means turn into samples
    before they act on the other side, and there is no objective.

    >>> from kikuchi.boltzmann.rules import parse_rule
    >>> rule = parse_rule("cf:energy=tap,k=2")
    >>> machine = Machine.random(4, 2, architecture="fcrf", scale=1.0, random_state=0)
    >>> rng, data = np.random.default_rng(0), np.eye(4)
    >>> estimate = rule.gradient(machine, data, np.arange(4), rule.begin(machine, data, rng), rng)
    >>> estimate.objective < 0, sorted(estimate.ascent) == sorted(machine.parameters)
    (True, True)
    """

    name: ClassVar[str] = "cf"
    summary: ClassVar[str] = "decrease of a free energy in k rounds of updates from the data"
    objective_name: ClassVar[str] = "minus contrastive free energy"

    energy: Literal["mf", "tap", "bethe"] = option("mf", "free energy of connections inside a side")
    k: int = option(1, "rounds of updates from the data; 0: until nothing changes", low=0)
    inner: int = option(3, "sweeps over each side in a round", low=1)
    damping: float = option(0.0, "part of each mean's move that is not made", low=0.0, below=1.0)
    sampled: bool = option(False, "draw samples from the means before they act on the other side")
    tol: float = option(1e-5, "the clamped means move no more than this in the end", above=0.0)
    max_iter: int = option(500, "sweeps, or rounds for k=0, at most", low=1)

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """Refuse what has no such free energy."""
        for units, lateral in (
            (machine.visible, machine.visible_weights),
            (machine.hidden, machine.hidden_weights),
        ):
            if lateral is not None:
                check_connected(units)
            if self.sampled and not isinstance(units, BinaryUnits):
                raise MethodError(
                    f"learner cf: option sampled needs binary units, not {units.text}; use cd"
                )
        if self.sampled and (self.energy != "mf" or self.k == 0):
            raise MethodError(
                "learner cf: option sampled needs energy=mf, whose means are a distribution, "
                "and k >= 1"
            )
        return {}

    def gradient(
        self, machine: Machine, batch: Array, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Statistics at the data minus those after k rounds (7, 9 to 12)."""
        energy = free_energy_named(self.energy)
        data = batch.astype(np.float64)
        first = hidden_means(
            machine,
            data,
            energy=energy,
            tol=self.tol,
            max_iter=self.max_iter,
            damping=self.damping,
        )
        last = reconstruct_means(
            machine,
            data,
            first.means,
            rounds=self.k,
            energy=energy,
            inner=self.inner,
            damping=self.damping,
            tol=self.tol,
            max_rounds=self.max_iter,
            draw=rng if self.sampled else None,
        )
        count_unconverged(state, first.converged and last.converged, len(data))
        moved = ascent(
            machine,
            energy.statistics(machine, data, first.means, clamped=True),
            energy.statistics(machine, last.visible, last.hidden),
        )
        if self.sampled:
            return GradientEstimate(moved)
        fall = energy.value(machine, data, first.means, clamped=True)
        fall = fall - energy.value(machine, last.visible, last.hidden)
        return GradientEstimate(moved, -float(fall.mean()))
