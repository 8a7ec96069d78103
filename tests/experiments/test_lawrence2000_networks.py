"""Polynomials, Gaussians and Bayesian networks of Lawrence's thesis, in small."""

import numpy as np
import pytest

from kikuchi_experiments import find_experiment
from kikuchi_experiments.data.regression import meat_spectra, sunspots
from kikuchi_experiments.experiment import Finished
from kikuchi_experiments.lawrence2000.networks import linear_errors, structure_bounds


def run(identifier, seeds=1, **parameters):
    experiment = find_experiment(identifier)
    cases = experiment.cases({**experiment.quick.parameters, **parameters}, range(seeds))
    finished = [Finished(case, experiment.run_case(case), 0.0) for case in cases]
    assert experiment.figure(finished).axes
    return experiment.rows(finished), finished


@pytest.mark.parametrize("identifier", ["LAW-E3", "LAW-E4", "LAW-E16"])
def test_polynomials_and_gaussians_are_those_of_the_catalogue(identifier):
    # LAW-T23
    rows, _ = run(identifier, seeds=20 if identifier == "LAW-E3" else 0)
    assert rows and all(row.agrees for row in rows)


def test_linear_regression_of_the_tables_is_the_published_one():
    table = meat_spectra()
    errors = linear_errors(table.x, table.y, table.x_test, table.y_test)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(2.78, abs=0.005)
    data = sunspots()
    errors = linear_errors(*data.table[:2], *data.table[2:])
    assert np.mean(errors**2) / data.whole_variance == pytest.approx(0.227, abs=5e-4)
    assert np.mean(errors**2) / data.training_variance == pytest.approx(0.290, abs=5e-4)


@pytest.mark.slow
def test_roots_of_sunspots_are_better_than_linear_regression():
    rows, finished = run("LAW-E17", restarts=2)
    better = [row for row in rows if row.quantity.startswith("diagonal chosen")]
    assert len(better) == 4 and all(row.agrees for row in better[1:])
    assert finished[-1].result["choice"] == "roots with skip connections"
    bounds = structure_bounds(8, 2, 0)
    assert len(bounds) == 4 and max(bounds, key=bounds.get) == (True, True)


@pytest.mark.slow
def test_relevance_of_units_grows_with_data():
    rows, _ = run("LAW-E21", seeds=2)
    assert rows[-1].agrees


@pytest.mark.slow
def test_priors_of_spectra():
    rows, _ = run("LAW-E23", priors=["nrd"])
    assert all(row.agrees in (True, None) for row in rows)


@pytest.mark.slow
def test_priors_of_sunspots():
    rows, _ = run("LAW-E22", priors=["linear", "grouped chosen"], restarts=2)
    assert rows[-1].agrees


@pytest.mark.slow
def test_posteriors_of_spectra():
    rows, _ = run("LAW-E18", methods=["linear", "layered"], restarts=2)
    found = {row.quantity: row for row in rows}
    assert found["linear: RMSE"].agrees and found["layered: RMSE"].ours < 0.55


@pytest.mark.slow
def test_posteriors_of_a_sine():
    rows, finished = run("LAW-E15", warmup=100, samples=100, restarts=2)
    assert len(rows) == 4 and 0 < finished[0].result["information"] < np.log(5)
