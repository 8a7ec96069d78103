"""Noiseless ICA: TEH-M15 to M17, TEH-I19, TEH-L13 against peers, quadrature and differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.special import expit
from sklearn.decomposition import FastICA
from sklearn.linear_model import Lasso
from sklearn.utils.estimator_checks import parametrize_with_checks

from kikuchi.core.errors import DataError, MethodError
from kikuchi.ica.infomax.densities import DENSITIES, find_density
from kikuchi.ica.infomax.infomax_ica import InfomaxICA
from kikuchi.ica.infomax.most_probable import map_sources
from kikuchi.ica.infomax.objective import (
    manifold_objective,
    relative_gradient,
    square_gradient,
    square_objective,
)


def amari(product: np.ndarray) -> float:
    """Zero for a scaled permutation, at most 1."""
    size = np.abs(product)
    n = len(size)
    rows = (size / size.max(axis=1, keepdims=True)).sum()
    columns = (size / size.max(axis=0, keepdims=True)).sum()
    return float(rows + columns - 2 * n) / (2 * n * (n - 1))


def mixture(seed: int, n_sources: int = 4, n_samples: int = 8000):
    rng = np.random.default_rng(seed)
    sources = rng.laplace(size=(n_samples, n_sources))
    mixing = rng.standard_normal((n_sources, n_sources))
    return mixing, sources, sources @ mixing.T + rng.standard_normal(n_sources)


# ---------------------------------------------------------------------- densities, objectives


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_are_normalised_and_their_slopes_derivatives(name):
    density = find_density(name)
    mass = quad(lambda u: math.exp(-float(density.energy(np.array(u)))), -np.inf, np.inf)[0]
    assert mass == pytest.approx(1.0, abs=1e-8)
    u = np.linspace(-30, 30, 601)
    step = 1e-5
    numeric = (density.energy(u + step) - density.energy(u - step)) / (2 * step)
    assert density.slope(u) == pytest.approx(numeric, abs=1e-6)
    numeric = (density.slope(u + step) - density.slope(u - step)) / (2 * step)
    assert density.curvature(u) == pytest.approx(numeric, abs=1e-6)
    far = np.array([-1e4, 1e4])
    assert np.isfinite(density.energy(far)).all()


def test_golden_values_of_the_logistic_energy():
    """TEH-M13: E(0) = log 4, and the density integrates to 1/|det| of the filters."""
    assert float(find_density("logistic").energy(np.array(0.0))) == pytest.approx(
        1.386294, abs=1e-6
    )
    filters = np.array([[1.0, 0.5], [-0.3, 0.8]])
    line = np.linspace(-50, 50, 501)
    x = np.stack([g.ravel() for g in np.meshgrid(line, line)])
    energy = find_density("logistic").energy(filters @ x).sum(axis=0)
    z = np.exp(-energy).sum() * (line[1] - line[0]) ** 2
    assert z == pytest.approx(1.0526315789, abs=1e-6)


def numerical(function, point):
    out = np.zeros_like(point)
    for place in np.ndindex(point.shape):
        step = np.zeros_like(point)
        step[place] = 1e-5
        out[place] = (function(point + step) - function(point - step)) / 2e-5
    return out


def test_square_gradients_against_differences():
    """TEH-M15 with its erratum, and the relative gradient of TEH-L12."""
    rng = np.random.default_rng(0)
    filters, data = rng.standard_normal((4, 4)), rng.standard_normal((4, 30))
    densities = [find_density(name) for name in DENSITIES]

    def value(b):
        return square_objective(b, data, densities)

    assert square_gradient(filters, data, densities) == pytest.approx(
        numerical(value, filters), abs=1e-8
    )
    relative = numerical(lambda e: value((np.eye(4) + e) @ filters), np.zeros((4, 4)))
    assert relative_gradient(filters @ data, densities) == pytest.approx(relative, abs=1e-8)


def test_manifold_gradient_against_differences():
    """TEH-M18, TEH-T36; square case equal to the other objective."""
    # TEH-L13
    rng = np.random.default_rng(1)
    filters, data = rng.standard_normal((4, 2)), rng.standard_normal((2, 25))
    densities = [find_density(name) for name in DENSITIES]
    _, gradient = manifold_objective(filters, data, densities)
    numeric = numerical(lambda b: manifold_objective(b, data, densities)[0], filters)
    assert gradient == pytest.approx(numeric, abs=1e-8)
    square = rng.standard_normal((2, 2))
    value, gradient = manifold_objective(square, data, densities[:2])
    assert value == pytest.approx(square_objective(square, data, densities[:2]), abs=1e-12)
    assert gradient == pytest.approx(square_gradient(square, data, densities[:2]), abs=1e-10)


def test_entropy_identity_of_the_curved_sheet():
    """TEH-T36, golden values of TEH-M18: volume, entropy, H = -KL + log volume."""
    # TEH-M17
    filters = np.array([[1.3], [-0.6]])
    densities = [find_density("logistic")] * 2

    def log_slope(x: float) -> float:
        return manifold_objective(filters, np.array([[x]]), densities)[0]

    def normal(x: float) -> float:
        return math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)

    volume = quad(lambda x: math.exp(log_slope(x)), -60, 60, limit=400)[0]
    assert volume == pytest.approx(1.5174811761, abs=1e-9)
    own = 0.5 * math.log(2 * math.pi * math.e)
    entropy = own + quad(lambda x: normal(x) * log_slope(x), -12, 12, limit=400)[0]
    assert entropy == pytest.approx(0.1146932662, abs=1e-9)
    divergence = quad(
        lambda x: normal(x) * (math.log(normal(x)) - log_slope(x) + math.log(volume)), -12, 12
    )[0]
    assert entropy == pytest.approx(-divergence + math.log(volume), abs=1e-9)


def test_far_tails_do_not_break_the_sheet():
    filters = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    densities = [find_density("logistic")] * 3
    value, gradient = manifold_objective(filters, np.array([[90.0], [-3.0]]), densities)
    # With one slope dwarfed, Cauchy-Binet over pairs of filters gives the determinant.
    u = filters @ np.array([90.0, -3.0])
    log_p = -find_density("logistic").energy(u)
    pairs = [(0, 1), (0, 2), (1, 2)]
    terms = [
        2 * (log_p[i] + log_p[j] + math.log(abs(np.linalg.det(filters[[i, j]])))) for i, j in pairs
    ]
    assert value == pytest.approx(0.5 * np.logaddexp.reduce(terms), rel=1e-12)
    assert np.isfinite(gradient).all()


# ---------------------------------------------------------------------- fits


@pytest.mark.parametrize("solver", ["newton", "natural", "gradient"])
def test_solvers_reach_the_same_optimum(solver):
    mixing, _, samples = mixture(0)
    found = InfomaxICA(solver=solver, random_state=0).fit(samples)
    best = InfomaxICA(random_state=1).fit(samples)
    assert found.converged_
    assert found.log_likelihood_ == pytest.approx(best.log_likelihood_, abs=1e-9)
    assert amari(found.components_ @ best.mixing_) < 1e-4
    assert amari(found.components_ @ mixing) < 0.02
    assert (np.diff(found.trace_.objective) > -1e-12).all()


def test_agrees_with_picard_and_beats_or_equals_fastica():
    picard = pytest.importorskip("picard").picard
    mixing, _, samples = mixture(3)
    ours = InfomaxICA(prior="sech", random_state=0).fit(samples)
    whitener, rotation, _ = picard(
        samples.T, ortho=False, extended=False, whiten=True, random_state=0, tol=1e-9
    )
    assert amari(rotation @ whitener @ ours.mixing_) < 1e-5
    fast = FastICA(whiten="unit-variance", random_state=0).fit(samples)
    assert amari(ours.components_ @ mixing) < 1.2 * amari(fast.components_ @ mixing)


def test_three_views_of_the_density_are_one():
    """TEH-T33: causal density, slope of the squashed map, and energy over its partition sum."""
    # TEH-M15
    samples = mixture(5, n_sources=3, n_samples=500)[2]
    found = InfomaxICA(random_state=0).fit(samples)
    u = found.transform(samples)
    causal = np.log(expit(u) * expit(-u)).sum(axis=1)
    causal += math.log(abs(np.linalg.det(found.components_)))
    jacobian = (expit(u) * expit(-u))[:, :, None] * found.components_
    infomax = np.linalg.slogdet(jacobian)[1]
    energy = find_density("logistic").energy(u).sum(axis=1)
    log_z = -np.linalg.slogdet(found.components_)[1]
    for view in (causal, infomax, -energy - log_z):
        assert found.score_samples(samples) == pytest.approx(view, abs=1e-10)
    assert found.score(samples) == pytest.approx(found.log_likelihood_, abs=1e-10)


def test_outputs_of_the_true_filters_are_uniform():
    """TEH-M17: logistic sources squashed by their own distribution function."""
    rng = np.random.default_rng(0)
    samples = rng.logistic(size=(20_000, 2)) @ rng.standard_normal((2, 2))
    outputs = expit(InfomaxICA(random_state=0).fit(samples).transform(samples))
    for row in outputs.T:  # Kolmogorov-Smirnov at about the 0.1 % level
        distance = np.abs(np.sort(row) - np.linspace(0, 1, len(row))).max()
        assert distance < 1.95 / math.sqrt(len(row))
    assert abs(np.corrcoef(outputs.T)[0, 1]) < 4 / math.sqrt(len(outputs))


def test_kinds_of_densities_are_chosen():
    rng = np.random.default_rng(0)
    sources = np.stack(
        [rng.laplace(size=6000), rng.uniform(-1, 1, 6000), rng.laplace(size=6000)], axis=1
    )
    mixing = rng.standard_normal((3, 3))
    samples = sources @ mixing.T
    found = InfomaxICA(prior="auto", random_state=0).fit(samples)
    assert sorted(found.densities_) == ["bimodal", "sech", "sech"]
    assert amari(found.components_ @ mixing) < 0.02
    assert found.converged_
    assert not found.warnings_
    wrong = InfomaxICA(prior="bimodal", random_state=0).fit(samples)
    assert any("prior='auto'" in warning for warning in wrong.warnings_)


def test_fewer_sources_than_sensors():
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((6, 2))
    samples = rng.laplace(size=(3000, 2)) @ mixing.T + 0.01 * rng.standard_normal((3000, 6))
    found = InfomaxICA(2, random_state=0).fit(samples)
    assert found.mixing_.shape == (6, 2)
    assert amari(found.components_ @ mixing) < 0.03
    assert found.inverse_transform(found.transform(samples)) == pytest.approx(samples, abs=0.1)
    with pytest.raises(MethodError, match="as many sources as sensors"):
        found.score_samples(samples)
    with pytest.raises(MethodError, match="as many sources as sensors"):
        found.score(samples)
    assert not hasattr(found, "score_samples")


# ---------------------------------------------------------------------- over-complete


def three_in_two(seed: int):
    rng = np.random.default_rng(seed)
    sources = rng.laplace(size=(3000, 3)) * (rng.random((3000, 3)) < 0.3)
    angles = np.deg2rad([5, 65, 125])
    mixing = np.array([np.cos(angles), np.sin(angles)])
    return mixing, sources, sources @ mixing.T + 0.01 * rng.standard_normal((3000, 2))


@pytest.mark.parametrize("seed", range(3))
def test_causal_view_finds_three_directions_in_two_sensors(seed):
    """TEH-M16: delta at the most probable sources, columns of length 1."""
    mixing, sources, samples = three_in_two(seed)
    found = InfomaxICA(3, view="causal", random_state=seed).fit(samples)
    assert np.abs(mixing.T @ found.mixing_).max(axis=1).min() > math.cos(math.radians(1))
    assert np.linalg.norm(found.mixing_, axis=0) == pytest.approx(1.0)
    assert (np.diff(found.trace_.objective) > -1e-9).all()
    s = found.transform(samples)
    agreement = np.abs(np.corrcoef(sources.T, s.T)[:3, 3:])
    assert agreement.max(axis=1).min() > 0.85


def test_sources_that_are_never_used_are_told():
    samples = three_in_two(0)[2]
    found = InfomaxICA(3, view="causal", noise=1e4, random_state=0).fit(samples)
    assert not found.converged_
    assert any("collapsed: always 0" in text and "0, 1, 2" in text for text in found.warnings_)


def test_silent_samples_are_no_directions():
    samples = np.zeros((100, 2))
    samples[:6] = [[1, 0], [-1, 0], [0, 2], [0, -2], [1, 1], [-1, -1]]
    found = InfomaxICA(3, view="causal", random_state=1).fit(samples)
    assert np.linalg.norm(found.mixing_, axis=0) == pytest.approx(1.0)


def test_over_complete_infomax_climbs():
    """TEH-L13: more filters than sensors."""
    _, _, samples = three_in_two(0)
    found = InfomaxICA(3, random_state=0).fit(samples)
    assert found.converged_
    assert found.components_.shape == (3, 2)
    assert (np.diff(found.trace_.objective) > -1e-12).all()
    square = InfomaxICA(random_state=0).fit(samples)
    assert found.transform(samples).shape == (3000, 3)
    assert found.log_likelihood_ > square.log_likelihood_  # a sheet has more room than a square


# ---------------------------------------------------------------------- most probable sources


def test_noiseless_laplace_sources_against_single_programmes():
    """TEH-I19: x = A s exactly, least sum of sizes."""
    rng = np.random.default_rng(0)
    mixing, data = rng.standard_normal((3, 6)), rng.standard_normal((100, 3))
    found = map_sources(data, mixing)
    assert found @ mixing.T == pytest.approx(data, abs=1e-9)
    both = np.concatenate([mixing, -mixing], axis=1)
    for k in range(0, 100, 9):
        one = linprog(np.ones(12), A_eq=both, b_eq=data[k], method="highs")
        assert np.abs(found[k]).sum() == pytest.approx(one.fun, abs=1e-9)


def test_noisy_laplace_sources_are_the_lasso():
    """TEH-I19."""
    rng = np.random.default_rng(0)
    mixing, data = rng.standard_normal((4, 7)), rng.standard_normal((20, 4))
    found = map_sources(data, mixing, rate=0.7, noise=0.3)
    lasso = Lasso(alpha=0.7 * 0.3 / 4, fit_intercept=False, tol=1e-12, max_iter=100_000)
    expected = np.stack([lasso.fit(mixing, row).coef_ for row in data])
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("angle", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
def test_columns_that_are_nearly_alike(angle, noise):
    """Coordinate descent alone would stop far from the best sources; the conditions tell."""
    rng = np.random.default_rng(1)
    angles = np.array([0.0, angle, 2 * angle, 1.3])
    mixing, data = np.array([np.cos(angles), np.sin(angles)]), rng.laplace(size=(20, 2))
    found = map_sources(data, mixing, noise=noise)
    slope = (data - found @ mixing.T) @ mixing / noise
    assert np.abs(slope).max() < 1 + 1e-3
    assert np.abs(slope - np.sign(found))[found != 0].max() < 1e-3


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("prior", ["logistic", "sech", "bimodal"])
def test_smooth_priors_end_where_the_gradient_vanishes(prior, noise):
    rng = np.random.default_rng(0)
    mixing, data = rng.standard_normal((2, 4)), rng.standard_normal((30, 2))
    found = map_sources(data, mixing, prior=prior, rate=1.5, noise=noise)
    slope = 1.5 * find_density(prior).slope(1.5 * found)
    if noise:
        slope = slope - (data - found @ mixing.T) @ mixing / noise
    else:
        assert found @ mixing.T == pytest.approx(data, abs=1e-10)
        slope = slope @ np.linalg.svd(mixing)[2][2:].T
    assert np.abs(slope).max() < 1e-6


def test_square_sources_need_no_search():
    mixing = np.array([[1.0, 0.5], [-0.2, 1.0]])
    data = np.array([[1.0, 2.0]])
    expected = np.linalg.solve(mixing, data[0])
    for prior in ("laplace", "logistic"):
        assert map_sources(data, mixing, prior=prior)[0] == pytest.approx(expected, abs=1e-9)


def test_map_refuses_what_it_cannot_do():
    with pytest.raises(DataError, match="span all sensors"):
        map_sources([[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(DataError, match="zero"):
        map_sources([[1.0, 2.0]], [[1.0, 0.0], [1.0, 0.0]], noise=1.0)
    with pytest.raises(DataError, match="do not fit"):
        map_sources([[1.0, 2.0]], [[1.0, 0.0, 1.0]])
    with pytest.raises(MethodError, match="rate"):
        map_sources([[1.0]], [[1.0]], rate=0.0)
    with pytest.raises(MethodError, match="logistic"):
        map_sources([[1.0]], [[1.0]], prior="logistics")


# ---------------------------------------------------------------------- estimator


@parametrize_with_checks([InfomaxICA(), InfomaxICA(solver="natural", max_iter=20)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "newtons"},
        {"view": "causel"},
        {"prior": "gauss"},
        {"n_components": -1},
        {"tol": 0},
        {"noise": -1.0},
        {"max_iter": 0},
        {"n_components": 6, "prior": "auto"},
    ],
)
def test_bad_options_are_one_clear_line(options):
    with pytest.raises(MethodError) as caught:
        InfomaxICA(**options).fit(mixture(0)[2])
    assert "\n" not in str(caught.value)


def test_bad_data_is_one_clear_line():
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="fewer samples than sensors"):
        InfomaxICA().fit(rng.standard_normal((4, 9)))
    with pytest.raises(DataError, match="n_components to 2 or fewer"):
        InfomaxICA().fit(rng.standard_normal((50, 2)) @ rng.standard_normal((2, 3)))
    with pytest.raises(DataError, match="sensor 1 never changes; remove it"):
        InfomaxICA().fit(np.stack([rng.standard_normal(9), np.full(9, 0.1)], axis=1))
    with pytest.raises(DataError, match="sensors 0, 1 never change; remove them"):
        InfomaxICA().fit(np.ones((9, 2)))
    found = InfomaxICA(random_state=0).fit(mixture(0)[2])
    for sources in (np.zeros(4), np.zeros((2, 7)), np.full((1, 4), np.nan)):
        with pytest.raises(DataError, match=r"shape \(samples, 4\)"):
            found.inverse_transform(sources)


def test_random_states_of_scikit_learn():
    samples = mixture(0)[2]
    one, two = (InfomaxICA(random_state=np.random.RandomState(3)).fit(samples) for _ in range(2))
    assert np.array_equal(one.mixing_, two.mixing_)
