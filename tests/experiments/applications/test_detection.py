"""Detectors over many channel uses against the graph methods and plain formulas (LIU-I16, M8).

Also LIU-I6 and I7 in their binary form, and the published symbol errors of LIU-E3 and E4.
"""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import kikuchi as kk
from kikuchi import Budget
from kikuchi.core.errors import BudgetError, MethodError, ModelError
from kikuchi.methods.registry import METHODS
from kikuchi_experiments.applications.detection import (
    ChannelUses,
    Detection,
    channel_uses,
    detect,
    symbol_errors,
)


def found(uses: ChannelUses, detector: str, **options: object) -> Detection:
    return detect(uses.channels, uses.received, uses.noise, detector, **options)  # type: ignore


def odds_of(beliefs: kk.Beliefs) -> np.ndarray:
    ones = beliefs.flat_marginals.reshape(-1, 2)
    return np.log(ones[:, 1] / ones[:, 0])


# ---------------------------------------------------------------------- against graph methods


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_bp_equals_the_graph_method(schedule: str, damping: float) -> None:
    uses = channel_uses(6, 3.0, 12, seed=1)
    batch = found(
        uses,
        "bp",
        schedule=schedule,
        damping=damping,
        max_iter=2000,
        tol=1e-12,
        fields="full",
    )
    compared = 0
    for k in range(len(uses)):
        if schedule == "parallel":
            method = f"bp:schedule=parallel,damping={damping},damping_kind=geometric,tol=1e-13"
        else:
            method = "bp:damping=0.5,tol=1e-13,max_iter=3000"
        single = kk.infer(uses.graph(k), method)
        if single.converged and batch.converged[k]:
            alike = np.abs(odds_of(single) - batch.log_odds[k]).max() < 1e-6
            assert alike or not single.diagnostics["certified"]
            compared += alike
    assert compared >= 6


def test_parallel_sweeps_equal_the_graph_method_before_convergence() -> None:
    uses = channel_uses(8, 5.0, 6, seed=2)
    for sweeps in (1, 2, 7):
        batch = found(uses, "bp", max_iter=sweeps, tol=0.0)
        for k in range(len(uses)):
            method = f"bp:schedule=parallel,tol=0,max_iter={sweeps}"
            np.testing.assert_allclose(
                odds_of(kk.infer(uses.graph(k), method)), batch.log_odds[k], atol=1e-8
            )


@pytest.mark.skipif("alpha" not in METHODS, reason="the alpha method is not there yet")
@pytest.mark.parametrize("alpha", [0.5, 0.8, 1.2])
def test_alpha_equals_the_graph_method(alpha: float) -> None:
    uses = channel_uses(6, 2.0, 8, seed=3)
    batch = found(uses, f"alpha:{alpha}", max_iter=3000, tol=1e-12, fields="full")
    compared = 0
    for k in range(len(uses)):
        single = kk.infer(uses.graph(k), f"alpha:alpha={alpha},tol=1e-13,max_iter=5000")
        if single.converged and batch.converged[k]:
            compared += bool(np.abs(odds_of(single) - batch.log_odds[k]).max() < 1e-6)
    assert compared >= 5


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.9, 1.4])
def test_alpha_against_the_rule_on_tables(alpha: float) -> None:
    """(3.17) in probabilities, all messages at once, from uniform ones."""
    uses = channel_uses(4, 2.0, 3, seed=4)
    for fields in ("full", "gradual"):
        batch = found(uses, f"alpha:{alpha}", max_iter=9, tol=0.0, fields=fields)
        for k in range(len(uses)):
            expected = alpha_by_tables(uses, k, alpha, 9, gradual=fields == "gradual")
            np.testing.assert_allclose(batch.log_odds[k], expected, rtol=1e-8, atol=1e-8)


def alpha_by_tables(
    uses: ChannelUses, use: int, alpha: float, sweeps: int, *, gradual: bool
) -> np.ndarray:
    n, spins = uses.sent.shape[1], np.array([-1.0, 1.0])
    gram = uses.channels[use].T @ uses.channels[use] / uses.noise
    matched = uses.channels[use].T @ uses.received[use] / uses.noise
    own = np.exp(np.outer(matched, spins))
    now = np.ones_like(own) if gradual else own
    m = {(t, s): np.full(2, 0.5) for t, s in itertools.permutations(range(n), 2)}
    for _ in range(sweeps):
        new = {}
        for t, s in m:
            pair = np.exp(-gram[t, s] * np.outer(spins, spins)) ** alpha
            inflow = now[t] * m[s, t] ** (1 - alpha)
            for w in set(range(n)) - {t, s}:
                inflow = inflow * m[w, t]
            value = m[t, s] ** (1 - alpha) * (inflow @ pair)
            new[t, s] = value / value.sum()
        m = new
        now = own**alpha * now ** (1 - alpha)
    belief = np.array(
        [own[s] * np.prod([m[t, s] for t in range(n) if t != s], 0) for s in range(n)]
    )
    return np.log(belief[:, 1] / belief[:, 0])


def test_reweighting_is_exact_where_symbols_do_not_interfere() -> None:
    uses = channel_uses(4, 3.0, 5, seed=0)
    apart = np.broadcast_to(np.eye(4), uses.channels.shape)
    for detector in ("bp", "alpha:0.4", "trw:0.3", "mf"):
        odds = detect(apart, uses.received, 0.5, detector, max_iter=60, tol=0.0).log_odds
        np.testing.assert_allclose(odds, 2 * uses.received / 0.5, atol=1e-6)


def test_mean_field_solves_its_equations() -> None:
    uses = channel_uses(8, 4.0, 20, seed=6)
    batch = found(uses, "mf", max_iter=5000, tol=1e-13)
    assert batch.converged.all()
    for k in range(len(uses)):
        means = np.tanh(batch.log_odds[k] / 2)
        gram = uses.channels[k].T @ uses.channels[k] / uses.noise
        np.fill_diagonal(gram, 0.0)
        field = uses.channels[k].T @ uses.received[k] / uses.noise - gram @ means
        np.testing.assert_allclose(np.tanh(field), means, atol=1e-9)


# ---------------------------------------------------------------------- linear and best


def test_mmse_is_the_ridge_solution() -> None:
    uses = channel_uses(8, 7.0, 30, seed=7)
    batch = found(uses, "mmse")
    for k in range(len(uses)):
        stacked = np.vstack([uses.channels[k], np.sqrt(uses.noise) * np.eye(8)])
        target = np.concatenate([uses.received[k], np.zeros(8)])
        estimate = np.linalg.lstsq(stacked, target, rcond=None)[0]
        np.testing.assert_array_equal(batch.symbols[k], np.where(estimate > 0, 1.0, -1.0))


def test_prior_adds_the_estimate_over_its_variance() -> None:
    """LIU-I7: on symbols that do not interfere the evidence counts exactly twice, nearly."""
    y = np.array([[0.3, -0.8]])
    channel, noise = np.eye(2)[None], 0.25
    odds = detect(channel, y, noise, "bp+mmse").log_odds
    estimate, variance = y / (1 + noise), noise / (1 + noise)
    np.testing.assert_allclose(odds, 2 * y / noise + 2 * estimate / variance)


@pytest.mark.parametrize("n", [2, 6, 8])
def test_map_is_the_best_of_all_sign_vectors(n: int) -> None:
    uses = channel_uses(n, 2.0, 25, seed=8)
    batch = found(uses, "map")
    every = np.array(list(itertools.product((-1.0, 1.0), repeat=n)))
    for k in range(len(uses)):
        distance = np.sum((uses.received[k] - every @ uses.channels[k].T) ** 2, axis=1)
        np.testing.assert_array_equal(batch.symbols[k], every[distance.argmin()])
    assert batch.log_odds is None


# ---------------------------------------------------------------------- the published figures

PUBLISHED = {
    "alpha:1": 0.137,
    "alpha:0.7": 0.0361,
    "alpha:0.5": 0.0100,
    "alpha:0.3": 0.0166,
    "mmse": 0.0324,
    "alpha:0.5+mmse": 0.0030,
    "map": 0.0009,
}


def test_symbol_errors_at_ratio_40() -> None:
    """Within the sampling error of 5000 published and as many own channel uses, and ranked."""
    uses = channel_uses(8, 40.0, 5000, seed=11)
    errors = {name: symbol_errors(uses.sent, found(uses, name).symbols) for name in PUBLISHED}
    for name, published in PUBLISHED.items():
        spread = errors[name].std() * np.sqrt(2 / 5000) + 2e-4
        assert abs(errors[name].mean() - published) < 4 * spread, name
    ranked = ["alpha:1", "alpha:0.7", "alpha:0.5", "alpha:0.5+mmse", "map"]
    means = [errors[name].mean() for name in ranked]
    assert means == sorted(means, reverse=True)


def test_small_alpha_gains_from_gradual_fields() -> None:
    uses = channel_uses(8, 40.0, 4000, seed=12)
    at_once = symbol_errors(uses.sent, found(uses, "alpha:0.3", fields="full").symbols)
    gradual = symbol_errors(uses.sent, found(uses, "alpha:0.3").symbols)
    assert gradual.mean() < at_once.mean() - 0.003


def test_speed() -> None:
    """10^5 uses of all eleven detectors must fit in 60 s: 1000 of them in 0.6 s."""
    uses = channel_uses(8, 40.0, 1000, seed=0)
    alphas = [f"alpha:{a}{p}" for a in (0.9, 0.7, 0.5, 0.3) for p in ("", "+mmse")]
    names = ["bp", "mmse", "map", *alphas]
    for name in names:
        found(uses, name, max_iter=1)
    begin = time.process_time()
    for name in names:
        found(uses, name)
    assert time.process_time() - begin < 2.0  # three times the target, for a busy machine


# ---------------------------------------------------------------------- hard numbers, interface


@pytest.mark.parametrize("detector", ["bp", "alpha:0.3", "alpha:1.9", "trw:0.1", "mf", "bp+mmse"])
@pytest.mark.parametrize("kind", ["geometric", "linear"])
def test_no_overflow_without_noise(detector: str, kind: str) -> None:
    uses = channel_uses(8, 1e6, 50, seed=9)
    for schedule in ("parallel", "sequential"):
        batch = found(uses, detector, schedule=schedule, damping=0.3, damping_kind=kind)
        assert np.all(np.isfinite(batch.log_odds))


def test_time_ends_a_run_early() -> None:
    uses = channel_uses(8, 10.0, 5000, seed=0)
    part = found(uses, "alpha:0.5", budget=Budget(seconds=1e-9))
    assert len(part) == 2000 == len(part.log_odds) == len(part.converged)
    whole = found(uses, "alpha:0.5")
    np.testing.assert_array_equal(part.symbols, whole.symbols[:2000])


def test_symbol_errors_count_pairs() -> None:
    sent = np.ones((2, 8))
    detected = sent.copy()
    detected[0, [0, 4]] = -1  # both parts of one symbol
    detected[1, [0, 5]] = -1  # parts of two
    assert symbol_errors(sent, detected).tolist() == [0.25, 0.5]
    assert symbol_errors(sent, detected, complex_symbols=False).tolist() == [0.25, 0.25]
    with pytest.raises(ModelError, match="even"):
        symbol_errors(np.ones(3), np.ones(3))


@pytest.mark.parametrize(
    ("detector", "words"),
    [
        ("alpa:0.5", "did you mean 'alpha'"),
        ("alpha", "needs its alpha"),
        ("alpha:0", "above 0"),
        ("alpha:nan", "above 0"),
        ("trw:2", r"in \(0, 1\]"),
        ("bp:0.5", "takes no number"),
        ("map+mmse", "takes no prior"),
        ("BP", "no detector"),
    ],
)
def test_bad_detectors(detector: str, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        detect(np.eye(2)[None], np.ones((1, 2)), 0.1, detector)


def test_bad_numbers() -> None:
    for options in (
        {"max_iter": 0},
        {"tol": -1.0},
        {"tol": np.nan},
        {"schedule": "random"},
        {"fields": "half"},
        {"damping": 1.0},
        {"damping_kind": "cubic"},
    ):
        with pytest.raises(MethodError, match=next(iter(options))):
            detect(np.eye(2)[None], np.ones((1, 2)), 0.1, "bp", **options)
    with pytest.raises(ModelError, match="shape"):
        detect(np.eye(2), np.ones(2), 0.1)
    with pytest.raises(BudgetError, match="2\\^26"):
        detect(np.eye(26)[None], np.ones((1, 26)), 0.1, "map")
    assert len(detect(np.zeros((0, 4, 4)), np.zeros((0, 4)), 0.1, "bp")) == 0
