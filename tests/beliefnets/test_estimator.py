"""`SigmoidBeliefNetwork`: learning by every posterior, likelihoods, evidence, files, refusals."""

import time

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from kikuchi.beliefnets import SigmoidBeliefNetwork, SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import require_time
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, DataError, EvidenceError, MethodError


@pytest.fixture(scope="module")
def rows():
    """Two patterns and their union, with a little noise."""
    rng = np.random.default_rng(0)
    on = rng.integers(0, 2, size=(120, 2))
    clean = np.maximum(on[:, :1] * [1, 1, 1, 0, 0, 0], on[:, 1:] * [0, 0, 0, 1, 1, 1])
    return np.where(rng.random(clean.shape) < 0.02, 1 - clean, clean).astype(float)


def net(posterior="mean-field", **options):
    given = {"hidden_layer_sizes": (3,), "max_iter": 40, "learning_rate": 0.1, "batch_size": 30}
    return SigmoidBeliefNetwork(posterior=posterior, random_state=0, **{**given, **options})


def baseline(rows):
    """Mean log-likelihood of independent columns."""
    p = rows.mean(axis=0)
    return np.sum(p * np.log(p) + (1 - p) * np.log1p(-p))


@pytest.mark.parametrize(
    "posterior", ["mean-field", "mixture:2", "chain", "quadratic", "gibbs:3", "exact"]
)
def test_every_posterior_learns(posterior, rows):
    # LAW-L2, LAW-L3
    fitted = net(posterior).fit(rows)
    truth = fitted.row_likelihoods(rows, "exact").estimate
    assert truth.mean() > baseline(rows) + 0.8
    assert fitted.transform(rows).shape == (120, 3)
    if posterior.startswith("gibbs"):
        with pytest.raises(MethodError, match="no bound"):
            fitted.score(rows)
    else:
        assert np.all(fitted.score_samples(rows) <= truth + 1e-9)


@pytest.mark.parametrize("posterior", ["mean-field", "mixture:2", "chain", "quadratic"])
def test_deep_networks_learn(posterior, rows):
    """Three hidden layers: they learn, and the bound stays one."""
    fitted = net(posterior, hidden_layer_sizes=(2, 2, 3)).fit(rows)
    truth = fitted.row_likelihoods(rows, "exact").estimate
    assert truth.mean() > baseline(rows) + 0.8
    assert np.all(fitted.score_samples(rows) <= truth + 1e-9)
    assert fitted.transform(rows).shape == (120, 7)


def test_likelihoods_agree(rows):
    # LIU-L7
    fitted = net().fit(rows)
    some = rows[:15]
    truth = fitted.row_likelihoods(some, "exact")
    drawn = fitted.row_likelihoods(some, "importance", draws=3000)
    annealed = fitted.row_likelihoods(some, "ais", steps=100, chains=20)
    assert truth.error == 0 and np.array_equal(truth.lower, truth.upper)
    assert drawn.mean() == pytest.approx(truth.mean(), abs=0.05)
    assert annealed.mean() == pytest.approx(truth.mean(), abs=0.05)
    assert np.mean(annealed.upper - annealed.lower) < 0.6
    low, high = annealed.mean_bounds()
    assert low <= truth.mean() <= high and high - low < 0.2


@pytest.mark.parametrize("method", ["ais", "importance"])
@pytest.mark.parametrize("scale", [1.0, 3.0, 12.0])
def test_bounds_of_rows_hold_at_their_confidence(method, scale):
    """Against enumeration: of 360 rows at most 8 % may be outside of the bounds at 95 %; without
    confidence limits about half of them are. Bounds on the mean hold in all but one of six cases.
    """
    outside, rows, means = 0, 0, 0
    for seed in range(6):
        network = SigmoidNetwork.random((2, 4, 8), random_state=seed)
        for array in network.parameters.values():
            array *= scale / array.std()
        estimator = SigmoidBeliefNetwork((2, 4))
        estimator.model_, estimator.n_features_in_ = network, 8
        X = network.sample_states(60, seed)[:, network.visible]
        truth = estimator.row_likelihoods(X, "exact")
        found = estimator.row_likelihoods(X, method, steps=60, draws=300, random_state=seed)
        assert np.all(found.lower <= found.estimate) and np.all(found.estimate <= found.upper)
        assert np.all(found.upper <= 0) or method == "importance"
        within = (found.lower <= truth.estimate + 1e-9) & (truth.estimate <= found.upper + 1e-9)
        outside, rows = outside + int(np.sum(~within)), rows + len(X)
        low, high = found.mean_bounds()
        means += not low <= truth.mean() <= high
        assert found.lower.mean() <= low and high <= found.upper.mean()
    assert outside <= 0.08 * rows and means <= 1


def test_rows_whose_bounds_are_not_reliable_are_a_warning():
    network = SigmoidNetwork.random((20, 30), random_state=0)
    for array in network.parameters.values():
        array *= 1.5 / array.std()
    estimator = SigmoidBeliefNetwork((20,))
    estimator.model_, estimator.n_features_in_ = network, 30
    X = network.sample_states(20, 1)[:, network.visible]
    with pytest.warns(ConvergenceWarning, match="of 20 rows: too few draws carry weight"):
        found = estimator.row_likelihoods(X, "ais", steps=2, chains=8)
    assert found.warnings
    with pytest.raises(MethodError, match="at least 2 chains"):
        estimator.row_likelihoods(X, "ais", chains=1)
    with pytest.raises(MethodError, match="confidence is between 0 and 1"):
        estimator.row_likelihoods(X, "importance", confidence=1.0)


@pytest.mark.parametrize("posterior", ["mixture:2", "chain", "quadratic", "third-order"])
def test_every_posterior_with_densities_proposes(posterior, rows):
    """Importance sampling from any posterior whose draws have probabilities."""
    fitted = net().fit(rows)
    some = rows[:8]
    truth = fitted.row_likelihoods(some, "exact").mean()
    drawn = fitted.set_params(posterior=posterior).row_likelihoods(some, "importance", draws=2000)
    assert drawn.mean() == pytest.approx(truth, abs=0.05)


def test_evidence_on_any_units(rows):
    fitted = net(hidden_layer_sizes=(2, 3)).fit(rows)
    graph = fitted.model_.to_factor_graph()
    from kikuchi.methods.enumeration import Enumeration

    evidence = {0: 1, 5: 1, 9: 0}
    beliefs = Enumeration().run(graph, evidence=evidence)
    found = fitted.infer(evidence, posterior="exact")
    assert found.exact and found.bound == pytest.approx(beliefs.log_z, abs=1e-9)
    assert found.means == pytest.approx([m[1] for m in beliefs.marginals], abs=1e-9)
    approximate = fitted.infer(evidence)
    assert approximate.bound <= found.bound + 1e-9 and approximate.means[5] == 1.0
    with pytest.raises(EvidenceError):
        fitted.infer({99: 1})


def test_units_that_are_not_needed_are_switched_off(rows):
    long = {"hidden_layer_sizes": (8,), "max_iter": 150, "schedule": "constant"}
    wide, plain = net(ard=True, **long).fit(rows), net(**long).fit(rows)
    assert len(wide.switched_off_) == 6 > len(plain.switched_off_)
    assert any("switched off" in remark for remark in wide.warnings_)


def test_files_spins_starts_and_interruption(rows, tmp_path):
    fitted = net(units="spins").fit(2 * rows - 1)
    assert set(np.unique(fitted.sample(20, random_state=0))) == {-1.0, 1.0}
    fitted.save(tmp_path / "net.safetensors")
    again = SigmoidBeliefNetwork.load(tmp_path / "net.safetensors")
    assert np.array_equal(again.score_samples(2 * rows - 1), fitted.score_samples(2 * rows - 1))
    free = SigmoidNetwork.from_edges(
        np.zeros(8), {(0, 1): 0.1, **{(h, v): 0.1 * v - 0.4 for h in (0, 1) for v in range(2, 8)}},
        range(2, 8),
    )  # fmt: skip
    grown = net(start=free).fit(rows)
    assert grown.model_.n_edges == 13 and not grown.model_.layers
    part = net(checkpoint=tmp_path / "part", seconds=1e-6).fit(rows)
    assert part.stopped_ == "seconds" and not part.converged_
    whole, rest = net().fit(rows), net(checkpoint=tmp_path / "part").fit(rows)
    assert np.array_equal(whole.model_.parameters["weights"], rest.model_.parameters["weights"])


@pytest.mark.parametrize("posterior", ["third-order", "tree-mf:2", "chain", "quadratic"])
def test_time_limits_hold_within_an_update(posterior, rows, tmp_path):
    """One update that takes longer than the limit is given up, and a fit that goes on from the
    checkpoint learns the same as an unbroken one.
    """
    wide = (np.random.default_rng(0).random((300, 40)) < 0.3).astype(float)
    net(posterior, hidden_layer_sizes=(2,), max_iter=1).fit(wide[:2])  # compile
    slow = net(posterior, hidden_layer_sizes=(30,), seconds=0.3, batch_size=300, max_iter=500)
    begun = time.perf_counter()
    slow.fit(wide)
    assert slow.stopped_ == "seconds" and time.perf_counter() - begun < 1.5
    some, place = rows[:40], tmp_path / "part"
    options = {"max_iter": 2, "batch_size": 15, "n_init": 1, "validation_fraction": 0.0}
    whole = net(posterior, **options).fit(some)
    clock = _CountedClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kikuchi.beliefnets.learning.require_time", clock.require)
        part = net(posterior, checkpoint=place, **options).fit(some)
    assert part.stopped_ == "seconds" and clock.updates == 3
    rest = net(posterior, checkpoint=place, **options).fit(some)
    for name, array in whole.model_.parameters.items():
        assert np.array_equal(array, rest.model_.parameters[name])


class _CountedClock:
    """Ends the time of a training within its third update."""

    updates = 0

    def require(self, clock):
        self.updates += 1
        if self.updates == 3:
            clock.budget = Budget(seconds=1e-9)
        require_time(clock)


def test_scikit_learn_accepts_the_estimator():
    """Its checks have data of all kinds, which a threshold turns into bits."""
    check_estimator(SigmoidBeliefNetwork((2,), threshold=0.0, max_iter=2, random_state=0))


def test_what_is_refused(rows):
    with pytest.raises(DataError, match=r"row 0, column 0 is 0\.5; units are 0 and 1"):
        net().fit([[0.5, 1.0], [1.0, 0.0]])
    for layers in ((), (0,), "a", (2.5,)):
        with pytest.raises(MethodError, match="hidden_layer_sizes are the sizes"):
            net(hidden_layer_sizes=layers).fit(rows)
    with pytest.raises(MethodError, match="no posterior 'meanfield'"):
        net("meanfield").fit(rows)
    fitted = net(hidden_layer_sizes=(25,), max_iter=1).fit(rows)
    with pytest.raises(BudgetError, match="25"):
        fitted.row_likelihoods(rows[:1], "exact")
    with pytest.raises(MethodError, match="method is one of"):
        fitted.row_likelihoods(rows[:1], "guess")


def all_bars(side=4):
    """Every image of bars that all lie or all stand, and minus their entropy."""
    masks = (np.arange(2**side)[:, None] >> np.arange(side)) & 1
    lying = np.repeat(masks[:, :, None], side, axis=2).reshape(len(masks), -1)
    standing = np.repeat(masks[:, None, :], side, axis=1).reshape(len(masks), -1)
    every = np.concatenate([lying, standing]).astype(float)
    shares = np.unique(every, axis=0, return_counts=True)[1] / len(every)
    return every, float(np.sum(shares * np.log(shares)))


@pytest.mark.parametrize("posterior", ["auto", "mean-field"])
def test_defaults_come_close_to_the_entropy_of_bars(posterior):
    """A network with one unit for the orientation can describe them exactly; fits from small random
    weights stop a nat below, whatever the posterior.
    """
    every, ceiling = all_bars()
    X = every[np.random.default_rng(77).integers(0, len(every), 1000)]
    fitted = SigmoidBeliefNetwork((1, 8), posterior, random_state=3).fit(X)
    assert ceiling - 0.2 < fitted.row_likelihoods(every, "exact").mean() <= ceiling
    assert fitted.stopped_ == "validation" and fitted.converged_ and not fitted.warnings_


def test_the_learner_follows_the_number_of_hidden_units(rows):
    small = SigmoidBeliefNetwork((10,), max_iter=1, random_state=0).fit(rows)
    assert small.score_kind_ == "log-likelihood"
    assert small.trace_.objective_name == "bound per row"
    large = SigmoidBeliefNetwork((11,), max_iter=1, random_state=0).fit(rows)
    assert large.score_kind_ == "lower bound on the log-likelihood"
    assert large.trace_.objective_name == "importance-weighted bound per row"
    chosen = SigmoidBeliefNetwork((11,), "mean-field", max_iter=1, random_state=0).fit(rows)
    assert chosen.trace_.objective_name == "bound per row"


def test_fits_that_end_too_early_or_below_independent_bits_report_it(rows):
    part = SigmoidBeliefNetwork((3,), max_iter=5, learning_rate=0.003, random_state=0).fit(rows)
    assert part.stopped_ == "epochs" and not part.converged_
    assert "still rising by more than 0.01 nats per row after 5 epochs" in part.warnings_[0]
    noise = (np.random.default_rng(0).random((300, 12)) < 0.5).astype(float)
    with pytest.warns(ConvergenceWarning, match="below .* of independent bits; raise n_init"):
        SigmoidBeliefNetwork((8,), max_iter=2, learning_rate=5.0, n_init=1, random_state=0).fit(
            noise
        )
