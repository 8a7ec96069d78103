"""The posterior of a linear channel as a graph (LIU-M8)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kikuchi.core.errors import KikuchiError, ModelError
from kikuchi.graphs.binary import couplings_and_fields
from kikuchi_experiments.applications.detection import channel_uses, mimo
from oracle import enumerate_exact


def test_log_weight_is_the_gaussian_likelihood() -> None:
    rng = np.random.default_rng(0)
    channel, y = rng.normal(size=(4, 3)), rng.normal(size=4)  # more receivers than symbols
    graph = mimo(channel, y, 0.3)
    for bits in itertools.product((0, 1), repeat=3):
        x = 2.0 * np.array(bits) - 1.0
        expected = -np.sum((y - channel @ x) ** 2) / (2 * 0.3)
        assert graph.log_score(bits) == pytest.approx(expected, abs=1e-10)


def test_couplings_and_fields_of_the_catalogue() -> None:
    rng = np.random.default_rng(1)
    channel, y = rng.normal(size=(5, 5)), rng.normal(size=5)
    form = couplings_and_fields(mimo(channel, y, 0.2))
    gram = channel.T @ channel
    np.testing.assert_allclose(form.couplings.toarray(), -(gram - np.diag(np.diag(gram))) / 0.2)
    np.testing.assert_allclose(form.fields, channel.T @ y / 0.2)


def test_one_symbol_and_orthogonal_symbols_are_independent() -> None:
    log_z, singles, _ = enumerate_exact(mimo([[2.0]], [1.0], 0.5))
    assert singles[0][1] == pytest.approx(1 / (1 + np.exp(-2 * 2.0 / 0.5)))
    assert log_z == pytest.approx(np.logaddexp(-1.0, -9.0))
    _, singles, _ = enumerate_exact(mimo(np.eye(3), [0.1, -0.2, 0.0], 0.5))
    np.testing.assert_allclose([s[1] for s in singles], 1 / (1 + np.exp([-0.4, 0.8, 0.0])))


def test_draws_have_the_distribution_that_is_said() -> None:
    uses = channel_uses(8, 10.0, 20000, seed=5)
    assert len(uses) == 20000 and uses.noise == 0.1
    real, imaginary = uses.channels[:, :4, :4], uses.channels[:, 4:, :4]
    np.testing.assert_array_equal(uses.channels[:, 4:, 4:], real)
    np.testing.assert_array_equal(uses.channels[:, :4, 4:], -imaginary)
    assert real.var() == pytest.approx(1 / 8, rel=0.02) and abs(real.mean()) < 0.002
    errors = uses.received - np.einsum("kij,kj->ki", uses.channels, uses.sent)
    assert errors.var() == pytest.approx(0.1, rel=0.02)
    assert uses.sent.mean() == pytest.approx(0.0, abs=0.01)
    again = channel_uses(8, 10.0, 20000, seed=5)
    np.testing.assert_array_equal(again.received, uses.received)
    assert uses.graph(3) == mimo(uses.channels[3], uses.received[3], 0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.eye(2), [1.0], 0.1), "needs received values"),
        ((np.eye(2), [1.0, np.nan], 0.1), "finite"),
        ((np.eye(2), [1.0, 1.0], 0.0), "positive"),
        ((np.eye(2), [1.0, 1.0], np.inf), "positive"),
        (([[["x"]]], [[1.0]], 0.1), "numbers"),
        ((np.ones((2, 3, 3)), np.ones((2, 3)), 0.1), "must be a matrix"),
        ((np.ones((2, 0)), np.ones(2), 0.1), "needs received"),
    ],
)
def test_bad_channels(arguments: tuple, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        mimo(*arguments)


def test_bad_draws() -> None:
    for arguments, words in [
        ((7, 1.0, 1), "even"),
        ((8, 0.0, 1), "positive"),
        ((8, 1.0, 0), "at least 1"),
    ]:
        with pytest.raises(ModelError, match=words):
            channel_uses(*arguments)
    with pytest.raises(KikuchiError, match="seed"):
        channel_uses(8, 1.0, 1, seed=-1)
