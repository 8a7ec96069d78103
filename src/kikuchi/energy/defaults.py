"""What `EnergyModel` learns where nothing is chosen: the energy and the learner that suit rows.

Independent linear features describe patches and sounds, where log Z cannot be found while learning.
Rows of few columns have densities of any form: a network learns them by telling rows from noise,
which for few columns is as good as the likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"
FEW_COLUMNS = 6
"""White columns up to which a network learns the density."""

_FEWEST_ROWS = 100  # of such a network


@dataclass(frozen=True)
class Recipe:
    """Values of the options that say auto; `updates` of the parameters, or none: ten epochs."""

    energy: str
    features: int | None
    learner: str
    start: str
    optimiser: str
    schedule: str
    updates: int | None

    def epochs(self, rows: int, batch: int) -> int:
        """Passes over so many rows."""
        if self.updates is None:
            return 10
        return min(max(-(-self.updates * batch // rows), 10), 300)


LINEAR = Recipe("linear", None, "cd", "ica", "sgd", "constant", None)
NETWORK = Recipe("feed-forward:layers=2", 32, "nce", "random", "adam", "cosine", 3000)


def recipe(energy: object, learner: str, columns: int, rows: int, *, patches: bool) -> Recipe:
    """The recipe for white rows of so many columns.

    >>> recipe("auto", "auto", 2, 1000, patches=False).energy
    'feed-forward:layers=2'
    >>> recipe("auto", "auto", 64, 1000, patches=False).energy
    'linear'
    """
    free = energy == AUTO and learner == AUTO and not patches
    return NETWORK if free and columns <= FEW_COLUMNS and rows >= _FEWEST_ROWS else LINEAR
