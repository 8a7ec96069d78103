"""`ExpertICA`: overcomplete linear experts.

Reference: TEH-M12.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.energy import kinds
from kikuchi.energy.energies import ENERGIES, Energy, LinearExperts, shapes_of
from kikuchi.energy.estimator import EnergyModel


@dataclass(eq=False, repr=False)
class ExpertICA(EnergyModel):
    """Independent features without a causal model: a product of experts on linear features.

    With more features than columns the features are overcomplete: dependent in the density, and
    found by one pass forward.

    >>> rows = np.random.default_rng(0).laplace(size=(1000, 2)) @ [[1.0, 0.5], [0.2, 1.0]]
    >>> model = ExpertICA(n_components=4, max_iter=2, random_state=0).fit(rows)
    >>> model.filters_.shape, model.shapes_.shape
    ((4, 2), (4,))
    """

    kind = kinds.EXPERTS
    energy: str = option(
        "linear",
        "Energy of the features: linear (linear:contrast=12 for patches and sounds), topographic, "
        "feed-forward, recurrent, manifold.",
    )
    expert: str = option(
        "student-t", "Density of one feature: student-t, logistic, laplace or gaussian-mixture."
    )
    _: KW_ONLY
    learner: str = option(
        "cd", "cd, pcd, equilibrium, exact, score-matching, denoising or nce, with options."
    )
    start: str = option(
        "ica",
        "First filters: independent components (ica; rows where there are fewer than ten rows a "
        "column), along rows of the data (rows), or random directions (random).",
    )
    solver: str = option("sgd", 'Optimiser: "sgd", or one of optax such as "adam:b1=0.8".')
    schedule: str = option(
        "constant",
        'Learning rate: "constant", "linear", "cosine", "exponential:factor=0.95", '
        '"inverse-time:decay=0.05" or "warmup-cosine".',
    )
    max_iter: int = option(10, "Number of passes over the rows, each shuffled.", low=1)

    judged_columns: ClassVar[int] = 0

    def _energy(self) -> Energy:
        energy = ENERGIES.parse(self.energy)
        if isinstance(energy, LinearExperts):
            usual = LinearExperts().expert
            if usual not in (energy.expert, self.expert) and energy.expert != self.expert:
                raise MethodError(f"two experts: {self.energy} and {self.expert}; give one")
            return replace(energy, expert=self.expert) if energy.expert == usual else energy
        if energy.name == "uniform-gaussian":
            raise MethodError(f"ExpertICA needs linear filters; use EnergyModel({self.energy!r})")
        return energy

    @property
    def white_filters_(self) -> Array:
        """Filters of white rows, one per row."""
        return np.asarray(self._values["filters"])

    @property
    def filters_(self) -> Array:
        """Filters by rows in the coordinates of the data: features are filters_ @ (x - mean)."""
        return np.asarray(self.white_filters_ @ self.whitening_.forward)

    @property
    def basis_(self) -> Array:
        """White filters seen as rows of the data: what each feature looks for."""
        return np.asarray(self.white_filters_ @ self.whitening_.backward.T)

    @property
    def shapes_(self) -> Array | None:
        """Shapes of the experts; None for experts without."""
        shapes = shapes_of(self._values)
        return None if shapes is None else np.asarray(shapes)
