"""What must hold for the junction tree on every model that hypothesis can think of."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import kikuchi as kk
from oracle import enumerate_exact

PROPAGATIONS = st.sampled_from(["shafer-shenoy", "hugin"])
ORDERS = st.sampled_from(["min-fill", "min-degree", "min-weight"])
NUMBERS = st.floats(-30, 30) | st.sampled_from([-900.0, -np.inf, 0.0, 700.0])


@st.composite
def models(draw: st.DrawFn) -> kk.FactorGraph:
    """Any scopes, any cardinalities; at least one state has a positive weight."""
    cards = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    alive = [draw(st.integers(0, c - 1)) for c in cards]
    factors = []
    for _ in range(draw(st.integers(0, 7))):
        scope = draw(st.lists(st.integers(0, len(cards) - 1), min_size=1, max_size=3, unique=True))
        shape = [cards[v] for v in scope]
        table = np.array(
            draw(st.lists(NUMBERS, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        ).reshape(shape)
        here = tuple(alive[v] for v in scope)
        if table[here] == -np.inf:
            table[here] = 0.0
        factors.append((scope, table))
    return kk.FactorGraph(cards, factors, log=True)


def close(beliefs: kk.Beliefs, graph: kk.FactorGraph, tolerance: float = 1e-9) -> bool:
    log_z, singles, tables = enumerate_exact(graph)
    found = [abs(beliefs.log_z - log_z) / max(1.0, abs(log_z))]
    found += [np.abs(beliefs[v] - p).max() for v, p in enumerate(singles)]
    found += [np.abs(beliefs.factor(a) - p).max() for a, p in enumerate(tables)]
    return max(found) < tolerance


@given(models(), PROPAGATIONS, ORDERS)
def test_equal_to_enumeration(graph: kk.FactorGraph, propagation: str, order: str) -> None:
    assert close(kk.methods.JunctionTree(order, propagation).run(graph), graph)


@given(models(), st.randoms(use_true_random=False))
def test_the_order_of_variables_and_factors_does_not_matter(graph, random) -> None:
    n = graph.n_variables
    place = list(range(n))
    random.shuffle(place)  # variable v becomes variable place[v]
    factors = [
        ([place[v] for v in graph.scope(a)], graph.log_table(a)) for a in range(graph.n_factors)
    ]
    random.shuffle(factors)
    cards = [0] * n
    for v in range(n):
        cards[place[v]] = int(graph.cardinalities[v])
    moved = kk.infer(kk.FactorGraph(cards, factors, log=True), "jt")
    beliefs = kk.infer(graph, "jt")
    assert abs(moved.log_z - beliefs.log_z) <= 1e-9 * max(1.0, abs(beliefs.log_z))
    for v in range(n):
        assert np.abs(moved[place[v]] - beliefs[v]).max() < 1e-9


@given(models(), st.lists(st.floats(-500, 500), min_size=7, max_size=7))
def test_rescaled_tables_move_log_z_only(graph: kk.FactorGraph, scales: list[float]) -> None:
    factors = [(graph.scope(a), graph.log_table(a) + scales[a]) for a in range(graph.n_factors)]
    scaled = kk.infer(kk.FactorGraph(graph.cardinalities, factors, log=True), "jt")
    beliefs = kk.infer(graph, "jt")
    shift = sum(scales[: graph.n_factors])
    largest = max(1.0, abs(beliefs.log_z), abs(scaled.log_z), *map(abs, scales))
    assert abs(scaled.log_z - beliefs.log_z - shift) <= 1e-9 * largest
    assert np.abs(scaled.flat_marginals - beliefs.flat_marginals).max() < 1e-9


@given(models())
def test_the_best_state_beats_all_others(graph: kk.FactorGraph) -> None:
    beliefs = kk.infer(graph, "jt:mode=max")
    states = np.indices([int(c) for c in graph.cardinalities]).reshape(graph.n_variables, -1).T
    scores = graph.log_score(states)
    assert abs(beliefs.score - scores.max()) <= 1e-9 * max(1.0, abs(scores.max()))
    assert abs(graph.log_score(beliefs.state) - beliefs.score) <= 1e-9 * max(
        1.0, abs(beliefs.score)
    )


@given(models(), st.integers(0, 2**32 - 1))
def test_samples_are_possible_states(graph: kk.FactorGraph, seed: int) -> None:
    tree = kk.plan(graph).calibrate()
    x = tree.sample(20, seed=seed)
    assert x.shape == (20, graph.n_variables)
    assert np.isfinite(graph.log_score(x)).all()
