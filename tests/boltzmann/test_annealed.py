"""Annealed importance sampling: the bracket against enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.boltzmann.annealed_sampling import ais
from kikuchi.boltzmann.exact import exact
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.rules import parse_rule
from kikuchi.boltzmann.units import BinomialUnits, GaussianUnits
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.core.progress import silent
from kikuchi.core.run import Run
from kikuchi.core.trace import Trace
from kikuchi.inference.sampling.annealing import beta_steps


@pytest.fixture(scope="module")
def learned():
    """A restricted machine of 20 and 15 units that has learned a piece of the digits."""
    from sklearn.datasets import load_digits

    images = load_digits().data.reshape(-1, 8, 8)[:, 1:6, 2:6].reshape(-1, 20)
    data = (images > 7.5).astype(float)
    rng = np.random.default_rng(0)
    machine = Machine.random(20, 15, random_state=rng)
    rule = parse_rule("cf")
    state = rule.begin(machine, data, rng)
    for _ in range(1500):
        rows = rng.integers(0, len(data), 50)
        slope = rule.gradient(machine, data[rows], rows, state, rng)
        for name, array in machine.parameters.items():
            array += 0.3 * slope.ascent[name]
    assert np.abs(machine.weights).mean() > 0.5
    return machine, data


def test_bracket_of_a_learned_machine_holds_and_is_narrow(learned):
    """Figure of issue 6: contains exact log Z and is at most 0.1 nat wide."""
    machine, data = learned
    truth = exact(machine).log_z
    found = ais(machine, data=data, betas=1000, chains=100, batches=2, random_state=0)
    assert found.lower < truth < found.upper
    assert found.width < 0.1
    assert found.exact_starts and found.warnings == []
    assert found.certain_lower < found.lower < found.estimate < found.upper < found.certain_upper


def test_upper_end_from_chains_when_exact_samples_are_out_of_reach(learned, monkeypatch):
    from kikuchi.boltzmann import annealed_sampling

    monkeypatch.setattr(annealed_sampling, "_MOST_FOR_EXACT_SAMPLES", 1)
    machine, data = learned
    found = ais(machine, data=data, betas=300, chains=60, batches=1, random_state=0)
    assert not found.exact_starts
    assert any("tempered chains" in warning for warning in found.warnings)
    assert found.lower < exact(machine).log_z < found.upper < found.lower + 0.5


def small(architecture, seed, **units):
    rng = np.random.default_rng(seed)
    machine = Machine.random(4, 3, architecture=architecture, scale=1.2, random_state=rng, **units)
    machine.visible_bias[:] = rng.normal(size=4)
    machine.hidden_bias[:] = rng.normal(size=3)
    return machine


@pytest.mark.parametrize("architecture", ["brf", "hrf", "poe", "fcrf"])
def test_stated_confidence_is_kept(architecture):
    """Of 25 brackets at 95 % at most 4 may miss (probability of more: 0.7 % at 95 %)."""
    missed = 0
    for seed in range(25):
        machine = small(architecture, seed)
        found = ais(machine, betas=60, chains=60, batches=1, random_state=seed)
        truth = exact(machine).log_z
        missed += not found.lower <= truth <= found.upper
        assert found.certain_lower <= truth <= found.certain_upper
    assert missed <= 4


def test_forward_mean_is_unbiased_and_few_betas_make_the_bracket_wide():
    machine = small("brf", 1)
    truth = exact(machine).log_z
    coarse = ais(machine, betas=3, chains=4000, batches=1, random_state=0)
    assert abs(coarse.estimate - truth) < 0.2
    assert coarse.lower < truth < coarse.upper
    fine = ais(machine, betas=100, chains=4000, batches=1, random_state=0)
    assert fine.width < 0.5 * coarse.width
    alone = ais(machine, betas=100, chains=500, reverse=False, random_state=0)
    assert alone.upper == np.inf and len(alone.reverse) == 0
    assert alone.lower <= alone.estimate


@pytest.mark.parametrize("units", [BinomialUnits(replicas=3), GaussianUnits()])
def test_units_of_other_kinds(units):
    machine = small("brf", 2, visible=units)
    rows = np.abs(np.random.default_rng(0).normal(size=(20, 4)))
    found = ais(machine, data=rows, betas=200, chains=400, width=0.0, random_state=0)
    assert found.lower < exact(machine).log_z < found.upper < found.lower + 0.2


def test_base_machine_has_the_means_of_the_data():
    rows = np.array([[1, 0], [1, 1], [1, 0], [0, 0]], dtype=float)
    machine = Machine.random(2, 2, random_state=0)
    means = machine.visible.mean(machine.mean_biases(rows))
    np.testing.assert_allclose(means, [4 / 6, 2 / 6], atol=1e-12)


def test_width_ends_the_work_early_and_the_trace_has_the_bracket():
    machine = small("brf", 3)
    run = Run(Budget().start(), silent, Trace())
    found = ais(machine, betas=100, chains=100, batches=50, width=1.0, random_state=0, run=run)
    assert found.stopped == "converged" and len(run.trace) < 50
    assert run.trace.lower[-1] == found.lower and run.trace.upper[-1] == found.upper


def test_budgets():
    machine = small("brf", 3)
    run = Run(Budget(iterations=2).start(), silent, Trace())
    found = ais(machine, betas=20, chains=10, batches=50, random_state=0, run=run)
    assert found.stopped == "iterations" and len(found.forward) == 20
    run = Run(Budget(seconds=1e-9).start(), silent, Trace())
    with pytest.raises(BudgetError, match="fewer betas"):
        ais(machine, betas=20, chains=10, random_state=0, run=run)
    run = Run(Budget(seconds=0.3).start(), silent, Trace())
    found = ais(machine, betas=50, chains=10, batches=10**6, width=0, random_state=0, run=run)
    assert found.stopped == "seconds" and np.isfinite(found.estimate)


def test_schedules_and_refusals():
    for schedule in ("linear", "sigmoid", "dense-start"):
        steps = beta_steps(11, schedule)
        assert steps[0] == 0 and steps[-1] == 1 and np.all(np.diff(steps) > 0)
    for bad in (1, [0.0, 0.5], [0.0, 0.7, 0.6, 1.0]):
        with pytest.raises(MethodError, match="betas"):
            beta_steps(bad)
    machine = small("brf", 0)
    with pytest.raises(MethodError, match="confidence"):
        ais(machine, confidence=1.0)
    with pytest.raises(MethodError, match="two chains"):
        ais(machine, chains=1)
