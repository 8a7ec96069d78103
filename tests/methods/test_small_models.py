"""Small models are answered without compiling anything, and as compiled loops answer them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.compiled import njit
from kikuchi.core.compiling import (
    compiles_when_needed,
    everything_compiled,
    interpreted,
    is_interpreted,
)
from kikuchi.core.errors import KikuchiError
from kikuchi.engines.small_work import SMALL, loops_for, loops_for_rows
from kikuchi.methods.registry import METHODS

SPRINKLER = "cloudy -> sprinkler -> wet <- rain <- cloudy"


def _triples(seed: int) -> kk.FactorGraph:
    rng = np.random.default_rng(seed)
    states = [2, 3, 2, 3, 2]
    scopes = [(0, 1, 2), (2, 3), (3, 4, 0), (1,), (4,)]
    tables = [rng.uniform(0.2, 2.0, size=[states[v] for v in scope]) for scope in scopes]
    return kk.FactorGraph(states, list(zip(scopes, tables, strict=True)))


def _network(seed: int) -> kk.FactorGraph:
    """37 variables of two to four states with up to three parents: as large as a usual network."""
    rng = np.random.default_rng(seed)
    states = rng.integers(2, 4, size=37).tolist()
    factors = []
    for v, count in enumerate(states):
        first = max(v - 5, 0)
        parents = rng.choice(np.arange(first, v), size=min(v - first, 2), replace=False).tolist()
        shape = [*(states[u] for u in parents), count]
        factors.append(((*parents, v), rng.dirichlet(np.ones(count), size=shape[:-1])))
    return kk.FactorGraph(states, factors)


MODELS = [kk.grid(3, 3, seed=1), _triples(0)]


def _answer(graph, method):
    try:
        beliefs = kk.infer(graph, method, seconds=20)
    except KikuchiError as error:
        return str(error)
    factors = beliefs.flat_factors if METHODS[method].gives_factor_beliefs else np.zeros(0)
    return beliefs, factors


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].most_interpreted])
@pytest.mark.parametrize("graph", MODELS, ids=["grid", "triples"])
def test_plain_python_and_compiled_loops_agree(graph, method):
    assert graph.log_tables.size <= SMALL
    plain = _answer(graph, method)
    with everything_compiled():
        compiled = _answer(graph, method)
    if isinstance(plain, str) or isinstance(compiled, str):
        assert plain == compiled
        return
    (a, a_factors), (b, b_factors) = plain, compiled
    assert (a.converged, a.stopped, a.iterations) == (b.converged, b.stopped, b.iterations)
    np.testing.assert_allclose(a.flat_beliefs, b.flat_beliefs, atol=1e-7)
    np.testing.assert_allclose(a_factors, b_factors, atol=1e-7)
    np.testing.assert_allclose(a.log_z or 0.0, b.log_z or 0.0, atol=1e-8)
    assert a.warnings == b.warnings


@pytest.mark.parametrize("seed", range(3))
def test_networks_of_usual_size_are_answered_alike(seed):
    graph = _network(seed)
    assert 150 < graph.log_tables.size <= SMALL
    evidence = {20: 1, 3: 0}
    questions = [
        lambda g: kk.infer(g, "jt", evidence=evidence).flat_beliefs,
        lambda g: kk.infer(g, "jt", evidence=evidence).flat_factors,
        lambda g: kk.infer(g, "bp", evidence=evidence).flat_beliefs,
        lambda g: np.concatenate(list(kk.query(g, [30, 2], evidence=evidence).values_by_variable)),
        lambda g: [kk.plan(g).bytes, kk.plan(g).operations, kk.plan(g).width],
        lambda g: kk.most_probable(g, evidence).log_evidence,
        lambda g: kk.plan(g, evidence=evidence).calibrate().sample(15, seed=0),
        lambda g: [value for _, value in _certified(kk.brackets.certify(g, evidence=evidence))],
    ]
    for ask in questions:
        with interpreted():
            plain = ask(graph)
        with everything_compiled():
            compiled = ask(_network(seed))  # another one, of which nothing is kept
        np.testing.assert_allclose(plain, compiled, atol=1e-9)


def _certified(certificate):
    """The figures of a certificate, absent ones as 0."""
    found = certificate.to_dict()
    numbers = {k: v for k, v in found.items() if isinstance(v, int | float) and k != "seconds"}
    return sorted({"rate": certificate.rate or 0.0, **numbers}.items())


def _is_plain(graph, *, rows=None, most=SMALL):
    with loops_for(graph, most) if rows is None else loops_for_rows(graph, rows):
        return not compiles_when_needed()


def test_the_work_decides_what_is_compiled():
    assert _is_plain(_network(0))
    with loops_for(_network(0)):
        assert not is_interpreted()  # what is on disk is used
    assert not _is_plain(_network(0), most=150)  # many sweeps
    assert _is_plain(kk.generate.complete(14, seed=0))  # few joint states
    assert not _is_plain(kk.generate.complete(14, seed=0), most=150)  # but many sweeps
    assert not _is_plain(kk.generate.complete(18, seed=0))  # few entries, but a table of 2 ** 18
    assert not _is_plain(kk.grid(3, 3), most=0)
    assert not _is_plain(kk.example("grid10"))
    assert _is_plain(_network(0), rows=20) and not _is_plain(_network(0), rows=100)


def test_the_outermost_decision_holds_and_ends():
    @njit(cache=False)
    def half(x):
        return x / 2

    with interpreted(False):
        with interpreted():
            assert not is_interpreted()
        assert half(3.0) == 1.5 and len(half.signatures) == 1
    with interpreted():
        with interpreted(False):
            assert is_interpreted()
        assert half("ab".__len__()) == 1.0 and len(half.signatures) == 1
    assert not is_interpreted()
    with pytest.raises(ZeroDivisionError), interpreted():
        1 / 0  # noqa: B018
    assert not is_interpreted()


_FIRST_CALLS = f"""
from contextlib import suppress
import kikuchi as kk
from kikuchi.core.compiling import COMPILING
from kikuchi.core.errors import KikuchiError
from kikuchi.methods.registry import METHODS
sprinkler, asia = kk.network("{SPRINKLER}"), kk.example("asia")
for method in METHODS:
    if METHODS[method].most_interpreted:
        for graph in (sprinkler, asia):
            with suppress(KikuchiError):  # a method that needs another kind of model
                kk.infer(graph, method, seconds=5).flat_factors
kk.infer(asia, "bp", evidence={{"xray": "yes"}}).covariance(["lung"])
kk.plan(asia)
kk.plan(asia).calibrate().joint(["lung", "asia"])
kk.plan(asia).calibrate().sample(200, seed=0)
kk.bounds(asia, seconds=2)
kk.brackets.certify(asia)
for _ in range(3):
    kk.query(asia, ["lung"], evidence={{"xray": "yes"}})
kk.query(asia, ["lung", "xray"])
kk.most_probable(asia, {{"xray": "yes"}}, best=3)
kk.marginal_map(asia, ["lung", "bronc"])
kk.predict_proba(asia, {{"xray": ["yes", "no", None]}}, ["lung"])
kk.information_gain(asia, "lung")
kk.sensitivity(asia, "lung", "yes")
kk.infer(asia, "jt").covariance()
kk.methods.mini_bucket_plan(asia, 2)
print(COMPILING.loops, COMPILING.loading)
"""


def test_first_calls_on_small_models_compile_and_load_nothing(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", _FIRST_CALLS],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["0", "0.0"]


def test_queries_of_small_networks_do_not_import_numba():
    code = (
        "import kikuchi as kk, sys; kk.query(kk.example('asia'), 'lung'); "
        "print('numba' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_enumeration_of_many_states_is_compiled_whatever_its_tables():
    """A chain has few table entries and 2^18 states: plain Python would take minutes."""
    n = 18
    chain = kk.FactorGraph([2] * n, [((i, i + 1), [[2, 1], [1, 3]]) for i in range(n - 1)])
    assert chain.log_tables.size <= SMALL
    beliefs = kk.infer(chain, "enumerate")
    tree = kk.infer(chain, "jt")
    np.testing.assert_allclose(beliefs.joint([0, 5]), tree.joint([0, 5]), atol=1e-12)
    np.testing.assert_allclose(beliefs.covariance([0, 5]), tree.covariance([0, 5]), atol=1e-12)
