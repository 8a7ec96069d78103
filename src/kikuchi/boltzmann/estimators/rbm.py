"""`RBM`: restricted Boltzmann machines as scikit-learn estimators.

Reference: TEH-I11, TEH-L9, TEH-M6, TEH-M8.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from kikuchi.boltzmann.estimators.estimator import LearnerEstimator, RestrictedMachine
from kikuchi.boltzmann.units import Units, parse_units
from kikuchi.core.options import option


@dataclass(eq=False, repr=False)
class RBM(RestrictedMachine, LearnerEstimator):
    """Restricted Boltzmann machine: a product of one expert per hidden unit.

    Given the visible units, the hidden ones are independent, so that inference is one product and
    one logistic function. Options are checked by `fit`; rows and samples have the values
    of the data, whatever `limits` are.

    Attributes: `machine_`, `components_` (weights, one row per hidden unit), `trace_` (with
    `plot()`), `n_iter_`, `stopped_`, `converged_` (True only if a stopping criterion was met: not
    after the last epoch), `warnings_`, `score_kind_` (whether `score` is a log-likelihood or a
    pseudo-log-likelihood), `log_z_` (once `log_z` was called).

    >>> import numpy as np
    >>> rows = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 50, axis=0)
    >>> rbm = RBM(2, learner="cd", learning_rate=0.5, epochs=300, random_state=0).fit(rows)
    >>> bool(np.abs(rbm.reconstruct(rows) - rows).max() < 0.2)
    True
    >>> rbm.score_kind_, bool(rbm.score(rows) > -1.5)  # the best is -log 2
    ('log-likelihood', True)
    """

    n_hidden: int = option(256, "Number of hidden units.", low=0)
    _: KW_ONLY
    learning_rate: float = option(0.1, "First rate of the updates.", above=0)
    schedule: str = option(
        "linear",
        'Learning rate: "linear" (falls to 0), "constant", "cosine", "exponential:factor=0.95", '
        '"inverse-time:decay=0.05" or "warmup-cosine".',
    )
    batch_size: int = option(10, "Rows of each update.", low=1)
    epochs: int = option(30, "Passes over the rows, each in an order of its own.", low=1)
    visible: str = option(
        "binary", 'Visible units: "binary", "gaussian" or "binomial:replicas=10".'
    )

    def _units(self) -> Units:
        return parse_units(self.visible)

    def _structure(self) -> dict[str, Any]:
        return {"visible": self._units()}
