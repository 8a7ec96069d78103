"""`RateCodedRBM`: restricted machine whose units count how many of their replicas are on.

A visible unit stands for n binary units with the same weights, a hidden one for m; only the shares
of them that are on matter. So grey values are modelled as rates, without noise of single bits.

Reference: TEH-L9, TEH-M9, TEH-M10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kikuchi.boltzmann import kinds
from kikuchi.boltzmann.estimators.estimator import Array, MachineEstimator, RestrictedMachine
from kikuchi.boltzmann.layers import Layers
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.rules.rate_coded import RateCodedDivergence
from kikuchi.boltzmann.units import BinomialUnits, Units
from kikuchi.core.options import option
from kikuchi.training.rows import is_sparse
from kikuchi.training.rule import Rule

_SCALE, _HIDDEN_START = 1e-4, -0.5
# Weights that can only add begin so that a mean row raises the fields of hidden units from a low
# start to about -0.5: with fewer or more of their replicas on, most units are soon off for good.
_FIRST_RISE, _LOW_START = 3.5, -4.0
_DEAD = 1e-3  # spread over the data below which a hidden unit says nothing


@dataclass(eq=False, repr=False, kw_only=True)
class RateCodedRBM(RestrictedMachine, MachineEstimator):
    """Rate-coded restricted Boltzmann machine, learnt by contrastive divergence.

    `transform` gives the fraction of the replicas of each hidden unit that are on, in [0, 1].

    Attributes are those of `RBM`; weights of `model_` are those between two replicas. The thesis
    used a learning rate of 0.0025 in the end; large steps while weights are still random may switch
    all hidden units off, which `warnings_` tells.

    >>> rows = np.repeat([[0.9, 0.8, 0.1], [0.1, 0.2, 0.9]], 40, axis=0)
    >>> rbm = RateCodedRBM(2, learning_rate=0.05, max_iter=200, random_state=0).fit(rows)
    >>> rbm.transform(rows[:1]).shape
    (1, 2)
    >>> bool(np.abs(rbm.reconstruct(rows) - rows).max() < 0.1)
    True
    """

    kind = kinds.RATE_RBM
    visible_replicas: int = option(10, "Binary units that one visible unit stands for.", low=1)
    hidden_replicas: int = option(100, "Binary units that one hidden unit stands for.", low=1)
    nonnegative: bool = option(False, "Hold weights at 0 or above: features become local parts.")
    learning_rate: float = option(2.5e-4, "First rate of weights between replicas.", above=0)
    bias_factor: float = option(2.0, "Rate of biases as a multiple of that of weights.", low=0)
    momentum: float = option(0.95, "Momentum of sgd; 0 for other optimisers.", low=0, below=1)
    max_iter: int = option(250, "Number of passes over the rows, each shuffled.", low=1)
    scale: float | None = option(
        None, "Standard deviation of the first weights; none: as suits the signs.", low=0
    )
    hidden_start: float | None = option(
        None, "Hidden biases at the start; none: -0.5, or -4 where weights are non-negative."
    )
    limits: Sequence[float] | str | None = option(
        (0.0, 1.0),
        'Values of the data for no replica and for all of them; "data": those that `fit` saw; '
        "none: data are numbers of replicas.",
    )

    def _units(self) -> Units:
        return BinomialUnits(replicas=self.visible_replicas)

    def _rule(self, model: Any) -> Rule[Machine]:
        return RateCodedDivergence(bias_factor=self.bias_factor, nonnegative=self.nonnegative)

    def _begin(self, rows: Any, rng: np.random.Generator) -> Machine:
        """Small random weights, and visible biases with which a mean row gives the mean again."""
        replicas = self.visible_replicas
        mean = np.asarray(rows.mean(axis=0), dtype=rows.dtype).reshape(1, -1)
        machine = Machine.random(
            rows.shape[1],
            self.n_components,
            scale=self._first_scale(mean) if self.scale is None else self.scale,
            visible=self._units(),
            hidden=BinomialUnits(replicas=self.hidden_replicas),
            dtype=np.dtype(self.dtype),
            random_state=rng,
        )
        if self.nonnegative:
            np.abs(machine.weights, out=machine.weights)
        start = _LOW_START if self.nonnegative else _HIDDEN_START
        machine.hidden_bias[...] = start if self.hidden_start is None else self.hidden_start
        mean = np.clip(mean, 0.01 * replicas, 0.99 * replicas)
        from_hidden = machine.visible_field(machine.hidden.mean(machine.hidden_field(mean)))
        machine.visible_bias[...] = (np.log(mean / (replicas - mean)) - from_hidden)[0]
        return machine

    def _first_scale(self, mean: Array) -> float:
        if not self.nonnegative:
            return _SCALE
        mean_size = np.sqrt(2 / np.pi)  # of a standard normal number
        return float(_FIRST_RISE / max(float(mean.sum()) * mean_size, 1.0))

    def _remarks(self, rows: Any) -> list[str]:
        dense = rows.toarray() if is_sparse(rows) else rows
        dead = int(np.sum(np.std(self._hidden_means(dense), axis=0) < _DEAD))
        if len(dense) < 2 or dead <= 0.9 * self.n_components:
            return []
        return [
            f"{dead} of {self.n_components} hidden units answer all rows alike: the machine has "
            "collapsed; lower learning_rate or scale"
        ]

    def _hidden_means(self, rows: Array) -> Array:
        shares: Array = Layers(self.model_).hidden(rows, None).mean / self._per_hidden
        return shares

    def _visible_means(self, hidden: Array) -> Array:
        return Layers(self.model_).visible(hidden * self._per_hidden, None).mean

    @property
    def _per_hidden(self) -> np.floating[Any]:
        """Replicas of a hidden unit in the machine's numbers."""
        replicas: np.floating[Any] = self.model_.dtype.type(self.hidden_replicas)
        return replicas
