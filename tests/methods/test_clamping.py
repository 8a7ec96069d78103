"""Clamping tightens bounds: LIU-I17, property C21."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.core.errors import MethodError, ModelError
from kikuchi.methods.clamping import Clamped
from kikuchi.methods.mean_field import MeanField
from kikuchi.methods.registry import parse_method
from oracle import enumerate_exact, random_model

SLACK = 1e-9


@pytest.mark.parametrize("choose", ["coupling", "degree", "entropy"])
@pytest.mark.parametrize("seed", range(4))
def test_lower_bounds_rise_to_log_z(choose: str, seed: int) -> None:
    # LIU-C21
    graph = random_model(np.random.default_rng(seed), 6, 10, 3, 3, scale=1.5)
    log_z, singles, tables = enumerate_exact(graph)
    free = int((graph.cardinalities > 1).sum())
    bounds = [kk.infer(graph, "mf").log_z_lower]
    for k in (1, 2, free):
        beliefs = kk.infer(graph, f"clamp:method=mf,k={k},choose={choose}")
        bounds.append(beliefs.log_z_lower)
        # Mean field has no upper bound, but a branch without factors is exact.
        assert beliefs.log_z_upper is None or beliefs.log_z_upper == pytest.approx(log_z)
        assert all(abs(p.sum() - 1) < 1e-9 for p in beliefs.marginals)
    assert bounds[1] >= bounds[0] - SLACK and bounds[2] >= bounds[0] - SLACK
    assert max(bounds) <= log_z + SLACK
    assert bounds[-1] == pytest.approx(log_z, abs=1e-9)  # all clamped: a sum over all states
    assert beliefs.flat_marginals == pytest.approx(np.concatenate(singles), abs=1e-9)
    for a, table in enumerate(tables):
        assert beliefs.factor(a) == pytest.approx(table, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_upper_bounds_fall_to_log_z(seed: int) -> None:
    """On the complete graph of seven binary variables, as in the catalogue."""
    # LIU-C21
    rng = np.random.default_rng(seed)
    pairs = {(i, j): float(rng.normal()) for i in range(7) for j in range(i + 1, 7)}
    graph = kk.ising(pairs, rng.normal(size=7).tolist())
    log_z = kk.infer(graph, "enumerate").log_z
    bounds = [kk.infer(graph, "trw").log_z_upper]
    for k in (1, 2, 5):
        beliefs = kk.infer(graph, f"clamp:method=trw,k={k}")
        bounds.append(beliefs.log_z_upper)
        assert beliefs.log_z <= beliefs.log_z_upper + SLACK
    assert all(np.diff(bounds) <= 1e-6)
    assert bounds[0] - bounds[1] > 0.1
    assert bounds[-1] == pytest.approx(log_z, abs=1e-6)  # two variables are left: a tree
    assert bounds[-1] >= log_z - 1e-9


def test_both_bounds_of_an_exact_method_stay_exact() -> None:
    graph = kk.grid(3, 3, seed=1)
    exact = kk.infer(graph, "jt")
    beliefs = kk.infer(graph, "clamp:method=jt,k=3")
    for value in (beliefs.log_z, beliefs.log_z_lower, beliefs.log_z_upper):
        assert value == pytest.approx(exact.log_z, abs=1e-10)
    assert beliefs.flat_marginals == pytest.approx(exact.flat_marginals, abs=1e-10)


def test_zeros_and_impossible_branches() -> None:
    equal = FactorGraph([3, 3, 2], [((0, 1), np.eye(3)), ((0,), [0, 1, 2]), ((1, 2), np.ones(6))])
    beliefs = kk.infer(equal, "clamp:method=mf,variables=0")
    assert beliefs.log_z == pytest.approx(np.log(6))
    assert beliefs[1] == pytest.approx([0, 1 / 3, 2 / 3])
    twice = kk.infer(equal, "clamp:method=mf,variables=0 1")
    assert twice.log_z == pytest.approx(np.log(6))


def test_variables_by_name_and_number_and_evidence() -> None:
    sprinkler = kk.example("sprinkler")
    names = sprinkler.names
    assert names is not None
    given = Clamped(method="mf", variables=(names[0], 1)).run(sprinkler)
    assert given.diagnostics["clamped"] == [names[0], names[1]]
    seen = kk.infer(
        sprinkler, f"clamp:method=mf,variables={names[0]} {names[1]}", evidence={names[0]: 0}
    )
    assert seen.diagnostics["clamped"] == [names[1]]
    exact = kk.infer(sprinkler, "jt", evidence={names[0]: 0})
    assert seen.log_z_lower <= exact.log_z + SLACK
    with pytest.raises(ModelError):
        kk.infer(sprinkler, "clamp:method=mf,variables=no-such-name")


def test_texts_go_both_ways() -> None:
    method = parse_method("clamp:method=(mf:restarts=2,tol=1e-6),k=3")
    assert isinstance(method, Clamped) and method.k == 3
    assert method.method == "mf:restarts=2,tol=1e-6"
    assert parse_method(method.text) == method
    same = Clamped(method=MeanField(restarts=2, tol=1e-6), k=3)
    assert parse_method(same.text) == same
    nested = parse_method("clamp:method=(clamp:method=(mf:restarts=1,tol=1e-3),k=1),k=1")
    assert parse_method(nested.text) == nested
    graph = kk.grid(3, 3, seed=0)
    assert nested.run(graph).log_z_lower <= kk.infer(graph, "jt").log_z


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clamp:method=bp", "has no bound"),
        ("clamp:method=nothing", "no method 'nothing'"),
        ("clamp:method=(mf:tol=1", "parentheses do not match"),
        ("clamp:method=mf),k=1", "parentheses do not match"),
        ("clamp:method=mf:restarts=-1", "restarts"),
        ("clamp:method=none", "there is no method 'none'"),
        ("clamp:k=0", "k must be"),
        ("clamp:k=20", "clamp fewer"),
    ],
)
def test_bad_options_are_refused(text: str, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        kk.infer(kk.grid(5, 5, seed=0), text)


def test_budgets_and_interruptions_leave_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = kk.grid(5, 5, seed=0)
    exact = kk.infer(graph, "jt").log_z
    short = kk.infer(graph, "clamp:method=mf,k=10", budget=Budget(seconds=0.1))
    assert short.stopped == "seconds" and not short.converged
    assert short.log_z_lower <= exact + SLACK and short.warnings
    assert short.log_z_lower >= short.diagnostics["unclamped_lower"] - 1e-9
    calls = 0
    original = MeanField._solve

    def interrupted(self, graph, run):
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt
        return original(self, graph, run)

    monkeypatch.setattr(MeanField, "_solve", interrupted)
    stopped = kk.infer(graph, "clamp:method=mf,k=3")
    assert stopped.stopped == "interrupted"
    assert stopped.log_z_lower <= exact + SLACK
    assert stopped.log_z is not None


def test_partial_sums_never_pass_log_z() -> None:
    graph = random_model(np.random.default_rng(5), 6, 10, 3, 3)
    log_z = enumerate_exact(graph)[0]
    beliefs = kk.infer(graph, "clamp:method=mf,k=3")
    assert max(beliefs.trace.objective) <= log_z + SLACK
    assert len(beliefs.trace) == beliefs.diagnostics["branches"]
