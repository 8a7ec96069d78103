"""FactorGraph: construction, evidence, scores, structure and immutability."""

from __future__ import annotations

import copy
import itertools
import pickle

import networkx as nx
import numpy as np
import pytest

from kikuchi import FactorGraph
from kikuchi.core.errors import EvidenceError, ImpossibleEvidenceError, ModelError
from kikuchi.graphs.conditioned import expand_marginals, expand_states
from oracle import enumerate_exact, random_model


def all_states(graph: FactorGraph) -> np.ndarray:
    return np.array(list(itertools.product(*(range(int(c)) for c in graph.cardinalities))))


def weight_by_hand(graph: FactorGraph, state: np.ndarray) -> float:
    total = graph.log_constant
    for a in range(graph.n_factors):
        total += graph.log_table(a)[tuple(state[v] for v in graph.scope(a))]
    return total


@pytest.fixture
def named() -> FactorGraph:
    return FactorGraph(
        [2, 3],
        [(("rain", "mood"), [[1, 2, 3], [4, 5, 6]]), (("mood",), [1, 1, 2])],
        names=["rain", "mood"],
        states=[["no", "yes"], ["bad", "fair", "good"]],
    )


# ---------------------------------------------------------------------- construction


def test_tables_are_row_major_with_the_last_variable_fastest() -> None:
    graph = FactorGraph([2, 3], [((1, 0), [1, 2, 3, 4, 5, 6])])
    assert np.allclose(graph.table(0), [[1, 2], [3, 4], [5, 6]])
    assert graph.scope(0) == (1, 0)
    assert graph.shape(0) == (3, 2)
    shaped = FactorGraph([2, 3], [((1, 0), [[1, 2], [3, 4], [5, 6]])])
    assert shaped == graph


def test_flat_arrays_are_laid_out_as_documented(named: FactorGraph) -> None:
    assert named.scopes.tolist() == [0, 1, 1]
    assert named.scope_offsets.tolist() == [0, 2, 3]
    assert named.table_offsets.tolist() == [0, 6, 9]
    assert named.edge_factors.tolist() == [0, 0, 1]
    assert named.variable_offsets.tolist() == [0, 1, 3]
    assert named.variable_edges.tolist() == [0, 1, 2]
    assert named.state_offsets.tolist() == [0, 2, 5]
    assert named.message_offsets.tolist() == [0, 2, 5, 8]
    assert named.neighbours("mood") == (0, 1)
    for array in (named.scopes, named.edge_factors, named.variable_edges, named.cardinalities):
        assert array.dtype == np.uint32
    for offsets in (named.scope_offsets, named.table_offsets, named.state_offsets):
        assert offsets.dtype == np.int64


@pytest.mark.parametrize("seed", range(5))
def test_variable_edges_group_the_edges_of_random_models(seed: int) -> None:
    graph = random_model(np.random.default_rng(seed), n=8, n_factors=12)
    for v in range(8):
        expected = tuple(a for a in range(12) if v in graph.scope(a))
        assert graph.neighbours(v) == expected
        lo, hi = graph.variable_offsets[v], graph.variable_offsets[v + 1]
        assert np.all(graph.scopes[graph.variable_edges[lo:hi]] == v)


def test_logarithms_and_weights_give_the_same_model() -> None:
    table = np.array([[1.0, 0.0], [2.0, 5.0]])
    with np.errstate(divide="ignore"):
        logs = np.log(table)
    assert FactorGraph([2, 2], [((0, 1), table)]) == FactorGraph([2, 2], [((0, 1), logs)], log=True)


def test_from_arrays_is_the_constructor_without_objects() -> None:
    graph = random_model(np.random.default_rng(0), zeros=0.2)
    same = FactorGraph.from_arrays(
        graph.cardinalities, graph.scopes, graph.scope_offsets, graph.log_tables
    )
    assert same == graph


def test_factors_without_variables_become_the_constant() -> None:
    graph = FactorGraph([2], [((), 3.0), ((0,), [1, 2]), ((), [2.0])], log_constant=0.5)
    assert graph.n_factors == 1
    assert graph.log_constant == pytest.approx(0.5 + np.log(6.0))


def test_empty_models() -> None:
    nothing = FactorGraph([], [])
    assert (nothing.n_variables, nothing.n_factors, nothing.n_components) == (0, 0, 0)
    assert nothing.is_forest
    assert nothing.pairs().shape == (0, 2)
    assert nothing.log_score([]) == 0.0
    assert nothing.condition({}).graph == nothing
    lonely = FactorGraph([2, 3], [])
    assert lonely.n_components == 2
    assert lonely.is_forest
    assert lonely.condition({0: 1}).graph.cardinalities.tolist() == [3]


def test_repr_says_what_it_is(named: FactorGraph) -> None:
    assert repr(named) == "FactorGraph(2 variables, 2 factors, 9 table entries)"
    directed = FactorGraph([2], [((0,), [0.5, 0.5])], children=[0])
    assert repr(directed) == "FactorGraph(directed, 1 variable, 1 factor, 2 table entries)"


ONES = np.ones(4)
BAD = [
    (([0], []), {}, "variable 0 has 0 states"),
    (([2, -1], []), {}, "variable 1 has -1 states"),
    (([2.0], []), {}, "list of integers"),
    (([[2]], []), {}, "list of integers"),
    (([2], [((1,), [1, 1])]), {}, "there is no variable 1; the model has variables 0..0"),
    (([2], [((-1,), [1, 1])]), {}, "there is no variable -1"),
    (([2], [(("a",), [1, 1])]), {}, "no variable 'a'; the variables have no names"),
    (([2], [(("ran",), [1, 1])]), {"names": ["rain"]}, "did you mean 'rain'"),
    (([2], [((0.5,), [1, 1])]), {}, "0.5 is not a variable"),
    (([2], [((True,), [1, 1])]), {}, "True is not a variable"),
    (([2, 2], [((0, 0), ONES)]), {}, "factor 0 contains a variable twice"),
    (([2, 2], [((0, 1), [1, 2, 3])]), {}, r"factor 0: table of shape \(3,\), scope needs \(2, 2\)"),
    (([2, 3], [((0, 1), np.ones((3, 2)))]), {}, r"table of shape \(3, 2\)"),
    (([2, 2], [((0, 1), [[1, 2], [3]])]), {}, "not an array of numbers"),
    (([2], [((0,), ["x", "y"])]), {}, "not an array of numbers"),
    (([2], [((0,), [1, -1])]), {}, "factor 0: weights must be finite and not negative, got -1"),
    (([2], [((0,), [1, np.nan])]), {}, "got nan"),
    (([2], [((0,), [1, np.inf])]), {}, "got inf"),
    (([2], [((0,), [1, np.inf])]), {"log": True}, "below infinity, got inf"),
    (([2], [((0,), [1, np.nan])]), {"log": True}, "below infinity, got nan"),
    (([2], [((0,), [1, 1]), ((0,), [0, 0])]), {}, "factor 1 is zero everywhere"),
    (([2], [((), 0.0)]), {}, "constant factor must be positive"),
    (([2], []), {"log_constant": np.nan}, "constant factor"),
    (([2], [(0, [1, 1])]), {}, r"factor 0 must be a pair \(scope, table\)"),
    (([2], [7]), {}, r"factor 0 must be a pair \(scope, table\)"),
    (([2, 2], []), {"names": ["a"]}, "1 names for 2 variables"),
    (([2, 2], []), {"names": ["a", "a"]}, "two variables are named 'a'"),
    (([2, 2], []), {"states": [["n", "y"]]}, "state names are needed for all 2 variables, got 1"),
    (([2], []), {"states": [["n", "n"]]}, "needs 2 different state names"),
    (([2], []), {"states": [["n"]]}, "needs 2 different state names"),
    (([2, 2], [((0,), [1, 1])]), {"children": [0]}, "one factor for each variable"),
    (([2, 2], [((0,), [1, 1]), ((0, 1), ONES)]), {"children": [0, 0]}, "one factor for each"),
    (([2, 2], [((0,), [1, 1]), ((0,), [1, 1])]), {"children": [0, 1]}, "does not contain its chil"),
]


@pytest.mark.parametrize(("arguments", "options", "message"), BAD)
def test_bad_models_are_refused(arguments, options, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        FactorGraph(*arguments, **options)


BAD_ARRAYS = [
    (([2, 2], [0, 2], [0, 2], ONES), "factor 0: variable 2 does not exist"),
    (([2, 2], [0, -1], [0, 2], ONES), "0..n-1, got -1"),
    (([2, 2], [0, 2**40], [0, 2], ONES), "0..n-1, got 1099511627776"),
    (([2, 2], [0.5, 1.0], [0, 2], ONES), "contain integers"),
    (([2, 2], [0, 1], [0, 3], ONES), "scope_offsets must increase"),
    (([2, 2], [0, 1], [1, 2], ONES), "scope_offsets must increase"),
    (([2, 2], [0, 1], [0, 2, 2], ONES), "scope_offsets must increase"),
    (([2, 2], [0, 1], [], ONES), "scope_offsets must increase"),
    (([2, 2], [0, 1], [0, 2], np.zeros(3)), "need 4 table entries, there are 3"),
    (([2, 2], [0, 1], [0, 2], [0, 0, np.inf, 0]), "factor 0: log-potentials must be below"),
    (([10**6] * 5, [0, 1, 2, 3, 4], [0, 5], ONES), "would need 1e\\+30 table entries"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD_ARRAYS)
def test_bad_arrays_are_refused(arrays, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        FactorGraph.from_arrays(*arrays)


# ---------------------------------------------------------------------- immutability


def test_a_graph_cannot_be_changed(named: FactorGraph) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        named.names = ("x", "y")
    with pytest.raises(AttributeError, match="immutable"):
        del named.names
    for array in (
        named.cardinalities,
        named.scopes,
        named.scope_offsets,
        named.log_tables,
        named.table_offsets,
        named.edge_factors,
        named.variable_offsets,
        named.variable_edges,
        named.state_offsets,
        named.message_offsets,
        named.components,
        named.log_table(0),
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_the_constructor_leaves_the_arrays_of_its_caller_alone() -> None:
    cards = np.array([2, 2], dtype=np.uint32)
    table = np.zeros(4)
    graph = FactorGraph(cards, [((0, 1), table)], log=True)
    cards[0], table[0] = 7, 5.0
    assert graph.cardinalities.tolist() == [2, 2]
    assert graph.log_tables.tolist() == [0, 0, 0, 0]


def test_copies_are_equal_and_as_immutable() -> None:
    graph = random_model(np.random.default_rng(0))
    _ = graph.variable_edges
    for twin in (copy.copy(graph), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert twin == graph
        assert not twin.log_tables.flags.writeable
        assert not twin.variable_edges.flags.writeable


def test_graphs_are_not_hashable(named: FactorGraph) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(named)


def test_equality_sees_every_part() -> None:
    def build(**changes: object) -> FactorGraph:
        options: dict = {"names": ["a", "b"], "states": [["n", "y"]] * 2, "log_constant": 0.0}
        table = changes.pop("table", np.full((2, 2), 0.5))
        scope = changes.pop("scope", (0, 1))
        factors = [((0,), [0.5, 0.5]), (scope, table)]
        return FactorGraph([2, 2], factors, **(options | changes))

    assert build() == build()
    assert build() != build(names=["a", "c"])
    assert build() != build(names=None)
    assert build() != build(states=None)
    assert build() != build(log_constant=1e-12)
    assert build() != build(children=[0, 1])
    assert build() != build(scope=(1, 0))
    assert build() != build(table=[[0.5, 0.5], [0.5, np.nextafter(0.5, 1)]])
    assert build() != "a graph"


# ---------------------------------------------------------------------- names


def test_names_and_numbers_mean_the_same(named: FactorGraph) -> None:
    assert named.index("mood") == named.index(1) == named.index(np.int64(1)) == 1
    assert named.state_index("mood", "good") == named.state_index(1, 2) == 2
    assert named.label(0) == "rain"
    assert FactorGraph([2], []).label(0) == "0"


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"ran": 0}, "no variable 'ran'; did you mean 'rain'"),
        ({7: 0}, "no variable 7"),
        ({"rain": "ye"}, "no state 'ye'; did you mean 'yes'"),
        ({"mood": 3}, "states 0..2, got 3"),
        ({"mood": -1}, "states 0..2, got -1"),
        ({"mood": 1.0}, "not a state"),
        ({"mood": True}, "not a state"),
        ({"mood": None}, "not a state"),
        ({"mood": [0.2, 0.3, 0.5]}, "a distribution was given"),
        ({"rain": 0, 0: 1}, "observed twice, differently"),
        ({(0, 1): 0}, "not a variable"),
    ],
)
def test_bad_evidence_is_refused(named: FactorGraph, evidence, message: str) -> None:
    for use in (named.resolve, named.condition, named.clamp):
        with pytest.raises(EvidenceError, match=message):
            use(evidence)


def test_states_without_names_are_given_by_number() -> None:
    with pytest.raises(EvidenceError, match=r"the states have none; give a number in 0\.\.1"):
        FactorGraph([2], []).resolve({0: "1"})


def test_the_same_evidence_twice_is_one(named: FactorGraph) -> None:
    assert named.resolve({"rain": "yes", 0: 1}) == {0: 1}
    assert named.resolve(None) == {}


# ---------------------------------------------------------------------- scores


@pytest.mark.parametrize("seed", range(6))
def test_scores_agree_with_a_product_by_hand(seed: int) -> None:
    # LIU-M2
    graph = random_model(np.random.default_rng(seed), n=5, n_factors=6, zeros=0.2)
    states = all_states(graph)
    scores = graph.log_score(states)
    assert np.allclose(scores, [weight_by_hand(graph, x) for x in states], atol=1e-12)
    assert graph.log_score(states[-1]) == pytest.approx(scores[-1])
    top = scores.max()
    log_z, marginals, _ = enumerate_exact(graph)
    assert top + np.log(np.exp(scores - top).sum()) == pytest.approx(log_z, abs=1e-12)
    p = np.exp(scores - log_z)
    for v in range(5):
        assert np.allclose(np.bincount(states[:, v], p), marginals[v], atol=1e-12)


def test_scores_take_any_whole_numbers() -> None:
    graph = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    for dtype in (np.int8, np.uint8, np.int64, np.uint64, bool):
        assert graph.log_score(np.array([[1, 0]], dtype=dtype))[0] == pytest.approx(np.log(3))


@pytest.mark.parametrize(
    "states",
    [[0], [[0, 0, 0]], [0, 2], [0, -1], [0.0, 1.0], ["a", "b"], np.zeros((2, 2, 2), int), 1],
)
def test_bad_states_are_refused(states) -> None:
    graph = FactorGraph([2, 2], [((0, 1), ONES)])
    with pytest.raises(ModelError, match="states must"):
        graph.log_score(states)


@pytest.mark.parametrize("seed", range(4))
def test_scaling_tables_shifts_log_z_only(seed: int) -> None:
    """TEH-M1 (b)."""
    rng = np.random.default_rng(seed)
    graph = random_model(rng, zeros=0.1)
    scales = rng.normal(size=graph.n_factors) * 5
    tables = graph.log_tables + np.repeat(scales, np.diff(graph.table_offsets))
    scaled = FactorGraph.from_arrays(graph.cardinalities, graph.scopes, graph.scope_offsets, tables)
    log_z, marginals, _ = enumerate_exact(graph)
    new_log_z, new_marginals, _ = enumerate_exact(scaled)
    assert new_log_z - log_z == pytest.approx(scales.sum(), abs=1e-11)
    assert np.allclose(np.concatenate(marginals), np.concatenate(new_marginals), atol=1e-13)


# ---------------------------------------------------------------------- evidence (LIU-M4)


def evidence_cases(graph: FactorGraph, observed: list[int]) -> list[dict[int, int]]:
    values = itertools.product(*(range(int(graph.cardinalities[v])) for v in observed))
    return [dict(zip(observed, value, strict=True)) for value in values]


@pytest.mark.parametrize("zeros", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(8))
def test_conditioning_clamping_and_enumeration_agree(seed: int, zeros: float) -> None:
    rng = np.random.default_rng(seed)
    base = random_model(rng, n=5, n_factors=7, zeros=zeros)
    factors = [(base.scope(a), base.table(a)) for a in range(7)]
    graph = FactorGraph(base.cardinalities, factors, log_constant=0.7)
    observed = [int(v) for v in rng.choice(5, size=int(rng.integers(1, 5)), replace=False)]
    states = all_states(graph)
    scores = graph.log_score(states)
    total = 0.0
    for evidence in evidence_cases(graph, observed):
        agrees = np.all([states[:, v] == k for v, k in evidence.items()], axis=0)
        weight = np.exp(scores[agrees]).sum()
        if weight == 0:
            assert_weightless(graph, evidence)
            continue
        conditioned = graph.condition(evidence)
        log_z, marginals, _ = enumerate_exact(conditioned.graph)
        clamped_log_z, clamped, _ = enumerate_exact(graph.clamp(evidence))
        assert log_z == pytest.approx(np.log(weight), abs=1e-11)
        assert clamped_log_z == pytest.approx(log_z, abs=1e-11)
        flat = expand_marginals(conditioned, np.concatenate([np.zeros(0), *marginals]))
        assert np.allclose(flat, np.concatenate(clamped), atol=1e-12)
        total += np.exp(log_z)
    assert np.log(total) == pytest.approx(enumerate_exact(graph)[0], abs=1e-11)


def assert_weightless(graph: FactorGraph, evidence: dict[int, int]) -> None:
    """Refused at once when one factor shows it, otherwise nothing of positive weight is left."""
    try:
        left = graph.condition(evidence).graph
    except ImpossibleEvidenceError as error:
        assert "probability zero" in str(error)
    else:
        assert np.all(left.log_score(all_states(left)) == -np.inf)


def test_conditioning_keeps_names_and_tells_the_way_back(named: FactorGraph) -> None:
    conditioned = named.condition({"rain": "yes"})
    assert conditioned.graph.names == ("mood",)
    assert conditioned.graph.states == (("bad", "fair", "good"),)
    assert conditioned.variables.tolist() == [1]
    assert conditioned.factors.tolist() == [0, 1]
    assert conditioned.observed == {0: 1}
    assert expand_states(conditioned, np.array([2])).tolist() == [1, 2]
    assert expand_states(conditioned, np.array([[2], [0]])).tolist() == [[1, 2], [1, 0]]


def test_observing_everything_leaves_the_weight(named: FactorGraph) -> None:
    conditioned = named.condition({0: 1, 1: 2})
    assert conditioned.graph.n_variables == 0
    assert conditioned.graph.log_constant == pytest.approx(np.log(12))


def test_no_evidence_leaves_the_graph(named: FactorGraph) -> None:
    for nothing in (None, {}):
        assert named.condition(nothing).graph == named
        assert named.clamp(nothing) == named


def test_impossible_evidence_says_so() -> None:
    graph = FactorGraph([2, 2], [((0,), [1, 1]), ((0, 1), [[1, 0], [0, 0]])])
    with pytest.raises(ImpossibleEvidenceError, match=r"factor 1 has no remaining weight"):
        graph.condition({0: 1})
    with pytest.raises(ImpossibleEvidenceError, match="probability zero"):
        graph.condition({0: 0, 1: 1})


# ---------------------------------------------------------------------- structure


@pytest.mark.parametrize("seed", range(10))
def test_structure_agrees_with_networkx(seed: int) -> None:
    # LIU-M3
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=9, n_factors=int(rng.integers(0, 12)), max_order=3)
    bipartite = nx.empty_graph(9 + graph.n_factors)
    bipartite.add_edges_from((v, 9 + a) for a in range(graph.n_factors) for v in graph.scope(a))
    primal = nx.empty_graph(9)
    for a in range(graph.n_factors):
        primal.add_edges_from(itertools.combinations(graph.scope(a), 2))
    assert graph.is_forest == nx.is_forest(bipartite)
    assert {tuple(e) for e in graph.pairs().tolist()} == {(min(e), max(e)) for e in primal.edges}
    assert graph.pairs().tolist() == sorted(graph.pairs().tolist())
    groups = list(nx.connected_components(primal))
    assert graph.n_components == len(groups)
    for group in groups:
        assert len(set(graph.components[list(group)].tolist())) == 1
    assert len(set(graph.components.tolist())) == len(groups)


def test_two_factors_over_one_pair_are_a_cycle() -> None:
    assert FactorGraph([2, 2], [((0, 1), ONES), ((0,), [1, 1]), ((0,), [1, 1])]).is_forest
    assert not FactorGraph([2, 2], [((0, 1), ONES), ((1, 0), ONES)]).is_forest


def test_nbytes_counts_the_arrays(named: FactorGraph) -> None:
    assert named.nbytes == 2 * 4 + 3 * 4 + 3 * 8 + 9 * 8 + 3 * 8


def test_other_tables_keep_the_structure_and_what_it_implies(named: FactorGraph) -> None:
    edges = named.variable_edges
    other = named.with_log_tables(np.zeros(named.log_tables.size))
    assert other.variable_edges is edges and other.names == named.names
    assert not other.log_tables.any() and named.log_tables.any()
    assert other.log_constant == 0.0 and not other.log_tables.flags.writeable
    with pytest.raises(ModelError, match="table entries"):
        named.with_log_tables(np.zeros(2))
    with pytest.raises(ModelError, match="below infinity"):
        named.with_log_tables(np.full(named.log_tables.size, np.nan))


def test_variables_without_names_are_called_as_reports_call_them() -> None:
    graph = FactorGraph([2, 3, 2], [((0, 1), np.ones(6))])
    assert [graph.index(v) for v in (1, "1", "x1")] == [1, 1, 1]
    for unknown in ("x3", "3", "x-1", "x", "", "x" + "9" * 5000, "y1"):
        with pytest.raises(ModelError, match=r"x0\.\.x2"):
            graph.index(unknown)
    named = graph.replaced(names=["a", "x0", "c"])
    assert named.index("x0") == 1
    with pytest.raises(ModelError, match="no variable 'x1'"):
        named.index("x1")
