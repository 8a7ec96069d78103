"""Hidden Markov models against enumeration, the junction tree and finite differences (HOJ-M5)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import kikuchi as kk
from kikuchi.core.errors import DataError, KikuchiError
from kikuchi.temporal import (
    HMM,
    CategoricalEmission,
    GaussianEmission,
    GivenEmission,
    HiddenMarkov,
    MixtureEmission,
)
from kikuchi.temporal.chains.inference import chain_posterior, most_probable_path
from kikuchi.temporal.sequences import random_walk_likelihood, read_sequences


def random_chain(seed: int, k: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), size=k)


def gaussian_model(seed: int = 0, k: int = 3, d: int = 2) -> HiddenMarkov:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(k, d, d + 2))
    covariances = roots @ np.swapaxes(roots, 1, 2) / d
    means = 3 * rng.normal(size=(k, d))
    return HiddenMarkov(*random_chain(seed, k), GaussianEmission(means, covariances))


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_posteriors_and_paths_equal_enumeration(lag: int) -> None:
    start, transition = random_chain(1)
    transition[0, 1] = 0.0
    transition /= transition.sum(axis=1, keepdims=True)
    logs = np.random.default_rng(2).normal(size=(6, 3)) * 2
    logs[3, 2] = -np.inf
    joint, best = {}, (-np.inf, ())
    for path in itertools.product(range(3), repeat=6):
        p = np.exp(sum(logs[t, s] for t, s in enumerate(path)))
        for t, s in enumerate(path):
            p *= start[s] if t < lag else transition[path[t - lag], s]
        joint[path] = p
        best = max(best, (p, path))
    total = sum(joint.values())
    answer = chain_posterior(start, transition, logs, lag=lag, counts=True)
    known, pairs = np.zeros((6, 3)), np.zeros((3, 3))
    for path, p in joint.items():
        known[range(6), path] += p / total
        for t in range(lag, 6):
            pairs[path[t - lag], path[t]] += p / total
    assert np.allclose(answer.probabilities, known) and np.allclose(answer.transitions, pairs)
    assert np.isclose(answer.log_likelihood, np.log(total))
    if lag == 1:
        path, top = most_probable_path(start, transition, logs)
        assert tuple(path) == best[1] and np.isclose(top, np.log(best[0]))


def test_posteriors_equal_the_junction_tree() -> None:
    start, transition = random_chain(3, 4)
    logs = np.random.default_rng(4).normal(size=(12, 4))
    factors: list[Any] = [((0,), start)]
    factors += [((t,), np.exp(logs[t])) for t in range(12)]
    factors += [((t, t + 1), transition) for t in range(11)]
    tree = kk.infer(kk.FactorGraph([4] * 12, factors), "jt")
    answer = chain_posterior(start, transition, logs)
    assert np.allclose(answer.probabilities, np.array(tree.marginals))
    assert np.isclose(answer.log_likelihood, tree.log_z)


def test_far_away_outputs_do_not_underflow() -> None:
    start, transition = np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.5, 0.5]])
    logs = np.array([[0.0, 0.0], [-5000.0, 0.0], [0.0, 0.0]])
    answer = chain_posterior(start, transition, logs)
    assert (
        np.isclose(answer.log_likelihood, -5000) and answer.probabilities[:, 0].tolist() == [1] * 3
    )
    with pytest.raises(KikuchiError, match="no state can have produced row 1"):
        chain_posterior(start, transition, np.array([[0.0, 0.0], [-np.inf, 0.0]]))


def test_filter_is_the_smoother_of_what_came_before() -> None:
    model = gaussian_model()
    hmm = HMM.from_parameters(model)
    y = hmm.sample(8, random_state=0)
    for t in range(8):
        now = hmm.smooth(y[: t + 1])
        assert np.allclose(hmm.filter(y).probabilities[t], now.probabilities[-1])
    ahead = hmm.forecast(y, 3)
    longer = hmm.smooth(np.vstack([y, np.full((3, 2), np.nan)]))
    assert np.allclose(ahead.probabilities, longer.probabilities[8:])


def models() -> dict[str, tuple[HiddenMarkov, HMM]]:
    rng = np.random.default_rng(7)
    chain = random_chain(5)
    gaussian = gaussian_model(5)
    g = gaussian.emission
    assert isinstance(g, GaussianEmission)
    diagonal = np.array([np.diag(np.diag(c)) for c in g.covariances])
    many = gaussian_model(6, 6).emission
    assert isinstance(many, GaussianEmission)
    return {
        "gaussian": (gaussian, HMM(3)),
        "diagonal": (
            HiddenMarkov(*chain, GaussianEmission(g.means, diagonal, "diagonal")),
            HMM(3, covariance_type="diagonal"),
        ),
        "tied": (
            HiddenMarkov(*chain, GaussianEmission(g.means, g.covariances[[0, 0, 0]], tied=True)),
            HMM(3, covariance_type="tied"),
        ),
        "mixture": (
            HiddenMarkov(*chain, MixtureEmission(rng.dirichlet([2, 2], size=3), many)),
            HMM(3, emission="mixture"),
        ),
        "categorical": (
            HiddenMarkov(*chain, CategoricalEmission(rng.dirichlet(np.ones(4), size=3))),
            HMM(3, emission="categorical"),
        ),
    }


@pytest.mark.parametrize("name", ["gaussian", "diagonal", "tied", "mixture", "categorical"])
def test_gradients_and_monotone_em(name: str) -> None:
    model, hmm = models()[name]
    y = HMM.from_parameters(model, covariance_type=hmm.covariance_type).sample(150, random_state=1)
    y[5] = np.nan
    if name in ("gaussian", "mixture"):
        y[9, 0] = np.nan
    sequences = read_sequences([y, y[:7]])
    at = hmm._pack(model)
    _, statistics = hmm._expectation(model, sequences)
    slope = hmm._gradient(model, statistics)
    for i in np.random.default_rng(0).choice(len(at), 12, replace=False):
        step = np.zeros(len(at))
        step[i] = 1e-5
        high, low = (
            hmm._expectation(hmm._unpack(model, at + s), sequences)[0] for s in (step, -step)
        )
        assert np.isclose(slope[i], (high - low) / 2e-5, rtol=1e-4, atol=1e-4)
    values = []
    for _ in range(15):
        value, statistics = hmm._expectation(model, sequences)
        values.append(value)
        model = hmm._maximisation(model, statistics)
    assert np.diff(values).min() > -1e-8 and values[-1] > values[0]


def test_fit_finds_the_states_again(tmp_path: Path) -> None:
    truth = HiddenMarkov(
        [0.5, 0.5], [[0.95, 0.05], [0.1, 0.9]], GaussianEmission([[0.0], [3.0]], [[[1.0]], [[1.0]]])
    )
    y, states = HMM.from_parameters(truth).sample(2000, random_state=0, return_latents=True)
    for learner in ("em", "gradient"):
        hmm = HMM(2, learner=learner, random_state=0).fit(y)  # type: ignore[arg-type]
        assert np.mean(hmm.predict(y) == states) > 0.95
        assert np.allclose(hmm.model_.transition, truth.transition, atol=0.05)
        assert hmm.log_likelihood_ > HMM.from_parameters(truth).score_samples(y).sum()
    hmm.save(tmp_path / "hmm.safetensors")
    again = HMM.load(tmp_path / "hmm.safetensors")
    assert np.array_equal(again.predict(y), hmm.predict(y))


def test_log_likelihoods_of_the_users_own() -> None:
    model = gaussian_model(2)
    y = HMM.from_parameters(model).sample(3000, random_state=0)
    logs = model.emission.log_likelihood(y)
    given = HiddenMarkov(model.start, model.transition, GivenEmission(3))
    ours = HMM.from_parameters(given).smooth(logs)
    assert np.allclose(ours.probabilities, HMM.from_parameters(model).smooth(y).probabilities)
    learnt = HMM(3, emission="given", tol=1e-4).fit(logs)
    assert np.allclose(learnt.model_.transition, model.transition, atol=0.15)


def test_one_clear_line_for_bad_chains() -> None:
    y = np.random.default_rng(0).normal(size=(20, 2))
    bad = {
        "sums to": lambda: HiddenMarkov([0.5, 0.6], np.eye(2), GivenEmission(2)),
        "no probabilities": lambda: HiddenMarkov([1.5, -0.5], np.eye(2), GivenEmission(2)),
        "give \\(K,\\)": lambda: HiddenMarkov([1.0], np.eye(2), GivenEmission(2)),
        "whole numbers from 0": lambda: HMM(2, emission="categorical").fit([[0.0], [1.5], [3.0]]),
        "one column": lambda: HMM(2, emission="categorical").fit(np.ones((4, 2))),
        "log-likelihoods of 2 states": lambda: HMM(3, emission="given").fit(y),
        "at least 2 rows": lambda: HMM(2).fit(y[:1]),
        "is empty": lambda: HMM(2).fit(y[:0]),
        "cannot be sampled": lambda: HMM(2, emission="given", max_iter=2).fit(y).sample(3),
        "at least 1": lambda: HMM(2, max_iter=2).fit(y).forecast(y, 0),
    }
    for message, make in bad.items():
        with pytest.raises(KikuchiError, match=message):
            make()


def test_a_mixture_is_a_chain_without_memory() -> None:
    """Responsibilities of a mixture, row by row, whatever the other rows are."""
    rng = np.random.default_rng(0)
    means, weights = np.array([[0.0], [2.0], [5.0]]), np.array([0.5, 0.3, 0.2])
    emission = GaussianEmission(means, np.ones((3, 1, 1)))
    hmm = HMM.from_parameters(HiddenMarkov.mixture(weights, emission))
    y = rng.normal(size=(30, 1)) + 2.0
    joint = weights * np.exp(-0.5 * (y - means.T) ** 2) / np.sqrt(2 * np.pi)
    found = hmm.smooth(y)
    assert np.allclose(found.probabilities, joint / joint.sum(axis=1, keepdims=True))
    assert np.isclose(found.log_likelihood, np.log(joint.sum(axis=1)).sum())


def sticky_rows(steps: int = 300) -> tuple[HiddenMarkov, Any]:
    emission = GaussianEmission([[0.0], [1.5], [3.0]], [[[1.0]]] * 3)
    chain = HiddenMarkov(
        [1.0, 0.0, 0.0], [[0.98, 0.02, 0.0], [0.0, 0.98, 0.02], [0.0, 0.0, 1.0]], emission
    )
    return chain, HMM.from_parameters(chain).sample(steps, random_state=0)


@pytest.mark.parametrize("learner", ["em", "gradient"])
@pytest.mark.parametrize("pseudo_count", [5.0, 50.0])
def test_pseudo_counts_converge_to_the_largest_posterior(learner: Any, pseudo_count: float) -> None:
    rows = gaussian_rows(400)
    options: dict[str, Any] = {"pseudo_count": pseudo_count, "n_init": 1, "random_state": 0}
    fit = HMM(3, learner=learner, max_iter=2000, tol=1e-8, **options).fit(rows)
    limit = HMM(3, max_iter=1000, tol=0.0, **options).fit(rows).model_
    assert fit.converged_ and np.allclose(fit.model_.transition, limit.transition, atol=0.01)
    prior = pseudo_count * sum(np.log(p).sum() for p in (fit.model_.start, fit.model_.transition))
    assert np.isclose(fit.log_likelihood_, fit.score_samples(rows).sum(), rtol=1e-9)
    assert np.isclose(fit.trace_.objective[-1], fit.log_likelihood_ + prior, rtol=1e-9)
    assert np.diff(fit.trace_.objective).min() > -1e-7


def gaussian_rows(steps: int) -> Any:
    model = HiddenMarkov(
        [1.0, 0.0, 0.0], 0.85 * np.eye(3) + 0.05, GaussianEmission([[0.0], [2.0], [4.0]],
        [[[1.0]]] * 3),
    )  # fmt: skip
    return HMM.from_parameters(model).sample(steps, random_state=3)


@pytest.mark.parametrize("learner", ["em", "gradient"])
@pytest.mark.parametrize("pseudo_count", [0.0, 0.1, 5.0])
def test_structural_zeros_stay(learner: Any, pseudo_count: float) -> None:
    chain, rows = sticky_rows()
    fit = HMM(
        3, start=chain, learner=learner, pseudo_count=pseudo_count, max_iter=30, random_state=0
    ).fit([rows, rows[:80]])
    for now, before in ((fit.model_.start, chain.start), (fit.model_.transition, chain.transition)):
        assert not now[before == 0.0].any()
        assert (now[before > 0.0] > 0.0).all() or not pseudo_count
    zeros = CategoricalEmission(np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]))
    start = HiddenMarkov([0.5, 0.5], [[0.8, 0.2], [0.2, 0.8]], zeros)
    codes = np.random.default_rng(0).choice([0.0, 1.0, 1.0, 2.0], size=(60, 1))
    found = HMM(2, emission="categorical", start=start, learner=learner, max_iter=20).fit(codes)
    assert not found.model_.emission.probabilities[zeros.probabilities == 0.0].any()


@pytest.mark.parametrize("pseudo_count", [0.0, 2.0])
def test_slopes_with_pseudo_counts_and_zeros(pseudo_count: float) -> None:
    chain, rows = sticky_rows(60)
    hmm, sequences = HMM(3, pseudo_count=pseudo_count), read_sequences([rows])
    at = hmm._pack(chain)
    slope = hmm._gradient(chain, hmm._expectation(chain, sequences)[1])
    assert len(at) == len(slope) == 1 + 5 + 6
    for i, step in enumerate(1e-5 * np.eye(len(at))):
        high, low = (
            hmm._expectation(hmm._unpack(chain, at + s), sequences)[0] for s in (step, -step)
        )
        assert np.isclose(slope[i], (high - low) / 2e-5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"emission": "mixture"}, {"learner": "gradient"}])
def test_a_large_offset_does_not_change_a_fit(options: dict[str, Any]) -> None:
    rows = np.round(64 * gaussian_rows(200)) / 64
    rows[7] = np.nan
    near, far = (
        HMM(2, max_iter=10, random_state=0, **options).fit(rows + offset)
        for offset in (0.0, 2.0**30)
    )
    assert np.isclose(near.log_likelihood_, far.log_likelihood_, rtol=1e-4)
    one, two = near.forecast(rows, 3), far.forecast(rows + 2.0**30, 3)
    assert np.allclose(one.deviation, two.deviation, rtol=1e-4)


def test_restarts_leave_a_poor_optimum() -> None:
    """States that differ in their spread alone: all starts by k-means are alike."""
    rng = np.random.default_rng(0)
    transition = 0.9 * np.eye(5) + 0.1 * rng.dirichlet(np.ones(5), size=5)
    spreads = np.exp(rng.normal(size=(5, 1, 1))) * np.eye(2)
    truth = HiddenMarkov(
        np.full(5, 0.2), transition, GaussianEmission(2 * rng.normal(size=(5, 2)), spreads)
    )
    y = HMM.from_parameters(truth).sample(600, random_state=0)
    one = HMM(5, max_iter=60, n_init=1, random_state=0).fit(y)
    best = HMM(5, max_iter=60, random_state=0).fit(y)
    assert best.log_likelihood_ > one.log_likelihood_ + 2


def test_attributes_in_the_words_of_hmmlearn() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(m, 1.0, (60, 1)) for m in (-4.0, 4.0, -4.0)])
    hmm = HMM(2, random_state=0)
    assert not hasattr(hmm, "transmat_")
    with pytest.raises(TypeError, match="it is called n_states here"):
        HMM(n_components=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="it is called max_iter here"):
        HMM(3, n_iter=5)  # type: ignore[call-arg]
    hmm.fit(rows)
    np.testing.assert_array_equal(hmm.transmat_, hmm.model_.transition)
    np.testing.assert_array_equal(hmm.startprob_, hmm.model_.start)
    np.testing.assert_allclose(np.sort(hmm.means_.ravel()), [-4, 4], atol=0.5)
    shares = hmm.predict_proba(rows)
    np.testing.assert_array_equal(shares, hmm.smooth(rows).probabilities)
    value, path = hmm.decode(rows)
    np.testing.assert_array_equal(path, hmm.predict(rows))
    m = hmm.model_
    logs = m.emission.log_likelihood(rows)
    by_hand = np.log(m.start[path[0]]) + np.log(m.transition[path[:-1], path[1:]]).sum()
    assert value == pytest.approx(by_hand + logs[np.arange(len(path)), path].sum())
    both, paths = hmm.decode([rows[:50], rows[50:]])
    assert [len(p) for p in paths] == [50, 130] and both < 0.0
    assert [len(p) for p in hmm.predict_proba([rows[:50], rows[50:]])] == [50, 130]


def test_outputs_that_drift_are_doubted():
    """No warning said that a chain of two states is far below a random walk."""
    rng = np.random.default_rng(0)
    drifting = np.cumsum(rng.normal(size=(120, 2)), axis=0)
    drifting[50:53, 0] = np.nan
    with pytest.warns(UserWarning, match="that of a random walk") as told:
        drifted = HMM(random_state=0).fit(drifting)
    assert len(told) == 1 and "LinearGaussianSSM" in drifted.warnings_[0]
    states = np.repeat([0.0, 4.0, 0.0, 4.0], 30)[:, None]
    returning = HMM(random_state=0).fit(states + rng.normal(size=(120, 2)))
    assert not returning.warnings_
    assert not HMM(random_state=0, emission="categorical").fit((states > 0) * 1.0).warnings_


def test_a_fit_to_fewer_numbers_than_parameters_is_warned_of():
    """Ten states of three rows were "converged" without a word."""
    rows = np.array([[0.1], [0.5], [-0.3]])
    with pytest.warns(UserWarning, match="10 states have 119 parameters, and the rows hold 3"):
        assert HMM(10, random_state=0).fit(rows).warnings_


def test_lengths_of_sequences_are_not_ignored():
    """As the second argument, where hmmlearn takes them, they were dropped in silence."""
    rows = np.random.default_rng(0).normal(size=(10, 1))
    with pytest.raises(DataError, match="2 lengths of sequences beside 10 rows; give them"):
        HMM(2).fit(rows, [4, 6])
    whole, apart = (HMM(2, n_init=1, max_iter=3, random_state=0) for _ in range(2))
    whole.fit(rows, lengths=[4, 6])
    apart.fit([rows[:4], rows[4:]])
    np.testing.assert_array_equal(whole.transmat_, apart.transmat_)
    np.testing.assert_array_equal(
        whole.predict(rows, lengths=[4, 6]), np.concatenate(apart.predict([rows[:4], rows[4:]]))
    )
    assert whole.covars_.shape == (2, 1, 1)
    for bad in ([4, 5], [10.0], [0, 10]):
        with pytest.raises(DataError, match="lengths must be whole numbers"):
            whole.predict(rows, lengths=bad)
    labels = np.zeros(10, dtype=int)  # what a pipeline hands on
    HMM(1).fit(rows, labels)


def test_random_walks_have_the_likelihood_of_their_changes():
    rng = np.random.default_rng(1)
    tables = [np.cumsum(rng.normal(size=(30, 1)), axis=0), rng.normal(size=(20, 1))]
    tables[0][10:12] = np.nan
    first = np.array([tables[0][0, 0], tables[1][0, 0]])
    rows = np.concatenate([t[~np.isnan(t)] for t in tables])
    truth = norm.logpdf(first, rows.mean(), rows.std()).sum()
    changes = [(t[~np.isnan(t)][1:] - t[~np.isnan(t)][:-1]) for t in tables]
    gaps = [np.diff(np.flatnonzero(~np.isnan(t[:, 0]))) for t in tables]

    def negative(log_variance):
        pairs = zip(changes, gaps, strict=True)
        return -sum(norm.logpdf(c, 0, np.sqrt(np.exp(log_variance) * g)).sum() for c, g in pairs)

    best = minimize_scalar(negative, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
    assert random_walk_likelihood(tables) == pytest.approx(truth - best.fun, abs=1e-7)
    assert random_walk_likelihood([np.ones((5, 1))]) == -np.inf
