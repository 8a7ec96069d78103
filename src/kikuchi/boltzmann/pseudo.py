"""Pseudo-likelihood: as a score of rows, and as a learning rule of binary machines.

Reference: TEH-L10.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from kikuchi.boltzmann.parameters import MachineParameters
from kikuchi.boltzmann.units import BinaryUnits
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.numerics import logsumexp
from kikuchi.training.model import Parameters
from kikuchi.training.rows import is_sparse
from kikuchi.training.rule import GradientEstimate

Array = NDArray[Any]

_STEP, _TAIL = 0.75, 8.5  # of integrals over real units, in standard deviations
_SAFE = 600.0  # a product of ratios stays between exp(-this) and exp(this)


def check_pseudo(machine: MachineParameters, data: Any) -> None:
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


def pseudo_gradient(machine: MachineParameters, batch: Array) -> GradientEstimate:
    """Pseudo-log-likelihood per row and its gradient.

    All flips of a row cost as much as one: with D visible and K hidden units O(DK) operations, not
    O(D^2 K).
    """
    odds, ascent = _flips(machine, batch)
    value = -float(np.sum(np.logaddexp(0.0, odds))) / len(batch)
    return GradientEstimate({n: a.astype(machine.dtype) for n, a in ascent.items()}, value)


def pseudo_log_likelihood(
    machine: MachineParameters, rows: Array, free_energies: Callable[[Array], Array] | None = None
) -> Array:
    """Return the sum over visible units of log p(unit | all others), for each row.

    Each term is -F(v) - log sum_s exp(-F(v with v_i = s)) over the states s of unit i; of real
    units it is a log-density, with an integral over s. Machines whose hidden units are connected
    need `free_energies`, their (approximate) free energies of rows.

    >>> machine = MachineParameters(np.zeros((3, 2)), np.zeros(3), np.zeros(2))
    >>> (pseudo_log_likelihood(machine, np.eye(3)) / np.log(2)).round(6).tolist()
    [-3.0, -3.0, -3.0]
    """
    v = np.asarray(rows, dtype=np.float64)
    binary = isinstance(machine.visible, BinaryUnits) and isinstance(machine.hidden, BinaryUnits)
    if free_energies is not None:
        change: _Change = _ChangeOfRows(machine, v, free_energies)
    elif binary and np.all((v == 0) | (v == 1)):
        odds, _ = _flips(machine, v)
        return np.asarray(-np.sum(np.logaddexp(0.0, odds), axis=1))
    else:
        change = _ChangeOfFields(machine, v)
    total = np.zeros(len(v))
    for unit in range(machine.n_visible):
        values, log_step = _values(machine, unit)
        logs = np.stack([change(unit, value) for value in values])
        total -= np.asarray(logsumexp(logs, axis=0)) + log_step
    return total


_Change = Callable[[int, float], Array]


class _ChangeOfFields:
    """By how much -F of each row changes when one unit is set to a value: one column of fields."""

    def __init__(self, machine: MachineParameters, rows: Array) -> None:
        self.m, self.rows = machine.copy(np.float64), rows
        self.own = np.tile(self.m.visible_bias, (len(rows), 1))
        if self.m.visible_weights is not None:
            self.own += rows @ self.m.visible_weights
        self.fields = rows @ self.m.weights + self.m.hidden_bias
        self.sums = self._sums(self.fields)
        self.base = self.m.visible.log_base(rows)

    def _sums(self, fields: Array) -> Array:
        return np.asarray(np.sum(self.m.hidden.log_partition(fields), axis=1))

    def __call__(self, unit: int, value: float) -> Array:
        moved = value - self.rows[:, unit]
        sums = self._sums(self.fields + np.outer(moved, self.m.weights[unit])) - self.sums
        base = self.m.visible.log_base(np.array([value]))[0] - self.base[:, unit]
        return np.asarray(self.own[:, unit] * moved + sums + base)


class _ChangeOfRows:
    """The same by free energies of rows that are changed in one unit."""

    def __init__(
        self, machine: MachineParameters, rows: Array, free_energies: Callable[[Array], Array]
    ) -> None:
        self.rows, self.dtype, self.energies = rows, machine.dtype, free_energies
        self.now = self._of(rows)

    def _of(self, rows: Array) -> Array:
        return np.asarray(self.energies(rows.astype(self.dtype)), dtype=np.float64)

    def __call__(self, unit: int, value: float) -> Array:
        changed = self.rows.copy()
        changed[:, unit] = value
        return self.now - self._of(changed)


def _values(machine: MachineParameters, unit: int) -> tuple[Array, float]:
    """The states of a unit, or the nodes of the integral over it and the logarithm of their
    distance.

    Given all others, a real unit is a mixture of normal densities of variance 1 whose means lie
    between two ends. For these the trapezoid rule with steps of 3/4 is exact to 1e-15.
    """
    low, high = machine.visible.limits
    if np.isfinite(low) and np.isfinite(high):
        return np.arange(low, high + 1.0), 0.0
    weights = np.asarray(machine.weights[unit], dtype=np.float64)
    on_each = np.outer(machine.hidden.limits, weights)
    bias = float(machine.visible_bias[unit])
    first, last = bias + on_each.min(axis=0).sum() - _TAIL, bias + on_each.max(axis=0).sum() + _TAIL
    return np.arange(first, last + _STEP, _STEP), math.log(_STEP)


def _flips(machine: MachineParameters, batch: Array) -> tuple[Array, Parameters]:
    """Log odds of all flips and the gradient of the mean pseudo-log-likelihood, in float64."""
    from kikuchi.boltzmann.kernels.pseudo import FlippedRows, flips

    v = np.ascontiguousarray(batch, dtype=np.float64)
    w = np.ascontiguousarray(machine.weights, dtype=np.float64)
    own = np.tile(machine.visible_bias.astype(np.float64), (len(v), 1))
    if machine.visible_weights is not None:
        own += v @ machine.visible_weights.astype(np.float64)
    field = v @ w + machine.hidden_bias.astype(np.float64)
    largest = float(np.max(np.abs(w), initial=0.0))
    chunk = max(1, int(_SAFE / max(largest, 1.0)))
    odds, hidden, corrections = np.empty_like(v), np.zeros_like(field), np.zeros_like(w)
    rows = FlippedRows(v, own, expit(field), expit(-field))
    flips(rows, np.exp(w), np.exp(-w), chunk, odds, hidden, corrections)
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
