"""The message network: belief propagation on trees, better than it where it was trained."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import KikuchiError, MethodError
from kikuchi.neural import MessageNetwork, train_messages
from kikuchi.neural.amortised import _compiled, _first_weights, padded_spins

pytest.importorskip("jax")


def strange(iterations: int = 30) -> MessageNetwork:
    """Weights far from any training."""
    weights = {name: 3.0 * value + 0.5 for name, value in _first_weights(5).items()}
    return MessageNetwork(weights, {"iterations": iterations})


def grid(seed: int, size: int = 6) -> kk.FactorGraph:
    return kk.grid(size, size, seed=seed, coupling=1.0, field=0.3)


@pytest.fixture(scope="module")
def trained() -> MessageNetwork:
    return train_messages(grid, 60, iterations=10, max_iter=15, batch_size=12)


@pytest.mark.parametrize("seed", range(3))
def test_trees_are_exact_whatever_the_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = {(int(rng.integers(0, v)), v): float(rng.normal()) for v in range(1, 20)}
    tree = kk.ising(pairs, rng.normal(size=20))
    answer, exact = strange().infer(tree), kk.infer(tree, "jt")
    np.testing.assert_allclose(answer.flat_marginals, exact.flat_marginals, atol=1e-5)
    assert answer.log_z == pytest.approx(exact.log_z, abs=1e-3)


@pytest.mark.parametrize("strength", [5.0, 50.0])
def test_strong_trees_are_exact_too(strength: float) -> None:
    """Messages were cut at 7.2 nats and couplings at 15, so that strong opponents met wrongly."""
    rng = np.random.default_rng(0)
    pairs = {(int(rng.integers(0, v)), v): strength * float(rng.normal()) for v in range(1, 12)}
    tree = kk.ising(pairs, strength * rng.normal(size=12))
    answer, exact = strange().infer(tree), kk.infer(tree, "jt")
    np.testing.assert_allclose(answer.flat_marginals, exact.flat_marginals, atol=1e-4)
    assert answer.log_z == pytest.approx(exact.log_z, abs=1e-3)


@pytest.mark.parametrize("iterations", [0, -4, 2.7])
def test_rounds_of_messages_are_whole_and_at_least_one(iterations: float) -> None:
    with pytest.raises(MethodError, match="iterations must be an integer of at least 1"):
        strange().infer(grid(1), iterations=iterations)  # type: ignore[arg-type]
    with pytest.raises(MethodError, match="iterations must be an integer of at least 1"):
        train_messages(grid, 5, iterations=iterations)  # type: ignore[arg-type]


def test_loops_are_corrected() -> None:
    graph = grid(1)
    assert (
        np.abs(strange().infer(graph).flat_marginals - kk.infer(graph, "bp").flat_marginals).max()
        > 0.01
    )


def test_hanging_trees_keep_plain_messages() -> None:
    """A leaf on a square: only the four edges of the square are corrected."""
    square = {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0, (0, 3): 1.0, (3, 4): 1.0}
    spins = padded_spins(kk.ising(square, np.zeros(5)))
    assert int(spins.corrected.sum()) == 8


def test_turning_all_fields_turns_all_marginals(trained: MessageNetwork) -> None:
    rng = np.random.default_rng(0)
    pairs = {(i, (i + 1) % 6): float(rng.normal()) for i in range(6)}
    fields = rng.normal(size=6)
    one = trained.infer(kk.ising(pairs, fields)).flat_marginals
    other = trained.infer(kk.ising(pairs, -fields)).flat_marginals
    np.testing.assert_allclose(one.reshape(-1, 2), other.reshape(-1, 2)[:, ::-1], atol=1e-5)


def test_training_beats_belief_propagation_on_graphs_it_has_not_seen(
    trained: MessageNetwork,
) -> None:
    errors = []
    for seed in range(500, 512):
        graph = grid(seed)
        exact = kk.infer(graph, "jt").flat_marginals
        answers = (trained.infer(graph), kk.infer(graph, "bp"))
        errors.append([np.abs(a.flat_marginals - exact).mean() for a in answers])
    network, bp = np.mean(errors, axis=0)
    assert network < bp


def test_log_z_is_bracketed(trained: MessageNetwork) -> None:
    for seed in range(3):
        graph = grid(seed, 5)
        answer, exact = trained.infer(graph), kk.infer(graph, "jt").log_z
        assert answer.log_z_lower <= exact <= answer.log_z_upper
        assert not answer.converged and answer.warnings


def test_graphs_of_changing_shape_share_compilations(trained: MessageNetwork) -> None:
    run = _compiled().run
    trained.infer(grid(0, 5), bracket=False)
    before = run._cache_size()
    for rows in range(2, 7):
        for cols in range(3, 6):
            trained.infer(kk.grid(rows, cols, seed=rows), bracket=False, iterations=rows)
    assert run._cache_size() - before <= 1  # buckets of 64 and of 128 directed edges


def test_what_is_refused() -> None:
    net = strange()
    with pytest.raises(KikuchiError, match="pairs of bits"):
        net.infer(kk.grid(2, 2, states=3))
    with pytest.raises(KikuchiError, match="at least 5 graphs"):
        train_messages(grid, 2)
    with pytest.raises(KikuchiError, match="did not converge"):
        train_messages(grid, 5, method="bp:max_iter=1")
    with pytest.raises(KikuchiError, match="buckets"):
        train_messages(lambda s: grid(s, 4 if s else 9), 5)
