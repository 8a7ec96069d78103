"""`Rule`: how a machine learns from a batch, behind one interface.

Every rule answers with an estimate of the direction in which the parameters should move: data
statistics minus those of a negative phase. The trainer knows nothing else about it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.machine import Machine, Parameters
from kikuchi.core.options import Configured, Registry

Array = NDArray[Any]
State = dict[str, Array]
"""What a rule carries from batch to batch (chains, means of the joint), as plain arrays, so that a
checkpoint can hold it. Names that begin with "_" are room to work in, which no checkpoint holds."""

UNSETTLED = "unsettled_rows"
"""Name in a rule's state: how many rows had not settled when the limit of sweeps was reached."""

RULES: Registry[Rule] = Registry(
    "kikuchi.boltzmann",
    "learner",
    {
        "exact": "rules.exact:ExactLikelihood",
        "gibbs": "rules.sampling:Equilibrium",
        "cd": "rules.sampling:ContrastiveDivergence",
        "pcd": "rules.sampling:PersistentDivergence",
        "brief-gibbs": "rules.sampling:BriefGibbs",
        "pseudo": "rules.pseudo:PseudoLikelihood",
        "one-shot": "rules.one_shot:OneShot",
        "rate-cd": "rules.rate_coded:RateCodedDivergence",
        "cf": "rules.contrastive:ContrastiveFreeEnergy",
        "mf-star": "rules.mean_field:MeanFieldStar",
        "mf-joint": "rules.mean_field:JointMeanField",
        "mixture": "rules.mixture:MixtureMeanField",
    },
)
"""Short names of the rules; the value is `module:Class` in this folder."""


@dataclass
class Slope:
    """Answer of a rule to one batch: the ascent direction for each array of parameters (means over
    the rows), and the rule's own objective per row if it has one (None otherwise). The arrays may
    be written over by the next call; the trainer sets to zero what masks leave out, and makes
    lateral parts symmetric.
    """

    ascent: Parameters
    objective: float | None = None


@dataclass(frozen=True)
class Rule(Configured, ABC):
    """Base of the learning rules."""

    kind: ClassVar[str] = "learner"
    objective_name: ClassVar[str] = "objective"
    takes_sparse: ClassVar[bool] = False  # whether `begin` and `solve` read sparse data
    carries: ClassVar[bool] = False  # whether the state suits other data as well

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """State before the first batch; refuses machines that the rule cannot learn."""
        return {}

    def solve(self, machine: Machine, data: Array) -> Parameters | None:
        """The parameters themselves, for rules that find them in one go; None for all others."""
        return None

    @abstractmethod
    def slope(
        self,
        machine: Machine,
        batch: Array,
        rows: NDArray[np.int64],
        state: State,
        rng: np.random.Generator,
    ) -> Slope:
        """Direction for one batch; `rows` are its row numbers in the data, `state` may change.

        `batch` has the machine's dtype and one row for each case.
        """

    def warnings(self, state: State) -> list[str]:
        """What a reader of the result must know."""
        unsettled = int(np.sum(state.get(UNSETTLED, 0)))
        if not unsettled:
            return []
        return [
            f"the means of {unsettled} rows (over all epochs) had not settled at the limit of "
            "sweeps; raise max_sweeps or damping, or lower learning_rate"
        ]

    def project(self, machine: Machine) -> None:
        """Move the parameters to the nearest ones that the rule allows; called after each update.

        Most rules allow all.
        """


def count_unsettled(state: State, converged: bool, rows: int) -> None:
    """Add rows whose settling was cut short to the count in the state."""
    if not converged:
        state[UNSETTLED] = state.get(UNSETTLED, np.zeros(1, dtype=np.int64)) + rows


parse_rule = RULES.parse
