"""LAW-E12 to E14: what the thesis found when machines learn is found again."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from kikuchi.boltzmann.conversion import connections, to_spins
from kikuchi.boltzmann.rules import parse_rule
from kikuchi.core.errors import DataError
from kikuchi.plots import to_svg
from kikuchi_experiments import Outcome, reproduce
from kikuchi_experiments.experiment import Finished, Setting
from kikuchi_experiments.lawrence2000.digits import (
    DigitsByMixtures,
    binary_digits,
    neighbour_machine,
)
from kikuchi_experiments.lawrence2000.learning import (
    TwoModes,
    VectorAssociation,
    layered_machine,
    random_spins,
    step_in_spins,
)


@pytest.fixture(scope="module")
def toy() -> Outcome:
    return reproduce("LAW-E13", quick=True, seeds=2, processes=1)


@pytest.fixture(scope="module")
def association() -> Outcome:
    experiment = VectorAssociation()
    experiment.quick = Setting(  # type: ignore[misc]
        1,
        {**VectorAssociation.quick.parameters, "most": {"zeros": 250, "conditional": 600}},
        "3 s",
    )
    return reproduce(experiment, quick=True, processes=1)


@pytest.fixture(scope="module")
def digits() -> Outcome:
    experiment = DigitsByMixtures()
    experiment.quick = Setting(  # type: ignore[misc]
        1,
        {"components": [1, 3], "rates": [0.03], "steps": 8, "each": 10, "hidden": 10},
        "2 s",
    )
    return reproduce(experiment, quick=True, processes=1)


def spin_average(couplings: np.ndarray, fields: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """<s s'> and <s> of spins by listing all states, apart from the library."""
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=len(fields))))
    scores = 0.5 * np.einsum("ni,ij,nj->n", states, couplings, states) + states @ fields
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    return np.einsum("n,ni,nj->ij", weights, states, states), weights @ states


# ---------------------------------------------------------------------- steps in spins


def test_a_step_in_spins_is_the_gradient_of_spins() -> None:
    """LAW-L6: couplings move by the difference of <s_i s_j>, fields by that of <s_i>."""
    rng = np.random.default_rng(0)
    full = np.ones((3, 3), dtype=np.bool_)
    machine = random_spins(3, 0, {"visible_weights": full}, 0.5, rng)
    data = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    before = to_spins(machine)
    rule = parse_rule("exact")
    slope = rule.gradient(machine, data, np.arange(2), rule.begin(machine, data, rng), rng)
    step_in_spins(machine, slope.ascent, 0.1)
    after = to_spins(machine)
    spins = 2.0 * data - 1.0
    pairs, means = spin_average(before.couplings, before.fields)
    wanted = spins.T @ spins / 2 - pairs
    np.fill_diagonal(wanted, 0.0)
    np.testing.assert_allclose(after.couplings - before.couplings, 0.1 * wanted, atol=1e-12)
    np.testing.assert_allclose(
        after.fields - before.fields, 0.1 * (spins.mean(axis=0) - means), atol=1e-12
    )


def test_random_spins_have_the_deviation_and_only_the_connections() -> None:
    machine = layered_machine(6, 3, np.random.default_rng(0))
    spins = to_spins(machine)
    present = connections(machine)
    assert machine.n_hidden == 18 and int(present.sum()) == 2 * 4 * 36
    assert np.all(spins.couplings[~present] == 0.0)
    assert np.std(spins.couplings[present]) == pytest.approx(0.1, rel=0.15)
    # inputs reach the first hidden layer only, outputs the last only
    assert not present[:6, 6:12].any() and not present[:6, 18:].any()
    assert present[6:12, 24:30].all() and not present[6:12, 12:24].any()


# ---------------------------------------------------------------------- LAW-E13


def test_mixture_tracks_the_exact_gradient_and_mean_field_hops(toy: Outcome) -> None:
    rows = toy.rows()
    assert sum(row.agrees is True for row in rows) == 3
    assert [row for row in rows if row.agrees is False] == []
    known = {row.quantity: row for row in rows}
    for step, value in ((50, 0.0203), (100, 0.0101), (300, 0.0034)):
        for rule in ("exact", "mixture"):
            assert known[f"KL after {step} steps, {rule}"].ours == pytest.approx(value, rel=0.03)


def test_the_exact_field_is_that_of_the_data(toy: Outcome) -> None:
    fields = [o.result["field"][-1] for o in toy.finished if o.case["rule"] == "exact"]
    np.testing.assert_allclose(fields, 0.25 * np.log(2.0), atol=0.003)


def test_the_divergence_is_that_of_the_four_states() -> None:
    """The KL after one exact step, from the same draws, by listing the states."""
    case = {"rule": "exact", "seed": 5, "steps": 1, "rate": 0.25}
    found = TwoModes().run_case(case)
    machine = random_spins(
        2, 0, {"visible_weights": np.ones((2, 2), bool)}, 0.1, np.random.default_rng(5)
    )
    start = to_spins(machine)
    pairs, means = spin_average(start.couplings, start.fields)
    coupling = start.couplings[0, 1] + 0.25 * (1.0 - pairs[0, 1])
    fields = start.fields + 0.25 * (1.0 / 3.0 - means)
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=2)))
    scores = coupling * states.prod(axis=1) + states @ fields
    log_p = scores - np.log(np.exp(scores).sum())
    wanted = (2 / 3) * (np.log(2 / 3) - log_p[3]) + (1 / 3) * (np.log(1 / 3) - log_p[0])
    assert found["divergence"][0] == pytest.approx(wanted, abs=1e-12)
    assert found["field"][0] == pytest.approx(fields[0], abs=1e-12)


# ---------------------------------------------------------------------- LAW-E12


def test_the_joint_from_the_conditional_converges_with_f_below_zero(association: Outcome) -> None:
    for one in association.finished:
        if one.case["start"] == "conditional":
            assert one.result["converged"] and one.result["iterations"] < 400
            assert one.result["largest_bound"] <= 1e-9  # LAW-T10
            assert abs(one.result["final_bound"] - one.result["final_score"]) < 0.1
        else:
            assert not one.result["converged"] and one.result["iterations"] == 250
    assert [row for row in association.rows() if row.agrees is False] == []


def test_too_few_iterations_are_no_failure(association: Outcome) -> None:
    def verdict(most: int, converged: bool) -> bool | None:
        result = {**slow.result, "converged": converged}
        changed = Finished({**slow.case, "most": most}, result, 1.0)
        rows = VectorAssociation().rows([quick, changed])
        return next(r.agrees for r in rows if r.quantity.endswith("joint from zero: converged"))

    three = [one for one in association.finished if one.case["layers"] == 3]
    quick, slow = (
        next(one for one in three if one.case["start"] == start)
        for start in ("conditional", "zeros")
    )
    enough = 10 * quick.result["iterations"]  # at a tenth of the rate
    assert verdict(enough - 10, converged=False) is None
    assert verdict(enough, converged=False) is True
    assert verdict(enough, converged=True) is False


def test_iterations_are_those_of_the_catalogue(association: Outcome) -> None:
    """[REF] 165 and 177 iterations with one hidden layer; other random pairs differ by some."""
    one = next(
        o for o in association.finished if (o.case["layers"], o.case["start"]) == (1, "conditional")
    )
    assert 120 < one.result["iterations"] < 240


# ---------------------------------------------------------------------- LAW-E14


def test_the_machine_of_the_digits_has_969_parameters() -> None:
    machine = neighbour_machine(10, np.random.default_rng(0))
    present = connections(machine)
    inside = present[:64, :64]
    assert int(inside.sum()) // 2 == 210 and inside[0].sum() == 3 and inside[9].sum() == 8
    assert present[:64, 64:].all() and int(present[64:, 64:].sum()) == 90


def test_curves_of_the_digits(digits: Outcome) -> None:
    for one in digits.finished:
        assert one.result["images"] == 100 and one.result["parameters"] == 969
        bound = one.result["bound"]
        assert len(bound) == 8 and bound[-1] > bound[0] + 5.0
        assert len(one.result["moves"]) == 7 and all(0 <= m <= 1 for m in one.result["moves"])
    shown = digits.rows()
    assert len(shown) == 6 and shown[0].agrees is True
    assert "10 if there are so many" in shown[1].note  # not the 700 of the full setting


def test_digits_of_a_file(tmp_path: Path) -> None:
    place = tmp_path / "digits.npz"
    rng = np.random.default_rng(0)
    np.savez(place, images=rng.integers(0, 17, size=(30, 8, 8)), labels=np.arange(30) % 10)
    assert binary_digits(str(place), 2).shape == (20, 64)
    case = DigitsByMixtures(str(place)).cases(DigitsByMixtures.quick.parameters, [0])[0]
    assert case["data"] == str(place) and len(case["digest"]) == 16
    np.savez(place, images=rng.integers(0, 17, size=(30, 5, 5)), labels=np.arange(30))
    with pytest.raises(DataError, match="64 pixels"):
        binary_digits(str(place), 3)


def test_figures(toy: Outcome, association: Outcome, digits: Outcome) -> None:
    assert "mean field" in to_svg(toy.figure())
    assert len(association.figure().axes) == 2
    assert "components" in to_svg(digits.figure())
