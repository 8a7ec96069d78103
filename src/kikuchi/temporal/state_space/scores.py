"""Log density of each row of outputs given the rows before it, from the filter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.temporal.state_space.inference import (
    filter_states,
    leading,
    output_means,
    state_drift,
)
from kikuchi.temporal.state_space.parameters import StateSpace


def row_scores(
    model: StateSpace, y: Array, inputs: Array | None = None, *, arithmetic: Any = "auto"
) -> Array:
    """Return log p(y_t | y_1, ..., y_t-1) of each row; 0 for rows without a value.

    The sum is the log-likelihood of the sequence.

    >>> walk = StateSpace([[1.0]], [[1.0]], [[1.0]], [[1.0]], initial_covariance=[[1.0]])
    >>> y = np.array([[0.3], [np.nan], [1.2]])
    >>> bool(np.isclose(row_scores(walk, y).sum(), filter_states(walk, y).log_likelihood))
    True
    """
    if model.initial_covariance is None:
        raise ModelError(
            "a flat prior gives the first rows no density of their own; give initial_covariance"
        )
    steps, n = len(y), model.n_states
    f = filter_states(model, y, inputs, arithmetic=arithmetic)
    a, q = (_each(p, steps) for p in (model.transition, model.state_noise))
    c, r = (_each(p, steps) for p in (model.output, model.output_noise))
    mean, covariance = np.empty((steps, n)), np.empty((steps, n, n))
    mean[0], covariance[0] = model.initial_mean, model.initial_covariance
    moved = np.broadcast_to(state_drift(model, inputs, steps), (max(steps, 1), n))
    mean[1:] = np.einsum("tij,tj->ti", a[1:], f.mean[:-1]) + moved[1:steps]
    covariance[1:] = a[1:] @ f.covariance[:-1] @ a[1:].swapaxes(1, 2) + q[1:]
    errors = y - np.einsum("tij,tj->ti", c, mean) - output_means(model, inputs, steps)
    spread = c @ covariance @ c.swapaxes(1, 2) + r
    missing = np.isnan(errors)
    # a missing value is independent of all others, with variance 1, and hits its mean
    spread = np.where(missing[:, :, None] | missing[:, None, :], 0.0, spread)
    spread += missing[:, :, None] * np.eye(errors.shape[1])
    errors = np.where(missing, 0.0, errors)
    sign, log_det = np.linalg.slogdet(spread)
    if not np.all(sign > 0):
        raise ModelError("outputs without noise have no density; give output_noise")
    squares = np.einsum("ti,ti->t", errors, np.linalg.solve(spread, errors[:, :, None])[:, :, 0])
    counts = (~missing).sum(axis=1)
    return np.asarray(-0.5 * (squares + log_det + counts * math.log(2.0 * math.pi)))


def _each(parameter: Any, steps: int) -> Array:
    """A parameter with one matrix per step."""
    return np.broadcast_to(leading(parameter, 2)[:steps], (steps, *parameter.shape[-2:]))
