"""Outputs of random networks against samples, and families that contain each other (LAW-I18)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kikuchi.bayesnn.network import Network
from kikuchi.bayesnn.posteriors import (
    DiagonalPosterior,
    FullFactor,
    FullPosterior,
    Independent,
    LayeredPosterior,
    MixturePosterior,
    WeightMixture,
    Weights,
    information_bound,
    weight_posterior,
)
from kikuchi.core.errors import MethodError

FAMILIES = ["diagonal", "layered", "full", "mixture:3"]


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def drawn(text, network, seed=0, size=0.7):
    rng = np.random.default_rng(seed)
    family = weight_posterior(text, network)
    weights = Weights(jnp.full(network.n_weights, 0.8), jnp.ones(network.n_weights))
    return family, family.read(jnp.asarray(size * rng.normal(size=family.size)), weights), weights


def rows(count=4, inputs=2):
    x = np.random.default_rng(1).normal(size=(count, inputs))
    return jnp.asarray(np.column_stack([x, np.ones(count)]))


@pytest.mark.parametrize("skip", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("text", FAMILIES)
def test_output_moments_are_those_of_samples(text, skip):
    # LAW-T17
    network = Network(2, 3, skip)
    family, q, _ = drawn(text, network)
    count = 100_000
    samples = family.sample(q, jax.random.key(0), count)
    f = np.asarray(jax.jit(jax.vmap(lambda w: network.output(w, rows())))(samples))
    found = jax.jit(family.output)(q, rows())
    error = f.std(axis=0) / np.sqrt(count)
    assert np.all(np.abs(f.mean(axis=0) - found.mean) < 5 * error)
    fourth = np.mean((f - f.mean(axis=0)) ** 4, axis=0)
    error = np.sqrt((fourth - f.var(axis=0) ** 2) / count)
    assert np.all(np.abs(f.var(axis=0) - found.variance) < 5 * error)
    mean, variance = family.marginals(q)
    assert np.asarray(samples).mean(axis=0) == pytest.approx(np.asarray(mean), abs=0.05)
    assert np.asarray(samples).var(axis=0) == pytest.approx(np.asarray(variance), rel=0.1)


@pytest.mark.slow
def test_a_full_posterior_with_a_layered_factor_is_layered():
    network = Network(2, 3)
    family, q, weights = drawn("layered", network)
    n, k = network.n_into_hidden, network.n_weights
    factor = np.zeros((k, k))
    for h in range(3):
        block = slice(3 * h, 3 * h + 3)
        factor[block, block] = q.units[h]
        factor[n:, block] = q.cross[:, h]
    factor[n:, n:] = q.output
    full = FullPosterior(network)
    same = FullFactor(q.mean, jnp.asarray(factor))
    for ours, theirs in zip(full.output(same, rows()), family.output(q, rows()), strict=True):
        assert np.asarray(ours) == pytest.approx(np.asarray(theirs), abs=1e-12)
    assert float(full.entropy(same, weights)) == pytest.approx(float(family.entropy(q, weights)))
    _, logdet = np.linalg.slogdet(2 * np.pi * np.e * factor @ factor.T)
    assert float(full.entropy(same, weights)) == pytest.approx(logdet / 2)


@pytest.mark.parametrize("text", FAMILIES[1:3])
def test_without_correlations_all_families_are_the_diagonal_one(text):
    network = Network(2, 3, skip=True)
    rng = np.random.default_rng(5)
    mean, sd = rng.normal(size=network.n_weights), rng.random(network.n_weights) + 0.1
    scale = rng.random(network.n_weights) + 0.5
    weights = Weights(jnp.asarray(scale), jnp.ones(network.n_weights))
    answers = []
    for family in (DiagonalPosterior(network), weight_posterior(text, network)):
        q = family.read(jnp.asarray(family.initial(mean, sd, scale)), weights)
        assert np.asarray(family.marginals(q)[1]) == pytest.approx(sd**2)
        answers.append([*family.output(q, rows()), family.entropy(q, weights)])
    for ours, theirs in zip(*answers, strict=True):
        assert np.asarray(ours) == pytest.approx(np.asarray(theirs), abs=1e-12)


@pytest.mark.parametrize("text", ["layered", "mixture:3"])
def test_removed_weights_are_zero_and_cost_nothing(text):
    network = Network(2, 3)
    family, _, weights = drawn(text, network)
    kept = Weights(weights.scale, jnp.asarray(np.where(network.units == 1, 0.0, 1.0)))
    flat = jnp.asarray(np.random.default_rng(0).normal(size=family.size))
    q = family.read(flat, kept)
    mean, variance = family.marginals(q)
    assert np.all(np.asarray(mean)[network.units == 1] == 0)
    assert np.all(np.asarray(variance)[network.units == 1] == 0)
    assert np.isfinite(float(family.entropy(q, kept)))


def true_information(q, count=20_000):
    rng = np.random.default_rng(0)
    share = np.exp(np.asarray(q.log_weights))
    means, sds = (np.asarray(a) for a in q.components)
    total = 0.0
    for m, weight in enumerate(share):
        w = means[m] + sds[m] * rng.normal(size=(count, means.shape[1]))
        each = -0.5 * ((w[:, None] - means) / sds) ** 2 - np.log(sds)
        logs = each.sum(axis=2)
        total -= weight * np.mean(np.log(np.exp(logs - logs[:, [m]]) @ share))
    return total


@pytest.mark.parametrize("apart", [0.0, 1.0, 6.0])
def test_information_bound_is_below_the_information(apart):
    # LAW-I19
    rng = np.random.default_rng(2)
    k = 3
    components = Independent(
        jnp.asarray(apart * rng.normal(size=(3, k))), jnp.asarray(0.5 + rng.random((3, k)))
    )
    smoothing = Independent(components.mean, 3 * components.sd)
    q = WeightMixture(jnp.log(jnp.asarray([0.5, 0.3, 0.2])), components, smoothing)
    found = float(information_bound(q, jnp.ones(k)))
    assert found <= true_information(q) + 0.01
    wide = q._replace(smoothing=Independent(components.mean, 1e6 * components.sd))
    assert float(information_bound(wide, jnp.ones(k))) == pytest.approx(0.0, abs=1e-9)


def test_information_of_components_far_apart_is_that_of_the_choice():
    # LAW-I19
    means = jnp.asarray([[0.0], [1e4]])
    components = Independent(means, jnp.ones((2, 1)))
    q = WeightMixture(
        jnp.log(jnp.asarray([0.5, 0.5])), components, Independent(means, 1e2 * jnp.ones((2, 1)))
    )
    assert float(information_bound(q, jnp.ones(1))) == pytest.approx(np.log(2), abs=1e-3)


def test_information_bound_is_the_form_with_lambda_at_its_optimum():
    network = Network(1, 2)
    family, q, _ = drawn("mixture:3", network, size=0.3)
    (means, sds), (centres, widths) = q.components, q.smoothing
    share = np.exp(np.asarray(q.log_weights))
    total = np.asarray(sds[:, None] ** 2 + widths**2)
    gap = np.asarray((means[:, None] - centres) ** 2) / total
    overlap = np.exp(-0.5 * np.sum(gap + np.log(total / np.asarray(widths) ** 2), axis=2))
    own = -0.5 * np.sum(np.asarray((sds**2 + (means - centres) ** 2) / widths**2), axis=1)
    scales = share / (share @ overlap)
    explicit = share @ (own - np.log(share) + np.log(scales)) - scales @ (share @ overlap) + 1
    assert float(information_bound(q, jnp.ones(network.n_weights))) == pytest.approx(explicit)
    assert isinstance(family, MixturePosterior)


@pytest.mark.parametrize("text", ["banded", "mixture", "mixture:1", "mixture:x", ""])
def test_unknown_posteriors_are_refused(text):
    with pytest.raises(MethodError, match="posterior"):
        weight_posterior(text, Network(2, 3))
    assert isinstance(weight_posterior("layered", Network(2, 3)), LayeredPosterior)


@pytest.mark.parametrize("text", ["layered", "full"])
def test_gradients_by_the_rows_are_those_of_differences(text):
    """Relevance of inputs needs them; their rules are written by hand."""
    family, q, _ = drawn(text, Network(2, 3, True))
    x, e = rows(), 1e-6
    way = jnp.asarray(np.random.default_rng(2).normal(size=x.shape))

    def total(at):
        found = family.output(q, at)
        return jnp.sum(found.mean) + jnp.sum(found.variance)

    slope = float(jnp.sum(jax.jit(jax.grad(total))(x) * way))
    up, down = (float(total(x + s * e * way)) for s in (1, -1))
    assert slope == pytest.approx((up - down) / (2 * e), rel=1e-6)
