"""`RBM`: restricted Boltzmann machines as scikit-learn estimators.

Reference: TEH-I11, TEH-L9, TEH-M6, TEH-M8.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

import numpy as np

from kikuchi.boltzmann import kinds
from kikuchi.boltzmann.estimators.estimator import Array, LearnerEstimator, RestrictedMachine
from kikuchi.boltzmann.held_out import HeldOutScore, below_independent_bits, dense_rows
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits, Units, parse_units
from kikuchi.core.log import warn_caller
from kikuchi.core.options import option
from kikuchi.training.contrastive import SampledRule, drawn_bits
from kikuchi.training.estimator import ConvergenceWarning
from kikuchi.training.optimiser import Optimiser
from kikuchi.training.rows import is_sparse
from kikuchi.training.rule import Rule
from kikuchi.training.trainer import Training, Validation

_UPDATES, _FEWEST_EPOCHS, _MOST_EPOCHS = 10_000, 30, 300
_MOST_HELD_OUT, _FEWEST_HELD_OUT = 500, 10  # rows
_LEAST_PATIENCE = 5  # epochs
_JUDGED_BITS = 200  # rows of bits, at least, that are drawn from held-out rows of grey levels


@dataclass(eq=False, repr=False)
class RBM(RestrictedMachine, LearnerEstimator):
    """Restricted Boltzmann machine: a product of one expert per hidden unit.

    Given the visible units, the hidden ones are independent, so that inference is one product and
    one logistic function. Options are checked by `fit`; rows and samples have the values
    of the data, whatever `limits` are.

    A tenth of the rows is held out: their log-likelihood after each epoch (pseudo-log-likelihood
    where no side has few states) decides which epoch is the answer. If in the end their
    log-likelihood is below that of independent bits, `fit` warns.

    Numbers between 0 and 1 are probabilities: bits are drawn from them, anew in every pass, by
    rules with chains, and once from the rows held out. Used as they are, columns that vary less
    than bits would pull the weights towards 0 (`grey="means"` does so).

    Attributes: `model_`, `components_` (weights, one row per hidden unit), `trace_` (with
    `plot()`), `n_iter_`, `stopped_`, `converged_` (True only if a stopping criterion was met: not
    after the last epoch), `warnings_`, `score_kind_` (whether `score` is a log-likelihood or a
    pseudo-log-likelihood), `log_z_` (once `log_z` was called).

    >>> import numpy as np
    >>> rows = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 50, axis=0)
    >>> rbm = RBM(2, learner="cd", learning_rate=0.5, max_iter=300, random_state=0).fit(rows)
    >>> bool(np.abs(rbm.reconstruct(rows) - rows).max() < 0.2)
    True
    >>> rbm.score_kind_, bool(rbm.score(rows) > -1.5)  # the best is -log 2
    ('log-likelihood', True)
    """

    kind = kinds.RBM
    n_components: int = option(256, "Number of hidden units.", low=0)
    _: KW_ONLY
    learner: str = option(
        "pcd:k=3", 'Learning rule such as "pcd:k=1"; see `kikuchi learners --machines`.'
    )
    learning_rate: float = option(0.1, "Initial learning rate.", above=0)
    schedule: str = option(
        "linear",
        'Learning rate: "linear" (falls to 0), "constant", "cosine", "exponential:factor=0.95", '
        '"inverse-time:decay=0.05" or "warmup-cosine".',
    )
    batch_size: int = option(10, "Number of rows per update.", low=1)
    max_iter: int | None = option(  # type: ignore[assignment]
        None,
        "Maximum number of passes over the rows; none: as many as 10,000 updates take, between 30 "
        "and 300.",
        low=1,
    )
    validation_fraction: float = option(
        0.1,
        "Fraction of the rows held out (500 at most) to choose the epoch; 0, or fewer than 10 rows "
        "held out: the last epoch is the answer.",
        low=0,
        below=1,
    )
    tol: float = option(
        0.01,
        "Training ends when the score of the rows held out has not risen by more nats per row for "
        "half of the epochs, and for 5 at least.",
        low=0,
    )
    visible: str = option(
        "binary", 'Visible units: "binary", "gaussian" or "binomial:replicas=10".'
    )

    grey: Literal["bits", "means"] = option(
        "bits",
        "Numbers between 0 and 1: bits are drawn from them for each update (bits; rules cd, pcd, "
        "brief-gibbs and gibbs), or they are used as they are (means).",
    )

    def _units(self) -> Units:
        return parse_units(self.visible)

    def _structure(self) -> dict[str, Any]:
        return {"visible": self._units()}

    # ------------------------------------------------------------------ learning

    def _rule(self, model: Machine) -> Rule[Machine]:
        rule: Rule[Any] = super()._rule(model)
        if self._draws_bits and isinstance(rule, SampledRule):
            return replace(rule, bits=True)
        return rule

    def _has_grey(self, rows: Any) -> bool:
        """Whether some numbers are probabilities of bits, and are to be drawn."""
        if self.grey != "bits" or not isinstance(self._units(), BinaryUnits):
            return False
        values = rows.data if is_sparse(rows) else rows
        return bool(np.any((values != 0) & (values != 1)))

    def _epochs(self, rows: Any) -> int:
        if self.max_iter is not None:
            return self.max_iter
        held = self._rows_held_out(rows)
        per_epoch = -(-(int(rows.shape[0]) - held) // self.batch_size)
        return min(max(-(-_UPDATES // per_epoch), _FEWEST_EPOCHS), _MOST_EPOCHS)

    def _rows_held_out(self, rows: Any) -> int:
        count = int(min(round(self.validation_fraction * rows.shape[0]), _MOST_HELD_OUT))
        return count if count >= _FEWEST_HELD_OUT else 0

    def _train(
        self, model: Any, rows: Any, rng: np.random.Generator, optimiser: Optimiser, epochs: int,
        *arguments: Any,
    ) -> None:  # fmt: skip
        self._held_out, self._of_epochs = rows[:0], epochs
        self._draws_bits = self._has_grey(rows)
        count = self._rows_held_out(rows) if epochs > 1 else 0
        if count:
            order = rng.permutation(rows.shape[0])
            self._held_out, rows = rows[order[:count]], rows[order[count:]]
            if self._draws_bits:
                self._held_out = _bits_of(self._held_out)
        super()._train(model, rows, rng, optimiser, epochs, *arguments)

    def _trained(self, *arguments: Any, **more: Any) -> Training[Any]:
        if self._held_out.shape[0]:
            patience = max(-(-self._of_epochs // 2), _LEAST_PATIENCE)
            more["validation"] = Validation(self._held_out, patience, self.tol, HeldOutScore())
        return super()._trained(*arguments, **more)

    def _remarks(self, rows: Any) -> list[str]:
        return [*super()._remarks(rows), *self._doubts(rows)]

    def _doubts(self, rows: Any) -> list[str]:
        """A warning if rows are less probable than under independent bits."""
        if self._of_epochs == 1 or self.stopped_ in ("seconds", "interrupted"):
            return []
        held_out = self._held_out.shape[0] > 0
        judged: Array = self._held_out if held_out else self._kept_rows
        if self._draws_bits and not held_out:
            judged = _bits_of(judged)
        found = below_independent_bits(self.model_, rows, judged)
        if found is None:
            return []
        text = (
            f"{'held-out' if held_out else 'training'} rows have a log-likelihood of "
            f"{found[0]:.4g} nats, below {found[1]:.4g} of independent bits; lower learning_rate, "
            "use fewer hidden units, or learner pcd:k=10"
        )
        warn_caller(f"{type(self).__name__}: {text}", ConvergenceWarning)
        return [text]


def _bits_of(rows: Any) -> Array:
    """Bits drawn from rows of grey levels; few rows are repeated, so that chance judges less."""
    times = max(1, -(-_JUDGED_BITS // rows.shape[0]))
    dense = np.repeat(dense_rows(rows), times, axis=0)
    return np.asarray(drawn_bits(dense, np.random.default_rng(0)))
