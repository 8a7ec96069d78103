"""Every network that pgmpy carries: the default query of all variables against another program or,
where that needs more memory than there is, against another elimination order.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.methods.junction_tree import JunctionTree
from kikuchi.queries.cache import cache_of

QUICK = ("asia", "alarm", "sachs", "insurance", "win95pts")
ONLY_OURS = ("munin1", "link")  # pyAgrum needs gigabytes, or minutes


def files() -> dict[str, Path]:
    spec = importlib.util.find_spec("pgmpy")
    if spec is None or spec.origin is None:
        return {}
    folder = Path(spec.origin).parent / "utils" / "example_models"
    return {path.name.removesuffix(".bif.gz"): path for path in sorted(folder.glob("*.bif.gz"))}


FILES = files()


def rounding(graph: kk.FactorGraph) -> float:
    """By how much rows of conditional tables miss 1: files print few digits."""
    tables = zip(graph.children, range(graph.n_factors), strict=True)
    sums = [graph.table(a).sum(axis=graph.scope(a).index(int(child))) for child, a in tables]
    return max(float(np.abs(rows - 1.0).max()) for rows in sums)


@pytest.mark.skipif(not FILES, reason="pgmpy is not installed")
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FILES]
)
def test_the_default_query_is_exact(name: str) -> None:
    graph = kk.read(FILES[name])
    answer = kk.query(graph)
    assert answer.exact and answer.method == "jt"
    if name in ONLY_OURS:
        expected = JunctionTree(order="min-degree").run(graph).marginals
    else:
        gum = pytest.importorskip("pyagrum")
        engine = gum.LazyPropagation(kk.to_pyagrum(graph))
        engine.makeInference()
        expected = [engine.posterior(v).toarray() for v in graph.names]
    parts = cache_of(graph).prior_by_parts(set(range(graph.n_variables)), kk.Budget().start())
    by_parts = parts is not None  # tables of barren variables count as sums of 1
    limit = 1e-10 + (rounding(graph) if by_parts else 0.0)
    for v, variable in enumerate(graph.names):
        np.testing.assert_allclose(answer[variable].values_array, expected[v], atol=limit)
