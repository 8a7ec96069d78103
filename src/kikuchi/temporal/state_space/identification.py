"""Whether a series determines all dimensions of the state that was fitted to it, and whether these
dimensions are enough.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from kikuchi.core.arrays import Array
from kikuchi.temporal.state_space.inference import filter_states
from kikuchi.temporal.state_space.parameters import StateSpace

_HORIZON = 200  # steps ahead over which a dimension may show itself
_MOST_LAGS = 50
_LEAST_CORRELATION = 0.15  # below it little is gained, however sure it is
_AS_STRONG = 0.9  # as the strongest; the shortest such lag is named
_CHANCE = 0.01  # that any correlation of independent errors is remarked on


def nats_by_dimension(model: StateSpace, tables: list[Array], inputs: list[Array]) -> Array:
    """Log-likelihood that each dimension of the state adds to the predictions, in balanced
    coordinates, in increasing order.

    In these coordinates the second moments of the predicted states and the information of the
    outputs that follow about them are diagonal and equal. What a dimension adds is half the sum of
    squares of its part of the predictions, in units of their deviations.

    >>> walk = StateSpace([[0.9]], [[1.0]], [[1.0]], [[1.0]], initial_covariance=[[1.0]])
    >>> y = np.array([[1.0], [1.5], [2.0], [1.0], [0.0], [-1.0]])
    >>> nats_by_dimension(walk, [y], [np.zeros((6, 0))]).round(2).tolist()
    [0.15]
    """
    predicted, innovation = _predictions(model, tables, inputs)
    weighted = np.linalg.solve(np.linalg.cholesky(innovation), model.output)
    reach = predicted.T @ predicted / max(len(predicted), 1)
    sight = _information(model.transition, weighted)
    one, two = _root(reach), _root(sight)
    left, sizes, right = np.linalg.svd(two.T @ one)
    safe = np.sqrt(np.maximum(sizes, 1e-150))
    to_states, from_states = one @ right.T / safe, (two @ left / safe).T
    parts = (predicted @ from_states.T)[:, None] * (weighted @ to_states)
    nats = 0.5 * (parts**2).sum(axis=(0, 1))
    return np.sort(np.where(sizes > 1e-12 * max(sizes[0], 1e-150), nats, 0.0))


def doubtful_dimensions(model: StateSpace, tables: list[Array], inputs: list[Array]) -> list[str]:
    """A remark where the rows do not identify all dimensions of the state: where one adds less to
    the log-likelihood than the information criterion BIC charges for it.

    A dimension of a model of m outputs costs 2 m parameters, or m log(rows) nats.
    """
    nats = nats_by_dimension(model, tables, inputs)
    rows = sum(int((~np.isnan(y)).any(axis=1).sum()) for y in tables)
    charge = model.n_outputs * float(np.log(max(rows, 2)))
    doubtful = int((nats < charge).sum())
    if not doubtful:
        return []
    n = len(nats)
    found = (
        f"{doubtful} of {n} dimensions of the state {'are' if doubtful > 1 else 'is'} not "
        f"identified (the least adds {nats[0]:.2g} nats of log-likelihood, BIC charges "
        f"{charge:.2g}): the transition and the noise covariances along such a dimension are not "
        "determined by the data; "
    )
    if doubtful == n:
        return [found + "independent rows describe the data as well"]
    return [found + f"use n_components={n - doubtful}"]


def correlated_errors(
    model: StateSpace, tables: list[Array], inputs: list[Array], more: bool = True
) -> list[str]:
    """A remark where errors of predictions one step ahead, which are independent under the true
    model, are correlated in time.

    Of all outputs and lags up to 50, or a quarter of the rows, the strongest correlation counts,
    and of those that are about as strong the one of the shortest lag. `more` says whether a larger
    state may help.
    """
    errors = [_one_step_errors(model, y, u) for y, u in zip(tables, inputs, strict=True)]
    lags = min(_MOST_LAGS, max(map(len, errors)) // 4)
    every: list[tuple[float, int, float]] = []
    for lag in range(1, lags + 1):
        pairs = np.concatenate([e[lag:] * e[:-lag] for e in errors if len(e) > lag])
        seen = (~np.isnan(pairs)).sum(axis=0)
        for column in np.flatnonzero(seen):
            found = float(np.nanmean(pairs[:, column]))
            if abs(found) > _LEAST_CORRELATION:
                every.append((abs(found) * float(seen[column]) ** 0.5, lag, found))
    strongest = max(every, default=(0.0, 0, 0.0))[0]
    if not strongest > norm.isf(0.5 * _CHANCE / max(lags * model.n_outputs, 1)):
        return []
    # a season shows at its multiples, too
    _, lag, found = next(own for own in every if own[0] >= _AS_STRONG * strongest)
    ways = [f"raise n_components (now {model.n_states})"] if more else []
    ways += [f"subtract a season of {lag} rows first"] if lag > 2 and found > 0 else []
    if not ways:
        return []
    return [
        f"errors of predictions one step ahead are correlated ({found:.2f} between rows {lag} "
        f"apart), so that forecasts can be improved: {', or '.join(ways)}"
    ]


def _one_step_errors(model: StateSpace, y: Array, u: Array) -> Array:
    """Errors of all rows but the first, standardised by column; NaN where there are none."""
    f = filter_states(model, y, u if model.n_inputs else None)
    ahead = f.mean[:-1] @ model.transition.T + model.state_offset + u[1:] @ model.state_input.T
    mean = ahead @ model.output.T + model.output_offset + u[1:] @ model.output_input.T
    errors = np.where(f.proper[:-1, None], y[1:] - mean, np.nan)
    if not len(errors):
        return errors
    seen = np.maximum((~np.isnan(errors)).sum(axis=0), 1)
    errors = errors - np.nansum(errors, axis=0) / seen
    spread = np.sqrt(np.nansum(errors**2, axis=0) / seen)
    return np.asarray(errors / np.where(spread > 0, spread, np.inf))


def _predictions(
    model: StateSpace, tables: list[Array], inputs: list[Array]
) -> tuple[Array, Array]:
    """Predicted states of all rows but the first of each sequence, about their mean, and the mean
    covariance of the outputs given the rows before.
    """
    means, covariances = [], []
    for y, u in zip(tables, inputs, strict=True):
        f = filter_states(model, y, u if model.n_inputs else None)
        known = f.proper[:-1]
        ahead = f.mean[:-1] @ model.transition.T + model.state_offset + u[1:] @ model.state_input.T
        means.append(ahead[known])
        covariances.append(f.covariance[:-1][known])
    states, spread = np.concatenate(means), np.concatenate(covariances)
    a, c = model.transition, model.output
    state = a @ spread.mean(axis=0) @ a.T + model.state_noise if len(spread) else model.state_noise
    return states - states.mean(axis=0), c @ state @ c.T + model.output_noise


def _information(transition: Array, weighted: Array) -> Array:
    """Sum over the next steps of the information of outputs about the state now."""
    total, now = np.zeros(transition.shape), weighted
    for _ in range(_HORIZON):
        total = total + now.T @ now
        now = now @ transition
    return total


def _root(matrix: Array) -> Array:
    """A factor F with F F' the matrix."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
