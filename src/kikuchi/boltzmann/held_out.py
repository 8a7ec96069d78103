"""Scores of held-out rows while a machine is trained, and the comparison with independent bits.

Reference: TEH-I11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.annealed_sampling import ais
from kikuchi.boltzmann.exact import clamped, exact, side_states
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.pseudo import pseudo_log_likelihood
from kikuchi.boltzmann.units import BinaryUnits
from kikuchi.training.rows import is_sparse

Array = NDArray[Any]

_MOST_STATES = 2**12  # of a side, over which log Z is a sum
_SURE = 3.0  # standard errors by which rows must be below independent bits


@dataclass(frozen=True)
class HeldOutScore:
    """Mean log-likelihood of rows where a side has at most 4096 states, otherwise the mean
    pseudo-log-likelihood.

    Estimates of log Z by annealing are no score to choose an epoch by: the highest is that of the
    machine whose log Z is underestimated most.

    >>> machine = Machine.random(5, 3, random_state=0)
    >>> rows = np.eye(5)
    >>> truth = float(np.mean(clamped(machine, rows).log_weights)) - exact(machine).log_z
    >>> bool(abs(HeldOutScore()(machine, rows) - truth) < 1e-9)
    True
    """

    most_states: int = _MOST_STATES

    def __call__(self, machine: Machine, rows: Any) -> float:
        """The score of a machine: larger is better."""
        dense = dense_rows(rows)
        if side_states(machine) <= self.most_states:
            return float(np.mean(clamped(machine, dense).log_weights)) - exact(machine).log_z
        return float(np.mean(pseudo_log_likelihood(machine, dense)))


def below_independent_bits(machine: Machine, train: Any, judged: Any) -> tuple[float, float] | None:
    """Mean log-likelihood of the rows `judged` under the machine and under independent bits with
    the means of the rows `train`, if the machine's is the lower one for sure; otherwise None.

    The lower end of log Z is used, so that the log-likelihood of the machine is not underestimated.
    """
    if not isinstance(machine.visible, BinaryUnits):
        return None
    rows = dense_rows(judged).astype(np.float64)
    if side_states(machine) <= _MOST_STATES:
        log_z = exact(machine).log_z
    else:
        log_z = ais(
            machine, data=rows, betas=300, chains=20, batches=1, reverse=False, random_state=0
        ).lower
    scores = clamped(machine, rows).log_weights - log_z
    odds = machine.mean_biases(train)
    bits = rows @ odds - np.sum(np.logaddexp(0.0, odds))
    gain = scores - bits
    if np.mean(gain) + _SURE * np.std(gain) / np.sqrt(len(gain)) >= 0:
        return None
    return float(np.mean(scores)), float(np.mean(bits))


def dense_rows(rows: Any) -> Array:
    """Rows as a dense array."""
    return np.asarray(rows.toarray() if is_sparse(rows) else rows)
