"""Signal detection by alpha-belief propagation whose alpha moves from sweep to sweep (LIU-X0).

One sweep with alpha is the reweighted update of weight 1 / alpha and step alpha, so that alpha may
be another number in each sweep; the fields come in gradually, by the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi_experiments.applications.detection import ChannelUses
from kikuchi_experiments.liu2020.mimo import _Mimo
from kikuchi_experiments.liu2020.tables import curves

_DOWN, _UP = 0.9, 1.1  # factors of alpha per sweep


def alphas(name: str, sweeps: int) -> Array:
    """alpha of each sweep, by the name of a detector.

    >>> alphas("alpha:1 to 0.5", 4).tolist()
    [1.0, 0.9, 0.81, 0.7290000000000001]
    >>> alphas("alpha:0.5 to 1", 9)[[0, 1, 8]].round(3).tolist()
    [0.5, 0.55, 1.0]
    >>> alphas("alpha:0.5", 3).tolist()
    [0.5, 0.5, 0.5]
    """
    first, _, last = name.removeprefix("alpha:").partition(" to ")
    begin, end = float(first), float(last or first)
    factor = _DOWN if end < begin else _UP
    path = begin * factor ** np.arange(sweeps) if last else np.full(sweeps, begin)
    return np.asarray(np.maximum(path, end) if end < begin else np.minimum(path, end))


def annealed_odds(couplings: Array, fields: Array, path: Array) -> Array:
    """Log-odds of the symbols of many uses after one sweep per entry of `path`.

    `couplings` (uses, n, n) have a diagonal of 0, `fields` are (uses, n).
    """
    n = fields.shape[1]
    off = 1.0 - np.eye(n)
    z = np.zeros(couplings.shape)  # z[u, i, j]: log-ratio of the message from i to j
    share = 0.0
    for alpha in path:
        total = 2.0 * share * fields + z.sum(axis=1) / alpha
        inflow = total[:, :, None] - z.transpose(0, 2, 1)
        new = _through_pair(inflow, 2.0 * alpha * couplings)
        z = ((1.0 - alpha) * z + alpha * new) * off
        share = 1.0 - (1.0 - share) * (1.0 - alpha)
    return np.asarray(2.0 * fields + z.sum(axis=1) / path[-1])


def _through_pair(d: Array, k: Array) -> Array:
    """2 atanh(tanh(k / 2) tanh(d / 2)) without overflow."""
    large, small = np.maximum(abs(d), abs(k)), np.minimum(abs(d), abs(k))
    value = small + np.log1p(np.exp(-large - small)) - np.log1p(np.exp(small - large))
    return np.asarray(np.sign(d) * np.sign(k) * value)


class AnnealedAlpha(_Mimo):
    """Symbol errors of alpha-BP with alpha that falls, rises or stays (LIU-X0)."""

    id: ClassVar[str] = "LIU-X0"
    published: ClassVar[Mapping[str, Sequence[float | None]]] = curves("LIU-X0")

    def symbols(self, name: str, uses: ChannelUses) -> Array:
        """Symbols after `max_iter` sweeps."""
        gram = np.matmul(uses.channels.transpose(0, 2, 1), uses.channels)
        couplings = -gram / uses.noise * (1.0 - np.eye(gram.shape[1]))
        fields = np.einsum("kmi,km->ki", uses.channels, uses.received) / uses.noise
        odds = annealed_odds(couplings, fields, alphas(name, self.max_iter))
        return np.where(odds > 0.0, 1.0, -1.0)
