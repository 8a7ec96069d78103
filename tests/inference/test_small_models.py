"""Small models are answered without compiling anything, and as compiled loops answer them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.compiled import njit
from kikuchi.core.compiling import interpreted, is_interpreted
from kikuchi.core.errors import KikuchiError
from kikuchi.inference.registry import METHODS
from kikuchi.inference.small_work import SMALL

SPRINKLER = "cloudy -> sprinkler -> wet <- rain <- cloudy"


def _triples(seed: int) -> kk.FactorGraph:
    rng = np.random.default_rng(seed)
    states = [2, 3, 2, 3, 2]
    scopes = [(0, 1, 2), (2, 3), (3, 4, 0), (1,), (4,)]
    tables = [rng.uniform(0.2, 2.0, size=[states[v] for v in scope]) for scope in scopes]
    return kk.FactorGraph(states, list(zip(scopes, tables, strict=True)))


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
    with interpreted(False):
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
import kikuchi as kk
from kikuchi.core.compiling import COMPILING
sprinkler, asia = kk.network("{SPRINKLER}"), kk.example("asia")
for method in ("bp", "jt", "mf", "trw", "kikuchi", "gbp", "auto", "wmb"):
    kk.infer(sprinkler, method).factor(0)
kk.infer(asia, "bp", evidence={{"xray": "yes"}}).covariance(["lung"])
kk.plan(asia)
kk.plan(asia).calibrate().joint(["lung", "asia"])
kk.bounds(asia, seconds=2)
kk.certify(asia)
print(COMPILING.compiled, COMPILING.loading)
"""


def test_first_calls_on_small_models_compile_and_load_nothing(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", _FIRST_CALLS],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["0.0", "0.0"]


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
