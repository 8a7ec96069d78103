"""Pseudo-likelihood of machines whose hidden units are independent given the visible.

Reference: TEH-L10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits
from kikuchi.core.errors import DataError, MethodError
from kikuchi.training.model import Parameters
from kikuchi.training.rows import is_sparse
from kikuchi.training.rule import GradientEstimate

Array = NDArray[Any]

_SAFE = 600.0  # a product of ratios stays between exp(-this) and exp(this)


def check_pseudo(machine: Machine, data: Any) -> None:
    """Refuse other units, connected hidden units and rows that are not 0 or 1."""
    what = None
    if not isinstance(machine.visible, BinaryUnits) or not isinstance(machine.hidden, BinaryUnits):
        what = "units that are not binary; use learner cd"
    elif machine.hidden_weights is not None:
        what = "connected hidden units; use learner cd, or architecture brf or poe"
    if what is not None:
        raise MethodError(f"learner pseudo cannot learn machines with {what}")
    values = data.data if is_sparse(data) else data
    if not np.all((values == 0) | (values == 1)):
        raise DataError("learner pseudo needs rows of 0 and 1; threshold the data")


def pseudo_gradient(machine: Machine, batch: Array) -> GradientEstimate:
    """Pseudo-log-likelihood per row and its gradient.

    All flips of a row cost as much as one: with D visible and K hidden units O(DK) operations, not
    O(D^2 K).
    """
    odds, ascent = _flips(machine, batch)
    value = -float(np.sum(np.logaddexp(0.0, odds))) / len(batch)
    return GradientEstimate({n: a.astype(machine.dtype) for n, a in ascent.items()}, value)


def pseudo_log_likelihood(machine: Machine, rows: Array) -> Array:
    """Sum over visible units of log p(unit | all others), for each row of 0 and 1.

    >>> machine = Machine(np.zeros((3, 2)), np.zeros(3), np.zeros(2))
    >>> (pseudo_log_likelihood(machine, np.eye(3)) / np.log(2)).round(6).tolist()
    [-3.0, -3.0, -3.0]
    """
    odds, _ = _flips(machine, np.asarray(rows))
    return np.asarray(-np.sum(np.logaddexp(0.0, odds), axis=1))


def _flips(machine: Machine, batch: Array) -> tuple[Array, Parameters]:
    """Log odds of all flips and the gradient of the mean pseudo-log-likelihood, in float64."""
    from kikuchi.boltzmann.kernels.pseudo import flips

    v = np.ascontiguousarray(batch, dtype=np.float64)
    w = np.ascontiguousarray(machine.weights, dtype=np.float64)
    own = np.tile(machine.visible_bias.astype(np.float64), (len(v), 1))
    if machine.visible_weights is not None:
        own += v @ machine.visible_weights.astype(np.float64)
    field = v @ w + machine.hidden_bias.astype(np.float64)
    largest = float(np.max(np.abs(w), initial=0.0))
    chunk = max(1, int(_SAFE / max(largest, 1.0)))
    odds, hidden, corrections = np.empty_like(v), np.zeros_like(field), np.zeros_like(w)
    flips(
        v, own, expit(field), expit(-field), np.exp(w), np.exp(-w), chunk, odds, hidden, corrections
    )
    own_gradient = -expit(odds) * (1.0 - 2.0 * v)  # of each flip, by the unit's own field
    n = len(v)
    ascent = {
        "weights": -(v.T @ hidden + corrections) / n,
        "visible_bias": own_gradient.sum(axis=0) / n,
        "hidden_bias": -hidden.sum(axis=0) / n,
    }
    if machine.visible_weights is not None:
        pairs = own_gradient.T @ v / n
        ascent["visible_weights"] = pairs + pairs.T
        np.fill_diagonal(ascent["visible_weights"], 0.0)
    return odds, ascent
