"""Lawrence's random Boltzmann machines in the quick setting: LAW-E11."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kikuchi import infer
from kikuchi.plots import to_svg
from kikuchi_experiments import find_experiment, reproduce
from kikuchi_experiments.lawrence2000.machines import RandomBoltzmannMachines, machine, pair_moments


def test_machine_and_moments_by_enumeration() -> None:
    graph = machine(5, 1.0, 3)
    states = np.array(list(itertools.product(range(2), repeat=5)))
    p = np.exp(graph.log_score(states))
    p /= p.sum()
    spins = 2 * states - 1
    exact = [float(p @ (spins[:, i] * spins[:, j])) for i in range(5) for j in range(i + 1, 5)]
    assert pair_moments(infer(graph, "enumerate")) == pytest.approx(exact, abs=1e-12)
    parameters = [graph.log_table(a).ravel()[-1] for a in range(graph.n_factors)]
    assert len(parameters) == 15 and max(np.abs(parameters)) < 1.0


def test_mixture_moments_are_those_of_its_components() -> None:
    """<s_i s_j> = sum_m Q(m) <s_i>_m <s_j>_m."""
    graph = machine(6, 1.0, 0)
    beliefs = infer(graph, "mixture-mf:components=3")
    means = beliefs.diagnostics["components"].reshape(-1, 6, 2) @ np.array([-1.0, 1.0])
    pairs = np.einsum("m,mi,mj->ij", beliefs.diagnostics["weights"], means, means)
    wanted = [pairs[i, j] for i in range(6) for j in range(i + 1, 6)]
    assert pair_moments(beliefs) == pytest.approx(wanted, abs=1e-12)


def test_the_quick_setting_agrees() -> None:
    experiment = find_experiment("law-e11")
    assert isinstance(experiment, RandomBoltzmannMachines)
    outcome = reproduce(experiment, quick=True, processes=1)
    rows = outcome.rows()
    assert [row for row in rows if row.agrees is False] == []
    gaps = [row.ours for row in rows if row.quantity.startswith("log Z - bound")]
    assert gaps == sorted(gaps, reverse=True) and gaps[-1] < 0.3 * gaps[0]
    assert to_svg(outcome.figure()).startswith("<")
