"""TAP against enumeration, finite differences and the catalogue's values.

Rows TEH-I6, WH-I3, HOJ-I13; tests T7, T8, WH-T3, WH-T4, WH-T6 and HOJ invariant 9.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.core.errors import MethodError
from oracle import random_model
from spin_oracle import random_spins, slopes


def free_energy(q: np.ndarray, w: np.ndarray, b: np.ndarray) -> float:
    """F_tap of TEH (2.41-2.43) in bits, as printed."""
    value = -0.5 * q @ w @ q - b @ q + np.sum(q * np.log(q) + (1 - q) * np.log(1 - q))
    spread = q * (1 - q)
    return float(value - 0.25 * spread @ w**2 @ spread)


def machine(
    seed: int, scale: float = 1.0, n: int = 6
) -> tuple[FactorGraph, np.ndarray, np.ndarray]:
    w, b = random_spins(seed, n, scale)
    return kk.boltzmann_graph(w, b), w, b


def means(beliefs: kk.Beliefs) -> np.ndarray:
    return beliefs.flat_marginals[1::2]


def test_golden_pair() -> None:
    found = kk.infer(kk.boltzmann_graph({(0, 1): 1.0}, [0.2, -0.4]), "tap")
    np.testing.assert_allclose(means(found), [0.6730070235, 0.5643523682], atol=1e-9)
    assert found.log_z == pytest.approx(1.6325967926, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_fixed_point_is_stationary_and_solves_the_corrected_equation(
    seed: int, scale: float
) -> None:  # T7, WH-T4
    # TEH-T7
    graph, w, b = machine(seed, scale)
    found = kk.infer(graph, "tap:tol=1e-13")
    assert found.converged
    q = means(found)
    assert found.log_z == pytest.approx(-free_energy(q, w, b), abs=1e-10)
    gradient = approx_fprime(q, lambda x: free_energy(x, w, b), 1e-7)
    np.testing.assert_allclose(q * (1 - q) * gradient, 0.0, atol=1e-5 * (1 + scale**2))
    reaction = 0.5 * (1 - 2 * q) * (w**2 @ (q * (1 - q)))
    solved = 1 / (1 + np.exp(-(b + w @ q + reaction)))
    printed = 1 / (1 + np.exp(-(b + w @ q - reaction)))
    np.testing.assert_allclose(solved, q, atol=1e-9)
    assert np.abs(printed - q).max() > 1e-4  # erratum ER2: the other sign is another equation


def test_pair_beliefs_are_derivatives_in_the_couplings() -> None:  # WH-T3
    graph, w, b = machine(1, 0.5)
    found = kk.infer(graph, "tap:tol=1e-14")
    q = means(found)
    for a in range(graph.n_factors):
        if len(graph.scope(a)) == 2:
            i, j = graph.scope(a)
            moved = w.copy()
            moved[i, j] = moved[j, i] = w[i, j] + 1e-6
            slope = (free_energy(q, moved, b) - free_energy(q, w, b)) / 1e-6
            assert found.factor(a)[1, 1] == pytest.approx(-slope, abs=1e-6)
            np.testing.assert_allclose(found.factor(a).sum(axis=1), found[i], atol=1e-12)
            np.testing.assert_allclose(found.factor(a).sum(axis=0), found[j], atol=1e-12)


def test_orders_of_the_differences_to_mean_field_and_bethe() -> None:  # T8, WH-T6
    # TEH-T8
    w, b = random_spins(3)
    to_bethe, to_mean_field, to_exact = [], [], []
    for s in (0.2, 0.1, 0.05):
        graph = kk.boltzmann_graph(s * w, b)
        tap = kk.infer(graph, "tap:tol=1e-14").log_z
        to_bethe.append(abs(tap - kk.infer(graph, "bp:tol=1e-14").log_z))
        to_mean_field.append(abs(tap - kk.infer(graph, "mf:tol=1e-14").log_z))
        to_exact.append(abs(tap - kk.infer(graph, "enumerate").log_z))
    np.testing.assert_allclose(slopes(to_bethe), 3.0, atol=0.3)
    np.testing.assert_allclose(slopes(to_mean_field), 2.0, atol=0.3)
    np.testing.assert_allclose(slopes(to_exact), 3.0, atol=0.3)


def test_errors_on_random_machines_are_those_of_the_catalogue() -> None:  # HOJ-I13 [R]
    errors = []
    for seed in range(50):
        j, h = random_spins(seed, 10, 0.4 / np.sqrt(10))
        graph = kk.ising(j, h)
        exact = kk.infer(graph, "enumerate")
        row = []
        for method in ("mf", "tap", "adatap"):
            found = kk.infer(graph, method)
            row.append(2 * np.abs(means(found) - means(exact)).mean())
            row.append(abs(found.log_z - exact.log_z))
        errors.append(row)
    average = np.mean(errors, axis=0)
    # published: mean field .038 .240, TAP .0041 .0104, adaptive TAP .0018 .0041
    np.testing.assert_allclose(average, [0.038, 0.24, 0.0041, 0.0104, 0.0018, 0.0041], rtol=0.25)


@pytest.mark.parametrize("text", ["tap", "plefka", "tap:damping=0.7", "plefka:damping=0.7"])
@pytest.mark.parametrize("scale", [0.5, 2.0, 8.0])
def test_free_energy_falls_with_every_sweep(text: str, scale: float) -> None:
    for seed in range(3):
        j, h = random_spins(seed, 9, scale)
        separator = "," if ":" in text else ":"
        found = kk.infer(kk.ising(j, h), f"{text}{separator}restarts=0")
        steps = np.diff(found.trace.objective)
        assert found.converged or (scale > 2 and "plefka" in text)
        assert steps.min(initial=0.0) >= -1e-11 * (1 + abs(found.log_z))


@pytest.mark.parametrize("scale", [1.0, 5.0, 50.0, 1e4])
@pytest.mark.parametrize("text", ["tap", "plefka", "adatap", "saddle", "saddle:order=3"])
def test_strong_couplings_answer_in_numbers(text: str, scale: float) -> None:
    for seed in range(3):
        j, h = random_spins(seed, 8, scale)
        found = kk.infer(kk.ising(j, h * scale), text)
        assert np.all(np.isfinite(found.flat_marginals)) and np.isfinite(found.log_z)
        np.testing.assert_allclose(found.flat_marginals.reshape(-1, 2).sum(axis=1), 1.0)
        tables = found.flat_factors
        assert np.all(tables >= 0.0)
        exact = kk.infer(kk.ising(j, h * scale), "enumerate").log_z
        if found.log_z_lower is not None:
            assert found.log_z_lower <= exact + 1e-9 * (1 + abs(exact))


def test_strong_couplings_are_warned_of() -> None:
    j, h = random_spins(0, 10, 1.5)
    found = kk.infer(kk.ising(j, h), "tap:restarts=0")
    assert found.diagnostics["strength"] > 1
    assert any("too strong for tap" in w and "use bp" in w for w in found.warnings)
    weak = kk.infer(kk.ising(0.05 * j, h), "tap")
    assert weak.warnings == () and weak.diagnostics["strength"] < 1


def test_starts_from_mean_field_help_where_couplings_are_strong() -> None:
    """Independent spins lead to disordered minima that exist in the expansion only."""
    errors = []
    for seed in range(8):
        j, h = random_spins(seed, 10, 0.9)
        graph = kk.ising(j, 2 * h)
        exact = kk.infer(graph, "enumerate")
        found = [kk.infer(graph, f"tap:restarts={k}") for k in (0, 2)]
        assert found[1].diagnostics["strength"] <= max(1.0, found[0].diagnostics["strength"])
        errors.append([np.abs(means(f) - means(exact)).mean() for f in found])
    one, many = np.mean(errors, axis=0)
    assert many < 0.7 * one


def test_bound_holds_wherever_the_run_ends() -> None:
    for seed in range(5):
        j, h = random_spins(seed, 8, 0.7)
        graph = kk.ising(j, h)
        exact = kk.infer(graph, "enumerate").log_z
        for text in ("tap", "plefka", "saddle"):
            for iterations in (1, 2, 5):
                found = kk.infer(graph, text, budget=Budget(iterations=iterations))
                assert found.log_z_lower <= exact + 1e-12
                assert found.log_z_upper is None


def test_budget_ends_the_run() -> None:
    graph = kk.grid(5, 5, seed=0)
    found = kk.infer(graph, "tap", budget=Budget(iterations=3))
    assert not found.converged and found.stopped == "iterations" and found.iterations == 3
    assert any("not converged" in w for w in found.warnings)
    assert any("1 of 3 starts" in w for w in found.warnings)


def test_seconds_are_kept_inside_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    from kikuchi.methods import plefka

    graph = kk.generate.complete(40, seed=0, coupling=0.05)
    whole = kk.infer(graph, "plefka")
    monkeypatch.setattr(plefka, "_WORK", 1.0)  # every spin by itself
    np.testing.assert_array_equal(kk.infer(graph, "plefka").flat_marginals, whole.flat_marginals)
    found = kk.infer(graph, "plefka", budget=Budget(seconds=1e-6))
    assert found.stopped == "seconds" and not found.converged and found.iterations == 1
    assert found.log_z_lower <= found.log_z


def test_interrupt_keeps_the_answer_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    from kikuchi.engines.units.kernels import tap

    calls = 0
    real = tap.sweep

    def interrupted(*args: object) -> float:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(tap, "sweep", interrupted)
    found = kk.infer(kk.grid(4, 4, seed=0), "tap")
    assert found.stopped == "interrupted" and not found.converged
    assert np.isfinite(found.log_z) and found.iterations == 3


@pytest.mark.parametrize("method", ["tap", "plefka", "adatap", "saddle"])
def test_other_models_are_refused_with_a_way_out(method: str) -> None:
    pair = np.ones((2, 2))
    cases = {
        "has 3 states": FactorGraph([3, 2], [((0, 1), np.ones((3, 2)))]),
        "has 3 variables": FactorGraph([2] * 3, [((0, 1, 2), np.ones((2, 2, 2)))]),
        "has a zero": FactorGraph([2, 2], [((0, 1), [[1, 0], [1, 1]])]),
        "is beyond": FactorGraph([2, 2], [((0, 1), pair * [[0, 0], [0, 1e8]])], log=True),
    }
    for complaint, graph in cases.items():
        with pytest.raises(MethodError, match=f"method {method}.*{complaint}.*; use .*(mf|bp)"):
            kk.infer(graph, method)


@pytest.mark.parametrize("method", ["tap", "plefka", "adatap", "saddle", "saddle:order=3"])
def test_evidence_makes_a_model_fit(method: str) -> None:
    """Three states, three variables and a zero that evidence takes away; the rest is two trees."""
    graph = FactorGraph(
        [3, 2, 2, 2, 2],
        [
            ((0, 1, 2), np.exp(np.arange(12.0).reshape(3, 2, 2) / 60)),
            ((0, 3), [[1, 0], [2, 1], [1, 1]]),
            ((1,), [1, 2]),
            ((2, 1), [[1.1, 1], [1, 1.1]]),  # the same pair again
        ],
    )
    evidence = {0: 1}
    exact = kk.infer(graph, "jt", evidence=evidence)
    found = kk.infer(graph, method, evidence=evidence)
    np.testing.assert_allclose(found.flat_marginals, exact.flat_marginals, atol=1e-3)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-3)
    np.testing.assert_allclose(found.flat_factors, exact.flat_factors, atol=1e-3)
    assert found[0].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("method", ["tap", "plefka", "adatap", "saddle", "saddle:order=3"])
def test_without_couplings_exact(method: str) -> None:
    for factors in ([((0,), [1, 3])], [((0,), [1, 3]), ((2,), [2, 1]), ((2,), [5, 1])]):
        graph = FactorGraph([2, 2, 2], factors)
        exact, found = kk.infer(graph, "jt"), kk.infer(graph, method)
        np.testing.assert_allclose(found.flat_marginals, exact.flat_marginals, atol=1e-9)
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)
        np.testing.assert_allclose(found.flat_factors, exact.flat_factors, atol=1e-9)


@pytest.mark.parametrize("method", ["tap", "plefka", "adatap", "saddle"])
def test_flipping_spins_flips_the_answer(method: str) -> None:
    j, h = random_spins(5, 7, 0.3)
    sign = np.array([1, -1, 1, 1, -1, -1, 1.0])
    one = kk.infer(kk.ising(j, h), method)
    other = kk.infer(kk.ising(j * np.outer(sign, sign), h * sign), method)
    flipped = np.where(sign[:, None] > 0, one.flat_marginals.reshape(-1, 2), 0)
    flipped += np.where(sign[:, None] < 0, one.flat_marginals.reshape(-1, 2)[:, ::-1], 0)
    np.testing.assert_allclose(other.flat_marginals.reshape(-1, 2), flipped, atol=1e-8)
    assert other.log_z == pytest.approx(one.log_z, abs=1e-8)


def test_answers_stay_finite_on_random_positive_models() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        graph = random_model(rng, n=6, n_factors=8, max_order=2, max_card=2, scale=2.0)
        exact = kk.infer(graph, "enumerate").log_z
        for method in ("tap", "plefka", "adatap", "saddle", "saddle:order=3"):
            found = kk.infer(graph, method)
            assert np.isfinite(found.log_z)
            assert found.log_z_lower is None or found.log_z_lower <= exact + 1e-10


def test_reference_grid_beats_mean_field(shared) -> None:  # type: ignore[no-untyped-def]
    graph = kk.read(shared / "reference" / "grids" / "w10.uai")
    exact = 122.697880624
    errors = [abs(kk.infer(graph, m).log_z - exact) for m in ("mf", "tap", "adatap")]
    assert errors[1] < errors[0] and errors[2] < errors[0]
