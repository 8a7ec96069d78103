"""Priors that adapt to the data: a first separation, then a shape for each source of it; and
whether the sources of a fit are less independent than those of such a separation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.ica.initialisation import has_directions, oriented, principal, rotation, whitened
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.priors.prior import SourcePrior
from kikuchi.ica.priors.shapes import choose_shapes

_MIXED_UP = 0.02  # nats for each sample and source that a first separation has more
_LEAST_GAIN = 10.0  # nats for each source that it has more over all samples
_SEEN = 5000  # samples that shapes are chosen by
_SEEN_LEVELS = (0.0, 0.03, 0.1, 0.2, 0.4, 0.7)  # of noise in sources of variance 1
_OF_THE_REST = (0.5, 0.7, 1.0, 1.4)  # noise beside the mean variance that sources do not explain
_OF_THE_LEAST = (0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 0.9)  # and of the least direction
_TURNS = 3  # first separations, of which the most independent is kept: some are saddles
_SAME = 0.999  # correlation of a source with its counterpart in another separation, if they agree
_LOUD = 0.15  # part of the least direction, from which noise may be that of some channels alone


@dataclass(frozen=True)
class Adapted:
    """Priors of the sources, the names of their shapes, and the columns of the mixing matrix that
    they were found with.
    """

    priors: tuple[SourcePrior, ...]
    names: list[str]
    columns: Array


def adapt_priors(
    data: Observations, sources: int, noise: float | None, rng: np.random.Generator
) -> Adapted:
    """Priors of so many `sources` of complete `data`; `noise` is its variance where known."""
    seen = data.spread(_SEEN)
    white, vectors, values, rest = whitened(seen, sources, rng)
    if noise is not None:
        levels = [noise]
    elif rest > 0.0:
        levels = [min(part * rest, float(values[-1])) for part in _OF_THE_REST]
    else:
        levels = [part * float(values[-1]) for part in _OF_THE_LEAST]
    choices = [
        (basis, choose_shapes(basis @ white, basis**2 @ (1.0 / values), levels))
        for basis in _different([rotation(white, rng) for _ in range(_TURNS)])
    ]  # with the variances of noise of level 1, in sources of variance 1
    basis, found = max(choices, key=lambda choice: float(choice[1].scores.sum()))
    if noise is None and rest <= 0.0 and found.level > _LOUD * float(values[-1]):
        found = found.with_sharper_peaks()
    return Adapted(found.priors, found.names, (vectors * np.sqrt(values)) @ basis.T)


def _different(turns: list[Array]) -> list[Array]:
    """Rotations without those that have the directions of an earlier one, in any order."""
    kept: list[Array] = []
    for basis in turns:
        if not any(_are_same(basis @ other.T) for other in kept):
            kept.append(basis)
    return kept


def _are_same(correlations: Array) -> bool:
    """Whether each source of one separation is one of the other."""
    return bool(np.abs(correlations).max(axis=1).min() > _SAME)


def better_separation(
    model: Model, data: Observations, columns: Array | None, rng: np.random.Generator
) -> list[str]:
    """Shapes of the sources of a first separation, if these are clearly more independent than the
    sources of the fit; else none.

    Both are made uncorrelated; then those whose likeliest shapes have the greater likelihood are
    the more independent. The separation has such `columns`, or is made anew. Nothing is compared
    with missing values, or more sources than channels or directions of the data.
    """
    if data.observed is not None or not 1 < model.sources <= min(data.channels, data.count - 1):
        return []
    seen = data.spread(_SEEN)
    centred = seen.x - seen.x.mean(axis=1, keepdims=True)
    vectors, values, _ = principal(centred, model.sources, rng)
    if not has_directions(values):
        return []
    white = (vectors / np.sqrt(values)).T @ centred
    begin = None if columns is None else oriented(vectors, values, columns)
    first = rotation(white, rng, begin=begin) @ white
    fitted = model.noise.unmixing(model.mixing) @ seen.x
    fitted = fitted - fitted.mean(axis=1, keepdims=True)
    own, turn = np.linalg.eigh(fitted @ fitted.T / seen.count)
    fitted = (turn / np.sqrt(np.maximum(own, 1e-12 * own[-1]))) @ turn.T @ fitted
    if _are_same(first @ fitted.T / seen.count):
        return []
    ones = np.ones(model.sources)
    better, mine = (choose_shapes(sources, ones, _SEEN_LEVELS) for sources in (first, fitted))
    gain = float(better.scores.mean() - mine.scores.mean())
    return better.names if gain > max(_MIXED_UP, _LEAST_GAIN / seen.count) else []
