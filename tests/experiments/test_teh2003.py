"""Teh's experiments in their quick settings: what the thesis found is found again."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi import boltzmann_graph, infer
from kikuchi.plots import to_svg
from kikuchi_experiments import Outcome, find_experiment, reproduce
from kikuchi_experiments.teh2003.counter_example import CounterExample, NaiveTap, cycle_period
from kikuchi_experiments.teh2003.lattices import (
    generalised_means,
    lattice_edges,
    median_rank,
    observed_lattice,
)


def rows_agree(outcome: Outcome) -> None:
    """All but what is better here than in the thesis: UPS with nothing observed."""
    wrong = {row.quantity for row in outcome.rows() if row.agrees is False}
    assert wrong <= {"(b) nothing observed: where loopy IS did not converge"}


# ---------------------------------------------------------------------- TEH-E8, TEH-T20


def run_source(source: str) -> dict[str, object]:
    experiment = CounterExample()
    return experiment.run_case({"source": source, **experiment.quick.parameters})


@pytest.mark.parametrize("source", ["exact", "bp"])
def test_exact_and_propagated_marginals_converge(source: str) -> None:
    """TEH-T20, second half."""
    result = run_source(source)
    assert result["converged"]
    assert result["biases"] == pytest.approx([-2.9594661, -2.9594661], abs=1e-6)


def test_the_value_is_that_of_the_stationary_point() -> None:
    """Found apart from any scaling: P(1) = 0.3 by bisection on the bias of both units."""

    def mean(bias: float) -> float:
        weights = np.exp([0.0, bias, bias, 2 * bias + 5.0])
        return float((weights[1] + weights[3]) / weights.sum())

    low, high = -10.0, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < 0.3 else (low, middle)
    assert low == pytest.approx(-2.9594661, abs=1e-7)


def test_mean_field_marginals_cycle_for_ever() -> None:
    """TEH-T20, first half."""
    result = run_source("mf")
    assert not result["converged"] and result["period"] == 6
    assert result["cycle"] == pytest.approx([-5.455, -2.42, -0.88], abs=1e-3)


def test_tap_depends_on_the_sign_and_on_damping() -> None:
    assert run_source("tap-printed")["period"] == 6
    damped = run_source("tap-damped")
    assert damped["converged"] and damped["biases"] == pytest.approx([-3.397] * 2, abs=1e-3)


def test_naive_tap_against_golden_values() -> None:
    """The two-unit example of TEH-I6; the mean of the printed sign is worse than that of mf."""
    pair = boltzmann_graph({(0, 1): 1.0}, [0.2, -0.4])
    means = NaiveTap(damping=0.3).run(pair).flat_marginals[1::2]
    assert means == pytest.approx([0.6730070235, 0.5643523682], abs=1e-9)
    exact = infer(pair, "enumerate").flat_marginals[1::2]
    printed = NaiveTap(damping=0.3, sign="printed").run(pair).flat_marginals[1::2]
    mean_field = infer(pair, "mf").flat_marginals[1::2]
    assert np.abs(printed - exact).max() > np.abs(mean_field - exact).max()


def test_cycle_period() -> None:
    assert cycle_period(np.arange(30.0)[:, None]) is None
    assert cycle_period(np.tile([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], (5, 1))) == 3
    assert cycle_period(np.ones((9, 2))) == 1


# ---------------------------------------------------------------------- the lattices


def test_lattices_follow_the_distribution_of_the_thesis() -> None:
    edges = lattice_edges(5)
    assert len(edges) == 40 and len({tuple(e) for e in edges.tolist()}) == 40
    assert all(j - i in (1, 5) for i, j in edges.tolist())
    lattice = observed_lattice(5, 3, weight=5.0, bias=1.0, target=4.0)
    assert lattice.hidden == [6, 7, 8, 11, 12, 13, 16, 17, 18]
    again = observed_lattice(5, 3, weight=5.0, bias=1.0, target=4.0)
    assert lattice.graph == again.graph and lattice.targets == again.targets
    balanced = observed_lattice(4, 0, weight=3.0, bias=0.0, target=1.0)
    means = infer(balanced.graph, "enumerate").flat_marginals[1::2]
    assert means == pytest.approx(np.full(16, 0.5), abs=1e-12)  # by symmetry


def test_generalised_means_equal_exact_scaling() -> None:
    lattice = observed_lattice(4, 1, weight=2.0, bias=1.0, target=1.0)
    means, missed = generalised_means(lattice.graph, lattice.targets)
    scaled = infer(lattice.graph, "is:solver=scaling", evidence=lattice.marginals)
    assert missed < 1e-8 and scaled.converged
    assert means == pytest.approx(scaled.flat_marginals[1::2], abs=1e-7)


# ---------------------------------------------------------------------- TEH-E9


@pytest.fixture(scope="module")
def speed() -> Outcome:
    return reproduce("TEH-E9", quick=True, processes=1)


def test_speed_ranking_of_the_thesis(speed: Outcome) -> None:
    results = [one.result for one in speed.finished]
    names = ["loopy IS", "UPS-HV", "UPS-V", "IS+BP", "GIS+BP"]
    medians = [median_rank(name, results) for name in names]
    assert medians == sorted(medians)
    rows_agree(speed)


def test_ups_is_monotone_and_converges_in_every_run(speed: Outcome) -> None:
    for one in speed.finished:
        for name in ("UPS-HV", "UPS-V"):
            assert one.result[name]["converged"]
            assert one.result[name]["rise"] <= 1e-9


def test_all_algorithms_find_the_same_point(speed: Outcome) -> None:
    for one in speed.finished:
        hidden = [run["hidden"] for run in one.result.values() if run["converged"]]
        assert len(hidden) >= 3
        assert np.ptp(np.array(hidden), axis=0).max() < 1e-6


def test_speed_figure_has_a_row_for_each_algorithm(speed: Outcome) -> None:
    labels = [text.get_text() for text in speed.figure().axes[0].get_yticklabels()]
    assert [label.split(" (")[0] for label in labels] == [
        "loopy IS",
        "UPS-HV",
        "UPS-V",
        "IS+BP",
        "GIS+BP",
    ]


# ---------------------------------------------------------------------- TEH-E10


@pytest.fixture(scope="module")
def accuracy() -> Outcome:
    return reproduce("TEH-E10", quick=True, processes=1)


def test_equal_accuracy_where_loopy_scaling_converges(accuracy: Outcome) -> None:
    good = [one.result for one in accuracy.finished if one.result["loopy"]["converged"]]
    assert len(good) > 0.6 * accuracy.total
    equal = [abs(r["loopy"]["error"] - r["ups"]["error"]) < 1e-4 for r in good]
    assert np.mean(equal) > 0.9
    rows_agree(accuracy)


def test_ups_is_better_where_loopy_scaling_fails_with_observed_marginals(
    accuracy: Outcome,
) -> None:
    bad = [
        one.result
        for one in accuracy.finished
        if one.case["regime"] in ("c", "d") and not one.result["loopy"]["converged"]
    ]
    assert bad
    gains = [r["loopy"]["error"] - r["ups"]["error"] for r in bad]
    assert np.mean(gains) > 0 and min(gains) > -5e-3


def test_ups_always_converges(accuracy: Outcome) -> None:
    assert all(one.result["ups"]["converged"] for one in accuracy.finished)
    assert max(one.result["ups"]["rise"] for one in accuracy.finished) <= 1e-9
    assert max(one.result["missed"] for one in accuracy.finished) < 1e-8


def test_errors_grow_with_the_weights(accuracy: Outcome) -> None:
    def mean_error(weight: float) -> float:
        here = [one.result for one in accuracy.finished if one.case["weight"] == weight]
        return float(np.mean([r["ups"]["error"] for r in here]))

    assert mean_error(1.0) < mean_error(4.0) < mean_error(8.0)


def test_partial_runs_still_make_a_table_and_a_figure(accuracy: Outcome) -> None:
    experiment = find_experiment("TEH-E10")
    few = accuracy.finished[:3]
    assert len(experiment.rows(few)) >= 2
    assert to_svg(experiment.figure(few)).startswith("<?xml")
