"""Log-likelihoods of rows with bounds, and the log Z of an estimator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.log import warn_caller
from kikuchi.engines.sampling.annealing import LogZ
from kikuchi.training.estimator import ConvergenceWarning

_ABOUT_LOG_Z = "log Z: "


@dataclass(frozen=True)
class RowLikelihoods:
    """Log-likelihoods of rows.

    Attributes
    ----------
    estimate : one number per row.
    lower, upper : bounds on the log-likelihood of each row. Exact: both are the estimate. By draws
        or annealing: the log-likelihood of a row is between them with probability `confidence`, by
        Student's t approximation of the means of the weights; it is not a certain bound. Importance
        sampling has no upper bound (infinity), and its whole confidence is in the lower one.
    confidence : probability, for each row, that the bounds are valid; 1 if they are exact.
    error : standard error of `mean()` due to the draws. The rows of a machine share one log Z,
        whose error is included in the bounds and not here.
    limits : bounds on the mean over the rows, where these are narrower than the means of `lower`
        and `upper`: errors of rows that were drawn independently cancel. See `mean_bounds`.
    warnings : reasons why the bounds are unreliable.

    >>> found = RowLikelihoods(np.array([-1.0, -2.0]), np.full(2, -3.0), np.zeros(2))
    >>> found.mean(), found.mean_bounds()
    (-1.5, (-3.0, 0.0))
    """

    estimate: Array
    lower: Array
    upper: Array
    confidence: float = 1.0
    error: float = 0.0
    limits: tuple[float, float] | None = None
    warnings: list[str] = field(default_factory=list)

    def mean(self) -> float:
        """Return the mean of the estimates over the rows."""
        return float(np.mean(self.estimate))

    def mean_bounds(self) -> tuple[float, float]:
        """Return the bounds on the mean log-likelihood, which hold with probability
        `confidence`.
        """
        if self.limits is not None:
            return self.limits
        return float(np.mean(self.lower)), float(np.mean(self.upper))


def keep_log_z(estimator: Any, found: LogZ) -> None:
    """Set `estimator.log_z_`, add its warnings to `warnings_`, and warn if it is not reliable."""
    estimator.log_z_ = found
    others = [text for text in estimator.warnings_ if not text.startswith(_ABOUT_LOG_Z)]
    estimator.warnings_ = others + [_ABOUT_LOG_Z + text for text in found.warnings]
    if not found.reliable:
        warn_caller(
            f"{type(estimator).__name__}: log Z is not reliable: {found.warnings[0]}",
            ConvergenceWarning,
        )
