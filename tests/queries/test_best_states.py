"""Most probable states, marginal MAP, sensitivity and information gain against enumeration."""

from __future__ import annotations

import time
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core import budget as core_budget
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError, ModelError
from kikuchi.queries import marginal_map as module
from kikuchi.queries.question import Given
from oracle import random_model

ASIA = kk.example("asia")


def all_states(graph: kk.FactorGraph) -> tuple[np.ndarray, np.ndarray]:
    states = np.array(list(product(*(range(int(c)) for c in graph.cardinalities))))
    return states, graph.log_score(states)


@pytest.mark.parametrize("seed", range(4))
def test_the_m_best_states_by_enumeration(seed: int) -> None:
    graph = random_model(np.random.default_rng(seed), n=5, n_factors=6, zeros=0.2)
    v = int(np.flatnonzero(graph.cardinalities > 1)[0])
    weights = np.linspace(0.0, 1.0, int(graph.cardinalities[v]))
    states, scores = all_states(graph)
    with np.errstate(divide="ignore"):
        scores = scores + np.log(weights)[states[:, v]]
    possible = np.sort(scores[scores > -np.inf])[::-1]
    found = kk.most_probable(graph, best=25, likelihood={v: weights})
    got = [item.log_weight for item in found]
    np.testing.assert_allclose(got, possible[:25], atol=1e-9)
    assert len({tuple(item.numbers.tolist()) for item in found}) == len(found)
    assert found.log_evidence == pytest.approx(np.logaddexp.reduce(possible), abs=1e-9)


@pytest.mark.parametrize("far", [400.0, 800.0, 5000.0])
def test_states_whose_weights_are_far_apart_are_all_found(far: float) -> None:
    """Also where a ratio of weights is below the smallest floating-point number."""
    table = [[0.0, -far], [-far, 0.0]]
    graph = kk.FactorGraph([2] * 3, [((0, 1), table), ((1, 2), table)], log=True)
    for _ in range(2):
        found = kk.most_probable(graph, {0: 0}, best=9)
        assert [item.log_weight for item in found] == [0.0, -far, -far, -2 * far]
        assert len({tuple(item.numbers.tolist()) for item in found}) == 4


def test_best_states_with_evidence_are_labelled() -> None:
    found = kk.most_probable(ASIA, {"xray": "yes", "smoke": "no"}, best=3)
    assert found[0]["xray"] == "yes" and len(found[0]) == 8
    assert found[0].probability > found[1].probability > found[2].probability
    single = kk.infer(ASIA, "jt:mode=max", evidence={"xray": "yes", "smoke": "no"})
    assert found[0].numbers.tolist() == single.state.tolist()
    assert found.to_pandas().shape == (3, 10) and "<table>" in found._repr_html_()
    everything = dict.fromkeys(ASIA.names, "no")
    only = kk.most_probable(ASIA, everything, best=5)
    assert len(only) == 1 and only[0].probability == pytest.approx(1.0)
    with pytest.raises(ImpossibleEvidenceError, match="tub=yes, either=no"):
        kk.most_probable(ASIA, {"tub": "yes", "either": "no"})


def brute_map(graph: kk.FactorGraph, wanted: list[int]) -> tuple[tuple[int, ...], float]:
    states, scores = all_states(graph)
    best: dict[tuple[int, ...], float] = {}
    for row, score in zip(states[:, wanted].tolist(), scores.tolist(), strict=True):
        best[tuple(row)] = np.logaddexp(best.get(tuple(row), -np.inf), score)
    top = max(best, key=lambda key: best[key])
    return top, best[top]


@pytest.mark.parametrize("seed", range(4))
def test_marginal_map_by_enumeration_and_by_bounds(seed: int, monkeypatch) -> None:
    graph = random_model(np.random.default_rng(20 + seed), n=6, n_factors=8, zeros=0.1)
    wanted = [1, 4, 5]
    top, value = brute_map(graph, wanted)
    found = kk.marginal_map(graph, wanted)
    assert found.exact and found.log_weight == pytest.approx(value, abs=1e-10)
    assert tuple(int(found.states[str(v)]) for v in wanted) == top
    monkeypatch.setattr(module, "_MOST_ENTRIES", 1)
    bounded = kk.marginal_map(graph, wanted)
    assert bounded.log_weight <= value + 1e-9 <= bounded.log_weight_upper + 2e-9
    assert bounded.exact == (bounded.log_weight == bounded.log_weight_upper)


def test_marginal_map_of_a_long_chain_takes_linear_time() -> None:
    """Minutes where every step looks at all tables."""
    n, apart = 2000, 10
    rng = np.random.default_rng(0)
    tables = rng.random((n - 1, 2, 2)) + 0.1
    graph = kk.FactorGraph([2] * n, [((v, v + 1), t) for v, t in enumerate(tables)])
    best = np.zeros(2)  # log-weight of the best states so far, by the state of the last one
    for first in range(0, n - apart, apart):
        product_of = np.linalg.multi_dot(tables[first : first + apart])
        best = (best[:, None] + np.log(product_of)).max(axis=0)
    rest = np.linalg.multi_dot([*tables[n - apart :], np.ones(2)])
    found = kk.marginal_map(graph, range(0, n, apart))
    assert found.exact and found.log_weight == pytest.approx((best + np.log(rest)).max(), rel=1e-12)


def with_a_lonely_variable() -> kk.FactorGraph:
    """Five coupled variables and one without a factor, whose states count in every weight."""
    coupled = random_model(np.random.default_rng(7), n=5, n_factors=8)
    tables = [(coupled.scope(a), coupled.table(a)) for a in range(coupled.n_factors)]
    return kk.FactorGraph([*coupled.cardinalities.tolist(), 3], tables)


def test_marginal_map_bounds_count_a_hidden_variable_without_a_factor(monkeypatch) -> None:
    graph, wanted = with_a_lonely_variable(), [0, 3]
    _, value = brute_map(graph, wanted)
    monkeypatch.setattr(module, "_MOST_ENTRIES", 1)
    found = kk.marginal_map(graph, wanted)
    assert found.log_weight <= value + 1e-9 <= found.log_weight_upper + 2e-9


def test_an_elimination_that_is_late_ends_with_an_upper_bound() -> None:
    graph, wanted = with_a_lonely_variable(), [0, 3]
    _, value = brute_map(graph, wanted)
    tables = module._tables(graph, Given({}, {}, {}))

    def how(v: int) -> module.Reduce:
        return module._maximum if v in wanted else module._log_sum

    late = kk.Budget(seconds=1e-9).start()
    everything = set(range(graph.n_variables))
    left = module.eliminate(graph, tables, everything, 1, how, late, split=True)
    assert value <= sum(float(table) for _, table in left) < np.inf
    with pytest.raises(BudgetError):
        module.eliminate(graph, tables, everything, 2**20, how, late)


@pytest.mark.parametrize("side", [20, 60])
def test_marginal_map_takes_no_longer_than_allowed(side: int, monkeypatch) -> None:
    """Every weight is bounded in a share of the time, and tables fit the memory."""
    monkeypatch.setattr(core_budget, "time", SimpleNamespace(perf_counter=time.process_time))
    graph, wanted = kk.grid(side, side, seed=0), range(0, side * side, side * side // 10)
    limits = {"seconds": 1.0, "memory": "200MB"}
    module.marginal_map(graph, wanted, **limits)  # loads the compiled loops
    begin = time.process_time()
    found = module.marginal_map(graph, wanted, **limits)
    assert time.process_time() - begin <= 1.3
    assert -np.inf < found.log_weight <= found.log_weight_upper < np.inf


def test_marginal_map_differs_from_the_most_probable_state() -> None:
    graph = kk.FactorGraph([2, 3], [((0, 1), [[0.2, 0.2, 0.2], [0.3, 0.1, 0.0]])])
    assert kk.most_probable(graph)[0]["0"] == "1"
    assert kk.marginal_map(graph, [0]).states == {"0": "0"}
    assert kk.marginal_map(graph, [0], {1: 0}).states == {"0": "1"}


def probability(graph: kk.FactorGraph, target: str, evidence: dict[str, str]) -> float:
    return kk.query(graph, target, evidence=evidence, method="exact")[target]["yes"]


@pytest.mark.parametrize("table", ["xray", "either", "smoke"])
def test_sensitivity_by_finite_differences(table: str) -> None:
    """Also for a table of zeros and ones, where entries can only grow or shrink."""
    evidence = {"xray": "yes"}
    found = kk.sensitivity(ASIA, "lung", "yes", evidence, tables=[table])
    ((a, derivatives),) = found.derivatives.items()
    axis = ASIA.scope(a).index(ASIA.index(table))
    step = 1e-6
    for place in np.ndindex(*derivatives.shape):
        values = ASIA.table(a)
        old = values[place]
        way = step if old < 0.5 else -step
        row = tuple(slice(None) if k == axis else i for k, i in enumerate(place))
        rest = values[row].sum() - old
        moved = values.copy()
        moved[row] = values[row] * (1 - old - way) / rest if rest > 0 else -way
        moved[place] = old + way
        logs = ASIA.log_tables.copy()
        with np.errstate(divide="ignore"):
            logs[ASIA.table_offsets[a] : ASIA.table_offsets[a + 1]] = np.log(moved).ravel()
        changed = probability(ASIA.replaced(log_tables=logs), "lung", evidence)
        slope = (changed - found.probability) / way
        assert derivatives[place] == pytest.approx(slope, abs=2e-4)
    assert len(found.to_pandas()) == derivatives.size and "per unit" in repr(found)


def test_sensitivity_of_probabilities_that_floats_barely_hold() -> None:
    far = -736.0
    tiny = kk.FactorGraph([2, 2], [((0,), [0.0, -740.0]), ((0, 1), [[3, 1], [1, 1]])], log=True)
    slope = kk.sensitivity(tiny, 1, 0, tables=[0]).derivatives[0][1]
    p = 1 / (1 + np.exp(-2))
    assert slope == pytest.approx(2 * np.e * (0.5 - p) / (np.e**3 + np.e), rel=1e-12)
    logs = [[0.0, far], [far, 0.0]]
    graph = kk.FactorGraph([2, 2], [((0,), [0.0, far]), ((0, 1), logs)], log=True)
    found = kk.sensitivity(graph, 1, 1, tables=[1])
    assert found.derivatives[1][0, 1] == pytest.approx(1.0, rel=1e-12)
    tables = [((0,), [-2000.0, 0.0]), ((0, 1), [[0.0, 0.0], [-np.inf, -2000.0]])]
    large = kk.FactorGraph([2, 2], tables, log=True)
    with pytest.raises(ModelError, match="factor 1 are too large for floating-point numbers"):
        kk.sensitivity(large, 1, 0, tables=[1])


def test_information_gain_by_joints() -> None:
    evidence = {"dysp": "yes"}
    gains = kk.information_gain(ASIA, "lung", evidence)
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    for name in ("xray", "asia", "either"):
        joint = kk.query(ASIA, joint=("lung", name), evidence=evidence).table
        inside = joint > 0
        flat = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        expected = (joint[inside] * np.log(joint[inside] / flat[inside])).sum()
        assert gains[name] == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ModelError, match="nothing to gain"):
        kk.information_gain(ASIA, "dysp", evidence)
    assert list(kk.information_gain(ASIA, "lung", evidence, candidates=["asia"])) == ["asia"]
