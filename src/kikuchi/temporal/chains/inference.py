"""Exact inference in hidden Markov chains: posteriors, filter, most probable path, samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, ModelError
from kikuchi.temporal.kernels import chains as kernels
from kikuchi.temporal.sequences import check_steps


class ChainPosterior(NamedTuple):
    """Probabilities of states (T, K), the log-likelihood, and expected numbers of transitions
    (K, K) of a smoother that was asked for them.
    """

    probabilities: Array
    log_likelihood: float
    transitions: Array


def check_chain(start: Array, transition: Array, where: str = "") -> tuple[Array, Array]:
    """A distribution and a matrix whose rows are distributions, or an error that says why not.

    >>> check_chain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.9]])
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.ModelError: row 1 of transition sums to 1.1, not 1
    """
    first = np.ascontiguousarray(start, dtype=np.float64)
    matrix = np.ascontiguousarray(transition, dtype=np.float64)
    if first.ndim != 1 or matrix.shape != (len(first), len(first)) or not len(first):
        raise ModelError(
            f"start of shape {first.shape} and transition of shape {matrix.shape}{where}; "
            "give (K,) and (K, K)"
        )
    for name, rows in (("start", first[None]), ("transition", matrix)):
        if not np.isfinite(rows).all() or (rows < 0).any():
            raise ModelError(f"{name}{where} has entries that are no probabilities")
        sums = rows.sum(axis=1)
        wrong = np.abs(sums - 1) > 1e-8
        if wrong.any():
            row = int(np.argmax(wrong))
            what = name if name == "start" else f"row {row} of {name}"
            raise ModelError(f"{what}{where} sums to {sums[row]:g}, not 1")
    return first, matrix


def chain_posterior(
    start: Array, transition: Array, log_likelihoods: Array, *, lag: int = 1,
    counts: bool = False, smooth: bool = True,
) -> ChainPosterior:  # fmt: skip
    """Probabilities of the states of a chain, by forward-backward.

    Parameters
    ----------
    start : distribution of the first `lag` states, (K,)
    transition : transition[i, j] = p(state j at t | state i at t - lag), (K, K)
    log_likelihoods : of each step in each state, (T, K); -inf excludes a state
    lag : frames that a transition spans
    counts : also sum the expected transitions
    smooth : given all steps; otherwise given those up to each step

    >>> b = np.log([[0.9, 0.2], [0.9, 0.2], [0.1, 0.8]])
    >>> p = chain_posterior(np.array([0.5, 0.5]), np.array([[0.7, 0.3], [0.3, 0.7]]), b)
    >>> p.probabilities.round(3).tolist()
    [[0.862, 0.138], [0.799, 0.201], [0.191, 0.809]]

    Reference: HOJ-M5, LAW-I24.
    """
    logs = np.ascontiguousarray(log_likelihoods, dtype=np.float64)
    steps, k = logs.shape
    if k != len(start):
        raise DataError(f"log-likelihoods of {k} states for a chain of {len(start)}")
    if np.isnan(logs).any() or (logs == np.inf).any():
        raise DataError("log-likelihoods must be numbers or -inf")
    posterior = np.empty((steps, k))
    table = np.zeros((k, k) if counts else (0, 0))
    value, failed = kernels.forward_backward(
        start, transition, logs, lag, smooth, posterior, np.empty((steps, k)), table
    )
    if failed >= 0:
        raise DataError(f"no state can have produced row {failed}, given the rows before it")
    return ChainPosterior(posterior, float(value), table)


def chain_row_scores(start: Array, transition: Array, log_likelihoods: Array) -> Array:
    """Return log p(row t | rows before t) of each row; the sum is the log-likelihood.

    Parameters as of `chain_posterior`.

    >>> b = np.log([[0.9, 0.2], [0.1, 0.8]])
    >>> chain_row_scores(np.array([0.5, 0.5]), np.full((2, 2), 0.5), b).round(3).tolist()
    [-0.598, -0.799]
    """
    p = chain_posterior(start, transition, log_likelihoods, smooth=False).probabilities
    predicted = np.vstack([start[None], p[:-1] @ transition])
    with np.errstate(divide="ignore"):
        logs = np.log(predicted) + log_likelihoods
    top = logs.max(axis=1, keepdims=True)
    return np.asarray(top[:, 0] + np.log(np.exp(logs - top).sum(axis=1)))


def most_probable_path(
    start: Array, transition: Array, log_likelihoods: Array
) -> tuple[Ints, float]:
    """The most probable sequence of states, and its log-probability together with the outputs.

    Parameters as of `chain_posterior`.

    >>> b = np.log([[0.9, 0.2], [0.9, 0.2], [0.1, 0.8]])
    >>> most_probable_path(np.array([0.5, 0.5]), np.array([[0.7, 0.3], [0.3, 0.7]]), b)[0].tolist()
    [0, 0, 1]
    """
    path = np.empty(len(log_likelihoods), dtype=np.int64)
    with np.errstate(divide="ignore"):
        logs = np.log(start), np.log(transition)
    top = kernels.viterbi(*logs, np.ascontiguousarray(log_likelihoods, dtype=np.float64), path)
    if not np.isfinite(top):
        raise DataError("no sequence of states can have produced these rows")
    return path, float(top)


def sample_chain(
    start: Array, transition: Array, steps: int, rng: np.random.Generator, lag: int = 1
) -> Ints:
    """States drawn from the chain."""
    check_steps(steps, "sample")
    first, edges = np.cumsum(start), np.cumsum(transition, axis=1)
    states, uniform = np.empty(steps, dtype=np.int64), rng.random(steps)
    last = len(start) - 1
    for t in range(steps):
        row = first if t < lag else edges[states[t - lag]]
        states[t] = min(int(np.searchsorted(row, uniform[t], side="right")), last)
    return states
