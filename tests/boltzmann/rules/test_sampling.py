"""The sampled, exact, pseudo and one-shot rules against enumeration and finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.neural_network import BernoulliRBM

import kikuchi as kk
from kikuchi.boltzmann.layers import Layers
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.parameters import ARCHITECTURES, masked
from kikuchi.boltzmann.pseudo import pseudo_log_likelihood
from kikuchi.boltzmann.rules import RULES, parse_rule
from kikuchi.boltzmann.units import BinaryUnits, BinomialUnits, GaussianUnits
from kikuchi.core.errors import BudgetError, DataError, MethodError, ModelError
from kikuchi.training.trainer import train

MINE = ("exact", "gibbs", "cd", "pcd", "brief-gibbs", "pseudo", "one-shot")


def states(n: int) -> np.ndarray:
    return np.array(list(itertools.product((0.0, 1.0), repeat=n))).reshape(2**n, n)


def joint(machine: Machine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p[v, h] and the two lists of states, from nothing but the energy."""
    v, h = states(machine.n_visible), states(machine.n_hidden)
    grid = [(a, b) for a in v for b in h]
    energy = machine.energy(np.array([a for a, _ in grid]), np.array([b for _, b in grid]))
    weight = np.exp(-energy).reshape(len(v), len(h))
    return weight / weight.sum(), v, h


def log_likelihood(machine: Machine, rows: np.ndarray) -> float:
    p, v, _ = joint(machine)
    marginal = p.sum(axis=1)
    index = [int(np.flatnonzero((v == row).all(axis=1))[0]) for row in rows]
    return float(np.mean(np.log(marginal[index])))


def strong(architecture: str, seed: int = 0, d: int = 4, k: int = 3) -> Machine:
    machine = Machine.random(d, k, architecture=architecture, scale=0.8, random_state=seed)
    rng = np.random.default_rng(seed + 100)
    machine.visible_bias[:] = rng.normal(0, 0.5, d)
    machine.hidden_bias[:] = rng.normal(0, 0.5, k)
    return machine


def shifted(machine: Machine, name: str, place: tuple[int, ...], by: float) -> Machine:
    other = machine.copy()
    array = other.parameters[name]
    array[place] += by
    if name in ("visible_weights", "hidden_weights"):
        array[place[::-1]] += by
    return other


def places(machine: Machine) -> list[tuple[str, tuple[int, ...]]]:
    found = []
    for name, array in machine.parameters.items():
        for place in np.ndindex(array.shape):
            if name in ("visible_weights", "hidden_weights") and place[0] >= place[1]:
                continue
            found.append((name, place))
    return found


def check_gradient(machine: Machine, value, ascent) -> None:
    for name, place in places(machine):
        step = 1e-5
        up, down = shifted(machine, name, place, step), shifted(machine, name, place, -step)
        numeric = (value(up) - value(down)) / (2 * step)
        assert ascent[name][place] == pytest.approx(numeric, abs=1e-7), (name, place)


def rows_of(seed: int, n: int = 7, d: int = 4) -> np.ndarray:
    return (np.random.default_rng(seed).random((n, d)) < 0.5).astype(np.float64)


def estimate(text: str, machine: Machine, rows: np.ndarray, seed: int = 0):
    rule, rng = parse_rule(text), np.random.default_rng(seed)
    state = rule.begin(machine, rows, rng)
    answer = rule.gradient(machine, rows, np.arange(len(rows)), state, rng)
    machine.constrain(answer.ascent)
    return answer


# ---------------------------------------------------------------------- exact and pseudo


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_exact_rule_is_the_gradient_of_the_enumerated_likelihood(architecture: str) -> None:
    """WH-L1."""
    machine, rows = strong(architecture), rows_of(1)
    answer = estimate("exact", machine, rows)
    assert answer.objective == pytest.approx(log_likelihood(machine, rows), abs=1e-10)
    check_gradient(machine, lambda m: log_likelihood(m, rows), answer.ascent)


def test_exact_rule_refuses_large_machines_before_training() -> None:
    with pytest.raises(BudgetError, match="states"):
        train(Machine.random(40, 40), np.zeros((3, 40)), "exact")


def pseudo_by_hand(machine: Machine, rows: np.ndarray) -> float:
    p, v, _ = joint(machine)
    marginal = p.sum(axis=1)
    weight = {tuple(row): marginal[k] for k, row in enumerate(v)}
    total = 0.0
    for row in rows:
        for i in range(len(row)):
            other = row.copy()
            other[i] = 1 - other[i]
            here, there = weight[tuple(row)], weight[tuple(other)]
            total += np.log(here / (here + there))
    return total / len(rows)


@pytest.mark.parametrize("architecture", ["brf", "poe"])
def test_pseudo_rule_is_the_gradient_of_the_enumerated_pseudo_likelihood(architecture) -> None:
    """TEH-L10."""
    machine, rows = strong(architecture, 3), rows_of(2)
    answer = estimate("pseudo", machine, rows)
    assert answer.objective == pytest.approx(pseudo_by_hand(machine, rows), abs=1e-10)
    check_gradient(machine, lambda m: pseudo_by_hand(m, rows), answer.ascent)
    assert pseudo_log_likelihood(machine, rows).mean() == pytest.approx(answer.objective)


def test_pseudo_likelihood_of_huge_weights_is_finite() -> None:
    machine = strong("brf", 4)
    machine.weights *= 200.0
    answer = estimate("pseudo", machine, rows_of(2))
    assert np.isfinite(answer.objective)
    assert all(np.isfinite(a).all() for a in answer.ascent.values())


def test_pseudo_gradient_is_contrastive_divergence_that_redraws_one_unit() -> None:
    """TEH-L10: J times (data statistics - statistics after one random unit is redrawn)."""
    machine, rows = strong("brf", 5), rows_of(3)
    p, v, _ = joint(machine)
    marginal = {tuple(row): p.sum(axis=1)[k] for k, row in enumerate(v)}

    def gradient(row: np.ndarray) -> np.ndarray:
        return np.outer(row, 1 / (1 + np.exp(-(row @ machine.weights + machine.hidden_bias))))

    total = np.zeros_like(machine.weights)
    for row in rows:
        for i in range(len(row)):
            other = row.copy()
            other[i] = 1 - other[i]
            stay = marginal[tuple(row)] / (marginal[tuple(row)] + marginal[tuple(other)])
            total += gradient(row) - stay * gradient(row) - (1 - stay) * gradient(other)
    assert np.allclose(estimate("pseudo", machine, rows).ascent["weights"], total / len(rows))


def test_pseudo_refuses_what_it_cannot_do() -> None:
    with pytest.raises(MethodError, match="connected hidden"):
        estimate("pseudo", strong("hrf"), rows_of(0))
    with pytest.raises(MethodError, match="not binary"):
        estimate("pseudo", Machine.random(4, 2, visible=GaussianUnits()), rows_of(0))
    with pytest.raises(DataError, match="0 and 1"):
        estimate("pseudo", strong("brf"), rows_of(0) * 0.5)


# ---------------------------------------------------------------------- chains


def mean_estimate(text: str, machine: Machine, rows: np.ndarray, repeats: int):
    rule, rng = parse_rule(text), np.random.default_rng(11)
    state = rule.begin(machine, rows, rng)
    found: dict[str, list[np.ndarray]] = {name: [] for name in machine.parameters}
    for _ in range(repeats):
        answer = rule.gradient(machine, rows, np.arange(len(rows)), state, rng)
        machine.constrain(answer.ascent)
        for name, array in answer.ascent.items():
            found[name].append(array.copy())
    stacked = {name: np.array(arrays) for name, arrays in found.items()}
    means = {name: a.mean(axis=0) for name, a in stacked.items()}
    errors = {name: a.std(axis=0) / np.sqrt(repeats) for name, a in stacked.items()}
    return means, errors


def assert_near(means, errors, truth, sigmas: float = 4.5) -> None:
    for name, array in truth.items():
        assert np.all(np.abs(means[name] - array) <= sigmas * errors[name] + 1e-3), name


def expected_cd(machine: Machine, rows: np.ndarray, k: int) -> np.ndarray:
    """Expected CD-k update of the weights of a restricted machine by transition matrices."""
    v, h = states(machine.n_visible), states(machine.n_hidden)
    up = np.exp(-machine_energy(machine, v, h))
    to_hidden = up / up.sum(axis=1, keepdims=True)
    to_visible = (up / up.sum(axis=0)).T
    q = np.zeros(len(v))
    for row in rows:
        q[np.flatnonzero((v == row).all(axis=1))[0]] += 1 / len(rows)
    statistic = lambda q: (v * q[:, None]).T @ (to_hidden @ h)  # noqa: E731
    first = statistic(q)
    for _ in range(k):
        q = q @ to_hidden @ to_visible
    return first - statistic(q)


def machine_energy(machine: Machine, v: np.ndarray, h: np.ndarray) -> np.ndarray:
    return np.array([[machine.energy(a, b)[0] for b in h] for a in v])


@pytest.mark.parametrize("k", [1, 3])
def test_cd_has_the_expectation_of_its_transition_matrices(k: int) -> None:
    """TEH-L9: the exact expected update on a small machine."""
    machine = strong("brf", 6, 3, 2)
    rows = np.tile(rows_of(4, 5, 3), (40, 1))
    means, errors = mean_estimate(f"cd:k={k}", machine, rows, 150)
    assert_near(means, errors, {"weights": expected_cd(machine, rows, k)})


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_long_chains_give_the_exact_gradient(architecture: str) -> None:
    """TEH-L8, WH-L2: CD-k for large k is maximum likelihood, whatever is connected."""
    machine = strong(architecture, 7)
    rows = np.tile(rows_of(5), (30, 1))
    truth = estimate("exact", machine, rows).ascent
    means, errors = mean_estimate("cd:k=40,clamped=40", machine, rows, 60)
    assert_near(means, errors, truth)
    gap = estimate("cd:k=1,clamped=40", machine, rows)
    assert max(np.abs(gap.ascent[n] - truth[n]).max() for n in truth) > 0.02  # CD-1 is another


@pytest.mark.parametrize(
    "text", ["pcd:k=2,chains=200", "gibbs:chains=200,burn_in=40,samples=5", "brief-gibbs:k=2"]
)
@pytest.mark.parametrize("architecture", ["brf", "fcrf"])
def test_other_chains_have_the_exact_gradient_as_mean(text: str, architecture: str) -> None:
    """TEH-L4: with the parameters still, chains that go on reach the equilibrium."""
    machine = strong(architecture, 8)
    machine.weights *= 0.5  # chains of consecutive batches depend on each other: mix fast
    rows = np.tile(rows_of(6), (30, 1))
    truth = estimate("exact", machine, rows).ascent
    means, errors = mean_estimate(text, machine, rows, 150)
    assert_near(means, {n: 3 * e for n, e in errors.items()}, truth)


def test_brief_gibbs_with_restart_begins_at_one_state_each_time() -> None:
    machine, rows = strong("fcrf", 9), rows_of(7)
    rule, rng = parse_rule("brief-gibbs:restart=true"), np.random.default_rng(0)
    state = rule.begin(machine, rows, rng)
    before = {name: array.copy() for name, array in state.items()}
    assert before["hidden"].shape == (1, 3)
    rule.gradient(machine, rows, np.arange(len(rows)), state, rng)
    assert all(np.array_equal(state[name], array) for name, array in before.items())


def enumerated_model_rows(machine: Machine, n: int = 4096) -> np.ndarray:
    """Rows in proportion to the machine's own probabilities, as nearly as n allows."""
    p, v, _ = joint(machine)
    marginal = p.sum(axis=1)
    counts = np.floor(marginal * n).astype(int)
    short = n - counts.sum()
    counts[np.argsort(marginal * n - counts)[-short:]] += 1
    return np.repeat(v, counts, axis=0)


@pytest.mark.parametrize("text", ["cd", "cd:k=5", "exact", "pseudo", "pcd:chains=4096"])
@pytest.mark.parametrize("architecture", ["brf", "poe"])
def test_no_slope_at_the_truth(text: str, architecture: str) -> None:
    """WH-T9: at P_0 = P_infinity every chain that leaves the model alone has no mean update."""
    machine = strong(architecture, 10)
    rows = enumerated_model_rows(machine)
    if text in ("exact", "pseudo"):
        found = estimate(text, machine, rows).ascent
        assert max(np.abs(a).max() for a in found.values()) < 2e-3
    else:
        means, errors = mean_estimate(text, machine, rows, 40)
        assert_near(means, errors, {n: np.zeros_like(a) for n, a in machine.parameters.items()})


def test_free_energy_never_rises_under_gibbs_steps() -> None:
    """WH-T1: F_0 >= F_1 >= ... >= -log Z for exact Gibbs steps."""
    machine = strong("brf", 12, 3, 2)
    v, h = states(3), states(2)
    energy = machine_energy(machine, v, h)
    weight = np.exp(-energy)
    to_hidden = weight / weight.sum(axis=1, keepdims=True)
    to_visible = (weight / weight.sum(axis=0)).T
    q = np.full(len(v), 1e-12)
    q[3] = 1 - 7e-12
    previous, log_z = np.inf, np.log(weight.sum())
    for _ in range(12):
        p = q[:, None] * to_hidden
        free = float(np.sum(p * energy) + np.sum(p * np.log(p)))
        assert -log_z - 1e-9 <= free <= previous + 1e-12
        previous, q = free, q @ to_hidden @ to_visible
    # and the rule's objective is the first difference of free energies of rows and chains
    rows = np.tile(v[3], (4000, 1))
    answer = estimate("cd", machine, rows)
    field = lambda x: x @ machine.weights + machine.hidden_bias  # noqa: E731
    f = lambda x: -(x @ machine.visible_bias) - np.logaddexp(0, field(x)).sum(axis=1)  # noqa: E731
    start = np.zeros(len(v))
    start[3] = 1
    expected = float(f(v[3:4])[0] - (start @ to_hidden @ to_visible) @ f(v))
    assert answer.objective == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("text", [t for t in MINE if t != "one-shot"])
@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_masks_stay_masks(text: str, architecture: str) -> None:
    """WH-T10, with single connections left out as well."""
    if text == "pseudo" and architecture in ("hrf", "fcrf"):
        pytest.skip("refused")
    rng = np.random.default_rng(0)
    full = Machine.random(6, 4, architecture=architecture, random_state=1)
    masks = {}
    for name, array in full.parameters.items():
        if array.ndim == 2:
            kept = rng.random(array.shape) < 0.6
            masks[name] = kept | kept.T if name != "weights" else kept
    machine = Machine.random(6, 4, masks=masks, scale=0.5, random_state=1)
    rows = rows_of(8, 30, 6)
    options = "sgd:learning_rate=0.3,momentum=0.5,weight_decay=0.01"
    text = "gibbs:burn_in=3,samples=2" if text == "gibbs" else text
    done = train(machine, rows, text, optimiser=options, epochs=3, batch_size=7, seed=0)
    assert set(done.model.parameters) == set(full.parameters)
    for name, mask in masks.items():
        array = done.model.parameters[name]
        if name != "weights":
            mask = mask & ~np.eye(len(mask), dtype=bool)
            assert np.array_equal(array, array.T)
        assert np.all(array[~mask] == 0)
        assert np.all(array[mask] != machine.parameters[name][mask])


# ---------------------------------------------------------------------- other units


@pytest.mark.parametrize("units", [GaussianUnits(), BinomialUnits(replicas=3)])
def test_chains_of_other_units_have_the_exact_gradient_as_mean(units) -> None:
    """Restricted machines: hidden side enumerated, visible side in closed form."""
    machine = Machine.random(3, 2, scale=0.4, visible=units, random_state=3)
    rng = np.random.default_rng(4)
    draw = rng.normal(size=(300, 3)) if units.name == "gaussian" else rng.integers(0, 4, (300, 3))
    rows = draw.astype(np.float64)
    truth = estimate("exact", machine, rows).ascent
    means, errors = mean_estimate("cd:k=30", machine, rows, 60)
    assert_near(means, errors, truth)


def test_connected_units_that_are_not_binary_are_refused() -> None:
    machine = Machine.random(3, 2, architecture="poe", visible=GaussianUnits())
    with pytest.raises(ModelError, match="connected among themselves"):
        train(machine, np.zeros((4, 3)), "cd")


# ---------------------------------------------------------------------- scikit-learn


def test_persistent_rule_is_that_of_scikit_learn() -> None:
    """The mean update over draws agrees from the same weights and the same chains."""
    rng = np.random.default_rng(5)
    rows, chains = rows_of(9, 20, 6), (rng.random((20, 4)) < 0.5).astype(np.float64)
    machine = strong("brf", 13, 6, 4)
    theirs = BernoulliRBM(4, learning_rate=1.0, random_state=0)
    theirs.random_state_ = np.random.RandomState(0)
    found = []
    for _ in range(1500):
        theirs.components_ = machine.weights.T.copy()
        theirs.intercept_hidden_ = machine.hidden_bias.copy()
        theirs.intercept_visible_ = machine.visible_bias.copy()
        theirs.h_samples_ = chains.copy()
        theirs._fit(rows, theirs.random_state_)
        found.append(theirs.components_.T - machine.weights)
    rule, ours = parse_rule("pcd:chains=20"), []
    for _ in range(1500):
        state = {"hidden": chains.copy()}
        answer = rule.gradient(machine, rows, np.arange(20), state, rng)
        ours.append(answer.ascent["weights"].copy())
    difference = np.mean(found, axis=0) - np.mean(ours, axis=0)
    error = np.hypot(np.std(found, axis=0), np.std(ours, axis=0)) / np.sqrt(1500)
    assert np.all(np.abs(difference) < 4.5 * error)


def test_free_energy_is_that_of_scikit_learn() -> None:
    """TEH-M8, TEH-I11: minus log of the sum over hidden states, by the fused pass."""
    machine, rows = strong("brf", 14, 6, 4), rows_of(10, 9, 6)
    theirs = BernoulliRBM(4)
    theirs.components_, theirs.intercept_hidden_ = machine.weights.T, machine.hidden_bias
    theirs.intercept_visible_ = machine.visible_bias
    layer = Layers(machine).hidden(rows, None)
    assert np.allclose(-(rows @ machine.visible_bias) - layer.log_sums, theirs._free_energy(rows))
    assert np.allclose(layer.mean, theirs._mean_hiddens(rows))


def test_posterior_is_a_product_of_experts() -> None:
    """TEH-M6: hidden units are independent given the row, and log weights add up by expert."""
    machine = strong("brf", 15, 3, 4)
    p, v, h = joint(machine)
    layer = Layers(machine).hidden(v, None)
    posterior = p / p.sum(axis=1, keepdims=True)
    for n in range(len(v)):
        product = np.prod(np.where(h == 1, layer.mean[n], 1 - layer.mean[n]), axis=1)
        assert np.allclose(posterior[n], product)
    experts = np.log(p.sum(axis=1)) - v @ machine.visible_bias - layer.log_sums
    assert np.allclose(experts, experts[0])  # minus log Z, the same for every row


# ---------------------------------------------------------------------- one-shot


def test_one_shot_recovers_small_couplings() -> None:
    """TEH-L7: the error falls at least with the square of the couplings."""
    base = Machine.random(5, 0, architecture="poe", scale=1.0, random_state=2)
    errors = []
    for scale in (0.4, 0.2, 0.1, 0.05):
        truth = Machine.random(5, 0, architecture="poe")
        truth.visible_weights[:] = scale * base.visible_weights
        rows = enumerated_model_rows(truth, 500_000)
        done = train(truth, rows, "one-shot:prior=0")
        assert done.converged
        errors.append(np.abs(done.model.visible_weights - truth.visible_weights).max())
    assert errors[0] < 0.15
    assert all(b < a / 3 for a, b in itertools.pairwise(errors[:3]))


def test_one_shot_of_strong_couplings_has_not_converged() -> None:
    rows = kk.plan(kk.grid(4, 4, seed=0, coupling=1.0)).calibrate().sample(1000, seed=1)
    done = train(Machine.random(16, 0, architecture="poe"), rows.astype(float), "one-shot")
    assert not done.converged and done.stopped == "epochs"
    assert "too strong for linear response" in done.warnings[0]


def test_one_shot_refuses_hidden_units_and_constant_columns() -> None:
    with pytest.raises(MethodError, match="hidden units"):
        train(strong("poe"), rows_of(0), "one-shot")
    with pytest.raises(MethodError, match="no connections"):
        train(Machine.random(4, 0), rows_of(0), "one-shot")
    visible = Machine.random(4, 0, architecture="poe")
    with pytest.raises(DataError, match="same state in every row"):
        train(visible, np.ones((5, 4)), "one-shot:prior=0")
    with pytest.raises(DataError, match="singular"):
        train(visible, np.repeat(rows_of(0)[:, :1], 4, axis=1), "one-shot:prior=0")


# ---------------------------------------------------------------------- the pass itself


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draws_have_their_means(dtype) -> None:
    """Including units whose number is no multiple of the width of the loops."""
    machine = Machine(
        np.zeros((1, 131), dtype), np.zeros(1, dtype), np.linspace(-9, 9, 131).astype(dtype)
    )
    layers, rng = Layers(machine), np.random.default_rng(3)
    layer = layers.hidden(np.zeros((20_000, 1), dtype), rng)
    truth = 1 / (1 + np.exp(-machine.hidden_bias.astype(np.float64)))
    assert np.allclose(layer.mean[0], truth, rtol=3e-6)
    sigma = np.sqrt(truth * (1 - truth) / 20_000)
    assert np.all(np.abs(layer.drawn.mean(axis=0) - truth) < 4.5 * sigma + 1e-6)
    total = np.sum(np.logaddexp(0, machine.hidden_bias.astype(np.float64)))
    assert np.allclose(layer.log_sums, total, rtol=1e-6)
    centred = layer.drawn.astype(np.float64) - truth
    correlation = np.corrcoef(centred[:, 30:100].T)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 5.5 / np.sqrt(20_000)  # units are independent of each other
    middle = centred[:, 65]
    assert abs(np.mean(middle[1:] * middle[:-1])) < 4.5 * 0.25 / np.sqrt(20_000)  # and rows


def test_extreme_fields_are_never_nan() -> None:
    for dtype in (np.float32, np.float64):
        bias = np.array([-1e30, -800, -100, 0, 100, 800, 1e30], dtype)
        machine = Machine(np.zeros((1, 7), dtype), np.zeros(1, dtype), bias)
        layer = Layers(machine).hidden(np.zeros((2, 1), dtype), np.random.default_rng(0))
        assert np.isfinite(layer.mean).all() and np.isfinite(layer.log_sums).all()
        assert np.array_equal(layer.drawn[0, [0, 1, 2, 4, 5, 6]], [0, 0, 0, 1, 1, 1])


def test_every_registered_rule_of_this_file_can_be_made() -> None:
    assert set(MINE) <= set(RULES)
    for name in MINE:
        assert parse_rule(name).text == name
    assert isinstance(Machine.random(2, 1).hidden, BinaryUnits)
    assert masked("visible_weights", np.ones((2, 2)))[0, 0] == 0


@pytest.mark.parametrize("seed", range(5))
def test_contrastive_divergence_is_never_negative(seed: int) -> None:
    """KL(data | model) - KL(after n Gibbs steps | model) by enumeration: positive, larger for more
    steps, towards the first term; zero where the data have the distribution of the model.
    """
    # TEH-T28
    rng = np.random.default_rng(seed)
    machine = Machine.random(4, 3, scale=1.5, random_state=seed)
    p, _, _ = joint(machine)
    model = p.sum(axis=1)
    step = (p / model[:, None]) @ (p / p.sum(axis=0)).T  # hidden given visible, and back

    def divergence(q: np.ndarray) -> float:
        return float(np.sum(q * np.log(q / model)))

    data = rng.dirichlet(np.full(len(model), 0.3)) + 1e-12
    data /= data.sum()
    found = [
        divergence(data) - divergence(data @ np.linalg.matrix_power(step, n)) for n in (1, 2, 9)
    ]
    assert 0 < found[0] < found[1] < found[2] <= divergence(data)
    assert divergence(data) - divergence(data @ np.linalg.matrix_power(step, 2000)) == (
        pytest.approx(divergence(data), rel=1e-6)
    )
    assert abs(divergence(model) - divergence(model @ step)) < 1e-12
