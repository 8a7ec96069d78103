"""What every engine promises: other tables, states, responses, and starts from earlier results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import MethodError
from kikuchi.engines.engine import Engine, settle
from kikuchi.engines.mean_field.product import ProductDistribution
from kikuchi.engines.messages.kernels import bp_messages
from kikuchi.engines.messages.ratios import RatioMessages
from kikuchi.engines.messages.reweighted import ReweightedMessages
from kikuchi.engines.messages.tables import TableMessages
from kikuchi.engines.regions.engine import RegionBeliefs
from kikuchi.engines.regions.regions import MinimisedRegions, PropagatedRegions
from kikuchi.engines.trees.plan import make_plan, unconditioned
from kikuchi.engines.trees.tree import Tree
from kikuchi.graphs.regions.builders import region_graph

Make = Callable[[kk.FactorGraph], Engine]


def _exact(graph: kk.FactorGraph, hugin: bool = False) -> Engine:
    plan = make_plan(unconditioned(graph), "cheapest", None)
    return Tree(plan, kk.Budget().start(), "hugin" if hugin else "shafer-shenoy")


def _regions(graph: kk.FactorGraph) -> RegionBeliefs:
    return RegionBeliefs(region_graph(graph, "bethe"), kk.Budget())


def _ratios(graph: kk.FactorGraph) -> Engine:
    found = RatioMessages.of(graph)
    assert found is not None
    return found


ENGINES: dict[str, Make] = {
    "ratios": _ratios,
    "probabilities": lambda graph: TableMessages(graph, bp_messages.SUM),
    "logarithms": lambda graph: TableMessages(graph, bp_messages.LOG_SUM),
    "reweighted": lambda graph: ReweightedMessages(graph, np.full(graph.n_factors, 0.8)),
    "propagated regions": lambda graph: PropagatedRegions(_regions(graph)),
    "minimised regions": lambda graph: MinimisedRegions(_regions(graph)),
    "tree": _exact,
    "tree with cliques": lambda graph: _exact(graph, hugin=True),
    "mean field": lambda graph: ProductDistribution(
        graph, np.full(int(graph.state_offsets[-1]), 0.5)
    ),
}


def rest(engine: Engine) -> int:
    found = settle(engine, kk.Budget().start(), tol=1e-13, limit=2000)
    assert found.residual <= 1e-13
    return found.sweeps


@pytest.fixture(params=ENGINES)
def make(request: pytest.FixtureRequest) -> Make:
    return ENGINES[request.param]


MODEL = kk.grid(3, 3, seed=2, coupling=0.4, field=0.5)
OTHER = kk.grid(3, 3, seed=3, coupling=0.4, field=0.5).log_tables


def test_other_tables_give_what_a_new_engine_gives(make: Make) -> None:
    engine, fresh = make(MODEL), make(MODEL.with_log_tables(OTHER))
    rest(engine)
    engine.set_tables(OTHER)
    rest(engine)
    rest(fresh)
    assert engine.log_z() == pytest.approx(fresh.log_z(), abs=1e-9)
    np.testing.assert_allclose(engine.marginals(), fresh.marginals(), atol=1e-9)
    np.testing.assert_allclose(engine.factor_marginals(), fresh.factor_marginals(), atol=1e-9)


def test_a_state_is_a_copy_and_can_be_set_again(make: Make) -> None:
    engine = make(MODEL)
    cold = rest(engine)
    state, marginals = engine.state, engine.marginals().copy()
    kept = state.to_arrays()
    engine.set_tables(OTHER)
    rest(engine)
    assert all(np.array_equal(kept[name], now) for name, now in state.to_arrays().items())
    engine.set_tables(MODEL.log_tables)
    engine.state = state  # type: ignore[misc]
    assert rest(engine) <= max(2, cold // 3)
    np.testing.assert_allclose(engine.marginals(), marginals, atol=1e-9)


def test_the_response_is_the_derivative_of_the_marginals(make: Make) -> None:
    engine = make(MODEL)
    rest(engine)
    along = np.random.default_rng(0).normal(size=MODEL.log_tables.size)
    moved, moved_factors = engine.response().respond(np.zeros(18), along)
    ends = []
    for step in (1e-5, -1e-5):
        engine.set_tables(MODEL.log_tables + step * along)
        rest(engine)
        ends.append((engine.marginals().copy(), engine.factor_marginals().copy()))
    (plus, plus_factors), (minus, minus_factors) = ends
    np.testing.assert_allclose(moved, (plus - minus) / 2e-5, atol=1e-7)
    np.testing.assert_allclose(moved_factors, (plus_factors - minus_factors) / 2e-5, atol=1e-7)


def test_zeros_that_vanish_come_back_to_life() -> None:
    """A message of 0 stays 0 in every update; tables without the zero must not inherit it."""
    tables = MODEL.log_tables.copy()
    tables[0] = -np.inf
    for name in ("probabilities", "logarithms", "propagated regions", "minimised regions"):
        engine, fresh = ENGINES[name](MODEL.with_log_tables(tables)), ENGINES[name](MODEL)
        for one in (engine, fresh):
            rest(one)
        engine.set_tables(MODEL.log_tables)
        rest(engine)
        np.testing.assert_allclose(engine.marginals(), fresh.marginals(), atol=1e-9)


# ---------------------------------------------------------------------- starts

STARTED = ["bp", "bp:schedule=residual", "fractional", "alpha", "trw", "gbp", "kikuchi", "mf"]


@pytest.mark.parametrize("text", STARTED)
def test_a_start_from_nearby_takes_fewer_iterations(text: str) -> None:
    grid = kk.grid(5, 5, seed=1, coupling=0.5, field=0.3)
    near = grid.with_log_tables(grid.log_tables * 1.001)
    options = {"restarts": 0} if text == "mf" else {}
    cold = kk.infer(near, text, **options)
    warm = kk.infer(near, text, start=kk.infer(grid, text, **options), **options)
    assert warm.converged and warm.iterations < cold.iterations
    assert warm.log_z == pytest.approx(cold.log_z, abs=1e-6)
    np.testing.assert_allclose(warm.flat_marginals, cold.flat_marginals, atol=1e-6)


def test_a_start_may_have_other_evidence_and_another_method() -> None:
    tables = np.random.default_rng(4)
    scopes = [(0, 1, 2), (2, 3), (3, 4), (4, 0), (1, 3), (2,)]
    cards = [2, 3, 2, 3, 2]
    graph = kk.FactorGraph(
        cards, [(s, np.exp(tables.normal(size=[cards[v] for v in s]))) for s in scopes]
    )
    before = kk.infer(graph, "bp", evidence={1: 2})
    for evidence in ({}, {1: 0}, {3: 1}, {1: 2, 4: 0}):
        for text in ("bp", "trw", "alpha:prior=0:0.2+0.8"):
            cold = kk.infer(graph, text, evidence=evidence)
            warm = kk.infer(graph, text, evidence=evidence, start=before)
            assert warm.converged
            np.testing.assert_allclose(warm.flat_marginals, cold.flat_marginals, atol=1e-6)


def test_a_start_that_does_not_fit_is_refused() -> None:
    grid = kk.grid(3, 3, seed=0)
    bp, regions = kk.infer(grid, "bp"), kk.infer(grid, "kikuchi:regions=faces")
    with pytest.raises(MethodError, match=r"jt takes no start: .* bp, "):
        kk.infer(grid, "jt", start=bp)
    with pytest.raises(MethodError, match="other variables or factors"):
        kk.infer(kk.grid(3, 4, seed=0), "bp", start=bp)
    with pytest.raises(MethodError, match="start from one of bp"):
        kk.infer(grid, "bp", start=regions)
    with pytest.raises(MethodError, match="start from one of gbp or kikuchi"):
        kk.infer(grid, "kikuchi", start=bp)
    with pytest.raises(MethodError, match="other regions"):
        kk.infer(grid, "kikuchi:regions=bethe", start=regions)
    with pytest.raises(MethodError, match="has no state to start from"):
        kk.infer(grid, "bp", start=kk.infer(grid, "enumerate"))


def test_a_start_from_regions_of_other_tables_or_another_solver_is_refused() -> None:
    field = kk.FactorGraph([3], [((0,), [1, 2, 3])])
    with pytest.raises(MethodError, match="other regions"):
        kk.infer(field, "kikuchi", start=kk.infer(field, "gbp"))
    for cards in ([2, 3, 2], [2, 2, 2]):
        whole = kk.FactorGraph(cards, [((0, 1, 2), np.ones(cards))])
        before = kk.infer(whole, "kikuchi", evidence={1: 0})
        assert kk.infer(whole, "kikuchi", evidence={1: 1}, start=before).converged
        with pytest.raises(MethodError, match="same observed variables"):
            kk.infer(whole, "kikuchi", evidence={2: 0}, start=before)


def test_a_text_is_the_option_start_and_anything_else_is_refused() -> None:
    grid = kk.grid(3, 3, seed=0)
    assert kk.infer(grid, "ups", start="bp").method == "ups:start=bp"
    with pytest.raises(MethodError, match="no option 'start'"):
        kk.infer(grid, "bp", start="uniform")
    with pytest.raises(MethodError, match="start must be the result of an earlier run, got int"):
        kk.infer(grid, "bp", start=3)  # type: ignore[arg-type]


def test_a_result_of_regions_does_not_keep_the_lists_of_its_sweeps() -> None:
    engine = kk.infer(kk.grid(3, 3, seed=0), "gbp")._start.engine
    assert engine._sweeps is None and engine.sweep(0.5) < 1e-8


@pytest.mark.parametrize("text", ["bp", "trw", "gbp", "kikuchi", "mf"])
def test_a_start_may_have_no_factor_left(text: str) -> None:
    pair = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    before = kk.infer(pair, text, evidence={0: 0, 1: 1})
    assert kk.infer(pair, text, start=before).log_z == kk.infer(pair, text).log_z
    with pytest.raises(MethodError, match="other variables or factors"):
        kk.infer(kk.grid(2, 2, seed=0), text, start=before)
