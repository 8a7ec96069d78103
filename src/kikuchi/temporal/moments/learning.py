"""Learning of dynamics from the moments of expectation propagation."""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.engines.loops.em import ExpectationMaximisation
from kikuchi.engines.loops.state import Held
from kikuchi.temporal.gaussian import is_positive
from kikuchi.temporal.moments.emissions import ScalarEmission
from kikuchi.temporal.moments.inference import site_smoother
from kikuchi.temporal.sequences import Sequences
from kikuchi.temporal.state_space.coordinates import gradient, pack, unpack
from kikuchi.temporal.state_space.learning import (
    StateConstraints,
    StateStatistics,
    maximise,
)
from kikuchi.temporal.state_space.parameters import StateSpace

_DYNAMICS = StateConstraints(
    frozenset({"output", "output_offset", "output_input", "output_noise"}), first="fixed"
)


def expected_dynamics(
    model: StateSpace, emission: ScalarEmission, sequences: Sequences
) -> tuple[float, StateStatistics]:
    """Approximate log-evidence of a model, and expected products of neighbouring states."""
    total = StateStatistics.zero(model, len(sequences.tables))
    evidence = 0.0
    for y in sequences.tables:
        value, s = site_smoother(model, emission, y)
        evidence += value
        total.add_states(model, s, np.zeros((len(y), 0)))
    return evidence, total


def alternation(
    model: StateSpace, emission: ScalarEmission, sequences: Sequences
) -> ExpectationMaximisation[StateSpace]:
    """EM of the dynamics, from a model on."""
    return ExpectationMaximisation(
        Held(model, StateSpace.from_arrays),
        lambda model: expected_dynamics(model, emission, sequences),
        lambda model, total: maximise(model, total, _DYNAMICS),
        rows=sequences.rows,
    )


def evidence_slope(
    model: StateSpace, emission: ScalarEmission, sequences: Sequences
) -> tuple[float, Array]:
    """Approximate log-evidence, and its gradient along `pack` of the dynamics.

    At a fixed point of expectation propagation the evidence does not change with the Gaussians in
    place of the outputs, so that its slope is that of the expected log-density of the states.
    """
    evidence, total = expected_dynamics(model, emission, sequences)
    quiet = model.updated(output_noise=np.eye(1))  # not used, and often zero
    return evidence, gradient(quiet, total, _DYNAMICS)


def ascend(
    model: StateSpace, emission: ScalarEmission, sequences: Sequences, max_iter: int,
    tol: float,
) -> StateSpace:  # fmt: skip
    """The model whose dynamics L-BFGS reaches up the evidence, until a step gains less than `tol`
    per output.
    """
    if not is_positive(np.asarray(model.state_noise)):
        raise ModelError("the gradient needs state noise that is not singular; use fit_em")
    rows = sequences.rows

    def objective(vector: Array) -> tuple[float, Array]:
        try:
            trial = unpack(model, vector, _DYNAMICS)
            value, slope = evidence_slope(trial, emission, sequences)
        except (ModelError, ValueError, np.linalg.LinAlgError):  # outside: the search steps back
            return math.inf, np.zeros_like(vector)
        return -value / rows, -slope / rows

    descent = Lbfgs(objective, pack(model, _DYNAMICS))
    for _ in range(max_iter):
        before = descent.value
        if not descent.step() or before - descent.value <= tol:
            break
    return unpack(model, descent.point, _DYNAMICS)
