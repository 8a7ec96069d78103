"""Certificates of belief propagation against plain matrices, Jacobians and runs (LIU-I9).

Conformance tests C10 (norms and Jacobians), C11 (one fixed point, linear rate) and C12 (regular
graphs) of the catalogue, and the promise that matters: no certificate where a run diverges.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.core.errors import BudgetError, EvidenceError, MethodError
from kikuchi.engines.certificates import certify, quick_certificate
from kikuchi.methods.registry import METHODS
from oracle import enumerate_exact, random_model

NAMES = ("spectral radius", "largest singular value", "largest column sum", "largest row sum")

Edge = tuple[int, int]  # factor, variable


def directed_edges(graph: FactorGraph) -> list[Edge]:
    """Messages from factors of two or more variables."""
    return [
        (a, i) for a in range(graph.n_factors) if len(graph.scope(a)) > 1 for i in graph.scope(a)
    ]


def odds_by_definition(graph: FactorGraph, factor: int, i: int, j: int) -> float:
    """The largest log odds ratio of a positive table, by going through all pairs of entries."""
    scope = graph.scope(factor)
    p, q = scope.index(i), scope.index(j)
    table = graph.log_table(factor)
    states = list(np.ndindex(*table.shape))
    largest = 0.0
    for one, other in itertools.product(states, states):
        if one[p] == other[p] or one[q] == other[q]:
            continue
        swapped, back = list(one), list(other)
        swapped[p], back[p] = other[p], one[p]
        value = table[one] + table[other] - table[tuple(swapped)] - table[tuple(back)]
        largest = max(largest, float(value))
    return largest


def matrix_by_definition(graph: FactorGraph, alpha: float) -> np.ndarray:
    """M written down entry by entry."""
    edges = directed_edges(graph)
    matrix = np.zeros((len(edges), len(edges)))
    for row, (a, i) in enumerate(edges):
        for col, (b, j) in enumerate(edges):
            if (a, i) == (b, j):
                matrix[row, col] += abs(1 - alpha)
            elif j != i and j in graph.scope(a):
                strength = np.tanh(abs(alpha) * odds_by_definition(graph, a, i, j) / 4)
                matrix[row, col] += strength * (abs(1 - alpha) if a == b else 1.0)
    return matrix


class Messages:
    """Parallel alpha-belief propagation in logarithms, written apart from the library."""

    def __init__(self, graph: FactorGraph, alpha: float) -> None:
        self.graph, self.alpha = graph, alpha
        self.edges = directed_edges(graph)
        self.own = [np.zeros(int(c)) for c in graph.cardinalities]
        for a in range(graph.n_factors):
            if len(graph.scope(a)) == 1:
                self.own[graph.scope(a)[0]] = self.own[graph.scope(a)[0]] + graph.log_table(a)

    def start(self, rng: np.random.Generator, spread: float) -> dict[Edge, np.ndarray]:
        cards = self.graph.cardinalities
        return {e: spread * rng.normal(size=int(cards[e[1]])) for e in self.edges}

    def step(self, old: dict[Edge, np.ndarray]) -> dict[Edge, np.ndarray]:
        new = {}
        for a, i in self.edges:
            scope = self.graph.scope(a)
            total = self.alpha * self.graph.log_table(a)
            for axis, j in enumerate(scope):
                if j == i:
                    continue
                inflow = self.own[j] + (1 - self.alpha) * old[a, j]
                inflow = inflow + sum(m for (b, v), m in old.items() if v == j and b != a)
                shape = [1] * len(scope)
                shape[axis] = -1
                total = total + inflow.reshape(shape)
            axes = tuple(k for k, j in enumerate(scope) if j != i)
            value = (
                np.logaddexp.reduce(
                    np.moveaxis(total, scope.index(i), 0).reshape(total.shape[scope.index(i)], -1),
                    axis=1,
                )
                if axes
                else total
            )
            value = (1 - self.alpha) * old[a, i] + value
            new[a, i] = value - value.mean()
        return new

    def distance(self, one: dict[Edge, np.ndarray], other: dict[Edge, np.ndarray]) -> np.ndarray:
        """Range of the difference of each message."""
        return np.array([np.ptp(one[e] - other[e]) for e in self.edges])


def small_models(count: int) -> list[FactorGraph]:
    rng = np.random.default_rng(5)
    models = [
        random_model(rng, n=5, n_factors=6, max_order=3, max_card=3, scale=rng.choice([0.1, 0.5]))
        for _ in range(count)
    ]
    kept = [
        g.condition({int(v): 0 for v in np.flatnonzero(g.cardinalities == 1)}).graph for g in models
    ]
    return [g for g in kept if directed_edges(g)]


# ---------------------------------------------------------------------- the matrix (C10)


@pytest.mark.parametrize("alpha", [1.0, 0.5, 1.3, -0.2])
def test_norms_equal_those_of_the_explicit_matrix(alpha: float) -> None:
    """Tables of any order and cardinality; duplicated scopes count as separate factors."""
    # LIU-C10
    models = [*small_models(6), kk.grid(3, 3, coupling=0.4), kk.generate.complete(5, coupling=0.2)]
    pair = [[2.0, 1.0], [1.0, 3.0]]
    models.append(FactorGraph([2, 2, 2], [((0, 1), pair), ((1, 0), pair), ((1, 2), pair)]))
    for graph in models:
        matrix = matrix_by_definition(graph, alpha)
        found = certify(graph, alpha=alpha)
        exact = (
            np.abs(np.linalg.eigvals(matrix)).max(),
            np.linalg.norm(matrix, 2),
            np.abs(matrix).sum(axis=0).max(),
            np.abs(matrix).sum(axis=1).max(),
        )
        values = [found[name].value for name in NAMES]
        np.testing.assert_allclose(values[2:], exact[2:], atol=1e-10)
        assert values[1] == pytest.approx(exact[1], abs=1e-6)
        # Eigenvalues of a defective matrix are known to about the root of the rounding.
        assert values[0] >= exact[0] - 1e-6
        radius, sigma, column, row = values
        assert radius <= sigma * (1 + 1e-7) <= np.sqrt(column * row) * (1 + 1e-6)
        assert all(found[name].holds == (found[name].value < 1 - 1e-9) for name in NAMES)


def test_spectral_radius_is_tight_where_cycles_mix() -> None:
    for graph in (
        kk.grid(4, 4, coupling=0.5),
        kk.generate.complete(6, coupling=0.5),
        small_models(3)[-1],
    ):
        exact = np.abs(np.linalg.eigvals(matrix_by_definition(graph, 1.0))).max()
        assert certify(graph)["spectral radius"].value == pytest.approx(exact, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("alpha", [1.0, 0.4, 1.6])
def test_matrix_bounds_every_jacobian(alpha: float) -> None:
    """|dF/dz| <= M at random messages of a binary pairwise model, by finite differences."""
    # LIU-C10
    graph = kk.generate.complete(4, coupling=0.8)
    messages = Messages(graph, alpha)
    matrix = matrix_by_definition(graph, alpha)
    rng = np.random.default_rng(0)
    for _ in range(5):
        at = messages.start(rng, 2.0)
        for col, edge in enumerate(messages.edges):
            shifted = {e: m.copy() for e, m in at.items()}
            shifted[edge][1] += 1e-6
            change = messages.distance(messages.step(shifted), messages.step(at)) / 1e-6
            assert np.all(change <= matrix[:, col] + 1e-6)


@pytest.mark.parametrize("degree", [3, 4])
def test_thresholds_of_regular_graphs(degree: int) -> None:
    """C12: closed forms of the catalogue for equal couplings."""
    # LIU-C12
    shape = kk.generate.random_regular(20, degree, seed=1)
    pairs = shape.pairs().tolist()
    for alpha in (0.3, 0.7, 1.0, 1.4, 1.9):
        bound = alpha / (degree - alpha) if alpha <= 1 else (2 - alpha) / (degree - 2 + alpha)
        theta = np.arctanh(bound) / alpha
        for sign, share in itertools.product((1, -1), (1 - 1e-6, 1 + 1e-6)):
            graph = kk.ising({tuple(e): sign * share * theta for e in pairs})
            found = certify(graph, alpha=alpha)
            assert found.holds == (share < 1)
            assert found["spectral radius"].value == pytest.approx(
                found["largest row sum"].value, abs=1e-10
            )
            tanh = np.tanh(alpha * share * theta)
            row = abs(1 - alpha) * (1 + tanh) + (degree - 1) * tanh
            assert found["largest row sum"].value == pytest.approx(row, abs=1e-10)


# ---------------------------------------------------------------------- runs (C11)


@pytest.mark.parametrize("alpha", [1.0, 0.6, 1.2])
def test_certified_models_have_one_fixed_point_at_the_promised_rate(alpha: float) -> None:
    # LIU-C11
    certified = 0
    rng = np.random.default_rng(2)
    for graph in [
        *small_models(8),
        kk.grid(3, 3, coupling=0.3),
        kk.generate.complete(4, coupling=0.2),
    ]:
        found = certify(graph, alpha=alpha)
        if not found.holds or found.rate == 0.0:
            continue
        certified += 1
        messages = Messages(graph, alpha)
        one, other = messages.start(rng, 3.0), messages.start(rng, 3.0)
        matrix = matrix_by_definition(graph, alpha)
        begin = messages.distance(one, other)
        for k in range(1, 13):
            one, other = messages.step(one), messages.step(other)
            bound = np.linalg.matrix_power(matrix, k) @ begin
            assert np.all(messages.distance(one, other) <= bound + 1e-9)
    assert certified >= 3


def test_no_certificate_where_a_run_diverges() -> None:
    """Random graphs over scales of coupling, from the usual start and from random ones."""
    certified = diverged = 0
    rng = np.random.default_rng(0)
    for seed in range(60):
        scale = float(rng.choice([0.1, 0.3, 0.6, 1.0, 2.0]))
        states = int(rng.choice([2, 2, 3]))
        graph = kk.generate.random_graph(
            9, 0.4, seed=seed, coupling=scale, field=0.3, states=states
        )
        found = certify(graph)
        run = kk.infer(graph, "bp:schedule=parallel,max_iter=500,tol=1e-8")
        certified += found.holds
        diverged += not run.converged
        assert run.converged or not found.holds
        if found.holds and not graph.is_forest and seed % 4 == 0:
            messages = Messages(graph, 1.0)
            at = messages.start(rng, 5.0)
            for _ in range(300):
                before, at = at, messages.step(at)
            assert messages.distance(before, at).max() < 1e-6
    assert certified >= 10 and diverged >= 10


@pytest.mark.skipif("alpha" not in METHODS, reason="the alpha method is not there")
@pytest.mark.parametrize("alpha", [0.5, 1.3])
def test_no_certificate_where_alpha_bp_diverges(alpha: float) -> None:
    certified = 0
    for seed in range(25):
        scale = (0.05, 0.1, 0.2, 0.5, 1.0)[seed % 5]
        graph = kk.generate.random_graph(
            9, 0.4, seed=seed, coupling=scale, field=0.3, states=2 + seed % 2
        )
        found = certify(graph, alpha=alpha)
        run = kk.infer(graph, f"alpha:alpha={alpha},max_iter=500,tol=1e-8")
        certified += found.holds
        assert run.converged or not found.holds
    assert certified >= 5


@pytest.mark.parametrize("schedule", ["sequential", "random", "residual"])
def test_certified_runs_agree_between_schedules(schedule: str) -> None:
    for seed in range(5):
        graph = kk.grid(5, 5, seed=seed, coupling=0.35)
        assert certify(graph).holds
        one = kk.infer(graph, "bp:schedule=parallel,tol=1e-12")
        other = kk.infer(graph, f"bp:schedule={schedule},damping=0.3,tol=1e-12")
        assert one.converged and other.converged
        np.testing.assert_allclose(one.flat_marginals, other.flat_marginals, atol=1e-9)


# ---------------------------------------------------------------------- structure and zeros


def test_forests_and_single_cycles() -> None:
    tree = certify(kk.generate.random_tree(30, seed=0, coupling=5.0))
    assert tree.holds and tree.rate == 0.0 and "no cycles" in tree.text
    ring = {(i, (i + 1) % 7): 3.0 * (-1) ** i for i in range(7)}
    cycle = certify(kk.ising({**ring, (0, 8): 4.0, (3, 7): 1.0}))
    assert cycle.conditions[0].holds and cycle.conditions[0].value == 0
    assert cycle["spectral radius"].value == pytest.approx(np.tanh(3.0), abs=1e-6)
    two = certify(kk.ising({**ring, (0, 3): 3.0}))
    assert not two.conditions[0].holds and two.conditions[0].value == 1 and not two.holds


def test_long_uneven_cycle_is_certified_by_its_structure() -> None:
    rng = np.random.default_rng(0)
    ring = kk.ising({(i, (i + 1) % 400): float(rng.normal()) * 3 for i in range(400)})
    found = certify(ring)
    assert found.conditions[0].holds and kk.infer(ring, "bp:max_iter=5000").converged


def test_models_without_messages() -> None:
    for graph in (
        FactorGraph([3], []),
        FactorGraph([2, 3], [((0,), [1, 2]), ((1,), [1, 2, 3])]),
        FactorGraph([1, 2], [((0, 1), [[1.0, 2.0]])]),
        FactorGraph([2, 2], [((0, 1), [[1, 2], [2, 4]]), ((1, 0), np.ones(4))]),  # independent
    ):
        found = certify(graph)
        assert found.holds and found.rate == 0.0
    assert certify(FactorGraph([3], []), alpha=0.5).holds
    one = certify(FactorGraph([2, 2], [((0, 1), [[1, 2], [2, 4]])]), alpha=0.5)
    assert one["spectral radius"].value == pytest.approx(0.5)


def test_zeros_have_unbounded_strength() -> None:
    equal = np.eye(2)
    ring = FactorGraph([2] * 3, [((0, 1), equal), ((1, 2), equal), ((0, 2), equal)])
    found = certify(ring)
    assert not found.holds and found["spectral radius"].value == pytest.approx(1.0)
    assert "zeros" in found.conditions[0].remark and "zeros" in found.remarks[0]
    assert not certify(kk.example("ldpc24")).holds
    refused = certify(ring, alpha=0.5)
    assert not refused.holds and "alpha = 1 only" in refused.remarks[0]
    assert refused["spectral radius"].value is None


def test_states_that_are_ruled_out_do_not_count() -> None:
    """A zero in a one-variable factor is evidence, and gives the certificate of the evidence."""
    graph = kk.generate.complete(5, coupling=0.3, states=3, seed=3)
    clamped = FactorGraph(
        graph.cardinalities,
        [(graph.scope(a), graph.table(a)) for a in range(graph.n_factors)] + [((0,), [0, 1, 0])],
    )
    one, other = certify(graph, {0: 1}), certify(clamped)
    assert one["spectral radius"].value == pytest.approx(other["spectral radius"].value, rel=1e-6)
    assert one["spectral radius"].value < certify(graph)["spectral radius"].value


def test_certified_in_spite_of_zeros() -> None:
    """One unbounded factor between weak ones: the bound still falls below one, and BP obeys."""
    weak = np.array([[1.2, 1.0], [1.0, 1.2]])
    graph = FactorGraph(
        [2] * 4,
        [
            ((0, 1), np.eye(2)),
            ((1, 2), weak),
            ((2, 3), weak),
            ((3, 0), weak),
            ((0, 2), weak),
            ((2,), [1, 3]),
        ],
    )
    found = certify(graph)
    assert found.holds and not found.conditions[0].holds
    messages = Messages(graph, 1.0)
    rng = np.random.default_rng(1)
    with np.errstate(divide="ignore"):
        one, other = messages.start(rng, 4.0), messages.start(rng, 4.0)
        for _ in range(60):
            one, other = messages.step(one), messages.step(other)
    assert messages.distance(one, other).max() < 1e-6


def test_evidence_and_alpha_for_each_factor() -> None:
    graph = kk.grid(4, 4, coupling=1.0, seed=2)
    assert not certify(graph).holds
    observed = dict.fromkeys((1, 4, 6, 9, 11, 14), 0)
    assert certify(graph, observed).rate == 0.0
    alphas = np.full(graph.n_factors, 0.7)
    one, each = certify(graph, {0: 1}, 0.7), certify(graph, {0: 1}, alphas)
    assert [c.value for c in one.conditions] == [c.value for c in each.conditions]
    assert one.alpha == 0.7 and each.alpha is None


# ---------------------------------------------------------------------- facts


def test_bethe_bound_of_attractive_models() -> None:
    """The fact that is stated holds in numbers, also after states are exchanged."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        flips = rng.choice([-1, 1], size=6)
        pairs = {
            (i, j): float(abs(rng.normal()) * flips[i] * flips[j])
            for i, j in itertools.combinations(range(6), 2)
        }
        graph = kk.ising(pairs, rng.normal(size=6) * 0.3)
        assert "attractive" in certify(graph).facts[0]
        run = kk.infer(graph, "bp:damping=0.3,tol=1e-12")
        assert run.converged and run.log_z <= enumerate_exact(graph)[0] + 1e-9
        frustrated = kk.ising({**pairs, (0, 1): -pairs[0, 1]}, rng.normal(size=6))
        assert certify(frustrated).facts == ()


def test_models_without_fields() -> None:
    pairs = kk.generate.random_regular(16, 3, seed=0).pairs().tolist()
    weak = kk.ising({tuple(e): 0.3 for e in pairs})
    assert certify(weak).facts[1].endswith("the only one")
    strong = kk.ising({tuple(e): 0.9 for e in pairs})
    found = certify(strong)
    assert "unstable" in found.facts[1] and not found.holds
    messages = Messages(strong, 1.0)
    at = messages.start(np.random.default_rng(0), 1e-6)
    for _ in range(60):
        at = messages.step(at)
    assert max(np.ptp(m) for m in at.values()) > 0.5


# ---------------------------------------------------------------------- interface


def test_plain_data_and_text() -> None:
    found = certify(kk.grid(3, 3, coupling=0.2))
    data = found.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["certified"] is True and data["text"] == found.text
    assert [c["name"] for c in data["conditions"]][1:] == list(NAMES)
    assert found.rate == found["spectral radius"].value
    assert kk.brackets.certify is certify


@pytest.mark.parametrize(
    ("alpha", "words"),
    [(0.0, "not 0"), (np.nan, "finite"), ([1.0, 1.0], "one for each factor"), ("x", "number")],
)
def test_bad_alpha(alpha: object, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        certify(kk.grid(2, 2), alpha=alpha)  # type: ignore[arg-type]


def test_bad_evidence_and_budgets() -> None:
    graph = kk.grid(30, 30, coupling=0.3)
    with pytest.raises(EvidenceError, match="a state is required"):
        certify(graph, {0: [0.5, 0.5]})
    with pytest.raises(BudgetError, match="certificate needs"):
        certify(graph, budget=Budget(bytes=1000))
    hurried = certify(graph, budget=Budget(seconds=1e-9))
    assert not hurried.holds and "time" in hurried.remarks[0]


def test_bounds_hold_at_every_step() -> None:
    """Stopped anywhere, the value is an upper bound of the spectral radius."""
    from kikuchi.engines.certificates import _Proof

    graph = kk.generate.complete(6, coupling=0.5, seed=4)
    exact = np.abs(np.linalg.eigvals(matrix_by_definition(graph, 1.0))).max()
    for steps in range(1, 12):
        proof = _Proof(graph, np.ones(graph.n_factors), Budget().start())
        assert proof._radius(steps, decide=False).value >= exact - 1e-12


def test_reference_models(shared: Path) -> None:
    """Every model of the inference competition has a verdict in little time."""
    for path in sorted((shared / "reference" / "uai2014").glob("*.uai")):
        found = certify(kk.read(path), budget=Budget(seconds=2.0))
        assert found["spectral radius"].value is not None
        assert found.holds == path.name.startswith("ObjectDetection_28")


# ---------------------------------------------------------------------- what bp says


def test_belief_propagation_says_what_is_certain() -> None:
    sure = kk.infer(kk.grid(4, 4, coupling=0.2), "bp")
    assert sure.warnings == () and sure.diagnostics["certified"] is True
    unsure = kk.infer(kk.grid(4, 4, coupling=1.0, seed=1), "bp:damping=0.5,max_iter=5000")
    assert unsure.converged and "other fixed points" in unsure.warnings[0]
    failed = kk.infer(kk.grid(8, 8, coupling=3.0, field=0.01), "bp:schedule=parallel")
    assert "not certified (spectral radius" in failed.warnings[1]
    cut = kk.infer(kk.grid(4, 4, coupling=0.2), "bp:max_iter=2")
    assert not cut.converged and cut.warnings[1].startswith("certified: one fixed point")
    tree = kk.infer(kk.generate.random_tree(10), "bp")
    assert tree.warnings == () and "certified" not in tree.diagnostics
    assert "certified" not in kk.infer(kk.grid(3, 3), "bp:mode=max").diagnostics


def test_notes_are_given_only_where_they_are_cheap() -> None:
    assert quick_certificate(kk.generate.random_tree(9)) is None
    assert quick_certificate(kk.grid(200, 210)) is None
    assert quick_certificate(kk.generate.complete(3, states=300)) is None
    found = quick_certificate(kk.generate.complete(5, coupling=0.05), 0.5)
    assert found is not None
    note = found.text
    assert note is not None and note.startswith("certified")


def test_alpha_says_what_is_certain_too() -> None:
    weak = kk.infer(kk.generate.complete(5, coupling=0.05), "alpha:alpha=0.5")
    assert weak.diagnostics["certified"]
    strong = kk.infer(kk.generate.complete(8, coupling=3.0), "alpha:alpha=0.5,max_iter=3")
    assert not strong.diagnostics["certified"]
    assert any("not certified" in warning for warning in strong.warnings)


def test_binary_models_whose_zeros_rule_out_states_are_certified() -> None:
    """A table of one variable leaves it a single state, and no zero matters elsewhere."""
    pairs = [((0, 1), [[1, 2], [3, 1]]), ((1, 2), [[2, 1], [1, 3]]), ((2, 0), [[1, 3], [2, 1]])]
    found = certify(FactorGraph([2, 2, 2], [*pairs, ((0,), [0, 1])]))
    assert found.conditions
    assert not found.facts
