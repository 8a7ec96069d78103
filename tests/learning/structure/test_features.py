"""Features: matrix form, tied parts, induction (TEH-M2, TEH-M5, TEH-L6, TEH-L18)."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import DataError, ModelError
from kikuchi.learning.scaling.scaling import GeneralisedScalingML
from kikuchi.learning.structure.features import Feature, Features, table_features
from kikuchi.learning.structure.induction import best_gain, candidate_gain, induce_features


def named() -> kk.FactorGraph:
    return kk.FactorGraph(
        [2, 3, 2],
        [(("a", "b"), np.ones(6)), (("c", "b"), np.ones(6)), (("a",), np.ones(2))],
        names=["a", "b", "c"],
    )


def test_log_tables_and_expectations_by_hand() -> None:
    graph = named()
    values = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])  # over (b, c) as given, c first in graph
    features = Features(
        graph,
        [
            Feature.table(("b", "c"), values.reshape(2, 3).T),
            Feature.where(("a",), (1,), "a is on"),
            Feature.tied([Feature.where((0, 1), (1, 2)), Feature.where(("c", "b"), (0, 2))]),
        ],
    )
    tables = features.log_tables(np.array([0.5, -1.0, 2.0]))
    model = graph.with_log_tables(tables)
    assert model.log_table(1) == pytest.approx(0.5 * values + [[0, 0, 2.0], [0, 0, 0]])
    assert model.log_table(2).tolist() == [0.0, -1.0]
    assert model.log_table(0)[1].tolist() == [0.0, 0.0, 2.0] and features.label(1) == "a is on"
    rng = np.random.default_rng(0)
    marginals = rng.random(graph.log_tables.size)
    expected = [
        (marginals[6:12].reshape(2, 3) * values).sum(),
        marginals[13],
        marginals[5] + marginals[8],
    ]
    assert features.expectations(marginals) == pytest.approx(expected)
    assert features.is_tied and [len(f) for f in features.factors] == [1, 1, 2]


def test_minus_infinity_wins() -> None:
    graph = kk.FactorGraph([2], [((0,), np.ones(2))])
    features = Features(graph, [Feature.where((0,), (1,)), Feature.table((0,), [1, 1])])
    assert features.log_tables(np.array([-np.inf, 3.0])).tolist() == [3.0, -np.inf]


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (Feature.where(("a", "c"), (0, 0)), "no factor has exactly"),
        (Feature.where(("a", "b"), (0, 3)), "no states"),
        (Feature.where(("a", "b"), (0,)), "are not states"),
        (Feature.table(("a",), [1, -1]), ">= 0"),
        (Feature.table(("a",), [0, 0]), "0 everywhere"),
        (Feature.where(("a", "zz"), (0, 0)), "zz"),
        (Feature((((0, 0), {(0, 0): 1.0}),)), "no factor has exactly"),
    ],
)
def test_bad_features(feature: Feature, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Features(named(), [feature])


def test_features_of_another_graph() -> None:
    features = table_features(named())
    other = kk.FactorGraph([2], [((0,), np.ones(2))])
    with pytest.raises(ModelError, match="another graph"):
        GeneralisedScalingML(features=features).fit(other, [[0], [1]])


def test_texts_of_learners_tell_features_apart() -> None:
    graph = named()
    one = Features(graph, [Feature.where(("a",), (1,))])
    other = Features(graph, [Feature.where(("a",), (0,))])
    texts = {GeneralisedScalingML(features=f).text for f in (one, other)}
    assert len(texts) == 2 and all("1 features" in text for text in texts)


def test_columns_hold_the_matrix() -> None:
    graph = named()
    features = table_features(graph)
    columns = features.columns()
    for k, i in enumerate(columns.order.tolist()):
        a = int(features.factors[i][0])
        size = int(graph.table_offsets[a + 1] - graph.table_offsets[a])
        own = columns.values[int(columns.value_at[k]) :][:size]
        dense = features.matrix[:, [i]].toarray().ravel()
        assert own.tolist() == dense[graph.table_offsets[a] :][:size].tolist()


# ---------------------------------------------------------------------- induction (TEH-L6)


def test_gain_of_an_indicator_is_a_divergence() -> None:
    for wanted, present in ((0.3, 0.5), (0.9, 0.2), (0.5, 0.5)):
        gain = best_gain(np.array([0.0, 1.0]), np.array([1 - present, present]), wanted)
        kl = wanted * np.log(wanted / present) + (1 - wanted) * np.log((1 - wanted) / (1 - present))
        assert gain == pytest.approx(kl, abs=1e-12)
    assert best_gain(np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0.0) == pytest.approx(
        np.log(2), abs=1e-9
    )


def test_gain_against_a_grid_of_weights() -> None:
    rng = np.random.default_rng(1)
    values, present = rng.random(6) * 2, rng.dirichlet(np.ones(6))
    data = rng.dirichlet(np.ones(6))
    weights = np.linspace(-20, 20, 400_001)
    curve = weights * (data @ values) - np.log(np.exp(np.outer(weights, values)) @ present)
    assert best_gain(values, present, float(data @ values)) == pytest.approx(curve.max(), abs=1e-7)


def test_induction_finds_the_edges_of_a_sparse_machine() -> None:
    """Each step brings at least what was promised, and the true edges come first."""
    weights = {(0, 1): 1.5, (2, 3): -1.5, (1, 4): 1.2}
    truth = kk.boltzmann_graph(weights, [0.2, -0.1, 0.3, 0.1, -0.6])
    rows = kk.plan(truth).calibrate().sample(4000, seed=3)
    found = induce_features(rows, count=5, min_gain=2e-3)
    scopes = [f.parts[0][0] for f in found.features.features[5:]]
    assert {tuple(s) for s in scopes[:3]} == set(weights) and len(scopes) == 3
    likelihoods = np.array(found.log_likelihoods)
    gains = np.diff(likelihoods)
    assert np.all(gains >= np.array(found.gains) - 1e-9)
    theta = found.fit.diagnostics["theta"][5:]
    wanted = [weights[tuple(s)] for s in scopes]
    assert theta == pytest.approx(wanted, abs=0.35)


def test_induction_from_given_candidates_of_any_size() -> None:
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 2, size=(500, 3))
    noise = rng.random(500) < 0.1
    rows[:, 2] = rows[:, 0] ^ rows[:, 1] ^ noise  # only the three together depend
    parity = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    candidates = [Feature.where((0, 1), (1, 1)), Feature.table((0, 1, 2), parity)]
    found = induce_features(rows, candidates, count=1)
    assert found.features.features[-1] is candidates[1] and found.gains[0] > 0.3


def test_candidate_gain_sees_pairs_that_share_no_clique() -> None:
    chain = kk.FactorGraph([2] * 4, [((i, i + 1), [[3, 1], [1, 3]]) for i in range(3)])
    rows = kk.plan(chain).calibrate().sample(20_000, seed=0)
    assert candidate_gain(Feature.where((0, 3), (1, 1)), chain, rows) < 1e-3


def test_induction_refuses_what_it_cannot_do() -> None:
    with pytest.raises(DataError, match="complete rows"):
        induce_features([[0, -1], [1, 1]])
    with pytest.raises(ModelError, match="no such"):
        induce_features([[0, 1], [1, 0]], start=[Feature.where((5,), (1,))])
