"""Queries against enumeration, and every way of asking."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import product
from typing import Any

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, EvidenceError, ImpossibleEvidenceError, ModelError
from kikuchi.queries.barren import barren_variables, normalised_tables
from kikuchi.queries.cache import cache_of
from kikuchi.queries.pattern_table import PatternTable
from kikuchi.queries.pattern_tree import PatternTree
from kikuchi.queries.patterns import EvidencePattern, log_of

ASIA = kk.example("asia")


def joint_table(graph: kk.FactorGraph, weights: dict[int, list[float]] | None = None) -> np.ndarray:
    """The unnormalised joint of a small model by enumeration, with weights of some variables."""
    cards = [int(c) for c in graph.cardinalities]
    states = np.array(list(product(*map(range, cards))))
    values = np.exp(graph.log_score(states)).reshape(cards)
    for v, w in (weights or {}).items():
        shape = [1] * len(cards)
        shape[v] = cards[v]
        values = values * np.reshape(w, shape)
    return values


def onto(table: np.ndarray, variables: tuple[int, ...]) -> np.ndarray:
    others = tuple(k for k in range(table.ndim) if k not in variables)
    left = sorted(variables)
    out = table.sum(axis=others)
    return np.transpose(out, [left.index(v) for v in variables]) / table.sum()


@pytest.fixture(scope="module")
def mixed() -> kk.FactorGraph:
    """A loopy model with three kinds of variables, zeros, a single state and a loose variable."""
    rng = np.random.default_rng(5)
    cards = [2, 3, 2, 4, 1, 3, 2]
    scopes = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 1), (3, 5, 0), (5,)]
    factors = []
    for scope in scopes:
        table = rng.gamma(1.0, size=[cards[v] for v in scope])
        table[rng.random(table.shape) < 0.1] = 0.0
        factors.append((scope, table + (table.sum() == 0)))
    states = [[f"{'abcdefg'[v]}{k}" for k in range(c)] for v, c in enumerate(cards)]
    return kk.FactorGraph(cards, factors, names=list("abcdefg"), states=states)


def test_a_joint_with_more_entries_than_a_float_counts_is_refused_with_its_price() -> None:
    many = kk.FactorGraph([2] * 1100, [((v,), [1, 1]) for v in range(1100)])
    with pytest.raises(BudgetError, match="the joint of 1100 variables needs"):
        kk.query(many, joint=range(1100))


def test_marginals_joint_and_evidence_by_enumeration(mixed: kk.FactorGraph) -> None:
    table = joint_table(mixed)
    answer = kk.query(mixed)
    assert list(answer) == list("abcdefg") and answer.exact
    assert answer.log_evidence == pytest.approx(np.log(table.sum()), abs=1e-12)
    for v, name in enumerate(answer):
        np.testing.assert_allclose(answer[name].values_array, onto(table, (v,)), atol=1e-14)
    sliced = table[:, 2:3]
    joint = kk.query(mixed, joint=["f", "b", "a"], evidence={"b": "b2"})
    expected = np.zeros((3, 3, 2))
    expected[:, 2, :] = onto(sliced, (5, 0))
    np.testing.assert_allclose(joint.table, expected, atol=1e-14)
    assert joint.probability(f="f1", a=1) == pytest.approx(expected[1, :, 1].sum())


def test_likelihood_and_observed_marginals_by_enumeration(mixed: kk.FactorGraph) -> None:
    weights = {3: [0.5, 0.0, 2.0, 1.0], 5: [1.0, 0.2, 0.7]}
    table = joint_table(mixed, weights)
    named = {"d": weights[3], "f": {"f0": 1.0, "f1": 0.2, "f2": 0.7}}
    answer = kk.query(mixed, ["a", "d"], likelihood=named)
    np.testing.assert_allclose(answer["a"].values_array, onto(table, (0,)), atol=1e-14)
    np.testing.assert_allclose(answer["d"].values_array, onto(table, (3,)), atol=1e-14)
    assert answer.log_evidence == pytest.approx(np.log(table.sum()), abs=1e-12)
    wanted = np.array([0.2, 0.5, 0.3])
    jeffrey = kk.query(mixed, ["a", "b"], observed_marginals={"b": wanted})
    plain = joint_table(mixed)
    given_b = plain.sum(axis=(2, 3, 4, 5, 6))
    np.testing.assert_allclose(
        jeffrey["a"].values_array, (given_b / given_b.sum(axis=0)) @ wanted, atol=1e-9
    )
    both = kk.query(mixed, observed_marginals={"b": wanted, "f": [0.3, 0.3, 0.4]})
    np.testing.assert_allclose(both["b"].values_array, wanted, atol=1e-9)
    np.testing.assert_allclose(both["f"].values_array, [0.3, 0.3, 0.4], atol=1e-9)
    joint = kk.query(mixed, joint=["a", "b"], observed_marginals={"b": wanted})
    np.testing.assert_allclose(joint["a"].values_array, jeffrey["a"].values_array, atol=1e-9)
    state = kk.query(mixed, "a", observed_marginals={"b": [0, 1, 0]})
    again = kk.query(mixed, "a", evidence={"b": 1})
    assert np.array_equal(state["a"].values_array, again["a"].values_array)


def test_marked_rows_go_through_the_careful_engine() -> None:
    """Entries far apart: the fast rows would underflow, the answer is that of logarithms."""
    n = 12
    pairs = [((i, i + 1), [[1e-120, 1.0], [1.0, 1e-160]]) for i in range(n - 1)]
    graph = kk.FactorGraph([2] * n, [*pairs, ((0,), [1e-200, 1.0])])
    answer = kk.query(graph, [0, n - 1], evidence={n // 2: 0, n // 2 + 1: 0})
    exact = kk.infer(graph, "jt", evidence={n // 2: 0, n // 2 + 1: 0})
    np.testing.assert_allclose(answer["0"].values_array, exact[0], rtol=1e-12)
    assert answer.log_evidence == pytest.approx(exact.log_z, rel=1e-13)
    enumerated = kk.infer(graph, "enumerate", evidence={n // 2: 0, n // 2 + 1: 0})
    assert answer.log_evidence == pytest.approx(enumerated.log_z, rel=1e-13)


def test_a_variable_with_an_observed_marginal_stays_in_the_answer() -> None:
    """Also where the marginal has all its mass on one state; evidence leaves its variable out."""
    for wanted in ([0.1, 0.9], [0.0, 1.0]):
        answer = kk.query(ASIA, observed_marginals={"smoke": wanted})
        assert list(answer) == list(ASIA.names)
        assert answer["smoke"].values_array == pytest.approx(wanted, abs=1e-9)
    certain = kk.query(ASIA, observed_marginals={"smoke": [0, 1]})
    seen = kk.query(ASIA, evidence={"smoke": "yes"})
    assert set(certain) - set(seen) == {"smoke"}
    for name in seen:
        assert certain[name] == seen[name]
    other = kk.query(ASIA, observed_marginals={"smoke": [0, 1]}, method="bp")
    assert list(other) == list(ASIA.names) and other["smoke"]["yes"] == 1.0


@pytest.mark.parametrize("together", [(), (0, 5)])
def test_tables_and_fast_and_careful_trees_agree(
    mixed: kk.FactorGraph, together: tuple[int, ...]
) -> None:
    clock = Budget().start()
    rng = np.random.default_rng(0)
    pattern = EvidencePattern((1, 4), (3,), together)
    table = PatternTable(mixed, pattern)
    tree = PatternTree(mixed, cache_of(mixed).linear, pattern, clock)
    careful = PatternTree(mixed, cache_of(mixed).linear, pattern, clock)
    assert tree.rows.side_by_side
    careful.rows.side_by_side = False
    states = np.zeros((7, 2), dtype=np.int32)
    states[:, 0] = rng.integers(0, 3, 7)
    weights = log_of(rng.random((7, 4)))
    weights[2] = [-np.inf, -np.inf, -np.inf, 3.0]
    weights[3] = -np.inf
    for logs in (False, True):
        log_z, out = table.run(states, weights, clock, logs=logs)
        assert log_z[3] == -np.inf and np.isfinite(np.delete(log_z, 3)).all()
        for other in (tree, careful):
            other_log_z, other_out = other.run(states, weights, clock, logs=logs)
            np.testing.assert_allclose(other_log_z, log_z, atol=1e-12)
            np.testing.assert_allclose(other_out, out, rtol=1e-12, atol=1e-14)
    for row, weight in zip(states, weights, strict=True):
        best, same = table.best(row, weight, clock), tree.best(row, weight, clock)
        if best is None or same is None:
            assert best is same is None
        else:
            assert best[0].tolist() == same[0].tolist()
            np.testing.assert_allclose(best[1], same[1], atol=1e-12)


def test_an_answer_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the fixture of this folder, which asks every question twice."""
    run, calls = PatternTable.run, []

    def drifting(self: PatternTable, *arguments: Any, **options: Any) -> Any:
        log_z, out = run(self, *arguments, **options)
        calls.append(1)
        return log_z + len(calls), out

    monkeypatch.setattr(PatternTable, "run", drifting)
    with pytest.raises(AssertionError):
        kk.predict_proba(ASIA, {"xray": ["yes"]})
    with pytest.raises(AssertionError):
        kk.most_probable(ASIA)


def test_engines_are_shared_and_barren_variables_left_out() -> None:
    graph = ASIA.replaced()
    cache = cache_of(graph)
    first = kk.query(graph, "lung", evidence={"xray": "yes"})
    second = kk.query(graph, "lung", evidence={"xray": "yes"})
    third = kk.query(graph, "tub", evidence={"xray": "no"})
    fourth = kk.query(graph.replaced(), "tub", evidence={"xray": "no"})
    assert len(cache._engines) == 1
    assert np.array_equal(first["lung"].values_array, second["lung"].values_array)
    assert np.array_equal(third["tub"].values_array, fourth["tub"].values_array)
    needed = {graph.index("lung"), graph.index("smoke")}
    barren = barren_variables(graph, needed, normalised_tables(graph))
    assert {graph.label(v) for v in barren} == {"asia", "tub", "bronc", "either", "xray", "dysp"}
    clock = Budget().start()
    tree = PatternTree(graph, cache.linear, EvidencePattern((), left_out=barren), clock)
    log_z, out = tree.run(np.zeros((1, 0), dtype=np.int32), np.zeros((1, 0)), clock)
    assert log_z[0] == pytest.approx(0.0, abs=1e-14)
    whole = kk.query(graph, ["lung", "smoke"])
    for v in tree.open.tolist():
        np.testing.assert_allclose(tree.marginal(out[0], v), whole[graph.label(v)].values_array)


def test_unnormalised_tables_are_never_barren() -> None:
    graph = kk.FactorGraph(
        [2, 2], [((0,), [0.5, 0.5]), ((0, 1), [[3.0, 1.0], [1.0, 1.0]])], children=[0, 1]
    )
    assert not barren_variables(graph, {0}, normalised_tables(graph))
    values = kk.query(graph, 0, method="bp")["0"].values_array
    np.testing.assert_allclose(values, [2 / 3, 1 / 3])


def test_other_methods_and_their_joints() -> None:
    exact = kk.query(ASIA, "lung", evidence={"smoke": "yes"})
    bp = kk.query(ASIA, "lung", evidence={"smoke": "yes"}, method="bp")
    assert not bp.exact and bp.method == "bp"
    np.testing.assert_allclose(bp["lung"].values_array, exact["lung"].values_array, atol=1e-9)
    joint = kk.query(ASIA, joint=("lung", "either"), method="bp")
    expected = kk.query(ASIA, joint=("lung", "either"))
    np.testing.assert_allclose(joint.table, expected.table, atol=1e-3)
    with pytest.raises(kk.KikuchiError, match="none contains"):
        kk.query(ASIA, joint=("asia", "xray"), method="bp")
    with pytest.raises(kk.KikuchiError, match="max-marginals"):
        kk.query(ASIA, "lung", method="jt:mode=max")
    weighted = kk.query(ASIA, "lung", likelihood={"smoke": [0.2, 0.9]}, method="mf")
    assert not weighted.exact


def test_beliefs_give_joints_and_survive_pickle() -> None:
    beliefs = kk.infer(ASIA, "jt", evidence={"dysp": "yes"})
    expected = kk.query(ASIA, joint=("asia", "xray"), evidence={"dysp": "yes"}).table
    np.testing.assert_allclose(beliefs.joint(["asia", "xray"]), expected, atol=1e-14)
    again = pickle.loads(pickle.dumps(beliefs))
    assert np.array_equal(again.flat_factors, beliefs.flat_factors)
    np.testing.assert_allclose(again.joint(["asia", "xray"]), expected, atol=1e-14)
    frame = beliefs.to_pandas()
    row = frame[(frame.variable == "dysp") & (frame.state == "yes")]
    assert row.probability.tolist() == [1.0]
    assert "max_marginal" in kk.infer(ASIA, "jt:mode=max").to_pandas()
    assert "<table>" in beliefs._repr_html_() and "lung" in beliefs._repr_html_()


def test_answers_are_labelled_and_portable() -> None:
    answer = kk.query(ASIA, ["xray", "bronc"], evidence={"dysp": "yes"})
    assert answer["xray"]["yes"] == answer["xray"][1] and len(answer) == 2
    assert dict(answer["xray"]).keys() == {"no", "yes"}
    frame = answer.to_pandas()
    assert frame.columns.tolist() == ["variable", "state", "probability"] and len(frame) == 4
    again = pickle.loads(pickle.dumps(answer))
    assert repr(again) == repr(answer)
    html = answer._repr_html_()
    assert html.count("<tr>") == 5 and "xray" in html
    joint = kk.query(ASIA, joint=("xray", "bronc"), evidence={"dysp": "yes"})
    series = joint.to_pandas()
    assert series["yes", "no"] == joint.probability(xray="yes", bronc="no")
    assert joint.to_dict()["variables"] == ["xray", "bronc"]
    assert (
        "<script>"
        not in kk.query(kk.FactorGraph([2], [((0,), [1, 2])], names=["<script>"]))._repr_html_()
    )
    xarray = pytest.importorskip("xarray")
    assert isinstance(joint.to_xarray(), xarray.DataArray)
    assert float(answer.to_xarray()["p(xray)"].sel(xray="yes")) == answer["xray"]["yes"]


@pytest.mark.parametrize(
    ("ask", "kind", "says"),
    [
        (lambda: kk.query(ASIA, "lnug"), ModelError, "did you mean 'lung'"),
        (lambda: kk.query(ASIA, ["lung", "lung"]), ModelError, "repeated"),
        (lambda: kk.query(ASIA, "lung", joint=("a",)), ModelError, "not both"),
        (lambda: kk.query(ASIA, evidence={"dysp": "yse"}), EvidenceError, "did you mean 'yes'"),
        (lambda: kk.query(ASIA, evidence={"dysp": [0.1, 0.9]}), EvidenceError, "likelihood="),
        (lambda: kk.query(ASIA, likelihood={"dysp": [0.0, 0.0]}), EvidenceError, "not all 0"),
        (lambda: kk.query(ASIA, likelihood={"dysp": [1.0]}), EvidenceError, "2 states"),
        (
            lambda: kk.query(ASIA, likelihood={"dysp": {"yse": 1.0}}),
            EvidenceError,
            "has no state 'yse'; did you mean 'yes'",
        ),
        (
            lambda: kk.query(ASIA, evidence={"dysp": 1}, likelihood={"dysp": [1, 1]}),
            EvidenceError,
            "two ways",
        ),
        (
            lambda: kk.query(ASIA, evidence={"tub": "yes", "either": "no", "smoke": "yes"}),
            ImpossibleEvidenceError,
            "tub=yes, either=no together are impossible; take",
        ),
        (lambda: kk.query(3), ModelError, "builtins.int is not taken"),
        (lambda: kk.query(ASIA, 5.5), ModelError, "5.5 is not a variable"),
        (
            lambda: kk.query(ASIA, observed_marginals={"either": [0.5, 0.5]}, evidence={"tub": 1}),
            EvidenceError,
            "exclude",
        ),
    ],
)
def test_bad_questions_get_one_clear_line(ask: object, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says) as caught:
        ask()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_small_models_are_answered_without_compiled_loops() -> None:
    """Loading Numba takes longer than all the rest of a question from the command line, and
    compiling far longer: every question is asked twice.
    """
    code = """
import sys
import kikuchi as kk

asia = kk.example("asia")
for _ in range(2):
    kk.query(asia, "lung", evidence={"xray": "yes"}, likelihood={3: [1, 2]})
    kk.query(asia, joint=["lung", "xray"])
    kk.query(asia, observed_marginals={"smoke": [0.1, 0.9]})
    kk.most_probable(asia, {"xray": "yes"}, best=3)
    kk.marginal_map(asia, ["smoke", "lung"], {"xray": "yes"})
    kk.information_gain(asia, "lung")
    kk.sensitivity(asia, "lung", "yes", {"xray": "yes"})
    try:
        kk.query(asia, evidence={"tub": "yes", "either": "no"})
    except kk.KikuchiError:
        pass
assert not {"numba", "scipy", "pandas", "matplotlib"} & set(sys.modules)
kk.predict_proba(asia, {"xray": ["yes", None, "no"] * 100})
assert "numba" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_smallest_conflict_is_named() -> None:
    """Three observations contradict each other, and so do two others: the two are named."""
    cause = ((0, 1, 2), [[[1, 1], [1, 1]], [[1, 1], [1, 0]]])  # not all three
    graph = kk.FactorGraph([2] * 5, [((3, 4), [[1, 1], [1, 0]]), cause], names=list("abcde"))
    for names in ("abcde", "deabc"):
        asked = dict.fromkeys(names, 1)
        with pytest.raises(ImpossibleEvidenceError, match="zero: d=1, e=1 together are impossible"):
            kk.query(graph, evidence=asked)
    with pytest.raises(ImpossibleEvidenceError, match="zero: a=1, b=1, c=1 together"):
        kk.query(graph, evidence={"a": 1, "b": 1, "c": 1, "d": 1})
    cut = kk.FactorGraph([2, 2], [((0,), [1, 0])], names=["a", "b"])
    with pytest.raises(ImpossibleEvidenceError, match="a=1 alone is impossible"):
        kk.query(cut, evidence={"a": 1, "b": 1})


def test_a_conflict_is_sought_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree without the evidence may be far larger than that of the question."""
    side = 9
    grid = kk.grid(side, side, seed=0)
    factors = [(grid.scope(a), grid.table(a)) for a in range(grid.n_factors)]
    graph = kk.FactorGraph([2] * side**2, [*factors, ((0, 1), np.eye(2))])
    seen = dict.fromkeys(range(2, side**2, 2), 0) | {0: 0, 1: 1}
    with pytest.raises(ImpossibleEvidenceError, match="zero: 0=0, 1=1 together are impossible;"):
        kk.query(graph, [5], evidence=seen)
    monkeypatch.setattr("kikuchi.queries.conflicts._MEMORY", 50_000)
    monkeypatch.setattr("kikuchi.engines.trees.rows.MOST_ENTRIES", 100)
    says = (
        r"0=0, 1=1, 2=0, .*, 16=0 and 32 more together are impossible \(there may be a smaller set"
    )
    with pytest.raises(ImpossibleEvidenceError, match=says):
        kk.query(graph.replaced(), [5], evidence=seen)


@pytest.fixture(scope="module")
def numbered() -> kk.FactorGraph:
    """States named 1, 2, 3 and True, False; variables named by numbers in another order."""
    table = [[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]
    return kk.FactorGraph(
        [3, 2],
        [((0,), [0.2, 0.3, 0.5]), ((0, 1), table)],
        names=["1", "0"],
        states=[["1", "2", "3"], ["True", "False"]],
        children=[0, 1],
    )


def test_numbers_that_are_names_are_never_taken_for_places(numbered: kk.FactorGraph) -> None:
    """pgmpy reads 1 as the state named 1, pyAgrum as the second state: neither is guessed."""
    answer = kk.query(numbered, "0", evidence={"1": "1"})
    assert answer["0"]["True"] == answer["0"][True] == pytest.approx(0.1)
    assert kk.query(numbered, "0", evidence={"1": 3})["0"]["True"] == pytest.approx(0.3)
    assert kk.query(numbered, "1", evidence={"0": True})["1"]["3"] == pytest.approx(15 / 23)
    prior = kk.query(numbered)
    joint = kk.query(numbered, joint=["1", "0"])
    assert joint.probability({"1": "1", "0": False}) == pytest.approx(0.18)
    state = "state 1 is the name at position 0 and the position of '2'"
    variable = "variable 1 is the name at position 0 and the position of '0'"
    for ask, says in (
        (lambda: kk.query(numbered, "0", evidence={"1": 1}), state),
        (lambda: kk.query(numbered, "0", likelihood={"1": {1: 0.5, "2": 0.5}}), state),
        (lambda: kk.most_probable(numbered, {"1": np.int64(1)}), state),
        (lambda: kk.sensitivity(numbered, "1", 1), state),
        (lambda: prior["1"][1], state),
        (lambda: joint.probability({"1": 1}), state),
        (lambda: kk.query(numbered, 1), variable),
        (lambda: kk.query(numbered, "0", evidence={1: "1"}), variable),
        (lambda: kk.information_gain(numbered, 1), variable),
        (lambda: joint.probability({"1": 7}), "has no state 7; known: 1, 2, 3"),
        (lambda: joint.probability({"1": -1}), "has no state -1"),
    ):
        with pytest.raises(kk.KikuchiError, match=says):
            ask()


@pytest.mark.slow
def test_a_tree_that_costs_too_much_is_left_to_auto() -> None:
    grid = kk.grid(30, 30, seed=1)
    answer = kk.query(grid, [0], budget=Budget(seconds=3.0, bytes=10**6))
    assert not answer.exact or answer.method != "jt"
    assert answer["0"].values_array.sum() == pytest.approx(1.0)


def test_an_exact_answer_that_is_insisted_upon_is_refused_with_its_price() -> None:
    grid = kk.grid(14, 14, seed=1)
    with pytest.raises(kk.KikuchiError, match="junction tree"):
        kk.query(grid, [0], method="exact", budget=Budget(bytes=10**5))
    exact = kk.query(grid, [0], method="exact")
    np.testing.assert_allclose(exact["0"].values_array, kk.infer(grid, "jt")[0], atol=1e-12)


def test_independent_variables_give_no_information() -> None:
    """Rounding gave 5e-34 nats."""
    gain = kk.information_gain(ASIA, "lung")
    assert gain["asia"] == gain["tub"] == 0.0
    assert all(value > 0.0 for name, value in gain.items() if name not in ("asia", "tub"))


def test_models_fits_and_bounds_show_themselves_in_notebooks() -> None:
    assert "smoke" in ASIA._repr_html_() and "states: no, yes" in ASIA._repr_html_()
    bounds = kk.brackets.LogZBounds(lower=1.0, upper=3.0, lower_method="mf", upper_method="trw")
    assert "at most" in bounds._repr_html_() and "2 nats" in bounds._repr_html_()
    fit = kk.learning.PseudoLikelihood().fit(kk.FactorGraph([2], [((0,), [1, 1])]), [[1], [1], [0]])
    assert "pseudo" in fit._repr_html_()
    assert "<th>width</th><td>2</td>" in kk.plan(ASIA)._repr_html_()
    gain = kk.information_gain(ASIA, "lung")
    assert "Information about lung" in gain._repr_html_() and "smoke" in gain._repr_html_()
    rows = kk.Data.of({"a": ["x", None, "<y>"], "b": ["0", "1", "0"]})._repr_html_()
    assert "<tr><th>a</th><th>b</th></tr>" in rows and "1 cells missing" in rows
    assert "<tr><td></td><td>1</td></tr><tr><td>&lt;y&gt;</td><td>0</td></tr>" in rows
    again = pickle.loads(pickle.dumps((ASIA, bounds, fit)))
    assert again[0] == ASIA and repr(again[2]) == repr(fit)


def test_joints_of_variables_of_a_single_state_have_one_entry() -> None:
    """By the tree too, whether a pattern of evidence is met for the first time or again."""
    rng = np.random.default_rng(0)
    cards = [1, 1, *[3] * 12]
    tables = [((v, v + 1), rng.random((cards[v], cards[v + 1])) + 0.1) for v in range(13)]
    chain = kk.FactorGraph(cards, tables)
    for state in (0, 1, 2):
        for likelihood in (None, {7: [0.1, 0.2, 0.3]}):
            found = kk.query(chain, joint=[1, 0], evidence={5: state}, likelihood=likelihood)
            assert found.table.tolist() == [[1.0]]
    marginals = {7: [0.2, 0.3, 0.5]}
    assert kk.query(chain, joint=[1, 0], observed_marginals=marginals).table.tolist() == [[1.0]]
