"""Implicit gradients against finite differences and enumeration."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import (
    DataError,
    ImpossibleEvidenceError,
    KikuchiError,
    MethodError,
    MissingExtraError,
    ModelError,
)
from kikuchi.engines.response.linear_response import CRITICAL
from kikuchi.engines.response.reweighted import ReweightedResponse
from kikuchi.neural import (
    beliefs,
    chain_graph,
    crf_loss,
    factor_beliefs,
    grid_graph,
    log_z,
    marginals,
    numpyro_factor,
    pairwise_tables,
    torch_beliefs,
)
from oracle import enumerate_exact, random_model

jax = pytest.importorskip("jax")
jnp = jax.numpy

METHODS = [
    "jt",
    "bp:tol=1e-13,damping=0.2",
    "trw:tol=1e-13",
    "kikuchi:regions=faces,tol=1e-12",
    "gbp:regions=faces,tol=1e-12",
    "mf:tol=1e-14",
]
GENERAL = ["jt", "bp:tol=1e-13,damping=0.3", "trw:tol=1e-13", "kikuchi:tol=1e-13", "mf:tol=1e-14"]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def difference(f: Callable[[Any], Any], at: np.ndarray, along: np.ndarray) -> np.ndarray:
    step = 1e-5
    high, low = f(at + step * along), f(at - step * along)
    return np.asarray((np.asarray(high) - np.asarray(low)) / (2 * step))


def direction(graph: kk.FactorGraph, seed: int = 0) -> np.ndarray:
    along = np.random.default_rng(seed).normal(size=graph.log_tables.size)
    along[~np.isfinite(graph.log_tables)] = 0.0
    return along


@pytest.mark.parametrize("method", METHODS)
def test_gradients_on_a_grid_equal_finite_differences(method: str) -> None:
    graph = kk.grid(3, 3, seed=1, coupling=0.5)
    weights = np.random.default_rng(2).normal(size=18)
    pairs = np.random.default_rng(3).normal(size=graph.log_tables.size)

    def loss(tables: Any) -> Any:
        answer = beliefs(graph.with_log_tables(tables), method)
        return jnp.sin(answer.marginals @ weights) + answer.log_z * (answer.factors @ pairs)

    value, slopes = jax.jit(loss), jax.jit(jax.grad(loss))(graph.log_tables)
    for seed in range(3):
        along = direction(graph, seed)
        assert abs(slopes @ along - difference(value, graph.log_tables, along)) < 1e-6


@pytest.mark.parametrize("method", GENERAL)
@pytest.mark.parametrize("seed", range(2))
def test_gradients_on_random_models_with_zeros(method: str, seed: int) -> None:
    graph = random_model(np.random.default_rng(seed), zeros=0.2 if seed % 2 else 0.0)
    if not kk.infer(graph, method).converged:
        pytest.skip("no fixed point here")
    weights = np.random.default_rng(5).normal(size=int(graph.state_offsets[-1]))

    def loss(tables: Any) -> Any:
        answer = beliefs(graph.with_log_tables(tables), method)
        return answer.log_z + jnp.tanh(answer.marginals @ weights)

    along = direction(graph, seed)
    slope = jax.jit(jax.grad(loss))(graph.log_tables) @ along
    assert abs(slope - difference(jax.jit(loss), graph.log_tables, along)) < 1e-6


def test_gradient_of_log_z_is_the_factor_beliefs_of_enumeration() -> None:
    graph = random_model(np.random.default_rng(7), zeros=0.1)
    exact, singles, factors = enumerate_exact(graph)
    value, slope = jax.value_and_grad(lambda t: log_z(graph.with_log_tables(t), "jt"))(
        graph.log_tables
    )
    assert value + graph.log_constant == pytest.approx(exact, abs=1e-10)
    np.testing.assert_allclose(slope, np.concatenate([np.ravel(f) for f in factors]), atol=1e-10)
    flat = np.concatenate(singles)
    np.testing.assert_allclose(marginals(graph, "jt"), flat, atol=1e-10)


@pytest.mark.parametrize("method", ["jt", "bp:tol=1e-13", "kikuchi:regions=faces,tol=1e-12"])
def test_hessian_of_log_z_is_symmetric_and_the_derivative_of_the_beliefs(method: str) -> None:
    graph = kk.grid(2, 3, seed=4, coupling=0.5)
    hessian = jax.jacrev(jax.grad(lambda t: log_z(graph.with_log_tables(t), method)))(
        graph.log_tables
    )
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-9)
    along = direction(graph)
    slopes = difference(
        lambda t: factor_beliefs(graph.with_log_tables(t), method), graph.log_tables, along
    )
    np.testing.assert_allclose(hessian @ along, slopes, atol=1e-6)


def test_exact_hessian_is_the_covariance_of_states() -> None:
    graph = kk.grid(2, 2, seed=3)
    covariance = kk.infer(graph, "jt").covariance()
    slopes = jax.jacrev(lambda t: marginals(graph.with_log_tables(t), "jt"))(graph.log_tables)
    fields = [a for a in range(graph.n_factors) if len(graph.scope(a)) == 1]
    order = {graph.scope(a)[0]: a for a in fields}
    columns = np.concatenate(
        [
            np.arange(graph.table_offsets[order[v]], graph.table_offsets[order[v] + 1])
            for v in range(4)
        ]
    )
    np.testing.assert_allclose(np.asarray(slopes)[:, columns], covariance, atol=1e-10)


def test_batches_under_jit_equal_single_calls() -> None:
    graph = kk.grid(3, 3, seed=1, coupling=0.5)
    batch = np.stack([graph.log_tables, 0.5 * graph.log_tables, -graph.log_tables])

    def loss(tables: Any) -> Any:
        return marginals(graph.with_log_tables(tables), "bp")[3] ** 2

    together = jax.jit(jax.vmap(jax.value_and_grad(loss)))(batch)
    for row, value, slope in zip(batch, *together, strict=True):
        single = jax.value_and_grad(loss)(row)
        assert value == pytest.approx(float(single[0]), abs=1e-9)
        np.testing.assert_allclose(slope, single[1], atol=1e-8)


def test_evidence_reduces_inside_the_gradient() -> None:
    graph = kk.grid(3, 3, seed=2)
    evidence = {0: 1, 4: 0}
    assert log_z(graph, "jt", evidence=evidence) == pytest.approx(
        kk.infer(graph, "jt", evidence=evidence).log_z, abs=1e-10
    )
    answer = beliefs(graph, "jt", evidence=evidence)
    exact = kk.infer(graph, "jt", evidence=evidence)
    np.testing.assert_allclose(answer.marginals, exact.flat_marginals, atol=1e-10)
    np.testing.assert_allclose(answer.factors, exact.flat_factors, atol=1e-10)
    f = lambda t: log_z(graph.with_log_tables(t), "jt", evidence=evidence)  # noqa: E731
    along = direction(graph)
    assert jax.grad(f)(graph.log_tables) @ along == pytest.approx(
        float(difference(f, graph.log_tables, along)), abs=1e-7
    )
    np.testing.assert_allclose(jax.grad(f)(graph.log_tables), exact.flat_factors, atol=1e-10)


def test_large_tables_keep_their_digits_under_jit() -> None:
    """Callbacks of large arrays run in another thread, where the 64-bit context does not hold."""
    graph = kk.grid(40, 40, seed=1, coupling=0.2)
    value, slope = jax.jit(
        jax.value_and_grad(lambda t: marginals(graph.with_log_tables(t), "bp")[1::2].sum())
    )(graph.log_tables)
    assert slope.dtype == np.float64
    exact = kk.infer(graph, "bp").flat_marginals[1::2].sum()
    assert abs(float(value) - exact) < 1e-9 * exact


def test_memory_does_not_grow_with_sweeps() -> None:
    graph = kk.grid(6, 6, seed=1, coupling=0.8)

    def peak(damping: float) -> tuple[int, int]:
        method = f"bp:damping={damping},max_iter=100000"
        f = jax.grad(lambda t: marginals(graph.with_log_tables(t), method)[0])
        f(graph.log_tables)
        tracemalloc.start()
        f(graph.log_tables + 1e-3)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used, kk.infer(graph, method).iterations

    (few, short), (many, long) = peak(0.2), peak(0.95)
    assert long > 8 * short
    assert many < 2 * few + 200_000  # the trace of the run has a few numbers per step


# ---------------------------------------------------------------------- refusals


def test_no_gradient_of_what_has_not_converged() -> None:
    graph = kk.grid(4, 4, seed=1)
    with pytest.raises(KikuchiError, match="did not converge"):
        log_z(graph, "bp:max_iter=1")
    with pytest.raises(Exception, match="did not converge"):
        jax.jit(jax.grad(lambda t: log_z(graph.with_log_tables(t), "bp:max_iter=1")))(
            graph.log_tables
        )


@pytest.mark.parametrize(
    "method",
    ["trw:max_iter=1", "kikuchi:regions=faces,max_iter=1", "mf:max_iter=1"],
)
def test_beliefs_that_have_not_converged_are_refused_by_every_method(method: str) -> None:
    graph = kk.grid(4, 4, seed=1)
    with pytest.raises(KikuchiError, match="did not converge"):
        marginals(graph, method)
    with pytest.raises(Exception, match="did not converge"):
        jax.grad(lambda t: marginals(graph.with_log_tables(t), method)[0])(graph.log_tables)


def test_one_bad_row_of_a_batch_is_refused() -> None:
    """No row of a batch is answered as if all were well."""
    graph = kk.grid(3, 3, seed=1, coupling=0.5)
    strong = kk.grid(3, 3, seed=1, coupling=8.0, field=0.01).log_tables
    method = "bp:max_iter=30"
    batched = jax.vmap(lambda t: log_z(graph.with_log_tables(t), method))
    assert np.all(np.isfinite(batched(np.stack([graph.log_tables, 0.5 * graph.log_tables]))))
    with pytest.raises(Exception, match="did not converge"):  # JAX may say so when it is read
        np.asarray(batched(np.stack([graph.log_tables, strong])))
    with pytest.raises(Exception, match="network's scores must be finite"):
        np.asarray(batched(np.stack([graph.log_tables, graph.log_tables * np.nan])))


def test_one_response_serves_all_cotangents(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Jacobian of the marginals factors its system once."""
    built = []
    whole = ReweightedResponse.__init__

    def counted(self: Any, *arguments: Any) -> None:
        built.append(1)
        whole(self, *arguments)

    monkeypatch.setattr(ReweightedResponse, "__init__", counted)
    graph = kk.grid(3, 3, seed=8, coupling=0.4)
    slopes = jax.jacrev(lambda t: marginals(graph.with_log_tables(t), "bp"))(graph.log_tables)
    assert slopes.shape == (18, graph.log_tables.size) and len(built) == 1


def test_calls_of_one_structure_compile_once() -> None:
    """New tables, and a graph built anew with the same scopes, need no new compilation."""
    counted = []

    @jax.jit
    def loss(tables: Any) -> Any:
        counted.append(1)
        return log_z(kk.grid(2, 3).with_log_tables(tables), "bp")

    for seed in range(3):
        loss(kk.grid(2, 3, seed=seed, coupling=0.3).log_tables)
    assert len(counted) == 1


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("gibbs", "no implicit gradient"),
        ("bp:mode=max", "most probable state"),
        ("kikuchi:solver=penalty", "double-loop"),
    ],
)
def test_methods_without_a_fixed_point_are_refused(method: str, says: str) -> None:
    with pytest.raises(KikuchiError, match=says):
        log_z(kk.grid(2, 2), method)


def test_optimised_appearances_have_a_gradient_of_log_z_only() -> None:
    graph = kk.grid(3, 3, seed=1, coupling=0.5)
    method = "trw:appearances=optimised"
    slope = jax.grad(lambda t: log_z(graph.with_log_tables(t), method))(graph.log_tables)
    assert slope.shape == graph.log_tables.shape
    with pytest.raises(Exception, match="depend on the tables"):
        jax.grad(lambda t: marginals(graph.with_log_tables(t), method)[0])(graph.log_tables)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_named(bad: float) -> None:
    graph = kk.grid(2, 2)
    tables = graph.log_tables.copy()
    tables[graph.table_offsets[5] + 1] = bad
    with pytest.raises(Exception, match=r"factor 5, entry .*network's scores must be finite"):
        jax.jit(lambda t: log_z(graph.with_log_tables(t), "bp"))(tables)


def test_traced_tables_are_refused_where_numbers_are_needed() -> None:
    graph = kk.grid(2, 2)
    with pytest.raises(ModelError, match="traced by JAX"):
        jax.grad(lambda t: kk.infer(graph.with_log_tables(t), "bp").log_z)(graph.log_tables)
    with pytest.raises(ModelError, match="one number per table entry"):
        jax.jit(lambda t: log_z(graph.with_log_tables(t), "bp"))(np.zeros(3))


def test_a_critical_point_is_refused() -> None:
    ring = [((i, (i + 1) % 3), [[1.0, 0.0], [0.0, 1.0]]) for i in range(3)]
    graph = kk.FactorGraph([2] * 3, [*ring, ((0,), [1.0, 1.0])])
    with pytest.raises(Exception, match=CRITICAL[:30]):
        jax.grad(lambda t: marginals(graph.with_log_tables(t), "bp")[0])(graph.log_tables)


# ---------------------------------------------------------------------- on top of networks


def test_crf_loss_is_minus_the_log_likelihood_of_enumeration() -> None:
    rng = np.random.default_rng(0)
    graph = grid_graph(2, 3, 3)
    tables = pairwise_tables(graph, rng.normal(size=(6, 3)), rng.normal(size=(7, 3, 3)))
    labels = np.array([0, 2, 1, 1, 0, 2])
    whole = graph.with_log_tables(np.asarray(tables))
    expected = enumerate_exact(whole)[0] - whole.log_score(labels)
    assert float(crf_loss(graph, tables, labels)) == pytest.approx(expected, abs=1e-10)
    assert chain_graph(4, 2).is_forest


def test_crf_inputs_are_checked() -> None:
    graph = chain_graph(3, 2)
    with pytest.raises(kk.KikuchiError, match="scores must have shapes"):
        pairwise_tables(graph, np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(kk.KikuchiError, match="labels must be 3 whole numbers"):
        crf_loss(graph, np.zeros(14), np.zeros(3))
    with pytest.raises(ModelError, match="at least one variable"):
        chain_graph(0, 2)


@pytest.mark.parametrize(
    "factors", [[(0, 1), (0,), (1,)], [(1,), (0,), (0, 1)], [(0, 1)], [(0,), (1,), (1,)]]
)
def test_scores_are_not_laid_out_for_other_structures(factors: list[tuple[int, ...]]) -> None:
    """Pairs before variables had the scores of the one in the tables of the other."""
    graph = kk.FactorGraph([2, 2], [(scope, np.ones((2,) * len(scope))) for scope in factors])
    with pytest.raises(ModelError, match="make the structure with chain_graph or grid_graph"):
        pairwise_tables(graph, np.zeros((2, 2)), np.zeros((2, 2)))


def test_numpyro_samples_the_posterior_of_a_coupling() -> None:
    numpyro = pytest.importorskip("numpyro")
    graph = chain_graph(6, 2)
    labels = np.array([0, 0, 0, 1, 1, 1])

    def model() -> None:
        strength = numpyro.sample("strength", numpyro.distributions.Normal(0.0, 1.0))
        tables = pairwise_tables(graph, jnp.zeros((6, 2)), strength * jnp.eye(2))
        numpyro_factor("labels", graph, tables, labels)

    log_density: Any = numpyro.infer.util.log_density
    grid = np.linspace(-3, 4, 15)
    found = np.array([float(log_density(model, (), {}, {"strength": s})[0]) for s in grid])
    # five pairs: four equal, one apart; log Z = 6 log 2 + 5 log((e^s + 1) / 2)
    expected = -0.5 * grid**2 - 0.5 * np.log(2 * np.pi) + 4 * grid
    expected -= np.log(2) + 5 * np.log(np.exp(grid) + 1)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_a_third_derivative_is_refused_in_words() -> None:
    graph = kk.grid(2, 2, seed=0)
    second = jax.jacrev(jax.grad(lambda t: log_z(graph.with_log_tables(t), "bp")))
    assert second(graph.log_tables).shape == (24, 24)
    with pytest.raises(MethodError, match="log Z can be differentiated twice"):
        jax.jacrev(second)(graph.log_tables)
    first = jax.grad(lambda t: marginals(graph.with_log_tables(t), "bp")[0])
    with pytest.raises(MethodError, match="marginals and factor beliefs once"):
        jax.jacrev(first)(graph.log_tables)


@pytest.mark.parametrize("method", ["jt", "bp", "kikuchi", "mf"])
@pytest.mark.parametrize("tables", [[-np.inf, 0, 0, 0, 0, 0], [0, 0, -np.inf, -np.inf, 0, 0]])
def test_impossible_evidence_is_refused(method: str, tables: list[float]) -> None:
    graph = kk.FactorGraph([2, 2], [((0,), [1, 1]), ((0, 1), [[1, 2], [3, 4]])])
    tables = np.array(tables)
    for asked in (log_z, marginals):
        with pytest.raises(ImpossibleEvidenceError, match="check the observed states"):
            asked(graph.with_log_tables(tables), method, evidence={0: 0})
        traced = jax.jit(lambda t, f=asked: f(graph.with_log_tables(t), method, evidence={0: 0}))
        with pytest.raises(jax.errors.JaxRuntimeError, match="check the observed states"):
            jax.block_until_ready(traced(tables))


def test_numbers_that_are_none_are_named_in_the_whole_graph() -> None:
    graph = kk.FactorGraph([2, 2], [((0,), [1, 1]), ((0, 1), [[1, 2], [3, 4]])])
    traced = jax.jit(lambda t: log_z(graph.with_log_tables(t), evidence={0: 1}))
    for place, name in ((1, r"factor 0, entry \(1,\)"), (5, r"factor 1, entry \(1, 1\)")):
        tables = graph.log_tables.copy()
        tables[place] = np.nan
        with pytest.raises(jax.errors.JaxRuntimeError, match=name):
            jax.block_until_ready(traced(tables))


@pytest.mark.parametrize("label", [-1, 2])
def test_labels_that_are_no_states_are_refused(label: int) -> None:
    graph, labels = chain_graph(3, 2), np.array([0, 1, label])
    with pytest.raises(DataError, match=f"label {label} of variable 2, which has states 0 to 1"):
        crf_loss(graph, np.zeros(14), labels)
    traced = jax.jit(lambda found: crf_loss(graph, np.zeros(14), found))
    assert np.isposinf(traced(labels))
    assert np.isfinite(traced(np.array([0, 1, 1])))


def test_a_grid_of_negative_size_is_refused() -> None:
    with pytest.raises(ModelError, match="at least one variable"):
        grid_graph(-1, -1, 2)


@pytest.mark.parametrize("method", ["jt", "bp:tol=1e-13"])
@pytest.mark.parametrize("graph", [chain_graph(4, 3), kk.grid(2, 3, seed=1, coupling=0.5)])
def test_a_batch_of_torch_tables_equals_single_calls(graph: kk.FactorGraph, method: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    batch = torch.tensor(rng.normal(size=(2, 3, graph.log_tables.size)), requires_grad=True)
    states, pairs = (
        torch.tensor(rng.normal(size=n)) for n in (graph.state_offsets[-1], batch.shape[-1])
    )

    def loss(parts: Any) -> Any:
        value, flat, factors = parts
        return (torch.sin(value) + torch.sin(flat @ states) * (factors @ pairs)).sum()

    together = torch_beliefs(graph, batch, method)
    assert [tuple(part.shape) for part in together] == [
        (2, 3), (2, 3, int(graph.state_offsets[-1])), (2, 3, graph.log_tables.size)
    ]  # fmt: skip
    loss(together).backward()
    for row, slope in zip(batch.detach().reshape(6, -1), batch.grad.reshape(6, -1), strict=True):
        alone = row.clone().requires_grad_()
        loss(torch_beliefs(graph, alone, method)).backward()
        np.testing.assert_allclose(slope.numpy(), alone.grad.numpy(), atol=1e-9)
    with pytest.raises(ModelError, match="row 0, factor 0, entry"):
        torch_beliefs(chain_graph(4, 3), torch.full((2, 39), torch.nan))


def test_torch_is_asked_for_by_name() -> None:
    if find_spec("torch") is not None:
        pytest.skip("PyTorch is here")
    with pytest.raises(MissingExtraError, match="pip install torch"):
        torch_beliefs(kk.grid(2, 2), np.zeros(3))


@pytest.mark.parametrize("method", METHODS)
def test_torch_gradients_equal_finite_differences(method: str) -> None:
    torch = pytest.importorskip("torch")
    graph = kk.grid(3, 3, seed=1, coupling=0.5)
    weights = torch.tensor(np.random.default_rng(2).normal(size=18))
    pairs = torch.tensor(np.random.default_rng(3).normal(size=graph.log_tables.size))

    def loss(values: Any) -> Any:
        value, single, factors = torch_beliefs(graph, values, method)
        return torch.sin(single @ weights) + value * (factors @ pairs)

    tables = torch.tensor(np.array(graph.log_tables), requires_grad=True)
    loss(tables).backward()
    along = direction(graph)
    slope = float(tables.grad.numpy() @ along)
    found = difference(lambda t: loss(torch.tensor(t)).numpy(), graph.log_tables, along)
    assert abs(slope - found) < 1e-6
    whole = jax.grad(lambda t: log_z(graph.with_log_tables(t), method))(graph.log_tables)
    again = torch.tensor(np.array(graph.log_tables), requires_grad=True)
    torch_beliefs(graph, again, method)[0].backward()
    np.testing.assert_allclose(again.grad.numpy(), whole, atol=1e-9)


def test_torch_keeps_the_kind_of_its_numbers_and_refuses_what_jax_does() -> None:
    torch = pytest.importorskip("torch")
    graph = kk.grid(3, 3, seed=1, coupling=0.5)
    single = torch.tensor(np.array(graph.log_tables), dtype=torch.float32, requires_grad=True)
    value, flat, _ = torch_beliefs(graph, single, "bp")
    (value + flat[3]).backward()
    assert value.dtype == flat.dtype == single.grad.dtype == torch.float32
    value = torch_beliefs(graph, single, "bp")[0]
    (slope,) = torch.autograd.grad(value, single, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        slope.sum().backward()
    with pytest.raises(KikuchiError, match="did not converge"):
        torch_beliefs(graph, single, "bp:max_iter=1")
    with pytest.raises(ModelError, match="factor 0, entry"):
        torch_beliefs(graph, single * torch.nan, "bp")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
@pytest.mark.seconds(120)
def test_a_process_with_one_core_does_not_wait_for_itself():
    code = (
        "import os\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "import jax, kikuchi as kk\n"
        "from kikuchi.neural import marginals\n"
        "graph = kk.grid(60, 60, coupling=0.3, seed=0)\n"
        "found = lambda t: marginals(graph.with_log_tables(t), 'bp')[::3].sum()\n"
        "with jax.enable_x64(True):\n"
        "    value, change = jax.jit(jax.value_and_grad(found))(graph.log_tables)\n"
        "    print(float(value))\n"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, check=True, capture_output=True, text=True, timeout=100)
    graph = kk.grid(60, 60, coupling=0.3, seed=0)
    expected = float(marginals(graph, "bp")[::3].sum())
    assert float(done.stdout) == pytest.approx(expected, rel=1e-6)
