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
from kikuchi.core.options import Configured, find_class, parse

Array = NDArray[Any]
State = dict[str, Array]
"""What a rule carries from batch to batch (chains, means of the joint), as plain arrays, so that a
checkpoint can hold it."""

RULES: dict[str, str] = {}
"""Short names of the rules; the value is `module:Class` in this folder."""


@dataclass
class Slope:
    """Answer of a rule to one batch: the ascent direction for each array of parameters (means over
    the rows), and the rule's own objective per row if it has one (None otherwise).
    """

    ascent: Parameters
    objective: float | None = None


@dataclass(frozen=True)
class Rule(Configured, ABC):
    """Base of the learning rules."""

    kind: ClassVar[str] = "learner"
    objective_name: ClassVar[str] = "objective"

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """State before the first batch; refuses machines that the rule cannot learn."""
        return {}

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


def rule_class(name: str) -> type[Rule]:
    """The class of a learning rule."""
    cls: type[Rule] = find_class(name, RULES, "kikuchi.boltzmann", "learner")
    return cls


def parse_rule(rule: str | Rule) -> Rule:
    """A rule from a text such as `pcd:k=1`."""
    return rule if isinstance(rule, Rule) else parse(rule, rule_class)
