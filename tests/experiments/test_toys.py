"""The two directions of KL and the jurors, against closed forms and quadrature.

Rows HOJ-E0, HOJ-M15, HOJ-I12, LAW-E1, LAW-E2 and LAW-M2.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

from kikuchi import infer
from kikuchi.core.errors import KikuchiError
from kikuchi.plots import to_svg
from kikuchi_experiments import Outcome, reproduce
from kikuchi_experiments.toys.tables import CLOSED_FORMS
from kikuchi_experiments.toys.toys import (
    DoubleWell,
    NormalDensity,
    correlated,
    gaussian_divergence,
    hybrid_monte_carlo,
    importance_variance,
    project_exclusive,
    project_inclusive,
    two_nodes,
)


def divergence_by_integral(well: DoubleWell, q: NormalDensity) -> float:
    """KL(q||p) by adaptive quadrature, written apart."""
    z = quad(lambda x: np.exp(-0.5 * well.kappa * (x * x - well.alpha**2) ** 2), -6, 6)[0]

    def term(x: float) -> float:
        log_q = 0.5 * np.log(q.precision / (2 * np.pi)) - 0.5 * q.precision * (x - q.mean) ** 2
        log_p = -0.5 * well.kappa * (x * x - well.alpha**2) ** 2 - np.log(z)
        return np.exp(log_q) * (log_q - log_p)

    half = 9.0 / np.sqrt(q.precision)
    return quad(term, q.mean - half, q.mean + half, limit=200)[0]


# ---------------------------------------------------------------------- the double well


@pytest.mark.parametrize("alpha", sorted(CLOSED_FORMS))
def test_closed_forms_of_the_catalogue(alpha: float) -> None:
    well = DoubleWell(3.0, alpha)
    (precision, value), broken, covering = CLOSED_FORMS[alpha]
    fit = well.symmetric_fit()
    assert fit.precision == pytest.approx(precision, abs=6e-5)
    assert well.divergence_from(fit) == pytest.approx(value, abs=6e-5)
    assert well.covering_fit().precision == pytest.approx(covering, abs=6e-5)
    assert (well.broken_fit() is None) == (broken is None)
    if broken is not None:
        found = well.broken_fit()
        assert (*found, well.divergence_from(found)) == pytest.approx(broken, abs=6e-5)


@pytest.mark.parametrize("alpha", [0.6, 1.1, 1.7])
def test_divergence_and_its_minima(alpha: float) -> None:
    well = DoubleWell(3.0, alpha)
    for fit in (well.symmetric_fit(), well.broken_fit()):
        if fit is None:
            continue
        value = well.divergence_from(fit)
        assert value == pytest.approx(divergence_by_integral(well, fit), abs=1e-8)
        start = [fit.mean + 0.01, np.log(fit.precision) + 0.02]
        best = minimize(
            lambda v: well.divergence_from(NormalDensity(v[0], np.exp(v[1]))), start, tol=1e-12
        )
        assert best.fun == pytest.approx(value, abs=1e-9)  # a minimum, the middle one too
        assert best.x[0] == pytest.approx(fit.mean, abs=1e-3)


def test_iteration_finds_the_closed_forms() -> None:
    for alpha in (0.5, 0.99, 1.1, 2.0):
        well = DoubleWell(3.0, alpha)
        found = project_exclusive(well.log_weight, NormalDensity(0.0, 5.0))
        assert found == pytest.approx(well.symmetric_fit(), abs=1e-8)
    well = DoubleWell(3.0, 1.5)
    for sign in (1, -1):
        found = project_exclusive(well.log_weight, NormalDensity(sign * 1.3, 20.0))
        assert found.mean == pytest.approx(sign * well.broken_fit().mean, abs=1e-8)


def test_both_projections_of_a_gaussian_are_itself() -> None:
    """HOJ-I12: if p is in the family, both directions give it back."""
    p = NormalDensity(0.7, 2.5)
    assert project_exclusive(p.log_density, NormalDensity(-2.0, 0.3)) == pytest.approx(p, abs=1e-8)
    assert project_inclusive(p.log_density, -12.0, 12.0) == pytest.approx(p, abs=1e-8)


def test_a_density_without_a_fit_is_refused() -> None:
    with pytest.raises(KikuchiError, match="did not settle"):
        project_exclusive(lambda x: 0.5 * x**2, NormalDensity(0.0, 1.0))


def test_sampler_has_the_moments_of_the_density() -> None:
    well = DoubleWell(3.0, 0.8)
    mean, precision, accepted = hybrid_monte_carlo(
        well, chains=100, samples=4000, discard=400, seed=1
    )
    assert abs(mean.mean()) < 0.01 and accepted > 0.95
    assert precision.mean() == pytest.approx(well.covering_fit().precision, rel=0.01)
    again = hybrid_monte_carlo(well, chains=100, samples=4000, discard=400, seed=1)
    np.testing.assert_array_equal(mean, again[0])


def test_importance_weights() -> None:
    """Test 18 of the catalogue: the formula against simulation, and collapse below one half."""
    rng = np.random.default_rng(0)
    for variance in (0.8, 1.0, 2.0):
        x = rng.normal(scale=np.sqrt(variance), size=400_000)
        weights = np.sqrt(variance) * np.exp(-0.5 * x**2 + 0.5 * x**2 / variance)
        assert weights.mean() == pytest.approx(1.0, abs=0.01)
        expected = importance_variance(1.0, variance)
        assert weights.var() == pytest.approx(expected, rel=0.1, abs=1e-9)
    assert importance_variance(1.0, 0.5) == np.inf
    x = rng.normal(scale=np.sqrt(0.4), size=400_000)
    weights = np.sqrt(0.4) * np.exp(-0.5 * x**2 + 0.5 * x**2 / 0.4)
    assert weights.max() / weights.sum() > 20 / 400_000  # a few samples carry the estimate


@pytest.fixture(scope="module")
def wells() -> Outcome:
    return reproduce("HOJ-E0", quick=True, processes=1)


def test_symmetry_breaking(wells: Outcome) -> None:
    assert [row for row in wells.rows() if row.agrees is False] == []
    sizes = {one.case["alpha"]: one.result["sampled"][0] for one in wells.finished}
    assert sizes[1.2] < 0.2 and sizes[1.8] > 1.5  # the sampler breaks later than the fit
    assert len(wells.figure().axes) == 6
    assert to_svg(wells.figure()).startswith("<?xml")


# ---------------------------------------------------------------------- Gaussians, jurors


def test_round_gaussians() -> None:
    # LAW-T23
    outcome = reproduce("LAW-E2", processes=1)
    assert all(row.agrees for row in outcome.rows())
    covariance = correlated([1.0, 0.01], 45.0)
    assert np.linalg.eigvalsh(covariance) == pytest.approx([0.01, 1.0])
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal(np.zeros(2), covariance, size=200_000)
    other = 0.3 * np.eye(2)
    gap = 0.5 * (
        np.einsum("ki,ij,kj->k", x, np.linalg.inv(other) - np.linalg.inv(covariance), x)
        + np.log(np.linalg.det(other) / np.linalg.det(covariance))
    )
    assert gaussian_divergence(covariance, other) == pytest.approx(gap.mean(), abs=0.02)
    assert len(outcome.figure().axes) == 2


def test_jurors() -> None:
    outcome = reproduce("LAW-E1", processes=1)
    assert all(row.agrees for row in outcome.rows())
    assert to_svg(outcome.figure()).startswith("<?xml")
    net = two_nodes(0.01, 1e-6)
    by_bayes = 0.01 * 0.05 / (0.01 * 0.05 + 0.99 * 1e-6)
    found = infer(net, "jt", evidence={"fingerprints": "yes"})["guilty"][1]
    assert found == pytest.approx(by_bayes, abs=1e-12)
