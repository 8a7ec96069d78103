"""Learning of dynamics from the moments of expectation propagation."""

from __future__ import annotations

import numpy as np

from kikuchi.temporal.moments.emissions import ScalarEmission
from kikuchi.temporal.moments.inference import site_smoother
from kikuchi.temporal.sequences import Sequences
from kikuchi.temporal.state_space.learning import (
    Regression,
    StateConstraints,
    StateStatistics,
    maximise,
    state_regression,
)
from kikuchi.temporal.state_space.parameters import StateSpace

_KEPT = frozenset({"output", "output_offset", "output_input", "output_noise"})


def em_step(
    model: StateSpace, emission: ScalarEmission, sequences: Sequences
) -> tuple[float, StateSpace]:
    """Approximate log-evidence of a model, and the model with dynamics of one step of EM."""
    n = model.n_states
    total = StateStatistics(
        Regression.zero(n, n + 1), Regression.zero(1, n + 1), np.zeros(n), np.zeros((n, n)),
        len(sequences.tables),
    )  # fmt: skip
    evidence = 0.0
    for y in sequences.tables:
        value, s = site_smoother(model, emission, y)
        evidence += value
        sum_v, sum_pair, first, last = s.covariance_sums()
        nothing = np.zeros((len(y), 0))
        total.state += state_regression(s, nothing, sum_v - first, sum_v - last, sum_pair)
        total.first_mean += s.mean[0]
        total.first_second += first + np.outer(s.mean[0], s.mean[0])
    return evidence, maximise(model, total, StateConstraints(_KEPT), first=False)
