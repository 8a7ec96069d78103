"""`BoltzmannMachine`: machines of any architecture as scikit-learn estimators.

Reference: WH-M1 to M3, WH-M2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from numpy.typing import ArrayLike

from kikuchi.boltzmann import kinds
from kikuchi.boltzmann.estimators.estimator import Array, LearnerEstimator
from kikuchi.boltzmann.fixed_point import free_energy, hidden_means, visible_means
from kikuchi.core.options import option


@dataclass(eq=False, repr=False)
class BoltzmannMachine(LearnerEstimator):
    """Binary machine with connections among visible and among hidden units as wished.

    Means of connected units are fixed points of the approximation `energy`: `free_energy` is exact
    where hidden units are independent (brf, poe) and an approximation otherwise.

    The others are those of `RBM`, and so are the attributes, without `components_`.

    >>> import numpy as np
    >>> rows = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 50, axis=0)
    >>> machine = BoltzmannMachine(2, architecture="poe", max_iter=30, random_state=0).fit(rows)
    >>> machine.transform(rows[:3]).shape, machine.model_.architecture
    ((3, 2), 'poe')
    """

    kind = kinds.MACHINE
    n_components: int = option(
        25, "Number of hidden units; may be 0 where visible units are connected.", low=0
    )
    _: KW_ONLY
    architecture: str = option(
        "fcrf", "Connections inside a layer: brf (none), hrf (hidden), poe (visible), fcrf (both)."
    )
    masks: Mapping[str, ArrayLike] | None = option(
        None, "Which connections there are, instead of an architecture."
    )
    learner: str = option(
        "cf:energy=mf,k=1", 'Learning rule such as "cd:k=1"; see `kikuchi learners --machines`.'
    )
    energy: Literal["mf", "tap", "bethe", "exact"] = option(
        "mf", "Approximation of `transform` and `free_energy`."
    )
    momentum: float = option(0.9, "Momentum of sgd; 0 for other optimisers.", low=0, below=1)
    weight_decay: float = option(1e-4, "Weight decay.", low=0)
    batch_size: int = option(10, "Number of rows per update.", low=1)

    def _structure(self) -> dict[str, Any]:
        return {"architecture": self.architecture, "masks": self.masks}

    def _hidden_means(self, rows: Array) -> Array:
        if self.energy == "exact":
            from kikuchi.boltzmann.exact import clamped

            return clamped(self.model_, rows).hidden.astype(self.dtype)
        return hidden_means(self.model_, rows, energy=self.energy).means.astype(self.dtype)

    def _visible_means(self, hidden: Array) -> Array:
        energy = "mf" if self.energy == "exact" else self.energy
        return visible_means(self.model_, hidden, energy=energy).means.astype(self.dtype)

    def _free_energies(self, rows: Array) -> Array:
        return free_energy(self.model_, rows, self.energy)
