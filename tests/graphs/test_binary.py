"""Ising and Boltzmann models against their formulas, on every state."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

from kikuchi import FactorGraph, boltzmann_graph, ising
from kikuchi.core.errors import ModelError
from kikuchi.graphs.binary import bits_to_spins, couplings_and_fields, spins_to_bits
from oracle import enumerate_exact


def all_bits(n: int) -> np.ndarray:
    return np.array(list(itertools.product([0, 1], repeat=n)))


def symmetric(rng: np.random.Generator, n: int, density: float = 0.6) -> np.ndarray:
    upper = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < density), 1)
    return upper + upper.T


def as_mapping(matrix: np.ndarray) -> dict[tuple[int, int], float]:
    first, second = np.nonzero(np.triu(matrix, 1))
    return {(int(i), int(j)): float(matrix[i, j]) for i, j in zip(first, second, strict=True)}


KINDS = {
    "dense": lambda m: m,
    "lists": lambda m: m.tolist(),
    "csr": sparse.csr_array,
    "coo": sparse.coo_array,
    "matrix": sparse.csr_matrix,
    "mapping": as_mapping,
}


@pytest.mark.parametrize("kind", KINDS)
def test_ising_has_the_weights_of_its_formula(kind: str) -> None:
    rng = np.random.default_rng(1)
    J, h = symmetric(rng, 6), rng.normal(size=6)
    states = all_bits(6)
    s = 2 * states - 1
    expected = 0.5 * np.einsum("ni,ij,nj->n", s, J, s) + s @ h
    graph = ising(KINDS[kind](J), h)
    assert np.allclose(graph.log_score(states), expected, atol=1e-12)
    assert graph == ising(J, h)


@pytest.mark.parametrize("kind", KINDS)
def test_boltzmann_has_the_weights_of_its_formula(kind: str) -> None:
    rng = np.random.default_rng(2)
    W, b = symmetric(rng, 6), rng.normal(size=6)
    x = all_bits(6)
    expected = 0.5 * np.einsum("ni,ij,nj->n", x, W, x) + x @ b
    graph = boltzmann_graph(KINDS[kind](W), b)
    assert np.allclose(graph.log_score(x), expected, atol=1e-12)
    assert graph == boltzmann_graph(W, b)


def test_tables_are_those_of_the_pairwise_network() -> None:
    graph = boltzmann_graph({(1, 0): 0.7}, [0.2, -0.3], names=["u", "v"])
    assert graph.names == ("u", "v")
    assert [graph.scope(a) for a in range(3)] == [(0,), (1,), (0, 1)]
    assert np.allclose(graph.table(0), [1, np.exp(0.2)])
    assert np.allclose(graph.table(2), [[1, 1], [1, np.exp(0.7)]])


def test_edges_come_in_lexicographic_order_whatever_the_input() -> None:
    graph = ising({(3, 1): 1.0, (2, 0): 2.0, (0, 1): 3.0})
    assert [graph.scope(a) for a in range(4, 7)] == [(0, 1), (0, 2), (1, 3)]


def test_stored_zeros_make_an_edge_and_dense_zeros_do_not() -> None:
    stored = sparse.coo_array(([0.0, 0.0], ([0, 1], [1, 0])), shape=(2, 2))
    assert ising(stored).n_factors == 3
    assert ising({(0, 1): 0.0}).n_factors == 3
    assert ising(np.zeros((2, 2))).n_factors == 2


def test_fields_may_be_one_number_or_none() -> None:
    J = symmetric(np.random.default_rng(0), 4)
    assert ising(J, 0.3) == ising(J, np.full(4, 0.3))
    assert ising(J) == ising(J, np.zeros(4))
    assert boltzmann_graph({(0, 2): 1.0}, 0.5).n_variables == 3
    assert ising({}, [1.0, 2.0]).n_factors == 2


def test_a_diagonal_only_adds_a_constant_for_spins() -> None:
    rng = np.random.default_rng(3)
    J, h, d = symmetric(rng, 5), rng.normal(size=5), rng.normal(size=5)
    plain, loaded = ising(J, h), ising(J + np.diag(d), h)
    z0, marginals0, _ = enumerate_exact(plain)
    z1, marginals1, _ = enumerate_exact(loaded)
    assert np.allclose(np.array(marginals0), np.array(marginals1), atol=1e-14)
    assert z1 - z0 == pytest.approx(d.sum() / 2, abs=1e-12)
    assert ising(sparse.csr_array(J + np.diag(d)), h).log_constant == pytest.approx(d.sum() / 2)


def test_a_quadratic_form_with_the_sign_of_the_simulations() -> None:
    """LIU-M6: exp(-x'Jx - b'x) has couplings -2J and fields -b."""
    rng = np.random.default_rng(4)
    J, b = symmetric(rng, 5) + np.diag(rng.normal(size=5)), rng.normal(size=5)
    states = all_bits(5)
    s = 2 * states - 1
    expected = -np.einsum("ni,ij,nj->n", s, J, s) - s @ b
    assert np.allclose(ising(-2 * J, -b).log_score(states), expected, atol=1e-12)


def test_a_bias_is_a_coupling_to_a_clamped_unit() -> None:
    """HOJ-M4: s_0 = +1 with J_i0 = theta_i."""
    rng = np.random.default_rng(5)
    J, h = symmetric(rng, 4), rng.normal(size=4)
    bigger = np.zeros((5, 5))
    bigger[1:, 1:] = J
    bigger[0, 1:] = bigger[1:, 0] = h
    clamped = ising(bigger).condition({0: 1}).graph
    states = all_bits(4)
    assert np.allclose(clamped.log_score(states), ising(J, h).log_score(states), atol=1e-12)


def test_evidence_moves_into_the_biases() -> None:
    """TEH-M4: drop unit k, add W_ik x_k to b_i."""
    rng = np.random.default_rng(6)
    W, b = symmetric(rng, 5, density=1.0), rng.normal(size=5)
    rest = [0, 1, 3, 4]
    for k_state in (0, 1):
        reduced = boltzmann_graph(W, b).condition({2: k_state}).graph
        smaller = boltzmann_graph(W[np.ix_(rest, rest)], b[rest] + W[rest, 2] * k_state)
        x = all_bits(4)
        expected = smaller.log_score(x) + b[2] * k_state
        assert np.allclose(reduced.log_score(x), expected, atol=1e-12)


def test_balanced_biases_give_means_of_one_half() -> None:
    """TEH-T19: if b_i = -sum_j W_ij / 2 then p(x) = p(1 - x)."""
    W = symmetric(np.random.default_rng(7), 7) * 3
    _, marginals, _ = enumerate_exact(boltzmann_graph(W, -W.sum(axis=1) / 2))
    assert np.allclose([m[1] for m in marginals], 0.5, atol=1e-12)


def test_golden_four_cycles() -> None:
    """TEH-I8, exact values."""
    weights = {(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (3, 0): 3.0}
    log_z, marginals, _ = enumerate_exact(boltzmann_graph(weights, [0.1, -0.4, 0.3, -1.0]))
    assert log_z == pytest.approx(4.8426189099, abs=1e-10)
    expected = [0.9575057988, 0.6467309922, 0.5467118548, 0.8979366102]
    assert np.allclose([m[1] for m in marginals], expected, atol=1e-10)
    same = {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0, (0, 3): 1.0}
    log_z, marginals, _ = enumerate_exact(boltzmann_graph(same, -0.8))
    assert log_z == pytest.approx(2.3324522506, abs=1e-10)
    assert marginals[0][1] == pytest.approx(0.5809227661, abs=1e-10)


# ---------------------------------------------------------------------- spins and bits


@pytest.mark.parametrize("kind", KINDS)
def test_spins_and_bits_are_equal_on_every_state(kind: str) -> None:
    rng = np.random.default_rng(8)
    J, h = symmetric(rng, 6), rng.normal(size=6)
    states = all_bits(6)
    in_spins = ising(J, h).log_score(states)
    W, b, constant = spins_to_bits(KINDS[kind](J), h)
    assert np.allclose(boltzmann_graph(W, b).log_score(states) + constant, in_spins, atol=1e-12)
    J2, h2, back = bits_to_spins(W, b)
    assert np.allclose(ising(J2, h2).log_score(states) + constant + back, in_spins, atol=1e-12)
    assert back == pytest.approx(-constant, abs=1e-12)
    assert np.allclose(h2, h, atol=1e-12)


def test_conversion_keeps_the_kind_of_couplings() -> None:
    J = symmetric(np.random.default_rng(9), 5)
    h = np.zeros(5)
    dense = spins_to_bits(J, h)[0]
    assert isinstance(dense, np.ndarray)
    assert np.array_equal(dense, 4 * J)
    assert sparse.issparse(spins_to_bits(sparse.csr_array(J), h)[0])
    assert spins_to_bits({(2, 0): 0.5}, np.zeros(3))[0] == {(0, 2): 2.0}


def test_conversion_counts_the_diagonal_of_spins() -> None:
    J = np.array([[2.0, 1.0], [1.0, -5.0]])
    W, b, constant = spins_to_bits(J, [0.3, 0.4])
    states = all_bits(2)
    expected = ising(J, [0.3, 0.4]).log_score(states)
    assert np.allclose(boltzmann_graph(W, b).log_score(states) + constant, expected, atol=1e-12)


# ---------------------------------------------------------------------- reading couplings off


def random_positive(rng: np.random.Generator, n: int, n_factors: int) -> FactorGraph:
    factors = []
    for _ in range(n_factors):
        order = int(rng.integers(1, 3))
        scope = [int(v) for v in rng.choice(n, size=order, replace=False)]
        factors.append((scope, np.exp(rng.normal(size=(2,) * order))))
    return FactorGraph([2] * n, factors, log_constant=float(rng.normal()))


@pytest.mark.parametrize("seed", range(10))
def test_couplings_of_any_positive_binary_pairwise_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_positive(rng, 5, 14)
    form = couplings_and_fields(graph)
    states = all_bits(5)
    rebuilt = ising(form.couplings, form.fields).log_score(states) + form.constant
    assert np.allclose(rebuilt, graph.log_score(states), atol=1e-12)
    assert np.allclose(form.couplings.toarray(), form.couplings.toarray().T)


def test_couplings_come_back_as_they_went_in() -> None:
    rng = np.random.default_rng(11)
    J, h = symmetric(rng, 8), rng.normal(size=8)
    form = couplings_and_fields(ising(J, h))
    assert np.allclose(form.couplings.toarray(), J, atol=1e-15)
    assert np.allclose(form.fields, h, atol=1e-15)
    assert form.constant == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (FactorGraph([2, 3], [((0, 1), np.ones(6))]), "variable 1 has 3 states"),
        (FactorGraph([2] * 3, [((0,), [1, 1]), ((0, 1, 2), np.ones(8))]), "factor 1 has 3 variab"),
        (FactorGraph([2] * 2, [((0,), [1, 1]), ((0, 1), [1, 0, 1, 1])]), "factor 1 has a zero"),
    ],
)
def test_models_without_couplings_are_refused(graph: FactorGraph, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        couplings_and_fields(graph)


# ---------------------------------------------------------------------- bad input

BAD = [
    (np.zeros((2, 3)), None, "square"),
    (np.zeros(4), None, "square"),
    (sparse.csr_array((2, 3)), None, "square"),
    ([[0.0, 1.0], [0.0, 0.0]], None, "not symmetric"),
    ([[0.0, 0.0], [1.0, 0.0]], None, "not symmetric"),
    ([[0.0, 1.0], [1.1, 0.0]], None, "not symmetric"),
    (sparse.csr_array([[0.0, 1.0], [0.0, 0.0]]), None, "not symmetric"),
    (sparse.csr_array([[0.0, 1.0], [2.0, 0.0]]), None, "not symmetric"),
    ([[0.0, np.nan], [np.nan, 0.0]], None, r"\[0, 1\] is nan; it must be finite"),
    ({(0, 1): np.inf}, None, "must be finite"),
    ([[np.inf, 0.0], [0.0, 0.0]], None, "diagonal"),
    ({(0, 0): 1.0}, None, "with itself"),
    ({(0, 1): 1.0, (1, 0): 1.0}, None, "twice"),
    ({(0, 1, 2): 1.0}, None, "not a pair"),
    ({(0, -1): 1.0}, None, "not a pair"),
    ({("a", "b"): 1.0}, None, "not a pair"),
    ({(0, 1): "x"}, None, "must be numbers"),
    ({(0, 1): [1.0, 2.0]}, None, "one number"),
    ({(0, 5): 1.0}, [0.0, 0.0], "only 2 fields"),
    (np.zeros((2, 2)), [1.0], "each of 2 variables"),
    (np.zeros((2, 2)), [1.0, np.nan], r"\[1\] is nan"),
    (np.zeros((2, 2)), ["a", "b"], "must be numbers"),
    ("text", None, "must be numbers"),
]


@pytest.mark.parametrize(("couplings", "fields", "message"), BAD)
@pytest.mark.parametrize("build", [ising, boltzmann_graph])
def test_bad_couplings_are_refused(build, couplings, fields, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build(couplings, fields)


def test_a_diagonal_is_refused_for_bits() -> None:
    with pytest.raises(ModelError, match=r"weights\[1, 1\] is 2; for bits the diagonal"):
        boltzmann_graph(np.diag([0.0, 2.0]))
    with pytest.raises(ModelError, match="diagonal"):
        bits_to_spins(np.diag([0.0, 2.0]))
