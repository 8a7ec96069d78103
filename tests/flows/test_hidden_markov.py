"""Chains of flows against chains of Gaussians (LIU-M15)."""

import dataclasses

import numpy as np
import pytest

from kikuchi.core.errors import DataError, MethodError
from kikuchi.flows import FlowHMM
from kikuchi.temporal import HMM

SMALL = "coupling:layers=2,width=8"


def _sequences(count, seed):
    """Two states: a Gaussian, and a curve on which no Gaussian sits."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(count):
        states = np.repeat([0, 1], rng.integers(8, 16, 2))
        x = rng.normal(size=(len(states), 2)) * [1.0, 0.2]
        x[:, 1] += np.where(states == 1, x[:, 0] ** 2 - 3.0, 0.0)
        tables.append(x)
    return tables


@pytest.fixture(scope="module")
def sequences():
    return _sequences(40, 0)


@pytest.fixture(scope="module")
def fitted(sequences):
    return FlowHMM(
        2, flow=SMALL, topology="left-right", max_iter=8, learning_rate=5e-3, random_state=0
    ).fit(sequences)


def test_beats_gaussians_on_fresh_sequences(fitted, sequences):
    # LIU-M15
    fresh = _sequences(40, 1)
    gaussian = HMM(2, random_state=0).fit(sequences)
    assert fitted.score(fresh) > gaussian.score(fresh) + 0.05
    assert np.allclose(np.tril(fitted.model_.transition, -1), 0.0)
    path = fitted.predict(fresh[0])
    assert np.all(np.diff(path) >= 0)


def test_likelihood_never_falls(sequences):
    model = FlowHMM(
        2, flow=SMALL, validation_fraction=0.0, max_iter=4, learning_rate=5e-3, random_state=0
    ).fit(sequences)
    assert np.all(np.diff(model.trace_.objective) >= -1e-3)  # float32 sums of some 900 rows


def test_affine_chain_is_the_gaussian_chain(sequences):
    """With the affine flow EM is that of Gaussian emissions with full covariances."""
    # LIU-M15
    ours = FlowHMM(
        2, flow="affine", covariance_type="full", validation_fraction=0.0, max_iter=60, tol=1e-7,
        floor=1e-4, random_state=0,
    ).fit(sequences)  # fmt: skip
    peer = HMM(2, max_iter=300, tol=1e-9, random_state=0).fit(sequences)
    assert ours.score(sequences) == pytest.approx(peer.score(sequences), abs=2e-3)


def test_whole_groups_are_held_out(sequences):
    # LIU-X7
    who = np.repeat(["ann", "bob", "cat", "dan"], 10)
    kept = {}

    class Watched(FlowHMM):
        def _expectation(self, model, sequences):
            kept["held"] = [t[0, 0] for t in self._held]
            return super()._expectation(model, sequences)

    model = Watched(2, flow="affine", max_iter=2, random_state=0)
    model.fit(sequences, groups=who)
    heard = {w for t, w in zip(sequences, who, strict=True) if t[0, 0] in kept["held"]}
    assert len(heard) == 1 and len(kept["held"]) == 10
    with pytest.raises(DataError, match=r"groups of shape \(3,\) for 40 sequences"):
        model.fit(sequences, groups=[0, 1, 2])
    model.fit(sequences, groups=np.zeros(40))
    assert any("1 group: none is held out" in w for w in model.warnings_)


@pytest.mark.parametrize(("slope", "liked"), [(0.0, "diag"), (3.0, "full")])
def test_held_out_sequences_choose_the_covariances(slope, liked):
    """Twelve columns, few rows: full covariances only where the columns belong together."""
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(15, 12)) for _ in range(10)]
    tables = [t + slope * t[:, :1] for t in tables]
    model = FlowHMM(1, flow="affine", max_iter=1, random_state=0)
    assert model.fit(tables).covariance_type_ == liked
    scores = [
        FlowHMM(1, flow="affine", max_iter=1, covariance_type=c, random_state=0).fit(tables)
        for c in ("diag", "full")
    ]
    assert model.validation_scores_ == max(s.validation_scores_ for s in scores)


def test_bad_input(sequences):
    one = FlowHMM(2, flow="affine", max_iter=1, random_state=0).fit(sequences[0])
    assert any("1 sequence: none is held out" in w for w in one.warnings_)
    with pytest.raises(DataError, match="1 sample"):
        FlowHMM(2).fit(sequences[0][:1])
    with pytest.raises(DataError, match=r"column 2 is constant \(0.5\)"):
        FlowHMM(2).fit([np.column_stack([t, np.full(len(t), 0.5)]) for t in sequences])
    with pytest.raises(DataError, match="whole numbers only"):
        FlowHMM(2).fit([np.round(t) for t in sequences])
    with pytest.raises(DataError, match="missing values"):
        FlowHMM(2).fit([np.where(t > 1, np.nan, t) for t in sequences])
    with pytest.raises(MethodError, match="learnt by em"):
        FlowHMM(2, learner="gradient").fit(sequences)


def test_ctrl_c_in_the_fit_that_it_begins_from_ends_the_whole(monkeypatch) -> None:
    class Cut(HMM):
        def fit(self, Y, y=None):
            self.stopped_ = "interrupted"
            return self

    monkeypatch.setattr("kikuchi.flows.hidden_markov.HMM", Cut)
    with pytest.raises(KeyboardInterrupt):
        FlowHMM(2, random_state=0).fit(_sequences(4, 0))


def test_ctrl_c_within_a_maximisation_ends_with_the_round_before(sequences, monkeypatch):
    from kikuchi.flows import learning

    whole, calls = learning.train, []

    def cut(*given, **options):
        done = whole(*given, **options)
        calls.append(1)
        return done if len(calls) < 3 else dataclasses.replace(done, stopped="interrupted")

    monkeypatch.setattr(learning, "train", cut)
    model = FlowHMM(2, flow=SMALL, n_mix=1, max_iter=6, random_state=0, patience=6)
    model.fit(sequences)
    assert model.stopped_ == "interrupted"
    assert len(calls) == 3


def test_a_state_that_no_sequence_reaches_stays_as_it_was(sequences):
    short = [table[:2] for table in sequences]
    hmm = FlowHMM(3, flow="affine", topology="left-right", max_iter=2, random_state=0).fit(short)
    assert np.isfinite(hmm.score(short))


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_fewer_distinct_rows_than_components():
    tables = [np.repeat([[0.5, 1.5], [2.5, -0.5]], 6, axis=0)] * 5
    hmm = FlowHMM(2, flow="affine", n_mix=3, max_iter=2, random_state=0).fit(tables)
    assert np.isfinite(hmm.score(tables))


def test_the_beginning_counts_as_time_of_the_fit(sequences, monkeypatch):
    limits = []
    fit = HMM.fit

    def timed(self, X, y=None, *, lengths=None):
        if type(self) is HMM:
            limits.append(self.seconds)
        return fit(self, X, y, lengths=lengths)

    monkeypatch.setattr(HMM, "fit", timed)
    hmm = FlowHMM(2, flow="affine", seconds=1e-3, random_state=0).fit(sequences)
    assert hmm.stopped_ == "seconds" and len(limits) == 2  # one kind of covariance only
    assert all(limit <= 1e-3 for limit in limits)
