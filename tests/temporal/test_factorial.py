"""Chains that share outputs against enumeration and exact answers (LAW-M10, LAW-I24, HOJ-X1)."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.special import entr

from kikuchi.core.errors import KikuchiError
from kikuchi.temporal import (
    HMM,
    AdditiveGaussian,
    EmissionTable,
    FactorialHMM,
    FrameHoppingHMM,
    GaussianEmission,
    HiddenChains,
    HiddenMarkov,
)
from kikuchi.temporal.chains.exact import exact_chains
from kikuchi.temporal.chains.factorial import _Memory
from kikuchi.temporal.chains.propagation import propagate_chains
from kikuchi.temporal.chains.structured import mean_field_chains
from kikuchi.temporal.sequences import read_sequences


def random_chains(
    seed: int, sizes: tuple[int, ...] = (2, 3), lags: tuple[int, ...] = (1, 1), d: int = 2,
    noise: float = 0.5, categories: int = 0, scale: float = 1.5,
) -> HiddenChains:  # fmt: skip
    rng = np.random.default_rng(seed)
    starts = tuple(rng.dirichlet(np.ones(k)) for k in sizes)
    transitions = tuple(rng.dirichlet(np.ones(k), size=k) for k in sizes)
    emission: Any = AdditiveGaussian(scale * rng.normal(size=(sum(sizes), d)), noise * np.eye(d))
    if categories:
        emission = EmissionTable(rng.dirichlet(np.ones(categories), size=sizes))
    return HiddenChains(starts, transitions, lags, emission)


def enumerated(model: HiddenChains, rows: Any) -> tuple[list[Any], float]:
    table = np.exp(model.emission.table(rows, model.sizes))
    steps, n = len(rows), len(model.sizes)
    marginals = [np.zeros((steps, k)) for k in model.sizes]
    total = 0.0
    every = list(itertools.product(*(range(k) for k in model.sizes)))
    for path in itertools.product(every, repeat=steps):
        p = 1.0
        for t, state in enumerate(path):
            p *= table[t][state]
            for c, lag in enumerate(model.lags):
                now = state[c]
                p *= (
                    model.starts[c][now] if t < lag else model.transitions[c][path[t - lag][c], now]
                )
        total += p
        for t, state in enumerate(path):
            for c in range(n):
                marginals[c][t, state[c]] += p
    return [m / total for m in marginals], float(np.log(total))


@pytest.mark.parametrize("lags", [(1, 1), (2, 2), (1, 2)])
@pytest.mark.parametrize("categories", [0, 4])
def test_exact_equals_enumeration_and_the_bound_is_below(lags: Any, categories: int) -> None:
    model = random_chains(1, (2, 2), lags, categories=categories)
    rows = model.sample(5, np.random.default_rng(0))[1]
    marginals, log_z = enumerated(model, rows)
    exact = exact_chains(model, rows)
    assert np.isclose(exact.log_likelihood, log_z)
    for ours, known in zip(exact.probabilities, marginals, strict=True):
        assert np.allclose(ours, known)
    bounds = []
    for sweeps in range(1, 8):
        found = mean_field_chains(model, rows, max_iter=sweeps)
        bounds.append(found.log_likelihood)
    assert max(bounds) <= log_z + 1e-9 and np.diff(bounds).min() > -1e-9


@pytest.mark.parametrize("categories", [0, 4])
def test_coupling_is_the_total_correlation_of_chains_in_a_frame(categories: int) -> None:
    """Against sums over all combinations of states; priors of a frame are the stationary shares."""
    model = random_chains(4, (2, 3, 2), (1, 1, 1), categories=categories)
    rows = model.sample(7, np.random.default_rng(0))[1]
    joint = np.exp(model.emission.table(rows, model.sizes))
    for c, p in enumerate(model.transitions):
        values, vectors = np.linalg.eig(p.T)
        share = np.real(vectors[:, np.argmax(np.real(values))])
        joint *= (share / share.sum()).reshape([-1 if k == c else 1 for k in range(3)])
    joint /= joint.sum(axis=(1, 2, 3), keepdims=True)
    known = -float(entr(joint).sum())
    for axes in ((2, 3), (1, 3), (1, 2)):
        known += float(entr(joint.sum(axis=axes)).sum())
    found = mean_field_chains(model, rows)
    assert found.coupling is not None and abs(found.coupling - known / 7) < 1e-4


def test_mean_field_warns_where_it_errs() -> None:
    errors = {}
    for noise in (0.05, 1.0):
        model = random_chains(0, (3, 3), (1, 1), d=2, noise=noise)
        rows = model.sample(60, np.random.default_rng(0))[1]
        hmm = FactorialHMM.from_parameters(model)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = hmm.smooth(rows)
            for method in ("bp", "exact"):
                hmm.smooth(rows, method=method)  # type: ignore[arg-type]
        error = float(np.abs(found.beliefs - exact_chains(model, rows).beliefs).mean())
        errors[noise] = error, [str(w.message) for w in told]
        assert found.warnings == errors[noise][1]
    assert errors[0.05][0] < 0.01 and not errors[0.05][1]
    assert errors[1.0][0] > 0.02 and "method='bp'" in errors[1.0][1][0]


def test_belief_propagation_between_frames_and_chains() -> None:
    """Exact where frames do not couple the chains; near the truth where mean field is not."""
    apart = random_chains(2, (2, 3), (1, 2), d=2)
    apart.emission.outputs[:2, 1] = 0.0  # each chain has a column of its own
    apart.emission.outputs[2:, 0] = 0.0
    rows = apart.sample(12, np.random.default_rng(0))[1]
    exact, found = exact_chains(apart, rows), propagate_chains(apart, rows, tol=1e-12)
    assert found.converged and np.allclose(found.beliefs, exact.beliefs, atol=1e-9)
    assert np.isclose(found.log_likelihood, exact.log_likelihood)
    single = random_chains(3, (4,), (1,))
    rows = single.sample(20, np.random.default_rng(0))[1]
    one = propagate_chains(single, rows)
    assert one.exact and np.allclose(one.beliefs, exact_chains(single, rows).beliefs)
    worst = 0.0
    for seed in range(4):
        model = random_chains(seed, (3, 3, 3), (1, 1, 1), d=2, noise=0.5)
        rows = model.sample(100, np.random.default_rng(seed))[1]
        exact, field = exact_chains(model, rows), mean_field_chains(model, rows)
        found = propagate_chains(model, rows)
        errors = [float(np.abs(p.beliefs - exact.beliefs).mean()) for p in (found, field)]
        assert found.converged and errors[0] < 0.5 * errors[1]
        gap = abs(found.log_likelihood - exact.log_likelihood)
        assert gap < 0.2 * (exact.log_likelihood - field.log_likelihood)
        worst = max(worst, errors[0])
    assert worst < 0.02
    hmm = FactorialHMM.from_parameters(model)
    assert np.array_equal(hmm.smooth(rows, method="bp").beliefs, found.beliefs)
    assert hmm.predict(rows, method="bp").shape == (100, 3)
    with pytest.raises(KikuchiError, match="mean-field, bp, exact"):
        hmm.smooth(rows, method="tea leaves")  # type: ignore[arg-type]
    rows[3, 0] = np.nan
    with pytest.raises(KikuchiError, match="missing values"):
        hmm.smooth(rows, method="bp")


def test_the_bound_is_the_divergence_away() -> None:
    """log p - bound = KL(q || p) of the product of the chains' posteriors, by enumeration."""
    model = random_chains(4, (2, 2))
    rows = model.sample(4, np.random.default_rng(1))[1]
    found = mean_field_chains(model, rows, tol=1e-12)
    work = [HiddenMarkov(s, p, GaussianEmission(np.zeros((2, 1)), np.ones((2, 1, 1))))
            for s, p in zip(model.starts, model.transitions, strict=True)]  # fmt: skip
    table = model.emission.table(rows, model.sizes)
    fields = [
        np.einsum("tij,tj->ti", table, found.probabilities[1]),
        np.einsum("tij,ti->tj", table, found.probabilities[0]),
    ]
    q = []
    for chain, field in zip(work, fields, strict=True):
        paths = {}
        for path in itertools.product(range(2), repeat=4):
            p = chain.start[path[0]] * np.exp(field[range(4), path].sum())
            for a, b in itertools.pairwise(path):
                p *= chain.transition[a, b]
            paths[path] = p
        total = sum(paths.values())
        q.append({path: p / total for path, p in paths.items()})
    bound = 0.0
    for (one, p1), (two, p2) in itertools.product(q[0].items(), q[1].items()):
        joint = table[range(4), one, two].sum()
        for chain, path in zip(work, (one, two), strict=True):
            joint += np.log(chain.start[path[0]])
            joint += sum(np.log(chain.transition[a, b]) for a, b in itertools.pairwise(path))
        bound += p1 * p2 * (joint - np.log(p1) - np.log(p2))
    assert np.isclose(bound, found.log_likelihood, atol=1e-6)


def test_one_chain_is_forward_backward() -> None:
    """LAW-T22: one chain equals exact forward-backward; lag 1 equals the factorial model."""
    model = random_chains(2, (4,), (1,))
    rows = model.sample(30, np.random.default_rng(0))[1]
    emission = model.emission
    assert isinstance(emission, AdditiveGaussian)
    plain = HiddenMarkov(
        model.starts[0], model.transitions[0],
        GaussianEmission(emission.outputs, np.repeat(emission.covariance[None], 4, axis=0)),
    )  # fmt: skip
    known = HMM.from_parameters(plain).smooth(rows)
    ours = FactorialHMM.from_parameters(model).smooth(rows)
    assert ours.exact and np.allclose(ours.probabilities[0], known.probabilities)
    assert np.isclose(ours.log_likelihood, known.log_likelihood)
    assert np.allclose(ours.transitions[0], known.transitions)
    filtered = FactorialHMM.from_parameters(model).filter(rows)
    assert np.allclose(filtered.probabilities[0], HMM.from_parameters(plain).filter(rows)[0])
    two = random_chains(3, (3, 4))
    y = two.sample(40, np.random.default_rng(1))[1]
    a, b = FactorialHMM.from_parameters(two), FrameHoppingHMM.from_parameters(two)
    assert np.array_equal(a.smooth(y).beliefs, b.smooth(y).beliefs)


def test_mean_field_is_near_exact_for_three_chains_of_eight() -> None:
    """HOJ-X1: probabilities of 3 x 8 states within .02 of the product chain of 512."""
    for seed in range(3):
        model = random_chains(seed, (8, 8, 8), (1, 1, 1), d=8, noise=0.25)
        rows = model.sample(200, np.random.default_rng(seed))[1]
        mean_field, exact = mean_field_chains(model, rows), exact_chains(model, rows)
        assert mean_field.converged and mean_field.log_likelihood <= exact.log_likelihood + 1e-9
        error = np.mean(np.abs(mean_field.beliefs - exact.beliefs))
        assert error < 0.02


@pytest.mark.parametrize("categories", [0, 3])
def test_learning_raises_the_bound_along_its_gradient(categories: int) -> None:
    model = random_chains(7, (2, 3), (1, 2), categories=categories)
    rows = model.sample(60, np.random.default_rng(2))[1]
    kind: Any = "categorical" if categories else "gaussian"
    hmm = FrameHoppingHMM((2, 3), lags=(1, 2), emission=kind)
    sequences = read_sequences([rows, rows[:9]])
    hmm._floor = np.full(rows.shape[1], 1e-9)

    def value(m: HiddenChains) -> float:
        return sum(
            mean_field_chains(m, t, tol=1e-13, max_iter=5000, beliefs=b).log_likelihood
            for t, b in zip(sequences.tables, start, strict=True)
        )

    start = [mean_field_chains(model, t, tol=1e-13).beliefs for t in sequences.tables]
    hmm._memory = _Memory({str(k): b.copy() for k, b in enumerate(start)})
    at = hmm._pack(model)
    slope = hmm._gradient(model, hmm._expectation(model, sequences)[1])
    for i in np.random.default_rng(0).choice(len(at), 8, replace=False):
        step = np.zeros(len(at))
        step[i] = 1e-4
        change = (
            value(hmm._unpack(model, at + step)) - value(hmm._unpack(model, at - step))
        ) / 2e-4
        assert np.isclose(slope[i], change, rtol=1e-2, atol=5e-3)
    values = []
    for _ in range(12):
        bound, statistics = hmm._expectation(model, sequences)
        values.append(bound)
        model = hmm._maximisation(model, statistics)
    assert np.diff(values).min() > -1e-6 and values[-1] > values[0]


def test_fit_forecast_and_files(tmp_path: Path) -> None:
    truth = random_chains(5, (2, 2), d=2, noise=0.05, scale=2.0)
    rows = truth.sample(400, np.random.default_rng(3))[1]
    best = FactorialHMM((2, 2), random_state=0, tol=1e-4).fit(rows)
    assert best.log_likelihood_ > mean_field_chains(truth, rows).log_likelihood - 5
    best.save(tmp_path / "f.safetensors")
    again = FactorialHMM.load(tmp_path / "f.safetensors")
    assert np.array_equal(again.smooth(rows).beliefs, best.smooth(rows).beliefs)
    ahead = FactorialHMM.from_parameters(truth).forecast(rows, 3)
    last = [p[-1] for p in mean_field_chains(truth, rows).probabilities]
    mean = sum(
        (p @ t) @ w
        for p, t, w in zip(
            last, truth.transitions, np.split(truth.emission.outputs, 2), strict=True
        )  # type: ignore[union-attr]
    )
    assert np.allclose(ahead.mean[0], mean) and (ahead.variance > 0).all()
    up = FactorialHMM((2, 2), learner="gradient", random_state=0, max_iter=5).fit(rows)
    assert up.log_likelihood_ > up.trace_.objective[0] - 1e-9


def test_one_clear_line_for_bad_chains() -> None:
    rows = np.random.default_rng(0).normal(size=(10, 2))
    gaps = rows.copy()
    gaps[3, 1] = np.nan
    big = random_chains(0, (17, 17, 17), (1, 1, 1))
    bad = {
        "at least 1 each": lambda: FactorialHMM((2, 0)).fit(rows),
        "one of at least 1 for each": lambda: FrameHoppingHMM((2, 2), lags=(1,)).fit(rows),
        "no missing values": lambda: FactorialHMM((2, 2)).fit(gaps),
        "use mean field": lambda: exact_chains(big, rows),
        "one lag per chain": lambda: HiddenChains(
            (np.ones(1),), (np.ones((1, 1)),), (), big.emission
        ),
        "those of a FrameHoppingHMM": lambda: FactorialHMM.from_parameters(
            random_chains(0, lags=(1, 2))
        ),
        "not positive definite": lambda: AdditiveGaussian(np.ones((2, 1)), np.zeros((1, 1))),
    }  # fmt: skip
    for message, make in bad.items():
        with pytest.raises(KikuchiError, match=message):
            make()


def test_a_fit_that_was_interrupted_goes_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kikuchi.temporal.chains import factorial

    rows = np.cumsum(np.random.default_rng(0).normal(size=(60, 2)), axis=0)
    options: dict[str, Any] = {"max_iter": 12, "tol": 0.0, "random_state": 0}
    calls, solve = [0], factorial.mean_field_chains

    def counted(*given: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 0:
            raise KeyboardInterrupt
        return solve(*given, **more)

    monkeypatch.setattr(factorial, "mean_field_chains", counted)
    whole = FactorialHMM((2, 2), **options).fit(rows)
    calls[0] = 9 - calls[0]  # Ctrl-C eight calls before the last one
    part = FactorialHMM((2, 2), **options, checkpoint=tmp_path / "p").fit(rows)
    assert part.stopped_ == "interrupted" and part.n_iter_ < 12
    again = FactorialHMM((2, 2), **options, checkpoint=tmp_path / "p").fit(rows)
    assert again.n_iter_ == 12
    for name, array in whole.model_.to_arrays().items():
        assert np.array_equal(again.model_.to_arrays()[name], array), name


def test_pseudo_counts_keep_zeros_and_are_part_of_what_is_maximised() -> None:
    rng = np.random.default_rng(0)
    left = np.array([[0.9, 0.1], [0.0, 1.0]])
    start = HiddenChains(
        (np.array([1.0, 0.0]), np.array([0.5, 0.5])), (left, np.full((2, 2), 0.5)), (1, 1),
        AdditiveGaussian(np.array([[0.0], [3.0], [0.0], [1.0]]), np.eye(1)),
    )  # fmt: skip
    rows = 3.0 * (np.arange(80)[:, None] > 30) + rng.integers(0, 2, (80, 1)) + rng.normal(
        size=(80, 1)
    )  # fmt: skip
    for learner in ("em", "gradient"):
        fit = FactorialHMM(
            (2, 2), start=start, pseudo_count=3.0, learner=learner, max_iter=60, random_state=0
        ).fit(rows)
        model = fit.model_
        assert model.transitions[0][1, 0] == 0.0 and model.starts[0][1] == 0.0
        assert model.transitions[0][1, 1] == 1.0
        prior = 3.0 * sum(np.log(p[p > 0]).sum() for p in (*model.starts, *model.transitions))
        assert np.isclose(fit.trace_.objective[-1], fit.log_likelihood_ + prior)
        assert np.diff(fit.trace_.objective).min() > -1e-3


def test_a_large_offset_does_not_change_a_fit() -> None:
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(0, 2, 20), 10), np.repeat(rng.integers(0, 2, 40), 5)
    rows = np.round(64 * ((2.0 * states[0] + states[1])[:, None] + 0.5 * rng.normal(size=(200, 1))))
    near, far = (
        FactorialHMM((2, 2), max_iter=15, n_init=2, random_state=0).fit(rows / 64 + offset)
        for offset in (0.0, 2.0**30)
    )
    assert np.isclose(near.log_likelihood_, far.log_likelihood_, rtol=1e-3)
    ahead = near.forecast(rows / 64, 2), far.forecast(rows / 64 + 2.0**30, 2)
    assert np.allclose(ahead[0].deviation, ahead[1].deviation, rtol=1e-3)


def test_outputs_that_drift_are_doubted():
    rng = np.random.default_rng(0)
    with pytest.warns(
        UserWarning, match="that of a random walk .*: chains of 2 and 2 states"
    ) as told:
        drifted = FactorialHMM(random_state=0).fit(10.0 * np.arange(40.0)[:, None] ** 1.5)
    assert len(told) == 1 and drifted.warnings_[0].startswith("the bound on the log-likelihood")
    states = np.repeat([0.0, 4.0, 0.0, 4.0], 30)[:, None]
    assert not FactorialHMM(random_state=0).fit(states + rng.normal(size=(120, 1))).warnings_


def test_a_climb_that_goes_on_remembers_the_beliefs(tmp_path: Path) -> None:
    """The bound of mean field depends on the beliefs that it begins with."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (40, 2)) @ [[1.0], [1.1]] + 0.5 * rng.normal(size=(40, 1))
    options: Any = {"n_init": 2, "learner": "gradient", "tol": 0.0, "random_state": 0}
    whole = FactorialHMM(max_iter=12, **options).fit(rows)
    options |= {"max_iter": 12, "checkpoint": tmp_path / "fit"}

    def told(done: int, *_: object, **__: object) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with mock.patch("kikuchi.core.run._PROGRESS_EVERY", 0.0):
        cut = FactorialHMM(progress=told, **options).fit(rows)
    assert cut.stopped_ == "interrupted" and cut.n_iter_ == 4
    rest = FactorialHMM(**options).fit(rows)
    assert rest.trace_.objective == whole.trace_.objective
    assert np.array_equal(rest.model_.emission.outputs, whole.model_.emission.outputs)
