"""Generators: structure, statistics, seeds and refusals."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import BudgetError, KikuchiError, ModelError
from kikuchi.graphs.binary import couplings_and_fields
from kikuchi.graphs.generators import GENERATORS
from kikuchi.graphs.shapes import grid_edges
from oracle import enumerate_exact

SMALL: dict[str, Callable[..., kk.FactorGraph]] = {
    "grid": lambda **k: kk.grid(3, 4, **k),
    "complete": lambda **k: kk.generate.complete(6, **k),
    "random": lambda **k: kk.generate.random_graph(9, 0.4, **k),
    "regular": lambda **k: kk.generate.random_regular(8, 3, **k),
    "tree": lambda **k: kk.generate.random_tree(9, **k),
    "ldpc": lambda **k: kk.generate.ldpc(12, 2, 4, **k),
    "tables": lambda **k: kk.generate.random_tables(7, 6, 3, 4, zeros=0.3, **k),
}
PAIRWISE = ["grid", "complete", "random", "regular", "tree"]


def test_every_name_of_the_command_line_has_a_generator() -> None:
    assert set(GENERATORS) == set(SMALL)
    assert GENERATORS["random"] is kk.generate.random_graph
    assert GENERATORS["tables"] is kk.generate.random_tables


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_decides_the_model(name: str) -> None:
    make = SMALL[name]
    assert make(seed=5) == make(seed=5)
    assert make(seed=5) == make(seed=np.random.default_rng(5))
    assert make() == make(seed=0)
    assert any(make(seed=5) != make(seed=s) for s in (6, 7, 8))


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("states", [2, 3, 5])
def test_pairwise_models_have_unary_factors_first_then_edges(name: str, states: int) -> None:
    graph = SMALL[name](states=states, seed=1)
    n = graph.n_variables
    assert np.all(graph.cardinalities == states)
    assert [graph.scope(a) for a in range(n)] == [(v,) for v in range(n)]
    edges = [graph.scope(a) for a in range(n, graph.n_factors)]
    assert all(len(edge) == 2 and edge[0] < edge[1] for edge in edges)
    assert len(set(edges)) == len(edges)
    assert np.isfinite(graph.log_tables).all()


@pytest.mark.parametrize("name", PAIRWISE)
def test_binary_models_are_ising_models(name: str) -> None:
    graph = SMALL[name](seed=2)
    form = couplings_and_fields(graph)
    rebuilt = kk.ising(form.couplings, form.fields)
    assert np.allclose(np.sort(rebuilt.log_tables), np.sort(graph.log_tables), atol=1e-14)
    assert form.constant == pytest.approx(0.0, abs=1e-12)


def test_coupling_and_field_are_standard_deviations() -> None:
    form = couplings_and_fields(kk.grid(150, 150, seed=3, coupling=0.3, field=2.0))
    assert np.std(form.couplings.data) == pytest.approx(0.3, rel=0.02)
    assert np.std(form.fields) == pytest.approx(2.0, rel=0.02)
    assert np.mean(form.fields) == pytest.approx(0.0, abs=0.06)
    potts = kk.grid(60, 60, seed=3, coupling=0.3, field=2.0, states=4)
    unary = potts.log_tables[: 3600 * 4]
    pair = potts.log_tables[3600 * 4 :]
    assert np.std(unary) == pytest.approx(2.0, rel=0.03)
    assert np.std(pair) == pytest.approx(0.3, rel=0.02)
    assert np.corrcoef(pair[:-1], pair[1:])[0, 1] == pytest.approx(0, abs=0.02)


def test_zero_strength_gives_uniform_models() -> None:
    for name in PAIRWISE:
        assert np.all(SMALL[name](coupling=0, field=0).log_tables == 0)


@pytest.mark.parametrize("periodic", [False, True])
def test_grid_edges_are_those_of_the_grid(periodic: bool) -> None:
    graph = kk.grid(4, 5, periodic=periodic)
    edges = [list(graph.scope(a)) for a in range(20, graph.n_factors)]
    assert edges == grid_edges(4, 5, periodic=periodic).tolist()
    assert graph.n_factors == 20 + (40 if periodic else 31)


def test_one_cell_and_one_row() -> None:
    assert kk.grid(1, 1).n_factors == 1
    assert kk.grid(1, 6).is_forest
    assert kk.generate.complete(1).n_factors == 1
    assert kk.generate.random_tree(1).n_factors == 1
    assert kk.generate.random_graph(1, 0.5).n_factors == 1
    assert kk.generate.random_regular(5, 0).n_factors == 5


def test_trees_are_connected_forests() -> None:
    for seed in range(5):
        tree = kk.generate.random_tree(40, states=3, seed=seed)
        assert tree.is_forest
        assert tree.n_components == 1


def test_regular_graphs_have_their_degree() -> None:
    graph = kk.generate.random_regular(30, 4, seed=1)
    assert np.all(np.bincount(graph.pairs().ravel()) == 4)


def test_a_million_variables_cost_little_more_than_the_model_itself() -> None:
    tracemalloc.start()
    graph = kk.grid(1000, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert graph.n_factors == 10**6 + 2 * 1000 * 999
    assert peak < 300e6
    assert peak < 2.0 * graph.nbytes


# ---------------------------------------------------------------------- codes


def parity_checks(graph: kk.FactorGraph) -> np.ndarray:
    n = graph.n_variables
    matrix = np.zeros((graph.n_factors - n, n), dtype=int)
    for a in range(n, graph.n_factors):
        matrix[a - n, list(graph.scope(a))] = 1
    return matrix


@pytest.mark.parametrize(("n", "column", "row"), [(24, 3, 6), (12, 2, 4), (20, 4, 5), (8, 1, 2)])
def test_codes_are_regular(n: int, column: int, row: int) -> None:
    graph = kk.generate.ldpc(n, column, row, seed=4)
    matrix = parity_checks(graph)
    assert matrix.shape == (n * column // row, n)
    assert np.all(matrix.sum(axis=0) == column)
    assert np.all(matrix.sum(axis=1) == row)
    for index in itertools.product([0, 1], repeat=row):
        assert graph.table(n)[index] == (sum(index) % 2 == 0)


def test_the_posterior_of_a_code_is_a_sum_over_codewords() -> None:
    graph = kk.generate.ldpc(12, 2, 4, noise=0.1, seed=1)
    matrix = parity_checks(graph)
    words = np.array(list(itertools.product([0, 1], repeat=12)))
    code = words[np.all(words @ matrix.T % 2 == 0, axis=1)]
    received = np.array([int(np.argmax(graph.table(i))) for i in range(12)])
    likelihood = np.prod(np.where(code == received, 0.9, 0.1), axis=1)
    log_z, marginals, _ = enumerate_exact(graph)
    assert log_z == pytest.approx(np.log(likelihood.sum()), abs=1e-12)
    expected = likelihood @ code / likelihood.sum()
    assert np.allclose([m[1] for m in marginals], expected, atol=1e-12)
    assert np.any(np.all(code == 0, axis=1))


def test_the_channel_flips_bits_of_the_word_of_zeros() -> None:
    graph = kk.generate.ldpc(30_000, 3, 6, noise=0.08, seed=2)
    tables = np.exp(graph.log_tables[:60_000].reshape(-1, 2))
    assert np.allclose(np.sort(tables, axis=1), [0.08, 0.92])
    assert np.mean(tables[:, 1] > 0.5) == pytest.approx(0.08, abs=0.008)


def test_a_channel_without_noise_leaves_one_word() -> None:
    graph = kk.generate.ldpc(12, 2, 4, noise=0.0)
    log_z, marginals, _ = enumerate_exact(graph)
    assert log_z == pytest.approx(0.0)
    assert all(m[0] == 1.0 for m in marginals)


# ---------------------------------------------------------------------- random tables


@pytest.mark.parametrize("seed", range(8))
def test_random_tables_keep_a_state_of_positive_weight(seed: int) -> None:
    graph = kk.generate.random_tables(6, 12, 4, 3, zeros=0.7, seed=seed)
    log_z, _, _ = enumerate_exact(graph)
    assert np.isfinite(log_z)


def test_random_tables_have_what_was_asked_for() -> None:
    graph = kk.generate.random_tables(40, 3000, 4, 5, zeros=0.25, scale=0.5, seed=9)
    assert set(np.diff(graph.scope_offsets)) == {1, 2, 3, 4}
    assert set(graph.cardinalities.tolist()) == {2, 3, 4, 5}
    zero = graph.log_tables == -np.inf
    assert zero.mean() == pytest.approx(0.25, abs=0.02)
    assert np.std(graph.log_tables[~zero]) == pytest.approx(0.5, rel=0.02)
    used = np.bincount(graph.scopes, minlength=40)
    assert used.min() > 0.7 * used.mean()
    assert np.isfinite(kk.generate.random_tables(5, 4, 5, 2, seed=0).log_tables).all()
    assert kk.generate.random_tables(3, 0, 2, 2).n_factors == 0


def test_scopes_are_uniform_over_ordered_sets() -> None:
    graph = kk.generate.random_tables(4, 40_000, 2, 2, seed=10)
    orders = np.diff(graph.scope_offsets)
    starts = graph.scope_offsets[:-1][orders == 2]
    pairs = graph.scopes[starts] * 4 + graph.scopes[starts + 1]
    counts = np.bincount(pairs, minlength=16).reshape(4, 4)
    off_diagonal = counts[~np.eye(4, dtype=bool)]
    assert np.all(np.diag(counts) == 0)
    assert off_diagonal.min() > 0.9 * off_diagonal.mean()


# ---------------------------------------------------------------------- refusals

BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: kk.grid(0, 3), "rows must be an integer of at least 1, got 0"),
    (lambda: kk.grid(3, -1), "cols must be"),
    (lambda: kk.grid(3.5, 2), "rows must be an integer"),  # type: ignore[arg-type]
    (lambda: kk.grid("3", 2), "rows must be an integer"),  # type: ignore[arg-type]
    (lambda: kk.grid(True, 2), "rows must be an integer"),
    (lambda: kk.grid(2, 5, periodic=True), "at least 3 rows and 3 columns, got 2 x 5"),
    (lambda: kk.grid(2, 2, states=1), "states must be"),
    (lambda: kk.grid(2, 2, coupling=-1.0), "coupling is a standard deviation"),
    (lambda: kk.grid(2, 2, field=float("nan")), "field is a standard deviation"),
    (lambda: kk.grid(2, 2, field=float("inf")), "field is a standard deviation"),
    (lambda: kk.grid(2, 2, coupling="x"), "coupling must be a number"),  # type: ignore[arg-type]
    (lambda: kk.grid(2, 2, seed=-1), "seed must be a non-negative integer"),
    (lambda: kk.generate.complete(0), "n must be"),
    (lambda: kk.generate.random_graph(5, 1.5), "p must be a probability"),
    (lambda: kk.generate.random_graph(5, float("nan")), "p must be a probability"),
    (lambda: kk.generate.random_regular(5, 3), "n \\* degree even"),
    (lambda: kk.generate.random_regular(4, 4), "degree must be below n"),
    (lambda: kk.generate.random_regular(4, -1), "degree must be"),
    (lambda: kk.generate.random_tree(0), "n must be"),
    (lambda: kk.generate.ldpc(10, 3, 6), "multiple of row_weight 6, got 10"),
    (lambda: kk.generate.ldpc(12, 0, 6), "column_weight must be"),
    (lambda: kk.generate.ldpc(12, 3, 1), "row_weight must be"),
    (lambda: kk.generate.ldpc(12, 3, 6, noise=0.6), "noise must be"),
    (lambda: kk.generate.random_tables(3, 2, 4, 2), "max_order 4 is more than the 3"),
    (lambda: kk.generate.random_tables(3, 2, 2, 1), "max_states must be"),
    (lambda: kk.generate.random_tables(3, 2, 2, 2, zeros=1.0), "zeros must be"),
    (lambda: kk.generate.random_tables(3, 2, 2, 2, scale=-1.0), "scale is a standard deviation"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_impossible_parameters_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(KikuchiError, match=message):
        make()


TOO_LARGE: list[Callable[[], object]] = [
    lambda: kk.grid(40_000, 40_000, states=40),
    lambda: kk.generate.complete(10**8),
    lambda: kk.generate.random_graph(10**8, 0.5),
    lambda: kk.generate.ldpc(600, 3, 60),
    lambda: kk.generate.random_tables(100, 10, 90, 9),
    lambda: kk.generate.random_tables(2000, 5, 1500, 9),
]


@pytest.mark.parametrize("make", TOO_LARGE)
def test_models_that_no_machine_holds_are_refused_before_they_are_built(
    make: Callable[[], object],
) -> None:
    tracemalloc.start()
    with pytest.raises(BudgetError, match=r"the model needs .* but this machine has"):
        make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6


def test_too_many_variables_to_number() -> None:
    with pytest.raises(ModelError, match="too many"):
        kk.grid(10**6, 10**6)
