"""The shell of models of sequences: what all of them say and refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from kikuchi.temporal import (
    HMM,
    FactorialHMM,
    FrameHoppingHMM,
    HaemodynamicHMM,
    LinearGaussianSSM,
    TemporalICA,
)

FAMILIES = [HMM, FactorialHMM, FrameHoppingHMM, HaemodynamicHMM, LinearGaussianSSM, TemporalICA]
ROWS = np.random.default_rng(0).normal(size=(12, 2))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_that_was_not_fitted_says_so(family: Any) -> None:
    model = family()
    for name in ("filter", "smooth", "predict", "score", "log_likelihood"):
        if hasattr(model, name):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                getattr(model, name)(ROWS)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.forecast(ROWS, 2)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.sample(2)
