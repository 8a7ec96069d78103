"""Priors that adapt to the data: a first separation, then a shape for each source of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.ica.initialisation import rotation, whitened
from kikuchi.ica.model import Observations
from kikuchi.ica.priors.prior import SourcePrior
from kikuchi.ica.priors.shapes import choose_shapes

_SEEN = 5000  # samples that shapes are chosen by
_OF_THE_REST = (0.5, 0.7, 1.0, 1.4)  # noise beside the mean variance that sources do not explain
_OF_THE_LEAST = (0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 0.9)  # and of the least direction


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
    basis = rotation(white, rng)
    each = basis**2 @ (1.0 / values)  # noise of variance 1, in sources of variance 1
    if noise is not None:
        levels = [noise]
    elif rest > 0.0:
        levels = [min(part * rest, float(values[-1])) for part in _OF_THE_REST]
    else:
        levels = [part * float(values[-1]) for part in _OF_THE_LEAST]
    found = choose_shapes(basis @ white, each, levels)
    return Adapted(found.priors, found.names, (vectors * np.sqrt(values)) @ basis.T)
