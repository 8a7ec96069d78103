"""Noisy-or networks: bounds from both sides against enumeration, marginals, learning, files."""

import itertools

import numpy as np
import pytest

from kikuchi.beliefnets import DiagnosisModel, NoisyOrNetwork
from kikuchi.core.errors import DataError, ImpossibleEvidenceError, ModelError


def model(seed=0, causes=7, findings=9):
    rng = np.random.default_rng(seed)
    weights = rng.exponential(1.0, (causes, findings)) * (rng.random((causes, findings)) < 0.6)
    return DiagnosisModel(rng.uniform(0.02, 0.3, causes), weights, rng.uniform(0.01, 0.1, findings))


def enumerated(net, findings):
    states = np.array(list(itertools.product([0, 1], repeat=len(net.prior))), dtype=float)
    logs = states @ np.log(net.prior) + (1 - states) @ np.log1p(-net.prior)
    z = net.leak + states @ net.weights
    for i, value in findings.items():
        logs += np.log(-np.expm1(-z[:, i])) if value else -z[:, i]
    total = np.logaddexp.reduce(logs)
    return total, np.exp(logs - total) @ states


@pytest.mark.parametrize("seed", range(5))
def test_bounds_hold_and_close(seed):
    # HOJ-X6
    net = model(seed)
    rng = np.random.default_rng(seed)
    findings = {i: int(rng.random() < 0.7) for i in range(9) if rng.random() < 0.9}
    truth, marginals = enumerated(net, findings)
    widths = []
    for exact, core in ((0, 0), (3, 0), (3, 2), (12, 7)):
        found = net.bracket(findings, exact=exact, core=core)
        assert found.lower <= truth + 1e-9 and truth <= found.upper + 1e-9
        widths.append(found.upper - found.lower)
    assert widths[0] > widths[-1] and widths[-1] == pytest.approx(0.0, abs=1e-9)
    assert found.marginals == pytest.approx(marginals, abs=1e-9)
    assert net.sampled_marginals(findings, sweeps=20_000) == pytest.approx(marginals, abs=0.02)


def test_a_wide_network_is_bracketed():
    """Forty findings of a sparse network; the marginals are those of Gibbs sampling."""
    # HOJ-X6
    rng = np.random.default_rng(1)
    weights = np.zeros((60, 150))
    for i in range(150):
        parents = rng.choice(60, rng.integers(2, 8), replace=False)
        weights[parents, i] = rng.uniform(0.1, 2.0, len(parents))
    net = DiagnosisModel(rng.uniform(0.01, 0.1, 60), weights, rng.uniform(0.005, 0.05, 150))
    _, rows = net.sample(50, 0)
    row = rows[np.argmin(np.abs(rows.sum(axis=1) - 45))]
    findings = {int(i): int(v) for i, v in enumerate(row)}
    found = net.bracket(findings, exact=8, core=5)
    assert found.present > 30 and 0 <= found.upper - found.lower < 3.0
    rough = net.bracket(findings, exact=0, core=0)
    assert rough.lower <= found.upper and found.lower <= rough.upper
    assert rough.upper - rough.lower > 2 * (found.upper - found.lower)
    sampled = net.sampled_marginals(findings, sweeps=5000)
    assert np.mean(np.abs(found.marginals - sampled)) < 0.02


def test_findings_without_leak_are_summed_exactly():
    net = DiagnosisModel(np.array([0.1, 0.2]), np.array([[1.0, 0.0], [0.5, 2.0]]), np.zeros(2))
    truth, _ = enumerated_without_leak(net)
    found = net.bracket({0: 1, 1: 1})
    assert found.lower == pytest.approx(truth) and found.upper == pytest.approx(truth)
    assert net.bracket({0: 1, 1: 1}, exact=0, core=0).lower == -np.inf


def enumerated_without_leak(net):
    total = 0.0
    for d in itertools.product([0, 1], repeat=2):
        z = np.array(d) @ net.weights
        p = np.prod(np.where(d, net.prior, 1 - net.prior))
        total += p * np.prod(-np.expm1(-z))
    return np.log(total), None


def test_learning_and_files(tmp_path):
    weights = np.kron(np.eye(3), np.full((1, 4), 3.0))
    true = NoisyOrNetwork.from_parameters([0.3] * 3, weights, [0.02] * 12)
    rows = true.sample(300, random_state=0)
    net = NoisyOrNetwork(3, max_iter=30, random_state=0).fit(rows)
    independent = rows.mean(axis=0)
    baseline = np.sum(
        independent * np.log(independent) + (1 - independent) * np.log(1 - independent)
    )
    assert net.score(rows) > baseline + 1.0
    lower = [net.infer(dict(enumerate(map(int, row)))).lower for row in rows[:5]]
    assert np.all(net.score_samples(rows[:5]) <= np.array(lower) + 1e-4)
    assert net.transform(rows).shape == (300, 3)
    net.save(tmp_path / "n.safetensors")
    again = NoisyOrNetwork.load(tmp_path / "n.safetensors")
    assert np.array_equal(again.transform(rows), net.transform(rows))


def test_what_is_refused():
    with pytest.raises(ImpossibleEvidenceError, match="finding 1 is present"):
        DiagnosisModel(np.array([0.1]), np.array([[1.0, 0.0]]), np.zeros(2)).bracket({1: 1})
    with pytest.raises(ModelError, match="between 0 and 1"):
        DiagnosisModel(np.array([1.0]), np.ones((1, 1)), np.ones(1))
    with pytest.raises(ModelError, match="not negative"):
        DiagnosisModel(np.array([0.5]), -np.ones((1, 1)), np.ones(1))
    with pytest.raises(ModelError, match="shape"):
        DiagnosisModel(np.array([0.5]), np.ones((2, 1)), np.ones(1))
    with pytest.raises(DataError, match="findings are 0 to 8"):
        model().bracket({11: 1})
    with pytest.raises(DataError, match="findings are 0 or 1"):
        model().bracket({1: 2})
    with pytest.raises(DataError, match=r"row 0, column 1 is 0\.5"):
        NoisyOrNetwork(2).fit([[0, 0.5], [1, 1]])


def test_small_leaks_are_kept_in_scores_and_files(tmp_path):
    """A cause that is rarer than the least leak of networks that learn: the bound of a row is below
    its exact log-probability, and a file holds the network as it was given.
    """
    prior, weights, leak = [0.001, 0.02], [[1.0, 0.0], [0.3, 2.0]], [0.0, 1e-6]
    net = NoisyOrNetwork.from_parameters(prior, weights, leak)
    net.save(tmp_path / "net")
    again = NoisyOrNetwork.load(tmp_path / "net")
    rows = np.array(list(itertools.product((0.0, 1.0), repeat=2)))
    truth = np.zeros(4)
    for causes in itertools.product((0, 1), repeat=2):
        p = np.prod(np.where(causes, prior, 1 - np.array(prior)))
        on = 1 - np.exp(-(leak + np.array(causes) @ np.array(weights)))
        truth += p * np.prod(np.where(rows == 1, on, 1 - on), axis=1)
    for model in (net, again):
        assert np.all(model.score_samples(rows) <= np.log(truth) + 1e-12)
        assert model.score_samples(rows)[0] == pytest.approx(np.log(truth[0]), abs=1e-9)
        assert model.diagnosis_.leak == pytest.approx(leak, rel=1e-9, abs=0)
        assert model.diagnosis_.weights == pytest.approx(np.array(weights), rel=1e-9, abs=0)
        assert model.infer({0: 1, 1: 0}).lower == pytest.approx(np.log(truth[2]), abs=1e-9)
    trained = net.partial_fit(rows)
    assert np.all(trained.diagnosis_.leak > 1e-5)  # what was given is not reported any more
