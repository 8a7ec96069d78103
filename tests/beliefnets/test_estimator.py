"""`SigmoidBeliefNetwork`: learning by every posterior, likelihoods, evidence, files, refusals."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from kikuchi.beliefnets import SigmoidBeliefNetwork, SigmoidNetwork
from kikuchi.core.errors import BudgetError, DataError, EvidenceError, MethodError


@pytest.fixture(scope="module")
def rows():
    """Two patterns and their union, with a little noise."""
    rng = np.random.default_rng(0)
    on = rng.integers(0, 2, size=(120, 2))
    clean = np.maximum(on[:, :1] * [1, 1, 1, 0, 0, 0], on[:, 1:] * [0, 0, 0, 1, 1, 1])
    return np.where(rng.random(clean.shape) < 0.02, 1 - clean, clean).astype(float)


def net(posterior="mean-field", **options):
    given = {"layers": (3,), "epochs": 40, "learning_rate": 0.1, "batch_size": 30}
    return SigmoidBeliefNetwork(posterior=posterior, random_state=0, **{**given, **options})


def baseline(rows):
    """Mean log-likelihood of independent columns."""
    p = rows.mean(axis=0)
    return np.sum(p * np.log(p) + (1 - p) * np.log1p(-p))


@pytest.mark.parametrize(
    "posterior", ["mean-field", "mixture:2", "chain", "quadratic", "gibbs:3", "exact"]
)
def test_every_posterior_learns(posterior, rows):
    fitted = net(posterior).fit(rows)
    truth = fitted.log_likelihood(rows, "exact").estimate
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
    fitted = net(posterior, layers=(2, 2, 3)).fit(rows)
    truth = fitted.log_likelihood(rows, "exact").estimate
    assert truth.mean() > baseline(rows) + 0.8
    assert np.all(fitted.score_samples(rows) <= truth + 1e-9)
    assert fitted.transform(rows).shape == (120, 7)


def test_likelihoods_agree(rows):
    fitted = net().fit(rows)
    some = rows[:15]
    truth = fitted.log_likelihood(some, "exact")
    drawn = fitted.log_likelihood(some, "importance", draws=3000)
    annealed = fitted.log_likelihood(some, "ais", steps=100, chains=20)
    assert truth.error == 0 and np.array_equal(truth.lower, truth.upper)
    assert drawn.mean == pytest.approx(truth.mean, abs=0.05)
    assert annealed.lower.mean() <= truth.mean + 0.05 and annealed.upper.mean() >= truth.mean - 0.05
    assert annealed.upper.mean() - annealed.lower.mean() < 0.3


@pytest.mark.parametrize("posterior", ["mixture:2", "chain", "quadratic", "third-order"])
def test_every_posterior_with_densities_proposes(posterior, rows):
    """Importance sampling from any posterior whose draws have probabilities."""
    fitted = net().fit(rows)
    some = rows[:8]
    truth = fitted.log_likelihood(some, "exact").mean
    drawn = fitted.set_params(posterior=posterior).log_likelihood(some, "importance", draws=2000)
    assert drawn.mean == pytest.approx(truth, abs=0.05)


def test_evidence_on_any_units(rows):
    fitted = net(layers=(2, 3)).fit(rows)
    graph = fitted.network_.to_factor_graph()
    from kikuchi.inference.trees.enumeration import Enumeration

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
    wide = net(layers=(8,), ard=True, epochs=150, posterior="mean-field").fit(rows)
    plain = net(layers=(8,), epochs=150).fit(rows)
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
    assert grown.network_.n_edges == 13 and not grown.network_.layers
    part = net(checkpoint=tmp_path / "part", seconds=1e-6).fit(rows)
    assert part.stopped_ == "seconds" and not part.converged_
    whole, rest = net().fit(rows), net(checkpoint=tmp_path / "part").fit(rows)
    assert np.array_equal(whole.network_.parameters["weights"], rest.network_.parameters["weights"])


def test_scikit_learn_accepts_the_estimator():
    """Its checks have data of all kinds, which a threshold turns into bits."""
    check_estimator(SigmoidBeliefNetwork((2,), threshold=0.0, epochs=2, random_state=0))


def test_what_is_refused(rows):
    with pytest.raises(DataError, match=r"row 0, column 0 is 0\.5; units are 0 and 1"):
        net().fit([[0.5, 1.0], [1.0, 0.0]])
    for layers in ((), (0,), "a", (2.5,)):
        with pytest.raises(MethodError, match="layers"):
            net(layers=layers).fit(rows)
    with pytest.raises(MethodError, match="no posterior 'meanfield'"):
        net("meanfield").fit(rows)
    fitted = net(layers=(25,), epochs=1).fit(rows)
    with pytest.raises(BudgetError, match="25"):
        fitted.log_likelihood(rows[:1], "exact")
    with pytest.raises(MethodError, match="method is one of"):
        fitted.log_likelihood(rows[:1], "guess")
