"""Mixtures of mean fields for the joint of a machine."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.boltzmann.conversion import to_factor_graph, to_spins
from kikuchi.boltzmann.exact import exact
from kikuchi.boltzmann.fixed_point import joint_means, mean_field_bound
from kikuchi.boltzmann.from_graphs import from_spins
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.mixture import (
    JointMixture,
    fit_mixture,
    mixture_bounds,
    mixture_statistics,
    random_mixture,
)
from kikuchi.boltzmann.units import GaussianUnits
from kikuchi.core.errors import ModelError
from kikuchi.methods.mixture_mean_field import exact_mixture_bound

ANNEALED = tuple(np.geomspace(60.0, 1.0, 9)[:-1])


def random_spins(seed, n=10, n_visible=6):
    """LAW-E11: weights and biases of spins uniform on (-1, 1)."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(-1, 1, size=(n, n)), 1)
    return from_spins(upper + upper.T, rng.uniform(-1, 1, size=n), n_visible).machine


def fitted(machine, components, seed=0, **more):
    start = random_mixture(machine, components, np.random.default_rng(seed))
    return fit_mixture(machine, start, **{"tol": 1e-9, "max_iter": 3000, **more})


def test_one_component_is_mean_field():
    """LAW-T6."""
    machine = random_spins(0)
    found = fitted(machine, 1)
    d = machine.n_visible
    again = joint_means(machine, found.means[:, :d], found.means[:, d:], tol=1e-10)
    np.testing.assert_allclose(np.hstack([again.visible, again.hidden]), found.means, atol=1e-7)
    bound = mean_field_bound(machine, found.means[:, :d], found.means[:, d:])[0]
    assert found.bound == pytest.approx(bound, abs=1e-10)
    truth = joint_means(machine, *np.split(found.means, [d], axis=1))
    assert mean_field_bound(machine, truth.visible, truth.hidden)[0] <= exact(machine).log_z


def test_bounds_hold_in_both_forms_and_gain_at_most_the_log_of_components():
    """LAW-T4, T5: below log Z; nested starts never lose; total gain at most ln M."""
    for seed in range(4):
        machine = random_spins(seed)
        truth = exact(machine).log_z
        single = fitted(machine, 1, temperatures=ANNEALED)
        last = single
        for _ in range(3):
            last = fit_mixture(machine, split(last, seed), tol=1e-8, max_iter=2000)
            forms = mixture_bounds(machine, last)
            assert forms["lambda"] <= forms["eliminated"] + 1e-12 <= truth + 1e-9
            assert last.bound >= single.bound - 1e-9
            assert last.bound - best_component(machine, last) <= np.log(len(last.weights)) + 1e-9
            single = last


def test_information_is_bounded_by_the_true_one_and_by_the_entropy_of_the_weights():
    """LAW-T4: I <= I_exact <= S(Q(m)) <= ln M; constant R with the best lambda gives I = 0."""
    for seed in range(3):
        machine = random_spins(seed)
        found = fitted(machine, 4, seed, temperatures=ANNEALED, max_iter=300)
        d = machine.n_visible
        each = mean_field_bound(machine, found.means[:, :d], found.means[:, d:])
        mean = float(found.weights @ each)
        q = np.stack([1 - found.means, found.means], axis=2).reshape(4, -1)
        true = exact_mixture_bound(to_factor_graph(machine), found.weights, q) - mean
        w = found.weights[found.weights > 0]
        spread = float(-(w * np.log(w)).sum())
        assert 0 <= found.bound - mean <= true + 1e-10
        assert true <= spread + 1e-10 <= np.log(4) + 2e-10
        flat = found._replace(smoothing=np.ones_like(found.smoothing))
        for value in mixture_bounds(machine, flat).values():
            assert value == pytest.approx(mean, abs=1e-10)


def split(mixture, seed):
    """One component more: the heaviest is split in two that are a little apart."""
    rng = np.random.default_rng(seed)
    heavy = int(np.argmax(mixture.weights))
    means = np.vstack([mixture.means, mixture.means[heavy]])
    noise = 0.02 * rng.normal(size=means.shape[1])
    means[-1] = np.clip(means[-1] + noise, 1e-6, 1 - 1e-6)
    weights = np.append(mixture.weights, 1e-6)
    smoothing = np.vstack([mixture.smoothing, mixture.smoothing[heavy]])
    return JointMixture(weights / weights.sum(), means, smoothing, -np.inf, False, 0)


def best_component(machine, mixture):
    d = machine.n_visible
    return mean_field_bound(machine, mixture.means[:, :d], mixture.means[:, d:]).max()


def test_form_without_lambda_goes_on_from_there():
    machine = random_spins(2)
    start = fitted(machine, 3, max_iter=10)
    better = fit_mixture(machine, start, form="eliminated", max_iter=200)
    assert start.bound < better.bound <= exact(machine).log_z
    ascended = fit_mixture(machine, start, max_iter=3000, tol=1e-9)
    assert better.bound == pytest.approx(ascended.bound, abs=5e-3)


def test_scale_of_the_smoothing_functions_does_not_matter():
    """LAW-T9."""
    machine = random_spins(3)
    found = fitted(machine, 2)
    scaled = found._replace(smoothing=found.smoothing * 0.37)
    for form, value in mixture_bounds(machine, found).items():
        assert mixture_bounds(machine, scaled)[form] == pytest.approx(value, abs=1e-10)


def test_reference_errors_by_number_of_components():
    """LAW-I15 [REF], LAW-E11: more components, tighter bound and better moments, on average.

    The catalogue has 0.59, 0.33 and 0.10 nats for 1, 2 and 8 components on four machines.
    """
    gaps, errors = {}, {}
    for components in (1, 2, 8):
        gap, error = [], []
        for seed in range(12):
            machine = random_spins(seed)
            truth = exact(machine)
            start = random_mixture(machine, components, np.random.default_rng(seed))
            found = fit_mixture(machine, start, temperatures=ANNEALED, tol=1e-5)
            gap.append(truth.log_z - found.bound)
            moments = mixture_statistics(machine, found)
            error.append(np.mean((moments["weights"] - truth.statistics["weights"]) ** 2))
        gaps[components], errors[components] = np.mean(gap), np.mean(error)
    assert min(gaps.values()) >= 0
    assert 0.2 < gaps[1] < 1.2
    assert gaps[2] < 0.85 * gaps[1] and gaps[8] < 0.75 * gaps[2]
    assert errors[8] < errors[2] < errors[1]


def test_agrees_with_the_graph_method():
    machine = Machine(np.array([[4.0]]), np.array([-2.0]), np.array([-2.0]))
    found = fitted(machine, 2)
    graph = kk.infer(to_factor_graph(machine), "mixture-mf:components=2")
    assert found.bound == pytest.approx(graph.log_z, abs=1e-7)
    moments = mixture_statistics(machine, found)
    assert moments["visible_bias"][0] == pytest.approx(graph["v0"][1], abs=1e-6)


def test_statistics_of_all_connections():
    machine = Machine.random(3, 2, architecture="fcrf", random_state=0)
    mixture = random_mixture(machine, 4, np.random.default_rng(0))
    second = sum(w * np.outer(m, m) for w, m in zip(mixture.weights, mixture.means, strict=True))
    found = mixture_statistics(machine, mixture)
    np.testing.assert_allclose(found["weights"], second[:3, 3:], atol=1e-12)
    off = second - np.diag(np.diag(second))
    np.testing.assert_allclose(found["visible_weights"], off[:3, :3], atol=1e-12)
    np.testing.assert_allclose(found["hidden_weights"], off[3:, 3:], atol=1e-12)
    assert set(found) == set(machine.parameters)


def test_unit_update_in_spins_is_the_corrected_one():
    """LAW-I15: the fixed point solves the equation for +-1 units with both halves and the sum."""
    machine = random_spins(5, n=5, n_visible=5)
    found = fitted(machine, 2, tol=1e-13, max_iter=20000)
    spins = to_spins(machine)
    s = 2.0 * found.means - 1.0
    q = np.stack([1 - found.means, found.means], axis=2)  # component, unit, state
    r = found.smoothing.reshape(2, 5, 2)
    factors = np.einsum("mix,kix->mki", r, q)
    overlap = factors.prod(axis=2)
    scale = found.weights / (overlap @ found.weights)
    for m in range(2):
        for k in range(5):
            field = spins.couplings[k] @ s[m] + spins.fields[k]
            field += 0.5 * np.log(r[m, k, 1] / r[m, k, 0])
            others = overlap[:, m] / factors[:, m, k]
            field -= 0.5 * np.sum(scale * others * (r[:, k, 1] - r[:, k, 0]))
            assert s[m, k] == pytest.approx(np.tanh(field), abs=1e-6)


def test_refusals():
    machine = Machine.random(3, 2, visible=GaussianUnits())
    with pytest.raises(ModelError, match="binary"):
        fit_mixture(machine, random_mixture(machine, 2, np.random.default_rng(0)))
    other = random_mixture(Machine.random(4, 2), 2, np.random.default_rng(0))
    with pytest.raises(ModelError, match="5 units"):
        fit_mixture(Machine.random(3, 2), other)
