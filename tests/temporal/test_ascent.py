"""Fits of state spaces to real series: they converge, mean it, and warn of superfluous states."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kikuchi.core.arrays import Array
from kikuchi.temporal import LinearGaussianSSM
from kikuchi.temporal.sequences import read_sequences
from kikuchi.temporal.state_space.coordinates import StateCoordinates
from kikuchi.temporal.state_space.identification import correlated_errors
from kikuchi.temporal.state_space.learning import StateConstraints, expected_statistics
from kikuchi.temporal.state_space.parameters import StateSpace

datasets = pytest.importorskip("statsmodels.datasets")


def series(name: str) -> Array:
    if name == "nile":
        return np.asarray(datasets.nile.load_pandas().data["volume"], dtype=float)[:, None]
    if name == "sunspots":
        found = datasets.sunspots.load_pandas().data["SUNACTIVITY"]
        return np.sqrt(np.asarray(found, dtype=float))[:, None]
    found = datasets.macrodata.load_pandas().data[["infl", "unemp", "tbilrate"]]
    table = np.asarray(found, dtype=float)
    return table if name == "macro" else table[:, [["infl", "unemp"].index(name)]]


@pytest.mark.parametrize("name", ["nile", "sunspots", "infl", "unemp", "macro"])
@pytest.mark.parametrize("state", [1, 2])
def test_defaults_converge_on_real_series_and_little_is_left_to_gain(name: str, state: int) -> None:
    y = series(name)
    with warnings.catch_warnings(action="ignore"):
        fit = LinearGaussianSSM(state).fit(y)
        long = LinearGaussianSSM(state, tol=1e-10, max_iter=4000, start=fit.model_).fit(y)
        em = LinearGaussianSSM(state, learner="em", max_iter=200).fit(y)
    assert fit.converged_ and fit.n_iter_ < fit.max_iter / 2
    assert long.log_likelihood_ - fit.log_likelihood_ < 0.01
    assert fit.log_likelihood_ > em.log_likelihood_ - 0.01


def test_em_that_is_still_climbing_has_not_converged() -> None:
    """Ten iterations of EM alone still gain more than tol there after 200 iterations."""
    fit = LinearGaussianSSM(1, learner="em", max_iter=200).fit(series("unemp"))
    assert not fit.converged_ and fit.stopped_ == "iterations"
    assert "still changes by" in fit.warnings_[0] and "raise max_iter" in fit.warnings_[0]


@pytest.mark.parametrize("structure", ["full", "diagonal", "isotropic"])
def test_the_gradient_along_square_roots_of_either_sign(structure: str) -> None:
    rng = np.random.default_rng(3)
    y = np.cumsum(rng.normal(size=(40, 2)), axis=0) + rng.normal(size=(40, 2))
    y[5:8, 0] = np.nan
    model = StateSpace(
        [[0.9, 0.1], [0.0, 0.7]], [[1.0, 0.5], [0.2, -1.0]], [[1.0, 0.3], [0.3, 0.8]],
        [[0.5, 0.0], [0.0, 0.4]], initial_covariance=np.eye(2),
    )  # fmt: skip
    constraints = StateConstraints(state_noise=structure, output_noise=structure, first="free")
    sequences, inputs = read_sequences([y, y[:20]]), [np.zeros((40, 0)), np.zeros((20, 0))]
    statistics = expected_statistics(model, sequences, inputs)[1]
    coordinates = StateCoordinates(model, statistics, constraints)
    point = coordinates.vector(model)
    point[rng.random(len(point)) < 0.3] *= -1.0

    def value(vector: Array) -> float:
        return expected_statistics(coordinates.model(vector), sequences, inputs)[0]

    now = coordinates.model(point)
    slope = coordinates.gradient(now, expected_statistics(now, sequences, inputs)[1], point)
    for k in range(len(point)):
        step = np.zeros(len(point))
        step[k] = 1e-5
        expected = (value(point + step) - value(point - step)) / 2e-5
        assert slope[k] == pytest.approx(expected, rel=1e-5, abs=1e-4)


def test_states_that_the_data_do_not_identify_are_named() -> None:
    rng = np.random.default_rng(0)
    message = "1 of 1 dimensions of the state is not identified.*independent rows"
    with pytest.warns(UserWarning, match=message) as issued:
        LinearGaussianSSM(1).fit(rng.normal(size=(200, 1)))
    assert issued[0].filename == __file__
    x = np.zeros(400)
    for t in range(1, 400):
        x[t] = 0.8 * x[t - 1] + rng.normal()
    y = (x + rng.normal(size=400))[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not LinearGaussianSSM(1).fit(y).warnings_
    with pytest.warns(UserWarning, match="of 3 dimensions .* not identified.*use n_components=1"):
        LinearGaussianSSM(3).fit(y)


def test_a_state_that_is_too_small_is_named() -> None:
    """A cycle in noise needs two dimensions; a fit of one said nothing."""
    rng = np.random.default_rng(0)
    cycle = 3.0 * np.sin(np.arange(200) * 2 * np.pi / 12) + rng.normal(size=200)
    with pytest.warns(UserWarning, match=r"correlated \(.* raise n_components \(now 1\)"):
        LinearGaussianSSM(1).fit(cycle[:, None])
    assert not LinearGaussianSSM(2).fit(cycle[:, None]).warnings_
    season = np.tile([0.0, 5.0, 0.0, 0.0, -5.0, 0.0, 0.0], 30) + rng.normal(size=210)
    fit = LinearGaussianSSM(1).fit(season[:, None])  # correlated 7, 14, 21, ... rows apart
    assert any("subtract a season of 7 rows" in text for text in fit.warnings_)


def test_correlations_of_errors_are_those_of_statsmodels() -> None:
    acf = pytest.importorskip("statsmodels.tsa.stattools").acf
    rng = np.random.default_rng(1)
    y = np.convolve(rng.normal(size=203), [1.0, 0.0, 0.9], "valid")[:, None]
    still = StateSpace([[0.0]], [[0.0]], [[1.0]], [[2.0]], initial_covariance=[[1.0]])
    (text,) = correlated_errors(still, [y], [np.zeros((201, 0))])
    expected = acf(y[1:, 0], adjusted=True)[2]
    assert f"({expected:.2f} between rows 2 apart)" in text
    missing = y.copy()
    missing[50:60] = np.nan
    assert (
        "rows 2 apart"
        in correlated_errors(still, [missing, y[:3]], [np.zeros((201, 0)), np.zeros((3, 0))])[0]
    )
    noise = rng.normal(size=(300, 2))
    pair = StateSpace([[0.0]], [[0.0], [0.0]], [[1.0]], np.eye(2), initial_covariance=[[1.0]])
    assert correlated_errors(pair, [noise], [np.zeros((300, 0))]) == []
    assert correlated_errors(still, [y], [np.zeros((201, 0))], more=False) == []


@pytest.mark.parametrize("cut", [5, 30])
def test_a_fit_that_was_cut_short_ends_as_an_unbroken_one(tmp_path: Path, cut: int) -> None:
    """After 5 iterations EM is at work, after 30 the gradient."""
    y, path = series("sunspots"), tmp_path / "fit"
    whole = LinearGaussianSSM(2, random_state=0).fit(y)

    class Interrupted:
        def __call__(self, iterations: int, *_: Any, **__: Any) -> None:
            if iterations >= cut:
                raise KeyboardInterrupt

    import kikuchi.core.run as run

    before = run._PROGRESS_EVERY
    run._PROGRESS_EVERY = -1.0
    try:
        part = LinearGaussianSSM(2, random_state=0, checkpoint=path, progress=Interrupted()).fit(y)
    finally:
        run._PROGRESS_EVERY = before
    assert part.stopped_ == "interrupted" and part.n_iter_ < whole.n_iter_
    again = LinearGaussianSSM(2, random_state=0, checkpoint=path).fit(y)
    assert again.log_likelihood_ == whole.log_likelihood_ and again.n_iter_ == whole.n_iter_
